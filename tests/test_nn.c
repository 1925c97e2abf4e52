/* test_nn.c: parameters and modules. Values and every gradient compared with PyTorch
 * (tests/reference/nn.py), and statements of texts on attention about a module. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include <unistd.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 7); }
static void close_cx(void) { eg_close(cx); }

/* -- golden values ---------------------------------------------------------------------------- */
static eg_safetensors *golden_file(void)
{
    eg_safetensors *file = eg_safetensors_open(cx, source_path("tests/data/nn.safetensors"));
    eg_assert_ok(cx);
    return file;
}
static eg_tensor *golden(const eg_safetensors *file, const char *group, const char *name)
{
    char key[160];
    snprintf(key, sizeof key, "%s/%s", group, name);
    eg_tensor *x = eg_safetensors_get(file, key);
    eg_assert_ok(cx);
    return x;
}

/* "self.W_q" under "pre": values are at pre/self./W_q, gradients at pre/self./g.W_q; "W_q" under
 * "cross": cross/W_q, cross/g.W_q */
static eg_tensor *of_parameter(const eg_safetensors *file, const char *group, const char *name,
                               bool gradient)
{
    char key[160];
    const char *dot = strchr(name, '.');
    int first = dot ? (int)(dot - name) + 1 : 0;
    snprintf(key, sizeof key, "%.*s%s%s%s", first, name, first ? "/" : "", gradient ? "g." : "",
             name + first);
    return golden(file, group, key);
}

static void set_parameters(eg_params *p, const eg_safetensors *file, const char *group)
{
    for (int k = 0; eg_params_at(p, k); k++)
        ck_assert_int_eq(eg_assign(eg_params_at(p, k)->x,
                                   of_parameter(file, group, eg_params_at(p, k)->name, false)),
                         0);
}

/* d⟨seed, y⟩ with respect to every parameter and to the inputs */
static void check_gradients(const eg_safetensors *file, const char *group, eg_params *p,
                            eg_tensor *y, int inputs, eg_tensor *const *x, const char *const *names)
{
    eg_tensor *xs[32], *dxs[32];
    int count = eg_params_count(p);
    for (int k = 0; k < count + inputs; k++)
        xs[k] = k < count ? eg_params_at(p, k)->x : x[k - count];
    ck_assert_int_eq(eg_grad(y, golden(file, group, "seed"), count + inputs, xs, dxs), 0);
    for (int k = 0; k < count; k++)
        eg_assert_close(dxs[k], of_parameter(file, group, eg_params_at(p, k)->name, true), 1e-10);
    for (int k = 0; k < inputs; k++)
        eg_assert_close(dxs[count + k], golden(file, group, names[k]), 1e-10);
}

GROUP("golden", .setup = open_f64, .teardown = close_cx)

TEST(mha_cross_as_pytorch) /* k and v have another length than q */
{
    eg_safetensors *file = golden_file();
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 12, .heads = 3, .kdim = 10, .vdim = 8);
    set_parameters(p, file, "cross");
    eg_tensor *x[] = { golden(file, "cross", "q"), golden(file, "cross", "k"),
                       golden(file, "cross", "v") },
              *w;
    eg_tensor *y = eg_mha_run(m, x[0], .key = x[1], .value = x[2],
                              .keep = { "bj", golden(file, "cross", "pad") }, .weights = &w);
    eg_assert_close(y, golden(file, "cross", "y"), 1e-10);
    eg_assert_close(eg_contiguous(w), golden(file, "cross", "weights"), 1e-10);
    check_gradients(file, "cross", p, y, 3, x, (const char *[]){ "g.q", "g.k", "g.v" });
}

TEST(mha_self_causal_as_pytorch) /* the gradient of X is the sum over three paths */
{
    eg_safetensors *file = golden_file();
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 12, .heads = 3);
    set_parameters(p, file, "self");
    eg_tensor *x = golden(file, "self", "q"), *w;
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i", .weights = &w);
    eg_assert_close(y, golden(file, "self", "y"), 1e-10);
    eg_assert_close(eg_contiguous(w), golden(file, "self", "weights"), 1e-10);
    eg_assert_close(eg_mha_run(m, x, .key = x, .value = x, .where = "j <= i"), y, 0);
    check_gradients(file, "self", p, y, 1, &x, (const char *[]){ "g.q" });
}

LOOP_TEST(encoder_block_as_pytorch, 2)
{
    static const struct {
        const char *name;
        bool post;
        eg_activation *activation;
    } cases[] = { { "pre", false, eg_gelu }, { "post", true, eg_relu } };
    eg_safetensors *file = golden_file();
    eg_params *p = eg_params_open(cx);
    eg_block *m = eg_block_new(p, "", .d_model = 12, .heads = 3, .width = 20,
                               .post_norm = cases[_i].post, .activation = cases[_i].activation);
    const char *group = cases[_i].name;
    set_parameters(p, file, group);
    eg_tensor *x = golden(file, group, "x");
    eg_tensor *y = eg_block_run(m, x, .keep = { "bj", golden(file, group, "pad") });
    eg_assert_close(y, golden(file, group, "y"), 1e-10);
    ck_assert_int_eq(eg_params_count(p), 16);
    check_gradients(file, group, p, y, 1, &x, (const char *[]){ "g.x" });
}

/* -- parameters ------------------------------------------------------------------------------- */
GROUP("parameters", .setup = open_f64, .teardown = close_cx)

TEST(parameters_by_name)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *E = eg_param(p, "E", "v m", 26, 64), *b = eg_param(p, "b", "m", 64),
              *s = eg_param_n(p, "s", "", 0, NULL);
    eg_params *in = eg_params_under(p, "layer"), *deeper = eg_params_under(in, "0");
    eg_tensor *w = eg_param(deeper, "W", "in out", 3, 5);
    ck_assert_int_eq(eg_params_count(p), 4);
    ck_assert_int_eq(eg_params_size(p), 26 * 64 + 64 + 1 + 15);
    ck_assert_str_eq(eg_params_at(p, 3)->name, "layer.0.W");
    ck_assert_str_eq(eg_params_at(p, 3)->axes, "in out");
    ck_assert_ptr_eq(eg_params_find(p, "E"), E);
    ck_assert_ptr_eq(eg_params_find(p, "layer.0.W"), w);
    ck_assert_ptr_eq(eg_params_find(in, "0.W"), w);
    ck_assert_ptr_null(eg_params_find(p, "W"));
    ck_assert_ptr_null(eg_params_at(p, 4));
    ck_assert(eg_params_under(p, "") == p && eg_params_context(in) == cx &&
              eg_params_type(p) == EG_F64);
    ck_assert_double_eq(eg_get(b, 5), 0);
    ck_assert_double_eq(eg_item(s), 0);
    double bound = sqrt(6.0 / (26 + 64)), most = eg_item(eg_max(NULL, eg_abs(E)));
    ck_assert(most <= bound && most > 0.98 * bound);
    eg_assert_ok(cx);
}

TEST(parameters_live_as_their_list)
{
    eg_params *p = eg_params_open(cx);
    eg_mark m = eg_push(cx);
    eg_linear *l = eg_linear_new(p, "late", .in = 3, .out = 2);
    eg_pop(cx, m);
    ck_assert_int_eq(eg_dim(eg_linear_run(l, eg_ones(cx, 4, 3)), 1), 2);
    eg_assert_ok(cx);
    eg_params_close(NULL);
    eg_params_close(p);
}

/* weights of several contexts in one memory: the same bits, in every form of the attention */
static eg_tensor *every_form(eg_params *p)
{
    eg_ctx *c = eg_params_context(p);
    eg_tensor *x = eg_embedding_run(eg_embedding_new(p, "E", .count = 7, .d_model = 8),
                                    eg_from(c, ((int32_t[]){ 3, 1, 4, 1, 5, 2 }), 2, 3));
    const eg_mha_args of[] = { { .sink = true, .temperature = 2, .bias_kv = true },
                               { .form = EG_PACKED, .qk_norm = EG_QK_RMS },
                               { .form = EG_PER_HEAD } };
    for (int k = 0; k < 3; k++) {
        char name[16];
        snprintf(name, sizeof name, "%d", k);
        x = eg_block_run(eg_block_new(p, name, .d_model = 8, .heads = 2, .mha = &of[k]), x);
    }
    return x;
}
TEST(lists_share_their_memory)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *y = every_form(p);
    eg_ctx *other = eg_open(.seed = 9, .threads = 1, .dtype = EG_F64);
    eg_params *q = eg_params_open(other, .shared = p);
    eg_tensor *z = every_form(q);
    eg_assert_ok(other);
    ck_assert(eg_params_count(p) == eg_params_count(q) && same_bits(y, z));
    for (int k = 0; k < eg_params_count(p); k++)
        ck_assert_ptr_eq(eg_raw(eg_params_at(p, k)->x, NULL), eg_raw(eg_params_at(q, k)->x, NULL));
    eg_params *copy =
        eg_params_open(other, .dtype = eg_params_type(p)); /* with values of its own */
    every_form(copy);
    ck_assert_int_eq(eg_params_copy(copy, p), 0);
    for (int k = 0; k < eg_params_count(p); k++)
        ck_assert(same_bits(eg_params_at(copy, k)->x, eg_params_at(p, k)->x));
    ck_assert_ptr_null(eg_linear_new(q, "l", .in = 2, .out = 3));
    eg_assert_error(other, "param \"l.W\": the list whose memory is shared has none of this name");
    ck_assert(!eg_ok(eg_param(q, "E.E", "v m", 7, 9)));
    eg_assert_error(other, "param: the name \"E.E\" is taken");
    eg_param(eg_params_open(other, .shared = p), "E.E", "v m", 7, 9);
    eg_assert_error(other,
                    "param \"E.E\": axis 1 has size 9, in the list whose memory is shared 8");
    eg_param(eg_params_open(other, .shared = eg_params_under(p, "E")), "E", "v", 7);
    eg_assert_error(other, "param \"E\" has rank 1, in the list whose memory is shared rank 2");
    eg_fill(eg_params_at(q, 0)->x, 1);
    eg_assert_error(other,
                    "fill: the target is read-only foreign memory; write to an eg_copy of it, or "
                    "give eg_from_memory .writable = true");
    eg_params *trained = eg_params_open(other, .shared = p);
    eg_tensor *E = eg_param(trained, "E.E", "v m", 7, 8);
    ck_assert(eg_ok(E) && eg_adam(trained) == NULL);
    eg_assert_error(other, "adam: \"E.E\": mut_f64: the target is read-only foreign memory");
    ck_assert(!eg_is_writable(E) && !eg_is_writable(eg_select_axis(E, 0, 0)) &&
              eg_is_writable(eg_copy(E)) && !eg_is_writable(NULL) &&
              eg_is_writable(eg_params_at(p, 0)->x));
    ck_assert_ptr_null(eg_params_open(other, .shared = p, .copies = 2));
    eg_assert_error(other,
                    "params: a list that shares the memory of another one has its dtype, f64, "
                    "and neither has copies or an expected file");
    eg_close(other);
}

/* the gradient of a loss after an inner step, by all initial values (Finn et al. 2017) */
static eg_tensor *loss_after_a_step(void *user, eg_tensor *const *xs)
{
    const eg_params *names = user;
    eg_ctx *c = eg_context(xs[0]);
    enum { MOST = 40 };
    eg_named of[MOST + 1] = { { 0 } };
    eg_tensor *ws[MOST], *g[MOST], *y = NULL;
    const int n = eg_params_count(names);
    for (int k = 0; k < n; k++) ws[k] = xs[k];
    for (int step = 0; step < 2; step++) {
        for (int k = 0; k < n; k++) of[k] = (eg_named){ eg_params_at(names, k)->name, "", ws[k] };
        eg_params *p = eg_params_open(c, .dtype = eg_type(xs[0]), .values = of);
        eg_block *b = eg_block_new(p, "b", .d_model = 4, .heads = 2, .width = 3,
                                   .mha = &(eg_mha_args){ .form = EG_PACKED });
        eg_tensor *x =
            eg_cast(eg_sin(eg_reshape(eg_arange(c, EG_F64, 0, 12, 1), 1, 3, 4)), eg_type(xs[0]));
        y = eg_mean(NULL, eg_square(eg_block_run(b, x)));
        if (step) break;
        if (eg_grad(y, NULL, n, ws, g)) return y;
        for (int k = 0; k < n; k++) ws[k] = eg_sub(ws[k], eg_scale(g[k], 0.1));
    }
    return y;
}
typedef struct inner_step {
    eg_params *names;
    eg_tensor *const *xs;
    int n;
} inner_step;
/* The examples have no effect; each counts once. */
static eg_tensor *loss_in_a_block(void *user, eg_ctx *block, int64_t from, int64_t to,
                                  int64_t *count)
{
    const inner_step *s = user;
    (void)block, (void)count;
    return eg_scale(loss_after_a_step(s->names, s->xs), (double)(to - from));
}
TEST(modules_of_given_values)
{
    eg_params *p = eg_params_open(cx);
    eg_block_new(p, "b", .d_model = 4, .heads = 2, .width = 3,
                 .mha = &(eg_mha_args){ .form = EG_PACKED });
    eg_tensor *xs[40];
    const int n = eg_params_count(p);
    for (int k = 0; k < n; k++) xs[k] = eg_params_at(p, k)->x;
    eg_assert_gradcheck(loss_after_a_step, p, n, xs, .directions = 2);
    for (int threads = 1; threads <= 2; threads++) { /* in a block, of tensors of its parent */
        const inner_step inner = { p, xs, n };
        eg_tensor *whole[40], *blocks[40];
        eg_threads(cx, threads);
        ck_assert_int_eq(eg_grad(loss_after_a_step(p, xs), NULL, n, xs, whole), 0);
        ck_assert_int_eq(eg_grad_over(cx, loss_in_a_block, (void *)(uintptr_t)&inner, 4, n, xs,
                                      blocks, .block = 2),
                         0);
        for (int k = 0; k < n; k++) eg_assert_close(blocks[k], whole[k], 1e-14);
    }
    const eg_named of[] = { { "l.W", "", eg_ones(cx, 2, 3) }, { "l.b", "", NULL }, { 0 } };
    ck_assert_ptr_null(eg_linear_new(eg_params_open(cx, .values = of), "m", .in = 2, .out = 3));
    eg_assert_error(cx, "param \"m.W\": .values has none of this name");
    ck_assert_ptr_null(eg_linear_new(eg_params_open(cx, .values = of), "l", .in = 2, .out = 4));
    eg_assert_error(cx, "param \"l.W\": axis 1 has size 4, in .values 3");
    ck_assert_ptr_null(eg_linear_new(eg_params_open(cx, .values = of), "l", .in = 2, .out = 3));
    eg_assert_error(cx, "param \"l.b\": its tensor in .values is NULL");
    ck_assert_ptr_null(eg_params_open(cx, .values = of, .shared = p));
    eg_assert_error(cx, "params: .values and .shared exclude each other");
}

/* weights of half the memory: as f32 weights of the same values */
LOOP_TEST(lists_of_half_the_memory, 2)
{
    eg_ctx *c = eg_open(.threads = 1, .seed = 3);
    const eg_dtype dtype = _i ? EG_F16 : EG_BF16;
    eg_params *half = eg_params_open(c, .dtype = dtype), *wide = eg_params_open(c);
    eg_tensor *index = eg_from(c, ((int32_t[]){ 3, 1, 4, 1, 5, 2 }), 2, 3), *y[2][3];
    for (int k = 0; k < 2; k++) { /* a model is made of the list, then of the wide copy of it */
        eg_params *p = k ? wide : half;
        const bool was = eg_nograd(c, true);
        every_form(p);
        eg_transformer *net[2];
        eg_seq2seq *pair = eg_seq2seq_new(p, "pair", .vocabulary = 7, .length = 3, .d_model = 8,
                                          .heads = 2, .layers = 1, .shared = true);
        for (int n = 0; n < 2; n++)
            net[n] = eg_transformer_new(
                eg_params_under(p, n ? "tied" : "net"), "", .vocabulary = 7, .length = 4,
                .d_model = 8, .heads = 2, .layers = 2, .tied = n, .types = n ? 2 : 0, .sinusoid = n,
                .gated = !n, .rms = !n,
                .mha = &(eg_mha_args){ .kv_heads = 1, .rotary = n ? 0 : 100, .alibi = n });
        if (k) ck_assert_int_eq(eg_params_copy(wide, half), 0);
        for (int n = 0; n < 2; n++) y[k][n] = eg_transformer_run(net[n], index, .where = "j <= i");
        y[k][2] = eg_seq2seq_run(pair, index, index);
        eg_nograd(c, was);
    }
    eg_assert_ok(c);
    for (int n = 0; n < 3; n++) {
        ck_assert(eg_type(y[0][n]) == EG_F32);
        eg_assert_close(y[0][n], y[1][n], 1e-5);
    }
    ck_assert(eg_type(eg_params_find(half, "net.tokens.E")) == dtype &&
              eg_type(eg_params_find(half, "net.norm.gain")) == EG_F32);
    const char *path = "half.safetensors";
    ck_assert_int_eq(eg_params_save(half, path), 0);
    eg_tensor *E = eg_copy(eg_params_find(half, "net.tokens.E"));
    eg_fill(eg_params_find(half, "net.tokens.E"), 0);
    ck_assert_int_eq(eg_params_load(half, path), 0);
    ck_assert(same_bits(E, eg_params_find(half, "net.tokens.E")));
    ck_assert_ptr_null(eg_adam(half));
    eg_assert_error(c, "an optimiser changes f32 and f64 only; copy the list to one of f32");
    ck_assert_ptr_null(eg_params_open(c, .dtype = EG_I8));
    eg_assert_error(c, "params: parameters are f32, f64, f16 or bf16, not i8");
    remove(path);
    eg_close(c);
}
/* the forms of the attention that a whole model does not have */
LOOP_TEST(forms_of_half_the_memory, 2)
{
    eg_ctx *c = eg_open(.threads = 1, .seed = 3);
    eg_params *half = eg_params_open(c, .dtype = _i ? EG_F16 : EG_BF16), *wide = eg_params_open(c);
    eg_tensor *x = eg_normal(c, 0, 1, 2, 3, 8), *y[2][3];
    const eg_mha_args of[] = { { .sink = true, .temperature = 2, .bias_kv = true, .kv_heads = 1 },
                               { .form = EG_PACKED, .qk_norm = EG_QK_RMS },
                               { .form = EG_PER_HEAD } };
    eg_mha *m[2][3];
    for (int k = 0; k < 2; k++)
        for (int n = 0; n < 3; n++) {
            eg_mha_args a = of[n];
            char name[16];
            snprintf(name, sizeof name, "%d", n);
            a.size = sizeof a, a.params = k ? wide : half, a.name = name, a.d_model = 8,
            a.heads = 2;
            m[k][n] = eg_mha_new_with(&a);
        }
    ck_assert_int_eq(eg_params_copy(wide, half), 0);
    eg_nograd(c, true);
    for (int n = 0; n < 3; n++) {
        for (int k = 0; k < 2; k++) y[k][n] = eg_mha_run(m[k][n], x, .where = "j <= i");
        eg_assert_ok(c);
        eg_assert_close(y[0][n], y[1][n], 1e-5);
    }
    eg_close(c);
}

TEST(parameters_refused)
{
    eg_params *p = eg_params_open(cx);
    eg_param(p, "a.W", "i j", 2, 3);
    ck_assert(!eg_ok(eg_param(p, "a.W", "i j", 2, 3)));
    eg_assert_error(cx, "param: the name \"a.W\" is taken");
    ck_assert(!eg_ok(eg_param(eg_params_under(p, "a"), "W", "i", 2)));
    eg_assert_error(cx, "\"a.W\" is taken");
    ck_assert(!eg_ok(eg_param(p, "V", "i j k", 2, 3)));
    eg_assert_error(cx, "\"i j k\" names 3 axes, but 2 sizes are given");
    ck_assert(!eg_ok(eg_param(eg_params_under(p, "a"), "V", "i j i", 2, 3, 2)));
    eg_assert_error(cx, "param \"a.V\": index 'i' occurs twice\n  i j i\n      ^");
    ck_assert(!eg_ok(eg_param(p, "V", "in in", 2, 3)));
    eg_assert_error(cx, "index 'in' occurs twice\n  in in\n     ^");
    ck_assert(!eg_ok(eg_param(p, "V", "i j", 2, 0)));
    eg_assert_error(cx, "size 0 of axis 1 is not positive");
    ck_assert(!eg_ok(eg_init_xavier(eg_params_find(p, "a.W"), 0, 1)));
    eg_assert_error(cx, "fans must be positive, not 0 and 1");
    eg_tensor *failed = eg_fail(cx, "on purpose");
    eg_clear(cx);
    ck_assert(!eg_ok(eg_init_xavier(failed, 1, 1)));
    eg_assert_error(cx, "init_xavier: w is NULL, failed or gone with its scope");
    ck_assert(!eg_ok(eg_init_normal(failed, 1)));
    eg_assert_error(cx, "init_normal: w is NULL");
    ck_assert_ptr_null(eg_params_open(cx, .dtype = EG_I32));
    eg_assert_error(cx, "f16 or bf16, not i32");
    ck_assert_ptr_null(eg_linear_new(p, "l", .in = 3));
    eg_assert_error(cx, "linear \"l\": out must be positive, not 0");
    ck_assert_ptr_null(eg_linear_new(p, "l", .in = INT64_MAX, .out = 1));
    eg_assert_error(cx, "linear \"l\": in is 9223372036854775807, more than 2147483647");
    ck_assert_ptr_null(eg_ffn_new(p, "f", .d_model = INT64_MAX));
    eg_assert_error(cx, "ffn \"f\": d_model is");
    ck_assert_ptr_null(eg_mha_new(p, "h", .d_model = 4, .heads = 2, .dropout = NAN));
    eg_assert_error(cx, "mha \"h\": dropout must be in [0, 1], not nan");
    ck_assert(!eg_ok(eg_param(p, "opt.x", "i", 2)) && !eg_ok(eg_param_n(p, "n", "i", 1, NULL)));
    eg_assert_error(cx, "the name \"opt.x\" is reserved");
    ck_assert(!eg_ok(eg_param(p, "n", "i j k", 1, INT64_MAX, INT64_MAX)));
    eg_assert_error(cx, "make more than 2^63 numbers");
    eg_positions *at = eg_positions_new(p, "at", .length = 4, .d_model = 2);
    ck_assert(!eg_ok(eg_positions_run(
        at, eg_full_n(cx, eg_type(at->table), 1, 3, (int64_t[]){ 1, 2, 2 }), .offset = INT64_MAX)));
    eg_assert_error(cx, "the table ends at 4");
}

TEST(options_of_an_older_header) /* fewer of them, or none at all */
{
    ck_assert_ptr_null(eg_linear_new_with(NULL));
    ck_assert_ptr_null(eg_mha_run_with(NULL));
    ck_assert_ptr_null(eg_adam_with(NULL));
    ck_assert_ptr_null(eg_params_open_with(NULL));
    const size_t fewer = offsetof(eg_linear_args, no_bias);
    const eg_linear_args now = {
        .size = fewer, .params = eg_params_open(cx), .name = "old", .in = 2, .out = 3
    };
    eg_linear_args *old = memcpy(malloc(fewer), &now, fewer);
    eg_linear *m = eg_linear_new_with(old); /* under a sanitizer: reads nothing after the end */
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_dim(m->weight, 1), 3);
    free(old);
}

/* Xavier, small normal, given; the same spread for stacked and separate heads */
TEST(initial_values)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 64, .heads = 8);
    eg_linear *l = eg_linear_new(p, "linear", .in = 64, .out = 64);
    double stacked = eg_item(eg_std(NULL, m->W_q)), plain = eg_item(eg_std(NULL, l->weight)),
           right = sqrt(2.0 / 128);
    ck_assert(fabs(stacked / right - 1) < 0.03 && fabs(plain / right - 1) < 0.03);
    eg_tensor *e = eg_embedding_new(p, "E", .count = 100, .d_model = 64)->table;
    ck_assert(fabs(eg_item(eg_std(NULL, e)) / 0.5 - 1) < 0.03);
    eg_init_normal(e, 0.02);
    ck_assert(fabs(eg_item(eg_std(NULL, e)) / 0.02 - 1) < 0.03);
    eg_init_constant(e, 3);
    ck_assert_double_eq(eg_get(e, 99, 63), 3);
    eg_ctx *again = eg_open(.dtype = EG_F64, .seed = 7);
    eg_mha *twin = eg_mha_new(eg_params_open(again), "attn", .d_model = 64, .heads = 8);
    ck_assert_int_eq(memcmp(eg_f64(twin->W_o), eg_f64(m->W_o), 64 * 64 * sizeof(double)), 0);
    eg_close(again);
    eg_assert_ok(cx);
}

TEST(save_load)
{
    char path[] = "/tmp/eg_nn_XXXXXX";
    close(mkstemp(path));
    eg_params *p = eg_params_open(cx), *q = eg_params_open(cx),
              *narrow = eg_params_open(cx, .dtype = EG_F32);
    eg_block_new(p, "a", .d_model = 8, .heads = 2);
    eg_block_new(q, "a", .d_model = 8, .heads = 2);
    eg_block_new(narrow, "a", .d_model = 8, .heads = 2);
    ck_assert_int_eq(eg_params_save(p, path), 0);
    ck_assert_int_eq(eg_params_load(q, path), 0);
    for (int k = 0; eg_params_at(p, k); k++)
        eg_assert_close(eg_params_at(q, k)->x, eg_params_at(p, k)->x, 0);
    ck_assert_int_eq(eg_params_load(narrow, path), 0);
    eg_assert_close(eg_params_find(narrow, "a.self.W_q"),
                    eg_cast(eg_params_find(p, "a.self.W_q"), EG_F32), 0);
    ck_assert_int_eq(eg_params_copy(narrow, p), 0);
    eg_params *other = eg_params_open(cx);
    eg_block_new(other, "a", .d_model = 8, .heads = 4);
    ck_assert_int_eq(eg_params_load(other, path), -1);
    eg_assert_error(cx, "tensor \"a.self.W_q\" is (8, 2, 4), not (8, 4, 2)");
    eg_param(other, "more", "i", 3);
    eg_params *third = eg_params_open(cx);
    eg_param(third, "more", "i", 3);
    ck_assert_int_eq(eg_params_load(third, path), -1);
    eg_assert_error(cx, "no tensor \"more\", which must be (3,)");
    unlink(path);
}

/* a list made by eg_params_under takes part in a copy with the parameters below its name alone */
TEST(copying_below_a_name)
{
    eg_params *p = eg_params_open(cx), *live = eg_params_under(p, "live"),
              *mean = eg_params_under(p, "mean"), *q = eg_params_open(cx);
    eg_linear *of[] = { eg_linear_new(live, "f", .in = 3, .out = 2),
                        eg_linear_new(mean, "f", .in = 3, .out = 2),
                        eg_linear_new(q, "f", .in = 3, .out = 2) };
    eg_tensor *was = eg_copy(of[0]->weight);
    ck_assert_int_eq(eg_params_copy(mean, live), 0);
    ck_assert(same_bits(of[1]->weight, was) && same_bits(of[0]->weight, was));
    ck_assert_int_eq(eg_params_copy(mean, q), 0); /* from and to a list of its own */
    ck_assert(same_bits(of[1]->weight, of[2]->weight) && same_bits(of[0]->weight, was));
    ck_assert_int_eq(eg_params_copy(q, live), 0);
    ck_assert(same_bits(of[2]->weight, was));
    eg_param(mean, "more", "i", 2);
    ck_assert_int_eq(eg_params_copy(mean, live), -1);
    eg_assert_error(cx, "params_copy: no parameter \"live.more\" in the source");
    ck_assert_int_eq(eg_params_copy(eg_params_under(p, "men"), live), -1);
    eg_assert_error(cx, "params_copy: the list has no parameter below \"men\"");
}

/* -- attention -------------------------------------------------------------------------------- */
GROUP("attention", .setup = open_f64, .teardown = close_cx)

LOOP_TEST(parameter_counts, 6)
{
    static const struct {
        bool none, no_q, no_k;
        int64_t heads, count;
    } cases[] = { { false, false, false, 8, 1050624 }, { true, false, false, 8, 1048576 },
                  { false, true, true, 8, 1049600 },   { false, false, false, 1, 1050624 },
                  { false, false, false, 2, 1050624 }, { false, false, false, 4, 1050624 } };
    eg_params *p = eg_params_open(cx, .dtype = EG_F32);
    eg_mha *m =
        eg_mha_new(p, "attn", .d_model = 512, .heads = cases[_i].heads, .no_bias = cases[_i].none,
                   .no_q_bias = cases[_i].no_q, .no_k_bias = cases[_i].no_k);
    ck_assert_int_eq(eg_params_size(p), cases[_i].count);
    ck_assert(m->d_k == 512 / cases[_i].heads && m->d_v == m->d_k);
    ck_assert_str_eq(eg_params_at(p, 0)->name, "attn.W_q");
    ck_assert_str_eq(eg_params_at(p, 0)->axes, "m h d");
    eg_assert_ok(cx);
}

LOOP_TEST(example_sizes, 4)
{
    static const struct {
        int64_t batch, query, key, width, heads;
    } cases[] = {
        { 2, 10, 50, 512, 8 }, { 2, 10, 50, 768, 12 }, { 10, 60, 60, 512, 8 }, { 1, 4, 4, 8, 2 }
    };
    eg_params *p = eg_params_open(cx, .dtype = EG_F32);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = cases[_i].width, .heads = cases[_i].heads);
    eg_nograd(cx, true);
    eg_tensor *q =
        eg_cast(eg_normal(cx, 0, 1, cases[_i].batch, cases[_i].query, cases[_i].width), EG_F32);
    eg_tensor *k = eg_cast(eg_normal(cx, 0, 1, cases[_i].batch, cases[_i].key, cases[_i].width),
                           EG_F32),
              *w;
    eg_tensor *y = eg_mha_run(m, q, .key = k, .weights = &w);
    int64_t b, i, j, h, d;
    eg_assert_axes("b i d", y, &b, &i, &d);
    ck_assert(b == cases[_i].batch && i == cases[_i].query && d == cases[_i].width);
    eg_assert_axes("b h i j", w, &b, &h, &i, &j);
    ck_assert(h == cases[_i].heads && i == cases[_i].query && j == cases[_i].key);
    eg_assert_close(eg_sum("b h i [j]", w), eg_ones_like(eg_sum("b h i [j]", w)), 1e-5);
}

/* the same attention with four einsums and a matrix for each head */
static eg_tensor *head_by_head(const eg_mha *m, eg_tensor *x, double scale)
{
    eg_tensor *y = NULL;
    for (int64_t h = 0; h < m->heads; h++) {
        eg_tensor *q = eg_add(eg_einsum("bim,md->bid", x, eg_select_axis(m->W_q, 1, h)),
                              eg_select_axis(m->b_q, 0, h));
        eg_tensor *k = eg_add(eg_einsum("bim,md->bid", x, eg_select_axis(m->W_k, 1, h)),
                              eg_select_axis(m->b_k, 0, h));
        eg_tensor *v = eg_add(eg_einsum("bim,md->bid", x, eg_select_axis(m->W_v, 1, h)),
                              eg_select_axis(m->b_v, 0, h));
        eg_tensor *a = eg_softmax("b i [j]", eg_scale(eg_einsum("bid,bjd->bij", q, k), scale));
        eg_tensor *z = eg_einsum("bij,bjd,dm->bim", a, v, eg_select_axis(m->W_o, 0, h));
        y = y ? eg_add(y, z) : z;
    }
    return eg_add(y, m->b_o);
}

TEST(a_loop_over_heads) /* scale 1/√(E/H), S ≠ E/H */
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 12, .heads = 3);
    randomise(p, 0.4);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 7, 12), *y = eg_mha_run(m, x),
              *loop = head_by_head(m, x, 1 / sqrt(12.0 / 3));
    eg_assert_close(y, loop, 1e-12);
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, 7, 12),
              *xs[] = { x, m->W_q, m->W_k, m->W_v, m->W_o, m->b_q, m->b_v }, *one[7], *other[7];
    ck_assert_int_eq(eg_grad(y, seed, 7, xs, one), 0);
    ck_assert_int_eq(eg_grad(loop, seed, 7, xs, other), 0);
    for (int k = 0; k < 7; k++) eg_assert_close(one[k], other[k], 1e-12);
    eg_tensor *wrong = head_by_head(m, x, 1 / sqrt(7));
    ck_assert(eg_item(eg_max(NULL, eg_abs(eg_sub(y, wrong)))) > 1e-3);
}

TEST(same_bits_for_any_threads)
{
    eg_params *p = eg_params_open(cx, .dtype = EG_F32);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 64, .heads = 4);
    eg_tensor *x = eg_cast(eg_normal(cx, 0, 1, 4, 40, 64), EG_F32), *first = NULL, *gradient = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        eg_threads(cx, threads);
        eg_tensor *y = eg_mha_run(m, x, .where = "j <= i"), *g;
        ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 1, &m->W_q, &g), 0);
        if (first) {
            ck_assert_int_eq(memcmp(eg_f32(first), eg_f32(y), (size_t)eg_size(y) * 4), 0);
            ck_assert_int_eq(memcmp(eg_f32(gradient), eg_f32(g), (size_t)eg_size(g) * 4), 0);
        }
        first = y, gradient = g;
    }
}

TEST(attention_refuses)
{
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_mha_new(p, "attn", .d_model = 10, .heads = 3));
    eg_assert_error(cx, "mha \"attn\": d_model must be divisible by heads: 10 / 3");
    ck_assert_int_eq(eg_params_count(p), 0);
    ck_assert_ptr_nonnull(eg_mha_new(p, "uneven", .d_model = 10, .heads = 3, .d_k = 4, .d_v = 5));
    ck_assert_ptr_null(eg_mha_new(p, "none", .d_model = 10));
    eg_assert_error(cx, "mha \"none\": heads must be positive, not 0");
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 2);
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 2, 6, 8), .key = eg_ones(cx, 3, 4, 8))));
    eg_assert_error(cx, "mha \"attn\": batch 'b' is 2 in the query but 3 in the key");
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 2, 6, 8), .key = eg_ones(cx, 2, 4, 8),
                                .value = eg_ones(cx, 2, 5, 8))));
    eg_assert_error(cx, "length 'j' is 4 in the key but 5 in the value");
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 2, 6, 7))));
    eg_assert_error(cx, "'m' is 8 in the module but 7 in the query");
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 6, 8))));
    eg_assert_error(cx, "the query has 2 axes");
    ck_assert(!eg_ok(eg_mha_run(NULL, eg_ones(cx, 2, 6, 8))));
    eg_assert_error(cx, "mha: the module is NULL");
    eg_tensor *soft = eg_ones(cx, 2, 6);
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 2, 6, 8), .keep = { "bj", soft })));
    ck_assert_ptr_nonnull(eg_error(cx));
    eg_clear(cx);
}

/* d_v ≠ d_k, kdim, vdim, any output width; names settable */
TEST(widths_are_free)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m =
        eg_mha_new(p, "", .d_model = 6, .heads = 2, .d_k = 5, .d_v = 3, .kdim = 4, .vdim = 7,
                   .d_out = 9, .no_k_bias = true, .W_q = "q_proj.weight", .W_o = "o_proj.weight");
    ck_assert_ptr_eq(eg_params_find(p, "q_proj.weight"), m->W_q);
    ck_assert_ptr_eq(eg_params_find(p, "o_proj.weight"), m->W_o);
    ck_assert(!m->b_k && m->b_v && eg_dim(m->b_v, 1) == 3);
    eg_tensor *y = eg_mha_run(m, eg_ones(cx, 2, 3, 6), .key = eg_ones(cx, 2, 8, 4),
                              .value = eg_ones(cx, 2, 8, 7));
    eg_assert_ok(cx);
    ck_assert(eg_dim(y, 0) == 2 && eg_dim(y, 1) == 3 && eg_dim(y, 2) == 9);
}

/* before dropout by default, after it on request; the values are the same */
TEST(weights_on_request)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 2, .dropout = 0.5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8), *w = NULL, *dropped = NULL;
    uint64_t draws = eg_draws(cx);
    eg_tensor *plain = eg_mha_run(m, x);
    eg_set_draws(cx, draws);
    eg_tensor *asked = eg_mha_run(m, x, .weights = &w, .dropped = &dropped);
    eg_assert_close(asked, plain, 0);
    eg_assert_close(eg_sum("b h i [j]", w), eg_ones(cx, 2, 2, 6), 1e-12);
    eg_tensor *kept = eg_where(eg_gt(dropped, eg_zeros_like(dropped)), dropped, eg_scale(w, 2));
    eg_assert_close(eg_contiguous(kept), eg_contiguous(eg_scale(w, 2)), 1e-12);
    ck_assert(eg_item(eg_min(NULL, dropped)) == 0);
    eg_eval(cx);
    eg_tensor *quiet = eg_mha_run(m, x, .dropped = &dropped, .weights = &w);
    eg_assert_close(eg_contiguous(dropped), eg_contiguous(w), 0);
    eg_assert_close(quiet, eg_mha_run(m, x), 0);
    eg_train(cx);
}

/* the output of the core is 0, so b_o remains; the gradient is 0, not NaN */
TEST(a_query_without_keys)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 2);
    randomise(p, 0.4);
    bool keep[2][3] = { { true, true, false }, { false, false, false } };
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 8),
              *y = eg_mha_run(m, x, .keep = { "bj", eg_from(cx, &keep[0][0], 2, 3) }), *g;
    eg_assert_close(eg_select_axis(y, 0, 1), eg_expand(m->b_o, 3, 8), 0);
    ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 1, &x, &g), 0);
    eg_assert_close(eg_select_axis(g, 0, 1), eg_zeros(cx, 3, 8), 0);
    ck_assert(isfinite(eg_item(eg_sum(NULL, eg_square(g)))));
}

/* without positions the order of the tokens has no effect */
TEST(permutation_equivariant)
{
    eg_params *p = eg_params_open(cx);
    eg_block *m = eg_block_new(p, "block", .d_model = 12, .heads = 3);
    int64_t order[] = { 4, 0, 6, 2, 1, 5, 3 };
    eg_tensor *index = eg_from(cx, order, 7), *x = eg_normal(cx, 0, 1, 2, 7, 12);
    eg_tensor *first = eg_at("b [l] m, i -> b i m", eg_block_run(m, x), index),
              *last = eg_block_run(m, eg_at("b [l] m, i -> b i m", x, index));
    eg_assert_close(first, last, 1e-14);
    eg_positions *at = eg_positions_new(p, "places", .length = 7, .d_model = 12);
    eg_tensor *placed =
        eg_block_run(m, eg_positions_run(at, eg_at("b [l] m, i -> b i m", x, index)));
    ck_assert(
        eg_item(eg_max(NULL, eg_abs(eg_sub(placed, eg_at("b [l] m, i -> b i m",
                                                         eg_block_run(m, eg_positions_run(at, x)),
                                                         index))))) > 1e-3);
}

/* -- the other modules ------------------------------------------------------------------------ */
/* x are parameters: the module holds the same tensors */
static eg_tensor *run_net(void *net, eg_tensor *const *x)
{
    (void)x;
    static const int32_t tokens[] = { 1, 4, 2, 0, 3, 3 };
    return eg_transformer_run(net, eg_from(cx, tokens, 2, 3), .where = "j <= i");
}

GROUP("modules", .setup = open_f64, .teardown = close_cx)

TEST(transformer_composes)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_transformer_new(p, "net", .vocabulary = 5, .length = 4, .d_model = 8,
                                             .heads = 2, .layers = 2, .width = 12);
    randomise(p, 0.4);
    ck_assert_ptr_nonnull(eg_params_find(p, "net.1.self.W_o"));
    ck_assert_ptr_nonnull(eg_params_find(p, "net.tokens.E"));
    ck_assert_ptr_nonnull(eg_params_find(p, "net.0.ffn.up.W"));
    int64_t block = 4 * 8 * 8 + 4 * 8 + 2 * 8 * 12 + 12 + 8 + 4 * 8;
    ck_assert_int_eq(eg_params_size(p), 5 * 8 + 4 * 8 + 2 * block + 2 * 8 + 8 * 5 + 5);
    eg_tensor *y = run_net(net, NULL), *xs[64], *dxs[64];
    eg_assert_axes("b l v", y, &(int64_t){ 0 }, &(int64_t){ 0 }, &(int64_t){ 0 });
    int count = eg_params_count(p);
    for (int k = 0; k < count; k++) xs[k] = eg_params_at(p, k)->x;
    eg_tensor *loss = eg_mean(NULL, eg_square(y));
    ck_assert_int_eq(eg_grad(loss, NULL, count, xs, dxs), 0);
    /* a step along each gradient: every parameter has an effect, except for the keys' bias */
    for (int k = 0; k < count; k++) {
        double size = eg_item(eg_sum(NULL, eg_square(dxs[k]))), h = 1e-6;
        bool key_bias = strstr(eg_params_at(p, k)->name, "b_k") != NULL;
        ck_assert_msg(key_bias ? size < 1e-20 : size > 1e-12, "%s: %g", eg_params_at(p, k)->name,
                      size);
        eg_tensor *before = eg_copy(xs[k]);
        eg_nograd(cx, true);
        eg_assign(xs[k], eg_add(before, eg_scale(dxs[k], h)));
        double up = eg_item(eg_mean(NULL, eg_square(run_net(net, NULL))));
        eg_assign(xs[k], eg_sub(before, eg_scale(dxs[k], h)));
        double down = eg_item(eg_mean(NULL, eg_square(run_net(net, NULL))));
        eg_assign(xs[k], before);
        eg_nograd(cx, false);
        ck_assert_msg(fabs((up - down) / (2 * h) - size) <= 1e-5 * size + 1e-9, "%s: %g, not %g",
                      eg_params_at(p, k)->name, (up - down) / (2 * h), size);
    }
    eg_assert_ok(cx);
}

/* with a table of positions, tokens have the axes b and l: the message is about them */
TEST(tokens_are_b_l)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_transformer_new(p, "net", .vocabulary = 5, .length = 4, .d_model = 8,
                                             .heads = 2, .layers = 1);
    eg_seq2seq *pair = eg_seq2seq_new(p, "pair", .vocabulary = 5, .length = 4, .d_model = 8,
                                      .heads = 2, .layers = 1);
    eg_tensor *row = eg_randint(cx, 0, 5, 4), *cube = eg_randint(cx, 0, 5, 1, 1, 4);
    ck_assert(!eg_ok(eg_transformer_run(net, row)));
    eg_assert_error(cx, "transformer \"net\": the tokens have 1 axis, but must be (b l)");
    ck_assert(!eg_ok(eg_transformer_run(net, cube)));
    eg_assert_error(cx, "transformer \"net\": the tokens have 3 axes, but must be (b l)");
    ck_assert(!eg_ok(eg_seq2seq_run(pair, row, row)));
    eg_assert_error(cx, "seq2seq \"pair\": the tokens have 1 axis, but must be (b l)");
}

TEST(causal_results_do_not_depend_on_later_tokens)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_transformer_new(p, "", .vocabulary = 9, .length = 6, .d_model = 8,
                                             .heads = 2, .layers = 2);
    int32_t one[] = { 1, 2, 3, 4, 5, 6 }, other[] = { 1, 2, 3, 8, 7, 0 };
    eg_tensor *a = eg_transformer_run(net, eg_from(cx, one, 1, 6), .where = "j <= i"),
              *b = eg_transformer_run(net, eg_from(cx, other, 1, 6), .where = "j <= i");
    eg_assert_close(eg_contiguous(eg_slice_axis(a, 1, 0, 3, 1)),
                    eg_contiguous(eg_slice_axis(b, 1, 0, 3, 1)), 1e-13);
    ck_assert(eg_item(eg_max(NULL, eg_abs(eg_sub(a, b)))) > 1e-3);
}

TEST(train_and_eval)
{
    eg_params *p = eg_params_open(cx);
    eg_block *m = eg_block_new(p, "block", .d_model = 8, .heads = 2, .dropout = 0.3);
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 4, 8), *a = eg_block_run(m, x), *b = eg_block_run(m, x);
    ck_assert(eg_item(eg_max(NULL, eg_abs(eg_sub(a, b)))) > 1e-3);
    eg_eval(cx);
    eg_assert_close(eg_block_run(m, x), eg_block_run(m, x), 0);
    eg_train(cx);
}

TEST(dropout_of_a_block_and_of_its_attention)
{
    eg_params *p = eg_params_open(cx);
    const eg_linear_attention_args linear = { 0 };
    const struct {
        eg_mha_args mha;
        double weights, memory_weights; /* dropout of the attentions of a block with dropout 0.3 */
    } cases[] = { { { 0 }, 0.3, 0.3 },
                  { { .dropout = 0.1 }, 0.1, 0.1 },
                  { { .dropout = EG_OFF }, 0, 0 },
                  { { .linear = &linear }, 0, 0.3 },
                  { { .heads = 2, .d_model = 8 }, 0.3, 0.3 } };
    for (int k = 0; k < 5; k++) {
        char name[] = { (char)('a' + k), 0 };
        const eg_block *m = eg_block_new(p, name, .d_model = 8, .heads = 2, .dropout = 0.3,
                                         .cross = true, .mha = &cases[k].mha);
        eg_assert_ok(cx);
        ck_assert_double_eq(m->dropout, 0.3);
        ck_assert_double_eq(m->self->dropout, cases[k].weights);
        ck_assert_double_eq(m->cross->dropout, cases[k].memory_weights);
    }
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 5, 8);
    const eg_block *m =
        eg_block_new(p, "l", .d_model = 8, .heads = 2, .dropout = 0.3, .mha = &cases[3].mha);
    ck_assert(eg_ok(eg_block_run(m, x, .where = "j <= i")));
    ck_assert_ptr_null(
        eg_block_new(p, "x", .d_model = 8, .heads = 2, .mha = &(eg_mha_args){ .heads = 4 }));
    eg_assert_error(cx, "block \"x\": .mha has d_model 0 and heads 4, the block 8 and 2");
    ck_assert_ptr_null(
        eg_block_new(p, "x", .d_model = 8, .heads = 2, .mha = &(eg_mha_args){ .d_model = 4 }));
    eg_assert_error(cx,
                    ".mha has d_model 4 and heads 0, the block 8 and 2; leave them out of .mha");
}

TEST(cross_block) /* the first attention is causal self-attention, the second cross attention */
{
    eg_params *p = eg_params_open(cx);
    eg_block *m = eg_block_new(p, "dec", .d_model = 8, .heads = 2, .cross = true, .memory_dim = 5,
                               .rms = true);
    eg_tensor *w, *c,
        *y = eg_block_run(m, eg_normal(cx, 0, 1, 2, 4, 8), .memory = eg_normal(cx, 0, 1, 2, 6, 5),
                          .where = "j <= i", .weights = &w, .memory_weights = &c);
    eg_assert_ok(cx);
    ck_assert(eg_dim(y, 1) == 4 && eg_dim(w, 3) == 4 && eg_dim(c, 3) == 6);
    ck_assert(eg_get(w, 0, 0, 0, 1) == 0 && eg_get(c, 0, 0, 0, 5) > 0);
    ck_assert(!eg_ok(eg_block_run(m, eg_ones(cx, 2, 4, 8))));
    eg_assert_error(cx, "block \"dec\": made with cross attention, but run without memory");
    eg_cache *cache = eg_cache_new(eg_params_owner(p), 8);
    const bool was = eg_nograd(cx, true);
    ck_assert(!eg_ok(eg_block_run(m, eg_ones(cx, 2, 4, 8), .memory = eg_ones(cx, 2, 6, 5),
                                  .cache = cache, .slot = INT32_MAX)));
    eg_assert_error(cx, "mha \"dec.self\": the cache has no slot 2147483647");
    eg_nograd(cx, was);
}

TEST(positions_are_waves_or_rows_of_a_table)
{
    eg_params *p = eg_params_open(cx);
    eg_positions *wave = eg_positions_new(p, "wave", .length = 50, .d_model = 6, .sinusoid = true);
    ck_assert_int_eq(eg_params_count(p), 0);
    eg_tensor *y = eg_positions_run(wave, eg_zeros(cx, 1, 10, 6), .offset = 30);
    ck_assert_double_eq_tol(eg_get(y, 0, 7, 2), sin(37 / pow(10000, 2 / 6.0)), 1e-15);
    ck_assert_double_eq_tol(eg_get(y, 0, 7, 5), cos(37 / pow(10000, 4 / 6.0)), 1e-15);
    ck_assert(!eg_ok(eg_positions_run(wave, eg_zeros(cx, 1, 10, 6), .offset = 41)));
    eg_assert_error(cx, "positions \"wave\": 'l' goes to 51, but the table ends at 50");
    eg_positions_run(wave, eg_zeros(cx, 1, 10, 6), .offset = -1);
    eg_assert_error(cx, "positions \"wave\": .offset is -1, but must not be negative");
}

TEST(numbers_of_modules_are_checked_when_they_are_made)
{
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_embedding_new(p, "e", .count = 3, .d_model = 2, .scale = NAN));
    eg_assert_error(cx, "embedding \"e\": scale is nan, not a finite number");
    ck_assert_ptr_null(eg_mha_new(p, "a", .d_model = 4, .heads = 2, .scale = NAN));
    eg_assert_error(cx, "mha \"a\": scale is nan, not a finite number");
    ck_assert_ptr_null(eg_mha_new(p, "c", .d_model = 4, .heads = 2,
                                  .linear = &(eg_linear_attention_args){ .chunk = -4 }));
    eg_assert_error(cx, "mha \"c\": linear.chunk is -4, but must not be negative");
}

/* a user's module: y = out(silu(in x) · x) */
typedef struct gate {
    eg_linear *in, *out;
} gate;
static eg_tensor *gate_run(const gate *m, eg_tensor *x)
{
    return eg_linear_run(m->out, eg_mul(eg_silu(eg_linear_run(m->in, x)), x));
}

TEST(a_module_of_the_users)
{
    eg_params *p = eg_params_open(cx), *in = eg_params_under(p, "gate");
    gate *m = eg_params_alloc(p, sizeof *m);
    *m = (gate){ eg_linear_new(in, "in", .in = 4, .out = 4),
                 eg_linear_new(in, "out", .in = 4, .out = 3, .no_bias = true) };
    ck_assert_int_eq(eg_params_size(p), 4 * 4 + 4 + 4 * 3);
    ck_assert_ptr_nonnull(eg_params_find(p, "gate.in.W"));
    eg_tensor *y = gate_run(m, eg_ones(cx, 2, 5, 4));
    ck_assert(eg_dim(y, 0) == 2 && eg_dim(y, 1) == 5 && eg_dim(y, 2) == 3);
    ck_assert(!eg_ok(gate_run(m, eg_ones(cx, 2, 3))));
    eg_assert_error(cx,
                    "linear \"gate.in\": 'i' is 4 in the module but 3 in the operand's last axis");
}

/* -- NULL ------------------------------------------------------------------------------------- */
/* Asserts the message of the thread, since there is no context, and clears it. */
static void thread_says(const char *sentence)
{
    ck_assert_msg(!strcmp(eg_error(NULL), sentence), "\"%s\", not \"%s\"", eg_error(NULL),
                  sentence);
    ck_assert_int_eq(eg_error_code(NULL), EG_ERROR_MISUSE);
    eg_clear(NULL);
}

TEST(a_list_that_is_null)
{
    eg_clear(NULL);
#define SAYS(made, who)                                      \
    do {                                                     \
        ck_assert_ptr_null(made);                            \
        thread_says(who ": the list of parameters is NULL"); \
    } while (0)
    SAYS(eg_linear_new(NULL, "a", .in = 2, .out = 2), "linear");
    SAYS(eg_norm_new(NULL, "a", .d_model = 2), "norm");
    SAYS(eg_embedding_new(NULL, "a", .count = 2, .d_model = 2), "embedding");
    SAYS(eg_positions_new(NULL, "a", .length = 2, .d_model = 2), "positions");
    SAYS(eg_ffn_new(NULL, "a", .d_model = 2), "ffn");
    SAYS(eg_mha_new(NULL, "a", .d_model = 2, .heads = 1), "mha");
    SAYS(eg_mha_new_with(NULL), "mha");
    SAYS(eg_block_new(NULL, "a", .d_model = 2, .heads = 1), "block");
    SAYS(eg_transformer_new(NULL, "a"), "transformer");
    SAYS(eg_seq2seq_new(NULL, "a"), "seq2seq");
    SAYS(eg_sgd(NULL), "sgd");
    SAYS(eg_adam(NULL), "adam");
    SAYS(eg_adamw(NULL), "adamw");
    SAYS(eg_rmsprop(NULL), "rmsprop");
    SAYS(eg_adagrad(NULL), "adagrad");
#undef SAYS
}

/* EG_OFF means 0 where 0 means the default */
TEST(options_that_are_off_are_0)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *token = eg_randint(cx, 0, 7, 2, 5);
    eg_embedding *e = eg_embedding_new(p, "e", .count = 7, .d_model = 8, .scale = EG_OFF);
    eg_assert_close(eg_embedding_run(e, token), eg_zeros(cx, 2, 5, 8), 0);
    eg_tensor *loss = eg_cross_entropy("b l [v]", x, token);
    eg_assert_close(eg_cross_entropy("b l [v]", x, token, .smoothing = EG_OFF, .z_loss = EG_OFF),
                    loss, 0);
    eg_tensor *logits[2];
    for (int off = 0; off < 2; off++) {
        eg_seed(cx, 5);
        eg_transformer *t = eg_transformer_new(
            p, off ? "off" : "on", .vocabulary = 7, .length = 5, .d_model = 8, .heads = 2,
            .layers = 1, .logits_cap = off ? EG_OFF : 0, .dropout = off ? EG_OFF : 0);
        logits[off] = eg_transformer_run(t, token);
    }
    eg_assert_close(logits[1], logits[0], 0);
    /* φ(0 q) is the same for all queries and elements: every key weighs the sum of φ(k) */
    eg_tensor *off = eg_linear_attention("bid,bjd,bje->bie", x, x, x, .scale = EG_OFF),
              *zero = eg_linear_attention("bid,bjd,bje->bie", eg_zeros_like(x), x, x);
    eg_assert_close(off, zero, 0);
    eg_assert_ok(cx);
}

/* a module that is NULL, an operand that is NULL, or both */
TEST(runs_with_null)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *x = eg_ones(cx, 1, 2, 4);
    eg_linear *linear = eg_linear_new(p, "linear", .in = 4, .out = 4);
    eg_norm *norm = eg_norm_new(p, "norm", .d_model = 4);
    eg_embedding *embedding = eg_embedding_new(p, "embedding", .count = 3, .d_model = 4);
    eg_positions *positions = eg_positions_new(p, "positions", .length = 3, .d_model = 4);
    eg_ffn *ffn = eg_ffn_new(p, "ffn", .d_model = 4);
    eg_mha *mha = eg_mha_new(p, "mha", .d_model = 4, .heads = 2);
    eg_block *block = eg_block_new(p, "block", .d_model = 4, .heads = 2);
    eg_transformer *transformer = eg_transformer_new(p, "transformer", .vocabulary = 3, .length = 3,
                                                     .d_model = 4, .heads = 2, .layers = 1);
    eg_seq2seq *seq2seq = eg_seq2seq_new(p, "seq2seq", .vocabulary = 3, .length = 3, .d_model = 4,
                                         .heads = 2, .layers = 1);
    eg_assert_ok(cx);
    eg_clear(NULL);
#define NULLS(who, run, ...)                                                           \
    do {                                                                               \
        ck_assert(!eg_ok(run(NULL, __VA_ARGS__)));                                     \
        eg_assert_error(cx, #who ": the module is NULL");                              \
        ck_assert(!eg_ok(run(NULL, NULL)));                                            \
        thread_says(#who ": the module is NULL");                                      \
        ck_assert(!eg_ok(run(who, NULL)));                                             \
        ck_assert_msg(strstr(eg_error(NULL), #who), "%s: %s", #who, eg_error(NULL));   \
        ck_assert_msg(strstr(eg_error(NULL), "NULL"), "%s: %s", #who, eg_error(NULL)); \
        eg_clear(NULL);                                                                \
    } while (0)
    NULLS(linear, eg_linear_run, x);
    NULLS(norm, eg_norm_run, x);
    NULLS(embedding, eg_embedding_run, x);
    NULLS(positions, eg_positions_run, x);
    NULLS(ffn, eg_ffn_run, x);
    NULLS(mha, eg_mha_run, x);
    NULLS(block, eg_block_run, x);
    NULLS(transformer, eg_transformer_run, x);
    ck_assert(!eg_ok(eg_seq2seq_run(NULL, x, x)) && !eg_ok(eg_seq2seq_run(seq2seq, NULL, NULL)));
#undef NULLS
}

static eg_tensor *squares(void *user, eg_ctx *c, int64_t from, int64_t to, int64_t *count)
{
    (void)from, (void)to, (void)count;
    return eg_sum(NULL, eg_square(eg_mha_run(user, eg_block_rows(c, "x"))));
}
/* Moments, captured blocks and the strings of modules end with their list, in the outermost scope
 * too. */
TEST(closed_lists_leave_nothing)
{
    eg_ctx *c = eg_open(.threads = 2);
    eg_tensor *x = eg_ones(c, 8, 3, 4);
    /* A debug build lists the operations of each thread, in the first round in which it takes a
     * block: of 6 rounds 2 may leave more than the one before. */
    size_t before = eg_stats(c).used;
    int more = 0;
    for (int k = 0; k < 6; k++) {
        eg_params *p = eg_params_open(c);
        eg_mha *m = eg_mha_new(p, "m", .d_model = 4, .heads = 2);
        eg_opt *op = eg_adam(p);
        for (int step = 0; step < 3; step++)
            ck_assert_int_eq(eg_step_over(op, squares, m, 8, .block = 2, .capture = true,
                                          .batch = { { "x", x } }),
                             0);
        eg_params_close(p);
        more += eg_stats(c).used != before;
        before = eg_stats(c).used;
    }
    ck_assert_msg(more <= 2, "%d of 6 rounds left memory", more);
    eg_assert_ok(c);
    eg_close(c);
}

/* The number of parameters and their elements, and where the first 40 are. */
static uint64_t list_hash(const eg_params *p)
{
    const int64_t counts[] = { eg_params_count(p), eg_params_size(p) };
    uint64_t h = eg_hash(EG_HASH_START, counts, sizeof counts);
    for (int k = 0; k < 40; k++) {
        const eg_named *one = eg_params_at(p, k);
        h = eg_hash(h, &one, sizeof one);
    }
    return h;
}
/* A parameter that is made last has a name that is taken, or a size that is refused: those made
 * before it are not in the list, and the same names can be used again. */
TEST(failed_constructors_leave_the_list_as_it_was)
{
    eg_params *p = eg_params_open(cx);
    eg_param(p, "b", "o", 3);
    eg_param(p, "bias", "m", 4);
    eg_param(p, "b_o", "m", 4);
    eg_param(p, "sink", "h", 2);
    eg_param(p, "down.b", "o", 4);
    eg_param(p, "logits.b", "o", 4);
    for (int k = 0; k < 20; k++) { /* so that the table is enlarged by a module that fails */
        char name[16];
        snprintf(name, sizeof name, "x%d", k);
        eg_param(p, name, "o", 3);
    }
    eg_assert_ok(cx);
    const uint64_t before = list_hash(p);
#define FAILS(error, ...)                        \
    do {                                         \
        ck_assert((__VA_ARGS__) == NULL);        \
        eg_assert_error(cx, error);              \
        eg_clear(cx);                            \
        ck_assert_uint_eq(list_hash(p), before); \
    } while (0)
    for (int twice = 0; twice < 2; twice++) {
        FAILS("\"b\" is taken", eg_linear_new(p, "", .in = 3, .out = 3));
        FAILS("\"bias\" is taken", eg_norm_new(p, "", .d_model = 4));
        FAILS("\"down.b\" is taken", eg_ffn_new(p, "", .d_model = 4));
        FAILS("\"b_o\" is taken", eg_mha_new(p, "", .d_model = 4, .heads = 2));
        FAILS("\"sink\" is taken",
              eg_mha_new(p, "", .d_model = 4, .heads = 2, .sink = true, .no_bias = true));
        FAILS("out must be positive", eg_block_new(p, "c", .d_model = 4, .heads = 2, .width = -1));
        FAILS("\"logits.b\" is taken", eg_transformer_new(p, "", .vocabulary = 5, .length = 5,
                                                          .d_model = 4, .heads = 2, .layers = 3));
        FAILS("\"logits.b\" is taken", eg_seq2seq_new(p, "", .vocabulary = 5, .length = 5,
                                                      .d_model = 4, .heads = 2, .layers = 3));
    }
#undef FAILS
    eg_transformer *net = eg_transformer_new(p, "", .vocabulary = 5, .length = 5, .d_model = 4,
                                             .heads = 2, .layers = 3, .no_logits = true);
    eg_assert_ok(cx);
    ck_assert_ptr_eq(eg_params_find(p, "2.self.W_q"), net->block[2]->self->W_q);
}

/* A call without a path names itself, not the format of the file. */
TEST(a_missing_path_names_the_call)
{
    eg_ctx *c = eg_open(.threads = 1);
    eg_params *p = eg_params_open(c);
    eg_linear_new(p, "l", .in = 3, .out = 2);
    eg_opt *opt = eg_adam(p);
    eg_trainer *t = eg_trainer_new(.data = eg_data_task(c, eg_task_find("copy")), .layers = 1,
                                   .d_model = 8, .heads = 2, .batch = 3);
    const eg_alias *style = eg_aliases("torch");
    for (int k = 0; k < 8; k++) {
        static const char *const called[] = { "params_save",    "params_load", "params_save_as",
                                              "params_load_as", "opt_save",    "opt_resume",
                                              "trainer_save",   "trainer_load" };
        char says[64];
        eg_assert_ok(c);
        const int bad = k == 0   ? eg_params_save(p, NULL)
                        : k == 1 ? eg_params_load(p, NULL)
                        : k == 2 ? eg_params_save_as(p, NULL, "", style)
                        : k == 3 ? eg_params_load_as(p, NULL, "", style)
                        : k == 4 ? eg_opt_save(opt, NULL)
                        : k == 5 ? (int)eg_opt_resume(opt, NULL)
                        : k == 6 ? eg_trainer_save(t, NULL)
                                 : -!eg_trainer_load(c, NULL);
        ck_assert_int_eq(bad, -1);
        snprintf(says, sizeof says, "%s: the path is NULL", called[k]);
        ck_assert_msg(eg_error(c) && !strcmp(eg_error(c), says), "%s: %s", says, eg_error(c));
        eg_clear(c);
    }
    eg_close(c);
}

/* An operand that is NULL, or failed, is named: no call returns −1 or poison without an error. */
TEST(missing_operands_are_named)
{
    eg_ctx *c = eg_open();
    eg_params *p = eg_params_open(c);
    eg_mha *m = eg_mha_new(p, "m", .d_model = 4, .heads = 2);
    eg_cache *cache = eg_cache_new(eg_owner_open(c), .capacity = 4);
    eg_tensor *x = eg_ones(c, 1, 3, 4), *failed = eg_fail(c, "failed");
    eg_clear(c);
    eg_clear(NULL);
    eg_cache_select(cache, NULL);
    eg_assert_error(c, "cache: the index is NULL");
    eg_cache_set_state(cache, 0, failed, 1);
    eg_assert_error(c, "cache: the state is failed or gone with its scope");
    eg_cache_keep(cache, 0, NULL);
    eg_assert_error(c, "cache: the tensor of positions is NULL");
    eg_cache_truncate(NULL, 0);
    eg_assert_error(NULL, "cache: it is NULL");
    eg_params_read(p, NULL, "a file");
    eg_assert_error(c, "params_read: the file is NULL");
    eg_params_read_as(p, NULL, "a file", "", eg_aliases("torch"));
    eg_assert_error(c, "params_read_as: the file is NULL");
    eg_mha_copy(m, NULL);
    eg_assert_error(c, "mha_copy: the module to copy from is NULL");
    eg_mha_copy(NULL, m);
    eg_assert_error(c, "mha_copy: the module to copy to is NULL");
    eg_mha_run(m, failed);
    eg_assert_error(c, "mha \"m\": the query is failed or gone with its scope");
    eg_mha_run(m, x, .key = failed);
    eg_assert_error(c, "mha \"m\": the key is failed or gone with its scope");
    eg_mha_run(m, x, .value = failed);
    eg_assert_error(c, "mha \"m\": the value is failed or gone with its scope");
    eg_linear_new(p, "l", .in = 2, .out = 3, .init = -1);
    eg_assert_error(c, "param \"l.W\": init_normal: normal: mean 0 and deviation -1 are not");
    eg_embedding_new(p, "e", .count = 2, .d_model = 3, .deviation = INFINITY);
    eg_assert_error(c, "param \"e.E\": init_normal: normal: mean 0 and deviation inf are not");
    eg_npz_save(NULL, "x.npz", 0, NULL, NULL);
    eg_assert_error(NULL, "npz: the context is NULL");
    eg_safetensors_save(NULL, "x.safetensors", 0, NULL, NULL, NULL);
    eg_assert_error(NULL, "safetensors: the context is NULL");
    eg_curves_save("x.svg", NULL, 0, NULL);
    eg_assert_error(NULL, "curves: the context is NULL");
    eg_graph_print(stdout, NULL);
    eg_assert_error(NULL, "graph_print: y is NULL");
    eg_close(c);
}
