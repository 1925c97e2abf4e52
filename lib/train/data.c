/* data.c: examples by number, from a task or from a file of pairs, and which of them are held
 * out. */
#include "data.h"
#include <stdlib.h>
#include <string.h>

/* True if the first examples of a task are the same when they are made again; else records an
 * error: its make() reads something other than the generator of random numbers that it gets. */
static bool task_repeats(const eg_data *d)
{
    for (uint64_t number = 0; number < 4; number++) {
        eg_example e[2] = { 0 };
        for (int k = 0; k < 2; k++) d->task->make(&(eg_rng){ 1, number, 0 }, &e[k]);
        bool same = e[0].inputs == e[1].inputs && e[0].outputs == e[1].outputs;
        for (int k = 0; same && k < e[0].inputs && k < EG_EXAMPLE_MAX; k++)
            same = e[0].input[k] == e[1].input[k];
        for (int k = 0; same && k < e[0].outputs && k < EG_EXAMPLE_MAX; k++)
            same = e[0].output[k] == e[1].output[k];
        if (same) continue;
        eg_fail_as(d->cx, EG_ERROR_MISUSE,
                   "data: task %s: example %llu is another when it is made again; make() may draw "
                   "only by eg_rng_below",
                   d->name, (unsigned long long)number);
        return false;
    }
    return true;
}

/* The vocabulary consists of the task's symbols, in their order. */
eg_data *eg_data_task(eg_ctx *cx, const eg_task *task)
{
    if (!task || !task->name || !task->symbols || !task->make) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "data: the task %s",
                   !task            ? "is NULL, as eg_task_find returns it for an unknown name"
                   : !task->name    ? "has no name"
                   : !task->symbols ? "has no symbols"
                                    : "has no function make");
        return NULL;
    }
    if (task->longest_input < 1 || task->longest_output < 1 ||
        task->longest_input > EG_EXAMPLE_MAX || task->longest_output > EG_EXAMPLE_MAX) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "data: task %s has lengths %d and %d, not within 1 … %d",
                   task->name, task->longest_input, task->longest_output, EG_EXAMPLE_MAX);
        return NULL;
    }
    eg_data *d = eg__data_open(cx, task->name);
    if (!d) return NULL;
    d->task = task, d->longest_input = task->longest_input,
    d->longest_output = task->longest_output;
    const char *s = task->symbols, *end = s + strlen(s), *symbol;
    for (int n; (n = eg__data_next(d, &s, end, &symbol)) != 0;) {
        const int next = d->symbols;
        const int32_t token = n < 0 ? -1 : eg__data_token(d, symbol, (size_t)n);
        if (n < 0)
            eg_fail_as(cx, EG_ERROR_MISUSE, "data: the symbols of task %s are not UTF-8",
                       task->name);
        else if (token >= 0 && token < next)
            eg_fail_as(cx, EG_ERROR_MISUSE, "data: task %s: symbol \"%.*s\" occurs twice",
                       task->name, n, symbol);
        if (token != next) return eg__data_made(d, false);
    }
    return eg__data_made(d, task_repeats(d));
}

/* -- pairs ------------------------------------------------------------------------------------ */
/* Converts one side of a pair to tokens, from d->tokens[at] on. Returns their number; −1 after an
 * error. */
static int pair_side(eg_data *d, long long line, const char *s, const char *end, int64_t at)
{
    const char *symbol;
    int n, count = 0;
    while ((n = eg__data_next(d, &s, end, &symbol)) != 0) {
        if (n < 0)
            eg_fail_as(d->cx, EG_ERROR_FILE, "%s:%lld: not UTF-8", d->name, line);
        else if (count == EG_EXAMPLE_MAX)
            eg_fail_as(d->cx, EG_ERROR_FILE, "%s:%lld: more than %d symbols on one side", d->name,
                       line, EG_EXAMPLE_MAX);
        else if ((d->tokens[at + count] = eg__data_token(d, symbol, (size_t)n)) >= 0) {
            count++;
            continue;
        }
        return -1;
    }
    return count;
}

/* Adds a line, without its end, as the next pair; its tokens go to d->tokens[at …]. False after an
 * error. */
static bool add_line(eg_data *d, const char *s, const char *end, int64_t at)
{
    long long line = d->count + 1;
    const char *tab = memchr(s, '\t', (size_t)(end - s));
    if (!tab || memchr(tab + 1, '\t', (size_t)(end - tab - 1))) {
        eg_fail_as(d->cx, EG_ERROR_FILE,
                   "%s:%lld: a line is input TAB output, with exactly one tab", d->name, line);
        return false;
    }
    eg__pair *p = &d->pairs[d->count];
    p->at = at;
    p->inputs = pair_side(d, line, s, tab, at);
    p->outputs = p->inputs < 0 ? -1 : pair_side(d, line, tab + 1, end, at + p->inputs);
    if (p->outputs < 0) return false;
    if (!p->inputs || !p->outputs) {
        eg_fail_as(d->cx, EG_ERROR_FILE, "%s:%lld: the %s is empty", d->name, line,
                   p->inputs ? "output" : "input");
        return false;
    }
    d->longest_input = p->inputs > d->longest_input ? p->inputs : d->longest_input;
    d->longest_output = p->outputs > d->longest_output ? p->outputs : d->longest_output;
    d->count++;
    return true;
}

/* Makes sure that some pairs are held out and some are not. With few pairs the hash may hold out
 * none or all: then the inputs with the smallest hash are held out. False, after an error, if all
 * pairs have the same input. */
static bool data_hold_out_some(eg_data *d)
{
    int64_t out = 0, least = 0;
    uint64_t smallest = UINT64_MAX;
    for (int64_t k = 0; k < d->count; k++) {
        eg_example e = { .inputs = d->pairs[k].inputs };
        memcpy(e.input, d->tokens + d->pairs[k].at, (size_t)e.inputs * sizeof *e.input);
        uint64_t h = eg__data_hash(d, &e);
        out += eg_data_held_out(d, &e);
        least = h == smallest ? least + 1 : h < smallest ? 1 : least;
        smallest = h < smallest ? h : smallest;
    }
    if (out > 0 && out < d->count) return true;
    d->few = true, d->smallest = smallest;
    if (least == d->count)
        eg_fail_as(d->cx, EG_ERROR_FILE,
                   d->count == 1
                       ? "%s: one input in ten is held out for tests, but there is only one pair"
                       : "%s: one input in ten is held out for tests, but of %lld pairs all have "
                         "the same one",
                   d->name, (long long)d->count);
    return least < d->count;
}

typedef struct word {
    const char *s;
    size_t n;
} word;
static int by_text(const void *p, const void *q)
{
    const word *a = p, *b = q;
    int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

/* Sets d->words if a blank occurs and most words of the outputs occur more than once: a word that
 * occurs once cannot be learnt. False without memory. */
static bool choose_words(eg_data *d, const char *text, size_t size)
{
    if (!strchr(text, ' ')) return true;
    eg_owner *owner = eg_owner_open(d->cx);
    word *w = owner ? eg_owner_alloc(owner, (size / 2 + 1) * sizeof *w) : NULL;
    size_t count = 0, once = 0;
    bool output = false;
    if (!w) return false;
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, " \t\r\n");
        if (n && output) w[count++] = (word){ s, n };
        s += n;
        output = *s == '\t' || (*s != '\n' && output);
        s += *s != 0;
    }
    if (count) qsort(w, count, sizeof *w, by_text);
    for (size_t k = 0; k < count; k++)
        once +=
            (k == 0 || by_text(&w[k - 1], &w[k])) && (k + 1 == count || by_text(&w[k], &w[k + 1]));
    d->words = 2 * once < count;
    eg_owner_close(owner);
    return true;
}

/* Reads the pairs of a text that d owns. Returns d; NULL after an error. */
static eg_data *data_parse(eg_data *d, const char *text)
{
    size_t size = strlen(text);
    int64_t lines = 1, at = 0;
    for (const char *s = text; *s; s++) lines += *s == '\n';
    if (!choose_words(d, text, size)) return NULL;
    d->text = text;
    d->pairs = eg_owner_alloc(d->owner, (size_t)lines * sizeof *d->pairs);
    d->tokens = eg_owner_alloc(d->owner, (size + 1) * sizeof *d->tokens);
    if (!d->pairs || !d->tokens) return NULL;
    for (const char *s = text, *end; *s; s = *end ? end + 1 : end) {
        end = s + strcspn(s, "\n");
        if (!s[strspn(s, "\r\n")]) break; /* only empty lines follow */
        if (!add_line(d, s, end > s && end[-1] == '\r' ? end - 1 : end, at)) return NULL;
        at += d->pairs[d->count - 1].inputs + d->pairs[d->count - 1].outputs;
    }
    if (!d->count) {
        eg_fail_as(d->cx, EG_ERROR_FILE, "%s: no pairs", d->name);
        return NULL;
    }
    return data_hold_out_some(d) ? d : NULL;
}

eg_data *eg_data_parse(eg_ctx *cx, const char *text, const char *name)
{
    eg_data *d = eg__data_open(cx, name);
    if (d && !text) eg_fail_as(cx, EG_ERROR_MISUSE, "data: the text of %s is NULL", name);
    char *copy = d && text ? eg_owner_alloc(d->owner, strlen(text) + 1) : NULL;
    return d ? eg__data_made(d, copy && data_parse(d, strcpy(copy, text))) : NULL;
}

eg_data *eg_data_pairs(eg_ctx *cx, const char *path)
{
    eg_data *d = eg__data_open(cx, path);
    if (!d) return NULL;
    size_t count;
    char *text = eg__data_file(d, path, &count);
    if (text && memchr(text, 0, count)) {
        eg_fail_as(cx, EG_ERROR_FILE, "%s: not a text file (a zero byte)", path);
        return NULL;
    }
    if (text && !strncmp(text, "\xEF\xBB\xBF", 3)) text += 3; /* the byte order mark of UTF-8 */
    return eg__data_made(d, text && data_parse(d, text));
}

/* -- examples --------------------------------------------------------------------------------- */
/* Returns element x of a permutation of [0, n) that `key` selects, without a table: four rounds of
 * a Feistel network on the smallest even number of bits that can represent n, repeated until the
 * result is below n (cycle walking: Black, Rogaway 2002). */
static uint64_t permuted(uint64_t key, uint64_t n, uint64_t x)
{
    int half = 1;
    while (n > 1 && half < 32 && (n - 1) >> 2 * half) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t t = left ^ (eg__train_mix(key ^ eg__train_mix(right * 4 + round)) & mask);
            left = right;
            right = t;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

/* Converts one side of an example, whose symbols are numbers of the task, to tokens. True if it has
 * 1 to `longest` symbols, all of which the task has; else records an error. */
static bool example_side(const eg_data *d, uint64_t number, const char *side, int count,
                         int longest, int32_t *symbol)
{
    const int symbols = d->symbols - EG_FIRST;
    if (count < 1 || count > longest) {
        eg_fail_as(d->cx, EG_ERROR_MISUSE, "data: task %s: example %llu has %d %s%s, not 1 to %d",
                   d->name, (unsigned long long)number, count, side, count == 1 ? "" : "s",
                   longest);
        return false;
    }
    for (int k = 0; k < count; k++) {
        if (symbol[k] < 0 || symbol[k] >= symbols) {
            eg_fail_as(d->cx, EG_ERROR_INDEX,
                       "data: task %s: %s[%d] of example %llu is symbol %d of %d", d->name, side, k,
                       (unsigned long long)number, (int)symbol[k], symbols);
            return false;
        }
        symbol[k] += EG_FIRST;
    }
    return true;
}
/* Pairs are drawn by a permutation that changes from round to round, examples of a task by its
 * function, whose lengths and symbols are checked. */
int eg_data_example(const eg_data *d, uint64_t seed, uint64_t number, eg_example *e)
{
    if (!d || !e || d->free_text) return -1;
    if (!d->task) {
        uint64_t n = (uint64_t)d->count;
        const eg__pair *p = &d->pairs[permuted(eg__train_mix(seed) + number / n, n, number % n)];
        *e = (eg_example){ .inputs = p->inputs, .outputs = p->outputs };
        memcpy(e->input, d->tokens + p->at, (size_t)p->inputs * sizeof *e->input);
        memcpy(e->output, d->tokens + p->at + p->inputs, (size_t)p->outputs * sizeof *e->output);
        return 0;
    }
    *e = (eg_example){ 0 };
    d->task->make(&(eg_rng){ seed, number, 0 }, e);
    const bool good = example_side(d, number, "input", e->inputs, d->longest_input, e->input) &&
                      example_side(d, number, "output", e->outputs, d->longest_output, e->output);
    return good ? 0 : -1;
}

uint64_t eg__data_hash(const eg_data *d, const eg_example *e)
{
    uint64_t h = EG_HASH_START;
    for (int k = 0; k < e->inputs; k++) /* a zero byte separates each word from the next */
        h = eg_hash(h, d->symbol[e->input[k]].s, d->symbol[e->input[k]].n + d->words);
    return eg__train_mix(h);
}

bool eg_data_held_out(const eg_data *d, const eg_example *e)
{
    if (!d || !e) return false;
    const uint64_t h = eg__data_hash(d, e);
    return d->few ? h == d->smallest : h % 10 == 0;
}

/* -- properties -------------------------------------------------------------------------------- */
const char *eg_data_name(const eg_data *d) { return d ? d->name : NULL; }
const char *eg_data_pairs_text(const eg_data *d) { return d ? d->text : NULL; }
bool eg_data_wants_decoder(const eg_data *d) { return d && (!d->task || d->task->decoder); }
int64_t eg_data_size(const eg_data *d) { return d ? d->count : 0; }
int eg_data_symbols(const eg_data *d) { return d ? d->symbols : 0; }
const char *eg_data_symbol(const eg_data *d, int token)
{
    return d && token >= 0 && token < d->symbols ? d->symbol[token].s : NULL;
}
bool eg_data_is_text(const eg_data *d) { return d && d->free_text; }

int64_t eg__data_uneven(const eg_data *d)
{
    for (int64_t k = 0; k < d->count; k++)
        if (d->pairs[k].inputs != d->pairs[k].outputs) return k;
    return -1;
}
