/* A test suite for gradients, as a template: it checks functions of tensors, and needs eingrad and
 * the Check library.
 *
 *     cc test_gradients.c $(pkg-config --cflags --libs eingrad check) && ./a.out
 *
 * With the argument `wrong` it also runs a test that fails on purpose; docs/gradcheck.md shows what
 * it prints. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>

static eg_ctx *cx;
/* created as f32; the check uses f64 */
static void open_context(void) { cx = eg_open(.seed = 1); }
static void close_context(void)
{
    eg_close(cx);
    cx = NULL;
}

/* -- what is tested: additive attention (Bahdanau et al. 2015), one head ---------------------- */
typedef struct scorer {
    eg_tensor *W_q, *W_k, *u;
} scorer;
/* x: queries (i d), keys (j d), values (j e) */
static eg_tensor *attend(void *user, eg_tensor *const *x)
{
    const scorer *p = user;
    eg_tensor *q = eg_einsum("id,dm->im", x[0], p->W_q), *k = eg_einsum("jd,dm->jm", x[1], p->W_k);
    eg_tensor *s = eg_einsum("ijm,m->ij", eg_tanh(eg_on("i m, j m -> i j m", eg_add, q, k)), p->u);
    return eg_einsum("ij,je->ie", eg_softmax("i [j]", s, .where = "j <= i + 1"), x[2]);
}

START_TEST(inputs_and_parameters)
{
    scorer p = { eg_normal(cx, 0, 1, 4, 5), eg_normal(cx, 0, 1, 4, 5), eg_normal(cx, 0, 1, 5) };
    eg_tensor *q = eg_normal(cx, 0, 1, 3, 4), *k = eg_normal(cx, 0, 1, 6, 4),
              *v = eg_normal(cx, 0, 1, 6, 2);
    /* parameters are checked as inputs, and f reads them through `user` */
    eg_assert_grad(attend, &p, q, k, v, p.W_q, p.W_k, p.u);
}
END_TEST

START_TEST(second_order_and_mutation)
{
    scorer p = { eg_normal(cx, 0, 1, 4, 5), eg_normal(cx, 0, 1, 4, 5), eg_normal(cx, 0, 1, 5) };
    eg_tensor *x[3] = { eg_normal(cx, 0, 1, 3, 4), eg_normal(cx, 0, 1, 6, 4),
                        eg_normal(cx, 0, 1, 6, 2) };
    eg_assert_gradcheck(attend, &p, 3, x, .names = "q, k, v", .axes = "id, jd, je", .order = 2,
                        .directions = 2, .mutate = true);
}
END_TEST

/* -- a custom operation with a mistake in its rule: y = x tanh x, whose derivative is tanh x + x (1
 * − tanh² x) -- */
static bool shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool forward(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_assign(y, eg_mul(x, eg_tanh(x))) == 0;
}
/* the term x (1 − tanh² x) is missing */
static eg_tensor *rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_mul(g, eg_tanh(eg_operand(y, i)));
}
static const eg_op gate = {
    .name = "gate", .arity = 1, .shape = shape, .forward = forward, .rule = rule
};

static eg_tensor *gated(void *user, eg_tensor *const *x)
{
    eg_tensor *h = eg_einsum("ij,jk->ik", x[0], x[1]), *y = eg_apply(&gate, NULL, 0, 1, &h);
    (void)user;
    return eg_sum("i [k]", y);
}
START_TEST(wrong_on_purpose)
{
    eg_tensor *A = eg_from(cx, ((double[]){ .1, -.2, .3, .4, .5, -.6 }), 2, 3);
    eg_tensor *B = eg_from(cx, ((double[]){ .6, .5, -.4, .3, .2, .1 }), 3, 2);
    eg_assert_gradcheck(gated, NULL, 2, ((eg_tensor *[]){ A, B }), .names = "A, B",
                        .axes = "ij, jk");
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("gradients");
    TCase *t = tcase_create("gradients");
    tcase_add_checked_fixture(t, open_context, close_context);
    tcase_add_test(t, inputs_and_parameters);
    tcase_add_test(t, second_order_and_mutation);
    if (argc > 1 && strcmp(argv[1], "wrong") == 0) tcase_add_test(t, wrong_on_purpose);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
