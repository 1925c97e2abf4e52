/* numbers_of.h: the loops of numbers.c for one type REAL; NAME(x) is x with the name of the
 * type. */
EG_CLONES static void NAME(ranks_sum)(int64_t n, REAL *restrict x, const REAL *restrict y)
{
    for (int64_t k = 0; k < n; k++) x[k] += y[k];
}
/* Σ x² in LANES partial sums, which are added pairwise: the order depends only on n */
EG_CLONES static double NAME(squares)(int64_t n, const REAL *x)
{
    double sum[LANES] = { 0 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++) sum[l] += (double)x[k + l] * (double)x[k + l];
    for (int l = 0; k < n; k++, l++) sum[l] += (double)x[k] * (double)x[k];
    for (int w = LANES / 2; w; w /= 2)
        for (int l = 0; l < w; l++) sum[l] += sum[l + w];
    return sum[0];
}
/* clang 14 finds a function with target clones only in its own file */
void NAME(eg__ranks_add)(int64_t n, REAL *x, const REAL *y) { NAME(ranks_sum)(n, x, y); }
double NAME(eg__ranks_squares)(int64_t n, const REAL *x) { return NAME(squares)(n, x); }
#undef REAL
#undef NAME
