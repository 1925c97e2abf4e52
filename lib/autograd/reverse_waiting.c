/* reverse_waiting.c: contributions to a cotangent that wait until the backward pass visits its
 * node.
 *
 * A view of x, or eg_at, contributes to a few elements of x's cotangent. Such contributions wait in
 * a list until the pass visits x; then all are added in one buffer, in the order of their arrival
 * (ops/accumulate.c). If x is a view itself, its list is moved to the tensor that it is a view of,
 * so that a view in a loop does not cost a buffer of the size of the whole tensor. */
#include "autograd/reverse.h"
#include <limits.h>
#include <string.h>

/* Returns the list of node k, which is made if there is none; NULL after an error. */
static waiting *list_of(reverse *r, int64_t k)
{
    const size_t bytes = (size_t)r->s.n * sizeof(waiting *);
    if (!r->wait && (r->wait = eg__alloc(r->s.cx, bytes))) memset(r->wait, 0, bytes);
    if (!r->wait) return NULL;
    waiting **w = &r->wait[k];
    if (!*w && (*w = eg__alloc(r->s.cx, sizeof **w))) **w = (waiting){ 0 };
    return *w;
}
/* Appends p to the contributions that wait for x. False after an error. */
static bool append(reverse *r, const eg_tensor *x, eg__addend *p)
{
    waiting *w = list_of(r, x->slot);
    if (!w) return false;
    if (w->count == INT_MAX / 2) {
        eg_fail_as(r->s.cx, EG_ERROR_MISUSE, "%s: more than %d slices of one tensor", r->s.who,
                   w->count);
        return false;
    }
    if (!w->count++) w->end = &w->first;
    *w->end = p;
    p->next = NULL;
    w->end = &p->next;
    if (p->depth) w->reader = p->t;
    return true;
}
bool eg__waiting_append(reverse *r, const eg_tensor *x, eg_tensor *t, eg_tensor *g, int depth)
{
    eg__addend *p = eg__alloc(r->s.cx, sizeof *p);
    if (!p) return false;
    *p = (eg__addend){ .t = t, .g = g, .depth = depth };
    reverse_keep(g);
    return append(r, x, p);
}
/* Moves x's cotangent so far to its list, so that contributions are added in order of arrival.
 * False after an error. */
static bool append_sum(reverse *r, eg_tensor *x)
{
    eg_tensor *d = r->s.d[x->slot];
    r->s.d[x->slot] = NULL;
    if (!d) return true;
    d->st->pending--; /* which eg__waiting_append adds again */
    return eg__waiting_append(r, x, x, d, 0);
}

bool eg__waiting_read(reverse *r, eg_tensor *t, eg_tensor *g)
{
    return append_sum(r, t->in[0]) && eg__waiting_append(r, t->in[0], t, g, 1);
}
bool eg__waiting_product(reverse *r, eg_tensor *t, eg_tensor *g, int i)
{
    eg_tensor *x = t->in[i], *factor[2];
    eg_ctx *cx = r->s.cx;
    if (cx->hooks.cotangent || t->copies || g->copies || x->copies) return false;
    if (r->is_x[x->slot] || (x->tag && x->tag->hook)) return false;
    if (!eg__sweep_has(&r->s, x->in[0]) || x->in[0]->copies || !eg__addend_fits(x, 1)) return false;
    uint32_t axes[2];
    if (!eg__einsum_factors(t, g, i, factor, axes)) return false;
    eg__addend *p = cx->failed ? NULL : eg__alloc(cx, sizeof *p);
    if (!p || !append_sum(r, x)) return false;
    *p = (eg__addend){ .t = x, .g = factor[0], .f = factor[1], .axes = { axes[0], axes[1] } };
    reverse_keep(p->g);
    return append(r, x, p);
}
bool eg__waiting_pass_on(reverse *r, int64_t k)
{
    eg_tensor *t = r->s.node[k];
    const waiting *w = r->wait[k];
    if (r->is_x[k] || (t->tag && t->tag->hook)) return false;
    if (t->count != 1 || !eg__sweep_has(&r->s, t->in[0])) return false;
    /* copies that become an axis, or an axis that becomes copies */
    if (t->copies != t->in[0]->copies) return false;
    for (const eg__addend *p = w->first; p; p = p->next)
        if (!eg__addend_fits(p->t, p->depth + 1)) return false;
    if (!append_sum(r, t->in[0])) return false;
    for (eg__addend *p = w->first, *next; p; p = next) {
        next = p->next;
        p->depth++;
        if (!append(r, t->in[0], p)) return false;
    }
    return true;
}

bool eg__waiting_add_up(reverse *r, int64_t k)
{
    eg_sweep *s = &r->s;
    waiting *w = r->wait[k];
    const eg_tensor *outer = s->cx->rule_node;
    s->cx->rule_node = w->reader;
    s->cx->rule_kind = "gradient";
    const eg__addend *only = w->first;
    if (w->count == 1 && only->depth == 1 && !only->f)
        s->d[k] = only->t->op->rule(only->t, only->g, 0);
    else
        s->d[k] = eg__accumulate(s->cx, w->count, w->first);
    s->cx->rule_node = outer;
    eg__sweep_reclaim(s);
    if (s->cx->failed) return false;
    reverse_keep(s->d[k]);
    for (const eg__addend *p = w->first; p; p = p->next) reverse_drop(r, p->g);
    w->count = 0;
    return true;
}
