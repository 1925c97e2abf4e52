/* test_complex.c: c128 and the complex step. The table test (test_ops.c) compares every operation's
 * derivatives with complex steps. Here are values by NumPy and mpmath, what is refused for c128,
 * and complex steps on various tapes: other layouts, draws, tensors that were changed. */
#include <complex.h>
#include <ctype.h>
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "gradcheck/gradcheck.h"
#include "tests.h"
#include "data/complex.h"

typedef double complex number;

static eg_tensor *array(eg_ctx *cx, const double *pairs, int rank, const int64_t *dims)
{
    return eg_from_n(cx, EG_C128, pairs, rank, dims);
}
static void same(const char *name, eg_tensor *y, const double *want, int64_t n, double tolerance)
{
    const double *got = eg_c128(y);
    ck_assert_msg(got && eg_size(y) == n, "%s: %s", name, eg_error(eg_context(y)));
    for (int64_t k = 0; k < n; k++) {
        const number a = got[2 * k] + got[2 * k + 1] * _Complex_I,
                     b = want[2 * k] + want[2 * k + 1] * _Complex_I;
        ck_assert_msg(cabs(a - b) <= tolerance * cabs(b),
                      "%s: entry %lld is %.17g%+.17gi, not %.17g%+.17gi", name, (long long)k,
                      creal(a), cimag(a), creal(b), cimag(b));
    }
}

/* -- values ----------------------------------------------------------------------------------- */
/* clang-format off */
#define ONE(X)                                                                             \
    X(neg) X(exp) X(expm1) X(log) X(log1p) X(sqrt) X(square) X(recip) X(sin) X(cos) X(tan) \
    X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(exp2)     \
    X(log2) X(log10) X(rsqrt) X(sigmoid) X(erf) X(gelu) X(gelu_tanh) X(silu) X(softplus)
#define TWO(X) X(add) X(sub) X(mul) X(div) X(pow) X(logaddexp)
/* clang-format on */
#define OF(name) { #name, eg_##name },
TEST(values_by_numpy)
{
    static const struct {
        const char *name;
        eg_tensor *(*f)(eg_tensor *);
    } one[] = { ONE(OF) };
    static const struct {
        const char *name;
        eg_tensor *(*f)(eg_tensor *, eg_tensor *);
    } two[] = { TWO(OF) };
    eg_ctx *cx = eg_open();
    eg_tensor *z = array(cx, points, 1, (int64_t[]){ POINTS });
    ck_assert_uint_eq(sizeof one / sizeof *one, sizeof of_one / sizeof *of_one);
    ck_assert_uint_eq(sizeof two / sizeof *two, sizeof of_two / sizeof *of_two);
    for (size_t k = 0; k < sizeof one / sizeof *one; k++) {
        ck_assert_str_eq(one[k].name, of_one[k].name);
        same(one[k].name, one[k].f(z), of_one[k].y, POINTS, 4e-15);
    }
    for (size_t k = 0; k < sizeof two / sizeof *two; k++) {
        ck_assert_str_eq(two[k].name, of_two[k].name);
        same(two[k].name, two[k].f(z, eg_flip_axis(z, 0)), of_two[k].y, POINTS, 4e-15);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

static eg_tensor *numbers(eg_ctx *cx, int from)
{
    double v[24];
    for (int k = 0; k < 12; k++) {
        v[2 * k] = 2 * sin(.7 * (k + from));
        v[2 * k + 1] = cos(1.1 * (k + from));
    }
    return array(cx, v, 2, (int64_t[]){ 3, 4 });
}
TEST(rows_by_numpy)
{
    eg_ctx *cx = eg_open();
    const int targets[] = { 2, 0, 3 };
    eg_tensor *x = numbers(cx, 0), *u = numbers(cx, 20), *t = eg_from(cx, targets, 3);
    const struct {
        const char *name;
        eg_tensor *y;
    } all[] = {
        { "sum", eg_sum("i [j]", x) },
        { "mean", eg_mean("i [j]", x) },
        { "prod", eg_prod("i [j]", x) },
        { "var", eg_var("i [j]", x) },
        { "std", eg_std("i [j]", x) },
        { "logsumexp", eg_logsumexp("i [j]", x) },
        { "softmax", eg_softmax("i [j]", x) },
        { "log_softmax", eg_log_softmax("i [j]", x) },
        { "layernorm", eg_layernorm("i [j]", x) },
        { "cumsum", eg_cumsum("i [j]", x) },
        { "cumprod", eg_cumprod("i [j]", x) },
        { "max", eg_max("i [j]", x) },
        { "sort", eg_sort("i [j]", x) },
        { "cross_entropy", eg_cross_entropy("i [j]", x, t, .each = true) },
        { "einsum", eg_einsum("ij,kj->ik", x, u) },
        { "outer", eg_einsum("ij,ik,j->k", x, u, eg_select_axis(x, 0, 0)) },
        { "where", eg_where(eg_lt(x, u), x, u) },
    };
    ck_assert_uint_eq(sizeof all / sizeof *all, sizeof of_rows / sizeof *of_rows);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        ck_assert_str_eq(all[k].name, of_rows[k].name);
        same(all[k].name, all[k].y, of_rows[k].y, eg_size(all[k].y), 1e-14);
    }
    eg_tensor *turned =
        eg_softmax("[j] i", eg_transpose(eg_flip_axis(eg_flip_axis(x, 0), 0), 0, 1));
    same("strided", turned, eg_c128(eg_transpose(eg_softmax("i [j]", x), 0, 1)), 12, 1e-15);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* In the plane to 1e-14 of its modulus, and near the real line each part to the error that rounding
 * x² causes in e^−x². */
TEST(erf_over_the_plane)
{
    eg_ctx *cx = eg_open();
    const int n = (int)(sizeof erf_at / sizeof *erf_at);
    ck_assert_int_gt(n, 100);
    for (int k = 0; k < n; k++)
        same("erf", eg_erf(array(cx, erf_at[k], 0, NULL)), erf_at[k] + 2, 1, 1e-14);
    for (int k = 0; k < n; k++) {
        if (fabs(erf_at[k][1]) > 1e-9) continue;
        const double *got = eg_c128(eg_erf(array(cx, erf_at[k], 0, NULL)));
        for (int part = 0; part < 2; part++)
            ck_assert_msg(fabs(got[part] - erf_at[k][2 + part]) <=
                              (1e-15 + 3e-16 * erf_at[k][0] * erf_at[k][0]) *
                                  fabs(erf_at[k][2 + part]),
                          "erf(%g%+gi): part %d is %.17g, not %.17g", erf_at[k][0], erf_at[k][1],
                          part, got[part], erf_at[k][2 + part]);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- the dtype -------------------------------------------------------------------------------- */
TEST(in_and_out)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    number c[6] = { 0 };
    for (int k = 0; k < 6; k++) c[k] = k + (10 + k) * _Complex_I;
    eg_tensor *z = eg_from(cx, c, 2, 3), *t = eg_flip_axis(eg_transpose(z, 0, 1), 0);
    ck_assert_int_eq(eg_type(z), EG_C128);
    ck_assert_str_eq(eg_type_name(EG_C128), "c128");
    ck_assert_mem_eq(eg_c128(z), c, sizeof c);
    ck_assert_double_eq(eg_c128(t)[0], 2); /* row-major for any storage */
    ck_assert_double_eq(eg_get(eg_imag(t), 0, 1), 15);
    ck_assert_double_eq(eg_get(eg_real(eg_unfold_axis(z, 1, 2, 1)), 1, 1, 0), 4);
    ck_assert_mem_eq(eg_c128(eg_complex(eg_real(z), eg_imag(z))), c, sizeof c);
    ck_assert_mem_eq(eg_c128(eg_complex(eg_cast(eg_real(z), EG_F32), eg_imag(z))), c, sizeof c);
    /* the parts are views */
    ck_assert_int_eq(eg_assign(eg_real(eg_select_axis(z, 0, 0)), eg_full(cx, -1, 3)), 0);
    ck_assert_double_eq(eg_c128(z)[2], -1);
    ck_assert_double_eq(eg_c128(z)[3], 11);
    ck_assert_double_eq(eg_c128(eg_cast(eg_ones(cx, 2), EG_C128))[1], 0);
    ck_assert_int_eq(eg_type(eg_zeros_like(z)), EG_C128);
    ck_assert_double_eq(eg_c128(eg_full_n(cx, EG_C128, 3, 1, (int64_t[]){ 2 }))[2], 3);
    for (int64_t n = 1; n < 40; n += 19) { /* copies by tiles, too */
        eg_tensor *big = eg_complex(eg_normal(cx, 0, 1, n, 33, n), eg_normal(cx, 0, 1, n, 33, n)),
                  *turned = eg_permute(big, 2, 0, 1);
        eg_tensor *back = eg_permute(eg_copy(turned), 1, 2, 0);
        ck_assert_mem_eq(eg_c128(back), eg_c128(big), (size_t)eg_size(big) * sizeof *c);
        eg_assert_close(eg_imag(eg_copy(turned)), eg_permute(eg_imag(big), 2, 0, 1), 0);
    }
    eg_mut_c128(z)[11] = 7;
    ck_assert_double_eq(eg_get(eg_imag(z), 1, 2), 7);
    eg_tensor *keep = eg_keep(z);
    ck_assert_mem_eq(eg_c128(keep), eg_c128(z), sizeof c);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* eg_assert_close compares imaginary parts: three tests that must fail do fail. */
START_TEST(eg_assert_close_fails_for_a_different_imaginary_part)
{
    eg_ctx *cx = eg_open();
    eg_tensor *z = numbers(cx, 0), *w = eg_copy(z);
    eg_assert_close(z, w, 0);
    if (_i < 2) eg_mut_c128(w)[12 + _i] += 1e-9;
    eg_assert_close(z, _i < 2 ? w : eg_real(z), 1e-12);
    eg_close(cx);
}
END_TEST
TEST(eg_assert_close_compares_real_and_imaginary_parts)
{
    Suite *s = suite_create("complex");
    TCase *t = tcase_create("complex");
    tcase_add_loop_test(t, eg_assert_close_fails_for_a_different_imaginary_part, 0, 3);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_set_fork_status(runner, CK_FORK); /* a failed test leaves its context open */
    srunner_run_all(runner, CK_SILENT);
    ck_assert_int_eq(srunner_ntests_failed(runner), 3);
    TestResult **failed = srunner_failures(runner);
    ck_assert_msg(strstr(tr_msg(failed[1]), "first [1, 2]") != NULL, "%s", tr_msg(failed[1]));
    free(failed);
    srunner_free(runner);
}

static eg_tensor *refused(eg_ctx *cx, eg_tensor *got, const char *sentence)
{
    ck_assert_msg(!eg_ok(got), "not refused: %s", sentence);
    eg_assert_error(cx, sentence);
    return got;
}
TEST(c128_is_refused_where_it_has_no_meaning)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *z = numbers(cx, 0), *x = eg_ones(cx, 3, 4), *dx, *no = eg_zeros(cx, 0);
    char path[] = "/tmp/eg_complexXXXXXX";
    ck_assert_ptr_null(eg_open(.dtype = EG_C128));
    refused(cx, eg_cast(z, EG_F64),
            "cast: c128 to f64 would drop the imaginary parts; eg_real and eg_imag take the parts");
    refused(cx, eg_cast(z, EG_I32), "cast: c128 to i32");
    refused(cx, eg_mul(z, x), "mul: operand 1 is c128, operand 2 is f64; eg_cast one of them");
    refused(cx, eg_einsum("ij,ij->", x, z), "einsum: operand 1 is f64 but operand 2 is c128");
    refused(cx, eg_real(x), "real: operand 1 is f64, not c128");
    refused(cx, eg_imag(eg_one_hot(eg_from(cx, (int[]){ 0 }, 1), 2)),
            "imag: operand 1 is f64, not c128");
    refused(cx, eg_complex(x, z), "complex: operand 2 is c128; the parts are f32 or f64");
    refused(cx, eg_complex(x, no), "complex: operand 1 is (3, 4) but operand 2 is (0,)");
    refused(cx, eg_complex(x, NULL), "complex: operand 2 is NULL");
    refused(cx, eg_arange(cx, EG_C128, 0, 3, 1), "arange: c128 has no ramp");
    refused(cx, eg_normal_n(cx, EG_C128, 0, 1, 0, NULL), "normal: draws are f32 or f64, not c128");
    refused(cx, eg_any(NULL, z), "c128");
    refused(cx, eg_softmax("i [j]", x, .keep = { "ij", z }), "softmax: .keep is c128");
    refused(cx, eg_at("[i] j, k l", x, z), "at: operand 2 is c128");
    ck_assert(isnan(eg_item(eg_sum(NULL, z))));
    eg_assert_error(cx, "item: the tensor is c128; read its eg_real or eg_imag");
    ck_assert_ptr_null(eg_f64(z));
    eg_assert_error(cx, "f64: the tensor is c128, not f64");
    ck_assert_int_eq(eg_assign(z, x), -1);
    eg_assert_error(cx, "assign: the target is c128, the value f64");
    ck_assert_int_eq(eg_grad(eg_sum(NULL, z), NULL, 1, &z, &dx), -1);
    eg_assert_error(cx, "only floats have gradients");
    close(mkstemp(path));
    ck_assert_int_eq(eg_npy_save(path, z), -1);
    eg_assert_error(cx,
                    "npy: operand 1 is c128, which is not written; save its eg_real and eg_imag");
    ck_assert_int_eq(eg_safetensors_save(cx, path, 2, (const char *const[]){ "x", "z" },
                                         (eg_tensor *[]){ x, z }, NULL),
                     -1);
    eg_assert_error(cx, "c128 is not written; save eg_real and eg_imag of tensor 'z'");
    unlink(path);
    eg_close(cx);
}

/* -- the complex step ------------------------------------------------------------------------- */
static eg_tensor *stepped(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs)
{
    const eg_op *unsupported;
    eg_tensor *dy;
    const uint64_t nodes = eg_stats(eg_context(y)).used;
    const bool good = eg__complex_step(y, count, xs, vs, &dy, &unsupported);
    ck_assert_msg(good, "%s", unsupported ? unsupported->name : eg_error(eg_context(y)));
    /* only dy remains */
    ck_assert_uint_le(eg_stats(eg_context(y)).used, nodes + 256 + 8 * (uint64_t)eg_size(y));
    return dy;
}
/* The largest difference between the step and forward mode, relative to the largest entry. */
static double off(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs)
{
    eg_tensor *a = eg_cast(eg_jvp(y, count, xs, vs), EG_F64), *n = stepped(y, count, xs, vs);
    const double s = eg_item(eg_max(NULL, eg_abs(a)));
    ck_assert_msg(s > 0, "nothing moves");
    return eg_item(eg_max(NULL, eg_abs(eg_sub(a, n)))) / s;
}

/* Heads split and merged by reshapes of views, masks, a bias, dropout, as often written; y and its
 * gradients. */
TEST(attention_and_its_gradient)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *w = eg_normal(cx, 0, .5, 8, 24),
              *bias = eg_normal(cx, 0, 1, 5, 5);
    eg_tensor *vs[] = { eg_normal(cx, 0, 1, 2, 5, 8), eg_normal(cx, 0, 1, 8, 24),
                        eg_normal(cx, 0, 1, 5, 5) };
    eg_tensor *part[3], *xs[] = { x, w, bias }, *g[3];
    ck_assert_int_eq(eg_split_axis(eg_einsum("bim,mn->bin", x, w), 2, 3, NULL, part), 0);
    for (int k = 0; k < 3; k++) part[k] = eg_transpose(eg_reshape(part[k], 2, 5, 2, 4), 1, 2);
    eg_tensor *y = eg_attention("bhid,bhjd,bhje->bhie", part[0], part[1], part[2],
                                .where = "j <= i", .bias = { "ij", bias }, .dropout = .3);
    y = eg_layernorm("b i [m]", eg_reshape(eg_transpose(y, 1, 2), 2, 5, 8));
    ck_assert_double_le(off(y, 3, xs, vs), 1e-13);
    ck_assert_int_eq(eg_grad(y, eg_normal(cx, 0, 1, 2, 5, 8), 3, xs, g), 0);
    for (int k = 0; k < 3; k++) ck_assert_double_le(off(g[k], 3, xs, vs), 1e-12);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* The worked example of test_textbook.c: differences are 0 for d/dW_Q, whose entries are below
 * 1e-106; the complex step has all of its digits. */
TEST(saturated_softmax)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = eg_full(cx, 40, 1, 4), *k = eg_reshape(eg_arange(cx, EG_F64, 0, 16, 1), 4, 4),
              *v = eg_ones(cx, 1, 4);
    eg_tensor *y = eg_einsum("ij,jd->id", eg_softmax("i [j]", eg_einsum("id,jd->ij", q, k)), k),
              *t = eg_jvp(y, 1, &q, &v);
    const double size = eg_item(eg_max(NULL, eg_abs(t)));
    ck_assert(size > 0 && size < 1e-100);
    ck_assert_double_le(off(y, 1, &q, &v), 1e-12);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Inputs that are views, repeat an element, share memory, depend on each other or occur twice;
 * f32. */
TEST(inputs_of_every_kind)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *base = eg_normal(cx, 0, 1, 4, 6), *v = eg_normal(cx, 0, 1, 6, 2),
              *row = eg_normal(cx, 0, 1, 6);
    eg_tensor *x =
        eg_detach(eg_slice_axis(eg_transpose(eg_flip_axis(base, 1), 0, 1), 1, 0, EG_END, 2));
    ck_assert_double_le(off(eg_tanh(eg_reshape(x, 12)), 1, &x, &v), 1e-14);
    eg_tensor *wide = eg_detach(eg_expand(row, 4, 6)), *u = eg_normal(cx, 0, 1, 4, 6);
    ck_assert_double_le(off(eg_mul(eg_exp(wide), base), 1, &wide, &u), 1e-14);
    eg_tensor *two = eg_scale(base, 2), *both[] = { base, two }, *moves[] = { u, base };
    ck_assert_double_le(off(eg_mul(eg_sin(two), base), 2, both, moves), 1e-14);
    /* stored as its second operand, which is turned, it has a view; made again it is stored as its
     * first one, which repeats no more */
    eg_tensor *turned = eg_mul(eg_expand(eg_scalar(cx, 2), 6, 4), eg_transpose(base, 0, 1));
    ck_assert_double_le(off(eg_exp(eg_view(eg_transpose(turned, 0, 1), 24)), 1, &base, &u), 1e-14);
    eg_tensor *twice[] = { base, base };
    ck_assert_double_le(off(eg_square(base), 2, twice, moves), 1e-14);
    eg_assert_close(stepped(base, 1, &base, &u), u, 0); /* y is an x */
    /* and does not depend on it */
    eg_assert_close(stepped(eg_exp(u), 1, &base, &u), eg_zeros(cx, 4, 6), 0);
    eg_assert_close(stepped(eg_select_axis(base, 0, 1), 1, &base, &u), eg_select_axis(u, 0, 1), 0);
    eg_tensor *narrow = eg_cast(base, EG_F32), *y = eg_exp(narrow), *w = eg_cast(u, EG_F32);
    eg_assert_close(stepped(y, 1, &narrow, &w),
                    eg_mul(eg_exp(eg_cast(narrow, EG_F64)), eg_cast(w, EG_F64)), 1e-15);
    /* through a cast to f32: its digits of x */
    eg_assert_close(stepped(eg_cast(y, EG_F64), 1, &base, &u), eg_mul(eg_exp(base), u), 1e-6);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- a user's operations ----------------------------------------------------------------------- */
static bool cube_shape(eg_tensor *y)
{
    const eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool cube_forward(eg_tensor *y)
{
    const double *x = eg_f64(eg_operand(y, 0));
    for (int64_t k = 0; x && k < eg_size(y); k++) eg_mut_f64(y)[k] = x[k] * x[k] * x[k];
    return x;
}
static bool cube_forward_c128(eg_tensor *y)
{
    return eg_assign(y, eg_powc(eg_operand(y, 0), 3)) == 0;
}
static eg_tensor *wrong_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_mul(g, eg_scale(eg_square(eg_operand(y, i)), 3.001));
}
static const eg_op plain = {
    .name = "cube",
    .equation = "y = x³",
    .gradient = "3 g x²",
    .arity = 1,
    .shape = cube_shape,
    .forward = cube_forward,
    .rule = wrong_rule,
};
static const eg_op wrong = {
    .name = "cube",
    .equation = "y = x³",
    .gradient = "3 g x²",
    .arity = 1,
    .shape = cube_shape,
    .forward = cube_forward,
    .rule = wrong_rule,
    .forward_c128 = cube_forward_c128,
};
static const eg_op flat = {
    .name = "cube",
    .equation = "y = x³",
    .gradient = "0",
    .arity = 1,
    .shape = cube_shape,
    .forward = cube_forward,
    .rule = eg_zero_rule,
    .forward_c128 = cube_forward_c128,
};

TEST(rows_of_users)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_normal(cx, 1, .1, 3), *v = eg_ones(cx, 3), *dy;
    const eg_op *unsupported;
    const double error = off(eg_apply(&wrong, NULL, 0, 1, &x), 1, &x, &v);
    ck_assert(error > 3e-4 && error < 4e-4); /* its rule is wrong by a third of a thousandth */
    eg_tensor *want = eg_scale(eg_square(x), 3), *y = eg_apply(&flat, NULL, 0, 1, &x);
    /* a gradient of zero by definition is evaluated as well */
    eg_assert_close(stepped(y, 1, &x, &v), want, 1e-15);
    /* so is a path that was cut */
    eg_assert_close(stepped(eg_exp(eg_detach(x)), 1, &x, &v), eg_exp(x), 1e-15);
    eg_assert_close(stepped(eg_floor(eg_scale(x, 9)), 1, &x, &v), eg_zeros(cx, 3), 0);

    y = eg_exp(eg_apply(&plain, NULL, 0, 1, &x));
    ck_assert(!eg__complex_step(y, 1, &x, &v, &dy, &unsupported));
    ck_assert_ptr_eq(unsupported, &plain);
    eg_assert_ok(cx); /* an operation is named, and no error is recorded */
    refused(cx, eg_apply(&plain, NULL, 0, 1, (eg_tensor *[]){ eg_cast(x, EG_C128) }),
            "cube: it has no forward_c128(), so it cannot be applied to c128");
    eg_close(cx);
}

static eg_tensor *inside(void *user, eg_tensor *const *x)
{
    return eg_dropout(eg_tanh(eg_einsum("ij,jk->ik", x[0], user)), .5);
}
static eg_tensor *unknown(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&plain, NULL, 0, 1, x);
}
TEST(recomputed_and_changed)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 4), *w = eg_normal(cx, 0, 1, 4, 5), *xs[] = { x, w };
    eg_tensor *vs[] = { eg_normal(cx, 0, 1, 3, 4), eg_normal(cx, 0, 1, 4, 5) };
    eg_tensor *s = eg_scale(x, .5), *y = eg_checkpoint(inside, w, 1, &s), *dy;
    const eg_op *unsupported;
    /* the same draws, also for what f reads through user */
    ck_assert_double_le(off(eg_exp(y), 2, xs, vs), 1e-14);
    y = eg_checkpoint(unknown, NULL, 1, &x);
    ck_assert(!eg__complex_step(y, 1, &x, vs, &dy, &unsupported));
    eg_assert_error(cx, "checkpoint: cube, inside f, has no forward_c128()");

    y = eg_mul(x, eg_exp(x));
    eg_fill(eg_select_axis(x, 0, 0), 2);
    ck_assert(!eg__complex_step(y, 1, &x, vs, &dy, &unsupported));
    ck_assert_ptr_null(unsupported);
    eg_assert_error(cx, "complex step: operand 1 of exp was changed in place, and what was "
                        "recorded cannot be evaluated again");
    s = eg_scale(x, 2);
    eg_fill(s, 1);
    ck_assert(!eg__complex_step(eg_exp(s), 1, &x, vs, &dy, &unsupported));
    eg_assert_error(cx, "complex step: operand 1 of exp was changed in place");
    s = eg_scale(x, 2);
    y = eg_exp(s);
    eg_fill(s, 1); /* changed after its use, and x is evaluated again */
    eg_assert_close(stepped(y, 1, &x, vs), eg_mul(eg_scale(y, 2), vs[0]), 1e-15);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Large complex products are four products of their parts, whatever the layout, with the same bits
 * for any number of threads. */
TEST(large_products_are_those_of_their_parts)
{
    static const char *const specs[] = { "qak,qkc->qac", "aqk,kqc->cqa", "akq,kc->ac" };
    static const int64_t sizes[] = { 90, 150, 2, 120 }; /* of a, c, q, k */
    for (int s = 0; s < 3 * 4; s++) {
        const char *spec = specs[s % 3];
        const double *first = NULL;
        eg_ctx *cx[2];
        for (int t = 0; t < 2; t++) {
            cx[t] = eg_open(.threads = 1 + 2 * t, .seed = 6, .dtype = EG_F64);
            eg_tensor *x[2], *re[2], *im[2];
            for (int k = 0, at = 0; k < 2; k++, at++) {
                int64_t dim[3];
                int rank = 0;
                for (; islower((unsigned char)spec[at]); at++)
                    dim[rank++] = sizes[strchr("acqk", spec[at]) - "acqk"];
                x[k] = eg_complex(eg_normal_n(cx[t], EG_F64, 0, 1, rank, dim),
                                  eg_normal_n(cx[t], EG_F64, 0, 1, rank, dim));
                if (s / 3 == 1) x[k] = eg_flip_axis(x[k], k);
                if (s / 3 == 2) x[k] = eg_transpose(eg_copy(eg_transpose(x[k], 0, 1)), 0, 1);
                if (s / 3 == 3) x[k] = eg_copy(eg_slice_axis(x[k], 0, 0, dim[0], 1));
                re[k] = eg_copy(eg_real(x[k])), im[k] = eg_copy(eg_imag(x[k]));
            }
            eg_tensor *y = eg_einsum_n(spec, 2, x);
            eg_assert_close(eg_real(y),
                            eg_sub(eg_einsum(spec, re[0], re[1]), eg_einsum(spec, im[0], im[1])),
                            1e-11);
            eg_assert_close(eg_imag(y),
                            eg_add(eg_einsum(spec, re[0], im[1]), eg_einsum(spec, im[0], re[1])),
                            1e-11);
            eg_assert_ok(cx[t]);
            if (first) ck_assert_mem_eq(first, eg_c128(y), (size_t)eg_size(y) * 16);
            first = eg_c128(y);
        }
        for (int t = 0; t < 2; t++) eg_close(cx[t]);
    }
}

/* Sums along rows, backwards and across columns; of two axes, of which the inner one has every size
 * modulo the number of partial sums, and of windows. */
TEST(sums_of_complex_numbers_do_not_depend_on_the_layout)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (int n = 1; n <= 13; n++)
        for (int rows = 1; rows <= 81; rows += 16) {
            const int64_t dim[] = { rows, 9, n };
            eg_tensor *x = eg_complex(eg_normal_n(cx, EG_F64, 0, 1, 3, dim),
                                      eg_normal_n(cx, EG_F64, 0, 1, 3, dim)),
                      *y = eg_sum("r [i j]", x),
                      *back = eg_flip_axis(eg_copy(eg_flip_axis(x, 2)), 2),
                      *across = eg_permute(eg_copy(eg_permute(x, 2, 1, 0)), 2, 1, 0);
            const size_t bytes = (size_t)rows * 16;
            ck_assert_mem_eq(eg_c128(y), eg_c128(eg_sum("r [i j]", back)), bytes);
            for (int i = 0; i < 9; i++) {
                eg_tensor *row = eg_select_axis(x, 1, i), *column = eg_select_axis(across, 1, i);
                ck_assert_mem_eq(eg_c128(eg_sum("r [j]", row)), eg_c128(eg_sum("r [j]", column)),
                                 bytes);
            }
            eg_tensor *windows = eg_unfold_axis(x, 2, 1 + n / 2, 1);
            ck_assert_mem_eq(eg_c128(eg_sum("r i w [k]", windows)),
                             eg_c128(eg_sum("r i w [k]", eg_copy(windows))),
                             9 * (size_t)eg_dim(windows, 2) * bytes);
            eg_assert_close(eg_real(y), eg_sum("r [i j]", eg_copy(eg_real(x))), 1e-12);
        }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* The same numbers in another layout: axes in reverse order, reversed along the last axis, with
 * gaps. */
static eg_tensor *laid_out(eg_tensor *x, int how)
{
    int order[4] = { 0 };
    const int rank = eg_rank(x);
    for (int r = 0; r < rank; r++) order[r] = rank - 1 - r;
    if (how == 1) return eg_permute_n(eg_copy(eg_permute_n(x, rank, order)), rank, order);
    if (how == 2) return eg_flip_axis(eg_copy(eg_flip_axis(x, -1)), -1);
    return how == 3 ? eg_select_axis(eg_stack_axis(-1, x, x), rank, 1) : x;
}
/* The factor is one element for all, one for each row, or a tensor of its own. */
TEST(complex_products_by_one_number_have_the_bits_of_each)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 4);
    const int64_t dim[2] = { 13, 40 };
    eg_tensor *x = eg_complex(eg_normal_n(cx, EG_F64, 0, 1, 2, dim),
                              eg_normal_n(cx, EG_F64, 0, 1, 2, dim)),
              *row = eg_copy(eg_slice_axis(x, 1, 0, 1, 1)), *one = eg_select_axis(row, 0, 0);
    eg_tensor *(*const f[])(eg_tensor *, eg_tensor *) = { eg_mul, eg_add, eg_sub, eg_div };
    for (int k = 0; k < 4 * 4; k++) {
        eg_tensor *factor = k / 4 % 2 ? row : one, *each = eg_copy(eg_expand_n(factor, 2, dim)),
                  *a = k / 8 ? f[k % 4](factor, x) : f[k % 4](x, factor),
                  *b = k / 8 ? f[k % 4](each, x) : f[k % 4](x, each);
        ck_assert(!memcmp(eg_c128(a), eg_c128(b), sizeof(number) * (size_t)eg_size(x)));
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
/* Products of matrices in batches, with sums over one operand and over two axes, small and large:
 * the parts of the result are sums of products of parts, whatever the layouts are. */
TEST(products_of_complex_matrices_are_those_of_their_parts)
{
    static const char *const specs[] = { "ij,jk->ik",       "ij,jk->ki",     "ij,kj->ik",
                                         "bij,bjk->bik",    "bij,bjk->ibk",  "bij,bjk->ikb",
                                         "ij,bjk->bik",     "bij,jk->kbi",   "ijl,ljk->ik",
                                         "ijl,jlk->ki",     "ijq,jk->ik",    "ij,jkq->ik",
                                         "abij,abjk->abik", "aij,bjk->abik", "aij,bjk->iakb",
                                         "abij,abjk->ibka" };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_nograd(cx, true);
    for (int64_t size = 2; size <= 38; size += 12)
        for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
            for (int how = 0; how < 16; how++) {
                eg_mark m = eg_push(cx);
                eg_tensor *x[2], *re[2], *im[2], *out[3];
                const char *c = specs[k];
                for (int q = 0; q < 2; q++, c++) {
                    int64_t dim[4];
                    int rank = 0;
                    for (; *c != ',' && *c != '-'; c++)
                        dim[rank++] = *c == 'i'   ? size
                                      : *c == 'j' ? size + 3
                                      : *c == 'k' ? size + 5
                                                  : 3;
                    re[q] = eg_normal_n(cx, EG_F64, 0, 1, rank, dim);
                    im[q] = eg_normal_n(cx, EG_F64, 0, 1, rank, dim);
                    x[q] = laid_out(eg_complex(re[q], im[q]), how >> 2 * q & 3);
                }
                out[0] = eg_einsum(specs[k], x[0], x[1]);
                out[1] =
                    eg_sub(eg_einsum(specs[k], re[0], re[1]), eg_einsum(specs[k], im[0], im[1]));
                out[2] =
                    eg_add(eg_einsum(specs[k], re[0], im[1]), eg_einsum(specs[k], im[0], re[1]));
                eg_assert_close(eg_copy(eg_real(out[0])), out[1], 1e-12);
                eg_assert_close(eg_copy(eg_imag(out[0])), out[2], 1e-12);
                eg_tensor *sum = eg_copy(out[0]);
                eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                  .spec = specs[k],
                                                  .count = 2,
                                                  .operands = x,
                                                  .out = sum,
                                                  .beta = 1,
                                                  .alpha = -1 });
                eg_assert_close(eg_real(sum), eg_zeros_like(out[1]), 1e-12);
                eg_pop(cx, m);
            }
    eg_assert_ok(cx);
    eg_close(cx);
}
