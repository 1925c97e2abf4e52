/* blocks.h: the state of one call of eg_grad_over, for blocks.c and blocks_*.c. */
#ifndef EG_AUTOGRAD_BLOCKS_H
#define EG_AUTOGRAD_BLOCKS_H
#include "autograd/autograd.h"
#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS_WORKERS = 256, LEVELS = 13, BATCH_MOST = 8 };

/* The tensors of `.batch` in a call, of which blocks read their examples. */
typedef struct eg__block_batch {
    int count;
    const char *name[BATCH_MOST];
    const eg_tensor *x[BATCH_MOST]; /* row-major tensors of the calling context */
    /* a hash of the names, dtypes and shapes, without the number of examples; 0: there are none */
    uint64_t form;
} eg__block_batch;

/* A sum over the blocks of a leaf, or over the leaves of a subtree. */
typedef struct blocks_sum {
    eg_tensor **g; /* by x: a tensor of the parent */
    bool *reached; /* by x: g holds a gradient */
    double loss;
    int64_t count;
    int64_t leaf;            /* the leaf whose blocks are being added */
    bool last;               /* the block that is being computed is the last one of that leaf */
    struct blocks_sum *next; /* in the list of free sums */
} blocks_sum;
typedef _Atomic(blocks_sum *) place;
typedef struct blocks {
    eg_grad_over_args o;
    eg_ctx *cx;
    int64_t copy; /* the copy that is computed; 0 without copies */
    eg__block_batch batch;
    int64_t blocks, leaves, from, to; /* this process computes the leaves [from, to) */
    uint64_t seed, draw;
    place *at[LEVELS + 1]; /* by level and number: a sum that is final or waits for its neighbour */
    eg_ctx *child[BLOCKS_WORKERS];
    eg_mark loan[BLOCKS_WORKERS];
    bool opened[BLOCKS_WORKERS];  /* by worker: the child has headers of the xs */
    eg_captured_blocks *captured; /* NULL: every block calls the loss */
    int workers;
    pthread_mutex_t lock; /* protects the members that follow */
    blocks_sum *free;
    int in_use, most;        /* number of sums in use; the largest so far */
    const eg_early *early;   /* NULL: complete sums are delivered by `take` only */
    _Atomic int64_t climbed; /* number of leaves that are computed and added to their neighbours */
    /* the xs from this one on were passed to `early`; set by the thread of the last leaf */
    int front;
    _Atomic int64_t failed; /* number of the first block that failed; INT64_MAX: none */
    eg_code code;
    eg__cause cause;
    char message[1024];
} blocks;

/* Calls the loss for the block that the child is inside of. NULL after an error: the loss failed,
 * its result is not a float tensor of one element (the value is not tested), the count is not from
 * 0 to 2^48, or the loss changed a switch of the child (eg_train, eg_nograd, eg_flush). */
eg_tensor *eg__block_loss(const eg_grad_over_args *, eg_ctx *child, int64_t *count);
bool eg__block_count_fits(eg_ctx *child, int64_t count);

/* Computes all blocks of the call, or of its copy `copy`: sets dxs, mean and counted, or calls
 * `take`. False after an error. */
bool eg__blocks_call(blocks *);

/* -- blocks_copies.c --------------------------------------------------------------------------- */
/* Sets .copies to those of the xs. True if the xs have no others and the options allow copies; else
 * records an error. */
bool eg__blocks_copies_fit(blocks *);
/* eg__blocks_call for each copy. False after an error. */
bool eg__blocks_each(const blocks *);

/* -- blocks_batch.c ---------------------------------------------------------------------------- */
/* Sets *to to the tensors that are given, which must have `examples` examples, or at least that
 * number if `more`, and may have the given copies (NULL: none). False after an error that begins
 * with `who`. */
bool eg__batch_fit(eg_ctx *, const char *who, const eg_given given[BATCH_MOST], int64_t examples,
                   bool more, const eg_copies *, eg__block_batch *to);

/* -- blocks_tree.c ----------------------------------------------------------------------------- */
/* Returns the number of subtrees of 2^level leaves; the last one may have fewer. */
int64_t eg__blocks_wide(const blocks *, int level);
/* True if this process computes all leaves of the k-th of these subtrees. */
bool eg__blocks_here(const blocks *, int level, int64_t k);
/* Returns an empty sum; NULL after an error. */
blocks_sum *eg__blocks_take(blocks *);
/* Inserts the sum of leaf k into the tree and adds it to its neighbours as long as these are there.
 * False after an error. */
bool eg__blocks_climb(blocks *, eg_ctx *child, int64_t k, blocks_sum *);
/* Adds these two on all threads and divides the sums, which become the results. False after an
 * error. */
bool eg__blocks_mean(blocks *);
/* A block during its backward pass. */
typedef struct blocks_work {
    blocks *b;
    eg_ctx *child;
    blocks_sum *s;
    /* by x: its sum in the backward pass; NULL in a captured block, which uses `after` */
    const eg_into *into;
    const bool *after; /* by x: the sum holds a gradient after the block */
} blocks_work;
/* The function eg_into_watch.complete of a block's backward pass, with a blocks_work as its user
 * data: the block adds nothing more to sums k and above. */
void eg__blocks_complete(void *work, int k);

/* -- blocks_captured.c ------------------------------------------------------------------------- */
/* Prepares the captured blocks for this call. False after an error. */
bool eg__blocks_captured_fit(blocks *);
/* Opens and closes the headers of the parent's tensors that child k keeps as long as the captured
 * blocks exist. */
bool eg__blocks_captured_open(blocks *, int k, bool (*check)(eg_ctx *, eg_tensor *, void *));
void eg__blocks_captured_close(blocks *, int k);
typedef enum eg_block_done { EG_BLOCK_NOT_CAPTURED, EG_BLOCK_DONE, EG_BLOCK_FAILED } eg_block_done;
/* Computes the block whose draws and examples child `worker` has, and adds its gradients to s: by
 * running the captured step of an earlier block of the same kind, or by capturing this one.
 * EG_BLOCK_NOT_CAPTURED: the caller must compute the block; only memory that it overwrites was
 * changed. EG_BLOCK_FAILED: after an error, which the child has. */
eg_block_done eg__block_captured(blocks *, int worker, blocks_sum *s);
#endif
