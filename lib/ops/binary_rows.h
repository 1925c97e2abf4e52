/* binary_rows.h: the operations of binary.c. The file is included once for each type, with macros
 * that generate kernels (binary_of.h), and twice for the other parts of an operation.
 *
 *   EXACT(function, name, value, da, db, what these read, dtypes, equation, gradient)
 *
 * The value is an expression of a and b in IEEE arithmetic only. The maximum and the minimum are
 * NaN if an operand is. U is the unsigned type of an integer, which wraps, else T. */
/* clang-format off */
EXACT(eg_sub, sub,
    (U)a - (U)b,
    g, eg_neg(g), NOTHING, NUMBERS,
    "y = a − b", "da = g, db = −g")
EXACT(eg_mul, mul,
    (U)a * (U)b,
    eg_mul(g, b), eg_mul(g, a), OTHERS, NUMBERS,
    "y = a b", "da = g b, db = g a")
EXACT(eg_maximum, maximum,
    EG_RE(a) > EG_RE(b) || a != a ? a : b,
    binary_share(eg_gt, a, b, g), binary_share(eg_gt, b, a, g), OPERANDS, NUMBERS,
    "y = max(a, b)", "da = g [a > b] + g/2 [a = b]")
EXACT(eg_minimum, minimum,
    EG_RE(a) < EG_RE(b) || a != a ? a : b,
    binary_share(eg_lt, a, b, g), binary_share(eg_lt, b, a, g), OPERANDS, NUMBERS,
    "y = min(a, b)", "da = g [a < b] + g/2 [a = b]")
#if !INTEGERS
EXACT(eg_div, div,
    a / b,
    eg_div(g, b), eg_neg(eg_div(eg_mul(g, y), b)), ALL, FLOATS,
    "y = a / b", "da = g / b, db = −g y / b")

/* Functions, whose kernels compute whole groups of EG_LANES elements. `value` sets y from a and b,
 * all of type T; F(log) is log, logf or clog, F(epow)(x) is e^x, R(…) the real part:
 *
 *   FUNCTION(function, name, value, da, db, what these read, dtypes, equation, gradient)
 *
 * A row STAGED has one more column, before `value`: e from b, computed in a loop of its own
 * (tensor/lanes_of.h); its `value` sets y from a, b and e. */
FUNCTION(eg_atan2, atan2,
    y = F(atan2)(a, b),
    angle_slope(g, b, eg_hypot(a, b)), eg_neg(angle_slope(g, a, eg_hypot(a, b))), OPERANDS, FLOATS,
    "y = the angle of (b, a)", "da = g b / (a² + b²), db = −g a / (a² + b²)")
FUNCTION(eg_hypot, hypot,
    y = F(hypot)(a, b),
    eg_mul(g, ratio_or_zero(a, y)), eg_mul(g, ratio_or_zero(b, y)), ALL, FLOATS,
    "y = √(a² + b²)", "da = g a / y, db = g b / y")
FUNCTION(eg_logaddexp, logaddexp,
    y = a == b ? a + (T)M_LN2 : (R(a) < R(b) ? b : a) + F(log1p)(F(epow)(-F(fabs)(a - b))),
    eg_mul(g, eg_sigmoid(logit_of_share(y, a, b))), eg_mul(g, eg_sigmoid(logit_of_share(y, b, a))),
    ALL, FLOATS, "y = ln(e^a + e^b)", "da = g σ(a − b), db = g σ(b − a)")

/* Binary cross entropy of the target a and the logit b, and its slope by the logit: terms that do
 * not cancel where e^b is large or small. */
STAGED(eg__bce, bce,
    F(epow)(-F(fabs)(b)), y = (R(b) < 0 ? a * -b : (1 - a) * b) + F(log1p)(e),
    eg_neg(eg_mul(g, b)), eg_mul(g, eg__bce_slope(a, b)), OPERANDS, FLOATS,
    "y = max(b, 0) − a b + ln(1 + e^−|b|)", "da = −g b, db = g (σ(b) − a)")
STAGED(eg__bce_slope, bce_slope,
    F(epow)(-F(fabs)(b)),
      y = ((1 - a) * (R(b) < 0 ? e : 1) - a * (R(b) < 0 ? 1 : e)) / (1 + e),
    eg_neg(g), eg__sigmoid_slope(g, b), OPERANDS, FLOATS,
    "y = (1 − a) σ(b) − a σ(−b)", "da = −g, db = g σ(b) σ(−b)")

/* y = a f′(b) in one pass: the gradients of the functions f of pointwise.c, with the cotangent a.
 * They are computed from the operand b of f instead of its result, because 1 − f(b) cancels where
 * tanh or σ is close to 1; σ′ = σ(b) σ(−b) is a product and does not cancel. Where an infinite b
 * would be multiplied by a factor that tends to 0, the product is 0. */
STAGED(eg__tanh_slope, tanh_slope,
    F(epow)(-2 * F(fabs)(b)), (void)b; y = a * (4 * e / ((1 + e) * (1 + e))),
    eg__tanh_slope(g, b), eg_scale(eg_mul(eg_mul(g, y), eg_tanh(b)), -2), ALL, FLOATS,
    "y = a (1 − tanh² b)", "da = g (1 − tanh² b), db = −2 g y tanh b")
STAGED(eg__sigmoid_slope, sigmoid_slope,
    F(epow)(-F(fabs)(b)), (void)b; y = a * (e / ((1 + e) * (1 + e))),
    eg__sigmoid_slope(g, b), eg_neg(eg_mul(eg_mul(g, y), eg_tanh(eg_scale(b, .5)))), ALL, FLOATS,
    "y = a σ(b) σ(−b)", "da = g σ(b) σ(−b), db = −g y tanh(b/2)")
FUNCTION(eg__gelu_slope, gelu_slope,
    y = a * F(gelu_slope)(b),
    eg__gelu_slope(g, b), gelu_curve(eg_mul(g, a), b), OPERANDS, FLOATS,
    "y = a (Φ(b) + b φ(b))", "da = g (Φ(b) + b φ(b)), db = g a φ(b) (2 − b²)")
STAGED(eg__gelu_tanh_slope, gelu_tanh_slope,
    F(epow)(-F(fabs)(b * ((T)EG_GELU_1 + (T)EG_GELU_3 * b * b))),
      const T z = R(F(fabs)(b)) < 1000 ? b : 0;
      const T v = b * ((T)EG_GELU_1 + (T)EG_GELU_3 * b * b);
      y = a * ((R(v) < 0 ? e : 1) / (1 + e)
          + z * ((T)EG_GELU_1 + (T)(3 * EG_GELU_3) * z * z) * (e / ((1 + e) * (1 + e)))),
    eg__gelu_tanh_slope(g, b), gelu_tanh_curve(eg_mul(g, a), b), OPERANDS, FLOATS,
    "y = a (σ(v) + b v′ σ′(v))",
    "da = g (σ(v) + b v′ σ′(v)), db = g a σ′(v) (2v′ + b v″ − b v′² tanh(v/2))")
STAGED(eg__silu_slope, silu_slope,
    F(epow)(-F(fabs)(b)), const T z = R(F(fabs)(b)) < 1000 ? b : 0;
      y = a * ((R(b) < 0 ? e : 1) / (1 + e) + z * (e / ((1 + e) * (1 + e)))),
    eg__silu_slope(g, b), silu_curve(eg_mul(g, a), b), OPERANDS, FLOATS,
    "y = a (σ(b) + b σ′(b))", "da = g (σ(b) + b σ′(b)), db = g a σ′(b) (2 − b tanh(b/2))")

/* The same for functions whose b is limited, as FUNCTION with the range of the samples after the
 * name. 1 − b² is a product, which does not cancel near 1. Beyond 2^60, where b² may overflow,
 * √(b² ± 1) is |b|; up to there the last factor is 1. */
SLOPE(eg__asin_slope, asin_slope, -.8, .8,
    y = a / F(sqrt)((1 - b) * (1 + b)),
    eg__asin_slope(g, b), eg_mul(eg_mul(g, y), eg__atanh_slope(b, b)), ALL, FLOATS,
    "y = a / √(1 − b²)", "da = g / √(1 − b²), db = g y b / (1 − b²)")
SLOPE(eg__atanh_slope, atanh_slope, -.8, .8,
    y = a / ((1 - b) * (1 + b)),
    eg__atanh_slope(g, b), eg_scale(eg_mul(eg_mul(g, y), eg__atanh_slope(b, b)), 2), ALL, FLOATS,
    "y = a / (1 − b²)", "da = g / (1 − b²), db = 2 g y b / (1 − b²)")
SLOPE(eg__acosh_slope, acosh_slope, 1.2, 3,
    const T most = (T)0x1p60; const T m = F(fabs)(b); const T z = R(m) < R(most) ? b : most;
      y = a * (1 / F(sqrt)((z - 1) * (z + 1))) * (most / (R(m) < R(most) ? most : m)),
    eg__acosh_slope(g, b), eg_neg(eg_mul(eg_mul(g, y), eg__acosh_slope(eg__acosh_slope(b, b), b))),
    ALL, FLOATS,
    "y = a / √(b² − 1)", "da = g / √(b² − 1), db = −g y b / (b² − 1)")
SLOPE(eg__asinh_slope, asinh_slope, -3, 3,
    const T most = (T)0x1p60; const T m = F(fabs)(b); const T z = R(m) < R(most) ? b : most;
      y = a * (1 / F(sqrt)(z * z + 1)) * (most / (R(m) < R(most) ? most : m)),
    eg__asinh_slope(g, b), eg_neg(eg_mul(eg_mul(g, y), eg__asinh_slope(eg__asinh_slope(b, b), b))),
    ALL, FLOATS,
    "y = a / √(b² + 1)", "da = g / √(b² + 1), db = −g y b / (b² + 1)")
#endif
/* clang-format on */
#undef EXACT
#undef FUNCTION
#undef SLOPE
#undef STAGED
