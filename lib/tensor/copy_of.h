/* copy_of.h: the moves of copy.c for elements of one width: T is a type of that width, NAME(x) is x
 * with the name of the width. */

/* Elements of step 1 from others whose step is 1, 0, 2 and −1 have loops over vectors. */
EG_CLONES static void NAME(move)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const int64_t w = (int64_t)sizeof(T);
    char *y = p[0];
    const char *x = p[1];
    T *to = (T *)(void *)y;
    const T *from = (const T *)(const void *)x;
    (void)user;
    if (step[0] == w && step[1] == w)
        memcpy(y, x, (size_t)n * sizeof(T));
    else if (step[0] == w && step[1] == 0) {
        const T first = n ? *from : 0;
        for (int64_t i = 0; i < n; i++) to[i] = first;
    } else if (step[0] == w && step[1] == -w)
        for (int64_t i = 0; i < n; i++) to[i] = from[-i];
    else if (step[0] == w && step[1] == 2 * w)
        for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];
    else
        for (int64_t i = 0; i < n; i++, y += step[0], x += step[1])
            *(T *)(void *)y = *(const T *)(const void *)x;
}
/* Copies n tiles of t->a × t->b elements by way of a local array. */
static void NAME(tiles)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const tile *t = user;
    T part[TILE][TILE];
    for (int64_t k = 0; k < n; k++) {
        char *y = p[0] + k * step[0];
        const char *x = p[1] + k * step[1];
        for (int64_t i = 0; i < t->a; i++)
            for (int64_t j = 0; j < t->b; j++)
                part[j][i] = *(const T *)(const void *)(x + i * t->xa + j * t->xb);
        for (int64_t j = 0; j < t->b; j++)
            for (int64_t i = 0; i < t->a; i++)
                *(T *)(void *)(y + i * t->ya + j * t->yb) = part[j][i];
    }
}
/* Writes `rows` rows of n copies of an element of x, whose elements are `step` bytes apart, in
 * complete groups: each row but the last is overwritten from its end on by the next one. */
EG_CLONES static void NAME(spread)(int64_t rows, int64_t n, void *to, const char *x, int64_t step)
{
    enum { GROUP = EG_SPREAD_BYTES / sizeof(T) };
    T *y = to;
    for (int64_t r = 0; r < rows; r++, y += n, x += step) {
        const T v = *(const T *)(const void *)x;
        for (int64_t i = 0; i < n; i += GROUP)
            for (int64_t l = 0; l < GROUP; l++) y[i + l] = v;
    }
}
