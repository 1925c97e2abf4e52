/* opt.h: an optimiser, as its steps see it */
#ifndef EG_TRAIN_OPT_H
#define EG_TRAIN_OPT_H
#include <eingrad/grad.h>
#include <eingrad/train.h>
#include "update.h"

/* The largest step: a double holds each of them, and sums of two fit. */
static const int64_t STEP_MOST = (int64_t)1 << 53;
/* Numbers whose squares are added in a row, of one parameter; ranges are cut between chunks. */
enum { EG__CHUNK = EG_RANKS_CHUNK };

typedef struct eg__opt_kind { /* a row for each: adam, sgd … */
    const char *name;
    const char *moment[EG__MOMENTS];          /* names of what a step keeps of each parameter */
    bool (*kept)(const eg_opt_args *, int m); /* true if moment m is needed; NULL: each is */
    eg__update_f32 *f32;
    eg__update_f64 *f64;
    double lr, eps, weight_decay; /* defaults */
    bool squares;                 /* a moment holds g² */
} eg__opt_kind;

enum { COUNT_STEPS, COUNT_NORM_CLIPPED, COUNT_VALUE_CLIPPED, COUNTS }; /* in eg_opt.counts */

struct eg_opt {
    const eg__opt_kind *kind;
    eg_opt **each; /* of parameters with copies: an optimiser for each; else NULL */
    eg_opt_args o; /* with the defaults filled in */
    eg_ctx *cx;
    int count, states;
    eg_named *state;                 /* "opt.counts", "opt.lr", "opt.skipped", the moments */
    const char **name;               /* of each parameter */
    eg_tensor **x, **g;              /* each parameter, and its gradient during a step */
    const void **at;                 /* its numbers, of which the own are read; NULL: not reached */
    eg_tensor **moment[EG__MOMENTS]; /* of each parameter; NULL entries are not kept */
    eg_owner *held;                  /* the moments' memory */
    int64_t *first;                  /* chunk of each parameter, and the end */
    int64_t *size;                   /* numbers of each parameter */
    double *squares, *largest;       /* of each chunk, during a step */
    eg_ranks *ranks;                 /* that each keep the moments of a range; NULL: alone */
    eg_span *range;                  /* of each of them, in chunks */
    eg_ranks_tree *tree;             /* during a step: gathers what is in the ranges */
    eg_tensor *counts;               /* COUNT_STEPS, COUNT_NORM_CLIPPED, COUNT_VALUE_CLIPPED */
    eg_tensor *lr;
    eg_tensor *skipped; /* for each parameter the steps that did not reach it */
    double norm;        /* of the last step's gradient */
    double *norms;      /* of each parameter's */
    /* during a step, for messages; else NULL */
    eg_tensor *loss;               /* of eg_step */
    const eg_grad_over_args *over; /* of eg_step_over */
    uint64_t draws;                /* before it */
    eg_block_loss *sum;            /* the last loss of eg_step_over that was seen to be a sum */
};
/* The numbers of update.h for the t-th step that reaches a parameter. */
eg__coefficients eg__opt_coefficients(const eg_opt *, double lr, double limit, double coef,
                                      int64_t t);

/* -- schedule.c ------------------------------------------------------------------------------- */
/* True after recording what is wrong with the schedule of the optimiser `who`. */
bool eg__schedule_refused(eg_ctx *, const char *who, const eg_schedule *);

/* -- opt_step.c ------------------------------------------------------------------------------- */
/* Measures the gradients that op->at points to, then updates the own range of each parameter and
 * makes it whole; `room` is that of all parameters' numbers, if the optimiser is divided. Good
 * false: this rank has an error. */
int eg__opt_update(eg_opt *, bool good, void *room);

/* -- step_over.c ------------------------------------------------------------------------------ */
/* Computes the gradients of the step that is at work once more, with the same draws. */
void eg__step_over_again(eg_opt *);

/* -- opt_file.c ------------------------------------------------------------------------------- */
/* Parameters and state as one file, of a divided optimiser by all ranks, of which rank 0 writes.
 * Good false: this rank has an error. */
int eg__opt_write(eg_opt *, const char *path, const char *const *metadata, bool good);
/* True if the file has a sound state of this optimiser's sizes; else recorded. */
bool eg__opt_fits(const eg_opt *, const eg_safetensors *, const char *path);
/* Reads it, after that check. */
bool eg__opt_read(eg_opt *, const eg_safetensors *, const char *path);

/* True if there is an optimiser; else records that `who` was given NULL. */
bool eg__opt_there(const char *who, const eg_opt *);

/* -- opt_divide.c ------------------------------------------------------------------------------ */
eg_span eg__opt_chunks(const eg_opt *);       /* whose numbers are updated here */
eg_span eg__opt_own(const eg_opt *, int k);   /* their numbers of parameter k */
bool eg__opt_meet(const eg_opt *, bool good); /* true if all ranks are good */
/* value[chunk]: those of other ranks too. False after an error. */
bool eg__opt_statistic(eg_opt *, double *value);
bool eg__opt_gather(eg_opt *, void *room); /* makes the parameters whole; false after an error */
/* A tree for gathering, and its room, in memory of the owner; NULL after an error. */
eg_ranks_tree *eg__opt_tree(eg_opt *, eg_ranks *, eg_owner *, char **room);
#endif
