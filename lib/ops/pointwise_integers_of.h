/* pointwise_integers_of.h: the kernels of pointwise.c for one type T of integers. U is the unsigned
 * type, in which they compute modulo 2^32 or 2^64; LOW and HIGH are the limits of T, to which
 * constants are clamped, so that a limit of ±∞ in clip has no effect. NAME(x) is a name for this
 * type. */
EG_INLINE void NAME(each)(T (*value)(T x, T a, T b), int64_t n, char *const *p, const double *c)
{
    T *out = (T *)p[0];
    const T *in = (const T *)p[1], a = (T)saturated(c[0], LOW, HIGH),
            b = (T)saturated(c[1], LOW, HIGH);
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) out[k] = value(in[k], a, b);
}
/* clang-format off */
#define KERNEL(OP, VALUE)                                                                        \
    EG_INLINE T NAME(OP##_value)(T x, T a, T b) { (void)a, (void)b; return VALUE; }                \
    EG_CLONES static void NAME(OP)(int64_t n, char *const *p, const double *c)                     \
    { NAME(each)(NAME(OP##_value), n, p, c); }
KERNEL(neg,    (T)(0 - (U)x))
KERNEL(abs,    x < 0 ? (T)(0 - (U)x) : x)
KERNEL(sign,   (x > 0) - (x < 0))
KERNEL(square, (T)((U)x * (U)x))
KERNEL(relu,   x < 0 ? 0 : x)
KERNEL(scale,  (T)((U)a * (U)x))
KERNEL(shift,  (T)((U)a + (U)x))
KERNEL(clip,   x < a ? a : x > b ? b : x)
/* clang-format on */
#undef KERNEL
#undef T
#undef U
#undef LOW
#undef HIGH
#undef NAME
