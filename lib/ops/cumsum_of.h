/* cumsum_of.h: the running sum of scan.c for results of one type T from operands of type FROM,
 * which WIDE adds up. NAME(x) is a name for FROM. */
static void NAME(cumsum)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const line *l = user;
    for (int64_t j = 0; j < n; j += LANES) {
        WIDE run[LANES] = { 0 };
        const int64_t m = n - j < LANES ? n - j : LANES;
        char *y = p[0] + j * step[0];
        const char *x = p[1] + j * step[1];
        for (int64_t i = 0; i < l->n; i++, y += l->y, x += l->a)
            for (int64_t k = 0; k < m; k++) {
                run[k] += (WIDE) * (const FROM *)(x + k * step[1]);
                *(T *)(y + k * step[0]) = (T)run[k];
            }
    }
}
#undef FROM
#undef T
#undef NAME
#undef WIDE
