/* random.c: counter-based random numbers: Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw,
 * SC 2011), as in Random123. A random number depends only on seed, draw and logical index, so it is
 * independent of threads and memory layout. */
#include "core/core.h"
#include <Random123/philox.h>
#include <string.h>

void eg__philox(uint64_t seed, uint64_t draw, uint64_t index, uint32_t out[4])
{
    philox4x32_key_t key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    philox4x32_ctr_t counter = { { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)draw,
                                   (uint32_t)(draw >> 32) } };
    counter = philox4x32_R(10, counter, key);
    for (int k = 0; k < 4; k++) out[k] = counter.v[k];
}

/* The rounds as loops over LANES counters, which are compiled to vector instructions. 64 counters
 * take 0.7 of the time of 16, since each round waits for the products of the one before. */
enum { LANES = 64, ROUNDS = 10 };
/* Writes the numbers of the indices first + k step, k < LANES, to out[4 LANES]. */
EG_CLONES static void philox_lanes(uint64_t seed, uint64_t draw, uint64_t first, uint64_t step,
                                   uint32_t *out)
{
    uint32_t a[LANES], b[LANES], c[LANES], d[LANES];
    for (uint32_t k = 0; k < LANES; k++) {
        const uint64_t index = first + k * step;
        a[k] = (uint32_t)index, b[k] = (uint32_t)(index >> 32);
        c[k] = (uint32_t)draw, d[k] = (uint32_t)(draw >> 32);
    }
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < ROUNDS; r++) {
        for (int k = 0; k < LANES; k++) {
            const uint64_t p = (uint64_t)PHILOX_M4x32_0 * a[k], q = (uint64_t)PHILOX_M4x32_1 * c[k];
            a[k] = (uint32_t)(q >> 32) ^ b[k] ^ key_0;
            c[k] = (uint32_t)(p >> 32) ^ d[k] ^ key_1;
            b[k] = (uint32_t)q, d[k] = (uint32_t)p;
        }
        key_0 += PHILOX_W32_0, key_1 += PHILOX_W32_1;
    }
    for (int k = 0; k < LANES; k++) {
        out[4 * k] = a[k], out[4 * k + 1] = b[k];
        out[4 * k + 2] = c[k], out[4 * k + 3] = d[k];
    }
}
void eg__philox_many(uint64_t seed, uint64_t draw, uint64_t first, uint64_t step, int64_t n,
                     uint32_t *out)
{
    for (; n >= LANES; n -= LANES, first += LANES * step, out += 4 * LANES)
        philox_lanes(seed, draw, first, step, out);
    if (n > LANES / 8) {
        uint32_t all[4 * LANES];
        philox_lanes(seed, draw, first, step, all);
        memcpy(out, all, 4 * (size_t)n * sizeof *out);
    } else
        for (; n > 0; n--, first += step, out += 4) eg__philox(seed, draw, first, out);
}

double eg__unit(uint64_t seed, uint64_t draw, uint64_t index)
{
    uint32_t r[4];
    eg__philox(seed, draw, index, r);
    return (double)(((uint64_t)r[1] << 32 | r[0]) >> 11) * 0x1p-53;
}
