/* arithmetic.c: the loops of the operations on rows, for both floats. */
#include "ops/ops.h"
#include <string.h>

typedef uint8_t bytes __attribute__((vector_size(EG_LANES)));
typedef int32_t bits_f32 __attribute__((vector_size(EG_LANES * sizeof(int32_t))));
typedef int64_t bits_f64 __attribute__((vector_size(EG_LANES * sizeof(int64_t))));
typedef float wide_f32 __attribute__((vector_size(EG_LANES * sizeof(float))));
typedef double wide_f64 __attribute__((vector_size(EG_LANES * sizeof(double))));
/* Rows that are summed at once: at most, and of those longer than SHORT_SUMS, whose own additions
 * keep the processor busy. */
enum { ABREAST = 4, PAIR = 2, SHORT_SUMS = 256 };
/* Exponentials of rows of at most SHORT_ROW elements are computed by columns, if there are FEW_ROWS
 * of them. */
enum { SHORT_ROW = 112, FEW_ROWS = 6 };
static bool by_columns(int64_t rows, int64_t n) { return n <= SHORT_ROW && rows >= FEW_ROWS; }
#if defined(__clang__)
#define ALL_ROWS _Pragma("clang loop unroll(full)")
#else
#define ALL_ROWS _Pragma("GCC unroll 4")
#endif
#define ALL_BITS                                                       \
    {                                                                  \
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 \
    }
/* The lanes of v, `by` positions further on. */
#if defined(__clang__) || __GNUC__ >= 12
#define TURN(v, by)                                                                           \
    __builtin_shufflevector(v, v, by, by + 1, by + 2, by + 3, by + 4, by + 5, by + 6, by + 7, \
                            by + 8, by + 9, by + 10, by + 11, by + 12, by + 13, by + 14, by + 15)
#else
#define TURN(v, by)                                                                               \
    __builtin_shuffle(v,                                                                          \
                      (BITS){ by, by + 1, by + 2, by + 3, by + 4, by + 5, by + 6, by + 7, by + 8, \
                              by + 9, by + 10, by + 11, by + 12, by + 13, by + 14, by + 15 })
#endif
/* v where it is larger, else so_far: where v is NaN so_far stays */
#define LARGER(v, so_far) \
    ((WIDE)(((BITS)(v) & ((v) > (so_far))) | ((BITS)(so_far) & ~((v) > (so_far)))))

EG_CLONES static void group_logs(double *v)
{
    EG_EVERY_LANE
    for (int l = 0; l < EG_LANES; l++) v[l] = log(v[l]);
}
/* v = ln v, by the vector function */
static void logs(int64_t n, double *v)
{
    double lane[EG_LANES];
    for (int64_t k = 0; k < n; k += EG_LANES) {
        for (int l = 0; l < EG_LANES; l++) lane[l] = k + l < n ? v[k + l] : 1;
        group_logs(lane);
        for (int l = 0; l < EG_LANES && k + l < n; l++) v[k + l] = lane[l];
    }
}

#define T         float
#define NAME(x)   x##_f32
#define BITS      bits_f32
#define WIDE      wide_f32
#define EXP       epowf_normal /* of numbers from LEAST to 0 */
#define POW       powf
#define LEAST     -87
#define TINY      1.66e-38f
#define TAME      1e15f
#define MINUS_INF (int32_t)0xff800000
#include "ops/arithmetic_of.h"
#undef T
#undef NAME
#undef BITS
#undef WIDE
#undef EXP
#undef POW
#undef LEAST
#undef TINY
#undef TAME
#undef MINUS_INF

#define T         double
#define NAME(x)   x##_f64
#define BITS      bits_f64
#define WIDE      wide_f64
#define EXP       exp
#define POW       pow
#define LEAST     -708
#define TINY      3.31e-308
#define TAME      1e150
#define MINUS_INF (int64_t)0xfff0000000000000
#include "ops/arithmetic_of.h"
