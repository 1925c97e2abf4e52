/* eingrad/train.h: optimisers, schedules, sequence tasks, a training loop with checkpoints.
 *
 * Optimisers, data and trainers live as long as the list of parameters or the scope they were made
 * in; nobody frees them. int results: 0, or −1 after recording the failure in the context;
 * pointers: NULL after recording it. */
#ifndef EINGRAD_TRAIN_H
#define EINGRAD_TRAIN_H
#include <eingrad/nn.h>
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
 *              to 1 in decay_steps; wsd_sqrt: 1 − √t for 1 − t.
 *              Hu et al. 2024 (MiniCPM); the root: Hägele et al. 2024
 * Linear, cosine and wsd stay at `last` past the end. */
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
    eg_decay decay;
    int64_t warmup, steps;             /* w; the step that ends linear, cosine and wsd */
    double last;                       /* the factor at that end: 0 */
    double gamma;                      /* steps: 0.1; exponential: to be given; more than 0 */
    int64_t step_size;                 /* steps: this, or … */
    int64_t milestones[EG_MILESTONES]; /* … these, rising; a 0 ends them */
    int64_t d_model;                   /* noam: to be given; a trainer knows its own */
    int64_t decay_steps;               /* wsd: steps/10, at least 1 */
    int64_t reserved[8];               /* 0: room, so that option structs stay as they are */
} eg_schedule;
/* NaN: eg_sgd … refuse it */
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
typedef struct eg_opt_args {
    size_t size;
    eg_params *params;
    double lr;                        /* 1e-3; rmsprop, adagrad: 1e-2 */
    double momentum, dampening;       /* sgd, rmsprop: 0; sgd: 0 */
    bool nesterov;                    /* sgd: needs momentum and no dampening */
    double beta1, beta2, eps;         /* adam(w): 0.9, 0.999; 1e-8, adagrad 1e-10 */
    double weight_decay;              /* 0; adamw: 0.01 */
    double clip_norm, clip_value;     /* none */
    eg_schedule schedule;             /* constant, no warm-up */
    double alpha;                     /* rmsprop: 0.99 */
    bool centered, amsgrad;           /* rmsprop; adam, adamw */
    double lr_decay;                  /* adagrad: 0 */
    double initial_accumulator_value; /* adagrad, of v: 0 */
    double norm_type;                 /* of clip_norm: 2, Euclidean; INFINITY: the largest |g| */
} eg_opt_args;
/* Moments are made here, so that a step takes no memory for keeps. The parameters made so far
 * count. */
EG_API eg_opt *eg_sgd_with(const eg_opt_args *);
EG_API eg_opt *eg_adam_with(const eg_opt_args *);
EG_API eg_opt *eg_adamw_with(const eg_opt_args *);
EG_API eg_opt *eg_rmsprop_with(const eg_opt_args *);
EG_API eg_opt *eg_adagrad_with(const eg_opt_args *);
/* Gradients of loss, clipping, update in place. A parameter that the loss does not reach stays as
 * it is, moments and its count of steps too, so that it neither decays nor coasts. Refused, before
 * anything changes: a loss that reaches no parameter (recorded under eg_nograd; cut, by eg_detach,
 * say, and where; not read at all); a loss or gradient that is not finite, with the operation that
 * made it; gradients whose squares overflow the moments' dtype. After a gradient that is not
 * finite the sweep runs once more, traced, to find that operation: hooks are called again. */
EG_API int eg_step(eg_opt *, eg_tensor *loss);
/* The same with gradients in the parameters' order, as sums over micro-batches; NULL: none. */
EG_API int eg_step_by(eg_opt *, eg_tensor *const *gradients);
typedef struct eg_opt_report {
    int64_t steps;                       /* done */
    int64_t norm_clipped, value_clipped; /* steps in which clipping changed something */
    double norm; /* of the last step's gradient, by norm_type, before clip_norm */
    double lr;   /* of the next step */
} eg_opt_report;
EG_API eg_opt_report eg_opt_now(const eg_opt *);
/* from now on; the schedule's factor still applies */
EG_API int eg_opt_set_lr(eg_opt *, double lr);
/* All that a step reads but parameters: "opt.counts", "opt.lr", "opt.skipped", then "opt.m.NAME",
 * "opt.v.NAME" … */
EG_API const eg_named *eg_opt_state(const eg_opt *, int k);

/* -- tasks: a row each; an example is a pure function of (seed, number) ----------------------- */
/* tokens; symbols are numbered from EG_FIRST */
enum { EG_LONGEST = 256, EG_PAD = 0, EG_SEP = 1, EG_STOP = 2, EG_FIRST = 3 };
typedef struct eg_dice {
    uint64_t seed, number, count;
} eg_dice;
/* in [0, below), unbiased; a hash of (seed, number, count++) */
EG_API uint32_t eg_roll(eg_dice *, uint32_t below);
typedef struct eg_example {
    int inputs, outputs;
    int32_t input[EG_LONGEST], output[EG_LONGEST];
} eg_example;
typedef struct eg_task {
    /* symbols: one UTF-8 character each; in an example the k-th is k */
    const char *name, *about, *symbols;
    int longest_input, longest_output;
    /* the model that the task asks for: decoder over input SEP output, or encoder */
    bool decoder;
    bool asks; /* the input ends with its question: no SEP after it */
    void (*make)(eg_dice *, eg_example *);
    double lr;
    int64_t warmup, steps; /* defaults of a trainer */
} eg_task;
EG_API const eg_task *eg_task_at(int k);              /* NULL past the end */
EG_API const eg_task *eg_task_find(const char *name); /* NULL if there is none */

/* -- data: examples by number. One input in ten, by a hash of its text, is held out for tests; of a
 * few pairs at least one */
typedef struct eg_data eg_data;
/* a row of the table, or the user's own */
EG_API eg_data *eg_data_task(eg_ctx *, const eg_task *);
EG_API eg_data *eg_data_pairs(
    eg_ctx *,
    const char
        *path); /* lines "input TAB output"; symbols are words if a blank occurs and most words of
                 * the outputs occur more than once (others could not be learnt), else characters */
/* the same from memory; name: for messages */
EG_API eg_data *eg_data_parse(eg_ctx *, const char *text, const char *name);
/* One text of any bytes: symbols are characters, and single bytes where it is no UTF-8. Examples
 * are windows; the last tenth is held out. */
EG_API eg_data *eg_data_corpus(eg_ctx *, const char *path);
EG_API eg_data *eg_data_corpus_of(eg_ctx *, const void *bytes, size_t count, const char *name);
/* a corpus, to be gone on with rather than answered */
EG_API bool eg_data_free(const eg_data *);
EG_API const char *eg_data_name(const eg_data *);
EG_API const char *eg_data_text(const eg_data *); /* of pairs, as read; NULL of a task */
EG_API bool eg_data_decoder(const eg_data *);     /* the model it asks for; pairs: true */
/* pairs, or symbols of a corpus; 0 of a task: as many as there are numbers */
EG_API int64_t eg_data_size(const eg_data *);
/* in tokens; pairs: a new order each time round; −1 of a corpus */
EG_API int eg_data_example(const eg_data *, uint64_t seed, uint64_t number, eg_example *);
EG_API bool eg_data_held_out(const eg_data *, const eg_example *);
EG_API int eg_data_symbols(const eg_data *); /* tokens, PAD SEP STOP included */
EG_API const char *eg_data_symbol(const eg_data *, int token);
/* how many; −1 after an error: an unknown symbol, too many */
EG_API int eg_data_read(const eg_data *, const char *text, int room, int32_t *tokens);
/* as snprintf counts */
EG_API size_t eg_data_write(const eg_data *, int count, const int32_t *tokens, char *out,
                            size_t room);

/* -- training --------------------------------------------------------------------------------- */
typedef struct eg_trainer eg_trainer;
typedef struct eg_trainer_args {
    size_t size;
    eg_data *data;
    const char *model; /* "encoder", "decoder", "seq2seq" (an encoder and a decoder that attends to
                        * it, `layers` each); what the data asks for. An encoder needs input and
                        * output of one length */
    int64_t layers, d_model, heads, width; /* 2, 64, 4, 4 d_model; of a corpus 3, 128, 4 */
    double dropout, lr, clip_norm;         /* 0, the task's (pairs 1e-3, corpus 2e-3), none */
    /* The task's warm-up, then cosine to 1/20 at `steps`; { .decay = EG_CONSTANT, .warmup = 1 }:
     * none. Of another one: linear, cosine and wsd without .steps end at `steps`, after the task's
     * warm-up unless there is one; noam has the task's warm-up, d_model and an lr by which its
     * largest rate is the task's. */
    eg_schedule schedule;
    int64_t batch, steps; /* 64 (corpus 32), the task's (pairs 3000, corpus 1500) */
    uint64_t seed; /* of first values, dropout and examples: 0; restarts the context's draws */
    /* eg_trainer_run stops at this share of exact test sequences; 0.99 (corpus: none); EG_OFF: runs
     * all steps */
    double goal;
    /* corpus: symbols that the model sees at once; 64, or less where the held-out part is shorter
     */
    int64_t context;
    int64_t micro_batches; /* 1; more: a batch in so many parts, their gradients summed. One batch's
                            * numbers to rounding, and the memory of a part; dropout draws other
                            * masks */
    double smoothing;      /* label smoothing ε: 0 */
    /* steps between looks at the test set; 0: see eg_trainer_run (corpus: 250; with early_stop:
     * 100) */
    int64_t evaluate;
    int64_t early_stop; /* stop after so many looks without a smaller held-out loss; 0: never */
} eg_trainer_args;
typedef struct eg_progress {
    int64_t step, steps; /* done, planned */
    /* of this batch; share of right tokens, of sequences without a wrong one */
    double loss, accuracy, whole;
    double exact; /* share of exact test sequences when last evaluated; −1: not yet */
    /* tokens a second, in this step; training time since making or loading; learning rate */
    double rate, seconds, lr;
    double norm; /* of this step's gradient, before clipping */
    double held; /* mean held-out loss a token when last evaluated; −1: not yet */
    double best;
    int64_t best_step; /* the smallest of those, and its step; −1 */
    /* steps that clip_norm shortened; the longest gradient and its step */
    int64_t clipped;
    double longest;
    int64_t longest_step;
    bool stopped; /* by early_stop */
} eg_progress;
/* loss: mean of −ln p a token; ÷ ln 2: bits; e^: perplexity */
typedef struct eg_score {
    int64_t sequences, exact, tokens, right;
    double loss;
} eg_score;
EG_API eg_trainer *eg_trainer_new_with(const eg_trainer_args *);
EG_API int eg_trainer_step(eg_trainer *,
                           /* one batch, also under eg_nograd; refused: what eg_step refuses */
                           eg_progress *);
/* as after the last step, but for the batch's own numbers */
EG_API eg_progress eg_trainer_now(const eg_trainer *);
EG_API int eg_trainer_evaluate(
    eg_trainer *, eg_score *); /* 1000 held-out sequences (fewer if there are fewer), greedy
                                * decoding; of a corpus windows, 65536 symbols at most */
/* Steps until `steps`, `goal` or `early_stop`; watch (may be NULL) is called after each and stops
 * the loop by returning true. The test set is looked at every `evaluate` steps; without that, every
 * 25 steps if that step's batch was nearly at the goal; and at the end. */
EG_API int eg_trainer_run(eg_trainer *,
                          bool (*watch)(void *user, eg_trainer *, const eg_progress *), void *user,
                          eg_progress *);
/* run saves there whenever the held-out loss is the smallest so far; NULL: no more */
EG_API int eg_trainer_keep_best(eg_trainer *, const char *path);
/* the k-th test example; −1 past the end, and of a corpus */
EG_API int eg_trainer_test(eg_trainer *, int k, eg_example *);
/* the likeliest answer; valid until the next call */
EG_API const char *eg_trainer_predict(eg_trainer *, const char *input);
typedef struct eg_generate_args { /* as in decode.h */
    size_t size;
    eg_trainer *trainer;
    /* NULL, a corpus only: as after a line's end, or after its first symbol */
    const char *prompt;
    int64_t length; /* symbols at most: 200; an answer also ends by itself */
    /* a corpus draws with 1; otherwise none: the likeliest */
    double temperature;
    int64_t top_k;
    double top_p;
    uint64_t seed;
    int64_t beam;
    double length_power;
    size_t *bytes; /* out: length of the text, which may hold zero bytes */
} eg_generate_args;
/* what follows the prompt; valid until the next call. Refused: an encoder */
EG_API const char *eg_trainer_generate_with(const eg_generate_args *);
/* The weights (layer h i j) for an input, in the open scope. Of a decoder the sequence is input SEP
 * its own answer. part: "encoder", "decoder", "cross"; NULL: the model's only one, of seq2seq
 * "cross", whose rows are the symbols that are written, its columns the input's. */
EG_API eg_tensor *eg_trainer_look(eg_trainer *, const char *input, const char *part,
                                  const char *const **rows, const char *const **columns);
/* the same where both axes are one; not of seq2seq */
EG_API eg_tensor *eg_trainer_attend(eg_trainer *, const char *input, const char *const **tokens);
/* largest[attention · heads + head] = the mean over places of the largest weight of that head, on
 * the first test batch; places of padding and those with nothing to attend to are left out. Near 1
 * a head is saturated: its softmax hardly passes a gradient. */
EG_API int eg_trainer_saturation(eg_trainer *, double *largest);
/* Heads whose result is 0 from now on, in all but eg_trainer_check; 0 heads: none. Attentions are
 * numbered from 0, and named "0", "1" … or, of seq2seq, "e0" … (encoder), "d0" … (decoder), "c0" …
 * (cross). Michel, Levy, Neubig 2019 */
typedef struct eg_head_at {
    int attention, head;
} eg_head_at;
EG_API int eg_trainer_heads_off(eg_trainer *, int count, const eg_head_at *);
EG_API int eg_trainer_attentions(const eg_trainer *);
EG_API const char *eg_trainer_attention(const eg_trainer *, int k); /* NULL past the end */
EG_API eg_params *eg_trainer_params(eg_trainer *);
EG_API eg_opt *eg_trainer_opt(eg_trainer *);
EG_API eg_data *eg_trainer_data(eg_trainer *);
/* with the defaults filled in */
EG_API const eg_trainer_args *eg_trainer_config(const eg_trainer *);

/* Gradients of the model as it stands, in f64 copies, on a batch of test examples, against central
 * differences with Richardson's extrapolation. Tensors of up to 64 numbers: entry by entry. Larger
 * ones: random signs s, ⟨g, s⟩ against (f(θ+hs) − f(θ−hs))/2h, so that a gradient wrong by e in one
 * entry shows as ±e. `right` counts the entries of tensors whose every difference agrees to 1e-6 of
 * the largest one of that kind. */
typedef struct eg_trainer_check_report {
    int64_t entries, right;
    double worst;
    const char *worst_name;
} eg_trainer_check_report;
EG_API int eg_trainer_check(eg_trainer *, eg_trainer_check_report *);

/* One safetensors file: parameters, "opt.…", and in __metadata__ model, task or pairs (of a corpus
 * its path and hash), vocabulary, step, draws, next example. A resumed run has the bits of one that
 * was never interrupted, for any number of threads, and so has its file. */
EG_API int eg_trainer_save(eg_trainer *, const char *path);
/* What lies at path, where t is to be saved. same: the checkpoint of a run with t's data and
 * options, at whatever step, so that at equal steps the bits are equal; else `differs` names the
 * first difference, as "d_model 64, not 32". All 0 where there is no file. */
typedef struct eg_saved {
    bool there, checkpoint, same;
    int64_t step; /* of the checkpoint */
    char differs[96];
} eg_saved;
EG_API eg_saved eg_trainer_saved(eg_trainer *, const char *path);
typedef struct eg_trainer_load_args {
    size_t size;
    eg_ctx *cx;
    const char *path;
    int64_t steps; /* planned in all; as saved */
    eg_data *data; /* the user's own task, or the corpus from elsewhere; what the file names */
    /* a corpus is not read: the model can generate, but not train or be evaluated */
    bool answers;
} eg_trainer_load_args;
EG_API eg_trainer *eg_trainer_load_with(
    const eg_trainer_load_args *); /* refused: data of another name, vocabulary or text; a number
                                    * out of its range; sizes that its tensors do not have,
                                    * before anything is made of them */

#ifndef __cplusplus
#define eg_sgd(...)              eg_sgd_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adam(...)             eg_adam_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adamw(...)            eg_adamw_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_rmsprop(...)          eg_rmsprop_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
#define eg_adagrad(...)          eg_adagrad_with(EG_ARGS_(eg_opt_args, __VA_ARGS__))
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
