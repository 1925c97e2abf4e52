/* expression_scatter_of.h: adds rows, for one set of types. expression_gather.c includes it after
 * defining NAME, INDEX with its RUN_OF, FROM, the type of the summands, and T, that of the sums. */
EG_CLONES static void NAME(const eg_gather *g, const void *from, int64_t from_step, void *sums)
{
    const int64_t stride = g->stride;
    if (g->counts && stride != 1 && eg__gather_apart(g) == 1) { /* rows are neighbours in memory */
        T *y = (T *)sums + eg__gather_first(g);
        const FROM *x = from;
        for (int64_t k = 0; k < g->lanes; k++, y += stride, x++)
            for (int64_t r = 0; r < g->rows; r++) y[r] += (T)x[r * from_step];
        return;
    }
    for (int64_t r = 0; r < g->rows; r++) {
        const INDEX *index = (const INDEX *)g->index + r * g->index_step;
        const FROM *x = (const FROM *)from + r * from_step;
        T *y = (T *)sums + (g->base ? g->base[r] : 0);
        int64_t left = g->lanes;
        if (g->counts) {
            y += g->first * stride;
            if (stride == 1)
                for (int64_t k = 0; k < left; k++) y[k] += (T)x[k];
            else
                for (int64_t k = 0; k < left; k++) y[k * stride] += (T)x[k];
            continue;
        }
        for (; left >= EG_LANES; left -= EG_LANES, index += EG_LANES, x += EG_LANES) {
            const int d = RUN_OF(index, g->limit);
            if (d == 0) {
                T s[EG_LANES];
                EG_EVERY_LANE
                for (int l = 0; l < EG_LANES; l++) s[l] = (T)x[l];
                for (int half = EG_LANES / 2; half; half /= 2)
                    for (int l = 0; l < half; l++) s[l] += s[l + half];
                y[gather_offset(g, index[0])] += s[0];
            } else if (d != NO_RUN && d * stride == 1) {
                T *to = y + stride * index[0];
                EG_EVERY_LANE
                for (int l = 0; l < EG_LANES; l++) to[l] += (T)x[l];
            } else if (d != NO_RUN && d * stride == -1) {
                T *to = y + stride * index[EG_LANES - 1];
                EG_EVERY_LANE
                for (int l = 0; l < EG_LANES; l++) to[l] += (T)x[EG_LANES - 1 - l];
            } else
                for (int l = 0; l < EG_LANES; l++) y[gather_offset(g, index[l])] += (T)x[l];
        }
        for (int64_t l = 0; l < left; l++) y[gather_offset(g, index[l])] += (T)x[l];
    }
}
#undef FROM
#undef T
#undef INDEX
#undef RUN_OF
#undef NAME
