/* test_gradcheck_corner.c: gradients that are wrong only in f32, at another rank, for one type of
 * value or index, behind a mask, for square operands or batches, or in a jvp for one type of
 * tangent; each must fail with the default options and the name of the operation. Also operations
 * that are right although ill-conditioned, approximate, or rounded to a limit. */
#include <eingrad.h>
#include <math.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

static const double *values(eg_tensor *x)
{
    return eg_f64(eg_contiguous(eg_detach(eg_cast(x, EG_F64))));
}
static double largest(eg_tensor *x)
{
    const double *v = values(x);
    double most = 0;
    for (int64_t k = 0, n = v ? eg_size(x) : 0; k < n; k++) most = fmax(most, fabs(v[k]));
    return most;
}
static int mistake;
/* The report must fail and name `name`, unless nothing is wrong (mistake 0). */
static void judge(eg_ctx *cx, const eg_report *r, const char *name)
{
    ck_assert_msg(r != NULL, "%d: %s", mistake, eg_error(cx));
    ck_assert_msg(r->passed == !mistake, "%d: %s", mistake, r->text);
    ck_assert_msg(!mistake || strstr(r->text, name), "%d: %s", mistake, r->text);
    eg_close(cx);
}

/* -- y = x + tanh x ---------------------------------------------------------------------------- */
enum {
    ABOVE_1E7 = 1,
    BEYOND_INT32,
    BELOW_1E8,
    SINGLE_LARGE,
    SINGLE_NEGATIVE,
    SINGLE_OVERFLOW,
    RANK_1,
    RANK_3,
    SECOND_AT_RANK_3,
    HALVES,
    TINY_G,
    UNARIES,
    OFF_BY_A_MILLIONTH = UNARIES
};
static bool unary_forward(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_assign(y, eg_add(eg_tanh(x), x)) == 0;
}
static bool unary_wrong(eg_tensor *x)
{
    const double *v = values(x), most = largest(x);
    const bool single = eg_type(x) == EG_F32;
    bool tiny = false, negative = false, half = false;
    for (int64_t k = 0, n = v ? eg_size(x) : 0; k < n; k++) {
        tiny |= fabs(v[k]) < 1e-8 && fabs(v[k]) > 1e-300;
        negative |= v[k] < 0;
        half |= v[k] == 0.5;
    }
    switch (mistake) {
    case ABOVE_1E7: return most > 1e7;
    case BEYOND_INT32: return most > 0x1p31;
    case BELOW_1E8: return tiny;
    case SINGLE_LARGE: return single && most > 50;
    case SINGLE_NEGATIVE: return single && negative;
    case RANK_1: return eg_rank(x) == 1;
    case RANK_3: return eg_rank(x) == 3;
    case HALVES: return half;
    default: return false;
    }
}
/* g without elements that are tiny beside the largest */
static eg_tensor *without_tiny(eg_tensor *g)
{
    const double most = largest(g);
    eg_tensor *tiny =
        eg_lt(eg_abs(g), eg_full_n(eg_context(g), eg_type(g), 1e-6 * most, eg_rank(g), eg_dims(g)));
    return eg_where(tiny, eg_zeros_like(g), g);
}
static eg_tensor *unary_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *d = eg_shift(eg_neg(eg_square(eg_tanh(x))), 2);
    if (mistake == SECOND_AT_RANK_3 && eg_rank(x) == 3) d = eg_detach(d);
    if (mistake == TINY_G) g = without_tiny(g);
    if (mistake == OFF_BY_A_MILLIONTH) d = eg_scale(d, 1 + 1e-6);
    if (mistake == SINGLE_OVERFLOW && eg_type(x) == EG_F32 && largest(x) > 20) {
        eg_tensor *e = eg_exp(eg_scale(eg_abs(x), 4));
        d = eg_mul(d, eg_div(e, e));
    }
    return eg_mul(g, unary_wrong(x) ? eg_scale(d, 1.5) : d);
}
static const eg_op unary_op = { .name = "corner",
                                .arity = 1,
                                .shape = like_first,
                                .forward = unary_forward,
                                .rule = unary_rule,
                                .uses = EG_USES_OPERANDS };
static eg_tensor *apply(void *user, eg_tensor *const *x)
{
    const eg_op *op = user;
    return eg_apply(op, NULL, 0, op->arity, x);
}
static void *of(const eg_op *op) { return (void *)(uintptr_t)op; }
LOOP_TEST(a_mistake_of_one_operand_does_not_pass, UNARIES)
{
    mistake = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 4, 2);
    judge(cx, eg_gradcheck(apply, of(&unary_op), 1, &x), "corner");
}

/* A value that is read out of a tensor: the rule of the user's operation is right, and is not
 * blamed. */
static eg_tensor *reads_out(void *user, eg_tensor *const *x)
{
    return eg_scale(apply(user, x), eg_item(eg_sum(NULL, x[0])));
}
TEST(a_right_rule_is_not_blamed_for_a_value_that_is_read_out)
{
    mistake = 0;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 4, 2);
    const eg_report *r = eg_gradcheck(reads_out, of(&unary_op), 1, &x);
    ck_assert_msg(r && !r->passed && !strstr(r->text, "the rule of corner") &&
                      strstr(r->text, "each rule on the way agrees with its forward"),
                  "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}
/* An error that is too small for the comparison with the rule alone is found in the entries, and
 * the report does not call the rule right. */
TEST(a_rule_that_is_off_by_a_millionth_is_not_called_right)
{
    mistake = OFF_BY_A_MILLIONTH;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 4, 2);
    const eg_report *r = eg_gradcheck(apply, of(&unary_op), 1, &x);
    ck_assert_msg(r && !strstr(r->text, "each rule on the way agrees"), "%s", r ? r->text : "");
    judge(cx, r, "corner");
}

/* -- y = x² by a rule that loses digits in f32 --------------------------------------------------
 */
static bool lossy_forward(eg_tensor *y) { return eg_assign(y, eg_square(eg_operand(y, 0))) == 0; }
static eg_tensor *lossy_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i);
    if (eg_type(x) == EG_F32) x = eg_sub(eg_scale(x, 100001), eg_scale(x, 100000));
    return eg_scale(eg_mul(g, x), 2);
}
static const eg_op lossy_op = { .name = "lossy",
                                .arity = 1,
                                .shape = like_first,
                                .forward = lossy_forward,
                                .rule = lossy_rule,
                                .uses = EG_USES_OPERANDS };
/* The errors are those of rounding, so the contract of the rule is kept; what f loses is noted. */
TEST(a_rule_that_loses_digits_in_f32_is_named)
{
    eg_ctx *cx = eg_open();
    const float value[] = { 0.31f, -0.52f, 0.73f, 0.94f, -0.45f, 0.66f, 0.87f, 0.38f };
    eg_tensor *x = eg_from(cx, value, 4, 2);
    const eg_report *r = eg_gradcheck(apply, of(&lossy_op), 1, &x, .only_here = true);
    mistake = 1;
    judge(cx, r, "where f64 loses no such digits; the rule of lossy (");
}

/* -- a jvp: y = a sin b ------------------------------------------------------------------------ */
enum {
    JVP_SINGLE = 1,
    JVP_SINGLE_LARGE,
    JVP_TINY,
    JVP_EXPANDED,
    JVP_ONES,
    JVP_ONE_ELEMENT,
    JVP_UNRECORDED,
    JVP_RANK_3,
    JVP_SAME_OPERANDS,
    JVP_SAME_TANGENTS,
    JVP_THREADS,
    JVP_ABOVE_1E7,
    JVPS
};
static bool product_forward(eg_tensor *y)
{
    return eg_assign(y, eg_mul(eg_operand(y, 0), eg_sin(eg_operand(y, 1)))) == 0;
}
static eg_tensor *product_slope(eg_tensor *y, int i)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    return i ? eg_mul(a, eg_cos(b)) : eg_sin(b);
}
static eg_tensor *product_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_mul(g, product_slope(y, i));
}
static bool jvp_wrong(eg_tensor *y, eg_tensor *const *dx, int i)
{
    eg_ctx *cx = eg_context(y);
    eg_tensor *v = dx[i];
    const double *t = values(v), most = largest(v);
    const int64_t n = eg_size(v);
    int64_t stride[8], ones = 0, others = 0;
    bool expanded = false;
    const bool single = eg_type(v) == EG_F32, unrecorded = eg_nograd(cx, true);
    eg_nograd(cx, unrecorded);
    eg_raw(v, stride);
    for (int r = 0; r < eg_rank(v); r++) expanded |= stride[r] == 0 && eg_dim(v, r) > 1;
    for (int64_t k = 0; t && k < n; k++) {
        ones += t[k] == 1;
        others += t[k] != 0;
    }
    switch (mistake) {
    case JVP_SINGLE: return single;
    case JVP_SINGLE_LARGE: return single && largest(eg_operand(y, i)) > 50;
    case JVP_TINY: return most > 0 && most < 1e-8;
    case JVP_EXPANDED: return expanded;
    case JVP_ONES: return n > 1 && ones == n;
    case JVP_ONE_ELEMENT: return n > 1 && others == 1;
    case JVP_UNRECORDED: return unrecorded;
    case JVP_RANK_3: return eg_rank(v) == 3;
    case JVP_SAME_OPERANDS: return eg_operand(y, 0) == eg_operand(y, 1);
    case JVP_SAME_TANGENTS: return dx[0] == dx[1];
    case JVP_THREADS: return eg_threads(cx, 0) > 1;
    case JVP_ABOVE_1E7: return largest(eg_operand(y, i)) > 1e7;
    default: return false;
    }
}
static eg_tensor *product_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    eg_tensor *sum = NULL;
    for (int i = 0; i < 2; i++) {
        if (!dx[i]) continue;
        eg_tensor *part = eg_mul(dx[i], product_slope(y, i));
        if (jvp_wrong(y, dx, i)) part = eg_scale(part, 1.5);
        sum = sum ? eg_add(sum, part) : part;
    }
    return sum;
}
static const eg_op product_op = { .name = "corner jvp",
                                  .arity = 2,
                                  .shape = like_first,
                                  .forward = product_forward,
                                  .rule = product_rule,
                                  .jvp = product_jvp,
                                  .uses = EG_USES_OPERANDS };
LOOP_TEST(a_mistake_of_a_jvp_does_not_pass, JVPS)
{
    mistake = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 1);
    eg_tensor *x[] = { eg_uniform(cx, 0.3, 0.9, 4, 2), eg_uniform(cx, 0.3, 0.9, 4, 2) };
    judge(cx, eg_gradcheck(apply, of(&product_op), 2, x), "corner jvp");
}

/* -- indices: y_k = x[index_k]² ---------------------------------------------------------------- */
enum { OVERWRITES = 1, DROPS_ZERO, NEEDS_SORTED, INDICES };
static eg_tensor *indices;
static bool gather_shape(eg_tensor *y)
{
    return eg_result(y, eg_type(eg_operand(y, 0)), 1, eg_dims(eg_operand(y, 1)));
}
static bool gather_forward(eg_tensor *y)
{
    return eg_assign(y, eg_square(eg_at("[i], k -> k", eg_operand(y, 0), eg_operand(y, 1)))) == 0;
}
static eg_tensor *gather_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, 0), *d = eg_detach(eg_zeros_like(eg_cast(x, EG_F64)));
    const int64_t *at = eg_i64(eg_contiguous(eg_operand(y, 1))), n = eg_size(g);
    const double *v = values(x), *s = values(g);
    double *to = eg_mut_f64(d), factor = 1;
    if (i || !at || !v || !s || !to) return NULL;
    for (int64_t k = 1; k < n; k++)
        if (mistake == NEEDS_SORTED && at[k] < at[k - 1]) factor = 1.5;
    for (int64_t k = 0; k < n; k++) {
        const double part = 2 * s[k] * v[at[k]] * factor;
        if (mistake == DROPS_ZERO && at[k] == 0) continue;
        to[at[k]] = mistake == OVERWRITES ? part : to[at[k]] + part;
    }
    return eg_cast(d, eg_type(x));
}
static const eg_op gather_op = { .name = "corner index",
                                 .arity = 2,
                                 .shape = gather_shape,
                                 .forward = gather_forward,
                                 .rule = gather_rule,
                                 .uses = EG_USES_OPERANDS };
static eg_tensor *gather(void *user, eg_tensor *const *x)
{
    return apply(user, (eg_tensor *[]){ x[0], indices });
}
LOOP_TEST(a_mistake_of_indices_does_not_pass, INDICES)
{
    mistake = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 6);
    indices = eg_from_n(cx, EG_I64, (int64_t[]){ 1, 2, 4, 5 }, 1, (int64_t[]){ 4 });
    judge(cx, eg_gradcheck(gather, of(&gather_op), 1, &x), "corner index");
}

/* -- masks: y = a f(b) where m, else 0 --------------------------------------------------------- */
enum { DIVIDES = 1, OVERFLOWS, MASKED };
static eg_tensor *mask;
static eg_tensor *masked_factor(eg_tensor *b)
{
    return mistake == DIVIDES ? eg_recip(b) : eg_exp(b);
}
static bool masked_forward(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0), *of_b = masked_factor(eg_operand(y, 1));
    return eg_assign(y, eg_where(eg_operand(y, 2), eg_mul(a, of_b), eg_zeros_like(a))) == 0;
}
static eg_tensor *masked_rule(eg_tensor *y, eg_tensor *g, int i)
{
    if (i == 2) return NULL;
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1), *m = eg_operand(y, 2);
    eg_tensor *d = masked_factor(b);
    if (i) d = eg_mul(a, mistake == DIVIDES ? eg_neg(eg_square(d)) : d);
    /* 0 times infinity */
    if (mistake) return eg_mul(eg_mul(g, eg_cast(m, eg_type(g))), d);
    return eg_where(m, eg_mul(g, d), eg_zeros_like(g));
}
static const eg_op masked_op = { .name = "corner mask",
                                 .arity = 3,
                                 .shape = like_first,
                                 .forward = masked_forward,
                                 .rule = masked_rule,
                                 .uses = EG_USES_OPERANDS };
static eg_tensor *masked(void *user, eg_tensor *const *x)
{
    return apply(user, (eg_tensor *[]){ x[0], x[1], mask });
}
LOOP_TEST(a_nan_behind_a_mask_does_not_pass, MASKED)
{
    mistake = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_uniform(cx, 0.3, 0.9, 6), eg_uniform(cx, 0.3, 0.9, 6) };
    mask = eg_gt(x[0], eg_full_n(cx, EG_F64, 0.5, 1, (int64_t[]){ 6 }));
    judge(cx, eg_gradcheck(masked, of(&masked_op), 2, x), "corner mask");
}

/* -- sizes: y_ik = a_ij b_jk ------------------------------------------------------------------- */
enum { SQUARE = 1, BATCH, MATRICES };
static bool matrix_shape(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    if (eg_rank(a) == 2 && eg_rank(b) == 2 && eg_dim(a, 1) == eg_dim(b, 0))
        return eg_result(y, eg_type(a), 2, (int64_t[]){ eg_dim(a, 0), eg_dim(b, 1) });
    eg_fail(eg_context(y), "corner matrix: shapes");
    return false;
}
static bool matrix_forward(eg_tensor *y)
{
    return eg_assign(y, eg_einsum("ij,jk->ik", eg_operand(y, 0), eg_operand(y, 1))) == 0;
}
static eg_tensor *matrix_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    const bool square = eg_dim(a, 0) == eg_dim(a, 1) && eg_dim(b, 0) == eg_dim(b, 1);
    if (mistake == SQUARE && square && eg_dim(a, 0) > 1)
        return eg_einsum(i ? "ji,ik->jk" : "ik,kj->ij", i ? a : g, i ? g : b);
    if (mistake == BATCH && i && eg_dim(a, 0) > 1) {
        a = eg_slice_axis(a, 0, 0, 1, 1);
        g = eg_slice_axis(g, 0, 0, 1, 1);
    }
    return i ? eg_einsum("ij,ik->jk", a, g) : eg_einsum("ik,jk->ij", g, b);
}
static const eg_op matrix_op = { .name = "corner matrix",
                                 .arity = 2,
                                 .shape = matrix_shape,
                                 .forward = matrix_forward,
                                 .rule = matrix_rule,
                                 .uses = EG_USES_OPERANDS };
LOOP_TEST(a_mistake_at_other_sizes_does_not_pass, MATRICES)
{
    mistake = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_uniform(cx, 0.3, 0.9, mistake == BATCH ? 1 : 2, 5),
                       eg_uniform(cx, 0.3, 0.9, 5, 8) };
    judge(cx, eg_gradcheck(apply, of(&matrix_op), 2, x), "corner matrix");
}

/* -- equal operands: the mean (a² + ab + b²)/3 of x² between a and b, (b³ − a³)/3(b − a) ------- */
enum { NAN_AT_TIES = 1, WRONG_WHERE_EQUAL, ALL_ONE_TENSOR, TIES };
static bool mean_forward(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1), *c = eg_operand(y, 2);
    eg_tensor *sum = eg_add(eg_add(eg_square(a), eg_square(b)), eg_mul(a, b));
    return eg_assign(y, eg_mul(eg_exp(c), eg_scale(sum, 1. / 3))) == 0;
}
static eg_tensor *mean_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *a = eg_operand(y, i == 1), *b = eg_operand(y, i != 1), *c = eg_operand(y, 2);
    if (i == 2) return eg_mul(g, y);
    eg_tensor *d = eg_scale(eg_mul(eg_exp(c), eg_add(eg_scale(a, 2), b)), 1. / 3),
              *gap = eg_sub(a, b);
    if (mistake == NAN_AT_TIES) d = eg_mul(d, eg_div(gap, gap));
    if (mistake == WRONG_WHERE_EQUAL) d = eg_where(eg_eq(a, b), eg_scale(d, 1.5), d);
    if (mistake == ALL_ONE_TENSOR && a == b && b == c) d = eg_scale(d, 1.5);
    return eg_mul(g, d);
}
static const eg_op mean_op = { .name = "corner tie",
                               .arity = 3,
                               .shape = like_first,
                               .forward = mean_forward,
                               .rule = mean_rule };
LOOP_TEST(a_mistake_at_equal_operands_does_not_pass, TIES)
{
    mistake = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x[] = { eg_uniform(cx, 0.3, 0.9, 4), eg_uniform(cx, 1.3, 1.9, 4),
                       eg_uniform(cx, 2.3, 2.9, 4) };
    judge(cx, eg_gradcheck(apply, of(&mean_op), 3, x), "corner tie");
}

/* -- a kink where elements are equal: a maximum, |a − b|, min(max(a, b), c) ------------------ */
enum {
    FIRST_OF_TWO,
    SIDE_OF_DISTANCE,
    FIRST_LARGEST,
    BOUNDS,
    MIDDLE,
    BOTH_OF_TWO,
    ALL_LARGEST,
    KINKS
};
static eg_tensor *kink_middle(eg_tensor *const *x) /* the median of three */
{
    eg_tensor *a = x[0], *b = x[1];
    return eg_maximum(eg_minimum(a, b), eg_minimum(eg_maximum(a, b), x[2]));
}
static eg_tensor *kink_other(eg_tensor *y) { return eg_operands(y) > 1 ? eg_operand(y, 1) : NULL; }
static bool kink_shape(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0);
    return eg_result(y, eg_type(a), kink_other(y) ? eg_rank(a) : 0, eg_dims(a));
}
static bool kink_forward(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0), *b = kink_other(y), *f;
    if (!b) return eg_assign(y, eg_max(NULL, a)) == 0;
    f = mistake == SIDE_OF_DISTANCE ? eg_abs(eg_sub(a, b)) : eg_maximum(a, b);
    if (mistake == BOUNDS) f = eg_minimum(f, eg_operand(y, 2));
    if (mistake == MIDDLE) f = kink_middle((eg_tensor *[]){ a, b, eg_operand(y, 2) });
    return eg_assign(y, f) == 0;
}
static eg_tensor *kink_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *a = eg_operand(y, 0), *b = kink_other(y), *d;
    if (mistake == MIDDLE) { /* by the library's convention, which shares evenly */
        eg_tensor *x[3];
        const bool was = eg_nograd(eg_context(y), false);
        for (int k = 0; k < 3; k++) x[k] = eg_scale(eg_operand(y, k), 1);
        eg_grad(kink_middle(x), g, 1, &x[i], &d);
        eg_nograd(eg_context(y), was);
        return d;
    }
    if (mistake == ALL_LARGEST)
        d = eg_eq(a, y);
    else if (mistake == FIRST_LARGEST)
        d = eg_eq(eg_cumsum("[n]", eg_cumsum("[n]", eg_eq(a, y))),
                  eg_ones_like(eg_argsort("[n]", a)));
    else
        d = i == 0 ? eg_ge(a, b) : mistake == BOTH_OF_TWO ? eg_ge(b, a) : eg_gt(b, a);
    if (mistake == BOUNDS) { /* as torch.clamp: the cotangent is a's unless it is outside */
        eg_tensor *in = eg_le(eg_maximum(a, b), eg_operand(y, 2));
        d = i < 2 ? eg_and(in, d) : eg_not(in);
    }
    d = eg_cast(d, eg_type(g));
    return eg_mul(mistake == SIDE_OF_DISTANCE ? eg_shift(eg_scale(d, 2), -1) : d, g);
}
static const eg_op kink_op = { .name = "corner kink",
                               .arity = -1,
                               .shape = kink_shape,
                               .forward = kink_forward,
                               .rule = kink_rule };
static eg_tensor *kinked(void *user, eg_tensor *const *x)
{
    return eg_apply(&kink_op, NULL, 0, *(int *)user, x);
}
LOOP_TEST(a_rule_that_counts_equal_elements_twice_does_not_pass, KINKS)
{
    mistake = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x[] = { eg_uniform(cx, -0.9, 0.9, 16), eg_uniform(cx, -0.9, 0.9, 16),
                       eg_uniform(cx, -0.3, 1.2, 16) };
    int count = mistake == BOUNDS || mistake == MIDDLE               ? 3
                : mistake == FIRST_LARGEST || mistake == ALL_LARGEST ? 1
                                                                     : 2;
    const eg_report *r = eg_gradcheck(kinked, &count, count, x);
    const bool wrong = mistake == BOTH_OF_TWO || mistake == ALL_LARGEST;
    ck_assert_msg(r && r->passed == !wrong, "%d: %s", mistake, r ? r->text : eg_error(cx));
    if (wrong) ck_assert_msg(strstr(r->text, "move together: ") != NULL, "%s", r->text);
    eg_close(cx);
}

/* -- y = a b², and its continuation to complex numbers ----------------------------------------- */
enum { OTHER_VALUE = 1, CONJUGATE, REAL_FACTOR, CONTINUATIONS };
static bool continued_forward(eg_tensor *y)
{
    return eg_assign(y, eg_mul(eg_operand(y, 0), eg_square(eg_operand(y, 1)))) == 0;
}
static bool continued_forward_c128(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    if (mistake == CONJUGATE) b = eg_complex(eg_real(b), eg_neg(eg_imag(b)));
    if (mistake == REAL_FACTOR) a = eg_cast(eg_real(a), EG_C128);
    return eg_assign(y, eg_scale(eg_mul(a, eg_square(b)), mistake == OTHER_VALUE ? 1.001 : 1)) == 0;
}
static eg_tensor *continued_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    return eg_mul(g, i ? eg_scale(eg_mul(a, b), 2) : eg_square(b));
}
static const eg_op continued_op = { .name = "corner continued",
                                    .arity = 2,
                                    .shape = like_first,
                                    .forward = continued_forward,
                                    .rule = continued_rule,
                                    .forward_c128 = continued_forward_c128 };
LOOP_TEST(a_mistake_of_forward_c128_does_not_pass, 2 * CONTINUATIONS)
{
    mistake = _i / 2;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x[] = { eg_uniform(cx, 0.3, 0.9, 2, 3), eg_uniform(cx, 0.3, 0.9, 2, 3) };
    const eg_oracle oracle = _i % 2 ? EG_COMPLEX_STEP : EG_DIFFERENCES;
    judge(cx, eg_gradcheck(apply, of(&continued_op), 2, x, .oracle = oracle),
          "has a forward_c128 ");
}

/* -- operations that are right: y = f(x) element by element ------------------------------------ */
static double x_plus_sin(double x)
{
    return x + sin(x);
} /* at 1e10 its slope varies within each step */
static double d_x_plus_sin(double x) { return 1 + cos(x); }
static double root(double x) { return sqrt(fabs(x)); } /* a cusp, where the rule gives 0 */
static double d_root(double x) { return x == 0 ? 0 : (x > 0 ? 0.5 : -0.5) / sqrt(fabs(x)); }
static double bent(double x) { return x < 0.4 ? x * x : x < 0.7 ? 0.8 * x - 0.16 : x - 0.3; }
static double d_bent(double x) { return x < 0.4 ? 2 * x : x < 0.7 ? 0.8 : 1; }
static double cubic(double x) { return x * x * x; } /* at 1e-10 the differences are much larger */
static double d_cubic(double x) { return 3 * x * x; }
static double rough(double x) { return x * x; } /* an approximation where x is large */
static double d_rough(double x) { return 2 * x * (fabs(x) > 4 ? 1.0004 : 1); }
typedef double number(double);
static const struct {
    number *f, *df;
    const char *note; /* NULL: none */
} right[] = { { x_plus_sin, d_x_plus_sin, NULL },
              { root, d_root, NULL },
              { bent, d_bent, NULL },
              { cubic, d_cubic, NULL },
              { rough, d_rough, "agrees with its own forward only up to 0.000" } };
enum { RIGHT = (int)(sizeof right / sizeof *right) };
static int which;
static bool right_forward(eg_tensor *y) { return map_values(y, eg_operand(y, 0), right[which].f); }
static eg_tensor *right_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *d = eg_detach(eg_contiguous(eg_ones_like(x)));
    return map_values(d, x, right[which].df) ? eg_mul(g, d) : NULL;
}
static const eg_op right_op = {
    .name = "right", .arity = 1, .shape = like_first, .forward = right_forward, .rule = right_rule
};
LOOP_TEST(an_operation_that_is_hard_to_difference_passes, RIGHT)
{
    which = _i;
    for (uint64_t seed = 0; seed < 6; seed++) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = seed);
        eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 3, 4);
        const eg_report *r = eg_gradcheck(apply, of(&right_op), 1, &x);
        ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
        ck_assert_msg(!right[_i].note || strstr(r->text, right[_i].note), "%s", r->text);
        eg_close(cx);
    }
}

/* -- an ill-conditioned operation: x = A⁻¹ b by conjugate gradients ---------------------------- */
enum { SIDE = 6 };
static void solve(const double *a, const double *b, double *x)
{
    double r[SIDE], p[SIDE], q[SIDE], rr = 0;
    for (int i = 0; i < SIDE; i++) {
        x[i] = 0;
        r[i] = p[i] = b[i];
        rr += b[i] * b[i];
    }
    const double first = rr;
    for (int turn = 0; turn < 200 && rr > 1e-28 * first; turn++) {
        double pq = 0, next = 0;
        for (int i = 0; i < SIDE; i++) {
            q[i] = 0;
            for (int j = 0; j < SIDE; j++) q[i] += (a[i * SIDE + j] + a[j * SIDE + i]) / 2 * p[j];
            pq += p[i] * q[i];
        }
        for (int i = 0; i < SIDE; i++) {
            x[i] += rr / pq * p[i];
            r[i] -= rr / pq * q[i];
            next += r[i] * r[i];
        }
        for (int i = 0; i < SIDE; i++) p[i] = r[i] + next / rr * p[i];
        rr = next;
    }
}
static bool solver_shape(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    if (eg_rank(a) == 2 && eg_rank(b) == 1 && eg_size(a) == SIDE * SIDE && eg_size(b) == SIDE)
        return eg_result(y, eg_type(b), 1, eg_dims(b));
    eg_fail(eg_context(y), "solver: shapes");
    return false;
}
static eg_tensor *from(eg_tensor *like, const double *v)
{
    return eg_cast(eg_from_n(eg_context(like), EG_F64, v, eg_rank(like), eg_dims(like)),
                   eg_type(like));
}
static bool solver_forward(eg_tensor *y)
{
    double x[SIDE];
    solve(values(eg_operand(y, 0)), values(eg_operand(y, 1)), x);
    return eg_assign(y, from(eg_operand(y, 1), x)) == 0;
}
/* db = A⁻¹ g, dA = −(db xᵀ + x dbᵀ)/2 */
static eg_tensor *solver_rule(eg_tensor *y, eg_tensor *g, int i)
{
    double z[SIDE], d[SIDE * SIDE];
    const double *x = values(y);
    solve(values(eg_operand(y, 0)), values(g), z);
    for (int k = 0; k < SIDE * SIDE; k++)
        d[k] = -(z[k / SIDE] * x[k % SIDE] + z[k % SIDE] * x[k / SIDE]) / 2;
    return from(eg_operand(y, i), i ? z : d);
}
static const eg_op solver_op = { .name = "solver",
                                 .arity = 2,
                                 .shape = solver_shape,
                                 .forward = solver_forward,
                                 .rule = solver_rule };
TEST(an_ill_conditioned_operation_passes_with_a_note)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    double a[SIDE * SIDE], v[SIDE], vv = 0;
    for (int i = 0; i < SIDE; i++) {
        v[i] = sin(1 + 1.7 * i);
        vv += v[i] * v[i];
    }
    for (int i = 0; i < SIDE * SIDE; i++) { /* H diag(1 … 1e-8) H, H a Householder reflection */
        a[i] = 0;
        for (int k = 0; k < SIDE; k++)
            a[i] += ((i / SIDE == k) - 2 * v[i / SIDE] * v[k] / vv) * pow(1e-8, k / 5.) *
                    ((i % SIDE == k) - 2 * v[i % SIDE] * v[k] / vv);
    }
    eg_tensor *x[] = { eg_from_n(cx, EG_F64, a, 2, (int64_t[]){ SIDE, SIDE }),
                       eg_uniform(cx, 0.3, 0.9, SIDE) };
    const eg_report *r = eg_gradcheck(apply, of(&solver_op), 2, x);
    ck_assert_msg(r && r->passed && strstr(r->text, "is ill-conditioned: one unit"), "%s",
                  r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- positions from cumulative gates, clipped and interpolated (CoPE, Golovneva et al. 2024) --- */
static eg_tensor *positions(void *user, eg_tensor *const *x)
{
    const int64_t last = eg_dim(x[2], 0) - 1;
    eg_tensor *s = eg_einsum("id,jd->ij", x[0], x[1]), *e = eg_einsum("id,pd->ip", x[0], x[2]);
    eg_tensor *at = eg_clip(eg_cumsum("i [j]", eg_sigmoid(s)), 0, (double)last);
    eg_tensor *low = eg_floor(at), *high = eg_ceil(at), *w = eg_sub(at, low);
    eg_tensor *l = eg_cast(eg_one_hot(eg_cast(low, EG_I64), last + 1), eg_type(s));
    eg_tensor *h = eg_cast(eg_one_hot(eg_cast(high, EG_I64), last + 1), eg_type(s));
    (void)user;
    eg_tensor *below = eg_einsum("ijp,ip->ij", l, e), *above = eg_einsum("ijp,ip->ij", h, e);
    eg_tensor *bias = eg_add(below, eg_mul(w, eg_sub(above, below)));
    return eg_softmax("i [j]", eg_add(s, bias));
}
/* Random rounding must not change a floor to a number that is no integer, of which the cast makes
 * the integer below, nor a result of clip to one beyond its limit. */
LOOP_TEST(floor_and_clip_at_a_limit_are_not_noise, 4)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)_i);
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 3, 4), eg_normal(cx, 0, 1, 5, 4),
                       eg_normal(cx, 0, 1, 6, 4) };
    const eg_report *r = eg_gradcheck(positions, NULL, 3, x);
    ck_assert_msg(r && r->passed && r->noise < 1e-12, "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- y = 1 / (1 − x) as a series, which is right for |x| < 1 only -------------------------------
 */
static double series(double a)
{
    double sum = 1;
    for (int k = 0; k < 200; k++) sum = 1 + fmax(-.9, fmin(.9, a)) * sum;
    return sum;
}
static double series_slope(double a) { return 1 / ((1 - a) * (1 - a)); }
static bool series_forward(eg_tensor *y) { return map_values(y, eg_operand(y, 0), series); }
static eg_tensor *series_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *d = eg_detach(eg_contiguous(eg_ones_like(x)));
    return map_values(d, x, series_slope) ? eg_scale(eg_mul(g, d), mistake ? 1.001 : 1) : NULL;
}
static eg_tensor *series_call(eg_tensor *const *x);
static const eg_sample series_at[] = { { series_call, "3x4", -.5, .5 }, { 0 } };
static const eg_op series_op[] = {
    { .name = "series",
      .arity = 1,
      .shape = like_first,
      .forward = series_forward,
      .rule = series_rule },
    { .name = "series",
      .arity = 1,
      .shape = like_first,
      .forward = series_forward,
      .rule = series_rule,
      .samples = series_at },
};
static eg_tensor *series_call(eg_tensor *const *x)
{
    return eg_apply(&series_op[1], NULL, 0, 1, x);
}
static eg_tensor *series_f(void *user, eg_tensor *const *x)
{
    return eg_apply(&series_op[user != NULL], NULL, 0, 1, x);
}
/* Outside of its domain the operation is called wrong, unless it has samples or only_here is set;
 * then a mistake within its domain is still found. */
TEST(an_operation_is_right_in_its_domain)
{
    for (int k = 0; k < 6; k++) {
        const bool sampled = k % 3 == 1, here = k % 3 == 2;
        mistake = k / 3;
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
        eg_tensor *x = eg_uniform(cx, -.49, .49, 3, 4);
        const eg_report *r = eg_gradcheck(series_f, sampled ? cx : NULL, 1, &x, .only_here = here);
        ck_assert_msg(r && r->passed == (k == 1 || k == 2), "%d: %s", k,
                      r ? r->text : eg_error(cx));
        ck_assert_msg(k || strstr(r->text, ".only_here leaves out these"), "%s", r->text);
        ck_assert_msg(k < 4 || !strstr(r->text, "where operand 1 is"), "%s", r->text);
        eg_close(cx);
    }
    mistake = 0;
}

/* -- a rule that writes to its cotangent, and a forward that is random: what the report names ---
 */
static eg_tensor *writing_rule(eg_tensor *y, eg_tensor *g, int i)
{
    double *to = (double *)(uintptr_t)eg_f64(g);
    const double *x = eg_f64(eg_operand(y, i));
    for (int64_t k = 0; to && x && k < eg_size(g); k++) to[k] *= 2 * x[k];
    return g;
}
static bool square_values(eg_tensor *y)
{
    return eg_assign(y, eg_square(eg_detach(eg_operand(y, 0)))) == 0;
}
static bool random_values(eg_tensor *y)
{
    static double more;
    more += 1e-3;
    return eg_assign(y, eg_scale(eg_square(eg_detach(eg_operand(y, 0))), 1 + more)) == 0;
}
static eg_tensor *double_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_mul(g, eg_scale(eg_operand(y, i), 2));
}
static const eg_op odd_op[] = { { .name = "odd",
                                  .arity = 1,
                                  .shape = like_first,
                                  .forward = square_values,
                                  .rule = writing_rule },
                                { .name = "odd",
                                  .arity = 1,
                                  .shape = like_first,
                                  .forward = random_values,
                                  .rule = double_rule } };
static eg_tensor *odd(void *user, eg_tensor *const *x)
{
    return eg_apply(&odd_op[user != NULL], NULL, 0, 1, x);
}
TEST(unusual_findings_are_named)
{
    static const char *const words[] = { "for operand 1 writes to the cotangent that it is given",
                                         " has another value when it is called again" };
    for (int k = 0; k < 2; k++) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
        eg_tensor *x = eg_uniform(cx, 1, 2, 3, 4);
        const eg_report *r = eg_gradcheck(odd, k ? cx : NULL, 1, &x);
        ck_assert_msg(r && !r->passed && strstr(r->text, words[k]), "%s",
                      r ? r->text : eg_error(cx));
        ck_assert_msg(k || !strstr(r->text, "analytic"), "%s", r->text);
        ck_assert_msg(!strstr(r->text, "eg_nograd"), "%s", r->text);
        eg_close(cx);
    }
}
