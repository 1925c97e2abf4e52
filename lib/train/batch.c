/* batch.c: rows of tokens and targets, for training and for tests, and how many of them a model got
 * right. */
#include "trainer.h"
#include <string.h>

enum { TESTS = 1000, SCAN = 200000, ROUND = 8, CORPUS_TESTS = 65536 };

/* -- what is tested on ------------------------------------------------------------------------ */
/* Adds h to a hash table of hashes, in which 0 is an empty slot. True if it was there before. */
static bool batch_seen_before(uint64_t *seen, uint64_t slots, uint64_t h)
{
    uint64_t at = h % slots;
    while (seen[at] && seen[at] != h) at = (at + 1) % slots;
    bool known = seen[at] == h;
    seen[at] = h;
    return known;
}

/* The windows of a text's held-out part: end to end; of a long part, evenly spread ones. */
static bool batch_test_windows(eg_trainer *t)
{
    int64_t span = t->data->count - 1 - t->data->held, all = (span + t->longest - 1) / t->longest;
    int64_t most = CORPUS_TESTS > t->longest ? CORPUS_TESTS / t->longest : 1,
            n = all < most ? all : most;
    t->test = eg_owner_alloc(t->owner, (size_t)n * sizeof *t->test);
    for (int64_t k = 0; t->test && k < n; k++)
        t->test[t->tests++] =
            (uint64_t)(t->data->held + (n == all ? k * t->longest : k * (span - t->longest) / n));
    return t->test != NULL;
}

/* Takes the first 1000 different held-out inputs of the stream; of pairs, of its first round. */
bool eg__batch_tests(eg_trainer *t)
{
    enum { SLOTS = 4096 };
    if (t->data->free_text) return batch_test_windows(t);
    uint64_t *seen = eg_owner_alloc(t->owner, SLOTS * sizeof *seen);
    uint64_t end = eg_data_size(t->data) ? (uint64_t)eg_data_size(t->data) : SCAN;
    t->test = eg_owner_alloc(t->owner, TESTS * sizeof *t->test);
    if (!seen || !t->test) return false;
    eg_example e;
    for (uint64_t k = 0; k < end && t->tests < TESTS; k++) {
        if (eg_data_example(t->data, t->o.seed, k, &e)) return false;
        if (eg_data_held_out(t->data, &e) &&
            !batch_seen_before(seen, SLOTS, eg__data_hash(t->data, &e) | 1))
            t->test[t->tests++] = k;
    }
    if (!t->tests)
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "trainer: no example of %s is held out for tests",
                   eg_data_name(t->data));
    return t->tests > 0;
}

/* -- rows ------------------------------------------------------------------------------------- */
/* One sequence of a batch, to be filled. */
typedef struct row {
    int32_t *tokens, *target, *source; /* room for the longest; source NULL: there is none */
    int64_t length;                    /* of tokens and targets; 0 after an error */
    int64_t sources;                   /* of source */
} row;

/* The tokens of an example and the target at each place, as the model wants them (network.c). */
static void example_row(const eg_trainer *t, const eg_example *e, row *r)
{
    int32_t *tokens = r->tokens, *target = r->target;
    int64_t n = 0;
    if (!t->kind->autoregressive) memcpy(target, e->output, (size_t)e->outputs * sizeof *target);
    if (t->kind->has_source)
        memcpy(r->source, e->input, (size_t)(r->sources = e->inputs) * sizeof *tokens);
    for (int k = 0; !t->kind->has_source && k < e->inputs; k++) tokens[n++] = e->input[k];
    if (t->separator) tokens[n++] = EG_SEP;
    for (int64_t k = 0; t->kind->autoregressive && k < n - 1; k++) target[k] = EG_PAD;
    for (int k = 0; t->kind->autoregressive && k < e->outputs; k++)
        target[n - 1] = tokens[n] = e->output[k], n++;
    if (t->kind->autoregressive) target[n - 1] = EG_STOP;
    r->length = n;
}

/* The next sequence of the stream that is not held out; the trainer's cursor counts examples. */
static void training_row(eg_trainer *t, int64_t k, row *r)
{
    (void)k;
    if (t->cursor > EXAMPLE_MOST - SCAN) {
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "trainer: all of the 2^62 examples of %s are used up",
                   eg_data_name(t->data));
        return;
    }
    if (t->data->free_text) {
        r->length = eg__corpus_window(t->data,
                                      eg__corpus_place(t->data, t->o.seed, t->cursor++, t->longest),
                                      t->longest, r->tokens, r->target);
        return;
    }
    eg_example e;
    for (int tries = 0; tries < SCAN; tries++) {
        if (eg_data_example(t->data, t->o.seed, t->cursor++, &e)) return;
        if (!eg_data_held_out(t->data, &e)) {
            example_row(t, &e, r);
            return;
        }
    }
    eg_fail_as(t->cx, EG_ERROR_MISUSE, "trainer: %d examples of %s on end are held out for tests",
               SCAN, eg_data_name(t->data));
}

static void test_row(eg_trainer *t, int64_t k, row *r)
{
    eg_example e;
    if (t->data->free_text)
        r->length =
            eg__corpus_window(t->data, (int64_t)t->test[k], t->longest, r->tokens, r->target);
    else if (!eg_data_example(t->data, t->o.seed, t->test[k], &e))
        example_row(t, &e, r);
}

/* The common length of rows, and whether some are shorter. */
typedef struct row_length {
    int64_t length;
    bool padded;
} row_length;

/* Moves rows that are `wide` apart together, to the length of the longest one, rounded up so that
 * there are few lengths and plans and memory are reused. Fills up with EG_PAD; keep[k] is true
 * where x[k] is no padding. y may be NULL. */
static row_length rows_close_up(int64_t rows, int64_t wide, int64_t most, const int64_t *length,
                                int32_t *x, int32_t *y, bool *keep)
{
    int64_t longest = 0, shortest = wide;
    for (int64_t r = 0; r < rows; r++) {
        longest = length[r] > longest ? length[r] : longest;
        shortest = length[r] < shortest ? length[r] : shortest;
    }
    int64_t round = (longest + ROUND - 1) / ROUND * ROUND, l = round < most ? round : most;
    for (int64_t r = 0; r < rows; r++) { /* l ≤ wide, so nothing is overwritten unread */
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

/* Memory for a batch of so many rows, allocated when the first one is filled: a model that only
 * predicts needs none. */
static bool batch_room(eg_trainer *t, int64_t rows)
{
    size_t n = (size_t)rows, places = n * (size_t)(t->longest + 1),
           sources = n * (size_t)(t->source_longest + 1);
    if (rows <= t->rows) return true;
    t->rows = 0;
    t->tokens = eg_owner_alloc(t->owner, places * sizeof *t->tokens);
    t->target = eg_owner_alloc(t->owner, places * sizeof *t->target);
    t->keep = eg_owner_alloc(t->owner, places * sizeof *t->keep);
    t->length = eg_owner_alloc(t->owner, 2 * n * sizeof *t->length);
    if (t->kind->has_source) {
        t->source = eg_owner_alloc(t->owner, sources * sizeof *t->source);
        t->source_keep = eg_owner_alloc(t->owner, sources * sizeof *t->source_keep);
    }
    if (!t->tokens || !t->target || !t->keep || !t->length ||
        (t->kind->has_source && (!t->source || !t->source_keep)))
        return false;
    t->source_length = t->length + rows;
    t->rows = rows;
    return true;
}

/* A batch of the rows that `next` gives for first, first + 1, …; rows 0 after an error. */
static eg__batch batch_fill(eg_trainer *t, int64_t first, int64_t rows,
                            void (*next)(eg_trainer *, int64_t, row *))
{
    int64_t wide = t->longest + 1, wide_source = t->source_longest + 1;
    if (t->data->free_text && !t->data->tokens)
        eg_fail_as(
            t->cx, EG_ERROR_MISUSE,
            "%s: the text was left out when the model was loaded, so it can neither be trained "
            "nor evaluated",
            t->data->name);
    if (eg_error(t->cx) || !batch_room(t, rows)) return (eg__batch){ 0 };
    for (int64_t k = 0; k < rows; k++) {
        row r = { t->tokens + k * wide, t->target + k * wide,
                  t->kind->has_source ? t->source + k * wide_source : NULL, 0, 0 };
        if (!eg_error(t->cx)) next(t, first + k, &r);
        if (!r.length) return (eg__batch){ 0 };
        t->length[k] = r.length, t->source_length[k] = r.sources;
    }
    row_length own =
                   rows_close_up(rows, wide, t->longest, t->length, t->tokens, t->target, t->keep),
               source = { 0 };
    if (t->kind->has_source)
        source = rows_close_up(rows, wide_source, t->source_longest, t->source_length, t->source,
                               NULL, t->source_keep);
    return (eg__batch){ rows,         own.length,     source.length,
                        t->tokens,    t->target,      t->source,
                        t->keep,      t->source_keep, !t->kind->autoregressive && own.padded,
                        source.padded };
}

eg__batch eg__batch_next(eg_trainer *t) { return batch_fill(t, 0, t->o.batch, training_row); }
eg__batch eg__batch_test(eg_trainer *t, int64_t first, int64_t rows)
{
    return batch_fill(t, first, rows, test_row);
}

eg__batch eg__batch_rows(const eg__batch *all, int64_t from, int64_t to)
{
    eg__batch b = *all;
    int64_t at = from * all->length, source = from * all->sources;
    b.rows = to - from, b.tokens += at, b.target += at, b.keep += at;
    if (b.source) b.source += source, b.source_keep += source;
    return b;
}

/* -- results ---------------------------------------------------------------------------------- */
int64_t eg__batch_counted(const eg__batch *b)
{
    int64_t n = 0;
    for (int64_t k = 0; k < b->rows * b->length; k++) n += b->target[k] != EG_PAD;
    return n;
}

eg_tensor *eg__batch_loss(eg_ctx *cx, const eg__batch *b, eg_tensor *logits, double smoothing)
{
    eg_tensor *target = eg_from_n(cx, EG_I32, b->target, 2, (int64_t[]){ b->rows, b->length });
    return eg_sum(NULL, eg_cross_entropy("b l [v]", logits, target, .ignore = EG_OFF,
                                         .smoothing = smoothing, .each = true));
}

/* Greedy decoding of an autoregressive model gives the whole right answer if and only if the model
 * is right at each place given the right tokens before it (by induction over places), so that one
 * forward pass counts exact answers. */
eg_score eg__batch_score(const eg_trainer *t, const eg__batch *b, eg_tensor *logits)
{
    eg_score s = { .sequences = b->rows };
    const int64_t *best =
        eg_i64(eg_argmax("b l [v]", eg_slice_axis(logits, 2, t->least, EG_END, 1)));
    for (int64_t r = 0; best && r < b->rows; r++) {
        bool all = true;
        for (int64_t k = r * b->length; k < (r + 1) * b->length; k++)
            if (b->target[k] != EG_PAD) {
                bool right = best[k] + t->least == b->target[k];
                s.tokens++;
                s.right += right;
                all &= right;
            }
        s.exact += all;
    }
    return s;
}
