/* ring_forward.c: the forward pass of attention over a divided sequence. */
#include "attention/ring_walk.h"

typedef struct forward {
    eg_ring_walk w;
    eg_ring_block *own; /* the blocks of queries of this rank */
    int mine;
    eg_partials *tree; /* by own block of queries: the tree over the blocks of keys */
} forward;
/* Computes the results of one block of keys with all blocks of queries of this rank, and inserts
 * them into the trees. False after an error. */
static bool forward_block(forward *s, eg_tensor *const *kv, const eg_ring_block *key)
{
    eg_ring_walk *w = &s->w;
    const int64_t j = key->block;
    for (int q = 0; q < s->mine; q++) {
        eg_owner *owner = eg__owner_open_pooled(w->cx);
        const eg_mark m = eg_push(w->cx);
        eg_tensor *xs[EG_RING_OPERANDS], *y[3];
        bool empty = false;
        eg_partial p = { .of = { j, j + 1 } };
        eg__ring_cut(w, s->own[q].block, j, xs);
        xs[EG_RING_Q] = eg__ring_slice(w->x[EG_RING_Q], w->r->axis[0], &s->own[q]);
        xs[EG_RING_K] = eg__ring_slice(kv[0], w->r->axis[1], key);
        xs[EG_RING_V] = eg__ring_slice(kv[1], w->r->axis[2], key);
        bool good = owner && eg__ring_pair(w, xs, s->own[q].block, j, y, &empty);
        if (good && !empty) good = eg__partial_set(w, &p, owner, 3, y);
        eg_pop(w->cx, m);
        if (empty) eg_owner_close(owner);
        if (!good || !eg__partial_insert(w, &s->tree[q], p)) return false;
    }
    return true;
}
static bool forward_step(void *user, int step, eg_tensor *const *kv, const eg_ring_block *keys,
                         int n)
{
    bool good = true;
    (void)step;
    for (int b = 0; good && b < n; b++) good = forward_block(user, kv, &keys[b]);
    return good;
}
/* Writes the numbers of scores of ∞ of a block's rows into memory of the node that all blocks
 * share. False after an error. */
static bool forward_infinite(forward *s, eg_tensor *node, const eg_ring_block *own, eg_tensor *n,
                             void **infinite)
{
    const eg_ring *r = s->w.r;
    const size_t bytes = (size_t)r->l_count * s->w.width;
    if (!n) return true;
    if (!*infinite && (*infinite = eg__alloc_in(node->arena, bytes + 1)))
        memset(*infinite, 0, bytes);
    if (*infinite) eg__ring_put(&s->w, *infinite, r->l_rank, r->l_dims, r->l_axis, own, n);
    return *infinite != NULL;
}
bool eg__ring_forward(const eg_ring *r, eg_tensor *node, eg_tensor *const *x, void **infinite)
{
    forward s = { .w = { .r = r, .cx = x[0]->cx, .x = x, .width = r->dtype == EG_F64 ? 8 : 4 } };
    eg_ring_walk *w = &s.w;
    char *y = node->data, *lse = y + (size_t)r->y_count * w->width;
    const eg_mark m = eg_push(w->cx);
    const bool was = eg_nograd(w->cx, true);
    s.own = eg__ring_blocks(w, &r->query, eg_ranks_rank(r->ranks), &s.mine);
    s.tree = s.own ? eg__partials_new(w, s.mine, r->key.blocks) : NULL;
    if (!s.tree) s.mine = 0;
    bool good = eg__ring_steps(w, forward_step, &s);
    memset(y, 0, (size_t)r->y_count * w->width);
    for (int64_t k = 0; k < r->l_count; k++)
        if (w->width == 8)
            ((double *)(void *)lse)[k] = -INFINITY;
        else
            ((float *)(void *)lse)[k] = -INFINITY;
    for (int q = 0; good && q < s.mine; q++) {
        const eg_partial *p = &s.tree[q].part[0];
        if (!s.tree[q].n || !p->there) continue;
        eg__ring_put(w, y, r->y_rank, r->y_dims, r->y_axis, &s.own[q], p->x[0]);
        eg__ring_put(w, lse, r->l_rank, r->l_dims, r->l_axis, &s.own[q], p->x[1]);
        good = forward_infinite(&s, node, &s.own[q], p->x[2], infinite);
    }
    eg_nograd(w->cx, was);
    eg_pop(w->cx, m);
    return good && !eg_error(w->cx);
}
