/* vocabulary.c: symbols and their tokens. A symbol is a character of UTF-8, a word, or, in a text
 * to continue, a byte that is not UTF-8. */
#include "data.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- text ------------------------------------------------------------------------------------- */
int eg__data_next(const eg_data *d, const char **s, const char *end, const char **symbol)
{
    while (d->words && *s < end && **s == ' ') (*s)++;
    *symbol = *s;
    while (*s < end && !(d->words && **s == ' ')) {
        int n = eg_utf8(*s, (size_t)(end - *s), NULL);
        if (!n && !d->free_text) return -1;
        *s += n ? n : 1;
        if (!d->words) break;
    }
    return (int)(*s - *symbol);
}

/* The size of a regular file is known; a pipe is read into a buffer that doubles; a device may have
 * no end. */
char *eg__data_file(eg_data *d, const char *path, size_t *count)
{
    struct stat about;
    FILE *f = fopen(path, "rbe");
    const bool known = f && !fstat(fileno(f), &about);
    if (!known || S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode)) {
        eg_fail_as(d->cx, EG_ERROR_FILE, "%s: %s", path, known ? "is a device" : strerror(errno));
        if (f) fclose(f);
        return NULL;
    }
    size_t size = S_ISREG(about.st_mode) ? (size_t)about.st_size + 2 : 65536, used = 0, got;
    char *text = eg_owner_alloc(d->owner, size);
    errno = 0;
    while (text && (got = fread(text + used, 1, size - used - 1, f)) > 0) {
        used += got;
        if (used == size - 1) {
            char *more = eg_owner_alloc(d->owner, 2 * size);
            if (more) memcpy(more, text, used);
            text = more;
            size *= 2;
        }
    }
    bool bad = text && ferror(f);
    if (bad) eg_fail_as(d->cx, EG_ERROR_FILE, "%s: %s", path, strerror(errno));
    fclose(f);
    *count = used;
    return bad ? NULL : text;
}

/* -- vocabulary ------------------------------------------------------------------------------- */
/* Returns the slot of the symbol's token in the hash table, or the free slot for it. */
static int32_t *vocabulary_slot(const eg_data *d, const char *s, size_t n)
{
    size_t at = (size_t)eg__train_mix(eg_hash(EG_HASH_START, s, n)) % (size_t)d->slots;
    for (;; at = (at + 1) % (size_t)d->slots) {
        int32_t t = d->table[at];
        if (!t || (d->symbol[t].n == n && !memcmp(d->symbol[t].s, s, n))) return &d->table[at];
    }
}

/* Doubles the memory for symbols and the hash table. False without memory. */
static bool vocabulary_grow(eg_data *d)
{
    int capacity = d->capacity ? 2 * d->capacity : 64;
    eg__symbol *symbol = eg_owner_alloc(d->owner, (size_t)capacity * sizeof *symbol);
    int32_t *table = eg_owner_alloc(d->owner, (size_t)capacity * 2 * sizeof *table);
    if (!symbol || !table) return false;
    if (d->symbols) memcpy(symbol, d->symbol, (size_t)d->symbols * sizeof *symbol);
    d->symbol = symbol, d->table = table, d->capacity = capacity, d->slots = 2 * capacity;
    for (int32_t t = EG_FIRST; t < d->symbols; t++)
        *vocabulary_slot(d, symbol[t].s, symbol[t].n) = t;
    return true;
}

/* Returns zeroed memory for a symbol's text, cut from larger blocks: an owner gives at least 64
 * bytes, and most symbols are short. */
static char *symbol_text(eg_data *d, size_t size)
{
    enum { TEXTS = 4096 };
    if (size > d->texts_left) {
        size_t more = size > TEXTS ? size : TEXTS;
        d->texts = eg_owner_alloc(d->owner, more);
        d->texts_left = d->texts ? more : 0;
    }
    if (size > d->texts_left) return NULL;
    char *text = d->texts;
    d->texts += size, d->texts_left -= size;
    return text;
}

int32_t eg__data_token(eg_data *d, const char *s, size_t n)
{
    if (d->symbols == d->capacity && !vocabulary_grow(d)) return -1;
    int32_t *at = vocabulary_slot(d, s, n);
    if (!*at) {
        char *copy = symbol_text(d, n + 1);
        if (!copy) return -1;
        memcpy(copy, s, n);
        d->symbol[d->symbols] = (eg__symbol){ copy, n };
        *at = d->symbols++;
    }
    return *at;
}

eg_data *eg__data_made(eg_data *d, bool good)
{
    if (!good) eg_name_memory_error(d->cx, "data");
    return good ? d : NULL;
}
eg_data *eg__data_open(eg_ctx *cx, const char *name)
{
    const bool can = cx && !eg_error(cx) && !eg_refuse_capture(cx, "data");
    eg_owner *owner = can ? eg_owner_open(cx) : NULL;
    eg_data *d = owner ? eg_owner_alloc(owner, sizeof *d) : NULL;
    if (d && !name) eg_fail_as(cx, EG_ERROR_MISUSE, "data: the name is NULL");
    char *copy = d && name ? eg_owner_alloc(owner, strlen(name) + 1) : NULL;
    if (!copy) return can ? eg_name_memory_error(cx, "data"), NULL : NULL;
    strcpy(copy, name);
    *d = (eg_data){ .cx = cx, .owner = owner, .name = copy };
    if (!vocabulary_grow(d)) return eg__data_made(d, false);
    static const char *const marks[] = { [EG_PAD] = "·", [EG_SEP] = "|", [EG_STOP] = "■" };
    for (; d->symbols < EG_FIRST; d->symbols++)
        d->symbol[d->symbols] = (eg__symbol){ marks[d->symbols], strlen(marks[d->symbols]) };
    return d;
}

/* -- the vocabulary as text ------------------------------------------------------------------- */
/* True if byte k may be written unchanged in a line of UTF-8. */
static bool is_plain(const eg__symbol *one, size_t k)
{
    unsigned char c = (unsigned char)one->s[k];
    return c >= 0x20 && c != '\\' && c != 0x7f && (one->n > 1 || c < 0x80);
}

char *eg__data_symbols_text(const eg_data *d, eg_owner *owner)
{
    size_t size = 1;
    for (int k = EG_FIRST; k < d->symbols; k++) size += 4 * d->symbol[k].n + 1;
    char *text = eg_owner_alloc(owner, size), *at = text;
    for (int k = EG_FIRST; text && k < d->symbols; k++) {
        for (size_t b = 0; b < d->symbol[k].n; b++)
            at += sprintf(at, is_plain(&d->symbol[k], b) ? "%c" : "\\x%02x",
                          (unsigned char)d->symbol[k].s[b]);
        *at++ = '\n';
    }
    return text;
}

bool eg__data_symbols_read(eg_data *d, const char *text)
{
    char *symbol = eg_owner_alloc(d->owner, strlen(text) + 1);
    for (const char *s = text; symbol && *s; s++) {
        size_t n = 0;
        for (; *s && *s != '\n'; s++) {
            char hex[3] = "", *end = hex;
            if (*s == '\\' && s[1] == 'x') strncpy(hex, s + 2, 2);
            symbol[n++] = *hex ? (char)strtol(hex, &end, 16) : *s;
            if (*hex && end != hex + 2) return false;
            s += *hex ? 3 : 0;
        }
        int before = d->symbols;
        if (!*s || !n || eg__data_token(d, symbol, n) != before) return false;
    }
    return symbol != NULL;
}

/* -- properties -------------------------------------------------------------------------------- */
/* Encodes with the symbols that are known; none is added. */
int eg_data_encode(const eg_data *d, const char *text, int capacity, int32_t *tokens)
{
    if (d && (!text || !tokens))
        eg_fail_as(d->cx, EG_ERROR_MISUSE, "%s: the %s is NULL", d->name,
                   text ? "array for the tokens" : "text to read");
    if (!d || !text || !tokens) return -1;
    const char *s = text, *end = s + strlen(s), *symbol;
    int n, count = 0;
    while ((n = eg__data_next(d, &s, end, &symbol)) != 0) {
        int32_t t = n < 0 ? 0 : *vocabulary_slot(d, symbol, (size_t)n);
        if (n < 0)
            eg_fail_as(d->cx, EG_ERROR_MISUSE, "%s: the input is not UTF-8", d->name);
        else if (!t)
            eg_fail_as(d->cx, EG_ERROR_MISUSE,
                       "%s: the symbol \"%.*s\" is not in the vocabulary of %d", d->name, n, symbol,
                       d->symbols - EG_FIRST);
        else if (count >= capacity)
            eg_fail_as(d->cx, EG_ERROR_MISUSE, "%s: the input has more than %d symbol%s", d->name,
                       capacity, capacity == 1 ? "" : "s");
        else {
            tokens[count++] = t;
            continue;
        }
        return -1;
    }
    return count;
}

size_t eg_data_decode(const eg_data *d, int count, const int32_t *tokens, char *out, size_t size)
{
    size_t at = 0;
    if (!out) size = 0;
    for (int k = 0; d && tokens && k < count; k++) {
        static const eg__symbol blank = { " ", 1 }, unknown = { "?", 1 };
        const eg__symbol *parts[] = { &blank, tokens[k] >= 0 && tokens[k] < d->symbols
                                                  ? &d->symbol[tokens[k]]
                                                  : &unknown };
        for (int p = d->words && k ? 0 : 1; p < 2; at += parts[p++]->n)
            if (at < size)
                memcpy(out + at, parts[p]->s, parts[p]->n < size - at ? parts[p]->n : size - at);
    }
    if (size) out[at < size ? at : size - 1] = 0;
    return at;
}
