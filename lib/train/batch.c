/* batch.c: batches of token sequences and targets by number, for training and for tests. A row is
 * one sequence of a batch. */
#include "batch.h"
#include <string.h>

enum { TESTS = 1000, SCAN = 200000, ROUND = 8, CORPUS_TESTS = 65536 };

/* -- the test set ------------------------------------------------------------------------------ */
/* Adds h to a hash table of hashes, in which 0 is a free slot. True if h was already in the
 * table. */
static bool batch_seen_before(uint64_t *seen, uint64_t slots, uint64_t h)
{
    uint64_t at = h % slots;
    while (seen[at] && seen[at] != h) at = (at + 1) % slots;
    bool known = seen[at] == h;
    seen[at] = h;
    return known;
}

/* Chooses windows of a text's held-out part: consecutive ones, or evenly spaced ones if the part is
 * long. False after an error. */
static bool batch_test_windows(eg_batches *t)
{
    int64_t span = t->data->count - 1 - t->data->held_from,
            all = (span + t->longest - 1) / t->longest;
    int64_t most = CORPUS_TESTS > t->longest ? CORPUS_TESTS / t->longest : 1,
            n = all < most ? all : most;
    t->test = eg_owner_alloc(t->owner, (size_t)n * sizeof *t->test);
    for (int64_t k = 0; t->test && k < n; k++)
        t->test[t->tests++] = (uint64_t)(t->data->held_from +
                                         (n == all ? k * t->longest : k * (span - t->longest) / n));
    return t->test != NULL;
}

/* Takes the first 1000 different held-out inputs of the stream (of pairs, at most its first round).
 * False after an error. */
bool eg__batches_tests(eg_batches *t)
{
    enum { SLOTS = 4096 };
    if (t->data->free_text) return batch_test_windows(t);
    uint64_t *seen = eg_owner_alloc(t->owner, SLOTS * sizeof *seen);
    uint64_t end = eg_data_size(t->data) ? (uint64_t)eg_data_size(t->data) : SCAN;
    t->test = eg_owner_alloc(t->owner, TESTS * sizeof *t->test);
    if (!seen || !t->test) return false;
    eg_example e;
    for (uint64_t k = 0; k < end && t->tests < TESTS; k++) {
        if (eg_data_example(t->data, t->seed, k, &e)) return false;
        if (eg_data_held_out(t->data, &e) &&
            !batch_seen_before(seen, SLOTS, eg__data_hash(t->data, &e) | 1))
            t->test[t->tests++] = k;
    }
    if (!t->tests)
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "batches: no example of %s is held out for tests",
                   eg_data_name(t->data));
    return t->tests > 0;
}

/* -- rows ------------------------------------------------------------------------------------- */
/* One sequence of a batch, to be filled. */
typedef struct row {
    /* memory for the longest sequence; source NULL: there is none */
    int32_t *tokens, *target, *source;
    int64_t length;  /* number of tokens and of targets; 0 after an error */
    int64_t sources; /* number of tokens in source */
} row;

/* Sets a row to the tokens of an example and the target at each position, in the form of the model
 * (network.c). */
static void example_row(const eg_batches *t, const eg_example *e, row *r)
{
    int32_t *tokens = r->tokens, *target = r->target;
    int64_t n = 0;
    if (t->encoder) memcpy(target, e->output, (size_t)e->outputs * sizeof *target);
    if (t->has_source)
        memcpy(r->source, e->input, (size_t)(r->sources = e->inputs) * sizeof *tokens);
    for (int k = 0; !t->has_source && k < e->inputs; k++) tokens[n++] = e->input[k];
    if (t->separator) tokens[n++] = EG_SEP;
    for (int64_t k = 0; !t->encoder && k < n - 1; k++) target[k] = EG_PAD;
    for (int k = 0; !t->encoder && k < e->outputs; k++)
        target[n - 1] = tokens[n] = e->output[k], n++;
    if (!t->encoder) target[n - 1] = EG_STOP;
    r->length = n;
}

/* Sets *e to the next example of the stream that is not held out. False after an error. */
static bool training_example(eg_batches *t, eg_example *e)
{
    for (int tries = 0; tries < SCAN; tries++) {
        if (eg_data_example(t->data, t->seed, t->cursor++, e)) return false;
        if (!eg_data_held_out(t->data, e)) return true;
    }
    eg_fail_as(t->cx, EG_ERROR_MISUSE,
               "batches: %d consecutive examples of %s are all held out for tests, so there is "
               "none to train with",
               SCAN, eg_data_name(t->data));
    return false;
}

static bool examples_left(eg_batches *t)
{
    if (t->cursor <= EXAMPLE_MOST - SCAN) return true;
    return eg_fail_as(t->cx, EG_ERROR_MISUSE, "batches: all of the 2^62 examples of %s are used up",
                      eg_data_name(t->data)),
           false;
}

/* Fills row r with the next sequence of the stream; the cursor counts examples. */
static void training_row(eg_batches *t, int64_t k, row *r)
{
    eg_example e;
    (void)k;
    if (!examples_left(t)) return;
    if (t->data->free_text)
        r->length = eg__corpus_window(
            t->data, eg__corpus_position(t->data, t->seed, t->cursor++, t->longest), t->longest,
            r->tokens, r->target);
    else if (training_example(t, &e))
        example_row(t, &e, r);
}

static void test_row(eg_batches *t, int64_t k, row *r)
{
    eg_example e;
    if (t->data->free_text)
        r->length =
            eg__corpus_window(t->data, (int64_t)t->test[k], t->longest, r->tokens, r->target);
    else if (!eg_data_example(t->data, t->seed, t->test[k], &e))
        example_row(t, &e, r);
}

/* The length to which all rows are padded, and whether some were shorter. */
typedef struct row_length {
    int64_t length;
    bool padded;
} row_length;

/* Moves rows from distance `wide` to the distance of the longest one, whose length is rounded up,
 * so that few different lengths occur and plans and memory are reused. Shorter rows are padded with
 * EG_PAD; keep[k] is true where x[k] is not padding. y may be NULL. */
static row_length rows_close_up(int64_t rows, int64_t wide, int64_t most, const int64_t *length,
                                int32_t *x, int32_t *y, bool *keep)
{
    int64_t longest = 0, shortest = wide;
    for (int64_t r = 0; r < rows; r++) {
        longest = length[r] > longest ? length[r] : longest;
        shortest = length[r] < shortest ? length[r] : shortest;
    }
    int64_t round = (longest + ROUND - 1) / ROUND * ROUND, l = round < most ? round : most;
    /* l ≤ wide: no element is overwritten before it was read */
    for (int64_t r = 0; r < rows; r++) {
        int64_t n = length[r];
        memmove(x + r * l, x + r * wide, (size_t)n * sizeof *x);
        memset(x + r * l + n, EG_PAD, (size_t)(l - n) * sizeof *x);
        if (y) {
            memmove(y + r * l, y + r * wide, (size_t)n * sizeof *y);
            memset(y + r * l + n, EG_PAD, (size_t)(l - n) * sizeof *y);
        }
        memset(keep + r * l, true, (size_t)n);
        memset(keep + r * l + n, false, (size_t)(l - n));
    }
    return (row_length){ l, shortest < l };
}

/* Allocates memory for the rows when the first one is filled; a model that only predicts needs
 * none. False without memory. */
static bool batch_alloc(const eg_batches *t, eg__rows *to, int64_t rows)
{
    size_t n = (size_t)rows, positions = n * (size_t)(t->longest + 1),
           sources = n * (size_t)(t->source_longest + 1);
    if (rows <= to->rows) return true;
    to->rows = 0;
    to->tokens = eg_owner_alloc(t->owner, positions * sizeof *to->tokens);
    to->target = eg_owner_alloc(t->owner, positions * sizeof *to->target);
    to->keep = eg_owner_alloc(t->owner, positions * sizeof *to->keep);
    to->lengths = eg_owner_alloc(t->owner, 2 * n * sizeof *to->lengths);
    if (t->has_source) {
        to->source = eg_owner_alloc(t->owner, sources * sizeof *to->source);
        to->source_keep = eg_owner_alloc(t->owner, sources * sizeof *to->source_keep);
    }
    if (!to->tokens || !to->target || !to->keep || !to->lengths ||
        (t->has_source && (!to->source || !to->source_keep)))
        return false;
    to->source_lengths = to->lengths + rows;
    to->rows = rows;
    return true;
}

/* Returns a batch of the rows that `next` gives for first, first + 1, …, in the arrays from row
 * `at` on; its `rows` is 0 after an error. */
static eg_batch batch_fill(eg_batches *t, const eg__rows *to, int64_t at, int64_t first,
                           int64_t rows, void (*next)(eg_batches *, int64_t, row *))
{
    const int64_t wide = t->longest + 1, wide_source = t->source_longest + 1;
    int32_t *tokens = to->tokens + at * wide, *target = to->target + at * wide,
            *source = t->has_source ? to->source + at * wide_source : NULL;
    bool *keep = to->keep + at * wide,
         *source_keep = t->has_source ? to->source_keep + at * wide_source : NULL;
    int64_t *lengths = to->lengths + at, *source_lengths = to->source_lengths + at;
    for (int64_t k = 0; k < rows; k++) {
        row r = { tokens + k * wide, target + k * wide, source ? source + k * wide_source : NULL, 0,
                  0 };
        if (!eg_error(t->cx)) next(t, first + k, &r);
        if (!r.length) return (eg_batch){ 0 };
        lengths[k] = r.length, source_lengths[k] = r.sources;
    }
    const row_length own = rows_close_up(rows, wide, t->longest, lengths, tokens, target, keep),
                     sources = source ? rows_close_up(rows, wide_source, t->source_longest,
                                                      source_lengths, source, NULL, source_keep)
                                      : (row_length){ 0 };
    return (eg_batch){ .rows = rows,
                       .length = own.length,
                       .tokens = tokens,
                       .target = target,
                       .keep = keep,
                       .lengths = lengths,
                       .source_length = sources.length,
                       .source = source,
                       .source_keep = source_keep,
                       .source_lengths = source ? source_lengths : NULL,
                       .padded = t->encoder && own.padded,
                       .source_padded = sources.padded };
}
/* True if there are data and memory for the rows; else records an error. */
static bool batch_ready(eg_batches *t, eg__rows *to, int64_t rows)
{
    if (t->data->free_text && !t->data->tokens)
        eg_fail_as(
            t->cx, EG_ERROR_MISUSE,
            "%s: the text was left out when the model was loaded, so it can neither be trained "
            "nor evaluated",
            t->data->name);
    return !eg_error(t->cx) && batch_alloc(t, to, rows);
}

eg_batch eg__batches_next(eg_batches *t)
{
    if (!batch_ready(t, &t->one, t->at_once)) return (eg_batch){ 0 };
    return batch_fill(t, &t->one, 0, 0, t->at_once, training_row);
}
eg_batch eg__batches_tested(eg_batches *t, int64_t first, int64_t rows)
{
    if (!batch_ready(t, &t->one, rows)) return (eg_batch){ 0 };
    return batch_fill(t, &t->one, 0, first, rows, test_row);
}
bool eg__batches_fill_tests(eg_batches *t, int64_t rows)
{
    const int64_t count = (t->tests + rows - 1) / rows;
    if (!batch_ready(t, &t->all, t->tests)) return false;
    if (t->test_batch_rows == rows) return true;
    t->test_batch_rows = 0;
    t->test_batches = eg_owner_alloc(t->owner, (size_t)count * sizeof *t->test_batches);
    for (int64_t k = 0; t->test_batches && k < count; k++) {
        const int64_t first = k * rows, left = t->tests - first;
        t->test_batches[k] =
            batch_fill(t, &t->all, first, first, left < rows ? left : rows, test_row);
        if (!t->test_batches[k].rows) return false;
    }
    if (t->test_batches) t->test_batch_rows = rows;
    return t->test_batches != NULL;
}

/* -- public functions -------------------------------------------------------------------------- */
/* Moves the cursor to the first example of batch `number`, which follows `next` or is equal to it.
 * Each round of pairs has as many that are not held out, so whole rounds are skipped at once. False
 * after an error. */
static bool batch_seek(eg_batches *t, int64_t number)
{
    eg_example e;
    int64_t left = (number - t->next) * t->at_once;
    const uint64_t pairs = t->data->task ? 0 : (uint64_t)t->data->count;
    if (pairs && left > t->data->count) {
        int64_t trained = 0; /* of one round */
        for (uint64_t k = 0; k < pairs; k++)
            if (!eg_data_example(t->data, t->seed, k, &e))
                trained += !eg_data_held_out(t->data, &e);
        const int64_t all = number * t->at_once;
        const uint64_t rounds = trained ? (uint64_t)(all / trained) : 0;
        if (trained) left = all % trained;
        if (trained) t->cursor = rounds > EXAMPLE_MOST / pairs ? EXAMPLE_MOST : rounds * pairs;
    }
    for (; left; left--)
        if (!examples_left(t) || !training_example(t, &e)) return false;
    t->next = number;
    return true;
}

/* The cursor moves forward only, so an earlier batch starts again at the first example; windows of
 * a text are found directly. */
const eg_batch *eg_batches_at(eg_batches *t, int64_t number)
{
    if (!t) eg_fail_as(NULL, EG_ERROR_MISUSE, "batches_at: the batches are NULL");
    if (!t || eg_error(t->cx)) return NULL;
    if (number < 0 || number > INT64_MAX / (2 * SIZE_MOST)) {
        eg_fail_as(t->cx, EG_ERROR_INDEX, "batches: there is no batch %lld", (long long)number);
        return NULL;
    }
    if (number < t->next || t->data->free_text) t->next = 0, t->cursor = 0;
    if (t->data->free_text) t->next = number, t->cursor = (uint64_t)(number * t->at_once);
    t->shown = batch_seek(t, number) ? eg__batches_next(t) : (eg_batch){ 0 };
    /* no memory, or no example: the cursor may be at any example */
    if (!t->shown.rows) return t->next = INT64_MAX, NULL;
    t->next++;
    return &t->shown;
}

const eg_batch *eg_batches_test(eg_batches *t, int64_t number)
{
    if (!t) eg_fail_as(NULL, EG_ERROR_MISUSE, "batches_test: the batches are NULL");
    if (!t || eg_error(t->cx) || number < 0 || number > (t->tests - 1) / t->at_once) return NULL;
    const int64_t first = number * t->at_once, left = t->tests - first;
    t->shown = eg__batches_tested(t, first, left < t->at_once ? left : t->at_once);
    return t->shown.rows ? &t->shown : NULL;
}

eg_network_sizes eg_batches_sizes(const eg_batches *t)
{
    return t ? (eg_network_sizes){ t->vocabulary, t->longest, t->source_longest }
             : (eg_network_sizes){ 0 };
}

eg_batch eg_batch_part(const eg_batch *all, int64_t from, int64_t to)
{
    if (!all || from < 0 || to > all->rows || from >= to) return (eg_batch){ 0 };
    eg_batch b = *all;
    const int64_t at = from * all->length, source = from * all->source_length;
    b.rows = to - from, b.tokens += at;
    if (b.target) b.target += at;
    if (b.keep) b.keep += at;
    if (b.lengths) b.lengths += from;
    if (b.source) b.source += source;
    if (b.source_keep) b.source_keep += source;
    if (b.source_lengths) b.source_lengths += from;
    return b;
}

/* -- making ----------------------------------------------------------------------------------- */
/* True if the data can be used with the model: a text needs a decoder, and an encoder needs inputs
 * and outputs of one length. Else records an error. */
bool eg__batches_fit(const eg_data *d, const char *who, const char *name, bool encoder, bool source,
                     uint64_t seed)
{
    eg_ctx *cx = d->cx;
    eg_example e;
    int64_t line = encoder && !d->free_text ? eg__data_uneven(d) : -1;
    if (encoder && source)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: an encoder has no source in addition to its tokens",
                   who);
    else if (d->free_text && (encoder || source))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: a text is learnt by a decoder, not by model \"%s\"",
                   who, name);
    for (uint64_t k = 0; !eg_error(cx) && encoder && d->task && k < 100; k++)
        if (eg_data_example(d, seed, k, &e) || e.inputs != e.outputs) {
            eg_fail_as(cx, EG_ERROR_SHAPE,
                       "%s: an encoder needs input and output of one length, but task %s has %d "
                       "and %d; model \"decoder\" takes them",
                       who, eg_data_name(d), e.inputs, e.outputs);
            return false;
        }
    if (line >= 0)
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "%s:%lld: an encoder needs input and output of one length; model \"decoder\" "
                   "takes others",
                   eg_data_name(d), (long long)line + 1);
    return !eg_error(cx);
}

int64_t eg__batches_context(const eg_data *d, int64_t given)
{
    const int64_t span = d->count - 1 - d->held_from;
    return given || !d->free_text ? given : span < 64 ? span : 64;
}

/* Makes the batches without the memory of their rows: lengths, and which tokens are answers. NULL
 * without memory. */
eg_batches *eg__batches_make(eg_owner *owner, const eg_batches_args *o)
{
    eg_data *d = o->data;
    eg_batches *t = eg_owner_alloc(owner, sizeof *t);
    if (!t) return NULL;
    const bool text = d->free_text, separator = o->source || (!o->encoder && !text &&
                                                              !(d->task && d->task->no_separator));
    const int64_t in = d->longest_input, out = d->longest_output;
    *t = (eg_batches){ .cx = d->cx,
                       .owner = owner,
                       .data = d,
                       .at_once = o->rows,
                       .seed = o->seed,
                       .encoder = o->encoder,
                       .has_source = o->source,
                       .separator = separator,
                       .least = text || o->encoder ? EG_FIRST : EG_STOP,
                       .longest = text         ? o->context
                                  : o->source  ? separator + out
                                  : o->encoder ? in
                                               : in + separator + out,
                       .source_longest = o->source ? in : 0,
                       .vocabulary = eg_data_symbols(d) };
    return t;
}

eg_batches *eg_batches_new_with(const eg_batches_args *given)
{
    eg_batches_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!o.data) return eg_fail_as(NULL, EG_ERROR_MISUSE, "batches: the data is NULL"), NULL;
    eg_ctx *cx = o.data->cx;
    if (eg_error(cx)) return NULL;
    const int64_t span = o.data->free_text ? o.data->count - 1 - o.data->held_from : 0;
    o.rows = o.rows ? o.rows : o.data->free_text ? 32 : 64;
    o.context = eg__batches_context(o.data, o.context);
    if (o.rows < 1 || o.rows > SIZE_MOST)
        eg_fail_as(cx, EG_ERROR_MISUSE, "batches: rows must be from 1 to 2^20, not %lld",
                   (long long)o.rows);
    else if (o.context < 0 || o.context > span)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   o.data->free_text ? "batches: context must be from 1 to %lld, what is held out "
                                       "of the text, not %lld"
                                     : "batches: a text has a context (held out: %lld), other data "
                                       "have none, not %lld",
                   (long long)span, (long long)o.context);
    if (eg_error(cx) || !eg__batches_fit(o.data, "batches", o.encoder ? "encoder" : "seq2seq",
                                         o.encoder, o.source, o.seed))
        return NULL;
    eg_owner *owner = eg_owner_open(cx);
    eg_batches *t = owner ? eg__batches_make(owner, &o) : NULL;
    return t && eg__batches_tests(t) ? t : NULL;
}
