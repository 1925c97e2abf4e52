/* test_pointwise.c: values of functions of one and two operands compared with libm, at the limits
 * of the number range, at any position of an element, with broadcasting; refusals. */
#include <eingrad/check.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "fixtures.h"
#include "gradcheck/gradcheck.h"
#include "random_views.h"
#include "tests.h"

extern const eg_op *const eg__pointwise_ops[];

/* -- references in long double ---------------------------------------------------------------- */
typedef long double real;
static real r_rsqrt(real x) { return 1 / sqrtl(x); }
static real r_recip(real x) { return 1 / x; }
static real r_square(real x) { return x * x; }
static real r_sigmoid(real x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }
static real r_softplus(real x) { return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x))); }
static real r_relu(real x) { return x < 0 ? 0 : x; }
static real r_silu(real x) { return x == -INFINITY ? 0 : x * r_sigmoid(x); }
static real r_gelu(real x) { return x == -INFINITY ? 0 : x * erfcl(-x / sqrtl(2)) / 2; }
static real r_gelu_tanh(real x)
{
    return x == -INFINITY ? 0
                          : x * r_sigmoid(2 * sqrtl(2 / acosl(-1)) * (x + .044715L * x * x * x));
}
static real r_sign(real x) { return x != x ? x : (real)((x > 0) - (x < 0)); }
static real r_neg(real x) { return -x; }

/* loose: Φ and σ in a product lose relative, not absolute accuracy where they are near 0; the error
 * is measured in ulps of x. */
static const struct function {
    const char *name;
    eg_tensor *(*f)(eg_tensor *);
    real (*of)(real);
    bool loose;
} functions[] = {
    { "neg", eg_neg, r_neg, false },
    { "abs", eg_abs, fabsl, false },
    { "sign", eg_sign, r_sign, false },
    { "exp", eg_exp, expl, false },
    { "expm1", eg_expm1, expm1l, false },
    { "log", eg_log, logl, false },
    { "log1p", eg_log1p, log1pl, false },
    { "sqrt", eg_sqrt, sqrtl, false },
    { "rsqrt", eg_rsqrt, r_rsqrt, false },
    { "square", eg_square, r_square, false },
    { "recip", eg_recip, r_recip, false },
    { "sin", eg_sin, sinl, false },
    { "cos", eg_cos, cosl, false },
    { "tanh", eg_tanh, tanhl, false },
    { "sigmoid", eg_sigmoid, r_sigmoid, false },
    { "erf", eg_erf, erfl, false },
    { "relu", eg_relu, r_relu, false },
    { "softplus", eg_softplus, r_softplus, false },
    { "floor", eg_floor, floorl, false },
    { "gelu", eg_gelu, r_gelu, true },
    { "gelu_tanh", eg_gelu_tanh, r_gelu_tanh, true },
    { "silu", eg_silu, r_silu, true },
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static const double special[] = {
    0,      -0.,     1,       -1,       INFINITY, -INFINITY, NAN,      5e-324, -5e-324, 2.3e-308,
    1e-310, -1e-310, 1.4e-45, -1.4e-45, 1e-40,    1.7e308,   -1.7e308, 3.4e38, -3.4e38, 1000,
    -1000,  709.7,   709.8,   -708.5,   -745,     -745.2,    88.7,     88.8,   -87.5,   -103.9,
    -104,   1e15,    1e22,    -1e22,    3e9,      1e5,       .5,       -.5,
};
enum { SPECIAL = sizeof special / sizeof *special, MANY = 20011 };

/* special values, then dense ones: near 0, ordinary, of exponentially growing size */
static double *samples(void)
{
    double *x = malloc(MANY * sizeof *x);
    memcpy(x, special, sizeof special);
    uint64_t s = 1;
    for (int k = SPECIAL; k < MANY; k++) {
        s = s * 6364136223846793005 + 1442695040888963407;
        double u = (double)(s >> 11) * 0x1p-53, sign = s >> 5 & 1 ? 1 : -1;
        x[k] = sign * (k % 4 == 0   ? 10 * u
                       : k % 4 == 1 ? 750 * u
                       : k % 4 == 2 ? exp(1400 * u - 700)
                                    : exp(60 * u - 50));
    }
    return x;
}

/* |got − want| in units of the last place of `measure` */
static double ulps(double got, real want, double measure, bool single)
{
    double w = single ? (double)(float)want : (double)want;
    if (isnan(got) || isnan(w)) return isnan(got) && isnan(w) ? 0 : INFINITY;
    if (isinf(got) || isinf(w)) return got == w ? 0 : INFINITY;
    double m = fmax(fabs(w), fabs(measure));
    double ulp =
        single ? (double)(nextafterf((float)m, INFINITY) - (float)m) : nextafter(m, INFINITY) - m;
    return (double)fabsl(got - want) / ulp;
}

LOOP_TEST(within_4_ulp_of_libm, FUNCTIONS)
{
    const struct function *f = &functions[_i];
    eg_ctx *cx = eg_open();
    double *x = samples();
    float *single = malloc(MANY * sizeof *single);
    for (int k = 0; k < MANY; k++) single[k] = (float)x[k];
    const double *y = eg_f64(f->f(eg_from(cx, x, MANY)));
    const float *z = eg_f32(f->f(eg_from(cx, single, MANY)));
    for (int k = 0; k < MANY; k++) {
        double e = ulps(y[k], f->of(x[k]), f->loose && isfinite(x[k]) ? x[k] : 0, false);
        ck_assert_msg(e <= 4, "%s(%.17g) = %.17g, but %.17Lg: %g ulp", f->name, x[k], y[k],
                      f->of(x[k]), e);
        e = ulps(z[k], f->of(single[k]), f->loose && isfinite(single[k]) ? single[k] : 0, true);
        ck_assert_msg(e <= 4, "f32: %s(%.9g) = %.9g, but %.9Lg: %g ulp", f->name, single[k], z[k],
                      f->of(single[k]), e);
    }
    free(x);
    free(single);
    eg_close(cx);
}

/* lib/tensor/epow.h: e^x and tanh x in f32 have errors of at most 1.2 and 1.35 ulp, and the same
 * bits on every processor that fuses products and sums, with any vectors, and on every other
 * processor; so have the weights of a softmax. libmvec's functions have larger errors (3 and 2.2
 * ulp), and different bits on different processors. */
TEST(exponentials_have_the_same_bits_on_every_processor)
{
    enum { N = 65536, COLUMNS = 37, ROWS = N / COLUMNS };
    const uint64_t fused = 0xd28a68323206427e, apart = 0xd9ed8a24e592aba4;
    eg_ctx *cx = eg_open();
    float *x = malloc(N * sizeof *x);
    for (uint32_t k = 0; k < N; k++) {
        const uint32_t bits = k * 65537; /* every 65537th float */
        memcpy(x + k, &bits, sizeof bits);
        if (x[k] != x[k]) x[k] = 0; /* the sign of a NaN depends on the processor */
    }
    eg_tensor *in = eg_from(cx, x, N);
    const float *y = eg_f32(eg_exp(in));
    uint64_t h = EG_HASH_START;
    for (int k = 0; k < N; k++) {
        const double e = ulps(y[k], exp(x[k]), 0, true);
        ck_assert_msg(e <= 1.2, "exp(%.9g) = %.9g: %g ulp", x[k], y[k], e);
    }
    h = eg_hash(h, y, N * sizeof *y);
    for (uint32_t k = 0; k < N; k++) x[k] = 12 * (float)(k * 40503 % N) / N;
    const float *w = eg_f32(eg_softmax("i [j]", eg_from(cx, x, ROWS, COLUMNS)));
    h = eg_hash(h, w, (size_t)ROWS * COLUMNS * sizeof *w);
    ck_assert_msg(h == fused || h == apart, "hash 0x%" PRIx64, h);
    free(x);
    eg_close(cx);
}
/* All floats in steps of 65537, and 65536 of them where tanh bends. */
TEST(tanh_has_the_same_bits_on_every_processor)
{
    enum { N = 65536 };
    const uint64_t fused = 0x3fd16d3907484896, apart = 0xff751483620a79d5;
    eg_ctx *cx = eg_open();
    float *x = malloc(N * sizeof *x);
    uint64_t h = EG_HASH_START;
    for (int bent = 0; bent < 2; bent++) {
        for (uint32_t k = 0; k < N; k++) {
            const uint32_t bits = bent ? 0x3c000000 + k * 1039 : k * 65537; /* from 2^-7 to 10.1 */
            memcpy(x + k, &bits, sizeof bits);
            if (x[k] != x[k]) x[k] = 0;
        }
        const float *y = eg_f32(eg_tanh(eg_from(cx, x, N)));
        for (int k = 0; k < N; k++) {
            const double e = ulps(y[k], tanh(x[k]), 0, true);
            ck_assert_msg(e <= 1.35, "tanh(%.9g) = %.9g: %g ulp", x[k], y[k], e);
        }
        h = eg_hash(h, y, N * sizeof *y);
    }
    ck_assert_msg(h == fused || h == apart, "hash 0x%" PRIx64, h);
    ck_assert(isnan(eg_item(eg_tanh(eg_cast(eg_scalar(cx, NAN), EG_F32)))));
    free(x);
    eg_close(cx);
}

/* Softmax computes e^x for x from −87 to 0 without the other cases: the same bits. */
TEST(softmax_has_the_bits_of_exp)
{
    enum { N = 4096 };
    eg_ctx *cx = eg_open();
    float x[N][2];
    for (int k = 0; k < N; k++) x[k][0] = 0, x[k][1] = -86.99f * (float)k / N;
    eg_tensor *in = eg_from(cx, &x[0][0], N, 2);
    const float *e = eg_f32(eg_copy(eg_exp(in))), *w = eg_f32(eg_softmax("i [j]", in));
    for (int k = 0; k < N; k++) {
        const float each = (float)(1 / (double)(e[2 * k] + e[2 * k + 1]));
        ck_assert_msg(w[2 * k + 1] == e[2 * k + 1] * each, "%g: %.9g, not %.9g", x[k][1],
                      w[2 * k + 1], e[2 * k + 1] * each);
    }
    eg_close(cx);
}

/* lib/ops/gauss.h, f32: nothing cancels in gelu's lower tail, so its error is relative, except for
 * that of x², which e^(−x²/2) amplifies. */
TEST(gelu_in_its_tails)
{
    eg_ctx *cx = eg_open();
    float at[4096];
    for (int k = 0; k < 4096; k++) at[k] = (float)k / 256 - 10.5f;
    eg_tensor *x = eg_from(cx, at, 4096), *y = eg_gelu(x), *dx;
    ck_assert(!eg_grad(y, eg_ones_like(x), 1, &x, &dx));
    for (int k = 0; k < 4096; k++) {
        const real v = at[k],
                   slope = erfcl(-v / sqrtl(2)) / 2 + v * expl(-v * v / 2) / sqrtl(2 * acosl(-1));
        const double e = ulps(eg_f32(y)[k], r_gelu(v), 0, true),
                     ds = fabs(eg_f32(dx)[k] - (double)slope);
        ck_assert_msg(e <= 4 + at[k] * at[k], "gelu(%g) = %.9g, but %.9Lg: %g ulp", at[k],
                      eg_f32(y)[k], r_gelu(v), e);
        ck_assert_msg(ds <= 3e-7, "slope at %g: %.9g, but %.9Lg", at[k], eg_f32(dx)[k], slope);
    }
    eg_close(cx);
}

/* From |x| = 13.2 on x Φ(x) is max(x, 0), and its slope 0 or 1: the remainder is subnormal. */
TEST(gelu_beyond_its_tails)
{
    static const float at[] = {
        -INFINITY, -1e30f, -13.2f, -13.19f, 13.19f, 13.2f, 1e30f, INFINITY
    };
    enum { N = sizeof at / sizeof *at };
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(cx, at, N), *y = eg_gelu(x), *nan = eg_full_n(cx, EG_F32, NAN, 0, NULL),
              *dx;
    ck_assert(!eg_grad(y, eg_ones_like(x), 1, &x, &dx));
    for (int k = 0; k < N; k++) {
        const float want = at[k] > 0 ? at[k] : 0, left = fabsf(at[k]) < 13.2f ? 0x1p-125f : 0;
        ck_assert_msg(fabsf(eg_f32(y)[k] - want) <= left || eg_f32(y)[k] == want, "gelu(%g) = %.9g",
                      at[k], eg_f32(y)[k]);
        ck_assert_msg(fabsf(eg_f32(dx)[k] - (at[k] > 0)) <= 64 * left, "slope at %g: %.9g", at[k],
                      eg_f32(dx)[k]);
    }
    ck_assert(!eg_grad(eg_gelu(nan), eg_ones_like(nan), 1, &nan, &dx));
    ck_assert(isnan(eg_item(eg_gelu(nan))) && isnan(eg_item(dx)));
    eg_close(cx);
}

/* As in C: f(−0) = −0 for every function with f(0) = 0 and a slope above 0 there. */
TEST(functions_keep_the_sign_of_zero)
{
    static eg_tensor *(*const all[])(eg_tensor *) = { eg_tanh,      eg_sin,   eg_tan,   eg_asin,
                                                      eg_atan,      eg_sinh,  eg_asinh, eg_atanh,
                                                      eg_expm1,     eg_log1p, eg_erf,   eg_sqrt,
                                                      eg_gelu_tanh, eg_silu,  eg_floor, eg_round };
    eg_ctx *cx = eg_open();
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (int64_t n = 1; n < 40; n += 19)
            for (int wide = 0; wide < 2; wide++) {
                eg_tensor *x = eg_full_n(cx, wide ? EG_F64 : EG_F32, -0.0, 1, &n);
                const double y = eg_get(all[k](x), n - 1);
                ck_assert_msg(y == 0 && signbit(y), "%s(-0) = %g", eg_op_of(all[k](x))->name, y);
            }
    eg_close(cx);
}

TEST(ends_of_the_number_line)
{
    eg_ctx *cx = eg_open();
    const struct {
        eg_tensor *(*f)(eg_tensor *);
        double x, y;
    } cases[] = {
        { eg_sigmoid, -1000, 0 },       { eg_sigmoid, 1000, 1 },
        { eg_softplus, 1000, 1000 },    { eg_softplus, -1000, 0 },
        { eg_log, 0, -INFINITY },       { eg_exp, -INFINITY, 0 },
        { eg_exp, 1000, INFINITY },     { eg_tanh, INFINITY, 1 },
        { eg_erf, -INFINITY, -1 },      { eg_relu, INFINITY, INFINITY },
        { eg_gelu, -INFINITY, 0 },      { eg_gelu, INFINITY, INFINITY },
        { eg_gelu_tanh, -INFINITY, 0 }, { eg_gelu_tanh, INFINITY, INFINITY },
        { eg_silu, -INFINITY, 0 },      { eg_silu, INFINITY, INFINITY },
        { eg_expm1, -INFINITY, -1 },    { eg_log1p, -1, -INFINITY },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int single = 0; single < 2; single++) {
            double y =
                eg_item(cases[k].f(eg_full_n(cx, single ? EG_F32 : EG_F64, cases[k].x, 0, NULL)));
            ck_assert_msg(y == cases[k].y, "case %d at %g: %g instead of %g", (int)k, cases[k].x, y,
                          cases[k].y);
        }
    for (int k = 0; k < FUNCTIONS; k++)
        ck_assert_msg(isnan(eg_item(functions[k].f(eg_scalar(cx, NAN)))), "%s(NaN)",
                      functions[k].name);
    eg_tensor *nan = eg_scalar(cx, NAN), *one = eg_scalar(cx, 1);
    ck_assert(isnan(eg_item(eg_maximum(nan, one))) && isnan(eg_item(eg_maximum(one, nan))));
    ck_assert(isnan(eg_item(eg_minimum(nan, one))) && isnan(eg_item(eg_minimum(one, nan))));
    ck_assert(isnan(eg_item(eg_clip(nan, 0, 1))) && isnan(eg_item(eg_leaky_relu(nan, .1))) &&
              isnan(eg_item(eg_elu(nan, 1))));
    ck_assert(eg_item(eg_isnan(nan)) == 1 && eg_item(eg_isnan(one)) == 0);
    ck_assert(eg_item(eg_ne(nan, nan)) == 1 && eg_item(eg_eq(nan, nan)) == 0);
    ck_assert_double_eq(eg_item(eg_elu(eg_scalar(cx, -1000), 2)), -2);
    ck_assert_double_eq(eg_item(eg_powc(eg_scalar(cx, -3), 3)), -27);
    ck_assert_double_eq(eg_item(eg_powc(eg_scalar(cx, 0), 0)), 1);
    /* gradients where the functions are saturated are finite */
    eg_tensor *x = eg_from(cx, ((double[]){ -INFINITY, -1e300, -1000, 1000, 1e300, INFINITY }), 6),
              *dx;
    eg_tensor *(*const smooth[])(eg_tensor *) = { eg_sigmoid,   eg_tanh, eg_softplus, eg_gelu,
                                                  eg_gelu_tanh, eg_silu, eg_relu,     eg_erf };
    for (size_t f = 0; f < sizeof smooth / sizeof *smooth; f++) {
        ck_assert(!eg_grad(smooth[f](x), eg_ones_like(x), 1, &x, &dx));
        for (int k = 0; k < 6; k++)
            ck_assert_msg(isfinite(eg_f64(dx)[k]), "gradient of function %d at %g", (int)f,
                          eg_f64(x)[k]);
    }
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    eg_close(cx);
}

/* elu with alpha = 1, whose gradient selects nothing: g where x > 0, else g e^x, also where g or x
 * is infinite or NaN. */
TEST(the_gradient_of_elu_is_g_above_0)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *d[2],
        *x = eg_from(cx, ((double[]){ 3, 0, -0., -2, 1e300, INFINITY, -INFINITY, NAN, 7, 7 }), 10),
        *g = eg_from(cx, ((double[]){ -3, 5, 5, 5, 1e300, 2, 2, 2, INFINITY, NAN }), 10);
    for (int k = 0; k < 2; k++) ck_assert(!eg_grad(eg_elu(x, k ? .5 : 1), g, 1, &x, &d[k]));
    const double *one = eg_f64(d[0]), *half = eg_f64(d[1]), *at = eg_f64(x);
    for (int k = 0; k < 10; k++)
        ck_assert_msg(at[k] > 0 ? !memcmp(&one[k], &half[k], sizeof *one)
                                : one[k] == 2 * half[k] || isnan(one[k] + at[k]),
                      "at %g: %g and %g", at[k], one[k], half[k]);
    ck_assert_double_eq(one[3], 5 * exp(-2));
    ck_assert(one[6] == 0 && isnan(one[7]) && isnan(one[9]) && one[8] == INFINITY);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* asinh and acosh, where x² overflows: the gradient is 1/|x|, the next one −1/(x |x|); where it
 * does not, both have the values of the formulas, those of acosh their bits */
LOOP_TEST(gradients_of_areas_of_large_numbers, 2)
{
    eg_ctx *cx = eg_open(.dtype = _i ? EG_F64 : EG_F32, .seed = 3);
    const double large = _i ? 2e154 : 2e19;
    eg_tensor *x = eg_mul(eg_exp(eg_uniform(cx, -3, 40, 500)), eg_sign(eg_normal(cx, 0, 1, 500))),
              *d, *dd, *of[2];
    for (int cosh = 0; cosh < 2; cosh++) {
        eg_tensor *t = cosh ? eg_shift(eg_abs(x), 1) : x, *f = cosh ? eg_acosh(t) : eg_asinh(t);
        eg_tensor *by =
            eg_rsqrt(cosh ? eg_mul(eg_shift(t, -1), eg_shift(t, 1)) : eg_shift(eg_square(t), 1));
        const double most = _i ? 1e-15 : 4e-7;
        ck_assert(!eg_grad(f, eg_ones_like(x), 1, &t, &d));
        ck_assert(!eg_grad(d, eg_ones_like(x), 1, &t, &of[0]));
        ck_assert(!eg_grad(by, eg_ones_like(x), 1, &t, &of[1]));
        ck_assert(!cosh || same_bits(d, by));
        eg_assert_close(d, by, most);
        eg_assert_close(of[0], of[1], most);
        for (int sign = -1; sign < 2; sign += 2) {
            if (cosh && sign < 0) continue;
            eg_tensor *one = eg_scalar(cx, sign * large);
            ck_assert(!eg_grad(cosh ? eg_acosh(one) : eg_asinh(one), NULL, 1, &one, &d));
            ck_assert_double_eq_tol(eg_item(d) * large, 1, 1e-6);
            ck_assert(!eg_grad(d, NULL, 1, &one, &dd));
            ck_assert_double_eq_tol(eg_item(dd) * large * large * sign, -1, 1e-4);
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* 1 − x² cancels near |x| = 1, so gradients of f32 are computed from (1 − x)(1 + x): they differ
 * from those in f64 by a few roundings. */
TEST(gradients_of_inverse_functions_near_one)
{
    eg_ctx *cx = eg_open(.dtype = EG_F32);
    eg_tensor *(*const f[])(eg_tensor *) = { eg_asin, eg_acos, eg_atanh, eg_acosh };
    for (int k = 0; k < 4 * 6; k++) {
        const double sign = k / 4 % 2 && k % 4 != 3 ? -1 : 1, by = k % 4 == 3 ? 1 : -1;
        eg_tensor *x = eg_scalar(cx, sign * (1 + by * pow(10, -1 - k / 4))), *d[2];
        eg_tensor *w = eg_cast(x, EG_F64);
        ck_assert(!eg_grad(f[k % 4](x), NULL, 1, &x, &d[0]));
        ck_assert(!eg_grad(f[k % 4](w), NULL, 1, &w, &d[1]));
        ck_assert_double_le(fabs(eg_item(d[0]) / eg_item(d[1]) - 1), 4e-7);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Whole powers: of f32 those of f64, rounded; of f64 even and odd in x, to the bit; with zeros,
 * infinities and NaN as those of C. */
TEST(whole_powers_are_even_or_odd)
{
    static const double marked[] = { 0, -0., 1, -1, INFINITY, -INFINITY, NAN, 1e-30, -1e30, .7 };
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_normal_n(cx, EG_F64, 0, 2, 1, (int64_t[]){ 300 });
    eg_tensor *at[] = { eg_cast(x, EG_F32), x,
                        eg_from_n(cx, EG_F64, marked, 1, (int64_t[]){ 10 }) };
    for (int c = -67; c <= 67; c++) {
        if (c == 0) continue;
        const eg_mark m = eg_push(cx);
        const float *f = eg_f32(eg_powc(at[0], c)), *v = eg_f32(at[0]);
        for (int k = 0; k < 300; k++) {
            const float want = (float)pow(v[k], c);
            ck_assert_msg(f[k] == want || (abs(c) > 64 || c == 3 || c == -2) || !isnormal(want),
                          "%a^%d: %a, not %a", v[k], c, f[k], want);
        }
        eg_tensor *y = eg_powc(x, c), *turned = eg_powc(eg_neg(x), c);
        ck_assert(same_bits(y, c % 2 ? eg_neg(turned) : turned));
        for (int half = 0; half < 2; half++) {
            eg_tensor *s = eg_cast(at[2], half ? EG_F32 : EG_F64), *of = eg_powc(s, c);
            for (int k = 0; k < 10; k++) {
                double want = pow(eg_get(s, k), c), is = eg_get(of, k);
                if (half) want = (float)want;
                ck_assert_msg(isnan(want) ? isnan(is)
                                          : signbit(is) == signbit(want) &&
                                                (is == want || fabs(is / want - 1) < 1e-6),
                              "%g^%d: %g, not %g", eg_get(s, k), c, is, want);
            }
        }
        eg_pop(cx, m);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* The bits of a gradient only depend on x and g, in each block of lanes and in the last one. */
LOOP_TEST(a_gradient_does_not_depend_on_where_it_lies, 4)
{
    eg_tensor *(*const f)(eg_tensor *) =
        (eg_tensor * (*const[])(eg_tensor *)){ eg_tanh, eg_sigmoid, eg_silu, eg_gelu_tanh }[_i];
    for (int single = 0; single < 2; single++) {
        eg_ctx *cx = eg_open(.dtype = single ? EG_F32 : EG_F64);
        const size_t w = single ? 4 : 8;
        eg_tensor *x = eg_normal(cx, 0, 3, 1000), *g = eg_normal(cx, 0, 1, 1000), *dx, *d;
        ck_assert(!eg_grad(f(x), g, 1, &x, &dx));
        const char *whole = eg_raw(dx, NULL);
        for (int64_t start = 0; start < 967; start += 31) {
            eg_tensor *part = eg_copy(eg_slice_axis(x, 0, start, start + 33, 1));
            ck_assert(!eg_grad(f(part), eg_slice_axis(g, 0, start, start + 33, 1), 1, &part, &d));
            ck_assert_msg(!memcmp(eg_raw(d, NULL), whole + (size_t)start * w, 33 * w), "from %d",
                          (int)start);
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}

/* The bits of f(x) only depend on x, not on its position, the length, the strides or the number of
 * threads. */
LOOP_TEST(a_value_does_not_depend_on_where_it_lies, FUNCTIONS)
{
    const struct function *f = &functions[_i];
    eg_ctx *cx = eg_open(.threads = 1), *two = eg_open(.threads = 2);
    double *x = samples();
    enum { BIG = 50000 };
    for (int single = 0; single < 2; single++) {
        eg_dtype t = single ? EG_F32 : EG_F64;
        size_t w = single ? 4 : 8;
        eg_tensor *all = eg_cast(eg_from(cx, x, MANY), t);
        const char *whole = eg_raw(f->f(all), NULL);
        for (int64_t n = 1; n < 70; n += 3) /* lengths and first elements */
            for (int64_t start = 0; start < 20; start += 7) {
                eg_mark m = eg_push(cx);
                const char *part = eg_raw(f->f(eg_slice_axis(all, 0, start, start + n, 1)), NULL);
                ck_assert_msg(!memcmp(part, whole + (size_t)start * w, (size_t)n * w),
                              "%s: %d from %d", f->name, (int)n, (int)start);
                eg_pop(cx, m);
            }
        eg_tensor *back = eg_contiguous(eg_flip_axis(f->f(eg_flip_axis(all, 0)), 0)),
                  *odd = f->f(eg_slice_axis(all, 0, 1, EG_END, 2));
        ck_assert_msg(!memcmp(eg_raw(back, NULL), whole, MANY * w), "%s: reversed", f->name);
        eg_tensor *expected = eg_contiguous(eg_slice_axis(f->f(all), 0, 1, EG_END, 2));
        ck_assert_msg(!memcmp(eg_raw(odd, NULL), eg_raw(expected, NULL), (size_t)eg_size(odd) * w),
                      "%s: every second", f->name);
        eg_tensor *one = eg_expand(eg_slice_axis(all, 0, 50, 51, 1), 333);
        const char *same = eg_raw(eg_contiguous(f->f(one)), NULL);
        for (int k = 0; k < 333; k++)
            ck_assert_msg(!memcmp(same + (size_t)k * w, whole + 50 * w, w), "%s: expanded",
                          f->name);
        eg_tensor *a = eg_uniform_n(cx, t, -9, 9, 1, (int64_t[]){ BIG }),
                  *b = eg_from_n(two, t, eg_raw(a, NULL), 1, eg_dims(a));
        ck_assert_msg(!memcmp(eg_raw(f->f(a), NULL), eg_raw(f->f(b), NULL), BIG * w),
                      "%s: two threads", f->name);
    }
    ck_assert_msg(!eg_error(cx) && !eg_error(two), "%s", f->name);
    free(x);
    eg_close(cx);
    eg_close(two);
}

/* 1/x² is (1/x)²: x² would overflow where the result is a subnormal number. */
TEST(one_over_a_square_has_the_range_of_its_type)
{
    eg_ctx *cx = eg_open();
    static const double at[] = { 1e155, -1e155, 1e-154, -9.3e-155, 3, 1e-200, 1e200 };
    const double *y = eg_f64(eg_powc(eg_from(cx, at, 7), -2));
    for (int k = 0; k < 5; k++)
        ck_assert_msg(fabs(y[k] / pow(at[k], -2) - 1) < 1e-12, "%g^-2: %g", at[k], y[k]);
    ck_assert(isinf(y[5]) && y[6] == 0);
    eg_tensor *x = eg_uniform_n(cx, EG_F32, 1, 4, 1, (int64_t[]){ 4000 });
    const float *v = eg_f32(x), *f = eg_f32(eg_powc(x, -2));
    for (int k = 0; k < 4000; k++)
        ck_assert(fabs(f[k] * (double)v[k] * v[k] - 1) <= 1.5 * 0x1p-23 * 1.0001);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Sets v to the numbers of f64 in [1, 4) whose roots are nearest to the middle of two neighbours:
 * M², an odd multiple of 2^-53 squared, less c 2^-106 with |c| < 2048, which has a root modulo a
 * power of two if c mod 8 is 1, and is a number if it is divisible by 2^54, from 2 on by 2^55.
 * Returns how many. */
static int hard_roots(double *v)
{
    int count = 0;
    for (int64_t c = -2047; c < 2048; c += 8) {
        uint64_t root = 1;
        for (int m = 3; m < 60; m++)
            if ((root * root - (uint64_t)c) >> m & 1) root += (uint64_t)1 << (m - 1);
        for (int q = 0; q < 8; q++) {
            const uint64_t mod = (uint64_t)1 << (54 + q / 4),
                           middle = ((q & 1 ? -root : root) + (q & 2 ? mod / 2 : 0)) & (mod - 1);
            const double below = (double)(middle - 1) * 0x1p-53,
                         x = fma(below, below, below * 0x1p-52); /* nearest to M² */
            if (middle >> 53 == 1 && x < 4 && (x >= 2) == q / 4) v[count++] = x;
        }
    }
    return count;
}
/* Roots are those of the processor's instruction, which rounds correctly: of every number of f32 in
 * [1, 4), of others of its range, and in f64 of the numbers that are hardest to round. */
TEST(square_roots_are_rounded_correctly)
{
    enum { N = 1 << 16 };
    static float v[N];
    static double wide[N];
    eg_ctx *cx = eg_open();
    for (uint32_t first = 0x3f800000; first < 0x40800000; first += N * SLOWER) {
        const eg_mark m = eg_push(cx);
        for (uint32_t k = 0; k < N; k++) memcpy(&v[k], &(uint32_t){ first + k }, sizeof *v);
        const float *y = eg_f32(eg_sqrt(eg_from(cx, v, N)));
        for (int k = 0; k < N; k++) ck_assert(y[k] == sqrtf(v[k]));
        eg_pop(cx, m);
    }
    for (uint32_t k = 0; k < N; k++) memcpy(&v[k], &(uint32_t){ k * 0xfff1 }, sizeof *v);
    const float *y = eg_f32(eg_sqrt(eg_from(cx, v, N)));
    for (int k = 0; k < N; k++)
        ck_assert(isnan(v[k]) || v[k] < 0 ? isnan(y[k]) : y[k] == sqrtf(v[k]));
    const int hard = hard_roots(wide);
    ck_assert_int_eq(hard, 719);
    for (int k = hard; k < N; k++)
        wide[k] = ldexp(wide[k % hard] * (1 + k / hard * 0x1p-45), k % 1021 * 2 - 1060);
    const double *z = eg_f64(eg_sqrt(eg_from(cx, wide, N)));
    for (int k = 0; k < N; k++) ck_assert_msg(z[k] == sqrt(wide[k]), "%a: %a", wide[k], z[k]);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(a_power_of_one_half_is_the_root)
{
    eg_ctx *cx = eg_open();
    for (int type = EG_F32; type <= EG_F64; type++) {
        eg_tensor *x = eg_uniform_n(cx, (eg_dtype)type, 0, 9, 1, (int64_t[]){ 3000 });
        ck_assert(same_bits(eg_powc(x, .5), eg_sqrt(x)));
        ck_assert(same_bits(eg_powc(x, -.5), eg_rsqrt(x)));
        const double at[] = { 0, -0., INFINITY, -INFINITY, -1 };
        eg_tensor *y = eg_cast(eg_from(cx, at, 5), (eg_dtype)type);
        const double *root = eg_f64(eg_cast(eg_powc(y, .5), EG_F64)),
                     *recip = eg_f64(eg_cast(eg_powc(y, -.5), EG_F64));
        for (int i = 0; i < 5; i++) {
            const double w = pow(at[i], .5), v = pow(at[i], -.5);
            ck_assert(isnan(w) ? isnan(root[i]) : root[i] == w && !signbit(root[i]));
            ck_assert(isnan(v) ? isnan(recip[i]) : recip[i] == v && !signbit(recip[i]));
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(powers_are_within_4_ulp)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    double *x = samples(), y[] = { 0, 1, -1, 2, .5, -3.25, 7, INFINITY, -INFINITY };
    eg_tensor *a = eg_from(cx, x, MANY, 1), *b = eg_from(cx, y, 9), *p = eg_pow(a, b);
    const double *v = eg_f64(p);
    for (int i = 0; i < MANY; i++)
        for (int j = 0; j < 9; j++) {
            double e = ulps(v[9 * i + j], powl(x[i], y[j]), 0, false);
            ck_assert_msg(e <= 4, "pow(%.17g, %g) = %.17g: %g ulp", x[i], y[j], v[9 * i + j], e);
        }
    for (int j = 0; j < 9; j++) {
        const double *c = eg_f64(eg_powc(a, y[j]));
        for (int i = 0; i < MANY; i++) {
            double e = ulps(c[i], powl(x[i], y[j]), 0, false);
            ck_assert_msg(e <= 4, "powc(%.17g, %g) = %.17g: %g ulp", x[i], y[j], c[i], e);
        }
    }
    /* at a = 0: da = b a^(b−1), db = y ln a = 0 for b >= 0, both orders finite */
    eg_tensor *zero = eg_zeros(cx, 4), *n = eg_from(cx, ((double[]){ 0, 1, 2, 3 }), 4),
              *in[2] = { zero, n }, *d[2], *h[2];
    ck_assert(!eg_grad(eg_pow(zero, n), eg_ones_like(n), 2, in, d));
    eg_assert_close(d[0], eg_from(cx, ((double[]){ 0, 1, 0, 0 }), 4), 0);
    eg_assert_close(d[1], eg_zeros_like(n), 0);
    eg_tensor *as_text = eg_expr("i", "pow(a, b)", .with = { { "a", zero }, { "b", n } });
    ck_assert(!eg_grad(as_text, eg_ones_like(n), 2, in, h));
    eg_assert_close(h[0], d[0], 0);
    eg_assert_close(h[1], d[1], 0);
    ck_assert(!eg_grad(d[0], eg_ones_like(n), 1, in, h));
    eg_assert_close(h[0], eg_from(cx, ((double[]){ 0, 0, 2, 0 }), 4), 0);
    ck_assert(!eg_grad(eg_powc(zero, 0), eg_ones_like(zero), 1, in, d));
    eg_assert_close(d[0], eg_zeros_like(zero), 0);
    /* b = 0: da = 0 for every a, also where 1/a is infinite or NaN, in eg_expr and in the second
     * order too; d²y/da db = 1/a */
    for (int type = EG_F32; type <= EG_F64; type++) {
        const double least = type == EG_F32 ? 0x1p-149 : 0x1p-1074,
                     least_normal = type == EG_F32 ? 0x1p-126 : 0x1p-1022;
        in[0] = eg_cast(
            eg_from(cx, ((double[]){ least, -least, least_normal, 3, NAN, INFINITY, -NAN }), 7),
            (eg_dtype)type);
        in[1] = eg_zeros_like(in[0]);
        ck_assert(!eg_grad(eg_pow(in[0], in[1]), eg_ones_like(in[0]), 2, in, d));
        eg_assert_close(d[0], in[1], 0);
        ck_assert(!eg_grad(d[0], eg_ones_like(in[0]), 2, in, h));
        ck_assert_double_eq_tol(eg_get(h[1], 3), 1 / 3.0, 1e-7);
        for (int k = 4; k < 7; k++) ck_assert_double_eq(h[0] ? eg_get(h[0], k) : 0, 0);
        eg_tensor *e = eg_expr("i", "pow(a, b)", .with = { { "a", in[0] }, { "b", in[1] } });
        ck_assert(!eg_grad(e, eg_ones_like(in[0]), 2, in, h));
        eg_assert_close(h[0], in[1], 0);
    }
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    free(x);
    eg_close(cx);
}

/* -- derivatives ------------------------------------------------------------------------------ */
/* f32 compared with f64: the error of the k-th derivative is at most 1e-5 of the change that a
 * relative change of f, or of x, by 1e-5 could cause. Every operation of the table, with every
 * sample, wherever f and its derivatives are finite for |x| <= 8: near 0, in between, and near ±1,
 * where domains end. */
enum { ORDERS = 4, EVEN = 2048, NEAR = 40, AT = EVEN + 6 * NEAR };
static void arguments(float *x)
{
    int n = 0;
    for (int k = 0; k < EVEN; k++) x[n++] = (float)((k + .5) / EVEN * 16 - 8);
    for (int k = 0; k < NEAR; k++)
        for (int s = -1; s <= 1; s += 2) {
            const float near = s * exp2f(-.5f * (float)k);
            x[n++] = near, x[n++] = 1 + near / 16, x[n++] = -1 + near / 16;
        }
}
static bool derivatives(eg_tensor *x, eg_tensor *(*f)(eg_tensor *const *), int orders,
                        eg_tensor **d)
{
    d[0] = f(&x);
    for (int k = 1; k <= orders; k++)
        if (eg_grad(d[k - 1], eg_ones_like(x), 1, &x, &d[k])) return false;
    return true;
}
static int rows(void)
{
    int n = 0;
    while (eg__pointwise_ops[n]) n++;
    return n;
}
LOOP_TEST(derivatives_keep_the_precision_of_f32, rows())
{
    const eg_op *op = eg__pointwise_ops[_i];
    for (const eg_sample *s = op->samples; s->call; s++) {
        if (s > op->samples && s->call == s[-1].call) continue;
        eg_ctx *cx = eg_open();
        float at[AT];
        eg_tensor *x, *d[ORDERS + 1], *e[ORDERS + 1];
        arguments(at);
        x = eg_from(cx, at, AT);
        ck_assert_msg(derivatives(x, s->call, ORDERS - 1, d) &&
                          derivatives(eg_cast(x, EG_F64), s->call, ORDERS, e),
                      "%s", eg_error(cx));
        for (int k = 1; k < ORDERS; k++) {
            const double *y = eg_f64(e[0]), *want = eg_f64(e[k]), *next = eg_f64(e[k + 1]);
            const float *have = eg_f32(d[k]);
            int compared = 0;
            for (int n = 0; n < AT; n++) {
                if (!isfinite(y[n]) || !isfinite(want[n]) || !isfinite(next[n])) continue;
                const double scale = fmax(fabs(want[n]), fabs(at[n] * next[n])),
                             error = fabs(have[n] - want[n]);
                compared++;
                ck_assert_msg(error <= 1e-5 * scale + 1e-37,
                              "%s: derivative %d at %.9g is %.9g, not %.9g: off by %.2g of %.2g",
                              op->name, k, at[n], have[n], want[n], error, scale);
            }
            ck_assert_msg(compared >= AT / 16, "%s: derivative %d is finite at %d points only",
                          op->name, k, compared);
        }
        eg_close(cx);
    }
}

/* -- two operands ----------------------------------------------------------------------------- */
TEST(shapes_broadcast_as_in_numpy)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *a = eg_from(cx, ((double[]){ 1, 2, 3, 4, 5, 6 }), 2, 3),
              *row = eg_from(cx, ((double[]){ 10, 20, 30 }), 3);
    eg_tensor *column = eg_from(cx, ((double[]){ 100, 200 }), 2, 1), *d[2];
    eg_assert_close(eg_add(a, row), eg_from(cx, ((double[]){ 11, 22, 33, 14, 25, 36 }), 2, 3), 0);
    eg_assert_close(eg_sub(column, a), eg_from(cx, ((double[]){ 99, 98, 97, 196, 195, 194 }), 2, 3),
                    0);
    eg_assert_close(eg_add(column, row),
                    eg_from(cx, ((double[]){ 110, 120, 130, 210, 220, 230 }), 2, 3), 0);
    eg_assert_close(eg_mul(a, eg_scalar(cx, 2)), eg_scale(a, 2), 0);
    eg_tensor *chosen = eg_where(eg_gt(a, eg_scalar(cx, 3)), row, eg_neg(column));
    eg_assert_close(chosen, eg_from(cx, ((double[]){ -100, -100, -100, 10, 20, 30 }), 2, 3), 0);
    /* the gradient of an expanded operand is summed to its shape */
    ck_assert(
        !eg_grad(eg_mul(column, row), eg_ones(cx, 2, 3), 2, (eg_tensor *[]){ column, row }, d));
    eg_assert_close(d[0], eg_from(cx, ((double[]){ 60, 60 }), 2, 1), 0);
    eg_assert_close(d[1], eg_from(cx, ((double[]){ 300, 300, 300 }), 3), 0);
    /* results have the layout of the first operand that is not expanded */
    int64_t stride[2];
    eg_raw(eg_add(row, eg_transpose(eg_ones(cx, 3, 2), 0, 1)), stride);
    ck_assert(stride[0] == 1 && stride[1] == 2);
    eg_raw(eg_exp(eg_transpose(eg_ones(cx, 3, 2), 0, 1)), stride);
    ck_assert(stride[0] == 1 && stride[1] == 2);
    /* sizes 0 and 1 */
    eg_tensor *none = eg_zeros(cx, 0, 3);
    ck_assert_int_eq(eg_size(eg_add(none, row)), 0);
    ck_assert_int_eq(eg_size(eg_lt(none, eg_scalar(cx, 1))), 0);
    ck_assert(!eg_grad(eg_add(none, row), none, 1, &row, d));
    eg_assert_close(d[0], eg_zeros(cx, 3), 0);
    for (int k = 0; k < FUNCTIONS; k++) {
        ck_assert_int_eq(eg_size(functions[k].f(none)), 0);
        ck_assert_int_eq(eg_rank(functions[k].f(eg_scalar(cx, 1))), 0);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Kernels take one element in place of a row, in runs and, from 192 bytes on, in tiles. */
TEST(a_broadcast_operand_is_like_its_copy)
{
    static eg_tensor *(*const op[])(eg_tensor *, eg_tensor *) = { eg_add, eg_sub, eg_div,
                                                                  eg_maximum, eg_lt };
    static const int64_t side[] = { 1, 5, 70, 100, 200, 300, 1030 };
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 7; k++) {
        const int64_t n = side[k], rows = n < 100 ? 37 : 9;
        eg_tensor *x = eg_normal(cx, 0, 1, 2, rows, n), *one[3] = { eg_normal(cx, 0, 1, rows, 1) };
        one[1] = eg_normal(cx, 0, 1, 2, 1, 1), one[2] = eg_scalar(cx, .5);
        for (int q = 0; q < 5 * 3 * 3; q++) {
            const int type = q / 15;
            const eg_dtype dtype = type == 0 || q % 5 == 2 ? EG_F32 : type == 1 ? EG_F64 : EG_I32;
            eg_tensor *a = eg_cast(eg_scale(x, 9), dtype), *b = eg_cast(one[q / 5 % 3], dtype),
                      *whole = eg_copy(eg_expand_n(b, 3, eg_dims(x)));
            eg_assert_close(op[q % 5](a, b), op[q % 5](a, whole), 0);
            eg_assert_close(op[q % 5](b, a), op[q % 5](whole, a), 0);
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Operands of any layout, and the bits of a loop over single elements: of an exact operation in C,
 * of a function those of contiguous operands. Some operands are of a size for threads. */
static bool sums_agree(eg_tensor *y, eg_tensor *a, eg_tensor *b)
{
    for (int64_t k = 0; k < eg_size(y); k++) {
        const void *u = element_of(a, k), *v = element_of(b, k), *w = element_of(y, k);
        bool same = false;
        switch (eg_type(y)) {
        case EG_F32: same = *(const float *)w == *(const float *)u + *(const float *)v; break;
        case EG_F64: same = *(const double *)w == *(const double *)u + *(const double *)v; break;
        case EG_I32: same = *(const int32_t *)w == *(const int32_t *)u + *(const int32_t *)v; break;
        default: same = *(const int64_t *)w == *(const int64_t *)u + *(const int64_t *)v;
        }
        if (!same) return false;
    }
    return true;
}
LOOP_TEST(values_do_not_depend_on_the_layout, 4)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I32, EG_I64 };
    eg_ctx *cx = eg_open(.threads = 2);
    uint64_t state = (uint64_t)_i + 1;
    for (int turn = 0; turn < 240 / SLOWER; turn++) {
        eg_mark m = eg_push(cx);
        int64_t dim[VIEW_RANK];
        const int rank = draw_sizes(&state, turn % 40 ? 6000 : 300000, dim);
        eg_tensor *x[3], *flat[3];
        for (int k = 0; k < 3; k++) {
            x[k] = random_view(cx, &state, k < 2 ? types[_i] : EG_BOOL, rank, dim);
            flat[k] = elements_of(x[k]);
        }
        ck_assert_msg(sums_agree(eg_add(x[0], x[1]), x[0], x[1]), "turn %d: add", turn);
        eg_tensor *less = eg_lt(x[0], x[1]), *chosen = eg_where(x[2], x[0], x[1]);
        ck_assert_msg(same_bits(elements_of(less), eg_lt(flat[0], flat[1])), "turn %d: lt", turn);
        ck_assert_msg(same_bits(elements_of(chosen), eg_where(flat[2], flat[0], flat[1])),
                      "turn %d: where", turn);
        if (_i < 2) {
            ck_assert_msg(same_bits(elements_of(eg_tanh(x[0])), eg_tanh(flat[0])), "turn %d: tanh",
                          turn);
            ck_assert_msg(same_bits(elements_of(eg_hypot(x[0], x[1])), eg_hypot(flat[0], flat[1])),
                          "turn %d: hypot", turn);
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Operands of more than 12 MB may be computed block by block, while the next block is prefetched.
 */
TEST(large_operands_have_the_bits_of_their_parts)
{
    static eg_tensor *(*const f[])(eg_tensor *) = { eg_exp, eg_gelu, eg_tanh, eg_relu };
    enum { COUNT = 7 * 458903, PART = COUNT / 7 };
    eg_ctx *cx = eg_open(.threads = 1, .seed = 3);
    eg_nograd(cx, true);
    for (int k = 0; k < 8; k++) {
        const eg_mark m = eg_push(cx);
        eg_tensor *x = eg_normal_n(cx, k < 4 ? EG_F32 : EG_F64, 0, 3, 1, (int64_t[]){ COUNT }),
                  *y = f[k % 4](x);
        for (int p = 0; p < 7; p++) {
            eg_tensor *part = eg_slice_axis(x, 0, p * PART, (p + 1) * PART, 1);
            ck_assert(same_bits(eg_copy(eg_slice_axis(y, 0, p * PART, (p + 1) * PART, 1)),
                                f[k % 4](eg_copy(part))));
        }
        eg_pop(cx, m);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
TEST(ties_and_kinks)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *a = eg_from(cx, ((double[]){ 1, 2, 3 }), 3),
              *b = eg_from(cx, ((double[]){ 2, 2, 2 }), 3);
    eg_tensor *in[2] = { a, b }, *one = eg_ones(cx, 3), *d[2];
    ck_assert(!eg_grad(eg_maximum(a, b), one, 2, in, d));
    eg_assert_close(d[0], eg_from(cx, ((double[]){ 0, .5, 1 }), 3), 0);
    eg_assert_close(d[1], eg_from(cx, ((double[]){ 1, .5, 0 }), 3), 0);
    ck_assert(!eg_grad(eg_minimum(a, b), one, 2, in, d));
    eg_assert_close(d[0], eg_from(cx, ((double[]){ 1, .5, 0 }), 3), 0);
    ck_assert(!eg_grad(eg_clip(a, 1, 2), one, 1, in, d)); /* the limits count as inside */
    eg_assert_close(d[0], eg_from(cx, ((double[]){ 1, 1, 0 }), 3), 0);
    ck_assert(!eg_grad(eg_relu(eg_shift(a, -2)), one, 1, in, d));
    eg_assert_close(d[0], eg_from(cx, ((double[]){ 0, 0, 1 }), 3), 0);
    /* where the other branch is infinite, its gradient is 0, not NaN */
    eg_tensor *z = eg_zeros(cx, 3);
    ck_assert(!eg_grad(eg_where(eg_gt(z, one), eg_log(z), z), one, 1, &z, d));
    ck_assert(eg_ok(d[0]));
    ck_assert(!eg_grad(eg_where(eg_gt(z, one), eg_full(cx, INFINITY, 3), z), one, 1, &z, d));
    eg_assert_close(d[0], one, 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(integers_are_exact_and_wrap_around)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(cx, ((int64_t[]){ -3, 0, 4, INT64_MIN }), 4),
              *n = eg_from(cx, ((int32_t[]){ -3, 0, 4, INT32_MIN }), 4);
#define SAME64(call, ...) ck_assert_mem_eq(eg_i64(call), ((int64_t[4]){ __VA_ARGS__ }), 32)
#define SAME32(call, ...) ck_assert_mem_eq(eg_i32(call), ((int32_t[4]){ __VA_ARGS__ }), 16)
    SAME64(eg_neg(x), 3, 0, -4, INT64_MIN);
    SAME64(eg_abs(x), 3, 0, 4, INT64_MIN);
    SAME64(eg_sign(x), -1, 0, 1, -1);
    SAME64(eg_relu(x), 0, 0, 4, 0);
    SAME64(eg_square(x), 9, 0, 16, 0);
    SAME64(eg_scale(x, -2), 6, 0, -8, 0);
    SAME64(eg_shift(x, 5), 2, 5, 9, INT64_MIN + 5);
    SAME64(eg_clip(x, -2, INFINITY), -2, 0, 4, -2);
    SAME64(eg_maximum(x, eg_neg(x)), 3, 0, 4, INT64_MIN);
    SAME64(eg_sub(x, eg_from(cx, ((int64_t[]){ 1 }), 1)), -4, -1, 3, INT64_MAX);
    SAME32(eg_neg(n), 3, 0, -4, INT32_MIN);
    SAME32(eg_mul(n, n), 9, 0, 16, 0);
    SAME32(eg_add(n, n), -6, 0, 8, 0);
    SAME32(eg_clip(n, -1e30, 1), -3, 0, 1, INT32_MIN);
    SAME32(eg_minimum(n, eg_scale(n, 2)), -6, 0, 4, INT32_MIN);
    eg_tensor *t = eg_from(cx, ((bool[]){ true, true, false, false }), 4),
              *u = eg_from(cx, ((bool[]){ true, false, true, false }), 4);
#define SAMEB(call, ...) ck_assert_mem_eq(eg_bool(call), ((bool[4]){ __VA_ARGS__ }), 4)
    SAMEB(eg_and(t, u), true, false, false, false);
    SAMEB(eg_or(t, u), true, true, true, false);
    SAMEB(eg_xor(t, u), false, true, true, false);
    SAMEB(eg_not(t), false, false, true, true);
    SAMEB(eg_eq(t, u), true, false, false, true);
    SAMEB(eg_ge(x, eg_zeros_like(x)), false, true, true, false);
    SAMEB(eg_lt(n, eg_zeros_like(n)), true, false, false, true);
    SAMEB(eg_isnan(n), false, false, false, false);
    /* i32 with i64: compared as i64 */
    eg_tensor *wide = eg_from(cx, ((int64_t[]){ -3, 1, INT64_MAX, INT64_MIN }), 4);
    SAMEB(eg_eq(n, wide), true, false, false, false);
    SAMEB(eg_ne(wide, n), false, true, true, true);
    SAMEB(eg_lt(n, wide), false, true, true, false);
    SAMEB(eg_ge(wide, n), true, true, true, false);
    SAMEB(eg_gt(n, eg_from(cx, ((int64_t[]){ -1 }), 1)), false, true, true, false);
    SAME64(eg_where(t, x, eg_shift(x, 1)), -3, 0, 5, INT64_MIN + 1);
    SAMEB(eg_where(t, u, t), true, false, false, false);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(pointwise_operations_refuse_other_types_and_shapes)
{
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_tensor *f = eg_ones(cx, 2, 3), *d = eg_cast(f, EG_F64), *i = eg_cast(f, EG_I64),
              *b = eg_cast(f, EG_BOOL);
#define REFUSED(call, text)                                                             \
    do {                                                                                \
        ck_assert(!eg_ok(call));                                                        \
        ck_assert_msg(eg_error(cx) && !strcmp(eg_error(cx), text), "%s", eg_error(cx)); \
        eg_clear(cx);                                                                   \
    } while (0)
    REFUSED(eg_exp(i), "exp: operand 1 is i64; cast it to f32 or f64 first");
    REFUSED(eg_neg(b), "neg: operand 1 is bool; cast it to f32, f64, i32 or i64 first");
    REFUSED(eg_add(f, d), "add: operand 1 is f32, operand 2 is f64; eg_cast one of them");
    REFUSED(eg_where(b, f, d), "where: operand 2 is f32, operand 3 is f64; eg_cast one of them");
    REFUSED(eg_where(f, f, f),
            "where: operand 1, the condition, is f32 and must be bool; compare it first");
    REFUSED(eg_div(i, i), "div: the operands are i64; eg_cast them to f32 or f64 first");
    REFUSED(eg_pow(i, i), "pow: the operands are i64; eg_cast them to f32 or f64 first");
    REFUSED(eg_mul(b, b), "mul: the operands are bool; eg_cast them to f32, f64, i32 or i64 first");
    REFUSED(eg_and(f, f), "and: the operands are f32, not bool; compare first");
    REFUSED(eg_not(i), "not: the operand is i64, not bool; compare first");
    REFUSED(eg_lt(f, i), "lt: operand 1 is f32, operand 2 is i64; eg_cast one of them");
    REFUSED(
        eg_scale(i, .5),
        "scale: operand 1 is i64 and cannot take the constant 0.5; cast it to f32 or f64 first");
    REFUSED(
        eg_shift(eg_cast(f, EG_I32), 3e9),
        "shift: operand 1 is i32 and cannot take the constant 3e+09; cast it to f32 or f64 first");
    REFUSED(eg_scale(eg_cast(f, EG_I32), 0x1p31), "scale: operand 1 is i32 and cannot take the "
                                                  "constant 2.14748e+09; cast it to f32 or f64 "
                                                  "first"); /* it was −2³¹ */
    REFUSED(eg_shift(i, 0x1p63), "shift: operand 1 is i64 and cannot take the constant "
                                 "9.22337e+18; cast it to f32 or f64 first");
    REFUSED(eg_powc(i, 2), "powc: operand 1 is i64; cast it to f32 or f64 first");
    REFUSED(eg_clip(f, 1, 0), "clip: the low limit 1 is above the high limit 0");
    REFUSED(eg_clip(f, NAN, 0), "clip: the low limit is NaN");
    REFUSED(eg_add(f, eg_ones(cx, 4)), "add: axis -1 is 3 in operand 1 but 4 in operand 2; the "
                                       "shapes (2, 3), (4,) do not broadcast");
    REFUSED(eg_mul(eg_ones(cx, 5, 1), eg_ones(cx, 7, 2, 3)),
            "mul: axis -2 is 5 in operand 1 but 2 in operand 2; the shapes (5, 1), (7, 2, 3) do "
            "not broadcast");
    REFUSED(eg_where(b, f, eg_ones(cx, 3, 3)),
            "where: axis -2 is 2 in operand 1 but 3 in operand 3; the shapes (2, 3), (2, 3), (3, "
            "3) do not broadcast");
    REFUSED(eg_add(f, eg_ones(other, 2, 3)), "add: operand 2 belongs to another context");
    REFUSED(eg_scale(eg_exp(i), 2), "exp: operand 1 is i64; cast it to f32 or f64 first");
    ck_assert_ptr_null(eg_scale(NULL, 2));
    ck_assert_ptr_null(eg_clip(NULL, 2, 1));
    ck_assert_ptr_null(eg_where(NULL, NULL, NULL));
    REFUSED(eg_where(b, NULL, f), "where: operand 2 is NULL");
    eg_close(cx);
    eg_close(other);
}
