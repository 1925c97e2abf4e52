/* transpose.c: dst[y·ds + x] = src[x·ss + y], the transposition under copies, maps and packing.
 * Squares of a vector's length are turned in registers: with AVX-512 both sides use whole cache
 * lines, once, and edges are squares with masks; else a square is 16 bytes wide and the edges go
 * element by element. eg__take_every_second draws every second number of rows together, eg__stream
 * copies whole lines past the caches, which then need not fetch them first. Nothing is computed, so
 * what the processor can do decides and no bit depends on it. */
#include "tensor/tensor.h"
#include <string.h>

typedef void turn_run(int64_t nx, int64_t ny, const void *src, int64_t ss, void *dst, int64_t ds,
                      bool far);

#define SHUFFLE(...) __builtin_shufflevector(__VA_ARGS__)
typedef uint32_t vec32 __attribute__((vector_size(16)));
typedef uint64_t vec64 __attribute__((vector_size(16)));
static inline void square_32(const uint32_t *src, int64_t ss, uint32_t *dst, int64_t ds)
{
    vec32 x[4], y[4];
    for (int r = 0; r < 4; r++) memcpy(&x[r], src + r * ss, 16);
    const vec32 p = SHUFFLE(x[0], x[1], 0, 4, 1, 5), q = SHUFFLE(x[2], x[3], 0, 4, 1, 5);
    const vec32 u = SHUFFLE(x[0], x[1], 2, 6, 3, 7), v = SHUFFLE(x[2], x[3], 2, 6, 3, 7);
    y[0] = SHUFFLE(p, q, 0, 1, 4, 5), y[1] = SHUFFLE(p, q, 2, 3, 6, 7);
    y[2] = SHUFFLE(u, v, 0, 1, 4, 5), y[3] = SHUFFLE(u, v, 2, 3, 6, 7);
    for (int r = 0; r < 4; r++) memcpy(dst + r * ds, &y[r], 16);
}
static inline void square_64(const uint64_t *src, int64_t ss, uint64_t *dst, int64_t ds)
{
    vec64 x[2], y[2];
    for (int r = 0; r < 2; r++) memcpy(&x[r], src + r * ss, 16);
    y[0] = SHUFFLE(x[0], x[1], 0, 2);
    y[1] = SHUFFLE(x[0], x[1], 1, 3);
    for (int r = 0; r < 2; r++) memcpy(dst + r * ds, &y[r], 16);
}
#define TURN(word, SIDE, square)                                                              \
    static void turn_##word(int64_t nx, int64_t ny, const void *from, int64_t ss, void *to,   \
                            int64_t ds, bool far)                                             \
    {                                                                                         \
        const word *src = from;                                                               \
        word *dst = to;                                                                       \
        const int64_t wx = nx - nx % SIDE, wy = ny - ny % SIDE;                               \
        (void)far;                                                                            \
        for (int64_t x = 0; x < wx; x += SIDE)                                                \
            for (int64_t y = 0; y < wy; y += SIDE)                                            \
                square(src + x * ss + y, ss, dst + y * ds + x, ds);                           \
        for (int64_t y = 0; y < ny; y++)                                                      \
            for (int64_t x = y < wy ? wx : 0; x < nx; x++) dst[y * ds + x] = src[x * ss + y]; \
    }
TURN(uint32_t, 4, square_32)
TURN(uint64_t, 2, square_64)

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX512 __attribute__((target("avx512f")))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* the 4 × 4 transpose of 16-byte lanes: o[l] = lane l of x0, x1, x2, x3 */
#define TURN_LANES(x0, x1, x2, x3, o0, o1, o2, o3)                                        \
    do {                                                                                  \
        const __m512i e0 = _mm512_shuffle_i32x4(x0, x1, 0x88),                            \
                      d0 = _mm512_shuffle_i32x4(x0, x1, 0xdd);                            \
        const __m512i e1 = _mm512_shuffle_i32x4(x2, x3, 0x88),                            \
                      d1 = _mm512_shuffle_i32x4(x2, x3, 0xdd);                            \
        o0 = _mm512_shuffle_i32x4(e0, e1, 0x88), o2 = _mm512_shuffle_i32x4(e0, e1, 0xdd); \
        o1 = _mm512_shuffle_i32x4(d0, d1, 0x88), o3 = _mm512_shuffle_i32x4(d0, d1, 0xdd); \
    } while (0)
AVX512 static inline __attribute__((always_inline)) void lanes_32(__m512i *x, __m512i *y)
{
    /* lane l of x[r + q]: column 4l + q of rows r … r + 3 */
    UNROLL for (int r = 0; r < 16; r += 4)
    {
        const __m512i p = _mm512_unpacklo_epi32(x[r], x[r + 1]),
                      q = _mm512_unpackhi_epi32(x[r], x[r + 1]);
        const __m512i u = _mm512_unpacklo_epi32(x[r + 2], x[r + 3]),
                      v = _mm512_unpackhi_epi32(x[r + 2], x[r + 3]);
        x[r] = _mm512_unpacklo_epi64(p, u), x[r + 1] = _mm512_unpackhi_epi64(p, u);
        x[r + 2] = _mm512_unpacklo_epi64(q, v), x[r + 3] = _mm512_unpackhi_epi64(q, v);
    }
    UNROLL for (int q = 0; q < 4; q++)
        TURN_LANES(x[q], x[4 + q], x[8 + q], x[12 + q], y[q], y[4 + q], y[8 + q], y[12 + q]);
}
AVX512 static inline __attribute__((always_inline)) void lanes_64(__m512i *x, __m512i *y)
{
    UNROLL for (int r = 0; r < 8; r += 2)
    {
        const __m512i p = _mm512_unpacklo_epi64(x[r], x[r + 1]),
                      q = _mm512_unpackhi_epi64(x[r], x[r + 1]);
        x[r] = p, x[r + 1] = q;
    }
    UNROLL for (int q = 0; q < 2; q++)
        TURN_LANES(x[q], x[2 + q], x[4 + q], x[6 + q], y[q], y[2 + q], y[4 + q], y[6 + q]);
}
/* Squares along dst where its rows lie far apart: a line is fetched before it is written, sooner if
 * it follows its neighbour, and lines that are a power of two apart meet in few sets of a cache.
 * Along src into a denser block, and past the caches, where nothing is fetched. A square of SIDE,
 * or of nx × ny elements of it: rows that are not there repeat the last one, and are not stored. */
#define TURN_512(word, bits, SIDE)                                                                \
    AVX512 static inline __attribute__((always_inline)) void square_512_##word(                   \
        int nx, int ny, const word *src, int64_t ss, word *dst, int64_t ds, bool far)             \
    {                                                                                             \
        __m512i x[SIDE], y[SIDE];                                                                 \
        const __mmask16 mx = (__mmask16)((1 << nx) - 1), my = (__mmask16)((1 << ny) - 1);         \
        const word *row = src;                                                                    \
        UNROLL for (int r = 0; r < SIDE; r++)                                                     \
        {                                                                                         \
            x[r] = ny == SIDE ? _mm512_loadu_si512(row)                                           \
                              : _mm512_maskz_loadu_epi##bits((__mmask##SIDE)my, row);             \
            row += r + 1 < nx ? ss : 0;                                                           \
        }                                                                                         \
        lanes_##bits(x, y);                                                                       \
        UNROLL for (int r = 0; r < SIDE; r++)                                                     \
        {                                                                                         \
            if (r >= ny) break;                                                                   \
            if (far)                                                                              \
                _mm512_stream_si512((void *)(dst + r * ds), y[r]);                                \
            else if (nx == SIDE)                                                                  \
                _mm512_storeu_si512(dst + r * ds, y[r]);                                          \
            else                                                                                  \
                _mm512_mask_storeu_epi##bits(dst + r * ds, (__mmask##SIDE)mx, y[r]);              \
        }                                                                                         \
    }                                                                                             \
    AVX512 static void turn_512_##word(int64_t nx, int64_t ny, const void *from, int64_t ss,      \
                                       void *to, int64_t ds, bool far)                            \
    {                                                                                             \
        const word *src = from;                                                                   \
        word *dst = to;                                                                           \
        const int64_t wx = nx - nx % SIDE, wy = ny - ny % SIDE;                                   \
        far = far && (uintptr_t)to % 64 == 0 && ds % SIDE == 0;                                   \
        if (far)                                                                                  \
            for (int64_t x = 0; x < wx; x += SIDE)                                                \
                for (int64_t y = 0; y < wy; y += SIDE)                                            \
                    square_512_##word(SIDE, SIDE, src + x * ss + y, ss, dst + y * ds + x, ds,     \
                                      true);                                                      \
        else if (ds < ss)                                                                         \
            for (int64_t x = 0; x < wx; x += SIDE)                                                \
                for (int64_t y = 0; y < wy; y += SIDE)                                            \
                    square_512_##word(SIDE, SIDE, src + x * ss + y, ss, dst + y * ds + x, ds,     \
                                      false);                                                     \
        else                                                                                      \
            for (int64_t y = 0; y < wy; y += SIDE)                                                \
                for (int64_t x = 0; x < wx; x += SIDE)                                            \
                    square_512_##word(SIDE, SIDE, src + x * ss + y, ss, dst + y * ds + x, ds,     \
                                      false);                                                     \
        const int px = (int)(nx - wx), py = (int)(ny - wy);                                       \
        if (px)                                                                                   \
            for (int64_t y = 0; y < wy; y += SIDE)                                                \
                square_512_##word(px, SIDE, src + wx * ss + y, ss, dst + y * ds + wx, ds, false); \
        if (py)                                                                                   \
            for (int64_t x = 0; x < wx; x += SIDE)                                                \
                square_512_##word(SIDE, py, src + x * ss + wy, ss, dst + wy * ds + x, ds, false); \
        if (px && py)                                                                             \
            square_512_##word(px, py, src + wx * ss + wy, ss, dst + wy * ds + wx, ds, false);     \
        if (far) _mm_sfence();                                                                    \
    }
TURN_512(uint32_t, 32, 16)
TURN_512(uint64_t, 64, 8)

/* every second number: two vectors, the last without what lies behind the last number */
#define HALVE_512(word, bits, SIDE, ...)                                                       \
    AVX512 static void halve_512_##word(int64_t n, int64_t rows, const void *from, int64_t ss, \
                                        void *to, int64_t ds)                                  \
    {                                                                                          \
        const __m512i even = __VA_ARGS__;                                                      \
        for (int64_t r = 0; r < rows; r++) {                                                   \
            const word *src = (const word *)from + r * ss;                                     \
            word *dst = (word *)to + r * ds;                                                   \
            for (int64_t i = 0; i < n; i += SIDE, src += 2 * SIDE, dst += SIDE) {              \
                const uint64_t have = n - i < SIDE ? (uint64_t)(n - i) : SIDE,                 \
                               in = ((uint64_t)1 << (2 * have - 1)) - 1;                       \
                const __m512i x = _mm512_maskz_loadu_epi##bits((__mmask##SIDE)in, src);        \
                const __m512i y =                                                              \
                    _mm512_maskz_loadu_epi##bits((__mmask##SIDE)(in >> SIDE), src + SIDE);     \
                _mm512_mask_storeu_epi##bits(dst, (__mmask##SIDE)((1u << have) - 1),           \
                                             _mm512_permutex2var_epi##bits(x, even, y));       \
            }                                                                                  \
        }                                                                                      \
    }
HALVE_512(uint32_t, 32, 16,
          _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30))
HALVE_512(uint64_t, 64, 8, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14))
#endif
#define HALVE(word)                                                                           \
    static void halve_##word(int64_t n, int64_t rows, const void *from, int64_t ss, void *to, \
                             int64_t ds)                                                      \
    {                                                                                         \
        for (int64_t r = 0; r < rows; r++) {                                                  \
            const word *src = (const word *)from + r * ss;                                    \
            word *dst = (word *)to + r * ds;                                                  \
            for (int64_t i = 0; i < n; i++) dst[i] = src[2 * i];                              \
        }                                                                                     \
    }
HALVE(uint32_t)
HALVE(uint64_t)

void eg__stream(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    const size_t before = -(uintptr_t)to % 64, head = before < bytes ? before : bytes,
                 lines = (bytes - head) / 64;
    memcpy(to, from, head);
    __m128i *y = (void *)((char *)to + head);
    const char *x = (const char *)from + head;
    for (size_t k = 0; k < 4 * lines; k++)
        _mm_stream_si128(y + k, _mm_loadu_si128((const void *)(x + 16 * k)));
    memcpy(y + 4 * lines, x + 64 * lines, bytes - head - 64 * lines);
#else
    memcpy(to, from, bytes);
#endif
}
void eg__stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

void eg__take_every_second(size_t width, int64_t n, int64_t rows, const void *src, int64_t ss,
                           void *dst, int64_t ds)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        (width == 4 ? halve_512_uint32_t : halve_512_uint64_t)(n, rows, src, ss, dst, ds);
        return;
    }
#endif
    (width == 4 ? halve_uint32_t : halve_uint64_t)(n, rows, src, ss, dst, ds);
}

void eg__transpose_narrow(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss,
                          void *dst, int64_t ds)
{
    (width == 4 ? turn_uint32_t : turn_uint64_t)(nx, ny, src, ss, dst, ds, false);
}
void eg__transpose(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss, void *dst,
                   int64_t ds, bool far)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        (width == 4 ? turn_512_uint32_t : turn_512_uint64_t)(nx, ny, src, ss, dst, ds, far);
        return;
    }
#endif
    (width == 4 ? turn_uint32_t : turn_uint64_t)(nx, ny, src, ss, dst, ds, far);
}
