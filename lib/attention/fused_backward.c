/* fused_backward.c: the gradients of q, k, v, of the tensors that the score reads and of the sink,
 * from the result y, its cotangent g, that of the log-sum-exp g_lse, and each row's statistics (Dao
 * et al. 2022, §B). m is dropout's mask times its factor. Without g or without g_lse its terms are
 * 0.
 *
 *   P  = 2^(s − row_max) inv_sum
 *   dP = m (g vᵀ)
 *   dS = P (dP − D + g_lse), D = Σ_e g y = Σ_j P dP
 *   dV = (m P)ᵀ g
 *   dA = score′(A) dS, A = scale q·k; from dS also the cotangents of tensors
 *   dK = dAᵀ (scale q)
 *   dQ = scale dA K
 *   dz = Σ e^(z − row_max) inv_sum (g_lse − D), of the sink z
 *
 * A lane is a key. Tiles [query][key] can then be multiplied for dV and dK without being
 * transposed; only dS is transposed, for dQ. A piece of work is one batch or, if there are few
 * batches, one of several splits of a batch's keys. The number of splits depends on sizes only, and
 * their parts of dQ are added in order, so the number of threads changes no bit. */
#include "attention/workspace.h"
#include <math.h>
#include <string.h>

/* PANELS: panels of keys in a strip. GROUP: panels in one product for dQ. BLOCK: queries in a
 * block. PIECES: the number of pieces of work that is aimed at. GRAIN: multiply-adds for which
 * another thread is worthwhile. */
enum { PANELS = 32, GROUP = 4, BLOCK = 256, PIECES = 8, GRAIN = 1 << 23 };

typedef struct back {
    const eg_fused *f;
    const eg_row_stats *saved;
    int64_t block, blocks; /* queries in a block; number of blocks */
    int64_t strip;         /* keys in a strip */
    int64_t splits, split; /* pieces of a batch; keys in each */
    int64_t transposed;    /* queries of a block, rounded up to a multiple of the panels of lanes */
    eg_tile_plan plan;     /* of the expressions */
    eg_tile_sums sums;     /* of the cotangents of tensors and the sink */
    char *workspaces, *parts; /* workspaces: of all threads; dQ of each piece, if splits > 1 */
    uint8_t *begun;           /* by piece and block: 1 once dQ of the block has been initialised */
    size_t each, part;        /* bytes of one workspace; bytes of dQ of one piece */
} back;
/* The workspace of one thread. */
typedef struct workspace {
    /* of a strip of keys: panels of keys over d (kd) and of values over e (ve), panels of d over
     * keys (kk), and the sums dK and dV */
    char *kd, *ve, *kk, *dk, *dv;
    bool *summed; /* by panel of the strip: dk and dv have been set */
    /* of a block of queries: panels of queries over d (qd) and of g over e (ge), and of d and e
     * over queries (qq, gg) */
    char *qd, *ge, *qq, *gg;
    char *few; /* panels of q or g over the queries that a sparse tile has */
    char *p, *ds, *transposed, *raw, *values, *dq; /* raw: scale q·k, if it is kept */
    char *mean, *lse;                              /* by query: D, g_lse */
    double *sum;                                   /* by query of a block */
    uint8_t *bytes, *kept;
    eg_run *runs;
    int64_t *off;
    eg_sink sink[EG_TENSORS_MAX];
    int64_t dz; /* offset of the sink's sums; −1 if there are none */
} workspace;
/* Sets the pointers of r to the parts of one thread's workspace at base. If base is NULL, only the
 * size is computed. Returns the size in bytes. */
static size_t backward_lay_out(const back *w, char *base, workspace *r)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, e = f->list[EG_PART_VALUE].total,
                  n = f->narrow;
    const int64_t dn = eg__round_up(d, n), en = eg__round_up(e, n), tile = w->block * f->wide * x;
    int64_t deep = d > e ? d : e;
    if (deep < w->block) deep = w->block;
    if (deep < w->strip) deep = w->strip;
    eg_workspace t = { base, 0 };
    r->kd = eg__workspace_take(&t, w->strip * d * x);
    r->ve = eg__workspace_take(&t, w->strip * e * x);
    r->kk = eg__workspace_take(&t, w->strip * dn * x);
    r->dk = eg__workspace_take(&t, w->strip * dn * x);
    r->dv = eg__workspace_take(&t, w->strip * en * x);
    r->summed = (bool *)eg__workspace_take(&t, w->strip / f->wide * (int64_t)sizeof(bool));
    r->qd = eg__workspace_take(&t, w->block * d * x);
    r->ge = eg__workspace_take(&t, w->block * e * x);
    r->qq = eg__workspace_take(&t, w->block * dn * x);
    r->gg = eg__workspace_take(&t, w->block * en * x);
    r->few = eg__workspace_take(&t, f->where ? w->block * (dn > en ? dn : en) * x : 0);
    r->p = eg__workspace_take(&t, tile);
    r->ds = eg__workspace_take(&t, tile);
    r->transposed = eg__workspace_take(&t, w->transposed * GROUP * f->wide * x);
    r->raw = eg__workspace_take(&t, w->plan.score.keeps ? tile : 0);
    r->values = eg__workspace_take(&t, w->plan.bytes);
    r->mean = eg__workspace_take(&t, f->list[EG_PART_QUERY].total * x);
    r->lse = eg__workspace_take(&t, f->data[EG_SLOT_G_LSE] ? f->list[EG_PART_QUERY].total * x : 0);
    r->sum = (double *)(void *)eg__workspace_take(&t, w->block * (int64_t)sizeof(double));
    r->bytes = (uint8_t *)eg__workspace_take(&t, w->block * f->wide);
    r->kept = (uint8_t *)eg__workspace_take(&t, f->a->dropping ? w->block * f->wide : 0);
    r->off = (int64_t *)(void *)eg__workspace_take(
        &t, f->careful ? (d > e ? d : e) * (int64_t)sizeof(int64_t) : 0);
    r->runs = (eg_run *)(void *)eg__workspace_take(&t, (deep + 1) * (int64_t)sizeof(eg_run));
    r->dq = eg__workspace_take(&t, w->splits == 1 ? (int64_t)w->part : 0);
    return (size_t)t.taken;
}

#define T       double
#define NAME(x) x##_f64
#include "attention/fused_backward_of.h"
#undef T
#undef NAME
#define T       float
#define NAME(x) x##_f32
#include "attention/fused_backward_of.h"

/* Adds what the products of a tile leave out: elements of q, k and g that are not finite, in
 * allowed pairs. */
static void backward_repair(const back *w, const workspace *r, const eg_fused_batch *b,
                            const eg_live *live, eg_stretch rows, eg_stretch keys, int64_t p,
                            const uint8_t *allow, char *dq)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, n = f->narrow, e = f->list[EG_PART_VALUE].total,
                  d = f->list[EG_PART_DOT].total, row = f->wide * x;
    const char *s = r->p + live->from * row, *ds = r->ds + live->from * row;
    if (e)
        eg__fused_repair(f, b, rows, EG_PART_VALUE, EG_SLOT_G, 1, true, s, allow,
                         r->dv + p * row * eg__round_up(e, n), r->off);
    eg__fused_repair(f, b, rows, EG_PART_DOT, EG_SLOT_Q, f->a->scale, f->a->rescored, ds, allow,
                     r->dk + p * row * eg__round_up(d, n), r->off);
    eg__fused_repair_turned(f, b, keys, EG_PART_DOT, EG_SLOT_K, live, ds, allow, dq, r->off);
}

/* Determines the rows of a tile in which a pair may be allowed, and evaluates the predicate where
 * its bounds do not decide. False if all pairs of the tile are forbidden. */
static bool backward_live(const back *w, const workspace *r, const eg_fused_batch *b,
                          eg_stretch queries, eg_stretch keys, eg_cover t, eg_live *live)
{
    const eg_fused *f = w->f;
    if (!eg__fused_live(f, b, keys, queries, t, live)) return false;
    /* lanes beyond the last key are forbidden */
    if ((f->careful && f->where) || keys.count < f->wide) eg__live_test(live, true);
    if (!live->tests) return true;
    const eg_cover all = eg__tile_allow(&w->plan, f, b, queries, keys, live, r->values, r->bytes);
    const bool some = all != EG_COVER_NONE || live->tests < live->rows;
    if (all == EG_COVER_ALL && keys.count == f->wide) eg__live_test(live, false);
    return some;
}
/* True if one of the rows is NaN. The weight of a forbidden pair is 0 in such a row too, and must
 * not be computed as 0 · NaN. */
static bool backward_nan(const back *w, const eg_fused_batch *b, eg_stretch rows)
{
    const eg_fused *f = w->f;
    const int64_t first = b->number * f->list[EG_PART_QUERY].total + rows.from;
    for (int64_t i = 0; !f->a->no_softmax && i < rows.count; i++)
        if (isnan(eg__real_at(f, w->saved->inv_sum, first + i))) return true;
    return false;
}
/* Computes the weights P of a run of rows in place of their scores s. If strict, the weights of
 * forbidden pairs are set to 0 also in rows of NaN. */
static void backward_weights(const back *w, const eg_fused_batch *b, eg_stretch rows,
                             const eg_tested *tested, bool strict, char *s)
{
    const eg_fused *f = w->f;
    const int64_t stat = (b->number * f->list[EG_PART_QUERY].total + rows.from) * f->width,
                  tests = tested->rows * f->wide;
    char *at = s + tested->from * f->wide * f->width;
    if (f->a->no_softmax) {
        if (tests > 0) f->ops->apply_dropout(tests, at, tested->allow, 1);
        return;
    }
    if (tests > 0) f->ops->mask_out(tests, at, tested->allow);
    f->ops->exp_scaled(f->wide, rows.count, s, (char *)w->saved->row_max + stat,
                       (char *)w->saved->inv_sum + stat);
    if (strict && tests > 0) f->ops->apply_dropout(tests, at, tested->allow, 1);
}
/* Computes dS of a run of rows in place of dP (in ds) from the weights s; then, if there is an
 * expression, the cotangent of scale q·k in its place. raw: scale q·k, if it is kept. */
static void backward_slopes(const back *w, const workspace *r, const eg_fused_batch *b,
                            eg_stretch rows, eg_stretch keys, const eg_tested *tested, bool strict,
                            const char *raw, const char *s, char *ds)
{
    const eg_fused *f = w->f;
    const char *lse = f->data[EG_SLOT_G_LSE] ? r->lse + rows.from * f->width : NULL;
    if (!f->a->no_softmax)
        f->ops->softmax_slope(f->wide, rows.count, s, ds, r->mean + rows.from * f->width, lse);
    if (tested->rows > 0 && (strict || f->score || f->a->no_softmax || lse))
        f->ops->apply_dropout(tested->rows * f->wide, ds + tested->from * f->wide * f->width,
                              tested->allow, 1);
    if (f->score) eg__tile_slopes(&w->plan, f, b, rows, keys, r->values, raw, tested, r->sink, ds);
}
/* A run of rows of a tile: its queries, the pairs that are tested, whether they are strict, and
 * where its weights, dP (then dS) and scale q·k lie. */
typedef struct run_data {
    eg_stretch rows;
    eg_tested tested;
    bool strict;
    char *s, *ds, *raw;
} run_data;
/* Computes the weights P and their cotangents dP of a run of rows of one tile, a block of queries
 * and a panel of keys. */
static run_data backward_weighed(const back *w, const workspace *r, const eg_fused_batch *b,
                                 eg_stretch queries, eg_stretch keys, int64_t p,
                                 const eg_live *live, const eg_live_run *run)
{
    const eg_fused *f = w->f;
    const int wide = f->wide;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, e = f->list[EG_PART_VALUE].total,
                  n = f->narrow, row = wide * x, at = live->from + run->at;
    run_data t = { .rows = { EG_PART_QUERY, queries.from + run->from, run->to - run->from },
                   .tested = eg__live_tested(f, live, run, r->bytes),
                   .s = r->p + at * row,
                   .ds = r->ds + at * row };
    t.raw = w->plan.score.keeps ? r->raw + at * row : t.s;
    eg__fused_product(f, d, r->kd + p * wide * d * x, r->qd + run->from * d * x, n * d * x,
                      t.rows.count, false, t.raw, NULL);
    if (f->score) eg__tile_scores(&w->plan, f, b, t.rows, keys, r->values, t.raw, t.s);
    t.strict = t.tested.rows > 0 && (f->careful || backward_nan(w, b, t.rows));
    backward_weights(w, b, t.rows, &t.tested, t.strict, t.s);
    if (e)
        eg__fused_product(f, e, r->ve + p * wide * e * x, r->ge + run->from * e * x, n * e * x,
                          t.rows.count, false, t.ds, NULL);
    else
        memset(t.ds, 0, (size_t)(t.rows.count * row));
    if (!f->a->dropping) return t;
    uint8_t *kept = r->kept + run->at * wide;
    eg__fused_dropout(f, b, t.rows, keys, kept);
    f->ops->apply_dropout(t.rows.count * wide, t.ds, kept, f->a->drop.factor);
    return t;
}
/* Adds the product of a tile with the panels of q or g over its queries to panel p of `sums`, or
 * sets the panel to it, if it has not been set. */
static void backward_add(const back *w, const workspace *r, const eg_live *live, int64_t queries,
                         const char *tile, const char *panels, int64_t columns, char *sums,
                         int64_t p)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, n = f->narrow;
    if (live->sparse) eg__live_gather(f, live, queries, columns, panels, r->few);
    eg__fused_product(f, live->rows, tile + live->from * f->wide * x,
                      live->sparse ? r->few : panels + live->from * n * x,
                      n * (live->sparse ? live->rows : queries) * x, columns, r->summed[p],
                      sums + p * f->wide * x * eg__round_up(columns, n), NULL);
}
/* Computes P and dS of one tile, and adds its part to dK and dV. False if all pairs of the tile are
 * forbidden; dS is then not set. */
static bool backward_tile(const back *w, const workspace *r, const eg_fused_batch *b,
                          eg_stretch queries, eg_stretch keys, int64_t p, eg_cover t, char *dq,
                          eg_live *live)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, e = f->list[EG_PART_VALUE].total,
                  row = f->wide * x;
    if (!backward_live(w, r, b, queries, keys, t, live)) return false;
    for (eg_live_run run = { 0 }; eg__live_next(f, live, &run);) {
        const run_data one = backward_weighed(w, r, b, queries, keys, p, live, &run);
        backward_slopes(w, r, b, one.rows, keys, &one.tested, one.strict, one.raw, one.s, one.ds);
    }
    if (f->a->dropping)
        f->ops->apply_dropout(live->rows * f->wide, r->p + live->from * row, r->kept,
                              f->a->drop.factor);
    if (e) backward_add(w, r, live, queries.count, r->p, r->gg, e, r->dv, p);
    backward_add(w, r, live, queries.count, r->ds, r->qq, d, r->dk, p);
    r->summed[p] = true;
    if (f->careful)
        backward_repair(w, r, b, live,
                        (eg_stretch){ EG_PART_QUERY, queries.from + live->from, live->rows }, keys,
                        p, live->tests ? r->bytes : NULL, dq);
    /* zeros in the other rows of the first and the last panel of queries */
    const int64_t first = live->from / f->wide * f->wide,
                  end = eg__min64(eg__round_up(live->to, f->wide), queries.count);
    memset(r->ds + first * row, 0, (size_t)((live->from - first) * row));
    memset(r->ds + live->to * row, 0, (size_t)((end - live->to) * row));
    if (live->sparse) eg__live_spread(f, live, r->ds);
    return true;
}

/* Transposes dS of a panel of keys, [query][key], into the panels of queries from … to − 1 over the
 * keys of the group, transposed[panel][key][query]. */
static void backward_transpose(const back *w, const workspace *r, int64_t queries, int64_t from,
                               int64_t to, int64_t g, int64_t keys)
{
    const eg_fused *f = w->f;
    const int wide = f->wide;
    int64_t off[EG_KERNEL_SIDE];
    for (int i = 0; i < wide; i++) off[i] = i * wide;
    const eg_run run = { 0, wide, 1 };
    for (int64_t i = from * wide; i < to * wide; i += wide)
        eg__pack((size_t)f->width, wide, eg__min64(wide, queries - i), off, wide, 1, &run,
                 r->ds + i * wide * f->width,
                 r->transposed + (i * keys + g * wide * wide) * f->width, wide);
}
/* Adds the product of dS and the keys of a group to dQ of one panel of queries. Bit g of `used` is
 * 1 if its dS of panel g of keys has been transposed, and 0 if that dS is 0: the product is over
 * the keys from the first to the last panel whose bit is 1. */
static void backward_queries(const back *w, const workspace *r, int64_t panel, int64_t keys,
                             unsigned used, const char *kk, char *dq)
{
    const eg_fused *f = w->f;
    const int64_t wide = f->wide, x = f->width, d = f->list[EG_PART_DOT].total;
    char *ds = r->transposed + panel * wide * keys * x;
    int from = 0, to = GROUP;
    if (!used) return;
    while (!(used >> from & 1)) from++;
    while (!(used >> (to - 1) & 1)) to--;
    for (int g = from; g < to; g++)
        if (!(used >> g & 1)) memset(ds + g * wide * wide * x, 0, (size_t)(wide * wide * x));
    eg__fused_product(f, (to - from) * wide, ds + from * wide * wide * x,
                      kk + from * wide * f->narrow * x, f->narrow * keys * x, d, true, dq, NULL);
}

/* Packs a block of queries of q and g into panels. */
static void pack_queries(const back *w, const workspace *r, const eg_fused_batch *b,
                         eg_stretch queries)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, e = f->list[EG_PART_VALUE].total,
                  dn = eg__round_up(d, f->narrow);
    const eg_stretch dots = { EG_PART_DOT, 0, d }, values = { EG_PART_VALUE, 0, e };
    const char *q = f->data[EG_SLOT_Q] + b->at[EG_SLOT_Q] * x,
               *g = e ? f->data[EG_SLOT_G] + b->at[EG_SLOT_G] * x : NULL;
    eg__fused_pack(f, f->narrow, queries, dots, EG_SLOT_Q, q, r->qd, r->runs);
    eg__fused_pack(f, f->narrow, dots, queries, EG_SLOT_Q, q, r->qq, r->runs);
    const int64_t over_d = eg__round_up(queries.count, f->narrow) * d,
                  en = eg__round_up(e, f->narrow),
                  whole = eg__whole_vectors(f, queries.count * dn, r->qq);
    f->ops->scale(eg__whole_vectors(f, over_d, r->qd), r->qd, f->a->scale * eg__tile_unit(f));
    f->ops->scale(whole, r->qq, f->a->scale);
    if (e) {
        eg__fused_pack(f, f->narrow, queries, values, EG_SLOT_G, g, r->ge, r->runs);
        eg__fused_pack(f, f->narrow, values, queries, EG_SLOT_G, g, r->gg, r->runs);
    }
    if (!f->careful) return;
    f->ops->zero_nonfinite(whole, r->qq);
    if (e) f->ops->zero_nonfinite(eg__whole_vectors(f, queries.count * en, r->gg), r->gg);
}
/* Packs a strip of keys and values into panels whose lanes are keys. */
static void pack_keys(const back *w, const workspace *r, const eg_fused_batch *b, eg_stretch strip)
{
    const eg_fused *f = w->f;
    const int64_t x = f->width, e = f->list[EG_PART_VALUE].total;
    eg__fused_pack(f, f->wide, strip, (eg_stretch){ EG_PART_DOT, 0, f->list[EG_PART_DOT].total },
                   EG_SLOT_K, f->data[EG_SLOT_K] + b->at[EG_SLOT_K] * x, r->kd, r->runs);
    if (e)
        eg__fused_pack(f, f->wide, strip, (eg_stretch){ EG_PART_VALUE, 0, e }, EG_SLOT_V,
                       f->data[EG_SLOT_V] + b->at[EG_SLOT_V] * x, r->ve, r->runs);
}
/* Packs a strip of keys into panels over keys, in groups of whole panels, with 0 in place of keys
 * after the last one. */
static void pack_groups(const back *w, const workspace *r, const eg_fused_batch *b,
                        eg_stretch strip)
{
    const eg_fused *f = w->f;
    const int wide = f->wide;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, dn = eg__round_up(d, f->narrow);
    const char *k = f->data[EG_SLOT_K] + b->at[EG_SLOT_K] * x;
    for (int64_t p = 0; p < strip.count; p += GROUP * wide) {
        const int64_t n = eg__min64(GROUP * wide, strip.count - p), whole = eg__round_up(n, wide);
        if (n < whole) memset(r->kk + p * dn * x, 0, (size_t)(whole * dn * x));
        for (int64_t c = 0; c < d; c += f->narrow)
            eg__fused_pack(f, f->narrow,
                           (eg_stretch){ EG_PART_DOT, c, eg__min64(f->narrow, d - c) },
                           (eg_stretch){ EG_PART_KEY, strip.from + p, n }, EG_SLOT_K, k,
                           r->kk + (p * dn + c * whole) * x, r->runs);
    }
    if (f->careful) f->ops->zero_nonfinite(eg__round_up(strip.count, wide) * dn, r->kk);
}

/* -- D -------------------------------------------------------------------------------------- */
/* Adds Σ P dP over the allowed pairs of a run of rows to sum[], by row of the run. */
static void add_run_means(const eg_fused *f, const run_data *one, int64_t keys, double *sum)
{
    const int64_t wide = f->wide;
    for (int64_t i = 0; i < one->rows.count; i++)
        for (int64_t l = 0; l < keys; l++) {
            const int64_t k = i - one->tested.from, at = i * wide + l;
            if (k >= 0 && k < one->tested.rows && !one->tested.allow[k * wide + l]) continue;
            sum[i] += eg__real_at(f, one->s, at) * eg__real_at(f, one->ds, at);
        }
}
/* Adds Σ P dP over a strip of keys to sum[], by query of the block. */
static void add_means(const back *w, const workspace *r, const eg_fused_batch *b,
                      eg_stretch queries, eg_stretch strip, double *sum)
{
    const eg_fused *f = w->f;
    const int64_t wide = f->wide;
    const eg_cover t = eg__fused_where(f, b, queries, strip);
    if (t == EG_COVER_NONE) return;
    pack_keys(w, r, b, strip);
    for (int64_t j = 0; j < strip.count; j += wide) {
        const eg_stretch keys = { EG_PART_KEY, strip.from + j, eg__min64(wide, strip.count - j) };
        eg_live live;
        if (!backward_live(w, r, b, queries, keys, t, &live)) continue;
        for (eg_live_run run = { 0 }; eg__live_next(f, &live, &run);) {
            const run_data one = backward_weighed(w, r, b, queries, keys, j / wide, &live, &run);
            add_run_means(f, &one, keys.count, sum + run.from);
        }
    }
}
/* Computes D of a block of queries: g·y, but Σ P dP in rows where g·y is not finite, so that
 * infinities and NaNs are those of the unfused form. True if the buffers of packed keys were
 * overwritten for this. */
static bool backward_means(const back *w, const workspace *r, const eg_fused_batch *b,
                           eg_stretch queries)
{
    const eg_fused *f = w->f;
    const int64_t keys = f->list[EG_PART_KEY].total, end = queries.from + queries.count;
    bool finite = true;
    if (f->a->no_softmax) return false;
    if (!f->data[EG_SLOT_Y]) {
        memset(r->mean + queries.from * f->width, 0, (size_t)(queries.count * f->width));
        return false;
    }
    (f->width == 8 ? means_f64 : means_f32)(f, b, queries.from, end, r->mean);
    for (int64_t i = queries.from; i < end; i++)
        finite = finite && isfinite(eg__real_at(f, r->mean, i));
    if (finite) return false;
    memset(r->sum, 0, (size_t)w->block * sizeof(double));
    pack_queries(w, r, b, queries);
    for (int64_t j = 0; j < keys; j += w->strip)
        add_means(w, r, b, queries, (eg_stretch){ EG_PART_KEY, j, eg__min64(w->strip, keys - j) },
                  r->sum);
    for (int64_t i = queries.from; i < end; i++)
        if (!isfinite(eg__real_at(f, r->mean, i)))
            eg__set_real(f, r->mean, i, r->sum[i - queries.from]);
    return true;
}

/* Adds the part of a block of queries to dK and dV of a strip of keys, and the part of the strip to
 * dQ of the block. If *begun is 0, dQ is set to 0 first, and *begun to 1. */
static void block(const back *w, const workspace *r, const eg_fused_batch *b, eg_stretch queries,
                  eg_stretch strip, char *dq, uint8_t *begun)
{
    const eg_fused *f = w->f;
    const int wide = f->wide;
    const int64_t x = f->width, d = f->list[EG_PART_DOT].total, dn = eg__round_up(d, f->narrow);
    const eg_cover t = eg__fused_where(f, b, queries, strip);
    if (t == EG_COVER_NONE) return;
    if (!*begun) {
        memset(dq, 0, w->part / (size_t)w->blocks);
        if (backward_means(w, r, b, queries)) pack_keys(w, r, b, strip);
        *begun = 1;
    }
    pack_queries(w, r, b, queries);
    const int64_t panels = (strip.count + wide - 1) / wide;
    for (int64_t p = 0; p < panels; p += GROUP) {
        const int64_t group = eg__min64(GROUP, panels - p), keys = group * wide;
        uint8_t used[EG_LIVE_PANELS] = { 0 }; /* by panel of queries: the panels of keys */
        for (int64_t k = 0; k < group; k++) {
            const int64_t from = (p + k) * wide;
            const eg_stretch panel = { EG_PART_KEY, strip.from + from,
                                       eg__min64(wide, strip.count - from) };
            eg_live live;
            if (!backward_tile(w, r, b, queries, panel, p + k, t, dq, &live)) continue;
            for (eg_live_run run = { 0 }; eg__live_next(f, &live, &run);) {
                const int64_t first = run.from / wide, end = (run.to + wide - 1) / wide;
                backward_transpose(w, r, queries.count, first, end, k, keys);
                for (int64_t i = first; i < end; i++) used[i] |= (uint8_t)(1u << k);
            }
        }
        for (int64_t i = 0; i * wide < queries.count; i++)
            backward_queries(w, r, i, keys, used[i], r->kk + p * wide * dn * x,
                             dq + i * wide * dn * x);
    }
}

/* Writes summed panels to array `at`, if it is set. */
static void write_out(const eg_fused *f, const eg_fused_batch *b, eg_stretch lanes, eg_part kind,
                      int at, const char *from)
{
    if (!f->data[at]) return;
    const int64_t columns = f->list[kind].total, step = eg__round_up(columns, f->narrow) * f->width;
    for (int64_t i = 0; i < lanes.count; i += f->wide)
        eg__fused_unpack(
            f, (eg_stretch){ lanes.part, lanes.from + i, eg__min64(f->wide, lanes.count - i) },
            (eg_stretch){ kind, 0, columns }, at, from + i * step,
            f->data[at] + b->at[at] * f->width);
}
/* Writes the sums of a strip of keys, dk or dv; zeros for panels to which no tile contributed. */
static void write_sums(const eg_fused *f, const workspace *r, const eg_fused_batch *b,
                       eg_stretch strip, eg_part kind, int at, char *sums)
{
    const int64_t panel = f->wide * eg__round_up(f->list[kind].total, f->narrow) * f->width;
    for (int64_t p = 0; p * f->wide < strip.count; p++)
        if (!r->summed[p]) memset(sums + p * panel, 0, (size_t)panel);
    write_out(f, b, strip, kind, at, sums);
}
/* Writes dQ of a batch; zeros for blocks of queries to which no tile contributed. */
static void write_dq(const back *w, const eg_fused_batch *b, char *dq, const uint8_t *begun)
{
    const eg_fused *f = w->f;
    const int64_t queries = f->list[EG_PART_QUERY].total;
    const int64_t bytes = (int64_t)w->part / w->blocks;
    for (int64_t i = 0; i < w->blocks; i++, dq += bytes) {
        if (begun[i])
            f->ops->scale(bytes / f->width, dq, f->a->scale);
        else
            memset(dq, 0, (size_t)bytes);
        write_out(f, b,
                  (eg_stretch){ EG_PART_QUERY, i * w->block,
                                eg__min64(w->block, queries - i * w->block) },
                  EG_PART_DOT, EG_SLOT_DQ, dq);
    }
}

/* Reads the cotangents of the log-sum-exp of one batch. */
static void back_lse(const back *w, const workspace *r, const eg_fused_batch *b)
{
    const eg_fused *f = w->f;
    const char *g = f->data[EG_SLOT_G_LSE];
    for (int64_t i = 0; g && i < f->list[EG_PART_QUERY].total; i++)
        eg__set_real(
            f, r->lse, i,
            eg__real_at(f, g,
                        b->at[EG_SLOT_G_LSE] + eg__fused_at(f, EG_PART_QUERY, EG_SLOT_G_LSE, i)));
}
/* Adds the cotangents of the sink in one batch: e^(z − row_max) inv_sum (g_lse − D) of each query;
 * where the weight is 0, D is taken to be 0. */
static void sink_slopes(const back *w, const workspace *r, const eg_fused_batch *b)
{
    const eg_fused *f = w->f;
    const int64_t queries = f->list[EG_PART_QUERY].total;
    for (int64_t i = 0; i < queries; i += w->block)
        backward_means(w, r, b, (eg_stretch){ EG_PART_QUERY, i, eg__min64(w->block, queries - i) });
    for (int64_t i = 0; i < queries; i++) {
        const int64_t stat = b->number * queries + i,
                      z = b->at[EG_SLOT_SINK] + eg__fused_at(f, EG_PART_QUERY, EG_SLOT_SINK, i);
        const double part = eg__real_at(f, w->saved->inv_sum, stat),
                     top = eg__real_at(f, w->saved->row_max, stat),
                     own = eg__sink_exponent(f, z);                      /* as row_max is */
        const double weight = (own == top ? 1 : exp2(own - top)) * part, /* both may be ∞ */
            mean = eg__real_at(f, r->mean, i),
                     lse = f->data[EG_SLOT_G_LSE] ? weight * eg__real_at(f, r->lse, i) : 0;
        w->sums.sums[r->dz + b->at[EG_SLOT_DSINK] +
                     eg__fused_at(f, EG_PART_QUERY, EG_SLOT_DSINK, i)] +=
            lse - (weight == 0 ? 0 : weight * mean);
    }
}
/* Computes one batch, or one split of its keys; r.sink and r.dz are set. */
static void backward_piece(const back *w, workspace r, int64_t piece)
{
    const eg_fused *f = w->f;
    const int64_t queries = f->list[EG_PART_QUERY].total, keys = f->list[EG_PART_KEY].total;
    eg_fused_batch b;
    eg__fused_batch(f, piece / w->splits, &b);
    char *dq = w->splits == 1 ? r.dq : w->parts + w->part * (size_t)piece;
    uint8_t *begun = w->begun + piece * w->blocks;
    memset(begun, 0, (size_t)w->blocks);
    back_lse(w, &r, &b);
    if (r.dz >= 0 && piece % w->splits == 0) sink_slopes(w, &r, &b);
    const int64_t begin = piece % w->splits * w->split, end = eg__min64(keys, begin + w->split);
    for (int64_t j = begin; j < end; j += w->strip) {
        const eg_stretch strip = { EG_PART_KEY, j, eg__min64(w->strip, end - j) };
        pack_keys(w, &r, &b, strip);
        pack_groups(w, &r, &b, strip);
        memset(r.summed, 0, (size_t)(w->strip / f->wide) * sizeof *r.summed);
        for (int64_t i = 0; i < w->blocks; i++)
            block(w, &r, &b,
                  (eg_stretch){ EG_PART_QUERY, i * w->block,
                                eg__min64(w->block, queries - i * w->block) },
                  strip, dq + i * ((int64_t)w->part / w->blocks), begun + i);
        write_sums(f, &r, &b, strip, EG_PART_DOT, EG_SLOT_DK, r.dk);
        write_sums(f, &r, &b, strip, EG_PART_VALUE, EG_SLOT_DV, r.dv);
    }
    if (w->splits == 1) write_dq(w, &b, dq, begun);
}
/* Computes the pieces of one unit of sums one after another. */
static void backward_unit(void *user, int64_t unit, int thread)
{
    const back *w = user;
    workspace r;
    int64_t from, to;
    backward_lay_out(w, w->workspaces + w->each * (size_t)thread, &r);
    r.dz = eg__tile_sums_unit(&w->sums, w->f, unit, &from, &to, r.sink);
    for (int64_t k = from; k < to; k++)
        backward_piece(w, r, eg__tile_sums_piece(&w->sums, w->f, unit, k));
}
/* Adds the parts of dQ that the splits of a batch computed, and writes dQ. */
static void sum_splits(void *user, int64_t batch, int thread)
{
    const back *w = user;
    (void)thread;
    const size_t bytes = w->part / (size_t)w->blocks;
    uint8_t *begun = w->begun + batch * w->splits * w->blocks;
    char *dq = w->parts + w->part * (size_t)(batch * w->splits);
    for (int64_t s = 1; s < w->splits; s++)
        for (int64_t i = 0; i < w->blocks; i++) {
            char *to = dq + bytes * (size_t)i, *from = to + w->part * (size_t)s;
            if (!begun[s * w->blocks + i]) continue;
            if (begun[i])
                w->f->ops->add((int64_t)bytes / w->f->width, to, from, 1);
            else
                memcpy(to, from, bytes);
            begun[i] = 1;
        }
    eg_fused_batch b;
    eg__fused_batch(w->f, batch, &b);
    write_dq(w, &b, dq, begun);
}

bool eg__fused_back(eg_ctx *cx, eg_fused *f, const eg_row_stats *saved, eg_tensor *const *x,
                    char *const *to)
{
    const int64_t queries = f->list[EG_PART_QUERY].total, keys = f->list[EG_PART_KEY].total,
                  batches = f->list[EG_PART_BATCH].total;
    const int64_t d = f->list[EG_PART_DOT].total;
    back w = { .f = f, .saved = saved };
    w.block = eg__min64(BLOCK / f->narrow * f->narrow, eg__round_up(queries, f->narrow));
    w.blocks = (queries + w.block - 1) / w.block;
    w.transposed = eg__round_up(w.block, f->wide);
    w.strip = eg__min64(PANELS * f->wide, eg__round_up(keys, f->wide));
    const int64_t strips = (keys + w.strip - 1) / w.strip,
                  want = batches >= PIECES ? 1 : eg__min64(PIECES / batches, strips);
    w.split = (strips + want - 1) / want * w.strip;
    w.splits = (keys + w.split - 1) / w.split;
    w.part =
        (size_t)(w.blocks * eg__round_up(w.transposed * eg__round_up(d, f->narrow) * f->width, 64));
    const int team = (int)eg__min64(
        eg__team(cx, batches * queries * keys * 2 * (d + f->list[EG_PART_VALUE].total), GRAIN),
        EG_FUSED_TEAM);
    eg__tile_plan(&w.plan, f, EG_PART_QUERY, w.block, EG_PART_KEY, f->a->wanted | 1u << 31);
    if (!eg__tile_sums_open(&w.sums, cx, f, x, to, w.splits)) return false;
    if (to[EG_TERM_SINK]) eg__fused_spread(f, EG_SLOT_DSINK, EG_TERM_SINK, NULL);
    workspace r;
    w.each = backward_lay_out(&w, NULL, &r);
    const size_t parts = w.splits == 1 ? 0 : w.part * (size_t)(batches * w.splits);
    const size_t marks = (size_t)(batches * w.splits * w.blocks);
    w.workspaces = eg__scratch(cx, EG_SCRATCH_TILES, w.each * (size_t)team + parts + marks);
    if (!w.workspaces) return false;
    w.parts = w.workspaces + w.each * (size_t)team;
    w.begun = (uint8_t *)w.parts + parts;
    /* Where all weights of a tile are small, as with ALiBi at a distance, dS and its sums would be
     * subnormal, and each operation on them takes some 100 cycles on an Intel processor. */
    const uint64_t begun = eg__fpmode_begin(true);
    eg__parallel(cx, team, w.sums.fixed * w.sums.sets, backward_unit, &w);
    if (w.splits > 1) eg__parallel(cx, team, batches, sum_splits, &w);
    eg__tile_sums_close(&w.sums, f, x, to);
    eg__fpmode_end(begun);
    return true;
}
