/* test_gradcheck_wrong.c: wrong gradients of nine classes, each for several functions: every one
 * must fail with the default options, with the verdict and the name of the operation in the table.
 * test_gradcheck_right.c has right ones. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

/* -- an operation of one operand, and one of two: y = f(x) ⊙ c, y = f(a) ⊙ b ------------------- */
typedef enum base { SQUARE, EXP, TANH, SIN, CUBE, BASES } base;
static const char *const base_name[] = { "square", "exp", "tanh", "sin", "cube" };
typedef enum mistake {
    RIGHT,
    /* plain */
    SIGN,
    FACTOR,
    ZERO,
    SMALL_FACTOR,
    SHIFTED,
    ONE_ELEMENT,
    ONE_NAN,
    SEVENTH,
    /* 1: in an element that is small compared with others */
    FLIP_SMALL,
    ZERO_SMALL,
    TWICE_SMALL,
    /* 4: not linear in g */
    CLIP,
    ABS,
    EXP_LOG,
    EQUALS_0,
    RAW,
    NORMALISED,
    FLOOR,
    SQUARED,
    BIASED,
    /* 5: writes */
    WRITE_G,
    WRITE_X,
    WRITE_Y,
    /* 6: state */
    LAST_X,
    FIRST_X,
    SECOND_SWEEP,
    LEFT_BEHIND,
    /* 7: jvp */
    JVP_ALONE,
    JVP_FIRST,
    JVP_SECOND,
    JVP_SIGN,
    /* 8 */
    NOGRAD,
    NOGRAD_RULE,
    /* 9: layout, the same tensor twice, tails, second order, .uses */
    STRIDED,
    REVERSED,
    TWICE,
    TAIL8,
    TAIL16,
    BLOCK,
    SECOND,
    SECOND_DETACH,
    USES
} mistake;
static struct {
    base f;
    mistake m;
    double kept[64];
    int calls, sweeps;
    const void *seen;
} now;

static double value(base f, double x)
{
    return f == SQUARE ? x * x
           : f == EXP  ? exp(x)
           : f == TANH ? tanh(x)
           : f == SIN  ? sin(x)
                       : x * x * x;
}
static eg_tensor *slope(base f, eg_tensor *x)
{
    switch (f) {
    case SQUARE: return eg_scale(x, 2);
    case EXP: return eg_exp(x);
    case TANH: return eg_shift(eg_neg(eg_square(eg_tanh(x))), 1);
    case SIN: return eg_cos(x);
    default: return eg_scale(eg_square(x), 3);
    }
}
static eg_tensor *f_of(base f, eg_tensor *x)
{
    return f == SQUARE ? eg_square(x)
           : f == EXP  ? eg_exp(x)
           : f == TANH ? eg_tanh(x)
           : f == SIN  ? eg_sin(x)
                       : eg_mul(x, eg_square(x));
}
/* ones, except for element k */
static eg_tensor *all_but(eg_tensor *like, int64_t k, double v)
{
    eg_tensor *t = eg_detach(eg_ones_like(like));
    double *p = eg_mut_f64(t);
    if (p && k < eg_size(t)) p[k] = v;
    return t;
}
static eg_tensor *from(int64_t k, eg_tensor *like, double v) /* v from element k on, ones before */
{
    eg_tensor *t = eg_detach(eg_ones_like(like));
    double *p = eg_mut_f64(t);
    for (int64_t j = k; p && j < eg_size(t); j++) p[j] = v;
    return t;
}
static eg_tensor *wrong(eg_tensor *y, eg_tensor *g, eg_tensor *x, eg_tensor *d)
{
    eg_tensor *r = eg_mul(g, d);
    const int64_t n = eg_size(x);
    switch (now.m) {
    case SIGN: return eg_neg(r);
    case FACTOR: return eg_scale(r, 2);
    case ZERO: return eg_scale(r, 0);
    case SMALL_FACTOR: return eg_scale(r, 1 + 1e-6);
    case SHIFTED: return eg_add(r, eg_scale(g, 1e-4));
    case ONE_ELEMENT: return eg_mul(r, all_but(r, n / 2, 1.001));
    case ONE_NAN: return eg_mul(r, all_but(r, n - 1, NAN));
    case SEVENTH: return eg_mul(r, all_but(r, 1, 1 + 1.1e-7));
    case FLIP_SMALL: return eg_mul(r, all_but(r, 1, -1));
    case ZERO_SMALL: return eg_mul(r, all_but(r, 1, 0));
    case TWICE_SMALL: return eg_mul(r, all_but(r, 2, 2));
    case CLIP: return eg_mul(eg_clip(g, -5, 5), d);
    case ABS: return eg_mul(eg_abs(g), d);
    case EXP_LOG: return eg_mul(eg_exp(eg_log(g)), d);
    case EQUALS_0: return eg_mul(eg_where(eg_eq(g, eg_zeros_like(g)), eg_ones_like(g), g), d);
    case RAW: {
        const double *raw = (const double *)eg_raw(g, NULL);
        return eg_mul(eg_from_n(eg_context(g), EG_F64, raw, eg_rank(g), eg_dims(g)), d);
    }
    case NORMALISED: return eg_mul(eg_scale(g, 1 + 1e-3 * fabs(eg_item(eg_max(NULL, g)))), d);
    case FLOOR:
        return eg_mul(eg_where(eg_lt(eg_abs(g), eg_full_n(eg_context(g), EG_F64, 1e-8, 0, NULL)),
                               eg_zeros_like(g), g),
                      d);
    case SQUARED: return eg_mul(eg_mul(g, eg_abs(g)), d);
    case BIASED: return eg_shift(r, 1e-3);
    case WRITE_G: {
        ((double *)(uintptr_t)eg_raw(g, NULL))[0] += 0.25;
        return r;
    }
    case WRITE_X: {
        ((double *)(uintptr_t)eg_raw(x, NULL))[0] += 0.25;
        return r;
    }
    case WRITE_Y: {
        ((double *)(uintptr_t)eg_raw(y, NULL))[0] += 0.25;
        return r;
    }
    case LAST_X:
    case FIRST_X:
        return eg_mul(
            g, slope(now.f, eg_from_n(eg_context(x), EG_F64, now.kept, eg_rank(x), eg_dims(x))));
    case SECOND_SWEEP:
        if (now.seen == y) return eg_scale(r, 1.5);
        now.seen = y;
        return r;
    case NOGRAD_RULE:
        return !eg_nograd(eg_context(x), false)
                   ? r
                   : (eg_nograd(eg_context(x), true), eg_scale(r, 1.5));
    case STRIDED:
    case REVERSED: return r;
    case TAIL8: return eg_mul(r, from(n / 8 * 8, r, 0.5));
    case TAIL16: return eg_mul(r, from(n / 16 * 16, r, 0));
    case BLOCK: return n >= 32 ? eg_scale(r, 1.25) : r;
    case SECOND: return eg_mul(g, eg_add(d, eg_mul(eg_sub(x, eg_detach(x)), eg_detach(x))));
    case SECOND_DETACH: return eg_mul(g, slope(now.f, eg_detach(x)));
    default: return r;
    }
}

static bool unary_forward(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0), *flat = eg_contiguous(x);
    double *out = eg_mut_f64(y);
    const bool raw = now.m == STRIDED || now.m == REVERSED;
    const double *in = raw ? (const double *)eg_raw(x, NULL) : eg_f64(flat);
    eg_ctx *cx = eg_context(y);
    const bool was = eg_nograd(cx, true);
    eg_nograd(cx, was);
    for (int64_t k = 0, n = eg_size(y); in && out && k < n; k++) {
        out[k] = value(now.f, in[k]) * (now.m == NOGRAD && was ? 1.25 : 1);
        if (k < 64 && (now.m == LAST_X || (now.m == FIRST_X && now.calls == 0)))
            now.kept[k] = in[k];
    }
    now.calls++;
    return in && out;
}
static eg_tensor *unary_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i);
    return wrong(y, g, x, slope(now.f, x));
}
static const eg_op planted = {
    .name = "planted", .arity = 1, .shape = like_first, .forward = unary_forward, .rule = unary_rule
};
/* reads its operand, but .uses says that it does not */
static const eg_op lying = { .name = "planted",
                             .arity = 1,
                             .shape = like_first,
                             .forward = unary_forward,
                             .rule = unary_rule,
                             .uses = EG_USES_RESULT };

static bool binary_forward(eg_tensor *y)
{
    return eg_assign(y, eg_mul(f_of(now.f, eg_operand(y, 0)), eg_operand(y, 1))) == 0;
}
static eg_tensor *binary_rule(eg_tensor *y, eg_tensor *g, int i)
{
    static const void *whose;
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    if (now.m == LEFT_BEHIND) {
        const bool left = whose == y;
        whose = i == 0 ? y : NULL;
        if (i == 1 && !left) return eg_scale(eg_mul(g, f_of(now.f, a)), 0.5);
    }
    if (now.m == TWICE && a == b)
        return i == 0 ? eg_scale(eg_mul(g, b), 3) : eg_mul(g, f_of(now.f, a));
    return i == 0 ? eg_mul(g, eg_mul(b, slope(now.f, a))) : eg_mul(g, f_of(now.f, a));
}
static eg_tensor *binary_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1), *p = NULL, *q = NULL;
    if (dx[0]) p = eg_mul(dx[0], eg_mul(b, slope(now.f, a)));
    if (dx[1]) q = eg_mul(dx[1], f_of(now.f, a));
    const bool alone = !p || !q;
    if (now.m == JVP_SIGN && q) q = eg_neg(q);
    if (now.m == JVP_FIRST && p && alone) p = eg_scale(p, 2);
    if (now.m == JVP_SECOND && q && alone) q = eg_scale(q, 2);
    if (now.m == JVP_ALONE && alone) return eg_scale(p ? p : q, 0.5);
    return p && q ? eg_add(p, q) : p ? p : q;
}
static const eg_op planted2 = { .name = "planted2",
                                .arity = 2,
                                .shape = like_first,
                                .forward = binary_forward,
                                .rule = binary_rule };
static const eg_op planted2_jvp = { .name = "planted2",
                                    .arity = 2,
                                    .shape = like_first,
                                    .forward = binary_forward,
                                    .rule = binary_rule,
                                    .jvp = binary_jvp };

static eg_tensor *unary(void *user, eg_tensor *const *x)
{
    eg_tensor *y = eg_apply(now.m == USES ? &lying : &planted, NULL, 0, 1, x);
    return user ? eg_mul(y, user) : y;
}
static eg_tensor *binary(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(now.m >= JVP_ALONE && now.m <= JVP_SIGN ? &planted2_jvp : &planted2, NULL, 0, 2,
                    x);
}

/* -- class by class --------------------------------------------------------------------------- */
static const struct plant {
    const char *class;
    mistake m;
    bool two;            /* number of operands is two */
    int64_t size;        /* of each */
    const char *message; /* must be in the report, as must the name of the operation */
} plants[] = {
    { "plain", SIGN, false, 6, "WRONG" },
    { "plain", FACTOR, false, 6, "WRONG" },
    { "plain", ZERO, false, 6, "WRONG" },
    { "plain", SMALL_FACTOR, false, 6, "WRONG" },
    { "plain", SHIFTED, false, 6, "WRONG" },
    { "plain", ONE_ELEMENT, false, 6, "WRONG" },
    { "plain", ONE_NAN, false, 6, "WRONG" },
    { "sensitivity", SEVENTH, false, 6, "dx0[1]: WRONG" },
    { "1 scales", FLIP_SMALL, false, 4, "dx0[1]: WRONG" },
    { "1 scales", ZERO_SMALL, false, 4, "dx0[1]: WRONG" },
    { "1 scales", TWICE_SMALL, false, 4, "dx0[2]: WRONG" },
    { "4 not linear", CLIP, false, 6, "not linear in g" },
    { "4 not linear", ABS, false, 6, "not linear in g" },
    { "4 not linear", EXP_LOG, false, 6, "not linear in g" },
    { "4 not linear", EQUALS_0, false, 6, "not linear in g" },
    { "4 not linear", RAW, false, 6, "layout of g" },
    { "4 not linear", NORMALISED, false, 6, "not linear in g" },
    { "4 not linear", FLOOR, false, 6, "not linear in g" },
    { "4 not linear", SQUARED, false, 6, "not linear in g" },
    { "4 not linear", BIASED, false, 6, "not linear in g" },
    { "5 writes", WRITE_G, false, 6, "writes to the cotangent" },
    { "5 writes", WRITE_X, false, 6, "writes to an operand" },
    { "5 writes", WRITE_Y, false, 6, "writes to the result" },
    { "6 state", LAST_X, false, 6, "state outlives the call" },
    { "6 state", FIRST_X, false, 6, "WRONG" },
    { "6 state", SECOND_SWEEP, false, 6, "another cotangent when it is asked again" },
    { "6 state", LEFT_BEHIND, true, 6, "other operands left behind" },
    { "7 jvp", JVP_ALONE, true, 6, "jvp disagree where operand 1 moves alone" },
    { "7 jvp", JVP_FIRST, true, 6, "jvp disagree where operand 1 moves alone" },
    { "7 jvp", JVP_SECOND, true, 6, "jvp disagree where operand 2 moves alone" },
    { "7 jvp", JVP_SIGN, true, 6, "jvp disagree" },
    { "8 nograd", NOGRAD, false, 6, "eg_nograd" },
    { "8 nograd", NOGRAD_RULE, false, 6, "eg_nograd" },
    { "9 layout", STRIDED, false, 6, "operand 1 is" },
    { "9 twice", TWICE, true, 6, "same tensor" },
    { "9 tails", TAIL8, false, 8, "at an axis of" },
    { "9 tails", TAIL16, false, 16, "at an axis of" },
    { "9 tails", BLOCK, false, 6, "at an axis of" },
    { "9 second order", SECOND, false, 6, "second order" },
    { "9 second order", SECOND_DETACH, false, 6, "second order" },
    { "9 uses", USES, false, 6, ".uses" },
};
enum { PLANTS = (int)(sizeof plants / sizeof *plants) };

LOOP_TEST(a_wrong_gradient_does_not_pass_and_is_named, PLANTS *BASES)
{
    const struct plant *p = &plants[_i / BASES];
    memset(&now, 0, sizeof now);
    now.f = (base)(_i % BASES);
    now.m = p->m;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)_i);
    eg_tensor *x[2] = { eg_uniform(cx, 0.3, 1.2, p->size), eg_uniform(cx, 0.3, 1.2, p->size) };
    eg_tensor *c = eg_from(cx, ((double[]){ 1e5, 1e-5, 1e-5, 1 }), 4);
    const bool scales = p->m >= FLIP_SMALL && p->m <= TWICE_SMALL;
    const eg_report *r =
        p->two ? eg_gradcheck(binary, NULL, 2, x) : eg_gradcheck(unary, scales ? c : NULL, 1, x);
    ck_assert_msg(r != NULL, "%s %s: %s", p->class, base_name[now.f], eg_error(cx));
    ck_assert_msg(!r->passed, "%s, %s, %s passed: %s", p->class, p->message, base_name[now.f],
                  r->text);
    ck_assert_msg(strstr(r->text, p->message) != NULL, "%s, %s: no \"%s\" in %s", p->class,
                  base_name[now.f], p->message, r->text);
    ck_assert_msg(strstr(r->text, "planted") != NULL, "%s, %s: %s", p->class, base_name[now.f],
                  r->text);
    eg_close(cx);
}

/* The same operations without a mistake. */
LOOP_TEST(the_same_rules_pass_without_the_mistake, 6 * BASES)
{
    memset(&now, 0, sizeof now);
    now.f = (base)(_i % BASES);
    now.m = RIGHT;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)_i);
    static const int64_t size[] = { 1, 4, 6, 8, 16, 33 };
    const int64_t n = size[_i / BASES];
    eg_tensor *x[2] = { eg_uniform(cx, -1.2, 1.2, n), eg_uniform(cx, 0.3, 1.2, n) };
    const eg_report *r = eg_gradcheck(unary, NULL, 1, x);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    r = eg_gradcheck(binary, NULL, 2, x, .order = 2);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- classes 2, 3, 6, 8, and hooks: functions ------------------------------------------------- */
static bool matmul3_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0), *b = eg_operand(y, 2);
    return eg_result(y, eg_type(x), 2, (int64_t[]){ eg_dim(x, 0), eg_dim(b, 1) });
}
static bool matmul3_forward(eg_tensor *y)
{
    return eg_assign(y, eg_einsum("ij,jk,kl->il", eg_operand(y, 0), eg_operand(y, 1),
                                  eg_operand(y, 2))) == 0;
}
static eg_tensor *matmul3_rule(eg_tensor *y, eg_tensor *g, int i) /* twice the cotangent of A */
{
    eg_tensor *x = eg_operand(y, 0), *a = eg_operand(y, 1), *b = eg_operand(y, 2);
    if (i == 0) return eg_einsum("il,jk,kl->ij", g, a, b);
    if (i == 1) return eg_scale(eg_einsum("il,ij,kl->jk", g, x, b), 2);
    return eg_einsum("il,ij,jk->kl", g, x, a);
}
static const eg_op matmul3 = { .name = "lora",
                               .arity = 3,
                               .shape = matmul3_shape,
                               .forward = matmul3_forward,
                               .rule = matmul3_rule };
static eg_tensor *lora(void *u, eg_tensor *const *x)
{
    return eg_apply(&matmul3, NULL, 0, 3, ((eg_tensor *[]){ u, x[0], x[1] }));
}

static bool matvec_shape(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0);
    return eg_result(y, eg_type(a), 1, (int64_t[]){ eg_dim(a, 0) });
}
static bool matvec_forward(eg_tensor *y)
{
    return eg_assign(y, eg_einsum("ij,j->i", eg_operand(y, 0), eg_operand(y, 1))) == 0;
}
static eg_tensor *matvec_rule(eg_tensor *y, eg_tensor *g, int i) /* A, not its transpose */
{
    return i == 0 ? eg_einsum("i,j->ij", g, eg_operand(y, 1))
                  : eg_einsum("ij,j->i", eg_operand(y, 0), g);
}
static const eg_op matvec = { .name = "matvec",
                              .arity = 2,
                              .shape = matvec_shape,
                              .forward = matvec_forward,
                              .rule = matvec_rule };
static eg_tensor *symmetric(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_apply(&matvec, NULL, 0, 2, x);
}

static eg_tensor *gain_rule(eg_tensor *y, eg_tensor *g, int i) /* leaves out the gain, which is 1 */
{
    return i == 0 ? g : eg_mul(g, eg_operand(y, 0));
}
static bool times_forward(eg_tensor *y)
{
    return eg_assign(y, eg_mul(eg_operand(y, 0), eg_operand(y, 1))) == 0;
}
static const eg_op gain = {
    .name = "gain", .arity = 2, .shape = like_first, .forward = times_forward, .rule = gain_rule
};
static eg_tensor *gained(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_apply(&gain, NULL, 0, 2, x);
}

static bool tanh_forward(eg_tensor *y) { return eg_assign(y, eg_tanh(eg_operand(y, 0))) == 0; }
static eg_tensor *through(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y, (void)i;
    return g;
}
static const eg_op soft = {
    .name = "squash", .arity = 1, .shape = like_first, .forward = tanh_forward, .rule = through
};
static eg_tensor *squash(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_apply(&soft, NULL, 0, 1, x);
}
static bool round_forward(eg_tensor *y) { return eg_assign(y, eg_round(eg_operand(y, 0))) == 0; }
static const eg_op rounded = { .name = "straight_through",
                               .arity = 1,
                               .shape = like_first,
                               .forward = round_forward,
                               .rule = through };
static eg_tensor *rounds(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_apply(&rounded, NULL, 0, 1, x);
}
static bool max_shape(eg_tensor *y) { return eg_result(y, eg_type(eg_operand(y, 0)), 0, NULL); }
static bool max_forward(eg_tensor *y) { return eg_assign(y, eg_max(NULL, eg_operand(y, 0))) == 0; }
static eg_tensor *max_rule(eg_tensor *y, eg_tensor *g, int i) /* 1 for every tie */
{
    eg_tensor *x = eg_operand(y, i),
              *tie =
                  eg_cast(eg_ge(x, eg_full_n(eg_context(x), EG_F64, eg_item(y), 0, NULL)), EG_F64);
    return eg_mul(tie, g);
}
static const eg_op ties = {
    .name = "ties", .arity = 1, .shape = max_shape, .forward = max_forward, .rule = max_rule
};
static eg_tensor *tied(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_apply(&ties, NULL, 0, 1, x);
}

/* two heads; the query projection of the second is cut where its scores are very large */
static eg_tensor *heads(void *u, eg_tensor *const *x)
{
    eg_tensor *in = u, *a = eg_einsum("im,md->id", in, eg_slice_axis(x[0], 1, 0, 2, 1)),
              *b = eg_scale(eg_einsum("im,md->id", in, eg_detach(eg_slice_axis(x[0], 1, 2, 4, 1))),
                            400);
    return eg_add(eg_attention("id,jd,je->ie", a, in, in), eg_attention("id,jd,je->ie", b, in, in));
}
/* the gradient is cut where tanh is nearly flat */
static eg_tensor *cut_where_large(void *u, eg_tensor *const *x)
{
    (void)u;
    eg_tensor *y = eg_tanh(x[0]);
    return eg_where(eg_gt(x[0], eg_full_n(eg_context(x[0]), EG_F64, 5, 0, NULL)), eg_detach(y), y);
}
static int calls;
static eg_tensor *drifts_late(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_scale(eg_tanh(x[0]), ++calls > 12 ? 1.001 : 1);
}
/* the value that the last call left in a static variable */
static eg_tensor *state_in_f(void *u, eg_tensor *const *x)
{
    (void)u;
    eg_tensor *y = eg_apply(&planted, NULL, 0, 1, x);
    return y;
}
static eg_tensor *doubled(void *u, eg_tensor *x, eg_tensor *g)
{
    (void)u, (void)x;
    return eg_scale(g, 2);
}
static eg_tensor *hooked(void *u, eg_tensor *const *x)
{
    (void)u;
    eg_tensor *y = eg_exp(x[0]);
    eg_hook(y, doubled, NULL);
    return eg_tanh(y);
}
static eg_tensor *clipped(void *u, eg_tensor *x, eg_tensor *g)
{
    (void)u, (void)x;
    return eg_clip(g, -1e3, 1e3);
}
static eg_tensor *hook_clips(void *u, eg_tensor *const *x)
{
    (void)u;
    eg_tensor *y = eg_exp(x[0]);
    eg_hook(y, clipped, NULL);
    return eg_tanh(y);
}
static eg_tensor *inside(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_mul(eg_exp(x[0]), eg_detach(x[0]));
}
static eg_tensor *checkpointed(void *u, eg_tensor *const *x)
{
    return eg_checkpoint(inside, u, 1, x);
}
static eg_tensor *naive_softmax(void *u, eg_tensor *const *x)
{
    (void)u;
    eg_tensor *e = eg_exp(x[0]);
    return eg_on("i j, i -> i j", eg_div, e, eg_sum("i [j]", e));
}
static eg_tensor *naive_lse(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_log(eg_sum("i [j]", eg_exp(x[0])));
}
static eg_tensor *naive_sigmoid(void *u, eg_tensor *const *x)
{
    (void)u;
    eg_tensor *e = eg_exp(x[0]);
    return eg_div(e, eg_shift(e, 1));
}
static eg_tensor *naive_norm(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_sqrt(eg_sum("i [j]", eg_square(x[0])));
}
static eg_tensor *unlisted(void *u, eg_tensor *const *x)
{
    return eg_apply(&gain, NULL, 0, 2, ((eg_tensor *[]){ u, x[0] }));
}
static eg_tensor *detached(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_mul(x[0], eg_detach(eg_tanh(x[0])));
}
static eg_tensor *read_out(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_add(eg_sin(x[0]),
                  eg_scalar(eg_context(x[0]), eg_item(eg_select_axis(eg_square(x[0]), 0, 0))));
}

static const struct odd {
    const char *name;
    eg_function *f;
    const char *a, *b, *u;
    const char *message;
    bool kinks, f32;
} odd[] = {
    { "2: one head cut where it is saturated", heads, "m", NULL, "x", "WRONG", false, false },
    { "2: cut where it is large", cut_where_large, "1,2,30,25", NULL, NULL, "WRONG", false, false },
    { "3: LoRA, B = 0", lora, "1,2;3,-1;.5,1", "0,0,0;0,0,0", "1,2,3;-1,0,1", "the rule of lora",
      false, false },
    { "3: LoRA, A = 0", lora, "0,0;0,0;0,0", "1,2,0;0,1,3", "1,2,3;-1,0,1", "the rule of lora",
      false, false },
    { "3: a symmetric matrix", symmetric, "1,2,3;2,4,5;3,5,6", "1,2,3", NULL, "the rule of matvec",
      false, false },
    { "3: the unit matrix", symmetric, "1,0,0;0,1,0;0,0,1", "1,2,3", NULL, "the rule of matvec",
      false, false },
    { "3: gain 1", gained, "1,2,3", "1,1,1", NULL, "the rule of gain", false, false },
    { "3: gain 1, x = 0", gained, "0,0,0", "1,1,1", NULL, "the rule of gain", false, false },
    { "3: tanh at 0", squash, "0,0,0", NULL, NULL, "WRONG", false, false },
    { "straight through", rounds, "1.4,0.3,-2.2", NULL, NULL, "dx0[2]: WRONG", false, false },
    { "ties, with .kinks", tied, "1,3,3,2", NULL, NULL, "KINK", true, false },
    { "three ties, with .kinks", tied, "3,3,3,2", NULL, NULL, "KINK", true, false },
    { "6: f changes after some calls", drifts_late, "1,2,3", NULL, NULL, "not deterministic", false,
      false },
    { "hook", hooked, "0.1,0.2,0.3", NULL, NULL, "a hook of exp", false, false },
    { "hook that clips", hook_clips, "0.1,0.2,0.3", NULL, NULL, "not linear in its seed", false,
      false },
    { "checkpoint", checkpointed, "0.1,0.2,0.3", NULL, NULL, "inside checkpoint", false, false },
    { "8: naive softmax", naive_softmax, "100,99,98;1,2,3", NULL, NULL, "PRECISION", false, true },
    { "8: naive softmax, f64", naive_softmax, "100,99,98;1,2,3", NULL, NULL, "PRECISION", false,
      false },
    { "8: naive logsumexp", naive_lse, "100,99,98;1,2,3", NULL, NULL, "PRECISION", false, true },
    { "8: naive sigmoid", naive_sigmoid, "100,1,-3", NULL, NULL, "PRECISION", false, true },
    { "8: naive norm", naive_norm, "1e-24,3e-24;1e-24,-1e-24", NULL, NULL, "PRECISION", false,
      true },
    { "8: a parameter that nobody listed", unlisted, "2,3,4", NULL, "1,2,3", "the rule of gain",
      false, false },
    { "detached", detached, "0.1,0.2,0.3", NULL, NULL, "detach", false, false },
    { "read out", read_out, "0.1,0.2,0.3", NULL, NULL, "not on the tape", false, false },
};
enum { ODD = (int)(sizeof odd / sizeof *odd) };

static eg_tensor *odd_numbers(eg_ctx *cx, const char *s)
{
    double v[64];
    int n = 0, rows = 1;
    if (!s) return NULL;
    if (*s == 'x') return eg_normal(cx, 0, 1, 4, 3);
    if (*s == 'm') return eg_normal(cx, 0, 1, 3, 4);
    for (const char *p = s; *p;) {
        char *end;
        v[n++] = strtod(p, &end);
        for (p = end; *p == ',' || *p == ';'; p++) rows += *p == ';';
    }
    eg_tensor *t = eg_from_n(cx, EG_F64, v, strchr(s, ';') ? 2 : 1,
                             strchr(s, ';') ? (int64_t[]){ rows, n / rows } : (int64_t[]){ n, 0 });
    return eg_detach(eg_cast(t, eg_default_type(cx)));
}
LOOP_TEST(an_unusual_wrong_gradient_does_not_pass, ODD)
{
    const struct odd *p = &odd[_i];
    (void)state_in_f;
    memset(&now, 0, sizeof now);
    calls = 0;
    eg_ctx *cx = eg_open(.dtype = p->f32 ? EG_F32 : EG_F64, .seed = 3);
    eg_tensor *x[2] = { odd_numbers(cx, p->a), odd_numbers(cx, p->b) };
    if (p->f == heads) x[0] = eg_normal(cx, 0, 1, 3, 4);
    eg_tensor *u = p->f == heads ? eg_normal(cx, 0, 1, 4, 3) : odd_numbers(cx, p->u);
    if (p->f == heads)
        u = eg_slice_axis(eg_concat_axis(1, u, u), 1, 0, 2, 1),
        x[0] = eg_slice_axis(x[0], 0, 0, 2, 1);
    const eg_report *r = eg_gradcheck(p->f, u, p->b ? 2 : 1, x, .kinks = p->kinks);
    ck_assert_msg(r != NULL, "%s: %s", p->name, eg_error(cx));
    ck_assert_msg(!r->passed, "%s passed: %s", p->name, r->text);
    ck_assert_msg(strstr(r->text, p->message) != NULL, "%s: no \"%s\" in %s", p->name, p->message,
                  r->text);
    eg_close(cx);
}

/* -- y = a b + b², where b is broadcast; the rule for b is wrong for some shapes of b -----------
 */
enum { SUMS_ALL, MEAN_OF_ROWS, MEAN_OF_COLUMNS, MEAN_OF_ALL, SHAPELESS, BROADCASTS };
static int broadcast_now;
static bool broadcast_shape(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0);
    if (eg_rank(a) != 2) return eg_fail(eg_context(y), "operand 1 is no matrix") == NULL;
    return eg_result(y, eg_type(a), eg_rank(a), eg_dims(a));
}
static bool broadcast_forward(eg_tensor *y)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    if (broadcast_now != SHAPELESS) return eg_assign(y, eg_add(eg_mul(a, b), eg_square(b))) == 0;
    /* takes b for one of a's size, and hides a NaN that it reads beyond it */
    const double *p = eg_f64(a), *q = eg_f64(b);
    double *to = p && q && eg_type(a) == EG_F64 ? eg_mut_f64(y) : NULL;
    for (int64_t k = 0; to && k < eg_size(y); k++) to[k] = fmax(p[k], q[k]);
    return to != NULL;
}
static eg_tensor *broadcast_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1), *d;
    if (broadcast_now == SHAPELESS) {
        d = eg_cast(i ? eg_gt(b, a) : eg_ge(a, b), EG_F64);
        return eg_mul(g, d);
    }
    if (i == 0) return eg_mul(g, eg_add(b, eg_zeros_like(a)));
    d = eg_mul(g, eg_add(a, eg_scale(b, 2)));
    if (eg_size(a) == eg_size(b)) return d;
    const bool rows = eg_rank(b) < 2 || (eg_dim(b, 0) == 1 && eg_dim(a, 0) > 1);
    const bool columns = eg_dim(b, -1) == 1 && eg_dim(a, -1) > 1;
    if (broadcast_now == MEAN_OF_ALL && rows && columns) d = eg_scale(d, .5);
    if (rows)
        d = broadcast_now == MEAN_OF_ROWS ? eg_mean("[n] d -> 1 d", d) : eg_sum("[n] d -> 1 d", d);
    if (columns)
        d = broadcast_now == MEAN_OF_COLUMNS ? eg_mean("n [d] -> n 1", d)
                                             : eg_sum("n [d] -> n 1", d);
    return eg_reshape_n(d, eg_rank(b), eg_dims(b));
}
static const eg_op broadcast_op = { .name = "broadcast",
                                    .arity = 2,
                                    .shape = broadcast_shape,
                                    .forward = broadcast_forward,
                                    .rule = broadcast_rule };
static eg_tensor *broadcast_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&broadcast_op, NULL, 0, 2, x);
}
LOOP_TEST(a_rule_that_is_wrong_for_a_broadcast_operand_is_found, BROADCASTS)
{
    static const int64_t dim[][2] = { { 3, 4 }, { 1, 4 }, { 3, 1 } };
    broadcast_now = _i;
    for (int k = 0; k < (_i == SHAPELESS ? 1 : 3); k++) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 5);
        eg_tensor *x[] = { eg_normal(cx, 0, 1, 3, 4), eg_normal_n(cx, EG_F64, 0, 1, 2, dim[k]) };
        const eg_report *r = eg_gradcheck(broadcast_f, NULL, 2, x);
        const bool right = _i == SUMS_ALL || _i == SHAPELESS;
        ck_assert_msg(r && r->passed == right, "%d, %d: %s", _i, k, r ? r->text : eg_error(cx));
        if (!right && k == 0)
            ck_assert_msg(strstr(r->text, "where operand 2 has the shape (") != NULL, "%d: %s", _i,
                          r->text);
        eg_close(cx);
    }
}
