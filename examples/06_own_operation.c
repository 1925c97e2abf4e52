/* 06: a custom operation with its rule. It is a struct eg_op: shape, forward, and the rule, which
 * consists of public operations, so that it can be differentiated again. The operation is mish, y =
 * x tanh(softplus(x)) (Misra 2019). */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>

static bool mish_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool mish_forward(eg_tensor *y)
{
    eg_tensor *x = eg_cast(eg_operand(y, 0), EG_F64), *out = eg_zeros_like(x);
    const double *in = eg_f64(x);
    double *to = eg_mut_f64(out);
    if (!in || !to) return false; /* the error is recorded already */
    for (int64_t n = 0; n < eg_size(x); n++) to[n] = in[n] * tanh(log1p(exp(in[n])));
    return eg_assign(y, eg_cast(out, eg_type(y))) == 0;
}
/* with t = tanh(softplus(x)): dx = g (t + x σ(x) (1 − t²)) */
static eg_tensor *mish_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *t = eg_tanh(eg_softplus(x));
    eg_tensor *slope = eg_mul(eg_mul(x, eg_sigmoid(x)), eg_shift(eg_neg(eg_square(t)), 1));
    return eg_mul(g, eg_add(t, slope));
}
static eg_tensor *mish(eg_tensor *x);
static eg_tensor *mish_call(eg_tensor *const *x) { return mish(x[0]); }
/* calls on which a build with --enable-debug checks the rule */
static const eg_sample mish_samples[] = { { mish_call, "3x4", -2, 2 }, { 0 } };
static const eg_op mish_row = {
    .name = "mish",
    .equation = "y = x tanh(softplus(x))",
    .gradient = "dx = g (t + x sigmoid(x) (1 - t^2))",
    .arity = 1,
    .shape = mish_shape,
    .forward = mish_forward,
    .rule = mish_rule,
    .uses = EG_USES_OPERANDS,
    .jvp = eg_jvp_symmetric,
    .samples = mish_samples, /* optional, as .jvp: a pointwise operation has its rule as jvp */
};
static eg_tensor *mish(eg_tensor *x) { return eg_apply(&mish_row, NULL, 0, 1, &x); }

static eg_tensor *f(void *user, eg_tensor *const *x)
{
    (void)user;
    return mish(x[0]);
}

int main(void)
{
    eg_ctx *cx = eg_open(.seed = 6);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 4);
    printf("mish(x) =\n");
    eg_print(stdout, mish(x));
    const eg_report *r = eg_gradcheck(f, NULL, 1, &x, .names = "x", .axes = "ij", .order = 2);
    eg_report_print(stdout, r);
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    bool good = r && r->passed;
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
