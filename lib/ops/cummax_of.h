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
EG_CLONES static void NAME(cummax)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const line *l = user;
    const bool along = eg__abs64(l->a) < eg__abs64(step[1]);
    for (int64_t j = 0, m; j < n; j += m) {
        char *y = p[0] + j * step[0], *x = p[1] + j * step[1];
        m = along ? 1 : eg__min64(n - j, LANES);
        if (m == 1 && l->smallest)
            NAME(cummax_some)(1, true, l, y, x, step);
        else if (m == 1)
            NAME(cummax_some)(1, false, l, y, x, step);
        else
            NAME(cummax_some)(m, l->smallest, l, y, x, step);
    }
}
