/* scan_of.h: the recurrence of scan.c for one type T, which WIDE adds up. NAME(x) is a name for
 * this type. */
static void NAME(scan)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const line *l = user;
    for (int64_t j = 0; j < n; j += LANES) {
        WIDE run[LANES];
        const int64_t m = n - j < LANES ? n - j : LANES;
        char *y = p[0] + j * step[0];
        const char *a = p[1] + j * step[1], *b = p[2] + j * step[2];
        for (int64_t i = 0; i < l->n; i++, y += l->y, a += l->a, b += l->b)
            for (int64_t k = 0; k < m; k++) {
                const WIDE before = i ? (WIDE) * (const T *)(a + k * step[1]) * run[k] : 0;
                run[k] = before + (WIDE) * (const T *)(b + k * step[2]);
                *(T *)(y + k * step[0]) = (T)run[k];
            }
    }
}
#undef T
#undef NAME
#undef WIDE
