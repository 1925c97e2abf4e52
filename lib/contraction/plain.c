/* plain.c: the contraction as it is defined, for any types: c[o] (+)= Σ_k a[o,k] b[o,k], one
 * element after the other. Integers end here (summed in i64) and complex numbers (nothing is
 * conjugated); floats never need to. b may be NULL (a factor 1). */
#include "contraction/gemm.h"

#define PLAIN(name, type, sum_type)                                                      \
    static void name(const eg_axes *out, const eg_axes *k, const type *a, const type *b, \
                     sum_type *c, bool add)                                              \
    {                                                                                    \
        for (int64_t o = 0; o < out->total; o++) {                                       \
            const eg_place at = eg__place(out, o);                                       \
            const eg_axis one = { .size = 1 }, *in = k->n ? &k->axis[k->n - 1] : &one;   \
            sum_type sum = 0;                                                            \
            for (int64_t q = 0; q < k->total; q += in->size) {                           \
                const eg_place in_k = eg__place(k, q);                                   \
                const type *pa = a + at.a + in_k.a, *pb = b ? b + at.b + in_k.b : NULL;  \
                for (int64_t i = 0; i < in->size; i++)                                   \
                    sum += pb ? (sum_type)pa[i * in->sa] * (sum_type)pb[i * in->sb]      \
                              : (sum_type)pa[i * in->sa];                                \
            }                                                                            \
            c[at.c] = add ? c[at.c] + sum : sum;                                         \
        }                                                                                \
    }
PLAIN(plain_f32, float, float)
PLAIN(plain_f64, double, double)
PLAIN(plain_i32, int32_t, uint64_t) /* wraps as i64 does, without overflow being undefined */
PLAIN(plain_i64, uint64_t, uint64_t)
PLAIN(plain_bool, uint8_t, uint64_t)
PLAIN(plain_c128, double complex, double complex)

void eg__plain(eg_dtype dtype, const eg_axes *out, const eg_axes *k, const void *a, const void *b,
               void *c, bool add)
{
    switch (dtype) {
    case EG_F64: plain_f64(out, k, a, b, c, add); break;
    case EG_I32: plain_i32(out, k, a, b, c, add); break;
    case EG_I64: plain_i64(out, k, a, b, c, add); break;
    case EG_BOOL: plain_bool(out, k, a, b, c, add); break;
    case EG_C128: plain_c128(out, k, a, b, c, add); break;
    default: plain_f32(out, k, a, b, c, add);
    }
}
