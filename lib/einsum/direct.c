/* direct.c: products without packing b: c's contiguous axis m lies along vectors, b's elements are broadcast from wherever they lie. a
 * is read in place if it is contiguous along m and near; else a strip of it is turned or copied first. It suits all but products that
 * are large every way, where packing both is paid back. An element is summed over k in the same order, in the same blocks, as by the
 * packed way: same bits. */
#include "einsum/gemm.h"
#include <stddef.h>

enum { TILE_MOST = 12, SHORT = 16 };        /* columns of a tile; a short sum */
enum { B_BYTES = 384 << 10, NEAR = 1024, LINE = 64, AHEAD_LEAST = 4 << 10, AHEAD_MOST = 512 << 10 };    /* bytes */
typedef void tile_run(int64_t lanes, int64_t k, const void *a, int64_t ak, const void *b, int64_t bk, int64_t bn, void *c, int64_t cn,
                      bool add);
typedef struct small { int lanes, most; tile_run *tile[2][2][TILE_MOST]; } small;       /* [vectors − 1][whole][columns − 1] */

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define WIDE_TILES 1
#define MOST 12
#define REAL float
#define NAME(x) x##_512_f32
#define VEC __m512
#define LANES 16
#define MASK __mmask16
#define MASK_OF(n) (MASK)((n) >= LANES ? 0xffff : (n) <= 0 ? 0 : (1 << (n)) - 1)
#define ZERO _mm512_setzero_ps()
#define SET(x) _mm512_set1_ps(x)
#define FMA _mm512_fmadd_ps
#define ADD _mm512_add_ps
#define LOAD(p, m) _mm512_maskz_loadu_ps(m, p)
#define LOAD_ALL(p) _mm512_loadu_ps(p)
#define STORE(p, m, x) _mm512_mask_storeu_ps(p, m, x)
#define STORE_ALL(p, x) _mm512_storeu_ps(p, x)
#include "einsum/direct_of.h"
#undef REAL
#undef NAME
#undef VEC
#undef LANES
#undef MASK
#undef MASK_OF
#undef ZERO
#undef SET
#undef FMA
#undef ADD
#undef LOAD
#undef LOAD_ALL
#undef STORE
#undef STORE_ALL

#define REAL double
#define NAME(x) x##_512_f64
#define VEC __m512d
#define LANES 8
#define MASK __mmask8
#define MASK_OF(n) (MASK)((n) >= LANES ? 0xff : (n) <= 0 ? 0 : (1 << (n)) - 1)
#define ZERO _mm512_setzero_pd()
#define SET(x) _mm512_set1_pd(x)
#define FMA _mm512_fmadd_pd
#define ADD _mm512_add_pd
#define LOAD(p, m) _mm512_maskz_loadu_pd(m, p)
#define LOAD_ALL(p) _mm512_loadu_pd(p)
#define STORE(p, m, x) _mm512_mask_storeu_pd(p, m, x)
#define STORE_ALL(p, x) _mm512_storeu_pd(p, x)
#include "einsum/direct_of.h"
#undef TARGET
#undef WIDE_TILES
#undef MOST
#undef REAL
#undef NAME
#undef VEC
#undef LANES
#undef MASK
#undef MASK_OF
#undef ZERO
#undef SET
#undef FMA
#undef ADD
#undef LOAD
#undef LOAD_ALL
#undef STORE
#undef STORE_ALL

#define TARGET __attribute__((target("avx2,fma")))
#define WIDE_TILES 0
#define MOST 6
#define REAL float
#define NAME(x) x##_256_f32
#define VEC __m256
#define LANES 8
#define MASK __m256i
#define MASK_OF(n) _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define ZERO _mm256_setzero_ps()
#define SET(x) _mm256_set1_ps(x)
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
#define LOAD(p, m) _mm256_maskload_ps(p, m)
#define LOAD_ALL(p) _mm256_loadu_ps(p)
#define STORE(p, m, x) _mm256_maskstore_ps(p, m, x)
#define STORE_ALL(p, x) _mm256_storeu_ps(p, x)
#include "einsum/direct_of.h"
#undef REAL
#undef NAME
#undef VEC
#undef LANES
#undef MASK_OF
#undef ZERO
#undef SET
#undef FMA
#undef ADD
#undef LOAD
#undef LOAD_ALL
#undef STORE
#undef STORE_ALL

#define REAL double
#define NAME(x) x##_256_f64
#define VEC __m256d
#define LANES 4
#define MASK_OF(n) _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3))
#define ZERO _mm256_setzero_pd()
#define SET(x) _mm256_set1_pd(x)
#define FMA _mm256_fmadd_pd
#define ADD _mm256_add_pd
#define LOAD(p, m) _mm256_maskload_pd(p, m)
#define LOAD_ALL(p) _mm256_loadu_pd(p)
#define STORE(p, m, x) _mm256_maskstore_pd(p, m, x)
#define STORE_ALL(p, x) _mm256_storeu_pd(p, x)
#include "einsum/direct_of.h"

static const small *small_of(eg_dtype dtype)
{
    switch (eg__kernel_isa()) {
    case EG_ISA_AVX512: return dtype == EG_F64 ? &small_512_f64 : &small_512_f32;
    case EG_ISA_AVX2:   return dtype == EG_F64 ? &small_256_f64 : &small_256_f32;
    default:            return NULL;
    }
}
#else
static const small *small_of(eg_dtype dtype) { (void)dtype; return NULL; }
#endif

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static size_t width_of(const eg_gemm *g) { return g->dtype == EG_F64 ? 8 : 4; }
static int64_t size_of(int64_t x) { return x < 0 ? -x : x; }

/* Columns of b that are used before the next strip of a comes: as many as stay in the second-level cache, by the lines they lie in. Where
 * the sum is short the result's rows are what moves: then one tile's. */
static int64_t block_of(const eg_gemm *g, const small *s)
{
    const int64_t w = (int64_t)width_of(g), k = least(g->k.total, EG_KC);
    const int64_t apart = least(64, w * least(size_of(g->k.axis[0].sb), size_of(g->n.axis[0].sb)));
    const int64_t most = k <= SHORT && g->n.total > 8 * s->most ? s->most : B_BYTES / (k * (apart > w ? apart : w)) / s->most * s->most;
    return least(most, (g->n.total + s->most - 1) / s->most * s->most);
}
/* a is read in place if its rows lie along vectors, and do not meet in a cache set where every tile of columns comes back to them */
static bool in_place(const eg_gemm *g)
{
    return g->m.axis[0].sa == 1 &&
           (g->n.total <= 2 * TILE_MOST || g->k.total <= TILE_MOST || size_of(g->k.axis[0].sa) * (int64_t)width_of(g) <= NEAR);
}

bool eg__direct_suits(const eg_gemm *g)
{
    const small *s = small_of(g->dtype);
    if (!s || g->m.n != 1 || g->n.n != 1 || g->k.n != 1 || g->m.axis[0].sc != 1) return false;
    if (g->m.total > EG_KC && g->n.total > EG_KC && g->k.total > EG_KC) return false;      /* packing both is paid back */
    const int64_t block = block_of(g, s);
    return g->k.total <= SHORT || block >= g->n.total || block >= 4 * s->most || g->m.total <= 2 * s->lanes;
}
bool eg__direct_in_place(const eg_gemm *g) { return in_place(g); }

/* An operand's matrix in the next batch, asked for line by line while this batch is done: where all is more than the caches hold, the
 * tiles waited for memory, which looks ahead along rows but not from one matrix to the next. */
typedef struct ahead { const char *row; int64_t rows, step, bytes, line, at; } ahead;
static ahead ahead_of(const char *from, int64_t w, const eg_axis *x, int64_t sx, const eg_axis *y, int64_t sy)
{
    if (size_of(sx) > size_of(sy)) return ahead_of(from, w, y, sy, x, sx);
    if (sx < 0) from += w * sx * (x->size - 1);
    sx = w * size_of(sx);
    if (w * sy == sx * x->size) return (ahead){ from, 1, 0, sx * x->size * y->size, LINE, 0 };
    return (ahead){ from, y->size, w * sy, sx * (x->size - 1) + w, sx > LINE ? sx : LINE, 0 };
}
static int64_t lines_of(const ahead *x) { return x->rows * ((x->bytes + x->line - 1) / x->line); }
static void ask(ahead *x, int64_t lines)
{
    while (lines > 0 && x->rows > 0) {
        const int64_t n = least(lines, (x->bytes - x->at + x->line - 1) / x->line), line = x->line;
        const char *from = x->row + x->at;
        for (int64_t i = 0; i < n; i++) __builtin_prefetch(from + i * line, 0, 3);
        lines -= n;
        x->at += n * line;
        if (x->at < x->bytes) break;
        x->at = 0;
        x->row += x->step;
        x->rows--;
    }
}

/* Strips [from, to) of a's rows by blocks of b's columns, numbered through the batches */
typedef struct job { const eg_gemm *g; const small *s; int64_t strips, strip, blocks, block; size_t width; bool in_place, far; } job;
static void strips(const job *t, int64_t from, int64_t to, char *room)
{
    const eg_gemm *g = t->g;
    const eg_axis *m = g->m.axis, *n = g->n.axis, *k = g->k.axis;
    const int64_t w = (int64_t)t->width;
    int64_t strip = from % t->strips, block = from / t->strips % t->blocks, off[2 * 16];
    eg_walk batch;
    eg__walk_to(&batch, &g->batch, from / (t->strips * t->blocks));
    ahead next[2] = { { .rows = 0 }, { .rows = 0 } };
    int64_t lines[2] = { 0, 0 };                    /* for each tile */
    if (!t->in_place) for (int64_t q = 0; q < t->strip; q++) off[q] = q * m->sa;
    for (int64_t left = -1, tiles = 0, each = 0, longer = 0, u = from; u < to; u++) {
        const int64_t i = strip * t->strip, lanes = least(t->strip, m->size - i);
        const int v = lanes > t->s->lanes, whole = lanes == (v + 1) * t->s->lanes;
        if (left != block * t->block) {             /* columns shared out evenly: `longer` tiles have one more */
            left = block * t->block;
            const int64_t columns = least(t->block, n->size - left);
            tiles = (columns + t->s->most - 1) / t->s->most;
            each = columns / tiles;
            longer = columns - each * tiles;
        }
        if (t->far && strip == 0 && block == 0) {
            const eg_place on = eg__place(&g->batch, u / (t->strips * t->blocks) + 1);
            next[0] = ahead_of(g->a + w * on.a, w, m, m->sa, k, k->sa);
            next[1] = ahead_of(g->b + w * on.b, w, n, n->sb, k, k->sb);
            const int64_t calls = t->strips * t->blocks * tiles * ((k->size + EG_KC - 1) / EG_KC);
            for (int s = 0; s < 2; s++) lines[s] = (lines_of(&next[s]) + calls - 1) / calls;
        }
        for (int64_t p = 0; p < k->size; p += EG_KC) {
            const int64_t kc = least(EG_KC, k->size - p);
            const char *a = g->a + w * (batch.at.a + i * m->sa + p * k->sa);
            const char *b = g->b + w * (batch.at.b + p * k->sb + left * n->sb);
            int64_t ak = k->sa;
            if (!t->in_place) {
                ak = (v + 1) * t->s->lanes;
                eg__pack(t->width, (int)ak, lanes, off, m->sa, 1, &(eg_run){ 0, kc, k->sa }, a, room, kc);
                a = room;
            }
            char *c = g->c + w * (batch.at.c + i + left * n->sc);
            for (int64_t q = 0; q < tiles; q++) {
                const int64_t cols = each + (q < longer);
                for (int s = 0; s < 2; s++) ask(&next[s], lines[s]);
                t->s->tile[v][whole][cols - 1](lanes, kc, a, ak, b, k->sb, n->sb, c, n->sc, g->add || p > 0);
                b += w * cols * n->sb;
                c += w * cols * n->sc;
            }
        }
        if (++strip < t->strips) continue;
        strip = 0;
        if (++block < t->blocks) continue;
        block = 0;
        eg__walk_on(&batch);
    }
}

typedef struct shared { const job *t; int64_t units, pieces; char *room; size_t each; } shared;
static void piece(void *user, int64_t k, int thread)
{
    const shared *s = user;
    strips(s->t, s->units * k / s->pieces, s->units * (k + 1) / s->pieces, s->room ? s->room + s->each * (size_t)thread : NULL);
}

bool eg__direct(eg_ctx *cx, const eg_gemm *g)
{
    job t = { .g = g, .s = small_of(g->dtype), .width = width_of(g), .in_place = in_place(g) };
    t.strip = 2 * t.s->lanes;
    t.strips = (g->m.total + t.strip - 1) / t.strip;
    t.block = block_of(g, t.s);
    t.blocks = (g->n.total + t.block - 1) / t.block;
    const int64_t units = t.strips * t.blocks * g->batch.total;
    const int64_t of_two = (g->m.total + g->n.total) * g->k.total * (int64_t)t.width;
    t.far = of_two > AHEAD_LEAST && of_two <= AHEAD_MOST &&
            (of_two + g->m.total * g->n.total * (int64_t)t.width) * g->batch.total > EG_FAR;
    const size_t room = (size_t)(t.strip * least(g->k.total, EG_KC)) * t.width;
    _Alignas(64) char near[1 << 13];
    int team = eg__team(cx, units * t.strip * least(t.block, g->n.total) * g->k.total, 1 << 21);
    if (team > units) team = (int)units;
    char *p = t.in_place ? NULL : room * (size_t)team <= sizeof near ? near : eg__scratch(cx, 0, room * (size_t)team);
    if (!p && !t.in_place) return false;
    if (team > 1) eg__parallel(cx, team, least(units, 4 * team), piece, &(shared){ &t, units, least(units, 4 * team), p, room });
    else strips(&t, 0, units, p);
    return true;
}
