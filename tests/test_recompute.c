/* test_recompute.c: eg_checkpoint: the same values, draws and gradients as without it, in less
 * memory. Its operation is also in the table test. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

typedef struct layer {
    eg_tensor *w, *b;
    int calls, change;
} layer;
static eg_tensor *block(void *user, eg_tensor *const *x)
{
    layer *l = user;
    l->calls++;
    eg_tensor *h = eg_einsum("im,mn->in", x[0], l->w);
    for (int k = 0; k < 6; k++) h = eg_tanh(eg_add(h, l->b));
    return eg_dropout(h, 0.4);
}
static eg_tensor *plain(eg_function *f, void *user, int count, eg_tensor *const *xs)
{
    (void)count;
    return f(user, xs);
}
typedef eg_tensor *way(eg_function *f, void *user, int count, eg_tensor *const *xs);

enum { LAYERS = 6 };
typedef struct outcome {
    double loss, dx[64], dw[64], hv[64];
    size_t peak;
    uint64_t draws;
} outcome;
static void step(outcome *o, way *through, int rows, bool record)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 9, .threads = 1);
    eg_tensor *x = eg_uniform(cx, -1, 1, rows, 4), *xs[2] = { x }, *d[2], *v[2];
    layer l[LAYERS];
    for (int k = 0; k < LAYERS; k++)
        l[k] = (layer){ .w = eg_uniform(cx, -1, 1, 4, 4), .b = eg_uniform(cx, -1, 1, 4) };
    xs[1] = l[2].w;
    eg_mark m = eg_push(cx);
    eg_stats_reset(cx);
    const size_t before = eg_stats(cx).used;
    eg_tensor *h = x;
    for (int k = 0; k < LAYERS; k++) h = through(block, &l[k], 1, &h);
    eg_tensor *loss = eg_sum(NULL, eg_square(h));
    eg_nograd(cx, !record);
    ck_assert_msg(!eg_grad(loss, NULL, 2, xs, d), "%s", eg_error(cx));
    eg_nograd(cx, false);
    for (int k = 0; k < LAYERS; k++) ck_assert_int_eq(l[k].calls, through == plain ? 1 : 2);
    o->peak = eg_stats(cx).used_peak - before;
    o->loss = eg_item(loss);
    o->draws = eg_draws(cx);
    memcpy(o->dx, eg_f64(d[0]), 4 * (size_t)(rows < 16 ? rows : 16) * sizeof(double));
    memcpy(o->dw, eg_f64(d[1]), 16 * sizeof(double));
    if (record) {
        eg_tensor *u = eg_ones_like(x);
        ck_assert_msg(!eg_hvp(loss, 2, xs, (eg_tensor *[]){ u, xs[1] }, v), "%s", eg_error(cx));
        memcpy(o->hv, eg_f64(v[1]), 16 * sizeof(double));
        eg_tensor *twice; /* backward over backward has the same result */
        eg_tensor *along = eg_add(eg_sum(NULL, d[0]), eg_sum(NULL, eg_mul(d[1], eg_detach(xs[1]))));
        ck_assert_msg(!eg_grad(along, NULL, 1, &xs[1], &twice), "%s", eg_error(cx));
        eg_assert_close(twice, v[1], 1e-12);
    }
    eg_pop(cx, m);
    eg_assert_ok(cx);
    eg_close(cx);
}
static void assert_same(const double *a, const double *b, int n)
{
    for (int k = 0; k < n; k++) ck_assert_double_eq_tol(a[k], b[k], 1e-13 * (1 + fabs(b[k])));
}
TEST(values_draws_and_gradients_are_the_same)
{
    static outcome with, without;
    for (int record = 0; record < 2; record++) {
        step(&without, plain, 5, record);
        step(&with, eg_checkpoint, 5, record);
        ck_assert_double_eq(with.loss, without.loss);
        ck_assert_uint_eq(with.draws, without.draws);
        assert_same(with.dx, without.dx, 20);
        assert_same(with.dw, without.dw, 16);
        if (record) assert_same(with.hv, without.hv, 16);
    }
}

TEST(the_peak_is_lower)
{
    static outcome with, without;
    step(&without, plain, 2000, false);
    step(&with, eg_checkpoint, 2000, false);
    ck_assert_msg(with.peak * 2 < without.peak, "%zu bytes at most with, %zu without", with.peak,
                  without.peak);
    assert_same(with.dw, without.dw, 16);
}

TEST(train_or_eval_is_put_back)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 9);
    layer l = { .w = eg_uniform(cx, -1, 1, 4, 4), .b = eg_ones(cx, 4) };
    eg_tensor *x = eg_ones(cx, 3, 4), *dx, *expect;
    eg_eval(cx);
    eg_tensor *y = eg_checkpoint(block, &l, 1, &x);
    eg_grad(block(&l, &x), x, 1, &x, &expect);
    eg_train(cx);
    eg_set_draws(cx, 77);
    ck_assert_int_eq(eg_grad(y, x, 1, &x, &dx), 0);
    eg_assert_close(dx, expect, 1e-14);
    ck_assert(eg_training(cx));
    ck_assert_uint_eq(eg_draws(cx), 77);
    eg_close(cx);
}

/* A result whose axes are not in row-major order: sums of it add in the order of its strides, so
 * that other strides would give other bits. */
static eg_tensor *transposed(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_tanh(eg_transpose(x[0], 0, 1));
}
TEST(the_layout_does_not_depend_on_recording)
{
    eg_ctx *cx = eg_open(.seed = 9, .threads = 1);
    eg_tensor *x = eg_normal(cx, 0, 1, 4, 12), *dx[2], *y[2], *t[2];
    const int64_t layout[] = { 1, 12 };
    for (int copies = 0; copies < 2; copies++) {
        const eg_copies *c = copies ? eg_copies_open(eg_owner_open(cx), 2, NULL) : NULL;
        eg_tensor *z = c ? eg_copies_unstack(c, eg_stack_axis(0, x, x)) : x;
        z = eg_tanh(eg_transpose(z, 0, 1));
        eg_tensor *recorded = eg_square(eg_checkpoint(transposed, NULL, 1, &z));
        for (int quiet = 0; quiet < 2; quiet++) {
            int64_t strides[2];
            eg_nograd(cx, quiet);
            y[quiet] = eg_checkpoint(transposed, NULL, 1, &x);
            eg_assert_ok(cx);
            eg_raw(y[quiet], strides);
            ck_assert_mem_eq(strides, layout, sizeof layout);
            eg_grad(recorded, eg_ones_like(recorded), 1, &z, &dx[quiet]);
            t[quiet] = eg_jvp(recorded, 1, &z, &z);
            if (c) dx[quiet] = eg_copy_at(dx[quiet], 1), t[quiet] = eg_copy_at(t[quiet], 1);
            eg_nograd(cx, false);
        }
        for (int k = 0; k < 2; k++) {
            eg_tensor **both = k ? t : dx;
            int64_t a[2], b[2];
            eg_raw(both[0], a), eg_raw(both[1], b);
            eg_assert_ok(cx);
            ck_assert_mem_eq(a, b, sizeof a);
            ck_assert(eg_item(eg_sum(NULL, both[0])) == eg_item(eg_sum(NULL, both[1])));
        }
        ck_assert(eg_item(eg_sum(NULL, y[0])) == eg_item(eg_sum(NULL, y[1])));
    }
    eg_close(cx);
}

/* Nested calls, a cotangent used twice, an input that f returns, a constant, a result that is not
 * float, and nothing recorded. */
static eg_tensor *nested(void *user, eg_tensor *const *x)
{
    eg_tensor *h = eg_checkpoint(block, user, 1, x);
    return eg_add(h, eg_square(h));
}
static eg_tensor *identity(void *user, eg_tensor *const *x)
{
    (void)user;
    return x[0];
}
static eg_tensor *constant(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_ones(eg_context(x[0]), 2);
}
static eg_tensor *largest(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_argmax(NULL, x[0]);
}
TEST(checkpoints_may_be_nested_and_return_an_input_or_a_constant)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 9);
    layer l = { .w = eg_uniform(cx, -1, 1, 4, 4), .b = eg_ones(cx, 4) };
    eg_tensor *x = eg_uniform(cx, -1, 1, 3, 4), *dx[2], *expect[2];
    eg_set_draws(cx, 5);
    eg_grad(eg_sum(NULL, nested(&l, &x)), NULL, 2, (eg_tensor *[]){ x, l.w }, expect);
    eg_set_draws(cx, 5);
    eg_tensor *y = eg_checkpoint(nested, &l, 1, &x);
    y = eg_sum(NULL, y);
    eg_nograd(cx, true);
    ck_assert_msg(!eg_grad(y, NULL, 2, (eg_tensor *[]){ x, l.w }, dx), "%s", eg_error(cx));
    eg_assert_close(dx[0], expect[0], 1e-14);
    eg_assert_close(dx[1], expect[1], 1e-14);
    ck_assert_ptr_null(eg_op_of(eg_checkpoint(block, &l, 1, &x)));
    eg_nograd(cx, false);
    ck_assert_ptr_eq(eg_checkpoint(identity, NULL, 1, &x), x);
    ck_assert_ptr_null(eg_op_of(eg_checkpoint(constant, NULL, 1, &x)));
    ck_assert_int_eq(eg_type(eg_checkpoint(largest, NULL, 1, &x)), EG_I64);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- inputs of a checkpoint that were computed from each other -------------------------------- */
static eg_tensor *coupled(void *user, eg_tensor *const *x)
{
    return eg_mul(eg_mul(eg_sin(x[0]), x[1]), user);
}
static eg_tensor *doubled_once(void *user, eg_tensor *x, eg_tensor *g)
{
    (void)x;
    ++*(int *)user;
    return eg_scale(g, 2);
}
/* Sets d to the gradient, its derivative along v by both modes, the tangent, and the gradient of
 * the tangent of a function whose checkpoint reads a, b(a) and c(b). */
static void coupled_derivatives(way *through, eg_tensor **d, int *hooked)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 1);
    eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 5), *v = eg_uniform(cx, -1, 1, 5);
    eg_tensor *a = eg_tanh(x), *b = eg_square(a), *c = eg_exp(b);
    eg_hook(b, doubled_once, hooked);
    eg_tensor *y = eg_sum(NULL, through(coupled, c, 2, (eg_tensor *[]){ b, a }));
    ck_assert_msg(!eg_grad(y, NULL, 1, &x, &d[0]), "%s", eg_error(cx));
    ck_assert_msg(!eg_grad(d[0], v, 1, &x, &d[1]), "%s", eg_error(cx));
    d[2] = eg_jvp(y, 1, &x, &v);
    ck_assert_msg(!eg_grad(d[2], NULL, 1, &x, &d[3]), "%s", eg_error(cx));
    eg_nograd(cx, true);
    ck_assert_msg(!eg_grad(y, NULL, 1, &x, &d[4]), "%s", eg_error(cx));
    d[5] = eg_jvp(y, 1, &x, &v);
    eg_assert_ok(cx);
}
/* The rule differentiates the repeated call by its operands as independent variables: what one
 * operand owes to another is differentiated by the pass outside, and so are their hooks called. */
TEST(inputs_that_depend_on_each_other_count_once)
{
    eg_tensor *d[6], *expect[6];
    int hooked = 0, hooked_plain = 0;
    coupled_derivatives(eg_checkpoint, d, &hooked);
    coupled_derivatives(plain, expect, &hooked_plain);
    for (int k = 0; k < 6; k++) assert_same(eg_f64(d[k]), eg_f64(expect[k]), (int)eg_size(d[k]));
    ck_assert_int_eq(hooked, hooked_plain);
    eg_close(eg_context(d[0]));
    eg_close(eg_context(expect[0]));
}

static eg_tensor *moody(void *user, eg_tensor *const *x)
{
    layer *l = user;
    const int call = l->calls++;
    if (!call) return eg_mul(x[0], l->w);
    switch (l->change) {
    case 0: return eg_sum(NULL, eg_mul(x[0], l->w));
    case 1: return eg_mul(x[0], l->b);
    case 2: return NULL;
    case 3: return eg_fail(eg_context(x[0]), "moody: no more");
    default: return eg_mul(x[0], x[0]);
    }
}
static const char *const refusal[] = {
    "f returned f64 () when it was called again, and f64 (4,) at first",
    "f reads 2 tensors from outside when it is called again",
    "f returned no tensor of this context when it was called again",
    "moody: no more",
    "f reads 1 tensor from outside",
};
LOOP_TEST(a_function_that_differs_when_called_again_is_refused, sizeof refusal / sizeof *refusal)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    layer l = { .w = eg_ones(cx, 4), .b = eg_ones(cx, 4), .change = _i };
    eg_tensor *x = eg_ones(cx, 4), *y = eg_checkpoint(moody, &l, 1, &x), *dx;
    ck_assert_int_eq(eg_grad(y, x, 1, &x, &dx), -1);
    eg_assert_error(cx, refusal[_i]);
    l.calls = 0;
    y = eg_checkpoint(moody, &l, 1, &x);
    eg_fill(l.w, 3); /* changes of what f reads through user are detected, too */
    ck_assert_int_eq(eg_grad(y, x, 1, &x, &dx), -1);
    ck_assert_msg(strstr(eg_error(cx), "of checkpoint"), "%s", eg_error(cx));
    eg_assert_error(cx, "was changed in place");
    eg_close(cx);
}

TEST(checkpoint_refuses)
{
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_tensor *x = eg_ones(cx, 4);
    ck_assert(!eg_ok(eg_checkpoint(NULL, NULL, 1, &x)));
    eg_assert_error(cx, "checkpoint: the function is NULL");
    ck_assert(!eg_ok(eg_checkpoint(block, NULL, 2, (eg_tensor *[]){ x, NULL })));
    eg_assert_error(cx, "checkpoint: operand 2 is NULL");
    ck_assert(!eg_ok(eg_checkpoint(identity, NULL, 2, (eg_tensor *[]){ x, eg_ones(other, 1) })));
    eg_assert_error(cx, "checkpoint: operand 2 belongs to another context");
    ck_assert_ptr_null(eg_checkpoint(identity, NULL, 0, NULL));
    eg_close(other);
    eg_close(cx);
}

/* -- in blocks, and with copies --------------------------------------------------------------- */
/* Reads w and c of the calling context, which the block has not read before. */
typedef struct frozen {
    eg_tensor *w, *c;
    bool through, direct; /* by eg_checkpoint; f returns c itself */
} frozen;
static eg_tensor *frozen_layer(void *user, eg_tensor *const *x)
{
    const frozen *f = user;
    if (f->direct) return f->c;
    return eg_mul(eg_tanh(eg_einsum("im,mn->in", x[0], f->w)), f->c);
}
static eg_tensor *frozen_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    frozen *f = user;
    eg_tensor *x = eg_block_rows(cx, "x");
    (void)from, (void)to, (void)count;
    return eg_sum(
        NULL, eg_square(f->through ? eg_checkpoint(frozen_layer, f, 1, &x) : frozen_layer(f, &x)));
}
TEST(checkpoints_in_blocks_read_tensors_of_the_parent)
{
    for (int k = 0; k < 8; k++) { /* which of w and c are differentiated; f returns c */
        eg_tensor *d[2][2];
        double mean[2];
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3, .threads = k % 2 + 1);
        frozen f = { eg_normal(cx, 0, 1, 3, 3), eg_normal(cx, 0, 1, 3), .direct = k >= 6 };
        eg_tensor *x = eg_normal(cx, 0, 1, 9, 3), *const xs[] = { k / 2 % 2 ? f.c : f.w, f.c };
        for (int through = 0; through < 2; through++) {
            f.through = through;
            eg_grad_over(cx, frozen_loss, &f, 9, k / 2 == 2 ? 2 : 1, xs, d[through], .block = 4,
                         .batch = { { "x", x } }, .mean = &mean[through]);
            ck_assert_msg(!eg_error(cx), "%d: %s", k, eg_error(cx));
        }
        eg_assert_ok(cx);
        ck_assert(mean[0] == mean[1]);
        for (int t = 0; t < (k / 2 == 2 ? 2 : 1); t++) ck_assert(same_bits(d[0][t], d[1][t]));
        eg_close(cx);
    }
}
TEST(checkpoints_with_copies)
{
    eg_tensor *y[2], *stepped[2];
    eg_ctx *first = NULL;
    for (int through = 0; through < 2; through++) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
        eg_params *p = eg_params_open(cx, .copies = 2);
        frozen f = { .w = eg_param(p, "w", "m n", 3, 3), .c = eg_param(p, "c", "n", 3) };
        eg_init_normal(f.w, 1), eg_init_normal(f.c, 1);
        eg_tensor *x = eg_normal(cx, 0, 1, 4, 3);
        eg_opt *o = eg_sgd(p, .lr = 0.1);
        for (int k = 0; k < 3; k++) {
            eg_tensor *h = through ? eg_checkpoint(frozen_layer, &f, 1, &x) : frozen_layer(&f, &x);
            ck_assert_int_eq(eg_step(o, eg_sum(NULL, eg_square(h))), 0);
        }
        eg_nograd(cx, true);
        eg_tensor *h = through ? eg_checkpoint(frozen_layer, &f, 1, &x) : frozen_layer(&f, &x);
        eg_assert_ok(cx);
        y[through] = eg_copy(eg_copies_stack(h));
        stepped[through] = eg_copy(eg_copies_stack(f.w));
        if (!through) {
            first = cx;
            continue;
        }
        ck_assert_int_eq(eg_size(y[0]), 2 * 4 * 3);
        ck_assert(same_bits(y[0], y[1]) && same_bits(stepped[0], stepped[1]));
        eg_close(first);
        eg_close(cx);
    }
}

/* f may read weights of f16 or bf16, given as an operand or through `user`, and bytes: value,
 * gradient and tangent are those without a checkpoint. */
typedef struct stored {
    eg_tensor *w, *mask;
} stored;
static eg_tensor *stored_layer(void *user, eg_tensor *const *x)
{
    const stored *f = user;
    eg_tensor *h = eg_einsum("im,mn,np->ip", x[0], x[1], f->w);
    return eg_mul(eg_tanh(h), eg_cast(f->mask, eg_type(h)));
}
LOOP_TEST(checkpoints_read_halves_and_bytes, 2)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    const eg_dtype half = _i ? EG_BF16 : EG_F16;
    stored f = { eg_cast(eg_normal(cx, 0, 1, 3, 3), half),
                 eg_cast(eg_randint(cx, 0, 2, 4, 3), EG_U8) };
    eg_tensor *xs[] = { eg_normal(cx, 0, 1, 4, 3), eg_cast(eg_normal(cx, 0, 1, 3, 3), half) };
    eg_tensor *v = eg_normal(cx, 0, 1, 4, 3), *y[2], *d[2], *dd[2], *t[2];
    for (int through = 0; through < 2; through++) {
        y[through] = through ? eg_checkpoint(stored_layer, &f, 2, xs) : stored_layer(&f, xs);
        t[through] = eg_jvp(y[through], 1, xs, &v);
        eg_grad(eg_sum(NULL, eg_square(y[through])), NULL, 1, xs, &d[through]);
        eg_grad(eg_sum(NULL, eg_square(d[through])), NULL, 1, xs, &dd[through]);
    }
    eg_assert_ok(cx);
    ck_assert(same_bits(y[0], y[1]) && same_bits(d[0], d[1]));
    eg_assert_close(t[0], t[1], 1e-14);
    eg_assert_close(dd[0], dd[1], 1e-14);
    eg_close(cx);
}
