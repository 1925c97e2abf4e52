/* widen_of.h: the loops of widen.c that convert elements of type FROM (f16 or bf16) to type TO
 * (float or double). VALUE(x) converts one element, EIGHT(p), if it is defined, the 8 at p, and
 * NAME(x) forms the names of the functions. */

#if defined(EIGHT) && defined(__x86_64__)
/* y[r·ys + i] = x[r·xs + i] for r < rows and i < n. Rows may lie far apart, so that the processor
 * does not fetch them before they are read: the line after each row, which is that of the next
 * strip of the same rows, is fetched while this one is converted. Those `ahead` elements after the
 * converted ones are, too. */
TARGET static void NAME(widen_eight)(int64_t rows, int64_t n, const FROM *x, int64_t xs,
                                     TO *restrict y, int64_t ys, int64_t ahead)
{
    for (int64_t r = 0; r < rows; r++, x += xs, y += ys) {
        int64_t i = 0;
        __builtin_prefetch(x + EG_LINE / sizeof *x, 0, 2);
        for (; ahead && i + 32 <= n; i += 32) {
            __builtin_prefetch(x + i + ahead, 0, 2);
            for (int k = 0; k < 32; k += 8) _mm256_storeu_ps(y + i + k, EIGHT(x + i + k));
        }
        for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, EIGHT(x + i));
        for (; i < n; i++) y[i] = VALUE(x[i]);
    }
}
#endif
/* y[r·ys + i] = x[r·xs + i·step] for r < rows and i < n */
EG_CLONES static void NAME(widen_any)(int64_t rows, int64_t n, const FROM *x, int64_t xs,
                                      int64_t step, TO *restrict y, int64_t ys)
{
    for (int64_t r = 0; r < rows; r++, x += xs, y += ys)
        if (step == 1)
            for (int64_t i = 0; i < n; i++) y[i] = VALUE(x[i]);
        else
            for (int64_t i = 0; i < n; i++) y[i] = VALUE(x[i * step]);
}
static void NAME(widen)(int64_t rows, int64_t n, const FROM *x, int64_t xs, int64_t step,
                        TO *restrict y, int64_t ys, int64_t ahead)
{
    (void)ahead;
#if defined(EIGHT) && defined(__x86_64__)
    if (step == 1 && eg__kernel_isa() != EG_ISA_PLAIN) {
        NAME(widen_eight)(rows, n, x, xs, y, ys, ahead);
        return;
    }
#endif
    NAME(widen_any)(rows, n, x, xs, step, y, ys);
}
/* y[p·w + i] = x[off[i] + p·step] for p < n and i < rows */
EG_CLONES static void NAME(widen_each)(int w, int64_t rows, const int64_t *off, int64_t n,
                                       const FROM *x, int64_t step, TO *restrict y)
{
    for (int64_t p = 0; p < n; p++, x += step, y += w)
        for (int64_t i = 0; i < rows; i++) y[i] = VALUE(x[off[i]]);
}
/* widen_each for step = 1: converts some rows at a time and transposes them. */
static void NAME(widen_turned)(int w, int64_t rows, const int64_t *off, int64_t n, const FROM *x,
                               TO *y)
{
    enum { ROWS = 16, COLUMNS = 64 };
    _Alignas(64) TO near[ROWS * COLUMNS];
    for (int64_t p = 0; p < n; p += COLUMNS)
        for (int64_t i = 0; i < rows; i += ROWS) {
            const int64_t nx = eg__min64(rows - i, ROWS), ny = eg__min64(n - p, COLUMNS);
            for (int64_t r = 0; r < nx; r++)
                NAME(widen)(1, ny, x + off[i + r] + p, 0, 1, near + r * COLUMNS, 0, 0);
            eg__transpose(sizeof(TO), nx, ny, near, COLUMNS, y + p * w + i, w, false);
        }
}
/* eg__pack for halves: packs a panel and converts its elements */
static void NAME(widen_panel)(int w, int64_t rows, const int64_t *off, int64_t rs, int runs,
                              const eg_run *run, const FROM *src, TO *dst, int64_t k)
{
    if (rows < w) memset(dst, 0, (size_t)(k * w) * sizeof *dst);
    for (; runs > 0; runs--, dst += run++->n * w) {
        const FROM *x = src + run->at;
        if (rs == 1)
            NAME(widen)(run->n, rows, x + off[0], run->stride, 1, dst, w, 0);
        else if (run->stride == 1 && run->n > 1)
            NAME(widen_turned)(w, rows, off, run->n, x, dst);
        else
            NAME(widen_each)(w, rows, off, run->n, x, run->stride, dst);
    }
}
#undef FROM
#undef TO
#undef VALUE
#undef EIGHT
#undef NAME
