/* batch.c: rows of tokens and targets, for training and for tests, and how many of them a model got right. */
#include "trainer.h"
#include <string.h>

enum { TESTS = 1000, SCAN = 200000, ROUND = 8, CORPUS_TESTS = 65536 };

/* -- what is tested on ----------------------------------------------------------------------------------------------------------------- */
static bool seen_before(uint64_t *seen, uint64_t slots, uint64_t h)       /* a hash table of hashes; 0: empty      */
{
    uint64_t at = h % slots;
    while (seen[at] && seen[at] != h)
        at = (at + 1) % slots;
    bool known = seen[at] == h;
    seen[at] = h;
    return known;
}

/* the held-out part end to end; of a long one, windows evenly spread */
static bool windows(eg_trainer *t)
{
    int64_t span = t->data->count - 1 - t->data->held, all = (span + t->longest - 1) / t->longest;
    int64_t most = CORPUS_TESTS > t->longest ? CORPUS_TESTS / t->longest : 1, n = all < most ? all : most;
    t->test = eg_owner_alloc(t->owner, (size_t)n * sizeof *t->test);
    for (int64_t k = 0; t->test && k < n; k++)
        t->test[t->tests++] = (uint64_t)(t->data->held + (n == all ? k * t->longest : (int64_t)((double)k / (double)n * (double)(span - t->longest))));
    return t->test != NULL;
}

/* the first 1000 different held-out inputs of the stream (of pairs: of the first time round) */
bool eg__batch_tests(eg_trainer *t)
{
    enum { SLOTS = 4096 };
    if (t->data->free_text)
        return windows(t);
    uint64_t *seen = eg_owner_alloc(t->owner, SLOTS * sizeof *seen);
    uint64_t end = eg_data_size(t->data) ? (uint64_t)eg_data_size(t->data) : SCAN;
    t->test = eg_owner_alloc(t->owner, TESTS * sizeof *t->test);
    if (!seen || !t->test)
        return false;
    eg_example e;
    for (uint64_t k = 0; k < end && t->tests < TESTS; k++) {
        if (eg_data_example(t->data, t->o.seed, k, &e))
            return false;
        if (eg_data_held_out(t->data, &e) && !seen_before(seen, SLOTS, eg__data_hash(t->data, &e) | 1))
            t->test[t->tests++] = k;
    }
    if (!t->tests)
        eg_fail(t->cx, "trainer: no example of %s is held out for tests", eg_data_name(t->data));
    return t->tests > 0;
}

/* -- rows ------------------------------------------------------------------------------------------------------------------------------ */
static int64_t sequence(const eg_trainer *t, const eg_example *e, int32_t *tokens, int32_t *target)    /* returns its length */
{
    int64_t prompt = e->inputs + t->separator, n = 0;
    for (int k = 0; k < e->inputs; k++)
        tokens[n++] = e->input[k];
    if (!t->kind->writes) {
        memcpy(target, e->output, (size_t)e->outputs * sizeof *target);
        return n;
    }
    if (t->separator)
        tokens[n++] = EG_SEP;
    for (int64_t k = 0; k < prompt - 1; k++)
        target[k] = EG_PAD;
    for (int k = 0; k < e->outputs; k++)
        target[n - 1] = tokens[n] = e->output[k], n++;
    target[n - 1] = EG_STOP;
    return n;
}

static int64_t training_row(eg_trainer *t, int64_t k, int32_t *tokens, int32_t *target)    /* the stream's cursor counts */
{
    (void)k;
    if (t->data->free_text)
        return eg__corpus_window(t->data, eg__corpus_place(t->data, t->o.seed, t->cursor++, t->longest), t->longest, tokens, target);
    eg_example e;
    for (int tries = 0; tries < SCAN; tries++) {
        if (eg_data_example(t->data, t->o.seed, t->cursor++, &e))
            return 0;
        if (!eg_data_held_out(t->data, &e))
            return sequence(t, &e, tokens, target);
    }
    eg_fail(t->cx, "trainer: %d examples of %s on end are held out for tests", SCAN, eg_data_name(t->data));
    return 0;
}

static int64_t test_row(eg_trainer *t, int64_t k, int32_t *tokens, int32_t *target)
{
    eg_example e;
    if (t->data->free_text)
        return eg__corpus_window(t->data, (int64_t)t->test[k], t->longest, tokens, target);
    return eg_data_example(t->data, t->o.seed, t->test[k], &e) ? 0 : sequence(t, &e, tokens, target);
}

static eg__batch fill(eg_trainer *t, int64_t first, int64_t rows, int64_t (*row)(eg_trainer *, int64_t, int32_t *, int32_t *))
{
    int64_t wide = t->longest + 1, longest = 0, shortest = wide, *length = t->length;
    if (t->data->free_text && !t->data->tokens)
        eg_fail(t->cx, "%s: the text was left out when the model was loaded, so it can neither be trained nor evaluated", t->data->name);
    for (int64_t r = 0; r < rows; r++) {
        if (eg_error(t->cx) || !(length[r] = row(t, first + r, t->tokens + r * wide, t->target + r * wide)))
            return (eg__batch){ 0 };
        longest = length[r] > longest ? length[r] : longest;
        shortest = length[r] < shortest ? length[r] : shortest;
    }
    /* few different lengths, so that plans and memory are reused */
    int64_t round = (longest + ROUND - 1) / ROUND * ROUND, l = round < t->longest ? round : t->longest;
    for (int64_t r = 0; r < rows; r++) {            /* close the rows up: l ≤ wide, so nothing is overwritten unread */
        int64_t n = length[r];
        memmove(t->tokens + r * l, t->tokens + r * wide, (size_t)n * sizeof *t->tokens);
        memmove(t->target + r * l, t->target + r * wide, (size_t)n * sizeof *t->target);
        for (int64_t k = 0; k < l; k++) {
            t->keep[r * l + k] = k < n;
            if (k >= n)
                t->tokens[r * l + k] = t->target[r * l + k] = EG_PAD;
        }
    }
    return (eg__batch){ rows, l, t->tokens, t->target, t->keep, !t->kind->writes && shortest < l };
}

eg__batch eg__batch_next(eg_trainer *t)                                     { return fill(t, 0, t->o.batch, training_row); }
eg__batch eg__batch_test(eg_trainer *t, int64_t first, int64_t rows)        { return fill(t, first, rows, test_row); }

/* -- results ------------------------------------------------------------------------------------------------------------------------- */
int64_t eg__batch_counted(const eg__batch *b)
{
    int64_t n = 0;
    for (int64_t k = 0; k < b->rows * b->length; k++)
        n += b->target[k] != EG_PAD;
    return n;
}

eg_tensor *eg__batch_loss(const eg_trainer *t, const eg__batch *b, eg_tensor *logits, double smoothing)
{
    eg_tensor *target = eg_from_n(t->cx, EG_I32, b->target, 2, (int64_t[]){ b->rows, b->length });
    return eg_cross_entropy("b l [v]", logits, target, .ignore = EG_OFF, .smoothing = smoothing);
}

/* A model that writes gives the whole right answer greedily if and only if it is right at each place given the right tokens before it
 * (induction over places), so that exact match takes one forward pass. */
eg_score eg__batch_score(const eg_trainer *t, const eg__batch *b, eg_tensor *logits)
{
    eg_score s = { .sequences = b->rows };
    const int64_t *best = eg_i64(eg_argmax("b l [v]", eg_slice(logits, 2, t->least, EG_END, 1)));
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
