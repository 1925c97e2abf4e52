/* expression_rows.h: the functions of floats in expressions, with their derivatives.
 *
 *   EG_FUNCTIONS_1(X)   X(CODE, name, e from x, y from x and e, cotangent from g, x, y and e,
 *                         the same two as operations of tensors)
 *   EG_FUNCTIONS_2(X)   X(CODE, name, y from a and b, cotangents of a and of b,
 *                         the same three as operations of tensors)
 *
 * expression_names.c uses the names, expression_loops.c the formulas for elements, and
 * lib/expression/expr.c those for tensors. e is 0, or an exponential that is computed in a loop of
 * its own (tensor/lanes_of.h); the cotangent reads it only where eg__keeps_first
 * (expression_loops.h) is true, y where eg__slope_reads_value is. F(log) is log or logf, F(epow)(x)
 * is e^x and F(etanh_last)(x, F(etanh_first)(x)) is tanh x (tensor/epow.h), T is the type, and
 * RATIO(a, b) is a / b. Derivatives at kinks and of ties are those of the operations in lib/ops. */
#ifndef EG_EXPRESSION_ROWS_H
#define EG_EXPRESSION_ROWS_H

/* clang-format off */
#define EG_FUNCTIONS_1(X)                                                                          \
    X(NEG,      "",          0, -x, -g,                                                            \
      eg_neg(x), eg_neg(g))                                                                        \
    X(ABS,      "abs",       0, F(fabs)(x), x > 0 ? g : x < 0 ? -g : x * g,                        \
      eg_abs(x), eg_mul(g, eg_sign(x)))                                                            \
    X(EXP,      "exp",       0, F(epow)(x), g * y,                                                 \
      eg_exp(x), eg_mul(g, y))                                                                     \
    X(LOG,      "log",       0, F(log)(x), g / x,                                                  \
      eg_log(x), eg_div(g, x))                                                                     \
    X(SQRT,     "sqrt",      0, F(sqrt)(x), g / y * (T).5,                                         \
      eg_sqrt(x), eg_scale(eg_div(g, y), .5))                                                      \
    X(TANH,     "tanh",      F(etanh_first)(x), F(etanh_last)(x, e), F(slope_of_tanh)(g, x, e),    \
      eg_tanh(x), eg__tanh_slope(g, x))                                                            \
    X(SIGMOID,  "sigmoid",   F(epow)(-F(fabs)(x)),                                                 \
      (x < 0 ? e : 1) / (1 + e), g * (e / ((1 + e) * (1 + e))),                                    \
      eg_sigmoid(x), eg__sigmoid_slope(g, x))                                                      \
    X(SOFTPLUS, "softplus",  F(epow)(-F(fabs)(x)),                                                 \
      (x < 0 ? 0 : x) + F(log1p)(e), g * ((x < 0 ? e : 1) / (1 + e)),                              \
      eg_softplus(x), eg_mul(g, eg_sigmoid(x)))                                                    \
    X(ERF,      "erf",       0, F(erf)(x), g * F(epow)(-(x * x)) * (T)M_2_SQRTPI,                  \
      eg_erf(x), eg_scale(eg_mul(g, eg_exp(eg_neg(eg_square(x)))), M_2_SQRTPI))                    \
    X(SIN,      "sin",       0, F(sin)(x), g * F(cos)(x),                                          \
      eg_sin(x), eg_mul(g, eg_cos(x)))                                                             \
    X(COS,      "cos",       0, F(cos)(x), -(g * F(sin)(x)),                                       \
      eg_cos(x), eg_neg(eg_mul(g, eg_sin(x))))                                                     \
    X(FLOOR,    "floor",     0, F(floor)(x), 0,                                                    \
      eg_floor(x), NULL)
#define EG_FUNCTIONS_2(X)                                                                          \
    X(ADD, "",    a + b,      g,               g,                                                  \
      eg_add(a, b),           g,               g)                                                  \
    X(SUB, "",    a - b,      g,               -g,                                                 \
      eg_sub(a, b),           g,               eg_neg(g))                                          \
    X(MUL, "",    a * b,      g * b,           g * a,                                              \
      eg_mul(a, b),           eg_mul(g, b),    eg_mul(g, a))                                       \
    X(DIV, "",    RATIO(a, b), RATIO(g, b),    -(g * y / b),                                       \
      eg_div(a, b),           eg_div(g, b),    eg_neg(eg_div(eg_mul(g, y), b)))                    \
    X(MIN, "min", a < b || a != a ? a : b,                                                         \
      a == b ? g * (T).5 : a < b ? g : 0,      a == b ? g * (T).5 : b < a ? g : 0,                 \
      eg_minimum(a, b),       tie(eg_lt, a, b, g), tie(eg_lt, b, a, g))                            \
    X(MAX, "max", a > b || a != a ? a : b,                                                         \
      a == b ? g * (T).5 : a > b ? g : 0,      a == b ? g * (T).5 : b > a ? g : 0,                 \
      eg_maximum(a, b),       tie(eg_gt, a, b, g), tie(eg_gt, b, a, g))                            \
    X(POW, "pow", F(pow)(a, b),                                                                    \
      g * (b * (b == 0 && !(F(fabs)(a) * MOST > 1) ? 0 : F(pow)(a, b - 1))),                     \
      g * (y * F(log)(a == 0 && b >= 0 ? 1 : a)),                                                  \
      eg_pow(a, b),           eg__pow_slope(a, b, y, g, 0), eg__pow_slope(a, b, y, g, 1))
/* clang-format on */
#endif
