/* corpus.c: one text to continue: windows of it are the examples, its last tenth is held out. */
#include "data.h"
#include <stdio.h>
#include <string.h>

enum { HELD_OUT = 10 }; /* one part in ten, at the end */

/* Makes tokens of the bytes; symbols are added to the vocabulary as they come. NULL after an error:
 * the text is too short, or there is no memory. */
static eg_data *corpus_tokens(eg_data *d, const char *bytes, size_t size)
{
    const char *s = bytes, *end = bytes + size, *symbol;
    d->free_text = true;
    d->tokens = eg_owner_alloc(d->owner, (size + 1) * sizeof *d->tokens);
    d->sum = eg__hash(eg__hash_start, bytes, size);
    for (int n; d->tokens && (n = eg__data_next(d, &s, end, &symbol)) != 0; d->count++)
        if ((d->tokens[d->count] = eg__data_token(d, symbol, (size_t)n)) < 0) return NULL;
    d->held = d->count - d->count / HELD_OUT;
    if (!d->tokens) return NULL;
    if (d->count < 2 * HELD_OUT) {
        eg_fail_as(
            d->cx, EG_ERROR_FILE,
            "%s: a text of %lld characters; %d are needed, so that the last tenth can be held "
            "out for tests",
            d->name, (long long)d->count, 2 * HELD_OUT);
        return NULL;
    }
    return d;
}

eg_data *eg_data_corpus_of(eg_ctx *cx, const void *bytes, size_t count, const char *name)
{
    eg_data *d = eg__data_open(cx, name);
    if (d && !bytes) eg_fail_as(cx, EG_ERROR_MISUSE, "data: the text of %s is NULL", name);
    return d && bytes ? corpus_tokens(d, bytes, count) : NULL;
}

eg_data *eg_data_corpus(eg_ctx *cx, const char *path)
{
    eg_data *d = eg__data_open(cx, path);
    size_t count;
    char *bytes = d ? eg__data_file(d, path, &count) : NULL;
    return bytes ? corpus_tokens(d, bytes, count) : NULL;
}

eg_data *eg__corpus_closed(eg_ctx *cx, const char *name, const char *symbols, uint64_t sum,
                           int64_t count)
{
    eg_data *d = eg__data_open(cx, name);
    if (d && !eg__data_symbols_read(d, symbols)) {
        eg_fail_as(cx, EG_ERROR_FILE, "%s: its vocabulary cannot be read", name);
        return NULL;
    }
    if (d) d->free_text = true, d->sum = sum, d->count = count, d->held = count - count / HELD_OUT;
    return d;
}

/* Any place of the training part at which a window and its last target fit. */
int64_t eg__corpus_place(const eg_data *d, uint64_t seed, uint64_t number, int64_t length)
{
    uint64_t places = (uint64_t)(d->held - length);
    return (int64_t)(eg__train_mix(eg__train_mix(seed) + number) % places);
}

int64_t eg__corpus_window(const eg_data *d, int64_t from, int64_t length, int32_t *tokens,
                          int32_t *target)
{
    int64_t n = length < d->count - 1 - from ? length : d->count - 1 - from;
    memcpy(tokens, d->tokens + from, (size_t)n * sizeof *tokens);
    memcpy(target, d->tokens + from + 1, (size_t)n * sizeof *target);
    return n;
}
