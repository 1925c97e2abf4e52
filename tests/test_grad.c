/* test_grad.c: eg_grad, einsum's gradient, and the gradient check itself: what passes, and the
 * twelve kinds of mistakes that must not pass. */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad/check.h>
#include "tests.h"

static eg_tensor *cubic(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_sum(NULL, eg_mul(eg_square(x[0]), x[0]));
}
TEST(gradients_of_every_order)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ 1, -2, 0.5 }), 3), *d[3] = { x };
    eg_tensor *y = cubic(NULL, &x);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &d[0]), 0); /* 3x² */
    eg_assert_close(d[0], eg_from(cx, ((double[]){ 3, 12, 0.75 }), 3), 1e-15);
    eg_grad(eg_sum(NULL, d[0]), NULL, 1, &x, &d[1]); /* 6x */
    eg_assert_close(d[1], eg_from(cx, ((double[]){ 6, -12, 3 }), 3), 1e-15);
    eg_grad(eg_sum(NULL, d[1]), NULL, 1, &x, &d[2]); /* 6 */
    eg_assert_close(d[2], eg_full(cx, 6, 3), 1e-15);
    eg_close(cx);
}

TEST(grad_adds_paths_and_differentiates_by_intermediates)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    /* x⁴ + x² */
    eg_tensor *x = eg_scalar(cx, 3), *h = eg_square(x), *y = eg_add(eg_mul(h, h), h);
    eg_tensor *other = eg_ones(cx, 2, 2), *dx[4];
    ck_assert_int_eq(eg_grad(y, NULL, 4, (eg_tensor *[]){ x, h, other, y }, dx), 0);
    ck_assert_double_eq(eg_item(dx[0]), 4 * 27 + 6);
    ck_assert_double_eq(eg_item(dx[1]), 2 * 9 + 1);
    ck_assert_double_eq(eg_item(eg_sum(NULL, dx[2])), 0);
    ck_assert_int_eq(eg_rank(dx[2]), 2);
    ck_assert_double_eq(eg_item(dx[3]), 1);
    eg_close(cx);
}

TEST(nograd_and_detach_stop_gradients)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_scalar(cx, 3), *dx;
    eg_grad(eg_mul(x, eg_detach(eg_square(x))), NULL, 1, &x, &dx);
    ck_assert_double_eq(eg_item(dx), 9);
    ck_assert(!eg_nograd(cx, true));
    eg_tensor *s = eg_square(x);
    ck_assert(eg_nograd(cx, false));
    ck_assert_ptr_null(eg_op_of(s));
    eg_grad(eg_mul(x, s), NULL, 1, &x, &dx);
    ck_assert_double_eq(eg_item(dx), 9);
    eg_close(cx);
}

TEST(grad_refuses)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3), *n = eg_randint(cx, 0, 5, 3), *dx;
    ck_assert_int_eq(eg_grad(eg_exp(x), NULL, 1, &x, &dx), -1);
    ck_assert(!eg_ok(dx));
    eg_assert_error(cx, "give a seed");
    ck_assert_int_eq(eg_grad(eg_exp(x), eg_ones(cx, 3, 2), 1, &x, &dx), -1);
    eg_assert_error(cx, "the seed is f32 (3, 2), y is f32 (2, 3)");
    ck_assert_int_eq(eg_grad(eg_sum(NULL, x), NULL, 1, &n, &dx), -1);
    eg_assert_error(cx, "i64");
    ck_assert_int_eq(eg_grad(eg_sum(NULL, n), NULL, 1, &x, &dx), -1);
    eg_assert_error(cx, "only floats");
    eg_close(cx);
}

TEST(null_lists_of_inputs_are_refused)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_scalar(cx, 1), *dx;
    ck_assert_int_eq(eg_grad(x, NULL, 1, NULL, &dx), -1);
    eg_assert_error(cx, "grad: xs is NULL");
    ck_assert_int_eq(eg_grad(x, NULL, 1, &x, NULL), -1);
    eg_assert_error(cx, "grad: dxs is NULL");
    ck_assert_ptr_null(eg_einsum_n("i,i->", 2, NULL));
    eg_close(cx);
}

/* operations as a user could write them, each with another mistake */
static bool says_nothing(eg_tensor *y)
{
    (void)y;
    return true;
}
static bool says_three(eg_tensor *y) { return eg_result(y, EG_F32, 1, (int64_t[]){ 3 }); }
static bool fills(eg_tensor *y)
{
    eg_fill(y, 1);
    return true;
}
#if !EG_DEBUG_ALLOC /* with a malloc for each tensor the sanitizer reports this */
static eg_tensor *popped_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    eg_mark m = eg_push(eg_context(y));
    eg_tensor *c = eg_copy(g);
    eg_pop(eg_context(y), m);
    return c;
}
#endif
TEST(malformed_operations_are_named)
{
    static const eg_op silent = {
        .name = "silent", .arity = 1, .shape = says_nothing, .forward = fills
    };
    static const eg_op empty = { .name = "empty", .arity = 1, .shape = says_three };
    static const eg_op shapeless = { .name = "shapeless", .arity = 1, .forward = fills };
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 3), *dx;
    eg_apply(&silent, NULL, 0, 1, &x);
    eg_assert_error(cx, "silent: its shape() declared no result");
    eg_apply(&empty, NULL, 0, 1, &x);
    eg_assert_error(cx, "empty: it has no forward()");
    eg_apply(&shapeless, NULL, 0, 1, &x);
    eg_assert_error(cx, "shapeless: the operation has no shape()");
#if !EG_DEBUG_ALLOC
    static const eg_op popped = {
        .name = "popped", .arity = 1, .shape = says_three, .forward = fills, .rule = popped_rule
    };
    ck_assert_int_eq(eg_grad(eg_apply(&popped, NULL, 8, 1, &x), x, 1, &x, &dx), -1);
    eg_assert_error(cx, "the rule of popped");
#endif
    eg_apply(NULL, NULL, 0, 1, &x);
    eg_assert_error(cx, "apply: the operation is NULL");
    eg_apply(&(eg_op){ .arity = 1, .shape = says_three, .forward = fills }, NULL, 0, 1, &x);
    eg_assert_error(cx, "apply: the operation has no name");
    ck_assert(!eg_result(x, EG_F32, 0, NULL) && !eg_result(NULL, EG_F32, 0, NULL) &&
              !eg_zero_rule(NULL, x, 0));
    eg_assert_error(cx, "result: the tensor exists already");
    ck_assert_int_eq(eg_grad(x, x, -1, &x, &dx), -1);
    eg_assert_error(cx, "grad: the number of xs is -1, but must not be negative");
    eg_close(cx);
}

static eg_tensor *nothing(void *user, eg_tensor *const *x)
{
    (void)user, (void)x;
    return NULL;
}
static eg_tensor *given(void *user, eg_tensor *const *x)
{
    (void)x;
    return user;
}
TEST(malformed_gradient_checks_are_refused)
{
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_tensor *x = eg_ones(cx, 3);
    ck_assert_ptr_null(eg_gradcheck(nothing, NULL, 1, &x));
    eg_assert_error(cx, "f returned NULL");
    ck_assert_ptr_null(eg_gradcheck(given, eg_ones(other, 3), 1, &x));
    eg_assert_error(cx, "belongs to another context");
    ck_assert_ptr_null(eg_gradcheck(cubic, NULL, 1, &x, .rtol = -1));
    eg_assert_error(cx, "rtol -1");
    ck_assert_ptr_null(eg_gradcheck(cubic, NULL, 1, &x, .directions = -1));
    eg_assert_error(cx, "directions -1");
    eg_close(cx);
    eg_close(other);
}

TEST(a_changed_value_is_noticed)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_ones(cx, 3), *w = eg_ones(cx, 3), *dx;
    eg_tensor *y = eg_sum(NULL, eg_mul(x, w));
    eg_fill(w, 2);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &w, &dx), 0); /* dw = x: w's old value is not needed */
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), -1);
    ck_assert(strstr(eg_error(cx), "grad: operand 2 of mul") != NULL);
    eg_assert_error(cx, "was changed in place");
    eg_tensor *e = eg_exp(x);
    eg_mut_f64(e)[0] = 7;
    ck_assert_int_eq(eg_grad(eg_sum(NULL, e), NULL, 1, &x, &dx), -1);
    ck_assert(strstr(eg_error(cx), "the result of exp") != NULL);
    eg_assert_error(cx, "was changed in place");
    /* a change in place of what no rule reads is allowed */
    eg_tensor *s = eg_einsum("i,i->", x, w);
    eg_fill(s, 0);
    ck_assert_int_eq(eg_grad(s, NULL, 1, &x, &dx), 0);
    eg_close(cx);
}

/* An operation of the user, right or wrong depending on `attr`: y = 2x. */
static bool twice_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool twice_forward(eg_tensor *y)
{
    const double *x = eg_f64(eg_operand(y, 0));
    double *out = eg_mut_f64(y);
    for (int64_t k = 0; x && out && k < eg_size(y); k++) out[k] = 2 * x[k];
    return x && out;
}
static eg_tensor *twice_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    switch (*(const char *)eg_attr(y)) {
    case '-': return eg_scale(g, -2);
    case '~': return eg_scale(g, 2.0002);
    case '0': return eg_zeros_like(g);
    case 's': return eg_sum(NULL, g);
    case 't': return eg_scale(eg_contiguous(eg_transpose(g, 0, 1)), 2);
    default: return eg_scale(g, 2);
    }
}
static const eg_op twice = {
    .name = "twice", .arity = 1, .shape = twice_shape, .forward = twice_forward, .rule = twice_rule
};
static eg_tensor *through(void *user, eg_tensor *const *x)
{
    return eg_tanh(eg_apply(&twice, user, 2, 1, &x[0]));
}

TEST(check_passes_right_and_catches_wrong)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x = eg_uniform(cx, -1, 1, 3, 3);
    const eg_report *r = eg_gradcheck(through, "+", 1, &x, .names = "x", .axes = "ij", .order = 2);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->entries, 9);
    ck_assert_int_eq(r->covered, 9);
    for (const char *wrong = "-~0t"; *wrong; wrong++) {
        char which[2] = { *wrong, 0 };
        r = eg_gradcheck(through, which, 1, &x, .names = "x", .axes = "ij");
        ck_assert_msg(r && !r->passed, "'%c' passed", *wrong);
        ck_assert_int_eq(r->entry[0].verdict, EG_WRONG);
        ck_assert_ptr_nonnull(strstr(r->text, "dx[i="));
    }
    ck_assert_ptr_null(eg_gradcheck(through, "s", 1, &x));
    ck_assert(strstr(eg_error(cx), "the rule of twice") != NULL);
    eg_assert_error(cx, "returned f64 () for operand 1, which is f64 (3, 3)");
    r = eg_gradcheck(through, "-", 1, &x, .directions = 3);
    ck_assert(r && !r->passed);
    r = eg_gradcheck(through, "+", 1, &x, .directions = 3);
    ck_assert(r && r->passed);
    eg_close(cx);
}

/* A softmax that is so saturated that the output does not depend on W. */
static eg_tensor *saturated(void *user, eg_tensor *const *x)
{
    eg_tensor *w = user ? eg_detach(x[1]) : x[1];
    return eg_softmax("i [j]", eg_einsum("im,mj->ij", x[0], w));
}
static eg_tensor *no_influence(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_add(x[0], eg_scale(eg_sub(x[1], x[1]), 3));
}
TEST(an_untested_gradient_is_not_a_pass)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *xs[2] = { eg_scale(eg_uniform(cx, 1, 2, 3, 4), 500), eg_uniform(cx, 1, 2, 4, 5) };
    const eg_report *r = eg_gradcheck(saturated, NULL, 2, xs, .names = "X, W");
    ck_assert_ptr_nonnull(r);
    ck_assert(!r->passed);
    ck_assert_int_eq(r->input[0], EG_UNTESTED);
    r = eg_gradcheck(saturated, cx, 2, xs, .names = "X, W"); /* W's gradient cut out */
    ck_assert(r && !r->passed);
    ck_assert_int_eq(r->input[1], EG_WRONG);
    eg_tensor *same[2] = { eg_ones(cx, 3), eg_ones(cx, 3) };
    r = eg_gradcheck(no_influence, NULL, 2, same);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->input[1], EG_ZERO);
    eg_close(cx);
}

static eg_tensor *bent(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_relu(x[0]);
}
static int calls;
static eg_tensor *second_fails(void *user, eg_tensor *const *x)
{
    (void)user;
    return calls++ ? eg_fail(eg_context(x[0]), "f: no second call") : eg_exp(x[0]);
}
static eg_tensor *counts(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_argmax(NULL, x[0]);
}
TEST(kinks_and_bad_functions)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(cx, ((float[]){ 0, 1, -1 }), 3);
    const eg_report *r = eg_gradcheck(bent, NULL, 1, &x);
    ck_assert(r && !r->passed);
    ck_assert_int_eq(r->entry[0].verdict, EG_KINK);
    ck_assert_int_eq(r->entry[0].index, 0);
    eg_tensor *empty = eg_zeros(cx, 0, 3);
    r = eg_gradcheck(bent, NULL, 1, &empty);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->input[0], EG_EMPTY);
    ck_assert_ptr_null(eg_gradcheck(second_fails, NULL, 1, &x));
    eg_assert_error(cx, "no second call");
    ck_assert_ptr_null(eg_gradcheck(counts, NULL, 1, &x));
    eg_assert_error(cx, "i64");
    eg_tensor *nan = eg_full(cx, NAN, 2);
    ck_assert_ptr_null(eg_gradcheck(bent, NULL, 1, &nan));
    eg_assert_error(cx, "nan");
    eg_close(cx);
}

static eg_tensor *spec(void *user, eg_tensor *const *x)
{
    const char *s = user;
    int n = 1;
    for (const char *p = s; *p && *p != '-'; p++) n += *p == ',';
    return eg_einsum_n(s, n, x);
}
static const struct {
    const char *spec;
    int64_t dims[3][4];
} einsums[] = {
    { "ij,jk->ik", { { 3, 4 }, { 4, 2 } } },
    { "ij->ji", { { 3, 4 } } },
    { "ij->", { { 3, 4 } } },
    { "ii->i", { { 3, 3 } } },
    { "ii->", { { 3, 3 } } },
    { "i->ii", { { 3 } } },
    { "ij,k->", { { 3, 4 }, { 2 } } },
    { "bij,bjk,kl->bil", { { 2, 3, 2 }, { 2, 2, 3 }, { 3, 2 } } },
    { "ijj,i->j", { { 2, 3, 3 }, { 2 } } },
    { "ia,ib,ic->abc", { { 2, 2 }, { 2, 3 }, { 2, 2 } } },
    { "...i,...i->...", { { 2, 3 }, { 2, 3 } } },
    { "iji->j", { { 3, 2, 3 } } },
    { "i,i,i->i", { { 3 }, { 3 }, { 3 } } },
    { "i,->ii", { { 3 }, { 0 } } },
};
LOOP_TEST(einsum_gradients_to_second_order, sizeof einsums / sizeof *einsums)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 11);
    eg_tensor *x[3];
    int n = 0;
    for (; n < 3; n++) {
        const int64_t *d = einsums[_i].dims[n];
        int rank = 0;
        while (rank < 4 && d[rank]) rank++;
        if (!rank && (n == 0 || !strstr(einsums[_i].spec, ",->"))) break;
        if (!rank && n > 1) break;
        x[n] = eg_uniform_n(cx, EG_F64, -2, 2, rank, d);
    }
    const eg_report *r = eg_gradcheck(spec, (void *)(uintptr_t)einsums[_i].spec, n, x, .order = 2);
    ck_assert_msg(r && r->passed, "%s: %s", einsums[_i].spec, r ? r->text : eg_error(cx));
    eg_close(cx);
}

TEST(a_y_without_history_has_no_gradient)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((const double[]){ 1, 2 }), 2), *w = eg_ones(cx, 2), *d[2], *h;
    eg_nograd(cx, true);
    eg_tensor *y = eg_sum(NULL, eg_square(x)), *half = eg_square(x), *own = eg_scale(x, 2);
    eg_nograd(cx, false);
    static const char unrecorded[] =
        "y was made while nothing was recorded (eg_nograd), so it has no history";
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, d), -1);
    eg_assert_error(cx, unrecorded);
    ck_assert(!eg_ok(eg_jvp(y, 1, &x, &w)));
    eg_assert_error(cx, unrecorded);
    ck_assert_int_eq(eg_hvp(y, 1, &x, &w, d), -1);
    eg_assert_error(cx, unrecorded);
    ck_assert(!eg_ok(eg_jacobian(y, x)));
    eg_assert_error(cx, unrecorded);
    ck_assert(!eg_ok(eg_hessian(y, x, x)));
    eg_assert_error(cx, unrecorded);
    ck_assert_int_eq(eg_grad(eg_scalar(cx, 3), NULL, 1, &x, d), 0); /* a constant */
    eg_assert_close(d[0], eg_zeros(cx, 2), 0);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, own), NULL, 1, &own, d),
                     0);        /* an x may be the result of any operation */
    eg_tensor *xw[] = { x, w }; /* one of two: zeros, or NULL */
    ck_assert_int_eq(eg_grad(eg_sum(NULL, x), NULL, 2, xw, d), 0);
    eg_assert_close(d[1], eg_zeros(cx, 2), 0);
    ck_assert_int_eq(eg_grad_or_null(eg_sum(NULL, x), NULL, 2, xw, d), 0);
    ck_assert(d[1] == NULL);
    eg_assert_close(d[0], w, 0);
    ck_assert_int_eq(eg_grad_or_null(eg_sum(NULL, half), NULL, 2, xw, d), -1);
    eg_assert_error(cx, "grad: y reaches none of the 2 xs: operand 1 of einsum");
    ck_assert_int_eq(eg_grad_or_null(eg_sum(NULL, eg_floor(w)), NULL, 2, xw, d), -1);
    eg_assert_error(cx, "cuts the path to xs[1], a leaf");
    /* a gradient that is constant has the gradient zero, to any order, and so has a gradient of
     * zero */
    ck_assert_int_eq(eg_grad(x, w, 1, &x, d), 0);
    for (eg_tensor *g = eg_sum(NULL, x);; g = h) {
        ck_assert_int_eq(eg_grad(g, eg_ones_like(g), 1, &x, &h), 0);
        if (eg_get(h, 0) >= 0 && eg_get(h, 0) <= 0) break;
    }
    ck_assert_int_eq(eg_grad(h, w, 1, &x, d), 0);
    eg_assert_close(eg_hessian(eg_sum(NULL, x), x, x), eg_zeros(cx, 2, 2), 0);
    eg_close(cx);
}

TEST(first_nonfinite_finds_the_operation_that_began)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((const double[]){ 0, 800 }), 2), *low = eg_full(cx, -INFINITY, 2),
              *e = eg_exp(x);
    ck_assert(eg_first_nonfinite(eg_sum(NULL, x)) == NULL);
    ck_assert(eg_first_nonfinite(eg_sub(e, e)) == e); /* an overflow, then ∞ − ∞ */
    eg_tensor *nan = eg_mul(low, eg_scale(x, 0));     /* −∞ · 0 of a constant −∞ */
    ck_assert(eg_first_nonfinite(eg_sum(NULL, nan)) == nan);
    eg_tensor *past = eg_exp(eg_log(x)); /* log 0 = −∞, which exp makes 0 */
    ck_assert(eg_first_nonfinite(eg_sum(NULL, past)) == NULL);
    ck_assert(eg_first_nonfinite(eg_mul(past, e)) == e);
    ck_assert(eg_first_nonfinite(low) == low);
    eg_close(cx);
}
