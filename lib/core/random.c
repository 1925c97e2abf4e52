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

enum { ROUNDS = 10 };
#if defined(__x86_64__)
#include <immintrin.h>
#define WIDE_ROUNDS
#define AVX2        __attribute__((target("avx2")))
#define EVERY_GROUP for (int g = 0; g < GROUPS; g++)
/* The numbers of eight indices, in two vectors of four counters, one in each 64-bit lane: the
 * products are then single instructions. (gcc 12 computes a product of vectors of 64-bit numbers
 * from three, also where the upper halves are 0.) Four vectors do not fit into 16 registers. */
enum { GROUPS = 2, WIDE = 4 * GROUPS };
AVX2 static void philox_wide(uint64_t seed, uint64_t draw, uint64_t first, uint64_t step,
                             uint32_t *out)
{
    const __m256i factor_a = _mm256_set1_epi64x(PHILOX_M4x32_0),
                  factor_c = _mm256_set1_epi64x(PHILOX_M4x32_1);
    __m256i a[GROUPS], b[GROUPS], c[GROUPS], d[GROUPS]; /* the lower halves of their lanes count */
    EVERY_GROUP
    {
        const uint64_t at = first + 4 * (uint64_t)g * step;
        a[g] = _mm256_set_epi64x((int64_t)(at + 3 * step), (int64_t)(at + 2 * step),
                                 (int64_t)(at + step), (int64_t)at);
        b[g] = _mm256_srli_epi64(a[g], 32);
        c[g] = _mm256_set1_epi64x((int64_t)draw);
        d[g] = _mm256_set1_epi64x((int64_t)(draw >> 32));
    }
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < ROUNDS; r++) {
        const __m256i of_a = _mm256_set1_epi64x(key_0), of_c = _mm256_set1_epi64x(key_1);
        EVERY_GROUP
        {
            const __m256i p = _mm256_mul_epu32(a[g], factor_a),
                          q = _mm256_mul_epu32(c[g], factor_c);
            a[g] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(q, 32), b[g]), of_a);
            c[g] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p, 32), d[g]), of_c);
            b[g] = q, d[g] = p;
        }
        key_0 += PHILOX_W32_0, key_1 += PHILOX_W32_1;
    }
    EVERY_GROUP
    {
        const __m256i ab = _mm256_blend_epi32(a[g], _mm256_slli_epi64(b[g], 32), 0xaa),
                      cd = _mm256_blend_epi32(c[g], _mm256_slli_epi64(d[g], 32), 0xaa),
                      even = _mm256_unpacklo_epi64(ab, cd), odd = _mm256_unpackhi_epi64(ab, cd);
        __m256i *to = (__m256i *)(void *)(out + 16 * g);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
}
#define AVX512       __attribute__((target("avx512f")))
#define EVERY_BUNCH  for (int g = 0; g < BUNCHES; g++)
#define THREE_XORED  0x96 /* the table of a ^ b ^ c */
#define ODD_QUARTERS 0xaaaa
/* The same for vectors of eight counters, of which four fit into the 32 registers. */
enum { BUNCHES = 4, WIDEST = 8 * BUNCHES };
AVX512 static void philox_widest(uint64_t seed, uint64_t draw, uint64_t first, uint64_t step,
                                 uint32_t *out)
{
    const __m512i factor_a = _mm512_set1_epi64(PHILOX_M4x32_0),
                  factor_c = _mm512_set1_epi64(PHILOX_M4x32_1),
                  low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                  high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    __m512i a[BUNCHES], b[BUNCHES], c[BUNCHES], d[BUNCHES];
    EVERY_BUNCH
    {
        uint64_t at[8];
        for (uint64_t k = 0; k < 8; k++) at[k] = first + (8 * (uint64_t)g + k) * step;
        a[g] = _mm512_loadu_si512(at);
        b[g] = _mm512_srli_epi64(a[g], 32);
        c[g] = _mm512_set1_epi64((int64_t)draw);
        d[g] = _mm512_set1_epi64((int64_t)(draw >> 32));
    }
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < ROUNDS; r++) {
        const __m512i of_a = _mm512_set1_epi64(key_0), of_c = _mm512_set1_epi64(key_1);
        EVERY_BUNCH
        {
            const __m512i p = _mm512_mul_epu32(a[g], factor_a),
                          q = _mm512_mul_epu32(c[g], factor_c);
            a[g] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(q, 32), b[g], of_a, THREE_XORED);
            c[g] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p, 32), d[g], of_c, THREE_XORED);
            b[g] = q, d[g] = p;
        }
        key_0 += PHILOX_W32_0, key_1 += PHILOX_W32_1;
    }
    EVERY_BUNCH
    {
        const __m512i ab = _mm512_mask_blend_epi32(ODD_QUARTERS, a[g], _mm512_slli_epi64(b[g], 32)),
                      cd = _mm512_mask_blend_epi32(ODD_QUARTERS, c[g], _mm512_slli_epi64(d[g], 32)),
                      even = _mm512_unpacklo_epi64(ab, cd), odd = _mm512_unpackhi_epi64(ab, cd);
        _mm512_storeu_si512(out + 32 * g, _mm512_permutex2var_epi64(even, low, odd));
        _mm512_storeu_si512(out + 32 * g + 16, _mm512_permutex2var_epi64(even, high, odd));
    }
}
#endif
/* The rounds as loops over LANES counters, which are compiled to vector instructions. 64 counters
 * take 0.7 of the time of 16, since each round waits for the products of the one before. */
enum { LANES = 64 };
/* Writes the numbers of the indices first + k step, k < LANES, to out[4 LANES]. */
static void philox_lanes(uint64_t seed, uint64_t draw, uint64_t first, uint64_t step, uint32_t *out)
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
/* Writes the numbers of n indices by a function for `lanes` indices. */
typedef void philox_rounds(uint64_t seed, uint64_t draw, uint64_t first, uint64_t step,
                           uint32_t *out);
static void philox_by(philox_rounds *rounds, int64_t lanes, uint64_t seed, uint64_t draw,
                      uint64_t first, uint64_t step, int64_t n, uint32_t *out)
{
    for (; n >= lanes; n -= lanes, first += (uint64_t)lanes * step, out += 4 * lanes)
        rounds(seed, draw, first, step, out);
    if (n > lanes / 8) {
        uint32_t all[4 * LANES];
        rounds(seed, draw, first, step, all);
        memcpy(out, all, 4 * (size_t)n * sizeof *out);
    } else
        for (; n > 0; n--, first += step, out += 4) eg__philox(seed, draw, first, out);
}
void eg__philox_many(uint64_t seed, uint64_t draw, uint64_t first, uint64_t step, int64_t n,
                     uint32_t *out)
{
#ifdef WIDE_ROUNDS
    if (n >= WIDEST && __builtin_cpu_supports("avx512f")) {
        const int64_t whole = n / WIDEST * WIDEST;
        philox_by(philox_widest, WIDEST, seed, draw, first, step, whole, out);
        n -= whole, first += (uint64_t)whole * step, out += 4 * whole;
    }
    if (__builtin_cpu_supports("avx2")) {
        philox_by(philox_wide, WIDE, seed, draw, first, step, n, out);
        return;
    }
#endif
    philox_by(philox_lanes, LANES, seed, draw, first, step, n, out);
}

double eg__unit(uint64_t seed, uint64_t draw, uint64_t index)
{
    uint32_t r[4];
    eg__philox(seed, draw, index, r);
    return (double)(((uint64_t)r[1] << 32 | r[0]) >> 11) * 0x1p-53;
}
