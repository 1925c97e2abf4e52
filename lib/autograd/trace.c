/* trace.c: the first operation that makes a NaN or an infinity of finite numbers. */
#include "autograd/autograd.h"
#include <math.h>

static double worth(const eg_tensor *x, const char *p)      /* finite, or what it is instead */
{
    if (x->dtype == EG_F32) return (double)*(const float *)(const void *)p;
    const double *v = (const double *)(const void *)p;
    return x->dtype == EG_C128 && isfinite(v[0]) ? v[1] : v[0];
}

/* The first element, row-major, that is not finite; false if there is none. */
static bool odd_one(const eg_tensor *x, int64_t *index, double *value)
{
    const char *p = x->data;
    const int width = eg__width[x->dtype];
    if (!eg__is_float(x->dtype) && x->dtype != EG_C128) return false;
    for (int r = 0; r < x->rank; r++) index[r] = 0;
    for (int64_t n = eg_size(x); n > 0; n--) {
        if (!isfinite(*value = worth(x, p))) return true;
        for (int r = x->rank; r-- > 0; ) {
            p += x->stride[r] * width;
            if (++index[r] < x->dim[r]) break;
            p -= x->stride[r] * width * x->dim[r];
            index[r] = 0;
        }
    }
    return false;
}

static bool trace(const eg_tensor *y)
{
    int64_t index[EG_RANK_MAX], other[EG_RANK_MAX];
    double value, had;
    char who[256], at[256], dims[256], whose[300] = "";
    if (y->st != &y->own || !odd_one(y, index, &value)) return true;
    for (int i = 0; i < y->count; i++) if (odd_one(y->in[i], other, &had)) return true;
    const eg_tensor place = { .rank = y->rank, .dim = index };
    const eg_tensor *blame = y->cx->blame;
    if (blame) snprintf(whose, sizeof whose, "the %s of %s: ", y->cx->making, eg__origin_once(blame, who, sizeof who));
    if (blame) snprintf(who, sizeof who, "%s", y->op->name);
    else eg__origin_once(y, who, sizeof who);
    eg_fail(y->cx, "trace: %s%s made %g at %s of %s, and its operands are finite", whose, who, value, eg__dims_text(&place, at, sizeof at),
            eg__dims_text(y, dims, sizeof dims));
    return false;
}

bool eg_trace(eg_ctx *cx, bool on)
{
    if (!cx) return false;
    const bool old = cx->hooks.result != NULL;
    cx->hooks.result = on ? trace : NULL;
    return old;
}
