/* walk.c: which nodes lie between results and xs, and in which order. */
#include "autograd/autograd.h"
#include <string.h>

/* slot of a node that leads to no x; of an x that was not met yet */
enum { SEEN = -1, TARGET = -2 };

/* depth first: operands from `next` on are still to see */
typedef struct visit {
    eg_tensor *t;
    int next;
    bool wanted;
} visit;

bool eg__sweep_usable(eg_ctx *cx, const char *who, const char *what, int k, const eg_tensor *x)
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

bool eg__sweep_history(eg_ctx *cx, const char *who, const eg_tensor *y, int count,
                       eg_tensor *const *xs)
{
    if (!y->unrecorded) return true;
    for (int k = 0; k < count; k++)
        if (xs[k] == y) return true;
    eg_fail_as(cx, EG_ERROR_MISUSE,
               "%s: y was made while nothing was recorded (eg_nograd), so it has no history", who);
    return false;
}

bool eg__operand_gone(eg_ctx *cx, const char *who, const eg_tensor *t, int i)
{
    char text[256];
    eg_fail_as(
        cx, EG_ERROR_MISUSE,
        "%s: operand %d of %s is gone: the scope or owner that held it was closed after it was "
        "used",
        who, i + 1, eg__origin_once(t, text, sizeof text));
    return false;
}

/* Room for one more element in a scratch buffer, which grows by doubling. */
static void *walk_room(eg_ctx *cx, eg_scratch which, void *old, size_t elem, int64_t n,
                       int64_t *have)
{
    if (n < *have) return old;
    int64_t more = *have ? 2 * *have : 256;
    /* a scratch buffer that grows forgets */
    void *kept = n ? eg__alloc(cx, (size_t)n * elem) : NULL;
    if (n && !kept) return NULL;
    if (n) memcpy(kept, old, (size_t)n * elem);
    void *p = eg__scratch(cx, which, (size_t)more * elem);
    if (!p) return NULL;
    if (n) memcpy(p, kept, (size_t)n * elem);
    *have = more;
    return p;
}

typedef struct walk {
    eg_sweep *s;
    uint64_t oldest; /* a tensor with a smaller number cannot depend on any x */
    visit *stack;
    eg_tensor **order;
    int64_t stack_room, order_room;
} walk;

static bool walk_append(walk *w, eg_tensor *t)
{
    eg_sweep *s = w->s;
    if (!(w->order =
              walk_room(s->cx, EG_SCRATCH_ORDER, w->order, sizeof *w->order, s->n, &w->order_room)))
        return false;
    t->slot = s->n;
    w->order[s->n++] = t;
    return true;
}

/* Marks t as seen; returns whether it is an x. */
static bool mark(const eg_sweep *s, eg_tensor *t)
{
    const bool target = t->sweep == s->number && t->slot == TARGET;
    t->sweep = s->number;
    t->slot = SEEN;
    return target;
}
static bool walk_seen(const eg_sweep *s, const eg_tensor *t)
{
    return t->sweep == s->number && t->slot != TARGET;
}
static bool ends(const eg_sweep *s, const eg_tensor *t)
{
    return t->count == 0 || (!s->zeros && eg__sweep_zero(t));
}

/* Post-order from y over the nodes that are not older than the oldest x. */
static bool visit_from(walk *w, eg_tensor *y)
{
    eg_sweep *s = w->s;
    int64_t depth = 0;
    eg_tensor *enter = y;
    if (walk_seen(s, y)) return true;
    for (;;) {
        if (enter) {
            if (!(w->stack = walk_room(s->cx, EG_SCRATCH_STACK, w->stack, sizeof *w->stack, depth,
                                       &w->stack_room)))
                return false;
            w->stack[depth] = (visit){ .t = enter,
                                       .wanted = mark(s, enter),
                                       .next = ends(s, enter) ? enter->count : 0 };
            depth++;
            enter = NULL;
        }
        visit *v = &w->stack[depth - 1];
        if (v->next < v->t->count) {
            const int i = v->next++;
            if (!eg__operand_lives(v->t, i)) return eg__operand_gone(s->cx, s->who, v->t, i);
            eg_tensor *x = v->t->in[i];
            if (x->seq < w->oldest || !eg__is_float(x->dtype)) continue;
            if (walk_seen(s, x))
                v->wanted |= x->slot != SEEN;
            else if (!ends(s, x))
                enter = x;
            else if (mark(s, x)) {
                if (!walk_append(w, x)) return false;
                v->wanted = true;
            }
            continue;
        }
        const bool wanted = v->wanted;
        if (wanted && !walk_append(w, v->t)) return false;
        if (--depth == 0) return true;
        w->stack[depth - 1].wanted |= wanted;
    }
}

bool eg__sweep(eg_sweep *s, int results, eg_tensor *const *ys, int count, eg_tensor *const *xs)
{
    walk w = { .s = s, .oldest = UINT64_MAX };
    s->number = ++s->cx->sweep;
    s->n = 0;
    for (int k = 0; k < count; k++) {
        if (xs[k]->seq < w.oldest) w.oldest = xs[k]->seq;
        xs[k]->sweep = s->number;
        xs[k]->slot = TARGET;
    }
    for (int k = 0; k < results; k++)
        if (!visit_from(&w, ys[k])) return false;
    for (int k = 0; k < count; k++)
        if (xs[k]->slot == TARGET) xs[k]->slot = SEEN;
    if (!(s->node = eg__alloc(s->cx, 2 * (size_t)(s->n ? s->n : 1) * sizeof *s->node)))
        return false;
    s->d = s->node + s->n;
    if (s->n) memcpy(s->node, w.order, (size_t)s->n * sizeof *s->node);
    memset(s->d, 0, (size_t)s->n * sizeof *s->d);
    return true;
}

void eg__sweep_resume(eg_sweep *s)
{
    if (s->cx->sweep == s->number) return;
    s->number = ++s->cx->sweep;
    for (int64_t k = 0; k < s->n; k++) {
        s->node[k]->sweep = s->number;
        s->node[k]->slot = k;
    }
}

/* The first two operands of t that changed and that a rule of t may read; −1: none. Found once for
 * each node: it may have many. */
static void find_stale(eg_sweep *s, const eg_tensor *t)
{
    const uint64_t *had = eg__versions(t);
    s->checked = t;
    s->stale[0] = s->stale[1] = -1;
    for (int k = 0; k < t->count && s->stale[1] < 0; k++) {
        if (t->in[k]->st->version == had[k]) continue;
        if (t->op->uses == EG_USES_INTEGERS && eg__is_inexact(t->in[k]->dtype)) continue;
        s->stale[s->stale[0] >= 0] = k;
    }
}
bool eg__sweep_fresh(eg_sweep *s, const eg_tensor *t, int i)
{
    const eg_uses uses = t->op->uses;
    char text[256];
    if (uses == EG_USES_NOTHING) return true;
    if (uses != EG_USES_RESULT) {
        if (s->checked != t) find_stale(s, t);
        const int k = uses == EG_USES_OTHERS && s->stale[0] == i ? s->stale[1] : s->stale[0];
        if (k >= 0) {
            eg_fail_as(
                s->cx, EG_ERROR_MISUSE,
                "%s: operand %d of %s was changed in place after it was used, and the gradient "
                "of operand %d needs its old "
                "value",
                s->who, k + 1, eg__origin_once(t, text, sizeof text), i + 1);
            return false;
        }
    }
    if ((uses == EG_USES_ALL || uses == EG_USES_RESULT) && t->st->version != t->version) {
        eg_fail_as(
            s->cx, EG_ERROR_MISUSE,
            "%s: the result of %s was changed in place, and the gradient of operand %d needs "
            "its old value",
            s->who, eg__origin_once(t, text, sizeof text), i + 1);
        return false;
    }
    return true;
}

bool eg__sweep_like(const eg_sweep *s, const eg_tensor *t, const char *from, const eg_tensor *d,
                    const eg_tensor *x, int i)
{
    char of[32] = "the result", a[256], b[256];
    char name[256];
    if (s->cx->failed ||
        (d->live == EG_LIVE && d->cx == s->cx && eg__same_shape(d, x) && d->dtype == x->dtype))
        return !s->cx->failed;
    eg__origin_once(t, name, sizeof name);
    if (i >= 0) snprintf(of, sizeof of, "operand %d", i + 1);
    if (d->live != EG_LIVE || d->cx != s->cx)
        eg_fail_as(
            s->cx, EG_ERROR_MISUSE,
            "%s: the %s of %s returned a tensor for %s that was popped or belongs to another "
            "context",
            s->who, from, name, of);
    else
        eg_fail_as(s->cx, EG_ERROR_DTYPE, "%s: the %s of %s returned %s %s for %s, which is %s %s",
                   s->who, from, name, eg_type_name((eg_dtype)d->dtype),
                   eg__dims_text(d, a, sizeof a), of, eg_type_name((eg_dtype)x->dtype),
                   eg__dims_text(x, b, sizeof b));
    return false;
}
