/* update.c: the loops over elements of an optimiser step, for f32 and f64. Sums are computed in
 * f64, in sixteen fixed lanes, so that they have the same bits on every machine. */
#if HAVE_CONFIG_H
#include <config.h>
#endif
#include "update.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

#if HAVE_TARGET_CLONES
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES
#endif
#define EG__INLINE static inline __attribute__((always_inline))
enum { LANES = 16 };
/* Vectors of at most 32 bytes: with AVX2 gcc 12 compares longer vectors element by element, and
 * keeps sums in them in memory. */
typedef double four_f64 __attribute__((vector_size(32)));
typedef int32_t whole_f32 __attribute__((vector_size(32)));
typedef int64_t whole_f64 __attribute__((vector_size(32)));
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 4")
#endif

/* clip(g, ±limit) as two choices, each of which is one instruction; NaN remains NaN */
#define AT_MOST(a, b)     ((a) > (b) ? (b) : (a))
#define AT_LEAST(a, b)    ((a) < (b) ? (b) : (a))
#define CLIPPED(g, limit) AT_LEAST(AT_MOST(g, limit), -(limit))

/* NaN if b is NaN; a NaN in a remains */
#define LARGER(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))

#define GRADIENT     (CLIPPED(g[k], limit) * coef + l2 * x[k])

#define REAL         float
#define ROOT         sqrtf
/* The product by the inverse in f64 has the bits of the quotient, and leaves the divider to roots
 * and other quotients: a quotient of two numbers of 24 bits is at least 2^-49 of its size away from
 * the middle between two neighbours in f32, and the product is wrong by at most 2^-52. */
#define RATIO(a, b) ((float)((double)(a) * (1 / (double)(b))))
#define NAME(x)     x##_f32
#define SIGNED      int32_t
#define MAGNITUDE   INT32_MAX
#include "update_of.h"

#define REAL        double
#define ROOT        sqrt
#define RATIO(a, b) ((a) / (b))
#define NAME(x)     x##_f64
#define SIGNED      int64_t
#define MAGNITUDE   INT64_MAX
#include "update_of.h"
