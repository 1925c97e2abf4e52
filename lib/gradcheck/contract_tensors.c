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
    double most = 0;
    if (!x || !y) return false;
    for (int64_t k = 0; k < n; k++) most = fmax(most, fabs(factor * y[k]));
    for (int64_t k = 0; k < n; k++)
        if (x[k] != factor * y[k] && !(isnan(x[k]) && isnan(y[k])) &&
            !(fabs(x[k] - factor * y[k]) <= share * most))
            return false;
    return true;
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
