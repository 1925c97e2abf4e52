/* transpose.c: dst[y·ds + x] = src[x·ss + y], the transpose that copies, maps and packing use.
 * Squares with the side of a vector register are transposed in registers: with AVX-512 both sides
 * use whole cache lines, once, and edges are squares with masks; with AVX2 a square has the side of
 * a cache line and is copied before, so that both sides use whole lines too; otherwise, and at
 * edges, a square is 16 bytes wide and the rest is copied element by element. eg__take_every_second
 * copies every second element of rows, eg__stream copies with non-temporal stores, for which the
 * processor does not fetch the destination first. Elements are only moved, so the choice by the
 * processor's features does not change bits. */
#include "tensor/tensor.h"
#include <string.h>

#define SHUFFLE(...) __builtin_shufflevector(__VA_ARGS__)
typedef uint32_t vec32 __attribute__((vector_size(16)));
typedef uint64_t vec64 __attribute__((vector_size(16)));
static inline void square_32(const uint32_t *src, int64_t ss, uint32_t *dst, int64_t ds)
{
    vec32 x[4], y[4];
    for (int r = 0; r < 4; r++) memcpy(&x[r], src + r * ss, 16);
    const vec32 p = SHUFFLE(x[0], x[1], 0, 4, 1, 5), q = SHUFFLE(x[2], x[3], 0, 4, 1, 5);
    const vec32 u = SHUFFLE(x[0], x[1], 2, 6, 3, 7), v = SHUFFLE(x[2], x[3], 2, 6, 3, 7);
    y[0] = SHUFFLE(p, q, 0, 1, 4, 5), y[1] = SHUFFLE(p, q, 2, 3, 6, 7);
    y[2] = SHUFFLE(u, v, 0, 1, 4, 5), y[3] = SHUFFLE(u, v, 2, 3, 6, 7);
    for (int r = 0; r < 4; r++) memcpy(dst + r * ds, &y[r], 16);
}
static inline void square_64(const uint64_t *src, int64_t ss, uint64_t *dst, int64_t ds)
{
    vec64 x[2], y[2];
    for (int r = 0; r < 2; r++) memcpy(&x[r], src + r * ss, 16);
    y[0] = SHUFFLE(x[0], x[1], 0, 2);
    y[1] = SHUFFLE(x[0], x[1], 1, 3);
    for (int r = 0; r < 2; r++) memcpy(dst + r * ds, &y[r], 16);
}
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__x86_64__) && !NO_CLONES
#define SQUARES_512
#define AVX512 __attribute__((target("avx512f")))
#define AVX2   __attribute__((target("avx2")))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* Returns the 16 bytes at low, then the 16 bytes at high. */
AVX2 EG_INLINE __m256i halves(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                   _mm_loadu_si128(high), 1);
}
/* y[l] = column l of eight rows, of which xr has four columns of rows r and r + 4 */
AVX2 EG_INLINE void columns_of_32(__m256i x0, __m256i x1, __m256i x2, __m256i x3, __m256i *y)
{
    const __m256i p = _mm256_unpacklo_epi32(x0, x1), q = _mm256_unpackhi_epi32(x0, x1),
                  u = _mm256_unpacklo_epi32(x2, x3), v = _mm256_unpackhi_epi32(x2, x3);
    y[0] = _mm256_unpacklo_epi64(p, u), y[1] = _mm256_unpackhi_epi64(p, u);
    y[2] = _mm256_unpacklo_epi64(q, v), y[3] = _mm256_unpackhi_epi64(q, v);
}
/* y[l] = column l of eight rows of src, for the first four columns */
AVX2 EG_INLINE void columns_32(const uint32_t *src, int64_t ss, __m256i *y)
{
    columns_of_32(halves(src, src + 4 * ss), halves(src + ss, src + 5 * ss),
                  halves(src + 2 * ss, src + 6 * ss), halves(src + 3 * ss, src + 7 * ss), y);
}
/* y[l] = column l of four rows of src, for the first two columns */
AVX2 EG_INLINE void columns_64(const uint64_t *src, int64_t ss, __m256i *y)
{
    const __m256i x0 = halves(src, src + 2 * ss), x1 = halves(src + ss, src + 3 * ss);
    y[0] = _mm256_unpacklo_epi64(x0, x1), y[1] = _mm256_unpackhi_epi64(x0, x1);
}
/* dst[y·nx + x] = src[x·ss + y] for 4 < nx < 8, the panels of kernels that have six rows. Eight
 * rows are transposed at a time, of which the missing ones repeat the last; a column overwrites
 * what the one before it has stored past its end. The last columns are left out, since nothing may
 * be stored past them. Returns the number of columns that are done. */
AVX2 static int64_t dense_columns(int64_t nx, int64_t ny, const uint32_t *src, int64_t ss,
                                  uint32_t *dst)
{
    const uint32_t *high[4];
    int64_t y = 0;
    for (int64_t r = 0; r < 4; r++) high[r] = src + (4 + r < nx ? 4 + r : nx - 1) * ss;
    for (; (ny - y - 4) * nx >= 8 - nx; y += 4) {
        __m256i c[4];
        columns_of_32(halves(src + y, high[0] + y), halves(src + ss + y, high[1] + y),
                      halves(src + 2 * ss + y, high[2] + y), halves(src + 3 * ss + y, high[3] + y),
                      c);
        for (int l = 0; l < 4; l++, dst += nx) _mm256_storeu_si256((void *)dst, c[l]);
    }
    return y;
}
/* The 4 × 4 transpose of 16-byte lanes: y[l·apart] = lane l of x[0], x[apart], x[2·apart], … */
AVX512 EG_INLINE void lanes_of_four(const __m512i *x, __m512i *y, int apart)
{
    const __m512i e0 = _mm512_shuffle_i32x4(x[0], x[apart], 0x88),
                  d0 = _mm512_shuffle_i32x4(x[0], x[apart], 0xdd),
                  e1 = _mm512_shuffle_i32x4(x[2 * apart], x[3 * apart], 0x88),
                  d1 = _mm512_shuffle_i32x4(x[2 * apart], x[3 * apart], 0xdd);
    y[0] = _mm512_shuffle_i32x4(e0, e1, 0x88);
    y[apart] = _mm512_shuffle_i32x4(d0, d1, 0x88);
    y[2 * apart] = _mm512_shuffle_i32x4(e0, e1, 0xdd);
    y[3 * apart] = _mm512_shuffle_i32x4(d0, d1, 0xdd);
}
AVX512 EG_INLINE void lanes_32(__m512i *x, __m512i *y)
{
    /* lane l of x[r + q]: column 4l + q of rows r … r + 3 */
    UNROLL for (int r = 0; r < 16; r += 4)
    {
        const __m512i p = _mm512_unpacklo_epi32(x[r], x[r + 1]),
                      q = _mm512_unpackhi_epi32(x[r], x[r + 1]);
        const __m512i u = _mm512_unpacklo_epi32(x[r + 2], x[r + 3]),
                      v = _mm512_unpackhi_epi32(x[r + 2], x[r + 3]);
        x[r] = _mm512_unpacklo_epi64(p, u), x[r + 1] = _mm512_unpackhi_epi64(p, u);
        x[r + 2] = _mm512_unpacklo_epi64(q, v), x[r + 3] = _mm512_unpackhi_epi64(q, v);
    }
    UNROLL for (int q = 0; q < 4; q++) lanes_of_four(x + q, y + q, 4);
}
AVX512 EG_INLINE void lanes_64(__m512i *x, __m512i *y)
{
    UNROLL for (int r = 0; r < 8; r += 2)
    {
        const __m512i p = _mm512_unpacklo_epi64(x[r], x[r + 1]),
                      q = _mm512_unpackhi_epi64(x[r], x[r + 1]);
        x[r] = p, x[r + 1] = q;
    }
    UNROLL for (int q = 0; q < 2; q++) lanes_of_four(x + q, y + q, 2);
}
#endif

#define WORD    uint32_t
#define SIDE    4
#define NAME(x) x##_32
#define WIDE    16
#define MASK    __mmask16
#define EPI(f)  f##_epi32
#define EVEN    _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#include "tensor/transpose_of.h"
#define WORD    uint64_t
#define SIDE    2
#define NAME(x) x##_64
#define WIDE    8
#define MASK    __mmask8
#define EPI(f)  f##_epi64
#define EVEN    _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14)
#include "tensor/transpose_of.h"

void eg__stream(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    const size_t before = -(uintptr_t)to % 64, head = before < bytes ? before : bytes,
                 lines = (bytes - head) / 64;
    memcpy(to, from, head);
    __m128i *y = (void *)((char *)to + head);
    const char *x = (const char *)from + head;
    for (size_t k = 0; k < 4 * lines; k++)
        _mm_stream_si128(y + k, _mm_loadu_si128((const void *)(x + 16 * k)));
    memcpy(y + 4 * lines, x + 64 * lines, bytes - head - 64 * lines);
#else
    memcpy(to, from, bytes);
#endif
}
void eg__stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

void eg__take_every_second(size_t width, int64_t n, int64_t rows, const void *src, int64_t ss,
                           void *dst, int64_t ds)
{
#if defined(SQUARES_512)
    if (__builtin_cpu_supports("avx512f")) {
        (width == 4 ? wide_every_second_32 : wide_every_second_64)(n, rows, src, ss, dst, ds);
        return;
    }
#endif
    (width == 4 ? every_second_32 : every_second_64)(n, rows, src, ss, dst, ds);
}

#if defined(SQUARES_512)
/* True if squares of whole cache lines are faster: rows are far apart, or at distances that share
 * few sets of a cache. Else squares of 16 bytes are as fast, and have narrower edges. */
static bool whole_lines_are_faster(size_t width, int64_t nx, int64_t ny, int64_t ss, int64_t ds)
{
    const uint64_t w = width, s = (uint64_t)ss * w, d = (uint64_t)ds * w, side = 64 / w;
    return (uint64_t)nx >= side && (uint64_t)ny >= side &&
           (s >= 4096 || d >= 4096 || s % 512 == 0 || d % 512 == 0);
}
#endif
void eg__transpose_narrow(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss,
                          void *dst, int64_t ds)
{
#if defined(SQUARES_512)
    if (width == 4 && nx > 4 && nx < 8 && ds == nx && __builtin_cpu_supports("avx2")) {
        const int64_t done = dense_columns(nx, ny, src, ss, dst);
        transpose_32(nx, ny - done, (const uint32_t *)src + done, ss, (uint32_t *)dst + done * nx,
                     ds, false);
        return;
    }
#endif
    (width == 4 ? transpose_32 : transpose_64)(nx, ny, src, ss, dst, ds, false);
}
void eg__transpose(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss, void *dst,
                   int64_t ds, bool stream)
{
#if defined(SQUARES_512)
    if (__builtin_cpu_supports("avx512f")) {
        (width == 4 ? wide_transpose_32 : wide_transpose_64)(nx, ny, src, ss, dst, ds, stream);
        return;
    }
    if (whole_lines_are_faster(width, nx, ny, ss, ds) && __builtin_cpu_supports("avx2")) {
        (width == 4 ? line_transpose_32 : line_transpose_64)(nx, ny, src, ss, dst, ds, stream);
        return;
    }
#endif
    (void)stream;
    eg__transpose_narrow(width, nx, ny, src, ss, dst, ds);
}
