/* test_foreign.c: shared memory: tensors in foreign memory, exported tensors, owners of one
 * tensor. */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad/check.h>
#include <eingrad/dlpack.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include "fixtures.h"
#include "tests.h"

static void count_up(void *n) { ++*(int *)n; }

/* -- eg_from_memory --------------------------------------------------------------------------- */
GROUP("from_memory")

/* x[i, j] of 4 × 3 elements with strides and offset, as an index of the ramp */
static const struct seen {
    int rank;
    int64_t dims[3], strides[3], offset;
} seen[] = {
    { 2, { 4, 3 }, { 3, 1 }, 0 },
    { 2, { 3, 4 }, { 1, 3 }, 0 },
    { 2, { 4, 3 }, { -3, -1 }, 11 },
    { 2, { 2, 3 }, { 6, 1 }, 3 },
    { 3, { 2, 5, 3 }, { -3, 0, 1 }, 6 },
    { 1, { 5 }, { 0 }, 7 },
    { 0, { 0 }, { 0 }, 4 },
    { 3, { 2, 1, 3 }, { 3, INT64_MAX, -1 }, 8 },
};
enum { SEEN = sizeof seen / sizeof *seen };

LOOP_TEST(any_strides_are_read_in_place, SEEN)
{
    const struct seen *s = &seen[_i];
    double ramp[12];
    int ended = 0;
    for (int k = 0; k < 12; k++) ramp[k] = k;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_mark m = eg_push(cx);
    eg_tensor *x = eg_from_memory(cx, EG_F64, ramp, s->rank, s->dims, .strides = s->strides,
                                  .offset = s->offset, .release = count_up, .user = &ended);
    ck_assert_ptr_eq(eg_raw(x, NULL), ramp + s->offset);
    const double *y = eg_f64(eg_copy(x));
    int64_t index[3] = { 0 };
    for (int64_t n = 0; n < eg_size(x); n++) {
        int64_t at = s->offset, rest = n;
        for (int k = s->rank; k-- > 0; rest /= s->dims[k]) index[k] = rest % s->dims[k];
        for (int k = 0; k < s->rank; k++) at += index[k] ? index[k] * s->strides[k] : 0;
        ck_assert_double_eq(y[n], ramp[at]);
    }
    eg_assert_ok(cx);
    ck_assert_int_eq(ended, 0);
    eg_pop(cx, m);
    ck_assert_int_eq(ended, 1);
    eg_close(cx);
    ck_assert_int_eq(ended, 1);
}

/* Operations as for a score of attention on a and b. */
static eg_tensor *work(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *s = eg_einsum("i d, j d -> i j", x[0], x[1]);
    return eg_einsum("i j, j d -> i d", eg_softmax("i [j]", s, .where = "j <= i"), x[1]);
}

/* Values and gradients are those of copies, bit for bit, for strides that are no layout of the
 * library, in memory that cannot be written. */
TEST(read_only_memory_takes_part_in_everything)
{
    const int64_t dims[] = { 5, 3 }, strides[2][2] = { { -1, 10 }, { 3, 1 } }, offset[] = { 4, 0 };
    double *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int k = 0; k < 512; k++) page[k] = sin(k);
    ck_assert_int_eq(mprotect(page, 4096, PROT_READ), 0);
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[2], *copy[2], *dx[2], *dcopy[2];
    for (int k = 0; k < 2; k++) {
        x[k] =
            eg_from_memory(cx, EG_F64, page, 2, dims, .strides = strides[k], .offset = offset[k]);
        copy[k] = eg_detach(eg_copy(x[k]));
    }
    eg_tensor *y = work(NULL, x), *z = work(NULL, copy);
    ck_assert_int_eq(memcmp(eg_f64(y), eg_f64(z), 15 * sizeof(double)), 0);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(y)), NULL, 2, x, dx), 0);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(z)), NULL, 2, copy, dcopy), 0);
    for (int k = 0; k < 2; k++)
        ck_assert_int_eq(memcmp(eg_f64(dx[k]), eg_f64(dcopy[k]), 15 * sizeof(double)), 0);
    eg_assert_gradcheck(work, NULL, 2, x, .order = 2);
    eg_close(cx);
    munmap(page, 4096);
}

TEST(writes_reach_the_array_and_only_if_they_may)
{
    float a[6] = { 0, 1, 2, 3, 4, 5 };
    const int64_t dims[] = { 2, 3 };
    eg_ctx *cx = eg_open();
    eg_tensor *fixed = eg_from_memory(cx, EG_F32, a, 2, dims),
              *open = eg_from_memory(cx, EG_F32, a, 2, dims, .writable = true),
              *turned = eg_from_memory(cx, EG_F32, a, 2, dims, .strides = (int64_t[]){ -3, -1 },
                                       .offset = 5, .writable = true);
    eg_tensor *ones = eg_ones(cx, 2, 3), *view = eg_slice_axis(fixed, 1, 0, 2, 1);
    ck_assert_ptr_null(eg_mut_f32(fixed));
    eg_assert_error(cx, "mut_f32: the target is read-only foreign memory");
    ck_assert_int_eq(eg_assign(fixed, ones), -1);
    eg_assert_error(cx, "assign: the target is read-only foreign memory");
    ck_assert_int_eq(eg_fill(view, 1), -1);
    eg_assert_error(cx, "fill: the target is read-only foreign memory");
    eg_nograd(cx, true);
    ck_assert(!eg_ok(eg_einsum_to(fixed, "i j -> i j", ones)));
    eg_assert_error(cx, "einsum: the target is read-only foreign memory");
    for (int k = 0; k < 6; k++) ck_assert_float_eq(a[k], (float)k);
    /* the two are the same memory in opposite order: assigned as if the value had been copied */
    ck_assert_int_eq(eg_assign(open, turned), 0);
    for (int k = 0; k < 6; k++) ck_assert_float_eq(a[k], (float)(5 - k));
    ck_assert(eg_ok(eg_einsum_to(open, "i j -> i j", turned)));
    for (int k = 0; k < 6; k++) ck_assert_float_eq(a[k], (float)k);
    eg_mut_f32(open)[4] = 7;
    ck_assert_float_eq(a[4], 7);
    ck_assert_double_eq(eg_get(fixed, 1, 1), 7);
    eg_close(cx);
}

/* A graph that was recorded before a write to its operand's memory detects it, as for any
 * tensor. */
TEST(a_gradient_notices_a_write)
{
    double a[2] = { 1, 2 };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *dx, *x = eg_from_memory(cx, EG_F64, a, 1, (int64_t[]){ 2 }, .writable = true),
                   *y = eg_sum(NULL, eg_square(x));
    eg_fill(x, 3);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), -1);
    eg_assert_error(cx, "grad: ");
    eg_close(cx);
}

static const struct bad {
    const char *says;
    eg_dtype dtype;
    bool null;
    int at, rank;
    int64_t dims[2], strides[2], offset;
} bad[] = {
    { "from_memory: the data are NULL, but the sizes make 6 elements",
      EG_F32,
      true,
      0,
      2,
      { 2, 3 },
      { 3, 1 },
      0 },
    { "is no multiple of 4 bytes, to which f32 is aligned", EG_F32, false, 2, 1, { 2 }, { 1 }, 0 },
    { "is no multiple of 8 bytes, to which f64 is aligned", EG_F64, false, 4, 1, { 2 }, { 1 }, 0 },
    { "is no multiple of 8 bytes, to which c128 is aligned",
      EG_C128,
      false,
      4,
      1,
      { 1 },
      { 1 },
      0 },
    { "from_memory: (2,) with strides (2305843009213693952,) from element 0 leaves the address",
      EG_F32,
      false,
      0,
      1,
      { 2 },
      { INT64_MAX / 4 + 1 },
      0 },
    { "leaves the address space", EG_F32, false, 0, 1, { 3 }, { INT64_MIN }, 0 },
    { "leaves the address space", EG_F32, false, 0, 1, { 3 }, { -(INT64_MAX / 8) }, 0 },
    { "leaves the address space", EG_F32, false, 0, 1, { 2 }, { 1 }, INT64_MAX },
    { "leaves the address space", EG_I8, false, 0, 1, { 3 }, { INT64_MAX / 2 }, 0 },
    { "leaves the address space", EG_I8, false, 0, 2, { 2, 2 }, { INT64_MAX / 2, 1 }, 0 },
    { "leaves the address space", EG_F32, false, 0, 1, { 2 }, { 1 }, INT64_MAX / 4 - 1 },
    { "from_memory: the sizes up to axis 1 (4611686018427387904) make more than 2^63 bytes",
      EG_F32,
      false,
      0,
      2,
      { 2, INT64_MAX / 2 + 1 },
      { 0, 0 },
      0 },
    { "from_memory: size -1 of axis 0 is negative", EG_F32, false, 0, 1, { -1 }, { 1 }, 0 },
    { "from_memory: rank 33 is not in 0..32", EG_F32, false, 0, 33, { 1 }, { 1 }, 0 },
    { "from_memory: rank -1 is not in 0..32", EG_F32, false, 0, -1, { 1 }, { 1 }, 0 },
    { "from_memory: 99 is not a dtype", (eg_dtype)99, false, 0, 1, { 1 }, { 1 }, 0 },
};
LOOP_TEST(what_is_refused_is_released, sizeof bad / sizeof *bad)
{
    static _Alignas(16) char memory[64];
    const struct bad *b = &bad[_i];
    int ended = 0;
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from_memory(cx, b->dtype, b->null ? NULL : memory + b->at, b->rank, b->dims,
                                  .strides = b->strides, .offset = b->offset, .release = count_up,
                                  .user = &ended);
    ck_assert(!eg_ok(x));
    ck_assert_int_eq(ended, 1);
    eg_assert_error(cx, b->says);
    eg_close(cx);
    ck_assert_int_eq(ended, 1);
}

TEST(release_comes_once_at_the_end_of_scope_or_owner)
{
    float a[4] = { 1, 2, 3, 4 };
    int ended[5] = { 0 };
    const int64_t dims[] = { 4 }, none[] = { 0 };
#define TAKE(k, ...) \
    eg_from_memory(cx, EG_F32, a, 1, dims, .release = count_up, .user = &ended[k], __VA_ARGS__)
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_owner *o = eg_owner_open(cx), *foreign = eg_owner_open(other);
    eg_mark m = eg_push(cx);
    eg_tensor *scope = TAKE(0, .offset = 0), *owned = TAKE(1, .owner = o);
    ck_assert(!eg_ok(TAKE(2, .owner = foreign)));
    ck_assert_int_eq(ended[2], 1);
    ck_assert(!eg_ok(TAKE(3, .owner = o))); /* the context already has an error */
    ck_assert_int_eq(ended[3], 1);
    ck_assert_int_eq(ended[0] + ended[1], 0);
    eg_assert_error(cx, "from_memory: .owner belongs to another context");
    SHOWS(eg_add(scope, owned), 2, 4, 6, 8);
    eg_fail(cx, "a failure");
    eg_pop(cx, m);
    ck_assert_int_eq(ended[0], 1);
    ck_assert_int_eq(ended[1], 0);
    eg_clear(cx);
    SHOWS(owned, 1, 2, 3, 4);
    eg_owner_close(o);
    ck_assert_int_eq(ended[1], 1);
    /* without elements nothing is read, and NULL is allowed */
    eg_tensor *empty =
        eg_from_memory(cx, EG_F32, NULL, 1, none, .release = count_up, .user = &ended[4]);
    ck_assert_double_eq(eg_item(eg_sum(NULL, eg_flip_axis(empty, 0))), 0);
    eg_close(cx);
    ck_assert_int_eq(ended[4], 1);
    eg_close(other);
    for (int k = 0; k < 5; k++) ck_assert_int_eq(ended[k], 1);
    eg_from_memory(NULL, EG_F32, a, 1, dims, .release = count_up, .user = &ended[0]);
    ck_assert_int_eq(ended[0], 2);
}

/* Whatever allocation fails, each array is released exactly once, and each exported tensor is
 * deleted only by its consumer. */
TEST(every_allocation_may_fail_and_all_is_released)
{
    float a[8] = { 0 };
    const int64_t dims[] = { 8 };
    for (int n = 0, done = 0; !done; n++) {
        int left = n, ended = 0, made = 0;
        eg_ctx *cx = eg_open(.realloc = failing, .user = &left);
        if (!cx) continue;
        eg_owner *o = eg_owner_open(cx);
        DLManagedTensorVersioned *out[2];
        eg_tensor *x =
            eg_from_memory(cx, EG_F32, a, 1, dims, .release = count_up, .user = &ended, .owner = o);
        made++;
        eg_tensor *kept = o ? eg_keep_in(o, x) : eg_exp(x);
        out[0] = eg_to_dlpack(x);
        out[1] = eg_to_dlpack(kept);
        done = !eg_error(cx);
        if (!done) ck_assert_ptr_nonnull(strstr(eg_error(cx), "out of memory"));
        for (int k = 0; k < 2; k++)
            if (out[k]) out[k]->deleter(out[k]);
        eg_close(cx);
        ck_assert_int_eq(ended, made);
    }
}

/* -- owners of one tensor ---------------------------------------------------------------------- */
GROUP("owner")

TEST(dropped_results_hold_no_memory)
{
    enum { SIZE = 10000, RESULTS = 2000 };
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, SIZE);
    eg_usage before = { 0 };
    for (int k = 0; k < RESULTS; k++) {
        eg_owner *o = eg_owner_open(cx);
        eg_mark m = eg_push(cx);
        eg_tensor *y = eg_keep_in(o, eg_shift(x, k));
        eg_pop(cx, m);
        ck_assert_double_eq(eg_get(y, SIZE - 1), 1 + k);
        eg_owner_close(o);
        if (k == 10) before = eg_stats(cx);
    }
    eg_usage after = eg_stats(cx);
    eg_assert_ok(cx);
    ck_assert_uint_eq(after.used, before.used);
    /* headers are reused later (docs/design.md); elements take no memory */
    ck_assert_uint_lt(after.bytes - before.bytes, 2 << 20);
    eg_close(cx);
}

#if !EG_DEBUG_ALLOC
/* 2000 results at the same time take their elements, their headers and little more, and return this
 * memory to the allocator when they end. */
TEST(an_owner_costs_less_than_200_bytes)
{
    enum { RESULTS = 2000, SIZE = 1000 };
    static eg_owner *o[RESULTS];
    eg_ctx *cx = eg_open();
    const size_t none = eg_stats(cx).bytes;
    for (int k = 0; k < RESULTS; k++) o[k] = eg_owner_open(cx);
    const size_t empty = eg_stats(cx).bytes;
    ck_assert_uint_lt((empty - none) / RESULTS, 112);
    eg_tensor *x = eg_ones(cx, SIZE);
    const size_t before = eg_stats(cx).bytes;
    for (int k = 0; k < RESULTS; k++) eg_keep_in(o[k], x);
    const size_t full = eg_stats(cx).bytes;
    ck_assert_uint_lt((full - before) / RESULTS, SIZE * sizeof(float) + 640);
    for (int k = 0; k < RESULTS; k++) eg_owner_close(o[k]);
    ck_assert_uint_lt(eg_stats(cx).bytes, full - RESULTS * SIZE * sizeof(float));
    eg_close(cx);
}
#endif

TEST(keep_in_refuses_null_and_other_contexts)
{
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_tensor *x = eg_ones(cx, 2);
    ck_assert(!eg_ok(eg_keep_in(NULL, x)));
    eg_assert_error(cx, "keep_in: the owner is NULL");
    ck_assert(!eg_ok(eg_keep_in(eg_owner_open(other), x)));
    eg_assert_error(cx, "keep_in: operand 1 belongs to another context");
    ck_assert_ptr_null(eg_keep_in(eg_owner_open(cx), NULL));
    eg_close(cx);
    eg_close(other);
}

/* -- DLPack ------------------------------------------------------------------------------------ */
GROUP("dlpack")

/* A producer's tensor, which counts the calls of its deleter. */
typedef struct lent {
    DLManagedTensorVersioned m;
    DLManagedTensor old;
    int64_t shape[2], strides[2];
    int deleted;
} lent;
static void lent_end(DLManagedTensorVersioned *m) { ((lent *)m->manager_ctx)->deleted++; }
static void lent_end_old(DLManagedTensor *m) { ((lent *)m->manager_ctx)->deleted++; }
static void lend(lent *l, void *data)
{
    *l = (lent){ .shape = { 2, 3 }, .strides = { 3, 1 } };
    l->m = (DLManagedTensorVersioned){ .version = { 1, 1 },
                                       .manager_ctx = l,
                                       .deleter = lent_end,
                                       .dl_tensor = { .data = data,
                                                      .device = { kDLCPU, 0 },
                                                      .ndim = 2,
                                                      .dtype = { kDLFloat, 32, 1 },
                                                      .shape = l->shape,
                                                      .strides = l->strides } };
    l->old = (DLManagedTensor){ l->m.dl_tensor, l, lent_end_old };
}

TEST(a_lent_tensor_is_used_in_place_and_given_back_once)
{
    float a[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    lent l[4];
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 4; k++) lend(&l[k], a);
    l[1].m.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    l[2].m.dl_tensor.strides = NULL;
    l[2].m.dl_tensor.byte_offset = 8;
    l[2].m.version.minor = 9; /* later ones of the same form */
    eg_owner *o = eg_owner_open(cx);
    eg_tensor *open = eg_from_dlpack(cx, &l[0].m, o), *fixed = eg_from_dlpack(cx, &l[1].m, NULL),
              *later = eg_from_dlpack(cx, &l[2].m, NULL),
              *old = eg_from_dlpack_unversioned(cx, &l[3].old, NULL);
    eg_assert_ok(cx);
    eg_mut_f32(open)[0] = 9;
    SHOWS(fixed, 9, 1, 2, 3, 4, 5);
    SHOWS(old, 9, 1, 2, 3, 4, 5);
    SHOWS(later, 2, 3, 4, 5, 6, 7);
    ck_assert_ptr_null(eg_mut_f32(fixed));
    eg_assert_error(cx, "read-only");
    ck_assert_ptr_null(eg_mut_f32(old));
    eg_assert_error(cx, "read-only");
    eg_owner_close(o);
    ck_assert_int_eq(l[0].deleted, 1);
    eg_close(cx);
    for (int k = 0; k < 4; k++) ck_assert_int_eq(l[k].deleted, 1);
}

static const struct malformed {
    const char *says;
    uint32_t major;
    int device, ndim;
    DLDataType type;
    bool no_shape, no_data;
    uint64_t byte_offset;
    int64_t stride;
} malformed[] = {
    { "from_dlpack: version 2.1 of DLPack; 1.x can be read", 2, 1, 2, { 2, 32, 1 }, 0, 0, 0, 1 },
    { "version 0.1", 0, 1, 2, { 2, 32, 1 }, 0, 0, 0, 1 },
    { "from_dlpack: the tensor is on device type 2 (CUDA), not on the CPU",
      1,
      2,
      2,
      { 2, 32, 1 },
      0,
      0,
      0,
      1 },
    { "device type 77 (unknown)", 1, 77, 2, { 2, 32, 1 }, 0, 0, 0, 1 },
    { "device type -1 (unknown)", 1, -1, 2, { 2, 32, 1 }, 0, 0, 0, 1 },
    { "from_dlpack: float32 of 4 lanes is not supported", 1, 1, 2, { 2, 32, 4 }, 0, 0, 0, 1 },
    { "float32 of 0 lanes", 1, 1, 2, { 2, 32, 0 }, 0, 0, 0, 1 },
    { "from_dlpack: uint16 of 1 lane is not supported", 1, 1, 2, { 1, 16, 1 }, 0, 0, 0, 1 },
    { "complex64", 1, 1, 2, { 5, 64, 1 }, 0, 0, 0, 1 },
    { "float8_e5m2 of 1 lane", 1, 1, 2, { 12, 8, 1 }, 0, 0, 0, 1 },
    { "type 200 of 8 bits", 1, 1, 2, { 200, 8, 1 }, 0, 0, 0, 1 },
    { "from_dlpack: rank 33 is not in 0..32", 1, 1, 33, { 2, 32, 1 }, 0, 0, 0, 1 },
    { "from_dlpack: rank -2 is not in 0..32", 1, 1, -2, { 2, 32, 1 }, 0, 0, 0, 1 },
    { "the sizes are NULL", 1, 1, 2, { 2, 32, 1 }, 1, 0, 0, 1 },
    { "the data are NULL", 1, 1, 2, { 2, 32, 1 }, 0, 1, 0, 1 },
    { "byte_offset 9223372036854775808 leaves the address space",
      1,
      1,
      2,
      { 2, 32, 1 },
      0,
      0,
      (uint64_t)1 << 63,
      1 },
    { "byte_offset 18446744073709551615 leaves the address space",
      1,
      1,
      2,
      { 2, 32, 1 },
      0,
      0,
      UINT64_MAX,
      1 },
    { "is no multiple of 4 bytes", 1, 1, 2, { 2, 32, 1 }, 0, 0, 2, 1 },
    { "leaves the address space", 1, 1, 2, { 2, 32, 1 }, 0, 0, 0, INT64_MAX / 2 },
};
LOOP_TEST(a_malformed_tensor_is_refused_and_given_back, sizeof malformed / sizeof *malformed)
{
    _Alignas(16) float a[6] = { 0 };
    const struct malformed *b = &malformed[_i];
    lent l;
    lend(&l, b->no_data ? NULL : a);
    l.m.version.major = b->major;
    l.m.dl_tensor.device.device_type = (DLDeviceType)b->device;
    l.m.dl_tensor.ndim = b->ndim;
    l.m.dl_tensor.dtype = b->type;
    l.m.dl_tensor.byte_offset = b->byte_offset;
    l.strides[1] = b->stride;
    if (b->no_shape) l.m.dl_tensor.shape = NULL;
    eg_ctx *cx = eg_open();
    ck_assert(!eg_ok(eg_from_dlpack(cx, &l.m, NULL)));
    ck_assert_int_eq(l.deleted, 1);
    ck_assert_msg(strstr(eg_error(cx), b->says) != NULL, "%s", eg_error(cx));
    eg_close(cx);
    ck_assert_int_eq(l.deleted, 1);
}

/* An exported tensor is imported with the same type, sizes, strides and address. */
TEST(an_exported_tensor_is_imported_unchanged)
{
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_tensor *x = eg_normal(cx, 0, 1, 4, 6, 2);
    eg_tensor *views[] = { x,
                           eg_transpose(x, 0, 2),
                           eg_flip_axis(x, 1),
                           eg_slice_axis(x, 1, 1, 6, 2),
                           eg_expand(eg_unsqueeze(x, 0), 3, 4, 6, 2),
                           eg_cast(x, EG_F64),
                           eg_cast(x, EG_I32),
                           eg_cast(x, EG_I64),
                           eg_cast(x, EG_BOOL),
                           eg_cast(x, EG_C128),
                           eg_real(eg_cast(x, EG_C128)),
                           eg_scalar(cx, 3),
                           eg_zeros(cx, 2, 0) };
    for (size_t k = 0; k < sizeof views / sizeof *views; k++) {
        int64_t s[2][EG_RANK_MAX];
        DLManagedTensorVersioned *m = eg_to_dlpack(views[k]);
        ck_assert_ptr_nonnull(m);
        ck_assert_uint_eq(m->flags, 0);
        eg_tensor *y = eg_from_dlpack(other, m, NULL);
        eg_assert_ok(other);
        ck_assert_int_eq(eg_type(y), eg_type(views[k]));
        ck_assert_int_eq(eg_rank(y), eg_rank(views[k]));
        const void *from = eg_raw(views[k], s[0]), *to = eg_raw(y, s[1]);
        if (eg_size(y)) ck_assert_ptr_eq(from, to);
        for (int r = 0; r < eg_rank(y); r++) {
            ck_assert_int_eq(eg_dim(y, r), eg_dim(views[k], r));
            if (eg_size(y)) ck_assert_int_eq(s[0][r], s[1][r]);
        }
    }
    ck_assert_ptr_null(eg_to_dlpack(NULL));
    float a[2] = { 1, 2 };
    eg_tensor *fixed = eg_from_memory(cx, EG_F32, a, 1, (int64_t[]){ 2 });
    DLManagedTensorVersioned *m = eg_to_dlpack(fixed);
    ck_assert_uint_eq(m->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    m->deleter(m);
    ck_assert_ptr_null(eg_to_dlpack_unversioned(fixed));
    eg_assert_error(cx, "read-only");
    DLManagedTensor *old = eg_to_dlpack_unversioned(x);
    ck_assert_ptr_eq(old->dl_tensor.data, eg_raw(x, NULL));
    old->deleter(old);
    eg_close(cx);
    eg_close(other);
}

/* The elements outlive scope, owner and context of the tensor as long as a consumer has them, and
 * their memory is not reused. */
static void *delete_elsewhere(void *m)
{
    ((DLManagedTensorVersioned *)m)->deleter(m);
    return NULL;
}
TEST(a_consumer_keeps_the_memory_past_scope_owner_and_context)
{
    enum { SIZE = 1000 };
    DLManagedTensorVersioned *m[6];
    int ended = 0;
    double a[SIZE];
    for (int k = 0; k < SIZE; k++) a[k] = 5;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_owner *o = eg_owner_open(cx);
    eg_mark mark = eg_push(cx);
    eg_tensor *x = eg_full(cx, 1, SIZE);
    m[0] = eg_to_dlpack(x);
    m[1] = eg_to_dlpack(eg_slice_axis(eg_full(cx, 2, 3 * SIZE), 0, 1, EG_END, 2));
    m[2] = eg_to_dlpack(eg_keep_in(o, eg_full(cx, 3, SIZE)));
    m[3] = eg_to_dlpack(x); /* two consumers of one tensor */
    m[5] = eg_to_dlpack(
        eg_from_memory(cx, EG_F64, a, 1, (int64_t[]){ SIZE }, .release = count_up, .user = &ended));
    eg_pop(cx, mark);
    eg_owner_close(o);
    m[4] = eg_to_dlpack(eg_full(cx, 4, SIZE)); /* of the context's own scope */
    for (int k = 0; k < 20; k++) {             /* other tensors, which would reuse freed memory */
        mark = eg_push(cx);
        eg_full(cx, -1, 4 * SIZE);
        eg_owner *p = eg_owner_open(cx);
        eg_keep_in(p, eg_full(cx, -1, SIZE));
        eg_pop(cx, mark);
    }
    eg_assert_ok(cx);
    eg_close(cx);
    ck_assert_int_eq(ended, 0);
    const double value[] = { 1, 2, 3, 1, 4, 5 };
    for (int k = 0; k < 6; k++) {
        const DLTensor *t = &m[k]->dl_tensor;
        for (int64_t n = 0; n < t->shape[0]; n++)
            ck_assert_double_eq(((const double *)t->data)[n * t->strides[0]], value[k]);
    }
    pthread_t thread[6];
    for (int k = 0; k < 6; k++) pthread_create(&thread[k], NULL, delete_elsewhere, m[k]);
    for (int k = 0; k < 6; k++) pthread_join(thread[k], NULL);
    ck_assert_int_eq(ended, 1);
}

/* After a consumer that ends before the scope, the memory is used as usual. */
TEST(memory_that_is_shared_no_more_is_used_again)
{
    eg_ctx *cx = eg_open();
    size_t warm = 0;
    for (int k = 0; k < 400; k++) {
        eg_mark m = eg_push(cx);
        DLManagedTensorVersioned *out = eg_to_dlpack(eg_ones(cx, 5000));
        out->deleter(out);
        eg_pop(cx, m);
        if (k == 200) warm = eg_stats(cx).bytes;
    }
    ck_assert_uint_eq(eg_stats(cx).bytes, warm);
    ck_assert_uint_eq(eg_stats(cx).used, 0);
    eg_close(cx);
}
