/* test_train.c: optimisers and schedules against PyTorch (tests/reference/nn.py), tasks, pairs, the
 * loop, checkpoints. */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include <unistd.h>
#include "fixtures.h"
#include "stored_values.h"
#include "core/fpmode.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f32(void) { cx = eg_open(.threads = 2); }
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .threads = 1); }
static void close_cx(void) { eg_close(cx); }

enum { STEPS = 20 };
static eg_tensor *golden(const char *format, const char *name, int k)
{
    char key[80];
    int n = snprintf(key, sizeof key, "%s/%s", format, name);
    if (k >= 0) snprintf(key + n, sizeof key - (size_t)n, "%d", k);
    eg_tensor *x =
        eg_safetensors_get(eg_safetensors_open(cx, source_path("tests/data/nn.safetensors")), key);
    eg_assert_ok(cx);
    return x;
}

/* -- optimisers ------------------------------------------------------------------------------- */
static const struct {
    const char *name;
    eg_opt *(*make)(const eg_opt_args *);
    eg_opt_args o;
} kinds[] = {
    { "sgd", eg_sgd_with, { .lr = 0.1 } },
    { "sgd_decay", eg_sgd_with, { .lr = 0.1, .weight_decay = 0.03 } },
    { "momentum", eg_sgd_with, { .lr = 0.1, .momentum = 0.9 } },
    { "dampening",
      eg_sgd_with,
      { .lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.01 } },
    { "nesterov",
      eg_sgd_with,
      { .lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.02 } },
    { "adam", eg_adam_with, { .lr = 0.05 } },
    { "adam_options",
      eg_adam_with,
      { .lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1 } },
    { "adamw", eg_adamw_with, { .lr = 0.05 } },
    { "adamw_decay", eg_adamw_with, { .lr = 0.05, .weight_decay = 0.2 } },
    { "clip_norm", eg_sgd_with, { .lr = 0.1, .momentum = 0.9, .clip_norm = 4 } },
    { "clip_value", eg_adam_with, { .lr = 0.05, .clip_value = 0.7 } },
    { "clip_both", eg_adamw_with, { .lr = 0.05, .clip_value = 1.5, .clip_norm = 2 } },
    { "cosine",
      eg_adamw_with,
      { .lr = 0.05, .schedule = { .decay = EG_COSINE, .steps = 20, .last = 0.1 } } },
    { "rmsprop", eg_rmsprop_with, { .lr = 0 } },
    { "rmsprop_momentum",
      eg_rmsprop_with,
      { .lr = 0.02, .alpha = 0.9, .eps = 1e-4, .momentum = 0.8, .weight_decay = 0.05 } },
    { "rmsprop_centered",
      eg_rmsprop_with,
      { .lr = 0.02, .alpha = 0.95, .momentum = 0.5, .centered = true } },
    { "adagrad", eg_adagrad_with, { .lr = 0 } },
    { "adagrad_options",
      eg_adagrad_with,
      { .lr = 0.1,
        .lr_decay = 0.05,
        .weight_decay = 0.02,
        .initial_accumulator_value = 0.3,
        .eps = 1e-3 } },
    { "amsgrad", eg_adam_with, { .lr = 0.05, .amsgrad = true, .beta2 = 0.7 } },
    { "amsgrad_w",
      eg_adamw_with,
      { .lr = 0.05, .amsgrad = true, .beta2 = 0.7, .weight_decay = 0.1 } },
    { "clip_infinity", eg_sgd_with, { .lr = 0.1, .clip_norm = 1.5, .norm_type = INFINITY } },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct two {
    eg_params *p;
    eg_tensor *x[2], *g[2];
} two; /* the golden parameters and their gradients */
static two golden_parameters(eg_dtype dtype)
{
    two t = { .p = eg_params_open(cx, .dtype = dtype) };
    for (int k = 0; k < 2; k++) {
        eg_tensor *start = golden("opt", "start", k);
        t.x[k] = eg_param(t.p, k ? "b" : "a", "i", eg_dim(start, 0));
        eg_assign(t.x[k], eg_cast(start, dtype));
        t.g[k] = eg_cast(golden("opt", "g", k), dtype);
    }
    return t;
}

static void follow(eg_dtype dtype, double tolerance, int row)
{
    two given = golden_parameters(dtype);
    eg_tensor **x = given.x, **g = given.g, *right[2];
    for (int k = 0; k < 2; k++) right[k] = eg_cast(golden("opt", kinds[row].name, k), dtype);
    eg_opt_args o = kinds[row].o;
    o.size = sizeof o, o.params = given.p;
    eg_opt *op = kinds[row].make(&o);
    for (int t = 0; t < STEPS; t++) {
        eg_tensor *now[] = { eg_select_axis(g[0], 0, t), eg_select_axis(g[1], 0, t) };
        ck_assert_int_eq(eg_step_by(op, now), 0);
        for (int k = 0; k < 2; k++)
            eg_assert_close(x[k], eg_contiguous(eg_select_axis(right[k], 0, t)), tolerance);
    }
    ck_assert_int_eq(eg_opt_report_of(op).steps, STEPS);
}

GROUP("optimisers", .setup = open_f64, .teardown = close_cx)

LOOP_TEST(optimisers_as_pytorch, KINDS) { follow(EG_F64, 1e-10, _i); }
LOOP_TEST(optimisers_in_f32, KINDS) { follow(EG_F32, 2e-5, _i); }

/* A moment whose gradient stays 0 decays to 0 and not to a subnormal number. */
LOOP_TEST(moments_are_never_subnormal, KINDS)
{
    eg_params *p = eg_params_open(cx, .dtype = EG_F32);
    eg_param(p, "x", "i", 40);
    eg_tensor *g = eg_cast(eg_normal(cx, 0, 1e-2, 40), EG_F32), *zero = eg_scale(g, 0);
    eg_opt_args o = kinds[_i].o;
    o.size = sizeof o, o.params = p;
    eg_opt *op = kinds[_i].make(&o);
    const uint64_t mode = eg__fpmode();
    for (int t = 0; t < 1200; t++) ck_assert_int_eq(eg_step_by(op, t ? &zero : &g), 0);
    ck_assert_uint_eq(eg__fpmode(), mode);
    ck_assert(!eg_flushes(cx));
    for (int k = 0; eg_opt_state(op, k); k++) {
        const eg_named *m = eg_opt_state(op, k);
        for (int64_t i = 0; eg_type(m->x) == EG_F32 && i < eg_size(m->x); i++)
            ck_assert_msg(fpclassify(eg_f32(m->x)[i]) != FP_SUBNORMAL || !EG_FPMODE_FLUSH,
                          "%s, %s: %g", kinds[_i].name, m->name, eg_f32(m->x)[i]);
    }
}

LOOP_TEST(schedules_as_pytorch, 15)
{
    static const struct {
        const char *name;
        eg_schedule s;
    } cases[] = {
        { "constant", { 0 } },
        { "warmup", { .warmup = 6 } },
        { "linear", { .decay = EG_LINEAR, .steps = 16, .last = 0.25 } },
        { "cosine", { .decay = EG_COSINE, .steps = 19, .last = 0.1 } },
        { "warm_linear", { .decay = EG_LINEAR, .warmup = 5, .steps = 17, .last = 0.1 } },
        { "warm_cosine", { .decay = EG_COSINE, .warmup = 4, .steps = 20 } },
        { "step", { .decay = EG_STEPS, .step_size = 6, .gamma = 0.3 } },
        { "step_default", { .decay = EG_STEPS, .step_size = 8 } },
        { "multistep", { .decay = EG_STEPS, .milestones = { 3, 4, 11 }, .gamma = 0.5 } },
        { "exponential", { .decay = EG_EXPONENTIAL, .gamma = 0.9 } },
        { "warm_step", { .decay = EG_STEPS, .warmup = 4, .step_size = 5, .gamma = 0.5 } },
        { "warm_exponential", { .decay = EG_EXPONENTIAL, .warmup = 3, .gamma = 0.8 } },
        { "noam", { .decay = EG_NOAM, .warmup = 7, .d_model = 64 } },
        { "wsd", { .decay = EG_WSD, .warmup = 3, .steps = 17, .decay_steps = 6, .last = 0.1 } },
        { "wsd_sqrt",
          { .decay = EG_WSD_SQRT, .warmup = 3, .steps = 17, .decay_steps = 6, .last = 0.1 } },
    };
    const double *right = eg_f64(golden("schedule", cases[_i].name, -1));
    for (int t = 0; t < STEPS; t++)
        ck_assert_double_eq_tol(0.2 * eg_schedule_factor(&cases[_i].s, t), right[t], 1e-12);
    /* past its end a schedule keeps its last value */
    ck_assert(eg_schedule_factor(&cases[_i].s, 1000) >= 0);
}

static eg_tensor *bowl(eg_tensor *a, eg_tensor *b)
{
    return eg_add(eg_sum(NULL, eg_square(a)), eg_sum(NULL, eg_square(eg_shift(b, -1))));
}

TEST(a_step_goes_down)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *a = eg_param(p, "a", "i j", 3, 4), *b = eg_param(p, "b", "i", 5);
    eg_opt *op = eg_sgd(p, .lr = 0.1);
    double first = eg_item(bowl(a, b)), before = eg_get(a, 1, 2);
    ck_assert_int_eq(eg_step(op, bowl(a, b)), 0);
    ck_assert_double_eq_tol(eg_get(a, 1, 2), before - 0.1 * 2 * before, 1e-15);
    for (int t = 0; t < 50; t++) ck_assert_int_eq(eg_step(op, bowl(a, b)), 0);
    ck_assert(eg_item(bowl(a, b)) < 1e-6 * first);
    ck_assert_double_eq_tol(eg_get(b, 0), 1, 1e-4);
}

TEST(clipping_is_counted)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *a = eg_param(p, "a", "i", 2), *g;
    eg_opt *op = eg_sgd(p, .lr = 1, .clip_norm = 1, .clip_value = 4);
    const double gradients[][2] = { { 3, 4 }, { 0.3, 0.4 }, { 30, 0 } };
    for (int t = 0; t < 3; t++) {
        g = eg_from(cx, gradients[t], 2);
        ck_assert_int_eq(eg_step_by(op, &g), 0);
        if (t == 0) ck_assert_double_eq_tol(eg_get(a, 1), -4 / (5 + 1e-6), 1e-15);
    }
    eg_opt_report r = eg_opt_report_of(op);
    ck_assert(r.steps == 3 && r.norm_clipped == 2 && r.value_clipped == 1 && r.lr == 1);
    ck_assert_double_eq_tol(r.norm, 4, 1e-15);
}

/* The bits of f32 are those of the formula with its divisions, each rounded to f32. */
TEST(adam_has_the_bits_of_its_formula)
{
    enum { N = 3000, ROUNDS = 6 };
    float x[N] = { 0 }, g[N], m[N] = { 0 }, v[N] = { 0 };
    close_cx(), open_f32();
    eg_params *p = eg_params_open(cx);
    eg_tensor *a = eg_param(p, "a", "n", N);
    eg_opt *op = eg_adam(p, .lr = 0.01);
    eg_rng rng = { 1, 2, 0 };
    eg_fill(a, 0);
    for (int t = 1; t <= ROUNDS; t++) {
        const float eta = (float)(0.01 / (1 - pow(0.9, t))), root = (float)sqrt(1 - pow(0.999, t));
        for (int k = 0; k < N; k++) {
            g[k] = (float)((double)eg_rng_below(&rng, 1 << 24) / (1 << 23) - 1);
            m[k] = 0.9f * m[k] + (float)(1 - 0.9) * g[k];
            v[k] = 0.999f * v[k] + (float)(1 - 0.999) * g[k] * g[k];
            x[k] -= eta * m[k] / (sqrtf(v[k]) / root + 1e-8f);
        }
        eg_tensor *gradient = eg_from_n(cx, EG_F32, g, 1, (int64_t[]){ N });
        ck_assert_int_eq(eg_step_by(op, &gradient), 0);
    }
    ck_assert_mem_eq(eg_f32(a), x, sizeof x);
}

TEST(state_has_names)
{
    eg_params *p = eg_params_open(cx);
    eg_linear_new(p, "l", .in = 2, .out = 3);
    eg_opt *op = eg_adam(p, .lr = 0.5);
    const char *const names[] = { "opt.counts", "opt.lr",    "opt.skipped", "opt.m.l.W",
                                  "opt.v.l.W",  "opt.m.l.b", "opt.v.l.b" };
    for (int k = 0; k < 7; k++) ck_assert_str_eq(eg_opt_state(op, k)->name, names[k]);
    ck_assert_ptr_null(eg_opt_state(op, 7));
    ck_assert_int_eq(eg_opt_set_lr(op, 0.25), 0);
    ck_assert_double_eq(eg_opt_report_of(op).lr, 0.25);
}

TEST(optimisers_refuse)
{
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_adam(p));
    eg_assert_error(cx, "adam: the list of parameters is empty");
    eg_tensor *a = eg_param(p, "a", "i", 2), *bad = eg_ones(cx, 3);
    ck_assert_ptr_null(eg_sgd(p, .nesterov = true));
    eg_assert_error(cx, "sgd: nesterov needs momentum and no dampening; they are 0 and 0");
    ck_assert_ptr_null(eg_sgd(p, .dampening = 0.5));
    eg_assert_error(cx, "sgd: dampening is 0.5, but is read with momentum only, which is 0");
    ck_assert_ptr_null(eg_sgd(p, .lr = -1));
    eg_assert_error(cx, "sgd: lr must not be negative, not -1");
    ck_assert_ptr_null(eg_adamw(p, .beta2 = 1));
    eg_assert_error(cx, "adamw: beta2 must be in [0, 1), not 1");
    ck_assert_ptr_null(eg_adam(p, .schedule = { .decay = EG_COSINE, .warmup = 5, .steps = 5 }));
    eg_assert_error(cx, "schedule.steps must be more than schedule.warmup; they are 5 and 5");
    eg_opt *op = eg_adam(p);
    ck_assert_int_eq(eg_step_by(op, &bad), -1);
    eg_assert_error(cx, "adam: axis 0 of gradient 1 has size 3, of its parameter 2");
    ck_assert_int_eq(eg_step_by(op, (eg_tensor *[]){ eg_ones(cx, 2, 1) }), -1);
    eg_assert_error(cx, "adam: gradient 1 has rank 2, its parameter rank 1");
    ck_assert_int_eq(eg_step_by(op, (eg_tensor *[]){ eg_cast(eg_ones(cx, 2), EG_F32) }), -1);
    eg_assert_error(cx, "adam: gradient 1 is f32, its parameter f64");
    ck_assert_int_eq(eg_step(op, NULL), -1);
    eg_assert_error(cx, "adam: the loss is NULL");
    ck_assert_int_eq(eg_step(NULL, a), -1);
    ck_assert_int_eq(eg_step(op, eg_square(a)), -1);
    ck_assert_ptr_nonnull(eg_error(cx));
    eg_clear(cx);
    ck_assert_int_eq(eg_opt_report_of(op).steps, 0);
    ck_assert_ptr_null(eg_adam(p, .schedule = { .decay = EG_LINEAR, .steps = 10, .last = NAN }));
    eg_assert_error(cx, "schedule.last must be a number from 0 on, not nan");
    ck_assert_int_eq(eg_step_by(op, NULL), -1);
    eg_assert_error(cx, "adam: the list of gradients is NULL");
    ck_assert_int_eq(eg_step_by(op, (eg_tensor *[]){ NULL }), -1);
    eg_assert_error(cx, "adam: the gradient is NULL");
    eg_ctx *other = eg_open(.threads = 1);
    ck_assert_int_eq(eg_step(op, eg_scalar(other, 1)), -1);
    eg_assert_error(cx, "adam: the loss belongs to another context");
    eg_close(other);
    ck_assert(eg_schedule_factor(NULL, 3) == 1 &&
              eg_schedule_factor(
                  &(eg_schedule){ .decay = EG_COSINE, .warmup = INT64_MAX, .steps = INT64_MIN },
                  INT64_MAX) >= 0);
}

/* -- groups of parameters ---------------------------------------------------------------------- */
static eg_params *layer_and_head(void)
{
    eg_params *p = eg_params_open(cx);
    eg_seed(cx, 5);
    eg_linear_new(p, "body", .in = 3, .out = 4);
    eg_linear_new(p, "head", .in = 4, .out = 2);
    return p;
}
static eg_tensor *layer_and_head_loss(eg_params *p)
{
    eg_tensor *x = eg_ones(cx, 5, 3),
              *h = eg_affine("bi,io->bo", x, eg_params_find(p, "body.W"),
                             eg_params_find(p, "body.b"), .activation = "tanh");
    return eg_sum(NULL, eg_square(eg_shift(eg_affine("bi,io->bo", h, eg_params_find(p, "head.W"),
                                                     eg_params_find(p, "head.b")),
                                           -1)));
}
/* bitwise the same as an optimiser for each group, with the gradients of one backward pass */
LOOP_TEST(a_group_is_an_optimiser_of_its_own, 5)
{
    eg_opt *(*make[])(const eg_opt_args *) = { eg_sgd_with, eg_adam_with, eg_adamw_with,
                                               eg_rmsprop_with, eg_adagrad_with };
    const eg_opt_group groups[] = { { .names = "*.b", .weight_decay = EG_OFF },
                                    { .names = "hea?.* *.other", .lr_factor = 10 },
                                    { 0 } };
    eg_params *p = layer_and_head(), *q = layer_and_head();
    eg_opt *op = make[_i](&(eg_opt_args){ .size = sizeof(eg_opt_args),
                                          .params = p,
                                          .lr = 0.01,
                                          .weight_decay = 0.1,
                                          .groups = groups });
    eg_opt *each[4];
    for (int k = 0; k < 4;
         k++) { /* body.W, body.b, head.W, head.b: the bias is in the first group */
        const eg_opt_group others[] = { { .names = k == 0   ? "body.b head.*"
                                                   : k == 1 ? "*.W head.b"
                                                   : k == 2 ? "body.* *.b"
                                                            : "*.W body.b",
                                          .frozen = true },
                                        { 0 } };
        each[k] = make[_i](&(eg_opt_args){ .size = sizeof(eg_opt_args),
                                           .params = q,
                                           .lr = k == 2 ? 0.1 : 0.01,
                                           .weight_decay = k % 2 ? EG_OFF : 0.1,
                                           .groups = others });
    }
    eg_assert_ok(cx);
    for (int s = 0; s < 4; s++) {
        eg_tensor *xs[4], *g[4];
        for (int k = 0; k < 4; k++) xs[k] = eg_params_at(q, k)->x;
        ck_assert_int_eq(eg_grad(layer_and_head_loss(q), NULL, 4, xs, g), 0);
        for (int k = 0; k < 4; k++) ck_assert_int_eq(eg_step_by(each[k], g), 0);
        ck_assert_int_eq(eg_step(op, layer_and_head_loss(p)), 0);
        for (int k = 0; k < 4; k++) ck_assert(same_bits(eg_params_at(p, k)->x, xs[k]));
    }
    ck_assert(eg_opt_norm_of(each[2], 2) > 0 && isnan(eg_opt_norm_of(each[2], 0)));
}
/* an optimiser of a list made by eg_params_under has what is below its name; a file has all of the
 * list */
TEST(a_part_of_a_list_is_trained)
{
    const char *path = "part.safetensors";
    eg_params *p = layer_and_head(), *q;
    eg_tensor *body = eg_copy(eg_params_find(p, "body.W")), *head = eg_params_find(p, "head.W"),
              *first = eg_copy(head);
    eg_opt *op = eg_adam(eg_params_under(p, "head"), .lr = 0.1);
    for (int s = 0; s < 3; s++) ck_assert_int_eq(eg_step(op, layer_and_head_loss(p)), 0);
    ck_assert(same_bits(body, eg_params_find(p, "body.W")) && !same_bits(first, head));
    ck_assert_str_eq(eg_opt_state(op, 3)->name, "opt.m.head.W");
    ck_assert_int_eq(eg_opt_save(op, path), 0);
    for (int s = 0; s < 3; s++) ck_assert_int_eq(eg_step(op, layer_and_head_loss(p)), 0);
    q = layer_and_head();
    op = eg_adam(eg_params_under(q, "head"), .lr = 0.1);
    eg_fill(eg_params_find(q, "body.W"), 0);
    ck_assert_int_eq(eg_opt_resume(op, path), 3);
    for (int s = 0; s < 3; s++) ck_assert_int_eq(eg_step(op, layer_and_head_loss(q)), 0);
    for (int k = 0; k < 4; k++) ck_assert(same_bits(eg_params_at(p, k)->x, eg_params_at(q, k)->x));
    remove(path);
}
/* two names of one tensor: what is below a name is found by the name */
TEST(a_part_of_a_list_is_found_by_name)
{
    eg_tensor *w = eg_param(eg_params_open(cx), "w", "i", 2);
    eg_params *p =
        eg_params_open(cx, .values = (eg_named[]){ { "a.w", "i", w }, { "ba.w", "i", w }, { 0 } });
    eg_params *a = eg_params_under(p, "a");
    eg_param(a, "w", "i", 2), eg_param(eg_params_under(p, "ba"), "w", "i", 2);
    ck_assert_str_eq(eg_params_prefix(a), "a.");
    ck_assert_str_eq(eg_params_prefix(p), "");
    eg_opt *op = eg_sgd(a, .momentum = 0.9);
    ck_assert_str_eq(eg_opt_state(op, 3)->name, "opt.u.a.w");
    ck_assert_ptr_null(eg_opt_state(op, 4));
}
TEST(groups_as_a_text)
{
    static const char *const same[][2] = {
        { "a.*: frozen", "a.*: frozen" },
        { " *.b *.gain: lr-factor 2,weight_decay 0 ;c:",
          "*.b *.gain: lr_factor 2, weight_decay 0; c:" },
        { "x: weight-decay 0.1; y: lr_factor 0", "x: weight_decay 0.1; y: lr_factor 0" },
        { "x: lr_factor 0.30000000000000004", "x: lr_factor 0.30000000000000004" },
    };
    static const char *const wrong[] = { "",
                                         "a",
                                         ": frozen",
                                         "  : frozen",
                                         "a: frosen",
                                         "a: lr_factor",
                                         "a: frozen;",
                                         "a: lr_factor -1",
                                         "a: lr_factor nan",
                                         "a: lr_factor 1, lr_factor 2",
                                         "a: frozen, lr_factor 2",
                                         "a: frozen yes" };
    char text[200], start[4];
    for (size_t k = 0; k < sizeof same / sizeof *same; k++) {
        const eg_opt_group *groups = eg_opt_groups_read(cx, same[k][0]);
        eg_assert_ok(cx);
        ck_assert_uint_eq(eg_opt_groups_write(groups, text, sizeof text), strlen(same[k][1]));
        ck_assert_str_eq(text, same[k][1]);
        ck_assert_uint_eq(eg_opt_groups_write(groups, start, sizeof start), strlen(same[k][1]));
        ck_assert_uint_eq(strlen(start), 3);
    }
    ck_assert_uint_eq(eg_opt_groups_write(NULL, text, sizeof text), 0);
    ck_assert_str_eq(text, "");
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        ck_assert_ptr_null(eg_opt_groups_read(cx, wrong[k]));
        ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), "\" is no group, such as "), "%s: %s",
                      wrong[k], eg_error(cx));
        eg_clear(cx);
    }
}
/* a trainer with groups: a frozen parameter keeps its value; the groups are in the checkpoint, and
 * a resumed run has the bits of an uninterrupted one */
TEST(groups_of_a_trainer)
{
    const char *path[2] = { "groups-1.safetensors", "groups-2.safetensors" };
    const eg_opt_group groups[] = { { .names = " tokens.E positions.*", .frozen = true },
                                    { .names = "*.gain *.b_?", .weight_decay = EG_OFF },
                                    { .names = "logits.*", .lr_factor = 3 },
                                    { 0 } };
    char text[200];
    eg_trainer *t[2];
    for (int k = 0; k < 2; k++) {
        t[k] = eg_trainer_new(eg_data_task(cx, eg_task_find("copy")), .layers = 1, .d_model = 16,
                              .heads = 2, .batch = 8, .steps = 6, .optimiser = "adamw",
                              .weight_decay = 0.1, .groups = groups);
        eg_assert_ok(cx);
        eg_tensor *E = eg_params_find(eg_trainer_params(t[k]), "tokens.E"), *was = eg_copy(E);
        for (int s = 0; s < (k ? 3 : 6); s++) ck_assert_int_eq(eg_trainer_step(t[k], NULL), 0);
        ck_assert(same_bits(E, was));
        ck_assert(isnan(eg_opt_norm_of(eg_trainer_opt(t[k]), 0)));
        ck_assert_int_eq(eg_trainer_save(t[k], path[k]), 0);
    }
    t[1] = eg_trainer_load(cx, path[1]);
    eg_assert_ok(cx);
    eg_opt_groups_write(eg_trainer_config(t[1])->groups, text, sizeof text);
    ck_assert_str_eq(text, "tokens.E positions.*: frozen; *.gain *.b_?: weight_decay 0; "
                           "logits.*: lr_factor 3");
    for (int s = 0; s < 3; s++) ck_assert_int_eq(eg_trainer_step(t[1], NULL), 0);
    ck_assert_int_eq(eg_trainer_save(t[1], path[1]), 0);
    long size[2];
    char *bytes[2] = { bytes_of(path[0], &size[0]), bytes_of(path[1], &size[1]) };
    ck_assert(size[0] == size[1] && !memcmp(bytes[0], bytes[1], (size_t)size[0]));
    free(bytes[0]), free(bytes[1]);
    eg_trainer *plain = eg_trainer_new(eg_data_task(cx, eg_task_find("copy")), .layers = 1,
                                       .d_model = 16, .heads = 2, .batch = 8, .steps = 6,
                                       .optimiser = "adamw", .weight_decay = 0.1);
    ck_assert(eg_trainer_saved(t[1], path[0]).same);
    ck_assert_str_eq(eg_trainer_saved(plain, path[0]).differs, "with groups");
    for (int k = 0; k < 2; k++) remove(path[k]);
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("copy")),
                                      .groups = (eg_opt_group[]){ { .names = "a:b" }, { 0 } }));
    eg_assert_error(cx,
                    "trainer: the names of group 1, \"a:b\", have a ':', ';' or line end, which "
                    "a checkpoint cannot store");
    ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, eg_task_find("copy")),
                                      .groups = (eg_opt_group[]){ { .names = "token.E" }, { 0 } }));
    eg_assert_error(cx,
                    "adam: no parameter has a name of group 1, \"token.E\"; the first parameter "
                    "is \"tokens.E\"");
}
TEST(groups_of_copies)
{
    const eg_opt_group groups[] = { { .names = "a", .frozen = true },
                                    { .names = "b", .lr_factor = 2 },
                                    { 0 } };
    eg_params *p = eg_params_open(cx, .copies = 2);
    eg_tensor *a = eg_param(p, "a", "i", 2), *b = eg_param(p, "b", "i", 2),
              *c = eg_param(p, "c", "i", 2);
    eg_opt *op = eg_sgd(p, .lr = 0.5, .groups = groups);
    ck_assert_int_eq(eg_step(op, eg_sum(NULL, eg_add(a, eg_add(b, c)))), 0);
    for (int k = 0; k < 2; k++) {
        ck_assert_double_eq(eg_get(eg_copy_at(a, k), 1), 0);
        ck_assert_double_eq(eg_get(eg_copy_at(b, k), 1), -1);
        ck_assert_double_eq(eg_get(eg_copy_at(c, k), 1), -0.5);
    }
}
TEST(groups_refused)
{
    eg_params *p = layer_and_head();
    ck_assert_ptr_null(eg_adamw(
        p, .groups = (eg_opt_group[]){ { .names = "*.b" }, { .names = "haed.*" }, { 0 } }));
    eg_assert_error(cx,
                    "adamw: no parameter has a name of group 2, \"haed.*\"; the first parameter "
                    "is \"body.W\"");
    ck_assert_ptr_null(
        eg_adam(p, .groups = (eg_opt_group[]){ { .names = "*.c head.W body.w" }, { 0 } }));
    eg_assert_error(cx, "adam: there is no parameter \"body.w\", a name of group 1, \"*.c head.W "
                        "body.w\"");
    ck_assert_ptr_null(eg_sgd(
        p, .groups = (eg_opt_group[]){ { .names = "*.W *.b" }, { .names = "head.W" }, { 0 } }));
    eg_assert_error(cx,
                    "sgd: every parameter of group 2, \"head.W\", belongs to a group before it");
    ck_assert_ptr_null(
        eg_sgd(p, .groups = (eg_opt_group[]){ { .names = "*", .lr_factor = -1 }, { 0 } }));
    eg_assert_error(cx,
                    "sgd: lr_factor of group 1, \"*\", must not be negative or infinite, not -1");
    ck_assert_ptr_null(
        eg_sgd(p, .groups = (eg_opt_group[]){ { .names = "*", .weight_decay = NAN }, { 0 } }));
    eg_assert_error(
        cx, "sgd: weight_decay of group 1, \"*\", must not be negative or infinite, not nan");
    ck_assert_ptr_null(
        eg_sgd(p, .groups = (eg_opt_group[]){ { .names = "*", .frozen = true }, { 0 } }));
    eg_assert_error(cx, "sgd: every parameter is frozen");
    ck_assert_ptr_null(eg_sgd(eg_params_under(p, "tail")));
    eg_assert_error(cx, "sgd: the list has no parameters below its name");
}

/* -- parameters without a gradient in a step, and losses without any --------------------------- */
/* no decay, no momentum, no count: PyTorch also leaves out parameters without a gradient */
LOOP_TEST(unreached_parameters_stay, 3)
{
    static const struct {
        const char *name;
        eg_opt *(*make)(const eg_opt_args *);
        eg_opt_args o;
    } cases[] = {
        { "sparse_sgd",
          eg_sgd_with,
          { .lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.01 } },
        { "sparse_adamw", eg_adamw_with, { .lr = 0.05, .weight_decay = 0.2 } },
        { "sparse_adagrad", eg_adagrad_with, { .lr = 0.1, .lr_decay = 0.05 } },
    };
    two t = golden_parameters(EG_F64), u = golden_parameters(EG_F64);
    eg_opt_args o = cases[_i].o;
    o.size = sizeof o, o.params = t.p;
    eg_opt *by = cases[_i].make(&o);
    o.params = u.p;
    eg_opt *of_loss = cases[_i].make(&o);
    for (int s = 0; s < STEPS; s++) {
        bool both = s % 3 != 0;
        eg_tensor *g[] = { eg_select_axis(t.g[0], 0, s),
                           both ? eg_select_axis(t.g[1], 0, s) : NULL };
        ck_assert_int_eq(eg_step_by(by, g), 0);
        eg_tensor *loss = eg_sum(NULL, eg_mul(u.x[0], g[0]));
        ck_assert_int_eq(
            eg_step(of_loss, both ? eg_add(loss, eg_sum(NULL, eg_mul(u.x[1], g[1]))) : loss), 0);
        for (int k = 0; k < 2; k++) {
            eg_tensor *right =
                eg_contiguous(eg_select_axis(golden("opt", cases[_i].name, k), 0, s));
            eg_assert_close(t.x[k], right, 1e-12);
            eg_assert_close(u.x[k], right, 1e-12);
        }
    }
}

/* the error, and nothing has changed: no parameter and no state of the optimiser */
static void refuses(eg_opt *op, eg_tensor *loss, const char *sentence)
{
    eg_tensor *before[16];
    int n = 0;
    for (; eg_opt_state(op, n); n++) before[n] = eg_copy(eg_opt_state(op, n)->x);
    ck_assert_int_eq(eg_step(op, loss), -1);
    eg_assert_error(cx, sentence);
    for (int k = 0; k < n; k++) ck_assert(same_bits(before[k], eg_opt_state(op, k)->x));
}

TEST(losses_that_reach_no_parameter)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "w", "i", 3), *other = eg_ones(cx, 3);
    eg_fill(w, 2);
    eg_opt *op = eg_adamw(p, .lr = 0.1, .weight_decay = 0.5);
    ck_assert_int_eq(eg_step(op, eg_sum(NULL, eg_square(w))), 0);
    double was = eg_get(w, 0);
    eg_nograd(cx, true);
    eg_tensor *loss = eg_sum(NULL, eg_square(w)), *part = eg_square(w);
    eg_nograd(cx, false);
    refuses(op, loss,
            "adamw: the loss has no gradient: it was made while nothing was recorded "
            "(eg_nograd), so it has no history");
    refuses(op, eg_sum(NULL, part),
            "adamw: the loss does not depend on its parameter: operand 1 of einsum");
    refuses(op, eg_sum(NULL, part), "was made while nothing was recorded (eg_nograd)");
    refuses(op, eg_sum(NULL, eg_detach(eg_square(w))), "does not depend on its parameter: detach");
    refuses(op, eg_sum(NULL, eg_detach(eg_square(w))), "cuts the path to xs[0], a leaf");
    refuses(op, eg_sum(NULL, eg_square(other)),
            "not depend on its parameter: no operation in its history reads it");
    refuses(op, eg_scalar(cx, 1),
            "not depend on its parameter: no operation in its history reads it");
    eg_tensor *late = eg_param(p, "late", "i", 3);
    refuses(op, eg_sum(NULL, eg_square(late)),
            "adamw: the loss depends on \"late\", which the optimiser does not have, and not on "
            "its parameter; it has those that its list had when it was made, without frozen ones");
    refuses(op, eg_sum(NULL, eg_square(other)),
            "adamw: the loss does not depend on its parameter: no operation in its history reads "
            "it");
    refuses(op, eg_sum(NULL, eg_detach(late)), "not depend on its parameter: no operation");
    ck_assert(eg_get(w, 0) >= was && eg_get(w, 0) <= was && eg_opt_report_of(op).steps == 1);
}

/* An error of a hook in words that begin as one of eg_grad about y. */
static eg_tensor *hook_refuses(void *user, eg_tensor *x, eg_tensor *g)
{
    (void)user, (void)g;
    return eg_fail_as(eg_context(x), EG_ERROR_USER, "grad: y is not what the hook wants");
}
TEST(an_error_is_recognised_by_its_code)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "w", "i", 3), *g = NULL;
    eg_fill(w, 2);
    eg_opt *op = eg_adam(p);
    eg_hook(w, hook_refuses, NULL);
    ck_assert_int_eq(eg_step(op, eg_sum(NULL, eg_square(w))), -1);
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_USER);
    ck_assert_str_eq(eg_error(cx), "grad: y is not what the hook wants");
    eg_clear(cx);
    eg_hook(w, NULL, NULL);
    ck_assert_int_eq(eg_step(op, eg_sum(NULL, eg_log(eg_sub(w, w)))), -1);
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_NONFINITE);
    eg_clear(cx);
    ck_assert_int_eq(eg_step(op, eg_sum(NULL, eg_sqrt(eg_sub(w, w)))), -1);
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_NONFINITE);
    eg_clear(cx);
    ck_assert_int_eq(eg_grad_of_loss("own", eg_detach(eg_sum(NULL, w)), 1, &w, &g), -1);
    eg_assert_error(cx, "own: the loss does not depend on its parameter: detach");
    ck_assert_int_eq(eg_grad_of_loss("own", w, 1, &w, &g), -1);
    eg_assert_error(cx, "own: the loss has no gradient: it has 3 elements, shape (3,)");
    ck_assert_int_eq(eg_grad_of_loss("own", eg_sum(NULL, w), 1, &w, &g), 0);
    ck_assert_double_eq(eg_get(g, 2), 1);
}

TEST(what_is_not_finite_stops_a_step)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "w", "i", 3), *v = eg_param(p, "v", "i", 3), *zero = eg_zeros(cx, 3),
              *bad[2];
    eg_fill(w, 2), eg_fill(v, 3);
    eg_opt *op = eg_adam(p, .clip_norm = 1);
    ck_assert_int_eq(eg_step(op, eg_sum(NULL, eg_mul(w, v))), 0);
    double was[] = { eg_get(w, 0), eg_get(v, 0) };
    refuses(op, eg_sum(NULL, eg_mul(v, eg_log(eg_sub(w, w)))),
            "adam: the loss is -inf, which comes from log");
    refuses(op, eg_sum(NULL, eg_mul(zero, eg_exp(eg_scale(w, 1e4)))),
            "adam: the loss is nan, which comes from exp");
    refuses(op, eg_sum(NULL, eg_sqrt(eg_mul(w, zero))), "adam: the gradient of \"w\" has a");
    refuses(op, eg_sum(NULL, eg_sqrt(eg_mul(w, zero))), "the gradient of sqrt");
    ck_assert(!eg_trace(cx, false));
    bad[0] = eg_from(cx, ((const double[]){ 0, NAN, 0 }), 3), bad[1] = zero;
    for (int k = 0; k < 2; k++, bad[0] = eg_from(cx, ((const double[]){ 0, 1, -INFINITY }), 3)) {
        ck_assert_int_eq(eg_step_by(op, bad), -1);
        eg_assert_error(cx, k ? "adam: the gradient of \"w\" has a inf"
                              : "adam: the gradient of \"w\" has a nan");
    }
    /* v would be infinite, and its parameter would never change again */
    bad[0] = eg_full(cx, 1e200, 3);
    eg_opt *free_of_norm = eg_rmsprop(p);
    ck_assert_int_eq(eg_step_by(free_of_norm, bad), -1);
    eg_assert_error(cx, "rmsprop: a gradient has an element of 1e+200, whose square overflows f64");
    ck_assert(eg_get(w, 0) >= was[0] && eg_get(w, 0) <= was[0] && eg_get(v, 0) >= was[1] &&
              eg_get(v, 0) <= was[1]);
    ck_assert(eg_opt_report_of(op).steps == 1 && eg_opt_report_of(free_of_norm).steps == 0);
    eg_opt *clipped =
        eg_sgd(p, .lr = 1, .clip_norm = 1); /* the squares overflow, the norm does not */
    ck_assert_int_eq(eg_step_by(clipped, bad), 0);
    ck_assert_double_eq_tol(eg_get(w, 0), was[0] - 1 / sqrt(3), 1e-12);
    ck_assert_double_eq_tol(eg_opt_report_of(clipped).norm / (sqrt(3) * 1e200), 1, 1e-12);
}

/* 1e39 is finite in f64, where options are read, and infinite in f32, where the update has them: an
 * infinity times 0 is NaN */
TEST(options_that_overflow_the_dtype_stop_a_step)
{
    eg_params *p = eg_params_open(cx), *narrow = eg_params_open(cx, .dtype = EG_F32);
    const double most = 0x1.fp1023; /* 1/most is subnormal */
    eg_tensor *w = eg_param(p, "w", "i", 2), *g = eg_from(cx, ((const double[]){ most, 0 }), 2);
    eg_fill(w, 2);
    eg_opt *op = eg_sgd(p, .lr = 1, .clip_norm = 64);
    ck_assert_int_eq(eg_step_by(op, &g), 0);
    ck_assert_double_eq_tol(eg_get(w, 0), 2 - 64, 1e-12);
    ck_assert_double_eq_tol(eg_opt_report_of(op).norm / most, 1, 1e-12);
    ck_assert_double_eq_tol(eg_opt_norm_of(op, 0) / most, 1, 1e-12);
    /* limits that are subnormal are no absent limits */
    g = eg_ones(cx, 2);
    ck_assert_int_eq(eg_step_by(eg_sgd(p, .lr = 1, .clip_norm = 1e-310), &g), 0);
    ck_assert_int_eq(eg_step_by(eg_sgd(p, .lr = 1, .clip_value = 1e-310), &g), 0);
    ck_assert_double_eq_tol(eg_get(w, 1), 2, 1e-12);
    ck_assert_int_eq(eg_step_by(eg_adam(p, .lr = 1e308, .beta1 = 0.9), &g), -1);
    eg_assert_error(cx, "adam: the learning rate of \"w\" in step 1 is inf, which overflows f64");
    w = eg_param(narrow, "w", "i", 2), g = eg_cast(eg_zeros(cx, 2), EG_F32);
    ck_assert_int_eq(eg_step_by(eg_sgd(narrow, .lr = 1e39), &g), -1);
    eg_assert_error(cx, "sgd: the learning rate of \"w\" in step 1 is 1e+39, which overflows f32; "
                        "the step is not done");
    ck_assert_int_eq(eg_step_by(eg_adam(narrow, .weight_decay = 1e39), &g), -1);
    eg_assert_error(cx, "adam: weight_decay of \"w\" in step 1 is 1e+39, which overflows f32");
    ck_assert_int_eq(eg_step_by(eg_adamw(narrow, .lr = 1e20, .weight_decay = 1e20), &g), -1);
    eg_assert_error(cx, "adamw: 1 - lr weight_decay of \"w\" in step 1 is -1e+40");
    ck_assert_int_eq(eg_step_by(eg_rmsprop(narrow, .momentum = 1e39), &g), -1);
    eg_assert_error(cx, "rmsprop: momentum of \"w\" in step 1 is 1e+39, which overflows f32");
    ck_assert(!eg_adagrad(narrow, .initial_accumulator_value = 1e39));
    eg_assert_error(cx, "adagrad: initial_accumulator_value is 1e+39, which overflows f32, the "
                        "dtype of \"w\"");
}

/* eight steps, saved and read into another optimiser, twelve more: the same bits */
LOOP_TEST(optimisers_continue_from_their_state, KINDS)
{
    const char *path = "opt_state_test.safetensors";
    two t = golden_parameters(EG_F32), u = golden_parameters(EG_F32);
    eg_opt_args o = kinds[_i].o;
    o.size = sizeof o, o.params = t.p;
    eg_opt *first = kinds[_i].make(&o);
    o.params = u.p;
    eg_opt *second = kinds[_i].make(&o);
    for (int s = 0; s < STEPS; s++) {
        eg_tensor *g[] = { eg_select_axis(t.g[0], 0, s),
                           s % 4 == 1 ? NULL : eg_select_axis(t.g[1], 0, s) };
        ck_assert_int_eq(eg_step_by(first, g), 0);
        if (s >= 8) ck_assert_int_eq(eg_step_by(second, g), 0);
        if (s != 7) continue;
        const char *names[16];
        eg_tensor *xs[16];
        int n = 0;
        for (; eg_opt_state(first, n); n++)
            names[n] = eg_opt_state(first, n)->name, xs[n] = eg_opt_state(first, n)->x;
        ck_assert_int_eq(eg_safetensors_save(cx, path, n, names, xs, NULL), 0);
        for (int k = 0; k < n; k++)
            eg_assign(eg_opt_state(second, k)->x,
                      eg_safetensors_get(eg_safetensors_open(cx, path), names[k]));
        unlink(path);
        for (int k = 0; k < 2; k++) eg_assign(u.x[k], t.x[k]);
    }
    for (int k = 0; k < 2; k++) ck_assert(same_bits(t.x[k], u.x[k]));
    eg_assert_ok(cx);
}

LOOP_TEST(schedules_refuse, 15)
{
    static const struct {
        eg_schedule s;
        const char *sentence;
    } cases[] = {
        { { .decay = (eg_decay)99 },
          "schedule.decay is none of EG_CONSTANT, EG_LINEAR, EG_COSINE, EG_NOAM" },
        { { .decay = EG_NOAM, .warmup = 10 },
          "EG_NOAM needs schedule.warmup and schedule.d_model; they are 10 and 0" },
        { { .decay = EG_NOAM, .d_model = 64 },
          "EG_NOAM needs schedule.warmup and schedule.d_model; they are 0 and 64" },
        { { .decay = EG_EXPONENTIAL }, "schedule.gamma must be a number above 0, not 0" },
        { { .decay = EG_STEPS },
          "EG_STEPS needs either schedule.step_size or schedule.milestones that rise" },
        { { .decay = EG_STEPS, .step_size = 3, .milestones = { 5 } },
          "EG_STEPS needs either schedule.step_size or" },
        { { .decay = EG_STEPS, .milestones = { 5, 5 } }, "step_size is 0, and 1 milestone rises" },
        { { .decay = EG_STEPS, .step_size = 3, .gamma = -1 },
          "schedule.gamma must be a number above 0, not -1" },
        { { .decay = EG_WSD, .warmup = 3, .steps = 10, .decay_steps = 8 },
          "must be at most the 7 steps after the warm-up, not 8" },
        { { .decay = EG_WSD, .steps = 10, .decay_steps = 11 },
          "must be at most the 10 steps of the schedule, not 11" },
        { { .decay = EG_WSD_SQRT, .warmup = 3 },
          "schedule.steps must be more than schedule.warmup; they are 0 and 3" },
        { { .gamma = 0.5 },
          "schedule.gamma belongs to the schedules steps and exponential, not to constant" },
        { { .decay = EG_COSINE, .steps = 9, .step_size = 3 },
          "schedule.step_size belongs to the schedule steps, not to cosine" },
        { { .decay = EG_EXPONENTIAL, .gamma = 0.5, .milestones = { 4 } },
          "schedule.milestones belongs to the schedule steps, not to exponential" },
        { { .decay = EG_LINEAR, .steps = 9, .decay_steps = 3 },
          "schedule.decay_steps belongs to the schedules wsd and wsd-sqrt, not to linear" },
    };
    eg_params *p = eg_params_open(cx);
    eg_param(p, "a", "i", 2);
    ck_assert_ptr_null(eg_sgd(p, .schedule = cases[_i].s));
    eg_assert_error(cx, cases[_i].sentence);
    ck_assert_ptr_null(eg_sgd(p, .norm_type = 3));
    eg_assert_error(cx, "sgd: norm_type must be 2 or INFINITY, not 3");
}

/* -- tasks ------------------------------------------------------------------------------------ */
static int digit(const eg_data *d, int32_t token) { return *eg_data_symbol(d, token) - '0'; }

static bool right_reverse(const eg_data *d, const eg_example *e)
{
    bool right = e->inputs >= 4 && e->inputs <= 16 && e->outputs == e->inputs;
    for (int k = 0; k < e->inputs; k++) right &= e->output[k] == e->input[e->inputs - 1 - k];
    return right && eg_data_symbols(d) == 26 + EG_FIRST;
}
static bool right_copy(const eg_data *d, const eg_example *e)
{
    return e->inputs >= 4 && e->inputs <= 16 && e->outputs == e->inputs &&
           !memcmp(e->input, e->output, (size_t)e->inputs * sizeof *e->input) &&
           eg_data_symbols(d) == 26 + EG_FIRST;
}
static bool right_sort(const eg_data *d, const eg_example *e)
{
    int balance[10] = { 0 };
    bool right = e->inputs == 10 && e->outputs == 10;
    for (int k = 0; k < 10; k++) {
        balance[digit(d, e->input[k])]++, balance[digit(d, e->output[k])]--;
        right &= k == 0 || e->output[k - 1] <= e->output[k];
    }
    for (int k = 0; k < 10; k++) right &= balance[k] == 0;
    return right;
}
static bool right_addition(const eg_data *d, const eg_example *e)
{
    char text[64];
    int a, b, sum = 0;
    eg_data_decode(d, e->inputs, e->input, text, sizeof text);
    for (int k = e->outputs - 1; k >= 0; k--) sum = 10 * sum + digit(d, e->output[k]);
    return sscanf(text, "%3d+%3d", &a, &b) == 2 && a + b == sum && e->outputs == 4 &&
           e->inputs == 7;
}
static bool right_parity(const eg_data *d, const eg_example *e)
{
    bool right = e->inputs == 16 && e->outputs == 16;
    for (int k = 0, sum = 0; k < 16; k++)
        right &= (sum += digit(d, e->input[k])) % 2 == digit(d, e->output[k]);
    return right;
}
static bool right_recall(const eg_data *d, const eg_example *e)
{
    int found = 0;
    for (int k = 0; k < 12; k += 2)
        found += e->input[k] == e->input[12] ? e->input[k + 1] == e->output[0] ? 1 : 100 : 0;
    return e->inputs == 13 && e->outputs == 1 && found == 1 && digit(d, e->output[0]) >= 0 &&
           digit(d, e->output[0]) <= 9;
}
static bool right_induction(const eg_data *d, const eg_example *e)
{
    int found = 0;
    for (int k = 0; k < 31; k++)
        found +=
            e->input[k] == e->input[31] ? e->input[k + 1] == e->output[0] && k < 30 ? 1 : 100 : 0;
    return e->inputs == 32 && e->outputs == 1 && found == 1 && eg_data_symbols(d) == 16 + EG_FIRST;
}
static bool right_majority(const eg_data *d, const eg_example *e)
{
    int count[4] = { 0 }, most = e->output[0] - EG_FIRST, better = 0;
    for (int k = 0; k < e->inputs; k++) count[e->input[k] - EG_FIRST]++;
    for (int k = 0; k < 4; k++) better += count[k] >= count[most];
    return e->inputs == 16 && e->outputs == 1 && better == 1 && eg_data_symbols(d) == 4 + EG_FIRST;
}

GROUP("data", .setup = open_f32, .teardown = close_cx)

/* each compared with a second program; pure functions of seed and number */
LOOP_TEST(tasks_are_right, 8)
{
    static const struct {
        const char *name;
        bool (*right)(const eg_data *, const eg_example *);
        bool decoder;
    } cases[] = { { "reverse", right_reverse, false },    { "copy", right_copy, false },
                  { "sort", right_sort, false },          { "addition", right_addition, true },
                  { "parity", right_parity, true },       { "recall", right_recall, true },
                  { "induction", right_induction, true }, { "majority", right_majority, true } };
    ck_assert_ptr_null(eg_task_at(8));
    const eg_task *task = eg_task_at(_i);
    ck_assert_str_eq(task->name, cases[_i].name);
    ck_assert_ptr_eq(eg_task_find(task->name), task);
    eg_data *d = eg_data_task(cx, task);
    ck_assert(eg_data_wants_decoder(d) == cases[_i].decoder && eg_data_size(d) == 0);
    eg_example e, again;
    int held = 0, differ = 0;
    for (uint64_t k = 0; k < 5000; k++) {
        ck_assert_int_eq(eg_data_example(d, 3, k, &e), 0);
        ck_assert_msg(cases[_i].right(d, &e), "%s, number %llu", task->name, (unsigned long long)k);
        held += eg_data_held_out(d, &e);
        eg_data_example(d, 4, k, &again);
        differ += memcmp(&e, &again, sizeof e) != 0;
    }
    eg_data_example(d, 3, 4999, &again);
    ck_assert_int_eq(memcmp(&e, &again, sizeof e), 0);
    ck_assert(held > 400 && held < 600 && differ > 4900);
}

TEST(random_integers_are_uniform)
{
    int count[6] = { 0 };
    eg_rng rng = { 5, 1, 0 };
    for (int k = 0; k < 60000; k++) count[eg_rng_below(&rng, 6)]++;
    for (int k = 0; k < 6; k++) ck_assert_int_lt(abs(count[k] - 10000), 400);
    ck_assert_uint_eq(eg_rng_below(&(eg_rng){ 5, 1, 0 }, 1000000),
                      eg_rng_below(&(eg_rng){ 5, 1, 0 }, 1000000));
}

/* -- pairs ------------------------------------------------------------------------------------ */
static char *roman(void) /* 1 … 60, tab-separated */
{
    static char text[2000];
    static const struct {
        int value;
        const char *digits;
    } digits[] = { { 50, "L" }, { 40, "XL" }, { 10, "X" }, { 9, "IX" },
                   { 5, "V" },  { 4, "IV" },  { 1, "I" } };
    char *at = text;
    for (int n = 1; n <= 60; n++) {
        at += sprintf(at, "%d\t", n);
        for (int k = 0, rest = n; k < 7; k++)
            for (; rest >= digits[k].value; rest -= digits[k].value)
                at += sprintf(at, "%s", digits[k].digits);
        at += sprintf(at, n % 2 ? "\n" : "\r\n");
    }
    return text;
}

TEST(pairs_in_any_order)
{
    eg_data *d = eg_data_parse(cx, roman(), "roman.tsv");
    ck_assert(eg_data_size(d) == 60 && eg_data_wants_decoder(d) &&
              eg_data_symbols(d) == 10 + 4 + EG_FIRST);
    int seen[61] = { 0 }, changed = 0;
    for (uint64_t k = 0; k < 180; k++) {
        eg_example e, other;
        char text[16];
        eg_data_example(d, 9, k, &e);
        eg_data_example(d, 9, (k + 60) % 180, &other);
        changed += memcmp(&e, &other, sizeof e) != 0;
        eg_data_decode(d, e.inputs, e.input, text, sizeof text);
        ck_assert_int_eq(seen[atoi(text)]++, k / 60); /* each once before any is repeated */
    }
    ck_assert_int_gt(changed, 150);
    int32_t tokens[8];
    ck_assert_int_eq(eg_data_encode(d, "42", 8, tokens), 2);
    ck_assert_str_eq(eg_data_symbol(d, tokens[0]), "4");
    ck_assert_int_eq(eg_data_encode(d, "4x", 8, tokens), -1);
    eg_assert_error(cx, "roman.tsv: the symbol \"x\" is not in the vocabulary of 14");
    ck_assert_int_eq(eg_data_encode(d, "123", 2, tokens), -1);
    eg_assert_error(cx, "more than 2 symbols");
}

TEST(pairs_of_words)
{
    char text[4000], *at = text;
    for (int k = 0; k < 60; k++)
        at += sprintf(at, "to %c  go%d\twent %c\n", 'a' + k % 20, k, 'a' + k % 20);
    eg_data *d = eg_data_parse(cx, text, "words");
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_data_symbols(d), EG_FIRST + 1 + 20 + 60 + 1);
    int32_t tokens[8];
    ck_assert_int_eq(eg_data_encode(d, " to  c go7", 8, tokens), 3);
    char out[40];
    ck_assert_uint_eq(eg_data_decode(d, 3, tokens, out, sizeof out), 8);
    ck_assert_str_eq(out, "to c go7");
}

/* by the hash one in ten would be none of k1 … k30; two pairs suffice */
TEST(of_few_pairs_one_is_held_out)
{
    char text[512] = "";
    for (int k = 1, at = 0; k <= 30; k++) {
        at += snprintf(text + at, sizeof text - (size_t)at, "k%d\tv%d\n", k, k);
        if (k == 1) continue;
        eg_data *d = eg_data_parse(cx, text, "few");
        int held = 0;
        eg_example e;
        for (uint64_t n = 0; n < (uint64_t)k; n++)
            held += !eg_data_example(d, 0, n, &e) && eg_data_held_out(d, &e);
        eg_assert_ok(cx);
        ck_assert_int_eq(held, 1);
    }
    ck_assert(!eg_data_held_out(NULL, NULL));
    ck_assert_int_eq(eg_data_size(eg_data_parse(cx, "a\tb\r\nc\td\r\n\r\n\n", "end")), 2);
    eg_trainer *t = eg_trainer_new(eg_data_parse(cx, "a\tb\nc\td\n", "two"), .d_model = 8,
                                   .heads = 2, .layers = 1, .batch = 2, .steps = 2, .goal = EG_OFF);
    eg_score s;
    ck_assert(!eg_trainer_step(t, NULL) && !eg_trainer_evaluate(t, &s));
    ck_assert_int_eq(s.sequences, 1);
}

LOOP_TEST(pairs_refused, 8)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "a\tb\nab\n", "f:2: a line is input TAB output" },
        { "a\tb\tc\n", "f:1: a line is input TAB output" },
        { "a\tb\n\tc\n", "f:2: the input is empty" },
        { "a\t\n", "f:1: the output is empty" },
        { "a\tb\n\nc\td\n", "f:2: a line is" },
        { "a\tb\nc\t\xff\n", "f:2: not UTF-8" },
        { "", "f: no pairs" },
        { "a\tb\na\tb\n",
          "f: one input in ten is held out for tests, but of 2 pairs all have the same one" }
    };
    ck_assert_ptr_null(eg_data_parse(cx, cases[_i].text, "f"));
    eg_assert_error(cx, cases[_i].why);
    ck_assert_ptr_null(eg_data_pairs(cx, "/nowhere/at.all"));
    eg_assert_error(cx, "/nowhere/at.all: No such file");
    char wide[2 * EG_EXAMPLE_MAX + 8];
    memset(wide, 'a', sizeof wide);
    strcpy(wide + EG_EXAMPLE_MAX + 1, "\tb\n");
    ck_assert_ptr_null(eg_data_parse(cx, wide, "f"));
    eg_assert_error(cx, "f:1: more than 256 symbols on one side");
}

/* -- the trainer ------------------------------------------------------------------------------ */
GROUP("trainer", .setup = open_f32, .teardown = close_cx, .timeout = 600)

/* to 99 %; a head on the anti-diagonal; gradients; predictions agree with the evaluation; the
 * file. Under a sanitizer only the first 60 steps are taken. */
TEST(reverse_is_learned)
{
    const bool whole = SLOWER == 1;
    eg_data *d = eg_data_task(cx, eg_task_find("reverse"));
    eg_trainer *t = eg_trainer_new(d, .steps = whole ? 0 : 60);
    eg_progress p;
    ck_assert_msg(!eg_trainer_run(t, NULL, NULL, &p), "%s", eg_error(cx));
    ck_assert_msg(!whole || p.exact >= 0.99, "%g after %lld steps", p.exact, (long long)p.step);
    eg_example e;
    char input[64], output[64];
    int right = 0;
    for (int k = 0; k < 40; k++) {
        ck_assert_int_eq(eg_trainer_test(t, k, &e), 0);
        ck_assert(eg_data_held_out(d, &e));
        eg_data_decode(d, e.inputs, e.input, input, sizeof input);
        eg_data_decode(d, e.outputs, e.output, output, sizeof output);
        right += !strcmp(eg_trainer_predict(t, input), output);
    }
    ck_assert(!whole || right >= 38);
    const char *const *labels;
    eg_tensor *w = eg_trainer_self_attention_weights(t, "abcdefghij", &labels);
    ck_assert_str_eq(labels[9], "j");
    int64_t l, h, i, j;
    eg_assert_axes("l h i j", w, &l, &h, &i, &j);
    ck_assert(l == 2 && h == 4 && i == 10 && j == 10);
    eg_tensor *mass =
        eg_scale(eg_sum("l h [i]", eg_diagonal(eg_flip_axis(w, 3), 0, 2, 3)), 1.0 / 10);
    ck_assert_msg(!whole || eg_item(eg_max(NULL, mass)) >= 0.5,
                  "no head has more than %g of its mass on the anti-diagonal",
                  eg_item(eg_max(NULL, mass)));
    eg_trainer_check_report r;
    ck_assert_int_eq(eg_trainer_check(t, &r), 0);
    ck_assert_int_eq(r.entries, eg_params_size(eg_trainer_params(t)));
    ck_assert_msg(r.right == r.entries && r.worst < 1e-6, "%lld of %lld, worst %g in %s",
                  (long long)r.right, (long long)r.entries, r.worst, r.worst_name);
    ck_assert_ptr_null(eg_trainer_predict(t, "ab7"));
    eg_assert_error(cx, "the symbol \"7\" is not in the vocabulary");
    ck_assert_ptr_null(eg_trainer_predict(t, "abcdefghijklmnopq"));
    eg_assert_error(cx, "more than 16 symbols");
    ck_assert_ptr_null(eg_trainer_predict(t, ""));
    eg_assert_error(cx, "the input is empty");
}

static void last_letter(eg_rng *rng, eg_example *e)
{
    e->inputs = e->outputs = 3;
    for (int k = 0; k < 3; k++) e->input[k] = (int)eg_rng_below(rng, 5);
    for (int k = 0; k < 3; k++) e->output[k] = e->input[2];
}
static const eg_task own = {
    "own", "the last letter, three times", "aβc😀e", 3, 3, false, false, last_letter, 3e-3, 10, 150
};

TEST(a_task_of_the_users)
{
    eg_data *d = eg_data_task(cx, &own);
    ck_assert_int_eq(eg_data_symbols(d), 5 + EG_FIRST);
    eg_trainer *t = eg_trainer_new(d, .layers = 1, .d_model = 16, .heads = 2);
    eg_progress p;
    eg_score s;
    ck_assert_int_eq(eg_trainer_run(t, NULL, NULL, &p), 0);
    ck_assert_msg(p.exact >= 0.99, "%g after %lld steps", p.exact, (long long)p.step);
    ck_assert_int_eq(eg_trainer_evaluate(t, &s), 0);
    ck_assert_int_lt(s.sequences, 30); /* of 125 inputs one in ten */
    ck_assert_str_eq(eg_trainer_predict(t, "aaβ"), "βββ");
    eg_assert_ok(cx);
}

TEST(options_of_a_task_that_are_out_of_range_are_refused)
{
    static const struct {
        double lr;
        int64_t warmup, steps;
        const char *says;
    } wrong[] = {
        { -1, 0, 0, "adam: lr must not be negative, not -1" },
        { NAN, 0, 0, "adam: lr must be finite, not nan" },
        { 0, -1, 0, "trainer: schedule.warmup must not be negative, not -1" },
        { 0, 0, -1, "trainer: steps must be positive, not -1" },
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        eg_task task = own;
        task.lr = wrong[k].lr, task.warmup = wrong[k].warmup, task.steps = wrong[k].steps;
        ck_assert_ptr_null(eg_trainer_new(eg_data_task(cx, &task), .layers = 1, .d_model = 8));
        eg_assert_error(cx, wrong[k].says);
        task.lr = 0, task.warmup = 0, task.steps = 0;
        eg_trainer *t = eg_trainer_new(eg_data_task(cx, &task), .layers = 1, .d_model = 8);
        ck_assert_msg(t != NULL, "%s", eg_error(cx));
        ck_assert_double_eq(eg_trainer_config(t)->lr, 1e-3);
    }
}

/* Examples that a user's task may not give. */
static void make_short(eg_rng *rng, eg_example *e) { last_letter(rng, e), e->outputs = 0; }
static void make_long(eg_rng *rng, eg_example *e) { last_letter(rng, e), e->inputs = 4; }
static void make_unknown(eg_rng *rng, eg_example *e) { last_letter(rng, e), e->input[1] = 5; }
static void make_negative(eg_rng *rng, eg_example *e) { last_letter(rng, e), e->output[2] = -1; }
TEST(an_example_that_breaks_its_task_is_named)
{
    static const struct {
        void (*make)(eg_rng *, eg_example *);
        const char *says;
    } wrong[] = {
        { make_short, "data: task own: example 7 has 0 outputs, not 1 to 3" },
        { make_long, "data: task own: example 7 has 4 inputs, not 1 to 3" },
        { make_unknown, "data: task own: input[1] of example 7 is symbol 5 of 5" },
        { make_negative, "data: task own: output[2] of example 7 is symbol -1 of 5" },
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        eg_task task = own;
        eg_example e;
        eg_data *d = eg_data_task(cx, &task);
        task.make = wrong[k].make;
        ck_assert_int_eq(eg_data_example(d, 1, 7, &e), -1);
        eg_assert_error(cx, wrong[k].says);
    }
    ck_assert_ptr_null(eg_data_task(cx, eg_task_find("revers")));
    eg_assert_error(cx, "data: the task is NULL, as eg_task_find returns it for an unknown name");
}

static void make_another(eg_rng *rng, eg_example *e)
{
    static int calls;
    last_letter(rng, e);
    e->output[1] = ++calls % 5;
}
TEST(a_task_has_each_symbol_once_and_examples_that_repeat)
{
    eg_task task = own;
    task.symbols = "aβcaβ";
    ck_assert_ptr_null(eg_data_task(cx, &task));
    eg_assert_error(cx, "data: task own: symbol \"a\" occurs twice");
    task.symbols = "aβcdβ";
    ck_assert_ptr_null(eg_data_task(cx, &task));
    eg_assert_error(cx, "data: task own: symbol \"β\" occurs twice");
    task = own, task.make = make_another;
    ck_assert_ptr_null(eg_data_task(cx, &task));
    eg_assert_error(cx, "data: task own: example 0 is another when it is made again");
    ck_assert(!eg_trainer_new(NULL) && !eg_batches_new(NULL));
    ck_assert_str_eq(eg_error(NULL), "trainer: the data is NULL");
    eg_clear(NULL);
}

static eg_trainer *small_trainer(const char *task, double dropout)
{
    return eg_trainer_new(eg_data_task(cx, eg_task_find(task)), .layers = 1, .d_model = 16,
                          .heads = 2, .batch = 8, .dropout = dropout, .seed = 5);
}

TEST(test_examples_are_not_trained_on)
{
    eg_trainer *t = small_trainer("reverse", 0);
    eg_example e;
    int tests = 0;
    for (; !eg_trainer_test(t, tests, &e); tests++)
        ck_assert(eg_data_held_out(eg_trainer_data(t), &e));
    ck_assert_int_eq(tests, 1000);
    eg_assert_ok(cx);
}

TEST(greedy_decoding_is_evaluation) /* a half-trained decoder: sequence by sequence */
{
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("majority")), .layers = 1,
                                   .d_model = 32, .steps = 30);
    for (int k = 0; k < 30; k++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    eg_score s;
    ck_assert_int_eq(eg_trainer_evaluate(t, &s), 0);
    ck_assert(s.sequences == 1000 && s.tokens == 2000);
    eg_data *d = eg_trainer_data(t);
    int right = 0;
    for (int k = 0; k < 1000; k++) {
        eg_example e;
        char in[40], out[40];
        eg_trainer_test(t, k, &e);
        eg_data_decode(d, e.inputs, e.input, in, sizeof in);
        eg_data_decode(d, e.outputs, e.output, out, sizeof out);
        right += !strcmp(eg_trainer_predict(t, in), out);
    }
    eg_assert_ok(cx);
    ck_assert_int_eq(right, s.exact);
    ck_assert_int_gt(right, 300);
}

/* a step records its history, also under eg_nograd */
TEST(steps_need_no_recording)
{
    double loss[2];
    for (int k = 0; k < 2; k++) {
        eg_trainer *t = small_trainer("copy", 0);
        eg_progress p;
        eg_nograd(cx, k);
        for (int s = 0; s < 3; s++) ck_assert_int_eq(eg_trainer_step(t, &p), 0);
        ck_assert(eg_nograd(cx, false) == (k == 1));
        loss[k] = p.loss;
    }
    ck_assert(loss[0] >= loss[1] && loss[0] <= loss[1]);
}

/* compared with eg_trainer_attention_weights, input by input */
TEST(saturated_heads_are_measured)
{
    enum { HEADS = 2 };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("copy")), .layers = 1,
                                   .d_model = 16, .heads = HEADS, .batch = 3, .seed = 5);
    double largest[HEADS], sum[HEADS] = { 0 };
    for (int sharp = 0; sharp < 2; sharp++) {
        for (int k = 0; sharp && k < eg_params_count(eg_trainer_params(t)); k++) {
            const eg_named *one = eg_params_at(eg_trainer_params(t), k);
            if (strstr(one->name, "W_q")) eg_assign(one->x, eg_scale(one->x, 3000));
        }
        ck_assert_int_eq(eg_trainer_saturation(t, largest), 0);
        ck_assert(sharp ? largest[0] > 0.9 && largest[1] > 0.9
                        : largest[0] < 0.6 && largest[1] < 0.6);
        double rows = 0;
        sum[0] = sum[1] = 0;
        for (int k = 0; k < 3; k++) {
            eg_example e;
            char input[EG_EXAMPLE_MAX + 1] = "";
            ck_assert_int_eq(eg_trainer_test(t, k, &e), 0);
            eg_data_decode(eg_trainer_data(t), e.inputs, e.input, input, sizeof input);
            const eg_head *h = eg_heads(
                eg_select_axis(eg_trainer_attention_weights(t, input, NULL, NULL, NULL), 0, 0),
                .spec = "[h] i j", .top = 1);
            for (int j = 0; j < HEADS; j++) sum[j] += h[j].top * (double)h[j].rows;
            rows += (double)h[0].rows;
        }
        for (int j = 0; j < HEADS; j++) ck_assert_double_eq_tol(largest[j], sum[j] / rows, 1e-5);
    }
    ck_assert_int_eq(eg_trainer_saturation(t, NULL), -1);
    eg_assert_error(cx, "saturation: the result is NULL");
}

/* defaults of the trainer: the end, the warm-up, d_model, the scale of noam */
LOOP_TEST(schedules_of_a_trainer, 6)
{
    static const struct {
        eg_schedule s;
        int64_t warmup, steps;
    } cases[] = {
        { { 0 }, 20, 300 },
        { { .decay = EG_LINEAR }, 20, 300 },
        { { .decay = EG_WSD, .warmup = 7 }, 7, 300 },
        { { .decay = EG_COSINE, .steps = 90 }, 0, 90 },
        { { .decay = EG_NOAM }, 20, 0 },
        { { .decay = EG_EXPONENTIAL, .gamma = 0.9 }, 0, 0 },
    };
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find("copy")), .layers = 1,
                                   .d_model = 16, .heads = 2, .schedule = cases[_i].s);
    eg_assert_ok(cx);
    const eg_trainer_args *o = eg_trainer_config(t);
    ck_assert_int_eq(o->schedule.warmup, cases[_i].warmup);
    ck_assert_int_eq(o->schedule.steps, cases[_i].steps);
    double peak =
        o->lr * eg_schedule_factor(&o->schedule, o->schedule.warmup ? o->schedule.warmup - 1 : 0);
    ck_assert_double_eq_tol(peak, eg_task_find("copy")->lr, 1e-15);
}

/* a NaN in the optimiser's state is refused */
TEST(files_with_odd_moments)
{
    const char *path = "odd_moments_test.safetensors";
    eg_trainer *t = small_trainer("copy", 0);
    eg_fill(eg_opt_state(eg_trainer_opt(t), 4)->x, NAN);
    ck_assert_int_eq(eg_trainer_save(t, path), 0);
    ck_assert_ptr_null(eg_trainer_load(cx, path, 0));
    eg_assert_error(cx, "has a NaN or an infinity");
    unlink(path);
}

TEST(pairs_are_stored_in_the_checkpoint)
{
    char path[] = "/tmp/eg_pairs_XXXXXX";
    close(mkstemp(path));
    eg_trainer *t = eg_trainer_new(eg_data_parse(cx, roman(), "roman.tsv"), .layers = 1,
                                   .d_model = 16, .heads = 2, .batch = 8);
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    ck_assert_int_eq(eg_trainer_save(t, path), 0);
    eg_trainer *again = eg_trainer_load(cx, path, 500);
    ck_assert_msg(again != NULL, "%s", eg_error(cx));
    ck_assert_str_eq(eg_data_name(eg_trainer_data(again)), "roman.tsv");
    ck_assert_str_eq(eg_data_pairs_text(eg_trainer_data(again)), roman());
    ck_assert(eg_trainer_config(again)->steps == 500 &&
              !strcmp(eg_trainer_config(again)->model, "decoder"));
    char first[64];
    strcpy(first, eg_trainer_predict(t, "47"));
    ck_assert_str_eq(eg_trainer_predict(again, "47"), first);
    unlink(path);
}

TEST(files_refused)
{
    char path[] = "/tmp/eg_bad_XXXXXX";
    close(mkstemp(path));
    eg_params *p = eg_params_open(cx);
    eg_param(p, "a", "i", 3);
    eg_params_save(p, path);
    ck_assert_ptr_null(eg_trainer_load(cx, path, 0));
    eg_assert_error(cx, "not a model that eingrad trained");
    ck_assert_ptr_null(eg_trainer_load(cx, "/nowhere", 0));
    eg_assert_error(cx, "/nowhere");
    eg_trainer *t = small_trainer("copy", 0);
    ck_assert_int_eq(eg_trainer_save(t, path), 0);
    eg_ctx *wide = eg_open(.dtype = EG_F64);
    ck_assert_ptr_null(eg_trainer_load(wide, path, 0));
    eg_assert_error(wide, "a model in f32, but the context is in f64");
    eg_close(wide);
    ck_assert_int_eq(eg_trainer_save(t, "/nowhere/at.all"), -1);
    eg_assert_error(cx, "/nowhere/at.all");
    unlink(path);
}

/* Writes a checkpoint with another number for a key of its metadata, and corrects the length of the
 * header. */
static void with_number(const char *from, const char *to, const char *key, const char *value)
{
    long n;
    char *bytes = bytes_of(from, &n), quoted[64], *at;
    size_t length = 0, put = 0;
    for (int k = 8; k--;) length = length << 8 | (unsigned char)bytes[k];
    char *header = malloc(length + 256);
    memcpy(header, bytes + 8, length);
    header[length] = 0;
    snprintf(quoted, sizeof quoted, "\"%s\":\"", key);
    at = strstr(header, quoted);
    ck_assert_msg(at != NULL, "%s", key);
    at += strlen(quoted);
    memmove(at + strlen(value), strchr(at, '"'), strlen(strchr(at, '"')) + 1);
    memcpy(at, value, strlen(value));
    put = strlen(header);
    FILE *f = fopen(to, "wb");
    for (int k = 0; k < 8; k++) fputc((int)(put >> 8 * k & 255), f);
    fwrite(header, 1, put, f);
    fwrite(bytes + 8 + length, 1, (size_t)n - 8 - length, f);
    fclose(f);
    free(header), free(bytes);
}

/* Sizes are compared with the tensors before anything is allocated; each number has a range. A file
 * of n bytes takes 8 n + 64 MB at most, these far less. NULL: such a model works. */
static const struct {
    const char *key, *value, *error;
} damaged[] = {
    { "layers", "4096", "no tensor \"1.norm_self.gain\"" },
    { "layers", "1048576", "no tensor \"1.norm_self.gain\"" },
    { "d_model", "5000", "tensor \"tokens.E\" is (29, 16), not (29, 5000)" },
    { "width", "1048576", "tensor \"0.ffn.up.W\" is (16, 64), not (16, 1048576)" },
    { "heads", "4", "is (16, 2, 8), not (16, 4, 4)" },
    { "vocabulary", "1048576", "tensor \"tokens.E\" is (29, 16), not (1048576, 16)" },
    { "longest", "1048576", "tensor \"positions.P\" is (16, 16), not (1048576, 16)" },
    { "longest", "4", "the model has 4 positions, but reverse needs 16" },
    { "batch", "1048576", NULL },
    { "block", "8", NULL },
    { "decay_steps", "9007199254740992", NULL },
    { "batch", "1048577", "\"batch\" is 1048577, not within 1 and 1048576" },
    { "batch", "-9223372036854775808", "\"batch\" is -9" },
    { "step", "9223372036854775807",
      "\"step\" is 9223372036854775807, not within 0 and 9007199254740992" },
    { "step", "9007199254740992", NULL },
    { "step", "-1", "\"step\" is -1" },
    { "step", "99999999999999999999", "\"step\" is 9999" },
    { "step", "1.5", "\"step\" is \"1.5\", not a number" },
    { "step", " 1", "lacks a number for \"step\"" },
    { "cursor", "9223372036854775807", "\"cursor\" is" },
    { "waited", "9223372036854775807", "\"waited\" is" },
    { "evaluate", "9223372036854775807", "\"evaluate\" is" },
    { "decay", "4294967296", "\"decay\" is" },
    { "decay", "77", "\"decay\" is 77, not within 0 and 7" },
    { "dtype", "77", "\"dtype\" is 77, not within 1 and 2" },
    { "dtype", "3", "\"dtype\" is 3" },
    { "characters", "9223372036854775807", "\"characters\" is" },
    { "dropout", "1.5", "dropout must be in [0, 1)" },
    { "goal", "7", "trainer: goal must be a share of exact sequences, in [0, 1], not 7" },
    { "lr", "nan", "lr must be finite, not nan" },
    { "lr", "", "lacks a number for \"lr\"" },
};
enum { DAMAGED = sizeof damaged / sizeof *damaged };

LOOP_TEST(damaged_checkpoints, DAMAGED)
{
    char path[] = "/tmp/eg_sound_XXXXXX", bad[] = "/tmp/eg_damaged_XXXXXX";
    close(mkstemp(path)), close(mkstemp(bad));
    eg_trainer *t = small_trainer("reverse", 0);
    ck_assert(!eg_trainer_step(t, NULL) && !eg_trainer_save(t, path));
    with_number(path, bad, damaged[_i].key, damaged[_i].value);
    eg_ctx *mine = eg_open(.threads = 1);
    eg_trainer *again = eg_trainer_load(mine, bad, 0);
    ck_assert_uint_le(eg_stats(mine).peak, 32 << 20);
    ck_assert_int_eq(again == NULL, damaged[_i].error != NULL);
    if (again) {
        ck_assert_ptr_nonnull(eg_trainer_predict(again, "abcd"));
        ck_assert_uint_le(eg_stats(mine).peak, 32 << 20);
        /* what was loaded and saved can be loaded */
        ck_assert_int_eq(eg_trainer_save(again, bad), 0);
        ck_assert_msg(eg_trainer_load(mine, bad, 0) != NULL, "%s", eg_error(mine));
    } else {
        ck_assert(eg_error_code(mine) == EG_ERROR_FILE);
        ck_assert_msg(!strncmp(eg_error(mine), bad, strlen(bad)), "%s", eg_error(mine));
        eg_assert_error(mine, damaged[_i].error);
    }
    eg_close(mine);
    unlink(path), unlink(bad);
}

/* Damage of a key does not make an option one that older files lack. */
TEST(damaged_keys_of_checkpoints)
{
    char path[] = "/tmp/eg_sound_XXXXXX", bad[] = "/tmp/eg_damaged_XXXXXX";
    close(mkstemp(path)), close(mkstemp(bad));
    eg_data *d = eg_data_task(cx, eg_task_find("reverse"));
    eg_trainer *t = eg_trainer_new(d, .layers = 1, .d_model = 8, .heads = 2, .batch = 4,
                                   .optimiser = "sgd", .momentum = 0.5);
    ck_assert_msg(t && !eg_trainer_save(t, path), "%s", eg_error(cx));
    long n;
    char *bytes = bytes_of(path, &n);
    int flipped = 0;
    const char *end = strchr(bytes + 8, '}');
    for (char *at = strstr(bytes + 8, "{\"") + 1; at && at < end; flipped++) {
        at = strstr(at, ",\"");
        if (!at || at > end) break;
        at += 2;
        for (int bit = 0; bit < 7; bit += 6) { /* a letter becomes another, or a sign */
            *at ^= (char)(1 << bit);
            FILE *f = fopen(bad, "wb");
            fwrite(bytes, 1, (size_t)n, f);
            fclose(f);
            *at ^= (char)(1 << bit);
            ck_assert_ptr_null(eg_trainer_load(cx, bad, 0));
            ck_assert(eg_error_code(cx) == EG_ERROR_FILE);
            eg_clear(cx);
        }
    }
    ck_assert_int_gt(flipped, 50);
    ck_assert_msg(eg_trainer_load(cx, path, 0) != NULL, "%s", eg_error(cx));
    free(bytes);
    unlink(path), unlink(bad);
}

/* A file from before blocks existed continues with the blocks that follow from its sizes. */
TEST(older_checkpoints_continue_in_blocks)
{
    char path[] = "/tmp/eg_older_XXXXXX";
    close(mkstemp(path));
    eg_trainer *t = small_trainer("reverse", 0.1);
    eg_progress p, q;
    ck_assert(!eg_trainer_step(t, NULL) && !eg_trainer_save(t, path));
    without_blocks(path);
    const eg_saved there = eg_trainer_saved(t, path);
    ck_assert(there.checkpoint && !there.same && strstr(there.differs, "block unknown, not "));
    eg_trainer *again = eg_trainer_load(cx, path, 0);
    ck_assert_msg(again != NULL, "%s", eg_error(cx));
    ck_assert_int_eq(eg_trainer_config(again)->block, eg_trainer_config(t)->block);
    ck_assert_int_eq(eg_trainer_config(again)->leaves, 16);
    const uint64_t draws = eg_draws(cx);
    ck_assert_int_eq(eg_trainer_step(t, &p), 0);
    eg_set_draws(cx, draws);
    ck_assert_int_eq(eg_trainer_step(again, &q), 0);
    ck_assert(p.loss == q.loss && p.norm == q.norm);
    unlink(path);
}

/* an optimiser's counts and learning rate are checked as metadata are */
TEST(damaged_states)
{
    char path[] = "/tmp/eg_state_XXXXXX";
    close(mkstemp(path));
    static const int64_t counts[] = { INT64_MAX, -1, 0 };
    for (int k = 0; k < 3; k++) {
        eg_trainer *t = small_trainer("reverse", 0);
        const eg_named *state[2] = { eg_opt_state(eg_trainer_opt(t), 0),
                                     eg_opt_state(eg_trainer_opt(t), 1) };
        int64_t three[] = { counts[k], 0, 0 };
        ck_assert_int_eq(k < 2 ? eg_assign(state[0]->x, eg_from(cx, three, 3))
                               : eg_fill(state[1]->x, INFINITY),
                         0);
        ck_assert_int_eq(eg_trainer_save(t, path), 0);
        ck_assert_ptr_null(eg_trainer_load(cx, path, 0));
        eg_assert_error(cx, k == 2 ? "tensor \"opt.lr\" is inf"
                            : k    ? "a count of -1"
                                   : "a count of 9223372036854775807");
    }
    unlink(path);
}

TEST(a_corpus_is_a_file) /* the path in a checkpoint may be a device that never ends */
{
    char path[] = "/tmp/eg_corpus_XXXXXX";
    close(mkstemp(path));
    static const char text[] = "abababbabaabbabaababbabbaababababbabaabbabaababbabbaab";
    eg_trainer *t = eg_trainer_new(eg_data_corpus_of(cx, text, sizeof text - 1, "/dev/zero"),
                                   .layers = 1, .d_model = 8, .heads = 2, .context = 4);
    ck_assert_msg(t && !eg_trainer_save(t, path), "%s", eg_error(cx));
    ck_assert_ptr_null(eg_trainer_load(cx, path, 0));
    eg_assert_error(
        cx, "/dev/zero is not the text that it was trained on: no file of at most 216 bytes");
    /* what does not depend on the text is refused before it is looked for */
    ck_assert(!eg_trainer_step(t, NULL) && !eg_trainer_step(t, NULL) && !eg_trainer_save(t, path));
    ck_assert_ptr_null(eg_trainer_load(cx, path, .steps = 1));
    eg_assert_error(cx, "trainer_load: .steps is 1, but");
    unlink(path);
}

TEST(trainers_refused)
{
    eg_data *sum = eg_data_task(cx, eg_task_find("addition"));
    ck_assert_ptr_null(eg_trainer_new(sum, .model = "encoder"));
    eg_assert_error(
        cx, "an encoder needs input and output of one length, but task addition has 7 and 4");
    ck_assert_ptr_null(eg_trainer_new(eg_data_parse(cx, roman(), "roman.tsv"), .model = "encoder"));
    eg_assert_error(cx, "roman.tsv:2: an encoder needs");
    ck_assert_ptr_null(eg_trainer_new(sum, .model = "both"));
    eg_assert_error(cx, "model \"both\" is neither encoder nor decoder");
    ck_assert_ptr_null(eg_trainer_new(sum, .d_model = 10, .heads = 3));
    eg_assert_error(cx, "d_model must be divisible by heads: 10 / 3");
    ck_assert_ptr_null(eg_trainer_new(sum, .batch = -1));
    eg_assert_error(cx, "trainer: batch must be positive, not -1");
    ck_assert_ptr_null(eg_trainer_new(sum, .steps = INT64_MIN));
    eg_assert_error(cx, "trainer: steps must be positive, not -9223372036854775808");
    ck_assert_ptr_null(eg_trainer_new(sum, .batch = INT64_MAX));
    eg_assert_error(cx, "trainer: batch is at most 2^20");
    ck_assert_ptr_null(eg_trainer_new(sum, .d_model = INT64_MAX));
    eg_assert_error(cx, "trainer: d_model is at most 2^20");
    ck_assert_ptr_null(eg_trainer_new(sum, .d_model = INT64_MIN));
    eg_assert_error(cx, "trainer: d_model must be positive, not -9223372036854775808");
    ck_assert_ptr_null(eg_trainer_new(sum, .steps = INT64_MAX));
    eg_assert_error(cx, "trainer: steps is at most 2^53, not 9223372036854775807");
    /* what a checkpoint could not restore */
    const eg_schedule far[] = { { .decay = EG_STEPS, .step_size = INT64_MAX },
                                { .decay = EG_STEPS, .milestones = { 3, INT64_MAX } },
                                { .decay = EG_NOAM, .warmup = 2, .d_model = INT64_MAX } };
    for (size_t k = 0; k < sizeof far / sizeof *far; k++) {
        ck_assert_ptr_null(eg_trainer_new(sum, .schedule = far[k]));
        eg_assert_error(cx, "is at most 2^53, not 9223372036854775807");
    }
    ck_assert_ptr_null(eg_trainer_new(sum, .goal = NAN));
    eg_assert_error(cx, "trainer: goal");
    ck_assert_ptr_null(eg_trainer_new(sum, .optimiser = "sgd", .momentum = 5));
    eg_assert_error(cx, "trainer: momentum must be in [0, 1], not 5");
    ck_assert_ptr_null(eg_trainer_new(sum, .attention = &(eg_mha_args){ .form = (eg_mha_form)7 }));
    eg_assert_error(cx, "form is 7, which is no form of weights");
    ck_assert_ptr_null(eg_trainer_new(sum, .goal = 7));
    eg_assert_error(cx, "trainer: goal must be a share of exact sequences, in [0, 1], not 7");
    ck_assert_ptr_null(eg_trainer_new(
        sum, .attention = &(eg_mha_args){ .score = "2 * score",
                                          .linear = &(eg_linear_attention_args){ 0 } }));
    eg_assert_error(cx, ".score belongs to a softmax, which .linear has not");
    ck_assert_ptr_null(eg_data_parse(cx, NULL, "x"));
    eg_assert_error(cx, "data: the text of x is NULL");
    ck_assert_ptr_null(eg_data_pairs(cx, NULL));
    eg_assert_error(cx, "data: the name is NULL");
    ck_assert_ptr_null(eg_trainer_new(sum, .dropout = 1));
    eg_assert_error(cx, "dropout must be in [0, 1), not 1");
    ck_assert(!eg_data_task(cx, eg_task_find("revrese")));
    eg_assert_error(cx, "data: the task is NULL");
    eg_trainer *t = eg_trainer_new(sum, .layers = 1, .d_model = 16, .heads = 2, .lr = 1e37,
                                   .schedule = { .warmup = 1 });
    int bad = 0;
    for (int k = 0; k < 5 && !bad; k++) bad = eg_trainer_step(t, NULL);
    ck_assert_int_eq(bad, -1);
    eg_assert_error(cx, "a smaller .lr or .clip_norm may help");
}

#if !EG_DEBUG_ALLOC /* with a malloc for each tensor every step takes memory */
/* A thread that the system did not run at first allocates its memory when it runs. */
TEST(a_warm_step_takes_no_memory)
{
    eg_trainer *t = small_trainer("reverse", 0.1);
    eg_usage had = { 0 }, has;
    int same = 0;
    for (int k = 0; k < 500 && same < 20; k++, had = has) {
        ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        has = eg_stats(cx);
        const bool equal =
            has.mallocs == had.mallocs && has.bytes == had.bytes && has.used == had.used;
        same = equal ? same + 1 : 0;
    }
    ck_assert_int_eq(same, 20);
}
#endif

static bool whole_life(eg_ctx *mine, const char *path)
{
    eg_data *d = eg_data_parse(mine, roman(), "roman.tsv");
    eg_trainer *t =
        d ? eg_trainer_new(d, .layers = 1, .d_model = 8, .heads = 2, .batch = 4, .dropout = 0.1)
          : NULL;
    eg_trainer_check_report r;
    bool good = t && !eg_trainer_step(t, NULL) && !eg_trainer_step(t, NULL) &&
                !eg_trainer_evaluate(t, NULL) && eg_trainer_predict(t, "12") &&
                eg_trainer_self_attention_weights(t, "3", NULL) && !eg_trainer_check(t, &r) &&
                !eg_trainer_save(t, path) && eg_trainer_load(mine, path, 0);
    ck_assert(good == !eg_error(mine));
    return good;
}

/* A module that the user adds to the list of a trainer is no part of its model. */
TEST(check_leaves_out_added_parameters)
{
    eg_ctx *mine = eg_open();
    eg_data *d = eg_data_parse(mine, roman(), "roman.tsv");
    eg_trainer *t = eg_trainer_new(d, .layers = 1, .d_model = 8, .heads = 2, .batch = 4);
    const int64_t entries = eg_params_size(eg_trainer_params(t));
    ck_assert_ptr_nonnull(eg_linear_new(eg_trainer_params(t), "more", .in = 2, .out = 3));
    eg_trainer_check_report r;
    ck_assert_int_eq(eg_trainer_check(t, &r), 0);
    ck_assert(r.entries == entries && r.right == entries);
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    eg_assert_ok(mine);
    eg_close(mine);
}

/* Only some of the later ones: with a malloc for each tensor there are many. */
TEST(allocations_fail_in_turn) { memory_ends_in_turn(whole_life, 100); }

static bool third(void *user, eg_trainer *t, const eg_progress *p)
{
    ck_assert(t && p->loss > 0 && p->tokens_per_second > 0 && p->accuracy >= 0 && p->exact == -1 &&
              p->seconds > 0);
    return ++*(int *)user == 3;
}

TEST(watch_ends_the_run)
{
    int seen = 0;
    eg_progress p;
    eg_trainer *t = small_trainer("sort", 0);
    ck_assert_int_eq(eg_trainer_run(t, third, &seen, &p), 0);
    ck_assert(seen == 3 && p.step == 3 && p.steps == 500);
}

static bool fails_at_the_third(void *user, eg_trainer *t, const eg_progress *p)
{
    (void)user;
    if (p->step == 3) eg_fail(eg_params_context(eg_trainer_params(t)), "the disk is full");
    return false;
}
TEST(a_run_that_fails_says_after_which_step)
{
    eg_progress p = { .step = -7 };
    eg_trainer *t = small_trainer("sort", 0);
    ck_assert_int_eq(eg_trainer_run(t, fails_at_the_third, NULL, &p), -1);
    ck_assert(p.step == 3 && p.steps == 500 && p.loss > 0);
    eg_progress again = { .step = -7 }; /* the error is still there */
    ck_assert_int_eq(eg_trainer_run(t, NULL, NULL, &again), -1);
    ck_assert(again.step == 3);
    eg_assert_error(cx, "the disk is full");
}

GROUP("resume", .timeout = 600)

/* one run of 12 steps; another of 5, saved, loaded in another context with other threads, 7 more */
LOOP_TEST(a_resumed_run_has_the_same_bits, 8)
{
    static const struct {
        const char *task;
        eg_schedule schedule;
    } cases[] = {
        { "reverse", { 0 } },
        { "addition", { 0 } },
        { "copy", { .decay = EG_NOAM, .warmup = 4 } },
        { "copy", { .decay = EG_STEPS, .step_size = 2, .gamma = 0.7 } },
        { "copy", { .decay = EG_STEPS, .milestones = { 2, 6, 7 } } },
        { "copy", { .decay = EG_EXPONENTIAL, .gamma = 0.8 } },
        { "copy", { .decay = EG_WSD, .warmup = 2, .steps = 11, .decay_steps = 8, .last = 0.1 } },
        { "copy", { .decay = EG_WSD_SQRT } },
    };
    char whole[] = "/tmp/eg_whole_XXXXXX", parts[] = "/tmp/eg_parts_XXXXXX";
    close(mkstemp(whole)), close(mkstemp(parts));
    for (int run = 0; run < 2; run++) {
        eg_ctx *mine = cx = eg_open(.threads = run ? 2 : 1);
        eg_trainer *t = eg_trainer_new(eg_data_task(cx, eg_task_find(cases[_i].task)), .layers = 1,
                                       .d_model = 16, .heads = 2, .batch = 16, .steps = 40,
                                       .dropout = 0.1, .seed = 5, .schedule = cases[_i].schedule);
        for (int k = 0; k < (run ? 5 : 12); k++) ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        if (run) {
            ck_assert_int_eq(eg_trainer_save(t, parts), 0);
            eg_close(cx);
            mine = cx = eg_open(.threads = 1, .seed = 99);
            t = eg_trainer_load(cx, parts, 0);
            ck_assert_msg(t != NULL, "%s", eg_error(cx));
            for (int k = 0; k < 7; k++) {
                ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
                eg_threads(cx, 1 + k % 2);
            }
        }
        ck_assert_int_eq(eg_trainer_save(t, run ? parts : whole), 0);
        eg_close(mine);
    }
    long n, m;
    char *a = bytes_of(whole, &n), *b = bytes_of(parts, &m);
    ck_assert_int_eq(n, m);
    ck_assert_int_eq(memcmp(a, b, (size_t)n), 0);
    free(a), free(b);
    unlink(whole), unlink(parts);
}

/* evaluating, predicting, checking between steps: the same bits */
TEST(evaluating_and_predicting_change_no_bit)
{
    char files[2][32];
    for (int run = 0; run < 2; run++) {
        cx = eg_open(.threads = 1);
        eg_trainer *t = small_trainer("parity", 0.2);
        for (int k = 0; k < 4; k++) {
            ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
            if (run && k == 2) {
                eg_trainer_check_report r;
                ck_assert_int_eq(eg_trainer_evaluate(t, NULL), 0);
                ck_assert_ptr_nonnull(eg_trainer_predict(t, "0110"));
                ck_assert_ptr_nonnull(eg_trainer_self_attention_weights(t, "0110", NULL));
                ck_assert_int_eq(eg_trainer_check(t, &r), 0);
                ck_assert(r.right == r.entries);
            }
        }
        strcpy(files[run], "/tmp/eg_look_XXXXXX");
        close(mkstemp(files[run]));
        ck_assert_int_eq(eg_params_save(eg_trainer_params(t), files[run]), 0);
        eg_close(cx);
    }
    long n, m;
    char *a = bytes_of(files[0], &n), *b = bytes_of(files[1], &m);
    ck_assert(n == m && !memcmp(a, b, (size_t)n));
    free(a), free(b);
    unlink(files[0]), unlink(files[1]);
}

/* If an argument is NULL and there is no context, the error names the function. */
TEST(a_function_that_is_given_NULL_names_itself)
{
    static const char *const message[] = {
        "trainer_step: the trainer is NULL",
        "trainer_run: the trainer is NULL",
        "trainer_save: the trainer is NULL",
        "trainer_evaluate: the trainer is NULL",
        "trainer_predict: the trainer is NULL",
        "trainer_attention_weights: the trainer is NULL",
        "trainer_check: the trainer is NULL",
        "trainer_keep_best: the trainer is NULL",
        "params_save: the list of parameters is NULL",
        "params_load: the list of parameters is NULL",
        "opt_save: the optimiser is NULL",
        "opt_resume: the optimiser is NULL",
        "opt_set_lr: the optimiser is NULL",
        "batches_at: the batches are NULL",
    };
    for (size_t k = 0; k < sizeof message / sizeof *message; k++) {
        eg_trainer_check_report r = { .entries = 1, .worst_name = "?" };
        eg_progress p = { .step = 1 };
        eg_score s;
        eg_clear(NULL);
        const bool refused = k == 0   ? eg_trainer_step(NULL, &p)
                             : k == 1 ? eg_trainer_run(NULL, NULL, NULL, &p)
                             : k == 2 ? eg_trainer_save(NULL, "x")
                             : k == 3 ? eg_trainer_evaluate(NULL, &s)
                             : k == 4 ? !eg_trainer_predict(NULL, "abc")
                             : k == 5 ? !eg_trainer_attention_weights(NULL, "abc", NULL, NULL, NULL)
                             : k == 6 ? eg_trainer_check(NULL, &r)
                             : k == 7 ? eg_trainer_keep_best(NULL, "x")
                             : k == 8 ? eg_params_save(NULL, "x")
                             : k == 9 ? eg_params_load(NULL, "x")
                             : k == 10 ? eg_opt_save(NULL, "x")
                             : k == 11 ? eg_opt_resume(NULL, "x") < 0
                             : k == 12 ? eg_opt_set_lr(NULL, 1)
                                       : !eg_batches_at(NULL, 0);
        ck_assert_msg(refused, "%s", message[k]);
        eg_assert_error(NULL, message[k]);
        ck_assert_int_eq(p.step, k > 1); /* results that are written after an error, too */
        ck_assert(k != 6 || (!r.entries && !r.worst_name));
    }
    eg_clear(NULL);
}
