/* tape.c: applying a row, and the reverse sweep over what was applied.
 *
 * Every result remembers its row and operands (unless eg_nograd): the tape is the tensors themselves. eg_grad visits the nodes
 * between y and the xs in reverse topological order and asks each row's rule for the cotangent of each operand on the way;
 * since rules are made of public operations, cotangents have histories of their own and can be differentiated again. */
#include "autograd/probe.h"
#include <string.h>

/* of the operands, as eg_apply found them */
static uint64_t *versions(const eg_tensor *y) { return (uint64_t *)(void *)(y->in + y->count); }

eg_ctx *eg__context_of(int count, eg_tensor *const *xs)
{
    for (int k = 0; xs && k < count; k++) if (xs[k] && xs[k]->cx) return xs[k]->cx;
    return NULL;
}

/* May operand k (counted from 0) be used in cx? A failed context refuses everything silently: its error is already said. */
static bool usable(eg_ctx *cx, const char *who, int k, const eg_tensor *x)
{
    if (cx->failed) return false;
    if (!x) eg_fail(cx, "%s: operand %d is NULL", who, k + 1);
    else if (x->live != EG_LIVE) eg_fail(cx, "%s: operand %d was used after the scope that held it was popped", who, k + 1);
    else if (x->cx != cx) eg_fail(cx, "%s: operand %d belongs to another context", who, k + 1);
    else if (x->poison) eg_fail(cx, "%s: operand %d is the result of an operation that failed", who, k + 1);
    else return true;
    return false;
}
static bool read_by(eg_ctx *cx, const char *who, int k, eg_tensor *x)
{
    if (!usable(cx, who, k, x)) return false;
    if (cx->probe) eg__probe_operand(cx, x);
    return !cx->failed;
}
bool eg__check(const char *who, eg_tensor *x) { return x && x->cx && read_by(x->cx, who, 0, x); }
bool eg__check_all(eg_ctx *cx, const char *who, int count, eg_tensor *const *xs)
{
    for (int k = 0; k < count; k++) if (!read_by(cx, who, k, xs[k])) return false;
    return true;
}

/* A row's shape() says what the result is, and forward() what is in it, unless it is a view. */
static bool declared(eg_tensor *y)
{
    if (!y->dtype) eg_fail(y->cx, "%s: its shape() declared no result", y->op->name);
    else if (!y->op->forward && !y->data) eg_fail(y->cx, "%s: it has no forward(), and its result is not a view", y->op->name);
    return !y->cx->failed;
}

eg_tensor *eg_apply(const eg_op *op, const void *attr, size_t attr_size, int count, eg_tensor *const *xs)
{
    eg_ctx *cx = eg__context_of(count, xs);
    if (!cx) return NULL;
    if (!op) return eg_fail(cx, "apply: the row is NULL");
    if (!eg__check_all(cx, op->name, count, xs)) return &cx->poison;
    if (op->arity >= 0 && op->arity != count)
        return eg_fail(cx, "%s: takes %d operands, was given %d", op->name, op->arity, count);
    eg__arena *a = eg__top(cx);
    eg_tensor *y = eg__tensor_in(a);
    if (!y) return &cx->poison;
    size_t in = (size_t)count * (sizeof *y->in + sizeof(uint64_t)), at = (in + 15) / 16 * 16;
    char *m = eg__alloc_in(a, at + attr_size);
    if (!m) return &cx->poison;
    y->op = op;
    y->count = count;
    y->in = (eg_tensor **)(void *)m;
    for (int k = 0; k < count; k++) { y->in[k] = xs[k]; versions(y)[k] = xs[k]->st->version; }
    if (attr && attr_size) y->attr = memcpy(m + at, attr, attr_size);
    eg__count_node(cx);
    if (!op->shape(y) || !declared(y) || !eg__give_storage(y) || (op->forward && !op->forward(y))) {
        y->live = EG_DEAD;
        if (!cx->failed) eg_fail(cx, "%s: failed without saying why", op->name);
        return &cx->poison;
    }
    y->version = y->st->version;
    if (!cx->recording) { y->op = NULL; y->count = 0; }
    return y;
}

eg_tensor *eg_operand(const eg_tensor *y, int i) { return y && i >= 0 && i < y->count ? y->in[i] : NULL; }
int eg_operands(const eg_tensor *y) { return y ? y->count : 0; }
const void *eg_attr(const eg_tensor *y) { return y ? y->attr : NULL; }
const eg_op *eg_op_of(const eg_tensor *y) { return y ? y->op : NULL; }
eg_tensor *eg_zero_rule(eg_tensor *y, eg_tensor *g, int i) { (void)g; return eg_zeros_like(eg_operand(y, i)); }

/* -- the reverse sweep ----------------------------------------------------------------------------------------------------------- */
typedef struct visit { eg_tensor *t; int next; bool wanted; } visit;     /* depth first: operands from `next` on are still to see */
typedef struct sweep {
    eg_ctx *cx;
    uint64_t number;            /* t->sweep of the nodes seen                                        */
    eg_tensor **order, **g;     /* nodes on a path from y to some x, operands first; their cotangents */
    int64_t n, room;
} sweep;

enum { SEEN = -1 };             /* slot of a node that was seen and leads to no x                    */

/* Doubles an array that lies in the open scope. */
static void *grown(eg_ctx *cx, void *old, size_t elem, int64_t n, int64_t *room)
{
    int64_t more = *room ? 2 * *room : 64;
    void *p = eg__alloc(cx, (size_t)more * elem);
    if (!p) return NULL;
    if (n) memcpy(p, old, (size_t)n * elem);
    *room = more;
    return p;
}

static bool differentiable(const eg_tensor *t) { return eg__is_float(t->dtype); }

/* Post-order from y over the nodes that are not older than the oldest x (an older one cannot depend on any x). */
static bool collect(sweep *s, eg_tensor *y, int count, eg_tensor *const *xs)
{
    uint64_t oldest = UINT64_MAX;
    for (int k = 0; k < count; k++) if (xs[k]->seq < oldest) oldest = xs[k]->seq;
    visit *stack = NULL;
    int64_t depth = 0, room = 0;
    eg_tensor *enter = y;
    for (;;) {
        if (enter) {
            if (depth == room && !(stack = grown(s->cx, stack, sizeof *stack, depth, &room))) return false;
            stack[depth] = (visit){ .t = enter };
            enter->sweep = s->number;
            enter->slot = SEEN;
            for (int k = 0; k < count; k++) if (xs[k] == enter) stack[depth].wanted = true;
            depth++;
            enter = NULL;
        }
        visit *v = &stack[depth - 1];
        if (v->next < v->t->count) {
            eg_tensor *x = v->t->in[v->next++];
            if (x->seq < oldest || !differentiable(x)) continue;
            if (x->sweep == s->number) v->wanted |= x->slot != SEEN;
            else enter = x;
            continue;
        }
        bool wanted = v->wanted;
        if (wanted) {
            if (s->n == s->room && !(s->order = grown(s->cx, s->order, sizeof *s->order, s->n, &s->room))) return false;
            v->t->slot = s->n;
            s->order[s->n++] = v->t;
        }
        if (--depth == 0) return true;
        stack[depth - 1].wanted |= wanted;
    }
}

/* Was what the rule will read changed in place since? */
static bool fresh(sweep *s, const eg_tensor *t, int i)
{
    static const struct { bool others, self, result; } reads[] = {
        [EG_USES_ALL] = { true, true, true }, [EG_USES_NOTHING] = { false, false, false }, [EG_USES_OPERANDS] = { true, true, false },
        [EG_USES_OTHERS] = { true, false, false }, [EG_USES_RESULT] = { false, false, true },
    };
    const uint64_t *had = versions(t);
    for (int k = 0; k < t->count; k++)
        if ((k == i ? reads[t->op->uses].self : reads[t->op->uses].others) && t->in[k]->st->version != had[k]) {
            eg_fail(s->cx, "grad: operand %d of %s was changed in place after it was used, and the gradient of operand %d needs its old value", k + 1, t->op->name, i + 1);
            return false;
        }
    if (reads[t->op->uses].result && t->st->version != t->version) {
        eg_fail(s->cx, "grad: the result of %s was changed in place, and the gradient of operand %d needs its old value", t->op->name, i + 1);
        return false;
    }
    return true;
}

static bool pull(sweep *s, int64_t k)
{
    eg_tensor *t = s->order[k], *g = s->g[k];
    for (int i = 0; i < t->count; i++) {
        eg_tensor *x = t->in[i];
        if (x->sweep != s->number || x->slot == SEEN || !differentiable(x)) continue;
        if (!t->op->rule) { eg_fail(s->cx, "grad: %s has no gradient for operand %d", t->op->name, i + 1); return false; }
        if (t->op->rule == eg_zero_rule) continue;
        if (!fresh(s, t, i)) return false;
        eg_tensor *c = t->op->rule(t, g, i);
        if (eg__sweep_now(s->cx) != s->number) {        /* the rule took a gradient itself: its marks go, ours come back */
            s->number = eg__sweep(s->cx);
            for (int64_t j = 0; j < s->n; j++) { s->order[j]->sweep = s->number; s->order[j]->slot = j; }
        }
        if (s->cx->failed) return false;
        if (!c) continue;
        if (s->cx->probe) c = eg__probe_cotangent(s->cx, t, i, c);
        if (c->live != EG_LIVE || c->cx != s->cx) {
            eg_fail(s->cx, "grad: the rule of %s returned a tensor for operand %d that was popped or belongs to another context", t->op->name, i + 1);
            return false;
        }
        if (!eg__same_shape(c, x) || c->dtype != x->dtype) {
            char a[256], b[256];
            eg_fail(s->cx, "grad: the rule of %s returned %s %s for operand %d, which is %s %s", t->op->name, eg_type_name(c->dtype),
                    eg__dims_text(c, a, sizeof a), i + 1, eg_type_name(x->dtype), eg__dims_text(x, b, sizeof b));
            return false;
        }
        s->g[x->slot] = s->g[x->slot] ? eg_add(s->g[x->slot], c) : c;
    }
    return !s->cx->failed;
}

static int grad(eg_ctx *cx, eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    char a[256], b[256];
    if (!usable(cx, "grad: y", 0, y) || (seed && !usable(cx, "grad: seed", 0, seed))) return -1;
    if (count < 0) { eg_fail(cx, "grad: %d inputs", count); return -1; }
    if (count && (!xs || !dxs)) { eg_fail(cx, "grad: %s is NULL", xs ? "dxs" : "xs"); return -1; }
    for (int k = 0; k < count; k++) {
        if (!usable(cx, "grad: xs", k, xs[k])) return -1;
        if (!differentiable(xs[k])) { eg_fail(cx, "grad: xs[%d] is %s; only floats have gradients", k, eg_type_name(xs[k]->dtype)); return -1; }
    }
    if (!differentiable(y)) { eg_fail(cx, "grad: y is %s; only floats have gradients", eg_type_name(y->dtype)); return -1; }
    if (!seed && eg_size(y) != 1) {
        eg_fail(cx, "grad: y has %lld elements, shape %s: give a seed, or reduce it to one", (long long)eg_size(y), eg__dims_text(y, a, sizeof a));
        return -1;
    }
    if (seed && (!eg__same_shape(seed, y) || seed->dtype != y->dtype)) {
        eg_fail(cx, "grad: the seed is %s %s, y is %s %s", eg_type_name(seed->dtype), eg__dims_text(seed, a, sizeof a),
                eg_type_name(y->dtype), eg__dims_text(y, b, sizeof b));
        return -1;
    }
    sweep s = { .cx = cx, .number = eg__sweep(cx) };
    if (count && !collect(&s, y, count, xs)) return -1;
    if (s.n) {
        if (!(s.g = eg__alloc(cx, (size_t)s.n * sizeof *s.g))) return -1;
        memset(s.g, 0, (size_t)s.n * sizeof *s.g);
        s.g[s.n - 1] = seed ? seed : eg_ones_like(y);    /* y is the last of its post-order */
        for (int64_t k = s.n; k-- > 0; ) if (s.g[k] && !pull(&s, k)) return -1;
    }
    for (int k = 0; k < count; k++) {
        bool reached = xs[k]->sweep == s.number && xs[k]->slot != SEEN && s.g[xs[k]->slot];
        dxs[k] = reached ? s.g[xs[k]->slot] : eg_zeros_like(xs[k]);
    }
    return cx->failed ? -1 : 0;
}

int eg_grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    eg_ctx *cx = y ? y->cx : eg__context_of(count, xs);
    int bad = cx ? grad(cx, y, seed, count, xs, dxs) : -1;
    if (bad && dxs) for (int k = 0; k < count; k++) dxs[k] = eg__poison(cx);
    return bad;
}
