/* sum_types_of.h: the loops of sum.c over contiguous rows for one instruction set, of which TARGET
 * is the attribute, BYTES the length of a register, and SUFFIX part of all names. */
#define JOIN_AGAIN(x, type, suffix) x##_##type##_##suffix
#define JOIN(x, type, suffix)       JOIN_AGAIN(x, type, suffix)
#define REAL                        float
#define NAME(x)                     JOIN(x, f32, SUFFIX)
#define FOUR                        four_f32
#include "contraction/sum_rows_of.h"
#undef REAL
#undef NAME
#undef FOUR
#define REAL    double
#define NAME(x) JOIN(x, f64, SUFFIX)
#define FOUR    four_f64
#include "contraction/sum_rows_of.h"
#undef REAL
#undef NAME
#undef FOUR
#undef JOIN
#undef JOIN_AGAIN
