/* data.h: what the files of lib/train know of each other beyond the public headers */
#ifndef EG_TRAIN_DATA_H
#define EG_TRAIN_DATA_H
#include <eingrad/train.h>

/* tokens[at …]: input, then output */
typedef struct eg__pair {
    int64_t at;
    int inputs, outputs;
} eg__pair;
/* ended by a zero byte, which is not counted */
typedef struct eg__symbol {
    const char *s;
    size_t n;
} eg__symbol;

struct eg_data {
    eg_ctx *cx;
    eg_owner *owner;
    const eg_task *task;     /* NULL: pairs or a text */
    const char *name, *text; /* text: of pairs */
    bool words;              /* symbols are blank-separated words */
    bool free_text;          /* tokens are one text; symbols may be single bytes */
    int symbols, room;       /* tokens, PAD SEP STOP included */
    eg__symbol *symbol;
    char *texts;
    size_t texts_left; /* where the next symbol's text goes */
    int32_t *table;
    int slots; /* hash table of tokens by text; 0: empty */
    int64_t count;
    eg__pair *pairs;
    int32_t *tokens; /* pairs, or tokens of a text */
    int longest_input, longest_output;
    /* pairs of which one in ten would be none or all: the hash that is held out */
    bool few;
    uint64_t smallest;
    /* of a text: where the held-out part begins; hash of all bytes */
    int64_t held;
    uint64_t sum;
};

uint64_t eg__train_mix(uint64_t); /* a hash of 64 bits */
eg_ctx *eg__data_context(const eg_data *);
uint64_t eg__data_hash(const eg_data *, const eg_example *); /* of the input's text */
/* number of the first pair of two lengths, −1: none */
int64_t eg__data_uneven(const eg_data *);

/* vocabulary.c */
extern const uint64_t eg__hash_start;
uint64_t eg__hash(uint64_t h, const char *s, size_t n); /* FNV-1a */
eg_data *eg__data_open(eg_ctx *, const char *name);     /* with PAD, SEP, STOP */
/* adds it if it is new; −1: out of memory */
int32_t eg__data_token(eg_data *, const char *s, size_t n);
/* the next symbol of [*s, end): its length, *s behind it; 0 at the end, −1 if malformed */
int eg__data_next(const eg_data *, const char **s, const char *end, const char **symbol);
/* a file whole, a zero byte behind it; NULL after an error */
char *eg__data_file(eg_data *, const char *path, size_t *count);
/* the vocabulary, a symbol a line: \n \\ \xFF for what a line cannot hold */
char *eg__data_symbols_text(const eg_data *, eg_owner *);
/* the same backwards, into an open vocabulary */
bool eg__data_symbols_read(eg_data *, const char *text);

/* corpus.c: `length` tokens of a text from a place, and those that follow each; returns how many
 * there are before its end */
/* without its text: a vocabulary that can write */
eg_data *eg__corpus_closed(eg_ctx *, const char *name, const char *symbols, uint64_t sum,
                           int64_t count);
int64_t eg__corpus_window(const eg_data *, int64_t from, int64_t length, int32_t *tokens,
                          int32_t *target);
/* of a window in the training part */
int64_t eg__corpus_place(const eg_data *, uint64_t seed, uint64_t number, int64_t length);
#endif
