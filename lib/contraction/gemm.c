/* gemm.c: c[b,m,n] (+)= alpha Σ_k a[b,m,k] b[b,k,n] on micro-panels that are packed directly from
 * any strides.
 *
 * The loops are Goto's: a block of b (KC × NC) is packed into panels of width nr, a block of a (MC
 * × KC) into panels of width mr, and the micro-kernel computes c tile by tile. The addresses of a
 * block's elements are in tables of offsets, so that no operand is ever copied as a whole. The
 * kernel sums EG_KC elements of k at a time, which is the same for all kernels, and starts from c
 * or 0, so the value of an element depends on k only: neither on the blocking of m and n nor on
 * threads. KC is EG_KC, or twice that if c is large, or all of k if all of a then stays in the
 * second-level cache: a tile receives all sums of a block while it is in the first-level cache. A
 * tile that is not whole, or not contiguous in the kernel's direction, is computed in a buffer.
 *
 * Where direct.c has kernels for whole tiles, they are used: they prefetch what is needed next
 * while they sum. Then, if a block of a has all rows, each panel of b, which is used once, is
 * packed right before its tiles, and stays in the first-level cache.
 *
 * Threads share the packed block of b, and take blocks of a in turn; if there are many batches,
 * each is computed by one thread. */
#include "contraction/prefetch.h"
#include <stdatomic.h>
#include <unistd.h>

#define IRREGULAR INT64_MIN
/* Bytes of packed blocks: in the second-level cache, in the third. A part of c of more than C_BYTES
 * has left the caches when the next block of k is added to it. All of a is packed at once if it has
 * at most WHOLE_BYTES, there are at least WHOLE_LEAST columns of b, and k is not longer than them.
 */
enum { A_BYTES = 384 << 10, B_BYTES = 3 << 20, C_BYTES = 3 << 20, WHOLE_BYTES = 1 << 20 };
enum { WHOLE_LEAST = 512 };
/* GRAIN: multiply-adds for which another thread is worthwhile, some 30 µs. */
enum { GRAIN = 1 << 22, TEAM_MAX = 64 };

/* -- addresses of elements -------------------------------------------------------------------- */
void eg__offsets(const eg_axes *l, int which, int64_t from, int64_t count, int64_t *off)
{
    if (l->n == 0) {
        for (int64_t i = 0; i < count; i++) off[i] = 0;
        return;
    }
    int last = l->n - 1;
    int64_t index[EG_PAIR_AXES], base = 0, size = l->axis[last].size,
                                 step = l->axis[last].step[which], i = from;
    for (int x = last; x >= 0; x--) {
        index[x] = x ? i % l->axis[x].size : i;
        i /= l->axis[x].size;
        base += index[x] * l->axis[x].step[which];
    }
    for (int64_t done = 0; done < count;) {
        int64_t run = eg__min64(count - done, size - index[last]), at = base;
        for (int64_t q = 0; q < run; q++, at += step) off[done + q] = at;
        done += run;
        base += run * step;
        index[last] += run;
        for (int x = last; x > 0 && index[x] == l->axis[x].size; x--) { /* carry */
            base += l->axis[x - 1].step[which] - index[x] * l->axis[x].step[which];
            index[x] = 0;
            index[x - 1]++;
        }
    }
}

/* Lists the k elements [from, from + count) as runs and returns their number: at most one more than
 * the number of times the innermost axis starts again. */
static int runs(const eg_axes *l, int which, int64_t from, int64_t count, eg_run *run)
{
    if (l->n == 0) {
        run[0] = (eg_run){ 0, count, 0 };
        return 1;
    }
    const int64_t size = l->axis[l->n - 1].size, step = l->axis[l->n - 1].step[which];
    int n = 0;
    while (count > 0) {
        int64_t len = eg__min64(count, size - from % size), at;
        eg__offsets(l, which, from, 1, &at);
        run[n++] = (eg_run){ at, len, step };
        from += len;
        count -= len;
    }
    return n;
}
/* Returns the stride of a panel's offsets if it is constant, else IRREGULAR. */
static int64_t regular(const int64_t *off, int64_t n)
{
    int64_t s = n > 1 ? off[1] - off[0] : 1;
    for (int64_t i = 2; i < n; i++)
        if (off[i] - off[i - 1] != s) return IRREGULAR;
    return s;
}

/* -- the workspace of one thread --------------------------------------------------------------- */
typedef struct side {   /* the rows (of a) or columns (of b) of a block */
    int64_t *from, *to; /* offsets in the operand and in c */
    int64_t *stride;    /* of each panel's offsets in c */
    int64_t *stretch;   /* from each row on: how many rows are consecutive in c */
    eg_run *run;
    char *panels;
} side;
typedef struct shape {
    int64_t mc, nc, kc;
    eg_dtype dtype, of[2]; /* of panels and c; of a and b in memory */
    size_t width;
    const eg_kernel *kernel;
    const eg_wide *wide; /* computes whole tiles; NULL: kernel does */
} shape;

static size_t gemm_bytes(int64_t block, int64_t kc, int w, size_t width)
{
    const int64_t lists =
        3 * block * 8 + eg__round_up(block, w) / w * 8 + (kc + 1) * (int64_t)sizeof(eg_run);
    return (size_t)eg__round_up(block * kc * (int64_t)width, 64) + (size_t)eg__round_up(lists, 64);
}
static side gemm_take(char *p, int64_t block, int64_t kc, int w, size_t width)
{
    side s;
    s.panels = p;
    p += eg__round_up(block * kc * (int64_t)width, 64);
    s.from = (int64_t *)(void *)p;
    s.to = s.from + block;
    s.stride = s.to + block;
    s.stretch = s.stride + eg__round_up(block, w) / w;
    s.run = (eg_run *)(void *)(s.stretch + block);
    return s;
}

static void tables(side *s, const eg_axes *l, int which, int64_t from, int64_t count, int w)
{
    eg__offsets(l, which, from, count, s->from);
    eg__offsets(l, EG_OF_C, from, count, s->to);
    for (int64_t i = 0; i < count; i += w)
        s->stride[i / w] = regular(s->to + i, eg__min64(w, count - i));
    for (int64_t i = count - 1; i >= 0; i--)
        s->stretch[i] = i + 1 < count && s->to[i + 1] == s->to[i] + 1 ? s->stretch[i + 1] + 1 : 1;
}
/* Packs a panel of an operand as panel number `to`. */
static void pack(const shape *s, const side *x, int which, int64_t panel, int64_t to, int64_t count,
                 int nruns, const char *src, int64_t kc)
{
    const int w = which == EG_OF_A ? s->kernel->mr : s->kernel->nr;
    int64_t i = panel * w, rows = eg__min64(w, count - i);
    eg__pack_from(s->dtype, s->of[which], w, rows, x->from + i, regular(x->from + i, rows), nruns,
                  x->run, src, x->panels + (size_t)(to * w * kc) * s->width, kc);
}

/* Packs the panels of a block of a. If its rows are contiguous, a few of them are copied to all
 * panels at a time, since single panels would take two lines of each row. */
static void pack_a(const shape *s, const side *a, const eg_gemm *g, int64_t mc, int nruns,
                   const char *src, int64_t kc)
{
    enum { ROWS = 4 };
    const int64_t mr = s->kernel->mr, w = (int64_t)s->width;
    int64_t q = 0;
    if (s->wide && s->of[EG_OF_A] == s->dtype && nruns == 1 && g->m.n == 1 && g->m.axis->sa == 1) {
        const int64_t step = a->run->stride, whole = mc / mr;
        const char *from = src + (a->from[0] + a->run->at) * w;
        for (int64_t p = 0; p < kc; p += ROWS, from += ROWS * step * w)
            for (q = 0; q < whole; q++)
                s->wide->copy(mr, eg__min64(ROWS, kc - p), from + q * mr * w, step,
                              a->panels + (q * kc + p) * mr * w, false);
    }
    for (; q * mr < mc; q++) pack(s, a, EG_OF_A, q, q, mc, nruns, src, kc);
}

/* -- tiles ------------------------------------------------------------------------------------ */
/* A block of the product, c (+)= alpha a b with mc × nc elements, columns from `from` on, and sums
 * over kc terms from p on. a is packed, and b too, or each of its panels right before its tiles
 * (late). finish: NULL, or called after the last block of k. */
typedef struct block {
    const shape *s;
    const eg_gemm *g;
    const side *a, *b;
    int64_t mc, nc, kc, p, from;
    int rb;               /* runs of b */
    const char *b_source; /* of the batch */
    char *c;
    bool late, add;
    const eg_finish *finish;
} block;
/* A tile of a block: `rows` rows from i on, `cols` columns from j on. */
typedef struct tile {
    int64_t i, rows, j, cols;
} tile;
/* Calls the finish for the rows and columns of a tile, by runs of consecutive elements of c. */
static void tile_done(const block *k, const tile *t)
{
    const shape *s = k->s;
    const eg_finish *finish = k->finish;
    const bool by_rows = s->kernel->rows;
    const int64_t rs = k->a->stride[t->i / s->kernel->mr], cs = k->b->stride[t->j / s->kernel->nr],
                  along = by_rows ? cs : rs, step = by_rows ? rs : cs;
    const int64_t w = (int64_t)s->width, n = by_rows ? t->cols : t->rows,
                  others = by_rows ? t->rows : t->cols;
    const side *x = by_rows ? k->b : k->a, *y = by_rows ? k->a : k->b;
    const int64_t from = by_rows ? t->j : t->i, other = by_rows ? t->i : t->j;
    if (along == 1 && step != IRREGULAR) {
        finish->run(finish, k->c + (x->to[from] + y->to[other]) * w, n, others, step);
        return;
    }
    for (int64_t q = 0, len; q < n; q += len) {
        len = eg__min64(x->stretch[from + q], n - q);
        for (int64_t r = 0; r < others; r++)
            finish->run(finish, k->c + (x->to[from + q] + y->to[other + r]) * w, len, 1, 0);
    }
}
/* What is packed next of both operands, and how many of its lines are prefetched for each block of
 * EG_KC terms of a tile. */
typedef struct next {
    eg_ahead of[2];
    int64_t lines[2];
} next;
/* Computes a tile that is not whole, or not contiguous in the kernel's direction, from n elements
 * of k at pa and pb, in a buffer, and copies or adds it to c. */
static void tile_in_buffer(const block *k, const tile *t, int64_t n, const char *pa, const char *pb,
                           bool add)
{
    const shape *s = k->s;
    const side *a = k->a, *b = k->b;
    const eg_kernel *kn = s->kernel;
    _Alignas(64) char buffer[EG_KERNEL_SIDE * EG_KERNEL_SIDE * 8];
    const int64_t trs = kn->rows ? kn->nr : 1, tcs = kn->rows ? 1 : kn->mr;
    kn->run(kn, n, k->g->alpha, pa, pb, false, buffer, trs, tcs);
    if (kn->rows)
        eg__scatter(s->width, t->cols, t->rows, buffer, trs, k->c, b->to + t->j, a->to + t->i,
                    b->stretch + t->j, add);
    else
        eg__scatter(s->width, t->rows, t->cols, buffer, tcs, k->c, a->to + t->i, b->to + t->j,
                    a->stretch + t->i, add);
}
/* Sets what is packed next of an operand: elements [from, to) of its own axis, [p, p + kc) of k. It
 * is prefetched during `tiles` tiles. */
static void set_next(next *then, const shape *s, const eg_gemm *g, int which, const char *at,
                     int64_t from, int64_t to, int64_t p, int64_t tiles)
{
    const eg_axes *own = which == EG_OF_A ? &g->m : &g->n, *k = &g->k;
    const int64_t w = eg__width[g->of[which]], kc = eg__min64(s->kc, k->total - p),
                  blocks = tiles * ((s->kc + EG_KC - 1) / EG_KC);
    then->of[which].rows = 0;
    if (own->n != 1 || k->n != 1 || kc <= 0 || to <= from || tiles < 1) return;
    const int64_t step = own->axis->step[which], along = k->axis->step[which];
    then->of[which] =
        eg__ahead_of(at + w * (from * step + p * along), w, &(eg_axis){ .size = to - from }, step,
                     &(eg_axis){ .size = kc }, along);
    then->lines[which] = (eg__ahead_lines(&then->of[which]) + blocks - 1) / blocks;
}
/* Sets that the panel after column j is packed next, if panels are packed late. */
static void set_next_panel(next *then, const block *k, int64_t j)
{
    const int mr = k->s->kernel->mr, nr = k->s->kernel->nr;
    if (k->late)
        set_next(then, k->s, k->g, EG_OF_B, k->b_source, k->from + j + nr,
                 k->from + eg__min64(j + 2 * nr, k->nc), k->p, (k->mc + mr - 1) / mr);
}
/* A whole tile in c: its address, and bytes from one contiguous piece of it to the next */
typedef struct place {
    char *at;
    int64_t step;
} place;
/* A whole tile has so many contiguous pieces of so many bytes. */
static int tile_pieces(const shape *s) { return s->kernel->rows ? s->kernel->mr : s->kernel->nr; }
static int64_t tile_bytes(const shape *s)
{
    return (s->kernel->rows ? s->kernel->nr : s->kernel->mr) * (int64_t)s->width;
}
/* Lists what is prefetched during the terms [p, p + n) of a whole tile: with the first terms what
 * its finish needs, with the last ones the next tile of c, and always what is packed next. */
static void list_lines(eg_lines *l, const block *k, const tile *t, const place *c, int64_t p,
                       int64_t n, next *then)
{
    const shape *s = k->s;
    const eg_kernel *kn = s->kernel;
    const int64_t bytes = tile_bytes(s);
    const int pieces = tile_pieces(s);
    l->n = 0;
    l->most = (int)(n / EG_AHEAD_EVERY);
    for (int x = 0; x < 2; x++)
        if (p == 0 && k->finish && k->finish->beside[x]) {
            const uintptr_t at = (uintptr_t)c->at + (uintptr_t)k->finish->beside[x];
            eg__lines_add_tile(l, (const char *)at, bytes, pieces, c->step);
        }
    const bool below = t->i + kn->mr < k->mc;
    const int64_t i = below ? t->i + kn->mr : 0, j = below ? t->j : t->j + kn->nr;
    if (p + n == k->kc && j < k->nc)
        eg__lines_add_tile(l, k->c + (k->a->to[i] + k->b->to[j]) * (int64_t)s->width, bytes, pieces,
                           c->step);
    for (int x = EG_OF_B; x >= EG_OF_A; x--) eg__lines_add(l, &then->of[x], then->lines[x]);
}
/* Computes a whole tile of c from the panels pa and pb. */
static void tile_whole(const block *k, const tile *t, const place *c, const char *pa,
                       const char *pb, next *then)
{
    const shape *s = k->s;
    const eg_kernel *kn = s->kernel;
    const int64_t w = (int64_t)s->width, step = c->step / w;
    for (int64_t p = 0; p < k->kc; p += EG_KC) {
        const int64_t n = eg__min64(EG_KC, k->kc - p);
        const char *xa = pa + p * kn->mr * w, *xb = pb + p * kn->nr * w;
        const bool add = k->add || p > 0;
        if (s->wide) {
            eg_lines ahead;
            list_lines(&ahead, k, t, c, p, n, then);
            while (ahead.n < ahead.most) ahead.at[ahead.n++] = pa;
            s->wide->run(n, xa, xb, c->at, step, k->g->alpha, add, ahead.at);
            continue;
        }
        for (int x = 0; x < 2; x++) eg__ahead_prefetch(&then->of[x], then->lines[x], true);
        if (p == 0 && k->finish)
            eg__finish_prefetch(k->finish, c->at, tile_bytes(s), tile_pieces(s), c->step);
        kn->run(kn, n, k->g->alpha, xa, xb, add, c->at, kn->rows ? step : 1, kn->rows ? 1 : step);
    }
}
/* Computes the tiles of one block. then: what is prefetched meanwhile. */
static void tiles(const block *k, next *then)
{
    const shape *s = k->s;
    const int64_t width = (int64_t)s->width;
    const eg_kernel *kn = s->kernel;
    const int mr = kn->mr, nr = kn->nr;
    const side *a = k->a, *b = k->b;
    for (int64_t j = 0; j < k->nc; j += nr) {
        const char *pb = b->panels + (k->late ? 0 : j * k->kc * width);
        const int64_t cs = b->stride[j / nr], cols = eg__min64(nr, k->nc - j);
        if (k->late) pack(s, b, EG_OF_B, j / nr, 0, k->nc, k->rb, k->b_source, k->kc);
        set_next_panel(then, k, j);
        for (int64_t i = 0; i < k->mc; i += mr) {
            const char *pa = a->panels + i * k->kc * width;
            const int64_t rs = a->stride[i / mr], rows = eg__min64(mr, k->mc - i);
            const tile t = { i, rows, j, cols };
            if (rows == mr && cols == nr && rs != IRREGULAR && cs != IRREGULAR &&
                (kn->rows ? cs == 1 : rs == 1)) {
                const place c = { k->c + (a->to[i] + b->to[j]) * width,
                                  (kn->rows ? rs : cs) * width };
                tile_whole(k, &t, &c, pa, pb, then);
            } else
                for (int64_t p = 0; p < k->kc; p += EG_KC)
                    tile_in_buffer(k, &t, eg__min64(EG_KC, k->kc - p), pa + p * mr * width,
                                   pb + p * nr * width, k->add || p > 0);
            if (k->finish) tile_done(k, &t);
        }
    }
}

/* Returns g's finish if the block [p, p + kc) of k is the last one, else NULL. */
static const eg_finish *gemm_finish(const eg_gemm *g, int64_t p, int64_t kc)
{
    return p + kc == g->k.total ? g->finish : NULL;
}
/* -- one batch by one thread ------------------------------------------------------------------ */
static void multiply_batch(const shape *s, const eg_gemm *g, eg_offsets at, int64_t from,
                           int64_t to, side *a, side *b)
{
    const int mr = s->kernel->mr, nr = s->kernel->nr;
    const char *pa = g->a + at.a * eg__width[g->of[0]], *pb = g->b + at.b * eg__width[g->of[1]];
    char *pc = g->c + at.c * (int64_t)s->width;
    const bool late = s->wide && g->m.total <= s->mc; /* each panel of b is used once */
    for (int64_t j = from; j < to; j += s->nc) {
        int64_t nc = eg__min64(s->nc, to - j);
        tables(b, &g->n, EG_OF_B, j, nc, nr);
        for (int64_t p = 0; p < g->k.total; p += s->kc) {
            int64_t kc = eg__min64(s->kc, g->k.total - p);
            int rb = runs(&g->k, EG_OF_B, p, kc, b->run), ra = runs(&g->k, EG_OF_A, p, kc, a->run);
            next then = { .lines = { 0 } };
            const int64_t across = (nc + nr - 1) / nr;
            if (!late) {
                for (int64_t q = 0; q < across; q++) pack(s, b, EG_OF_B, q, q, nc, rb, pb, kc);
                set_next(&then, s, g, EG_OF_B, pb, j, j + nc, p + s->kc,
                         across * (g->m.total / mr));
            }
            for (int64_t i = 0; i < g->m.total; i += s->mc) {
                int64_t mc = eg__min64(s->mc, g->m.total - i);
                tables(a, &g->m, EG_OF_A, i, mc, mr);
                pack_a(s, a, g, mc, ra, pa, kc);
                const bool last = i + mc == g->m.total;
                set_next(&then, s, g, EG_OF_A, pa, last ? 0 : i + mc,
                         eg__min64(g->m.total, (last ? 0 : i + mc) + s->mc), last ? p + s->kc : p,
                         across * (mc / mr));
                tiles(&(block){ s, g, a, b, mc, nc, kc, p, j, rb, pb, pc, late, g->add || p > 0,
                                gemm_finish(g, p, kc) },
                      &then);
            }
        }
    }
}

/* -- on several threads: either each thread computes whole batches or ranges of n, or all threads
 * pack one block of b together and then take blocks of a in turn */
typedef struct gemm_job {
    const shape *s;
    const eg_gemm *g;
    side *a, *b;           /* by thread; together: b[0] is shared */
    eg_offsets at;         /* the batch */
    int64_t shares, width; /* for share_piece: ranges of n in a batch, and their width */
    int64_t p, kc, nc;     /* together: the block of k, the width of the block of n */
    const char *pa, *pb;
    char *pc;
    int rb;
} gemm_job;
static void share_piece(void *user, int64_t i, int thread)
{
    const gemm_job *c = user;
    multiply_batch(
        c->s, c->g, eg__offsets_of(&c->g->batch, i / c->shares), i % c->shares * c->width,
        eg__min64(c->g->n.total, (i % c->shares + 1) * c->width), &c->a[thread], &c->b[thread]);
}
static void pack_piece(void *user, int64_t q, int thread)
{
    (void)thread;
    const gemm_job *c = user;
    pack(c->s, c->b, EG_OF_B, q, q, c->nc, c->rb, c->pb, c->kc);
}
static void block_piece(void *user, int64_t i, int thread)
{
    const gemm_job *c = user;
    side *a = &c->a[thread];
    const int mr = c->s->kernel->mr;
    const int64_t from = i * c->s->mc, mc = eg__min64(c->s->mc, c->g->m.total - from);
    const int ra = runs(&c->g->k, EG_OF_A, c->p, c->kc, a->run);
    tables(a, &c->g->m, EG_OF_A, from, mc, mr);
    pack_a(c->s, a, c->g, mc, ra, c->pa, c->kc);
    tiles(&(block){ c->s, c->g, a, c->b, mc, c->nc, c->kc, c->p, 0, c->rb, c->pb, c->pc, false,
                    c->g->add || c->p > 0, gemm_finish(c->g, c->p, c->kc) },
          &(next){ .lines = { 0 } });
}
/* Computes one batch on all threads: they pack each block of b together, then take blocks of a in
 * turn. */
static void gemm_together(eg_ctx *cx, int team, gemm_job *c)
{
    const shape *s = c->s;
    const eg_gemm *g = c->g;
    c->pa = g->a + c->at.a * eg__width[g->of[0]];
    c->pb = g->b + c->at.b * eg__width[g->of[1]];
    c->pc = g->c + c->at.c * (int64_t)s->width;
    for (int64_t j = 0; j < g->n.total; j += s->nc) {
        c->nc = eg__min64(s->nc, g->n.total - j);
        tables(c->b, &g->n, EG_OF_B, j, c->nc, s->kernel->nr);
        for (c->p = 0; c->p < g->k.total; c->p += s->kc) {
            c->kc = eg__min64(s->kc, g->k.total - c->p);
            c->rb = runs(&g->k, EG_OF_B, c->p, c->kc, c->b->run);
            eg__parallel(cx, team, eg__round_up(c->nc, s->kernel->nr) / s->kernel->nr, pack_piece,
                         c);
            eg__parallel(cx, team, (g->m.total + s->mc - 1) / s->mc, block_piece, c);
        }
    }
}

/* Returns how many bytes of a are packed at a time if they are all of a: half of the second-level
 * cache, so that columns of b and tiles of c pass beside them. */
static int64_t whole_bytes(void)
{
    static _Atomic int64_t known; /* plus 1; 0: not yet */
    int64_t now = atomic_load_explicit(&known, memory_order_relaxed);
    if (now) return now - 1;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
    const long cache = 0;
#endif
    now = cache > 0 ? eg__min64(cache / 2, WHOLE_BYTES) : 0;
    atomic_store_explicit(&known, now + 1, memory_order_relaxed);
    return now;
}
/* Chooses the sizes of blocks for one thread. */
static void choose_blocks(shape *s, const eg_gemm *g)
{
    const int mr = s->kernel->mr, nr = s->kernel->nr;
    const int64_t w = (int64_t)s->width, m = eg__round_up(g->m.total, mr),
                  across = eg__min64(g->n.total, B_BYTES / (EG_KC * w)),
                  all = eg__round_up(g->k.total, EG_KC);
    const bool whole = s->wide && m * g->k.total * w <= whole_bytes() &&
                       g->n.total >= WHOLE_LEAST && g->n.total >= g->k.total;
    const int64_t packed = whole ? all : g->m.total * across * w > C_BYTES ? 2 * EG_KC : EG_KC;
    s->kc = eg__min64(packed, g->k.total);
    s->mc = whole ? m : eg__min64(m, A_BYTES / (packed * w) / mr * mr);
    s->nc = eg__min64(eg__round_up(g->n.total, nr), B_BYTES / (packed * w) / nr * nr);
}
/* Chooses how threads share the work, and allocates workspaces. False after
 * an error. */
bool eg__gemm(eg_ctx *cx, const eg_gemm *g)
{
    shape s = { .kernel = eg__kernel(g->dtype),
                .dtype = g->dtype,
                .of = { g->of[0], g->of[1] },
                .width = g->dtype == EG_F64 ? 8 : 4 };
    s.wide = eg__wide_kernel(g->dtype);
    const int mr = s.kernel->mr, nr = s.kernel->nr;
    choose_blocks(&s, g);

    const int64_t batches = g->batch.total, work = batches * g->m.total * g->n.total * g->k.total;
    int team = eg__team(cx, work, GRAIN);
    if (team > TEAM_MAX) team = TEAM_MAX;
    /* The shares are whole batches; or ranges of n, many of them if m has few panels, else one
     * or two per thread if they are wide: each thread packs all of a, because panels that
     * another core has packed are slow to load from its cache (512³ on two threads: 1.5 times
     * the speed of one thread with shared panels, 1.9 with separate ones). Otherwise all threads
     * share a block of b. */
    gemm_job c = { .s = &s, .g = g, .shares = 1, .width = g->n.total };
    const bool low = g->m.total < 2 * team * mr, wide = g->n.total >= 128 * team;
    const bool dealt = team > 1 && (batches >= 4 * team || low || wide);
    if (dealt && batches < 4 * team) {
        const int64_t want = low ? 4 * team : g->n.total >= 1024 * team ? 2 * team : team;
        c.shares = (want + batches - 1) / batches;
        c.width = eg__round_up((g->n.total + c.shares - 1) / c.shares, nr);
        c.shares = (g->n.total + c.width - 1) / c.width;
    }
    if (team > 1 && !dealt)
        s.mc = eg__min64(s.mc, eg__round_up((g->m.total + 2 * team - 1) / (2 * team), mr));
    if (c.width < s.nc) s.nc = eg__round_up(c.width, nr);
    const size_t ra = gemm_bytes(s.mc, s.kc, mr, s.width), rb = gemm_bytes(s.nc, s.kc, nr, s.width);
    char *p = eg__scratch(cx, EG_SCRATCH_PANELS, (ra + rb) * (size_t)team);
    if (!p) return false;
    side a[TEAM_MAX], b[TEAM_MAX];
    c.a = a;
    c.b = b;
    for (int t = 0; t < team; t++) {
        a[t] = gemm_take(p + (size_t)t * (ra + rb), s.mc, s.kc, mr, s.width);
        b[t] = gemm_take(p + (size_t)t * (ra + rb) + ra, s.nc, s.kc, nr, s.width);
    }
    if (dealt)
        eg__parallel(cx, team, batches * c.shares, share_piece, &c);
    else
        for (int64_t i = 0; i < batches; i++) {
            c.at = eg__offsets_of(&g->batch, i);
            if (team > 1)
                gemm_together(cx, team, &c);
            else
                multiply_batch(&s, g, c.at, 0, g->n.total, a, b);
        }
    return true;
}
