/* test_capture.c: steps that are captured and run again (eg_capture). */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

/* -- the samples of operations: value and gradients -------------------------------------------- */
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
/* Makes the operands of a sample. */
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
/* Outputs that a step left NULL do not count. */
static int sample_step_filled(void *user, eg_tensor **out)
{
    const sampled *s = user;
    const int bad = sample_step(user, out);
    for (int k = 1; k < OUTPUTS && !bad; k++)
        if (!out[k]) out[k] = out[0];
    return bad || eg_error(s->cx) != NULL;
}
/* Captures one sample of an operation, and compares three runs with the step. */
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
static int operations(void)
{
    int n = 0;
    while (eg_op_at(n)) n++;
    return n;
}
LOOP_TEST(operations_run_again_with_the_bits_of_the_step, operations())
{
    const eg_op *op = eg_op_at(_i);
    if (!strncmp(op->name, "copies_", 7)) return; /* their sample opens an owner inside the step */
    for (const eg_sample *s = op->samples; s && s->call; s++) {
        sample_agrees(op, s, EG_F32, 1, 2);
        sample_agrees(op, s, EG_F64, 2, 1);
    }
}

/* -- modules and optimisers -------------------------------------------------------------------- */
enum { BATCH = 3, LENGTH = 6, WIDE = 16, CLASSES = 7, SIDES = 2 };
typedef struct training training;
typedef struct model_case {
    const char *name;
    bool (*open)(training *);
    eg_tensor *(*loss)(training *);
} model_case;
struct training {
    eg_ctx *cx;
    eg_params *params;
    eg_opt *opt;
    eg_tensor *x, *token, *target, *lengths, *document;
    eg_mha *mha;
    eg_block *block;
    eg_transformer *net;
    eg_seq2seq *pair;
    const model_case *of;
};
static bool open_mha(training *l)
{
    l->mha =
        eg_mha_new(l->params, "mha", .d_model = WIDE, .heads = 2, .dropout = 0.1, .rotary = 10000);
    return l->mha != NULL;
}
static eg_tensor *loss_mha(training *l)
{
    return eg_mean(NULL, eg_square(eg_mha_run(l->mha, l->x, .where = "j <= i")));
}
static eg_tensor *loss_documents(training *l)
{
    eg_tensor *y = eg_mha_run(l->mha, l->x, .where = "doc[b,j] == doc[b,i]",
                              .with = { { "doc", l->document } });
    return eg_mean(NULL, eg_square(y));
}
static bool open_block(training *l)
{
    l->block = eg_block_new(l->params, "block", .d_model = WIDE, .heads = 2, .dropout = 0.2,
                            .gated = true);
    return l->block != NULL;
}
static eg_tensor *loss_block(training *l)
{
    return eg_mean(NULL, eg_square(eg_block_run(l->block, l->x)));
}
static bool open_net(training *l)
{
    l->net = eg_transformer_new(.params = l->params, .vocabulary = CLASSES, .length = LENGTH,
                                .layers = 2, .d_model = WIDE, .heads = 2, .dropout = 0.1);
    return l->net != NULL;
}
static eg_tensor *loss_net(training *l)
{
    eg_tensor *y = eg_transformer_run(.transformer = l->net, .index = l->token, .where = "j <= i");
    return eg_cross_entropy("b l [v]", y, l->target, .ignore = -1, .smoothing = 0.1);
}
static bool open_pair(training *l)
{
    l->pair = eg_seq2seq_new(.params = l->params, .source_vocabulary = CLASSES,
                             .vocabulary = CLASSES, .source_length = LENGTH, .length = LENGTH,
                             .layers = 1, .d_model = WIDE, .heads = 2);
    return l->pair != NULL;
}
static eg_tensor *loss_pair(training *l)
{
    eg_tensor *y = eg_seq2seq_run(.net = l->pair, .source = l->token, .target = l->token);
    return eg_cross_entropy("b l [v]", y, l->target, .ignore = -1);
}
static const model_case model_cases[] = {
    { "mha", open_mha, loss_mha },       { "documents", open_mha, loss_documents },
    { "block", open_block, loss_block }, { "transformer", open_net, loss_net },
    { "seq2seq", open_pair, loss_pair },
};
enum { SUBJECTS = sizeof model_cases / sizeof *model_cases };
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
static void training_begin(training *l, const model_case *of, eg_ctx *cx, int opt)
{
    *l = (training){ .cx = cx, .of = of };
    l->params = eg_params_open(l->cx);
    ck_assert(of->open(l));
    l->opt = optimiser(l->params, opt);
    l->x = eg_normal(l->cx, 0, 1, BATCH, LENGTH, WIDE);
    l->token = eg_randint(l->cx, 0, CLASSES, BATCH, LENGTH);
    l->target = eg_randint(l->cx, -1, CLASSES, BATCH, LENGTH);
    l->document = eg_randint(l->cx, 0, 3, BATCH, LENGTH);
    eg_assert_ok(l->cx);
}
static void training_open(training *l, const model_case *of, eg_dtype dtype, int threads, int opt)
{
    training_begin(l, of, eg_open(.threads = threads, .dtype = dtype, .seed = 3), opt);
}
/* The batch of a step: elements that were drawn for it, as another context would draw them. */
static void training_batch(training *l, int step)
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
static int training_step(void *user, eg_tensor **out)
{
    training *l = user;
    out[0] = l->of->loss(l);
    return eg_step(l->opt, out[0]);
}
static void compare_parameters(const training *a, const training *b)
{
    for (int k = 0; eg_params_at(a->params, k); k++)
        ck_assert_msg(same_bits(eg_params_at(a->params, k)->x, eg_params_at(b->params, k)->x),
                      "%s: %s", a->of->name, eg_params_at(a->params, k)->name);
    for (int k = 0; eg_opt_state(a->opt, k); k++)
        ck_assert(same_bits(eg_opt_state(a->opt, k)->x, eg_opt_state(b->opt, k)->x));
}
/* The steps of one context are captured, those of another are not. */
static void steps_agree(const model_case *of, eg_dtype dtype, int threads, int opt)
{
    training eager, again;
    eg_captured *c = NULL;
    training_open(&eager, of, dtype, 1, opt);
    training_open(&again, of, dtype, threads, opt);
    for (int step = 0; step < 4; step++) {
        eg_tensor *loss;
        training_batch(&eager, step);
        training_batch(&again, step);
        const eg_mark m = eg_push(eager.cx);
        ck_assert(!training_step(&eager, &loss));
        if (!c) {
            c = eg_capture(again.cx, training_step, &again, 1);
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
    steps_agree(&model_cases[_i], EG_F32, 1, 1);
    steps_agree(&model_cases[_i], EG_F32, 2, 0);
    steps_agree(&model_cases[_i], EG_F32, 5, 1);
    steps_agree(&model_cases[_i], EG_F64, 1, 2);
}
LOOP_TEST(steps_of_optimisers_run_again, 5) { steps_agree(&model_cases[2], EG_F32, 1, _i); }

/* A gradient of a graph that was made before the step reads values of that time: a run is refused
 * if one of them has changed, and only then. */
typedef struct history_case {
    eg_tensor *y, *x, *w;
} history_case;
static int history_step(void *user, eg_tensor **out)
{
    const history_case *h = user;
    return eg_grad(h->y, NULL, 1, &h->x, out);
}
LOOP_TEST(gradients_of_an_older_graph, 5)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_normal(cx, 0, 1, 70, 80), *w = eg_normal(cx, 1, 1, 80);
    eg_tensor *y = _i == 0   ? eg_layernorm("b [v]", x, .gain = w)
                   : _i == 1 ? eg_attention("id,jd,je->ie", x, x, x)
                   : _i == 2 ? eg_exp(x)
                             : eg_mul(x, w);
    history_case h = { eg_sum(NULL, y), x, w };
    eg_captured *c = eg_capture(cx, history_step, &h, 1);
    eg_assert_ok(cx);
    ck_assert(!eg_captured_run(c));
    eg_assign(_i < 2 || _i == 4 ? x : _i == 2 ? y : w, eg_zeros_like(_i < 3 || _i == 4 ? x : w));
    if (_i == 4) { /* x w: the gradient of x does not read x */
        ck_assert(!eg_captured_run(c));
    } else {
        ck_assert(eg_captured_run(c));
        ck_assert_ptr_nonnull(strstr(eg_error(cx), "was changed in place, and the gradient"));
        ck_assert_ptr_nonnull(strstr(eg_error(cx), _i == 2   ? "the result of exp"
                                                   : _i == 3 ? "operand 2 of mul"
                                                             : "operand "));
    }
    eg_close(cx);
}

/* -- acts: items that are not operations ------------------------------------------------------- */
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
/* Assignments to leaves of the step and to an older tensor, a sum in place, draws, einsum into a
 * target, scopes, a checkpoint, and a function of the program. */
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
    ck_assert(!eg_ok(eg_captured_output(c, 9)));
    eg_assert_error(again.cx, "captured_output: there is no output 9; the step has 3");
    eg_close(eager.cx);
    eg_close(again.cx);
}

/* Values that share memory with targets: two tensors change places, a part of one is shifted. */
static int exchange_step(void *user, eg_tensor **out)
{
    acts *a = user;
    eg_tensor *rest = eg_slice_axis(a->count, 0, 1, EG_END, 1);
    eg_tensor *targets[] = { a->x, a->state, rest };
    eg_tensor *values[] = { eg_transpose(a->state, 0, 1), a->x,
                            eg_slice_axis(a->count, 0, 0, -1, 1) };
    if (eg_assign_all(3, targets, values)) return -1;
    out[0] = eg_sub(a->x, eg_cast(a->state, EG_F32));
    return 0;
}
static void exchange_open(acts *a)
{
    *a = (acts){ .cx = eg_open(.seed = 4) };
    a->x = eg_normal(a->cx, 0, 1, 4, 4);
    a->state = eg_cast(eg_normal(a->cx, 0, 1, 4, 4), EG_F64);
    a->count = eg_normal(a->cx, 0, 1, 5);
}
TEST(assignments_of_a_step_read_values_as_they_were_before)
{
    acts eager, again;
    eg_captured *c = NULL;
    exchange_open(&eager);
    exchange_open(&again);
    for (int turn = 0; turn < 4; turn++) {
        eg_tensor *out;
        const eg_mark m = eg_push(eager.cx);
        ck_assert(!exchange_step(&eager, &out));
        if (c)
            ck_assert_msg(!eg_captured_run(c), "%s", eg_error(again.cx));
        else
            c = eg_capture(again.cx, exchange_step, &again, 1);
        eg_assert_ok(again.cx);
        ck_assert_msg(same_bits(out, eg_captured_output(c, 0)), "turn %d", turn);
        ck_assert(same_bits(eager.x, again.x) && same_bits(eager.state, again.state));
        ck_assert(same_bits(eager.count, again.count));
        eg_pop(eager.cx, m);
    }
    eg_close(eager.cx);
    eg_close(again.cx);
}

/* -- rows in one pass ---------------------------------------------------------------------------
 * Sizes around a group of lanes and around a strip, and some that are divided among threads. */
enum { PASSED = 6 };
typedef struct passed {
    eg_ctx *cx;
    eg_dtype dtype;
    int64_t rows, columns;
    eg_tensor *a, *b, *row, *one;
} passed;
static const int64_t passed_sizes[][2] = { { 1, 1 },   { 1, 5 },    { 4, 4 },    { 3, 7 },
                                           { 8, 8 },   { 1, 1024 }, { 1, 1025 }, { 41, 25 },
                                           { 64, 50 }, { 3, 1360 }, { 700, 131 } };
/* Operations with any number of operands, values that are used once, twice and as outputs, operands
 * that are transposed alike and differently, scalars, repeated rows, integers and bools. */
static int passed_step(void *user, eg_tensor **out)
{
    const passed *p = user;
    eg_tensor *a = p->a, *b = p->b;
    eg_tensor *t = eg_tanh(eg_add(eg_mul(a, b), a)), *u = eg_sigmoid(eg_sub(t, b));
    for (int k = 0; k < 70; k++)
        u = eg_shift(eg_scale(u, k % 2 ? 1.25 : 0.8), k % 3 - 1); /* one pass is not enough */
    eg_tensor *v = eg_transpose(eg_square(eg_transpose(u, 0, 1)), 0, 1);
    eg_tensor *w = p->rows == p->columns ? eg_add(v, eg_transpose(v, 0, 1)) : eg_neg(v);
    out[0] = eg_mul(eg_mul(w, p->one), eg_exp(eg_add(w, p->row)));
    out[1] = u;
    u = eg_sub(u, eg_flip_axis(eg_flip_axis(u, 0), 1)); /* reversed */
    out[2] = eg_where(eg_gt(eg_abs(a), eg_abs(u)), eg_powc(a, 3), eg_maximum(t, eg_atan2(a, w)));
    eg_tensor *first = eg_slice_axis(w, 1, 0, (p->columns + 1) / 2, 1);
    out[3] = eg_add(eg_scale(first, 2), first);
    eg_tensor *loss = eg_add(eg_sum(NULL, out[0]), eg_sum(NULL, eg_mul(out[2], t)));
    eg_nograd(p->cx, true);
    const int bad = eg_grad(loss, NULL, 2, (eg_tensor *[]){ a, b }, &out[4]);
    eg_nograd(p->cx, false);
    return bad;
}
static void passed_open(passed *p, int threads, eg_dtype dtype, const int64_t *size)
{
    *p = (passed){ .cx = eg_open(.threads = threads, .seed = 5),
                   .dtype = dtype,
                   .rows = size[0],
                   .columns = size[1] };
    p->a = eg_full_n(p->cx, dtype, 0, 2, size);
    p->b = eg_full_n(p->cx, dtype, 0, 2, (int64_t[]){ size[1], size[0] });
    p->b = eg_detach(eg_transpose(p->b, 0, 1)); /* columns are contiguous */
    if (size[0] % 2) p->b = eg_full_n(p->cx, dtype, 0, 2, size);
    p->row = eg_uniform_n(p->cx, dtype, -1, 1, 1, size + 1);
    p->one = eg_full_n(p->cx, dtype, 1.5, 0, NULL);
}
static void passed_fill(passed *p, int turn)
{
    const eg_mark m = eg_push(p->cx);
    const int64_t size[] = { p->rows, p->columns };
    eg_set_draws(p->cx, 100 + (uint64_t)turn * 10);
    eg_assign(p->a, eg_uniform_n(p->cx, p->dtype, -2, 2, 2, size));
    eg_assign(p->b, eg_uniform_n(p->cx, p->dtype, -2, 2, 2, size));
    eg_pop(p->cx, m);
}
static void passes_agree(int threads, eg_dtype dtype, const int64_t *size)
{
    passed eager, again;
    passed_open(&eager, 1, dtype, size);
    passed_open(&again, threads, dtype, size);
    passed_fill(&again, 9);
    eg_captured *c = eg_capture(again.cx, passed_step, &again, PASSED);
    eg_assert_ok(again.cx);
    for (int turn = 0; turn < 3; turn++) {
        eg_tensor *out[PASSED];
        const eg_mark m = eg_push(eager.cx);
        passed_fill(&eager, turn);
        passed_fill(&again, turn);
        eg_threads(again.cx, turn == 1 ? 3 : threads);
        ck_assert(!passed_step(&eager, out));
        ck_assert_msg(!eg_captured_run(c), "%s", eg_error(again.cx));
        for (int k = 0; k < PASSED; k++)
            ck_assert_msg(same_bits(out[k], eg_captured_output(c, k)),
                          "output %d of %lldx%lld, turn %d", k, (long long)size[0],
                          (long long)size[1], turn);
        eg_pop(eager.cx, m);
    }
    eg_close(eager.cx);
    eg_close(again.cx);
}
LOOP_TEST(rows_in_one_pass_have_the_bits_of_the_step, sizeof passed_sizes / sizeof *passed_sizes)
{
    passes_agree(1, EG_F32, passed_sizes[_i]);
    passes_agree(2, EG_F64, passed_sizes[_i]);
    passes_agree(5, EG_F32, passed_sizes[_i]);
}

/* -- gradients of a network of products, three times ------------------------------------------- */
enum { NETWORK = 4 };
typedef struct network {
    eg_ctx *cx;
    eg_tensor *x[NETWORK];
    bool record;
} network;
/* d/dx |d/dx |tanh(dy/dx)|²|², where y is a product of four matrices with x among them */
static int network_step(void *user, eg_tensor **out)
{
    const network *n = user;
    eg_tensor *d[NETWORK], *first;
    eg_tensor *y = eg_einsum("ij,kj,kl,lm->im", n->x[0], n->x[1], n->x[2], n->x[3]);
    if (eg_grad(eg_sum(NULL, eg_tanh(y)), NULL, 1, n->x, &first)) return -1;
    if (eg_grad(eg_sum(NULL, eg_square(eg_tanh(first))), NULL, NETWORK, n->x, d)) return -1;
    eg_tensor *sum = eg_sum(NULL, eg_square(d[0]));
    for (int k = 1; k < NETWORK; k++) sum = eg_add(sum, eg_sum(NULL, eg_square(d[k])));
    const bool was = eg_nograd(n->cx, !n->record);
    const int bad = eg_grad(sum, NULL, NETWORK, n->x, out);
    eg_nograd(n->cx, was);
    return bad;
}
/* The cotangent of an intermediate product is a sum over all backward passes that read it, in the
 * same order in a captured step and outside of one. */
LOOP_TEST(gradients_of_third_order_of_a_network, 4)
{
    network n = { .cx = eg_open(.dtype = _i & 1 ? EG_F64 : EG_F32), .record = _i & 2 };
    for (int k = 0; k < NETWORK; k++) n.x[k] = eg_normal(n.cx, 0, 0.5, 6, 6);
    eg_captured *c = eg_capture(n.cx, network_step, &n, NETWORK);
    eg_tensor *out[NETWORK], *scoped[NETWORK];
    eg_assert_ok(n.cx);
    ck_assert(!eg_captured_run(c));
    const eg_mark m = eg_push(n.cx);
    ck_assert(!network_step(&n, scoped));
    eg_pop(n.cx, m);
    ck_assert(!network_step(&n, out));
    for (int k = 0; k < NETWORK; k++) ck_assert(same_bits(eg_captured_output(c, k), out[k]));
    eg_close(n.cx);
}

/* A mask of one byte per element is last read in a pass whose result has four bytes per element:
 * the result's first strip would overwrite the mask's next ones if they shared memory. */
static int masked_step(void *user, eg_tensor **out)
{
    eg_tensor *x = user, *mask = eg_gt(x, eg_square(x)), *sum = eg_sum(NULL, x);
    out[0] = eg_mul(eg_exp(eg_where(mask, x, eg_neg(x))), sum);
    return 0;
}
TEST(strips_of_a_pass_are_not_written_over_what_it_still_reads)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_nograd(cx, true);
    eg_tensor *x = eg_uniform(cx, -1, 1, 5000), *y;
    eg_captured *c = eg_capture(cx, masked_step, x, 1);
    ck_assert(!eg_captured_run(c) && !masked_step(x, &y));
    ck_assert(same_bits(y, eg_captured_output(c, 0)));
    eg_close(cx);
}
/* The start of a window is an element of a tensor, which may change between runs. */
typedef struct windowed {
    eg_tensor *x, *first, *positions;
} windowed;
static int windowed_step(void *user, eg_tensor **out)
{
    const windowed *w = user;
    eg_tensor *y = eg_at("[i] c, l -> l c", w->x, eg_add(w->first, w->positions));
    return eg_grad(eg_sum(NULL, eg_square(eg_tanh(y))), NULL, 1, (eg_tensor *[]){ w->x }, out);
}
TEST(indices_computed_in_a_captured_step_are_read_in_each_run)
{
    eg_ctx *cx = eg_open(.threads = 1);
    windowed w = { .x = eg_normal(cx, 0, 1, 12, 5),
                   .first = eg_full_n(cx, EG_I64, 0, 0, NULL),
                   .positions = eg_from(cx, (int64_t[]){ 0, 1, 2, 3 }, 4) };
    eg_captured *c = eg_capture(cx, windowed_step, &w, 1);
    eg_assert_ok(cx);
    for (int64_t first = 8; first >= 0; first -= 2) {
        eg_tensor *y;
        eg_mut_i64(w.first)[0] = first;
        ck_assert_msg(!eg_captured_run(c) && !windowed_step(&w, &y), "%s", eg_error(cx));
        ck_assert(same_bits(y, eg_captured_output(c, 0)));
    }
    eg_mut_i64(w.first)[0] = 9; /* beyond the end */
    ck_assert(eg_captured_run(c) && eg_error_code(cx) == EG_ERROR_INDEX);
    eg_close(cx);
}

/* -- memory ------------------------------------------------------------------------------------ */
static int deep_step(void *user, eg_tensor **out)
{
    eg_tensor *x = user, *y = x;
    for (int k = 0; k < 30; k++) y = eg_tanh(eg_scale(y, 1.01));
    *out = eg_sum(NULL, y);
    return 0;
}
/* Its forward() takes memory in each run, for the numbers that the gradient reads. */
static int fused_step(void *user, eg_tensor **out)
{
    eg_tensor *x = user;
    *out = eg_attention("id,jd,je->ie", x, x, x, .where = "j <= i", .form = EG_FUSED);
    return eg_grad(eg_sum(NULL, *out), NULL, 1, &x, out);
}
LOOP_TEST(bytes_are_those_that_the_context_counts, 2)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = _i ? eg_ones(cx, 40, 16) : eg_ones(cx, 1000);
    const size_t before = eg_stats(cx).used;
    eg_captured *c = eg_capture(cx, _i ? fused_step : deep_step, x, 1);
    ck_assert_ptr_nonnull(c);
    const eg_usage made = eg_stats(cx);
    ck_assert_uint_eq(made.used - before, eg_captured_bytes(c));
    eg_stats_reset(cx);
    for (int k = 0; k < 3; k++) ck_assert(!eg_captured_run(c));
    const eg_usage run = eg_stats(cx);
    ck_assert_uint_eq(run.used_peak, made.used);
    ck_assert_uint_eq(run.used, made.used);
    ck_assert_uint_eq(run.mallocs, made.mallocs);
    ck_assert_uint_eq(run.nodes, made.nodes);
    eg_captured_free(c);
#if !EG_DEBUG_ALLOC /* otherwise the list of operations that were checked counts, too */
    ck_assert_uint_eq(eg_stats(cx).used, before);
#endif
    eg_close(cx);
}
#if !EG_DEBUG_ALLOC /* otherwise the memory of a captured step is freed when it ends */
/* Makes a captured step in a scope, ends it, and records the error of one of its functions. */
static void after_the_end(eg_ctx *cx, eg_tensor *x, bool freed, int function, const char *error)
{
    const eg_mark m = eg_push(cx);
    eg_captured *c = eg_capture(cx, deep_step, x, 1);
    ck_assert_ptr_nonnull(c);
    if (freed)
        eg_captured_free(c);
    else
        eg_pop(cx, m);
    ck_assert_uint_eq(eg_captured_bytes(c), 0);
    switch (function) {
    case 0: eg_captured_free(c); break;
    case 1: ck_assert_int_eq(eg_captured_run(c), -1); break;
    default: ck_assert_ptr_null(eg_captured_output(c, 0));
    }
    eg_assert_error(cx, error);
    if (freed) eg_pop(cx, m);
}
TEST(a_captured_step_that_has_ended_is_refused)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_ones(cx, 1000);
    for (int freed = 0; freed < 2; freed++) {
        after_the_end(cx, x, freed, 0, "captured_free: the captured step ended before");
        after_the_end(cx, x, freed, 1, "captured_run: the captured step ended before");
        after_the_end(cx, x, freed, 2, "captured_output: the captured step ended before");
    }
    eg_captured *c = eg_capture(cx, deep_step, x, 1);
    ck_assert(!eg_captured_run(c));
    eg_close(cx);
}
#endif
/* The second gradient of a formula with a condition computes the condition's values, for which an
 * operand that is not row-major is copied. */
static int condition_step(void *user, eg_tensor **out)
{
    eg_tensor *x = user, *d;
    eg_tensor *y =
        eg_expr("i j", "x > 0 ? x * tanh(x) : 0 - x", .with = { { "x", eg_transpose(x, 0, 1) } });
    return eg_grad(eg_sum(NULL, eg_square(y)), NULL, 1, &x, &d) ||
           eg_grad(eg_sum(NULL, eg_square(d)), NULL, 1, &x, out);
}
TEST(runs_leave_nothing_in_the_open_scope)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_captured *c = eg_capture(cx, condition_step, eg_normal(cx, 0, 1, 9, 7), 1);
    ck_assert_ptr_nonnull(c);
    const size_t before = eg_stats(cx).used;
    for (int k = 0; k < 3; k++) ck_assert(!eg_captured_run(c));
    ck_assert_uint_eq(eg_stats(cx).used, before);
    eg_close(cx);
}
/* 60 results of 400000 bytes, of which a pass keeps one strip at a time, except for the last
 * one. */
TEST(numbers_that_are_not_used_at_the_same_time_share_memory)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_nograd(cx, true);
    eg_captured *c = eg_capture(cx, deep_step, eg_ones(cx, 100000), 1);
    ck_assert_ptr_nonnull(c);
    ck_assert_uint_lt(eg_captured_bytes(c), 600000);
    eg_close(cx);
}
/* Products, which cannot be part of a pass: 20 results of 40000 bytes, two of which are used at a
 * time. */
static int products_step(void *user, eg_tensor **out)
{
    eg_tensor *x = user, *y = x;
    for (int k = 0; k < 20; k++) y = eg_einsum("ij,jk->ik", y, x);
    *out = eg_sum(NULL, y);
    return 0;
}
TEST(products_that_are_not_used_at_the_same_time_share_memory)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_nograd(cx, true);
    eg_captured *c =
        eg_capture(cx, products_step, eg_full_n(cx, EG_F32, 0, 2, (int64_t[]){ 100, 100 }), 1);
    ck_assert_ptr_nonnull(c);
    ck_assert_uint_lt(eg_captured_bytes(c), 110000);
    eg_close(cx);
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
/* The output of a captured step can be an operand of another one. */
static int second_step(void *user, eg_tensor **out)
{
    eg_tensor *x = user;
    *out = eg_add(eg_exp(eg_transpose(x, 0, 1)), eg_einsum("ij->ji", x));
    return 0;
}
TEST(outputs_of_a_captured_step_are_operands_of_another)
{
    eg_ctx *cx = eg_open(.threads = 1);
    changing u = { .cx = cx,
                   .x = eg_ones(cx, 4, 4),
                   .index = eg_from(cx, (int64_t[]){ 0, 3, 1, 1 }, 4) };
    eg_captured *first = eg_capture(cx, changing_step, &u, 1);
    eg_captured *second = eg_capture(cx, second_step, eg_captured_output(first, 0), 1);
    eg_assert_ok(cx);
    for (int turn = 0; turn < 3; turn++) {
        eg_tensor *y, *z;
        eg_assign(u.x, eg_uniform(cx, -1, 1, 4, 4));
        ck_assert(!eg_captured_run(first) && !eg_captured_run(second));
        ck_assert(!changing_step(&u, &y) && !second_step(y, &z));
        ck_assert(same_bits(z, eg_captured_output(second, 0)));
    }
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
        training l;
        limited_fail = -1;
        training_begin(&l, &model_cases[2], eg_open(.threads = 1, .realloc = limited), 1);
        limited_calls = 0;
        limited_fail = fail;
        eg_captured *c = eg_capture(l.cx, training_step, &l, 1);
        limited_fail = -1;
        done = c != NULL;
        ck_assert(done || eg_error_code(l.cx) == EG_ERROR_MEMORY);
        eg_clear(l.cx);
        if (!c) c = eg_capture(l.cx, training_step, &l, 1);
        ck_assert(c && !eg_captured_run(c));
        eg_close(l.cx);
    }
}

/* -- what is refused --------------------------------------------------------------------------- */
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
static void run_plan(eg_tensor *x, eg_tensor *out)
{
    const eg_shape shapes[] = { eg_shape_of(x), eg_shape_of(x) };
    eg_plan *p = eg_plan_new("ij,jk->ik", 2, shapes);
    ck_assert_int_eq(eg_plan_run_on(p, (eg_tensor *[]){ x, x }, out, NULL, 0), -1);
    eg_plan_free(p);
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
REFUSED(mine, eg_refuse_capture(a->cx, "my cache"))
REFUSED(additive, eg_mask_additive(a->x))
REFUSED(slopes, eg_alibi_slopes(a->cx, 4))
REFUSED(empty,
        eg_attention("id,jd,je->ie", a->x, a->x, a->x, .where = "j <= i", .empty = &(int64_t){ 0 }))
REFUSED(heads, eg_heads(eg_unsqueeze(a->x, 0), "[h] i j"))
REFUSED(plan, run_plan(a->x, *out))
REFUSED(host, eg_host_call(a->cx, fails, NULL, 0, 0, NULL))
REFUSED(open, eg_push(a->cx))
REFUSED(none, *out = NULL)
static const refusal refusals[] = {
    { "item: not possible in a captured step: a run does not repeat", refused_item },
    { "get: not possible in a captured step: a run does not repeat", refused_get },
    { "f32: not possible in a captured step: a run does not repeat", refused_f32 },
    { "raw: not possible in a captured step: a run does not repeat", refused_raw },
    { "mut_f32: not possible in a captured step: a run does not repeat", refused_mut },
    { "format: not possible in a captured step: a run does not repeat", refused_print },
    { "from: not possible in a captured step: the elements of an array", refused_from },
    { "keep: not possible in a captured step: only outputs are kept", refused_keep },
    { "owner: not possible in a captured step: only outputs are kept", refused_owner },
    { "params: not possible in a captured step", refused_params },
    { "seed: not possible in a captured step", refused_seed },
    { "set_draws: not possible in a captured step", refused_draws },
    { "pop: this mark belongs to no open scope", refused_pop },
    { "capture: inside of a captured step", refused_inside },
    { "grad_over: not possible in a captured step", refused_over },
    { "my cache: not possible in a captured step", refused_mine },
    { "mask_additive: not possible in a captured step: its elements", refused_additive },
    { "alibi_slopes: not possible in a captured step: make the slopes", refused_slopes },
    { "attention: not possible in a captured step: .empty", refused_empty },
    { "heads: not possible in a captured step", refused_heads },
    { "plan_run_on: not possible in a captured step: use eg_einsum_to", refused_plan },
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

/* Calls that need an owner or an element inside name themselves, not what they call. */
typedef struct objects {
    eg_ctx *cx;
    eg_params *p;
    eg_opt *op;
    eg_tensor *x;
    int call;
} objects;
static int objects_step(void *user, eg_tensor **out)
{
    const objects *s = user;
    out[0] = s->x;
    switch (s->call) {
    case 0: return eg_params_copy(s->p, s->p);
    case 1: return eg_params_save(s->p, "unused.safetensors");
    case 2: return eg_params_load(s->p, "unused.safetensors");
    case 3: return eg_params_unused(s->p, 1, &s->x, NULL);
    case 4: return eg_opt_save(s->op, "unused.safetensors");
    case 5: return eg_adam(s->p) ? 0 : -1;
    case 6: return (int)eg_opt_report_of(s->op).steps;
    case 7: return eg_npy_save("unused.npy", s->x);
    case 8: return eg_npz_open(s->cx, "unused.npz") ? 0 : -1;
    case 9: return eg_json_load(s->cx, "unused.json") ? 0 : -1;
    case 10: return eg_picture_save("unused.svg", s->x);
    case 11: return eg_data_parse(s->cx, "a\tb\n", "pairs") ? 0 : -1;
    default: return eg_opt_groups_read(s->cx, "W: lr 1") ? 0 : -1;
    }
}
static const char *const object_names[] = {
    "params_copy",     "params_save", "params_load", "params_unused", "opt_save", "adam",
    "opt_report_of",   "npy",         "npz",         "json",          "picture",  "data",
    "opt_groups_read",
};
LOOP_TEST(calls_with_an_owner_are_refused_by_name, sizeof object_names / sizeof *object_names)
{
    char sentence[80];
    objects s = { .cx = eg_open(.threads = 1), .call = _i };
    s.p = eg_params_open(s.cx), s.x = eg_param(s.p, "W", "i j", 2, 3);
    s.op = eg_adam(s.p);
    eg_assert_ok(s.cx);
    ck_assert_ptr_null(eg_capture(s.cx, objects_step, &s, 1));
    snprintf(sentence, sizeof sentence, "%s: not possible in a captured step", object_names[_i]);
    ck_assert_msg(!strncmp(eg_error(s.cx), sentence, strlen(sentence)), "%s", eg_error(s.cx));
    eg_close(s.cx);
}

#if !EG_DEBUG_ALLOC /* there a sanitizer reports that the header of a freed tensor is read */
/* A step reads a view of a tensor that an owner has: one that it makes, or one of before. */
static int viewing_step(void *user, eg_tensor **out)
{
    eg_tensor *const *x = user;
    *out = eg_scale(x[1] ? x[1] : eg_transpose(x[0], 0, 1), 2);
    return 0;
}
LOOP_TEST(runs_refuse_a_view_whose_tensor_is_gone, 2)
{
    eg_ctx *cx = eg_open();
    eg_owner *o = eg_owner_open(cx);
    eg_tensor *x[2] = { eg_keep_in(o, eg_ones(cx, 3, 4)), NULL };
    if (_i) x[1] = eg_slice_axis(x[0], 0, 0, 2, 1);
    eg_captured *c = eg_capture(cx, viewing_step, x, 1);
    eg_assert_ok(cx);
    ck_assert(!eg_captured_run(c));
    eg_owner_close(o);
    ck_assert(eg_captured_run(c));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "that the step reads or writes no longer exists"));
    eg_clear(cx);
    eg_close(cx);
}
#endif

/* Expressions of integers are planned for wider bounds than those at the capture, 0 and 2: a run
 * takes other integers, up to the last index or beyond ±1000 where there is none. */
typedef struct integers {
    eg_ctx *cx;
    eg_tensor *i, *k, *v, *x;
    const char *formula;
} integers;
static const struct {
    const char *formula;
    int64_t least, most; /* of the elements of i, which a run takes */
} integer_cases[] = {
    { "v[i] + x * k", 0, 5 },
    { "v[(i + k) % 6] * x", -900, 900 },
    { "v[5 - i] + x + k", 0, 5 },
    { "i % 4 == 1 ? x : v[k]", -900, 900 },
    { "v[abs(i - k)] * x", 0, 5 },
    { "v[clip(i - k, 0, 5)] + x", -900, 900 },
    { "v[min(i, k)] + x", 0, 5 },
    { "x * (i / 3 + i * k) + v[k]", -900, 900 },
    { "v[i / 2] + v[k] + x", 0, 11 },
    { "i == k ? v[k] : x", -900, 900 },
    { "v[i + 1] - v[i] + x * k", 0, 4 },
};
static int integers_step(void *user, eg_tensor **out)
{
    const integers *s = user;
    eg_tensor *y = eg_expr("n", s->formula,
                           .with = { { "i", s->i }, { "k", s->k }, { "x", s->x }, { "v", s->v } });
    out[0] = y;
    return eg_grad(eg_sum(NULL, eg_square(y)), NULL, 1, &s->x, &out[1]);
}
LOOP_TEST(runs_of_expressions_take_other_integers, sizeof integer_cases / sizeof *integer_cases)
{
    integers s = { .cx = eg_open(.threads = 1), .formula = integer_cases[_i].formula };
    const int64_t least = integer_cases[_i].least, most = integer_cases[_i].most;
    s.i = eg_from(s.cx, (int64_t[]){ 0, 1, 2, 1 }, 4);
    s.k = eg_from(s.cx, (int64_t[]){ 0, 2, 1, 0 }, 4);
    s.v = eg_normal(s.cx, 0, 1, 6), s.x = eg_normal(s.cx, 0, 1, 4);
    eg_captured *c = eg_capture(s.cx, integers_step, &s, 2);
    eg_assert_ok(s.cx);
    for (int run = 0; run < 3; run++) {
        eg_tensor *out[2];
        eg_mut_i64(s.i)[run] = run % 2 ? least : most;
        ck_assert_msg(!eg_captured_run(c), "%s: %s", s.formula, eg_error(s.cx));
        ck_assert(!integers_step(&s, out));
        for (int k = 0; k < 2; k++)
            ck_assert_msg(same_bits(out[k], eg_captured_output(c, k)), "%s", s.formula);
    }
    if (most < 100) {
        eg_mut_i64(s.i)[0] = most + 1;
        ck_assert(eg_captured_run(c));
        ck_assert_ptr_nonnull(strstr(eg_error(s.cx), "expr: the step was captured with integers"));
    }
    eg_clear(s.cx);
    eg_close(s.cx);
}

/* So are predicates and scores of softmax, attention and masks. */
typedef struct predicates {
    eg_ctx *cx;
    eg_tensor *i, *n, *x, *q, *v; /* integers (b), tokens (b, k), f32 (b, q, k), (b, q, d), (k) */
    int form;
} predicates;
static const struct {
    int form;
    int64_t least, most; /* of the elements of i, which a run takes */
} predicate_cases[] = { { 0, -900, 900 }, { 1, -900, 900 }, { 2, -900, 900 },
                        { 3, -900, 900 }, { 4, 0, 5 },      { 5, -900, 900 } };
static int predicates_step(void *user, eg_tensor **out)
{
    const predicates *s = user;
    eg_tensor *y = NULL;
    if (s->form == 0)
        y = eg_softmax("b i [j]", s->x, .where = "j < i + m[b]", .with = { { "m", s->i } });
    if (s->form == 1)
        y = eg_log_softmax("b i [j]", s->x, .where = "j <= i | m[b] % 2 == 0 & t[b,j] != m[b]",
                           .with = { { "m", s->i }, { "t", s->n } });
    if (s->form == 2)
        y = eg_mul(s->x, eg_cast(eg_where_mask(s->cx, "j + m[b] > i", "b=2 i=3 j=5",
                                               .with = { { "m", s->i } }),
                                 EG_F32));
    if (s->form == 3)
        y = eg_attention("b i d, b j d, b j e -> b i e", s->q, s->x, s->x, .form = EG_FUSED,
                         .where = "j < i + m[b] | t[b,j] == m[b]",
                         .with = { { "m", s->i }, { "t", s->n } });
    if (s->form == 4)
        y = eg_attention("b i d, b j d, b j e -> b i e", s->q, s->x, s->x, .form = EG_FUSED,
                         .where = "j >= m[b]", .score = "score + v[j - m[b]] + v[m[b]]",
                         .with = { { "m", s->i }, { "v", s->v } });
    if (s->form == 5)
        y = eg_attention("b i d, b j d, b j e -> b i e", s->q, s->x, s->x, .form = EG_UNFUSED,
                         .score = "m[b] > t[b,j] ? score : score * m[b] / 1000.0",
                         .with = { { "m", s->i }, { "t", s->n } });
    out[0] = y;
    return eg_grad(eg_sum(NULL, eg_square(y)), NULL, 1, &s->x, &out[1]);
}
LOOP_TEST(runs_of_predicates_take_other_integers, sizeof predicate_cases / sizeof *predicate_cases)
{
    predicates s = { .cx = eg_open(.threads = 1), .form = predicate_cases[_i].form };
    const int64_t least = predicate_cases[_i].least, most = predicate_cases[_i].most;
    s.i = eg_from(s.cx, (int64_t[]){ 1, 2 }, 2);
    s.n = eg_from(s.cx, (int64_t[]){ 0, 2, 1, 0, 1, 2, 1, 0, 0, 1 }, 2, 5);
    s.x = eg_normal(s.cx, 0, 1, 2, s.form < 3 ? 3 : 5, 5);
    s.q = eg_normal(s.cx, 0, 1, 2, 3, 5), s.v = eg_normal(s.cx, 0, 1, 5);
    eg_tensor *before[2], *out[2];
    ck_assert_msg(!predicates_step(&s, before), "%s",
                  eg_error(s.cx)); /* the plan of this call has narrower bounds */
    eg_captured *c = eg_capture(s.cx, predicates_step, &s, 2);
    eg_assert_ok(s.cx);
    for (int run = 0; run < 4; run++) {
        eg_mut_i64(s.i)[run % 2] = run < 2 ? most : least;
        ck_assert_msg(!eg_captured_run(c), "%d: %s", s.form, eg_error(s.cx));
        ck_assert(!predicates_step(&s, out));
        for (int k = 0; k < 2; k++)
            ck_assert_msg(same_bits(out[k], eg_captured_output(c, k)), "%d", s.form);
    }
    if (most < 100) {
        eg_mut_i64(s.i)[0] = least - 1;
        ck_assert(eg_captured_run(c));
        ck_assert_ptr_nonnull(
            strstr(eg_error(s.cx), "attention: the step was captured with integers"));
    }
    eg_clear(s.cx);
    eg_close(s.cx);
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
    ck_assert_ptr_nonnull(strstr(eg_error(u.cx), "at: index[0] is 4"));
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
static int foreign_step(void *user, eg_tensor **out) { return out[0] = eg_exp(user), 0; }
TEST(outputs_of_another_context_are_refused)
{
    eg_ctx *cx = eg_open(.threads = 1), *other = eg_open(.threads = 1);
    ck_assert_ptr_null(eg_capture(cx, foreign_step, eg_ones(other, 3), 1));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "capture: output 0 belongs to another context"));
    eg_close(other);
    eg_close(cx);
}
#if !EG_DEBUG_ALLOC
TEST(runs_refuse_freed_tensors)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_owner *o = eg_owner_open(cx);
    eg_captured *c = eg_capture(cx, deep_step, eg_owner_tensor(o, EG_F32, 1, (int64_t[]){ 3 }), 1);
    ck_assert_ptr_nonnull(c);
    eg_owner_close(o);
    ck_assert(eg_captured_run(c));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "no longer exists"));
    eg_close(cx);
}
#endif

/* -- plans ------------------------------------------------------------------------------------- */
/* Products of many kinds: direct, packed, batched, with operands that are summed first, of three
 * operands. */
static int kinds_step(void *user, eg_tensor **out)
{
    eg_tensor *const *x = user;
    out[0] = eg_einsum("ij,jk->ik", x[0], x[1]);
    out[1] = eg_einsum("bij,bjk->bki", x[2], x[2]);
    out[2] = eg_einsum("ij,jk,kl->il", x[0], x[1], x[0]);
    out[3] = eg_einsum("ijx,jky->ik", eg_rearrange("i j -> i j 1", x[0]), x[2]);
    out[4] = eg_einsum("ij->j", x[3]);
    return eg_grad(eg_add(eg_sum(NULL, eg_sin(out[0])), eg_sum(NULL, eg_exp(out[1]))), NULL, 1,
                   &x[0], &out[5]);
}
/* A run does not read the cache of plans, in which other entries have replaced those of the
 * step. */
TEST(runs_outlive_the_plans_of_the_step)
{
    enum { OUTS = 6 };
    eg_ctx *cx = eg_open(.threads = 1, .seed = 3);
    eg_tensor *x[] = { eg_uniform(cx, -1, 1, 40, 40), eg_uniform(cx, -1, 1, 40, 40),
                       eg_uniform(cx, -1, 1, 40, 40, 40), eg_uniform(cx, -1, 1, 300, 70) };
    eg_captured *c = eg_capture(cx, kinds_step, x, OUTS);
    ck_assert_msg(c != NULL, "%s", eg_error(cx));
    uint64_t h[2] = { 1, 1 };
    for (int turn = 0; turn < 2; turn++) {
        ck_assert_int_eq(eg_captured_run(c), 0);
        for (int k = 0; k < OUTS; k++) h[turn] = hash_tensor(h[turn], eg_captured_output(c, k));
        for (int64_t k = 0; k < 3000; k++) {
            const eg_mark m = eg_push(cx);
            eg_einsum("ij,jk->ik", eg_full(cx, 1, 1 + k % 50, 1 + k / 50),
                      eg_full(cx, 1, 1 + k / 50, 3));
            eg_pop(cx, m);
        }
        eg_assert_ok(cx);
    }
    ck_assert(h[0] == h[1]);
    eg_close(cx);
}

static int dropping_step(void *user, eg_tensor **out)
{
    out[0] = eg_dropout(user, 0.5);
    return 0;
}
/* Under eg_eval a step with dropout would still drop elements, and the reverse. */
TEST(runs_are_refused_in_the_other_state_of_training)
{
    for (int trains = 0; trains < 2; trains++) {
        eg_ctx *cx = eg_open(.threads = 1);
        eg_tensor *x = eg_ones(cx, 64);
        void (*const state[])(eg_ctx *) = { eg_eval, eg_train };
        state[trains](cx);
        eg_captured *c = eg_capture(cx, dropping_step, x, 1);
        ck_assert_int_eq(eg_captured_run(c), 0);
        state[!trains](cx);
        ck_assert_int_eq(eg_captured_run(c), -1);
        eg_assert_error(cx, trains
                                ? "captured_run: the step was captured under eg_train, but the "
                                  "context is now under eg_eval"
                                : "captured under eg_eval, but the context is now under eg_train");
        state[trains](cx);
        ck_assert_int_eq(eg_captured_run(c), 0);
        eg_close(cx);
    }
}

typedef struct assigning {
    eg_tensor *state, *w;
    int which;
} assigning;
static int assigning_step(void *user, eg_tensor **out)
{
    const assigning *a = user;
    eg_tensor *v = a->which == 0   ? eg_tanh(a->w)
                   : a->which == 1 ? eg_softmax("i [j]", a->w)
                   : a->which == 2 ? eg_einsum("ij,jk->ik", a->w, a->w)
                                   : eg_square(a->w);
    if (eg_assign(a->state, v)) return -1;
    return eg_grad(eg_sum(NULL, eg_square(a->state)), NULL, 1, (eg_tensor *const[]){ a->w }, out);
}
/* A result that eg_assign wrote has no gradient: a captured step is refused as the same call is,
 * whether the operation that made the result takes memory of its own or not. */
TEST(assigned_results_are_refused_as_outside_of_a_capture)
{
    for (int which = 0; which < 4; which++)
        for (int captured = 0; captured < 2; captured++) {
            eg_ctx *cx = eg_open(.threads = 1);
            assigning a = { eg_ones(cx, 3, 3), eg_ones(cx, 3, 3), which };
            eg_tensor *g = NULL;
            if (captured)
                ck_assert_ptr_null(eg_capture(cx, assigning_step, &a, 1));
            else
                ck_assert_int_eq(assigning_step(&a, &g), -1);
            eg_assert_error(cx, "grad: y depends on xs[0] only by eg_assign");
            eg_close(cx);
        }
}

typedef struct modules {
    eg_mha *widths, *delta;
    eg_tensor *x;
    int which;
} modules;
static int modules_step(void *user, eg_tensor **out)
{
    const modules *a = user;
    eg_tensor *w = NULL, *y = NULL, *x = a->x;
    if (a->which == 0) {
        y = eg_mha_run(a->widths, x, .where = "j <= i", .weights = &w);
        y = eg_add(eg_sum(NULL, eg_square(y)), eg_head_diversity("b [h] i j", w));
    } else if (a->which == 1) {
        eg_tensor *beta = eg_sigmoid(eg_select_axis(x, 2, 0)), *key = eg_softmax("b j [d]", x);
        y = eg_linear_attention("bid,bjd,bje->bie", x, key, x, .beta = { "bj", beta },
                                .where = "j <= i", .no_norm = true, .chunk = 3);
        y = eg_sum(NULL, eg_square(y));
    } else {
        y = eg_sum(NULL, eg_square(eg_mha_run(a->delta, x, .where = "j <= i",
                                              .beta = { "bj", eg_sigmoid(eg_sum("b j [d]", x)) })));
    }
    out[0] = y;
    return eg_grad(y, NULL, 1, &x, &out[1]);
}
/* Modules that collect tensors of chunks and heads in memory of the scope can be captured. */
TEST(delta_rule_and_heads_of_different_widths_are_captured)
{
    for (int which = 0; which < 3; which++) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 8, .threads = 1);
        eg_params *p = eg_params_open(cx);
        modules a = { .which = which, .x = eg_normal(cx, 0, 1, 2, 7, 6) };
        a.widths = eg_mha_new(p, "widths", .d_model = 6, .heads = 2, .form = EG_PER_HEAD,
                              .d_k_each = (int64_t[]){ 2, 4 });
        a.delta = eg_mha_new(p, "delta", .d_model = 6, .heads = 2,
                             .linear = &(eg_linear_attention_args){ .phi = "x", .no_norm = true });
        eg_assert_ok(cx);
        eg_captured *c = eg_capture(cx, modules_step, &a, 2);
        ck_assert_msg(c != NULL, "%d: %s", which, eg_error(cx));
        for (int run = 0; run < 3; run++) {
            eg_assign(a.x, eg_normal(cx, 0, 1, 2, 7, 6));
            ck_assert_int_eq(eg_captured_run(c), 0);
            eg_tensor *out[2];
            ck_assert_int_eq(modules_step(&a, out), 0);
            for (int k = 0; k < 2; k++) ck_assert(same_bits(out[k], eg_captured_output(c, k)));
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}

static int blocks_held; /* blocks of the allocator that are not freed */
static void *count_blocks(void *user, void *p, size_t old_size, size_t new_size)
{
    (void)user, (void)old_size;
    if (new_size) {
        blocks_held += p == NULL;
        return realloc(p, new_size);
    }
    blocks_held -= p != NULL;
    free(p);
    return NULL;
}
enum { LONG_AXIS = 75001, MANY_COPIES = 20 };
static int copying_step(void *user, eg_tensor **out)
{
    eg_tensor *const *x = user;
    eg_tensor *y = eg_expr("i", "x * sigmoid(x)", .with = { { "x", x[0] } });
    eg_tensor *z = eg_mul(eg_flip_axis(y, 0), x[1]);
    return eg_grad(eg_sum(NULL, eg_copies_stack(z)), NULL, 1, x, out);
}
/* An operation whose forward() copies an operand for each of many copies takes chunks of the pool,
 * in which the copies need no bytes to be aligned. Its arena in the step needs more. */
TEST(memory_of_an_operation_in_a_step_includes_the_alignment)
{
    blocks_held = 0;
    eg_ctx *cx = eg_open(.threads = 1, .realloc = count_blocks);
    eg_mark m = eg_push(cx);
    for (int k = 0; k < 2 * MANY_COPIES; k++) eg_ones(cx, LONG_AXIS);
    eg_pop(cx, m);
    eg_owner *o = eg_owner_open(cx);
    const eg_copies *s = eg_copies_open(o, MANY_COPIES, NULL);
    eg_tensor *x[] = { eg_owner_copies(o, s, EG_F32, 1, (int64_t[]){ LONG_AXIS }),
                       eg_owner_tensor(o, EG_F32, 1, (int64_t[]){ LONG_AXIS }) };
    eg_fill(x[0], .5), eg_fill(x[1], 2);
    eg_captured *c = eg_capture(cx, copying_step, x, 1);
    ck_assert_msg(c != NULL, "%s", eg_error(cx));
    eg_fill(x[0], -.25);
    ck_assert_int_eq(eg_captured_run(c), 0);
    const size_t before = eg_stats(cx).bytes;
    for (int run = 0; run < 40; run++) ck_assert_int_eq(eg_captured_run(c), 0);
    ck_assert_uint_eq(eg_stats(cx).bytes, before);
    eg_tensor *g = NULL;
    ck_assert_int_eq(copying_step(x, &g), 0);
    ck_assert(same_bits(eg_copies_stack(g), eg_copies_stack(eg_captured_output(c, 0))));
    eg_assert_ok(cx);
    eg_close(cx);
    ck_assert_int_eq(blocks_held, 0);
}
