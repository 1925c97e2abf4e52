/* trace.c: finds the first operation that computes a NaN or an infinity from finite elements. */
#include "autograd/autograd.h"
#include <math.h>

/* Returns the element at p; for a complex element, the part that is not finite, if there is one. */
static double trace_value(const eg_tensor *x, const char *p)
{
    if (x->dtype == EG_F32) return (double)*(const float *)(const void *)p;
    const double *v = (const double *)(const void *)p;
    return x->dtype == EG_C128 && (isfinite(v[0]) || isnan(v[1])) ? v[1] : v[0];
}

typedef enum nonfinite { NOT_FINITE, NOT_A_NUMBER } nonfinite; /* NOT_FINITE: NaN or infinite */
/* Finds the first such element of copy k in row-major order. False if there is none. */
static bool nonfinite_in(const eg_tensor *x, int64_t k, nonfinite wanted, int64_t *index,
                         double *value)
{
    const char *p = eg__copy_data(x, k);
    const int width = eg__width[x->dtype];
    if (!eg__is_float(x->dtype) && x->dtype != EG_C128) return false;
    for (int r = 0; r < x->rank; r++) index[r] = 0;
    for (int64_t n = eg_size(x); n > 0; n--) {
        if (!isfinite(*value = trace_value(x, p)) && (wanted == NOT_FINITE || isnan(*value)))
            return true;
        for (int r = x->rank; r-- > 0;) {
            p += x->stride[r] * width;
            if (++index[r] < x->dim[r]) break;
            p -= x->stride[r] * width * x->dim[r];
            index[r] = 0;
        }
    }
    return false;
}

/* True if copy k of an operand of y has an element that is not finite. */
static bool nonfinite_before(const eg_tensor *y, int64_t k)
{
    int64_t index[EG_RANK_MAX];
    double value;
    for (int i = 0; i < y->count; i++)
        if (nonfinite_in(y->in[i], k, NOT_FINITE, index, &value)) return true;
    return false;
}
/* False, after an error, if a copy of y has an element that is not finite and the same copies of
 * its operands have none. */
static bool trace_result(const eg_tensor *y)
{
    int64_t index[EG_RANK_MAX], copy = 0;
    double value;
    char who[256], at[256], dims[256], whose[300] = "", of_copy[40] = "";
    if (y->st != &y->own) return true;
    while (copy < eg__copy_count(y) &&
           (!nonfinite_in(y, copy, NOT_FINITE, index, &value) || nonfinite_before(y, copy)))
        copy++;
    if (copy == eg__copy_count(y)) return true;
    if (y->copies) snprintf(of_copy, sizeof of_copy, ", copy %lld", (long long)copy);
    const eg_tensor *blame = y->cx->rule_node;
    if (blame)
        snprintf(whose, sizeof whose, "the %s of %s: ", y->cx->rule_kind,
                 eg__origin(blame, who, sizeof who));
    if (blame)
        snprintf(who, sizeof who, "%s", y->op->name);
    else
        eg__origin(y, who, sizeof who);
    eg__fail_because(y->cx, EG_CAUSE_NONFINITE, EG_ERROR_MISUSE,
                     "trace: %s%s made %g at %s of %s%s, and its operands are finite", whose, who,
                     value, eg__sizes_text(y->rank, index, at, sizeof at),
                     eg__dims_text(y, dims, sizeof dims), of_copy);
    return false;
}

bool eg_trace(eg_ctx *cx, bool on)
{
    if (!(cx = eg__here(cx))) return false;
    const bool old = cx->hooks.result != NULL;
    cx->hooks.result = on ? trace_result : NULL;
    return old;
}

/* -- afterwards: from y back along operands that are not finite -------------------------------- */
static bool has_nonfinite(const eg_tensor *x, nonfinite wanted)
{
    int64_t index[EG_RANK_MAX];
    double value;
    for (int64_t k = 0; k < eg__copy_count(x); k++)
        if (nonfinite_in(x, k, wanted, index, &value)) return true;
    return false;
}
static eg_tensor *nonfinite_operand(const eg_tensor *t, nonfinite wanted)
{
    for (int i = 0; i < t->count; i++)
        if (has_nonfinite(t->in[i], wanted)) return t->in[i];
    return NULL;
}
static eg_tensor *nonfinite_origin(eg_tensor *t, nonfinite wanted)
{
    for (eg_tensor *in; (in = nonfinite_operand(t, wanted));) t = in;
    return t;
}

/* Follows a NaN back to the operation that computed it. If that operation read an infinity that an
 * operation computed, the result is that operation; an infinity in a leaf, such as a mask's −inf,
 * is not followed. */
eg_tensor *eg_first_nonfinite(eg_tensor *y)
{
    if (!eg__check("first_nonfinite", y) || !has_nonfinite(y, NOT_FINITE)) return NULL;
    if (!has_nonfinite(y, NOT_A_NUMBER)) return nonfinite_origin(y, NOT_FINITE);
    eg_tensor *nan = nonfinite_origin(y, NOT_A_NUMBER),
              *infinite = nonfinite_origin(nan, NOT_FINITE);
    return infinite->op ? infinite : nan;
}
