/* walk.c: the traversal of the tape, and the nodes and checks of a backward or forward pass. */
#include "autograd/autograd.h"
#include <string.h>

/* Records the error that operand i of t was freed. Returns false. */
static bool walk_refuse(eg_ctx *cx, const char *who, const eg_tensor *t, int i)
{
    char text[256];
    eg_fail_as(
        cx, EG_ERROR_MISUSE,
        "%s: operand %d of %s is gone: the scope or owner that held it was closed after it was "
        "used",
        who, i + 1, eg__origin(t, text, sizeof text));
    return false;
}

/* Returns a scratch buffer for at least one more element; it grows by doubling. NULL after an
 * error. */
static void *walk_reserve(eg_ctx *cx, eg_scratch which, void *old, size_t elem, int64_t n,
                          int64_t *capacity)
{
    if (n < *capacity) return old;
    int64_t more = *capacity ? 2 * *capacity : 256;
    /* a scratch buffer that grows loses its content */
    void *kept = n ? eg__alloc(cx, (size_t)n * elem) : NULL;
    if (n && !kept) return NULL;
    if (n) memcpy(kept, old, (size_t)n * elem);
    void *p = eg__scratch(cx, which, (size_t)more * elem);
    if (!p) return NULL;
    if (n) memcpy(p, kept, (size_t)n * elem);
    *capacity = more;
    return p;
}

/* A node whose operands from `next` on have not been visited yet. */
typedef struct visit {
    eg_tensor *t;
    int next;
} visit;
typedef struct walking {
    eg_walk *w;
    visit *stack;
    int64_t stack_capacity, node_capacity; /* in elements */
} walking;

/* True if the traversal does not visit t's operands. */
static bool walk_ends(const eg_walk *w, const eg_tensor *t)
{
    return t->count == 0 || t->seq <= w->leaves || (w->slopes && eg__sweep_zero(t));
}
/* True if the traversal visits the operand x. */
static bool walk_follows(const eg_walk *w, const eg_tensor *x)
{
    return x->seq >= w->oldest && (!w->floats || eg__is_float(x->dtype)) &&
           !(w->own && x->own.lent);
}
static bool walk_append(walking *g, eg_tensor *t)
{
    eg_walk *w = g->w;
    if (!(w->node = walk_reserve(w->cx, EG_SCRATCH_ORDER, w->node, sizeof *w->node, w->n,
                                 &g->node_capacity)))
        return false;
    t->slot = w->n;
    w->node[w->n++] = t;
    return true;
}

/* Appends y after all nodes that it was computed from, depth first. The stack is a buffer, since
 * graphs are deeper than the machine's stack allows. Leaves are appended without being pushed.
 * False after an error. */
static bool walk_from(walking *g, eg_tensor *y)
{
    eg_walk *w = g->w;
    int64_t depth = 0;
    eg_tensor *enter = y;
    for (;;) {
        if (enter) {
            enter->sweep = w->number;
            if (walk_ends(w, enter)) {
                if (!walk_append(g, enter)) return false;
            } else {
                g->stack = walk_reserve(w->cx, EG_SCRATCH_STACK, g->stack, sizeof *g->stack, depth,
                                        &g->stack_capacity);
                if (!g->stack) return false;
                g->stack[depth++] = (visit){ .t = enter };
            }
            enter = NULL;
        }
        if (!depth) return true;
        visit *v = &g->stack[depth - 1];
        if (v->next == v->t->count) {
            if (!walk_append(g, v->t)) return false;
            depth--;
            continue;
        }
        const int i = v->next++;
        if (eg__operand_lives(v->t, i)) {
            eg_tensor *x = v->t->in[i];
            if (x->sweep != w->number && walk_follows(w, x)) enter = x;
        } else if (w->who)
            return walk_refuse(w->cx, w->who, v->t, i);
    }
}

bool eg__walk(eg_walk *w, int results, eg_tensor *const *ys)
{
    walking g = { .w = w };
    w->number = ++w->cx->sweep;
    w->n = 0;
    for (int k = 0; k < results; k++)
        if (ys[k]->sweep != w->number && !walk_from(&g, ys[k])) {
            eg_name_memory_error(w->cx, w->who);
            return false;
        }
    return true;
}

/* -- the nodes of a backward or forward pass --------------------------------------------------- */
/* Keeps those nodes of the traversal that depend on an x. Nodes older than every x cannot be among
 * them. */
bool eg__sweep(eg_sweep *s, int results, eg_tensor *const *ys, int count, eg_tensor *const *xs)
{
    enum { UNREACHED = -1, TARGET = -2 };
    eg_walk w = { .cx = s->cx,
                  .who = s->who,
                  .oldest = UINT64_MAX,
                  .floats = true,
                  .slopes = !s->zeros,
                  .leaves = s->leaves };
    for (int k = 0; k < count; k++)
        if (xs[k]->seq < w.oldest) w.oldest = xs[k]->seq;
    if (!eg__walk(&w, results, ys)) return false;
    s->number = w.number;
    s->n = 0;
    for (int k = 0; k < count; k++)
        if (xs[k]->sweep == w.number) xs[k]->slot = TARGET;
    for (int64_t k = 0; k < w.n; k++) {
        eg_tensor *t = w.node[k];
        bool reached = t->slot == TARGET;
        for (int i = 0; !reached && i < t->count && !walk_ends(&w, t); i++)
            reached = walk_follows(&w, t->in[i]) && t->in[i]->slot >= 0;
        t->slot = reached ? s->n : UNREACHED;
        if (reached) w.node[s->n++] = t;
    }
    if (!(s->node = eg__alloc(s->cx, 2 * (size_t)(s->n ? s->n : 1) * sizeof *s->node)))
        return false;
    s->d = s->node + s->n;
    if (s->n) memcpy(s->node, w.node, (size_t)s->n * sizeof *s->node);
    memset(s->d, 0, (size_t)s->n * sizeof *s->d);
    return true;
}

void eg__sweep_reclaim(eg_sweep *s)
{
    if (s->cx->sweep == s->number) return;
    s->number = ++s->cx->sweep;
    for (int64_t k = 0; k < s->n; k++) {
        s->node[k]->sweep = s->number;
        s->node[k]->slot = k;
    }
}

/* -- the checks of a backward or forward pass -------------------------------------------------- */
bool eg__check_differentiable(eg_ctx *cx, const char *who, const char *what, int k,
                              const eg_tensor *x)
{
    char name[64];
    if (cx->failed) return false;
    if (x && x->live == EG_LIVE && x->cx == cx && !x->poison && eg__is_float(x->dtype)) return true;
    snprintf(name, sizeof name, k < 0 ? "%s" : "%s[%d]", what, k);
    if (!x)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s is NULL", who, name);
    else if (x->live != EG_LIVE)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s was used after the scope that held it was popped",
                   who, name);
    else if (x->cx != cx)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s belongs to another context", who, name);
    else if (x->poison)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s is the result of an operation that failed", who,
                   name);
    else
        eg_fail_as(cx, EG_ERROR_DTYPE, "%s: %s is %s; only floats have gradients", who, name,
                   eg_type_name((eg_dtype)x->dtype));
    return false;
}

bool eg__check_seed(eg_ctx *cx, const char *who, const char *what, int k, eg_tensor *x)
{
    if (!eg__check_differentiable(cx, who, what, k, x)) return false;
    if (cx->hooks.operand) cx->hooks.operand(cx, x);
    return !cx->failed;
}

bool eg__check_recorded(eg_ctx *cx, const char *who, const char *what, const eg_tensor *y,
                        int count, eg_tensor *const *xs)
{
    if (!y->unrecorded) return true;
    for (int k = 0; k < count; k++)
        if (xs[k] == y) return true;
    eg_fail_as(cx, EG_ERROR_MISUSE,
               "%s: %s was made while nothing was recorded (eg_nograd), so it has no history", who,
               what);
    return false;
}

/* True if the rule of operand i of t reads operand k; of i = −1: if some rule of t may. */
static bool reads_operand(const eg_tensor *t, int i, int k)
{
    switch (t->op->uses) {
    case EG_USES_OTHERS: return k != i;
    case EG_USES_INTEGERS: return !eg__is_inexact(t->in[k]->dtype);
    case EG_USES_NOTHING:
    case EG_USES_RESULT: return false;
    default: return true;
    }
}
/* True if the rules of t read its result. */
static bool reads_result(const eg_tensor *t)
{
    return t->op->uses == EG_USES_ALL || t->op->uses == EG_USES_RESULT;
}
/* Sets s->stale to the first two operands of t that changed and that a rule of t may read; −1:
 * none. It is computed once for each node, since a node may have many operands. */
static void find_stale(eg_sweep *s, const eg_tensor *t)
{
    const uint64_t *had = eg__versions(t);
    s->checked = t;
    s->stale[0] = s->stale[1] = -1;
    for (int k = 0; k < t->count && s->stale[1] < 0; k++)
        if (t->in[k]->st->version != had[k] && reads_operand(t, -1, k))
            s->stale[s->stale[0] >= 0] = k;
}
/* True if operand i of t is, or is a view of, the result of an operation that was changed in place
 * before t read it, and the pass goes on through that operation: the change has no gradient. */
static bool changed_before(const eg_sweep *s, const eg_tensor *t, int i)
{
    const eg_tensor *base = t->in[i]->st->of;
    if (!base || eg__versions(t)[i] == base->version || !base->op) return false;
    if (base->cx != s->cx || !eg__sweep_has(s, base) || eg__sweep_ends(s, base)) return false;
    for (int k = 0; k < base->count; k++)
        if (eg__sweep_has(s, base->in[k])) return true;
    return false;
}
/* While a step is captured: what the rule of operand i of t, which is older than the step, reads
 * must not change before a run. False after an error. */
static bool stays_unchanged(eg_ctx *cx, const eg_tensor *t, int i)
{
    char origin[256], what[300];
    eg__origin(t, origin, sizeof origin);
    for (int k = 0; k < t->count; k++) {
        if (!reads_operand(t, i, k)) continue;
        snprintf(what, sizeof what, "operand %d of %s", k + 1, origin);
        if (!eg__capture_history(cx, t->in[k], eg__versions(t)[k], what)) return false;
    }
    snprintf(what, sizeof what, "the result of %s", origin);
    return !reads_result(t) || eg__capture_history(cx, (eg_tensor *)t, t->version, what);
}
/* A rule for operand i that reads only the other operands may use operand i after a change;
 * stale[1] is for that case. */
bool eg__check_unchanged(eg_sweep *s, const eg_tensor *t, int i)
{
    const eg_uses uses = t->op->uses;
    char text[256];
    if (changed_before(s, t, i)) {
        eg__fail_because(
            s->cx, EG_CAUSE_CHANGED, EG_ERROR_MISUSE,
            "%s: the result of %s was changed in place and then read by %s; a change has no "
            "gradient: use eg_where, eg_concat or eg_scatter_add",
            s->who, eg__origin(t->in[i]->st->of, text, sizeof text), t->op->name);
        return false;
    }
    if (uses == EG_USES_NOTHING) return true;
    if (uses != EG_USES_RESULT) {
        if (s->checked != t) find_stale(s, t);
        const int k = s->stale[0] == i && !reads_operand(t, i, i) ? s->stale[1] : s->stale[0];
        if (k >= 0) {
            eg__fail_because(
                s->cx, EG_CAUSE_CHANGED, EG_ERROR_MISUSE,
                "%s: operand %d of %s was changed in place after it was used, and the gradient "
                "of operand %d needs its old "
                "value",
                s->who, k + 1, eg__origin(t, text, sizeof text), i + 1);
            return false;
        }
    }
    if (reads_result(t) && t->st->version != t->version) {
        eg__fail_because(
            s->cx, EG_CAUSE_CHANGED, EG_ERROR_MISUSE,
            "%s: the result of %s was changed in place, and the gradient of operand %d needs "
            "its old value",
            s->who, eg__origin(t, text, sizeof text), i + 1);
        return false;
    }
    return !eg__capturing(s->cx) || !eg__captured_before(s->cx, t) || stays_unchanged(s->cx, t, i);
}

bool eg__check_cotangent(const eg_sweep *s, const eg_tensor *t, const char *source,
                         const eg_tensor *d, const eg_tensor *x, int i)
{
    char of[32] = "the result", a[256], b[256];
    char name[256];
    if (s->cx->failed ||
        (d->live == EG_LIVE && d->cx == s->cx && eg__same_shape(d, x) && d->dtype == x->dtype))
        return !s->cx->failed;
    eg__origin(t, name, sizeof name);
    if (i >= 0) snprintf(of, sizeof of, "operand %d", i + 1);
    if (d->live != EG_LIVE || d->cx != s->cx)
        eg_fail_as(
            s->cx, EG_ERROR_MISUSE,
            "%s: the %s of %s returned a tensor for %s that was popped or belongs to another "
            "context",
            s->who, source, name, of);
    else
        eg_fail_as(s->cx, d->dtype == x->dtype ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                   "%s: the %s of %s returned %s %s for %s, which is %s %s", s->who, source, name,
                   eg_type_name((eg_dtype)d->dtype), eg__dims_text(d, a, sizeof a), of,
                   eg_type_name((eg_dtype)x->dtype), eg__dims_text(x, b, sizeof b));
    return false;
}
