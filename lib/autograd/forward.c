/* forward.c: tangents along the tape (eg_jvp), and what is computed with both modes: H v,
 * Jacobians, Hessians (eg_hvp, eg_jacobian, eg_hessian).
 *
 * If an operation has no jvp, its tangent is computed from its rule: rule(y, u, i) is linear in u,
 * so its gradient by u, with seed dx_i, is J_i dx_i. This is exact, and gives forward mode to every
 * operation with a rule, including a user's. */
#include "autograd/autograd.h"
#include <string.h>

/* Returns zeros in y's shape, with as many copies. */
static eg_tensor *forward_zeros(eg_tensor *y)
{
    eg_tensor *zero = eg_zeros_like(y);
    return y->copies ? eg__copies_spread(y->copies, zero) : zero;
}
/* Returns the tangent of y, computed by differentiating its rule by u (see above). */
static eg_tensor *forward_by_rule(eg_tensor *y, eg_tensor *const *dx)
{
    eg_tensor *u = forward_zeros(y), *sum = NULL, *part;
    const bool was = eg_nograd(y->cx, false); /* the rule has to be recorded as a function of u */
    for (int i = 0; i < y->count && !y->cx->failed; i++) {
        /* its value is not used, so a NaN in it is no error */
        const bool tracing = eg_trace(y->cx, false);
        eg_tensor *c = dx[i] ? eg__rule(y, u, i) : NULL;
        eg_trace(y->cx, tracing);
        if (!c || c->poison || eg__grad(c, dx[i], 1, &u, &part)) continue;
        sum = sum ? eg_add(sum, part) : part;
    }
    eg_nograd(y->cx, was);
    return sum && was && !y->cx->failed ? eg_detach(sum) : sum;
}

/* -- the forward pass -------------------------------------------------------------------------- */
/* Sets *out to the tangent of t from the tangents of its operands; NULL if none of them has one. dx
 * has room for one tangent per operand. False after an error. */
static bool forward_push(eg_sweep *s, eg_tensor *t, eg_tensor **dx, eg_tensor **out)
{
    const eg_tensor *outer = s->cx->rule_node;
    bool moves = false;
    *out = NULL;
    if (eg__sweep_ends(s, t)) return true;
    for (int i = 0; i < t->count; i++) {
        dx[i] = eg__sweep_at(s, t->in[i]);
        if (!dx[i]) continue;
        if (!t->op->rule && !t->op->jvp) {
            eg_fail_as(s->cx, EG_ERROR_UNSUPPORTED, "%s: %s has no gradient for operand %d", s->who,
                       t->op->name, i + 1);
            return false;
        }
        if (!eg__check_unchanged(s, t, i)) return false;
        moves = true;
    }
    if (!moves) return true;
    s->cx->rule_node = t;
    s->cx->rule_kind = "tangent";
    *out = t->op->jvp ? eg__jvp_rule(t, dx) : forward_by_rule(t, dx);
    s->cx->rule_node = outer;
    eg__sweep_reclaim(s);
    return !s->cx->failed && (!*out || eg__check_cotangent(s, t, "jvp", *out, t, -1));
}

/* Sets ts[k] to the tangent of ys[k] along vs. leaves: of eg_sweep. False after an error. */
static bool forward_tangents(eg_ctx *cx, const char *who, uint64_t leaves, int results,
                             eg_tensor *const *ys, int count, eg_tensor *const *xs,
                             eg_tensor *const *vs, eg_tensor **ts)
{
    eg_sweep s = { .cx = cx, .who = who, .leaves = leaves };
    if (!eg__sweep(&s, results, ys, count, xs)) {
        eg__pass_refused(cx);
        return false;
    }
    int operands = 1; /* the largest number of operands of a node */
    for (int64_t k = 0; k < s.n; k++)
        if (s.node[k]->count > operands) operands = s.node[k]->count;
    eg_tensor **dx = eg__alloc(cx, (size_t)operands * sizeof *dx), *t;
    if (!dx) return false;
    for (int k = 0; k < count; k++) {
        eg_tensor *had = eg__sweep_at(&s, xs[k]);
        if (eg__sweep_has(&s, xs[k]) && vs[k]) s.d[xs[k]->slot] = had ? eg_add(had, vs[k]) : vs[k];
    }
    for (int64_t k = 0; k < s.n; k++) {
        if (!forward_push(&s, s.node[k], dx, &t)) {
            eg__pass_failed(&s, k, s.n);
            return false;
        }
        if (t) s.d[k] = s.d[k] ? eg_add(s.d[k], t) : t;
    }
    for (int k = 0; k < results; k++) {
        eg_tensor *d = eg__sweep_at(&s, ys[k]);
        ts[k] = !d ? forward_zeros(ys[k]) : ys[k]->copies ? eg__copies_spread(ys[k]->copies, d) : d;
    }
    return !cx->failed;
}

/* True if y, xs and vs can be used; else records an error. */
static bool forward_inputs_fit(eg_ctx *cx, const char *who, eg_tensor *y, int count,
                               eg_tensor *const *xs, eg_tensor *const *vs)
{
    char a[256], b[256];
    if (!eg__check_differentiable(cx, who, "y", -1, y)) return false;
    if (count < 0) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the number of xs is %d, but must not be negative", who,
                   count);
        return false;
    }
    if (count && (!xs || !vs)) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s is NULL", who, xs ? "vs" : "xs");
        return false;
    }
    for (int k = 0; k < count; k++) {
        if (!eg__check_differentiable(cx, who, "xs", k, xs[k])) return false;
        if (!vs[k]) continue;
        if (!eg__check_seed(cx, who, "vs", k, vs[k])) return false;
        if (eg__same_shape(xs[k], vs[k]) && xs[k]->dtype == vs[k]->dtype) continue;
        eg_fail_as(cx, xs[k]->dtype == vs[k]->dtype ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                   "%s: vs[%d] is %s %s, xs[%d] is %s %s", who, k,
                   eg_type_name((eg_dtype)vs[k]->dtype), eg__dims_text(vs[k], a, sizeof a), k,
                   eg_type_name((eg_dtype)xs[k]->dtype), eg__dims_text(xs[k], b, sizeof b));
        return false;
    }
    return !count || eg__check_recorded(cx, who, "y", y, count, xs);
}

/* In a child context replaces tensors of the parent by the child's headers of them, to which the
 * child's tape refers. False after an error. */
static bool forward_own(eg_ctx *cx, eg_tensor **y, int count, eg_tensor *const **xs,
                        eg_tensor *const **vs)
{
    if (!cx || !cx->parent || !*y || !*xs || !*vs || count < 0) return true;
    return (*xs = eg__own_all(cx, count, *xs)) && (*vs = eg__own_all(cx, count, *vs)) &&
           (*y = eg__own(*y));
}
eg_tensor *eg__jvp_part(eg_tensor *y, uint64_t leaves, int count, eg_tensor *const *xs,
                        eg_tensor *const *vs)
{
    eg_ctx *cx = y ? eg__here(y->cx) : eg__context_of("jvp", count, xs);
    eg_tensor *t;
    if (!forward_own(cx, &y, count, &xs, &vs)) return eg__poison(cx);
    return cx && forward_inputs_fit(cx, "jvp", y, count, xs, vs) &&
                   forward_tangents(cx, "jvp", leaves, 1, &y, count, xs, vs, &t)
               ? t
               : eg__poison(cx);
}
eg_tensor *eg_jvp(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs)
{
    return eg__jvp_part(y, 0, count, xs, vs);
}

/* -- H v: the tangent of the gradient --------------------------------------------------------- */
/* Computes the gradient of y, which must have one element, with a history, even if the context does
 * not record. False after an error. */
static bool forward_recorded_grad(const char *who, eg_tensor *y, int count, eg_tensor *const *xs,
                                  eg_tensor **dxs)
{
    char text[256];
    if (eg_size(y) != 1) {
        eg_fail_as(y->cx, EG_ERROR_SHAPE, "%s: y has %lld elements, shape %s, not one: reduce it",
                   who, (long long)eg_size(y), eg__dims_text(y, text, sizeof text));
        return false;
    }
    const bool was = eg_nograd(y->cx, false), good = !eg_grad(y, NULL, count, xs, dxs);
    eg_nograd(y->cx, was);
    return good;
}
/* The tangent along vs of the gradient, which is recorded for that purpose. */
int eg_hvp(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs, eg_tensor **hv)
{
    eg_ctx *cx = y ? eg__here(y->cx) : eg__context_of("hvp", count, xs);
    bool good = cx && forward_own(cx, &y, count, &xs, &vs) &&
                forward_inputs_fit(cx, "hvp", y, count, xs, vs);
    if (good && count && !hv) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "hvp: hv is NULL");
        good = false;
    }
    eg_tensor **g = good ? eg__alloc(cx, (size_t)(count ? count : 1) * sizeof *g) : NULL;
    good = g && forward_recorded_grad("hvp", y, count, xs, g) &&
           forward_tangents(cx, "hvp", 0, count, g, count, xs, vs, hv);
    if (!good && hv)
        for (int k = 0; k < count; k++) hv[k] = eg__poison(cx);
    return good ? 0 : -1;
}

/* -- Jacobian: rows by reverse mode or columns by forward mode, whichever are fewer ----------- */
static eg_tensor *forward_line(eg_tensor *y, eg_tensor *x, bool rows, eg_tensor *seed)
{
    eg_tensor *d;
    return !rows ? eg_jvp(y, 1, &x, &seed) : eg_grad(y, seed, 1, &x, &d) ? eg__poison(y->cx) : d;
}

/* Returns a seed: zeros of the shape of `like`, with a 1 at element k if k < n. */
static eg_tensor *forward_unit(const eg_tensor *like, int64_t n, int64_t k)
{
    eg_tensor *e = eg__zeros(like->cx, (eg_dtype)like->dtype, like->rank, like->dim);
    if (!e || k >= n) return e;
    if (e->dtype == EG_F64)
        ((double *)(void *)e->data)[k] = 1;
    else
        ((float *)(void *)e->data)[k] = 1;
    eg__made_once(e);
    return e;
}
/* Returns ∂y/∂x, computed row by row or column by column. If the context does not record, a scope
 * frees the temporaries of each. */
static eg_tensor *jacobian(const char *who, eg_tensor *y, eg_tensor *x)
{
    eg_ctx *cx = y->cx;
    const int64_t ny = eg_size(y), nx = eg_size(x);
    const int rank = y->rank + x->rank;
    const bool rows = ny <= nx;
    const eg_tensor *seeded = rows ? y : x;
    const int64_t n = rows ? ny : nx, length = rows ? nx : ny;
    int64_t dim[2 * EG_RANK_MAX];
    if (rank > EG_RANK_MAX)
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "%s: y has %d axes and x %d, and a tensor has at most %d", who, y->rank,
                          x->rank, EG_RANK_MAX);
    if (y->rank) memcpy(dim, y->dim, y->rank * sizeof *dim);
    if (x->rank) memcpy(dim + y->rank, x->dim, x->rank * sizeof *dim);
    if (!eg__check_recorded(cx, who, "y", y, 1, &x) ||
        !eg__sizes_fit(cx, who, (eg_dtype)y->dtype, rank, dim))
        return eg__poison(cx);
    if (!n || !length) return eg_full_n(cx, (eg_dtype)x->dtype, 0, rank, dim);
    if (!cx->recording) { /* the result does not refer to the temporaries */
        eg_tensor *all = eg__new(cx, (eg_dtype)x->dtype, 2, (int64_t[]){ ny, nx });
        for (int64_t k = 0; k < n && all; k++) {
            eg_mark m = eg_push(cx);
            eg_tensor *e = forward_unit(seeded, n, k),
                      *d = e ? eg_reshape_n(forward_line(y, x, rows, e), 1, &length) : NULL;
            eg_tensor *to = eg_ok(d) ? eg__alias(all, 1, &length, &all->stride[rows ? 1 : 0],
                                                 k * all->stride[rows ? 0 : 1])
                                     : NULL;
            if (to && !eg__copy_act(to, d)) to = NULL;
            eg_pop(cx, m);
        }
        return cx->failed || !all ? eg__poison(cx) : eg_reshape_n(all, rank, dim);
    }
    eg_tensor **each = eg__alloc(cx, (size_t)n * sizeof *each);
    for (int64_t k = 0; each && k < n; k++) {
        eg_tensor *e = forward_unit(seeded, n, k);
        each[k] = e ? eg_reshape_n(forward_line(y, x, rows, e), 1, &length) : eg__poison(cx);
        if (cx->failed) return eg__poison(cx);
    }
    return each ? eg_reshape_n(eg_stack_axis_n(rows ? 0 : 1, (int)n, each), rank, dim)
                : eg__poison(cx);
}
/* True if y, a and, unless it is NULL, b can be differentiated; else records an error. */
static bool forward_differentiable(const char *who, eg_ctx *cx, const eg_tensor *y,
                                   const char *a_name, const eg_tensor *a, const char *b_name,
                                   const eg_tensor *b)
{
    return eg__check_differentiable(cx, who, "y", -1, y) &&
           eg__check_differentiable(cx, who, a_name, -1, a) &&
           (!b || eg__check_differentiable(cx, who, b_name, -1, b));
}
eg_tensor *eg_jacobian(eg_tensor *y, eg_tensor *x)
{
    eg_ctx *cx = eg__context_of("jacobian", 2, (eg_tensor *[]){ y, x });
    if (x && !(x = eg__own(x))) return eg__poison(cx);
    return cx && forward_differentiable("jacobian", cx, y, "x", x, NULL, NULL)
               ? jacobian("jacobian", y, x)
               : eg__poison(cx);
}
eg_tensor *eg_hessian(eg_tensor *y, eg_tensor *a, eg_tensor *b)
{
    eg_ctx *cx = eg__context_of("hessian", 3, (eg_tensor *[]){ y, a, b });
    eg_tensor *g;
    if (!cx || !b) return cx ? eg_fail_as(cx, EG_ERROR_MISUSE, "hessian: b is NULL") : NULL;
    if ((a && !(a = eg__own(a))) || !(b = eg__own(b))) return eg__poison(cx);
    if (!forward_differentiable("hessian", cx, y, "a", a, "b", b) ||
        !forward_recorded_grad("hessian", y, 1, &a, &g))
        return eg__poison(cx);
    return jacobian("hessian", g, b);
}
