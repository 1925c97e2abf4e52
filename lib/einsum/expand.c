/* expand.c: broadcasting axes. The adjoint of broadcasting is a sum, which is an einsum; and
 * einsum's cotangent along an axis that only one operand has is broadcast. Each is the other's
 * adjoint, so expand is in this folder and not with the other views. */
#include "einsum/einsum.h"

typedef struct expansion {
    int rank;
    int64_t dim[];
} expansion;

/* -- expand: y[…, i, …] = x[…, 0, …] where x has size 1 or no such axis,  dx = Σ g over these
 * axes */
static bool expand_shape(eg_tensor *y)
{
    const expansion *e = y->attr;
    const eg_tensor *x = y->in[0];
    const int lead = e->rank - x->rank;
    int64_t stride[EG_RANK_MAX];
    for (int k = 0; k < e->rank; k++)
        stride[k] = k >= lead && x->dim[k - lead] == e->dim[k] ? x->stride[k - lead] : 0;
    return eg__shape_view(y, x, e->rank, e->dim, stride, 0);
}
/* the sum over the new and broadcast axes: an einsum such as "abc->b" */
static eg_tensor *expand_rule(eg_tensor *y, eg_tensor *g, int i)
{
    static const char letter[] = "abcdefghijklmnopqrstuvwxyzABCDEF";
    const eg_tensor *x = y->in[i];
    char spec[2 * EG_RANK_MAX + 3];
    int n = 0, lead = y->rank - x->rank;
    for (int k = 0; k < y->rank; k++) spec[n++] = letter[k];
    spec[n++] = '-';
    spec[n++] = '>';
    for (int k = lead; k < y->rank; k++)
        if (x->dim[k - lead] == y->dim[k]) spec[n++] = letter[k];
    spec[n] = 0;
    return eg_reshape_n(eg_einsum(spec, g), x->rank, x->dim);
}
static const eg_op expand_op;
/* Checks the sizes and replaces −1 by x's size. */
eg_tensor *eg_expand_n(eg_tensor *x, int rank, const int64_t *dims)
{
    char text[256];
    if (!eg__check_usable("expand", x)) return eg__poison_of(x);
    if (rank > EG_RANK_MAX || rank < x->rank)
        return eg_fail_as(x->cx, EG_ERROR_SHAPE, "expand: %s cannot become rank %d",
                          eg__dims_text(x, text, sizeof text), rank);
    if (rank && !dims) return eg_fail_as(x->cx, EG_ERROR_MISUSE, "expand: the sizes are NULL");
    struct {
        int rank;
        int64_t dim[EG_RANK_MAX];
    } e = { .rank = rank };
    const int lead = rank - x->rank;
    for (int k = 0; k < rank; k++) {
        const int from = k - lead;
        const int64_t n = from < 0 ? 1 : x->dim[from],
                      to = dims[k] == -1 && from >= 0 ? n : dims[k];
        if (to < 0)
            return eg_fail_as(x->cx, EG_ERROR_SHAPE, "expand: size %lld of axis %d is negative",
                              (long long)to, k);
        if (n != 1 && to != n)
            return eg_fail_as(x->cx, EG_ERROR_SHAPE,
                              "expand: axis %d of %s is %lld and cannot become %lld", from,
                              eg__dims_text(x, text, sizeof text), (long long)n, (long long)to);
        e.dim[k] = to;
    }
    return eg_apply(&expand_op, &e, offsetof(expansion, dim) + (size_t)rank * sizeof *e.dim, 1, &x);
}
static eg_tensor *expand_call(eg_tensor *const *x) { return eg_expand(x[0], 2, 3, 4, 5); }
static const eg_sample expand_samples[] = { { expand_call, "3x1x5", 0, 0 },
                                            { expand_call, "5", 0, 0 },
                                            { 0 } };
static const eg_op expand_op = {
    .name = "expand",
    .equation = "y[…, i, …] = x[…, 0, …]",
    .gradient = "Σ g over the new and stretched axes",
    .arity = 1,
    .shape = expand_shape,
    .rule = expand_rule,
    .uses = EG_USES_NOTHING,
    .samples = expand_samples,
    .jvp = eg_jvp_linear,
};

const eg_op *const eg__expand_ops[] = { &expand_op, NULL };
