/* trainer.h: a model, its data and its optimiser */
#ifndef EG_TRAIN_TRAINER_H
#define EG_TRAIN_TRAINER_H
#include "data.h"
#include <eingrad/decode.h>
#include <eingrad/model.h>

/* The largest layers, widths and batch: products of two fit, and what is saved can be loaded. */
enum { SIZE_MOST = 1 << 20, LEAVES_MOST = 4096 };
/* The largest step: a double holds each of them, and sums of two fit. */
static const int64_t STEP_MOST = (int64_t)1 << 53;

static const uint64_t EXAMPLE_MOST = (uint64_t)1 << 62; /* examples that are numbered */

/* A batch, or some rows of one. Targets that are EG_PAD do not count. */
typedef struct eg__batch {
    int64_t rows, length; /* tokens, target and keep are rows × length */
    int64_t sources;      /* source and source_keep are rows × sources: seq2seq only */
    const int32_t *tokens, *target, *source;
    const bool *keep, *source_keep; /* false at padding */
    bool padded, source_padded;     /* an encoder's rows differ in length, so keep is needed */
} eg__batch;

/* -- network.c: the models, a row each -------------------------------------------------------- */
enum { PARTS = 3 };
typedef struct eg__network {
    const struct eg__kind *kind;
    eg_transformer *one; /* of an encoder or a decoder; else NULL */
    eg_seq2seq *two;     /* of seq2seq; else NULL */
    eg_tensor *gain;     /* factors of the heads; NULL: all are on */
} eg__network;
/* A part of a model: its attentions, one for each layer. Of layer k the row of the gain is
 * stride k + first, after those of the encoder. */
typedef struct eg__part {
    const char *name;
    char letter; /* of the names of its attentions: e, d, c */
    int stride, first;
} eg__part;
typedef struct eg__kind {
    const char *name;
    bool autoregressive; /* one token after the other, until STOP; else one for each of the
                          * input's */
    bool has_source;     /* the input is a source beside the tokens */
    bool (*make)(eg__network *, eg_params *, const eg_trainer *, double dropout);
    /* (b l v); weights, unless NULL, receives those of the parts' layers, part after part */
    eg_tensor *(*logits)(const eg__network *, eg_ctx *, const eg__batch *, eg_tensor **weights);
    /* the encoder's memory of the source; NULL: there is none */
    eg_tensor *(*memory)(const eg__network *, eg_ctx *, const eg__batch *);
    /* logits of the next tokens alone, after those in the cache; NULL: not autoregressive */
    eg_tensor *(*next_logits)(const eg__network *, eg_ctx *, const eg__batch *, eg_tensor *memory,
                              eg_cache *);
    eg__part part[PARTS];
} eg__kind;
const eg__kind *eg__kind_find(const char *name); /* NULL: none */
int eg__kind_parts(const eg__kind *);
/* false after an error */
bool eg__network_make(eg__network *, const eg__kind *, eg_params *, const eg_trainer *,
                      double dropout);
bool eg__attention_names(eg_trainer *);

struct eg_trainer {
    eg_ctx *cx;
    eg_owner *owner;
    eg_trainer_args o; /* with the defaults filled in */
    eg_data *data;
    bool separator; /* SEP between input and answer */
    int32_t least;  /* the smallest token that is an answer */
    /* the model */
    const eg__kind *kind;
    eg__network net;
    eg_params *params;
    int64_t longest, source_longest; /* places */
    int64_t vocabulary;              /* tokens */
    eg_tensor *gain;                 /* of eg_trainer_heads_off; NULL: never called */
    char (*attention)[24];           /* names of the attentions */
    /* training */
    eg_opt *opt;
    eg_score *score;       /* of each block of the last step */
    eg_ranks *ranks;       /* that divide steps and looks; NULL: this process alone */
    bool watching;         /* inside `watch`, where rank 0 alone saves, and asks the others */
    eg_score *looks;       /* of each test batch, then of every rank's; NULL: alone */
    uint64_t cursor;       /* number of the next training example */
    eg_progress now;       /* of the last step */
    int64_t waited;        /* evaluations without a smaller held-out loss */
    const char *best_path; /* of eg_trainer_keep_best; NULL: none */
    /* the test set */
    int64_t tests;
    uint64_t *test; /* numbers of the test examples; of a text, places */
    /* one batch */
    int64_t rows; /* that there is memory for */
    int32_t *tokens, *target, *source;
    bool *keep, *source_keep;
    int64_t *length, *source_length; /* of each row */
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

/* -- trainer.c: evaluation. Between begin and end history and dropout are off; end also puts the
 * random numbers back to where they were. */
typedef struct eg__evaluation {
    bool training, nograd; /* as they were */
    uint64_t draws;
} eg__evaluation;
eg__evaluation eg__evaluation_begin(eg_ctx *);
void eg__evaluation_end(eg_ctx *, eg__evaluation);

/* -- trainer.c, checkpoint.c: what rank 0 says to the others at a step's border ---------------- */
enum { EG__TOLD_GO, EG__TOLD_STOP, EG__TOLD_SAVE };
int eg__trainer_tell(eg_trainer *, char what); /* what rank 0 said; −1 after an error */
/* The other ranks' part of a save, and rank 0's with a path; all have rank 0's error. */
int eg__trainer_collect(eg_trainer *, const char *path);

/* -- batch.c ---------------------------------------------------------------------------------- */
eg__batch eg__batch_rows(const eg__batch *, int64_t from, int64_t to);
bool eg__batch_tests(eg_trainer *);     /* chooses the test set; false after an error */
eg__batch eg__batch_next(eg_trainer *); /* rows 0: an error */
eg__batch eg__batch_test(eg_trainer *, int64_t first, int64_t rows);
int64_t eg__batch_counted(const eg__batch *); /* targets that count */
eg_score eg__batch_score(const eg_trainer *, const eg__batch *, eg_tensor *logits);
/* Σ of −ln p over the targets that count, in cx */
eg_tensor *eg__batch_loss(eg_ctx *, const eg__batch *, eg_tensor *logits, double smoothing);
#endif
