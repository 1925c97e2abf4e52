/* batch.h: batches, for the files of lib/train. */
#ifndef EG_TRAIN_BATCH_H
#define EG_TRAIN_BATCH_H
#include "data.h"
#include <eingrad/network.h>
#include <eingrad/ranks.h>

/* The largest number of layers, of widths and of rows: products of two fit 64 bits, and what is
 * saved can be loaded. */
enum { SIZE_MOST = 1 << 20 };
static const uint64_t EXAMPLE_MOST = (uint64_t)1 << 62; /* largest number of an example */

/* The arrays of some rows: those of a batch, or of the test set. */
typedef struct eg__rows {
    int64_t rows; /* number of rows for which memory is allocated */
    int32_t *tokens, *target, *source;
    bool *keep, *source_keep;
    int64_t *lengths, *source_lengths; /* by row */
} eg__rows;

struct eg_batches {
    eg_ctx *cx;
    eg_owner *owner;
    eg_data *data;
    int64_t at_once; /* rows of a training batch */
    uint64_t seed;
    bool encoder, has_source;        /* eg_batches_args.encoder, .source */
    bool separator;                  /* SEP between input and answer */
    int32_t least;                   /* tokens with this number or a larger one can be answers */
    int64_t longest, source_longest; /* in positions */
    int64_t vocabulary;              /* number of tokens */
    uint64_t cursor;                 /* number of the next training example */
    int64_t next;                    /* number of the batch at the cursor, for eg_batches_at */
    eg_batch shown;                  /* the result of eg_batches_at and eg_batches_test */
    /* the test set */
    int64_t tests;
    uint64_t *test; /* numbers of the test examples; for a text, positions */
    eg__rows one;   /* one batch */
    /* All test rows, once they were evaluated: batches of `test_batch_rows`, the last one
     * with the rest. */
    eg__rows all;
    int64_t test_batch_rows; /* 0: not filled yet */
    eg_batch *test_batches;
    eg_score *score; /* used by evaluate.c */
    int64_t scores;  /* number of scores that have memory */
};
/* All options must be given and fit the data. Returns NULL without memory. */
eg_batches *eg__batches_make(eg_owner *, const eg_batches_args *);
bool eg__batches_fit(const eg_data *, const char *who, const char *name, bool encoder, bool source,
                     uint64_t seed);
int64_t eg__batches_context(const eg_data *, int64_t given); /* fills in the default */
bool eg__batches_tests(eg_batches *); /* chooses the test set; false after an error */
/* returns the batch at the cursor and advances it; `rows` is 0 after an error */
eg_batch eg__batches_next(eg_batches *);
eg_batch eg__batches_tested(eg_batches *, int64_t first, int64_t rows);
/* Sets t->test_batches to all test rows, in batches of that number of rows; false after an
 * error. */
bool eg__batches_fill_tests(eg_batches *, int64_t rows);
eg_score eg__batch_right(const eg_batches *, const eg_batch *, eg_tensor *logits);
bool eg__batch_logits_fit(eg_ctx *, const eg_batches *, const char *who, const eg_batch *,
                          eg_tensor *logits);
void eg__score_add(eg_score *to, const eg_score *one);

/* -- evaluate.c: the test set, block by block on all threads ----------------------------------- */
typedef struct eg__evaluating {
    eg_batches *batches;
    eg_logits *logits;
    const void *network; /* passed to logits */
    int64_t batch;   /* number of rows that are padded to one length; rounded to complete blocks */
    int64_t block;   /* number of rows that a thread computes at a time */
    bool serial;     /* logits is called by one thread only */
    eg_ranks *ranks; /* ranks among which the blocks are divided; NULL: none */
    const char *who; /* begins error messages */
} eg__evaluating;
/* Sets *out to the score of the test set, with its loss as the mean over tokens; the bits do not
 * depend on the number of threads and ranks. Returns 0; −1 after an error, on every rank. */
int eg__evaluate(const eg__evaluating *, eg_score *out);

/* -- evaluation: between begin and end no history is recorded and no dropout applied; end also
 * resets the context's random draws -- */
typedef struct eg__evaluation {
    eg_switches was;
    uint64_t draws;
} eg__evaluation;
eg__evaluation eg__evaluation_begin(eg_ctx *);
void eg__evaluation_end(eg_ctx *, eg__evaluation);
#endif
