/* test_reuse.c: a gradient that is not recorded computes cotangents in the memory of those that no
 * node waits for any more (lib/autograd/reverse.c). */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad/check.h>
#include <stdlib.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void reuse_open(void) { cx = eg_open(.threads = 2, .seed = 5); }
static void reuse_close(void)
{
    eg_assert_ok(cx);
    eg_close(cx);
}
GROUP("gradients", .setup = reuse_open, .teardown = reuse_close)

/* -- random graphs ----------------------------------------------------------------------------- */
enum { ROWS = 40, COLUMNS = 32, NODES = 24, GRAPHS = 200 / SLOWER };

/* Returns a tensor of the shape ROWS × COLUMNS that an operation of this kind computes. */
static eg_tensor *applied(int kind, eg_tensor *a, eg_tensor *b, eg_tensor *w)
{
    switch (kind) {
    case 0: return eg_add(a, b);
    case 1: return eg_mul(a, b);
    case 2: return eg_tanh(a);
    case 3: return eg_einsum("ij,jk->ik", a, w);
    case 4: return eg_softmax("i [j]", eg_add(a, b));
    case 5: return eg_layernorm("i [j]", a, .gain = eg_select("[i] j", w, 3));
    case 6: return eg_add(eg_rearrange("j i -> i j", eg_rearrange("i j -> j i", a)), a);
    case 7:
        return eg_sub(
            eg_concat("[i] j", eg_slice("[i] j", a, 0, 7, 1), eg_slice("[i] j", b, 7, ROWS, 1)), a);
    case 8: return eg_add(a, eg_reshape(eg_mean("i [j]", b), ROWS, 1));
    case 9: return eg_at("[v] j, i -> i j", a, eg_randint(cx, 0, ROWS, ROWS));
    case 10: return eg_expr("i j", "x * sigmoid(x) + y", .with = { { "x", a }, { "y", b } });
    case 11: return eg_rearrange("(i h) j -> (h i) j", a, .h = 4);
    case 12: return eg_affine("ij,jk->ik", a, w, .activation = "gelu", .add = b);
    case 13: return eg_einsum("ij,jk,lk->il", a, w, eg_slice("[i] j", b, 0, COLUMNS, 1));
    default: return eg_sub(a, eg_scale(a, .5));
    }
}
/* Returns a sum over some nodes of a random graph of x and w; *inner is one of its nodes. */
static eg_tensor *random_graph(eg_tensor *x, eg_tensor *w, eg_tensor **inner)
{
    eg_tensor *node[NODES + 1] = { x }, *sum = NULL;
    for (int k = 1; k <= NODES; k++) {
        eg_tensor *a = node[rand() % k], *b = node[rand() % k];
        node[k] = eg_scale(applied(rand() % 15, a, b, w), .7);
        if (rand() % 3 == 0 || k == NODES) sum = sum ? eg_add(sum, node[k]) : node[k];
        if (k == NODES / 2) *inner = a;
    }
    return sum;
}
static void all_same_bits(eg_tensor *const *a, eg_tensor *const *b, int count)
{
    for (int k = 0; k < count; k++) ck_assert((!a[k] && !b[k]) || same_bits(a[k], b[k]));
}
/* Recorded or not, and again in the same scope, a gradient has the same bits. */
LOOP_TEST(graphs_have_the_same_gradients_whether_recorded_or_not, GRAPHS)
{
    srand((unsigned)_i + 1);
    eg_tensor *x = eg_normal(cx, 0, 1, ROWS, COLUMNS), *w = eg_normal(cx, 0, .2, COLUMNS, COLUMNS);
    eg_tensor *xs[3] = { x, w }, *want[3], *got[3], *again[3];
    eg_tensor *y = random_graph(x, w, &xs[2]), *seed = eg_normal(cx, 0, 1, ROWS, COLUMNS);
    ck_assert_int_eq(eg_grad_or_null(y, seed, 3, xs, want), 0);
    eg_tensor *before = eg_copy(seed);
    eg_nograd(cx, true);
    ck_assert_int_eq(eg_grad_or_null(y, seed, 3, xs, got), 0);
    ck_assert_int_eq(eg_grad_or_null(y, seed, 3, xs, again), 0);
    all_same_bits(want, got, 3);
    all_same_bits(want, again, 3);
    ck_assert(same_bits(seed, before));
}

/* -- memory ------------------------------------------------------------------------------------ */
#if !EG_DEBUG_ALLOC /* the peak is the arena's */
/* The gradient of a chain of products needs the results of the chain and few matrices more. */
TEST(a_chain_needs_few_cotangents_at_a_time)
{
    enum { N = 64, LINKS = 32, BYTES = N * N * 4 };
    eg_tensor *x = eg_normal(cx, 0, 1, N, N), *w = eg_normal(cx, 0, .1, N, N), *d[2], *y = x;
    for (int k = 0; k < LINKS; k++) y = eg_tanh(eg_einsum("ij,jk->ik", y, w));
    y = eg_sum(NULL, y);
    for (int recorded = 1; recorded >= 0; recorded--) {
        eg_mark m = eg_push(cx);
        eg_nograd(cx, !recorded);
        eg_stats_reset(cx);
        const size_t before = eg_stats(cx).used;
        ck_assert_int_eq(eg_grad(y, NULL, 2, (eg_tensor *[]){ x, w }, d), 0);
        const size_t used = eg_stats(cx).used_peak - before;
        ck_assert_msg(recorded ? used > 3 * LINKS * BYTES : used < 10 * BYTES,
                      "%zu bytes, recorded: %d", used, recorded);
        eg_pop(cx, m);
        ck_assert_uint_eq(eg_stats(cx).used, before);
    }
}
#endif

/* -- what the program may have kept ------------------------------------------------------------ */
enum { KEPT = 4096 };
typedef struct kept {
    int n;
    eg_tensor *g[8];
    float copy[8][KEPT];
} kept;
static void keep(kept *k, eg_tensor *g)
{
    ck_assert_int_lt(k->n, 8);
    memcpy(k->copy[k->n], eg_f32(eg_copy(g)), sizeof k->copy[0]);
    k->g[k->n++] = g;
}
static void all_are_unchanged(const kept *k, int n)
{
    ck_assert_int_eq(k->n, n);
    for (int i = 0; i < n; i++) {
        ck_assert(eg_ok(k->g[i]));
        ck_assert(!memcmp(eg_f32(eg_copy(k->g[i])), k->copy[i], sizeof k->copy[0]));
    }
}
static eg_tensor *keeps(void *user, eg_tensor *x, eg_tensor *g)
{
    (void)x;
    keep(user, g);
    return NULL;
}
static eg_tensor *keeps_and_replaces(void *user, eg_tensor *x, eg_tensor *g)
{
    keep(user, g);
    eg_tensor *twice = eg_scale(g, 2);
    (void)x;
    keep(user, twice);
    return twice;
}
/* Cotangents that a hook was given or returned stay as they are. */
TEST(cotangents_of_hooks_are_not_freed_early)
{
    kept *k = calloc(1, sizeof *k);
    eg_tensor *x = eg_normal(cx, 0, 1, KEPT), *h = eg_tanh(x), *z = eg_sin(h), *dx;
    eg_hook(h, keeps, k);
    eg_hook(z, keeps_and_replaces, k);
    eg_tensor *y = eg_tanh(eg_exp(eg_sin(eg_square(z))));
    eg_nograd(cx, true);
    ck_assert_int_eq(eg_grad(y, eg_normal(cx, 0, 1, KEPT), 1, &x, &dx), 0);
    eg_tensor *more = eg_exp(eg_sin(eg_tanh(dx)));
    ck_assert(eg_ok(more));
    all_are_unchanged(k, 3);
    free(k);
}

static kept *of_rule;
static bool halve_shape(eg_tensor *y)
{
    const eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool halve_forward(eg_tensor *y)
{
    const float *x = eg_f32(eg_operand(y, 0));
    float *out = eg_mut_f32(y);
    for (int64_t k = 0; k < KEPT; k++) out[k] = x[k] / 2;
    return true;
}
static eg_tensor *halve_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y, (void)i;
    eg_tensor *dx = eg_scale(g, .5);
    keep(of_rule, g);
    keep(of_rule, dx);
    return dx;
}
static const eg_op halve_op = {
    .name = "halve", .arity = 1, .shape = halve_shape, .forward = halve_forward, .rule = halve_rule
};
/* Cotangents that a rule of the program was given or returned stay as they are. */
TEST(cotangents_of_custom_operations_are_not_freed_early)
{
    of_rule = calloc(1, sizeof *of_rule);
    eg_tensor *x = eg_normal(cx, 0, 1, KEPT), *h = eg_tanh(x), *dx;
    h = eg_apply(&halve_op, NULL, 0, 1, &h);
    of_rule->n = 0; /* with --enable-debug the operation is checked at its first use */
    eg_tensor *y = eg_tanh(eg_exp(eg_sin(h)));
    eg_nograd(cx, true);
    ck_assert_int_eq(eg_grad(y, eg_normal(cx, 0, 1, KEPT), 1, &x, &dx), 0);
    all_are_unchanged(of_rule, 2);
    free(of_rule);
}
/* Gradients of results in between, views of one another, and x twice. */
TEST(returned_gradients_are_not_freed_early)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 64, 64), *t = eg_rearrange("i j -> j i", x);
    eg_tensor *h = eg_tanh(t), *s = eg_add(h, x), *y = eg_exp(eg_sin(s));
    eg_tensor *xs[] = { x, t, h, s, y, x, h }, *want[7], *got[7];
    eg_tensor *seed = eg_normal(cx, 0, 1, 64, 64);
    ck_assert_int_eq(eg_grad(y, seed, 7, xs, want), 0);
    eg_nograd(cx, true);
    ck_assert_int_eq(eg_grad(y, seed, 7, xs, got), 0);
    for (int k = 0; k < 8; k++) ck_assert(eg_ok(eg_exp(eg_normal(cx, 0, 1, 64, 64))));
    all_same_bits(want, got, 7);
}
/* Rules that compute the cotangents of all operands at once, for the same seed again. */
TEST(a_second_gradient_for_the_same_seed_is_the_same)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 64, 64), *h = eg_tanh(x),
              *g = eg_exp(eg_select("[i] j", x, 0));
    eg_tensor *ys[] = { eg_layernorm("i [j]", h, .gain = g),
                        eg_affine("ij,jk->ik", h, x, g, .activation = "gelu"),
                        eg_expr("i j", "a * sin(b[j])", .with = { { "a", h }, { "b", g } }),
                        eg_attention("bihd,bjhd,bjhe->bihe", eg_reshape(h, 1, 64, 2, 32),
                                     eg_reshape(x, 1, 64, 2, 32), eg_reshape(h, 1, 64, 2, 32)) };
    eg_nograd(cx, true);
    for (size_t k = 0; k < sizeof ys / sizeof *ys; k++) {
        eg_tensor *seed = eg_normal_n(cx, EG_F32, 0, 1, eg_rank(ys[k]), eg_dims(ys[k])), *once,
                  *again;
        ck_assert_int_eq(eg_grad(ys[k], seed, 1, &x, &once), 0);
        ck_assert_int_eq(eg_grad(ys[k], seed, 1, &x, &again), 0);
        ck_assert(same_bits(once, again));
    }
}
/* An inner gradient, in a checkpoint, within one that is not recorded. */
static eg_tensor *stage(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_add(eg_tanh(eg_sin(eg_square(x[0]))), x[0]);
}
TEST(checkpoints_have_the_same_gradient)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 64, 64), *y = x, *z = x, *want, *got;
    for (int k = 0; k < 5; k++) y = stage(NULL, &y), z = eg_checkpoint(stage, NULL, 1, &z);
    eg_nograd(cx, true);
    ck_assert_int_eq(eg_grad(y, x, 1, &x, &want), 0);
    ck_assert_int_eq(eg_grad(z, x, 1, &x, &got), 0);
    all_same_bits(&want, &got, 1);
}
