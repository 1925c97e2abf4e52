/* map.c: c[o] (+)= a[o] b[o], without a sum: copies, transpositions, diagonals, elementwise and outer products.
 *
 * Two axes make a tile: the one nearest in c, and the one nearest in a if that is another (a transposition, done in squares so
 * that both sides use whole cache lines), else the next. The other axes number the tiles. */
#include "einsum/gemm.h"
#include <string.h>

typedef struct tile { int64_t rows, n, ra, sa, rb, sb, rc, sc; } tile;      /* c[r·rc + i·sc] … */

#define MAP(name, type)                                                                                                              \
    EG_CLONES static void name(const tile *t, const type *a, const type *b, type *c, bool add)                                       \
    {                                                                                                                                \
        const int64_t n = t->n, sa = t->sa, sb = t->sb, sc = t->sc;                                                                  \
        for (int64_t r = 0; r < t->rows; r++, a += t->ra, c += t->rc) {                                                              \
            if (!b) {                                                                                                                \
                if (sa == 1 && sc == 1) {                                                                                            \
                    if (add) for (int64_t i = 0; i < n; i++) c[i] += a[i];                                                           \
                    else for (int64_t i = 0; i < n; i++) c[i] = a[i];                                                                \
                } else if (add) for (int64_t i = 0; i < n; i++) c[i * sc] += a[i * sa];                                              \
                else for (int64_t i = 0; i < n; i++) c[i * sc] = a[i * sa];                                                          \
                continue;                                                                                                            \
            }                                                                                                                        \
            if (sc == 1 && sa == 1 && sb == 1) {                                                                                     \
                if (add) for (int64_t i = 0; i < n; i++) c[i] += a[i] * b[i];                                                        \
                else for (int64_t i = 0; i < n; i++) c[i] = a[i] * b[i];                                                             \
            } else if (sc == 1 && (sa == 0 || sb == 0) && sa + sb == 1) {                                                            \
                const type one = sa ? *b : *a, *many = sa ? a : b;                                                                   \
                if (add) for (int64_t i = 0; i < n; i++) c[i] += one * many[i];                                                      \
                else for (int64_t i = 0; i < n; i++) c[i] = one * many[i];                                                           \
            } else if (add) for (int64_t i = 0; i < n; i++) c[i * sc] += a[i * sa] * b[i * sb];                                      \
            else for (int64_t i = 0; i < n; i++) c[i * sc] = a[i * sa] * b[i * sb];                                                  \
            b += t->rb;                                                                                                              \
        }                                                                                                                            \
    }
MAP(map_f32, float)
MAP(map_f64, double)

/* c[y·rc + x] = a[x·sa + y]: squares of 16-byte rows are turned in registers, a cache line of c at a time */
typedef uint32_t vec32 __attribute__((vector_size(16)));
typedef uint64_t vec64 __attribute__((vector_size(16)));
#define SHUFFLE(...) __builtin_shufflevector(__VA_ARGS__)
#define SQUARE32(x, y)                                                                                                               \
    vec32 p = SHUFFLE(x[0], x[1], 0, 4, 1, 5), q = SHUFFLE(x[2], x[3], 0, 4, 1, 5);                                                  \
    vec32 u = SHUFFLE(x[0], x[1], 2, 6, 3, 7), v = SHUFFLE(x[2], x[3], 2, 6, 3, 7);                                                  \
    y[0] = SHUFFLE(p, q, 0, 1, 4, 5), y[1] = SHUFFLE(p, q, 2, 3, 6, 7);                                                              \
    y[2] = SHUFFLE(u, v, 0, 1, 4, 5), y[3] = SHUFFLE(u, v, 2, 3, 6, 7);
#define SQUARE64(x, y) y[0] = SHUFFLE(x[0], x[1], 0, 2); y[1] = SHUFFLE(x[0], x[1], 1, 3);
#define TURN(name, word, vec, LANES, SQUARE)                                                                                         \
    static void name(const tile *t, const word *a, word *c)                                                                          \
    {                                                                                                                                \
        enum { LINE = 64 / sizeof(word) };                                                                                           \
        const int64_t sa = t->sa, rc = t->rc, whole = t->rows - t->rows % LANES;                                                     \
        int64_t x = 0;                                                                                                               \
        for (; x + LINE <= t->n; x += LINE)                                                                                          \
            for (int64_t y = 0; y < t->rows; y += LANES) {                                                                           \
                if (y == whole) {                                                                                                    \
                    for (; y < t->rows; y++) for (int64_t i = x; i < x + LINE; i++) c[y * rc + i] = a[i * sa + y];                   \
                    break;                                                                                                           \
                }                                                                                                                    \
                for (int64_t i = x; i < x + LINE; i += LANES) {                                                                      \
                    vec from[LANES], to[LANES];                                                                                      \
                    for (int r = 0; r < LANES; r++) memcpy(&from[r], a + (i + r) * sa + y, 16);                                      \
                    SQUARE(from, to)                                                                                                 \
                    for (int r = 0; r < LANES; r++) memcpy(c + (y + r) * rc + i, &to[r], 16);                                        \
                }                                                                                                                    \
            }                                                                                                                        \
        for (int64_t y = 0; y < t->rows; y++) for (int64_t i = x; i < t->n; i++) c[y * rc + i] = a[i * sa + y];                      \
    }
TURN(turn_32, uint32_t, vec32, 4, SQUARE32)
TURN(turn_64, uint64_t, vec64, 2, SQUARE64)

static int64_t size_of(int64_t x) { return x < 0 ? -x : x; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

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
    const bool turn = turned && !b && !add && ax->sc == 1 && ay->sa == 1;
    /* a tile's size: of a transposition a few lines on both sides; else rows of some thousand elements in all */
    const int64_t nx = least(ax->size, turned ? 64 : 1 << 14), ny = least(ay->size, turned ? 64 : (1 << 14) / nx > 0 ? (1 << 14) / nx : 1);
    const int64_t bx = (ax->size + nx - 1) / nx, by = (ay->size + ny - 1) / ny, units = tiles.total * by * bx;
    const int team = eg__team(cx, out->total, 1 << 16);
    (void)team;
#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
    for (int64_t u = 0; u < units; u++) {
        const eg_place at = eg__place(&tiles, u / (by * bx));
        const int64_t iy = u % (by * bx) / bx * ny, ix = u % bx * nx;
        const tile t = { .rows = least(ny, ay->size - iy), .n = least(nx, ax->size - ix), .ra = ay->sa, .sa = ax->sa, .rb = ay->sb, .sb = ax->sb,
                         .rc = ay->sc, .sc = ax->sc };
        const char *pa = (const char *)a + w * (at.a + iy * ay->sa + ix * ax->sa);
        const char *pb = b ? (const char *)b + w * (at.b + iy * ay->sb + ix * ax->sb) : NULL;
        char *pc = (char *)c + w * (at.c + iy * ay->sc + ix * ax->sc);
        if (turn && w == 4) turn_32(&t, (const void *)pa, (void *)pc);
        else if (turn) turn_64(&t, (const void *)pa, (void *)pc);
        else if (w == 4) map_f32(&t, (const void *)pa, (const void *)pb, (void *)pc, add);
        else map_f64(&t, (const void *)pa, (const void *)pb, (void *)pc, add);
    }
    return true;
}
