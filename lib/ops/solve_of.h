/* solve_of.h: forward substitution of solve.c for one type T. NAME(x) is a name for this type.
 * BYTES of a vector; not defined: no tiles.
 *
 * Each element subtracts the terms of its row in the order of j, so its value does not depend on
 * how rows and columns are divided into tiles. */

/* Solves row i for `columns` columns; the rows before it are solved. */
EG_INLINE void NAME(solve_row)(const solving *s, int64_t i, int64_t columns, const char *a, T *x)
{
    T *restrict to = x + i * s->x;
    const char *row = a + i * s->row;
    for (int64_t j = 0; j < i; j++) {
        const T c = *(const T *)(row + j * s->column);
        const T *restrict of = x + j * s->x;
        for (int64_t k = 0; k < columns; k++) to[k] -= c * of[k];
    }
    const T pivot = *(const T *)(row + i * s->column);
    for (int64_t k = 0; k < columns; k++) to[k] /= pivot;
}
#ifdef BYTES
typedef T NAME(vector) __attribute__((vector_size(BYTES)));
enum { NAME(LANES) = BYTES / sizeof(T), NAME(COLUMNS) = VECTORS * NAME(LANES) };
/* Solves rows i … i + ROWS − 1 for COLUMNS columns. */
EG_INLINE void NAME(solve_tile)(const solving *s, int64_t i, const char *a, T *x)
{
    NAME(vector) sum[ROWS][VECTORS], of[VECTORS];
    const char *row = a + i * s->row;
    for (int r = 0; r < ROWS; r++) memcpy(sum[r], x + (i + r) * s->x, sizeof sum[r]);
    for (int64_t j = 0; j < i; j++) {
        memcpy(of, x + j * s->x, sizeof of);
        for (int r = 0; r < ROWS; r++) {
            const T c = *(const T *)(row + r * s->row + j * s->column);
            for (int v = 0; v < VECTORS; v++) sum[r][v] -= c * of[v];
        }
    }
    for (int r = 0; r < ROWS; r++) {
        const char *at = row + r * s->row + i * s->column;
        for (int j = 0; j < r; j++) {
            const T c = *(const T *)(at + j * s->column);
            for (int v = 0; v < VECTORS; v++) sum[r][v] -= c * sum[j][v];
        }
        const T pivot = *(const T *)(at + r * s->column);
        for (int v = 0; v < VECTORS; v++) sum[r][v] /= pivot;
    }
    for (int r = 0; r < ROWS; r++) memcpy(x + (i + r) * s->x, sum[r], sizeof sum[r]);
}
#endif
#ifdef BYTES
/* Solves rows i … i + TALL − 1 for one column. */
EG_INLINE void NAME(solve_tall)(const solving *s, int64_t i, const char *a, T *x)
{
    const char *row = a + i * s->row;
    T sum[TALL];
    for (int r = 0; r < TALL; r++) sum[r] = x[(i + r) * s->x];
    for (int64_t j = 0; j < i; j++) {
        const T v = x[j * s->x];
        for (int r = 0; r < TALL; r++) sum[r] -= *(const T *)(row + r * s->row + j * s->column) * v;
    }
    for (int r = 0; r < TALL; r++) {
        const char *at = row + r * s->row + i * s->column;
        for (int j = 0; j < r; j++) sum[r] -= *(const T *)(at + j * s->column) * sum[j];
        x[(i + r) * s->x] = sum[r] /= *(const T *)(at + r * s->column);
    }
}
/* Solves all rows for COLUMNS columns. */
EG_INLINE void NAME(solve_columns)(const solving *s, const char *a, T *x)
{
    int64_t i = 0;
    for (; i + ROWS <= s->n; i += ROWS) NAME(solve_tile)(s, i, a, x);
    for (; i < s->n; i++) NAME(solve_row)(s, i, NAME(COLUMNS), a, x);
}
/* Solves at most NARROW rows for fewer columns, with zeros in the others. */
EG_INLINE void NAME(solve_narrow)(const solving *s, int64_t columns, const char *a, T *x)
{
    T narrow[NARROW * NAME(COLUMNS)];
    solving t = *s;
    t.x = NAME(COLUMNS);
    memset(narrow, 0, (size_t)(s->n * t.x) * sizeof(T));
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t k = 0; k < columns; k++) narrow[i * t.x + k] = x[i * s->x + k];
    NAME(solve_columns)(&t, a, narrow);
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t k = 0; k < columns; k++) x[i * s->x + k] = narrow[i * t.x + k];
}
#endif
EG_CLONES static void NAME(solve)(const void *user, int64_t system, char *const *p)
{
    const solving *s = user;
    T *x = (T *)(p[0] + s->x_first);
    const char *a = p[1] + s->a_first;
    int64_t k = 0;
    (void)system;
#ifdef BYTES
    for (; k + NAME(COLUMNS) <= s->columns; k += NAME(COLUMNS)) NAME(solve_columns)(s, a, x + k);
    if (k + 2 < s->columns && s->n >= SMALL && s->n <= NARROW) {
        NAME(solve_narrow)(s, s->columns - k, a, x + k);
        return;
    }
    for (; k < s->columns && s->n >= SMALL; k++) {
        int64_t i = 0;
        for (; i + TALL <= s->n; i += TALL) NAME(solve_tall)(s, i, a, x + k);
        for (; i < s->n; i++) NAME(solve_row)(s, i, 1, a, x + k);
    }
#endif
    for (int64_t i = 0; i < s->n && k < s->columns; i++)
        NAME(solve_row)(s, i, s->columns - k, a, x + k);
}
#undef T
#undef NAME
