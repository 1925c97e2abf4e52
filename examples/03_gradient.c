/* 03: a gradient and its check. eg_grad returns recorded tensors, so a gradient can be
 * differentiated again. eg_gradcheck compares it with differences, entry by entry, and reports
 * whether anything was tested. */
#include <eingrad.h>
#include <stdlib.h>

/* ⟨tanh(A B), 1⟩ */
static eg_tensor *f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_sum(NULL, eg_tanh(eg_einsum("ij,jk->ik", x[0], x[1])));
}

/* as f, with a mistake: the path through B is cut */
static eg_tensor *cut(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_sum(NULL, eg_tanh(eg_einsum("ij,jk->ik", x[0], eg_detach(x[1]))));
}

int main(void)
{
    eg_ctx *cx = eg_open(.seed = 1);
    eg_tensor *xs[2] = { eg_normal(cx, 0, 1, 2, 3), eg_normal(cx, 0, 1, 3, 2) }, *dx[2], *ddx;
    eg_tensor *y = f(NULL, xs);
    eg_grad(y, NULL, 2, xs, dx); /* dx[0] = dy/dA, dx[1] = dy/dB */
    printf("dy/dA =\n");
    eg_print(stdout, dx[0]);
    /* the gradient of |dy/dA|² with respect to B */
    eg_grad(eg_sum(NULL, eg_square(dx[0])), NULL, 1, &xs[1], &ddx);
    printf("d|dy/dA|^2/dB =\n");
    eg_print(stdout, ddx);

    const eg_report *right =
        eg_gradcheck(f, NULL, 2, xs, .names = "A, B", .axes = "ij, jk", .order = 2);
    eg_report_print(stdout, right);
    const eg_report *wrong = eg_gradcheck(cut, NULL, 2, xs, .names = "A, B", .axes = "ij, jk");
    eg_report_print(stdout, wrong);
    bool good = right && right->passed && wrong && !wrong->passed;
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
