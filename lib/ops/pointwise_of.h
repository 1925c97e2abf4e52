/* pointwise_of.h: the kernels of pointwise_rows.h for one type T of float or complex numbers.
 * NAME(x) is a name for this type, F(log) its logarithm, REAL the type of constants,
 * CLONES the attributes of a kernel. */
/* clang-format off */
#define SHORT(CALL, OP, VALUE, ...)                                                                \
    EG_INLINE T NAME(OP##_value)(T x, REAL a, REAL b) { T y; (void)a, (void)b; VALUE; return y; }  \
    CLONES static void NAME(OP)(int64_t n, char *const *p, const double *c)                        \
    { NAME(eg__each)(NAME(OP##_value), n & -EG_LANES, p, (REAL)c[0], (REAL)c[1]); }
#define AHEAD(OP)                                                                                  \
    static void NAME(OP)(int64_t n, char *const *p, const double *c)                               \
    { pointwise_ahead(NAME(OP##_lanes), sizeof(T), n, p, c); }
#define ROW(CALL, OP, VALUE, ...) SHORT(CALL, OP##_lanes, VALUE, ) AHEAD(OP)
#define STAGED(CALL, OP, FIRST, VALUE, ...)                                                        \
    EG_INLINE T NAME(OP##_first)(T x) { return FIRST; }                                            \
    EG_INLINE T NAME(OP##_last)(T x, T e) { T y; VALUE; return y; }                                \
    CLONES static void NAME(OP##_lanes)(int64_t n, char *const *p, const double *c)                \
    { (void)c; NAME(eg__each_staged)(NAME(OP##_first), NAME(OP##_last), NULL, n & -EG_LANES, p); } \
    AHEAD(OP)
/* powers and functions with constants are called once too; prefetching for them was not measured */
#define JUMP           SHORT
#define WITH_CONSTANTS SHORT
/* clang-format on */
SHORT(eg_powc, cube, y = x * x * x, )
/* (1/x)², not 1/x², which overflows where the result is a small number */
SHORT(eg_powc, recip_square, y = 1 / x; y = y * y, )
SHORT(eg_powc, powc, y = F(pow)(x, a), )
/* x^½ of C: 0 of −0, and ∞ of −∞ */
SHORT(eg_powc, root, y = x == -(REAL)INFINITY ? -x : F(sqrt)(x) + 0, )
SHORT(eg_powc, recip_root, y = x == -(REAL)INFINITY ? 0 : 1 / (F(sqrt)(x) + 0), )
/* whole powers: by the vector function, which has no negative bases, of |x| */
/* clang-format off */
SHORT(eg_powc, even_power, y = F(pow)(F(fabs)(x), a), )
SHORT(eg_powc, odd_power, const T z = F(pow)(F(fabs)(x), a);
    y = R(x) < 0 ? -z : R(x) > 0 || x != x ? z : a > 0 ? x : 1 / x, )
/* clang-format on */
#include "ops/pointwise_rows.h"
#undef AHEAD
#undef T
#undef NAME
#undef F
#undef REAL
#undef CLONES
