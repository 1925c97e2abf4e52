/* test_convolve.c: causal convolutions: against their definition, with NaN and infinities, views,
 * and what is refused. Gradients are those of test_gradcheck.c, at the samples of the table. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .threads = 2); }
static void close_cx(void)
{
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    eg_close(cx);
}

GROUP("convolve", .setup = open_f64, .teardown = close_cx)

enum { LINES = 6 };
/* Sizes at which the definition and transforms are used. */
static const int64_t sizes[][2] = { { 1, 1 },   { 5, 1 },     { 5, 3 },     { 7, 9 },
                                    { 64, 4 },  { 150, 150 }, { 333, 200 }, { 1000, 1000 },
                                    { 700, 3 }, { 513, 700 } };
LOOP_TEST(a_convolution_is_its_sum, sizeof sizes / sizeof *sizes)
{
    const int64_t n = sizes[_i][0], taps = sizes[_i][1];
    eg_tensor *x = eg_normal(cx, 0, 1, 2, n, 3), *f = eg_scale(eg_normal(cx, 0, 1, taps, 3), 1e-6),
              *y = eg_convolve("b [l] c", x, f),
              *narrow = eg_convolve("b [l] c", eg_cast(x, EG_F32), eg_cast(f, EG_F32));
    const double *a = eg_f64(x), *b = eg_f64(f), *c = eg_f64(y);
    const float *d = eg_f32(narrow);
    for (int64_t line = 0; line < LINES; line++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = line / 3 * n * 3 + line % 3;
            double sum = 0;
            for (int64_t k = 0; k < taps && k <= i; k++)
                sum += b[k * 3 + line % 3] * a[at + (i - k) * 3];
            ck_assert_double_eq_tol(c[at + i * 3], sum, 1e-18);
            ck_assert_double_eq_tol((double)d[at + i * 3], sum, 1e-11);
        }
    /* any order of axes and any strides */
    eg_tensor *turned =
        eg_convolve("[l] c b", eg_rearrange("b l c -> l c b", x), eg_rearrange("k c -> k c 1", f));
    ck_assert(same_bits(eg_rearrange("l c b -> b l c", turned), y));
    ck_assert(same_bits(eg_convolve("b [l] c", strided_by_two(x), f), y));
}

/* The gradients of a long convolution are those of its matrix. */
TEST(gradients_are_those_of_the_matrix)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 300, 3), *f = eg_normal(cx, 0, 1, 250, 3),
              *w = eg_normal(cx, 0, 1, 2, 300, 3), *g[2], *h[2];
    eg_tensor *matrix = eg_expr("c i=300 j=300",
                                "j <= i & i - j < 250 ? f[clip(i - j, 0, 249), c] "
                                ": 0.0",
                                .with = { { "f", f } });
    eg_grad(eg_convolve("b [l] c", x, f), w, 2, (eg_tensor *[]){ x, f }, g);
    eg_grad(eg_einsum("cij,bjc->bic", matrix, x), w, 2, (eg_tensor *[]){ x, f }, h);
    for (int k = 0; k < 2; k++) eg_assert_close(g[k], h[k], 1e-12);
}

/* Only results that a NaN or an infinity is a term of have one. */
LOOP_TEST(what_is_not_finite_reaches_later_results_only, 4)
{
    const int64_t n = 400, at = 123;
    eg_tensor *x = eg_normal(cx, 0, 1, n), *f = eg_normal(cx, 0, 1, n);
    eg_mut_f64(_i % 2 ? x : f)[at] = _i / 2 ? NAN : INFINITY;
    const double *y = eg_f64(eg_convolve("[l]", x, f));
    for (int64_t i = 0; i < n; i++) ck_assert(isfinite(y[i]) == (i < at));
}

TEST(zeros_and_empty_lines)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 300);
    ck_assert(same_bits(eg_convolve("b [l]", x, eg_zeros(cx, 300)), eg_zeros(cx, 2, 300)));
    ck_assert(same_bits(eg_convolve("b [l]", x, eg_zeros(cx, 0)), eg_zeros(cx, 2, 300)));
    ck_assert_int_eq(eg_size(eg_convolve("b [l]", eg_zeros(cx, 2, 0), eg_ones(cx, 3))), 0);
}

TEST(wrong_operands_are_refused)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 3);
    eg_convolve("b [l] c", x, eg_ones(cx, 4, 2));
    eg_assert_error(cx, "convolve: operand 2 is (1, 2, 4), which does not broadcast to operand 1, "
                        "(2, 3, 6)");
    eg_convolve("b [l] c", x, eg_cast(eg_ones(cx, 4, 3), EG_F32));
    eg_assert_error(cx, "convolve: operand 1 is f64, operand 2 is f32");
    eg_convolve("b [l c]", x, eg_ones(cx, 4, 3));
    eg_assert_error(cx, "convolve: works along one axis");
    eg_convolve("[l]", eg_cast(eg_ones(cx, 4), EG_I64), eg_cast(eg_ones(cx, 4), EG_I64));
    eg_assert_error(cx, "convolve: operand 1 is i64; it must be a float");
    ck_assert_ptr_null(eg_convolve("[l]", NULL, NULL));
    eg_clear(NULL);
}
