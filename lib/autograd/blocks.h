/* blocks.h: a call of eg_grad_over, as blocks.c computes it, its tree, and its blocks captured. */
#ifndef EG_AUTOGRAD_BLOCKS_H
#define EG_AUTOGRAD_BLOCKS_H
#include "autograd/autograd.h"
#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS_WORKERS = 256, LEVELS = 13 };

/* Σ over the blocks of a leaf, or over the leaves of a subtree. */
typedef struct blocks_sum {
    eg_tensor **g; /* of each x, tensors of the parent */
    bool *reached; /* of each x: g holds something */
    double loss;
    int64_t count;
    int64_t leaf;            /* the leaf whose blocks are being added */
    bool last;               /* the block that is computed now is the last one of that leaf */
    struct blocks_sum *next; /* in the list of those that are free */
} blocks_sum;
typedef _Atomic(blocks_sum *) place;
typedef struct blocks {
    eg_grad_over_args o;
    eg_ctx *cx;
    int64_t blocks, leaves, from, to; /* leaves [from, to) are computed here */
    uint64_t seed, draw;
    place *at[LEVELS + 1]; /* by level and number: a sum that waits for its neighbour, or is done */
    eg_ctx *child[BLOCKS_WORKERS];
    eg_mark loan[BLOCKS_WORKERS];
    eg_captured_blocks *captured; /* NULL: every block calls the loss */
    int workers;
    pthread_mutex_t lock; /* of what follows */
    blocks_sum *free;
    int held, most;          /* sums that are not free; at most so far */
    const eg_early *early;   /* NULL: complete sums wait for `take` */
    _Atomic int64_t climbed; /* leaves that are done, and added to their neighbours */
    int front; /* the xs from this one on were given to `early`; by the thread of the last leaf */
    _Atomic int64_t failed; /* the first block that failed; INT64_MAX: none */
    eg_code code;
    char message[1024];
} blocks;

/* True if y can be a loss, whatever its number; else recorded. */
bool eg__block_loss_fits(eg_ctx *child, eg_tensor *y, int64_t count);

/* -- blocks_tree.c ----------------------------------------------------------------------------- */
/* How many subtrees of 2^level leaves there are, the last of which may have fewer. */
int64_t eg__blocks_wide(const blocks *, int level);
/* True if all leaves of the k-th of them are computed here. */
bool eg__blocks_here(const blocks *, int level, int64_t k);
/* Returns a sum that holds nothing. */
blocks_sum *eg__blocks_take(blocks *);
/* Adds the sum of leaf k to those of its neighbours, as far up as they are there. */
bool eg__blocks_climb(blocks *, eg_ctx *child, int64_t k, blocks_sum *);
/* A block whose sweep goes on. */
typedef struct blocks_work {
    blocks *b;
    eg_ctx *child;
    blocks_sum *s;
    const eg_into *into; /* of each x: what the sweep knows of its sum; or NULL, and */
    const bool *after;   /* … it holds something after the block */
} blocks_work;
/* The `complete` of a block's sweep, whose user is its blocks_work: the block adds nothing more to
 * the sums from x k on. */
void eg__blocks_complete(void *work, int k);

/* -- blocks_captured.c ------------------------------------------------------------------------- */
/* Prepares the captured blocks for this call. False after an error. */
bool eg__blocks_captured_fit(blocks *);
/* Opens and closes what child k has borrowed, for as long as the captured blocks live. */
bool eg__blocks_captured_open(blocks *, int k, bool (*check)(eg_ctx *, eg_tensor *, void *));
void eg__blocks_captured_close(blocks *, int k);
typedef enum eg_block_done { EG_BLOCK_NOT_CAPTURED, EG_BLOCK_DONE, EG_BLOCK_FAILED } eg_block_done;
/* Computes the block whose draws and examples child `worker` has, by what was captured of one like
 * it, or captures it, and adds what it gives to s. EG_BLOCK_NOT_CAPTURED: it changed nothing that
 * the block does not write anyway. EG_BLOCK_FAILED: after an error, which the child has. */
eg_block_done eg__block_captured(blocks *, int worker, blocks_sum *s);
#endif
