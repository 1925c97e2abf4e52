/* trainer.h: a model, its data and its optimiser */
#ifndef EG_TRAIN_TRAINER_H
#define EG_TRAIN_TRAINER_H
#include "batch.h"
#include "opt.h"
#include <eingrad/decode.h>
#include <eingrad/model.h>

enum { LEAVES_MOST = 4096 };
/* -- network.c: what is trained --------------------------------------------------------------- */
const eg_network *eg__network_find(const char *name); /* a row of the table; NULL: none */
int eg__network_parts(const eg_network *);
/* True if a network of one's own can be trained; else records why not. */
bool eg__network_sound(eg_ctx *, const eg_network *);
/* What the row's make returns for parameters that are of a trainer's own dtype or not; NULL after
 * an error. */
void *eg__network_make(const eg_trainer *, eg_params *, double dropout);
/* (b l v); weights, unless NULL, receives those of the parts' layers, part after part. */
eg_tensor *eg__network_logits(const eg_trainer *, eg_ctx *, const eg_batch *, eg_tensor **weights);
bool eg__attention_names(eg_trainer *);
/* The text of the row's configuration, "" if there is none; NULL after an error. */
const char *eg__network_config(const eg_trainer *, eg_owner *);

/* -- recipe.c: options of the built-in models and the optimiser ------------------------------- */
bool eg__recipe_sound(eg_ctx *, const eg_trainer_args *); /* false after refusing one */
/* *o has defaults, and its texts are in memory of the owner; false: no memory. */
bool eg__recipe_copy(eg_owner *, eg_ctx *, eg_trainer_args *o);
/* Sets what is made of attention, norm and ffn. */
void eg__recipe_block(eg_ctx *, const eg_trainer_args *, eg_transformer_args *);
eg_opt *eg__recipe_optimiser(eg_params *, const eg_trainer_args *);
/* As eg_network.config; and back, in memory of the owner, false after refusing a line. */
int eg__recipe_print(const eg_trainer_args *, char *out, size_t room);
bool eg__recipe_read(eg_ctx *, eg_owner *, const char *text, eg_trainer_args *, const char *path);

/* -- probe.c: false after recording why a network of one's own cannot be trained -------------- */
bool eg__network_probe(eg_trainer *);

struct eg_trainer {
    eg_ctx *cx;
    eg_owner *owner;
    eg_trainer_args o; /* with the defaults filled in */
    eg_data *data;
    eg_batches *batches;
    /* the model */
    const eg_network *network; /* the trainer's own copy of the row */
    void *net;                 /* what it made */
    eg_params *params;
    eg_tensor *gain;       /* of eg_trainer_heads_off; NULL: never called */
    eg_tensor *gain_now;   /* the same, NULL: all heads are on */
    char (*attention)[24]; /* names of the attentions */
    /* training */
    eg_opt *opt;
    eg_batch batch;               /* the batch of the step that is at work */
    eg_captured_blocks *captured; /* of steps; NULL: not made yet, or not to be captured */
    eg_score *score;              /* of each block of the last step */
    eg_ranks *ranks;              /* that divide steps and looks; NULL: this process alone */
    bool watching;         /* inside `watch`, where rank 0 alone saves, and asks the others */
    eg_score *looks;       /* of each test batch, then of every rank's; NULL: alone */
    eg_progress now;       /* of the last step */
    int64_t waited;        /* evaluations without a smaller held-out loss */
    const char *best_path; /* of eg_trainer_keep_best; NULL: none */
    /* answers */
    int32_t *asked; /* tokens of a question and its answer */
    char *answer;   /* text of the last answer */
    size_t answer_room;
    eg_tensor **weights;   /* one for each attention: of eg_trainer_look */
    const char **label[2]; /* of their rows and columns */
};

/* What a checkpoint says of the model beside its options. The model must have its tensors. */
typedef struct eg__restored {
    int64_t vocabulary, longest;
    const eg_safetensors *file;
    const char *path;
} eg__restored;
/* eg__restored NULL: a new model. NULL after an error. */
eg_trainer *eg__trainer_make(const eg_trainer_args *, const eg__restored *);

/* -- trainer.c: arguments of its functions ----------------------------------------------------- */
/* True if there is a trainer; else records that `who` was given NULL. */
bool eg__trainer_there(const char *who, const eg_trainer *);
/* True if there is one, whose context has no error; else the same. */
bool eg__trainer_ready(const char *who, const eg_trainer *);

/* -- trainer.c, checkpoint.c: what rank 0 says to the others at a step's border ---------------- */
enum { EG__TOLD_GO, EG__TOLD_STOP, EG__TOLD_SAVE };
int eg__trainer_tell(eg_trainer *, char what); /* what rank 0 said; −1 after an error */
/* The other ranks' part of a save, and rank 0's with a path; all have rank 0's error. */
int eg__trainer_collect(eg_trainer *, const char *path);
#endif
