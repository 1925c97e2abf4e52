/* ranks.h: declarations that the files of lib/ranks share. Other folders use <eingrad/ranks.h>. */
#ifndef EG_RANKS_H
#define EG_RANKS_H
#include "core/core.h"
#include <eingrad/grad.h>
#include <eingrad/ranks.h>

struct eg_ranks {
    eg__group link; /* in the context's list; the first member */
    eg_ctx *cx;
    eg_owner *owner;
    eg_ranks_table table;
    eg_traffic traffic;
    uint64_t agreed;   /* eg_ctx.errors of the last error that all ranks have; 0: none so far */
    uint64_t barriers; /* number of barriers so far */
    void *all; /* buffer for what barriers and eg_ranks_agree gather: ROW bytes for each rank */
};

/* -- ranks.c: messages, also exchanged after an error, since other ranks wait for them --------- */
/* Records the sentence that a function of the table returned as an error. Returns 0 if it is NULL,
 * else −1. */
int eg__ranks_fail(eg_ranks *, const char *sentence);
/* Records that an argument is NULL, "the bytes to send are"; returns −1. */
int eg__ranks_null(eg_ranks *, const char *who, const char *what);
/* The exchange of the table, with its bytes counted; a message of a rank to itself is a copy.
 * Returns NULL, or a sentence after an error. */
const char *eg__ranks_exchanged(eg_ranks *, int to, const void *out, size_t out_bytes, int from,
                                void *in, size_t in_bytes);
/* True if the table has functions to start and to finish messages, which the next two functions
 * call. */
bool eg__ranks_starts(const eg_ranks *);
const char *eg__ranks_started(eg_ranks *, int to, const void *out, size_t out_bytes, int from,
                              void *in, size_t in_bytes);
const char *eg__ranks_finished(eg_ranks *);
int eg__ranks_gather(eg_ranks *, const void *mine, size_t bytes, void *all);
/* Notes that every rank has an error now, if there is one, and knows that of the others. Until it
 * is cleared, barriers send nothing: a rank may then have called more or fewer of them. */
void eg__ranks_agreed(eg_ranks *);
/* eg_ranks_barrier, in which all ranks also compare a text, "block 8, leaves 16", with at most 2047
 * bytes. The error names the first part that differs, after `who`. No further bytes are sent unless
 * the texts differ. */
int eg__ranks_barrier_same(eg_ranks *, const char *who, const char *text);

/* eg_apply of an operation whose forward() communicates and begins with a barrier. If it fails
 * before that barrier, this rank still takes part in it, since the other ranks wait there: they
 * then have its error. */
eg_tensor *eg__ranks_apply(eg_ranks *, const eg_op *, const void *attr, size_t attr_size, int count,
                           eg_tensor *const *xs);

/* -- launcher.c: which launcher started this process ------------------------------------------- */
/* Sets *table to that of the launcher in the environment; without a launcher, leaves the table as
 * it is, that of one rank. False after an error. */
bool eg__ranks_of_launcher(eg_ctx *, eg_ranks_table *table);
/* The function that the module libeingrad-mpi.so exports under the name EG_RANKS_MODULE. It fills a
 * table of the given size, and returns NULL, or a sentence after an error. If its interface
 * changes, its name must change. */
typedef const char *eg__ranks_module(size_t size, eg_ranks_table *table);
#define EG_RANKS_MODULE "eg__ranks_mpi_1"

/* -- shared.c ---------------------------------------------------------------------------------- */
/* The group of a node of eg_ranks_shared or eg_ranks_sum; NULL: it is another node. */
eg_ranks *eg__ranks_of_node(const eg_tensor *);

/* -- tree.c: the subtrees of any rank ---------------------------------------------------------- */
int eg__ranks_tree_subtrees_of(const eg_ranks_tree *, int rank);
eg_span eg__ranks_tree_subtree_of(const eg_ranks_tree *, int rank, int k);
int64_t eg__ranks_tree_leaf_count(const eg_ranks_tree *);

/* -- numbers.c: loops over elements ------------------------------------------------------------ */
void eg__ranks_add_f32(int64_t n, float *x, const float *y); /* x ← x + y */
void eg__ranks_add_f64(int64_t n, double *x, const double *y);
/* Σ x² in f64, in a fixed number of partial sums */
double eg__ranks_squares_f32(int64_t n, const float *x);
double eg__ranks_squares_f64(int64_t n, const double *x);
#endif
