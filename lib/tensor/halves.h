/* halves.h: converts the bits of f16 and bf16 values to floats, which represent them exactly. */
#ifndef EG_HALVES_H
#define EG_HALVES_H
#include <stdint.h>
#include <string.h>

typedef struct eg_f16bits {
    uint16_t bits;
} eg_f16bits;
typedef struct eg_bf16bits {
    uint16_t bits;
} eg_bf16bits;

/* A signalling NaN becomes a quiet one, as by the instruction of the processor. */
static inline float eg__from_half(eg_f16bits h)
{
    const uint32_t sign = (uint32_t)(h.bits >> 15) << 31, exponent = h.bits >> 10 & 31,
                   fraction = h.bits & 1023;
    const uint32_t quiet = exponent == 31 && fraction ? 512 : 0,
                   bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) |
                          (fraction | quiet) << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    const float small = (float)fraction * 0x1p-24f; /* 0 and subnormal numbers */
    return exponent ? value : sign ? -small : small;
}
static inline float eg__from_bfloat(eg_bf16bits h)
{
    const uint32_t bits = (uint32_t)h.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
#endif
