/* test_variants.c: variants of the parts of a transformer in published models: gated feed-forward,
 * eps of the norms, rotary positions of every kind, norms of query and key, biases of the keys.
 * Each is compared with its equation, and with PyTorch (tests/reference/variants.py). */
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include <unistd.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static eg_safetensors *file;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 5); }
static void close_cx(void) { eg_close(cx); }

/* -- golden values ---------------------------------------------------------------------------- */
static void open_file(void)
{
    open_f64();
    file = eg_safetensors_open(cx, source_path("tests/data/variants.safetensors"));
    eg_assert_ok(cx);
}
static void close_file(void)
{
    eg_safetensors_close(file);
    close_cx();
}
/* "swiglu", "y": the tensor swiglu/y */
static eg_tensor *golden(const char *group, const char *name)
{
    char key[160];
    snprintf(key, sizeof key, "%s/%s", group, name);
    eg_tensor *x = eg_safetensors_get(file, key);
    eg_assert_ok(cx);
    return x;
}
/* Sets the parameters of the file; those of p have values that depend on their names. */
static void set_parameters(eg_params *p, const char *group)
{
    for (int k = 0; eg_params_at(p, k); k++)
        ck_assert_int_eq(eg_assign(eg_params_at(p, k)->x, golden(group, eg_params_at(p, k)->name)),
                         0);
}
/* y of the file, and d⟨seed, y⟩ by every parameter ("g.NAME") and by x ("g.x") */
static void same_as_stored(const char *group, eg_params *p, eg_tensor *x, eg_tensor *y)
{
    eg_tensor *xs[32] = { x }, *dxs[32];
    const int count = 1 + eg_params_count(p);
    for (int k = 1; k < count; k++) xs[k] = eg_params_at(p, k - 1)->x;
    eg_assert_ok(cx);
    eg_assert_close(y, golden(group, "y"), 1e-12);
    ck_assert_int_eq(eg_grad(y, golden(group, "seed"), count, xs, dxs), 0);
    for (int k = 0; k < count; k++) {
        char name[160];
        snprintf(name, sizeof name, "g.%s", k ? eg_params_at(p, k - 1)->name : "x");
        eg_assert_close(dxs[k], golden(group, name), 1e-11);
    }
}

GROUP("golden", .setup = open_file, .teardown = close_file)

LOOP_TEST(gated_feed_forward_as_pytorch, 4)
{
    static const struct {
        const char *group;
        eg_ffn_args o;
    } cases[] = {
        { "swiglu", { .width = 9, .activation = eg_silu, .no_bias = true } }, /* Llama */
        { "geglu", { .width = 7 } },
        { "reglu", { .width = 5, .activation = eg_relu } },
        { "glu", { .activation = eg_sigmoid } },
    };
    eg_params *p = eg_params_open(cx);
    eg_ffn_args o = cases[_i].o;
    o.size = sizeof o, o.params = p, o.name = "", o.d_model = 6, o.gated = true;
    eg_ffn *m = eg_ffn_new_with(&o);
    eg_assert_ok(cx);
    ck_assert_str_eq(eg_params_at(p, 0)->name, "gate.W");
    ck_assert_int_eq(eg_params_count(p), o.no_bias ? 3 : 6);
    set_parameters(p, cases[_i].group);
    eg_tensor *x = golden(cases[_i].group, "x");
    same_as_stored(cases[_i].group, p, x, eg_ffn_run(m, x));
}

LOOP_TEST(rotary_positions_as_transformers, 5)
{
    static const struct {
        const char *group;
        eg_rotary_args o;
        double divided;
    } cases[] = {
        { "rotary_llama", { .base = 500000 }, 0 }, { "rotary_gptj", { .interleaved = true }, 0 },
        { "rotary_neox", { .width = 4 }, 0 },      { "rotary_linear", { .factor = 4 }, 0 },
        { "rotary_learned", { .base = 7 }, 0 }, /* replaced by frequencies */
    };
    const char *group = cases[_i].group;
    const bool learned = _i == 4;
    eg_rotary_args o = cases[_i].o;
    o.size = sizeof o, o.spec = "b i h d, i d", o.x = golden(group, "x");
    o.positions =
        (eg_masked){ "bi", learned ? golden(group, "positions") : golden("rotary", "places") };
    if (learned) o.frequencies = golden(group, "frequencies");
    eg_tensor *y = eg_rotary_with(&o), *xs[] = { o.x, o.positions.x, o.frequencies }, *dxs[3];
    static const char *const names[] = { "g.x", "g.positions", "g.frequencies" };
    eg_assert_ok(cx);
    eg_assert_close(y, golden(group, "y"), 1e-13);
    ck_assert_int_eq(eg_grad(y, golden(group, "seed"), learned ? 3 : 1, xs, dxs), 0);
    for (int k = 0; k < (learned ? 3 : 1); k++)
        eg_assert_close(dxs[k], golden(group, names[k]), 1e-12);
}

LOOP_TEST(norms_and_sinks_as_published, 5)
{
    static const struct {
        const char *group;
        eg_mha_args o;
    } cases[] = {
        { "qk_rms",
          { .kv_heads = 2,
            .qk_norm = EG_QK_RMS,
            .qk_eps = 1e-6,
            .rotary = 10000,
            .rotary_width = 2,
            .no_bias = true } },
        { "qk_layer", { .qk_norm = EG_QK_LAYER } },
        { "qk_unit", { .qk_norm = EG_QK_UNIT, .temperature = 10 } },
        { "qk_warm", { .kv_heads = 2, .qk_norm = EG_QK_RMS, .temperature = 1 } },
        { "sinks", { .kv_heads = 2, .sink = true } },
    };
    eg_params *p = eg_params_open(cx);
    eg_mha_args o = cases[_i].o;
    o.size = sizeof o, o.params = p, o.name = "", o.d_model = 12, o.heads = 4;
    eg_mha *m = eg_mha_new_with(&o);
    eg_assert_ok(cx);
    set_parameters(p, cases[_i].group);
    eg_tensor *x = golden(cases[_i].group, "x"), *w,
              *y = eg_mha_run(m, x, .where = "j <= i", .weights = &w);
    same_as_stored(cases[_i].group, p, x, y);
    eg_assert_close(eg_contiguous(w), golden(cases[_i].group, "weights"), 1e-12);
}

LOOP_TEST(further_keys_as_pytorch, 3)
{
    static const char *const groups[] = { "bias_kv", "zero_attn", "bias_zero" };
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 12, .heads = 3, .bias_kv = _i != 1, .zero_attn = _i);
    set_parameters(p, groups[_i]);
    eg_tensor *x = golden(groups[_i], "x"), *w, *y;
    if (_i < 2)
        y = eg_mha_run(m, x, .where = "j <= i", .weights = &w);
    else
        y = eg_mha_run(m, x, .keep = { "bj", golden(groups[_i], "pad") }, .weights = &w);
    same_as_stored(groups[_i], p, x, y);
    eg_assert_close(eg_contiguous(w), golden(groups[_i], "weights"), 1e-12);
}

/* -- feed-forward and norms ------------------------------------------------------------------- */
GROUP("feed-forward", .setup = open_f64, .teardown = close_cx)

static eg_tensor *fed(void *m, eg_tensor *const *x) { return eg_ffn_run(m, x[0]); }
LOOP_TEST(gates_have_gradients_of_second_order, 2)
{
    eg_params *p = eg_params_open(cx);
    eg_ffn *m = eg_ffn_new(p, "", .d_model = 3, .width = 4, .gated = true,
                           .activation = _i ? eg_silu : NULL);
    randomise(p, 0.5);
    eg_assert_grad2(fed, m, eg_normal(cx, 0, 1, 2, 3));
}

/* f of the first matrix, times the second; without a gate nothing has changed */
TEST(the_activation_is_applied_to_the_gate)
{
    eg_params *p = eg_params_open(cx);
    eg_ffn *m = eg_ffn_new(p, "f", .d_model = 4, .gated = true, .activation = eg_silu),
           *plain = eg_ffn_new(p, "g", .d_model = 4, .activation = eg_silu);
    randomise(p, 0.5);
    ck_assert(!plain->gate && m->gate && m->gate->out == 16 && m->up->out == 16);
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 4),
              *g = eg_add(eg_einsum("bi,io->bo", x, m->gate->weight), m->gate->bias),
              *u = eg_add(eg_einsum("bi,io->bo", x, m->up->weight), m->up->bias);
    eg_tensor *y = eg_einsum("bi,io->bo", eg_mul(eg_mul(g, eg_sigmoid(g)), u), m->down->weight);
    eg_assert_close(eg_ffn_run(m, x), eg_add(y, m->down->bias), 1e-13);
    ck_assert(!eg_ok(eg_ffn_run(m, eg_ones(cx, 2, 5))));
    eg_assert_error(cx, "linear \"f.up\": 'i' is 4 in the module but 5 in the operand's last axis");
}

/* gates and eps apply in every part of a block and of the models, and nothing else changes */
LOOP_TEST(gates_and_eps_in_models, 4)
{
    const bool rms = _i % 2, post = _i / 2;
    const double eps = 0.3;
    eg_params *p = eg_params_open(cx);
    eg_block *b = eg_block_new(p, "b", .d_model = 8, .heads = 2, .width = 5, .cross = true,
                               .gated = true, .eps = eps, .rms = rms, .post_norm = post);
    eg_transformer *t = eg_transformer_new(p, "t", .vocabulary = 5, .length = 4, .d_model = 8,
                                           .heads = 2, .layers = 2, .gated = true, .eps = eps,
                                           .rms = rms, .post_norm = post, .activation = eg_silu);
    eg_seq2seq *s = eg_seq2seq_new(p, "s", .vocabulary = 5, .length = 4, .d_model = 8, .heads = 2,
                                   .layers = 1, .gated = true, .eps = eps, .rms = rms,
                                   .post_norm = post, .activation = eg_silu);
    eg_assert_ok(cx);
    const eg_norm *norms[] = { b->norm_self,
                               b->norm_cross,
                               b->norm_ffn,
                               t->block[1]->norm_self,
                               t->block[1]->norm_ffn,
                               s->encoder[0]->norm_self,
                               s->decoder[0]->norm_cross,
                               post ? b->norm_ffn : t->norm,
                               post ? b->norm_ffn : s->source_norm,
                               post ? b->norm_ffn : s->norm };
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++)
        ck_assert(norms[k]->eps == eps && norms[k]->rms == rms);
    ck_assert(b->ffn->gate->out == 5 && t->block[1]->ffn->gate && s->decoder[0]->ffn->gate &&
              t->block[1]->ffn->activation == eg_silu);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 8), *y = eg_norm_run(b->norm_ffn, x),
              *c = rms ? x : eg_sub(x, eg_rearrange("b l -> b l 1", eg_mean("b l [m]", x)));
    eg_tensor *v = eg_shift(eg_mean("b l [m]", eg_square(c)), eps);
    eg_assert_close(y, eg_mul(c, eg_rearrange("b l -> b l 1", eg_rsqrt(v))), 1e-14);
    int32_t token[] = { 0, 3, 1, 4 };
    eg_tensor *index = eg_from(cx, token, 1, 4);
    ck_assert(eg_ok(eg_transformer_run(t, index)) && eg_ok(eg_seq2seq_run(s, index, index)));
}

LOOP_TEST(an_eps_that_is_not_positive_and_finite_is_refused, 3)
{
    const double eps[] = { -1, NAN, INFINITY };
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_norm_new(p, "n", .d_model = 2, .eps = eps[_i]));
    eg_assert_error(cx, "norm \"n\": eps is ");
    ck_assert_ptr_null(eg_block_new(p, "b", .d_model = 2, .heads = 1, .eps = eps[_i]));
    eg_assert_error(cx, "norm \"b.norm_self\": eps is ");
    eg_tensor *x = eg_ones(cx, 2, 2);
    eg_norm *zero = eg_norm_new(p, "zero", .d_model = 2, .eps = EG_OFF);
    eg_assert_close(eg_norm_run(zero, x), eg_zeros(cx, 2, 2), 0);
}

/* -- rotary positions ------------------------------------------------------------------------- */
GROUP("rotary", .setup = open_f64, .teardown = close_cx)

/* every option at the same time, each element by its equation; x permuted and reversed */
LOOP_TEST(rotary_by_its_equation, 8)
{
    const bool mixed = _i & 1, own = _i & 2, part = _i & 4;
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 4, 6), *at = eg_normal(cx, 0, 5, 4, 2),
              *f = own ? eg_normal(cx, 0, 1, part ? 2 : 3) : NULL;
    const int d = part ? 4 : 6;
    x = eg_flip_axis(eg_permute(x, 0, 2, 1, 3), -1); /* b i h d */
    eg_tensor *y =
        eg_rotary("b i h d, i d", x, .base = 50, .frequencies = f, .offset = 2, .factor = 1.5,
                  .positions = { "i b", at }, .width = part ? 4 : 0, .interleaved = mixed);
    eg_assert_ok(cx);
    for (int b = 0; b < 2; b++)
        for (int n = 0; n < 4 * 3 * 6; n++) {
            const int c = n % 6, h = n / 6 % 3, i = n / 18, k = mixed ? c / 2 : c % (d / 2);
            const bool second = mixed ? c % 2 : c >= d / 2;
            const int other = mixed ? c ^ 1 : second ? c - d / 2 : c + d / 2;
            const double theta = (eg_get(at, i, b) + 2) / 1.5 *
                                 (own ? eg_get(f, k < d / 2 ? k : 0) : pow(50, -2.0 * k / d)),
                         a = eg_get(x, b, i, h, c), o = c < d ? eg_get(x, b, i, h, other) : 0;
            ck_assert_double_eq_tol(eg_get(y, b, i, h, c),
                                    c >= d   ? a
                                    : second ? a * cos(theta) + o * sin(theta)
                                             : a * cos(theta) - o * sin(theta),
                                    1e-13);
        }
}

static eg_tensor *all_turned(void *mixed, eg_tensor *const *x)
{
    return eg_rotary("h i d b, i d", x[0], .positions = { "bi", x[1] }, .frequencies = x[2],
                     .width = 4, .interleaved = mixed != NULL);
}
LOOP_TEST(rotary_gradients_of_everything, 2)
{
    int mixed;
    eg_assert_grad2(all_turned, _i ? &mixed : NULL, eg_normal(cx, 0, 1, 2, 3, 5, 2),
                    eg_normal(cx, 0, 1, 2, 3), eg_normal(cx, 0, 1, 2));
}

/* integers of every type, f32 and f64, positions equal to the default ones */
TEST(positions_of_any_type)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 4), *y = eg_rotary("id, id", x, .offset = 5);
    eg_tensor *i = eg_arange(cx, EG_I64, 5, 8, 1);
    eg_assert_close(eg_rotary("id, id", x, .positions = { "i", i }), y, 0);
    eg_assert_close(eg_rotary("id, id", x, .positions = { "i", eg_cast(i, EG_I32) }), y, 0);
    eg_assert_close(eg_rotary("id, id", x, .positions = { "i", eg_cast(i, EG_F32) }), y, 0);
    eg_assert_close(eg_rotary("id, id", x, .positions = { "", eg_scalar(cx, 5) }),
                    eg_rotary("id, id", x, .positions = { "i", eg_full(cx, 5, 3) }), 0);
    eg_tensor *far = eg_cast(x, EG_F32), /* angles are not computed in f32 */
        *z = eg_rotary("id, id", far,
                       .positions = { "i", eg_arange(cx, EG_I64, 1 << 24, (1 << 24) + 3, 1) });
    eg_assert_close(eg_cast(z, EG_F64),
                    eg_rotary("id, id", eg_cast(far, EG_F64), .offset = 1 << 24), 1e-6);
}

LOOP_TEST(rotary_refuses_options, 15)
{
    eg_tensor *x = eg_ones(cx, 2, 3, 4), *two = eg_ones(cx, 2, 3);
    const struct {
        eg_rotary_args o;
        const char *why;
    } cases[] = {
        { { .width = 3 }, "rotary: the width must be even, not 3" },
        { { .width = 6 }, "rotary: .width is 6, but x has 4 elements along 'd'" },
        { { .width = -2 }, "rotary: .width is -2" },
        { { .factor = -1 }, "rotary: .factor must be positive, not -1" },
        { { .factor = NAN }, "rotary: .factor must be positive, not nan" },
        { { .frequencies = eg_ones(cx, 3) },
          "rotary: .frequencies are 3 numbers of f64 in 1 axis, but 2 pairs are turned" },
        { { .frequencies = eg_cast(eg_ones(cx, 2), EG_I32) }, "2 numbers of i32 in 1 axis" },
        { { .positions = { "bi", NULL } }, "rotary: .positions is NULL" },
        { { .positions = { "bj", two } },
          "rotary: .positions: x does not have this index\n  bj\n   ^" },
        { { .positions = { "bd", eg_ones(cx, 2, 4) } },
          "rotary: .positions: the width has no positions\n  bd\n   ^" },
        { { .positions = { "ib", two } },
          "rotary: .positions: index 'i' is 3 in x but 2 here\n  ib\n  ^" },
        { { .positions = { "i", two } }, "the string names 1 axis of a tensor that has 2" },
        { { .positions = { "ii", eg_ones(cx, 3, 3) } },
          "rotary: .positions: index 'i' occurs twice\n  ii\n   ^" },
        { { .positions = { "(bi)", two } }, "the indices of the positions are needed" },
        { { .positions = { "bi", eg_cast(two, EG_BOOL) } },
          "rotary: .positions is bool, neither float nor integer" },
    };
    eg_rotary_args o = cases[_i].o;
    o.size = sizeof o, o.spec = "bid, id", o.x = x;
    ck_assert(!eg_ok(eg_rotary_with(&o)));
    eg_assert_error(cx, cases[_i].why);
}

LOOP_TEST(rotary_refuses_integers, 3) /* the cosine of an angle would be rounded to 0 */
{
    static const eg_dtype dtypes[] = { EG_I32, EG_I64, EG_BOOL };
    char why[80];
    eg_tensor *x = eg_full_n(cx, dtypes[_i], 1, 2, (int64_t[]){ 3, 4 });
    snprintf(why, sizeof why, "rotary: x is %s; cast it to f32 or f64 first",
             eg_type_name(dtypes[_i]));
    ck_assert(!eg_ok(eg_rotary("id, id", x)));
    eg_assert_error(cx, why);
}

/* -- the attention module --------------------------------------------------------------------- */
GROUP("mha", .setup = open_f64, .teardown = close_cx)

static const eg_mha_args kinds[] = {
    { .rotary = 30, .rotary_width = 2, .qk_norm = EG_QK_RMS, .interleaved = true },
    { .qk_norm = EG_QK_LAYER, .kv_heads = 1, .rotary = 30, .rotary_factor = 2 },
    { .qk_norm = EG_QK_UNIT, .temperature = 3, .layout = "i b m" },
    { .bias_kv = true, .kv_heads = 1, .rotary = 30 },
    { .zero_attn = true, .form = EG_PACKED },
    { .sink = true, .alibi = true },
    { .bias_kv = true,
      .zero_attn = true,
      .sink = true,
      .kv_heads = 1,
      .scale = 0.7,
      .temperature = 2,
      .layout = "i b m" },
    { .no_softmax = true, .score = "sigmoid(score - 0.3 * (i - j) * h)", .kv_heads = 1 },
    { .no_softmax = true, .score = "score * pow(0.8, i - j)", .rotary = 30, .layout = "i b m" },
};
enum { KINDS = sizeof kinds / sizeof *kinds };
static eg_mha *made(int k, eg_params *p)
{
    eg_mha_args a = kinds[k];
    a.size = sizeof a, a.params = p, a.name = "a", a.d_model = 8, a.heads = 2;
    eg_mha *m = eg_mha_new_with(&a);
    eg_assert_ok(cx);
    randomise(p, 0.5);
    return m;
}
static eg_tensor *runs(void *m, eg_tensor *const *x)
{
    return eg_mha_run(m, x[0], .where = "j <= i");
}

LOOP_TEST(options_to_second_order, KINDS)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = made(_i, p);
    eg_assert_grad2(runs, m, eg_normal(cx, 0, 1, 2, 3, 8));
}

/* gradients of the parameters too, by differences */
typedef struct with_parameters {
    eg_mha *m;
    eg_params *p;
} with_parameters;
static eg_tensor *parameters_run(void *user, eg_tensor *const *x)
{
    const with_parameters *u = user;
    return eg_mha_run(u->m, x[0], .where = "j <= i");
}
LOOP_TEST(options_have_gradients_by_parameters, KINDS)
{
    eg_params *p = eg_params_open(cx);
    with_parameters u = { made(_i, p), p };
    eg_tensor *xs[16] = { eg_normal(cx, 0, 1, 2, 3, 8) };
    int count = 1;
    for (int k = 0; eg_params_at(p, k); k++)
        if (eg_rank(eg_params_at(p, k)->x) < 3) xs[count++] = eg_params_at(p, k)->x;
    const eg_report *r = eg_gradcheck(parameters_run, &u, count, xs);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
}

/* position by position with a cache equals the full pass; fused equals unfused; recording changes
 * no bit */
LOOP_TEST(options_behind_a_cache, KINDS)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = made(_i, p);
    const int place = kinds[_i].layout ? 0 : 1;
    eg_tensor *x = place ? eg_normal(cx, 0, 1, 2, 6, 8) : eg_normal(cx, 0, 1, 6, 2, 8), *parts[6],
              *full = eg_mha_run(m, x, .where = "j <= i");
    eg_nograd(cx, true);
    eg_assert_close(eg_mha_run(m, x, .where = "j <= i"), full, 0);
    eg_assert_close(eg_mha_run(m, x, .where = "j <= i", .form = EG_FUSED),
                    eg_mha_run(m, x, .where = "j <= i", .form = EG_UNFUSED), 1e-12);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    for (int t = 0; t < 6; t++)
        parts[t] =
            eg_mha_run(m, eg_slice_axis(x, place, t, t + 1, 1), .where = "j <= i", .cache = c);
    eg_assert_close(eg_concat_axis_n(place, 6, parts), full, 1e-12);
    eg_nograd(cx, false);
}

/* copies include the parameters of options; what the other module lacks is named */
LOOP_TEST(options_are_copied, KINDS)
{
    eg_params *p = eg_params_open(cx), *q = eg_params_open(cx);
    eg_mha *m = made(_i, p), *twin = made(_i, q);
    eg_tensor *x = kinds[_i].layout ? eg_normal(cx, 0, 1, 5, 2, 8) : eg_normal(cx, 0, 1, 2, 5, 8);
    ck_assert(largest_difference(eg_mha_run(twin, x), eg_mha_run(m, x)) > 1e-3);
    ck_assert_int_eq(eg_mha_copy(twin, m), 0);
    eg_assert_close(eg_mha_run(twin, x), eg_mha_run(m, x), 0);
    eg_mha *plain =
        eg_mha_new(eg_params_open(cx), "plain", .d_model = 8, .heads = 2, .kv_heads = m->kv_heads);
    if (eg_params_count(p) == (m->form == EG_PACKED ? 4 : 8)) return;
    ck_assert_int_eq(eg_mha_copy(plain, m), -1);
    eg_assert_error(cx, "mha_copy: \"plain\" has no ");
}

/* additional scores: with all masks, in groups; a row without keys has only their value */
TEST(masks_do_not_apply_to_extra_keys)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 4, .kv_heads = 2, .bias_kv = true,
                           .zero_attn = true, .sink = true);
    randomise(p, 0.5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *bias = eg_normal(cx, 0, 1, 4, 5, 5), *w, *l, *s,
              *z = eg_normal(cx, 0, 1, 4);
    bool keep[2][5] = { { 0 }, { 1, 1, 0, 1, 1 } };
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i + h", .bias = { "hij", bias },
                              .keep = { "bj", eg_from(cx, &keep[0][0], 2, 5) }, .weights = &w,
                              .lse = &l, .scores = &s, .sink = { "h", z });
    eg_assert_ok(cx);
    eg_tensor *q = eg_on("bihd,hd", eg_add, eg_einsum("bim,mhd->bihd", x, m->W_q), m->b_q),
              *k = eg_rearrange("h d -> (h r=2) d", m->bias_k),
              *v = eg_rearrange("h d -> (h r=2) d", m->bias_v),
              *extra = eg_scale(eg_einsum("bihd,hd->bhi", q, k), 1 / sqrt(2.0));
    /* the softmax over keys and additional scores, written out */
    int64_t sizes[] = { 4, 5, 5 };
    eg_tensor *seen = eg_where_mask(cx, "j <= i + h", "h i [j]", 0, sizes),
              *forbidden = eg_not(eg_and(eg_expand(eg_unsqueeze(seen, 0), 2, 4, 5, 5),
                                         eg_reshape(eg_from(cx, &keep[0][0], 2, 5), 2, 1, 1, 5)));
    eg_tensor *scores = eg_where(forbidden, eg_full(cx, -INFINITY, 1), eg_contiguous(s));
    eg_tensor *more[] = { scores, eg_unsqueeze(extra, 3), eg_zeros(cx, 2, 4, 5, 1),
                          eg_expand(eg_reshape(z, 1, 4, 1, 1), 2, 4, 5, 1) };
    eg_tensor *all = eg_concat_axis_n(3, 4, more), *a = eg_softmax("b h i [j]", all);
    eg_assert_close(eg_contiguous(w), eg_contiguous(eg_slice_axis(a, 3, 0, 5, 1)), 1e-13);
    eg_assert_close(eg_contiguous(l), eg_logsumexp("b h i [j]", all), 1e-13);
    eg_tensor *vs = eg_on("bjgd,gd", eg_add, eg_einsum("bjm,mgd->bjgd", x, m->W_v), m->b_v),
              *heads = eg_add(eg_einsum("bhij,bjhd->bihd", eg_slice_axis(a, 3, 0, 5, 1),
                                        eg_rearrange("b j g d -> b j (g r=2) d", vs)),
                              eg_einsum("bhi,hd->bihd", eg_select_axis(a, 3, 5), v));
    eg_assert_close(y, eg_on("bim,m", eg_add, eg_einsum("bihd,hdm->bim", heads, m->W_o), m->b_o),
                    1e-12);
    eg_tensor *g;
    ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 1, &x, &g), 0);
    ck_assert(!any_nan(g));
}

/* the scores are the weights, 0 where they are masked: the module written out; dropout; heads of
 * different widths; in the block only the self attention */
LOOP_TEST(without_a_softmax, 3)
{
    static const int64_t each[] = { 4, 4 };
    eg_params *p = eg_params_open(cx);
    eg_tensor *u = eg_init_normal(eg_param(p, "u", "h", 2), 1), *w, *dropped,
              *x = eg_normal(cx, 0, 1, 2, 6, 8);
    eg_mha_args a = { .size = sizeof a,
                      .params = p,
                      .name = "a",
                      .d_model = 8,
                      .heads = 2,
                      .form = _i == 1 ? EG_PER_HEAD : EG_SEPARATE,
                      .d_k_each = _i == 1 ? each : NULL,
                      .dropout = _i == 2 ? 0.5 : 0,
                      .no_softmax = true,
                      .score = "sigmoid(score + u[h])",
                      .with = { { "u", u } } };
    eg_mha *m = eg_mha_new_with(&a), *plain = eg_mha_new(p, "plain", .d_model = 8, .heads = 2);
    randomise(p, 0.5);
    if (_i != 1) ck_assert_int_eq(eg_mha_copy(plain, m), 0);
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i", .weights = &w, .dropped = &dropped), *W[4],
              *b[4];
    eg_assert_ok(cx);
    static const char *const names[] = { "W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o" };
    for (int k = 0; k < 4; k++) {
        W[k] = eg_mha_weight(m, names[k]), b[k] = eg_mha_weight(m, names[4 + k]);
        if (_i != 1) continue;
        W[k] = eg_rearrange(k < 3 ? "m (h=2 d) -> m h d" : "(h=2 d) m -> h d m", W[k]);
        if (k < 3) b[k] = eg_rearrange("(h=2 d) -> h d", b[k]);
    }
    eg_tensor *q[3];
    for (int k = 0; k < 3; k++)
        q[k] = eg_on("bihd,hd", eg_add, eg_einsum("bim,mhd->bihd", x, W[k]), b[k]);
    eg_tensor *s = eg_scale(eg_einsum("bihd,bjhd->bhij", q[0], q[1]), 0.5);
    eg_tensor *seen = eg_tril(eg_sigmoid(eg_on("bhij,h", eg_add, s, u)), 0);
    eg_assert_close(eg_contiguous(w), seen, 1e-13);
    if (_i == 2) /* some of the weights are dropped, the others doubled */
        eg_assert_close(
            eg_mul(eg_contiguous(dropped), eg_sub(eg_contiguous(dropped), eg_scale(seen, 2))),
            eg_zeros_like(seen), 1e-13);
    eg_tensor *heads = eg_einsum("bhij,bjhd->bihd", _i == 2 ? eg_contiguous(dropped) : seen, q[2]);
    eg_assert_close(y, eg_on("bim,m", eg_add, eg_einsum("bihd,hdm->bim", heads, W[3]), b[3]),
                    1e-12);
    /* a row without keys is 0 before W_o */
    eg_tensor *none = eg_mha_run(m, x, .where = "j < i");
    eg_assert_close(eg_select_axis(none, 1, 0), eg_expand(eg_reshape(b[3], 1, 8), 2, 8), 1e-13);
    eg_block *block =
        eg_block_new(p, "block", .d_model = 8, .heads = 2, .cross = true,
                     .mha = &(eg_mha_args){ .no_softmax = true, .score = "exp(score)" });
    ck_assert(block->self->no_softmax && !block->cross->no_softmax && !block->cross->score);
}

/* the extra key is compared with the query before rotary positions, which only affect distances of
 * keys */
TEST(the_extra_key_has_no_position)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 2, .bias_kv = true, .rotary = 30);
    randomise(p, 0.5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 4, 8), *i = eg_arange(cx, EG_I64, 50, 54, 1);
    eg_assert_close(eg_mha_run(m, x, .positions = { "i", i }), eg_mha_run(m, x), 1e-12);
}

/* under PyTorch's names, and in its layout (1, 1, h d) */
TEST(further_keys_in_files)
{
    char path[] = "/tmp/eg_variants_XXXXXX";
    close(mkstemp(path));
    eg_params *p = eg_params_open(cx), *q = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 2, .bias_kv = true),
           *twin = eg_mha_new(q, "", .d_model = 8, .heads = 2, .bias_kv = true);
    randomise(p, 0.5);
    ck_assert_int_eq(eg_params_save_as(p, path, "", eg_aliases("torch")), 0);
    eg_safetensors *f = eg_safetensors_open(cx, path);
    int64_t one, other, width;
    eg_assert_axes("a b c", eg_safetensors_get(f, "bias_k"), &one, &other, &width);
    ck_assert(one == 1 && other == 1 && width == 8);
    eg_safetensors_close(f);
    ck_assert_int_eq(eg_params_load_as(q, path, "", eg_aliases("torch")), 0);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 8);
    eg_assert_close(eg_mha_run(twin, x), eg_mha_run(m, x), 0);
    unlink(path);
}

/* positions of a run: by batches, of the keys too; equal positions have the effect of the offset */
TEST(positions_of_a_run)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 2, .rotary = 30);
    randomise(p, 0.5);
    int64_t at[] = { 3, 4, 5, 6 }, of_key[] = { 0, 1, 2, 3 };
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 4, 8), *i = eg_from(cx, at, 4),
              *j = eg_from(cx, of_key, 4), *y = eg_mha_run(m, x),
              *moved = eg_mha_run(m, x, .offset = 3);
    /* all equal: only distances matter */
    eg_assert_close(eg_mha_run(m, x, .positions = { "i", i }), y, 1e-12);
    eg_assert_close(eg_mha_run(m, x, .positions = { "i", i }, .key_positions = { "j", j }), moved,
                    0);
    eg_assert_close(eg_mha_run(m, x, .key = x, .positions = { "i", i }), y, 1e-12);
    eg_assert_close(eg_mha_run(m, x, .key = eg_copy(x), .positions = { "i", i }), moved, 0);
    ck_assert(largest_difference(y, moved) > 1e-3);
    /* two documents in a row of four, each counted from 0 */
    int64_t packed[] = { 0, 1, 0, 1, 0, 1, 2, 3 };
    eg_tensor *rows = eg_mha_run(m, x, .where = "i / 2 == j / 2",
                                 .positions = { "bi", eg_from(cx, packed, 2, 4) }),
              *half = eg_slice_axis(eg_slice_axis(x, 0, 0, 1, 1), 1, 2, 4, 1);
    eg_assert_close(eg_slice_axis(eg_slice_axis(rows, 0, 0, 1, 1), 1, 2, 4, 1), eg_mha_run(m, half),
                    1e-12);
    /* with a cache: those of the new positions */
    eg_nograd(cx, true);
    eg_tensor *where = eg_from(cx, packed, 2, 4), *parts[4],
              *full = eg_mha_run(m, x, .where = "j <= i", .positions = { "bi", where });
    eg_cache *c = eg_cache_new(eg_params_owner(p), 4);
    for (int t = 0; t < 4; t++)
        parts[t] = eg_mha_run(m, eg_slice_axis(x, 1, t, t + 1, 1), .where = "j <= i", .cache = c,
                              .positions = { "bi", eg_slice_axis(where, 1, t, t + 1, 1) });
    eg_assert_close(eg_concat_axis_n(1, 4, parts), full, 1e-12);
    eg_nograd(cx, false);
    eg_transformer *net = eg_transformer_new(p, "t", .vocabulary = 5, .length = 4, .d_model = 8,
                                             .heads = 2, .layers = 2, .no_positions = true,
                                             .mha = &(eg_mha_args){ .rotary = 30 });
    int32_t token[] = { 1, 3, 2, 0 };
    eg_tensor *index = eg_from(cx, token, 1, 4), *plain = eg_transformer_run(net, index),
              *shifted = eg_transformer_run(net, index, .positions = { "i", i });
    eg_assert_close(shifted, plain, 1e-11);
    ck_assert(largest_difference(eg_transformer_run(net, index, .positions = { "i", eg_neg(i) }),
                                 plain) > 1e-4);
}

/* custom frequencies that are trained */
TEST(frequencies_that_are_trained)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *f = eg_param(p, "frequencies", "k", 2), *x = eg_normal(cx, 0, 1, 2, 4, 8), *g[1];
    double of_base[] = { 1, pow(30, -0.5) };
    eg_assign(f, eg_from(cx, of_base, 2));
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 2, .rotary_frequencies = f),
           *same = eg_mha_new(p, "b", .d_model = 8, .heads = 2, .rotary = 30);
    ck_assert_int_eq(eg_mha_copy(same, m), 0);
    eg_tensor *y = eg_mha_run(m, x);
    eg_assert_close(y, eg_mha_run(same, x), 1e-13);
    ck_assert_int_eq(eg_grad(y, eg_normal(cx, 0, 1, 2, 4, 8), 1, &f, g), 0);
    ck_assert(fabs(eg_get(g[0], 1)) > 1e-4);
}

/* other frequencies are copied: their scope may end */
TEST(freed_frequencies)
{
    eg_params *p = eg_params_open(cx);
    double of_base[] = { 1, pow(30, -0.5) };
    eg_mark mark = eg_push(cx);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 2,
                           .rotary_frequencies = eg_from(cx, of_base, 2)),
           *same = eg_mha_new(p, "b", .d_model = 8, .heads = 2, .rotary = 30);
    eg_pop(cx, mark);
    randomise(p, 0.5);
    ck_assert_int_eq(eg_mha_copy(same, m), 0);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 4, 8);
    eg_assert_close(eg_mha_run(m, x), eg_mha_run(same, x), 1e-13);
}

LOOP_TEST(modules_refuse_options, 30)
{
    static const int64_t each[] = { 3, 5 };
    static const eg_linear_attention_args linear, of_y = { .phi = "exp(y)" },
                                                  of_truth = { .phi = "x > 0" };
    const struct {
        eg_mha_args a;
        const char *why;
    } cases[] = {
        { { .rotary_width = 2 }, "mha \"a\": .rotary_width and .rotary_factor need .rotary" },
        { { .rotary = 1e4, .rotary_width = 3 },
          "mha \"a\": rotary positions rotate pairs of elements, but rotary_width is 3" },
        { { .rotary = 1e4, .rotary_width = 6 }, "mha \"a\": rotary_width is 6, but d_k is 4" },
        { { .rotary = 1e4, .rotary_factor = -1 }, "mha \"a\": rotary_factor is -1" },
        { { .rotary_frequencies = eg_ones(cx, 3) },
          "mha \"a\": rotary_frequencies has 3 numbers in 1 axis, but needs one for each of 2 "
          "pairs" },
        { { .qk_norm = (eg_qk_norm)9 }, "mha \"a\": qk_norm is 9, which is not an eg_qk_norm" },
        { { .qk_eps = 1e-6 }, "mha \"a\": .qk_eps is read with .qk_norm only" },
        { { .qk_norm = EG_QK_RMS, .qk_eps = -1 }, "mha \"a\": qk_eps is -1; it must be finite" },
        { { .temperature = NAN }, "mha \"a\": temperature is nan" },
        { { .d_k_each = each, .form = EG_PER_HEAD, .qk_norm = EG_QK_RMS },
          "mha \"a\": .qk_norm, .temperature, .bias_kv, .zero_attn and .sink need heads of one "
          "width" },
        { { .d_k_each = each, .form = EG_PER_HEAD, .sink = true }, "need heads of one width" },
        { { .d_k_each = each, .form = EG_PER_HEAD, .rotary_frequencies = eg_ones(cx, 2) },
          "mha \"a\": rotary positions need heads of one width" },
        { { .linear = &linear, .core = eg_attention_with },
          "mha \"a\": .linear and .core are two attentions; leave one out" },
        { { .linear = &linear, .sink = true },
          ".sink belongs to a softmax, which .linear has not" },
        { { .linear = &linear, .bias_kv = true }, ": .bias_kv belongs to a softmax" },
        { { .linear = &linear, .score = "score * 2" }, ": .score belongs to a softmax" },
        { { .linear = &of_y },
          "mha \"a\": .phi: expr: the expression's name 'y' is not one of 'x'\n  exp(y)\n      ^" },
        { { .linear = &of_truth }, "mha \"a\": .phi gives bool, not f64: \"x > 0\"" },
        { { .linear = &linear, .alibi = true }, ": .alibi belongs to a softmax" },
        { { .linear = &linear, .dropout = 0.5 }, ": .dropout belongs to a softmax" },
        { { .no_softmax = true, .sink = true },
          "mha \"a\": .sink joins the sum of a softmax, which .no_softmax leaves out" },
        { { .no_softmax = true, .zero_attn = true }, ".zero_attn joins the sum of a softmax" },
        { { .no_softmax = true, .bias_kv = true }, ".bias_kv joins the sum of a softmax" },
        { { .no_softmax = true, .linear = &linear },
          "mha \"a\": .linear has no softmax that .no_softmax could leave out" },
        { { .bias_kv = true, .W_q = "bias_k" }, "param: the name \"a.bias_k\" is taken" },
        { { .sink = true, .b_q = "sink" }, "param: the name \"a.sink\" is taken" },
        { { .interleaved = true },
          "mha \"a\": .interleaved is read with .rotary or .rotary_frequencies only" },
        { { .d_v_each = (int64_t[]){ 4, 4 } }, ".d_v_each is read with .d_k_each only" },
        { { .W_qkv = "W" }, ".W_qkv and .b_qkv are names of .form = EG_PACKED" },
        { { .form = EG_PACKED, .b_k = "b" }, "with .form = EG_PACKED the names are .W_qkv" },
    };
    eg_mha_args a = cases[_i].a;
    a.size = sizeof a, a.params = eg_params_open(cx), a.name = "a", a.d_model = 8, a.heads = 2;
    ck_assert_ptr_null(eg_mha_new_with(&a));
    eg_assert_error(cx, cases[_i].why);
}

static eg_tensor *without_lse(const eg_attention_args *o) { return eg_shift(o->q, 0); }
TEST(runs_refuse_options)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *x = eg_ones(cx, 2, 4, 8), *two = eg_ones(cx, 2, 4), *one = eg_ones(cx, 2);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 2),
           *turns = eg_mha_new(p, "t", .d_model = 8, .heads = 2, .rotary = 10),
           *linear = eg_mha_new(p, "l", .d_model = 8, .heads = 2,
                                .linear = &(eg_linear_attention_args){ .phi = "exp(x)" }),
           *core =
               eg_mha_new(p, "c", .d_model = 8, .heads = 2, .bias_kv = true, .core = without_lse),
           *bare = eg_mha_new(p, "b", .d_model = 8, .heads = 2, .no_softmax = true),
           *uneven = eg_mha_new(p, "u", .d_model = 8, .heads = 2, .form = EG_PER_HEAD,
                                .d_k_each = (int64_t[]){ 3, 5 });
#define REFUSED(m, why, ...)                              \
    do {                                                  \
        ck_assert(!eg_ok(eg_mha_run(m, x, __VA_ARGS__))); \
        eg_assert_error(cx, why);                         \
    } while (0)
    REFUSED(m, "mha \"a\": .positions is read by rotary positions, which the module does not have",
            .positions = { "bi", two });
    REFUSED(m, "mha \"a\": .key_positions is read by rotary", .key_positions = { "bj", two });
    REFUSED(turns, "mha \"t\": .positions is NULL", .positions = { "bi", NULL });
    REFUSED(turns, "mha \"t\": rotary: .positions: x does not have this index",
            .positions = { "bj", two });
    REFUSED(turns, "mha \"t\": rotary: .positions: index 'b' is 2 in x but 4 here",
            .positions = { "bi", eg_ones(cx, 4, 4) });
    REFUSED(m, "mha \"a\": .sink is NULL", .sink = { "h", NULL });
    REFUSED(m, "mha \"a\": attention: index 'h' is 2 in the query but 3 in .sink",
            .sink = { "h", eg_ones(cx, 3) });
    REFUSED(uneven, "mha \"u\": .sink needs heads of one width", .sink = { "h", one });
    REFUSED(m, "mha \"a\": .decay belongs to a linear attention", .decay = { "h", one });
    REFUSED(core, "mha \"c\": .bias_kv needs the .lse of the .core", .where = "j <= i");
    REFUSED(bare, "mha \"b\": .fill belongs to a softmax, which .no_softmax leaves out",
            .fill = -1);
    REFUSED(bare, "mha \"b\": .sink belongs to a softmax", .sink = { "h", one });
    eg_tensor *l;
    int64_t empty;
    REFUSED(bare, "mha \"b\": attention: .lse needs a softmax", .lse = &l);
    REFUSED(bare, "mha \"b\": attention: .empty needs a softmax", .empty = &empty);
    REFUSED(linear, "mha \"l\": .bias belongs to a softmax, which .linear has not",
            .bias = { "ij", eg_ones(cx, 4, 4) });
    REFUSED(linear, "mha \"l\": .fill belongs to a softmax", .fill = -1e9);
    REFUSED(linear, "mha \"l\": .sink belongs to a softmax", .sink = { "h", one });
    REFUSED(linear, "mha \"l\": .lengths belongs to a softmax", .lengths = { "b", one });
    REFUSED(linear, "mha \"l\": .form = EG_FUSED belongs to a softmax", .form = EG_FUSED);
    REFUSED(linear, "mha \"l\": linear_attention: .where may be \"j <= i\" and conditions",
            .where = "j < i");
    REFUSED(linear,
            "mha \"l\": linear_attention: .decay, .beta, .state, .next and .chunk need .where",
            .decay = { "h", one });
    eg_assert_ok(cx);
}
