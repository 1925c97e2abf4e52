/* batch.h: batches, as the files of lib/train see them */
#ifndef EG_TRAIN_BATCH_H
#define EG_TRAIN_BATCH_H
#include "data.h"
#include <eingrad/network.h>
#include <eingrad/ranks.h>

/* The largest layers, widths and batch: products of two fit, and what is saved can be loaded. */
enum { SIZE_MOST = 1 << 20 };
static const uint64_t EXAMPLE_MOST = (uint64_t)1 << 62; /* the largest number of an example */

enum { LEAVES_MOST = 4096 }; /* of eg_grad_over */
/* The arrays of some rows: of a batch, or of the test set. */
typedef struct eg__rows {
    int64_t rows; /* for which memory is allocated */
    int32_t *tokens, *target, *source;
    bool *keep, *source_keep;
    int64_t *lengths, *source_lengths; /* of each row */
} eg__rows;

struct eg_batches {
    eg_ctx *cx;
    eg_owner *owner;
    eg_data *data;
    int64_t at_once; /* rows of a training batch */
    uint64_t seed;
    bool encoder, beside;            /* eg_batches_args.encoder, .source */
    bool separator;                  /* SEP between input and answer */
    int32_t least;                   /* tokens from this one on can be answers */
    int64_t longest, source_longest; /* positions */
    int64_t vocabulary;              /* tokens */
    uint64_t cursor;                 /* number of the next training example */
    int64_t next;                    /* eg_batches_at: number of the batch at the cursor */
    eg_batch shown;                  /* the result of eg_batches_at and eg_batches_test */
    /* the test set */
    int64_t tests;
    uint64_t *test; /* numbers of the test examples; for a text, positions */
    eg__rows one;   /* one batch */
    /* all test rows, once they were evaluated: batches of `whole_rows`, the last one of the rest */
    eg__rows all;
    int64_t test_batch_rows; /* 0: not yet */
    eg_batch *test_batches;
    eg_score *score; /* for evaluate.c */
    int64_t scores;  /* for which there is memory */
};
/* All options are given and fit the data. Returns NULL without memory. */
eg_batches *eg__batches_make(eg_owner *, const eg_batches_args *);
bool eg__batches_fit(const eg_data *, const char *who, const char *name, bool encoder, bool source,
                     uint64_t seed);
int64_t eg__batches_context(const eg_data *, int64_t given); /* the default filled in */
bool eg__batches_tests(eg_batches *);    /* chooses the test set; false after an error */
eg_batch eg__batches_next(eg_batches *); /* at the cursor, which moves on; rows 0: an error */
eg_batch eg__batches_tested(eg_batches *, int64_t first, int64_t rows);
/* Sets t->test_batches to all test rows in batches of so many; false after an error. */
bool eg__batches_fill_tests(eg_batches *, int64_t rows);
eg_score eg__batch_right(const eg_batches *, const eg_batch *, eg_tensor *logits);
bool eg__batch_logits_fit(eg_ctx *, const eg_batches *, const char *who, const eg_batch *,
                          eg_tensor *logits);
void eg__score_add(eg_score *to, const eg_score *one);

/* -- evaluate.c: the test set, block by block on all threads ----------------------------------- */
typedef struct eg__evaluating {
    eg_batches *batches;
    eg_logits *logits;
    const void *network; /* handed to logits */
    int64_t batch;       /* rows that have one padded length; rounded to whole blocks */
    int64_t block;       /* rows that a thread computes at a time */
    bool serial;         /* logits is called by one thread */
    eg_ranks *ranks;     /* they divide the blocks; NULL: alone */
    const char *who;     /* for messages */
} eg__evaluating;
/* Sets *out to the score of the whole test set, its loss to the mean over tokens; the same bits for
 * any number of threads and ranks. Returns 0; −1 after an error, on every rank. */
int eg__evaluate(const eg__evaluating *, eg_score *out);

/* -- evaluation: between begin and end neither a history is recorded nor dropout applied; end also
 * resets the context's random draws */
typedef struct eg__evaluation {
    bool training, nograd; /* as they were */
    uint64_t draws;
} eg__evaluation;
eg__evaluation eg__evaluation_begin(eg_ctx *);
void eg__evaluation_end(eg_ctx *, eg__evaluation);
#endif
