/* reverse.c: the backward pass.
 *
 * It visits the nodes between y and the xs in reverse topological order and calls the rule of each
 * operation for the cotangent of each operand that is between them. Rules consist of public
 * operations, so cotangents have histories of their own.
 *
 * Contributions of views wait in lists (reverse_waiting.c); cotangents of the xs may be added to
 * given sums (reverse_sums.c).
 *
 * A pass that is not recorded frees the cotangents that it made as soon as no node needs them, so
 * that later ones are computed in the same memory, which is still in the cache. */
#include "autograd/reverse.h"

/* -- cotangents that are freed ----------------------------------------------------------------- */
/* A rule may return views of the cotangent that it was given, or parts of one result for several
 * operands, so memory is unused when its number of cotangents (reverse_keep) is 0 at the end of a
 * visit. */

/* reverse_drop for a c that was never noted. */
static void drop_new(reverse *r, eg_tensor *c)
{
    reverse_keep(c);
    reverse_drop(r, c);
}
/* Frees the cotangents that were dropped in this visit, if the pass made them and nothing else
 * refers to them. */
static void free_dropped(reverse *r)
{
    while (r->drops) {
        const eg_storage *st = r->dropped[--r->drops]->st;
        eg_tensor *t = (eg_tensor *)st->of;
        if (st->pending || !t || t->live != EG_LIVE || t->seq <= r->begun) continue;
        if (st->exposed || st->hold || st->lent || t->arena != r->s.cx->top) continue;
        eg__tensor_free(t);
    }
}

/* -- visiting a node --------------------------------------------------------------------------- */
/* Adds c to x's cotangent. While the context does not record, a sum that this pass made is added to
 * in place, since no other pointer to it exists. False after an error. */
static bool accumulate(reverse *r, eg_tensor *x, eg_tensor *c)
{
    eg_sweep *s = &r->s;
    eg_tensor **d = &s->d[x->slot];
    if (waiting_for(r, x->slot)) return eg__waiting_append(r, x, x, c, 0);
    if (!*d) {
        reverse_keep(*d = c);
        return true;
    }
    if (r->sums[x->slot] && !s->cx->recording && (!c->copies || (*d)->copies)) {
        drop_new(r, c);
        return eg__add_act(*d, c);
    }
    eg_tensor *before = *d;
    reverse_keep(*d = eg_add(before, c));
    reverse_drop(r, before);
    drop_new(r, c);
    r->sums[x->slot] = true;
    return true;
}

/* Returns the cotangent of operand i of t; NULL if there is none, and after an error. */
static eg_tensor *reverse_cotangent(reverse *r, eg_tensor *t, eg_tensor *g, int i)
{
    eg_ctx *cx = r->s.cx;
    const eg_tensor *outer = cx->rule_node;
    const uint64_t before = cx->pull;
    const bool each = cx->each_copy;
    r->called = true;
    cx->rule_node = t;
    cx->rule_kind = "gradient";
    cx->pull = r->mine;
    cx->each_copy = r->each;
    eg_tensor *c = eg__rule(t, g, i);
    /* all copies of t read an x without copies, so their cotangents are summed */
    if (c && t->copies && !t->in[i]->copies && !r->each && !eg__copies_made(t) &&
        !eg__is_checkpoint(t))
        c = eg__copies_sum(t->copies, c);
    cx->pull = before;
    cx->each_copy = each;
    cx->rule_node = outer;
    eg__sweep_reclaim(&r->s);
    return cx->failed ? NULL : c;
}

/* Calls the hooks of node k, whose cotangent is complete, in the order in which they were added.
 * The cotangents that they get and return are not freed, since the program may keep them. False
 * after an error. */
static bool reverse_call_hooks(eg_sweep *s, int64_t k)
{
    eg_tensor *t = s->node[k];
    char name[256];
    int hooks = 0; /* a hook may add others, which are called from the next pass on */
    for (const eg__hook *h = t->tag ? t->tag->hook : NULL; h; h = h->next) hooks++;
    for (eg__hook *h = t->tag ? t->tag->hook : NULL; hooks > 0; hooks--, h = h->next) {
        if (h->runs) {
            eg_fail_as(
                s->cx, EG_ERROR_MISUSE,
                "%s: the hook of %s would call itself: it differentiates through its own tensor",
                s->who, eg__origin(t, name, sizeof name));
            return false;
        }
        h->runs = true;
        reverse_keep(s->d[k]);
        const eg_switches was = eg_switches_of(s->cx);
        eg_tensor *g = h->f(h->user, t, s->d[k]);
        h->runs = false;
        eg__sweep_reclaim(s);
        if (!eg__switches_kept(s->cx, was, s->who, "a hook") ||
            (g && !eg__check_cotangent(s, t, "hook", g, t, -1)))
            return false;
        if (!g) continue;
        reverse_keep(s->d[k] = g);
        reverse_keep(g);
    }
    return true;
}

/* Completes node k's cotangent, calls its hooks, and propagates it to the operands by the rule.
 * False after an error. */
static bool reverse_visit(reverse *r, int64_t k)
{
    eg_sweep *s = &r->s;
    eg_ctx *cx = s->cx;
    if (waiting_for(r, k) && eg__waiting_pass_on(r, k)) return true;
    eg_tensor *t = s->node[k];
    if (cx->failed || (waiting_for(r, k) && !eg__waiting_add_up(r, k))) return false;
    if (t->seq > s->leaves && !reverse_call_hooks(s, k)) return false;
    eg_tensor *g = s->d[k];
    if (eg__sweep_ends(s, t)) return true;
    r->mine = ++cx->pulls;
    /* a rule of the program may keep the cotangents that it gets and returns */
    const bool own = eg__is_library(cx, (uintptr_t)t->op->rule);
    if (!own) reverse_keep(g);
    /* with a hook on cotangents each one is computed separately, without lists */
    const bool lists =
        !cx->hooks.cotangent && eg__addend_due(t) && (r->each || !t->copies || t->in[0]->copies);
    for (int i = 0; i < t->count; i++) {
        eg_tensor *x = t->in[i];
        if (!eg__sweep_has(s, x)) continue;
        if (r->each && eg__copies_made(t)) {
            char name[256];
            eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                       "grad_each: %s lies between y and an x, so that copies are coupled",
                       eg__origin(t, name, sizeof name));
            return false;
        }
        if (!t->op->rule) {
            eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s: %s has no gradient for operand %d", s->who,
                       t->op->name, i + 1);
            return false;
        }
        if (!eg__check_unchanged(s, t, i)) return false;
        if (lists && i == 0) {
            if (!eg__waiting_read(r, t, g)) return false;
            continue;
        }
        if (r->target && !t->copies && eg__reverse_into(r, t, g, i)) continue;
        if (x->op && eg__addend_due(x) && eg__waiting_product(r, t, g, i)) continue;
        if (cx->failed) return false;
        eg_tensor *c = reverse_cotangent(r, t, g, i);
        if (cx->failed) return false;
        if (!c) continue;
        if (cx->hooks.cotangent) c = cx->hooks.cotangent(cx, t, i, c);
        if (!eg__check_cotangent(s, t, "rule", c, x, i)) return false;
        if (!own) reverse_keep(c);
        if (!accumulate(r, x, c)) return false;
    }
    return !cx->failed;
}

bool eg__reverse_nodes(reverse *r)
{
    const eg_sweep *s = &r->s;
    if (r->watch && !eg__reverse_notify(r, s->n)) return false;
    for (int64_t k = s->n; k-- > 0;) {
        const bool once = r->target && r->target[k].times == 1;
        r->at = k, r->called = false;
        if ((s->d[k] || waiting_for(r, k)) && !reverse_visit(r, k)) return false;
        if (once) eg__reverse_add_to_sum(r, r->target[k].x);
        if (!r->is_x[k] || once) reverse_drop(r, s->d[k]);
        if (r->drops) free_dropped(r);
        if (r->watch && !eg__reverse_notify(r, k)) return false;
    }
    for (int k = 0; r->into && k < r->count; k++)
        if (eg__sweep_has(s, r->xs[k]) && r->target[r->xs[k]->slot].times > 1)
            eg__reverse_add_to_sum(r, k);
    return r->watch ? eg__reverse_notify(r, -1) : !s->cx->failed;
}
