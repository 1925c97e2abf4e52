/* pointwise_rows.h: the operations of pointwise.c. The file is included once for each type, with
 * macros that generate kernels (pointwise_of.h), and twice for the other parts of an operation.
 *
 *   ROW(function, name, value, cotangent dx from x, y and g, what dx reads, range of the samples,
 *       dtypes, equation, gradient)
 *
 * `value` sets y from x, both of type T; F(log) is log, logf or clog, F(epow)(x) is e^x (and
 * F(etanh_first), F(etanh_last): tensor/epow.h). A row STAGED has one more column, before `value`:
 * e from x, computed in a loop of its own; its `value` sets y from x and e. Functions of few
 * instructions are rows SHORT: prefetching their operand gains nothing. Conditions compare R(…),
 * the real part (tensor/complex.h); where the function is smooth, both branches agree at the
 * boundary.
 *
 * Large arguments do not give NaN by overflow: exponentials have arguments ≤ 0; and where x is
 * multiplied by a factor that tends to 0 towards −∞, as in gelu, x is limited to −1000, where the
 * factor is 0 already, so that 0 · ∞ does not occur. */
/* clang-format off */
SHORT(eg_neg, neg,
    y = -x,
    eg_neg(g), NOTHING, EVERYWHERE, NUMBERS,
    "y = −x", "dx = −g")
SHORT(eg_abs, abs,
    y = F(fabs)(x),
    eg_mul(g, eg_sign(x)), OPERANDS, BOTH_SIDES, NUMBERS,
    "y = |x|", "dx = g sign x")
ROW(eg_exp, exp,
    y = F(epow)(x),
    eg_mul(g, y), RESULT, EVERYWHERE, EXPS,
    "y = e^x", "dx = g y")
ROW(eg_expm1, expm1,
    y = F(expm1)(x),
    eg_mul(g, eg_exp(x)), OPERANDS, EVERYWHERE, FLOATS,
    "y = e^x − 1", "dx = g e^x")
ROW(eg_log, log,
    y = F(log)(x),
    eg_div(g, x), OPERANDS, POSITIVE, FLOATS,
    "y = ln x", "dx = g / x")
ROW(eg_log1p, log1p,
    y = F(log1p)(x),
    eg_div(g, eg_shift(x, 1)), OPERANDS, POSITIVE, FLOATS,
    "y = ln(1 + x)", "dx = g / (1 + x)")
SHORT(eg_sqrt, sqrt,
    y = F(sqrt)(x),
    eg_scale(eg_div(g, y), .5), RESULT, POSITIVE, ROOTS,
    "y = √x", "dx = g / 2y")
SHORT(eg_rsqrt, rsqrt,
    y = 1 / F(sqrt)(x),
    eg_scale(eg_mul(g, eg_powc(y, 3)), -.5), RESULT, POSITIVE, FLOATS,
    "y = 1/√x", "dx = −g y³ / 2")
SHORT(eg_square, square,
    y = x * x,
    eg_scale(eg_mul(g, x), 2), OPERANDS, EVERYWHERE, NUMBERS,
    "y = x²", "dx = 2 g x")
SHORT(eg_recip, recip,
    y = 1 / x,
    eg_neg(eg_mul(g, eg_square(y))), RESULT, POSITIVE, FLOATS,
    "y = 1/x", "dx = −g y²")
ROW(eg_sin, sin,
    y = F(sin)(x),
    eg_mul(g, eg_cos(x)), OPERANDS, EVERYWHERE, FLOATS,
    "y = sin x", "dx = g cos x")
ROW(eg_cos, cos,
    y = F(cos)(x),
    eg_neg(eg_mul(g, eg_sin(x))), OPERANDS, EVERYWHERE, FLOATS,
    "y = cos x", "dx = −g sin x")
ROW(eg_tan, tan,
    y = F(tan)(x),
    eg_add(g, eg_mul(g, eg_square(y))), RESULT, INSIDE_1, FLOATS,
    "y = tan x", "dx = g (1 + y²)")
ROW(eg_asin, asin,
    y = F(asin)(x),
    eg__asin_slope(g, x), OPERANDS, INSIDE_1, FLOATS,
    "y = arcsin x", "dx = g / √(1 − x²)")
ROW(eg_acos, acos,
    y = F(acos)(x),
    eg_neg(eg__asin_slope(g, x)), OPERANDS, INSIDE_1, FLOATS,
    "y = arccos x", "dx = −g / √(1 − x²)")
ROW(eg_atan, atan,
    y = F(atan)(x),
    eg_div(g, eg_shift(eg_square(x), 1)), OPERANDS, EVERYWHERE, FLOATS,
    "y = arctan x", "dx = g / (1 + x²)")
ROW(eg_sinh, sinh,
    y = F(sinh)(x),
    eg_mul(g, eg_cosh(x)), OPERANDS, EVERYWHERE, FLOATS,
    "y = sinh x", "dx = g cosh x")
ROW(eg_cosh, cosh,
    y = F(cosh)(x),
    eg_mul(g, eg_sinh(x)), OPERANDS, EVERYWHERE, FLOATS,
    "y = cosh x", "dx = g sinh x")
ROW(eg_asinh, asinh,
    y = F(asinh)(x),
    eg__asinh_slope(g, x), OPERANDS, EVERYWHERE, FLOATS,
    "y = arsinh x", "dx = g / √(x² + 1)")
ROW(eg_acosh, acosh,
    y = F(acosh)(x),
    eg__acosh_slope(g, x), OPERANDS, ABOVE_1, FLOATS,
    "y = arcosh x", "dx = g / √(x² − 1)")
ROW(eg_atanh, atanh,
    y = F(atanh)(x),
    eg__atanh_slope(g, x), OPERANDS, INSIDE_1, FLOATS,
    "y = artanh x", "dx = g / (1 − x²)")
ROW(eg_exp2, exp2,
    y = F(exp2)(x),
    eg_scale(eg_mul(g, y), M_LN2), RESULT, EVERYWHERE, FLOATS,
    "y = 2^x", "dx = g y ln 2")
ROW(eg_log2, log2,
    y = F(log2)(x),
    eg_scale(eg_div(g, x), M_LOG2E), OPERANDS, POSITIVE, FLOATS,
    "y = log₂ x", "dx = g / (x ln 2)")
ROW(eg_log10, log10,
    y = F(log10)(x),
    eg_scale(eg_div(g, x), M_LOG10E), OPERANDS, POSITIVE, FLOATS,
    "y = log₁₀ x", "dx = g / (x ln 10)")
STAGED(eg_tanh, tanh,
    F(etanh_first)(x), y = F(etanh_last)(x, e),
    eg__tanh_slope(g, x), OPERANDS, EVERYWHERE, FLOATS,
    "y = tanh x", "dx = g (1 − tanh² x)")
STAGED(eg_sigmoid, sigmoid,
    F(epow)(-F(fabs)(x)), y = (R(x) < 0 ? e : 1) / (1 + e),
    eg__sigmoid_slope(g, x), OPERANDS, EVERYWHERE, FLOATS,
    "y = 1/(1 + e^−x)", "dx = g σ(x) σ(−x)")
ROW(eg_erf, erf,
    y = F(erf)(x),
    eg_scale(eg_mul(g, eg_exp(eg_neg(eg_square(x)))), M_2_SQRTPI), OPERANDS, EVERYWHERE, FLOATS,
    "y = erf x", "dx = g 2/√π e^−x²")
SHORT(eg_relu, relu,
    y = R(x) < 0 ? 0 : x,
    eg_mul(g, eg_sign(y)), RESULT, BOTH_SIDES, NUMBERS,
    "y = max(x, 0)", "dx = g [x > 0]")
ROW(eg_gelu, gelu,
    y = F(gelu)(x),
    eg__gelu_slope(g, x), OPERANDS, EVERYWHERE, FLOATS,
    "y = x Φ(x)", "dx = g (Φ(x) + x φ(x))")
STAGED(eg_gelu_tanh, gelu_tanh,
    F(epow)(-F(fabs)(x * ((T)EG_GELU_1 + (T)EG_GELU_3 * x * x))),
      const T z = R(x) < -1000 ? -1000 : x;
      const T v = x * ((T)EG_GELU_1 + (T)EG_GELU_3 * x * x); y = z * ((R(v) < 0 ? e : 1) / (1 + e)),
    eg__gelu_tanh_slope(g, x), OPERANDS, EVERYWHERE, FLOATS,
    "y = x σ(v), v = 2 √(2/π)(x + 0.044715 x³)", "dx = g (σ(v) + x v′ σ′(v))")
STAGED(eg_silu, silu,
    F(epow)(-F(fabs)(x)),
      const T z = R(x) < -1000 ? -1000 : x; y = z * ((R(x) < 0 ? e : 1) / (1 + e)),
    eg__silu_slope(g, x), OPERANDS, EVERYWHERE, FLOATS,
    "y = x σ(x)", "dx = g (σ(x) + x σ′(x))")
ROW(eg_softplus, softplus,
    y = (R(x) < 0 ? 0 : x) + F(log1p)(F(epow)(-F(fabs)(x))),
    eg_mul(g, eg_sigmoid(x)), OPERANDS, EVERYWHERE, FLOATS,
    "y = ln(1 + e^x)", "dx = g σ(x)")

/* Functions that are piecewise constant, whose gradient is 0 by definition:
 *
 *   JUMP(function, name, value, range of the samples, dtypes, equation) */
JUMP(eg_sign, sign,
    y = x != x ? x : (T)((R(x) > 0) - (R(x) < 0)),
    BOTH_SIDES, NUMBERS, "y = sign x")
JUMP(eg_floor, floor,
    y = F(floor)(x),
    FRACTIONS, FLOATS, "y = ⌊x⌋")
JUMP(eg_ceil, ceil,
    y = F(ceil)(x),
    FRACTIONS, FLOATS, "y = ⌈x⌉")
JUMP(eg_trunc, trunc,
    y = F(trunc)(x),
    FRACTIONS, FLOATS, "y = x without its fraction")
JUMP(eg_round, round,
    y = F(nearbyint)(x),
    HALVES, FLOATS, "y = the nearest whole number, halves to even")

/* Functions with constants a and b: as ROW, followed by the sampled call. pointwise.c defines the
 * functions themselves. */
WITH_CONSTANTS(eg_scale, scale,
    y = a * x,
    eg_scale(g, a), NOTHING, EVERYWHERE, NUMBERS,
    "y = a x", "dx = a g",
    eg_scale(x[0], -1.5))
WITH_CONSTANTS(eg_shift, shift,
    y = x + a,
    g, NOTHING, EVERYWHERE, NUMBERS,
    "y = x + a", "dx = g",
    eg_shift(x[0], -1.5))
WITH_CONSTANTS(eg_leaky_relu, leaky_relu,
    y = R(x) > 0 ? x : a * x,
    eg_where(eg_gt(x, eg__zero_like(x)), g, eg_scale(g, a)), OPERANDS, BOTH_SIDES, FLOATS,
    "y = x > 0 ? x : a x", "dx = x > 0 ? g : a g",
    eg_leaky_relu(x[0], .2))
WITH_CONSTANTS(eg_elu, elu,
    const T z = R(x) > 0 ? 0 : x; const T e = F(expm1)(z); y = R(x) > 0 ? x : a * e,
    a == 1 ? eg_mul(g, eg_exp(eg_clip(x, -INFINITY, 0))) /* the factor e^0 = 1 is exact */
      : eg_where(eg_gt(x, eg__zero_like(x)), g,
          eg_mul(g, eg_scale(eg_exp(eg_clip(x, -INFINITY, 0)), a))),
      OPERANDS, BOTH_SIDES, FLOATS,
    "y = x > 0 ? x : a (e^x − 1)", "dx = x > 0 ? g : g a e^x",
    eg_elu(x[0], .7))
WITH_CONSTANTS(eg_clip, clip,
    y = R(x) < a ? a : R(x) > b ? b : x,
    eg_where(eg_eq(x, y), g, eg__zero_like(g)), ALL, THREE_PARTS, NUMBERS,
    "y = min(max(x, a), b)", "dx = a ≤ x ≤ b ? g : 0",
    eg_clip(x[0], -1, 1))
WITH_CONSTANTS(eg__huber, huber,
    const T m = F(fabs)(x); y = R(m) <= a ? x * (x / 2) : a * (m - a / 2),
    eg_mul(g, eg_clip(x, -a, a)), OPERANDS, THREE_PARTS, FLOATS,
    "y = |x| ≤ a ? x²/2 : a (|x| − a/2)", "dx = g min(max(x, −a), a)",
    eg__huber(x[0], 1))
/* clang-format on */
#undef ROW
#undef SHORT
#undef STAGED
#undef JUMP
#undef WITH_CONSTANTS
