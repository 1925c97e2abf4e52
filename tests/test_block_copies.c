/* test_block_copies.c: eg_grad_over and eg_step_over with parameters that have copies: each copy
 * gets the bits that a single model gets. */
#include <eingrad.h>
#include <math.h>
#include <string.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

enum { COPIES = 3, EXAMPLES = 13, LENGTH = 4, SYMBOLS = 5, STEPS = 3 };
static const uint64_t seed[COPIES] = { 8, 3, 100 };
static const double rate[COPIES] = { 1e-3, 1e-2, 3e-3 };

static eg_tensor *model_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    eg_tensor *t = eg_block_rows(cx, "t"),
              *y = eg_transformer_run((eg_transformer *)user, t, .where = "j <= i");
    *count = (to - from) * LENGTH;
    return eg_scale(eg_cross_entropy("b l [v]", y, t, .ignore = -1), (double)*count);
}
static void tokens(int64_t *t)
{
    for (int k = 0; k < COPIES * EXAMPLES * LENGTH; k++) t[k] = (k * k + k / 7) % SYMBOLS;
}
/* A model and its optimiser: of all copies, or of copy c alone. */
typedef struct trained {
    eg_ctx *cx;
    eg_params *p;
    eg_transformer *net;
    eg_opt *opt;
} trained;
static trained model_new(int threads, int c)
{
    trained m = { .cx = eg_open(.threads = threads, .seed = c < 0 ? 1 : seed[c]) };
    m.p = c < 0 ? eg_params_open(m.cx, .copies = COPIES, .seeds = seed) : eg_params_open(m.cx);
    m.net = eg_transformer_new(m.p, "", .vocabulary = SYMBOLS, .length = LENGTH, .d_model = 8,
                               .heads = 2, .layers = 1, .dropout = 0.2,
                               .mha = &(eg_mha_args){ .sink = true });
    m.opt = c < 0 ? eg_adam(m.p, .lr_each = rate, .copies = COPIES, .clip_norm = 0.5)
                  : eg_adam(m.p, .lr = rate[c], .clip_norm = 0.5);
    return m;
}
static void trains_like_single(int threads, bool own, bool serial)
{
    int64_t t[COPIES * EXAMPLES * LENGTH], counted;
    double mean, each[COPIES], one, sum = 0;
    tokens(t);
    trained all = model_new(threads, -1);
    eg_tensor *x = eg_from_n(all.cx, EG_I64, t, own ? 3 : 2,
                             own ? (int64_t[]){ COPIES, EXAMPLES, LENGTH }
                                 : (int64_t[]){ EXAMPLES, LENGTH });
    if (own) x = eg_copies_unstack(eg_params_copies(all.p), x);
    for (int s = 0; s < STEPS; s++)
        ck_assert_int_eq(eg_step_over(all.opt, model_loss, all.net, .batch = { { "t", x } },
                                      .examples = EXAMPLES, .block = 3, .serial = serial,
                                      .mean = &mean, .mean_each = each, .counted = &counted),
                         0);
    ck_assert_int_eq(counted, COPIES * EXAMPLES * LENGTH);
    for (int c = 0; c < COPIES; c++) {
        trained m = model_new(1, c);
        eg_tensor *mine = eg_from_n(m.cx, EG_I64, own ? t + c * EXAMPLES * LENGTH : t, 2,
                                    (int64_t[]){ EXAMPLES, LENGTH });
        for (int s = 0; s < STEPS; s++)
            ck_assert_int_eq(eg_step_over(m.opt, model_loss, m.net, .batch = { { "t", mine } },
                                          .block = 3, .mean = &one),
                             0);
        ck_assert(one == each[c]);
        sum += one;
        ck_assert_int_eq(eg_draws(m.cx), eg_draws(all.cx));
        for (int k = 0; k < eg_params_count(m.p); k++)
            ck_assert_msg(
                same_bits(eg_params_at(m.p, k)->x, eg_copy_at(eg_params_at(all.p, k)->x, c)),
                "copy %d: %s", c, eg_params_at(m.p, k)->name);
        eg_close(m.cx);
    }
    ck_assert_double_eq_tol(mean, sum / COPIES, 1e-14);
    eg_assert_ok(all.cx);
    eg_close(all.cx);
}
LOOP_TEST(each_copy_trains_as_a_single_model, 8)
{
    trains_like_single(1 + _i % 4 / 2 * 2, _i % 2, _i / 4);
}

/* Dropout of parameters, and attention to them with dropout. */
static eg_tensor *dropped_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const eg_linear *l = user;
    eg_tensor *x = eg_block_rows(cx, "x"), *kept = eg_dropout(l->weight, 0.5);
    (void)from, (void)to, (void)count;
    if (eg_copies_of(l->weight)) return eg_fail(cx, "a block computes one copy");
    eg_tensor *y = eg_attention("bi,oi,oj->bj", eg_einsum("bi,io->bo", x, kept), l->weight,
                                l->weight, .dropout = 0.4);
    return eg_sum(NULL, eg_square(y));
}
TEST(dropout_of_parameters_draws_for_each_copy_as_for_a_single_model)
{
    eg_tensor *w[COPIES + 1];
    eg_ctx *own[COPIES + 1];
    for (int c = 0; c <= COPIES; c++) {
        own[c] = c ? eg_open(.threads = 1, .seed = seed[c - 1]) : eg_open(.threads = 2);
        eg_params *p =
            c ? eg_params_open(own[c]) : eg_params_open(own[c], .copies = COPIES, .seeds = seed);
        eg_linear *l = eg_linear_new(p, "l", .in = 4, .out = 4);
        eg_opt *o = eg_sgd(p, .lr = 0.1);
        for (int s = 0; s < STEPS; s++)
            ck_assert_msg(!eg_step_over(o, dropped_loss, l, EXAMPLES, .block = 3,
                                        .batch = { { "x", eg_ones(own[c], EXAMPLES, 4) } }),
                          "%s", eg_error(own[c]));
        w[c] = l->weight;
    }
    for (int c = 0; c < COPIES; c++)
        ck_assert_msg(same_bits(w[c + 1], eg_copy_at(w[0], c)), "copy %d", c);
    ck_assert(eg_copies_of(w[0]) != NULL);
    for (int c = 0; c <= COPIES; c++) eg_close(own[c]);
}

/* -- gradients of other tensors --------------------------------------------------------------- */
/* (w_c · x + s)² summed over the rows x; w has copies, s has none. */
typedef struct linear {
    eg_tensor *w, *s, *unused, *other;
    const eg_copies *c;
    bool stops; /* copy 1 fails */
    int calls[COPIES];
} linear;
static eg_tensor *linear_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    linear *l = user;
    const int64_t c = eg_block_copy(cx);
    *count = to - from + c; /* counts that differ */
    __atomic_fetch_add(&l->calls[c], 1, __ATOMIC_RELAXED);
    if (l->stops && c == 1) return eg_fail(cx, "no more");
    eg_tensor *y = eg_add(eg_einsum("bi,i->b", eg_block_rows(cx, "x"), l->w), l->s);
    if (l->other) y = eg_mul(y, l->other);
    return eg_sum(NULL, eg_square(y));
}
static linear linear_new(eg_ctx *cx)
{
    eg_owner *owner = eg_owner_open(cx);
    linear l = {.c = eg_copies_open(owner, COPIES, seed), .unused = eg_ones(cx, 2) };
    l.w = eg_copies_unstack(l.c, eg_normal(cx, 0, 1, COPIES, 4));
    l.s = eg_normal(cx, 0, 1, 1);
    return l;
}
TEST(an_x_without_copies_gets_the_sum_over_copies)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 2);
    linear l = linear_new(cx);
    eg_tensor *x = eg_normal(cx, 0, 1, EXAMPLES, 4), *d[3], *e[2];
    eg_tensor *xs[] = { l.w, l.unused, l.s };
    double mean, each[COPIES], again[COPIES], sum = 0;
    int64_t counted;
    ck_assert_int_eq(eg_grad_over(.cx = cx, .loss = linear_loss, .user = &l, .count = 3, .xs = xs,
                                  .dxs = d, .block = 1, .leaves = 3, .batch = { { "x", x } },
                                  .mean = &mean, .mean_each = each, .counted = &counted),
                     0);
    ck_assert_ptr_eq(d[1], NULL);
    ck_assert_ptr_eq(eg_copies_of(d[0]), l.c);
    ck_assert_ptr_eq(eg_copies_of(d[2]), NULL);
    ck_assert_int_eq(counted, COPIES * EXAMPLES + EXAMPLES * (0 + 1 + 2));
    /* Σ losses/Σ counts of each copy, by all copies at once */
    const double counts[] = { EXAMPLES, 2 * EXAMPLES, 3 * EXAMPLES };
    eg_tensor *y = eg_sum(NULL, eg_square(eg_add(eg_einsum("bi,i->b", x, l.w), l.s)));
    eg_tensor *count = eg_copies_unstack(l.c, eg_from_n(
                                                  cx, EG_F64, counts, 1, (int64_t[]) { COPIES }));
    y = eg_div(y, count);
    ck_assert_int_eq(eg_grad(y, NULL, 2, (eg_tensor *[]){ l.w, l.s }, e), 0);
    eg_assert_close(eg_copies_stack(d[0]), eg_copies_stack(e[0]), 1e-13);
    eg_assert_close(d[2], e[1], 1e-13);
    for (int c = 0; c < COPIES; c++) {
        ck_assert_double_eq_tol(each[c], eg_item(eg_copy_at(y, c)), 1e-12);
        ck_assert_int_eq(l.calls[c], EXAMPLES);
        sum += each[c];
    }
    ck_assert_double_eq_tol(mean, sum / COPIES, 1e-13);
    /* without xs: the means alone */
    ck_assert_int_eq(eg_grad_over(.cx = cx, .loss = linear_loss, .user = &l, .copies = l.c,
                                  .block = 1, .leaves = 3, .batch = { { "x", x } },
                                  .mean_each = again),
                     0);
    ck_assert_mem_eq(each, again, sizeof each);
    ck_assert_int_eq(eg_block_copy(cx), -1);
    eg_close(cx);
}

/* -- refused ---------------------------------------------------------------------------------- */
TEST(what_copies_refuse_in_blocks)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 1);
    linear l = linear_new(cx), other = linear_new(cx);
    eg_tensor *x = eg_normal(cx, 0, 1, EXAMPLES, 4), *d[2];
    eg_tensor *xs[] = { l.w, other.w };
    eg_captured_blocks *kept = eg_captured_blocks_open(cx);
    const char *const message[] = {
        "grad_over: xs[1] has 3 copies of another group",
        "grad_over: blocks of copies are not captured",
        "grad_over: \"x\" of .batch has copies of another group",
        "copy 0, block 0 (examples 0 to 7): mul: operand 2 has 3 copies of another group",
        "grad_over: copy 1, block 0 (examples 0 to 7): no more",
    };
    for (int k = 0; k < 5; k++) {
        l.other = k == 3 ? eg_sum(NULL, other.w) : NULL;
        l.stops = k == 4;
        eg_tensor *batch =
            k == 2 ? eg_copies_unstack(other.c, eg_ones(cx, COPIES, EXAMPLES, 4)) : x;
        ck_assert_int_eq(eg_grad_over(.cx = cx, .loss = linear_loss, .user = &l, .xs = xs, .dxs = d,
                                      .count = 1 + (k == 0), .captured = k == 1 ? kept : NULL,
                                      .batch = { { "x", batch } }),
                         -1);
        eg_assert_error(cx, message[k]);
    }
    eg_close(cx);
}
static bool copies_life(eg_ctx *cx, const char *path)
{
    linear l = linear_new(cx);
    eg_tensor *d, *x = eg_ones(cx, EXAMPLES, 4);
    (void)path;
    return !eg_grad_over(.cx = cx, .loss = linear_loss, .user = &l, .xs = &l.w, .dxs = &d,
                         .count = 1, .block = 2, .batch = { { "x", x } }) &&
           d;
}
TEST(every_allocation_of_blocks_of_copies_may_fail) { memory_ends_in_turn(copies_life, 200); }
