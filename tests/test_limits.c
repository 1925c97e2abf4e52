/* test_limits.c: extreme values of every integer option of the public structs: an error that is one
 * line, or a result; never undefined behaviour, which the sanitizers' build reports. Memory is
 * limited, so that a large size is refused and not taken. Numbers without a meaning, and options
 * that nothing reads, are refused. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests.h"

static eg_ctx *cx;
static int64_t e; /* the extreme value */

/* An allocator of at most 64 MB, which stores the size before each block. */
static void *limited(void *user, void *p, size_t old, size_t size)
{
    size_t *used = user;
    if (size && *used + size - old > (size_t)64 << 20) return NULL;
    *used += size - old;
    if (size) return realloc(p, size);
    free(p);
    return NULL;
}
static size_t used;

static eg_tensor *floats(int rank, const int64_t *dims)
{
    return eg_full_n(cx, EG_F32, 0.5, rank, dims);
}
#define X(...) \
    floats((int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]){ __VA_ARGS__ })
static eg_tensor *ids(int64_t n) { return eg_full_n(cx, EG_I32, 1, 2, (int64_t[]){ 1, n }); }
static eg_params *list(void) { return eg_params_open(cx); }
static eg_data *task(void) { return eg_data_task(cx, eg_task_find("sort")); }

#define PAIR           X(1, 3, 2, 4), X(1, 3, 2, 4), X(1, 3, 2, 4)
#define ATTENTION(...) eg_attention("bihd,bjhd,bjhe->bihe", PAIR, __VA_ARGS__)
static void attention_offset(void) { ATTENTION(.where = "j <= i", .offset = e); }
static void attention_far(void) { ATTENTION(.where = "j <= i - 9223372036854775807", .offset = e); }
static void attention_product(void) { ATTENTION(.where = "3 * i % 2 == j / 2", .offset = e); }
static void attention_alibi(void)
{
    ATTENTION(.where = "j <= i", .alibi = { "h", X(2) }, .offset = e);
}
static void softmax_offset(void) { eg_softmax("i [j]", X(3, 3), .where = "j <= i", .offset = e); }
static void heads_offset(void) { eg_heads(X(1, 2, 3, 3), "b [h] i j", .offset = e); }
static void heads_top(void) { eg_heads(X(1, 2, 3, 3), "b [h] i j", .top = e); }
static void rotary_offset(void) { eg_rotary("b l h d, l d", X(1, 3, 2, 4), .offset = e); }
static void rotary_width(void) { eg_rotary("b l h d, l d", X(1, 3, 2, 4), .width = e); }
static void linear_offset(void)
{
    eg_linear_attention("bihd,bjhd,bjhe->bihe", PAIR, .where = "j <= i", .offset = e);
}
static void linear_chunk(void)
{
    eg_linear_attention("bihd,bjhd,bjhe->bihe", PAIR, .where = "j <= i", .chunk = e,
                        .decay = { "h", X(2) });
}
static void cross_entropy(void) { eg_cross_entropy("b l [v]", X(1, 3, 4), ids(3), .ignore = e); }
static void topk(void) { eg_topk("i [j]", X(2, 3), e); }
static void select_index(void) { eg_select_axis(X(2, 3), 1, e); }
static void slice_from(void) { eg_slice_axis(X(2, 3), 1, e, EG_END, 1); }
static void slice_to(void) { eg_slice_axis(X(2, 3), 1, 0, e, 1); }
static void slice_step(void) { eg_slice_axis(X(2, 3), 1, 0, EG_END, e); }
static void slice_back(void) { eg_slice_axis(X(2, 3), 1, e, e, -1); }
static void schedule(void)
{
    eg_schedule_factor(&(eg_schedule){ .decay = EG_COSINE, .warmup = e, .steps = e, .last = 0.1 },
                       e);
}
static void schedule_now(void)
{
    eg_schedule_factor(&(eg_schedule){ .decay = EG_LINEAR, .warmup = 3, .steps = e, .last = 0.1 },
                       e);
}
static void optimiser(void)
{
    eg_params *p = list();
    eg_param(p, "w", "i", 3);
    eg_adam(p, .schedule = { .decay = EG_COSINE, .warmup = e, .steps = e });
}
static void parameter(void) { eg_param(list(), "w", "ij", e, e); }

#define MODULE(name, call)     \
    static void name(void)     \
    {                          \
        eg_params *p = list(); \
        call;                  \
    }
MODULE(linear_in, eg_linear_new(p, "a", .in = e, .out = 2))
MODULE(linear_out, eg_linear_new(p, "a", .in = 2, .out = e))
MODULE(norm_width, eg_norm_new(p, "a", .d_model = e))
MODULE(embedding_rows, eg_embedding_new(p, "a", .count = e, .d_model = 2))
MODULE(embedding_cols, eg_embedding_new(p, "a", .count = 2, .d_model = e))
MODULE(positions_rows, eg_positions_new(p, "a", .length = e, .d_model = 2, .sinusoid = true))
MODULE(positions_cols, eg_positions_new(p, "a", .length = 2, .d_model = e, .sinusoid = true))
MODULE(positions_at, eg_positions_run(eg_positions_new(p, "a", .length = 4, .d_model = 2),
                                      X(1, 2, 2), .offset = e))
MODULE(ffn_model, eg_ffn_new(p, "a", .d_model = e))
MODULE(ffn_width, eg_ffn_new(p, "a", .d_model = 2, .width = e))
MODULE(mha_model, eg_mha_new(p, "a", .d_model = e, .heads = 2))
MODULE(mha_heads, eg_mha_new(p, "a", .d_model = 8, .heads = e))
MODULE(mha_groups, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .kv_heads = e))
MODULE(mha_key, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .d_k = e))
MODULE(mha_value, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .d_v = e))
MODULE(mha_qdim, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .qdim = e))
MODULE(mha_kdim, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .kdim = e))
MODULE(mha_vdim, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .vdim = e))
MODULE(mha_out, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .d_out = e))
MODULE(mha_each, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .form = EG_PER_HEAD,
                            .d_k_each = (int64_t[]){ e, e }))
MODULE(mha_packed,
       eg_mha_new(p, "a", .d_model = 8, .heads = 2, .d_k = e, .d_v = e, .form = EG_PACKED))
MODULE(mha_offset, eg_mha_run(eg_mha_new(p, "a", .d_model = 8, .heads = 2, .rotary = 1e4),
                              X(1, 3, 8), .where = "j <= i", .offset = e))
MODULE(mha_turned, eg_mha_new(p, "a", .d_model = 8, .heads = 2, .rotary = 1e4, .rotary_width = e))
MODULE(block_model, eg_block_new(p, "a", .d_model = e, .heads = 2))
MODULE(block_heads, eg_block_new(p, "a", .d_model = 8, .heads = e))
MODULE(block_width, eg_block_new(p, "a", .d_model = 8, .heads = 2, .width = e))
MODULE(block_memory, eg_block_new(p, "a", .d_model = 8, .heads = 2, .cross = true, .memory_dim = e))
MODULE(block_offset, eg_block_run(eg_block_new(p, "a", .d_model = 8, .heads = 2), X(1, 3, 8),
                                  .where = "j <= i", .offset = e))
#define MODEL(...)                                                                                 \
    eg_transformer_new(p, "", .vocabulary = 4, .length = 4, .d_model = 8, .heads = 2, .layers = 1, \
                       __VA_ARGS__)
MODULE(model_words, eg_transformer_new(p, "", .vocabulary = e, .length = 4, .d_model = 8,
                                       .heads = 2, .layers = 1))
MODULE(model_length, eg_transformer_new(p, "", .vocabulary = 4, .length = e, .d_model = 8,
                                        .heads = 2, .layers = 1))
MODULE(model_width, eg_transformer_new(p, "", .vocabulary = 4, .length = 4, .d_model = e,
                                       .heads = 2, .layers = 1))
MODULE(model_heads, eg_transformer_new(p, "", .vocabulary = 4, .length = 4, .d_model = 8,
                                       .heads = e, .layers = 1))
MODULE(model_layers, eg_transformer_new(p, "", .vocabulary = 4, .length = 4, .d_model = 8,
                                        .heads = 2, .layers = e))
MODULE(model_inner, MODEL(.width = e))
MODULE(model_classes, MODEL(.classes = e))
#define TWO(...)                                                                               \
    eg_seq2seq_new(p, "", .vocabulary = 4, .length = 4, .d_model = 8, .heads = 2, .layers = 1, \
                   __VA_ARGS__)
MODULE(two_source, TWO(.source_vocabulary = e))
MODULE(two_length, TWO(.source_length = e))
MODULE(two_layers, TWO(.decoder_layers = e))
MODULE(two_width, TWO(.width = e))

#define TRAINER(field)                                                                             \
    static void trainer_##field(void)                                                              \
    {                                                                                              \
        eg_trainer_step(eg_trainer_new(task(), .layers = 1, .d_model = 8, .heads = 2, .field = e), \
                        NULL);                                                                     \
    }
#define TRAINER_ALONE(field) \
    static void trainer_##field(void) { eg_trainer_new(task(), .field = e); }
TRAINER_ALONE(layers)
TRAINER_ALONE(d_model)
TRAINER_ALONE(heads)
TRAINER(width)
TRAINER(batch)
TRAINER(steps)
TRAINER(context)
TRAINER(block) TRAINER(evaluate) TRAINER(early_stop) static void trainer_schedule(void)
{
    eg_trainer_new(task(), .layers = 1, .d_model = 8, .heads = 2,
                   .schedule = { .decay = EG_LINEAR, .warmup = e, .steps = e });
}
static void trainer_seed(void)
{
    eg_trainer_new(task(), .layers = 1, .d_model = 8, .heads = 2, .seed = (uint64_t)e);
}
static eg_trainer *small(void)
{
    return eg_trainer_new(eg_data_task(cx, eg_task_find("addition")), .layers = 1, .d_model = 8,
                          .heads = 2, .batch = 2);
}
static void generate_length(void) { eg_trainer_generate(small(), "1+2", .length = e); }
static void generate_top(void)
{
    eg_trainer_generate(small(), "1+2", .temperature = 1, .top_k = e);
}
static void generate_beam(void) { eg_trainer_generate(small(), "1+2", .beam = e); }

static eg_tensor *three_logits(void *user, const eg_prefixes *p)
{
    (void)user;
    return eg_full_n(cx, EG_F32, 1, 2, (int64_t[]){ p->rows, 3 });
}
#define DECODE(name, ...)                                                                       \
    static void name(void)                                                                      \
    {                                                                                           \
        eg_decode(cx, three_logits, NULL, .prompt = (const int32_t[]){ 1 }, .prompt_length = 1, \
                  .end = 1, __VA_ARGS__);                                                       \
    }
/* a longer one would be written token by token */
DECODE(decode_longest, .max_new_tokens = e < 100 || e == INT64_MAX ? e : 100)
DECODE(decode_top, .max_new_tokens = 2, .temperature = 1, .top_k = e)
DECODE(decode_beam, .max_new_tokens = 2, .beam = e)
DECODE(decode_least, .max_new_tokens = 2, .min_token = (int32_t)e)
static void decode_end(void)
{
    eg_decode(cx, three_logits, NULL, .prompt = (const int32_t[]){ 1 }, .prompt_length = 1,
              .max_new_tokens = 2, .end = (int32_t)e);
}
static void decode_prompts(void)
{
    eg_decode(cx, three_logits, NULL, .prompt_length = e, .max_new_tokens = 2);
}
static void heatmap_width(void)
{
    FILE *f = fopen("/dev/null", "w");
    eg_heatmap_print(f, X(2, 2), .width = (int)e);
    fclose(f);
}

static const struct {
    const char *name;
    void (*call)(void);
} rows[] = {
#define ROW(f) { #f, f },
    ROW(attention_offset) ROW(attention_far) ROW(attention_product) ROW(attention_alibi) ROW(
        softmax_offset) ROW(heads_offset) ROW(heads_top) ROW(rotary_offset) ROW(rotary_width)
        ROW(linear_offset) ROW(linear_chunk) ROW(cross_entropy) ROW(topk) ROW(select_index)
            ROW(slice_from) ROW(slice_to) ROW(slice_step) ROW(slice_back) ROW(schedule) ROW(
                schedule_now) ROW(optimiser) ROW(parameter) ROW(linear_in) ROW(linear_out)
                ROW(norm_width) ROW(embedding_rows) ROW(embedding_cols) ROW(positions_rows) ROW(
                    positions_cols) ROW(positions_at) ROW(ffn_model) ROW(ffn_width) ROW(mha_model)
                    ROW(mha_heads) ROW(mha_groups) ROW(mha_key) ROW(mha_value) ROW(mha_qdim) ROW(
                        mha_kdim) ROW(mha_vdim) ROW(mha_out) ROW(mha_each) ROW(mha_packed)
                        ROW(mha_offset) ROW(mha_turned) ROW(block_model) ROW(block_heads) ROW(
                            block_width) ROW(block_memory) ROW(block_offset) ROW(model_words)
                            ROW(model_length) ROW(model_width) ROW(model_heads) ROW(model_layers)
                                ROW(model_inner) ROW(model_classes) ROW(two_source) ROW(two_length)
                                    ROW(two_layers) ROW(two_width) ROW(trainer_layers) ROW(
                                        trainer_d_model) ROW(trainer_heads) ROW(trainer_width)
                                        ROW(trainer_batch) ROW(trainer_steps) ROW(trainer_context)
                                            ROW(trainer_block) ROW(trainer_evaluate)
                                                ROW(trainer_early_stop) ROW(trainer_schedule)
                                                    ROW(trainer_seed) ROW(generate_length)
                                                        ROW(generate_top) ROW(generate_beam)
                                                            ROW(decode_longest) ROW(decode_top)
                                                                ROW(decode_beam) ROW(decode_least)
                                                                    ROW(decode_end)
                                                                        ROW(decode_prompts)
                                                                            ROW(heatmap_width)
};
enum { ROWS = sizeof rows / sizeof *rows };

GROUP("limits", .timeout = 60)

LOOP_TEST(extreme_options, ROWS)
{
    static const int64_t values[] = {
        INT64_MIN, INT64_MIN + 1, -((int64_t)1 << 53), INT32_MIN,     -1,
        0,         INT32_MAX,     (int64_t)1 << 53,    INT64_MAX - 1, INT64_MAX
    };
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        used = 0;
        e = values[k];
        cx = eg_open(.threads = 1, .realloc = limited, .user = &used);
        rows[_i].call();
        const char *error = eg_error(cx);
        ck_assert_msg(!error || (*error && !strchr(error, '\n')), "%s, %lld: %s", rows[_i].name,
                      (long long)e, error);
        eg_close(cx);
        ck_assert_uint_eq(used, 0);
    }
}

/* -- options without a meaning ---------------------------------------------------------------- */
GROUP("meaning", .timeout = 60)

static eg_tensor *run(eg_mha_run_args o)
{
    o.size = sizeof o, o.query = X(1, 3, 4);
    o.mha = eg_mha_new(list(), "m", .d_model = 4, .heads = 2);
    return eg_mha_run_with(&o);
}
static eg_params *weights(void)
{
    eg_params *p = list();
    eg_param(p, "w", "i", 3);
    return p;
}
static eg_tensor *itself(void *user, eg_tensor *const *xs)
{
    (void)user;
    return xs[0];
}
static void check(double rtol, double atol)
{
    eg_tensor *x = X(2);
    eg_gradcheck(itself, NULL, 1, &x, .rtol = rtol, .atol = atol);
}
static void train(eg_trainer_args o)
{
    o.size = sizeof o, o.data = task(), o.layers = 1, o.d_model = 8, o.heads = 2;
    eg_trainer_new_with(&o);
}
static void print(eg_heatmap_args o)
{
    o.size = sizeof o, o.x = X(2, 2);
    eg_heatmap_print_with(stdout, &o);
}
#define CASE(name, call) \
    static void meaning_##name(void) { call; }
CASE(temperature, eg_mha_new(list(), "m", .d_model = 4, .heads = 2, .temperature = -1))
CASE(fill, run((eg_mha_run_args){ .fill = 1 }))
CASE(slot, run((eg_mha_run_args){ .slot = -1 }))
CASE(run_block, run((eg_mha_run_args){ .ranks_block = -1 }))
CASE(ranks_block, ATTENTION(.ranks_block = -1))
CASE(linear_scale, eg_linear_attention("bihd,bjhd,bjhe->bihe", PAIR, .scale = NAN))
CASE(memory, eg_block_new(list(), "b", .d_model = 4, .heads = 2, .memory_dim = 4))
CASE(deviation,
     eg_positions_new(list(), "p", .length = 3, .d_model = 4, .sinusoid = true, .deviation = NAN))
CASE(norm, eg_layernorm("i [j]", X(2, 3), .eps = INFINITY))
CASE(correction, eg_var("i [j]", X(2, 3), .correction = -INFINITY))
CASE(rtol, check(INFINITY, 0))
CASE(atol, check(0, INFINITY))
CASE(low, print((eg_heatmap_args){ .low = NAN }))
CASE(high, print((eg_heatmap_args){ .low = 2, .high = 1 }))
CASE(picture_width, print((eg_heatmap_args){ .width = -1 }))
CASE(momentum, eg_adam(weights(), .momentum = 0.9))
CASE(nesterov, eg_rmsprop(weights(), .momentum = 0.9, .nesterov = true))
CASE(eps, eg_sgd(weights(), .eps = 1e-8))
CASE(accumulator, eg_rmsprop(weights(), .initial_accumulator_value = 1))
CASE(last, eg_adam(weights(), .schedule = { .last = 0.1 }))
CASE(d_model, eg_adam(weights(), .schedule = { .decay = EG_COSINE, .steps = 9, .d_model = -1 }))
CASE(trained, train((eg_trainer_args){ .schedule = { .gamma = NAN } }))
#undef CASE

static const struct {
    void (*call)(void);
    const char *sentence;
} refused[] = {
    { meaning_temperature, "mha \"m\": temperature is -1; it must be finite and not negative" },
    { meaning_fill, "mha \"m\": .fill is 1; it must be finite and negative, or 0 for -inf" },
    { meaning_slot, "mha \"m\": .slot is -1; it must not be negative" },
    { meaning_run_block, "mha \"m\": .ranks_block is -1; it must not be negative" },
    { meaning_ranks_block, "attention: .ranks_block is -1" },
    { meaning_linear_scale, "linear_attention: .scale is nan" },
    { meaning_memory, "block \"b\": memory_dim is 4, but .cross is not set" },
    { meaning_deviation, "positions \"p\": deviation is nan, but a sinusoid has no learned table" },
    { meaning_norm, "layernorm: eps is inf; it must be finite and not negative" },
    { meaning_correction, "var: the correction is -inf; it must be finite" },
    { meaning_rtol, "gradcheck: rtol inf, atol 0 or directions 0 is negative or not finite" },
    { meaning_atol, "gradcheck: rtol 0, atol inf or directions 0 is negative or not finite" },
    { meaning_low, "heatmap: no scale goes from .low nan to .high 0" },
    { meaning_high, "heatmap: no scale goes from .low 2 to .high 1" },
    { meaning_picture_width, "heatmap: .width is -1; it must not be negative" },
    { meaning_momentum, "adam: momentum belongs to sgd and rmsprop" },
    { meaning_nesterov, "rmsprop: nesterov belongs to sgd" },
    { meaning_eps, "sgd: eps belongs to adam, adamw, rmsprop and adagrad" },
    { meaning_accumulator, "rmsprop: initial_accumulator_value belongs to adagrad" },
    { meaning_last, "adam: schedule.last belongs to the schedules linear, cosine, wsd and "
                    "wsd-sqrt, not to constant" },
    { meaning_d_model, "adam: schedule.d_model belongs to the schedule noam, not to cosine" },
    { meaning_trained, "adam: schedule.gamma belongs to the schedules steps and exponential" },
};
LOOP_TEST(options_without_a_meaning, sizeof refused / sizeof *refused)
{
    cx = eg_open(.threads = 1);
    refused[_i].call();
    eg_assert_error(cx, refused[_i].sentence);
    eg_close(cx);
}

/* -- NULL, which functions without a context cannot report ------------------------------------- */
static void null_groups(void)
{
    const eg_opt_group groups[] = { { .names = "w", .frozen = true }, { 0 } };
    ck_assert_uint_eq(eg_opt_groups_write(groups, NULL, 5), strlen("w: frozen"));
    ck_assert_uint_eq(eg_opt_groups_write(NULL, NULL, 5), 0);
}
static void null_number_text(void)
{
    ck_assert_int_eq(eg_number_text(NULL, 9, 3, 0.5), 3);
    ck_assert_int_eq(eg_number_text(NULL, 0, 3, 0.5), 3);
}
static void null_number_read(void)
{
    char none[] = "", *end = none;
    ck_assert_double_eq(eg_number_read(NULL, &end), 0);
    ck_assert_ptr_null(end);
    ck_assert_double_eq(eg_number_read(NULL, NULL), 0);
}
static void null_decoded(void)
{
    const int32_t token[] = { EG_FIRST, EG_FIRST };
    char text[8] = "before";
    ck_assert_uint_eq(eg_data_decode(NULL, 1, token, NULL, 5), 0);
    ck_assert_uint_eq(eg_data_decode(task(), 2, token, NULL, 5),
                      eg_data_decode(task(), 2, token, NULL, 0));
    ck_assert_uint_eq(eg_data_decode(task(), 2, NULL, text, sizeof text), 0);
    ck_assert_str_eq(text, "");
}
static void null_options(void) { eg_options(NULL, 8, (size_t[]){ 8 }); }
static void null_utf8(void)
{
    uint32_t code = 7;
    ck_assert_int_eq(eg_utf8(NULL, 4, &code), 0);
    ck_assert_uint_eq(code, 7);
}
static void null_hash(void) { ck_assert_uint_eq(eg_hash(EG_HASH_START, NULL, 4), EG_HASH_START); }
static void null_total(void)
{
    ck_assert_double_eq(eg_ranks_tree_total(NULL, (eg_span){ 0, 2 }), 0);
}
static void null_positions(void)
{
    ck_assert_int_eq(eg_attention_positions(NULL, 8, 0, false, NULL), 0);
    ck_assert_int_eq(eg_attention_positions(NULL, -1, 0, true, NULL), 0);
    for (int64_t block = 0; block < 4; block++) { /* length + block overflows */
        eg_span run[2];
        ck_assert_int_eq(eg_attention_positions(NULL, INT64_MAX, block, false, run), 1);
        ck_assert(run[0].from == 0 && run[0].to == INT64_MAX);
        ck_assert_int_eq(eg_attention_positions(NULL, INT64_MAX, block, true, run), 2);
        ck_assert(run[0].from == 0 && run[0].to == run[1].from && run[1].to == INT64_MAX);
        ck_assert(run[0].to > INT64_MAX / 2 - 200 && run[0].to < INT64_MAX / 2 + 200);
    }
}
static void (*const null_calls[])(void) = { null_groups,  null_number_text, null_number_read,
                                            null_decoded, null_options,     null_utf8,
                                            null_hash,    null_total,       null_positions };
LOOP_TEST(null_is_harmless_where_no_context_is_given, sizeof null_calls / sizeof *null_calls)
{
    cx = eg_open(.threads = 1);
    null_calls[_i]();
    eg_assert_ok(cx);
    eg_close(cx);
}
/* No double has more than 767 significant digits, and %g removes zeros at the end. */
TEST(more_digits_than_a_double_has_change_nothing)
{
    static const double numbers[] = { 0.1, -1e300, 4.9406564584124654e-324, 2.2250738585072009e-308,
                                      INFINITY };
    char exact[1200], text[1200];
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        const int length = snprintf(exact, sizeof exact, "%.1100g", numbers[k]);
        ck_assert_int_eq(eg_number_text(text, sizeof text, INT_MAX, numbers[k]), length);
        ck_assert_str_eq(text, exact);
    }
}
/* the length of the run and a block of the whole batch are no mistakes */
TEST(steps_of_any_schedule_and_large_blocks_are_accepted)
{
    cx = eg_open(.threads = 1);
    ck_assert_ptr_nonnull(
        eg_adam(weights(), .schedule = { .decay = EG_EXPONENTIAL, .gamma = 0.9, .steps = 9 }));
    train((eg_trainer_args){ .batch = 8, .block = 9 });
    eg_assert_ok(cx);
    eg_close(cx);
}
