/* widen.c: f16 and bf16 operands. A contraction reads them as f32, or as f64 if another operand is
 * f64, and never copies a whole operand: matrix products convert them while micro-panels are
 * packed, the other kernels convert rows of at most some thousand elements. The conversion is
 * exact, so a product has the bits that it would have for operands that were cast before. */
#include "contraction/gemm.h"
#if defined(__x86_64__)
#include <immintrin.h>

/* 8 elements as f32. Processors with AVX2 have F16C. */
#define TARGET __attribute__((target("avx2,f16c")))
TARGET static inline __m256 eight_f16(const void *x) { return _mm256_cvtph_ps(_mm_loadu_si128(x)); }
TARGET static inline __m256 eight_bf16(const void *x)
{
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
#endif

#define FROM    eg_f16bits
#define TO      float
#define VALUE   eg__from_half
#define EIGHT   eight_f16
#define NAME(x) x##_f16_f32
#include "contraction/widen_of.h"
#define FROM    eg_f16bits
#define TO      double
#define VALUE   eg__from_half
#define NAME(x) x##_f16_f64
#include "contraction/widen_of.h"
#define FROM    eg_bf16bits
#define TO      float
#define VALUE   eg__from_bfloat
#define EIGHT   eight_bf16
#define NAME(x) x##_bf16_f32
#include "contraction/widen_of.h"
#define FROM    eg_bf16bits
#define TO      double
#define VALUE   eg__from_bfloat
#define NAME(x) x##_bf16_f64
#include "contraction/widen_of.h"

void eg__widen_rows(eg_dtype to, eg_dtype from, int64_t rows, int64_t n, const void *x,
                    int64_t apart, int64_t step, void *y, int64_t ahead)
{
    if (from == EG_F16 && to == EG_F64)
        widen_f16_f64(rows, n, x, apart, step, y, n, ahead);
    else if (from == EG_F16)
        widen_f16_f32(rows, n, x, apart, step, y, n, ahead);
    else if (to == EG_F64)
        widen_bf16_f64(rows, n, x, apart, step, y, n, ahead);
    else
        widen_bf16_f32(rows, n, x, apart, step, y, n, ahead);
}
void eg__pack_from(eg_dtype to, eg_dtype from, int w, int64_t rows, const int64_t *off, int64_t rs,
                   int runs, const eg_run *run, const void *src, void *dst, int64_t k)
{
    if (from == to)
        eg__pack(eg__width[to], w, rows, off, rs, runs, run, src, dst, k);
    else if (from == EG_F16 && to == EG_F64)
        widen_panel_f16_f64(w, rows, off, rs, runs, run, src, dst, k);
    else if (from == EG_F16)
        widen_panel_f16_f32(w, rows, off, rs, runs, run, src, dst, k);
    else if (to == EG_F64)
        widen_panel_bf16_f64(w, rows, off, rs, runs, run, src, dst, k);
    else
        widen_panel_bf16_f32(w, rows, off, rs, runs, run, src, dst, k);
}
