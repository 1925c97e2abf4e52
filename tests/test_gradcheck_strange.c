/* test_gradcheck_strange.c: gradients that are infinite, or wrong only for operands of one sign,
 * close to a kink or to each other, with a determinant of 0, under eg_eval, in the fourth digit of
 * f32, or where operands are results; each must fail with the default options and the name of the
 * operation, and the same operations without a mistake must pass. */
#include <eingrad.h>
#include <math.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

typedef enum mistake {
    NONE,
    INFINITE,     /* one element of more than 100 */
    ALL_NEGATIVE, /* where all elements are negative */
    ALL_POSITIVE, /* where all are positive, and some within the limits of a clip */
    NEAR_A_KINK,  /* where all elements are below 1e-3: differences cross the kink at 0 */
    CLOSE,        /* of sorted elements that are all below 0.1 */
    SINGULAR,     /* where a determinant is 0 */
    EVALUATED,    /* under eg_eval */
    SINGLE,       /* by a factor of 1.0005 in f32 */
    OF_RESULTS,   /* where the operand is a result */
    MISTAKES
} mistake;
static mistake kind; /* selects the function */
static bool made;    /* the mistake is made */

static const double *values(eg_tensor *x)
{
    return eg_f64(eg_contiguous(eg_detach(eg_cast(x, EG_F64))));
}
/* Returns the operation without a custom rule. */
static eg_tensor *value(eg_tensor *x)
{
    switch (kind) {
    case ALL_POSITIVE: return eg_clip(x, -.9, .9);
    case NEAR_A_KINK: return eg_relu(x);
    case CLOSE: return eg_sort("[i]", x);
    case SINGULAR: {
        eg_tensor *part[4];
        for (int k = 0; k < 4; k++) part[k] = eg_slice_axis(x, 0, k, eg_dim(x, 0), 4);
        return eg_sub(eg_mul(part[0], part[3]), eg_mul(part[1], part[2]));
    }
    default: return eg_add(x, eg_tanh(x));
    }
}
static bool strange_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    const int64_t n = eg_dim(x, 0);
    if (kind == SINGULAR && n % 4) return eg_fail(eg_context(y), "no matrices") == NULL;
    return eg_result(y, eg_type(x), 1, &(int64_t){ kind == SINGULAR ? n / 4 : n });
}
static bool strange_forward(eg_tensor *y)
{
    return eg_assign(y, value(eg_detach(eg_operand(y, 0)))) == 0;
}
/* True where the mistake is made. */
static bool wrong(eg_tensor *x)
{
    const double *v = values(x);
    const int64_t n = eg_size(x);
    double least = INFINITY, most = -INFINITY, ends = 0;
    for (int64_t k = 0; v && k < n; k++) {
        least = fmin(least, v[k]);
        most = fmax(most, v[k]);
        if (k % 4 == 0) /* a matrix of 2 × 2, or fewer numbers, which are none */
            ends += k + 3 < n ? fabs(v[k] * v[k + 3] - v[k + 1] * v[k + 2]) : 1;
    }
    const double large = fmax(-least, most);
    switch (kind) {
    case ALL_NEGATIVE: return most < 0;
    case ALL_POSITIVE: return least > 0;
    case NEAR_A_KINK: return large < 1e-3;
    case CLOSE: return large < 0.1;
    case SINGULAR: return ends == 0;
    case EVALUATED: return !eg_training(eg_context(x));
    case OF_RESULTS: return eg_op_of(x) != NULL;
    default: return false;
    }
}
static eg_tensor *strange_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_scale(eg_operand(y, i), 1), *d;
    eg_ctx *cx = eg_context(y);
    const bool was = eg_nograd(cx, false);
    eg_tensor *again = value(x);
    const int failed = eg_grad(again, g, 1, &x, &d);
    eg_nograd(cx, was);
    if (failed) return d;
    if (made && kind == INFINITE && eg_size(x) > 100) {
        eg_tensor *at = eg_eq(eg_arange(cx, eg_type(x), 0, (double)eg_size(x), 1),
                              eg_cast(eg_scalar(cx, 77), eg_type(x)));
        return eg_where(at, eg_scale(d, INFINITY), d);
    }
    if (made && kind == SINGLE && eg_type(x) == EG_F32) return eg_scale(d, 1.0005);
    return made && wrong(eg_operand(y, i)) ? eg_scale(d, 1.5) : d;
}
static const eg_op strange_op = { .name = "strange",
                                  .arity = 1,
                                  .shape = strange_shape,
                                  .forward = strange_forward,
                                  .rule = strange_rule };
static eg_tensor *strange(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&strange_op, NULL, 0, 1, x);
}
LOOP_TEST(a_mistake_at_a_special_operand_does_not_pass, 2 * MISTAKES)
{
    kind = (mistake)(_i / 2);
    made = kind && _i % 2;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    /* the first element is positive and, for ALL_POSITIVE, negative: equal elements have its sign
     */
    const double sign = kind == ALL_POSITIVE ? -1 : 1;
    eg_tensor *x = eg_from(cx, ((double[]){ sign * .6, -.4, .3, -.7, .45, .8, -.55, .35 }), 8);
    const eg_report *r = eg_gradcheck(strange, NULL, 1, &x);
    ck_assert_msg(r && r->passed == !made, "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(!made || strstr(r->text, "the rule of strange"), "%s", r->text);
    eg_close(cx);
}

/* -- y = a b², whose rule differentiates a call of its own ------------------------------------- */
static eg_tensor *product_of(eg_tensor *a, eg_tensor *b) { return eg_mul(a, eg_square(b)); }
static bool product_forward(eg_tensor *y)
{
    return eg_assign(y, product_of(eg_detach(eg_operand(y, 0)), eg_detach(eg_operand(y, 1)))) == 0;
}
/* If the mistake is made, the gradient is that for the operand itself, to which the other operand
 * may lead too. */
static eg_tensor *product_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x[2] = { eg_operand(y, 0), eg_operand(y, 1) }, *d;
    const bool was = eg_nograd(eg_context(y), false);
    for (int k = 0; k < 2 && !made; k++) x[k] = eg_scale(x[k], 1);
    eg_grad(product_of(x[0], x[1]), g, 1, &x[i], &d);
    eg_nograd(eg_context(y), was);
    return d;
}
static const eg_op product_op = { .name = "product",
                                  .arity = 2,
                                  .shape = like_first,
                                  .forward = product_forward,
                                  .rule = product_rule };
static eg_tensor *product(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&product_op, NULL, 0, 2, x);
}
LOOP_TEST(a_total_derivative_is_no_rule, 2)
{
    made = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_uniform(cx, -1, 1, 3, 4), eg_uniform(cx, -1, 1, 3, 4) };
    const eg_report *r = eg_gradcheck(product, NULL, 2, x);
    ck_assert_msg(r && r->passed == !made, "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(!made || strstr(r->text, "results that depend on each other"), "%s", r->text);
    eg_close(cx);
}

/* -- y = sin x / x: the rule has terms of 1 / x², and no value where x is subnormal -------------
 */
static bool sinc_forward(eg_tensor *y)
{
    eg_tensor *x = eg_detach(eg_operand(y, 0));
    return eg_assign(y, eg_div(eg_sin(x), x)) == 0;
}
static eg_tensor *sinc_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i);
    eg_tensor *d = eg_sub(eg_div(eg_cos(x), x), eg_div(eg_sin(x), eg_square(x)));
    return eg_mul(g, d);
}
static const eg_op sinc_op = {
    .name = "sinc", .arity = 1, .shape = like_first, .forward = sinc_forward, .rule = sinc_rule
};
static eg_tensor *sinc(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&sinc_op, NULL, 0, 1, x);
}
LOOP_TEST(a_rule_may_have_no_value_at_subnormal_operands, 4)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)_i);
    eg_tensor *x = eg_uniform(cx, 0.2, 2, 4);
    const eg_report *r = eg_gradcheck(sinc, NULL, 1, &x);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- y = x ln x, whose rule has ln(x + 1e-10): wrong only where x is small, but no difference at a
 * step of 1/512 exists there -- */
static bool entropy_forward(eg_tensor *y)
{
    eg_tensor *x = eg_detach(eg_operand(y, 0));
    return eg_assign(y, eg_mul(x, eg_log(x))) == 0;
}
static eg_tensor *entropy_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i);
    return eg_mul(g, eg_shift(eg_log(made ? eg_shift(x, 1e-10) : x), 1));
}
static const eg_op entropy_op = { .name = "entropy",
                                  .arity = 1,
                                  .shape = like_first,
                                  .forward = entropy_forward,
                                  .rule = entropy_rule };
static eg_tensor *entropy(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&entropy_op, NULL, 0, 1, x);
}
LOOP_TEST(elements_near_the_end_of_a_domain_are_tested, 2)
{
    made = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 2);
    eg_tensor *x = eg_uniform(cx, 0.1, 1, 5);
    const eg_report *r = eg_gradcheck(entropy, NULL, 1, &x);
    ck_assert_msg(r && r->passed == !made, "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(!made || strstr(r->text, "the rule of entropy"), "%s", r->text);
    eg_close(cx);
}

/* -- y = a + b, whose forward function takes matrices of any rank, and whose rule does not ------
 */
static bool bias_forward(eg_tensor *y)
{
    return eg_assign(y, eg_add(eg_detach(eg_operand(y, 0)), eg_detach(eg_operand(y, 1)))) == 0;
}
static eg_tensor *bias_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y;
    if (!i) return g;
    return made && eg_rank(g) == 3 ? eg_sum("[x] [i] j -> j", eg_scale(g, 2))
                                   : eg_sum("[i] j -> j", g);
}
static const eg_op bias_op = {
    .name = "bias", .arity = 2, .shape = like_first, .forward = bias_forward, .rule = bias_rule
};
static eg_tensor *bias(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&bias_op, NULL, 0, 2, x);
}
LOOP_TEST(a_rule_that_refuses_a_rank_is_not_wrong, 2)
{
    made = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 2);
    eg_tensor *x[] = { eg_uniform(cx, -1, 1, 3, 4), eg_uniform(cx, -1, 1, 4) };
    const eg_report *r = eg_gradcheck(bias, NULL, 2, x);
    ck_assert_msg(r && r->passed == !made, "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(made ||
                      strstr(r->text, "for operand 2 refuses what forward takes, where operands "
                                      "have another axis of 1 element in front: sum: "),
                  "%s", r->text);
    eg_close(cx);
}

/* -- y = 1e-9 tanh x, whose rule is 1e-6 of itself too large: a difference of 1e-15, which rounding
 * near 1 would explain -- */
static bool small_forward(eg_tensor *y)
{
    return eg_assign(y, eg_scale(eg_tanh(eg_detach(eg_operand(y, 0))), 1e-9)) == 0;
}
static eg_tensor *small_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *slope = eg_shift(eg_neg(eg_square(eg_tanh(eg_operand(y, i)))), 1);
    return eg_mul(g, eg_scale(slope, made ? 1.000001e-9 : 1e-9));
}
static const eg_op small_op = {
    .name = "small", .arity = 1, .shape = like_first, .forward = small_forward, .rule = small_rule
};
static eg_tensor *small(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&small_op, NULL, 0, 1, x);
}
LOOP_TEST(a_small_function_hides_no_mistake, 2)
{
    made = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 2);
    eg_tensor *x = eg_uniform(cx, -1, 1, 5);
    const eg_report *r = eg_gradcheck(small, NULL, 1, &x);
    ck_assert_msg(r && r->passed == !made, "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- what the wrong entries have in common: y = eˣ of 3 × 3 elements ----------------------------
 */
static const char *const common[] = {
    "x0: WRONG: the numeric values are -1 times the analytic ones in all wrong entries (9 of 9): "
    "the "
    "sign",
    "x0: WRONG: the numeric values are 2.5 times the analytic ones in all wrong entries (9 of 9): "
    "a "
    "factor\n",
    "3 times the analytic ones in all wrong entries (9 of 9): a factor; an axis has that length, "
    "so "
    "a mean may stand for a sum",
    "x0: WRONG: the numeric values are the analytic ones with axes 0 and 1 exchanged",
    "x0: WRONG: the numeric values are the analytic ones of the place before along axis 0",
    "x0: WRONG: the numeric values are the analytic ones in reverse order along axis 1",
    "x0: WRONG: the numeric values are the analytic ones plus -0.25, in all entries",
    "(3 of 9): a factor, with the index 2, the last, along axis 1",
    "x0: WRONG: all wrong entries (3 of 9) have the index 0 along axis 0",
    "x0: WRONG: the analytic values of all wrong entries are 0 (9 of 9)",
};
static int cause;
static bool exp_forward(eg_tensor *y)
{
    return eg_assign(y, eg_exp(eg_detach(eg_operand(y, 0)))) == 0;
}
static eg_tensor *exp_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *d = eg_mul(g, eg_exp(x));
    eg_ctx *cx = eg_context(y);
    const int64_t n = eg_size(x);
    if (n != 9 || eg_rank(x) != 2) return d;
    double last[9], first[9];
    for (int k = 0; k < 9; k++) last[k] = k % 3 == 2 ? 0.5 : 1;
    for (int k = 0; k < 9; k++) first[k] = k < 3 ? k + 1.5 : 1;
    const int64_t three[] = { 3, 3 };
    switch (cause) {
    case 0: return eg_neg(d);
    case 1: return eg_scale(d, 0.4);
    case 2: return eg_scale(d, 1. / 3);
    case 3: return eg_contiguous(eg_transpose(d, 0, 1));
    case 4: return eg_concat_axis(0, eg_slice_axis(d, 0, 1, 3, 1), eg_slice_axis(d, 0, 0, 1, 1));
    case 5: return eg_contiguous(eg_flip_axis(d, 1));
    case 6: return eg_shift(d, 0.25);
    case 7: return eg_mul(d, eg_cast(eg_from_n(cx, EG_F64, last, 2, three), eg_type(d)));
    case 8: return eg_mul(d, eg_cast(eg_from_n(cx, EG_F64, first, 2, three), eg_type(d)));
    default: return eg_zeros_like(d);
    }
}
static const eg_op exp_op = {
    .name = "exponential", .arity = 1, .shape = like_first, .forward = exp_forward, .rule = exp_rule
};
static eg_tensor *exponential(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&exp_op, NULL, 0, 1, x);
}
LOOP_TEST(what_wrong_entries_have_in_common_is_said, (int)(sizeof common / sizeof *common))
{
    cause = _i;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 5);
    eg_tensor *x = eg_uniform(cx, -1, 1, 3, 3);
    const eg_report *r = eg_gradcheck(exponential, NULL, 1, &x);
    ck_assert_msg(r && !r->passed && strstr(r->text, common[_i]), "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- a module of f32, whose parameters and memory are no inputs of the check --------------------
 */
typedef struct attended {
    eg_mha *mha;
    eg_tensor *memory;
} attended;
static eg_tensor *attend(void *user, eg_tensor *const *x)
{
    const attended *a = user;
    return eg_mha_run(a->mha, x[0], .key = a->memory);
}
LOOP_TEST(a_module_of_f32_is_checked_by_its_input_alone, 2)
{
    eg_ctx *cx = eg_open(.dtype = EG_F32);
    eg_params *p = eg_params_open(cx);
    attended a = { eg_mha_new(p, "a", .d_model = 4, .heads = 2),
                   _i ? eg_tanh(eg_normal(cx, 0, 1, 1, 2, 4)) : NULL };
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 3, 4);
    const eg_report *r = eg_gradcheck(attend, &a, 1, &x);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert(eg_type(x) == EG_F32 && eg_type(a.mha->W_o) == EG_F32);
    ck_assert(!a.memory || (eg_type(a.memory) == EG_F32 && eg_op_of(a.memory)));
    eg_close(cx);
}

/* -- a gradient that is another one in every second sweep, though f is the same ------------------
 */
static eg_tensor *every_second(void *user, eg_tensor *x, eg_tensor *g)
{
    int *calls = user;
    (void)x;
    return ++*calls % 2 || !made ? g : eg_scale(g, 1.001);
}
static eg_tensor *hooked(void *user, eg_tensor *const *x)
{
    eg_tensor *y = eg_tanh(x[0]);
    eg_hook(y, every_second, user);
    return eg_exp(y);
}
LOOP_TEST(a_gradient_that_differs_when_it_is_computed_again_is_no_noise, 4)
{
    made = _i % 2;
    int calls = 0;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 4);
    const eg_report *r = eg_gradcheck(hooked, &calls, 1, &x, .full = _i / 2);
    ck_assert_msg(r && r->passed == !made, "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(!made || strstr(r->text, "a hook of tanh"), "%s", r->text);
    eg_close(cx);
}

/* -- a branch of f that is not taken at the point ---------------------------------------------- */
static eg_tensor *branched(void *user, eg_tensor *const *x)
{
    const int *branch = user;
    eg_tensor *y = eg_sin(x[0]), *at = eg_full_n(eg_context(y), eg_type(y), .02, 1, eg_dims(y));
    eg_tensor *there = *branch == 0 ? eg_lt(eg_abs(y), at) : eg_gt(eg_abs(x[0]), eg_scale(at, 190));
    if (*branch == 2) there = eg_lt(eg_max(NULL, x[0]), eg_neg(at));
    return eg_where(there, made ? eg_detach(y) : eg_scale(y, 2), y);
}
LOOP_TEST(a_branch_that_is_not_taken_is_tested_at_other_points, 6)
{
    static const int branch[] = { 0, 1, 2 };
    made = _i % 2;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ .6, -.4, .3, -.7, .45 }), 5);
    if (branch[_i / 2] == 2) x = eg_abs(x);
    const eg_report *r = eg_gradcheck(branched, (void *)(uintptr_t)&branch[_i / 2], 1, &x);
    ck_assert_msg(r && r->passed == !made, "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(!made || strstr(r->text, ", with every input"), "%s", r->text);
    eg_close(cx);
}

/* -- a rule that writes to an operand, an input of f ------------------------------------------- */
static bool written_forward(eg_tensor *y)
{
    return eg_assign(y, eg_exp(eg_detach(eg_operand(y, 0)))) == 0;
}
static eg_tensor *written_rule(eg_tensor *y, eg_tensor *g, int i)
{
    if (made && eg_is_writable(eg_operand(y, i))) eg_fill(eg_operand(y, i), 0.5);
    return eg_mul(g, y);
}
static const eg_op written_op = { .name = "written",
                                  .arity = 1,
                                  .shape = like_first,
                                  .forward = written_forward,
                                  .rule = written_rule,
                                  .uses = EG_USES_RESULT };
static eg_tensor *written(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_sin(eg_apply(&written_op, NULL, 0, 1, x));
}
LOOP_TEST(an_error_names_the_rule_that_writes_to_an_input, 4)
{
    made = _i % 2;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_uniform(cx, .1, 1, 3);
    const eg_report *r = eg_gradcheck(written, NULL, 1, &x, .order = 1 + _i / 2);
    ck_assert_msg(made ? !r : r && r->passed, "%s", r ? r->text : eg_error(cx));
    if (made) {
        ck_assert_msg(strstr(eg_error(cx), "gradcheck: the rule of written") != NULL, "%s",
                      eg_error(cx));
        ck_assert_msg(strstr(eg_error(cx), "writes to an operand: f changes its input 1"), "%s",
                      eg_error(cx));
    }
    eg_close(cx);
}

/* -- a seed and tangents of f32, which f reads through `user` -----------------------------------
 */
typedef struct derivative {
    int which;
    eg_tensor *v;
} derivative;
static eg_tensor *derivative_of(void *user, eg_tensor *const *x)
{
    const derivative *o = user;
    eg_tensor *y = eg_exp(eg_sin(x[0])), *d;
    if (o->which == 0) return eg_jvp(y, 1, x, &o->v);
    if (o->which == 1) eg_grad(y, o->v, 1, x, &d);
    if (o->which == 2) eg_grad_or_null(y, o->v, 1, x, &d);
    if (o->which == 3) eg_hvp(eg_sum(NULL, y), 1, x, &o->v, &d);
    return d;
}
LOOP_TEST(a_seed_or_tangent_of_f32_is_read_as_an_operand_is, 8)
{
    eg_ctx *cx = eg_open();
    derivative o = { _i / 2, eg_normal(cx, 0, 1, 4) };
    eg_tensor *x = eg_normal(cx, 0, 1, 4);
    if (_i % 2) o.v = eg_tanh(o.v);
    const eg_report *r = eg_gradcheck(derivative_of, &o, 1, &x);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert(eg_type(o.v) == EG_F32 && (eg_op_of(o.v) != NULL) == _i % 2);
    eg_close(cx);
}

/* -- a gradient that is NaN: a norm by a square root at 0 ----------------------------------------
 */
static eg_tensor *norm_of(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_sqrt(eg_add(eg_square(x[0]), eg_square(x[1])));
}
TEST(the_origin_of_a_gradient_that_is_not_finite_is_named)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[2];
    for (int k = 0; k < 2; k++) x[k] = eg_from(cx, ((double[]){ 0, 0.5, 1 + k }), 3);
    const eg_report *r = eg_gradcheck(norm_of, NULL, 2, x);
    ck_assert_msg(r && !r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(strstr(r->text, "the gradient is not finite: the gradient of sqrt") != NULL, "%s",
                  r->text);
    ck_assert_msg(!strstr(r->text, "not on the tape"), "%s", r->text);
    eg_close(cx);
}

/* -- a step function, whose steps are too narrow for differences where it is large --------------
 */
static eg_tensor *stepped(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_add(eg_ceil(eg_powc(x[0], 8)), x[0]);
}
TEST(a_point_where_f_is_much_larger_is_left_out)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ .6, 1.1, .3, 1.2 }), 4);
    const eg_report *r = eg_gradcheck(stepped, NULL, 1, &x);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- a rule that is wrong where both operands, of different shapes in the call, are one tensor ---
 */
static bool matrices; /* y = a b of matrices; else elementwise, where b broadcasts */
static eg_tensor *pair_value(eg_tensor *a, eg_tensor *b)
{
    return matrices ? eg_einsum("ij,jk->ik", a, b) : eg_mul(a, b);
}
static bool pair_shape(eg_tensor *y)
{
    eg_tensor *v = pair_value(eg_detach(eg_operand(y, 0)), eg_detach(eg_operand(y, 1)));
    return eg_ok(v) && eg_result(y, eg_type(v), eg_rank(v), eg_dims(v));
}
static bool pair_forward(eg_tensor *y)
{
    return eg_assign(y, pair_value(eg_detach(eg_operand(y, 0)), eg_detach(eg_operand(y, 1)))) == 0;
}
static eg_tensor *pair_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x[2], *d;
    for (int k = 0; k < 2; k++) x[k] = eg_scale(eg_operand(y, k), 1);
    const bool was = eg_nograd(eg_context(y), false);
    eg_grad(pair_value(x[0], x[1]), g, 1, &x[i], &d);
    eg_nograd(eg_context(y), was);
    return made && eg_operand(y, 0) == eg_operand(y, 1) ? eg_scale(d, 2) : d;
}
static const eg_op pair_op = {
    .name = "pair", .arity = 2, .shape = pair_shape, .forward = pair_forward, .rule = pair_rule
};
static eg_tensor *pair(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&pair_op, NULL, 0, 2, x);
}
LOOP_TEST(operands_of_different_shapes_may_be_one_tensor_elsewhere, 4)
{
    made = _i % 2;
    matrices = _i / 2;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 3, 3), eg_normal(cx, 0, 1, 3) };
    if (matrices) x[1] = eg_normal(cx, 0, 1, 3, 5);
    const eg_report *r = eg_gradcheck(pair, NULL, 2, x);
    ck_assert_msg(r && r->passed == !made, "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(!made || strstr(r->text, "the rule of pair"), "%s", r->text);
    eg_close(cx);
}

/* -- a function on arrays that writes to its argument: its rule is not to blame ------------------
 */
static int moves_its_argument(void *user, const double *x, double *y)
{
    ((double *)(uintptr_t)x)[0] += 1e-9;
    y[0] = tanh(x[0] * x[1]);
    return user != NULL;
}
static int right_vjp(void *user, const double *x, const double *g, double *dx)
{
    const double y = tanh(x[0] * x[1]);
    dx[0] = g[0] * (1 - y * y) * x[1];
    dx[1] = g[0] * (1 - y * y) * x[0];
    return user != NULL;
}
TEST(a_rule_is_not_blamed_for_what_f_writes)
{
    eg_ctx *cx = eg_open();
    const eg_report *r =
        eg_gradcheck_fn(cx, moves_its_argument, right_vjp, NULL, 2, 1, ((double[]){ .3, .7 }));
    ck_assert_ptr_null(r);
    ck_assert_msg(!strncmp(eg_error(cx), "gradcheck: f writes to its inputs", 33), "%s",
                  eg_error(cx));
    eg_close(cx);
}
