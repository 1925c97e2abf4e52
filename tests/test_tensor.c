/* test_tensor.c: leaves, reading and writing elements, casts, random draws, printing. */
#include <eingrad/check.h>
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "gradcheck/gradcheck.h"
#include "io/file.h"
#include "fixtures.h"
#include "random_views.h"
#include "tests.h"

static const double near_zero = 1e-12;

/* -- leaves ----------------------------------------------------------------------------------- */
TEST(leaves_of_every_dtype)
{
    eg_ctx *cx = eg_open();
    eg_tensor *f = eg_from(cx, ((float[]){ 1, 2, 3, 4, 5, 6 }), 2, 3);
    ck_assert_int_eq(eg_type(f), EG_F32);
    ck_assert_int_eq(eg_rank(f), 2);
    ck_assert_int_eq(eg_dim(f, -1), 3);
    ck_assert_int_eq(eg_size(f), 6);
    ck_assert_float_eq(eg_f32(f)[4], 5);
    ck_assert_double_eq(eg_get(f, 1, 0), 4);
    ck_assert_double_eq(eg_get(f, -1, -1), 6);
    ck_assert_int_eq(eg_i32(eg_from(cx, ((int[]){ 7 }), 1))[0], 7);
    ck_assert_int_eq(eg_i64(eg_from(cx, ((long[]){ 1L << 60 }), 1))[0], 1L << 60);
    ck_assert(eg_bool(eg_from(cx, ((bool[]){ true }), 1))[0]);
    eg_tensor *pair = eg_from(cx, (int64_t[]){ 0, -100 }, 2),
              *table = eg_from(cx, (const float[2 * 2]){ 1, 2, 3, 4 }, 2, 2);
    /* a compound literal needs no parentheses around it */
    ck_assert_int_eq(eg_i64(pair)[1], -100);
    ck_assert(eg_rank(table) == 2 && eg_f32(table)[3] == 4);
    ck_assert(eg_i32(eg_from(cx, (int32_t[]){ 5, 6 } + 1, 1))[0] == 6 &&
              eg_bool(eg_from(cx, (bool[]){ false, true }, 2))[1]);
    float room[3] = { 7, 8, 9 }, *at = room;
    ck_assert(eg_f32(eg_from(cx, room, 3))[2] == 9 && eg_f32(eg_from(cx, at + 1, 2))[0] == 8 &&
              eg_f32(eg_from(cx, (at), 1))[0] == 7);
    ck_assert(eg_rank(eg_from(cx, &(double){ 3 })) == 0 &&
              eg_item(eg_from(cx, &(double){ 3 })) == 3);
    ck_assert_double_eq(eg_f64(eg_from(cx, ((double[]){ .1 }), 1))[0], .1);
    ck_assert_double_eq(eg_item(eg_scalar(cx, -2.5)), -2.5);
    ck_assert_int_eq(eg_rank(eg_scalar(cx, 1)), 0);
    ck_assert_double_eq(eg_get(eg_full_n(cx, EG_I64, -3.9, 1, (int64_t[]){ 2 }), 1), -3);
    eg_tensor *empty = eg_zeros(cx, 3, 0, 2);
    ck_assert_int_eq(eg_size(empty), 0);
    ck_assert_ptr_nonnull(eg_f32(empty));
    ck_assert(eg_is_row_major(empty));
    ck_assert_int_eq(eg_type(eg_ones_like(eg_zeros_like(eg_randint(cx, 0, 9, 3)))), EG_I64);
    ck_assert_ptr_null(eg_error(cx));
    eg_close(cx);
}

TEST(leaves_refuse)
{
    eg_ctx *cx = eg_open();
    int64_t many[40] = { 0 };
    eg_full_n(cx, EG_F32, 0, 33, many);
    eg_assert_error(cx, "zeros: rank 33 is not in 0..32");
    eg_zeros(cx, 2, -3);
    eg_assert_error(cx, "zeros: size -3 of axis 1 is negative");
    eg_ones(cx, 2, -3);
    eg_assert_error(cx, "ones: size -3 of axis 1");
    eg_full(cx, 7, 2, -3);
    eg_assert_error(cx, "full: size -3 of axis 1");
    eg_zeros(cx, INT64_C(1) << 40, INT64_C(1) << 40);
    eg_assert_error(cx, "zeros: the sizes up to axis 1");
    eg_zeros(cx, INT64_C(1) << 40, INT64_C(1) << 40, 0);
    eg_assert_error(cx, "zeros: the sizes up to axis 1");
    eg_from_n(cx, EG_F32, NULL, 1, (int64_t[]){ 4 });
    eg_assert_error(cx, "from: the data are NULL, but the sizes make 4 elements");
    eg_full_n(cx, (eg_dtype)17, 0, 0, NULL);
    eg_assert_error(cx, "zeros: 17 is not a dtype");
    eg_uniform(cx, 1, 1, 2);
    eg_assert_error(cx, "uniform: [1, 1) is not an interval");
    eg_uniform(cx, NAN, 1, 2);
    eg_assert_error(cx, "uniform");
    eg_uniform_n(cx, EG_I32, 0, 1, 0, NULL);
    eg_assert_error(cx, "uniform: draws are f32 or f64, not i32; eg_randint draws integers");
    eg_normal(cx, 0, -1, 2);
    eg_assert_error(cx, "normal: mean 0 and deviation -1 are not those of a normal distribution");
    eg_uniform_n(cx, EG_F32, -1e39, 1, 0, NULL);
    eg_assert_error(cx, "uniform: the bound -1e+39 is beyond 3.40282e+38, the largest");
    eg_uniform_n(cx, EG_F32, 0, 1e40, 0, NULL);
    eg_assert_error(cx, "uniform: the bound 1e+40 is beyond");
    eg_normal_n(cx, EG_F32, 1e39, 1, 0, NULL);
    eg_assert_error(cx, "normal: the mean 1e+39 is beyond");
    eg_normal_n(cx, EG_F32, 0, 1e39, 0, NULL);
    eg_assert_error(cx, "normal: the deviation 1e+39 is beyond");
    eg_randint(cx, 3, 3, 2);
    eg_assert_error(cx, "randint: [3, 3) contains no integer");
    eg_arange(cx, EG_F32, 0, 1, 0);
    eg_assert_error(cx, "arange: from 0 to 1 in steps of 0 makes no sequence");
    eg_arange(cx, EG_I32, 0, 2, .5);
    eg_assert_error(cx, "arange: start 0 and step 0.5 must be integers for i32, of at most 2^62");
    eg_arange(cx, EG_BOOL, 0, 2, 1);
    eg_assert_error(cx, "arange: bool has no ramp");
    eg_arange(cx, EG_F64, 0, 1e30, 1);
    eg_assert_error(cx, "makes 1e+30 elements");
    eg_arange(cx, EG_I32, 0, 4e9, 1e9);
    eg_assert_error(cx, "arange: from 0 to 4000000000 in steps of 1000000000, i32 cannot hold all");
    eg_arange(cx, EG_I32, 3e9, 0, -1e9);
    eg_assert_error(cx, "i32 cannot hold all");
    eg_arange(cx, EG_I64, 0x1p61, 0x1p65, 0x1p61);
    eg_assert_error(cx, "i64 cannot hold all");
    ck_assert_double_eq(eg_get(eg_arange(cx, EG_I32, -0x1p31, 0x1p31, 0xffffffffp0), 1), INT32_MAX);
    eg_assert_ok(cx);
    ck_assert(eg_ok(eg_from_n(cx, EG_F32, NULL, 1, (int64_t[]){ 0 })));
    ck_assert(eg_ok(eg_full_n(cx, EG_F32, 0, 32, many)));
    eg_close(cx);
}

TEST(arange_counts)
{
    eg_ctx *cx = eg_open();
    ck_assert_int_eq(eg_size(eg_arange(cx, EG_F64, 0, 1, .1)), 10);
    ck_assert_int_eq(eg_size(eg_arange(cx, EG_F64, 0, -1, .1)), 0);
    ck_assert_double_eq(eg_get(eg_arange(cx, EG_F32, 5, 0, -2), 2), 1);
    ck_assert_int_eq(eg_i32(eg_arange(cx, EG_I32, 3, 12, 4))[2], 11);
    ck_assert_int_eq(eg_i64(eg_arange(cx, EG_I64, -2, 1, 1))[0], -2);
    ck_assert_ptr_null(eg_error(cx));
    eg_close(cx);
}

TEST(properties_accept_null_and_poison)
{
    eg_ctx *cx = eg_open();
    eg_tensor *poison = eg_fail(cx, "on purpose"), *all[] = { NULL, poison };
    for (int k = 0; k < 2; k++) {
        ck_assert(!eg_ok(all[k]));
        ck_assert_int_eq(eg_rank(all[k]), 0);
        ck_assert_int_eq(eg_dim(all[k], 3), 0);
        ck_assert_int_eq(eg_size(all[k]), 0);
        ck_assert_int_eq(eg_dims(all[k])[0], 0);
        ck_assert(!eg_is_row_major(all[k]));
        ck_assert_ptr_null(eg_f32(all[k]));
        ck_assert_ptr_null(eg_mut_i64(all[k]));
        ck_assert_ptr_null(eg_raw(all[k], NULL));
        ck_assert(isnan(eg_item(all[k])));
        ck_assert_int_eq(eg_print(stderr, all[k]), -1);
        char text[8] = "old";
        ck_assert_uint_eq(eg_format(all[k], text, sizeof text), 0);
        ck_assert_str_eq(text, "");
    }
    ck_assert_ptr_eq(eg_context(poison), cx);
    ck_assert_str_eq(eg_error(cx), "on purpose");
    eg_clear(cx);
    eg_dim(eg_ones(cx, 2, 3), 2);
    eg_assert_error(cx, "dim: axis 2 is out of range for (2, 3) of rank 2");
    eg_close(cx);
}

/* -- reading and writing ----------------------------------------------------------------------- */
TEST(values_out)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_DEFAULT, 0, 6, 1), 2, 3), *t = eg_transpose(x, 0, 1);
    ck_assert_ptr_eq(eg_f64(x), eg_raw(x, NULL));
    const double *p = eg_f64(t); /* a copy, row-major */
    ck_assert_ptr_ne(p, eg_raw(t, NULL));
    ck_assert_double_eq(p[1], 3);
    int64_t strides[2];
    ck_assert_ptr_eq(eg_raw(t, strides), eg_raw(x, NULL));
    ck_assert_int_eq(strides[0], 1);
    ck_assert_int_eq(strides[1], 3);
    ck_assert_ptr_null(eg_f32(x));
    eg_assert_error(cx, "f32: the tensor is f64, not f32");
    eg_item(x);
    eg_assert_error(cx, "item: (2, 3) has 6 elements, not one");
    eg_get(x, 1);
    eg_assert_error(cx, "get: 1 index for (2, 3), which has 2 axes");
    eg_get(x, 1, 3);
    eg_assert_error(cx, "get: index 3 is out of range for axis 1 of (2, 3)");
    eg_close(cx);
}

/* eg_f64 of a view copies the view once, however often it is called, until the elements change. */
TEST(views_that_are_read_often_are_copied_once)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_F64, 0, 10000, 1), 100, 100);
    eg_tensor *t = eg_transpose(x, 0, 1), *u = eg_flip_axis(x, 1), *w[6];
    double total = 0;
    const size_t before = eg_stats(cx).used;
    for (int64_t i = 0; i < 10000; i++) total += eg_f64(t)[i] * eg_f64(u)[i];
    ck_assert_uint_le(eg_stats(cx).used - before, (size_t)4 << 17);
    ck_assert_double_eq(total, eg_item(eg_sum(NULL, eg_mul(t, u))));
    const double *old = eg_f64(t);
    ck_assert_ptr_eq(eg_f64(t), old);
    eg_fill(x, 3); /* a change of the elements, of which the old copy knows nothing */
    ck_assert(old[1] == 100 && eg_f64(t)[1] == 3 && eg_f64(u)[1] == 3);
    eg_assign(eg_slice_axis(x, 1, 0, 1, 1), eg_full(cx, 7, 100, 1));
    ck_assert(eg_f64(t)[99] == 7 && eg_f64(t)[100] == 3 && eg_f64(u)[99] == 7);
    eg_mark m = eg_push(cx); /* a copy that ends with an inner scope is made again outside */
    eg_tensor *v = eg_transpose(eg_copy(x), 0, 1);
    ck_assert_double_eq(eg_f64(u)[99], 7);
    ck_assert_double_eq(eg_f64(v)[99], 7);
    eg_pop(cx, m);
    ck_assert_double_eq(eg_f64(u)[99], 7);
    for (int k = 0; k < 6; k++) w[k] = eg_transpose(eg_full(cx, k, 3, 2), 0, 1);
    for (int q = 0; q < 12; q++) ck_assert_double_eq(eg_f64(w[q % 6])[q % 5], q % 6);
    double *p = eg_mut_f64(x); /* the pointer may be written to at any time */
    for (int k = 0; k < 3; k++) {
        p[1] = k;
        ck_assert_double_eq(eg_f64(t)[100], k);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
TEST(values_in)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_zeros(cx, 2, 3), *t = eg_transpose(x, 0, 1);
    eg_mut_f64(x)[5] = 7;
    ck_assert_double_eq(eg_get(t, 2, 1), 7);
    ck_assert_ptr_null(eg_mut_f64(t));
    eg_assert_error(
        cx, "mut_f64: (3, 2) with strides (1, 3) is not row-major; eg_assign writes to any view");
    ck_assert_ptr_null(eg_mut_i32(x));
    eg_assert_error(cx, "mut_i32: the tensor is f64, not i32");
    ck_assert_int_eq(eg_assign(t, eg_reshape(eg_arange(cx, EG_DEFAULT, 0, 6, 1), 3, 2)), 0);
    ck_assert_double_eq(eg_get(x, 1, 0), 1);
    ck_assert_double_eq(eg_get(x, 0, 2), 4);
    ck_assert_int_eq(eg_fill(eg_slice_axis(x, 1, 0, 2, 1), -1), 0);
    ck_assert_double_eq(eg_get(x, 1, 1), -1);
    ck_assert_double_eq(eg_get(x, 1, 2), 5);
    ck_assert_int_eq(eg_assign(x, eg_ones(cx, 3, 2)), -1);
    eg_assert_error(cx, "assign: the target is (2, 3), the value (3, 2)");
    ck_assert_int_eq(eg_assign(x, eg_full_n(cx, EG_F32, 1, 2, (int64_t[]){ 2, 3 })), -1);
    eg_assert_error(cx, "assign: the target is f64, the value f32");
    ck_assert_int_eq(eg_assign(eg_expand(eg_ones(cx, 1, 3), 2, 3), x), -1);
    eg_assert_error(cx, "assign: axis 0 of the target (2, 3) is expanded: its 2 elements are one");
    ck_assert_int_eq(eg_assign(x, NULL), -1);
    eg_assert_error(cx, "assign: the value is NULL");
    eg_ctx *other = eg_open(.dtype = EG_F64);
    ck_assert_int_eq(eg_assign(x, eg_ones(other, 2, 3)), -1);
    eg_assert_error(cx, "different contexts");
    eg_close(other);
    eg_close(cx);
}

TEST(assign_all_writes_all_or_nothing)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_arange(cx, EG_F32, 0, 6, 1), *y = eg_full(cx, 7, 3),
              *z = eg_full_n(cx, EG_F64, 0, 1, (int64_t[]){ 3 });
    /* each value as it was before: the halves of x change places by way of z, which is f64 */
    eg_tensor *const to[] = { eg_slice_axis(x, 0, 0, 3, 1), eg_slice_axis(x, 0, 3, 6, 1), z };
    eg_tensor *const from[] = { eg_slice_axis(x, 0, 3, 6, 1), to[0], to[0] };
    ck_assert_int_eq(eg_assign_all(3, to, from), 0);
    for (int k = 0; k < 6; k++) ck_assert_double_eq(eg_get(x, k), (k + 3) % 6);
    for (int k = 0; k < 3; k++) ck_assert_double_eq(eg_get(z, k), k);
    ck_assert_int_eq(eg_assign_all(0, NULL, NULL), 0);
    const struct {
        eg_tensor *value;
        const char *message;
    } refused[] = { { eg_ones(cx, 4), "tensor 1: assign_all: the target is (3,), the value (4,)" },
                    { NULL, "tensor 1: assign_all: the value is NULL" },
                    { eg_complex(y, y),
                      "tensor 1: assign_all: the target is f32, the value c128" } };
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
        ck_assert_int_eq(eg_assign_all(2, to, (eg_tensor *[]){ y, refused[k].value }), -1);
        eg_assert_error(cx, refused[k].message);
        for (int i = 0; i < 6; i++) ck_assert_double_eq(eg_get(x, i), (i + 3) % 6);
    }
    ck_assert_int_eq(eg_assign_all(-1, to, from), -1);
    ck_assert_str_eq(eg_error(NULL), "assign_all: there is no tensor to work on: -1 operands");
    eg_clear(NULL);
    ck_assert_int_eq(eg_assign_all(1, to, NULL), -1);
    eg_assert_error(cx, "assign_all: the list of values is NULL");
    eg_close(cx);
}

TEST(assign_takes_overlapping_sources)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_arange(cx, EG_F32, 0, 9, 1);
    ck_assert_int_eq(eg_assign(eg_slice_axis(x, 0, 1, 9, 1), eg_slice_axis(x, 0, 0, 8, 1)), 0);
    for (int k = 0; k < 9; k++) ck_assert_double_eq(eg_get(x, k), k ? k - 1 : 0);
    eg_tensor *y = eg_arange(cx, EG_F32, 0, 9, 1);
    ck_assert_int_eq(eg_assign(y, eg_flip_axis(y, 0)), 0);
    for (int k = 0; k < 9; k++) ck_assert_double_eq(eg_get(y, k), 8 - k);
    eg_tensor *m = eg_reshape(eg_arange(cx, EG_F32, 0, 400, 1), 20, 20);
    ck_assert_int_eq(eg_assign(m, eg_transpose(m, 0, 1)), 0);
    for (int k = 0; k < 400; k++)
        ck_assert_double_eq(eg_get(m, k / 20, k % 20), k % 20 * 20 + k / 20);
    eg_close(cx);
}

/* A source of shape (m, n, a) whose elements are apart along a: permuted in two ways, repeated
 * along a, reversed, and every second element. */
static eg_tensor *narrow_source(eg_ctx *cx, eg_dtype dtype, int form, int64_t a)
{
    const int64_t m = 5, n = 7;
    eg_tensor *x = eg_cast(eg_arange(cx, EG_F32, 0, (double)(2 * m * n * a), 1), dtype);
    x = eg_view(x, 2, m * n * a);
    x = eg_reshape(eg_select_axis(x, 0, 1), a, m, n);
    switch (form) {
    case 0: return eg_permute(x, 1, 2, 0);
    case 1: return eg_permute(eg_view(x, a, n, m), 2, 1, 0);
    case 2: return eg_expand(eg_unsqueeze(eg_select_axis(x, 0, 0), 2), m, n, a);
    case 3: return eg_flip_axis(eg_view(x, m, n, a), 2);
    default:
        return eg_slice_axis(eg_reshape(eg_concat_axis(0, x, x), m, n, 2 * a), 2, 0, EG_END, 2);
    }
}
LOOP_TEST(short_rows_are_copied_from_any_strides, 5)
{
    static const eg_dtype types[] = { EG_U8, EG_F16, EG_F32, EG_I64, EG_C128 };
    eg_ctx *cx = eg_open();
    for (int64_t a = 2; a < 10; a++)
        for (int form = 0; form < 5; form++)
            for (int gaps = 0; gaps < 2; gaps++) {
                eg_tensor *x = narrow_source(cx, types[_i], form, a),
                          *y = eg_full_n(cx, types[_i], 99, 3, (int64_t[]){ 5, 7 + 3 * gaps, a });
                if (gaps) y = eg_slice_axis(y, 1, 1, 8, 1);
                ck_assert_int_eq(eg_assign(y, x), 0);
                if (types[_i] == EG_C128) x = eg_real(x), y = eg_real(y);
                eg_assert_ok(cx);
                for (int64_t k = 0; k < 5 * 7 * a; k++)
                    ck_assert_double_eq(eg_get(y, k / (7 * a), k / a % 7, k % a),
                                        eg_get(x, k / (7 * a), k / a % 7, k % a));
            }
    eg_close(cx);
}

/* A value that a gradient needs was overwritten: detected through any view of the storage. */
TEST(what_cannot_be_written_is_refused)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 6);
    eg_assign(eg_unfold_axis(x, 0, 3, 1), eg_ones(cx, 4, 3));
    eg_assert_error(cx, "elements overlap");
    ck_assert_int_eq(eg_fill(eg_unfold_axis(x, 0, 3, 3), 7), 0);
    ck_assert_int_eq(eg_fill(eg_transpose(eg_flip_axis(eg_view(x, 3, 2), 0), 0, 1), 8), 0);
    ck_assert_double_eq(eg_get(x, 5), 8);
    ck_assert(isnan(eg_get_n(x, 1, NULL)));
    eg_assert_error(cx, "get: the indices are NULL");
    ck_assert_int_eq(eg_print(NULL, x), -1);
    eg_assert_error(cx, "print: the file is NULL");
    ck_assert_uint_eq(eg_format(x, NULL, 5), eg_format(x, NULL, 0));
    eg_close(cx);
}

TEST(writing_is_noticed_by_the_gradient)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_ones(cx, 2, 2), *w = eg_ones(cx, 2, 2), *dx;
    eg_tensor *y = eg_sum(NULL, eg_mul(x, w));
    eg_fill(eg_select_axis(w, 0, 1), 3);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), -1);
    eg_assert_error(cx, "changed in place");
    eg_close(cx);
}

TEST(detach_shares_memory_without_history)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_ones(cx, 3), *dx, *d = eg_detach(eg_scale(x, 2));
    eg_tensor *y = eg_sum(NULL, eg_mul(x, d));
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), 0);
    ck_assert_double_eq(eg_get(dx, 0), 2);
    eg_tensor *z = eg_detach(x);
    ck_assert_ptr_eq(eg_raw(z, NULL), eg_raw(x, NULL));
    ck_assert_int_eq(eg_path_to(z, x, NULL), EG_CUT_PATH);
    eg_close(cx);
}

/* -- copies and casts ------------------------------------------------------------------------- */
TEST(casts_convert_as_c_and_stay_defined)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x =
        eg_from(cx, ((double[]){ 1.9, -1.9, 0, NAN, INFINITY, -INFINITY, 1e30, 3e9 }), 8);
    const int32_t want32[] = { 1, -1, 0, 0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MAX },
                  *i = eg_i32(eg_cast(x, EG_I32));
    const int64_t want64[] = { 1, -1, 0, 0, INT64_MAX, INT64_MIN, INT64_MAX, 3000000000 },
                  *l = eg_i64(eg_cast(x, EG_I64));
    const bool wantb[] = { true, true, false, true, true, true, true, true },
               *b = eg_bool(eg_cast(x, EG_BOOL));
    for (int k = 0; k < 8; k++) {
        ck_assert_int_eq(i[k], want32[k]);
        ck_assert_int_eq(l[k], want64[k]);
        ck_assert(b[k] == wantb[k]);
    }
    ck_assert_float_eq(eg_f32(eg_cast(x, EG_F32))[0], 1.9f);
    for (eg_dtype from = EG_F32; from <= EG_BOOL; from++) /* every pair, contiguous and not */
        for (eg_dtype to = EG_F32; to <= EG_BOOL; to++) {
            eg_tensor *a =
                eg_cast(eg_reshape(eg_from(cx, ((int[]){ 0, 1, 1, 0, 1, 0 }), 6), 2, 3), from);
            eg_tensor *c = eg_cast(a, to),
                      *d = eg_cast(eg_transpose(eg_slice_axis(a, 1, EG_END, EG_END, -2), 0, 1), to);
            ck_assert_int_eq(eg_type(c), to);
            for (int k = 0; k < 6; k++)
                ck_assert_double_eq(eg_get(c, k / 3, k % 3),
                                    (double)((int[]){ 0, 1, 1, 0, 1, 0 })[k]);
            for (int k = 0; k < 4; k++)
                ck_assert_double_eq(eg_get(d, k / 2, k % 2), eg_get(c, k % 2, 2 - k / 2 * 2));
        }
    eg_cast(x, (eg_dtype)99);
    eg_assert_error(cx, "cast: 99 is not a dtype");
    eg_close(cx);
}

/* Casts of f64 to integers take the nearest number of the type, whichever neighbours are in its
 * range. */
TEST(casts_to_integers_do_not_depend_on_neighbours)
{
    static const double odd[] = { -128.9, 127.9,   128,      -129,          0x1p31,    -0x1p31 - .5,
                                  0x1p63, -0x1p63, INFINITY, -0x1p63 - 2e3, -INFINITY, NAN };
    static const eg_dtype to[] = { EG_I8, EG_U8, EG_I32, EG_I64 };
    static const double least[] = { -128, 0, INT32_MIN, -0x1p63 },
                        most[] = { 127, 255, INT32_MAX, 0x1p63 };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (int k = 0; k < 12 * 4; k++) {
        const eg_mark m = eg_push(cx);
        double v[600];
        for (int i = 0; i < 600; i++) v[i] = i % 120 + .5;
        v[47 * (k / 4) + 20] = odd[k / 4];
        eg_tensor *y = eg_cast(eg_from(cx, v, 600), to[k % 4]);
        for (int i = 0; i < 600; i++) {
            const double want =
                isnan(v[i]) ? 0 : fmin(fmax(trunc(v[i]), least[k % 4]), most[k % 4]);
            ck_assert_double_eq(eg_get(y, i), want);
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Between any strides, large enough for tiles and threads, compared with a copy element by
 * element. */
TEST(copies_agree_element_by_element)
{
    eg_ctx *cx = eg_open(.threads = 3);
    static const int64_t dims[][3] = { { 3, 4, 5 },    { 33, 17, 40 },  { 2, 129, 131 },
                                       { 16, 16, 16 }, { 1, 200, 300 }, { 300, 3, 16 },
                                       { 5, 90, 64 } };
    static const int order[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 2, 1, 0 },
                                    { 1, 2, 0 }, { 2, 0, 1 }, { 1, 0, 2 } };
    for (int d = 0; d < 7; d++)
        for (eg_dtype t = EG_F32; t <= EG_BOOL; t++)
            for (int p = 0; p < 6; p++) {
                eg_mark m = eg_push(cx);
                const int64_t n = dims[d][0] * dims[d][1] * dims[d][2];
                eg_tensor *x =
                    eg_reshape_n(eg_cast(eg_arange(cx, EG_F64, 0, (double)n, 1), t), 3, dims[d]);
                eg_tensor *v = eg_permute_n(eg_flip_axis(x, p % 3), 3, order[p]), *y = eg_copy(v);
                eg_tensor *back = eg_full_n(cx, t, 0, 3, dims[d]);
                eg_assign(eg_permute_n(eg_flip_axis(back, p % 3), 3, order[p]), y);
                ck_assert_mem_eq(eg_raw(back, NULL), eg_raw(x, NULL), (size_t)n * eg__width[t]);
                const int64_t i[3] = { eg_dim(y, 0) - 1, eg_dim(y, 1) / 2, eg_dim(y, 2) / 3 };
                ck_assert_double_eq(eg_get_n(y, 3, i), eg_get_n(v, 3, i));
                eg_pop(cx, m);
            }
    ck_assert_ptr_null(eg_error(cx));
    eg_close(cx);
}

TEST(copies_of_any_layout_agree_element_by_element)
{
    static const eg_dtype types[] = { EG_F32, EG_F64,  EG_I32, EG_I64, EG_BOOL,
                                      EG_F16, EG_BF16, EG_I8,  EG_U8,  EG_C128 };
    eg_ctx *cx = eg_open(.threads = 2);
    uint64_t state = 11;
    for (int turn = 0; turn < 600 / SLOWER; turn++) {
        eg_mark m = eg_push(cx);
        int64_t dim[VIEW_RANK];
        const int rank = draw_sizes(&state, 8000, dim);
        eg_tensor *x = random_view(cx, &state, types[turn % 10], rank, dim), *y = elements_of(x),
                  *z = random_view(cx, &state, types[turn % 10], rank, dim);
        ck_assert_msg(same_bits(eg_view(eg_contiguous(x), -1), y), "turn %d", turn);
        z = eg_copy(z); /* with the axes in z's order */
        ck_assert_int_eq(eg_assign(z, x), 0);
        ck_assert_msg(same_bits(elements_of(z), y), "turn %d: assigned", turn);
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* With non-temporal stores: rows and columns, aligned to cache lines and not, with one thread and
 * two. */
LOOP_TEST(large_copies_agree, 2)
{
    eg_ctx *cx = eg_open(.threads = 1 + _i);
    static const int64_t dims[][3] = { { 72, 750, 61 }, { 72, 750, 64 }, { 30, 36, 3001 } };
    static const int order[][3] = { { 1, 0, 2 }, { 2, 1, 0 } };
    for (int d = 0; d < 3; d++)
        for (int p = 0; p < 2; p++) {
            eg_mark m = eg_push(cx);
            const int64_t n = dims[d][0] * dims[d][1] * dims[d][2];
            eg_tensor *x = eg_reshape_n(eg_arange(cx, EG_F32, 0, (double)n, 1), 3, dims[d]),
                      *y = eg_copy(eg_permute_n(x, 3, order[p]));
            ck_assert_int_gt(n * 4, EG_STREAM_BYTES);
            const float *from = eg_f32(x), *to = eg_f32(y);
            int64_t step[3], at = 0, wrong = 0;
            eg__row_major(3, dims[d], step);
            for (int64_t i = 0; i < dims[d][order[p][0]]; i++)
                for (int64_t j = 0; j < dims[d][order[p][1]]; j++)
                    for (int64_t k = 0; k < dims[d][order[p][2]]; k++)
                        wrong += to[at++] != from[i * step[order[p][0]] + j * step[order[p][1]] +
                                                  k * step[order[p][2]]];
            ck_assert_int_eq(wrong, 0);
            eg_pop(cx, m);
        }
    ck_assert_ptr_null(eg_error(cx));
    eg_close(cx);
}

/* -- random draws ----------------------------------------------------------------------------- */
TEST(philox_known_answers) /* Random123's kat_vectors: philox 4x32, 10 rounds */
{
    static const struct {
        uint64_t seed, draw, index;
        uint32_t out[4];
    } kat[] = {
        { 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 0x299f31d0a4093822,
          0x0370734413198a2e,
          0x85a308d3243f6a88,
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t k = 0; k < sizeof kat / sizeof *kat; k++) {
        uint32_t out[4];
        eg__philox(kat[k].seed, kat[k].draw, kat[k].index, out);
        for (int j = 0; j < 4; j++) ck_assert_uint_eq(out[j], kat[k].out[j]);
    }
}

TEST(many_counters_of_philox_are_those_of_one)
{
    const uint64_t seed = 0x299f31d0a4093822, draw = UINT64_MAX - 1, first = (1ull << 32) - 70;
    uint32_t out[4 * 200 + 1], one[4];
    for (int64_t n = 0; n <= 200; n++)
        for (uint64_t step = 1; step <= 2; step++) {
            memset(out, 0xab, sizeof out);
            eg__philox_many(seed, draw, first, step, n, out);
            ck_assert_uint_eq(out[4 * n], 0xabababab);
            for (int64_t k = 0; k < n; k++) {
                eg__philox(seed, draw, first + (uint64_t)k * step, one);
                ck_assert_mem_eq(out + 4 * k, one, sizeof one);
            }
        }
}

/* Draws of the largest deviations are infinite only if they exceed the largest number. */
TEST(normal_draws_of_large_deviation_are_scaled)
{
    eg_ctx *cx = eg_open(.seed = 11);
    const int64_t n = 4000;
    eg_tensor *unit = eg_normal_n(cx, EG_F64, 0, 0x1p900, 1, &n);
    eg_seed(cx, 11);
    eg_tensor *large = eg_normal_n(cx, EG_F64, 0, 0x1p1023, 1, &n);
    eg_assert_ok(cx);
    int finite = 0;
    for (int64_t k = 0; k < n; k++) {
        finite += fabs(eg_f64(large)[k]) <= DBL_MAX;
        ck_assert(eg_f64(large)[k] == eg_f64(unit)[k] * 0x1p123);
    }
    ck_assert(finite > n / 2 && finite < n);
    eg_close(cx);
}
/* Box and Muller's formula by the functions of libm, for any number of elements and any number of
 * threads, and its f32 numbers are those of f64, rounded. */
TEST(normal_numbers_by_formula)
{
    enum { N = 70001 };
    static const int sizes[] = { 1, 2, 255, 256, 257, 8191, N };
    for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++) {
        eg_ctx *cx = eg_open(.seed = 9, .dtype = EG_F64, .threads = c % 2 ? 4 : 1);
        const uint64_t seed = eg__seed_of(cx);
        const double *z = eg_f64(eg_normal(cx, 3, 2, sizes[c]));
        eg_seed(cx, 9);
        const float *f = eg_f32(eg_normal_n(cx, EG_F32, 3, 2, 1, (int64_t[]){ sizes[c] }));
        for (int k = 0; k < sizes[c]; k++) {
            uint32_t r[4];
            eg__philox(seed, 0, (uint64_t)(k & ~1), r);
            const double u = ((double)(((uint64_t)r[1] << 32 | r[0]) >> 11) + 1) * 0x1p-53,
                         v = (double)(((uint64_t)r[3] << 32 | r[2]) >> 11) * 0x1p-53,
                         angle = 2 * M_PI * v, part = k % 2 ? sin(angle) : cos(angle);
            ck_assert_double_eq_tol(z[k], 3 + 2 * sqrt(-2 * log(u)) * part, 2e-14);
            ck_assert_float_eq(f[k], (float)z[k]);
        }
        eg_close(cx);
    }
}

/* An integer is low + the remainder of the first of its words that is not below 2^64 mod range. */
TEST(integers_are_remainders_of_words)
{
    static const int64_t ends[][2] = {
        { 0, 1 },         { 0, 2 },         { -5, 2 },
        { 0, 1000 },      { 7, 1ll << 32 }, { 0, (1ll << 32) + 1 },
        { 0, 1ll << 62 }, { 0, 3ll << 61 }, { -(1ll << 62), 1ll << 62 },
        { 0, INT64_MAX }, { INT64_MIN, 1 }, { INT64_MIN, INT64_MAX },
    };
    enum { N = 300 };
    eg_ctx *cx = eg_open(.seed = 5);
    const uint64_t seed = eg__seed_of(cx);
    for (uint64_t draw = 0; draw < sizeof ends / sizeof *ends; draw++) {
        const int64_t low = ends[draw][0], *y = eg_i64(eg_randint(cx, low, ends[draw][1], N));
        const uint64_t range = (uint64_t)ends[draw][1] - (uint64_t)low, refused = -range % range;
        for (uint64_t k = 0; k < N; k++) {
            uint32_t r[4];
            uint64_t word, next = seed;
            eg__philox(next, draw, k, r);
            for (int half = 0; (word = (uint64_t)r[half + 1] << 32 | r[half]) < refused; half ^= 2)
                if (half) eg__philox(next += 0x9e3779b97f4a7c15u, draw, k, r);
            ck_assert(y[k] == (int64_t)((uint64_t)low + word % range));
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(draws_have_the_moments_and_stay_inside)
{
    eg_ctx *cx = eg_open(.seed = 3);
    enum { N = 200001 };
    const float *u = eg_f32(eg_uniform(cx, -1, 3, N)), *z = eg_f32(eg_normal(cx, 2, .5, N));
    const int64_t *r = eg_i64(eg_randint(cx, -2, 5, N));
    double mu = 0, mz = 0, vz = 0, count[7] = { 0 };
    for (int k = 0; k < N; k++) {
        ck_assert(u[k] >= -1 && u[k] < 3 && r[k] >= -2 && r[k] < 5);
        mu += (double)u[k] / N;
        mz += (double)z[k] / N;
        vz += ((double)z[k] - 2) * ((double)z[k] - 2) / N;
        count[r[k] + 2]++;
    }
    ck_assert_double_eq_tol(mu, 1, .01);
    ck_assert_double_eq_tol(mz, 2, .005);
    ck_assert_double_eq_tol(vz, .25, .005);
    double chi2 = 0;
    for (int k = 0; k < 7; k++) chi2 += (count[k] - N / 7.) * (count[k] - N / 7.) / (N / 7.);
    ck_assert_double_lt(chi2, 22.5); /* 6 degrees of freedom: exceeded once in 1000 */
    const int64_t *wide = eg_i64(eg_randint_n(cx, INT64_MIN, INT64_MAX, 1, (int64_t[]){ 1000 }));
    int high = 0;
    for (int k = 0; k < 1000; k++) high += wide[k] > 0;
    ck_assert(high > 400 && high < 600);
    const float *tiny = eg_f32(eg_uniform(cx, 1, 1 + 1e-9, 100));
    for (int k = 0; k < 100; k++) ck_assert_float_eq(tiny[k], 1);
    eg_close(cx);
}

/* an element depends only on seed, number of the draw, and index */
TEST(draws_do_not_depend_on_threads)
{
    eg_ctx *one = eg_open(.seed = 5, .threads = 1), *many = eg_open(.seed = 5, .threads = 7);
    enum { N = 30011 };
    for (int round = 0; round < 2; round++) {
        ck_assert_mem_eq(eg_f32(eg_normal(one, 0, 1, N)), eg_f32(eg_normal(many, 0, 1, N)),
                         N * sizeof(float));
        ck_assert_mem_eq(eg_f32(eg_uniform(one, 0, 1, N)), eg_f32(eg_uniform(many, 0, 1, N)),
                         N * sizeof(float));
        ck_assert_mem_eq(eg_i64(eg_randint(one, 0, 9, N)), eg_i64(eg_randint(many, 0, 9, N)),
                         N * sizeof(int64_t));
    }
    ck_assert_uint_eq(eg_draws(one), 6);
    eg_tensor *now = eg_normal(one, 0, 1, 5);
    eg_set_draws(one, 6);
    ck_assert_mem_eq(eg_f32(now), eg_f32(eg_normal(one, 0, 1, 5)), 5 * sizeof(float));
    eg_close(one);
    eg_close(many);
}

/* -- loops ------------------------------------------------------------------------------------ */
static void multiply(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    (void)user;
    for (int64_t i = 0; i < n; i++)
        *(double *)(p[0] + i * step[0]) =
            *(const double *)(p[1] + i * step[1]) * *(const double *)(p[2] + i * step[2]);
}
TEST(loops_reach_every_element_once)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 4);
    static const int64_t dims[][4] = { { 2, 3, 4, 5 },     { 1, 1, 1, 1 }, { 3, 1, 1, 70000 },
                                       { 300, 2, 1, 200 }, { 0, 3, 4, 5 }, { 2, 2, 50000, 1 } };
    for (int d = 0; d < 6; d++)
        for (int how = 0; how < 4; how++) {
            eg_mark m = eg_push(cx);
            int64_t turned[4] = { dims[d][3], dims[d][1], dims[d][2], dims[d][0] };
            eg_tensor *y = eg_full_n(cx, EG_F64, -7, 4, dims[d]),
                      *a = eg_uniform_n(cx, EG_F64, 1, 2, 4, dims[d]), *b;
            if (how == 0)
                b = eg_uniform_n(cx, EG_F64, 1, 2, 4, dims[d]);
            else if (how == 1)
                b = eg_transpose(eg_uniform_n(cx, EG_F64, 1, 2, 4, turned), 0, 3);
            else if (how == 2)
                b = eg_expand_n(eg_uniform_n(cx, EG_F64, 1, 2, 1, &dims[d][3]), 4, dims[d]);
            else
                b = eg_flip_axis(eg_flip_axis(eg_uniform_n(cx, EG_F64, 1, 2, 4, dims[d]), 3), 0);
            eg__loop(cx, 3, (const eg_tensor *[]){ y, a, b }, multiply, NULL);
            const double *py = eg_f64(y), *pa = eg_f64(a), *pb = eg_f64(b);
            for (int64_t k = 0; k < eg_size(y); k++) ck_assert(py[k] == pa[k] * pb[k]);
            eg_pop(cx, m);
        }
    ck_assert_ptr_null(eg_error(cx));
    eg_close(cx);
}

static atomic_int stretches;
static void count_stretch(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    (void)n, (void)p, (void)step, (void)user;
    atomic_fetch_add(&stretches, 1);
}
/* Loops that could have been divided while helpers slept add up, whatever the operands are: a
 * second call that is worth dividing wakes them. This also holds for a context that has no helpers
 * yet. */
TEST(loops_that_add_up_wake_helpers)
{
    for (int how = 0; how < 3; how++) {
        eg_ctx *cx = eg_open(.threads = 2);
        eg_tensor *x = eg_zeros(cx, 512, 512);
        if (how) x = eg_flip_axis(x, how == 1 ? 1 : 0);
        if (how == 1) x = eg_flip_axis(x, 0); /* one axis with negative steps */
        int most = 0;
        for (int k = 0; k < 3; k++) {
            stretches = 0;
            eg__loop(cx, 1, (const eg_tensor *[]){ x }, count_stretch, NULL);
            if (stretches > most) most = stretches;
        }
        ck_assert_msg(cx->team != NULL && (how == 2 || most > 1), "operands %d: %d pieces", how,
                      most);
        ck_assert_ptr_null(eg_error(cx));
        eg_close(cx);
    }
}

/* -- printing --------------------------------------------------------------------------------- */
static eg_tensor *read_case(eg_ctx *cx, eg_dtype type, int rank, const int64_t *dims,
                            const char *data)
{
    int64_t size = eg__count(rank, dims);
    double start, step;
    if (sscanf(data, "ramp %lf %lf", &start, &step) == 2) {
        eg_tensor *x = eg_arange(cx, EG_F64, 0, (double)size, 1);
        double *p = eg_mut_f64(x);
        for (int64_t k = 0; k < size; k++) p[k] = start + (double)k * step;
        return eg_reshape_n(eg_cast(x, type), rank, dims);
    }
    /* the bytes are little-endian */
    const size_t number = type == EG_C128 ? 8 : eg__width[type];
    const size_t turned = eg__encoding_little() ? 0 : number - 1;
    unsigned char *bytes = malloc(strlen(data) / 2 + number);
    for (size_t k = 0; data[2 * k] && data[2 * k + 1]; k++) {
        char two[3] = { data[2 * k], data[2 * k + 1], 0 };
        bytes[k ^ turned] = (unsigned char)strtoul(two, NULL, 16);
    }
    eg_tensor *x = eg_from_n(cx, type, bytes, rank, dims);
    free(bytes);
    return x;
}
/* 452 arrays and NumPy's text for them: tests/reference/print_numpy.py */
TEST(prints_as_numpy)
{
    const char *path = source_path("tests/data/print.txt");
    char *line = NULL, *rest = NULL;
    size_t room = 0, rest_room = 0;
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    eg_ctx *cx = eg_open();
    int cases = 0;
    for (ssize_t got; (got = getline(&line, &room, file)) > 0; cases++) {
        char type[8], sizes[128], want[20000] = "", have[20000];
        int lines, data, rank = 0;
        int64_t dims[EG_RANK_MAX];
        line[got - 1] = 0;
        ck_assert_int_eq(sscanf(line, "%7s %127s %d %n", type, sizes, &lines, &data), 3);
        for (char *p = sizes; *p && *p != '-'; p += *p == 'x') dims[rank++] = strtoll(p, &p, 10);
        for (size_t n = 0; lines-- > 0; n += strlen(want + n)) {
            ck_assert(getline(&rest, &rest_room, file) > 0);
            snprintf(want + n, sizeof want - n, "%s", rest);
        }
        want[strlen(want) - 1] = 0;
        eg_dtype t = EG_F32;
        while (strcmp(eg_type_name(t), type)) ck_assert(++t < (int)EG_DTYPES);
        eg_mark m = eg_push(cx);
        eg_tensor *x = read_case(cx, t, rank, dims, line + data);
        ck_assert_uint_eq(eg_format(x, have, sizeof have), strlen(want));
        ck_assert_str_eq(have, want);
        eg_pop(cx, m);
    }
    ck_assert_int_eq(cases, 452);
    free(line);
    free(rest);
    fclose(file);
    eg_close(cx);
}

TEST(prints_views_and_counts_as_snprintf)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_I64, 0, 6, 1), 2, 3);
    char text[64], small[6], *out = NULL;
    size_t n = 0;
    const char *want = "[[0 3]\n [1 4]\n [2 5]]";
    ck_assert_uint_eq(eg_format(eg_transpose(x, 0, 1), text, sizeof text), strlen(want));
    ck_assert_str_eq(text, want);
    ck_assert_uint_eq(eg_format(eg_transpose(x, 0, 1), small, sizeof small), strlen(want));
    ck_assert_str_eq(small, "[[0 3");
    ck_assert_uint_eq(eg_format(x, NULL, 0), strlen("[[0 1 2]\n [3 4 5]]"));
    FILE *file = open_memstream(&out, &n);
    ck_assert_int_eq(eg_print(file, eg_from(cx, ((double[]){ 1, 2.5 }), 2)), 0);
    fclose(file);
    ck_assert_str_eq(out, "[1.  2.5]\n");
    free(out);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        ck_assert_int_eq(eg_print(full, x), -1);
        fclose(full);
    }
    eg_close(cx);
}

/* -- sums over axes that expand broadcasts ----------------------------------------------------- */
/* Σ x over the axes that a broadcast of (dims) to x's shape expands: the gradient of that
 * broadcast. */
static eg_tensor *summed(eg_tensor *x, int rank, const int64_t *dims)
{
    eg_tensor *narrow = eg_full_n(eg_context(x), eg_type(x), 0, rank, dims), *g;
    eg_grad(eg_expand_n(narrow, eg_rank(x), eg_dims(x)), x, 1, &narrow, &g);
    return g;
}
TEST(sums_right_whatever_the_threads_and_strides)
{
    static const struct {
        int rx;
        int64_t x[5];
        int ry;
        int64_t y[5];
    } shapes[] = {
        { 3, { 64, 40, 64 }, 1, { 64 } },
        { 3, { 64, 40, 64 }, 3, { 64, 40, 1 } },
        { 3, { 64, 40, 64 }, 3, { 64, 1, 64 } },
        { 4, { 9, 7, 300, 5 }, 2, { 300, 1 } },
        { 4, { 9, 7, 300, 5 }, 4, { 1, 7, 1, 5 } },
        { 1, { 100000 }, 0, { 0 } },
        { 2, { 3, 0 }, 1, { 1 } },
        { 2, { 0, 3 }, 1, { 3 } },
        { 3, { 1, 2, 3 }, 2, { 2, 3 } },
        { 2, { 513, 257 }, 1, { 257 } },
        { 5, { 3, 4, 5, 6, 7 }, 4, { 4, 1, 6, 1 } },
    };
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 1);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int how = 0; how < 3; how++) {
            eg_mark m = eg_push(cx);
            int rx = shapes[s].rx, ry = shapes[s].ry;
            eg_tensor *x = eg_uniform_n(cx, EG_F64, -1, 1, rx, shapes[s].x);
            if (how == 1 && rx > 1) x = eg_transpose(eg_copy(eg_transpose(x, 0, -1)), 0, -1);
            if (how == 2) x = eg_flip_axis(x, 0);
            eg_tensor *y = summed(x, ry, shapes[s].y), *again, *want = eg_zeros_like(y);
            eg_threads(cx, 5);
            again = summed(x, ry, shapes[s].y);
            eg_threads(cx, 1);
            ck_assert_mem_eq(eg_f64(y), eg_f64(again), (size_t)eg_size(y) * 8);
            const double *p = eg_f64(x);
            double *w = eg_mut_f64(want);
            for (int64_t k = 0; k < eg_size(x); k++) {
                int64_t at = 0, rest = k, scale = 1, i[5];
                for (int r = rx; r-- > 0; rest /= shapes[s].x[r]) i[r] = rest % shapes[s].x[r];
                for (int r = ry; r-- > 0; scale *= shapes[s].y[r])
                    if (shapes[s].y[r] > 1) at += scale * i[r + rx - ry];
                w[at] += p[k];
            }
            for (int64_t k = 0; k < eg_size(y); k++)
                ck_assert_double_eq_tol(eg_f64(y)[k], w[k], near_zero * 1e2);
            eg_pop(cx, m);
        }
    /* a million times 0.1 in f32: added one after another the second digit would be wrong */
    eg_tensor *tenth = eg_full_n(cx, EG_F32, .1, 2, (int64_t[]){ 1000000, 1 });
    ck_assert_double_eq_tol(eg_item(summed(tenth, 1, (int64_t[]){ 1 })), 1e5, .1);
    eg_close(cx);
}

static bool read_forward(eg_tensor *y) { return eg_f64(eg_operand(y, 0)) != NULL; }
static bool write_forward(eg_tensor *y) { return eg_mut_f64(y) != NULL; }
static bool item_forward(eg_tensor *y)
{
    eg_item(eg_operand(y, 0));
    return !eg_error(eg_context(y));
}
static bool inner_forward(eg_tensor *y) { return eg_ok(eg_einsum("ij->i", eg_operand(y, 0))); }
static bool named_forward(eg_tensor *y)
{
    return eg_ok(eg_fail(eg_context(y), "mine: in its own words"));
}
/* Also where the sizes are those of a tensor that a function makes for a caller, and where a custom
 * operation calls another function. */
TEST(refusals_name_the_operation)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_owner *o = eg_owner_open(cx);
    const int64_t big[] = { (int64_t)1 << 31, (int64_t)1 << 31, (int64_t)1 << 31 }, bad[] = { -1 };
    eg_owner_tensor(o, EG_F32, 3, big);
    eg_assert_error(cx, "owner_tensor: the sizes up to axis 1 (2147483648) make more than 2^63");
    eg_owner_tensor(o, EG_F32, 1, bad);
    eg_assert_error(cx, "owner_tensor: size -1 of axis 0 is negative");
    eg_owner_copies(o, eg_copies_open(o, 2, NULL), EG_F32, 1, NULL);
    eg_assert_error(cx, "owner_copies: rank 1, but the sizes are NULL");
    eg_where_mask(cx, "j <= i", "i j k", 0, big);
    eg_assert_error(cx, "where_mask: the sizes up to axis 2 (2147483648) make more than 2^63");
    eg_params *p = eg_params_open(cx);
    eg_constant_n(p, 1, bad);
    eg_assert_error(cx, "constant: owner_tensor: size -1 of axis 0 is negative");
    ck_assert_int_eq(eg_rank(eg_constant(p, 2, 3)), 2);
    eg_param_n(p, "W", "a b c", 3, big);
    eg_assert_error(cx, "param \"W\": owner_tensor: the sizes up to axis 1 (2147483648) make more");
    eg_param_n(p, "W", "a b", 2, big);
    eg_assert_error(cx, "param \"W\": owner_tensor: the sizes up to axis 1");
    char why[200] = "";
    const eg_shape shape = { EG_F32, 3, big, NULL };
    ck_assert_ptr_null(eg_plan_new(.spec = "abc->a", .count = 1, .operands = &shape, .why = why,
                                   .why_size = sizeof why));
    ck_assert_str_eq(why, "einsum: the sizes up to axis 1 (2147483648) make more than 2^63 bytes");

    eg_tensor *x = eg_cast(eg_ones(cx, 2), EG_I64);
    const struct {
        bool (*forward)(eg_tensor *);
        const char *error;
    } ops[] = { { read_forward, "mine: f64: the tensor is i64, not f64" },
                { write_forward, "mine: mut_f64: the tensor is i64, not f64" },
                { item_forward, "mine: item: (2,) has 2 elements, not one" },
                { inner_forward, "mine: einsum: " },
                { named_forward, "mine: in its own words" } };
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        const eg_op mine = {
            .name = "mine", .arity = 1, .shape = like_first, .forward = ops[k].forward
        };
        ck_assert(!eg_ok(eg_apply(&mine, NULL, 0, 1, &x)));
        ck_assert_msg(eg_error(cx) && !strncmp(eg_error(cx), ops[k].error, strlen(ops[k].error)),
                      "%s", eg_error(cx));
        eg_clear(cx);
    }
    eg_close(cx);
}

/* Integers are filled with the value that is asked for, without its fraction, or it is refused:
 * they were filled with the nearest one of the range, and with 0 for NaN. */
TEST(values_that_an_integer_dtype_cannot_hold)
{
    static const struct {
        eg_dtype dtype;
        double value;
        bool held;
    } row[] = {
        { EG_I8, 127, true },     { EG_I8, 128, false },       { EG_I8, -128, true },
        { EG_I8, -129, false },   { EG_U8, 255, true },        { EG_U8, 256, false },
        { EG_U8, -1, false },     { EG_I32, 0x1p31, false },   { EG_I32, -0x1p31, true },
        { EG_I32, 1.5, true },    { EG_I64, 0x1p63, false },   { EG_I64, -0x1p63, true },
        { EG_I64, NAN, false },   { EG_I64, INFINITY, false }, { EG_BOOL, 2, true },
        { EG_F32, 1e300, true },  { EG_F16, NAN, true },       { EG_F64, .5, true },
        { EG_C128, 1e300, true },
    };
    eg_ctx *cx = eg_open();
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        char message[64], who[3][8] = { "full", "fill", "pad" };
        eg_tensor *x = eg_full_n(cx, row[k].dtype, 0, 1, (int64_t[]){ 2 }), *y = NULL;
        for (int call = 0; call < 3; call++) {
            if (call == 0) y = eg_full_n(cx, row[k].dtype, row[k].value, 1, (int64_t[]){ 2 });
            if (call == 1) y = eg_fill(x, row[k].value) ? NULL : x;
            if (call == 2) y = eg_pad_axis(x, 0, 1, 0, row[k].value);
            if (row[k].held) {
                ck_assert_msg(eg_ok(y), "row %zu, %s: %s", k, who[call], eg_error(cx));
                if (row[k].dtype == EG_I32 || row[k].dtype == EG_I64)
                    ck_assert(eg_get(y, 0) == trunc(row[k].value));
                continue;
            }
            snprintf(message, sizeof message, "%s: %s cannot hold the value ", who[call],
                     eg_type_name(row[k].dtype));
            ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), message) == eg_error(cx),
                          "row %zu, %s: %s", k, message, eg_error(cx) ? eg_error(cx) : "accepted");
            eg_clear(cx);
        }
    }
    eg_close(cx);
}
