/* expression_values.c: the values of an expression over a block of rows × lanes. */
#include "notation/expression_block.h"

/* Writes n copies of the element `one` of `width` bytes. */
static void repeat(int width, int64_t n, void *to, const void *one)
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
void eg__pad_row(int width, int64_t n, int64_t to, char *p)
{
    if (n > 0 && n < to) repeat(width, to - n, p + n * width, p + (n - 1) * width);
}

/* Returns the elements of node j that row r of node k reads. Sets *step to the bytes between rows,
 * and *still to whether it is one element for the whole row. */
static const char *seen_by(const eg_evaluation *x, int k, int j, int64_t r, int64_t *step,
                           bool *still)
{
    const int extent = x->p->extent[j];
    *step = 0;
    *still = extent == EG_EXTENT_ONE && x->p->extent[k] != EG_EXTENT_ONE;
    if (x->p->extent[k] != EG_EXTENT_BLOCK) return x->v[j].p;
    if (extent == EG_EXTENT_ROWS) *still = true;
    return eg__node_row(x, j, r, step);
}
/* -- leaves ----------------------------------------------------------------------------------- */
static void fill_integer(const eg_evaluation *x, int64_t n, char *to, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    if (x->p->narrow)
        repeat(4, n, to, &narrow);
    else
        repeat(8, n, to, &value);
}
static void fill_float(const eg_evaluation *x, int64_t n, char *to, double value)
{
    const float narrow = (float)value;
    if (x->p->f64)
        repeat(8, n, to, &value);
    else
        repeat(4, n, to, &narrow);
}
static void letter_values(const eg_evaluation *x, int k)
{
    const eg_letter_values *at = &x->b->letter[x->p->e->node[k].in[0]];
    char *to = x->v[k].p;
    const bool one = x->p->steady[k] && !at->value; /* only the first element is read */
    const int64_t n = one ? 1 : eg__node_count(x, k), all = one ? EG_LANES : eg__node_length(x, k);
    if (x->p->narrow && !at->value)
        eg__count_from(all, (int32_t *)(void *)to, (int32_t)at->first, 1);
    for (int64_t i = 0; (!x->p->narrow || at->value) && i < n; i++) {
        const int64_t v = at->value ? at->value[i] : at->first + i;
        if (x->p->narrow)
            ((int32_t *)(void *)to)[i] = (int32_t)v;
        else
            ((int64_t *)(void *)to)[i] = eg__clamped(v);
    }
    eg__pad_row(eg__node_width(x->p, k), n, all, to);
}
static void score_values(const eg_evaluation *x, int k)
{
    const int width = eg__node_width(x->p, k);
    char *from = (char *)(uintptr_t)x->b->score;
    const int64_t step = x->b->score_step * width;
    if (x->wide == x->b->lanes) {
        x->v[k] = (eg_stored){ from, step };
        return;
    }
    for (int64_t r = 0; r < x->b->rows; r++) {
        char *to = x->v[k].p + r * x->v[k].step;
        memcpy(to, from + r * step, (size_t)(x->b->lanes * width));
        eg__pad_row(width, x->b->lanes, x->wide, to);
    }
}
/* True if node k is i − j itself, and not a function of it: one operand varies with rows, the other
 * one with lanes. */
static bool is_difference(const eg_block_plan *p, int k)
{
    const int first = p->extent[p->e->node[k].in[0]];
    return p->extent[k] == EG_EXTENT_DIAGONAL &&
           (first == EG_EXTENT_ROWS || first == EG_EXTENT_LANES);
}
/* Sets the value of i − j, which changes by one from diagonal to diagonal. */
static void difference_values(const eg_evaluation *x, int k)
{
    const eg_node *n = &x->p->e->node[k];
    const bool by_row = x->p->extent[n->in[0]] == EG_EXTENT_ROWS;
    const int64_t count = eg__node_count(x, k);
    const int32_t *a = (const int32_t *)(const void *)x->v[n->in[0]].p,
                  *b = (const int32_t *)(const void *)x->v[n->in[1]].p;
    const int32_t first = by_row ? a[x->b->rows - 1] - b[0] : a[0] - b[x->b->rows - 1];
    int32_t *to = (int32_t *)(void *)x->v[k].p;
    eg__count_from(eg__node_length(x, k), to, first, by_row ? -1 : 1);
    eg__pad_row(4, count, eg__node_length(x, k), x->v[k].p);
}

/* -- operations -------------------------------------------------------------------------------- */
void eg__strip_run(const eg_evaluation *x, int k, eg_strip_loop *loop, eg_loop_strip *s)
{
    const eg_node *n = &x->p->e->node[k];
    s->still = 0;
    for (int i = 0; i < n->count; i++) {
        bool one;
        s->in[i] = seen_by(x, k, n->in[i], 0, &s->step[i], &one);
        s->still |= (unsigned)one << i;
    }
    loop(s);
}
bool eg__is_flat(const eg_evaluation *x, int k)
{
    const eg_node *n = &x->p->e->node[k];
    if (x->p->extent[k] != EG_EXTENT_BLOCK || x->v[k].step != x->wide * eg__node_width(x->p, k))
        return false;
    for (int i = 0; i < n->count; i++) {
        const int j = n->in[i], extent = x->p->extent[j];
        if (extent == EG_EXTENT_ONE) continue;
        if (extent != EG_EXTENT_BLOCK || x->v[j].step != x->wide * eg__node_width(x->p, j))
            return false;
    }
    return true;
}
static eg_strip_loop *loop_of(const eg_evaluation *x, const eg_node *n)
{
    const eg_node *first = &x->p->e->node[n->in[0]];
    if (n->code == EG_X_TO_FLOAT) return x->floats->float_of[!x->p->narrow];
    if (n->kind == EG_IS_FLOAT) return x->floats->of_float[n->code];
    if (n->kind == EG_IS_INTEGER) return x->integers->of_integer[n->code];
    if (first->kind == EG_IS_FLOAT) return x->floats->of_float[n->code];
    if (first->kind == EG_IS_INTEGER) return x->integers->of_integer[n->code];
    return x->floats->of_condition[n->code];
}
/* True if only cotangents are computed from this block, and the value of node k is not needed for
 * them. */
static bool not_needed(const eg_evaluation *x, int k)
{
    return !x->b->out && x->p->slopes && !x->p->needed[k];
}
/* True if node k, the result in its place, is computed together with its factor by the loop of
 * products. */
static bool by_product(const eg_evaluation *x, int k, double factor)
{
    const eg_node *n = &x->p->e->node[k];
    return factor != 1 && n->kind == EG_IS_FLOAT && n->code == EG_X_MUL;
}
static void operation_values(const eg_evaluation *x, int k, double factor)
{
    const bool flat = eg__is_flat(x, k);
    const int64_t first = x->p->first[k];
    eg_loop_strip s = { .rows = x->p->extent[k] == EG_EXTENT_BLOCK && !flat ? x->b->rows : 1,
                        .n = flat ? x->b->rows * x->wide : eg__node_length(x, k),
                        .out = not_needed(x, k) ? NULL : x->v[k].p,
                        .out_step = x->v[k].step,
                        .first = first < 0 ? NULL : x->work + first,
                        .first_step = eg__node_length(x, k) * eg__node_width(x->p, k),
                        .factor = factor };
    eg_strip_loop *loop =
        by_product(x, k, factor) ? x->floats->product : loop_of(x, &x->p->e->node[k]);
    eg__strip_run(x, k, loop, &s);
}

/* Computes node k, a sum, times a factor, and in the same loop its summand that is a sum within
 * it. */
static void sum_values(const eg_evaluation *x, int k, double factor)
{
    static const double zero;
    const eg_node *n = &x->p->e->node[k];
    const int inner = x->p->within[n->in[0]] == k ? 0 : x->p->within[n->in[1]] == k ? 1 : -1;
    const eg_node *first = inner < 0 ? n : &x->p->e->node[n->in[inner]];
    const double sign = inner < 0 ? 1 : eg__slope_sign(n->code, inner);
    eg_loop_strip s = { .rows = x->b->rows,
                        .n = x->wide,
                        .out = x->v[k].p,
                        .out_step = x->v[k].step,
                        .sign = { sign, sign * eg__slope_sign(first->code, 1), 1 },
                        .in = { NULL, NULL, &zero },
                        .still = 4,
                        .factor = factor };
    bool still[3] = { false, false, true };
    for (int i = 0; i < 2; i++) s.in[i] = seen_by(x, k, first->in[i], 0, &s.step[i], &still[i]);
    if (inner >= 0) {
        s.in[2] = seen_by(x, k, n->in[!inner], 0, &s.step[2], &still[2]);
        s.sign[2] = eg__slope_sign(n->code, !inner);
    }
    if (still[0]) { /* the other one of the two varies along the row */
        const eg_loop_strip t = s;
        s.in[0] = t.in[1], s.step[0] = t.step[1], s.sign[0] = t.sign[1];
        s.in[1] = t.in[0], s.step[1] = t.step[0], s.sign[1] = t.sign[0];
    }
    s.still = (unsigned)(still[0] || still[1]) << 1 | (unsigned)still[2] << 2;
    x->floats->sum(&s);
}

/* Copies the value of the root, rows × lanes without padding, to the caller's result. */
static void copy_result(const eg_evaluation *x)
{
    const int k = x->p->root, extent = x->p->extent[k], width = eg__node_width(x->p, k);
    const bool integer = x->p->e->node[k].kind == EG_IS_INTEGER;
    const int wide = integer ? 8 : width;
    for (int64_t r = 0; r < x->b->rows; r++) {
        int64_t step;
        const char *from = eg__node_row(x, k, r, &step);
        char *to = (char *)x->b->out + r * x->b->out_step * wide;
        if (extent == EG_EXTENT_ONE || extent == EG_EXTENT_ROWS) {
            repeat(width, x->b->lanes, eg__row_buffer(x, 0), from);
            from = eg__row_buffer(x, 0);
        }
        if (integer)
            eg__integers_copy(x->b->lanes, true, to, width == 8, from);
        else if (to != from)
            memcpy(to, from, (size_t)(x->b->lanes * width));
    }
}
/* True if the value of the root can be computed directly in the caller's result. */
static bool in_place(const eg_evaluation *x)
{
    const int k = x->p->root;
    const eg_node *n = &x->p->e->node[k];
    return x->p->extent[k] == EG_EXTENT_BLOCK && x->wide == x->b->lanes &&
           n->kind != EG_IS_INTEGER && n->code >= EG_X_READ && x->b->out &&
           (!x->p->slopes || !eg__slope_reads_value(n->code));
}
/* True if node k is computed by the loop of sums: it has a sum within it, or it is the result, in
 * its place, with a factor. */
static bool by_sum(const eg_evaluation *x, int k, double factor)
{
    const eg_node *n = &x->p->e->node[k];
    const bool sum = n->kind == EG_IS_FLOAT && (n->code == EG_X_ADD || n->code == EG_X_SUB);
    return sum && (x->p->within[n->in[0]] == k || x->p->within[n->in[1]] == k || factor != 1);
}
/* Computes node k. Only a node that is computed in place in the result has a factor. False if its
 * value must still be multiplied by it. */
static bool node_values(const eg_evaluation *x, int k, double factor)
{
    const eg_node *n = &x->p->e->node[k];
    switch (n->code) {
    case EG_X_INTEGER:
    case EG_X_SIZE: fill_integer(x, EG_LANES, x->v[k].p, n->integer); break;
    case EG_X_FLOAT: fill_float(x, EG_LANES, x->v[k].p, n->real); break;
    case EG_X_LETTER: letter_values(x, k); break;
    case EG_X_SCORE: score_values(x, k); break;
    case EG_X_READ: eg__read_values(x, k); break;
    default:
        if (by_sum(x, k, factor)) {
            sum_values(x, k, factor);
            return true;
        }
        if (is_difference(x->p, k))
            difference_values(x, k);
        else
            operation_values(x, k, factor);
    }
    return factor == 1 || by_product(x, k, factor);
}
void eg__block_values(const eg_block_plan *p, const eg_block_data *b, void *workspace)
{
    eg_evaluation x;
    eg__evaluation(&x, p, b, workspace);
    const double factor = b->factor != 0 ? b->factor : 1;
    const bool there = in_place(&x);
    bool done = factor == 1;
    for (int k = 0; k <= p->root; k++) {
        if (!p->used[k]) continue; /* v is also set for a value that is not computed */
        x.v[k] = (eg_stored){ x.work + p->at[k], x.wide * eg__node_width(p, k) };
        const bool last = k == p->root && there;
        if (last) x.v[k] = (eg_stored){ b->out, b->out_step * eg__node_width(p, k) };
        if (p->within[k] >= 0 || (not_needed(&x, k) && p->first[k] < 0)) continue;
        const bool multiplied = node_values(&x, k, last ? factor : 1);
        if (last) done = multiplied;
    }
    /* a read can be left in its tensor */
    if (b->out && (!there || x.v[p->root].p != b->out)) copy_result(&x);
    const bool whole_rows = b->out_step == b->lanes;
    for (int r = 0; !done && r < (whole_rows ? 1 : b->rows); r++)
        x.floats->scale(whole_rows ? (int64_t)b->rows * b->lanes : b->lanes,
                        (char *)b->out + r * b->out_step * (p->f64 ? 8 : 4), factor);
}
