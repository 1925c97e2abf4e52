/* scan_of.h: the recurrence of scan.c for one type T, computed in type WIDE. NAME(x) is a name for
 * this type. */

/* Computes m ≤ LANES lines; p and step as in eg_inner, where p is the first line. */
EG_INLINE void NAME(scan_some)(const int64_t m, const line *l, char *y, const char *a,
                               const char *b, const int64_t *step)
{
    WIDE run[LANES];
    for (int64_t i = 0; i < l->n; i++, y += l->y, a += l->a, b += l->b)
        for (int64_t k = 0; k < m; k++) {
            const WIDE before = i ? (WIDE) * (const T *)(a + k * step[1]) * run[k] : 0;
            run[k] = before + (WIDE) * (const T *)(b + k * step[2]);
            *(T *)(y + k * step[0]) = (T)run[k];
        }
}
static void NAME(scan)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const line *l = user;
    const bool contiguous = eg__abs64(l->b) < eg__abs64(step[2]); /* as in cumsum_of.h */
    for (int64_t j = 0, m; j < n; j += m) {
        char *y = p[0] + j * step[0], *a = p[1] + j * step[1], *b = p[2] + j * step[2];
        m = contiguous && n - j >= FEW ? FEW : eg__min64(n - j, LANES);
        if (m == FEW)
            NAME(scan_some)(FEW, l, y, a, b, step);
        else
            NAME(scan_some)(m, l, y, a, b, step);
    }
}
#undef T
#undef NAME
#undef WIDE
