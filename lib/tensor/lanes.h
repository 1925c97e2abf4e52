/* lanes.h: arithmetic on lanes. A kernel computes n contiguous elements from contiguous operands.
 * eg__lanes_run calls it block by block for operands with any strides.
 *
 * Vector functions (libmvec, at most 4 ulp) and scalar ones (libm) differ in their last bits, but a
 * value must not depend on its position in memory. A kernel that calls such functions therefore
 * gets only complete groups of EG_LANES elements, the last group padded, so that every element is
 * computed by the same vector function. An exact kernel (IEEE arithmetic only) takes any n. Files
 * that define kernels belong in KERNELS of Makefile.am: -O3 -fno-math-errno -fno-trapping-math,
 * never -ffast-math. */
#ifndef EG_LANES_H
#define EG_LANES_H
#include "core/core.h"
#include "tensor/complex.h"

/* EG_LANES: a multiple of the length of every vector register */
enum { EG_LANES = 16, EG_BLOCK = 256 };

/* glibc 2.35 has vector variants of all of these functions. Without them the loops call libm, which
 * is slower and at least as accurate. */
#if HAVE_SIMD_ATTRIBUTE && defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define EG_SIMD __attribute__((simd("notinbranch")))
#define EG_SIMD_1(name)          \
    double name(double) EG_SIMD; \
    float name##f(float) EG_SIMD;
#define EG_SIMD_2(name)                  \
    double name(double, double) EG_SIMD; \
    float name##f(float, float) EG_SIMD;
EG_SIMD_1(exp)
EG_SIMD_1(exp2)
EG_SIMD_1(expm1)
EG_SIMD_1(log)
EG_SIMD_1(log2)
EG_SIMD_1(log10)
EG_SIMD_1(log1p)
EG_SIMD_1(erf)
EG_SIMD_1(erfc)
EG_SIMD_1(sin)
EG_SIMD_1(cos)
EG_SIMD_1(tan)
EG_SIMD_1(asin)
EG_SIMD_1(acos)
EG_SIMD_1(atan)
EG_SIMD_1(sinh)
EG_SIMD_1(cosh)
EG_SIMD_1(tanh)
EG_SIMD_1(asinh)
EG_SIMD_1(acosh)
EG_SIMD_1(atanh)
EG_SIMD_2(pow)
EG_SIMD_2(atan2)
EG_SIMD_2(hypot)
#undef EG_SIMD_1
#undef EG_SIMD_2
#undef EG_SIMD
#endif
#endif

/* gcc: vectorise for every count (its cost model would compute short rows by libm). clang has no
 * vector functions and would warn. */
#if defined(__GNUC__) && !defined(__clang__)
#define EG_EVERY_LANE _Pragma("omp simd")
#else
#define EG_EVERY_LANE
#endif

/* Products and sums in this function may be fused, that is, rounded once. Only for loops in which
 * every element is a lane of a complete vector, so that no bit depends on its position. */
#if defined(__GNUC__) && !defined(__clang__)
#define EG_FUSING __attribute__((optimize("fp-contract=fast")))
#else
#define EG_FUSING
#endif

/* p[0]: the result; p[1]…: the operands; c: constants. An exact kernel of two operands has none:
 * c[i] ≠ 0 means that p[1 + i] is one element, instead of n, for at most one i. */
typedef void eg_lanes_fn(int64_t n, char *const *p, const double *c);
typedef struct eg_lanes {
    eg_lanes_fn *kernel;
    int operands; /* number of operands without the result; at most 3 */
    bool exact;
    uint8_t width[4]; /* bytes of an element of p[k] */
    const double *c;
} eg_lanes;
/* Computes y with the kernel from y's operands and attribute; returns true. A forward() that calls
 * this function with its own header must do nothing else, since runs of a captured step call the
 * kernel instead. */
bool eg__lanes_run(eg_tensor *y, eg_lanes_fn *, bool exact);
/* Computes one run of elements (an eg_inner); user: an eg_lanes. */
void eg__lanes_inner(int64_t n, char *const *p, const int64_t *step, const void *user);

/* The loops of kernels, for each numeric type. Files without kernels may be compiled without
 * OpenMP, which makes the pragma unknown. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#define TEMPLATE "tensor/lanes_of.h"
#include "tensor/each_type_of.h"
#pragma GCC diagnostic pop

/* An operation whose forward function is a kernel, one for each dtype of operand 1. */
typedef struct eg_lanes_op {
    eg_op op;
    eg_lanes_fn *of[EG_DTYPES]; /* NULL: the operation does not take that dtype */
    bool exact;
} eg_lanes_op;
/* y's operation must be an eg_lanes_op. */
static inline const eg_lanes_op *eg__lanes_op(const eg_tensor *y)
{
    return (const eg_lanes_op *)(const void *)y->op;
}
bool eg__lanes_forward(eg_tensor *y);
#endif
