/* ring.h: a call of attention over a sequence that is divided among ranks. ring.c binds it; the
 * files listed in ring_walk.h compute it. */
#ifndef EG_RING_H
#define EG_RING_H
#include "attention/attention.h"
#include "ranks/ranks.h"
#include <eingrad/notation.h>

enum {
    EG_RING_Q,
    EG_RING_K,
    EG_RING_V,
    EG_RING_KEEP,
    EG_RING_BIAS,
    EG_RING_LENGTHS,
    EG_RING_WITH, /* the first tensor of .with; the others follow */
    EG_RING_OPERANDS = EG_RING_WITH + EG_GIVEN_MAX
};
/* Queries or keys: the letter, the length over all ranks together, and the number of blocks. */
typedef struct eg_ring_side {
    const char *letter;
    int64_t length, blocks;
} eg_ring_side;
/* A bound call, in memory that exists as long as its nodes. */
typedef struct eg_ring {
    eg_attention_args o; /* the options; the tensors in them are replaced by those of x */
    eg_ranks *ranks;
    bool zigzag;
    int64_t block;
    eg_ring_side query, key;
    eg_dtype dtype;
    int rank[3], axis[3]; /* of q, k, v; axis[]: the axis that is divided */
    int64_t dims[3][EG_RANK_MAX];
    int y_rank, y_axis, l_rank, l_axis; /* of y and of the log-sum-exp */
    int summed; /* the last axes of y that the caller's output lacks: y is summed over them */
    int64_t y_dims[EG_RANK_MAX], l_dims[EG_RANK_MAX];
    int64_t y_count, l_count;
    const char *weigh, *inner;      /* the einsums "y, lse -> y" and "y, y -> lse" */
    int keep_axis[2], bias_axis[2]; /* axes with the query's and the key's letter; −1: none */
    const eg_formula *where, *score;
    uint64_t seed, draw;
    bool training;
    int operands;                  /* number of operands of the node */
    int operand[EG_RING_OPERANDS]; /* by EG_RING_…: position among the operands; −1: absent */
} eg_ring;

/* Sets run[] to the ranges of blocks that a rank has and returns their number: one range or, in
 * zigzag order, two: parts `rank` and 2 ranks − 1 − rank of 2 ranks equal parts. */
int eg__ring_runs(int64_t blocks, int rank, int ranks, bool zigzag, eg_span *run);
/* Computes y and the log-sum-exp for the queries of this rank, row-major, into the node. Sets
 * *infinite to the number of scores of ∞ in each row, in memory that exists as long as the node;
 * NULL if there are none. False after an error. */
bool eg__ring_forward(const eg_ring *, eg_tensor *node, eg_tensor *const *x, void **infinite);
/* What the gradient reads in addition to the operands: y, lse, the number of scores of ∞ in each
 * row (or NULL), and the cotangents of y and lse. */
typedef struct eg_ring_results {
    eg_tensor *y, *lse, *infinite, *gy, *gl;
} eg_ring_results;
/* Computes the gradients dx[k] of all operands of floats, row-major (NULL for one that is not
 * wanted). False after an error. */
bool eg__ring_backward(const eg_ring *, eg_tensor *const *x, const eg_ring_results *,
                       void *const *dx);
/* Adds a sink, one more key with the score z and the value 0: updates y and lse. If the sink has
 * the query's index, it is given for the positions of this rank; any other sink is the same on
 * every rank, and so is its gradient. infinite: the number of scores of ∞ in each row, or NULL.
 * False after an error. */
bool eg__ring_add_sink(eg_ctx *, const eg_ring *, const eg_masked *sink, eg_tensor *infinite,
                       eg_tensor **y, eg_tensor **lse);
/* Computes second derivatives. h are the cotangents of the gradients (NULL for operands that have
 * no floats). Sets dx to the cotangents of the operands, and dg to those of g, the cotangents of y
 * and the log-sum-exp. These are recorded if the context records. False after an error. */
bool eg__ring_second(const eg_ring *, eg_tensor *const *x, eg_tensor *const g[2],
                     eg_tensor *const *h, eg_tensor **dx, eg_tensor *dg[2]);
#endif
