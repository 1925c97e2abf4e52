/* tile_math.c: arithmetic on the tiles of attention. The exponential is written out in vectors,
 * to base 2 (the scores are multiplied by log2 e before), since calling a function for every
 * vector takes longer than its arithmetic. f32: a polynomial fitted to 2^r on [-1/2, 1/2] with
 * the smallest relative error, 9.2e-8 (Lawson's weights); f64: Taylor's to r^13, 4e-18. Every
 * element is a lane of a whole vector. Products and sums may therefore be fused here, unlike in
 * the other files: the bits of an element do not depend on its position. */
#include "attention/attention.h"
#include <string.h>

#if defined(__x86_64__) && HAVE_TARGET_CLONES
#include <immintrin.h>
#define AVX512 __attribute__((target("arch=x86-64-v4")))
#endif

#if defined(__clang__)
#pragma STDC FP_CONTRACT ON
#endif

#define REAL     float
#define WORD     int32_t
#define MAGIC    (12582912. + 127) /* 1.5 · 2^23 + bias */
#define MANTISSA 23
#define LEAST    (-127.)
#define POLYNOMIAL                                                                                 \
    H(H(H(H(H(ALL(0x1.5bba14p-10), 0x1.3cea88p-7), 0x1.c6b752p-5), 0x1.ebf9bcp-3), 0x1.62e42ap-1), \
      1)
#ifdef AVX512
#define TARGET      AVX512
#define MAX(a, b)   (VEC) _mm512_max_ps((__m512)(a), (__m512)(b))
#define REDUCE(x)   (VEC) _mm512_reduce_ps((__m512)(x), 8)
#define SCALE(p, n) (VEC) _mm512_scalef_ps((__m512)(p), (__m512)(n))
#endif
#define BYTES   64
#define NAME(x) x##_f32_64
#include "attention/tile_math_of.h"
#undef BYTES
#undef NAME
#define BYTES   32
#define NAME(x) x##_f32_32
#include "attention/tile_math_of.h"
#undef BYTES
#undef NAME
#define BYTES   16
#define NAME(x) x##_f32_16
#include "attention/tile_math_of.h"
#undef BYTES
#undef NAME
#undef REAL
#undef WORD
#undef MAGIC
#undef MANTISSA
#undef LEAST
#undef POLYNOMIAL

#define REAL     double
#define WORD     int64_t
#define MAGIC    (6755399441055744. + 1023) /* 1.5 · 2^52 + bias */
#define MANTISSA 52
#define LEAST    (-1023.)
#define POLYNOMIAL                                                                \
    H(H(H(H(H(H(H(H(H(H(H(H(H(ALL(0x1.816193166d0f7p-40), 0x1.c3bd650fc2983p-36), \
                            0x1.e8cac7351bb22p-32),                               \
                          0x1.e4cf5158b8ec7p-28),                                 \
                        0x1.b5253d395e7c1p-24),                                   \
                      0x1.62c0223a5c822p-20),                                     \
                    0x1.ffcbfc588b0c5p-17),                                       \
                  0x1.430912f86c786p-13),                                         \
                0x1.5d87fe78a6730p-10),                                           \
              0x1.3b2ab6fba4e77p-7),                                              \
            0x1.c6b08d704a0bfp-5),                                                \
          0x1.ebfbdff82c58ep-3),                                                  \
        0x1.62e42fefa39efp-1),                                                    \
      1) /* ln 2^k / k! */
#ifdef AVX512
#define TARGET      AVX512
#define MAX(a, b)   (VEC) _mm512_max_pd((__m512d)(a), (__m512d)(b))
#define REDUCE(x)   (VEC) _mm512_reduce_pd((__m512d)(x), 8)
#define SCALE(p, n) (VEC) _mm512_scalef_pd((__m512d)(p), (__m512d)(n))
#endif
#define BYTES   64
#define NAME(x) x##_f64_64
#include "attention/tile_math_of.h"
#undef BYTES
#undef NAME
#define BYTES   32
#define NAME(x) x##_f64_32
#include "attention/tile_math_of.h"
#undef BYTES
#undef NAME
#define BYTES   16
#define NAME(x) x##_f64_16
#include "attention/tile_math_of.h"

const eg_tile_ops *eg__tile_ops(eg_dtype dtype, int w)
{
    /* from the longest vectors of the processor on: gcc 12 takes comparisons of longer ones apart
     * into single numbers */
    static const eg_tile_ops *const all[2][3] = { { &lanes_f32_64, &lanes_f32_32, &lanes_f32_16 },
                                                  { &lanes_f64_64, &lanes_f64_32, &lanes_f64_16 } };
    const eg_isa isa = eg__kernel_isa();
    for (int k = isa == EG_ISA_AVX512 ? 0 : isa == EG_ISA_AVX2 ? 1 : 2; k < 3; k++)
        if (w % all[dtype == EG_F64][k]->lanes == 0) return all[dtype == EG_F64][k];
    return NULL;
}

EG_CLONES static void bytes_of_words(int w, int64_t rows, const uint32_t *words, uint8_t *tile)
{
    const uint32_t one = 1;
    const bool little_endian = *(const uint8_t *)&one;
    for (int64_t j = 0; j < rows; j++) {
        const uint32_t *from = words + j / 4 * w;
        const int byte = (int)(little_endian ? j % 4 : 3 - j % 4);
        EG_EVERY_LANE
        for (int i = 0; i < w; i++) tile[j * w + i] = (uint8_t)(from[i] >> 8 * byte);
    }
}
/* clang 14 does not define clones of a function that is not static under its name. */
void eg__bytes_of_words(int w, int64_t rows, const uint32_t *words, uint8_t *tile)
{
    bytes_of_words(w, rows, words, tile);
}
