/* direct.c: small products without packing b: c's contiguous axis m lies along vectors, b's elements are broadcast from wherever they
 * lie. a is read in place if it is contiguous along m; else a strip of it is turned first. What a batch costs beyond its arithmetic
 * is one call for each tile. An element is summed over k in the same order, in the same blocks, as by the packed way: same bits. */
#include "einsum/gemm.h"
#include <stddef.h>

enum { TILE_MOST = 12 };
typedef void tile_run(int64_t lanes, int64_t k, const void *a, int64_t ak, const void *b, int64_t bk, int64_t bn, void *c, int64_t cn, bool add);
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

bool eg__direct_suits(const eg_gemm *g)
{
    if (g->m.n != 1 || g->n.n != 1 || g->k.n != 1 || g->m.axis[0].sc != 1) return false;
    /* b is read anew for each strip of a: it must stay in the nearer caches, its rows too */
    const int64_t m = g->m.total, n = g->n.total, k = g->k.total;
    return m <= EG_DIRECT_MOST && n <= EG_DIRECT_MOST && k <= EG_DIRECT_MOST && small_of(g->dtype);
}

/* Strips [from, to) of a's rows, numbered through the batches */
typedef struct job { const eg_gemm *g; const small *s; int64_t strips, strip; size_t width; } job;
static void strips(const job *t, int64_t from, int64_t to, char *room)
{
    const eg_gemm *g = t->g;
    const eg_axis *m = g->m.axis, *n = g->n.axis, *k = g->k.axis;
    const int64_t w = (int64_t)t->width, columns = (n->size + t->s->most - 1) / t->s->most;
    const bool in_place = m->sa == 1;
    const eg_run run = { 0, least(k->size, EG_KC), k->sa };
    eg_walk batch;
    eg__walk_to(&batch, &g->batch, from / t->strips);
    for (int64_t u = from; u < to; u++) {
        const int64_t i = u % t->strips * t->strip, lanes = least(t->strip, m->size - i);
        const int v = lanes > t->s->lanes, whole = lanes == (v + 1) * t->s->lanes;
        for (int64_t p = 0; p < k->size; p += EG_KC) {
            const int64_t kc = least(EG_KC, k->size - p);
            const char *a = g->a + w * (batch.at.a + i * m->sa + p * k->sa), *b = g->b + w * (batch.at.b + p * k->sb);
            int64_t ak = k->sa;
            bool full = whole;
            if (!in_place) {
                int64_t off[2 * 16];
                for (int64_t q = 0; q < lanes; q++) off[q] = q * m->sa;
                eg_run here = run;
                here.n = kc;
                ak = (v + 1) * t->s->lanes;
                eg__pack(t->width, (int)ak, lanes, off, m->sa, 1, &here, a, room, kc);
                a = room;
            }
            char *c = g->c + w * (batch.at.c + i);
            for (int64_t q = 0, j = 0; q < columns; q++) {      /* columns shared out evenly */
                const int64_t cols = (n->size - j + columns - q - 1) / (columns - q);
                t->s->tile[v][full][cols - 1](lanes, kc, a, ak, b + w * j * n->sb, k->sb, n->sb, c + w * j * n->sc, n->sc, g->add || p > 0);
                j += cols;
            }
        }
        if ((u + 1) % t->strips == 0) eg__walk_on(&batch);
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
    job t = { .g = g, .s = small_of(g->dtype), .width = g->dtype == EG_F64 ? 8 : 4 };
    t.strip = 2 * t.s->lanes;
    t.strips = (g->m.total + t.strip - 1) / t.strip;
    const int64_t units = t.strips * g->batch.total;
    const size_t room = (size_t)(t.strip * least(g->k.total, EG_KC)) * t.width;
    _Alignas(64) char near[1 << 13];
    int team = eg__team(cx, units * t.strip * g->n.total * g->k.total, 1 << 22);
    if (team > units) team = (int)units;
    char *p = g->m.axis[0].sa == 1 ? NULL : room * (size_t)team <= sizeof near ? near : eg__scratch(cx, 0, room * (size_t)team);
    if (!p && g->m.axis[0].sa != 1) return false;
    if (team > 1) eg__parallel(cx, team, least(units, 4 * team), piece, &(shared){ &t, units, least(units, 4 * team), p, room });
    else strips(&t, 0, units, p);
    return true;
}
