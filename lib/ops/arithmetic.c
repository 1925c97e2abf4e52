/* arithmetic.c: the loops of the operations on rows, for f32 and f64. */
#include "ops/ops.h"
#include <string.h>

/* All loops are compiled for each instruction set, with PIECEs of the length of its registers. A
 * WIDE vector, of EG_LANES elements, may be longer. gcc 12 then keeps one that is summed to in
 * memory, and compares two of them one number after the other; therefore sums are PIECEs, and lanes
 * are compared in loops (EG_EVERY_LANE). */
typedef float wide_f32 __attribute__((vector_size(EG_LANES * sizeof(float))));
typedef double wide_f64 __attribute__((vector_size(EG_LANES * sizeof(double))));
typedef int32_t bits_f32 __attribute__((vector_size(EG_LANES * sizeof(int32_t))));
typedef int64_t bits_f64 __attribute__((vector_size(EG_LANES * sizeof(int64_t))));
typedef float eight_f32 __attribute__((vector_size(8 * sizeof(float))));
typedef double eight_f64 __attribute__((vector_size(8 * sizeof(double))));
typedef float four_f32 __attribute__((vector_size(4 * sizeof(float))));
typedef double four_f64 __attribute__((vector_size(4 * sizeof(double))));
/* From two vectors u and v of four: u[at], v[at], u[at + 1], v[at + 1]. */
#define EVEN_ODD(u, v, at) __builtin_shufflevector(u, v, at, at + 4, at + 1, at + 5)
/* ABREAST: the most rows that are summed at once. PAIR: the same for rows of more than SHORT_SUMS
 * elements, whose own additions keep the processor busy. */
enum { ABREAST = 4, PAIR = 2, SHORT_SUMS = 256 };
/* Norms of rows of at most SHORT_MANY elements are computed for up to MANY rows in stages (all
 * sums, then all roots …), since within a stage no row waits for another. */
enum { MANY = 16, SHORT_MANY = 64 };
/* Returns how many of `rows` rows of n elements a norm takes at once: a multiple of ABREAST; 0: too
 * few or too long. */
static int rows_at_once(int64_t n, int64_t rows)
{
    const int64_t most = n <= SHORT_MANY ? MANY : n <= SHORT_SUMS ? ABREAST : 0;
    return (int)(eg__min64(rows, most) / ABREAST * ABREAST);
}
/* Exponentials of rows of at most SHORT_ROW elements are computed by columns, if there are FEW_ROWS
 * of them. */
enum { SHORT_ROW = 63, FEW_ROWS = 6 };
static bool by_columns(int64_t rows, int64_t n) { return n <= SHORT_ROW && rows >= FEW_ROWS; }
#if defined(__clang__)
#define ALL_ROWS   _Pragma("clang loop unroll(full)")
#define ALL_PIECES _Pragma("clang loop unroll(full)")
#else
#define ALL_ROWS   _Pragma("GCC unroll 4")
#define ALL_PIECES _Pragma("GCC unroll 8")
#endif
#define ALL_BITS                                                       \
    {                                                                  \
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 \
    }

EG_CLONES static void group_logs(double *v)
{
    EG_EVERY_LANE
    for (int l = 0; l < EG_LANES; l++) v[l] = log(v[l]);
}
/* v = ln v by the vector function */
static void logs(int64_t n, double *v)
{
    double lane[EG_LANES];
    for (int64_t k = 0; k < n; k += EG_LANES) {
        for (int l = 0; l < EG_LANES; l++) lane[l] = k + l < n ? v[k + l] : 1;
        group_logs(lane);
        for (int l = 0; l < EG_LANES && k + l < n; l++) v[k + l] = lane[l];
    }
}

#define TEMPLATE "ops/arithmetic_types_of.h"
#include "tensor/each_set_of.h"

const eg_arithmetic *eg__arithmetic(int dtype)
{
    static const eg_arithmetic *const all[2][3] = { EG_OF_EACH_SET(arithmetic_f32),
                                                    EG_OF_EACH_SET(arithmetic_f64) };
    return all[dtype == EG_F64][eg__kernel_isa()];
}
