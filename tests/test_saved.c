/* test_saved.c: runs in files: eg_opt_save, and the files that eg_opt_resume reads and refuses. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <locale.h>
#include <math.h>
#include <string.h>
#include "fixtures.h"
#include "folder.h"
#include "tests.h"

static eg_ctx *cx;
static char path[2][32];
static void saved_setup(void)
{
    cx = eg_open(.threads = 1, .seed = 6);
    for (int k = 0; k < 2; k++) {
        strcpy(path[k], "/tmp/eg_saved_XXXXXX");
        close(mkstemp(path[k]));
        unlink(path[k]);
    }
}
static void saved_teardown(void)
{
    eg_close(cx);
    for (int k = 0; k < 2; k++) unlink(path[k]);
}

GROUP("saved", .setup = saved_setup, .teardown = saved_teardown)

static const struct {
    const char *name;
    eg_opt *(*make)(const eg_opt_args *);
    eg_opt_args o;
} kinds[] = {
    { "adam", eg_adam_with, { .lr = 0.01, .clip_norm = 2 } },
    { "sgd", eg_sgd_with, { .lr = 0.1 } },
    { "momentum", eg_sgd_with, { .lr = 0.1, .momentum = 0.9, .dampening = 0.2, .clip_value = 1 } },
    { "amsgrad", eg_adam_with, { .lr = 0.01, .amsgrad = true } },
    { "cosine",
      eg_adamw_with,
      { .lr = 0.01, .schedule = { .decay = EG_COSINE, .warmup = 2, .steps = 12 } } },
    { "rmsprop", eg_rmsprop_with, { .lr = 0.01, .momentum = 0.5, .centered = true } },
    { "adagrad", eg_adagrad_with, { .lr = 0.1, .initial_accumulator_value = 0.2 } },
};
enum { KINDS = sizeof kinds / sizeof *kinds, STEPS = 9, FIRST = 4 };

/* Parameters of rank 0 to 2 and their optimiser. The gradients of a step are drawn; "rare" has one
 * in every third step, and those of "s" are negative. */
enum { PARAMETERS = 4 };
typedef struct fit {
    eg_ctx *cx;
    eg_params *p;
    eg_opt *opt;
} fit;
static fit fit_open(eg_ctx *own, int kind)
{
    fit f = { .cx = own, .p = eg_params_open(own) };
    eg_param(f.p, "W", "i j", 3, 2);
    eg_param(f.p, "rare", "i", 5);
    eg_param_n(f.p, "s", "", 0, NULL);
    eg_param(f.p, "b", "j", 2);
    eg_opt_args o = kinds[kind].o;
    o.size = sizeof o, o.params = f.p;
    f.opt = kinds[kind].make(&o);
    ck_assert_msg(f.opt != NULL, "%s", eg_error(own));
    return f;
}
static void fit_steps(const fit *f, int64_t from, int64_t to)
{
    for (int64_t k = from; k < to; k++) {
        eg_tensor *g[PARAMETERS];
        for (int i = 0; i < PARAMETERS; i++) {
            eg_tensor *x = eg_params_at(f->p, i)->x;
            g[i] = eg_normal_n(f->cx, EG_F32, 0, 1, eg_rank(x), eg_dims(x));
        }
        if (k % 3) g[1] = NULL;
        g[2] = eg_neg(eg_abs(g[2]));
        ck_assert_msg(!eg_step_by(f->opt, g), "%s", eg_error(f->cx));
    }
}
/* Parameters, then the state. */
static eg_tensor *fit_at(const fit *f, int k)
{
    const eg_named *one =
        k < PARAMETERS ? eg_params_at(f->p, k) : eg_opt_state(f->opt, k - PARAMETERS);
    return one ? one->x : NULL;
}

/* Nine steps, compared with four that are saved and five more in another context: the same bits in
 * parameters, state and file, with the learning rate that was set last. */
LOOP_TEST(a_resumed_run_is_the_whole_one, KINDS)
{
    long size[2];
    char *bytes[2];
    for (int run = 0; run < 2; run++) {
        fit f = fit_open(cx, _i);
        fit_steps(&f, 0, FIRST);
        ck_assert_int_eq(eg_opt_set_lr(f.opt, 0.003), 0);
        if (run) {
            ck_assert_int_eq(eg_opt_save(f.opt, path[1]), 0);
            eg_close(cx);
            cx = eg_open(.threads = 2, .seed = 7); /* reading the file resets seed and draws */
            f = fit_open(cx, _i);
            eg_normal(cx, 0, 1, 3);
            ck_assert_msg(eg_opt_resume(f.opt, path[1]) == FIRST, "%s: %s", kinds[_i].name,
                          eg_error(cx));
            ck_assert_int_eq(eg_opt_report_of(f.opt).steps, FIRST);
        }
        fit_steps(&f, FIRST, STEPS);
        ck_assert_int_eq(eg_opt_save(f.opt, path[run]), 0);
        bytes[run] = bytes_of(path[run], &size[run]);
        if (!run) eg_close(cx), cx = eg_open(.threads = 1, .seed = 6);
    }
    ck_assert_int_eq(size[0], size[1]);
    ck_assert_mem_eq(bytes[0], bytes[1], (size_t)size[0]);
    free(bytes[0]), free(bytes[1]);
}

/* -- files that were changed ------------------------------------------------------------------- */
/* Writes the run of path[0] to path[1] with `x` in place of the tensor `name`, or as an additional
 * one; if x is NULL, without it. The metadata have `value` for `key`; NULL: no such key. */
static void rewrite(const char *name, eg_tensor *x, const char *key, const char *value)
{
    const char *names[32], *metadata[7] = { NULL };
    eg_tensor *xs[32];
    int n = 0, words = 0;
    eg_safetensors *file = eg_safetensors_open(cx, path[0]);
    bool there = !name;
    for (int k = 0; k < eg_safetensors_count(file); k++) {
        names[n] = eg_safetensors_name(file, k), xs[n] = eg_safetensors_at(file, k);
        const bool it = name && !strcmp(names[n], name);
        there |= it;
        if (it) xs[n] = x;
        n += xs[n] != NULL;
    }
    if (!there && x) names[n] = name, xs[n++] = x;
    static const char *const keys[] = { "format", "draws", "seed" };
    for (int k = 0; k < 3; k++) {
        const char *text =
            key && !strcmp(key, keys[k]) ? value : eg_safetensors_metadata(file, keys[k]);
        if (text) metadata[words++] = keys[k], metadata[words++] = text;
    }
    ck_assert_msg(!eg_safetensors_save(cx, path[1], n, names, xs, metadata), "%s", eg_error(cx));
}
static eg_tensor *in_file(const char *name)
{
    return eg_safetensors_get(eg_safetensors_open(cx, path[0]), name);
}

typedef enum how { NUMBER, LEFT_OUT, OF_TYPE, FLAT, LONGER, ADDED } how;
static const struct damage {
    const char *name;
    how how;
    int at;
    double number; /* the value that is written; or the type */
    const char *error;
} damages[] = {
    { "opt.counts", NUMBER, 0, -1,
      "tensor \"opt.counts\" has a count of -1, not within 0 and 900" },
    { "opt.counts", NUMBER, 0, 9007199254740994., "has a count of 9007199254740994, not within 0" },
    { "opt.counts", NUMBER, 1, 5, "tensor \"opt.counts\" has a count of 5, not within 0 and 4" },
    { "opt.counts", NUMBER, 2, -1, "tensor \"opt.counts\" has a count of -1, not within 0 and 4" },
    { "opt.skipped", NUMBER, 0, 5, "tensor \"opt.skipped\" has a count of 5, not within 0 and 4" },
    { "opt.skipped", NUMBER, 3, 5, "tensor \"opt.skipped\" has a count of 5, not within 0 and 4" },
    { "opt.skipped", NUMBER, 1, -1, "tensor \"opt.skipped\" has a count of -1, not within" },
    { "opt.lr", NUMBER, 0, -1e-3, "tensor \"opt.lr\" is -0.001, but a learning rate is not neg" },
    { "opt.lr", NUMBER, 0, INFINITY, "tensor \"opt.lr\" is inf, but a learning rate" },
    { "opt.lr", NUMBER, 0, NAN, "nan, but a learning rate" },
    { "opt.m.W", NUMBER, 5, NAN, "tensor \"opt.m.W\" has a NaN or an infinity" },
    { "opt.m.s", NUMBER, 0, NAN, "tensor \"opt.m.s\" has a NaN or an infinity" },
    { "opt.v.rare", NUMBER, 0, INFINITY, "tensor \"opt.v.rare\" has a NaN or an infinity" },
    { "opt.v.W", NUMBER, 2, -1e-9,
      "\"opt.v.W\" contains squares, but has a negative element, -1e-09" },
    { "opt.v.s", NUMBER, 0, -2, "\"opt.v.s\" contains squares, but has a negative element, -2" },
    { "opt.counts", LEFT_OUT, .error = "tensor \"opt.counts\" is missing" },
    { "opt.lr", LEFT_OUT, .error = "opt.lr" },
    { "opt.m.W", LEFT_OUT, .error = "opt.m.W" },
    { "opt.v.s", LEFT_OUT, .error = "opt.v.s" },
    { "b", LEFT_OUT, .error = "b" },
    { "opt.counts", OF_TYPE, .number = EG_I32, .error = "it must be i64 of rank 1 and 3 numbers" },
    { "opt.lr", OF_TYPE, .number = EG_F32, .error = "it must be f64 of rank 0 and 1 number" },
    { "opt.m.W", OF_TYPE, .number = EG_F64, .error = "it must be f32 of rank 2 and 6 numbers" },
    { "opt.m.W", FLAT, .error = "opt.m.W" },
    { "opt.lr", FLAT,
      .error = "tensor \"opt.lr\" is f64 of rank 1 and 1 number; it must be f64 of rank 0" },
    { "opt.counts", LONGER,
      .error = "tensor \"opt.counts\" is i64 of rank 1 and 6 numbers; it must be i64 of rank 1" },
    { "opt.skipped", LONGER, .error = "tensor \"opt.skipped\" is i64 of rank 1 and 8 numbers; it" },
    { "opt.v.rare", LONGER, .error = "opt.v.rare" },
    { "rare", LONGER, .error = "rare" },
    { "opt.vmax.W", ADDED,
      .error = "tensor \"opt.vmax.W\" is not part of the state of adam with these options" },
    { "opt.m.other", ADDED,
      .error = "tensor \"opt.m.other\" is not part of the state of adam with these" },
    { "other", ADDED, .error = "tensor \"other\" belongs to no parameter" },
};
static eg_tensor *damaged(const struct damage *d)
{
    if (d->how == LEFT_OUT) return NULL;
    if (d->how == ADDED) return eg_ones(cx, 3, 2);
    eg_tensor *x = eg_copy(in_file(d->name));
    if (d->how == OF_TYPE) return eg_cast(x, (eg_dtype)d->number);
    if (d->how == FLAT) return eg_view_n(x, 1, (int64_t[]){ eg_size(x) });
    if (d->how == LONGER) return eg_concat("[i]", x, x);
    if (eg_type(x) == EG_I64)
        eg_mut_i64(x)[d->at] = (int64_t)d->number;
    else if (eg_type(x) == EG_F64)
        eg_mut_f64(x)[d->at] = d->number;
    else
        eg_mut_f32(x)[d->at] = (float)d->number;
    return x;
}
static const struct {
    const char *key, *value;
} words[] = {
    { "format", "eingrad run 2" },
    { "format", "" },
    { "format", NULL },
    { "draws", "-1" },
    { "draws", "12x" },
    { "draws", "" },
    { "draws", " 3" },
    { "draws", "99999999999999999999" },
    { "draws", NULL },
    { "seed", "-1" },
    { "seed", "one" },
};
enum { DAMAGES = sizeof damages / sizeof *damages, WORDS = sizeof words / sizeof *words };

/* A file that is refused changes nothing; afterwards the valid one is resumed. */
LOOP_TEST(damaged_runs_change_nothing, DAMAGES + WORDS)
{
    fit f = fit_open(cx, 0), g;
    fit_steps(&f, 0, FIRST);
    ck_assert_int_eq(eg_opt_save(f.opt, path[0]), 0);
    if (_i < DAMAGES)
        rewrite(damages[_i].name, damaged(&damages[_i]), NULL, NULL);
    else
        rewrite(NULL, NULL, words[_i - DAMAGES].key, words[_i - DAMAGES].value);
    eg_assert_ok(cx);
    g = fit_open(cx, 0);
    fit_steps(&g, 0, 2);
    eg_tensor *was[24];
    int n = 0;
    for (; fit_at(&g, n); n++) was[n] = eg_copy(fit_at(&g, n));
    const uint64_t draws = eg_draws(cx);
    ck_assert_int_eq(eg_opt_resume(g.opt, path[1]), -1);
    ck_assert_msg(eg_error_code(cx) == EG_ERROR_FILE, "%s", eg_error(cx));
    ck_assert_msg(!strncmp(eg_error(cx), "opt_resume: ", 12) &&
                      !strncmp(eg_error(cx) + 12, path[1], strlen(path[1])),
                  "%s", eg_error(cx));
    eg_assert_error(cx, _i < DAMAGES ? damages[_i].error : "not a run that eg_opt_save wrote");
    for (int k = 0; k < n; k++) ck_assert(same_bits(fit_at(&g, k), was[k]));
    ck_assert_uint_eq(eg_draws(cx), draws);
    ck_assert_int_eq(eg_opt_resume(g.opt, path[0]), FIRST);
    for (int k = 0; k < n; k++) ck_assert(same_bits(fit_at(&g, k), fit_at(&f, k)));
}
/* Files that are unusual, but valid. */
LOOP_TEST(runs_with_skipped_steps_are_resumed, 4)
{
    static const struct damage odd[] = { { "opt.counts", NUMBER, 0, 9007199254740992., NULL },
                                         { "opt.lr", NUMBER, 0, 0, NULL },
                                         { "opt.m.W", NUMBER, 1, -3e38, NULL },
                                         { "opt.v.b", NUMBER, 0, 0, NULL } };
    fit f = fit_open(cx, 0);
    fit_steps(&f, 0, FIRST);
    ck_assert_int_eq(eg_opt_save(f.opt, path[0]), 0);
    rewrite(odd[_i].name, damaged(&odd[_i]), NULL, NULL);
    const int64_t steps = eg_opt_resume(fit_open(cx, 0).opt, path[1]);
    ck_assert_msg(steps == (_i ? FIRST : (int64_t)1 << 53), "%s", eg_error(cx));
}
/* Files from before opt.skipped existed: every step had gradients of all parameters. */
TEST(a_run_without_skipped_steps)
{
    fit f = fit_open(cx, 0);
    fit_steps(&f, 0, FIRST);
    ck_assert_int_eq(eg_opt_save(f.opt, path[0]), 0);
    rewrite("opt.skipped", NULL, NULL, NULL);
    const int64_t *skipped = eg_i64(eg_opt_state(f.opt, 2)->x);
    ck_assert(skipped[0] == 0 && skipped[1] == 2);
    ck_assert_int_eq(eg_opt_resume(f.opt, path[1]), FIRST);
    skipped = eg_i64(eg_opt_state(f.opt, 2)->x);
    for (int k = 0; k < PARAMETERS; k++) ck_assert_int_eq(skipped[k], 0);
}
/* The run of an optimiser is refused by one with more or fewer moments. */
LOOP_TEST(another_optimiser_is_refused, KINDS *KINDS)
{
    static const char *const state[KINDS] = { "m v", "", "u", "m v vmax", "m v", "v u m", "v" };
    const int from = _i / KINDS, to = _i % KINDS;
    fit f = fit_open(cx, from), g = fit_open(cx, to);
    fit_steps(&f, 0, FIRST);
    ck_assert_int_eq(eg_opt_save(f.opt, path[0]), 0);
    const int64_t steps = eg_opt_resume(g.opt, path[0]);
    if (!strcmp(state[from], state[to])) {
        ck_assert_int_eq(steps, FIRST);
        return;
    }
    ck_assert_msg(steps == -1, "%s goes on as %s", kinds[from].name, kinds[to].name);
    eg_assert_error(cx, "\"opt.");
}
/* Resuming looks each name up once: comparing each with all others would take longer than the time
 * limit of a test. */
TEST(many_parameters_are_resumed)
{
    enum { MANY = 50000 / SLOWER };
    eg_params *p = eg_params_open(cx);
    char name[16];
    for (int k = 0; k < MANY; k++) {
        snprintf(name, sizeof name, "%d.W", k);
        eg_param(p, name, "m", 1);
    }
    eg_opt *opt = eg_adam(p);
    eg_tensor *last = eg_params_at(p, MANY - 1)->x;
    eg_fill(last, 3);
    ck_assert_int_eq(eg_opt_save(opt, path[0]), 0);
    eg_fill(last, 4);
    ck_assert_int_eq(eg_opt_resume(opt, path[0]), 0);
    ck_assert_double_eq(eg_get(last, 0), 3);
    eg_assert_ok(cx);
}
TEST(largest_squares_are_not_negative)
{
    fit f = fit_open(cx, 3);
    fit_steps(&f, 0, FIRST);
    ck_assert_int_eq(eg_opt_save(f.opt, path[0]), 0);
    eg_tensor *x = eg_copy(in_file("opt.vmax.b"));
    eg_mut_f32(x)[1] = -1;
    rewrite("opt.vmax.b", x, NULL, NULL);
    ck_assert_int_eq(eg_opt_resume(f.opt, path[1]), -1);
    eg_assert_error(cx, "tensor \"opt.vmax.b\" contains squares, but has a negative element, -1");
}
/* Divided among ranks, all save one file, that of one process; it is resumed before it is
 * divided. */
static int divided(void *user, const eg_ranks_table *table)
{
    char(*message)[200] = user;
    eg_ctx *own = eg_open(.threads = 1, .seed = 6);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    fit f = fit_open(own, 3);
    eg_opt_shard(f.opt, r);
    fit_steps(&f, 0, FIRST);
    eg_opt_save(f.opt, path[0]);
    if (!eg_error(own) && eg_opt_resume(f.opt, path[0]) == -1)
        snprintf(message[table->rank], sizeof *message, "%s", eg_error(own));
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
TEST(divided_runs_are_saved_as_one)
{
    char message[3][200] = { "" };
    long size[2];
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, divided, message), 0);
    for (int k = 0; k < 3; k++)
        ck_assert_str_eq(message[k], "opt_resume: the optimiser is divided among ranks; resume it "
                                     "before eg_opt_shard");
    fit f = fit_open(cx, 3);
    fit_steps(&f, 0, FIRST);
    ck_assert_int_eq(eg_opt_save(f.opt, path[1]), 0);
    char *bytes[] = { bytes_of(path[0], &size[0]), bytes_of(path[1], &size[1]) };
    ck_assert_int_eq(size[0], size[1]);
    ck_assert_mem_eq(bytes[0], bytes[1], (size_t)size[0]);
    free(bytes[0]), free(bytes[1]);
}
/* The run of a copy is a separate run, which can be continued alone. */
TEST(copies_are_saved_one_by_one)
{
    eg_params *p = eg_params_open(cx, .copies = 2);
    eg_linear *l = eg_linear_new(p, "l", .in = 3, .out = 2);
    eg_opt *opt = eg_adam(p, .lr = 0.01);
    eg_tensor *x = eg_uniform(cx, -1, 1, 4, 3);
    for (int k = 0; k < 3; k++)
        ck_assert_int_eq(eg_step(opt, eg_mean(NULL, eg_square(eg_linear_run(l, x)))), 0);
    ck_assert_int_eq(eg_opt_save(opt, path[0]), -1);
    eg_assert_error(cx, "opt_save: the parameters have copies; eg_opt_of_copy gives the");
    ck_assert_int_eq(eg_opt_resume(opt, path[0]), -1);
    eg_assert_error(cx, "opt_resume: the parameters have copies; eg_opt_of_copy gives the");
    for (int k = 0; k < 2; k++) {
        ck_assert_msg(!eg_opt_save(eg_opt_of_copy(opt, k), path[0]), "%s", eg_error(cx));
        eg_params *q = eg_params_open(cx);
        eg_linear *alone = eg_linear_new(q, "l", .in = 3, .out = 2);
        eg_opt *own = eg_adam(q, .lr = 0.01);
        ck_assert_msg(eg_opt_resume(own, path[0]) == 3, "%s", eg_error(cx));
        ck_assert(same_bits(alone->weight, eg_params_find(eg_params_of_copy(p, k), "l.W")));
        ck_assert_int_eq(eg_step(own, eg_mean(NULL, eg_square(eg_linear_run(alone, x)))), 0);
        ck_assert_int_eq(eg_opt_report_of(own).steps, 4);
    }
}
/* Only a copy of the same seed draws the same numbers, so only that one continues the run. */
TEST(a_copy_of_another_seed_does_not_continue_a_copy)
{
    const uint64_t seeds[] = { 5, 1ull << 63 };
    eg_opt *opt[2];
    eg_params *p[2];
    for (int k = 0; k < 2; k++) {
        p[k] = eg_params_open(cx, .copies = 2, .seeds = k ? NULL : seeds);
        eg_param(p[k], "w", "i", 3);
        opt[k] = eg_adam(p[k], .lr = 0.01);
    }
    eg_tensor *g = eg_copies_unstack(eg_params_copies(p[0]), eg_ones(cx, 2, 3));
    ck_assert_int_eq(eg_step_by(opt[0], &g), 0);
    ck_assert_int_eq(eg_opt_save(eg_opt_of_copy(opt[0], 1), path[0]), 0);
    ck_assert_int_eq(eg_opt_resume(eg_opt_of_copy(opt[1], 1), path[0]), -1);
    eg_assert_error(cx, "the seed of the saved copy is 9223372036854775808, but that of this copy "
                        "is 7; .seeds of eg_params_open sets it");
    ck_assert_int_eq(eg_opt_report_of(opt[1]).steps, 0);
    ck_assert_int_eq(eg_opt_resume(eg_opt_of_copy(opt[0], 0), path[0]), -1);
    eg_assert_error(cx, "but that of this copy is 5");
    ck_assert_int_eq(eg_opt_resume(eg_opt_of_copy(opt[0], 1), path[0]), 1);
    eg_assert_ok(cx);
}
/* It draws as the copy did, in a context of another seed. */
TEST(a_copy_that_continues_alone_draws_as_before)
{
    enum { COPIES = 3 };
    eg_ctx *own[COPIES];
    eg_params *p = eg_params_open(cx, .copies = COPIES);
    eg_linear *l = eg_linear_new(p, "l", .in = 3, .out = 2);
    eg_opt *opt = eg_adam(p, .lr = 0.01);
    eg_tensor *x = eg_uniform(cx, -1, 1, 4, 3);
    eg_params *q[COPIES];
    for (int k = 0; k < 4; k++) {
        eg_tensor *y = eg_dropout(eg_linear_run(l, x), 0.4);
        ck_assert_int_eq(eg_step(opt, eg_mean(NULL, eg_square(y))), 0);
        for (int c = 0; k == 2 && c < COPIES; c++) {
            ck_assert_int_eq(eg_opt_save(eg_opt_of_copy(opt, c), path[0]), 0);
            own[c] = eg_open(.threads = 1, .seed = 99);
            q[c] = eg_params_open(own[c]);
            eg_linear *alone = eg_linear_new(q[c], "l", .in = 3, .out = 2);
            eg_opt *one = eg_adam(q[c], .lr = 0.01);
            ck_assert_int_eq(eg_opt_resume(one, path[0]), 3);
            eg_tensor *own_x = eg_from_n(own[c], EG_F32, eg_f32(x), 2, eg_dims(x));
            y = eg_dropout(eg_linear_run(alone, own_x), 0.4);
            ck_assert_int_eq(eg_step(one, eg_mean(NULL, eg_square(y))), 0);
            ck_assert_int_eq(eg_opt_resume(eg_opt_of_copy(opt, c), path[0]), 3);
            ck_assert_uint_eq(eg_seed_of(cx), 6); /* the context's own seed */
        }
    }
    for (int c = 0; c < COPIES; c++) {
        for (int k = 0; k < eg_params_count(q[c]); k++)
            ck_assert(
                same_bits(eg_params_at(q[c], k)->x, eg_params_at(eg_params_of_copy(p, c), k)->x));
        eg_close(own[c]);
    }
}
TEST(files_that_are_none)
{
    fit f = fit_open(cx, 0);
    ck_assert_int_eq(eg_opt_resume(f.opt, path[0]), 0);
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_opt_resume(f.opt, NULL), -1);
    ck_assert_ptr_nonnull(eg_error(cx));
    ck_assert_int_eq(eg_opt_save(f.opt, path[0]), -1); /* not after an error */
    ck_assert_int_ne(access(path[0], F_OK), 0);
    eg_clear(cx);
    ck_assert_int_eq(eg_opt_save(f.opt, "/nowhere/run"), -1);
    eg_assert_error(cx, "/nowhere/run");
    ck_assert_int_eq(eg_opt_save(NULL, path[0]), -1);
    ck_assert_int_eq(eg_opt_resume(NULL, path[0]), -1);
    FILE *empty = fopen(path[0], "w");
    fclose(empty);
    ck_assert_int_eq(eg_opt_resume(f.opt, path[0]), -1);
    eg_assert_error(cx, path[0]);
    ck_assert_int_eq(eg_opt_save(f.opt, path[0]), 0);
    ck_assert_int_eq(eg_opt_resume(f.opt, path[0]), 0);
    eg_assert_ok(cx);
}

/* -- the locale ------------------------------------------------------------------------------- */
/* Gives the process a locale with a decimal comma: one of the machine's, or one that localedef
 * makes. False if there is none. */
static bool decimal_comma(void)
{
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8", "de_DE" };
    char command[640], text[8];
    for (int made = 0; made < 2; made++) {
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (setlocale(LC_ALL, names[k]) && snprintf(text, sizeof text, "%.1f", .5) == 3 &&
                !strcmp(text, "0,5"))
                return true;
        snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1",
                 folder, folder);
        if (made || system(command) || setenv("LOCPATH", folder, 1)) break;
    }
    setlocale(LC_ALL, "C");
    return false;
}
/* Writes a run in the trainer, a run of an optimiser with groups, and a picture, and reads the
 * first two again. */
static void files_written(const char *locale)
{
    char run[3][300];
    eg_ctx *own = eg_open(.threads = 1, .seed = 6);
    for (int k = 0; k < 3; k++) snprintf(run[k], sizeof *run, "%s/%s-%d.svg", folder, locale, k);
    eg_trainer *t =
        eg_trainer_new(.data = eg_data_task(own, eg_task_find("reverse")), .layers = 1,
                       .d_model = 8, .heads = 2, .width = 8, .batch = 4, .steps = 9,
                       .dropout = 0.125, .lr = 0.0125,
                       .attention = &(eg_mha_args){
                           .size = sizeof(eg_mha_args), .scale = .25, .rotary = 10000.5 });
    eg_progress p;
    ck_assert_msg(t && !eg_trainer_step(t, &p) && !eg_trainer_save(t, run[0]), "%s", eg_error(own));
    ck_assert_msg(eg_trainer_load(own, run[0]) != NULL, "%s", eg_error(own));
    for (int again = 0; again < 2; again++) {
        eg_params *list = eg_params_open(own);
        eg_linear *l = eg_linear_new(list, "l", .in = 2, .out = 2);
        eg_opt *opt =
            eg_adamw(list, .lr = 0.0125,
                     .groups = (const eg_opt_group[]){
                         { .names = "*.b", .lr_factor = 0.5, .weight_decay = 0.25 }, { 0 } });
        ck_assert_msg(l && opt, "%s", eg_error(own));
        ck_assert_msg(!(again ? eg_opt_resume(opt, run[1]) : eg_opt_save(opt, run[1])), "%s",
                      eg_error(own));
    }
    const eg_curve curve = { .name = "a",
                             .count = 3,
                             .x = (const double[]){ 0, 1.5, 3 },
                             .y = (const double[]){ 1, .375, .25 } };
    ck_assert_msg(!eg_curves_save(run[2], own, 1, &curve), "%s", eg_error(own));
    eg_close(own);
}
static bool same_files(const char *one, const char *two)
{
    FILE *a = fopen(one, "rb"), *b = fopen(two, "rb");
    int x = 0, y = a && b ? 0 : 1;
    while (a && b && x == y && x != EOF) x = getc(a), y = getc(b);
    if (a) fclose(a);
    if (b) fclose(b);
    return x == y;
}
static eg_tensor *half_square(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_mul(eg_sum(NULL, eg_square(x[0])), eg_sum(NULL, eg_detach(x[0])));
}
/* Messages, reports and printed tensors too have a decimal point, and formulas are read with it. */
TEST(messages_have_a_decimal_point_under_every_locale)
{
    make_folder();
    if (!decimal_comma()) return;
    eg_tensor *x = eg_full_n(cx, EG_F64, 0.3, 1, (int64_t[]){ 3 });
    eg_dropout(x, 1.5);
    eg_assert_error(cx, "dropout: 1.5 is not a probability");
    eg_expr("i=3", "clip(i, 2.5, 0.5)", .cx = cx);
    eg_assert_error(cx, "low limit 2.5 is above its high limit 0.5");
    eg_norm_new(eg_params_open(cx), "n", .d_model = 3, .eps = -0.5);
    eg_assert_error(cx, "eps is -0.5");
    char text[64];
    eg_format(eg_expr("i=2", "0.5 + 1.25 * i", .cx = cx), text, sizeof text);
    ck_assert_str_eq(text, "[0.5  1.75]");
    const eg_report *r = eg_gradcheck(half_square, NULL, 1, &x);
    ck_assert_msg(r && strstr(r->text, "analytic 0."), "%s", r ? r->text : eg_error(cx));
    ck_assert(strstr(r->text, "values are 1.5 times") != NULL);
    eg_assert_ok(cx);
    setlocale(LC_ALL, "C");
}
TEST(saved_files_are_the_same_under_a_locale_with_a_decimal_comma)
{
    char command[300], name[2][32];
    make_folder();
    files_written("C");
    if (decimal_comma()) {
        files_written("comma");
        ck_assert(eg_number_read("0.5", NULL) == 0.5); /* not 0 */
        setlocale(LC_ALL, "C");
        for (int k = 0; k < 3; k++) {
            snprintf(name[0], sizeof *name, "C-%d.svg", k);
            snprintf(name[1], sizeof *name, "comma-%d.svg", k);
            ck_assert_msg(same_files(in_folder(name[0]), in_folder(name[1])), "%s", name[1]);
        }
    } else
        printf("no locale with a decimal comma, and localedef makes none: not tested\n");
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}
