/* tile_sums.c: the cotangents of the tensors that the score reads and of the sink, summed over
 * the tiles of a backward pass.
 *
 * If a tensor has every letter of the scores, each element of its cotangent is written once. The
 * other cotangents are summed in f64, unless each element has at most two summands. A piece of work
 * is a batch, or a split of a batch's keys. A unit is a number of pieces that one thread computes
 * one after another; each unit adds to a set of sums, and the sets are added in order at the end.
 * Pieces that differ in a letter that all these tensors have can share a set, since they add to
 * different elements. The number of sets depends on sizes only, so the number of threads changes no
 * bit. */
#include "attention/workspace.h"
#include <string.h>

enum { BYTES = 1 << 20 }; /* of all sets together, unless a single set has more */

/* True if in every read of tensor t by the score one axis is indexed by the letter `s` alone. */
static bool reads_along(const eg_fused *f, int t, int s)
{
    uint32_t common = UINT32_MAX;
    for (int k = 0; k <= f->score->root; k++) {
        const eg_node *n = &f->score->node[k];
        uint32_t axes = 0;
        if (n->code != EG_X_READ || n->tensor != t) continue;
        for (int r = 0; r < n->count; r++) {
            const eg_node *i = &f->score->node[n->in[r]];
            axes |= (uint32_t)(i->code == EG_X_LETTER && i->in[0] == s) << r;
        }
        common &= axes;
    }
    return common != 0;
}
/* True if every tensor that is summed has the batch letter at position s of the scores. */
static bool shared_letter(const eg_tile_sums *u, const eg_fused *f, int s)
{
    bool has = !u->summed_sink;
    for (int k = 0; u->summed_sink && k < f->a->rank[EG_TERM_SINK]; k++)
        has |= f->a->label[EG_TERM_SINK][k] == f->a->score[s];
    for (int t = 0; t < f->a->tensors && has; t++)
        if (u->there >> t & 1 && !u->sink[t].direct) has = reads_along(f, t, s);
    return has;
}
/* Adds up in the result itself what has at most two summands for each element, such as the table r
 * of r[b,h,i,i - j]; the f64 sums of the other tensors move together. For a single set: then units
 * differ in letters that are indices of every summed tensor, so no two add to one element. */
static void few_in_place(eg_tile_sums *u, const eg_fused *f, eg_tensor *const *x, char *const *to)
{
    u->summed = 0;
    for (int t = 0; t < f->a->tensors; t++) {
        const eg_tensor *y = x[EG_TERMS + t];
        eg_sink *s = &u->sink[t];
        if (!(u->there >> t & 1) || s->direct) continue;
        s->few = eg__few_summands(f->score, f->a->scores, f->size, t);
        if (s->few) memset(to[EG_TERMS + t], 0, (size_t)eg_size(y) * eg__width[f->dtype]);
        u->at[t] = u->summed;
        if (!s->few) u->summed += eg_size(y);
    }
    u->sink_at = u->summed;
    if (u->summed_sink) u->summed += eg_size(x[EG_TERM_SINK]);
}
bool eg__tile_sums_open(eg_tile_sums *u, eg_ctx *cx, const eg_fused *f, eg_tensor *const *x,
                        char *const *to, int64_t splits)
{
    const eg_fused_list *l = &f->list[EG_PART_BATCH];
    *u = (eg_tile_sums){ .splits = splits, .fixed = 1, .rest = splits };
    for (int t = 0; t < f->a->tensors; t++) {
        const eg_tensor *y = x[EG_TERMS + t];
        if (!to[EG_TERMS + t]) continue;
        u->there |= 1u << t;
        eg__row_major(y->rank, y->dim, u->step[t]);
        u->sink[t] =
            (eg_sink){ .data = to[EG_TERMS + t],
                       .stride = u->step[t],
                       .direct = eg__written_once(f->score, f->a->scores, f->size, t, y->dim) };
        if (u->sink[t].direct) continue;
        u->at[t] = u->summed;
        u->summed += eg_size(y);
    }
    if (to[EG_TERM_SINK]) {
        u->summed_sink = true;
        u->sink_at = u->summed;
        u->summed += eg_size(x[EG_TERM_SINK]);
    }
    for (int k = 0; k < l->n; k++) {
        u->is_fixed[k] = shared_letter(u, f, l->axis[k].score);
        *(u->is_fixed[k] ? &u->fixed : &u->rest) *= l->axis[k].size;
    }
    u->sets = u->rest;
    if (!u->summed) return true;
    const int64_t fit = BYTES / (u->summed * (int64_t)sizeof(double));
    u->sets = eg__min64(u->rest, fit > 1 ? fit : 1);
    if (u->sets == 1) few_in_place(u, f, x, to);
    if (!u->summed) return true;
    const size_t bytes = (size_t)(u->sets * u->summed) * sizeof(double);
    if (!(u->sums = eg__scratch(cx, EG_SCRATCH_SUMS, bytes))) return false;
    memset(u->sums, 0, bytes);
    return true;
}
int64_t eg__tile_sums_unit(const eg_tile_sums *u, const eg_fused *f, int64_t unit, int64_t *from,
                           int64_t *to, eg_sink *sink)
{
    const int64_t set = unit % u->sets;
    *from = u->rest * set / u->sets;
    *to = u->rest * (set + 1) / u->sets;
    memcpy(sink, u->sink, sizeof u->sink);
    for (int t = 0; t < f->a->tensors; t++)
        if (u->there >> t & 1 && !sink[t].direct && !sink[t].few)
            sink[t].data = u->sums + set * u->summed + u->at[t];
    return u->summed_sink ? set * u->summed + u->sink_at : -1;
}
int64_t eg__tile_sums_piece(const eg_tile_sums *u, const eg_fused *f, int64_t unit, int64_t piece)
{
    const eg_fused_list *l = &f->list[EG_PART_BATCH];
    int64_t fixed = unit / u->sets, rest = piece / u->splits, number = 0, step = 1;
    for (int k = l->n; k-- > 0; step *= l->axis[k].size) {
        int64_t *of = u->is_fixed[k] ? &fixed : &rest;
        number += *of % l->axis[k].size * step;
        *of /= l->axis[k].size;
    }
    return number * u->splits + piece % u->splits;
}
void eg__tile_sums_close(const eg_tile_sums *u, const eg_fused *f, eg_tensor *const *x,
                         char *const *to)
{
    const bool f64 = f->dtype == EG_F64;
    for (int t = 0; t < f->a->tensors; t++)
        if (u->there >> t & 1 && !u->sink[t].direct && !u->sink[t].few)
            eg__sums_add(f64, to[EG_TERMS + t], eg_size(x[EG_TERMS + t]), u->sets, u->summed,
                         u->sums + u->at[t]);
    if (u->summed_sink)
        eg__sums_add(f64, to[EG_TERM_SINK], eg_size(x[EG_TERM_SINK]), u->sets, u->summed,
                     u->sums + u->sink_at);
}
