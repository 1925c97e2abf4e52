/* binary.c: elementwise operations y = f(a, b), and where. Shapes are broadcast by NumPy's rule:
 * axes that are missing on the left and axes of size 1 are expanded. The expansion is a separate
 * recorded view (eg_expand_n), whose gradient is a sum; the operations here get operands of equal
 * shapes. */
#include "ops/gauss.h"
#include <float.h>

/* Records that the operands do not broadcast, with the first two operands that differ on axis
 * number `axis` from the right. Returns poison. */
static eg_tensor *misfit(const eg_op *op, int count, eg_tensor *const *x, int axis)
{
    char text[512];
    size_t w = 0;
    for (int k = 0; k < count && w < sizeof text; k++) {
        char dims[160];
        w += (size_t)snprintf(text + w, sizeof text - w, "%s%s", k ? ", " : "",
                              eg__dims_text(x[k], dims, sizeof dims));
    }
    int first = 0, second = 0;
    for (int k = 0; k < count; k++) { /* find the first two that differ */
        int64_t size = axis <= x[k]->rank ? x[k]->dim[x[k]->rank - axis] : 1;
        if (size == 1) continue;
        if (!first)
            first = k + 1;
        else if (!second && size != x[first - 1]->dim[x[first - 1]->rank - axis])
            second = k + 1;
    }
    return eg_fail_as(
        x[0]->cx, EG_ERROR_SHAPE,
        "%s: axis -%d is %lld in operand %d but %lld in operand %d; the shapes %s do not broadcast",
        op->name, axis, (long long)x[first - 1]->dim[x[first - 1]->rank - axis], first,
        (long long)x[second - 1]->dim[x[second - 1]->rank - axis], second, text);
}

eg_tensor *eg__broadcast(const eg_op *op, int count, eg_tensor *const *given)
{
    eg_ctx *cx = eg__context_of(op->name, count, given);
    if (!cx) return NULL;
    if (!eg__check_taken(cx, op->name, op->takes, count, given)) return eg__poison(cx);
    bool equal = true;
    for (int k = 1; k < count; k++) equal &= eg__same_shape(given[0], given[k]);
    if (equal) return eg__apply(cx, op, NULL, 0, NULL, count, given);
    eg_tensor *x[3] = { 0 };
    int64_t dim[EG_RANK_MAX];
    int rank = 0;
    for (int k = 0; k < count; k++)
        if (given[k]->rank > rank) rank = given[k]->rank;
    for (int r = 1; r <= rank; r++) { /* r counts from the right */
        int64_t size = 1;
        for (int k = 0; k < count; k++) {
            int64_t its = r <= given[k]->rank ? given[k]->dim[given[k]->rank - r] : 1;
            if (its == 1 || its == size) continue;
            if (size != 1) return misfit(op, count, given, r);
            size = its;
        }
        dim[rank - r] = size;
    }
    for (int k = 0; k < count; k++) {
        bool whole = given[k]->rank == rank;
        for (int r = 0; whole && r < rank; r++) whole = given[k]->dim[r] == dim[r];
        x[k] = whole ? given[k] : eg_expand_n(given[k], rank, dim);
    }
    return eg_apply(op, NULL, 0, count, x);
}

static eg_tensor *broadcast_pair(const eg_op *op, eg_tensor *a, eg_tensor *b)
{
    return eg__broadcast(op, 2, (eg_tensor *[]){ a, b });
}

static bool binary_shape(eg_tensor *y)
{
    const eg_tensor *a = y->in[0];
    eg_lanes_fn *const *of = eg__lanes_op(y)->of;
    if (!eg__shape_pair(y, a->dtype, 0)) return false;
    if (of[a->dtype]) return true;
    eg_fail_as(y->cx, EG_ERROR_DTYPE, "%s: the operands are %s; eg_cast them to %s first",
               y->op->name, eg_type_name(a->dtype),
               of[EG_I64] ? "f32, f64, i32 or i64" : "f32 or f64");
    return false;
}

/* Returns the cotangent of a in max(a, b) or min(a, b): g where a is the result, g/2 where a and b
 * are equal, else 0. `wins` is eg_gt for the maximum, eg_lt for the minimum. */
static eg_tensor *binary_share(eg_tensor *(*wins)(eg_tensor *, eg_tensor *), eg_tensor *a,
                               eg_tensor *b, eg_tensor *g)
{
    return eg_where(eg_eq(a, b), eg_scale(g, .5), eg_where(wins(a, b), g, eg__zero_like(g)));
}

/* Returns x / h; 0, with derivatives of 0, where h is 0. */
static eg_tensor *ratio_or_zero(eg_tensor *x, eg_tensor *h)
{
    eg_tensor *zero = eg__zero_like(h), *none = eg_eq(h, zero);
    return eg_div(eg_where(none, zero, x), eg_where(none, eg_shift(zero, 1), h));
}
/* Returns g x / h², h = √(a² + b²), x one of a and b, without h², which underflows where the result
 * does not. */
static eg_tensor *angle_slope(eg_tensor *g, eg_tensor *x, eg_tensor *h)
{
    return ratio_or_zero(eg_mul(g, ratio_or_zero(x, h)), h);
}
/* Returns a − b, of which σ is the share of e^a in e^a + e^b; −∞ where y = ln(e^a + e^b) is −∞: the
 * gradient is 0 there, as that of logsumexp. */
static eg_tensor *logit_of_share(eg_tensor *y, eg_tensor *a, eg_tensor *b)
{
    eg_tensor *none = eg_full_n(y->cx, (eg_dtype)y->dtype, -INFINITY, 0, NULL);
    return eg_where(eg_eq(y, none), none, eg_sub(a, b));
}

/* -- kernels ---------------------------------------------------------------------------------- */
#define R(number) EG_RE(number)
#define TEMPLATE  "ops/binary_of.h"
#include "tensor/each_type_of.h"

/* -- second derivatives times a cotangent c. 1 − 2σ(v) is computed as −tanh(v/2), which does not
 * cancel near 0. x is limited to ±1000, beyond which they are all 0. */
static eg_tensor *bounded(eg_tensor *x) { return eg_clip(x, -1000, 1000); }
static eg_tensor *silu_curve(eg_tensor *c, eg_tensor *x) /* σ′ (2 − x tanh(x/2)) */
{
    eg_tensor *bend = eg_mul(bounded(x), eg_tanh(eg_scale(x, .5)));
    return eg_mul(eg__sigmoid_slope(c, x), eg_shift(eg_neg(bend), 2));
}
static eg_tensor *gelu_curve(eg_tensor *c, eg_tensor *x) /* φ (2 − x²),  φ = e^(−x²/2)/√2π */
{
    eg_tensor *q = eg_square(bounded(x)), *density = eg_exp(eg_scale(q, -.5));
    return eg_mul(eg_mul(c, eg_scale(density, M_2_SQRTPI * M_SQRT1_2 / 2)), eg_shift(eg_neg(q), 2));
}
/* σ′(v) (2v′ + x v″ − x v′² tanh(v/2)) */
static eg_tensor *gelu_tanh_curve(eg_tensor *c, eg_tensor *x)
{
    x = bounded(x);
    eg_tensor *q = eg_square(x), *dv = eg_shift(eg_scale(q, 3 * EG_GELU_3), EG_GELU_1);
    eg_tensor *v = eg_mul(x, eg_shift(eg_scale(q, EG_GELU_3), EG_GELU_1));
    eg_tensor *bend = eg_mul(eg_mul(x, eg_square(dv)), eg_tanh(eg_scale(v, .5)));
    return eg_mul(eg__sigmoid_slope(c, v),
                  eg_sub(eg_add(eg_scale(dv, 2), eg_scale(q, 6 * EG_GELU_3)), bend));
}

/* -- code generated for each operation: rule, samples (of equal shapes, and of shapes in which
 * either operand is expanded), eg_lanes_op, function */
#define FLOATS(NAME)  [EG_F32] = NAME##_f32, [EG_F64] = NAME##_f64, [EG_C128] = NAME##_c128
#define NUMBERS(NAME) FLOATS(NAME), [EG_I32] = NAME##_i32, [EG_I64] = NAME##_i64
/* clang-format off */
#define RULE(NAME, DA, DB)                                                                         \
    static eg_tensor *NAME##_rule(eg_tensor *y, eg_tensor *g, int i)                               \
    { eg_tensor *a = y->in[0], *b = y->in[1]; (void)a, (void)b; return i == 0 ? DA : DB; }
#define SAMPLES(CALL, NAME)                                                                        \
    static eg_tensor *NAME##_call(eg_tensor *const *x) { return CALL(x[0], x[1]); }                \
    static const eg_sample NAME##_samples[] = { { NAME##_call, "3x4, 3x4", .5, 2 },                \
        { NAME##_call, "2x3x4, 3x1", .5, 2 }, { NAME##_call, "1x3, 2x1", -2, -.5 }, { 0 } };
#define OP(IS_EXACT, NAME, READS, TYPES, EQUATION, GRADIENT)                                       \
    static const eg_lanes_op NAME##_op = { .of = { TYPES(NAME) }, .exact = IS_EXACT, .op = { #NAME,\
        EQUATION, GRADIENT, 2, binary_shape, eg__lanes_forward, NAME##_rule, EG_USES_##READS,      \
        NAME##_samples, .jvp = eg_jvp_symmetric, .forward_c128 = eg__lanes_forward } };
#define EXACT(CALL, NAME, VALUE, DA, DB, READS, TYPES, EQUATION, GRADIENT)                         \
    RULE(NAME, DA, DB)                                                                             \
    SAMPLES(CALL, NAME)                                                                            \
    OP(true, NAME, READS, TYPES, EQUATION, GRADIENT)                                               \
    eg_tensor *CALL(eg_tensor *a, eg_tensor *b) { return broadcast_pair(&NAME##_op.op, a, b); }
#define FUNCTION(CALL, NAME, VALUE, DA, DB, READS, TYPES, EQUATION, GRADIENT)                      \
    RULE(NAME, DA, DB)                                                                             \
    SAMPLES(CALL, NAME)                                                                            \
    OP(false, NAME, READS, TYPES, EQUATION, GRADIENT)                                              \
    eg_tensor *CALL(eg_tensor *a, eg_tensor *b) { return broadcast_pair(&NAME##_op.op, a, b); }
#define STAGED(CALL, NAME, FIRST, ...) FUNCTION(CALL, NAME, __VA_ARGS__)
#define SLOPE(CALL, NAME, LOW, HIGH, VALUE, DA, DB, READS, TYPES, EQUATION, GRADIENT)              \
    RULE(NAME, DA, DB)                                                                             \
    static eg_tensor *NAME##_call(eg_tensor *const *x) { return CALL(x[0], x[1]); }                \
    static const eg_sample NAME##_samples[] = { { NAME##_call, "3x4, 3x4", LOW, HIGH }, { 0 } };   \
    OP(false, NAME, READS, TYPES, EQUATION, GRADIENT)                                              \
    eg_tensor *CALL(eg_tensor *a, eg_tensor *b) { return broadcast_pair(&NAME##_op.op, a, b); }
/* clang-format on */
#include "ops/binary_rows.h"

/* -- pow: y = a^b, da = g b a^(b−1), db = g y ln a. Where b = 0 and 1/a is ∞ or NaN, da is 0
 * (instead of 0 · ∞ or 0 · NaN); where a = 0 and b ≥ 0, db is 0. */
static eg_tensor *pow_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg__pow_slope(y->in[0], y->in[1], y, g, i);
}
eg_tensor *eg__pow_slope(eg_tensor *a, eg_tensor *b, eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *zero = eg__zero_like(a), *one = eg_full_n(a->cx, (eg_dtype)a->dtype, 1, 0, NULL);
    const double most = a->dtype == EG_F32 ? (double)FLT_MAX : DBL_MAX;
    if (i == 0) {
        eg_tensor *small = eg_scale(eg_minimum(eg_abs(a), one), most); /* finite for every a */
        eg_tensor *flat = eg_and(eg_not(eg_gt(small, one)), eg_eq(b, zero));
        return eg_mul(
            g, eg_mul(b, eg_pow(eg_where(flat, zero, a), eg_where(flat, one, eg_shift(b, -1)))));
    }
    eg_tensor *flat = eg_and(eg_eq(a, zero), eg_ge(b, zero));
    return eg_mul(g, eg_mul(y, eg_log(eg_where(flat, one, a))));
}
static eg_tensor *pow_call(eg_tensor *const *x) { return eg_pow(x[0], x[1]); }
static eg_tensor *pow_negative_call(eg_tensor *const *x) { return eg_pow(x[0], eg_neg(x[1])); }
static const eg_sample pow_samples[] = { { pow_call, "3x4, 3x4", .5, 2 },
                                         { pow_call, "2x3x4, 3x1", .5, 2 },
                                         { pow_negative_call, "1x3, 2x1", .5, 2 },
                                         { 0 } };
static const eg_lanes_op pow_op = { .of = { FLOATS(pow) },
                                    .op = { "pow", "y = a^b", "da = g b a^(b−1), db = g y ln a", 2,
                                            binary_shape, eg__lanes_forward, pow_rule, EG_USES_ALL,
                                            pow_samples, .jvp = eg_jvp_symmetric,
                                            .forward_c128 = eg__lanes_forward } };
eg_tensor *eg_pow(eg_tensor *a, eg_tensor *b) { return broadcast_pair(&pow_op.op, a, b); }

/* -- where: y = condition ? a : b, da = condition ? g : 0, db = condition ? 0 : g; a and b of any
 * one dtype */
#define TEMPLATE "ops/choice_of.h"
#include "tensor/each_width_of.h"
static bool where_shape(eg_tensor *y)
{
    if (y->in[0]->dtype == EG_BOOL) return eg__shape_pair(y, y->in[1]->dtype, 1);
    eg_fail_as(y->cx, EG_ERROR_DTYPE,
               "where: operand 1, the condition, is %s and must be bool; compare it first",
               eg_type_name(y->in[0]->dtype));
    return false;
}
static bool where_forward(eg_tensor *y)
{
    static eg_lanes_fn *const of_width[] = {
        [1] = where_8, [2] = where_16, [4] = where_32, [8] = where_64, [16] = where_128
    };
    return eg__lanes_run(y, of_width[eg__width[y->dtype]], true);
}
static eg_tensor *where_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return i == 1 ? eg_where(y->in[0], g, eg__zero_like(g))
                  : eg_where(y->in[0], eg__zero_like(g), g);
}
static eg_tensor *where_call(eg_tensor *const *x) { return eg_where(x[0], x[1], x[2]); }
static const eg_sample where_samples[] = { { where_call, "3x4:b, 3x4, 3x4", 0, 0 },
                                           { where_call, "3x1:b, 4, 2x1x4", 0, 0 },
                                           { 0 } };
static const eg_op where_op = {
    .name = "where",
    .equation = "y = condition ? a : b",
    .gradient = "da = condition ? g : 0, db = condition ? 0 : g",
    .arity = 3,
    .shape = where_shape,
    .forward = where_forward,
    .rule = where_rule,
    .uses = EG_USES_OTHERS,
    .samples = where_samples,
    .jvp = eg_jvp_symmetric,
    .forward_c128 = where_forward,
    .takes = EG_TAKES_ALL,
};
eg_tensor *eg_where(eg_tensor *condition, eg_tensor *a, eg_tensor *b)
{
    return eg__broadcast(&where_op, 3, (eg_tensor *[]){ condition, a, b });
}

eg_tensor *eg_add(eg_tensor *a, eg_tensor *b) { return broadcast_pair(&eg__add_op, a, b); }

#define EXACT(CALL, NAME, ...) &NAME##_op.op,
#define FUNCTION               EXACT
#define SLOPE                  EXACT
#define STAGED                 EXACT
const eg_op *const eg__binary_ops[] = {
#include "ops/binary_rows.h"
    &pow_op.op, &where_op, NULL
};
