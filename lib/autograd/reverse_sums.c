/* reverse_sums.c: gradients that are added to given sums (eg__grad_into). The product that computes
 * the cotangent of a leaf adds it to the leaf's sum directly, without a tensor for it. */
#include "autograd/reverse.h"
#include <string.h>

bool eg__reverse_targets(reverse *r)
{
    const size_t bytes = (size_t)r->s.n * sizeof *r->target;
    if (!(r->target = eg__alloc(r->s.cx, bytes))) return false;
    memset(r->target, 0, bytes);
    for (int k = 0; k < r->count; k++) {
        if (!eg__sweep_has(&r->s, r->xs[k])) continue;
        reverse_target *of = &r->target[r->xs[k]->slot];
        of->x = k;
        of->sum = of->times++ ? NULL : r->into[k].sum;
        of->reached = r->into[k].reached;
    }
    return true;
}

bool eg__reverse_into(reverse *r, eg_tensor *t, eg_tensor *g, int i)
{
    eg_tensor *x = t->in[i], **d = &r->s.d[x->slot];
    reverse_target *to = &r->target[x->slot];
    const eg_ctx *cx = r->s.cx;
    if (!to->sum || x->op || waiting_for(r, x->slot) || (*d && *d != to->sum)) return false;
    if (cx->recording || cx->hooks.cotangent || cx->hooks.result) return false;
    const eg_tensor *outer = cx->rule_node;
    r->s.cx->rule_node = t;
    r->s.cx->rule_kind = "gradient";
    const bool done = eg__affine_into(t, g, i, to->sum, to->reached);
    r->s.cx->rule_node = outer;
    eg__sweep_reclaim(&r->s);
    if (!done) return false;
    if (!*d) reverse_keep(*d = to->sum);
    to->reached = to->used = r->sums[x->slot] = true;
    return true;
}

void eg__reverse_add_to_sum(reverse *r, int k)
{
    eg_into *to = &r->into[k];
    eg_tensor *d = eg__sweep_at(&r->s, r->xs[k]);
    if (!d) return;
    if (to->reached && !r->target[r->xs[k]->slot].used)
        eg__add_act(to->sum, d);
    else if (d != to->sum)
        eg__copy_act(to->sum, d);
    to->reached = true;
}
bool eg__reverse_notify(reverse *r, int64_t at)
{
    const int before = r->left;
    for (; r->left > 0; r->left--) {
        const eg_tensor *x = r->xs[r->left - 1];
        if (at >= 0 && eg__sweep_has(&r->s, x) && (x->slot < at || r->target[x->slot].times > 1))
            break;
    }
    if (r->left < before) r->watch->complete(r->watch->user, r->left);
    return !r->s.cx->failed;
}
