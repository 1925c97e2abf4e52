/* solve_of.h: forward substitution of solve.c for one type T. NAME(x) is a name for this type.
 *
 * Each element subtracts the terms of its row in the order of j, so its value does not depend on
 * how rows and columns are divided into tiles. */

/* Solves rows i … i + rows − 1 for `columns` columns from x on, of which the rows before i are
 * solved. rows ≤ ROWS, columns ≤ COLUMNS; both are constants in most calls. */
EG_INLINE void NAME(solve_tile)(const int64_t rows, const int64_t columns, const solving *s,
                                int64_t i, const char *a, T *x)
{
    T sum[ROWS][COLUMNS];
    T *to = x + i * s->x;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) sum[r][k] = to[r * s->x + k];
    const char *row = a + i * s->row;
    for (int64_t j = 0; j < i; j++)
        for (int64_t r = 0; r < rows; r++) {
            const T c = *(const T *)(row + r * s->row + j * s->column);
            for (int64_t k = 0; k < columns; k++) sum[r][k] -= c * x[j * s->x + k];
        }
    for (int64_t r = 0; r < rows; r++) {
        const char *at = row + r * s->row + i * s->column;
        for (int64_t j = 0; j < r; j++) {
            const T c = *(const T *)(at + j * s->column);
            for (int64_t k = 0; k < columns; k++) sum[r][k] -= c * sum[j][k];
        }
        const T pivot = *(const T *)(at + r * s->column);
        for (int64_t k = 0; k < columns; k++) to[r * s->x + k] = sum[r][k] /= pivot;
    }
}
EG_CLONES static void NAME(solve)(const void *user, int64_t row, char *const *p)
{
    const solving *s = user;
    (void)row;
    for (int64_t k = 0, m; k < s->columns; k += m) {
        T *x = (T *)(p[0] + s->x_first) + k;
        const char *a = p[1] + s->a_first;
        int64_t i = 0;
        m = eg__min64(s->columns - k, COLUMNS);
        if (m == COLUMNS) {
            for (; i + ROWS <= s->n; i += ROWS) NAME(solve_tile)(ROWS, COLUMNS, s, i, a, x);
            for (; i < s->n; i++) NAME(solve_tile)(1, COLUMNS, s, i, a, x);
        } else
            for (; i < s->n; i++) NAME(solve_tile)(1, m, s, i, a, x);
    }
}
#undef T
#undef NAME
