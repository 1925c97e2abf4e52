/* test_capture.c: steps that are captured and run again (eg_capture). */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

/* -- the rows' samples: value and gradients ---------------------------------------------------- */
enum { OPERANDS = 8, OUTPUTS = 2 * OPERANDS + 1 };
typedef struct sampled {
    eg_ctx *cx;
    const eg_sample *of;
    eg_tensor *x[OPERANDS];
    int count, orders;
} sampled;
static void fill_operands(sampled *s)
{
    for (int k = 0; k < s->count; k++) {
        eg_tensor *x = s->x[k];
        if (eg_type(x) == EG_F32 || eg_type(x) == EG_F64) {
            const bool range = s->of->low != 0 || s->of->high != 0;
            eg_assign(x, eg_uniform_n(s->cx, eg_type(x), range ? s->of->low : -2,
                                      range ? s->of->high : 2, eg_rank(x), eg_dims(x)));
        }
    }
}
/* Makes the operands that a sample asks for. */
static void make_operands(sampled *s, eg_dtype dtype)
{
    char text[256], *next = NULL;
    snprintf(text, sizeof text, "%s", s->of->shapes);
    for (char *part = strtok_r(text, ",", &next); part; part = strtok_r(NULL, ",", &next)) {
        int64_t dim[8], below = 0;
        int rank = 0;
        char *kind = strchr(part, ':');
        if (kind) *kind++ = 0;
        while (*part == ' ') part++;
        for (char *p = part; strcmp(part, "()") && *p; p += *p == 'x')
            dim[rank++] = strtoll(p, &p, 10);
        if (kind && *kind == 'i' && !strchr(kind, '9')) below = atoll(kind + 1);
        eg_tensor *x = below                  ? eg_randint_n(s->cx, 0, below, rank, dim)
                       : kind && *kind == 'i' ? eg_randint_n(s->cx, 0, 9, rank, dim)
                       : kind ? eg_cast(eg_randint_n(s->cx, 0, 2, rank, dim), EG_BOOL)
                              : eg_full_n(s->cx, dtype, 0, rank, dim);
        s->x[s->count++] = x;
    }
    fill_operands(s);
}
static int sample_step(void *user, eg_tensor **out)
{
    const sampled *s = user;
    eg_tensor *xs[OPERANDS], *dx[OPERANDS], *ddx[OPERANDS];
    int n = 0;
    eg_tensor *y = s->of->call(s->x);
    memset(out, 0, OUTPUTS * sizeof *out);
    out[0] = y;
    if (eg_type(y) != EG_F32 && eg_type(y) != EG_F64) return eg_error(s->cx) != NULL;
    for (int k = 0; k < s->count; k++)
        if (eg_type(s->x[k]) == EG_F32 || eg_type(s->x[k]) == EG_F64) xs[n++] = s->x[k];
    eg_tensor *loss = eg_sum(NULL, eg_mul(y, y));
    if (!n || eg_path_to(loss, xs[0], NULL) != EG_OPEN_PATH) return eg_error(s->cx) != NULL;
    const bool was = eg_nograd(s->cx, s->orders < 2);
    if (eg_grad(loss, NULL, n, xs, dx)) return -1;
    eg_nograd(s->cx, was);
    eg_tensor *sum = NULL;
    for (int k = 0; k < n; k++) {
        out[1 + k] = dx[k];
        eg_tensor *part = eg_sum(NULL, eg_mul(dx[k], dx[k]));
        sum = sum ? eg_add(sum, part) : part;
    }
    if (s->orders < 2 || eg_path_to(sum, xs[0], NULL) != EG_OPEN_PATH)
        return eg_error(s->cx) != NULL;
    eg_nograd(s->cx, true);
    const int bad = eg_grad(sum, NULL, n, xs, ddx);
    eg_nograd(s->cx, was);
    for (int k = 0; k < n && !bad; k++) out[1 + OPERANDS + k] = ddx[k];
    return bad;
}
/* Outputs that a step left NULL are none. */
static int sample_step_filled(void *user, eg_tensor **out)
{
    const sampled *s = user;
    const int bad = sample_step(user, out);
    for (int k = 1; k < OUTPUTS && !bad; k++)
        if (!out[k]) out[k] = out[0];
    return bad || eg_error(s->cx) != NULL;
}
/* Captures one sample of a row, and compares three runs with the step. */
static int sample_agrees(const eg_op *op, const eg_sample *of, eg_dtype dtype, int threads,
                         int orders)
{
    sampled s = { .cx = eg_open(.threads = threads, .dtype = dtype), .of = of, .orders = orders };
    make_operands(&s, dtype);
    eg_assert_ok(s.cx);
    eg_captured *c = eg_capture(s.cx, sample_step_filled, &s, OUTPUTS);
    if (!c) ck_abort_msg("%s: %s", op->name, eg_error(s.cx));
    for (int turn = 0; turn < 3; turn++) {
        const eg_mark m = eg_push(s.cx);
        eg_tensor *out[OUTPUTS];
        fill_operands(&s);
        const uint64_t draws = eg_draws(s.cx);
        eg_assert_ok(s.cx);
        ck_assert_msg(!eg_captured_run(c), "%s: %s", op->name, eg_error(s.cx));
        const uint64_t after = eg_draws(s.cx);
        eg_set_draws(s.cx, draws);
        ck_assert(!sample_step_filled(&s, out));
        ck_assert_uint_eq(eg_draws(s.cx), after);
        for (int k = 0; k < OUTPUTS; k++)
            ck_assert_msg(same_bits(eg_captured_output(c, k), out[k]),
                          "%s (%s): output %d, turn %d", op->name, of->shapes, k, turn);
        eg_pop(s.cx, m);
    }
    eg_close(s.cx);
    return 1;
}
static int rows_of_table(void)
{
    int n = 0;
    while (eg_op_at(n)) n++;
    return n;
}
LOOP_TEST(rows_run_again_with_the_bits_of_the_step, rows_of_table())
{
    const eg_op *op = eg_op_at(_i);
    if (!strncmp(op->name, "copies_", 7)) return; /* a captured step refuses copies */
    for (const eg_sample *s = op->samples; s && s->call; s++) {
        sample_agrees(op, s, EG_F32, 1, 2);
        sample_agrees(op, s, EG_F64, 2, 1);
    }
}

/* -- modules and optimisers -------------------------------------------------------------------- */
enum { BATCH = 3, LENGTH = 6, WIDE = 16, CLASSES = 7, SIDES = 2 };
typedef struct lesson lesson;
typedef struct subject {
    const char *name;
    bool (*open)(lesson *);
    eg_tensor *(*loss)(lesson *);
} subject;
struct lesson {
    eg_ctx *cx;
    eg_params *params;
    eg_opt *opt;
    eg_tensor *x, *token, *target, *lengths, *document;
    eg_mha *mha;
    eg_block *block;
    eg_transformer *net;
    eg_seq2seq *pair;
    const subject *of;
};
static bool open_mha(lesson *l)
{
    l->mha =
        eg_mha_new(l->params, "mha", .d_model = WIDE, .heads = 2, .dropout = 0.1, .rotary = 10000);
    return l->mha != NULL;
}
static eg_tensor *loss_mha(lesson *l)
{
    return eg_mean(NULL, eg_square(eg_mha_run(l->mha, l->x, .where = "j <= i")));
}
static eg_tensor *loss_documents(lesson *l)
{
    eg_tensor *y = eg_mha_run(l->mha, l->x, .where = "doc[b,j] == doc[b,i]",
                              .with = { { "doc", l->document } });
    return eg_mean(NULL, eg_square(y));
}
static bool open_block(lesson *l)
{
    l->block = eg_block_new(l->params, "block", .d_model = WIDE, .heads = 2, .dropout = 0.2,
                            .gated = true);
    return l->block != NULL;
}
static eg_tensor *loss_block(lesson *l)
{
    return eg_mean(NULL, eg_square(eg_block_run(l->block, l->x)));
}
static bool open_net(lesson *l)
{
    l->net = eg_transformer_new(.params = l->params, .vocabulary = CLASSES, .length = LENGTH,
                                .layers = 2, .d_model = WIDE, .heads = 2, .dropout = 0.1);
    return l->net != NULL;
}
static eg_tensor *loss_net(lesson *l)
{
    eg_tensor *y = eg_transformer_run(.transformer = l->net, .index = l->token, .where = "j <= i");
    return eg_cross_entropy("b l [v]", y, l->target, .ignore = -1, .smoothing = 0.1);
}
static bool open_pair(lesson *l)
{
    l->pair = eg_seq2seq_new(.params = l->params, .source_vocabulary = CLASSES,
                             .vocabulary = CLASSES, .source_length = LENGTH, .length = LENGTH,
                             .layers = 1, .d_model = WIDE, .heads = 2);
    return l->pair != NULL;
}
static eg_tensor *loss_pair(lesson *l)
{
    eg_tensor *y = eg_seq2seq_run(.net = l->pair, .source = l->token, .target = l->token);
    return eg_cross_entropy("b l [v]", y, l->target, .ignore = -1);
}
static const subject subjects[] = {
    { "mha", open_mha, loss_mha },       { "documents", open_mha, loss_documents },
    { "block", open_block, loss_block }, { "transformer", open_net, loss_net },
    { "seq2seq", open_pair, loss_pair },
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };
static eg_opt *optimiser(eg_params *p, int k)
{
    switch (k) {
    case 0: return eg_sgd(p, .lr = 0.05, .momentum = 0.9);
    case 1: return eg_adam(p, .lr = 0.01, .clip_norm = 0.5);
    case 2: return eg_adamw(p, .lr = 0.01, .schedule = { .decay = EG_LINEAR, .steps = 9 });
    case 3: return eg_rmsprop(p, .momentum = 0.5, .centered = true);
    default: return eg_adagrad(p);
    }
}
static void lesson_begin(lesson *l, const subject *of, eg_ctx *cx, int opt)
{
    *l = (lesson){ .cx = cx, .of = of };
    l->params = eg_params_open(l->cx);
    ck_assert(of->open(l));
    l->opt = optimiser(l->params, opt);
    l->x = eg_normal(l->cx, 0, 1, BATCH, LENGTH, WIDE);
    l->token = eg_randint(l->cx, 0, CLASSES, BATCH, LENGTH);
    l->target = eg_randint(l->cx, -1, CLASSES, BATCH, LENGTH);
    l->document = eg_randint(l->cx, 0, 3, BATCH, LENGTH);
    eg_assert_ok(l->cx);
}
static void lesson_open(lesson *l, const subject *of, eg_dtype dtype, int threads, int opt)
{
    lesson_begin(l, of, eg_open(.threads = threads, .dtype = dtype, .seed = 3), opt);
}
/* The batch of a step: numbers that were drawn for it, as another context would have drawn them. */
static void lesson_batch(lesson *l, int step)
{
    const eg_mark m = eg_push(l->cx);
    const uint64_t draws = eg_draws(l->cx);
    eg_set_draws(l->cx, 1000 + 10 * (uint64_t)step);
    eg_assign(l->x, eg_normal(l->cx, 0, 1, BATCH, LENGTH, WIDE));
    eg_assign(l->token, eg_randint(l->cx, 0, CLASSES, BATCH, LENGTH));
    eg_assign(l->target, eg_randint(l->cx, -1, CLASSES, BATCH, LENGTH));
    eg_set_draws(l->cx, draws);
    eg_pop(l->cx, m);
}
static int lesson_step(void *user, eg_tensor **out)
{
    lesson *l = user;
    out[0] = l->of->loss(l);
    return eg_step(l->opt, out[0]);
}
static void compare_parameters(const lesson *a, const lesson *b)
{
    for (int k = 0; eg_params_at(a->params, k); k++)
        ck_assert_msg(same_bits(eg_params_at(a->params, k)->x, eg_params_at(b->params, k)->x),
                      "%s: %s", a->of->name, eg_params_at(a->params, k)->name);
    for (int k = 0; eg_opt_state(a->opt, k); k++)
        ck_assert(same_bits(eg_opt_state(a->opt, k)->x, eg_opt_state(b->opt, k)->x));
}
/* Steps of one context are captured, those of another are not. */
static void steps_agree(const subject *of, eg_dtype dtype, int threads, int opt)
{
    lesson eager, again;
    eg_captured *c = NULL;
    lesson_open(&eager, of, dtype, 1, opt);
    lesson_open(&again, of, dtype, threads, opt);
    for (int step = 0; step < 4; step++) {
        eg_tensor *loss;
        lesson_batch(&eager, step);
        lesson_batch(&again, step);
        const eg_mark m = eg_push(eager.cx);
        ck_assert(!lesson_step(&eager, &loss));
        if (!c) {
            c = eg_capture(again.cx, lesson_step, &again, 1);
            if (!c) ck_abort_msg("%s: %s", of->name, eg_error(again.cx));
        } else if (eg_captured_run(c))
            ck_abort_msg("%s: %s", of->name, eg_error(again.cx));
        ck_assert_msg(same_bits(loss, eg_captured_output(c, 0)), "%s: the loss of step %d",
                      of->name, step);
        eg_pop(eager.cx, m);
        ck_assert_uint_eq(eg_draws(eager.cx), eg_draws(again.cx));
    }
    compare_parameters(&eager, &again);
    eg_close(eager.cx);
    eg_close(again.cx);
}
LOOP_TEST(steps_of_modules_run_again, SUBJECTS)
{
    steps_agree(&subjects[_i], EG_F32, 1, 1);
    steps_agree(&subjects[_i], EG_F32, 2, 0);
    steps_agree(&subjects[_i], EG_F32, 5, 1);
    steps_agree(&subjects[_i], EG_F64, 1, 2);
}
LOOP_TEST(steps_of_optimisers_run_again, 5) { steps_agree(&subjects[2], EG_F32, 1, _i); }

/* -- acts: what is no row -----------------------------------------------------------------------
 */
typedef struct acts {
    eg_ctx *cx;
    eg_tensor *x, *state, *count;
} acts;
static int tally(void *args, int count, eg_tensor *const *x)
{
    double *n = eg_mut_f64(*(eg_tensor **)args);
    if (!n || count != 2 || x[1]) return -1;
    n[0] += eg_item(x[0]);
    return 0;
}
/* Assignments to leaves of the step and to a tensor that was there, a sum in place, draws, einsum
 * into a target, scopes, a checkpoint, and a function of the program. */
static eg_tensor *inner(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_dropout(eg_tanh(x[0]), 0.25);
}
static int acts_step(void *user, eg_tensor **out)
{
    const acts *a = user;
    eg_tensor *zeros = eg_zeros(a->cx, 4, 4), *seen = eg_add(zeros, a->x), *dx;
    eg_assign(zeros, a->x);
    eg_fill(eg_slice_axis(zeros, 0, 1, 2, 1), 7);
    const eg_mark m = eg_push(a->cx);
    eg_tensor *kept = eg_keep(eg_exp(eg_uniform(a->cx, 0, 1, 4, 4)));
    eg_pop(a->cx, m);
    eg_nograd(a->cx, true);
    eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                      .spec = "ij,jk->ik",
                                      .count = 2,
                                      .operands = (eg_tensor *[]){ a->x, kept },
                                      .out = zeros,
                                      .beta = 0.5 });
    eg_assign(a->state, eg_add(a->state, eg_cast(zeros, EG_F64)));
    eg_nograd(a->cx, false);
    eg_tensor *y = eg_checkpoint(inner, NULL, 1, &a->x),
              *loss = eg_sum(NULL, eg_mul(y, eg_detach(eg_add(zeros, seen))));
    eg_tensor *const reads[] = { loss, NULL };
    if (eg_grad(loss, NULL, 1, &a->x, &dx)) return -1;
    out[0] = dx;
    out[1] = a->state;
    out[2] = eg_transpose(zeros, 0, 1);
    return eg_host_call(a->cx, tally, &a->count, sizeof a->count, 2, reads);
}
static void acts_open(acts *a)
{
    *a = (acts){ .cx = eg_open(.threads = 2, .seed = 9) };
    a->x = eg_normal(a->cx, 0, 1, 4, 4);
    a->state = eg_full_n(a->cx, EG_F64, 0, 2, (int64_t[]){ 4, 4 });
    a->count = eg_full_n(a->cx, EG_F64, 0, 0, NULL);
}
TEST(acts_run_again_with_the_bits_of_the_step)
{
    acts eager, again;
    eg_captured *c = NULL;
    acts_open(&eager);
    acts_open(&again);
    for (int turn = 0; turn < 4; turn++) {
        eg_tensor *out[3];
        const eg_mark m = eg_push(eager.cx);
        for (int k = 0; k < 2; k++) {
            acts *a = k ? &again : &eager;
            if (turn == 2) eg_seed(a->cx, 77);
            eg_mut_f32(a->x)[turn] = (float)turn;
        }
        ck_assert(!acts_step(&eager, out));
        if (c)
            ck_assert_msg(!eg_captured_run(c), "%s", eg_error(again.cx));
        else
            c = eg_capture(again.cx, acts_step, &again, 3);
        eg_assert_ok(again.cx);
        for (int k = 0; k < 3; k++)
            ck_assert_msg(same_bits(out[k], eg_captured_output(c, k)), "%d of turn %d", k, turn);
        ck_assert(same_bits(eager.count, again.count));
        eg_pop(eager.cx, m);
    }
    ck_assert_ptr_eq(eg_captured_output(c, 1), again.state);
    eg_close(eager.cx);
    eg_close(again.cx);
}

/* -- memory --------------------------------------------------------------------------------------
 */
static int deep_step(void *user, eg_tensor **out)
{
    eg_tensor *x = user, *y = x;
    for (int k = 0; k < 50; k++) y = eg_tanh(eg_scale(y, 1.01));
    *out = eg_sum(NULL, y);
    return 0;
}
TEST(bytes_are_those_that_the_context_counts)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_ones(cx, 1000);
    const size_t before = eg_stats(cx).used;
    eg_captured *c = eg_capture(cx, deep_step, x, 1);
    ck_assert_ptr_nonnull(c);
    const eg_usage made = eg_stats(cx);
    ck_assert_uint_eq(made.used - before, eg_captured_bytes(c));
    eg_stats_reset(cx);
    for (int k = 0; k < 3; k++) ck_assert(!eg_captured_run(c));
    const eg_usage run = eg_stats(cx);
    ck_assert_uint_eq(run.used_peak, made.used);
    ck_assert_uint_eq(run.mallocs, made.mallocs);
    ck_assert_uint_eq(run.nodes, made.nodes);
    eg_captured_free(c);
#if !EG_DEBUG_ALLOC /* else the list of rows that were looked at counts, too */
    ck_assert_uint_eq(eg_stats(cx).used, before);
#endif
    eg_close(cx);
}
/* 100 results of 4000 bytes, of which two are used at a time. */
TEST(numbers_that_are_not_used_at_the_same_time_share_memory)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_nograd(cx, true);
    eg_captured *c = eg_capture(cx, deep_step, eg_ones(cx, 1000), 1);
    ck_assert_ptr_nonnull(c);
    ck_assert_uint_lt(eg_captured_bytes(c), 60000);
    eg_close(cx);
}
/* An allocator whose call number limited_fail fails, counted from when that was set. */
static int limited_calls, limited_fail = -1;
static void *limited(void *user, void *p, size_t old, size_t size)
{
    (void)user, (void)old;
    if (size && limited_fail >= 0 && limited_calls++ == limited_fail) return NULL;
    if (size) return realloc(p, size);
    free(p);
    return NULL;
}
TEST(memory_that_runs_out_is_refused_and_given_back)
{
    for (int fail = 0, done = 0; !done; fail++) {
        lesson l;
        limited_fail = -1;
        lesson_begin(&l, &subjects[2], eg_open(.threads = 1, .realloc = limited), 1);
        limited_calls = 0;
        limited_fail = fail;
        eg_captured *c = eg_capture(l.cx, lesson_step, &l, 1);
        limited_fail = -1;
        done = c != NULL;
        ck_assert(done || eg_error_code(l.cx) == EG_ERROR_MEMORY);
        eg_clear(l.cx);
        if (!c) c = eg_capture(l.cx, lesson_step, &l, 1);
        ck_assert(c && !eg_captured_run(c));
        eg_close(l.cx);
    }
}

/* -- what is refused -----------------------------------------------------------------------------
 */
typedef struct refusal {
    const char *sentence;
    int (*step)(void *user, eg_tensor **out);
} refusal;
#define REFUSED(name, code)                             \
    static int refused_##name(void *u, eg_tensor **out) \
    {                                                   \
        acts *a = u;                                    \
        *out = eg_scale(a->x, 2);                       \
        code;                                           \
        return 0;                                       \
    }
static eg_tensor *refused_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    (void)user, (void)from, (void)to, (void)count;
    return eg_scalar(cx, 1);
}
static int fails(void *args, int count, eg_tensor *const *x)
{
    (void)args, (void)count, (void)x;
    return 1;
}
REFUSED(item, eg_item(eg_sum(NULL, *out)))
REFUSED(get, eg_get(*out, 0, 0))
REFUSED(f32, eg_f32(a->x))
REFUSED(raw, eg_raw(*out, NULL))
REFUSED(mut, eg_mut_f32(a->x))
REFUSED(print, eg_format(*out, NULL, 0))
REFUSED(from, eg_from(a->cx, (float[]){ 1 }, 1))
REFUSED(keep, eg_keep(*out))
REFUSED(owner, eg_owner_open(a->cx))
REFUSED(params, eg_params_open(a->cx))
REFUSED(seed, eg_seed(a->cx, 1))
REFUSED(draws, eg_set_draws(a->cx, 1))
REFUSED(pop, eg_pop(a->cx, *(eg_mark *)(void *)(a + 1)))
REFUSED(inside, eg_captured_run(eg_capture(a->cx, refused_item, a, 1)))
REFUSED(over, eg_grad_over(.cx = a->cx, .loss = refused_loss, .examples = 1, .count = 1,
                           .xs = &a->x, .dxs = out))
REFUSED(mine, eg_no_capture(a->cx, "my cache"))
REFUSED(host, eg_host_call(a->cx, fails, NULL, 0, 0, NULL))
REFUSED(open, eg_push(a->cx))
REFUSED(none, *out = NULL)
static const refusal refusals[] = {
    { "item: in a step that is captured no number is read", refused_item },
    { "get: in a step that is captured no number is read", refused_get },
    { "f32: in a step that is captured no number is read", refused_f32 },
    { "raw: in a step that is captured no number is read", refused_raw },
    { "mut_f32: in a step that is captured no number is read", refused_mut },
    { "format: in a step that is captured no number is read", refused_print },
    { "from: in a step that is captured numbers of the program", refused_from },
    { "keep: in a step that is captured nothing outlives it", refused_keep },
    { "owner: in a step that is captured nothing outlives", refused_owner },
    { "owner: in a step that is captured nothing outlives", refused_params },
    { "seed: in a step that is captured", refused_seed },
    { "set_draws: in a step that is captured", refused_draws },
    { "pop: this mark belongs to no open scope", refused_pop },
    { "capture: inside of a captured step", refused_inside },
    { "grad_over: in a step that is captured", refused_over },
    { "my cache: in a step that is captured", refused_mine },
    { "host_call: the function failed", refused_host },
    { "capture: the step left a scope open", refused_open },
    { "capture: output", refused_none },
};
LOOP_TEST(what_no_run_could_do_again_is_refused_by_name, sizeof refusals / sizeof *refusals)
{
    struct {
        acts a;
        eg_mark m;
    } u;
    acts_open(&u.a);
    u.m = eg_push(u.a.cx);
    const eg_usage before = eg_stats(u.a.cx);
    ck_assert_ptr_null(eg_capture(u.a.cx, refusals[_i].step, &u, 1));
    ck_assert_ptr_nonnull(eg_error(u.a.cx));
    ck_assert_msg(!strncmp(eg_error(u.a.cx), refusals[_i].sentence, strlen(refusals[_i].sentence)),
                  "%s", eg_error(u.a.cx));
#if !EG_DEBUG_ALLOC
    ck_assert_uint_eq(eg_stats(u.a.cx).used, before.used);
#else
    (void)before;
#endif
    eg_clear(u.a.cx);
    ck_assert(!eg_capturing(u.a.cx));
    eg_tensor *y = eg_scale(u.a.x, 2); /* the context works on */
    ck_assert(eg_ok(y) && eg_f32(y));
    eg_pop(u.a.cx, u.m);
    eg_close(u.a.cx);
}

typedef struct changing {
    eg_ctx *cx;
    eg_tensor *x, *index, *inside;
} changing;
static int changing_step(void *user, eg_tensor **out)
{
    changing *c = user;
    c->inside = eg_scale(c->x, 2);
    *out =
        eg_softmax("i [j]", eg_scale(c->x, 3), .where = "j <= n[i]", .with = { { "n", c->index } });
    *out = eg_mul(*out, eg_at("[i] j, k -> k j", c->inside, c->index));
    return 0;
}
TEST(runs_refuse_what_would_lead_to_another_graph)
{
    changing u = { .cx = eg_open(.threads = 1) };
    u.x = eg_ones(u.cx, 4, 4);
    u.index = eg_from(u.cx, (int64_t[]){ 0, 3, 1, 1 }, 4);
    eg_captured *c = eg_capture(u.cx, changing_step, &u, 1);
    eg_assert_ok(u.cx);
    eg_mut_i64(u.index)[0] = 2; /* within the bounds that it was planned for */
    ck_assert(!eg_captured_run(c));
    eg_tensor *same;
    ck_assert(!changing_step(&u, &same) && same_bits(same, eg_captured_output(c, 0)));
    eg_mut_i64(u.index)[0] = 4;
    ck_assert(eg_captured_run(c));
    ck_assert_ptr_nonnull(strstr(eg_error(u.cx), "integers are now 1 to 4"));
    eg_clear(u.cx);
    eg_mut_i64(u.index)[0] = 0;
    ck_assert(!eg_captured_run(c));
    ck_assert(!eg_ok(eg_scale(eg_captured_output(c, 1), 1)));
    eg_clear(u.cx);
    eg_close(u.cx);
}
TEST(inner_tensors_cannot_be_used_outside)
{
    changing u = { .cx = eg_open(.threads = 1) };
    u.x = eg_ones(u.cx, 4, 4);
    u.index = eg_from(u.cx, (int64_t[]){ 0, 3, 1, 1 }, 4);
    ck_assert(eg_capture(u.cx, changing_step, &u, 1));
    ck_assert(!eg_ok(eg_scale(u.inside, 1)));
    ck_assert_ptr_nonnull(strstr(eg_error(u.cx), "belongs to a captured step"));
    eg_close(u.cx);
}
#if !EG_DEBUG_ALLOC
TEST(runs_refuse_tensors_that_are_gone)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_owner *o = eg_owner_open(cx);
    eg_captured *c = eg_capture(cx, deep_step, eg_owner_tensor(o, EG_F32, 1, (int64_t[]){ 3 }), 1);
    ck_assert_ptr_nonnull(c);
    eg_owner_close(o);
    ck_assert(eg_captured_run(c));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "is gone"));
    eg_close(cx);
}
#endif
