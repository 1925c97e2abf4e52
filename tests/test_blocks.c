/* test_blocks.c: gradients of a sum over examples, block by block (eg_grad_over, eg_step_over). */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad.h>
#include <eingrad/check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "fixtures.h"
#include "tests.h"

enum { EXAMPLES = 45, LENGTH = 6, CLASSES = 7, WIDE = 16 };

/* -- a transformer with embeddings, dropout and attention -------------------------------------- */
typedef struct training {
    eg_ctx *cx;
    eg_params *params;
    eg_transformer *net;
    eg_opt *opt;
    int32_t token[EXAMPLES][LENGTH], target[EXAMPLES][LENGTH];
} training;
static void training_open(training *l, int threads, eg_dtype dtype, double dropout)
{
    *l = (training){ .cx = eg_open(.threads = threads, .seed = 5, .dtype = dtype) };
    l->params = eg_params_open(l->cx);
    l->net = eg_transformer_new(.params = l->params, .vocabulary = CLASSES, .length = LENGTH,
                                .layers = 2, .d_model = WIDE, .heads = 2, .dropout = dropout);
    l->opt = eg_adam(l->params, .lr = 1e-2);
    eg_assert_ok(l->cx);
    uint32_t r = 1;
    for (int e = 0; e < EXAMPLES; e++)
        for (int k = 0; k < LENGTH; k++) {
            r = r * 1664525 + 1013904223;
            l->token[e][k] = (int32_t)(r >> 16) % CLASSES;
            /* the last examples have fewer targets, some of them none */
            l->target[e][k] = k < e % (LENGTH + 1) ? l->token[e][LENGTH - 1 - k] : -1;
        }
}
static eg_tensor *training_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const training *l = user;
    const int64_t dims[] = { to - from, LENGTH };
    *count = 0;
    for (int64_t e = from; e < to; e++)
        for (int k = 0; k < LENGTH; k++) *count += l->target[e][k] >= 0;
    eg_tensor *tokens = eg_from_n(cx, EG_I32, l->token[from], 2, dims),
              *target = eg_from_n(cx, EG_I32, l->target[from], 2, dims),
              *logits =
                  eg_transformer_run(.transformer = l->net, .index = tokens, .where = "j <= i");
    return eg_sum(NULL, eg_cross_entropy("b l [v]", logits, target, .ignore = -1, .each = true));
}

typedef struct result {
    uint64_t hash; /* of losses and parameters */
    int sums;
} result;
static result training_steps(int threads, int64_t block, int leaves, bool serial, int steps)
{
    training l;
    result t = { .hash = 1 };
    training_open(&l, threads, EG_F32, 0.2);
    for (int k = 0; k < steps; k++) {
        double mean = 0;
        int sums = 0;
        eg_step_over(l.opt, training_loss, &l, EXAMPLES, .block = block, .leaves = leaves,
                     .serial = serial, .mean = &mean, .sums = &sums);
        eg_assert_ok(l.cx);
        ck_assert(mean > 0.1 && mean < 5);
        t.hash = eg_hash(t.hash, &mean, sizeof mean);
        t.sums = sums > t.sums ? sums : t.sums;
    }
    for (int k = 0; k < eg_params_count(l.params); k++)
        t.hash = hash_tensor(t.hash, eg_params_at(l.params, k)->x);
    eg_close(l.cx);
    return t;
}
static int log2_up(int n)
{
    int k = 0;
    while (1 << k < n) k++;
    return k;
}
/* Blocks of 1, 2, 3 and all examples, and numbers of leaves that are no powers of two. */
static const struct {
    int block, leaves;
} cuts[] = { { 8, 0 }, { 1, 0 }, { 2, 5 }, { 3, 7 }, { 1, 64 }, { 100, 0 }, { 4, 1 } };
LOOP_TEST(bits_do_not_depend_on_threads, sizeof cuts / sizeof *cuts)
{
    const int block = cuts[_i].block;
    const result one = training_steps(1, block, cuts[_i].leaves, false, 4);
    const int blocks = (EXAMPLES + block - 1) / block,
              most = cuts[_i].leaves ? cuts[_i].leaves : 16, leaves = blocks < most ? blocks : most;
    ck_assert_int_le(one.sums, log2_up(leaves) + 1);
    for (int threads = 2; threads <= 5; threads++) {
        const result more = training_steps(threads, block, cuts[_i].leaves, false, 4);
        ck_assert_msg(more.hash == one.hash, "%d threads", threads);
        ck_assert_int_le(more.sums,
                         threads * (log2_up(leaves) + 1) + (threads - 1) * log2_up(leaves));
    }
    ck_assert(training_steps(3, block, cuts[_i].leaves, true, 4).hash == one.hash);
}
TEST(a_thread_holds_log2_of_the_leaves_plus_1_sums)
{
    ck_assert_int_eq(training_steps(1, 1, 16, false, 1).sums, 5);
    ck_assert_int_eq(training_steps(1, 1, 32, false, 1).sums, 6);
    ck_assert_int_eq(training_steps(1, 1, 1, false, 1).sums, 1);
}

/* Compared with one loss of the whole batch; _i: with dropout, which eg_eval switches off. */
LOOP_TEST(the_mean_is_that_of_the_batch, 2)
{
    training l;
    training_open(&l, 2, EG_F64, _i ? 0.5 : 0);
    if (_i) eg_eval(l.cx);
    eg_tensor *x[200], *whole[200], *over[200];
    const int n = eg_params_count(l.params);
    ck_assert_int_le(n, 200);
    for (int k = 0; k < n; k++) x[k] = eg_params_at(l.params, k)->x;
    int64_t count = EXAMPLES, counted = 0;
    double mean = 0;
    eg_tensor *loss = training_loss(&l, l.cx, 0, EXAMPLES, &count);
    ck_assert_int_eq(eg_grad(eg_scale(loss, 1 / (double)count), NULL, n, x, whole), 0);
    ck_assert_int_eq(eg_grad_over(.cx = l.cx, .loss = training_loss, .user = &l,
                                  .examples = EXAMPLES, .count = n, .xs = x, .dxs = over,
                                  .block = 2, .mean = &mean, .counted = &counted),
                     0);
    ck_assert_int_eq(counted, count);
    ck_assert_double_eq_tol(mean, eg_item(loss) / (double)count, 1e-12);
    for (int k = 0; k < n; k++) {
        ck_assert(over[k] != NULL);
        const double *a = eg_f64(whole[k]), *b = eg_f64(over[k]);
        for (int64_t i = 0; i < eg_size(x[k]); i++) ck_assert_double_eq_tol(a[i], b[i], 1e-12);
    }
    eg_close(l.cx);
}

/* Without xs: the mean that belongs to the gradients, on any number of threads; nothing is
 * recorded, and an infinite loss is a result. */
static eg_tensor *infinite_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    (void)user, (void)count;
    ck_assert(eg_nograd(cx, true));
    return eg_full(cx, from ? INFINITY : (double)to, 1);
}
TEST(without_xs_the_mean_is_computed_alone)
{
    double mean[4] = { 0 };
    int64_t counted[4] = { 0 };
    for (int k = 0; k < 4; k++) {
        training l;
        training_open(&l, k ? k : 1, EG_F32, 0.3);
        eg_tensor *w = eg_params_at(l.params, 0)->x, *dw;
        const eg_grad_over_args o = { .size = sizeof o,
                                      .cx = l.cx,
                                      .loss = training_loss,
                                      .user = &l,
                                      .examples = EXAMPLES,
                                      .block = 2,
                                      .mean = &mean[k],
                                      .counted = &counted[k],
                                      .count = !k,
                                      .xs = k ? NULL : &w,
                                      .dxs = k ? NULL : &dw };
        const uint64_t draws = eg_draws(l.cx);
        eg_grad_over_with(&o);
        eg_assert_ok(l.cx);
        ck_assert_uint_eq(eg_draws(l.cx), draws + 1);
        ck_assert(mean[k] == mean[0] && counted[k] == counted[0]);
        double all = 0;
        ck_assert_int_eq(
            eg_grad_over(.cx = l.cx, .loss = infinite_loss, .examples = 9, .mean = &all), 0);
        ck_assert(isinf(all));
        eg_captured_blocks *c = eg_captured_blocks_open(l.cx);
        ck_assert_int_eq(
            eg_grad_over(.cx = l.cx, .loss = infinite_loss, .examples = 9, .captured = c), -1);
        eg_assert_error(l.cx, "grad_over: without xs, blocks are not captured");
        eg_close(l.cx);
    }
}

TEST(dropout_of_a_block_depends_on_step_and_block)
{
    training l;
    training_open(&l, 1, EG_F32, 0.5);
    double first[3];
    const uint64_t draws = eg_draws(l.cx);
    eg_tensor *x = eg_params_at(l.params, 0)->x, *d;
    for (int k = 0; k < 3; k++) {
        if (k == 2) eg_set_draws(l.cx, draws);
        ck_assert_int_eq(eg_grad_over(.cx = l.cx, .loss = training_loss, .user = &l,
                                      .examples = EXAMPLES, .count = 1, .xs = &x, .dxs = &d,
                                      .mean = &first[k]),
                         0);
    }
    ck_assert(first[0] != first[1]);
    ck_assert(first[0] == first[2]);
    ck_assert_uint_eq(eg_draws(l.cx), draws + 1);
    eg_close(l.cx);
}

/* Copies that a block makes draw by their own seeds, with other numbers in each block and step. */
enum { DRAWING = 3, DRAWS = 64, DRAWN = 4 };
typedef struct drawn {
    eg_tensor *x;
    float y[DRAWN][DRAWING][DRAWS];
} drawn;
static eg_tensor *drawn_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    drawn *d = user;
    eg_owner *owner = eg_owner_open(cx);
    const eg_copies *c = eg_copies_open(owner, DRAWING, (uint64_t[]){ 1, 2, 3 });
    eg_tensor *y =
        eg_copies_stack(eg_dropout(eg_copies_unstack(c, eg_ones(cx, DRAWING, DRAWS)), .5));
    if (!eg_ok(y)) return y;
    memcpy(d->y[from], eg_f32(y), sizeof d->y[from]);
    *count = to - from;
    return eg_sum(NULL, eg_mul(y, d->x));
}
TEST(copies_inside_a_block_draw_by_their_seeds_block_and_step)
{
    drawn d[2];
    eg_ctx *cx = eg_open(.threads = 2, .seed = 5);
    for (int step = 0; step < 2; step++) {
        eg_tensor *dx;
        d[step].x = eg_ones(cx, DRAWS);
        ck_assert_int_eq(eg_grad_over(.cx = cx, .loss = drawn_loss, .user = &d[step],
                                      .examples = DRAWN, .block = 1, .count = 1, .xs = &d[step].x,
                                      .dxs = &dx),
                         0);
        for (int k = 0; k < DRAWS; k++) { /* the mean gradient has the draws of the values */
            float sum = 0;
            for (int e = 0; e < DRAWN; e++)
                for (int c = 0; c < DRAWING; c++) sum += d[step].y[e][c][k];
            ck_assert_float_eq(eg_f32(dx)[k], sum / DRAWN);
        }
    }
    const float *all = &d[0].y[0][0][0];
    enum { SETS = DRAWN * DRAWING };
    for (int a = 0; a < SETS; a++) {
        ck_assert(memcmp(&d[1].y[0][0][0] + a * DRAWS, all + a * DRAWS, sizeof(float[DRAWS])));
        for (int b = 0; b < a; b++)
            ck_assert_msg(memcmp(all + a * DRAWS, all + b * DRAWS, sizeof(float[DRAWS])),
                          "sets %d and %d are the same", a, b);
    }
    eg_close(cx);
}

#if !EG_DEBUG_ALLOC
/* A thread that the system did not run at first allocates its memory when it runs. */
TEST(warm_steps_call_no_allocator)
{
    training l;
    training_open(&l, 2, EG_F32, 0.1);
    uint64_t mallocs = 0;
    int same = 0;
    for (int k = 0; k < 500 && same < 30; k++) {
        ck_assert_int_eq(eg_step_over(l.opt, training_loss, &l, EXAMPLES, .block = 4), 0);
        same = eg_stats(l.cx).mallocs == mallocs ? same + 1 : 0;
        mallocs = eg_stats(l.cx).mallocs;
    }
    ck_assert_int_eq(same, 30);
    eg_close(l.cx);
}
#endif

/* -- what a block may do ----------------------------------------------------------------------- */
typedef struct blocks_case {
    eg_ctx *cx;
    eg_tensor *x, *w, *made;
    _Atomic(eg_tensor *) kept;
    int64_t bad;      /* the block that does it; −1: each */
    atomic_int calls; /* of the loss */
    int what;
    eg_params *params;
    eg_captured_blocks *captured;
} blocks_case;
static eg_tensor *blocks_case_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    blocks_case *s = user;
    const bool now = s->bad < 0 || from >= s->bad;
    eg_tensor *row = eg_slice_axis(s->x, 0, from, to, 1),
              *y = eg_sum(NULL, eg_einsum("bd,d->b", row, s->w));
    atomic_fetch_add(&s->calls, 1);
    if (!now) return y;
    switch (s->what) {
    case 0: eg_fill(s->w, 3); return y;
    case 1: eg_assign(eg_transpose(eg_unsqueeze(s->w, 0), 0, 1), eg_ones(cx, 3, 1)); return y;
    case 2: eg_mut_f64(eg_detach(s->w)); return y;
    case 3: return eg_mul(y, eg_einsum("bd,d->b", row, eg_ones(cx, 4)));
    case 4: return row;
    case 5: return NULL;
    case 6: return eg_scale(y, INFINITY);
    case 7: *count = -2; return y;
    case 8: return eg_add(y, eg_sum(NULL, s->made));
    case 9: eg_name(s->w, "v"); return y;
    case 10: return eg_sum(NULL, row);
    case 11: eg_pop(cx, (eg_mark){ s, 1 }); return y;
    case 12:
        return eg_grad_over(.cx = cx, .loss = blocks_case_loss, .user = user, .examples = 1,
                            .count = 1, .xs = &s->w, .dxs = &y)
                   ? NULL
                   : y;
    case 13: eg_threads(cx, 4); return y;
    case 14: eg_owner_close(NULL); return eg_param(NULL, "w", "i", 3);
    case 15: eg_seed(cx, 1); return y;
    case 16: eg_nograd(cx, true); return y;
    case 17: eg_eval(cx); return y;
    case 18: eg_flush(cx, true); return y;
    case 19: eg_close(cx); return y; /* does nothing */
    case 20: s->kept = y; return y;
    case 21: *count = 0; return y;
    case 22: eg_fail(cx, "the data are gone"); return y;
    case 23: eg_close(s->cx); return y;
    case 24: eg_trace(cx, true); return y;
    case 25: eg_params_close(s->params); return y;
    case 26: eg_param(s->params, "v", "i", 3); return y;
    case 27: eg_init_normal(s->w, 1); return y;
    case 28: eg_captured_blocks_free(s->captured); return y;
    case 29: eg_close(cx); return y;
    }
    return y;
}
static void blocks_case_open(blocks_case *s, int what, int64_t bad, int threads)
{
    *s = (blocks_case){ .cx = eg_open(.dtype = EG_F64, .threads = threads),
                        .what = what,
                        .bad = bad };
    s->x = eg_uniform(s->cx, -1, 1, 12, 3);
    s->w = eg_name(eg_ones(s->cx, 3), "w");
    s->made = eg_exp(s->w);
}
static int blocks_case_run(blocks_case *s, eg_tensor **d)
{
    return eg_grad_over(.cx = s->cx, .loss = blocks_case_loss, .user = s, .examples = 12,
                        .count = 1, .xs = &s->w, .dxs = d, .block = 2);
}
static const struct {
    const char *says;
} scenes[] = {
    { "fill: the tensor belongs to the context that waits for its blocks; a block must not write "
      "to it" },
    { "assign: the tensor belongs to the context that waits" },
    { "mut_f64: the tensor belongs to the context that waits" },
    { "index 'd' is 3 in operand 1 but 4 in operand 2" },
    { "the loss has 6 elements, not one; it must be the sum over its examples" },
    { "the loss is NULL" },
    { "inf, which comes from scale" },
    { "the count is -2; it must be from 0 to 2^48" },
    { "was computed outside of the block from an x, and the gradient through it" },
    { "name: the tensor belongs to the context that waits" },
    { "grad: y does not reach x" },
    { "pop: this mark belongs to no open scope" },
    { "grad_over: inside a block of another call" },
    { "threads: a block runs on the threads of the context that waits for it" },
    { "the loss is NULL" },
    { "seed: inside a block, which has a seed of its own" },
    { "eg_nograd was called and not undone" },
    { "eg_eval was called and not undone" },
    { "eg_flush was called and not undone" },
};
enum { SCENES = sizeof scenes / sizeof *scenes };
LOOP_TEST(what_a_block_must_not_do_is_the_error_of_the_first_such_block, 3 * SCENES)
{
    blocks_case s;
    eg_tensor *d;
    const int what = _i / 3;
    const int64_t bad = (int64_t[]){ -1, 4, 10 }[_i % 3];
    for (int threads = 1; threads <= 3; threads++) {
        char where[96];
        blocks_case_open(&s, what, bad, threads);
        ck_assert_int_eq(blocks_case_run(&s, &d), -1);
        const char *says = eg_error(s.cx);
        ck_assert(says && !eg_ok(d));
        ck_assert_msg(strstr(says, scenes[what].says), "%s", says);
        const long long k = bad < 0 ? 0 : bad / 2;
        snprintf(where, sizeof where, "grad_over: block %lld (examples %lld to %lld): ", k, 2 * k,
                 2 * k + 1);
        ck_assert_msg(!strncmp(says, where, strlen(where)), "%s", says);
        ck_assert(!strchr(says, '\n') || what == 3);
        /* the context works as before, and the parent's tensors are unchanged */
        eg_clear(s.cx);
        s.what = 99;
        ck_assert_int_eq(blocks_case_run(&s, &d), 0);
        ck_assert(eg_f64(s.w)[0] == 1 && !strcmp(eg_name_of(s.w), "w"));
        eg_close(s.cx);
    }
}
/* The waiting context cannot be closed by one of its blocks. */
TEST(a_block_does_not_close_the_context_that_waits_for_it)
{
    blocks_case s;
    eg_tensor *d;
    blocks_case_open(&s, 23, 4, 2);
    ck_assert_int_eq(blocks_case_run(&s, &d), -1);
    eg_assert_error(s.cx, "block 2 (examples 4 to 5): close: the context waits for its blocks");
    s.what = 99;
    ck_assert_int_eq(blocks_case_run(&s, &d), 0);
    eg_close(s.cx);
}

#if !EG_DEBUG_ALLOC /* a dead tensor is memory that was freed there */
TEST(a_tensor_that_left_its_block_is_refused)
{
    blocks_case s;
    eg_tensor *d;
    blocks_case_open(&s, 20, -1, 2);
    ck_assert_int_eq(blocks_case_run(&s, &d), 0);
    ck_assert(isnan(eg_item(s.kept)));
    eg_assert_error(s.cx, "item: operand 1 was used after the scope that held it was popped");
    eg_close(s.cx);
}
static eg_tensor *passes_on(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    blocks_case *s = user;
    eg_tensor *y = blocks_case_loss(user, cx, from, to, count), *old = s->kept;
    s->kept = y;
    return old ? eg_add(y, old) : y;
}
TEST(a_tensor_of_another_block_is_refused)
{
    blocks_case s;
    eg_tensor *d;
    blocks_case_open(&s, 99, -1, 1);
    ck_assert_int_eq(eg_grad_over(.cx = s.cx, .loss = passes_on, .user = &s, .examples = 4,
                                  .block = 2, .count = 1, .xs = &s.w, .dxs = &d),
                     -1);
    eg_assert_error(s.cx, "block 1 (examples 2 to 3): add: operand 2 was used after the scope");
    eg_close(s.cx);
}
#endif
/* An operation without operands, as eg_expr of positions alone, takes its context from .cx. */
static eg_tensor *ramp_loss(void *w, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    *count = to - from;
    eg_tensor *ramp = eg_expr("i=3", "0.5 + 2 * i", .cx = cx);
    return eg_scale(eg_sum(NULL, eg_mul(w, ramp)), (double)(to - from));
}
LOOP_TEST(a_formula_without_tensors_in_a_block, 2)
{
    eg_ctx *cx = eg_open(.threads = 2);
    eg_tensor *w = eg_ones(cx, 3), *dw;
    for (int k = 0; k < 3; k++) {
        double mean = 0;
        eg_captured_blocks *c = _i ? eg_captured_blocks_open(cx) : NULL;
        ck_assert_msg(!eg_grad_over(.cx = cx, .loss = ramp_loss, .user = w, .examples = 9,
                                    .block = 2, .count = 1, .xs = &w, .dxs = &dw, .mean = &mean,
                                    .captured = c),
                      "%s", eg_error(cx));
        ck_assert(mean == 7.5);
        for (int i = 0; i < 3; i++) ck_assert(eg_get(dw, i) == .5 + 2 * i);
    }
    eg_close(cx);
}
/* Directions of forward mode and the seed of a gradient may be tensors of the calling context. */
typedef struct directions {
    eg_tensor *w, *v, *seed;
} directions;
static eg_tensor *directions_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const directions *u = user;
    eg_tensor *w = u->w, *y = eg_mul(w, eg_square(w)), *g, *hv;
    (void)cx;
    *count = to - from;
    eg_grad(y, u->seed, 1, &w, &g);             /* 3 w² seed */
    eg_hvp(eg_sum(NULL, y), 1, &w, &u->v, &hv); /* 6 w v */
    eg_tensor *t = eg_jvp(y, 1, &w, &u->v);     /* 3 w² v */
    return eg_scale(eg_sum(NULL, eg_add(eg_add(g, t), hv)), (double)(to - from));
}
LOOP_TEST(directions_of_the_calling_context_in_a_block, 2)
{
    static const double w[] = { 1, 2, 3 }, v[] = { 1, 0, 2 }, seed[] = { 2, 1, 1 };
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 2);
    directions u = { eg_from(cx, w, 3), eg_from(cx, v, 3), eg_from(cx, seed, 3) };
    eg_tensor *d;
    for (int k = 0; k < 3; k++) {
        double mean = 0;
        eg_captured_blocks *c = _i ? eg_captured_blocks_open(cx) : NULL;
        ck_assert_msg(!eg_grad_over(.cx = cx, .loss = directions_loss, .user = &u, .examples = 9,
                                    .block = 2, .count = 1, .xs = &u.w, .dxs = &d, .mean = &mean,
                                    .captured = c),
                      "%s", eg_error(cx));
        ck_assert(mean == 144);
        for (int i = 0; i < 3; i++)
            ck_assert(eg_get(d, i) == 6 * w[i] * (seed[i] + v[i]) + 6 * v[i]);
    }
    eg_close(cx);
}
TEST(counts_of_0_are_refused_where_all_are)
{
    blocks_case s;
    eg_tensor *d;
    blocks_case_open(&s, 21, 6, 2);
    ck_assert_int_eq(blocks_case_run(&s, &d), 0);
    s.bad = -1;
    ck_assert_int_eq(blocks_case_run(&s, &d), -1);
    const uint64_t draws = eg_draws(s.cx);
    eg_assert_error(s.cx, "grad_over: the count of all blocks is 0");
    /* the numbers that the next call draws are those that this one would have drawn */
    s.bad = -1;
    ck_assert_int_eq(blocks_case_run(&s, &d), -1);
    ck_assert_uint_eq(eg_draws(s.cx), draws);
    eg_clear(s.cx);
    eg_close(s.cx);
}
TEST(an_x_with_a_hook_and_a_bad_option_are_refused)
{
    blocks_case s;
    eg_tensor *d;
    blocks_case_open(&s, 99, -1, 2);
#define REFUSED(message, ...)                                                                      \
    ck_assert_int_eq(eg_grad_over(.cx = s.cx, .loss = blocks_case_loss, .user = &s,                \
                                  .examples = 12, .count = 1, .xs = &s.w, .dxs = &d, __VA_ARGS__), \
                     -1);                                                                          \
    eg_assert_error(s.cx, message)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#if defined(__clang__)
#pragma clang diagnostic ignored "-Winitializer-overrides"
#endif
    REFUSED("grad_over: there must be from 1 to 2^48 examples, not 0", .examples = 0);
    REFUSED("from 1 to 2^48 examples, not 9223372036854775807", .examples = INT64_MAX);
    REFUSED("grad_over: a block must have at least 1 example, and 0 is for 8, not -1", .block = -1);
    /* a block that is longer than the examples is one block */
    ck_assert_int_eq(eg_grad_over(.cx = s.cx, .loss = blocks_case_loss, .user = &s, .examples = 12,
                                  .count = 1, .xs = &s.w, .dxs = &d, .block = INT64_MAX),
                     0);
    REFUSED("grad_over: 5000 leaves; 1 to 4096", .leaves = 5000);
    REFUSED("grad_over: the loss is NULL", .loss = NULL);
    REFUSED("grad_over: there are no xs", .count = 0);
    REFUSED("grad_over: there are no xs", .count = -1, .xs = NULL, .dxs = NULL);
    REFUSED("grad_over: xs is NULL", .xs = NULL);
    REFUSED("grad_over: dxs is NULL", .dxs = NULL);
    REFUSED("grad_over: .from_leaf is 1 and .to_leaf 9, but there are 2 leaves, counted from 0",
            .from_leaf = 1, .to_leaf = 9);
    REFUSED(".from_leaf and .to_leaf need .take", .from_leaf = 1);
#pragma GCC diagnostic pop
    eg_hook(s.w, (eg_hook_function *)(void (*)(void))strlen, NULL);
    ck_assert_int_eq(blocks_case_run(&s, &d), -1);
    eg_assert_error(s.cx, "grad_over: xs[0] has a hook");
    eg_close(s.cx);
    ck_assert_int_eq(eg_grad_over(.cx = NULL), -1);
}

/* A parameter that some blocks reach, and one that none reaches. */
static eg_tensor *some_reach(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    blocks_case *s = user;
    (void)cx, (void)to, (void)count;
    return from == 3 || from == 4 ? eg_sum(NULL, eg_mul(s->x, s->x)) : eg_sum(NULL, s->w);
}
TEST(gradients_of_tensors_that_no_block_reads_are_null)
{
    blocks_case s;
    blocks_case_open(&s, 0, -1, 2);
    eg_tensor *other = eg_ones(s.cx, 2), *x[] = { s.w, other, s.x }, *d[3];
    ck_assert_int_eq(eg_grad_over(.cx = s.cx, .loss = some_reach, .user = &s, .examples = 8,
                                  .block = 1, .count = 3, .xs = x, .dxs = d),
                     0);
    ck_assert_ptr_null(d[1]);
    ck_assert_double_eq(eg_f64(d[0])[2], 6 / 8.);
    ck_assert_double_eq(eg_f64(d[2])[5], 2 * 2 * eg_f64(s.x)[5] / 8);
    eg_close(s.cx);
}

/* Leaves from the middle of a tree wait for two neighbours that are not computed here: there are
 * subtrees of every size at both ends. */
static int take_count(void *user, const eg_leaf_sum *sum)
{
    int64_t *n = user;
    *n += sum->count;
    return 0;
}
static eg_tensor *sum_of_w(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const blocks_case *s = user;
    (void)cx, (void)from, (void)to, (void)count;
    return eg_sum(NULL, s->w);
}
LOOP_TEST(leaves_from_the_middle_hold_two_runs_of_sums, 3)
{
    static const int64_t from[] = { 1, 85, 43 }, to[] = { 255, 170, 256 };
    blocks_case s;
    blocks_case_open(&s, 0, -1, 2);
    for (int threads = 1; threads <= 2; threads++) {
        int64_t n = 0;
        int sums = 0;
        ck_assert_int_eq(eg_grad_over(.cx = s.cx, .loss = sum_of_w, .user = &s, .examples = 256,
                                      .block = 1, .leaves = 256, .count = 1, .xs = &s.w,
                                      .take = take_count, .take_user = &n, .from_leaf = from[_i],
                                      .to_leaf = to[_i], .serial = threads == 1, .sums = &sums),
                         0);
        ck_assert_int_eq(n, to[_i] - from[_i]);
        ck_assert_int_le(sums, 8 + (threads == 1 ? 9 : 2 * 9 + 8));
    }
    eg_close(s.cx);
}
/* Each of two threads waits in a leaf of its half until the other has come to its own. The sums
 * before both leaves then wait in the tree, and those from leaf 385 on also for the first half. */
enum { LEFT_LEAF = 383, RIGHT_LEAF = 767 };
static _Atomic int come;
static eg_tensor *loss_that_meets(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const time_t begun = time(NULL);
    (void)user, (void)to, (void)count;
    if (from == LEFT_LEAF || from == RIGHT_LEAF) {
        atomic_fetch_add(&come, 1);
        while (atomic_load(&come) < 2 && time(NULL) < begun + 3) sched_yield();
    }
    return eg_scalar(cx, 1);
}
TEST(sums_wait_on_both_sides_of_the_ranges_of_threads)
{
    eg_ctx *cx = eg_open(.threads = 2);
    double mean = 0;
    int sums = 0;
    atomic_store(&come, 0);
    ck_assert_int_eq(eg_grad_over(.cx = cx, .loss = loss_that_meets, .examples = 770, .block = 1,
                                  .leaves = 770, .mean = &mean, .sums = &sums),
                     0);
    eg_assert_ok(cx);
    ck_assert(mean == 1);
    ck_assert_int_le(sums, 2 * 11 + 10);
    eg_close(cx);
}

/* Gradients and parameters of many pieces, some of which only one half of the tree has, and every
 * number of leaves from 1 to 5: the bits are those of one thread, and the values those of one
 * sum. */
enum { MANY = 70001, FEW = 4097 };
typedef struct wide {
    eg_tensor *x[3];
} wide;
static eg_tensor *wide_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const wide *w = user;
    eg_tensor *y = eg_full(cx, 0, 1);
    *count = 2 * (to - from);
    for (int64_t e = from; e < to; e++) {
        y = eg_add(y, eg_scale(eg_sum(NULL, eg_square(w->x[0])), (double)(e + 1) / 3));
        if (e < 2) y = eg_add(y, eg_sum(NULL, eg_square(w->x[1])));
        if (e > 2) y = eg_add(y, eg_sum(NULL, eg_square(w->x[2])));
    }
    return y;
}
LOOP_TEST(the_last_sum_is_made_by_all_threads, 5)
{
    uint64_t hash[3];
    for (int k = 0; k < 3; k++) {
        eg_ctx *c = eg_open(.threads = k + 1, .seed = 3);
        eg_params *p = eg_params_open(c);
        wide w;
        for (int i = 0; i < 3; i++) {
            char name[16];
            snprintf(name, sizeof name, "x%d", i);
            w.x[i] = eg_param(p, name, "a", i == 1 ? FEW : MANY);
            eg_init_normal(w.x[i], 1);
        }
        eg_tensor *d[3];
        for (int again = 0; again < 3; again++) /* then the helpers are awake */
            ck_assert_int_eq(eg_grad_over(.cx = c, .loss = wide_loss, .user = &w, .count = 3,
                                          .examples = 5, .block = 1, .leaves = _i + 1, .xs = w.x,
                                          .dxs = d),
                             0);
        hash[k] = 1;
        for (int i = 0; i < 3; i++) {
            const float *x = eg_f32(w.x[i]), *g = eg_f32(d[i]);
            const double of = (i == 0 ? 15 / 3. : 2) * 2 / 10;
            for (int64_t e = 0; e < eg_size(d[i]); e++)
                ck_assert_float_eq_tol(g[e], of * x[e], 1e-5);
            hash[k] = hash_tensor(hash[k], d[i]);
        }
        eg_opt *opt[] = { eg_adam(p, .lr = 1e-2, .clip_norm = 1, .weight_decay = 0.1),
                          eg_sgd(p, .lr = 1e-2, .momentum = 0.9, .clip_value = 0.01) };
        for (int o = 0; o < 2; o++)
            for (int step = 0; step < 3; step++) {
                eg_mark m = eg_push(c);
                eg_step_over(opt[o], wide_loss, &w, 5, .block = 1, .leaves = _i + 1);
                /* one parameter has one step less */
                eg_step_by(opt[o], (eg_tensor *[]){ d[0], step ? d[1] : NULL, d[2] });
                eg_assert_ok(c);
                eg_pop(c, m);
            }
        for (int i = 0; i < 3; i++) hash[k] = hash_tensor(hash[k], w.x[i]);
        const double norm = eg_opt_report_of(opt[0]).norm;
        hash[k] = eg_hash(hash[k], &norm, sizeof norm);
        ck_assert_msg(hash[k] == hash[0], "%d threads", k + 1);
        eg_close(c);
    }
}

/* The parts that ranks compute add up along the same tree. */
typedef struct parts {
    eg_leaf_sum sum[16];
    double w[16][3];
    int n;
} parts;
static int take_part(void *user, const eg_leaf_sum *sum)
{
    parts *p = user;
    memcpy(p->w[p->n], eg_f64(sum->gradient[0]), sizeof p->w[0]);
    p->sum[p->n++] = *sum;
    return 0;
}
TEST(leaves_of_several_calls_make_the_whole_tree)
{
    for (int cut = 1; cut < 12; cut++) {
        blocks_case s;
        parts p = { .n = 0 };
        eg_tensor *d;
        blocks_case_open(&s, 99, -1, 2);
        ck_assert_int_eq(eg_grad_over(.cx = s.cx, .loss = blocks_case_loss, .user = &s,
                                      .examples = 12, .block = 1, .count = 1, .xs = &s.w,
                                      .dxs = &d),
                         0);
        for (int half = 0; half < 2; half++)
            ck_assert_int_eq(eg_grad_over(.cx = s.cx, .loss = blocks_case_loss, .user = &s,
                                          .examples = 12, .block = 1, .count = 1, .xs = &s.w,
                                          .take = take_part, .take_user = &p,
                                          .from_leaf = half ? cut : 0, .to_leaf = half ? 12 : cut),
                             0);
        for (int level = 0; p.n > 1 && level < 5; level++)
            for (int k = 0; k + 1 < p.n; k++) {
                const eg_leaf_sum *a = &p.sum[k], *b = &p.sum[k + 1];
                if (a->from >> (level + 1) != b->from >> (level + 1)) continue;
                if (a->to - a->from > 1 << level || (a->from >> level & 1)) continue;
                for (int i = 0; i < 3; i++) p.w[k][i] += p.w[k + 1][i];
                p.sum[k].to = b->to, p.sum[k].count += b->count, p.sum[k].loss += b->loss;
                memmove(&p.sum[k + 1], &p.sum[k + 2], (size_t)(p.n - k - 2) * sizeof p.sum[0]);
                memmove(&p.w[k + 1], &p.w[k + 2], (size_t)(p.n - k - 2) * sizeof p.w[0]);
                p.n--;
            }
        ck_assert_int_eq(p.n, 1);
        ck_assert_int_eq(p.sum[0].count, 12);
        for (int i = 0; i < 3; i++) ck_assert(p.w[0][i] / 12 == eg_f64(d)[i]);
        eg_close(s.cx);
    }
}

/* -- steps ------------------------------------------------------------------------------------- */
typedef struct ways {
    eg_params *params;
    eg_tensor *w, *x;
    int what;
} ways;
static eg_tensor *ways_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const ways *v = user;
    eg_tensor *x = eg_slice_axis(v->x, 0, from, to, 1), *y = eg_square(eg_mul(x, v->w));
    switch (v->what) {
    case 0: return eg_mean(NULL, y);                         /* not a sum */
    case 1: return eg_sum(NULL, eg_mul(y, eg_sum(NULL, y))); /* couples examples */
    case 2: *count = 1; return eg_sum(NULL, y);              /* neither is the count */
    case 3: return eg_sum(NULL, eg_mul(y, eg_uniform(cx, 0.5, 1, to - from, 3))); /* draws */
    case 4: return eg_sum(NULL, eg_log(eg_scale(y, from < 6 ? 1 : -1)));
    case 5: return eg_sum(NULL, eg_sqrt(eg_scale(y, from == 6 ? 0 : 1)));
    case 7: *count = INT64_MAX; return eg_sum(NULL, y); /* twice that is no int64_t */
    case 8: /* couples examples in training alone, as batch norm does */
        return eg_sum(NULL, eg_training(cx) ? eg_mul(y, eg_sum(NULL, y)) : y);
    case 9: /* a sum that has random draws in training alone */
        return eg_sum(NULL, eg_dropout(y, 0.5));
    case 10: /* a sum of f64 of terms that are computed in f32, as with weights kept in f64 */
    case 11: /* it also couples examples */
    case 12: /* a sum of f64, and a term of each call */
        if (v->what < 12) {
            y = eg_square(eg_mul(eg_cast(x, EG_F32), eg_cast(v->w, EG_F32)));
            eg_tensor *sum = eg_sum(NULL, y);
            y = eg_cast(eg_sub(eg_add(y, sum), sum), EG_F64); /* rounded by the sum */
        }
        y = eg_sum(NULL, y);
        return v->what == 10 ? y : eg_shift(y, v->what == 11 ? 0.1 : 1e-6);
    }
    return eg_sum(NULL, y);
}
static const char *const refused[] = {
    "step_over: the loss is not a sum over its examples: of examples 0 to 5 it is ",
    "step_over: the loss is not a sum over its examples: of examples 0 to 5 it is ",
    "step_over: the count is not a sum: of examples 0 to 5 it is 1, of 0 to 1 and 2 to 5 together "
    "2",
    NULL,
    "step_over: block 2 (examples 6 to 8): the loss is nan, which comes from log",
    "adam: the gradient of \"w\" has a nan: step_over: block 2 (examples 6 to 8): trace: ",
    NULL,
    "step_over: block 0 (examples 0 to 2): the count is 9223372036854775807; it must be from 0 to "
    "2^48",
    "step_over: the loss is not a sum over its examples: of examples 0 to 5 it is ",
    NULL,
    NULL,
    "step_over: the loss is not a sum over its examples: of examples 0 to 5 it is ",
    "step_over: the loss is not a sum over its examples: of examples 0 to 5 it is ",
};
LOOP_TEST(a_loss_that_is_no_sum_is_refused, sizeof refused / sizeof *refused)
{
    for (int threads = 1; threads <= 2; threads++) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = threads);
        eg_params *p = eg_params_open(cx);
        ways v = { p, eg_init_constant(eg_param(p, "w", "d", 3), 2), NULL, _i };
        v.x = eg_uniform(cx, 0.5, 1, 12, 3);
        eg_opt *opt = eg_adam(p);
        const double before = eg_f64(v.w)[0];
        const int bad = eg_step_over(opt, ways_loss, &v, 12, .block = 3);
        ck_assert_msg(bad == (refused[_i] ? -1 : 0), "%s", eg_error(cx) ? eg_error(cx) : "done");
        if (refused[_i])
            ck_assert_msg(!strncmp(eg_error(cx), refused[_i], strlen(refused[_i])), "%s",
                          eg_error(cx));
        ck_assert((eg_f64(v.w) && eg_f64(v.w)[0] == before) || !refused[_i] || eg_error(cx));
        eg_clear(cx);
        ck_assert_int_eq(eg_f64(v.w)[0] == before, refused[_i] != NULL);
        eg_close(cx);
    }
    ck_assert_int_eq(eg_step_over(NULL, ways_loss, NULL, 1), -1);
}

/* Numbers of examples up to the largest int64_t: parts of them are in range, too. */
static eg_tensor *counting_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const ways *v = user;
    *count = 1;
    if (from < 0 || to <= from) return eg_fail(cx, "from %lld", (long long)from);
    return eg_sum(NULL, eg_scale(v->w, (double)(to - from) / 1e18));
}
TEST(a_block_of_the_largest_number_of_examples)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 1);
    eg_params *p = eg_params_open(cx);
    ways v = { p, eg_init_constant(eg_param(p, "w", "d", 3), 2), NULL, 0 };
    ck_assert_int_eq(eg_step_over(eg_adam(p), counting_loss, &v, INT64_MAX, .block = INT64_MAX),
                     -1);
    eg_assert_error(cx, "step_over: the count is not a sum: of examples 0 to 9223372036854775806 "
                        "it is 1, of 0 to 3074457345618258602 and 3074457345618258603 to "
                        "9223372036854775806 together 2");
    eg_close(cx);
}

/* A step that is refused because of what its loss does has changed nothing, although the loss was
 * called before to find out whether it is a sum. */
static const struct {
    int what;
    const char *says;
} forbidden[] = {
    { 0, "fill: the tensor belongs to the context that waits for its blocks; a block must not" },
    { 1, "assign: the tensor belongs to the context that waits" },
    { 2, "mut_f64: the tensor belongs to the context that waits" },
    { 9, "name: the tensor belongs to the context that waits" },
    { 23, "close: the context waits for its blocks, and stays open" },
    { 24, "eg_trace was called and not undone" },
    { 25, "owner: it belongs to the context that waits for its blocks" },
    { 26, "owner: it belongs to the context that waits for its blocks" },
    { 27, "assign: the tensor belongs to the context that waits" },
    { 28, "owner: it belongs to the context that waits for its blocks" },
    { 29, "close: the context of a block is closed by its call" },
};
LOOP_TEST(a_step_that_is_refused_has_changed_nothing, sizeof forbidden / sizeof *forbidden)
{
    for (int threads = 1; threads <= 2; threads++) {
        blocks_case s;
        blocks_case_open(&s, forbidden[_i].what, -1, threads);
        s.params = eg_params_open(s.cx);
        s.w = eg_init_constant(eg_param(s.params, "w", "d", 3), 1);
        s.captured = eg_captured_blocks_open(s.cx);
        eg_opt *opt = eg_sgd(s.params);
        ck_assert_int_eq(eg_step_over(opt, blocks_case_loss, &s, 12, .block = 2), -1);
        ck_assert_msg(strstr(eg_error(s.cx), forbidden[_i].says), "%s", eg_error(s.cx));
        ck_assert(!strncmp(eg_error(s.cx), "step_over: block 0 (examples 0 to 1): ", 38));
        eg_clear(s.cx);
        ck_assert(!eg_trace(s.cx, false));
        ck_assert_int_eq(eg_params_count(s.params), 1);
        ck_assert_int_eq(eg_opt_report_of(opt).steps, 0);
        for (int k = 0; k < 3; k++) ck_assert(eg_f64(s.w)[k] == 1);
        s.what = 99;
        ck_assert_int_eq(eg_step_over(opt, blocks_case_loss, &s, 12, .block = 2), 0);
        eg_close(s.cx);
    }
}
/* eg_block_call computes in the context itself, which stays open too. */
TEST(a_call_of_a_block_does_not_close_its_context)
{
    blocks_case s;
    blocks_case_open(&s, 23, -1, 1);
    ck_assert_ptr_null(eg_block_call(s.cx, blocks_case_loss, &s, 0, 2, NULL));
    eg_assert_error(s.cx, "close: the context waits for its blocks, and stays open");
    eg_close(s.cx);
}

/* A loss that leaves a switch in another position is refused, and the switch is put back. */
TEST(a_call_of_a_block_puts_switches_back)
{
    blocks_case s;
    for (int what = 16; what <= 18; what++) { /* eg_nograd, eg_eval, eg_flush */
        blocks_case_open(&s, what, -1, 1);
        ck_assert_ptr_null(eg_block_call(s.cx, blocks_case_loss, &s, 0, 2, NULL));
        eg_assert_error(s.cx, "was called and not undone");
        ck_assert(eg_training(s.cx) && !eg_nograd(s.cx, false) && !eg_flushes(s.cx));
        eg_close(s.cx);
    }
}

/* A loss that computes a gradient itself is tested too: Σ_e |∂y_e/∂w|² is a sum over examples,
 * |∂(Σ_e y_e)/∂w|² is not. */
static eg_tensor *penalty(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const ways *v = user;
    (void)cx, (void)count;
    eg_tensor *x = eg_slice_axis(v->x, 0, from, to, 1), *of = v->what ? v->w : x, *g;
    eg_tensor *y = eg_sum(NULL, eg_square(eg_mul(x, v->w)));
    return eg_grad(y, NULL, 1, &of, &g) ? NULL : eg_sum(NULL, eg_square(g));
}
LOOP_TEST(a_penalty_of_the_gradient_is_tested_with_a_history, 2)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_params *p = eg_params_open(cx);
    ways v = { p, eg_init_constant(eg_param(p, "w", "d", 3), 2), NULL, _i };
    v.x = eg_uniform(cx, 0.5, 1, 12, 3);
    ck_assert_int_eq(eg_step_over(eg_adam(p), penalty, &v, 12, .block = 3), _i ? -1 : 0);
    if (_i) eg_assert_error(cx, "step_over: the loss is not a sum over its examples: of examples");
    eg_close(cx);
}

/* One step over a batch is one step on its mean loss. */
TEST(a_step_over_blocks_is_the_step_of_the_batch)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 2);
    eg_params *p[2];
    ways v[2];
    for (int k = 0; k < 2; k++) {
        p[k] = eg_params_open(cx);
        v[k] = (ways){ p[k], eg_init_constant(eg_param(p[k], "w", "d", 3), 2), NULL, 6 };
        v[k].x = k ? v[0].x : eg_uniform(cx, 0.5, 1, 12, 3);
        eg_opt *opt = eg_sgd(p[k], .lr = 0.01);
        int64_t count;
        for (int step = 0; step < 3; step++)
            ck_assert_int_eq(
                k ? eg_step_over(opt, ways_loss, &v[k], 12, .block = 5)
                  : eg_step(opt, eg_scale(ways_loss(&v[k], cx, 0, 12, &count), 1 / 12.)),
                0);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq_tol(eg_f64(v[0].w)[i], eg_f64(v[1].w)[i], 1e-14);
    eg_close(cx);
}

/* Products add gradients to the sum of a leaf themselves; other uses of a weight in the block are
 * added as well. */
typedef struct uses {
    int what;
    eg_tensor *x, *w, *b;
} uses;
static eg_tensor *uses_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const uses *u = user;
    eg_tensor *x = eg_slice_axis(u->x, 0, from, to, 1), *w = u->w, *b = u->b, *y;
    *count = from == 0; /* of all blocks: 1, so that nothing is divided */
    y = eg_affine("bi,io->bo", x, w, b, .activation = "gelu");
    switch (u->what) {
    case 0: break;
    case 1: y = eg_affine("io,bi->bo", w, x, b, .add = x); break;
    case 2: y = from == 3 ? eg_add(eg_square(x), b) : y; break; /* a block without w */
    case 3: y = eg_affine("ii,bi->bi", w, x, b); break;
    case 4: y = eg_affine("bo,io->bi", y, w, b); break; /* twice */
    case 5: y = eg_mul(y, eg_sum(NULL, eg_square(w))); break;
    case 6: y = eg_add(y, eg_slice_axis(w, 0, 0, 1, 1)); break;
    case 7: y = eg_mul(eg_slice_axis(w, 0, 0, 1, 1), eg_affine("bi,io->bo", y, w, b)); break;
    case 8: y = eg_affine("bi,io->bo", x, eg_transpose(w, 0, 1), b); break;
    }
    (void)cx;
    return eg_sum(NULL, eg_square(y));
}
LOOP_TEST(sums_of_a_leaf_are_those_of_its_blocks, 9 * 2)
{
    enum { EACH = 3, ALL = 12, SIDE = 5 };
    const bool once = _i % 9 < 4; /* only one product: then the bits are equal */
    for (int same = 0; same < 2; same++) {
        eg_ctx *cx = eg_open(.dtype = _i / 9 ? EG_F32 : EG_F64, .threads = 2, .seed = 3);
        uses u = { _i % 9, eg_uniform(cx, -1, 1, ALL, SIDE), eg_uniform(cx, -1, 1, SIDE, SIDE),
                   eg_uniform(cx, -1, 1, SIDE) };
        eg_tensor *const xs[] = { u.w, u.b, same ? u.w : u.x }; /* w stands twice */
        eg_tensor *over[3], *d[3], *sum[3] = { NULL };
        eg_nograd(cx, true);
        ck_assert_msg(
            !eg_grad_over(cx, uses_loss, &u, ALL, 3, xs, over, .block = EACH, .leaves = 1), "%s",
            eg_error(cx));
        for (int64_t from = 0; from < ALL; from += EACH) {
            int64_t count;
            eg_nograd(cx, false);
            eg_tensor *y = uses_loss(&u, cx, from, from + EACH, &count);
            eg_nograd(cx, true);
            ck_assert_msg(!eg_grad(y, NULL, 3, xs, d), "%s", eg_error(cx));
            for (int k = 0; k < 3; k++) sum[k] = sum[k] ? eg_add(sum[k], d[k]) : d[k];
        }
        const double close = once ? 0 : eg_type(u.x) == EG_F64 ? 1e-13 : 1e-5;
        for (int k = 0; k < 3; k++) eg_assert_close(over[k], sum[k], close);
        eg_close(cx);
    }
}

/* Each allocation may fail, in any thread: the step reports an error, and no memory is leaked. */
TEST(each_allocation_may_fail)
{
    for (int room = 0;; room++) {
        int left = room;
        eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 2, .realloc = failing, .user = &left);
        if (!cx) continue;
        eg_params *p = eg_params_open(cx);
        ways v = { p, eg_param(p, "w", "d", 3), eg_uniform(cx, 0.5, 1, 12, 3), 6 };
        eg_opt *opt = eg_adam(p);
        const int bad = opt ? eg_step_over(opt, ways_loss, &v, 12, .block = 1) : -1;
        if (bad) ck_assert_msg(strstr(eg_error(cx), "memory"), "%s", eg_error(cx));
        eg_close(cx);
        if (!bad) break;
        ck_assert_int_lt(room, 4000);
    }
}

/* The helper cannot allocate the headers of the xs, and then takes leaves of the calling thread,
 * which are earlier ones. The error is again that of the allocation. */
typedef struct refusing {
    pthread_t caller;
    int at;          /* the allocation of the helper that fails; the later ones fail too */
    atomic_int made; /* allocations that the helper has asked for */
    eg_tensor *x[300];
} refusing;
static void *refuse_helper(void *user, void *p, size_t old_size, size_t new_size)
{
    refusing *r = user;
    (void)old_size;
    if (!new_size) return free(p), NULL;
    if (!pthread_equal(pthread_self(), r->caller) && atomic_fetch_add(&r->made, 1) >= r->at)
        return NULL;
    return realloc(p, new_size);
}
static eg_tensor *refusing_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    refusing *r = user;
    (void)cx, (void)from, (void)to, (void)count;
    /* the caller waits for the helper's second attempt, at most 10 ms: there may be none */
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (atomic_load(&r->made) < r->at + 2 &&
             (now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec < 10000000);
    return eg_square(r->x[0]);
}
TEST(a_helper_without_memory_leaves_no_leaf_uncomputed)
{
    static refusing r;
    for (int k = 0; k < 24; k++) {
        const bool captured = k % 2;
        memset(&r, 0, sizeof r);
        r.caller = pthread_self();
        r.at = 1 << 30;
        eg_ctx *cx = eg_open(.threads = 2, .realloc = refuse_helper, .user = &r);
        const int count = sizeof r.x / sizeof *r.x;
        for (int i = 0; i < count; i++) r.x[i] = eg_ones(cx, 1);
        eg_tensor *dxs[300];
        eg_captured_blocks *blocks = captured ? eg_captured_blocks_open(cx) : NULL;
        eg_assert_ok(cx);
        r.at = atomic_load(&r.made) + k / 2;
        const int bad = eg_grad_over(cx, refusing_loss, &r, 16, count, r.x, dxs, .block = 1,
                                     .captured = blocks);
        if (bad) ck_assert_msg(strstr(eg_error(cx), "memory"), "%s", eg_error(cx));
        eg_close(cx);
    }
}
