/* dlpack.c: DLPack 1.1 in both directions, and its unversioned form. An imported tensor is foreign
 * memory (foreign.c) whose release() is the producer's deleter. An exported tensor is a block with
 * the DLPack struct, sizes and strides; the block is a holder of the memory (core/hold.c) until the
 * consumer calls the deleter. */
#include <eingrad/dlpack.h>
#include "tensor/tensor.h"

/* -- element types and devices ---------------------------------------------------------------- */
static const struct {
    uint8_t code, bits;
    eg_dtype dtype;
} types[] = {
    { kDLFloat, 32, EG_F32 }, { kDLFloat, 64, EG_F64 },   { kDLInt, 32, EG_I32 },
    { kDLInt, 64, EG_I64 },   { kDLBool, 8, EG_BOOL },    { kDLComplex, 128, EG_C128 },
    { kDLFloat, 16, EG_F16 }, { kDLBfloat, 16, EG_BF16 }, { kDLInt, 8, EG_I8 },
    { kDLUInt, 8, EG_U8 },    { kDLInt, 0, EG_DEFAULT },
};
/* names of DLPack's type codes */
static const char *const codes[] = {
    "int",
    "uint",
    "float",
    "opaque handle",
    "bfloat",
    "complex",
    "bool",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
};
enum { CODES = sizeof codes / sizeof *codes, NAMED_WITH_BITS = 6 };

/* "float16", "bfloat16", "float8_e5m2", "type 40 of 8 bits" */
static const char *type_text(DLDataType t, char *out, size_t size)
{
    if (t.code >= CODES)
        snprintf(out, size, "type %d of %d bit%s", t.code, t.bits, t.bits == 1 ? "" : "s");
    else if (t.code < NAMED_WITH_BITS)
        snprintf(out, size, "%s%d", codes[t.code], t.bits);
    else
        snprintf(out, size, "%s", codes[t.code]);
    return out;
}

static const char *device_text(int type)
{
    static const char *const names[] = {
        [2] = "CUDA",       [3] = "CUDA's host memory",
        [4] = "OpenCL",     [7] = "Vulkan",
        [8] = "Metal",      [9] = "VPI",
        [10] = "ROCm",      [11] = "ROCm's host memory",
        [12] = "extension", [13] = "CUDA's managed memory",
        [14] = "oneAPI",    [15] = "WebGPU",
        [16] = "Hexagon",   [17] = "MAIA",
        [18] = "Trainium",
    };
    const int count = sizeof names / sizeof *names;
    return type >= 0 && type < count && names[type] ? names[type] : "unknown";
}

/* -- import ------------------------------------------------------------------------------------ */
/* Fills *o from t. False, after an error, if t has a type or device that cannot be imported. */
static bool dlpack_read(eg_ctx *cx, const DLTensor *t, eg_from_memory_args *o)
{
    char text[64];
    int k = 0;
    if (t->device.device_type != kDLCPU)
        return eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                          "from_dlpack: the tensor is on device type %d (%s), not on the CPU",
                          (int)t->device.device_type, device_text((int)t->device.device_type)),
               false;
    while (types[k].dtype && (types[k].code != t->dtype.code || types[k].bits != t->dtype.bits))
        k++;
    if (!types[k].dtype || t->dtype.lanes != 1)
        return eg_fail_as(cx, EG_ERROR_DTYPE,
                          "from_dlpack: %s of %d lane%s is not supported; float16 to float64, "
                          "bfloat16, int8, uint8, int32, int64, bool and complex128 of 1 lane are",
                          type_text(t->dtype, text, sizeof text), t->dtype.lanes,
                          t->dtype.lanes == 1 ? "" : "s"),
               false;
    if (t->ndim < 0 || t->ndim > EG_RANK_MAX)
        return eg_fail_as(cx, EG_ERROR_SHAPE, "from_dlpack: rank %d is not in 0..%d", (int)t->ndim,
                          EG_RANK_MAX),
               false;
    if (t->byte_offset > PTRDIFF_MAX || t->byte_offset > UINTPTR_MAX - (uintptr_t)t->data)
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "from_dlpack: byte_offset %llu leaves the address space",
                          (unsigned long long)t->byte_offset),
               false;
    o->cx = cx;
    o->dtype = types[k].dtype;
    o->data = t->data ? (const char *)t->data + t->byte_offset : NULL;
    o->rank = t->ndim;
    o->dims = t->shape;
    o->strides = t->strides;
    return true;
}
/* Returns a tensor for t; poison after an error. `release` frees the struct that t is part of, and
 * is called after an error too. */
static eg_tensor *dlpack_take(eg_ctx *cx, const DLTensor *t, bool writable, eg_owner *owner,
                              void (*release)(void *), void *managed)
{
    eg_from_memory_args o = {
        .size = sizeof o, .writable = writable, .owner = owner, .release = release, .user = managed
    };
    if (!eg__failed(cx) && dlpack_read(cx, t, &o)) return eg_from_memory_with(&o);
    release(managed);
    return eg__poison(cx);
}
static void end_versioned(void *user)
{
    DLManagedTensorVersioned *m = user;
    if (m->deleter) m->deleter(m);
}
static void end_unversioned(void *user)
{
    DLManagedTensor *m = user;
    if (m->deleter) m->deleter(m);
}
eg_tensor *eg_from_dlpack(eg_ctx *cx, DLManagedTensorVersioned *m, eg_owner *owner)
{
    if (!m) return eg_fail_as(cx, EG_ERROR_MISUSE, "from_dlpack: the tensor is NULL");
    if (m->version.major == DLPACK_MAJOR_VERSION)
        return dlpack_take(cx, &m->dl_tensor, !(m->flags & DLPACK_FLAG_BITMASK_READ_ONLY), owner,
                           end_versioned, m);
    /* a struct of another major version has only the members up to the deleter where this header
     * declares them */
    eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "from_dlpack: version %u.%u of DLPack; 1.x can be read",
               (unsigned)m->version.major, (unsigned)m->version.minor);
    end_versioned(m);
    return eg__poison(cx);
}
eg_tensor *eg_from_dlpack_unversioned(eg_ctx *cx, DLManagedTensor *m, eg_owner *owner)
{
    if (!m) return eg_fail_as(cx, EG_ERROR_MISUSE, "from_dlpack: the tensor is NULL");
    return dlpack_take(cx, &m->dl_tensor, false, owner, end_unversioned, m);
}

/* -- export ------------------------------------------------------------------------------------ */
typedef struct dlpack_export {
    union {
        DLManagedTensorVersioned versioned;
        DLManagedTensor unversioned;
    } m;         /* must be the first member, since the deleter gets its address */
    eg__hold *h; /* NULL if there are no elements */
    void *(*realloc)(void *user, void *p, size_t old_size, size_t new_size);
    void *allocator;
    size_t bytes; /* size of this block */
    int64_t sizes[];
} dlpack_export;

static void export_end(dlpack_export *e)
{
    if (e->h) eg__hold_end(e->h);
    e->realloc(e->allocator, e, e->bytes, 0);
}
static void delete_versioned(DLManagedTensorVersioned *m)
{
    if (m) export_end(m->manager_ctx);
}
static void delete_unversioned(DLManagedTensor *m)
{
    if (m) export_end(m->manager_ctx);
}

/* Returns the hold of x's memory, with the caller as an additional holder; NULL after an error. */
static eg__hold *export_hold(eg_tensor *x)
{
    eg__hold *h = x->st->hold;
    const eg_tensor *whose = x->st->of;
    if (!eg__storage_lives(x))
        return eg_fail_as(x->cx, EG_ERROR_MISUSE,
                          "to_dlpack: operand 1 is a view of a tensor whose owner was closed"),
               NULL;
    x->st->exposed = true;
    if (!h) return eg__hold_chunk(whose->arena, x->data);
    eg__hold_share(h);
    return h;
}

/* Returns a block with x's sizes and strides that holds x's memory; NULL after an error. */
static dlpack_export *export_new(eg_tensor *x)
{
    eg_ctx *cx = eg__here(x->cx);
    if (cx->parent)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "to_dlpack: inside a block, whose memory ends with its context"),
               NULL;
    const size_t bytes = sizeof(dlpack_export) + 2 * (size_t)x->rank * sizeof(int64_t);
    const bool empty = eg_size(x) == 0;
    dlpack_export *e = cx->realloc(cx->user, NULL, 0, bytes);
    eg__hold *h = e && !empty ? export_hold(x) : NULL;
    if (!e) eg_fail_as(cx, EG_ERROR_MEMORY, "to_dlpack: out of memory");
    if (e && !empty && !h) cx->realloc(cx->user, e, bytes, 0);
    if (cx->failed) return eg_name_memory_error(cx, "to_dlpack"), NULL;
    *e = (dlpack_export){ .h = h, .realloc = cx->realloc, .allocator = cx->user, .bytes = bytes };
    int64_t *strides = e->sizes + x->rank;
    for (int r = 0; r < x->rank; r++) e->sizes[r] = x->dim[r], strides[r] = x->stride[r];
    return e;
}
static DLTensor export_tensor(const eg_tensor *x, dlpack_export *e)
{
    int k = 0;
    while (types[k].dtype != x->dtype) k++; /* every dtype of the library is in the table */
    return (DLTensor){ .data = e->h ? x->data : NULL,
                       .device = { .device_type = kDLCPU },
                       .ndim = x->rank,
                       .dtype = { types[k].code, types[k].bits, 1 },
                       .shape = e->sizes,
                       .strides = e->sizes + x->rank };
}

DLManagedTensorVersioned *eg_to_dlpack(eg_tensor *x)
{
    dlpack_export *e = eg__check_read("to_dlpack", x) ? export_new(x) : NULL;
    if (!e) return NULL;
    e->m.versioned = (DLManagedTensorVersioned){
        .version = { DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION },
        .manager_ctx = e,
        .deleter = delete_versioned,
        .flags = x->st->hold && !x->st->hold->writable ? DLPACK_FLAG_BITMASK_READ_ONLY : 0,
        .dl_tensor = export_tensor(x, e),
    };
    return &e->m.versioned;
}
DLManagedTensor *eg_to_dlpack_unversioned(eg_tensor *x)
{
    if (!eg__check_read("to_dlpack", x)) return NULL;
    if (x->st->hold && !x->st->hold->writable)
        return eg_fail_as(x->cx, EG_ERROR_UNSUPPORTED,
                          "to_dlpack: operand 1 is read-only foreign memory, which the unversioned "
                          "form cannot express"),
               NULL;
    dlpack_export *e = export_new(x);
    if (!e) return NULL;
    e->m.unversioned = (DLManagedTensor){ .dl_tensor = export_tensor(x, e),
                                          .manager_ctx = e,
                                          .deleter = delete_unversioned };
    return &e->m.unversioned;
}
