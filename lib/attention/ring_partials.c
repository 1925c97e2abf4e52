/* ring_partials.c: partial results of attention over a divided sequence, merged along a binary
 * tree. */
#include "attention/ring_walk.h"

bool eg__partial_set(eg_ring_walk *w, eg_partial *p, eg_owner *owner, int n, eg_tensor *const *x)
{
    *p = (eg_partial){ .of = p->of, .there = true, .owner = owner, .n = n };
    for (int k = 0; k < n; k++) {
        if (!x[k]) continue;
        p->x[k] = eg_owner_tensor(owner, eg_type(x[k]), eg_rank(x[k]), eg_dims(x[k]));
        eg_assign(p->x[k], x[k]);
    }
    return !eg_error(w->cx);
}
eg_tensor *eg__ring_number(eg_ring_walk *w, double value)
{
    return eg_full_n(w->cx, w->r->dtype, value, 0, NULL);
}
/* Sets share[0] and share[1] to the weights of two parts (o, lse, n) in their union, whose
 * log-sum-exp is *lse: e^(lse of the part − lse), or, in a row with n scores of ∞, n_k/n. */
static void partial_shares(eg_ring_walk *w, const eg_partial *a, const eg_partial *b,
                           eg_tensor **share, eg_tensor **lse, eg_tensor **n)
{
    /* In a row without allowed pairs the maximum is −∞ and the sum 0; −10³⁸ and 10⁻³⁰ replace them,
     * so that nothing becomes NaN. */
    eg_tensor *most = eg_maximum(eg_maximum(a->x[1], b->x[1]), eg__ring_number(w, -1e38)),
              *u = eg_exp(eg_sub(a->x[1], most)), *v = eg_exp(eg_sub(b->x[1], most)),
              *sum = eg_add(u, v), *over = eg_maximum(sum, eg__ring_number(w, 1e-30));
    share[0] = eg_div(u, over);
    share[1] = eg_div(v, over);
    *lse = eg_add(most, eg_log(sum));
    *n = NULL;
    if (!a->x[2] && !b->x[2]) return;
    eg_tensor *none = eg__ring_number(w, 0), *m = a->x[2] ? a->x[2] : eg_zeros_like(*lse),
              *k = b->x[2] ? b->x[2] : eg_zeros_like(*lse);
    *n = eg_add(m, k);
    eg_tensor *some = eg_gt(*n, none), *all = eg_maximum(*n, eg__ring_number(w, 1));
    share[0] = eg_where(some, eg_div(m, all), share[0]);
    share[1] = eg_where(some, eg_div(k, all), share[1]);
    *lse = eg_where(some, most, *lse);
}
/* Merges b into a, which are siblings in the tree. False after an error. */
static bool partial_merge(eg_ring_walk *w, eg_partial *a, eg_partial *b)
{
    const eg_span of = { a->of.from, b->of.to };
    if (!a->there || !b->there) {
        if (!a->there) *a = *b;
        a->of = of;
        return true;
    }
    const eg_mark m = eg_push(w->cx);
    if (w->add)
        for (int k = 0; k < a->n; k++) eg_assign(a->x[k], eg_add(a->x[k], b->x[k]));
    else {
        eg_tensor *share[2], *lse, *n;
        const char *spec = w->r->weigh;
        partial_shares(w, a, b, share, &lse, &n);
        eg_assign(a->x[0],
                  eg_add(eg_einsum(spec, a->x[0], share[0]), eg_einsum(spec, b->x[0], share[1])));
        eg_assign(a->x[1], lse);
        if (n && !a->x[2]) a->x[2] = eg_owner_tensor(a->owner, w->r->dtype, eg_rank(n), eg_dims(n));
        if (n) eg_assign(a->x[2], n);
    }
    eg_pop(w->cx, m);
    eg_owner_close(b->owner);
    a->of = of;
    return !eg_error(w->cx);
}
/* Returns the parent of a node in the tree of `leaves`. */
static eg_span parent_of(int64_t leaves, eg_span node)
{
    eg_span p = { 0, leaves };
    for (;;) {
        const int64_t middle = eg_ranks_tree_middle(p);
        const eg_span a = { p.from, middle }, b = { middle, p.to };
        if ((a.from == node.from && a.to == node.to) || (b.from == node.from && b.to == node.to))
            return p;
        p = node.from < middle ? a : b;
    }
}
bool eg__partial_insert(eg_ring_walk *w, eg_partials *tree, eg_partial p)
{
    while (p.of.from > 0 || p.of.to < tree->leaves) {
        const eg_span up = parent_of(tree->leaves, p.of);
        const bool first = up.from == p.of.from;
        int k = 0;
        while (k < tree->n &&
               (first ? tree->part[k].of.from != p.of.to || tree->part[k].of.to != up.to
                      : tree->part[k].of.from != up.from || tree->part[k].of.to != p.of.from))
            k++;
        if (k == tree->n) break;
        eg_partial other = tree->part[k];
        tree->part[k] = tree->part[--tree->n];
        if (!partial_merge(w, first ? &p : &other, first ? &other : &p)) return false;
        if (!first) p = other;
    }
    if (tree->n == EG_PARTIALS_MAX) {
        eg_fail_as(w->cx, EG_ERROR_UNSUPPORTED,
                   "attention: .ranks: more than %d partial results wait for their siblings",
                   EG_PARTIALS_MAX);
        return false;
    }
    tree->part[tree->n++] = p;
    return true;
}
eg_partials *eg__partials_new(eg_ring_walk *w, int64_t n, int64_t leaves)
{
    eg_partials *t = eg__alloc(w->cx, (size_t)(n ? n : 1) * sizeof *t);
    for (int64_t k = 0; t && k < n; k++) t[k].leaves = leaves, t[k].n = 0;
    return t;
}

const eg_partial *eg__partial_at(const eg_partials *t, eg_span node)
{
    for (int k = 0; k < t->n; k++)
        if (t->part[k].of.from == node.from && t->part[k].of.to == node.to) return &t->part[k];
    return NULL;
}
