/* eingrad/dlpack.h: exchange of tensors with other libraries without a copy: DLPack 1.1
 * (https://dmlc.github.io/dlpack), which NumPy, PyTorch, JAX and others support, and the older
 * unversioned form.
 *
 * The structs below are DLPack's. If DLPack's own header is included before this one, its structs
 * are used; included after this one, it declares nothing more. eingrad.h does not include this
 * header. */
#ifndef EINGRAD_DLPACK_H
#define EINGRAD_DLPACK_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#define EG_DL_ENUM_ : int32_t
#else
#define EG_DL_ENUM_
#endif

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
typedef enum EG_DL_ENUM_ {
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3,
    kDLOpenCL = 4,
    kDLVulkan = 7,
    kDLMetal = 8,
    kDLVPI = 9,
    kDLROCM = 10,
    kDLROCMHost = 11,
    kDLExtDev = 12,
    kDLCUDAManaged = 13,
    kDLOneAPI = 14,
    kDLWebGPU = 15,
    kDLHexagon = 16,
    kDLMAIA = 17,
    kDLTrn = 18
} DLDeviceType;
typedef struct {
    DLDeviceType device_type;
    int32_t device_id; /* 0 of a CPU */
} DLDevice;
typedef enum {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLOpaqueHandle = 3,
    kDLBfloat = 4,
    kDLComplex = 5,
    kDLBool = 6
} DLDataTypeCode;
typedef struct {
    uint8_t code; /* a DLDataTypeCode */
    uint8_t bits; /* of a lane */
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data; /* NULL: no elements */
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor { /* the unversioned form */
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *); /* or NULL */
} DLManagedTensor;
#define EG_DL_VERSIONED_
#elif !defined(DLPACK_MAJOR_VERSION) /* a header of DLPack older than version 1 */
#define EG_DL_VERSIONED_
#endif

#ifdef EG_DL_VERSIONED_
#undef EG_DL_VERSIONED_
#define DLPACK_MAJOR_VERSION          1
#define DLPACK_MINOR_VERSION          1
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
typedef struct {
    uint32_t major, minor;
} DLPackVersion;
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *); /* or NULL */
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;
#endif
#undef EG_DL_ENUM_

/* -- in: a tensor over the memory of another library
 * The result lives in `owner`, or in the open scope if that is NULL. Takes ownership of `m`, also
 * on failure: its deleter is called exactly once, as eg_from_memory's release. (A Python capsule is
 * therefore renamed "used_dltensor…" before the call.) float16 to float64, bfloat16, int8, uint8,
 * int32, int64, bool and complex128 of one lane on the CPU; other types, devices and versions from
 * 2 on are refused by name. The result is read-only if the flag says so, and always for the
 * unversioned form, which has no flag, as in NumPy; eg_copy makes a writable copy. */
EG_API eg_tensor *eg_from_dlpack(eg_ctx *, struct DLManagedTensorVersioned *m, eg_owner *owner);
EG_API eg_tensor *eg_from_dlpack_unversioned(eg_ctx *, struct DLManagedTensor *m, eg_owner *owner);

/* -- out: x for another library, which calls the deleter when it has finished
 * Version 1.1, with strides, any that x has; NULL after an error. The elements stay at their
 * address until then, even if the scope or owner of x or the context ends: their block of memory
 * (for a scope it may be larger than x and contain other tensors) is freed when the deleter is
 * called. The deleter may be called in any thread, and calls the .realloc of eg_open there, if one
 * was given. Writes of the other library are not detected, as with eg_from_memory. The exported
 * tensor has no gradients. */
EG_API struct DLManagedTensorVersioned *eg_to_dlpack(eg_tensor *x);
/* The unversioned form, which cannot say that memory is read-only: such an x is refused. */
EG_API struct DLManagedTensor *eg_to_dlpack_unversioned(eg_tensor *x);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
