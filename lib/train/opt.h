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
/* Number of losses of eg_step_over that are remembered as sums. */
enum { OPT_SUMS = 8 };

typedef struct eg__opt_kind { /* one for each kind: adam, sgd … */
    const char *name;
    const char *moment[EG__MOMENTS];          /* names of a parameter's moments */
    bool (*kept)(const eg_opt_args *, int m); /* true if moment m is used; NULL: all are */
    eg__update_f32 *f32;
    eg__update_f64 *f64;
    double lr, eps, weight_decay; /* defaults */
    bool squares;                 /* a moment contains squares of gradients */
    const eg_opt_rule *rule;      /* of eg_opt_custom, instead of f32 and f64; else NULL */
} eg__opt_kind;

/* What a step measured: ‖g‖ after clipping by value, the largest |g| before it, the factor by which
 * clipping by norm multiplies g, and the learning rate. */
typedef struct eg__opt_found {
    double norm, largest, coef, lr;
    int64_t *counts, *skipped; /* the elements of these tensors of the optimiser */
} eg__opt_found;

/* Options that differ between the parameters of an optimiser. */
typedef struct eg__opt_options {
    double lr; /* a factor of the rate */
    double weight_decay;
} eg__opt_options;

enum { COUNT_STEPS, COUNT_NORM_CLIPPED, COUNT_VALUE_CLIPPED, COUNTS }; /* in eg_opt.counts */

struct eg_opt {
    const eg__opt_kind *kind;
    int64_t copies; /* of the parameters; 1: they have none */
    eg_opt **each;  /* of parameters with copies: an optimiser for each; else NULL */
    bool of_copy;   /* it is one of these; its draws are made from `seed`, not the context's */
    uint64_t seed;
    eg_opt_args o; /* with the defaults filled in */
    eg_ctx *cx;
    int count, states;
    eg_named *state;   /* "opt.counts", "opt.lr", "opt.skipped", the moments */
    const char **name; /* of each parameter */
    int *own;          /* its number in the list, ascending */
    eg__opt_options *of;
    eg_tensor **x, **g; /* each parameter, and its gradient during a step */
    void **to;          /* the numbers of each parameter and of its moments, during a step */
    const void **at;    /* its gradient's numbers; NULL: the loss does not reach it */
    eg_tensor **moment[EG__MOMENTS]; /* of each parameter; NULL entries are not kept */
    eg_owner *moment_owner;          /* the owner of the moments */
    int64_t *first;                  /* first chunk of each parameter, and the end */
    int64_t *size;                   /* numbers of each parameter, of one copy */
    bool *wide;                      /* each parameter is f64, not f32 */
    int *parameter;                  /* of each chunk */
    double *squares, *largest;       /* of each chunk, during a step: Σ g² and the largest |g| */
    eg_ranks *ranks;                 /* each has the moments of one range; NULL: not divided */
    eg_ranks *together;  /* each has all moments, and makes every update: a rule that is not
                          * elementwise; else NULL */
    eg_span *range;      /* by rank, in chunks */
    eg_ranks_tree *tree; /* during a step: gathers the ranges of all ranks */
    eg_tensor *counts;   /* COUNT_STEPS, COUNT_NORM_CLIPPED, COUNT_VALUE_CLIPPED */
    eg_tensor *lr;
    eg_tensor *skipped; /* for each parameter the steps that did not reach it */
    double norm;        /* of the last step's gradient */
    double *norms;      /* of each parameter's */
    /* during a step: what its checks found, and the coefficients of the update, c[same[k]] for
     * parameter k */
    eg__opt_found found;
    eg__coefficients *c;
    int *same;
    /* during a step, for messages; else NULL */
    eg_tensor *loss;               /* of eg_step */
    const eg_grad_over_args *over; /* of eg_step_over */
    uint64_t draws;                /* the number of the context's next draw before the step */
    eg_block_loss *sum[OPT_SUMS];  /* losses of eg_step_over that were tested to be sums, and … */
    int next_sum;                  /* … the one that the next such loss replaces */
    const eg_ranks *met;           /* the ranks that had the same parameters and moments */
    const eg_ranks *alike;         /* those that compared parameters and gradients … */
    bool *compared;                /* … of the parameters that had a gradient so far */
    eg_captured_blocks *captured;  /* of eg_step_over with .capture; NULL: not yet opened */
};
/* Returns the coefficients of update.h for the t-th step in which a parameter with these options
 * has a gradient. */
eg__coefficients eg__opt_coefficients(const eg_opt *, eg__opt_options, double lr, double limit,
                                      double coef, int64_t t);

/* True if an optimiser of the library has this name. */
bool eg__opt_built_in(const char *name);
/* Returns the weight decay of a built-in optimiser that is given none. */
double eg__opt_default_decay(const char *optimiser);
/* Opens an optimiser of this kind, with copies if the parameters have them; NULL after an error. */
eg_opt *eg__opt_open(const eg__opt_kind *, const eg_opt_args *);
/* The ranks that call each step together; NULL: there are none. */
static inline eg_ranks *eg__opt_group(const eg_opt *op)
{
    return op->ranks ? op->ranks : op->together;
}

/* -- opt_rule.c ------------------------------------------------------------------------------- */
/* Returns the rule with all members; those that are missing in a smaller .size are 0. */
eg_opt_rule eg__rule_whole(const eg_opt_rule *);
/* True if the complete rule is valid; else records an error that begins with `who`. */
bool eg__rule_sound(eg_ctx *, const char *who, const eg_opt_rule *);
/* Returns a copy with its texts in memory of the owner; NULL without memory. */
const eg_opt_rule *eg__rule_copy(eg_owner *, const eg_opt_rule *);
/* Returns what .config writes, "" of NULL and of a rule without it; NULL after an error. */
const char *eg__rule_config(eg_ctx *, const eg_opt_rule *, eg_owner *);
/* Writes the sizes of moment m of a parameter. Returns its rank; −1: it has none, or an error. */
int eg__rule_shape(const eg_opt *, const eg_named *x, int m, int64_t dims[EG_RANK_MAX]);
/* Updates this rank's elements of every parameter that has a gradient, and their moments, of all
 * copies. False after an error. */
bool eg__rule_apply(eg_opt *);

/* -- opt_group.c ------------------------------------------------------------------------------ */
/* Sets own and of for the parameters of the list that an optimiser with these options, defaults
 * filled in, has. Returns their number; −1 after an error: there is none, or a wrong group. */
int eg__opt_members(const char *who, const eg_opt_args *, int *own, eg__opt_options *of);
/* Writes the fewest digits that are read back as the same number. Returns out. */
enum { EG__NUMBER_TEXT = 40 };
const char *eg__shortest(double x, char out[EG__NUMBER_TEXT]);
/* True if the text can have these groups; else records an error. */
bool eg__opt_groups_sound(eg_ctx *, const eg_opt_group *);
/* Returns a copy in memory of the owner; NULL without memory. */
const eg_opt_group *eg__opt_groups_copy(eg_owner *, const eg_opt_group *);

/* -- schedule.c ------------------------------------------------------------------------------- */
/* True, after an error that begins with `who`, if the schedule is wrong. */
bool eg__schedule_refused(eg_ctx *, const char *who, const eg_schedule *);
bool eg__schedule_is_default(const eg_schedule *); /* no member is given */
enum { EG__LIST = 96 };
/* Returns out, with "sgd, rmsprop and adam" written to it. */
const char *eg__opt_list(int n, const char *const *names, char out[EG__LIST]);

/* -- opt_step.c ------------------------------------------------------------------------------- */
/* Measures the gradients that op->at points to, updates this rank's range of each parameter, of all
 * copies, and gathers the parameters on all ranks. `memory`: a buffer for all parameters' numbers
 * if the optimiser is divided. good: this rank has no error so far. Returns 0; −1 after an error on
 * any rank. */
int eg__opt_update(eg_opt *, bool good, void *memory);
/* Makes a step with the gradients in op->g. Returns 0; −1 after an error. */
int eg__opt_step(eg_opt *);

/* -- opt_loops.c ------------------------------------------------------------------------------ */
/* Measures this rank's chunks of all gradients that op->at points to, scaled: sets squares and
 * largest, of each copy; the entries of other ranks' chunks are 0. */
void eg__opt_norms(eg_opt *, double limit, double scale);
/* Looks up where the update writes, which may fail; called before the step is counted. False after
 * an error. */
bool eg__opt_targets(eg_opt *);
/* Updates this rank's numbers of the parameters that have a gradient, and their moments, of all
 * copies. False after an error, which only a custom rule makes. */
bool eg__opt_apply(eg_opt *);
/* Returns the numbers of x, of all copies, for writing; NULL if x is NULL and after an error. */
void *eg__opt_numbers(eg_tensor *x);
/* The optimiser of copy k; op itself if its parameters have no copies. */
static inline eg_opt *eg__opt_at(eg_opt *op, int64_t k) { return op->each ? op->each[k] : op; }

/* -- step_over.c ------------------------------------------------------------------------------ */
/* Computes the gradients of the current step again, with the same draws. */
void eg__step_over_again(eg_opt *);

/* -- opt_file.c ------------------------------------------------------------------------------- */
/* Writes parameters and state to one file; all ranks of a divided optimiser call it and rank 0
 * writes. who: the function that errors name. good: this rank has no error so far. Returns 0; −1
 * after an error. */
int eg__opt_write(eg_opt *, const char *who, const char *path, const char *const *metadata,
                  bool good);
/* Reads the state, and the parameters of p (NULL: none): both, or, after an error, neither. False
 * if the file has no valid state with this optimiser's sizes. */
bool eg__opt_read(eg_opt *, eg_params *p, const eg_safetensors *, const char *path);

/* True if the optimiser is not NULL; else records an error that begins with `who`. */
bool eg__opt_there(const char *who, const eg_opt *);

/* -- opt_shard.c ------------------------------------------------------------------------------ */
/* Writes the options on which a step depends as "adam, lr 0.001, …", for ranks to compare. values:
 * also a hash of parameters and moments. */
enum { EG__OPT_TEXT = 1024 };
void eg__opt_text(const eg_opt *, bool values, char out[EG__OPT_TEXT]);
eg_span eg__opt_chunks(const eg_opt *);        /* the chunks whose elements this rank updates */
eg_span eg__opt_own(const eg_opt *, int k);    /* their elements in parameter k */
bool eg__opt_agree(const eg_opt *, bool good); /* true if all ranks are good */
/* True if parameters and gradients are the same on all ranks; else records an error, on all of
 * them. r NULL: not compared. good: this rank has no error so far. */
bool eg__opt_alike(eg_opt *, eg_ranks *r, bool good);
/* Completes value[chunk] with those of other ranks. False after an error. */
bool eg__opt_statistic(eg_opt *, double *value);
/* gathers the parameters on all ranks; false after an error */
bool eg__opt_gather(eg_opt *, void *memory);
/* Returns a tree for gathering, and its buffer, in memory of the open scope; NULL after an error.
 */
eg_ranks_tree *eg__opt_tree(eg_opt *, eg_ranks *, char **memory);
#endif
