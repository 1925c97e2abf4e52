/* test_index.c: gather, scatter, one-hot; concat, stack, pad; running sums; triangles. */
#include <eingrad/check.h>
#include "fixtures.h"
#include "random_views.h"
#include "tests.h"

/* -- gather ----------------------------------------------------------------------------------- */
TEST(at_reads_rows_by_index)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *E = RAMP(cx, 5, 2), *t = eg_from(cx, ((int[]){ 4, 0, 2, 2, 1, 3 }), 2, 3);
    eg_tensor *y = eg_at("[v] m, b l -> b l m", E, t);
    SHOWS(y, 8, 9, 0, 1, 4, 5, 4, 5, 2, 3, 6, 7);
    eg_assert_close(eg_at("[v] m, b l", E, t), y, 0);
    eg_assert_close(eg_at("[v] m, b l -> b l m", E, eg_cast(t, EG_I64)), y, 0);
    eg_assert_close(eg_at("[vocab] model, batch length -> batch length model", E, t), y, 0);
    eg_assert_close(eg_at("[v] m, b l -> m l b", E, t), eg_permute(y, 2, 1, 0), 0);
    eg_assert_close(eg_at("m [v], b l -> b l m", eg_transpose(E, 0, 1), t), y, 0);
    eg_assert_close(eg_at("m [v], b l", eg_transpose(E, 0, 1), t), eg_permute(y, 2, 0, 1), 0);
    eg_assert_close(eg_at("[v] m, l b -> b l m", E, eg_transpose(t, 0, 1)), y, 0);
    eg_assert_close(eg_at("[v] m, b l -> b (l m)", E, t), eg_reshape(y, 2, 6), 0);
    eg_assert_close(eg_at("[v] m, (b=2 l)", E, eg_reshape(t, 6)), eg_reshape(y, 6, 2), 0);
    eg_assert_close(eg_at("[v] (m=2 1), b=2 l", E, t), y, 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(at_indexes_any_axis)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 1);
    eg_tensor *x = RAMP(cx, 3, 4, 2), *i = eg_randint(cx, 0, 4, 3, 5);
    eg_tensor *y = eg_at("b [v] m, b l -> b l m", x, i); /* a shared letter is a batch */
    for (int b = 0; b < 3; b++)
        for (int l = 0; l < 5; l++)
            for (int m = 0; m < 2; m++)
                ck_assert_double_eq(eg_get(y, b, l, m), eg_get(x, b, (int64_t)eg_get(i, b, l), m));
    eg_assert_close(eg_at("b [v] m, b l", x, i), y, 0);
    eg_assert_close(eg_at("b m [v], b l -> b l m", eg_permute(x, 0, 2, 1), i), y, 0);
    eg_assert_close(eg_at("... [v] m, b l -> b l ... m", eg_select_axis(x, 0, 0), i),
                    eg_at("[v] m, b l", eg_select_axis(x, 0, 0), i), 0);
    eg_tensor *picked =
        eg_at("b [v], b -> b", RAMP(cx, 3, 4), eg_from(cx, ((long[]){ 3, 0, 1 }), 3));
    SHOWS(picked, 3, 4, 9);
    SHOWS(eg_at("[v], -> ", RAMP(cx, 4), eg_cast(eg_scalar(cx, 2), EG_I32)), 2);
    for (eg_dtype t = EG_F32; t <= EG_BOOL; t++) {
        eg_tensor *z = eg_at("b [v] m, b l", eg_cast(x, t), i);
        ck_assert_int_eq(eg_type(z), t);
        eg_assert_close(z, eg_cast(y, t), 0);
    }
    ck_assert_int_eq(
        eg_size(eg_at("[v] m, b", RAMP(cx, 3, 2), eg_zeros_like(eg_randint(cx, 0, 1, 0)))), 0);
    eg_assert_close(
        eg_at("[v] m, b l", eg_flip_axis(RAMP(cx, 4, 2), 0), eg_flip_axis(i, 1)),
        eg_at("[v] m, b l", eg_copy(eg_flip_axis(RAMP(cx, 4, 2), 0)), eg_copy(eg_flip_axis(i, 1))),
        0);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(at_refuses)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *E = RAMP(cx, 26, 3), *t = eg_from(cx, ((int[]){ 0, 1, 2, 3, 4, 5 }), 3, 2);
    eg_fill(eg_select_axis(eg_select_axis(t, 0, 2), 0, 1), 26);
    eg_at("[v] m, b l", E, t);
    eg_assert_error(cx, "at: index[2, 1] is 26, but 'v' has size 26 (0..25)");
    eg_fill(eg_select_axis(eg_select_axis(t, 0, 1), 0, 0), -1);
    eg_at("[v] m, b l", E, eg_cast(t, EG_I64));
    eg_assert_error(cx, "at: index[1, 0] is -1, but 'v' has size 26 (0..25)");
    eg_at("[v] m, ", E, eg_cast(eg_scalar(cx, 99), EG_I64));
    eg_assert_error(cx, "at: index is 99, but 'v' has size 26 (0..25)");
    eg_at("[v] m, b", eg_zeros(cx, 0, 3), eg_cast(eg_zeros(cx, 1), EG_I64));
    eg_assert_error(cx, "at: index[0] is 0, but 'v' has size 0");
    t = eg_cast(eg_zeros(cx, 3, 2), EG_I32);
    eg_at("[v] m, b l", E, E);
    eg_assert_error(cx, "at: operand 2 is f64, but an index is i32 or i64");
    eg_at("v m, b l -> b l m", E, t);
    eg_assert_error(cx, "no axis is in brackets");
    eg_at("[v m], b l -> b l", E, t);
    eg_assert_error(cx, "only one axis can be indexed; eg_expr reads several: x[a[n], b[n]]");
    eg_at("[v] m, b [l]", E, t);
    eg_assert_error(cx, "brackets mark the indexed axis of operand 1");
    eg_at("[v] m, b l -> b l", E, t);
    eg_assert_error(cx, "index 'm' is missing in the output");
    eg_at("[v] m, b l -> b m", E, t);
    eg_assert_error(cx, "index 'l' is missing in the output");
    eg_at("[v] m, b l -> b l m v", E, t);
    eg_assert_error(cx, "'v' is the indexed axis");
    eg_at("[v] m, b l -> b l m m", E, t);
    eg_assert_error(cx, "index 'm' occurs twice");
    eg_at("[v] m, v l", E, eg_zeros_like(eg_cast(E, EG_I32)));
    eg_assert_error(cx, "'v' is the indexed axis and cannot be an axis of the index");
    eg_at("[v] m, m l -> m l", E, t);
    ck_assert_int_eq(eg_size(eg_at("[v] m, m l -> m l", E, t)), 6);
    eg_at("[v] m, b l k", E, t);
    eg_assert_error(cx, "operand 2 has rank 2");
    ck_assert_ptr_null(eg_at("[v] m, b l", NULL, NULL));
    eg_at("[v] m, b l", E, NULL);
    ck_assert_ptr_nonnull(eg_error(cx));
    eg_close(cx);
}

/* -- scatter ---------------------------------------------------------------------------------- */
TEST(scatter_adds)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 6);
    eg_tensor *x = eg_ones(cx, 3, 2), *i = eg_from(cx, ((int[]){ 2, 0, 2 }), 3),
              *u = RAMP(cx, 3, 2);
    SHOWS(eg_scatter_add("[v] m, b, b m", x, i, u), 3, 4, 1, 1, 5, 7);
    SHOWS(x, 1, 1, 1, 1, 1, 1);
    SHOWS(eg_scatter_add("[v] m, b, m b", x, i, eg_transpose(u, 0, 1)), 3, 4, 1, 1, 5, 7);
    SHOWS(eg_scatter_add("[v] m, b, b m", eg_cast(x, EG_I32), i, eg_cast(u, EG_I32)), 3, 4, 1, 1, 5,
          7);
    SHOWS(eg_scatter_add("[v], b l, b l", eg_zeros(cx, 4),
                         eg_from(cx, ((long[]){ 1, 1, 3, 1 }), 2, 2), eg_ones(cx, 2, 2)),
          0, 3, 0, 1); /* a histogram */
    eg_tensor *X = eg_normal(cx, 0, 1, 3, 7, 4), *I = eg_randint(cx, 0, 7, 3, 9),
              *U = eg_normal(cx, 0, 1, 3, 9, 4);
    eg_tensor *y = eg_scatter_add("b [v] m, b l, b l m", X, I, U);
    eg_tensor *want = eg_add(X, eg_einsum("blv,blm->bvm", eg_one_hot(I, 7), U));
    eg_assert_close(y, want, 1e-14);
    eg_assert_close(eg_scatter_add("(b v) [k], b v, b v", eg_reshape(eg_zeros(cx, 6, 5), 6, 5),
                                   eg_randint(cx, 2, 3, 2, 3), eg_ones(cx, 2, 3)),
                    eg_pad_axis(eg_ones(cx, 6, 1), 1, 2, 2, 0), 0);
    eg_scatter_add("[v] m, b, b", x, i, eg_ones(cx, 3));
    eg_assert_error(cx, "index 'm' is missing in the last operand");
    eg_scatter_add("[v] m, b, b m k", x, i, eg_ones(cx, 3, 2, 2));
    eg_assert_error(cx, "index 'k' is neither in operand 1 nor in the index");
    eg_scatter_add("[v] m, b, b m -> v m", x, i, u);
    eg_assert_error(cx, "it takes no output");
    eg_scatter_add("[v] m, b, b m", x, i, eg_cast(u, EG_F32));
    eg_assert_error(cx, "scatter_add: operand 3 is f32, operand 1 is f64");
    eg_scatter_add("[v] m, b, b m", eg_cast(x, EG_BOOL), i, eg_cast(u, EG_BOOL));
    eg_assert_error(cx, "scatter_add: operand 1 is bool; cast it");
    eg_scatter_add("[v] m, b, b m", eg_ones(cx, 2, 2), i, u);
    eg_assert_error(cx, "scatter_add: index[0] is 2, but 'v' has size 2 (0..1)");
    eg_close(cx);
}

TEST(scatter_gives_the_same_bits_for_any_threads_and_layout)
{
    eg_ctx *cx = eg_open(.seed = 8, .threads = 1);
    eg_tensor *x = eg_zeros(cx, 50, 96), *i = eg_randint(cx, 0, 50, 4000),
              *u = eg_normal(cx, 0, 1, 4000, 96);
    eg_tensor *y = eg_scatter_add("[v] m, n, n m", x, i, u),
              *t = eg_transpose(eg_copy(eg_transpose(u, 0, 1)), 0, 1);
    for (int threads = 2; threads < 8; threads += 5) {
        eg_threads(cx, threads);
        ck_assert_mem_eq(eg_f32(eg_scatter_add("[v] m, n, n m", x, i, u)), eg_f32(y), 50 * 96 * 4);
        ck_assert_mem_eq(eg_f32(eg_scatter_add("[v] m, n, n m", x, i, t)), eg_f32(y), 50 * 96 * 4);
    }
    eg_close(cx);
}

static eg_tensor *embed(void *user, eg_tensor *const *x)
{
    return eg_tanh(eg_einsum("blm,mk->blk", eg_at("[v] m, b l -> b l m", x[0], user), x[1]));
}
static eg_tensor *batched(void *user, eg_tensor *const *x)
{
    return eg_square(eg_scatter_add("b [v], b l, l b", eg_square(x[0]), user, x[1]));
}
TEST(gather_and_scatter_have_gradients_of_second_order)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 9);
    eg_tensor *t = eg_from(cx, ((int[]){ 4, 0, 4, 2, 2, 4 }), 2, 3);
    eg_tensor *E = eg_uniform(cx, -1, 1, 5, 3), *W = eg_uniform(cx, -1, 1, 3, 2),
              *X = eg_uniform(cx, .5, 1, 2, 5), *U = eg_uniform(cx, .5, 1, 3, 2);
    const eg_report *r =
        eg_gradcheck(embed, t, 2, ((eg_tensor *[]){ E, W }), .names = "E, W", .order = 2);
    ck_assert_ptr_nonnull(r);
    ck_assert_int_eq(r->input[1], EG_RIGHT);
    for (int k = 0; k < r->shown; k++)
        ck_assert_msg(r->entry[k].verdict != EG_WRONG, "%s", r->text);
    eg_assert_grad2(batched, t, X, U);
    eg_close(cx);
}

TEST(one_hot_is_1_at_the_index)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *i = eg_from(cx, ((int[]){ 1, 0, 3 }), 3);
    SHOWS(eg_one_hot(i, 4), 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1);
    ck_assert_int_eq(eg_type(eg_one_hot(i, 4)), EG_F64);
    SHOWS(eg_one_hot(eg_flip_axis(i, 0), 4), 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0);
    eg_one_hot(i, 3);
    eg_assert_error(cx, "one_hot: index[2] is 3, but the depth is 3 (0..2)");
    eg_one_hot(i, -1);
    eg_assert_error(cx, "one_hot: depth -1 is negative");
    eg_one_hot(eg_ones(cx, 2), 3);
    eg_assert_error(cx, "one_hot: operand 1 is f64, but an index is i32 or i64");
    eg_close(cx);
}

/* -- joining ---------------------------------------------------------------------------------- */
TEST(concat_stack_pad)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *a = RAMP(cx, 2, 2), *b = eg_shift(RAMP(cx, 2, 1), 10), *none = eg_zeros(cx, 2, 0);
    SHOWS(eg_concat_axis(1, a, b), 0, 1, 10, 2, 3, 11);
    SHOWS(eg_concat_axis(-1, b, none, eg_flip_axis(a, 1)), 10, 1, 0, 11, 3, 2);
    SHOWS(eg_concat_axis(0, a, eg_transpose(a, 0, 1)), 0, 1, 2, 3, 0, 2, 1, 3);
    SHOWS(eg_concat_axis(0, eg_cast(a, EG_BOOL), eg_cast(a, EG_BOOL)), 0, 1, 1, 1, 0, 1, 1, 1);
    SHOWS(eg_stack_axis(0, a, a), 0, 1, 2, 3, 0, 1, 2, 3);
    SHOWS(eg_stack_axis(-1, a, eg_neg(a)), 0, 0, 1, -1, 2, -2, 3, -3);
    SHOWS(eg_stack_axis(0, eg_scalar(cx, 4), eg_scalar(cx, 5)), 4, 5);
    SHOWS(eg_pad_axis(a, 0, 1, 0, 7), 7, 7, 0, 1, 2, 3);
    SHOWS(eg_pad_axis(eg_cast(a, EG_I64), -1, 0, 2, -1), 0, 1, -1, -1, 2, 3, -1, -1);
    ck_assert_int_eq(eg_size(eg_pad_axis(none, 1, 0, 0, 1)), 0);
    eg_concat_axis(1, a, eg_ones(cx, 3, 1));
    eg_assert_error(cx, "concat: operand 2 is (3, 1), operand 1 is (2, 2); only axis 1 may differ");
    eg_concat_axis(1, a, eg_cast(a, EG_F32));
    eg_assert_error(cx, "concat: operand 2 is f32, operand 1 is f64");
    eg_concat_axis(2, a, a);
    eg_assert_error(cx, "concat: axis 2 is out of range for (2, 2) of rank 2");
    eg_concat_axis(0, a, NULL);
    eg_assert_error(cx, "concat: operand 2 is NULL");
    eg_stack_axis(0, a, b);
    eg_assert_error(cx, "stack: operand 2 is (2, 1), operand 1 is (2, 2)");
    eg_stack_axis(3, a, a);
    eg_assert_error(cx, "stack: axis 3 is out of range for a result of rank 3, from (2, 2)");
    eg_stack_axis(0, a, NULL);
    eg_assert_error(cx, "stack: operand 2 is NULL");
    eg_tensor *f64 = eg_full_n(cx, EG_F64, 1, 1, (int64_t[]){ 2 });
    eg_stack_axis(0, eg_cast(f64, EG_F32), f64);
    eg_assert_error(cx, "stack: operand 2 is f64, operand 1 is f32");
    eg_stack("[n] i", eg_cast(f64, EG_F32), f64);
    eg_assert_error(cx, "stack: operand 2 is f64, operand 1 is f32");
    eg_pad_axis(a, 0, -1, 0, 0);
    eg_assert_error(cx, "pad: the margins -1 and 0 of axis 0 of (2, 2) must not be negative");
    eg_pad_axis(a, 0, INT64_MAX, 5, 0);
    eg_assert_error(cx, "pad: axis 0 would be longer than 2^63");
    ck_assert_ptr_null(eg_concat_axis_n(0, 0, NULL));
    ck_assert_ptr_null(eg_stack_axis_n(0, 0, NULL));
    eg_close(cx);
}

TEST(cumsum_equals_a_loop)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 2, 3);
    SHOWS(eg_cumsum("b [l]", x), 0, 1, 3, 3, 7, 12);
    SHOWS(eg_cumsum("[b] l", x), 0, 1, 2, 3, 5, 7);
    eg_cumsum("([b] l)", eg_reshape(x, 6));
    eg_assert_error(cx, "more than one of its sizes is unknown");
    SHOWS(eg_cumsum("(b=2 [l])", eg_reshape(x, 6)), 0, 1, 3, 3, 7, 12);
    SHOWS(eg_cumsum(NULL, eg_select_axis(x, 0, 1)), 3, 7, 12);
    SHOWS(eg_cumsum("b [l]", eg_transpose(x, 0, 1)), 0, 3, 1, 5, 2, 7);
    eg_tensor *i = eg_cumsum("[l]", eg_from(cx, ((int[]){ INT32_MAX, INT32_MAX, 1 }), 3)),
              *b = eg_cumsum("[l]", eg_from(cx, ((bool[]){ true, false, true }), 3));
    ck_assert_int_eq(eg_i64(i)[2], 2 * INT64_C(2147483647) + 1);
    ck_assert_int_eq(eg_i64(b)[2], 2);
    const float *f = eg_f32(eg_cumsum("[l]", eg_full_n(cx, EG_F32, .1, 1, (int64_t[]){ 1000000 })));
    ck_assert_float_eq_tol(f[999999], 1e5f, .1f);
    ck_assert_int_eq(eg_size(eg_cumsum("b [l]", eg_zeros(cx, 3, 0))), 0);
    eg_cumsum("b l", x);
    eg_assert_error(cx, "no index is in brackets");
    eg_cumsum("[b l]", x);
    eg_assert_error(cx, "works along one axis, and this is the second one in brackets");
    eg_cumsum("b [l] -> l b", x);
    eg_assert_error(cx, "it takes no output");
    eg_cumsum(NULL, x);
    eg_assert_error(cx, "cumsum: (2, 3) has no single axis");
    eg_close(cx);
}

TEST(triangles_keep_their_side_of_the_diagonal)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_shift(RAMP(cx, 2, 3), 1);
    SHOWS(eg_tril(x, 0), 1, 0, 0, 4, 5, 0);
    SHOWS(eg_tril(x, 1), 1, 2, 0, 4, 5, 6);
    SHOWS(eg_tril(x, -1), 0, 0, 0, 4, 0, 0);
    SHOWS(eg_triu(x, 0), 1, 2, 3, 0, 5, 6);
    SHOWS(eg_triu(x, 2), 0, 0, 3, 0, 0, 0);
    SHOWS(eg_triu(x, INT64_MIN), 1, 2, 3, 4, 5, 6);
    SHOWS(eg_triu(x, INT64_MAX), 0, 0, 0, 0, 0, 0);
    SHOWS(eg_tril(x, INT64_MAX), 1, 2, 3, 4, 5, 6);
    SHOWS(eg_tril(x, INT64_MIN), 0, 0, 0, 0, 0, 0);
    SHOWS(eg_tril(eg_transpose(x, 0, 1), 0), 1, 0, 2, 5, 3, 6);
    SHOWS(eg_triu(eg_cast(eg_expand(x, 2, 2, 3), EG_BOOL), 1), 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1);
    SHOWS(eg_tril(eg_from(cx, ((double[]){ 1, NAN, 2, 3 }), 2, 2), 0), 1, 0, 2, 3);
    eg_tril(eg_ones(cx, 3), 0);
    eg_assert_error(cx, "tril: (3,) has no last two axes");
    eg_close(cx);
}

/* Triangles of high and wide matrices, at each diagonal: in batches, transposed and reversed. */
TEST(triangles_keep_what_is_on_their_side_of_the_diagonal)
{
    static const int64_t size[][2] = { { 1, 1 }, { 1, 7 }, { 7, 1 }, { 9, 4 }, { 4, 9 }, { 6, 6 } };
    for (int c = 0; c < 6 * 4; c++) {
        eg_ctx *cx = eg_open();
        const int64_t m = size[c / 4][0], n = size[c / 4][1];
        eg_tensor *x = eg_shift(eg_randint(cx, 0, 90, 2, m, n), 1);
        if (c % 4 == 1) x = eg_transpose(eg_copy(eg_transpose(x, 1, 2)), 1, 2);
        if (c % 4 == 2) x = eg_flip_axis(x, 1);
        if (c % 4 == 3) x = eg_flip_axis(x, 2);
        for (int64_t k = -m - 2; k <= n + 2; k++) {
            eg_tensor *low = eg_tril(x, k), *high = eg_triu(x, k);
            for (int64_t q = 0; q < 2 * m * n; q++) {
                const int64_t b = q / (m * n), i = q / n % m, j = q % n;
                const double v = eg_get(x, b, i, j);
                ck_assert_double_eq(eg_get(low, b, i, j), j - i <= k ? v : 0);
                ck_assert_double_eq(eg_get(high, b, i, j), j - i >= k ? v : 0);
            }
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}

static eg_tensor *joined(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *c = eg_concat_axis(1, x[0], eg_square(x[1]), x[0]),
              *s = eg_stack_axis(1, eg_select_axis(x[0], 1, 0), eg_select_axis(x[1], 1, 1));
    return eg_mul(eg_cumsum("[a] b", eg_pad_axis(c, 0, 1, 1, 2)),
                  eg_concat_axis(0, eg_square(eg_pad_axis(s, 1, 2, 1, 1)), eg_tril(c, 0)));
}
TEST(joins_have_gradients_of_second_order)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 12);
    eg_assert_grad2(joined, NULL, eg_uniform(cx, .5, 1, 2, 1), eg_uniform(cx, .5, 1, 2, 3));
    eg_close(cx);
}

/* Rows of any number of elements and any layout, compared with a loop over single elements:
 * u[b,n,m] = x[b,i(b,n),m], and sums over b and n in the row-major order of u. */
LOOP_TEST(rows_are_read_and_added_in_order, 2)
{
    static const int64_t rows[] = { 1, 2, 3, 4, 5, 8, 9, 16, 40, 130 };
    eg_ctx *cx = eg_open(.threads = 2);
    uint64_t state = 7;
    for (int turn = 0; turn < 60; turn++) {
        eg_mark mark = eg_push(cx);
        const int64_t m = rows[turn % 10], size = 6, n = 37, b = 3;
        eg_tensor *x = random_view(cx, &state, _i ? EG_F64 : EG_F32, 3, (int64_t[]){ b, size, m }),
                  *u = random_view(cx, &state, _i ? EG_F64 : EG_F32, 3, (int64_t[]){ b, n, m }),
                  *i = random_view(cx, &state, EG_I64, 2, (int64_t[]){ b, n });
        i = eg_cast(eg_floor(eg_scale(eg_abs(eg_cast(i, EG_F64)), (double)size / 101)),
                    turn & 1 ? EG_I32 : EG_I64);
        eg_tensor *y = eg_at("b [v] m, b n -> b n m", x, i),
                  *z = eg_scatter_add("[v] m, b n, b n m", eg_select_axis(x, 0, 0), i, u);
        float *want = malloc((size_t)(size * m) * sizeof *want);
        double *wide = malloc((size_t)(size * m) * sizeof *wide);
        for (int64_t k = 0; k < size * m; k++)
            if (_i)
                wide[k] = *(const double *)element_of(x, k);
            else
                want[k] = *(const float *)element_of(x, k);
        for (int64_t k = 0; k < b * n * m; k++) {
            const int64_t v = (int64_t)eg_get(i, k / m / n, k / m % n), at = v * m + k % m;
            ck_assert_mem_eq(element_of(y, k), element_of(x, k / m / n * size * m + at),
                             _i ? 8 : 4);
            if (_i)
                wide[at] += *(const double *)element_of(u, k);
            else
                want[at] += *(const float *)element_of(u, k);
        }
        for (int64_t k = 0; k < size * m; k++)
            ck_assert_mem_eq(element_of(z, k), _i ? (void *)(wide + k) : want + k, _i ? 8 : 4);
        free(want);
        free(wide);
        eg_assert_ok(cx);
        eg_pop(cx, mark);
    }
    eg_close(cx);
}
