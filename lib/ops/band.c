/* band.c: tril and triu, the triangles of a matrix over the last two axes. */
#include "ops/ops.h"
#include <string.h>

static bool band_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    char text[256];
    if (x->rank >= 2) return eg__shape_like(y, x->dtype, x);
    eg_fail_as(y->cx, EG_ERROR_SHAPE, "%s: %s has no last two axes", y->op->name,
               eg__dims_text(x, text, sizeof text));
    return false;
}

/* Sets `rows` rows of each matrix, from row i on, to 0 in columns from … to − 1. Multiplying by 0
 * would keep a NaN outside of the triangle. */
static void clear(const eg_tensor *y, int64_t i, int64_t rows, int64_t from, int64_t to)
{
    int64_t dim[EG_RANK_MAX];
    const int r = y->rank - 2;
    eg_tensor t = *y;
    if (from >= to || rows <= 0) return;
    memcpy(dim, y->dim, (size_t)y->rank * sizeof *dim);
    dim[r] = rows;
    dim[r + 1] = to - from;
    t.dim = dim;
    t.data += (i * y->stride[r] + from * y->stride[r + 1]) * eg__width[y->dtype];
    eg__fill(&t, 0);
}
static int64_t band_within(int64_t i, int64_t n) { return i < 0 ? 0 : i > n ? n : i; }
/* Copies x and sets what is above diagonal k (lower) or below it to 0, along the axis of a matrix
 * along which its elements are closer to each other. */
static bool band_forward(eg_tensor *y, bool lower)
{
    const int r = y->rank - 2;
    const int64_t m = y->dim[r], n = y->dim[r + 1];
    int64_t k = *(const int64_t *)y->attr, dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    eg_tensor t = *y;
    eg__copy(y, y->in[0]);
    k = k > n ? n : k < -m ? -m - 1 : k; /* i + k cannot overflow */
    if (eg__abs64(y->stride[r]) < eg__abs64(y->stride[r + 1])) {
        memcpy(dim, y->dim, (size_t)y->rank * sizeof *dim);
        memcpy(stride, y->stride, (size_t)y->rank * sizeof *stride);
        dim[r] = n, dim[r + 1] = m;
        stride[r] = y->stride[r + 1], stride[r + 1] = y->stride[r];
        t.dim = dim;
        t.stride = stride;
        k = -k;
        lower = !lower;
    }
    const int64_t rows = t.dim[r], columns = t.dim[r + 1];
    /* rows of which a part is 0; of the others all are, before them (lower) or after them */
    const int64_t first = band_within(lower ? -k : 1 - k, rows),
                  end = band_within(lower ? columns - k - 1 : columns - k, rows);
    if (lower)
        clear(&t, 0, first, 0, columns);
    else
        clear(&t, end, rows - end, 0, columns);
    for (int64_t i = first; i < end; i++)
        if (lower)
            clear(&t, i, 1, i + k + 1, columns);
        else
            clear(&t, i, 1, 0, i + k);
    return true;
}

/* -- tril: y_ij = x_ij where j − i ≤ k, else 0,  dx = tril g ---------------------------------- */
static bool tril_forward(eg_tensor *y) { return band_forward(y, true); }
static eg_tensor *tril_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return eg_tril(g, *(const int64_t *)y->attr);
}
static eg_tensor *tril_call(eg_tensor *const *x) { return eg_tril(x[0], 1); }
static const eg_sample tril_samples[] = { { tril_call, "2x4x5", 0, 0 },
                                          { tril_call, "3x3:i9", 0, 0 },
                                          { 0 } };
static const eg_op tril_op = {
    .name = "tril",
    .equation = "y_ij = x_ij where j - i <= k, else 0",
    .gradient = "tril g",
    .arity = 1,
    .shape = band_shape,
    .forward = tril_forward,
    .rule = tril_rule,
    .uses = EG_USES_NOTHING,
    .samples = tril_samples,
    .jvp = eg_jvp_symmetric,
    .forward_c128 = tril_forward,
    .takes = EG_TAKES_ALL,
};
eg_tensor *eg_tril(eg_tensor *x, int64_t k) { return eg_apply(&tril_op, &k, sizeof k, 1, &x); }

/* -- triu: y_ij = x_ij where j − i ≥ k, else 0,  dx = triu g ---------------------------------- */
static bool triu_forward(eg_tensor *y) { return band_forward(y, false); }
static eg_tensor *triu_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return eg_triu(g, *(const int64_t *)y->attr);
}
static eg_tensor *triu_call(eg_tensor *const *x) { return eg_triu(x[0], -1); }
static const eg_sample triu_samples[] = { { triu_call, "2x4x5", 0, 0 },
                                          { triu_call, "3x3:b", 0, 0 },
                                          { 0 } };
static const eg_op triu_op = {
    .name = "triu",
    .equation = "y_ij = x_ij where j - i >= k, else 0",
    .gradient = "triu g",
    .arity = 1,
    .shape = band_shape,
    .forward = triu_forward,
    .rule = triu_rule,
    .uses = EG_USES_NOTHING,
    .samples = triu_samples,
    .jvp = eg_jvp_symmetric,
    .forward_c128 = triu_forward,
    .takes = EG_TAKES_ALL,
};
eg_tensor *eg_triu(eg_tensor *x, int64_t k) { return eg_apply(&triu_op, &k, sizeof k, 1, &x); }

const eg_op *const eg__band_ops[] = { &tril_op, &triu_op, NULL };
