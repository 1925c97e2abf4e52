/* direct.c: products without packing b. The contiguous axis m of c is along vectors, and elements
 * of b are broadcast from their addresses. a is read in place if it is contiguous along m and its
 * rows are near each other, or if each is read once; else a strip of it is transposed or copied
 * first. If a does not fit in the cache and b has few columns, the next strip is prefetched.
 * Products that are large in m, n and k are faster packed (gemm.c). If a is of f16 or bf16, its
 * strips are converted while they are copied; b is not converted here. An element is summed over k
 * in the same order and in the same blocks as there, which gives the same bits. */
#include "contraction/prefetch.h"
#include <string.h>

/* TILE_MOST, ALONE_MOST: the most columns of a tile of several vectors, and of one vector. SHORT: a
 * sum of at most so many terms counts as short. PANEL: columns of a panel; a divisor of the usual
 * widths of heads. PREFETCH_LEAST: sums of at least so many terms take longer than memory does, so
 * c is prefetched before them. WIDENED_MOST: with more columns, an operand that is converted is
 * faster packed. PREFETCH_MOST: with more columns, the tiles take most of the time, and a is not
 * prefetched by them. SOON, SOON_B: rows of a that are far apart, and rows of a packed panel of b,
 * are prefetched so many rows ahead. */
enum {
    TILE_MOST = 12,
    ALONE_MOST = 16,
    SHORT = 16,
    PANEL = 8,
    PREFETCH_LEAST = 32,
    WIDENED_MOST = 16,
    PREFETCH_MOST = 32,
    SOON = 4,
    SOON_B = 16
};
/* Bytes. Where all batches have more than AHEAD_BYTES, the operands of the next product are
 * prefetched, if they have at least AHEAD_LEAST and at most AHEAD_MOST bytes together, and at most
 * AHEAD_EACH for each tile: a core waits for more lines than it can have on the way. */
enum {
    B_BYTES = 384 << 10,
    NEAR = 1024,
    AHEAD_BYTES = 2 << 20,
    AHEAD_LEAST = 4 << 10,
    AHEAD_MOST = 512 << 10,
    AHEAD_EACH = 48 * EG_LINE
};
/* A product is packed if its sizes are at least PACKED_LEAST, the product of any two at least
 * PACKED_FACE, and its multiply-adds at least PACKED_WORK. */
enum {
    PACKED_LEAST = 64,
    PACKED_FACE = 1 << 14,
    PACKED_WORK_F32 = 1 << 26,
    PACKED_WORK_F64 = 1 << 23
};
typedef void scatter_run(int64_t rows, int64_t cols, const void *tile, int64_t ts, void *c,
                         const int64_t *m, const int64_t *n, const int64_t *stretch, bool add);
/* Addresses to prefetch: a vector of two registers `from`, then others `step` elements apart; after
 * `run` of them `jump` more elements on. */
typedef struct prefetch_list {
    const void *from;
    int64_t step, run, jump;
} prefetch_list;
typedef void prefetching_run(int64_t k, const void *a, int64_t ak, const void *b, int64_t bk,
                             int64_t bn, void *c, int64_t cn, double alpha, bool add,
                             const prefetch_list *list);
/* TILE_LISTED: tiles prefetch the lines of a list; TILE_AHEAD: the rows of a, SOON rows ahead,
 * and columns of b */
typedef enum tile_kind { TILE_PLAIN, TILE_LISTED, TILE_AHEAD } tile_kind;
/* The kernels of a type. lanes: of a vector; most, alone: columns of a tile of two vectors and of
 * one, at most. The table is tile[vectors − 1][whole][columns − 1]. */
typedef struct small {
    int lanes, most, alone;
    scatter_run *scatter;
    eg_copy_run *copy[2]; /* of one vector, of two */
    eg_tile_run *tile[2][2][ALONE_MOST];
    prefetching_run *prefetching[TILE_MOST]; /* tile[1][1], which prefetch */
    eg_batch_run *batch[2][ALONE_MOST];      /* tile[0][whole] of many products */
    /* tile[1][1] of many products with EG_FAR_LEAST columns and more, whose rows of a are far apart
     */
    eg_batch_run *far[TILE_MOST - EG_FAR_LEAST + 1];
} small;

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#if __has_feature(address_sanitizer) /* unrolled, its checks take clang a minute */
#define UNROLL
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#endif
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Keeps the compiler from deriving x from other numbers. */
#define OPAQUE(x) __asm__("" : "+r"(x))
/* FENCE keeps the compiler from moving loads to before it. */
#define FENCE __asm__ volatile("" ::: "memory")
/* WIDE_ADD: s[v] += x[v]·*at for both vectors, each sum in its own register; from intrinsics the
 * compiler would copy sums to other registers. y: a register that is overwritten. WIDE_ADD_AT: the
 * same, with *at as an operand in memory of both multiply-adds. KIND and TO are parts of the names:
 * "s" and "16" for floats. */
#define WIDE_ADD(s, x, y, at)                                                                \
    __asm__("vbroadcasts" KIND " %3, %2\n\tvfmadd231p" KIND " %2, %4, %0\n\tvfmadd231p" KIND \
            " %2, %5, %1"                                                                    \
            : "+v"((s)[0]), "+v"((s)[1]), "=&v"(y)                                           \
            : "m"(*(at)), "v"((x)[0]), "v"((x)[1]))
#define WIDE_ADD_AT(s, x, at)                                                             \
    __asm__("vfmadd231p" KIND " %2%{1to" TO "%}, %3, %0\n\tvfmadd231p" KIND " %2%{1to" TO \
            "%}, %4, %1"                                                                  \
            : "+v"((s)[0]), "+v"((s)[1])                                                  \
            : "m"(*(at)), "v"((x)[0]), "v"((x)[1]))
#define TARGET          __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define WIDE_TILES      1
#define MOST            12
#define WIDE_COLUMNS    12
#define REAL            float
#define NAME(x)         x##_512_f32
#define VEC             __m512
#define LANES           16
#define MASK            __mmask16
#define MASK_OF(n)      (MASK)((n) >= LANES ? 0xffff : (n) <= 0 ? 0 : (1 << (n)) - 1)
#define ZERO            _mm512_setzero_ps()
#define SET(x)          _mm512_set1_ps(x)
#define FMA             _mm512_fmadd_ps
#define KIND            "s"
#define TO              "16"
#define ADD             _mm512_add_ps
#define MUL             _mm512_mul_ps
#define LOAD(p, m)      _mm512_maskz_loadu_ps(m, p)
#define LOAD_ALL(p)     _mm512_loadu_ps(p)
#define STORE(p, m, x)  _mm512_mask_storeu_ps(p, m, x)
#define STORE_ALL(p, x) _mm512_storeu_ps(p, x)
#include "contraction/direct_of.h"

#define WIDE_COLUMNS    14
#define REAL            double
#define NAME(x)         x##_512_f64
#define VEC             __m512d
#define LANES           8
#define MASK            __mmask8
#define MASK_OF(n)      (MASK)((n) >= LANES ? 0xff : (n) <= 0 ? 0 : (1 << (n)) - 1)
#define ZERO            _mm512_setzero_pd()
#define SET(x)          _mm512_set1_pd(x)
#define FMA             _mm512_fmadd_pd
#define KIND            "d"
#define TO              "8"
#define ADD             _mm512_add_pd
#define MUL             _mm512_mul_pd
#define LOAD(p, m)      _mm512_maskz_loadu_pd(m, p)
#define LOAD_ALL(p)     _mm512_loadu_pd(p)
#define STORE(p, m, x)  _mm512_mask_storeu_pd(p, m, x)
#define STORE_ALL(p, x) _mm512_storeu_pd(p, x)
#include "contraction/direct_of.h"
#undef TARGET
#undef WIDE_TILES
#undef MOST

#define TARGET     __attribute__((target("avx2,fma")))
#define WIDE_TILES 0
#define MOST       6
#define REAL       float
#define NAME(x)    x##_256_f32
#define VEC        __m256
#define LANES      8
#define MASK       __m256i
#define MASK_OF(n) \
    _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define ZERO            _mm256_setzero_ps()
#define SET(x)          _mm256_set1_ps(x)
#define FMA             _mm256_fmadd_ps
#define ADD             _mm256_add_ps
#define MUL             _mm256_mul_ps
#define LOAD(p, m)      _mm256_maskload_ps(p, m)
#define LOAD_ALL(p)     _mm256_loadu_ps(p)
#define STORE(p, m, x)  _mm256_maskstore_ps(p, m, x)
#define STORE_ALL(p, x) _mm256_storeu_ps(p, x)
#include "contraction/direct_of.h"

#define REAL            double
#define NAME(x)         x##_256_f64
#define VEC             __m256d
#define LANES           4
#define MASK            __m256i
#define MASK_OF(n)      _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3))
#define ZERO            _mm256_setzero_pd()
#define SET(x)          _mm256_set1_pd(x)
#define FMA             _mm256_fmadd_pd
#define ADD             _mm256_add_pd
#define MUL             _mm256_mul_pd
#define LOAD(p, m)      _mm256_maskload_pd(p, m)
#define LOAD_ALL(p)     _mm256_loadu_pd(p)
#define STORE(p, m, x)  _mm256_maskstore_pd(p, m, x)
#define STORE_ALL(p, x) _mm256_storeu_pd(p, x)
#include "contraction/direct_of.h"

#endif
static const small *small_of(eg_dtype dtype)
{
#if defined(__x86_64__)
    switch (eg__kernel_isa()) {
    case EG_ISA_AVX512: return dtype == EG_F64 ? &small_512_f64 : &small_512_f32;
    case EG_ISA_AVX2: return dtype == EG_F64 ? &small_256_f64 : &small_256_f32;
    default: break;
    }
#endif
    (void)dtype;
    return NULL;
}

static void panels_of_blis(const eg_panel_kernel *k, int64_t depth, const void *a, const void *b,
                           int64_t b_step, int64_t columns, bool add, void *c, eg_ahead_list *next)
{
    const eg_kernel *kn = k->kernel;
    const char *panel = b;
    char *to = c;
    for (int64_t j = 0; j < columns; j += k->narrow, panel += b_step, to += k->tile_bytes) {
        if (next && next->lines > 0)
            eg__ahead_list_prefetch(next, depth * k->narrow / EG_AHEAD_TERMS);
        if (kn->rows)
            kn->run(kn, depth, 1, panel, a, add, to, k->wide, 1);
        else
            kn->run(kn, depth, 1, a, panel, add, to, 1, k->wide);
    }
}
/* With vectors of 64 bytes the library's own kernel is used: BLIS's panels of 12 and 14 columns
 * would be padded by 12 % at a width of 64. */
eg_panel_kernel eg__panel_kernel(eg_dtype dtype)
{
    const eg_kernel *kn = eg__kernel(dtype);
    eg_panel_kernel k = { .wide = kn->rows ? kn->nr : kn->mr,
                          .narrow = kn->rows ? kn->mr : kn->nr,
                          .run = panels_of_blis,
                          .kernel = kn };
#if defined(__x86_64__)
    if (eg__kernel_isa() == EG_ISA_AVX512) {
        k.wide = dtype == EG_F64 ? 16 : 32;
        k.narrow = PANEL;
        k.run = dtype == EG_F64 ? panels_512_f64 : panels_512_f32;
    }
#endif
    k.tile_bytes = (int64_t)k.narrow * k.wide * (dtype == EG_F64 ? 8 : 4);
    return k;
}

const eg_wide *eg__wide_kernel(eg_dtype dtype)
{
#if defined(__x86_64__)
    static const eg_wide f32 = { wide_512_f32, copy_2_512_f32 },
                         f64 = { wide_512_f64, copy_2_512_f64 };
    const eg_kernel *kn = eg__kernel(dtype);
    if (eg__kernel_isa() == EG_ISA_AVX512 && !kn->rows) {
        if (dtype == EG_F32 && kn->mr == 32 && kn->nr == 12) return &f32;
        if (dtype == EG_F64 && kn->mr == 16 && kn->nr == 14) return &f64;
    }
#endif
    (void)dtype;
    return NULL;
}
int eg__direct_lanes(eg_dtype dtype)
{
    const small *s = small_of(dtype);
    return s ? s->lanes : 0;
}
int eg__direct_columns(eg_dtype dtype)
{
    const small *s = small_of(dtype);
    return s ? s->most : 0;
}

static size_t width_of(const eg_gemm *g) { return g->dtype == EG_F64 ? 8 : 4; }

/* Returns the number of columns of b that are used before the next strip of a: as many as remain in
 * the second-level cache, counted by their cache lines. If the sum is short, the rows of the result
 * dominate the traffic; the number is then that of one tile. */
static int64_t block_of(const eg_gemm *g, const small *s)
{
    const int64_t w = (int64_t)width_of(g), k = eg__min64(g->k.total, EG_KC);
    const int64_t apart =
        eg__min64(64, w * eg__min64(eg__abs64(g->k.axis[0].sb), eg__abs64(g->n.axis[0].sb)));
    const int64_t most = k <= SHORT && g->n.total > 8 * s->most
                             ? s->most
                             : B_BYTES / (k * (apart > w ? apart : w)) / s->most * s->most;
    return eg__min64(most, (g->n.total + s->most - 1) / s->most * s->most);
}
/* True if a is read once, from memory: the tiles of a strip prefetch the next one. */
static bool direct_prefetches(const eg_gemm *g)
{
    const bool rows = g->m.axis[0].sa == 1 || g->k.axis[0].sa == 1;
    return g->of[0] == g->dtype && rows && g->n.total <= PREFETCH_MOST &&
           g->m.total * g->k.total * (int64_t)width_of(g) > EG_CACHED_BYTES;
}
/* True if a can be read in place: its rows are of g's type, along vectors, and do not share a cache
 * set when every tile of columns reads them again. If they lie far apart, several tiles read them,
 * and they do not stay in a cache, they are copied: a step of a decoder of width 512 with 2 and 4
 * sequences takes 0.7 to 0.8 of the time, while products with 512 x 256 numbers, which stay in a
 * cache, would take 1.3 times as long. */
static bool direct_in_place(const eg_gemm *g)
{
    const int64_t w = (int64_t)width_of(g);
    return g->of[0] == g->dtype && g->m.axis[0].sa == 1 &&
           ((direct_prefetches(g) && g->n.total <= small_of(g->dtype)->most) ||
            g->k.total <= TILE_MOST || eg__abs64(g->k.axis[0].sa) * w <= NEAR ||
            (g->n.total <= 2 * TILE_MOST && g->m.total * g->k.total * w <= EG_CACHED_BYTES));
}

/* True if the product is faster packed: with fewer multiply-adds the copies take longer than what
 * they save, unless all sizes are large. */
static bool direct_too_large(const eg_gemm *g)
{
    const int64_t m = g->m.total, n = g->n.total, k = g->k.total;
    if (m > EG_KC && n > EG_KC && k > EG_KC) return true;
    if (eg__min64(eg__min64(m, n), k) < PACKED_LEAST) return false;
    if (eg__min64(eg__min64(m * n, n * k), m * k) < PACKED_FACE) return false;
    const double work = (double)m * (double)n * (double)k;
    return work >= (g->dtype == EG_F64 ? PACKED_WORK_F64 : PACKED_WORK_F32);
}

bool eg__direct_suits(const eg_gemm *g)
{
    const small *s = small_of(g->dtype);
    if (!s || g->m.n != 1 || g->n.n != 1 || g->k.n != 1 || g->m.axis[0].sc != 1) return false;
    if (g->of[1] != g->dtype || (g->of[0] != g->dtype && g->n.total > WIDENED_MOST)) return false;
    if (direct_too_large(g)) return false;
    const int64_t block = block_of(g, s);
    return g->k.total <= SHORT || block >= g->n.total || block >= 4 * s->most ||
           g->m.total <= 2 * s->lanes;
}
/* The columns of a block, cut into tiles of almost equal width: the first `wider` tiles have one
 * column more. */
typedef struct columns {
    int64_t tiles, each, wider;
} columns;
static columns columns_of(int64_t n, int most)
{
    if (n <= most) return (columns){ 1, n, 0 };
    const int64_t tiles = (n + most - 1) / most, each = n / tiles;
    return (columns){ tiles, each, n - each * tiles };
}
/* The columns of a product that is one strip and one block. */
static columns columns_of_single(const eg_gemm *g, const small *s)
{
    const eg_axis *n = g->n.axis;
    /* columns a multiple of 4096 bytes apart share a set of the first-level cache, which has 8
     * lines */
    const bool meet = n->sb * (int64_t)width_of(g) % 4096 == 0;
    return columns_of(n->size, g->m.total > s->lanes  ? s->most
                               : meet && s->alone > 8 ? 8
                                                      : s->alone);
}
/* Sets the kernels of products that are a single tile. */
static void tiling_of_single(eg_tiling *t, const eg_gemm *g, const small *s)
{
    const int v = g->m.total > s->lanes, whole = g->m.total == (v + 1) * s->lanes;
    const columns of = columns_of_single(g, s);
    if (of.tiles > 1) return;
    t->tile = s->tile[v][whole][of.each - 1];
    if (!t->in_place) return;
    if (!v)
        t->batch = s->batch[whole][of.each - 1];
    else if (whole && of.each >= EG_FAR_LEAST && g->k.total >= PREFETCH_LEAST &&
             eg__abs64(g->k.axis->sa) * (int64_t)width_of(g) > NEAR)
        t->batch = s->far[of.each - EG_FAR_LEAST];
}
static void direct_cut(eg_tiling *t, const eg_gemm *g, int64_t block) /* divides n into blocks */
{
    t->block = block;
    t->blocks = (g->n.total + block - 1) / block;
    t->units = t->strips * t->blocks * g->batch.total;
    t->single = t->strips == 1 && t->blocks == 1 && g->k.total <= EG_KC && !t->ahead;
}
eg_tiling eg__direct_tiling(const eg_gemm *g)
{
    const small *s = small_of(g->dtype);
    eg_tiling t = { .kernels = s,
                    .strip = 2 * s->lanes,
                    .in_place = direct_in_place(g),
                    .prefetches = direct_prefetches(g) };
    t.strips = (g->m.total + t.strip - 1) / t.strip;
    t.strip_bytes = t.in_place ? 0 : t.strip * eg__min64(g->k.total, EG_KC) * (int64_t)width_of(g);
    const int64_t of_two = (g->m.total + g->n.total) * g->k.total * (int64_t)width_of(g),
                  tiles = t.strips * ((g->n.total + s->most - 1) / s->most) *
                          ((g->k.total + EG_KC - 1) / EG_KC);
    t.ahead =
        g->of[0] == g->dtype && of_two > AHEAD_LEAST && of_two <= AHEAD_MOST &&
        of_two <= AHEAD_EACH * tiles &&
        (of_two + g->m.total * g->n.total * (int64_t)width_of(g)) * g->batch.total > AHEAD_BYTES;
    direct_cut(&t, g, block_of(g, s));
    if (t.single) tiling_of_single(&t, g, s);
    return t;
}

#define PLAIN(type)                                                   \
    for (int64_t j = 0; j < cols; j++)                                \
        for (int64_t i = 0; i < rows; i++) {                          \
            type *to = (type *)c + m[i] + n[j];                       \
            *to = ((const type *)tile)[i + j * ts] + (add ? *to : 0); \
        }
void eg__scatter(size_t width, int64_t rows, int64_t cols, const void *tile, int64_t ts, void *c,
                 const int64_t *m, const int64_t *n, const int64_t *stretch, bool add)
{
    const small *s = small_of(width == 8 ? EG_F64 : EG_F32);
    if (s)
        s->scatter(rows, cols, tile, ts, c, m, n, stretch, add);
    else if (width == 8)
        PLAIN(double)
    else
        PLAIN(float)
}
#undef PLAIN

/* Returns the address of the rows of a as vectors: in place, or transposed, copied or converted to
 * `buffer`. Sets *ak to the step of k there. */
static const char *rows_of(const eg_gemm *g, const char *a, int64_t lanes, int64_t kc, char *buffer,
                           int64_t *ak)
{
    const eg_axis *m = g->m.axis, *k = g->k.axis;
    const small *s = g->tiling.kernels;
    const int one = s->lanes;
    int64_t off[2 * 16];
    *ak = k->sa;
    if (g->tiling.in_place) return a;
    *ak = lanes > one ? 2 * one : one;
    const bool same = g->of[0] == g->dtype;
    if (same && k->sa == 1 && lanes == *ak) {
        eg__transpose(width_of(g), lanes, kc, a, m->sa, buffer, lanes, false);
        return buffer;
    }
    if (same && m->sa == 1) {
        s->copy[lanes > one](lanes, kc, a, k->sa, buffer, !g->tiling.prefetches);
        return buffer;
    }
    for (int64_t q = 0; q < lanes; q++) off[q] = q * m->sa;
    eg__pack_from(g->dtype, g->of[0], (int)*ak, lanes, off, m->sa, 1, &(eg_run){ 0, kc, k->sa }, a,
                  buffer, kc);
    return buffer;
}

/* Computes one small product. The rows of a are vectors at a distance of ak. */
EG_INLINE void one_product(const eg_gemm *g, const char *a, int64_t ak, const char *b, char *c,
                           double alpha, bool add, const eg_finish *finish)
{
    const eg_axis *m = g->m.axis, *n = g->n.axis, *k = g->k.axis;
    const small *s = g->tiling.kernels;
    const int64_t w = (int64_t)width_of(g);
    if (g->tiling.tile && !finish) {
        g->tiling.tile(m->size, k->size, a, ak, b, k->sb, n->sb, c, n->sc, alpha, add);
        return;
    }
    const int v = m->size > s->lanes, whole = m->size == (v + 1) * s->lanes;
    const columns of = columns_of_single(g, s);
    for (int64_t q = 0; q < of.tiles; q++) {
        const int64_t cols = of.each + (q < of.wider);
        if (finish) eg__finish_prefetch(finish, c, m->size * w, cols, n->sc * w);
        s->tile[v][whole][cols - 1](m->size, k->size, a, ak, b, k->sb, n->sb, c, n->sc, alpha, add);
        if (finish) finish->run(finish, c, m->size, cols, n->sc);
        b += w * cols * n->sb;
        c += w * cols * n->sc;
    }
}
void eg__direct_once(const eg_gemm *g, const void *a, const void *b, void *c, double alpha,
                     bool add, const eg_finish *finish)
{
    one_product(g, a, g->k.axis->sa, b, c, alpha, add, finish);
}
/* Computes batches [from, to), those along the innermost axis by one call of tiling.batch. */
static void single_tiles(const eg_gemm *g, int64_t from, int64_t to)
{
    const eg_axis *m = g->m.axis, *n = g->n.axis, *k = g->k.axis,
                  *last = g->batch.n ? &g->batch.axis[g->batch.n - 1] : NULL;
    const int64_t w = (int64_t)width_of(g), sharing = g->tiling.sharing;
    eg_tile_batch batch = { .count = 1 };
    if (last) batch.a = last->sa, batch.b = last->sb, batch.c = last->sc;
    for (; from < to; from += batch.count) {
        const eg_offsets at = eg__offsets_of(&g->batch, from);
        if (last) batch.count = eg__min64(to - from, last->size - from % last->size);
        if (sharing) {
            batch.number = from % sharing;
            batch.ahead =
                from - batch.number + sharing < g->batch.total ? g->tiling.next : g->tiling.beyond;
        }
        g->tiling.batch(&batch, m->size, k->size, g->a + w * at.a, k->sa, g->b + w * at.b, k->sb,
                        n->sb, g->c + w * at.c, n->sc, g->alpha, g->add);
    }
}
/* Computes many small products: batches [from, to). */
static void singles(const eg_gemm *g, int64_t from, int64_t to, char *buffer)
{
    const int64_t w = (int64_t)width_of(g), wa = eg__width[g->of[0]];
    if (g->tiling.batch && !g->finish) {
        single_tiles(g, from, to);
        return;
    }
    eg_axes_walk batch;
    eg__axes_walk_to(&batch, &g->batch, from);
    for (; from < to; from++, eg__axes_walk_on(&batch)) {
        int64_t ak;
        const char *a = rows_of(g, g->a + wa * batch.at.a, g->m.total, g->k.total, buffer, &ak);
        one_product(g, a, ak, g->b + w * batch.at.b, g->c + w * batch.at.c, g->alpha, g->add,
                    g->finish);
    }
}
/* A block of the columns of b in one product of the batch. */
typedef struct direct_block {
    eg_offsets at;
    int64_t left; /* the first column */
    columns of;
    eg_ahead next[2]; /* the operands of the next product, and how many of their lines are
                       * prefetched with each tile */
    int64_t lines[2];
} direct_block;
/* Begins to prefetch the operands of a product, at `on`. */
static void block_prefetches(const eg_gemm *g, direct_block *x, eg_offsets on)
{
    const eg_tiling *t = &g->tiling;
    const eg_axis *m = g->m.axis, *n = g->n.axis, *k = g->k.axis;
    const int64_t w = (int64_t)width_of(g),
                  calls = t->strips * t->blocks * x->of.tiles * ((k->size + EG_KC - 1) / EG_KC);
    x->next[0] = eg__ahead_of(g->a + w * on.a, w, m, m->sa, k, k->sa);
    x->next[1] = eg__ahead_of(g->b + w * on.b, w, n, n->sb, k, k->sb);
    for (int i = 0; i < 2; i++) x->lines[i] = (eg__ahead_lines(&x->next[i]) + calls - 1) / calls;
}
/* Returns the lines of a part of a strip, of `depth` terms, which begins at `from`. */
static prefetch_list strip_lines(const eg_gemm *g, const char *from, int64_t depth)
{
    const int64_t strip = g->tiling.strip, m = g->m.axis->sa, k = g->k.axis->sa;
    if (m == 1) return (prefetch_list){ from, k, INT64_MAX, 0 };
    const int64_t run = depth / strip > 1 ? depth / strip : 1;
    return (prefetch_list){ from, strip, run, m - run * strip };
}
/* The part of a strip of the rows of a that begins at row i, term p */
typedef struct strip_part {
    int64_t i, p;
} strip_part;
/* Adds the terms of a part, at most EG_KC, and prefetches the next one if the tiling says so. */
static void part_run(const eg_gemm *g, direct_block *x, strip_part at, strip_part next,
                     char *buffer)
{
    const eg_tiling *t = &g->tiling;
    const small *s = t->kernels;
    const eg_axis *m = g->m.axis, *n = g->n.axis, *k = g->k.axis;
    const int64_t w = (int64_t)width_of(g), wa = eg__width[g->of[0]];
    const int64_t lanes = eg__min64(t->strip, m->size - at.i),
                  kc = eg__min64(EG_KC, k->size - at.p);
    const int v = lanes > s->lanes, whole = lanes == (v + 1) * s->lanes;
    const bool prefetches = t->prefetches && v && whole, add = g->add || at.p > 0;
    const eg_finish *finish = at.p + kc == k->size ? g->finish : NULL;
    const char *of = g->a + wa * x->at.a,
               *b = g->b + w * (x->at.b + at.p * k->sb + x->left * n->sb);
    char *c = g->c + w * (x->at.c + at.i + x->left * n->sc);
    prefetch_list list = { .from = NULL };
    if (prefetches) list = strip_lines(g, of + wa * (next.i * m->sa + next.p * k->sa), kc);
    int64_t ak;
    const char *a = rows_of(g, of + wa * (at.i * m->sa + at.p * k->sa), lanes, kc, buffer, &ak);
    for (int64_t q = 0; q < x->of.tiles; q++) {
        const int64_t cols = x->of.each + (q < x->of.wider);
        for (int y = 0; y < 2; y++) eg__ahead_prefetch(&x->next[y], x->lines[y], true);
        if (finish) eg__finish_prefetch(finish, c, lanes * w, cols, n->sc * w);
        if (prefetches && q == 0)
            s->prefetching[cols - 1](kc, a, ak, b, k->sb, n->sb, c, n->sc, g->alpha, add, &list);
        else
            s->tile[v][whole][cols - 1](lanes, kc, a, ak, b, k->sb, n->sb, c, n->sc, g->alpha, add);
        if (finish) finish->run(finish, c, lanes, cols, n->sc);
        b += w * cols * n->sb;
        c += w * cols * n->sc;
    }
}
/* Returns the part after another one of the strips of rows [first, end): strip by strip, or, if a
 * is prefetched and its rows lie along vectors, the first parts of all strips before the second
 * ones, so that what is read together is near each other. */
static strip_part part_after(const eg_gemm *g, strip_part at, int64_t first, int64_t end)
{
    if (g->tiling.prefetches && g->m.axis->sa == 1) {
        at.i += g->tiling.strip;
        if (at.i >= end) at = (strip_part){ first, at.p + EG_KC };
    } else {
        at.p += EG_KC;
        if (at.p >= g->k.axis->size) at = (strip_part){ at.i + g->tiling.strip, 0 };
    }
    return at;
}
/* Computes strips [from, to) of the rows of a times blocks of the columns of b; strips are numbered
 * through all batches. */
static void strips(const eg_gemm *g, int64_t from, int64_t to, char *buffer)
{
    const eg_tiling *t = &g->tiling;
    const int most = ((const small *)t->kernels)->most;
    int64_t strip = from % t->strips, block = from / t->strips % t->blocks;
    direct_block x = { .left = -1 };
    eg_axes_walk batch;
    eg__axes_walk_to(&batch, &g->batch, from / (t->strips * t->blocks));
    for (int64_t u = from, run; u < to; u += run) {
        run = eg__min64(to - u, t->strips - strip);
        x.at = batch.at;
        if (x.left != block * t->block) {
            x.left = block * t->block;
            x.of = columns_of(eg__min64(t->block, g->n.axis->size - x.left), most);
        }
        if (t->ahead && strip == 0 && block == 0)
            block_prefetches(g, &x, eg__offsets_of(&g->batch, u / (t->strips * t->blocks) + 1));
        const int64_t first = strip * t->strip, end = first + run * t->strip;
        strip_part at = { first, 0 }, next;
        for (int64_t y = run * ((g->k.axis->size + EG_KC - 1) / EG_KC); y > 0; y--, at = next) {
            next = part_after(g, at, first, end);
            part_run(g, &x, at, next, buffer);
        }
        strip += run;
        if (strip < t->strips) continue;
        strip = 0;
        if (++block < t->blocks) continue;
        block = 0;
        eg__axes_walk_on(&batch);
    }
}

typedef struct shared {
    const eg_gemm *g;
    int64_t pieces;
    char *buffer;
} shared;
static void direct_run(const eg_gemm *g, int64_t from, int64_t to, char *buffer)
{
    (g->tiling.single ? singles : strips)(g, from, to, buffer);
}
static void direct_piece(void *user, int64_t k, int thread)
{
    const shared *s = user;
    const int64_t units = s->g->tiling.units;
    direct_run(s->g, units * k / s->pieces, units * (k + 1) / s->pieces,
               s->buffer ? s->buffer + s->g->tiling.strip_bytes * thread : NULL);
}

/* Returns g with smaller blocks if there are few units for a team, so that no thread waits long for
 * the last unit; but not so small that transposing a strip would not be worthwhile. */
static eg_gemm for_team(const eg_gemm *g, int team)
{
    eg_gemm own = *g;
    eg_tiling *t = &own.tiling;
    const int64_t pays = (t->in_place ? 2 : 8) * ((const small *)t->kernels)->most,
                  others = t->strips * g->batch.total;
    const int64_t want = (4 * team + others - 1) / others,
                  most = g->n.total < pays ? 1 : g->n.total / pays;
    if (want > t->blocks)
        direct_cut(t, g, eg__round_up(g->n.total, eg__min64(want, most)) / eg__min64(want, most));
    return own;
}
/* Divides strips and blocks among threads. Strips that are copied need memory for each thread: on
 * the stack if that is enough. False after an error. */
bool eg__direct(eg_ctx *cx, const eg_gemm *g)
{
    int team = eg__team(cx, g->m.total * g->n.total * g->k.total * g->batch.total, 1 << 21);
    eg_gemm own;
    if (team > 1) own = for_team(g, team), g = &own;
    const eg_tiling *t = &g->tiling;
    _Alignas(64) char near[1 << 13];
    if (team > t->units) team = (int)t->units;
    char *p = t->in_place ? NULL
              : t->strip_bytes * team <= (int64_t)sizeof near
                  ? near
                  : eg__scratch(cx, EG_SCRATCH_PANELS, (size_t)(t->strip_bytes * team));
    if (!p && !t->in_place) return false;
    shared s = { g, eg__min64(t->units, 4 * team), p };
    if (team > 1)
        eg__parallel(cx, team, s.pieces, direct_piece, &s);
    else
        direct_run(g, 0, t->units, p);
    return true;
}
