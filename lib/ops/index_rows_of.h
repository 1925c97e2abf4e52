/* index_rows_of.h: the loops of `at` and scatter_add, LOOP(), over runs and over rows of one index
 * each, for i32 and i64 indices. LOOP() computes a run of any steps; LOOP(_dense), rows of `all`
 * contiguous elements, whose number is a constant where it is a common one. */
static void LOOP(_i32)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    LOOP()(false, n, p, step, user);
}
static void LOOP(_i64)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    LOOP()(true, n, p, step, user);
}
EG_INLINE void LOOP(_rows)(bool wide, int64_t rows, int64_t n, char *const *p,
                           const int64_t *row_step, const int64_t *step, const pick *v)
{
    const bool dense = step[2] == 0 && step[0] == (int64_t)sizeof(T) && step[1] == step[0];
    switch (dense ? n : 0) {
    case 2: LOOP(_dense)(wide, rows, 2, p, row_step, v); break;
    case 3: LOOP(_dense)(wide, rows, 3, p, row_step, v); break;
    case 4: LOOP(_dense)(wide, rows, 4, p, row_step, v); break;
    case 8: LOOP(_dense)(wide, rows, 8, p, row_step, v); break;
    case 16: LOOP(_dense)(wide, rows, 16, p, row_step, v); break;
    default:
        if (dense) LOOP(_dense)(wide, rows, n, p, row_step, v);
        for (int64_t r = 0; r < rows && !dense; r++) {
            char *q[3];
            for (int k = 0; k < 3; k++) q[k] = p[k] + r * row_step[k];
            LOOP()(wide, n, q, step, v);
        }
    }
}
static void LOOP(_rows_i32)(int64_t rows, int64_t n, char *const *p, const int64_t *row_step,
                            const int64_t *step, const void *user)
{
    LOOP(_rows)(false, rows, n, p, row_step, step, user);
}
static void LOOP(_rows_i64)(int64_t rows, int64_t n, char *const *p, const int64_t *row_step,
                            const int64_t *step, const void *user)
{
    LOOP(_rows)(true, rows, n, p, row_step, step, user);
}
#undef LOOP
