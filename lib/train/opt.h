/* opt.h: an optimiser, as its steps see it */
#ifndef EG_TRAIN_OPT_H
#define EG_TRAIN_OPT_H
#include <eingrad/grad.h>
#include <eingrad/train.h>
#include "update.h"

/* The largest step: a double holds each of them, and sums of two fit. */
static const int64_t STEP_MOST = (int64_t)1 << 53;

struct eg_opt {
    const struct eg__opt_kind *kind;
    eg_opt_args o; /* with the defaults filled in */
    eg_ctx *cx;
    int count, states;
    eg_named *state;                 /* "opt.counts", "opt.lr", "opt.skipped", the moments */
    const char **name;               /* of each parameter */
    eg_tensor **x, **g;              /* each parameter, and its gradient during a step */
    eg_tensor **moment[EG__MOMENTS]; /* of each parameter; NULL entries are not kept */
    eg_tensor *counts;               /* STEPS, NORM_CLIPPED, VALUE_CLIPPED */
    eg_tensor *lr;
    eg_tensor *skipped; /* for each parameter the steps that did not reach it */
    double norm;        /* of the last step's gradient */
    /* during a step, for messages; else NULL */
    eg_tensor *loss;               /* of eg_step */
    const eg_grad_over_args *over; /* of eg_step_over */
    uint64_t draws;                /* before it */
    eg_block_loss *sum;            /* the last loss of eg_step_over that was seen to be a sum */
};
/* Computes the gradients of the step that is at work once more, with the same draws. */
void eg__step_over_again(eg_opt *);

/* -- opt_file.c ------------------------------------------------------------------------------- */
/* Parameters and state as one file. */
int eg__opt_write(const eg_opt *, const char *path, const char *const *metadata);
/* True if the file has a sound state of this optimiser's sizes; else recorded. */
bool eg__opt_fits(const eg_opt *, const eg_safetensors *, const char *path);
/* Reads it, after that check. */
bool eg__opt_read(eg_opt *, const eg_safetensors *, const char *path);
#endif
