/* tile_values.c: evaluates the two expressions over a tile of scores: whether the predicate allows
 * all pairs of it, some or none; which pairs; the scores; and the cotangents. Rows and lanes of a
 * tile are positions of queries and keys; the letters of the batch are constant in a tile. */
#include "attention/workspace.h"
#include <string.h>

/* -- boxes of positions ----------------------------------------------------------------------- */
typedef struct corners {
    int64_t low[EG_RANK_MAX], high[EG_RANK_MAX];
    eg_box box;
    eg_interval range[EG_NODES_MAX]; /* bounds of the predicate's nodes in the box */
} corners;
/* Sets the smallest box of indices that contains a stretch: low ≤ index < high on every axis of its
 * part. */
static void tiles_box(const eg_fused *f, eg_stretch s, corners *c)
{
    const eg_fused_list *l = &f->list[s.part];
    int64_t first = s.from, last = s.from + s.count - 1;
    for (int k = l->n - 1; k >= 0; k--) {
        const int64_t size = l->axis[k].size;
        const bool one = first / size == last / size;
        c->low[l->axis[k].score] = one ? first % size : 0;
        c->high[l->axis[k].score] = one ? last % size + 1 : size;
        first /= size;
        last /= size;
    }
}
static void batch_box(const eg_fused *f, const eg_fused_batch *b, corners *c)
{
    const eg_fused_list *l = &f->list[EG_PART_BATCH];
    for (int k = 0; k < l->n; k++) {
        const int s = l->axis[k].score;
        c->low[s] = b->index[s];
        c->high[s] = b->index[s] + 1;
    }
    c->box.low = c->low, c->box.high = c->high, c->box.size = f->size;
    c->box.bounds = f->bounded ? &f->bounds : NULL;
    if (!f->bounded) return;
    memcpy(c->box.least, f->a->least, sizeof c->box.least);
    memcpy(c->box.most, f->a->most, sizeof c->box.most);
}
eg_cover eg__fused_where(const eg_fused *f, const eg_fused_batch *b, eg_stretch queries,
                         eg_stretch keys)
{
    corners c;
    if (!f->where) return EG_COVER_ALL;
    batch_box(f, b, &c);
    tiles_box(f, queries, &c);
    tiles_box(f, keys, &c);
    return eg__expression_cover(f->where, &c.box, c.range);
}
uint32_t eg__fused_letters(const eg_fused *f, eg_part part)
{
    uint32_t bits = 0;
    for (int k = 0; k < f->list[part].n; k++) bits |= 1u << f->list[part].axis[k].score;
    return bits;
}
/* A tile is sparse if at least 1 / SPARSE of its panels are forbidden. */
enum { SPARSE = 4 };
/* Sets cover[] of the panels in the rows from … to − 1; t is the cover of all of them together, by
 * bounds of the predicate. Where it is EG_COVER_SOME, bounds each half, down to single panels. */
static void cover_panels(const eg_fused *f, eg_stretch rows, int64_t from, int64_t to, eg_cover t,
                         corners *c, uint8_t *cover)
{
    const int64_t step = eg__live_step(f), panels = (to - from + step - 1) / step;
    if (t != EG_COVER_SOME || panels == 1) {
        memset(cover + from / step, (int)t, (size_t)panels);
        return;
    }
    const int64_t ends[] = { from, from + panels / 2 * step, to };
    for (int half = 0; half < 2; half++) {
        tiles_box(f, (eg_stretch){ rows.part, rows.from + ends[half], ends[half + 1] - ends[half] },
                  c);
        t = eg__expression_cover_moved(f->where, &c->box, eg__fused_letters(f, rows.part),
                                       c->range);
        cover_panels(f, rows, ends[half], ends[half + 1], t, c, cover);
    }
}
bool eg__fused_live(const eg_fused *f, const eg_fused_batch *b, eg_stretch lanes, eg_stretch rows,
                    eg_cover all, eg_live *l)
{
    const int64_t step = eg__live_step(f), panels = (rows.count + step - 1) / step;
    *l = (eg_live){ .to = rows.count, .rows = rows.count };
    memset(l->cover, (int)EG_COVER_ALL, sizeof l->cover);
    if (all == EG_COVER_ALL) return true;
    corners c;
    batch_box(f, b, &c);
    tiles_box(f, lanes, &c);
    tiles_box(f, rows, &c);
    cover_panels(f, rows, 0, rows.count, eg__expression_cover(f->where, &c.box, c.range), &c,
                 l->cover);
    int64_t first = 0, last = panels, test, tested;
    while (first < last && l->cover[first] == EG_COVER_NONE) first++;
    while (last > first && l->cover[last - 1] == EG_COVER_NONE) last--;
    for (test = first; test < last && l->cover[test] == EG_COVER_ALL;) test++;
    for (tested = last; tested > test && l->cover[tested - 1] == EG_COVER_ALL;) tested--;
    l->from = first * step;
    l->to = eg__min64(last * step, rows.count);
    l->test = eg__min64(test * step, rows.count);
    l->tested = eg__min64(tested * step, rows.count);
    l->rows = l->to - l->from;
    l->tests = l->tested - l->test;
    int64_t dead = 0;
    for (int64_t k = first; k < last; k++) dead += l->cover[k] == EG_COVER_NONE;
    if (SPARSE * dead >= last - first && dead && !f->careful) {
        l->sparse = true;
        l->rows -= dead * step; /* the last panel is not forbidden */
        eg__live_test(l, true);
    }
    return first < last;
}
void eg__live_test(eg_live *l, bool all)
{
    l->test = l->from;
    l->tested = all ? l->to : l->from;
    l->tests = all ? l->rows : 0;
}
bool eg__live_next(const eg_fused *f, const eg_live *l, eg_live_run *run)
{
    const int64_t step = eg__live_step(f);
    run->at += run->to - run->from;
    run->from = run->to > l->from ? run->to : l->from;
    run->to = l->to;
    if (!l->sparse) return run->from < l->to;
    while (run->from < l->to && l->cover[run->from / step] == EG_COVER_NONE) run->from += step;
    for (run->to = run->from; run->to < l->to && l->cover[run->to / step] != EG_COVER_NONE;)
        run->to += step;
    run->to = eg__min64(run->to, l->to);
    return run->from < l->to;
}
void eg__live_gather(const eg_fused *f, const eg_live *l, int64_t count, int64_t columns,
                     const char *from, char *to)
{
    const int64_t row = f->narrow * f->width;
    for (int64_t c = 0; c < columns; c += f->narrow, from += count * row, to += l->rows * row)
        for (eg_live_run r = { 0 }; eg__live_next(f, l, &r);)
            memcpy(to + r.at * row, from + r.from * row, (size_t)((r.to - r.from) * row));
}
void eg__live_spread(const eg_fused *f, const eg_live *l, char *tile)
{
    const int64_t step = eg__live_step(f), row = f->wide * f->width;
    int64_t at = l->from + l->rows;
    for (int64_t i = (l->to - 1) / step * step; i >= l->from; i -= step) {
        const int64_t n = eg__min64(step, l->to - i);
        if (l->cover[i / step] == EG_COVER_NONE) {
            memset(tile + i * row, 0, (size_t)(n * row));
            continue;
        }
        at -= n;
        memmove(tile + i * row, tile + at * row, (size_t)(n * row));
    }
}
bool eg__fused_bound(eg_ctx *cx, eg_fused *f, eg_part lanes)
{
    int64_t block[EG_RANK_MAX];
    f->bounded = false;
    if (!f->where || !f->where->reads) return true;
    for (int s = 0; s < f->a->scores; s++) block[s] = 1;
    for (int part = EG_PART_QUERY; part <= EG_PART_KEY; part++) {
        const eg_fused_list *l = &f->list[part];
        if (l->n) block[l->axis[l->n - 1].score] = part == (int)lanes ? f->wide : f->narrow;
    }
    eg__bounds_plan(&f->bounds, f->where, f->source, block);
    if (!f->bounds.entries) return true;
    eg_interval *table = eg__alloc(cx, (size_t)f->bounds.entries * sizeof *table);
    if (!table) return false;
    eg__bounds_fill(&f->bounds, f->source, table);
    f->bounded = true;
    return true;
}

/* -- blocks of values ------------------------------------------------------------------------- */
/* Returns the bytes of the positions of `count` elements of a part. They are stored only if the
 * part has several axes. */
static int64_t positions_bytes(const eg_fused *f, eg_part part, int64_t count)
{
    const int n = f->list[part].n;
    return n > 1 ? n * count * (int64_t)sizeof(int64_t) : 0;
}
void eg__tile_plan(eg_tile_plan *p, const eg_fused *f, eg_part rows, int64_t most, eg_part lanes,
                   uint32_t wanted)
{
    const uint32_t by_row = eg__fused_letters(f, rows), by_lane = eg__fused_letters(f, lanes);
    const bool f64 = f->dtype == EG_F64;
    *p = (eg_tile_plan){ .bytes = 0 };
    if (f->where)
        eg__block_plan(&p->where, f->where, f->where->root, f64, (int)most, f->wide, by_row,
                       by_lane, 0);
    if (f->score)
        eg__block_plan(&p->score, f->score, f->score->root, f64, (int)most, f->wide, by_row,
                       by_lane, wanted);
    p->score_at = f->where ? eg__round_up((int64_t)p->where.bytes, 64) : 0;
    p->rows_at = p->score_at + (f->score ? eg__round_up((int64_t)p->score.bytes, 64) : 0);
    p->lanes_at = p->rows_at + positions_bytes(f, rows, most);
    p->bytes = p->lanes_at + positions_bytes(f, lanes, f->wide);
    bool flows[EG_NODES_MAX] = { false };
    for (int k = f->score && wanted ? f->score->root : -1; k >= 0; k--) {
        const eg_node *n = &f->score->node[k];
        flows[k] |= k == f->score->root && p->score.moved[k];
        if (n->code == EG_X_SCORE) p->reaches |= flows[k];
        for (int i = 0; flows[k] && n->code > EG_X_READ && i < n->count; i++)
            flows[n->in[i]] |= p->score.moved[n->in[i]];
    }
}
/* at[i] = (from + i) / apart % size */
static void set_positions(int64_t from, int64_t count, int64_t apart, int64_t size, int64_t *at)
{
    if (count <= 0) return;
    for (int64_t i = 0, v = from / apart % size, left = apart - from % apart; i < count; i++) {
        at[i] = v;
        if (--left) continue;
        left = apart;
        v = v + 1 < size ? v + 1 : 0;
    }
}
/* Sets the positions of the letters of a stretch. If they are not consecutive, they are stored in
 * `workspace`. */
static void stretch_values(const eg_fused *f, eg_stretch s, eg_letter_values *letter,
                           int64_t *workspace)
{
    const eg_fused_list *l = &f->list[s.part];
    if (l->n == 1) letter[l->axis[0].score] = (eg_letter_values){ .first = s.from };
    for (int64_t k = l->n - 1, apart = 1; l->n > 1 && k >= 0; apart *= l->axis[k--].size) {
        int64_t *at = workspace + k * s.count;
        set_positions(s.from, s.count, apart, l->axis[k].size, at);
        letter[l->axis[k].score] = (eg_letter_values){ .value = at };
    }
}
/* Describes a tile to the evaluation of the expressions: its positions, and the distances of rows
 * in all arrays. */
static void tile_block(const eg_tile_plan *p, const eg_fused *f, const eg_fused_batch *b,
                       eg_stretch rows, eg_stretch lanes, char *workspace, eg_letter_values *letter,
                       eg_block_data *d)
{
    const eg_fused_list *l = &f->list[EG_PART_BATCH];
    for (int k = 0; k < l->n; k++)
        letter[l->axis[k].score] = (eg_letter_values){ .first = b->index[l->axis[k].score] };
    stretch_values(f, rows, letter, (int64_t *)(void *)(workspace + p->rows_at));
    stretch_values(f, lanes, letter, (int64_t *)(void *)(workspace + p->lanes_at));
    *d = (eg_block_data){ .rows = (int)rows.count,
                          .lanes = (int)lanes.count,
                          .letter = letter,
                          .source = f->source,
                          .score_step = f->wide,
                          .out_step = f->wide,
                          .g_step = f->wide,
                          .dscore_step = f->wide,
                          .allow_step = f->wide };
}
eg_cover eg__tile_allow(const eg_tile_plan *p, const eg_fused *f, const eg_fused_batch *b,
                        eg_stretch rows, eg_stretch lanes, const eg_live *live, char *workspace,
                        uint8_t *tile)
{
    const int64_t step = eg__live_step(f), wide = f->wide;
    uint8_t *part = tile;
    for (int64_t j = live->test, n; j < live->tested; j += n) {
        const uint8_t cover = live->cover[j / step];
        for (n = 0; j + n < live->tested && live->cover[(j + n) / step] == cover;) n += step;
        n = eg__min64(n, live->tested - j);
        if (cover == EG_COVER_NONE && live->sparse) continue;
        if (cover != EG_COVER_SOME)
            memset(part, cover == EG_COVER_ALL, (size_t)(n * wide));
        else {
            eg_letter_values letter[EG_EXPRESSION_LETTERS];
            eg_block_data d;
            tile_block(p, f, b, (eg_stretch){ rows.part, rows.from + j, n }, lanes, workspace,
                       letter, &d);
            d.out = part;
            eg__block_values(&p->where, &d, workspace);
        }
        part += n * wide;
    }
    for (int64_t r = 0; lanes.count < wide && r < live->tests; r++)
        memset(tile + r * wide + lanes.count, 0, (size_t)(wide - lanes.count));
    if (!memchr(tile, 1, (size_t)(live->tests * wide))) return EG_COVER_NONE;
    return memchr(tile, 0, (size_t)(live->tests * wide)) ? EG_COVER_SOME : EG_COVER_ALL;
}
void eg__tile_scores(const eg_tile_plan *p, const eg_fused *f, const eg_fused_batch *b,
                     eg_stretch rows, eg_stretch lanes, char *workspace, const char *score,
                     char *out)
{
    eg_letter_values letter[EG_EXPRESSION_LETTERS];
    eg_block_data d;
    tile_block(p, f, b, rows, lanes, workspace, letter, &d);
    d.score = score, d.out = out;
    d.factor = f->a->no_softmax ? 1 : EG_LOG2_E;
    eg__block_values(&p->score, &d, workspace + p->score_at);
}
void eg__tile_slopes(const eg_tile_plan *p, const eg_fused *f, const eg_fused_batch *b,
                     eg_stretch rows, eg_stretch lanes, char *workspace, const char *score,
                     const eg_tested *tested, const eg_sink *sink, char *ds)
{
    eg_letter_values letter[EG_EXPRESSION_LETTERS];
    eg_block_data d;
    tile_block(p, f, b, rows, lanes, workspace, letter, &d);
    d.score = score, d.sink = sink;
    d.allow = tested->allow;
    d.allow_from = (int)tested->from;
    d.allow_rows = (int)tested->rows;
    d.g = ds, d.dscore = ds;
    eg__block_slopes(&p->score, &d, workspace + p->score_at);
    if (!p->reaches) memset(ds, 0, (size_t)(rows.count * f->wide * f->width));
}
