/* dlpack_layout.c: prints sizes and offsets of the structs of DLPack, and its constants, one per
 * line: those of DLPack's own header with -DUPSTREAM, else those of <eingrad/dlpack.h>.
 * tests/dlpack.sh compares both. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef UPSTREAM
#include UPSTREAM
#if DLPACK_MAJOR_VERSION == 1 && DLPACK_MINOR_VERSION == 0 /* Debian 13 has 1.0: what 1.1 added */
typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;
enum { kDLTrn = 18 };
#endif
#else
#include <eingrad/dlpack.h>
#endif

#define SIZE(type)       printf(#type " %zu\n", sizeof(type));
#define PLACE(type, at)  printf(#type "." #at " %zu\n", offsetof(type, at));
#define NUMBER(constant) printf(#constant " %lld\n", (long long)(constant));
int main(void)
{
    SIZE(DLDevice)
    PLACE(DLDevice, device_type)
    PLACE(DLDevice, device_id)
    SIZE(DLDataType)
    PLACE(DLDataType, code)
    PLACE(DLDataType, bits)
    PLACE(DLDataType, lanes)
    SIZE(DLTensor)
    PLACE(DLTensor, data)
    PLACE(DLTensor, device)
    PLACE(DLTensor, ndim)
    PLACE(DLTensor, dtype)
    PLACE(DLTensor, shape)
    PLACE(DLTensor, strides)
    PLACE(DLTensor, byte_offset)
    SIZE(DLManagedTensor)
    PLACE(DLManagedTensor, dl_tensor)
    PLACE(DLManagedTensor, manager_ctx)
    PLACE(DLManagedTensor, deleter)
    SIZE(DLPackVersion)
    PLACE(DLPackVersion, major)
    PLACE(DLPackVersion, minor)
    SIZE(DLManagedTensorVersioned)
    PLACE(DLManagedTensorVersioned, version)
    PLACE(DLManagedTensorVersioned, manager_ctx)
    PLACE(DLManagedTensorVersioned, deleter)
    PLACE(DLManagedTensorVersioned, flags)
    PLACE(DLManagedTensorVersioned, dl_tensor)
    NUMBER(DLPACK_MAJOR_VERSION)
    NUMBER(DLPACK_FLAG_BITMASK_READ_ONLY)
    NUMBER(DLPACK_FLAG_BITMASK_IS_COPIED)
    NUMBER(kDLCPU)
    NUMBER(kDLCUDAHost)
    NUMBER(kDLTrn)
    NUMBER(kDLInt)
    NUMBER(kDLUInt)
    NUMBER(kDLFloat)
    NUMBER(kDLBfloat)
    NUMBER(kDLComplex)
    NUMBER(kDLBool)
    return 0;
}
