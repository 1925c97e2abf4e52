/* test_gradcheck_scales.c: right functions at points of many scales, with zeros, ties, equal inputs
 * and a range of 1e8 within one input: none may be called WRONG. */
#include <eingrad.h>
#include <math.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

#define A (x[0])
#define B (x[1])
/* F(name, inputs, f) */
/* clang-format off */
#define FUNCTIONS \
    F(wheresafe, 1, eg_where(eg_gt(A, eg_zeros_like(A)), eg_log(eg_where(eg_gt(A, \
      eg_zeros_like(A)), A, eg_ones_like(A))), eg_zeros_like(A))) \
    F(clip, 1, eg_clip(A, -1, 1)) \
    F(powab, 2, eg_pow(eg_shift(eg_abs(A), 0.1), B)) \
    F(pow0, 1, eg_powc(A, 0)) \
    F(pow1, 1, eg_powc(A, 1)) \
    F(pow3, 1, eg_powc(A, 3)) \
    F(trace, 2, eg_einsum("ii->", eg_einsum("ij,kj->ik", A, B))) \
    F(diag, 2, eg_einsum("ii->i", eg_einsum("ij,kj->ik", A, B))) \
    F(bilinear, 2, eg_einsum("ij,ij,kj->ik", A, A, B)) \
    F(causal, 2, eg_attention("id,jd,je->ie", A, B, B, .where = "j <= i")) \
    F(none, 2, eg_attention("id,jd,je->ie", A, B, B, .where = "j < i")) \
    F(lse, 1, eg_logsumexp("i [j]", A)) \
    F(ent, 1, eg_neg(eg_sum("i [j]", eg_mul(eg_softmax("i [j]", A), eg_log_softmax("i [j]", \
      A))))) \
    F(entn, 1, eg_neg(eg_sum("i [j]", eg_mul(eg_softmax("i [j]", A), \
      eg_log(eg_softmax("i [j]", A)))))) \
    F(layern, 1, eg_layernorm("i [j]", A)) \
    F(layern2, 1, eg_layernorm("i [j]", eg_layernorm("i [j]", A))) \
    F(rms, 1, eg_rmsnorm("i [j]", A)) \
    F(nrm, 1, eg_pnorm("i [j]", A, 2)) \
    F(nrm1, 1, eg_pnorm("i [j]", A, 1)) \
    F(nrm3, 1, eg_pnorm("i [j]", A, 3)) \
    F(vari, 1, eg_var("i [j]", A)) \
    F(stdd, 1, eg_sqrt(eg_var("i [j]", A))) \
    F(cosine, 2, eg_div(eg_sum("i [j]", eg_mul(A, B)), eg_mul(eg_pnorm("i [j]", A, 2), \
      eg_pnorm("i [j]", B, 2)))) \
    F(acosine, 2, eg_acos(eg_clip(eg_div(eg_sum("i [j]", eg_mul(A, B)), \
      eg_mul(eg_pnorm("i [j]", A, 2), eg_pnorm("i [j]", B, 2))), -1, 1))) \
    F(sorted, 1, eg_sort("i [j]", A)) \
    F(cump, 1, eg_cumprod("i [j]", A)) \
    F(cums, 1, eg_cumsum("i [j]", A)) \
    F(prodd, 1, eg_prod("i [j]", A)) \
    F(maxx, 1, eg_max("i [j]", A)) \
    F(minn, 1, eg_min("i [j]", A)) \
    F(gelut, 1, eg_gelu_tanh(A)) \
    F(siluu, 1, eg_silu(A)) \
    F(at2, 2, eg_atan2(A, B)) \
    F(sm1, 1, eg_softmax("[i] j", A)) \
    F(tanhb, 1, eg_tanh(eg_scale(A, 50))) \
    F(sigp, 1, eg_log(eg_sigmoid(A))) \
    F(sigq, 1, eg_log(eg_shift(eg_neg(eg_sigmoid(A)), 1))) \
    F(ratio, 2, eg_div(eg_exp(A), eg_exp(B))) \
    F(logdiff, 2, eg_sub(eg_log(eg_square(A)), eg_log(eg_square(B)))) \
    F(wild, 1, eg_sin(eg_exp(eg_scale(eg_tanh(A), 3)))) \
    F(wild2, 1, eg_sin(eg_recip(A))) \
    F(bigsum, 1, eg_sum(NULL, eg_shift(eg_square(A), 1e10))) \
    F(mixs, 2, eg_add(eg_scale(A, 1e-8), eg_scale(B, 1e8))) \
    F(mixp, 2, eg_mul(eg_scale(A, 1e-8), eg_scale(B, 1e8))) \
    F(drop, 1, eg_dropout(A, .5))
/* clang-format on */
#define F(NAME, N, ...)                                  \
    static eg_tensor *NAME(void *u, eg_tensor *const *x) \
    {                                                    \
        (void)u;                                         \
        return __VA_ARGS__;                              \
    }
FUNCTIONS
#undef F

static eg_tensor *newton(void *u, eg_tensor *const *x) /* √(x² + 2) */
{
    (void)u;
    eg_tensor *y = eg_shift(eg_abs(A), 1);
    for (int k = 0; k < 8; k++) y = eg_scale(eg_add(y, eg_div(eg_shift(eg_square(A), 2), y)), 0.5);
    return y;
}
static eg_tensor *logistic(void *u, eg_tensor *const *x) /* chaotic */
{
    (void)u;
    eg_tensor *y = eg_sigmoid(A);
    for (int k = 0; k < 25; k++) y = eg_scale(eg_mul(y, eg_shift(eg_neg(y), 1)), 3.9);
    return y;
}
static eg_tensor *recurrent(void *u, eg_tensor *const *x)
{
    (void)u;
    eg_tensor *y = A;
    for (int k = 0; k < 20; k++) y = eg_tanh(eg_einsum("ij,kj->ik", y, B));
    return y;
}
static eg_tensor *penalty(void *u, eg_tensor *const *x)
{
    (void)u;
    eg_tensor *g, *y = eg_sum(NULL, eg_square(eg_softmax("i [j]", eg_mul(A, B))));
    return eg_grad(y, NULL, 1, x, &g) ? NULL : eg_square(g);
}
static eg_tensor *inside(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_tanh(eg_mul(A, B));
}
static eg_tensor *checkpointed(void *u, eg_tensor *const *x)
{
    return eg_checkpoint(inside, u, 2, x);
}
static const struct {
    const char *name;
    eg_function *f;
    int count;
} functions[] = {
#define F(NAME, N, ...) { #NAME, NAME, N },
    FUNCTIONS{ "newton", newton, 1 },  { "logistic", logistic, 1 },
    { "recurrent", recurrent, 2 },     { "penalty", penalty, 2 },
    { "checkpoint", checkpointed, 2 },
};
enum {
    FUNCTIONS_N = (int)(sizeof functions / sizeof *functions),
    KINDS = 5,
    STEP = SLOWER > 1 ? 7 : 1
};

/* Kinds of points: random; with zeros; both inputs equal; nearly equal entries and integers; a
 * range of 1e8. */
static void shaped(int kind, double *p, double *q)
{
    for (int k = 0; k < 9; k++) {
        if (kind == 1 && k % 2 == 0) p[k] = 0;
        if (kind == 2) q[k] = p[k];
        if (kind == 3) p[k] = p[0] * (1 + 1e-9 * k), q[k] = round(q[k]);
        if (kind == 4) p[k] *= pow(10, k - 4);
    }
}
GROUP("scales", .timeout = 60)
LOOP_TEST(no_scale_makes_a_right_gradient_wrong, FUNCTIONS_N)
{
    static const double scale[] = { 1e-8, 1e-6, 1e-3, 0.1, 1, 3, 10, 100, 1e4, 1e6 };
    int asked = 0, passed = 0;
    for (int n = 0; n < 10 * KINDS; n += STEP) {
        const double sd = scale[n / KINDS];
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)(50 * _i + n));
        eg_tensor *x[2] = { eg_normal(cx, 0, sd, 3, 3), eg_normal(cx, 0, sd, 3, 3) };
        shaped(n % KINDS, eg_mut_f64(x[0]), eg_mut_f64(x[1]));
        const eg_report *r = eg_gradcheck(functions[_i].f, NULL, functions[_i].count, x,
                                          .full = n % 2, .order = sd == 1 ? 2 : 1);
        asked += r != NULL;
        passed += r && r->passed;
        for (const eg_report *t = r; t; t = t->higher) {
            bool wrong = false;
            for (int k = 0; k < functions[_i].count; k++) wrong |= t->input[k] == EG_WRONG;
            for (int k = 0; k < t->notes; k++) wrong |= t->note[k].verdict == EG_WRONG;
            ck_assert_msg(!wrong, "%s, sd %g, kind %d: %s", functions[_i].name, sd, n % KINDS,
                          t->text);
        }
        eg_close(cx);
    }
    ck_assert_msg(STEP * asked >= 10 && 2 * passed >= asked, "%s: %d of %d pass",
                  functions[_i].name, passed, asked);
}

/* -- y = x² whose rule is `factor` times too large where any |x| exceeds 1e6 ------------------- */
static bool square_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool square_forward(eg_tensor *y)
{
    return !eg_assign(y, eg_square(eg_detach(eg_operand(y, 0))));
}
static eg_tensor *square_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, 0), *d = eg_scale(eg_mul(g, x), 2);
    (void)i;
    const bool large = eg_item(eg_max(NULL, eg_abs(eg_detach(x)))) > 1e6;
    return large ? eg_scale(d, *(const double *)eg_attr(y)) : d;
}
static const eg_op square_op = { .name = "square_of_ours",
                                 .equation = "y = x^2",
                                 .gradient = "dx = 2 g x",
                                 .arity = 1,
                                 .shape = square_shape,
                                 .forward = square_forward,
                                 .rule = square_rule,
                                 .uses = EG_USES_OPERANDS };
static eg_tensor *square_of_ours(void *factor, eg_tensor *const *x)
{
    return eg_apply(&square_op, factor, sizeof(double), 1, x);
}
TEST(a_rule_that_is_wrong_at_large_values_is_found)
{
    static double factor[] = { 1, -1, .5, 1.5, 10 };
    for (int k = 0; k < 5; k++)
        for (uint64_t seed = 0; seed < 6; seed++) {
            eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = seed);
            eg_tensor *x = eg_normal(cx, 0, 1, 3, 4);
            const eg_report *r = eg_gradcheck(square_of_ours, &factor[k], 1, &x);
            ck_assert_msg(r && r->passed == (k == 0), "factor %g, seed %d", factor[k], (int)seed);
            eg_close(cx);
        }
}

/* -- operations whose rules are right and whose forward functions round: to a constant, with
 * cancelled terms, at kinks, to subnormal numbers -- */
static double sigmoid(double a) { return 1 / (1 + exp(-a)); }
static double softplus(double a) { return log(1 + exp(a)); }
static double mish(double a) { return a * tanh(log(1 + exp(a))); }
static double mish_slope(double a)
{
    const double t = tanh(fmax(a, 0) + log1p(exp(-fabs(a))));
    return t + a * (1 - t * t) * sigmoid(a);
}
static double focal(double a) { return -pow(1 - sigmoid(a), 2) * log(sigmoid(a)); }
static double focal_slope(double a)
{
    const double p = sigmoid(a), q = sigmoid(-a), log_p = -fmax(-a, 0) - log1p(exp(-fabs(a)));
    return 2 * q * q * p * log_p - q * q * q;
}
static double bell(double a) { return exp(-a * a / 2); }
static double bell_slope(double a) { return -a * exp(-a * a / 2); }
static double erfc_slope(double a) { return -M_2_SQRTPI * exp(-a * a); }
static double one_less_cosine(double a) { return 1 - cos(a); }
static double snake(double a) { return a + pow(sin(a), 2); }
static double snake_slope(double a) { return 1 + sin(2 * a); }
static double wavy(double a) { return a + sin(4 * a) / 4; }
static double wavy_slope(double a) { return 1 + cos(4 * a); }
static double softsign(double a) { return a / (1 + fabs(a)); }
static double softsign_slope(double a) { return pow(1 + fabs(a), -2); }
static double hinge_squared(double a) { return pow(fmax(0, 1 - a), 2); }
static double hinge_slope(double a) { return -2 * fmax(0, 1 - a); }
static double bent(double a) { return log((fabs(a) + .01) / (1.01 + fabs(a))); }
static double bent_slope(double a)
{
    return copysign(1 / (fabs(a) + .01) - 1 / (1.01 + fabs(a)), a);
}
static double log_cosh(double a) { return log(cosh(a)); }
static double cubed(double a) { return pow(fmax(a, 0), 3); }
static double cubed_slope(double a) { return 3 * pow(fmax(a, 0), 2); }
static double entropy(double a)
{
    const double p = sigmoid(a);
    return -p * log(p + 1e-30) - (1 - p) * log(1 - p + 1e-30);
}
static double entropy_slope(double a) { return -a * sigmoid(a) * sigmoid(-a); }
static const struct {
    const char *name;
    double (*f)(double), (*df)(double);
} rounds[] = {
    { "softplus", softplus, sigmoid },
    { "mish", mish, mish_slope },
    { "focal", focal, focal_slope },
    { "bell", bell, bell_slope },
    { "erfc", erfc, erfc_slope },
    { "1 - cos", one_less_cosine, sin },
    { "snake", snake, snake_slope },
    { "wavy", wavy, wavy_slope },
    { "softsign", softsign, softsign_slope },
    { "squared hinge", hinge_squared, hinge_slope },
    { "bent", bent, bent_slope },
    { "log cosh", log_cosh, tanh },
    { "cube of relu", cubed, cubed_slope },
    { "entropy", entropy, entropy_slope },
};
enum { ROUNDS = (int)(sizeof rounds / sizeof *rounds) };
static int rounding_now;
static double factor_now; /* of the rule; not 1: it is wrong */
static bool rounds_forward(eg_tensor *y)
{
    return map_values(y, eg_operand(y, 0), rounds[rounding_now].f);
}
static eg_tensor *rounds_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *d = eg_detach(eg_contiguous(eg_ones_like(x)));
    return map_values(d, x, rounds[rounding_now].df) ? eg_scale(eg_mul(g, d), factor_now) : NULL;
}
static const eg_op rounds_op = { .name = "rounds",
                                 .arity = 1,
                                 .shape = like_first,
                                 .forward = rounds_forward,
                                 .rule = rounds_rule };
static eg_tensor *rounds_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&rounds_op, NULL, 0, 1, x);
}
/* softmax and x / (|x| + 1e-8), row by row, with the rules of textbooks */
static bool textbook_forward(eg_tensor *y)
{
    eg_tensor *x = eg_detach(eg_operand(y, 0));
    if (rounding_now == ROUNDS) return eg_assign(y, eg_softmax("... [d]", x)) == 0;
    eg_tensor *n = eg_sqrt(eg_sum("... [d] -> ... 1", eg_square(x)));
    return eg_assign(y, eg_div(x, eg_shift(n, 1e-8))) == 0;
}
static eg_tensor *textbook_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i);
    if (rounding_now == ROUNDS)
        return eg_scale(eg_mul(y, eg_sub(g, eg_sum("... [d] -> ... 1", eg_mul(g, y)))), factor_now);
    eg_tensor *n = eg_sqrt(eg_sum("... [d] -> ... 1", eg_square(x))), *m = eg_shift(n, 1e-8),
              *p = eg_sum("... [d] -> ... 1", eg_mul(g, x));
    return eg_scale(eg_sub(eg_div(g, m), eg_div(eg_mul(x, p), eg_mul(n, eg_square(m)))),
                    factor_now);
}
static const eg_op textbook_op = { .name = "textbook",
                                   .arity = 1,
                                   .shape = like_first,
                                   .forward = textbook_forward,
                                   .rule = textbook_rule };
static eg_tensor *textbook_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&textbook_op, NULL, 0, 1, x);
}
GROUP("rules of forward functions that round", .timeout = 60)
LOOP_TEST(a_forward_that_rounds_makes_no_right_rule_wrong, ROUNDS + 2)
{
    static const struct {
        double mean, sd;
    } at[] = { { 0, .01 }, { 0, 1 }, { 0, 10 }, { 0, 30 }, { 0, 100 }, { -5, 1 }, { -30, 3 } };
    static const int64_t dim[][2] = { { 1, 1 }, { 1, 3 }, { 3, 4 }, { 8, 8 } };
    rounding_now = _i;
    for (uint64_t k = 0; k < 7 * 4 * 4; k += SLOWER) { /* k = 15 is among them */
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = k);
        eg_tensor *x = eg_normal_n(cx, EG_F64, at[k % 7].mean, at[k % 7].sd, 2, dim[k / 7 % 4]);
        factor_now = 1;
        const eg_report *r = eg_gradcheck(_i < ROUNDS ? rounds_f : textbook_f, NULL, 1, &x);
        ck_assert_msg(r != NULL, "%s", eg_error(cx));
        for (int n = 0; n < r->notes; n++)
            ck_assert_msg(r->note[n].verdict != EG_WRONG, "%d, point %d: %s", _i, (int)k, r->text);
        if (k % 7 == 1 && k / 7 % 4 == 2) { /* the same rule, wrong by 0.001 */
            factor_now = 1.001;
            r = eg_gradcheck(_i < ROUNDS ? rounds_f : textbook_f, NULL, 1, &x);
            ck_assert_msg(r && !r->passed && strstr(r->text, "disagrees with its own forward"),
                          "%d, point %d: %s", _i, (int)k, r ? r->text : eg_error(cx));
        }
        eg_close(cx);
    }
}
