/* plain.c: the contraction by its definition, for any type: c[o] (+)= alpha Σ_k a[o,k] b[o,k]. It
 * is used for integers (summed in i64) and complex numbers (nothing is conjugated); floats have
 * faster kernels. b may be NULL (a factor 1). */
#include "contraction/gemm.h"
#include <string.h>

/* LANES: elements of the result that are computed at once; SUMS (below): sums of an element */
enum { LANES = 256, FEW_TERMS = 8, MANY_TERMS = 16 };

/* a b of complex numbers as BLAS and NumPy compute it. The operator * of C would also recover
 * infinities from products that are NaN + i NaN (C11, annex G), with a test of each product. */
EG_INLINE double complex times(double complex a, double complex b)
{
    return __builtin_complex(creal(a) * creal(b) - cimag(a) * cimag(b),
                             creal(a) * cimag(b) + cimag(a) * creal(b));
}
#define TIMES(a, b) ((WIDE)(a) * (WIDE)(b))
#define SUMS        1
#define ANY_ORDER   0 /* 1: sums are exact in any order */
/* Sums of integers are unsigned: they wrap, while overflow of i64 would be undefined. */
#define T       float
#define WIDE    float
#define FACTOR  float
#define NAME(x) x##_f32
#include "contraction/plain_of.h"
#define T       double
#define WIDE    double
#define FACTOR  double
#define NAME(x) x##_f64
#include "contraction/plain_of.h"
#undef ANY_ORDER
#define ANY_ORDER 1
#undef TIMES
#define TIMES(a, b) ((uint64_t)((int64_t)(a) * (int64_t)(b))) /* one instruction of 32 bits */
#define T           int32_t
#define WIDE        uint64_t
#define FACTOR      int64_t
#define NAME(x)     x##_i32
#include "contraction/plain_of.h"
#undef TIMES
#define TIMES(a, b) ((WIDE)(a) * (WIDE)(b))
#define T           uint64_t
#define WIDE        uint64_t
#define FACTOR      int64_t
#define NAME(x)     x##_i64
#include "contraction/plain_of.h"
#define T       uint8_t
#define WIDE    uint64_t
#define FACTOR  int64_t
#define NAME(x) x##_bool
#include "contraction/plain_of.h"
#undef ANY_ORDER
#define ANY_ORDER 0
#undef TIMES
#undef SUMS
#define TIMES   times
#define SUMS    4
#define T       double complex
#define WIDE    double complex
#define FACTOR  double
#define NAME(x) x##_c128
#include "contraction/plain_of.h"

void eg__plain(eg_ctx *cx, eg_dtype dtype, const eg_axes *out, const eg_axes *k, const void *a,
               const void *b, void *c, double alpha, bool add)
{
    if (b && !eg__is_inexact(dtype) && eg__integers(cx, dtype, out, k, a, b, c, alpha, add)) return;
    switch (dtype) {
    case EG_F64: plain_f64(out, k, a, b, c, alpha, add); break;
    case EG_I32: plain_i32(out, k, a, b, c, alpha, add); break;
    case EG_I64: plain_i64(out, k, a, b, c, alpha, add); break;
    case EG_BOOL: plain_bool(out, k, a, b, c, alpha, add); break;
    case EG_C128: plain_c128(out, k, a, b, c, alpha, add); break;
    default: plain_f32(out, k, a, b, c, alpha, add);
    }
}
