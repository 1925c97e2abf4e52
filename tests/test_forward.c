/* test_forward.c: forward mode compared with reverse mode. test_ops.c tests that every operation
 * has the right tangent. */
#include <eingrad/check.h>
#include "tests.h"

/* y_i = x_i² w_i, with known derivatives */
static eg_tensor *weighed(eg_tensor *x, eg_tensor *w) { return eg_mul(eg_square(x), w); }
TEST(a_tangent_is_the_derivative_along_v)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ 1, 2, 3 }), 3),
              *w = eg_from(cx, ((double[]){ 1, -1, 2 }), 3);
    eg_tensor *v = eg_from(cx, ((double[]){ 1, 10, 100 }), 3), *y = weighed(x, w);
    eg_tensor *t = eg_jvp(y, 2, (eg_tensor *[]){ x, w }, (eg_tensor *[]){ v, NULL });
    eg_assert_close(t, eg_from(cx, ((double[]){ 2, -40, 1200 }), 3), 1e-15);
    t = eg_jvp(y, 2, (eg_tensor *[]){ x, w }, (eg_tensor *[]){ v, v });
    eg_assert_close(t, eg_from(cx, ((double[]){ 3, 0, 2100 }), 3), 1e-15);
    /* 2 v² w + 2 x v² */
    eg_assert_close(eg_jvp(t, 1, &x, &v), eg_from(cx, ((double[]){ 4, 200, 100000 }), 3), 1e-15);
    eg_tensor *dw;
    /* reverse over forward: 2 x v */
    ck_assert_int_eq(eg_grad(eg_sum(NULL, t), NULL, 1, &w, &dw), 0);
    eg_assert_close(dw, eg_from(cx, ((double[]){ 2, 40, 600 }), 3), 1e-15);
    eg_close(cx);
}

/* As in eg_grad: an x that depends on another x moves with it, the same x twice moves twice, y
 * itself may be an x. */
TEST(inputs_may_depend_on_each_other)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_scalar(cx, 3), *h = eg_square(x), *y = eg_mul(h, x), *one = eg_scalar(cx, 1),
              *stray = eg_scalar(cx, 1);
    ck_assert_double_eq(eg_item(eg_jvp(y, 2, (eg_tensor *[]){ x, h }, (eg_tensor *[]){ one, one })),
                        27 + 3);
    ck_assert_double_eq(eg_item(eg_jvp(y, 2, (eg_tensor *[]){ x, x }, (eg_tensor *[]){ one, one })),
                        2 * 27);
    ck_assert_double_eq(eg_item(eg_jvp(y, 2, (eg_tensor *[]){ y, x }, (eg_tensor *[]){ one, one })),
                        1 + 27);
    ck_assert_double_eq(eg_item(eg_jvp(y, 1, &stray, &one)), 0);
    ck_assert_double_eq(eg_item(eg_jvp(eg_mul(x, eg_detach(h)), 1, &x, &one)), 9);
    ck_assert_double_eq(eg_item(eg_jvp(eg_floor(y), 1, &x, &one)), 0);
    ck_assert_double_eq(eg_item(eg_jvp(y, 0, NULL, NULL)), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* f = Σ (A x)_i³ of A = (1 2; 3 4): gradient 3 Aᵀ(Ax)², Hessian 6 Aᵀ diag(Ax) A */
static eg_tensor *cubes(eg_tensor *a, eg_tensor *x)
{
    eg_tensor *h = eg_einsum("ij,j->i", a, x);
    return eg_sum(NULL, eg_mul(eg_square(h), h));
}
TEST(hessians_and_their_products)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *a = eg_from(cx, ((double[]){ 1, 2, 3, 4 }), 2, 2),
              *x = eg_from(cx, ((double[]){ 1, -2 }), 2), *hv[2];
    eg_tensor *y = cubes(a, x), *v = eg_from(cx, ((double[]){ 10, 1 }), 2);
    const double expect[] = { 6 * (-3 * 1 + -5 * 9), 6 * (-3 * 2 + -5 * 12), 6 * (-3 * 2 + -5 * 12),
                              6 * (-3 * 4 + -5 * 16) };
    eg_assert_close(eg_hessian(y, x, x), eg_from(cx, expect, 2, 2), 1e-14);
    ck_assert_int_eq(eg_hvp(y, 1, &x, &v, hv), 0);
    eg_assert_close(
        hv[0],
        eg_from(cx, ((double[]){ 10 * expect[0] + expect[1], 10 * expect[2] + expect[3] }), 2),
        1e-14);
    eg_tensor *mixed = eg_hessian(y, x, a); /* x's axes, then a's */
    eg_axes("j i k", mixed);
    eg_tensor *other = eg_hessian(y, a, x);
    eg_assert_close(eg_permute(other, 2, 0, 1), mixed, 1e-14);
    ck_assert_int_eq(eg_hvp(y, 2, (eg_tensor *[]){ x, a }, (eg_tensor *[]){ v, NULL }, hv), 0);
    eg_assert_close(hv[1], eg_einsum("jik,j->ik", mixed, v), 1e-14);
    ck_assert(eg_op_of(hv[1]) != NULL);
    eg_nograd(cx, true); /* the same without a history of its own */
    ck_assert_int_eq(eg_hvp(y, 2, (eg_tensor *[]){ x, a }, (eg_tensor *[]){ v, NULL }, hv), 0);
    eg_assert_close(hv[1], eg_einsum("jik,j->ik", mixed, v), 1e-14);
    ck_assert_ptr_null(eg_op_of(hv[1]));
    ck_assert_ptr_null(eg_op_of(eg_jvp(eg_logsumexp(NULL, x), 1, &x, &v)));
    eg_close(cx);
}

/* The Jacobian is the same by rows in reverse mode and by columns in forward mode, with and without
 * a history. */
static eg_tensor *wide(eg_tensor *x)
{
    return eg_softmax("i [j]", eg_einsum("im,jm->ij", x, eg_tanh(x)));
}
TEST(jacobian_is_the_same_by_rows_and_by_columns)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 5);
    eg_tensor *x = eg_uniform(cx, -1, 1, 3, 2), *y = wide(x), *few = eg_sum("[i] j", y);
    eg_tensor *columns = eg_jacobian(y, x), *rows = eg_jacobian(few, x); /* 9 × 6 and 3 × 6 */
    eg_axes("(a=3) (b=3) (c=3) (d=2)", columns);
    eg_assert_close(eg_sum("[i] j a b", columns), rows, 1e-13);
    eg_tensor *seed = eg_uniform(cx, -1, 1, 3, 3), *dx, *v = eg_uniform(cx, -1, 1, 3, 2);
    eg_grad(y, seed, 1, &x, &dx);
    eg_assert_close(eg_einsum("ijab,ij->ab", columns, seed), dx, 1e-13);
    eg_assert_close(eg_einsum("ijab,ab->ij", columns, v), eg_jvp(y, 1, &x, &v), 1e-13);
    /* differentiable again */
    eg_tensor *once = eg_jacobian(eg_sum(NULL, eg_square(columns)), x);
    double numeric[6], at;
    for (int k = 0; k < 6; k++) {
        at = eg_mut_f64(x)[k];
        double two[2];
        for (int s = 0; s < 2; s++) {
            eg_mut_f64(x)[k] = at + (s ? -1e-5 : 1e-5);
            two[s] = eg_item(eg_sum(NULL, eg_square(eg_jacobian(wide(x), x))));
        }
        eg_mut_f64(x)[k] = at;
        numeric[k] = (two[0] - two[1]) / 2e-5;
    }
    eg_assert_close(once, eg_from(cx, numeric, 3, 2), 1e-8);
    y = wide(x);
    eg_tensor *none = eg_slice_axis(y, 0, 0, 0, 1);
    eg_nograd(cx, true);
    eg_assert_close(eg_jacobian(y, x), columns, 1e-14);
    ck_assert_int_eq(eg_size(eg_jacobian(none, x)), 0);
    eg_assert_close(eg_jacobian(y, seed), eg_zeros(cx, 3, 3, 3, 3), 1e-15);
    eg_close(cx);
}

TEST(under_nograd_a_jacobian_keeps_no_temporaries)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 5);
    eg_tensor *x = eg_uniform(cx, -1, 1, 40),
              *y = eg_einsum("ij,j->i", eg_uniform(cx, -1, 1, 40, 40), eg_tanh(x));
    size_t held[2];
    for (int record = 0; record < 2; record++) {
        eg_mark m = eg_push(cx);
        eg_nograd(cx, !record);
        eg_stats_reset(cx);
        size_t before = eg_stats(cx).used;
        eg_assert_ok(eg_jacobian(y, x) ? cx : NULL);
        held[record] = eg_stats(cx).used_peak - before;
        eg_nograd(cx, false);
        eg_pop(cx, m);
    }
    ck_assert_uint_lt(held[0] * 2, held[1]);
    ck_assert_uint_lt(held[0], 2 * 40 * 40 * sizeof(double));
    eg_close(cx);
}

TEST(forward_refuses)
{
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3), *n = eg_randint(cx, 0, 5, 3), *v = eg_ones(cx, 3, 2),
              *y = eg_exp(x), *hv;
    ck_assert(!eg_ok(eg_jvp(y, 1, &x, &v)));
    eg_assert_error(cx, "jvp: vs[0] is f32 (3, 2), xs[0] is f32 (2, 3)");
    ck_assert(!eg_ok(eg_jvp(y, 1, &n, &n)));
    eg_assert_error(cx, "jvp: xs[0] is i64; only floats have gradients");
    ck_assert(!eg_ok(eg_jvp(n, 1, &x, &x)));
    eg_assert_error(cx, "jvp: y is i64");
    ck_assert(!eg_ok(eg_jvp(y, 1, &x, NULL)));
    eg_assert_error(cx, "jvp: vs is NULL");
    ck_assert(!eg_ok(eg_jvp(y, 1, NULL, &x)));
    eg_assert_error(cx, "jvp: xs is NULL");
    ck_assert(!eg_ok(eg_jvp(y, -1, &x, &x)));
    eg_assert_error(cx, "jvp: the number of xs is -1, but must not be negative");
    ck_assert(!eg_ok(eg_jvp(y, 1, &x, (eg_tensor *[]){ eg_ones(other, 2, 3) })));
    eg_assert_error(cx, "jvp: vs[0] belongs to another context");
    ck_assert(!eg_ok(eg_jvp(y, 2, (eg_tensor *[]){ x, NULL }, (eg_tensor *[]){ x, x })));
    eg_assert_error(cx, "jvp: xs[1] is NULL");
    ck_assert_ptr_null(eg_jvp(NULL, 0, NULL, NULL));
    ck_assert_int_eq(eg_hvp(y, 1, &x, &x, &hv), -1);
    ck_assert(!eg_ok(hv));
    eg_assert_error(cx, "hvp: y has 6 elements, shape (2, 3), not one: reduce it");
    ck_assert_int_eq(eg_hvp(eg_sum(NULL, y), 1, &x, &x, NULL), -1);
    eg_assert_error(cx, "hvp: hv is NULL");
    ck_assert(!eg_ok(eg_jacobian(y, NULL)));
    eg_assert_error(cx, "jacobian: x is NULL");
    ck_assert(!eg_ok(eg_jacobian(y, n)));
    eg_assert_error(cx, "jacobian: x is i64");
    ck_assert(!eg_ok(eg_hessian(eg_sum(NULL, y), x, NULL)));
    eg_assert_error(cx, "hessian: b is NULL");
    ck_assert(!eg_ok(eg_hessian(y, x, x)));
    eg_assert_error(cx, "hessian: y has 6 elements, shape (2, 3), not one: reduce it");
    int64_t ones[20];
    for (int k = 0; k < 20; k++) ones[k] = 1;
    eg_tensor *deep = eg_full_n(cx, EG_F32, 1, 20, ones);
    ck_assert(!eg_ok(eg_jacobian(eg_exp(deep), deep)));
    eg_assert_error(cx, "jacobian: y has 20 axes and x 20, and a tensor has at most 32");
    y = eg_exp(x);
    eg_fill(y, 1);
    ck_assert(!eg_ok(eg_jvp(y, 1, &x, &x)));
    eg_assert_error(cx, "jvp: the result of exp");
    eg_close(other);
    eg_close(cx);
}

/* An operation of the user without a jvp has forward mode from its rule; with a jvp, that is used;
 * a wrong shape is named in the error. */
static bool same_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool cube_forward(eg_tensor *y)
{
    const double *x = eg_f64(eg_operand(y, 0));
    double *out = eg_mut_f64(y);
    for (int64_t k = 0; x && out && k < eg_size(y); k++) out[k] = x[k] * x[k] * x[k];
    return x && out;
}
static eg_tensor *cube_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_scale(eg_mul(g, eg_square(eg_operand(y, i))), 3);
}
/* twice the right value */
static eg_tensor *cube_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    return cube_rule(y, eg_scale(dx[0], 2), 0);
}
static eg_tensor *bad_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    (void)y;
    return eg_sum(NULL, dx[0]);
}
static eg_tensor *no_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    (void)y, (void)dx;
    return NULL;
}
TEST(rows_of_a_user)
{
#define CUBE                                                                                     \
    .name = "cube", .arity = 1, .shape = same_shape, .forward = cube_forward, .rule = cube_rule, \
    .uses = EG_USES_OPERANDS
    static const eg_op plain = { CUBE }, own = { CUBE, .jvp = cube_jvp },
                       bad = { CUBE, .jvp = bad_jvp }, still = { CUBE, .jvp = no_jvp };
    static const eg_op none = {
        .name = "none", .arity = 1, .shape = same_shape, .forward = cube_forward
    };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ 1, 2 }), 2), *v = eg_copy(eg_detach(x));
    eg_tensor *t = eg_jvp(eg_apply(&plain, NULL, 0, 1, &x), 1, &x, &v);
    eg_assert_close(t, eg_from(cx, ((double[]){ 3, 24 }), 2), 1e-15);
    eg_assert_close(eg_jvp(t, 1, &x, &v), eg_from(cx, ((double[]){ 6, 48 }), 2), 1e-15);
    eg_assert_close(eg_jvp(eg_apply(&own, NULL, 0, 1, &x), 1, &x, &x),
                    eg_from(cx, ((double[]){ 6, 48 }), 2), 1e-15);
    eg_assert_close(eg_jvp(eg_apply(&still, NULL, 0, 1, &x), 1, &x, &x), eg_zeros(cx, 2), 1e-15);
    ck_assert(!eg_ok(eg_jvp(eg_apply(&bad, NULL, 0, 1, &x), 1, &x, &x)));
    eg_assert_error(cx, "returned f64 () for the result, which is f64 (2,)");
    ck_assert(!eg_ok(eg_jvp(eg_apply(&none, NULL, 0, 1, &x), 1, &x, &x)));
    eg_assert_error(cx, "jvp: none has no gradient for operand 1");
    ck_assert(!eg_ok(eg_jvp_linear(x, &x)));
    eg_assert_error(cx, "a leaf has no operation");
    ck_assert(!eg_ok(eg_jvp_linear(eg_neg(x), NULL)));
    eg_assert_error(cx, "jvp: the tangents are NULL");
    ck_assert(!eg_ok(eg_jvp_symmetric(eg_exp(x), NULL)));
    eg_assert_error(cx, "jvp: the tangents are NULL");
    eg_close(cx);
}

/* y = x a, x (i j), a (j): the tangents for x and a have the shapes of the operands */
static bool scaled_forward(eg_tensor *y)
{
    return eg_assign(y, eg_mul(eg_operand(y, 0), eg_operand(y, 1))) == 0;
}
static eg_tensor *scaled_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *d = eg_mul(g, eg_operand(y, 1 - i));
    return i ? eg_sum("[i] j", d) : d;
}
/* a tangent with many more elements than the result */
static eg_tensor *long_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    (void)dx;
    return eg_zeros(eg_context(y), 1000, 4000);
}
static eg_tensor *apply_to_two(void *user, eg_tensor *const *x)
{
    return eg_apply(user, NULL, 0, 2, x);
}
TEST(a_jvp_of_another_shape_is_refused)
{
#define SCALED                                                                    \
    .name = "scaled", .arity = 2, .shape = same_shape, .forward = scaled_forward, \
    .uses = EG_USES_OTHERS
    static eg_op sums = { SCALED, .rule = scaled_rule, .jvp = eg_jvp_symmetric },
                 without = { SCALED, .jvp = eg_jvp_symmetric },
                 large = { SCALED, .rule = scaled_rule, .jvp = long_jvp };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 3, 4), eg_normal(cx, 0, 1, 4) };
    ck_assert(!eg_ok(eg_jvp(apply_to_two(&sums, x), 2, x, x)));
    eg_assert_error(cx, "returned f64 (4,) for the result, which is f64 (3, 4)");
    ck_assert(!eg_ok(eg_jvp(apply_to_two(&without, x), 2, x, x)));
    eg_assert_error(cx, "jvp: scaled has no rule");
    /* each contract of the check refuses the tangent before it reads its elements */
    const eg_report *r = eg_gradcheck(apply_to_two, &large, 2, x);
    ck_assert(!r || !r->passed);
    if (!r) eg_assert_error(cx, "returned f64 (1000, 4000) for the result, which is f64 (3, 4)");
    eg_close(cx);
}
