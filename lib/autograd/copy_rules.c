/* copy_rules.c: the rules of operations on tensors with copies. A rule made of public operations
 * serves all copies in one call. A custom operation may save memory for its rule, which is that of
 * one copy; its rule is called for each copy, on a node of that copy. */
#include "autograd/autograd.h"

/* Returns copy k of x; x itself if it has no copies or is NULL. */
static eg_tensor *rules_copy_of(eg_tensor *x, int64_t k)
{
    return x && x->copies ? eg_copy_at(x, k) : x;
}
/* Returns copy k of y as a node on copy k of its operands. It is recorded even while the pass is
 * not, since rules read the operands of a node. NULL after an error. */
static eg_tensor *rules_node(eg_tensor *y, int64_t k)
{
    eg_ctx *cx = y->cx;
    eg_tensor **in = eg__alloc(cx, (size_t)y->count * sizeof *in), *node = NULL;
    const bool was = eg_nograd(cx, false);
    for (int i = 0; in && i < y->count; i++) in[i] = rules_copy_of(y->in[i], k);
    if (in && !cx->failed) node = eg__apply_copy(y, k, in);
    eg_nograd(cx, was);
    return eg_ok(node) ? node : NULL;
}
/* Returns a tensor with copies, of which parts[k] is copy k; NULL if all parts are. `like` has the
 * sizes of a part that is NULL, a zero. */
static eg_tensor *rules_joined(const eg_copies *c, eg_tensor **parts, eg_tensor *like)
{
    bool any = false;
    for (int64_t k = 0; k < c->count; k++) any |= parts[k] != NULL;
    if (!any || like->cx->failed) return NULL;
    for (int64_t k = 0; k < c->count; k++)
        if (!parts[k]) parts[k] = eg_zeros_like(rules_copy_of(like, k));
    return eg_copies_unstack(c, eg_stack_axis_n(0, (int)c->count, parts));
}

/* Calls the rule of y's operation for operand i or, if dx is not NULL, its jvp, for each copy. */
static eg_tensor *rules_of_copies(eg_tensor *y, eg_tensor *g, int i, eg_tensor *const *dx)
{
    eg_ctx *cx = y->cx;
    const eg_copies *c = y->copies;
    eg_tensor **d = eg__alloc(cx, (size_t)c->count * sizeof *d),
              **dx_k = eg__alloc(cx, (size_t)y->count * sizeof *dx_k);
    for (int64_t k = 0; d && dx_k && k < c->count; k++) {
        eg_tensor *node = rules_node(y, k);
        for (int n = 0; dx && n < y->count; n++) dx_k[n] = rules_copy_of(dx[n], k);
        d[k] = !node ? NULL
               : dx  ? y->op->jvp(node, dx_k)
                     : y->op->rule(node, rules_copy_of(g, k), i);
        if (cx->failed) return NULL;
    }
    return d && dx_k ? rules_joined(c, d, dx ? y : y->in[i]) : NULL;
}

eg_tensor *eg__rule(eg_tensor *y, eg_tensor *g, int i)
{
    const eg_switches was = eg__switches_in(y->cx);
    eg_tensor *d = y->copies && y->saves ? rules_of_copies(y, g, i, NULL) : y->op->rule(y, g, i);
    if (eg__switches_are(y->cx, was)) return d; /* this is called for every node */
    eg__switches_kept(y->cx, was, y->op->name, "its rule");
    return NULL;
}
eg_tensor *eg__jvp_rule(eg_tensor *y, eg_tensor *const *dx)
{
    const eg_switches was = eg__switches_in(y->cx);
    eg_tensor *t = y->copies && y->saves ? rules_of_copies(y, NULL, -1, dx) : y->op->jvp(y, dx);
    if (eg__switches_are(y->cx, was)) return t;
    eg__switches_kept(y->cx, was, y->op->name, "its jvp");
    return NULL;
}
