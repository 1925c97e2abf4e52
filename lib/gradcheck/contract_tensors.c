/* contract_tensors.c: tools of the contracts: copies of tensors, tensors of random elements,
 * comparison of two tensors, and calls of an operation and its rule. */
#include "gradcheck/contracts.h"
#include <math.h>

bool eg__breaks(eg__contract_call *k, int operand, const char *words)
{
    if (!k->cx->failed)
        snprintf(k->words, k->size, "%s", words);
    else
        snprintf(k->words, k->size, "%s: %.200s", words, eg_error(k->cx));
    eg__refused(k->cx);
    k->operand = operand;
    return false;
}

double eg__drawn(uint64_t salt, int64_t k)
{
    const double u = 2 * eg__unit(salt, 31, (uint64_t)k) - 1;
    return u < 0 ? u - .5 : u + .5;
}
eg_tensor *eg__contract_noise(const eg_tensor *like, uint64_t salt)
{
    eg_tensor *t = eg__new(like->cx, EG_F64, like->rank, like->dim);
    for (int64_t k = 0, n = t ? eg_size(t) : 0; k < n; k++)
        eg__contract_numbers(t)[k] = eg__drawn(salt, k);
    return t;
}
eg_tensor *eg__leaf_copy(eg_tensor *x)
{
    eg_tensor *t = eg__new(x->cx, (eg_dtype)x->dtype, x->rank, x->dim);
    if (t) eg__copy(t, x);
    return t;
}
bool eg__all_finite(eg_tensor *x)
{
    const double *v = eg_f64(x);
    for (int64_t k = 0, n = v ? eg_size(x) : 0; k < n; k++)
        if (!isfinite(v[k])) return false;
    return v != NULL;
}
bool eg__contract_alike(eg_tensor *a, eg_tensor *b, double factor, double share)
{
    if (!a || !b) {
        eg_tensor *only = a ? a : b;
        const double *v = only ? eg_f64(only) : NULL;
        for (int64_t k = 0, n = v ? eg_size(only) : 0; k < n; k++)
            if (v[k] != 0) return false;
        return true;
    }
    if (!eg__same_shape(a, b) || a->dtype != b->dtype) return false;
    const double *x = eg_f64(a), *y = eg_f64(b);
    const int64_t n = eg_size(a);
    const double most = fabs(factor) * eg__largest(b);
    if (!x || !y) return false;
    for (int64_t k = 0; k < n; k++)
        if (x[k] != factor * y[k] && !(isnan(x[k]) && isnan(y[k])) &&
            !(fabs(x[k] - factor * y[k]) <= share * most))
            return false;
    return true;
}

double eg__largest(eg_tensor *x)
{
    const double *v = x ? eg_f64(x) : NULL;
    double most = 0;
    for (int64_t k = 0, n = v ? eg_size(x) : 0; k < n; k++) most = fmax(most, fabs(v[k]));
    return most;
}

eg_tensor *eg__contract_apply(const eg__contract_call *k, eg_tensor *const *x)
{
    eg_tensor *y = eg_apply(k->t->op, k->t->attr, k->t->attr_size, k->t->count, x);
    return eg_ok(y) ? y : NULL;
}
bool eg__contract_rule(eg_tensor *y, eg_tensor *g, int i, eg_tensor **d)
{
    *d = y && g ? y->op->rule(y, g, i) : NULL;
    return y && g && !y->cx->failed && (!*d || eg_ok(*d));
}

/* -- layouts ----------------------------------------------------------------------------------- */
static const char *const layout_name[EG_LAYOUTS] = {
    "permuted",
    "sliced",
    "reversed",
    "padded",
    "reversed along its first axis",
    "reversed along its last axis",
};
const char *eg__layout_name(int how) { return layout_name[how]; }
/* The array that the view is in has elements of 1e30 beside those of v, so that an operation that
 * ignores strides is detected. */
eg_tensor *eg__laid_out(eg_tensor *v, int how)
{
    const int64_t n = eg_size(v);
    int64_t stride[EG_RANK_MAX], offset = 0,
                                 step = how == EG_SLICED     ? 2
                                        : how == EG_REVERSED ? -1
                                                             : 1;
    const int back = how == EG_FIRST_REVERSED ? 0 : how == EG_LAST_REVERSED ? v->rank - 1 : -1;
    if (how >= EG_PADDED && v->rank < 2) return NULL;
    eg_tensor *holder = eg__new(v->cx, EG_F64, 1, (int64_t[]){ 2 * n + 1 });
    if (!holder) return NULL;
    for (int64_t k = 0; k < 2 * n + 1; k++) eg__contract_numbers(holder)[k] = 1e30;
    for (int r = 0; r < v->rank; r++) {
        const int axis = how == EG_PERMUTED ? r : v->rank - 1 - r;
        stride[axis] = step;
        step *= v->dim[axis] + (how == EG_PADDED && r == 0);
        if (axis != back) continue;
        offset = stride[axis] * (v->dim[axis] - 1);
        stride[axis] = -stride[axis];
    }
    if (how == EG_SLICED) offset = 1;
    if (how == EG_REVERSED && n) offset = n - 1;
    eg_tensor *x = eg__alias(holder, v->rank, v->dim, stride, offset);
    if (x) eg__copy(x, v);
    return x;
}
eg_tensor *eg__repeated(eg_tensor *v, int how)
{
    int64_t stride[EG_RANK_MAX];
    const int last = v->rank - 1, from = how == EG_REPEATED_LAST ? last : 0,
              to = how == EG_REPEATED_FIRST ? 0 : last;
    bool any = false;
    if (v->rank == 0 || !eg_size(v) || (how != EG_REPEATED_FIRST && v->rank < 2)) return NULL;
    eg__row_major(v->rank, v->dim, stride);
    for (int r = from; r <= to; r++) {
        any |= v->dim[r] > 1;
        stride[r] = 0;
    }
    return any ? eg__alias(v, v->rank, v->dim, stride, 0) : NULL;
}
