/* arithmetic_sum_of.h: one sum of arithmetic_of.h, in one vector that never leaves its register:
 * SUM, a function's name, adds up TERM of two numbers u and v, elements of a and b, and of a number
 * s for each row. It takes several rows at once (a constant, at most ABREAST), because the
 * additions of one row wait for each other; a row's sum does not depend on the others. Steps from
 * row to row are in elements. WIDE_TERM is the same of 16 numbers, where it is written otherwise.
 * The last, incomplete group is read together with elements before it, which count as 0. */
#ifndef WIDE_TERM
#define WIDE_TERM TERM
#endif
EG_INLINE void SUM(int rows, int64_t n, const T *a, int64_t as, const T *b, int64_t bs,
                   const T *shift, T *total)
{
    int64_t k = 0;
    for (int r = 0; r < rows && n < EG_LANES; r++) {
        const T s = shift[r];
        (void)s;
        total[r] = 0;
        for (k = 0; k < n; k++) {
            const T u = a[r * as + k], v = b[r * bs + k];
            (void)v;
            total[r] += TERM;
        }
    }
    if (n < EG_LANES) return;
    WIDE sum[ABREAST] = { { 0 } }, u, v;
    BITS ours;
    NAME(from_lane)((int)(-n & (EG_LANES - 1)), &ours);
    for (; k + EG_LANES <= n; k += EG_LANES) ALL_ROWS for (int r = 0; r < rows; r++)
        {
            const T s = shift[r];
            (void)s;
            memcpy(&u, a + r * as + k, sizeof u);
            memcpy(&v, b + r * bs + k, sizeof v);
            sum[r] += WIDE_TERM;
        }
    ALL_ROWS for (int r = 0; r < rows; r++)
    {
        const T s = shift[r];
        (void)s;
        if (k < n) {
            memcpy(&u, a + r * as + n - EG_LANES, sizeof u);
            memcpy(&v, b + r * bs + n - EG_LANES, sizeof v);
            sum[r] += (WIDE)((BITS)(WIDE_TERM)&ours);
        }
        if (rows < 4) total[r] = NAME(lanes_summed)(&sum[r]);
    }
    if (rows == 4) NAME(lanes_summed_four)(sum, total);
}
#undef SUM
#undef TERM
#undef WIDE_TERM
