/* foreign.c: tensors in memory that does not belong to the context. Such a tensor is a leaf like
 * others. Its storage has a hold (core/hold.c), which records whether the memory is writable, and
 * of which the tensor's scope or owner is a holder. */
#include "tensor/tensor.h"

/* Returns the alignment of a dtype's elements, which is that of its C type. */
static size_t alignment(eg_dtype dtype)
{
    return dtype == EG_C128 ? _Alignof(double) : eg__width[dtype];
}

/* Extends *low or *high by the bytes that one axis reaches. False if they overflow. */
static bool reach_axis(int64_t size, int64_t stride, int64_t width, int64_t *low, int64_t *high)
{
    int64_t bytes;
    if (size < 2) return true;
    return !__builtin_mul_overflow(size - 1, stride, &bytes) &&
           !__builtin_mul_overflow(bytes, width, &bytes) &&
           !__builtin_add_overflow(bytes < 0 ? *low : *high, bytes, bytes < 0 ? low : high);
}

/* True if the elements are inside the address space and at most 2^60 bytes from `data`. Then
 * neither a stride times its size, which is more than the distance of two elements, nor the step of
 * a slice past the end can overflow. */
static bool reach_fits(const eg_from_memory_args *o, const int64_t *strides)
{
    const int64_t width = eg__width[o->dtype], most = INT64_C(1) << 60;
    const uintptr_t at = (uintptr_t)o->data;
    int64_t low, high;
    if (__builtin_mul_overflow(o->offset, width, &low) || __builtin_add_overflow(low, width, &high))
        return false;
    for (int k = 0; k < o->rank; k++)
        if (!reach_axis(o->dims[k], strides[k], width, &low, &high)) return false;
    return low >= -most && high <= most && (low >= 0 || at >= -(uintptr_t)low) &&
           (high <= 0 || (uintptr_t)high <= UINTPTR_MAX - at);
}

/* Checks the options and sets strides[0 … rank) to those of the tensor. An axis with fewer than two
 * elements gets its row-major stride, since its stride is never used. False after an error. */
static bool foreign_fits(eg_from_memory_args *o, int64_t *strides)
{
    eg_ctx *cx = o->cx;
    if ((unsigned)o->dtype >= EG_DTYPES)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "from_memory: %d is not a dtype", (int)o->dtype),
               false;
    if (o->dtype == EG_DEFAULT) o->dtype = eg_default_type(cx);
    if (!eg__sizes_fit(cx, "from_memory", o->dtype, o->rank, o->dims)) return false;
    const int64_t count = eg__count(o->rank, o->dims);
    char a[256], b[256];
    eg__row_major(o->rank, o->dims, strides);
    for (int k = 0; k < o->rank && o->strides && count; k++)
        if (o->dims[k] > 1) strides[k] = o->strides[k];
    if (!count) return true;
    if (!o->data)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "from_memory: the data are NULL, but the sizes make %lld element%s",
                          (long long)count, count == 1 ? "" : "s"),
               false;
    if (!reach_fits(o, strides))
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "from_memory: %s with strides %s from element %lld leaves the address "
                          "space",
                          eg__sizes_text(o->rank, o->dims, a, sizeof a),
                          eg__sizes_text(o->rank, strides, b, sizeof b), (long long)o->offset),
               false;
    if ((uintptr_t)o->data % alignment(o->dtype))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "from_memory: %p is no multiple of %zu bytes, to which %s is aligned",
                          o->data, alignment(o->dtype), eg_type_name(o->dtype)),
               false;
    return true;
}

/* Makes the tensor, whose hold ends with the arena. NULL after an error; nothing is held then. */
static eg_tensor *foreign_leaf(const eg_from_memory_args *o, const int64_t *strides)
{
    eg__arena *a = o->owner ? eg__owner_arena(o->owner) : eg__top(o->cx);
    eg_tensor *t = a ? eg__tensor_in(a) : NULL;
    int64_t *sizes = t ? eg__alloc_in(a, 2 * (size_t)o->rank * sizeof *sizes) : NULL;
    eg__hold *h = sizes ? eg__hold_foreign(a, o->release, o->user, o->writable) : NULL;
    if (!h) return NULL;
    const bool empty = eg__count(o->rank, o->dims) == 0;
    t->rank = (uint8_t)o->rank;
    t->dtype = (uint8_t)o->dtype;
    t->dim = sizes;
    t->stride = sizes + o->rank;
    for (int k = 0; k < o->rank; k++) t->dim[k] = o->dims[k], t->stride[k] = strides[k];
    t->own.bytes = (size_t)eg__count(o->rank, o->dims) * eg__width[o->dtype];
    t->own.hold = h;
    /* no element is read, but data must not be NULL */
    t->data = empty ? (char *)o->cx->no_dims
                    : (char *)(uintptr_t)o->data + o->offset * eg__width[o->dtype];
    return t;
}

eg_tensor *eg_from_memory_with(const eg_from_memory_args *given)
{
    eg_from_memory_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    int64_t strides[EG_RANK_MAX];
    eg_tensor *t = NULL;
    if (!eg__failed(o.cx)) {
        if (o.owner && eg_owner_context(o.owner) != o.cx)
            eg_fail_as(o.cx, EG_ERROR_MISUSE, "from_memory: .owner belongs to another context");
        else if (foreign_fits(&o, strides) && !(t = foreign_leaf(&o, strides)))
            eg_name_memory_error(o.cx, "from_memory");
    }
    if (!t && o.release) o.release(o.user);
    return t ? t : eg__poison(o.cx);
}
