/* copies_stack.c: two views, each the adjoint of the other: copies_unstack makes an axis of a
 * tensor its copies (tensor/copies.c), copies_stack makes the copies an axis. Also the functions
 * by which a backward or forward pass spreads and sums tensors between operands with and without
 * copies. */
#include "ops/ops.h"

/* -- copies_unstack: y_k = x[k, …], dx[k] = g_k; its adjoint copies_stack; both are views ----- */
static const eg_op copies_unstack_op;
static const eg_copies *copies_named(const eg_tensor *y)
{
    return *(const eg_copies *const *)y->attr;
}
/* Makes a view without the first axis of x, which becomes the copies. False after an error. */
static bool copies_in_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    const eg_copies *c = copies_named(y);
    char text[256];
    if (x->copies || x->rank < 1 || x->dim[0] != c->count) {
        eg_fail_as(y->cx, EG_ERROR_SHAPE,
                   x->copies
                       ? "copies_unstack: operand 1, %s, has copies already: %lld"
                       : "copies_unstack: operand 1 is %s, but its first axis must have the %lld "
                         "copies",
                   eg__dims_text(x, text, sizeof text),
                   (long long)(x->copies ? x->copies->count : c->count));
        return false;
    }
    if (!eg__shape_view(y, x, x->rank - 1, x->dim + 1, x->stride + 1, 0)) return false;
    y->copies = c;
    y->each = x->stride[0] * eg__width[x->dtype];
    return true;
}
/* Makes a view with the copies as an additional axis. False after an error. */
static bool copies_out_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    int64_t dim[2 * (EG_RANK_MAX + 1)];
    eg_tensor shown;
    if (!x->copies) {
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "copies_stack: operand 1 has no copies");
        return false;
    }
    eg__copies_shown(&shown, x, x->copies->count, dim);
    if (!eg__shape_view(y, x, shown.rank, shown.dim, shown.stride, 0)) return false;
    y->copies = NULL;
    y->each = 0;
    return true;
}
eg_tensor *eg__copies_spread(const eg_copies *c, eg_tensor *x)
{
    int64_t dim[EG_RANK_MAX + 1];
    if (!eg_ok(x) || x->copies) return x;
    dim[0] = c->count;
    for (int r = 0; r < x->rank; r++) dim[r + 1] = x->dim[r];
    return eg_copies_unstack(c, eg_expand_n(eg_unsqueeze(x, 0), x->rank + 1, dim));
}
/* x with its copies, or if it has none with c->count equal ones, as an axis. */
static eg_tensor *stack_spread(const eg_copies *c, eg_tensor *x)
{
    return eg_copies_stack(eg__copies_spread(c, x));
}
static eg_tensor *copies_in_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return stack_spread(copies_named(y), g);
}
static eg_tensor *copies_out_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_copies_unstack(y->in[i]->copies, g);
}
/* The tangent of an operand with copies may have none, if it is the same for every copy. */
static eg_tensor *copies_out_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    return stack_spread(y->in[0]->copies, dx[0]);
}
eg_tensor *eg__copies_sum(const eg_copies *c, eg_tensor *x)
{
    return eg_ok(x) ? eg_einsum("s...->...", stack_spread(c, x)) : x;
}
static eg_tensor *copies_sample(eg_tensor *const *x)
{
    eg_owner *o = eg_owner_open(x[0]->cx);
    const eg_copies *c = o ? eg_copies_open(o, 3, NULL) : NULL;
    return c ? eg_copies_stack(eg_mul(eg_copies_unstack(c, x[0]), x[1])) : eg__poison(x[0]->cx);
}
static const eg_sample copies_samples[] = { { copies_sample, "3x4x2, 4x2", 0, 0 }, { 0 } };
static const eg_op copies_unstack_op = { .name = "copies_unstack",
                                         .equation = "y_k = x[k]",
                                         .gradient = "dx[k] = g_k",
                                         .arity = 1,
                                         .shape = copies_in_shape,
                                         .rule = copies_in_rule,
                                         .uses = EG_USES_NOTHING,
                                         .samples = copies_samples,
                                         .jvp = eg_jvp_linear };
static const eg_op copies_stack_op = { .name = "copies_stack",
                                       .equation = "y[k] = x_k",
                                       .gradient = "dx_k = g[k]",
                                       .arity = 1,
                                       .shape = copies_out_shape,
                                       .rule = copies_out_rule,
                                       .uses = EG_USES_NOTHING,
                                       .samples = copies_samples,
                                       .jvp = copies_out_jvp };
const eg_op *const eg__copies_ops[] = { &copies_unstack_op, &copies_stack_op, NULL };
bool eg__copies_made(const eg_tensor *t)
{
    return t->op == &copies_unstack_op || t->op == &copies_stack_op;
}

eg_tensor *eg_copies_unstack(const eg_copies *c, eg_tensor *x)
{
    if (!c)
        return eg_fail_as(eg_context(x), EG_ERROR_MISUSE, "copies_unstack: the copies are NULL");
    return eg_apply(&copies_unstack_op, &c, sizeof c, 1, &x);
}
eg_tensor *eg_copies_stack(eg_tensor *x) { return eg_apply(&copies_stack_op, NULL, 0, 1, &x); }
eg_tensor *eg_copy_at(eg_tensor *x, int64_t k)
{
    if (!eg__check_usable("copy_at", x)) return eg__poison_of(x);
    const int64_t count = eg__copy_count(x), at = k < 0 ? k + count : k;
    if (!x->copies) return eg_fail_as(x->cx, EG_ERROR_MISUSE, "copy_at: operand 1 has no copies");
    if (at < 0 || at >= count)
        return eg_fail_as(x->cx, EG_ERROR_INDEX,
                          "copy_at: there is no copy %lld; operand 1 has %lld, counted from 0",
                          (long long)k, (long long)count);
    return eg_select_axis(eg_copies_stack(x), 0, at);
}
