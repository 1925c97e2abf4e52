/* search_of.h: the search of extremes.c for the largest or smallest element of type T of
 * tensor/each_type_of.h. */

/* True if v is NaN, which no number replaces. */
#if INTEGERS
EG_INLINE bool NAME(odd)(T v) { return (void)v, false; }
#else
EG_INLINE bool NAME(odd)(T v) { return v != v; }
#endif
/* Returns the larger (smallest: smaller) of v and best; NaN if one of them is. */
EG_INLINE T NAME(pick)(bool smallest, T v, T best)
{
    const bool better = smallest ? EG_RE(v) < EG_RE(best) : EG_RE(v) > EG_RE(best);
    return better ? v : NAME(odd)(v) ? v : best;
}
/* Sets each of `half` lanes, a constant, to the best of itself and the lane `half` lanes later. */
EG_INLINE void NAME(halve)(const int half, bool smallest, T *lane)
{
    EG_EVERY_LANE
    for (int l = 0; l < half; l++) lane[l] = NAME(pick)(smallest, lane[l + half], lane[l]);
}
/* Sets *best to the best of itself and x; true if it has changed. */
EG_INLINE bool NAME(better)(bool smallest, int64_t n, const T *x, T *best)
{
    const T had = *best;
    T lane[EG_LANES];
    int64_t k = 0;
    if (NAME(odd)(had)) return false;
    for (int l = 0; l < EG_LANES; l++) lane[l] = had;
    for (; k + EG_LANES <= n; k += EG_LANES) {
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) lane[l] = NAME(pick)(smallest, x[k + l], lane[l]);
    }
    for (int l = 0; k < n; k++, l++) lane[l] = NAME(pick)(smallest, x[k], lane[l]);
    NAME(halve)(8, smallest, lane);
    NAME(halve)(4, smallest, lane);
    NAME(halve)(2, smallest, lane);
    NAME(halve)(1, smallest, lane);
    *best = lane[0];
    return NAME(odd)(lane[0]) ||
           (smallest ? EG_RE(lane[0]) < EG_RE(had) : EG_RE(lane[0]) > EG_RE(had));
}
EG_CLONES static bool NAME(larger)(int64_t n, const void *x, void *best)
{
    return NAME(better)(false, n, x, best);
}
EG_CLONES static bool NAME(smaller)(int64_t n, const void *x, void *best)
{
    return NAME(better)(true, n, x, best);
}
/* Returns the larger (smaller) of v and best, of which neither is NaN. */
EG_INLINE T NAME(top)(bool smallest, T v, T best)
{
    return (smallest ? EG_RE(v) < EG_RE(best) : EG_RE(v) > EG_RE(best)) ? v : best;
}
/* Sets the lanes of each of `rows` rows, a constant, to the best of themselves and the EG_LANES
 * elements at x; those of `odd` to 1 where an element is NaN. */
EG_INLINE void NAME(top_group)(const int rows, bool smallest, const char *x, int64_t xs,
                               T (*lane)[EG_LANES], T *odd)
{
    for (int r = 0; r < rows; r++) {
        const T *v = (const T *)(const void *)(x + r * xs);
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) {
            lane[r][l] = NAME(top)(smallest, v[l], lane[r][l]);
            odd[l] = NAME(odd)(v[l]) ? 1 : odd[l];
        }
    }
}
/* Writes the best element of each of `rows` rows, a constant: contiguous ones of at least EG_LANES
 * elements. The last group of a row overlaps the one before it. Rows are searched as if there were
 * no NaN, and once more if there is one. */
EG_INLINE void NAME(top_rows)(const int rows, bool smallest, int64_t n, const char *x, int64_t xs,
                              char *y, int64_t ys)
{
    const int64_t group = EG_LANES * (int64_t)sizeof(T);
    T lane[EG_ROWS_ABREAST][EG_LANES], odd[EG_LANES] = { 0 };
    bool any = false;
    int64_t k = 1;
    for (int r = 0; r < rows; r++) memcpy(lane[r], x + r * xs, sizeof lane[r]);
    for (; k <= n / EG_LANES; k++)
        NAME(top_group)(rows, smallest, x + (k - 1) * group, xs, lane, odd);
    if (n % EG_LANES)
        NAME(top_group)(rows, smallest, x + n * (int64_t)sizeof(T) - group, xs, lane, odd);
    for (int l = 0; l < EG_LANES; l++) any |= odd[l] != 0;
    for (int r = 0; r < rows; r++) {
        T *v = lane[r];
        if (any) {
            memcpy(v, x + r * xs, sizeof *v);
            NAME(better)(smallest, n, (const T *)(const void *)(x + r * xs), v);
        } else {
            NAME(halve)(8, smallest, v);
            NAME(halve)(4, smallest, v);
            v[0] = NAME(top)(smallest, NAME(top)(smallest, v[3], v[1]),
                             NAME(top)(smallest, v[2], v[0]));
        }
        *(T *)(void *)(y + r * ys) = v[0];
    }
}
/* The same for any number of rows. Rows do not wait for each other, so several are searched at
 * once. */
EG_INLINE void NAME(best_rows)(bool smallest, int64_t rows, int64_t n, const char *x, int64_t xs,
                               char *y, int64_t ys)
{
    int64_t r = 0;
    for (; r + EG_ROWS_ABREAST <= rows; r += EG_ROWS_ABREAST)
        NAME(top_rows)(EG_ROWS_ABREAST, smallest, n, x + r * xs, xs, y + r * ys, ys);
    for (; r < rows; r++) NAME(top_rows)(1, smallest, n, x + r * xs, xs, y + r * ys, ys);
}
EG_CLONES static void NAME(larger_rows)(int64_t rows, int64_t n, const char *x, int64_t xs, char *y,
                                        int64_t ys)
{
    NAME(best_rows)(false, rows, n, x, xs, y, ys);
}
EG_CLONES static void NAME(smaller_rows)(int64_t rows, int64_t n, const char *x, int64_t xs,
                                         char *y, int64_t ys)
{
    NAME(best_rows)(true, rows, n, x, xs, y, ys);
}
/* Sets each best[k] to the best of itself and x[k] of all columns, which are `step` bytes apart:
 * blocks whose best elements remain in registers. */
EG_INLINE void NAME(better_each)(bool smallest, int64_t columns, int64_t step, int64_t n,
                                 const char *x, T *best)
{
    enum { BLOCK = 256 / sizeof(T) };
    for (; n >= BLOCK; n -= BLOCK, best += BLOCK, x += BLOCK * sizeof(T)) {
        T so_far[BLOCK];
        for (int l = 0; l < BLOCK; l++) so_far[l] = best[l];
        for (int64_t c = 0; c < columns; c++) {
            const T *column = (const T *)(const void *)(x + c * step);
            EG_EVERY_LANE
            for (int l = 0; l < BLOCK; l++) so_far[l] = NAME(pick)(smallest, column[l], so_far[l]);
        }
        for (int l = 0; l < BLOCK; l++) best[l] = so_far[l];
    }
    for (int64_t c = 0; c < columns && n; c++) {
        const T *column = (const T *)(const void *)(x + c * step);
        EG_EVERY_LANE
        for (int64_t k = 0; k < n; k++) best[k] = NAME(pick)(smallest, column[k], best[k]);
    }
}
EG_CLONES static void NAME(larger_each)(int64_t columns, int64_t step, int64_t n, const void *x,
                                        void *best)
{
    NAME(better_each)(false, columns, step, n, x, best);
}
EG_CLONES static void NAME(smaller_each)(int64_t columns, int64_t step, int64_t n, const void *x,
                                         void *best)
{
    NAME(better_each)(true, columns, step, n, x, best);
}
/* Returns the first k with x[k] = best. */
static int64_t NAME(find)(int64_t n, const void *from, const void *best)
{
    const T *x = from, b = *(const T *)best;
    int64_t k = 0;
    while (k < n - 1 && !(EG_RE(x[k]) == EG_RE(b) || (NAME(odd)(b) && NAME(odd)(x[k])))) k++;
    return k;
}
/* Sets first[i], if it is negative, to k where x[i] = best[i]. */
EG_CLONES static void NAME(find_each)(int64_t n, const void *from, const void *best, int64_t k,
                                      int64_t *first)
{
    const T *x = from, *b = best;
    for (int64_t i = 0; i < n; i++) {
        const int same = EG_RE(x[i]) == EG_RE(b[i]), odd_x = NAME(odd)(x[i]),
                  odd_b = NAME(odd)(b[i]), unset = first[i] < 0;
        first[i] = ((same | (odd_x & odd_b)) & unset) ? k : first[i];
    }
}

#if !INTEGERS
/* ties[k] += Σ [x[k] = best[k]] over the columns of x, which lie at these offsets in bytes: blocks
 * whose counts remain in registers. */
EG_CLONES static void NAME(count_ties)(int columns, const int64_t *at, int64_t n, const char *from,
                                       const void *best, void *ties)
{
    enum { BLOCK = 128 / sizeof(T) };
    const T *b = best;
    T *to = ties;
    for (int64_t k = 0; k < n; k += BLOCK) {
        const int64_t m = eg__min64(n - k, BLOCK);
        T some[BLOCK] = { 0 };
        for (int c = 0; c < columns; c++) {
            const T *x = (const T *)(const void *)(from + at[c]) + k;
            if (m == BLOCK) {
                EG_EVERY_LANE
                for (int l = 0; l < BLOCK; l++) some[l] += EG_RE(x[l]) == EG_RE(b[k + l]) ? 1 : 0;
            } else
                for (int l = 0; l < m; l++) some[l] += EG_RE(x[l]) == EG_RE(b[k + l]) ? 1 : 0;
        }
        for (int l = 0; l < m; l++) to[k + l] += some[l];
    }
}
/* share[k] = g[k] / share[k] */
EG_CLONES static void NAME(divide_ties)(int64_t n, const void *g, void *share)
{
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) ((T *)share)[k] = ((const T *)g)[k] / ((T *)share)[k];
}
/* dx[k] = [x[k] = best[k]] share[k] for these columns of x and dx */
EG_CLONES static void NAME(share_ties)(int columns, const int64_t *at, const int64_t *to_at,
                                       int64_t n, const char *from, const void *best,
                                       const void *share, char *dx)
{
    const T *b = best, *s = share;
    for (int c = 0; c < columns; c++) {
        const T *x = (const T *)(const void *)(from + at[c]);
        T *to = (T *)(void *)(dx + to_at[c]);
        EG_EVERY_LANE
        for (int64_t k = 0; k < n; k++) to[k] = (EG_RE(x[k]) == EG_RE(b[k]) ? 1 : 0) * s[k];
    }
}
/* The same for contiguous rows; operands: dx, x, best, g. */
EG_CLONES static void NAME(share_rows)(int64_t rows, char *const *p, const int64_t *step,
                                       const void *user)
{
    const int64_t n = *(const int64_t *)user;
    for (int64_t r = 0; r < rows; r++) {
        const T *x = EG_ROW(const T, 1, r), best = *EG_ROW(const T, 2, r);
        T *dx = EG_ROW(T, 0, r);
        int64_t ties = 0;
        for (int64_t k = 0; k < n; k += EG_CHUNK) {
            const int64_t m = eg__min64(n - k, EG_CHUNK);
            int32_t some = 0;
            for (int64_t i = 0; i < m; i++) some += EG_RE(x[k + i]) == EG_RE(best);
            ties += some;
        }
        const T share = *EG_ROW(const T, 3, r) / (T)ties;
        EG_EVERY_LANE
        for (int64_t k = 0; k < n; k++) dx[k] = (EG_RE(x[k]) == EG_RE(best) ? 1 : 0) * share;
    }
}
#endif
