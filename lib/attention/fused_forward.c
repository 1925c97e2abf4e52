/* fused_forward.c: y = softmax(scale q·k + bias) v, tile by tile.
 *
 * A piece of work is a strip of one batch's queries. Block after block of keys: k and v are packed
 * into panels; each panel of queries (one lane each) makes its tile of scores [key][query] by the
 * micro-kernel, which stores it just as it wants to read it for the product with v, so that nothing
 * is packed between. Where a block raises a query's maximum, what is summed so far fades. A row of
 * scores meets the same blocks of keys in the same order whatever the strips and the threads are:
 * the same bits. */
#include "attention/attention.h"
#include "attention/workspace.h"
#include <math.h>
#include <string.h>

/* queries, keys; multiply-adds that are worth a thread */
enum { STRIP = 1024, SHORT = 256, BLOCK = 256, GRAIN = 1 << 23 };

typedef struct forward {
    const eg_flash *f;
    const eg_row_stats *saved;
    int64_t strip, strips, block, *empty; /* empty: by thread */
    char *room;
    size_t each;
} forward;
typedef struct room { /* of one thread */
    char *q, *k, *v, *s, *o, *bias, *most, *total, *fade;
    uint8_t *bytes, *stay;
    eg_run *runs;
    int64_t *off;
} room;
static size_t forward_lay_out(const forward *w, char *base, room *r)
{
    const eg_flash *f = w->f;
    const int64_t x = f->width, d = f->list[EG_KIND_DOT].total, e = f->list[EG_KIND_VALUE].total,
                  deep = d > w->block ? d : w->block;
    eg_taking t = { base, 0 };
    r->q = eg__take(&t, w->strip * d * x);
    r->o = eg__take(&t, w->strip * eg__round_up(e, f->narrow) * x);
    r->most = eg__take(&t, w->strip * x);
    r->total = eg__take(&t, w->strip * x);
    r->k = eg__take(&t, w->block * d * x);
    r->v = eg__take(&t, w->block * eg__round_up(e, f->narrow) * x);
    r->s = eg__take(&t, w->block * f->wide * x);
    r->bias = eg__take(&t, f->data[EG_AT_BIAS] ? w->block * f->wide * x : 0);
    r->fade = eg__take(&t, f->wide * x);
    r->bytes = (uint8_t *)eg__take(&t, w->block * f->wide);
    r->stay = (uint8_t *)eg__take(&t, f->a->dropping ? w->block * f->wide : 0);
    r->off = (int64_t *)(void *)eg__take(&t, f->careful ? e * (int64_t)sizeof(int64_t) : 0);
    r->runs = (eg_run *)(void *)eg__take(&t, (deep + 1) * (int64_t)sizeof(eg_run));
    return (size_t)t.taken;
}

/* One panel of queries and one block of keys, whose answer to the predicate is t. */
static void panel(const forward *w, const room *r, const eg_flash_batch *b, eg_stretch queries,
                  int64_t p, eg_stretch keys, eg_three t)
{
    const eg_flash *f = w->f;
    const int64_t x = f->width, d = f->list[EG_KIND_DOT].total, e = f->list[EG_KIND_VALUE].total,
                  n = f->narrow;
    eg_live live = { 0, keys.count, 0, 0 };
    if (t == EG_TEST && !eg__flash_live(f, b, queries, keys, &live)) return;
    if (eg__flash_tests_all(f)) live.test = live.from, live.tested = live.to;
    const eg_stretch rows = { EG_KIND_KEY, keys.from + live.from, live.to - live.from };
    if (live.test < live.tested) {
        const eg_three all = eg__flash_allow(
            f, b, (eg_stretch){ EG_KIND_KEY, keys.from + live.test, live.tested - live.test },
            queries, r->bytes);
        if (all == EG_EVERY) live.tested = live.test;
        if (all == EG_NONE && live.tested - live.test == rows.count) return;
    }
    char *lane = r->most + p * f->wide * x, *total = r->total + p * f->wide * x,
         *o = r->o + p * f->wide * eg__round_up(e, n) * x;
    eg__flash_product(f, d, r->q + p * f->wide * d * x, r->k + live.from * d * x, n * d * x,
                      rows.count, false, r->s);
    if (f->data[EG_AT_BIAS]) {
        eg__flash_pack(f, f->wide, queries, rows, EG_AT_BIAS,
                       f->data[EG_AT_BIAS] + b->at[EG_AT_BIAS] * x, r->bias, r->runs);
        f->lanes->add(rows.count * f->wide, r->s, r->bias, EG_LOG2_E);
    }
    if (f->data[EG_AT_SLOPES]) eg__flash_ramp(f, b, rows, queries, r->s);
    if (live.test < live.tested)
        f->lanes->forbid((live.tested - live.test) * f->wide,
                         r->s + (live.test - live.from) * f->wide * x, r->bytes);
    if (f->lanes->soften(f->wide, rows.count, r->s, lane, total, r->fade) && e)
        f->lanes->fade(f->wide, e, o, r->fade);
    if (f->a->dropping) {
        eg__flash_stays(f, b, rows, queries, r->stay);
        f->lanes->thin(rows.count * f->wide, r->s, r->stay, f->a->drop.factor);
    }
    if (!e) return;
    eg__flash_product(f, rows.count, r->s, r->v + live.from * n * x, n * keys.count * x, e, true,
                      o);
    if (f->careful)
        eg__flash_repair(f, b, rows, EG_KIND_VALUE, EG_AT_V, 1, r->s,
                         live.test < live.tested ? r->bytes : NULL, o, r->off);
}

#define FINISH(T)                                                                                 \
    do {                                                                                          \
        const T *most = (const T *)(void *)r->most + p, *total = (const T *)(void *)r->total + p; \
        for (int64_t i = 0; i < lanes; i++) {                                                     \
            const T share = total[i] == 0 ? 0 : 1 / total[i];                                     \
            none += total[i] == 0;                                                                \
            ((T *)(void *)r->fade)[i] = share;                                                    \
            if (most_to) {                                                                        \
                ((T *)most_to)[i] = most[i];                                                      \
                ((T *)share_to)[i] = share;                                                       \
            }                                                                                     \
        }                                                                                         \
    } while (0)
/* A panel's sums → its results; how many of its queries had nothing to attend to. */
static int64_t forward_finish(const forward *w, const room *r, const eg_flash_batch *b,
                              eg_stretch queries, int64_t p)
{
    const eg_flash *f = w->f;
    const int64_t x = f->width, e = f->list[EG_KIND_VALUE].total, lanes = queries.count;
    const int64_t at = (b->number * f->list[EG_KIND_QUERY].total + queries.from) * x;
    void *most_to = w->saved ? (char *)w->saved->row_max + at : NULL,
         *share_to = w->saved ? (char *)w->saved->inv_sum + at : NULL;
    int64_t none = 0;
    memset(r->fade, 0, (size_t)(f->wide * x));
    if (x == 8)
        FINISH(double);
    else
        FINISH(float);
    if (f->data[EG_AT_Y]) {
        char *o = r->o + p * eg__round_up(e, f->narrow) * x;
        f->lanes->fade(f->wide, e, o, r->fade);
        eg__flash_unpack(f, queries, (eg_stretch){ EG_KIND_VALUE, 0, e }, EG_AT_Y, o,
                         f->data[EG_AT_Y] + b->at[EG_AT_Y] * x);
    }
    return none;
}

static void forward_piece(void *user, int64_t piece, int thread)
{
    const forward *w = user;
    const eg_flash *f = w->f;
    const int64_t x = f->width, d = f->list[EG_KIND_DOT].total, e = f->list[EG_KIND_VALUE].total,
                  keys = f->list[EG_KIND_KEY].total;
    const eg_stretch dots = { EG_KIND_DOT, 0, d }, values = { EG_KIND_VALUE, 0, e };
    room r;
    forward_lay_out(w, w->room + w->each * (size_t)thread, &r);
    eg_flash_batch b;
    eg__flash_batch(f, piece / w->strips, &b);
    const int64_t from = piece % w->strips * w->strip;
    const eg_stretch strip = { EG_KIND_QUERY, from,
                               eg__min64(w->strip, f->list[EG_KIND_QUERY].total - from) };
    const int64_t lanes = eg__round_up(strip.count, f->wide);
    eg__flash_pack(f, f->wide, strip, dots, EG_AT_Q, f->data[EG_AT_Q] + b.at[EG_AT_Q] * x, r.q,
                   r.runs);
    f->lanes->scale(lanes * d, r.q, f->a->scale * EG_LOG2_E);
    memset(r.o, 0, (size_t)(lanes * eg__round_up(e, f->narrow) * x));
    memset(r.total, 0, (size_t)(lanes * x));
    for (int64_t i = 0; i < lanes; i++)
        if (x == 8)
            ((double *)(void *)r.most)[i] = -INFINITY;
        else
            ((float *)(void *)r.most)[i] = -INFINITY;
    for (int64_t j = 0; j < keys; j += w->block) {
        const eg_stretch block = { EG_KIND_KEY, j, eg__min64(w->block, keys - j) };
        const eg_three t = eg__flash_where(f, &b, strip, block);
        if (t == EG_NONE) continue;
        eg__flash_pack(f, f->narrow, block, dots, EG_AT_K, f->data[EG_AT_K] + b.at[EG_AT_K] * x,
                       r.k, r.runs);
        if (e)
            eg__flash_pack(f, f->narrow, values, block, EG_AT_V,
                           f->data[EG_AT_V] + b.at[EG_AT_V] * x, r.v, r.runs);
        if (e && f->careful)
            f->lanes->finite(
                eg__round_up(eg__round_up(e, f->narrow) * block.count, f->lanes->lanes), r.v);
        for (int64_t i = 0; i < strip.count; i += f->wide)
            panel(w, &r, &b,
                  (eg_stretch){ EG_KIND_QUERY, from + i, eg__min64(f->wide, strip.count - i) },
                  i / f->wide, block, t);
    }
    for (int64_t i = 0; i < strip.count; i += f->wide)
        w->empty[thread] += forward_finish(
            w, &r, &b, (eg_stretch){ EG_KIND_QUERY, from + i, eg__min64(f->wide, strip.count - i) },
            i);
}

bool eg__flash_forward(eg_ctx *cx, const eg_flash *f, const eg_row_stats *saved, int64_t *empty)
{
    const int64_t queries = f->list[EG_KIND_QUERY].total, keys = f->list[EG_KIND_KEY].total,
                  batches = f->list[EG_KIND_BATCH].total;
    int64_t none[EG_FLASH_TEAM] = { 0 };
    forward w = { .f = f, .saved = saved, .empty = none };
    const int64_t work =
        batches * queries * keys * (f->list[EG_KIND_DOT].total + f->list[EG_KIND_VALUE].total);
    const int team = (int)eg__min64(eg__team(cx, work, GRAIN), EG_FLASH_TEAM);
    /* long, since keys are packed for each; but work for all */
    w.strip = eg__min64(eg__round_up(STRIP, f->wide), eg__round_up(queries, f->wide));
    while (team > 1 && w.strip > SHORT && batches * ((queries + w.strip - 1) / w.strip) < 4 * team)
        w.strip = eg__round_up(w.strip / 2, f->wide);
    w.strips = (queries + w.strip - 1) / w.strip;
    w.block = eg__min64(BLOCK / f->narrow * f->narrow, eg__round_up(keys, f->narrow));
    room r;
    w.each = forward_lay_out(&w, NULL, &r);
    if (!(w.room = eg__scratch(cx, EG_SCRATCH_TILES, w.each * (size_t)team))) return false;
    eg__parallel(cx, team, batches * w.strips, forward_piece, &w);
    *empty = 0;
    for (int t = 0; t < team; t++) *empty += none[t];
    return true;
}
