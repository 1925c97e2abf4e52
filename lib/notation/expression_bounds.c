/* expression_bounds.c: the smallest and the largest element of integer and bool tensors in blocks
 * of positions. They are computed once in a call, so that the bounds of a predicate over a box of
 * positions (expression_range.c) depend on the elements that the box reads. */
#include "notation/integer.h"

/* -- the plan --------------------------------------------------------------------------------- */
/* Returns how far integer node k moves while each of its letters moves through one block, at least
 * 1; INT64_MAX if it depends on elements of tensors. */
static int64_t move_in_block(const eg_expression *e, int k, const int64_t *block)
{
    const eg_node *n = &e->node[k];
    if (n->code == EG_X_INTEGER || n->code == EG_X_SIZE) return 1;
    if (n->code == EG_X_LETTER) return block[n->in[0]];
    if (n->code == EG_X_READ || n->kind != EG_IS_INTEGER) return INT64_MAX;
    int64_t all = 1;
    for (int i = 0; i < n->count; i++) {
        const int64_t one = move_in_block(e, n->in[i], block);
        if (one == INT64_MAX) return one;
        all = eg__sum(all, one - 1);
    }
    const eg_node *b = &e->node[n->in[n->count > 1]];
    const int64_t c = b->code == EG_X_INTEGER && b->integer > 0 ? b->integer : 1;
    if (n->code == EG_X_DIV) return (all - 1) / c + 1;
    if (n->code == EG_X_MUL) return eg__sum(eg__product(all - 1, c), 1);
    return all;
}
/* Returns the size of the blocks along axis r of a tensor: the smallest move of an index of that
 * axis, or the whole axis. */
static int64_t block_along(const eg_expression *e, int tensor, int r, const int64_t *block,
                           int64_t dim)
{
    int64_t least = dim;
    for (int k = 0; k < e->nodes; k++) {
        const eg_node *n = &e->node[k];
        if (n->code != EG_X_READ || n->tensor != tensor || r >= n->count) continue;
        const int64_t one = move_in_block(e, n->in[r], block);
        if (one < least) least = one;
    }
    return least > 0 ? least : 1;
}
void eg__bounds_plan(eg_bounds *b, const eg_expression *e, const eg_source *source,
                     const int64_t *block)
{
    *b = (eg_bounds){ .tensors = 0 };
    for (int k = 0; k < e->nodes; k++) {
        const eg_node *n = &e->node[k];
        if (n->code != EG_X_READ || n->kind == EG_IS_FLOAT || b->tensors >> n->tensor & 1) continue;
        eg_bounded *t = &b->of[n->tensor];
        b->tensors |= 1u << n->tensor;
        t->rank = n->count;
        t->at = b->entries;
        int64_t entries = 1;
        for (int r = 0; r < n->count; r++) {
            const int64_t dim = source[n->tensor].dim[r];
            t->dim[r] = dim;
            t->block[r] = block_along(e, n->tensor, r, block, dim);
            t->blocks[r] = (dim + t->block[r] - 1) / t->block[r];
            entries *= t->blocks[r];
        }
        b->entries += entries;
    }
}

/* -- filling the table ------------------------------------------------------------------------ */
#define T    uint8_t
#define NAME extend_by_bytes
#include "notation/expression_bounds_of.h"
#define T    int32_t
#define NAME extend_by_narrow
#include "notation/expression_bounds_of.h"
#define T    int64_t
#define NAME extend_by_wide
#include "notation/expression_bounds_of.h"

/* Extends the bounds v of the blocks along the last axis by one row of a tensor. */
static void row_bounds(const eg_bounded *t, const eg_source *s, int64_t offset, eg_interval *v)
{
    const int last = t->rank - 1;
    const int64_t dim = last < 0 ? 1 : t->dim[last], block = last < 0 ? 1 : t->block[last],
                  stride = last < 0 ? 1 : s->stride[last];
    for (int64_t k = 0; k < dim; k += block, v++) {
        const int64_t n = dim - k < block ? dim - k : block, at = offset + k * stride;
        if (s->dtype == EG_BOOL)
            extend_by_bytes(n, (const uint8_t *)s->data + at, stride, v);
        else if (s->dtype == EG_I32)
            extend_by_narrow(n, (const int32_t *)s->data + at, stride, v);
        else
            extend_by_wide(n, (const int64_t *)s->data + at, stride, v);
    }
}
/* Fills the part of the table of one tensor, row by row. */
static void tensor_bounds(const eg_bounded *t, const eg_source *s, eg_interval *table)
{
    int64_t index[EG_RANK_MAX] = { 0 }, rows = 1, entries = 1;
    for (int r = 0; r < t->rank; r++) {
        entries *= t->blocks[r];
        if (r + 1 < t->rank) rows *= t->dim[r];
    }
    for (int64_t k = 0; k < entries; k++) table[k] = (eg_interval){ INT64_MAX, -INT64_MAX };
    for (int64_t row = 0; row < rows && entries; row++) {
        int64_t offset = 0, at = 0;
        for (int r = 0; r + 1 < t->rank; r++) {
            offset += index[r] * s->stride[r];
            at = (at + index[r] / t->block[r]) * t->blocks[r + 1];
        }
        row_bounds(t, s, offset, table + at);
        for (int r = t->rank - 2; r >= 0 && ++index[r] == t->dim[r]; r--) index[r] = 0;
    }
    for (int64_t k = 0; k < entries; k++) table[k].low = eg__clamped(table[k].low);
}
void eg__bounds_fill(eg_bounds *b, const eg_source *source, eg_interval *table)
{
    b->table = table;
    for (int k = 0; k < EG_TENSORS_MAX; k++)
        if (b->tensors >> k & 1) tensor_bounds(&b->of[k], &source[k], table + b->of[k].at);
}

void eg__extremes(const eg_tensor *x, int64_t *least, int64_t *most)
{
    eg_bounded t = { .rank = x->rank };
    eg_interval v = { 0, 0 };
    *least = *most = 0;
    if (!eg_size(x)) return;
    for (int r = 0; r < x->rank; r++) {
        t.dim[r] = t.block[r] = x->dim[r];
        t.blocks[r] = 1;
    }
    for (int64_t k = 0; k < eg__copy_count(x); k++) {
        const char *data = eg__copy_data(x, k);
        tensor_bounds(&t, &(eg_source){ data, x->stride, (eg_dtype)x->dtype, x->dim }, &v);
        *least = k && *least < v.low ? *least : v.low;
        *most = k && *most > v.high ? *most : v.high;
    }
}

/* -- a box of indices ------------------------------------------------------------------------- */
enum { LOOKED_AT = 64 }; /* largest number of blocks that are combined */
eg_interval eg__bounds_over(const eg_bounds *b, int tensor, const eg_interval *index,
                            eg_interval whole)
{
    const eg_bounded *t = &b->of[tensor];
    int64_t from[EG_RANK_MAX], to[EG_RANK_MAX], at[EG_RANK_MAX], blocks = 1;
    if (!(b->tensors >> tensor & 1)) return whole;
    for (int r = 0; r < t->rank; r++) {
        const int64_t end = t->dim[r] - 1, low = index[r].low, high = index[r].high;
        if (end < 0) return whole;
        /* an index outside of its axis reads the last element on that side (eg_node.guard) */
        from[r] = (low < 0 ? 0 : low > end ? end : low) / t->block[r];
        to[r] = (high < 0 ? 0 : high > end ? end : high) / t->block[r];
        at[r] = from[r];
        blocks *= to[r] - from[r] + 1;
        if (blocks > LOOKED_AT) return whole;
    }
    eg_interval v = { INT64_MAX, -INT64_MAX };
    for (int64_t k = 0; k < blocks; k++) {
        int64_t entry = 0;
        for (int r = 0; r < t->rank; r++) entry = entry * t->blocks[r] + at[r];
        const eg_interval *x = &b->table[t->at + entry];
        if (x->low < v.low) v.low = x->low;
        if (x->high > v.high) v.high = x->high;
        for (int r = t->rank - 1; r >= 0 && ++at[r] > to[r]; r--) at[r] = from[r];
    }
    return v;
}

typedef struct extremes_act {
    const char *who; /* a string that is never freed */
    int64_t least, most;
} extremes_act;
static bool act_extremes(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)to, (void)count;
    const extremes_act *a = arg;
    int64_t least, most;
    eg__extremes(x[0], &least, &most);
    if (least >= a->least && most <= a->most) return true;
    eg_fail_as(cx, EG_ERROR_INDEX,
               "%s: the step was captured with integers from %lld to %lld, which are now from %lld "
               "to %lld; capture it again, or read a bool that the step computes (eg_ne, eg_lt)",
               a->who, (long long)a->least, (long long)a->most, (long long)least, (long long)most);
    return false;
}
bool eg__extremes_act(const char *who, eg_tensor *x, int64_t least, int64_t most)
{
    extremes_act a = { who, least, most };
    return !eg__capturing(eg__here(x->cx)) ||
           eg__act(x->cx, act_extremes, NULL, 1, &x, &a, sizeof a, 0);
}
