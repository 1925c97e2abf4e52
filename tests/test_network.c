/* test_network.c: custom networks in a trainer, batches by number, and custom loops. */
#include <config.h> /* EG_DEBUG_ALLOC */
#include <eingrad.h>
#include <eingrad/check.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f32(void) { cx = eg_open(.threads = 2); }
static void close_cx(void) { eg_close(cx); }

/* -- networks: the built-in ones as custom ones, one with options of its own, and wrong ones --- */
typedef struct mine {
    int64_t kv_heads;
    double cap;
    eg_tensor *table; /* used by the wrong ones */
    int calls;
} mine;

static void *make_plain(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    return eg_transformer_new(p, "", .vocabulary = n->vocabulary, .length = n->length,
                              .d_model = o->d_model, .heads = o->heads, .layers = o->layers,
                              .width = o->width, .dropout = o->dropout);
}
static eg_tensor *plain_encoder(const void *net, eg_ctx *c, const eg_batch *b)
{
    return eg_transformer_run(net, eg_batch_tokens(c, b), .lengths = eg_batch_lengths(c, b),
                              .packed_length = eg_batch_packed_length(b), .weights = b->weights,
                              .gain = b->gain);
}
static eg_tensor *plain_decoder(const void *net, eg_ctx *c, const eg_batch *b)
{
    return eg_transformer_run(net, eg_batch_tokens(c, b), .where = "j <= i", .cache = b->cache,
                              .lengths = eg_batch_lengths(c, b),
                              .packed_length = eg_batch_packed_length(b), .weights = b->weights,
                              .gain = b->gain);
}

static void *make_seq2seq(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    return eg_seq2seq_new(p, "", .vocabulary = n->vocabulary, .source_length = n->source_length,
                          .length = n->length, .d_model = o->d_model, .heads = o->heads,
                          .layers = o->layers, .width = o->width, .dropout = o->dropout,
                          .shared = true);
}
static eg_tensor *plain_seq2seq(const void *net, eg_ctx *c, const eg_batch *b)
{
    return eg_seq2seq_run(net, eg_batch_source(c, b), eg_batch_tokens(c, b),
                          .source_lengths = eg_batch_source_lengths(c, b),
                          .packed_source_length = eg_batch_packed_source_length(b),
                          .lengths = eg_batch_lengths(c, b),
                          .packed_length = eg_batch_packed_length(b));
}
/* without a cache, and seq2seq without a memory: answers are computed from the beginning */
static const eg_network plain[] = {
    { .name = "my encoder",
      .encoder = true,
      .make = make_plain,
      .logits = plain_encoder,
      .part = { "all" } },
    { .name = "my decoder", .make = make_plain, .logits = plain_decoder, .part = { "all" } },
    { .name = "my seq2seq", .source = true, .make = make_seq2seq, .logits = plain_seq2seq },
};

static void *make_mine(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    const mine *u = o->user;
    char score[64];
    snprintf(score, sizeof score, "%g * tanh(score / %g)", u->cap, u->cap);
    const eg_mha_args given = { .kv_heads = u->kv_heads, .alibi = true, .score = score };
    return eg_transformer_new(p, "", .vocabulary = n->vocabulary, .length = n->length,
                              .no_positions = true, .d_model = o->d_model, .heads = o->heads,
                              .layers = o->layers, .dropout = o->dropout, .mha = &given);
}
static int config_mine(const eg_trainer_args *o, char *out, size_t room)
{
    const mine *u = o->user;
    return snprintf(out, room, "kv_heads %lld, cap %g", (long long)u->kv_heads, u->cap);
}
static const eg_network gqa = { .name = "gqa",
                                .cached = true,
                                .make = make_mine,
                                .logits = plain_decoder,
                                .part = { "decoder" },
                                .config = config_mine };

static void same_files(const char *a, const char *b)
{
    char command[128];
    snprintf(command, sizeof command, "cmp -s %s %s", a, b);
    ck_assert_msg(system(command) == 0, "%s and %s differ", a, b);
}

GROUP("network", .setup = open_f32, .teardown = close_cx, .timeout = 600)

/* A recurrence whose first state the logits make as zeros of the context's dtype. */
typedef struct recurrent {
    eg_embedding *tokens;
    eg_linear *state, *out;
    int64_t width;
} recurrent;
static void *make_recurrent(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    recurrent *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    *m = (recurrent){
        eg_embedding_new(p, "tokens", .count = n->vocabulary, .d_model = o->d_model),
        eg_linear_new(p, "state", .in = o->d_model, .out = o->d_model),
        eg_linear_new(p, "out", .in = o->d_model, .out = n->vocabulary),
        o->d_model,
    };
    return m;
}
static eg_tensor *recurrent_logits(const void *network, eg_ctx *block, const eg_batch *b)
{
    const recurrent *m = network;
    eg_tensor *x = eg_embedding_run(m->tokens, eg_batch_tokens(block, b)),
              *h = eg_zeros(block, b->rows, m->width), *at[64];
    for (int64_t l = 0; l < b->length && l < 64; l++)
        at[l] = h = eg_tanh(eg_add(eg_linear_run(m->state, h), eg_select("b [l] m", x, l)));
    return eg_linear_run(m->out, eg_stack_n("b [l] m", (int)b->length, at));
}
TEST(the_check_makes_constants_of_a_custom_network_in_f64)
{
    const eg_network row = { .name = "recurrent",
                             .make = make_recurrent,
                             .logits = recurrent_logits };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("addition")), .network = &row,
                                   .d_model = 8, .batch = 8, .steps = 3);
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    eg_trainer_check_report r;
    ck_assert_int_eq(eg_trainer_check(t, &r), 0);
    ck_assert(r.right == r.entries && r.entries == eg_params_size(eg_trainer_params(t)));
    ck_assert_int_eq(eg_default_type(cx), EG_F32);
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    eg_assert_ok(cx);
}

/* The same, with its state in the cache: the logits of the tokens that follow it; or of a wrong
 * network, which stores the state but begins with zeros. */
static eg_tensor *logits_behind(bool reads, const void *network, eg_ctx *block, const eg_batch *b)
{
    const recurrent *m = network;
    eg_tensor *x = eg_embedding_run(m->tokens, eg_batch_tokens(block, b)),
              *h = reads ? eg_cache_state(b->cache, 0) : NULL, *at[64];
    if (!h) h = eg_zeros(block, b->rows, m->width);
    for (int64_t l = 0; l < b->length && l < 64; l++)
        at[l] = h = eg_tanh(eg_add(eg_linear_run(m->state, h), eg_select("b [l] m", x, l)));
    if (b->cache && eg_cache_set_state(b->cache, 0, h, eg_cache_length(b->cache) + b->length))
        return NULL;
    return eg_linear_run(m->out, eg_stack_n("b [l] m", (int)b->length, at));
}
static eg_tensor *remembering_logits(const void *network, eg_ctx *block, const eg_batch *b)
{
    return logits_behind(true, network, block, b);
}
static eg_tensor *forgetting_logits(const void *network, eg_ctx *block, const eg_batch *b)
{
    return logits_behind(false, network, block, b);
}
TEST(a_state_that_is_not_read_is_refused)
{
    const eg_network row = {
        .name = "forgetting", .cached = true, .make = make_recurrent, .logits = forgetting_logits
    };
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("addition")), .network = &row,
                                      .d_model = 8, .batch = 8));
    eg_assert_error(cx, "with the positions before it in the cache");
}
/* Greedy decoding and beam search behind a state are those that compute all positions again. */
TEST(a_recurrent_network_decodes_behind_its_state)
{
    const eg_network row[] = {
        { .name = "recurrent", .make = make_recurrent, .logits = recurrent_logits },
        { .name = "recurrent",
          .cached = true,
          .make = make_recurrent,
          .logits = remembering_logits },
    };
    char message[64] = "", found[64] = "";
    for (int k = 0; k < 2; k++) {
        eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("addition")),
                                       .network = &row[k], .d_model = 8, .batch = 8, .seed = 3);
        eg_assert_ok(cx);
        for (int n = 0; n < 5; n++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        const char *answer = eg_trainer_predict(t, "12+34");
        ck_assert_msg(answer != NULL, "%s", eg_error(cx));
        if (k) ck_assert_str_eq(answer, message);
        snprintf(message, sizeof message, "%s", answer);
        answer = eg_trainer_generate(t, "12+34", .beam = 3);
        ck_assert_msg(answer != NULL, "%s", eg_error(cx));
        if (k) ck_assert_str_eq(answer, found);
        snprintf(found, sizeof found, "%s", answer);
    }
    eg_assert_ok(cx);
}

/* Networks with an auxiliary loss, in most cases c Σ (r · x)² over tokens x, where nothing else
 * reads r. Their user data say what they set it to. */
enum {
    AUXILIARY_SUM,
    AUXILIARY_ZERO,
    AUXILIARY_MEAN,
    AUXILIARY_ROWS,
    AUXILIARY_NONE,
    AUXILIARY_CUT, /* half of it has no gradient */
};
static const int auxiliary_form[] = { AUXILIARY_SUM,  AUXILIARY_ZERO, AUXILIARY_MEAN,
                                      AUXILIARY_ROWS, AUXILIARY_NONE, AUXILIARY_CUT };
typedef struct routed {
    eg_tensor *table, *out, *r;
    int form;
} routed;
static void *make_routed(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    routed *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    *m = (routed){ eg_param(p, "table", "v m", n->vocabulary, o->d_model),
                   eg_param(p, "out", "m v", o->d_model, n->vocabulary),
                   eg_param(p, "r", "m o", o->d_model, 1), *(const int *)o->user };
    return m;
}
static eg_tensor *routed_logits(const void *network, eg_ctx *block, const eg_batch *b)
{
    const routed *m = network;
    eg_tensor *x = eg_at("[v] m, b l -> b l m", m->table, eg_batch_tokens(block, b)),
              *z = eg_square(eg_einsum("blm,mo->bl", x, m->r));
    if (b->auxiliary_loss && m->form != AUXILIARY_NONE)
        *b->auxiliary_loss = m->form == AUXILIARY_SUM    ? eg_scale(eg_sum(NULL, z), 0.1)
                             : m->form == AUXILIARY_ZERO ? eg_scale(eg_sum(NULL, z), 0)
                             : m->form == AUXILIARY_MEAN ? eg_mean(NULL, z)
                             : m->form == AUXILIARY_CUT  ? eg_sum(NULL, eg_add(z, eg_detach(z)))
                                                         : eg_sum("b [l]", z);
    return eg_einsum("blm,mv->blv", x, m->out);
}
static eg_trainer *routed_trainer(int form)
{
    static const eg_network row = { .name = "routed",
                                    .make = make_routed,
                                    .logits = routed_logits };
    return eg_trainer_new(eg_data_task(cx, eg_task_find("addition")), .network = &row,
                          .user = (void *)&auxiliary_form[form], .d_model = 8, .batch = 16,
                          .block = 5, .seed = 3);
}
/* The first step's loss differs from that without the term by 0.1 Σ (r · x)²/targets. */
TEST(an_auxiliary_loss_is_part_of_a_step)
{
    double loss[2], term = 0;
    for (int form = AUXILIARY_SUM; form <= AUXILIARY_ZERO; form++) {
        eg_trainer *t = routed_trainer(form);
        eg_assert_ok(cx);
        if (form == AUXILIARY_SUM) {
            eg_batches *data =
                eg_batches_new(eg_data_task(cx, eg_task_find("addition")), .rows = 16, .seed = 3);
            const eg_batch *b = eg_batches_at(data, 0);
            const routed m = { eg_params_find(eg_trainer_params(t), "table"), NULL,
                               eg_params_find(eg_trainer_params(t), "r"), 0 };
            eg_tensor *x = eg_at("[v] m, b l -> b l m", m.table, eg_batch_tokens(cx, b));
            term = 0.1 * eg_item(eg_sum(NULL, eg_square(eg_einsum("blm,mo->bl", x, m.r)))) /
                   (double)eg_batch_counted(b);
        }
        eg_progress now;
        ck_assert_int_eq(eg_trainer_step(t, &now), 0);
        loss[form] = now.loss;
        eg_trainer_check_report report;
        ck_assert_int_eq(eg_trainer_check(t, &report), 0);
        ck_assert(report.right == report.entries &&
                  report.entries == eg_params_size(eg_trainer_params(t)));
    }
    ck_assert(term > 1e-3);
    ck_assert_msg(fabs(loss[0] - loss[1] - term) < 1e-5, "%g − %g is not %g", loss[0], loss[1],
                  term);
    eg_assert_ok(cx);
}
TEST(the_check_finds_a_wrong_gradient_of_an_auxiliary_loss)
{
    eg_trainer *t = routed_trainer(AUXILIARY_CUT);
    eg_trainer_check_report report;
    ck_assert_int_eq(eg_trainer_check(t, &report), 0);
    ck_assert(report.right < report.entries && report.worst > 1e-3);
    eg_assert_ok(cx);
}
TEST(an_auxiliary_loss_that_is_no_sum_is_refused)
{
    ck_assert_ptr_null(routed_trainer(AUXILIARY_ROWS));
    eg_assert_error(cx, "trainer: network \"routed\": the auxiliary loss has 1 axis, but must be a "
                        "scalar, the sum over the examples");
    ck_assert_ptr_null(routed_trainer(AUXILIARY_NONE));
    eg_assert_error(cx, "the loss does not reach the parameter \"r\"");
    eg_trainer *t = routed_trainer(AUXILIARY_MEAN);
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_trainer_step(t, NULL), -1);
    eg_assert_error(cx, "the loss is not a sum over its examples");
}

/* Statistics of a batch that only training uses, as those of batch norm. */
static eg_tensor *centred_in_training(const void *net, eg_ctx *c, const eg_batch *b)
{
    eg_tensor *y = plain_decoder(net, c, b);
    return eg_training(c) ? eg_on("b l v, l v", eg_sub, y, eg_mean("[b] l v", y)) : y;
}
TEST(a_network_that_couples_examples_in_training_is_refused)
{
    const eg_network row = { .name = "centred", .make = make_plain, .logits = centred_in_training };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("majority")), .network = &row,
                                   .d_model = 8, .heads = 2, .layers = 1, .batch = 8);
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_trainer_step(t, NULL), -1);
    eg_assert_error(cx, "the loss is not a sum over its examples");
}

/* A custom network that makes what a built-in model makes has its bits: parameters after some
 * steps, scores, answers. */
LOOP_TEST(a_custom_network_has_the_bits_of_the_built_in_one, 3)
{
    static const char *const task[] = { "reverse", "addition", "addition" },
                             *const model[] = { "encoder", "decoder", "seq2seq" },
                             *const input[] = { "abcd", "12+345", "12+345" };
    char path[2][32] = { "/tmp/eg_own_XXXXXX", "/tmp/eg_own_XXXXXX" }, answer[64];
    eg_score s[2];
    for (int k = 0; k < 2; k++) {
        eg_trainer *t =
            eg_trainer_new(eg_data_task(cx, eg_task_find(task[_i])), .model = k ? NULL : model[_i],
                           .network = k ? &plain[_i] : NULL, .layers = 1, .d_model = 16, .heads = 2,
                           .batch = 8, .dropout = 0.1, .seed = 5);
        eg_assert_ok(cx);
        for (int n = 0; n < 5; n++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        ck_assert_int_eq(eg_trainer_evaluate(t, &s[k]), 0);
        const char *message = eg_trainer_predict(t, input[_i]);
        ck_assert_msg(message != NULL, "%s", eg_error(cx));
        if (k) ck_assert_str_eq(message, answer);
        strcpy(answer, message);
        close(mkstemp(path[k]));
        ck_assert_int_eq(eg_params_save(eg_trainer_params(t), path[k]), 0);
        eg_trainer_check_report r;
        ck_assert_int_eq(eg_trainer_check(t, &r), 0);
        ck_assert(r.right == r.entries && r.entries == eg_params_size(eg_trainer_params(t)));
    }
    ck_assert(s[0].right == s[1].right && s[0].exact == s[1].exact &&
              memcmp(&s[0].loss, &s[1].loss, sizeof s[0].loss) == 0);
    same_files(path[0], path[1]);
    unlink(path[0]), unlink(path[1]);
}

/* logits = e^20s table[token]: the loss is so curved along s that a central difference has an error
 * of 3e-6 of the slope. */
typedef struct steep {
    eg_tensor *s;
    eg_embedding *table;
} steep;
static void *make_steep(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    (void)o;
    steep *net = eg_params_alloc(p, sizeof *net);
    if (!net) return NULL;
    net->s = eg_param(p, "s", "a", 1);
    net->table = eg_embedding_new(p, "table", .count = n->vocabulary, .d_model = n->vocabulary);
    return net;
}
static eg_tensor *steep_logits(const void *net, eg_ctx *c, const eg_batch *b)
{
    const steep *m = net;
    return eg_mul(eg_exp(eg_scale(m->s, 20)), eg_embedding_run(m->table, eg_batch_tokens(c, b)));
}
TEST(a_network_of_large_derivatives_is_checked_by_extrapolation)
{
    const eg_network row = {
        .name = "steep", .encoder = true, .make = make_steep, .logits = steep_logits
    };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("reverse")), .network = &row);
    eg_assert_ok(cx);
    eg_trainer_check_report r;
    ck_assert_int_eq(eg_trainer_check(t, &r), 0);
    ck_assert_msg(r.right == r.entries && r.worst < 1e-6, "%lld of %lld, worst %g in %s",
                  (long long)r.right, (long long)r.entries, r.worst, r.worst_name);
}

static eg_tensor *undefined_logits(const void *net, eg_ctx *c, const eg_batch *b)
{
    const steep *m = net; /* s is 0, so its gradient is 0 times infinity */
    return eg_add(eg_scale(eg_sqrt(m->s), 0), eg_embedding_run(m->table, eg_batch_tokens(c, b)));
}
TEST(a_gradient_that_is_no_number_is_the_worst)
{
    const eg_network row = {
        .name = "undefined", .encoder = true, .make = make_steep, .logits = undefined_logits
    };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("reverse")), .network = &row);
    eg_assert_ok(cx);
    eg_trainer_check_report r;
    ck_assert_int_eq(eg_trainer_check(t, &r), 0);
    ck_assert_msg(isnan(r.worst) && r.right == r.entries - 1, "%lld of %lld, worst %g in %s",
                  (long long)r.right, (long long)r.entries, r.worst, r.worst_name);
    ck_assert_str_eq(r.worst_name, "s");
}

/* A text of 3000 letters in a new file. */
static void write_text(char *path)
{
    FILE *f = fdopen(mkstemp(path), "w");
    for (int n = 0; n < 3000; n++) fputc('a' + n * n % 23, f);
    fclose(f);
}

/* For a task and for a text: a run of 8 steps on one thread; and one of 3 on two threads, saved,
 * loaded with one thread, 5 more. */
LOOP_TEST(its_runs_are_resumed_to_the_same_bits, 2)
{
    char path[2][32] = { "/tmp/eg_own_XXXXXX", "/tmp/eg_own_XXXXXX" }, message[64];
    char text[] = "/tmp/eg_text_XXXXXX";
    mine u = { .kv_heads = 2, .cap = 30 };
    write_text(text);
    for (int k = 0; k < 2; k++) {
        close(mkstemp(path[k]));
        eg_ctx *own = eg_open(.threads = k ? 2 : 1);
        eg_data *d = _i ? eg_data_corpus(own, text) : eg_data_task(own, eg_task_find("recall"));
        eg_trainer *t =
            eg_trainer_new(d, .network = &gqa, .user = &u, .context = _i ? 12 : 0, .d_model = 16,
                           .batch = 8, .dropout = 0.1, .steps = 40, .seed = 3);
        ck_assert_msg(t != NULL, "%s", eg_error(own));
        for (int n = 0; n < (k ? 3 : 8); n++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        if (k) {
            ck_assert_int_eq(eg_trainer_save(t, path[1]), 0);
            eg_close(own);
            own = eg_open(.threads = 1, .seed = 9);
            t = eg_trainer_load(own, path[1], .network = &gqa, .user = &u);
            ck_assert_msg(t != NULL, "%s", eg_error(own));
            ck_assert(eg_trainer_saved(t, path[1]).same);
            for (int n = 0; n < 5; n++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        }
        ck_assert_int_eq(eg_trainer_save(t, path[k]), 0);
        if (_i) { /* written with the cache, and beyond the context */
            const char *more = eg_trainer_generate(t, .prompt = "abe", .length = 20, .seed = 4);
            ck_assert_msg(more != NULL, "%s", eg_error(own));
            if (k) ck_assert_str_eq(more, message);
            snprintf(message, sizeof message, "%s", more);
        }
        eg_close(own);
    }
    same_files(path[0], path[1]);
    unlink(path[0]), unlink(path[1]), unlink(text);
}

/* Without .weights_axes the weights of eg_attention have the order of the output, b i h j. */
static eg_tensor *weights_in_another_order(const void *net, eg_ctx *c, const eg_batch *b)
{
    eg_tensor *y = plain_decoder(net, c, b);
    for (int k = 0; b->weights && k < 2; k++)
        b->weights[k] = k ? eg_rearrange("b h i j -> b i h j", b->weights[k]) : b->weights[k];
    return y;
}
TEST(weights_of_another_shape_are_refused_with_their_shape)
{
    const eg_network other = { .name = "other",
                               .make = make_plain,
                               .logits = weights_in_another_order,
                               .part = { "decoder" } };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("reverse")), .network = &other,
                                   .d_model = 16, .layers = 2);
    ck_assert_msg(t != NULL, "%s", eg_error(cx));
    ck_assert_ptr_null(eg_trainer_self_attention_weights(t, "abcdef", NULL));
    eg_assert_error(cx,
                    "attend: the network \"other\" gave no weights (b h i j) of 1 row and 4 heads "
                    "for attention 1, but weights (1, ");
}

TEST(attention_weights_and_heads_of_a_custom_network)
{
    mine u = { .kv_heads = 2, .cap = 30 };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("sort")), .network = &gqa,
                                   .user = &u, .d_model = 16, .layers = 2, .model = NULL);
    const char *const *labels;
    eg_tensor *w = eg_trainer_self_attention_weights(t, "1032", &labels);
    ck_assert_msg(eg_ok(w), "%s", eg_error(cx));
    ck_assert(eg_dim(w, 0) == 2 && eg_dim(w, 1) == 4 && eg_dim(w, 2) == eg_dim(w, 3));
    ck_assert_str_eq(labels[1], "0");
    ck_assert_double_eq_tol(eg_item(eg_sum(NULL, w)), (double)(2 * 4 * eg_dim(w, 2)), 1e-3);
    ck_assert_int_eq(eg_trainer_attentions(t), 2);
    eg_score on, off;
    ck_assert_int_eq(eg_trainer_evaluate(t, &on), 0);
    ck_assert_int_eq(eg_trainer_heads_off(t, 1, &(eg_head_at){ 1, 3 }), 0);
    ck_assert_int_eq(eg_trainer_evaluate(t, &off), 0);
    ck_assert(on.loss > off.loss || on.loss < off.loss);
    double largest[8];
    ck_assert_int_eq(eg_trainer_saturation(t, largest), 0);
    eg_trainer *blind = eg_trainer_new(eg_data_task(cx, eg_task_find("addition")),
                                       .network = &plain[2], .layers = 1, .d_model = 16);
    ck_assert_msg(blind != NULL, "%s", eg_error(cx));
    ck_assert_ptr_null(eg_trainer_attention_weights(blind, "1+2", NULL, NULL, NULL));
    eg_assert_error(cx, "attend: the network \"my seq2seq\" names no part that attends");
    ck_assert_int_eq(eg_trainer_saturation(blind, largest), -1);
    eg_assert_error(cx, "saturation: the network \"my seq2seq\" names no part that attends");
}

static eg_tensor *ungated_decoder(const void *net, eg_ctx *c, const eg_batch *b)
{
    eg_batch ungated = *b;
    ungated.gain = NULL;
    return plain_decoder(net, c, &ungated);
}
/* Scores with heads switched off would be those with all heads. It is message each time. */
TEST(heads_that_cannot_be_switched_off_are_refused)
{
    eg_network row = plain[1];
    row.logits = ungated_decoder;
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("copy")), .network = &row,
                                   .layers = 1, .heads = 2, .d_model = 16);
    ck_assert_msg(t != NULL, "%s", eg_error(cx));
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(eg_trainer_heads_off(t, 1, &(eg_head_at){ 0, k }), -1);
        eg_assert_error(cx, "heads off: the logits of network \"my decoder\" do not depend on "
                            "batch->gain");
        eg_clear(cx);
        ck_assert_int_eq(eg_trainer_heads_off(t, 0, NULL), 0);
    }
    eg_score s;
    ck_assert_int_eq(eg_trainer_evaluate(t, &s), 0);
}

TEST(other_networks_and_configurations_are_not_loaded)
{
    char path[] = "/tmp/eg_own_XXXXXX";
    close(mkstemp(path));
    mine u = { .kv_heads = 2, .cap = 30 }, other = { .kv_heads = 2, .cap = 20 };
    eg_data *d = eg_data_task(cx, eg_task_find("copy"));
    eg_trainer *t = eg_trainer_new(d, .network = &gqa, .user = &u, .d_model = 16, .model = "gqa");
    ck_assert_msg(t && !eg_trainer_save(t, path), "%s", eg_error(cx));
    ck_assert(eg_trainer_saved(t, path).same);
    char pipe[sizeof path + 1];
    snprintf(pipe, sizeof pipe, "%sp", path);
    ck_assert_int_eq(mkfifo(pipe, 0600), 0); /* nobody writes to it */
    ck_assert(eg_trainer_saved(t, pipe).exists && !eg_trainer_saved(t, pipe).checkpoint);
    unlink(pipe);
    ck_assert_ptr_null(eg_trainer_load(cx, path, 0));
    eg_assert_error(cx, "the network \"gqa\" is not one of eingrad's; load it with .network");
    ck_assert_ptr_null(eg_trainer_load(cx, path, .network = &plain[1]));
    eg_assert_error(cx, ": the file has a model \"gqa\", not \"my decoder\"");
    ck_assert_ptr_null(eg_trainer_load(cx, path, .network = &gqa, .user = &other));
    eg_assert_error(
        cx, ": the file has a network \"gqa\" with the configuration \"kv_heads 2, cap 30\", not "
            "\"kv_heads 2, cap 20\"");
    t = eg_trainer_new(d, .network = &gqa, .user = &other, .d_model = 16);
    const eg_saved has = eg_trainer_saved(t, path);
    ck_assert(has.checkpoint && !has.same);
    ck_assert_str_eq(has.differs, "config kv_heads 2, cap 30, not kv_heads 2, cap 20");
    unlink(path);
}

static const struct {
    eg_trainer_args o;
    const char *differs;
} other_runs[] = {
    { { .steps = 9 }, "steps 8, not 9" },
    { { .optimiser = "sgd" }, "optimiser adam, not sgd" },
    { { .schedule = { .decay = EG_NOAM } }, "schedule cosine, not noam" },
    { { .schedule = { .decay = EG_STEPS, .step_size = 3 } }, "schedule cosine, not steps" },
    { { .schedule = { .decay = EG_WSD_SQRT, .warmup = 2 } }, "schedule cosine, not wsd-sqrt" },
    { { .schedule = { .decay = EG_CONSTANT, .warmup = 1 } }, "schedule cosine, not constant" },
};
/* The first difference that is reported is an option that the user gave, not one that is derived
 * from it. */
LOOP_TEST(another_run_is_reported_by_the_users_option, sizeof other_runs / sizeof *other_runs)
{
    char path[] = "/tmp/eg_own_XXXXXX";
    close(mkstemp(path));
    eg_trainer_args o = { .size = sizeof o, .data = eg_data_task(cx, eg_task_find("copy")) };
    o.layers = 1, o.d_model = 8, o.heads = 2, o.steps = 8;
    eg_trainer *t = eg_trainer_new_with(&o);
    ck_assert_msg(t && !eg_trainer_save(t, path), "%s", eg_error(cx));
    const eg_trainer_args *other = &other_runs[_i].o;
    o.schedule = other->schedule, o.optimiser = other->optimiser;
    if (other->steps) o.steps = other->steps;
    t = eg_trainer_new_with(&o);
    ck_assert_str_eq(eg_trainer_saved(t, path).differs, other_runs[_i].differs);
    unlink(path);
}

/* -- what is refused -------------------------------------------------------------------------- */
typedef struct wrong {
    eg_transformer *net;
    eg_tensor *spare;
    mine *u;
} wrong;
static void *make_wrong(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    wrong *w = eg_params_alloc(p, sizeof *w);
    if (!w) return NULL;
    w->u = o->user;
    w->net = make_plain(p, o, n);
    w->spare = eg_param(p, "spare", "v", n->vocabulary);
    eg_fill(w->spare, 0.5);
    return w;
}
static eg_tensor *wrong_logits(const wrong *w, eg_ctx *c, const eg_batch *b, const char *where)
{
    return eg_transformer_run(w->net, eg_batch_tokens(c, b), .where = where);
}
static eg_tensor *with_spare(const wrong *w, eg_tensor *x)
{
    return eg_on("b l v, v", eg_add, x, w->spare);
}
static eg_tensor *wrong_shape(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return eg_select("b [l] v", with_spare(w, wrong_logits(w, c, b, "j <= i")), 0);
}
static eg_tensor *wrong_unreached(const void *net, eg_ctx *c, const eg_batch *b)
{
    return wrong_logits(net, c, b, "j <= i");
}
static eg_tensor *wrong_cut(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return eg_on("b l v, v", eg_add, wrong_logits(w, c, b, "j <= i"), eg_detach(w->spare));
}
static eg_tensor *wrong_state(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return eg_shift(eg_scale(with_spare(w, wrong_logits(w, c, b, "j <= i")), 1 + w->u->calls++), 0);
}
static eg_tensor *wrong_coupled(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    eg_tensor *x = with_spare(w, wrong_logits(w, c, b, "j <= i"));
    return eg_on("b l v, l v", eg_sub, x, eg_mean("[b] l v", x));
}
static eg_tensor *wrong_ahead(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return with_spare(w, wrong_logits(w, c, b, NULL));
}
/* positions in pairs that read each other, 0 and 1, 2 and 3 …; or 1 and 2, 3 and 4 … */
static eg_tensor *wrong_even_pairs(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return with_spare(w, wrong_logits(w, c, b, "j / 2 <= i / 2"));
}
static eg_tensor *wrong_odd_pairs(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return with_spare(w, wrong_logits(w, c, b, "(j + 1) / 2 <= (i + 1) / 2"));
}
static eg_tensor *wrong_seed(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    eg_seed(c, 3);
    return with_spare(w, wrong_logits(w, c, b, "j <= i"));
}
static eg_tensor *wrong_mode(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    eg_eval(c); /* changes the state of the context in training only */
    return with_spare(w, wrong_logits(w, c, b, "j <= i"));
}
static eg_tensor *wrong_history(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    eg_tensor *x = with_spare(w, wrong_logits(w, c, b, "j <= i"));
    eg_nograd(c, true);
    return x;
}
/* writes to a parameter, but what it writes is what is there */
static eg_tensor *wrong_write(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    eg_fill(w->spare, 0.5);
    return with_spare(w, wrong_logits(w, c, b, "j <= i"));
}
static eg_tensor *wrong_training(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return eg_training(c) ? eg_mul(w->spare, eg_ones(c, 2))
                          : with_spare(w, wrong_logits(w, c, b, "j <= i"));
}
static eg_tensor *wrong_trace(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    eg_trace(c, true);
    return with_spare(w, wrong_logits(w, c, b, "j <= i"));
}
static eg_tensor *wrong_none(const void *net, eg_ctx *c, const eg_batch *b)
{
    (void)net, (void)c, (void)b;
    return NULL;
}
static eg_tensor *wrong_integers(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return eg_cast(with_spare(w, wrong_logits(w, c, b, "j <= i")), EG_I32);
}
/* logits of a context that is neither the block's nor the trainer's; user has it in `table` */
static eg_tensor *wrong_context(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    eg_tensor *right = with_spare(w, wrong_logits(w, c, b, "j <= i"));
    return eg_zeros(eg_context(w->u->table), b->rows, b->length, eg_dim(right, 2));
}
static void *make_nothing(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    (void)p, (void)n;
    return o->user;
}
static void *make_null(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    (void)p, (void)o, (void)n;
    return NULL;
}

static const struct {
    eg_network row;
    const char *error;
} refused[] = {
    { { .name = "w", .make = make_wrong, .logits = wrong_shape },
      "trainer: network \"w\": the logits must be floats (b l v) of (4, " },
    { { .name = "w", .make = make_wrong, .logits = wrong_integers }, "not i32 of (4, " },
    { { .name = "w", .make = make_wrong, .logits = wrong_none },
      "trainer: network \"w\": it gave no logits" },
    { { .name = "w", .make = make_wrong, .logits = wrong_unreached },
      "trainer: network \"w\": the loss does not reach the parameter \"spare\"" },
    { { .name = "w", .make = make_wrong, .logits = wrong_cut },
      "reaches the parameter \"spare\" only through detach, which has no gradient" },
    { { .name = "w", .make = make_wrong, .logits = wrong_state },
      "when it is computed again: the network has state outside its parameters, or draws random "
      "numbers" },
    { { .name = "w", .make = make_wrong, .logits = wrong_coupled },
      "must not depend on each other; a loss of several examples needs a loop with eg_step" },
    { { .name = "w", .make = make_wrong, .logits = wrong_seed },
      "trainer: network \"w\": seed: inside a block, which has a seed of its own" },
    { { .name = "w", .make = make_wrong, .logits = wrong_mode },
      "trainer: network \"w\": eg_eval was called and not undone" },
    { { .name = "w", .make = make_wrong, .logits = wrong_history },
      "trainer: network \"w\": eg_nograd was called and not undone" },
    { { .name = "w", .make = make_wrong, .logits = wrong_trace },
      "trainer: network \"w\": eg_trace was called and not undone" },
    { { .name = "w", .make = make_wrong, .logits = wrong_write },
      "trainer: network \"w\": fill: the tensor belongs to the context that waits for its blocks" },
    { { .name = "w", .make = make_wrong, .logits = wrong_training },
      "trainer: network \"w\": mul: " },
    { { .name = "w", .make = make_wrong, .logits = wrong_ahead },
      "is changed: the network reads what it has to predict" },
    { { .name = "w", .make = make_wrong, .logits = wrong_even_pairs },
      "is changed: the network reads what it has to predict" },
    { { .name = "w", .make = make_wrong, .logits = wrong_odd_pairs },
      "is changed: the network reads what it has to predict" },
    { { .name = "w", .make = make_nothing, .logits = wrong_none },
      "trainer: network \"w\" has no parameters" },
    { { .name = "w", .make = make_null, .logits = wrong_none },
      "trainer: network \"w\": its make() returned NULL" },
    { { .name = "w", .make = make_null }, "trainer: a network needs logits" },
    { { .name = "w", .logits = wrong_none }, "trainer: a network needs make" },
    { { .make = make_null, .logits = wrong_none }, "trainer: a network needs a name" },
    { { .name = "decoder", .make = make_null, .logits = wrong_none },
      "trainer: \"decoder\" is a model of eingrad; a custom network needs another name" },
    { { .name = "w", .source = true, .encoder = true, .make = make_null, .logits = wrong_none },
      "is an encoder, which has no source" },
    { { .name = "w", .make = make_null, .logits = wrong_none, .memory = wrong_none },
      "has a memory, but no source" },
    { { .name = "w",
        .source = true,
        .make = make_null,
        .logits = wrong_none,
        .part = { "encoder", "middle" } },
      "a part beside a source is encoder, decoder or cross, not \"middle\"" },
    /* nothing is read after the end of an older struct */
    { { .size = offsetof(eg_network, logits),
        .name = "w",
        .make = make_null,
        .logits = wrong_none },
      "trainer: a network needs logits" },
    { { .name = "w", .encoder = true, .make = make_wrong, .logits = wrong_ahead },
      "an encoder needs input and output of one length" },
};

LOOP_TEST(networks_refused, sizeof refused / sizeof *refused)
{
    mine u = { 0 };
    eg_data *d = eg_data_task(cx, eg_task_find("addition"));
    ck_assert_ptr_null(eg_trainer_new(d, .network = &refused[_i].row, .user = &u, .layers = 1,
                                      .d_model = 8, .heads = 2));
    eg_assert_error(cx, refused[_i].error);
}

TEST(logits_of_another_context_are_refused)
{
    eg_ctx *other = eg_open();
    mine u = { .table = eg_zeros(other, 1) };
    const eg_network row = { .name = "w", .make = make_wrong, .logits = wrong_context };
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("addition")), .network = &row,
                                      .user = &u, .layers = 1, .d_model = 8, .heads = 2));
    eg_assert_error(cx, "trainer: network \"w\": the logits belong to another context");
    eg_close(other);
}

/* A class that no example has may have a logit of −∞: this counts as equal to itself. */
static eg_tensor *without_class(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return eg_on("b l v, v", eg_add, with_spare(w, wrong_logits(w, c, b, "j <= i")), w->u->table);
}
TEST(equal_infinite_logits_are_accepted)
{
    mine u = { 0 };
    eg_data *d = eg_data_task(cx, eg_task_find("addition"));
    u.table = eg_zeros(cx, eg_data_symbols(d));
    eg_mut_f32(u.table)[EG_PAD] = -INFINITY;
    eg_network row = { .name = "w", .make = make_wrong, .logits = without_class };
    eg_trainer *t = eg_trainer_new(d, .network = &row, .user = &u, .layers = 1, .d_model = 8,
                                   .heads = 2, .batch = 8);
    ck_assert_msg(t && !eg_trainer_step(t, NULL), "%s", eg_error(cx));
}

static eg_tensor *wrong_nan(const void *net, eg_ctx *c, const eg_batch *b)
{
    const wrong *w = net;
    return eg_scale(with_spare(w, wrong_logits(w, c, b, "j <= i")), NAN);
}
TEST(a_network_of_nan_is_refused_before_its_first_step)
{
    static const eg_network row = { .name = "w", .make = make_wrong, .logits = wrong_nan };
    mine u = { 0 };
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("addition")), .network = &row,
                                      .user = &u, .layers = 1, .d_model = 8, .heads = 2));
    eg_assert_error(cx,
                    "trainer: network \"w\": the loss of the first examples is nan, which comes "
                    "from scale ");
}
/* a score of a built-in model, too */
TEST(a_score_of_nan_is_refused_before_the_first_step)
{
    static const eg_mha_args given = { .score = "log(-1 - score * score)" };
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("reverse")), .layers = 1,
                                      .d_model = 8, .heads = 2, .attention = &given));
    eg_assert_error(cx,
                    "trainer: network \"encoder\": the loss of the first examples is nan, which "
                    "comes from ");
}

/* positions that begin at 0 in each step of decoding */
typedef struct stuck {
    eg_embedding *tokens;
    eg_mha *attention;
    eg_linear *logits;
} stuck;
static void *make_stuck(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    stuck *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    m->tokens = eg_embedding_new(p, "tokens", .count = n->vocabulary, .d_model = o->d_model);
    m->attention = eg_mha_new(p, "attention", .d_model = o->d_model, .heads = o->heads);
    m->logits = eg_linear_new(p, "logits", .in = o->d_model, .out = n->vocabulary);
    return m;
}
static eg_tensor *stuck_logits(const void *net, eg_ctx *c, const eg_batch *b)
{
    const stuck *m = net;
    eg_tensor *x = eg_embedding_run(m->tokens, eg_batch_tokens(c, b)),
              *i = eg_cast(eg_arange(c, EG_I64, 0, (double)b->length, 1), EG_F32);
    x = eg_add(x, eg_reshape(i, 1, b->length, 1));
    x = eg_mha_run(m->attention, x, .where = "j <= i", .cache = b->cache);
    return eg_linear_run(m->logits, x);
}
TEST(a_cache_that_changes_the_logits_is_refused)
{
    static const eg_network row = {
        .name = "w", .cached = true, .make = make_stuck, .logits = stuck_logits
    };
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("addition")), .network = &row,
                                      .layers = 1, .d_model = 8, .heads = 2));
    eg_assert_error(cx,
                    "with the positions before it in the cache: each attention needs a separate "
                    "slot, and positions count from the end of the cache");
}

/* Parameters of f64, and logits that are rounded to f32: they differ by such roundings in a batch
 * of another size. */
static eg_tensor *rounded_logits(const void *net, eg_ctx *c, const eg_batch *b)
{
    const stuck *m = net;
    eg_tensor *x = eg_embedding_run(m->tokens, eg_batch_tokens(c, b));
    x = eg_mha_run(m->attention, x, .where = "j <= i", .cache = b->cache);
    eg_tensor *y = eg_cast(eg_linear_run(m->logits, x), EG_F32), *sum = eg_sum(NULL, y);
    return eg_cast(eg_sub(eg_add(y, sum), sum), EG_F64);
}
TEST(logits_of_f64_that_are_computed_in_f32_are_compared_as_these)
{
    static const eg_network row = {
        .name = "w", .cached = true, .make = make_stuck, .logits = rounded_logits
    };
    eg_ctx *own = eg_open(.dtype = EG_F64);
    eg_trainer *t = eg_trainer_new(eg_data_task(own, eg_task_find("addition")), .network = &row,
                                   .layers = 1, .d_model = 8, .heads = 2, .batch = 8);
    ck_assert_msg(t && !eg_trainer_step(t, NULL), "%s", eg_error(own));
    eg_close(own);
}

TEST(a_model_beside_a_network_is_refused)
{
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("addition")),
                                      .model = "decoder", .network = &gqa));
    eg_assert_error(cx, "trainer: both model \"decoder\" and network \"gqa\" are given");
}

/* -- batches ---------------------------------------------------------------------------------- */
GROUP("batches", .setup = open_f32, .teardown = close_cx, .timeout = 600)

static uint64_t sum_of(const eg_batch *b)
{
    ck_assert(b && b->rows > 0);
    const size_t n = (size_t)(b->rows * b->length), sources = (size_t)(b->rows * b->source_length);
    uint64_t h = eg_hash(EG_HASH_START, b->tokens, n * sizeof *b->tokens);
    h = eg_hash(eg_hash(h, b->target, n * sizeof *b->target), b->keep, n * sizeof *b->keep);
    return sources ? eg_hash(h, b->source, sources * sizeof *b->source) : h;
}

static eg_data *some_data(int k)
{
    static char text[4000];
    for (int n = 0; n < 3999; n++) text[n] = (char)('a' + n * n % 23);
    return k == 3   ? eg_data_corpus_of(cx, text, sizeof text - 1, "text")
           : k == 2 ? eg_data_parse(cx, "a\tb\nab\tba\nabc\tcb\nb\tc\nd\te\nda\tf\n", "pairs")
                    : eg_data_task(cx, eg_task_find(k ? "addition" : "reverse"));
}

/* Batches in any order of numbers are the same, and no training row is held out. */
LOOP_TEST(batches_are_a_function_of_their_number, 4)
{
    const eg_batches_args o = { .size = sizeof o,
                                .data = some_data(_i),
                                .rows = 5,
                                .encoder = _i == 0,
                                .source = _i == 1,
                                .seed = 7 };
    eg_batches *a = eg_batches_new_with(&o), *b = eg_batches_new_with(&o);
    eg_assert_ok(cx);
    uint64_t in_order[9];
    for (int k = 0; k < 9; k++) in_order[k] = sum_of(eg_batches_at(a, k));
    static const int jumps[] = { 8, 2, 2, 3, 0, 7, 1 };
    for (int k = 0; k < 7; k++)
        ck_assert_uint_eq(sum_of(eg_batches_at(b, jumps[k])), in_order[jumps[k]]);
    ck_assert(in_order[0] != in_order[1]);
    for (int k = 0; k < 3; k++) {
        const eg_batch *one = eg_batches_at(a, k);
        for (int64_t r = 0; r < one->rows && _i < 2; r++) {
            eg_example e = { .inputs = 0 };
            const int64_t n = _i ? one->source_lengths[r] : one->lengths[r];
            const int32_t *from =
                _i ? one->source + r * one->source_length : one->tokens + r * one->length;
            e.inputs = (int)n;
            memcpy(e.input, from, (size_t)n * sizeof *from);
            ck_assert(!eg_data_held_out(o.data, &e));
        }
    }
    int64_t tests = 0;
    const eg_batch *one;
    for (int64_t k = 0; (one = eg_batches_test(a, k)); k++) {
        tests += one->rows;
        for (int64_t r = 0; r < one->rows; r++) ck_assert_int_le(one->lengths[r], one->length);
    }
    eg_assert_ok(cx);
    ck_assert_int_gt(tests, 0);
    ck_assert_ptr_null(eg_batches_at(a, -1));
    eg_assert_error(cx, "batches: there is no batch -1");
}

/* A trainer's first steps and its score, from batches by number. */
TEST(a_custom_loop_has_the_steps_and_score_of_a_trainer)
{
    eg_data *d = eg_data_task(cx, eg_task_find("addition"));
    eg_trainer *t =
        eg_trainer_new(d, .layers = 1, .d_model = 16, .heads = 2, .batch = 6, .block = 6, .seed = 4,
                       .lr = 1e-3, .schedule = { .decay = EG_CONSTANT, .warmup = 1 });
    eg_batches *b = eg_batches_new(d, .rows = 6, .seed = 4);
    const eg_network_sizes n = eg_batches_sizes(b);
    eg_seed(cx, 4);
    eg_params *p = eg_params_open(cx);
    void *net = make_plain(
        p, &(eg_trainer_args){ .layers = 1, .d_model = 16, .heads = 2, .width = 64 }, &n);
    eg_opt *opt = eg_adam(p, .lr = 1e-3);
    for (int k = 0; k < 4; k++) {
        eg_progress progress;
        const eg_batch *one = eg_batches_at(b, k);
        eg_mark m = eg_push(cx);
        eg_tensor *loss = eg_scale(eg_batch_loss(cx, one, plain_decoder(net, cx, one), 0),
                                   1.0 / (double)eg_batch_counted(one));
        const double mean = eg_item(loss);
        ck_assert_int_eq(eg_step(opt, loss), 0);
        eg_pop(cx, m);
        ck_assert_int_eq(eg_trainer_step(t, &progress), 0);
        ck_assert_double_eq_tol(mean, progress.loss, 1e-5);
    }
    eg_score own, its;
    ck_assert_int_eq(eg_batches_score(b, plain_decoder, net, &own), 0);
    ck_assert_int_eq(eg_trainer_evaluate(t, &its), 0);
    ck_assert(own.sequences == its.sequences && own.tokens == its.tokens);
    ck_assert_double_eq_tol(own.loss, its.loss, 1e-4);
    ck_assert_int_le(labs((long)(own.right - its.right)), 3);
    ck_assert_int_eq(eg_batches_score(b, wrong_none, net, &own), -1);
    eg_assert_error(cx, "batches_score: block 0 (examples 0 to 5): the network: it gave no logits");
    ck_assert_int_eq(eg_batches_score(b, NULL, net, &own), -1);
    eg_assert_error(cx, "the function of the logits is NULL");
}

TEST(batches_refused)
{
    eg_data *sum = eg_data_task(cx, eg_task_find("addition"));
    ck_assert_ptr_null(eg_batches_new(sum, .encoder = true));
    eg_assert_error(cx, "batches: an encoder needs input and output of one length, but task "
                        "addition has 7 and 4");
    ck_assert_ptr_null(eg_batches_new(sum, .encoder = true, .source = true));
    eg_assert_error(cx, "batches: an encoder has no source");
    ck_assert_ptr_null(eg_batches_new(sum, .rows = -1));
    eg_assert_error(cx, "batches: rows must be from 1 to 2^20, not -1");
    ck_assert_ptr_null(eg_batches_new(sum, .context = 3));
    eg_assert_error(cx, "other data have none, not 3");
    ck_assert_ptr_null(eg_batches_new(some_data(3), .context = 4000));
    eg_assert_error(cx, "batches: context must be from 1 to 3");
    ck_assert_ptr_null(eg_batches_new(some_data(3), .source = true));
    eg_assert_error(cx, "batches: a text is learnt by a decoder");
    const eg_batch *b = eg_batches_at(eg_batches_new(sum, .rows = 2), 0);
    eg_batch_source(cx, b);
    eg_assert_error(cx, "batch: it has no source");
    ck_assert_int_eq(eg_batch_part(b, 1, 3).rows, 0);
    ck_assert_int_eq(eg_batch_part(b, 1, 2).rows, 1);
}

/* -- eg_opt_save, eg_opt_resume --------------------------------------------------------------- */
static int64_t loop(eg_ctx *c, const char *path, int64_t to)
{
    eg_params *p = eg_params_open(c);
    eg_linear *fit = eg_linear_new(p, "fit", .in = 3, .out = 2);
    eg_opt *opt = eg_adamw(p, .lr = 1e-2, .schedule = { .decay = EG_COSINE, .steps = 20 });
    int64_t k = eg_opt_resume(opt, path), from = k;
    for (; k >= 0 && k < to; k++) {
        eg_tensor *x = eg_uniform(c, -1, 1, 8, 3);
        ck_assert_int_eq(
            eg_step(opt, eg_mean(NULL, eg_square(eg_dropout(eg_linear_run(fit, x), 0.3)))), 0);
    }
    ck_assert_int_eq(eg_opt_save(opt, path), 0);
    return from;
}

TEST(a_run_is_saved_and_resumed_in_one_call_each)
{
    char whole[] = "/tmp/eg_opt_XXXXXX", parts[] = "/tmp/eg_opt_XXXXXX";
    close(mkstemp(whole)), close(mkstemp(parts));
    unlink(whole), unlink(parts);
    eg_ctx *c = eg_open(.seed = 3);
    ck_assert_int_eq(loop(c, whole, 9), 0);
    eg_close(c);
    c = eg_open(.seed = 3);
    ck_assert_int_eq(loop(c, parts, 4), 0);
    eg_close(c);
    c = eg_open(.seed = 3, .threads = 1);
    ck_assert_int_eq(loop(c, parts, 9), 4);
    same_files(whole, parts);
    eg_close(c);
    eg_params *p = eg_params_open(cx);
    eg_linear_new(p, "fit", .in = 3, .out = 2);
    eg_opt *sgd = eg_sgd(p, .momentum = 0.9);
    ck_assert_int_eq(eg_opt_resume(sgd, whole), -1);
    eg_assert_error(cx, "\"opt.m.fit.W\" is not part of the state of sgd with these options");
    ck_assert_int_eq(eg_opt_resume(eg_adamw(p), "/tmp"), -1);
    eg_assert_error(cx, "/tmp");
    ck_assert_int_eq(eg_params_save(p, whole), 0);
    ck_assert_int_eq(eg_opt_resume(sgd, whole), -1);
    eg_assert_error(cx, "not a run that eg_opt_save wrote");
    unlink(whole), unlink(parts);
}

/* -- options of the built-in models ----------------------------------------------------------- */
GROUP("options", .setup = open_f32, .teardown = close_cx, .timeout = 600)

static const eg_linear_attention_args squared = { .phi = "x * x + 1" };
static const struct {
    const char *model;
    eg_mha_args attention;
    const char *norm, *ffn, *optimiser;
    double weight_decay, momentum, diversity;
    const char *text; /* in the checkpoint */
    int positions;    /* number of tables of learned positions */
} recipes[] = {
    { "decoder", { .rotary = 1e4 }, .text = "rotary 10000" },
    { "decoder", { .alibi = true, .kv_heads = 2 }, .text = "kv_heads 2\nalibi yes" },
    { "encoder", { .where = "abs(i - j) < 3" }, .text = "where abs(i - j) < 3", .positions = 1 },
    { "encoder",
      { .score = "30 *\ntanh(score / 30)" },
      .text = "score 30 * tanh(score / 30)",
      .positions = 1 },
    { "decoder",
      { .linear = &squared },
      .text = "linear yes\nlinear.phi x * x + 1",
      .positions = 1 },
    { "seq2seq", { .kv_heads = 1, .sink = true }, .text = "kv_heads 1\nsink yes", .positions = 2 },
    { "encoder", { .qk_norm = EG_QK_RMS }, .text = "qk_norm 1", .positions = 1 },
    { "decoder", { 0 }, .norm = "post", .text = "norm post", .positions = 1 },
    { "seq2seq",
      { 0 },
      .norm = "rms",
      .ffn = "swiglu",
      .text = "norm rms\nffn swiglu",
      .positions = 2 },
    { "encoder",
      { 0 },
      .ffn = "relu",
      .optimiser = "adamw",
      .weight_decay = 0.1,
      .text = "ffn relu",
      .positions = 1 },
    { "decoder", { 0 }, .optimiser = "sgd", .momentum = 0.9, .text = "", .positions = 1 },
    { "encoder", { 0 }, .diversity = 0.5, .text = "", .positions = 1 },
    { "seq2seq", { .alibi = true }, .diversity = 0.5, .text = "alibi yes" },
};

/* Each is trained, saved, loaded, trained further with the same bits, and is stored in the
 * checkpoint; its gradients are right. */
LOOP_TEST(options_of_the_models_are_stored, sizeof recipes / sizeof *recipes)
{
    char path[2][32] = { "/tmp/eg_own_XXXXXX", "/tmp/eg_own_XXXXXX" };
    for (int k = 0; k < 2; k++) {
        /* this variable ends before the model is loaded */
        eg_mha_args attention = recipes[_i].attention;
        close(mkstemp(path[k]));
        eg_ctx *own = eg_open(.threads = 1 + k);
        eg_trainer *t = eg_trainer_new(
            eg_data_task(own, eg_task_find("sort")), .model = recipes[_i].model,
            .attention = &attention, .norm = recipes[_i].norm, .ffn = recipes[_i].ffn,
            .optimiser = recipes[_i].optimiser, .weight_decay = recipes[_i].weight_decay,
            .momentum = recipes[_i].momentum, .diversity = recipes[_i].diversity, .layers = 1,
            .d_model = 16, .batch = 4, .seed = 3);
        ck_assert_msg(t != NULL, "%s", eg_error(own));
        memset(&attention, 0, sizeof attention);
        ck_assert_str_eq(eg_trainer_config_text(t), recipes[_i].text);
        int positions = 0;
        for (int n = 0; n < eg_params_count(eg_trainer_params(t)); n++)
            positions += strstr(eg_params_at(eg_trainer_params(t), n)->name, "positions.P") != NULL;
        ck_assert_int_eq(positions, recipes[_i].positions);
        for (int n = 0; n < (k ? 2 : 4); n++)
            ck_assert_msg(!eg_trainer_step(t, NULL), "%s", eg_error(own));
        if (k) {
            ck_assert_int_eq(eg_trainer_save(t, path[1]), 0);
            eg_close(own);
            own = eg_open();
            t = eg_trainer_load(own, path[1], 0);
            ck_assert_msg(t != NULL, "%s", eg_error(own));
            ck_assert_str_eq(eg_trainer_config_text(t), recipes[_i].text);
            ck_assert(eg_trainer_saved(t, path[1]).same);
            for (int n = 0; n < 2; n++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
            ck_assert_ptr_nonnull(eg_trainer_predict(t, "31024"));
            eg_trainer_check_report r;
            ck_assert_int_eq(eg_trainer_check(t, &r), 0);
            const bool kinks = recipes[_i].ffn && !strcmp(recipes[_i].ffn, "relu");
            ck_assert_msg(kinks || r.right == r.entries, "%s: %g", r.worst_name, r.worst);
        }
        ck_assert_int_eq(eg_trainer_save(t, path[k]), 0);
        eg_close(own);
    }
    same_files(path[0], path[1]);
    unlink(path[0]), unlink(path[1]);
}

/* Dropout of the attention's weights is stored, and the check of the gradients has none. */
TEST(dropout_of_the_attention_is_stored)
{
    eg_data *d = eg_data_task(cx, eg_task_find("copy"));
    eg_trainer *t = eg_trainer_new(d, .layers = 1, .d_model = 16, .heads = 2, .batch = 4,
                                   .dropout = 0.1, .attention = &(eg_mha_args){ .dropout = 0.3 });
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    eg_trainer_check_report r;
    ck_assert_int_eq(eg_trainer_check(t, &r), 0);
    ck_assert_int_eq(r.right, r.entries);
    char path[64];
    snprintf(path, sizeof path, "dropout-%d.safetensors", (int)getpid());
    ck_assert_int_eq(eg_trainer_save(t, path), 0);
    eg_trainer *again = eg_trainer_load(cx, path);
    remove(path);
    eg_assert_ok(cx);
    ck_assert_double_eq(eg_trainer_config(again)->attention->dropout, 0.3);
    ck_assert_double_eq(eg_trainer_config(again)->dropout, 0.1);
}
TEST(options_refused)
{
    eg_data *d = eg_data_task(cx, eg_task_find("copy"));
    ck_assert_ptr_null(eg_trainer_new(d, .norm = "before"));
    eg_assert_error(cx, "trainer: norm \"before\" is none of pre, post, rms");
    ck_assert_ptr_null(eg_trainer_new(d, .ffn = "silu"));
    eg_assert_error(cx, "trainer: ffn \"silu\" is none of gelu, relu, swiglu, geglu");
    ck_assert_ptr_null(eg_trainer_new(d, .optimiser = "lion"));
    eg_assert_error(cx,
                    "trainer: optimiser \"lion\" is none of adam, adamw, sgd, rmsprop, adagrad");
    ck_assert_ptr_null(eg_trainer_new(d, .momentum = 0.9));
    eg_assert_error(cx, "trainer: momentum belongs to the optimisers sgd and rmsprop, not to adam");
    ck_assert_ptr_null(eg_trainer_new(d, .diversity = -1));
    eg_assert_error(cx, "trainer: diversity must be a number from 0 on, not -1");
    ck_assert_ptr_null(eg_trainer_new(d, .attention = &(eg_mha_args){ .core = eg_attention_with }));
    eg_assert_error(cx, "trainer: .attention has .core, which a checkpoint cannot store");
    ck_assert_ptr_null(eg_trainer_new(d, .attention = &(eg_mha_args){ .heads = 2 }));
    eg_assert_error(cx, "trainer: .attention has .heads");
    ck_assert_ptr_null(eg_trainer_new(d, .attention = &(eg_mha_args){ .kv_heads = 3 }));
    eg_assert_error(cx, "kv_heads");
    ck_assert_ptr_null(eg_trainer_new(d, .attention = &(eg_mha_args){ .where = "j <" }));
    eg_assert_error(cx, "j <");
    mine u = { .kv_heads = 2, .cap = 30 };
    ck_assert_ptr_null(eg_trainer_new(d, .network = &gqa, .user = &u, .norm = "rms"));
    eg_assert_error(cx, "trainer: .norm belongs to the built-in models; network \"gqa\" reads "
                        ".user");
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("addition")),
                                      .network = &plain[2], .diversity = 0.1));
    eg_assert_error(cx, "diversity is about heads, but network \"my seq2seq\" names no part");
}

/* A step inside the loss of a step: the test whether the loss is a sum calls the loss, too. */
typedef struct nested {
    eg_tensor *w;
    eg_opt *opt;
} nested;
static eg_tensor *nested_loss(void *user, eg_ctx *c, int64_t from, int64_t to, int64_t *count)
{
    const nested *n = user;
    (void)count;
    eg_step_over(n->opt, nested_loss, user, 8);
    return eg_mul(eg_full(c, (double)(to - from), 1), eg_square(n->w));
}
TEST(a_step_inside_of_a_step_is_refused)
{
    eg_params *p = eg_params_open(cx);
    nested n = { .w = eg_param(p, "w", "a", 1) };
    eg_fill(n.w, 2);
    n.opt = eg_sgd(p, .lr = 0.1);
    ck_assert_int_eq(eg_step_over(n.opt, nested_loss, &n, 8), -1);
    eg_assert_error(cx, "step_over: inside a block of another call");
    ck_assert_double_eq(eg_item(n.w), 2);
}

/* -- the test set is evaluated block by block -------------------------------------------------- */
/* plain_decoder that records its calls. */
typedef struct observed {
    eg_transformer *net;
    _Atomic int inside, most, calls; /* at present; at most; in all */
    _Atomic int64_t rows;            /* largest number in a call */
    int64_t fails_at;                /* calls fail if the first token of the first row is this */
} observed;
static observed seen;
static void *make_observed(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    seen.net = make_plain(p, o, n);
    return &seen;
}
static eg_tensor *observed_logits(const void *net, eg_ctx *c, const eg_batch *b)
{
    (void)net;
    const int now = ++seen.inside;
    if (now > seen.most) seen.most = now;
    if (b->rows > seen.rows) seen.rows = b->rows;
    seen.calls++;
    eg_tensor *x = plain_decoder(seen.net, c, b);
    if (b->tokens[0] == seen.fails_at) x = eg_fail(c, "token %d", (int)seen.fails_at);
    seen.inside--;
    return x;
}
/* A score, with every bit of its loss, and the memory that it took. */
typedef struct evaluated {
    eg_score score;
    uint64_t bytes;
} evaluated;
/* Evaluates a trainer after a step, on that many threads. */
static evaluated evaluate_on(int threads, const eg_network *row, const char *model,
                             const char *task, int64_t batch, int64_t block)
{
    evaluated l;
    eg_ctx *c = eg_open(.threads = threads);
    eg_trainer *t = eg_trainer_new(eg_data_task(c, eg_task_find(task)), .network = row,
                                   .model = row ? NULL : model, .layers = 1, .d_model = 16,
                                   .heads = 2, .batch = batch, .block = block, .dropout = 0.2);
    eg_assert_ok(c);
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    const uint64_t draws = eg_draws(c);
    eg_stats_reset(c);
    ck_assert_int_eq(eg_trainer_evaluate(t, &l.score), 0);
    l.bytes = eg_stats(c).used_peak;
    ck_assert_int_eq(eg_draws(c), draws);
    ck_assert_int_eq(l.score.sequences, 1000);
    const uint64_t mallocs = eg_stats(c).mallocs;
    eg_score again = l.score;
    if (threads == 1) ck_assert_int_eq(eg_trainer_evaluate(t, &again), 0);
    ck_assert(again.right == l.score.right && again.loss == l.score.loss);
#if !EG_DEBUG_ALLOC
    if (threads == 1) ck_assert_int_eq(eg_stats(c).mallocs, mallocs);
#else
    (void)mallocs;
#endif
    eg_close(c);
    return l;
}
/* Blocks that do not divide the batch, one that is the batch, and one row. */
LOOP_TEST(evaluations_have_the_same_bits_on_any_number_of_threads, 12)
{
    static const struct {
        int64_t batch, block;
    } cuts[] = { { 10, 4 }, { 6, 6 }, { 7, 1 }, { 64, 16 } };
    static const char *const model[] = { "encoder", "decoder", "seq2seq" };
    const char *task = _i % 3 ? "addition" : "reverse";
    const evaluated one =
        evaluate_on(1, NULL, model[_i % 3], task, cuts[_i / 3].batch, cuts[_i / 3].block);
    for (int threads = 2; threads <= 4; threads += SLOWER > 1 ? 2 : 1) {
        const evaluated more =
            evaluate_on(threads, NULL, model[_i % 3], task, cuts[_i / 3].batch, cuts[_i / 3].block);
        ck_assert_msg(more.score.loss == one.score.loss && more.score.right == one.score.right &&
                          more.score.exact == one.score.exact,
                      "%d threads: %.17g and %.17g", threads, more.score.loss, one.score.loss);
    }
}
/* A thread is inside one block at a time, a serial network in one block altogether; no call has
 * more rows than a block. */
LOOP_TEST(threads_evaluate_blocks, 2)
{
    const eg_network row = {
        .name = "seen", .make = make_observed, .logits = observed_logits, .serial = _i
    };
    evaluated l[2];
    for (int k = 0; k < 2; k++) {
        seen = (observed){ .fails_at = -1 };
        l[k] = evaluate_on(k ? 3 : 1, &row, NULL, "addition", 64, 5);
        ck_assert_int_ge(seen.calls, k ? 200 : 2 * 200); /* evaluated again on one thread only */
        ck_assert_int_le(seen.most, k && !_i ? 3 : 1);
        ck_assert(seen.rows <= 16); /* 16: the check of the network */
    }
    ck_assert(l[0].score.loss == l[1].score.loss && l[0].score.right == l[1].score.right);
}
/* Memory: activations of one block, not of the batch. */
TEST(an_evaluation_takes_the_memory_of_a_block)
{
    const evaluated small = evaluate_on(1, NULL, "decoder", "addition", 512, 4),
                    large = evaluate_on(1, NULL, "decoder", "addition", 512, 512);
    ck_assert_msg(8 * small.bytes < large.bytes, "%llu and %llu bytes",
                  (unsigned long long)small.bytes, (unsigned long long)large.bytes);
}
TEST(an_evaluation_reports_its_first_error_once)
{
    static const eg_network row = { .name = "seen",
                                    .make = make_observed,
                                    .logits = observed_logits };
    seen = (observed){ .fails_at = -1 };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("addition")), .network = &row,
                                   .layers = 1, .d_model = 16, .heads = 2, .batch = 8, .block = 2);
    eg_example e;
    ck_assert_int_eq(eg_trainer_test(t, 6, &e), 0);
    seen.fails_at = e.input[0];
    int k = 0;
    for (; !eg_trainer_test(t, 2 * k, &e); k++)
        if (e.input[0] == seen.fails_at) break;
    char text[128];
    snprintf(text, sizeof text, "trainer_evaluate: block %d (examples %d to %d): token %d", k,
             2 * k, 2 * k + 1, (int)seen.fails_at);
    for (int twice = 0; twice < 2; twice++) {
        ck_assert_int_eq(eg_trainer_evaluate(t, NULL), -1);
        eg_assert_error(cx, text);
    }
    seen.fails_at = -1;
    ck_assert_int_eq(eg_trainer_evaluate(t, NULL), 0);
}
/* Ranks have consecutive blocks; 7 ranks have different numbers of them. */
typedef struct divided {
    int threads;
    eg_score score[8];
} divided;
static int divided_body(void *user, const eg_ranks_table *table)
{
    divided *d = user;
    eg_ctx *c = eg_open(.threads = d->threads);
    eg_ranks *r = eg_ranks_open(.cx = c, .table = table);
    eg_trainer *t = eg_trainer_new(eg_data_task(c, eg_task_find("addition")), .model = "decoder",
                                   .layers = 1, .d_model = 8, .heads = 2, .batch = 20, .block = 3);
    const int bad = eg_trainer_distribute(t, r) || eg_trainer_step(t, NULL) ||
                    eg_trainer_evaluate(t, &d->score[table->rank]);
    eg_ranks_close(r);
    eg_close(c);
    return bad;
}
TEST(evaluations_have_the_same_bits_on_any_number_of_ranks)
{
    static const int ranks[] = { 1, 2, 3, 7 };
    divided one = { .threads = 1 };
    ck_assert_int_eq(eg_ranks_simulate(cx, 1, divided_body, &one), 0);
    ck_assert_int_eq(one.score[0].sequences, 1000);
    for (int k = 1; k < 8; k++) {
        divided more = { .threads = 1 + k % 2 };
        ck_assert_int_eq(eg_ranks_simulate(cx, ranks[k / 2], divided_body, &more), 0);
        for (int r = 0; r < ranks[k / 2]; r++)
            ck_assert_msg(!memcmp(&more.score[r], &one.score[0], sizeof *one.score),
                          "rank %d of %d", r, ranks[k / 2]);
    }
}

/* The norm of all gradients is that of the parameters' norms; heads are those of eg_heads. */
TEST(norms_and_heads_are_measured)
{
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("copy")), .layers = 2,
                                   .d_model = 16, .heads = 2, .batch = 8);
    eg_opt *opt = eg_trainer_opt(t);
    ck_assert(eg_opt_norm_of(opt, 0) <= 0 && eg_opt_norm_of(opt, 0) >= 0);
    eg_progress p;
    ck_assert_int_eq(eg_trainer_step(t, &p), 0);
    double squares = 0;
    const int count = eg_params_count(eg_trainer_params(t));
    for (int k = 0; k < count; k++) squares += eg_opt_norm_of(opt, k) * eg_opt_norm_of(opt, k);
    ck_assert_double_eq_tol(squares, p.norm * p.norm, 1e-9 * squares);
    ck_assert(isnan(eg_opt_norm_of(opt, count)) && isnan(eg_opt_norm_of(opt, -1)));
    eg_head head[4];
    double largest[4];
    ck_assert_int_eq(eg_trainer_heads(t, head), 0);
    ck_assert_int_eq(eg_trainer_saturation(t, largest), 0);
    for (int k = 0; k < 4; k++) {
        ck_assert(head[k].top >= largest[k] && head[k].top <= largest[k] && head[k].rows > 0);
        ck_assert(head[k].entropy > 0 && head[k].self + head[k].previous <= 1);
    }
    ck_assert_int_eq(eg_trainer_heads(t, NULL), -1);
    eg_assert_error(cx, "trainer_heads: the result is NULL");
}

/* With diversity in the loss the heads are less similar than without. */
TEST(diversity_makes_heads_less_similar)
{
    double alike[2];
    for (int k = 0; k < 2; k++) {
        eg_trainer *t =
            eg_trainer_new(eg_data_task(cx, eg_task_find("copy")), .layers = 1, .d_model = 16,
                           .heads = 4, .batch = 16, .seed = 2, .diversity = k ? 3 : 0);
        for (int n = 0; n < 40; n++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        alike[k] = eg_item(eg_head_diversity(
            "[h] i j",
            eg_select_axis(eg_trainer_self_attention_weights(t, "abcdefgh", NULL), 0, 0)));
    }
    ck_assert_msg(alike[1] < 0.8 * alike[0], "%g and %g", alike[0], alike[1]);
}

/* -- token files ------------------------------------------------------------------------------ */
TEST(token_files_are_texts)
{
    char path[] = "/tmp/eg_tokens_XXXXXX", saved[] = "/tmp/eg_own_XXXXXX";
    close(mkstemp(path)), close(mkstemp(saved));
    int32_t number[600];
    for (int k = 0; k < 600; k++) number[k] = k % 7 * 3;
    ck_assert_int_eq(eg_npy_save(path, eg_from(cx, number, 600)), 0);
    eg_data *d = eg_data_tokens(cx, path);
    ck_assert_msg(d != NULL, "%s", eg_error(cx));
    ck_assert(eg_data_is_text(d) && eg_data_size(d) == 600 && eg_data_symbols(d) == 19 + EG_FIRST);
    ck_assert_str_eq(eg_data_unit(d), "token");
    ck_assert_str_eq(eg_data_symbol(d, 18 + EG_FIRST), "18");
    eg_trainer *t = eg_trainer_new(d, .layers = 1, .d_model = 16, .heads = 2, .context = 8,
                                   .batch = 8, .steps = 150, .lr = 5e-3);
    ck_assert_msg(!eg_trainer_run(t, NULL, NULL, NULL), "%s", eg_error(cx));
    ck_assert_int_eq(eg_trainer_save(t, saved), 0);
    for (int k = 0; k < 2; k++) {
        t = eg_trainer_load(cx, saved, .inference_only = k);
        ck_assert_msg(t != NULL, "%s", eg_error(cx));
        ck_assert_str_eq(
            eg_trainer_generate(t, .prompt = "3 6 9", .length = 4, .temperature = 1e-3),
            "12 15 18 0");
    }
    static const struct {
        const char *error;
        int64_t number[3];
        int64_t count;
    } bad[] = { { "token 0 is -1, not within 0 and 1048575", { -1, 0, 2 }, 3 },
                { "token 1 is -1, not within 0 and 1048575", { 0, -1, 2 }, 3 },
                { "token 2 is 1048576, not", { 0, 1, 1 << 20 }, 3 },
                { "a text of 3 tokens; 20 are needed", { 0, 1, 2 }, 3 } };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ck_assert_int_eq(eg_npy_save(path, eg_from(cx, bad[k].number, bad[k].count)), 0);
        ck_assert_ptr_null(eg_data_tokens(cx, path));
        eg_assert_error(cx, bad[k].error);
    }
    ck_assert_int_eq(eg_npy_save(path, eg_ones(cx, 30)), 0);
    ck_assert_ptr_null(eg_data_tokens(cx, path));
    eg_assert_error(cx, "tokens are integers along one axis, not f32 with 1 axis");
    ck_assert_ptr_null(eg_trainer_load(cx, saved, 0));
    unlink(path), unlink(saved);
}

TEST(a_model_of_the_largest_token_can_be_loaded)
{
    char path[] = "/tmp/eg_tokens_XXXXXX", saved[] = "/tmp/eg_own_XXXXXX";
    close(mkstemp(path)), close(mkstemp(saved));
    int32_t number[20] = { (1 << 20) - 1 };
    ck_assert_int_eq(eg_npy_save(path, eg_from(cx, number, 20)), 0);
    eg_trainer *t = eg_trainer_new(eg_data_tokens(cx, path), .layers = 1, .d_model = 1, .heads = 1,
                                   .width = 1, .context = 1, .batch = 1, .steps = 1);
    ck_assert_msg(!eg_trainer_save(t, saved), "%s", eg_error(cx));
    t = eg_trainer_load(cx, saved, 0);
    ck_assert_msg(t != NULL, "%s", eg_error(cx));
    ck_assert_str_eq(eg_data_symbol(eg_trainer_data(t), (1 << 20) - 1 + EG_FIRST), "1048575");
    unlink(path), unlink(saved);
}

/* -- memory ----------------------------------------------------------------------------------- */
GROUP("memory", .timeout = 600)

static bool own_life(eg_ctx *own, const char *path)
{
    static const eg_network row = { .name = "own", .make = make_plain, .logits = plain_decoder };
    eg_data *d = eg_data_task(own, eg_task_find("copy"));
    eg_score s;
    eg_batches *b = d ? eg_batches_new(d, .rows = 3) : NULL;
    const eg_batch *one = eg_batches_at(b, 1);
    eg_trainer *t =
        one ? eg_trainer_new(d, .network = &row, .layers = 1, .d_model = 8, .heads = 2, .batch = 3)
            : NULL;
    bool good = t && !eg_trainer_step(t, NULL) && eg_trainer_predict(t, "ab") &&
                !eg_opt_save(eg_trainer_opt(t), path) &&
                eg_opt_resume(eg_trainer_opt(t), path) == 1 && !eg_trainer_evaluate(t, &s);
    ck_assert(good == !eg_error(own));
    return good;
}
TEST(allocations_fail_in_turn) { memory_ends_in_turn(own_life, 60); }
