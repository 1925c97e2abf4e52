/* blocks_copies.c: eg_grad_over of tensors with copies: all blocks of one copy after those of
 * another, so that only one copy's intermediate results are in memory. The headers that a child has
 * of the parent's tensors are those of this copy alone (tensor/borrow.c), so a block computes what
 * it computes for a single model. */
#include "autograd/blocks.h"
#include <string.h>

bool eg__blocks_copies_fit(blocks *b)
{
    eg_grad_over_args *o = &b->o;
    eg_ctx *cx = b->cx;
    for (int k = 0; k < o->count && !cx->failed; k++) {
        const eg_copies *of = o->xs[k]->copies;
        if (of && o->copies && of != o->copies)
            eg_fail_as(cx, EG_ERROR_MISUSE, "%s: xs[%d] has %lld cop%s of another group", o->who, k,
                       (long long)of->count, of->count == 1 ? "y" : "ies");
        if (of) o->copies = of;
    }
    if (!o->copies || cx->failed) return !cx->failed;
    if (o->copies->cx != cx)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .copies belongs to another context", o->who);
    else if (o->captured || o->take)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s: blocks of copies are not %s", o->who,
                   o->take ? "divided among processes" : "captured");
    return !cx->failed;
}

/* Stores the gradient g of copy c in dx, or adds it if dx has no copies; g is NULL if no block of
 * the copy depends on the x. */
static void blocks_store(eg_tensor *dx, const eg_tensor *g, int64_t c, bool first)
{
    const size_t bytes = dx->copies ? (size_t)dx->each : dx->own.bytes;
    if (!bytes || (!g && !dx->copies && !first)) return;
    if (!g)
        memset(eg__copy_data(dx, c), 0, bytes);
    else if (dx->copies || first)
        memcpy(eg__copy_data(dx, c), g->data, bytes);
    else
        eg__add_to(dx, g);
}
/* Computes copy c of the call `all` and stores its gradients; reached[k] is set if a block depends
 * on x k. False after an error. */
static bool blocks_copy(const blocks *all, int64_t c, eg_tensor *const *dx, bool *reached)
{
    double mean = 0;
    int64_t counted = 0;
    eg_ctx *cx = all->cx;
    blocks b = *all;
    const eg_mark m = eg_push(cx);
    eg_tensor **g = eg__alloc(cx, (size_t)b.o.count * sizeof(eg_tensor *));
    b.copy = c;
    b.seed = b.o.copies->seed[c];
    b.o.dxs = g;
    b.o.mean = &mean;
    b.o.counted = &counted;
    const bool good = m.scope && g && eg__blocks_call(&b);
    for (int k = 0; good && k < b.o.count; k++) {
        reached[k] |= g[k] != NULL;
        blocks_store(dx[k], g[k], c, c == 0);
    }
    eg_pop(cx, m);
    if (!good) return false;
    if (all->o.mean_each) all->o.mean_each[c] = mean;
    if (all->o.mean) *all->o.mean += mean / (double)b.o.copies->count;
    if (all->o.counted) *all->o.counted += counted;
    return true;
}
bool eg__blocks_each(const blocks *b)
{
    const eg_grad_over_args *o = &b->o;
    eg_tensor **dx = eg__alloc(b->cx, (size_t)o->count * sizeof(eg_tensor *));
    bool *reached = eg__alloc(b->cx, (size_t)o->count);
    if (!dx || !reached) return false;
    for (int k = 0; k < o->count; k++) {
        const eg_tensor *x = o->xs[k];
        reached[k] = false;
        dx[k] = eg__new_copies(b->cx, x->copies, (eg_dtype)x->dtype, x->rank, x->dim);
        if (!dx[k]) return false;
    }
    if (o->mean) *o->mean = 0;
    if (o->counted) *o->counted = 0;
    for (int64_t c = 0; c < o->copies->count; c++)
        if (!blocks_copy(b, c, dx, reached)) return false;
    for (int k = 0; k < o->count; k++) o->dxs[k] = reached[k] ? dx[k] : NULL;
    return true;
}
