/* test_capture.c: steps that are captured and run again (eg_capture). */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

/* True if two tensors have the same type, shape and bits. */
static bool same_bits(eg_tensor *a, eg_tensor *b)
{
    if (!eg_ok(a) || !eg_ok(b) || eg_type(a) != eg_type(b) || eg_rank(a) != eg_rank(b) ||
        memcmp(eg_dims(a), eg_dims(b), (size_t)eg_rank(a) * sizeof(int64_t)))
        return false;
    a = eg_contiguous(a);
    b = eg_contiguous(b);
    static const size_t width[] = { [EG_F32] = 4, [EG_F64] = 8,   [EG_I32] = 4,
                                    [EG_I64] = 8, [EG_C128] = 16, [EG_BOOL] = 1 };
    return !memcmp(eg_raw(a, NULL), eg_raw(b, NULL), (size_t)eg_size(a) * width[eg_type(a)]);
}

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
        eg_tensor *x =
            below ? eg_randint_n(s->cx, 0, below, rank, dim)
            : kind && *kind == 'i'
                ? eg_randint_n(s->cx, 0, 9, rank, dim)
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
    l->mha = eg_mha_new(l->params, "mha", .d_model = WIDE, .heads = 2, .dropout = 0.1,
                               .rotary = 10000);
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
    l->block = eg_block_new(l->params, "block", .d_model = WIDE, .heads = 2,
                                   .dropout = 0.2, .gated = true);
    return l->block != NULL;
}
static eg_tensor *loss_block(lesson *l)
{
    return eg_mean(NULL, eg_square(eg_block_run(l->block, l->x)));
}
static bool open_net(lesson *l)
{
    l->net = eg_transformer_new(.params = l->params, .vocabulary = CLASSES,
                                       .length = LENGTH, .layers = 2, .d_model = WIDE, .heads = 2,
                                       .dropout = 0.1);
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
                                    .vocabulary = CLASSES, .source_length = LENGTH,
                                    .length = LENGTH, .layers = 1, .d_model = WIDE, .heads = 2);
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
static void lesson_open(lesson *l, const subject *of, eg_dtype dtype, int threads, int opt)
{
    *l = (lesson){ .cx = eg_open(.threads = threads, .dtype = dtype, .seed = 3), .of = of };
    l->params = eg_params_open(l->cx);
    ck_assert(of->open(l));
    l->opt = optimiser(l->params, opt);
    l->x = eg_normal(l->cx, 0, 1, BATCH, LENGTH, WIDE);
    l->token = eg_randint(l->cx, 0, CLASSES, BATCH, LENGTH);
    l->target = eg_randint(l->cx, -1, CLASSES, BATCH, LENGTH);
    l->document = eg_randint(l->cx, 0, 3, BATCH, LENGTH);
    eg_assert_ok(l->cx);
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
