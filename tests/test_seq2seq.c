/* test_seq2seq.c: an encoder and a decoder trained together, decoding with a cache compared with
 * full passes, heads that are switched off. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include <unistd.h>
#include "fixtures.h"
#include "tests.h"
#include "train/trainer.h" /* the functions of a network, with a cache and without */

static eg_ctx *cx;
static void open_f32(void) { cx = eg_open(.threads = 2); }
static void close_cx(void) { eg_close(cx); }

static void backwards(eg_rng *rng, eg_example *e) /* two to five letters */
{
    e->inputs = e->outputs = 2 + (int)eg_rng_below(rng, 4);
    for (int k = 0; k < e->inputs; k++) e->input[k] = (int)eg_rng_below(rng, 6);
    for (int k = 0; k < e->inputs; k++) e->output[k] = e->input[e->inputs - 1 - k];
}
static const eg_task own = {
    "backwards", "two to five letters backwards", "abcdef", 5, 5, false, false, backwards, 5e-3, 20,
    500
};

static eg_trainer *small(const char *model, double dropout)
{
    return eg_trainer_new(eg_data_task(cx, &own), .model = model, .layers = 1, .d_model = 32,
                          .heads = 2, .batch = 32, .seed = 2, .dropout = dropout);
}

GROUP("seq2seq", .setup = open_f32, .teardown = close_cx, .timeout = 600)

TEST(seq2seq_learns_and_predicts_as_in_evaluation)
{
    eg_trainer *t = small("seq2seq", 0);
    eg_progress p;
    eg_score s;
    ck_assert_int_eq(eg_trainer_run(t, NULL, NULL, &p), 0);
    ck_assert_msg(p.exact >= 0.95, "%g after %lld steps", p.exact, (long long)p.step);
    ck_assert_int_eq(eg_trainer_evaluate(t, &s), 0);
    ck_assert_int_gt(s.sequences, 300);
    eg_data *d = eg_trainer_data(t);
    int right = 0;
    char in[16], out[16];
    eg_example e;
    for (int k = 0; !eg_trainer_test(t, k, &e); k++) {
        eg_data_decode(d, e.inputs, e.input, in, sizeof in);
        eg_data_decode(d, e.outputs, e.output, out, sizeof out);
        right += !strcmp(eg_trainer_predict(t, in), out);
    }
    /* sources are padded in a batch, but single in a prediction */
    ck_assert_int_eq(right, s.exact);
    ck_assert_str_eq(eg_trainer_predict(t, "abcd"), "dcba");
    ck_assert_str_eq(eg_trainer_generate(t, .prompt = "abcd", .beam = 4), "dcba");
    ck_assert_str_eq(eg_trainer_generate(t, .prompt = "abcd", .length = 2), "dc");
    ck_assert_str_eq(eg_trainer_generate(t, .prompt = "abcd", .temperature = 1e-9), "dcba");
    const char *const *rows, *const *columns;
    int64_t l, h, i, j;
    eg_tensor *w = eg_trainer_attention_weights(t, "face", NULL, &rows, &columns);
    eg_assert_axes("l h i j", w, &l, &h, &i, &j);
    ck_assert(l == 1 && h == 2 && i == 5 && j == 4);
    ck_assert(!strcmp(rows[0], "e") && !strcmp(rows[3], "f") && !strcmp(rows[4], "■") &&
              !strcmp(columns[0], "f") && !strcmp(columns[3], "e"));
    double most = 0; /* some head attends to the symbol that is written */
    for (int k = 0; k < 2; k++) {
        double mass = 0;
        for (int at = 0; at < 4; at++) mass += eg_get(w, 0, k, at, 3 - at) / 4;
        most = mass > most ? mass : most;
    }
    ck_assert_msg(most > 0.5, "%g", most);
    w = eg_trainer_attention_weights(t, "face", "encoder", &rows, &columns);
    ck_assert(eg_dim(w, 2) == 4 && eg_dim(w, 3) == 4 && !strcmp(rows[1], "a") &&
              !strcmp(columns[3], "e"));
    w = eg_trainer_attention_weights(t, "face", "decoder", &rows, &columns);
    ck_assert(eg_dim(w, 2) == 5 && eg_dim(w, 3) == 5 && !strcmp(rows[0], "|") &&
              !strcmp(columns[1], "e"));
    ck_assert_double_eq(eg_get(w, 0, 0, 1, 2), 0); /* causal */
    eg_trainer_check_report r;
    ck_assert_int_eq(eg_trainer_check(t, &r), 0);
    ck_assert_msg(r.right == r.entries && r.entries == eg_params_size(eg_trainer_params(t)),
                  "worst %g in %s", r.worst, r.worst_name);
    eg_assert_ok(cx);
}

typedef struct passes {
    eg_trainer *t;
    const int32_t *source;
    int64_t sources;
} passes;
static eg_tensor *whole_pass(void *user, const eg_prefixes *p)
{
    const passes *w = user;
    int32_t source[64 * 8];
    for (int64_t k = 0; k < p->rows * w->sources; k++) source[k] = w->source[k % w->sources];
    eg_batch b = { .rows = p->rows,
                   .length = p->length,
                   .source_length = w->sources,
                   .tokens = p->tokens,
                   .source = source };
    return eg_select_axis(eg__network_logits(w->t, cx, &b, NULL), 1, p->length - 1);
}

/* a beam with caches has the result of a beam of full passes */
LOOP_TEST(beams_select_their_rows_of_the_cache, 2)
{
    static const char *const models[] = { "decoder", "seq2seq" };
    eg_trainer *t = small(models[_i], 0);
    for (int k = 0; k < 40; k++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    bool apart = t->network->source;
    int differ = 0;
    for (int k = 0; k < 30; k++) {
        char in[16], message[64], greedy[64];
        eg_example e;
        eg_trainer_test(t, k, &e);
        eg_data_decode(t->data, e.inputs, e.input, in, sizeof in);
        strcpy(message, eg_trainer_generate(t, .prompt = in, .beam = 5));
        strcpy(greedy, eg_trainer_generate(t, .prompt = in));
        e.input[e.inputs] = EG_SEP;
        passes w = { t, e.input, e.inputs };
        eg_eval(cx);
        bool was = eg_nograd(cx, true);
        const eg_decoded *d =
            eg_decode(.cx = cx, .next = whole_pass, .user = &w,
                      .prompt = apart ? e.input + e.inputs : e.input,
                      .prompt_length = apart ? 1 : e.inputs + 1,
                      .max_new_tokens = t->batches->longest - (apart ? 1 : e.inputs + 1) + 1,
                      .min_token = EG_FIRST, .end = EG_STOP, .beam = 5);
        eg_nograd(cx, was);
        eg_assert_ok(cx);
        char right[64];
        eg_data_decode(t->data, (int)d->sequence->count, d->sequence->tokens, right, sizeof right);
        ck_assert_str_eq(message, right);
        differ += strcmp(message, greedy) != 0;
    }
    ck_assert_int_gt(differ, 3); /* so the order of rows mattered */
}

/* greedy, 40 characters with a context of 6: equal to full passes over the window */
TEST(a_text_beyond_its_context)
{
    static char text[600];
    for (int k = 0; k < 600; k++) text[k] = (char)('a' + k * k / 7 % 11);
    eg_trainer *t = eg_trainer_new(eg_data_corpus_of(cx, text, sizeof text, "squares"), .layers = 2,
                                   .d_model = 16, .heads = 2, .context = 6, .batch = 8);
    for (int k = 0; k < 20; k++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    const char *message =
        eg_trainer_generate(t, .prompt = "abc", .length = 40, .temperature = EG_OFF);
    ck_assert_uint_eq(strlen(message), 40);
    int32_t tokens[64];
    eg_data_encode(t->data, "abc", 64, tokens);
    eg_nograd(cx, true);
    eg_eval(cx);
    for (int64_t n = 3, sight = 3; n < 43; n++, sight = sight == 6 ? 4 : sight + 1) {
        eg_batch b = { .rows = 1, .length = sight, .tokens = tokens + n - sight };
        eg_tensor *logits =
            eg_slice_axis(eg_select_axis(eg__network_logits(t, cx, &b, NULL), 1, sight - 1), 1,
                          EG_FIRST, EG_END, 1);
        tokens[n] = (int32_t)*eg_i64(eg_argmax("b [v]", logits)) + EG_FIRST;
        ck_assert_msg(*eg_data_symbol(t->data, tokens[n]) == message[n - 3],
                      "character %lld is %c, not %s", (long long)n - 3, message[n - 3],
                      eg_data_symbol(t->data, tokens[n]));
    }
}

TEST(a_resumed_run_has_the_same_bits)
{
    char path[] = "/tmp/eg_two_XXXXXX";
    close(mkstemp(path));
    eg_trainer *t = small("seq2seq", 0.1);
    eg_progress p, q;
    for (int k = 0; k < 3; k++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    ck_assert_int_eq(eg_trainer_save(t, path), 0);
    for (int k = 0; k < 4; k++) ck_assert_int_eq(eg_trainer_step(t, &p), 0);
    eg_threads(cx, 1);
    eg_trainer *again = eg_trainer_load(cx, path, .data = eg_data_task(cx, &own));
    ck_assert_msg(again != NULL, "%s", eg_error(cx));
    ck_assert_str_eq(eg_trainer_config(again)->model, "seq2seq");
    for (int k = 0; k < 4; k++) ck_assert_int_eq(eg_trainer_step(again, &q), 0);
    ck_assert(p.loss == q.loss && p.norm == q.norm && p.step == q.step);
    unlink(path);
}

/* -- heads ------------------------------------------------------------------------------------ */
/* off: as if its part of W_o were 0; on again: as before */
LOOP_TEST(a_head_off_is_its_rows_of_W_o, 3)
{
    static const char *const models[] = { "decoder", "encoder", "seq2seq" }, *const names[] = {
        "0", "0", "c0"
    };
    static const char *const weights[] = { "0.self.W_o", "0.self.W_o", "decoder.0.cross.W_o" };
    eg_trainer *t = small(models[_i], 0);
    eg_score before, off, zero, again;
    for (int k = 0; k < 15; k++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    eg_head_at head = { 0, 1 };
    while (strcmp(eg_trainer_attention(t, head.attention), names[_i])) head.attention++;
    ck_assert_int_eq(eg_trainer_attentions(t), _i == 2 ? 3 : 1);
    ck_assert_ptr_null(eg_trainer_attention(t, eg_trainer_attentions(t)));
    ck_assert_int_eq(eg_trainer_evaluate(t, &before), 0);
    ck_assert_int_eq(eg_trainer_heads_off(t, 1, &head), 0);
    ck_assert_int_eq(eg_trainer_evaluate(t, &off), 0);
    ck_assert_int_eq(eg_trainer_heads_off(t, 0, NULL), 0);
    ck_assert_int_eq(eg_trainer_evaluate(t, &again), 0);
    eg_tensor *W_o = eg_params_find(eg_trainer_params(t), weights[_i]);
    ck_assert_int_eq(eg_fill(eg_select_axis(W_o, 0, 1), 0), 0);
    ck_assert_int_eq(eg_trainer_evaluate(t, &zero), 0);
    ck_assert_double_eq_tol(off.loss, zero.loss, 1e-5);
    ck_assert(fabs(off.loss - before.loss) > 1e-4 && again.loss == before.loss);
    ck_assert_int_eq(eg_trainer_heads_off(t, 1, &(eg_head_at){ 7, 0 }), -1);
    eg_assert_error(cx, "heads off: there is no head 0 of attention 7");
    ck_assert_int_eq(eg_trainer_heads_off(t, 1, &(eg_head_at){ 0, 2 }), -1);
    eg_assert_error(cx, "heads off: there is no head 2 of attention 0");
}

/* each of the six attentions of two layers, also if the answer is decoded from a stored memory */
TEST(each_attention_has_its_own_heads)
{
    static const char *const weights[] = { "encoder.0.self.W_o",  "encoder.1.self.W_o",
                                           "decoder.0.self.W_o",  "decoder.1.self.W_o",
                                           "decoder.0.cross.W_o", "decoder.1.cross.W_o" },
                             *const names[] = { "e0", "e1", "d0", "d1", "c0", "c1" };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, &own), .model = "seq2seq", .layers = 2,
                                   .d_model = 16, .heads = 2, .batch = 16, .seed = 2);
    for (int k = 0; k < 10; k++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    ck_assert_int_eq(eg_trainer_attentions(t), 6);
    eg_score before, off, zero;
    ck_assert_int_eq(eg_trainer_evaluate(t, &before), 0);
    for (int k = 0; k < 6; k++) {
        eg_tensor *W_o = eg_params_find(eg_trainer_params(t), weights[k]);
        ck_assert_msg(W_o != NULL, "%s", eg_error(cx));
        eg_tensor *part = eg_select_axis(W_o, 0, 1), *kept = eg_copy(part);
        ck_assert_str_eq(eg_trainer_attention(t, k), names[k]);
        ck_assert_int_eq(eg_trainer_heads_off(t, 1, &(eg_head_at){ k, 1 }), 0);
        ck_assert_int_eq(eg_trainer_evaluate(t, &off), 0);
        ck_assert_int_eq(eg_trainer_heads_off(t, 0, NULL), 0);
        ck_assert_int_eq(eg_fill(part, 0), 0);
        ck_assert_int_eq(eg_trainer_evaluate(t, &zero), 0);
        ck_assert_int_eq(eg_assign(part, kept), 0);
        ck_assert_msg(fabs(off.loss - zero.loss) < 1e-5, "%s: %g, not %g", names[k], off.loss,
                      zero.loss);
        ck_assert_msg(off.loss != before.loss, "%s: nothing is off", names[k]);
        ck_assert_msg(off.right == zero.right && off.exact == zero.exact, "%s: right", names[k]);
    }
}

/* An answer is decoded from the encoder's stored result, also with a head switched off. The heads
 * are scaled up, so that answers depend on each. */
TEST(answers_are_decoded_without_heads_that_are_off)
{
    enum { ASKED = 40, ROOM = 16 };
    static const char *const weights[] = { "encoder.0.self.W_o", "decoder.0.self.W_o",
                                           "decoder.0.cross.W_o" };
    static char whole[ASKED][ROOM], off[ASKED][ROOM];
    eg_trainer *t = small("seq2seq", 0);
    for (int k = 0; k < 40; k++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    for (int k = 0; k < 3; k++) {
        eg_tensor *W_o = eg_params_find(eg_trainer_params(t), weights[k]),
                  *head = eg_select_axis(W_o, 0, 1), *kept = eg_copy(eg_scale(head, 6));
        int others = 0;
        ck_assert_int_eq(eg_assign(head, kept), 0);
        for (int turn = 0; turn < 3; turn++) { /* as it is, off, and with zeros in its place */
            if (turn == 1) ck_assert_int_eq(eg_trainer_heads_off(t, 1, &(eg_head_at){ k, 1 }), 0);
            if (turn == 2) {
                ck_assert_int_eq(eg_trainer_heads_off(t, 0, NULL), 0);
                ck_assert_int_eq(eg_fill(head, 0), 0);
            }
            for (int n = 0; n < ASKED; n++) {
                char in[ROOM];
                eg_example e;
                ck_assert_int_eq(eg_trainer_test(t, n, &e), 0);
                eg_data_decode(t->data, e.inputs, e.input, in, sizeof in);
                const char *message = eg_trainer_predict(t, in);
                ck_assert_msg(message != NULL, "%s", eg_error(cx));
                if (turn == 2) ck_assert_str_eq(message, off[n]);
                if (turn == 1) others += strcmp(message, whole[n]) != 0;
                if (turn < 2) snprintf(turn ? off[n] : whole[n], ROOM, "%s", message);
            }
        }
        ck_assert_msg(others > 0, "%s: no answer depends on the head", weights[k]);
        ck_assert_int_eq(eg_assign(head, kept), 0);
    }
}

TEST(trainers_name_the_part_or_the_input_that_they_refuse)
{
    eg_trainer *t = small("seq2seq", 0), *d = small("decoder", 0);
    ck_assert_ptr_null(eg_trainer_self_attention_weights(t, "abc", NULL));
    eg_assert_error(cx, "attend: rows and columns of a model \"seq2seq\" have tokens of their own; "
                        "eg_trainer_attention_weights gives both");
    ck_assert_ptr_null(eg_trainer_attention_weights(d, "abc", "cross", NULL, NULL));
    eg_assert_error(cx, "attend: there is no part \"cross\" in a model \"decoder\"");
    ck_assert_ptr_null(eg_trainer_predict(t, "abcdef"));
    eg_assert_error(cx, "more than 5 symbols");
    ck_assert_ptr_null(eg_trainer_predict(t, ""));
    eg_assert_error(cx, "the input is empty");
    ck_assert_ptr_null(eg_trainer_attention_weights(t, "", NULL, NULL, NULL));
    eg_assert_error(cx, "the input is empty");
    ck_assert_ptr_null(eg_trainer_new(
        eg_data_corpus_of(cx, "abcdefghijklmnopqrstuvwxyz", 26, "abc"), .model = "seq2seq"));
    eg_assert_error(cx, "trainer: a text is learnt by a decoder, not by model \"seq2seq\"");
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, &own), .model = "rnn"));
    eg_assert_error(cx, "model \"rnn\" is neither encoder nor decoder nor seq2seq");
}

GROUP("contexts", .timeout = 600)

/* the logits at the last position of every prefix: a pass over the prefix compared with one more
 * token after a cache */
LOOP_TEST(a_cache_gives_the_full_pass, 4)
{
    static const struct {
        eg_dtype type;
        const char *model;
        double tolerance;
    } cases[] = { { EG_F64, "decoder", 1e-12 },
                  { EG_F64, "seq2seq", 1e-12 },
                  { EG_F32, "decoder", 2e-5 },
                  { EG_F32, "seq2seq", 2e-5 } };
    cx = eg_open(.dtype = cases[_i].type, .threads = 1);
    eg_trainer *t = small(cases[_i].model, 0.2);
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    eg_eval(cx);
    eg_nograd(cx, true);
    static const int32_t source[] = { 5, 3, 4, 8, 6 }, tokens[] = { 1, 4, 3, 5, 6 };
    eg_batch b = { .rows = 1, .length = 1, .source_length = 5, .tokens = tokens, .source = source };
    eg_owner *owner = eg_owner_open(cx);
    eg_cache *cache = eg_cache_new(owner, t->batches->longest);
    eg_tensor *memory = t->network->memory ? t->network->memory(t->net, cx, &b) : NULL;
    for (int64_t n = 1; n <= 5; n++) {
        eg_batch all = b, one = b;
        all.length = n, one.tokens = tokens + n - 1;
        one.memory = memory, one.cache = cache;
        eg_tensor *full = eg_select_axis(eg__network_logits(t, cx, &all, NULL), 1, n - 1);
        eg_tensor *cached = eg_select_axis(eg__network_logits(t, cx, &one, NULL), 1, 0);
        eg_assert_ok(cx);
        eg_assert_close(cached, eg_contiguous(full), cases[_i].tolerance);
    }
    eg_close(cx);
}

TEST(parts_of_a_batch) /* sources of different lengths belong to their rows */
{
    cx = eg_open(.dtype = EG_F64, .threads = 1);
    eg_progress p, q;
    eg_trainer *whole = eg_trainer_new(eg_data_task(cx, &own), .model = "seq2seq", .layers = 1,
                                       .d_model = 8, .heads = 2, .batch = 9);
    eg_trainer *parts = eg_trainer_new(eg_data_task(cx, &own), .model = "seq2seq", .layers = 1,
                                       .d_model = 8, .heads = 2, .batch = 9, .block = 3);
    for (int k = 0; k < 5; k++) {
        ck_assert(!eg_trainer_step(whole, &p) && !eg_trainer_step(parts, &q));
        ck_assert_double_eq_tol(p.loss, q.loss, 1e-11);
        ck_assert_double_eq(p.accuracy, q.accuracy);
    }
    for (int k = 0; eg_params_at(eg_trainer_params(whole), k); k++)
        eg_assert_close(eg_params_at(eg_trainer_params(whole), k)->x,
                        eg_params_at(eg_trainer_params(parts), k)->x, 1e-9);
    eg_close(cx);
}

static bool seq2seq_life(eg_ctx *own_cx, const char *path)
{
    (void)path;
    eg_trainer *t = eg_trainer_new(eg_data_task(own_cx, &own), .model = "seq2seq", .layers = 1,
                                   .d_model = 8, .heads = 2, .batch = 4);
    return t && !eg_trainer_step(t, NULL) && eg_trainer_predict(t, "abc") &&
           eg_trainer_generate(t, .prompt = "abc", .beam = 3) &&
           eg_trainer_attention_weights(t, "abc", NULL, NULL, NULL) &&
           !eg_trainer_heads_off(t, 1, &(eg_head_at){ 1, 1 });
}
TEST(each_allocation_may_fail) { memory_ends_in_turn(seq2seq_life, 60); }
