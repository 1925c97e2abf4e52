/* scan_of.h: the recurrence of scan.c for one type T, computed in type WIDE. NAME(x) is a name for
 * this type. */

/* Computes m ≤ LANES lines; p and step as in eg_inner, where p is the first line. close: the lines
 * lie one element after the other in all operands, so that each step of the recurrence is a loop
 * over vectors. */
EG_INLINE void NAME(scan_some)(const int64_t m, const bool close, const line *l, char *y,
                               const char *a, const char *b, const int64_t *step)
{
    WIDE run[LANES];
    const int64_t w = (int64_t)sizeof(T), sy = close ? w : step[0], sa = close ? w : step[1],
                  sb = close ? w : step[2];
    for (int64_t i = 0; i < l->n; i++, y += l->y, b += l->b) {
        const char *factor = a + (i - l->late) * l->a;
        for (int64_t k = 0; k < m; k++) {
            const WIDE before = i ? (WIDE) * (const T *)(factor + k * sa) * run[k] : 0;
            run[k] = before + (WIDE) * (const T *)(b + k * sb);
            *(T *)(y + k * sy) = (T)run[k];
        }
    }
}
EG_CLONES static void NAME(scan)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const line *l = user;
    const int64_t w = (int64_t)sizeof(T);
    const bool contiguous = eg__abs64(l->b) < eg__abs64(step[2]), /* each line is contiguous */
        close = step[0] == w && step[1] == w && step[2] == w;
    for (int64_t j = 0, m; j < n; j += m) {
        char *y = p[0] + j * step[0], *a = p[1] + j * step[1], *b = p[2] + j * step[2];
        m = contiguous && n - j >= FEW ? FEW : eg__min64(n - j, LANES);
        if (m == LANES && close)
            NAME(scan_some)(LANES, true, l, y, a, b, step);
        else if (m == FEW)
            NAME(scan_some)(FEW, false, l, y, a, b, step);
        else
            NAME(scan_some)(m, false, l, y, a, b, step);
    }
}
#undef T
#undef NAME
#undef WIDE
