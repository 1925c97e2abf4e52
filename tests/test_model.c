/* test_model.c: complete models: the parts of encoder and decoder, decoding step by step, tied
 * tables, heads that are switched off. */
#include <config.h> /* EG_DEBUG_ALLOC */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 5); }
static void close_cx(void) { eg_close(cx); }

static eg_tensor *tokens(int64_t b, int64_t l, int64_t below)
{
    return eg_randint(cx, 0, below, b, l);
}

/* Compares ∂⟨loss⟩ along each parameter's gradient with a central difference; no_part: parameters
 * that change nothing (a constant added to all scores of a row, unless rotary positions rotate
 * it) */
static void check_parameters(eg_params *p, eg_tensor *(*loss)(void *), void *user,
                             const char *no_part)
{
    eg_tensor *xs[128], *dxs[128];
    int count = eg_params_count(p);
    ck_assert_int_le(count, 128);
    for (int k = 0; k < count; k++) xs[k] = eg_params_at(p, k)->x;
    ck_assert_int_eq(eg_grad(loss(user), NULL, count, xs, dxs), 0);
    for (int k = 0; k < count; k++) {
        const char *name = eg_params_at(p, k)->name;
        double size = eg_item(eg_sum(NULL, eg_square(dxs[k]))), h = 1e-6 / sqrt(size + 1e-6);
        ck_assert_msg(no_part && strstr(name, no_part) ? size < 1e-20 : size > 1e-18, "%s: %g",
                      name, size);
        eg_tensor *before = eg_copy(xs[k]);
        eg_nograd(cx, true);
        eg_assign(xs[k], eg_add(before, eg_scale(dxs[k], h)));
        double up = eg_item(loss(user));
        eg_assign(xs[k], eg_sub(before, eg_scale(dxs[k], h)));
        double down = eg_item(loss(user));
        eg_assign(xs[k], before);
        eg_nograd(cx, false);
        ck_assert_msg(fabs((up - down) / (2 * h) - size) <= 1e-5 * size + 1e-9, "%s: %g, not %g",
                      name, (up - down) / (2 * h), size);
    }
    eg_assert_ok(cx);
}

/* -- decoder only ----------------------------------------------------------------------------- */
static const eg_mha_args rotary = { .rotary = 100, .kv_heads = 1, .no_k_bias = true },
                         slopes = { .alibi = true };
static const eg_mha_args window = { .where = "i - 2 < j",
                                    .qk_norm = EG_QK_RMS_ALL,
                                    .no_k_bias = true },
                         *const each_layer[] = { NULL, &window };
enum { KINDS = 9 };
static eg_transformer *decoder(eg_params *p, int kind)
{
    const eg_transformer_args kinds[] = {
        { .heads = 2 },
        { .heads = 2, .post_norm = true, .rms = true, .activation = eg_relu },
        { .heads = 2, .tied = true, .sinusoid = true },
        { .heads = 2, .no_positions = true, .mha = &rotary, .no_bias = true, .rms = true },
        { .heads = 2, .no_positions = true, .mha = &slopes },
        { .heads = 2,
          .types = 3,
          .embedding_norm = true,
          .no_logits = true,
          .no_ffn_bias = true,
          .mha_each = each_layer },
        { .heads = 2, .sandwich = true, .embedding_scale = 3, .logits_cap = 0.5 },
        { .heads = 2, .branch_norm = true, .rms = true, .first_position = 2 },
        { .heads = 2, .parallel = true, .shared_norm = true, .no_positions = true, .mha = &rotary },
    };
    eg_transformer_args a = kinds[kind];
    a.size = sizeof a, a.params = p, a.name = "net", a.vocabulary = 7, a.length = 9, a.d_model = 8,
    a.layers = 2, a.width = 12;
    eg_transformer *net = eg_transformer_new_with(&a);
    randomise(p, 0.3);
    return net;
}

GROUP("model", .setup = open_f64, .teardown = close_cx)

LOOP_TEST(decoding_is_the_full_pass, KINDS)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = decoder(p, _i);
    eg_assert_ok(cx);
    eg_nograd(cx, true);
    eg_tensor *index = tokens(3, 9, 7), *full = eg_transformer_run(net, index, .where = "j <= i"),
              *parts[9];
    eg_cache *c = eg_cache_new(eg_params_owner(p), 9);
    int n = 0;
    for (int64_t from = 0, end = 4; from < 9; from = end, end++)
        parts[n++] = eg_transformer_run(net, eg_slice_axis(index, 1, from, end, 1),
                                        .where = "j <= i", .cache = c);
    eg_assert_close(eg_concat_axis_n(1, n, parts), full, 1e-12);
    ck_assert(!eg_ok(
        eg_transformer_run(net, eg_slice_axis(index, 1, 0, 1, 1), .where = "j <= i", .cache = c)));
    eg_assert_error(cx, _i == 3 || _i == 4 || _i == 8
                            ? "the cache has room for 9 positions; it holds 9, and 1 more came"
                            : "'l' goes to 10, but the table ends at 9");
    eg_nograd(cx, false);
}

typedef struct sample {
    eg_transformer *net;
    eg_seq2seq *both;
    eg_tensor *source, *target;
} sample;
static eg_tensor *decoder_loss(void *user)
{
    sample *s = user;
    return eg_mean(NULL, eg_square(eg_transformer_run(s->net, s->target, .where = "j <= i")));
}

LOOP_TEST(every_parameter_of_a_decoder, KINDS)
{
    eg_params *p = eg_params_open(cx);
    sample s = { .net = decoder(p, _i), .target = tokens(2, 4, 7) };
    check_parameters(p, decoder_loss, &s, "b_k");
    ck_assert(!eg_params_find(p, "net.logits.W") == (_i == 2 || _i == 5) &&
              !eg_params_find(p, "net.norm.gain") == (_i == 1));
}

/* the equations of model.h, by hand */
TEST(blocks_equal_their_equations)
{
    eg_params *p = eg_params_open(cx);
    const eg_block_args kinds[] = {
        { .sandwich = true },
        { .sandwich = true, .rms = true, .parallel = true },
        { .branch_norm = true },
        { .branch_norm = true, .parallel = true },
        { .parallel = true, .gated = true },
        { .parallel = true, .shared_norm = true, .no_bias = true },
        { .parallel = true, .shared_norm = true, .sandwich = true },
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        eg_block_args a = kinds[k];
        a.size = sizeof a, a.params = eg_params_under(p, (const char[]){ (char)('a' + k), 0 }),
        a.name = "b", a.d_model = 8, a.heads = 2;
        const eg_block *m = eg_block_new_with(&a);
        eg_assert_ok(cx);
        randomise(a.params, 0.4);
        eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8);
        eg_tensor *A = eg_mha_run(m->self, a.branch_norm ? x : eg_norm_run(m->norm_self, x),
                                  .where = "j <= i");
        if (a.sandwich) A = eg_norm_run(m->after_self, A);
        if (a.branch_norm) A = eg_norm_run(m->norm_self, A);
        eg_tensor *y = eg_add(x, A), *in = a.parallel ? x : y;
        eg_tensor *F = eg_ffn_run(m->ffn, a.branch_norm ? in : eg_norm_run(m->norm_ffn, in));
        if (a.sandwich) F = eg_norm_run(m->after_ffn, F);
        if (a.branch_norm) F = eg_norm_run(m->norm_ffn, F);
        eg_assert_close(eg_block_run(m, x, .where = "j <= i"), eg_add(y, F), 1e-13);
        ck_assert((m->norm_ffn == m->norm_self) == a.shared_norm);
        eg_assert_ok(cx);
    }
}

/* .layer_fn sees x before and after each layer, and may replace it */
typedef struct between {
    eg_tensor *seen[4], *with; /* `with` takes the place of x after 1 layer; NULL: nothing does */
} between;
static eg_tensor *look(void *user, int64_t layer, eg_tensor *x)
{
    between *at = user;
    ck_assert_int_lt(layer, 4);
    at->seen[layer] = x;
    return layer == 1 ? at->with : NULL;
}
TEST(between_layers)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *m = eg_transformer_new(p, "net", .vocabulary = 7, .length = 5, .d_model = 8,
                                           .heads = 2, .layers = 3);
    eg_tensor *a = tokens(2, 5, 7), *b = tokens(2, 5, 7), *dx;
    between clean = { .with = NULL }, other = { .with = NULL };
    eg_tensor *y = eg_transformer_run(m, a, .where = "j <= i", .layer_fn = look, .user = &clean);
    ck_assert(same_bits(y, eg_transformer_run(m, a, .where = "j <= i")));
    eg_tensor *x = eg_positions_run(m->positions, eg_embedding_run(m->tokens, a));
    for (int k = 0; k < 4; k++) {
        if (k) x = eg_block_run(m->block[k - 1], x, .where = "j <= i");
        ck_assert(same_bits(clean.seen[k], x));
    }
    other.with = eg_copy(clean.seen[1]); /* then the rest is as for a */
    eg_tensor *z = eg_transformer_run(m, b, .where = "j <= i", .layer_fn = look, .user = &other);
    ck_assert(same_bits(z, y) && !same_bits(other.seen[1], clean.seen[1]));
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(z)), NULL, 1, &other.with, &dx), 0);
    ck_assert(eg_item(eg_max(NULL, eg_abs(dx))) > 1e-3);
    eg_tensor *lengths = eg_from(cx, ((int32_t[]){ 5, 2 }), 2);
    other.with = NULL;
    eg_transformer_run(m, b, .lengths = lengths, .layer_fn = look, .user = &other);
    ck_assert(eg_dim(other.seen[3], 0) == 1 && eg_dim(other.seen[3], 1) == 10);
    eg_assert_ok(cx);
    other.with = eg_zeros(cx, 2, 5, 7);
    eg_transformer_run(m, b, .layer_fn = look, .user = &other);
    eg_assert_error(cx,
                    "transformer \"net\": .layer_fn returned f64 (2, 5, 7) for x f64 (2, 5, 8)");
    other.with = eg_zeros(cx, 2, 5);
    eg_transformer_run(m, b, .layer_fn = look, .user = &other);
    eg_assert_error(cx, ".layer_fn returned a tensor of rank 2 for x (b l m)");
#if !EG_DEBUG_ALLOC /* with a malloc for each tensor the sanitizer reports this */
    eg_mark mark = eg_push(cx);
    other.with = eg_zeros(cx, 2, 5, 8);
    eg_pop(cx, mark);
    eg_transformer_run(m, b, .layer_fn = look, .user = &other);
    eg_assert_error(cx, ".layer_fn returned a tensor whose scope is gone");
#endif
}

/* the same of an encoder and decoder, each with its own function */
TEST(between_layers_of_two_sides)
{
    eg_params *p = eg_params_open(cx);
    eg_seq2seq *m = eg_seq2seq_new(p, "net", .vocabulary = 7, .length = 5, .d_model = 8, .heads = 2,
                                   .layers = 2, .decoder_layers = 3);
    eg_tensor *a = tokens(2, 5, 7), *b = tokens(2, 4, 7), *dx;
    between enc = { .with = NULL }, dec = { .with = NULL };
    eg_tensor *memory = eg_seq2seq_encode(m, a, .source_layer_fn = look, .user = &enc),
              *y = eg_seq2seq_decode(m, b, memory, .layer_fn = look, .user = &dec);
    ck_assert(same_bits(y, eg_seq2seq_run(m, a, b)));
    eg_tensor *x = eg_positions_run(m->source_positions, eg_embedding_run(m->source, a));
    for (int k = 0; k < 3; k++) {
        if (k) x = eg_block_run(m->encoder[k - 1], x);
        ck_assert(same_bits(enc.seen[k], x));
    }
    ck_assert(same_bits(memory, eg_norm_run(m->source_norm, x)));
    x = eg_positions_run(m->positions, eg_embedding_run(m->target, b));
    for (int k = 0; k < 4; k++) {
        if (k) x = eg_block_run(m->decoder[k - 1], x, memory, .where = "j <= i");
        ck_assert(same_bits(dec.seen[k], x));
    }
    between both = { .with = NULL };
    eg_seq2seq_run(m, a, b, .source_layer_fn = look, .layer_fn = look, .user = &both);
    ck_assert(same_bits(both.seen[3], dec.seen[3])); /* the decoder runs last */
    dec.with = eg_scale(dec.seen[1], 1);             /* of other tokens; the rest is as for b */
    eg_tensor *z = eg_seq2seq_run(m, a, tokens(2, 4, 7), .layer_fn = look, .user = &dec);
    ck_assert(same_bits(z, y));
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(z)), NULL, 1, &dec.with, &dx), 0);
    ck_assert(eg_item(eg_max(NULL, eg_abs(dx))) > 1e-3);
    eg_assert_ok(cx);
    enc.with = eg_zeros(cx, 2, 4, 8);
    eg_seq2seq_run(m, a, b, .source_layer_fn = look, .user = &enc);
    eg_assert_error(cx,
                    "seq2seq \"net\": .source_layer_fn returned f64 (2, 4, 8) for x f64 (2, 5, 8)");
    dec.with = eg_zeros(cx, 2, 4);
    eg_seq2seq_run(m, a, b, .layer_fn = look, .user = &dec);
    eg_assert_error(cx, "seq2seq \"net\": .layer_fn returned a tensor of rank 2 for x (b l m)");
}

/* EG_QK_RMS_ALL by hand, with fewer heads of keys than of queries */
TEST(norms_of_all_heads)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "m", .d_model = 16, .heads = 4, .kv_heads = 2, .rotary = 100,
                           .qk_norm = EG_QK_RMS_ALL, .qk_eps = 1e-5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 16);
    randomise(p, 0.4);
    ck_assert(eg_size(m->norm_q->gain) == 16 && eg_size(m->norm_k->gain) == 8);
    eg_tensor *q = eg_rmsnorm("b i [h d]", eg_affine("bim,mhd->bihd", x, m->W_q, m->b_q)),
              *k = eg_rmsnorm("b j [h d]", eg_affine("bjm,mhd->bjhd", x, m->W_k, m->b_k)),
              *v = eg_affine("bjm,mhe->bjhe", x, m->W_v, m->b_v);
    q = eg_einsum("bihd,hd->bihd", q, eg_reshape(m->norm_q->gain, 4, 4));
    k = eg_einsum("bjhd,hd->bjhd", k, eg_reshape(m->norm_k->gain, 2, 4));
    q = eg_rotary("bihd, id", q, .base = 100), k = eg_rotary("bjhd, jd", k, .base = 100);
    k = eg_rearrange("b j g d -> b j (g r=2) d", k),
    v = eg_rearrange("b j g e -> b j (g r=2) e", v);
    eg_tensor *y =
        eg_affine("bihe,hem->bim", eg_attention("bihd,bjhd,bjhe->bihe", q, k, v), m->W_o, m->b_o);
    eg_assert_close(eg_mha_run(m, x), y, 1e-12);
    eg_assert_ok(cx);
}

static void one_block(eg_block_args a, const char *refusal)
{
    a.size = sizeof a, a.params = eg_params_open(cx), a.name = "b", a.d_model = 8, a.heads = 2;
    ck_assert_ptr_null(eg_block_new_with(&a));
    eg_assert_error(cx, refusal);
}
static void one_model(eg_transformer_args a, const char *refusal)
{
    a.size = sizeof a, a.params = eg_params_open(cx), a.name = "n", a.d_model = 8, a.heads = 2,
    a.layers = 1, a.vocabulary = 5, a.length = 4;
    ck_assert_ptr_null(eg_transformer_new_with(&a));
    eg_assert_error(cx, refusal);
}
TEST(options_that_exclude_each_other)
{
    one_block((eg_block_args){ .post_norm = true, .sandwich = true },
              "block \"b\": only one of .post_norm, .branch_norm and .sandwich may be set");
    one_block((eg_block_args){ .parallel = true, .post_norm = true },
              ".parallel and .post_norm exclude each other");
    one_block((eg_block_args){ .parallel = true, .cross = true },
              ".parallel and .cross exclude each other");
    one_block((eg_block_args){ .shared_norm = true }, ".shared_norm belongs to .parallel");
    one_block((eg_block_args){ .parallel = true, .shared_norm = true, .branch_norm = true },
              ".shared_norm and .branch_norm exclude each other");
    one_model((eg_transformer_args){ .logits_cap = -1 }, "logits_cap is -1; it must be finite");
    one_model((eg_transformer_args){ .logits_cap = 2, .no_logits = true },
              "logits_cap is 2, but .no_logits leaves the logits out");
    one_model((eg_transformer_args){ .first_position = 2, .no_positions = true },
              "first_position is 2, but .no_positions leaves the table out");
    one_model((eg_transformer_args){ .first_position = -2 },
              "positions \"n.positions\": first is -2, but must not be negative");
    one_model((eg_transformer_args){ .classes = 3, .no_logits = true },
              "transformer \"n\": classes is 3, but .no_logits leaves the logits out");
    one_model((eg_transformer_args){ .sinusoid = true, .no_positions = true },
              "transformer \"n\": .sinusoid and .no_positions exclude each other");
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_seq2seq_new(p, "s", .vocabulary = 7, .length = 5, .d_model = 8,
                                      .heads = 2, .layers = 1, .sinusoid = true,
                                      .no_positions = true));
    eg_assert_error(cx, "seq2seq \"s\": .sinusoid and .no_positions exclude each other");
    one_model((eg_transformer_args){ .first_position = 2, .sinusoid = true },
              "first is 2, but a sinusoid has no learned table");
}

/* types are added to the tokens, type 0 by default; each layer has its own predicate */
TEST(types_and_layers)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = decoder(p, 5);
    eg_tensor *index = tokens(2, 5, 7), *types = eg_randint(cx, 0, 3, 2, 5),
              *y = eg_transformer_run(net, index, .types = types),
              *x =
                  eg_add(eg_embedding_run(net->tokens, index), eg_embedding_run(net->types, types));
    x = eg_norm_run(net->embedding_norm, eg_positions_run(net->positions, x));
    x = eg_block_run(net->block[0], x);
    x = eg_norm_run(net->norm, eg_block_run(net->block[1], x, .where = "i - 2 < j"));
    eg_assert_close(y, x, 1e-13);
    ck_assert(!net->logits && !net->block[0]->ffn->up->bias && net->block[0]->self->b_q);
    eg_assert_close(eg_transformer_run(net, index),
                    eg_transformer_run(net, index, .types = eg_zeros_like(types)), 1e-13);
    ck_assert(!eg_ok(eg_transformer_run(decoder(eg_params_open(cx), 0), index, .types = types)));
    eg_assert_error(cx, "transformer \"net\": made without types, but run with some");
    ck_assert_ptr_null(eg_transformer_new(eg_params_open(cx), "", .vocabulary = 7, .length = 5,
                                          .d_model = 8, .heads = 2, .layers = 1, .types = -1));
    eg_assert_error(cx, "embedding \"types\": count must be positive, not -1");
}

TEST(tied_logits) /* y = x Eᵀ with the table of the embedding. Press, Wolf 2017 */
{
    eg_params *p = eg_params_open(cx), *q = eg_params_open(cx);
    eg_transformer *tied = eg_transformer_new(p, "", .vocabulary = 7, .length = 5, .d_model = 8,
                                              .heads = 2, .layers = 1, .tied = true);
    eg_transformer *apart_ = eg_transformer_new(q, "", .vocabulary = 7, .length = 5, .d_model = 8,
                                                .heads = 2, .layers = 1);
    ck_assert_int_eq(eg_params_size(q) - eg_params_size(p), 7 * 8 + 7);
    ck_assert_int_eq(eg_params_copy(p, q), 0);
    eg_assign(eg_params_find(q, "logits.W"), eg_transpose(tied->tokens->table, 0, 1));
    eg_tensor *index = tokens(2, 5, 7);
    eg_assert_close(eg_transformer_run(tied, index), eg_transformer_run(apart_, index), 1e-13);
    ck_assert_ptr_null(eg_transformer_new(q, "n", .vocabulary = 7, .length = 5, .d_model = 8,
                                          .heads = 2, .layers = 1, .tied = true, .classes = 3));
    eg_assert_error(cx, "tied logits need as many classes as the vocabulary has, not 3 and 7");
}

TEST(heads_off)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = decoder(p, 0);
    eg_tensor *index = tokens(2, 4, 7), *y = eg_transformer_run(net, index, .where = "j <= i");
    eg_assert_close(eg_transformer_run(net, index, .where = "j <= i", .gain = eg_ones(cx, 2, 2)), y,
                    1e-13);
    double on[] = { 1, 1, 0, 1 };
    eg_tensor *off =
        eg_transformer_run(net, index, .where = "j <= i", .gain = eg_from(cx, on, 2, 2));
    eg_fill(eg_select_axis(net->block[1]->self->W_o, 0, 0), 0);
    eg_assert_close(eg_transformer_run(net, index, .where = "j <= i"), off, 1e-13);
    ck_assert(largest_difference(y, off) > 1e-3);
    ck_assert(!eg_ok(eg_transformer_run(net, index, .gain = eg_ones(cx, 3, 2))));
    eg_assert_error(
        cx, "transformer \"net\": the gain needs (2, 2) numbers, but has 2 axes and 6 numbers");
}

/* Attention that fails in its call number core_fails. */
static int core_calls, core_fails;
static eg_tensor *failing_core(const eg_attention_args *o)
{
    if (core_calls++ == core_fails) return eg_fail(eg_context(o->q), "no attention");
    return eg_attention_with(o);
}
/* Whichever attention of a run fails, the run can be repeated, also with another memory. */
LOOP_TEST(a_model_that_failed_leaves_its_cache_as_it_was, 2)
{
    const eg_mha_args mha = { .core = failing_core };
    eg_params *p = eg_params_open(cx);
    eg_transformer *alone = eg_transformer_new(p, "a", .vocabulary = 7, .length = 5, .d_model = 8,
                                               .heads = 2, .layers = 2, .mha = &mha);
    eg_seq2seq *both = eg_seq2seq_new(p, "b", .vocabulary = 7, .length = 5, .d_model = 8,
                                      .heads = 2, .layers = 2, .mha = &mha);
    eg_tensor *index = tokens(2, 5, 7), *memory = eg_normal(cx, 0, 1, 2, 3, 8),
              *other = eg_normal(cx, 0, 1, 2, 4, 8), *y[2];
    core_calls = 0, core_fails = -1;
    eg_nograd(cx, true);
    for (int failing = 0; failing < 2; failing++) {
        eg_cache *c = eg_cache_new(eg_params_owner(p), 5);
        for (int from = 0; from < 4; from += 2) {
            eg_tensor *part = eg_slice_axis(index, 1, from, from + 2, 1);
            for (int k = 0; k <= (failing ? 2 : 0); k++) { /* two self attentions use the core */
                core_calls = 0, core_fails = failing && k < 2 ? k : -1;
                eg_tensor *keys = core_fails < 0 || from ? memory : other;
                y[failing] = _i ? eg_seq2seq_decode(both, part, keys, .cache = c)
                                : eg_transformer_run(alone, part, .where = "j <= i", .cache = c);
                if (core_fails >= 0) eg_assert_error(cx, "no attention");
                ck_assert_int_eq(eg_cache_length(c), core_fails < 0 ? from + 2 : from);
            }
        }
    }
    eg_assert_ok(cx);
    ck_assert(largest_difference(y[0], y[1]) == 0);
    eg_nograd(cx, false);
}

TEST(small_normal_start)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer_new(p, "", .vocabulary = 50, .length = 20, .d_model = 64, .heads = 4,
                       .layers = 1, .init = 0.02);
    static const char *const names[] = { "0.self.W_q", "0.self.W_o", "0.ffn.up.W", "0.ffn.down.W",
                                         "logits.W" };
    for (int k = 0; k < 5; k++)
        ck_assert_msg(fabs(eg_item(eg_std(NULL, eg_params_find(p, names[k]))) / 0.02 - 1) < 0.06,
                      "%s", names[k]);
    ck_assert(fabs(eg_item(eg_std(NULL, eg_params_find(p, "tokens.E"))) / 0.5 - 1) < 0.05);
    eg_assert_ok(cx);
}

/* -- encoder and decoder ---------------------------------------------------------------------- */
static eg_seq2seq *both(eg_params *p, int kind)
{
    const eg_seq2seq_args kinds[] = {
        { .source_vocabulary = 5, .source_length = 6 },
        { .shared = true, .tied = true, .post_norm = true },
        { .sinusoid = true, .rms = true, .decoder_layers = 1, .no_bias = true },
        { .mha = &rotary, .no_positions = true },
        { .mha = &slopes, .no_positions = true },
    };
    eg_seq2seq_args a = kinds[kind];
    a.size = sizeof a, a.params = p, a.name = "net", a.vocabulary = 7, a.length = 8, a.d_model = 8,
    a.heads = 2, a.layers = 2, a.width = 12;
    eg_seq2seq *net = eg_seq2seq_new_with(&a);
    randomise(p, 0.3);
    return net;
}
static eg_tensor *both_loss(void *user)
{
    sample *s = user;
    return eg_mean(NULL, eg_square(eg_seq2seq_run(s->both, s->source, s->target)));
}

LOOP_TEST(every_parameter_of_both, 5)
{
    eg_params *p = eg_params_open(cx);
    sample s = { .both = both(p, _i), .source = tokens(2, 4, 5), .target = tokens(2, 3, 7) };
    check_parameters(p, both_loss, &s, _i == 3 ? "cross.b_k" : "b_k");
}

/* with the cache: equal to the full pass; the memory is projected once */
LOOP_TEST(both_step_by_step, 5)
{
    eg_params *p = eg_params_open(cx);
    eg_seq2seq *net = both(p, _i);
    eg_nograd(cx, true);
    bool keep[3][6] = { { 1, 1, 1, 1, 0, 0 }, { 1, 1, 1, 1, 1, 1 }, { 1, 1, 0, 0, 0, 0 } };
    eg_tensor *source = tokens(3, 6, 5), *target = tokens(3, 8, 7),
              *pad = eg_from(cx, &keep[0][0], 3, 6), *parts[8];
    eg_tensor *full = eg_seq2seq_run(net, source, target, .source_keep = { "bj", pad });
    eg_tensor *memory = eg_seq2seq_encode(net, source, .source_keep = { "bj", pad });
    eg_cache *c = eg_cache_new(eg_params_owner(p), 8);
    for (int64_t t = 0; t < 8; t++)
        parts[t] = eg_seq2seq_decode(net, eg_slice_axis(target, 1, t, t + 1, 1), memory,
                                     .memory_keep = { "bj", pad }, .cache = c);
    eg_assert_close(eg_concat_axis_n(1, 8, parts), full, 1e-12);
    ck_assert_int_eq(eg_cache_truncate(c, 0), 0); /* another sentence in the same memory */
    eg_tensor *other = eg_slice_axis(tokens(3, 4, 5), 1, 0, 4, 1),
              *again = eg_seq2seq_encode(net, other);
    eg_assert_close(eg_seq2seq_decode(net, target, again, .cache = c),
                    eg_seq2seq_run(net, other, target), 1e-12);
    eg_nograd(cx, false);
}

/* two pairs of sentences in one row: each attends only to itself in all three attentions, and has
 * the result that it has alone; position by position with a cache equals the full pass, with scores
 * by position too */
TEST(packed_pairs_of_sentences)
{
    eg_params *p = eg_params_open(cx);
    eg_seq2seq *net = eg_seq2seq_new(p, "net", .source_vocabulary = 5, .vocabulary = 7, .length = 8,
                                     .d_model = 8, .heads = 2, .layers = 2, .no_positions = true);
    randomise(p, 0.4);
    const int64_t s_of[] = { 1, 1, 1, 2, 2, 2, 2 }, t_of[] = { 1, 1, 2, 2, 2 };
    eg_tensor *source = tokens(1, 7, 5), *target = tokens(1, 5, 7), *part[2], *w[2],
              *s = eg_reshape(eg_from(cx, s_of, 7), 1, 7),
              *t = eg_reshape(eg_from(cx, t_of, 5), 1, 5);
    eg_tensor *y = eg_seq2seq_run(net, source, target, .source_where = "s[b,i] == s[b,j]",
                                  .where = "t[b,i] == t[b,j]", .memory_where = "t[b,i] == s[b,j]",
                                  .with = { { "s", s }, { "t", t } }, .memory_weights = w);
    eg_assert_ok(cx);
    for (int k = 0; k < 2; k++)
        part[k] = eg_seq2seq_run(net, eg_slice_axis(source, 1, k ? 3 : 0, k ? 7 : 3, 1),
                                 eg_slice_axis(target, 1, k ? 2 : 0, k ? 5 : 2, 1));
    eg_assert_close(y, eg_concat_axis_n(1, 2, part), 1e-12);
    ck_assert(eg_get(w[1], 0, 1, 1, 3) == 0 && eg_get(w[1], 0, 1, 1, 2) > 0);
    static const char *const score = "score - 0.2 * (i - j)", *const cross =
                                                                  "score * (1 + j) / (1 + i)";
    eg_tensor *scored =
        eg_seq2seq_run(net, source, target, .where = "i - 3 < j", .score = score,
                       .memory_score = cross, .memory_where = "t[b,i] == s[b,j]",
                       .source_score = "tanh(score)", .with = { { "s", s }, { "t", t } });
    ck_assert(largest_difference(scored, y) > 1e-4);
    eg_nograd(cx, true);
    eg_tensor *memory = eg_seq2seq_encode(net, source, .source_score = "tanh(score)"), *step[5];
    eg_cache *c = eg_cache_new(eg_params_owner(p), 5);
    for (int64_t k = 0; k < 5; k++)
        step[k] = eg_seq2seq_decode(
            net, eg_slice_axis(target, 1, k, k + 1, 1), memory, .where = "i - 3 < j",
            .score = score, .memory_score = cross, .memory_where = "t[b,i] == s[b,j]",
            .with = { { "s", s }, { "t", eg_slice_axis(t, 1, 0, k + 1, 1) } }, .cache = c);
    eg_assert_ok(cx);
    eg_assert_close(eg_concat_axis_n(1, 5, step), scored, 1e-12);
    eg_nograd(cx, false);
    ck_assert(!eg_ok(eg_seq2seq_run(net, source, target, .memory_where = "t[b,j] == 1",
                                    .with = { { "tt", t } })));
    eg_assert_error(
        cx, "mha \"net.decoder.0.cross\": .where: the predicate's tensor 't' is not one of");
}

/* self attention causal, cross attention over the whole source */
TEST(weights_of_encoder_and_decoder)
{
    eg_params *p = eg_params_open(cx);
    eg_seq2seq *net = both(p, 0);
    eg_tensor *w[2], *c[2], *e[2], *source = tokens(2, 6, 5), *target = tokens(2, 4, 7);
    eg_tensor *y =
        eg_seq2seq_run(net, source, target, .weights = w, .memory_weights = c, .source_weights = e);
    int64_t b, i, j, h;
    eg_assert_axes("b i v=7", y, &b, &i);
    eg_assert_axes("b=2 h=2 i=4 j=4", w[1]);
    eg_assert_axes("b=2 h=2 i=4 j=6", c[1]);
    eg_assert_axes("b h i j", e[0], &b, &h, &i, &j);
    ck_assert(i == 6 && j == 6 && eg_get(w[0], 0, 0, 0, 1) == 0 && eg_get(c[0], 0, 0, 0, 5) > 0 &&
              eg_get(e[1], 1, 1, 0, 5) > 0);
    eg_tensor *gain = eg_ones(cx, 6, 2);
    eg_assert_close(eg_seq2seq_run(net, source, target, .gain = gain), y, 1e-13);
    /* cross attention of decoder layer 1, head 1 */
    eg_fill(eg_select_axis(eg_select_axis(gain, 0, 5), 0, 1), 0);
    eg_tensor *off = eg_seq2seq_run(net, source, target, .gain = gain);
    eg_fill(eg_select_axis(net->decoder[1]->cross->W_o, 0, 1), 0);
    eg_assert_close(eg_seq2seq_run(net, source, target), off, 1e-13);
    ck_assert(largest_difference(off, y) > 1e-4);
}

TEST(models_refuse)
{
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_seq2seq_new(p, "n", .source_vocabulary = 5, .vocabulary = 7, .length = 8,
                                      .d_model = 8, .heads = 2, .layers = 1, .shared = true));
    eg_assert_error(cx, "a shared embedding needs one vocabulary, not 5 and 7");
    ck_assert_ptr_null(eg_seq2seq_new(p, "n", .vocabulary = 7, .length = 8, .d_model = 8,
                                      .heads = 3, .layers = 1));
    eg_assert_error(cx, "d_model must be divisible by heads: 8 / 3");
    ck_assert_ptr_null(eg_seq2seq_new(eg_params_open(cx), "n", .vocabulary = 7, .length = 8,
                                      .d_model = 8, .heads = 2));
    eg_assert_error(cx, "seq2seq \"n\": layers must be positive, not 0");
    eg_seq2seq *net = both(eg_params_open(cx), 0);
    eg_tensor *source = tokens(2, 6, 5), *target = tokens(2, 4, 7);
    ck_assert(!eg_ok(eg_seq2seq_run(net, source, tokens(3, 4, 7))));
    eg_assert_error(cx,
                    "mha \"net.decoder.0.cross\": batch 'b' is 3 in the query but 2 in the key");
    ck_assert(!eg_ok(eg_seq2seq_run(net, source, target, .gain = eg_ones(cx, 2, 2))));
    eg_assert_error(cx, "seq2seq \"net\": the gain needs (6, 2) numbers");
    ck_assert(!eg_ok(eg_seq2seq_run(net, tokens(2, 7, 5), target)));
    eg_assert_error(cx,
                    "positions \"net.source_positions\": 'l' goes to 7, but the table ends at 6");
    ck_assert(!eg_ok(eg_seq2seq_decode(net, target, NULL)));
    eg_assert_error(cx, "made with cross attention, but run without memory");
    ck_assert(!eg_ok(eg_seq2seq_run(NULL, source, target)));
    eg_assert_error(cx, "seq2seq: the module is NULL");
    ck_assert(eg_seq2seq_new_with(NULL) == NULL && eg_seq2seq_run_with(NULL) == NULL &&
              eg_seq2seq_decode_with(NULL) == NULL);
}
