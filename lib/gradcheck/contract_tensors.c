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
bool eg__contract_alike(eg_tensor *a, eg_tensor *b, double share)
{
    return eg__contract_above(a, b, 1, share, 0);
}
bool eg__contract_above(eg_tensor *a, eg_tensor *b, double factor, double share, double floor)
{
    if (!a || !b) {
        eg_tensor *only = a ? a : b;
        const double *v = only ? eg_f64(only) : NULL;
        for (int64_t k = 0, n = v ? eg_size(only) : 0; k < n; k++)
            if (!(fabs(v[k]) <= floor)) return false;
        return true;
    }
    if (!eg__same_shape(a, b) || a->dtype != b->dtype) return false;
    const double *x = eg_f64(a), *y = eg_f64(b);
    const int64_t n = eg_size(a);
    const double of = fabs(factor), subnormal = floor > 0 ? 1e-300 * fmax(1, of) : 0;
    const double slack = of * (share * eg__largest(b) + floor) + subnormal;
    if (!x || !y) return false;
    for (int64_t k = 0; k < n; k++)
        if (x[k] != factor * y[k] && !(isnan(x[k]) && isnan(y[k])) &&
            !(fabs(x[k] - factor * y[k]) <= slack))
            return false;
    return true;
}

double eg__contract_dot(eg_tensor *a, eg_tensor *b, double *size)
{
    const double *x = eg_f64(a), *y = eg_f64(b);
    double sum = 0;
    for (int64_t k = 0, n = x && y ? eg_size(a) : 0; k < n; k++) {
        sum += x[k] * y[k];
        *size += fabs(x[k] * y[k]);
    }
    return sum;
}
double eg__largest(eg_tensor *x)
{
    const double *v = x ? eg_f64(x) : NULL;
    double most = 0;
    for (int64_t k = 0, n = v ? eg_size(x) : 0; k < n; k++) most = fmax(most, fabs(v[k]));
    return most;
}

double eg__cancelled(const eg__contract_call *k, eg_tensor *g)
{
    double x = 0;
    for (int i = 0; i < k->t->count; i++)
        if (k->r[i]) x = fmax(x, eg__largest(k->x[i]));
    const double value = eg__largest(k->y) * (x > 0 && x < 1 ? 1 / x : 1);
    return 64 * 0x1p-52 * eg__largest(g) * fmax(1, value) + 1e-300;
}

eg_tensor *eg__contract_apply(const eg__contract_call *k, eg_tensor *const *x)
{
    eg_tensor *y = eg_apply(k->t->op, k->t->attr, k->t->attr_size, k->t->count, x);
    return eg_ok(y) ? y : NULL;
}
bool eg__contract_rule(eg_tensor *y, eg_tensor *g, int i, eg_tensor **d)
{
    *d = NULL;
    if (!y || !g) return false;
    *d = eg__rule(y, g, i);
    return !y->cx->failed && (!*d || eg_ok(*d));
}
eg_tensor *eg__contract_tangent(eg_tensor *y, eg_tensor *const *dx)
{
    const eg_sweep s = { .cx = y->cx, .who = "jvp" };
    eg_tensor *d = eg__jvp_rule(y, dx);
    return d && !y->cx->failed && eg__check_cotangent(&s, y, "jvp", d, y, -1) ? d : NULL;
}
/* The other operands are those of the call, all times a factor. */
double eg__contract_unit(eg__contract_call *k)
{
    static const double factor[] = { -1, 10, 100, 0.01 };
    if (k->unit > 0) return k->unit;
    double most = eg__largest(k->y);
    for (size_t f = 0; f < sizeof factor / sizeof *factor && most < 1; f++) {
        const eg_mark m = eg_push(k->cx);
        eg_tensor *x[EG_ASKED_OPERANDS], *y = NULL;
        bool good = true;
        for (int i = 0; i < k->t->count && good; i++) {
            x[i] = k->x[i];
            if (x[i]->dtype != EG_F64) continue;
            if (!(good = (x[i] = eg__leaf_copy(x[i])) != NULL)) break;
            for (int64_t j = 0, n = eg_size(x[i]); j < n; j++)
                eg__contract_numbers(x[i])[j] *= factor[f];
            good = eg__sampled_there(k->t->op, x[i]);
        }
        if (good) y = eg__contract_apply(k, x);
        if (y && y->dtype == EG_F64 && eg__all_finite(y)) most = fmax(most, eg__largest(y));
        eg__refused(k->cx);
        eg_pop(k->cx, m);
    }
    return k->unit = most > 0 && most < 1 ? most : 1;
}

/* -- rounding of an ill-conditioned operation -------------------------------------------------- */
/* Returns a copy of x whose elements are moved by up to 1.5 · 2^bits units in the last place. */
static eg_tensor *perturbed(eg_tensor *x, int bits)
{
    eg_tensor *t = eg__leaf_copy(x);
    for (int64_t j = 0, n = t && t->dtype == EG_F64 ? eg_size(t) : 0; j < n; j++)
        eg__contract_numbers(t)[j] *= 1 + eg__drawn(40, j) * ldexp(1, bits - 52);
    return t;
}
/* Returns the relative change (as a part of its largest element) of the rule's result for operand i
 * (−1: of the operation's result) if operands and g change by one unit in the last place. The
 * change by 1, 2^10 or 2^20 units that has the smallest effect per unit is used, since the effect
 * of a jump does not grow with the units. 0 if the operation has no value there. */
static double contract_condition(const eg__contract_call *k, int i)
{
    double least = INFINITY;
    for (int bits = 0; bits <= 20; bits += 10) {
        const eg_mark m = eg_push(k->cx);
        eg_tensor *x[EG_ASKED_OPERANDS], *d = NULL, *was = i < 0 ? k->y : k->r[i];
        bool good = was != NULL;
        for (int j = 0; j < k->t->count && good; j++)
            good = (x[j] = perturbed(k->x[j], bits)) != NULL;
        eg_tensor *y = good ? eg__contract_apply(k, x) : NULL;
        if (i < 0)
            d = y;
        else if (!eg__contract_rule(y, perturbed(k->g, bits), i, &d))
            d = NULL;
        const double most = eg__largest(was);
        eg_tensor *apart = d && eg__same_shape(d, was) ? eg__leaf_copy(d) : NULL;
        eg_tensor *minus = apart ? eg_neg(eg_detach(was)) : NULL;
        if (eg_ok(minus)) eg__add_to(apart, minus);
        least = apart && most > 0 ? fmin(least, ldexp(eg__largest(apart) / most, -bits)) : 0;
        eg__refused(k->cx);
        eg_pop(k->cx, m);
    }
    return least;
}
bool eg__contract_close(eg__contract_call *k, int i, eg_tensor *a, eg_tensor *b, double factor,
                        double share)
{
    enum { UNITS = 64 };
    const double floor = i < 0 ? 0 : eg__cancelled(k, k->g);
    if (eg__contract_above(a, b, factor, share, floor)) return true;
    if (k->cx->failed || !a || !b) return false;
    const double one = contract_condition(k, i), more = share + UNITS * one;
    if (!(more > 2 * share && more < 1e-2) || !eg__contract_above(a, b, factor, more, floor))
        return false;
    if (!k->note[0]) k->operand = i;
    if (!k->note[0])
        eg__sentence(k->note, sizeof k->note,
                     "is ill-conditioned: one unit in the last place of its operands changes it by "
                     "%.1g of its largest element, and it was compared within %.1g",
                     one, more);
    return true;
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
/* The array that the view is in has elements of 1e30 between those of v, so that an operation that
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
