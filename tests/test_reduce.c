/* test_reduce.c: rearrange, eg_on, and the reductions over bracketed axes. */
#include "tests.h"
#include "stored_values.h"

/* -- rearrange, on ---------------------------------------------------------------------------- */
GROUP("moves")

TEST(merging_heads_cannot_forget_the_transpose)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_F32, 0, 12, 1), 1, 2, 3, 2);
    eg_tensor *y = eg_rearrange("n h s d -> n s (h d)", x);
    eg_assert_close(y, eg_from(cx, ((float[]){ 0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11 }), 1, 3, 4),
                    0);
    eg_assert_close(eg_rearrange("n s (h d) -> n h s d", y, .h = 2), x, 0);
    eg_assert_close(eg_rearrange("n s (h=2 d) -> n h s d", y), x, 0);
    eg_assert_close(eg_rearrange("batch seq (head=2 dim) -> batch head seq dim", y), x, 0);
    eg_close(cx);
}

TEST(rearrange_is_a_view_where_one_exists)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_F32, 0, 24, 1), 2, 3, 4);
    ck_assert_ptr_eq(eg_raw(eg_rearrange("b l (h d) -> b h l d", x, .h = 2), NULL),
                     eg_raw(x, NULL));
    ck_assert_ptr_eq(eg_raw(eg_rearrange("b l d -> (b l) d", x), NULL), eg_raw(x, NULL));
    ck_assert_ptr_eq(eg_raw(eg_rearrange("... d -> d ...", x), NULL), eg_raw(x, NULL));
    eg_tensor *repeated = eg_rearrange("b l d -> b r l 1 d", x, .r = 3);
    ck_assert_ptr_eq(eg_raw(repeated, NULL), eg_raw(x, NULL));
    eg_assert_axes("b r=3 l=3 1 d", repeated);
    ck_assert_ptr_ne(eg_raw(eg_rearrange("b l d -> (l b) d", x), NULL), eg_raw(x, NULL));
    eg_assert_axes("a x=2", eg_rearrange("a -> a x", eg_ones(cx, 5), .x = 2));
    eg_assert_ok(cx);
    eg_close(cx);
}

static eg_tensor *moved(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_square(eg_rearrange("b l (h d) -> (l r) h 1 b d", x[0], .h = 2, .r = 2));
}
static eg_tensor *added(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_on("bhij, jb -> i b h j", eg_mul, eg_square(x[0]), x[1]);
}
TEST(rearrange_and_on_have_gradients_to_second_order)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_assert_grad2(moved, NULL, wave(cx, 0, 2, 3, 4));
    eg_assert_grad2(added, NULL, wave(cx, 0, 2, 2, 3, 4), wave(cx, 1, 4, 2));
    eg_close(cx);
}

TEST(on_aligns_by_letters)
{
    eg_ctx *cx = eg_open();
    eg_tensor *a = eg_reshape(eg_arange(cx, EG_F32, 0, 6, 1), 2, 3),
              *b = eg_from(cx, ((float[]){ 10, 20 }), 2);
    eg_assert_close(eg_on("ij, i", eg_add, a, b),
                    eg_from(cx, ((float[]){ 10, 11, 12, 23, 24, 25 }), 2, 3), 0);
    eg_assert_close(eg_on("ij, i -> j i", eg_sub, a, b),
                    eg_from(cx, ((float[]){ -10, -17, -9, -16, -8, -15 }), 3, 2), 0);
    eg_assert_close(eg_on("j, i", eg_mul, eg_from(cx, ((float[]){ 1, 2, 3 }), 3), b),
                    eg_from(cx, ((float[]){ 10, 20, 20, 40, 30, 60 }), 3, 2), 0);
    eg_on("ij, j", eg_add, a, b);
    eg_assert_error(cx, "index 'j' is 3 in operand 1 but 2 in operand 2");
    eg_on("ij, i -> i", eg_add, a, b);
    eg_assert_error(cx, "index 'j' is not in the output");
    eg_on("ii, i", eg_add, eg_ones(cx, 2, 2), b);
    eg_assert_error(cx, "index 'i' occurs twice");
    eg_on("ij, i", NULL, a, b);
    eg_assert_error(cx, "the function is NULL");
    eg_close(cx);
}

TEST(rearrange_refuses)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3, 4);
    const struct {
        const char *spec, *says;
    } bad[] = {
        { "b l d -> b d", "index 'l' is not in the output" },
        { "b l d", "-> and the new order" },
        { "b l d -> b l d e", "'e' is in no operand" },
        { "b l (h d) -> b h l d", "unknown" },
        { "b l (h=3 d) -> b h l d", "does not divide" },
        { "b l -> l b", "rank 3" },
        { "b l d -> b l d d", "twice" },
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ck_assert(!eg_ok(eg_rearrange(bad[k].spec, x)));
        eg_assert_error(cx, bad[k].says);
    }
    eg_rearrange(NULL, x);
    eg_assert_error(cx, "rearrange");
    ck_assert_ptr_null(eg_rearrange("a -> a", NULL));
    eg_close(cx);
}

/* -- reductions ------------------------------------------------------------------------------- */
GROUP("reductions")

TEST(reductions_equal_stored_values)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 0, 2, 3, 4);
    as_stored(eg_logsumexp("[b] i [j]", x), ref_logsumexp, OPERANDS(x),
              GRADIENTS(ref_logsumexp_d0));
    as_stored(eg_var("b [i j]", x), ref_var, OPERANDS(x), GRADIENTS(ref_var_d0));
    as_stored(eg_std("[b] i j", x, .correction = EG_OFF), ref_std0, OPERANDS(x),
              GRADIENTS(ref_std0_d0));
    as_stored(eg_prod("b [i] j", x), ref_prod, OPERANDS(x), GRADIENTS(ref_prod_d0));
    as_stored(eg_max("b [i] j", x), ref_max, OPERANDS(x), GRADIENTS(ref_max_d0));
    eg_close(cx);
}

TEST(results_have_the_axes_that_are_left)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_F32, 0, 24, 1), 2, 3, 4);
    eg_assert_axes("b=2 d=4", eg_sum("b [l] d", x));
    eg_assert_axes("d=4 b=2", eg_max("b [l] d -> d b", x));
    eg_assert_close(eg_sum("b [l] d -> d b", x), eg_einsum("bld->db", x), 0);
    /* a group that is not reduced remains one axis */
    eg_assert_axes("b=2 c=4", eg_logsumexp("b [l] (h=2 d)", x));
    eg_assert_axes("b=2 l=3 d=2", eg_min("b l ([h=2] d)", x));
    eg_assert_axes("d=8", eg_mean("b [l] d -> (b d)", x));
    eg_assert_axes("b=2 i=1 d=4", eg_sum("b 1 [l] d", eg_unsqueeze(x, 1)));
    eg_assert_axes("a=2 b=3", eg_sum("... [d]", x));
    ck_assert_int_eq(eg_rank(eg_sum(NULL, x)), 0);
    ck_assert_double_eq(eg_item(eg_sum(NULL, x)), 276);
    ck_assert_double_eq(eg_item(eg_mean("[...]", x)), 11.5);
    ck_assert_double_eq(eg_item(eg_max(NULL, eg_scalar(cx, 5))), 5);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(integers_and_bools)
{
    eg_ctx *cx = eg_open();
    eg_tensor *n = eg_from(cx, ((int[]){ 2000000000, 2000000000, 3, -7 }), 2, 2),
              *t = eg_gt(n, eg_full_n(cx, EG_I32, 5, 0, NULL));
    ck_assert_int_eq(eg_type(eg_sum(NULL, n)), EG_I64);
    ck_assert_double_eq(eg_item(eg_sum("[i j]", n)), 3999999996.);
    ck_assert_double_eq(eg_item(eg_prod("[i j]", eg_slice_axis(n, 0, 1, 2, 1))), -21);
    ck_assert_double_eq(eg_item(eg_sum(NULL, t)), 2);
    ck_assert_int_eq(eg_type(eg_max(NULL, n)), EG_I32);
    ck_assert_double_eq(eg_item(eg_min(NULL, n)), -7);
    ck_assert_double_eq(eg_item(eg_argmin(NULL, n)), 3);
    const bool *any = eg_bool(eg_any("i [j]", t)), *all = eg_bool(eg_all("[i] j", t));
    ck_assert(any[0] && !any[1] && !all[0] && !all[1]);
    ck_assert(eg_bool(eg_all("[i] j", n))[0]); /* non-zero counts as true */
    eg_mean(NULL, n);
    eg_assert_error(cx, "mean: operand 1 is i32; cast it to f32 or f64 first");
    eg_close(cx);
}

TEST(reductions_of_no_elements)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_zeros(cx, 3, 0), *dx;
    eg_assert_close(eg_sum("i [j]", x), eg_zeros(cx, 3), 0);
    eg_assert_close(eg_prod("i [j]", x), eg_ones(cx, 3), 0);
    eg_assert_close(eg_logsumexp("i [j]", x), eg_full(cx, -INFINITY, 3), 0);
    eg_assert_axes("j=0", eg_max("[i] j", x));
    ck_assert(!eg_bool(eg_any("i [j]", x))[2] && eg_bool(eg_all("i [j]", x))[2]);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_exp(eg_logsumexp("i [j]", x))), NULL, 1, &x, &dx), 0);
    ck_assert_int_eq(eg_dim(dx, 1), 0);
    eg_max("i [j]", x);
    eg_assert_error(cx, "max: the bracketed axes have no elements in operand 1, "
                        "which is (3, 0)");
    eg_argmin(NULL, x);
    eg_assert_error(cx, "argmin: the bracketed axes have no elements");
    eg_mean(NULL, x);
    eg_assert_error(cx, "mean: the bracketed axes have no elements");
    eg_var("[i] j", eg_zeros(cx, 1, 2));
    eg_assert_error(cx, "var: 1 element less the correction 1 leaves nothing to divide by");
    eg_close(cx);
}

/* Rows without an element whose axes lie apart in memory, in each order of the axes: pnorm divided
 * by their size 0, and the largest |x| of nothing was 1e-307. */
TEST(reductions_of_no_elements_along_separate_axes)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_zeros(cx, 2, 0, 3, 1), *dx;
    for (int p = 0; p < 3; p++) {
        const char *const spec[] = { "[a] [b] c [d] -> c", "[a] [b] c d -> c d", "[b] a c d" };
        eg_tensor *in = p < 2 ? x : eg_permute(x, 1, 0, 2, 3), *y = eg_pnorm(spec[p], in, 2);
        eg_assert_close(y, eg_zeros_like(y), 0);
        eg_assert_close(eg_pnorm(spec[p], in, 1), eg_zeros_like(y), 0);
        eg_assert_close(eg_pnorm(spec[p], in, 3), eg_zeros_like(y), 0);
        eg_assert_close(eg_pnorm(spec[p], in, INFINITY), eg_zeros_like(y), 0);
        eg_assert_close(eg_sum(spec[p], in), eg_zeros_like(y), 0);
        eg_assert_close(eg_prod(spec[p], in), eg_ones_like(y), 0);
        eg_assert_close(eg_exp(eg_logsumexp(spec[p], in)), eg_zeros_like(y), 0);
        ck_assert_int_eq(eg_grad(eg_sum(NULL, y), NULL, 1, &x, &dx), 0);
        ck_assert_int_eq(eg_dim(dx, 1), 0);
    }
    ck_assert_ptr_null(eg_error(cx));
    eg_close(cx);
}

LOOP_TEST(norm_of_nothing_is_zero, 5)
{
    static const double p[] = { .5, 1, 2, 3, INFINITY };
    static const eg_dtype dtype[] = { EG_F32, EG_F64, EG_C128 };
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 3; k++) {
        eg_tensor *x = eg_full_n(cx, dtype[k], 0, 2, (int64_t[]){ 3, 0 }), *dx;
        eg_assert_close(eg_pnorm("i [j]", x, p[_i]), eg_full_n(cx, dtype[k], 0, 1, eg_dims(x)), 0);
        if (dtype[k] != EG_C128)
            ck_assert(!eg_grad(eg_pnorm(NULL, x, p[_i]), NULL, 1, &x, &dx) && eg_size(dx) == 0);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

static eg_tensor *prod_rows(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_prod("i [j]", x[0]);
}
static eg_tensor *var_rows(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_var("[i] j [k]", x[0]);
}
TEST(prod_is_right_with_zeros)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ 2,      0, 3, 5, -1, /**/ 0, 4, 0, 2, 3,
                                            /**/ 0, 0, 0, 1, 7,  /**/ 1, 2, 3, 4, 5 }),
                           4, 5),
              *dx;
    eg_tensor *y = prod_rows(NULL, &x);
    eg_assert_close(y, eg_from(cx, ((double[]){ 0, 0, 0, 120 }), 4), 0);
    eg_grad(eg_sum(NULL, y), NULL, 1, &x, &dx);
    eg_assert_close(dx,
                    eg_from(cx, ((double[]){ 0, -30, 0, 0, 0, 0,   0,  0,  0,  0,
                                             0, 0,   0, 0, 0, 120, 60, 40, 30, 24 }),
                            4, 5),
                    0);
    eg_assert_grad2(prod_rows, NULL, x);
    eg_assert_grad2(prod_rows, NULL, wave(cx, 0, 2, 7));
    eg_assert_grad2(var_rows, NULL, wave(cx, 0, 2, 3, 4));
    eg_close(cx);
}

TEST(ties_share_the_gradient)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(cx, ((float[]){ 1, 3, 3, 0, -2, -2, -2, -2 }), 2, 4), *dx;
    eg_grad(eg_sum(NULL, eg_max("i [j]", x)), NULL, 1, &x, &dx);
    eg_assert_close(dx, eg_from(cx, ((float[]){ 0, .5f, .5f, 0, .25f, .25f, .25f, .25f }), 2, 4),
                    0);
    eg_close(cx);
}

TEST(argmax_takes_the_first_and_prefers_nan)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(
        cx, ((float[]){ 1, 3, 3, 0, 2, NAN, 9, NAN, -INFINITY, -INFINITY, -INFINITY, -INFINITY }),
        3, 4);
    const int64_t *most = eg_i64(eg_argmax("i [j]", x)), *least = eg_i64(eg_argmin("i [j]", x));
    ck_assert(most[0] == 1 && most[1] == 1 && most[2] == 0);
    ck_assert(least[0] == 3 && least[1] == 1 && least[2] == 0);
    ck_assert(isnan(eg_get(eg_max("i [j]", x), 1)) && isnan(eg_get(eg_min("i [j]", x), 1)));
    ck_assert_double_eq(eg_get(eg_max("i [j]", x), 2), -INFINITY);
    eg_tensor *y = eg_zeros(cx, 2, 3, 4); /* row-major over [j k], whatever the layout */
    eg_mut_f32(y)[1 * 12 + 2 * 4 + 1] = 1;
    ck_assert_int_eq(eg_i64(eg_argmax("i [j k]", y))[1], 2 * 4 + 1);
    ck_assert_int_eq(eg_i64(eg_argmax("[k] i [j]", eg_permute(y, 2, 0, 1)))[1], 1 * 3 + 2);
    eg_tensor *big = eg_zeros(cx, 5000); /* more than one chunk */
    eg_mut_f32(big)[4321] = eg_mut_f32(big)[4322] = 2;
    ck_assert_double_eq(eg_item(eg_argmax(NULL, big)), 4321);
    eg_mut_f32(big)[700] = NAN;
    ck_assert_double_eq(eg_item(eg_argmax(NULL, big)), 700);
    eg_close(cx);
}

/* Long rows that are neighbours in memory are gathered, at most as many as there are. */
TEST(a_few_long_rows_take_no_more_than_themselves)
{
    for (int threads = 1; threads <= 2; threads++) {
        eg_ctx *cx = eg_open(.threads = threads);
        eg_tensor *x = eg_zeros(cx, 200000, 3);
        eg_mut_f32(x)[3 * 123456 + 1] = 2;
        const size_t before = eg_stats(cx).bytes;
        ck_assert_int_eq(eg_i64(eg_argmax("[i] j", x))[1], 123456);
        ck_assert_uint_le(eg_stats(cx).bytes - before, 2 * 200000 * 3 * sizeof(float));
        eg_close(cx);
    }
}

static eg_tensor *lse(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_logsumexp("i [j]", x[0]);
}
TEST(logsumexp_is_stable)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx,
                           ((double[]){ 1e30, 1e30, -1e30, -INFINITY, 0, 0, -INFINITY, -INFINITY,
                                        -INFINITY, INFINITY, 1, INFINITY }),
                           4, 3),
              *dx, *ddx;
    eg_tensor *y = lse(NULL, &x);
    eg_assert_close(y, eg_from(cx, ((double[]){ 1e30, log(2), -INFINITY, INFINITY }), 4), 1e-16);
    eg_grad(y, eg_ones(cx, 4), 1, &x, &dx);
    eg_assert_close(dx, eg_from(cx, ((double[]){ .5, .5, 0, 0, .5, .5, 0, 0, 0, .5, 0, .5 }), 4, 3),
                    1e-16);
    eg_grad(eg_sum(NULL, eg_square(dx)), NULL, 1, &x, &ddx);
    ck_assert_double_eq(eg_item(eg_sum(NULL, eg_cast(eg_isnan(ddx), EG_F64))), 0);
    eg_assert_grad2(lse, NULL, eg_scale(wave(cx, 0, 2, 4), 20));
    eg_close(cx);
}

TEST(the_same_bits_for_any_layout_and_any_threads)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_normal_n(cx, EG_F32, 0, 3, 3, (int64_t[]){ 60, 70, 50 }), *y[4], *z;
    eg_tensor *p = eg_copy(eg_permute(x, 2, 0, 1)); /* in memory k i j */
    for (int threads = 1; threads <= 5; threads += 4) {
        eg_threads(cx, threads);
        y[0] = eg_logsumexp("i [j k]", x), y[1] = eg_max("i [j] k", x),
        y[2] = eg_logsumexp("[i j] k", x), y[3] = eg_argmax("i [j k]", x);
        z = eg_logsumexp("i [j k]", eg_permute(p, 1, 2, 0));
        ck_assert(same_bits(y[0], z));
        ck_assert(same_bits(y[2], eg_logsumexp("[i j] k", eg_permute(p, 1, 2, 0))));
        if (threads == 1)
            for (int k = 0; k < 4; k++) y[k] = eg_copy(y[k]);
        else {
            eg_threads(cx, 1);
            ck_assert(same_bits(y[0], eg_logsumexp("i [j k]", x)) &&
                      same_bits(y[1], eg_max("i [j] k", x)));
            ck_assert(same_bits(y[2], eg_logsumexp("[i j] k", x)) &&
                      same_bits(y[3], eg_argmax("i [j k]", x)));
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(reductions_refuse)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3);
    const struct {
        const char *spec, *says;
    } bad[] = {
        { "i j", "no index is in brackets" },
        { "i [j] -> j", "a bracketed index is no axis of the result" },
        { "i [j] ->", "index 'i' is neither in brackets nor in the output" },
        { "i [i]", "index 'i' is 2 and 3" },
        { "i [j] k", "rank 2" },
        { "i [j", "max" },
        { "i, [j]", "2 operands" },
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ck_assert(!eg_ok(eg_max(bad[k].spec, x)));
        eg_assert_error(cx, bad[k].says);
    }
    eg_sum("i [i]", eg_ones(cx, 2, 2));
    eg_assert_error(cx, "index 'i' occurs twice");
    ck_assert_ptr_null(eg_sum(NULL, NULL));
    eg_close(cx);
}

/* As in NumPy and PyTorch: NaN is the largest in an order, and the result of every extreme; its
 * position, in a vector or in the remainder, does not matter. */
TEST(nan_in_every_order)
{
    static const int sizes[] = { 1, 2, 15, 16, 17, 40, 513 };
    for (int t = 0; t < 2 * (int)(sizeof sizes / sizeof *sizes); t++) {
        const int n = sizes[t / 2];
        for (int at = 0; at < n; at += n < 41 ? 1 : 101) {
            eg_ctx *cx = eg_open(.dtype = t % 2 ? EG_F64 : EG_F32, .seed = (uint64_t)n);
            eg_tensor *x = eg_normal(cx, 0, 1, n), *dx, *order, *y;
            if (at != n / 2) put(x, INFINITY, n / 2);
            put(x, NAN, at);
            ck_assert(isnan(eg_item(eg_max(NULL, x))) && isnan(eg_item(eg_min(NULL, x))) &&
                      isnan(eg_item(eg_sum(NULL, x))));
            ck_assert(isnan(eg_item(eg_mean(NULL, x))) && isnan(eg_item(eg_prod(NULL, x))) &&
                      isnan(eg_item(eg_logsumexp(NULL, x))));
            for (double p = 1; p < 4; p += 1.5) ck_assert(isnan(eg_item(eg_pnorm(NULL, x, p))));
            ck_assert(isnan(eg_item(eg_pnorm(NULL, x, INFINITY))) &&
                      (n < 2 || isnan(eg_item(eg_std(NULL, x)))));
            ck_assert(eg_item(eg_argmax(NULL, x)) == at && eg_item(eg_argmin(NULL, x)) == at);
            /* NaN is not 0 */
            ck_assert(eg_item(eg_any(NULL, eg_select_axis(eg_unsqueeze(x, 1), 0, at))) == 1);
            eg_grad(eg_max(NULL, x), NULL, 1, &x, &dx);
            for (int k = 0; k < n; k++) ck_assert(isnan(eg_get(dx, k)));
            ck_assert(isnan(eg_get(eg_sort("[l]", x), n - 1)) &&
                      eg_get(eg_argsort("[l]", x, .descending = true), 0) == at);
            y = eg_topk("[l]", x, 1, .order = &order);
            ck_assert(isnan(eg_item(y)) && eg_item(order) == at);
            ck_assert(isnan(eg_get(eg_cumsum("[l]", x), n - 1)) &&
                      isnan(eg_get(eg_cumprod("[l]", x), n - 1)));
            eg_tensor *other = eg_normal(cx, 0, 1, n);
            ck_assert(isnan(eg_get(eg_maximum(x, other), at)) &&
                      isnan(eg_get(eg_maximum(other, x), at)));
            ck_assert(isnan(eg_get(eg_minimum(x, other), at)) &&
                      isnan(eg_get(eg_minimum(other, x), at)));
            ck_assert(isnan(eg_get(eg_clip(x, -1, 1), at)) && isnan(eg_get(eg_relu(x), at)));
            eg_assert_ok(cx);
            eg_close(cx);
        }
    }
}

/* -- axes of few elements, which are summed along another axis --------------------------------- */
static eg_tensor *few_of(eg_ctx *cx, int64_t a, int64_t b, int64_t c)
{
    eg_tensor *x = eg_uniform_n(cx, EG_F64, -1, 1, 3, (int64_t[]){ a, b, 8 });
    return eg_slice_axis(x, 2, 0, c, 1); /* elements of c are contiguous, those of b 8 apart */
}
static eg_tensor *flipped(eg_tensor *x) { return eg_copy(eg_flip_axis(x, eg_rank(x) - 1)); }
/* The columns of a sum alone, with a factor of each row, with a factor of each element; written, or
 * added to other numbers. Whole vectors of columns, and the rest: by a vector that computes some
 * columns again, or one by one. */
TEST(sums_of_few_rows_do_not_depend_on_the_column)
{
    static const char *const spec[] = { "rc->c", "rc,r->c", "rc,rc->c" };
    eg_ctx *cx = eg_open(.threads = 1);
    eg_nograd(cx, true);
    for (int type = EG_F32; type <= EG_F64; type++)
        for (int64_t rows = 2; rows <= 40; rows += 1 + rows / 10)
            for (int64_t n = 4; n <= 36; n += 1 + n / 4)
                for (int way = 0; way < 6; way++) {
                    eg_tensor *x = eg_normal_n(cx, (eg_dtype)type, 0, 1, 2, (int64_t[]){ rows, n }),
                              *f = way / 2 == 2 ? x : eg_copy(eg_select_axis(x, 1, 3)),
                              *to = way % 2 ? eg_copy(eg_select_axis(x, 0, 1)) : NULL;
                    eg_einsum_args o = { sizeof o,
                                         spec[way / 2],
                                         1 + (way > 1),
                                         (eg_tensor *[]){ flipped(x),
                                                          way / 2 == 2 ? flipped(f) : f },
                                         .out = to ? flipped(to) : NULL,
                                         .beta = to != NULL };
                    eg_tensor *y = eg_einsum_with(&o);
                    o.operands = (eg_tensor *[]){ x, f };
                    o.out = to;
                    ck_assert_msg(same_bits(flipped(y), eg_einsum_with(&o)),
                                  "%s: %lld rows of %lld", o.spec, (long long)rows, (long long)n);
                }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* At least 8 columns, which are added row by row, up to several ranges of columns and two parts. */
TEST(sums_of_expanded_rows_are_those_of_their_copy)
{
    eg_ctx *cx = eg_open(.threads = 2);
    for (int type = EG_F32; type <= EG_F64; type++)
        for (int64_t rows = 2; rows <= 5000; rows = 3 * rows + 1)
            for (int64_t n = 8; n <= 1500; n = 5 * n + 7) {
                eg_tensor *x = eg_normal_n(cx, (eg_dtype)type, 0, 1, 2, (int64_t[]){ 1, n }),
                          *all = eg_expand(x, rows, n);
                ck_assert_msg(same_bits(eg_sum("[r] c", all), eg_sum("[r] c", eg_copy(all))),
                              "%lld rows of %lld", (long long)rows, (long long)n);
            }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Neighbouring columns, computed together, have the bits of rows, of one block and of several
 * parts; with a factor, added to other numbers, and of matrices of a batch. */
TEST(sums_of_few_columns_have_the_bits_of_rows)
{
    static const int64_t lengths[] = { 5, 64, 131, 700, 2048, 5000, 140001 };
    for (int k = 0; k < 7 * 7 * 4; k++) {
        const eg_dtype dtype = (eg_dtype[]){ EG_F32, EG_F64, EG_I32, EG_I64 }[k % 4];
        const eg_dtype result = dtype < EG_I32 ? dtype : EG_I64;
        const int64_t n = lengths[k / 4 % 7], columns = k / 28 + 1, batch = n < 1000 ? 5 : 2;
        eg_ctx *cx = eg_open(.threads = 1 + k % 3, .seed = (uint64_t)k);
        eg_nograd(cx, true);
        eg_tensor *x = eg_normal_n(cx, EG_F64, 0, 1, 3, (int64_t[]){ batch, n, columns });
        x = eg_cast(dtype < EG_I32 ? x : eg_scale(x, 1e15), dtype);
        eg_tensor *rows = eg_copy(eg_transpose(x, 1, 2));
        for (int way = 0; way < 3; way++) {
            eg_tensor *to =
                eg_cast(eg_normal_n(cx, EG_F64, 0, 9, 2, (int64_t[]){ batch, columns }), result);
            eg_einsum_args o = { .size = sizeof o,
                                 .spec = "bij->bj",
                                 .count = 1,
                                 .operands = &x,
                                 .alpha = way ? 3 : 0,
                                 .out = way == 2 ? eg_copy(to) : NULL,
                                 .beta = way == 2 };
            eg_tensor *y = eg_einsum_with(&o);
            o.spec = "bji->bj", o.operands = &rows, o.out = way == 2 ? to : NULL;
            ck_assert_msg(same_bits(y, eg_einsum_with(&o)), "%lld × %lld, %s, way %d", (long long)n,
                          (long long)columns, eg_type_name(dtype), way);
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}

TEST(sums_over_axes_of_few_elements_are_those_of_a_copy)
{
    static const struct {
        const char *spec;
        int64_t size[3];
    } table[] = { { "abc->", { 3, 5000, 3 } },   { "abc->", { 5000, 2, 7 } },
                  { "abc->", { 1, 300000, 2 } }, { "abc->b", { 4100, 9, 3 } },
                  { "abc->a", { 20, 2048, 5 } }, { "abc->", { 2, 3, 5 } },
                  { "abc->", { 40, 40, 1 } },    { "abc,abc->a", { 7, 2500, 3 } } };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        const int64_t *n = table[k].size;
        const bool dot = strchr(table[k].spec, ',');
        eg_tensor *first = NULL;
        eg_ctx *cx[3];
        for (int t = 0; t < 3; t++) {
            cx[t] = eg_open(.threads = 1 + 2 * t, .seed = 4);
            eg_tensor *x = few_of(cx[t], n[0], n[1], n[2]), *copy = eg_contiguous(x);
            eg_tensor *y =
                dot ? eg_einsum(table[k].spec, x, eg_square(x)) : eg_einsum(table[k].spec, x);
            eg_tensor *flat =
                eg_reshape(dot ? eg_mul(copy, eg_square(copy)) : copy, n[0], n[1] * n[2]);
            eg_tensor *want =
                table[k].spec[strlen(table[k].spec) - 1] == 'a' ? eg_einsum("ab->a", flat)
                : strstr(table[k].spec, "->b") ? eg_einsum("bc->b", eg_einsum("abc->bc", copy))
                                               : eg_einsum("ab->", flat);
            eg_assert_ok(cx[t]);
            const double *got = eg_f64(y), *is = eg_f64(want);
            for (int64_t i = 0; i < eg_size(y); i++)
                ck_assert_msg(fabs(got[i] - is[i]) < 1e-10, "%s: %g, not %g", table[k].spec, got[i],
                              is[i]);
            if (first)
                ck_assert(!memcmp(got, eg_f64(first), (size_t)eg_size(y) * sizeof *got));
            else
                first = y;
        }
        for (int t = 0; t < 3; t++) eg_close(cx[t]);
    }
}

/* The extremes of a box of a row-major array by a loop; `at` is the number of the first largest
 * element, and a NaN is larger and smaller than all numbers. */
typedef struct extremes {
    double most, least;
    int64_t at;
} extremes;
static extremes extremes_of(const double *x, const int64_t *dim, const int64_t *from,
                            const int64_t *to)
{
    extremes e = { -INFINITY, INFINITY, -1 };
    int64_t number = 0;
    for (int64_t i = from[0]; i < to[0]; i++)
        for (int64_t j = from[1]; j < to[1]; j++)
            for (int64_t k = from[2]; k < to[2]; k++, number++) {
                const double v = x[(i * dim[1] + j) * dim[2] + k];
                if (!isnan(e.most) && !(v <= e.most)) e.most = v, e.at = number;
                if (!isnan(e.least) && !(v >= e.least)) e.least = v;
            }
    return e;
}
/* The largest and smallest elements of views: permuted, reversed, every second element, few and
 * many rows, short and long, with a NaN or without, are those of a loop. */
LOOP_TEST(extremes_of_views_are_those_of_a_loop, 5)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I32, EG_I64, EG_BOOL };
    static const char *const specs[] = { "[a b c]", "a [b] c", "[a] b c", "a b [c]", "[a] b [c]" };
    static const int sums[][3] = {
        { 1, 1, 1 }, { 0, 1, 0 }, { 1, 0, 0 }, { 0, 0, 1 }, { 1, 0, 1 }
    };
    static const int64_t sizes[][3] = { { 3, 5, 4 }, { 2, 70, 17 }, { 40, 3, 600 }, { 1, 16, 33 } };
    static const int orders[][3] = { { 0, 1, 2 }, { 2, 0, 1 }, { 1, 2, 0 }, { 2, 1, 0 } };
    const eg_dtype type = types[_i];
    for (int q = 0; q < 4 * 4 * 4 * 5; q++) {
        eg_ctx *cx = eg_open(.seed = (uint64_t)q, .threads = q % 3 + 1);
        const int64_t *n = sizes[q % 4];
        const int *order = orders[q / 4 % 4], how = q / 16 % 4, *sum = sums[q / 64];
        const bool real = type == EG_F32 || type == EG_F64;
        eg_tensor *x = eg_normal(cx, 0, 30, n[0], n[1], 2 * n[2]);
        if (real && q % 3 == 0) /* some NaN */
            x = eg_where(eg_gt(x, eg_scalar(cx, 75)), eg_scalar(cx, NAN), x);
        x = eg_cast(x, type);
        x = eg_slice_axis(x, 2, how == 1 ? 0 : 1, how == 1 ? 2 * n[2] : n[2] + 1, how == 1 ? 2 : 1);
        if (how >= 2) x = eg_flip_axis(x, how == 2 ? 2 : 0);
        x = eg_permute_n(x, 3, order);
        const double *from = eg_f64(eg_contiguous(eg_cast(x, EG_F64)));
        eg_tensor *most = eg_max(specs[q / 64], x), *least = eg_min(specs[q / 64], x);
        most = eg_cast(most, EG_F64), least = eg_cast(least, EG_F64);
        eg_tensor *where = eg_argmax(specs[q / 64], x);
        eg_assert_ok(cx);
        const int64_t d[] = { eg_dim(x, 0), eg_dim(x, 1), eg_dim(x, 2) };
        const int64_t outer[] = { sum[0] ? 1 : d[0], sum[1] ? 1 : d[1], sum[2] ? 1 : d[2] };
        for (int64_t o = 0; o < outer[0] * outer[1] * outer[2]; o++) {
            int64_t first[] = { o / (outer[1] * outer[2]), o / outer[2] % outer[1], o % outer[2] },
                    end[3];
            for (int r = 0; r < 3; r++) end[r] = sum[r] ? d[r] : first[r] + 1;
            const extremes e = extremes_of(from, d, first, end);
            const double top = eg_f64(most)[o], low = eg_f64(least)[o];
            ck_assert(top == e.most || (isnan(top) && isnan(e.most)));
            ck_assert(low == e.least || (isnan(low) && isnan(e.least)));
            ck_assert_int_eq(eg_i64(where)[o], e.at);
        }
        eg_close(cx);
    }
}

/* Short rows: the extremes, their first indices and the norms of rows of 1 to 17 elements in each
 * layout are those of a loop, with NaN, infinities and equal elements. */
LOOP_TEST(short_rows_are_a_loop, 2 * 8)
{
    static const int64_t lengths[] = { 1, 2, 3, 5, 8, 15, 16, 17 };
    static const double odd[] = { NAN, INFINITY, -INFINITY, 2, 2, -3, 1e-30, 0 };
    const eg_dtype type = _i % 2 ? EG_F64 : EG_F32;
    const int64_t n = lengths[_i / 2], rows[] = { 1, 15, 16, 37, 700 };
    for (int q = 0; q < 5 * 5; q++) {
        const int64_t m = rows[q % 5];
        const int layout = q / 5;
        eg_ctx *cx = eg_open(.dtype = type, .seed = (uint64_t)(q + 100 * _i), .threads = q % 3 + 1);
        eg_tensor *x = eg_normal(cx, 0, 2, m, 2 * n);
        eg_tensor *which = eg_randint(cx, 0, 40, m, 2 * n);
        for (int k = 0; k < 8; k++)
            x = eg_where(eg_eq(which, eg_full_n(cx, EG_I64, k, 2, eg_dims(x))),
                         eg_full_n(cx, type, odd[k], 2, eg_dims(x)), x);
        x = eg_slice_axis(x, 1, 0, layout == 1 ? 2 * n : n, layout == 1 ? 2 : 1);
        if (layout == 2) x = eg_copy(x);
        if (layout == 3) x = eg_flip_axis(eg_copy(x), 1);
        if (layout == 4) x = eg_transpose(eg_copy(eg_transpose(x, 0, 1)), 0, 1);
        const double *v = eg_f64(eg_copy(eg_cast(x, EG_F64)));
        const double *most = eg_f64(eg_cast(eg_max("i [j]", x), EG_F64)),
                     *least = eg_f64(eg_cast(eg_min("i [j]", x), EG_F64)),
                     *one = eg_f64(eg_cast(eg_pnorm("i [j]", x, 1), EG_F64)),
                     *two = eg_f64(eg_cast(eg_pnorm("i [j]", x, 2), EG_F64));
        const int64_t *most_at = eg_i64(eg_argmax("i [j]", x)),
                      *least_at = eg_i64(eg_argmin("i [j]", x));
        const bool *any = eg_bool(eg_any("i [j]", x)), *all = eg_bool(eg_all("i [j]", x));
        eg_assert_ok(cx);
        for (int64_t i = 0; i < m; i++, v += n) {
            int64_t high = 0, low = 0;
            double sizes = 0, top = 0, squares = 0;
            bool some = false, each = true;
            for (int64_t j = 0; j < n; j++) {
                if (!isnan(v[high]) && (isnan(v[j]) || v[j] > v[high])) high = j;
                if (!isnan(v[low]) && (isnan(v[j]) || v[j] < v[low])) low = j;
                sizes += fabs(v[j]);
                top = fmax(top, fabs(v[j]));
                some |= v[j] != 0, each &= v[j] != 0;
            }
            for (int64_t j = 0; j < n; j++) squares += top ? v[j] / top * (v[j] / top) : 0;
            const double root = isinf(top) && !isnan(sizes) ? INFINITY : top * sqrt(squares);
            ck_assert_int_eq(most_at[i], high);
            ck_assert_int_eq(least_at[i], low);
            ck_assert(most[i] == v[high] || (isnan(most[i]) && isnan(v[high])));
            ck_assert(least[i] == v[low] || (isnan(least[i]) && isnan(v[low])));
            ck_assert(any[i] == some && all[i] == each);
            const double close = type == EG_F64 ? 1e-14 : 1e-6;
            ck_assert(one[i] == sizes || fabs(one[i] - sizes) <= close * sizes ||
                      (isnan(one[i]) && isnan(sizes)));
            ck_assert(two[i] == root || fabs(two[i] - root) <= close * root ||
                      (isnan(two[i]) && isnan(sizes)));
        }
        eg_close(cx);
    }
}

/* Windows p q of the pixels of an image with few channels c, whose rows are gathered as columns:
 * the reductions and their gradients are those of contiguous rows, in every dtype, row-major and
 * reversed. */
static eg_tensor *pooled(int which, const char *spec, eg_tensor *x)
{
    switch (which) {
    case 0: return eg_max(spec, x);
    case 1: return eg_min(spec, x);
    case 2: return eg_pnorm(spec, x, 1);
    case 3: return eg_pnorm(spec, x, 2);
    case 4: return eg_sum(spec, x);
    case 5: return eg_mean(spec, x);
    case 6: return eg_argmax(spec, x);
    case 7: return eg_any(spec, x);
    default: return eg_all(spec, x);
    }
}
LOOP_TEST(pixels_of_few_channels, 5)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I32, EG_I64, EG_BOOL };
    static const int64_t sizes[][6] = { { 3, 5, 2, 7, 2, 3 },  { 2, 9, 3, 20, 2, 1 },
                                        { 1, 1, 1, 40, 4, 2 }, { 70, 3, 4, 3, 4, 6 },
                                        { 2, 2, 5, 9, 3, 7 },  { 5, 3, 17, 4, 1, 2 } };
    for (int q = 0; q < 6 * 3; q++) {
        const int64_t *n = sizes[q % 6];
        eg_ctx *cx =
            eg_open(.dtype = _i == 1 ? EG_F64 : EG_F32, .seed = (uint64_t)q, .threads = q % 2 + 1);
        eg_tensor *x = eg_cast(eg_normal(cx, 0, 3, n[0], n[1], n[2], n[3], n[4], n[5]), types[_i]);
        if (q / 6 == 1) x = eg_flip_axis(eg_flip_axis(x, 5), 3);
        if (q / 6 == 2) x = eg_slice_axis(eg_concat_axis(5, x, x), 5, 1, 1 + n[5], 1);
        eg_tensor *rows = eg_copy(eg_rearrange("b h p w q c -> b h w c p q", x)), *dx, *dr;
        for (int f = 0; f < 9; f++) {
            if (_i >= 2 && (f == 2 || f == 3 || f == 5)) continue; /* not of integers */
            eg_tensor *y = pooled(f, "b h [p] w [q] c", x), *z = pooled(f, "b h w c [p q]", rows);
            eg_assert_ok(cx);
            eg_assert_close(eg_cast(y, EG_F64), eg_cast(z, EG_F64), f >= 2 && f < 6 ? 1e-5 : 0);
            if (_i >= 2 || f > 5) continue;
            eg_tensor *g = eg_normal_n(cx, EG_DEFAULT, 0, 1, 4, eg_dims(y));
            ck_assert_int_eq(eg_grad(y, g, 1, &x, &dx), 0);
            ck_assert_int_eq(eg_grad(z, g, 1, &rows, &dr), 0);
            eg_assert_close(eg_rearrange("b h p w q c -> b h w c p q", dx), dr, 1e-5);
        }
        eg_close(cx);
    }
}

/* Products over axes in any place, of lengths around those at which the layout changes, with odd
 * halves: values compared with loops, the gradient Π x / x_k with that quotient. */
TEST(products_over_any_axis)
{
    static const int lengths[] = { 1, 2, 3, 31, 64, 65, 67, 129, 300 };
    static const char *const specs[] = { "i [j] k", "[i] j k", "i j [k]", "[i] j [k]" };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int s = 0; s < 4; s++)
            for (int view = 0; view < 2; view++) {
                const eg_mark m = eg_push(cx);
                const int64_t n = lengths[l], dim[] = { s == 1 || s == 3 ? n : 3, s == 0 ? n : 2,
                                                        s == 2   ? n
                                                        : s == 3 ? 5
                                                                 : 4 };
                eg_tensor *x = eg_uniform_n(cx, EG_F64, .5, 1.6, 3,
                                            view ? (int64_t[]){ dim[2], dim[0], dim[1] } : dim),
                          *d;
                if (view) x = eg_permute(x, 1, 2, 0);
                eg_tensor *y = eg_prod(specs[s], x), *ones = eg_ones_like(y);
                ck_assert_int_eq(eg_grad(y, ones, 1, &x, &d), 0);
                const double *v = eg_f64(eg_contiguous(x)), *p = eg_f64(y),
                             *g = eg_f64(eg_contiguous(d));
                double want[600];
                for (int k = 0; k < eg_size(y); k++) want[k] = 1;
                for (int pass = 0; pass < 2; pass++)
                    for (int i = 0; i < dim[0]; i++)
                        for (int j = 0; j < dim[1]; j++)
                            for (int k = 0; k < dim[2]; k++) {
                                const int64_t at = (i * dim[1] + j) * dim[2] + k,
                                              to = s == 0   ? i * dim[2] + k
                                                   : s == 1 ? j * dim[2] + k
                                                   : s == 2 ? i * dim[1] + j
                                                            : j;
                                if (!pass) {
                                    want[to] *= v[at];
                                } else {
                                    const double slope = want[to] / v[at];
                                    ck_assert_double_le(fabs(p[to] - want[to]), 1e-12 * want[to]);
                                    ck_assert_double_le(fabs(g[at] - slope), 1e-12 * slope);
                                }
                            }
                eg_pop(cx, m);
            }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Extremes of rows of several parts are those of a copy without gaps, also with a NaN in any part.
 */
TEST(extremes_of_rows_in_parts)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I32, EG_I64, EG_BOOL };
    static const int sizes[][4] = { { 3, 2, 5, 16 }, { 2, 9, 4, 33 }, { 4, 3, 1, 300 } };
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 5 * 3 * 2; k++) {
        const eg_mark m = eg_push(cx);
        const int *n = sizes[k / 2 % 3];
        eg_tensor *x = eg_scale(eg_normal(cx, 0, 1, n[0], n[1], n[2], n[3]), 100), *y[4];
        if (k % 2 && k / 6 < 2) x = eg_where(eg_gt(x, eg_scalar(cx, 250)), eg_scalar(cx, NAN), x);
        x = eg_cast(x, types[k / 6]);
        eg_tensor *rows = eg_rearrange("i j k l -> j (i k l)", x);
        y[0] = eg_max("[i] j [k l]", x), y[1] = eg_max("j [r]", rows);
        y[2] = eg_min("[i] j [k l]", x), y[3] = eg_min("j [r]", rows);
        for (int v = 0; v < 4; v += 2)
            for (int j = 0; j < n[1]; j++) {
                const double a = eg_get(y[v], j), b = eg_get(y[v + 1], j);
                ck_assert(a == b || (isnan(a) && isnan(b)));
            }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Rows are computed by one operation, longer ones and columns by several levels or by products of
 * their halves: products and gradients have the same bits. Of f32 an element is 0 in some rows. */
TEST(products_of_rows_have_the_bits_of_columns)
{
    static const int64_t lengths[] = { 2,   3,    5,    31,   32,   33,    64,   66,    127,  260,
                                       768, 1023, 2048, 4099, 8192, 16384, 8193, 20001, 33284 };
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 19 * 3; k++) {
        const eg_mark m = eg_push(cx);
        const int64_t n = lengths[k / 3], rows = n < 100        ? 70
                                                 : n % 256 == 0 ? 20
                                                 : n < 1000     ? 33
                                                                : 3;
        eg_tensor *x =
            eg_uniform_n(cx, k % 3 ? EG_F64 : EG_F32, .6, 1.5, 2, (int64_t[]){ rows, n });
        if (k % 3 == 0) x = eg_mul(x, eg_cast(eg_gt(x, eg_scalar(cx, .7)), EG_F32));
        if (k % 3 == 2) x = eg_cast(eg_scale(x, 3), EG_I64);
        eg_tensor *t = eg_contiguous(eg_transpose(x, 0, 1)), *d[2];
        eg_tensor *y = eg_prod("i [j]", x), *across = eg_prod("[j] i", t);
        ck_assert_msg(same_bits(y, across), "%lld elements, %s", (long long)n,
                      eg_type_name(eg_type(y)));
        if (k % 3 < 2) {
            eg_tensor *g = eg_normal_n(cx, eg_type(y), 0, 1, 1, &rows);
            eg_grad(y, g, 1, &x, &d[0]);
            eg_grad(across, g, 1, &t, &d[1]);
            d[0] = eg_add(d[0], eg_zeros_like(x)); /* −0 and 0 are equal */
            d[1] = eg_add(d[1], eg_zeros_like(t));
            ck_assert_msg(same_bits(d[0], eg_copy(eg_transpose(d[1], 0, 1))), "gradient of %lld",
                          (long long)n);
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Reversed rows, every second element, rows in reverse order, transposed, with gaps and expanded
 * ones: products and gradients, of rows with the signs of zeros, have the bits of a copy. */
TEST(products_of_every_layout_have_the_bits_of_a_copy)
{
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 9 * 5 * 3; k++) {
        const eg_mark m = eg_push(cx);
        const int64_t rows = 48, n = (int64_t[]){ 2, 31, 64, 260, 600 }[k / 9 % 5];
        const char *spec = k < 45 ? "i [j]" : k < 90 ? "[i] j" : "[i j]";
        eg_tensor *x = eg_mul(eg_round(eg_normal(cx, 0, 2, rows, n)), eg_uniform(cx, .6, 1.5, n));
        switch (k % 9) {
        case 0: x = eg_flip_axis(x, 1); break;
        case 5: x = eg_transpose(x, 0, 1); break;
        case 6: x = eg_slice_axis(x, 1, 0, n - 1, 1); break;
        case 7: x = eg_expand(eg_slice_axis(x, 0, 0, 1, 1), rows, n); break;
        case 1: x = eg_slice_axis(x, 1, EG_END, EG_END, 2); break;
        case 2: x = eg_slice_axis(x, 1, EG_END, EG_END, -2); break;
        case 3: x = eg_flip_axis(x, 0); break;
        case 4: x = eg_flip_axis(eg_flip_axis(x, 0), 1); break;
        default: x = eg_expand(eg_slice_axis(x, 1, 0, 1, 1), rows, n);
        }
        eg_tensor *copy = eg_copy(eg_detach(x)), *g, *d[2];
        eg_tensor *y = eg_prod(spec, x), *same = eg_prod(spec, copy);
        ck_assert_msg(same_bits(y, same), "layout %d, %s", k % 9, spec);
        g = eg_normal_n(cx, EG_F32, 0, 1, eg_rank(y), eg_dims(y));
        eg_grad(y, g, 1, &x, &d[0]);
        eg_grad(same, g, 1, &copy, &d[1]);
        for (int q = 0; q < 2 && (k >= 45 || k % 9 == 5);
             q++) /* columns are halved, which adds d to 0 */
            d[q] = eg_add(d[q], eg_zeros_like(x));
        ck_assert_msg(same_bits(eg_contiguous(d[0]), eg_contiguous(d[1])),
                      "gradient of layout %d, %s", k % 9, spec);
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Cumulative sums, products, maxima and recurrences of lines have the bits of each line alone, for
 * any number of lines, along either axis. */
LOOP_TEST(scans_of_lines_are_those_of_each_line, 4)
{
    enum { SCANS = 5 };
    static const eg_dtype dtypes[] = { EG_F32, EG_F64, EG_I64, EG_I32 };
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 30 * 2; k++) {
        const eg_mark m = eg_push(cx);
        const int64_t lines = k / 2 + (k / 2 < 20 ? 1 : 44), n = k % 2 ? 70 : 5;
        eg_tensor *x = eg_uniform_n(cx, EG_F64, .5, 1.5, 2, (int64_t[]){ lines, n });
        x = eg_cast(_i > 1 ? eg_scale(x, 100) : x, dtypes[_i]);
        eg_tensor *t = eg_contiguous(eg_transpose(x, 0, 1));
        eg_tensor *all[SCANS] = { eg_cumsum("i [j]", x), eg_cumprod("i [j]", x),
                                  eg_linear_scan("i [j]", x, x), eg_cummax("i [j]", x),
                                  eg_cummin("i [j]", x) };
        eg_tensor *across[SCANS] = { eg_cumsum("[j] i", t), eg_cumprod("[j] i", t),
                                     eg_linear_scan("[j] i", t, t), eg_cummax("[j] i", t),
                                     eg_cummin("[j] i", t) };
        for (int64_t i = 0; i < lines; i++) {
            eg_tensor *line = eg_copy(eg_select_axis(x, 0, i));
            eg_tensor *alone[SCANS] = { eg_cumsum("[j]", line), eg_cumprod("[j]", line),
                                        eg_linear_scan("[j]", line, line), eg_cummax("[j]", line),
                                        eg_cummin("[j]", line) };
            for (int f = 0; f < SCANS; f++) {
                ck_assert(same_bits(alone[f], eg_copy(eg_select_axis(all[f], 0, i))));
                ck_assert(same_bits(alone[f], eg_copy(eg_select_axis(across[f], 1, i))));
            }
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Rows along a middle axis of which few are neighbours, and which are gathered many at a time, have
 * the results of contiguous rows, also in a result that is not contiguous. */
LOOP_TEST(few_neighbouring_rows_have_the_bits_of_contiguous_ones, 4)
{
    enum { REDUCTIONS = 8 };
    static const eg_dtype dtypes[] = { EG_F32, EG_F64, EG_I64, EG_U8 };
    static const int64_t lengths[] = { 2, 3, 16, 17, 64, 130, 600 };
    eg_ctx *cx = eg_open(.threads = 2);
    for (int k = 0; k < 7 * 16; k++) {
        const eg_mark m = eg_push(cx);
        const int64_t q = k % 16 + 2, n = lengths[k / 16], p = k % 3 ? 23 : 400 / q;
        eg_tensor *x = eg_cast(eg_uniform_n(cx, EG_F64, _i > 1 ? 0 : .9, _i > 1 ? 200 : 1.1, 4,
                                            (int64_t[]){ p, 2, n, q }),
                               dtypes[_i]);
        if (k % 5 == 1) x = eg_flip_axis(x, 3);
        if (k % 5 == 2) x = eg_transpose(x, 0, 1);
        eg_tensor *row = eg_contiguous(eg_rearrange("a b r q -> a b q r", x));
        eg_tensor *y[REDUCTIONS][2];
        const bool floats = _i < 2;
        for (int f = 0; f < 2; f++) {
            eg_tensor *v = f ? row : x;
            const char *spec = f ? "a b q [r]" : "a b [r] q";
            y[0][f] = _i < 3 ? eg_max(spec, v) : eg_sum(spec, v);
            y[1][f] = _i < 3 ? eg_argmin(spec, v) : eg_sum(spec, v);
            y[2][f] = floats ? eg_pnorm(spec, v, 2) : eg_any(spec, v);
            y[3][f] = floats ? eg_pnorm(spec, v, 1) : eg_all(spec, v);
            y[4][f] = eg_prod(spec, v);
            y[5][f] = floats ? eg_softmax(spec, v) : eg_cumsum(spec, v);
            y[6][f] = floats ? eg_layernorm(spec, v) : eg_cumprod(spec, v);
            y[7][f] = floats ? eg_logsumexp(spec, v) : eg_sum(spec, v);
        }
        for (int f = 5; f < 7; f++) y[f][1] = eg_rearrange("a b q r -> a b r q", y[f][1]);
        for (int f = 0; f < REDUCTIONS; f++)
            ck_assert_msg(same_bits(eg_contiguous(y[f][0]), eg_contiguous(y[f][1])),
                          "reduction %d of %lld x 2 x %lld x %lld", f, (long long)p, (long long)n,
                          (long long)q);
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Rows that consist of contiguous pieces, of any length and number, have the results of contiguous
 * rows. */
LOOP_TEST(rows_of_pieces_have_the_bits_of_contiguous_ones, 2)
{
    static const int64_t lengths[] = { 1, 2, 7, 33, 200 };
    eg_ctx *cx = eg_open(.dtype = _i ? EG_F64 : EG_F32, .threads = 2);
    for (int k = 0; k < 5 * 17; k++) {
        const eg_mark m = eg_push(cx);
        const int64_t l = lengths[k / 17], c = k % 17 < 16 ? k % 17 + 1 : 70;
        eg_tensor *x = eg_normal(cx, 1, 2, 3, l, 2, 3 * c);
        if (k % 3 == 1) x = eg_slice_axis(eg_contiguous(x), 1, 0, EG_END, 2);
        eg_tensor *row = eg_contiguous(eg_rearrange("b l h (g=3 c) -> b g l h c", x));
        eg_tensor *y[3][2] = {
            { eg_softmax("b [l] [h] (g=3 [c])", x), eg_softmax("b g [l] [h] [c]", row) },
            { eg_layernorm("b [l] [h] (g=3 [c])", x), eg_layernorm("b g [l] [h] [c]", row) },
            { eg_logsumexp("b [l] [h] (g=3 [c])", x), eg_logsumexp("b g [l] [h] [c]", row) }
        };
        for (int f = 0; f < 2; f++) y[f][1] = eg_rearrange("b g l h c -> b l h (g c)", y[f][1]);
        for (int f = 0; f < 3; f++)
            ck_assert_msg(same_bits(eg_contiguous(y[f][0]), eg_contiguous(y[f][1])),
                          "operation %d of %lld rows of %lld pieces", f, (long long)l,
                          (long long)c);
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* The norm of p = 2 of f32 is the f32 number nearest to that of a sum in f64, or one beside it, for
 * rows of any length and in every layout; squares neither overflow nor underflow. */
TEST(norms_of_f32_are_rounded_once)
{
    static const int64_t lengths[] = { 2, 16, 17, 24, 64, 100, 511, 512, 513, 1500 };
    static const double scales[] = { 1, 1e30, 1e-30 };
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 3 * 10 * 6; k++) {
        const eg_mark mark = eg_push(cx);
        const int64_t n = lengths[k / 3 % 10], rows = k / 30 + 1;
        eg_tensor *x = eg_scale(eg_normal(cx, 0, 1, rows, n), scales[k % 3]);
        const float *y = eg_f32(eg_pnorm("i [j]", x, 2)), *v = eg_f32(x);
        const float *turned = eg_f32(eg_pnorm("[j] i", eg_contiguous(eg_transpose(x, 0, 1)), 2));
        eg_assert_ok(cx);
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0;
            for (int64_t i = 0; i < n; i++) sum += (double)v[r * n + i] * (double)v[r * n + i];
            const float want = (float)sqrt(sum);
            ck_assert(y[r] >= nextafterf(want, 0) && y[r] <= nextafterf(want, INFINITY));
            ck_assert(!memcmp(&y[r], &turned[r], sizeof *y));
        }
        eg_pop(cx, mark);
    }
    eg_close(cx);
}

/* The root is that of the variance, not a rounded norm times a rounded factor. */
LOOP_TEST(deviations_are_rounded_once, 2)
{
    const eg_dtype type = _i ? EG_F64 : EG_F32;
    eg_ctx *cx = eg_open();
    for (int64_t n = 2; n < 40; n++) {
        eg_tensor *x = eg_arange(cx, type, 0, (double)n, 1);
        for (int k = 1; k <= 3; k++) { /* k n (n + 1) / 12 is the square of the deviation */
            const double truth = k * sqrt((double)(n * (n + 1)) / 12);
            const double is = eg_item(eg_std(NULL, eg_scale(x, k)));
            const double unit = nextafter(truth, INFINITY) - truth;
            if (_i)
                ck_assert_double_le(fabs(is - truth), 2 * unit);
            else if (n % 2) /* the mean is an integer: all squares are exact */
                ck_assert_msg((float)truth == (float)is, "%lld %d", (long long)n, k);
        }
    }
    eg_tensor *three = eg_std(NULL, eg_cast(eg_from(cx, ((float[]){ 1, 2, 3 }), 3), type));
    ck_assert(eg_item(three) == 1);
    eg_close(cx);
}

/* The variance of long rows is joined from chunks and parts: it is that of two passes, far from 0
 * too, exactly 0 with gradient 0 where all elements are equal, and has the same bits on two threads
 * and of a transposed view. */
LOOP_TEST(variances_of_long_rows, 2)
{
    static const int64_t lengths[] = { 255, 256, 511, 513, 32768, 32769, 100000 };
    const eg_dtype type = _i ? EG_F64 : EG_F32;
    eg_ctx *cx = eg_open(.threads = 1);
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        const int64_t n = lengths[k], dims[] = { 2, n };
        const eg_mark m = eg_push(cx);
        eg_tensor *x = eg_shift(eg_normal_n(cx, type, 0, 1, 2, dims), 1000), *dx,
                  *y = eg_var("b [l]", x), *wide = eg_cast(x, EG_F64),
                  *d = eg_sub(wide, eg_unsqueeze(eg_mean("b [l]", wide), 1)),
                  *truth = eg_scale(eg_einsum("bl,bl->b", d, d), 1 / (double)(n - 1));
        for (int r = 0; r < 2; r++) {
            const double is = eg_get(y, r), was = eg_get(truth, r);
            ck_assert_double_le(fabs(is - was), (_i ? 1e-11 : 1e-5) * was);
        }
        eg_grad(eg_sum(NULL, y), NULL, 1, &x, &dx);
        ck_assert_double_le(fabs(eg_get(dx, 1, n - 1) - 2 * eg_get(d, 1, n - 1) / (double)(n - 1)),
                            1e-4 / (double)n);
        eg_threads(cx, 2);
        ck_assert(eg_get(eg_var("b [l]", x), 1) == eg_get(y, 1));
        eg_threads(cx, 1);
        ck_assert(eg_item(eg_var(NULL, x)) == eg_item(eg_var(NULL, eg_transpose(x, 0, 1))));
        eg_tensor *same = eg_full_n(cx, type, .1, 2, dims);
        ck_assert(eg_item(eg_var(NULL, same)) == 0);
        eg_grad(eg_var(NULL, same), NULL, 1, &same, &dx);
        ck_assert(eg_item(eg_max(NULL, eg_abs(dx))) == 0);
        eg_pop(cx, m);
    }
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    eg_close(cx);
}

/* Norms of p = 2 of f64 are those of sums in a type of more digits and a larger range, also where
 * squares of f64 overflow or underflow in some of the rows. */
TEST(norms_of_f64_neither_overflow_nor_underflow)
{
    static const int64_t lengths[] = { 1, 3, 16, 64, 100, 511, 1500 };
    static const double scales[] = { 1, 1e200, 1e-200, 5e-324, 1e-160, 3e307 };
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 7 * 3; k++) {
        const eg_mark mark = eg_push(cx);
        const int64_t n = lengths[k / 3], rows = 12;
        double by[12];
        for (int r = 0; r < rows; r++) by[r] = k % 3 ? scales[(r * k) % 6] : 1;
        eg_tensor *x = eg_mul(eg_uniform_n(cx, EG_F64, -1, 1, 2, (int64_t[]){ rows, n }),
                              eg_from(cx, by, rows, 1));
        if (k % 3 == 2) x = eg_flip_axis(x, 1);
        const double *v = eg_f64(x), *y = eg_f64(eg_pnorm("i [j]", x, 2)),
                     *turned = eg_f64(eg_pnorm("[j] i", eg_contiguous(eg_transpose(x, 0, 1)), 2));
        eg_assert_ok(cx);
        for (int64_t r = 0; r < rows; r++) {
            long double sum = 0;
            for (int64_t i = 0; i < n; i++) sum += (long double)v[r * n + i] * v[r * n + i];
            const double want = (double)sqrtl(sum), most = fabs(want) * 1e-15 + 5e-324;
            ck_assert_msg(y[r] == want || fabs(y[r] - want) <= most, "%lld: %a, %a", (long long)n,
                          y[r], want);
            ck_assert(turned[r] == want || fabs(turned[r] - want) <= most);
        }
        eg_pop(cx, mark);
    }
    double odd[] = { INFINITY, 1, NAN, 1, -INFINITY, NAN, 0, 0, 1e300, 1 };
    const double *y = eg_f64(eg_pnorm("i [j]", eg_from(cx, odd, 5, 2), 2));
    eg_assert_ok(cx);
    ck_assert(y[0] == INFINITY && isnan(y[1]) && isnan(y[2]) && y[3] == 0 &&
              fabs(y[4] - 1e300) <= 1e285);
    eg_close(cx);
}

/* Sums of bytes and bools in every layout are those of the numbers cast to i64, and need no copy of
 * the operand: less memory than it has itself. */
LOOP_TEST(sums_of_bytes_copy_nothing, 3)
{
    static const char *const specs[] = { "[a b c]", "a [b] c", "[a] b c", "a b [c]", "[a] b [c]" };
    static const int64_t sizes[][3] = { { 3, 5, 4 },    { 2, 70, 17 },   { 40, 3, 600 },
                                        { 1, 1, 4000 }, { 2000, 2, 20 }, { 30, 0, 20 } };
    static const eg_dtype types[] = { EG_I8, EG_U8, EG_BOOL };
    const eg_dtype type = types[_i];
    for (int q = 0; q < 6 * 5 * 3; q += SLOWER) {
        eg_ctx *cx = eg_open(.seed = (uint64_t)q, .threads = q / 30 + 1);
        const int64_t *n = sizes[q % 6];
        const int how = q / 6 % 5;
        eg_tensor *x = how == 4 ? eg_full_n(cx, EG_F32, type == EG_I8 ? -128 : 255, 3, n)
                                : eg_normal(cx, type == EG_U8 ? 128 : 0, 60, n[0], n[1], n[2]);
        x = eg_cast(x, type);
        if (how == 1) x = eg_permute(x, 2, 0, 1);
        if (how == 2) x = eg_flip_axis(eg_permute(x, 1, 2, 0), 0);
        if (how == 3) x = eg_expand_n(eg_slice_axis(x, 0, 0, 1, 1), 3, n);
        for (int s = 0; s < 5; s++) {
            eg_tensor *y = eg_sum(specs[s], x), *want = eg_sum(specs[s], eg_cast(x, EG_I64));
            ck_assert_int_eq(eg_type(y), EG_I64);
            eg_assert_close(y, want, 0);
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_cast(eg_full_n(cx, EG_F32, 1, 2, (int64_t[]){ 1024, 1024 }), type);
    eg_stats_reset(cx);
    const size_t before = eg_stats(cx).used_peak;
    eg_sum("i [j]", x), eg_sum("[i] j", x), eg_sum(NULL, x);
    ck_assert_msg(eg_stats(cx).used_peak - before < 1 << 18, "%zu bytes",
                  eg_stats(cx).used_peak - before);
    eg_close(cx);
}

/* The gradient of an extreme, one operation, has the bits of its definition by separate ones: in
 * every layout, for windows that overlap, with equal elements and with NaN; so has its own. */
LOOP_TEST(gradients_of_extremes_are_shared_among_ties, 4)
{
    static const char *const specs[] = { "[a b c]", "a [b] c", "[a] b c", "a b [c]" };
    static const char *const wide[] = { "1 1 1", "a 1 c", "1 b c", "a b 1" };
    static const int64_t sizes[][3] = { { 3, 5, 4 }, { 2, 70, 37 }, { 40, 3, 600 }, { 9, 16, 33 } };
    for (int q = 0; q < 4 * 4 * 4; q++) {
        const eg_dtype type = q % 3 ? EG_F32 : EG_F64;
        eg_ctx *cx = eg_open(.dtype = type, .seed = (uint64_t)q, .threads = q % 3 + 1);
        const int64_t *n = sizes[q % 4];
        const int s = q / 4 % 4, how = q / 16;
        eg_tensor *x = eg_round(eg_normal(cx, 0, 3, n[0], n[1], n[2])), *g, *dx, *dg;
        if (q % 5 == 4) x = eg_where(eg_gt(x, eg_scalar(cx, 8)), eg_scalar(cx, NAN), x);
        if (how == 1) x = eg_permute(x, 2, 0, 1);
        if (how == 2) x = eg_flip_axis(eg_permute(x, 1, 2, 0), 0);
        if (how == 3) x = eg_select_axis(eg_unfold_axis(x, 1, 3, 2), 0, 1);
        char spread[64];
        (void)snprintf(spread, sizeof spread, "%s -> %s", specs[s], wide[s]);
        eg_tensor *y = _i % 2 ? eg_min(spread, x) : eg_max(spread, x);
        g = eg_normal_n(cx, type, 0, 1, 3, eg_dims(y));
        ck_assert_int_eq(eg_grad(y, g, 1, &x, &dx), 0);
        eg_tensor *hit = eg_cast(eg_eq(x, y), type), *count = eg_sum(spread, hit),
                  *want = eg_mul(hit, eg_div(g, count));
        if (_i < 2) {
            const size_t bytes = (size_t)eg_size(x) * (type == EG_F64 ? 8 : 4);
            dx = eg_contiguous(dx), want = eg_contiguous(want);
            eg_assert_ok(cx);
            ck_assert(q % 5 == 4 || !memcmp(eg_raw(dx, NULL), eg_raw(want, NULL), bytes));
            ck_assert_int_eq((int)eg_item(eg_sum(NULL, eg_isnan(dx))),
                             (int)eg_item(eg_sum(NULL, eg_isnan(want))));
        } else if (q % 5 != 4) {
            eg_tensor *h = eg_normal_n(cx, type, 0, 1, eg_rank(x), eg_dims(x));
            ck_assert_int_eq(eg_grad(dx, h, 1, &g, &dg), 0);
            eg_assert_close(dg, eg_div(eg_sum(spread, eg_mul(h, hit)), count), 1e-5);
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}

/* A norm over several axes takes the elements in the order of memory: that of a permuted view,
 * which has no gaps, has the bits of the tensor itself, and those of other views are close. */
TEST(norms_of_permuted_views_have_the_bits_of_the_tensor)
{
    static const double p[] = { .5, 1, 2, 3 };
    for (int k = 0; k < 4 * 3; k++) {
        eg_ctx *cx = eg_open(.dtype = k % 3 == 1 ? EG_F32 : EG_F64, .threads = 1 + k % 3);
        eg_tensor *x = eg_normal(cx, 0, 1, 5, 7, 33), *v = eg_permute(x, 2, 0, 1), *d[2];
        if (k % 3 == 2) x = eg_complex(x, eg_copy(x)), v = eg_permute(x, 2, 0, 1);
        eg_tensor *y = eg_pnorm(NULL, x, p[k / 3]), *z = eg_pnorm(NULL, v, p[k / 3]);
        ck_assert(same_bits(y, z));
        if (k % 3 < 2) {
            eg_grad(y, NULL, 1, &x, &d[0]);
            eg_grad(z, NULL, 1, &v, &d[1]);
            ck_assert(same_bits(eg_permute(d[0], 2, 0, 1), d[1]));
        }
        eg_tensor *part = eg_flip_axis(eg_slice_axis(v, 0, 1, 32, 2), 1),
                  *wide = eg_expand(eg_slice_axis(v, 0, 0, 1, 1), 9, -1, -1);
        eg_assert_close(eg_pnorm(NULL, part, p[k / 3]), eg_pnorm(NULL, eg_copy(part), p[k / 3]),
                        k % 3 == 1 ? 1e-2 : 1e-9);
        eg_assert_close(eg_pnorm(NULL, wide, p[k / 3]), eg_pnorm(NULL, eg_copy(wide), p[k / 3]),
                        k % 3 == 1 ? 1e-2 : 1e-9);
        eg_assert_ok(cx);
        eg_close(cx);
    }
}
