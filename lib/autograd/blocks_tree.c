/* blocks_tree.c: how eg_grad_over adds the sums of its leaves: leaves 0 and 1, 2 and 3, …, then
 * pairs of those sums.
 *
 * A thread whose sum has a finished neighbour adds the two and continues one level up; otherwise it
 * leaves its sum in the tree for the neighbour. A sum waits if its neighbour contains a leaf that
 * is not finished. Each level of the tree has one neighbour that contains a given leaf, so there
 * are at most ⌈log₂ leaves⌉ sums for each leaf that a thread computes, and the one that it adds to.
 * The leaves are divided into a range for each thread, and a range is taken from its first leaf on.
 * So sums may also wait at the first leaf of a range for the last leaf of the range before, or the
 * reverse: one on each level at which this first leaf does not begin a subtree of two neighbours.
 * All reachable states of 2 threads with up to 200 leaves, and of 3 with up to 40, were enumerated:
 * none has more. Leaves [from, to) with from > 0 have at most ⌈log₂ leaves⌉ more: subtrees of
 * growing size at their left edge, whose left neighbours are not computed here.
 *
 * The two sums below the root are kept, and all threads add them when no leaf is left.
 *
 * If the leaves are divided among processes (eg_early), a gradient is delivered as soon as it is
 * complete: in the last block of the last leaf, when the backward pass is done with the x. The sums
 * that wait in the tree are added to it at that time, in the order in which the leaf's sum would be
 * added to them. */
#include "autograd/blocks.h"
#include <string.h>

int64_t eg__blocks_wide(const blocks *b, int level)
{
    return (b->leaves + ((int64_t)1 << level) - 1) >> level;
}
bool eg__blocks_here(const blocks *b, int level, int64_t k)
{
    return k << level >= b->from && eg__min64((k + 1) << level, b->leaves) <= b->to;
}
blocks_sum *eg__blocks_take(blocks *b)
{
    pthread_mutex_lock(&b->lock);
    blocks_sum *s = b->free;
    b->free = s->next;
    if (++b->in_use > b->most) b->most = b->in_use;
    pthread_mutex_unlock(&b->lock);
    s->loss = 0;
    s->count = 0;
    memset(s->reached, 0, (size_t)b->o.count);
    return s;
}
static void blocks_free_sum(blocks *b, blocks_sum *s)
{
    pthread_mutex_lock(&b->lock);
    s->next = b->free;
    b->free = s;
    b->in_use--;
    pthread_mutex_unlock(&b->lock);
}

/* s->g[k] += other->g[k], on a thread that is inside the child. *reached is set if other->g[k]
 * holds a gradient. False after an error. */
static bool blocks_add(eg_ctx *child, const blocks_sum *s, const blocks_sum *other, int k,
                       bool *reached)
{
    if (!other->reached[k]) return true;
    eg_tensor *to = eg__borrow_here(child, s->g[k]), *g = eg__borrow_here(child, other->g[k]);
    if (!to || !g) return false;
    if (*reached)
        eg__add_to(to, g);
    else
        eg__copy(to, g);
    *reached = true;
    return true;
}
/* True if the two sums below the root are added by eg__blocks_mean. */
static bool blocks_mean_adds(const blocks *b) { return !b->o.take && !b->early; }
/* A thread exchanges its sum for that of the neighbour: if there is one, this thread is the second
 * and adds the two, else the neighbour's thread will add them. */
bool eg__blocks_climb(blocks *b, eg_ctx *child, int64_t k, blocks_sum *s)
{
    for (int level = 0;; level++, k /= 2) {
        const int64_t wide = eg__blocks_wide(b, level);
        if (wide > 1 && (k ^ 1) >= wide) continue; /* the last subtree has no neighbour */
        if (wide == 1 || !eg__blocks_here(b, level, k ^ 1)) {
            atomic_store(&b->at[level][k], s);
            return true;
        }
        blocks_sum *other = atomic_exchange(&b->at[level][k & ~(int64_t)1], s);
        if (!other) return true;
        if (blocks_mean_adds(b) && eg__blocks_wide(b, level + 1) == 1) {
            atomic_store(&b->at[level][k & ~(int64_t)1], other);
            atomic_store(&b->at[level][k | 1], s);
            return true;
        }
        atomic_store(&b->at[level][k & ~(int64_t)1], NULL);
        const eg_mark m = eg_push(child);
        bool good = m.scope != NULL;
        for (int i = 0; i < b->front && good; i++)
            good = blocks_add(child, s, other, i, &s->reached[i]);
        for (int i = b->front; i < b->o.count; i++) s->reached[i] |= other->reached[i];
        eg_pop(child, m);
        if (!good) return false;
        s->loss += other->loss;
        s->count += other->count;
        blocks_free_sum(b, other);
    }
}

/* -- the last sum, by all threads -------------------------------------------------------------- */
/* The elements of all xs one after another, cut into pieces. */
typedef struct root {
    const blocks *b;
    const blocks_sum *one, *two; /* two NULL: there is one leaf */
    double count;
    int64_t *first; /* by x: the number of its first piece; then the number of all pieces */
} root;
enum { PIECE = 4096, GRAIN = 1 << 15 };
/* Adds and divides one piece. */
static void root_piece(void *user, int64_t piece, int thread)
{
    const root *r = user;
    int low = 0, high = r->b->o.count - 1;
    (void)thread;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (r->first[middle] <= piece)
            low = middle;
        else
            high = middle - 1;
    }
    const eg_tensor *x = r->b->o.dxs[low];
    if (!x) return;
    const int64_t from = (piece - r->first[low]) * PIECE, left = eg_size(x) - from,
                  at = from * eg__width[x->dtype];
    const bool both = r->two && r->one->reached[low] && r->two->reached[low];
    eg__mean_of_two((eg_dtype)x->dtype, left < PIECE ? left : PIECE, x->data + at,
                    both ? r->two->g[low]->data + at : NULL, r->count, r->b->cx->flush);
}
/* Adds losses and counts of the two sums below the root, then the gradients on all threads. */
bool eg__blocks_mean(blocks *b)
{
    int top = 0;
    while (eg__blocks_wide(b, top) > 1) top++;
    const blocks_sum *one = atomic_load(&b->at[top ? top - 1 : 0][0]),
                     *two = top ? atomic_load(&b->at[top - 1][1]) : NULL;
    if (!one || (top && !two)) return false;
    const int64_t counted = one->count + (two ? two->count : 0);
    const double loss = one->loss + (two ? two->loss : 0);
    if (!counted) {
        eg_fail_as(b->cx, EG_ERROR_MISUSE, "%s: the count of all blocks is 0", b->o.who);
        return false;
    }
    root r = { b, one, two, (double)counted,
               eg__alloc(b->cx, ((size_t)b->o.count + 1) * sizeof *r.first) };
    int64_t n = 0;
    if (!r.first) return false;
    r.first[0] = 0;
    for (int k = 0; k < b->o.count; k++) {
        const int64_t size = eg_size(b->o.xs[k]);
        b->o.dxs[k] = one->reached[k] ? one->g[k] : two && two->reached[k] ? two->g[k] : NULL;
        r.first[k + 1] = r.first[k] + (size + PIECE - 1) / PIECE;
        n += size;
    }
    eg__parallel(b->cx, eg__team(b->cx, n, GRAIN), r.first[b->o.count], root_piece, &r);
    if (b->o.mean) *b->o.mean = loss / (double)counted;
    if (b->o.counted) *b->o.counted = counted;
    return true;
}

/* -- sums that are delivered before the block is done ------------------------------------------ */
/* Adds the sums that wait in the tree to sum i of the last leaf, and passes the total to `early`.
 * False after an error. */
static bool blocks_take_early(const blocks_work *w, int i)
{
    const blocks *b = w->b;
    const blocks_sum *s = w->s;
    bool reached = w->into ? w->into[i].reached : w->after[i];
    int64_t k = s->leaf;
    for (int level = 0;; level++, k /= 2) {
        const int64_t wide = eg__blocks_wide(b, level);
        if (wide > 1 && (k ^ 1) >= wide) continue;
        if (wide == 1 || !eg__blocks_here(b, level, k ^ 1)) break;
        const blocks_sum *other = atomic_load(&b->at[level][k & ~(int64_t)1]);
        if (!blocks_add(w->child, s, other, i, &reached)) return false;
    }
    b->early->complete(b->early->user, i, reached ? s->g[i]->data : NULL);
    return true;
}
/* No sum is complete while other leaves are still being computed. A sum that is complete for this
 * leaf at that time is delivered in the next call of this function, or by `take`. */
void eg__blocks_complete(void *user, int k)
{
    const blocks_work *w = user;
    blocks *b = w->b;
    if (!b->early || !w->s->last || w->child->failed || b->front <= k) return;
    if (atomic_load(&b->climbed) < b->to - b->from - 1 || atomic_load(&b->failed) < INT64_MAX)
        return;
    const eg_mark m = eg_push(w->child);
    while (m.scope && b->front > k && blocks_take_early(w, b->front - 1)) b->front--;
    eg_pop(w->child, m);
}
