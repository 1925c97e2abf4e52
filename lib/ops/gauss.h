/* gauss.h: the normal distribution, for GELU: F(gauss)(x, &e) is Φ(x) = (1 + erf(x/√2))/2, and e =
 * e^(−x²/2).
 *
 * f32 in a few operations on lanes, where a call of erff and one of expf cost four times as much:
 * Φ(−|x|) = e w(|x|), w Mills' ratio /√2π, here p/q of degrees 4 and 5, relative error 5.6e-9 on
 * [0, 14] (Lawson's weights: tests/reference/gauss.py), and 2^n p(r) as in tile_math.c. Since
 * nothing cancels, Φ is right relatively in its lower tail too, but for the rounding of x²:
 * e^(−x²/2) 2^−24 x². */
#ifndef EG_GAUSS_H
#define EG_GAUSS_H
#include "ops/ops.h"
#include <math.h>
#include <string.h>

#define EG_GELU_1 \
    (M_2_SQRTPI * M_SQRT2) /* the tanh form: x σ(v), v = 2 √(2/π)(x + 0.044715 x³)   */
#define EG_GELU_3 (.044715 * EG_GELU_1)

EG_INLINE float gaussf(float x, float *e)
{
    const float far = fabsf(x), a = far < 15 ? far : 15; /* e^(−15²/2) is 0 in f32 */
    const float p =
        (((0x1.0b3b6cp-8f * a + 0x1.4abbcap-5f) * a + 0x1.75aedap-3f) * a + 0x1.bfbee8p-2f) * a +
        .5f;
    const float q =
        ((((0x1.4eebecp-7f * a + 0x1.9e8a7ap-4f) * a + 0x1.dea622p-2f) * a + 0x1.3304ep+0f) * a +
         0x1.ac21a4p+0f) *
            a +
        1;
    /* e^(−x²/2) = 2^h, h = n + r */
    const float h = x * x * -0x1.715476p-1f, v = h < -127 ? -127 : h;
    /* n's lowest bits: the exponent */
    const float n = v + (0x1.8p23f + 127), r = v - (n - (0x1.8p23f + 127));
    const float y =
        ((((0x1.5bba14p-10f * r + 0x1.3cea88p-7f) * r + 0x1.c6b752p-5f) * r + 0x1.ebf9bcp-3f) * r +
         0x1.62e42ap-1f) *
            r +
        1;
    uint32_t bits;
    float power;
    memcpy(&bits, &n, sizeof bits);
    bits <<= 23;
    memcpy(&power, &bits, sizeof power);
    *e = y * power;
    const float tail = *e * (p / q);
    return x < 0 ? tail : 1 - tail;
}
EG_INLINE double gauss(double x, double *e)
{
    *e = exp(-.5 * x * x);
    return .5 * erfc(-M_SQRT1_2 * x); /* 1 + erf would cancel in the lower tail */
}
EG_INLINE double complex eg__c_gauss(double complex x, double complex *e)
{
    *e = eg__c_exp(-.5 * x * x);
    return .5 * eg__c_erfc(-M_SQRT1_2 * x);
}
#endif
