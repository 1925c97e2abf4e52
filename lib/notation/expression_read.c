/* expression_read.c: the elements of a tensor that a block of rows × lanes reads. */
#include "notation/expression_block.h"

/* the extents that vary along lanes */
enum { ALONG_LANES = EG_EXTENT_LANES | EG_EXTENT_DIAGONAL };

/* Returns element i of node j, which is an integer. */
static int64_t whole_at(const eg_evaluation *x, int j, int64_t i)
{
    return x->p->narrow ? ((const int32_t *)(const void *)x->v[j].p)[i]
                        : ((const int64_t *)(const void *)x->v[j].p)[i];
}
/* Clamps i to 0 … limit, unless limit is negative. */
static int64_t clamped(int64_t i, int64_t limit)
{
    return limit < 0 ? i : i < 0 ? 0 : i > limit ? limit : i;
}
/* True if node j is a letter whose positions are consecutive. */
static bool counts_along(const eg_evaluation *x, int j)
{
    const eg_node *n = &x->p->e->node[j];
    return n->code == EG_X_LETTER && !x->b->letter[n->in[0]].value;
}
/* Indices that are letters with consecutive positions contribute to the step. If any other index
 * varies along the row, offsets are needed. */
eg_reach eg__reach_of(const eg_evaluation *x, int k, int64_t r, const int64_t *stride)
{
    const eg_node *n = &x->p->e->node[k];
    const int along = x->p->extent[k] == EG_EXTENT_ROWS       ? EG_EXTENT_ROWS
                      : x->p->extent[k] == EG_EXTENT_DIAGONAL ? EG_EXTENT_DIAGONAL
                                                              : ALONG_LANES;
    const int64_t *dim = x->b->source[n->tensor].dim, all = eg__node_length(x, k);
    eg_reach y = { .offset = (int64_t *)(void *)(x->work + x->p->offsets) };
    bool begun = false;
    for (int i = 0; i < n->count; i++) {
        const int j = n->in[i], extent = x->p->extent[j];
        const int64_t limit = n->guard ? dim[i] - 1 : -1;
        if (!(extent & along)) {
            const int64_t at = whole_at(x, j, extent == EG_EXTENT_ROWS ? r : 0);
            y.base += clamped(at, limit) * stride[i];
        } else if (counts_along(x, j) && !n->guard && !begun) {
            y.base += whole_at(x, j, 0) * stride[i];
            y.step += stride[i];
        } else {
            if (!begun) /* the step so far is converted to offsets */
                for (int64_t l = 0; l < all; l++) y.offset[l] = l * y.step;
            begun = true;
            int64_t step;
            const char *at = x->v[j].p;
            if (x->p->extent[k] == EG_EXTENT_BLOCK) at = eg__node_row(x, j, r, &step);
            eg__offsets_add(all, y.offset, x->p->narrow, at, stride[i], limit);
        }
    }
    if (begun) { /* the padding repeats the last element */
        for (int64_t l = eg__node_count(x, k); l < all; l++) y.offset[l] = y.offset[l - 1];
        y.step = INT64_MIN;
    }
    return y;
}
bool eg__reads_empty(const eg_evaluation *x, const eg_node *n)
{
    for (int i = 0; i < n->count; i++)
        if (x->b->source[n->tensor].dim[i] == 0) return true;
    return false;
}
/* Writes row r of read k to `to`, with integers converted to the width of the plan. */
static void read_row(const eg_evaluation *x, int k, int64_t r, char *to)
{
    const eg_node *n = &x->p->e->node[k];
    const eg_source *s = &x->b->source[n->tensor];
    const int from = eg__width[s->dtype], width = eg__node_width(x->p, k);
    const eg_reach at = eg__reach_of(x, k, r, s->stride);
    const int64_t count = eg__node_count(x, k), all = eg__node_length(x, k);
    const bool convert = n->kind == EG_IS_INTEGER && from != width;
    char *raw = convert ? eg__row_buffer(x, 0) : to;
    const char *data = (const char *)s->data + at.base * from;
    if (at.step != INT64_MIN)
        eg__gather_steps(count, from, raw, data, at.step);
    else
        eg__gather(count, from, raw, data, at.offset);
    if (convert) eg__integers_copy(count, width == 8, to, from == 8, raw);
    eg__pad_row(width, count, all, to);
}
/* Adds up the indices of read k that vary along lanes, each clamped and times its stride, to one
 * index of *g: a row of sums for each row of the block, or a single one if they do not vary with
 * rows. False if the plan has no memory for the sums, or if the integers are too narrow for them.
 */
static bool join_indices(const eg_evaluation *x, int k, const int64_t *stride, eg_gather *g)
{
    const eg_node *n = &x->p->e->node[k];
    const int64_t *dim = x->b->source[n->tensor].dim;
    const int64_t most = x->p->narrow ? INT32_MAX : INT64_MAX, width = x->p->narrow ? 4 : 8;
    int64_t rows = 1, reach = 0;
    bool begun = false;
    for (int i = 0; i < n->count; i++) {
        const int extent = x->p->extent[n->in[i]];
        if (!(extent & ALONG_LANES)) continue;
        if (extent != EG_EXTENT_LANES) rows = x->b->rows;
        reach += (dim[i] - 1) * (stride[i] < 0 ? -stride[i] : stride[i]);
    }
    if (!x->p->joined || reach > most) return false;
    for (int i = 0; i < n->count; i++) {
        if (!(x->p->extent[n->in[i]] & ALONG_LANES)) continue;
        int64_t step;
        const char *index = eg__node_row(x, n->in[i], 0, &step);
        eg__indices_add(rows, x->wide, x->p->narrow, index, step / width,
                        dim[i] > 1 ? stride[i] : 0, n->guard ? dim[i] - 1 : -1, begun,
                        x->work + x->p->joined);
        begun = true;
    }
    g->index = x->work + x->p->joined;
    g->index_step = rows > 1 ? x->wide : 0;
    g->stride = 1;
    g->limit = -1;
    return true;
}
/* Sets the index of *g to the one index of read k that varies along lanes, number `along`. */
static void take_index(const eg_evaluation *x, int k, int along, const int64_t *stride,
                       eg_gather *g)
{
    const eg_node *n = &x->p->e->node[k];
    const int j = n->in[along];
    int64_t step;
    g->index = eg__node_row(x, j, 0, &step);
    if (x->p->extent[k] == EG_EXTENT_DIAGONAL) g->index = x->v[j].p;
    g->index_step = step / (x->p->narrow ? 4 : 8);
    g->stride = stride[along];
    g->limit = n->guard ? x->b->source[n->tensor].dim[along] - 1 : -1;
    g->first = whole_at(x, j, 0);
    g->counts = counts_along(x, j) &&
                (g->limit < 0 || (g->first >= 0 && g->first + x->b->lanes - 1 <= g->limit));
}
bool eg__gather_of(const eg_evaluation *x, int k, const int64_t *stride, int64_t lanes,
                   eg_gather *g)
{
    const eg_node *n = &x->p->e->node[k];
    const int64_t *dim = x->b->source[n->tensor].dim;
    int64_t *base = (int64_t *)(void *)(x->work + x->p->offsets), start = 0;
    int along = -1, count = 0;
    bool rows = false;
    const bool diagonal = x->p->extent[k] == EG_EXTENT_DIAGONAL; /* one row of all diagonals */
    if (!diagonal && x->p->extent[k] != EG_EXTENT_BLOCK) return false;
    for (int i = 0; i < n->count; i++) {
        const int extent = x->p->extent[n->in[i]];
        if (extent & ALONG_LANES) along = i, count++;
        if (extent == EG_EXTENT_ROWS) rows = true;
        if (extent == EG_EXTENT_ONE)
            start += clamped(whole_at(x, n->in[i], 0), n->guard ? dim[i] - 1 : -1) * stride[i];
    }
    *g = (eg_gather){ .rows = diagonal ? 1 : x->b->rows,
                      .lanes = lanes,
                      .base = rows || start ? base : NULL,
                      .narrow = x->p->narrow };
    if (count == 1)
        take_index(x, k, along, stride, g);
    else if (diagonal || x->p->rows == 1 || !join_indices(x, k, stride, g))
        return false;
    for (int64_t r = 0; r < (rows || start ? x->b->rows : 0); r++) base[r] = start;
    for (int i = 0; i < n->count && rows; i++)
        for (int64_t r = 0; r < x->b->rows && x->p->extent[n->in[i]] == EG_EXTENT_ROWS; r++)
            base[r] += clamped(whole_at(x, n->in[i], r), n->guard ? dim[i] - 1 : -1) * stride[i];
    return true;
}
void eg__read_values(const eg_evaluation *x, int k)
{
    const eg_node *n = &x->p->e->node[k];
    const eg_source *s = &x->b->source[n->tensor];
    const int width = eg__node_width(x->p, k);
    eg_stored *v = &x->v[k];
    const int64_t rows = x->p->extent[k] == EG_EXTENT_BLOCK ? x->b->rows : 1;
    if (eg__reads_empty(x, n)) {
        memset(v->p, 0, (size_t)(rows * eg__node_length(x, k) * width));
        return;
    }
    bool steady = x->p->extent[k] & EG_EXTENT_LANES && !n->guard && eg__width[s->dtype] == width;
    int64_t step = 0, row_step = 0; /* steady: distances of lanes and of rows */
    for (int i = 0; i < n->count; i++) {
        const int j = n->in[i], extent = x->p->extent[j];
        if (extent != EG_EXTENT_ONE) steady &= extent != EG_EXTENT_BLOCK && counts_along(x, j);
        if (extent == EG_EXTENT_LANES) step += s->stride[i];
        if (extent == EG_EXTENT_ROWS) row_step += s->stride[i];
    }
    const eg_reach first = steady ? eg__reach_of(x, k, 0, s->stride) : (eg_reach){ 0 };
    char *data = (char *)(uintptr_t)s->data + first.base * width;
    if (steady && step == 1 && x->wide == x->b->lanes) { /* in place */
        *v = (eg_stored){ data, row_step * width };
        return;
    }
    if (steady && row_step == 1 && rows > 1 && width >= 4) { /* rows are consecutive elements */
        eg__transpose((size_t)width, x->b->lanes, rows, data, step, v->p, v->step / width, false);
        for (int64_t r = 0; r < rows; r++)
            eg__pad_row(width, x->b->lanes, x->wide, v->p + r * v->step);
        return;
    }
    eg_gather g;
    if (!eg__gather_of(x, k, s->stride, eg__node_length(x, k), &g)) {
        for (int64_t r = 0; r < rows; r++) read_row(x, k, r, v->p + r * v->step);
        return;
    }
    const int64_t apart = eg__gather_apart(&g);
    if (apart != INT64_MIN && g.stride == 1 && x->wide == x->b->lanes &&
        eg__width[s->dtype] == width) /* in place: rows at equal distances */
        *v =
            (eg_stored){ (char *)(uintptr_t)s->data + eg__gather_first(&g) * width, apart * width };
    else if (g.counts) { /* the padding must not be read, as it may be outside of the tensor */
        g.lanes = x->b->lanes;
        eg__gather_rows(&g, s->dtype, s->data, width, v->p, v->step / width);
        for (int64_t r = 0; r < rows; r++)
            eg__pad_row(width, x->b->lanes, x->wide, v->p + r * v->step);
    } else
        eg__gather_rows(&g, s->dtype, s->data, width, v->p, v->step / width);
}
