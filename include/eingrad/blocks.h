/* eingrad/blocks.h: the gradient of a loss that is a sum over examples, block by block on all
 * threads. A block is a range of consecutive examples.
 *
 *     eg_tensor *loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
 *     {
 *         const model *m = user;
 *         eg_tensor *x = eg_block_rows(cx, "x"), *y = eg_block_rows(cx, "y");
 *         return eg_sum(NULL, eg_square(eg_sub(eg_linear_run(m->map, x), y)));
 *     }
 *     …
 *     eg_step_over(opt, loss, m, .batch = { { "x", x }, { "y", y } });           (optimiser.h)
 */
#ifndef EINGRAD_BLOCKS_H
#define EINGRAD_BLOCKS_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Returns the loss of examples [from, to), summed over them (not the mean), in cx, the context of
 * this call; tensors of the calling context may be operands (core.h). *count is to − from; a
 * function that counts other things, such as tokens without padding, sets it (eg_block_count).
 * Several threads call the function at the same time, so it must only read `user`. The loss may
 * depend only on the arguments and on random draws of cx, not on other examples, as statistics of a
 * batch do. */
typedef eg_tensor *eg_block_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count);
/* The rows [from, to) of the tensor of .batch with this name, as a new tensor (to − from, …)
 * without history. Refused: a name that .batch does not have; a call outside of blocks. */
EG_API eg_tensor *eg_block_rows(eg_ctx *, const char *name);
/* Sets *count, the count of a block, to the sum of the elements of x, integers or bools:
 * eg_block_count(count, eg_ne(targets, padding)). Unlike an assignment in C it is repeated when a
 * captured block runs. Returns 0, or −1 after an error. */
EG_API int eg_block_count(int64_t *count, eg_tensor *x);
/* The sum over leaves [from, to), which are a subtree of 2^level leaves or the last leaves. It is
 * not divided by the count. */
typedef struct eg_leaf_sum {
    int64_t from, to;
    int level;
    eg_tensor *const *gradient; /* of each x, row-major; zeros where no block reached it */
    const bool *reached;        /* of each x */
    double loss;
    int64_t count;
} eg_leaf_sum;
typedef struct eg_captured_blocks eg_captured_blocks;
/* Writes numbers to kind[], which is 0 before the call, for the block of examples [from, to). The
 * numbers must differ for two blocks if their losses apply different operations, or operations on
 * different shapes. */
enum { EG_KIND_NUMBERS = 4 };
typedef void eg_block_kind(void *user, int64_t from, int64_t to, int64_t kind[EG_KIND_NUMBERS]);
enum { EG_LEAVES_MAX = 4096 }; /* the largest number of leaves */
typedef struct eg_grad_over_args {
    size_t size;
    eg_ctx *cx;
    eg_block_loss *loss;
    void *user;       /* handed to loss */
    int64_t examples; /* ≥ 1; with .batch its tensors' first size */
    int count;        /* of the xs; 0, with xs and dxs NULL: only the mean is computed */
    eg_tensor *const *xs;
    eg_tensor **dxs;   /* out, in the open scope: Σ gradients/Σ counts; NULL if no block's loss
                        * depends on the x */
    int64_t block;     /* examples of a block; the last one may have fewer: 8 */
    int leaves;        /* number of leaves, groups of consecutive blocks whose sums are added in
                        * pairs: 16, at most EG_LEAVES_MAX, and at most the number of blocks */
    bool serial;       /* loss is called by this thread only; operations inside it use all
                        * threads */
    double *mean;      /* out: Σ losses/Σ counts, added in f64; may be NULL */
    int64_t *counted;  /* out: Σ counts; may be NULL */
    const char *who;   /* for messages: "grad_over" */
    int *sums;         /* out: largest number of gradient sums in memory at one time; may be NULL */
    int64_t from_leaf; /* only leaves [from_leaf, to_leaf): 0 */
    int64_t to_leaf;   /* all */
    /* if it is not NULL, it is called with the sum of each of the largest subtrees of those leaves,
     * from left to right, and dxs, mean and counted are not set. It may write to the tensors.
     * Returns 0, or another number after an error, which ends the call */
    int (*take)(void *user, const eg_leaf_sum *);
    void *take_user;
    eg_captured_blocks *captured; /* see below; NULL: every block calls the loss */
    eg_block_kind *kind;          /* with .captured: see below; NULL: the numbers are 0 */
    /* tensors whose first axis has `examples` elements; in a block, eg_block_rows returns the rows
     * of the block's examples. They are constants: they must neither be xs nor depend on one. Ends
     * at a NULL name */
    eg_given batch[8];
    /* further options that all ranks must have (eg_ranks_grad_over), as "lr 0.1, momentum 0.9", for
     * the message; NULL: none */
    const char *agreed;
    /* the copies that are computed one after another, on all threads; NULL: those of the xs. Needed
     * if there are no xs */
    const eg_copies *copies;
    double *mean_each; /* out, of length eg_copies_count(copies): the mean of each; may be NULL */
} eg_grad_over_args;
/* The bits depend on examples, block, leaves, seed and number of the call, not on threads: the
 * blocks of a leaf are added in order, then leaves 0 and 1, 2 and 3, then pairs of pairs. A block's
 * random seed is made from the context's seed, the number of the call (one draw) and the number of
 * the block. If there are fewer leaves than threads, or with .serial, the threads divide each
 * operation inside a block instead. The error is that of the first block that fails, with its
 * number. Blocks record even under eg_nograd. Refused, in addition to what eg_grad_or_null refuses:
 * a loss that is not a finite scalar; counts whose sum is 0; a block that reads a tensor which was
 * computed from an x outside of the block; a block that calls eg_seed, or calls eg_train, eg_eval,
 * eg_nograd, eg_flush or eg_trace and does not undo it; an x with a hook; a call inside a block.
 * Without xs nothing is recorded, and the loss may be infinite or NaN (evaluation of a test set).
 *
 * With copies (copies.h) the copies are computed one after another, each as if it were the only
 * one: in a block, tensors of the calling context that have these copies are those of one copy,
 * without copies, and so are tensors of .batch. The random seed of copy c is its own. dxs[k] has
 * the copies of xs[k]; if xs[k] has none, it is the sum over all copies. Each copy has the bits of
 * a call of its own with that seed. *mean is the mean of all copies, *counted the sum. Only one
 * copy's intermediate results are in memory at a time. Refused with copies: .captured, .take; a
 * tensor with copies of another group. */
EG_API int eg_grad_over_with(const eg_grad_over_args *);

/* -- captured blocks -------------------------------------------------------------------------- */
/* Returns an object that keeps captured blocks (eg_capture, capture.h), which later calls run again
 * with the same bits. It lives until the end of the open scope, or until eg_captured_blocks_free is
 * called. NULL after an error: inside a block or a captured step.
 *
 * Blocks are of one kind if they have the same number of examples, batches of the same names,
 * dtypes and shapes (except for the number of examples), the same numbers from .kind, and the same
 * mode (eg_train, eg_eval). Each thread calls the loss for its first two blocks of a kind. For
 * later ones it runs the operations that the second of them applied. So blocks of one kind must
 * apply the same operations to tensors of the same shapes. What may differ from block to block and
 * from call to call: the elements of the tensors of .batch, which may be other tensors in each
 * call, and of all tensors that existed before the call (parameters, a factor without axes); random
 * draws; what eg_from_call, eg_host_call and eg_block_count read. A number of the program (a double
 * in `user`) and a pointer to a tensor are those of the captured block. `.kind` distinguishes
 * blocks whose loss has other operations or shapes, such as blocks of packed sequences (eg_pack).
 *
 * To find a loss that depends on something else, such as a slice of all data from `from` to `to`,
 * the loss is also called at the 1st, 2nd, 4th, 8th, … and every 64th run of a captured block and
 * at its first run for other examples than those of the capture, and the call is refused if the two
 * losses or counts differ. With another loss, user or list of xs, or if tensors have been freed,
 * blocks are captured again. A loss that cannot be captured is called for each block, as without
 * .captured; eg_captured_blocks_refused says why. */
EG_API eg_captured_blocks *eg_captured_blocks_open(eg_ctx *);
/* As eg_captured_blocks_open, but the object lives as long as the owner. */
EG_API eg_captured_blocks *eg_captured_blocks_open_in(eg_owner *);
EG_API size_t eg_captured_blocks_bytes(const eg_captured_blocks *); /* memory that they hold now */
/* The error with which capturing a block failed, valid until they are used again: "from: not
 * possible in a captured step: …"; NULL: none failed */
EG_API const char *eg_captured_blocks_refused(const eg_captured_blocks *);
/* Frees captured blocks before their scope ends; NULL is fine */
EG_API void eg_captured_blocks_free(eg_captured_blocks *);

/* -- inside a block --------------------------------------------------------------------------- */
/* The examples [*from, *to) of the block that this thread is inside of; NULL: not wanted. −1,
 * without an error, outside of blocks. In functions that eg_from_call and eg_host_call call, these
 * are the examples of the block that is computed now. */
EG_API int eg_block_range(const eg_ctx *, int64_t *from, int64_t *to);
/* The number of the copy that the block computes (eg_grad_over_args.copies), 0 without copies; −1,
 * without an error, outside of blocks. */
EG_API int64_t eg_block_copy(const eg_ctx *);
typedef struct eg_block_call_args {
    size_t size;
    eg_ctx *cx;
    eg_block_loss *loss;
    void *user;
    int64_t from, to;  /* the examples [from, to) */
    int64_t *count;    /* out, to − from before the call; may be NULL */
    eg_given batch[8]; /* with at least `to` examples */
} eg_block_call_args;
/* Calls the loss in cx itself, as if examples [from, to) were a block. NULL after an error, such as
 * a count that is not from 0 to 2^48, eg_seed, or a switch (eg_eval) that the loss does not leave
 * as it was; the switches are then as they were before the call. */
EG_API eg_tensor *eg_block_call_with(const eg_block_call_args *);

#ifndef __cplusplus
#define eg_grad_over(...)  eg_grad_over_with(EG_ARGS_(eg_grad_over_args, __VA_ARGS__))
#define eg_block_call(...) eg_block_call_with(EG_ARGS_(eg_block_call_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_BLOCKS_
#include <eingrad/cxx.h>
#endif
#endif
