/* arithmetic_of.h: arithmetic.c for one type T, with EXP and POW its functions.
 * Sums and maxima run in EG_LANES lanes that are folded in one order, so that they are vectors and
 * yet depend on the row alone. Below LEAST, just above the logarithm of the smallest normal
 * number, e^x counts as 0: beside the 1 of the maximum it is nothing, and the vector functions
 * leave their fast path there, which every masked row would pay for. TINY is just above e^LEAST. */

/* Sets the lanes from `first` on to all bits and those before it to 0, read from a table: gcc 12
 * takes two comparisons of lanes that are combined apart into single numbers. */
EG_INLINE void NAME(from_lane)(int first, BITS *lanes)
{
    static const BITS table[2] = { { 0 }, ALL_BITS };
    memcpy(lanes, (const char *)table + (size_t)(EG_LANES - first) * sizeof(T), sizeof *lanes);
}
/* The sum of all lanes, halves added to halves. A pointer, since vectors of 64 bytes as arguments
 * depend on the instruction set of the caller. */
EG_INLINE T NAME(lanes_summed)(const WIDE *lanes)
{
    WIDE v = *lanes;
    v += TURN(v, 8);
    v += TURN(v, 4);
    v += TURN(v, 2);
    return v[0] + v[1];
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
/* Returns the largest element that is not NaN; −inf if there is none. Each step waits for the one
 * before it, so four maxima grow side by side. */
EG_INLINE T NAME(top_of)(int64_t n, const T *x)
{
    enum { CHAINS = 4 };
    if (n < EG_LANES) {
        T top = -(T)INFINITY;
        for (int64_t k = 0; k < n; k++) top = x[k] > top ? x[k] : top;
        return top;
    }
    WIDE some[CHAINS], top = { 0 }, u;
    int64_t k = 0;
    top -= (T)INFINITY;
    if (n >= CHAINS * EG_LANES) {
        for (int q = 0; q < CHAINS; q++) some[q] = top;
        for (; k + CHAINS * EG_LANES <= n; k += CHAINS * EG_LANES) ALL_ROWS
        for (int q = 0; q < CHAINS; q++) {
            memcpy(&u, x + k + q * EG_LANES, sizeof u);
            some[q] = LARGER(u, some[q]);
        }
        top = LARGER(LARGER(some[3], some[2]), LARGER(some[1], some[0]));
    }
    for (; k < n; k += EG_LANES) { /* the last group may overlap the one before */
        memcpy(&u, x + (k + EG_LANES <= n ? k : n - EG_LANES), sizeof u);
        top = LARGER(u, top);
    }
    top = LARGER(TURN(top, 8), top);
    top = LARGER(TURN(top, 4), top);
    top = LARGER(TURN(top, 2), top);
    top = LARGER(TURN(top, 1), top); /* a choice of two numbers would become a jump */
    return top[0];
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
#define SUM  NAME(dots)
#define TERM (u * v)
#include "ops/arithmetic_sum_of.h"
#define SUM  NAME(sums_along)
#define TERM (u * (v - s))
#include "ops/arithmetic_sum_of.h"
#define SUM       NAME(live_sums)
#define WIDE_TERM (WIDE)((BITS)v & (u != -(T)INFINITY))
#define TERM      (u == -(T)INFINITY ? 0 : v)
#include "ops/arithmetic_sum_of.h"
/* the same for one row */
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
        BITS v; /* one store, so that the next load need not wait */
        bytes b;
        memcpy(&v, x + k, sizeof v);
        memcpy(&b, keep + k, sizeof b);
        const BITS m = __builtin_convertvector(b, BITS) != 0;
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
EG_CLONES static double NAME(sum)(int64_t n, const void *x) { return (double)NAME(sum_of)(n, x); }
EG_CLONES static double NAME(sumsq)(int64_t n, const void *x, double s)
{
    return (double)NAME(squares_of)(n, x, (T)s);
}
EG_CLONES static double NAME(tallest)(int64_t n, const void *x)
{
    return (double)NAME(tallest_of)(n, x);
}
EG_CLONES static double NAME(sumpow)(int64_t n, const void *x, double p)
{
    return (double)NAME(powers_of)(n, x, (T)p);
}
EG_CLONES static bool NAME(tame)(int64_t n, const void *from)
{
    const T *x = from;
    T lane[EG_LANES] = { 0 }; /* 1 where an element was out of bounds */
    int64_t k = 0;
    for (; k + EG_LANES <= n; k += EG_LANES) {
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++)
            lane[l] = x[k + l] <= TAME && x[k + l] >= -TAME ? lane[l] : 1;
    }
    for (; k < n; k++) lane[0] = x[k] <= TAME && x[k] >= -TAME ? lane[0] : 1;
    T wild = 0;
    for (int l = 0; l < EG_LANES; l++) wild += lane[l];
    return wild == 0;
}
EG_CLONES static void NAME(affine)(int64_t n, const void *x, double s, double c, void *y)
{
    NAME(affine_of)(n, x, (T)s, (T)c, y);
}
/* y = y gain + bias; NULL: without */
EG_INLINE void NAME(gained)(int64_t n, T *y, const T *gain, const T *bias)
{
    if (gain && bias) {
        EG_EVERY_LANE for (int64_t k = 0; k < n; k++) y[k] = y[k] * gain[k] + bias[k];
    } else if (gain) {
        EG_EVERY_LANE for (int64_t k = 0; k < n; k++) y[k] *= gain[k];
    } else if (bias) {
        EG_EVERY_LANE for (int64_t k = 0; k < n; k++) y[k] += bias[k];
    }
}
EG_CLONES static void NAME(gain)(int64_t n, void *y, const void *gain, const void *bias)
{
    NAME(gained)(n, y, gain, bias);
}
static double NAME(at)(const void *x, int64_t k) { return (double)((const T *)x)[k]; }

#include "ops/arithmetic_softmax_of.h"

/* -- norms of several rows, contiguous, of any length ------------------------------------------ */
/* The mean and r of `rows` rows, a constant, that lie `xs` elements apart. */
EG_INLINE void NAME(moments)(const eg_row_facts *b, int rows, const T *x, int64_t xs, double *mean,
                             double *r)
{
    double total[ABREAST] = { 0 }, squares[ABREAST] = { 0 };
    T shift[ABREAST] = { 0 }, sum[ABREAST];
    for (int64_t k = 0; b->center && k < b->n; k += EG_CHUNK) {
        NAME(sums)(rows, eg__min64(b->n - k, EG_CHUNK), x + k, xs, x + k, xs, shift, sum);
        for (int q = 0; q < rows; q++) total[q] += (double)sum[q];
    }
    for (int q = 0; q < rows; q++) {
        mean[q] = total[q] / (double)b->n;
        shift[q] = (T)mean[q];
    }
    for (int64_t k = 0; k < b->n; k += EG_CHUNK) {
        const int64_t m = eg__min64(b->n - k, EG_CHUNK);
        NAME(sums_of_squares)(rows, m, x + k, xs, x + k, xs, shift, sum);
        for (int q = 0; q < rows; q++) squares[q] += (double)sum[q];
    }
    for (int q = 0; q < rows; q++) {
        const double spread = squares[q] / (double)b->n + b->c;
        r[q] = spread == 0 ? 0 : 1 / sqrt(spread); /* all equal: x̂ and its gradient are 0 */
    }
}
/* r; p: r, x */
EG_CLONES static void NAME(rstd)(int64_t rows, char *const *p, const int64_t *step,
                                 const void *user)
{
    for (int64_t row = 0; row < rows; row++) {
        double mean, r;
        NAME(moments)(user, 1, EG_ROW(T, 1, row), 0, &mean, &r);
        *EG_ROW(T, 0, row) = (T)r;
    }
}
/* y = (x − mean) r gain + bias for `rows` rows, a constant; p: y, x */
EG_INLINE void NAME(norm_some)(const eg_row_facts *b, int rows, int64_t row, char *const *p,
                               const int64_t *step)
{
    double mean[ABREAST], r[ABREAST];
    NAME(moments)(b, rows, EG_ROW(T, 1, row), step[1] / (int64_t)sizeof(T), mean, r);
    for (int q = 0; q < rows; q++) {
        T *y = EG_ROW(T, 0, row + q);
        NAME(affine_of)(b->n, EG_ROW(T, 1, row + q), (T)mean[q], (T)r[q], y);
        NAME(gained)(b->n, y, b->gain, b->bias);
    }
}
EG_CLONES static void NAME(norm)(int64_t rows, char *const *p, const int64_t *step,
                                 const void *user)
{
    int64_t row = 0;
    if (((const eg_row_facts *)user)->n <= SHORT_SUMS)
        for (; row + ABREAST <= rows; row += ABREAST) NAME(norm_some)(user, ABREAST, row, p, step);
    for (; row + PAIR <= rows; row += PAIR) NAME(norm_some)(user, PAIR, row, p, step);
    for (; row < rows; row++) NAME(norm_some)(user, 1, row, p, step);
}
/* h = g gain for m elements of each row from `from` on, in EG_CHUNK positions a row; without a gain h
 * is g. Returns where they begin, and sets *hs to the elements from row to row. */
EG_INLINE const T *NAME(gained_cotangent)(const T *gain, int rows, int64_t from, int64_t m,
                                          const T *g, int64_t gs, T *h, int64_t *hs)
{
    *hs = gain ? EG_CHUNK : gs;
    if (!gain) return g + from;
    for (int q = 0; q < rows; q++) {
        const T *v = g + q * gs + from;
        T *to = h + q * EG_CHUNK;
        EG_EVERY_LANE for (int64_t k = 0; k < m; k++) to[k] = v[k] * gain[from + k];
    }
    return h;
}
/* dx = r (h − mean h − x̂ mean(h x̂)) = r (h − a) − (x − mean) k, with h = g gain; sums += g
 * x̂ and g, for `rows` rows, a constant; p: dx, x, g */
EG_INLINE void NAME(norm_slope_some)(const eg_row_facts *b, int rows, int64_t row, char *const *p,
                                     const int64_t *step)
{
    _Alignas(64) T h[ABREAST * EG_CHUNK];
    const T *x = EG_ROW(T, 1, row), *g = EG_ROW(T, 2, row), *v = g;
    const int64_t n = b->n, xs = step[1] / (int64_t)sizeof(T), gs = step[2] / (int64_t)sizeof(T);
    const double count = (double)n;
    double mean[ABREAST], r[ABREAST], total[ABREAST] = { 0 }, along[ABREAST] = { 0 };
    T shift[ABREAST], sum[ABREAST];
    int64_t hs = gs;
    NAME(moments)(b, rows, x, xs, mean, r);
    for (int q = 0; q < rows; q++) shift[q] = (T)mean[q];
    for (int64_t from = 0, m; from < n; from += m) {
        m = eg__min64(n - from, EG_CHUNK);
        v = NAME(gained_cotangent)(b->gain, rows, from, m, g, gs, h, &hs);
        if (b->center) NAME(sums)(rows, m, v, hs, v, hs, shift, sum);
        for (int q = 0; q < rows && b->center; q++) total[q] += (double)sum[q];
        NAME(sums_along)(rows, m, v, hs, x + from, xs, shift, sum);
        for (int q = 0; q < rows; q++) along[q] += (double)sum[q];
    }
    T *sum_along = b->sums, *sum_g = b->sums ? sum_along + n : NULL;
    for (int64_t from = 0, m; from < n; from += m) {
        m = eg__min64(n - from, EG_CHUNK);
        if (n > EG_CHUNK) v = NAME(gained_cotangent)(b->gain, rows, from, m, g, gs, h, &hs);
        for (int q = 0; q < rows; q++) {
            const T a = (T)(total[q] / count), s = shift[q], c = (T)r[q],
                    d = (T)(r[q] * r[q] * r[q] * along[q] / count);
            const T *w = v + q * hs, *at = x + q * xs + from, *u = g + q * gs + from;
            T *to = EG_ROW(T, 0, row + q) + from;
            if (!sum_g) {
                EG_EVERY_LANE
                for (int64_t k = 0; k < m; k++) to[k] = (w[k] - a) * c - (at[k] - s) * d;
                continue;
            }
            T *sx = sum_along + from, *sg = sum_g + from;
            EG_EVERY_LANE
            for (int64_t k = 0; k < m; k++) {
                to[k] = (w[k] - a) * c - (at[k] - s) * d;
                sx[k] += u[k] * ((at[k] - s) * c);
                sg[k] += u[k];
            }
        }
    }
}
EG_CLONES static void NAME(norm_slope)(int64_t rows, char *const *p, const int64_t *step,
                                       const void *user)
{
    int64_t row = 0;
    if (((const eg_row_facts *)user)->n <= SHORT_SUMS)
        for (; row + ABREAST <= rows; row += ABREAST)
            NAME(norm_slope_some)(user, ABREAST, row, p, step);
    for (; row + PAIR <= rows; row += PAIR) NAME(norm_slope_some)(user, PAIR, row, p, step);
    for (; row < rows; row++) NAME(norm_slope_some)(user, 1, row, p, step);
}
EG_CLONES static void NAME(add_row)(int64_t n, void *to, const void *from)
{
    T *y = to;
    const T *x = from;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) y[k] += x[k];
}
const eg_arithmetic NAME(eg__arithmetic) = {
    .tame = NAME(tame),
    .affine = NAME(affine),
    .gain = NAME(gain),
    .sum = NAME(sum),
    .sumsq = NAME(sumsq),
    .tallest = NAME(tallest),
    .sumpow = NAME(sumpow),
    .at = NAME(at),
    .softmax = NAME(softmax),
    .logsum = NAME(logsum),
    .softmax_slope = NAME(softmax_slope),
    .log_softmax_slope = NAME(log_softmax_slope),
    .softmax_less = NAME(softmax_less),
    .rstd = NAME(rstd),
    .norm = NAME(norm),
    .norm_slope = NAME(norm_slope),
    .add = NAME(add_row),
};
