/* view.c: views are affine maps of indices, y[i] = x[origin + M i]; they share the storage and take
 * only a header. Each axis of y steps along at most two axes of x: none (expand), one, or two at
 * once (diagonal). The adjoint of a map writes g to the elements that the map reads: it is the
 * inverse map if the map is one to one, else `embed`, which adds g into zeros of x's shape
 * (overlapping windows accumulate). The adjoint of embed is the map again, so gradients of every
 * order consist of operations of this file. */
#include "tensor/tensor.h"
#include <string.h>

/* An axis of x or of y. */
typedef struct axis {
    int64_t size;
    int64_t at; /* of x: the origin along it; of y: its step along axes a and b */
    int a, b;   /* of y: axes of x, or −1 */
} axis;
/* The attribute of a view and of its adjoint. */
typedef struct map {
    const eg_op *op;            /* the operation of the view */
    int nx, ny;                 /* the ranks of x and y */
    axis axis[2 * EG_RANK_MAX]; /* the axes of x, then those of y */
} map;
static size_t map_size(const map *m)
{
    return offsetof(map, axis) + (size_t)(m->nx + m->ny) * sizeof(axis);
}

static const eg_op permute_op, slice_op, select_op, squeeze_op, unsqueeze_op, diagonal_op,
    unfold_op, embed_op;

/* -- an axis given by number or by letter ------------------------------------------------------ */
int eg__axis(const char *who, eg_tensor *x, int k)
{
    char text[256];
    int rank = x->rank;
    if (k >= -rank && k < rank) return k < 0 ? k + rank : k;
    eg_fail_as(x->cx, EG_ERROR_INDEX, "%s: axis %d is out of range for %s of rank %d", who, k,
               eg__dims_text(x, text, sizeof text), rank);
    return -1;
}
bool eg__axis_numbered(eg_named_axis *a, const char *who, eg_tensor *x, int k)
{
    if (!eg__check_usable(who, x)) return false;
    *a = (eg_named_axis){ .who = who, .x = x, .axis = eg__axis(who, x, k) };
    return a->axis >= 0;
}
const char *eg__axis_text(const eg_named_axis *a, char *buffer, size_t size)
{
    char dims[200];
    if (a->refuse)
        snprintf(buffer, size, "axis '%.*s' of size %lld", a->length < 40 ? a->length : 40, a->name,
                 (long long)a->x->dim[a->axis]);
    else
        snprintf(buffer, size, "axis %d of %s", a->axis, eg__dims_text(a->x, dims, sizeof dims));
    return buffer;
}
eg_tensor *eg__refuse_axis(const eg_named_axis *a, eg_code code, const char *format, ...)
{
    char sentence[400];
    va_list list;
    va_start(list, format);
    eg__vsentence(sentence, sizeof sentence, format, list);
    va_end(list);
    return a->refuse ? a->refuse(a, code, sentence)
                     : eg_fail_as(a->x->cx, code, "%s: %s", a->who, sentence);
}

/* -- functions that several views use ---------------------------------------------------------- */
/* Sets *m to the identity map of x, for a view to change. False, after an error, if x cannot be
 * used. */
static bool view_begin(map *m, const eg_op *op, eg_tensor *x)
{
    if (!eg__check_usable(op->name, x)) return false;
    m->op = op;
    m->nx = m->ny = x->rank;
    for (int k = 0; k < x->rank; k++) {
        m->axis[k] = (axis){ x->dim[k], 0, -1, -1 };
        m->axis[x->rank + k] = (axis){ x->dim[k], 1, k, -1 };
    }
    return true;
}
static eg_tensor *view_finish(const map *m, eg_tensor *x)
{
    return eg_apply(m->op, m, map_size(m), 1, &x);
}

static void view_drop_axis(map *m, int k)
{
    axis *y = m->axis + m->nx;
    memmove(y + k, y + k + 1, (size_t)(--m->ny - k) * sizeof *y);
}
static bool view_insert_axis(map *m, eg_tensor *x, int k, axis a)
{
    axis *y = m->axis + m->nx;
    if (m->ny == EG_RANK_MAX) {
        eg_fail_as(x->cx, EG_ERROR_SHAPE, "%s: the result would have more than %d axes",
                   m->op->name, EG_RANK_MAX);
        return false;
    }
    memmove(y + k + 1, y + k, (size_t)(m->ny++ - k) * sizeof *y);
    y[k] = a;
    return true;
}

/* Returns the stride of an axis that takes every step-th element of axes with strides that add up
 * to `sum`. An axis of one element has no second one, and a stride of 0 if the product, or its
 * number of bytes, exceeds 64 bits. */
static int64_t view_stride(int64_t step, int64_t sum)
{
    int64_t stride, bytes;
    const bool beyond =
        __builtin_mul_overflow(step, sum, &stride) || __builtin_mul_overflow(stride, 16, &bytes);
    return beyond ? 0 : stride;
}
/* Sets the sizes and strides of the view m of x; returns the offset of its first element. */
static int64_t view_layout(const map *m, const eg_tensor *x, int64_t *dim, int64_t *stride)
{
    const axis *y = m->axis + m->nx;
    int64_t offset = 0;
    bool empty = false;
    for (int k = 0; k < m->nx; k++) offset += m->axis[k].at * x->stride[k];
    for (int k = 0; k < m->ny; k++) {
        dim[k] = y[k].size;
        empty |= dim[k] == 0;
        stride[k] = view_stride(y[k].at, (y[k].a >= 0 ? x->stride[y[k].a] : 0) +
                                             (y[k].b >= 0 ? x->stride[y[k].b] : 0));
    }
    return empty ? 0 : offset;
}

static bool view_shape(eg_tensor *y)
{
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    const map *m = y->attr;
    int64_t offset = view_layout(m, y->in[0], dim, stride);
    return eg__shape_view(y, y->in[0], m->ny, dim, stride, offset);
}

/* True if m is one to one, that is, if every axis of x longer than 1 is traversed completely by one
 * axis of y; sets *back to its inverse. */
static bool view_inverse(const map *m, map *back)
{
    const axis *x = m->axis, *y = m->axis + m->nx;
    const eg_op *op = m->op == &squeeze_op     ? &unsqueeze_op
                      : m->op == &unsqueeze_op ? &squeeze_op
                                               : m->op;
    *back = (map){ .op = op, .nx = m->ny, .ny = m->nx };
    axis *from = back->axis, *to = back->axis + m->ny;
    for (int k = 0; k < m->nx; k++) to[k] = (axis){ x[k].size, 0, -1, -1 };
    for (int k = 0; k < m->ny; k++) {
        from[k] = (axis){ y[k].size, 0, -1, -1 };
        if (y[k].a < 0 || y[k].b >= 0 || to[y[k].a].a >= 0 || y[k].size != x[y[k].a].size) {
            if (y[k].size == 1 && y[k].b < 0 && (y[k].a < 0 || x[y[k].a].size == 1)) continue;
            return false;
        }
        if (y[k].size > 1 && (y[k].at > 1 || y[k].at < -1)) return false;
        bool reversed = y[k].size > 1 && y[k].at == -1;
        if (reversed) from[k].at = y[k].size - 1;
        to[y[k].a] = (axis){ y[k].size, reversed ? -1 : 1, k, -1 };
    }
    for (int k = 0; k < m->nx; k++)
        if (to[k].a < 0 && x[k].size != 1) return false;
    return true;
}

bool eg__view_selects(const eg_tensor *t)
{
    map back;
    return t->op && t->op->shape == view_shape && !view_inverse(t->attr, &back);
}

/* -- embed: y = 0; y[origin + M i] += g[i],  dg = the view ------------------------------------ */
static bool embed_shape(eg_tensor *y)
{
    int64_t dim[EG_RANK_MAX];
    const map *m = y->attr;
    for (int k = 0; k < m->nx; k++) dim[k] = m->axis[k].size;
    return eg__shape(y, y->in[0]->dtype, m->nx, dim);
}
/* The target is a header of y that has the shape of the view. */
static bool embed_forward(eg_tensor *y)
{
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    const map *m = y->attr;
    eg_tensor target = *y;
    eg__fill(y, 0);
    target.data += view_layout(m, y, dim, stride) * eg__width[y->dtype];
    target.rank = (uint8_t)m->ny;
    target.dim = dim;
    target.stride = stride;
    if (m->op == &unfold_op)
        eg__add_repeated(&target, y->in[0], NULL);
    else
        eg__copy(&target, y->in[0]);
    return true;
}
static eg_tensor *embed_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return view_finish(y->attr, g);
}
static eg_tensor *adjoint(const map *m, eg_tensor *g)
{
    map back;
    return view_inverse(m, &back) ? view_finish(&back, g)
                                  : eg_apply(&embed_op, m, map_size(m), 1, &g);
}
static eg_tensor *view_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return adjoint(y->attr, g);
}

/* into every second column of a wider matrix */
static eg_tensor *embed_call(eg_tensor *const *x)
{
    map m;
    if (!view_begin(&m, &slice_op, x[0])) return eg__poison_of(x[0]);
    m.axis[1].size = 2 * x[0]->dim[1];
    m.axis[3].at = 2;
    return eg_apply(&embed_op, &m, map_size(&m), 1, x);
}
static eg_tensor *overlap_call(eg_tensor *const *x) /* windows of a vector in steps of 1, as rows */
{
    map m;
    if (!view_begin(&m, &unfold_op, x[0])) return eg__poison_of(x[0]);
    int64_t windows = x[0]->dim[0], size = x[0]->dim[1];
    if (!windows || !size)
        return eg_fail_as(x[0]->cx, EG_ERROR_MISUSE, "embed: %lld window%s of %lld",
                          (long long)windows, windows == 1 ? "" : "s", (long long)size);
    m.nx = 1;
    m.axis[0] = (axis){ windows + size - 1, 0, -1, -1 };
    m.axis[1] = (axis){ windows, 1, 0, -1 };
    m.axis[2] = (axis){ size, 1, 0, -1 };
    return eg_apply(&embed_op, &m, map_size(&m), 1, x);
}
static const eg_sample embed_samples[] = { { embed_call, "3x4", 0, 0 },
                                           { overlap_call, "4x3", 0, 0 },
                                           { 0 } };
static const eg_op embed_op = {
    .name = "embed",
    .equation = "y = 0; y[Mi] += x[i]",
    .gradient = "g[Mi]",
    .arity = 1,
    .shape = embed_shape,
    .forward = embed_forward,
    .rule = embed_rule,
    .uses = EG_USES_NOTHING,
    .samples = embed_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = embed_forward,
};

/* -- permute: y[i_p(0), i_p(1)…] = x[i0, i1…] ------------------------------------------------- */
eg_tensor *eg_permute_n(eg_tensor *x, int rank, const int *axes)
{
    map m;
    char text[256];
    if (!view_begin(&m, &permute_op, x)) return eg__poison_of(x);
    if (rank != x->rank)
        return eg_fail_as(x->cx, EG_ERROR_SHAPE, "permute: %d axes given for %s of rank %d", rank,
                          eg__dims_text(x, text, sizeof text), x->rank);
    if (rank && !axes) return eg_fail_as(x->cx, EG_ERROR_MISUSE, "permute: the axes are NULL");
    uint32_t seen = 0;
    for (int k = 0; k < rank; k++) {
        int a = eg__axis("permute", x, axes[k]);
        if (a < 0) return eg__poison_of(x);
        if (seen >> a & 1)
            return eg_fail_as(x->cx, EG_ERROR_INDEX, "permute: axis %d is given twice", a);
        seen |= UINT32_C(1) << a;
        m.axis[rank + k] = (axis){ x->dim[a], 1, a, -1 };
    }
    return view_finish(&m, x);
}
eg_tensor *eg_transpose(eg_tensor *x, int axis_a, int axis_b)
{
    int order[EG_RANK_MAX];
    if (!eg__check_usable("transpose", x)) return eg__poison_of(x);
    int a = eg__axis("transpose", x, axis_a), b = a < 0 ? -1 : eg__axis("transpose", x, axis_b);
    if (b < 0) return eg__poison_of(x);
    for (int k = 0; k < x->rank; k++) order[k] = k == a ? b : k == b ? a : k;
    return eg_permute_n(x, x->rank, order);
}
static eg_tensor *permute_call(eg_tensor *const *x) { return eg_permute(x[0], 2, 0, 1); }
static eg_tensor *transpose_call(eg_tensor *const *x) { return eg_transpose(x[0], 0, -1); }
static const eg_sample permute_samples[] = { { permute_call, "2x3x4", 0, 0 },
                                             { transpose_call, "3x4", 0, 0 },
                                             { permute_call, "2x3x4:i9", 0, 0 },
                                             { 0 } };
static const eg_op permute_op = {
    .name = "permute",
    .equation = "y[i_p0, i_p1…] = x[i0, i1…]",
    .gradient = "g permuted back",
    .arity = 1,
    .shape = view_shape,
    .rule = view_rule,
    .uses = EG_USES_NOTHING,
    .samples = permute_samples,
    .jvp = eg_jvp_linear,
};

/* -- slice: y[…, i, …] = x[…, start + i step, …], Python's rules ------------------------------ */
eg_tensor *eg__slice(const eg_named_axis *a, int64_t start, int64_t stop, int64_t step)
{
    map m;
    char text[256];
    const int k = a->axis;
    if (!view_begin(&m, &slice_op, a->x)) return eg__poison_of(a->x);
    if (step == 0)
        return eg__refuse_axis(a, EG_ERROR_MISUSE, "the step along %s is 0",
                               eg__axis_text(a, text, sizeof text));
    /* the limits of start and stop */
    int64_t n = a->x->dim[k], low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    step = step > n ? n + 1 : step < -n ? -n - 1 : step; /* equivalent to any longer step */
    if (start == EG_END)
        start = step < 0 ? high : low;
    else if (start < 0)
        start += n;
    if (stop == EG_END)
        stop = step < 0 ? low : high;
    else if (stop < 0)
        stop += n;
    start = start < low ? low : start > high ? high : start;
    stop = stop < low ? low : stop > high ? high : stop;
    int64_t count = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
    m.axis[m.nx + k].size = count > 0 ? count : 0;
    m.axis[m.nx + k].at = step;
    m.axis[k].at = count > 0 ? start : 0;
    return view_finish(&m, a->x);
}
eg_tensor *eg_slice_axis(eg_tensor *x, int axis_k, int64_t start, int64_t stop, int64_t step)
{
    eg_named_axis a;
    return eg__axis_numbered(&a, "slice", x, axis_k) ? eg__slice(&a, start, stop, step)
                                                     : eg__poison_of(x);
}
eg_tensor *eg_flip_axis(eg_tensor *x, int axis_k)
{
    eg_named_axis a;
    return eg__axis_numbered(&a, "flip", x, axis_k) ? eg__slice(&a, EG_END, EG_END, -1)
                                                    : eg__poison_of(x);
}

/* True if the axis can be split into `count` parts of these sizes; else records an error. */
static bool split_fits(const eg_named_axis *a, int count, const int64_t *sizes)
{
    char text[256];
    const int64_t n = a->x->dim[a->axis];
    int64_t total = 0;
    eg__axis_text(a, text, sizeof text);
    if (count < 1 || (!sizes && n % count))
        return eg__refuse_axis(a, EG_ERROR_SHAPE, "%s does not split into %d equal part%s", text,
                               count, count == 1 ? "" : "s"),
               false;
    for (int i = 0; sizes && i < count; total += sizes[i++])
        if (sizes[i] < 0 || sizes[i] > n - total)
            return eg__refuse_axis(a, EG_ERROR_SHAPE,
                                   "part %d of size %lld does not fit into %s after %lld", i + 1,
                                   (long long)sizes[i], text, (long long)total),
                   false;
    if (sizes && total != n)
        return eg__refuse_axis(a, EG_ERROR_SHAPE,
                               "the parts have %lld element%s together, too few for %s",
                               (long long)total, total == 1 ? "" : "s", text),
               false;
    return true;
}
int eg__split(const eg_named_axis *a, int count, const int64_t *sizes, eg_tensor **parts)
{
    int64_t from = 0;
    if (!parts) return eg__refuse_axis(a, EG_ERROR_MISUSE, "the array for the parts is NULL"), -1;
    for (int i = 0; i < count; i++) parts[i] = eg__poison(a->x->cx);
    if (!split_fits(a, count, sizes)) return -1;
    for (int i = 0; i < count; i++) {
        const int64_t size = sizes ? sizes[i] : a->x->dim[a->axis] / count;
        parts[i] = eg__slice(a, from, from + size, 1);
        from += size;
    }
    return eg__failed(a->x->cx) ? -1 : 0;
}
int eg_split_axis(eg_tensor *x, int axis_k, int count, const int64_t *sizes, eg_tensor **parts)
{
    eg_named_axis a;
    if (eg__axis_numbered(&a, "split", x, axis_k)) return eg__split(&a, count, sizes, parts);
    for (int i = 0; parts && i < count; i++) parts[i] = eg__poison_of(x);
    return -1;
}
static eg_tensor *slice_call(eg_tensor *const *x) { return eg_slice_axis(x[0], 1, 1, EG_END, 2); }
static eg_tensor *back_call(eg_tensor *const *x) { return eg_slice_axis(x[0], 0, -1, EG_END, -2); }
static eg_tensor *flip_call(eg_tensor *const *x) { return eg_flip_axis(x[0], -1); }
static eg_tensor *split_call(eg_tensor *const *x)
{
    eg_tensor *part[2];
    return eg_split_axis(x[0], 0, 2, (int64_t[]){ 1, 3 }, part) ? eg__poison_of(x[0]) : part[1];
}
static const eg_sample slice_samples[] = {
    { slice_call, "3x6", 0, 0 }, { back_call, "5x2", 0, 0 },     { flip_call, "3x4", 0, 0 },
    { split_call, "4x2", 0, 0 }, { slice_call, "3x6:i9", 0, 0 }, { 0 },
};
static const eg_op slice_op = {
    .name = "slice",
    .equation = "y[i] = x[start + i step]",
    .gradient = "g at these positions, else 0",
    .arity = 1,
    .shape = view_shape,
    .rule = view_rule,
    .uses = EG_USES_NOTHING,
    .samples = slice_samples,
    .jvp = eg_jvp_linear,
};

/* -- select: y[…] = x[…, index, …] ------------------------------------------------------------ */
eg_tensor *eg__select(const eg_named_axis *a, int64_t index)
{
    map m;
    char text[256];
    const int64_t n = a->x->dim[a->axis];
    if (!view_begin(&m, &select_op, a->x)) return eg__poison_of(a->x);
    if (index >= n || index < -n)
        return eg__refuse_axis(a, EG_ERROR_INDEX, "index %lld is out of range for %s",
                               (long long)index, eg__axis_text(a, text, sizeof text));
    m.axis[a->axis].at = index < 0 ? index + n : index;
    view_drop_axis(&m, a->axis);
    return view_finish(&m, a->x);
}
eg_tensor *eg_select_axis(eg_tensor *x, int axis_k, int64_t index)
{
    eg_named_axis a;
    return eg__axis_numbered(&a, "select", x, axis_k) ? eg__select(&a, index) : eg__poison_of(x);
}
int eg__unbind(const eg_named_axis *a, int count, eg_tensor **parts)
{
    char text[256];
    if (!parts) return eg__refuse_axis(a, EG_ERROR_MISUSE, "the array for the parts is NULL"), -1;
    for (int k = 0; k < count; k++) parts[k] = eg__poison(a->x->cx);
    if (count != a->x->dim[a->axis])
        return eg__refuse_axis(a, EG_ERROR_SHAPE, "%s does not match the count %d",
                               eg__axis_text(a, text, sizeof text), count),
               -1;
    for (int k = 0; k < count; k++) parts[k] = eg__select(a, k);
    return eg__failed(a->x->cx) ? -1 : 0;
}
int eg_unbind_axis(eg_tensor *x, int axis_k, int count, eg_tensor **parts)
{
    eg_named_axis a;
    if (eg__axis_numbered(&a, "unbind", x, axis_k)) return eg__unbind(&a, count, parts);
    for (int i = 0; parts && i < count; i++) parts[i] = eg__poison_of(x);
    return -1;
}
static eg_tensor *select_call(eg_tensor *const *x) { return eg_select_axis(x[0], 1, -2); }
static const eg_sample select_samples[] = { { select_call, "2x3x4", 0, 0 },
                                            { select_call, "2x3:b", 0, 0 },
                                            { 0 } };
static const eg_op select_op = {
    .name = "select",
    .equation = "y = x[…, index, …]",
    .gradient = "g at this index, else 0",
    .arity = 1,
    .shape = view_shape,
    .rule = view_rule,
    .uses = EG_USES_NOTHING,
    .samples = select_samples,
    .jvp = eg_jvp_linear,
};

/* -- squeeze and unsqueeze: remove or insert an axis of size 1 --------------------------------- */
eg_tensor *eg_squeeze(eg_tensor *x, int axis_k)
{
    map m;
    char text[256];
    if (!view_begin(&m, &squeeze_op, x)) return eg__poison_of(x);
    int k = eg__axis("squeeze", x, axis_k);
    if (k < 0) return eg__poison_of(x);
    if (x->dim[k] != 1)
        return eg_fail_as(x->cx, EG_ERROR_SHAPE, "squeeze: axis %d of %s has size %lld, not 1", k,
                          eg__dims_text(x, text, sizeof text), (long long)x->dim[k]);
    view_drop_axis(&m, k);
    return view_finish(&m, x);
}
static eg_tensor *squeeze_call(eg_tensor *const *x) { return eg_squeeze(x[0], 1); }
static const eg_sample squeeze_samples[] = { { squeeze_call, "3x1x4", 0, 0 }, { 0 } };
static const eg_op squeeze_op = {
    .name = "squeeze",
    .equation = "y[i, j] = x[i, 0, j]",
    .gradient = "g unsqueezed",
    .arity = 1,
    .shape = view_shape,
    .rule = view_rule,
    .uses = EG_USES_NOTHING,
    .samples = squeeze_samples,
    .jvp = eg_jvp_linear,
};

eg_tensor *eg_unsqueeze(eg_tensor *x, int axis_k)
{
    map m;
    char text[256];
    if (!view_begin(&m, &unsqueeze_op, x)) return eg__poison_of(x);
    if (axis_k > x->rank || axis_k < -x->rank - 1)
        return eg_fail_as(x->cx, EG_ERROR_INDEX,
                          "unsqueeze: axis %d is out of range for a result of rank %d, from %s",
                          axis_k, x->rank + 1, eg__dims_text(x, text, sizeof text));
    if (!view_insert_axis(&m, x, axis_k < 0 ? axis_k + x->rank + 1 : axis_k,
                          (axis){ 1, 0, -1, -1 }))
        return eg__poison_of(x);
    return view_finish(&m, x);
}
static eg_tensor *unsqueeze_call(eg_tensor *const *x) { return eg_unsqueeze(x[0], -2); }
static const eg_sample unsqueeze_samples[] = { { unsqueeze_call, "3x4", 0, 0 }, { 0 } };
static const eg_op unsqueeze_op = {
    .name = "unsqueeze",
    .equation = "y[i, 0, j] = x[i, j]",
    .gradient = "g squeezed",
    .arity = 1,
    .shape = view_shape,
    .rule = view_rule,
    .uses = EG_USES_NOTHING,
    .samples = unsqueeze_samples,
    .jvp = eg_jvp_linear,
};

/* -- diagonal: y[…, k] = x[…, k, …, k + offset, …], the new axis last ------------------------- */
eg_tensor *eg_diagonal(eg_tensor *x, int64_t offset, int axis_a, int axis_b)
{
    map m;
    char text[256];
    if (!view_begin(&m, &diagonal_op, x)) return eg__poison_of(x);
    int a = eg__axis("diagonal", x, axis_a), b = a < 0 ? -1 : eg__axis("diagonal", x, axis_b);
    if (b < 0) return eg__poison_of(x);
    if (a == b)
        return eg_fail_as(x->cx, EG_ERROR_INDEX, "diagonal: axis %d of %s is given twice", a,
                          eg__dims_text(x, text, sizeof text));
    int64_t na = x->dim[a], nb = x->dim[b];
    if (offset > nb || offset < -na)
        return eg_fail_as(x->cx, EG_ERROR_INDEX,
                          "diagonal: offset %lld is outside of axes %d and %d of %s",
                          (long long)offset, a, b, eg__dims_text(x, text, sizeof text));
    int64_t down = offset < 0 ? -offset : 0, right = offset > 0 ? offset : 0;
    int64_t n = na - down < nb - right ? na - down : nb - right;
    m.axis[a].at = n ? down : 0;
    m.axis[b].at = n ? right : 0;
    view_drop_axis(&m, a > b ? a : b);
    view_drop_axis(&m, a > b ? b : a);
    return view_insert_axis(&m, x, m.ny, (axis){ n, 1, a, b }) ? view_finish(&m, x)
                                                               : eg__poison_of(x);
}
static eg_tensor *diagonal_call(eg_tensor *const *x) { return eg_diagonal(x[0], 0, 0, 2); }
static eg_tensor *above_call(eg_tensor *const *x) { return eg_diagonal(x[0], 1, 0, 1); }
static eg_tensor *below_call(eg_tensor *const *x) { return eg_diagonal(x[0], -2, -1, -2); }
static const eg_sample diagonal_samples[] = { { diagonal_call, "3x2x3", 0, 0 },
                                              { above_call, "3x4", 0, 0 },
                                              { below_call, "3x5", 0, 0 },
                                              { 0 } };
static const eg_op diagonal_op = {
    .name = "diagonal",
    .equation = "y[…, k] = x[k, k + offset]",
    .gradient = "g on this diagonal, else 0",
    .arity = 1,
    .shape = view_shape,
    .rule = view_rule,
    .uses = EG_USES_NOTHING,
    .samples = diagonal_samples,
    .jvp = eg_jvp_linear,
};

/* -- unfold: y[…, w, …, k] = x[…, w step + k, …], the position in the window is the last axis -- */
eg_tensor *eg__unfold(const eg_named_axis *a, int64_t size, int64_t step)
{
    map m;
    char text[256];
    const int k = a->axis;
    const int64_t n = a->x->dim[k];
    if (!view_begin(&m, &unfold_op, a->x)) return eg__poison_of(a->x);
    eg__axis_text(a, text, sizeof text);
    if (step < 1)
        return eg__refuse_axis(a, EG_ERROR_MISUSE,
                               "the step along %s is %lld, and must be at least 1", text,
                               (long long)step);
    if (size < 1 || size > n)
        return eg__refuse_axis(a, EG_ERROR_SHAPE, "a window of %lld does not fit into %s",
                               (long long)size, text);
    m.axis[m.nx + k] = (axis){ (n - size) / step + 1, step, k, -1 };
    return view_insert_axis(&m, a->x, m.ny, (axis){ size, 1, k, -1 }) ? view_finish(&m, a->x)
                                                                      : eg__poison_of(a->x);
}
eg_tensor *eg_unfold_axis(eg_tensor *x, int axis_k, int64_t size, int64_t step)
{
    eg_named_axis a;
    return eg__axis_numbered(&a, "unfold", x, axis_k) ? eg__unfold(&a, size, step)
                                                      : eg__poison_of(x);
}
static eg_tensor *unfold_call(eg_tensor *const *x) { return eg_unfold_axis(x[0], 1, 3, 2); }
static eg_tensor *apart_call(eg_tensor *const *x) { return eg_unfold_axis(x[0], 0, 2, 3); }
static const eg_sample unfold_samples[] = { { unfold_call, "2x7x2", 0, 0 },
                                            { apart_call, "8", 0, 0 },
                                            { 0 } };
static const eg_op unfold_op = {
    .name = "unfold",
    .equation = "y[…, w, …, k] = x[…, w step + k, …]",
    .gradient = "windows of g added up",
    .arity = 1,
    .shape = view_shape,
    .rule = view_rule,
    .uses = EG_USES_NOTHING,
    .samples = unfold_samples,
    .jvp = eg_jvp_linear,
};

const eg_op *const eg__view_ops[] = {
    &permute_op,  &slice_op,  &select_op, &squeeze_op, &unsqueeze_op,
    &diagonal_op, &unfold_op, &embed_op,  NULL,
};
