/* data.h: data as the files of lib/train see them */
#ifndef EG_TRAIN_DATA_H
#define EG_TRAIN_DATA_H
#include <eingrad/train.h>

/* A pair: in eg_data.tokens from `at` on its input, then its output. */
typedef struct eg__pair {
    int64_t at;
    int inputs, outputs; /* tokens */
} eg__pair;
typedef struct eg__symbol {
    const char *s; /* ended by a zero byte */
    size_t n;      /* bytes without it */
} eg__symbol;

struct eg_data {
    eg_ctx *cx;
    eg_owner *owner;
    const eg_task *task; /* NULL: pairs or a text */
    const char *name;
    const char *text; /* the text of pairs; else NULL */
    bool free_text;   /* one text to continue, symbols may be bytes; else pairs or a task */
    bool words;       /* symbols are words separated by blanks; else characters */
    /* vocabulary */
    int symbols, room; /* tokens, with PAD, SEP and STOP; how many there is memory for */
    eg__symbol *symbol;
    int32_t *table; /* hash table of tokens by their text; 0: empty slot */
    int slots;      /* of the table */
    char *texts;    /* where the next symbol's text goes */
    size_t texts_left;
    /* examples */
    int64_t count;   /* of pairs, or of the tokens of a text */
    eg__pair *pairs; /* NULL for a task and for a text */
    int32_t *tokens; /* of all pairs, or of a text; NULL if the text was left out */
    int longest_input, longest_output;
    /* what is held out */
    bool few;          /* there are so few pairs that the hash would hold out none or all: … */
    uint64_t smallest; /* … then the inputs with this hash are held out */
    int64_t held;      /* of a text: the first token of the held-out part */
    uint64_t sum;      /* of a text: hash of all its bytes */
};

uint64_t eg__train_mix(uint64_t);                            /* a hash of 64 bits (task.c) */
uint64_t eg__data_hash(const eg_data *, const eg_example *); /* a hash of the input's symbols */
/* Returns the number of the first pair whose two sides differ in length; −1 if there is none. */
int64_t eg__data_uneven(const eg_data *);

/* vocabulary.c */
eg_data *eg__data_open(eg_ctx *, const char *name); /* with PAD, SEP, STOP */
/* Returns the token of a symbol, which is added if it is new; −1 without memory. */
int32_t eg__data_token(eg_data *, const char *s, size_t n);
/* Sets *symbol to the next symbol of [*s, end) and moves *s past it. Returns its length; 0 at the
 * end, −1 if the text is not UTF-8. */
int eg__data_next(const eg_data *, const char **s, const char *end, const char **symbol);
/* Returns the bytes of a file, followed by a zero byte; NULL after an error. */
char *eg__data_file(eg_data *, const char *path, size_t *count);
/* Returns the vocabulary as text, one symbol per line; bytes that cannot stand in a line of UTF-8
 * are written as \xFF. */
char *eg__data_symbols_text(const eg_data *, eg_owner *);
/* Reads such a text into a vocabulary without symbols; false if it is malformed. */
bool eg__data_symbols_read(eg_data *, const char *text);

/* corpus.c */
/* Returns a text of which only the vocabulary is known, which is enough to generate. */
eg_data *eg__corpus_closed(eg_ctx *, const char *name, const char *symbols, bool words,
                           uint64_t sum, int64_t count);
/* Copies `length` tokens of a text from a place on, and for each the token after it; fewer at the
 * end of the text. Returns how many. */
int64_t eg__corpus_window(const eg_data *, int64_t from, int64_t length, int32_t *tokens,
                          int32_t *target);
/* Returns the place of window `number` in the training part. */
int64_t eg__corpus_position(const eg_data *, uint64_t seed, uint64_t number, int64_t length);
#endif
