/* arithmetic_sum_of.h: one sum of arithmetic_of.h, in a vector that remains in its register: SUM,
 * the name of a function, sums TERM of u and v, elements of a and b, and of s, one value per row.
 * It takes several rows at once (a constant, at most ABREAST), because the additions of one row
 * depend on each other; the sum of a row does not depend on the other rows. Distances of rows are
 * in elements. WIDE_TERM is TERM for the lanes of a PIECE, if it is written differently. The last,
 * incomplete group is read together with elements before it, which count as 0. */
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
    PIECE sum[ABREAST][PIECES] = { { { 0 } } }, u, v;
    PIECE_BITS ours[PIECES];
    NAME(from_lane)((int)(-n & (EG_LANES - 1)), ours);
    for (; k + EG_LANES <= n; k += EG_LANES) ALL_ROWS for (int r = 0; r < rows; r++)
        {
            const T s = shift[r];
            (void)s;
            ALL_PIECES for (int q = 0; q < PIECES; q++)
            {
                memcpy(&u, a + r * as + k + q * IN_PIECE, sizeof u);
                memcpy(&v, b + r * bs + k + q * IN_PIECE, sizeof v);
                sum[r][q] += WIDE_TERM;
            }
        }
    ALL_ROWS for (int r = 0; r < rows; r++)
    {
        const T s = shift[r];
        (void)s;
        ALL_PIECES for (int q = 0; q < PIECES && k < n; q++)
        {
            memcpy(&u, a + r * as + n - EG_LANES + q * IN_PIECE, sizeof u);
            memcpy(&v, b + r * bs + n - EG_LANES + q * IN_PIECE, sizeof v);
            sum[r][q] += (PIECE)((PIECE_BITS)(WIDE_TERM)&ours[q]);
        }
        if (rows < 4) total[r] = NAME(lanes_summed)(sum[r]);
    }
    if (rows == 4) NAME(lanes_summed_four)(sum, total);
}
#undef SUM
#undef TERM
#undef WIDE_TERM
