/* reshape.c: the same elements in the same order with other sizes: a view if the strides allow it
 * (view.c has the other views, which map axes to axes). */
#include "tensor/tensor.h"
#include <string.h>

/* sizes, then (in refit) strides */
typedef struct shape {
    int rank;
    int64_t v[2 * EG_RANK_MAX];
} shape;
static size_t shape_size(int numbers)
{
    return offsetof(shape, v) + (size_t)numbers * sizeof(int64_t);
}

/* -- view: the same elements in the same order with other sizes,  dx = g reshaped back --------- */

/* Finds strides with which x's storage has the sizes of s. Axes of x that are contiguous form a
 * chunk, and each axis of the result must be inside one chunk. False if an axis would extend over
 * two chunks; *left and *right are then the axes of x between which the chunks meet. */
static bool reshape_strides(const eg_tensor *x, shape *s, int *left, int *right)
{
    int64_t *dim = s->v, *stride = s->v + s->rank, chunk = 1, base = 0;
    /* last: the first axis of the chunk with more than one element */
    int k = s->rank - 1, last = -1;
    if (eg_size(x) == 0) {
        eg__row_major(s->rank, dim, stride);
        return true;
    }
    for (int r = x->rank; r-- > 0;) {
        if (x->dim[r] == 1) continue;
        if (last < 0) base = x->stride[r];
        last = r;
        chunk *= x->dim[r];
        int next = r - 1;
        while (next >= 0 && x->dim[next] == 1) next--;
        if (next >= 0 && x->stride[next] == chunk * base) continue;
        int64_t taken = 1;
        for (; k >= 0 && (taken < chunk || dim[k] == 1); taken *= dim[k--])
            stride[k] = taken * base;
        if (taken != chunk) {
            *left = next;
            *right = r;
            return false;
        }
        last = -1;
        chunk = 1;
    }
    for (; k >= 0; k--) stride[k] = 1; /* the axes that are left have size 1 */
    return true;
}

bool eg__view_exists(const eg_tensor *x, int rank, const int64_t *dims)
{
    shape s = { .rank = rank };
    int left, right;
    if (rank) memcpy(s.v, dims, (size_t)rank * sizeof *dims);
    return reshape_strides(x, &s, &left, &right);
}

/* Checks the sizes and computes the one that is −1. False after an error. */
static bool reshape_sizes(const char *who, eg_tensor *x, int rank, const int64_t *dims, shape *s)
{
    char from[256], to[256];
    if (!eg__check_usable(who, x)) return false;
    if (rank < 0 || rank > EG_RANK_MAX) {
        eg_fail_as(x->cx, EG_ERROR_SHAPE, "%s: rank %d is not in 0..%d", who, rank, EG_RANK_MAX);
        return false;
    }
    if (rank && !dims) {
        eg_fail_as(x->cx, EG_ERROR_MISUSE, "%s: the sizes are NULL", who);
        return false;
    }
    int64_t size = eg_size(x), known = 1;
    int unknown = -1;
    bool fits = true;
    s->rank = rank;
    for (int k = 0; k < rank; k++) {
        s->v[k] = dims[k];
        if (dims[k] >= 0) {
            fits = fits && !__builtin_mul_overflow(known, dims[k], &known);
            continue;
        }
        if (dims[k] < -1) {
            eg_fail_as(x->cx, EG_ERROR_SHAPE, "%s: size %lld of axis %d is negative", who,
                       (long long)dims[k], k);
            return false;
        }
        if (unknown >= 0) {
            eg_fail_as(x->cx, EG_ERROR_SHAPE,
                       "%s: axes %d and %d are both −1, only one can be inferred", who, unknown, k);
            return false;
        }
        unknown = k;
    }
    if (unknown >= 0 && known == 0) {
        eg_fail_as(x->cx, EG_ERROR_SHAPE, "%s: axis %d cannot be inferred beside a size of 0", who,
                   unknown);
        return false;
    }
    fits = fits && (unknown < 0 ? known == size : size % known == 0);
    if (fits && unknown >= 0) s->v[unknown] = size / known;
    if (!fits)
        eg_fail_as(x->cx, EG_ERROR_SHAPE, "%s: %s has %lld element%s and does not fill %s", who,
                   eg__dims_text(x, from, sizeof from), (long long)size, size == 1 ? "" : "s",
                   eg__sizes_text(rank, s->v, to, sizeof to));
    return fits;
}

/* Sets a view if the strides allow one, else the shape of a copy: for reshape, and for a view that
 * is evaluated again in another layout (c128). */
static bool refit_shape(eg_tensor *y)
{
    const shape *sizes = y->attr;
    const eg_tensor *x = y->in[0];
    shape s;
    int left, right;
    memcpy(&s, sizes, shape_size(sizes->rank));
    return reshape_strides(x, &s, &left, &right)
               ? eg__shape_view(y, x, s.rank, s.v, s.v + s.rank, 0)
               : eg__shape(y, x->dtype, s.rank, s.v);
}
bool eg__reshape_forward(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    int64_t stride[EG_RANK_MAX];
    eg_tensor target = *y;
    eg__row_major(x->rank, x->dim, stride);
    target.rank = x->rank;
    target.dim = x->dim;
    target.stride = stride;
    eg__copy(&target, x);
    return true;
}
static eg_tensor *reshape_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_reshape_n(g, y->in[i]->rank, y->in[i]->dim);
}
static eg_tensor *reshape_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    return eg_reshape_n(dx[0], y->rank, y->dim);
}
static eg_tensor *view_call(eg_tensor *const *x) { return eg_view(x[0], 3, 2, -1, 1); }
static const eg_sample view_samples[] = { { view_call, "3x4", 0, 0 }, { 0 } };
static const eg_op view_op = {
    .name = "view",
    .equation = "y = x under other sizes",
    .gradient = "g reshaped back",
    .arity = 1,
    .shape = refit_shape,
    .rule = reshape_rule,
    .uses = EG_USES_NOTHING,
    .samples = view_samples,
    .jvp = reshape_jvp,
    .forward_c128 = eg__reshape_forward,
};
eg_tensor *eg_view_n(eg_tensor *x, int rank, const int64_t *dims)
{
    shape s;
    int left, right;
    char text[256], strides[256];
    if (!reshape_sizes("view", x, rank, dims, &s)) return eg__poison_of(x);
    if (reshape_strides(x, &s, &left, &right))
        return eg_apply(&view_op, &s, shape_size(rank), 1, &x);
    return eg_fail_as(x->cx, EG_ERROR_SHAPE,
                      "view: axes %d and %d of %s with strides %s cannot be merged without a copy; "
                      "eg_reshape copies",
                      left, right, eg__dims_text(x, text, sizeof text),
                      eg__sizes_text(x->rank, x->stride, strides, sizeof strides));
}

/* -- reshape: a view if possible, else a copy -------------------------------------------------- */
static eg_tensor *reshape_call(eg_tensor *const *x)
{
    return eg_reshape(eg_transpose(x[0], 0, 1), 2, 6);
}
static const eg_sample reshape_samples[] = { { reshape_call, "3x4", 0, 0 },
                                             { reshape_call, "3x4:i9", 0, 0 },
                                             { 0 } };
static const eg_op reshape_op = {
    .name = "reshape",
    .equation = "y = x under other sizes",
    .gradient = "g reshaped back",
    .arity = 1,
    .shape = refit_shape,
    .forward = eg__reshape_forward,
    .rule = reshape_rule,
    .uses = EG_USES_NOTHING,
    .samples = reshape_samples,
    .jvp = reshape_jvp,
    .forward_c128 = eg__reshape_forward,
};
eg_tensor *eg_reshape_n(eg_tensor *x, int rank, const int64_t *dims)
{
    shape s;
    return reshape_sizes("reshape", x, rank, dims, &s)
               ? eg_apply(&reshape_op, &s, shape_size(rank), 1, &x)
               : eg__poison_of(x);
}

const eg_op *const eg__reshape_ops[] = { &view_op, &reshape_op, NULL };
