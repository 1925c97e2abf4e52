/* test_halves.c: einsum, affine and plans on f16 and bf16 operands: the sums are those of f32, or
 * of f64 together with such operands, without a copy of an operand. */
#include <config.h> /* EG_DEBUG_ALLOC */
#include <eingrad.h>
#include <eingrad/check.h>
#include <fenv.h>
#include <string.h>
#include "fixtures.h"
#include "tensor/tensor.h"
#include "tests.h"

static eg_ctx *cx;
static void halves_setup(void) { cx = eg_open(.seed = 11); }
static void halves_teardown(void) { eg_close(cx); }
static const eg_dtype half[] = { EG_F16, EG_BF16 };

GROUP("halves", .setup = halves_setup, .teardown = halves_teardown)

/* The same elements in other layouts: transposed, reversed, every second one, one repeated. */
enum { LAYOUTS = 6 };
static eg_tensor *laid_out(eg_tensor *x, int how)
{
    const int rank = eg_rank(x);
    int order[EG_RANK_MAX];
    int64_t dim[EG_RANK_MAX];
    if (!rank) return x;
    for (int r = 0; r < rank; r++) {
        order[r] = rank - 1 - r;
        dim[r] = eg_dim(x, r);
    }
    if (how == 1) return eg_permute_n(eg_copy(eg_permute_n(x, rank, order)), rank, order);
    if (how == 2) return eg_flip_axis(eg_copy(eg_flip_axis(x, rank - 1)), rank - 1);
    if (how == 3 || how == 4) {
        const int axis = how == 3 ? rank - 1 : 0;
        dim[axis] = 2 * dim[axis] + 1;
        eg_tensor *room = eg_full_n(cx, eg_type(x), NAN, rank, dim),
                  *odd = eg_slice_axis(room, axis, 1, dim[axis], 2);
        ck_assert_int_eq(eg_assign(odd, x), 0);
        return odd;
    }
    return how == 5 ? eg_expand_n(eg_slice_axis(x, 0, 0, 1, 1), rank, dim) : x;
}
static eg_tensor *drawn(eg_dtype type, const char *shape)
{
    int64_t dim[8];
    int rank = 0;
    for (char *end; *shape; shape = *end ? end + 1 : end) dim[rank++] = strtoll(shape, &end, 10);
    return eg_cast(eg_normal_n(cx, EG_F32, 0, 1, rank, dim), type);
}
/* Products have the bits of operands that were cast before; sums in another order have the
 * values. */
static const struct {
    const char *spec, *shape[4];
    bool exact;
} calls[] = {
    { "ij,jk->ik", { "7 9", "9 5" }, true },
    { "ij,jk->ik", { "150 300", "300 40" }, true },
    { "ij,kj->ki", { "70 300", "33 300" }, true },
    { "ij,jk->ik", { "3 300", "300 70" }, true },
    { "ij,kj->ik", { "16 260", "37 260" }, true },
    { "bij,bjk->bik", { "3 2 40", "3 40 33" }, true },
    { "bhij,bjhd->ibhd", { "2 3 17 19", "2 19 3 24" }, true },
    { "ijbh,jbhd->ibhd", { "12 13 4 5", "13 4 5 6" }, true },
    { "abij,cjid->abcd", { "3 4 5 6", "2 6 5 8" }, true },
    { "iij,jk->ik", { "6 6 7", "7 8" }, true },
    { "i,i->i", { "999", "999" }, true },
    { "i,j->ji", { "40", "70" }, true },
    { "ij->ji", { "31 64" }, true },
    { "ij->i", { "9 5000" }, false },
    { "ij->j", { "5000 9" }, false },
    { "i,i->", { "9000", "9000" }, false },
    { "ij,j->i", { "50 300", "300" }, false },
    { "ij,i->j", { "300 50", "300" }, false },
    { "ijk,jl->il", { "5 6 7", "6 8" }, false },
    { "bhd,bjhd->bhj", { "2 3 24", "2 150 3 24" }, false },
    { "bhj,bjhe->bhe", { "2 3 150", "2 150 3 24" }, false },
    { "bhj,bjhe->bhe", { "2 2 70", "2 70 2 1100" }, false },
    { "jg,jge->e", { "9 7", "9 7 24" }, false },
    { "ii->", { "30 30" }, false },
    { "ij,ij->", { "30 70", "30 70" }, false },
    { "ab,bc,cd->ad", { "9 8", "8 7", "7 6" }, false },
    { "ia,ib,ic,i->abc", { "9 3", "9 4", "9 5", "9" }, false },
    { ",ij->ij", { "", "3 4" }, true },
};
enum { CALLS = sizeof calls / sizeof *calls };
static void compare(const char *spec, eg_tensor *y, eg_tensor *want, double most)
{
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_type(y), eg_type(want));
    const double far = eg_size(y) ? largest_difference(y, want) : 0;
    ck_assert_msg(far <= most, "%s: %g", spec, far);
}
LOOP_TEST(halves_as_if_they_were_cast, CALLS)
{
    for (int type = 0; type < 2; type++)
        for (int how = 0; how < LAYOUTS * LAYOUTS; how += SLOWER)
            for (int mix = 0; mix < 4; mix++) {
                const eg_mark m = eg_push(cx);
                eg_tensor *x[4], *wide[4];
                int n = 0;
                for (; n < 4 && calls[_i].shape[n]; n++) {
                    /* all halves; both kinds; only the first; only the others */
                    const eg_dtype of = mix == 0   ? half[type]
                                        : mix == 1 ? half[(type + n) % 2]
                                        : mix == 2 ? (n ? EG_F32 : half[type])
                                                   : (n ? half[type] : EG_F32);
                    x[n] = drawn(of, calls[_i].shape[n]);
                    if (strcmp(calls[_i].spec, "iij,jk->ik") || how % LAYOUTS != 5)
                        x[n] = laid_out(x[n], n % 2 ? how / LAYOUTS : how % LAYOUTS);
                    wide[n] = eg_cast(x[n], EG_F32);
                }
                /* with a repeated axis the contraction is another one */
                const bool exact = calls[_i].exact && how % LAYOUTS != 5 && how / LAYOUTS != 5;
                eg_tensor *want = eg_einsum_n(calls[_i].spec, n, wide);
                for (int k = 0; k < n; k++) wide[k] = eg_abs(wide[k]);
                const double all = eg_item(eg_max(NULL, eg_einsum_n(calls[_i].spec, n, wide)));
                compare(calls[_i].spec, eg_einsum_n(calls[_i].spec, n, x), want,
                        exact ? 0 : 1e-5 * all);
                eg_pop(cx, m);
            }
}
/* Every value of both types, including infinities and NaN, in a map, a sum, and a packed
 * product. */
LOOP_TEST(every_half_is_read_as_it_is, 2)
{
    enum { ALL = 1 << 16 };
    eg_tensor *x = eg_full_n(cx, half[_i], 0, 1, (int64_t[]){ ALL }),
              *ones = eg_full_n(cx, half[_i], 1, 2, (int64_t[]){ 1, 8 });
    uint16_t *bits = _i ? eg_mut_bf16(x) : eg_mut_f16(x);
    for (int k = 0; k < ALL; k++) bits[k] = (uint16_t)k;
    eg_tensor *column = eg_view(x, ALL, 1), *wide = eg_cast(x, EG_F32),
              *y[] = { eg_einsum("i->i", x), eg_einsum("ij->i", column),
                       eg_einsum("ij,jk->ik", column, ones),
                       eg_einsum("ij,jk->ik", eg_view(x, ALL / 4, 4),
                                 eg_cast(eg_einsum("i->ii", eg_full(cx, 1, 4)), half[_i])) };
    eg_assert_ok(cx);
    const float *w = eg_f32(wide);
    for (int k = 0; k < ALL; k++) {
        ck_assert(same_number(eg_f32(y[0])[k], w[k]));
        ck_assert(same_number(eg_f32(y[1])[k], w[k]));
        for (int j = 0; j < 8; j++) ck_assert(same_number(eg_get(y[2], k, j), w[k]));
    }
    for (int k = 0; k < ALL / 4; k++)
        for (int j = 0; j < 4; j++) {
            bool all = true; /* 0 times infinity is NaN */
            for (int l = 0; l < 4; l++) all &= isfinite(w[4 * k + l]) || l == j;
            ck_assert(same_number(eg_get(y[3], k, j), all ? w[4 * k + j] : NAN));
        }
}
/* A product of finite elements raises no floating-point exception (FE_INVALID, FE_OVERFLOW,
 * FE_DIVBYZERO), so that a program that traps them is not stopped: the excess rows of the last
 * panel are 0, whatever its memory contained before, here infinities. */
LOOP_TEST(products_raise_no_exceptions, 5)
{
    static const eg_dtype of[][2] = { { EG_F32, EG_F32 },
                                      { EG_F64, EG_F64 },
                                      { EG_F16, EG_BF16 },
                                      { EG_BF16, EG_F32 },
                                      { EG_F16, EG_F64 } };
    eg_ctx *own = eg_open(.threads = 1), *before = cx;
    cx = own;
    for (int layout = 0; layout < 4; layout++) {
        const eg_mark m = eg_push(own);
        eg_tensor *x[2][2];
        for (int k = 0; k < 2; k++) {
            x[0][k] = eg_full_n(own, EG_F64, INFINITY, 2, (int64_t[]){ 400, 400 });
            x[1][k] = eg_uniform_n(own, EG_F64, -1, 1, 2, (int64_t[]){ k ? 70 : 53, k ? 37 : 70 });
            for (int n = 0; n < 2; n++) x[n][k] = eg_cast(x[n][k], of[_i][k]);
            if (layout >> k & 1)
                x[1][k] = eg_transpose(eg_contiguous(eg_transpose(x[1][k], 0, 1)), 0, 1);
        }
        ck_assert(isinf(eg_get(eg_einsum("ij,jk->ik", x[0][0], x[0][1]), 0, 0)));
        feclearexcept(FE_ALL_EXCEPT);
        eg_tensor *y = eg_einsum("ij,jk->ik", x[1][0], x[1][1]);
        const int raised = fetestexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO);
        eg_assert_ok(own);
        ck_assert(isfinite(eg_item(eg_sum(NULL, y))));
        ck_assert_msg(!raised, "%s %s, layout %d: %d", eg_type_name(of[_i][0]),
                      eg_type_name(of[_i][1]), layout, raised);
        eg_pop(own, m);
    }
    cx = before;
    eg_close(own);
}
/* With f64 the result is f64; other combinations are refused with an error that names both
 * types. */
TEST(halves_with_f64_give_f64_and_other_types_are_refused)
{
    eg_tensor *h = drawn(EG_F16, "4 5"), *d = eg_cast(drawn(EG_F32, "5 3"), EG_F64);
    compare("f64", eg_einsum("ij,jk->ik", h, d), eg_einsum("ij,jk->ik", eg_cast(h, EG_F64), d),
            true);
    compare("f64", eg_einsum("ij,j...->i...", h, eg_slice_axis(d, 1, 0, 1, 1)),
            eg_einsum("ij,jk->ik", eg_cast(h, EG_F64), eg_slice_axis(d, 1, 0, 1, 1)), 1e-4);
    ck_assert(!eg_ok(eg_einsum("ij,jk,k->i", h, d, drawn(EG_F32, "3"))));
    eg_assert_error(cx, "einsum: operand 2 is f64 but operand 3 is f32; eg_cast one of them");
    ck_assert(!eg_ok(eg_einsum("ij,j->i", h, eg_cast(drawn(EG_F32, "5"), EG_I32))));
    eg_assert_error(cx, "einsum: operand 1 is f16 but operand 2 is i32; eg_cast one of them");
    ck_assert(!eg_ok(eg_einsum("ij,j->i", h, eg_cast(drawn(EG_F32, "5"), EG_C128))));
    eg_assert_error(cx, "einsum: operand 1 is f16 but operand 2 is c128; eg_cast one of them");
    ck_assert(!eg_ok(eg_einsum("ij,j->i", h, eg_cast(drawn(EG_F32, "5"), EG_I8))));
    eg_assert_error(
        cx, "einsum: operand 2 is i8, which is a storage type; eg_cast it to i32 or f32 first");
    ck_assert(!eg_ok(eg_mul(h, h)));
    eg_assert_error(cx, "mul: operand 1 is f16, which is a storage type; eg_cast it to f32 first");
    ck_assert_int_eq(eg_type(eg_einsum("ij->ji", h)), EG_F32);
}
/* In a network pairs of halves may be contracted before an operand of f64 is read. */
LOOP_TEST(networks_of_halves_and_f64, 16)
{
    static const char *const specs[] = { "i,i,j->ij", "ij,jk,kl->il", "ij,kl,jk->il",
                                         "ab,bc,cd,de->ae" };
    const char *spec = specs[_i % 4];
    const int count = _i % 4 == 3 ? 4 : 3;
    for (int f64 = 0; f64 < count; f64++)
        for (int recording = 0; recording < 2; recording++) {
            const eg_mark m = eg_push(cx);
            const bool was = eg_nograd(cx, !recording);
            eg_tensor *x[4], *wide[4], *d[2];
            for (int k = 0; k < count; k++) {
                wide[k] = _i % 4 ? eg_normal(cx, 0, 1, 3, 3) : eg_normal(cx, 0, 1, 3);
                wide[k] = eg_cast(wide[k], half[(_i / 4 + k) % 2]);
                x[k] = wide[k] = k == f64 || (_i > 7 && !k) ? eg_cast(wide[k], EG_F64) : wide[k];
                wide[k] = eg_cast(wide[k], EG_F64);
            }
            eg_tensor *y = eg_einsum_n(spec, count, x), *z = eg_einsum_n(spec, count, wide);
            ck_assert_int_eq(eg_type(y), EG_F64);
            eg_assert_close(y, z, 1e-14);
            if (recording) {
                ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 1, &x[f64], &d[0]), 0);
                ck_assert_int_eq(eg_grad(z, eg_ones_like(z), 1, &wide[f64], &d[1]), 0);
                eg_assert_close(d[0], d[1], 1e-14);
            }
            eg_assert_ok(cx);
            eg_nograd(cx, was);
            eg_pop(cx, m);
        }
}
TEST(halves_with_options_and_plans)
{
    eg_tensor *a = drawn(EG_F16, "20 30"), *b = drawn(EG_BF16, "30 10"), *x[] = { a, b },
              *wide[] = { eg_cast(a, EG_F32), eg_cast(b, EG_F32) };
    compare("alpha",
            eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                              .spec = "ij,jk->ik",
                                              .count = 2,
                                              .operands = x,
                                              .alpha = 3 }),
            eg_scale(eg_einsum_n("ij,jk->ik", 2, wide), 3), 1e-4);
    compare("labels",
            eg_einsum_labels(2, x, (const int *const[]){ (int[]){ 1, 2 }, (int[]){ 2, 3 } }, 2,
                             (int[]){ 1, 3 }),
            eg_einsum_n("ij,jk->ik", 2, wide), 0);
    eg_tensor *bias = drawn(EG_BF16, "10");
    compare("affine", eg_affine("ij,jk->ik", a, wide[1], bias),
            eg_affine("ij,jk->ik", wide[0], wide[1], eg_cast(bias, EG_F32)), 0);
    ck_assert(!eg_ok(eg_affine("ij,jk->ik", a, wide[1], eg_cast(bias, EG_F64))));
    eg_assert_error(cx, "affine: W is f32 but b is f64; eg_cast one of them");
    eg_nograd(cx, true);
    eg_tensor *out = eg_full(cx, 1, 20, 10);
    eg_einsum_to(out, "ij,jk->ik", a, b);
    compare("to", out, eg_einsum_n("ij,jk->ik", 2, wide), 0);
    ck_assert(!eg_ok(eg_einsum_to(eg_cast(out, EG_F16), "ij,jk->ik", a, b)));
    eg_assert_error(cx, "einsum: .out is f16, the result f32");
    const eg_shape shape[] = { eg_shape_of(a), eg_shape_of(b) };
    eg_plan *p = eg_plan_new(.spec = "ij,jk->ik", .count = 2, .operands = shape);
    ck_assert_ptr_nonnull(p);
    ck_assert_int_eq(eg_plan_out(p)->dtype, EG_F32);
    ck_assert_int_eq(eg_fill(out, 7), 0);
    ck_assert_int_eq(eg_plan_run_on(p, x, out, NULL, 0), 0);
    compare("plan", out, eg_einsum_n("ij,jk->ik", 2, wide), 0);
    ck_assert_int_eq(eg_plan_run_on(p, wide, out, NULL, 0), -1);
    eg_plan_free(p);
    const eg_explained *e = eg_explain("ij,jk->ik", a, wide[1]);
    ck_assert_ptr_nonnull(strstr(e->text, "f32 f16 (20, 30), (30, 10) -> (20, 10)"));
    ck_assert_int_eq(e->gradients, 1);
    ck_assert_ptr_nonnull(strstr(e->gradient[0], "d2:"));
    ck_assert_double_eq(e->bytes, 2 * 600 + 4 * 300 + 4 * 200);
    ck_assert_double_eq(e->backward, 20 * 30 * 10);
}

/* Gradients reach float operands when others are halves, to second order; a half is a constant, as
 * for eg_cast. */
static eg_tensor *of_halves(void *user, eg_tensor *const *x)
{
    eg_tensor *const *h = user;
    eg_tensor *y = eg_einsum("ij,jk,kl,lm->im", x[0], h[0], x[1], h[1]);
    y = eg_add(y, eg_einsum("ij,jk->ik", x[0], h[2]));
    return eg_sum(NULL, eg_mul(y, eg_affine("ij,jk->ik", x[0], h[2], x[2])));
}
TEST(gradients_of_f32_operands_beside_halves_are_f32)
{
    eg_tensor *h[] = { drawn(EG_F16, "4 3"), drawn(EG_BF16, "5 6"), drawn(EG_F16, "4 6") },
              *wide[3], *x[] = { drawn(EG_F32, "2 4"), drawn(EG_F32, "3 5"), drawn(EG_F32, "6") },
              *g[2][3];
    for (int k = 0; k < 3; k++) wide[k] = eg_cast(h[k], EG_F32);
    for (int k = 0; k < 2; k++)
        ck_assert_int_eq(eg_grad(of_halves(k ? wide : h, x), NULL, 3, x, g[k]), 0);
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(eg_type(g[0][k]), EG_F32);
        compare("gradient", g[0][k], g[1][k], 1e-4);
    }
    eg_assert_gradcheck(of_halves, h, 3, x, .order = 2);
    eg_tensor *y = eg_sum(NULL, of_halves(h, x)), *of[] = { h[0] }, *none[1];
    ck_assert_int_ne(eg_grad(y, NULL, 1, of, none), 0);
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "f16"));
    eg_clear(cx);
}
/* -- attention ------------------------------------------------------------------------------- */
/* Keys and values of halves: the same as after eg_cast, in both forms, recorded or not, under masks
 * that forbid elements which are not finite. The query decides the type of the result. */
static const struct {
    const char *spec, *shape[3], *where;
    bool forbids_last; /* the last key, to every query */
} attends[] = {
    { "bihd,bjhd,bjhe->bihe", { "2 1 3 16", "2 70 3 16", "2 70 3 8" }, NULL, false },
    { "bihd,bjhd,bjhe->bihe", { "2 1 3 16", "2 70 3 16", "2 70 3 8" }, "j < |j| - 2", true },
    { "bihd,bjhd,bjhe->bihe", { "2 6 3 16", "2 40 3 16", "2 40 3 8" }, "j <= 3 * i", false },
    { "ihd,jhd,jhe->ihe", { "150 2 8", "150 2 8", "150 2 24" }, "j <= i & j < 140", true },
    { "h i d, h (j=4 k) d, h (j=4 k) e -> h i e",
      { "2 3 5", "2 12 5", "2 12 7" },
      "i + k > 1",
      false },
};
enum { ATTENDS = sizeof attends / sizeof *attends };
LOOP_TEST(attention_to_halves, ATTENDS)
{
    enum { NONE, KEY, VALUE, SPOILT, QUERIES = 3, RECORDS = 2, TYPES = 2 };
    for (int turn = 0; turn < SPOILT * QUERIES * RECORDS * TYPES; turn++) {
        const eg_mark m = eg_push(cx);
        const int spoilt = turn % SPOILT, of_query = turn / SPOILT % QUERIES,
                  records = turn / SPOILT / QUERIES % RECORDS,
                  type = turn / SPOILT / QUERIES / RECORDS;
        const eg_dtype wide = of_query == 2 ? EG_F64 : EG_F32;
        eg_tensor *x[3], *cast[3], *y[2];
        x[0] = drawn(of_query ? wide : half[type], attends[_i].shape[0]);
        for (int t = 1; t < 3; t++) x[t] = drawn(half[(type + t) % 2], attends[_i].shape[t]);
        if (spoilt && attends[_i].forbids_last) { /* an element of the last key is no number */
            eg_tensor *z = x[spoilt];
            (eg_type(z) == EG_F16 ? eg_mut_f16(z) : eg_mut_bf16(z))[eg_size(z) - 1] = 0x7fff;
        }
        for (int t = 0; t < 3; t++) cast[t] = eg_cast(x[t], wide);
        eg_nograd(cx, !records);
        for (int form = EG_FORM_BY_SIZE; form <= EG_UNFUSED; form++) {
            for (int k = 0; k < 2; k++) {
                eg_tensor **z = k ? cast : x;
                y[k] = eg_attention(attends[_i].spec, z[0], z[1], z[2], .where = attends[_i].where,
                                    .form = form);
            }
            eg_assert_ok(cx);
            ck_assert(eg_item(eg_all(NULL, eg_eq(y[1], y[1]))) != 0);
            compare(attends[_i].spec, y[0], y[1], wide == EG_F64 ? 1e-13 : 2e-5);
        }
        eg_nograd(cx, false);
        eg_pop(cx, m);
    }
}
static eg_tensor *attends_to_halves(void *user, eg_tensor *const *x)
{
    eg_tensor *const *h = user;
    return eg_attention("bihd,bjhd,bjhe->bihe", x[0], h[0], h[1], .where = "j <= i",
                        .score = "tanh(score + r[h, clip(i - j, 0, 2)])",
                        .with = { { "r", x[1] } });
}
TEST(gradients_of_attention_to_halves)
{
    eg_tensor *h[] = { drawn(EG_F16, "2 4 3 5"), drawn(EG_BF16, "2 4 3 2") },
              *x[] = { eg_cast(drawn(EG_F32, "2 4 3 5"), EG_F64),
                       eg_cast(drawn(EG_F32, "3 3"), EG_F64) };
    eg_assert_gradcheck(attends_to_halves, h, 2, x, .order = 2);
    eg_tensor *i8 = eg_cast(x[0], EG_I8), *f32 = eg_cast(x[0], EG_F32);
    ck_assert(!eg_ok(eg_attention("bihd,bjhd,bjhe->bihe", x[0], i8, h[1])));
    eg_assert_error(cx, "attention: the key is i8, which is a storage type; eg_cast it to f32");
    ck_assert(!eg_ok(eg_attention("bihd,bjhd,bjhe->bihe", h[0], f32, x[0])));
    eg_assert_error(cx, "attention: the key is f32 but the value is f64; eg_cast one of them");
}

/* The dtypes that tensors of .with are cast to: those of storage types give the bits of casts. */
static eg_tensor *cast_before(eg_tensor *x, eg_dtype floats)
{
    const eg_dtype type = eg_type(x);
    return eg_cast(x, type == EG_I8 || type == EG_U8 ? EG_I64 : floats);
}
/* Asserts that two tensors of dtype `type` have the same bits. */
static void same_bits_of(eg_tensor *a, eg_tensor *b, eg_dtype type)
{
    eg_assert_ok(cx);
    ck_assert(eg_type(a) == type && eg_type(b) == type && same_bits(a, b));
}
LOOP_TEST(tensors_of_with_may_be_of_storage_types, 4)
{
    const eg_dtype floats = _i % 2 ? EG_F64 : EG_F32;
    eg_tensor *q = eg_cast(drawn(EG_F32, "2 4 3 5"), floats),
              *r = laid_out(drawn(half[_i / 2], "3 4"), 1), *u = drawn(EG_BF16, "3"),
              *seed = eg_cast(drawn(EG_F32, "2 4 3 5"), floats),
              *doc = eg_cast(eg_randint(cx, -2, 0, 2, 4), EG_I8),
              *n = eg_cast(eg_randint(cx, 0, 4, 4), EG_U8);
    for (int form = EG_FORM_BY_SIZE; form <= EG_UNFUSED; form++) {
        eg_tensor *y[2], *d[2];
        for (int before = 0; before < 2; before++) {
            eg_given with[] = { { "r", r }, { "u", u }, { "doc", doc }, { "n", n } };
            for (int k = 0; k < 4 && before; k++) with[k].x = cast_before(with[k].x, floats);
            eg_attention_args o = { .size = sizeof o, .spec = "bihd,bjhd,bjhe->bihe" };
            o.q = o.k = o.v = q;
            o.where = "j <= i & doc[b,i] == doc[b,j]";
            o.score = "score * u[h] + r[h, n[i - j]]";
            o.form = (eg_form)form;
            memcpy(o.with, with, sizeof with);
            y[before] = eg_attention_with(&o);
            eg_grad(y[before], seed, 1, &q, &d[before]);
        }
        same_bits_of(y[0], y[1], floats);
        same_bits_of(d[0], d[1], floats);
    }
    /* formulas: the dtype of the other floats, else f32 */
    eg_tensor *x = eg_cast(drawn(EG_F32, "3 4"), floats), *dx;
    eg_tensor *y =
        eg_expr("h i", "x * r + doc[0,i]", .with = { { "x", x }, { "r", r }, { "doc", doc } });
    eg_tensor *z = eg_expr(
        "h i", "x * r + doc[0,i]",
        .with = { { "x", x }, { "r", eg_cast(r, floats) }, { "doc", eg_cast(doc, EG_I32) } });
    same_bits_of(y, z, floats);
    eg_grad(eg_sum(NULL, y), NULL, 1, &x, &dx);
    same_bits_of(dx, eg_cast(r, floats), floats);
    same_bits_of(eg_expr("h i", "r + 1", .with = { { "r", r } }),
                 eg_expr("h i", "r + 1", .with = { { "r", eg_cast(r, EG_F32) } }), EG_F32);
    ck_assert(eg_type(eg_expr("i", "n + 200", .with = { { "n", n } })) == EG_I64);
    /* predicates */
    const char *where = "doc[0,i] == doc[0,j] | n[j] < 2";
    eg_tensor *s = eg_cast(drawn(EG_F32, "4 4"), floats), *doc32 = eg_cast(doc, EG_I32),
              *n64 = eg_cast(n, EG_I64);
    same_bits_of(eg_softmax("i [j]", s, .where = where, .with = { { "doc", doc }, { "n", n } }),
                 eg_softmax("i [j]", s, .where = where, .with = { { "doc", doc32 }, { "n", n64 } }),
                 floats);
    same_bits_of(eg_where_mask(cx, where, "i=4 j=4", .with = { { "doc", doc }, { "n", n } }),
                 eg_where_mask(cx, where, "i=4 j=4", .with = { { "doc", doc32 }, { "n", n64 } }),
                 EG_BOOL);
    /* refusals name the tensor; one of a storage type is a constant */
    ck_assert(!eg_ok(eg_expr("h i", "r[h, n[i] + 1]",
                             .with = { { "r", r }, { "n", eg_cast(eg_full(cx, 7, 4), EG_U8) } })));
    eg_assert_error(cx, "expr: the index of axis 1 of 'r' goes from 8 to 8, but that axis is 4");
    ck_assert(!eg_ok(eg_softmax("i [j]", s, .where = "r[0,j] < i", .with = { { "r", r } })));
    char said[80]; /* the dtype that the program gave, not that of the cast */
    snprintf(said, sizeof said, "'r' is %s, and a predicate reads integers and booleans",
             eg_type_name(eg_type(r)));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), said));
    eg_clear(cx);
    ck_assert(!eg_ok(eg_where_mask(cx, "r[0,j] < i", "i=3 j=4", .with = { { "r", r } })));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), said));
    eg_clear(cx);
    ck_assert(!eg_ok(eg_attention("bihd,bjhd,bjhe->bihe", q, q, q, .where = "r[0,j] < i",
                                  .score = "score + r[h,j]", .with = { { "r", r } })));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), said));
    eg_clear(cx);
    eg_ctx *other = eg_open();
    ck_assert(!eg_ok(eg_expr(
        "h i", "x * r",
        .with = { { "x", x }, { "r", eg_full_n(other, EG_F16, 1, 2, (int64_t[]){ 3, 4 }) } })));
    eg_assert_error(cx, "expr: 'r' of .with belongs to another context");
    eg_close(other);
    eg_assert_ok(cx);
}
/* Masks of storage types give the bits of their casts, whatever the form. */
LOOP_TEST(masks_may_be_of_storage_types, 4)
{
    const eg_dtype floats = _i % 2 ? EG_F64 : EG_F32, bytes = _i % 2 ? EG_I8 : EG_U8;
    eg_tensor *q = eg_cast(drawn(EG_F32, "2 4 3 5"), floats),
              *keep = eg_cast(eg_randint(cx, 0, 2, 2, 4), bytes),
              *lengths = eg_cast(eg_randint(cx, 1, 4, 2), bytes),
              *bias = laid_out(drawn(half[_i / 2], "3 4 4"), 1), *slopes = drawn(half[_i / 2], "3");
    eg_masked masks[2][5] = {
        { { "bj", keep }, { "b", lengths }, { "hij", bias }, { "h", slopes }, { "h", slopes } }
    };
    for (int k = 0; k < 5; k++)
        masks[1][k] =
            (eg_masked){ masks[0][k].axes, eg_cast(masks[0][k].x, k < 2 ? EG_I64 : floats) };
    for (int form = EG_FORM_BY_SIZE; form <= EG_UNFUSED; form++) {
        eg_tensor *y[2];
        for (int before = 0; before < 2; before++) {
            const eg_masked *m = masks[before];
            y[before] =
                eg_attention("bihd,bjhd,bjhe->bihe", q, q, q, .keep = m[0], .lengths = m[1],
                             .bias = m[2], .alibi = m[3], .sink = m[4], .form = (eg_form)form);
        }
        same_bits_of(y[0], y[1], floats);
    }
    eg_tensor *s = eg_cast(drawn(EG_F32, "2 3 4 4"), floats);
    same_bits_of(eg_softmax("b h i [j]", s, .keep = masks[0][0], .bias = masks[0][2]),
                 eg_softmax("b h i [j]", s, .keep = masks[1][0], .bias = masks[1][2]), floats);
    same_bits_of(eg_mask_ignore(keep), eg_mask_ignore(masks[1][0].x), EG_BOOL);
    ck_assert(!eg_ok(eg_softmax("b h i [j]", s, .keep = { "hij", bias })));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), eg_type_name(half[_i / 2])));
    eg_assert_error(cx, ", but it must be bool or integer (non-zero = attend)");
    ck_assert(!eg_ok(eg_softmax("b h i [j]", s, .bias = { "bj", keep })));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), eg_type_name(bytes)));
    eg_assert_error(cx, " but the scores are ");
    eg_tensor *added = eg_from(cx, ((float[]){ 0, -INFINITY, -INFINITY, 0 }), 4);
    same_bits_of(eg_mask_additive(eg_cast(added, half[_i / 2])), eg_mask_additive(added), EG_BOOL);
}

/* Modules, measures of heads and linear attention read the texts before attention does. */
TEST(modules_read_tensors_of_storage_types)
{
    eg_tensor *x = drawn(EG_F32, "2 4 6"), *q = drawn(EG_F32, "2 4 3 5"),
              *r = drawn(EG_BF16, "2 4"), *doc = eg_cast(eg_randint(cx, 0, 3, 2, 4), EG_U8),
              *n = eg_cast(eg_randint(cx, 0, 4, 4), EG_I8);
    eg_tensor *y[2], *l[2], *mass[2];
    eg_params *p = eg_params_open(cx);
    eg_mha *first = NULL;
    for (int before = 0; before < 2; before++) {
        if (before) r = eg_cast(r, EG_F32), doc = eg_cast(doc, EG_I32), n = eg_cast(n, EG_I64);
        eg_mha *a =
            eg_mha_new(p, before ? "b" : "a", .d_model = 6, .heads = 2, .where = "j <= i",
                       .score = "score + r[h, n[i - j]]", .with = { { "r", r }, { "n", n } });
        eg_assert_ok(cx);
        if (before) ck_assert_int_eq(eg_mha_copy(a, first), 0);
        first = a;
        y[before] = eg_mha_run(a, x, .where = "doc[b,i] == doc[b,j]", .with = { { "doc", doc } });
        l[before] =
            eg_linear_attention("bihd,bjhd,bjhe->bihe", q, q, q, .where = "j <= i & doc[b,j] > 0",
                                .with = { { "doc", doc } });
        mass[before] = eg_attention_mass("doc[b,j] == 1", "bihd,bjhd,bjhe->bihe", q, q, q,
                                         .where = "j <= i", .with = { { "doc", doc } });
    }
    same_bits_of(y[0], y[1], EG_F32);
    same_bits_of(l[0], l[1], EG_F32);
    same_bits_of(mass[0], mass[1], EG_F32);
}

/* The bits of one thread and of three, with and without a record. */
TEST(halves_have_the_same_bits_for_any_threads)
{
    static const char *const spec[] = { "ij,jk->ik", "ij,kj->i", "ij,ij->", "ij->j", "ij,ji->ij" };
    eg_tensor *keep[5];
    eg_owner *o = eg_owner_open(cx);
    for (int turn = 0; turn < 2; turn++) {
        eg_ctx *other =
            turn ? eg_open(.seed = 11, .threads = 3) : eg_open(.seed = 11, .threads = 1);
        eg_ctx *before = cx;
        cx = other;
        eg_tensor *a = drawn(EG_F16, "700 600"), *b = drawn(EG_BF16, "600 700");
        for (int k = 0; k < 5; k++) {
            eg_tensor *x[] = { a, k == 1 || k == 2 ? eg_copy(eg_transpose(b, 0, 1)) : b },
                      *y = eg_einsum_n(spec[k], k == 3 ? 1 : 2, x);
            eg_assert_ok(cx);
            y = eg_contiguous(y);
            if (!turn)
                keep[k] = eg_keep_in(
                    o, eg_from_n(before, EG_F32, eg_raw(y, NULL), eg_rank(y), eg_dims(y)));
            else
                ck_assert_mem_eq(eg_f32(keep[k]), eg_f32(y), (size_t)eg_size(y) * sizeof(float));
        }
        cx = before;
        eg_close(other);
    }
    eg_owner_close(o);
}
#if !EG_DEBUG_ALLOC
/* A product and sums make no copy of an operand, which would take 16 MB as f32: their scratch is
 * panels and rows. */
TEST(halves_are_not_copied)
{
    enum { N = 4 << 20 };
    eg_ctx *own = eg_open(.threads = 1);
    eg_nograd(own, true);
    eg_tensor *a = eg_full_n(own, EG_F16, 1, 2, (int64_t[]){ N / 1024, 1024 }),
              *b = eg_full_n(own, EG_BF16, 1, 2, (int64_t[]){ 1024, 8 }),
              *t = eg_full_n(own, EG_BF16, 1, 2, (int64_t[]){ 1024, N / 1024 });
    const struct {
        const char *spec;
        eg_tensor *x, *y;
    } row[] = { { "ij,jk->ik", a, b },
                { "ij,ji->j", a, t },
                { "ij,ji->i", a, t },
                { "ij,ij->", a, eg_transpose(t, 0, 1) } };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        eg_mark m = eg_push(own); /* so that a chunk for the result exists when memory is counted */
        eg_full(own, 0, 1 << 15);
        eg_pop(own, m);
        m = eg_push(own);
        const eg_usage before = eg_stats(own);
        ck_assert(eg_ok(eg_einsum(row[k].spec, row[k].x, row[k].y)));
        const eg_usage after = eg_stats(own);
        ck_assert_msg(after.peak - before.peak < (size_t)6 << 20, "%s: %zu bytes", row[k].spec,
                      after.peak - before.peak);
        eg_pop(own, m);
    }
    eg_close(own);
}
#endif

/* -- conversions ------------------------------------------------------------------------------ */
/* Every f16 as f32 is its value; a NaN keeps its sign and its bits and is quiet. Rows that are
 * converted eight at a time and elements that lie apart have the same bits. */
TEST(each_f16_as_f32)
{
    enum { ALL = 65536 };
    static uint16_t bits[ALL];
    eg_ctx *own = eg_open();
    for (int k = 0; k < ALL; k++) bits[k] = (uint16_t)k;
    eg_tensor *h = eg_from_n(own, EG_F16, bits, 1, (int64_t[]){ ALL });
    /* rows of seven: no eight elements are beside each other */
    eg_tensor *seven = eg_slice_axis(eg_reshape(h, ALL / 8, 8), 1, 0, 7, 1);
    const float *y = eg_f32(eg_cast(h, EG_F32)), *z = eg_f32(eg_cast(seven, EG_F32));
    eg_assert_ok(own);
    for (int k = 0; k < ALL - 1; k++) {
        const uint32_t sign = (uint32_t)(k >> 15) << 31, e = k >> 10 & 31, f = k & 1023;
        uint32_t got, other, nan = sign | 0x7fc00000 | f << 13;
        memcpy(&got, &y[k], sizeof got);
        memcpy(&other, &z[k / 8 * 7 + k % 8], sizeof other);
        ck_assert(k % 8 == 7 || got == other);
        if (e == 31 && f)
            ck_assert_uint_eq(got, nan);
        else if (e == 31)
            ck_assert_uint_eq(got, sign | 0x7f800000);
        else
            ck_assert(fabsf(y[k]) == ldexpf((float)(e ? f + 1024 : f), (int)(e ? e : 1) - 25) &&
                      got >> 31 == sign >> 31);
    }
    eg_close(own);
}
/* f64 as bf16: numbers beside the middle of two neighbours, among tiny ones, where a float has
 * fewer bits, and among others, become the nearer one. */
TEST(doubles_beside_the_middle_of_two_neighbours)
{
    enum { N = 1200 };
    eg_ctx *own = eg_open(.dtype = EG_F64);
    for (int tiny = 0; tiny < 2; tiny++) {
        const int exponent = tiny ? -133 : -20;
        eg_tensor *x = eg_zeros(own, N);
        double *v = eg_mut_f64(x);
        for (int k = 0; k < N; k++) {
            const double beside = k % 3 == 0 ? 0x1p-40 : k % 3 == 1 ? -0x1p-40 : 0;
            const int whole = k % 120 + (tiny ? 0 : 128);
            v[k] = ldexp(whole + .5 + beside, exponent) * (k % 7 ? 1 : -1);
        }
        const uint16_t *y = eg_bf16(eg_cast(x, EG_BF16));
        eg_assert_ok(own);
        for (int k = 0; k < N; k++) {
            const double want = nearbyint(ldexp(fabs(v[k]), -exponent));
            const uint32_t bits = (uint32_t)(y[k] & 0x7fff) << 16;
            float got;
            memcpy(&got, &bits, sizeof got);
            ck_assert_msg((double)got == ldexp(want, exponent), "%a: %a", v[k], (double)got);
            ck_assert_int_eq(y[k] >> 15, v[k] < 0);
        }
    }
    eg_close(own);
}

/* Numbers of each dtype as f16 and bf16 are those nearest to them: casts of whole rows and of
 * elements that lie apart, by way of f32 or not, have the same bits. */
TEST(casts_to_halves_are_rounded_once)
{
    enum { N = 1 << 16 };
    static const eg_dtype halves[] = { EG_F16, EG_BF16 }, from[] = { EG_F32, EG_I32, EG_I64 };
    eg_ctx *own = eg_open();
    eg_tensor *draws = eg_cast(eg_randint(own, INT32_MIN, INT32_MAX, N), EG_I32);
    for (int k = 0; k < 2 * 3; k++) {
        const eg_mark mark = eg_push(own);
        const eg_dtype narrow = halves[k % 2], type = from[k / 2];
        eg_tensor *x = type == EG_F32 ? eg_from_n(own, EG_F32, eg_i32(draws), 1, (int64_t[]){ N })
                                      : eg_cast(draws, type);
        if (type == EG_I64) x = eg_add(eg_scale(x, 1 << 20), eg_cast(eg_flip_axis(x, 0), EG_I64));
        eg_tensor *seven = eg_cast(eg_slice_axis(eg_reshape(x, N / 8, 8), 1, 0, 7, 1), narrow);
        const uint16_t *y = narrow == EG_F16 ? eg_f16(eg_cast(x, narrow))
                                             : eg_bf16(eg_cast(x, narrow)),
                       *z = narrow == EG_F16 ? eg_f16(seven) : eg_bf16(seven);
        const double *back = eg_f64(eg_cast(eg_cast(x, narrow), EG_F64)),
                     *v = eg_f64(eg_cast(x, EG_F64));
        eg_assert_ok(own);
        for (int i = 0; i < N; i++) {
            ck_assert(i % 8 == 7 || y[i] == z[i / 8 * 7 + i % 8]);
            const int bits = narrow == EG_F16 ? 11 : 8, least = narrow == EG_F16 ? -14 : -126;
            int e;
            if (isnan(v[i])) {
                ck_assert_uint_eq(y[i] & 0x7fff, narrow == EG_F16 ? 0x7e00 : 0x7fc0);
                continue;
            }
            (void)frexp(v[i], &e);
            const int low = (e - 1 > least ? e - 1 : least) - bits + 1;
            double want = ldexp(nearbyint(ldexp(v[i], -low)), low);
            if (narrow == EG_F16 && fabs(want) >= 65536) want = copysign(INFINITY, want);
            if (narrow == EG_BF16 && fabs(want) >= 0x1p128) want = copysign(INFINITY, want);
            ck_assert(back[i] == want);
        }
        eg_pop(own, mark);
    }
    eg_close(own);
}
/* The same for f64: near each number of f16, halfway between two and beside that, with every sign;
 * at the limits of f32; NaN with any bits. */
TEST(doubles_to_halves_are_rounded_once)
{
    enum { HALVES = 0x7c01, FORMS = 7, SPECIAL = 8, N = HALVES * FORMS + SPECIAL };
    static const uint64_t special[SPECIAL] = {
        0x7ff0000000000001, 0xfff0000020000000, 1,
        0x8000000000000001, 0x380fffffffffffff, 0x47efffffefffffff,
        0x47efffffffffffff, 0xfff0000000000000
    };
    eg_ctx *own = eg_open();
    double *v = malloc(N * sizeof *v);
    for (int k = 0; k < HALVES; k++) {
        const eg_f16bits low = { (uint16_t)k }, high = { (uint16_t)(k < 0x7bff ? k + 1 : k) };
        const double a = (double)eg__from_half(low), b = (double)eg__from_half(high),
                     middle = k < 0x7bff ? (a + b) / 2 : 65520,
                     at[FORMS] = { a,
                                   middle,
                                   nextafter(middle, 0),
                                   nextafter(middle, INFINITY),
                                   nextafter(a, -INFINITY),
                                   nextafter(a, INFINITY),
                                   -middle };
        for (int f = 0; f < FORMS; f++) v[k * FORMS + f] = k & 1 ? -at[f] : at[f];
    }
    memcpy(v + HALVES * FORMS, special, sizeof special);
    const uint16_t *y = eg_f16(eg_cast(eg_from_n(own, EG_F64, v, 1, (int64_t[]){ N }), EG_F16));
    eg_assert_ok(own);
    for (int k = 0; k < N; k++) {
        const eg_f16bits got = { y[k] };
        const double want = eg__nearest_f16(v[k]), is = (double)eg__from_half(got);
        ck_assert_msg(same_number(is, want) && !signbit(is) == !signbit(v[k]), "%a: %a, not %a",
                      v[k], is, want);
    }
    free(v);
    eg_close(own);
}
/* Floats as integers: cut off, the nearest integer of the dtype beyond its range, NaN is 0. */
TEST(floats_as_integers_are_cut_off)
{
    static const double odd[] = { NAN,    INFINITY,   -INFINITY,      0x1p63,  -0x1p63,
                                  0x1p31, -0x1p31,    -0x1.000002p31, 127.9,   128,
                                  -128.9, -129,       255.9,          256,     -.9,
                                  .9,     0x1p31 - 1, 0x1p40,         -0x1p40, 1e300 };
    static const double low[] = { -128, 0, -0x1p31, -0x1p63 }, high[] = { 127, 255, 0x1p31 - 1, 0 };
    static const eg_dtype to[] = { EG_I8, EG_U8, EG_I32, EG_I64 };
    enum { ODD = sizeof odd / sizeof *odd, N = 1000 };
    eg_ctx *own = eg_open(.dtype = EG_F64);
    for (int k = 0; k < 4 * 4 * 2; k++) {
        const eg_mark mark = eg_push(own);
        eg_tensor *x = eg_scale(eg_normal(own, 0, 1, N), (double[]){ 1, 100, 1e5, 1e12 }[k / 8]);
        for (int i = 0; i < ODD && k % 2; i++) eg_mut_f64(x)[37 * i] = odd[i];
        for (int single = 0; single < 2; single++) {
            if (single) x = eg_cast(x, EG_F32);
            const double *v = eg_f64(eg_cast(x, EG_F64));
            eg_tensor *y = eg_cast(eg_cast(x, to[k / 2 % 4]), EG_I64);
            eg_assert_ok(own);
            for (int i = 0; i < N; i++) {
                const double most = high[k / 2 % 4], least = low[k / 2 % 4];
                const int64_t want = isnan(v[i])               ? 0
                                     : v[i] < least            ? (int64_t)least
                                     : most && v[i] > most     ? (int64_t)most
                                     : !most && v[i] >= 0x1p63 ? INT64_MAX
                                                               : (int64_t)v[i];
                ck_assert_int_eq(eg_i64(y)[i], want);
            }
        }
        eg_pop(own, mark);
    }
    eg_close(own);
}
