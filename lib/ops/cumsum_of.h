/* cumsum_of.h: the cumulative sum of scan.c for results of type T from operands of type FROM,
 * summed in type WIDE. NAME(x) is a name for FROM. */

/* Sums along m ≤ LANES lines; ys, xs: distance of lines in bytes. */
EG_INLINE void NAME(cumsum_some)(const int64_t m, const line *l, char *y, int64_t ys, const char *x,
                                 int64_t xs)
{
    WIDE run[LANES] = { 0 };
    for (int64_t i = 0; i < l->n; i++, y += l->y, x += l->a)
        for (int64_t k = 0; k < m; k++) {
            run[k] += (WIDE) * (const FROM *)(x + k * xs);
            *(T *)(y + k * ys) = (T)run[k];
        }
}
static void NAME(cumsum)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const line *l = user;
    const bool contiguous = eg__abs64(l->a) < eg__abs64(step[1]); /* each line is contiguous */
    for (int64_t j = 0, m; j < n; j += m) {
        char *y = p[0] + j * step[0], *x = p[1] + j * step[1];
        m = contiguous && n - j >= FEW ? FEW : eg__min64(n - j, LANES);
        if (m == FEW) /* a constant, so that the sums are kept in registers */
            NAME(cumsum_some)(FEW, l, y, step[0], x, step[1]);
        else
            NAME(cumsum_some)(m, l, y, step[0], x, step[1]);
    }
}
#undef FROM
#undef T
#undef NAME
#undef WIDE
