/* ranks.h: what the files of lib/ranks share. Other folders use <eingrad/ranks.h>. */
#ifndef EG_RANKS_H
#define EG_RANKS_H
#include <eingrad/grad.h>
#include <eingrad/ranks.h>

struct eg_ranks {
    eg_ctx *cx;
    eg_owner *owner;
    eg_ranks_table table;
    eg_traffic traffic;
    bool agreed; /* every rank knows of the error in cx */
    void *all;   /* room for what meet and agree gather: ROW bytes of each rank */
};

/* -- ranks.c: talking, also after an error, since other ranks wait for it ---------------------- */
/* 0 if the table said nothing; else records its sentence, and −1. */
int eg__ranks_said(eg_ranks *, const char *sentence);
/* The table's exchange, counted; a rank's message to itself is a copy. NULL or a sentence. */
const char *eg__ranks_exchanged(eg_ranks *, int to, const void *out, size_t out_bytes, int from,
                                void *in, size_t in_bytes);
/* True if the table has what the next two call. */
bool eg__ranks_starts(const eg_ranks *);
const char *eg__ranks_started(eg_ranks *, int to, const void *out, size_t out_bytes, int from,
                              void *in, size_t in_bytes);
const char *eg__ranks_finished(eg_ranks *);
int eg__ranks_gather(eg_ranks *, const void *mine, size_t bytes, void *all);

/* -- launcher.c: who started this process ------------------------------------------------------ */
/* Sets *table to what a launcher's environment asks for, to a table of one rank without one. False
 * after an error. */
bool eg__ranks_of_launcher(eg_ctx *, eg_ranks_table *table);
/* What the module libeingrad-mpi.so exports under the name EG_RANKS_MODULE: fills a table of the
 * given size, and returns NULL or a sentence. Another interface gets another name. */
typedef const char *eg__ranks_module(size_t size, eg_ranks_table *table);
#define EG_RANKS_MODULE "eg__ranks_mpi_1"

/* -- tree.c: of any rank ------------------------------------------------------------------------
 */
int eg__ranks_tree_subtrees_of(const eg_ranks_tree *, int rank);
eg_span eg__ranks_tree_subtree_of(const eg_ranks_tree *, int rank, int k);
int64_t eg__ranks_tree_leaf_count(const eg_ranks_tree *);

/* -- numbers.c: loops over numbers ------------------------------------------------------------- */
void eg__ranks_add_f32(int64_t n, float *x, const float *y); /* x ← x + y */
void eg__ranks_add_f64(int64_t n, double *x, const double *y);
/* Σ x², in f64 and in fixed lanes */
double eg__ranks_squares_f32(int64_t n, const float *x);
double eg__ranks_squares_f64(int64_t n, const double *x);
#endif
