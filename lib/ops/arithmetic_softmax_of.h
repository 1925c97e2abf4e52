/* arithmetic_softmax_of.h: softmax, log-softmax, log-sum-exp and their gradients for several rows
 * and one type; included by arithmetic_of.h, whose macros and loops it uses. Rows of at most
 * SHORT_ROW elements are computed 16 at a time, one in each lane; longer ones one after another. */

/* y = (x − top) − rest; y may be x. The last PIECE overlaps the one before it. */
EG_INLINE void NAME(less_both)(int64_t n, const T *x, T top, T rest, T *y)
{
    PIECE u, last;
    if (n < IN_PIECE) {
        for (int64_t k = 0; k < n; k++) y[k] = x[k] - top - rest;
        return;
    }
    memcpy(&last, x + n - IN_PIECE, sizeof last);
    for (int64_t k = 0; k + IN_PIECE <= n; k += IN_PIECE) {
        memcpy(&u, x + k, sizeof u);
        u = u - top - rest;
        memcpy(y + k, &u, sizeof u);
    }
    last = last - top - rest;
    if (n % IN_PIECE) memcpy(y + n - IN_PIECE, &last, sizeof last);
}
/* e^v for v ≤ 0; least is LEAST. It is inlined into functions that are EG_FUSING, because epow
 * needs fused operations. */
EG_INLINE T NAME(exp_of)(T v, T least)
{
    const T w = EXP(v < least ? least : v);
    return w < TINY ? 0 : w;
}
/* e = e^((x − s) c), for a group of lanes */
EG_INLINE void NAME(exps_of_group)(const T *x, T s, T c, T least, T *e)
{
    EG_EVERY_LANE
    for (int l = 0; l < EG_LANES; l++) e[l] = NAME(exp_of)((x[l] - s) * c, least);
}
/* y = e^((x − s) c); n is a multiple of EG_LANES */
TARGET EG_FUSING static void NAME(exps_of)(int64_t n, const T *x, T s, T c, T *y)
{
    const volatile T unknown = LEAST; /* volatile, else gcc would move the comparison after the
                                       * call */
    const T least = unknown;
    for (int64_t k = 0; k < n; k += EG_LANES) NAME(exps_of_group)(x + k, s, c, least, y + k);
}
/* to[r] = e^((x[r] − s[r]) c) for rows of n >= EG_LANES elements, and their sums in the order of
 * sum_of; to[r] may be x[r]. The last group of a row overlaps the one before it; elements in both
 * are counted once. */
TARGET EG_FUSING static void NAME(exps_summed)(int64_t rows, int64_t n, const T *const *x,
                                               const T *s, T c, T *const *to, double *total)
{
    const volatile T unknown = LEAST;
    const T least = unknown;
    const int over = (int)(-n & (EG_LANES - 1)); /* number of elements that the last two groups have
                                                  * in common */
    PIECE_BITS ours[PIECES];
    NAME(from_lane)(over, ours);
    for (int64_t r = 0; r < rows; r++) {
        PIECE sum[PIECES] = { { 0 } }, u;
        T last[EG_LANES], *y = to[r];
        memcpy(last, x[r] + n - EG_LANES, sizeof last);
        for (int64_t k = 0; k + EG_LANES <= n; k += EG_LANES) {
            NAME(exps_of_group)(x[r] + k, s[r], c, least, y + k);
            ALL_PIECES for (int q = 0; q < PIECES; q++)
            {
                memcpy(&u, y + k + q * IN_PIECE, sizeof u);
                sum[q] += u;
            }
        }
        if (over) {
            NAME(exps_of_group)(last, s[r], c, least, last);
            ALL_PIECES for (int q = 0; q < PIECES; q++)
            {
                memcpy(&u, last + q * IN_PIECE, sizeof u);
                memcpy(y + n - EG_LANES + q * IN_PIECE, &u, sizeof u);
                sum[q] += (PIECE)((PIECE_BITS)u & ours[q]);
            }
        }
        total[r] = (double)NAME(lanes_summed)(sum);
    }
}
/* exps_of for any n */
EG_INLINE void NAME(exps_of_any)(int64_t n, const T *x, T s, T c, T *y)
{
    const int64_t whole = n & -EG_LANES;
    T rest[EG_LANES];
    NAME(exps_of)(whole, x, s, c, y);
    if (whole == n) return;
    for (int l = 0; l < EG_LANES; l++) rest[l] = whole + l < n ? x[whole + l] : s;
    NAME(exps_of)(EG_LANES, rest, s, c, rest);
    for (int64_t k = whole; k < n; k++) y[k] = rest[k - whole];
}
/* exps_summed for rows of any n */
EG_INLINE void NAME(exps_of_rows)(int64_t rows, int64_t n, const T *const *x, const T *s, T c,
                                  T *const *to, double *sum)
{
    if (n >= EG_LANES) {
        NAME(exps_summed)(rows, n, x, s, c, to, sum);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        NAME(exps_of_any)(n, x[r], s[r], c, to[r]);
        sum[r] = (double)NAME(sum_of)(n, to[r]);
    }
}
/* Returns the elements from which s, which is set, must be subtracted: for a finite top x with s =
 * top. If top is infinite, the limit is written to `limit`, which may be x: 0 where x is top, else
 * −inf; NaN remains NaN. */
EG_INLINE const T *NAME(shifted)(int64_t n, const T *x, T top, T *limit, T *s)
{
    *s = top > -(T)INFINITY ? top : 0;
    if (top != (T)INFINITY) return x;
    for (int64_t k = 0; k < n; k++) limit[k] = x[k] == top ? 0 : x[k] != x[k] ? x[k] : -(T)INFINITY;
    *s = 0;
    return limit;
}

/* -- short rows, EG_LANES of them at once, one in each lane ----------------------------------- */
/* Column x[k] has element k of all rows. Maxima and sums of rows are then computed for all lanes at
 * once, and no lane is idle at the end of a row. The bits are those of a row alone, since sums take
 * the elements in the same order. */
/* Sets *top to the largest elements, and x and *s as `shifted` does. */
EG_INLINE void NAME(columns_top)(int64_t n, WIDE *x, WIDE *top, WIDE *s)
{
    WIDE even = { 0 }, odd;
    T all[EG_LANES];
    even -= (T)INFINITY, odd = even;
    for (int64_t k = 0; k < n; k += 2) { /* two maxima: each step depends on the previous one */
        const WIDE *next = x + (k + 1 < n ? k + 1 : k);
        EG_EVERY_LANE for (int l = 0; l < EG_LANES; l++) even[l] = NAME(larger)(x[k][l], even[l]);
        EG_EVERY_LANE for (int l = 0; l < EG_LANES; l++) odd[l] = NAME(larger)((*next)[l], odd[l]);
    }
    EG_EVERY_LANE for (int l = 0; l < EG_LANES; l++) even[l] = NAME(larger)(odd[l], even[l]);
    EG_EVERY_LANE
    for (int l = 0; l < EG_LANES; l++) (*s)[l] = even[l] > -(T)INFINITY ? even[l] : 0;
    *top = even;
    memcpy(all, &even, sizeof all);
    const bool infinite = NAME(largest_lane)(all) == (T)INFINITY;
    for (int l = 0; l < EG_LANES && infinite; l++) {
        if (even[l] != (T)INFINITY) continue;
        for (int64_t k = 0; k < n; k++)
            if (x[k][l] == x[k][l]) x[k][l] = x[k][l] == even[l] ? 0 : -(T)INFINITY;
        (*s)[l] = 0;
    }
}
/* Reads `count` rows, which are `apart` elements apart, and calls columns_top; further lanes are
 * 0. */
EG_INLINE void NAME(columns_of)(int64_t count, int64_t n, const T *rows, int64_t apart, WIDE *x,
                                WIDE *top, WIDE *s)
{
    if (count < EG_LANES) memset(x, 0, (size_t)n * sizeof *x);
    eg__transpose(sizeof(T), count, n, rows, apart, x, EG_LANES, false);
    NAME(columns_top)(n, x, top, s);
}
/* Sets total[] to the sums of the columns, which are added as the elements of one row are. */
EG_INLINE void NAME(columns_summed)(int64_t n, const WIDE *e, double *total)
{
    const int lanes = n < EG_LANES ? 1 : EG_LANES; /* number of lanes in which a row is summed */
    const int64_t whole = n < EG_LANES ? n : n & -EG_LANES;
    WIDE sum[EG_LANES];
    for (int q = 0; q < lanes; q++)
        for (int i = 0; i < PIECES; i++) {
            const PIECE *of = (const PIECE *)e + i;
            PIECE some = of[q * PIECES];
            for (int64_t k = q + lanes; k < whole; k += lanes) some += of[k * PIECES];
            if (n - lanes + q >= whole) some += of[(n - lanes + q) * PIECES];
            memcpy((T *)&sum[q] + i * IN_PIECE, &some, sizeof some);
        }
    for (int half = lanes / 2; half; half /= 2)
        for (int q = 0; q < half; q++) sum[q] += sum[q + half];
    for (int l = 0; l < EG_LANES; l++) total[l] = (double)sum[0][l];
}
/* e = e^((x − s) c), and their sums; e may be x */
TARGET EG_FUSING static void NAME(exps_of_columns)(int64_t n, const WIDE *x, const WIDE *s, T c,
                                                   WIDE *e, double *total)
{
    const volatile T unknown = LEAST;
    const T least = unknown;
    WIDE v;
    for (int64_t k = 0; k < n; k++) {
        v = (x[k] - *s) * c;
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) v[l] = NAME(exp_of)(v[l], least);
        e[k] = v;
    }
    NAME(columns_summed)(n, e, total);
}
/* Writes x back to the rows. */
EG_INLINE void NAME(columns_to)(int64_t count, int64_t n, const WIDE *x, T *rows, int64_t apart)
{
    eg__transpose(sizeof(T), n, count, x, EG_LANES, rows, apart, false);
}

/* -- rows of any length ------------------------------------------------------------------------ */
/* Returns m elements of a row from k on, with −inf where a mask is false; in `to`, if there are
 * masks. */
EG_INLINE const T *NAME(allowed)(const eg_row_facts *b, int64_t row, int64_t k, int64_t m,
                                 char *const *p, const int64_t *step, T *to)
{
    const T *x = EG_ROW(T, 1, row) + k;
    for (int i = 0; i < b->masks; i++) {
        NAME(select_of)(m, x, EG_ROW(uint8_t, 2 + i, row) + k, to);
        x = to;
    }
    return x;
}
/* Sets masked elements to 0 (of a logarithm: −inf). Only for rows whose sum is NaN, since all their
 * elements have become NaN. */
EG_INLINE void NAME(mask_again)(const eg_row_facts *b, int64_t row, int64_t k, int64_t m,
                                char *const *p, const int64_t *step)
{
    const T fill = b->log ? -(T)INFINITY : 0;
    T *y = EG_ROW(T, 0, row) + k;
    for (int i = 0; i < b->masks; i++) {
        const uint8_t *keep = EG_ROW(uint8_t, 2 + i, row) + k;
        NAME(erase_of)(m, keep, fill, y);
    }
}
/* Softmax of a row of more than EG_CHUNK elements: one pass for its maximum, one for its
 * exponentials. The masked x is written to y. */
EG_INLINE void NAME(softmax_long)(const eg_row_facts *b, int64_t row, char *const *p,
                                  const int64_t *step)
{
    _Alignas(64) T e[EG_CHUNK];
    T *y = EG_ROW(T, 0, row), *to, top = -(T)INFINITY, s;
    double total = 0, part;
    for (int64_t k = 0, m; k < b->n; k += m) {
        m = eg__min64(b->n - k, EG_CHUNK);
        const T t = NAME(top_of)(m, NAME(allowed)(b, row, k, m, p, step, y + k));
        top = t > top ? t : top;
    }
    for (int64_t k = 0, m; k < b->n; k += m) {
        m = eg__min64(b->n - k, EG_CHUNK);
        const T *x = NAME(allowed)(b, row, k, m, p, step, y + k);
        x = NAME(shifted)(m, x, top, y + k, &s);
        to = b->log ? e : y + k;
        NAME(exps_of_rows)(1, m, &x, &s, (T)b->c, &to, &part);
        total += part;
    }
    double last = total == 0 ? 1 : total;
    if (b->log) logs(1, &last);
    for (int64_t k = 0, m; k < b->n; k += m) {
        m = eg__min64(b->n - k, EG_CHUNK);
        if (b->log) {
            const T *x = NAME(allowed)(b, row, k, m, p, step, y + k);
            x = NAME(shifted)(m, x, top, y + k, &s);
            NAME(less_both)(m, x, s, (T)last, y + k);
        } else
            NAME(affine_of)(m, y + k, 0, total == 0 ? 0 : (T)(1 / total), y + k);
        if (total != total) NAME(mask_again)(b, row, k, m, p, step);
    }
}
/* Returns how many rows of n elements are computed together, so that they remain in the first-level
 * cache. */
EG_INLINE int64_t NAME(block_of)(int64_t n)
{
    return n > EG_CHUNK ? 1 : eg__min64(4 * EG_CHUNK / n, EG_CHUNK);
}
/* Sets e to the softmax of columns, or its logarithm; `last` has the sums of the exponentials e. */
EG_INLINE void NAME(columns_divided)(bool log, int64_t n, const WIDE *x, const WIDE *s, WIDE *e,
                                     double *last)
{
    WIDE rest;
    if (log) {
        EG_EVERY_LANE for (int l = 0; l < EG_LANES; l++) last[l] = last[l] == 0 ? 1 : last[l];
        group_logs(last);
        EG_EVERY_LANE for (int l = 0; l < EG_LANES; l++) rest[l] = (T)last[l];
        for (int64_t k = 0; k < n; k++) e[k] = x[k] - *s - rest;
    } else {
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) rest[l] = last[l] == 0 ? 0 : (T)(1 / last[l]);
        for (int64_t k = 0; k < n; k++) e[k] = e[k] * rest;
    }
}
/* Computes softmax of c x, or its logarithm, for several short rows in lanes. */
EG_INLINE void NAME(softmax_columns)(const eg_row_facts *b, int64_t first, int64_t count,
                                     char *const *p, const int64_t *step)
{
    const int64_t n = b->n;
    const int from = b->masks ? 0 : 1; /* the masked x is written to y */
    const int64_t apart = step[from] / (int64_t)sizeof(T);
    WIDE x[SHORT_ROW], e[SHORT_ROW], top, s;
    double last[EG_LANES];
    for (int64_t r = 0; b->masks && r < count; r++)
        NAME(allowed)(b, first + r, 0, n, p, step, EG_ROW(T, 0, first + r));
    NAME(columns_of)(count, n, EG_ROW(T, from, first), apart, x, &top, &s);
    NAME(exps_of_columns)(n, x, &s, (T)b->c, e, last);
    NAME(columns_divided)(b->log, n, x, &s, e, last);
    NAME(columns_to)(count, n, e, EG_ROW(T, 0, first), step[0] / (int64_t)sizeof(T));
    for (int64_t r = 0; b->masks && r < count; r++)
        if (last[r] != last[r]) NAME(mask_again)(b, first + r, 0, n, p, step);
}
/* softmax_columns for longer rows, or few. The masked x is written to y, and so are the
 * exponentials. Those of a logarithm are only summed; writing them brings the lines of y to the
 * cache while others are computed, but they are not written to y if it has x. The logarithms of
 * several rows' sums are computed in one call. */
EG_INLINE void NAME(softmax_block)(const eg_row_facts *b, int64_t first, int64_t count,
                                   char *const *p, const int64_t *step)
{
    const int64_t n = b->n;
    _Alignas(64) T e[EG_CHUNK];
    const T *x[EG_CHUNK];
    T s[EG_CHUNK], *to[EG_CHUNK];
    double last[EG_CHUNK];
    for (int64_t r = 0; r < count; r++) {
        T *y = EG_ROW(T, 0, first + r);
        x[r] = NAME(allowed)(b, first + r, 0, n, p, step, y);
        x[r] = NAME(shifted)(n, x[r], NAME(top_of)(n, x[r]), y, &s[r]);
        to[r] = b->log && x[r] == y ? e : y;
    }
    NAME(exps_of_rows)(count, n, x, s, (T)b->c, to, last);
    for (int64_t r = 0; b->log && r < count; r++)
        if (last[r] == 0) last[r] = 1; /* all elements are forbidden: −inf remains */
    if (b->log) logs(count, last);
    for (int64_t r = 0; r < count; r++) {
        T *y = EG_ROW(T, 0, first + r);
        const T factor = last[r] == 0 ? 0 : (T)(1 / last[r]);
        if (b->log)
            NAME(less_both)(n, x[r], s[r], (T)last[r], y);
        else
            NAME(affine_of)(n, y, 0, factor, y);
        if (last[r] != last[r]) NAME(mask_again)(b, first + r, 0, n, p, step);
    }
}
/* softmax of c x, or its logarithm; p: y, x, masks */
TARGET static void NAME(softmax)(int64_t rows, char *const *p, const int64_t *step,
                                 const void *user)
{
    const eg_row_facts *b = user;
    const int64_t most = NAME(block_of)(b->n);
    for (int64_t first = 0, count; first < rows; first += count) {
        const bool columns = by_columns(rows - first, b->n);
        count = eg__min64(rows - first, columns ? EG_LANES : most);
        if (columns)
            NAME(softmax_columns)(b, first, count, p, step);
        else if (b->n <= EG_CHUNK)
            NAME(softmax_block)(b, first, count, p, step);
        else
            NAME(softmax_long)(b, first, p, step);
    }
}
/* Column k of interleaved rows is at rows + k along; contiguous rows (along is 1) are `step` bytes
 * apart. Copies n columns of `count` rows to x, where further lanes are 0, or back. */
EG_INLINE void NAME(across_read)(int64_t count, int64_t n, const T *rows, int64_t step,
                                 int64_t along, WIDE *x)
{
    if (count < EG_LANES) memset(x, 0, (size_t)n * sizeof *x);
    if (along == 1)
        eg__transpose(sizeof(T), count, n, rows, step / (int64_t)sizeof(T), x, EG_LANES, false);
    for (int64_t k = 0; k < n && along != 1; k++)
        if (count == EG_LANES)
            memcpy(x + k, rows + k * along, sizeof *x);
        else
            memcpy(x + k, rows + k * along, (size_t)count * sizeof(T));
}
EG_INLINE void NAME(across_write)(int64_t count, int64_t n, const WIDE *x, T *rows, int64_t step,
                                  int64_t along)
{
    if (along == 1) NAME(columns_to)(count, n, x, rows, step / (int64_t)sizeof(T));
    for (int64_t k = 0; k < n && along != 1; k++)
        if (count == EG_LANES)
            memcpy(rows + k * along, x + k, sizeof *x);
        else
            memcpy(rows + k * along, x + k, (size_t)count * sizeof(T));
}
/* softmax of c x, or its logarithm, of interleaved rows, without masks; p: y, x */
TARGET static void NAME(softmax_across)(int64_t rows, char *const *p, const int64_t *step,
                                        const void *user)
{
    const eg_row_facts *b = user;
    WIDE x[EG_ACROSS], e[EG_ACROSS], top, s;
    double last[EG_LANES];
    for (int64_t first = 0, count; first < rows; first += count) {
        count = eg__min64(rows - first, EG_LANES);
        NAME(across_read)(count, b->n, EG_ROW(T, 1, first), step[1], b->along[1], x);
        NAME(columns_top)(b->n, x, &top, &s);
        NAME(exps_of_columns)(b->n, x, &s, (T)b->c, e, last);
        NAME(columns_divided)(b->log, b->n, x, &s, e, last);
        NAME(across_write)(count, b->n, e, EG_ROW(T, 0, first), step[0], b->along[0]);
    }
}
/* softmax_slope of interleaved rows; p: dx, y, g */
TARGET static void NAME(softmax_slope_across)(int64_t rows, char *const *p, const int64_t *step,
                                              const void *user)
{
    const eg_row_facts *b = user;
    const T c = (T)b->c;
    WIDE y[EG_ACROSS], g[EG_ACROSS], term[EG_ACROSS], s;
    double total[EG_LANES];
    for (int64_t first = 0, count; first < rows; first += count) {
        count = eg__min64(rows - first, EG_LANES);
        NAME(across_read)(count, b->n, EG_ROW(T, 1, first), step[1], b->along[1], y);
        NAME(across_read)(count, b->n, EG_ROW(T, 2, first), step[2], b->along[2], g);
        for (int64_t k = 0; k < b->n; k++) term[k] = y[k] * g[k];
        NAME(columns_summed)(b->n, term, total);
        for (int l = 0; l < EG_LANES; l++) s[l] = (T)total[l];
        for (int64_t k = 0; k < b->n; k++) {
            EG_EVERY_LANE
            for (int l = 0; l < EG_LANES; l++)
                g[k][l] = y[k][l] == 0 ? 0 : c * (y[k][l] * (g[k][l] - s[l]));
        }
        NAME(across_write)(count, b->n, g, EG_ROW(T, 0, first), step[0], b->along[0]);
    }
}
/* Sets x to e^(x − max x) of `count` interleaved rows, and top and sum as columns_exps does. */
TARGET __attribute__((noinline)) static void NAME(across_exps)(const eg_row_facts *b, int64_t first,
                                                               int64_t count, char *const *p,
                                                               const int64_t *step, WIDE *x,
                                                               WIDE *top, double *sum)
{
    WIDE s;
    NAME(across_read)(count, b->n, EG_ROW(T, 1, first), step[1], b->along[1], x);
    NAME(columns_top)(b->n, x, top, &s);
    NAME(exps_of_columns)(b->n, x, &s, 1, x, sum);
}
/* logsum of interleaved rows; p: the pair, x */
TARGET static void NAME(logsum_across)(int64_t rows, char *const *p, const int64_t *step,
                                       const void *user)
{
    const eg_row_facts *b = user;
    WIDE x[EG_ACROSS], top;
    double last[EG_LANES];
    for (int64_t first = 0, count; first < rows; first += count) {
        count = eg__min64(rows - first, EG_LANES);
        NAME(across_exps)(b, first, count, p, step, x, &top, last);
        group_logs(last);
        for (int64_t r = 0; r < count; r++) {
            double *pair = EG_ROW(double, 0, first + r);
            pair[0] = (double)top[r];
            pair[1] = last[r];
        }
    }
}
/* softmax_less of interleaved rows; p: dx, x, g */
TARGET static void NAME(softmax_less_across)(int64_t rows, char *const *p, const int64_t *step,
                                             const void *user)
{
    const eg_row_facts *b = user;
    WIDE x[EG_ACROSS], top, less = { 0 }, factor = { 0 };
    double total[EG_LANES];
    for (int64_t first = 0, count; first < rows; first += count) {
        count = eg__min64(rows - first, EG_LANES);
        NAME(across_exps)(b, first, count, p, step, x, &top, total);
        for (int64_t r = 0; r < count; r++) {
            less[r] = (T)(b->c * total[r]);
            factor[r] = (T)((double)*EG_ROW(T, 2, first + r) / total[r]);
        }
        for (int64_t k = 0; k < b->n; k++) x[k] = (x[k] - less) * factor;
        NAME(across_write)(count, b->n, x, EG_ROW(T, 0, first), step[0], b->along[0]);
    }
}
/* Sets top[r], and to[r] and sum[r] as exps_of_rows does for c = 1, for `count` rows from `first`
 * on. If a row has more than EG_CHUNK elements, count is 1, to[0] has room for EG_CHUNK elements,
 * and only top and the sum are results. */
EG_INLINE void NAME(exps_of_block)(int64_t first, int64_t count, int64_t n, char *const *p,
                                   const int64_t *step, T *top, T *const *to, double *sum)
{
    const T *x[EG_CHUNK];
    T s[EG_CHUNK];
    double part;
    for (int64_t r = 0; r < count; r++) {
        x[r] = EG_ROW(T, 1, first + r);
        top[r] = NAME(top_of)(n, x[r]);
        if (n <= EG_CHUNK) x[r] = NAME(shifted)(n, x[r], top[r], to[r], &s[r]);
    }
    if (n <= EG_CHUNK) {
        NAME(exps_of_rows)(count, n, x, s, 1, to, sum);
        return;
    }
    *sum = 0;
    for (int64_t from = 0, m; from < n; from += m) {
        m = eg__min64(n - from, EG_CHUNK);
        const T *const at = NAME(shifted)(m, *x + from, *top, *to, s);
        NAME(exps_of_rows)(1, m, &at, s, 1, to, &part);
        *sum += part;
    }
}
/* exps_of_block for short rows in lanes; the exponentials are in x. */
EG_INLINE void NAME(columns_exps)(int64_t first, int64_t count, int64_t n, char *const *p,
                                  const int64_t *step, WIDE *x, WIDE *top, double *sum)
{
    WIDE s;
    NAME(columns_of)(count, n, EG_ROW(T, 1, first), step[1] / (int64_t)sizeof(T), x, top, &s);
    NAME(exps_of_columns)(n, x, &s, 1, x, sum);
}
/* top = max x and rest = ln Σ e^(x − top), in f64; p: the pair, x */
TARGET static void NAME(logsum)(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const int64_t n = ((const eg_row_facts *)user)->n, most = NAME(block_of)(n);
    _Alignas(64) T e[4 * EG_CHUNK];
    T top[EG_CHUNK], *to[EG_CHUNK];
    double last[EG_CHUNK];
    WIDE x[SHORT_ROW], tops;
    for (int64_t r = 0; r < most; r++) to[r] = e + r * n;
    for (int64_t first = 0, count; first < rows; first += count) {
        const bool columns = by_columns(rows - first, n);
        count = eg__min64(rows - first, columns ? EG_LANES : most);
        if (columns) {
            NAME(columns_exps)(first, count, n, p, step, x, &tops, last);
            memcpy(top, &tops, sizeof tops);
        } else
            NAME(exps_of_block)(first, count, n, p, step, top, to, last);
        logs(count, last);
        for (int64_t r = 0; r < count; r++) {
            double *pair = EG_ROW(double, 0, first + r);
            pair[0] = (double)top[r];
            pair[1] = last[r];
        }
    }
}
/* dx = c y (g − Σ g y), 0 where y is 0; p: dx, y, g */
TARGET static void NAME(softmax_slope)(int64_t rows, char *const *p, const int64_t *step,
                                       const void *user)
{
    const int64_t n = ((const eg_row_facts *)user)->n;
    const T c = (T)((const eg_row_facts *)user)->c;
    for (int64_t r = 0; r < rows; r++) {
        T *dx = EG_ROW(T, 0, r);
        const T *y = EG_ROW(T, 1, r), *g = EG_ROW(T, 2, r);
        double total = 0;
        for (int64_t k = 0; k < n; k += EG_CHUNK)
            total += (double)NAME(dot_of)(n - k < EG_CHUNK ? n - k : EG_CHUNK, y + k, g + k);
        const T s = (T)total;
        EG_EVERY_LANE
        for (int64_t k = 0; k < n; k++) dx[k] = y[k] == 0 ? 0 : c * (y[k] * (g[k] - s));
    }
}
/* dx = (y is −inf ? 0 : g) − u s. The last EG_LANES elements overlap those before them. */
EG_INLINE void NAME(live_less)(int64_t n, const T *y, const T *g, const T *u, T s, T *dx)
{
    WIDE a, b, c;
    int64_t k = 0;
    for (; k < n && n < EG_LANES; k++) dx[k] = (y[k] == -(T)INFINITY ? 0 : g[k]) - u[k] * s;
    while (k < n) {
        const int64_t at = k + EG_LANES <= n ? k : n - EG_LANES;
        memcpy(&a, y + at, sizeof a);
        memcpy(&b, g + at, sizeof b);
        memcpy(&c, u + at, sizeof c);
        NAME(live)(&a, &b);
        c = b - c * s;
        memcpy(dx + at, &c, sizeof c);
        k += EG_LANES;
    }
}
/* dx = g − e^y Σ g, where g counts as 0 wherever y is −inf; p: dx, y, g */
TARGET static void NAME(log_softmax_slope)(int64_t rows, char *const *p, const int64_t *step,
                                           const void *user)
{
    const int64_t n = ((const eg_row_facts *)user)->n;
    /* rows without gaps: the exponentials of several rows at once */
    const bool blocks = n <= EG_CHUNK && step[1] == n * (int64_t)sizeof(T);
    const int64_t most = blocks ? EG_CHUNK / n : 1;
    _Alignas(64) T e[EG_CHUNK], s[EG_CHUNK];
    for (int64_t first = 0, count; first < rows; first += count) {
        count = eg__min64(rows - first, most);
        for (int64_t r = 0; r < count; r++) {
            const T *y = EG_ROW(T, 1, first + r), *g = EG_ROW(T, 2, first + r);
            double total = 0;
            for (int64_t k = 0; k < n; k += EG_CHUNK)
                total += (double)NAME(live_of)(eg__min64(n - k, EG_CHUNK), y + k, g + k);
            s[r] = (T)total;
        }
        if (blocks) NAME(exps_of_any)(count * n, EG_ROW(T, 1, first), 0, 1, e);
        for (int64_t r = 0; r < count; r++)
            for (int64_t from = 0, m; from < n; from += m) {
                m = eg__min64(n - from, EG_CHUNK);
                const T *y = EG_ROW(T, 1, first + r) + from, *g = EG_ROW(T, 2, first + r) + from;
                if (!blocks) NAME(exps_of_any)(m, y, 0, 1, e);
                NAME(live_less)(m, y, g, e + r * n, s[r], EG_ROW(T, 0, first + r) + from);
            }
    }
}
/* log_softmax_slope of interleaved rows; p: dx, y, g */
TARGET static void NAME(log_softmax_slope_across)(int64_t rows, char *const *p, const int64_t *step,
                                                  const void *user)
{
    const eg_row_facts *b = user;
    WIDE y[EG_ACROSS], g[EG_ACROSS], e[EG_ACROSS], s, zero = { 0 };
    double total[EG_LANES];
    for (int64_t first = 0, count; first < rows; first += count) {
        count = eg__min64(rows - first, EG_LANES);
        NAME(across_read)(count, b->n, EG_ROW(T, 1, first), step[1], b->along[1], y);
        NAME(across_read)(count, b->n, EG_ROW(T, 2, first), step[2], b->along[2], g);
        for (int64_t k = 0; k < b->n; k++) NAME(live)(y + k, g + k);
        NAME(exps_of_columns)(b->n, y, &zero, 1, e, total);
        NAME(columns_summed)(b->n, g, total);
        EG_EVERY_LANE for (int l = 0; l < EG_LANES; l++) s[l] = (T)total[l];
        for (int64_t k = 0; k < b->n; k++) g[k] = g[k] - e[k] * s;
        NAME(across_write)(count, b->n, g, EG_ROW(T, 0, first), step[0], b->along[0]);
    }
}
/* dx = g (softmax(x) − c) of short rows in lanes */
EG_INLINE void NAME(less_columns)(const eg_row_facts *b, int64_t first, int64_t count,
                                  char *const *p, const int64_t *step)
{
    WIDE x[SHORT_ROW], top, less = { 0 }, factor = { 0 };
    double total[EG_LANES];
    NAME(columns_exps)(first, count, b->n, p, step, x, &top, total);
    for (int64_t r = 0; r < count; r++) {
        less[r] = (T)(b->c * total[r]);
        factor[r] = (T)((double)*EG_ROW(T, 2, first + r) / total[r]);
    }
    for (int64_t k = 0; k < b->n; k++) x[k] = (x[k] - less) * factor;
    NAME(columns_to)(count, b->n, x, EG_ROW(T, 0, first), step[0] / (int64_t)sizeof(T));
}
/* dx = g (softmax(x) − c), where g has one element per row; p: dx, x, g */
TARGET static void NAME(softmax_less)(int64_t rows, char *const *p, const int64_t *step,
                                      const void *user)
{
    const eg_row_facts *b = user;
    const int64_t n = b->n, most = NAME(block_of)(n);
    _Alignas(64) T e[EG_CHUNK];
    T top[EG_CHUNK], s, *to[EG_CHUNK];
    double total[EG_CHUNK];
    for (int64_t first = 0, count; first < rows; first += count) {
        const bool columns = by_columns(rows - first, n);
        count = eg__min64(rows - first, columns ? EG_LANES : most);
        if (columns) {
            NAME(less_columns)(b, first, count, p, step);
            continue;
        }
        for (int64_t r = 0; r < count; r++) to[r] = n > EG_CHUNK ? e : EG_ROW(T, 0, first + r);
        NAME(exps_of_block)(first, count, n, p, step, top, to, total);
        for (int64_t r = 0; r < count; r++) {
            T *dx = EG_ROW(T, 0, first + r);
            const double g = (double)*EG_ROW(T, 2, first + r);
            const T less = (T)(b->c * total[r]), factor = (T)(g / total[r]);
            if (n <= EG_CHUNK) {
                NAME(affine_of)(n, dx, less, factor, dx);
                continue;
            }
            for (int64_t from = 0, m; from < n; from += m) {
                m = eg__min64(n - from, EG_CHUNK);
                const T *const x = NAME(shifted)(m, EG_ROW(T, 1, first + r) + from, top[r], e, &s);
                NAME(exps_of_any)(m, x, s, 1, e);
                NAME(affine_of)(m, e, less, factor, dx + from);
            }
        }
    }
}
