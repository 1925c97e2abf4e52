/* binary.c: operations y = f(a, b), element by element, and where. Shapes broadcast by NumPy's
 * rule: axes that are missing on the left and axes of size 1 are expanded. The expansion is a view
 * of its own on the tape (eg_expand_n), which has its own gradient, a sum; the rows here see
 * operands of equal shapes. */
#include "ops/gauss.h"

/* Records that the operands do not broadcast, with the first two that disagree on the axis that
 * is number `axis` from the right. Returns poison. */
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
    for (int k = 0; k < count; k++) { /* the first two that disagree */
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
    if (!eg__check_all(cx, op->name, count, given)) return eg__poison(cx);
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

/* The kernel for each dtype; NULL: the operation does not take that dtype. */
typedef struct kernels {
    eg_lanes_fn *of[EG_DTYPES];
} kernels;
static bool binary_shape(eg_tensor *y, const kernels *k)
{
    const eg_tensor *a = y->in[0];
    if (!eg__shape_pair(y, a->dtype, 0)) return false;
    if (k->of[a->dtype]) return true;
    eg_fail_as(y->cx, EG_ERROR_DTYPE, "%s: the operands are %s; eg_cast them to %s first",
               y->op->name, eg_type_name(a->dtype),
               k->of[EG_I64] ? "f32, f64, i32 or i64" : "f32 or f64");
    return false;
}
static eg_tensor *binary_zero(const eg_tensor *x) { return eg_full_n(x->cx, x->dtype, 0, 0, NULL); }

/* Returns the cotangent of a in max(a, b), or min(a, b): g where a is the result, g/2 where a and b
 * are equal, else 0. `wins` is eg_gt for the maximum and eg_lt for the minimum. */
static eg_tensor *binary_share(eg_tensor *(*wins)(eg_tensor *, eg_tensor *), eg_tensor *a,
                               eg_tensor *b, eg_tensor *g)
{
    return eg_where(eg_eq(a, b), eg_scale(g, .5), eg_where(wins(a, b), g, binary_zero(g)));
}

/* -- the rows: X(function, name, value of floats, value of integers (U: the unsigned type), da, db,
 * what these read, dtypes, equation, gradient). The samples have equal shapes, and shapes in which
 * either operand is expanded. The maximum and the minimum are NaN if an operand is. */
/* clang-format off */
#define ROWS(X)                                                                      \
    X(eg_sub, sub, a - b, (U)a - (U)b,                                               \
      g, eg_neg(g), NOTHING, NUMBERS, "y = a − b", "da = g, db = −g")                \
    X(eg_mul, mul, a * b, (U)a * (U)b,                                               \
      eg_mul(g, b), eg_mul(g, a), OTHERS, NUMBERS, "y = a b", "da = g b, db = g a")  \
    X(eg_maximum, maximum, EG_RE(a) > EG_RE(b) || a != a ? a : b, a > b ? a : b,     \
      binary_share(eg_gt, a, b, g), binary_share(eg_gt, b, a, g), OPERANDS, NUMBERS, \
      "y = max(a, b)", "da = g [a > b] + g/2 [a = b]")                               \
    X(eg_minimum, minimum, EG_RE(a) < EG_RE(b) || a != a ? a : b, a < b ? a : b,     \
      binary_share(eg_lt, a, b, g), binary_share(eg_lt, b, a, g), OPERANDS, NUMBERS, \
      "y = min(a, b)", "da = g [a < b] + g/2 [a = b]")
#define FLOAT_ROWS(X)                                                          \
    X(eg_div, div, a / b, ,                                                    \
      eg_div(g, b), eg_neg(eg_div(eg_mul(g, y), b)), ALL, FLOATS, "y = a / b", \
        "da = g / b, db = −g y / b")
/* clang-format on */

/* Functions of floats, whose kernels compute whole groups of EG_LANES elements. `value` sets y from
 * a and b. */
#define R(number) EG_RE(number)
/* clang-format off */
#define FUNCTIONS(X)                                                                              \
    X(eg_atan2, atan2, y = F(atan2)(a, b), ,                                                      \
      eg_div(eg_mul(g, b), eg_add(eg_square(a), eg_square(b))), eg_neg(eg_div(eg_mul(g, a),       \
        eg_add(eg_square(a), eg_square(b)))),                                                     \
      OPERANDS, FLOATS, "y = the angle of (b, a)", "da = g b / (a² + b²), db = −g a / (a² + b²)") \
    X(eg_logaddexp, logaddexp,                                                                    \
      y = a == b ? a + (T)M_LN2 : (R(a) < R(b) ? b : a) + F(log1p)(F(exp)(-F(fabs)(a - b))), ,    \
      eg_mul(g, eg_sigmoid(eg_sub(a, b))), eg_mul(g, eg_sigmoid(eg_sub(b, a))), OPERANDS, FLOATS, \
      "y = ln(e^a + e^b)", "da = g σ(a − b), db = g σ(b − a)")
/* clang-format on */
/* y = a f′(b) in one pass: the gradients of the functions f in pointwise.c, with the cotangent a.
 * They are computed from the operand b of f and not from its result, because 1 − f(b) cancels where
 * tanh or σ is close to 1; σ′ = σ(b) σ(−b) is a product and does not. Where an infinite b would be
 * multiplied by a factor that vanishes, the product is 0. */
/* clang-format off */
#define SLOPES(X)                                                                            \
    X(eg__tanh_slope, tanh_slope,                                                            \
      const T e = F(exp)(-2 * F(fabs)(b)); y = a * (4 * e / ((1 + e) * (1 + e))), ,          \
      eg__tanh_slope(g, b), eg_scale(eg_mul(eg_mul(g, y), eg_tanh(b)), -2), ALL, FLOATS,     \
      "y = a (1 − tanh² b)", "da = g (1 − tanh² b), db = −2 g y tanh b")                     \
    X(eg__sigmoid_slope, sigmoid_slope,                                                      \
      const T e = F(exp)(-F(fabs)(b)); y = a * (e / ((1 + e) * (1 + e))), ,                  \
      eg__sigmoid_slope(g, b), eg_neg(eg_mul(eg_mul(g, y), eg_tanh(eg_scale(b, .5)))), ALL,  \
        FLOATS,                                                                              \
      "y = a σ(b) σ(−b)", "da = g σ(b) σ(−b), db = −g y tanh(b/2)")                          \
    X(eg__gelu_slope, gelu_slope, const T z = R(F(fabs)(b)) < 1000 ? b : 0; T e;             \
      y = F(gauss)(b, &e); y = a * (y + z * e * (T)(M_2_SQRTPI * M_SQRT1_2 / 2)), ,          \
      eg__gelu_slope(g, b), gelu_curve(eg_mul(g, a), b), OPERANDS, FLOATS,                   \
      "y = a (Φ(b) + b φ(b))", "da = g (Φ(b) + b φ(b)), db = g a φ(b) (2 − b²)")             \
    X(eg__gelu_tanh_slope, gelu_tanh_slope,                                                  \
      const T z = R(F(fabs)(b)) < 1000 ? b : 0;                                              \
      const T v = b * ((T)EG_GELU_1 + (T)EG_GELU_3 * b * b);                                 \
      const T e = F(exp)(-F(fabs)(v));                                                       \
      y = a * ((R(v) < 0 ? e : 1) / (1 + e)                                                  \
          + z * ((T)EG_GELU_1 + (T)(3 * EG_GELU_3) * z * z) * (e / ((1 + e) * (1 + e)))), ,  \
      eg__gelu_tanh_slope(g, b), gelu_tanh_curve(eg_mul(g, a), b), OPERANDS, FLOATS,         \
      "y = a (σ(v) + b v′ σ′(v))",                                                           \
        "da = g (σ(v) + b v′ σ′(v)), db = g a σ′(v) (2v′ + b v″ − b v′² tanh(v/2))")         \
    X(eg__silu_slope, silu_slope,                                                            \
      const T z = R(F(fabs)(b)) < 1000 ? b : 0; const T e = F(exp)(-F(fabs)(b));             \
      y = a * ((R(b) < 0 ? e : 1) / (1 + e) + z * (e / ((1 + e) * (1 + e)))), ,              \
      eg__silu_slope(g, b), silu_curve(eg_mul(g, a), b), OPERANDS, FLOATS,                   \
      "y = a (σ(b) + b σ′(b))", "da = g (σ(b) + b σ′(b)), db = g a σ′(b) (2 − b tanh(b/2))")
/* clang-format on */

#define KERNEL(CALL, NAME, VALUE, ...)             \
    EG_KERNEL_2(NAME##_f32, float, float, VALUE)   \
    EG_KERNEL_2(NAME##_f64, double, double, VALUE) \
    EG_KERNEL_2(NAME##_c128, double complex, double complex, VALUE)
ROWS(KERNEL)
FLOAT_ROWS(KERNEL)
#undef KERNEL
#define LANES(NAME, VALUE)                                                           \
    EG_CLONES EG_FUSING static void NAME(int64_t n, char *const *p, const double *c) \
    {                                                                                \
        T *out = (T *)p[0];                                                          \
        const T *in1 = (const T *)p[1], *in2 = (const T *)p[2];                      \
        (void)c;                                                                     \
        n &= -EG_LANES;                                                              \
        EG_EVERY_LANE                                                                \
        for (int64_t k = 0; k < n; k++) {                                            \
            const T a = in1[k], b = in2[k];                                          \
            T y;                                                                     \
            VALUE;                                                                   \
            out[k] = y;                                                              \
        }                                                                            \
    }
#define F(name)                        name##f
#define T                              float
#define KERNEL(CALL, NAME, VALUE, ...) LANES(NAME##_f32, VALUE)
FUNCTIONS(KERNEL)
SLOPES(KERNEL)
KERNEL(eg_pow, pow, y = F(pow)(a, b), )
#undef F
#undef T
#undef KERNEL
#define F(name)                        name
#define T                              double
#define KERNEL(CALL, NAME, VALUE, ...) LANES(NAME##_f64, VALUE)
FUNCTIONS(KERNEL)
SLOPES(KERNEL)
KERNEL(eg_pow, pow, y = F(pow)(a, b), )
#undef F
#undef T
#undef KERNEL
#define F(name)                        eg__c_##name
#define T                              double complex
#define KERNEL(CALL, NAME, VALUE, ...) LANES(NAME##_c128, VALUE)
FUNCTIONS(KERNEL)
SLOPES(KERNEL)
KERNEL(eg_pow, pow, y = F(pow)(a, b), )
#undef F
#undef T
#undef KERNEL

#define U uint32_t
#define KERNEL_I32(CALL, NAME, VALUE, VALUE_INT, ...) \
    EG_KERNEL_2(NAME##_i32, int32_t, int32_t, VALUE_INT)
ROWS(KERNEL_I32)
#undef U
#define U uint64_t
#define KERNEL_I64(CALL, NAME, VALUE, VALUE_INT, ...) \
    EG_KERNEL_2(NAME##_i64, int64_t, int64_t, VALUE_INT)
ROWS(KERNEL_I64)
#undef U

/* -- second derivatives times a cotangent c. 1 − 2σ(v) is computed as −tanh(v/2), which does not
 * cancel near 0. x is limited to ±1000, beyond which all of them are 0. */
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

#define FLOATS(NAME)  [EG_F32] = NAME##_f32, [EG_F64] = NAME##_f64, [EG_C128] = NAME##_c128
#define NUMBERS(NAME) FLOATS(NAME), [EG_I32] = NAME##_i32, [EG_I64] = NAME##_i64
#define DEFINE(EXACT, CALL, NAME, VALUE, VALUE_INT, DA, DB, READS, TYPES, EQUATION, GRADIENT) \
    static const kernels NAME##_kernels = { { TYPES(NAME) } };                                \
    static bool NAME##_shape(eg_tensor *y) { return binary_shape(y, &NAME##_kernels); }       \
    static bool NAME##_forward(eg_tensor *y)                                                  \
    {                                                                                         \
        return eg__lanes_run(y, NAME##_kernels.of[y->dtype], EXACT);                          \
    }                                                                                         \
    static eg_tensor *NAME##_rule(eg_tensor *y, eg_tensor *g, int i)                          \
    {                                                                                         \
        eg_tensor *a = y->in[0], *b = y->in[1];                                               \
        (void)a, (void)b;                                                                     \
        return i == 0 ? DA : DB;                                                              \
    }                                                                                         \
    static eg_tensor *NAME##_call(eg_tensor *const *x) { return CALL(x[0], x[1]); }           \
    static const eg_sample NAME##_samples[] = { { NAME##_call, "3x4, 3x4", .5, 2 },           \
                                                { NAME##_call, "2x3x4, 3x1", .5, 2 },         \
                                                { NAME##_call, "1x3, 2x1", -2, -.5 },         \
                                                { 0 } };                                      \
    static const eg_op NAME##_op = { #NAME,                                                   \
                                     EQUATION,                                                \
                                     GRADIENT,                                                \
                                     2,                                                       \
                                     NAME##_shape,                                            \
                                     NAME##_forward,                                          \
                                     NAME##_rule,                                             \
                                     EG_USES_##READS,                                         \
                                     NAME##_samples,                                          \
                                     .jvp = eg_jvp_symmetric,                                 \
                                     .forward_c128 = NAME##_forward };                        \
    eg_tensor *CALL(eg_tensor *a, eg_tensor *b)                                               \
    {                                                                                         \
        return eg__broadcast(&NAME##_op, 2, (eg_tensor *[]){ a, b });                         \
    }
#define DEFINE_EXACT(...)    DEFINE(true, __VA_ARGS__)
#define DEFINE_FUNCTION(...) DEFINE(false, __VA_ARGS__)
ROWS(DEFINE_EXACT)
FLOAT_ROWS(DEFINE_EXACT)
FUNCTIONS(DEFINE_FUNCTION)
SLOPES(DEFINE_FUNCTION)

/* -- pow: y = a^b, da = g b a^(b−1), db = g y ln a. At a = 0, da is 0 for b = 0 (instead of 0 · ∞),
 * and db is 0 for b > 0. */
static const kernels pow_kernels = { { FLOATS(pow) } };
static bool pow_shape(eg_tensor *y) { return binary_shape(y, &pow_kernels); }
static bool pow_forward(eg_tensor *y) { return eg__lanes_run(y, pow_kernels.of[y->dtype], false); }
static eg_tensor *pow_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *a = y->in[0], *b = y->in[1], *one = eg_full_n(y->cx, y->dtype, 1, 0, NULL),
              *at_zero = eg_eq(a, binary_zero(a));
    if (i == 0)
        return eg_mul(g, eg_mul(b, eg_pow(a, eg_where(eg_and(at_zero, eg_eq(b, binary_zero(b))),
                                                      one, eg_shift(b, -1)))));
    return eg_mul(g,
                  eg_mul(y, eg_log(eg_where(eg_and(at_zero, eg_gt(b, binary_zero(b))), one, a))));
}
static eg_tensor *pow_call(eg_tensor *const *x) { return eg_pow(x[0], x[1]); }
static eg_tensor *pow_negative_call(eg_tensor *const *x) { return eg_pow(x[0], eg_neg(x[1])); }
static const eg_sample pow_samples[] = { { pow_call, "3x4, 3x4", .5, 2 },
                                         { pow_call, "2x3x4, 3x1", .5, 2 },
                                         { pow_negative_call, "1x3, 2x1", .5, 2 },
                                         { 0 } };
static const eg_op pow_op = { "pow",
                              "y = a^b",
                              "da = g b a^(b−1), db = g y ln a",
                              2,
                              pow_shape,
                              pow_forward,
                              pow_rule,
                              EG_USES_ALL,
                              pow_samples,
                              .jvp = eg_jvp_symmetric,
                              .forward_c128 = pow_forward };
eg_tensor *eg_pow(eg_tensor *a, eg_tensor *b)
{
    return eg__broadcast(&pow_op, 2, (eg_tensor *[]){ a, b });
}

/* -- where: y = condition ? a : b, da = condition ? g : 0, db = condition ? 0 : g; a and b of any
 * one dtype */
#define WHERE(NAME, T)                                                     \
    EG_CLONES static void NAME(int64_t n, char *const *p, const double *c) \
    {                                                                      \
        T *y = (T *)p[0];                                                  \
        const uint8_t *condition = (const uint8_t *)p[1];                  \
        const T *a = (const T *)p[2], *b = (const T *)p[3];                \
        (void)c;                                                           \
        EG_EVERY_LANE                                                      \
        for (int64_t k = 0; k < n; k++) y[k] = condition[k] ? a[k] : b[k]; \
    }
WHERE(where_1, uint8_t)
WHERE(where_4, uint32_t)
WHERE(where_8, uint64_t)
WHERE(where_16, double complex)
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
        [1] = where_1, [4] = where_4, [8] = where_8, [16] = where_16
    };
    return eg__lanes_run(y, of_width[eg__width[y->dtype]], true);
}
static eg_tensor *where_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return i == 1 ? eg_where(y->in[0], g, binary_zero(g)) : eg_where(y->in[0], binary_zero(g), g);
}
static eg_tensor *where_call(eg_tensor *const *x) { return eg_where(x[0], x[1], x[2]); }
static const eg_sample where_samples[] = { { where_call, "3x4:b, 3x4, 3x4", 0, 0 },
                                           { where_call, "3x1:b, 4, 2x1x4", 0, 0 },
                                           { 0 } };
static const eg_op where_op = { "where",
                                "y = condition ? a : b",
                                "da = condition ? g : 0, db = condition ? 0 : g",
                                3,
                                where_shape,
                                where_forward,
                                where_rule,
                                EG_USES_OTHERS,
                                where_samples,
                                .jvp = eg_jvp_symmetric,
                                .forward_c128 = where_forward };
eg_tensor *eg_where(eg_tensor *condition, eg_tensor *a, eg_tensor *b)
{
    return eg__broadcast(&where_op, 3, (eg_tensor *[]){ condition, a, b });
}

eg_tensor *eg_add(eg_tensor *a, eg_tensor *b)
{
    return eg__broadcast(&eg__add_op, 2, (eg_tensor *[]){ a, b });
}

#define LIST(CALL, NAME, ...) &NAME##_op,
const eg_op *const eg__binary_rows[] = {
    ROWS(LIST) FLOAT_ROWS(LIST) FUNCTIONS(LIST) SLOPES(LIST) & pow_op, &where_op, NULL
};
