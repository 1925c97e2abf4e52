/* libFuzzer target for DLPack: tests/fuzz.sh builds and runs it. The input is the tensor's struct;
 * its sizes, strides and data are arrays here. For any input the deleter is called exactly once,
 * and a tensor that is accepted can be read completely. */
#include <eingrad/dlpack.h>
#include <eingrad/ops.h>
#include <stdlib.h>
#include <string.h>

static int deleted;
static void count_versioned(DLManagedTensorVersioned *m) { deleted += m != NULL; }
static void count_unversioned(DLManagedTensor *m) { deleted += m != NULL; }

/* True if the elements of x are inside `data`. */
static bool inside(eg_tensor *x, const char *data, size_t bytes)
{
    static const size_t width[] = { 0, 4, 8, 4, 8, 1, 16, 2, 2, 1, 1 };
    int64_t stride[EG_RANK_MAX], low = 0, high = (int64_t)width[eg_type(x)];
    const char *at = eg_raw(x, stride);
    for (int k = 0; k < eg_rank(x); k++) {
        int64_t far = (eg_dim(x, k) - 1) * stride[k] * (int64_t)width[eg_type(x)];
        *(far < 0 ? &low : &high) += far;
    }
    return (uintptr_t)at >= (uintptr_t)data &&
           (int64_t)((uintptr_t)at - (uintptr_t)data) + low >= 0 &&
           (uintptr_t)at - (uintptr_t)data <= bytes &&
           (int64_t)((uintptr_t)at - (uintptr_t)data) + high <= (int64_t)bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static _Alignas(16) char data[4096];
    struct {
        uint8_t form, null, code, bits;
        uint16_t lanes;
        int16_t ndim;
        uint32_t major, device;
        uint64_t flags, byte_offset;
        int64_t shape[40], strides[40];
    } in = { 0 };
    memcpy(&in, bytes, count < sizeof in ? count : sizeof in);
    const DLTensor t = { .data = in.null & 1 ? NULL : data,
                         .device = { .device_type = (DLDeviceType)in.device },
                         .ndim = in.ndim < 36 ? in.ndim : in.ndim % 36,
                         .dtype = { in.code, in.bits, in.lanes },
                         .shape = in.null & 2 ? NULL : in.shape,
                         .strides = in.null & 4 ? NULL : in.strides,
                         .byte_offset = in.byte_offset };
    DLManagedTensorVersioned versioned = {
        .version = { in.major, 1 }, .deleter = count_versioned, .flags = in.flags, .dl_tensor = t
    };
    DLManagedTensor unversioned = { .dl_tensor = t, .deleter = count_unversioned };
    memset(data, 0, sizeof data);
    deleted = 0;
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = in.form & 1 ? eg_from_dlpack(cx, &versioned, NULL)
                               : eg_from_dlpack_unversioned(cx, &unversioned, NULL);
    if (eg_ok(x) == (eg_error(cx) != NULL) || deleted != !eg_ok(x)) abort();
    if (eg_ok(x) && eg_size(x) && eg_size(x) < 10000 && inside(x, data, sizeof data)) {
        eg_tensor *y = eg_copy(x);
        if (eg_size(y) != eg_size(x)) abort();
        DLManagedTensorVersioned *m = eg_to_dlpack(x);
        if (!m || m->dl_tensor.data != eg_raw(x, NULL)) abort();
        m->deleter(m);
    }
    eg_close(cx);
    if (deleted != 1) abort();
    return 0;
}
