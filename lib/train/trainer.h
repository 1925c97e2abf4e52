/* trainer.h: a model, its data and its optimiser */
#ifndef EG_TRAIN_TRAINER_H
#define EG_TRAIN_TRAINER_H
#include "data.h"
#include <eingrad/model.h>

enum { SIZE_MOST = 1 << 20 };   /* of layers, widths and batch: products of two fit, and what is saved can be loaded  */

struct eg_trainer {
    eg_ctx   *cx;
    eg_owner *owner;
    eg_data  *data;
    eg_params *params;
    eg_transformer *net;
    eg_opt   *opt;
    eg_trainer_args o;          /* with the defaults filled in                                                    */
    bool      decoder, separator;
    int64_t   longest, vocabulary;
    int64_t   step; uint64_t cursor; /* steps done; number of the next training example                            */
    int64_t   tests; uint64_t *test; /* numbers of the test examples                                               */
    int32_t  *tokens, *target; bool *keep; int64_t *length;  /* one batch                                          */
    double    exact, batch_exact, seconds;
    char     *answer; size_t answer_room;       /* of eg_trainer_predict                                           */
    eg_tensor **weights;        /* one per layer: of eg_trainer_attend                                            */
    const char **label;         /* of eg_trainer_attend                                                            */
};

typedef struct eg__batch {      /* rows × length tokens; target EG_PAD: does not count                              */
    int64_t rows, length;
    bool padded;                /* an encoder's rows differ in length                                              */
} eg__batch;

eg_trainer *eg__trainer_make(const eg_trainer_args *, int64_t vocabulary, int64_t longest);
eg__batch eg__trainer_fill(eg_trainer *, int64_t first, int64_t rows, const eg_example *(*next)(eg_trainer *, int64_t k, eg_example *)); /* rows 0: an error */
const eg_example *eg__trainer_test(eg_trainer *, int64_t k, eg_example *);
/* logits (b l v) of the tokens; target gets the batch's targets where it is not NULL */
eg_tensor *eg__trainer_logits(eg_trainer *, const eg_transformer *, eg__batch, eg_tensor **target, eg_tensor **weights);
int32_t eg__trainer_best(const eg_trainer *, eg_tensor *logits, int64_t place);    /* the likeliest symbol (or STOP) at this place of b l */
#endif
