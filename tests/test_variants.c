/* test_variants.c: what published models change in the parts of a transformer: gated feed-forward,
 * eps of the norms, rotary positions of every kind, norms of query and key, biases of the keys.
 * Each is compared with its equation, and with PyTorch (tests/reference/variants.py). */
#include <eingrad.h>
#include <eingrad/check.h>
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
/* The parameters of the file; those of p have values of their names. */
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
TEST(the_gate_goes_through_the_activation)
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

/* gates and eps reach every part of a block and of the models, and nothing else changes */
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

LOOP_TEST(eps_that_is_none, 3)
{
    const double eps[] = { -1, NAN, INFINITY };
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_norm_new(p, "n", .d_model = 2, .eps = eps[_i]));
    eg_assert_error(cx, "norm \"n\": eps is ");
    ck_assert_ptr_null(eg_block_new(p, "b", .d_model = 2, .heads = 1, .eps = eps[_i]));
    eg_assert_error(cx, "norm \"norm_self\": eps is ");
    eg_tensor *x = eg_ones(cx, 2, 2);
    eg_norm *zero = eg_norm_new(p, "zero", .d_model = 2, .eps = EG_OFF);
    eg_assert_close(eg_norm_run(zero, x), eg_zeros(cx, 2, 2), 0);
}
