/* ring_backward.c: the gradients of attention over a divided sequence.
 *
 * For each pair of a block of queries and a block of keys, the result (o_k, lse_k) is computed
 * again and differentiated with the cotangents
 *
 *   of o_k:    c g,   c = e^(lse_k − lse), or n_k/n if n scores of the row are ∞
 *   of lse_k:  c (⟨g, o_k − o⟩ + g_lse)
 *
 * dq is summed along the tree over blocks of keys. dk, dv and the gradients of the tensors that the
 * score reads are summed along the tree over blocks of queries: a rank adds dk and dv over each
 * subtree of which it has all blocks, and sends these sums to the rank that has the keys. */
#include "attention/ring_walk.h"

typedef struct slopes {
    eg_ring_walk w;
    eg_ring_results of;          /* results for the queries of this rank */
    int extras;                  /* the extras: operands of floats other than q, k, v */
    int extra[EG_RING_OPERANDS]; /* which operands they are, by EG_RING_… */
    eg_ring_block *own;
    int mine;
    eg_partials *dq;  /* by block of queries of this rank: dq and the gradients of the extras, over
                       * blocks of keys */
    eg_partials *dkv; /* by block of keys of this rank: dk and dv, over blocks of queries */
    eg_ring_block *keys;
    int key_count;
    size_t each[2]; /* bytes of dk and of dv for one position */
} slopes;

/* Returns c, the share of this pair of blocks in the rows of q. n is the number of its scores of ∞
 * in each row, or NULL. */
static eg_tensor *pair_share(slopes *s, const eg_ring_block *q, eg_tensor *l, eg_tensor *n)
{
    eg_ring_walk *w = &s->w;
    const int axis = w->r->l_axis;
    eg_tensor *all = eg__ring_slice(s->of.lse, axis, q),
              *c = eg_exp(eg_sub(l, eg_maximum(all, eg__ring_number(w, -1e38))));
    if (!s->of.infinite) return c;
    eg_tensor *m = eg__ring_slice(s->of.infinite, axis, q), *one = eg__ring_number(w, 1);
    eg_tensor *share = eg_div(n ? n : eg_zeros_like(l), eg_maximum(m, one));
    return eg_where(eg_gt(eg__ring_is_infinite(all), eg__ring_number(w, 0)), share, c);
}
/* Returns Σ ⟨o, c g⟩ + Σ ⟨lse, c (⟨g, o − y⟩ + gl)⟩, whose gradient is the part of this pair in the
 * gradient. x: o, lse and n of the pair. */
static eg_tensor *pair_objective(slopes *s, const eg_ring_block *q, eg_tensor *const *x)
{
    eg_ring_walk *w = &s->w;
    const eg_ring *r = w->r;
    const bool was = eg_nograd(w->cx, true);
    eg_tensor *y = eg__ring_slice(s->of.y, r->y_axis, q),
              *g = eg__ring_slice(s->of.gy, r->y_axis, q),
              *gl = eg__ring_slice(s->of.gl, r->l_axis, q), *c = pair_share(s, q, x[1], x[2]),
              *to_o = eg_einsum(r->weigh, g, c),
              *to_l = eg_mul(c, eg_add(eg_einsum(r->inner, g, eg_sub(x[0], y)), gl));
    eg_nograd(w->cx, was);
    return eg_add(eg_sum(NULL, eg_mul(x[0], to_o)), eg_sum(NULL, eg_mul(x[1], to_l)));
}
/* Computes the gradients of one pair of blocks by q, k, v and the extras. Sets *empty if all its
 * pairs are forbidden. False after an error. */
static bool pair_slopes(slopes *s, eg_tensor *const *kv, const eg_ring_block *key,
                        const eg_ring_block *q, eg_tensor **d, bool *empty)
{
    eg_ring_walk *w = &s->w;
    const eg_ring *r = w->r;
    eg_tensor *xs[EG_RING_OPERANDS], *from[EG_PARTIAL_TENSORS], *y[3];
    from[0] = eg__ring_slice(w->x[EG_RING_Q], r->axis[0], q);
    from[1] = eg__ring_slice(kv[0], r->axis[1], key);
    from[2] = eg__ring_slice(kv[1], r->axis[2], key);
    for (int k = 0; k < s->extras; k++) from[3 + k] = w->x[s->extra[k]];
    w->cx->recording = true;
    eg__ring_cut(w, q->block, key->block, xs);
    xs[EG_RING_Q] = from[0], xs[EG_RING_K] = from[1], xs[EG_RING_V] = from[2];
    bool good = eg__ring_pair(w, xs, q->block, key->block, y, empty);
    eg_tensor *f = good && !*empty ? pair_objective(s, q, y) : NULL;
    w->cx->recording = false;
    return good && (*empty || !eg__grad(f, NULL, 3 + s->extras, from, d));
}
/* Computes the gradients of one block of keys with all blocks of queries of this rank, and adds
 * them to s->dq and to the tree of dk and dv of the block of keys. False after an error. */
static bool backward_block(slopes *s, eg_tensor *const *kv, const eg_ring_block *key,
                           eg_partials *dkv)
{
    eg_ring_walk *w = &s->w;
    for (int q = 0; q < s->mine; q++) {
        eg_owner *owner[2] = { eg__owner_open_pooled(w->cx), eg__owner_open_pooled(w->cx) };
        const eg_mark m = eg_push(w->cx);
        eg_partial of_q = { .of = { key->block, key->block + 1 } },
                   of_k = { .of = { s->own[q].block, s->own[q].block + 1 } };
        eg_tensor *d[EG_PARTIAL_TENSORS] = { NULL }, *first[EG_PARTIAL_TENSORS];
        bool empty = false;
        bool good = owner[0] && owner[1] && pair_slopes(s, kv, key, &s->own[q], d, &empty);
        if (good && !empty) {
            first[0] = d[0];
            for (int k = 0; k < s->extras; k++) first[1 + k] = d[3 + k];
            good = eg__partial_set(w, &of_q, owner[0], 1 + s->extras, first) &&
                   eg__partial_set(w, &of_k, owner[1], 2, d + 1);
        }
        eg_pop(w->cx, m);
        if (empty) eg_owner_close(owner[0]), eg_owner_close(owner[1]);
        if (!good || !eg__partial_insert(w, &s->dq[q], of_q) || !eg__partial_insert(w, dkv, of_k))
            return false;
    }
    return true;
}

/* -- sums over whole subtrees are sent to the rank that has the keys -------------------------- */
/* Sets node[] to the largest subtrees over blocks of queries of which a rank has every block, from
 * left to right. Returns their number. */
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
static size_t slope_bytes(const slopes *s, int64_t positions)
{
    return (s->each[0] + s->each[1]) * (size_t)positions;
}
/* Packs dk and dv of another rank's keys for sending: a flag for each subtree, 1 if it has a sum,
 * and the sums. If `to` is NULL, only the flags are written. Returns the bytes of the sums. */
static size_t pack_slopes(slopes *s, const eg_ring_block *keys, int n, const eg_partials *dkv,
                          const eg_span *node, int nodes, uint8_t *flag, char *to)
{
    size_t at = 0;
    for (int b = 0; b < n; b++)
        for (int k = 0; k < nodes; k++) {
            const eg_partial *p = eg__partial_at(&dkv[b], node[k]);
            if (!(*flag++ = p && p->there)) continue;
            if (to) {
                eg__ring_copy(&s->w, to + at, p->x[0]);
                eg__ring_copy(&s->w, to + at + s->each[0] * (size_t)keys[b].count, p->x[1]);
            }
            at += slope_bytes(s, keys[b].count);
        }
    return at;
}
/* Inserts the sums that another rank sent into the trees of this rank's keys. False after an
 * error. */
static bool unpack_slopes(slopes *s, const eg_span *node, int nodes, const uint8_t *flag,
                          const char *from)
{
    eg_ring_walk *w = &s->w;
    const eg_ring *r = w->r;
    for (int b = 0; b < s->key_count; b++)
        for (int k = 0; k < nodes; k++) {
            eg_partial p = { .of = node[k] };
            if (*flag++) {
                eg_tensor *x[2];
                eg_owner *owner = eg__owner_open_pooled(w->cx);
                const eg_mark m = eg_push(w->cx);
                for (int t = 0; t < 2; t++) {
                    int64_t dims[EG_RANK_MAX];
                    memcpy(dims, r->dims[1 + t], sizeof dims);
                    dims[r->axis[1 + t]] = s->keys[b].count;
                    x[t] = eg_from_n(w->cx, r->dtype, from, r->rank[1 + t], dims);
                    from += s->each[t] * (size_t)s->keys[b].count;
                }
                const bool good = owner && eg__partial_set(w, &p, owner, 2, x);
                eg_pop(w->cx, m);
                if (!good) return false;
            }
            if (!eg__partial_insert(w, &s->dkv[b], p)) return false;
        }
    return true;
}
/* After step d, sends dk and dv to the rank whose keys this rank had, and receives those of this
 * rank's keys from the rank that had them. False after an error. */
static bool slopes_exchange(slopes *s, int d, const eg_ring_block *keys, int n, eg_partials *dkv)
{
    eg_ring_walk *w = &s->w;
    const eg_ring *r = w->r;
    const int ranks = eg_ranks_count(r->ranks), me = eg_ranks_rank(r->ranks),
              to = (me - d + ranks) % ranks, from = (me + d) % ranks;
    eg_span mine[EG_PARTIALS_MAX], theirs[EG_PARTIALS_MAX];
    const int out = nodes_of(r, me, mine), in = nodes_of(r, from, theirs);
    eg_owner *owner = eg__owner_open_pooled(w->cx);
    const size_t flags = (size_t)(n * out), wants = (size_t)(s->key_count * in);
    uint8_t *flag = owner ? eg_owner_alloc(owner, flags + wants + 2) : NULL,
            *got = flag ? flag + flags : NULL;
    size_t sends = flag ? pack_slopes(s, keys, n, dkv, mine, out, flag, NULL) : 0, takes = 0;
    /* a rank without memory sends nothing, so the others must not wait for it */
    bool good = !eg_ranks_barrier(r->ranks) && flag &&
                !eg_ranks_exchange(r->ranks, to, flag, flags, from, got, wants);
    for (size_t k = 0; good && k < wants; k++)
        if (got[k]) takes += slope_bytes(s, s->keys[k / (size_t)in].count);
    char *memory = good ? eg_owner_alloc(owner, sends + takes + 1) : NULL;
    if (memory) pack_slopes(s, keys, n, dkv, mine, out, flag, memory);
    good = good && !eg_ranks_barrier(r->ranks) && memory &&
           !eg_ranks_exchange(r->ranks, to, memory, sends, from, memory + sends, takes) &&
           unpack_slopes(s, theirs, in, got, memory + sends);
    eg_owner_close(owner);
    for (int b = 0; b < n; b++)
        for (int k = 0; k < dkv[b].n; k++) eg_owner_close(dkv[b].part[k].owner);
    return good;
}
/* Computes the gradients of the blocks of keys of one rank with this rank's blocks of queries, and
 * sends them. False after an error. */
static bool ring_backward_step(void *user, int step, eg_tensor *const *kv,
                               const eg_ring_block *keys, int n)
{
    slopes *s = user;
    eg_ring_walk *w = &s->w;
    eg_partials *dkv = step ? eg__partials_new(w, n, w->r->query.blocks) : s->dkv;
    bool good = dkv != NULL;
    for (int b = 0; good && b < n; b++) good = backward_block(s, kv, &keys[b], &dkv[b]);
    if (eg_ranks_barrier(w->r->ranks)) return false;
    return good && (!step || slopes_exchange(s, step, keys, n, dkv));
}

/* Adds the gradients of the extras over the blocks of queries of all ranks, and writes them. False
 * after an error. */
static bool backward_extras(slopes *s, void *const *dx)
{
    eg_ring_walk *w = &s->w;
    const eg_ring *r = w->r;
    const int ranks = eg_ranks_count(r->ranks), me = eg_ranks_rank(r->ranks);
    if (!s->extras) return true;
    eg_span node[EG_PARTIALS_MAX];
    int most = 0;
    size_t size = 0;
    for (int k = 0; k < ranks; k++) {
        const int n = nodes_of(r, k, node);
        most = n > most ? n : most;
    }
    for (int k = 0; k < s->extras; k++) size += (size_t)eg_size(w->x[s->extra[k]]) * w->width;
    const size_t row = (size_t)most * (size + 1);
    eg_partials *own = eg__partials_new(w, 1, r->query.blocks),
                *all = eg__partials_new(w, 1, r->query.blocks);
    char *mine = eg__alloc(w->cx, row + 1), *rows = eg__alloc(w->cx, row * (size_t)ranks + 1);
    bool good = own && all && mine && rows;
    for (int q = 0; good && q < s->mine; q++) {
        eg_partial p = s->dq[q].part[0];
        p.of = (eg_span){ s->own[q].block, s->own[q].block + 1 };
        if (p.there) memmove(p.x, p.x + 1, (size_t)s->extras * sizeof *p.x), p.n = s->extras;
        good = eg__partial_insert(w, own, p);
    }
    for (int k = 0, n = nodes_of(r, me, node); good && k < n; k++) {
        const eg_partial *p = eg__partial_at(own, node[k]);
        char *to = mine + most + (size_t)k * size;
        mine[k] = (char)(p && p->there);
        for (int e = 0; mine[k] && e < s->extras; e++) {
            eg__ring_copy(w, to, p->x[e]);
            to += (size_t)eg_size(p->x[e]) * w->width;
        }
    }
    if (eg_ranks_barrier(r->ranks) || !good || eg_ranks_gather(r->ranks, mine, row, rows))
        return false;
    for (int rank = 0; rank < ranks && good; rank++)
        for (int k = 0, n = nodes_of(r, rank, node); good && k < n; k++) {
            const char *from = rows + (size_t)rank * row, *x = from + most + (size_t)k * size;
            eg_partial p = { .of = node[k] };
            eg_tensor *d[EG_PARTIAL_TENSORS];
            for (int e = 0; from[k] && e < s->extras; e++) {
                const eg_tensor *like = w->x[s->extra[e]];
                d[e] = eg_from_n(w->cx, r->dtype, x, eg_rank(like), eg_dims(like));
                x += (size_t)eg_size(like) * w->width;
            }
            good =
                (!from[k] || eg__partial_set(w, &p, eg__owner_open_pooled(w->cx), s->extras, d)) &&
                eg__partial_insert(w, all, p);
        }
    for (int e = 0; good && e < s->extras; e++)
        if (all->part[0].there && dx[s->extra[e]])
            eg__ring_copy(w, dx[s->extra[e]], all->part[0].x[e]);
    return good;
}
bool eg__ring_backward(const eg_ring *r, eg_tensor *const *x, const eg_ring_results *of,
                       void *const *dx)
{
    slopes s = { .w = { .r = r, .cx = x[0]->cx, .x = x, .add = true }, .of = *of };
    eg_ring_walk *w = &s.w;
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
    s.own = eg__ring_blocks(w, &r->query, me, &s.mine);
    s.keys = eg__ring_blocks(w, &r->key, me, &s.key_count);
    s.dq = eg__partials_new(w, s.mine, r->key.blocks),
    s.dkv = eg__partials_new(w, s.key_count, r->query.blocks);
    bool good = s.own && s.keys && s.dq && s.dkv;
    if (!good) s.mine = 0;
    good = eg__ring_steps(w, ring_backward_step, &s) && good;
    for (int q = 0; good && q < s.mine; q++)
        if (s.dq[q].part[0].there)
            eg__ring_put(w, dx[EG_RING_Q], r->rank[0], r->dims[0], r->axis[0], &s.own[q],
                         s.dq[q].part[0].x[0]);
    for (int b = 0; good && b < s.key_count; b++)
        for (int t = 0; t < 2 && s.dkv[b].part[0].there; t++)
            eg__ring_put(w, dx[EG_RING_K + t], r->rank[1 + t], r->dims[1 + t], r->axis[1 + t],
                         &s.keys[b], s.dkv[b].part[0].x[t]);
    good = good && backward_extras(&s, dx);
    eg_nograd(w->cx, was);
    eg_pop(w->cx, m);
    return good && !eg_error(w->cx);
}
