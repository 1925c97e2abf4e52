/* tensor.c: makes tensors: sizes, strides, layouts, storage. Also eg_keep, which copies a tensor to
 * the enclosing scope, and eg_result. */
#include "tensor/tensor.h"
#include <string.h>

const uint8_t eg__width[] = {
    [EG_DEFAULT] = 0, [EG_F32] = 4, [EG_F64] = 8,  [EG_I32] = 4, [EG_I64] = 8, [EG_BOOL] = 1,
    [EG_C128] = 16,   [EG_F16] = 2, [EG_BF16] = 2, [EG_I8] = 1,  [EG_U8] = 1
};
_Static_assert(sizeof(bool) == 1, "bool tensors are arrays of C's bool");
_Static_assert(sizeof(double complex) == 16, "c128 tensors are arrays of pairs of doubles");

void eg__row_major(int rank, const int64_t *dims, int64_t *strides)
{
    uint64_t w = 1; /* without elements, it may exceed 64 bits */
    for (int k = rank; k-- > 0; w *= (uint64_t)(dims[k] ? dims[k] : 1)) strides[k] = (int64_t)w;
}

bool eg__has_sizes(const eg_tensor *x, int rank, const int64_t *sizes)
{
    if (x->rank != rank) return false;
    for (int k = 0; k < rank; k++)
        if (x->dim[k] != sizes[k]) return false;
    return true;
}
bool eg__same_shape(const eg_tensor *a, const eg_tensor *b)
{
    return eg__has_sizes(a, b->rank, b->dim);
}

int eg__axes_by_step(const eg_tensor *x, int but, int *order)
{
    int n = 0;
    for (int r = 0; r < x->rank; r++) {
        if (r == but || x->dim[r] == 1) continue;
        int at = n++;
        for (; at > 0 && eg__abs64(x->stride[order[at - 1]]) > eg__abs64(x->stride[r]); at--)
            order[at] = order[at - 1];
        order[at] = r;
    }
    return n;
}
/* Sorts the axes by decreasing |stride|, axes with equal strides by their number. Returns false if
 * an axis of more than one element has stride 0. */
static bool axes_by_stride(const eg_tensor *x, int *order)
{
    bool distinct = true;
    for (int k = 0; k < x->rank; k++) {
        const int64_t s = eg__abs64(x->stride[k]);
        if (s == 0 && x->dim[k] > 1) distinct = false;
        int at = k;
        for (; at > 0 && eg__abs64(x->stride[order[at - 1]]) < s; at--) order[at] = order[at - 1];
        order[at] = k;
    }
    return distinct;
}

const char *eg__sizes_text(int rank, const int64_t *sizes, char *buffer, size_t size)
{
    size_t w = (size_t)snprintf(buffer, size, "(");
    for (int k = 0; k < rank && w < size; k++)
        w += (size_t)snprintf(buffer + w, size - w, k ? ", %lld" : "%lld", (long long)sizes[k]);
    if (w < size) snprintf(buffer + w, size - w, rank == 1 ? ",)" : ")");
    return buffer;
}
const char *eg__dims_text(const eg_tensor *x, char *buffer, size_t size)
{
    return eg__sizes_text(x->rank, x->dim, buffer, size);
}

/* A size of 0 counts as 1 here, so that the strides of an empty tensor do not overflow either. */
bool eg__sizes_fit(eg_ctx *cx, const char *who, eg_dtype dtype, int rank, const int64_t *dims)
{
    if (rank < 0 || rank > EG_RANK_MAX) {
        eg_fail_as(cx, EG_ERROR_SHAPE, "%s: rank %d is not in 0..%d", who, rank, EG_RANK_MAX);
        return false;
    }
    if (rank && !dims) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: rank %d, but the sizes are NULL", who, rank);
        return false;
    }
    int64_t bytes = eg__width[dtype];
    for (int k = 0; k < rank; k++)
        if (dims[k] < 0) {
            eg_fail_as(cx, EG_ERROR_SHAPE, "%s: size %lld of axis %d is negative", who,
                       (long long)dims[k], k);
            return false;
        }
    for (int k = 0; k < rank; k++)
        if (__builtin_mul_overflow(bytes, dims[k] ? dims[k] : 1, &bytes)) {
            eg_fail_as(cx, EG_ERROR_SHAPE,
                       "%s: the sizes up to axis %d (%lld) make more than 2^63 bytes", who, k,
                       (long long)dims[k]);
            return false;
        }
    return true;
}

/* Sets y's rank, and memory for its sizes and strides: what eg__apply has reserved, if it is
 * enough. False after an error. */
EG_INLINE bool take_axes(eg_tensor *y, eg__arena *a, int rank)
{
    int64_t *m = y->dim && rank <= y->rank ? y->dim : NULL;
    y->rank = (uint8_t)rank;
    if (rank == 0)
        m = y->cx->no_dims;
    else if (!m && !(m = eg__alloc_in(a, 2 * (size_t)rank * sizeof *m)))
        return false;
    y->dim = m;
    y->stride = m + rank;
    return true;
}
static bool take_sizes(eg_tensor *y, eg__arena *a, int rank, const int64_t *dims)
{
    if (!take_axes(y, a, rank)) return false;
    for (int k = 0; k < rank; k++) y->dim[k] = dims[k];
    return true;
}
/* Sets y's dtype if dtype and sizes are allowed; else records an error. */
static bool check_sizes(eg_tensor *y, const char *who, eg_dtype dtype, int rank,
                        const int64_t *dims)
{
    if ((unsigned)dtype >= EG_DTYPES) {
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "%s: %d is not a dtype", who, (int)dtype);
        return false;
    }
    y->dtype = (uint8_t)(dtype ? dtype : y->cx->dtype);
    return eg__sizes_fit(y->cx, who, y->dtype, rank, dims);
}
static bool give_sizes(eg_tensor *y, eg__arena *a, eg_dtype dtype, int rank, const int64_t *dims)
{
    return check_sizes(y, y->op ? y->op->name : "tensor", dtype, rank, dims) &&
           take_sizes(y, a, rank, dims);
}
static bool give_storage(eg_tensor *y, eg__arena *a)
{
    const size_t each = (size_t)eg__count(y->rank, y->dim) * eg__width[y->dtype];
    if (__builtin_mul_overflow(each, (size_t)eg__copy_count(y), &y->own.bytes)) {
        eg_fail_as(y->cx, EG_ERROR_MEMORY, "%s: %lld cop%s of %zu bytes are more than 2^64 bytes",
                   y->op->name, (long long)eg__copy_count(y), eg__copy_count(y) == 1 ? "y" : "ies",
                   each);
        return false;
    }
    y->each = (int64_t)each;
    y->data = eg__capturing(y->cx) ? eg__capture_storage(y) : eg__alloc_in(a, y->own.bytes);
    return y->data != NULL;
}

int64_t *eg__tensor_block(eg__arena *a, int rank, size_t bytes, char **data)
{
    const size_t sizes = 2 * (size_t)rank * sizeof(int64_t);
    const size_t before = bytes < EG_ALIGN ? eg__up16(sizes) : (sizes + EG_ALIGN - 1) & -EG_ALIGN;
    const bool apart = !a->owned && bytes >= EG_SPARE_LEAST;
    char *block = eg__alloc_in(a, apart ? sizes : before + bytes);
    *data = !block ? NULL : apart ? eg__alloc_in(a, bytes) : block + before;
    return *data ? (int64_t *)(void *)block : NULL;
}
static eg_tensor *leaf_in(eg_ctx *cx, eg__arena *a, const char *who, eg_dtype dtype, int rank,
                          const int64_t *dims)
{
    if (eg__failed(cx)) return NULL;
    eg_tensor *t = eg__tensor_in(a);
    if (!t || !check_sizes(t, who, dtype, rank, dims)) return NULL;
    const size_t bytes = (size_t)eg__count(rank, dims) * eg__width[t->dtype];
    if (!(t->dim = eg__tensor_block(a, rank, bytes, &t->data))) return NULL;
    t->rank = (uint8_t)rank;
    t->own.bytes = bytes;
    t->own.made = eg__capturing(cx) ? EG_MADE_UNKNOWN : EG_MADE_BEFORE;
    take_sizes(t, a, rank, dims);
    eg__row_major(rank, t->dim, t->stride);
    return t;
}
eg_tensor *eg__new(eg_ctx *cx, eg_dtype dtype, int rank, const int64_t *dims)
{
    return cx ? leaf_in(cx, eg__top(cx), "tensor", dtype, rank, dims) : NULL;
}
eg_tensor *eg__zeros(eg_ctx *cx, eg_dtype dtype, int rank, const int64_t *dims)
{
    eg_tensor *t = eg__new(cx, dtype, rank, dims);
    if (t) memset(t->data, 0, t->own.bytes);
    return t;
}
/* Makes a tensor of zeros in the memory of the owner; `who` names the call in messages. */
static eg_tensor *leaf_of_owner(eg_owner *o, const char *who, eg_dtype dtype, int rank,
                                const int64_t *dims)
{
    if (!o) return NULL;
    eg_ctx *cx = eg_owner_context(o);
    if (eg__capture_refuses(cx, who, "only outputs are kept after the step")) return eg__poison(cx);
    eg__arena *a = eg__owner_arena(o);
    eg_tensor *t = a ? leaf_in(cx, a, who, dtype, rank, dims) : NULL;
    if (!t) return eg__poison(cx);
    memset(t->data, 0, t->own.bytes);
    return t;
}
eg_tensor *eg_owner_tensor(eg_owner *o, eg_dtype dtype, int rank, const int64_t *dims)
{
    return leaf_of_owner(o, "owner_tensor", dtype, rank, dims);
}

/* Changes t, of rank r + 1, to a tensor of rank r whose copies are along t's first axis. */
static eg_tensor *tensor_hide(eg_tensor *t, const eg_copies *c)
{
    t->copies = c;
    t->each = t->stride[0] * eg__width[t->dtype];
    t->rank--;
    t->dim++;
    t->stride++;
    return t;
}
/* Returns the sizes with the number of copies before them, if there are copies. */
static const int64_t *tensor_sizes(const eg_copies *c, int rank, const int64_t *dims, int64_t *all)
{
    all[0] = c->count;
    if (rank > 0) memcpy(all + 1, dims, (size_t)rank * sizeof *dims);
    return all;
}
eg_tensor *eg__new_copies(eg_ctx *cx, const eg_copies *c, eg_dtype dtype, int rank,
                          const int64_t *dims)
{
    int64_t all[EG_RANK_MAX + 1];
    eg_tensor *t =
        eg__new(cx, dtype, rank + (c != NULL), c ? tensor_sizes(c, rank, dims, all) : dims);
    return t && c ? tensor_hide(t, c) : t;
}
eg_tensor *eg_owner_copies(eg_owner *o, const eg_copies *c, eg_dtype dtype, int rank,
                           const int64_t *dims)
{
    int64_t all[EG_RANK_MAX + 1];
    if (!c) return eg_owner_tensor(o, dtype, rank, dims);
    if (rank >= EG_RANK_MAX || rank < 0)
        return eg_fail_as(c->cx, EG_ERROR_SHAPE, "owner_copies: rank %d is not in 0..%d", rank,
                          EG_RANK_MAX - 1);
    if (rank && !dims)
        return eg_fail_as(c->cx, EG_ERROR_MISUSE, "owner_copies: rank %d, but the sizes are NULL",
                          rank);
    eg_tensor *t =
        leaf_of_owner(o, "owner_copies", dtype, rank + 1, tensor_sizes(c, rank, dims, all));
    return eg_ok(t) ? tensor_hide(t, c) : t;
}

eg_tensor *eg__alias(eg_tensor *x, int rank, const int64_t *dims, const int64_t *strides,
                     int64_t offset)
{
    if (!(x = eg__own(x))) return NULL;
    eg__arena *a = eg__top(x->cx);
    eg_tensor *t = eg__tensor_in(a);
    if (!t || !give_sizes(t, a, x->dtype, rank, dims)) return NULL;
    if (rank) memcpy(t->stride, strides, (size_t)rank * sizeof *strides);
    t->st = x->st;
    t->version = x->st->version;
    t->data = x->data + offset * eg__width[x->dtype];
    t->copies = x->copies;
    t->each = x->each;
    return t;
}

eg_tensor *eg__part(eg_tensor *z, int part)
{
    int64_t stride[EG_RANK_MAX];
    if (!(z = eg__own(z))) return NULL;
    eg_tensor doubles = *z; /* the same memory as f64, with twice as many elements */
    doubles.dtype = EG_F64;
    for (int k = 0; k < z->rank; k++) stride[k] = 2 * z->stride[k];
    return eg__alias(&doubles, z->rank, z->dim, stride, part);
}

/* Sets the strides of t, which has no gaps, so that axis order[rank − 1] has the smallest. */
static void strides_in_order(eg_tensor *t, const int *order)
{
    int64_t w = 1;
    for (int k = t->rank; k-- > 0; w *= t->dim[order[k]] ? t->dim[order[k]] : 1)
        t->stride[order[k]] = w;
}
/* Returns a copy of x, which may have copies, without history, in the scope around the open one;
 * with `like` in the layout that eg__shape_like gives a result, else row-major. */
static eg_tensor *keep_outside(eg_tensor *x, bool like)
{
    if (!eg__check_usable("keep", x)) return eg__poison_of(x);
    eg__arena *a = eg__top(x->cx);
    if (a->cx->parent && (a->outer == a->cx->loans.arena || a->outer == &a->cx->root))
        return eg_fail_as(x->cx, EG_ERROR_MISUSE, "keep: tensors of a block end with the block");
    if (a == x->cx->receiver &&
        eg__capture_refuses(x->cx, "keep", "only outputs are kept after the step"))
        return eg__poison(x->cx);
    const eg_copies *c = x->copies;
    int64_t all[EG_RANK_MAX + 1];
    int order[EG_RANK_MAX];
    eg_tensor *t = leaf_in(x->cx, a->outer ? a->outer : a, "keep", x->dtype, x->rank + (c != NULL),
                           c ? tensor_sizes(c, x->rank, x->dim, all) : x->dim);
    if (!t && eg_error_code(x->cx) == EG_ERROR_MEMORY) eg_fail_in(x->cx, "keep");
    if (t && c) t = tensor_hide(t, c);
    if (t && like && x->rank > 1 && axes_by_stride(x, order)) strides_in_order(t, order);
    return t && eg__copy_act(t, x) ? t : eg__poison(x->cx);
}
eg_tensor *eg__keep_like(eg_tensor *x) { return keep_outside(x, true); }
eg_tensor *eg_keep(eg_tensor *x)
{
    return eg__check_single("keep", x) ? keep_outside(x, false) : eg__poison_of(x);
}

eg_tensor *eg_keep_in(eg_owner *o, eg_tensor *x)
{
    if (!eg__check_single("keep_in", x)) return eg__poison_of(x);
    if (!o) return eg_fail_as(x->cx, EG_ERROR_MISUSE, "keep_in: the owner is NULL");
    if (eg_owner_context(o) != x->cx)
        return eg_fail_as(x->cx, EG_ERROR_MISUSE, "keep_in: operand 1 belongs to another context");
    if (eg__capture_refuses(x->cx, "keep_in", "only outputs are kept after the step"))
        return eg__poison(x->cx);
    eg__arena *a = eg__owner_arena(o);
    eg_tensor *t = a ? leaf_in(x->cx, a, "keep_in", x->dtype, x->rank, x->dim) : NULL;
    if (!t && eg_error_code(x->cx) == EG_ERROR_MEMORY) eg_fail_in(x->cx, "keep_in");
    if (!t) return eg__poison(x->cx);
    eg__copy(t, x);
    return t;
}

/* -- results of operations --------------------------------------------------------------------- */
bool eg__shape(eg_tensor *y, eg_dtype dtype, int rank, const int64_t *dims)
{
    if (!give_sizes(y, y->arena, dtype, rank, dims)) return false;
    eg__row_major(rank, y->dim, y->stride);
    return true;
}
bool eg__shape_known(eg_tensor *y, eg_dtype dtype, int rank, const int64_t *dims,
                     const int64_t *strides)
{
    y->dtype = (uint8_t)dtype;
    if (!take_axes(y, y->arena, rank)) return false;
    int64_t *to = y->dim;
    for (int k = 0; k < rank; k++) {
        to[k] = dims[k];
        to[rank + k] = strides[k];
    }
    return true;
}
bool eg_result(eg_tensor *y, eg_dtype dtype, int rank, const int64_t *dims)
{
    if (y && (y->data || !y->op))
        eg_fail_as(y->cx, EG_ERROR_MISUSE,
                   "result: the tensor exists already; this function is only for the shape() of an "
                   "operation");
    return y && !y->cx->failed && eg__shape(y, dtype, rank, dims);
}

bool eg__shape_strided(eg_tensor *y, eg_dtype dtype, int rank, const int64_t *dims,
                       const int *order)
{
    if (!give_sizes(y, y->arena, dtype, rank, dims)) return false;
    strides_in_order(y, order);
    return true;
}
bool eg__shape_ordered(eg_tensor *y, eg_dtype dtype, int rank, const int64_t *dims,
                       const eg_tensor *x)
{
    int order[EG_RANK_MAX];
    return rank < 2 || !axes_by_stride(x, order) ? eg__shape(y, dtype, rank, dims)
                                                 : eg__shape_strided(y, dtype, rank, dims, order);
}
bool eg__shape_like(eg_tensor *y, eg_dtype dtype, const eg_tensor *x)
{
    /* x has these sizes, so they have been checked */
    if (x->rank < 2 && eg__width[dtype] <= eg__width[x->dtype]) {
        y->dtype = (uint8_t)dtype;
        if (!take_sizes(y, y->arena, x->rank, x->dim)) return false;
        if (x->rank) y->stride[0] = 1;
        return true;
    }
    return eg__shape_ordered(y, dtype, x->rank, x->dim, x);
}
bool eg__shape_view(eg_tensor *y, const eg_tensor *x, int rank, const int64_t *dims,
                    const int64_t *strides, int64_t offset)
{
    if (!give_sizes(y, y->arena, x->dtype, rank, dims)) return false;
    if (rank) memcpy(y->stride, strides, (size_t)rank * sizeof *strides);
    y->st = x->st;
    y->data = x->data + offset * eg__width[x->dtype];
    return true;
}
bool eg__give_storage(eg_tensor *y) { return y->data || give_storage(y, y->arena); }

/* Gives y the layout of the first operand, from `first` on, that repeats no element. False, after
 * an error, if dtypes differ. */
bool eg__shape_pair(eg_tensor *y, eg_dtype dtype, int first)
{
    const eg_tensor *a = y->in[first], *like = NULL;
    for (int k = first; k < y->count; k++) {
        const eg_tensor *x = y->in[k];
        if (x->dtype != a->dtype) {
            eg_fail_as(y->cx, EG_ERROR_DTYPE,
                       "%s: operand %d is %s, operand %d is %s; eg_cast one of them", y->op->name,
                       first + 1, eg_type_name(a->dtype), k + 1, eg_type_name(x->dtype));
            return false;
        }
        bool repeats = false;
        for (int r = 0; r < x->rank; r++) repeats |= x->stride[r] == 0 && x->dim[r] > 1;
        if (!repeats && !like) like = x;
    }
    return eg__shape_like(y, dtype, like ? like : a);
}
