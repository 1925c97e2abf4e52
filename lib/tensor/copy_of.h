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
/* Copies one tile whose rows along a, contiguous in y, are short: a constant number of elements
 * each. Where y has no gaps and x is contiguous along b, the compiler makes vectors of it. */
EG_INLINE void NAME(narrow_tile)(const int64_t a, const tile *t, char *y, const char *x)
{
    const int64_t w = (int64_t)sizeof(T), xa = t->xa, b = t->b;
    if (t->yb == a * w && t->xb == w)
        for (int64_t j = 0; j < b; j++)
            for (int64_t i = 0; i < a; i++)
                ((T *)(void *)y)[j * a + i] = *(const T *)(const void *)(x + i * xa + j * w);
    else
        for (int64_t j = 0; j < b; j++, y += t->yb, x += t->xb)
            for (int64_t i = 0; i < a; i++)
                ((T *)(void *)y)[i] = *(const T *)(const void *)(x + i * xa);
}
/* The same for n tiles. */
EG_CLONES static void NAME(narrow)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const tile *t = user;
    for (int64_t k = 0; k < n; k++) {
        char *y = p[0] + k * step[0];
        const char *x = p[1] + k * step[1];
        switch (t->a) {
        case 2: NAME(narrow_tile)(2, t, y, x); break;
        case 3: NAME(narrow_tile)(3, t, y, x); break;
        case 4: NAME(narrow_tile)(4, t, y, x); break;
        case 8: NAME(narrow_tile)(8, t, y, x); break;
        default: NAME(narrow_tile)(t->a, t, y, x);
        }
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
