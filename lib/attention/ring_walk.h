/* ring_walk.h: what the files of attention over a divided length share.
 *
 * Queries and keys are cut into blocks of a fixed length. The result of one block of queries is
 * made of (o, lse) of each block of keys, merged along the binary tree of the blocks of keys:
 * o = Σ e^(lse_k − lse) o_k. (If rows have scores of ∞, a partial
 * result has a third part, n_k, how many these are; then o = Σ n_k/n o_k.) Keys and values go round
 * the ranks, so their blocks come to a rank in an order of its own; a partial result waits until
 * its sibling in the tree is there. So bits depend on the length and the block alone, and a rank
 * holds at most 4 log2(blocks) partial results for each of its blocks.
 *
 *   ring_partials.c  partial results, merged along the tree
 *   ring_blocks.c    the blocks of a rank, and attention of a pair of blocks
 *   ring_turns.c     keys and values, handed from rank to rank
 *   ring_forward.c, ring_backward.c
 *   ring_composed.c  the gradient as a formula, for gradients of higher order
 *   ring_sink.c      a sink, spread over the rows of a rank */
#ifndef EG_RING_WALK_H
#define EG_RING_WALK_H
#include "attention/ring.h"
#include "autograd/autograd.h"
#include <math.h>
#include <string.h>

enum { EG_PARTIAL_TENSORS = 2 + EG_RING_OPERANDS, EG_PARTIALS_MAX = 128 };
/* The partial result of one subtree over the blocks. `there` is false if all pairs of the subtree
 * are forbidden, so that it has no tensors. */
typedef struct eg_partial {
    eg_span of;
    bool there;
    eg_owner *owner; /* of the tensors: it is closed when the partial result is merged */
    int n;
    eg_tensor *x[EG_PARTIAL_TENSORS];
} eg_partial;
/* The partial results of one block that wait until their siblings exist. */
typedef struct eg_partials {
    int64_t leaves;
    int n;
    eg_partial part[EG_PARTIALS_MAX];
} eg_partials;
/* One call, forward or backward, on this rank. */
typedef struct eg_ring_walk {
    const eg_ring *r;
    eg_ctx *cx;
    eg_tensor *const *x;
    size_t width;
    bool add; /* merging adds the parts; else it merges them as (o, lse) */
} eg_ring_walk;

/* A block of a rank: its number in the sequence, its first place in that rank's tensors, and how
 * many positions it has. */
typedef struct eg_ring_block {
    int64_t block, at, count;
} eg_ring_block;

/* -- ring_partials.c -------------------------------------------------------------------------- */
/* Sets *p to a partial result whose tensors are copies of x[0 … n) in the owner. False after an
 * error. */
bool eg__partial_set(eg_ring_walk *w, eg_partial *p, eg_owner *owner, int n, eg_tensor *const *x);
/* Inserts a partial result into the tree, and merges it with its sibling as long as that exists.
 * False after an error. */
bool eg__partial_insert(eg_ring_walk *w, eg_partials *tree, eg_partial p);
/* Returns n empty trees over `leaves` blocks, in the open scope; NULL after an error. */
eg_partials *eg__partials_new(eg_ring_walk *w, int64_t n, int64_t leaves);
/* Returns the result that waits at a node; NULL if none does. */
const eg_partial *eg__partial_at(const eg_partials *t, eg_span node);
/* Returns a scalar of the call's dtype. */
eg_tensor *eg__ring_number(eg_ring_walk *w, double value);

/* -- ring_blocks.c ---------------------------------------------------------------------------- */
/* Returns the blocks of a rank, in the open scope; NULL after an error. */
eg_ring_block *eg__ring_blocks(eg_ring_walk *w, const eg_ring_side *s, int rank, int *n);
/* Returns how many positions the blocks of a rank have. */
int64_t eg__ring_positions(const eg_ring_walk *w, int rank);
/* Returns a copy of block b of x along an axis. The strides of a view would depend on how many
 * positions this rank has, and on them the bits of products. */
eg_tensor *eg__ring_slice(eg_tensor *x, int axis, const eg_ring_block *b);
/* Cuts the operands other than q, k and v to block i of queries and block j of keys. */
void eg__ring_cut(eg_ring_walk *w, int64_t i, int64_t j, eg_tensor **xs);
/* Computes attention of one block of queries to one block of keys, of the operands xs by EG_RING_….
 * Sets y to o and lse, which are recorded if the context records, and to the number of scores of ∞
 * in each row, NULL if there are none. Sets *empty if every pair is forbidden. False after an
 * error. */
bool eg__ring_pair(eg_ring_walk *w, eg_tensor *const *xs, int64_t i, int64_t j, eg_tensor *y[3],
                   bool *empty);
/* Returns 1 where x is ∞, else 0, in x's dtype. */
eg_tensor *eg__ring_is_infinite(eg_tensor *x);
/* Copies the numbers of x, row-major. */
void eg__ring_copy(eg_ring_walk *w, void *to, eg_tensor *x);
/* Writes x as block b along an axis of a row-major array. */
void eg__ring_put(eg_ring_walk *w, char *to, int rank, const int64_t *dims, int axis,
                  const eg_ring_block *b, eg_tensor *x);

/* -- ring_turns.c ----------------------------------------------------------------------------- */
/* Called on a rank with the keys and values kv of the rank that is `turn` positions before it, and the
 * n blocks that this rank has; n is 0 if they could not be read. Returns false after an error. */
typedef bool eg_ring_turn(void *user, int turn, eg_tensor *const *kv, const eg_ring_block *keys,
                          int n);
/* Calls f for the keys and values of every rank, this rank's first. False after an error on any
 * rank. */
bool eg__ring_turns(eg_ring_walk *w, eg_ring_turn *f, void *user);
#endif
