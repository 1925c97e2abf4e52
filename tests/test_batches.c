/* test_batches.c: a batch compared with its definition in network.h, example by example; which
 * examples are in the test set; the parts of a batch; the score of logits compared with plain
 * loops. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <math.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f32(void) { cx = eg_open(.threads = 2, .seed = 4); }
static void close_cx(void) { eg_close(cx); }

/* -- data whose examples have different lengths, each in the forms that a batch may have ------- */
static void next_letters(eg_rng *rng, eg_example *e)
{
    e->inputs = e->outputs = 1 + (int)eg_rng_below(rng, 3);
    for (int k = 0; k < e->inputs; k++) e->input[k] = (int)eg_rng_below(rng, 4);
    for (int k = 0; k < e->inputs; k++) e->output[k] = (e->input[k] + 1) % 4;
}
static void twice(eg_rng *rng, eg_example *e)
{
    e->inputs = 1 + (int)eg_rng_below(rng, 3), e->outputs = 2 * e->inputs;
    for (int k = 0; k < e->inputs; k++) e->input[k] = (int)eg_rng_below(rng, 4);
    for (int k = 0; k < e->outputs; k++) e->output[k] = e->input[k / 2];
}
static const eg_task next_task = { "next", "letters",    "abcd", 3, 3, false,
                                   false,  next_letters, 0,      0, 0 },
                     twice_task = { "twice", "letters", "abcd", 3, 6, true, false, twice, 0, 0, 0 },
                     asking_task = { "asks", "letters", "abcd", 3, 6, true, true, twice, 0, 0, 0 };
/* one input on two lines, with two answers */
static const char *const lines = "a\tb\nab\tba\nabc\tcb\nb\tc\nd\te\nda\tf\na\tc\nda\tab\nfa\tb\n"
                                 "ea\tb\nec\tdd\ncd\ta\nce\tb\nca\tfff\n";
enum { NEXT, TWICE, ASKS, APART, PAIRS, PAIRS_APART, FORMS };
static bool apart(int form) { return form == APART || form == PAIRS_APART; }
static eg_batches *batches(int form, eg_data **data)
{
    *data = form == PAIRS || form == PAIRS_APART ? eg_data_parse(cx, lines, "lines")
            : form == NEXT                       ? eg_data_task(cx, &next_task)
            : form == ASKS                       ? eg_data_task(cx, &asking_task)
                                                 : eg_data_task(cx, &twice_task);
    eg_batches *b =
        eg_batches_new(*data, .rows = 5, .encoder = form == NEXT, .source = apart(form), .seed = 9);
    ck_assert_msg(b != NULL, "%s", eg_error(cx));
    return b;
}

/* A row as defined in network.h: `length` tokens and targets, `sources` tokens of the source. */
typedef struct wanted {
    int32_t token[16], target[16], source[16];
    int64_t length, sources;
} wanted;
static wanted row_of(int form, const eg_example *e)
{
    wanted w = { .length = 0 };
    if (form == NEXT) {
        for (int k = 0; k < e->inputs; k++) w.token[k] = e->input[k], w.target[k] = e->output[k];
        w.length = e->inputs;
        return w;
    }
    for (int k = 0; k < e->inputs; k++)
        if (apart(form))
            w.source[w.sources++] = e->input[k];
        else
            w.token[w.length++] = e->input[k];
    if (form != ASKS) w.token[w.length++] = EG_SEP;
    for (int k = 0; k <= e->outputs; k++) {
        w.target[w.length - 1] = k < e->outputs ? e->output[k] : EG_STOP;
        if (k < e->outputs) w.token[w.length++] = e->output[k];
    }
    return w;
}
static void row_is(const eg_batch *b, int64_t r, int form, const eg_example *e)
{
    const wanted w = row_of(form, e);
    ck_assert_int_eq(b->lengths[r], w.length);
    ck_assert_int_le(w.length, b->length);
    for (int64_t k = 0; k < b->length; k++) {
        const int64_t at = r * b->length + k;
        const bool in = k < w.length;
        ck_assert_int_eq(b->tokens[at], in ? w.token[k] : EG_PAD);
        ck_assert_int_eq(b->target[at], in ? w.target[k] : EG_PAD);
        ck_assert_int_eq(b->keep[at], in);
    }
    ck_assert(form != NEXT || w.length == b->length || b->padded);
    ck_assert(form == NEXT || !b->padded);
    if (!apart(form)) {
        ck_assert(!b->source && !b->source_lengths && !b->source_padded);
        return;
    }
    ck_assert_int_eq(b->source_lengths[r], w.sources);
    ck_assert(w.sources == b->source_length || b->source_padded);
    for (int64_t k = 0; k < b->source_length; k++) {
        const int64_t at = r * b->source_length + k;
        ck_assert_int_eq(b->source[at], k < w.sources ? w.source[k] : EG_PAD);
        ck_assert_int_eq(b->source_keep[at], k < w.sources);
    }
}
static bool same_input(const eg_example *a, const eg_example *b)
{
    return a->inputs == b->inputs && !memcmp(a->input, b->input, (size_t)a->inputs * sizeof(int));
}

GROUP("rows", .setup = open_f32, .teardown = close_cx)

/* The training rows are the examples of the stream that are not held out, in order. */
LOOP_TEST(training_rows_are_the_stream, FORMS)
{
    eg_data *d;
    eg_batches *t = batches(_i, &d);
    uint64_t number = 0;
    for (int k = 0; k < 6; k++) {
        const eg_batch *b = eg_batches_at(t, k);
        ck_assert_msg(b != NULL, "%s", eg_error(cx));
        ck_assert_int_eq(b->rows, 5);
        for (int64_t r = 0; r < 5; r++) {
            eg_example e;
            do ck_assert_int_eq(eg_data_example(d, 9, number++, &e), 0);
            while (eg_data_held_out(d, &e));
            row_is(b, r, _i, &e);
        }
    }
}
/* Batches that are far apart are those that one after another gives. */
TEST(a_batch_far_on_is_found_by_rounds)
{
    eg_data *d;
    eg_batches *one = batches(PAIRS, &d);
    const int at[] = { 0, 1, 13, 14, 500, 2, 77, 901 };
    for (size_t n = 0; n < sizeof at / sizeof *at; n++) {
        eg_batches *walked = batches(PAIRS, &d);
        const eg_batch *b = eg_batches_at(one, at[n]), *w = NULL;
        for (int k = 0; k <= at[n]; k++) w = eg_batches_at(walked, k);
        ck_assert_msg(b && w && b->length == w->length, "%s", eg_error(cx));
        ck_assert_mem_eq(b->tokens, w->tokens, (size_t)(b->rows * b->length) * sizeof *b->tokens);
        ck_assert_mem_eq(b->target, w->target, (size_t)(b->rows * b->length) * sizeof *b->target);
    }
    ck_assert_ptr_nonnull(eg_batches_at(one, (int64_t)1 << 40)); /* ages, one after another */
    ck_assert_ptr_nonnull(eg_batches_at(one, INT64_MAX >> 21));
    ck_assert_ptr_nonnull(eg_batches_at(one, 3));
}
/* The test rows are all inputs that are held out, once each, in the order of their first
 * occurrence. */
LOOP_TEST(each_held_out_input_is_tested_once, FORMS)
{
    enum { MOST = 200 };
    static eg_example seen[MOST];
    eg_data *d;
    eg_batches *t = batches(_i, &d);
    int count = 0, tested = 0;
    const uint64_t end = eg_data_size(d) ? (uint64_t)eg_data_size(d) : 20000;
    for (uint64_t n = 0; n < end; n++) {
        eg_example e;
        ck_assert_int_eq(eg_data_example(d, 9, n, &e), 0);
        bool known = !eg_data_held_out(d, &e);
        for (int k = 0; k < count; k++) known |= same_input(&e, &seen[k]);
        ck_assert_int_lt(count, MOST);
        if (!known) seen[count++] = e;
    }
    const eg_batch *b;
    for (int k = 0; (b = eg_batches_test(t, k)); k++) {
        ck_assert_int_eq(b->rows, count - tested < 5 ? count - tested : 5);
        for (int64_t r = 0; r < b->rows; r++) row_is(b, r, _i, &seen[tested++]);
    }
    eg_assert_ok(cx);
    ck_assert_int_eq(tested, count);
    ck_assert_int_gt(count, _i < PAIRS ? 2 : 0);
}
/* A text: the held-out part is its last tenth, which test windows cover without gaps; training
 * windows are before it. */
TEST(windows_of_a_text)
{
    enum { N = 3000, HELD = N / 10, L = 16 };
    static char text[N + 1], window[4 * L];
    eg_rng rng = { .seed = 1 };
    for (int k = 0; k < N; k++) text[k] = (char)('a' + eg_rng_below(&rng, 26));
    eg_data *d = eg_data_corpus_of(cx, text, N, "letters");
    eg_batches *t = eg_batches_new(d, .rows = 4, .context = L);
    const eg_batch *b;
    int64_t at = N - HELD;
    for (int k = 0; (b = eg_batches_test(t, k)); k++)
        for (int64_t r = 0; r < b->rows; r++) {
            for (int64_t l = 0; l < b->lengths[r]; l++, at++) {
                ck_assert_int_lt(at + 1, N);
                const int32_t token = b->tokens[r * b->length + l],
                              target = b->target[r * b->length + l];
                ck_assert(*eg_data_symbol(d, token) == text[at] &&
                          *eg_data_symbol(d, target) == text[at + 1]);
            }
            for (int64_t l = b->lengths[r]; l < b->length; l++)
                ck_assert_int_eq(b->target[r * b->length + l], EG_PAD);
        }
    ck_assert_int_eq(at, N - 1);
    text[N - HELD + 1] = 0; /* the last target of training may be the first that is held out */
    for (int k = 0; k < 40; k++) {
        b = eg_batches_at(t, k);
        ck_assert(b && b->rows == 4 && b->length == L && !b->padded);
        for (int64_t r = 0; r < 4; r++) {
            eg_data_decode(d, L, b->tokens + r * L, window, sizeof window);
            const char *from = strstr(text, window);
            ck_assert_msg(from != NULL, "\"%s\" is held out", window);
            eg_data_decode(d, L, b->target + r * L, window, sizeof window);
            ck_assert(strlen(from) > L && !strncmp(from + 1, window, L));
        }
    }
}
/* A part of a batch has the rows of the batch, each list from its first row on. */
LOOP_TEST(a_part_is_its_rows, FORMS)
{
    eg_data *d;
    const eg_batch *all = eg_batches_at(batches(_i, &d), 1);
    for (int64_t from = 0; from < 5; from++)
        for (int64_t to = from + 1; to <= 5; to++) {
            const eg_batch part = eg_batch_part(all, from, to);
            ck_assert(part.rows == to - from && part.length == all->length &&
                      part.source_length == all->source_length && part.padded == all->padded &&
                      part.source_padded == all->source_padded);
            ck_assert(part.tokens == all->tokens + from * all->length);
            ck_assert(part.target == all->target + from * all->length);
            ck_assert(part.keep == all->keep + from * all->length);
            ck_assert(part.lengths == all->lengths + from);
            if (apart(_i)) {
                ck_assert(part.source == all->source + from * all->source_length);
                ck_assert(part.source_keep == all->source_keep + from * all->source_length);
                ck_assert(part.source_lengths == all->source_lengths + from);
            } else
                ck_assert(!part.source && !part.source_keep && !part.source_lengths);
        }
    static const int64_t bad[][2] = { { -1, 2 }, { 2, 2 }, { 3, 2 }, { 0, 6 }, { 5, 6 } };
    for (int k = 0; k < 5; k++) ck_assert_int_eq(eg_batch_part(all, bad[k][0], bad[k][1]).rows, 0);
    ck_assert_int_eq(eg_batch_part(NULL, 0, 1).rows, 0);
    eg_assert_ok(cx);
}

/* -- the score of logits ----------------------------------------------------------------------- */
GROUP("score", .setup = open_f32, .teardown = close_cx)

/* What logits (b l v) predict correctly, by loops: at each target that counts, the largest logit of
 * the tokens that an answer may have (with STOP if answers end themselves); and Σ −ln softmax. */
static eg_score plainly(const eg_batch *b, int form, eg_tensor *logits)
{
    const int64_t v = eg_dim(logits, 2), least = form == NEXT ? EG_FIRST : EG_STOP;
    const double *x = eg_f64(eg_contiguous(eg_cast(logits, EG_F64)));
    eg_score s = { .sequences = b->rows };
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t wrong = 0;
        for (int64_t k = r * b->length; k < r * b->length + b->lengths[r]; k++) {
            if (b->target[k] == EG_PAD) continue;
            const double *at = x + k * v;
            int64_t best = least;
            double sum = 0;
            for (int64_t j = least; j < v; j++) best = at[j] > at[best] ? j : best;
            for (int64_t j = 0; j < v; j++) sum += exp(at[j]);
            s.loss += log(sum) - at[b->target[k]];
            s.tokens++;
            s.right += best == b->target[k];
            wrong += best != b->target[k];
        }
        s.exact += wrong == 0;
    }
    return s;
}
static void score_is(const eg_score *s, const eg_score *want)
{
    ck_assert_int_eq(s->sequences, want->sequences);
    ck_assert_int_eq(s->exact, want->exact);
    ck_assert_int_eq(s->tokens, want->tokens);
    ck_assert_int_eq(s->right, want->right);
    ck_assert_double_eq_tol(s->loss, want->loss, 1e-4 * fabs(want->loss));
}
/* Logits that are right at each position that counts: 9 at the target, more at tokens that are no
 * answer, and random values elsewhere. */
static eg_tensor *right_logits(const eg_batch *b, int form, int64_t v)
{
    eg_tensor *x = eg_uniform(cx, -1, 1, b->rows, b->length, v);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t k = 0; k < b->length; k++) {
            const int32_t target = b->target[r * b->length + k];
            float *at = eg_mut_f32(x) + (r * b->length + k) * v;
            at[EG_PAD] = 20, at[EG_SEP] = 30;
            if (form == NEXT) at[EG_STOP] = 40;
            if (target != EG_PAD) at[target] = 9;
        }
    return x;
}
LOOP_TEST(scores_are_counts_over_positions, FORMS)
{
    eg_data *d;
    eg_batches *t = batches(_i, &d);
    const int64_t v = eg_batches_sizes(t).vocabulary;
    for (int k = 0; k < 4; k++) {
        const eg_batch *b = eg_batches_at(t, k);
        const eg_dtype type = k % 2 ? EG_F64 : EG_F32;
        eg_tensor *drawn = eg_uniform_n(cx, type, -2, 2, 3, (int64_t[]){ b->rows, b->length, v }),
                  *turned = eg_permute(eg_contiguous(eg_permute(drawn, 2, 0, 1)), 1, 2, 0);
        const eg_score want = plainly(b, _i, drawn);
        eg_score s;
        ck_assert_int_eq(eg_batch_score(t, b, drawn, &s), 0);
        score_is(&s, &want);
        ck_assert_int_eq(eg_batch_score(t, b, turned, &s), 0);
        score_is(&s, &want);
        ck_assert_int_eq(eg_batch_counted(b), want.tokens);
        ck_assert_double_eq_tol(eg_item(eg_batch_loss(cx, b, drawn, 0)), want.loss,
                                1e-4 * want.loss);
        ck_assert_int_eq(eg_batch_score(t, b, drawn, NULL), 0);
    }
}
/* One position after another is made wrong: its token and its sequence no longer count as right.
 * Positions without a target have no effect. */
LOOP_TEST(one_wrong_token_costs_its_sequence, FORMS)
{
    eg_data *d;
    eg_batches *t = batches(_i, &d);
    const eg_batch *b = eg_batches_at(t, 2);
    const int64_t v = eg_batches_sizes(t).vocabulary, counted = eg_batch_counted(b);
    eg_tensor *x = right_logits(b, _i, v);
    eg_score s;
    ck_assert_int_eq(eg_batch_score(t, b, x, &s), 0);
    ck_assert(s.sequences == 5 && s.exact == 5 && s.tokens == counted && s.right == counted);
    for (int64_t k = 0; k < b->rows * b->length; k++) {
        const int32_t target = b->target[k], other = target == EG_FIRST ? EG_FIRST + 1 : EG_FIRST;
        float *at = eg_mut_f32(x) + k * v, was = at[other];
        const int lost = target != EG_PAD;
        at[other] = 10;
        ck_assert_int_eq(eg_batch_score(t, b, x, &s), 0);
        ck_assert(s.sequences == 5 && s.tokens == counted);
        ck_assert_int_eq(s.exact, 5 - lost);
        ck_assert_int_eq(s.right, counted - lost);
        eg_mut_f32(x)[k * v + other] = was;
    }
    /* two in one row cost one sequence */
    const int64_t last = b->lengths[3] - 1;
    for (int64_t k = 3 * b->length + last - 1; k <= 3 * b->length + last; k++)
        eg_mut_f32(x)[k * v + (b->target[k] == EG_FIRST ? EG_FIRST + 1 : EG_FIRST)] = 10;
    ck_assert_int_eq(eg_batch_score(t, b, x, &s), 0);
    const int64_t two = last > 0 && b->target[3 * b->length + last - 1] != EG_PAD ? 2 : 1;
    ck_assert(s.exact == 4 && s.right == counted - two);
}
/* The logits of a network that is right in every second row, and predicts the token at the position
 * itself elsewhere. */
static eg_tensor *every_second(const void *network, eg_ctx *c, const eg_batch *b)
{
    const int64_t *v = network;
    eg_tensor *x = eg_full(c, 0, b->rows, b->length, *v);
    for (int64_t k = 0; k < b->rows * b->length; k++)
        eg_mut_f32(x)[k * *v + (k / b->length % 2 ? b->tokens[k] : b->target[k])] = 3;
    return x;
}
/* The score of the test set is the sum over its batches, and its loss the mean over tokens. */
LOOP_TEST(scores_of_batches_add_up, FORMS)
{
    eg_data *d;
    eg_batches *t = batches(_i, &d);
    const int64_t v = eg_batches_sizes(t).vocabulary;
    const eg_batch *b;
    eg_score want = { 0 }, s, one;
    for (int k = 0; (b = eg_batches_test(t, k)); k++) {
        one = plainly(b, _i, every_second(&v, cx, b));
        want.sequences += one.sequences, want.exact += one.exact;
        want.tokens += one.tokens, want.right += one.right, want.loss += one.loss;
    }
    want.loss /= (double)want.tokens;
    ck_assert(want.exact > 0 && want.right > 0);
    eg_train(cx);
    const uint64_t draws = eg_draws(cx);
    ck_assert_int_eq(eg_batches_score(t, every_second, &v, &s), 0);
    score_is(&s, &want);
    ck_assert(eg_training(cx) && eg_draws(cx) == draws);
}
TEST(malformed_logits_of_a_score_are_refused)
{
    eg_data *d;
    eg_batches *t = batches(TWICE, &d);
    const eg_batch *b = eg_batches_at(t, 0);
    const int64_t v = eg_batches_sizes(t).vocabulary;
    char text[160];
    eg_score s = { .tokens = -7 };
    snprintf(text, sizeof text, "batch_score: the logits must be floats (b l v) of (5, %lld, 7), ",
             (long long)b->length);
    const struct {
        eg_tensor *x;
        const char *is;
    } bad[] = { { eg_ones(cx, 5, b->length, v + 1), "8)" },
                { eg_ones(cx, 5, b->length + 1, v), "not f32 of (5, " },
                { eg_ones(cx, 4, b->length, v), "not f32 of (4, " },
                { eg_ones(cx, 5 * b->length, v), "not f32 of (" },
                { eg_cast(eg_ones(cx, 5, b->length, v), EG_I32), "not i32 of (5, " },
                { eg_cast(eg_ones(cx, 5, b->length, v), EG_F16), "not f16 of (5, " } };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ck_assert_int_eq(eg_batch_score(t, b, bad[k].x, &s), -1);
        ck_assert_ptr_nonnull(strstr(eg_error(cx), text));
        eg_assert_error(cx, bad[k].is);
    }
    ck_assert_int_eq(eg_batch_score(t, b, NULL, &s), -1);
    eg_assert_error(cx, "batch_score: it gave no logits");
    eg_ctx *other = eg_open();
    ck_assert_int_eq(eg_batch_score(t, b, eg_ones(other, 5, b->length, v), &s), -1);
    eg_assert_error(cx, "batch_score: the logits belong to another context");
    eg_close(other);
    eg_clear(NULL);
    ck_assert_int_eq(eg_batch_score(NULL, b, bad[0].x, &s), -1);
    eg_assert_error(NULL, "batch_score: the batches are NULL");
    ck_assert_int_eq(eg_batch_score(t, NULL, bad[0].x, &s), -1);
    eg_assert_error(cx, "batch_score: the batch is NULL");
    ck_assert_int_eq(s.tokens, -7);
    eg_assert_ok(cx);
}
