/* encoding.c: the element types of files, and the dtypes to which they are converted. */
#include "file.h"
#include <inttypes.h>
#include <string.h>

/* IEEE 754 half precision: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static float widened_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023, bits;
    float value;
    if (exponent == 0) { /* 0 and subnormal: fraction × 2^−24 */
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bfloat16: the upper half of a float. */
static float widened_bfloat(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t load16(const uint8_t *bytes)
{
    uint16_t x;
    memcpy(&x, bytes, sizeof x);
    return x;
}

/* -- converting n elements of a file, in this machine's byte order, to the next wider dtype ---- */
static void widen_bool(const uint8_t *in, void *out, size_t n)
{
    bool *y = out;
    for (size_t k = 0; k < n; k++) y[k] = in[k] != 0;
}

static void widen_i8(const uint8_t *in, void *out, size_t n)
{
    int32_t *y = out;
    for (size_t k = 0; k < n; k++) y[k] = (int8_t)in[k];
}

static void widen_u8(const uint8_t *in, void *out, size_t n)
{
    int32_t *y = out;
    for (size_t k = 0; k < n; k++) y[k] = in[k];
}

static void widen_i16(const uint8_t *in, void *out, size_t n)
{
    int32_t *y = out;
    for (size_t k = 0; k < n; k++) y[k] = (int16_t)load16(in + 2 * k);
}

static void widen_u16(const uint8_t *in, void *out, size_t n)
{
    int32_t *y = out;
    for (size_t k = 0; k < n; k++) y[k] = load16(in + 2 * k);
}

static void widen_u32(const uint8_t *in, void *out, size_t n)
{
    int64_t *y = out;
    uint32_t x;
    for (size_t k = 0; k < n; k++) memcpy(&x, in + 4 * k, sizeof x), y[k] = x;
}

/* numbers from 2^63 on become negative, which encoding_fits refuses */
static void widen_u64(const uint8_t *in, void *out, size_t n) { memcpy(out, in, 8 * n); }

static void widen_half(const uint8_t *in, void *out, size_t n)
{
    float *y = out;
    for (size_t k = 0; k < n; k++) y[k] = widened_half(load16(in + 2 * k));
}

static void widen_bfloat(const uint8_t *in, void *out, size_t n)
{
    float *y = out;
    for (size_t k = 0; k < n; k++) y[k] = widened_bfloat(load16(in + 2 * k));
}

const eg__encoding eg__encodings[] = {
    { "f4", "F32", EG_F32, 4, NULL },
    { "f8", "F64", EG_F64, 8, NULL },
    { "i4", "I32", EG_I32, 4, NULL },
    { "i8", "I64", EG_I64, 8, NULL },
    { "b1", "BOOL", EG_BOOL, 1, widen_bool },
    { "i1", "I8", EG_I32, 1, widen_i8 },
    { "u1", "U8", EG_I32, 1, widen_u8 },
    { "i2", "I16", EG_I32, 2, widen_i16 },
    { "u2", "U16", EG_I32, 2, widen_u16 },
    { "u4", "U32", EG_I64, 4, widen_u32 },
    { "u8", "U64", EG_I64, 8, widen_u64 },
    { "f2", "F16", EG_F32, 2, widen_half },
    { "", "BF16", EG_F32, 2, widen_bfloat },
    /* not converted, if as_stored is requested */
    { "i1", "I8", EG_I8, 1, NULL },
    { "u1", "U8", EG_U8, 1, NULL },
    { "f2", "F16", EG_F16, 2, NULL },
    { "", "BF16", EG_BF16, 2, NULL },
    { NULL, NULL, EG_DEFAULT, 0, NULL },
};

const eg__encoding *eg__encoding_of(eg_dtype dtype)
{
    const eg__encoding *e = eg__encodings;
    while (e->dtype && e->dtype != dtype) e++;
    return e;
}

const eg__encoding *eg__encoding_wanted(const eg__input *in, const eg__encoding *e)
{
    const eg__encoding *stored = e;
    while (in->as_stored && stored->dtype &&
           (stored->widen || strcmp(stored->safetensors, e->safetensors)))
        stored++;
    return stored->dtype ? stored : e;
}

bool eg__encoding_little(void)
{
    const uint16_t one = 1;
    return *(const uint8_t *)&one == 1;
}

static void reverse_bytes(uint8_t *bytes, size_t width, size_t n)
{
    for (; n--; bytes += width)
        for (size_t a = 0, b = width - 1; a < b; a++, b--) {
            uint8_t t = bytes[a];
            bytes[a] = bytes[b], bytes[b] = t;
        }
}

/* clang-format off */
#define EG_TYPES(X) X(EG_F32, f32, 4) X(EG_F64, f64, 8) X(EG_I32, i32, 4) X(EG_I64, i64, 8) \
    X(EG_BOOL, bool, sizeof(bool)) X(EG_F16, f16, 2) X(EG_BF16, bf16, 2) X(EG_I8, i8, 1)        \
    X(EG_U8, u8, 1)
/* clang-format on */

static uint8_t *encoding_writable(eg_tensor *x, size_t *size)
{
#define CASE(dtype, name, bytes)            \
    if (eg_type(x) == dtype) {              \
        *size = bytes;                      \
        return (uint8_t *)eg_mut_##name(x); \
    }
    EG_TYPES(CASE)
#undef CASE
    return NULL;
}

static const uint8_t *readable(eg_tensor *x, size_t *size)
{
#define CASE(dtype, name, bytes)              \
    if (eg_type(x) == dtype) {                \
        *size = bytes;                        \
        return (const uint8_t *)eg_##name(x); \
    }
    EG_TYPES(CASE)
#undef CASE
    return NULL;
}

enum { CHUNK = 8192 };

/* True unless an unsigned number of 8 bytes, one of n from element `from` on, has been made
 * negative; else records an error. */
static bool encoding_fits(const eg__input *in, const eg__encoding *e, const uint8_t *y, size_t from,
                          size_t n)
{
    if (e->dtype != EG_I64 || e->width != 8) return true;
    for (size_t k = 0; k < n; k++) {
        uint64_t x;
        memcpy(&x, y + 8 * k, sizeof x);
        if (x > INT64_MAX)
            return eg__file_refuse(in, "element %zu is %" PRIu64 "; an i64 ends at 2^63 - 1",
                                   from + k, x);
    }
    return true;
}

/* Elements of the same type are read directly into x; others are converted by way of a small
 * buffer. */
bool eg__encoding_take(eg__input *in, const eg__encoding *e, bool swap, eg_tensor *x)
{
    if (!eg_ok(x)) return false;
    size_t n = (size_t)eg_size(x), size;
    if (!n) return true;
    uint8_t *y = encoding_writable(x, &size), part[CHUNK];
    if (!y) return false;
    if (!e->widen) {
        if (!eg__file_take(in, y, n * e->width)) return false;
        if (swap) reverse_bytes(y, e->width, n);
        return true;
    }
    for (size_t k = 0, m; k < n; k += m) {
        m = n - k < CHUNK / e->width ? n - k : CHUNK / e->width;
        if (!eg__file_take(in, part, m * e->width)) return false;
        if (swap) reverse_bytes(part, e->width, m);
        e->widen(part, y + k * size, m);
        if (!encoding_fits(in, e, y + k * size, k, m)) return false;
    }
    return true;
}

/* The tensor is a view of the mapped file if bytes, byte order and alignment allow it; else it is
 * read. */
eg_tensor *eg__encoding_tensor(eg__input *in, const eg__encoding *e, bool swap, eg_owner *owner,
                               int rank, const int64_t *dims)
{
    size_t bytes;
    /* callers have checked the size before */
    if (!eg__encoding_size(e, rank, dims, &bytes)) return NULL;
    swap &= e->width > 1;
    if (in->map && !e->widen && !swap && bytes && bytes <= in->left &&
        (uintptr_t)in->bytes % e->width == 0) {
        eg__map_share(in->map);
        in->in_place = true;
        eg_tensor *x = eg_from_memory(in->cx, e->dtype, in->bytes, rank, dims, .writable = true,
                                      .release = eg__map_end, .user = in->map, .owner = owner);
        in->bytes += bytes, in->left -= bytes;
        return eg_ok(x) ? x : NULL;
    }
    eg_tensor *x = owner ? eg_owner_tensor(owner, e->dtype, rank, dims)
                         : eg_full_n(in->cx, e->dtype, 0, rank, dims);
    return eg__encoding_take(in, e, swap, x) ? x : NULL;
}

/* On a big-endian machine bytes are reversed in a small buffer. */
void eg__encoding_put(eg__output *out, eg_tensor *x)
{
    size_t n = (size_t)eg_size(x), size = 1;
    if (!n) return;
    eg_mark mark = eg_push(eg_context(x)); /* for a copy if x is not row-major */
    const uint8_t *y = readable(x, &size);
    uint8_t part[CHUNK];
    if (y && eg__encoding_little())
        eg__file_put(out, y, n * size);
    else if (y)
        for (size_t k = 0, m; k < n; k += m) {
            m = n - k < CHUNK / size ? n - k : CHUNK / size;
            memcpy(part, y + k * size, m * size);
            reverse_bytes(part, size, m);
            eg__file_put(out, part, m * size);
        }
    eg_pop(eg_context(x), mark);
}

/* A size of 0 is not part of the product, so that the strides of an empty array do not overflow
 * either. */
bool eg__encoding_size(const eg__encoding *e, int rank, const int64_t *dims, size_t *bytes)
{
    /* no element is wider than 8 bytes, after conversion too */
    const int64_t limit = INT64_MAX / 16;
    int64_t product = 1;
    bool empty = false;
    for (int k = 0; k < rank; k++) {
        empty |= dims[k] == 0;
        if (dims[k] && product > limit / dims[k]) return false;
        product *= dims[k] ? dims[k] : 1;
    }
    if ((uint64_t)product > SIZE_MAX / 8) return false;
    *bytes = empty ? 0 : (size_t)product * e->width;
    return true;
}

char *eg__encoding_dims(int rank, const int64_t *dims, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "(");
    for (int k = 0; k < rank && at < size; k++)
        at += (size_t)snprintf(text + at, size - at, k ? ", %" PRId64 : "%" PRId64, dims[k]);
    if (at < size) snprintf(text + at, size - at, rank == 1 ? ",)" : ")");
    return text;
}
