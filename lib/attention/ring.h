/* ring.h: a call of attention over a length that ranks have divided: bound in ring.c, computed by
 * the files of ring_walk.h. */
#ifndef EG_RING_H
#define EG_RING_H
#include "attention/attention.h"
#include <eingrad/notation.h>
#include <eingrad/ranks.h>

enum {
    EG_RING_Q,
    EG_RING_K,
    EG_RING_V,
    EG_RING_KEEP,
    EG_RING_BIAS,
    EG_RING_LENGTHS,
    EG_RING_WITH, /* and those that follow */
    EG_RING_OPERANDS = EG_RING_WITH + EG_GIVEN_MAX
};
/* One side, queries or keys: a length of all ranks together, cut into blocks. */
typedef struct eg_ring_side {
    const char *letter;
    int64_t length, blocks;
} eg_ring_side;
/* A call, in memory that lives as long as its nodes. */
typedef struct eg_ring {
    eg_attention_args o; /* tensors among the options: see x */
    eg_ranks *ranks;
    bool zigzag;
    int64_t block;
    eg_ring_side query, key;
    eg_dtype dtype;
    int rank[3], axis[3]; /* of q, k, v; the axis that is divided */
    int64_t dims[3][EG_RANK_MAX];
    int y_rank, y_axis, l_rank, l_axis; /* of the result, of the log-sum-exp */
    int64_t y_dims[EG_RANK_MAX], l_dims[EG_RANK_MAX];
    int64_t y_count, l_count;
    const char *stretch, *inner;    /* einsums "y, l -> y" and "y, y -> l" */
    int keep_axis[2], bias_axis[2]; /* of query's and key's letter; −1: none */
    const eg_formula *where, *score;
    uint64_t seed, draw;
    bool training;
    int operands;                  /* of the node */
    int operand[EG_RING_OPERANDS]; /* by EG_RING_…: which operand; −1: none */
} eg_ring;

/* Blocks of piece k of 2 ranks: what a rank has is one run of blocks, or two by zigzag. */
int eg__ring_runs(int64_t blocks, int rank, int ranks, bool zigzag, eg_span *run);
/* y and the log-sum-exp of this rank's queries, row-major. False after an error. */
bool eg__ring_forward(const eg_ring *, eg_tensor *const *x, void *y, void *lse);
/* From their cotangents the gradients of all float operands (dx[k] NULL: not wanted), row-major. */
bool eg__ring_backward(const eg_ring *, eg_tensor *const *x, eg_tensor *y, eg_tensor *lse,
                       eg_tensor *gy, eg_tensor *gl, void *const *dx);
/* Returns a sink as a number for each row of this rank, row-major as the log-sum-exp: one that has
 * the query's index is given by this rank's places, another one is whole on every rank, and so is
 * its gradient. */
eg_tensor *eg__ring_sink(eg_ctx *, const eg_ring *, const eg_masked *sink);
/* From the cotangents h of those gradients (NULL: of no float) the cotangents of the operands, and
 * of g = the cotangents of y and lse; recorded if the context records. False after an error. */
bool eg__ring_second(const eg_ring *, eg_tensor *const *x, eg_tensor *const g[2],
                     eg_tensor *const *h, eg_tensor **dx, eg_tensor *dg[2]);
#endif
