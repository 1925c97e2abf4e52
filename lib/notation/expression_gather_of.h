/* expression_gather_of.h: reads rows, for one set of types. expression_gather.c includes it
 * after defining NAME, INDEX with its RUN_OF, and TO and FROM, the types of the result and of
 * the tensor. */
EG_CLONES static void NAME(const eg_gather *g, const void *from, void *out, int64_t out_step)
{
    const int64_t stride = g->stride;
    for (int64_t r = 0; r < g->rows; r++) {
        const INDEX *index = (const INDEX *)g->index + r * g->index_step;
        const FROM *x = (const FROM *)from + (g->base ? g->base[r] : 0);
        TO *y = (TO *)out + r * out_step;
        if (g->counts) {
            x += g->first * stride;
            if (stride == 1)
                for (int64_t k = 0; k < g->lanes; k++) y[k] = (TO)x[k];
            else
                for (int64_t k = 0; k < g->lanes; k++) y[k] = (TO)x[k * stride];
            continue;
        }
        for (int64_t k = 0; k < g->lanes; k += EG_LANES, index += EG_LANES, y += EG_LANES) {
            const int d = RUN_OF(index, g->limit);
            if (d == 0) {
                const TO one = (TO)x[gather_offset(g, index[0])];
                EG_EVERY_LANE
                for (int l = 0; l < EG_LANES; l++) y[l] = one;
            } else if (d != NO_RUN && d * stride == 1) {
                const FROM *at = x + stride * index[0];
                EG_EVERY_LANE
                for (int l = 0; l < EG_LANES; l++) y[l] = (TO)at[l];
            } else if (d != NO_RUN && d * stride == -1) {
                const FROM *at = x + stride * index[EG_LANES - 1];
                EG_EVERY_LANE
                for (int l = 0; l < EG_LANES; l++) y[l] = (TO)at[EG_LANES - 1 - l];
            } else
                for (int l = 0; l < EG_LANES; l++) y[l] = (TO)x[gather_offset(g, index[l])];
        }
    }
}
#undef TO
#undef FROM
#undef INDEX
#undef RUN_OF
#undef NAME
