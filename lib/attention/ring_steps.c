/* ring_steps.c: passes the keys and values of a divided sequence from rank to rank, so that each
 * rank gets those of every other one. */
#include "attention/ring_walk.h"

/* The keys and values of one rank, in the layout of the message. */
typedef struct shard {
    int rank;
    char *now, *next;
    int64_t each[2]; /* elements of k and of v for one position */
} shard;
static size_t shard_bytes(const eg_ring_walk *w, const shard *g, int rank)
{
    return (size_t)((g->each[0] + g->each[1]) * eg__ring_positions(w, rank)) * w->width;
}
/* Packs this rank's own keys and values. False after an error. */
static bool shard_open(eg_ring_walk *w, shard *g)
{
    const eg_ring *r = w->r;
    size_t most = 0;
    *g = (shard){ .rank = eg_ranks_rank(r->ranks) };
    for (int t = 0; t < 2; t++) {
        g->each[t] = 1;
        for (int a = 0; a < r->rank[1 + t]; a++)
            if (a != r->axis[1 + t]) g->each[t] *= r->dims[1 + t][a];
    }
    for (int k = 0; k < eg_ranks_count(r->ranks); k++) {
        const size_t bytes = shard_bytes(w, g, k);
        most = bytes > most ? bytes : most;
    }
    g->now = eg__alloc(w->cx, most + 1), g->next = eg__alloc(w->cx, most + 1);
    if (!g->now || !g->next) return false;
    eg__ring_copy(w, g->now, w->x[EG_RING_K]);
    eg__ring_copy(w, g->now + (size_t)eg_size(w->x[EG_RING_K]) * w->width, w->x[EG_RING_V]);
    return !eg_error(w->cx);
}
/* Sends the shard to the next rank and receives that of the previous rank. False after an error. */
static bool shard_pass_on(eg_ring_walk *w, shard *g)
{
    const int ranks = eg_ranks_count(w->r->ranks), me = eg_ranks_rank(w->r->ranks),
              from = (g->rank + ranks - 1) % ranks;
    if (eg_ranks_exchange(w->r->ranks, (me + 1) % ranks, g->now, shard_bytes(w, g, g->rank),
                          (me + ranks - 1) % ranks, g->next, shard_bytes(w, g, from)))
        return false;
    char *swap = g->now;
    g->now = g->next, g->next = swap, g->rank = from;
    return true;
}
/* Copies the shard to tensors of a new owner, which is returned; NULL after an error. */
static eg_owner *shard_tensors(eg_ring_walk *w, const shard *g, eg_tensor **kv)
{
    const char *from = g->now;
    eg_owner *owner = eg__owner_open_pooled(w->cx);
    for (int t = 0; t < 2 && owner; t++) {
        int64_t dims[EG_RANK_MAX];
        memcpy(dims, w->r->dims[1 + t], sizeof dims);
        dims[w->r->axis[1 + t]] = eg__ring_positions(w, g->rank);
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
bool eg__ring_steps(eg_ring_walk *w, eg_ring_step *f, void *user)
{
    const eg_ring *r = w->r;
    shard g;
    bool good = shard_open(w, &g);
    for (int step = 0; step < eg_ranks_count(r->ranks); step++) {
        if (eg_ranks_barrier(r->ranks) || !good || (step && !shard_pass_on(w, &g))) return false;
        int n = 0;
        eg_tensor *kv[2];
        const eg_ring_block *keys = eg__ring_blocks(w, &r->key, g.rank, &n);
        eg_owner *owner = shard_tensors(w, &g, kv);
        good = f(user, step, kv, keys, keys && owner ? n : 0) && keys && owner;
        eg_owner_close(owner);
    }
    return !eg_ranks_barrier(r->ranks) && good;
}
