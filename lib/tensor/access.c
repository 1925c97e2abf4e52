/* access.c: properties of a tensor; reading and writing its elements. */
#include "tensor/tensor.h"
#include <eingrad/einsum.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* -- properties: 0 or no axes for NULL, poison and dead tensors -------------------------------- */
bool eg_ok(const eg_tensor *x) { return x && x->live == EG_LIVE && !x->poison; }
eg_ctx *eg_context(const eg_tensor *x) { return x ? eg__here(x->cx) : NULL; }
/* In a gradient check f32 tensors become f64 when f reads them: to read the type is to read them,
 * since f, or a module, may compare it with that of an operand which is f64 already. */
eg_dtype eg_type(const eg_tensor *x)
{
    if (!eg_ok(x)) return EG_DEFAULT;
    eg_ctx *cx = x->cx;
    if (x->dtype == EG_F32 && cx && cx->hooks.operand && cx == eg__here(cx))
        cx->hooks.operand(cx, (eg_tensor *)(uintptr_t)x);
    return (eg_dtype)x->dtype;
}
int eg_rank(const eg_tensor *x) { return eg_ok(x) ? x->rank : 0; }
int64_t eg_size(const eg_tensor *x) { return eg_ok(x) ? eg__count(x->rank, x->dim) : 0; }
const int64_t *eg_dims(const eg_tensor *x)
{
    static const int64_t none[EG_RANK_MAX];
    return eg_ok(x) ? x->dim : none;
}
int64_t eg_dim(const eg_tensor *x, int axis)
{
    if (!eg_ok(x)) return 0;
    int k = eg__axis("dim", (eg_tensor *)(uintptr_t)x, axis);
    return k < 0 ? 0 : x->dim[k];
}
eg_shape eg_shape_of(const eg_tensor *x)
{
    if (!eg_ok(x)) return (eg_shape){ .dtype = EG_DEFAULT };
    return (eg_shape){ (eg_dtype)x->dtype, x->rank, x->dim, x->stride };
}

/* -- reading ----------------------------------------------------------------------------------- */
bool eg_is_row_major(const eg_tensor *x)
{
    if (!eg_ok(x)) return false;
    int64_t w = 1;
    for (int k = x->rank; k-- > 0; w *= x->dim[k])
        if (x->dim[k] != 1 && x->stride[k] != w) return eg_size(x) == 0;
    return true;
}

/* Returns a row-major copy without history in the open scope, of which each run of a step that is
 * being captured makes another; NULL after an error. */
static eg_tensor *read_row_major_copy(eg_tensor *x)
{
    if (x->copies || eg__capturing(eg__here(x->cx))) {
        const bool was = eg_nograd(x->cx, true);
        x = eg_copy(x);
        eg_nograd(x->cx, was);
        return eg_ok(x) ? x : NULL;
    }
    eg_tensor *y = eg__new(x->cx, x->dtype, x->rank, x->dim);
    if (y) eg__copy(y, x);
    return y;
}
/* Returns a row-major copy of x for reading; NULL after an error. The copy is returned again while
 * x has not changed and the scope of the copy is open, so that a loop may call eg_f32(x)[k] for
 * each element. Not if something else can write to the memory, or if a hook is to see the read. */
static eg_tensor *read_copied(eg_tensor *x)
{
    eg_ctx *cx = eg__here(x->cx);
    const eg_storage *st = x->st;
    const bool alone = cx == x->cx && !x->copies && !x->captured && !st->hold && !st->exposed &&
                       !cx->hooks.operand;
    const uint64_t written = st->version + cx->acts;
    for (int k = 0; k < EG_READS && alone; k++) {
        if (cx->read[k].seq != x->seq || cx->read[k].written != written) continue;
        eg_tensor *copy = eg__scoped_tensor(cx, &cx->read[k].copy);
        if (copy) return copy;
    }
    eg_tensor *y = read_row_major_copy(x);
    if (!y || !alone) return y;
    const uint64_t at = cx->reads++ % EG_READS;
    cx->read[at].seq = x->seq;
    cx->read[at].written = written;
    cx->read[at].copy = eg__scoped_of(y);
    return y;
}
bool eg__check_read(const char *who, eg_tensor *x)
{
    static const char why[] = "a run does not repeat what the program computes from the elements; "
                              "read outputs after a run, or use eg_host_call";
    return eg__check_single(who, x) && !eg__capture_refuses(eg__here(x->cx), who, why);
}
/* True if the program may read x's elements directly: they are row-major, and no capture, hook or
 * error has to be considered. This is the usual case, which should be fast. */
static bool read_at_once(const eg_tensor *x, eg_dtype dtype)
{
    if (!x || x->live != EG_LIVE || !eg__storage_lives(x) || x->dtype != dtype || x->poison ||
        x->copies || x->captured)
        return false;
    const eg_ctx *cx = x->cx;
    if (!cx || cx->family || cx->failed || cx->capture || cx->hooks.operand) return false;
    int64_t w = 1;
    for (int k = x->rank; k-- > 0; w *= x->dim[k])
        if (x->dim[k] != 1 && x->stride[k] != w) return false;
    return true;
}
/* Records the error that x has another dtype than the function `who` reads. Returns NULL. */
static void *access_refuse_dtype(const char *who, const eg_tensor *x, eg_dtype dtype)
{
    eg_fail_as(x->cx, EG_ERROR_DTYPE, "%s: the tensor is %s, not %s%s", who, eg_type_name(x->dtype),
               eg_type_name(dtype),
               x->cx->probe && dtype == EG_F32 ? "; a gradient check computes in f64" : "");
    return NULL;
}
static const void *values(const char *who, eg_tensor *x, eg_dtype dtype)
{
    if (read_at_once(x, dtype)) return x->data;
    if (!eg__check_read(who, x)) return NULL;
    if (x->dtype != dtype) return access_refuse_dtype(who, x, dtype);
    eg_tensor *y = eg_is_row_major(x) ? x : read_copied(x);
    if (!y) eg_fail_in(x->cx, "%s", who);
    return y ? y->data : NULL;
}
const float *eg_f32(eg_tensor *x) { return values("f32", x, EG_F32); }
const double *eg_f64(eg_tensor *x) { return values("f64", x, EG_F64); }
const int32_t *eg_i32(eg_tensor *x) { return values("i32", x, EG_I32); }
const int64_t *eg_i64(eg_tensor *x) { return values("i64", x, EG_I64); }
const bool *eg_bool(eg_tensor *x) { return values("bool", x, EG_BOOL); }
const double *eg_c128(eg_tensor *x) { return values("c128", x, EG_C128); }
const uint16_t *eg_f16(eg_tensor *x) { return values("f16", x, EG_F16); }
const uint16_t *eg_bf16(eg_tensor *x) { return values("bf16", x, EG_BF16); }
const int8_t *eg_i8(eg_tensor *x) { return values("i8", x, EG_I8); }
const uint8_t *eg_u8(eg_tensor *x) { return values("u8", x, EG_U8); }

const void *eg_raw(eg_tensor *x, int64_t *strides)
{
    if (!eg__check_read("raw", x)) return NULL;
    if (strides && x->rank) memcpy(strides, x->stride, x->rank * sizeof *strides);
    return x->data;
}

/* Converts the element at p to f64. NaN after an error. */
static double read_element(const char *who, const eg_tensor *x, char *p)
{
    if (x->dtype == EG_C128) {
        eg_fail_as(x->cx, EG_ERROR_DTYPE, "%s: the tensor is c128; read its eg_real or eg_imag",
                   who);
        return NAN;
    }
    double v = 0;
    eg_tensor from = *x, to;
    from.rank = 0;
    from.data = p;
    to = from;
    to.dtype = EG_F64;
    to.data = (char *)&v;
    eg__copy(&to, &from);
    return v;
}
double eg_item(eg_tensor *x)
{
    char text[256];
    if (!eg__check_read("item", x)) return NAN;
    if (eg_size(x) == 1) return read_element("item", x, x->data);
    eg_fail_as(x->cx, EG_ERROR_SHAPE, "item: %s has %lld elements, not one",
               eg__dims_text(x, text, sizeof text), (long long)eg_size(x));
    return NAN;
}
/* Reads one element; negative indices count from the end. NaN after an error. */
double eg_get_n(eg_tensor *x, int rank, const int64_t *index)
{
    char text[256];
    if (!eg__check_read("get", x)) return NAN;
    if (rank != x->rank) {
        eg_fail_as(x->cx, EG_ERROR_SHAPE, "get: %d ind%s for %s, which has %d ax%s", rank,
                   rank == 1 ? "ex" : "ices", eg__dims_text(x, text, sizeof text), x->rank,
                   x->rank == 1 ? "is" : "es");
        return NAN;
    }
    if (rank && !index) {
        eg_fail_as(x->cx, EG_ERROR_MISUSE, "get: the indices are NULL");
        return NAN;
    }
    char *p = x->data;
    for (int k = 0; k < rank; k++) {
        int64_t i = index[k] < 0 ? index[k] + x->dim[k] : index[k];
        if (i < 0 || i >= x->dim[k]) {
            eg_fail_as(x->cx, EG_ERROR_INDEX, "get: index %lld is out of range for axis %d of %s",
                       (long long)index[k], k, eg__dims_text(x, text, sizeof text));
            return NAN;
        }
        p += i * x->stride[k] * eg__width[x->dtype];
    }
    return read_element("get", x, p);
}

/* -- writing ----------------------------------------------------------------------------------- */
/* True unless x is lent to a block, the open one or another. */
static bool access_is_not_lent(const eg_tensor *x)
{
    return x->cx == eg__here(x->cx) && !x->st->lent;
}
bool eg_is_writable(const eg_tensor *x)
{
    return eg_ok(x) && access_is_not_lent(x) && (!x->st->hold || x->st->hold->writable);
}
/* True if x can be written; else records an error: x lies in read-only memory or is lent to a
 * block. */
static bool access_writable(const char *who, const eg_tensor *x)
{
    if (eg_is_writable(x)) return true;
    if (!access_is_not_lent(x))
        eg_fail_as(x->cx, EG_ERROR_MISUSE,
                   "%s: the tensor belongs to the context that waits for its blocks; a block must "
                   "not write to it",
                   who);
    else
        eg_fail_as(x->cx, EG_ERROR_MISUSE,
                   "%s: the target is read-only foreign memory; write to an eg_copy of it, or give "
                   "eg_from_memory .writable = true",
                   who);
    return false;
}
/* Returns the row-major elements of x for writing; NULL after an error. */
static void *access_for_writing(const char *who, eg_tensor *x, eg_dtype dtype)
{
    char dims[256], strides[256];
    if (read_at_once(x, dtype) && !x->st->lent && (!x->st->hold || x->st->hold->writable)) {
        x->st->version++;
        x->st->exposed = true;
        return x->data;
    }
    if (!eg__check_read(who, x)) return NULL;
    if (x->dtype != dtype) return access_refuse_dtype(who, x, dtype);
    if (!eg_is_row_major(x)) {
        eg_fail_as(x->cx, EG_ERROR_MISUSE,
                   "%s: %s with strides %s is not row-major; eg_assign writes to any view", who,
                   eg__dims_text(x, dims, sizeof dims),
                   eg__sizes_text(x->rank, x->stride, strides, sizeof strides));
        return NULL;
    }
    if (!access_writable(who, x)) return NULL;
    x->st->version++;
    x->st->exposed = true;
    return x->data;
}
float *eg_mut_f32(eg_tensor *x) { return access_for_writing("mut_f32", x, EG_F32); }
double *eg_mut_f64(eg_tensor *x) { return access_for_writing("mut_f64", x, EG_F64); }
int32_t *eg_mut_i32(eg_tensor *x) { return access_for_writing("mut_i32", x, EG_I32); }
int64_t *eg_mut_i64(eg_tensor *x) { return access_for_writing("mut_i64", x, EG_I64); }
bool *eg_mut_bool(eg_tensor *x) { return access_for_writing("mut_bool", x, EG_BOOL); }
double *eg_mut_c128(eg_tensor *x) { return access_for_writing("mut_c128", x, EG_C128); }
uint16_t *eg_mut_f16(eg_tensor *x) { return access_for_writing("mut_f16", x, EG_F16); }
uint16_t *eg_mut_bf16(eg_tensor *x) { return access_for_writing("mut_bf16", x, EG_BF16); }
int8_t *eg_mut_i8(eg_tensor *x) { return access_for_writing("mut_i8", x, EG_I8); }
uint8_t *eg_mut_u8(eg_tensor *x) { return access_for_writing("mut_u8", x, EG_U8); }

/* Elements do not overlap if each stride is larger than the distance that the axes with smaller
 * strides reach together. */
bool eg__target(const char *who, eg_tensor *x)
{
    char dims[256];
    int order[EG_RANK_MAX];
    int64_t far = 0;
    if (!eg__check_usable(who, x) || !access_writable(who, x)) return false;
    if (x->copies && eg__abs64(x->each) < eg_size(x) * eg__width[x->dtype]) {
        eg_fail_as(x->cx, EG_ERROR_MISUSE, "%s: the copies of the target %s share their elements",
                   who, eg__dims_text(x, dims, sizeof dims));
        return false;
    }
    for (int k = 0; k < x->rank; k++)
        if (x->dim[k] > 1 && x->stride[k] == 0) {
            eg_fail_as(x->cx, EG_ERROR_MISUSE,
                       "%s: axis %d of the target %s is expanded: its %lld elements are one", who,
                       k, eg__dims_text(x, dims, sizeof dims), (long long)x->dim[k]);
            return false;
        }
    const int n = eg_size(x) ? eg__axes_by_step(x, -1, order) : 0;
    for (int i = 0; i < n; i++) {
        const int64_t step = eg__abs64(x->stride[order[i]]);
        if (step <= far) {
            eg_fail_as(x->cx, EG_ERROR_MISUSE,
                       "%s: axis %d of the target %s steps by %lld elements where other axes cover "
                       "%lld, so that elements overlap",
                       who, order[i], eg__dims_text(x, dims, sizeof dims), (long long)step,
                       (long long)far + 1);
            return false;
        }
        far += (x->dim[order[i]] - 1) * step;
    }
    return true;
}

/* Sets *low and *high to the addresses of the first and the last element of x. */
static void access_address_range(const eg_tensor *x, const char **low, const char **high)
{
    *low = *high = x->data;
    for (int k = 0; k < x->rank; k++) {
        int64_t far = (x->dim[k] - 1) * x->stride[k] * eg__width[x->dtype];
        if (far < 0)
            *low += far;
        else
            *high += far;
    }
    if (x->copies) *(x->each < 0 ? low : high) += (x->copies->count - 1) * x->each;
    *high += eg__width[x->dtype];
}
bool eg__overlap(const eg_tensor *a, const eg_tensor *b)
{
    const char *al, *ah, *bl, *bh;
    /* two foreign storages may be the same memory */
    const bool apart = a->st != b->st && !a->st->hold && !b->st->hold;
    if (apart || eg_size(a) == 0 || eg_size(b) == 0) return false;
    access_address_range(a, &al, &ah);
    access_address_range(b, &bl, &bh);
    return al < bh && bl < ah;
}

static bool act_copy(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)cx, (void)count, (void)arg;
    eg_tensor *value = x[0];
    if (eg__overlap(to, value) && !(value = read_row_major_copy(value))) return false;
    for (int64_t k = 0; k < eg__copy_count(to); k++) {
        eg_tensor one = *to, from = *value;
        one.data = eg__copy_data(to, k);
        from.data = eg__copy_data(value, k);
        eg__copy(&one, &from);
    }
    return true;
}
bool eg__copy_act(eg_tensor *to, eg_tensor *x)
{
    return eg__act(to->cx, act_copy, to, 1, &x, NULL, 0, 0);
}
static bool act_fill(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)cx, (void)count, (void)x;
    for (int64_t k = 0; k < eg__copy_count(to); k++) {
        eg_tensor one = *to;
        one.data = eg__copy_data(to, k);
        eg__fill(&one, *(const double *)arg);
    }
    return true;
}
/* True if value can be copied to target, and converted to its dtype if `converts`; else records an
 * error. */
static bool assign_fits(const char *who, eg_tensor *target, eg_tensor *value, bool converts)
{
    char a[256], b[256];
    if (!eg__target(who, target)) return false;
    eg_ctx *cx = target->cx;
    if (!value) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the value is NULL", who);
        return false;
    }
    if (eg__here(value->cx) != cx) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: target and value belong to different contexts", who);
        return false;
    }
    snprintf(a, sizeof a, "%s: value", who);
    if (!eg__check_usable(a, value)) return false;
    if (converts ? value->dtype == EG_C128 && target->dtype != EG_C128
                 : target->dtype != value->dtype)
        eg_fail_as(cx, EG_ERROR_DTYPE, "%s: the target is %s, the value %s", who,
                   eg_type_name(target->dtype), eg_type_name(value->dtype));
    else if (!eg__same_shape(target, value))
        eg_fail_as(cx, EG_ERROR_SHAPE, "%s: the target is %s, the value %s", who,
                   eg__dims_text(target, a, sizeof a), eg__dims_text(value, b, sizeof b));
    else if (value->copies && value->copies != target->copies)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the value has %lld cop%s, the target %s", who,
                   (long long)value->copies->count, value->copies->count == 1 ? "y" : "ies",
                   target->copies ? "others" : "none");
    else
        return true;
    return false;
}
/* Copies a value that fits to target. from: the value, or a copy of it that shares no memory with
 * the target. Fails only while a step is captured. */
static bool assign_one(eg_tensor *target, eg_tensor *value, eg_tensor *from)
{
    if (!eg__copy_act(target, from)) return false;
    target->st->version++;
    if (target->cx->recording && value->op) target->st->assigned = eg__scoped_of(value);
    return true;
}
/* If the two share memory, value is copied to other memory first. */
int eg_assign(eg_tensor *target, eg_tensor *value)
{
    return assign_fits("assign", target, value, false) && assign_one(target, value, value) ? 0 : -1;
}

static int assign_lower(const void *a, const void *b)
{
    const eg__byte_range *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}
static eg__byte_range assign_range_of(const eg_tensor *x)
{
    const char *low, *high;
    access_address_range(x, &low, &high);
    return (eg__byte_range){ (int64_t)low, (int64_t)(eg_size(x) ? high : low) };
}
/* Sets from[k] to values[k], or to a copy of it if it shares memory with a target. False after an
 * error. */
static bool assign_apart(eg_ctx *cx, int count, eg_tensor *const *targets, eg_tensor *const *values,
                         eg_tensor **from)
{
    /* in the order of their beginnings; `to` is the highest end so far */
    eg__byte_range *all = eg__alloc(cx, (size_t)count * sizeof *all);
    if (!all) return false;
    for (int k = 0; k < count; k++) all[k] = assign_range_of(targets[k]);
    qsort(all, (size_t)count, sizeof *all, assign_lower);
    for (int k = 1; k < count; k++)
        if (all[k].to < all[k - 1].to) all[k].to = all[k - 1].to;
    for (int k = 0; k < count; k++) {
        const eg__byte_range value = assign_range_of(values[k]);
        int low = 0, high = count; /* the number of targets that begin before the value's end */
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (all[middle].from < value.to)
                low = middle + 1;
            else
                high = middle;
        }
        const bool shared = low && all[low - 1].to > value.from && value.to > value.from;
        from[k] = shared ? read_row_major_copy(values[k]) : values[k];
        if (!from[k]) return false;
    }
    return true;
}
int eg_assign_all(int count, eg_tensor *const *targets, eg_tensor *const *values)
{
    if (count == 0) return 0;
    eg_ctx *cx = eg__context_of("assign_all", count, targets);
    if (!cx) return -1;
    if (!values) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "assign_all: the list of values is NULL");
        return -1;
    }
    for (int k = 0; k < count; k++)
        if (!assign_fits("assign_all", targets[k], values[k], true))
            return eg_fail_in(cx, "tensor %d", k), -1;
    const eg_mark m = eg_push(cx);
    eg_tensor **from = eg__alloc(cx, (size_t)count * sizeof *from);
    /* a scope that was not opened is an error too */
    bool good = from && !cx->failed && assign_apart(cx, count, targets, values, from);
    for (int k = 0; good && k < count; k++) good = assign_one(targets[k], values[k], from[k]);
    eg_pop(cx, m);
    return good ? 0 : -1;
}
int eg_fill(eg_tensor *target, double value)
{
    if (!eg__target("fill", target) ||
        !eg__check_holds(target->cx, "fill", (eg_dtype)target->dtype, value))
        return -1;
    if (!eg__act(target->cx, act_fill, target, 0, NULL, &value, sizeof value, 0)) return -1;
    target->st->version++;
    return 0;
}
