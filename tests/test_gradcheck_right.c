/* test_gradcheck_right.c: whether the gradient check accepts right gradients: 26 functions at
 * random points of five scales, and right gradients at difficult points (saturation, cancellation,
 * kinks, cusps, ranges of scales, noise). test_gradcheck_wrong.c has wrong ones. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests.h"

#define F(NAME)                                           \
    static eg_tensor *NAME(void *u, eg_tensor *const *x); \
    static eg_tensor *NAME(void *u, eg_tensor *const *x)
#define A (x[0])
#define B (x[1])
F(f_softmax)
{
    (void)u;
    return eg_softmax("i [j]", A);
}
F(f_lsoftmax)
{
    (void)u;
    return eg_log_softmax("i [j]", A);
}
F(f_lse)
{
    (void)u;
    return eg_logsumexp("i [j]", A);
}
F(f_attend)
{
    (void)u;
    return eg_attention("id,jd,je->ie", A, B, B);
}
F(f_causal)
{
    (void)u;
    return eg_attention("id,jd,je->ie", A, B, A, .where = "j <= i");
}
F(f_product)
{
    (void)u;
    return eg_einsum("ij,kj->ik", A, B);
}
F(f_layernorm)
{
    (void)u;
    return eg_layernorm("i [j]", A);
}
F(f_rmsnorm)
{
    (void)u;
    return eg_rmsnorm("i [j]", A);
}
F(f_tanh)
{
    (void)u;
    return eg_tanh(eg_mul(A, B));
}
F(f_sigmoid)
{
    (void)u;
    return eg_sigmoid(eg_add(A, B));
}
F(f_gelu)
{
    (void)u;
    return eg_gelu(A);
}
F(f_silu)
{
    (void)u;
    return eg_mul(eg_silu(A), B);
}
F(f_softplus)
{
    (void)u;
    return eg_softplus(A);
}
F(f_relu)
{
    (void)u;
    return eg_mul(eg_relu(A), B);
}
F(f_abs)
{
    (void)u;
    return eg_abs(eg_sub(A, B));
}
F(f_sin)
{
    (void)u;
    return eg_sin(eg_mul(A, B));
}
F(f_atan)
{
    (void)u;
    return eg_atan2(A, B);
}
F(f_div)
{
    (void)u;
    return eg_div(A, eg_shift(eg_square(B), 1));
}
F(f_max)
{
    (void)u;
    return eg_max("i [j]", A);
}
F(f_var)
{
    (void)u;
    return eg_var("i [j]", A);
}
F(f_norm)
{
    (void)u;
    return eg_pnorm("i [j]", A, 2);
}
F(f_cumsum)
{
    (void)u;
    return eg_cumsum("i [j]", eg_mul(A, B));
}
F(f_prod)
{
    (void)u;
    return eg_prod("i [j]", A);
}
F(f_logadd)
{
    (void)u;
    return eg_logaddexp(A, B);
}
F(f_mse)
{
    (void)u;
    return eg_mse(A, B);
}
F(f_gate)
{
    (void)u;
    return eg_sum(NULL, eg_mul(eg_sigmoid(eg_einsum("ij,kj->ik", A, B)),
                               eg_tanh(eg_einsum("ij,kj->ik", A, A))));
}
static const struct {
    eg_function *f;
    int count;
} usual[] = {
    { f_softmax, 1 }, { f_lsoftmax, 1 },  { f_lse, 1 },      { f_attend, 2 }, { f_causal, 2 },
    { f_product, 2 }, { f_layernorm, 1 }, { f_rmsnorm, 1 },  { f_tanh, 2 },   { f_sigmoid, 2 },
    { f_gelu, 1 },    { f_silu, 2 },      { f_softplus, 1 }, { f_relu, 2 },   { f_abs, 2 },
    { f_sin, 2 },     { f_atan, 2 },      { f_div, 2 },      { f_max, 1 },    { f_var, 1 },
    { f_norm, 1 },    { f_cumsum, 2 },    { f_prod, 1 },     { f_logadd, 2 }, { f_mse, 2 },
    { f_gate, 2 },
};
enum { DRAWS = 8 }; /* with EG_TRUST=full 40 */

GROUP("trust", .timeout = 120)
LOOP_TEST(random_points_are_not_called_wrong, (int)(sizeof usual / sizeof *usual))
{
    static const double scale[] = { 0.01, 0.1, 1, 3, 10 };
    const int draws = getenv("EG_TRUST") ? 40 : DRAWS;
    int failed = 0;
    for (int s = 0; s < 5; s++)
        for (int d = 0; d < draws; d++) {
            eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)(1000 * s + d));
            eg_tensor *x[2] = { eg_normal(cx, 0, scale[s], 3, 3),
                                eg_normal(cx, 0, scale[s], 3, 3) };
            const eg_report *r = eg_gradcheck(usual[_i].f, NULL, usual[_i].count, x);
            ck_assert_msg(r != NULL, "%s", eg_error(cx));
            for (int k = 0; k < usual[_i].count; k++)
                ck_assert_msg(r->input[k] != EG_WRONG, "sd %g, draw %d: %s", scale[s], d, r->text);
            for (int k = 0; k < r->notes; k++)
                ck_assert_msg(r->note[k].verdict != EG_WRONG, "sd %g, draw %d: %s", scale[s], d,
                              r->text);
            if (!r->passed && getenv("EG_SHOW"))
                printf("%d sd %g draw %d: %s\n", _i, scale[s], d, r->text);
            failed += !r->passed;
            eg_close(cx);
        }
    /* a softmax that is saturated everywhere is UNTESTED */
    ck_assert_msg(failed <= (usual[_i].f == f_causal || usual[_i].f == f_attend ? draws : 0),
                  "%d of %d right ones were rejected", failed, 5 * draws);
}

/* -- difficult points -------------------------------------------------------------------------- */
static eg_tensor *c_of(eg_tensor *like, double v) { return eg_scale(eg_ones_like(like), v); }
F(f_xent) { return eg_cross_entropy("i [v]", A, u); }
F(f_relu2)
{
    (void)u;
    return eg_square(eg_relu(A));
}
F(f_xabsx)
{
    (void)u;
    return eg_mul(A, eg_abs(A));
}
F(f_naivevar)
{
    (void)u;
    return eg_sub(eg_mean("i [j]", eg_square(A)), eg_square(eg_mean("i [j]", A)));
}
F(f_cosc)
{
    (void)u;
    return eg_div(eg_sub(c_of(A, 1), eg_cos(A)), eg_square(A));
}
F(f_softabs)
{
    (void)u;
    return eg_sqrt(eg_shift(eg_square(A), 1e-12));
}
F(f_fast)
{
    (void)u;
    return eg_sin(eg_scale(A, 1e12));
}
F(f_exp)
{
    (void)u;
    return eg_exp(A);
}
F(f_log)
{
    (void)u;
    return eg_log(A);
}
F(f_sqrt)
{
    (void)u;
    return eg_sqrt(A);
}
F(f_rsqrt)
{
    (void)u;
    return eg_rsqrt(A);
}
F(f_recip)
{
    (void)u;
    return eg_recip(A);
}
F(f_square)
{
    (void)u;
    return eg_square(A);
}
F(f_cube)
{
    (void)u;
    return eg_mul(A, eg_square(A));
}
F(f_spread) { return eg_mul(eg_square(A), u); }
F(f_spreadsum) { return eg_sum(NULL, eg_mul(eg_square(A), u)); }
F(f_lora) { return eg_einsum("bi,ir,ro->bo", u, A, B); }
F(f_gated)
{
    (void)u;
    return eg_mul(eg_tanh(B), eg_sin(A));
}
F(f_quad)
{
    (void)u;
    return eg_einsum("i,ij,j->", B, A, B);
}
F(f_sumexpdiff)
{
    (void)u;
    return eg_sub(eg_exp(A), eg_exp(B));
}
F(f_big)
{
    (void)u;
    return eg_shift(eg_sin(A), 1e8);
}
F(f_log1pexp)
{
    (void)u;
    return eg_log1p(eg_exp(A));
}
F(f_hypot)
{
    (void)u;
    return eg_sqrt(eg_add(eg_square(A), eg_square(B)));
}
F(f_powfrac)
{
    (void)u;
    return eg_powc(A, 2.5);
}
F(f_stdn)
{
    (void)u;
    return eg_div(eg_sub(A, eg_on("i, i j -> i j", eg_add, eg_mean("i [j]", A), eg_scale(A, 0))),
                  c_of(A, 2));
}
F(f_erf)
{
    (void)u;
    return eg_erf(A);
}
F(f_step)
{
    (void)u;
    return eg_sigmoid(eg_scale(A, 1e4));
}
F(f_bce) { return eg_bce_logits(A, u); }
F(f_huber)
{
    (void)u;
    return eg_huber(A, B, 1);
}
F(f_tan)
{
    (void)u;
    return eg_tan(A);
}
F(f_sumall)
{
    (void)u;
    return eg_sum(NULL, eg_relu(A));
}
F(f_sort)
{
    (void)u;
    return eg_sort("i [j]", A);
}
F(f_kl) { return eg_kl_div("i [j]", u, eg_log_softmax("i [j]", A)); }
F(f_poly)
{
    (void)u;
    return eg_sub(eg_powc(eg_shift(A, -1), 7), eg_scale(A, 1e-3));
}
F(f_cancel)
{
    (void)u;
    return eg_sub(eg_shift(A, 1e6), c_of(A, 1e6));
}
F(f_chain)
{
    (void)u;
    eg_tensor *y = A;
    for (int k = 0; k < 30; k++) y = eg_sin(eg_shift(eg_scale(y, 1.3), 0.1));
    return y;
}

typedef struct awkward {
    const char *name;
    eg_function *f;
    const char *a, *b, *u; /* numbers; rows by ';'; NULL: none */
    int order, directions;
    bool kink; /* KINK is the right verdict */
} awkward;
static eg_tensor *numbers(eg_ctx *cx, const char *s, bool index)
{
    double v[64];
    int n = 0, rows = 1;
    if (!s) return NULL;
    const bool matrix = strchr(s, ';') != NULL;
    for (const char *p = s; *p;) {
        char *end;
        v[n++] = strtod(p, &end);
        for (p = end; *p == ' ' || *p == ',' || *p == ';'; p++) rows += *p == ';';
    }
    int64_t dims[2] = { rows, n / rows };
    eg_tensor *t = eg_from_n(cx, EG_F64, v, matrix ? 2 : 1, matrix ? dims : dims + 1);
    return index ? eg_cast(t, EG_I64) : t;
}
static const awkward points[] = {
#define GAP(g) \
    { "cross entropy, gap " #g, f_xent, #g ",0,-1;0," #g ",1", NULL, "i0,1", 0, 0, false },
    GAP(1) GAP(5) GAP(10) GAP(14) GAP(16) GAP(18) GAP(20) GAP(25) GAP(30) GAP(34) GAP(36) GAP(37)
        GAP(40) GAP(60) GAP(100) GAP(500) GAP(700) GAP(1000)
#define SOFT(g)                                                                            \
    { "softmax, gap " #g, f_softmax, #g ",0,-1;1,2,3", NULL, NULL, 0, 0, false },          \
        { "log softmax, gap " #g, f_lsoftmax, #g ",0,-1;1,2,3", NULL, NULL, 0, 0, false }, \
        { "logsumexp, gap " #g, f_lse, #g ",0,-1;1,2,3", NULL, NULL, 0, 0, false },
            SOFT(4) SOFT(10) SOFT(16) SOFT(18) SOFT(20) SOFT(30) SOFT(36) SOFT(38) SOFT(50)
                SOFT(100){ "relu² at 0", f_relu2, "0,1,-1", NULL, NULL, 0, 0, false },
    { "relu² at 0, all", f_relu2, "0,0,1e-3", NULL, NULL, 0, 0, false },
    { "x|x| at 0", f_xabsx, "0,1,-1", NULL, NULL, 0, 0, false },
    { "x|x| near 0", f_xabsx, "1e-9,1e-6,-1e-4", NULL, NULL, 0, 0, false },
    { "x² at 0", f_square, "0,1e-8,1", NULL, NULL, 0, 0, false },
    { "x³ at 0", f_cube, "0,1e-5,1", NULL, NULL, 0, 0, false },
    { "x³ at 1e-9", f_cube, "1e-9,1e-3,1", NULL, NULL, 0, 0, false },
#define VAR(v)                                        \
    { "naive variance at " #v,                        \
      f_naivevar,                                     \
      #v "1," #v "2," #v "4;" #v "3," #v "1," #v "7", \
      NULL,                                           \
      NULL,                                           \
      0,                                              \
      0,                                              \
      false },
    VAR(1) VAR(10) VAR(100) VAR(1000) VAR(10000) VAR(100000)
#define COSC(v) { "(1 - cos x)/x² at " #v, f_cosc, #v "," #v "," #v, NULL, NULL, 0, 0, false },
        COSC(1) COSC(0.1) COSC(0.01) COSC(1e-3) COSC(3e-3) COSC(2e-4) COSC(1e-4)
#define SOFTABS(v) { "sqrt(x² + 1e-12) at " #v, f_softabs, #v ",1,-" #v, NULL, NULL, 0, 0, false },
            SOFTABS(1e-6) SOFTABS(1e-7) SOFTABS(1e-5) SOFTABS(1e-4) SOFTABS(1e-3) SOFTABS(3e-6)
                SOFTABS(0){ "sin(1e12 x)", f_fast, "1,0.3,-2", NULL, NULL, 0, 0, false },
    { "sin(1e12 x), small", f_fast, "1e-12,3e-13,1e-11", NULL, NULL, 0, 0, false },
    { "sin(1e12 x) at 0", f_fast, "0,0,0", NULL, NULL, 0, 0, false },
#define EXP(v) { "exp at " #v, f_exp, "0," #v ",1", NULL, NULL, 0, 0, false },
    EXP(-7) EXP(-14) EXP(-24) EXP(-30) EXP(-40) EXP(-100) EXP(20) EXP(50) EXP(100) EXP(-700)
        EXP(300){ "exp, spread", f_exp, "0,-7,-14,-24", NULL, NULL, 0, 0, false },
#define LOG(v)                                                         \
    { "log at " #v, f_log, #v ",1,2", NULL, NULL, 0, 0, false },       \
        { "sqrt at " #v, f_sqrt, #v ",1,2", NULL, NULL, 0, 0, false }, \
        { "1/x at " #v, f_recip, #v ",1,2", NULL, NULL, 0, 0, false }, \
        { "rsqrt at " #v, f_rsqrt, #v ",1,2", NULL, NULL, 0, 0, false },
    LOG(1e-3) LOG(1e-6) LOG(1e-9) LOG(1e6) LOG(1e-12)
        LOG(1e12){ "spread 1e10", f_spread, "1,1,2,3", NULL, "1e5,1e-5,1e-5,1", 0, 0, false },
    { "spread 1e10, sum", f_spreadsum, "1,1,2,3", NULL, "1e5,1e-5,1e-5,1", 0, 0, false },
    { "spread 1e16", f_spread, "1,1,2,3", NULL, "1e8,1e-8,1e-8,1", 0, 0, false },
    { "spread 1e16, sum", f_spreadsum, "1,1,2,3", NULL, "1e8,1e-8,1e-8,1", 0, 0, false },
    { "LoRA, B = 0", f_lora, "1,2;3,-1;0.5,1", "0,0,0;0,0,0", "1,2,3;-1,0,1", 0, 0, false },
    { "LoRA, A = 0", f_lora, "0,0;0,0;0,0", "1,2,0;0,1,3", "1,2,3;-1,0,1", 0, 0, false },
    { "gate 0", f_gated, "1,2,3", "0,0,0", NULL, 0, 0, false },
    { "gate 0, one", f_gated, "1,2,3", "0,1,0", NULL, 0, 0, false },
    { "symmetric form", f_quad, "1,2,3;2,1,0;3,0,4", "1,2,-1", NULL, 0, 0, false },
    { "form at 0", f_quad, "1,2,3;4,1,0;3,7,4", "0,0,0", NULL, 0, 0, false },
    { "exp - exp", f_sumexpdiff, "1,2,3", "1,2,3", NULL, 0, 0, false },
    { "exp - exp, large", f_sumexpdiff, "20,1,3", "20,0,3", NULL, 0, 0, false },
    { "1e8 + sin", f_big, "1,2,3", NULL, NULL, 0, 0, false },
    { "1e8 + sin at π/2", f_big, "1.5707963267948966,0,1", NULL, NULL, 0, 0, false },
#define PLUS(v)                                                                 \
    { "log1p exp at " #v, f_log1pexp, #v ",0,1", NULL, NULL, 0, 0, false },     \
        { "softplus at " #v, f_softplus, #v ",0,1", NULL, NULL, 0, 0, false },  \
        { "sigmoid at " #v, f_sigmoid, #v ",0,1", "0,1,2", NULL, 0, 0, false }, \
        { "tanh at " #v, f_tanh, #v ",0,1", "1,1,2", NULL, 0, 0, false },       \
        { "gelu at " #v, f_gelu, #v ",0,1", NULL, NULL, 0, 0, false },          \
        { "erf at " #v, f_erf, #v ",0,1", NULL, NULL, 0, 0, false },
    PLUS(-5) PLUS(-10) PLUS(-20) PLUS(-30) PLUS(-40) PLUS(5) PLUS(10) PLUS(20) PLUS(30)
        PLUS(37){ "hypot near 0", f_hypot, "1e-6,1,2", "1e-6,1,0", NULL, 0, 0, false },
    { "hypot on an axis", f_hypot, "0,1,2", "1,0,3", NULL, 0, 0, false },
    { "x^2.5 at 1e-6", f_powfrac, "1e-6,1,2", NULL, NULL, 0, 0, false },
    { "layernorm, nearly equal", f_layernorm, "1,1.001,0.999;5,5,5.01", NULL, NULL, 0, 0, false },
    { "layernorm, far from 0", f_layernorm, "1e4,1.0001e4,0.9999e4;5,6,7", NULL, NULL, 0, 0,
      false },
    { "layernorm, large", f_layernorm, "1e6,-1e6,3e6;5e6,6e6,7e6", NULL, NULL, 0, 0, false },
    { "layernorm, tiny", f_layernorm, "1e-3,2e-3,-1e-3;3e-3,1e-3,0", NULL, NULL, 0, 0, false },
    { "rmsnorm, tiny", f_rmsnorm, "1e-3,2e-3,-1e-3;3e-3,1e-3,0", NULL, NULL, 0, 0, false },
    { "rmsnorm at 0", f_rmsnorm, "0,0,0;3,1,0", NULL, NULL, 0, 0, false },
    { "centred", f_stdn, "1,2,3;4,5,7", NULL, NULL, 0, 0, false },
    { "steep sigmoid at 0", f_step, "0,1e-4,-2e-4", NULL, NULL, 0, 0, false },
    { "steep sigmoid", f_step, "1e-3,1e-3,-1e-3", NULL, NULL, 0, 0, false },
    { "bce, saturated", f_bce, "30,-30,10", NULL, "1,0,1", 0, 0, false },
    { "bce, wrong side", f_bce, "30,-30,10", NULL, "0,1,0", 0, 0, false },
    { "huber inside", f_huber, "0,0.2,3", "0.1,0,1", NULL, 0, 0, false },
    { "tan near its pole", f_tan, "1.57,1,0", NULL, NULL, 0, 0, false },
    { "tan nearer its pole", f_tan, "1.5707,1,0", NULL, NULL, 0, 0, false },
    { "sort, close", f_sort, "1,1.0000001,3;3,2,1", NULL, NULL, 0, 0, false },
    { "max, close", f_max, "1,1.0000001,3;3,2.9999999,1", NULL, NULL, 0, 0, false },
    { "relu, close to 0", f_relu, "1e-7,-1e-7,1e-5", "1,2,3", NULL, 0, 0, false },
    { "|x|, close to 0", f_abs, "1e-7,-1e-7,1e-5", "0,0,0", NULL, 0, 0, false },
    { "kl", f_kl, "10,0,-10;1,2,3", NULL, "0.2,0.3,0.5;1,0,0", 0, 0, false },
    { "(x - 1)^7", f_poly, "1.0001,1,2", NULL, NULL, 0, 0, false },
    { "1e6 + x - 1e6", f_cancel, "1,2,0.3", NULL, NULL, 0, 0, false },
    { "thirty sines", f_chain, "1,2,0.3", NULL, NULL, 0, 0, false },
    { "product with a 0", f_prod, "0,2,3;1,4,-1", NULL, NULL, 0, 0, false },
    { "product with two 0", f_prod, "0,0,3;1,4,-1", NULL, NULL, 0, 0, false },
    { "attention, saturated", f_attend, "5,-3;4,8", "6,1;-7,5", NULL, 0, 0, false },
    { "causal, order 2", f_causal, "3,-3;2,4", "3,1;-4,2", NULL, 2, 0, false },
    { "causal, order 2, saturated", f_causal, "9,-3;6,4", "8,1;-7,5", NULL, 2, 0, false },
    { "softmax, order 2", f_softmax, "16,0,-1;1,2,3", NULL, NULL, 2, 0, false },
    { "softmax, order 2, gap 8", f_softmax, "8,0,-1;1,2,3", NULL, NULL, 2, 0, false },
    { "cross entropy, order 2", f_xent, "14,0,-1;0,5,1", NULL, "i0,1", 2, 0, false },
    { "relu at 0", f_relu, "0,1,-1", "1,2,3", NULL, 0, 0, true },
    { "|x| at 0", f_abs, "0,1,-1", "0,2,3", NULL, 0, 0, true },
    { "max, tie", f_max, "3,1,3;3,2,1", NULL, NULL, 0, 0, true },
};
enum { POINTS = (int)(sizeof points / sizeof *points), REJECTED = 5 };

TEST(difficult_points_pass)
{
    int rejected = 0, count = 0;
    char message[8192] = "";
    for (int k = 0; k < POINTS; k++) {
        const awkward *p = &points[k];
        eg_ctx *cx = eg_open(.dtype = EG_F64);
        eg_tensor *x[2] = { numbers(cx, p->a, false), numbers(cx, p->b, false) };
        const bool index = p->u && *p->u == 'i';
        eg_tensor *u = numbers(cx, p->u ? p->u + index : NULL, index);
        const eg_report *r = eg_gradcheck(p->f, u, p->b ? 2 : 1, x, .order = p->order);
        ck_assert_msg(r != NULL, "%s: %s", p->name, eg_error(cx));
        if (p->kink) {
            ck_assert_msg(r->input[0] == EG_KINK, "%s: %s", p->name, r->text);
            r = eg_gradcheck(p->f, u, p->b ? 2 : 1, x, .kinks = true);
            ck_assert_msg(r && r->passed, "%s: %s", p->name, r ? r->text : eg_error(cx));
        } else {
            count++;
            rejected += !r->passed;
            if (!r->passed && getenv("EG_SHOW")) printf("%s: %s\n", p->name, r->text);
            if (!r->passed && strlen(message) + strlen(p->name) + 4 < sizeof message)
                strcat(strcat(message, p->name), "; ");
        }
        eg_close(cx);
    }
    ck_assert_int_ge(count, 200);
    ck_assert_msg(rejected <= REJECTED, "%d of %d rejected: %s", rejected, count, message);
}

TEST(many_kinks_along_a_direction)
{
    int rejected = 0;
    for (int seed = 0; seed < 20; seed += SLOWER) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)seed);
        eg_tensor *x = eg_normal(cx, 0, 1, 100000);
        const eg_report *r = eg_gradcheck(f_sumall, NULL, 1, &x, .directions = 1);
        ck_assert_msg(r != NULL, "%s", eg_error(cx));
        if (!r->passed && getenv("EG_SHOW")) printf("%s\n", r->text);
        rejected += !r->passed;
        eg_close(cx);
    }
    ck_assert_int_eq(rejected, 0);
}

/* -- sensitivity: one element of a rule's result times 1 + 1e-7 -------------------------------- */
static bool same_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool same_forward(eg_tensor *y) { return eg_assign(y, eg_operand(y, 0)) == 0; }
static eg_tensor *seventh_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    eg_tensor *d = eg_detach(eg_ones_like(y));
    double *v = eg_mut_f64(d);
    if (v) v[eg_size(y) / 2] = 1 + 1e-7;
    return eg_mul(g, d);
}
static const eg_op seventh = { .name = "seventh",
                               .arity = 1,
                               .shape = same_shape,
                               .forward = same_forward,
                               .rule = seventh_rule,
                               .uses = EG_USES_NOTHING };
static eg_tensor *through_seventh(void *user, eg_tensor *const *x)
{
    eg_function *const *f = user;
    return (*f)(NULL, (eg_tensor *[]){ eg_apply(&seventh, NULL, 0, 1, x), x[1] });
}
static const struct {
    eg_function *f;
    int count;
} more[] = {
    { f_exp, 1 },   { f_log, 1 },     { f_sqrt, 1 },  { f_recip, 1 },    { f_square, 1 },
    { f_cube, 1 },  { f_rsqrt, 1 },   { f_erf, 1 },   { f_gated, 2 },    { f_sumexpdiff, 2 },
    { f_hypot, 2 }, { f_powfrac, 1 }, { f_huber, 2 }, { f_tan, 1 },      { f_sumall, 1 },
    { f_sort, 1 },  { f_relu2, 1 },   { f_xabsx, 1 }, { f_naivevar, 1 }, { f_log1pexp, 1 },
};
enum { USUAL = (int)(sizeof usual / sizeof *usual), MORE = (int)(sizeof more / sizeof *more) };
LOOP_TEST(an_element_off_by_1e_7_is_found, USUAL + MORE)
{
    eg_function *f = _i < USUAL ? usual[_i].f : more[_i - USUAL].f;
    const int count = _i < USUAL ? usual[_i].count : more[_i - USUAL].count;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)_i);
    eg_tensor *x[2] = { eg_uniform(cx, 0.3, 1.2, 3, 3), eg_uniform(cx, 0.3, 1.2, 3, 3) };
    const eg_report *r = eg_gradcheck(through_seventh, &f, count, x);
    bool found = false;
    for (int k = 0; r && k < r->shown; k++)
        found |= r->entry[k].verdict == EG_WRONG && r->entry[k].index == 4;
    /* f_max, f_sort: the element may not be the largest, and then has no gradient */
    const bool flat = r && r->passed && f == f_max;
    ck_assert_msg(found || flat, "%d: %s", _i, r ? r->text : eg_error(cx));
    for (int k = 0; found && k < r->shown; k++)
        ck_assert_msg(r->entry[k].verdict != EG_WRONG || r->entry[k].index == 4, "%s", r->text);
    eg_close(cx);
}

/* -- the gradient of a fixed point z = f(z) by a hook, as in docs/gradients.md ------------------
 */
typedef struct fixed_point {
    eg_tensor *z, *f;
    int steps;
} fixed_point;
static eg_tensor *cell(eg_tensor *const *x, eg_tensor *z)
{
    return eg_tanh(eg_add(eg_einsum("ij,bj->bi", A, z), B));
}
static eg_tensor *implicit(void *user, eg_tensor *y, eg_tensor *g)
{
    const fixed_point *p = user;
    eg_tensor *u = g, *back;
    (void)y;
    for (int k = 0; k < p->steps && !eg_grad(p->f, u, 1, &p->z, &back); k++) u = eg_add(g, back);
    return u;
}
static eg_tensor *equilibrium(void *user, eg_tensor *const *x)
{
    eg_ctx *cx = eg_context(A);
    fixed_point *p = eg_scope_alloc(cx, sizeof *p);
    eg_tensor *z = eg_zeros_like(B);
    const bool was = eg_nograd(cx, true);
    for (int k = 0; k < 100; k++) z = cell(x, z);
    eg_nograd(cx, was);
    if (!p) return NULL;
    *p = (fixed_point){ .z = eg_detach(z), .steps = *(int *)user };
    p->f = cell(x, p->z);
    eg_tensor *y = cell(x, eg_detach(z));
    eg_hook(y, implicit, p);
    return y;
}
LOOP_TEST(an_implicit_gradient_by_a_hook_passes_if_it_is_right, 4)
{
    int steps = _i % 2 ? 100 : 2; /* 2 terms of the series are not enough */
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_scale(eg_normal(cx, 0, 1, 4, 4), .2), eg_normal(cx, 0, 1, 3, 4) };
    const eg_report *r = eg_gradcheck(equilibrium, &steps, 2, x, .full = _i / 2);
    ck_assert_msg(r && r->passed == (steps == 100), "%s", r ? r->text : eg_error(cx));
    ck_assert_msg(strstr(r->text, "a hook of tanh") != NULL, "%s", r->text);
    eg_close(cx);
}
