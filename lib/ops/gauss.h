/* gauss.h: the normal distribution, for GELU: F(gelu)(x) = x Φ(x), Φ(x) = (1 + erf(x/√2))/2, and
 * its derivative F(gelu_slope)(x) = Φ(x) + x φ(x).
 *
 * f32 takes a few operations on lanes; calls of erff and expf would take four times as long.
 * Φ(−a) = e w(a), where e = e^(−a²/2) and w is Mills' ratio /√2π, here p/q of degree 4 in a with
 * a relative error below 1.3e-8 (1 + 2a²) on [0, 13.3] (tests/reference/gauss.py). For large a
 * the rounding of a² contributes a larger error, e^(−a²/2) 2^−24 a². Nothing cancels, so gelu
 * has a small relative error in its lower tail too. Below −13.2 its values are subnormal, and
 * are 0 here. */
#ifndef EG_GAUSS_H
#define EG_GAUSS_H
#include "ops/ops.h"
#include <math.h>
#include <string.h>

/* the tanh form: x σ(v), v = 2 √(2/π)(x + 0.044715 x³) */
#define EG_GELU_1    (M_2_SQRTPI * M_SQRT2)
#define EG_GELU_3    (.044715 * EG_GELU_1)

#define EG_GAUSS_END 13.2f /* slightly further, e^(−a²/2) is not a normal number */
/* Returns Φ(−a) for 0 ≤ a < EG_GAUSS_END, and sets *e to e^(−a²/2). */
EG_INLINE float gauss_tailf(float a, float *e)
{
    const float p =
        (((0x1.681310p-16f * a + 0x1.97a70ep-2f) * a + 0x1.9dd560p+1f) * a + 0x1.568868p+3f) * a +
        0x1.0e4fb2p+4f;
    const float q =
        (((a + 0x1.023592p+3f) * a + 0x1.c29fbep+4f) * a + 0x1.82f188p+5f) * a + 0x1.0e4fb2p+5f;
    /* e^(−a²/2) = 2^h, h = s a = n + r; the lowest bits of m are n */
    const float s = a * -0x1.715476p-1f, m = s * a + 0x1.8p23f, n = m - 0x1.8p23f, r = s * a - n;
    const float y =
        ((((0x1.5bba14p-10f * r + 0x1.3cea88p-7f) * r + 0x1.c6b752p-5f) * r + 0x1.ebf9bcp-3f) * r +
         0x1.62e42ap-1f) *
            r +
        1;
    uint32_t bits, power;
    memcpy(&bits, &y, sizeof bits);
    memcpy(&power, &m, sizeof power);
    bits += power << 23;
    memcpy(e, &bits, sizeof *e);
    return *e * (p / q);
}
/* max(x, 0) − a Φ(−a), a = |x| */
EG_INLINE float geluf(float x)
{
    float e;
    const float magnitude = fabsf(x), a = magnitude >= EG_GAUSS_END ? 0 : magnitude;
    return (x > 0 ? x : 0) - a * gauss_tailf(a, &e);
}
/* Φ(−a) − a φ(a) where x < 0, else 1 minus this */
EG_INLINE float gelu_slopef(float x)
{
    float e;
    const float magnitude = fabsf(x), a = magnitude >= EG_GAUSS_END ? 0 : magnitude,
                tail = gauss_tailf(a, &e), u = tail - a * (e * (float)(M_2_SQRTPI * M_SQRT1_2 / 2)),
                below = magnitude >= EG_GAUSS_END ? 0 : u;
    return x < 0 ? below : 1 - below;
}
/* 1 + erf would cancel in the lower tail */
EG_INLINE double gelu(double x)
{
    const double z = x < -1000 ? -1000 : x;
    return z * (.5 * erfc(-M_SQRT1_2 * z));
}
EG_INLINE double gelu_slope(double x)
{
    const double z = fabs(x) < 1000 ? x : 0, e = exp(-.5 * x * x);
    return .5 * erfc(-M_SQRT1_2 * x) + z * e * (M_2_SQRTPI * M_SQRT1_2 / 2);
}
EG_INLINE double complex eg__c_gelu(double complex x)
{
    const double complex z = creal(x) < -1000 ? -1000 : x;
    return z * (.5 * eg__c_erfc(-M_SQRT1_2 * z));
}
EG_INLINE double complex eg__c_gelu_slope(double complex x)
{
    const double complex z = fabs(creal(x)) < 1000 ? x : 0, e = eg__c_exp(-.5 * x * x);
    return .5 * eg__c_erfc(-M_SQRT1_2 * x) + z * e * (M_2_SQRTPI * M_SQRT1_2 / 2);
}
#endif
