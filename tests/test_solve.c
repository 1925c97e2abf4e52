/* test_solve.c: triangular systems of equations: their solutions put into the equations, in every
 * layout; gradients; what is refused. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 29); }
static void close_cx(void) { eg_close(cx); }

GROUP("solve_triangular", .setup = open_f64, .teardown = close_cx)

/* Returns a (dims, n, n) whose diagonal is between 1 and 2. */
static eg_tensor *a_triangle(int rank, const int64_t *dims)
{
    eg_tensor *x = eg_normal_n(cx, EG_F64, 0, 0.3, rank, dims);
    const int64_t n = dims[rank - 1];
    eg_tensor *eye = eg_one_hot(eg_arange(cx, EG_I64, 0, (double)n, 1), n);
    return eg_add(eg_mul(x, eg_shift(eg_scale(eye, -1), 1)),
                  eg_mul(eye, eg_uniform_n(cx, EG_F64, 1, 2, rank, dims)));
}

/* the product with the triangle is b, for sizes below, at and above those of tiles; what is beyond
 * the diagonal may be NaN */
LOOP_TEST(product_with_the_solution_is_b, 6 * 2)
{
    static const int64_t sizes[] = { 1, 3, 4, 16, 33, 64 }, columns[] = { 1, 16, 17, 3, 40, 32 };
    const bool upper = _i % 2;
    const int64_t n = sizes[_i / 2], m = columns[_i / 2], dims[] = { 2, n, n };
    eg_tensor *a = a_triangle(3, dims), *b = eg_normal(cx, 0, 1, 2, n, m),
              *t = upper ? eg_triu(a, 0) : eg_tril(a, 0), *nan = eg_full(cx, NAN, 2, n, n),
              *beyond = eg_where(eg_eq(upper ? eg_tril(nan, -1) : eg_triu(nan, 1), eg_zeros(cx, 1)),
                                 eg_zeros(cx, 1), nan);
    eg_tensor *x = eg_solve_triangular("bij,bik->bjk", eg_add(t, beyond), b, upper);
    eg_assert_ok(cx);
    eg_assert_close(eg_einsum("bij,bjk->bik", t, x), b, 1e-11);
    /* another order of axes, a column alone, groups, and the transposed triangle */
    eg_assert_close(
        eg_solve_triangular("jbi,kib->kbj", eg_permute(t, 2, 0, 1), eg_permute(b, 2, 1, 0), upper),
        eg_permute(x, 2, 0, 1), 0);
    eg_assert_close(eg_solve_triangular("ij,i->j", eg_select_axis(t, 0, 1),
                                        eg_select_axis(eg_select_axis(b, 0, 1), 1, 0), upper),
                    eg_select_axis(eg_select_axis(x, 0, 1), 1, 0), 1e-13);
    eg_assert_close(eg_solve_triangular("bij,bik->b(jk)", t, b, upper), eg_reshape(x, 2, n * m), 0);
    eg_assert_close(eg_solve_triangular("bji,bik->bjk", eg_transpose(t, 1, 2), b, upper), x, 0);
    /* several letters of columns; operands in reverse and expanded */
    eg_tensor *wide = eg_stack_axis(1, b, eg_scale(b, 2));
    eg_assert_close(eg_solve_triangular("bij,bcik->cbkj", t, wide, upper),
                    eg_stack_axis(0, eg_transpose(x, 1, 2), eg_scale(eg_transpose(x, 1, 2), 2)),
                    1e-13);
    eg_assert_close(eg_solve_triangular("bij,bik->bjk", eg_flip_axis(eg_flip_axis(t, 2), 2),
                                        eg_flip_axis(eg_flip_axis(b, 1), 1), upper),
                    x, 0);
    eg_tensor *same = eg_expand(eg_slice_axis(t, 0, 0, 1, 1), 2, n, n);
    eg_assert_close(
        eg_select_axis(eg_solve_triangular("bij,bik->bjk", same, b, upper), 0, 1),
        eg_solve_triangular("ij,ik->jk", eg_select_axis(t, 0, 0), eg_select_axis(b, 0, 1), upper),
        0);
    /* f32 to its rounding */
    eg_tensor *f =
        eg_solve_triangular("bij,bik->bjk", eg_cast(t, EG_F32), eg_cast(b, EG_F32), upper);
    ck_assert_int_eq(eg_type(f), EG_F32);
    eg_assert_close(eg_cast(f, EG_F64), x, 1e-4);
}

/* A solution has the bits of its column alone, for any number of rows and columns. */
LOOP_TEST(solutions_do_not_depend_on_other_columns, 4)
{
    static const int64_t sizes[] = { 1, 7, 8, 21, 64, 300, 530 };
    const eg_dtype type = _i % 2 ? EG_F64 : EG_F32;
    const bool upper = _i / 2;
    for (int k = 0; k < 7 * 6; k++) {
        const eg_mark m = eg_push(cx);
        const int64_t n = sizes[k / 6], columns = (int64_t[]){ 2, 3, 5, 8, 11, 21 }[k % 6];
        eg_tensor *a = eg_cast(a_triangle(2, (int64_t[]){ n, n }), type),
                  *b = eg_cast(eg_normal(cx, 0, 1, n, columns), type),
                  *x = eg_solve_triangular("ij,ik->jk", a, b, upper);
        for (int64_t c = 0; c < columns; c++) {
            eg_tensor *alone = eg_solve_triangular("ij,i->j", a, eg_select_axis(b, 1, c), upper);
            ck_assert(same_bits(alone, eg_copy(eg_select_axis(x, 1, c))));
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
}

static eg_tensor *solved(void *user, eg_tensor *const *x)
{
    return eg_solve_triangular("bij,bik->bjk", x[0], x[1], *(const bool *)user);
}
LOOP_TEST(solutions_to_second_order, 2)
{
    bool upper = _i;
    eg_assert_grad2(solved, &upper, a_triangle(3, (int64_t[]){ 2, 5, 5 }),
                    eg_normal(cx, 0, 1, 2, 5, 3));
}

TEST(systems_of_nothing_are_refused)
{
    ck_assert_ptr_null(eg_solve_triangular("ij,ik->jk", NULL, NULL, false));
    eg_solve_triangular("ij,ik->jk", eg_ones(cx, 3, 3), NULL, false);
    eg_assert_error(cx, "solve_triangular: operand 2 is NULL");
}

TEST(systems_without_elements)
{
    eg_tensor *none = eg_solve_triangular("bij,bik->bjk", eg_ones(cx, 2, 0, 0),
                                          eg_ones(cx, 2, 0, 3), false),
              *no_columns =
                  eg_solve_triangular("ij,ik->jk", eg_ones(cx, 3, 3), eg_ones(cx, 3, 0), true);
    eg_assert_ok(cx);
    ck_assert(eg_size(none) == 0 && eg_dim(none, 2) == 3 && eg_dim(no_columns, 0) == 3);
    /* a 0 on the diagonal divides by 0 */
    eg_tensor *x = eg_solve_triangular("ij,i->j", eg_zeros(cx, 2, 2), eg_ones(cx, 2), false);
    ck_assert(isinf(eg_item(eg_select_axis(x, 0, 0))));
}

LOOP_TEST(systems_refused, 10)
{
    static const struct {
        const char *spec, *why;
    } cases[] = {
        { "ij,ik", "solve_triangular: one index is needed that only the operands have" },
        { "iij,ik->jk", "" },
        { "bij,ik->bjk", "one index is needed that only the operands have" },
        { "ij,ik->ik", "index 'j' is in one operand only" },
        { "ij,ik->j", "index 'k' is in one operand only" },
        { "ii,ik->k", "" },
        { "ij,ik->jkl", "" },
        { "ij,ik->jk", "'i' is 3 but 'j' is 4: not square" },
        { "ij,ik->jk", "solve_triangular: operand 1 is f64, operand 2 is f32" },
        { "ij,ik->jk", "solve_triangular" },
    };
    eg_tensor *a = eg_ones(cx, 3, _i == 7 ? 4 : 3), *b = eg_ones(cx, 3, 2);
    if (_i == 2) a = eg_ones(cx, 2, 3, 3);
    if (_i == 8) b = eg_cast(b, EG_F32);
    if (_i == 9) a = eg_cast(a, EG_I64), b = eg_cast(b, EG_I64);
    ck_assert(!eg_ok(eg_solve_triangular(cases[_i].spec, a, b, false)));
    eg_assert_error(cx, cases[_i].why);
}
