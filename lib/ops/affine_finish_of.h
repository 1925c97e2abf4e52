/* affine_finish_of.h: the loops of affine_finish.c, for one type T. */

/* z = c + b for n adjacent elements of a row. Element j of b is added to the first of them; b
 * repeats after its last element. z may be c. */
EG_INLINE void NAME(affine_biased)(const eg_affine_finish *f, int64_t n, const T *c, int64_t j,
                                   T *z)
{
    const T *bias = (const T *)(const void *)f->bias;
    for (int64_t m; n > 0; n -= m, c += m, z += m, j = 0) {
        m = eg__min64(n, f->features - j);
        EG_EVERY_LANE for (int64_t k = 0; k < m; k++) z[k] = c[k] + bias[j + k];
    }
}
/* Copies a few elements inline, in whole cache lines. */
EG_INLINE void NAME(affine_move)(int64_t n, T *to, const T *from)
{
    enum { LINE = 64 / sizeof(T) };
    for (; n >= LINE; n -= LINE, to += LINE, from += LINE) memcpy(to, from, 64);
    for (int64_t k = 0; k < n; k++) to[k] = from[k];
}
/* y = c + b + r in place, without an activation. */
EG_INLINE void NAME(affine_sum)(const eg_affine_finish *f, int64_t n, int64_t rows, int64_t step,
                                int64_t first, int64_t j, bool same)
{
    for (int64_t q = 0; q < rows; q++) {
        T *y = (T *)(void *)f->y + first + q * step;
        if (f->bias) NAME(affine_biased)(f, n, y, same ? j : (first + q * step) % f->features, y);
        if (!f->add) continue;
        const T *r = (const T *)(const void *)f->add + first + q * step;
        EG_EVERY_LANE for (int64_t k = 0; k < n; k++) y[k] = y[k] + r[k];
    }
}
/* y = f(c + b) + r, in groups of whole rows that fill the lanes of a vector. */
EG_CLONES static void NAME(affine_tile)(const eg_finish *finish, void *at, int64_t n, int64_t rows,
                                        int64_t step)
{
    enum { BUFFER = 512 };
    static const double none[2];
    eg_affine_finish its;
    const eg_affine_finish *f = affine_finish_at(finish, at, &its);
    _Alignas(64) T before[BUFFER], after[BUFFER];
    T *const y = (T *)(void *)f->y, *const z = (T *)(void *)f->z;
    const int64_t first = (T *)at - y;
    const bool same = step % f->features == 0; /* every row begins at the same element of b */
    if (!f->function) {
        NAME(affine_sum)(f, n, rows, step, first, first % f->features, same);
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        m = eg__min64(n - i, BUFFER);
        for (int64_t r = 0, count; r < rows; r += count) {
            count = eg__min64(rows - r, BUFFER / m);
            const int64_t from = first + r * step + i, total = count * m,
                          lanes = (total + EG_LANES - 1) & -EG_LANES, j = from % f->features;
            for (int64_t q = 0; q < count; q++) {
                T *to = before + q * m, *c = y + from + q * step;
                if (f->bias)
                    NAME(affine_biased)(f, m, c, same ? j : (from + q * step) % f->features, to);
                else
                    NAME(affine_move)(m, to, c);
                if (z) NAME(affine_move)(m, z + from + q * step, to);
            }
            for (int64_t k = total; k < lanes; k++) before[k] = before[total - 1];
            f->function(lanes, (char *[]){ (char *)after, (char *)before }, none);
            for (int64_t q = 0; q < count; q++) {
                T *to = y + from + q * step, *of = after + q * m;
                if (!f->add) {
                    NAME(affine_move)(m, to, of);
                    continue;
                }
                const T *more = (const T *)(const void *)f->add + from + q * step;
                EG_EVERY_LANE for (int64_t k = 0; k < m; k++) to[k] = of[k] + more[k];
            }
        }
    }
}
#undef T
#undef NAME
