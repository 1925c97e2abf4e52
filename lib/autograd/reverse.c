/* reverse.c: eg_grad, the backward pass.
 *
 * It visits the nodes between y and the xs in reverse topological order and calls the rule of each
 * operation for the cotangent of each operand that is between them. Rules consist of public
 * operations, so cotangents have histories of their own.
 *
 * A view of x, or eg_at, contributes to a few elements of x's cotangent. Such contributions wait in
 * a list until the pass visits x; then all are added in one buffer, in the order of their arrival
 * (ops/accumulate.c). If x is a view itself, its list is moved to the tensor that it is a view of,
 * so that a view in a loop does not cost a buffer of the size of the whole tensor.
 *
 * If gradients are added to given sums (eg__grad_into), the product that computes the cotangent of
 * a leaf adds it to the leaf's sum directly, without a tensor for it.
 *
 * A pass that is not recorded frees the cotangents that it made as soon as no node needs them, so
 * that later ones are computed in the same memory, which is still in the cache. */
#include "autograd/autograd.h"
#include <limits.h>
#include <string.h>

/* Contributions to the cotangent of one node that are not added up yet, in order of arrival. */
typedef struct waiting {
    int count;
    eg__addend *first, **end;
    /* the node with the last contribution: messages name the sum as its gradient */
    const eg_tensor *reader;
} waiting;
/* A node whose cotangent is added to a given sum. */
typedef struct reverse_target {
    eg_tensor *sum; /* NULL: there is none, or the node occurs several times among the xs */
    /* reached: the sum holds a gradient; used: a product of this pass has added to it */
    bool reached, used;
    int x, times; /* the node is xs[x]; number of its occurrences among the xs */
} reverse_target;
enum { DROPS = 8 };
typedef struct reverse {
    eg_sweep s;
    bool *sums; /* by node: d is a sum that this pass made and to which no other pointer exists */
    bool *is_x; /* by node */
    bool each;  /* the cotangents of copies are not added up */
    waiting **wait; /* by node; NULL if no contributions wait */
    uint64_t mine;  /* eg_ctx.pull for the node whose rule is called */
    int count;
    eg_tensor *const *xs;
    eg_into *into;          /* by x: the sum to which its cotangent is added; NULL without sums */
    reverse_target *target; /* by node; NULL without sums */
    const eg_into_watch *watch;
    int left;                  /* nothing more is added to sums `left` and above */
    bool ends;                 /* cotangents that no node needs are freed */
    uint64_t begun;            /* eg_ctx.seq before the pass: it made the younger tensors */
    int drops;                 /* number of entries of `dropped`; further ones are not freed */
    eg_tensor *dropped[DROPS]; /* cotangents that this visit dropped */
} reverse;

/* -- cotangents that are freed ----------------------------------------------------------------- */
/* eg_storage.pending is the number of cotangents that wait for their node in this storage. A rule
 * may return views of the cotangent that it was given, or parts of one result for several operands,
 * so memory is unused when its number is 0 at the end of a visit. */

/* Notes that c is the cotangent of a node, or a contribution to it. */
static void reverse_keep(eg_tensor *c) { c->st->pending++; }
/* Notes that c, which may be NULL, is no longer one. */
static void reverse_drop(reverse *r, eg_tensor *c)
{
    if (!c || --c->st->pending || c->st->bytes < EG_SPARE_LEAST || !r->ends) return;
    if (r->drops < DROPS) r->dropped[r->drops++] = c;
}
/* The same for a c that was never noted. */
static void reverse_drop_new(reverse *r, eg_tensor *c)
{
    reverse_keep(c);
    reverse_drop(r, c);
}
/* Frees the cotangents that were dropped in this visit, if the pass made them and nothing else
 * refers to them. */
static void reverse_free_dropped(reverse *r)
{
    while (r->drops) {
        const eg_storage *st = r->dropped[--r->drops]->st;
        eg_tensor *t = (eg_tensor *)st->of;
        if (st->pending || !t || t->live != EG_LIVE || t->seq <= r->begun) continue;
        if (st->exposed || st->hold || st->lent || t->arena != r->s.cx->top) continue;
        eg__tensor_free(t);
    }
}

static waiting *waiting_for(const reverse *r, int64_t k)
{
    return r->wait && r->wait[k] && r->wait[k]->count ? r->wait[k] : NULL;
}
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
static bool reverse_append(reverse *r, const eg_tensor *x, eg__addend *p)
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
/* Appends g to the contributions that wait for x. g is the cotangent of t, which is a view of x by
 * way of `depth` views. False after an error. */
static bool list_append(reverse *r, const eg_tensor *x, eg_tensor *t, eg_tensor *g, int depth)
{
    eg__addend *p = eg__alloc(r->s.cx, sizeof *p);
    if (!p) return false;
    *p = (eg__addend){ .t = t, .g = g, .depth = depth };
    reverse_keep(g);
    return reverse_append(r, x, p);
}
/* Moves x's cotangent so far to its list, so that contributions are added in order of arrival.
 * False after an error. */
static bool list_append_sum(reverse *r, eg_tensor *x)
{
    eg_tensor *d = r->s.d[x->slot];
    r->s.d[x->slot] = NULL;
    if (!d) return true;
    d->st->pending--; /* which list_append adds again */
    return list_append(r, x, x, d, 0);
}

/* Adds c to x's cotangent. While the context does not record, a sum that this pass made is added to
 * in place, since no other pointer to it exists. False after an error. */
static bool accumulate(reverse *r, eg_tensor *x, eg_tensor *c)
{
    eg_sweep *s = &r->s;
    eg_tensor **d = &s->d[x->slot];
    if (waiting_for(r, x->slot)) return list_append(r, x, x, c, 0);
    if (!*d) {
        reverse_keep(*d = c);
        return true;
    }
    if (r->sums[x->slot] && !s->cx->recording && (!c->copies || (*d)->copies)) {
        reverse_drop_new(r, c);
        return eg__add_act(*d, c);
    }
    eg_tensor *before = *d;
    reverse_keep(*d = eg_add(before, c));
    reverse_drop(r, before);
    reverse_drop_new(r, c);
    r->sums[x->slot] = true;
    return true;
}
/* Appends g, the cotangent of t (a view or eg_at), to the contributions that wait for t's operand.
 * False after an error. */
static bool accumulate_read(reverse *r, eg_tensor *t, eg_tensor *g)
{
    return list_append_sum(r, t->in[0]) && list_append(r, t->in[0], t, g, 1);
}
/* If the cotangent of operand i of t, a view, is a product that need not be stored, appends its
 * factors to the contributions that wait for that operand and returns true. */
static bool reverse_product(reverse *r, eg_tensor *t, eg_tensor *g, int i)
{
    eg_tensor *x = t->in[i], *factor[2];
    eg_ctx *cx = r->s.cx;
    if (cx->hooks.cotangent || t->copies || g->copies || x->copies || !x->op) return false;
    if (r->is_x[x->slot] || (x->tag && x->tag->hook) || !eg__addend_due(x)) return false;
    if (!eg__sweep_has(&r->s, x->in[0]) || x->in[0]->copies || !eg__addend_fits(x, 1)) return false;
    uint32_t axes[2];
    if (!eg__einsum_factors(t, g, i, factor, axes)) return false;
    eg__addend *p = cx->failed ? NULL : eg__alloc(cx, sizeof *p);
    if (!p || !list_append_sum(r, x)) return false;
    *p = (eg__addend){ .t = x, .g = factor[0], .f = factor[1], .axes = { axes[0], axes[1] } };
    reverse_keep(p->g);
    return reverse_append(r, x, p);
}
/* Moves the contributions that wait for node k, a view, to the list of its operand. False if the
 * view's own cotangent is needed, if no contribution waits, and after an error. */
static bool reverse_pass_list_on(reverse *r, int64_t k)
{
    eg_tensor *t = r->s.node[k];
    const waiting *w = waiting_for(r, k);
    if (!w || r->is_x[k] || (t->tag && t->tag->hook)) return false;
    if (t->count != 1 || !eg__sweep_has(&r->s, t->in[0])) return false;
    /* copies that become an axis, or an axis that becomes copies */
    if (t->copies != t->in[0]->copies) return false;
    for (const eg__addend *p = w->first; p; p = p->next)
        if (!eg__addend_fits(p->t, p->depth + 1)) return false;
    if (!list_append_sum(r, t->in[0])) return false;
    for (eg__addend *p = w->first, *next; p; p = next) {
        next = p->next;
        p->depth++;
        if (!reverse_append(r, t->in[0], p)) return false;
    }
    return true;
}

/* Returns the cotangent of operand i of t; NULL if there is none, and after an error. */
static eg_tensor *reverse_cotangent(reverse *r, eg_tensor *t, eg_tensor *g, int i)
{
    eg_ctx *cx = r->s.cx;
    const eg_tensor *outer = cx->rule_node;
    const uint64_t before = cx->pull;
    const bool each = cx->each_copy;
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
/* Lets the product that computes a leaf's cotangent add it directly to the leaf's sum
 * (eg__grad_into). False if the cotangent is no such product, or if there are other contributions
 * to it. */
static bool reverse_into(reverse *r, eg_tensor *t, eg_tensor *g, int i)
{
    eg_tensor *x = t->in[i], **d = &r->s.d[x->slot];
    reverse_target *to = r->target ? &r->target[x->slot] : NULL;
    const eg_ctx *cx = r->s.cx;
    if (!to || !to->sum || x->op || waiting_for(r, x->slot) || (*d && *d != to->sum)) return false;
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
/* Adds up the contributions that wait for node k; the sum becomes its cotangent. False after an
 * error. */
static bool reverse_add_list(reverse *r, int64_t k)
{
    eg_sweep *s = &r->s;
    waiting *w = waiting_for(r, k);
    if (!w) return true;
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
    if (reverse_pass_list_on(r, k)) return true;
    eg_tensor *t = s->node[k];
    if (cx->failed || !reverse_add_list(r, k)) return false;
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
            if (!accumulate_read(r, t, g)) return false;
            continue;
        }
        if (!t->copies && (reverse_into(r, t, g, i) || reverse_product(r, t, g, i))) continue;
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

/* True if the seed fits y; else records an error. who, what: as in reverse_call_fits. */
static bool reverse_seed_fits(eg_ctx *cx, const char *who, const char *what, const eg_tensor *y,
                              const eg_tensor *seed)
{
    char a[256], b[256];
    if (!seed && eg_size(y) != 1)
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "%s: %s has %lld elements, shape %s: give a seed, or reduce it to one", who,
                   what, (long long)eg_size(y), eg__dims_text(y, a, sizeof a));
    else if (seed && (!eg__same_shape(seed, y) || seed->dtype != y->dtype))
        eg_fail_as(cx, seed->dtype == y->dtype ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                   "grad: the seed is %s %s, y is %s %s", eg_type_name((eg_dtype)seed->dtype),
                   eg__dims_text(seed, a, sizeof a), eg_type_name((eg_dtype)y->dtype),
                   eg__dims_text(y, b, sizeof b));
    return !cx->failed;
}

/* Records why y depends on none of the xs: an operation cuts the path, an operand was computed
 * under eg_nograd, or no operation in y's history reads one. loss_of: as in grad_call. Returns
 * false. */
static bool reverse_refuse_unreached(eg_ctx *cx, const char *loss_of, eg_tensor *y, int count,
                                     eg_tensor *const *xs)
{
    char at[256], whose[256], none[160];
    eg_tensor *cut = NULL;
    eg_walk w = { .cx = cx, .who = "grad" };
    if (loss_of && count == 1)
        snprintf(none, sizeof none, "%.80s: the loss does not depend on its parameter", loss_of);
    else if (loss_of)
        snprintf(none, sizeof none, "%.80s: the loss depends on none of its %d parameters", loss_of,
                 count);
    else
        snprintf(none, sizeof none,
                 count == 1 ? "grad: y does not reach x" : "grad: y reaches none of the %d xs",
                 count);
    for (int k = 0; k < count; k++) {
        if (eg_path_to(y, xs[k], &cut) != EG_CUT_PATH) continue;
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s cuts the path to xs[%d], %s", none,
                   eg__origin(cut, at, sizeof at), k, eg__origin(xs[k], whose, sizeof whose));
        return false;
    }
    if (cx->failed || !eg__walk(&w, 1, &y)) return false;
    for (int64_t k = 0; k < w.n; k++)
        for (int i = 0; i < w.node[k]->count; i++) {
            if (!w.node[k]->in[i]->unrecorded) continue;
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "%s: operand %d of %s was made while nothing was recorded (eg_nograd)", none,
                       i + 1, eg__origin(w.node[k], at, sizeof at));
            return false;
        }
    eg_fail_as(cx, EG_ERROR_MISUSE, "%s: no operation in its history reads %s", none,
               count == 1 ? "it" : "one");
    return false;
}

/* Operand i of a node of y's history, to which eg_assign wrote a recorded result. */
typedef struct assigned {
    const eg_tensor *node;
    int i;
} assigned;
/* Returns the recorded result that operand a got; NULL if it no longer exists or is younger than
 * the node that reads the operand. */
static eg_tensor *assigned_result(const assigned *a)
{
    eg_tensor *v = eg__scoped_tensor(a->node->cx, &a->node->in[a->i]->st->assigned);
    return v && v->seq < a->node->seq ? v : NULL;
}
/* False, after an error, if y reads a tensor to which eg_assign wrote a result that depends on an x
 * without a gradient (lost[k]). */
static bool reverse_not_assigned(eg_ctx *cx, eg_tensor *y, int count, eg_tensor *const *xs,
                                 const bool *lost)
{
    char text[256];
    int64_t found = 0;
    eg_tensor *cut = NULL;
    eg_walk w = { .cx = cx, .who = "grad" };
    if (!eg__walk(&w, 1, &y)) return false;
    for (int64_t k = 0; k < w.n; k++)
        for (int i = 0; i < w.node[k]->count; i++)
            found += assigned_result(&(assigned){ w.node[k], i }) != NULL;
    if (!found) return true;
    assigned *all = eg__alloc(cx, (size_t)found * sizeof *all), *next = all;
    if (!all) return false;
    /* another walk, as eg_path_to makes one, uses the memory of this one */
    for (int64_t k = 0; k < w.n; k++)
        for (int i = 0; i < w.node[k]->count; i++)
            if (assigned_result(&(assigned){ w.node[k], i })) *next++ = (assigned){ w.node[k], i };
    for (int k = 0; k < count; k++)
        for (const assigned *a = all; a < next && lost[k]; a++) {
            eg_tensor *v = assigned_result(a);
            if (eg_path_to(v, xs[k], &cut) != EG_OPEN_PATH) continue;
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "grad: y depends on xs[%d] only by eg_assign, which wrote the result of %s "
                       "to operand %d of %s and has no gradient: use eg_where, eg_concat or "
                       "eg_scatter_add, or assign what eg_detach returns",
                       k, v->op->name, a->i + 1, eg__origin(a->node, text, sizeof text));
            return false;
        }
    return !cx->failed;
}

/* Assigns the sums to the nodes of the xs. A node that occurs twice among the xs has two sums and
 * gets none here: its cotangent is copied at the end. False after an error. */
static bool reverse_targets(reverse *r)
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
/* Adds the cotangent of xs[k], which is complete, to sum k, unless products have already added all
 * of it. */
static void reverse_add_up(reverse *r, int k)
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
/* Calls the watch if more sums are complete now: those whose x is not a node of the pass, and those
 * whose node is at index `at` or later. The sum of an x that occurs twice among the xs is complete
 * only at the end, when `at` is −1. False after an error. */
static bool reverse_notify(reverse *r, int64_t at)
{
    const int before = r->left;
    if (!r->watch) return !r->s.cx->failed;
    for (; r->left > 0; r->left--) {
        const eg_tensor *x = r->xs[r->left - 1];
        if (at >= 0 && eg__sweep_has(&r->s, x) && (x->slot < at || r->target[x->slot].times > 1))
            break;
    }
    if (r->left < before) r->watch->complete(r->watch->user, r->left);
    return !r->s.cx->failed;
}
/* Visits each node from y to the xs. A cotangent that is added to a sum is added when its node is
 * visited, since no later node contributes to it: it is then still in the cache, and a watch of
 * this sum need not wait for the others. False after an error. */
static bool reverse_nodes(reverse *r)
{
    const eg_sweep *s = &r->s;
    if (!reverse_notify(r, s->n)) return false;
    for (int64_t k = s->n; k-- > 0;) {
        const bool once = r->target && r->target[k].times == 1;
        if ((s->d[k] || waiting_for(r, k)) && !reverse_visit(r, k)) return false;
        if (once) reverse_add_up(r, r->target[k].x);
        if (!r->is_x[k] || once) reverse_drop(r, s->d[k]);
        if (r->drops) reverse_free_dropped(r);
        if (r->target && !reverse_notify(r, k)) return false;
    }
    for (int k = 0; r->into && k < r->count; k++)
        if (eg__sweep_has(s, r->xs[k]) && r->target[r->xs[k]->slot].times > 1) reverse_add_up(r, k);
    return reverse_notify(r, -1);
}

/* True if a check or a trace gets the results of operations or the cotangents, and may keep them.
 */
static bool reverse_is_observed(const eg_ctx *cx)
{
    return cx->probe || cx->hooks.operand || cx->hooks.result || cx->hooks.cotangent;
}

/* The gradient of an x that y does not depend on. ZEROS_OF_ANY: y may also be a constant.
 * ZEROS_OF_EACH: of eg_grad_each. COPIES_OF_EACH: of a part of it; gradients remain copies. */
typedef enum unreached { ZEROS, ZEROS_OF_ANY, NULLS, ZEROS_OF_EACH, COPIES_OF_EACH } unreached;
/* A call of eg_grad or a function like it. */
typedef struct grad_call {
    eg_tensor *y, *seed; /* seed NULL: y has one element, and the seed is 1 */
    int count;
    eg_tensor *const *xs;
    eg_tensor **dxs; /* NULL if gradients are added to sums */
    unreached how;
    uint64_t leaves; /* tensors with a seq of at most this are leaves */
    eg_into *into;   /* NULL without sums */
    const eg_into_watch *watch;
    const char *loss_of; /* the optimiser whose loss y is, for messages; NULL: y is called y */
} grad_call;
/* True if the arguments are valid and y was recorded; else records an error, one about y under the
 * name that loss_of says. */
static bool reverse_call_fits(eg_ctx *cx, const grad_call *q)
{
    char who[128] = "grad";
    const char *what = q->loss_of ? "it" : "y";
    if (q->loss_of) snprintf(who, sizeof who, "%.80s: the loss has no gradient", q->loss_of);
    if (!eg__check_differentiable(cx, who, what, -1, q->y) ||
        (q->seed && !eg__check_seed(cx, "grad", "the seed", -1, q->seed)))
        return false;
    if (q->count < 0) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "grad: the number of xs is %d, but must not be negative",
                   q->count);
        return false;
    }
    if (q->count && (!q->xs || (!q->dxs && !q->into))) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "grad: %s is NULL", q->xs ? "dxs" : "xs");
        return false;
    }
    for (int k = 0; k < q->count; k++)
        if (!eg__check_differentiable(cx, "grad", "xs", k, q->xs[k])) return false;
    if (!reverse_seed_fits(cx, who, what, q->y, q->seed)) return false;
    const bool constant = q->how == ZEROS_OF_ANY || q->how == COPIES_OF_EACH;
    if (q->count && !constant && !eg__check_recorded(cx, who, what, q->y, q->count, q->xs))
        return false;
    if (q->how == ZEROS_OF_EACH && !q->y->copies) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "grad_each: y has no copies; eg_copies_unstack makes each example one");
        return false;
    }
    return true;
}
/* Sets the dxs to the cotangents of the xs after the pass. False after an error, such as an x on
 * which y depends by eg_assign alone. */
static bool reverse_results(reverse *r, const grad_call *q)
{
    eg_ctx *cx = r->s.cx;
    bool *lost = NULL; /* for each x, that it has no gradient; NULL: all have one */
    for (int k = 0; k < q->count; k++) {
        eg_tensor *x = q->xs[k], *d = eg__sweep_at(&r->s, x);
        if (d && r->is_x[x->slot]) d->st->pending--;
        if (d) r->is_x[x->slot] = false;
        if (!d && q->how == ZEROS && !lost) {
            if (!(lost = eg__alloc(cx, (size_t)q->count))) return false;
            memset(lost, 0, (size_t)q->count);
        }
        if (lost) lost[k] = !d;
        q->dxs[k] = d || q->how == NULLS ? d : eg_zeros_like(x);
        const eg_copies *c = r->each ? q->y->copies : x->copies;
        if (c && q->dxs[k]) q->dxs[k] = eg__copies_spread(c, q->dxs[k]);
        if (q->how == ZEROS_OF_EACH) q->dxs[k] = eg_copies_stack(q->dxs[k]);
    }
    /* the marks of the pass are no longer needed */
    return !lost || reverse_not_assigned(cx, q->y, q->count, q->xs, lost);
}
/* True for a call of eg_grad, of a y with copies, by the rule of an operation with copies. A
 * gradient by an x without copies then has copies, since the backward pass that calls the rule adds
 * them up. (What a checkpoint calls again is not a rule.) */
static bool called_by_rule_of_copies(const eg_ctx *cx, const grad_call *q)
{
    const eg_tensor *t = cx->rule_node;
    return (q->how == ZEROS || q->how == NULLS) && q->y->copies && t && t->copies &&
           !eg__is_checkpoint(t);
}
/* Checks the call, finds the nodes between y and the xs, and runs the backward pass. False after an
 * error. */
static bool reverse_grad(eg_ctx *cx, const grad_call *q)
{
    if (!reverse_call_fits(cx, q)) return false;
    reverse r = { .s = { .cx = cx, .who = "grad", .leaves = q->leaves },
                  .begun = cx->seq,
                  .ends = !cx->recording && !eg__capturing(cx) && !reverse_is_observed(cx),
                  .each = q->how == ZEROS_OF_EACH || q->how == COPIES_OF_EACH ||
                          called_by_rule_of_copies(cx, q),
                  .count = q->count,
                  .xs = q->xs,
                  .into = q->into,
                  .watch = q->watch,
                  .left = q->count };
    eg_sweep *s = &r.s;
    if (q->count && !eg__sweep(s, 1, &q->y, q->count, q->xs)) return false;
    if (q->count && !s->n && q->how == NULLS)
        return reverse_refuse_unreached(cx, q->loss_of, q->y, q->count, q->xs);
    r.sums = s->n ? eg__alloc(cx, 2 * (size_t)s->n) : NULL;
    if (s->n && !r.sums) return false;
    if (s->n) memset(r.sums, 0, 2 * (size_t)s->n);
    r.is_x = s->n ? r.sums + s->n : NULL;
    if (q->into && s->n && !reverse_targets(&r)) return false;
    for (int k = 0; k < q->count; k++)
        if (eg__sweep_has(s, q->xs[k])) r.is_x[q->xs[k]->slot] = true;
    /* y is the last one in the list */
    if (s->n) reverse_keep(s->d[s->n - 1] = q->seed ? q->seed : eg_ones_like(q->y));
    if (!reverse_nodes(&r)) return false;
    return (q->into || reverse_results(&r, q)) && !cx->failed;
}

/* Computes the gradients of a call in the context that this thread uses. Returns 0; −1 after an
 * error, when the dxs are poison. */
static int grad_as(grad_call q)
{
    eg_ctx *cx = q.y ? eg__here(q.y->cx) : eg__context_of("grad", q.count, q.xs);
    eg_tensor *const *seed = &q.seed;
    /* in a child context the child's headers replace tensors of the parent */
    const bool own = !cx || !cx->parent || q.count < 0 || !q.xs || !q.y ||
                     ((q.xs = eg__own_all(cx, q.count, q.xs)) && (q.y = eg__own(q.y)) &&
                      (seed = eg__own_all(cx, 1, seed)));
    if (own) q.seed = *seed;
    const bool good = cx && own && reverse_grad(cx, &q);
    if (!good && q.dxs)
        for (int k = 0; k < q.count; k++) q.dxs[k] = eg__poison(cx);
    return good ? 0 : -1;
}
int eg_grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(
        (grad_call){ .y = y, .seed = seed, .count = count, .xs = xs, .dxs = dxs, .how = ZEROS });
}
int eg_grad_each(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(
        (grad_call){ .y = y, .count = count, .xs = xs, .dxs = dxs, .how = ZEROS_OF_EACH });
}
int eg__grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as((grad_call){
        .y = y, .seed = seed, .count = count, .xs = xs, .dxs = dxs, .how = ZEROS_OF_ANY });
}
int eg__grad_part(eg_tensor *y, eg_tensor *seed, uint64_t leaves, int count, eg_tensor *const *xs,
                  eg_tensor **dxs)
{
    const bool each = eg_ok(y) && y->copies && y->cx->each_copy;
    return grad_as((grad_call){ .y = y,
                                .seed = seed,
                                .count = count,
                                .xs = xs,
                                .dxs = dxs,
                                .how = each ? COPIES_OF_EACH : ZEROS_OF_ANY,
                                .leaves = leaves });
}
int eg_grad_or_null(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(
        (grad_call){ .y = y, .seed = seed, .count = count, .xs = xs, .dxs = dxs, .how = NULLS });
}
int eg_grad_of_loss(const char *who, eg_tensor *loss, int count, eg_tensor *const *xs,
                    eg_tensor **dxs)
{
    return grad_as((grad_call){ .y = loss,
                                .count = count,
                                .xs = xs,
                                .dxs = dxs,
                                .how = NULLS,
                                .loss_of = who ? who : "grad_of_loss" });
}
int eg__grad_into(eg_tensor *y, int count, eg_tensor *const *xs, eg_into *into,
                  const eg_into_watch *watch)
{
    return grad_as((grad_call){
        .y = y, .count = count, .xs = xs, .how = NULLS, .into = into, .watch = watch });
}
