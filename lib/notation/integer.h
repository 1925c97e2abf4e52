/* integer.h: arithmetic of integers in predicates and expressions. They have 64 bits and saturate
 * at ±(2^63 − 1), so that order is preserved. An element of a tensor may be −2^63: it counts as
 * −(2^63 − 1). Also intervals of such integers. */
#ifndef EG_INTEGER_H
#define EG_INTEGER_H
#include "notation/expression.h"

static inline int64_t eg__clamped(int64_t v) { return v == INT64_MIN ? -INT64_MAX : v; }
static inline int64_t eg__sum(int64_t a, int64_t b)
{
    int64_t v;
    return __builtin_add_overflow(a, b, &v) ? a > 0 ? INT64_MAX : -INT64_MAX : eg__clamped(v);
}
static inline int64_t eg__difference(int64_t a, int64_t b)
{
    int64_t v;
    return __builtin_sub_overflow(a, b, &v) ? b < 0 ? INT64_MAX : -INT64_MAX : eg__clamped(v);
}
static inline int64_t eg__product(int64_t a, int64_t b)
{
    int64_t v;
    if (!__builtin_mul_overflow(a, b, &v)) return eg__clamped(v);
    return (a > 0) == (b > 0) ? INT64_MAX : -INT64_MAX;
}
/* ⌊a / b⌋, 0 where b is 0 */
static inline int64_t eg__quotient(int64_t a, int64_t b)
{
    a = eg__clamped(a); /* −2^63 / −1 does not fit in 64 bits */
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
/* a − |b| ⌊a / |b|⌋, 0 where b is 0 */
static inline int64_t eg__modulus(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    const int64_t m = b < 0 ? eg__difference(0, b) : b, r = eg__clamped(a) % m;
    return r < 0 ? r + m : r;
}
/* Returns the result of operation `code` on at most three operands, integers or bools. */
int64_t eg__integer(int code, int64_t a, int64_t b, int64_t c);
/* Returns the largest magnitude in x. */
static inline int64_t eg__larger(eg_interval x)
{
    const int64_t below = eg__difference(0, x.low); /* −2^63 has no magnitude of 64 bits */
    return below > x.high ? below : x.high;
}
#endif
