/* pointwise.c: operations y = f(x) element by element; y has the shape, dtype and layout of x. */
#include "ops/gauss.h"

/* The kernel for each dtype; NULL: the operation does not take that dtype. */
typedef struct kernels {
    eg_lanes_fn *of[EG_DTYPES];
} kernels;
/* The attribute of an operation with constants a and b. */
typedef struct constants {
    double c[2];
} constants;

static bool pointwise_shape(eg_tensor *y, const kernels *k)
{
    const eg_tensor *x = y->in[0];
    if (k->of[x->dtype]) return eg__shape_like(y, x->dtype, x);
    eg_fail_as(y->cx, EG_ERROR_DTYPE, "%s: operand 1 is %s; cast it to %s first", y->op->name,
               eg_type_name(x->dtype), k->of[EG_I64] ? "f32, f64, i32 or i64" : "f32 or f64");
    return false;
}
static bool pointwise_forward(eg_tensor *y, const kernels *k)
{
    return eg__lanes_run(y, k->of[y->dtype], false);
}
static double pointwise_constant(const eg_tensor *y, int k)
{
    return ((const constants *)y->attr)->c[k];
}
static eg_tensor *number_like(const eg_tensor *x, double value)
{
    return eg_full_n(x->cx, x->dtype, value, 0, NULL);
}
static eg_tensor *zero_like(const eg_tensor *x) { return number_like(x, 0); }

/* -- ranges of sampled operands: they avoid kinks and jumps, which lie at 0 (abs, sign, relu …), ±1
 * (clip), integers (floor), halves (round) */
#define EVERYWHERE(CALL)   \
    {                      \
        CALL, "3x4", -2, 2 \
    }
#define POSITIVE(CALL)     \
    {                      \
        CALL, "3x4", .5, 2 \
    }
#define BOTH_SIDES(CALL) \
    { CALL, "3x4", .1, 2 }, { CALL, "3x4", -2, -.1 }
#define THREE_PARTS(CALL) \
    { CALL, "3x4", -.9, .9 }, { CALL, "3x4", 1.1, 2 }, { CALL, "3x4", -2, -1.1 }
#define FRACTIONS(CALL) \
    { CALL, "3x4", .1, .9 }, { CALL, "3x4", -1.9, -1.1 }
#define HALVES(CALL) \
    { CALL, "3x4", -.4, .4 }, { CALL, "3x4", .6, 1.4 }
#define INSIDE_1(CALL)       \
    {                        \
        CALL, "3x4", -.9, .9 \
    }
#define ABOVE_1(CALL)       \
    {                       \
        CALL, "3x4", 1.2, 3 \
    }

/* -- the rows: X(function, name, value, cotangent dx from x, y and g, what dx reads, range of the
 * samples, dtypes, equation, gradient).
 *
 * `value` sets y from x, both of type T; F(exp) is exp, expf or cexp. Conditions compare R(…), the
 * real part (tensor/complex.h); where the function is smooth, both branches agree at the border.
 * Large arguments do not give NaN by overflow: exponentials have arguments ≤ 0, and where x is
 * multiplied by a factor that vanishes towards −∞, as in gelu, x is limited to −1000, where the
 * factor is 0 already, so that 0 · ∞ does not occur. */
#define R(number) EG_RE(number)
/* clang-format off */
#define ROWS(X)                                                                                    \
    X(eg_neg, neg, y = -x,                                                                         \
      eg_neg(g), NOTHING, EVERYWHERE, NUMBERS, "y = −x", "dx = −g")                                \
    X(eg_abs, abs, y = F(fabs)(x),                                                                 \
      eg_mul(g, eg_sign(x)), OPERANDS, BOTH_SIDES, NUMBERS, "y = |x|", "dx = g sign x")            \
    X(eg_exp, exp, y = F(exp)(x),                                                                  \
      eg_mul(g, y), RESULT, EVERYWHERE, FLOATS, "y = e^x", "dx = g y")                             \
    X(eg_expm1, expm1, y = F(expm1)(x),                                                            \
      eg_mul(g, eg_exp(x)), OPERANDS, EVERYWHERE, FLOATS, "y = e^x − 1", "dx = g e^x")             \
    X(eg_log, log, y = F(log)(x),                                                                  \
      eg_div(g, x), OPERANDS, POSITIVE, FLOATS, "y = ln x", "dx = g / x")                          \
    X(eg_log1p, log1p, y = F(log1p)(x),                                                            \
      eg_div(g, eg_shift(x, 1)), OPERANDS, POSITIVE, FLOATS, "y = ln(1 + x)", "dx = g / (1 + x)")  \
    X(eg_sqrt, sqrt, y = F(sqrt)(x),                                                               \
      eg_scale(eg_div(g, y), .5), RESULT, POSITIVE, FLOATS, "y = √x", "dx = g / 2y")               \
    X(eg_rsqrt, rsqrt, y = 1 / F(sqrt)(x),                                                         \
      eg_scale(eg_mul(g, eg_powc(y, 3)), -.5), RESULT, POSITIVE, FLOATS, "y = 1/√x",               \
        "dx = −g y³ / 2")                                                                          \
    X(eg_square, square, y = x * x,                                                                \
      eg_scale(eg_mul(g, x), 2), OPERANDS, EVERYWHERE, NUMBERS, "y = x²", "dx = 2 g x")            \
    X(eg_recip, recip, y = 1 / x,                                                                  \
      eg_neg(eg_mul(g, eg_square(y))), RESULT, POSITIVE, FLOATS, "y = 1/x", "dx = −g y²")          \
    X(eg_sin, sin, y = F(sin)(x),                                                                  \
      eg_mul(g, eg_cos(x)), OPERANDS, EVERYWHERE, FLOATS, "y = sin x", "dx = g cos x")             \
    X(eg_cos, cos, y = F(cos)(x),                                                                  \
      eg_neg(eg_mul(g, eg_sin(x))), OPERANDS, EVERYWHERE, FLOATS, "y = cos x", "dx = −g sin x")    \
    X(eg_tan, tan, y = F(tan)(x),                                                                  \
      eg_add(g, eg_mul(g, eg_square(y))), RESULT, INSIDE_1, FLOATS, "y = tan x",                   \
        "dx = g (1 + y²)")                                                                         \
    X(eg_asin, asin, y = F(asin)(x),                                                               \
      eg_mul(g, eg_rsqrt(eg_shift(eg_neg(eg_square(x)), 1))), OPERANDS, INSIDE_1, FLOATS,          \
        "y = arcsin x", "dx = g / √(1 − x²)")                                                      \
    X(eg_acos, acos, y = F(acos)(x),                                                               \
      eg_neg(eg_mul(g, eg_rsqrt(eg_shift(eg_neg(eg_square(x)), 1)))), OPERANDS, INSIDE_1,          \
        FLOATS, "y = arccos x", "dx = −g / √(1 − x²)")                                             \
    X(eg_atan, atan, y = F(atan)(x),                                                               \
      eg_div(g, eg_shift(eg_square(x), 1)), OPERANDS, EVERYWHERE, FLOATS, "y = arctan x",          \
        "dx = g / (1 + x²)")                                                                       \
    X(eg_sinh, sinh, y = F(sinh)(x),                                                               \
      eg_mul(g, eg_cosh(x)), OPERANDS, EVERYWHERE, FLOATS, "y = sinh x", "dx = g cosh x")          \
    X(eg_cosh, cosh, y = F(cosh)(x),                                                               \
      eg_mul(g, eg_sinh(x)), OPERANDS, EVERYWHERE, FLOATS, "y = cosh x", "dx = g sinh x")          \
    X(eg_asinh, asinh, y = F(asinh)(x),                                                            \
      eg_mul(g, eg_rsqrt(eg_shift(eg_square(x), 1))), OPERANDS, EVERYWHERE, FLOATS,                \
        "y = arsinh x", "dx = g / √(x² + 1)")                                                      \
    X(eg_acosh, acosh, y = F(acosh)(x),                                                            \
      eg_mul(g, eg_rsqrt(eg_shift(eg_square(x), -1))), OPERANDS, ABOVE_1, FLOATS,                  \
        "y = arcosh x", "dx = g / √(x² − 1)")                                                      \
    X(eg_atanh, atanh, y = F(atanh)(x),                                                            \
      eg_div(g, eg_shift(eg_neg(eg_square(x)), 1)), OPERANDS, INSIDE_1, FLOATS, "y = artanh x",    \
        "dx = g / (1 − x²)")                                                                       \
    X(eg_exp2, exp2, y = F(exp2)(x),                                                               \
      eg_scale(eg_mul(g, y), M_LN2), RESULT, EVERYWHERE, FLOATS, "y = 2^x", "dx = g y ln 2")       \
    X(eg_log2, log2, y = F(log2)(x),                                                               \
      eg_scale(eg_div(g, x), M_LOG2E), OPERANDS, POSITIVE, FLOATS, "y = log₂ x",                   \
        "dx = g / (x ln 2)")                                                                       \
    X(eg_log10, log10, y = F(log10)(x),                                                            \
      eg_scale(eg_div(g, x), M_LOG10E), OPERANDS, POSITIVE, FLOATS, "y = log₁₀ x",                 \
        "dx = g / (x ln 10)")                                                                      \
    X(eg_tanh, tanh, y = F(tanh)(x),                                                               \
      eg__tanh_slope(g, x), OPERANDS, EVERYWHERE, FLOATS, "y = tanh x", "dx = g (1 − tanh² x)")    \
    X(eg_sigmoid, sigmoid, const T e = F(exp)(-F(fabs)(x)); y = (R(x) < 0 ? e : 1) / (1 + e),      \
      eg__sigmoid_slope(g, x), OPERANDS, EVERYWHERE, FLOATS, "y = 1/(1 + e^−x)",                   \
        "dx = g σ(x) σ(−x)")                                                                       \
    X(eg_erf, erf, y = F(erf)(x),                                                                  \
      eg_scale(eg_mul(g, eg_exp(eg_neg(eg_square(x)))), M_2_SQRTPI), OPERANDS, EVERYWHERE,         \
        FLOATS,                                                                                    \
      "y = erf x", "dx = g 2/√π e^−x²")                                                            \
    X(eg_relu, relu, y = R(x) < 0 ? 0 : x,                                                         \
      eg_mul(g, eg_sign(y)), RESULT, BOTH_SIDES, NUMBERS, "y = max(x, 0)", "dx = g [x > 0]")       \
    X(eg_gelu, gelu, const T z = R(x) < -1000 ? -1000 : x; T e; y = z * F(gauss)(z, &e),           \
      eg__gelu_slope(g, x), OPERANDS, EVERYWHERE, FLOATS, "y = x Φ(x)", "dx = g (Φ(x) + x φ(x))")  \
    X(eg_gelu_tanh, gelu_tanh,                                                                     \
      const T z = R(x) < -1000 ? -1000 : x; const T v = x * ((T)EG_GELU_1 + (T)EG_GELU_3 * x * x); \
      const T e = F(exp)(-F(fabs)(v)); y = z * ((R(v) < 0 ? e : 1) / (1 + e)),                     \
      eg__gelu_tanh_slope(g, x), OPERANDS, EVERYWHERE, FLOATS,                                     \
      "y = x σ(v), v = 2 √(2/π)(x + 0.044715 x³)", "dx = g (σ(v) + x v′ σ′(v))")                   \
    X(eg_silu, silu,                                                                               \
      const T z = R(x) < -1000 ? -1000 : x; const T e = F(exp)(-F(fabs)(x));                       \
      y = z * ((R(x) < 0 ? e : 1) / (1 + e)),                                                      \
      eg__silu_slope(g, x), OPERANDS, EVERYWHERE, FLOATS, "y = x σ(x)",                            \
        "dx = g (σ(x) + x σ′(x))")                                                                 \
    X(eg_softplus, softplus, y = (R(x) < 0 ? 0 : x) + F(log1p)(F(exp)(-F(fabs)(x))),               \
      eg_mul(g, eg_sigmoid(x)), OPERANDS, EVERYWHERE, FLOATS, "y = ln(1 + e^x)", "dx = g σ(x)")
/* clang-format on */

/* Functions that are piecewise constant: the gradient is 0 by definition. X(function, name, value,
 * range of the samples, dtypes, equation). */
/* clang-format off */
#define JUMPS(X)                                                                                 \
    X(eg_sign, sign, y = x != x ? x : (T)((R(x) > 0) - (R(x) < 0)), BOTH_SIDES, NUMBERS,         \
      "y = sign x")                                                                              \
    X(eg_floor, floor, y = F(floor)(x),                          FRACTIONS,  FLOATS,  "y = ⌊x⌋") \
    X(eg_ceil, ceil, y = F(ceil)(x),                           FRACTIONS,  FLOATS,  "y = ⌈x⌉")   \
    X(eg_trunc, trunc, y = F(trunc)(x),                          FRACTIONS,  FLOATS,             \
      "y = x without its fraction")                                                              \
    X(eg_round, round, y = F(nearbyint)(x),                      HALVES,     FLOATS,             \
      "y = the nearest whole number, halves to even")
/* clang-format on */

/* Functions with constants a and b: as ROWS, with the sampled call behind. Their constructors are
 * written out below. */
/* clang-format off */
#define WITH_CONSTANTS(X)                                                                        \
    X(eg_scale, scale, y = a * x,                                                                \
      eg_scale(g, a), NOTHING, EVERYWHERE, NUMBERS, "y = a x", "dx = a g", eg_scale(x[0], -1.5)) \
    X(eg_shift, shift, y = x + a,                                                                \
      g, NOTHING, EVERYWHERE, NUMBERS, "y = x + a", "dx = g", eg_shift(x[0], -1.5))              \
    X(eg_leaky_relu, leaky_relu, y = R(x) > 0 ? x : a * x,                                       \
      eg_where(eg_gt(x, zero_like(x)), g, eg_scale(g, a)), OPERANDS, BOTH_SIDES, FLOATS,         \
      "y = x > 0 ? x : a x", "dx = x > 0 ? g : a g", eg_leaky_relu(x[0], .2))                    \
    X(eg_elu, elu,                                                                               \
      const T z = R(x) > 0 ? 0 : x; const T e = F(expm1)(z); y = R(x) > 0 ? x : a * e,           \
      eg_where(eg_gt(x, zero_like(x)), g, eg_mul(g, eg_scale(eg_exp(eg_clip(x, -INFINITY, 0)),   \
        a))),                                                                                    \
      OPERANDS, BOTH_SIDES, FLOATS, "y = x > 0 ? x : a (e^x − 1)", "dx = x > 0 ? g : g a e^x",   \
        eg_elu(x[0], .7))                                                                        \
    X(eg_clip, clip, y = R(x) < a ? a : R(x) > b ? b : x,                                        \
      eg_where(eg_eq(x, y), g, zero_like(g)), ALL, THREE_PARTS, NUMBERS,                         \
      "y = min(max(x, a), b)", "dx = a ≤ x ≤ b ? g : 0", eg_clip(x[0], -1, 1))
/* clang-format on */

/* -- kernels of floats ------------------------------------------------------------------------ */
#define F(name)                        name##f
#define T                              float
#define KERNEL(CALL, NAME, VALUE, ...) EG_KERNEL_1(NAME##_f32, float, float, VALUE)
ROWS(KERNEL)
JUMPS(KERNEL)
WITH_CONSTANTS(KERNEL)
KERNEL(eg_powc, cube, y = x * x * x, )
KERNEL(eg_powc, powc, y = F(pow)(x, a), )
#undef F
#undef T
#undef KERNEL
#define F(name)                        name
#define T                              double
#define KERNEL(CALL, NAME, VALUE, ...) EG_KERNEL_1(NAME##_f64, double, double, VALUE)
ROWS(KERNEL)
JUMPS(KERNEL)
WITH_CONSTANTS(KERNEL)
KERNEL(eg_powc, cube, y = x * x * x, )
KERNEL(eg_powc, powc, y = F(pow)(x, a), )
#undef F
#undef T
#undef KERNEL

/* -- kernels of complex numbers --------------------------------------------------------------- */
#define F(name)                        eg__c_##name
#define T                              double complex
#define KERNEL(CALL, NAME, VALUE, ...) EG_KERNEL_C128(NAME, VALUE)
ROWS(KERNEL)
JUMPS(KERNEL)
WITH_CONSTANTS(KERNEL)
KERNEL(eg_powc, cube, y = x * x * x, )
KERNEL(eg_powc, powc, y = F(pow)(x, a), )
#undef F
#undef T
#undef KERNEL

/* -- kernels of integers: they compute modulo 2^32 or 2^64 (U is the unsigned type). Constants are
 * limited to what the type can hold, so that a limit of ±∞ in clip has no effect. */
/* clang-format off */
#define INTEGERS(X)                            \
    X(neg,      y = (T)(0 - (U)x))             \
    X(abs,      y = x < 0 ? (T)(0 - (U)x) : x) \
    X(sign,     y = (x > 0) - (x < 0))         \
    X(square,   y = (T)((U)x * (U)x))          \
    X(relu,     y = x < 0 ? 0 : x)             \
    X(scale,    y = (T)((U)a * (U)x))          \
    X(shift,    y = (T)((U)a + (U)x))          \
    X(clip,     y = x < a ? a : x > b ? b : x)
/* clang-format on */
static int64_t saturated(double c, int64_t low, int64_t high)
{
    return c <= (double)low ? low : c >= (double)high ? high : (int64_t)c;
}
#define KERNEL_INT(NAME, LOW, HIGH, VALUE)                                \
    static void NAME(int64_t n, char *const *p, const double *c)          \
    {                                                                     \
        T *out = (T *)p[0];                                               \
        const T *in = (const T *)p[1], a = (T)saturated(c[0], LOW, HIGH), \
                b = (T)saturated(c[1], LOW, HIGH);                        \
        (void)a, (void)b;                                                 \
        for (int64_t k = 0; k < n; k++) {                                 \
            const T x = in[k];                                            \
            T y;                                                          \
            VALUE;                                                        \
            out[k] = y;                                                   \
        }                                                                 \
    }
#define T                   int32_t
#define U                   uint32_t
#define KERNEL(NAME, VALUE) KERNEL_INT(NAME##_i32, INT32_MIN, INT32_MAX, VALUE)
INTEGERS(KERNEL)
#undef T
#undef U
#undef KERNEL
#define T                   int64_t
#define U                   uint64_t
#define KERNEL(NAME, VALUE) KERNEL_INT(NAME##_i64, INT64_MIN, INT64_MAX, VALUE)
INTEGERS(KERNEL)
#undef T
#undef U
#undef KERNEL

/* -- what each line of a table becomes: shape, forward, rule, samples, row, constructor -------- */
#define FLOATS(NAME)  [EG_F32] = NAME##_f32, [EG_F64] = NAME##_f64, [EG_C128] = NAME##_c128
#define NUMBERS(NAME) FLOATS(NAME), [EG_I32] = NAME##_i32, [EG_I64] = NAME##_i64
#define RULE(NAME, DX)                                               \
    static eg_tensor *NAME##_rule(eg_tensor *y, eg_tensor *g, int i) \
    {                                                                \
        eg_tensor *x = y->in[i];                                     \
        const double a = y->attr ? pointwise_constant(y, 0) : 0;     \
        (void)x, (void)a, (void)g;                                   \
        return DX;                                                   \
    }
#define OP(NAME, RULE_OF, READS, SAMPLED, TYPES, EQUATION, GRADIENT, CALL)                     \
    static const kernels NAME##_kernels = { { TYPES(NAME) } };                                 \
    static bool NAME##_shape(eg_tensor *y) { return pointwise_shape(y, &NAME##_kernels); }     \
    static bool NAME##_forward(eg_tensor *y) { return pointwise_forward(y, &NAME##_kernels); } \
    static eg_tensor *NAME##_call(eg_tensor *const *x) { return CALL; }                        \
    static const eg_sample NAME##_samples[] = { SAMPLED(NAME##_call), { 0 } };                 \
    static const eg_op NAME##_op = { #NAME,                                                    \
                                     EQUATION,                                                 \
                                     GRADIENT,                                                 \
                                     1,                                                        \
                                     NAME##_shape,                                             \
                                     NAME##_forward,                                           \
                                     RULE_OF,                                                  \
                                     EG_USES_##READS,                                          \
                                     NAME##_samples,                                           \
                                     .jvp = eg_jvp_symmetric,                                  \
                                     .forward_c128 = NAME##_forward };

#define DEFINE(CALL, NAME, VALUE, DX, READS, SAMPLED, TYPES, EQUATION, GRADIENT) \
    RULE(NAME, DX)                                                               \
    OP(NAME, NAME##_rule, READS, SAMPLED, TYPES, EQUATION, GRADIENT, CALL(x[0])) \
    eg_tensor *CALL(eg_tensor *x) { return eg_apply(&NAME##_op, NULL, 0, 1, &x); }
#define DEFINE_JUMP(CALL, NAME, VALUE, SAMPLED, TYPES, EQUATION)                    \
    OP(NAME, eg_zero_rule, NOTHING, SAMPLED, TYPES, EQUATION, "dx = 0", CALL(x[0])) \
    eg_tensor *CALL(eg_tensor *x) { return eg_apply(&NAME##_op, NULL, 0, 1, &x); }
#define DEFINE_WITH_CONSTANTS(CALL, NAME, VALUE, DX, READS, SAMPLED, TYPES, EQUATION, GRADIENT, \
                              SAMPLE)                                                           \
    RULE(NAME, DX)                                                                              \
    OP(NAME, NAME##_rule, READS, SAMPLED, TYPES, EQUATION, GRADIENT, SAMPLE)
ROWS(DEFINE)
JUMPS(DEFINE_JUMP)
WITH_CONSTANTS(DEFINE_WITH_CONSTANTS)

/* Applies a row with constants a and b. An integer operand takes only whole constants that its type
 * can hold; limits of clip may be larger, and ±∞. */
static eg_tensor *with_constants(const eg_op *op, eg_tensor *x, double a, double b)
{
    if (!eg__check(op->name, x)) return eg__poison(x ? x->cx : NULL);
    if (eg__is_int(x->dtype)) {
        const double most = op == &clip_op ? INFINITY : x->dtype == EG_I32 ? 0x1p31 : 0x1p63;
        for (int k = 0; k < 2; k++) {
            double c = k ? b : a;
            if (floor(c) != c || fabs(c) > most)
                return eg_fail_as(x->cx, EG_ERROR_DTYPE,
                                  "%s: operand 1 is %s and cannot take the constant %g; cast it to "
                                  "f32 or f64 first",
                                  op->name, eg_type_name(x->dtype), c);
        }
    }
    return eg_apply(op, &(constants){ { a, b } }, sizeof(constants), 1, &x);
}
eg_tensor *eg_scale(eg_tensor *x, double c) { return with_constants(&scale_op, x, c, 0); }
eg_tensor *eg_shift(eg_tensor *x, double c) { return with_constants(&shift_op, x, c, 0); }
eg_tensor *eg_leaky_relu(eg_tensor *x, double slope)
{
    return with_constants(&leaky_relu_op, x, slope, 0);
}
eg_tensor *eg_elu(eg_tensor *x, double alpha) { return with_constants(&elu_op, x, alpha, 0); }
eg_tensor *eg_clip(eg_tensor *x, double low, double high)
{
    if (low <= high) return with_constants(&clip_op, x, low, high);
    if (!eg__check("clip", x)) return eg__poison(x ? x->cx : NULL);
    return eg_fail_as(x->cx, EG_ERROR_MISUSE,
                      "clip: the low limit %g is not below the high limit %g", low, high);
}

/* -- powc: y = x^c, dx = g c x^(c−1); small powers by multiplication -------------------------- */
static const kernels powc_kernels = { { FLOATS(powc) } }, cube_kernels = { { FLOATS(cube) } };
static bool powc_shape(eg_tensor *y) { return pointwise_shape(y, &powc_kernels); }
static bool powc_forward(eg_tensor *y)
{
    const double c = pointwise_constant(y, 0);
    return pointwise_forward(y, c == 1    ? &scale_kernels
                                : c == 2  ? &square_kernels
                                : c == 3  ? &cube_kernels
                                : c == -1 ? &recip_kernels
                                          : &powc_kernels);
}
static eg_tensor *powc_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const double c = pointwise_constant(y, 0);
    if (c == 0) return eg_zero_rule(y, g, i); /* 0 · x^−1 would be NaN at 0 */
    return c == 1 ? g : eg_mul(g, eg_scale(c == 2 ? y->in[i] : eg_powc(y->in[i], c - 1), c));
}
static eg_tensor *powc_call(eg_tensor *const *x) { return eg_powc(x[0], 2.5); }
static eg_tensor *powc_cube_call(eg_tensor *const *x) { return eg_powc(x[0], 3); }
static eg_tensor *powc_recip_call(eg_tensor *const *x) { return eg_powc(x[0], -1); }
static const eg_sample powc_samples[] = {
    POSITIVE(powc_call), EVERYWHERE(powc_cube_call), POSITIVE(powc_recip_call), { 0 }
};
static const eg_op powc_op = { "powc",
                               "y = x^c",
                               "dx = g c x^(c−1)",
                               1,
                               powc_shape,
                               powc_forward,
                               powc_rule,
                               EG_USES_OPERANDS,
                               powc_samples,
                               .jvp = eg_jvp_symmetric,
                               .forward_c128 = powc_forward };
eg_tensor *eg_powc(eg_tensor *x, double c) { return with_constants(&powc_op, x, c, 0); }

#define LIST(CALL, NAME, ...) &NAME##_op,
const eg_op *const eg__pointwise_rows[] = { ROWS(LIST) JUMPS(LIST) WITH_CONSTANTS(LIST) & powc_op,
                                            NULL };
