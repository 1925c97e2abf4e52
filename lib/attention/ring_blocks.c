/* ring_blocks.c: the blocks of a divided sequence, and attention of one block of queries to one
 * block of keys. */
#include "attention/ring_walk.h"
#include <float.h>

/* blocks k / n, rounded down, for k ≤ n; blocks k may overflow */
static int64_t share_of_blocks(int64_t blocks, int64_t k, int64_t n)
{
    return blocks / n * k + blocks % n * k / n;
}
int eg__ring_runs(int64_t blocks, int rank, int ranks, bool zigzag, eg_span *run)
{
    const int64_t k = rank, n = zigzag ? 2 * (int64_t)ranks : ranks;
    run[0] = (eg_span){ share_of_blocks(blocks, k, n), share_of_blocks(blocks, k + 1, n) };
    if (!zigzag) return 1;
    run[1] = (eg_span){ share_of_blocks(blocks, n - 1 - k, n), share_of_blocks(blocks, n - k, n) };
    return 2;
}
static eg_span positions_of(const eg_ring *r, const eg_ring_side *s, int64_t block)
{
    return (eg_span){ block * r->block, eg__min64((block + 1) * r->block, s->length) };
}
/* Lists the blocks of a rank in `out`, if it is not NULL. Sets *n to their number and returns how
 * many positions they have. */
static int64_t local_blocks(const eg_ring *r, const eg_ring_side *s, int rank, eg_ring_block *out,
                            int *n)
{
    eg_span run[2];
    const int runs = eg__ring_runs(s->blocks, rank, eg_ranks_count(r->ranks), r->zigzag, run);
    int64_t at = 0;
    *n = 0;
    for (int k = 0; k < runs; k++)
        for (int64_t b = run[k].from; b < run[k].to; b++) {
            const eg_span p = positions_of(r, s, b);
            if (out) out[*n] = (eg_ring_block){ b, at, p.to - p.from };
            at += p.to - p.from;
            ++*n;
        }
    return at;
}
eg_ring_block *eg__ring_blocks(eg_ring_walk *w, const eg_ring_side *s, int rank, int *n)
{
    local_blocks(w->r, s, rank, NULL, n);
    eg_ring_block *b = eg__alloc(w->cx, (size_t)(*n + 1) * sizeof *b);
    if (b) local_blocks(w->r, s, rank, b, n);
    return b;
}

int64_t eg__ring_positions(const eg_ring_walk *w, int rank)
{
    int n;
    return local_blocks(w->r, &w->r->key, rank, NULL, &n);
}
eg_tensor *eg__ring_slice(eg_tensor *x, int axis, const eg_ring_block *b)
{
    return eg_copy(eg_slice_axis(x, axis, b->at, b->at + b->count, 1));
}

/* Returns x sliced to the positions i of queries and j of keys; axis[k] < 0 if x has no such
 * axis. */
static eg_tensor *cut(eg_tensor *x, const int *axis, eg_span i, eg_span j)
{
    if (axis[0] >= 0) x = eg_slice_axis(x, axis[0], i.from, i.to, 1);
    return axis[1] >= 0 ? eg_slice_axis(x, axis[1], j.from, j.to, 1) : x;
}
/* Returns the formula with its letters shifted: position k of a block is position from + k of the
 * sequence. NULL if f is NULL or after an error. */
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
eg_tensor *eg__ring_is_infinite(eg_tensor *x)
{
    return eg_cast(eg_gt(x, eg_full_n(eg_context(x), eg_type(x),
                                      eg_type(x) == EG_F64 ? DBL_MAX : FLT_MAX, 0, NULL)),
                   eg_type(x));
}
static bool any_infinite(eg_tensor *x)
{
    const double *p = eg_type(x) == EG_F64 ? eg_f64(x) : NULL;
    const float *q = p ? NULL : eg_f32(x);
    for (int64_t k = 0; (p || q) && k < eg_size(x); k++)
        if ((p ? p[k] : (double)q[k]) == INFINITY) return true;
    return false;
}
/* Returns the number of scores of ∞ in each row whose log-sum-exp is ∞; it is the number of its
 * weights that are not 0. NULL if there are no such rows. */
static eg_tensor *infinite_scores(eg_attention_args a, eg_tensor *lse)
{
    eg_ctx *cx = eg_context(lse);
    eg_tensor *weights = NULL;
    if (!any_infinite(lse)) return NULL;
    const bool was = eg_nograd(cx, true);
    a.lse = NULL, a.empty = NULL, a.weights = &weights, a.weights_axes = NULL;
    eg_attention_with(&a);
    eg_tensor *some = eg_gt(weights, eg_full_n(cx, eg_type(lse), 0, 0, NULL)),
              *n = eg_sum("... [k]", eg_cast(some, eg_type(lse)));
    n = eg_mul(n, eg__ring_is_infinite(lse));
    eg_nograd(cx, was);
    return n;
}
bool eg__ring_pair(eg_ring_walk *w, eg_tensor *const *xs, int64_t i, int64_t j, eg_tensor *y[3],
                   bool *empty)
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
    a.ranks = NULL, a.offset = 0, a.offset_letter = NULL, a.lse = &y[1], a.empty = &none;
    /* the random draws depend on the number of the pair of blocks, not on the rank that computes
     * it */
    cx->seed = r->seed, cx->training = r->training;
    cx->draw = r->draw + (uint64_t)(i * r->key.blocks + j);
    y[0] = eg_attention_with(&a);
    y[2] = eg_ok(y[1]) ? infinite_scores(a, y[1]) : NULL;
    cx->seed = seed, cx->draw = draw, cx->training = training;
    *empty = eg_ok(y[1]) && none == eg_size(y[1]);
    return eg_ok(y[0]) && eg_ok(y[1]) && (!y[2] || eg_ok(y[2]));
}
void eg__ring_cut(eg_ring_walk *w, int64_t i, int64_t j, eg_tensor **xs)
{
    const eg_ring *r = w->r;
    const eg_span a = positions_of(r, &r->query, i), b = positions_of(r, &r->key, j);
    for (int k = EG_RING_KEEP; k < EG_RING_OPERANDS; k++) xs[k] = w->x[k];
    if (xs[EG_RING_KEEP]) xs[EG_RING_KEEP] = cut(xs[EG_RING_KEEP], r->keep_axis, a, b);
    if (xs[EG_RING_BIAS]) xs[EG_RING_BIAS] = cut(xs[EG_RING_BIAS], r->bias_axis, a, b);
    if (xs[EG_RING_LENGTHS]) {
        eg_tensor *n = eg_cast(xs[EG_RING_LENGTHS], EG_F64);
        xs[EG_RING_LENGTHS] =
            eg_cast(eg_clip(eg_shift(n, -(double)b.from), 0, (double)(b.to - b.from)), EG_I64);
    }
}

void eg__ring_copy(eg_ring_walk *w, void *to, eg_tensor *x)
{
    const void *from = w->width == 8 ? (const void *)eg_f64(x) : (const void *)eg_f32(x);
    if (from) memcpy(to, from, (size_t)eg_size(x) * w->width);
}
void eg__ring_put(eg_ring_walk *w, char *to, int rank, const int64_t *dims, int axis,
                  const eg_ring_block *b, eg_tensor *x)
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
