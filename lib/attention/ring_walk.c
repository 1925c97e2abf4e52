/* ring_walk.c: attention over a length that ranks have divided, block by block.
 *
 * Queries and keys are cut into blocks of a fixed length. The result of one block of queries is
 * made of (o, lse) of each block of keys, merged along the binary tree of the blocks of keys:
 * o = Σ e^(lse_k − lse) o_k. Keys and values go round the ranks, so their blocks come to a rank in
 * an order of its own; what came waits for its sibling in the tree. So bits depend on the length
 * and the block alone, and a rank holds at most 4 log2(blocks) results that wait, for each of its
 * blocks.
 *
 * Backward, each pair of blocks is computed again, and differentiated with the cotangents
 *   of o_k:    c g,   c = e^(lse_k − lse)
 *   of lse_k:  c (⟨g, o_k − o⟩ + g_lse)
 * and dq is summed along the tree of the blocks of keys, dk, dv and those of the tensors that the
 * score reads along the tree of the blocks of queries. What a rank has whole of dk and dv it sends
 * to the rank whose keys they are. */
#include "attention/ring.h"
#include "autograd/autograd.h"
#include <math.h>
#include <string.h>

enum { TENSORS = 2 + EG_RING_OPERANDS, WAITING = 128 };
/* What a node of a tree holds; `there` false: nothing (all that it stands for is forbidden). */
typedef struct part {
    eg_span of;
    bool there;
    eg_owner *owner; /* of the tensors: they end when the part is merged */
    int n;
    eg_tensor *x[TENSORS];
} part;
typedef struct waiting {
    int64_t leaves;
    int n;
    part part[WAITING];
} waiting;
typedef struct walk {
    const eg_ring *r;
    eg_ctx *cx;
    eg_tensor *const *x;
    size_t width;
    bool add; /* parts are added; else merged as (o, lse) */
} walk;

/* -- trees of parts --------------------------------------------------------------------------- */
/* A part whose tensors are copies of x, in memory of their own. */
static bool part_keep(walk *w, part *p, eg_owner *owner, int n, eg_tensor *const *x)
{
    *p = (part){ .of = p->of, .there = true, .owner = owner, .n = n };
    for (int k = 0; k < n; k++) {
        if (!x[k]) continue;
        p->x[k] = eg_owner_tensor(owner, eg_type(x[k]), eg_rank(x[k]), eg_dims(x[k]));
        eg_assign(p->x[k], x[k]);
    }
    return !eg_error(w->cx);
}
static eg_tensor *number_like(walk *w, double value)
{
    return eg_full_n(w->cx, w->r->dtype, value, 0, NULL);
}
/* a ← a and b, which are siblings. */
static bool part_merge(walk *w, part *a, part *b)
{
    const eg_span of = { a->of.from, b->of.to };
    if (!a->there || !b->there) {
        if (!a->there) *a = *b;
        a->of = of;
        return true;
    }
    const eg_mark m = eg_push(w->cx);
    if (w->add)
        for (int k = 0; k < a->n; k++) eg_assign(a->x[k], eg_add(a->x[k], b->x[k]));
    else {
        /* −10³⁸ for a maximum of −∞, and 10⁻³⁰ for a sum of 0: rows with nothing yet */
        eg_tensor *most = eg_maximum(eg_maximum(a->x[1], b->x[1]), number_like(w, -1e38)),
                  *u = eg_exp(eg_sub(a->x[1], most)), *v = eg_exp(eg_sub(b->x[1], most)),
                  *sum = eg_add(u, v), *over = eg_maximum(sum, number_like(w, 1e-30));
        const char *spec = w->r->stretch;
        eg_tensor *o = eg_add(eg_einsum(spec, a->x[0], eg_div(u, over)),
                              eg_einsum(spec, b->x[0], eg_div(v, over)));
        eg_assign(a->x[1], eg_add(most, eg_log(sum)));
        eg_assign(a->x[0], o);
    }
    eg_pop(w->cx, m);
    eg_owner_close(b->owner);
    a->of = of;
    return !eg_error(w->cx);
}
/* Returns the parent of a node of the tree of `leaves`. */
static eg_span parent_of(int64_t leaves, eg_span node)
{
    eg_span p = { 0, leaves };
    for (;;) {
        const int64_t middle = eg_ranks_tree_middle(p);
        const eg_span a = { p.from, middle }, b = { middle, p.to };
        if ((a.from == node.from && a.to == node.to) || (b.from == node.from && b.to == node.to))
            return p;
        p = node.from < middle ? a : b;
    }
}
/* Puts a part into the tree, and merges it with its siblings as far up as they are there. */
static bool part_insert(walk *w, waiting *tree, part p)
{
    while (p.of.from > 0 || p.of.to < tree->leaves) {
        const eg_span up = parent_of(tree->leaves, p.of);
        const bool first = up.from == p.of.from;
        int k = 0;
        while (k < tree->n &&
               (first ? tree->part[k].of.from != p.of.to || tree->part[k].of.to != up.to
                      : tree->part[k].of.from != up.from || tree->part[k].of.to != p.of.from))
            k++;
        if (k == tree->n) break;
        part other = tree->part[k];
        tree->part[k] = tree->part[--tree->n];
        if (!part_merge(w, first ? &p : &other, first ? &other : &p)) return false;
        if (!first) p = other;
    }
    if (tree->n == WAITING) {
        eg_fail_as(w->cx, EG_ERROR_UNSUPPORTED, "attention: more than %d results wait", WAITING);
        return false;
    }
    tree->part[tree->n++] = p;
    return true;
}
static waiting *trees_of(walk *w, int64_t n, int64_t leaves)
{
    waiting *t = eg__alloc(w->cx, (size_t)(n ? n : 1) * sizeof *t);
    for (int64_t k = 0; t && k < n; k++) t[k].leaves = leaves, t[k].n = 0;
    return t;
}

/* -- blocks ----------------------------------------------------------------------------------- */
int eg__ring_runs(int64_t blocks, int rank, int ranks, bool zigzag, eg_span *run)
{
    if (!zigzag) {
        run[0] = (eg_span){ blocks * rank / ranks, blocks * (rank + 1) / ranks };
        return 1;
    }
    const int64_t k = rank, n = 2 * (int64_t)ranks;
    run[0] = (eg_span){ blocks * k / n, blocks * (k + 1) / n };
    run[1] = (eg_span){ blocks * (n - 1 - k) / n, blocks * (n - k) / n };
    return 2;
}
static eg_span places_of(const eg_ring *r, const eg_ring_side *s, int64_t block)
{
    return (eg_span){ block * r->block, eg__min64((block + 1) * r->block, s->length) };
}
/* The blocks of a rank: calls go on with the number of each and where it lies in that rank's
 * tensors. Returns how many places they have. */
typedef struct local_block {
    int64_t block, at, count;
} local_block;
static int64_t local_blocks(const eg_ring *r, const eg_ring_side *s, int rank, local_block *out,
                            int *n)
{
    eg_span run[2];
    const int runs = eg__ring_runs(s->blocks, rank, eg_ranks_count(r->ranks), r->zigzag, run);
    int64_t at = 0;
    *n = 0;
    for (int k = 0; k < runs; k++)
        for (int64_t b = run[k].from; b < run[k].to; b++) {
            const eg_span p = places_of(r, s, b);
            if (out) out[*n] = (local_block){ b, at, p.to - p.from };
            at += p.to - p.from;
            ++*n;
        }
    return at;
}
static local_block *list_blocks(walk *w, const eg_ring_side *s, int rank, int *n)
{
    local_blocks(w->r, s, rank, NULL, n);
    local_block *b = eg__alloc(w->cx, (size_t)(*n + 1) * sizeof *b);
    if (b) local_blocks(w->r, s, rank, b, n);
    return b;
}

/* x cut to the blocks of queries and keys; axis[k] < 0: x has not that letter. */
static eg_tensor *cut(eg_tensor *x, const int *axis, eg_span i, eg_span j)
{
    if (axis[0] >= 0) x = eg_slice_axis(x, axis[0], i.from, i.to, 1);
    return axis[1] >= 0 ? eg_slice_axis(x, axis[1], j.from, j.to, 1) : x;
}
/* A formula with a block's letters: place k of it is place from + k of the whole. */
static const char *shifted(const eg_formula *f, const eg_ring *r, int64_t i, int64_t j)
{
    char value[2][80], size[2][32];
    const int64_t from[] = { i + r->o.offset, j },
                  all[] = { r->query.length + r->o.offset, r->key.length };
    const char *name[] = { r->query.letter, r->key.letter };
    for (int k = 0; k < 2 && f; k++) {
        snprintf(value[k], sizeof value[k], "%s + %lld", name[k], (long long)from[k]);
        snprintf(size[k], sizeof size[k], "%lld", (long long)all[k]);
        f = eg_formula_replace(f, name[k], from[k] ? value[k] : NULL, size[k]);
    }
    return f ? f->text : NULL;
}
/* Attention of one block of queries to one of keys: (o, lse), recorded or not, of operands xs by
 * EG_RING_…. *empty: nothing may be seen in it. */
static bool ring_pair(walk *w, eg_tensor *const *xs, int64_t i, int64_t j, eg_tensor **o,
                      eg_tensor **lse, bool *empty)
{
    const eg_ring *r = w->r;
    eg_ctx *cx = w->cx;
    eg_attention_args a = r->o;
    int64_t none = 0;
    const uint64_t draw = cx->draw, seed = cx->seed;
    const bool training = cx->training;
    a.q = xs[EG_RING_Q], a.k = xs[EG_RING_K], a.v = xs[EG_RING_V];
    a.keep.x = xs[EG_RING_KEEP], a.bias.x = xs[EG_RING_BIAS], a.lengths.x = xs[EG_RING_LENGTHS];
    for (int k = 0; k < EG_GIVEN_MAX && a.with[k].name; k++) a.with[k].x = xs[EG_RING_WITH + k];
    a.where = shifted(r->where, r, i * r->block, j * r->block);
    a.score = shifted(r->score, r, i * r->block, j * r->block);
    a.ranks = NULL, a.offset = 0, a.offset_letter = NULL, a.lse = lse, a.empty = &none;
    /* a pair draws by its number, whoever computes it */
    cx->seed = r->seed, cx->training = r->training;
    cx->draw = r->draw + (uint64_t)(i * r->key.blocks + j);
    *o = eg_attention_with(&a);
    cx->seed = seed, cx->draw = draw, cx->training = training;
    *empty = eg_ok(*lse) && none == eg_size(*lse);
    return eg_ok(*o) && eg_ok(*lse);
}
/* Cuts the operands to a pair of blocks; q, k and v are given. */
static void cut_operands(walk *w, int64_t i, int64_t j, eg_tensor **xs)
{
    const eg_ring *r = w->r;
    const eg_span a = places_of(r, &r->query, i), b = places_of(r, &r->key, j);
    for (int k = EG_RING_KEEP; k < EG_RING_OPERANDS; k++) xs[k] = w->x[k];
    if (xs[EG_RING_KEEP]) xs[EG_RING_KEEP] = cut(xs[EG_RING_KEEP], r->keep_axis, a, b);
    if (xs[EG_RING_BIAS]) xs[EG_RING_BIAS] = cut(xs[EG_RING_BIAS], r->bias_axis, a, b);
    if (xs[EG_RING_LENGTHS]) {
        eg_tensor *n = eg_cast(xs[EG_RING_LENGTHS], EG_F64);
        xs[EG_RING_LENGTHS] =
            eg_cast(eg_clip(eg_shift(n, -(double)b.from), 0, (double)(b.to - b.from)), EG_I64);
    }
}

/* -- keys and values go round ----------------------------------------------------------------- */
/* Keys and values of the rank whose turn it is, as they lie in messages. */
typedef struct guest {
    int rank;
    char *now, *next;
    int64_t each[2]; /* numbers of k and of v for one place */
} guest;
static int64_t places_at(const walk *w, int rank)
{
    int n;
    return local_blocks(w->r, &w->r->key, rank, NULL, &n);
}
static size_t guest_bytes(const walk *w, const guest *g, int rank)
{
    return (size_t)((g->each[0] + g->each[1]) * places_at(w, rank)) * w->width;
}
static void raw_copy(walk *w, void *to, eg_tensor *x)
{
    const void *from = w->width == 8 ? (const void *)eg_f64(x) : (const void *)eg_f32(x);
    if (from) memcpy(to, from, (size_t)eg_size(x) * w->width);
}
/* Begins with this rank's own. */
static bool guest_open(walk *w, guest *g)
{
    const eg_ring *r = w->r;
    size_t most = 0;
    *g = (guest){ .rank = eg_ranks_rank(r->ranks) };
    for (int t = 0; t < 2; t++) {
        g->each[t] = 1;
        for (int a = 0; a < r->rank[1 + t]; a++)
            if (a != r->axis[1 + t]) g->each[t] *= r->dims[1 + t][a];
    }
    for (int k = 0; k < eg_ranks_count(r->ranks); k++) {
        const size_t bytes = guest_bytes(w, g, k);
        most = bytes > most ? bytes : most;
    }
    g->now = eg__alloc(w->cx, most + 1), g->next = eg__alloc(w->cx, most + 1);
    if (!g->now || !g->next) return false;
    raw_copy(w, g->now, w->x[EG_RING_K]);
    raw_copy(w, g->now + (size_t)eg_size(w->x[EG_RING_K]) * w->width, w->x[EG_RING_V]);
    return !eg_error(w->cx);
}
/* To the next rank with it; the one of the rank before comes. */
static bool guest_turn(walk *w, guest *g)
{
    const int ranks = eg_ranks_count(w->r->ranks), me = eg_ranks_rank(w->r->ranks),
              from = (g->rank + ranks - 1) % ranks;
    if (eg_ranks_exchange(w->r->ranks, (me + 1) % ranks, g->now, guest_bytes(w, g, g->rank),
                          (me + ranks - 1) % ranks, g->next, guest_bytes(w, g, from)))
        return false;
    char *swap = g->now;
    g->now = g->next, g->next = swap, g->rank = from;
    return true;
}
/* Its keys and values as tensors, in memory of the owner that is returned; NULL after an error. */
static eg_owner *guest_tensors(walk *w, const guest *g, eg_tensor **kv)
{
    const char *from = g->now;
    eg_owner *owner = eg_owner_open(w->cx);
    for (int t = 0; t < 2 && owner; t++) {
        int64_t dims[EG_RANK_MAX];
        memcpy(dims, w->r->dims[1 + t], sizeof dims);
        dims[w->r->axis[1 + t]] = places_at(w, g->rank);
        kv[t] = eg_owner_tensor(owner, w->r->dtype, w->r->rank[1 + t], dims);
        void *to = w->width == 8 ? (void *)eg_mut_f64(kv[t]) : (void *)eg_mut_f32(kv[t]);
        if (!to) break;
        memcpy(to, from, (size_t)eg_size(kv[t]) * w->width);
        from += (size_t)eg_size(kv[t]) * w->width;
    }
    if (!eg_error(w->cx)) return owner;
    eg_owner_close(owner);
    return NULL;
}
static eg_tensor *ring_block(eg_tensor *x, int axis, const local_block *b)
{
    return eg_slice_axis(x, axis, b->at, b->at + b->count, 1);
}

/* -- forward ---------------------------------------------------------------------------------- */
/* Block j of the keys with all blocks of queries of this rank. */
static bool forward_block(walk *w, eg_tensor *const *kv, const local_block *key,
                          const local_block *mine, int n, waiting *tree)
{
    const int64_t j = key->block;
    for (int q = 0; q < n; q++) {
        eg_owner *owner = eg_owner_open(w->cx);
        const eg_mark m = eg_push(w->cx);
        eg_tensor *xs[EG_RING_OPERANDS], *y[2];
        bool empty = false;
        part p = { .of = { j, j + 1 } };
        cut_operands(w, mine[q].block, j, xs);
        xs[EG_RING_Q] = ring_block(w->x[EG_RING_Q], w->r->axis[0], &mine[q]);
        xs[EG_RING_K] = ring_block(kv[0], w->r->axis[1], key);
        xs[EG_RING_V] = ring_block(kv[1], w->r->axis[2], key);
        bool good = owner && ring_pair(w, xs, mine[q].block, j, &y[0], &y[1], &empty);
        if (good && !empty) good = part_keep(w, &p, owner, 2, y);
        eg_pop(w->cx, m);
        if (empty) eg_owner_close(owner);
        if (!good || !part_insert(w, &tree[q], p)) return false;
    }
    return true;
}
/* Writes rows [at, at + count) along an axis of a row-major array. */
static void put_rows(walk *w, char *to, int rank, const int64_t *dims, int axis,
                     const local_block *b, eg_tensor *x)
{
    int64_t outer = 1, inner = 1;
    for (int a = 0; a < axis; a++) outer *= dims[a];
    for (int a = axis + 1; a < rank; a++) inner *= dims[a];
    const char *from = w->width == 8 ? (const void *)eg_f64(x) : (const void *)eg_f32(x);
    const size_t run = (size_t)(b->count * inner) * w->width;
    for (int64_t k = 0; from && k < outer; k++)
        memcpy(to + (size_t)((k * dims[axis] + b->at) * inner) * w->width, from + (size_t)k * run,
               run);
}
/* The own blocks of queries with every block of keys that comes by. */
static bool forward_turns(walk *w, const local_block *own, int mine, waiting *tree)
{
    const eg_ring *r = w->r;
    guest g;
    bool good = guest_open(w, &g);
    for (int d = 0; d < eg_ranks_count(r->ranks); d++) {
        if (eg_ranks_meet(r->ranks) || !good || (d && !guest_turn(w, &g))) return false;
        int n = 0;
        eg_tensor *kv[2];
        const local_block *theirs = list_blocks(w, &r->key, g.rank, &n);
        eg_owner *owner = guest_tensors(w, &g, kv);
        good = theirs && owner;
        for (int b = 0; good && b < n; b++)
            good = forward_block(w, kv, &theirs[b], own, mine, tree);
        eg_owner_close(owner);
    }
    return !eg_ranks_meet(r->ranks) && good;
}
bool eg__ring_forward(const eg_ring *r, eg_tensor *const *x, void *y, void *lse)
{
    walk w = { .r = r, .cx = x[0]->cx, .x = x, .width = r->dtype == EG_F64 ? 8 : 4 };
    int mine = 0;
    const eg_mark m = eg_push(w.cx);
    const bool was = eg_nograd(w.cx, true);
    local_block *own = list_blocks(&w, &r->query, eg_ranks_rank(r->ranks), &mine);
    waiting *tree = own ? trees_of(&w, mine, r->key.blocks) : NULL;
    bool good = forward_turns(&w, own, tree ? mine : 0, tree);
    memset(y, 0, (size_t)r->y_count * w.width);
    for (int64_t k = 0; k < r->l_count; k++)
        if (w.width == 8)
            ((double *)lse)[k] = -INFINITY;
        else
            ((float *)lse)[k] = -INFINITY;
    for (int q = 0; good && q < mine; q++) {
        const part *p = &tree[q].part[0];
        if (!tree[q].n || !p->there) continue;
        put_rows(&w, y, r->y_rank, r->y_dims, r->y_axis, &own[q], p->x[0]);
        put_rows(&w, lse, r->l_rank, r->l_dims, r->l_axis, &own[q], p->x[1]);
    }
    eg_nograd(w.cx, was);
    eg_pop(w.cx, m);
    return good && !eg_error(w.cx);
}

/* -- backward: one pair of blocks ------------------------------------------------------------- */
typedef struct slopes {
    walk w;
    eg_tensor *y, *lse, *gy, *gl; /* of this rank's queries */
    int extras;                   /* float operands beside q, k and v … */
    int extra[EG_RING_OPERANDS];  /* … by EG_RING_… */
    local_block *own;
    int mine;
    waiting *dq;  /* by own block of queries: dq and those of extras, over blocks of keys */
    waiting *dkv; /* by own block of keys: dk, dv, over blocks of queries */
    local_block *keys;
    int key_count;
    size_t each[2]; /* bytes of dk and of dv for one place */
} slopes;

/* Σ ⟨o, c g⟩ + Σ ⟨lse, c (⟨g, o − y⟩ + gl)⟩: its gradient is what this pair adds. */
static eg_tensor *pair_objective(slopes *s, const local_block *q, eg_tensor *o, eg_tensor *l)
{
    walk *w = &s->w;
    const eg_ring *r = w->r;
    const bool was = eg_nograd(w->cx, true);
    eg_tensor *y = ring_block(s->y, r->y_axis, q), *g = ring_block(s->gy, r->y_axis, q),
              *all = ring_block(s->lse, r->l_axis, q), *gl = ring_block(s->gl, r->l_axis, q),
              *c = eg_exp(eg_sub(l, eg_maximum(all, number_like(w, -1e38)))),
              *to_o = eg_einsum(r->stretch, g, c),
              *to_l = eg_mul(c, eg_add(eg_einsum(r->inner, g, eg_sub(o, y)), gl));
    eg_nograd(w->cx, was);
    return eg_add(eg_sum(NULL, eg_mul(o, to_o)), eg_sum(NULL, eg_mul(l, to_l)));
}
/* The gradients by q, k, v and the extras; false after an error. */
static bool pair_slopes(slopes *s, eg_tensor *const *kv, const local_block *key,
                        const local_block *q, eg_tensor **d, bool *empty)
{
    walk *w = &s->w;
    const eg_ring *r = w->r;
    eg_tensor *xs[EG_RING_OPERANDS], *from[TENSORS], *o, *l;
    from[0] = eg_copy(ring_block(w->x[EG_RING_Q], r->axis[0], q));
    from[1] = eg_copy(ring_block(kv[0], r->axis[1], key));
    from[2] = eg_copy(ring_block(kv[1], r->axis[2], key));
    for (int k = 0; k < s->extras; k++) from[3 + k] = w->x[s->extra[k]];
    w->cx->recording = true;
    cut_operands(w, q->block, key->block, xs);
    xs[EG_RING_Q] = from[0], xs[EG_RING_K] = from[1], xs[EG_RING_V] = from[2];
    bool good = ring_pair(w, xs, q->block, key->block, &o, &l, empty);
    eg_tensor *f = good && !*empty ? pair_objective(s, q, o, l) : NULL;
    w->cx->recording = false;
    return good && (*empty || !eg__grad(f, NULL, 3 + s->extras, from, d));
}
/* One block of keys with the own blocks of queries: adds to s->dq, and to the tree of that block's
 * dk and dv. */
static bool backward_block(slopes *s, eg_tensor *const *kv, const local_block *key, waiting *dkv)
{
    walk *w = &s->w;
    for (int q = 0; q < s->mine; q++) {
        eg_owner *owner[2] = { eg_owner_open(w->cx), eg_owner_open(w->cx) };
        const eg_mark m = eg_push(w->cx);
        part of_q = { .of = { key->block, key->block + 1 } },
             of_k = { .of = { s->own[q].block, s->own[q].block + 1 } };
        eg_tensor *d[TENSORS] = { NULL }, *first[TENSORS];
        bool empty = false;
        bool good = owner[0] && owner[1] && pair_slopes(s, kv, key, &s->own[q], d, &empty);
        if (good && !empty) {
            first[0] = d[0];
            for (int k = 0; k < s->extras; k++) first[1 + k] = d[3 + k];
            good = part_keep(w, &of_q, owner[0], 1 + s->extras, first) &&
                   part_keep(w, &of_k, owner[1], 2, d + 1);
        }
        eg_pop(w->cx, m);
        if (empty) eg_owner_close(owner[0]), eg_owner_close(owner[1]);
        if (!good || !part_insert(w, &s->dq[q], of_q) || !part_insert(w, dkv, of_k)) return false;
    }
    return true;
}

/* -- backward: what is whole goes to whose keys they are -------------------------------------- */
/* The nodes of the tree of blocks of queries that a rank has whole, from left to right. */
static int nodes_of(const eg_ring *r, int rank, eg_span *node)
{
    eg_span run[2];
    int runs = eg__ring_runs(r->query.blocks, rank, eg_ranks_count(r->ranks), r->zigzag, run),
        n = 0;
    if (runs == 2 && run[0].to == run[1].from) run[0].to = run[1].to, runs = 1;
    for (int k = 0; k < runs; k++)
        for (int64_t a = run[k].from; a < run[k].to; a = node[n++].to) {
            eg_span p = { 0, r->query.blocks };
            while (p.from != a || p.to > run[k].to) {
                const int64_t middle = eg_ranks_tree_middle(p);
                if (a < middle)
                    p.to = middle;
                else
                    p.from = middle;
            }
            node[n] = p;
        }
    return n;
}
static const part *waiting_at(const waiting *t, eg_span node)
{
    for (int k = 0; k < t->n; k++)
        if (t->part[k].of.from == node.from && t->part[k].of.to == node.to) return &t->part[k];
    return NULL;
}
static size_t slope_bytes(const slopes *s, int64_t places)
{
    return (s->each[0] + s->each[1]) * (size_t)places;
}
/* Writes flags, and dk and dv of what is there, of the keys of another rank. Returns the bytes. */
static size_t pack_slopes(slopes *s, const local_block *keys, int n, const waiting *dkv,
                          const eg_span *node, int nodes, uint8_t *flag, char *to)
{
    size_t at = 0;
    for (int b = 0; b < n; b++)
        for (int k = 0; k < nodes; k++) {
            const part *p = waiting_at(&dkv[b], node[k]);
            if (!(*flag++ = p && p->there)) continue;
            if (to) {
                raw_copy(&s->w, to + at, p->x[0]);
                raw_copy(&s->w, to + at + s->each[0] * (size_t)keys[b].count, p->x[1]);
            }
            at += slope_bytes(s, keys[b].count);
        }
    return at;
}
/* Puts what another rank has made into the trees of the own keys. */
static bool unpack_slopes(slopes *s, const eg_span *node, int nodes, const uint8_t *flag,
                          const char *from)
{
    walk *w = &s->w;
    const eg_ring *r = w->r;
    for (int b = 0; b < s->key_count; b++)
        for (int k = 0; k < nodes; k++) {
            part p = { .of = node[k] };
            if (*flag++) {
                eg_tensor *x[2];
                eg_owner *owner = eg_owner_open(w->cx);
                const eg_mark m = eg_push(w->cx);
                for (int t = 0; t < 2; t++) {
                    int64_t dims[EG_RANK_MAX];
                    memcpy(dims, r->dims[1 + t], sizeof dims);
                    dims[r->axis[1 + t]] = s->keys[b].count;
                    x[t] = eg_from_n(w->cx, r->dtype, from, r->rank[1 + t], dims);
                    from += s->each[t] * (size_t)s->keys[b].count;
                }
                const bool good = owner && part_keep(w, &p, owner, 2, x);
                eg_pop(w->cx, m);
                if (!good) return false;
            }
            if (!part_insert(w, &s->dkv[b], p)) return false;
        }
    return true;
}
/* After turn d: sends to the rank whose keys were here, and gets from the one that had the own. */
static bool slopes_exchange(slopes *s, int d, const local_block *keys, int n, waiting *dkv)
{
    walk *w = &s->w;
    const eg_ring *r = w->r;
    const int ranks = eg_ranks_count(r->ranks), me = eg_ranks_rank(r->ranks),
              to = (me - d + ranks) % ranks, from = (me + d) % ranks;
    eg_span mine[WAITING], theirs[WAITING];
    const int out = nodes_of(r, me, mine), in = nodes_of(r, from, theirs);
    eg_owner *owner = eg_owner_open(w->cx);
    const size_t flags = (size_t)(n * out), wants = (size_t)(s->key_count * in);
    uint8_t *flag = owner ? eg_owner_alloc(owner, flags + wants + 2) : NULL, *got = flag + flags;
    size_t sends = flag ? pack_slopes(s, keys, n, dkv, mine, out, flag, NULL) : 0, takes = 0;
    bool good = flag && !eg_ranks_exchange(r->ranks, to, flag, flags, from, got, wants);
    for (size_t k = 0; good && k < wants; k++)
        if (got[k]) takes += slope_bytes(s, s->keys[k / (size_t)in].count);
    char *room = good ? eg_owner_alloc(owner, sends + takes + 1) : NULL;
    if (room) pack_slopes(s, keys, n, dkv, mine, out, flag, room);
    good = room && !eg_ranks_exchange(r->ranks, to, room, sends, from, room + sends, takes) &&
           unpack_slopes(s, theirs, in, got, room + sends);
    eg_owner_close(owner);
    for (int b = 0; b < n; b++)
        for (int k = 0; k < dkv[b].n; k++) eg_owner_close(dkv[b].part[k].owner);
    return good;
}
/* Every block of keys that comes by with the own blocks of queries; then its gradients go home. */
static bool backward_turns(slopes *s)
{
    walk *w = &s->w;
    const eg_ring *r = w->r;
    guest g;
    bool good = guest_open(w, &g);
    for (int d = 0; d < eg_ranks_count(r->ranks); d++) {
        if (eg_ranks_meet(r->ranks) || !good || (d && !guest_turn(w, &g))) return false;
        int n = 0;
        eg_tensor *kv[2];
        const local_block *keys = list_blocks(w, &r->key, g.rank, &n);
        eg_owner *owner = guest_tensors(w, &g, kv);
        waiting *dkv = d ? trees_of(w, n, r->query.blocks) : s->dkv;
        good = keys && owner && dkv;
        for (int b = 0; good && b < n; b++) good = backward_block(s, kv, &keys[b], &dkv[b]);
        eg_owner_close(owner);
        if (eg_ranks_meet(r->ranks)) return false;
        if (d && good) good = slopes_exchange(s, d, keys, n, dkv);
    }
    return !eg_ranks_meet(r->ranks) && good;
}

/* Adds up the gradients of the extras over the blocks of queries of all ranks, and writes them. */
static bool backward_extras(slopes *s, void *const *dx)
{
    walk *w = &s->w;
    const eg_ring *r = w->r;
    const int ranks = eg_ranks_count(r->ranks), me = eg_ranks_rank(r->ranks);
    if (!s->extras) return true;
    eg_span node[WAITING];
    int most = 0;
    size_t size = 0;
    for (int k = 0; k < ranks; k++) {
        const int n = nodes_of(r, k, node);
        most = n > most ? n : most;
    }
    for (int k = 0; k < s->extras; k++) size += (size_t)eg_size(w->x[s->extra[k]]) * w->width;
    const size_t row = (size_t)most * (size + 1);
    waiting *own = trees_of(w, 1, r->query.blocks), *all = trees_of(w, 1, r->query.blocks);
    char *mine = eg__alloc(w->cx, row + 1), *rows = eg__alloc(w->cx, row * (size_t)ranks + 1);
    bool good = own && all && mine && rows;
    for (int q = 0; good && q < s->mine; q++) {
        part p = s->dq[q].part[0];
        p.of = (eg_span){ s->own[q].block, s->own[q].block + 1 };
        if (p.there) memmove(p.x, p.x + 1, (size_t)s->extras * sizeof *p.x), p.n = s->extras;
        good = part_insert(w, own, p);
    }
    for (int k = 0, n = nodes_of(r, me, node); good && k < n; k++) {
        const part *p = waiting_at(own, node[k]);
        char *to = mine + most + (size_t)k * size;
        mine[k] = (char)(p && p->there);
        for (int e = 0; mine[k] && e < s->extras; e++) {
            raw_copy(w, to, p->x[e]);
            to += (size_t)eg_size(p->x[e]) * w->width;
        }
    }
    if (eg_ranks_meet(r->ranks) || !good || eg_ranks_gather(r->ranks, mine, row, rows))
        return false;
    for (int rank = 0; rank < ranks && good; rank++)
        for (int k = 0, n = nodes_of(r, rank, node); good && k < n; k++) {
            const char *from = rows + (size_t)rank * row, *x = from + most + (size_t)k * size;
            part p = { .of = node[k] };
            eg_tensor *d[TENSORS];
            for (int e = 0; from[k] && e < s->extras; e++) {
                const eg_tensor *like = w->x[s->extra[e]];
                d[e] = eg_from_n(w->cx, r->dtype, x, eg_rank(like), eg_dims(like));
                x += (size_t)eg_size(like) * w->width;
            }
            good = (!from[k] || part_keep(w, &p, eg_owner_open(w->cx), s->extras, d)) &&
                   part_insert(w, all, p);
        }
    for (int e = 0; good && e < s->extras; e++)
        if (all->part[0].there && dx[s->extra[e]]) raw_copy(w, dx[s->extra[e]], all->part[0].x[e]);
    return good;
}
bool eg__ring_backward(const eg_ring *r, eg_tensor *const *x, eg_tensor *y, eg_tensor *lse,
                       eg_tensor *gy, eg_tensor *gl, void *const *dx)
{
    slopes s = {
        .w = { .r = r, .cx = x[0]->cx, .x = x, .add = true }, .y = y, .lse = lse, .gy = gy, .gl = gl
    };
    walk *w = &s.w;
    w->width = r->dtype == EG_F64 ? 8 : 4;
    const int me = eg_ranks_rank(r->ranks);
    const eg_mark m = eg_push(w->cx);
    const bool was = eg_nograd(w->cx, true);
    for (int k = EG_RING_BIAS; k < EG_RING_OPERANDS; k++)
        if (x[k] && eg_type(x[k]) == r->dtype) s.extra[s.extras++] = k;
    for (int t = 0; t < 2; t++) {
        s.each[t] = w->width;
        for (int a = 0; a < r->rank[1 + t]; a++)
            if (a != r->axis[1 + t]) s.each[t] *= (size_t)r->dims[1 + t][a];
    }
    s.own = list_blocks(w, &r->query, me, &s.mine);
    s.keys = list_blocks(w, &r->key, me, &s.key_count);
    s.dq = trees_of(w, s.mine, r->key.blocks), s.dkv = trees_of(w, s.key_count, r->query.blocks);
    bool good = s.own && s.keys && s.dq && s.dkv;
    if (!good) s.mine = 0;
    good = backward_turns(&s) && good;
    for (int q = 0; good && q < s.mine; q++)
        if (s.dq[q].part[0].there)
            put_rows(w, dx[EG_RING_Q], r->rank[0], r->dims[0], r->axis[0], &s.own[q],
                     s.dq[q].part[0].x[0]);
    for (int b = 0; good && b < s.key_count; b++)
        for (int t = 0; t < 2 && s.dkv[b].part[0].there; t++)
            put_rows(w, dx[EG_RING_K + t], r->rank[1 + t], r->dims[1 + t], r->axis[1 + t],
                     &s.keys[b], s.dkv[b].part[0].x[t]);
    good = good && backward_extras(&s, dx);
    eg_nograd(w->cx, was);
    eg_pop(w->cx, m);
    return good && !eg_error(w->cx);
}
