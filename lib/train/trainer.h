/* trainer.h: a model, its data and its optimiser */
#ifndef EG_TRAIN_TRAINER_H
#define EG_TRAIN_TRAINER_H
#include "data.h"
#include <eingrad/decode.h>
#include <eingrad/model.h>

/* of layers, widths and batch: products of two fit, and what is saved can be loaded */
enum { SIZE_MOST = 1 << 20 };
/* of steps: a double holds each of them, and sums of two fit */
static const int64_t STEP_MOST = (int64_t)1 << 53;

static const uint64_t EXAMPLE_MOST = (uint64_t)1 << 62; /* of examples that are numbered */

/* A batch, or rows of one: rows × length tokens; target EG_PAD: does not count */
typedef struct eg__batch {
    int64_t rows, length, sources;
    /* source: rows × sources, seq2seq only */
    const int32_t *tokens, *target, *source;
    const bool *keep, *source_keep;
    bool padded, source_padded; /* an encoder's rows differ in length */
} eg__batch;

/* -- network.c: what is trained, a row each --------------------------------------------------- */
enum { PARTS = 3 };
typedef struct eg__network {
    const struct eg__kind *kind;
    eg_transformer *one;
    eg_seq2seq *two;
    eg_tensor *gain;
} eg__network;
/* gain's row of layer k: stride k + first, behind the encoder's */
typedef struct eg__part {
    const char *name;
    char letter;
    int stride, first;
} eg__part;
typedef struct eg__kind {
    const char *name;
    bool writes; /* one token after the other, until STOP; else one for each of the input's */
    bool apart;  /* the input is a source beside the tokens */
    bool (*make)(eg__network *, eg_params *, const eg_trainer *, double dropout);
    /* (b l v); weights: a part's layers, then the next part's */
    eg_tensor *(*logits)(const eg__network *, eg_ctx *, const eg__batch *, eg_tensor **weights);
    /* of the source; NULL: none */
    eg_tensor *(*memory)(const eg__network *, eg_ctx *, const eg__batch *);
    /* logits of the next tokens alone */
    eg_tensor *(*more)(const eg__network *, eg_ctx *, const eg__batch *, eg_tensor *memory,
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
    eg_data *data;
    eg_params *params;
    const eg__kind *kind;
    eg__network net;
    eg_opt *opt;
    eg_tensor **sum, **part; /* gradients over micro-batches */
    eg_trainer_args o;       /* with the defaults filled in */
    bool separator;          /* SEP between input and answer */
    int32_t least;           /* the smallest token that is an answer */
    int64_t longest, source_longest, vocabulary;
    uint64_t cursor; /* number of the next training example */
    int64_t tests;
    uint64_t *test; /* numbers of the test examples; of a corpus, places */
    int64_t rows;   /* that there is room for in: */
    /* one batch */
    int32_t *tokens, *target, *source;
    bool *keep, *source_keep;
    int64_t *length, *source_length;
    eg_progress now; /* of the last step */
    int64_t waited;  /* looks without a smaller held-out loss */
    const char *best_path;
    char *answer;
    size_t answer_room;    /* of eg_trainer_generate */
    eg_tensor **weights;   /* one per attention: of eg_trainer_look */
    const char **label[2]; /* of rows and columns */
    char (*attention)[24]; /* names */
    eg_tensor *gain;       /* of eg_trainer_heads_off */
    int32_t *asked;        /* tokens of a question and its answer */
};

/* What a checkpoint says of the model beside its options; its tensors must be those of the model */
typedef struct eg__restored {
    int64_t vocabulary, longest;
    const eg_safetensors *file;
    const char *path;
} eg__restored;
/* NULL: a new model */
eg_trainer *eg__trainer_make(const eg_trainer_args *, const eg__restored *);

/* -- batch.c ---------------------------------------------------------------------------------- */
eg__batch eg__batch_rows(const eg__batch *, int64_t from, int64_t to);
bool eg__batch_tests(eg_trainer *);     /* chooses them; false after an error */
eg__batch eg__batch_next(eg_trainer *); /* rows 0: an error */
eg__batch eg__batch_test(eg_trainer *, int64_t first, int64_t rows);
int64_t eg__batch_counted(const eg__batch *); /* targets that count */
eg_score eg__batch_score(const eg_trainer *, const eg__batch *, eg_tensor *logits);
eg_tensor *eg__batch_loss(const eg_trainer *, const eg__batch *, eg_tensor *logits,
                          double smoothing);
#endif
