/* map.c: c[o] (+)= alpha a[o] b[o], without a sum: copies, transpositions, diagonals, elementwise
 * and outer products.
 *
 * Two axes form a tile: the last one, with the smallest stride in c; and, if a or b is not
 * contiguous along it, the first axis along which that operand is (a transposition, computed in
 * tiles so that both sides use whole cache lines), else the last but one. If the tile would have
 * few elements, its rows run along the longest axis instead. The other axes number the tiles. */
#include "contraction/gemm.h"

/* A tile of a transposition: LONG elements along c, HIGH along a. 64 MB are transposed at 30 GB/s;
 * with tiles of 64 × 64 at 22. */
enum { LONG = 256, HIGH = 64, SMALL = 32 };

/* c[r·rc + i·sc] (+)= alpha a[r·ra + i·sa] b[r·rb + i·sb] for r < rows and i < n */
typedef struct tile {
    int64_t rows, n, ra, sa, rb, sb, rc, sc;
} tile;

#define REAL    float
#define NAME(x) x##_f32
#include "contraction/map_of.h"
#define REAL    double
#define NAME(x) x##_f64
#include "contraction/map_of.h"

typedef struct job {
    const eg_axes *tiles;
    const eg_axis *ax, *ay;
    int64_t nx, ny, bx, by, w, units, pieces;
    const char *a, *b;
    char *c;
    eg_dtype dtype, of[2];
    double alpha;
    bool transpose, stream, add;
} job;
static void map_tile(const job *j, const tile *t, const char *a, const char *b, char *c)
{
    if (j->w == 4)
        map_f32(t, (const void *)a, (const void *)b, (void *)c, (float)j->alpha, j->add);
    else
        map_f64(t, (const void *)a, (const void *)b, (void *)c, j->alpha, j->add);
}
/* Returns n elements of a row, converted in `buffer` if their type is narrower; sets *step to the
 * step of the result. */
static const char *map_row(const job *j, int which, const char *x, int64_t n, int64_t *step,
                           double *buffer)
{
    if (!x || j->of[which] == j->dtype) return x;
    eg__widen_rows(j->dtype, j->of[which], 1, *step ? n : 1, x, 0, *step, buffer, 0);
    *step = *step ? 1 : 0;
    return (const char *)buffer;
}
/* Computes a tile row by row, in parts, if an operand must be converted. */
static void map_widened(const job *j, const tile *t, const char *a, const char *b, char *c)
{
    enum { SOME = 512 };
    double near[2][SOME];
    const int64_t wa = eg__width[j->of[0]], wb = eg__width[j->of[1]];
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t i = 0; i < t->n; i += SOME) {
            tile one = {
                .rows = 1, .n = eg__min64(SOME, t->n - i), .sa = t->sa, .sb = t->sb, .sc = t->sc
            };
            const char *x =
                map_row(j, 0, a + wa * (r * t->ra + i * t->sa), one.n, &one.sa, near[0]);
            const char *y = b ? b + wb * (r * t->rb + i * t->sb) : NULL;
            y = map_row(j, 1, y, one.n, &one.sb, near[1]);
            map_tile(j, &one, x, y, c + j->w * (r * t->rc + i * t->sc));
        }
}
/* Computes tile number u. */
static void map_unit(const job *j, int64_t u)
{
    const eg_axis *ax = j->ax, *ay = j->ay;
    const eg_offsets at = eg__offsets_of(j->tiles, u / (j->by * j->bx));
    const int64_t iy = u % (j->by * j->bx) / j->bx * j->ny, ix = u % j->bx * j->nx;
    const tile t = { .rows = eg__min64(j->ny, ay->size - iy),
                     .n = eg__min64(j->nx, ax->size - ix),
                     .ra = ay->sa,
                     .sa = ax->sa,
                     .rb = ay->sb,
                     .sb = ax->sb,
                     .rc = ay->sc,
                     .sc = ax->sc };
    const char *pa = j->a + eg__width[j->of[0]] * (at.a + iy * ay->sa + ix * ax->sa);
    const char *pb = j->b ? j->b + eg__width[j->of[1]] * (at.b + iy * ay->sb + ix * ax->sb) : NULL;
    char *pc = j->c + j->w * (at.c + iy * ay->sc + ix * ax->sc);
    if (j->transpose)
        eg__transpose((size_t)j->w, t.n, t.rows, pa, t.sa, pc, t.rc, j->stream);
    else if (eg__widens(j->dtype, j->of))
        map_widened(j, &t, pa, pb, pc);
    else
        map_tile(j, &t, pa, pb, pc);
}
static void map_piece(void *user, int64_t k, int thread)
{
    (void)thread;
    const job *j = user;
    for (int64_t u = j->units * k / j->pieces; u < j->units * (k + 1) / j->pieces; u++)
        map_unit(j, u);
}

/* Chooses the two axes of a tile and its size, and divides the tiles among threads. */
bool eg__map(eg_ctx *cx, eg_dtype dtype, const eg_dtype of[2], const eg_axes *out, const void *a,
             const void *b, void *c, double alpha, bool add)
{
    static const eg_axis one = { .size = 1 };
    const int64_t w = dtype == EG_F64 ? 8 : 4;
    eg_axis rest[EG_PAIR_AXES];
    eg_axes tiles = { .n = 0, .total = 1, .axis = rest };
    int x = out->n - 1, y = out->n - 2;
    bool transposed = false;
    for (int i = 0; i < out->n - 1; i++) /* the first axis along which a or b is contiguous */
        for (int s = 0; s < 2; s++) {
            int64_t here = eg__abs64(s ? out->axis[i].sb : out->axis[i].sa),
                    of_x = eg__abs64(s ? out->axis[x].sb : out->axis[x].sa);
            if (here == 1 && of_x > 1 && out->axis[i].size > 2 && !transposed) {
                y = i;
                transposed = true;
            }
        }
    if (!transposed && y >= 0 && out->total && out->axis[y].size <= SMALL / out->axis[x].size) {
        const int last = x; /* few elements: rows along the longest axis instead */
        for (int i = 0; i < out->n; i++)
            if (out->axis[i].size > out->axis[x].size) x = i, y = last;
    }
    for (int i = 0; i < out->n; i++)
        if (i != x && i != y) {
            rest[tiles.n++] = out->axis[i];
            tiles.total *= out->axis[i].size;
        }
    const eg_axis *ax = x >= 0 ? &out->axis[x] : &one, *ay = y >= 0 ? &out->axis[y] : &one;
    job j = { .tiles = &tiles,
              .ax = ax,
              .ay = ay,
              .w = w,
              .a = a,
              .b = b,
              .c = c,
              .dtype = dtype,
              .of = { of[0], of[1] },
              .alpha = alpha,
              .add = add };
    if (transposed && !eg__widens(dtype, of) && !b && alpha == 1 && !add && ax->sc == 1 &&
        ay->sa == 1) {
        j.transpose = true;
        j.stream = out->total * w > EG_STREAM_BYTES;
    }
    /* the size of a tile: for a transposition a few lines of c and longer runs of a; else rows with
     * some thousand elements in all */
    j.nx = eg__min64(ax->size, transposed ? LONG : 1 << 14);
    j.ny = eg__min64(ay->size, transposed ? HIGH : (1 << 14) / j.nx > 0 ? (1 << 14) / j.nx : 1);
    j.bx = (ax->size + j.nx - 1) / j.nx;
    j.by = (ay->size + j.ny - 1) / j.ny;
    j.units = tiles.total * j.by * j.bx;
    const int team = eg__team(cx, out->total, 1 << 16);
    j.pieces = team > 1 ? eg__min64(j.units, 8 * team) : 1;
    eg__parallel(cx, team, j.pieces, map_piece, &j);
    return true;
}
