/* expression_block.c: values and cotangents of an expression over a block of rows × lanes.
 *
 * A value is computed only as often as it varies: one that depends neither on rows nor on lanes is
 * stored as EG_LANES equal numbers, one that depends on rows alone as a number for each row, on
 * lanes alone as a number for each lane. Rows of a block are padded to whole groups of EG_LANES by
 * repeating the last value, so that the bits of an element do not depend on where it lies. Sums of
 * cotangents leave the padding out and are made in doubles. */
#include "notation/expression_gather.h"
#include "notation/expression_loops.h"
#include <string.h>

enum { SCORE_BIT = 31 };

/* -- the plan --------------------------------------------------------------------------------- */
static int64_t block_padded(int64_t n) { return eg__round_up(n > 0 ? n : 1, EG_LANES); }
static int block_width(const eg_block_plan *p, int k)
{
    const int kind = p->e->node[k].kind;
    return kind == EG_IS_TRUTH ? 1 : kind == EG_IS_FLOAT ? p->f64 ? 8 : 4 : p->narrow ? 4 : 8;
}
/* Returns the bytes of the workspace that node k takes with elements of `width` bytes. */
static int64_t room_of(const eg_block_plan *p, int k, int width)
{
    const int64_t n = p->extent[k] == EG_EXTENT_ONE     ? EG_LANES
                      : p->extent[k] == EG_EXTENT_ROWS  ? block_padded(p->rows)
                      : p->extent[k] == EG_EXTENT_LANES ? block_padded(p->lanes)
                                                        : p->rows * block_padded(p->lanes);
    return eg__round_up(n * width, EG_ALIGN);
}
/* The parts of the workspace that are free to be used again, and the end of what is in use. */
typedef struct rooms {
    int count;
    int64_t end, at[EG_NODES_MAX], bytes[EG_NODES_MAX];
} rooms;
static int64_t take(rooms *r, int64_t bytes)
{
    for (int k = r->count; k-- > 0;)
        if (r->bytes[k] == bytes) {
            const int64_t at = r->at[k];
            r->count--;
            r->at[k] = r->at[r->count], r->bytes[k] = r->bytes[r->count];
            return at;
        }
    r->end += bytes;
    return r->end - bytes;
}
static void give(rooms *r, int64_t at, int64_t bytes)
{
    r->at[r->count] = at;
    r->bytes[r->count++] = bytes;
}

/* Assigns a part of the workspace to the value of each node. Once a value has been read for the
 * last time, its part is used for a later node, unless cotangents are wanted, which need all
 * values. */
static void place_values(eg_block_plan *p, rooms *r)
{
    const eg_expression *e = p->e;
    int last[EG_NODES_MAX];
    for (int k = 0; k <= p->root; k++) last[k] = p->slopes ? EG_NODES_MAX : k;
    for (int k = 0; k <= p->root; k++)
        for (int i = 0; p->used[k] && i < e->node[k].count; i++)
            if (last[e->node[k].in[i]] < k) last[e->node[k].in[i]] = k;
    last[p->root] = EG_NODES_MAX;
    for (int k = 0; k <= p->root; k++) {
        if (!p->used[k]) continue;
        const int64_t bytes = room_of(p, k, block_width(p, k));
        bool given[EG_READ_MAX] = { false };
        for (int late = 0; late < 2; late++) {
            /* first, operands of the same form are freed: the node can overwrite one in place */
            if (late) p->at[k] = take(r, bytes);
            for (int i = 0; i < e->node[k].count; i++) {
                const int j = e->node[k].in[i];
                bool twice = given[i];
                for (int m = 0; m < i; m++) twice |= e->node[k].in[m] == j;
                if (last[j] != k || twice) continue;
                if (!late &&
                    (p->extent[j] != p->extent[k] || block_width(p, j) != block_width(p, k)))
                    continue;
                give(r, p->at[j], room_of(p, j, block_width(p, j)));
                given[i] = true;
            }
        }
    }
}
/* Finds the nodes whose cotangent is needed, and assigns a part of the workspace to it, from the
 * last node that reads the value back to the node itself. */
static void place_slopes(eg_block_plan *p, rooms *r)
{
    const eg_expression *e = p->e;
    const int width = p->f64 ? 8 : 4;
    for (int k = 0; k <= p->root; k++) {
        const eg_node *n = &e->node[k];
        p->moved[k] = false;
        p->slope[k] = -1;
        if (!p->used[k] || n->kind != EG_IS_FLOAT || n->code == EG_X_FLOOR) continue;
        if (n->code == EG_X_READ) p->moved[k] = p->wanted >> n->tensor & 1;
        if (n->code == EG_X_SCORE) p->moved[k] = p->wanted >> SCORE_BIT;
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++) p->moved[k] |= p->moved[n->in[i]];
    }
    if (p->slopes) p->slope[p->root] = take(r, room_of(p, p->root, width));
    for (int k = p->root; k >= 0 && p->slopes; k--) {
        const eg_node *n = &e->node[k];
        if (!p->moved[k] || p->slope[k] < 0)
            continue; /* −1: no derivative leads here, as under ⌊x⌋ */
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++)
            if (p->moved[n->in[i]] && p->slope[n->in[i]] < 0)
                p->slope[n->in[i]] = take(r, room_of(p, n->in[i], width));
        give(r, p->slope[k], room_of(p, k, width));
    }
}

/* Where the value of a node lies: in the workspace, or in place in an operand. */
typedef struct lying {
    char *p;
    int64_t step; /* bytes from row to row, if it varies with rows and lanes */
} lying;
void eg__block_plan(eg_block_plan *p, const eg_expression *e, int root, bool f64, int rows,
                    int lanes, uint32_t by_row, uint32_t by_lane, uint32_t wanted)
{
    *p = (eg_block_plan){ .e = e,
                          .root = root,
                          .rows = rows,
                          .lanes = lanes,
                          .f64 = f64,
                          .narrow = e->narrow,
                          .slopes = wanted != 0,
                          .by_row = by_row,
                          .by_lane = by_lane,
                          .wanted = wanted };
    p->used[root] = true;
    for (int k = root; k >= 0; k--) {
        const eg_node *n = &e->node[k];
        const bool all = n->letters == UINT32_MAX;
        p->extent[k] = (uint8_t)((all || n->letters & by_row ? EG_EXTENT_ROWS : 0) |
                                 (all || n->letters & by_lane ? EG_EXTENT_LANES : 0));
        for (int i = 0; p->used[k] && i < n->count; i++) p->used[n->in[i]] = true;
    }
    const int64_t most = block_padded(rows > lanes ? rows : lanes) * 8;
    rooms r = { .end = eg__round_up((int64_t)sizeof(lying) * e->nodes, EG_ALIGN) };
    p->scratch = r.end, r.end += 4 * most;
    p->offsets = r.end, r.end += most;
    p->sums = r.end, r.end += most;
    p->spare = r.end;
    if (p->slopes)
        r.end += eg__round_up(rows * block_padded(lanes) * (f64 ? 8 : 4), EG_ALIGN) + most;
    p->values = r.end;
    place_values(p, &r);
    place_slopes(p, &r);
    p->bytes = (size_t)r.end;
}

/* -- a block that is being computed ----------------------------------------------------------- */
typedef struct block {
    const eg_block_plan *p;
    const eg_block_data *b;
    const eg_loops *floats, *wholes;
    char *work;               /* the workspace */
    lying *v;                 /* of each node, its value; at the beginning of the workspace */
    int64_t wide, tall;       /* lanes and rows of this block, padded */
    bool fresh[EG_NODES_MAX]; /* the node has no cotangent yet */
} block;
static block begin(const eg_block_plan *p, const eg_block_data *b, void *workspace)
{
    return (block){ .p = p,
                    .b = b,
                    .floats = eg__loops[p->f64],
                    .wholes = eg__loops[!p->narrow],
                    .work = workspace,
                    .v = workspace,
                    .wide = block_padded(b->lanes),
                    .tall = block_padded(b->rows) };
}
/* Returns one of four buffers of a row of any type. */
static void *row_buffer(const block *x, int which)
{
    const int64_t most = block_padded(x->p->rows > x->p->lanes ? x->p->rows : x->p->lanes) * 8;
    return x->work + x->p->scratch + which * most;
}
/* Returns how many numbers node k has in one row, with the padding; counting: without. */
static int64_t length_of(const block *x, int k)
{
    const int extent = x->p->extent[k];
    return extent == EG_EXTENT_ONE ? EG_LANES : extent == EG_EXTENT_ROWS ? x->tall : x->wide;
}
static int64_t counting(const block *x, int k)
{
    const int extent = x->p->extent[k];
    return extent == EG_EXTENT_ONE ? 1 : extent == EG_EXTENT_ROWS ? x->b->rows : x->b->lanes;
}
/* Returns the numbers of node j that row r of node k reads, and the bytes to those of the next row.
 * *still: they are a single number, which all elements of the row share. */
static const char *seen_by(const block *x, int k, int j, int64_t r, int64_t *step, bool *still)
{
    const lying *v = &x->v[j];
    const int extent = x->p->extent[j];
    *step = 0;
    *still = extent == EG_EXTENT_ONE && x->p->extent[k] != EG_EXTENT_ONE;
    if (x->p->extent[k] != EG_EXTENT_BLOCK) return v->p;
    if (extent == EG_EXTENT_ROWS) *still = true;
    *step = extent == EG_EXTENT_BLOCK  ? v->step
            : extent == EG_EXTENT_ROWS ? block_width(x->p, j)
                                       : 0;
    return v->p + r * *step;
}
/* Writes n copies of the number `one`, of `width` bytes. */
static void copies(int width, int64_t n, void *to, const void *one)
{
    uint32_t four = 0;
    uint64_t eight = 0;
    memcpy(width == 8 ? (void *)&eight : &four, one, (size_t)width);
    if (width == 1)
        memset(to, *(const uint8_t *)one, (size_t)n);
    else if (width == 4)
        for (int64_t k = 0; k < n; k++) ((uint32_t *)to)[k] = four;
    else
        for (int64_t k = 0; k < n; k++) ((uint64_t *)to)[k] = eight;
}
/* Fills elements n … to − 1 with copies of element n − 1. */
static void pad(int width, int64_t n, int64_t to, char *p)
{
    if (n > 0 && n < to) copies(width, to - n, p + n * width, p + (n - 1) * width);
}

/* -- leaves ----------------------------------------------------------------------------------- */
static void fill_whole(const block *x, int64_t n, char *to, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    if (x->p->narrow)
        copies(4, n, to, &narrow);
    else
        copies(8, n, to, &value);
}
static void fill_float(const block *x, int64_t n, char *to, double value)
{
    const float narrow = (float)value;
    if (x->p->f64)
        copies(8, n, to, &value);
    else
        copies(4, n, to, &narrow);
}
static void letter_values(const block *x, int k)
{
    const eg_place *at = &x->b->place[x->p->e->node[k].in[0]];
    char *to = x->v[k].p;
    const int64_t n = counting(x, k), all = length_of(x, k);
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = at->value ? at->value[i] : at->first + i;
        if (x->p->narrow)
            ((int32_t *)(void *)to)[i] = (int32_t)v;
        else
            ((int64_t *)(void *)to)[i] = eg__clamped(v);
    }
    pad(block_width(x->p, k), n, all, to);
}
static void score_values(const block *x, int k)
{
    const int width = block_width(x->p, k);
    char *from = (char *)(uintptr_t)x->b->score;
    const int64_t step = x->b->score_step * width;
    if (x->wide == x->b->lanes) {
        x->v[k] = (lying){ from, step };
        return;
    }
    for (int64_t r = 0; r < x->b->rows; r++) {
        char *to = x->v[k].p + r * x->v[k].step;
        memcpy(to, from + r * step, (size_t)(x->b->lanes * width));
        pad(width, x->b->lanes, x->wide, to);
    }
}

/* -- tensors ---------------------------------------------------------------------------------- */
/* The places of the tensor that one row of a read takes, in elements: element l along lanes (along
 * rows, if the read depends on rows alone) is at base + l step or, if step is INT64_MIN, at base +
 * offset[l]. */
typedef struct reach {
    int64_t base, step;
    int64_t *offset;
} reach;
/* Returns element i of the whole number j. */
static int64_t whole_at(const block *x, int j, int64_t i)
{
    return x->p->narrow ? ((const int32_t *)(const void *)x->v[j].p)[i]
                        : ((const int64_t *)(const void *)x->v[j].p)[i];
}
/* Clamps i to 0 … limit, unless limit is negative. */
static int64_t kept(int64_t i, int64_t limit)
{
    return limit < 0 ? i : i < 0 ? 0 : i > limit ? limit : i;
}
/* True if node j is a letter whose positions are consecutive. */
static bool counts_along(const block *x, int j)
{
    const eg_node *n = &x->p->e->node[j];
    return n->code == EG_X_LETTER && !x->b->place[n->in[0]].value;
}
/* Finds the places of read k for row r; r is 0 if the read does not vary with rows and lanes.
 * Indices that are letters with consecutive positions contribute to the step; if another index
 * varies along the row, offsets are needed. */
static reach reach_of(const block *x, int k, int64_t r, const int64_t *stride)
{
    const eg_node *n = &x->p->e->node[k];
    const int along = x->p->extent[k] == EG_EXTENT_ROWS ? EG_EXTENT_ROWS : EG_EXTENT_LANES;
    const int64_t *dim = x->b->source[n->tensor].dim, all = length_of(x, k);
    reach y = { .offset = (int64_t *)(void *)(x->work + x->p->offsets) };
    bool begun = false;
    for (int i = 0; i < n->count; i++) {
        const int j = n->in[i], extent = x->p->extent[j];
        const int64_t limit = n->guard ? dim[i] - 1 : -1;
        if (!(extent & along)) {
            const int64_t at = whole_at(x, j, extent == EG_EXTENT_ROWS ? r : 0);
            y.base += kept(at, limit) * stride[i];
        } else if (counts_along(x, j) && !n->guard && !begun) {
            y.base += whole_at(x, j, 0) * stride[i];
            y.step += stride[i];
        } else {
            if (!begun) /* the step so far becomes offsets */
                for (int64_t l = 0; l < all; l++) y.offset[l] = l * y.step;
            begun = true;
            const char *at = x->v[j].p + (extent == EG_EXTENT_BLOCK ? r * x->v[j].step : 0);
            eg__offsets_add(all, y.offset, x->p->narrow, at, stride[i], limit);
            if (counts_along(x, j)) continue;
        }
    }
    if (begun) { /* the padding repeats the last place */
        for (int64_t l = counting(x, k); l < all; l++) y.offset[l] = y.offset[l - 1];
        y.step = INT64_MIN;
    }
    return y;
}
/* True if the tensor of a read has no elements. */
static bool is_empty(const block *x, const eg_node *n)
{
    for (int i = 0; i < n->count; i++)
        if (x->b->source[n->tensor].dim[i] == 0) return true;
    return false;
}
/* Writes row r of read k to `to`, converted to the width of whole numbers in this plan. */
static void read_row(const block *x, int k, int64_t r, char *to)
{
    const eg_node *n = &x->p->e->node[k];
    const eg_source *s = &x->b->source[n->tensor];
    const int from = eg__width[s->dtype], width = block_width(x->p, k);
    const reach at = reach_of(x, k, r, s->stride);
    const int64_t count = counting(x, k), all = length_of(x, k);
    const bool convert = n->kind == EG_IS_WHOLE && from != width;
    char *raw = convert ? row_buffer(x, 0) : to;
    const char *data = (const char *)s->data + at.base * from;
    if (at.step != INT64_MIN)
        eg__gather_steps(count, from, raw, data, at.step);
    else
        eg__gather(count, from, raw, data, at.offset);
    if (convert) eg__whole_copy(count, width == 8, to, from == 8, raw);
    pad(width, count, all, to);
}
/* Sets *g to the places of read k in a block, for tensors with these strides, if exactly one of its
 * indices varies along lanes; the last lanes of a row are `lanes` − 1. False if more of them do. */
static bool gathered_by_one(const block *x, int k, const int64_t *stride, int64_t lanes,
                            eg_gather *g)
{
    const eg_node *n = &x->p->e->node[k];
    const int64_t *dim = x->b->source[n->tensor].dim;
    int64_t *base = (int64_t *)(void *)(x->work + x->p->offsets), start = 0;
    int along = -1;
    bool rows = false;
    if (x->p->extent[k] != EG_EXTENT_BLOCK) return false;
    for (int i = 0; i < n->count; i++) {
        const int extent = x->p->extent[n->in[i]];
        if (extent & EG_EXTENT_LANES && along >= 0) return false;
        if (extent & EG_EXTENT_LANES) along = i;
        if (extent == EG_EXTENT_ROWS) rows = true;
        if (extent == EG_EXTENT_ONE)
            start += kept(whole_at(x, n->in[i], 0), n->guard ? dim[i] - 1 : -1) * stride[i];
    }
    if (along < 0) return false;
    for (int64_t r = 0; r < (rows || start ? x->b->rows : 0); r++) base[r] = start;
    for (int i = 0; i < n->count && rows; i++)
        for (int64_t r = 0; r < x->b->rows && x->p->extent[n->in[i]] == EG_EXTENT_ROWS; r++)
            base[r] += kept(whole_at(x, n->in[i], r), n->guard ? dim[i] - 1 : -1) * stride[i];
    const lying *v = &x->v[n->in[along]];
    *g = (eg_gather){ .rows = x->b->rows,
                      .lanes = lanes,
                      .base = rows || start ? base : NULL,
                      .index = v->p,
                      .narrow = x->p->narrow,
                      .index_step = x->p->extent[n->in[along]] == EG_EXTENT_BLOCK
                                        ? v->step / (x->p->narrow ? 4 : 8)
                                        : 0,
                      .stride = stride[along],
                      .limit = n->guard ? dim[along] - 1 : -1 };
    return true;
}
/* Sets the values of read k: in place if they lie in the tensor as the block needs them, else they
 * are gathered row by row. */
static void read_values(const block *x, int k)
{
    const eg_node *n = &x->p->e->node[k];
    const eg_source *s = &x->b->source[n->tensor];
    const int width = block_width(x->p, k);
    lying *v = &x->v[k];
    const int64_t rows = x->p->extent[k] == EG_EXTENT_BLOCK ? x->b->rows : 1;
    if (is_empty(x, n)) {
        memset(v->p, 0, (size_t)(rows * length_of(x, k) * width));
        return;
    }
    bool direct = x->wide == x->b->lanes && x->p->extent[k] & EG_EXTENT_LANES && !n->guard &&
                  eg__width[s->dtype] == width;
    int64_t step = 0, row_step = 0;
    for (int i = 0; i < n->count; i++) { /* in place, if lanes are consecutive elements */
        const int j = n->in[i], extent = x->p->extent[j];
        if (extent != EG_EXTENT_ONE) direct &= extent != EG_EXTENT_BLOCK && counts_along(x, j);
        if (extent == EG_EXTENT_LANES) step += s->stride[i];
        if (extent == EG_EXTENT_ROWS) row_step += s->stride[i];
    }
    if (direct && step == 1) {
        const reach at = reach_of(x, k, 0, s->stride);
        *v = (lying){ (char *)(uintptr_t)s->data + at.base * width, row_step * width };
        return;
    }
    eg_gather g;
    if (gathered_by_one(x, k, s->stride, x->wide, &g))
        eg__gather_rows(&g, s->dtype, s->data, width, v->p, v->step / width);
    else
        for (int64_t r = 0; r < rows; r++) read_row(x, k, r, v->p + r * v->step);
}

/* -- operations ------------------------------------------------------------------------------- */
/* Sets the operands of node k, from row r on. False if loops have no form for those that are single
 * numbers: of three operands only the last two may be, together, and for values alone. */
static bool strip_operands(const block *x, int k, int64_t r, bool values, eg_strip *s)
{
    const eg_node *n = &x->p->e->node[k];
    s->still = 0;
    for (int i = 0; i < n->count; i++) {
        bool one;
        s->in[i] = seen_by(x, k, n->in[i], r, &s->step[i], &one);
        s->still |= (unsigned)one << i;
    }
    return n->count < 3 || !s->still || (values && s->still == 6);
}
/* Runs a loop over the rows of node k; if it has no form for the operands, row by row with single
 * numbers copied along the row. */
static void strip_run(const block *x, int k, bool values, eg_strip_loop *loop, eg_strip *s)
{
    const eg_node *n = &x->p->e->node[k];
    if (strip_operands(x, k, 0, values, s)) {
        loop(s);
        return;
    }
    const int64_t rows = s->rows;
    char *out = s->out;
    const char *g = s->g, *y = s->y;
    s->rows = 1;
    for (int64_t r = 0; r < rows; r++) {
        strip_operands(x, k, r, values, s);
        s->out = out + r * s->out_step;
        s->g = values ? NULL : g + r * s->g_step;
        s->y = values ? NULL : y + r * s->y_step;
        for (int i = 0; i < 3; i++) {
            if (!(s->still >> i & 1)) continue;
            void *room = row_buffer(x, 1 + i);
            copies(block_width(x->p, n->in[i]), s->n, room, s->in[i]);
            s->in[i] = room;
        }
        s->still = 0;
        loop(s);
    }
}
/* True if node k and its operands lie such that all rows can be computed as one long row. */
static bool is_flat(const block *x, int k, bool values)
{
    const eg_node *n = &x->p->e->node[k];
    int one = 0;
    if (x->p->extent[k] != EG_EXTENT_BLOCK || x->v[k].step != x->wide * block_width(x->p, k))
        return false;
    for (int i = 0; i < n->count; i++) {
        const int j = n->in[i], extent = x->p->extent[j];
        if (extent == EG_EXTENT_ONE)
            one |= 1 << i;
        else if (extent != EG_EXTENT_BLOCK || x->v[j].step != x->wide * block_width(x->p, j))
            return false;
    }
    return n->count < 3 || !one || (values && one == 6);
}
static eg_strip_loop *loop_of(const block *x, const eg_node *n)
{
    const eg_node *first = &x->p->e->node[n->in[0]];
    if (n->code == EG_X_TO_FLOAT) return x->floats->float_of[!x->p->narrow];
    if (n->kind == EG_IS_FLOAT) return x->floats->of_float[n->code];
    if (n->kind == EG_IS_WHOLE) return x->wholes->of_whole[n->code];
    if (first->kind == EG_IS_FLOAT) return x->floats->of_float[n->code];
    if (first->kind == EG_IS_WHOLE) return x->wholes->of_whole[n->code];
    return x->floats->of_truth[n->code];
}
static void operation_values(const block *x, int k)
{
    const bool flat = is_flat(x, k, true);
    eg_strip s = { .rows = x->p->extent[k] == EG_EXTENT_BLOCK && !flat ? x->b->rows : 1,
                   .n = flat ? x->b->rows * x->wide : length_of(x, k),
                   .out = x->v[k].p,
                   .out_step = x->v[k].step };
    strip_run(x, k, true, loop_of(x, &x->p->e->node[k]), &s);
}

/* Copies the value of the root, rows × lanes without padding, to the caller's result. */
static void hand_out(const block *x)
{
    const int k = x->p->root, extent = x->p->extent[k], width = block_width(x->p, k);
    const bool whole = x->p->e->node[k].kind == EG_IS_WHOLE;
    const int wide = whole ? 8 : width;
    for (int64_t r = 0; r < x->b->rows; r++) {
        bool one;
        const char *from = x->v[k].p;
        char *to = (char *)x->b->out + r * x->b->out_step * wide;
        if (extent == EG_EXTENT_BLOCK) from += r * x->v[k].step;
        if (extent == EG_EXTENT_ROWS) from += r * width;
        one = !(extent & EG_EXTENT_LANES);
        if (one) {
            copies(width, x->b->lanes, row_buffer(x, 0), from);
            from = row_buffer(x, 0);
        }
        if (whole)
            eg__whole_copy(x->b->lanes, true, to, width == 8, from);
        else if (to != from)
            memcpy(to, from, (size_t)(x->b->lanes * width));
    }
}
/* True if the root's value can be computed directly in the caller's result. */
static bool made_there(const block *x)
{
    const int k = x->p->root;
    const eg_node *n = &x->p->e->node[k];
    return x->p->extent[k] == EG_EXTENT_BLOCK && x->wide == x->b->lanes && n->kind != EG_IS_WHOLE &&
           n->code > EG_X_READ && !x->p->slopes && x->b->out;
}
void eg__block_values(const eg_block_plan *p, const eg_block_data *b, void *workspace)
{
    const block x = begin(p, b, workspace);
    for (int k = 0; k <= p->root; k++) {
        const eg_node *n = &p->e->node[k];
        if (!p->used[k]) continue;
        x.v[k] = (lying){ x.work + p->at[k], x.wide * block_width(p, k) };
        if (k == p->root && made_there(&x))
            x.v[k] = (lying){ b->out, b->out_step * block_width(p, k) };
        switch (n->code) {
        case EG_X_WHOLE:
        case EG_X_SIZE: fill_whole(&x, EG_LANES, x.v[k].p, n->whole); break;
        case EG_X_FLOAT: fill_float(&x, EG_LANES, x.v[k].p, n->real); break;
        case EG_X_LETTER: letter_values(&x, k); break;
        case EG_X_SCORE: score_values(&x, k); break;
        case EG_X_READ: read_values(&x, k); break;
        default: operation_values(&x, k); break;
        }
    }
    if (!made_there(&x) && b->out) hand_out(&x);
}

/* -- cotangents ------------------------------------------------------------------------------- */
/* Returns row r of the cotangent of node k. */
static char *cotangent_at(const block *x, int k, int64_t r)
{
    const int64_t width = x->p->f64 ? 8 : 4;
    return x->work + x->p->slope[k] +
           (x->p->extent[k] == EG_EXTENT_BLOCK ? r * x->wide * width : 0);
}
static double float_at(const block *x, const void *p, int64_t k)
{
    return x->p->f64 ? ((const double *)p)[k] : (double)((const float *)p)[k];
}
/* Adds value to element k of p; writes it if fresh. */
static void put_float(const block *x, void *p, int64_t k, double value, bool fresh)
{
    if (x->p->f64)
        ((double *)p)[k] = fresh ? value : ((double *)p)[k] + value;
    else
        ((float *)p)[k] = fresh ? (float)value : ((float *)p)[k] + (float)value;
}
/* Adds rows of n cotangents, `step` bytes apart, to the cotangent of node j, summed over the rows,
 * the lanes or both that j does not vary with. */
static void fold(block *x, int j, int64_t rows, int64_t n, const void *from, int64_t step)
{
    const int extent = x->p->extent[j];
    double *sum = (double *)(void *)(x->work + x->p->sums), all = 0;
    char *to = cotangent_at(x, j, 0);
    if (extent == EG_EXTENT_LANES) {
        void *row = row_buffer(x, 0);
        memset(sum, 0, (size_t)x->wide * 8);
        x->floats->add_rows(rows, n, sum, from, step);
        x->floats->from_wide(x->wide, x->fresh[j] ? to : row, sum);
        if (!x->fresh[j]) x->floats->add(x->wide, to, row);
    } else if (extent == EG_EXTENT_ROWS) {
        x->floats->totals(rows, n, sum, from, step);
        for (int64_t r = 0; r < rows; r++) put_float(x, to, r, sum[r], x->fresh[j]);
        for (int64_t r = rows; r < x->tall; r++) put_float(x, to, r, 0, true);
    } else {
        x->floats->totals(rows, n, sum, from, step);
        for (int64_t r = 0; r < rows; r++) all += sum[r];
        for (int k = 0; k < EG_LANES; k++) put_float(x, to, k, all, x->fresh[j]);
    }
    x->fresh[j] = false;
}
/* Sets the cotangent of the root from that of the caller. */
static void take_in(block *x)
{
    const int k = x->p->root, width = x->p->f64 ? 8 : 4;
    const int64_t lanes = x->b->lanes, step = x->b->g_step * width;
    if (x->p->extent[k] != EG_EXTENT_BLOCK) {
        fold(x, k, x->b->rows, lanes, x->b->g, step);
        return;
    }
    x->fresh[k] = false;
    if (x->wide * width == step && x->wide == lanes) {
        memcpy(cotangent_at(x, k, 0), x->b->g, (size_t)(x->b->rows * step));
        return;
    }
    for (int64_t r = 0; r < x->b->rows; r++) {
        char *to = cotangent_at(x, k, r);
        memcpy(to, (const char *)x->b->g + r * step, (size_t)(lanes * width));
        memset(to + lanes * width, 0, (size_t)((x->wide - lanes) * width));
    }
}
/* Sets to 0 what the rows of a cotangent, `step` bytes apart, have of elements that do not count:
 * where the cotangent is 0 and the derivative infinite, it is NaN. */
static void clear_rows(const block *x, char *row, int64_t step)
{
    const uint8_t *allow = x->b->allow;
    for (int64_t r = 0; allow && r < x->b->rows; r++, row += step, allow += x->b->allow_step)
        x->floats->clear(x->b->lanes, row, allow);
}
/* Adds to the cotangent of operand i of node k what it gets from that of k. */
static void to_operand(block *x, int k, int i)
{
    const eg_block_plan *p = x->p;
    const eg_node *n = &p->e->node[k];
    const int j = n->in[i];
    const bool same = p->extent[j] == p->extent[k], there = same && x->fresh[j],
               flat = is_flat(x, k, false);
    const int64_t rows = p->extent[k] == EG_EXTENT_BLOCK ? x->b->rows : 1, length = length_of(x, k),
                  step = length * (p->f64 ? 8 : 4);
    void *to = there ? cotangent_at(x, j, 0) : x->work + p->spare;
    eg_strip s = { .rows = flat ? 1 : rows,
                   .n = flat ? rows * length : length,
                   .out = to,
                   .out_step = step,
                   .g = cotangent_at(x, k, 0),
                   .g_step = step,
                   .y = x->v[k].p,
                   .y_step = x->v[k].step };
    strip_run(x, k, false, x->floats->slope[n->code][i], &s);
    if (!same && p->extent[k] == EG_EXTENT_BLOCK) clear_rows(x, to, step);
    if (!same)
        fold(x, j, rows, counting(x, k), to, step);
    else if (!there)
        x->floats->add(rows * length, cotangent_at(x, j, 0), to);
    x->fresh[j] = false;
}
/* Adds the cotangent of read k to that of its tensor, or writes it if the sink is direct. */
static void to_tensor(const block *x, int k)
{
    const eg_node *n = &x->p->e->node[k];
    const eg_sink *s = &x->b->sink[n->tensor];
    const int64_t count = counting(x, k),
                  rows = x->p->extent[k] == EG_EXTENT_BLOCK ? x->b->rows : 1;
    if (!s->data || is_empty(x, n)) return;
    const int width = x->p->f64 ? 8 : 4;
    if (x->p->extent[k] == EG_EXTENT_BLOCK) clear_rows(x, cotangent_at(x, k, 0), x->wide * width);
    eg_gather g;
    if (!s->direct && gathered_by_one(x, k, s->stride, count, &g)) {
        eg__scatter_rows(&g, width, cotangent_at(x, k, 0), x->wide, s->data);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const reach at = reach_of(x, k, r, s->stride);
        char *d = cotangent_at(x, k, r);
        if (s->direct && at.step == 1)
            memcpy((char *)s->data + at.base * width, d, (size_t)(count * width));
        else if (s->direct)
            for (int64_t l = 0; l < count; l++)
                put_float(x, s->data, at.base + l * at.step, float_at(x, d, l), true);
        else
            x->floats->scatter(count, (double *)s->data + at.base,
                               at.step == INT64_MIN ? at.offset : NULL, at.step, d);
    }
}
static void to_score(const block *x, int k)
{
    const int64_t width = x->p->f64 ? 8 : 4;
    clear_rows(x, cotangent_at(x, k, 0), x->wide * width);
    if (x->wide == x->b->lanes && x->wide == x->b->dscore_step) {
        memcpy(x->b->dscore, cotangent_at(x, k, 0), (size_t)(x->b->rows * x->wide * width));
        return;
    }
    for (int64_t r = 0; r < x->b->rows; r++)
        memcpy((char *)x->b->dscore + r * x->b->dscore_step * width, cotangent_at(x, k, r),
               (size_t)(x->b->lanes * width));
}
void eg__block_slopes(const eg_block_plan *p, const eg_block_data *b, void *workspace)
{
    block x = begin(p, b, workspace);
    memset(x.fresh, true, sizeof x.fresh);
    if (!p->moved[p->root]) return;
    take_in(&x);
    for (int k = p->root; k >= 0; k--) {
        const eg_node *n = &p->e->node[k];
        if (!p->moved[k] || x.fresh[k]) continue;
        if (n->code == EG_X_READ)
            to_tensor(&x, k);
        else if (n->code == EG_X_SCORE)
            to_score(&x, k);
        else
            for (int i = 0; i < n->count; i++)
                if (p->moved[n->in[i]]) to_operand(&x, k, i);
    }
}
