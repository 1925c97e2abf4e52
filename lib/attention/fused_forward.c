/* fused_forward.c: y = softmax(score(scale q·k)) v, computed tile by tile.
 *
 * A piece of work is a strip of one batch's queries. For each block of keys, k and v are packed
 * into panels, and for each panel of queries (one lane each) the micro-kernel computes a tile of
 * scores [key][query]. The kernel stores this tile in the layout in which it reads it for the
 * product with v, so nothing is packed between the two products. If a block raises the maximum of a
 * query, the query's sums are multiplied by the decay. A panel has a slot in the workspace, for its
 * queries and sums, from its first block of keys to the last one that the predicate allows. Every
 * row of scores is combined with the same blocks of keys in the same order, whatever the strips and
 * the threads are, so neither of them changes a bit. */
#include "attention/attention.h"
#include "attention/workspace.h"
#include <math.h>
#include <string.h>

/* STRIP, SHORT: the largest and the smallest number of queries in a strip. GRAIN: multiply-adds for
 * which another thread is worthwhile. KEPT_TILES: tiles of a panel of queries whose bounds are
 * kept. */
enum { STRIP = 2048, SHORT = 256, GRAIN = 1 << 23, KEPT_TILES = 16 };

typedef struct forward {
    const eg_fused *f;
    const eg_row_stats *saved; /* NULL if the statistics are not wanted */
    int64_t strip, strips;     /* queries in a strip; number of strips of a batch */
    int64_t block;             /* keys in a block */
    eg_tile_plan plan;         /* of the expressions */
    bool same_bounds;          /* the predicate is the same for all batches */
    int64_t *empty;            /* by thread: number of queries whose pairs are all forbidden */
    char *workspaces;
    size_t each; /* bytes of one thread's workspace */
} forward;
/* The bounds of a tile, by its first query and key; −1: none yet. ends: 1 if the predicate allows
 * no key after the tile's, 0 if it may, −1 if that is not known. */
typedef struct tile_bounds {
    int64_t query, key;
    bool any;
    int8_t ends;
    eg_live live;
} tile_bounds;
/* What `slot` has in place of a slot: the panel has none yet; its result is written. */
enum { NOT_BEGUN = -1, FINISHED = -2 };
/* The workspace of one thread. */
typedef struct workspace {
    char *q, *k, *v;         /* packed panels of queries, by slot; of keys and values */
    char *few;               /* panels of the values of the keys that a sparse tile has */
    char *s, *values;        /* a tile of scores; the workspace of the expressions */
    char *o;                 /* by slot and query: Σ 2^(s − row_max) v */
    bool *begun;             /* by panel of queries: o has been set */
    int64_t *slot;           /* by panel of queries: where its q and o are */
    int64_t *unused, left;   /* the slots that no panel has, and their number */
    char *row_max, *row_sum; /* by query */
    char *decay;             /* by lane */
    uint8_t *bytes, *kept;
    eg_run *runs;
    int64_t *off;
    eg_ahead_list next;  /* the rows of the next panel of queries, and of the next block of keys */
    tile_bounds *bounds; /* by panel of queries: KEPT_TILES, by block of keys */
} workspace;
/* Sets the pointers of r to the parts of one thread's workspace at base. If base is NULL, only the
 * size is computed. Returns the size in bytes. */
static size_t forward_lay_out(const forward *w, char *base, workspace *r)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, e = f->list[EG_PART_VALUE].total,
                  deep = d > w->block ? d : w->block;
    eg_workspace t = { base, 0 };
    r->q = eg__workspace_take(&t, w->strip * d * x);
    r->o = eg__workspace_take(&t, w->strip * eg__round_up(e, f->narrow) * x);
    r->begun = (bool *)eg__workspace_take(&t, w->strip / f->wide);
    const int64_t slots = w->strip / f->wide * (int64_t)sizeof(int64_t);
    r->slot = (int64_t *)(void *)eg__workspace_take(&t, slots);
    r->unused = (int64_t *)(void *)eg__workspace_take(&t, slots);
    r->row_max = eg__workspace_take(&t, w->strip * x);
    r->row_sum = eg__workspace_take(&t, w->strip * x);
    r->k = eg__workspace_take(&t, w->block * d * x);
    r->v = eg__workspace_take(&t, w->block * eg__round_up(e, f->narrow) * x);
    r->few = eg__workspace_take(&t, f->where ? w->block * eg__round_up(e, f->narrow) * x : 0);
    r->s = eg__workspace_take(&t, w->block * f->wide * x);
    r->values = eg__workspace_take(&t, w->plan.bytes);
    r->decay = eg__workspace_take(&t, f->wide * x);
    r->bytes = (uint8_t *)eg__workspace_take(&t, w->block * f->wide);
    r->kept = (uint8_t *)eg__workspace_take(&t, f->a->dropping ? w->block * f->wide : 0);
    r->off =
        (int64_t *)(void *)eg__workspace_take(&t, f->careful ? e * (int64_t)sizeof(int64_t) : 0);
    r->runs = (eg_run *)(void *)eg__workspace_take(&t, (deep + 1) * (int64_t)sizeof(eg_run));
    r->bounds = (tile_bounds *)(void *)eg__workspace_take(
        &t, w->same_bounds ? w->strip / f->wide * KEPT_TILES * (int64_t)sizeof(tile_bounds) : 0);
    return (size_t)t.taken;
}

/* Returns where the bounds of a tile are kept. */
static tile_bounds *kept_bounds(const forward *w, const workspace *r, int64_t p, eg_stretch keys)
{
    return r->bounds + p * KEPT_TILES + keys.from / w->block % KEPT_TILES;
}
/* Sets *live as eg__fused_live does. Bounds that are the same for all batches are computed for one
 * batch; the thread's next pieces are the same strip of other batches. */
static bool panel_live(const forward *w, const workspace *r, const eg_fused_batch *b,
                       eg_stretch queries, int64_t p, eg_stretch keys, eg_cover t, eg_live *live)
{
    if (!w->same_bounds || t == EG_COVER_ALL)
        return eg__fused_live(w->f, b, queries, keys, t, live);
    tile_bounds *k = kept_bounds(w, r, p, keys);
    if (k->query != queries.from || k->key != keys.from) {
        k->any = eg__fused_live(w->f, b, queries, keys, t, &k->live);
        k->query = queries.from, k->key = keys.from, k->ends = -1;
    }
    *live = k->live;
    return k->any;
}
/* True if the predicate allows no key after the block for a panel whose bounds in the block were
 * the last ones that panel_live computed. */
static bool panel_ends(const forward *w, const workspace *r, const eg_fused_batch *b,
                       eg_stretch queries, int64_t p, eg_stretch keys, eg_cover t)
{
    const int64_t from = keys.from + keys.count;
    const eg_stretch rest = { EG_PART_KEY, from, w->f->list[EG_PART_KEY].total - from };
    if (t == EG_COVER_ALL || rest.count == 0) return rest.count == 0;
    if (!w->same_bounds) return eg__fused_where(w->f, b, queries, rest) == EG_COVER_NONE;
    tile_bounds *k = kept_bounds(w, r, p, keys);
    if (k->ends < 0) k->ends = eg__fused_where(w->f, b, queries, rest) == EG_COVER_NONE;
    return k->ends;
}
/* Gives a panel a slot and packs its scaled queries there. The rows of the next panel are
 * prefetched. A few slots are used again and again if each panel attends to few blocks of keys;
 * then they stay in the second-level cache. */
static void panel_begin(const forward *w, workspace *r, const eg_fused_batch *b, eg_stretch queries,
                        int64_t p)
{
    const eg_fused *f = w->f;
    const int64_t d = f->list[EG_PART_DOT].total;
    const eg_stretch dots = { EG_PART_DOT, 0, d };
    const char *base = f->data[EG_SLOT_Q] + b->at[EG_SLOT_Q] * f->width;
    r->slot[p] = r->unused[--r->left];
    char *q = r->q + r->slot[p] * f->wide * d * f->width;
    eg__fused_pack(f, f->wide, queries, dots, EG_SLOT_Q, base, q, r->runs);
    f->ops->scale(f->wide * d, q, f->a->scale * eg__tile_unit(f));
    const int64_t next = queries.from + queries.count,
                  count = eg__min64(f->wide, f->list[EG_PART_QUERY].total - next);
    if (p + 1 < w->strip / f->wide && r->slot[p + 1] == NOT_BEGUN && count > 0)
        eg__ahead_put(&r->next, 0,
                      eg__fused_ahead(f, (eg_stretch){ EG_PART_QUERY, next, count }, EG_PART_DOT,
                                      EG_SLOT_Q, base));
}
/* Adds one tile, a panel of queries and a block of keys, to the sums. t says whether the predicate
 * allows all pairs of the tile, some or none. */
static void forward_panel(const forward *w, workspace *r, const eg_fused_batch *b,
                          eg_stretch queries, int64_t p, eg_stretch keys, eg_cover t)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, e = f->list[EG_PART_VALUE].total,
                  n = f->narrow;
    eg_live live;
    if (!panel_live(w, r, b, queries, p, keys, t, &live)) return;
    if (f->careful && f->where) eg__live_test(&live, true);
    if (live.tests) {
        const eg_cover all =
            eg__tile_allow(&w->plan, f, b, keys, queries, &live, r->values, r->bytes);
        if (all == EG_COVER_NONE && live.tests == live.rows) return;
        if (all == EG_COVER_ALL) eg__live_test(&live, false);
    }
    if (r->slot[p] == NOT_BEGUN) panel_begin(w, r, b, queries, p);
    const int64_t slot = r->slot[p] * f->wide;
    char *row_max = r->row_max + p * f->wide * x, *row_sum = r->row_sum + p * f->wide * x,
         *o = r->o + slot * eg__round_up(e, n) * x;
    for (eg_live_run run = { 0 }; eg__live_next(f, &live, &run);) {
        const eg_stretch rows = { EG_PART_KEY, keys.from + run.from, run.to - run.from };
        char *s = r->s + run.at * f->wide * x;
        eg__fused_product(f, d, r->q + slot * d * x, r->k + run.from * d * x, n * d * x, rows.count,
                          false, s, &r->next);
        if (f->score) eg__tile_scores(&w->plan, f, b, rows, queries, r->values, s, s);
        if (f->a->dropping) eg__fused_dropout(f, b, rows, queries, r->kept + run.at * f->wide);
    }
    char *tested = r->s + (live.test - live.from) * f->wide * x;
    const int64_t tests = live.tests * f->wide;
    if (f->a->no_softmax) {
        if (tests > 0) f->ops->apply_dropout(tests, tested, r->bytes, 1);
    } else {
        if (tests > 0) f->ops->mask_out(tests, tested, r->bytes);
        if (f->ops->online_softmax(f->wide, live.rows, r->s, row_max, row_sum, r->decay) &&
            r->begun[p])
            f->ops->scale_lanes(f->wide, e, o, r->decay);
    }
    if (f->a->dropping)
        f->ops->apply_dropout(live.rows * f->wide, r->s, r->kept, f->a->drop.factor);
    if (!e) return;
    if (live.sparse) eg__live_gather(f, &live, keys.count, e, r->v, r->few);
    eg__fused_product(f, live.rows, r->s, live.sparse ? r->few : r->v + live.from * n * x,
                      n * (live.sparse ? live.rows : keys.count) * x, e, r->begun[p], o, &r->next);
    r->begun[p] = true;
    if (f->careful)
        eg__fused_repair(f, b, (eg_stretch){ EG_PART_KEY, keys.from + live.from, live.rows },
                         EG_PART_VALUE, EG_SLOT_V, 1, false, r->s, live.tests ? r->bytes : NULL, o,
                         r->off);
}

/* Sets the result of a query, lane o of its panel, if all weights of its row are NaN: NaN if
 * dropout keeps one of them, else Σ 0 v over its allowed keys. */
static void forward_row_of_nan(const forward *w, const workspace *r, const eg_fused_batch *b,
                               int64_t query, char *o)
{
    const eg_fused *f = w->f;
    const int64_t keys = f->list[EG_PART_KEY].total, e = f->list[EG_PART_VALUE].total;
    const eg_stretch lane = { EG_PART_QUERY, query, 1 };
    bool sees = false;
    for (int64_t c = 0; c < e; c++) eg__set_real(f, o, c * f->wide, 0);
    for (int64_t j = 0; j < keys && !sees; j += w->block) {
        const eg_stretch block = { EG_PART_KEY, j, eg__min64(w->block, keys - j) };
        eg_live live;
        if (!eg__fused_live(f, b, lane, block, eg__fused_where(f, b, lane, block), &live)) continue;
        live.sparse = false, live.rows = live.to - live.from;
        eg__live_test(&live, true);
        eg__tile_allow(&w->plan, f, b, block, lane, &live, r->values, r->bytes);
        const eg_stretch rows = { EG_PART_KEY, j + live.from, live.to - live.from };
        if (f->a->dropping) eg__fused_dropout(f, b, rows, lane, r->kept);
        for (int64_t k = 0; k < rows.count; k++) {
            if (!r->bytes[k * f->wide]) continue;
            sees = sees || !f->a->dropping || r->kept[k * f->wide];
            const int64_t v =
                b->at[EG_SLOT_V] + eg__fused_at(f, EG_PART_KEY, EG_SLOT_V, rows.from + k);
            for (int64_t c = 0; c < e; c++)
                if (!isfinite(eg__real_at(f, f->data[EG_SLOT_V],
                                          v + eg__fused_at(f, EG_PART_VALUE, EG_SLOT_V, c))))
                    eg__set_real(f, o, c * f->wide, NAN);
        }
    }
    for (int64_t c = 0; c < e && sees; c++) eg__set_real(f, o, c * f->wide, NAN);
}
/* Divides the sums of a panel, writes the results, and saves the statistics. The panel's slot
 * becomes free. Returns the number of its queries whose pairs are all forbidden. */
static int64_t forward_finish(const forward *w, workspace *r, const eg_fused_batch *b,
                              eg_stretch queries, int64_t p)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, e = f->list[EG_PART_VALUE].total;
    const int64_t at = (b->number * f->list[EG_PART_QUERY].total + queries.from) * x;
    const int64_t rows = p * f->wide * x;
    const size_t bytes = (size_t)(queries.count * x);
    char *inv_sum = r->decay;
    memset(inv_sum, 0, (size_t)(f->wide * x));
    const int64_t empty = f->ops->invert_sums(queries.count, r->row_sum + rows, inv_sum);
    if (w->saved) {
        memcpy((char *)w->saved->row_max + at, r->row_max + rows, bytes);
        memcpy((char *)w->saved->inv_sum + at, inv_sum, bytes);
    }
    if (f->data[EG_SLOT_Y]) {
        const int64_t slot = r->slot[p] >= 0 ? r->slot[p] : r->unused[r->left - 1];
        char *o = r->o + slot * f->wide * eg__round_up(e, f->narrow) * x;
        if (!r->begun[p]) memset(o, 0, (size_t)(f->wide * e * x));
        if (!f->a->no_softmax) f->ops->scale_lanes(f->wide, e, o, inv_sum);
        for (int64_t i = 0; (f->data[EG_SLOT_SINK] || f->a->dropping) && i < queries.count; i++)
            if (isnan(eg__real_at(f, inv_sum, i)))
                forward_row_of_nan(w, r, b, queries.from + i, o + i * x);
        eg__fused_unpack(f, queries, (eg_stretch){ EG_PART_VALUE, 0, e }, EG_SLOT_Y, o,
                         f->data[EG_SLOT_Y] + b->at[EG_SLOT_Y] * x);
    }
    if (r->slot[p] >= 0) r->unused[r->left++] = r->slot[p];
    r->slot[p] = FINISHED;
    return empty;
}

/* Sets the maximum and the sum of each query before the first key: −inf and 0; with a sink z, z and
 * 1; NaN and NaN if z is NaN. The maximum is z log2 e, as the scores are. */
static void forward_begin(const eg_fused *f, const eg_fused_batch *b, eg_stretch strip,
                          int64_t lanes, char *row_max, char *row_sum)
{
    const char *sink = f->data[EG_SLOT_SINK];
    for (int64_t i = 0; i < lanes; i++) {
        double z = -INFINITY;
        if (sink && i < strip.count) {
            const int64_t at =
                b->at[EG_SLOT_SINK] + eg__fused_at(f, EG_PART_QUERY, EG_SLOT_SINK, strip.from + i);
            z = eg__sink_exponent(f, at);
        }
        const double sum = isnan(z) ? z : z > -INFINITY;
        eg__set_real(f, row_max, i, z);
        eg__set_real(f, row_sum, i, sum);
    }
}
/* Sets the block of keys that is prefetched to the one that begins at j; to none if the strip does
 * not attend to it. */
static void forward_next(const forward *w, workspace *r, const eg_fused_batch *b, eg_stretch strip,
                         int64_t j)
{
    static const int at[] = { EG_SLOT_K, EG_SLOT_V };
    const eg_fused *f = w->f;
    const eg_stretch keys = { EG_PART_KEY, j, eg__min64(w->block, f->list[EG_PART_KEY].total - j) };
    const bool any = keys.count > 0 && eg__fused_where(f, b, strip, keys) != EG_COVER_NONE;
    for (int k = 0; k < 2; k++) {
        eg_ahead rows = { .rows = 0 };
        if (any && f->data[at[k]])
            rows = eg__fused_ahead(f, keys, k ? EG_PART_VALUE : EG_PART_DOT, at[k],
                                   f->data[at[k]] + b->at[at[k]] * f->width);
        eg__ahead_put(&r->next, 1 + k, rows);
    }
}
/* Returns the queries of panel p of a strip. */
static eg_stretch panel_of(const eg_fused *f, eg_stretch strip, int64_t p)
{
    return (eg_stretch){ strip.part, strip.from + p * f->wide,
                         eg__min64(f->wide, strip.count - p * f->wide) };
}
/* Computes one strip of queries of one batch: applies the online softmax to one block of keys after
 * another, skipping blocks that the predicate forbids, and finishes each panel of queries after the
 * last block that it attends to. */
static void forward_piece(void *user, int64_t piece, int thread)
{
    const forward *w = user;
    const eg_fused *f = w->f;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, e = f->list[EG_PART_VALUE].total,
                  keys = f->list[EG_PART_KEY].total;
    const eg_stretch dots = { EG_PART_DOT, 0, d }, values = { EG_PART_VALUE, 0, e };
    workspace r;
    forward_lay_out(w, w->workspaces + w->each * (size_t)thread, &r);
    eg_fused_batch b;
    /* batches are the inner loop: the rows of a strip in the next head are neighbours in memory */
    eg__fused_batch(f, piece % f->list[EG_PART_BATCH].total, &b);
    const int64_t from = piece / f->list[EG_PART_BATCH].total * w->strip;
    const eg_stretch strip = { EG_PART_QUERY, from,
                               eg__min64(w->strip, f->list[EG_PART_QUERY].total - from) };
    const int64_t lanes = eg__round_up(strip.count, f->wide);
    memset(r.begun, 0, (size_t)(lanes / f->wide) * sizeof *r.begun);
    r.next = (eg_ahead_list){ .lines = 0 };
    r.left = w->strip / f->wide;
    for (int64_t p = 0; p < r.left; p++) r.slot[p] = NOT_BEGUN, r.unused[p] = r.left - 1 - p;
    forward_begin(f, &b, strip, lanes, r.row_max, r.row_sum);
    for (int64_t j = 0; j < keys; j += w->block) {
        const eg_stretch block = { EG_PART_KEY, j, eg__min64(w->block, keys - j) };
        const eg_cover t = eg__fused_where(f, &b, strip, block);
        if (t == EG_COVER_NONE) continue;
        eg__fused_pack(f, f->narrow, block, dots, EG_SLOT_K,
                       f->data[EG_SLOT_K] + b.at[EG_SLOT_K] * x, r.k, r.runs);
        if (e)
            eg__fused_pack(f, f->narrow, values, block, EG_SLOT_V,
                           f->data[EG_SLOT_V] + b.at[EG_SLOT_V] * x, r.v, r.runs);
        if (e && f->careful)
            f->ops->zero_nonfinite(
                eg__whole_vectors(f, eg__round_up(e, f->narrow) * block.count, r.v), r.v);
        forward_next(w, &r, &b, strip, j + w->block);
        for (int64_t p = 0; p * f->wide < strip.count; p++) {
            const eg_stretch queries = panel_of(f, strip, p);
            if (r.slot[p] == FINISHED) continue;
            forward_panel(w, &r, &b, queries, p, block, t);
            if (r.slot[p] != NOT_BEGUN && panel_ends(w, &r, &b, queries, p, block, t))
                w->empty[thread] += forward_finish(w, &r, &b, queries, p);
        }
    }
    for (int64_t p = 0; p * f->wide < strip.count; p++)
        if (r.slot[p] != FINISHED)
            w->empty[thread] += forward_finish(w, &r, &b, panel_of(f, strip, p), p);
}

bool eg__fused_forward(eg_ctx *cx, const eg_fused *f, const eg_row_stats *saved, int64_t *empty)
{
    const int64_t queries = f->list[EG_PART_QUERY].total, keys = f->list[EG_PART_KEY].total,
                  batches = f->list[EG_PART_BATCH].total;
    int64_t none[EG_FUSED_TEAM] = { 0 };
    forward w = { .f = f, .saved = saved, .empty = none };
    const int64_t work =
        batches * queries * keys * (f->list[EG_PART_DOT].total + f->list[EG_PART_VALUE].total);
    const int team = (int)eg__min64(eg__team(cx, work, GRAIN), EG_FUSED_TEAM);
    /* a long strip packs keys less often, but each thread must get several strips */
    w.strip = eg__min64(eg__round_up(STRIP, f->wide), eg__round_up(queries, f->wide));
    while (team > 1 && w.strip > SHORT && batches * ((queries + w.strip - 1) / w.strip) < 4 * team)
        w.strip = eg__round_up(w.strip / 2, f->wide);
    w.strips = (queries + w.strip - 1) / w.strip;
    w.block = eg__min64(EG_FUSED_KEYS / f->narrow * f->narrow, eg__round_up(keys, f->narrow));
    eg__tile_plan(&w.plan, f, EG_PART_KEY, w.block, EG_PART_QUERY, 0);
    w.same_bounds = f->where && batches > 1 &&
                    !(f->where->node[f->where->root].letters & eg__fused_letters(f, EG_PART_BATCH));
    workspace r;
    w.each = forward_lay_out(&w, NULL, &r);
    if (!(w.workspaces = eg__scratch(cx, EG_SCRATCH_TILES, w.each * (size_t)team))) return false;
    for (int t = 0; t < team && w.same_bounds; t++) {
        forward_lay_out(&w, w.workspaces + w.each * (size_t)t, &r);
        for (int64_t k = 0; k < w.strip / f->wide * KEPT_TILES; k++) r.bounds[k].query = -1;
    }
    const uint64_t begun = eg__fpmode_begin(true);
    eg__parallel(cx, team, batches * w.strips, forward_piece, &w);
    eg__fpmode_end(begun);
    *empty = 0;
    for (int t = 0; t < team; t++) *empty += none[t];
    return true;
}
