/* test_pack.c: sequences without padding. The two operations compared with plain loops; modules and
 * models on packed sequences compared with those that compute padding and mask it. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 7); }
static void close_cx(void) { eg_close(cx); }

/* -- the operations ---------------------------------------------------------------------------- */
GROUP("rows", .setup = open_f64, .teardown = close_cx)

TEST(positions_follow_each_other)
{
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_F64, 1, 13, 1), 3, 4),
              *t = eg_from(cx, ((int32_t[]){ 2, 0, 3 }), 3);
    eg_tensor *y = eg_pack(x, t, 6);
    SHOWS(y, 1, 2, 9, 10, 11, 0);
    SHOWS(eg_unpack(y, t, 4), 1, 2, 0, 0, 0, 0, 0, 0, 9, 10, 11, 0);
    SHOWS(eg_unpack(y, t, 3), 1, 2, 0, 0, 0, 0, 9, 10, 11);
    ck_assert_int_eq(eg_packed_length(t), 16);
    ck_assert_int_eq(eg_packed_length(eg_from(cx, ((int64_t[]){ 16, 17 }), 2)), 48);
    ck_assert_int_eq(eg_packed_length(eg_from_n(cx, EG_I64, NULL, 1, (int64_t[]){ 0 })), 0);
    eg_assert_ok(cx);
}

/* Returns x (b l e f) as one of several views of the same elements. */
static eg_tensor *viewed(eg_tensor *x, int how)
{
    switch (how) {
    case 1: return eg_permute(eg_copy(eg_permute(x, 2, 1, 0, 3)), 2, 1, 0, 3);
    case 2: return eg_flip_axis(eg_copy(eg_flip_axis(x, 1)), 1);
    case 3: return eg_flip_axis(eg_copy(eg_flip_axis(x, -1)), -1);
    case 4: return eg_slice_axis(eg_pad_axis(x, 0, 1, 2, 9), 0, 1, 1 + eg_dim(x, 0), 1);
    case 5: return eg_slice_axis(eg_pad_axis(x, 3, 1, 2, 9), 3, 1, 1 + eg_dim(x, 3), 1);
    default: return x;
    }
}
/* Every view, type, and lengths with a stride, compared with the definition. */
LOOP_TEST(any_view_of_any_type, 6)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I32, EG_I64, EG_C128,
                                      EG_F16, EG_U8,  EG_I8,  EG_BF16 };
    const int32_t given[] = { 3, 9, 0, 9, 5, 9, 1 };
    const int64_t b = 4, l = 5, e = 2, f = 3, p = 11;
    eg_tensor *t = eg_slice_axis(eg_from(cx, given, 7), 0, 0, EG_END, 2);
    if (_i % 2) t = eg_cast(eg_flip_axis(eg_copy(eg_flip_axis(t, 0)), 0), EG_I64);
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        eg_tensor *whole = eg_randint(cx, 0, 100, b, l, e, f);
        eg_tensor *x = viewed(eg_cast(eg_cast(whole, EG_F32), types[k]), _i);
        eg_tensor *y = eg_pack(x, t, p);
        eg_tensor *z =
            eg_unpack(_i == 1 ? eg_permute(eg_copy(eg_permute(y, 1, 2, 0)), 2, 0, 1) : y, t, l);
        eg_assert_ok(cx);
        ck_assert(eg_type(y) == types[k] && eg_dim(y, 0) == p && eg_rank(z) == 4);
        const bool complex = types[k] == EG_C128;
        eg_tensor *const shown = complex ? eg_real(y) : eg_cast(y, EG_F64),
                         *const back = complex ? eg_real(z) : eg_cast(z, EG_F64);
        int64_t at = 0;
        for (int64_t s = 0; s < b; s++)
            for (int64_t i = 0; i < l; i++)
                for (int64_t n = 0; n < e * f; n++) {
                    const bool real = i < given[2 * s];
                    const double want = real ? eg_get(whole, s, i, n / f, n % f) : 0;
                    ck_assert(eg_get(back, s, i, n / f, n % f) == want);
                    if (real) ck_assert(eg_get(shown, at + i, n / f, n % f) == want);
                    if (i == l - 1 && n == e * f - 1) at += given[2 * s];
                }
        for (; at < p; at++)
            for (int64_t n = 0; n < e * f; n++) ck_assert(eg_get(shown, at, n / f, n % f) == 0);
    }
}

static eg_tensor *both(void *t, eg_tensor *const *x)
{
    eg_tensor *y = eg_pack(eg_square(x[0]), t, 9);
    return eg_square(eg_unpack(eg_mul(y, x[1]), t, 5));
}
TEST(gradients_of_second_order)
{
    eg_tensor *t = eg_from(cx, ((int64_t[]){ 4, 0, 3 }), 3);
    eg_assert_grad2(both, t, eg_normal(cx, 0, 1, 3, 5, 2), eg_normal(cx, 0, 1, 9, 2));
}

/* ⟨pack x, p⟩ = ⟨x, unpack p⟩ for all lengths */
TEST(each_is_the_adjoint_of_the_other)
{
    for (int n = 0; n < 200; n++) {
        eg_mark m = eg_push(cx);
        const int64_t b = 1 + n % 5, l = 1 + n % 7, packed_length = b * l + n % 3;
        eg_tensor *t = eg_randint(cx, 0, l + 1, b), *x = eg_normal(cx, 0, 1, b, l, 3),
                  *p = eg_normal(cx, 0, 1, packed_length, 3);
        const double one = eg_item(eg_sum(NULL, eg_mul(eg_pack(x, t, packed_length), p))),
                     other = eg_item(eg_sum(NULL, eg_mul(x, eg_unpack(p, t, l))));
        eg_assert_ok(cx);
        ck_assert_double_eq_tol(one, other, 1e-12 * (fabs(one) + 10));
        eg_pop(cx, m);
    }
}

/* large enough for several threads: the same bits */
TEST(threads_change_nothing)
{
    eg_ctx *more = eg_open(.threads = 4, .seed = 7), *one = eg_open(.threads = 1, .seed = 7);
    eg_tensor *sums[2];
    for (int k = 0; k < 2; k++) {
        eg_ctx *c = k ? more : one;
        eg_tensor *x = eg_normal(c, 0, 1, 97, 128, 96), *t = eg_randint(c, 0, 129, 97);
        const int64_t p = eg_packed_length(t);
        eg_tensor *y = eg_pack(x, t, p), *z = eg_unpack(y, t, 128);
        eg_assert_ok(c);
        sums[k] = eg_concat_axis(0, y, eg_reshape(z, 97 * 128, 96));
    }
    ck_assert(!memcmp(eg_f32(sums[0]), eg_f32(sums[1]), (size_t)eg_size(sums[0]) * 4));
    eg_close(more);
    eg_close(one);
}

typedef struct refusal {
    eg_tensor *(*call)(void);
    const char *why;
} refusal;
static eg_tensor *lengths(int64_t a, int64_t b) { return eg_from(cx, ((int64_t[]){ a, b }), 2); }
static eg_tensor *too_long(void) { return eg_pack(eg_ones(cx, 2, 3), lengths(1, 4), 9); }
static eg_tensor *negative(void) { return eg_unpack(eg_ones(cx, 9), lengths(-1, 4), 9); }
static eg_tensor *too_many(void) { return eg_pack(eg_ones(cx, 2, 3), lengths(3, 2), 4); }
static eg_tensor *too_few(void) { return eg_unpack(eg_ones(cx, 4, 3), lengths(3, 2), 4); }
static eg_tensor *huge(void)
{
    return eg_unpack(eg_ones(cx, 0, 0), lengths(INT64_MAX / 2, INT64_MAX), INT64_MAX);
}
static eg_tensor *other_count(void) { return eg_pack(eg_ones(cx, 3, 3), lengths(1, 1), 4); }
static eg_tensor *no_integers(void) { return eg_pack(eg_ones(cx, 2, 3), eg_ones(cx, 2), 4); }
static eg_tensor *no_vector(void)
{
    return eg_unpack(eg_ones(cx, 3), eg_unsqueeze(lengths(1, 1), 0), 4);
}
static eg_tensor *no_positions(void) { return eg_pack(eg_ones(cx, 3), lengths(1, 1), 4); }
static eg_tensor *no_axis(void) { return eg_unpack(eg_scalar(cx, 3), lengths(1, 1), 4); }
static eg_tensor *below_zero(void) { return eg_pack(eg_ones(cx, 2, 3), lengths(1, 1), -4); }
static eg_tensor *below_too(void) { return eg_unpack(eg_ones(cx, 3), lengths(1, 1), -4); }
static eg_tensor *counted(void)
{
    return eg_packed_length(lengths(3, -2)) < 0 ? NULL : eg_ones(cx, 1);
}
static eg_tensor *counted_far(void)
{
    return eg_packed_length(lengths(INT64_MAX, 1)) < 0 ? NULL : eg_ones(cx, 1);
}
static const refusal refusals[] = {
    { too_long, "pack: lengths[1] is 4, but a sequence has 3 positions" },
    { negative, "unpack: lengths[0] is -1, but a sequence has 9 positions" },
    { too_many,
      "pack: there are 4 packed positions, of which 3 are before sequence 1, whose length is 2" },
    { too_few,
      "unpack: there are 4 packed positions, of which 3 are before sequence 1, whose length is 2" },
    { huge, "unpack: " },
    { other_count, "pack: there are 2 lengths, but 3 sequences" },
    { no_integers, "pack: the lengths are f64, not i32 or i64" },
    { no_vector, "unpack: the lengths are (1, 2), but must have one axis" },
    { no_positions, "pack: operand 1 is (3,), not (b l ...)" },
    { no_axis, "unpack: operand 1 is (), not (p ...)" },
    { below_zero, "pack: the number of positions is -4" },
    { below_too, "unpack: the number of positions is -4" },
    { counted, "packed_length: lengths[1] is -2, but no sequence is shorter than 0" },
    { counted_far, "packed_length: lengths[0] is 9223372036854775807, with which" },
};
LOOP_TEST(what_is_refused, sizeof refusals / sizeof *refusals)
{
    ck_assert(!eg_ok(refusals[_i].call()));
    eg_assert_error(cx, refusals[_i].why);
}

/* -- modules and models: packed, compared with padding that is masked -------------------------- */
GROUP("models", .setup = open_f64, .teardown = close_cx, .timeout = 60)

enum { B = 3, L = 7, WIDE = 8, TOKENS = 9 };
static const int64_t given_lengths[B] = { 4, 7, 2 };
static eg_tensor *of_lengths(void)
{
    return eg_from_n(cx, EG_I64, given_lengths, 1, (int64_t[]){ B });
}
/* true at positions without padding, (b l) */
static eg_tensor *kept(void)
{
    return eg_where_mask(cx, .where = "j < t[b]", .axes = "[b] [j]", .sizes = (int64_t[]){ B, L },
                         .with = { { "t", of_lengths() } });
}
/* Compares two results and the gradients of the parameters, at positions without padding. */
static void alike(eg_params *p, eg_tensor *packed, eg_tensor *padded, const char *what)
{
    eg_tensor *xs[128], *d[2][128], *y[2] = { packed, padded };
    const int count = eg_params_count(p);
    ck_assert_msg(!eg_error(cx), "%s: %s", what, eg_error(cx));
    eg_tensor *keep = eg_expand(eg_unsqueeze(kept(), -1), B, L, eg_dim(padded, 2)),
              *weight = eg_normal(cx, 0, 1, B, L, eg_dim(padded, 2));
    for (int k = 0; k < count; k++) xs[k] = eg_params_at(p, k)->x;
    eg_assert_close(packed, eg_where(keep, padded, eg_zeros_like(padded)), 1e-12);
    for (int k = 0; k < 2; k++) {
        eg_tensor *part = eg_mul(eg_where(keep, y[k], eg_zeros_like(y[k])), weight);
        ck_assert_msg(!eg_grad_or_null(eg_sum(NULL, eg_square(part)), NULL, count, xs, d[k]),
                      "%s: %s", what, eg_error(cx));
    }
    for (int k = 0; k < count; k++) {
        ck_assert_msg(!d[0][k] == !d[1][k], "%s: %s", what, eg_params_at(p, k)->name);
        if (d[0][k]) eg_assert_close(d[0][k], d[1][k], 1e-11);
    }
}

static const eg_mha_args groups = { .kv_heads = 1, .rotary = 50 }, slopes = { .alibi = true },
                         learnt = { .bias_kv = true, .zero_attn = true, .sink = true },
                         unit = { .qk_norm = EG_QK_UNIT, .temperature = 2 },
                         scored = { .score = "score - 0.1 * (i - j) * (i - j)" },
                         sigmoids = { .no_softmax = true, .score = "sigmoid(score)" },
                         linear = { .linear = &(eg_linear_attention_args){ .phi = "exp(x)" } };
static const struct {
    const char *what;
    eg_transformer_args a;
    const char *where, *score;
} nets[] = {
    { "plain", { .heads = 2 }, NULL, NULL },
    { "decoder", { .heads = 2 }, "j <= i", NULL },
    { "rotary, one key head", { .heads = 2, .mha = &groups, .no_positions = true }, NULL, NULL },
    { "alibi", { .heads = 4, .mha = &slopes, .rms = true }, "j <= i", NULL },
    { "further keys", { .heads = 2, .mha = &learnt, .post_norm = true }, NULL, NULL },
    { "unit vectors", { .heads = 2, .mha = &unit, .sinusoid = true }, NULL, NULL },
    { "own score", { .heads = 2, .mha = &scored, .gated = true }, NULL, NULL },
    { "sigmoids", { .heads = 2, .mha = &sigmoids }, NULL, NULL },
    { "linear", { .heads = 2, .mha = &linear }, NULL, NULL },
    { "types", { .heads = 2, .types = 3, .embedding_norm = true, .no_logits = true }, NULL, NULL },
    { "tied", { .heads = 2, .tied = true, .no_bias = true }, "i - 2 < j", "2 * tanh(score / 2)" },
};
LOOP_TEST(a_transformer_of_lengths, sizeof nets / sizeof *nets)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer_args a = nets[_i].a;
    a.size = sizeof a, a.params = p, a.name = "net", a.vocabulary = TOKENS, a.length = L;
    a.d_model = WIDE, a.layers = 2, a.width = 12;
    eg_transformer *net = eg_transformer_new_with(&a);
    randomise(p, 0.4);
    eg_tensor *index = eg_randint(cx, 0, TOKENS, B, L), *weights[2][2],
              *types = a.types ? eg_randint(cx, 0, 3, B, L) : NULL,
              *gain = eg_uniform(cx, 0.5, 1, 2, a.heads);
    eg_assert_ok(cx);
    eg_tensor *packed = eg_transformer_run(net, index, .types = types, .where = nets[_i].where,
                                           .score = nets[_i].score, .lengths = of_lengths(),
                                           .gain = gain, .weights = weights[0]);
    eg_tensor *padded = eg_transformer_run(net, index, .types = types, .where = nets[_i].where,
                                           .score = nets[_i].score, .keep = { "bj", kept() },
                                           .gain = gain, .weights = weights[1]);
    alike(p, packed, padded, nets[_i].what);
    for (int k = 0; k < 2; k++) {
        eg_tensor *rows = eg_expand(eg_rearrange("b i -> b 1 i 1", kept()), B, a.heads, L, L);
        for (int side = 0; side < 2; side++)
            weights[side][k] = eg_where(rows, weights[side][k], eg_zeros_like(weights[side][k]));
        eg_assert_close(weights[0][k], weights[1][k], 1e-12);
    }
    /* more positions than needed, and padding with another token, change no element */
    eg_tensor *other = eg_where(
        kept(), index, eg_cast(eg_shift(eg_scale(eg_cast(index, EG_F64), -1), TOKENS - 1), EG_I64));
    eg_assert_close(eg_transformer_run(net, eg_cast(other, EG_I32), .types = types,
                                       .where = nets[_i].where, .score = nets[_i].score,
                                       .lengths = eg_cast(of_lengths(), EG_I32), .gain = gain,
                                       .packed_length = 13 + _i),
                    packed, 1e-13);
    ck_assert(!eg_ok(eg_transformer_run(net, index, .types = types, .lengths = of_lengths(),
                                        .packed_length = 12)));
    eg_assert_error(cx, "transformer \"net\": .lengths: pack: there are 12 packed positions");
}

LOOP_TEST(a_seq2seq_of_lengths, 4)
{
    eg_params *p = eg_params_open(cx);
    eg_seq2seq *net = eg_seq2seq_new(p, "net", .vocabulary = TOKENS, .length = L, .d_model = WIDE,
                                     .heads = 2, .layers = 2, .decoder_layers = 1, .width = 12,
                                     .shared = _i & 1, .post_norm = _i & 2);
    randomise(p, 0.4);
    eg_tensor *source = eg_randint(cx, 0, TOKENS, B, L), *target = eg_randint(cx, 0, TOKENS, B, L),
              *of_source = eg_from(cx, ((int32_t[]){ 7, 3, 5 }), B);
    eg_tensor *keep = eg_where_mask(cx, .where = "j < t[b]", .axes = "[b] [j]",
                                    .sizes = (int64_t[]){ B, L }, .with = { { "t", of_source } });
    alike(p,
          eg_seq2seq_run(net, source, target, .source_lengths = of_source, .lengths = of_lengths()),
          eg_seq2seq_run(net, source, target, .source_keep = { "bj", keep }), "both");
    /* only one side */
    eg_tensor *padded = eg_seq2seq_run(net, source, target, .source_keep = { "bj", keep });
    eg_assert_close(eg_seq2seq_run(net, source, target, .source_lengths = of_source), padded,
                    1e-12);
    alike(
        p,
        eg_seq2seq_run(net, source, target, .source_keep = { "bj", keep }, .lengths = of_lengths()),
        padded, "the target");
    eg_assert_ok(cx);
}

/* A block: cross attention to a packed memory, and to one that is not. */
TEST(a_block_of_packed_operands)
{
    eg_params *p = eg_params_open(cx);
    eg_block *m = eg_block_new(p, "b", .d_model = WIDE, .heads = 2, .cross = true);
    randomise(p, 0.4);
    eg_tensor *t = of_lengths(), *x = eg_normal(cx, 0, 1, B, L, WIDE),
              *memory = eg_normal(cx, 0, 1, B, 5, WIDE),
              *s = eg_from(cx, ((int64_t[]){ 5, 1, 3 }), B);
    eg_tensor *keep = eg_where_mask(cx, .where = "j < t[b]", .axes = "[b] [j]",
                                    .sizes = (int64_t[]){ B, 5 }, .with = { { "t", s } });
    eg_tensor *padded =
        eg_block_run(m, x, memory, .keep = { "bj", kept() }, .memory_keep = { "bj", keep });
    for (int k = 0; k < 2; k++) {
        eg_tensor *y =
            eg_block_run(m, eg_unsqueeze(eg_pack(x, t, 14), 0),
                         k ? memory : eg_unsqueeze(eg_pack(memory, s, 9), 0), .packed = { t, L },
                         .memory_packed = { k ? NULL : s, k ? 0 : 5 },
                         .memory_keep = { k ? "bj" : NULL, k ? keep : NULL });
        alike(p, eg_unpack(eg_select_axis(y, 0, 0), t, L), padded, "block");
    }
    eg_assert_ok(cx);
}

/* gradients of second order through packed attention */
static eg_tensor *attends(void *m, eg_tensor *const *x)
{
    eg_tensor *t = of_lengths();
    return eg_mha_run(m, eg_unsqueeze(eg_pack(x[0], t, 13), 0), .packed = { t, L });
}
TEST(attention_of_second_order)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "m", .d_model = 4, .heads = 2);
    randomise(p, 0.5);
    eg_assert_grad2(attends, m, eg_normal(cx, 0, 1, B, L, 4));
}

/* The gradient of each example of different length, also by linear attention: lengths with copies,
 * .packed_length given. */
LOOP_TEST(the_gradient_of_each_example_of_its_length, 2)
{
    const eg_mha_args recurrent = { .linear = &(eg_linear_attention_args){ 0 } };
    eg_params *p = eg_params_open(cx);
    eg_transformer *net =
        eg_transformer_new(p, "net", .vocabulary = TOKENS, .length = L, .d_model = WIDE, .heads = 2,
                           .layers = 1, .mha = _i ? &recurrent : NULL);
    randomise(p, 0.4);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), B, NULL);
    eg_tensor *index = eg_randint(cx, 0, TOKENS, B, 1, L), *t = eg_unsqueeze(of_lengths(), -1),
              *x[] = { net->logits->weight, net->tokens->table }, *each[2], *one[2];
    eg_tensor *y = eg_transformer_run(net, eg_copies_unstack(c, index),
                                      .lengths = eg_copies_unstack(c, t), .packed_length = L);
    ck_assert_int_eq(eg_grad_each(eg_sum(NULL, eg_square(y)), 2, x, each), 0);
    for (int b = 0; b < B; b++) {
        y = eg_transformer_run(net, eg_select_axis(index, 0, b), .lengths = eg_select_axis(t, 0, b),
                               .packed_length = L);
        ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(y)), NULL, 2, x, one), 0);
        for (int k = 0; k < 2; k++) eg_assert_close(eg_select_axis(each[k], 0, b), one[k], 1e-13);
    }
    eg_assert_ok(cx);
}

/* A captured step reads the lengths in each run. */
typedef struct captured {
    eg_transformer *net;
    eg_tensor *index, *t;
    int64_t packed_length;
} captured;
static int captured_step(void *user, eg_tensor **out)
{
    const captured *c = user;
    out[0] =
        eg_transformer_run(c->net, c->index, .lengths = c->t, .packed_length = c->packed_length);
    return 0;
}
TEST(captured_with_other_lengths)
{
    eg_params *p = eg_params_open(cx);
    captured c = { .net = eg_transformer_new(p, "net", .vocabulary = TOKENS, .length = L,
                                             .d_model = WIDE, .heads = 2, .layers = 1),
                   .index = eg_randint(cx, 0, TOKENS, B, L),
                   .t = of_lengths() };
    eg_nograd(cx, true);
    ck_assert_ptr_null(eg_capture(cx, captured_step, &c, 1));
    eg_assert_error(cx,
                    "transformer \"net\": .lengths: a captured step needs the number of positions");
    c.packed_length = 16;
    eg_captured *step = eg_capture(cx, captured_step, &c, 1);
    eg_assert_ok(cx);
    const int64_t others[][B] = { { 7, 7, 2 }, { 0, 1, 0 }, { 7, 7, 3 } };
    for (int k = 0; k < 3; k++) {
        eg_assign(c.t, eg_from_n(cx, EG_I64, others[k], 1, (int64_t[]){ B }));
        if (k < 2) {
            eg_tensor *now;
            ck_assert(!eg_captured_run(step) && !captured_step(&c, &now));
            eg_assert_close(eg_captured_output(step, 0), now, 0);
        } else
            ck_assert(eg_captured_run(step));
    }
    eg_assert_error(cx, "pack: there are 16 packed positions, of which 14 are before sequence 2");
}

typedef struct module_refusal {
    eg_mha_args made;
    eg_mha_run_args run;
    int b; /* sequences of the query: 1 */
    const char *why;
} module_refusal;
LOOP_TEST(what_modules_refuse, 9)
{
    eg_tensor *t = of_lengths(), *mask = eg_ones(cx, B, L);
    const module_refusal cases[] = {
        { { .heads = 2 }, { .packed = { t, L } }, B, "a packed query is (1 p m), but 'b' is 3" },
        { { .heads = 2 },
          { .packed = { mask, L } },
          1,
          "the lengths of the packed query have 2 axes, not one" },
        { { .heads = 2 }, { .packed = { t, -1 } }, 1, "has a longest sequence of -1" },
        { { .heads = 2 },
          { .packed = { t, 6 } },
          1,
          "packed, the longest of 6 positions: unpack: lengths[1] is 7" },
        { { .heads = 2, .layout = "i b m" }, { .packed = { t, L } }, 1, "of the layout \"b i m\"" },
        { { .heads = 2 }, { .packed = { t, L }, .lengths = { "b", t } }, 1, "beside .lengths" },
        { { .heads = 2 }, { .key_packed = { t, L } }, 1, ".key_packed is of keys that are not" },
        { { .heads = 2 },
          { .packed = { t, L }, .key = eg_ones(cx, 2, 2, WIDE) },
          1,
          "batch 'b' is 3 in the query but 2 in the key" },
        { { .heads = 2, .linear = linear.linear },
          { .packed = { t, L }, .keep = { "bj", mask } },
          1,
          ".keep in a linear attention" },
    };
    const module_refusal *c = &cases[_i];
    eg_params *p = eg_params_open(cx);
    eg_mha_args a = c->made;
    a.size = sizeof a, a.params = p, a.name = "m", a.d_model = WIDE;
    eg_mha_run_args run = c->run;
    run.size = sizeof run, run.mha = eg_mha_new_with(&a);
    run.query = eg_ones(cx, c->b, 13, WIDE);
    ck_assert(!eg_ok(eg_mha_run_with(&run)));
    eg_assert_error(cx, c->why);
}
TEST(what_models_refuse)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_transformer_new(p, "net", .vocabulary = TOKENS, .length = L,
                                             .d_model = WIDE, .heads = 2, .layers = 1);
    eg_tensor *index = eg_randint(cx, 0, TOKENS, B, L);
    eg_cache *cache = eg_cache_new(eg_owner_open(cx), L);
    ck_assert(!eg_ok(eg_transformer_run(net, index, .lengths = of_lengths(), .cache = cache)));
    eg_assert_error(cx, "transformer \"net\": .lengths: it cannot be used beside .cache");
    ck_assert(!eg_ok(eg_transformer_run(net, index, .lengths = eg_ones(cx, B))));
    eg_assert_error(cx, "transformer \"net\": .lengths: packed_length: the lengths are f64");
    ck_assert(!eg_ok(eg_transformer_run(net, index, .lengths = of_lengths(), .packed_length = -1)));
    eg_assert_error(cx, "transformer \"net\": .lengths: the number of packed positions is -1");
    ck_assert(!eg_ok(eg_transformer_run(net, index, .packed_length = 8)));
    eg_assert_error(cx, "the number of packed positions is 8, but there are no lengths");
    ck_assert(
        !eg_ok(eg_transformer_run(net, eg_select_axis(index, 0, 0), .lengths = of_lengths())));
    eg_assert_error(cx, "it belongs to axes b and l, but there is 1 axis");
    eg_seq2seq *pair = eg_seq2seq_new(p, "pair", .vocabulary = TOKENS, .length = L, .d_model = WIDE,
                                      .heads = 2, .layers = 1);
    eg_tensor *two = eg_ones(cx, 2);
    ck_assert(!eg_ok(eg_seq2seq_run(pair, index, index, .source_lengths = eg_cast(two, EG_I32))));
    eg_assert_error(
        cx, "seq2seq \"pair\": .source_lengths: pack: there are 2 lengths, but 3 sequences");
    ck_assert(!eg_ok(eg_seq2seq_run(pair, index, index, .lengths = eg_cast(two, EG_I32))));
    eg_assert_error(cx, "seq2seq \"pair\": .lengths: pack: there are 2 lengths, but 3 sequences");
    eg_block *block = eg_block_new(p, "block", .d_model = WIDE, .heads = 2);
    ck_assert(!eg_ok(eg_block_run(block, eg_ones(cx, 1, 13, WIDE), .packed = { of_lengths(), L },
                                  .memory_packed = { of_lengths(), L })));
    eg_assert_error(cx, "block \"block\": .memory_packed, but it has no cross attention");
    eg_mha *attention = eg_mha_new(p, "m", .d_model = WIDE, .heads = 2);
    ck_assert(!eg_ok(eg_mha_run(attention, eg_ones(cx, 13, WIDE), .packed = { of_lengths(), L })));
    eg_assert_error(cx, "a packed query is (1 p m), but has 2 axes; eg_unsqueeze(x, 0) adds one");
    /* copies, whose lengths differ, cannot have one number of positions */
    eg_owner *owner = eg_owner_open(cx);
    const eg_copies *two_of = eg_copies_open(owner, 2, NULL);
    eg_tensor *each = eg_copies_unstack(two_of, eg_from(cx, ((int64_t[]){ 1, 2, 40, 7 }), 2, 2));
    ck_assert_int_eq(eg_packed_length(each), -1);
    eg_assert_error(cx, "packed_length: the tensor has 2 copies");
    ck_assert(!eg_ok(eg_batch_lengths(cx, NULL)) && eg_batch_packed_length(NULL) == 0 &&
              eg_batch_packed_source_length(NULL) == 0);
    eg_clear(cx);
    ck_assert(!eg_ok(eg_batch_tokens(cx, NULL)) && !eg_ok(eg_batch_keep(cx, NULL).x));
    eg_assert_error(cx, "batch: it is NULL");
}
