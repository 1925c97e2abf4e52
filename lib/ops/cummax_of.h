/* cummax_of.h: the indices of running maxima and minima of scan.c for one type T, compared by the
 * real part. NAME(x) is a name for this type. */

/* Searches along m ≤ LANES lines; p and step as in eg_inner, where p is the first line. */
EG_INLINE void NAME(cummax_some)(const int64_t m, const bool smallest, const line *l, char *y,
                                 const char *x, const int64_t *step)
{
    T best[LANES] = { 0 };
    int64_t at[LANES] = { 0 };
    for (int64_t i = 0; i < l->n; i++, y += l->y, x += l->a)
        for (int64_t k = 0; k < m; k++) {
            const T v = *(const T *)(const void *)(x + k * step[1]);
            const bool as_good = smallest ? EG_RE(v) <= EG_RE(best[k]) : EG_RE(v) >= EG_RE(best[k]);
            /* the first, an equal or better one, or a NaN */
            if (!i || EG_RE(v) != EG_RE(v) || as_good) {
                best[k] = v;
                at[k] = i;
            }
            *(int64_t *)(void *)(y + k * step[0]) = at[k];
        }
}
/* Compares element number `here` of m lines, whose elements are adjacent in x and in y. Indices
 * have the width of T, so that both are vectors of as many elements. */
EG_INLINE void NAME(cummax_step)(const int64_t m, const bool smallest, const T *x, INDEX(T) here,
                                 T *best, INDEX(T) * at, int64_t *y)
{
    EG_EVERY_LANE
    for (int64_t j = 0; j < m; j++) {
        const T v = x[j];
        const bool as_good = smallest ? EG_RE(v) <= EG_RE(best[j]) : EG_RE(v) >= EG_RE(best[j]),
                   better = EG_RE(v) != EG_RE(v) || as_good;
        best[j] = better ? v : best[j];
        at[j] = better ? here : at[j];
    }
    EG_EVERY_LANE
    for (int64_t j = 0; j < m; j++) y[j] = at[j];
}
/* The same for m ≤ ABREAST adjacent lines. */
EG_INLINE void NAME(cummax_beside)(const int64_t m, const bool smallest, const line *l, char *y,
                                   const char *x)
{
    T best[ABREAST];
    INDEX(T) at[ABREAST] = { 0 };
    if (l->n) memcpy(best, x, (size_t)m * sizeof *best);
    for (int64_t i = 0; i < l->n; i++, y += l->y, x += l->a) {
        NAME(cummax_step)
        (m, smallest, (const T *)(const void *)x, (INDEX(T))i, best, at, (int64_t *)(void *)y);
    }
}
/* The same for ABREAST, FEW, 4 or 2 lines, whose results remain in registers. */
EG_INLINE void NAME(cummax_lines)(int64_t m, const bool smallest, const line *l, char *y,
                                  const char *x)
{
    if (m == ABREAST)
        NAME(cummax_beside)(ABREAST, smallest, l, y, x);
    else if (m == FEW)
        NAME(cummax_beside)(FEW, smallest, l, y, x);
    else if (m == 4)
        NAME(cummax_beside)(4, smallest, l, y, x);
    else
        NAME(cummax_beside)(2, smallest, l, y, x);
}
/* The same for m ≤ ABREAST lines without gaps, which may be reversed in x: COLUMNS elements of each
 * line are transposed. */
EG_INLINE void NAME(cummax_abreast)(const bool smallest, int64_t m, const line *l, char *y,
                                    int64_t ys, const char *x, int64_t xs)
{
    const int64_t w = (int64_t)sizeof(T), wide = sizeof(int64_t);
    const bool reversed = l->a < 0;
    const int64_t advance = reversed ? -ABREAST : ABREAST;
    T in[COLUMNS * ABREAST], best[ABREAST];
    int64_t out[COLUMNS * ABREAST];
    INDEX(T) at[ABREAST] = { 0 };
    if (m < ABREAST) memset(in, 0, sizeof in);
    for (int64_t i = 0, count; i < l->n; i += count) {
        count = eg__min64(l->n - i, COLUMNS);
        const char *lowest = x + l->a * (reversed ? i + count - 1 : i);
        eg__transpose(sizeof(T), m, count, lowest, xs / w, in, ABREAST, false);
        const T *next = reversed ? in + (count - 1) * ABREAST : in;
        if (!i) memcpy(best, next, sizeof best);
        for (int64_t k = 0; k < count; k++, next += advance) {
            NAME(cummax_step)
            (ABREAST, smallest, next, (INDEX(T))(i + k), best, at, out + k * ABREAST);
        }
        eg__transpose(sizeof *out, count, m, out, ABREAST, y + i * wide, ys / wide, false);
    }
}
/* The same for one line without gaps, EG_LANES elements at a time. If all of them are worse than
 * the best one so far, as most are unless the line rises (falls), its index is repeated. */
EG_INLINE void NAME(cummax_line)(const bool smallest, const line *l, char *y, const char *x)
{
    const T *v = (const T *)(const void *)x;
    int64_t *to = (int64_t *)(void *)y, at = 0;
    T best = *v;
    for (int64_t i = 0, m; i < l->n; i += m) {
        INDEX(T) better = 0;
        m = eg__min64(l->n - i, EG_LANES);
        if (m == EG_LANES) {
            EG_EVERY_LANE
            for (int64_t k = 0; k < EG_LANES; k++)
                better |=
                    !(smallest ? EG_RE(v[i + k]) > EG_RE(best) : EG_RE(v[i + k]) < EG_RE(best));
            EG_EVERY_LANE for (int64_t k = 0; k < EG_LANES; k++) to[i + k] = at;
            if (!better) continue;
        }
        for (int64_t k = i; k < i + m; k++) {
            if (EG_RE(v[k]) != EG_RE(v[k]) ||
                (smallest ? EG_RE(v[k]) <= EG_RE(best) : EG_RE(v[k]) >= EG_RE(best)))
                best = v[k], at = k;
            to[k] = at;
        }
    }
}
EG_CLONES static void NAME(cummax)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const line *l = user;
    const int64_t w = (int64_t)sizeof(T);
    const bool wide = (w == 4 || w == 8) && l->n <= INT32_MAX,
               along = !step[1] || eg__abs64(l->a) < eg__abs64(step[1]),
               abreast = wide && l->y == 8 && eg__abs64(l->a) == w,
               beside = wide && step[0] == 8 && step[1] == w;
    for (int64_t j = 0, m; j < n; j += m) {
        char *y = p[0] + j * step[0], *x = p[1] + j * step[1];
        m = eg__min64(n - j, abreast || beside ? ABREAST : along ? 1 : LANES);
        if (beside && !abreast && m < ABREAST) m = m >= FEW ? FEW : few_lines(m);
        if (abreast && m >= FEW && l->smallest)
            NAME(cummax_abreast)(true, m, l, y, step[0], x, step[1]);
        else if (abreast && m >= FEW)
            NAME(cummax_abreast)(false, m, l, y, step[0], x, step[1]);
        else if (beside && m > 1 && l->smallest)
            NAME(cummax_lines)(m, true, l, y, x);
        else if (beside && m > 1)
            NAME(cummax_lines)(m, false, l, y, x);
        else if (m == 1 && wide && l->y == 8 && l->a == w && l->n && l->smallest)
            NAME(cummax_line)(true, l, y, x);
        else if (m == 1 && wide && l->y == 8 && l->a == w && l->n)
            NAME(cummax_line)(false, l, y, x);
        else if (m == 1 && l->smallest)
            NAME(cummax_some)(1, true, l, y, x, step);
        else if (m == 1)
            NAME(cummax_some)(1, false, l, y, x, step);
        else
            NAME(cummax_some)(m, l->smallest, l, y, x, step);
    }
}
