/* copy.c: copying between any strides and dtypes, and filling. */
#include "tensor/tensor.h"
#include <math.h>
#include <string.h>
#if defined(__x86_64__) && !NO_CLONES
#include <immintrin.h>
#endif

/* -- conversions: as in C (a complex number loses its imaginary part); where C leaves the result
 * undefined, NaN becomes 0 and a value that is too large becomes the nearest one of the type -- */
/* Without branches, so that loops over them become vector instructions: where v is out of range or
 * NaN, 0 is converted in its place, which is the result for NaN. */
#define CLAMP(T, v, least, most, beyond)              \
    const bool in = (v) >= (least) && (v) < (beyond); \
    const T inside = (T)(in ? (v) : 0);               \
    return (v) >= (beyond) ? (most) : (v) < (least) ? (T)(least) : inside
static inline int32_t clamp32f(float v) { CLAMP(int32_t, v, -0x1p31f, INT32_MAX, 0x1p31f); }
static inline int64_t clamp64(double v) { CLAMP(int64_t, v, -0x1p63, INT64_MAX, 0x1p63); }
#undef CLAMP
/* A double represents every int32_t, so v can be clamped before it is converted. */
static inline int32_t clamp32(double v)
{
    const double above = v > INT32_MIN ? v : v == v ? INT32_MIN : 0;
    return (int32_t)(above < INT32_MAX ? above : INT32_MAX);
}
/* By way of 32 bits, since no vector instruction converts doubles to bytes. */
static inline int32_t clamp8(double v)
{
    const double above = v > INT8_MIN ? v : v == v ? INT8_MIN : 0;
    return (int32_t)(above < INT8_MAX ? above : INT8_MAX);
}
static inline int32_t clamp8f(float v)
{
    const float above = v > INT8_MIN ? v : v == v ? INT8_MIN : 0;
    return (int32_t)(above < INT8_MAX ? above : INT8_MAX);
}
static inline int32_t clamp_bytef(float v)
{
    const float above = v > 0 ? v : 0;
    return (int32_t)(above < UINT8_MAX ? above : UINT8_MAX);
}
static inline int32_t clamp_byte(double v)
{
    const double above = v > 0 ? v : 0;
    return (int32_t)(above < UINT8_MAX ? above : UINT8_MAX);
}
static inline int32_t wrap32(int64_t v) { return (int32_t)v; }
static inline int64_t same64(int64_t v) { return v; }
static inline int8_t wrap8(int64_t v) { return (int8_t)v; }
static inline uint8_t wrap_byte(int64_t v) { return (uint8_t)v; }

/* Returns the bits of the f16 or bf16 number nearest to v; if two are equally near, that with an
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
    return (eg_bf16bits){ (uint16_t)(v != v ? nan : near) };
}
/* Returns v rounded to odd in f32: the bits beyond those of a float are cut off, and the last bit
 * is set if any of them was set. It rounds to f16 and bf16 as v itself does. */
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
/* The same for f16, and for bf16 if v is 0 or at least 2^-126: the bits of v beyond those of a
 * float are replaced by one bit that is set if any of them is (a sticky bit). Numbers outside of
 * the range of a float become 0 or ∞ in any case. */
static inline float sticky_float(double v)
{
    const uint64_t beyond = 0x1fffffff;
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits = (bits | ((bits & beyond) + beyond)) & ~beyond;
    memcpy(&v, &bits, sizeof v);
    return (float)v;
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
#define NUMBER(v) (_Generic((v), float : as_float, double : as_double, default : sticky)(v))
static inline float odd_of_int64(int64_t v) { return odd_float(sticky(v)); }
/* Beyond 24 bits the last 8 are replaced by the one before them. */
static inline float odd_of_int32(int32_t v)
{
    const bool wide = v > 0xffffff || v < -0xffffff;
    return (float)(wide ? (v & ~255) | (v & 255 ? 256 : 0) : v);
}
/* a float that rounds to f16 and bf16 as v does */
#define AS_ODD(v) \
    (_Generic((v), double : odd_float, int32_t : odd_of_int32, int64_t : odd_of_int64)(v))
#define AS_STICKY(v) sticky_float(v)
#define AS_F16(v)    (_Generic((v), float : half_of_float, default : to_half)(NUMBER(v)))
#define AS_BF16(v)   (_Generic((v), float : bfloat_of_float, default : to_bfloat)(NUMBER(v)))
#define AS_I8(v)     ((int8_t)AS_CLAMP8(v))
#define AS_U8(v)     ((uint8_t)AS_CLAMP_BYTE(v))
#define AS_CLAMP8(v) (_Generic((v), float : clamp8f, double : clamp8, default : wrap8)(v))
#define AS_CLAMP_BYTE(v) \
    (_Generic((v), float : clamp_bytef, double : clamp_byte, default : wrap_byte)(v))
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
#define AS_I32(v)    (_Generic((v), float : clamp32f, double : clamp32, default : wrap32)(v))
#define AS_I64(v)    (_Generic((v), float : clamp64, double : clamp64, default : same64)(v))
#define AS_WHOLE(v)  ((int64_t)(v))
#define AS_INT(v)    ((int32_t)(v))
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
    X(I32, int32_t, F32, float)   X(I32, int32_t, I64, int64_t)                               \
    X(I32, int32_t, BOOL, uint8_t)                                                            \
    X(I64, int64_t, F32, float)   X(I64, int64_t, I32, int32_t)                               \
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
    X(F32, float, BF16, eg_bf16bits)                                                          \
    X(I32, int32_t, I8, int8_t)          X(I32, int32_t, U8, uint8_t)                         \
    X(F32, float, I8, int8_t)            X(F32, float, U8, uint8_t)                           \
    X(BF16, eg_bf16bits, F32, float)                                                          \
    X(I8, int8_t, U8, uint8_t)           X(U8, uint8_t, I8, int8_t)                           \
    X(I8, int8_t, BOOL, uint8_t)         X(U8, uint8_t, BOOL, uint8_t)                        \
    X(BOOL, bool, I8, int8_t)            X(BOOL, bool, U8, uint8_t)                           \
    X(I8, int8_t, F32, float)            X(I8, int8_t, F64, double)                           \
    X(U8, uint8_t, F32, float)           X(U8, uint8_t, F64, double)                          \
    X(I8, int8_t, I32, int32_t)          X(I8, int8_t, I64, int64_t)                          \
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
CONVERT(F32, float, F16, eg_f16bits)
CONVERT(F16, eg_f16bits, F32, float)
CONVERT(I64, int64_t, F64, double)
CONVERT(WHOLE, int64_t, F64, double)
CONVERT(I32, int32_t, F64, double)
CONVERT(INT, int32_t, F64, double)
/* True if low <= v < beyond for all n numbers. */
EG_CLONES static bool all_in_range(int64_t n, const double *v, double low, double beyond)
{
    int64_t out = 0;
    for (int64_t i = 0; i < n; i++) out |= !(v[i] >= low && v[i] < beyond);
    return !out;
}
/* From f64 to integers block by block: one whose numbers are all in the range of the type, which
 * ends before `beyond`, is converted by PLAIN, an instruction for each, others by CLAMPED. */
/* clang-format off */
#define IN_RANGE(NAME, beyond, PLAIN, CLAMPED)                                                \
    static void NAME(int64_t n, char *const *p, const int64_t *step, const void *user)        \
    { for (int64_t k = 0, m; k < n; k += m) {                                                 \
          char *const x = p[1] + k * (int64_t)sizeof(double); m = eg__min64(n - k, EG_BLOCK); \
          const bool in = all_in_range(m, (const double *)(const void *)x, -beyond, beyond);  \
          (in ? PLAIN : CLAMPED)(m, (char *[]){ p[0] + k * step[0], x }, step, user); } }
/* clang-format on */
IN_RANGE(whole_i64, 0x1p63, WHOLE_F64, I64_F64)
IN_RANGE(whole_i32, 0x1p31, INT_F64, I32_F64)
#if defined(__x86_64__) && !NO_CLONES
/* Eight elements at a time: processors with AVX2 have F16C. A NaN that becomes one of f16 loses its
 * payload first, as in half_of_float. */
#define F16C __attribute__((target("avx2,f16c")))
F16C static void eights_from_half(int64_t n, const char *x, char *y)
{
    for (int64_t i = 0; i < n; i += 8)
        _mm256_storeu_ps((float *)(void *)y + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + 2 * i))));
}
F16C static void eights_to_half(int64_t n, const char *x, char *y)
{
    const __m256 sign = _mm256_set1_ps(-0.f), nan = _mm256_set1_ps(NAN);
    for (int64_t i = 0; i < n; i += 8) {
        const __m256 v = _mm256_loadu_ps((const float *)(const void *)x + i),
                     bare = _mm256_or_ps(_mm256_and_ps(v, sign), nan),
                     u = _mm256_blendv_ps(v, bare, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        _mm_storeu_si128((void *)(y + 2 * i), _mm256_cvtps_ph(u, _MM_FROUND_TO_NEAREST_INT));
    }
}
/* The same, 16 elements at a time. */
__attribute__((target("avx512f"))) static void sixteens_to_half(int64_t n, const char *x, char *y)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN),
                  nan = _mm512_castps_si512(_mm512_set1_ps(NAN));
    for (int64_t i = 0; i < n; i += 16) {
        const __m512 v = _mm512_loadu_ps((const float *)(const void *)x + i);
        const __m512i w = _mm512_castps_si512(v),
                      u = _mm512_mask_or_epi32(w, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                                               _mm512_and_si512(w, sign), nan);
        _mm256_storeu_si256((void *)(y + 2 * i),
                            _mm512_cvtps_ph(_mm512_castsi512_ps(u), _MM_FROUND_TO_NEAREST_INT));
    }
}
static void groups_to_half(int64_t n, const char *x, char *y)
{
    const int64_t sixteens = __builtin_cpu_supports("avx512f") ? n & -16 : 0;
    if (sixteens) sixteens_to_half(sixteens, x, y);
    eights_to_half(n - sixteens, x + 4 * sixteens, y + 2 * sixteens);
}
/* Returns how many of n elements `eights` converts: groups of eight whose results are contiguous.
 */
static int64_t in_eights(int64_t n, int64_t step, int64_t width)
{
    return step == width && __builtin_cpu_supports("avx2") ? n & -8 : 0;
}
#else
static int64_t in_eights(int64_t n, int64_t step, int64_t width)
{
    return (void)n, (void)step, (void)width, 0;
}
static void eights_from_half(int64_t n, const char *x, char *y) { (void)n, (void)x, (void)y; }
static void groups_to_half(int64_t n, const char *x, char *y) { (void)n, (void)x, (void)y; }
#endif
static void from_half(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const int64_t eights = in_eights(n, step[0], sizeof(float));
    eights_from_half(eights, p[1], p[0]);
    F32_F16(n - eights, (char *[]){ p[0] + 4 * eights, p[1] + 2 * eights }, step, user);
}
static void to_halves(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const int64_t eights = in_eights(n, step[0], sizeof(eg_f16bits));
    groups_to_half(eights, p[1], p[0]);
    F16_F32(n - eights, (char *[]){ p[0] + 2 * eights, p[1] + 4 * eights }, step, user);
}
#define ENTRY(TO, to, FROM, from) [EG_##TO][EG_##FROM] = TO##_##FROM,
static eg_inner *const convert[EG_DTYPES][EG_DTYPES] = {
    EG_PAIRS(ENTRY)[EG_F32][EG_F16] = from_half, [EG_F16][EG_F32] = to_halves,
    [EG_I64][EG_F64] = whole_i64, [EG_I32][EG_F64] = whole_i32
};
static const uint8_t middle[EG_DTYPES] = {
    [EG_F16] = EG_F32, [EG_BF16] = EG_F32, [EG_I8] = EG_I32,
    [EG_U8] = EG_I32,  [EG_BOOL] = EG_I32, [EG_C128] = EG_F64
};
/* Conversions in two steps, of which the first one rounds or clamps for the second: to f16 and bf16
 * by way of f32, to bytes by way of i32, to i64 by way of f64. */
CONVERT(ODD, float, F64, double)
CONVERT(STICKY, float, F64, double)
CONVERT(ODD, float, I32, int32_t)
CONVERT(ODD, float, I64, int64_t)
CONVERT(ODD, float, C128, double complex)
CONVERT(CLAMP8, int32_t, F32, float)
CONVERT(CLAMP8, int32_t, F64, double)
CONVERT(CLAMP_BYTE, int32_t, F32, float)
CONVERT(CLAMP_BYTE, int32_t, F64, double)
IN_RANGE(whole_i8, 0x1p7, INT_F64, CLAMP8_F64)
/* True if all n integers have at most 24 bits: f32 represents them. */
EG_CLONES static bool narrow_integers(int64_t n, const int64_t *v)
{
    uint64_t out = 0;
    for (int64_t i = 0; i < n; i++) out |= (uint64_t)v[i] + 0x1000000 > 0x2000000;
    return !out;
}
/* i64 to f32 for f16 and bf16, block by block: one of small integers takes an instruction for each.
 */
static void odd_integers(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    for (int64_t k = 0; k < n; k += EG_BLOCK) {
        const int64_t m = eg__min64(n - k, EG_BLOCK);
        char *const x = p[1] + k * (int64_t)sizeof(int64_t);
        const bool narrow = narrow_integers(m, (const int64_t *)(const void *)x);
        (narrow ? F32_I64 : ODD_I64)(m, (char *[]){ p[0] + k * step[0], x }, step, user);
    }
}
/* True if none of n numbers but 0 is smaller than the normal floats: of the bits without the sign,
 * 0 becomes the largest number. */
EG_CLONES static bool no_tiny_numbers(int64_t n, const double *v)
{
    const double normal = 0x1p-126;
    uint64_t least = UINT64_MAX, limit;
    memcpy(&limit, &normal, sizeof limit);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        bits = 2 * bits - 1;
        least = bits < least ? bits : least;
    }
    return least >= 2 * limit - 1;
}
/* f64 to f32 for bf16, block by block: one without tiny numbers as for f16. */
static void odd_numbers(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    for (int64_t k = 0; k < n; k += EG_BLOCK) {
        const int64_t m = eg__min64(n - k, EG_BLOCK);
        char *const x = p[1] + k * (int64_t)sizeof(double);
        const bool normal = no_tiny_numbers(m, (const double *)(const void *)x);
        (normal ? STICKY_F64 : ODD_F64)(m, (char *[]){ p[0] + k * step[0], x }, step, user);
    }
}
#define ODDS(F64)                                                                         \
    {                                                                                     \
        [EG_F64] = F64, [EG_I32] = ODD_I32, [EG_I64] = odd_integers, [EG_C128] = ODD_C128 \
    }
static eg_inner *const prepare[EG_DTYPES][EG_DTYPES] = {
    [EG_F16] = ODDS(STICKY_F64),
    [EG_BF16] = ODDS(odd_numbers),
    [EG_I8] = { [EG_F32] = CLAMP8_F32, [EG_F64] = whole_i8 },
    [EG_U8] = { [EG_F32] = CLAMP_BYTE_F32, [EG_F64] = CLAMP_BYTE_F64 },
    [EG_I64] = { [EG_F32] = F64_F32 },
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
    const int between = eg__is_half(to)      ? EG_F32
                        : !prepare[to][from] ? middle[from]
                        : to == EG_I64       ? EG_F64
                                             : EG_I32;
    const int widths[] = { eg__width[to], eg__width[between], eg__width[from] };
    if (convert[to][from] && !prepare[to][from])
        return (conversion){ convert[to][from], NULL, widths[0], 0, widths[2] };
    return (conversion){ prepare[to][from] ? prepare[to][from] : convert[between][from],
                         convert[to][between], widths[0], widths[1], widths[2] };
}

/* -- equal dtypes: moving bytes ---------------------------------------------------------------- */
/* TILE: side of a tile, which is worthwhile from half of it on. LONG, HIGH: sides of a tile that
 * eg__transpose copies. ROWS: rows of a tile whose rows have at most TILE elements. STREAMED: bytes
 * of the shortest rows that short_rows writes with non-temporal stores. Unless the result is large,
 * it copies rows of at most EG_PIECE_BYTES. */
enum { TILE = 16, LONG = 256, HIGH = 64, STREAMED = 64, ROWS = 4096 };
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
#if defined(__x86_64__) && !NO_CLONES
/* Transposes a square of 16 × 16 bytes or 8 × 8 elements of two bytes: each round interleaves every
 * row with that half a square below it. */
EG_INLINE void small_square(int width, const char *x, int64_t xa, char *y, int64_t yb)
{
    const int side = 16 / width, half = side / 2;
    __m128i r[16], t[16];
    for (int i = 0; i < side; i++) r[i] = _mm_loadu_si128((const void *)(x + i * xa));
    for (int round = side; round > 1; round /= 2) {
        for (int i = 0; i < half; i++) {
            t[2 * i] = width == 1 ? _mm_unpacklo_epi8(r[i], r[i + half])
                                  : _mm_unpacklo_epi16(r[i], r[i + half]);
            t[2 * i + 1] = width == 1 ? _mm_unpackhi_epi8(r[i], r[i + half])
                                      : _mm_unpackhi_epi16(r[i], r[i + half]);
        }
        for (int i = 0; i < side; i++) r[i] = t[i];
    }
    for (int j = 0; j < side; j++) _mm_storeu_si128((void *)(y + j * yb), r[j]);
}
/* transposes for elements of one or two bytes */
EG_INLINE void small_transposes(int width, int64_t n, char *const *p, const int64_t *step,
                                const tile *t)
{
    const int64_t side = 16 / width, a = t->a & -side, b = t->b & -side;
    for (int64_t k = 0; k < n; k++) {
        char *y = p[0] + k * step[0];
        const char *x = p[1] + k * step[1];
        for (int64_t i = 0; i < a; i += side)
            for (int64_t j = 0; j < b; j += side)
                small_square(width, x + i * t->xa + j * width, t->xa, y + j * t->yb + i * width,
                             t->yb);
        for (int64_t j = 0; j < t->b; j++)
            for (int64_t i = j < b ? a : 0; i < t->a; i++)
                memcpy(y + j * t->yb + i * width, x + i * t->xa + j * width, (size_t)width);
    }
}
static void bytes_transposed(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    small_transposes(1, n, p, step, user);
}
static void halves_transposed(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    small_transposes(2, n, p, step, user);
}
#else
#define bytes_transposed  NULL
#define halves_transposed NULL
#endif
/* t->b rows of a constant number of bytes */
#define FIXED(bytes)                                                                    \
    case bytes:                                                                         \
        for (int64_t j = 0; j < t->b; j++, y += t->yb, x += t->xb) memcpy(y, x, bytes); \
        break;
/* t->b rows of part to 2 part bytes: their first and their last `part` bytes, which may overlap */
#define TWICE(part)                                              \
    for (int64_t j = 0; j < t->b; j++, y += t->yb, x += t->xb) { \
        memcpy(y, x, part);                                      \
        memcpy(y + bytes - (part), x + bytes - (part), part);    \
    }
/* Copies rows that are contiguous in both tensors: short ones by moves of a constant length, those
 * of large results with non-temporal stores. */
EG_CLONES static void short_rows(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const tile *t = user;
    const int64_t bytes = t->a * t->xa;
    const bool streams = t->far && bytes >= STREAMED;
    for (int64_t k = 0; k < n; k++) {
        char *y = p[0] + k * step[0];
        const char *x = p[1] + k * step[1];
        if (streams) {
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
            if (bytes > 128 || bytes < 2)
                for (int64_t j = 0; j < t->b; j++, y += t->yb, x += t->xb)
                    memcpy(y, x, (size_t)bytes);
            else if (bytes > 64)
                TWICE(64)
            else if (bytes > 32)
                TWICE(32)
            else if (bytes > 16)
                TWICE(16)
            else if (bytes > 8)
                TWICE(8)
            else if (bytes > 4)
                TWICE(4)
            else
                TWICE(2)
        }
    }
    if (streams) eg__stream_end();
}
#undef FIXED
#undef TWICE
static const struct {
    eg_inner *move, *tiles, *narrow, *transposes;
    void (*spread)(int64_t rows, int64_t n, void *to, const char *x, int64_t step);
} same[] = {
    [1] = { move_8, tiles_8, narrow_8, bytes_transposed, spread_8 },
    [2] = { move_16, tiles_16, narrow_16, halves_transposed, spread_16 },
    [4] = { move_32, tiles_32, narrow_32, transposes, spread_32 },
    [8] = { move_64, tiles_64, narrow_64, transposes, spread_64 },
    [16] = { move_128, tiles_128, narrow_128, NULL, spread_128 },
};
void eg__move(int width, int64_t n, void *to, int64_t to_step, const void *from, int64_t from_step)
{
    same[width].move(n, (char *[]){ to, (char *)(uintptr_t)from },
                     (int64_t[]){ to_step, from_step }, NULL);
}
void eg__move_pieces(int64_t pieces, int64_t bytes, void *to, int64_t to_step, const void *from,
                     int64_t from_step)
{
    const tile t = { .a = bytes, .b = pieces, .yb = to_step, .xa = 1, .xb = from_step };
    short_rows(1, (char *[]){ to, (char *)(uintptr_t)from }, (int64_t[]){ 0, 0 }, &t);
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
 * or plain runs by the dtypes and by the axis along which each tensor has its smallest stride. A
 * single number that fills rows without gaps is a plain run. */
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
    } else if (next >= 0 && target->stride[a] == 1 && target->dim[a] <= TILE &&
               source->stride[a] != 1 && (b >= 0 || target->stride[next] != target->dim[a]))
        copy_in_tiles(target, source, same[w].narrow, a, next, target->dim[a],
                      eg__min64(target->dim[next], ROWS));
    else if (near && a == b && next >= 0 &&
             (target->dim[a] * w <= EG_PIECE_BYTES ||
              eg__count(target->rank, target->dim) * w > EG_STREAM_BYTES) &&
             (target->stride[next] != target->dim[a] || source->stride[next] != target->dim[a]))
        copy_in_tiles(target, source, short_rows, a, next, target->dim[a],
                      eg__min64(target->dim[next], ROWS / target->dim[a] + 1));
    else
        eg__loop(target->cx, 2, both, same[w].move, NULL);
}

/* -- fill ------------------------------------------------------------------------------------- */
/* A copy of one number that is expanded to all sizes of the target. */
void eg__fill(eg_tensor *target, double value)
{
    _Alignas(16) char one[16];
    int64_t stride[EG_RANK_MAX];
    const int width = eg__width[target->dtype];
    const conversion c = conversion_of(target->dtype, EG_F64);
    if (target->dtype == EG_F64)
        memcpy(one, &value, sizeof value);
    else
        converted(1, (char *[]){ one, (char *)&value }, (int64_t[]){ width, c.from }, &c);
    eg_tensor source = *target;
    source.data = one;
    source.stride = memset(stride, 0, target->rank * sizeof *stride);
    eg__copy(target, &source);
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
