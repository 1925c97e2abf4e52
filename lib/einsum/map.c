/* map.c: c[o] (+)= a[o] b[o], without a sum: copies, transpositions, diagonals, elementwise and outer products.
 *
 * Two axes make a tile: the one nearest in c, and the one nearest in a if that is another (a transposition, done in squares so
 * that both sides use whole cache lines), else the next. The other axes number the tiles. */
#include "einsum/gemm.h"
#include <string.h>

enum { TURN_X = 256, TURN_Y = 64 };         /* a transposition's tile: along c, along a; 64 MB transposed at 30 GB/s, 64 × 64 at 22 */
enum { FAR = 16 << 20 };                    /* bytes */

typedef struct tile { int64_t rows, n, ra, sa, rb, sb, rc, sc; } tile;      /* c[r·rc + i·sc] … */

#define MAP(name, type)                                                                                                            \
    EG_CLONES static void name(const tile *t, const type *a, const type *b, type *c, bool add)                                     \
    {                                                                                                                              \
        const int64_t n = t->n, sa = t->sa, sb = t->sb, sc = t->sc;                                                                \
        for (int64_t r = 0; r < t->rows; r++, a += t->ra, c += t->rc) {                                                            \
            if (!b) {                                                                                                              \
                if (sa == 1 && sc == 1) {                                                                                          \
                    if (add) for (int64_t i = 0; i < n; i++) c[i] += a[i];                                                         \
                    else for (int64_t i = 0; i < n; i++) c[i] = a[i];                                                              \
                } else if (add) for (int64_t i = 0; i < n; i++) c[i * sc] += a[i * sa];                                            \
                else for (int64_t i = 0; i < n; i++) c[i * sc] = a[i * sa];                                                        \
                continue;                                                                                                          \
            }                                                                                                                      \
            if (sc == 1 && sa == 1 && sb == 1) {                                                                                   \
                if (add) for (int64_t i = 0; i < n; i++) c[i] += a[i] * b[i];                                                      \
                else for (int64_t i = 0; i < n; i++) c[i] = a[i] * b[i];                                                           \
            } else if (sc == 1 && (sa == 0 || sb == 0) && sa + sb == 1) {                                                          \
                const type one = sa ? *b : *a, *many = sa ? a : b;                                                                 \
                if (add) for (int64_t i = 0; i < n; i++) c[i] += one * many[i];                                                    \
                else for (int64_t i = 0; i < n; i++) c[i] = one * many[i];                                                         \
            } else if (add) for (int64_t i = 0; i < n; i++) c[i * sc] += a[i * sa] * b[i * sb];                                    \
            else for (int64_t i = 0; i < n; i++) c[i * sc] = a[i * sa] * b[i * sb];                                                \
            b += t->rb;                                                                                                            \
        }                                                                                                                          \
    }
MAP(map_f32, float)
MAP(map_f64, double)

/* c[y·rc + x] = a[x·sa + y]. Squares of a vector's length are turned in registers: with AVX-512 both sides use whole cache lines, once;
 * what is left over goes element by element. `far`: the result is too large for the caches and goes past them. */
typedef void turn_run(const tile *t, const void *a, void *c, bool far);
#define TURN(name, word, SIDE, TARGET, square)                                                                                     \
    TARGET static void name(const tile *t, const void *av, void *cv, bool far)                                                     \
    {                                                                                                                              \
        const word *a = av;                                                                                                        \
        word *c = cv;                                                                                                              \
        const int64_t sa = t->sa, rc = t->rc, ny = t->rows - t->rows % SIDE, nx = t->n - t->n % SIDE;                              \
        for (int64_t x = 0; x < nx; x += SIDE)                                                                                     \
            for (int64_t y = 0; y < ny; y += SIDE) square(a + x * sa + y, sa, c + y * rc + x, rc, far);                            \
        for (int64_t y = 0; y < t->rows; y++) for (int64_t x = y < ny ? nx : 0; x < t->n; x++) c[y * rc + x] = a[x * sa + y];      \
    }
#define SHUFFLE(...) __builtin_shufflevector(__VA_ARGS__)
typedef uint32_t vec32 __attribute__((vector_size(16)));
typedef uint64_t vec64 __attribute__((vector_size(16)));
static inline void square_32(const uint32_t *a, int64_t sa, uint32_t *c, int64_t rc, bool far)
{
    (void)far;
    vec32 x[4], y[4];
    for (int r = 0; r < 4; r++) memcpy(&x[r], a + r * sa, 16);
    const vec32 p = SHUFFLE(x[0], x[1], 0, 4, 1, 5), q = SHUFFLE(x[2], x[3], 0, 4, 1, 5);
    const vec32 u = SHUFFLE(x[0], x[1], 2, 6, 3, 7), v = SHUFFLE(x[2], x[3], 2, 6, 3, 7);
    y[0] = SHUFFLE(p, q, 0, 1, 4, 5), y[1] = SHUFFLE(p, q, 2, 3, 6, 7);
    y[2] = SHUFFLE(u, v, 0, 1, 4, 5), y[3] = SHUFFLE(u, v, 2, 3, 6, 7);
    for (int r = 0; r < 4; r++) memcpy(c + r * rc, &y[r], 16);
}
static inline void square_64(const uint64_t *a, int64_t sa, uint64_t *c, int64_t rc, bool far)
{
    (void)far;
    vec64 x[2], y[2];
    for (int r = 0; r < 2; r++) memcpy(&x[r], a + r * sa, 16);
    y[0] = SHUFFLE(x[0], x[1], 0, 2);
    y[1] = SHUFFLE(x[0], x[1], 1, 3);
    for (int r = 0; r < 2; r++) memcpy(c + r * rc, &y[r], 16);
}
TURN(turn_32, uint32_t, 4, , square_32)
TURN(turn_64, uint64_t, 2, , square_64)

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX512 __attribute__((target("avx512f")))
/* the 4 × 4 transpose of 16-byte lanes: out[l] = lane l of x0, x1, x2, x3 */
#define TURN_LANES(x0, x1, x2, x3, o0, o1, o2, o3)                                                                                 \
    do {                                                                                                                           \
        const __m512i e0 = _mm512_shuffle_i32x4(x0, x1, 0x88), d0 = _mm512_shuffle_i32x4(x0, x1, 0xdd);                            \
        const __m512i e1 = _mm512_shuffle_i32x4(x2, x3, 0x88), d1 = _mm512_shuffle_i32x4(x2, x3, 0xdd);                            \
        o0 = _mm512_shuffle_i32x4(e0, e1, 0x88), o2 = _mm512_shuffle_i32x4(e0, e1, 0xdd);                                          \
        o1 = _mm512_shuffle_i32x4(d0, d1, 0x88), o3 = _mm512_shuffle_i32x4(d0, d1, 0xdd);                                          \
    } while (0)
#define STORE_ROWS(n)                                                                                                              \
    if (far) for (int r = 0; r < n; r++) _mm512_stream_si512((void *)(c + r * rc), y[r]);                                          \
    else for (int r = 0; r < n; r++) _mm512_storeu_si512(c + r * rc, y[r]);
AVX512 static inline __attribute__((always_inline)) void square_512_32(const uint32_t *a, int64_t sa, uint32_t *c, int64_t rc, bool far)
{
    __m512i x[16], y[16];
    for (int r = 0; r < 16; r++) x[r] = _mm512_loadu_si512(a + r * sa);
    for (int r = 0; r < 16; r += 4) {           /* lane l of x[r + q]: column 4l + q of rows r … r + 3 */
        const __m512i p = _mm512_unpacklo_epi32(x[r], x[r + 1]), q = _mm512_unpackhi_epi32(x[r], x[r + 1]);
        const __m512i u = _mm512_unpacklo_epi32(x[r + 2], x[r + 3]), v = _mm512_unpackhi_epi32(x[r + 2], x[r + 3]);
        x[r] = _mm512_unpacklo_epi64(p, u), x[r + 1] = _mm512_unpackhi_epi64(p, u);
        x[r + 2] = _mm512_unpacklo_epi64(q, v), x[r + 3] = _mm512_unpackhi_epi64(q, v);
    }
    for (int q = 0; q < 4; q++) TURN_LANES(x[q], x[4 + q], x[8 + q], x[12 + q], y[q], y[4 + q], y[8 + q], y[12 + q]);
    STORE_ROWS(16)
}
AVX512 static inline __attribute__((always_inline)) void square_512_64(const uint64_t *a, int64_t sa, uint64_t *c, int64_t rc, bool far)
{
    __m512i x[8], y[8];
    for (int r = 0; r < 8; r++) x[r] = _mm512_loadu_si512(a + r * sa);
    for (int r = 0; r < 8; r += 2) {
        const __m512i p = _mm512_unpacklo_epi64(x[r], x[r + 1]), q = _mm512_unpackhi_epi64(x[r], x[r + 1]);
        x[r] = p, x[r + 1] = q;
    }
    for (int q = 0; q < 2; q++) TURN_LANES(x[q], x[2 + q], x[4 + q], x[6 + q], y[q], y[2 + q], y[4 + q], y[6 + q]);
    STORE_ROWS(8)
}
TURN(turn_512_32, uint32_t, 16, AVX512, square_512_32)
TURN(turn_512_64, uint64_t, 8, AVX512, square_512_64)
static turn_run *turner(bool wide) { return eg__kernel_isa() == EG_ISA_AVX512 ? (wide ? turn_512_64 : turn_512_32) : wide ? turn_64 : turn_32; }
static void fence(void) { _mm_sfence(); }
#else
static turn_run *turner(bool wide) { return wide ? turn_64 : turn_32; }
static void fence(void) { }
#endif

static int64_t size_of(int64_t x) { return x < 0 ? -x : x; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

typedef struct job {
    const eg_list *tiles;
    const eg_axis *ax, *ay;
    int64_t nx, ny, bx, by, w, units, pieces;
    const char *a, *b; char *c;
    turn_run *turn;
    bool far, add;
} job;
static void unit(const job *j, int64_t u)
{
    const eg_axis *ax = j->ax, *ay = j->ay;
    const eg_place at = eg__place(j->tiles, u / (j->by * j->bx));
    const int64_t iy = u % (j->by * j->bx) / j->bx * j->ny, ix = u % j->bx * j->nx;
    const tile t = { .rows = least(j->ny, ay->size - iy), .n = least(j->nx, ax->size - ix), .ra = ay->sa, .sa = ax->sa, .rb = ay->sb, .sb = ax->sb,
                     .rc = ay->sc, .sc = ax->sc };
    const char *pa = j->a + j->w * (at.a + iy * ay->sa + ix * ax->sa);
    const char *pb = j->b ? j->b + j->w * (at.b + iy * ay->sb + ix * ax->sb) : NULL;
    char *pc = j->c + j->w * (at.c + iy * ay->sc + ix * ax->sc);
    if (j->turn) j->turn(&t, pa, pc, j->far);
    else if (j->w == 4) map_f32(&t, (const void *)pa, (const void *)pb, (void *)pc, j->add);
    else map_f64(&t, (const void *)pa, (const void *)pb, (void *)pc, j->add);
}
static void piece(void *user, int64_t k, int thread)
{
    (void)thread;
    const job *j = user;
    for (int64_t u = j->units * k / j->pieces; u < j->units * (k + 1) / j->pieces; u++) unit(j, u);
    if (j->far) fence();
}

bool eg__map(eg_ctx *cx, eg_dtype dtype, const eg_list *out, const void *a, const void *b, void *c, bool add)
{
    static const eg_axis one = { .size = 1 };
    const int64_t w = dtype == EG_F64 ? 8 : 4;
    eg_axis rest[EG_AXES_MAX];
    eg_list tiles = { .n = 0, .total = 1, .axis = rest };
    int x = out->n - 1, y = out->n - 2;
    bool turned = false;
    for (int i = 0; i < out->n - 1; i++)        /* does another axis move less in a (or in b)? */
        for (int s = 0; s < 2; s++) {
            int64_t here = size_of(s ? out->axis[i].sb : out->axis[i].sa), of_x = size_of(s ? out->axis[x].sb : out->axis[x].sa);
            if (here == 1 && of_x > 1 && out->axis[i].size > 2 && !turned) { y = i; turned = true; }
        }
    for (int i = 0; i < out->n; i++) if (i != x && i != y) { rest[tiles.n++] = out->axis[i]; tiles.total *= out->axis[i].size; }
    const eg_axis *ax = x >= 0 ? &out->axis[x] : &one, *ay = y >= 0 ? &out->axis[y] : &one;
    job j = { .tiles = &tiles, .ax = ax, .ay = ay, .w = w, .a = a, .b = b, .c = c, .add = add };
    if (turned && !b && !add && ax->sc == 1 && ay->sa == 1) {
        j.turn = turner(w == 8);
        j.far = out->total * w > FAR && ((uintptr_t)c | (uintptr_t)(w * ay->sc)) % 64 == 0;
        for (int i = 0; i < tiles.n; i++) if (w * rest[i].sc % 64) j.far = false;
    }
    /* a tile's size: of a transposition a few lines of c, and longer stretches of a; else rows of some thousand elements in all */
    j.nx = least(ax->size, turned ? TURN_X : 1 << 14);
    j.ny = least(ay->size, turned ? TURN_Y : (1 << 14) / j.nx > 0 ? (1 << 14) / j.nx : 1);
    j.bx = (ax->size + j.nx - 1) / j.nx;
    j.by = (ay->size + j.ny - 1) / j.ny;
    j.units = tiles.total * j.by * j.bx;
    const int team = eg__team(cx, out->total, 1 << 16);
    j.pieces = least(j.units, 8 * team);
    eg__parallel(cx, team, j.pieces, piece, &j);
    return true;
}
