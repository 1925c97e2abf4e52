/* data.h: data, for the files of lib/train. */
#ifndef EG_TRAIN_DATA_H
#define EG_TRAIN_DATA_H
#include <eingrad/train.h>

/* A pair: its input, then its output, in eg_data.tokens from `at` on. */
typedef struct eg__pair {
    int64_t at;
    int inputs, outputs; /* numbers of tokens */
} eg__pair;
typedef struct eg__symbol {
    const char *s; /* followed by a zero byte */
    size_t n;      /* bytes without it */
} eg__symbol;

struct eg_data {
    eg_ctx *cx;
    eg_owner *owner;
    const eg_task *task; /* NULL for pairs and for a text */
    const char *name;
    const char *text; /* the text of the file of pairs; else NULL */
    /* a text to continue, whose symbols may be single bytes; else pairs or a task */
    bool free_text;
    bool words; /* symbols are words separated by blanks; else characters */
    /* vocabulary */
    /* number of tokens, including PAD, SEP and STOP; number for which there is memory */
    int symbols, capacity;
    eg__symbol *symbol;
    int32_t *table; /* hash table of tokens by their text; 0: free slot */
    int slots;      /* number of slots of the table */
    char *texts;    /* free memory for the texts of symbols */
    size_t texts_left;
    /* examples */
    int64_t count;   /* number of pairs, or of the tokens of a text */
    eg__pair *pairs; /* NULL for a task and for a text */
    int32_t *tokens; /* those of all pairs, or of a text; NULL if the text was not loaded */
    int longest_input, longest_output;
    /* what is held out */
    bool few;          /* there are so few pairs that the hash would hold out none or all; … */
    uint64_t smallest; /* … the inputs with this hash are held out instead */
    int64_t held_from; /* of a text: number of the first token of the held-out part */
    uint64_t sum;      /* of a text: hash of all its bytes */
};

uint64_t eg__train_mix(uint64_t);                            /* a hash of 64 bits (task.c) */
uint64_t eg__data_hash(const eg_data *, const eg_example *); /* hash of the input's symbols */
/* Returns the number of the first pair whose sides differ in length; −1 if there is none. */
int64_t eg__data_uneven(const eg_data *);

/* vocabulary.c */
eg_data *eg__data_open(eg_ctx *, const char *name); /* with the tokens PAD, SEP, STOP */
eg_data *eg__data_made(eg_data *, bool good); /* the data; NULL, after an error, if not good */
/* Returns the token of a symbol, which is added if it is new; −1 without memory. */
int32_t eg__data_token(eg_data *, const char *s, size_t n);
/* Sets *symbol to the next symbol of [*s, end) and moves *s past it. Returns its length in bytes; 0
 * at the end, −1 if the text is not UTF-8. */
int eg__data_next(const eg_data *, const char **s, const char *end, const char **symbol);
/* Returns the bytes of a file, followed by a zero byte; NULL after an error. */
char *eg__data_file(eg_data *, const char *path, size_t *count);
/* Returns the vocabulary as text, one symbol per line; bytes that are not allowed in a line of
 * UTF-8 are written as \xFF. */
char *eg__data_symbols_text(const eg_data *, eg_owner *);
/* Reads such a text into a vocabulary without symbols; false if it is malformed. */
bool eg__data_symbols_read(eg_data *, const char *text);

/* corpus.c */
/* Returns a text of which only the vocabulary is known, which suffices to generate. */
eg_data *eg__corpus_closed(eg_ctx *, const char *name, const char *symbols, bool words,
                           uint64_t sum, int64_t count);
/* Copies `length` tokens of a text from a position on, and for each the token after it; fewer at
 * the end of the text. Returns their number. */
int64_t eg__corpus_window(const eg_data *, int64_t from, int64_t length, int32_t *tokens,
                          int32_t *target);
/* Returns the position of window `number` in the training part. */
int64_t eg__corpus_position(const eg_data *, uint64_t seed, uint64_t number, int64_t length);
#endif
