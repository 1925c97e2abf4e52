/* eingrad/optimiser.h: schedules and optimisers, and a custom loop that is saved and resumed.
 *
 * Optimisers live as long as the list of parameters; they are not freed one by one. Results, errors
 * and defaults are as in nn.h. */
#ifndef EINGRAD_OPTIMISER_H
#define EINGRAD_OPTIMISER_H
#include <eingrad/grad.h>
#include <eingrad/nn.h>
#include <eingrad/ranks.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- schedules: the learning rate of step s = 0, 1, … is lr · factor(s)
 * warm-up      s < w: (s + 1)/w;  afterwards, with k = s − w, as PyTorch's SequentialLR counts:
 * constant     1
 * linear       1 + (last − 1) t,  t = min(1, k/(steps − w))
 * cosine       last + (1 − last)(1 + cos πt)/2, the same t;  CosineAnnealingLR
 * noam         d_model^−½ min((s + 1)^−½, (s + 1) w^−3/2), its own warm-up;  Vaswani et al. 2017
 * steps        gamma^⌊k/step_size⌋ (StepLR), or gamma^(number of milestones ≤ k) (MultiStepLR)
 * exponential  gamma^k;  ExponentialLR
 * wsd          1 up to steps − decay_steps, then last + (1 − last)(1 − t), where t goes from 0
 *              to 1 in decay_steps; wsd_sqrt: 1 − √t for 1 − t. Hu et al. 2024; Hägele et al. 2024
 * Linear, cosine and wsd have the factor `last` after their end. Optimisers refuse a member, other
 * than steps, that the decay does not read. */
typedef enum eg_decay {
    EG_CONSTANT,
    EG_LINEAR,
    EG_COSINE,
    EG_NOAM,
    EG_STEPS,
    EG_EXPONENTIAL,
    EG_WSD,
    EG_WSD_SQRT
} eg_decay;
enum { EG_MILESTONES = 8 };
typedef struct eg_schedule {
    eg_decay decay;                    /* constant */
    int64_t warmup;                    /* w, in steps: 0 */
    int64_t steps;                     /* the step at which linear, cosine and wsd end; needed */
    double last;                       /* the factor at that end: 0 */
    int64_t decay_steps;               /* wsd: steps/10, at least 1 */
    double gamma;                      /* > 0; steps: 0.1; exponential: needed */
    int64_t step_size;                 /* steps: either this, in steps, or … */
    int64_t milestones[EG_MILESTONES]; /* … these steps, ascending; a 0 ends the list */
    int64_t d_model;                   /* noam: needed; a trainer fills in its own */
    int64_t reserved[8];               /* for later versions: 0 */
} eg_schedule;
/* The name of a decay as in this list, "wsd-sqrt" for EG_WSD_SQRT; NULL for any other number. */
EG_API const char *eg_schedule_name(eg_decay);
/* factor(step); 1 if the schedule is NULL. NaN if .decay is no eg_decay, for noam without warmup
 * and d_model, and for exponential without gamma. */
EG_API double eg_schedule_factor(const eg_schedule *, int64_t step);

/* -- optimisers: θ a parameter, g its gradient, η = lr · factor(s) in step s = 0, 1, …
 * t = 1, 2, … is the number of steps so far, this one included, in which θ had a gradient
 * clipping   g ← clip(g, ±clip_value);  g ← g · min(1, clip_norm/(‖g‖ + 1e-6)), ‖g‖ over all
 * decay      g ← g + λθ, λ weight_decay;  adamw instead: θ ← (1 − ηλ) θ
 * sgd        u ← μu + (1 − dampening) g (t = 1: u ← g);  θ ← θ − η (nesterov ? g + μu : u)
 * adam(w)    m ← β₁m + (1 − β₁) g;  v ← β₂v + (1 − β₂) g²;  amsgrad: v̂ ← max(v̂, v), else v̂ = v
 *            θ ← θ − η/(1 − β₁ᵗ) m/(√v̂/√(1 − β₂ᵗ) + eps)
 * rmsprop    v ← αv + (1 − α) g²;  centered: m ← αm + (1 − α) g, v̂ = max(0, v − m²), else v̂ = v
 *            d = g/(√v̂ + eps);  with momentum u ← μu + d, d = u;  θ ← θ − η d
 * adagrad    v ← v + g²;  θ ← θ − η/(1 + (t − 1) lr_decay) g/(√v + eps)
 * as PyTorch computes them. Kingma, Ba 2015; Loshchilov, Hutter 2019; Reddi, Kale, Kumar 2018;
 * Tieleman, Hinton 2012; Duchi, Hazan, Singer 2011. */
typedef struct eg_opt eg_opt;
/* Options of the parameters whose names match; a parameter is in the first group that names it. */
typedef struct eg_opt_group {
    const char *names; /* patterns, '*' for any text and '?' for a character: "*.b *.b_? *.gain" */
    double lr_factor;  /* times lr, ≥ 0: 1 */
    double weight_decay; /* λ: the optimiser's */
    bool frozen;         /* the optimiser does not have these parameters: they keep their values */
    int64_t reserved[4]; /* for later versions: 0 */
} eg_opt_group;
/* Reads groups, in the open scope, from a text with ';' between them, as a checkpoint has it:
 * "tokens.*: frozen; *.b: lr_factor 2, weight_decay 0"; '-' is read as '_'. NULL after an error. */
EG_API const eg_opt_group *eg_opt_groups_read(eg_ctx *, const char *text);
/* Writes groups as such a text. Returns its length, as snprintf does. */
EG_API size_t eg_opt_groups_write(const eg_opt_group *, char *out, size_t capacity);
/* A custom rule for eg_opt_custom and for .rule of a trainer. The optimiser computes the gradients,
 * clips them, follows the schedule, keeps the moments, saves and restores them. The rule computes
 * the new values of one parameter and its moments. docs/training.md has Lion and Muon. */
typedef struct eg_opt_rule_step {
    const char *name;         /* of the parameter */
    eg_tensor *x;             /* its values, to be written, by eg_assign or eg_mut_… */
    eg_tensor *g;             /* its gradient, clipped; only read */
    eg_tensor *const *moment; /* of .moments, to be written; NULL where .shape gave none */
    double lr, weight_decay;  /* η and λ, with those of its group; the rule applies λ */
    int64_t step;             /* t, counted for this parameter */
} eg_opt_rule_step;
enum { EG_OPT_MOMENTS = 8 };
typedef struct eg_opt_rule {
    size_t size;         /* sizeof (eg_opt_rule); 0: the same */
    const char *name;    /* "lion": in checkpoints and messages; no name of the optimisers above */
    const char *moments; /* names of letters, digits and '_', with blanks between them, at most
                          * EG_OPT_MOMENTS: "m v". A moment has the parameter's dtype and is zeros
                          * before the first step; NULL: none */
    /* Makes step s of one parameter, under eg_nograd, in a scope of its own. Everything that
     * changes from step to step has to be in the moments, since only these are saved; user is
     * .user. Returns 0, or another number after an error; parameters before this one are then
     * changed already. Needed. */
    int (*update)(const void *user, const eg_opt_rule_step *s);
    /* The shape of moment number m of parameter x: writes its sizes to dims and returns the rank;
     * −1: this parameter has no such moment. NULL: every moment has the parameter's shape */
    int (*shape)(const void *user, const eg_named *x, int m, int64_t dims[EG_RANK_MAX]);
    /* true: an element of the new values depends only on that element of x, g and the moments. x, g
     * and the moments then have one axis, and eg_opt_shard divides the moments among ranks. false:
     * every rank has all moments and makes every update. Refused if true: a .shape; a rule that
     * gives other bits for the parts of a tensor than for the whole tensor, which is tested before
     * the first step */
    bool elementwise;
    /* Writes the numbers in .user on which results depend as a text, "beta1 0.9, beta2 0.99", and
     * returns its length as snprintf does. A trainer's checkpoint stores it, and is refused for a
     * rule whose text differs. NULL: no text */
    int (*config)(const void *user, char *out, size_t capacity);
    const void *user; /* handed to the three functions; must live as long as the optimiser */
} eg_opt_rule;
typedef struct eg_opt_args {
    size_t size;
    eg_params *params;
    double lr;                        /* ≥ 0: 1e-3; rmsprop, adagrad: 1e-2 */
    eg_schedule schedule;             /* constant, without warm-up */
    double weight_decay;              /* λ ≥ 0: 0; adamw: 0.01 */
    double clip_norm;                 /* limit of ‖g‖, > 0; 0: none */
    double norm_type;                 /* of ‖g‖: 2, Euclidean; INFINITY: the largest |g| */
    double clip_value;                /* limit of each |g|, > 0; 0: none */
    double eps;                       /* ≥ 0: 1e-8; adagrad: 1e-10 */
    double momentum;                  /* μ ≥ 0, sgd and rmsprop: 0 */
    double dampening;                 /* sgd: 0; needs momentum */
    bool nesterov;                    /* sgd: needs momentum and no dampening */
    double beta1, beta2;              /* β in [0, 1), adam and adamw: 0.9, 0.999 */
    bool amsgrad;                     /* adam, adamw */
    double alpha;                     /* α in [0, 1), rmsprop: 0.99 */
    bool centered;                    /* rmsprop */
    double lr_decay;                  /* adagrad: 0 */
    double initial_accumulator_value; /* of adagrad's v: 0 */
    /* of parameters with copies: lr and clip_norm of each copy, in their place; NULL: all alike */
    const double *lr_each, *clip_each;
    int64_t copies;             /* length of these lists, the number of the parameters' copies */
    const eg_opt_group *groups; /* ends at a group whose names are NULL; NULL: there are none */
    const eg_opt_rule *rule;    /* eg_opt_custom, copied: needed */
} eg_opt_args;
/* Returns an optimiser of the parameters that the list has now; for a list made by eg_params_under,
 * of those below its name. NULL after an error. Refused: an option that this optimiser does not
 * read, a group or name without a parameter, a group whose parameters all belong to groups before
 * it, a parameter in read-only memory, such as that of another list (.shared of eg_params_open),
 * unless it is frozen. */
EG_API eg_opt *eg_sgd_with(const eg_opt_args *);
EG_API eg_opt *eg_adam_with(const eg_opt_args *);
EG_API eg_opt *eg_adamw_with(const eg_opt_args *);
EG_API eg_opt *eg_rmsprop_with(const eg_opt_args *);
EG_API eg_opt *eg_adagrad_with(const eg_opt_args *);
/* The optimiser of .rule. It reads .lr (1e-3), .schedule, .weight_decay (0), the clipping, .copies
 * and .groups. With copies, the rule is called for each copy, without copies. */
EG_API eg_opt *eg_opt_custom_with(const eg_opt_args *);
/* Computes the gradients of loss, clips them, and updates the parameters in place. A parameter on
 * which the loss does not depend keeps its value, its moments and its count of steps; neither decay
 * nor momentum changes it. Refused, before anything changes: a loss that depends on no parameter
 * (the operation that cuts it off is named); a loss or gradient that is not finite, with the
 * operation that made it (the backward pass then runs once more with eg_trace, and hooks are called
 * again); gradients whose squares overflow the moments' dtype; a learning rate, decay or momentum
 * that overflows the parameter's; with ranks that compute the loss together (eg_ranks_of), or among
 * which the optimiser is divided, a parameter that differs between them, or its gradient, in the
 * first step in which it has one. If the parameters have copies, the loss must have them too, and
 * each copy makes the step that it would make alone; an error names the copy that failed, and then
 * no copy has changed. */
EG_API int eg_step(eg_opt *, eg_tensor *loss);
/* As eg_step, with given gradients in the order of the list (eg_params_at), such as sums over
 * micro-batches; NULL for a parameter on which the loss does not depend. Only an optimiser that is
 * divided among ranks compares them between the ranks. */
EG_API int eg_step_by(eg_opt *, eg_tensor *const *gradients);
/* As eg_step, for a loss that is a sum over examples, computed in blocks (eg_grad_over, blocks.h):
 * gradients of Σ losses/Σ counts, with the memory of one block per thread and the same bits for any
 * number of threads. Refused, in addition to what eg_grad_over and eg_step_by refuse: a loss that
 * is no such sum. To detect it, the first examples are computed together and in two parts before
 * the first step, under eg_nograd. If random numbers are drawn for the loss in training, this is
 * done under eg_eval; a loss that draws even there cannot be tested. Parameters with copies are
 * computed one copy after another. */
typedef struct eg_step_over_args {
    size_t size;
    eg_opt *opt;
    eg_block_loss *loss;
    void *user;       /* handed to loss; only read */
    int64_t examples; /* as eg_grad_over's, and so block, leaves, serial, mean, counted, sums */
    int64_t block;    /* 8 */
    int leaves;       /* 16 */
    bool serial;
    eg_ranks *ranks; /* divide the leaves; NULL: those of eg_opt_shard, else one process */
    double *mean;
    int64_t *counted;
    int *sums;
    const char *who;              /* for messages: "step_over" */
    eg_captured_blocks *captured; /* NULL: those of the optimiser with .capture, else none */
    eg_block_kind *kind;          /* as eg_grad_over's */
    eg_given batch[8];            /* as eg_grad_over's, for eg_block_rows */
    bool capture; /* blocks are captured (blocks.h), and kept by the optimiser; the same bits */
    double *mean_each; /* as eg_grad_over's, of the copies that the parameters have */
} eg_step_over_args;
EG_API int eg_step_over_with(const eg_step_over_args *);
typedef struct eg_opt_report {
    int64_t steps;         /* done */
    int64_t norm_clipped;  /* steps in which clip_norm changed the gradient */
    int64_t value_clipped; /* steps in which clip_value did */
    double norm;           /* of the last step's gradient, by norm_type, after clip_value and before
                            * clip_norm */
    double lr;             /* of the next step */
} eg_opt_report;
EG_API eg_opt_report eg_opt_report_of(const eg_opt *); /* a report of the steps so far */
/* ‖g‖₂ of the list's parameter k in the last step, after clip_value and before clip_norm. NaN: the
 * optimiser does not have this parameter */
EG_API double eg_opt_norm_of(const eg_opt *, int k);
EG_API int eg_opt_set_lr(eg_opt *, double lr); /* from the next step on; the schedule applies */
/* The optimiser of copy k, with its own report, rate and state; NULL if there is no copy k. For the
 * optimiser of all copies eg_opt_report_of reports copy 0, and eg_opt_set_lr sets all rates. */
EG_API eg_opt *eg_opt_of_copy(const eg_opt *, int64_t k);
/* Tensor k of the optimiser's state, to be saved: "opt.counts", "opt.m.NAME" …; NULL past the
 * end. */
EG_API const eg_named *eg_opt_state(const eg_opt *, int k);
/* Divides the optimiser's state: from now on each rank keeps only the moments of its own range of
 * the parameters' elements (eg_ranks_tree; ZeRO stage 1). In a step it updates that range, and all
 * ranks gather the new values, which are bitwise equal to those of one process. All ranks call this
 * function and every step. In eg_opt_state a moment then has one axis with the elements of the
 * range. A custom rule that is not .elementwise is not divided: every rank has all moments and
 * makes every update. With NULL instead of a group all ranks get complete moments again; make this
 * call before the group is closed. Refused: ranks whose options or parameters differ; a group of
 * another context. */
EG_API int eg_opt_shard(eg_opt *, eg_ranks *);
/* The tensor of eg_opt_state(op, k) as a file stores it; all ranks call this. Rank 0 gets the
 * complete tensor, in the open scope, the others their part. NULL after an error, past the end. */
EG_API eg_tensor *eg_opt_gather_state(eg_opt *, int k);

/* -- saving and resuming a custom loop -------------------------------------------------------- */
/* Saves all parameters of the list, the optimiser's state, and the context's seed and the number
 * of its next draw, as one safetensors file. A run that continues from it is bitwise
 * equal to an uninterrupted one. For the optimiser of a copy (eg_opt_of_copy) that seed is the
 * copy's, so that a single model can continue it. If the optimiser is divided (eg_opt_shard), all
 * ranks call this, and rank 0 writes the file. */
EG_API int eg_opt_save(eg_opt *, const char *path);
/* Reads a file of eg_opt_save, and sets the context's seed and draws to the file's (a file of an
 * older version has no seed); call it before eg_opt_shard. Returns the number of steps that are
 * done; 0, without an error, if there is no file; −1 after an error. After an error
 * nothing has changed. Refused: a file that lacks one of these tensors, has it in other sizes, or
 * has the state of another optimiser; counts, a learning rate or moments that no run has; a file of
 * a copy, for a copy of another seed. A copy keeps its own seed if the file is of a single model.
 */
EG_API int64_t eg_opt_resume(eg_opt *, const char *path);

#ifndef __cplusplus
#define eg_sgd(...)        eg_sgd_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adam(...)       eg_adam_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adamw(...)      eg_adamw_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_rmsprop(...)    eg_rmsprop_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adagrad(...)    eg_adagrad_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_opt_custom(...) eg_opt_custom_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_step_over(...)  eg_step_over_with(EG_ARGS_(eg_step_over_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_OPTIMISER_
#include <eingrad/cxx.h>
#endif
#endif
