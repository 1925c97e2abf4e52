/* epow.h: the exponential function and the hyperbolic tangent on lanes: F(epow)(x) is e^x, and
 * F(etanh_last)(x, F(etanh_first)(x)) is tanh x. Attention computes its weights with them. In f32
 * they are written out here, since libmvec's functions differ in their last bits between processors
 * of different makers, and aarch64 has none.
 *
 * x = n ln 2 + r with |r| ≤ ln 2 / 2, and e^r = 1 + r + r² q(r). q has degree 4 and the smallest
 * relative error, 3e-9 (by Lawson's weights: tests/reference/epow.py), with q(0) rounded to 1/2. ln
 * 2 is the sum of two constants of at most 16 bits, so that both products with n are exact. 2^n is
 * applied as a product of two powers, since it may be outside of the normal range where e^x is
 * inside; a subnormal result is thus rounded once. The error is at most 1.14 ulp where products and
 * sums are fused, and 1.11 where they are not, over all floats from −104 to 89; below 1 for
 * subnormal results.
 *
 * tanh x = x + x³ p(x²) for |x| < 0.625, else ±(1 − 2/(e^2|x| + 1)). p has degree 4 and an error of
 * 4e-9 (the same script). The error is at most 1.34 ulp over all floats.
 *
 * Every loop that calls one of them is EG_FUSING, so that all processors with a fused multiply-add
 * compute the same bits, and each processor always the same. */
#ifndef EG_EPOW_H
#define EG_EPOW_H
#include "tensor/lanes.h"
#include <string.h>

/* 1 / ln 2; the two parts of ln 2; the coefficients of q, the lowest one first */
#define EG_EPOW_PER_LN2 0x1.715476p+0f
#define EG_EPOW_LN2     0x1.62e4p-1f
#define EG_EPOW_REST    0x1.7f7ep-20f
#define EG_EPOW_Q0      .5f
#define EG_EPOW_Q1      0x1.555492p-3f
#define EG_EPOW_Q2      0x1.5558f2p-5f
#define EG_EPOW_Q3      0x1.1239e8p-7f
#define EG_EPOW_Q4      0x1.6a2436p-10f
/* Returns e^r for x = n ln 2 + r; the lowest bits of *bits are n + 254, the sum of two exponents
 * with their biases. */
EG_INLINE float epowf_reduced(float x, uint32_t *bits)
{
    const float m = x * EG_EPOW_PER_LN2 + (0x1.8p23f + 254), n = m - (0x1.8p23f + 254);
    const float r = (x - n * EG_EPOW_LN2) - n * EG_EPOW_REST;
    const float q =
        (((EG_EPOW_Q4 * r + EG_EPOW_Q3) * r + EG_EPOW_Q2) * r + EG_EPOW_Q1) * r + EG_EPOW_Q0;
    memcpy(bits, &m, sizeof *bits);
    return r * r * q + r + 1;
}
EG_INLINE float epowf(float x)
{
    uint32_t bits;
    float power, rest;
    /* e^−104 is rounded to 0 and e^89 to infinity; NaN remains NaN */
    const float y = epowf_reduced(x < -104 ? -104 : x > 89 ? 89 : x, &bits);
    const uint32_t half = bits >> 1, low = half << 23, high = (bits - half) << 23;
    memcpy(&power, &low, sizeof power);
    memcpy(&rest, &high, sizeof rest);
    return y * power * rest;
}
/* The same bits for −87 ≤ x ≤ 88, where 2^n and e^x are normal; NaN remains NaN. */
EG_INLINE float epowf_normal(float x)
{
    uint32_t bits;
    float power;
    const float y = epowf_reduced(x, &bits);
    const uint32_t whole = (bits - 127) << 23;
    memcpy(&power, &whole, sizeof power);
    return y * power;
}
/* tanh x = etanh_last(x, etanh_first(x)). In f32 etanh_first(x) is e^2|x|, which is finite for |x|
 * up to EG_TANH_MOST and that of EG_TANH_MOST beyond; for other types, whose tanh is a function of
 * libm, etanh_last does not read it. */
#define EG_TANH_MOST  43.5f
#define EG_TANH_SMALL 0.625f /* below, etanh_lastf does not read e */
EG_INLINE float etanh_firstf(float x)
{
    const float size = fabsf(x), end = size > EG_TANH_MOST ? EG_TANH_MOST : size;
    return epowf_normal(2 * end);
}
EG_INLINE float etanh_lastf(float x, float e)
{
    const float u = x * x;
    const float high = (-0x1.75e1bp-8f * u + 0x1.522694p-6f) * u - 0x1.b83c58p-5f,
                p = (high * u + 0x1.110726p-3f) * u - 0x1.555532p-2f;
    const float small = x + x * (u * p), large = 1 - 2 / (e + 1);
    return copysignf(fabsf(x) < EG_TANH_SMALL ? small : large, x); /* -0 of -0 */
}
/* True if etanh_last reads e for none of the n numbers, since all are small; NaN is not. */
EG_INLINE bool etanh_all_smallf(int64_t n, const float *x)
{
    if (!(fabsf(x[0]) < EG_TANH_SMALL && fabsf(x[n / 2]) < EG_TANH_SMALL)) return false; /* usual */
    uint32_t most = 0, bound;
    const float limit = EG_TANH_SMALL;
    memcpy(&bound, &limit, sizeof bound);
    for (int64_t k = 0; k < n; k++) {
        uint32_t size;
        memcpy(&size, x + k, sizeof size);
        size &= 0x7fffffff;
        most = size > most ? size : most;
    }
    return most < bound;
}
EG_INLINE bool etanh_all_small(int64_t n, const double *x) { return (void)n, (void)x, false; }
EG_INLINE double epow(double x) { return exp(x); }
EG_INLINE double etanh_first(double x) { return x; }
EG_INLINE double etanh_last(double x, double e) { return (void)e, tanh(x); }
EG_INLINE double complex eg__c_etanh_first(double complex x) { return x; }
EG_INLINE double complex eg__c_etanh_last(double complex x, double complex e)
{
    return (void)e, ctanh(x);
}
#define eg__c_epow cexp
#endif
