/* test_loss.c: losses, norms, dropout. */
#include "tests.h"
#include "stored_values.h"

/* -- losses ----------------------------------------------------------------------------------- */
GROUP("losses")

TEST(losses_equal_stored_values)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 3, 2, 5, 3),
              *target = eg_from(cx, ((int[]){ 0, 4, 2, 1, -100, 3 }), 2, 3);
    as_stored(
        eg_reshape(eg_cross_entropy("b [v] l", x, target, .ignore = -100, .smoothing = .1), 1),
        ref_xent, OPERANDS(x), GRADIENTS(ref_xent_d0));
    as_stored(eg_cross_entropy("b [v] l", x, eg_cast(target, EG_I64), .ignore = -100, .each = true),
              ref_xent_each, OPERANDS(x), GRADIENTS(ref_xent_each_d0));
    eg_tensor *z = wave(cx, 0, 2, 3, 4);
    as_stored(eg_reshape(eg_bce_logits(z, eg_sigmoid(wave(cx, 4, 2, 3, 4))), 1), ref_bce,
              OPERANDS(z), GRADIENTS(ref_bce_d0));
    eg_assert_close(
        eg_mse(eg_from(cx, ((double[]){ 1, 2, 4 }), 3), eg_from(cx, ((double[]){ 0, 2, 2 }), 3)),
        eg_scalar(cx, 5 / 3.), 1e-15);
    eg_close(cx);
}

TEST(cross_entropy_is_minus_log_softmax)
{
    eg_ctx *cx = eg_open();
    const int64_t sizes[] = { 1, 28, 512, 513, 2000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s];
        eg_tensor *x = eg_normal_n(cx, EG_F64, 0, 5, 3, (int64_t[]){ 3, 4, n }),
                  *t = eg_randint(cx, 0, n, 3, 4);
        eg_tensor *l = eg_log_softmax("b l [v]", x), *one = eg_cast(eg_one_hot(t, n), EG_F64);
        eg_tensor *want = eg_neg(eg_einsum("blv,blv->bl", one, l));
        eg_assert_close(eg_cross_entropy("b l [v]", x, t, .each = true), want, 1e-13);
        eg_assert_close(eg_cross_entropy("b l [v]", x, t), eg_mean(NULL, want), 1e-13);
        eg_assert_close(eg_cross_entropy("b (l=2 m) [v]", x, t, .each = true), want, 1e-13);
        eg_assert_close(eg_cross_entropy("b l [v]", x, t, .smoothing = 1),
                        eg_scale(eg_mean(NULL, l), -1), 1e-12);
        eg_assert_close(eg_cross_entropy("b l [v]", x, t, .ignore = EG_OFF),
                        eg_cross_entropy("b l [v]", x,
                                         eg_where(eg_eq(t, eg_full_n(cx, EG_I64, 0, 0, NULL)),
                                                  eg_full_n(cx, EG_I64, -1, 0, NULL), t),
                                         .ignore = -1),
                        1e-14);
    }
    eg_tensor *far = eg_from(cx, ((float[]){ 1e30f, 0, -1e30f, 0, 0, 0 }), 2, 3), *dx;
    eg_tensor *y = eg_cross_entropy("b [v]", far, eg_from(cx, ((int[]){ 0, 1 }), 2), .each = true);
    eg_assert_close(y, eg_from(cx, ((float[]){ 0, logf(3) }), 2), 1e-6);
    eg_grad(eg_sum(NULL, y), NULL, 1, &far, &dx);
    eg_assert_close(dx, eg_from(cx, ((float[]){ 0, 0, 0, 1 / 3.f, -2 / 3.f, 1 / 3.f }), 2, 3),
                    1e-6);
    eg_close(cx);
}

/* 2^53 + 1 is no double */
TEST(the_ignored_number_may_be_any_integer)
{
    eg_ctx *cx = eg_open();
    const int64_t number[] = { ((int64_t)1 << 53) + 1, INT64_MAX, INT64_MIN + 1 };
    for (int k = 0; k < 3; k++) {
        eg_tensor *t = eg_from(cx, ((int64_t[]){ number[k], 1 }), 2), *x = eg_zeros(cx, 2, 4);
        eg_assert_close(eg_cross_entropy("b [v]", x, t, .ignore = number[k]),
                        eg_full_n(cx, EG_F32, log(4), 0, NULL), 1e-6);
    }
    eg_close(cx);
}
TEST(all_ignored_is_zero_with_gradient_zero)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_normal(cx, 0, 1, 4, 5), *t = eg_full_n(cx, EG_I32, -1, 1, (int64_t[]){ 4 }),
              *dx, *ddx;
    eg_mut_f32(x)[3] = NAN; /* what is ignored is not read */
    eg_tensor *y = eg_cross_entropy("b [v]", x, t, .ignore = -1, .smoothing = .1);
    ck_assert_double_eq(eg_item(y), 0);
    eg_grad(y, NULL, 1, &x, &dx);
    eg_assert_close(dx, eg_zeros(cx, 4, 5), 0);
    eg_grad(eg_sum(NULL, eg_square(dx)), NULL, 1, &x, &ddx);
    eg_assert_ok(cx);
    ck_assert_double_eq(
        eg_item(eg_cross_entropy("b [v]", eg_zeros(cx, 0, 5), eg_randint(cx, 0, 2, 0))), 0);
    eg_close(cx);
}

static eg_tensor *smooth(void *t, eg_tensor *const *x)
{
    return eg_cross_entropy("b l [v]", x[0], t, .ignore = 2, .smoothing = .3);
}
static eg_tensor *bce(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_bce_logits(x[0], x[1]);
}
static eg_tensor *mse(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_mse(x[0], x[1]);
}
TEST(losses_have_gradients)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_assert_grad2(smooth, eg_from(cx, ((int[]){ 0, 1, 2, 3, 2, 1 }), 2, 3), wave(cx, 0, 2, 3, 4));
    eg_assert_grad2(bce, NULL, wave(cx, 0, 3, 4), eg_sigmoid(wave(cx, 1, 3, 4)));
    eg_assert_grad2(mse, NULL, wave(cx, 0, 3, 4), wave(cx, 1, 3, 4));
    eg_close(cx);
}

TEST(bce_loses_no_digits)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(cx, ((float[]){ 12, -12, 1e30f, -1e30f, 0 }), 5),
              *t = eg_from(cx, ((float[]){ 1, 0, 1, 0, .5f }), 5), *dx;
    eg_tensor *y = eg_bce_logits(x, t);
    ck_assert_double_eq_tol(eg_item(y), (2 * log1p(exp(-12)) + log(2)) / 5, 1e-8);
    ck_assert_double_eq_tol(
        eg_item(eg_bce_logits(eg_slice_axis(x, 0, 0, 1, 1), eg_slice_axis(t, 0, 0, 1, 1))) /
            log1p(exp(-12)),
        1, 1e-6);
    eg_grad(y, NULL, 1, &x, &dx);
    ck_assert(!any_nan(dx));
    ck_assert_double_eq(eg_get(dx, 4), 0);
    for (int k = 0; k < 2; k++)
        ck_assert_double_eq_tol(eg_get(dx, k) * (k ? 5 : -5) * (1 + exp(12)), 1, 1e-5);
    eg_close(cx);
}

/* z-loss: the weight times (ln Σ e^x)² is added to each loss that counts. */
TEST(z_loss_adds_the_square)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 3, 4, 5), *t = eg_from(cx, ((int[]){ 0, -100, 2, 4 }), 4);
    eg_tensor *plain = eg_cross_entropy("b [v]", x, t, .ignore = -100, .each = true),
              *z = eg_square(eg_logsumexp("b [v]", x));
    eg_tensor *counts = eg_from(cx, ((double[]){ 1, 0, 1, 1 }), 4),
              *want = eg_add(plain, eg_mul(counts, eg_scale(z, .3)));
    eg_assert_close(eg_cross_entropy("b [v]", x, t, .ignore = -100, .each = true, .z_loss = .3),
                    want, 1e-14);
    eg_assert_close(eg_cross_entropy("b [v]", x, t, .ignore = -100, .z_loss = .3),
                    eg_scale(eg_sum(NULL, want), 1 / 3.), 1e-14);
    eg_tensor *hot = eg_from(cx, ((double[]){ 0, INFINITY, 0, 0 }), 4), *dx;
    eg_tensor *wild = eg_add(x, eg_unsqueeze(hot, 1)); /* an ignored row may have any content */
    eg_grad(eg_cross_entropy("b [v]", wild, t, .ignore = -100, .z_loss = .3), NULL, 1, &wild, &dx);
    for (int k = 0; k < 20; k++) ck_assert(isfinite(eg_f64(dx)[k]));
    eg_assert_ok(cx);
    eg_cross_entropy("b [v]", x, t, .z_loss = -1);
    eg_assert_error(cx, "the weight of the z-loss is -1");
    eg_close(cx);
}

static eg_tensor *z_loss(void *user, eg_tensor *const *x)
{
    return eg_cross_entropy("b [v]", x[0], user, .ignore = 7, .z_loss = .1);
}
static eg_tensor *huber(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_huber(x[0], x[1], 1.2);
}
static eg_tensor *divergence(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_kl_div("b [v]", eg_softmax("b [v]", x[0]), eg_log_softmax("b [v]", x[1]));
}
TEST(distances_are_their_formulas)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *a = eg_from(cx, ((double[]){ 0, 1, 5, -3 }), 4), *b = eg_zeros(cx, 4);
    ck_assert_double_eq_tol(eg_item(eg_huber(a, b, 1)), (0 + .5 + 4.5 + 2.5) / 4, 1e-15);
    ck_assert_double_eq_tol(eg_item(eg_huber(a, b, INFINITY)), eg_item(eg_mse(a, b)) / 2, 1e-15);
    /* d²/2 and δ (d − δ/2) are finite in f32 though d² and δ² are not */
    eg_tensor *far = eg_cast(eg_full(cx, 2e19, 1), EG_F32), *zero = eg_sub(far, far);
    ck_assert_double_eq_tol(eg_item(eg_huber(far, zero, 1e30)), 2e38, 1e32);
    ck_assert_double_eq_tol(eg_item(eg_huber(zero, far, 1e19)), 1.5e38, 1e32);
    ck_assert_double_eq(eg_item(eg_huber(eg_full(cx, INFINITY, 1), eg_ones(cx, 1), INFINITY)),
                        INFINITY);
    eg_tensor *p = eg_from(cx, ((double[]){ .5, .5, 0 }), 3),
              *q = eg_log(eg_from(cx, ((double[]){ .25, .75, 0 }), 3));
    ck_assert_double_eq_tol(eg_item(eg_kl_div("[v]", p, q)), .5 * log(2) + .5 * log(2 / 3.), 1e-15);
    eg_assert_close(eg_kl_div("b [v]", eg_reshape(p, 1, 3), eg_reshape(eg_log(p), 1, 3)),
                    eg_zeros(cx, 1), 0);
    eg_tensor *x = wave(cx, 0, 3, 5), *y = wave(cx, 1, 3, 5),
              *t = eg_from(cx, ((int[]){ 1, 7, 4 }), 3);
    eg_assert_grad2(huber, NULL, x, y);
    eg_assert_grad2(divergence, NULL, x, y);
    eg_assert_grad2(z_loss, t, x);
    eg_assert_ok(cx);
    eg_huber(a, b, 0);
    eg_assert_error(cx, "huber: delta is 0; it must be above 0");
    eg_huber(a, x, 1);
    eg_assert_error(cx, "huber: operand 1 is (4,) but operand 2 is (3, 5)");
    eg_kl_div("[v]", a, eg_cast(b, EG_F32));
    eg_assert_error(cx, "kl_div: operand 1 is f64, operand 2 is f32");
    eg_close(cx);
}

TEST(losses_refuse)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3, 5), *t = eg_from(cx, ((int[]){ 0, 1, 2, 3, 4, 5 }), 2, 3);
    eg_cross_entropy("b l [v]", x, t);
    eg_assert_error(cx, "cross_entropy: the class at (1, 2) of the target is 5, outside [0, 5)");
    eg_cross_entropy("b l [v]", x, eg_neg(t), .ignore = -2);
    eg_assert_error(cx, "cross_entropy: the class at (0, 1) of the target is -1, outside [0, 5)");
    eg_cross_entropy("b l [v]", x, eg_scale(t, -100)); /* PyTorch ignores these by default */
    eg_assert_error(cx, "is -100, outside [0, 5); .ignore = -100 leaves such targets out");
    eg_cross_entropy("b l [v]", x, eg_transpose(t, 0, 1));
    eg_assert_error(cx, "cross_entropy: the target is (3, 2) but the logits without their "
                        "bracketed axes are (2, 3)");
    eg_cross_entropy("b l [v]", x, eg_cast(t, EG_F32));
    eg_assert_error(cx, "cross_entropy: the target is f32; class numbers are i32 or i64");
    eg_cross_entropy("b l [v]", t, t);
    eg_assert_error(cx, "cross_entropy: operand 1 is i32");
    eg_cross_entropy("b l v", x, t);
    eg_assert_error(cx, "no index is in brackets");
    eg_cross_entropy("b l [v]", x, t, .smoothing = 2);
    eg_assert_error(cx, "cross_entropy: the smoothing is 2; it must lie in [0, 1]");
    eg_cross_entropy("b l [v]", x, NULL);
    eg_assert_error(cx, "cross_entropy: operand 2 is NULL");
    eg_mse(eg_ones(cx, 3, 1), eg_ones(cx, 3));
    eg_assert_error(cx, "mse: operand 1 is (3, 1) but operand 2 is (3,)");
    eg_mse(eg_ones(cx, 3), eg_full_n(cx, EG_F64, 1, 1, (int64_t[]){ 3 }));
    eg_assert_error(cx, "mse: operand 1 is f32, operand 2 is f64");
    eg_bce_logits(eg_ones(cx, 3), eg_cast(eg_ones(cx, 3), EG_BOOL));
    eg_assert_error(cx, "bce_logits: operand 2 is bool");
    eg_tensor *none = eg_zeros(cx, 0);
    eg_mse(none, none);
    eg_assert_error(cx, "mse: mean: the bracketed axes have no elements");
    eg_bce_logits(none, none);
    eg_assert_error(cx, "bce_logits: mean: the bracketed axes have no elements");
    eg_huber(none, none, 1);
    eg_assert_error(cx, "huber: mean: the bracketed axes have no elements");
    eg_kl_div("b l [v]", none, none);
    eg_assert_error(cx, "kl_div: sum: operand 1 has rank 1");
    eg_close(cx);
}

/* -- norms ------------------------------------------------------------------------------------ */
GROUP("norms")

TEST(norms_equal_stored_values)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 0, 2, 3, 4), *w = wave(cx, 1, 4), *b = wave(cx, 2, 4);
    as_stored(eg_layernorm("b l [d]", x, .gain = w, .bias = b), ref_layernorm, OPERANDS(x, w, b),
              GRADIENTS(ref_layernorm_d0, ref_layernorm_d1, ref_layernorm_d2));
    as_stored(eg_rmsnorm("b l [d]", x, .gain = w), ref_rmsnorm, OPERANDS(x, w),
              GRADIENTS(ref_rmsnorm_d0, ref_rmsnorm_d1));
    eg_close(cx);
}

/* A row has the bits that it has alone, whatever number of rows is computed with it, of lengths
 * below, at and above those at which the loops over rows change; so has its gradient. */
LOOP_TEST(norms_of_rows_have_the_bits_that_they_have_alone, 4)
{
    enum { ROWS = 37 };
    static const int64_t lengths[] = { 1, 7, 15, 16, 17, 31, 48, 63, 64, 65, 200, 257, 512, 1030 };
    const bool rms = _i & 1;
    eg_ctx *cx = eg_open(.dtype = _i & 2 ? EG_F64 : EG_F32, .seed = 3);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const eg_mark m = eg_push(cx);
        const int64_t n = lengths[l];
        eg_tensor *w = eg_normal(cx, 1, 1, n), *x = eg_normal(cx, 0, 3, ROWS, n),
                  *u = eg_normal(cx, 0, 1, ROWS, n), *d, *e;
        eg_fill(eg_select_axis(x, 0, 2), NAN);
        eg_fill(eg_select_axis(x, 0, 6), 4);
        eg_tensor *y =
            rms ? eg_rmsnorm("i [j]", x, .gain = w) : eg_layernorm("i [j]", x, .gain = w);
        eg_grad(y, u, 1, &x, &d);
        for (int64_t r = 0; r < ROWS; r++) {
            eg_tensor *one = eg_copy(eg_slice_axis(x, 0, r, r + 1, 1)),
                      *v = eg_copy(eg_slice_axis(u, 0, r, r + 1, 1)),
                      *z = rms ? eg_rmsnorm("i [j]", one, .gain = w)
                               : eg_layernorm("i [j]", one, .gain = w);
            eg_grad(z, v, 1, &one, &e);
            ck_assert_msg(same_bits(eg_contiguous(eg_slice_axis(y, 0, r, r + 1, 1)), z) &&
                              same_bits(eg_contiguous(eg_slice_axis(d, 0, r, r + 1, 1)), e),
                          "row %lld of %lld", (long long)r, (long long)n);
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

TEST(norms_of_rows_from_memory_have_the_bits_of_few_rows)
{
    /* x and y are 13 MB together */
    enum { ROWS = 24576 + 64, SOME = 64 };
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_uniform(cx, -1, 1, ROWS, 66), *g = eg_uniform(cx, -1, 1, ROWS, 66),
              *gain = eg_uniform(cx, .5, 1.5, 66), *bias = eg_uniform(cx, -1, 1, 66), *dx, *dx_some;
    eg_tensor *y = eg_layernorm("... [d]", x, .gain = gain, .bias = bias);
    eg_grad(y, g, 1, &x, &dx);
    eg_tensor *some = eg_contiguous(eg_slice_axis(x, 0, ROWS - SOME, ROWS, 1));
    eg_tensor *y_some = eg_layernorm("... [d]", some, .gain = gain, .bias = bias);
    eg_grad(y_some, eg_contiguous(eg_slice_axis(g, 0, ROWS - SOME, ROWS, 1)), 1, &some, &dx_some);
    ck_assert(same_bits(y_some, eg_slice_axis(y, 0, ROWS - SOME, ROWS, 1)));
    ck_assert(same_bits(dx_some, eg_slice_axis(dx, 0, ROWS - SOME, ROWS, 1)));
    eg_close(cx);
}

TEST(norms_are_their_formulas)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_shift(eg_normal_n(cx, EG_F64, 0, 3, 3, (int64_t[]){ 5, 4, 700 }), 1000),
              *y = eg_layernorm("b l [d]", x);
    eg_assert_close(eg_mean("b l [d]", y), eg_full_n(cx, EG_F64, 0, 2, (int64_t[]){ 5, 4 }), 1e-12);
    eg_assert_close(eg_var("b l [d]", y, .correction = EG_OFF),
                    eg_full_n(cx, EG_F64, 1, 2, (int64_t[]){ 5, 4 }), 1e-5);
    eg_tensor *c = eg_sub(x, eg_unsqueeze(eg_mean("b [l] d", x), 1)),
              *v = eg_var("b [l] d", x, .correction = EG_OFF);
    eg_assert_close(eg_layernorm("b [l] d", x, .eps = 1e-3),
                    eg_on("bld,bd", eg_div, c, eg_sqrt(eg_shift(v, 1e-3))), 1e-10);
    eg_assert_close(eg_layernorm("b [l d]", x),
                    eg_reshape(eg_layernorm("b [l]", eg_reshape(x, 5, 2800)), 5, 4, 700), 1e-15);
    eg_tensor *f = eg_normal_n(cx, EG_F32, 0, 1, 2, (int64_t[]){ 3000, 64 }),
              *one = eg_layernorm("i [j]", f);
    eg_threads(cx, 5);
    ck_assert(same_bits(one, eg_layernorm("i [j]", f)));
    ck_assert(
        same_bits(one, eg_transpose(eg_layernorm("[j] i", eg_copy(eg_transpose(f, 0, 1))), 0, 1)));
    /* no variance: the result is 0 by eps */
    eg_assert_close(eg_layernorm("i [j]", eg_ones(cx, 2, 8)), eg_zeros(cx, 2, 8), 0);
    eg_assert_close(eg_rmsnorm("i [j]", eg_full(cx, 1e15, 2, 8)), eg_ones(cx, 2, 8), 1e-6);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Rows whose sum of squares overflows (entries beyond 1.8e19 in f32, 1.3e154 in f64), one by one
 * and several at once, have the results of the same rows divided by 2^k, and gradients 2^-k times
 * theirs. */
LOOP_TEST(norms_of_rows_whose_squares_overflow, 4)
{
    const double far = _i % 2 ? 0x1p600 : 0x1p90;
    eg_ctx *cx = eg_open(.dtype = _i % 2 ? EG_F64 : EG_F32, .seed = 4, .threads = 1);
    static const int64_t lengths[] = { 1, 3, 8, 64, 1000 };
    for (int k = 0; k < 5; k++) {
        const int64_t n = lengths[k];
        eg_tensor *x = eg_normal(cx, 0, 1, 9, n), *w = eg_normal(cx, 0, 1, n), *dx, *dz,
                  *z = eg_scale(x, far), *g = eg_normal(cx, 0, 1, 9, n),
                  *y = _i < 2 ? eg_rmsnorm("i [j]", x, .gain = w, .eps = 1e-300)
                              : eg_layernorm("i [j]", x, .gain = w, .eps = 1e-300),
                  *u = _i < 2 ? eg_rmsnorm("i [j]", z, .gain = w, .eps = 1e-300)
                              : eg_layernorm("i [j]", z, .gain = w, .eps = 1e-300);
        eg_assert_close(u, y, 1e-4);
        eg_grad(y, g, 1, &x, &dx);
        eg_grad(u, g, 1, &z, &dz);
        eg_assert_close(eg_scale(dz, far), dx, 1e-3);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* The mean of equal numbers is rounded: 3 × 12345.6 in f32, divided by 3, is another number. Rows
 * that differ by a few units in the last place are those of f64. */
LOOP_TEST(layernorm_of_equal_and_of_nearly_equal_elements, 2)
{
    static const double sizes[] = { 0.1, 12.3, 1234.5, 12345.6, 123456.7, 1e-30, 1e30 };
    const eg_dtype dtype = _i ? EG_F64 : EG_F32;
    const double ulp = _i ? 0x1p-52 : 0x1p-23;
    eg_ctx *cx = eg_open(.dtype = dtype);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int64_t n = 2; n < 3000; n += n < 40 ? 1 : n) {
            const eg_mark m = eg_push(cx);
            eg_tensor *x = eg_full(cx, sizes[s], 9, n), *g = eg_normal(cx, 0, 1, 9, n), *d,
                      *zero = eg_zeros_like(x);
            for (int eps = 0; eps < 2; eps++) {
                eg_tensor *y = eg_layernorm("i [j]", x, .eps = eps ? 1e-5 : EG_OFF);
                eg_assert_close(y, zero, 0);
                if (eps) continue;
                eg_grad(y, g, 1, &x, &d);
                eg_assert_close(d, zero, 0);
            }
            eg_tensor *near = eg_copy(x);
            eg_fill(eg_slice_axis(near, 1, 0, 1, 1), sizes[s] * (1 + 6 * ulp));
            eg_tensor *y = eg_layernorm("i [j]", near, .eps = EG_OFF);
            /* one element is √(n − 1) deviations from the mean, which is a number of the dtype */
            if (n < 7 && sizes[s] > 1e-3 && sizes[s] < 1e6)
                eg_assert_close(eg_slice_axis(y, 1, 0, 1, 1),
                                eg_full(cx, sqrt((double)n - 1), 9, 1), 0.25);
            eg_assert_ok(cx);
            eg_pop(cx, m);
        }
    eg_close(cx);
}

TEST(norms_refuse)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3, 4);
    eg_layernorm("b l [d]", x, .gain = eg_ones(cx, 1));
    eg_assert_error(cx, "layernorm: gain is (1,) but the bracketed axes are (4,)");
    eg_layernorm("b [l d]", x, .bias = eg_ones(cx, 4, 3));
    eg_assert_error(cx, "layernorm: bias is (4, 3) but the bracketed axes are (3, 4)");
    eg_rmsnorm("b l [d]", x, .bias = eg_ones(cx, 4));
    eg_assert_error(cx, "rmsnorm: takes no bias");
    eg_layernorm("b l [d]", x, .eps = -1);
    eg_assert_error(cx, "layernorm: eps is -1; it must be finite and not negative");
    eg_layernorm("b l d", x);
    eg_assert_error(cx, "no index is in brackets");
    eg_layernorm("b l [d]", eg_cast(x, EG_I32));
    eg_assert_error(cx, "layernorm: operand 1 is i32");
    eg_close(cx);
}

/* -- dropout ---------------------------------------------------------------------------------- */
static eg_tensor *again(eg_ctx *cx, eg_tensor *x, double p, uint64_t draw)
{
    eg_set_draws(cx, draw);
    return eg_dropout(x, p);
}

GROUP("dropout")

TEST(dropout_draws_by_logical_index)
{
    eg_ctx *cx = eg_open(.seed = 5, .threads = 1);
    eg_tensor *x = eg_full(cx, 2, 100, 37, 11), *dx;
    eg_tensor *y = again(cx, x, .25, 9), *kept = eg_ne(y, eg_scalar(cx, 0));
    ck_assert_uint_eq(eg_draws(cx), 10);
    const double n = 100 * 37 * 11, share = eg_item(eg_sum(NULL, kept)) / n;
    ck_assert_double_eq_tol(share, .75, 5 * sqrt(.75 * .25 / n));
    eg_assert_close(eg_where(kept, eg_full(cx, 2 / .75, 100, 37, 11), eg_zeros_like(y)), y, 1e-6);
    eg_grad(eg_sum(NULL, y), NULL, 1, &x, &dx);
    eg_assert_close(dx, eg_scale(y, .5), 1e-6); /* the same mask */
    eg_threads(cx, 6);
    ck_assert(same_bits(y, again(cx, x, .25, 9)));
    /* another layout */
    ck_assert(
        same_bits(y, again(cx, eg_permute(eg_copy(eg_permute(x, 2, 0, 1)), 1, 2, 0), .25, 9)));
    ck_assert(!same_bits(y, again(cx, x, .25, 10)));
    eg_seed(cx, 6);
    ck_assert(!same_bits(y, again(cx, x, .25, 9)));
    eg_assert_ok(cx);
    eg_close(cx);
}

/* A view has the bits of its contiguous copy, whichever of its axes are contiguous together. */
LOOP_TEST(dropout_of_views_draws_by_logical_index, 3)
{
    const eg_dtype type = (eg_dtype[]){ EG_F32, EG_F64, EG_C128 }[_i];
    eg_ctx *cx = eg_open(.seed = 5, .dtype = EG_F64, .threads = 2);
    eg_tensor *x = eg_cast(eg_normal(cx, 0, 1, 6, 7, 301), type);
    eg_tensor *const view[] = {
        eg_slice_axis(x, 2, 3, 294, 1),
        eg_slice_axis(x, 1, 1, 6, 1),
        eg_slice_axis(x, 0, 0, 6, 2),
        eg_slice_axis(x, 2, 0, 301, 3),
        eg_flip_axis(x, 1),
        eg_flip_axis(x, 2),
        eg_permute(x, 1, 0, 2),
        eg_permute(x, 2, 1, 0),
        eg_expand(eg_slice_axis(x, 1, 2, 3, 1), 6, 5, 301),
        eg_select_axis(eg_select_axis(x, 0, 1), 0, 1),
        eg_select_axis(eg_select_axis(eg_select_axis(x, 0, 1), 0, 1), 0, 9),
        eg_slice_axis(x, 1, 3, 3, 1),
    };
    for (size_t k = 0; k < sizeof view / sizeof *view; k++) {
        eg_tensor *y = again(cx, view[k], .3, k), *whole = again(cx, eg_copy(view[k]), .3, k);
        ck_assert_msg(same_bits(eg_copy(y), whole), "view %zu", k);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(dropout_at_its_ends)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_full(cx, INFINITY, 3, 5);
    ck_assert_ptr_eq(eg_dropout(x, 0), x);
    eg_assert_close(eg_dropout(x, 1), eg_zeros(cx, 3, 5), 0);
    eg_eval(cx);
    ck_assert_ptr_eq(eg_dropout(x, .9), x);
    eg_train(cx);
    const double bad[] = { -.1, 1.1, NAN };
    for (int k = 0; k < 3; k++) {
        eg_dropout(x, bad[k]);
        eg_assert_error(cx, "is not a probability; it must lie in [0, 1]");
    }
    eg_dropout(eg_cast(x, EG_BOOL), .5);
    eg_assert_error(cx, "dropout: operand 1 is bool");
    eg_close(cx);
}

/* The loss of a row is its log-softmax at the target, with any infinities and NaN in it; an ignored
 * row has neither loss nor gradient. */
TEST(cross_entropy_of_nan_is_nan)
{
    const double odd[] = { NAN, INFINITY, -INFINITY, .5 };
    for (int type = 0; type < 2; type++)
        for (int n = 2; n < 40; n += 7)
            for (int t = 0; t < 64; t++) { /* the element at the target and two others */
                eg_ctx *cx = eg_open(.dtype = type ? EG_F64 : EG_F32, .seed = 9 + (uint64_t)t);
                eg_tensor *x = eg_normal(cx, 0, 1, 3, n),
                          *target = eg_from(cx, ((int32_t[]){ 0, 0, 0 }), 3), *dx;
                const int at[] = { 0, 1, n - 1 };
                for (int k = 0; k < 3; k++)
                    for (int r = 0; r < 2; r++) put(x, odd[t >> 2 * k & 3], r, at[k]);
                eg_mut_i32(target)[1] = -1;
                bool nan = false;
                for (int k = 0; k < n; k++) nan |= isnan(eg_get(x, 0, k));
                eg_tensor *loss = eg_cross_entropy("i [v]", x, target, .each = true, .ignore = -1),
                          *logs = eg_log_softmax("i [v]", x);
                eg_grad(eg_sum(NULL, loss), NULL, 1, &x, &dx);
                eg_assert_ok(cx);
                const double y = eg_get(loss, 0), want = -eg_get(logs, 0, 0);
                ck_assert_msg(nan ? isnan(y) : y == want || fabs(y - want) < 1e-5,
                              "n %d, case %d: %g, log-softmax says %g", n, t, y, want);
                ck_assert(isnan(eg_item(eg_cross_entropy("i [v]", x, target, .ignore = -1,
                                                         .smoothing = .1))) == nan);
                for (int k = 0; k < n; k++) {
                    ck_assert(eg_get(dx, 1, k) == 0 && isfinite(eg_get(dx, 2, k)));
                    if (nan) ck_assert(isnan(eg_get(dx, 0, k)));
                }
                ck_assert_double_eq(eg_get(loss, 1), 0);
                eg_close(cx);
            }
}

/* Classes on the middle axis, whose rows are interleaved, have the bits of rows that are
 * contiguous, also if logits are reversed, sliced or expanded, infinite or NaN. */
TEST(classes_on_the_middle_axis_have_the_bits_of_rows)
{
    static const int classes[] = { 2, 3, 7, 63, 64, 256, 257 };
    for (int k = 0; k < 7 * 2 * 4 * 2; k++) {
        eg_ctx *cx = eg_open(.dtype = k % 2 ? EG_F64 : EG_F32, .threads = 2);
        const int n = classes[k / 2 % 7], view = k / 14 % 4;
        const double smoothing = k / 56 ? .1 : 0;
        eg_tensor *x = eg_uniform(cx, -4, 4, 3, n, 37), *t = eg_randint(cx, -1, n, 3, 35), *dx[2];
        const double odd[] = { INFINITY, -INFINITY, NAN };
        for (int i = 0; i < 3; i++)
            eg_fill(eg_select_axis(eg_slice_axis(x, 1, i, i + 1, 1), 2, 9 * i + 3), odd[i]);
        x = eg_slice_axis(x, 2, 1, 36, 1);
        if (view == 1) x = eg_flip_axis(x, 1);
        if (view == 2) x = eg_flip_axis(x, 2);
        if (view == 3) x = eg_expand(eg_slice_axis(x, 0, 1, 2, 1), 3, -1, -1);
        eg_tensor *rows = eg_contiguous(eg_rearrange("b v l -> b l v", x)),
                  *y = eg_cross_entropy("b [v] l", x, t, .ignore = -1, .each = true,
                                        .smoothing = smoothing),
                  *z = eg_cross_entropy("b l [v]", rows, t, .ignore = -1, .each = true,
                                        .smoothing = smoothing),
                  *g = eg_uniform(cx, -1, 1, 3, 35);
        eg_grad(y, g, 1, &x, &dx[0]);
        eg_grad(z, g, 1, &rows, &dx[1]);
        eg_assert_ok(cx);
        ck_assert_msg(same_bits(y, z), "%d classes, view %d", n, view);
        ck_assert_msg(same_bits(eg_contiguous(eg_rearrange("b v l -> b l v", dx[0])), dx[1]),
                      "%d classes, view %d, gradient", n, view);
        eg_close(cx);
    }
}
