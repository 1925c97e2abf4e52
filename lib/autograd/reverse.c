/* reverse.c: eg_grad, the reverse sweep. It visits the nodes between y and the xs in reverse topological order and asks each row's rule
 * for the cotangent of each operand on the way; since rules are made of public operations, cotangents have histories of their own. */
#include "autograd/autograd.h"

/* d[slot of x] += c. While nothing is recorded nobody else can hold a sum that this sweep made: it grows in place. */
static void accumulate(eg_sweep *s, bool *sums, const eg_tensor *x, eg_tensor *c)
{
    eg_tensor **d = &s->d[x->slot];
    if (!*d) { *d = c; return; }
    if (sums[x->slot] && !s->cx->recording) { eg__add_to(*d, c); return; }
    *d = eg_add(*d, c);
    sums[x->slot] = true;
}

/* t's cotangent is complete: its hooks, in the order in which they were given. */
static bool call_hooks(eg_sweep *s, int64_t k)
{
    eg_tensor *t = s->node[k];
    char name[256];
    for (eg__hook *h = t->tag ? t->tag->hook : NULL; h; h = h->next) {
        if (h->runs) {
            eg_fail(s->cx, "%s: the hook of %s would call itself: it differentiates through its own tensor", s->who,
                    eg__origin_once(t, name, sizeof name));
            return false;
        }
        h->runs = true;
        eg_tensor *g = h->f(h->user, t, s->d[k]);
        h->runs = false;
        eg__sweep_resume(s);
        if (s->cx->failed || (g && !eg__sweep_like(s, t, "hook", g, t, -1))) return false;
        if (g) s->d[k] = g;
    }
    return true;
}

static bool pull(eg_sweep *s, bool *sums, int64_t k)
{
    if (!call_hooks(s, k)) return false;
    eg_tensor *t = s->node[k], *g = s->d[k];
    if (!t->op || eg__sweep_zero(t)) return true;
    const eg_tensor *outer = s->cx->blame;
    const uint64_t before = s->cx->pull, mine = ++s->cx->pulls;
    for (int i = 0; i < t->count; i++) {
        eg_tensor *x = t->in[i];
        if (!eg__sweep_has(s, x)) continue;
        if (!t->op->rule) { eg_fail(s->cx, "%s: %s has no gradient for operand %d", s->who, t->op->name, i + 1); return false; }
        if (!eg__sweep_fresh(s, t, i)) return false;
        s->cx->blame = t;
        s->cx->making = "gradient";
        s->cx->pull = mine;
        eg_tensor *c = t->op->rule(t, g, i);
        s->cx->pull = before;
        s->cx->blame = outer;
        eg__sweep_resume(s);
        if (s->cx->failed) return false;
        if (!c) continue;
        if (s->cx->hooks.cotangent) c = s->cx->hooks.cotangent(s->cx, t, i, c);
        if (!eg__sweep_like(s, t, "rule", c, x, i)) return false;
        accumulate(s, sums, x, c);
    }
    return !s->cx->failed;
}

static bool given(eg_ctx *cx, const eg_tensor *y, const eg_tensor *seed)
{
    char a[256], b[256];
    if (!seed && eg_size(y) != 1)
        eg_fail(cx, "grad: y has %lld elements, shape %s: give a seed, or reduce it to one", (long long)eg_size(y),
                eg__dims_text(y, a, sizeof a));
    else if (seed && (!eg__same_shape(seed, y) || seed->dtype != y->dtype))
        eg_fail(cx, "grad: the seed is %s %s, y is %s %s", eg_type_name((eg_dtype)seed->dtype), eg__dims_text(seed, a, sizeof a),
                eg_type_name((eg_dtype)y->dtype), eg__dims_text(y, b, sizeof b));
    return !cx->failed;
}

/* Why does y reach none of the xs? A cut, an operand that was made under eg_nograd, or nothing that was written down. */
static bool nothing_reached(eg_ctx *cx, eg_tensor *y, int count, eg_tensor *const *xs)
{
    char at[256], whose[256];
    eg_tensor *cut = NULL, **node;
    int64_t n;
    for (int k = 0; k < count; k++) {
        if (eg_path_to(y, xs[k], &cut) != EG_CUT_PATH) continue;
        eg_fail(cx, "grad: y reaches none of the %d xs: %s cuts the path to xs[%d], %s", count, eg__origin_once(cut, at, sizeof at), k,
                eg__origin_once(xs[k], whose, sizeof whose));
        return false;
    }
    if (cx->failed || !eg__history(y, &n, &node)) return false;
    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < node[k]->count; i++) {
            if (node[k]->in[i]->leaf != EG_LEAF_UNRECORDED || node[k]->in[i]->op) continue;
            eg_fail(cx, "grad: y reaches none of the %d xs: operand %d of %s was made while nothing was recorded (eg_nograd)", count,
                    i + 1, eg__origin_once(node[k], at, sizeof at));
            return false;
        }
    eg_fail(cx, "grad: y reaches none of the %d xs: no operation in its history reads one", count);
    return false;
}

static eg_tensor *of_sweep(eg_tensor *constant)
{
    constant->leaf = EG_LEAF_OF_SWEEP;
    return constant;
}

typedef enum unreached { ZEROS, ZEROS_OF_ANY, NULLS } unreached;    /* what an x gets that y does not reach; OF_ANY: y may be a constant */
static bool grad(eg_ctx *cx, eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs, unreached how)
{
    if (!eg__sweep_usable(cx, "grad", "y", -1, y) || (seed && !eg__sweep_usable(cx, "grad", "the seed", -1, seed))) return false;
    if (count < 0) { eg_fail(cx, "grad: %d inputs", count); return false; }
    if (count && (!xs || !dxs)) { eg_fail(cx, "grad: %s is NULL", xs ? "dxs" : "xs"); return false; }
    for (int k = 0; k < count; k++) if (!eg__sweep_usable(cx, "grad", "xs", k, xs[k])) return false;
    if (!given(cx, y, seed)) return false;
    if (count && how != ZEROS_OF_ANY && !eg__sweep_history(cx, "grad", y, count, xs)) return false;
    eg_sweep s = { .cx = cx, .who = "grad" };
    if (count && !eg__sweep(&s, 1, &y, count, xs)) return false;
    if (count && !s.n && how == NULLS) return nothing_reached(cx, y, count, xs);
    bool *sums = s.n ? eg__alloc(cx, (size_t)s.n) : NULL;
    if (s.n && !sums) return false;
    for (int64_t k = 0; k < s.n; k++) sums[k] = false;
    if (s.n) s.d[s.n - 1] = seed ? seed : of_sweep(eg_ones_like(y));    /* y is the last of its post-order */
    for (int64_t k = s.n; k-- > 0; ) if (s.d[k] && !pull(&s, sums, k)) return false;
    for (int k = 0; k < count; k++) {
        eg_tensor *d = eg__sweep_at(&s, xs[k]);
        dxs[k] = d || how == NULLS ? d : of_sweep(eg_zeros_like(xs[k]));
    }
    return !cx->failed;
}

static int grad_as(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs, unreached how)
{
    eg_ctx *cx = y ? y->cx : eg__context_of("grad", count, xs);
    const bool good = cx && grad(cx, y, seed, count, xs, dxs, how);
    if (!good && dxs) for (int k = 0; k < count; k++) dxs[k] = eg__poison(cx);
    return good ? 0 : -1;
}
int eg_grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(y, seed, count, xs, dxs, ZEROS);
}
int eg__grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(y, seed, count, xs, dxs, ZEROS_OF_ANY);
}
int eg_grad_or_null(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(y, seed, count, xs, dxs, NULLS);
}
