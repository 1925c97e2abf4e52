/* test_decode.c: sequences from a step function: greedy, drawn, beam search against all
 * sequences. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_cx(void) { cx = eg_open(.threads = 1); }
static void close_cx(void) { eg_close(cx); }

/* A language of CLASSES tokens: the logits depend on the last two tokens and on the position. */
enum { CLASSES = 4, LONGEST = 5, END = 3 };
typedef struct language {
    uint64_t seed;
    int calls;
    int64_t rows;
    bool remembers;
    int32_t last[64][2];
    int classes;
    double sharp;
} language;

static double logit(const language *l, int64_t place, int32_t before, int32_t last, int v)
{
    eg_rng rng = { l->seed, (uint64_t)(place * 10000 + before * 100 + last), (uint64_t)v };
    return l->sharp * (eg_rng_below(&rng, 1000) / 250.0 - 2);
}

static eg_tensor *next(void *user, const eg_prefixes *p)
{
    language *l = user;
    int classes = l->classes ? l->classes : CLASSES;
    double x[64 * 32];
    int32_t kept[64][2];
    l->calls++, l->rows = p->rows;
    for (int64_t r = 0; r < p->rows; r++) {
        const int32_t *t = p->tokens + r * p->length;
        int32_t last = t[p->length - 1], before = p->length > 1 ? t[p->length - 2] : 0;
        /* computed from what it has stored and the newest token, as with a cache */
        if (l->remembers) {
            if (p->from) before = l->last[p->from[r]][1];
            kept[r][0] = before, kept[r][1] = last;
        }
        for (int v = 0; v < classes; v++) x[r * classes + v] = logit(l, p->length, before, last, v);
    }
    memcpy(l->last, kept, l->remembers ? sizeof kept : 0);
    return eg_from(cx, x, p->rows, classes);
}

/* of token after t, by the definition */
static double log_p(const language *l, const int32_t *t, int64_t length, int32_t token)
{
    double sum = 0;
    for (int v = 0; v < CLASSES; v++)
        sum += exp(logit(l, length, length > 1 ? t[length - 2] : 0, t[length - 1], v));
    return logit(l, length, length > 1 ? t[length - 2] : 0, t[length - 1], token) - log(sum);
}

static const int32_t prompt[] = { 1, 2 };
#define PROMPT \
    .cx = cx, .next = next, .prompt = prompt, .prompt_length = 2, .max_new_tokens = LONGEST

/* all sequences: the best score over those that end or have the largest length */
static double best_of_all(const language *l, int32_t *t, int64_t n, double sum, double power,
                          int *count)
{
    double best = -INFINITY;
    for (int v = 0; v < CLASSES; v++) {
        double here = sum + log_p(l, t, 2 + n, v);
        t[2 + n] = v;
        if (v == END || n + 1 == LONGEST) {
            best = fmax(best, here / pow((double)n + 1, power));
            ++*count;
        } else {
            best = fmax(best, best_of_all(l, t, n + 1, here, power, count));
        }
    }
    return best;
}

GROUP("decode", .setup = open_cx, .teardown = close_cx)

TEST(a_beam_of_all_sequences_finds_the_best)
{
    static const double powers[] = { EG_OFF, 1, 0.6, 2 };
    for (uint64_t seed = 0; seed < 10; seed++)
        for (int k = 0; k < 4; k++) {
            language l = { .seed = seed, .sharp = 1 };
            int32_t t[8] = { 1, 2 };
            int count = 0;
            double right = best_of_all(&l, t, 0, 0, powers[k] == EG_OFF ? 0 : powers[k], &count);
            const eg_decoded *d =
                eg_decode(PROMPT, .user = &l, .end = END, .beam = 1024, .length_power = powers[k]);
            eg_assert_ok(cx);
            ck_assert_double_eq_tol(d->sequence[0].score, right, 1e-12);
            for (int64_t j = 1; j < d->count; j++)
                ck_assert(d->sequence[j].score <= d->sequence[j - 1].score);
            if (k == 0 || k == 1) ck_assert_int_le(d->count, count);
        }
}

/* ¼ ¼ – ½, then ½ – – ½, then 1 – – – */
static eg_tensor *late(void *user, const eg_prefixes *p)
{
    (void)user;
    static const double x[3][CLASSES] = { { 0, 0, -INFINITY, 0.69314718055994531 },
                                          { 0, -INFINITY, -INFINITY, 0 },
                                          { 0, -INFINITY, -INFINITY, -INFINITY } };
    return eg_expand(eg_from(cx, x[p->length < 4 ? p->length - 2 : 2], CLASSES), p->rows, CLASSES);
}

/* its sum is smaller than that of sequences that ended, its mean is not */
TEST(a_prefix_that_can_still_be_the_best_is_kept)
{
    const eg_decoded *d = eg_decode(.cx = cx, .next = late, .prompt = prompt, .prompt_length = 2,
                                    .max_new_tokens = LONGEST, .end = END, .beam = 2);
    ck_assert(d->sequence[0].count == LONGEST && !d->sequence[0].ended);
    ck_assert_double_eq_tol(d->sequence[0].score, log(1.0 / 8) / LONGEST, 1e-12);
    d = eg_decode(.cx = cx, .next = late, .prompt = prompt, .prompt_length = 2,
                  .max_new_tokens = LONGEST, .end = END, .beam = 2, .length_power = EG_OFF);
    ck_assert(d->sequence[0].count == 0 && d->sequence[0].ended);
}

/* each sequence of the beam: Σ ln p by the definition; no two are equal */
TEST(a_sequence_has_its_own_score)
{
    language l = { .seed = 4, .sharp = 1 };
    const eg_decoded *d = eg_decode(PROMPT, .user = &l, .end = END, .beam = 6);
    ck_assert_int_eq(d->count, 6);
    for (int64_t k = 0; k < d->count; k++) {
        const eg_sequence *s = &d->sequence[k];
        int32_t t[16] = { 1, 2 };
        double sum = 0;
        for (int64_t j = 0; j < s->count; j++) {
            sum += log_p(&l, t, 2 + j, s->tokens[j]);
            t[2 + j] = s->tokens[j];
        }
        sum += s->ended ? log_p(&l, t, 2 + s->count, END) : 0;
        ck_assert_double_eq_tol(s->log_p, sum, 1e-12);
        ck_assert_double_eq_tol(s->score, sum / (double)(s->count + s->ended), 1e-12);
        ck_assert(s->ended || s->count == LONGEST);
        for (int64_t j = 0; j < k; j++)
            ck_assert(
                d->sequence[j].count != s->count ||
                memcmp(d->sequence[j].tokens, s->tokens, (size_t)s->count * sizeof *s->tokens));
    }
}

/* a step function with a cache gives the same as one that reads all tokens */
TEST(prefixes_name_the_row_that_each_continues)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        language full = { .seed = seed, .sharp = 1 },
                 cached = { .seed = seed, .sharp = 1, .remembers = true };
        const eg_decoded *a = eg_decode(PROMPT, .user = &full, .end = END, .beam = 3),
                         *b = eg_decode(PROMPT, .user = &cached, .end = END, .beam = 3);
        eg_assert_ok(cx);
        ck_assert_int_eq(a->count, b->count);
        for (int64_t k = 0; k < a->count; k++) {
            ck_assert_double_eq(a->sequence[k].score, b->sequence[k].score);
            ck_assert_int_eq(a->sequence[k].count, b->sequence[k].count);
            ck_assert(!memcmp(a->sequence[k].tokens, b->sequence[k].tokens,
                              (size_t)a->sequence[k].count * sizeof(int32_t)));
        }
    }
}

/* As users write it: run the new tokens, select the rows that the search continues. The first call
 * has one row. */
typedef struct told {
    eg_transformer *net;
    eg_cache *cache;
} told;
static eg_tensor *behind_a_cache(void *user, const eg_prefixes *p)
{
    const told *u = user;
    int64_t fresh = u->cache && p->from ? 1 : p->length;
    if (u->cache && p->from && eg_cache_select(u->cache, eg_from(cx, p->from, p->rows)))
        return NULL;
    int32_t tokens[64];
    for (int64_t r = 0; r < p->rows; r++)
        memcpy(tokens + r * fresh, p->tokens + (r + 1) * p->length - fresh,
               (size_t)fresh * sizeof *tokens);
    return eg_select_axis(eg_transformer_run(u->net, eg_from(cx, tokens, p->rows, fresh),
                                             .where = "j <= i", .cache = u->cache),
                          1, fresh - 1);
}
TEST(a_cache_needs_no_padding)
{
    for (int beam = 1; beam < 6; beam++) {
        eg_params *p = eg_params_open(cx);
        eg_transformer *net = eg_transformer_new(p, "", .vocabulary = CLASSES, .d_model = 8,
                                                 .heads = 2, .layers = 2, .length = 2 + LONGEST);
        eg_nograd(cx, true);
        told full = { net, NULL }, cached = { net, eg_cache_new(eg_params_owner(p), 2 + LONGEST) };
        const eg_decoded *a = eg_decode(.cx = cx, .next = behind_a_cache, .user = &full,
                                        .prompt = prompt, .prompt_length = 2,
                                        .max_new_tokens = LONGEST, .beam = beam),
                         *b = eg_decode(.cx = cx, .next = behind_a_cache, .user = &cached,
                                        .prompt = prompt, .prompt_length = 2,
                                        .max_new_tokens = LONGEST, .beam = beam);
        eg_assert_ok(cx);
        eg_nograd(cx, false);
        ck_assert(a && b && a->count == b->count && a->count == beam);
        for (int64_t k = 0; k < a->count; k++) {
            ck_assert_double_eq_tol(a->sequence[k].log_p, b->sequence[k].log_p, 1e-4);
            ck_assert(!memcmp(a->sequence[k].tokens, b->sequence[k].tokens,
                              (size_t)a->sequence[k].count * sizeof(int32_t)));
        }
    }
}

TEST(greedy_takes_the_likeliest)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        language l = { .seed = seed, .sharp = 1 };
        const eg_decoded *d = eg_decode(PROMPT, .user = &l, .end = END);
        ck_assert_int_eq(d->count, 1);
        const eg_sequence *s = d->sequence;
        int32_t t[16] = { 1, 2 };
        for (int64_t k = 0; k < s->count + s->ended; k++) {
            int32_t token = k < s->count ? s->tokens[k] : END;
            for (int v = 0; v < CLASSES; v++)
                ck_assert(log_p(&l, t, 2 + k, v) <= log_p(&l, t, 2 + k, token));
            t[2 + k] = token;
        }
        ck_assert_int_eq(l.calls, s->count + s->ended);
        /* the limit of draws */
        const eg_decoded *cold = eg_decode(PROMPT, .user = &l, .end = END, .temperature = 1e-12);
        ck_assert(cold->sequence->count == s->count &&
                  !memcmp(cold->sequence->tokens, s->tokens, (size_t)s->count * sizeof(int32_t)));
        const eg_decoded *off =
            eg_decode(PROMPT, .user = &l, .end = END, .temperature = EG_OFF, .top_k = 2);
        ck_assert(off->sequence->count == s->count);
    }
}

/* shares of the first token over many seeds, compared with q by its definition */
static void shares(double temperature, int64_t top_k, double top_p, const bool *kept)
{
    enum { DRAWS = 4000 };
    language l = { .seed = 11, .sharp = 1 };
    int count[CLASSES] = { 0 };
    double q[CLASSES], sum = 0;
    for (int v = 0; v < CLASSES; v++)
        sum += q[v] =
            kept[v] ? exp(log_p(&l, prompt, 2, v) / (temperature > 0 ? temperature : 1)) : 0;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        eg_mark m = eg_push(cx);
        const eg_decoded *d =
            eg_decode(.cx = cx, .next = next, .user = &l, .prompt = prompt, .prompt_length = 2,
                      .max_new_tokens = 1, .temperature = temperature, .top_k = top_k,
                      .top_p = top_p, .seed = seed);
        count[d->sequence->tokens[0]]++;
        ck_assert_double_eq_tol(d->sequence->log_p, log_p(&l, prompt, 2, d->sequence->tokens[0]),
                                1e-12);
        eg_pop(cx, m);
    }
    for (int v = 0; v < CLASSES; v++) {
        double p = q[v] / sum;
        ck_assert_msg(fabs(count[v] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)),
                      "token %d: %d of %d, expected %g", v, count[v], DRAWS, DRAWS * p);
    }
}

TEST(frequencies_of_draws_equal_the_probabilities)
{
    language l = { .seed = 11, .sharp = 1 };
    int order[CLASSES] = { 0, 1, 2, 3 };
    for (int i = 0; i < CLASSES; i++)
        for (int j = i + 1; j < CLASSES; j++)
            if (log_p(&l, prompt, 2, order[j]) > log_p(&l, prompt, 2, order[i])) {
                int t = order[i];
                order[i] = order[j], order[j] = t;
            }
    bool kept[CLASSES] = { true, true, true, true };
    shares(1, 0, 0, kept);
    shares(2.5, 0, 0, kept);
    shares(0.5, 4, 1, kept);
    kept[order[3]] = false;
    shares(0.7, 3, 0, kept);
    kept[order[2]] = false;
    double two = exp(log_p(&l, prompt, 2, order[0])) + exp(log_p(&l, prompt, 2, order[1]));
    shares(0, 0, two - 1e-9, kept); /* the smallest number with this sum: two */
    shares(0, 3, 1e-9 + 0.5 * (two + exp(log_p(&l, prompt, 2, order[0]))), kept);
}

TEST(a_seed_is_a_sequence)
{
    language l = { .seed = 3, .classes = 8, .sharp = 0.3 };
    int differ = 0;
    const eg_decoded *first = NULL;
    for (uint64_t seed = 0; seed < 10; seed++) {
        const eg_decoded *a = eg_decode(PROMPT, .user = &l, .temperature = 1, .seed = seed);
        eg_seed(cx, 99); /* the context's own draws have no effect */
        const eg_decoded *b = eg_decode(PROMPT, .user = &l, .temperature = 1, .seed = seed);
        ck_assert(a->sequence->count == LONGEST && !a->sequence->ended);
        ck_assert(!memcmp(a->sequence->tokens, b->sequence->tokens, LONGEST * sizeof(int32_t)));
        differ += first &&
                  memcmp(first->sequence->tokens, a->sequence->tokens, LONGEST * sizeof(int32_t));
        first = first ? first : a;
    }
    ck_assert_int_ge(differ, 8);
}

TEST(tokens_below_min_token_are_not_chosen)
{
    language l = { .seed = 5, .classes = 8, .sharp = 0.1 };
    for (uint64_t seed = 0; seed < 50; seed++) {
        const eg_decoded *d =
            eg_decode(PROMPT, .user = &l, .min_token = 4, .end = 2, .temperature = 3, .seed = seed);
        for (int64_t k = 0; k < d->sequence->count; k++)
            ck_assert_int_ge(d->sequence->tokens[k], 4);
    }
    const eg_decoded *d = eg_decode(PROMPT, .user = &l, .min_token = 7, .beam = 3);
    ck_assert(d->count == 1 && d->sequence->count == LONGEST && d->sequence->log_p == 0);
    const eg_decoded *zero =
        eg_decode(PROMPT, .user = &l, .min_token = 7, .end = EG_OFF, .beam = 40);
    for (int64_t k = 0; k < zero->count; k++)
        for (int64_t j = 0; j < zero->sequence[k].count; j++)
            ck_assert_int_eq(zero->sequence[k].tokens[j], 7);
    ck_assert_int_eq(zero->count, LONGEST + 1); /* ended after 0 … 4, and not ended */
}

/* -- refusals --------------------------------------------------------------------------------- */
typedef struct odd {
    int kind;
} odd;
static eg_tensor *odd_next(void *user, const eg_prefixes *p)
{
    const odd *o = user;
    switch (o->kind) {
    case 0: return eg_ones(cx, p->rows + 1, 4);
    case 1: return eg_ones(cx, 4);
    case 2: return eg_full(cx, NAN, p->rows, 4);
    case 3: return eg_full(cx, -INFINITY, p->rows, 4);
    case 4: return eg_ones(cx, p->rows, p->length);
    case 5: return NULL;
    case 6: return eg_full_n(cx, EG_I32, 0, 2, (int64_t[]){ p->rows, 4 });
    default: return eg_ones(cx, p->rows, 2);
    }
}

LOOP_TEST(malformed_logits_are_refused, 8)
{
    static const char *const why[] = {
        "decode: the logits must be floats of (1, v), not f32 of rank 2 with 2 first",
        "decode: the logits must be floats of (1, v)",
        "decode: logit 0 after 2 tokens is nan",
        "decode: every token that may follow after 2 has a logit of −inf",
        "decode: 'v' is 3 in these logits but 2 in those before",
        "decode: the step function gave no logits",
        "decode: the logits must be floats of (1, v), not i32",
        "decode: the token 3 is not below 2, the number of logits"
    };
    odd o = { _i };
    for (int64_t beam = 1; beam < 4; beam += 2) {
        ck_assert_ptr_null(eg_decode(.cx = cx, .next = odd_next, .user = &o, .prompt = prompt,
                                     .prompt_length = 2, .max_new_tokens = 3, .beam = beam,
                                     .end = _i == 7 ? 3 : 0));
        eg_assert_error(cx, beam > 1 && _i == 4 ? "decode: 'v' is 3" : why[_i]);
    }
}

TEST(wrong_options_of_decode_are_refused)
{
    language l = { .seed = 1, .sharp = 1 };
    static const struct {
        eg_decode_args o;
        const char *why;
    } cases[] = {
        { { .temperature = -1 }, "decode: the temperature must be positive, not -1" },
        { { .temperature = NAN }, "decode: the temperature must be positive" },
        { { .temperature = INFINITY }, "decode: the temperature must be positive" },
        { { .top_k = -2 }, "decode: top_k must be positive, not -2" },
        { { .top_p = 1.5 }, "decode: top_p must be above 0 and at most 1, not 1.5" },
        { { .top_p = NAN }, "decode: top_p must be" },
        { { .beam = -1 }, "decode: beam must be from 1" },
        { { .beam = 4, .temperature = 1 }, "decode: a beam of 4 draws nothing" },
        { { .beam = 4, .top_k = 2 }, "decode: a beam of 4 draws nothing" },
        { { .beam = 2, .length_power = -1 }, "decode: length_power must not be negative" },
        { { .end = -5 }, "decode: the token -5 is negative" },
        { { .min_token = -5 }, "decode: the token -5 is negative" },
        { { .max_new_tokens = -1 }, "decode: max_new_tokens must be from 1" },
        { { .prompt_length = -1 }, "decode: the prompt is empty" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        eg_decode_args o = cases[k].o;
        o.size = sizeof o, o.cx = cx, o.next = next, o.user = &l, o.prompt = prompt;
        o.prompt_length = o.prompt_length ? 0 : 2, o.max_new_tokens = o.max_new_tokens ? 0 : 3;
        ck_assert_ptr_null(eg_decode_with(&o));
        eg_assert_error(cx, cases[k].why);
    }
    ck_assert_ptr_null(eg_decode(.cx = cx));
    eg_assert_error(cx, "decode: the step function is NULL");
    ck_assert_ptr_null(eg_decode(.next = next));
}

GROUP("memory")

TEST(each_allocation_may_fail)
{
    for (int64_t beam = 1; beam < 40; beam += 38)
        for (int n = 0, done = 0; !done; n++) {
            int left = n;
            language l = { .seed = 1, .sharp = 1 };
            cx = eg_open(.threads = 1, .realloc = failing, .user = &left);
            done = cx && eg_decode(PROMPT, .user = &l, .beam = beam,
                                   .temperature = beam > 1 ? 0 : 1) != NULL;
            ck_assert(!cx || done == !eg_error(cx));
            eg_close(cx);
            cx = NULL;
            ck_assert_int_lt(n, 10000);
        }
}
