/* test_affine.c: a product, a bias, an activation and a residual in one node have the same bits as
 * these operations one after another; so have their gradients of first and second order. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"
#include "stored_values.h"

static eg_ctx *cx;
static void setup(void) { cx = eg_open(.dtype = EG_F64); }
static void teardown(void) { eg_close(cx); }
GROUP("affine", .setup = setup, .teardown = teardown)

/* Random operands of a form with other strides: 0 contiguous, 1 with axes reversed in memory, 2
 * every second element of the last axis, 3 the first axis reversed. */
static eg_tensor *operand(eg_dtype dtype, const char *start, int layout)
{
    int64_t dim[EG_RANK_MAX] = { 0 };
    int rank = 0, order[EG_RANK_MAX];
    for (char *at = (char *)(uintptr_t)start; *start != '('; at++) {
        dim[rank++] = strtoll(at, &at, 10);
        if (*at != 'x') break;
    }
    if (dtype == EG_C128)
        return eg_complex(operand(EG_F64, start, layout), operand(EG_F64, start, layout));
    if (!rank) return eg_uniform_n(cx, dtype, -1, 1, 0, dim);
    if (layout == 1) {
        int64_t turned[EG_RANK_MAX];
        for (int r = 0; r < rank; r++) {
            turned[r] = dim[rank - 1 - r];
            order[r] = rank - 1 - r;
        }
        return eg_permute_n(eg_uniform_n(cx, dtype, -1, 1, rank, turned), rank, order);
    }
    if (layout == 2) dim[rank - 1] *= 2;
    eg_tensor *x = eg_uniform_n(cx, dtype, -1, 1, rank, dim);
    return layout == 2 ? eg_slice_axis(x, -1, 0, EG_END, 2) : layout == 3 ? eg_flip_axis(x, 0) : x;
}
typedef struct form {
    const char *spec, *x, *W, *b, *y;
    bool apart; /* it needs more than one node */
} form;
static const form forms[] = {
    { "bi,io->bo", "5x4", "4x3", "3", "5x3", false },
    { "...i,io->...o", "2x5x64", "64x40", "40", "2x5x40", false },
    { "...i,io->...o", "3x43x17", "17x100", "100", "3x43x100", false },
    { "bi,io->bo", "40x300", "300x70", "70", "40x70", false }, /* more than one block of the sum */
    { "bi,io->bo", "270x280", "280x300", "300", "270x300", false }, /* packed */
    { "bi,io->ob", "270x280", "280x300", "270", "300x270", false },
    { "bi,oi->bo", "33x20", "29x20", "33x29", "33x29", false }, /* a bias of the whole result */
    { "bi,io->bo", "5x4", "4x3", "()", "5x3", false },
    { "ibm,mhd->bihd", "7x2x12", "12x3x5", "3x5", "2x7x3x5", false },
    { "ibm,mhd->bihd", "7x2x12", "12x3x5", "5", "2x7x3x5", false },
    { "bihd,hdm->bim", "2x9x3x4", "3x4x24", "24", "2x9x24", false },
    { "ib,jb->ijb", "3x4", "2x4", "4", "3x2x4", false }, /* no product of matrices */
    { "bhij,bjhd->bihd", "2x9x6x5", "2x5x9x4", "4", "2x6x9x4", false },
    { "bi,i->b", "6x9", "9", "()", "6", false },
    { "i,io->o", "9", "9x6", "6", "6", false },
    { "bi,io->bo", "5x0", "0x3", "3", "5x3", false },
    { "bi,io->bo", "0x4", "4x3", "3", "0x3", false },
    { "i (b c=2) m,mo->i (b c) o", "3x4x2", "2x3", "3", "3x4x3", true },
    { "bik,io->bo", "5x4x2", "4x3", "3", "5x3", true },
    { "i,j->ii", "3", "2", "3", "3x3", true },
    { "bi,o->bo", "5x4", "3", "3", "5x3", true },
};
enum { FORMS = sizeof forms / sizeof *forms };
/* f NULL: without; called by name, and as a function */
typedef struct activation {
    const char *name;
    eg_tensor *(*f)(eg_tensor *);
} activation;
static const activation activations[] = {
    { NULL, NULL },      { "gelu", eg_gelu },         { "relu", eg_relu },
    { "tanh", eg_tanh }, { "sigmoid", eg_sigmoid },   { "silu", eg_silu },
    { "exp", eg_exp },   { "square", eg_square },     { "gelu_tanh", eg_gelu_tanh },
    { "sign", eg_sign }, { "softplus", eg_softplus },
};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };
static eg_tensor *composed(const char *spec, eg_tensor *x, eg_tensor *W, eg_tensor *b,
                           const activation *a, eg_tensor *r)
{
    eg_tensor *y = eg_einsum(spec, x, W);
    if (b) y = eg_add(y, b);
    if (a->f) y = a->f(y);
    return r ? eg_add(y, r) : y;
}

LOOP_TEST(bits_are_those_of_one_operation_after_the_other, FORMS)
{
    const form *f = &forms[_i];
    for (int k = _i % SLOWER; k < 4 * 2 * 2 * ACTIVATIONS; k += SLOWER) {
        const int layout = k % 4, with = k / 4 % 2, recorded = k / 8 % 2;
        const activation *a = &activations[k / 16];
        const eg_mark m = eg_push(cx);
        for (int t = 0; t < 3; t++) {
            const eg_dtype dtype = (eg_dtype[]){ EG_F32, EG_F64, EG_C128 }[t];
            if (t == 2 && (layout || f->x[0] == '2')) continue;
            eg_tensor *x = operand(dtype, f->x, layout),
                      *W = operand(dtype, f->W, (layout + 1) % 4),
                      *b = k % 3 ? operand(dtype, f->b, layout) : NULL,
                      *r = with ? operand(dtype, f->y, layout) : NULL;
            const bool was = eg_nograd(cx, !recorded);
            eg_tensor *y = eg_affine(f->spec, x, W, b, .activation = a->name, .add = r),
                      *z = composed(f->spec, x, W, b, a, r);
            eg_assert_ok(cx);
            for (int part = 0; part < 1 + (t == 2); part++) {
                eg_tensor *(*const of)(eg_tensor *) = part ? eg_imag : eg_real;
                ck_assert_msg(same_bits(t < 2 ? y : of(y), t < 2 ? z : of(z)),
                              "%s, %s, layout %d, %s", f->spec, a->name ? a->name : "no activation",
                              layout, eg_type_name(dtype));
            }
            if (recorded && !f->apart && (a->f || b || r))
                ck_assert_str_eq(eg_op_of(y)->name, a->f ? "affine_activation" : "affine");
            eg_nograd(cx, was);
        }
        eg_pop(cx, m);
    }
}

/* Σ cos(k) d_k, so that elements differ */
static eg_tensor *weighted(eg_tensor *y)
{
    eg_tensor *w = eg_zeros_like(y);
    double *p = eg_mut_f64(w);
    for (int64_t k = 0; k < eg_size(y); k++) p[k] = cos(.3 * (double)k);
    return eg_sum(NULL, eg_mul(y, w));
}
/* Sets d to the gradients of ⟨y, w⟩, and e to those of Σ d². */
static void both_orders(eg_tensor *y, int n, eg_tensor *const *x, eg_tensor **d, eg_tensor **e)
{
    eg_tensor *s = NULL;
    ck_assert_msg(!eg_grad(weighted(y), NULL, n, x, d), "%s", eg_error(cx));
    for (int k = 0; k < n; k++) {
        eg_tensor *part = eg_sum(NULL, eg_square(d[k]));
        s = s ? eg_add(s, part) : part;
    }
    ck_assert_msg(!eg_grad(s, NULL, n, x, e), "%s", eg_error(cx));
}
LOOP_TEST(gradients_are_those_of_the_composed_form, FORMS)
{
    const form *f = &forms[_i];
    for (int k = _i % SLOWER; k < 4 * ACTIVATIONS; k += SLOWER) {
        const activation *a = &activations[k / 4];
        const int layout = k % 4;
        if (f->x[0] == '2' && f->x[1] == '7' && layout) continue; /* the large ones only once */
        const eg_mark m = eg_push(cx);
        eg_tensor *x[4] = { operand(EG_F64, f->x, layout), operand(EG_F64, f->W, layout) };
        int n = 2;
        eg_tensor *b = k % 3 ? x[n++] = operand(EG_F64, f->b, 0) : NULL,
                  *r = k % 5 ? x[n++] = operand(EG_F64, f->y, layout) : NULL;
        eg_tensor *d[2][4], *e[2][4];
        both_orders(eg_affine(f->spec, x[0], x[1], b, .activation = a->name, .add = r), n, x, d[0],
                    e[0]);
        both_orders(composed(f->spec, x[0], x[1], b, a, r), n, x, d[1], e[1]);
        for (int i = 0; i < n; i++) {
            eg_assert_close(d[0][i], d[1][i], 1e-12);
            eg_assert_close(e[0][i], e[1][i], 1e-11);
        }
        /* without a history of its own */
        eg_tensor *y = weighted(eg_affine(f->spec, x[0], x[1], b, .activation = a->name, .add = r)),
                  *once[4];
        const bool was = eg_nograd(cx, true);
        eg_grad(y, NULL, n, x, once);
        eg_nograd(cx, was);
        eg_assert_ok(cx);
        for (int i = 0; i < n; i++) eg_assert_close(once[i], d[1][i], 1e-12);
        eg_pop(cx, m);
    }
}

typedef struct layer {
    const char *activation;
    bool bias, add;
} layer;
static eg_tensor *checked(void *user, eg_tensor *const *x)
{
    const layer *l = user;
    return eg_affine("bti,io->bto", x[0], x[1], l->bias ? x[2] : NULL, .activation = l->activation,
                     .add = l->add ? x[2 + l->bias] : NULL);
}
LOOP_TEST(the_check_passes_by_complex_steps_and_to_the_third_order, 12)
{
    static const char *const name[] = { NULL, "gelu", "exp", "x * sigmoid(1.702 * x)" };
    layer l = { name[_i / 3], _i % 3 > 0, _i % 3 > 1 };
    eg_tensor *x[4] = { eg_uniform(cx, -1, 1, 2, 3, 4), eg_uniform(cx, -1, 1, 4, 5) };
    int n = 2;
    if (l.bias) x[n++] = eg_uniform(cx, -1, 1, 5);
    if (l.add) x[n++] = eg_uniform(cx, -1, 1, 2, 3, 5);
    for (int oracle = 0; oracle < 2; oracle++) {
        const eg_report *r =
            eg_gradcheck(checked, &l, n, x, .order = oracle ? 1 : 3, .directions = oracle ? 0 : 3,
                         .mutate = oracle, .oracle = oracle ? EG_COMPLEX_STEP : EG_DIFFERENCES);
        eg_assert_ok(cx);
        ck_assert_msg(r->passed, "%s", r->text);
    }
    /* forward mode */
    eg_tensor *y = checked(&l, x), *v[4], *d[4];
    for (int k = 0; k < n; k++) v[k] = eg_cos(x[k]);
    eg_tensor *t = eg_jvp(y, n, x, v), *u = eg_sin(y), *sum = eg_full_n(cx, EG_F64, 0, 0, NULL);
    eg_grad(y, u, n, x, d);
    for (int k = 0; k < n; k++) sum = eg_add(sum, eg_sum(NULL, eg_mul(d[k], v[k])));
    eg_assert_close(eg_sum(NULL, eg_mul(u, t)), sum, 1e-13);
}

TEST(activation_formulas_equal_eg_expr)
{
    eg_tensor *x = eg_uniform(cx, -2, 2, 3, 4, 5), *W = eg_uniform(cx, -1, 1, 5, 6),
              *b = eg_uniform(cx, -1, 1, 6), *r = eg_uniform(cx, -1, 1, 4, 3, 6);
    eg_tensor *y = eg_affine("abi,io->bao", x, W, b, .activation = "x > 0 ? x : 0.1 * x", .add = r),
              *z = eg_add(eg_leaky_relu(eg_affine("abi,io->bao", x, W, b), .1), r);
    eg_assert_ok(cx);
    ck_assert(same_bits(y, z));
    eg_assert_close(eg_affine("abi,io->bao", x, W, b, .activation = "x"),
                    eg_affine("abi,io->bao", x, W, b), 0);
    y = eg_affine("abi,io->bao", x, W, b, .activation = "x + i");
    ck_assert(!eg_ok(y));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "'i'"));
    eg_clear(cx);
}

/* The value and all gradients have the same bits with 1, 2 and 5 threads. */
TEST(bits_do_not_depend_on_threads)
{
    static float kept[4][400 * 300];
    for (int threads = 0; threads < 3; threads++) {
        eg_ctx *team = eg_open(.threads = (int[]){ 1, 2, 5 }[threads], .seed = 5);
        eg_tensor *x[] = { eg_uniform(team, -1, 1, 400, 280), eg_uniform(team, -1, 1, 280, 300),
                           eg_uniform(team, -1, 1, 300) };
        eg_tensor *r = eg_uniform(team, -1, 1, 400, 300), *d[4];
        d[3] = eg_affine("bi,io->bo", x[0], x[1], x[2], .activation = "gelu", .add = r);
        eg_grad(d[3], eg_ones_like(d[3]), 3, x, d);
        eg_assert_ok(team);
        for (int k = 0; k < 4; k++) {
            const size_t bytes = (size_t)eg_size(d[k]) * sizeof(float);
            if (!threads) memcpy(kept[k], eg_f32(eg_contiguous(d[k])), bytes);
            ck_assert(!memcmp(kept[k], eg_f32(eg_contiguous(d[k])), bytes));
        }
        eg_close(team);
    }
}

/* A value that one activation's gradient needs and another's does not is kept once, and only while
 * the context records. */
#if !EG_DEBUG_ALLOC
TEST(affine_saves_what_its_gradient_needs)
{
    enum { N = 64 * 64 * 8 };
    static const struct {
        const char *f;
        bool recorded;
        int tensors;
    } rows[] = { { NULL, true, 1 },
                 { "gelu", true, 2 },
                 { "gelu", false, 1 },
                 { "relu", true, 1 },
                 { "exp", true, 1 } };
    eg_tensor *x = eg_uniform(cx, -1, 1, 64, 64), *W = eg_uniform(cx, -1, 1, 64, 64);
    eg_tensor *b = eg_uniform(cx, -1, 1, 64);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const bool was = eg_nograd(cx, !rows[k].recorded);
        eg_affine("bi,io->bo", x, W, b, .activation = rows[k].f); /* plans it */
        const size_t before = eg_stats(cx).used;
        eg_affine("bi,io->bo", x, W, b, .activation = rows[k].f);
        const size_t used = eg_stats(cx).used - before;
        ck_assert_msg(used / N == (size_t)rows[k].tensors && used % N < 1024, "%s: %zu bytes",
                      rows[k].f ? rows[k].f : "none", used);
        eg_nograd(cx, was);
    }
}
#endif

/* A change in place of what a rule reads is detected, also if the value is saved with the node. */
TEST(changes_in_place_are_noticed)
{
    eg_tensor *x = eg_uniform(cx, -1, 1, 3, 4), *W = eg_uniform(cx, -1, 1, 4, 5),
              *b = eg_uniform(cx, -1, 1, 5), *d;
    eg_tensor *y = eg_affine("bi,io->bo", x, W, b, .activation = "relu");
    eg_mut_f64(y)[0] = 7;
    ck_assert(eg_grad(y, eg_ones_like(y), 1, &b, &d));
    eg_assert_error(cx, "changed in place");
    y = eg_affine("bi,io->bo", x, W, b, .activation = "gelu");
    eg_mut_f64(W)[0] = 7;
    ck_assert(eg_grad(y, eg_ones_like(y), 1, &x, &d));
    eg_assert_error(cx, "operand 2 of affine_activation");
}

TEST(affine_names_the_operand_that_does_not_fit)
{
    eg_tensor *x = eg_zeros(cx, 5, 4), *W = eg_zeros(cx, 4, 3), *b = eg_zeros(cx, 2), *y;
    static const char *const message[] = {
        "affine: the bias is (2,), but the last axes of the result are those of (5, 3)",
        "affine: index 'i' is 4 in operand 1 but 3 in operand 2",
        "affine: x is f64 but b is f32; eg_cast one of them",
        "affine: the spec is NULL",
        "affine: the bias is (5, 5, 3), but the last axes of the result are those of (5, 3)",
    };
    for (int k = 0; k < 5; k++) {
        eg_tensor *const b_of[] = { b, b, eg_cast(b, EG_F32), b, eg_zeros(cx, 5, 5, 3) };
        y = eg_affine(k == 1 ? "bi,oi->bo" : k == 3 ? NULL : "bi,io->bo", x, W, b_of[k]);
        ck_assert(!eg_ok(y));
        ck_assert_msg(strstr(eg_error(cx), message[k]) != NULL, "%s", eg_error(cx));
        eg_clear(cx);
    }
    /* without a bias it is an einsum, but errors name the function that was called */
    static const char *const bare[] = {
        "affine: index 'i' is 4 in operand 1 but 3 in operand 2\n  bi,oi->bo",
        "affine: x is f64 but W is f32; eg_cast one of them",
        "affine: the spec is NULL",
        "affine: the string has 1 operand but 2 were given",
        "affine: operand 2 is NULL",
    };
    for (int k = 0; k < 5; k++) {
        static const char *const spec[] = { "bi,oi->bo", "bi,io->bo", NULL, "bi->b", "bi,io->bo" };
        y = eg_affine(spec[k], x, k == 1 ? eg_cast(W, EG_F32) : k == 4 ? NULL : W, NULL);
        ck_assert(!eg_ok(y));
        eg_assert_error(cx, bare[k]);
    }
    ck_assert(eg_affine("bi,io->bo", NULL, NULL, NULL) == NULL);
    ck_assert(eg_affine("bi,io->bo", NULL, NULL, NULL, .activation = "x + 1") == NULL);
    W = eg_zeros(cx, 4, 2);
    static const struct {
        const char *activation, *message;
        int64_t rows;
    } more[] = {
        { NULL, "affine: .add is (4, 2), but the result is (5, 2)", 4 },
        { "gelu", "affine: .add is (4, 2), but the result is (5, 2)", 4 },
        { "x + 1", "affine: .add is (4, 2), but the result is (5, 2)", 4 },
        { "swish", "affine: .activation is \"swish\"; it is an operation of one operand", 5 },
        { "leaky_relu", "affine: .activation is \"leaky_relu\"; it is an operation of", 5 },
        { "", "affine: .activation is \"\"; it is an operation", 5 },
        { "x +", "expr: ", 5 },
        { "x + y", "expr: ", 5 },
    };
    for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
        y = eg_affine("bi,io->bo", x, W, b, .activation = more[k].activation,
                      .add = eg_zeros(cx, more[k].rows, 2));
        ck_assert(!eg_ok(y));
        eg_assert_error(cx, more[k].message);
    }
    ck_assert(!eg_ok(
        eg_affine("bi,io->bo", x, W, b, .add = eg_full_n(cx, EG_F32, 0, 2, (int64_t[]){ 5, 2 }))));
    eg_assert_error(cx, "affine: x is f64 but .add is f32; eg_cast one of them");
    /* integers are summed in i64, one operation after another */
    eg_tensor *i = eg_cast(x, EG_I32), *V = eg_cast(W, EG_I32), *c = eg_cast(b, EG_I32);
    ck_assert_int_eq(eg_type(eg_affine("bi,io->bo", i, V, c, .activation = "relu")), EG_I64);
    ck_assert(!eg_ok(eg_affine("bi,io->bo", i, V, c, .activation = "gelu")));
    eg_assert_error(cx, "gelu: operand 1 is i64");
}
