/* test_tape.c: what the tape stores besides gradients: the call that made a node, hooks, names,
 * paths. */
#if HAVE_CONFIG_H
#include <config.h> /* HAVE_LIBDW */
#endif
#include <eingrad.h>
#include <eingrad/check.h>
#include "gradcheck/gradcheck.h" /* eg__first_use */
#include "tests.h"

/* Asserts "… (test_tape.c:LINE)" if libdw can read lines; dladdr has no name for a static
 * function. */
static void assert_line(const char *text, const char *who, int line)
{
    char want[128];
#if HAVE_LIBDW
    snprintf(want, sizeof want, "%s (test_tape.c:%d)", who, line);
#else
    snprintf(want, sizeof want, "%s (", who);
    (void)line;
#endif
    ck_assert_msg(text && strstr(text, want), "\"%s\" does not say %s", text ? text : "NULL", want);
}

TEST(a_node_knows_the_line_that_made_it)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_ones(cx, 2, 3), *w = eg_ones(cx, 3, 3), *dx;
    eg_tensor *y = eg_mul(x, x);
    const int mul = __LINE__ - 1;
    assert_line(eg_origin(y), "mul", mul);
    eg_tensor *t = eg_softmax("i [j]", eg_einsum("im,mj->ij", x, w), .where = "j <= i");
    const int deep = __LINE__ - 1;
    assert_line(eg_origin(t), "softmax", deep);
    assert_line(eg_origin(eg_operand(t, 0)), "einsum \"im,mj->ij\"", deep);
    /* operations of a rule have the line of the forward call */
    ck_assert_int_eq(eg_grad(y, x, 1, &x, &dx), 0);
    assert_line(eg_origin(dx), "add", __LINE__ - 1);
    assert_line(eg_origin(eg_operand(dx, 0)), "mul", mul);
    ck_assert_str_eq(eg_origin(x), "a leaf");
    ck_assert_str_eq(eg_origin(NULL), "");
    eg_close(cx);
}

TEST(a_change_in_place_names_the_line_that_saved_the_value)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_ones(cx, 3), *w = eg_ones(cx, 3), *dx;
    eg_tensor *y = eg_mul(x, w);
    const int mul = __LINE__ - 1;
    eg_tensor *e = eg_exp(y);
    const int exp_line = __LINE__ - 1;
    eg_fill(w, 2);
    ck_assert_int_eq(eg_grad(e, x, 1, &x, &dx), -1);
    assert_line(eg_error(cx), "operand 2 of mul", mul);
    eg_assert_error(cx, "was changed in place");
    eg_fill(e, 2);
    ck_assert_int_eq(eg_grad(e, x, 1, &x, &dx), -1);
    assert_line(eg_error(cx), "the result of exp", exp_line);
    eg_assert_error(cx, "was changed in place");
    ck_assert(!eg_ok(eg_jvp(e, 1, &x, &x)));
    assert_line(eg_error(cx), "jvp: operand 2 of mul", mul);
    eg_clear(cx);
    eg_close(cx);
}

/* -- hooks ------------------------------------------------------------------------------------ */
typedef struct seen {
    int n;
    eg_tensor *x[16], *g[16];
    double factor;
} seen;
static eg_tensor *note(void *user, eg_tensor *x, eg_tensor *g)
{
    seen *s = user;
    s->x[s->n] = x;
    s->g[s->n++] = g;
    return s->factor ? eg_scale(g, s->factor) : NULL;
}
static eg_tensor *wrong_shape(void *user, eg_tensor *x, eg_tensor *g)
{
    (void)user, (void)x;
    return eg_sum(NULL, g);
}
static eg_tensor *sweeps_itself(void *user, eg_tensor *x, eg_tensor *g)
{
    eg_tensor *u = eg_copy(g), *du; /* x itself would call this hook again */
    return eg_grad(eg_mul(u, x), g, 1, &u, &du) ? eg_fail(eg_context(x), "%s", (const char *)user)
                                                : du;
}
static eg_tensor *calls_itself(void *y, eg_tensor *x, eg_tensor *g)
{
    eg_tensor *dx;
    return eg_grad(y, g, 1, &x, &dx) ? NULL : dx;
}
TEST(hooks_see_complete_cotangents)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_scalar(cx, 3), *h = eg_square(x), *y = eg_add(eg_mul(h, h), h),
              *aside = eg_exp(x), *dx;
    seen plain = { 0 }, twice = { .factor = 2 }, half = { .factor = .5 };
    ck_assert_int_eq(eg_hook(h, note, &plain), 0);
    ck_assert_int_eq(eg_hook(x, note, &plain), 0);
    ck_assert_int_eq(eg_hook(y, note, &plain), 0);
    ck_assert_int_eq(eg_hook(aside, note, &plain), 0);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), 0);
    ck_assert_int_eq(plain.n, 3); /* y, h, x: from y outwards, each once */
    ck_assert(plain.x[0] == y && plain.x[1] == h && plain.x[2] == x);
    ck_assert_double_eq(eg_item(plain.g[1]), 2 * 9 + 1); /* the paths through h both count */
    ck_assert(plain.g[2] == dx);
    ck_assert_double_eq(eg_item(dx), 6 * 19);
    eg_hook(h, note, &twice); /* called after the first one, with its result */
    ck_assert_int_eq(eg_grad(y, NULL, 2, (eg_tensor *[]){ x, h }, (eg_tensor *[]){ NULL, NULL }),
                     0);
    ck_assert_double_eq(eg_item(plain.g[5]), 2 * 6 * 19);
    eg_hook(h, note, &half);
    eg_grad(y, NULL, 1, &x, &dx);
    ck_assert_double_eq(eg_item(dx), 6 * 19);
    ck_assert_double_eq(eg_item(half.g[0]), 2 * 19);
    eg_hook(h, NULL, NULL);
    plain.n = 0;
    eg_grad(y, NULL, 1, &h, &dx); /* x is not between y and h */
    ck_assert_int_eq(plain.n, 1);
    eg_hook(h, sweeps_itself, "no"); /* g ↦ h g */
    eg_grad(y, NULL, 1, &x, &dx);
    ck_assert_double_eq(eg_item(dx), 6 * 9 * 19);
    eg_assert_ok(cx);
    eg_close(cx);
}

static eg_tensor *adds_itself(void *user, eg_tensor *x, eg_tensor *g)
{
    (void)g;
    ++*(int *)user;
    eg_hook(x, adds_itself, user);
    return NULL;
}
TEST(hooks_that_a_hook_adds_are_called_from_the_next_pass_on)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 3), *dx;
    int calls = 0;
    eg_hook(x, adds_itself, &calls);
    for (int pass = 0; pass < 3; pass++) eg_grad(eg_sum(NULL, x), NULL, 1, &x, &dx);
    ck_assert_int_eq(calls, 1 + 2 + 4);
    eg_assert_ok(cx);
    eg_close(cx);
}
TEST(hooks_refuse)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 3), *n = eg_randint(cx, 0, 5, 3), *y = eg_exp(x), *dx;
    seen s = { 0 };
    ck_assert_int_eq(eg_hook(n, note, &s), -1);
    eg_assert_error(cx, "hook: x is i64; only floats have gradients");
    ck_assert_int_eq(eg_hook(NULL, note, &s), -1);
    ck_assert_int_eq(eg_hook(y, wrong_shape, &s), 0);
    ck_assert_int_eq(eg_grad(y, x, 1, &x, &dx), -1);
    ck_assert(strstr(eg_error(cx), "grad: the hook of exp"));
    eg_assert_error(cx, "returned f32 () for the result, which is f32 (3,)");
    eg_tensor *h = eg_tanh(x), *z = eg_square(h);
    for (int turn = 0; turn < 2; turn++) { /* it is refused, and works as before afterwards */
        ck_assert_int_eq(eg_hook(h, calls_itself, z), 0);
        ck_assert_int_eq(eg_grad(z, x, 1, &x, &dx), -1);
        ck_assert(strstr(eg_error(cx), "grad: the hook of tanh"));
        eg_assert_error(cx, "would call itself: it differentiates through its own tensor");
    }
    eg_hook(h, NULL, NULL);
    ck_assert_int_eq(eg_grad(z, x, 1, &x, &dx), 0);
    eg_close(cx);
}

/* -- zero or missing -------------------------------------------------------------------------- */
TEST(a_cut_path_is_named)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_ones(cx, 3), *other = eg_ones(cx, 3), *cut = x;
    eg_tensor *low = eg_floor(eg_scale(x, .3)), *y = eg_softmax("[i]", eg_add(low, other));
    ck_assert_int_eq(eg_path_to(y, x, &cut), EG_CUT_PATH);
    ck_assert_ptr_eq(cut, low);
    ck_assert_str_eq(eg_op_of(cut)->name, "floor");
    ck_assert_int_eq(eg_path_to(y, other, &cut), EG_OPEN_PATH);
    ck_assert_ptr_null(cut);
    ck_assert_int_eq(eg_path_to(y, eg_ones(cx, 3), NULL), EG_NO_PATH);
    ck_assert_int_eq(eg_path_to(y, y, NULL), EG_OPEN_PATH);
    /* one open path suffices */
    ck_assert_int_eq(eg_path_to(eg_mul(y, x), x, &cut), EG_OPEN_PATH);
    ck_assert_int_eq(eg_path_to(eg_exp(eg_detach(x)), x, &cut), EG_CUT_PATH);
    ck_assert_str_eq(eg_op_of(cut)->name, "detach");
    ck_assert_int_eq(eg_path_to(eg_where(eg_gt(x, other), other, eg_neg(other)), x, &cut),
                     EG_CUT_PATH);
    ck_assert_str_eq(eg_op_of(cut)->name, "gt");
    ck_assert_int_eq(eg_path_to(eg_at("[v], b -> b", other, eg_cast(x, EG_I64)), x, &cut),
                     EG_CUT_PATH);
    ck_assert_str_eq(eg_op_of(cut)->name, "cast");
    ck_assert_int_eq(eg_path_to(NULL, x, &cut), EG_NO_PATH);
    eg_clear(cx);
    for (int k = 0; k < 300; k++) low = eg_shift(low, 1); /* deep, and with many paths */
    for (int k = 0; k < 60; k++) low = eg_add(low, low);
    ck_assert_int_eq(eg_path_to(low, x, &cut), EG_CUT_PATH);
    eg_close(cx);
}

/* -- the cost of a pass ------------------------------------------------------------------------ */
static uint64_t nodes_of(eg_tensor *y, int count, eg_tensor *const *xs)
{
    eg_tensor *dx[4];
    const uint64_t before = eg_stats(eg_context(y)).nodes;
    ck_assert_int_eq(eg_grad(y, NULL, count, xs, dx), 0);
    return eg_stats(eg_context(y)).nodes - before;
}
TEST(gradients_that_are_not_requested_are_not_computed)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 3, 3), *w = eg_ones(cx, 3, 3), *v = eg_ones(cx, 3, 3);
    eg_tensor *h = eg_einsum("ij,jk->ik", eg_exp(x), w),
              *y = eg_sum(NULL, eg_mul(eg_tanh(eg_detach(h)), eg_mul(h, v)));
    const uint64_t sum = nodes_of(eg_sum(NULL, v), 1, &v);
    ck_assert_uint_eq(nodes_of(y, 1, &v) - sum, 2); /* two products */
    ck_assert_uint_eq(nodes_of(y, 1, &w) - sum, 3); /* … and one contraction */
    ck_assert_uint_eq(nodes_of(y, 2, (eg_tensor *[]){ w, v }) - sum, 4);
    ck_assert_uint_eq(nodes_of(y, 1, &x) - sum, 4); /* nothing for w or v, nor through detach */
    ck_assert_uint_eq(nodes_of(y, 3, (eg_tensor *[]){ x, w, v }) - sum, 6);
    ck_assert_uint_eq(nodes_of(y, 1, (eg_tensor *[]){ eg_ones(cx, 3) }), 0);
    eg_close(cx);
}

/* dx is a sum of 16 products: with a history each partial sum is a tensor, without one all but the
 * first have the same memory. */
TEST(cotangents_that_no_one_else_refers_to_are_added_in_place)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 4);
    eg_tensor *x = eg_uniform(cx, -1, 1, 1000), *y = eg_scale(x, 0), *dx[2];
    for (int k = 0; k < 16; k++) y = eg_add(y, eg_mul(x, eg_uniform(cx, -1, 1, 1000)));
    y = eg_sum(NULL, y);
    size_t used[2];
    for (int record = 0; record < 2; record++) {
        eg_nograd(cx, !record);
        const size_t before = eg_stats(cx).used;
        ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx[record]), 0);
        used[record] = eg_stats(cx).used - before;
    }
    eg_nograd(cx, false);
    ck_assert_msg(used[0] + 14 * 1000 * sizeof(double) <= used[1], "%zu and %zu bytes", used[0],
                  used[1]);
    ck_assert(!memcmp(eg_f64(dx[0]), eg_f64(dx[1]), 1000 * sizeof(double)));
    eg_close(cx);
}

/* -- the first NaN, and graphs ---------------------------------------------------------------- */
TEST(the_first_nan_is_named)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(cx, ((float[]){ 1, 2, 3e38f, 1, 1, 1 }), 2, 3),
              *w = eg_full(cx, 3, 3, 2), *dx, *nan = eg_full(cx, NAN, 2, 3);
    ck_assert(!eg_trace(cx, true));
    eg_assert_ok(eg_context(eg_exp(nan))); /* exp is not the cause */
    ck_assert(eg_ok(eg_add(nan, x)));
    ck_assert(!eg_ok(eg_einsum("im,mj->ij", x, w)));
    const int product = __LINE__ - 1;
    ck_assert(strstr(eg_error(cx), "trace: ") == eg_error(cx));
    assert_line(eg_error(cx), "einsum \"im,mj->ij\"", product);
    eg_assert_error(cx, "made inf at (0, 0) of (2, 2), and its operands are finite");
    eg_tensor *zero = eg_from(cx, ((float[]){ 4, 0 }), 2);
    eg_tensor *root = eg_sqrt(zero);
    const int sqrt_line = __LINE__ - 1;
    ck_assert_int_eq(eg_grad(eg_sum(NULL, root), NULL, 1, &zero, &dx), -1);
    assert_line(eg_error(cx), "trace: the gradient of sqrt", sqrt_line);
    eg_assert_error(cx, ": div made inf at (1,) of (2,)");
    ck_assert(!eg_ok(eg_jvp(root, 1, &zero, &zero))); /* 0/0 */
    assert_line(eg_error(cx), "trace: the tangent of sqrt", sqrt_line);
    eg_assert_error(cx, "nan at (1,)");
    ck_assert(eg_ok(eg_jvp(eg_logsumexp(NULL, eg_log(eg_shift(zero, 1))), 1, &zero, &zero)));
    ck_assert(eg_trace(cx, false));
    ck_assert(eg_ok(eg_einsum("im,mj->ij", x, w)));
    ck_assert(!eg_trace(NULL, true));
    eg_assert_ok(cx);
    eg_close(cx);
}
/* Gradients compute nothing that is not finite on the way to a finite result. */
TEST(the_trace_reports_no_operation_of_a_finite_gradient)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x[] = { eg_from(cx, ((float[]){ 0.5F, 2, 40 }), 3), eg_full(cx, 0.5, 3) }, *dx[2];
    eg_trace(cx, true);
    for (int k = 0; k < 2; k++) {
        eg_tensor *y = k ? eg_pow(x[0], x[1]) : eg_logaddexp(x[0], x[1]);
        ck_assert_int_eq(eg_grad(eg_sum(NULL, y), NULL, 2, x, dx), 0);
        y = eg_add(eg_sum(NULL, eg_square(dx[0])), eg_sum(NULL, eg_square(dx[1])));
        ck_assert_int_eq(eg_grad(y, NULL, 2, x, dx), 0);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

static void read_back(int (*print)(FILE *, eg_tensor *), eg_tensor *y, char *out, size_t room)
{
    FILE *f = tmpfile();
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(print(f, y), 0);
    rewind(f);
    out[fread(out, 1, room - 1, f)] = 0;
    fclose(f);
}
TEST(a_graph_as_text_and_as_dot)
{
    eg_ctx *cx = eg_open();
    eg_params *p = eg_params_open(cx);
    eg_tensor *W = eg_param(p, "W\"q", "m d", 3, 4), *x = eg_ones(cx, 2, 3);
    eg_tensor *q = eg_einsum("im,md->id", x, W), *y = eg_sum(NULL, eg_mul(q, q));
    char text[4096];
    read_back(eg_graph_print, y, text, sizeof text);
    ck_assert_msg(strstr(text, "   1  leaf  f32 (2, 3)\n") == text, "%s", text);
    ck_assert_msg(strstr(text, "   2  leaf  f32 (3, 4)  \"W\"q\"\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "   3  einsum \"im,md->id\" 1, 2  f32 (2, 4)") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "   4  mul 3, 3  f32 (2, 4)") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "   5  einsum \"ab->\" 4  f32 ()") != NULL, "%s", text);
#if HAVE_LIBDW
    ck_assert_msg(strstr(text, "test_tape.c:") != NULL, "%s", text);
#endif
    read_back(eg_graph_dot, y, text, sizeof text);
    ck_assert_msg(strstr(text, "digraph eingrad {\n") == text &&
                      !strcmp(text + strlen(text) - 2, "}\n"),
                  "%s", text);
    ck_assert_msg(strstr(text, "n2 [shape=box, label=\"W\\\"q\\nf32 (3, 4)\"];") != NULL, "%s",
                  text);
    ck_assert_msg(strstr(text, "label=\"einsum\\nf32 i=2 d=4") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "n1 -> n3 [label=\"im\"];") &&
                      strstr(text, "n2 -> n3 [label=\"md\"];"),
                  "%s", text);
    ck_assert_msg(strstr(text, "n3 -> n4;\n  n3 -> n4;"), "%s", text);
    /* each node once, however many paths lead to it */
    for (int k = 0; k < 60; k++) y = eg_add(y, y);
    read_back(eg_graph_print, y, text, sizeof text);
    ck_assert(strstr(text, "  65  add 64, 64"));
    ck_assert_int_eq(eg_graph_print(NULL, y), -1);
    eg_assert_error(cx, "graph_print: the file is NULL");
    ck_assert_int_eq(eg_graph_dot(stdout, NULL), -1);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        ck_assert_int_eq(eg_graph_dot(full, y), -1);
        eg_assert_error(cx, "graph_dot: the file cannot be written");
        fclose(full);
    }
    eg_close(cx);
}

/* The letters of the string, also in the gradient's string. Names and groups get other letters. */
TEST(einsum_keeps_its_letters)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3), *w = eg_ones(cx, 3, 4), *dx;
    eg_tensor *y = eg_einsum("qZ,Zd->qd", x, w);
    ck_assert_ptr_nonnull(strstr(eg_origin(y), "einsum \"qZ,Zd->qd\""));
    eg_grad(y, y, 1, &x, &dx);
    ck_assert_ptr_nonnull(strstr(eg_origin(dx), "einsum \"qd,Zd->qZ\""));
    ck_assert_ptr_nonnull(
        strstr(eg_origin(eg_einsum("row mid, mid column", x, w)), "einsum \"ab,bc->"));
    ck_assert_ptr_nonnull(strstr(eg_origin(eg_einsum("...m,m...->...", x, eg_ones(cx, 3, 2))),
                                 "einsum \"am,ma->a\""));
    ck_assert_ptr_nonnull(
        strstr(eg_origin(eg_einsum("ab,b...->a...", x, w)), "einsum \"ab,bc->ac\""));
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- an operation at its first use: the tests of a build with --enable-debug ------------------- */
static bool same_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool product_forward(eg_tensor *y)
{
    eg_tensor *p = eg_mul(eg_operand(y, 0), eg_operand(y, 1));
    return eg_ok(p) && eg_assign(y, p) == 0;
}
static eg_tensor *right_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_mul(g, eg_operand(y, 1 - i));
}
static eg_tensor *wrong_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_mul(g, eg_operand(y, i));
}
static eg_tensor *narrow_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y;
    return i ? eg_sum(NULL, g) : g;
}
static eg_tensor *narrow_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    (void)y;
    return eg_sum(NULL, dx[0]);
}
static const eg_op *applied;
static eg_tensor *apply_it(eg_tensor *const *x) { return eg_apply(applied, NULL, 0, 2, x); }
static const eg_sample product_samples[] = { { apply_it, "2x3, 2x3", .5, 2 }, { 0 } };
#define PRODUCT                                                                     \
    .name = "product", .arity = 2, .shape = same_shape, .forward = product_forward, \
    .uses = EG_USES_ALL
static const struct {
    eg_op op;
    const char *says;
} products[] = {
    { { PRODUCT, .rule = right_rule, .samples = product_samples }, NULL },
    { { PRODUCT, .rule = right_rule, .jvp = eg_jvp_symmetric }, NULL },
    { { PRODUCT, .rule = narrow_rule }, "returned f64 () for operand 2, which is f64 (2, 3)" },
    { { PRODUCT, .rule = right_rule, .jvp = narrow_jvp },
      "returned f64 () for the result, which is f64 (2, 3)" },
    { { PRODUCT, .rule = wrong_rule, .samples = product_samples },
      "first use: the gradient of product is wrong at its sample \"2x3, 2x3\": dx1[1,2]" },
};
LOOP_TEST(an_operation_is_checked_at_its_first_use, sizeof products / sizeof *products)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x[2] = { eg_uniform(cx, 1, 2, 2, 3), eg_uniform(cx, 1, 2, 2, 3) };
    applied = &products[_i].op;
    const uint64_t draws = eg_draws(cx);
    eg_tensor *y = apply_it(x);
#if EG_DEBUG_ALLOC
    ck_assert_int_eq(eg_ok(y), !products[_i].says);
#else
    ck_assert_int_eq(eg__first_use(y), !products[_i].says);
#endif
    ck_assert_uint_eq(eg_draws(cx), draws);
    if (products[_i].says) eg_assert_error(cx, products[_i].says);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(names_stay_with_their_tensor)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 3);
    char name[] = "W_q";
    ck_assert_ptr_null(eg_name_of(x));
    eg_mark m = eg_push(cx);
    ck_assert_ptr_eq(eg_name(x, name), x);
    eg_pop(cx, m);
    name[0] = 'V';
    ck_assert_str_eq(eg_name_of(x), "W_q");
    eg_name(x, NULL);
    ck_assert_ptr_null(eg_name_of(x));
    ck_assert_ptr_null(eg_name(NULL, "x"));
    eg_close(cx);
}

/* A custom operation whose rule needs a result of forward: the index of the largest element. */
typedef struct place {
    int64_t of_largest;
} place;
static bool largest_shape(eg_tensor *y)
{
    return eg_result(y, EG_F64, 0, NULL) && eg_node_save(y, sizeof(place));
}
static bool largest_forward(eg_tensor *y)
{
    const double *x = eg_f64(eg_operand(y, 0));
    double *to = eg_mut_f64(y);
    place *found = eg_node_saved(y);
    if (!x || !to) return false;
    for (int64_t k = 1; k < eg_size(eg_operand(y, 0)); k++)
        if (x[k] > x[found->of_largest]) found->of_largest = k;
    *to = x[found->of_largest];
    return true;
}
static eg_tensor *largest_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const place *found = eg_node_saved(y);
    eg_tensor *x = eg_operand(y, i), *one = eg_zeros_like(x);
    eg_mut_f64(one)[found->of_largest] = 1;
    return eg_mul(one, g);
}
static const eg_op largest = {
    .name = "largest",
    .arity = 1,
    .shape = largest_shape,
    .forward = largest_forward,
    .rule = largest_rule,
    .uses = EG_USES_NOTHING,
};
TEST(a_node_saves_what_forward_found)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *a = eg_from(cx, ((double[]){ 1, 5, 2 }), 3),
              *b = eg_from(cx, ((double[]){ 7, 5, 2 }), 3), *dx[2];
    ck_assert_ptr_null(eg_node_saved(a));
    ck_assert_ptr_null(eg_node_saved(NULL));
    eg_tensor *y = eg_apply(&largest, NULL, 0, 1, &a), *z = eg_apply(&largest, NULL, 0, 1, &b);
    ck_assert_ptr_ne(eg_node_saved(y), eg_node_saved(z));
    ck_assert_int_eq(eg_grad(eg_add(y, eg_scale(z, 3)), NULL, 2, (eg_tensor *[]){ a, b }, dx), 0);
    for (int k = 0; k < 3; k++) {
        ck_assert_double_eq(eg_f64(dx[0])[k], k == 1);
        ck_assert_double_eq(eg_f64(dx[1])[k], k == 0 ? 3 : 0);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- changes in place ------------------------------------------------------------------------- */
/* An operation whose forward() assigns the result of others to its own, and which has no
 * derivative. */
static bool parity_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool parity_forward(eg_tensor *y)
{
    eg_tensor *half = eg_scale(eg_operand(y, 0), .5);
    return eg_assign(y, eg_sub(half, eg_floor(half))) == 0;
}
static eg_tensor *parity_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y, (void)g, (void)i;
    return NULL;
}
static const eg_op parity = { .name = "parity",
                              .equation = "y = x/2 - floor(x/2)",
                              .gradient = "none",
                              .arity = 1,
                              .shape = parity_shape,
                              .forward = parity_forward,
                              .rule = parity_rule };
TEST(what_forward_assigns_is_no_change_in_place)
{
    eg_ctx *cx = eg_open(.seed = 1);
    eg_tensor *x = eg_normal(cx, 0, 1, 3), *w = eg_normal(cx, 0, 1, 3), *g[2];
    eg_tensor *y = eg_mul(eg_apply(&parity, NULL, 0, 1, &x), w);
    ck_assert_int_eq(eg_grad_or_null(y, w, 2, (eg_tensor *[]){ x, w }, g), 0);
    ck_assert_ptr_null(g[0]);
    ck_assert_ptr_nonnull(g[1]);
    ck_assert_int_eq(eg_grad(y, w, 2, (eg_tensor *[]){ x, w }, g), 0);
    ck_assert_double_eq(eg_item(eg_max(NULL, eg_abs(g[0]))), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}
TEST(a_change_in_place_has_no_gradient)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 1);
    eg_tensor *v = eg_normal(cx, 0, 1, 3), *w = eg_normal(cx, 0, 1, 3), *g, *u;
    /* a result that was assigned to a part of a leaf, as x[0] = v * v */
    eg_tensor *out = eg_zeros(cx, 2, 3);
    eg_assign(eg_select("[b] d", out, 0), eg_square(v));
    eg_tensor *y = eg_sum(NULL, eg_mul(out, w));
    ck_assert_int_eq(eg_grad(y, NULL, 1, &v, &g), -1);
    eg_assert_error(cx,
                    "grad: y depends on xs[0] only by eg_assign, which wrote the result of square "
                    "to operand 1 of mul");
    ck_assert_int_eq(eg_grad(y, NULL, 1, &w, &g), 0); /* the others are right */
    /* with other assigned results, which are looked at first, and a long history */
    eg_tensor *other = eg_zeros(cx, 3), *h = eg_add(y, eg_sum(NULL, w));
    eg_assign(other, eg_exp(w));
    for (int k = 0; k < 50; k++) h = eg_add(eg_sum(NULL, eg_mul(other, w)), h);
    ck_assert_int_eq(eg_grad(h, NULL, 2, (eg_tensor *[]){ w, v }, (eg_tensor *[]){ NULL, NULL }),
                     -1);
    eg_assert_error(cx, "grad: y depends on xs[1] only by eg_assign");
    /* what was detached, or written under eg_nograd, is meant to have none */
    eg_assign(eg_select("[b] d", out, 0), eg_detach(eg_square(v)));
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_mul(out, w)), NULL, 1, &v, &g), 0);
    ck_assert_double_eq(eg_item(eg_max(NULL, eg_abs(g))), 0);
    eg_assign(out, eg_mul(out, eg_expand(v, 2, 3)));
    eg_nograd(cx, true);
    eg_assign(out, eg_mul(out, eg_expand(v, 2, 3)));
    eg_nograd(cx, false);
    /* a result that was changed before it was read, also through a view */
    for (int view = 0; view < 2; view++) {
        eg_tensor *x = eg_square(v), *part = eg_slice("[d]", x, 0, 2, 1);
        eg_fill(part, 0);
        y = eg_sum(NULL, eg_exp(view ? part : x));
        ck_assert_int_eq(eg_grad(y, NULL, 1, &v, &g), -1);
        eg_assert_error(cx, "was changed in place and then read by");
        ck_assert(!eg_ok(eg_jvp(y, 1, &v, &w)));
        eg_assert_error(cx, "jvp: the result of square");
        /* as a leaf it has a gradient */
        ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &g), 0);
    }
    /* a step by hand on a parameter that an operation made */
    for (int step = 0; step < 3; step++) {
        if (!step) u = eg_scale(v, .1);
        ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(u)), NULL, 1, &u, &g), 0);
        ck_assert_double_eq(eg_get(g, 0), 2 * eg_get(u, 0));
        eg_assign(u, eg_sub(u, eg_scale(g, .1)));
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
