/* eingrad/train.h: optimisers, learning-rate schedules, sequence tasks, trainers, checkpoints.
 *
 * Optimisers, data and trainers live as long as the list of parameters or the scope that they were
 * made in; they are not freed one by one. Results, errors and defaults are as in nn.h. */
#ifndef EINGRAD_TRAIN_H
#define EINGRAD_TRAIN_H
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
 * Linear, cosine and wsd stay at `last` past the end. Optimisers refuse a member, other than steps,
 * that the decay does not read. */
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
    int64_t milestones[EG_MILESTONES]; /* … these steps, rising; a 0 ends the list */
    int64_t d_model;                   /* noam: needed; a trainer fills in its own */
    int64_t reserved[8];               /* 0: for later versions */
} eg_schedule;
/* The decay's name in this list, of the last "wsd-sqrt"; NULL for another number. */
EG_API const char *eg_schedule_name(eg_decay);
/* factor(step); NaN for no decay, noam without warmup and d_model, exponential without gamma. */
EG_API double eg_schedule_factor(const eg_schedule *, int64_t step);

/* -- optimisers: θ parameters, g gradients, t = 1, 2, … the step, η = lr · factor(t − 1)
 * clipping   g ← clip(g, ±clip_value);  g ← g · min(1, clip_norm/(‖g‖ + 1e-6)), ‖g‖ over all
 * decay      g ← g + λθ, λ weight_decay;  adamw instead: θ ← (1 − ηλ) θ
 * sgd        u ← μu + (1 − dampening) g (first step: u ← g);  θ ← θ − η (nesterov ? g + μu : u)
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
    int64_t reserved[4]; /* 0: for later versions */
} eg_opt_group;
/* Reads groups, in the open scope, from a text with ';' between them, as a checkpoint has it:
 * "tokens.*: frozen; *.b: lr_factor 2, weight_decay 0"; '-' is read as '_'. NULL after an error. */
EG_API const eg_opt_group *eg_opt_groups_read(eg_ctx *, const char *text);
/* Writes that text. Returns its length, as snprintf does. */
EG_API size_t eg_opt_groups_write(const eg_opt_group *, char *out, size_t capacity);
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
    double dampening;                 /* sgd: 0 */
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
} eg_opt_args;
/* An optimiser of the list's present parameters; of a list made by eg_params_under, of those below
 * its name. Refused: an option that it does not read, a group or name without a parameter. */
EG_API eg_opt *eg_sgd_with(const eg_opt_args *);
EG_API eg_opt *eg_adam_with(const eg_opt_args *);
EG_API eg_opt *eg_adamw_with(const eg_opt_args *);
EG_API eg_opt *eg_rmsprop_with(const eg_opt_args *);
EG_API eg_opt *eg_adagrad_with(const eg_opt_args *);
/* Computes the gradients of loss, clips them, and updates the parameters in place. A parameter on
 * which the loss does not depend keeps its value, its moments and its count of steps; neither decay
 * nor momentum changes it. Refused, before anything changes: a loss that depends on no parameter
 * (the operation that cuts it off is named); a loss or gradient that is not finite, with the
 * operation that made it (the backward pass then runs once more with eg_trace, and hooks are called
 * again); gradients whose squares overflow the moments' dtype. If parameters have copies, so has
 * the loss, and each makes the same step as alone; after an error, which names it, no copy has. */
EG_API int eg_step(eg_opt *, eg_tensor *loss);
/* The same with given gradients, in the order of the list (eg_params_at), such as sums over
 * micro-batches; NULL for a parameter on which the loss does not depend. */
EG_API int eg_step_by(eg_opt *, eg_tensor *const *gradients);
/* The same for a loss that is a sum over examples, computed in blocks (eg_grad_over, blocks.h):
 * gradients of Σ losses/Σ counts, with the memory of one block per thread and the same bits for any
 * number of threads. Refused, in addition to what eg_grad_over and eg_step_by refuse: a loss that
 * is no such sum. To detect it, the first examples are computed together and in two parts before
 * the first step, under eg_eval and eg_nograd; a loss that draws even there cannot be tested. */
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
} eg_step_over_args;
EG_API int eg_step_over_with(const eg_step_over_args *);
typedef struct eg_opt_report {
    int64_t steps;         /* done */
    int64_t norm_clipped;  /* steps in which clip_norm changed the gradient */
    int64_t value_clipped; /* steps in which clip_value did */
    double norm;           /* of the last step's gradient, by norm_type, before clip_norm */
    double lr;             /* of the next step */
} eg_opt_report;
EG_API eg_opt_report eg_opt_report_of(const eg_opt *); /* a report of the steps so far */
/* ‖g‖₂ of the list's parameter k in the last step, before clip_norm; NaN: not of this optimiser */
EG_API double eg_opt_norm_of(const eg_opt *, int k);
EG_API int eg_opt_set_lr(eg_opt *, double lr); /* from the next step on; the schedule applies */
/* The optimiser of copy k, with its own report, rate and state; NULL if there is no copy k. For the
 * optimiser of all copies eg_opt_report_of reports copy 0, and eg_opt_set_lr sets all rates. */
EG_API eg_opt *eg_opt_of_copy(const eg_opt *, int64_t k);
/* Tensor k of the optimiser's state, to be saved: "opt.counts", "opt.m.NAME" …; NULL: no more. */
EG_API const eg_named *eg_opt_state(const eg_opt *, int k);
/* Divides the optimiser's state: from now on each rank keeps only the moments of its own range of
 * the parameters' elements (eg_ranks_tree; ZeRO stage 1). In a step it updates that range, and all
 * ranks gather the new values, which are bitwise equal to those of one process. All ranks call this
 * function and every step. In eg_opt_state a moment then has one axis with the elements of the
 * range. NULL instead of a group: all ranks get complete moments again; call it before the group is
 * closed. Refused: ranks whose options or parameters differ; a group of another context. */
EG_API int eg_opt_shard(eg_opt *, eg_ranks *);
/* The tensor of eg_opt_state(op, k) as a file stores it; all ranks call this. Rank 0 gets the
 * complete tensor, in the open scope, the others their part. NULL after an error, past the end. */
EG_API eg_tensor *eg_opt_gather_state(eg_opt *, int k);

/* -- tasks: rows of a table; an example is a pure function of (seed, number) ------------------ */
/* Tokens: padding, the separator of input and output, the end of an output; symbols are numbered
 * from EG_FIRST. Each side of an example has at most EG_EXAMPLE_MAX symbols. */
enum { EG_EXAMPLE_MAX = 256, EG_PAD = 0, EG_SEP = 1, EG_STOP = 2, EG_FIRST = 3 };
typedef struct eg_rng {
    uint64_t seed;   /* of the run */
    uint64_t number; /* of the example */
    uint64_t count;  /* draws made for the example: 0 */
} eg_rng;
/* A random integer in [0, below), uniform: a hash of (seed, number, count++). */
EG_API uint32_t eg_rng_below(eg_rng *, uint32_t below);
typedef struct eg_example {
    int inputs, outputs; /* how many tokens each side has */
    int32_t input[EG_EXAMPLE_MAX], output[EG_EXAMPLE_MAX];
} eg_example;
typedef struct eg_task {
    const char *name;                     /* "reverse" */
    const char *about;                    /* what it asks for, in a line */
    const char *symbols;                  /* UTF-8 characters, each once, numbered from 0 */
    int longest_input, longest_output;    /* symbols of an example: 1 … EG_EXAMPLE_MAX */
    bool decoder;                         /* default: decoder over input SEP output, else encoder */
    bool no_separator;                    /* the input ends with a question: no SEP follows */
    void (*make)(eg_rng *, eg_example *); /* an example; draws by eg_rng_below alone */
    double lr;             /* of a trainer for this task: 0 for 1e-3 */
    int64_t warmup, steps; /* 0 for 50 and 3000 */
} eg_task;
EG_API const eg_task *eg_task_at(int k);              /* the k-th row; NULL past the end */
EG_API const eg_task *eg_task_find(const char *name); /* NULL if there is none of that name */

/* -- data: examples by number, of a task, of pairs or of a text -------------------------------- */
/* Of a task and of pairs one input in ten, chosen by a hash of its symbols, is held out for tests
 * (of a few pairs at least one); of a text its last tenth. */
typedef struct eg_data eg_data;
EG_API eg_data *eg_data_task(eg_ctx *, const eg_task *); /* a row of the table or the user's own */
/* A file of pairs, lines "input TAB output". Symbols are words if a blank occurs and most words of
 * the outputs occur more than once (others could not be learnt), else characters. */
EG_API eg_data *eg_data_pairs(eg_ctx *, const char *path);
/* The same from memory; name is for messages. */
EG_API eg_data *eg_data_parse(eg_ctx *, const char *text, const char *name);
/* One text of any bytes, whose examples are windows. Symbols are characters, or single bytes where
 * it is not UTF-8. eg_data_corpus_of takes it from memory; name is for messages. */
EG_API eg_data *eg_data_corpus(eg_ctx *, const char *path);
EG_API eg_data *eg_data_corpus_of(eg_ctx *, const void *bytes, size_t count, const char *name);
/* The same of tokens: a .npy file with one axis of integers in [0, 2^20). The symbol of token 17 is
 * the word "17", and a prompt consists of such words: "17 4 17". */
EG_API eg_data *eg_data_tokens(eg_ctx *, const char *path);
EG_API bool eg_data_is_text(const eg_data *); /* one text to continue; else inputs and outputs */
/* The word for a symbol: "character" for a text, "token" for eg_data_tokens, else "symbol". */
EG_API const char *eg_data_unit(const eg_data *);
EG_API const char *eg_data_name(const eg_data *);       /* name of the task, or the path */
EG_API const char *eg_data_pairs_text(const eg_data *); /* the text of pairs; else NULL */
EG_API bool eg_data_wants_decoder(const eg_data *);     /* the default model is a decoder */
EG_API int64_t eg_data_size(const eg_data *); /* pairs; symbols of a text; 0 of a task: no limit */
/* Makes the example of that number, in tokens. Pairs come in a new order each round. −1: a text. */
EG_API int eg_data_example(const eg_data *, uint64_t seed, uint64_t number, eg_example *);
EG_API bool eg_data_held_out(const eg_data *, const eg_example *); /* for tests, not trained on */
EG_API int eg_data_symbols(const eg_data *); /* how many tokens, PAD, SEP and STOP included */
EG_API const char *eg_data_symbol(const eg_data *, int token); /* its text; NULL: none */
/* Encodes text into at most `capacity` tokens. Returns how many, or −1 after an error (a symbol
 * that the data do not have, more than `capacity`). */
EG_API int eg_data_encode(const eg_data *, const char *text, int capacity, int32_t *tokens);
/* Writes the symbols of the tokens to `out`, cut to `capacity` bytes with the zero byte at the end,
 * words with blanks between them. Returns the length of the whole, as snprintf does. */
EG_API size_t eg_data_decode(const eg_data *, int count, const int32_t *tokens, char *out,
                             size_t capacity);

/* -- training --------------------------------------------------------------------------------- */
/* A trainer consists of a model, its optimiser and a position in the sequence of batches. */
typedef struct eg_trainer eg_trainer;
typedef struct eg_network eg_network; /* network.h */
typedef struct eg_trainer_args {
    size_t size;
    eg_data *data;
    const char *model; /* "encoder" (input and output of one length), "decoder", "seq2seq" (an
                        * encoder, and a decoder that attends to it, `layers` each); NULL: the
                        * one that suits the data */
    const eg_network *network; /* a custom network (network.h), copied; NULL: the model */
    void *user;                /* read by that network */
    int64_t layers;            /* 2; of a text 3 */
    int64_t d_model;           /* 64; of a text 128 */
    int64_t heads;             /* divides d_model: 4 */
    int64_t width;             /* of the feed-forward part: 4 d_model */
    int64_t context; /* of a text: the length of the model's context in symbols; 64, or less if the
                      * held-out part is shorter */
    /* of the models above, not of a custom network: */
    const struct eg_mha_args *attention; /* further options of their attentions, as
                                          * eg_block_args.mha has them; with .rotary or .alibi there
                                          * are no learned positions. Refused: what a checkpoint
                                          * cannot store, such as functions and tensors */
    const char *norm;                    /* "pre", "post", or "rms" (RMS norms, before): pre */
    const char *ffn;                     /* "gelu", "relu", or gated "swiglu", "geglu": gelu */

    double dropout;        /* probability, in [0, 1): 0 */
    double smoothing;      /* label smoothing ε in [0, 1): 0 */
    int64_t steps;         /* the task's; pairs 3000, a text 1500 */
    int64_t batch;         /* sequences in a step: 64; of a text 32 */
    int64_t block;         /* sequences in a block (eg_step_over); a thread has memory for one
                            * block, and bits depend on this number. More than the batch: one block.
                            * 0: chosen from the sizes of model and batch, so that few bytes are
                            * moved between memory and a cache of 1 MB; at most batch/4 */
    int64_t leaves;        /* of a step (eg_step_over): 16 */
    double lr;             /* the task's; pairs 1e-3, a text 2e-3 */
    const char *optimiser; /* "adam", "adamw", "sgd", "rmsprop" or "adagrad": adam */
    double weight_decay, momentum; /* as eg_opt_args' */
    double diversity;     /* factor of a term of the loss, the mean of eg_head_diversity over the
                           * attentions; ≥ 0: 0 */
    double clip_norm;     /* limit of the gradient's norm; 0: none */
    eg_schedule schedule; /* the task's warm-up, then cosine to 1/20 at `steps`;
                           * { .decay = EG_CONSTANT, .warmup = 1 }: none. Of one that is given:
                           * linear, cosine and wsd without .steps end at `steps`, after the task's
                           * warm-up unless there is one; noam has the task's warm-up, d_model and
                           * an lr by which its largest rate is the task's */
    uint64_t seed;        /* of initial values, dropout and examples: 0; restarts the context's
                           * random numbers */
    double goal;          /* eg_trainer_run stops at this share of exact test sequences, in (0, 1]:
                           * 0.99; of a text, and EG_OFF: runs all steps */
    int64_t evaluate;     /* steps between evaluations on the test set; 0: see eg_trainer_run (a
                           * text: 250; with early_stop: 100) */
    int64_t early_stop;   /* evaluations without a new minimum of the held-out loss, then stop */
    bool eager;           /* blocks are not captured: less memory, more time, same bits */
    const eg_opt_group *groups; /* as eg_opt_args', copied; no ':', ';' or line end in names */
} eg_trainer_args;
typedef struct eg_progress {
    int64_t step, steps;      /* done, planned */
    double loss;              /* of this step's batch: mean of −ln p per token */
    double accuracy;          /* of this batch: share of right tokens */
    double sequence_accuracy; /* of this batch: share of sequences without a wrong token */
    double exact;             /* share of exact test sequences when last evaluated; −1: not yet */
    double held_out_loss;     /* mean held-out loss per token when last evaluated; −1: not yet */
    double best_loss;         /* the smallest of those losses; −1: not yet */
    int64_t best_step;        /* and its step */
    double tokens_per_second; /* tokens per second in this step */
    double seconds;           /* of training since making or loading */
    double lr;                /* learning rate of this step */
    double norm;              /* of this step's gradient, before clipping */
    int64_t clipped;          /* steps in which clip_norm changed the gradient */
    double largest_norm;      /* largest norm so far */
    int64_t largest_norm_step; /* and its step */
    bool stopped;              /* by early_stop */
} eg_progress;
typedef struct eg_score {
    int64_t sequences, exact; /* tested; without a wrong token */
    int64_t tokens, right;
    double loss; /* mean of −ln p per token; divided by ln 2: bits; e to its power: perplexity */
} eg_score;
EG_API eg_trainer *eg_trainer_new_with(const eg_trainer_args *);
/* Divides among ranks the leaves of each later step, the blocks of each evaluation, and the
 * optimiser (eg_opt_shard). All ranks have made or loaded the same trainer and call the same
 * functions of it in the same order; results are bitwise equal to those of one process. Only rank 0
 * writes checkpoints, with the moments that the others send: all ranks call eg_trainer_save, except
 * in `watch`, where rank 0's call is enough. The result of its `watch` applies to all ranks. NULL:
 * not divided. Refused: ranks that differ, by name; a group of another context. */
EG_API int eg_trainer_distribute(eg_trainer *, eg_ranks *);
/* One step on the next batch, also under eg_nograd; *p (may be NULL) receives the progress. Refuses
 * what eg_step refuses. */
EG_API int eg_trainer_step(eg_trainer *, eg_progress *p);
EG_API eg_progress eg_trainer_progress(const eg_trainer *); /* with the next step's lr */
/* Scores greedy decoding of up to 1000 test sequences (of a text 65536 symbols), in blocks */
EG_API int eg_trainer_evaluate(eg_trainer *, eg_score *);
/* Steps until `steps`, `goal` or `early_stop`. watch (may be NULL) is called after each step and
 * ends the loop by returning true. The test set is evaluated every `evaluate` steps; if that is 0,
 * every 25 steps if at least goal − 0.05 of that step's sequences were exact; and at the end. */
EG_API int eg_trainer_run(eg_trainer *,
                          bool (*watch)(void *user, eg_trainer *, const eg_progress *), void *user,
                          eg_progress *);
/* eg_trainer_run then saves to path when the held-out loss is the smallest so far; NULL: no more */
EG_API int eg_trainer_keep_best(eg_trainer *, const char *path);
EG_API int eg_trainer_test(eg_trainer *, int k, eg_example *); /* the k-th; −1: none, a text */
/* The answer that greedy decoding gives to an input. Valid until the next answer. */
EG_API const char *eg_trainer_predict(eg_trainer *, const char *input);
typedef struct eg_generate_args { /* temperature … length_power: as in decode.h */
    size_t size;
    eg_trainer *trainer;
    const char *prompt; /* for a text it may be NULL: generation then starts after the end of a
                         * line, or after the first symbol of a text that has no lines */
    int64_t length;     /* symbols at most: 200; an answer ends by itself */
    double temperature; /* a text: 1; pairs and tasks: 0, the likeliest */
    int64_t top_k;
    double top_p;
    uint64_t seed;
    int64_t beam;
    double length_power;
    size_t *bytes; /* out: length of the text, which may hold zero bytes; may be NULL */
} eg_generate_args;
/* Returns the continuation of the prompt, valid until the next answer. Refused: an encoder. */
EG_API const char *eg_trainer_generate_with(const eg_generate_args *);
/* The attention weights (layer h i j) on an input, in the open scope, with the symbols of their
 * rows and columns (valid until the next call). A decoder's sequence is input SEP its own answer.
 * part: "encoder", "decoder" or "cross"; NULL: the only one of the model, of seq2seq "cross", whose
 * rows are the symbols that are written and whose columns are those of the input. */
EG_API eg_tensor *eg_trainer_attention_weights(eg_trainer *, const char *input, const char *part,
                                               const char *const **rows,
                                               const char *const **columns);
/* The same where rows and columns are one sequence; not of seq2seq. */
EG_API eg_tensor *eg_trainer_self_attention_weights(eg_trainer *, const char *input,
                                                    const char *const **tokens);
/* largest[attention · heads + head] = the mean over queries of the largest weight of that head, on
 * the first test batch, without padding and without queries that have no allowed key. A head with a
 * value near 1 is saturated: the gradient of its scores is almost 0. */
EG_API int eg_trainer_saturation(eg_trainer *, double *largest);
/* Sets the results of these heads, and of no others, to 0 from now on; count 0: of none. It does
 * not affect eg_trainer_check. Attentions are numbered from 0, and named "0", "1" … or, of seq2seq,
 * "e0" … (encoder), "d0" … (decoder), "c0" … (cross). Michel, Levy, Neubig 2019 */
typedef struct eg_head_at {
    int attention, head;
} eg_head_at;
EG_API int eg_trainer_heads_off(eg_trainer *, int count, const eg_head_at *);
EG_API int eg_trainer_attentions(const eg_trainer *);                /* how many the model has */
EG_API const char *eg_trainer_attention(const eg_trainer *, int k);  /* name; NULL past the end */
EG_API eg_params *eg_trainer_params(eg_trainer *);                   /* the model's parameters */
EG_API eg_opt *eg_trainer_opt(eg_trainer *);                         /* the optimiser of them */
EG_API eg_data *eg_trainer_data(eg_trainer *);                       /* what it is trained on */
EG_API const eg_trainer_args *eg_trainer_config(const eg_trainer *); /* with defaults filled in */
/* The text that a checkpoint stores about the model besides its sizes, in the open scope: a line
 * "name value" for each option of a built-in model that differs from its default, or the text of
 * eg_network.config; "" if there is none. NULL after an error. */
EG_API const char *eg_trainer_config_text(eg_trainer *);
/* Compares the gradients of the current model, in f64 copies, on a few test examples, with central
 * differences: for each tensor and three draws of random signs s, ⟨g, s⟩ against (f(θ + hs) − f(θ −
 * hs))/2h. An error e in one entry of g changes ⟨g, s⟩ by ±e. If the two values disagree, the
 * differences are extrapolated (Richardson). Disagreements are parts of the largest difference of
 * all tensors; a tensor is right if its own are at most 1e-6. */
typedef struct eg_trainer_check_report {
    int64_t entries;        /* numbers in all tensors */
    int64_t right;          /* numbers in tensors that are right */
    double worst;           /* largest disagreement, that of … */
    const char *worst_name; /* … this tensor */
} eg_trainer_check_report;
EG_API int eg_trainer_check(eg_trainer *, eg_trainer_check_report *);

/* -- checkpoints: one safetensors file -------------------------------------------------------- */
/* Parameters, "opt.…", and in __metadata__ options, progress, vocabulary and data (a task's name,
 * the pairs themselves, a text's path and hash). A resumed run is bitwise equal to an uninterrupted
 * one, for any number of threads, and writes the same file. */
EG_API int eg_trainer_save(eg_trainer *, const char *path);
/* Describes the file at the path where t is to be saved; all 0 if there is none. */
typedef struct eg_saved {
    bool exists;
    bool checkpoint;  /* a trainer's */
    bool same;        /* of a run with t's data and options, at any step: at equal steps the files
                       * are equal */
    int64_t step;     /* of the checkpoint */
    char differs[96]; /* if not the same, the first difference: "d_model 64, not 32" */
} eg_saved;
EG_API eg_saved eg_trainer_saved(eg_trainer *, const char *path);
typedef struct eg_trainer_load_args {
    size_t size;
    eg_ctx *cx;
    const char *path;
    int64_t steps; /* planned in all; as saved */
    eg_data *data; /* a custom task, or the text at another path; default: what the file names */
    const eg_network *network; /* a custom network, and … */
    void *user;                /* … what it reads */
    bool inference_only;       /* a text is not read: the model generates only */
} eg_trainer_load_args;
/* Refused: data of another name, vocabulary or text; another network or configuration; a number out
 * of its range; sizes that its tensors do not have, before any memory is taken for them. */
EG_API eg_trainer *eg_trainer_load_with(const eg_trainer_load_args *);

#ifndef __cplusplus
#define eg_sgd(...)              eg_sgd_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adam(...)             eg_adam_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adamw(...)            eg_adamw_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_rmsprop(...)          eg_rmsprop_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adagrad(...)          eg_adagrad_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_step_over(...)        eg_step_over_with(EG_ARGS_(eg_step_over_args, __VA_ARGS__))
#define eg_trainer_new(...)      eg_trainer_new_with(EG_ARGS_(eg_trainer_args, __VA_ARGS__))
#define eg_trainer_generate(...) eg_trainer_generate_with(EG_ARGS_(eg_generate_args, __VA_ARGS__))
#define eg_trainer_load(...)     eg_trainer_load_with(EG_ARGS_(eg_trainer_load_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_TRAIN_
#include <eingrad/cxx.h>
#endif
#endif
