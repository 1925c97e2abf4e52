/* trainer.h: the members of a trainer: a model, its data and its optimiser. */
#ifndef EG_TRAIN_TRAINER_H
#define EG_TRAIN_TRAINER_H
#include "batch.h"
#include "opt.h"
#include <eingrad/decode.h>
#include <eingrad/model.h>

/* -- network.c: the model ---------------------------------------------------------------------- */
/* an entry of the table; NULL if there is none */
const eg_network *eg__network_find(const char *name);
int eg__network_parts(const eg_network *);
/* True if a user's own network can be trained; else records an error. */
bool eg__network_sound(eg_ctx *, const eg_network *);
/* Returns what the network's make() makes with these parameters, which may have another dtype than
 * the trainer's; NULL after an error. */
void *eg__network_make(const eg_trainer *, eg_params *);
/* Returns logits (b l v). weights, unless NULL, receives those of all attention layers, one part
 * after another. */
eg_tensor *eg__network_logits(const eg_trainer *, eg_ctx *, const eg_batch *, eg_tensor **weights);
/* Returns the loss of these logits of the batch, to which *auxiliary_loss is added if the network
 * has set it. */
eg_tensor *eg__network_loss(const eg_trainer *, eg_ctx *, const eg_batch *, eg_tensor *logits,
                            double smoothing);
bool eg__attention_names(eg_trainer *);
/* Returns the text of the network's configuration, "" if it has none; NULL after an error. */
const char *eg__network_config(const eg_trainer *, eg_owner *);

/* -- trainer_options.c ------------------------------------------------------------------------ */
/* Fills in the defaults of *o. False, after an error, if an option is invalid. */
bool eg__trainer_defaults(eg_trainer_args *o);

/* -- recipe.c: options of the built-in models and the optimiser ------------------------------- */
/* false after an error: an option is invalid */
bool eg__recipe_sound(eg_ctx *, const eg_trainer_args *);
/* Fills in the defaults of *o and copies its texts to memory of the owner; false without memory. */
bool eg__recipe_copy(eg_owner *, eg_ctx *, eg_trainer_args *o);
/* Sets the transformer's options that are derived from those of attention, norm and
 * feed-forward. */
void eg__recipe_block(eg_ctx *, const eg_trainer_args *, eg_transformer_args *);
eg_opt *eg__recipe_optimiser(eg_params *, const eg_trainer_args *);
/* eg__recipe_print writes the options as eg_network.config does. eg__recipe_read reads them back,
 * with memory of the owner; false after an error. */
int eg__recipe_print(const eg_trainer_args *, char *out, size_t size);
bool eg__recipe_read(eg_ctx *, eg_owner *, const char *text, eg_trainer_args *, const char *path);

/* -- network_check.c: false after an error: the network cannot be trained ---------------------- */
bool eg__network_probe(eg_trainer *);
/* True if the logits depend on t->gain_now, in which all heads are switched off; else records an
 * error. */
bool eg__network_probe_gain(eg_trainer *);

struct eg_trainer {
    eg_ctx *cx;
    eg_owner *owner;
    eg_trainer_args o; /* with the defaults filled in */
    eg_data *data;
    eg_batches *batches;
    /* the model */
    const eg_network *network; /* the trainer's copy of the struct */
    void *net;                 /* what its make() returned */
    bool rule_missing;         /* it was loaded without the custom optimiser of its run */
    bool loaded;               /* from a checkpoint */
    eg_params *params;
    eg_tensor *gain;       /* set by eg_trainer_heads_off; NULL: never called */
    eg_tensor *gain_now;   /* as `gain`; NULL: all heads are on */
    bool reads_gain;       /* the network is known to depend on it */
    char (*attention)[24]; /* names of the attentions */
    /* training */
    eg_opt *opt;
    eg_batch batch; /* the batch of the current step */
    /* captured blocks of steps; NULL: none yet, or nothing is captured */
    eg_captured_blocks *captured;
    eg_score *score; /* of each block of the last step */
    eg_ranks *ranks; /* the ranks among which steps and evaluation are divided; NULL: not divided */
    /* inside `watch`, during which only rank 0 saves and sends requests to the others */
    bool watching;
    eg_score *rank_scores; /* by rank: the scores that are gathered; NULL: not divided */
    eg_progress now;       /* of the last step */
    int64_t waited;        /* number of evaluations without a smaller held-out loss */
    const char *best_path; /* from eg_trainer_keep_best; NULL: none */
    /* answers */
    int32_t *question; /* its tokens, and those of its answer */
    char *answer;      /* text of the last answer */
    size_t answer_capacity;
    eg_tensor **weights;   /* one for each attention, from eg_trainer_attention_weights */
    const char **label[2]; /* labels of their rows and columns */
};

/* The sizes of a model's tensors that a checkpoint gives in addition to the options. */
typedef struct eg__restored {
    int64_t vocabulary, longest;
    const eg_safetensors *file;
    const char *path;
} eg__restored;
/* Makes a trainer; with eg__restored NULL for a new model. NULL after an error. */
eg_trainer *eg__trainer_make(const eg_trainer_args *, const eg__restored *);

/* -- trainer.c: arguments of its functions ----------------------------------------------------- */
/* True if the trainer is not NULL; else records an error that begins with `who`. */
bool eg__trainer_there(const char *who, const eg_trainer *);
/* As eg__trainer_there; also false if the trainer's context has an error. */
bool eg__trainer_ready(const char *who, const eg_trainer *);
/* True unless the trainer was loaded without its custom optimiser; else records an error. */
bool eg__trainer_has_rule(const char *who, const eg_trainer *);

/* -- trainer.c, checkpoint.c: commands that rank 0 sends to the others between steps ----------- */
enum { EG__COMMAND_GO, EG__COMMAND_STOP, EG__COMMAND_SAVE };
/* Returns rank 0's command; −1 after an error. */
int eg__trainer_broadcast(eg_trainer *, char what);
/* True if all numbers and options that a checkpoint stores in addition to tensors and symbols are
 * the same on all ranks; else records an error that names one. All ranks call it. Memory that it
 * needs is the owner's, NULL after an error. */
bool eg__trainer_agree(const eg_trainer *, eg_ranks *, eg_owner *);
/* Writes a checkpoint: rank 0 calls it with a path, the others with NULL. All get rank 0's
 * error. */
int eg__trainer_collect(eg_trainer *, const char *path);
#endif
