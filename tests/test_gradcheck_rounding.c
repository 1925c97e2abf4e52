/* test_gradcheck_rounding.c: right functions whose parts cancel, at points from 1e-12 to 1: the
 * check must call none of them WRONG, and must detect errors that exceed their rounding. */
#include <eingrad.h>
#include <math.h>
#include <string.h>
#include "tests.h"

#define X x[0]
#define S eg_shift
#define M eg_mul
#define D eg_div
#define N eg_scale
#define Q eg_square
/* clang-format off */
#define FUNCTIONS \
    F(cosc, D(S(N(eg_cos(X), -1), 1), Q(X)))                                                       \
    F(expc1, D(S(eg_exp(X), -1), X))                                                               \
    F(expc2, D(S(eg_sub(eg_exp(X), X), -1), Q(X)))                                                 \
    F(expc3, D(eg_sub(S(eg_sub(eg_exp(X), X), -1), N(Q(X), .5)), M(X, Q(X))))                      \
    F(sinc3, D(eg_sub(X, eg_sin(X)), M(X, Q(X))))                                                  \
    F(tanc3, D(eg_sub(eg_tan(X), X), M(X, Q(X))))                                                  \
    F(tanhc3, D(eg_sub(X, eg_tanh(X)), M(X, Q(X))))                                                \
    F(atanc3, D(eg_sub(X, eg_atan(X)), M(X, Q(X))))                                                \
    F(asinc3, D(eg_sub(eg_asin(X), X), M(X, Q(X))))                                                \
    F(logc1, D(eg_log(S(X, 1)), X))                                                                \
    F(logc2, D(eg_sub(X, eg_log(S(X, 1))), Q(X)))                                                  \
    F(log1pc2, D(eg_sub(X, eg_log1p(X)), Q(X)))                                                    \
    F(sqrtc1, D(S(eg_sqrt(S(X, 1)), -1), X))                                                       \
    F(sqrtc2, D(S(eg_sub(eg_sqrt(S(X, 1)), N(X, .5)), -1), Q(X)))                                  \
    F(recc, D(S(eg_recip(S(X, 1)), -1), X))                                                        \
    F(recc2, D(S(eg_add(eg_recip(S(X, 1)), X), -1), Q(X)))                                         \
    F(coshc, D(S(eg_cosh(X), -1), Q(X)))                                                           \
    F(sinhc, D(eg_sub(eg_sinh(X), X), M(X, Q(X))))                                                 \
    F(erfc1, D(eg_sub(N(X, 1.1283791670955126), eg_erf(X)), M(X, Q(X))))                           \
    F(sigc, D(S(eg_sigmoid(X), -.5), X))                                                           \
    F(spc, D(S(eg_softplus(X), -0.69314718055994531), X))                                          \
    F(powc, D(S(eg_powc(S(X, 1), 1. / 3), -1), X))                                                 \
    F(root, eg_sub(eg_sqrt(S(eg_recip(Q(X)), 1)), eg_recip(X)))                                    \
    F(rootd, eg_sub(eg_sqrt(S(Q(eg_recip(X)), 1)), eg_sqrt(Q(eg_recip(X)))))                       \
    F(c1cos4, D(S(eg_add(N(Q(X), .5), S(eg_cos(X), 0)), -1), Q(Q(X))))                             \
    F(csec, D(S(eg_recip(eg_cos(X)), -1), Q(X)))                                                   \
    F(gelud, D(eg_sub(eg_gelu(X), N(X, .5)), Q(X)))                                                \
    F(tanhd, D(eg_sub(eg_tanh(S(X, 1)), eg_tanh(S(N(X, -1), 1))), X))                              \
    F(fd1, D(eg_sub(eg_exp(S(X, 1)), eg_exp(S(N(X, -1), 1))), X))                                  \
    F(polyx, D(eg_sub(eg_powc(S(X, 1), 5), S(N(X, 5), 1)), Q(X)))                                  \
    F(shift8, N(eg_sub(S(Q(X), 1e8), S(N(Q(X), .5), 1e8)), 1))                                     \
    F(smd, N(eg_sub(eg_softmax("[j]", S(X, 50)), eg_softmax("[j]", N(X, .5))), 1))                 \
    F(smdq, D(eg_sub(eg_softmax("[j]", X), eg_softmax("[j]", N(X, -1))), X))                       \
    F(varn, eg_sub(eg_mean("[j]", Q(S(X, 1e4))), Q(eg_mean("[j]", S(X, 1e4)))))                    \
    F(stdn, eg_sqrt(S(eg_sub(eg_mean("[j]", Q(S(X, 100))), Q(eg_mean("[j]", S(X, 100)))), 1e-9)))  \
    F(cosim, eg_acos(eg_cos(X)))                                                                   \
    F(logexp, eg_log(S(S(eg_exp(N(X, 1)), 1), -1)))                                                \
    F(log1mexp, eg_log(S(N(eg_exp(N(X, -1)), -1), 1)))                                             \
    F(tanht, D(eg_log(D(S(X, 1), S(N(X, -1), 1))), X))                                             \
    F(heron, eg_sqrt(M(S(X, 2), M(X, S(N(X, -1), 2)))))                                            \
    F(expsum, D(eg_sub(S(eg_exp(X), 1), S(eg_exp(N(X, -1)), 1)), X))                      \
    F(huge1, eg_sin(S(X, 1e6)))                                                                    \
    F(huge2, eg_cos(N(S(X, 1e9), 1)))                                                              \
    F(x20, D(S(eg_powc(S(X, 1), 20), -1), X))                                                      \
    F(rsq, D(S(eg_rsqrt(S(Q(X), 1)), -1), Q(X)))                                                   \
    F(csq, Q(D(S(N(eg_cos(X), -1), 1), Q(X))))                                                     \
    F(cclog, eg_log(D(S(N(eg_cos(X), -1), 1), Q(X))))
/* clang-format on */
#define F(NAME, ...)                                     \
    static eg_tensor *NAME(void *u, eg_tensor *const *x) \
    {                                                    \
        (void)u;                                         \
        return __VA_ARGS__;                              \
    }
FUNCTIONS
#undef F
#define F(NAME, ...) { #NAME, NAME },
static const struct {
    const char *name;
    eg_function *f;
} cancelling[] = { FUNCTIONS };
#undef F
enum { CANCELLING = (int)(sizeof cancelling / sizeof *cancelling), MODES = 3 };
static const double points[] = { 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 3e-4,
                                 1e-3,  3e-3,  1e-2, 3e-2, 0.1,  0.3,  1 };
enum { POINTS = (int)(sizeof points / sizeof *points), STEP = SLOWER > 1 ? 4 : 1 };

/* Mode 0: ⟨f, W⟩ at three entries of one scale; 1: the Jacobian; 2: entries of three scales. */
static eg_tensor *at(eg_ctx *cx, int mode, double t)
{
    const double v[] = { t, mode == 2 ? 1e3 * t : 1.7 * t, mode == 2 ? 0.5 : 0.6 * t };
    return eg_from_n(cx, EG_F64, v, 1, (int64_t[]){ 3 });
}
static bool accused(const eg_report *r)
{
    bool wrong = r->input[0] == EG_WRONG;
    for (int k = 0; k < r->notes; k++) wrong |= r->note[k].verdict == EG_WRONG;
    return wrong;
}

/* y + s (x − x), whose gradient is wrong by s and whose value is right */
typedef struct plant {
    eg_function *f;
    double s;
} plant;
static eg_tensor *planted(void *user, eg_tensor *const *x)
{
    const plant *p = user;
    return eg_add(p->f(NULL, x), eg_scale(eg_sub(X, eg_detach(X)), p->s));
}

GROUP("cancellation", .timeout = 60)
LOOP_TEST(cancelling_parts_are_not_called_wrong, CANCELLING)
{
    int tested = 0;
    for (int k = 0; k < MODES * POINTS; k += STEP) {
        const int mode = k / POINTS;
        const double t = points[k % POINTS];
        eg_ctx *cx = eg_open();
        eg_tensor *x = at(cx, mode, t);
        const eg_report *r = eg_gradcheck(cancelling[_i].f, NULL, 1, &x, .full = mode == 1);
        /* some have no value or no slope there: √(x − 1) */
        ck_assert_msg(r || strstr(eg_error(cx), "is infinite or NaN"), "%s", eg_error(cx));
        ck_assert_msg(!r || !accused(r), "%s at %g, mode %d: %s", cancelling[_i].name, t, mode,
                      r->text);
        tested += r && r->passed;
        eg_close(cx);
    }
    ck_assert_msg(STEP * tested >= POINTS / 2, "%d of %d pass", tested, MODES * POINTS / STEP);
}
/* If every entry of the right gradient was tested, an error as large as its largest entry is
 * detected; if f has thirteen digits, also an error of a millionth of that. */
LOOP_TEST(what_exceeds_the_rounding_is_found, CANCELLING)
{
    int found = 0;
    for (int k = 0; k < POINTS; k += STEP) {
        eg_ctx *cx = eg_open();
        eg_tensor *x = at(cx, 0, points[k]);
        const eg_report *r = eg_gradcheck(cancelling[_i].f, NULL, 1, &x);
        if (r && r->passed && r->covered == 3) {
            plant p = { cancelling[_i].f, 0 };
            for (int j = 0; j < r->shown; j++) p.s = fmax(p.s, fabs(r->entry[j].analytic));
            if (points[k] >= 0.3 && r->noise < 1e-13) p.s *= 1e-6;
            r = eg_gradcheck(planted, &p, 1, &x);
            ck_assert_msg(r && !r->passed, "%s at %g passed, off by %g: %s", cancelling[_i].name,
                          points[k], p.s, r ? r->text : eg_error(cx));
            found++;
        }
        eg_close(cx);
    }
    ck_assert_int_ge(found, 1);
}
