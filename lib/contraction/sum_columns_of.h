/* sum_columns_of.h: included by sum_rows_of.h for each length of vectors, VECTOR. It defines the
 * function COLUMNS, which computes neighbouring columns of a sum of rows. */

#define IN_VECTOR ((int)(sizeof(VECTOR) / sizeof(REAL)))
/* The first `count` vectors of NAME(few_rows); count, a constant, is at most MOST. */
EG_INLINE void COLUMNS(const int count, const int factor, int rows, const REAL *a,
                       const int64_t *at_a, const REAL *b, const int64_t *at_b, REAL *c, REAL alpha,
                       bool add, const int64_t (*next)[ROWS])
{
    enum { MOST = 4 * 64 / sizeof(VECTOR), WIDTH = sizeof(VECTOR) };
    const int lines = (count * WIDTH + 63) / 64;
    const bool by_fours = factor != ROW_FACTOR, number = factor == NUMBER_FACTOR;
    VECTOR sum[MOST] = { { 0 } }, x[4], y;
    int r = 0;
    for (; by_fours && r + 4 <= rows; r += 4) {
        for (int l = 0; next && l < 4; l++)
            for (int q = 0; q < lines; q++)
                __builtin_prefetch(a + next[0][r + l] + q * LANES, 0, 2);
        UNROLLED for (int q = 0; q < count; q++)
        {
            UNROLLED for (int l = 0; l < 4; l++)
            {
                memcpy(&x[l], a + at_a[r + l] + q * IN_VECTOR, WIDTH);
                if (number) x[l] *= b[at_b[r + l]];
            }
            sum[q] += (x[0] + x[1]) + (x[2] + x[3]);
        }
    }
    for (; r < rows; r++) {
        for (int q = 0; factor == ROW_FACTOR && next && q < lines; q++) {
            __builtin_prefetch(a + next[0][r] + q * LANES, 0, 2);
            __builtin_prefetch(b + next[1][r] + q * LANES, 0, 2);
        }
        UNROLLED for (int q = 0; q < count; q++)
        {
            memcpy(&x[0], a + at_a[r] + q * IN_VECTOR, WIDTH);
            if (number) x[0] *= b[at_b[r]];
            if (factor == ROW_FACTOR) {
                memcpy(&y, b + at_b[r] + q * IN_VECTOR, WIDTH);
                x[0] *= y;
            }
            sum[q] += x[0];
        }
    }
    UNROLLED for (int q = 0; q < count; q++)
    {
        sum[q] *= alpha;
        memcpy(&y, c + q * IN_VECTOR, WIDTH);
        if (add) sum[q] += y;
        memcpy(c + q * IN_VECTOR, &sum[q], WIDTH);
    }
}
#undef IN_VECTOR
