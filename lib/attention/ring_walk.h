/* ring_walk.h: declarations shared by the files of attention over a divided sequence.
 *
 * Queries and keys are divided into blocks of a fixed length. The result of one block of queries is
 * computed from the (o, lse) of each block of keys, merged along the binary tree over the blocks of
 * keys: o = Σ e^(lse_k − lse) o_k. (In rows with scores of ∞, a partial result has a third part,
 * the number n_k of these scores, and o = Σ n_k/n o_k.) Keys and values are passed from rank to
 * rank, so their blocks arrive at each rank in a different order. A partial result waits until its
 * sibling in the tree has been computed; therefore the bits depend on the length and the size of a
 * block only, and a rank stores at most 4 log2(blocks) partial results for each of its blocks.
 *
 *   ring_partials.c  partial results, merged along the tree
 *   ring_blocks.c    the blocks of a rank, and attention of a pair of blocks
 *   ring_steps.c     passing keys and values from rank to rank
 *   ring_forward.c   the forward pass
 *   ring_backward.c  the gradients
 *   ring_recorded.c  the gradient by recorded operations, for derivatives of higher order
 *   ring_sink.c      the sink, spread over the rows of a rank */
#ifndef EG_RING_WALK_H
#define EG_RING_WALK_H
#include "attention/ring.h"
#include "autograd/autograd.h"
#include <math.h>
#include <string.h>

enum { EG_PARTIAL_TENSORS = 2 + EG_RING_OPERANDS, EG_PARTIALS_MAX = 128 };
/* The partial result of one subtree of blocks. `there` is false if all pairs of the subtree are
 * forbidden; it then has no tensors. */
typedef struct eg_partial {
    eg_span of;
    bool there;
    eg_owner *owner; /* of the tensors; it is closed when the partial result is merged */
    int n;
    eg_tensor *x[EG_PARTIAL_TENSORS];
} eg_partial;
/* The partial results of one block that wait for their siblings. */
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
    bool add; /* merging adds the tensors; else it merges (o, lse) */
} eg_ring_walk;

/* A block of a rank: its number in the sequence, its first position in the tensors of that rank,
 * and its number of positions. */
typedef struct eg_ring_block {
    int64_t block, at, count;
} eg_ring_block;

/* -- ring_partials.c -------------------------------------------------------------------------- */
/* Sets *p to a partial result whose tensors are copies of x[0 … n) in the owner. False after an
 * error. */
bool eg__partial_set(eg_ring_walk *w, eg_partial *p, eg_owner *owner, int n, eg_tensor *const *x);
/* Inserts a partial result into the tree. It is merged with its sibling if that is there, the
 * result with its own sibling, and so on. False after an error. */
bool eg__partial_insert(eg_ring_walk *w, eg_partials *tree, eg_partial p);
/* Returns n empty trees over `leaves` blocks, in the open scope; NULL after an error. */
eg_partials *eg__partials_new(eg_ring_walk *w, int64_t n, int64_t leaves);
/* Returns the partial result that waits at a node; NULL if there is none. */
const eg_partial *eg__partial_at(const eg_partials *t, eg_span node);
/* Returns the value as a scalar tensor of the call's dtype. */
eg_tensor *eg__ring_number(eg_ring_walk *w, double value);

/* -- ring_blocks.c ---------------------------------------------------------------------------- */
/* Returns the blocks of a rank and sets *n to their number, in memory of the open scope; NULL after
 * an error. */
eg_ring_block *eg__ring_blocks(eg_ring_walk *w, const eg_ring_side *s, int rank, int *n);
/* Returns how many positions the blocks of keys of a rank have. */
int64_t eg__ring_positions(const eg_ring_walk *w, int rank);
/* Returns a copy of block b of x along an axis. The strides of a view would depend on how many
 * positions this rank has, and on them the bits of products. */
eg_tensor *eg__ring_slice(eg_tensor *x, int axis, const eg_ring_block *b);
/* Slices the operands other than q, k and v to block i of queries and block j of keys. */
void eg__ring_cut(eg_ring_walk *w, int64_t i, int64_t j, eg_tensor **xs);
/* Computes attention of block i of queries to block j of keys, with the operands xs by
 * EG_RING_…. Sets y to o and lse, which are recorded if the context records, and the number of
 * scores of ∞ in each row, NULL if there are none. Sets *empty if every pair is forbidden. False
 * after an error. */
bool eg__ring_pair(eg_ring_walk *w, eg_tensor *const *xs, int64_t i, int64_t j, eg_tensor *y[3],
                   bool *empty);
/* Returns 1 where x is ∞, else 0, in x's dtype. */
eg_tensor *eg__ring_is_infinite(eg_tensor *x);
/* Copies the elements of x, row-major. */
void eg__ring_copy(eg_ring_walk *w, void *to, eg_tensor *x);
/* Writes x as block b along an axis of a row-major array. */
void eg__ring_put(eg_ring_walk *w, char *to, int rank, const int64_t *dims, int axis,
                  const eg_ring_block *b, eg_tensor *x);

/* -- ring_steps.c ----------------------------------------------------------------------------- */
/* A function that is called on a rank with the keys and values kv of the rank that is `step` ranks
 * before it, and the n blocks of keys of that rank; n is 0 if they could not be read. Returns false
 * after an error. */
typedef bool eg_ring_step(void *user, int step, eg_tensor *const *kv, const eg_ring_block *keys,
                          int n);
/* Calls f for the keys and values of every rank, those of this rank first. False after an error on
 * any rank. */
bool eg__ring_steps(eg_ring_walk *w, eg_ring_step *f, void *user);
#endif
