/* trace.c: the first operation that makes a NaN or an infinity of finite numbers. */
#include "autograd/autograd.h"
#include <math.h>

static double worth(const eg_tensor *x, const char *p) /* finite, or what it is instead */
{
    if (x->dtype == EG_F32) return (double)*(const float *)(const void *)p;
    const double *v = (const double *)(const void *)p;
    return x->dtype == EG_C128 && (isfinite(v[0]) || isnan(v[1])) ? v[1] : v[0];
}

/* The first element, row-major, that is not finite, or a NaN; false if there is none. */
typedef enum oddity { NOT_FINITE, NOT_A_NUMBER } oddity;
static bool odd_one(const eg_tensor *x, oddity wanted, int64_t *index, double *value)
{
    const char *p = x->data;
    const int width = eg__width[x->dtype];
    if (!eg__is_float(x->dtype) && x->dtype != EG_C128) return false;
    for (int r = 0; r < x->rank; r++) index[r] = 0;
    for (int64_t n = eg_size(x); n > 0; n--) {
        if (!isfinite(*value = worth(x, p)) && (wanted == NOT_FINITE || isnan(*value))) return true;
        for (int r = x->rank; r-- > 0;) {
            p += x->stride[r] * width;
            if (++index[r] < x->dim[r]) break;
            p -= x->stride[r] * width * x->dim[r];
            index[r] = 0;
        }
    }
    return false;
}

static bool trace_trace_it(const eg_tensor *y)
{
    int64_t index[EG_RANK_MAX], other[EG_RANK_MAX];
    double value, had;
    char who[256], at[256], dims[256], whose[300] = "";
    if (y->st != &y->own || !odd_one(y, NOT_FINITE, index, &value)) return true;
    for (int i = 0; i < y->count; i++)
        if (odd_one(y->in[i], NOT_FINITE, other, &had)) return true;
    const eg_tensor *blame = y->cx->rule_node;
    if (blame)
        snprintf(whose, sizeof whose, "the %s of %s: ", y->cx->rule_kind,
                 eg__origin_once(blame, who, sizeof who));
    if (blame)
        snprintf(who, sizeof who, "%s", y->op->name);
    else
        eg__origin_once(y, who, sizeof who);
    eg_fail_as(y->cx, EG_ERROR_MISUSE,
               "trace: %s%s made %g at %s of %s, and its operands are finite", whose, who, value,
               eg__sizes_text(y->rank, index, at, sizeof at), eg__dims_text(y, dims, sizeof dims));
    return false;
}

bool eg_trace(eg_ctx *cx, bool on)
{
    if (!cx) return false;
    const bool old = cx->hooks.result != NULL;
    cx->hooks.result = on ? trace_trace_it : NULL;
    return old;
}

/* -- afterwards: back from y along operands that are not finite ------------------------------- */
static bool is_odd(const eg_tensor *x, oddity wanted)
{
    int64_t index[EG_RANK_MAX];
    double value;
    return odd_one(x, wanted, index, &value);
}
static eg_tensor *odd_operand(const eg_tensor *t, oddity wanted)
{
    for (int i = 0; i < t->count; i++)
        if (is_odd(t->in[i], wanted)) return t->in[i];
    return NULL;
}
static eg_tensor *back_along(eg_tensor *t, oddity wanted)
{
    for (eg_tensor *in; (in = odd_operand(t, wanted));) t = in;
    return t;
}

/* A NaN is followed to its beginning; an infinity it was made of is to blame if an operation made
 * it: a mask's −inf is a leaf. */
eg_tensor *eg_first_nonfinite(eg_tensor *y)
{
    if (!eg__check("first_nonfinite", y) || !is_odd(y, NOT_FINITE)) return NULL;
    if (!is_odd(y, NOT_A_NUMBER)) return back_along(y, NOT_FINITE);
    eg_tensor *nan = back_along(y, NOT_A_NUMBER), *infinite = back_along(nan, NOT_FINITE);
    return infinite->op ? infinite : nan;
}
