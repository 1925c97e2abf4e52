/* expression_slopes.c: the cotangents of an expression over a block of rows × lanes. */
#include "notation/expression_block.h"
#include <math.h>

/* Returns row r of the cotangent of node k. */
static char *cotangent_at(const eg_evaluation *x, int k, int64_t r)
{
    const int64_t width = x->p->f64 ? 8 : 4;
    return x->slope[k] + (x->p->extent[k] == EG_EXTENT_BLOCK ? r * x->wide * width : 0);
}
static double float_at(const eg_evaluation *x, const void *p, int64_t k)
{
    return x->p->f64 ? ((const double *)p)[k] : (double)((const float *)p)[k];
}
/* Adds value to element k of p; sets the element if `fresh`. */
static void put_float(const eg_evaluation *x, void *p, int64_t k, double value, bool fresh)
{
    if (x->p->f64)
        ((double *)p)[k] = fresh ? value : ((double *)p)[k] + value;
    else
        ((float *)p)[k] = fresh ? (float)value : ((float *)p)[k] + (float)value;
}
/* Adds `sign` times n cotangents in each of `rows` rows, `step` bytes apart, to the cotangent of
 * node j, summed over the elements of the block along which j does not vary. */
static void fold(eg_evaluation *x, int j, int sign, int64_t rows, int64_t n, const void *from,
                 int64_t step)
{
    const int extent = x->p->extent[j];
    double *sum = (double *)(void *)(x->work + x->p->sums), all = 0;
    char *to = cotangent_at(x, j, 0);
    if (extent == EG_EXTENT_LANES || extent == EG_EXTENT_DIAGONAL) {
        const int64_t length = eg__node_length(x, j);
        void *row = eg__row_buffer(x, 0);
        memset(sum, 0, (size_t)length * 8);
        (extent == EG_EXTENT_LANES ? x->floats->add_rows : x->floats->add_diagonals)(rows, n, sum,
                                                                                     from, step);
        for (int64_t k = 0; sign < 0 && k < length; k++) sum[k] = -sum[k];
        x->floats->from_wide(length, x->fresh[j] ? to : row, sum);
        if (!x->fresh[j]) x->floats->add(length, to, row);
    } else if (extent == EG_EXTENT_ROWS) {
        x->floats->totals(rows, n, sum, from, step);
        for (int64_t r = 0; r < rows; r++) put_float(x, to, r, sign * sum[r], x->fresh[j]);
        for (int64_t r = rows; r < x->tall; r++) put_float(x, to, r, 0, true);
    } else {
        x->floats->totals(rows, n, sum, from, step);
        for (int64_t r = 0; r < rows; r++) all += sum[r];
        for (int k = 0; k < EG_LANES; k++) put_float(x, to, k, sign * all, x->fresh[j]);
    }
    x->fresh[j] = false;
}
/* Sets the cotangent of the root from that of the caller. */
static void set_root_cotangent(eg_evaluation *x)
{
    const int k = x->p->root, width = x->p->f64 ? 8 : 4;
    const int64_t lanes = x->b->lanes, step = x->b->g_step * width;
    if (x->p->extent[k] != EG_EXTENT_BLOCK) {
        fold(x, k, 1, x->b->rows, lanes, x->b->g, step);
        return;
    }
    x->fresh[k] = false;
    if (x->wide * width == step && x->wide == lanes) {
        if (x->p->overwrites && x->b->g == x->b->dscore) {
            x->slope[k] = x->b->dscore;
            return;
        }
        if (x->b->g != x->b->dscore && !x->b->allow) { /* nothing is written to it */
            x->slope[k] = (char *)(uintptr_t)x->b->g;
            return;
        }
        memcpy(cotangent_at(x, k, 0), x->b->g, (size_t)(x->b->rows * step));
        return;
    }
    for (int64_t r = 0; r < x->b->rows; r++) {
        char *to = cotangent_at(x, k, r);
        memcpy(to, (const char *)x->b->g + r * step, (size_t)(lanes * width));
        memset(to + lanes * width, 0, (size_t)((x->wide - lanes) * width));
    }
}
/* Sets the elements that do not count to 0 in the rows of a cotangent, `step` bytes apart: a
 * cotangent of 0 times an infinite derivative is NaN. */
static void clear_rows(const eg_evaluation *x, char *row, int64_t step)
{
    const uint8_t *allow = x->b->allow;
    row += x->b->allow_from * step;
    for (int r = 0; r < x->b->allow_rows; r++, row += step, allow += x->b->allow_step)
        x->floats->clear(x->b->lanes, row, allow);
}
/* True if an element counts: of row i or of lane i, by the extent; for other extents, of the
 * block. */
static bool any_counts(const eg_evaluation *x, int extent, int64_t i)
{
    const eg_block_data *b = x->b;
    const int64_t from = b->allow_from, to = from + b->allow_rows;
    const bool one_row = extent == EG_EXTENT_ROWS, one_lane = extent == EG_EXTENT_LANES;
    if (one_row ? i < from || i >= to : b->allow_rows < b->rows) return true;
    for (int64_t r = one_row ? i : from; r < (one_row ? i + 1 : to); r++) {
        const uint8_t *allow = b->allow + (r - from) * b->allow_step;
        if (one_lane ? allow[i] : memchr(allow, 1, (size_t)b->lanes) != NULL) return true;
    }
    return false;
}
/* clear_rows for a cotangent of node k, whatever its extent. If it is a sum over rows or lanes, an
 * element that is not finite is set to 0 if none of its summands counts. */
static void clear_node(const eg_evaluation *x, int k, char *p, int64_t step)
{
    const int extent = x->p->extent[k];
    if (extent == EG_EXTENT_BLOCK)
        clear_rows(x, p, step);
    else if (extent == EG_EXTENT_DIAGONAL) {
        if (x->diagonals) x->floats->clear(eg__node_count(x, k), p, x->diagonals);
    } else if (x->b->allow)
        for (int64_t i = 0; i < eg__node_count(x, k); i++)
            if (!isfinite(float_at(x, p, i)) && !any_counts(x, extent, i))
                put_float(x, p, i, 0, true);
}
/* Determines the diagonals with an element that counts, if not all elements of the block do. */
static void find_diagonals(eg_evaluation *x)
{
    const eg_block_data *b = x->b;
    const int64_t last = b->rows - 1, count = b->lanes + last, to = b->allow_from + b->allow_rows;
    uint8_t *any = (uint8_t *)x->work + x->p->diagonals;
    if (!x->p->diagonals || !b->allow_rows) return;
    memset(any, 0, (size_t)count);
    if (to <= last) memset(any, 1, (size_t)(last - to + b->lanes)); /* rows from `to` on */
    if (b->allow_from) /* rows before allow_from: diagonals from last − allow_from + 1 on */
        memset(any + last - b->allow_from + 1, 1, (size_t)(count - last + b->allow_from - 1));
    for (int64_t r = 0; r < b->allow_rows; r++) {
        const uint8_t *allow = b->allow + r * b->allow_step;
        uint8_t *at = any + last - b->allow_from - r;
        int64_t l = 0;
        for (uint64_t eight, too; l + 8 <= b->lanes; l += 8) {
            memcpy(&eight, at + l, 8), memcpy(&too, allow + l, 8);
            eight |= too;
            memcpy(at + l, &eight, 8);
        }
        for (; l < b->lanes; l++) at[l] |= allow[l];
    }
    x->diagonals = any;
}
/* Adds the part of operand i of node k to the cotangent of the operand. */
static void to_operand(eg_evaluation *x, int k, int i)
{
    const eg_block_plan *p = x->p;
    const eg_node *n = &p->e->node[k];
    const int j = n->in[i], sign = eg__slope_sign(n->code, i);
    const bool same = p->extent[j] == p->extent[k], there = same && x->fresh[j],
               flat = eg__is_flat(x, k);
    const int64_t rows = p->extent[k] == EG_EXTENT_BLOCK ? x->b->rows : 1,
                  length = eg__node_length(x, k), step = length * (p->f64 ? 8 : 4);
    if (p->passed[j]) {
        x->slope[j] = x->slope[k];
        x->fresh[j] = false;
        return;
    }
    void *to = there ? cotangent_at(x, j, 0) : x->work + p->spare;
    if (!same && sign) to = cotangent_at(x, k, 0);
    eg_loop_strip s = { .rows = flat ? 1 : rows,
                        .n = flat ? rows * length : length,
                        .out = to,
                        .out_step = step,
                        .g = cotangent_at(x, k, 0),
                        .g_step = step,
                        .y = x->v[k].p,
                        .y_step = x->v[k].step };
    s.first = p->first[k] < 0 ? x->v[k].p : x->work + p->first[k]; /* readable, if not kept */
    s.first_step = p->first[k] < 0 ? s.y_step : step;
    if (same || !sign) eg__strip_run(x, k, x->floats->slope[n->code][i], &s);
    if (!same) clear_node(x, k, to, step);
    if (!same)
        fold(x, j, sign ? sign : 1, rows, eg__node_count(x, k), to, step);
    else if (!there)
        x->floats->add(rows * length, cotangent_at(x, j, 0), to);
    x->fresh[j] = false;
}
/* Adds the cotangent of read k to that of its tensor; writes it if the sink is direct. */
static void to_tensor(const eg_evaluation *x, int k)
{
    const eg_node *n = &x->p->e->node[k];
    const eg_sink *s = &x->b->sink[n->tensor];
    const int64_t count = eg__node_count(x, k),
                  rows = x->p->extent[k] == EG_EXTENT_BLOCK ? x->b->rows : 1;
    if (!s->data || eg__reads_empty(x, n)) return;
    const int width = x->p->f64 ? 8 : 4;
    clear_node(x, k, cotangent_at(x, k, 0), x->wide * width);
    eg_gather g;
    if (!s->direct && (x->p->rows > 1 || s->few) && eg__gather_of(x, k, s->stride, count, &g)) {
        eg__scatter_rows(&g, width, cotangent_at(x, k, 0), x->wide, s->few, s->data);
        return;
    }
    if (s->direct && rows > 1 && eg__gather_of(x, k, s->stride, count, &g) &&
        eg__gather_apart(&g) == 1) {
        eg__transpose((size_t)width, rows, count, cotangent_at(x, k, 0), x->wide,
                      (char *)s->data + eg__gather_first(&g) * width, g.stride, false);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const eg_reach at = eg__reach_of(x, k, r, s->stride);
        char *d = cotangent_at(x, k, r);
        char *to = (char *)s->data + at.base * (s->direct || s->few ? width : 8);
        const int64_t *offset = at.step == INT64_MIN ? at.offset : NULL;
        if (s->direct && at.step == 1 && to == d) continue; /* computed in its place */
        if (s->direct && at.step == 1)
            memcpy(to, d, (size_t)(count * width));
        else if (s->direct)
            for (int64_t l = 0; l < count; l++)
                put_float(x, s->data, at.base + (offset ? offset[l] : l * at.step),
                          float_at(x, d, l), true);
        else if (at.step != 1)
            (s->few ? x->floats->scatter_same : x->floats->scatter)(count, to, offset, at.step, d);
        else if (s->few)
            x->floats->add(count, to, d);
        else
            x->floats->add_rows(1, count, (double *)(void *)to, d, 0);
    }
}
/* Sets the place of the cotangent of read k in its tensor, if that has it in the layout of the
 * block. */
static void place_in_tensor(eg_evaluation *x, int k)
{
    const eg_node *n = &x->p->e->node[k];
    const eg_sink *s = &x->b->sink[n->tensor];
    const int64_t width = x->p->f64 ? 8 : 4;
    if (!s->data || !s->direct || x->p->extent[k] != EG_EXTENT_BLOCK || x->wide != x->b->lanes ||
        x->b->allow || eg__reads_empty(x, n))
        return;
    const eg_reach at = eg__reach_of(x, k, 0, s->stride);
    if (at.step == 1 &&
        (x->b->rows == 1 || eg__reach_of(x, k, 1, s->stride).base == at.base + x->wide))
        x->slope[k] = (char *)s->data + at.base * width;
}
static void to_score(const eg_evaluation *x, int k)
{
    const int64_t width = x->p->f64 ? 8 : 4;
    clear_rows(x, cotangent_at(x, k, 0), x->wide * width);
    if (cotangent_at(x, k, 0) == x->b->dscore) return;
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
    eg_evaluation x;
    if (!p->moved[p->root]) return;
    eg__evaluation(&x, p, b, workspace);
    memset(x.fresh, true, (size_t)p->root + 1);
    for (int k = 0; k <= p->root; k++) {
        if (p->slope[k] < 0) continue;
        x.slope[k] = x.work + p->slope[k];
        if (p->e->node[k].code == EG_X_READ && p->moved[k] && !p->passed[k]) place_in_tensor(&x, k);
    }
    find_diagonals(&x);
    set_root_cotangent(&x);
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
