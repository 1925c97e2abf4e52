/* affine_finish_of.h: the loops of affine_finish.c, for one type T. Columns of a tile are taken in
 * cache lines, each of them a vector, along all rows, so that a vector of the bias is read once. */
typedef T NAME(line) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
#define LINE       ((int64_t)(64 / sizeof(T)))
#define LINE_AT(p) (*(NAME(line) *)(void *)(p))
#define READ_AT(p) (*(const NAME(line) *)(const void *)(p))

/* A matrix of rows that are `step` elements apart. */
typedef struct NAME(matrix) {
    T *at;
    int64_t step;
} NAME(matrix);
/* z = c + b, if z is not NULL, and y = c + b + r. b: n elements, or NULL; r: NULL if there is
 * none. y may be c. */
EG_INLINE void NAME(affine_sum)(int64_t n, int64_t rows, NAME(matrix) c, const T *b, NAME(matrix) r,
                                NAME(matrix) z, NAME(matrix) y)
{
    int64_t k = 0;
    for (; k + LINE <= n; k += LINE) {
        const NAME(line) zeros = { 0 }, bias = b ? READ_AT(b + k) : -zeros; /* x + -0 is x */
        for (int64_t q = 0; q < rows; q++) {
            NAME(line) x = READ_AT(c.at + q * c.step + k) + bias;
            if (z.at) LINE_AT(z.at + q * z.step + k) = x;
            if (r.at) x += READ_AT(r.at + q * r.step + k);
            LINE_AT(y.at + q * y.step + k) = x;
        }
    }
    for (; k < n; k++)
        for (int64_t q = 0; q < rows; q++) {
            T x = c.at[q * c.step + k] + (b ? b[k] : (T)-0.);
            if (z.at) z.at[q * z.step + k] = x;
            if (r.at) x += r.at[q * r.step + k];
            y.at[q * y.step + k] = x;
        }
}
/* Returns the matrix that begins in row q and column k of x; a matrix that is absent stays so. */
EG_INLINE NAME(matrix) NAME(affine_from)(NAME(matrix) x, int64_t q, int64_t k)
{
    return (NAME(matrix)){ x.at ? x.at + q * x.step + k : NULL, x.step };
}
/* As affine_sum, with the bias of f, which repeats after its last element; its element j is added
 * to the first one of the first row. */
EG_INLINE void NAME(affine_biased)(const eg_affine_finish *f, int64_t n, int64_t rows, int64_t j,
                                   NAME(matrix) c, NAME(matrix) r, NAME(matrix) z, NAME(matrix) y)
{
    const T *b = (const T *)(const void *)f->bias;
    if (!b || (c.step % f->features == 0 && j + n <= f->features)) {
        NAME(affine_sum)(n, rows, c, b ? b + j : NULL, r, z, y);
        return;
    }
    for (int64_t q = 0; q < rows; q++)
        for (int64_t k = 0, m, i = (j + q * c.step) % f->features; k < n; k += m, i = 0) {
            m = eg__min64(n - k, f->features - i);
            NAME(affine_sum)
            (m, 1, NAME(affine_from)(c, q, k), b + i, NAME(affine_from)(r, q, k),
             NAME(affine_from)(z, q, k), NAME(affine_from)(y, q, k));
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
    const int64_t first = (T *)at - (T *)(void *)f->y;
    const NAME(matrix) c = { (T *)at, step }, z = { f->z ? (T *)(void *)f->z + first : NULL, step },
                       r = { f->add ? (T *)(uintptr_t)f->add + first : NULL, step },
                       no = { NULL, 0 };
    if (!f->function) {
        NAME(affine_biased)(f, n, rows, first % f->features, c, r, no, c);
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        m = eg__min64(n - i, BUFFER);
        for (int64_t q = 0, count; q < rows; q += count) {
            count = eg__min64(rows - q, BUFFER / m);
            const int64_t total = count * m, lanes = (total + EG_LANES - 1) & -EG_LANES;
            const NAME(matrix) here = NAME(affine_from)(c, q, i), in = { before, m },
                               out = { after, m };
            NAME(affine_biased)
            (f, m, count, (first + q * step + i) % f->features, here, no,
             NAME(affine_from)(z, q, i), in);
            for (int64_t k = total; k < lanes; k++) before[k] = before[total - 1];
            f->function(lanes, (char *[]){ (char *)after, (char *)before }, none);
            NAME(affine_sum)(m, count, out, NULL, NAME(affine_from)(r, q, i), no, here);
        }
    }
}
#undef LINE
#undef LINE_AT
#undef READ_AT
#undef T
#undef NAME
