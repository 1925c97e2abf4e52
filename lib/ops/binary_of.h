/* binary_of.h: the kernels of binary_rows.h for one type T. NAME(x) is a name for this type, F(log)
 * its logarithm, U the unsigned type of an integer, else T; INTEGERS omits the operations on
 * floats. */
/* clang-format off */
#define EXACT(CALL, OP, VALUE, ...)                                                                \
    EG_INLINE T NAME(OP##_value)(T a, T b) { return (T)(VALUE); }                                  \
    EG_CLONES static void NAME(OP)(int64_t n, char *const *p, const double *c)                     \
    { NAME(eg__each_pair)(NAME(OP##_value), n, p, c); }
#define FUNCTION(CALL, OP, VALUE, ...)                                                             \
    EG_INLINE T NAME(OP##_value)(T a, T b) { T y; VALUE; return y; }                               \
    EG_CLONES EG_FUSING static void NAME(OP)(int64_t n, char *const *p, const double *c)           \
    { (void)c; NAME(eg__each_pair)(NAME(OP##_value), n & -EG_LANES, p, NULL); }
#define SLOPE(CALL, OP, LOW, HIGH, ...) FUNCTION(CALL, OP, __VA_ARGS__)
#define STAGED(CALL, OP, FIRST, VALUE, ...)                                                        \
    EG_INLINE T NAME(OP##_first)(T b) { return FIRST; }                                            \
    EG_INLINE T NAME(OP##_last)(T a, T b, T e) { T y; VALUE; return y; }                           \
    EG_CLONES EG_FUSING static void NAME(OP)(int64_t n, char *const *p, const double *c)           \
    { (void)c; NAME(eg__each_pair_staged)(NAME(OP##_first), NAME(OP##_last), n & -EG_LANES, p); }
/* clang-format on */
#if !INTEGERS
FUNCTION(eg_pow, pow, y = F(pow)(a, b), )
#endif
#include "ops/binary_rows.h"
