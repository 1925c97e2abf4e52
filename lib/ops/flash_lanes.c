/* flash_lanes.c: the arithmetic of attention's tiles. The exponential is written here, in vectors, since a call for every vector
 * costs more than its arithmetic; f32: the polynomial of Cephes (Moshier), f64: Taylor's to r^13; both within 2 ulp. */
#include "ops/flash.h"
#include "ops/vmath.h"
#include <string.h>

#define REAL       float
#define WORD       int32_t
#define MAGIC      12582912.                            /* 1.5 · 2^23: adding it rounds to an integer */
#define LN2_HIGH   0.693359375
#define LN2_LOW    (-2.12194440e-4)
#define BIAS       (127 - 0x4b400000)
#define MANTISSA   23
#define LEAST      (-87.3)
#define POLYNOMIAL H(H(H(H(H(ALL(1.9875691500e-4), 1.3981999507e-3), 8.3334519073e-3), 4.1665795894e-2), 1.6666665459e-1), 5.0000001201e-1) \
                   * (r_ * r_) + r_ + ALL(1)
#define BYTES 64
#define NAME(x) x##_f32_64
#include "ops/flash_of.h"
#undef BYTES
#undef NAME
#define BYTES 16
#define NAME(x) x##_f32_16
#include "ops/flash_of.h"
#undef BYTES
#undef NAME
#undef REAL
#undef WORD
#undef MAGIC
#undef LN2_HIGH
#undef LN2_LOW
#undef BIAS
#undef MANTISSA
#undef LEAST
#undef POLYNOMIAL

#define REAL       double
#define WORD       int64_t
#define MAGIC      6755399441055744.                    /* 1.5 · 2^52 */
#define LN2_HIGH   6.93147180369123816490e-01
#define LN2_LOW    1.90821492927058770002e-10
#define BIAS       (1023 - 0x4338000000000000)
#define MANTISSA   52
#define LEAST      (-708.)
#define POLYNOMIAL H(H(H(H(H(H(H(H(H(H(H(ALL(1 / 6227020800.), 1 / 479001600.), 1 / 39916800.), 1 / 3628800.), 1 / 362880.), 1 / 40320.), \
                   1 / 5040.), 1 / 720.), 1 / 120.), 1 / 24.), 1 / 6.), .5) * (r_ * r_) + r_ + ALL(1)
#define BYTES 64
#define NAME(x) x##_f64_64
#include "ops/flash_of.h"
#undef BYTES
#undef NAME
#define BYTES 16
#define NAME(x) x##_f64_16
#include "ops/flash_of.h"

const eg_flash_lanes *eg__flash_lanes(eg_dtype dtype, int w)
{
    static const eg_flash_lanes *const all[2][2] = { { &lanes_f32_64, &lanes_f32_16 }, { &lanes_f64_64, &lanes_f64_16 } };
    const eg_flash_lanes *const *of = all[dtype == EG_F64];
    return w % of[0]->lanes == 0 ? of[0] : w % of[1]->lanes == 0 ? of[1] : NULL;
}
