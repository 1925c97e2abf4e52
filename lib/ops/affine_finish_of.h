/* affine_finish_of.h: what follows the sums of an affine map, for one type T. */

/* z = c + b of n neighbours of a row, the first of which is element `at` of the result; b repeats
 * after its features. */
EG_INLINE void NAME(affine_biased)(const eg_affine_finish *f, int64_t n, const T *c, int64_t at,
                                   T *restrict z)
{
    const T *bias = (const T *)f->bias;
    for (int64_t j = at % f->features, m; n > 0; n -= m, c += m, z += m, j = 0) {
        m = eg__min64(n, f->features - j);
        for (int64_t k = 0; k < m; k++) z[k] = c[k] + bias[j + k];
    }
}
/* y = f(c + b) + r, in groups of whole rows that fill a vector's lanes. */
EG_CLONES static void NAME(affine_tile)(const eg_finish *finish, void *at, int64_t n, int64_t rows,
                                        int64_t step)
{
    enum { ROOM = 512 };
    static const double none[2];
    const eg_affine_finish *f = (const eg_affine_finish *)(const void *)finish;
    _Alignas(64) T before[ROOM], after[ROOM];
    T *const y = (T *)(void *)f->y;
    const int64_t first = (T *)at - y;
    for (int64_t i = 0, m; i < n; i += m) {
        m = eg__min64(n - i, ROOM);
        for (int64_t r = 0, count; r < rows; r += count) {
            count = eg__min64(rows - r, ROOM / m);
            const int64_t from = first + r * step + i, total = count * m;
            for (int64_t q = 0; q < count; q++)
                if (f->bias)
                    NAME(affine_biased)(f, m, y + from + q * step, from + q * step, before + q * m);
                else
                    memcpy(before + q * m, y + from + q * step, (size_t)m * sizeof *y);
            for (int64_t q = 0; f->z && q < count; q++)
                memcpy((T *)(void *)f->z + from + q * step, before + q * m, (size_t)m * sizeof *y);
            const T *result = before;
            if (f->function) {
                const int64_t lanes = (total + EG_LANES - 1) & -EG_LANES;
                for (int64_t k = total; k < lanes; k++) before[k] = before[total - 1];
                f->function(lanes, (char *[]){ (char *)after, (char *)before }, none);
                result = after;
            }
            for (int64_t q = 0; q < count; q++) {
                T *to = y + from + q * step;
                if (f->add) {
                    const T *r_at = (const T *)(const void *)f->add + from + q * step;
                    for (int64_t k = 0; k < m; k++) to[k] = result[q * m + k] + r_at[k];
                } else
                    memcpy(to, result + q * m, (size_t)m * sizeof *y);
            }
        }
    }
}
#undef T
#undef NAME
