/* test_gradcheck.c: the gradient check: what it reads, reports, refuses and costs. The wrong
 * gradients are in test_gallery.c; every operation of the table is checked, and its gradient
 * mutated, in test_ops.c. */
#include <config.h> /* HAVE_LIBDW */
#include <eingrad/check.h>
#include <math.h>
#include "tests.h"

#define HAS(r, words)                     \
    ck_assert_msg(r, "%s", eg_error(cx)); \
    ck_assert_msg(strstr((r)->text, words) != NULL, "no \"%s\" in: %s", words, (r)->text)

static eg_tensor *attend(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2]);
}
static eg_tensor *product(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_einsum("ij,jk,kl->il", x[0], x[1], x[2]);
}
static eg_tensor *weigh(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_mul(eg_softmax("i [j]", x[0]), x[1]);
}
static const struct {
    eg_function *f;
    int count;
    int64_t dims[3][3];
} thirds[] = {
    { attend, 3, { { 3, 2, 2 }, { 4, 2, 2 }, { 4, 2, 3 } } },
    { product, 3, { { 2, 3 }, { 3, 2 }, { 2, 2 } } },
    { weigh, 2, { { 3, 4 }, { 3, 4 } } },
};
LOOP_TEST(third_and_fourth_order, sizeof thirds / sizeof *thirds)
{
    eg_ctx *cx = eg_open(.seed = 5);
    eg_tensor *x[3];
    for (int k = 0; k < thirds[_i].count; k++)
        x[k] = eg_normal_n(cx, EG_F32, 0, 1, thirds[_i].dims[k][2] ? 3 : 2, thirds[_i].dims[k]);
    const eg_report *r =
        eg_gradcheck(thirds[_i].f, NULL, thirds[_i].count, x, .order = 3, .rtol = 1e-5);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->order, 1);
    ck_assert_int_eq(r->higher->higher->order, 3);
    ck_assert_ptr_null(r->higher->higher->higher);
    ck_assert_int_gt(r->higher->higher->covered, 0);
    ck_assert_double_lt(r->higher->higher->worst, 1e-8);
    r = eg_gradcheck(thirds[_i].f, NULL, thirds[_i].count, x, .order = 4, .directions = 1,
                     .oracle = EG_COMPLEX_STEP, .mutate = true);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_double_lt(r->worst, 1e-13);
    ck_assert_int_eq(r->survivors, 0);
    ck_assert_int_eq(r->mutants, r->caught + r->harmless);
    eg_close(cx);
}

TEST(the_whole_jacobian)
{
    eg_ctx *cx = eg_open(.seed = 5);
    eg_tensor *x[2] = { eg_normal(cx, 0, 1, 2, 3), eg_normal(cx, 0, 1, 2, 3) };
    const eg_report *r = eg_gradcheck(weigh, NULL, 2, x, .full = true);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->entries, 6 * 12);
    ck_assert_int_eq(r->covered, 2 * 9 + 6); /* softmax mixes a row; the product is diagonal */
    ck_assert_int_ge(r->entry[0].output, 0);
    r = eg_gradcheck(weigh, NULL, 2, x, .full = true, .directions = 2, .oracle = EG_COMPLEX_STEP,
                     .order = 2);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->entries, 6 * 2 * 2);
    ck_assert_int_eq(r->entry[0].index, -1);
    eg_close(cx);
}

/* -- the tensors that f reads ------------------------------------------------------------------ */
typedef struct net {
    eg_tensor *w, *b;
    eg_dtype seen;
} net;
static eg_tensor *layer(void *user, eg_tensor *const *x)
{
    net *n = user;
    eg_tensor *y = eg_tanh(eg_add(eg_einsum("ij,jk->ik", x[0], n->w), n->b));
    /* a constant made inside f is f64, too */
    if (n->seen != EG_F64) n->seen = eg_type(eg_mul(y, eg_full(eg_context(y), .5, 2)));
    return y;
}
TEST(f32_parameters_are_read_as_f64)
{
    eg_ctx *cx = eg_open(.seed = 2);
    /* b: a view with history */
    net n = { eg_normal(cx, 0, 1, 3, 2), eg_slice_axis(eg_normal(cx, 0, 1, 4), 0, 0, 4, 2),
              EG_DEFAULT };
    eg_tensor *x[3] = { eg_normal(cx, 0, 1, 4, 3), n.w, n.b };
    const float before = eg_f32(n.w)[1];
    const eg_report *r = eg_gradcheck(layer, &n, 1, x);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_double_lt(r->worst, 1e-8); /* f32 would give 1e-4 */
    ck_assert_int_eq(n.seen, EG_F64);
    /* w and b are inputs that f reads through user */
    r = eg_gradcheck(layer, &n, 3, x, .names = "x, w, b", .order = 2);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->covered, 12 + 6 + 2);
    ck_assert(eg_type(n.w) == EG_F32 && eg_type(n.b) == EG_F32 && eg_op_of(n.b) &&
              eg_f32(n.w)[1] == before);
    ck_assert_int_eq(eg_default_type(cx), EG_F32);
    eg_close(cx);
}

static eg_tensor *narrow(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_square(eg_cast(eg_exp(x[0]), EG_F32));
}
TEST(a_cast_to_f32_is_noise)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_normal(cx, 0, 1, 3);
    const eg_report *r = eg_gradcheck(narrow, NULL, 1, &x);
    HAS(r, "NOISE: a cast to f32 inside f, by cast (");
    ck_assert(!r->passed);
    ck_assert_int_eq(r->right, 3); /* the others are right within that noise */
    eg_close(cx);
}

static eg_tensor *outer(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_einsum("ij,kj->ik", x[0], x[1]);
}
TEST(shared_memory_moves_once)
{
    eg_ctx *cx = eg_open(.seed = 4);
    eg_tensor *row = eg_normal(cx, 0, 1, 3), *wide = eg_expand(row, 4, 3), *x[2] = { wide, row };
    const eg_report *r =
        eg_gradcheck(outer, NULL, 2, (eg_tensor *[]){ wide, eg_normal(cx, 0, 1, 2, 3) });
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->entries, 3 + 6);
    x[1] = eg_slice_axis(wide, 0, 0, 2, 1); /* the same three elements again */
    r = eg_gradcheck(outer, NULL, 2, x, .order = 2);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->entries, 3);
    ck_assert_int_eq(r->entry[0].shared, 4 + 2);
    x[1] = x[0] = eg_normal(cx, 0, 1, 2, 2); /* one tensor twice */
    r = eg_gradcheck(outer, NULL, 2, x, .oracle = EG_COMPLEX_STEP);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->entries, 4);
    eg_tensor *whole = eg_normal(cx, 0, 1, 5, 3); /* overlapping halves */
    r = eg_gradcheck(outer, NULL, 2,
                     (eg_tensor *[]){ eg_slice_axis(whole, 0, 0, 3, 1),
                                      eg_flip_axis(eg_slice_axis(whole, 0, 2, 5, 1), 0) });
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->entries, 15);
    eg_close(cx);
}

static eg_tensor *noisy(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_dropout(eg_exp(x[0]), .4);
}
static eg_tensor *mode(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_eval(eg_context(x[0]));
    return eg_dropout(eg_exp(x[0]), .4);
}
TEST(draws_and_mode_are_put_back)
{
    eg_ctx *cx = eg_open(.seed = 9);
    eg_tensor *x = eg_normal(cx, 0, 1, 20);
    const uint64_t draws = eg_draws(cx);
    const eg_report *r = eg_gradcheck(noisy, NULL, 1, &x);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_lt(r->covered, 20); /* dropped entries have slope 0 on both sides */
    ck_assert_uint_eq(eg_draws(cx), draws);
    r = eg_gradcheck(mode, NULL, 1, &x);
    ck_assert(r && r->passed && eg_training(cx));
    eg_close(cx);
}

/* -- reports ----------------------------------------------------------------------------------- */
/* Scores divided by sqrt(d) with Python's `//`, that is, rounded down: no gradient passes. */
static eg_tensor *floored(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *s = eg_floor(eg_scale(eg_einsum("id,jd->ij", x[0], x[1]), 1 / sqrt(3)));
    return eg_einsum("ij,je->ie", eg_softmax("i [j]", s), x[2]);
}
static eg_tensor *stepped(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_mul(x[0], eg_cast(eg_gt(x[0], eg_scalar(eg_context(x[0]), 0)), EG_F64));
}
static eg_tensor *aside(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_add(eg_detach(eg_exp(x[0])), x[1]);
}
TEST(cut_paths_are_named)
{
    eg_ctx *cx = eg_open(.seed = 1);
    eg_tensor *x[3] = { eg_normal(cx, 0, 1, 4, 3), eg_normal(cx, 0, 1, 5, 3),
                        eg_normal(cx, 0, 1, 5, 2) };
    const eg_report *r = eg_gradcheck(floored, NULL, 3, x, .names = "q, k, v");
    HAS(r, "q: UNTESTED: path has zero gradient: floor");
    HAS(r, "k: UNTESTED: path has zero gradient: floor");
    ck_assert(!r->passed && r->input[2] == EG_RIGHT);
    r = eg_gradcheck(stepped, NULL, 1, x);
    HAS(r, "x0: one of its paths has zero gradient: gt");
    ck_assert(r->passed);
    eg_tensor *two[2] = { x[2], x[2] = eg_normal(cx, 0, 1, 5, 2) };
    r = eg_gradcheck(aside, NULL, 2, two);
    HAS(r, "dx0[");
    HAS(r, "x0: its path has zero gradient: detach (");
    ck_assert_int_eq(r->input[0], EG_WRONG);
    eg_close(cx);
}

/* The worked example of test_textbook.c. Its scores reach 3286, so the softmax is one-hot and the
 * output does not depend on W_q and W_k. */
static eg_tensor *worked_matrix(eg_ctx *cx, double a, double b, double c, double d)
{
    return eg_scale(eg_on("m, d -> m d", eg_add, eg_arange(cx, EG_F64, 0, 8, 1),
                          eg_from(cx, ((double[]){ a, b, c, d }), 4)),
                    0.1);
}
static eg_tensor *worked(void *user, eg_tensor *const *w)
{
    eg_ctx *cx = eg_context(w[0]);
    eg_tensor *x = eg_on("i, m -> i m", eg_add, eg_arange(cx, EG_F64, 0, 4, 1),
                         eg_arange(cx, EG_F64, 1, 9, 1));
    eg_tensor *q = eg_einsum("im,md->id", x, user ? eg_detach(w[0]) : w[0]),
              *k = eg_einsum("im,md->id", x, w[1]);
    return eg_einsum("ij,jm,md->id",
                     eg_softmax("i [j]", eg_scale(eg_einsum("id,jd->ij", q, k), .5)), x, w[2]);
}
TEST(an_untested_gradient_is_not_a_pass)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *w[3] = { worked_matrix(cx, 1, 2, 3, 4), worked_matrix(cx, 2, 1, 4, 3),
                        worked_matrix(cx, 3, 4, 1, 2) };
    const eg_report *r = eg_gradcheck(worked, NULL, 3, w, .names = "W_q, W_k, W_v");
    HAS(r, "W_q: UNTESTED: 0 of 32 entries are above the noise here; it can be tested with this "
           "input scaled by 0.");
    ck_assert(!r->passed && r->input[0] == EG_UNTESTED && r->input[1] == EG_UNTESTED &&
              r->input[2] == EG_RIGHT);
    r = eg_gradcheck(worked, cx, 3, w, .names = "W_q, W_k, W_v"); /* W_q's gradient cut out */
    HAS(r, "dW_q[");
    HAS(r, "the input scaled by 0.");
    HAS(r, ": WRONG: analytic 0, numeric ");
    HAS(r, "W_q: WRONG: f depends on it, but its path has zero gradient: detach");
    ck_assert_int_eq(r->input[0], EG_WRONG);
    r = eg_gradcheck(worked, cx, 3, w, .directions = 2);
    ck_assert(r && r->input[0] == EG_WRONG);
    r = eg_gradcheck(worked, cx, 3, w, .directions = 1, .oracle = EG_COMPLEX_STEP);
    ck_assert(r && r->input[0] == EG_WRONG);
    eg_close(cx);
}

/* `scores *= scale` in place is allowed, since no rule reads the scores; in place on the result of
 * softmax it is not. */
static eg_tensor *in_place(void *user, eg_tensor *const *x)
{
    eg_tensor *s = eg_einsum("id,jd->ij", x[0], x[1]), *w = user ? eg_softmax("i [j]", s) : s;
    eg_ctx *cx = eg_context(s);
    bool was = eg_nograd(cx, true);
    eg_assign(w, eg_scale(w, .5));
    eg_nograd(cx, was);
    return w;
}
TEST(a_change_in_place_of_a_saved_value_is_refused)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x[2] = { eg_normal(cx, 0, 1, 2, 3), eg_normal(cx, 0, 1, 4, 3) }, *dx[2];
    ck_assert_int_eq(eg_grad(in_place(NULL, x), eg_ones(cx, 2, 4), 2, x, dx), 0);
    eg_assert_ok(cx);
    ck_assert_ptr_null(eg_gradcheck(in_place, cx, 2, x));
    eg_assert_error(cx, "the result of softmax (");
    eg_assert_ok(cx);
    eg_close(cx);
}

/* adds the same value to all scores of a row */
static eg_tensor *key_bias(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_softmax("i [j]", eg_einsum("id,jd->ij", x[0], eg_add(x[1], x[2])));
}
TEST(zero_and_empty_pass_and_are_listed)
{
    eg_ctx *cx = eg_open(.seed = 3);
    eg_tensor *x[3] = { eg_normal(cx, 0, 1, 3, 4), eg_normal(cx, 0, 1, 5, 4),
                        eg_normal(cx, 0, 1, 4) };
    const eg_report *r = eg_gradcheck(key_bias, NULL, 3, x, .names = "q, k, bias");
    HAS(r, "bias: zero: the gradient is zero here and elsewhere");
    ck_assert(r->passed && r->input[2] == EG_ZERO);
    x[1] = eg_zeros(cx, 0, 4);
    r = eg_gradcheck(key_bias, NULL, 3, x, .names = "q, k, bias");
    ck_assert_msg(r && r->passed && r->input[1] == EG_EMPTY, "%s", r ? r->text : eg_error(cx));
    HAS(r, "k: empty");
    eg_close(cx);
}

static eg_tensor *bent(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_relu(x[0]);
}
TEST(a_kink_is_reported_with_its_two_slopes)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(cx, ((float[]){ 0, 1, -1, 1e-5f }), 4);
    const eg_report *r = eg_gradcheck(bent, NULL, 1, &x, .names = "x", .axes = "i");
    ck_assert_int_eq(r->entry[0].verdict, EG_KINK);
    ck_assert_int_eq(r->entry[0].index, 0);
    ck_assert(r->entry[0].left == 0 && r->entry[0].right > .5);
    ck_assert_int_eq(r->right, 3); /* 1e-5 from the kink: smaller steps */
    HAS(r, "dx[i=0]: KINK: analytic 0");
    HAS(r, "left 0, right ");
    eg_close(cx);
}

static int calls;
static eg_tensor *drifts(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_scale(x[0], 1 + 1e-9 * calls++);
}
TEST(gradcheck_names_what_f_must_not_do)
{
    eg_ctx *cx = eg_open(.seed = 3);
    eg_tensor *x[2] = { eg_normal(cx, 0, 1, 3), eg_normal(cx, 0, 1, 2) };
    const eg_report *r = eg_gradcheck(drifts, NULL, 1, x);
    HAS(r, "NOISE: f gives another value when it is called again");
    ck_assert(!r->passed && r->input[0] != EG_WRONG);
    r = eg_gradcheck(bent, NULL, 2, x, .names = "a, b"); /* an unreachable x */
    HAS(r, "b: UNTESTED: f does not read it");
    ck_assert(!r->passed && r->input[1] == EG_UNTESTED);
    eg_close(cx);
}

static eg_tensor *writes(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_mut_f64(x[0])[0] += 1;
    return eg_exp(x[0]);
}
static eg_tensor *pokes(void *user, eg_tensor *const *x)
{
    (void)user;
    ((double *)(uintptr_t)eg_raw(x[0], NULL))[0] += 1;
    return eg_exp(x[0]);
}
static eg_tensor *second_fails(void *user, eg_tensor *const *x)
{
    (void)user;
    return calls++ ? eg_fail(eg_context(x[0]), "f: no second call") : eg_exp(x[0]);
}
static eg_tensor *grows(void *user, eg_tensor *const *x)
{
    (void)user;
    return calls++ ? eg_exp(x[0]) : eg_sum(NULL, x[0]);
}
static eg_tensor *counts(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_argmax(NULL, x[0]);
}
static eg_tensor *nothing(void *user, eg_tensor *const *x)
{
    (void)user, (void)x;
    return NULL;
}
static eg_tensor *given(void *user, eg_tensor *const *x)
{
    (void)x;
    return user;
}
static const struct {
    eg_function *f;
    const char *words;
} refused[] = {
    { writes, "gradcheck: f changes its input 1 in place" },
    { pokes, "gradcheck: f writes to its inputs" },
    { second_fails, "f: no second call" },
    { grows, "gradcheck: f returned () at first, and (3,) when called again" },
    { counts, "gradcheck: f returns i64; only floats have gradients" },
    { nothing, "gradcheck: f returned NULL" },
    { NULL, "gradcheck: the function is NULL" },
};
LOOP_TEST(bad_functions_get_one_sentence, sizeof refused / sizeof *refused)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 3);
    calls = 0;
    ck_assert_ptr_null(eg_gradcheck(refused[_i].f, NULL, 1, &x));
    eg_assert_error(cx, refused[_i].words);
    ck_assert(eg_type(x) == EG_F32 && eg_f32(x)[0] == 1); /* unchanged */
    eg_assert_grad(bent, NULL, x);                        /* and the next check works */
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Points at which f has no value, or none on one side. */
static eg_tensor *logarithm(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_log(x[0]);
}
static eg_tensor *looked_up(void *user, eg_tensor *const *x) /* refuses x < 0.5 */
{
    eg_ctx *cx = eg_context(x[0]);
    (void)user;
    return eg_at("[v], -> ", eg_arange(cx, EG_F64, 0, 3, 1),
                 eg_cast(eg_shift(eg_scale(x[0], 4), -3.3), EG_I64));
}
TEST(edges_of_the_domain)
{
    eg_ctx *cx = eg_open();
    eg_tensor *below = eg_full(cx, -1, 2), *near = eg_full(cx, 1e-9, 2), *one = eg_scalar(cx, 1);
    ck_assert_ptr_null(eg_gradcheck(logarithm, NULL, 1, &below));
    eg_assert_error(cx, "gradcheck: f's result is infinite or NaN at this point");
    eg_assert_grad(logarithm, NULL, eg_maximum(near, near)); /* its text is one name */
    const eg_report *r = eg_gradcheck(looked_up, NULL, 1, &one, .order = 1);
    ck_assert_msg(r != NULL, "%s", eg_error(cx));
    ck_assert(!r->passed && r->input[0] == EG_UNTESTED);
    eg_assert_ok(cx);
    eg_close(cx);
}

static eg_tensor *reads_f32(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_f32(x[0]) ? eg_sum(NULL, x[0]) : NULL;
}
TEST(bad_arguments_get_one_sentence)
{
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_tensor *x = eg_ones(cx, 3), *n = eg_full(cx, NAN, 2), *i = eg_randint(cx, 0, 5, 3);
#define REFUSES(words, ...)                            \
    do {                                               \
        ck_assert_ptr_null(eg_gradcheck(__VA_ARGS__)); \
        eg_assert_error(cx, words);                    \
    } while (0)
    REFUSES("input 1 has nan at element 0", bent, NULL, 1, &n);
    REFUSES("input 1 is i64; only floats", bent, NULL, 1, &i);
    REFUSES("belongs to another context", given, eg_ones(other, 3), 1, &x);
    REFUSES("rtol -1", bent, NULL, 1, &x, .rtol = -1);
    REFUSES("directions -1", bent, NULL, 1, &x, .directions = -1);
    REFUSES("order 9 is not in 1 to 8", bent, NULL, 1, &x, .order = 9);
    REFUSES("oracle 7 is unknown", bent, NULL, 1, &x, .oracle = (eg_oracle)7);
    REFUSES("operand 2 is NULL", bent, NULL, 2, ((eg_tensor *[]){ x, NULL }));
    REFUSES("65 inputs; at most 64", bent, NULL, 65, ((eg_tensor *[65]){ x }));
    REFUSES("\"x, y, z\" has 3 parts, but there is 1 input for .names", bent, NULL, 1, &x,
            .names = "x, y, z");
    REFUSES("\"i,j j\" has 2 parts, but there is 1 input for .axes", bent, NULL, 1, &x,
            .axes = "i,j j");
    REFUSES(".axes names the axes of input 1 \"i j\", but its rank is 1: (3,)", bent, NULL, 1, &x,
            .axes = "i j");
    REFUSES(".axes names the axes of input 2 \"ij k\", but its rank is 3: (1, 1, 3)", bent, NULL, 2,
            ((eg_tensor *[]){ x, eg_view(x, 1, 1, 3) }), .axes = "row, ij k");
    REFUSES("f32: the tensor is f64, not f32; a gradient check computes in f64", reads_f32, NULL, 1,
            &x);
    ck_assert_ptr_null(eg_gradcheck_with(NULL));
    ck_assert_ptr_null(eg_gradcheck(bent, NULL, 0, NULL));
    ck_assert_int_eq(eg_report_print(stdout, NULL), -1);
    eg_close(cx);
    eg_close(other);
}

static eg_tensor *penalty(void *user, eg_tensor *const *x) /* f computes a gradient itself */
{
    eg_tensor *g;
    (void)user;
    eg_grad(eg_sum(NULL, eg_tanh(x[0])), NULL, 1, x, &g);
    return eg_sum(NULL, eg_square(g));
}
/* a check inside f (a debug build makes one of an operation at its first use) */
static eg_tensor *checked(void *user, eg_tensor *const *x)
{
    eg_tensor *y = eg_tanh(eg_mul(x[0], user));
    const eg_report *r = eg_gradcheck(penalty, NULL, 1, &y, .mutate = true);
    return r && r->passed ? eg_square(y) : y;
}
/* reads elements: a part of f that is not on the tape */
static eg_tensor *opaque(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_add(eg_scale(x[0], 2),
                  eg_scalar(eg_context(x[0]), eg_item(eg_select_axis(eg_square(x[0]), 0, 0))));
}
TEST(gradients_inside_f_and_parts_off_the_tape)
{
    eg_ctx *cx = eg_open(.seed = 3);
    eg_tensor *x = eg_normal(cx, 0, 1, 3);
    eg_assert_grad2(penalty, NULL, x);
    eg_tensor *w = eg_exp(eg_normal(cx, 0, 1, 3));
    const eg_report *r = eg_gradcheck(checked, w, 2, ((eg_tensor *[]){ x, w }), .mutate = true);
    ck_assert_msg(r && r->passed && r->covered == 6 && eg_type(w) == EG_F32 && eg_op_of(w), "%s",
                  r ? r->text : eg_error(cx));
    r = eg_gradcheck(opaque, NULL, 1, &x);
    HAS(r, "each rule on the way agrees with its forward: what is missing is not on the tape");
    ck_assert_int_eq(r->input[0], EG_WRONG);
    r = eg_gradcheck(opaque, NULL, 1, &x, .oracle = EG_COMPLEX_STEP);
    HAS(r, "a part of f is not on the tape");
    ck_assert(!r->passed);
    eg_close(cx);
}

/* An operation of the user, without c128; its rule is right or wrong depending on its attribute. */
static bool cube_shape(eg_tensor *y)
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
    return eg_mul(g, eg_scale(eg_square(eg_operand(y, i)), *(const double *)eg_attr(y)));
}
static const eg_op cube = {
    .name = "cube", .arity = 1, .shape = cube_shape, .forward = cube_forward, .rule = cube_rule
};
static eg_tensor *cubed(void *user, eg_tensor *const *x)
{
    return eg_tanh(eg_apply(&cube, user, sizeof(double), 1, &x[0]));
}
TEST(the_wrong_rule_is_named)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x = eg_normal(cx, 0, 1, 3);
    const eg_report *r = eg_gradcheck(cubed, (double[]){ 3 }, 1, &x, .oracle = EG_COMPLEX_STEP);
    HAS(r, "cube cannot be evaluated in c128: differences instead of the complex step");
    ck_assert(r->passed);
    r = eg_gradcheck(cubed, (double[]){ 3.001 }, 1, &x);
    HAS(r, "WRONG: the rule of cube (");
    ck_assert_ptr_null(strstr(r->text, "the rule of tanh"));
    ck_assert_ptr_null(strstr(r->text, "not on the tape"));
    eg_close(cx);
}

/* A rule that returns NULL has a gradient of zeros. */
static eg_tensor *cube_without(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y, (void)g, (void)i;
    return NULL;
}
static const eg_op cube_silent = {
    .name = "silent", .arity = 1, .shape = cube_shape, .forward = cube_forward, .rule = cube_without
};
static eg_tensor *cubed_silently(void *user, eg_tensor *const *x)
{
    return eg_add(x[0], eg_apply(&cube_silent, user, 0, 1, &x[0]));
}
TEST(a_rule_that_returns_nothing_is_named)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x = eg_normal(cx, 0, 1, 3);
    const eg_report *r = eg_gradcheck(cubed_silently, NULL, 1, &x);
    HAS(r, "returns NULL, no gradient, and so disagrees with its own forward");
    ck_assert(!r->passed);
    ck_assert_ptr_null(strstr(r->text, "not on the tape"));
    eg_close(cx);
}

/* A constructor with a stack frame, one that is inlined, and one in a macro, each called from a
 * function that f calls: the report names the line of their call. */
#define INLINED static inline __attribute__((always_inline))
#define APART   static __attribute__((noinline))
APART eg_tensor *cube_apart(void *user, eg_tensor *x)
{
    eg_tensor *y = eg_apply(&cube, user, sizeof(double), 1, &x);
    return eg_ok(y) ? y : NULL;
}
INLINED eg_tensor *cube_inlined(void *user, eg_tensor *x)
{
    eg_tensor *y = eg_apply(&cube, user, sizeof(double), 1, &x);
    return eg_ok(y) ? y : NULL;
}
static int called_at;
APART eg_tensor *model(void *user, eg_tensor *x, bool inlined)
{
    called_at = __LINE__ + 1;
    eg_tensor *y = inlined ? cube_inlined(user, x) : cube_apart(user, x);
    return eg_tanh(y);
}
static eg_tensor *model_apart(void *user, eg_tensor *const *x)
{
    eg_tensor *y = model(user, x[0], false);
    return eg_square(y);
}
static eg_tensor *model_inlined(void *user, eg_tensor *const *x)
{
    eg_tensor *y = model(user, x[0], true);
    return eg_square(y);
}
TEST(the_call_of_a_constructor_is_named_inlined_or_not)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x = eg_normal(cx, 0, 1, 3);
    for (int inlined = 0; inlined < 2; inlined++) {
        const eg_report *r =
            eg_gradcheck(inlined ? model_inlined : model_apart, (double[]){ 3.001 }, 1, &x);
        char want[64] = "WRONG: the rule of cube (";
#if HAVE_LIBDW
        snprintf(want, sizeof want, "the rule of cube (test_gradcheck.c:%d)", called_at);
#endif
        HAS(r, want);
    }
    eg_close(cx);
}

/* With a tail call f has no frame; the report then names the call of the check. */
static eg_tensor *cube_at_once(void *user, eg_tensor *const *x)
{
    return eg_apply(&cube, user, sizeof(double), 1, x);
}
TEST(a_tail_call_of_the_constructor_leaves_the_call_of_the_check)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x = eg_normal(cx, 0, 1, 3);
    const eg_report *r = eg_gradcheck(cube_at_once, (double[]){ 3.001 }, 1, &x);
#if HAVE_LIBDW
    HAS(r, "the rule of cube (test_gradcheck.c:");
#else
    HAS(r, "the rule of cube (");
#endif
    eg_close(cx);
}

static eg_tensor *cube_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    return eg_mul(dx[0], eg_scale(eg_square(eg_operand(y, 0)), 2));
}
static const eg_op skewed = {
    .name = "skewed",
    .arity = 1,
    .shape = cube_shape,
    .forward = cube_forward,
    .rule = cube_rule,
    .jvp = cube_jvp,
};
static eg_tensor *skew(void *user, eg_tensor *const *x)
{
    return eg_apply(&skewed, user, sizeof(double), 1, &x[0]);
}
TEST(forward_mode_is_held_against_reverse_mode)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x = eg_normal(cx, 0, 1, 3);
    const eg_report *r = eg_gradcheck(skew, (double[]){ 3 }, 1, &x);
    HAS(r, "WRONG: along a random direction forward mode says ");
    ck_assert(!r->passed && r->right == 3);
    r = eg_gradcheck(skew, (double[]){ 3 }, 1, &x, .full = true);
    HAS(r, "WRONG: along a random direction forward mode says ");
    eg_close(cx);
}

/* A tolerance of a hundredth does not detect an error of a ten-thousandth, as the surviving mutants
 * show. */
static eg_tensor *linear(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_einsum("ij,jk->ik", eg_tanh(x[0]), x[1]);
}
TEST(surviving_mutants_fail_and_are_named)
{
    eg_ctx *cx = eg_open(.seed = 3);
    eg_tensor *x[2] = { eg_normal(cx, 0, 1, 3, 3), eg_normal(cx, 0, 1, 3, 2) };
    const eg_report *r = eg_gradcheck(linear, NULL, 2, x, .mutate = true);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->mutants, 3 * 4); /* edges: einsum to both operands, tanh to x0 */
    ck_assert_int_eq(r->harmless, 1);    /* (3, 2) has no axes to exchange */
    ck_assert_int_eq(r->caught, 11);
    const int64_t cost = r->calls;
    r = eg_gradcheck(linear, NULL, 2, x, .mutate = true, .rtol = 1e-2);
    HAS(r, "the check does not notice when the gradient of operand 1 of einsum \"ij,jk->ik\" (");
    HAS(r, ") comes times 1.0001");
    ck_assert(!r->passed && r->survivors == 3 && r->right == r->entries);
    ck_assert_int_lt(cost, 6 + 7 * 15 + 3 * 13 + 2); /* a mutant does not call f again */
    eg_close(cx);
}

/* A mutant of a part that hardly contributes is counted apart. */
static eg_tensor *faint(void *user, eg_tensor *const *x)
{
    return eg_add(eg_tanh(x[0]), eg_scale(eg_sin(eg_tanh(x[0])), *(const double *)user));
}
TEST(a_mutant_without_a_measurable_effect_does_not_survive)
{
    for (int k = 0; k < 2; k++) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
        eg_tensor *x = eg_normal(cx, 0, 1, 3, 2);
        const eg_report *r =
            eg_gradcheck(faint, (double[]){ k ? 1e-5 : 1e-2 }, 1, &x, .mutate = true);
        ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
        ck_assert_int_eq(r->unmeasurable, k ? 4 : 0);
        ck_assert_int_eq(r->mutants, r->caught + r->harmless + r->unmeasurable);
        ck_assert(!k == !strstr(r->text, "without a measurable effect, 0 survived"));
        eg_close(cx);
    }
}

TEST(a_direction_takes_at_most_13_calls)
{
    eg_ctx *cx = eg_open(.seed = 3);
    eg_tensor *x[2] = { eg_normal(cx, 0, 1, 20, 30), eg_normal(cx, 0, 1, 20, 30) };
    const eg_report *r = eg_gradcheck(weigh, NULL, 2, x, .directions = 2);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    ck_assert_int_eq(r->entries, 4);
    ck_assert_int_le(r->calls, 6 + 4 * 13);
    HAS(r, "4 of 4 directions right");
    eg_close(cx);
}

/* -- functions that do not use tensors --------------------------------------------------------- */
typedef struct kernel {
    int wrong; /* 1: a factor; 2: an error; 3: writes outside of dx; 4: writes to g */
} kernel;
static int kernel_f(void *user, const double *x, double *y)
{
    (void)user;
    y[0] = x[0] * x[1];
    y[1] = exp(x[2]) + x[0];
    return 0;
}
static int kernel_vjp(void *user, const double *x, const double *g, double *dx)
{
    const kernel *k = user;
    dx[0] = g[0] * x[1] + g[1];
    dx[1] = g[0] * x[0] * (k->wrong == 1 ? 2 : 1);
    dx[2] = (k->wrong == 5 ? dx[2] : 0) + g[1] * exp(x[2]);
    if (k->wrong == 3) dx[3] = 1;
    if (k->wrong == 4) ((double *)(uintptr_t)g)[0] = 0;
    return k->wrong == 2 ? 7 : 0;
}
/* Options that are NULL, or those of a caller with an older header, end before what was on the
 * stack becomes an option. */
static void fill_the_stack(void)
{
    volatile unsigned char bytes[4096];
    for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = 0x5a;
}
TEST(gradcheck_fn_accepts_the_shorter_options_of_an_older_header)
{
    eg_ctx *cx = eg_open();
    const double x[3] = { 1, 2, 0.5 };
    kernel k = { 0 };
    eg_gradcheck_fn_args older = { .size = offsetof(eg_gradcheck_fn_args, names),
                                   .cx = cx,
                                   .f = kernel_f,
                                   .vjp = kernel_vjp,
                                   .user = &k,
                                   .n = 3,
                                   .m = 2,
                                   .x = x };
    fill_the_stack();
    ck_assert_ptr_null(eg_gradcheck_fn_with(NULL));
    fill_the_stack();
    const eg_report *r = eg_gradcheck_fn_with(&older);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}
TEST(functions_of_plain_numbers)
{
    eg_ctx *cx = eg_open();
    const double x[3] = { 1, 2, 0.5 };
    kernel k = { 0 };
    const eg_report *r = eg_gradcheck_fn(cx, kernel_f, kernel_vjp, &k, 3, 2, x, .full = true);
    ck_assert_msg(r && r->passed && r->entries == 6, "%s", r ? r->text : eg_error(cx));
    k.wrong = 1;
    r = eg_gradcheck_fn(cx, kernel_f, kernel_vjp, &k, 3, 2, x, .names = "x");
    HAS(r, "dx[1]: WRONG: analytic ");
    ck_assert_str_eq(r->entry[0].rule, "vjp");
    ck_assert_int_eq(r->entry[0].operand, 0);
    k.wrong = 4;
    r = eg_gradcheck_fn(cx, kernel_f, kernel_vjp, &k, 3, 2, x);
    HAS(r, "the rule of vjp");
    ck_assert(!r->passed);
    k.wrong = 2;
    ck_assert_ptr_null(eg_gradcheck_fn(cx, kernel_f, kernel_vjp, &k, 3, 2, x));
    eg_assert_error(cx, "gradcheck: vjp returned 7");
    k.wrong = 3;
    ck_assert_ptr_null(eg_gradcheck_fn(cx, kernel_f, kernel_vjp, &k, 3, 2, x));
    eg_assert_error(cx, "gradcheck: vjp writes outside of its 3 elements");
    k.wrong = 5;
    ck_assert_ptr_null(eg_gradcheck_fn(cx, kernel_f, kernel_vjp, &k, 3, 2, x));
    eg_assert_error(cx, "gradcheck: vjp does not set element 2 of its 3: it is left as it was, or "
                        "something is added to it");
    ck_assert_ptr_null(eg_gradcheck_fn(cx, kernel_f, NULL, &k, 3, 2, x));
    eg_assert_error(cx, "gradcheck: f, vjp or x is NULL");
    eg_close(cx);
}

static eg_tensor *cube_call(eg_tensor *const *x)
{
    return eg_apply(&cube, (double[]){ 3 }, sizeof(double), 1, x);
}
TEST(an_operation_is_checked_at_its_samples_and_tap_says_so)
{
    eg_ctx *cx = eg_open();
    const eg_sample samples[] = { { cube_call, "4", 0, 0 }, { cube_call, "2x3", 0, 0 }, { 0 } };
    eg_op op = cube;
    char message[4096] = "";
    ck_assert_ptr_null(eg_gradcheck_op(cx, &op));
    eg_assert_error(cx, "gradcheck: cube has no samples to be checked at");
    op.samples = samples;
    const eg_report *r = eg_gradcheck_op(cx, &op);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    eg_assert_op(&op);
    eg_tensor *x = eg_ones(cx, 3);
    r = eg_gradcheck(cubed, (double[]){ 3.1 }, 1, &x);
    FILE *f = fmemopen(message, sizeof message, "w");
    ck_assert(f && r && eg_report_tap(f, r, 2, "cube") == 0);
    fclose(f);
    ck_assert_msg(
        message == strstr(message, "not ok 2 - cube\n  ---\n  message: |\n    gradcheck: FAILED\n"),
        "%s", message);
    ck_assert_msg(strstr(message, "\n  ...\n") != NULL, "%s", message);
    ck_assert_int_eq(eg_report_tap(stdout, NULL, 1, ""), -1);
    eg_close(cx);
}
