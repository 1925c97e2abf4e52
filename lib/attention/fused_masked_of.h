/* fused_masked_of.h: part of fused_masked.c, for one type T. */

/* out += weight · times x[r][c] for each x that is not finite, in the pairs that `allow` allows;
 * if `zeros`, only where the weight is not 0. If transposed is NULL, r is a row of the tile, and
 * out has the lanes of the tile, column by column. Else r is a lane of the tile, and out has the
 * rows transposed->from … transposed->to, in panels, column by column. */
static void NAME(repair)(const eg_fused *f, const eg_fused_batch *b, eg_stretch list,
                         eg_part columns, int at, double times, bool zeros,
                         const eg_live *transposed, const char *weights, const uint8_t *allow,
                         char *out, const int64_t *off)
{
    const int64_t wide = f->wide, panel = eg__round_up(f->list[columns].total, f->narrow) * wide;
    const int64_t pairs = transposed ? transposed->to - transposed->from : wide;
    const T *x = (const T *)(void *)f->data[at] + b->at[at], *w = (const T *)(const void *)weights;
    for (int64_t r = 0; r < list.count; r++) {
        const T *line = x + eg__fused_at(f, list.part, at, list.from + r);
        for (int64_t c = 0; c < f->list[columns].total; c++) {
            const T v = line[off[c]] * (T)times;
            if (v - v == 0) continue;
            for (int64_t p = 0; p < pairs; p++) {
                const int64_t k = transposed ? p * wide + r : r * wide + p;
                const int64_t i = transposed ? transposed->from + p : p;
                if ((!allow || allow[k]) && (!zeros || w[k] != 0))
                    ((T *)(void *)out)[i / wide * panel + c * wide + i % wide] += w[k] * v;
            }
        }
    }
}
