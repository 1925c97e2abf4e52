/* eingrad/data.h: tasks, and examples by number.
 *
 * Data live as long as the scope that they were made in; they cannot be freed alone. Results,
 * errors and defaults are as in nn.h. */
#ifndef EINGRAD_DATA_H
#define EINGRAD_DATA_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

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
    int inputs, outputs; /* how many tokens, or symbols, each side has */
    int32_t input[EG_EXAMPLE_MAX], output[EG_EXAMPLE_MAX];
} eg_example;
typedef struct eg_task {
    const char *name;                  /* "reverse" */
    const char *about;                 /* a description of one line */
    const char *symbols;               /* UTF-8 characters, each once, numbered from 0 */
    int longest_input, longest_output; /* symbols of an example: 1 … EG_EXAMPLE_MAX */
    bool decoder;                      /* default: decoder over input SEP output, else encoder */
    bool no_separator;                 /* the input ends with a question: no SEP follows */
    /* Writes an example as symbol numbers, from 0 in the order of .symbols. (eg_data_example gives
     * the same example as tokens, EG_FIRST more.) Draws by eg_rng_below alone. */
    void (*make)(eg_rng *, eg_example *);
    double lr;             /* of a trainer for this task: 0 for 1e-3 */
    int64_t warmup, steps; /* 0 for 50 and 3000 */
} eg_task;
EG_API const eg_task *eg_task_at(int k);              /* the k-th row; NULL past the end */
EG_API const eg_task *eg_task_find(const char *name); /* NULL if there is none of that name */

/* -- data: examples by number, of a task, of pairs or of a text -------------------------------- */
/* One tenth is held out for tests: for a task and for pairs, the inputs that a hash of their
 * symbols selects (at least one pair); for a text, its end. */
typedef struct eg_data eg_data;
EG_API eg_data *eg_data_task(eg_ctx *, const eg_task *); /* a row of the table or the user's own */
/* A file of pairs, lines "input TAB output"; empty lines may follow the last one. Symbols are words
 * if a blank occurs and most words of the outputs occur more than once (others could not be
 * learnt), else characters. */
EG_API eg_data *eg_data_pairs(eg_ctx *, const char *path);
/* As eg_data_pairs, from memory; name is for messages. */
EG_API eg_data *eg_data_parse(eg_ctx *, const char *text, const char *name);
/* One text of any bytes, whose examples are windows. Symbols are characters, or single bytes where
 * it is not UTF-8. eg_data_corpus_of takes it from memory; name is for messages. */
EG_API eg_data *eg_data_corpus(eg_ctx *, const char *path);
EG_API eg_data *eg_data_corpus_of(eg_ctx *, const void *bytes, size_t count, const char *name);
/* A text of tokens: a .npy file with one axis of integers in [0, 2^20). The symbol of token 17 is
 * the word "17", and a prompt consists of such words: "17 4 17". */
EG_API eg_data *eg_data_tokens(eg_ctx *, const char *path);
EG_API bool eg_data_is_text(const eg_data *); /* one text to continue; else inputs and outputs */
/* The word for a symbol: "character" for a text, "token" for eg_data_tokens, else "symbol". */
EG_API const char *eg_data_unit(const eg_data *);
EG_API const char *eg_data_name(const eg_data *);       /* name of the task, or the path */
EG_API const char *eg_data_pairs_text(const eg_data *); /* the text of pairs; else NULL */
EG_API bool eg_data_wants_decoder(const eg_data *);     /* the default model is a decoder */
EG_API int64_t eg_data_size(const eg_data *); /* number of pairs, or of symbols of a text; 0 for a
                                               * task: no limit */
/* Makes the example of that number, in tokens. Pairs come in a new order each round. −1 for a
 * text. */
EG_API int eg_data_example(const eg_data *, uint64_t seed, uint64_t number, eg_example *);
EG_API bool eg_data_held_out(const eg_data *, const eg_example *); /* for tests, not trained on */
EG_API int eg_data_symbols(const eg_data *); /* the number of tokens, PAD, SEP and STOP included */
EG_API const char *eg_data_symbol(const eg_data *, int token); /* the text of a token; NULL: none */
/* Encodes text into at most `capacity` tokens. Returns how many, or −1 after an error (a symbol
 * that the data do not have, more than `capacity`). */
EG_API int eg_data_encode(const eg_data *, const char *text, int capacity, int32_t *tokens);
/* Writes the symbols of the tokens to `out`, cut to `capacity` bytes with the zero byte at the end,
 * words with blanks between them. Returns the length of the whole, as snprintf does. */
EG_API size_t eg_data_decode(const eg_data *, int count, const int32_t *tokens, char *out,
                             size_t capacity);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
