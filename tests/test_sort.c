/* test_sort.c: order along an axis (sort, argsort, topk), recurrences (linear_scan, cumprod),
 * p-norms. */
#include <eingrad.h>
#include <math.h>
#include <string.h>
#include "tests.h"
#include "stored_values.h"

GROUP("sort")

TEST(sort_keeps_equals_in_their_order)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *order,
        *x = eg_from(cx, ((double[]){ 3, NAN, 1, 3, -INFINITY, 1, INFINITY, NAN }), 8);
    SHOWS(eg_sort("[l]", x, .order = &order), -INFINITY, 1, 1, 3, 3, INFINITY, NAN, NAN);
    SHOWS(order, 4, 2, 5, 0, 3, 6, 1, 7);
    ck_assert_int_eq(eg_type(order), EG_I64);
    SHOWS(eg_argsort("[l]", x), 4, 2, 5, 0, 3, 6, 1, 7);
    SHOWS(eg_sort("[l]", x, .descending = true, .order = &order), NAN, NAN, INFINITY, 3, 3, 1, 1,
          -INFINITY);
    SHOWS(order, 1, 7, 6, 0, 3, 2, 5, 4);
    SHOWS(eg_argsort("[l]", x, .descending = true), 1, 7, 6, 0, 3, 2, 5, 4);
    SHOWS(eg_sort("[l]", eg_from(cx, ((int[]){ 2, INT32_MIN, INT32_MAX, 2 }), 4)), INT32_MIN, 2, 2,
          INT32_MAX);
    SHOWS(eg_argsort("[l]", eg_from(cx, ((bool[]){ true, false, true, false }), 4)), 1, 3, 0, 2);
    ck_assert_int_eq(eg_type(eg_sort("[l]", eg_from(cx, ((bool[]){ true, false }), 2))), EG_BOOL);
    ck_assert_int_eq(eg_size(eg_sort("b [l]", eg_zeros(cx, 3, 0))), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* True if index a precedes index b by the definition of argsort. */
static bool comes_before(const double *v, int64_t a, int64_t b, bool descending)
{
    const bool a_nan = v[a] != v[a], b_nan = v[b] != v[b];
    if (v[a] == v[b] || (a_nan && b_nan)) return a < b;
    const bool below = b_nan || (!a_nan && v[a] < v[b]);
    return below != descending;
}
/* The first k indices of rows of every length, dtype and layout: sorted, equal elements in their
 * order, and no other index precedes the last of them. */
LOOP_TEST(positions_of_long_rows, 6)
{
    enum { ROWS = 3, MOST = 9000 };
    static const int64_t lengths[] = { 1, 2, 22, 23, 31, 45, 46, 63, 64, 130, 300, 1500, MOST };
    const eg_dtype dtype = (eg_dtype[]){ EG_F32, EG_F64, EG_I32, EG_I64, EG_BOOL, EG_C128 }[_i];
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    static double value[ROWS * MOST];
    uint64_t state = 1 + (uint64_t)_i;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int turn = 0; turn < 20; turn++) {
            const eg_mark m = eg_push(cx);
            const int64_t few = 2 * (turn - 11), n = lengths[l],
                          k = turn == 16      ? n / 4 /* of a row of equal elements */
                              : turn > 11     ? few < n ? few : n
                              : turn % 3 == 0 ? n
                              : turn % 3 == 1 ? (turn % 2   ? n / 9
                                                 : n > 8000 ? n / 420
                                                            : n / 3)
                                              : (n + 1) / 2;
            const bool descending = turn % 2;
            for (int64_t e = 0; e < ROWS * n; e++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                const int64_t d = (int64_t)(state >> 40) % 2000 - 1000;
                value[e] = turn > 5 ? (double)d * 1e3 : (double)(d % 40);
                if (dtype == EG_F32 || dtype == EG_F64)
                    value[e] = d % 37 == 1   ? NAN
                               : d % 37 == 2 ? -INFINITY
                               : d % 37 == 3 ? -0.0
                               : d % 37 == 4 ? 0
                                             : value[e] * 0.37;
                /* a row of equal elements, the last of which is NaN for floats */
                if (turn > 15 && e < n) value[e] = e < n - 1 || dtype > EG_F64 ? 1 : NAN;
            }
            eg_tensor *x = eg_cast(eg_from_n(
                                       cx, EG_F64, value, 2,
                                       (int64_t[]) {
                                           ROWS
                                           , n
                                       }),
                                   dtype);
            if (turn % 4 == 1) x = eg_permute(eg_copy(eg_permute(x, 1, 0)), 1, 0);
            if (turn % 4 == 2) x = eg_flip_axis(eg_copy(eg_flip_axis(x, 1)), 1);
            eg_threads(cx, 1 + turn % 3);
            eg_tensor *place;
            eg_topk("b [l]", x, k, .smallest = !descending, .order = &place);
            eg_assert_ok(cx);
            const double *all =
                eg_f64(eg_contiguous(eg_cast(dtype == EG_C128 ? eg_real(x) : x, EG_F64)));
            const double *at = eg_f64(eg_contiguous(eg_cast(place, EG_F64)));
            for (int64_t r = 0; r < ROWS && k > 1; r++) {
                static bool taken[MOST];
                const double *v = all + r * n, *a = at + r * k;
                memset(taken, 0, sizeof taken);
                for (int64_t i = 0; i < k; i++) {
                    ck_assert(a[i] >= 0 && a[i] < (double)n && !taken[(int64_t)a[i]]);
                    taken[(int64_t)a[i]] = true;
                    if (i) ck_assert(comes_before(v, (int64_t)a[i - 1], (int64_t)a[i], descending));
                }
                for (int64_t e = 0; e < n; e++)
                    if (!taken[e]) ck_assert(comes_before(v, (int64_t)a[k - 1], e, descending));
            }
            eg_pop(cx, m);
        }
    eg_close(cx);
}

/* Rows that are one in memory, and rows of one number, get the order of a copy. */
LOOP_TEST(expanded_rows_have_the_order_of_a_copy, 2 * 3)
{
    static const int64_t from[][3] = { { 1, 1, 40 }, { 6, 1, 40 }, { 1, 5, 40 }, { 6, 5, 1 } };
    const bool descending = _i % 2;
    eg_ctx *cx = eg_open(.threads = 1 + _i / 2);
    for (int k = 0; k < 4; k++) {
        eg_tensor *x = eg_round(eg_normal_n(cx, EG_F32, 0, 3, 3, from[k])), *places[2];
        x = eg_expand(x, 6, 5, 40);
        eg_tensor *copy = eg_copy(x);
        ck_assert(same_bits(eg_argsort("a b [n]", x, .descending = descending),
                            eg_argsort("a b [n]", copy, .descending = descending)));
        ck_assert(same_bits(eg_sort("a b [n]", x, .descending = descending),
                            eg_sort("a b [n]", copy, .descending = descending)));
        ck_assert(
            same_bits(eg_topk("a b [n]", x, 3, .smallest = !descending, .order = &places[0]),
                      eg_topk("a b [n]", copy, 3, .smallest = !descending, .order = &places[1])));
        ck_assert(same_bits(places[0], places[1]));
        ck_assert(same_bits(eg_argsort("[a] b n", x), eg_argsort("[a] b n", copy)));
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Rows in order but for one pair of neighbours, at each of its places: the pair is exchanged. */
TEST(rows_that_are_nearly_in_order)
{
    enum { N = 130 };
    eg_ctx *cx = eg_open();
    for (int at = 0; at < N; at++) { /* 0: no pair */
        const eg_mark m = eg_push(cx);
        for (int k = 0; k < 4; k++) {
            const eg_dtype dtype = (eg_dtype[]){ EG_F32, EG_F64, EG_I32, EG_I64 }[k];
            eg_tensor *x = eg_copy(eg_cast(eg_arange(cx, EG_F64, 0, N, 1), dtype));
            if (k < 2)
                x = eg_where(eg_gt(x, eg_full_n(cx, dtype, N - 3, 0, NULL)), eg_scale(x, NAN), x);
            eg_tensor *want = eg_copy(eg_arange(cx, EG_I64, 0, N, 1));
            int64_t *w = eg_mut_i64(want);
            if (at && (k > 1 || at < N - 2)) {
                eg_tensor *order = eg_copy(want);
                int64_t *o = eg_mut_i64(order);
                o[at] = at - 1, o[at - 1] = at;
                w[at] = at - 1, w[at - 1] = at;
                x = eg_at("[v], n -> n", x, order);
            }
            ck_assert_msg(same_bits(eg_argsort("[n]", x), want), "%s, %d", eg_type_name(dtype), at);
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Along any axis, with any layout and in groups: equal to sorting each row; topk is the beginning
 * of sort. */
TEST(sort_and_topk_by_letters)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 0, 3, 7, 4), *rows = eg_permute(x, 0, 2, 1), *order, *best;
    eg_tensor *last = eg_permute(eg_sort("b d [l]", rows), 0, 2, 1),
              *y = eg_sort("b [l] d", x, .order = &order);
    eg_assert_close(y, last, 0);
    eg_assert_close(eg_sort("b [l] d", eg_copy(rows), .order = NULL), eg_sort("b [l] d", rows), 0);
    eg_assert_close(eg_at("b [k] d, b l d -> b l d", x, order), y, 0);
    eg_assert_close(eg_sort("b ([l] d=4)", eg_reshape(x, 3, 28)), eg_reshape(y, 3, 28), 0);
    eg_assert_close(eg_sort("... [d]", x, .descending = true),
                    eg_flip_axis(eg_sort("... [d]", x), -1), 0);
    for (int64_t k = 0; k <= 7; k++) {
        eg_tensor *top = eg_topk("b [l] d", x, k, .order = &best),
                  *low = eg_topk("b [l] d", x, k, .smallest = true);
        eg_assert_axes("b l d", top, NULL, NULL, NULL);
        eg_assert_close(top, eg_slice_axis(eg_sort("b [l] d", x, .descending = true), 1, 0, k, 1),
                        0);
        eg_assert_close(low, eg_slice_axis(y, 1, 0, k, 1), 0);
        if (k) eg_assert_close(eg_at("b [j] d, b l d -> b l d", x, best), top, 0);
    }
    eg_assert_close(eg_topk("b ([l] d=4)", eg_reshape(x, 3, 28), 2),
                    eg_reshape(eg_topk("b [l] d", x, 2), 3, 8), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* The largest element and its index, if the string has an output: the results of max and argmax, in
 * any order of axes. */
TEST(topk_of_one_drops_its_axis)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 0, 3, 7, 4), *place, *dx, *want;
    eg_tensor *y = eg_topk("b [l] d -> d b", x, 1, .order = &place);
    eg_assert_close(y, eg_max("b [l] d -> d b", x), 0);
    SHOWS(eg_eq(place, eg_argmax("b [l] d -> d b", x)), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
    eg_grad(y, eg_ones_like(y), 1, &x, &dx);
    eg_grad(eg_max("b [l] d -> d b", x), eg_ones_like(y), 1, &x, &want);
    eg_assert_close(dx, want, 0);
    eg_assert_close(eg_topk("b ([l] d=4) -> b d", eg_reshape(x, 3, 28), 1, .smallest = true),
                    eg_min("b [l] d", x), 0);
    eg_assert_ok(cx);
    eg_topk("b [l] d -> b d", x, 2);
    eg_assert_error(cx, "it takes no output");
    eg_topk("b [l] d -> b l d", x, 1);
    eg_assert_error(cx, "no axis of the result and cannot be in the output");
    eg_topk("b [l] d -> b", x, 1);
    eg_assert_error(cx, "index 'd' is neither in brackets nor in the output");
    eg_topk("[b l] d -> d", x, 1);
    eg_assert_error(cx, "works along one axis");
    eg_close(cx);
}

TEST(topk_passes_gradients_to_its_positions)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ 1, 5, 3, 2, 9, 7, 8, 6 }), 2, 4), *dx;
    eg_tensor *g = eg_from(cx, ((double[]){ 10, 20, 30, 40 }), 2, 2);
    eg_grad(eg_topk("b [l]", x, 2), g, 1, &x, &dx);
    SHOWS(dx, 0, 10, 20, 0, 30, 0, 40, 0);
    eg_grad(eg_sort("b [l]", eg_cast(x, EG_F32)),
            eg_cast(eg_reshape(eg_arange(cx, EG_F64, 0, 8, 1), 2, 4), EG_F32), 1, &x, &dx);
    SHOWS(dx, 0, 3, 2, 1, 7, 5, 6, 4);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(sort_refuses)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3), *order;
    eg_topk("b [l]", x, 4);
    eg_assert_error(cx, "topk: k is 4, but the bracketed axis of operand 1 has 3 elements");
    eg_topk("b [l]", x, -1, .order = &order);
    eg_assert_error(cx, "topk: k is -1");
    ck_assert(!eg_ok(order));
    eg_sort("[b l]", x);
    eg_assert_error(cx, "sort: works along one axis, and this is the second one in brackets");
    eg_sort("b l", x);
    eg_assert_error(cx, "no index is in brackets");
    eg_argsort("b [l] -> l b", x);
    eg_assert_error(cx, "it takes no output");
    eg_sort(NULL, x, .order = &order);
    eg_assert_error(cx, "sort: (2, 3) has no single axis");
    ck_assert(!eg_ok(order));
    ck_assert_ptr_null(eg_sort_with(NULL));
    ck_assert_ptr_null(eg_topk_with(NULL));
    eg_close(cx);
}

GROUP("recurrences")

/* y_l = a_l y_{l−1} + b_l, written out. */
TEST(linear_scan_is_its_loop)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *a = wave(cx, 0, 2, 6, 3), *b = wave(cx, 1, 2, 6, 3),
              *y = eg_linear_scan("b [l] d", a, b);
    const double *u = eg_f64(a), *v = eg_f64(b), *w = eg_f64(y);
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < 3; d++) {
            double h = 0;
            for (int l = 0; l < 6; l++) {
                const int k = (i * 6 + l) * 3 + d;
                h = u[k] * h + v[k];
                ck_assert_double_eq_tol(w[k], h, 1e-14);
            }
        }
    eg_assert_close(
        eg_permute(eg_linear_scan("[l] b d", eg_permute(a, 1, 0, 2), eg_permute(b, 1, 0, 2)), 1, 0,
                   2),
        y, 0);
    eg_assert_close(eg_linear_scan("b [l] d", eg_ones_like(b), b), eg_cumsum("b [l] d", b), 1e-14);
    SHOWS(eg_linear_scan("[l]", eg_from(cx, ((int[]){ 9, 2, 3 }), 3),
                         eg_from(cx, ((int[]){ 1, 1, INT32_MAX }), 3)),
          1, 3, 9. + INT32_MAX);
    SHOWS(eg_linear_scan("[l]", eg_from(cx, ((double[]){ INFINITY, 2 }), 2),
                         eg_from(cx, ((double[]){ 1, 1 }), 2)),
          1, 3);
    eg_linear_scan("b [l] d", a, eg_slice_axis(b, 1, 0, 5, 1));
    eg_assert_error(cx, "linear_scan: operand 1 is (2, 6, 3) but operand 2 is (2, 5, 3)");
    eg_linear_scan("b [l] d", a, eg_cast(b, EG_F32));
    eg_assert_error(cx, "linear_scan: operand 1 is f64, operand 2 is f32");
    eg_linear_scan("b [l d]", a, b);
    eg_assert_error(cx, "linear_scan: works along one axis");
    ck_assert_ptr_null(eg_linear_scan("[l]", NULL, NULL));
    eg_close(cx);
}

/* A line has the bits that it has alone, and so have its gradients, in whole groups of lines and
 * in the rest, for rows of a wider matrix, flipped lines, and lines in any order. */
LOOP_TEST(lines_have_the_bits_that_they_have_alone, 8)
{
    enum { L = 9, D = 133 };
    eg_ctx *cx = eg_open(.dtype = _i % 2 ? EG_F64 : EG_F32, .seed = 2, .threads = _i % 3 + 1);
    eg_tensor *x[3], *y, *d[2];
    for (int k = 0; k < 3; k++) {
        eg_tensor *whole = eg_normal(cx, 0, 1, 2, L, D + 3);
        x[k] = eg_slice_axis(whole, 2, 0, D, 1);
        if (_i / 2 == 1) x[k] = eg_copy(x[k]);
        if (_i / 2 == 2) x[k] = eg_flip_axis(x[k], k == 1 ? 2 : 1);
        if (_i / 2 == 3)
            x[k] = eg_copy(eg_permute(eg_copy(x[k]), 2, 0, 1)), x[k] = eg_permute(x[k], 1, 2, 0);
    }
    y = eg_linear_scan("b [l] d", x[0], x[1]);
    ck_assert(!eg_grad(y, x[2], 2, x, d));
    for (int64_t k = 0; k < D; k++) {
        eg_tensor *one[3], *z, *e[2];
        for (int q = 0; q < 3; q++) one[q] = eg_copy(eg_slice_axis(x[q], 2, k, k + 1, 1));
        z = eg_linear_scan("b [l] d", one[0], one[1]);
        ck_assert(!eg_grad(z, one[2], 2, one, e));
        ck_assert(same_bits(eg_copy(eg_slice_axis(y, 2, k, k + 1, 1)), z));
        for (int q = 0; q < 2; q++)
            ck_assert_msg(same_bits(eg_copy(eg_slice_axis(d[q], 2, k, k + 1, 1)), eg_copy(e[q])),
                          "gradient %d of line %d", q, (int)k);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Recurrences along contiguous lines, and their gradients, have the bits of lines beside each
 * other: few lines and many, short and long, flipped, and with gaps. */
LOOP_TEST(recurrences_along_lines_are_those_across_them, 3)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I64 };
    static const int64_t lines[] = { 1, 7, 8, 9, 20 }, lengths[] = { 1, 2, 64, 65, 66, 200 };
    for (int q = 0; q < 5 * 6 * 4; q++) {
        const int64_t m = lines[q % 5], n = lengths[q / 5 % 6];
        const int layout = q / 30;
        eg_ctx *cx = eg_open(.seed = (uint64_t)q, .threads = q % 3 + 1);
        eg_tensor *x[3], *t[3], *y, *z, *d[2], *e[2];
        for (int k = 0; k < 3; k++) {
            eg_tensor *whole = eg_cast(eg_normal(cx, 0, _i == 2 ? 9 : 1, m, 2 * n), types[_i]);
            x[k] = eg_slice_axis(whole, 1, 0, layout == 1 ? 2 * n : n, layout == 1 ? 2 : 1);
            if (layout == 2 || (layout == 3 && k == 1)) x[k] = eg_flip_axis(x[k], 1);
            t[k] = eg_copy(eg_transpose(x[k], 0, 1));
        }
        y = eg_linear_scan("i [j]", x[0], x[1]), z = eg_linear_scan("[j] i", t[0], t[1]);
        ck_assert(same_bits(eg_copy(y), eg_copy(eg_transpose(z, 0, 1))));
        y = eg_cumprod("i [j]", x[0]);
        ck_assert(same_bits(eg_copy(y), eg_copy(eg_transpose(eg_cumprod("[j] i", t[0]), 0, 1))));
        if (_i < 2) {
            y = eg_linear_scan("i [j]", x[0], x[1]);
            ck_assert(!eg_grad(y, x[2], 2, x, d) && !eg_grad(z, t[2], 2, t, e));
            for (int k = 0; k < 2; k++)
                ck_assert_msg(same_bits(eg_copy(d[k]), eg_copy(eg_transpose(e[k], 0, 1))),
                              "gradient %d of %d lines of %d", k, (int)m, (int)n);
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}

/* Cumulative sums are those of a loop, f32 summed in f64 and integers in i64, bit for bit: few
 * lines and many, short and long, in each layout. */
LOOP_TEST(cumulative_sums_are_a_loop, 5)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I32, EG_I64, EG_BOOL };
    static const int64_t lines[] = { 1, 7, 8, 15, 16, 17, 130 }, lengths[] = { 1, 9, 64, 65, 200 };
    for (int q = 0; q < 7 * 5 * 5; q++) {
        const int64_t m = lines[q % 7], n = lengths[q / 7 % 5];
        eg_ctx *cx = eg_open(.seed = (uint64_t)q, .threads = q % 3 + 1);
        eg_tensor *x = eg_cast(eg_normal(cx, 0, 9, m + 2, n + 3), types[_i]);
        x = eg_slice_axis(eg_slice_axis(x, 0, 1, m + 1, 1), 1, 2, n + 2, 1);
        if (q / 35 == 1) x = eg_copy(x);
        if (q / 35 == 2) x = eg_flip_axis(x, 1);
        if (q / 35 == 3) x = eg_flip_axis(x, 0);
        if (q / 35 == 4) x = eg_transpose(eg_copy(eg_transpose(x, 0, 1)), 0, 1);
        const bool real = types[_i] == EG_F32 || types[_i] == EG_F64;
        const eg_dtype wide = real ? EG_F64 : EG_I64;
        eg_tensor *from = eg_cast(x, wide), *to = eg_cast(eg_cumsum("i [j]", x), wide);
        const double *u = real ? eg_f64(from) : NULL, *v = real ? eg_f64(to) : NULL;
        const int64_t *a = real ? NULL : eg_i64(from), *b = real ? NULL : eg_i64(to);
        eg_assert_ok(cx);
        for (int64_t i = 0, at = 0; i < m; i++) {
            double run = 0;
            int64_t count = 0;
            for (int64_t j = 0; j < n; j++, at++) {
                if (real) {
                    run += u[at];
                    ck_assert(v[at] == (types[_i] == EG_F32 ? (double)(float)run : run));
                } else {
                    count += a[at];
                    ck_assert_int_eq(b[at], count);
                }
            }
        }
        eg_close(cx);
    }
}

static eg_tensor *running_product(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_cumprod("b [l]", x[0]);
}
static eg_tensor *scanned(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_linear_scan("b [l]", x[0], x[1]);
}
TEST(cumprod_is_right_with_zeros)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    SHOWS(eg_cumprod("[l]", eg_from(cx, ((double[]){ 2, -3, .5, 4 }), 4)), 2, -6, -3, -12);
    SHOWS(eg_cumprod("[l]", eg_from(cx, ((int[]){ 65536, 65536, 3 }), 3)), 65536, 0x1p32,
          3 * 0x1p32);
    eg_tensor *zero = eg_cumprod("[l]", eg_from(cx, ((double[]){ -0., 2, -3 }), 3));
    for (int k = 0; k < 3; k++) ck_assert_int_eq(!signbit(eg_get(zero, k)), k == 2);
    ck_assert_int_eq(eg_size(eg_cumprod("b [l]", eg_zeros(cx, 3, 0))), 0);
    eg_tensor *x = eg_from(cx, ((double[]){ 2, 0, 3, .5, 0, 0, 1.5, 2, 1.5, -2, .7, 0 }), 3, 4);
    eg_assert_grad2(running_product, NULL, x);
    eg_assert_grad2(scanned, NULL, x, eg_flip_axis(x, 1));
    eg_tensor *dx;
    eg_grad(eg_sum(NULL, eg_cumprod("b [l]", x)), NULL, 1, &x, &dx);
    /* x1 = 0: y = x0, x0 x1, x0 x1 x2, x0 x1 x2 x3 */
    SHOWS(eg_slice_axis(dx, 0, 0, 1, 1), 1, 2 + 6 + 3, 0, 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(running_extremes_are_those_of_each_beginning)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ 2, -1, 2, 3, NAN, 4 }), 6), *dx;
    SHOWS(eg_cummax("[l]", x), 2, 2, 2, 3, NAN, NAN);
    SHOWS(eg_cummin("[l]", x), 2, -1, -1, -1, NAN, NAN);
    eg_grad(eg_sum(NULL, eg_cummax("[l]", eg_slice("[l]", x, 0, 4, 1))), NULL, 1, &x, &dx);
    SHOWS(dx, 2, 0, 1, 1, 0, 0); /* the last of equal ones */
    eg_tensor *i = eg_cummax("[a] b", eg_from(cx, ((int[]){ 1, 5, 3, 2 }), 2, 2)),
              *b = eg_cummin("[l]", eg_from(cx, ((bool[]){ true, false, true }), 3));
    ck_assert(eg_type(i) == EG_I32 && eg_type(b) == EG_BOOL);
    SHOWS(i, 1, 5, 3, 5);
    SHOWS(b, 1, 0, 0);
    ck_assert_int_eq(eg_size(eg_cummax("b [l]", eg_zeros(cx, 3, 0))), 0);
    ck_assert_int_eq(eg_size(eg_cummin("b [l]", eg_zeros(cx, 0, 3))), 0);
    eg_assert_ok(cx);
    eg_tensor *any = eg_normal(cx, 0, 1, 3, 40, 70); /* interleaved rows, and contiguous ones */
    for (int axis = 0; axis < 2; axis++) {
        eg_tensor *y = axis ? eg_cummax("a b [c]", any) : eg_cummax("a [b] c", any);
        for (int64_t k = 0; k < 40; k++) {
            eg_tensor *part = eg_slice_axis(any, axis + 1, 0, k + 1, 1);
            eg_assert_close(eg_select_axis(y, axis + 1, k),
                            axis ? eg_max("a b [c]", part) : eg_max("a [b] c", part), 0);
        }
    }
    eg_cummax("b l", any);
    eg_assert_error(cx, "cummax");
    eg_cummin("[l]", eg_cast(x, EG_I8));
    eg_assert_error(cx, "cummin: operand 1 is i8, which is a storage type");
    eg_close(cx);
}

/* Adjacent lines and contiguous lines are compared many at a time; a single line is not. The
 * cotangent shows which of equal elements was taken. */
TEST(running_extremes_of_a_line_do_not_depend_on_other_lines)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *few = eg_randint(cx, -9, 9, 18, 150), *nan = eg_full(cx, NAN, 1);
    static const eg_dtype dtypes[] = { EG_F32, EG_F64, EG_I32, EG_I64 };
    for (int k = 0; k < 32; k++) {
        const eg_dtype dtype = dtypes[k % 4];
        eg_tensor *x = eg_cast(k & 4 ? few : eg_flip_axis(few, 1), dtype), *d[2] = { x, x };
        const bool floats = dtype == EG_F32 || dtype == EG_F64;
        if (floats && k & 8)
            x = eg_where(eg_gt(few, eg_full_n(cx, EG_I64, 7, 0, NULL)), eg_cast(nan, dtype), x);
        if (k & 16) x = eg_permute(eg_copy(eg_permute(x, 1, 0)), 1, 0);
        eg_tensor *y = k & 4 ? eg_cummax("i [l]", x) : eg_cummin("i [l]", x);
        if (floats) eg_grad(y, eg_cast(few, dtype), 1, &x, &d[0]);
        for (int64_t i = 0; i < 18; i += 5) {
            eg_tensor *alone = eg_copy(eg_slice_axis(x, 0, i, i + 1, 1)),
                      *z = k & 4 ? eg_cummax("i [l]", alone) : eg_cummin("i [l]", alone);
            eg_tensor *g = eg_cast(eg_slice_axis(few, 0, i, i + 1, 1), dtype);
            eg_assert_close(eg_slice_axis(y, 0, i, i + 1, 1), z, 0);
            if (floats) eg_grad(z, g, 1, &alone, &d[1]);
            if (floats) eg_assert_close(eg_slice_axis(d[0], 0, i, i + 1, 1), d[1], 0);
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
TEST(logcumsumexp_has_no_overflow)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    const double inf = INFINITY;
    eg_tensor *x = eg_from(cx, ((double[]){ -inf, -800, 800, 800, -inf, 0 }), 6), *y, *dx, *dy;
    y = eg_logcumsumexp("[l]", x);
    SHOWS(y, -inf, -800, 800, 800 + log(2), 800 + log(2), 800 + log(2));
    eg_grad(eg_sum(NULL, eg_slice("[l]", y, 0, 4, 1)), NULL, 1, &x, &dx);
    SHOWS(dx, 0, 1, 1.5, .5, 0, 0);
    SHOWS(eg_logcumsumexp("[l]", eg_from(cx, ((double[]){ -inf, 1, inf, 0, NAN, 0 }), 6)), -inf, 1,
          inf, inf, NAN, NAN);
    ck_assert_int_eq(eg_size(eg_logcumsumexp("b [l]", eg_zeros(cx, 3, 0))), 0);
    x = eg_normal(cx, 0, 20, 4, 9);
    y = eg_logcumsumexp("b [l]", x);
    eg_grad(y, eg_ones_like(y), 1, &x, &dx);
    for (int64_t k = 0; k < 9; k++)
        eg_assert_close(eg_select_axis(y, 1, k),
                        eg_logsumexp("b [l]", eg_slice_axis(x, 1, 0, k + 1, 1)), 1e-14);
    eg_tensor *one = eg_softmax("b [l]", x); /* of the last sum alone: a softmax */
    eg_grad(eg_sum(NULL, eg_select_axis(y, 1, -1)), NULL, 1, &x, &dy);
    eg_assert_close(dy, one, 1e-14);
    eg_logcumsumexp("[l]", eg_from(cx, ((int[]){ 1 }), 1));
    eg_assert_error(cx, "logcumsumexp");
    eg_close(cx);
}

GROUP("norms")

TEST(pnorm_neither_overflows_nor_divides_by_zero)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ 3, -4, 0, 0 }), 2, 2), *dx;
    SHOWS(eg_pnorm("i [j]", x, 2), 5, 0);
    SHOWS(eg_pnorm("i [j]", x, 1), 7, 0);
    SHOWS(eg_pnorm("i [j]", x, INFINITY), 4, 0);
    SHOWS(eg_pnorm(NULL, x, 2), 5);
    eg_assert_close(eg_pnorm("[i] j", x, 3), eg_from(cx, ((double[]){ 3, 4 }), 2), 1e-15);
    const double p[] = { 1, 1.5, 2, 3, INFINITY };
    for (int k = 0; k < 5; k++) {
        eg_grad(eg_sum(NULL, eg_pnorm("i [j]", x, p[k])), NULL, 1, &x, &dx);
        const double *d = eg_f64(dx);
        ck_assert_msg(d[2] == 0 && d[3] == 0 && isfinite(d[0]) && d[1] < 0,
                      "p = %g: the gradient is %g %g %g %g", p[k], d[0], d[1], d[2], d[3]);
        eg_tensor *again;
        eg_grad(eg_sum(NULL, dx), NULL, 1, &x, &again);
        for (int e = 0; e < 4; e++)
            ck_assert_msg(isfinite(eg_f64(again)[e]), "p = %g: the second derivative is not finite",
                          p[k]);
    }
    const double large[] = { 1e200, 1e-200, 1e308, 5e-324 };
    for (int k = 0; k < 4; k++)
        for (int q = 0; q < 5; q++) {
            const double want = large[k] * (p[q] == INFINITY ? 1 : pow(4, 1 / p[q])),
                         have = eg_item(eg_pnorm(NULL, eg_full(cx, large[k], 4), p[q]));
            ck_assert_msg(fabs(have - want) <= 1e-12 * want + 5e-324 || have == want,
                          "p = %g of four times %g is %g, not %g", p[q], large[k], have, want);
        }
    ck_assert_double_eq_tol(eg_item(eg_pnorm(NULL, eg_cast(eg_full(cx, 1e30, 1000), EG_F32), 2)),
                            3.16227766e31, 1e25);
    ck_assert(isnan(eg_item(eg_pnorm(NULL, eg_from(cx, ((double[]){ NAN, 1 }), 2), 2))));
    ck_assert(isinf(eg_item(eg_pnorm(NULL, eg_from(cx, ((double[]){ -INFINITY, 1 }), 2), 2))));
    SHOWS(eg_pnorm("b [l]", eg_zeros(cx, 2, 0), 2), 0, 0);
    eg_assert_ok(cx);
    eg_pnorm("i [j]", x, 0);
    eg_assert_error(cx, "pnorm: p is 0; it must be above 0");
    eg_pnorm("i [j]", x, NAN);
    eg_assert_error(cx, "pnorm: p is nan");
    eg_pnorm("i [j]", eg_cast(x, EG_I32), 2);
    eg_assert_error(cx, "pnorm: operand 1 is i32");
    eg_pnorm("b [l]", eg_zeros(cx, 2, 0), INFINITY);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Where everything that a norm measures is 0 it has a kink, and its derivatives of every order are
 * 0 by convention, also in forward mode: of norms, of the standard deviation of equal values, and
 * of normalisation without an eps, whose result is 0 there. */
static eg_tensor *root_sum(eg_tensor *x) { return eg_pnorm("i [j]", x, 2); }
static eg_tensor *norm_half(eg_tensor *x) { return eg_pnorm("i [j]", x, .5); }
static eg_tensor *norm_1(eg_tensor *x) { return eg_pnorm("i [j]", x, 1); }
static eg_tensor *norm_3(eg_tensor *x) { return eg_pnorm("i [j]", x, 3); }
static eg_tensor *norm_max(eg_tensor *x) { return eg_pnorm("i [j]", x, INFINITY); }
static eg_tensor *deviation(eg_tensor *x) { return eg_std("i [j]", x); }
static eg_tensor *deviation_all(eg_tensor *x) { return eg_std("i [j]", x, .correction = EG_OFF); }
static eg_tensor *layer(eg_tensor *x) { return eg_layernorm("i [j]", x, .eps = EG_OFF); }
static eg_tensor *layer_gain(eg_tensor *x)
{
    return eg_layernorm("i [j]", x, .eps = EG_OFF, .gain = eg_full(eg_context(x), 3, eg_dim(x, 1)));
}
static eg_tensor *root_mean(eg_tensor *x) { return eg_rmsnorm("i [j]", x, .eps = EG_OFF); }
TEST(where_a_norm_is_zero_its_derivatives_are)
{
    const struct {
        const char *name;
        eg_tensor *(*of)(eg_tensor *);
        bool shifts;
    } norms[] = {
        { "norm, p = 2", root_sum, false },
        { "norm, p = 1/2", norm_half, false },
        { "norm, p = 1", norm_1, false },
        { "norm, p = 3", norm_3, false },
        { "norm, p = ∞", norm_max, false },
        { "std", deviation, true },
        { "std, correction 0", deviation_all, true },
        { "layernorm", layer, false },
        { "layernorm, gain", layer_gain, false },
        { "rmsnorm", root_mean, false },
    };
    const double values[] = { 0, .1, -1e-3, 1e7 / 3 };
    const int64_t lengths[] = { 3, 7, 1000 };
    for (size_t c = 0; c < sizeof norms / sizeof *norms; c++)
        for (int v = 0; v < (norms[c].shifts ? 4 : 1); v++)
            for (int k = 0; k < 6; k++) {
                eg_ctx *cx = eg_open(.dtype = k % 2 ? EG_F32 : EG_F64);
                eg_tensor *x = eg_full(cx, values[v], 2, lengths[k / 2]), *y = norms[c].of(x), *dx,
                          *h;
                eg_tensor *along = eg_cast(wave(cx, 0, 2, lengths[k / 2]), (eg_dtype)eg_type(x));
                ck_assert_double_eq(eg_item(eg_max(NULL, eg_abs(y))), 0);
                ck_assert(!eg_grad(y, eg_ones_like(y), 1, &x, &dx));
                ck_assert_msg(eg_item(eg_max(NULL, eg_abs(dx))) == 0,
                              "%s of %g: the gradient is %g", norms[c].name, values[v],
                              eg_get(dx, 0, 0));
                eg_tensor *t = eg_jvp(y, 1, &x, &along);
                ck_assert_msg(eg_item(eg_max(NULL, eg_abs(t))) == 0,
                              "%s of %g: forward mode gives %g", norms[c].name, values[v],
                              eg_item(eg_max(NULL, eg_abs(t))));
                ck_assert(!eg_grad(dx, along, 1, &x, &h));
                ck_assert_msg(eg_item(eg_max(NULL, eg_abs(h))) == 0,
                              "%s of %g: the second derivative is %g", norms[c].name, values[v],
                              eg_get(h, 0, 0));
                eg_assert_ok(cx);
                eg_close(cx);
            }
}

TEST(functions_at_their_limits)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ -1.5, -.5, .5, 1.5, 2.5 }), 5);
    SHOWS(eg_round(x), -2, 0, 0, 2, 2);
    SHOWS(eg_ceil(x), -1, 0, 1, 2, 3);
    SHOWS(eg_trunc(x), -1, 0, 0, 1, 2);
    eg_tensor *a = eg_from(cx, ((double[]){ -INFINITY, INFINITY, -INFINITY, 1000, 0 }), 5),
              *b = eg_from(cx, ((double[]){ -INFINITY, 1, 3, 1000, -1000 }), 5);
    eg_assert_close(eg_logaddexp(a, b),
                    eg_from(cx, ((double[]){ -INFINITY, INFINITY, 3, 1000 + M_LN2, 0 }), 5), 1e-15);
    eg_tensor *one = eg_ones(cx, 1), *ways = eg_from(cx, ((double[]){ 1, -1 }), 2);
    eg_assert_close(eg_atan2(ways, one), eg_scale(ways, M_PI_4), 1e-15);
    eg_assert_close(eg_atan2(ways, eg_neg(one)), eg_scale(ways, 3 * M_PI_4), 1e-15);
    /* squares that would overflow, or underflow; an infinity takes precedence over a NaN, as in
     * C */
    eg_tensor *far = eg_from(cx, ((double[]){ 3e300, 3e-300, -INFINITY, 0, -5 }), 5),
              *up = eg_from(cx, ((double[]){ -4e300, 4e-300, NAN, 0, 12 }), 5),
              *length = eg_from(cx, ((double[]){ 5e300, 5e-300, INFINITY, 0, 13 }), 5);
    eg_assert_close(eg_hypot(far, up), length, 1e-15);
    eg_assert_ok(cx);
    eg_atan2(eg_cast(x, EG_I64), eg_cast(x, EG_I64));
    eg_assert_error(cx, "atan2: the operands are i64; eg_cast them to f32 or f64 first");
    eg_close(cx);
}

/* Integers are sorted stably whatever their range is: on both sides of 0, of 32 bits and of one
 * more, and with the ends of i64. */
TEST(integers_of_any_range_are_sorted_stably)
{
    static const int64_t low[] = { -100, 5, INT32_MIN, INT32_MIN, -7, INT64_MIN, INT64_MAX - 300 },
                         high[] = { 100, 9,         INT32_MAX, (int64_t)INT32_MAX + 1,
                                    1,   INT64_MAX, INT64_MAX };
    eg_ctx *cx = eg_open(.seed = 3);
    for (int k = 0; k < 7 * 4; k++) {
        const eg_mark m = eg_push(cx);
        const int64_t n = (int64_t[]){ 30, 64, 500, 3000 }[k % 4], a = low[k / 4], b = high[k / 4];
        int64_t x[3000];
        const double *u = eg_f64(eg_uniform_n(cx, EG_F64, 0, 1, 1, &n));
        for (int64_t i = 0; i < n; i++)
            x[i] = (int64_t)((uint64_t)a + (uint64_t)(u[i] * (double)((uint64_t)b - (uint64_t)a)));
        x[n / 2] = a, x[n / 3] = b;
        const bool descending = k % 8 > 3;
        const int64_t *y = eg_i64(
            eg_argsort("[n]", eg_from_memory(cx, EG_I64, x, 1, &n), .descending = descending));
        eg_assert_ok(cx);
        for (int64_t i = 1; i < n; i++) {
            const int64_t before = x[y[i - 1]], now = x[y[i]];
            ck_assert(before == now ? y[i - 1] < y[i] : (before < now) != descending);
        }
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* atan2, hypot and logaddexp where a square underflows, at (0, 0) and at −∞: to second order, and
 * as the norm and the logsumexp of the pair. */
TEST(pairs_at_their_limits)
{
    static const double pair[][2] = { { 1e-25, 1e-25 }, { 1e-30, 0 }, { 0, -1e-30 }, { 0, 0 } };
    eg_ctx *cx = eg_open();
    for (int k = 0; k < 4; k++) {
        const double u = pair[k][0], v = pair[k][1], h = hypot(u, v);
        eg_tensor *x[] = { eg_full(cx, u, 1), eg_full(cx, v, 1) }, *d[2], *e[2], *dd[2];
        ck_assert(!eg_grad(eg_atan2(x[0], x[1]), NULL, 2, x, d));
        ck_assert_double_eq_tol(eg_item(d[0]) * h, h ? v / h : 0, 1e-6);
        ck_assert_double_eq_tol(eg_item(d[1]) * h, h ? -u / h : 0, 1e-6);
        ck_assert(h != 0 || (eg_item(d[0]) == 0 && eg_item(d[1]) == 0));
        ck_assert(!eg_grad(eg_hypot(x[0], x[1]), NULL, 2, x, d));
        ck_assert(!eg_grad(eg_pnorm("[p] i", eg_stack_axis(0, x[0], x[1]), 2), NULL, 2, x, e));
        for (int i = 0; i < 2; i++) eg_assert_close(d[i], e[i], 1e-6);
        ck_assert(h != 0 || !eg_grad(eg_add(d[0], d[1]), NULL, 2, x, dd));
        for (int i = 0; i < 2 && h == 0; i++) ck_assert_double_eq(eg_item(dd[i]), 0);
    }
    static const double sums[][2] = {
        { -INFINITY, -INFINITY }, { -INFINITY, 1 }, { 2, -INFINITY }, { 1, 1 }
    };
    for (int k = 0; k < 4; k++) {
        eg_tensor *x[] = { eg_full(cx, sums[k][0], 1), eg_full(cx, sums[k][1], 1) }, *d[2], *e[2],
                  *dd[2];
        ck_assert(!eg_grad(eg_logaddexp(x[0], x[1]), NULL, 2, x, d));
        ck_assert(!eg_grad(eg_logsumexp("[p] i", eg_stack_axis(0, x[0], x[1])), NULL, 2, x, e));
        for (int i = 0; i < 2; i++) eg_assert_close(d[i], e[i], 1e-6);
        ck_assert(!eg_grad(d[0], NULL, 2, x, dd));
        for (int i = 0; i < 2; i++)
            ck_assert_double_eq_tol(eg_item(dd[i]), k == 3 ? .25 - .5 * i : 0, 1e-6);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
