/* test_rule.c: optimisers with a custom rule (eg_opt_custom, .rule of a trainer): values, the same
 * bits when resumed, on ranks, with copies and in captured steps, and what is refused. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "fixtures.h"
#include "folder.h"
#include "tests.h"

static eg_ctx *cx;
static void rule_setup(void)
{
    cx = eg_open(.threads = 2, .seed = 3);
    make_folder();
}
static void rule_teardown(void)
{
    eg_close(cx);
    remove_folder();
}

/* -- rules ------------------------------------------------------------------------------------- */
/* x ← x − η (g + λx) */
static int plain(const void *user, const eg_opt_rule_step *s)
{
    eg_tensor *g = eg_add(s->g, eg_scale(s->x, s->weight_decay));
    (void)user;
    return eg_assign(s->x, eg_sub(s->x, eg_scale(g, s->lr)));
}
/* An average of g with a bias correction, and one of g²; the first step differs from later ones. */
static int averages(const void *user, const eg_opt_rule_step *s)
{
    const double *beta = user, b = beta ? *beta : 0.9;
    eg_tensor *m = s->moment[0], *v = s->moment[1];
    if (eg_rank(s->x) != 1) return -2;
    eg_assign(m, eg_add(eg_scale(m, b), eg_scale(s->g, 1 - b)));
    eg_assign(v, eg_add(eg_scale(v, 0.99), eg_scale(eg_square(s->g), 0.01)));
    eg_tensor *u = eg_div(m, eg_shift(eg_sqrt(v), 1e-6));
    return eg_assign(s->x, eg_sub(s->x, eg_scale(u, s->lr / (1 - pow(b, (double)s->step)))));
}
/* A rule of the whole parameter: sums of squares of rows and of columns, and the norm of g. */
static int sums(const void *user, const eg_opt_rule_step *s)
{
    eg_tensor *r = s->moment[0], *c = s->moment[1], *g = s->g;
    (void)user;
    if (r) {
        const int64_t n = eg_dim(r, 0);
        eg_tensor *flat = eg_reshape(g, n, -1);
        eg_assign(r, eg_add(r, eg_sum("i [j]", eg_square(flat))));
        eg_assign(c, eg_add(c, eg_sum("[i] j", eg_square(flat))));
        g = eg_expr("i j", "g / sqrt(r[i] * c[j] + 1e-12)",
                    .with = { { "g", flat }, { "r", r }, { "c", c } });
        g = eg_reshape_n(g, eg_rank(s->x), eg_dims(s->x));
    }
    eg_tensor *norm = eg_shift(eg_sqrt(eg_sum(NULL, eg_square(g))), 1e-12);
    return eg_assign(s->x, eg_sub(s->x, eg_scale(eg_div(g, norm), s->lr)));
}
static int sums_shape(const void *user, const eg_named *x, int m, int64_t dims[EG_RANK_MAX])
{
    (void)user;
    if (eg_rank(x->x) < 2) return -1;
    dims[0] = m ? eg_size(x->x) / eg_dim(x->x, 0) : eg_dim(x->x, 0);
    return 1;
}
static int beta_text(const void *user, char *out, size_t capacity)
{
    return snprintf(out, capacity, "beta %g", *(const double *)user);
}
static const double nine = 0.9, eight = 0.8;
static const eg_opt_rule rules[] = {
    { .name = "averages",
      .moments = "m v",
      .update = averages,
      .elementwise = true,
      .config = beta_text,
      .user = &nine },
    { .name = "sums", .moments = "rows columns", .update = sums, .shape = sums_shape },
    { .name = "plain", .update = plain },
};
enum { RULES = 2, RANKS = 4, ROWS = 70, COLUMNS = 130, EXAMPLES = 24, STEPS = 6 };

/* -- one process ------------------------------------------------------------------------------- */
GROUP("rules", .setup = rule_setup, .teardown = rule_teardown)

static eg_tensor *squares(eg_params *p, eg_tensor *data, bool rare)
{
    eg_tensor *y =
        eg_add(eg_einsum("bi,ij->bj", data, eg_params_at(p, 0)->x), eg_params_at(p, 1)->x);
    eg_tensor *sum = eg_sum(NULL, eg_mul(y, eg_tanh(y)));
    return rare ? eg_add(sum, eg_sum(NULL, eg_square(eg_params_at(p, 2)->x))) : sum;
}
static eg_params *some(eg_ctx *own, eg_dtype dtype, int64_t copies, const uint64_t *seeds)
{
    eg_params *p = eg_params_open(own, .dtype = dtype, .copies = copies, .seeds = seeds);
    eg_param(p, "W", "i j", 5, 7);
    eg_param(p, "b", "j", 7);
    eg_param(p, "rare", "k", 3);
    if (!copies) randomise(p, 0.3);
    return p;
}

/* A rule that fails, before it changes anything, in its calls of these numbers. */
static int flaky_calls, flaky_from;
static int flaky(const void *user, const eg_opt_rule_step *s)
{
    if (flaky_calls++ >= flaky_from && flaky_calls <= flaky_from + 2) return 1;
    return plain(user, s);
}
/* A step of a trainer that failed and is made again is the step of an uninterrupted run: the same
 * batch, draws and learning rate, then and after the checkpoint is loaded. */
TEST(a_trainer_repeats_a_step_that_failed)
{
    const eg_opt_rule rule = { .name = "flaky", .update = flaky };
    char path[300];
    snprintf(path, sizeof path, "%s", in_folder("flaky"));
    eg_tensor *x[2][3];
    for (int fails = 0; fails < 2; fails++) {
        eg_trainer *t =
            eg_trainer_new(eg_data_task(cx, eg_task_find("copy")), .layers = 1, .d_model = 8,
                           .heads = 2, .batch = 3, .dropout = 0.2, .steps = 9, .rule = &rule);
        eg_assert_ok(cx);
        for (int k = 0; k < 3; k++) {
            flaky_calls = 0, flaky_from = fails && k ? 0 : INT_MAX - 2;
            for (int again = 0; again < 2 && fails && k; again++) {
                ck_assert_int_eq(eg_trainer_step(t, NULL), -1);
                eg_assert_error(cx, "flaky");
                ck_assert_int_eq(eg_opt_report_of(eg_trainer_opt(t)).steps, k);
            }
            if (k == 2) {
                ck_assert_int_eq(eg_trainer_save(t, path), 0);
                t = eg_trainer_load(cx, path, .rule = &rule);
            }
            ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
            x[fails][k] = eg_copy(eg_params_at(eg_trainer_params(t), 0)->x);
        }
    }
    for (int k = 0; k < 3; k++) eg_assert_close(x[1][k], x[0][k], 0);
    remove(path);
}

/* Clipping by value and by norm, the schedule, groups, weight decay and parameters that a step does
 * not reach are those of eg_sgd. */
TEST(a_rule_gets_what_a_built_in_optimiser_gets)
{
    const eg_opt_group groups[] = { { .names = "b", .lr_factor = 3, .weight_decay = EG_OFF },
                                    { 0 } };
    eg_opt_args o = { .size = sizeof o,
                      .lr = 0.05,
                      .weight_decay = 0.1,
                      .clip_norm = 0.7,
                      .clip_value = 0.2,
                      .groups = groups,
                      .schedule = { .decay = EG_COSINE, .warmup = 2, .steps = 9 } };
    eg_params *p[2] = { some(cx, EG_F64, 0, NULL), some(cx, EG_F64, 0, NULL) };
    eg_params_copy(p[1], p[0]);
    eg_opt_args custom = o;
    o.params = p[0], custom.params = p[1], custom.rule = &rules[2];
    eg_opt *opt[2] = { eg_sgd_with(&o), eg_opt_custom_with(&custom) };
    ck_assert_ptr_null(eg_opt_state(opt[1], 3));
    for (int k = 0; k < 9; k++) {
        eg_tensor *data = eg_normal_n(cx, EG_F64, 0, 1, 2, (int64_t[]){ 4, 5 });
        for (int i = 0; i < 2; i++)
            ck_assert_msg(!eg_step(opt[i], squares(p[i], data, k % 3 == 0)), "%s", eg_error(cx));
    }
    for (int i = 0; i < 3; i++)
        ck_assert_double_le(largest_difference(eg_params_at(p[0], i)->x, eg_params_at(p[1], i)->x),
                            1e-15);
    const eg_opt_report a = eg_opt_report_of(opt[0]), b = eg_opt_report_of(opt[1]);
    ck_assert(a.steps == b.steps && a.norm_clipped == b.norm_clipped && a.norm_clipped &&
              a.value_clipped == b.value_clipped && same_number(a.lr, b.lr));
}

/* Nine steps, and four that are saved with five in another context: the same bits. */
LOOP_TEST(a_resumed_rule_is_the_whole_one, 2 * RULES)
{
    const eg_dtype dtype = _i % 2 ? EG_F64 : EG_F32;
    uint64_t h[2] = { 1, 1 };
    for (int run = 0; run < 2; run++) {
        eg_ctx *own = eg_open(.threads = 1 + run, .seed = 3);
        eg_params *p = some(own, dtype, 0, NULL);
        eg_opt *opt = eg_opt_custom(p, .rule = &rules[_i / 2], .clip_norm = 1);
        int64_t done = 0;
        for (int part = 0; part < 2; part++) {
            if (run && part) {
                p = some(own, dtype, 0, NULL);
                opt = eg_opt_custom(p, .rule = &rules[_i / 2], .clip_norm = 1);
                eg_seed(own, 17);
                ck_assert_int_eq(done = eg_opt_resume(opt, in_folder("run")), 4);
            }
            for (; done < (part ? 9 : 4); done++)
                eg_step(opt, squares(p, eg_normal_n(own, dtype, 0, 1, 2, (int64_t[]){ 4, 5 }),
                                     done % 3 == 0));
            if (run && !part) eg_opt_save(opt, in_folder("run"));
        }
        h[run] = hash_states(hash_params(h[run], p), opt);
        ck_assert_msg(!eg_error(own), "%s", eg_error(own));
        eg_close(own);
    }
    ck_assert_uint_eq(h[0], h[1]);
}

/* Three copies of one rate each have the bits of three optimisers. */
LOOP_TEST(each_copy_of_a_rule_is_the_one_alone, RULES)
{
    const uint64_t seeds[] = { 4, 5, 6 };
    const double rates[] = { 1e-2, 2e-2, 4e-2 };
    eg_params *all = some(cx, EG_F32, 3, seeds);
    eg_opt *opt =
        eg_opt_custom(all, .rule = &rules[_i], .copies = 3, .lr_each = rates, .clip_norm = 0.5);
    eg_tensor *data[STEPS];
    for (int k = 0; k < STEPS; k++) {
        data[k] = eg_normal(cx, 0, 1, 4, 5);
        ck_assert_msg(!eg_step(opt, squares(all, data[k], k % 2)), "%s", eg_error(cx));
    }
    for (int c = 0; c < 3; c++) {
        eg_seed(cx, seeds[c]), eg_set_draws(cx, 0);
        eg_params *p = eg_params_open(cx);
        eg_param(p, "W", "i j", 5, 7), eg_param(p, "b", "j", 7), eg_param(p, "rare", "k", 3);
        eg_opt *one = eg_opt_custom(p, .rule = &rules[_i], .lr = rates[c], .clip_norm = 0.5);
        for (int k = 0; k < STEPS; k++) eg_step(one, squares(p, data[k], k % 2));
        for (int k = 0; k < 3; k++)
            ck_assert(
                same_bits(eg_params_at(p, k)->x, eg_params_at(eg_params_of_copy(all, c), k)->x));
        for (int k = 0; eg_opt_state(one, k); k++)
            ck_assert(
                same_bits(eg_opt_state(one, k)->x, eg_opt_state(eg_opt_of_copy(opt, c), k)->x));
    }
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
}

/* Gradient descent with noise. */
static int noisy(const void *user, const eg_opt_rule_step *s)
{
    eg_tensor *z = eg_normal_n(eg_context(s->x), eg_type(s->x), 0, 1, eg_rank(s->x), eg_dims(s->x));
    (void)user;
    return eg_assign(s->x, eg_sub(s->x, eg_scale(eg_add(s->g, z), s->lr)));
}
TEST(a_rule_draws_for_each_copy_as_for_a_single_model)
{
    const eg_opt_rule rule = { .name = "noisy", .update = noisy };
    const uint64_t seeds[] = { 4, 5, 6 };
    uint64_t draws = 0;
    eg_tensor *data = eg_normal(cx, 0, 1, 4, 5), *w[4];
    for (int c = -1; c < 3; c++) {
        eg_seed(cx, c < 0 ? 1 : seeds[c]);
        eg_params *p = eg_params_open(cx, .copies = c < 0 ? 3 : 0, .seeds = c < 0 ? seeds : NULL);
        w[c + 1] = eg_param(p, "W", "i j", 5, 7), eg_param(p, "b", "j", 7);
        eg_param(p, "rare", "k", 3);
        eg_opt *opt = eg_opt_custom(p, .rule = &rule, .lr = 0.01);
        for (int k = 0; k < STEPS; k++)
            ck_assert_int_eq(eg_step(opt, eg_dropout(squares(p, data, k % 2), 0.3)), 0);
        ck_assert_uint_eq(eg_seed_of(cx), c < 0 ? 1 : seeds[c]);
        if (c < 0) draws = eg_draws(cx);
        ck_assert_uint_eq(eg_draws(cx), draws);
        if (c >= 0) ck_assert(same_bits(w[c + 1], eg_copy_at(w[0], c)));
    }
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
}

typedef struct captured {
    eg_params *p;
    eg_opt *opt;
    eg_tensor *data;
} captured;
static int captured_step(void *user, eg_tensor **out)
{
    captured *c = user;
    return eg_step(c->opt, out[0] = squares(c->p, c->data, true));
}
LOOP_TEST(a_captured_step_of_a_rule_has_the_same_bits, RULES)
{
    captured c[2];
    for (int k = 0; k < 2; k++) {
        eg_seed(cx, 3), eg_set_draws(cx, 0);
        c[k] = (captured){ .p = some(cx, EG_F32, 0, NULL), .data = eg_normal(cx, 0, 1, 4, 5) };
        c[k].opt = eg_opt_custom(c[k].p, .rule = &rules[_i], .clip_norm = 0.5);
    }
    eg_tensor *out;
    eg_captured *run = eg_capture(cx, captured_step, &c[0], 1);
    for (int k = 1; k < STEPS; k++) eg_captured_run(run);
    for (int k = 0; k < STEPS; k++) captured_step(&c[1], &out);
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    for (int k = 0; k < 3; k++)
        ck_assert(same_bits(eg_params_at(c[0].p, k)->x, eg_params_at(c[1].p, k)->x));
}

/* A function of the program draws in each run what it would draw without a capture. */
TEST(a_captured_step_of_a_rule_that_draws_has_the_same_bits)
{
    const eg_opt_rule rule = { .name = "noisy", .update = noisy };
    captured c[2];
    uint64_t draws[2];
    eg_tensor *out;
    for (int k = 0; k < 2; k++) {
        eg_seed(cx, 3), eg_set_draws(cx, 0);
        c[k] = (captured){ .p = some(cx, EG_F32, 0, NULL), .data = eg_normal(cx, 0, 1, 4, 5) };
        c[k].opt = eg_opt_custom(c[k].p, .rule = &rule);
        eg_captured *run = k ? NULL : eg_capture(cx, captured_step, &c[0], 1);
        for (int step = !k; step < STEPS; step++)
            run ? eg_captured_run(run) : captured_step(&c[1], &out);
        draws[k] = eg_draws(cx);
    }
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    ck_assert_uint_eq(draws[0], draws[1]);
    for (int k = 0; k < 3; k++)
        ck_assert(same_bits(eg_params_at(c[0].p, k)->x, eg_params_at(c[1].p, k)->x));
}

/* -- what is refused --------------------------------------------------------------------------- */
static int fails(const void *user, const eg_opt_rule_step *s)
{
    (void)user, (void)s;
    return 7;
}
static int writes_g(const void *user, const eg_opt_rule_step *s)
{
    (void)user;
    return eg_fill(s->g, 0);
}
static int of_norm(const void *user, const eg_opt_rule_step *s)
{
    (void)user;
    return eg_assign(s->x, eg_sub(s->x, eg_div(s->g, eg_sum(NULL, eg_square(s->g)))));
}
static int negative(const void *user, const eg_named *x, int m, int64_t dims[EG_RANK_MAX])
{
    (void)user, (void)x, (void)m;
    dims[0] = -3;
    return 1;
}
TEST(wrong_rules_are_refused)
{
    static const struct {
        eg_opt_rule rule;
        const char *message;
    } wrong[] = {
        { { .update = plain }, "opt_custom: .rule has no .name" },
        { { .name = "adam", .update = plain },
          "opt_custom: .rule has the name \"adam\" of a built-in optimiser" },
        { { .name = "none" }, "opt_custom: .rule \"none\" has no .update" },
        { { .name = "a", .update = plain, .moments = "m m" }, "a: the moment \"m\" occurs twice" },
        { { .name = "a", .update = plain, .moments = "m. v" },
          "a: the moment \"m.\" has a character that is no letter, digit or '_'" },
        { { .name = "a", .update = plain, .moments = "a b c d e f g h i" },
          "a: more than 8 moments" },
        { { .name = "a", .update = plain, .elementwise = true, .shape = sums_shape },
          "opt_custom: .rule \"a\" has .elementwise, and so" },
        { { .name = "a", .update = plain, .moments = "m", .shape = negative },
          "a: .shape gave no valid shape for the moment \"m\" of \"W\"" },
        { { .name = "a", .update = of_norm, .elementwise = true },
          "a: .rule has .elementwise, but a step of 4116 numbers differs from" },
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        eg_params *p = some(cx, EG_F32, 0, NULL);
        ck_assert_ptr_null(eg_opt_custom(p, .rule = &wrong[k].rule));
        ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), wrong[k].message), "%zu: %s", k,
                      eg_error(cx));
        eg_clear(cx);
    }
    eg_params *p = some(cx, EG_F32, 0, NULL);
    ck_assert_ptr_null(eg_opt_custom(p));
    ck_assert_str_eq(eg_error(cx), "opt_custom: .rule is NULL");
    eg_clear(cx);
    ck_assert_ptr_null(eg_adam(p, .rule = &rules[0]));
    ck_assert_str_eq(eg_error(cx), "adam: rule belongs to opt_custom");
    eg_clear(cx);
    ck_assert_ptr_null(eg_opt_custom(p, .rule = &rules[0], .beta1 = 0.5));
    ck_assert_str_eq(eg_error(cx), "averages: beta1 belongs to adam and adamw");
    eg_clear(cx);
    eg_tensor *data = eg_normal(cx, 0, 1, 4, 5);
    eg_step(eg_opt_custom(p, .rule = &(eg_opt_rule){ .name = "f", .update = fails }),
            squares(p, data, true));
    ck_assert_str_eq(eg_error(cx), "f: .update of \"W\" returned 7");
    eg_clear(cx);
    eg_step(eg_opt_custom(p, .rule = &(eg_opt_rule){ .name = "g", .update = writes_g }),
            squares(p, data, true));
    ck_assert_msg(strstr(eg_error(cx), "g: \"W\": ") == eg_error(cx), "%s", eg_error(cx));
    eg_clear(cx);
}

static bool life(eg_ctx *own, const char *path)
{
    eg_params *p = eg_params_open(own);
    eg_param(p, "W", "i j", 5, 7), eg_param(p, "b", "j", 7), eg_param(p, "rare", "k", 3);
    for (int k = 0; k < RULES; k++) {
        eg_opt *opt = eg_opt_custom(p, .rule = &rules[k], .clip_norm = 1);
        if (!opt || eg_step(opt, squares(p, eg_normal(own, 0, 1, 4, 5), true)) ||
            eg_opt_save(opt, path) || eg_opt_resume(opt, path) != 1)
            return false;
    }
    return true;
}
TEST(allocations_of_a_rule_may_fail) { memory_ends_in_turn(life, 150); }

/* -- ranks ------------------------------------------------------------------------------------- */
typedef struct rule_on_ranks {
    int rule;
    bool alone;
    uint64_t values[RANKS], moments[RANKS], undone[RANKS]; /* by rank */
    int64_t kept[RANKS];
    char message[RANKS][300];
    char path[64];
} rule_on_ranks;
static eg_tensor *block_loss(void *user, eg_ctx *own, int64_t from, int64_t to, int64_t *count)
{
    eg_params *p = user;
    eg_tensor *x = eg_full_n(
        own, EG_F32, 0, 2, (int64_t[]) { to - from, ROWS });
    float *f = eg_mut_f32(x);
    for (int64_t k = 0; f && k < eg_size(x); k++)
        f[k] = (float)sin(0.37 * (double)(from * ROWS + k));
    *count = to - from;
    return squares(p, x, false);
}
static int rule_on_ranks_body(void *user, const eg_ranks_table *table)
{
    rule_on_ranks *l = user;
    const int me = table->rank;
    eg_ctx *own = eg_open(.threads = 1, .seed = 3);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_params *p = eg_params_open(own);
    eg_param(p, "w", "i j", ROWS, COLUMNS), eg_param(p, "b", "j", COLUMNS);
    eg_param(p, "unreached", "k", 3);
    randomise(p, 0.1);
    eg_opt *op =
        eg_opt_custom(p, .rule = &rules[l->rule], .lr = 1e-2, .clip_norm = 0.5, .clip_value = 0.1);
    if (!l->alone) eg_opt_shard(op, r);
    for (int k = 3; eg_opt_state(op, k); k++) l->kept[me] += eg_size(eg_opt_state(op, k)->x);
    for (int k = 0; k < STEPS && !eg_error(own); k++)
        eg_step_over(op, block_loss, p, EXAMPLES, .block = 5);
    if (!eg_opt_save(op, me ? "" : l->path)) eg_opt_shard(op, NULL);
    l->values[me] = l->undone[me] = 1;
    l->values[me] = hash_params(l->values[me], p);
    l->undone[me] = hash_states(l->undone[me], op);
    if (eg_error(own)) snprintf(l->message[me], sizeof *l->message, "%s", eg_error(own));
    const int bad = eg_error(own) != NULL;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}
/* Values, moments and the file are those of one process. An elementwise rule has 1/ranks of the
 * moments, another all of them. */
LOOP_TEST(ranks_of_a_rule_give_the_bits_of_one_process, RULES)
{
    static rule_on_ranks one, more;
    one = (rule_on_ranks){ .rule = _i, .alone = true };
    snprintf(one.path, sizeof one.path, "%s", in_folder("one"));
    eg_ranks_simulate(cx, 1, rule_on_ranks_body, &one);
    ck_assert_msg(!one.message[0][0], "%s", one.message[0]);
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        int64_t kept = 0;
        long size[2];
        more = (rule_on_ranks){ .rule = _i };
        snprintf(more.path, sizeof more.path, "%s", in_folder("more"));
        eg_ranks_simulate(cx, ranks, rule_on_ranks_body, &more);
        for (int r = 0; r < ranks; r++) {
            ck_assert_msg(!more.message[r][0], "rank %d of %d: %s", r, ranks, more.message[r]);
            ck_assert_uint_eq(more.values[r], one.values[0]);
            ck_assert_uint_eq(more.undone[r], one.undone[0]);
            kept += more.kept[r];
        }
        ck_assert_int_eq(kept, (rules[_i].elementwise ? 1 : ranks) * one.kept[0]);
        char *a = bytes_of(one.path, &size[0]), *b = bytes_of(more.path, &size[1]);
        ck_assert(size[0] == size[1] && !memcmp(a, b, (size_t)size[0]));
        free(a), free(b);
        unlink(more.path);
    }
}

/* -- trainers ---------------------------------------------------------------------------------- */
GROUP("trainers", .setup = rule_setup, .teardown = rule_teardown, .timeout = 60)

typedef struct trainer_run {
    int rule, threads;
    const char *from, *to;
    int64_t steps;
    char message[RANKS][300];
} trainer_run;
static int trainer_run_body(void *user, const eg_ranks_table *table)
{
    trainer_run *c = user;
    const eg_opt_group groups[] = { { .names = "*.b", .weight_decay = EG_OFF }, { 0 } };
    eg_ctx *own = eg_open(.threads = c->threads);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_trainer *t =
        c->from ? eg_trainer_load(own, c->from, .rule = &rules[c->rule])
                : eg_trainer_new(eg_data_task(own, eg_task_find("copy")), .layers = 1,
                                 .d_model = 48, .heads = 2, .batch = 13, .block = 2, .dropout = 0.1,
                                 .clip_norm = 0.5, .goal = EG_OFF, .steps = 8, .evaluate = 4,
                                 .rule = &rules[c->rule], .weight_decay = 0.1, .groups = groups);
    if (table->ranks > 1) eg_trainer_distribute(t, r);
    while (t && eg_trainer_progress(t).step < c->steps && !eg_trainer_step(t, NULL)) continue;
    if (t) eg_trainer_save(t, table->rank ? "" : c->to);
    if (eg_error(own)) snprintf(c->message[table->rank], sizeof *c->message, "%s", eg_error(own));
    const int bad = eg_error(own) != NULL;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}
static void trainer_run_on(int rule, int ranks, int threads, const char *from, const char *to,
                           int64_t steps)
{
    static trainer_run c;
    c = (trainer_run){ .rule = rule, .threads = threads, .from = from, .to = to, .steps = steps };
    eg_ranks_simulate(cx, ranks, trainer_run_body, &c);
    for (int r = 0; r < ranks; r++) ck_assert_msg(!c.message[r][0], "rank %d: %s", r, c.message[r]);
}
/* A run of eight steps; one of three steps that is saved and continued with other numbers of
 * threads and ranks: the same file. */
LOOP_TEST(a_trainer_with_a_rule_is_resumed_to_the_same_bits, RULES)
{
    char whole[300], half[300], end[300];
    snprintf(whole, sizeof whole, "%s", in_folder("whole"));
    snprintf(half, sizeof half, "%s", in_folder("half"));
    snprintf(end, sizeof end, "%s", in_folder("end"));
    trainer_run_on(_i, 1, 1, NULL, whole, 8);
    for (int ranks = 1; ranks <= 3; ranks++) {
        long size[2];
        trainer_run_on(_i, 4 - ranks, 2, NULL, half, 3);
        trainer_run_on(_i, ranks, 1, half, end, 8);
        char *a = bytes_of(whole, &size[0]), *b = bytes_of(end, &size[1]);
        ck_assert(size[0] == size[1] && !memcmp(a, b, (size_t)size[0]));
        free(a), free(b);
    }
}

TEST(a_file_of_a_rule_names_it)
{
    eg_opt_rule other = rules[0];
    char path[300];
    snprintf(path, sizeof path, "%s", in_folder("run"));
    trainer_run_on(0, 1, 1, NULL, path, 2);
    eg_trainer *t = eg_trainer_load(cx, path);
    ck_assert_msg(t && eg_trainer_predict(t, "ab"), "%s", eg_error(cx));
    ck_assert_str_eq(eg_trainer_config(t)->optimiser, "averages");
    ck_assert_int_eq(eg_trainer_step(t, NULL), -1);
    ck_assert_str_eq(eg_error(cx), "trainer_step: the run has the custom optimiser \"averages\", "
                                   "and was loaded without .rule");
    eg_clear(cx);
    ck_assert_int_eq(eg_trainer_save(t, in_folder("none")), -1);
    ck_assert_msg(strstr(eg_error(cx), "trainer_save: the run has"), "%s", eg_error(cx));
    eg_clear(cx);
    ck_assert_ptr_null(eg_trainer_load(cx, path, .rule = &rules[1]));
    ck_assert_msg(strstr(eg_error(cx), "run: the file has an optimiser \"averages\", not \"sums\""),
                  "%s", eg_error(cx));
    eg_clear(cx);
    other.user = &eight;
    ck_assert_ptr_null(eg_trainer_load(cx, path, .rule = &other));
    ck_assert_msg(strstr(eg_error(cx),
                         "run: the file has an optimiser \"averages\" with the configuration "
                         "\"beta 0.9\", not \"beta 0.8\""),
                  "%s", eg_error(cx));
    eg_clear(cx);
    t = eg_trainer_load(cx, path, .rule = &rules[0]);
    ck_assert(eg_trainer_saved(t, path).same);
    eg_data *data = eg_data_task(cx, eg_task_find("copy"));
    ck_assert_ptr_null(eg_trainer_new(data, .rule = &rules[0], .optimiser = "adam"));
    ck_assert_str_eq(eg_error(cx), "trainer: .optimiser is \"adam\", and .rule \"averages\"");
    eg_clear(cx);
    ck_assert_ptr_null(eg_trainer_new(data, .rule = &rules[0], .momentum = 0.5));
    ck_assert_str_eq(eg_error(cx), "trainer: momentum belongs to the optimisers sgd and rmsprop, "
                                   "not to averages");
    eg_clear(cx);
}
