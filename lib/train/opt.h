/* opt.h: the members of an optimiser, for the files that compute steps and read and write its
 * state. */
#ifndef EG_TRAIN_OPT_H
#define EG_TRAIN_OPT_H
#include <eingrad/grad.h>
#include <eingrad/train.h>
#include "update.h"

/* The largest number of a step: a double represents all of them, and a sum of two fits. */
static const int64_t STEP_MOST = (int64_t)1 << 53;
/* Elements in a chunk: the squares of a chunk of one parameter are added in one sequence, and
 * ranges are divided between chunks. */
enum { EG__CHUNK = EG_RANKS_CHUNK };

typedef struct eg__opt_kind { /* one for each kind: adam, sgd … */
    const char *name;
    const char *moment[EG__MOMENTS];          /* names of a parameter's moments */
    bool (*kept)(const eg_opt_args *, int m); /* true if moment m is used; NULL: all are */
    eg__update_f32 *f32;
    eg__update_f64 *f64;
    double lr, eps, weight_decay; /* defaults */
    bool squares;                 /* a moment contains squares of gradients */
} eg__opt_kind;

/* indices of eg_opt.counts */
enum { COUNT_STEPS, COUNT_NORM_CLIPPED, COUNT_VALUE_CLIPPED, COUNTS };

struct eg_opt {
    const eg__opt_kind *kind;
    eg_opt **each; /* for parameters with copies: an optimiser for each; else NULL */
    eg_opt_args o; /* with the defaults filled in */
    eg_ctx *cx;
    int count, states;
    eg_named *state;    /* "opt.counts", "opt.lr", "opt.skipped", the moments */
    const char **name;  /* by parameter */
    eg_tensor **x, **g; /* by parameter: the tensor, and its gradient during a step */
    void **to;          /* during a step: the elements of each parameter and of its moments */
    /* during a step: the elements of its gradient; NULL: the loss does not depend on the
     * parameter */
    const void **at;
    eg_tensor **moment[EG__MOMENTS]; /* by parameter; NULL for moments that are not used */
    eg_owner *held;                  /* owner of the moments */
    int64_t *first;                  /* number of the first chunk of each parameter, and the end */
    int64_t *size;                   /* number of elements of each parameter */
    double *squares, *largest;       /* during a step, by chunk: Σ g² and the largest |g| */
    eg_ranks *ranks;                 /* each has the moments of one range; NULL: not divided */
    eg_span *range;                  /* by rank, in chunks */
    eg_ranks_tree *tree;             /* during a step: gathers the ranges of all ranks */
    eg_tensor *counts;               /* COUNT_STEPS, COUNT_NORM_CLIPPED, COUNT_VALUE_CLIPPED */
    eg_tensor *lr;
    eg_tensor *skipped; /* by parameter: the number of steps in which it had no gradient */
    double norm;        /* norm of the last step's gradient */
    double *norms;      /* by parameter */
    /* during a step, for messages; else NULL */
    eg_tensor *loss;               /* of eg_step */
    const eg_grad_over_args *over; /* of eg_step_over */
    uint64_t draws;                /* the number of the context's next draw before the step */
    eg_block_loss *sum;            /* the last loss of eg_step_over that was tested to be a sum */
};
/* Returns the coefficients of update.h for the t-th step in which a parameter has a gradient. */
eg__coefficients eg__opt_coefficients(const eg_opt *, double lr, double limit, double coef,
                                      int64_t t);

/* -- schedule.c ------------------------------------------------------------------------------- */
/* True, after an error that begins with `who`, if the schedule is wrong. */
bool eg__schedule_refused(eg_ctx *, const char *who, const eg_schedule *);

/* -- opt_step.c ------------------------------------------------------------------------------- */
/* Computes the norms of the gradients that op->at points to, updates this rank's range of each
 * parameter, and gathers the parameters on all ranks. `room`: a buffer for the elements of all
 * parameters if the optimiser is divided. good: this rank has no error so far. Returns 0; −1 after
 * an error on any rank. */
int eg__opt_update(eg_opt *, bool good, void *room);

/* -- opt_loops.c ------------------------------------------------------------------------------ */
/* Computes `squares` and `largest` of this rank's chunks of all gradients, scaled; the entries of
 * other ranks' chunks are 0. */
void eg__opt_norms(eg_opt *, double limit, double scale);
/* Updates this rank's elements of parameters from ≤ k < to, each of which has a gradient, and their
 * moments. False after an error. */
bool eg__opt_apply(eg_opt *, const eg__coefficients *, int from, int to);

/* -- step_over.c ------------------------------------------------------------------------------ */
/* Computes the gradients of the current step again, with the same draws. */
void eg__step_over_again(eg_opt *);

/* -- opt_file.c ------------------------------------------------------------------------------- */
/* Writes parameters and state to one file; all ranks of a divided optimiser call it and rank 0
 * writes. good: this rank has no error so far. Returns 0; −1 after an error. */
int eg__opt_write(eg_opt *, const char *path, const char *const *metadata, bool good);
/* True if the file has a valid state with this optimiser's sizes; else records an error. */
bool eg__opt_fits(const eg_opt *, const eg_safetensors *, const char *path);
/* Reads the state, after eg__opt_fits. False after an error. */
bool eg__opt_read(eg_opt *, const eg_safetensors *, const char *path);

/* True if the optimiser is not NULL; else records an error that begins with `who`. */
bool eg__opt_there(const char *who, const eg_opt *);

/* -- opt_shard.c ------------------------------------------------------------------------------ */
eg_span eg__opt_chunks(const eg_opt *);        /* the chunks whose elements this rank updates */
eg_span eg__opt_own(const eg_opt *, int k);    /* their elements in parameter k */
bool eg__opt_agree(const eg_opt *, bool good); /* true if all ranks are good */
/* Completes value[chunk] with those of other ranks. False after an error. */
bool eg__opt_statistic(eg_opt *, double *value);
/* gathers the parameters on all ranks; false after an error */
bool eg__opt_gather(eg_opt *, void *room);
/* Returns a tree for gathering, and its buffer, in memory of the owner; NULL after an error. */
eg_ranks_tree *eg__opt_tree(eg_opt *, eg_ranks *, eg_owner *, char **room);
#endif
