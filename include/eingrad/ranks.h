/* eingrad/ranks.h: several processes that compute one result, on one machine or on many, and sums
 * over them whose bits do not depend on the number of processes; docs/distributed.md.
 *
 * A process is a *rank*: number `rank` of `ranks`, from 0. All ranks must call each function that
 * communicates, in the same order. A return value of −1 means that an error is recorded in the
 * group's context. */
#ifndef EINGRAD_RANKS_H
#define EINGRAD_RANKS_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- communication: a table of functions ------------------------------------------------------- */
/* The library has three: a process alone, MPI (in a module that is loaded when mpirun started the
 * process), and threads (eg_ranks_simulate). Each function returns NULL, or a message that says
 * what failed, valid until the next call. */
typedef struct eg_ranks_table {
    size_t size;
    void *user; /* handed to the functions */
    int rank, ranks;
    /* Sends out_bytes to rank `to`, and at the same time receives in_bytes from rank `from`; a rank
     * of −1 means no message. `to` and `from` are never this rank; a message of another length is
     * an error. */
    const char *(*exchange)(void *user, int to, const void *out, size_t out_bytes, int from,
                            void *in, size_t in_bytes);
    /* Puts `bytes` of each rank into all, in the order of ranks. NULL: implemented by exchange. */
    const char *(*gather)(void *user, const void *mine, size_t bytes, void *all);
    void (*close)(void *user); /* NULL: nothing is to be closed */
    /* Non-blocking messages; if start or finish is NULL, exchange is called instead. start is like
     * exchange, but returns at once: both buffers belong to the message until `finish`, which waits
     * for all started messages, and is called before the next exchange or gather. Messages between
     * two ranks are matched in order, whether a rank called start or exchange for them. A start
     * with `to` and `from` of −1 lets started messages progress. start and finish are called by one
     * thread at a time, which need not be the thread that calls the other functions. */
    const char *(*start)(void *user, int to, const void *out, size_t out_bytes, int from, void *in,
                         size_t in_bytes);
    const char *(*finish)(void *user);
} eg_ranks_table;

typedef struct eg_ranks eg_ranks; /* a group of ranks, as one of them sees it */
typedef struct eg_ranks_open_args {
    size_t size;
    eg_ctx *cx; /* holds the group's memory and its errors */
    /* NULL: the ranks of the launcher (mpirun of Open MPI, MPICH or Intel MPI, srun with PMIx);
     * without a launcher only this process. libeingrad-mpi.so is searched in the folder that the
     * environment variable EINGRAD_MODULES names, else in the program's folder, then in the
     * installation that the program or the shared library is part of, then below configure's
     * prefix. */
    const eg_ranks_table *table;
} eg_ranks_open_args;
/* Opens a group; NULL after an error. Refused, with an error that names the ranks: a launcher's
 * environment without the MPI module; ranks that differ in the library's version, kernel family,
 * vector mathematics (the bits of some functions and products are compared) or eg_flush, since
 * results are bitwise equal only on the same kind of processor. */
EG_API eg_ranks *eg_ranks_open_with(const eg_ranks_open_args *);
/* Closes the group on this rank; NULL is allowed. Call it before the end of the scope in which the
 * group was opened. If a process that MPI started exits without this call, or with an error that
 * was not shared by eg_ranks_barrier, mpirun ends the other ranks, and Open MPI's says so. */
EG_API void eg_ranks_close(eg_ranks *);
/* Returns how many processes the launcher has started, by its environment variables, and in *rank
 * (may be NULL) which of them this one is. It needs no group, so a program can print a message on
 * one rank before the group is opened. Without a launcher it returns 1, and *rank is 0. */
EG_API int eg_ranks_launched(int *rank);
EG_API int eg_ranks_rank(const eg_ranks *);        /* the number of this rank; 0 for NULL */
EG_API int eg_ranks_count(const eg_ranks *);       /* the number of ranks; 1 for NULL */
EG_API eg_ctx *eg_ranks_context(const eg_ranks *); /* the group's context; NULL for NULL */

/* -- messages ---------------------------------------------------------------------------------- */
/* Sends and receives messages (eg_ranks_gather: gathers) as the table's function of that name does.
 * In eg_ranks_exchange a rank may also name itself as both `to` and `from`: then the bytes are
 * copied and not counted. */
EG_API int eg_ranks_exchange(eg_ranks *, int to, const void *out, size_t out_bytes, int from,
                             void *in, size_t in_bytes);
EG_API int eg_ranks_gather(eg_ranks *, const void *mine, size_t bytes, void *all);
/* Returns 0 if no rank has an error; else −1, and every rank then has one: its own, or that of the
 * first rank that has one, as "rank 2: …". Call it after work that may fail on one rank, before the
 * next exchange: of the functions here, only this one and eg_ranks_sum work after an error, and so
 * does eg_attention with .ranks. Each of them then takes part in one barrier. So does an eg_grad or
 * eg_jvp that ends early on one rank, if other ranks wait for it in the same pass. An error that
 * all ranks have is not sent again until eg_clear. */
EG_API int eg_ranks_barrier(eg_ranks *);
/* Compares a value, of at most 127 bytes, on all ranks. If it is not the same, every rank records
 * an error: "ranks: the data of rank 0 are \"a\", but those of rank 1 \"b\"" with what = "the
 * data". */
EG_API int eg_ranks_agree(eg_ranks *, const char *what, const char *value);
/* The bytes that this rank sent and received since the group was opened, without headers of
 * messages; a gather counts as sending its bytes to each other rank. */
typedef struct eg_traffic {
    uint64_t sent, received, messages; /* messages: sent */
} eg_traffic;
EG_API eg_traffic eg_ranks_traffic(const eg_ranks *);

/* Runs body(user, table) on `ranks` threads of this process, one for each rank, for tests and to
 * count messages; at most 256 ranks. A body opens its own context and group, .table = table, and
 * returns 0 on success. If a body returns while another one waits for a message from it, the
 * waiting call fails; if every body waits for another one, all calls fail. −1, with an error in cx,
 * if one did not return 0 or a thread could not be started. */
EG_API int eg_ranks_simulate(eg_ctx *cx, int ranks,
                             int (*body)(void *user, const eg_ranks_table *table), void *user);

/* -- tensors of which each rank has a part, and tensors that all ranks have ---------------------
 * Let each rank compute a scalar L_r from its part of the data (such as positions of a long
 * sequence), and L = Σ_r L_r. Then eg_grad of L_r gives dL/dx for the rank's part x. For a tensor x
 * that all ranks have (a parameter) it gives the complete dL/dx, with the same bits on every rank,
 * provided that the rank uses x only through eg_ranks_shared. Sums are computed along the tree of
 * the ranks. Operations that need other ranks (eg_attention with .ranks) do this themselves. A
 * complete gradient is one tensor that all ranks have: a penalty on it that every rank adds to its
 * L_r counts once in second derivatives, and not once for each rank.
 * Refused in both: a tensor that is no f32 or f64, or of another context than the group's; a step
 * that is captured. */
/* Returns x as this rank's operand; the cotangent of x on every rank is the sum of the cotangents
 * of all ranks. ranks NULL: x. */
EG_API eg_tensor *eg_ranks_shared(eg_ranks *, eg_tensor *x);
/* Returns Σ_r x_r on every rank, such as a loss for printing: with N numbers of w bytes a rank
 * sends 2 w N (P − 1)/P bytes if P is a power of two that divides N, and 32 (P − 1) bytes for sizes
 * and errors. The gradient sends nothing. ranks NULL: x. Also refused: other sizes on another
 * rank. */
EG_API eg_tensor *eg_ranks_sum(eg_ranks *, eg_tensor *x);
/* The group of an operation between ranks in the recorded graph of y: eg_ranks_shared,
 * eg_ranks_sum, or eg_attention with .ranks, as modules with .ranks call them; NULL: there is none.
 * For those inside eg_checkpoint it is the first group that is open in the context.
 * If y is the result of an operation that failed, the group of the last such operation in the open
 * scopes. Nothing is sent. */
EG_API eg_ranks *eg_ranks_of(eg_tensor *y);

/* -- sums along a tree of leaves --------------------------------------------------------------- */
/* A sum of `leaves` buffers of numbers, such as the gradients of parts of a batch: node [0, leaves)
 * of the binary tree in which node [a, b) is [a, m) + [m, b), m − a being the largest power of two
 * below b − a: pairs, pairs of pairs. Each rank has consecutive leaves and computes the nodes all
 * of whose leaves it has. The other nodes are computed between ranks in the same order, so that the
 * sum has the same bits for any number of ranks, one included.
 *
 * A buffer is divided into chunks of fixed length within each of its parts (tensors). Afterwards
 * each rank has the sum for its own range of chunks: it updates its parameters there, with the
 * moments of its range (ZeRO stage 1, Rajbhandari et al. 2020), and all ranks gather the values.
 *
 * Let N numbers of w bytes be a multiple of chunks · P. If P is a power of two that divides
 * leaves, itself a power of two, ranks add up by halving ranges (neighbours first), and each rank
 * sends w N (P − 1)/P bytes for the sum and as many for the gathering, which is the least possible.
 * Else a rank sends each whole subtree that it has (at most 2 log2(leaves)) to the owners of the
 * subtree's ranges: w s (N − N_r) for s subtrees and its own N_r = N/P numbers, and w (P − 1) N_r
 * for the gathering. Ranges depend on P and on the chunks alone, not on the leaves. */
typedef struct eg_ranks_tree eg_ranks_tree;
enum { EG_RANKS_CHUNK = 4096 };
typedef struct eg_ranks_tree_args {
    size_t size;
    eg_ranks *ranks;
    eg_dtype dtype; /* EG_F32 or EG_F64: EG_F32 */
    int64_t leaves; /* 1 … 2^30; if there are fewer leaves than ranks, some ranks have none; 0: no
                     * sums, the tree is used only for ranges, statistics and gathering */
    int parts;      /* of a buffer … */
    const int64_t *counts; /* … and how many numbers each has; they follow one another */
    int64_t chunk;         /* numbers: EG_RANKS_CHUNK */
} eg_ranks_tree_args;
/* All memory that a sum needs is taken here, from the group's context: besides the caller's buffers
 * at most as many numbers as the owner of a range receives, N/2 by halving, else N_r for each
 * subtree of another rank. NULL after an error. */
EG_API eg_ranks_tree *eg_ranks_tree_open_with(const eg_ranks_tree_args *);
EG_API void eg_ranks_tree_close(eg_ranks_tree *); /* frees the memory; NULL is allowed */
typedef struct eg_span {
    int64_t from, to; /* from ≤ k < to */
} eg_span;
EG_API eg_span eg_ranks_tree_leaves(const eg_ranks_tree *); /* leaves of this rank */
/* The number of whole subtrees in these leaves */
EG_API int eg_ranks_tree_subtrees(const eg_ranks_tree *);
EG_API eg_span eg_ranks_tree_subtree(const eg_ranks_tree *, int k); /* leaves of the k-th */
/* the m at which node [a, b) of more than one leaf is divided */
EG_API int64_t eg_ranks_tree_middle(eg_span node);
/* subtree[k] is the sum, along the tree, of the leaves of this rank's k-th subtree; it is
 * overwritten. This rank's range of `sum` becomes the sum of all leaves; `sum` may be one of the
 * subtrees. */
EG_API int eg_ranks_tree_sum(eg_ranks_tree *, void *const *subtree, void *sum);
EG_API int64_t eg_ranks_tree_chunks(const eg_ranks_tree *); /* chunks in a buffer */
EG_API eg_span eg_ranks_tree_range(const eg_ranks_tree *);  /* chunks that this rank owns */
EG_API eg_span eg_ranks_tree_range_of(const eg_ranks_tree *, int rank);   /* chunks of that rank */
EG_API eg_span eg_ranks_tree_chunk(const eg_ranks_tree *, int64_t chunk); /* numbers in a chunk */
/* The chunks of a part; a rank may own only some of them. */
EG_API eg_span eg_ranks_tree_part(const eg_ranks_tree *, int part);
/* Gathers `values`: before the call this rank's range is set, after it all ranges are set on every
 * rank. */
EG_API int eg_ranks_tree_gather(eg_ranks_tree *, void *values);
/* Sums values[k] over the chunks `of` along a binary tree, in f64, such as a norm or a mean whose
 * terms are sums over chunks. The result is the same for any number of ranks. */
EG_API double eg_ranks_tree_total(const double *values, eg_span of);
/* Gathers one number for each chunk, value[chunk]: before the call those of this rank's range are
 * set, after it those of all chunks. */
EG_API int eg_ranks_tree_statistics(eg_ranks_tree *, double *value);
/* Computes square[chunk] = Σ x² in f64 for the chunks of this rank's range, and gathers those of
 * all ranks; x has the dtype of the tree. The norm is √eg_ranks_tree_total(square, all chunks).
 * Refused, on every rank: a number that is not finite, or whose square is not. */
EG_API int eg_ranks_tree_squares(eg_ranks_tree *, const void *x, double *square);
/* The predicted bytes that this rank sends in each function; equal to what eg_ranks_traffic
 * counts. */
typedef struct eg_ranks_tree_bytes {
    uint64_t sum, gather, statistics;
} eg_ranks_tree_bytes;
EG_API eg_ranks_tree_bytes eg_ranks_tree_predict(const eg_ranks_tree *);

/* -- the gradient of a sum over examples ------------------------------------------------------ */
/* eg_grad_over whose leaves are divided among ranks: every rank gives the same arguments and gets
 * the same dxs, mean and counted, with the bits that one rank would compute. The loss is called
 * only for the blocks of this rank. An error on one rank is an error on all. ranks NULL: one rank.
 * Refused, in addition to what eg_grad_over refuses: xs of two dtypes, a context other than the
 * group's; ranks whose options differ, by name: examples, block, leaves, sizes and dtypes of xs and
 * batch, eg_train or eg_eval, seed and number of random draws of the context, and .agreed.
 *
 * With recursive halving, the first exchange (N/2 elements, at least half of what a rank sends for
 * the sum) is divided into at most 16 pieces, from the last of the xs to the first. In a rank's
 * last block a piece is sent (eg_ranks_table.start) as soon as the gradients of its xs are
 * complete, while the others are still computed. Bytes and bits are those of one message. List the
 * xs in the order in which the loss uses them, as modules make parameters, so that the last are
 * complete first. */
struct eg_grad_over_args; /* blocks.h */
EG_API int eg_ranks_grad_over(eg_ranks *, const struct eg_grad_over_args *);
/* Does what eg_ranks_grad_over does before the gathering, and then calls take with the gradient in
 * this rank's range. take updates what the rank keeps for that range, and gathers what all ranks
 * need completely. Every rank calls this function, and take is called on every rank; it returns 0,
 * or another number after an error. dxs is not written. Also refused: a group that is NULL. */
typedef struct eg_ranks_gradient {
    eg_ranks_tree *tree; /* its parts are the xs */
    void *numbers; /* room for the numbers of all xs, one after another. The range of this rank
                    * has Σ gradients/Σ counts, the rest is undefined; take may write to all */
    const bool *reached; /* of each x: true if the loss of a block on some rank depends on it; if
                          * not, its elements in numbers are undefined */
} eg_ranks_gradient;
EG_API int eg_ranks_grad_range(eg_ranks *, const struct eg_grad_over_args *,
                               int (*take)(void *user, const eg_ranks_gradient *), void *user);

#ifndef __cplusplus
#define eg_ranks_open(...) \
    eg_ranks_open_with(&(eg_ranks_open_args){ .size = sizeof(eg_ranks_open_args), __VA_ARGS__ })
#define eg_ranks_tree_open(...) \
    eg_ranks_tree_open_with(    \
        &(eg_ranks_tree_args){ .size = sizeof(eg_ranks_tree_args), __VA_ARGS__ })
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_RANKS_
#include <eingrad/cxx.h>
#endif
#endif
