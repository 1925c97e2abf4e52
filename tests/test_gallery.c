/* test_gallery.c: twelve wrong gradients, and the verdict of the check on each. docs/gradcheck.md
 * shows the same text, together with that of PyTorch's gradcheck (tests/reference/gallery.py); the
 * numbers in brackets, errors of differences, are not compared. */
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

/* -- operations with a right forward and a wrong rule ------------------------------------------ */
static bool scalar_shape(eg_tensor *y) { return eg_result(y, eg_type(eg_operand(y, 0)), 0, NULL); }
static bool becomes(eg_tensor *y, eg_tensor *value) { return eg_assign(y, value) == 0; }
static eg_tensor *a_of(eg_tensor *y) { return eg_operand(y, 0); }
static eg_tensor *b_of(eg_tensor *y) { return eg_operand(y, 1); }

static bool times_forward(eg_tensor *y) { return becomes(y, eg_mul(a_of(y), b_of(y))); }
static bool square_forward(eg_tensor *y) { return becomes(y, eg_square(a_of(y))); }
static bool matmul_forward(eg_tensor *y)
{
    return becomes(y, eg_einsum("ij,jk->ik", a_of(y), b_of(y)));
}
static bool weights_forward(eg_tensor *y) { return becomes(y, eg_softmax("i [j]", a_of(y))); }
static bool energy_forward(eg_tensor *y)
{
    return becomes(y, eg_einsum("ij,ij->", a_of(y), a_of(y)));
}
static bool shifted_forward(eg_tensor *y) { return becomes(y, eg_add(a_of(y), b_of(y))); }

static eg_tensor *sign(eg_tensor *y, eg_tensor *g, int i)
{
    return i == 0 ? eg_mul(g, b_of(y)) : eg_neg(eg_mul(g, a_of(y)));
}
/* 2 g x */
static eg_tensor *factor(eg_tensor *y, eg_tensor *g, int i) { return eg_mul(g, eg_operand(y, i)); }
static eg_tensor *transposed(eg_tensor *y, eg_tensor *g, int i) /* ij,ik->jk */
{
    return i == 0 ? eg_einsum("ik,jk->ij", g, b_of(y)) : eg_einsum("ij,jk->ik", a_of(y), g);
}
/* − y Σ_j g y */
static eg_tensor *dropped(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return eg_mul(g, y);
}
static eg_tensor *wrong_axis(eg_tensor *y, eg_tensor *g, int i) /* ij,ij->i */
{
    (void)i;
    return eg_mul(y, eg_sub(g, eg_einsum("ij,ij->j", g, y)));
}
/* x is a repeated row: only the first of the repetitions counts */
static eg_tensor *once(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *d = eg_scale(eg_mul(g, eg_operand(y, i)), 2);
    return eg_pad_axis(eg_slice_axis(d, 0, 0, 1, 1), 0, 0, eg_dim(d, 0) - 1, 0);
}
/* i = 1: ij->j */
static eg_tensor *not_undone(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y, (void)i;
    return g;
}

#define ROW(NAME, ARITY, SHAPE, FORWARD, RULE)                                          \
    static const eg_op NAME = {                                                         \
        .name = #NAME, .arity = ARITY, .shape = SHAPE, .forward = FORWARD, .rule = RULE \
    }
ROW(times, 2, like_first, times_forward, sign);
ROW(squared, 1, like_first, square_forward, factor);
ROW(matmul, 2, like_first, matmul_forward, transposed);
ROW(weights, 1, like_first, weights_forward, dropped);
ROW(attended, 1, like_first, weights_forward, wrong_axis);
ROW(energy, 1, scalar_shape, energy_forward, once);
ROW(biased, 2, like_first, shifted_forward, not_undone);
static eg_tensor *apply(void *op, eg_tensor *const *x)
{
    return eg_apply(op, NULL, 0, ((const eg_op *)op)->arity, x);
}

/* -- functions whose mistake is not in a rule -------------------------------------------------- */
static eg_tensor *detached(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_mul(x[0], eg_detach(eg_exp(x[0])));
}
static eg_tensor *relu(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_relu(x[0]);
}
static eg_tensor *stale(void *u, eg_tensor *const *x)
{
    eg_tensor *y = eg_exp(x[0]);
    (void)u;
    eg_assign(y, eg_scale(y, .5));
    return y;
}
static eg_tensor *cast(void *u, eg_tensor *const *x)
{
    (void)u;
    return eg_cast(eg_exp(eg_cast(x[0], EG_F32)), EG_F64);
}
static eg_tensor *worked_example(void *cut, eg_tensor *const *w)
{
    eg_ctx *cx = eg_context(w[0]);
    eg_tensor *x = eg_on("i, m -> i m", eg_add, eg_arange(cx, EG_F64, 0, 4, 1),
                         eg_arange(cx, EG_F64, 1, 9, 1));
    eg_tensor *q = eg_einsum("im,md->id", x, cut ? eg_detach(w[0]) : w[0]),
              *k = eg_einsum("im,md->id", x, w[1]);
    return eg_einsum("ij,jm,md->id",
                     eg_softmax("i [j]", eg_scale(eg_einsum("id,jd->ij", q, k), .5)), x, w[2]);
}

/* -- inputs ----------------------------------------------------------------------------------- */
/* sin of evenly spaced numbers, without symmetry */
static eg_tensor *ramp(eg_ctx *cx, int rows, int columns, double from, double step)
{
    eg_tensor *t = eg_sin(eg_arange(cx, EG_F64, from, from + (rows * columns - .5) * step, step));
    return eg_detach(rows > 1 ? eg_reshape(t, rows, columns) : t);
}
static eg_tensor *example_matrix(eg_ctx *cx, double a, double b, double c, double d)
{
    return eg_detach(eg_scale(eg_on("m, d -> m d", eg_add, eg_arange(cx, EG_F64, 0, 8, 1),
                                    eg_from(cx, ((double[]){ a, b, c, d }), 4)),
                              0.1));
}
static void flat(eg_ctx *cx, eg_tensor **x)
{
    x[0] = ramp(cx, 1, 3, 1, .7);
    x[1] = ramp(cx, 1, 3, 2, .4);
}
static void wide(eg_ctx *cx, eg_tensor **x)
{
    x[0] = ramp(cx, 3, 4, 1, .7);
    x[1] = ramp(cx, 1, 4, 2, .4);
}
static void even(eg_ctx *cx, eg_tensor **x)
{
    x[0] = ramp(cx, 3, 3, 1, .7);
    x[1] = ramp(cx, 3, 3, 2, .4);
}
static void rows(eg_ctx *cx, eg_tensor **x) { x[0] = eg_expand(ramp(cx, 1, 3, 1, .7), 4, 3); }
static void zero(eg_ctx *cx, eg_tensor **x) { x[0] = eg_from(cx, ((double[]){ 0, 1, -1 }), 3); }
static void seed(eg_ctx *cx, eg_tensor **x)
{
    x[0] = example_matrix(cx, 1, 2, 3, 4);
    x[1] = example_matrix(cx, 2, 1, 4, 3);
    x[2] = example_matrix(cx, 3, 4, 1, 2);
}

static const struct wrong {
    const char *title;
    eg_function *f;
    const void *user;
    void (*inputs)(eg_ctx *, eg_tensor **);
    int count;
    const char *names, *axes;
    eg_verdict verdict;
} gallery[] = {
    { "sign", apply, &times, flat, 2, "a, b", "i, i", EG_WRONG },
    { "factor", apply, &squared, wide, 1, "x", "ij", EG_WRONG },
    { "transposed", apply, &matmul, even, 2, "A, B", "ij, jk", EG_WRONG },
    { "dropped term", apply, &weights, wide, 1, "s", "ij", EG_WRONG },
    { "wrong axis", apply, &attended, even, 1, "s", "ij", EG_WRONG },
    { "detached path", detached, NULL, flat, 1, "x", "i", EG_WRONG },
    { "aliasing counted once", apply, &energy, rows, 1, "x", "ij", EG_WRONG },
    { "broadcast not undone", apply, &biased, wide, 2, "x, b", "ij, j", EG_EMPTY }, /* refused */
    { "saturated", worked_example, NULL, seed, 3, "W_q, W_k, W_v", "md, md, md", EG_UNTESTED },
    { "saturated and cut", worked_example, &times, seed, 3, "W_q, W_k, W_v", "md, md, md",
      EG_WRONG },
    { "kink", relu, NULL, zero, 1, "x", "i", EG_KINK },
    { "stale value", stale, NULL, flat, 1, "x", "i", EG_EMPTY }, /* refused */
    { "a cast to f32", cast, NULL, flat, 1, "x", "i", EG_NOISE },
};

/* Digits of a report that depend on the last bits, and lines of this file, are left out of the
 * comparison. */
static void plain(char *to, const char *from)
{
    for (; *from; from++) {
        *to++ = *from;
        if (*from != '(') continue;
        while (from[1] && from[1] != ')' && from[1] != '\n') from++;
    }
    *to = 0;
}
static char *documented(void)
{
    static char text[1 << 17], cut[1 << 17];
    const char *path = source_path("docs/gradcheck.md");
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s cannot be read", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    plain(cut, text);
    return cut;
}

LOOP_TEST(a_wrong_gradient_does_not_pass, sizeof gallery / sizeof *gallery)
{
    const struct wrong *w = &gallery[_i];
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[3];
    char message[512], shown[512];
    w->inputs(cx, x);
    const eg_report *r = eg_gradcheck(w->f, (void *)(uintptr_t)w->user, w->count, x,
                                      .names = w->names, .axes = w->axes);
    ck_assert_msg((r == NULL) == (w->verdict == EG_EMPTY), "%s: %s", w->title,
                  r ? r->text : eg_error(cx));
    if (r) {
        ck_assert_msg(!r->passed, "%s passed", w->title);
        if (w->verdict == EG_NOISE)
            ck_assert_int_eq(r->note[0].verdict, EG_NOISE);
        else
            ck_assert_msg(r->input[w->count == 2] == w->verdict, "%s: %s", w->title, r->text);
        const char *line = strchr(r->text, '\n') + 3; /* the first finding */
        snprintf(message, sizeof message, "%.*s", (int)strcspn(line, "\n"), line);
        const char *rule = strstr(r->text, "the rule of ");
        if (w->f == apply) {
            ck_assert_msg(rule != NULL, "%s: %s", w->title, r->text);
            ck_assert_ptr_eq(rule,
                             strstr(rule, ((const eg_op *)w->user)->name) - strlen("the rule of "));
        }
    } else
        snprintf(message, sizeof message, "%s",
                 strchr(eg_error(cx), ':') +
                     /* a debug build reports it at the first use of the operation, not in grad */
                     2);
    plain(shown, message);
    ck_assert_msg(strstr(documented(), shown) != NULL,
                  "docs/gradcheck.md does not say of \"%s\": %s", w->title, message);
    eg_close(cx);
}
