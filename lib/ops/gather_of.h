/* gather_of.h: the loops of `at` for elements of one width. T is a type of that width, NAME(x) a
 * name for it; wide: the index is i64. */
EG_INLINE void NAME(gather)(bool wide, int64_t n, char *const *p, const int64_t *step,
                            const pick *v)
{
    if (step[2] == 0) {
        const char *x = p[1] + index_at(wide, p[2]) * v->step;
        if (step[0] == (int64_t)sizeof(T) && step[1] == (int64_t)sizeof(T))
            memcpy(p[0], x, (size_t)n * sizeof(T));
        else
            for (int64_t i = 0; i < n; i++)
                *(T *)(p[0] + i * step[0]) = *(const T *)(x + i * step[1]);
    } else
        for (int64_t i = 0; i < n; i++)
            *(T *)(p[0] + i * step[0]) =
                *(const T *)(p[1] + i * step[1] + index_at(wide, p[2] + i * step[2]) * v->step);
}
static void NAME(gather_i32)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    NAME(gather)(false, n, p, step, user);
}
static void NAME(gather_i64)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    NAME(gather)(true, n, p, step, user);
}
/* The same for rows of one index each, of a constant number of elements where `all` is one. */
EG_INLINE void NAME(gather_dense)(bool wide, int64_t rows, const int64_t all, char *const *p,
                                  const int64_t *row_step, const pick *v)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(p[0] + r * row_step[0],
               p[1] + r * row_step[1] + index_at(wide, p[2] + r * row_step[2]) * v->step,
               (size_t)all * sizeof(T));
}
EG_INLINE void NAME(gather_rows)(bool wide, int64_t rows, int64_t n, char *const *p,
                                 const int64_t *row_step, const int64_t *step, const pick *v)
{
    const bool dense = step[2] == 0 && step[0] == (int64_t)sizeof(T) && step[1] == step[0];
    switch (dense ? n : 0) {
    case 2: NAME(gather_dense)(wide, rows, 2, p, row_step, v); break;
    case 3: NAME(gather_dense)(wide, rows, 3, p, row_step, v); break;
    case 4: NAME(gather_dense)(wide, rows, 4, p, row_step, v); break;
    case 8: NAME(gather_dense)(wide, rows, 8, p, row_step, v); break;
    case 16: NAME(gather_dense)(wide, rows, 16, p, row_step, v); break;
    default:
        if (dense) NAME(gather_dense)(wide, rows, n, p, row_step, v);
        for (int64_t r = 0; r < rows && !dense; r++) {
            char *q[3];
            for (int k = 0; k < 3; k++) q[k] = p[k] + r * row_step[k];
            NAME(gather)(wide, n, q, step, v);
        }
    }
}
static void NAME(gather_rows_i32)(int64_t rows, int64_t n, char *const *p, const int64_t *row_step,
                                  const int64_t *step, const void *user)
{
    NAME(gather_rows)(false, rows, n, p, row_step, step, user);
}
static void NAME(gather_rows_i64)(int64_t rows, int64_t n, char *const *p, const int64_t *row_step,
                                  const int64_t *step, const void *user)
{
    NAME(gather_rows)(true, rows, n, p, row_step, step, user);
}
