/* corpus.c: a text that a model learns to continue: its windows are the examples, and its last
 * tenth is held out. */
#include "data.h"
#include <eingrad/io.h>
#include <stdio.h>
#include <string.h>

enum { HELD_OUT = 10 }; /* the last tenth */
enum { TOKENS_MOST = 1 << 20 };

/* Holds out the last tenth. Returns d; NULL, after an error, if the text is too short for that. */
static eg_data *corpus_cut(eg_data *d)
{
    d->held_from = d->count - d->count / HELD_OUT;
    if (d->count >= 2 * HELD_OUT) return d;
    eg_fail_as(d->cx, EG_ERROR_FILE,
               "%s: a text of %lld %s%s; %d are needed, so that the last tenth can be held "
               "out for tests",
               d->name, (long long)d->count, eg_data_unit(d), d->count == 1 ? "" : "s",
               2 * HELD_OUT);
    return NULL;
}

/* Converts the bytes to tokens; each new symbol is added to the vocabulary. NULL after an error:
 * the text is too short, or there is no memory. */
static eg_data *corpus_tokens(eg_data *d, const char *bytes, size_t size)
{
    const char *s = bytes, *end = bytes + size, *symbol;
    d->free_text = true;
    d->tokens = eg_owner_alloc(d->owner, (size + 1) * sizeof *d->tokens);
    d->sum = eg_hash(EG_HASH_START, bytes, size);
    for (int n; d->tokens && (n = eg__data_next(d, &s, end, &symbol)) != 0; d->count++)
        if ((d->tokens[d->count] = eg__data_token(d, symbol, (size_t)n)) < 0) return NULL;
    return d->tokens ? corpus_cut(d) : NULL;
}

/* Returns the integers of a file as i64, in the open scope, and sets *most to the largest; NULL
 * after an error. */
static const int64_t *corpus_numbers(eg_ctx *cx, const char *path, int64_t *count, int64_t *most)
{
    eg_tensor *x = eg_npy_load(cx, path);
    if (!eg_ok(x)) return NULL;
    const eg_dtype type = eg_type(x);
    if (eg_rank(x) != 1 || (type != EG_I32 && type != EG_I64))
        return eg_fail_as(cx, EG_ERROR_FILE,
                          "%s: tokens are integers along one axis, not %s with %d ax%s", path,
                          eg_type_name(type), eg_rank(x), eg_rank(x) == 1 ? "is" : "es"),
               NULL;
    const int64_t *number = eg_i64(type == EG_I64 ? eg_contiguous(x) : eg_cast(x, EG_I64));
    *count = eg_size(x), *most = -1;
    for (int64_t k = 0; number && k < *count; k++) {
        if (number[k] < 0 || number[k] >= TOKENS_MOST)
            return eg_fail_as(cx, EG_ERROR_FILE, "%s: token %lld is %lld, not within 0 and %d",
                              path, (long long)k, (long long)number[k], TOKENS_MOST - 1),
                   NULL;
        *most = number[k] > *most ? number[k] : *most;
    }
    return number;
}

/* Makes the vocabulary of a file of integers: the words "0" … up to the largest token. NULL after
 * an error. */
static eg_data *corpus_of_numbers(eg_data *d, const int64_t *number, int64_t count, int64_t most)
{
    char word[16];
    d->free_text = d->words = true;
    d->tokens = eg_owner_alloc(d->owner, (size_t)(count + 1) * sizeof *d->tokens);
    for (int64_t k = 0; d->tokens && k <= most; k++) {
        const int n = snprintf(word, sizeof word, "%lld", (long long)k);
        if (eg__data_token(d, word, (size_t)n) < 0) return NULL;
    }
    for (int64_t k = 0; d->tokens && k < count; k++) d->tokens[k] = (int32_t)(number[k] + EG_FIRST);
    d->count = count;
    if (d->tokens) d->sum = eg_hash(EG_HASH_START, d->tokens, (size_t)count * sizeof *d->tokens);
    return d->tokens ? corpus_cut(d) : NULL;
}

eg_data *eg_data_tokens(eg_ctx *cx, const char *path)
{
    eg_data *d = eg__data_open(cx, path);
    int64_t count = 0, most = 0;
    if (!d) return NULL;
    eg_mark m = eg_push(cx);
    const int64_t *number = corpus_numbers(cx, path, &count, &most);
    const bool good = number && corpus_of_numbers(d, number, count, most);
    eg_pop(cx, m);
    return eg__data_made(d, good);
}

const char *eg_data_unit(const eg_data *d)
{
    return !d || !d->free_text ? "symbol" : d->words ? "token" : "character";
}

eg_data *eg_data_corpus_of(eg_ctx *cx, const void *bytes, size_t count, const char *name)
{
    eg_data *d = eg__data_open(cx, name);
    if (d && !bytes) eg_fail_as(cx, EG_ERROR_MISUSE, "data: the text of %s is NULL", name);
    return d ? eg__data_made(d, bytes && corpus_tokens(d, bytes, count)) : NULL;
}

eg_data *eg_data_corpus(eg_ctx *cx, const char *path)
{
    eg_data *d = eg__data_open(cx, path);
    size_t count;
    char *bytes = d ? eg__data_file(d, path, &count) : NULL;
    return d ? eg__data_made(d, bytes && corpus_tokens(d, bytes, count)) : NULL;
}

eg_data *eg__corpus_closed(eg_ctx *cx, const char *name, const char *symbols, bool words,
                           uint64_t sum, int64_t count)
{
    eg_data *d = eg__data_open(cx, name);
    if (d) d->words = words;
    if (d && !eg__data_symbols_read(d, symbols)) {
        eg_fail_as(cx, EG_ERROR_FILE, "%s: its vocabulary cannot be read", name);
        return NULL;
    }
    if (d)
        d->free_text = true, d->sum = sum, d->count = count,
        d->held_from = count - count / HELD_OUT;
    return d;
}

/* Returns a random position in the training part at which a window and its last target fit. */
int64_t eg__corpus_position(const eg_data *d, uint64_t seed, uint64_t number, int64_t length)
{
    uint64_t positions = (uint64_t)(d->held_from - length);
    return (int64_t)(eg__train_mix(eg__train_mix(seed) + number) % positions);
}

int64_t eg__corpus_window(const eg_data *d, int64_t from, int64_t length, int32_t *tokens,
                          int32_t *target)
{
    int64_t n = length < d->count - 1 - from ? length : d->count - 1 - from;
    memcpy(tokens, d->tokens + from, (size_t)n * sizeof *tokens);
    memcpy(target, d->tokens + from + 1, (size_t)n * sizeof *target);
    return n;
}
