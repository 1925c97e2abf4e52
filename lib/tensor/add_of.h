/* add_of.h: the loops of add.c for one type T. NAME(x) is x with the name of this type; U is the
 * unsigned type of an integer, else T. With INTEGERS only the loop of the sum is made. */
EG_INLINE T NAME(add_value)(T a, T b) { return (T)((U)a + (U)b); }
EG_CLONES static void NAME(add)(int64_t n, char *const *p, const double *c)
{
    NAME(eg__each_pair)(NAME(add_value), n, p, c);
}

#if !INTEGERS
EG_CLONES static void NAME(add_to)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    (void)user;
    if (step[0] == (int64_t)sizeof(T) && step[1] == (int64_t)sizeof(T)) {
        T *restrict y = (T *)p[0];
        const T *restrict x = (const T *)p[1];
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
    } else
        for (int64_t i = 0; i < n; i++)
            *(T *)(p[0] + i * step[0]) += *(const T *)(p[1] + i * step[1]);
}
/* The same for `rows` runs of n elements. If x is contiguous along the rows, tiles of it are
 * transposed first, so that whole cache lines are read. */
EG_CLONES static void NAME(add_to_plane)(int64_t rows, int64_t n, char *const *p,
                                         const int64_t *row_step, const int64_t *step,
                                         const void *user)
{
    enum { SIDE = 32, W = sizeof(T) };
    const bool near = step[0] == W && step[1] == W,
               transposed = step[0] == W && !near && row_step[1] == W && step[1] % W == 0 && W <= 8;
    (void)user;
    for (int64_t r = 0, m; transposed && r < rows; r += m) {
        _Alignas(64) T tile[SIDE * SIDE];
        m = eg__min64(SIDE, rows - r);
        for (int64_t i = 0, columns; i < n; i += columns) {
            columns = eg__min64(SIDE, n - i);
            eg__transpose(W, columns, m, p[1] + r * W + i * step[1], step[1] / W, tile, columns,
                          false);
            for (int64_t q = 0; q < m; q++) {
                T *y = (T *)(void *)(p[0] + (r + q) * row_step[0] + i * W);
                for (int64_t c = 0; c < columns; c++) y[c] += tile[q * columns + c];
            }
        }
    }
    for (int64_t r = 0; !transposed && r < rows; r++) {
        char *y = p[0] + r * row_step[0];
        const char *x = p[1] + r * row_step[1];
        if (near)
            for (int64_t i = 0; i < n; i++) ((T *)y)[i] += ((const T *)x)[i];
        else
            for (int64_t i = 0; i < n; i++)
                *(T *)(y + i * step[0]) += *(const T *)(x + i * step[1]);
    }
}

/* y += a b for n elements; sy, sa, sb: their distances in bytes. The product is rounded first. */
EG_INLINE void NAME(add_product_run)(int64_t n, char *y, int64_t sy, const char *a, int64_t sa,
                                     const char *b, int64_t sb)
{
    enum { W = sizeof(T) };
    T *restrict to = (T *)(void *)y;
    const T *u = (const T *)(const void *)a, *v = (const T *)(const void *)b;
    if (sy == W && sa == W && sb == 0) {
        const T factor = *v;
        for (int64_t i = 0; i < n; i++) to[i] += u[i] * factor;
    } else if (sy == W && sa == W && sb == W)
        for (int64_t i = 0; i < n; i++) to[i] += u[i] * v[i];
    else
        for (int64_t i = 0; i < n; i++)
            *(T *)(void *)(y + i * sy) +=
                *(const T *)(const void *)(a + i * sa) * *(const T *)(const void *)(b + i * sb);
}
EG_CLONES static void NAME(add_product_plane)(int64_t rows, int64_t n, char *const *p,
                                              const int64_t *row_step, const int64_t *step,
                                              const void *user)
{
    (void)user;
    for (int64_t r = 0; r < rows; r++) NAME(add_product_run)
    (n, p[0] + r * row_step[0], step[0], p[1] + r * row_step[1], step[1], p[2] + r * row_step[2],
     step[2]);
}
EG_CLONES static void NAME(add_product)(int64_t n, char *const *p, const int64_t *step,
                                        const void *user)
{
    (void)user;
    NAME(add_product_run)(n, p[0], step[0], p[1], step[1], p[2], step[2]);
}

/* y = y / c for n elements, rounded once: f32 is divided in f64 and then rounded to f32, which
 * gives the same value as a division in f32, since f64 has more than twice as many bits (Figueroa
 * 1995). */
EG_CLONES static void NAME(divide_by)(int64_t n, char *const *p, const int64_t *step,
                                      const void *user)
{
    const double count = *(const double *)user;
    const REAL c = (REAL)count;
    const bool exact = (double)c == count;
    T *y = (T *)p[0];
    if (exact && step[0] == (int64_t)sizeof(T))
        for (int64_t i = 0; i < n; i++) y[i] /= c;
    else
        for (int64_t i = 0; i < n; i++) {
            T *at = (T *)(p[0] + i * step[0]);
            *at = exact ? *at / c : (T)(*at / count);
        }
}
#endif

/* y = y c for n elements */
static void NAME(scale_by)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const T c = (T) * (const double *)user;
    for (int64_t i = 0; i < n; i++) {
        T *y = (T *)(p[0] + i * step[0]);
        *y = (T)((U)*y * (U)c);
    }
}
