/* copy.c: copying between any strides and dtypes, and filling. */
#include "tensor/tensor.h"
#include <math.h>
#include <string.h>

/* -- conversions: as in C (a complex number loses its imaginary part); where C leaves the result
 * undefined, NaN becomes 0 and a value that is too large becomes the nearest one of the type -- */
/* Without branches, so that loops over them become vector instructions: `inside` is a value that
 * the type has, and decides nothing where v is none. */
#define CLAMP(T, v, least, most, beyond)              \
    const bool in = (v) >= (least) && (v) < (beyond); \
    const T inside = (T)(in ? (v) : 0);               \
    return (v) >= (beyond) ? (most) : (v) < (least) ? (T)(least) : inside
static inline int32_t clamp32(double v) { CLAMP(int32_t, v, -0x1p31, INT32_MAX, 0x1p31); }
static inline int64_t clamp64(double v) { CLAMP(int64_t, v, -0x1p63, INT64_MAX, 0x1p63); }
#undef CLAMP
/* By way of 32 bits, since no vector instruction converts doubles to bytes. */
static inline int8_t clamp8(double v)
{
    const double above = v > INT8_MIN ? v : v == v ? INT8_MIN : 0;
    return (int8_t)(int32_t)(above < INT8_MAX ? above : INT8_MAX);
}
static inline uint8_t clamp_byte(double v)
{
    const double above = v > 0 ? v : 0;
    return (uint8_t)(int32_t)(above < UINT8_MAX ? above : UINT8_MAX);
}
static inline int32_t wrap32(int64_t v) { return (int32_t)v; }
static inline int64_t same64(int64_t v) { return v; }
static inline int8_t wrap8(int64_t v) { return (int8_t)v; }
static inline uint8_t wrap_byte(int64_t v) { return (uint8_t)v; }

/* Returns the bits of the f16 or bf16 number nearest to v; of two equally near ones, that with an
 * even significand. A NaN remains a NaN with its sign. */
static inline eg_f16bits half_of_float(float v)
{
    uint32_t bits, sum;
    memcpy(&bits, &v, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    float small;
    memcpy(&small, &size, sizeof small);
    small += .5f; /* rounds to a multiple of 2^-24, the smallest number of f16 */
    memcpy(&sum, &small, sizeof sum);
    const uint32_t subnormal = sum - 0x3f000000,
                   normal = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10),
                   finite = size < 0x38800000 ? subnormal : normal,
                   limit = size > 0x7f800000 ? 0x7e00 : 0x7c00; /* NaN, ∞ from 65520 on */
    return (eg_f16bits){ (uint16_t)(sign | (size >= 0x477ff000 ? limit : finite)) };
}
static inline eg_bf16bits bfloat_of_float(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    const uint32_t near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16,
                   nan = (bits >> 16 & 0x8000) | 0x7fc0;
    return (eg_bf16bits){ (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : near) };
}
/* Returns a float that rounds to fewer bits as v does: v without the bits beyond those of a float,
 * of which the last one is set if any of the others is. */
static inline float odd_float(double v)
{
    float near = (float)v;
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    const double back = (double)near, beyond = v < 0 ? v - back : back - v;
    bits = beyond > 0 ? bits - 1 : bits; /* towards 0 */
    bits |= back != v && v == v;
    memcpy(&near, &bits, sizeof near);
    return near;
}
static inline eg_f16bits to_half(double v) { return half_of_float(odd_float(v)); }
static inline eg_bf16bits to_bfloat(double v) { return bfloat_of_float(odd_float(v)); }
double eg__nearest_f16(double v) { return (double)eg__from_half(to_half(v)); }
double eg__nearest_bf16(double v) { return (double)eg__from_bfloat(to_bfloat(v)); }
/* Returns a double that rounds to fewer bits as the integer v does: the bits beyond the 53 of a
 * double are replaced by one bit that is set if any of them is set. */
static inline double sticky(int64_t v)
{
    const uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;
    const uint64_t w = u >> 53 ? (u & ~(uint64_t)2047) | (u & 2047 ? 2048 : 0) : u;
    return v < 0 ? -(double)w : (double)w;
}
static inline float as_float(float v) { return v; }
static inline double as_double(double v) { return v; }
#define NUMBER(v)  (_Generic((v), float : as_float, double : as_double, default : sticky)(v))
#define AS_F16(v)  (_Generic((v), float : half_of_float, default : to_half)(NUMBER(v)))
#define AS_BF16(v) (_Generic((v), float : bfloat_of_float, default : to_bfloat)(NUMBER(v)))
#define AS_I8(v)   (_Generic((v), float : clamp8, double : clamp8, default : wrap8)(v))
#define AS_U8(v)   (_Generic((v), float : clamp_byte, double : clamp_byte, default : wrap_byte)(v))
/* the part that is converted: of a complex number the real part */
#define REAL_F32(v)  (v)
#define REAL_F64(v)  (v)
#define REAL_I32(v)  (v)
#define REAL_I64(v)  (v)
#define REAL_BOOL(v) (v)
#define REAL_C128(v) creal(v)
#define REAL_F16(v)  eg__from_half(v)
#define REAL_BF16(v) eg__from_bfloat(v)
#define REAL_I8(v)   (v)
#define REAL_U8(v)   (v)
#define AS_F32(v)    ((float)(v))
#define AS_F64(v)    ((double)(v))
#define AS_I32(v)    (_Generic((v), float : clamp32, double : clamp32, default : wrap32)(v))
#define AS_I64(v)    (_Generic((v), float : clamp64, double : clamp64, default : same64)(v))
#define AS_BOOL(v)   ((v) != 0)
#define AS_C128(v)   ((double complex)(v))

/* Pairs of different dtypes: X(to, C type, from, C type). Other pairs are converted by way of the
 * dtype `middle`, which represents all values of theirs exactly. */
/* clang-format off */
#define EG_PAIRS(X)                                                                           \
    X(F32, float, F64, double)    X(F32, float, I32, int32_t)   X(F32, float, I64, int64_t)   \
    X(F32, float, BOOL, uint8_t)                                                              \
    X(F64, double, F32, float)    X(F64, double, I32, int32_t)  X(F64, double, I64, int64_t)  \
    X(F64, double, BOOL, uint8_t)                                                             \
    X(I32, int32_t, F32, float)   X(I32, int32_t, F64, double)  X(I32, int32_t, I64, int64_t) \
    X(I32, int32_t, BOOL, uint8_t)                                                            \
    X(I64, int64_t, F32, float)   X(I64, int64_t, F64, double)  X(I64, int64_t, I32, int32_t) \
    X(I64, int64_t, BOOL, uint8_t)                                                            \
    X(BOOL, bool, F32, float)     X(BOOL, bool, F64, double)    X(BOOL, bool, I32, int32_t)   \
    X(BOOL, bool, I64, int64_t)                                                               \
    X(F32, float, C128, double complex)   X(F64, double, C128, double complex)                \
    X(I32, int32_t, C128, double complex)                                                     \
    X(I64, int64_t, C128, double complex) X(BOOL, bool, C128, double complex)                 \
    X(C128, double complex, F32, float)                                                       \
    X(C128, double complex, F64, double)  X(C128, double complex, I32, int32_t)               \
    X(C128, double complex, I64, int64_t)                                                     \
    X(C128, double complex, BOOL, uint8_t)                                                    \
    X(F32, float, F16, eg_f16bits)       X(F32, float, BF16, eg_bf16bits)                     \
    X(I32, int32_t, I8, int8_t)          X(I32, int32_t, U8, uint8_t)                         \
    X(F16, eg_f16bits, F32, float)       X(F16, eg_f16bits, F64, double)                      \
    X(F16, eg_f16bits, I32, int32_t)     X(F16, eg_f16bits, I64, int64_t)                     \
    X(BF16, eg_bf16bits, F32, float)     X(BF16, eg_bf16bits, F64, double)                    \
    X(BF16, eg_bf16bits, I32, int32_t)   X(BF16, eg_bf16bits, I64, int64_t)                   \
    X(BOOL, bool, I8, int8_t)            X(BOOL, bool, U8, uint8_t)                           \
    X(I8, int8_t, F32, float)            X(I8, int8_t, F64, double)                           \
    X(I8, int8_t, I32, int32_t)          X(I8, int8_t, I64, int64_t)                          \
    X(U8, uint8_t, F32, float)           X(U8, uint8_t, F64, double)                          \
    X(U8, uint8_t, I32, int32_t)         X(U8, uint8_t, I64, int64_t)
/* clang-format on */

/* The source is contiguous. A contiguous target has a separate loop, which the compiler
 * vectorises. */
/* clang-format off */
#define EACH(to, y, from, x, VALUE) \
    for (int64_t i = 0; i < n; i++) { const from v = *(const from *)(x); *(to *)(y) = VALUE; }
/* y, x, ys: copies, since bytes that are written could be those of p and step */
#define CONVERT(TO, to, FROM, from)                                                            \
    EG_CLONES static void TO##_##FROM(int64_t n, char *const *p, const int64_t *step,          \
                                      const void *user)                                        \
    { char *const y = p[0], *const x = p[1]; const int64_t ys = step[0]; (void)user;           \
      CASES(to, from, AS_##TO(REAL_##FROM(v))) }
#define CASES(to, from, VALUE)                                                                  \
    const int64_t w = (int64_t)sizeof(to), xs = (int64_t)sizeof(from);                          \
    if (ys == w)                                                                                \
        EACH(to, y + i * w, from, x + i * xs, VALUE)                                            \
    else                                                                                        \
        EACH(to, y + i * ys, from, x + i * xs, VALUE)
/* clang-format on */
EG_PAIRS(CONVERT)
#define ENTRY(TO, to, FROM, from) [EG_##TO][EG_##FROM] = TO##_##FROM,
static eg_inner *const convert[EG_DTYPES][EG_DTYPES] = { EG_PAIRS(ENTRY) };
static const uint8_t middle[EG_DTYPES] = {
    [EG_F16] = EG_F32, [EG_BF16] = EG_F32, [EG_I8] = EG_I32,
    [EG_U8] = EG_I32,  [EG_BOOL] = EG_I32, [EG_C128] = EG_F64
};
/* A conversion by `first`, or by `first` and `second`; the widths of the three dtypes. */
typedef struct conversion {
    eg_inner *first, *second;
    int to, between, from;
} conversion;
/* Converts block by block, so that each conversion reads contiguous elements. */
static void converted(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const conversion *c = user;
    double gathered[2 * EG_BLOCK], part[EG_BLOCK];
    if (!c->second && step[1] == c->from) {
        c->first(n, p, step, NULL);
        return;
    }
    for (int64_t k = 0, m; k < n; k += m) {
        m = eg__min64(n - k, EG_BLOCK);
        char *x = p[1] + k * step[1], *y = p[0] + k * step[0];
        if (step[1] != c->from) {
            eg__move(c->from, m, gathered, c->from, x, step[1]);
            x = (char *)gathered;
        }
        c->first(m, (char *[]){ c->second ? (char *)part : y, x },
                 (int64_t[]){ c->second ? c->between : step[0], c->from }, NULL);
        if (c->second)
            c->second(m, (char *[]){ y, (char *)part }, (int64_t[]){ step[0], c->between }, NULL);
    }
}
static conversion conversion_of(int to, int from)
{
    const int between = middle[from];
    const int widths[] = { eg__width[to], eg__width[between], eg__width[from] };
    return convert[to][from] ? (conversion){ convert[to][from], NULL, widths[0], 0, widths[2] }
                             : (conversion){ convert[between][from], convert[to][between],
                                             widths[0], widths[1], widths[2] };
}

/* -- equal dtypes: moving bytes ---------------------------------------------------------------- */
/* in elements; SHORT in bytes */
enum { TILE = 16, LONG = 256, HIGH = 64, SHORT = 256, ROWS = 4096 };
/* a × b elements: contiguous along a in y, along b in x; strides in bytes */
typedef struct tile {
    int64_t a, b, ya, yb, xa, xb, width;
    bool far;
} tile;

#define TEMPLATE "tensor/copy_of.h"
#include "tensor/each_width_of.h"
/* transposes tiles whose elements, of 4 or 8 bytes, are contiguous along a in y and along b in x */
static void transposes(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const tile *t = user;
    const int64_t w = t->width;
    for (int64_t k = 0; k < n; k++)
        eg__transpose((size_t)w, t->a, t->b, p[1] + k * step[1], t->xa / w, p[0] + k * step[0],
                      t->yb / w, t->far);
}
/* t->b rows of a constant number of bytes */
#define FIXED(bytes)                                                                    \
    case bytes:                                                                         \
        for (int64_t j = 0; j < t->b; j++, y += t->yb, x += t->xb) memcpy(y, x, bytes); \
        break;
/* Copies rows that are contiguous in both tensors: short ones by moves of a constant length, those
 * of large results with non-temporal stores. */
EG_CLONES static void short_rows(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const tile *t = user;
    const int64_t bytes = t->a * t->xa;
    for (int64_t k = 0; k < n; k++) {
        char *y = p[0] + k * step[0];
        const char *x = p[1] + k * step[1];
        if (t->far) {
            for (int64_t j = 0; j < t->b; j++, y += t->yb, x += t->xb)
                eg__stream(y, x, (size_t)bytes);
            continue;
        }
        switch (bytes) {
            FIXED(8)
            FIXED(16)
            FIXED(32)
            FIXED(64)
            FIXED(128)
            FIXED(256)
        default:
            for (int64_t j = 0; j < t->b; j++, y += t->yb, x += t->xb) memcpy(y, x, (size_t)bytes);
        }
    }
    if (t->far) eg__stream_end();
}
static const struct {
    eg_inner *move, *tiles, *narrow, *transposes;
    void (*spread)(int64_t rows, int64_t n, void *to, const char *x, int64_t step);
} same[] = {
    [1] = { move_8, tiles_8, narrow_8, NULL, spread_8 },
    [2] = { move_16, tiles_16, narrow_16, NULL, spread_16 },
    [4] = { move_32, tiles_32, narrow_32, transposes, spread_32 },
    [8] = { move_64, tiles_64, narrow_64, transposes, spread_64 },
    [16] = { move_128, tiles_128, narrow_128, NULL, spread_128 },
};
void eg__move(int width, int64_t n, void *to, int64_t to_step, const void *from, int64_t from_step)
{
    same[width].move(n, (char *[]){ to, (char *)(uintptr_t)from },
                     (int64_t[]){ to_step, from_step }, NULL);
}
void eg__spread(int width, int64_t rows, int64_t n, void *to, const void *from, int64_t step)
{
    same[width].spread(rows, n, to, from, step);
}

/* Returns the axis, other than `but`, along which x has the smallest stride; −1 if every other axis
 * has only one element. */
static int copy_finest_axis(const eg_tensor *x, int but)
{
    int axis = -1;
    int64_t least = INT64_MAX;
    for (int r = 0; r < x->rank; r++) {
        const int64_t s = eg__abs64(x->stride[r]);
        if (r != but && x->dim[r] > 1 && s && s <= least) {
            least = s;
            axis = r;
        }
    }
    return axis;
}

/* Copies the part [a0, a0 + na) × [b0, b0 + nb) of axes a and b, in tiles of ta × tb. */
static void copy_tiled(eg_tensor *target, const eg_tensor *source, eg_inner *inner, int a, int b,
                       const int64_t from[2], const int64_t size[2], const int64_t by[2])
{
    if (by[0] == 0 || by[1] == 0 || size[0] / by[0] == 0 || size[1] / by[1] == 0) return;
    int64_t w = eg__width[target->dtype], dim[EG_RANK_MAX], ys[EG_RANK_MAX], xs[EG_RANK_MAX];
    eg_tensor y = *target, x = *source;
    memcpy(dim, y.dim, y.rank * sizeof *dim);
    memcpy(ys, y.stride, y.rank * sizeof *ys);
    memcpy(xs, x.stride, x.rank * sizeof *xs);
    y.data += (from[0] * ys[a] + from[1] * ys[b]) * w;
    x.data += (from[0] * xs[a] + from[1] * xs[b]) * w;
    tile t = { by[0],     by[1],     ys[a] * w, ys[b] * w,
               xs[a] * w, xs[b] * w, w,         eg__count(y.rank, y.dim) * w > EG_STREAM_BYTES };
    const int both[2] = { a, b };
    for (int k = 0; k < 2; k++) {
        dim[both[k]] = size[k] / by[k];
        ys[both[k]] *= by[k];
        xs[both[k]] *= by[k];
    }
    y.dim = x.dim = dim;
    y.stride = ys;
    x.stride = xs;
    eg__loop_work(y.cx, 2, (const eg_tensor *[]){ &y, &x }, inner, &t, by[0] * by[1]);
}
/* Copies in tiles of full size, then the two edges and the corner. */
static void copy_in_tiles(eg_tensor *target, const eg_tensor *source, eg_inner *inner, int a, int b,
                          int64_t ta, int64_t tb)
{
    const int64_t na = target->dim[a], nb = target->dim[b], ra = na % ta, rb = nb % tb;
    copy_tiled(target, source, inner, a, b, (int64_t[]){ 0, 0 }, (int64_t[]){ na - ra, nb - rb },
               (int64_t[]){ ta, tb });
    copy_tiled(target, source, inner, a, b, (int64_t[]){ na - ra, 0 }, (int64_t[]){ ra, nb - rb },
               (int64_t[]){ ra, tb });
    copy_tiled(target, source, inner, a, b, (int64_t[]){ 0, nb - rb }, (int64_t[]){ na - ra, rb },
               (int64_t[]){ ta, rb });
    copy_tiled(target, source, inner, a, b, (int64_t[]){ na - ra, nb - rb }, (int64_t[]){ ra, rb },
               (int64_t[]){ ra, rb });
}

/* Chooses conversions, transposed tiles, other tiles, short rows that are gathered or contiguous,
 * or plain runs by the dtypes and by the axis along which each tensor has its smallest stride. */
void eg__copy(eg_tensor *target, const eg_tensor *source)
{
    const eg_tensor *both[2] = { target, source };
    if (target->dtype != source->dtype) {
        const conversion c = conversion_of(target->dtype, source->dtype);
        eg__loop(target->cx, 2, both, converted, &c);
        return;
    }
    const int w = eg__width[target->dtype];
    const int a = target->rank > 1 ? copy_finest_axis(target, -1) : -1,
              b = a < 0 ? -1 : copy_finest_axis(source, -1),
              next = a < 0 ? -1 : copy_finest_axis(target, a);
    const bool near = b >= 0 && target->stride[a] == 1 && source->stride[b] == 1;
    if (b >= 0 && a != b && target->dim[a] >= TILE / 2 && target->dim[b] >= TILE / 2) {
        if (near && same[w].transposes)
            copy_in_tiles(target, source, same[w].transposes, a, b, eg__min64(target->dim[a], LONG),
                          eg__min64(target->dim[b], HIGH));
        else
            copy_in_tiles(target, source, same[w].tiles, a, b, TILE, TILE);
    } else if (next >= 0 && target->stride[a] == 1 && target->dim[a] < TILE / 2 &&
               source->stride[a] != 1)
        copy_in_tiles(target, source, same[w].narrow, a, next, target->dim[a],
                      eg__min64(target->dim[next], ROWS));
    else if (near && a == b && next >= 0 &&
             (target->dim[a] * w <= SHORT ||
              eg__count(target->rank, target->dim) * w > EG_STREAM_BYTES) &&
             (target->stride[next] != target->dim[a] || source->stride[next] != target->dim[a]))
        copy_in_tiles(target, source, short_rows, a, next, target->dim[a],
                      eg__min64(target->dim[next], ROWS / target->dim[a] + 1));
    else
        eg__loop(target->cx, 2, both, same[w].move, NULL);
}

/* -- fill ------------------------------------------------------------------------------------- */
#define T       float
#define NAME(x) x##_f32
#define AS      AS_F32
#include "tensor/fill_of.h"
#define T       double
#define NAME(x) x##_f64
#define AS      AS_F64
#include "tensor/fill_of.h"
#define T       double complex
#define NAME(x) x##_c128
#define AS      AS_C128
#include "tensor/fill_of.h"
#define T       int32_t
#define NAME(x) x##_i32
#define AS      AS_I32
#include "tensor/fill_of.h"
#define T       int64_t
#define NAME(x) x##_i64
#define AS      AS_I64
#include "tensor/fill_of.h"
#define T       bool
#define NAME(x) x##_bool
#define AS      AS_BOOL
#include "tensor/fill_of.h"
#define T       eg_f16bits
#define NAME(x) x##_f16
#define AS      AS_F16
#include "tensor/fill_of.h"
#define T       eg_bf16bits
#define NAME(x) x##_bf16
#define AS      AS_BF16
#include "tensor/fill_of.h"
#define T       int8_t
#define NAME(x) x##_i8
#define AS      AS_I8
#include "tensor/fill_of.h"
#define T       uint8_t
#define NAME(x) x##_u8
#define AS      AS_U8
#include "tensor/fill_of.h"
static eg_inner *const fill[EG_DTYPES] = {
    [EG_F32] = fill_f32, [EG_F64] = fill_f64,   [EG_C128] = fill_c128, [EG_I32] = fill_i32,
    [EG_I64] = fill_i64, [EG_BOOL] = fill_bool, [EG_F16] = fill_f16,   [EG_BF16] = fill_bf16,
    [EG_I8] = fill_i8,   [EG_U8] = fill_u8
};

void eg__fill(eg_tensor *target, double value)
{
    eg__loop(target->cx, 1, (const eg_tensor *[]){ target }, fill[target->dtype], &value);
}
bool eg__holds(eg_dtype dtype, double value)
{
    static const double
        low[EG_DTYPES] = { [EG_I8] = -0x1p7, [EG_I32] = -0x1p31, [EG_I64] = -0x1p63 },
        above[EG_DTYPES] = {
            [EG_I8] = 0x1p7, [EG_U8] = 0x1p8, [EG_I32] = 0x1p31, [EG_I64] = 0x1p63
        };
    return above[dtype] == 0 || (trunc(value) >= low[dtype] && trunc(value) < above[dtype]);
}
bool eg__check_holds(eg_ctx *cx, const char *who, eg_dtype dtype, double value)
{
    if (eg__holds(dtype, value)) return true;
    eg_fail_as(cx, EG_ERROR_DTYPE, "%s: %s cannot hold the value %.17g", who, eg_type_name(dtype),
               value);
    return false;
}
