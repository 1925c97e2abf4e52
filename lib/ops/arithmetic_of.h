/* arithmetic_of.h: the functions of arithmetic.c for one type T, whose functions are EXP and POW.
 *
 * Sums and maxima are computed in EG_LANES lanes, which are combined in a fixed order, so that they
 * use vectors and yet depend on the row only. Below LEAST, which is just above the logarithm of the
 * smallest normal number, e^x is taken as 0: it is negligible next to the 1 of the maximum, and the
 * vector functions are slow there, which every masked row would pay for. TINY is just above
 * e^LEAST. */

typedef T NAME(piece) __attribute__((vector_size(BYTES)));
typedef WORD NAME(piece_bits) __attribute__((vector_size(BYTES)));
#define PIECE      NAME(piece)
#define PIECE_BITS NAME(piece_bits)
#define IN_PIECE   (BYTES / (int)sizeof(T))
#define PIECES     (EG_LANES / IN_PIECE)

/* Sets the lanes from `first` on to all bits and those before it to 0, read from a table: gcc 12
 * splits two combined comparisons of lanes into scalar ones. */
EG_INLINE void NAME(from_lane)(int first, PIECE_BITS *lanes)
{
    static const BITS table[2] = { { 0 }, ALL_BITS };
    memcpy(lanes, (const char *)table + (size_t)(EG_LANES - first) * sizeof(T), sizeof *table);
}
/* Returns the sum of the PIECES at `lanes`, halves added to halves. */
EG_INLINE T NAME(lanes_summed)(const PIECE *lanes)
{
    EIGHT half[2];
    FOUR part[2];
    memcpy(half, lanes, sizeof half);
    half[0] += half[1];
    memcpy(part, half, sizeof part);
    part[0] += part[1];
    return (part[0][0] + part[0][2]) + (part[0][1] + part[0][3]);
}
/* The same of four, whose sums are the lanes of one. */
EG_INLINE void NAME(lanes_summed_four)(PIECE (*lanes)[PIECES], T *total)
{
    FOUR q[4];
    ALL_ROWS for (int r = 0; r < 4; r++)
    {
        EIGHT half[2];
        FOUR part[2];
        memcpy(half, lanes[r], sizeof half);
        half[0] += half[1];
        memcpy(part, half, sizeof part);
        q[r] = part[0] + part[1];
    }
    const FOUR a = EVEN_ODD(q[0], q[1], 0) + EVEN_ODD(q[0], q[1], 2),
               b = EVEN_ODD(q[2], q[3], 0) + EVEN_ODD(q[2], q[3], 2),
               sum = __builtin_shufflevector(a, b, 0, 1, 4, 5) +
                     __builtin_shufflevector(a, b, 2, 3, 6, 7);
    memcpy(total, &sum, sizeof sum);
}
/* Folds a row to one number: applies `pick` to term(x[k], p), beginning with `start`. once: no
 * element may be used twice. */
EG_INLINE T NAME(fold)(int64_t n, const T *x, T p, T start, bool once, T (*term)(T x, T p),
                       T (*pick)(T v, T so_far))
{
    T lane[EG_LANES];
    int64_t first = 0;
    for (int l = 0; l < EG_LANES; l++) lane[l] = start;
    for (; first + EG_LANES <= n; first += EG_LANES) {
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) lane[l] = pick(term(x[first + l], p), lane[l]);
    }
    if (first < n && n >= EG_LANES && !once) {
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) lane[l] = pick(term(x[n - EG_LANES + l], p), lane[l]);
    } else
        for (int64_t k = first; k < n; k++) lane[k - first] = pick(term(x[k], p), lane[k - first]);
    for (int l = 0; l < 8; l++) lane[l] = pick(lane[l + 8], lane[l]);
    for (int l = 0; l < 4; l++) lane[l] = pick(lane[l + 4], lane[l]);
    for (int l = 0; l < 2; l++) lane[l] = pick(lane[l + 2], lane[l]);
    return pick(lane[1], lane[0]);
}
EG_INLINE T NAME(larger)(T v, T so_far) { return v > so_far ? v : so_far; }
EG_INLINE T NAME(plus)(T v, T so_far) { return so_far + v; }
EG_INLINE T NAME(itself)(T x, T p) { return (void)p, x; }
EG_INLINE T NAME(absolute)(T x, T p) { return (void)p, x < 0 ? -x : x; }
EG_INLINE T NAME(power)(T x, T p) { return POW(x < 0 ? -x : x, p); }
/* so_far = the larger of v and so_far, for n lanes; so_far also where v is NaN */
EG_INLINE void NAME(larger_of)(int n, const T *v, T *so_far)
{
    EG_EVERY_LANE
    for (int l = 0; l < n; l++) so_far[l] = NAME(larger)(v[l], so_far[l]);
}
/* Returns the largest of EG_LANES lanes, which it changes; the order is that of `fold`. */
EG_INLINE T NAME(largest_lane)(T *lane)
{
    NAME(larger_of)(8, lane + 8, lane);
    NAME(larger_of)(4, lane + 4, lane);
    NAME(larger_of)(2, lane + 2, lane);
    NAME(larger_of)(1, lane + 1, lane);
    return lane[0];
}
/* Returns the largest element that is not NaN; −inf if there is none. Each step depends on the
 * previous one, so four maxima are computed in parallel. */
EG_INLINE T NAME(top_of)(int64_t n, const T *x)
{
    enum { MOST = 4 * EG_LANES };
    if (n < EG_LANES) {
        T top = -(T)INFINITY;
        for (int64_t k = 0; k < n; k++) top = x[k] > top ? x[k] : top;
        return top;
    }
    _Alignas(64) T lane[MOST];
    int64_t k = 0;
    for (int l = 0; l < MOST; l++) lane[l] = -(T)INFINITY;
    for (; k + MOST <= n; k += MOST) NAME(larger_of)(MOST, x + k, lane);
    for (; k + EG_LANES <= n; k += EG_LANES) NAME(larger_of)(EG_LANES, x + k, lane);
    if (k < n) NAME(larger_of)(EG_LANES, x + n - EG_LANES, lane); /* overlaps the group before */
    NAME(larger_of)(2 * EG_LANES, lane + 2 * EG_LANES, lane);
    NAME(larger_of)(EG_LANES, lane + EG_LANES, lane);
    return NAME(largest_lane)(lane);
}
EG_INLINE T NAME(tallest_of)(int64_t n, const T *x)
{
    return NAME(fold)(n, x, 0, 0, false, NAME(absolute), NAME(larger));
}
EG_INLINE T NAME(powers_of)(int64_t n, const T *x, T p)
{
    return NAME(fold)(n, x, p, 0, true, NAME(power), NAME(plus));
}

#define SUM  NAME(sums)
#define TERM u
#include "ops/arithmetic_sum_of.h"
#define SUM  NAME(sums_of_squares)
#define TERM ((u - s) * (u - s))
#include "ops/arithmetic_sum_of.h"
#define SUM  NAME(sums_of_scaled_squares)
#define TERM ((u * s) * (u * s))
#include "ops/arithmetic_sum_of.h"
#define SUM  NAME(dots)
#define TERM (u * v)
#include "ops/arithmetic_sum_of.h"
#define SUM  NAME(sums_along)
#define TERM (u * (v - s))
#include "ops/arithmetic_sum_of.h"
#define SUM       NAME(absolutes)
#define WIDE_TERM (PIECE)((PIECE_BITS)u & MAGNITUDE)
#define TERM      (u < 0 ? -u : u)
#include "ops/arithmetic_sum_of.h"
/* v = 0 where u is −inf */
EG_INLINE void NAME(live)(const WIDE *u, WIDE *v)
{
    EG_EVERY_LANE
    for (int l = 0; l < EG_LANES; l++) (*v)[l] = (*u)[l] == -(T)INFINITY ? 0 : (*v)[l];
}
#define SUM       NAME(live_sums)
#define WIDE_TERM (PIECE)((PIECE_BITS)v & (u != -(T)INFINITY))
#define TERM      (u == -(T)INFINITY ? 0 : v)
#include "ops/arithmetic_sum_of.h"
/* these for one row */
EG_INLINE T NAME(sum_of)(int64_t n, const T *x)
{
    T sum;
    NAME(sums)(1, n, x, 0, x, 0, &(T){ 0 }, &sum);
    return sum;
}
EG_INLINE T NAME(squares_of)(int64_t n, const T *x, T s)
{
    T sum;
    NAME(sums_of_squares)(1, n, x, 0, x, 0, &s, &sum);
    return sum;
}
EG_INLINE T NAME(dot_of)(int64_t n, const T *a, const T *b)
{
    T sum;
    NAME(dots)(1, n, a, 0, b, 0, &(T){ 0 }, &sum);
    return sum;
}
EG_INLINE T NAME(live_of)(int64_t n, const T *y, const T *g)
{
    T sum;
    NAME(live_sums)(1, n, y, 0, g, 0, &(T){ 0 }, &sum);
    return sum;
}

EG_INLINE void NAME(select_of)(int64_t n, const T *x, const uint8_t *keep, T *y)
{
    int64_t k = 0;
    for (; k + EG_LANES <= n; k += EG_LANES) {
        BITS v, m = { 0 }; /* a single store, so that the next load does not have to wait */
        memcpy(&v, x + k, sizeof v);
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) m[l] = keep[k + l] ? -1 : 0;
        v = (v & m) | (MINUS_INF & ~m);
        memcpy(y + k, &v, sizeof v);
    }
    for (; k < n; k++) y[k] = keep[k] ? x[k] : -(T)INFINITY;
}
/* y = keep ? y : fill */
EG_INLINE void NAME(erase_of)(int64_t n, const uint8_t *keep, T fill, T *y)
{
    for (int64_t k = 0; k < n; k++) y[k] = keep[k] ? y[k] : fill;
}
/* y = (x − s) c; y may be x */
EG_INLINE void NAME(affine_of)(int64_t n, const T *x, T s, T c, T *y)
{
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) y[k] = (x[k] - s) * c;
}
/* -- a chunk ---------------------------------------------------------------------------------- */
TARGET static double NAME(sum)(int64_t n, const void *x) { return (double)NAME(sum_of)(n, x); }
TARGET static double NAME(sumsq)(int64_t n, const void *x, double s)
{
    return (double)NAME(squares_of)(n, x, (T)s);
}
TARGET static double NAME(sumsq_scaled)(int64_t n, const void *x, double c)
{
    const T by = (T)c;
    T sum;
    NAME(sums_of_scaled_squares)(1, n, x, 0, x, 0, &by, &sum);
    return (double)sum;
}
TARGET static double NAME(tallest)(int64_t n, const void *x)
{
    return (double)NAME(tallest_of)(n, x);
}
TARGET static double NAME(sumpow)(int64_t n, const void *x, double p)
{
    return (double)NAME(powers_of)(n, x, (T)p);
}
TARGET static double NAME(sumabs)(int64_t n, const void *x)
{
    T sum;
    NAME(absolutes)(1, n, x, 0, x, 0, &(T){ 0 }, &sum);
    return (double)sum;
}
TARGET static bool NAME(moderate)(int64_t n, const void *from)
{
    const T *x = from;
    T lane[EG_LANES] = { 0 }; /* 1 where an element was out of bounds */
    int64_t k = 0;
    for (; k + EG_LANES <= n; k += EG_LANES) {
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++)
            lane[l] = x[k + l] <= MODERATE && x[k + l] >= -MODERATE ? lane[l] : 1;
    }
    for (; k < n; k++) lane[0] = x[k] <= MODERATE && x[k] >= -MODERATE ? lane[0] : 1;
    T exceeds = 0;
    for (int l = 0; l < EG_LANES; l++) exceeds += lane[l];
    return exceeds == 0;
}
TARGET static void NAME(affine)(int64_t n, const void *x, double s, double c, void *y)
{
    NAME(affine_of)(n, x, (T)s, (T)c, y);
}
static double NAME(at)(const void *x, int64_t k) { return (double)((const T *)x)[k]; }

#include "ops/arithmetic_softmax_of.h"
#include "ops/arithmetic_norm_of.h"

TARGET static void NAME(add_row)(int64_t n, void *to, const void *from)
{
    T *y = to;
    const T *x = from;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) y[k] += x[k];
}
static const eg_arithmetic NAME(arithmetic) = {
    .moderate = NAME(moderate),
    .affine = NAME(affine),
    .sum = NAME(sum),
    .sumsq = NAME(sumsq),
    .sumsq_scaled = NAME(sumsq_scaled),
    .tallest = NAME(tallest),
    .sumpow = NAME(sumpow),
    .sumabs = NAME(sumabs),
    .at = NAME(at),
    .softmax = NAME(softmax),
    .logsum = NAME(logsum),
    .softmax_slope = NAME(softmax_slope),
    .softmax_across = NAME(softmax_across),
    .logsum_across = NAME(logsum_across),
    .softmax_slope_across = NAME(softmax_slope_across),
    .log_softmax_slope_across = NAME(log_softmax_slope_across),
    .softmax_less_across = NAME(softmax_less_across),
    .log_softmax_slope = NAME(log_softmax_slope),
    .softmax_less = NAME(softmax_less),
    .rstd = NAME(rstd),
    .norm = NAME(norm),
    .norm_slope = NAME(norm_slope),
    .add = NAME(add_row),
};
#undef PIECE
#undef PIECE_BITS
#undef IN_PIECE
#undef PIECES
#undef T
#undef NAME
#undef BITS
#undef WIDE
#undef EIGHT
#undef FOUR
#undef WORD
#undef EXP
#undef POW
#undef LEAST
#undef TINY
#undef MODERATE
#undef MINUS_INF
#undef MAGNITUDE
