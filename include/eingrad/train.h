/* eingrad/train.h: trainers and their checkpoints.
 *
 * A trainer lives as long as the scope that it was made in; it cannot be freed alone. Results,
 * errors and defaults are as in nn.h. */
#ifndef EINGRAD_TRAIN_H
#define EINGRAD_TRAIN_H
#include <eingrad/data.h>
#include <eingrad/heads.h>
#include <eingrad/nn.h>
#include <eingrad/optimiser.h>
#ifdef __cplusplus
extern "C" {
#endif

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
    int64_t layers;            /* 2; for a text 3 */
    int64_t d_model;           /* 64; for a text 128 */
    int64_t heads;             /* a divisor of d_model: 4 */
    int64_t width;             /* of the feed-forward part: 4 d_model */
    int64_t context; /* for a text: the length of the model's context in symbols; 64, or less if the
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
    int64_t steps;         /* the task's; for pairs 3000, for a text 1500 */
    int64_t batch;         /* sequences in a step: 64; for a text 32 */
    int64_t block;         /* sequences in a block (eg_step_over); a thread has memory for one
                            * block, and bits depend on this number. More than the batch: one block.
                            * 0: chosen from the sizes of model and batch, so that few bytes are
                            * moved between memory and a cache of 1 MB; at most batch/4 */
    int64_t leaves;        /* of a step (eg_step_over): 16 */
    double lr;             /* the task's; for pairs 1e-3, for a text 2e-3 */
    const char *optimiser; /* "adam", "adamw", "sgd", "rmsprop" or "adagrad": adam */
    double weight_decay, momentum; /* as eg_opt_args'; momentum ≤ 1 */
    double diversity;     /* factor of a term of the loss, the mean of eg_head_diversity over the
                           * attentions; ≥ 0: 0 */
    double clip_norm;     /* limit of the gradient's norm; 0: none */
    eg_schedule schedule; /* the task's warm-up, then cosine to 1/20 at `steps`;
                           * { .decay = EG_CONSTANT, .warmup = 1 }: none. If a schedule is given:
                           * linear, cosine and wsd without .steps end at `steps`; those and noam
                           * without .warmup have the task's warm-up; noam has d_model, and an lr
                           * such that its largest rate is the task's */
    uint64_t seed;        /* of initial values, dropout and examples: 0; restarts the context's
                           * random numbers */
    double goal;          /* eg_trainer_run stops at this share of exact test sequences, in (0, 1]:
                           * 0.99; for a text, and with EG_OFF, it runs all steps */
    int64_t evaluate;     /* steps between evaluations on the test set; 0: see eg_trainer_run (a
                           * text: 250; with early_stop: 100) */
    int64_t early_stop;   /* eg_trainer_run stops after this number of evaluations without a new
                           * minimum of the held-out loss; 0: never */
    bool eager;           /* blocks are not captured: less memory, more time, same bits */
    const eg_opt_group *groups; /* as eg_opt_args', copied; no ':', ';' or line end in names */
    const eg_opt_rule *rule;    /* a custom optimiser (optimiser.h), copied; NULL: .optimiser */
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
    int64_t tokens, right;    /* targets that count; those with the largest logit, given the right
                               * tokens before them */
    double loss; /* mean of −ln p per token; divided by ln 2: bits; e to its power: perplexity */
} eg_score;
/* A trainer with the network and the optimiser that the options name; it lives in the open scope,
 * and the data must live as long. It sets the context's seed, and runs a custom network on examples
 * of the test set to check it. NULL after an error, which leaves the context's seed and draws.
 * Refused: options out of range; a network whose logits have another shape, couple examples, or
 * have no gradient path to its parameters. */
EG_API eg_trainer *eg_trainer_new_with(const eg_trainer_args *);
/* Divides among ranks the leaves of each later step, the blocks of each evaluation, and the
 * optimiser (eg_opt_shard). All ranks have made or loaded the same trainer and call the same
 * functions of it in the same order; results are bitwise equal to those of one process. Only rank 0
 * writes checkpoints, with the moments that the others send: all ranks call eg_trainer_save, except
 * in `watch`, where rank 0's call is enough. The result of its `watch` applies to all ranks. NULL:
 * not divided. Refused: ranks that differ, by name; a group of another context. */
EG_API int eg_trainer_distribute(eg_trainer *, eg_ranks *);
/* One step on the next batch, also under eg_nograd; *p (may be NULL) receives the progress. Refuses
 * what eg_step refuses. After an error *p is the progress before the step, and (after eg_clear) the
 * next step has the same batch and random draws. */
EG_API int eg_trainer_step(eg_trainer *, eg_progress *p);
EG_API eg_progress eg_trainer_progress(const eg_trainer *); /* with the next step's lr */
/* Scores greedy decoding of up to 1000 test sequences (for a text, of 65536 symbols), in blocks */
EG_API int eg_trainer_evaluate(eg_trainer *, eg_score *);
/* Makes steps until `steps`, `goal` or `early_stop` ends the run. watch (may be NULL) is called
 * after each step and ends the run by returning true. The test set is evaluated every `evaluate`
 * steps; if that is 0, every 25 steps if at least goal − 0.05 of that step's sequences were exact;
 * and at the end. *p (may be NULL) receives the progress after the last step done, also where an
 * error ended the run. */
EG_API int eg_trainer_run(eg_trainer *,
                          bool (*watch)(void *user, eg_trainer *, const eg_progress *), void *user,
                          eg_progress *p);
/* From now on eg_trainer_run saves to path (copied) after each evaluation whose held-out loss is
 * the smallest so far; NULL: it does not */
EG_API int eg_trainer_keep_best(eg_trainer *, const char *path);
/* The k-th example of the test set; 0, or −1, without an error, if there is none or data are a
 * text */
EG_API int eg_trainer_test(eg_trainer *, int k, eg_example *);
/* The answer that greedy decoding gives to an input. Valid until the next answer. */
EG_API const char *eg_trainer_predict(eg_trainer *, const char *input);
typedef struct eg_generate_args { /* temperature … length_power: as in decode.h */
    size_t size;
    eg_trainer *trainer;
    const char *prompt; /* for a text it may be NULL: generation then starts after the end of a
                         * line, or after the first symbol of a text that has no lines */
    int64_t length;     /* symbols at most, < 2^30: 200; an answer ends by itself */
    double temperature; /* a text: 1; pairs and tasks: 0, the likeliest */
    int64_t top_k;
    double top_p;
    uint64_t seed;
    int64_t beam; /* 1; at most 4096 */
    double length_power;
    size_t *bytes; /* out: length of the text, which may hold zero bytes; may be NULL */
} eg_generate_args;
/* Returns the continuation of the prompt, valid until the next answer. Refused: an encoder. */
EG_API const char *eg_trainer_generate_with(const eg_generate_args *);
/* The attention weights (layer h i j) on an input, in the open scope, with the symbols of their
 * rows and columns (valid until the next call). A decoder's sequence is input SEP its own answer.
 * part: "encoder", "decoder" or "cross"; NULL: the only part of the model, or for seq2seq "cross",
 * whose rows are the symbols that are written and whose columns are those of the input. */
EG_API eg_tensor *eg_trainer_attention_weights(eg_trainer *, const char *input, const char *part,
                                               const char *const **rows,
                                               const char *const **columns);
/* eg_trainer_attention_weights for a model whose rows and columns are one sequence; not for
 * seq2seq. */
EG_API eg_tensor *eg_trainer_self_attention_weights(eg_trainer *, const char *input,
                                                    const char *const **tokens);
/* largest[attention · heads + head] = the mean over queries of the largest weight of that head, on
 * the first test batch, without padding and without queries that have no allowed key. A head with a
 * value near 1 is saturated: the gradient of its scores is almost 0. */
EG_API int eg_trainer_saturation(eg_trainer *, double *largest);
/* out[attention · heads + head] receives the measures of that head on the first test batch, without
 * padding (heads.h; .top is the mean of the largest weight). */
EG_API int eg_trainer_heads(eg_trainer *, eg_head *out);
/* Sets the results of these heads, and of no others, to 0 from now on; count 0: of none. It does
 * not affect eg_trainer_check. Attentions are numbered from 0, and named "0", "1" … or, for
 * seq2seq, "e0" … (encoder), "d0" … (decoder), "c0" … (cross). Michel, Levy, Neubig 2019 */
typedef struct eg_head_at {
    int attention, head;
} eg_head_at;
EG_API int eg_trainer_heads_off(eg_trainer *, int count, const eg_head_at *);
EG_API int eg_trainer_attentions(const eg_trainer *); /* number of attentions of the model */
EG_API const char *eg_trainer_attention(const eg_trainer *, int k);  /* name; NULL past the end */
EG_API eg_params *eg_trainer_params(eg_trainer *);                   /* the model's parameters */
EG_API eg_opt *eg_trainer_opt(eg_trainer *);                         /* the trainer's optimiser */
EG_API eg_data *eg_trainer_data(eg_trainer *);                       /* the data of the trainer */
EG_API const eg_trainer_args *eg_trainer_config(const eg_trainer *); /* with defaults filled in */
/* The text that a checkpoint stores about the model besides its sizes, in the open scope: a line
 * "name value" for each option of a built-in model that differs from its default, or the text of
 * eg_network.config; "" if there is none. NULL after an error. */
EG_API const char *eg_trainer_config_text(eg_trainer *);
/* Compares the gradients of the current model, in f64 copies, on a few test examples, with
 * central differences: for each tensor of n numbers and three vectors s of n random signs times
 * 1/√n, ⟨g, s⟩ is compared with (f(θ + hs) − f(θ − hs))/2h. An error e in one number of g
 * changes ⟨g, s⟩ by ±e/√n. If the two values disagree, the differences are extrapolated
 * (Richardson). A disagreement is divided by the largest (f(θ + hs) − f(θ − hs))/2h of all
 * tensors; a tensor is right if its three are at most 1e-6. After an error the report is zeros. */
typedef struct eg_trainer_check_report {
    int64_t entries;        /* numbers in all tensors */
    int64_t right;          /* numbers in tensors that are right */
    double worst;           /* the largest disagreement, that of … */
    const char *worst_name; /* … this tensor */
} eg_trainer_check_report;
EG_API int eg_trainer_check(eg_trainer *, eg_trainer_check_report *);

/* -- checkpoints: one safetensors file -------------------------------------------------------- */
/* Parameters, "opt.…", and in __metadata__ options, progress, vocabulary and data (a task's name,
 * the pairs themselves, a text's path and hash). A resumed run is bitwise equal to an uninterrupted
 * one, for any number of threads, and writes the same file. */
EG_API int eg_trainer_save(eg_trainer *, const char *path);
/* Describes the file at the path where t is to be saved; all 0 if there is none. A file that cannot
 * be read is not a checkpoint; if memory runs out, this is an error. */
typedef struct eg_saved {
    bool exists;
    bool checkpoint;  /* a trainer's */
    bool same;        /* of a run with t's data and options, at any step: at equal steps the files
                       * are equal. If t was loaded, .goal and .early_stop may differ */
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
    /* the custom optimiser of the run; NULL: the trainer has the model, but eg_trainer_step and
     * eg_trainer_save are refused */
    const eg_opt_rule *rule;
    double goal;        /* as eg_trainer_args.goal: the saved one; EG_OFF: no end by it */
    int64_t early_stop; /* as eg_trainer_args.early_stop: the saved one; EG_OFF: no end by it */
} eg_trainer_load_args;
/* Refused: data of another name, vocabulary or text; another network, custom optimiser or
 * configuration of these; a number out of its range; sizes that its tensors do not have, before any
 * memory is taken for them. */
EG_API eg_trainer *eg_trainer_load_with(const eg_trainer_load_args *);

#ifndef __cplusplus
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
