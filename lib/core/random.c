/* random.c: counter-based random numbers: Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw,
 * SC 2011), as in Random123. A random number depends only on seed, draw and logical index, so it is
 * independent of threads and memory layout. */
#include "core/core.h"
#include <Random123/philox.h>

void eg__philox(uint64_t seed, uint64_t draw, uint64_t index, uint32_t out[4])
{
    philox4x32_key_t key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    philox4x32_ctr_t counter = { { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)draw,
                                   (uint32_t)(draw >> 32) } };
    counter = philox4x32_R(10, counter, key);
    for (int k = 0; k < 4; k++) out[k] = counter.v[k];
}

double eg__unit(uint64_t seed, uint64_t draw, uint64_t index)
{
    uint32_t r[4];
    eg__philox(seed, draw, index, r);
    return (double)(((uint64_t)r[1] << 32 | r[0]) >> 11) * 0x1p-53;
}
