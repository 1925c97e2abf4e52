/* rules.c: rules and jvps that several operations use. */
#include "tensor/tensor.h"

eg_tensor *eg_zero_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)g;
    return eg_zeros_like(eg_operand(y, i));
}

/* Returns zeros of x's shape that all share one element. */
static eg_tensor *zeros_of(const eg_tensor *x)
{
    static const int64_t still[EG_RANK_MAX];
    eg_tensor *zero = eg__zeros(x->cx, (eg_dtype)x->dtype, 0, NULL);
    eg__made_once(zero);
    eg_tensor *t = zero ? eg__alias(zero, x->rank, x->dim, still, 0) : NULL;
    return t ? t : eg__poison(x->cx);
}

/* -- jvps that several operations use ---------------------------------------------------------- */
eg_tensor *eg_jvp_linear(eg_tensor *y, eg_tensor *const *dx)
{
    if (!y) return NULL;
    if (!y->op || !dx)
        return eg_fail_as(y->cx, EG_ERROR_MISUSE, "jvp: %s",
                          dx ? "a leaf has no operation" : "the tangents are NULL");
    eg_tensor **in = eg__alloc(y->cx, (size_t)y->count * sizeof *in);
    if (!in) return eg__poison(y->cx);
    for (int i = 0; i < y->count; i++)
        in[i] = dx[i] ? dx[i] : eg__is_float(y->in[i]->dtype) ? zeros_of(y->in[i]) : y->in[i];
    return eg_apply(y->op, y->attr, y->attr_size, y->count, in);
}
eg_tensor *eg_jvp_symmetric(eg_tensor *y, eg_tensor *const *dx)
{
    eg_tensor *sum = NULL;
    if (y && !dx) return eg_fail_as(y->cx, EG_ERROR_MISUSE, "jvp: the tangents are NULL");
    for (int i = 0; y && i < y->count; i++) {
        if (dx[i] && !y->op->rule)
            return eg_fail_as(y->cx, EG_ERROR_MISUSE, "jvp: %s has no rule", y->op->name);
        eg_tensor *part = dx[i] ? y->op->rule(y, dx[i], i) : NULL;
        if (part && !eg__same_shape(part, y)) return part; /* the caller refuses this shape */
        if (part) sum = sum ? eg__add(sum, part) : part;
    }
    return sum;
}
