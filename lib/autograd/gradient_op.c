/* gradient_op.c: functions for operations whose result is the gradient of another operation: the
 * cotangents of several of its operands, computed in one pass and stored one after another along
 * one axis. */
#include "autograd/autograd.h"

int64_t eg__gradient_size(int count, eg_tensor *const *x)
{
    int64_t n = 0;
    for (int k = 0; k < count; k++)
        if (x[k] && eg__is_inexact(x[k]->dtype)) n += eg_size(x[k]);
    return n;
}
void eg__gradient_parts(eg_tensor *d, int count, eg_tensor *const *x, eg_tensor **part)
{
    int64_t at = 0;
    for (int k = 0; k < count; k++) {
        part[k] = NULL;
        if (!x[k] || !eg__is_inexact(x[k]->dtype)) continue;
        const int64_t n = eg_size(x[k]);
        part[k] = eg_reshape_n(eg_slice_axis(d, 0, at, at + n, 1), x[k]->rank, x[k]->dim);
        at += n;
    }
}
bool eg__gradient_fill(eg_tensor *d, int count, eg_tensor *const *xs, eg_tensor *const *dx)
{
    int64_t at = 0;
    for (int k = 0; k < count; k++) {
        const eg_tensor *x = xs[k];
        int64_t step[EG_RANK_MAX];
        if (!x || !eg__is_inexact(x->dtype)) continue;
        if (dx[k] && !eg_ok(dx[k])) return false;
        eg__row_major(x->rank, x->dim, step);
        eg_tensor *part = eg__alias(d, x->rank, x->dim, step, at);
        if (!eg_ok(part)) return false;
        if (dx[k])
            eg__copy(part, dx[k]);
        else
            eg__fill(part, 0);
        at += eg_size(x);
    }
    return true;
}

/* -- the second derivative -------------------------------------------------------------------- */
eg_tensor *eg__fresh_view(eg_tensor *x)
{
    int order[EG_RANK_MAX];
    if (!eg__is_float(x->dtype)) return x;
    for (int r = 0; r < x->rank; r++) order[r] = r;
    return eg_permute_n(x, x->rank, order);
}
eg_tensor *eg__gradient_join(int count, eg_tensor *const *x, eg_tensor *const *dx)
{
    eg_tensor *part[EG_MEMO];
    int n = 0;
    for (int k = 0; k < count; k++)
        if (x[k] && eg__is_inexact(x[k]->dtype))
            part[n++] = eg_reshape(dx[k] ? dx[k] : eg_zeros_like(x[k]), -1);
    return eg_concat_axis_n(0, n, part);
}
eg_tensor *eg__tangent_of(eg_tensor *r, int count, eg_tensor *const *x, eg_tensor *const *dx)
{
    eg_tensor *by[EG_MEMO], *v[EG_MEMO];
    int n = 0;
    for (int k = 0; k < count; k++)
        if (x[k] && dx[k]) by[n] = x[k], v[n++] = dx[k];
    return eg_ok(r) ? eg_jvp(r, n, by, v) : r;
}
eg_tensor *eg__gradient_dot(eg_tensor *u, int count, eg_tensor *const *x, eg_tensor *const *dx)
{
    eg_tensor *part[EG_MEMO], *all = NULL;
    eg__gradient_parts(u, count, x, part);
    for (int k = 0; k < count; k++) {
        if (!part[k] || !dx[k]) continue;
        eg_tensor *dot = eg_sum(NULL, eg_mul(part[k], dx[k]));
        all = all ? eg_add(all, dot) : dot;
    }
    return all;
}
