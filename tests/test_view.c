/* test_view.c: views: which elements they have, that they share storage, refusals, their
 * gradients. */
#include <config.h> /* EG_DEBUG_ALLOC */
#include <eingrad/check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tensor/tensor.h"
#include "fixtures.h"
#include "tests.h"

#define SHAPE(x, ...)                                                                       \
    do {                                                                                    \
        const int64_t want_[] = { __VA_ARGS__ };                                            \
        ck_assert_int_eq(eg_rank(x), (int)(sizeof want_ / sizeof *want_));                  \
        for (int k_ = 0; k_ < eg_rank(x); k_++) ck_assert_int_eq(eg_dim(x, k_), want_[k_]); \
    } while (0)

TEST(views_show_the_described_elements)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 2, 3);
    SHOWS(eg_permute(x, 1, 0), 0, 3, 1, 4, 2, 5);
    SHOWS(eg_transpose(x, -1, 0), 0, 3, 1, 4, 2, 5);
    SHOWS(eg_slice_axis(x, 1, 1, EG_END, 1), 1, 2, 4, 5);
    SHOWS(eg_slice_axis(x, 1, EG_END, EG_END, -2), 2, 0, 5, 3);
    SHOWS(eg_select_axis(x, 0, -1), 3, 4, 5);
    SHOWS(eg_select_axis(x, 1, 0), 0, 3);
    SHOWS(eg_flip_axis(x, 0), 3, 4, 5, 0, 1, 2);
    SHOWS(eg_expand(eg_select_axis(x, 0, 0), 2, 3), 0, 1, 2, 0, 1, 2);
    SHOWS(eg_expand(eg_slice_axis(x, 1, 0, 1, 1), -1, 2), 0, 0, 3, 3);
    SHAPE(eg_unsqueeze(x, -1), 2, 3, 1);
    SHAPE(eg_unsqueeze(x, 0), 1, 2, 3);
    SHAPE(eg_squeeze(eg_unsqueeze(x, 1), -2), 2, 3);
    SHOWS(eg_diagonal(x, 0, 0, 1), 0, 4);
    SHOWS(eg_diagonal(x, 1, 0, 1), 1, 5);
    SHOWS(eg_diagonal(x, -1, 0, 1), 3);
    SHOWS(eg_diagonal(x, 1, 1, 0), 3);
    ck_assert_int_eq(eg_size(eg_diagonal(x, 3, 0, 1)), 0);
    SHAPE(eg_diagonal(RAMP(cx, 3, 4, 3), 0, 0, 2), 4, 3);
    SHOWS(eg_diagonal(RAMP(cx, 2, 2, 2), 0, 0, 2), 0, 5, 2, 7);
    SHOWS(eg_unfold_axis(eg_arange(cx, EG_F64, 1, 8, 1), 0, 2, 1), 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6,
          7); /* torch.Tensor.unfold's own examples */
    SHOWS(eg_unfold_axis(eg_arange(cx, EG_F64, 1, 8, 1), 0, 2, 2), 1, 2, 3, 4, 5, 6);
    SHAPE(eg_unfold_axis(RAMP(cx, 2, 7, 3), 1, 3, 2), 2, 3, 3, 3);
    SHOWS(eg_unfold_axis(x, 0, 2, 1), 0, 3, 1, 4, 2, 5);
    SHOWS(eg_view(x, 3, -1), 0, 1, 2, 3, 4, 5);
    SHAPE(eg_view(x, 1, 6, 1), 1, 6, 1);
    SHOWS(eg_reshape(eg_transpose(x, 0, 1), 2, 3), 0, 3, 1, 4, 2, 5);
    ck_assert_int_eq(eg_rank(eg_view_n(eg_select_axis(eg_select_axis(x, 0, 1), 0, 2), 0, NULL)), 0);
    ck_assert_double_eq(eg_item(eg_select_axis(eg_select_axis(x, 0, 1), 0, 2)), 5);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(views_share_storage)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 3, 4), *square = eg_slice_axis(x, 1, 0, 3, 1);
    const size_t used = eg_stats(cx).used;
    eg_tensor *v[] = {
        eg_permute(x, 1, 0),     eg_slice_axis(x, 0, 1, 3, 2),
        eg_select_axis(x, 1, 2), eg_flip_axis(x, 0),
        eg_expand(x, 5, 3, 4),   eg_unsqueeze(x, 1),
        eg_diagonal(x, 0, 0, 1), eg_unfold_axis(x, 1, 2, 1),
        eg_view(x, 12),          eg_reshape(x, 4, 3),
        eg_contiguous(x),        eg_detach(x),
    };
    for (size_t k = 0; k < sizeof v / sizeof *v; k++) ck_assert_ptr_eq(v[k]->st, x->st);
    ck_assert_uint_lt(eg_stats(cx).used - used, 12000);
    /* a write through a diagonal */
    ck_assert_int_eq(eg_fill(eg_diagonal(square, 0, 0, 1), -1), 0);
    SHOWS(square, -1, 1, 2, 4, -1, 6, 8, 9, -1);
    ck_assert_ptr_ne(eg_reshape(eg_transpose(x, 0, 1), 12)->st, x->st);
    ck_assert_ptr_ne(eg_copy(x)->st, x->st);
    eg_close(cx);
}

/* Every start, stop and step that matters, compared with Python's slice.indices written out. */
TEST(slices_follow_python)
{
    static const int64_t bounds[] = {
        EG_END, INT64_MAX, INT64_MIN + 1, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7
    };
    static const int64_t steps[] = { 1, 2, 3, 7, INT64_MAX, -1, -2, -3, -7, INT64_MIN + 1 };
    enum { BOUNDS = sizeof bounds / sizeof *bounds, STEPS = sizeof steps / sizeof *steps };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (int64_t n = 0; n < 6; n++)
        for (int a = 0; a < BOUNDS; a++)
            for (int b = 0; b < BOUNDS; b++)
                for (int s = 0; s < STEPS; s++) {
                    eg_mark m = eg_push(cx);
                    int64_t step = steps[s], edge[2], count = 0;
                    for (int e = 0; e < 2; e++) {
                        int64_t v = e ? bounds[b] : bounds[a], low = step < 0 ? -1 : 0,
                                high = step < 0 ? n - 1 : n;
                        if (v == EG_END)
                            v = (step < 0) == (e == 0) ? high : low;
                        else {
                            if (v < 0) v += n;
                            v = v < low ? low : v > high ? high : v;
                        }
                        edge[e] = v;
                    }
                    eg_tensor *y = eg_slice_axis(RAMP(cx, n), 0, bounds[a], bounds[b], step);
                    const double *p = eg_f64(y);
                    for (int64_t i = edge[0]; step > 0 ? i < edge[1] : i > edge[1]; count++) {
                        ck_assert(count < eg_size(y) && p[count] == (double)i);
                        if (__builtin_add_overflow(i, step, &i)) {
                            count++;
                            break;
                        }
                    }
                    ck_assert_int_eq(eg_size(y), count);
                    eg_pop(cx, m);
                }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* A view exists exactly if the elements are on an affine grid with the new sizes; then eg_view
 * finds it, else its error names axes. */
TEST(view_exists_exactly_where_it_can)
{
    static const struct {
        int rank;
        int64_t dim[4];
    } shapes[] = {
        { 1, { 24 } },         { 2, { 2, 12 } },   { 2, { 4, 6 } },       { 2, { 12, 2 } },
        { 3, { 2, 3, 4 } },    { 3, { 4, 3, 2 } }, { 4, { 2, 2, 3, 2 } }, { 3, { 1, 24, 1 } },
        { 4, { 6, 1, 4, 1 } }, { 2, { 8, 3 } },    { 3, { 3, 2, 4 } },    { 2, { 3, 8 } },
    };
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    int found = 0, refused = 0;
    for (int from = 0; from < SHAPES; from++)
        for (int how = 0; how < 6; how++)
            for (int to = 0; to < SHAPES; to++) {
                eg_mark m = eg_push(cx);
                eg_tensor *x = ramp_n(cx, shapes[from].rank, shapes[from].dim);
                if (how & 1) x = eg_transpose(x, 0, -1);
                if (how == 2) x = eg_flip_axis(x, 0);
                if (how == 3) x = eg_flip_axis(x, -1);
                if (how == 4)
                    x = eg_slice_axis(ramp_n(cx, 2, (int64_t[]){ 48, 1 }), 0, EG_END, EG_END, 2),
                    x = eg_view_n(x, shapes[from].rank, shapes[from].dim);
                if (how == 5)
                    x = eg_expand_n(eg_scalar(cx, 1), shapes[from].rank, shapes[from].dim);
                const double *base = eg_raw(x, NULL), *where[24];
                const int rank = shapes[to].rank;
                const int64_t *dim = shapes[to].dim;
                for (int64_t k = 0; k < 24; k++) {
                    int64_t i[4], rest = k;
                    for (int r = x->rank; r-- > 0; rest /= x->dim[r]) i[r] = rest % x->dim[r];
                    where[k] = base;
                    for (int r = 0; r < x->rank; r++) where[k] += i[r] * x->stride[r];
                }
                bool affine = true;
                for (int64_t k = 0; k < 24 && affine; k++) {
                    int64_t rest = k, run = 1, at = 0;
                    for (int r = rank; r-- > 0; run *= dim[r], rest /= dim[r])
                        if (rest % dim[r]) at += rest % dim[r] * (where[run] - where[0]);
                    affine = where[k] - where[0] == at;
                }
                eg_tensor *y = eg_view_n(x, rank, dim);
                ck_assert_msg(eg_ok(y) == affine, "from shape %d to %d, kind %d: %s", from, to, how,
                              eg_error(cx));
                if (affine) {
                    found++;
                    ck_assert_ptr_eq(y->st, x->st);
                } else {
                    refused++;
                    eg_assert_error(cx, "cannot be merged without a copy; eg_reshape copies");
                }
                eg_tensor *copied = eg_reshape_n(x, rank, dim);
                const double *a = eg_f64(copied), *b = eg_f64(x);
                for (int k = 0; k < 24; k++) ck_assert_double_eq(a[k], b[k]);
                eg_pop(cx, m);
            }
    ck_assert(found > 100 && refused > 100);
    eg_close(cx);
}

TEST(views_refuse)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 2, 3, 4), *t = eg_transpose(RAMP(cx, 2, 4, 3), 1, 2), *parts[3];
    eg_view(t, 2, 12);
    eg_assert_error(cx, "view: axes 1 and 2 of (2, 3, 4) with strides (12, 1, 3) cannot be merged "
                        "without a copy; eg_reshape copies");
    eg_view(x, 5, 5);
    eg_assert_error(cx, "view: (2, 3, 4) has 24 elements and does not fill (5, 5)");
    eg_view(x, -1, -1);
    eg_assert_error(cx, "view: axes 0 and 1 are both −1, only one can be inferred");
    eg_reshape(x, 5, -1);
    eg_assert_error(cx, "reshape: (2, 3, 4) has 24 elements and does not fill (5, -1)");
    eg_reshape(x, -2, 12);
    eg_assert_error(cx, "reshape: size -2 of axis 0 is negative");
    eg_reshape(eg_zeros(cx, 0, 3), 0, -1);
    eg_assert_error(cx, "reshape: axis 1 cannot be inferred beside a size of 0");
    eg_permute(x, 0, 1);
    eg_assert_error(cx, "permute: 2 axes given for (2, 3, 4) of rank 3");
    eg_permute(x, 0, 1, 1);
    eg_assert_error(cx, "permute: axis 1 is given twice");
    eg_permute(x, 0, 1, 3);
    eg_assert_error(cx, "permute: axis 3 is out of range for (2, 3, 4) of rank 3");
    eg_transpose(x, 0, -4);
    eg_assert_error(cx, "transpose: axis -4 is out of range");
    eg_slice_axis(x, 0, 0, 1, 0);
    eg_assert_error(cx, "slice: the step along axis 0 of (2, 3, 4) is 0");
    eg_slice_axis(x, 5, 0, 1, 1);
    eg_assert_error(cx, "slice: axis 5 is out of range for (2, 3, 4) of rank 3");
    eg_flip_axis(x, 5);
    eg_assert_error(cx, "flip: axis 5 is out of range for (2, 3, 4) of rank 3");
    eg_select_axis(x, 2, 4);
    eg_assert_error(cx, "select: index 4 is out of range for axis 2 of (2, 3, 4)");
    eg_expand(x, 2, 6, 4);
    eg_assert_error(cx, "expand: axis 1 of (2, 3, 4) is 3 and cannot become 6");
    eg_expand(x, 3, 4);
    eg_assert_error(cx, "expand: (2, 3, 4) cannot become rank 2");
    eg_expand(x, -1, 2, 3, 4);
    eg_assert_error(cx, "expand: size -1 of axis 0 is negative");
    eg_squeeze(x, 0);
    eg_assert_error(cx, "squeeze: axis 0 of (2, 3, 4) has size 2, not 1");
    eg_unsqueeze(x, 4);
    eg_assert_error(cx, "unsqueeze: axis 4 is out of range for a result of rank 4, from (2, 3, 4)");
    eg_diagonal(x, 0, 1, -2);
    eg_assert_error(cx, "diagonal: axis 1 of (2, 3, 4) is given twice");
    eg_diagonal(x, 5, 1, 2);
    eg_assert_error(cx, "diagonal: offset 5 is outside of axes 1 and 2 of (2, 3, 4)");
    eg_unfold_axis(x, 2, 5, 1);
    eg_assert_error(cx, "unfold: a window of 5 does not fit into axis 2 of (2, 3, 4)");
    eg_unfold_axis(x, 2, 2, 0);
    eg_assert_error(cx, "unfold: the step along axis 2 of (2, 3, 4) is 0");
    ck_assert_int_eq(eg_split_axis(x, 1, 2, NULL, parts), -1);
    eg_assert_error(cx, "split: axis 1 of (2, 3, 4) does not split into 2 equal parts");
    ck_assert_int_eq(eg_split_axis(x, 1, 2, (int64_t[]){ 1, 1 }, parts), -1);
    eg_assert_error(cx,
                    "split: the parts have 2 elements together, too few for axis 1 of (2, 3, 4)");
    ck_assert_int_eq(eg_split_axis(x, 1, 3, (int64_t[]){ 2, 2, -1 }, parts), -1);
    eg_assert_error(cx, "split: part 2 of size 2 does not fit");
    ck_assert(!eg_ok(parts[0]));
    eg_tensor *deep = eg_scalar(cx, 1);
    for (int k = 0; k < 32; k++) deep = eg_unsqueeze(deep, 0);
    ck_assert_int_eq(eg_rank(deep), 32);
    ck_assert_double_eq(eg_item(deep), 1);
    eg_unsqueeze(deep, 0);
    eg_assert_error(cx, "unsqueeze: the result would have more than 32 axes");
    ck_assert_ptr_null(eg_view(NULL, 1));
    ck_assert_ptr_null(eg_permute(NULL, 0));
    ck_assert_ptr_null(eg_transpose(NULL, 0, 1));
    ck_assert_ptr_null(eg_expand(NULL, 1));
    ck_assert_int_eq(eg_split_axis(NULL, 0, 2, NULL, parts), -1);
    ck_assert_ptr_null(parts[1]);
    eg_close(cx);
}

TEST(sizes_of_zero_and_one)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *none = eg_zeros(cx, 3, 0, 2);
    SHAPE(eg_view(none, 0, 7), 0, 7);
    SHAPE(eg_reshape(eg_transpose(none, 0, 2), 5, 0), 5, 0);
    SHAPE(eg_slice_axis(none, 0, 1, 3, 1), 2, 0, 2);
    SHAPE(eg_flip_axis(none, 1), 3, 0, 2);
    SHAPE(eg_expand(eg_ones(cx, 1, 3), 0, 3), 0, 3);
    SHAPE(eg_diagonal(none, 0, 0, 1), 2, 0);
    SHAPE(eg_reshape(none, -1, 3, 2), 0, 3, 2);
    SHAPE(eg_contiguous(eg_slice_axis(eg_ones(cx, 4, 4), 1, 2, 2, 1)), 4, 0);
    eg_tensor *one = eg_ones(cx, 1, 1), *dx;
    eg_tensor *y = eg_sum(NULL, eg_expand(one, 0, 4));
    ck_assert_int_eq(eg_grad(y, NULL, 1, &one, &dx), 0);
    ck_assert_double_eq(eg_item(dx), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- views in attention ------------------------------------------------------------------------ */
TEST(permuted_views_give_the_same_scores)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 2);
    /* N,S,E and N,T,E with H = 3 */
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 5, 12), *k = eg_normal(cx, 0, 1, 2, 7, 12);
    eg_tensor *qh = eg_permute(eg_view(q, 2, 5, 3, 4), 0, 2, 1, 3),
              *kt = eg_permute(eg_view(k, 2, 7, 3, 4), 0, 2, 3, 1);
    SHAPE(qh, 2, 3, 5, 4);
    SHAPE(kt, 2, 3, 4, 7);
    ck_assert_ptr_eq(kt->st, k->st);
    eg_assert_close(eg_einsum("nhsd,nhdt->nhst", qh, kt),
                    eg_einsum("nhsd,nhtd->nhst", qh, eg_permute(kt, 0, 1, 3, 2)), 1e-14);
    eg_close(cx);
}

TEST(merging_heads)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 1, 2, 3, 2), *swapped = eg_transpose(x, 1, 2);
    eg_view(swapped, 1, 3, 4); /* transpose(1, 2).view without .contiguous() */
    eg_assert_error(cx, "view: axes 2 and 3 of (1, 3, 2, 2) with strides (12, 2, 6, 1) cannot be "
                        "merged without a copy; eg_reshape copies");
    SHOWS(eg_reshape(swapped, 1, 3, 4), 0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11);
    SHOWS(eg_rearrange("n h s d -> n s (h d)", x), 0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11);
    /* the result of the mistake */
    SHOWS(eg_view(x, 1, 3, 4), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    eg_close(cx);
}

/* -- gradients -------------------------------------------------------------------------------- */
static eg_tensor *windows(void *user, eg_tensor *const *x) /* y_w = Σ_k (windows of x)² c_k */
{
    (void)user;
    return eg_einsum("bwdk,k->bwd", eg_square(eg_unfold_axis(x[0], 1, 3, 1)), x[1]);
}
static eg_tensor *chain(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *part[2],
        *y = eg_expand(eg_unsqueeze(eg_flip_axis(eg_transpose(x[0], 0, 1), 0), 1), 3, 2, 4);
    if (eg_split_axis(eg_square(y), -1, 2, (int64_t[]){ 1, 3 }, part)) return NULL;
    return eg_mul(eg_reshape(eg_transpose(part[1], 0, 2), 6, 3),
                  eg_reshape(eg_slice_axis(part[1], 0, EG_END, EG_END, -1), -1, 3));
}
TEST(chains_of_views_have_gradients_of_second_order)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 4);
    eg_assert_grad2(windows, NULL, eg_uniform(cx, -1, 1, 2, 6, 2), eg_uniform(cx, .5, 1, 3));
    eg_assert_grad2(chain, NULL, eg_uniform(cx, -1, 1, 4, 3));
    eg_close(cx);
}

TEST(adjoints_are_views_where_they_can_be)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 3, 4), *g = RAMP(cx, 4, 3), *dx;
    ck_assert_int_eq(eg_grad(eg_transpose(x, 0, 1), g, 1, &x, &dx), 0);
    ck_assert_ptr_eq(dx->st, g->st);
    ck_assert_int_eq(eg_grad(eg_flip_axis(x, 1), x, 1, &x, &dx), 0);
    ck_assert_ptr_eq(dx->st, x->st);
    ck_assert_int_eq(eg_grad(eg_squeeze(eg_unsqueeze(x, 1), 1), x, 1, &x, &dx), 0);
    ck_assert_ptr_eq(dx->st, x->st);
    eg_tensor *h = RAMP(cx, 3, 2, 3);
    ck_assert_int_eq(eg_grad(eg_unfold_axis(x, 1, 3, 1), h, 1, &x, &dx), 0);
    SHOWS(dx, 0, 1 + 3, 2 + 4, 5, 6, 7 + 9, 8 + 10, 11, 12, 13 + 15, 14 + 16, 17);
    eg_close(cx);
}

/* Windows along two axes of x (3, h, w, c): the cotangent of an element is the sum over all places
 * of all windows that show it. Integers, so that the order of the sums has no effect; small and
 * large slices; the cotangent row-major and with the windows' axes first. */
TEST(windows_along_two_axes_add_all_places)
{
    static const struct {
        int64_t h, w, c, p, q, step_h, step_w;
    } cases[] = { { 5, 6, 1, 3, 2, 1, 1 },   { 11, 9, 17, 3, 3, 1, 1 }, { 12, 13, 8, 5, 4, 2, 3 },
                  { 9, 30, 64, 4, 7, 1, 2 }, { 8, 8, 3, 8, 1, 1, 1 },   { 40, 7, 2, 3, 5, 3, 1 } };
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        const int64_t h = cases[k / 2].h, w = cases[k / 2].w, c = cases[k / 2].c,
                      p = cases[k / 2].p, q = cases[k / 2].q;
        const int64_t sh = cases[k / 2].step_h, sw = cases[k / 2].step_w;
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = k + 1);
        eg_tensor *x = eg_zeros(cx, 3, h, w, c), *dx;
        eg_tensor *y = eg_unfold("b h p [w] c -> b h w p q c",
                                 eg_unfold("b [h] w c -> b h p w c", x, p, sh), q, sw);
        const int64_t rows = eg_dim(y, 1), columns = eg_dim(y, 2);
        eg_tensor *g = eg_floor(eg_uniform(cx, 0, 64, p, q, 3, rows, columns, c));
        g = eg_rearrange("p q b h w c -> b h w p q c", g);
        if (k % 2) g = eg_copy(g);
        ck_assert_int_eq(eg_grad(y, g, 1, &x, &dx), 0);
        double *sum = calloc((size_t)(3 * h * w * c), sizeof *sum);
        const double *each = eg_f64(eg_copy(g)), *got = eg_f64(dx);
        ck_assert(sum && each && got);
        for (int64_t at = 0, n = eg_size(g); at < n; at++) {
            const int64_t e = at % c, j = at / c % q, i = at / c / q % p;
            const int64_t column = at / c / q / p % columns, row = at / c / q / p / columns % rows;
            const int64_t b = at / c / q / p / columns / rows;
            sum[((b * h + row * sh + i) * w + column * sw + j) * c + e] += each[at];
        }
        for (int64_t at = 0, n = eg_size(x); at < n; at++) ck_assert(got[at] == sum[at]);
        free(sum);
        eg_close(cx);
    }
}

/* The addends of an element are added in the order of the windows, whatever the layout of the
 * cotangent: row-major, and with the windows' axes first; of an image and of one upside down. */
TEST(windows_are_added_in_their_order)
{
    enum { B = 3, H = 20, W = 24, C = 40, P = 5, Q = 4, DOWN = 2, RIGHT = 3 };
    for (int k = 0; k < 4; k++) {
        eg_ctx *cx = eg_open(.dtype = EG_F32, .seed = 5);
        eg_tensor *x = eg_zeros(cx, B, H, W, C), *dx;
        eg_tensor *from = k & 2 ? eg_flip("b [h] w c", x) : x;
        eg_tensor *y = eg_unfold("b h p [w] c -> b h w p q c",
                                 eg_unfold("b [h] w c -> b h p w c", from, P, DOWN), Q, RIGHT);
        const int64_t rows = eg_dim(y, 1), columns = eg_dim(y, 2);
        eg_tensor *g = eg_normal(cx, 0, 1, P, Q, B, rows, columns, C);
        g = eg_rearrange("p q b h w c -> b h w p q c", g);
        if (k & 1) g = eg_copy(g);
        ck_assert_int_eq(eg_grad(y, g, 1, &x, &dx), 0);
        float *sum = calloc(B * H * W * C, sizeof *sum);
        const float *each = eg_f32(eg_copy(g)), *got = eg_f32(dx);
        ck_assert(sum && each && got);
        for (int64_t at = 0, n = eg_size(g); at < n; at++) {
            const int64_t e = at % C, j = at / C % Q, i = at / C / Q % P;
            const int64_t column = at / C / Q / P % columns, row = at / C / Q / P / columns % rows;
            const int64_t b = at / C / Q / P / columns / rows, h = row * DOWN + i;
            sum[((b * H + (k & 2 ? H - 1 - h : h)) * W + column * RIGHT + j) * C + e] += each[at];
        }
        for (int64_t at = 0, n = eg_size(x); at < n; at++) ck_assert(got[at] == sum[at]);
        free(sum);
        eg_close(cx);
    }
}

/* d³/dx³ of Σ (diagonal of x)⁴ / 24 = the diagonal */
TEST(third_order_through_a_view)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_shift(RAMP(cx, 2, 3), 1),
              *y = eg_scale(eg_sum(NULL, eg_square(eg_square(eg_diagonal(x, 1, 0, 1)))), 1 / 24.),
              *d;
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &d), 0);
        y = eg_sum(NULL, d);
    }
    SHOWS(d, 0, 2, 0, 0, 0, 6);
    eg_close(cx);
}

TEST(null_lists_are_refused)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3);
    eg_permute_n(x, 2, NULL);
    eg_assert_error(cx, "permute: the axes are NULL");
    eg_view_n(x, 1, NULL);
    eg_assert_error(cx, "view: the sizes are NULL");
    eg_reshape_n(x, 1, NULL);
    eg_assert_error(cx, "reshape: the sizes are NULL");
    eg_expand_n(x, 2, NULL);
    eg_assert_error(cx, "expand: the sizes are NULL");
    eg_split_axis(x, 0, 2, NULL, NULL);
    eg_assert_error(cx, "split");
    eg_tensor *part[2];
    eg_split_axis(x, 0, 2, (int64_t[]){ 1, INT64_MAX }, part);
    eg_assert_error(cx, "split: part 2");
    eg_expand(eg_ones(cx, 1), INT64_MAX, INT64_MAX);
    eg_assert_error(cx, "expand");
    eg_close(cx);
}

/* -- many slices of one tensor ---------------------------------------------------------------- */
typedef eg_tensor *slicing(eg_tensor *x, int64_t t);
static eg_tensor *by_select(eg_tensor *x, int64_t t) { return eg_select_axis(x, 0, t); }
static eg_tensor *by_slice(eg_tensor *x, int64_t t) { return eg_slice_axis(x, 0, t, t + 1, 1); }
static eg_tensor *by_transpose(eg_tensor *x, int64_t t)
{
    return eg_select_axis(eg_transpose(x, 0, 1), 1, t);
}
static eg_tensor *by_reshape(eg_tensor *x, int64_t t)
{
    return eg_select_axis(eg_reshape(x, -1, 8, 8), 0, t);
}
static eg_tensor *by_expand(eg_tensor *x, int64_t t)
{
    return eg_select_axis(eg_select_axis(eg_expand(eg_unsqueeze(x, 0), 3, -1, -1), 0, 1), 0, t);
}
static eg_tensor *by_window(eg_tensor *x, int64_t t)
{
    return eg_select_axis(eg_unfold_axis(x, 0, 1, 1), 0, t);
}
static eg_tensor *by_index(eg_tensor *x, int64_t t)
{
    return eg_at("[v] d, i -> i d", x,
                 eg_full_n(eg_context(x), EG_I64, (double)t, 1, (int64_t[]){ 1 }));
}
static eg_tensor *by_halves(eg_tensor *x, int64_t t)
{
    eg_tensor *row = eg_select_axis(x, 0, t);
    return eg_concat_axis(0, eg_slice_axis(row, 0, 0, 32, 1), eg_slice_axis(row, 0, 32, 64, 1));
}
static const struct {
    const char *name;
    slicing *f;
} slicings[] = { { "select", by_select },   { "slice", by_slice },   { "transpose", by_transpose },
                 { "reshape", by_reshape }, { "expand", by_expand }, { "unfold", by_window },
                 { "at", by_index },        { "halves", by_halves } };

typedef struct cost {
    double forward, back;
    size_t used, second;
    uint64_t nodes, second_nodes;
} cost;
/* Σ_t ⟨x_t, x_t⟩ / 2 (plain: Σ_t Σ x_t) over n slices of a new (n, 64), its gradient, and that of
 * ⟨dx, dx⟩ / 2 if it is recorded. */
static cost cost_of(slicing *f, int n, bool recorded, bool plain)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_normal(cx, 0, 1, n, 64), *dx, *ddx, **each = malloc((size_t)n * sizeof *each);
    clock_t start = clock();
    for (int t = 0; t < n; t++) each[t] = f(x, t);
    eg_tensor *all = eg_stack_axis_n(0, n, each),
              *y = eg_sum(NULL, plain ? all : eg_scale(eg_square(all), 0.5));
    free(each);
    cost c = { .forward = (double)(clock() - start) };
    eg_usage had = eg_stats(cx);
    eg_nograd(cx, !recorded);
    start = clock();
    ck_assert_msg(eg_grad(y, NULL, 1, &x, &dx) == 0, "%s", eg_error(cx));
    c.back = (double)(clock() - start);
    eg_usage has = eg_stats(cx);
    c.used = has.used - had.used;
    c.nodes = has.nodes - had.nodes;
    if (plain)
        eg_assert_close(dx, eg_ones_like(x), 0);
    else
        eg_assert_close(dx, x, 0);
    if (recorded && !plain) {
        had = eg_stats(cx);
        ck_assert_int_eq(eg_grad(eg_scale(eg_sum(NULL, eg_square(dx)), 0.5), NULL, 1, &x, &ddx), 0);
        has = eg_stats(cx);
        c.second = has.used - had.used;
        c.second_nodes = has.nodes - had.nodes;
        eg_assert_close(ddx, x, 1e-6);
    }
    eg_assert_ok(cx);
    eg_close(cx);
    return c;
}
LOOP_TEST(slices_of_one_tensor_cost_one_buffer, 2 * (sizeof slicings / sizeof *slicings))
{
    const bool recorded = _i & 1;
    const size_t k = (size_t)_i / 2;
    const cost half = cost_of(slicings[k].f, 500, recorded, false),
               whole = cost_of(slicings[k].f, 1000, recorded, false);
    ck_assert_msg(whole.used < half.used * 21 / 10, "%s: %zu bytes, %zu of half as many",
                  slicings[k].name, whole.used, half.used);
    ck_assert_msg(whole.nodes < half.nodes * 21 / 10, "%s: %zu nodes", slicings[k].name,
                  (size_t)whole.nodes);
    ck_assert_msg(whole.used < 15 * 1000 * 64 * sizeof(float), "%s: %zu bytes", slicings[k].name,
                  whole.used);
    ck_assert_msg(whole.second <= half.second * 21 / 10,
                  "%s: second order: %zu bytes, %zu of half as many", slicings[k].name,
                  whole.second, half.second);
    ck_assert_msg(whole.second_nodes <= half.second_nodes * 21 / 10, "%s: %zu nodes",
                  slicings[k].name, (size_t)whole.second_nodes);
}

LOOP_TEST(four_thousand_selects_take_three_times_their_tensor, 2)
{
    double ratio = INFINITY;
    cost c = { 0 };
    for (int k = 0; k < 5; k++) {
        c = cost_of(by_select, 4000, _i, true);
        ratio = fmin(ratio, c.back / fmax(c.forward, 1));
    }
    ck_assert_msg(c.used <= 3 * 4000 * 64 * sizeof(float), "%zu bytes", c.used);
    ck_assert_msg(ratio <= 20, "%g times the forward's time", ratio);
}

/* Overlapping slices, slices of slices, and uses of the complete tensor: cotangents of all kinds
 * are added for one tensor. */
static eg_tensor *overlapping(void *user, eg_tensor *const *x)
{
    eg_tensor *turned = eg_transpose(x[0], 0, 1), *row = eg_select_axis(x[0], 0, 1),
              *w = eg_unfold_axis(x[0], 0, 3, 1);
    eg_tensor *y = eg_sum(NULL, eg_mul(eg_sin(x[0]), x[0]));
    y = eg_add(y, eg_sum(NULL, eg_mul(eg_exp(eg_slice_axis(turned, 1, 0, 3, 2)),
                                      eg_slice_axis(turned, 1, 1, 5, 2))));
    y = eg_add(y, eg_sum(NULL, eg_mul(eg_tanh(eg_slice_axis(row, 0, 0, 2, 1)),
                                      eg_slice_axis(row, 0, 1, 3, 1))));
    y = eg_add(y, eg_sum(NULL, eg_mul(eg_sin(eg_slice_axis(w, 0, 0, 2, 1)),
                                      eg_slice_axis(w, 0, 1, 3, 1))));
    y = eg_add(y, eg_sum(NULL, eg_exp(eg_transpose(eg_slice_axis(w, 1, 0, 2, 1), 1, 2))));
    y = eg_add(y, eg_sum(NULL, eg_sin(eg_diagonal(eg_flip_axis(x[0], 1), 0, 0, 1))));
    y = eg_add(y, eg_sum(NULL, eg_square(eg_select_axis(eg_reshape(turned, -1), 0, 4))));
    y = eg_add(y, eg_sum(NULL, eg_exp(eg_at("[v] d, i -> i d", x[0], user))));
    return eg_add(y, eg_sum(NULL, eg_sin(eg_at("[v] d, i -> i d", eg_slice_axis(turned, 0, 0, 2, 1),
                                               eg_slice_axis(user, 0, 0, 2, 1)))));
}
TEST(overlapping_slices_pass_the_check)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x = eg_uniform(cx, -1, 1, 5, 3), *index = eg_from(cx, ((int64_t[]){ 1, 0, 1 }), 3);
    for (int oracle = 0; oracle < 2; oracle++) {
        const eg_report *r = eg_gradcheck(overlapping, index, 1, &x, .order = 2,
                                          .oracle = (eg_oracle)oracle, .mutate = !oracle);
        ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    }
    eg_tensor *y = overlapping(index, &x), *v = eg_uniform(cx, -1, 1, 5, 3), *g, *h, *hv;
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &g), 0);
    ck_assert_int_eq(eg_path_to(g, x, NULL), EG_OPEN_PATH);
    eg_assert_close(eg_jvp(y, 1, &x, &v), eg_sum(NULL, eg_mul(g, v)), 1e-13);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_mul(g, v)), NULL, 1, &x, &h), 0);
    ck_assert_int_eq(eg_hvp(y, 1, &x, &v, &hv), 0);
    eg_assert_close(h, hv, 1e-12);
    eg_tensor *again = eg_checkpoint(overlapping, index, 1, &x), *d, *e;
    ck_assert_int_eq(eg_grad(again, NULL, 1, &x, &d), 0);
    eg_assert_close(d, g, 0);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_mul(d, v)), NULL, 1, &x, &e), 0);
    eg_assert_close(e, h, 0);
    eg_nograd(cx, true);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &d), 0);
    eg_assert_close(d, g, 0);
    eg_close(cx);
}

static eg_tensor *tripled(void *user, eg_tensor *t, eg_tensor *g)
{
    (void)t;
    *(eg_tensor **)user = g;
    return eg_scale(g, 3);
}
TEST(views_between_have_their_whole_cotangent)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 3, 2), *turned = eg_transpose(x, 0, 1),
              *row = eg_select_axis(turned, 0, 1), *seen = NULL, *d[3];
    eg_tensor *y = eg_add(eg_sum(NULL, eg_slice_axis(row, 0, 0, 2, 1)),
                          eg_scale(eg_sum(NULL, eg_slice_axis(row, 0, 1, 3, 1)), 10));
    ck_assert_int_eq(eg_grad(y, NULL, 3, (eg_tensor *[]){ x, turned, row }, d), 0);
    SHOWS(d[2], 1, 11, 10);
    SHOWS(d[1], 0, 0, 0, 1, 11, 10);
    SHOWS(d[0], 0, 1, 0, 11, 0, 10);
    ck_assert_int_eq(eg_hook(row, tripled, &seen), 0);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, d), 0);
    SHOWS(seen, 1, 11, 10);
    SHOWS(d[0], 0, 3, 0, 33, 0, 30);
    eg_close(cx);
}

TEST(threads_change_no_bit_of_a_sum_of_slices)
{
    float *one = NULL;
    for (int threads = 1; threads < 4; threads++) {
        eg_ctx *cx = eg_open(.threads = threads, .seed = 5);
        eg_tensor *x = eg_normal(cx, 0, 1, 700, 900), *y = eg_sum(NULL, eg_sin(x)), *dx;
        for (int k = 0; k < 4; k++)
            y = eg_add(y, eg_sum(NULL, eg_sin(eg_slice_axis(x, k & 1, 10 * k, 600 + 10 * k, 1))));
        y = eg_add(y, eg_sum(NULL, eg_sin(eg_unfold_axis(x, 0, 3, 2))));
        ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), 0);
        const size_t bytes = 700 * 900 * sizeof *one;
        if (!one) one = memcpy(malloc(bytes), eg_f32(dx), bytes);
        ck_assert_mem_eq(one, eg_f32(dx), bytes);
        eg_close(cx);
    }
    free(one);
}

TEST(a_sum_of_slices_that_overflows_is_traced)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 4), *dx;
    eg_tensor *y = eg_sum(NULL, eg_add(eg_slice_axis(x, 0, 0, 3, 1), eg_slice_axis(x, 0, 1, 4, 1)));
    eg_trace(cx, true);
    ck_assert_int_eq(eg_grad(y, eg_full_n(cx, EG_F32, 3e38, 0, NULL), 1, &x, &dx), -1);
    eg_assert_error(cx, "the gradient of slice");
    eg_close(cx);
}

TEST(an_index_that_changed_is_noticed_at_second_order)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 3, 2), *i = eg_from(cx, ((int64_t[]){ 1, 0 }), 2), *dx, *ddx;
    eg_tensor *y = eg_sum(
        NULL, eg_square(eg_add(eg_at("[v] d, i -> i d", x, i), eg_slice_axis(x, 0, 0, 2, 1))));
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), 0);
    eg_tensor *z = eg_sum(NULL, eg_square(dx));
    ck_assert_int_eq(eg_grad(z, NULL, 1, &x, &ddx), 0);
    eg_fill(i, 2);
    ck_assert_int_eq(eg_grad(z, NULL, 1, &x, &ddx), -1);
    eg_assert_error(cx, "was changed in place");
    eg_close(cx);
}

/* -- random views: each operation on rows gives the bits of a contiguous copy of its operand -----
 */
static uint64_t view_state;
static int view_draw(int n)
{
    view_state = view_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((view_state >> 33) % (uint64_t)n);
}
/* Returns a view of four axes, each whole, a part, every second element, reversed or expanded, in
 * any order. */
static eg_tensor *random_view(eg_ctx *cx, eg_dtype type)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 8, 17, 20, 70 };
    int64_t n[4];
    int order[] = { 0, 1, 2, 3 };
    for (int k = 0; k < 4; k++) n[k] = sizes[view_draw(k < 2 ? 4 : 8)];
    eg_tensor *x = eg_normal(cx, 0, 20, 2 * n[0], 2 * n[1], 2 * n[2], 2 * n[3]);
    if (view_draw(5) == 0) x = eg_where(eg_gt(x, eg_scalar(cx, 45)), eg_scalar(cx, INFINITY), x);
    if (view_draw(5) == 0) x = eg_where(eg_lt(x, eg_scalar(cx, -50)), eg_scalar(cx, NAN), x);
    x = eg_cast(x, type);
    for (int k = 0; k < 4; k++) {
        const int how = view_draw(5), from = view_draw(2);
        x = eg_slice_axis(x, k, from, how == 0 ? 2 * n[k] : n[k] + from, how == 0 ? 2 : 1);
        if (how == 0 && eg_dim(x, k) > n[k]) x = eg_slice_axis(x, k, 0, n[k], 1);
        if (how == 1) x = eg_flip_axis(x, k);
        if (how == 2) x = eg_copy(x);
        const int swap = view_draw(k + 1), was = order[k];
        order[k] = order[swap], order[swap] = was;
    }
    if (view_draw(4) == 0) x = eg_expand_n(eg_slice_axis(x, 3, 0, 1, 1), 4, n);
    return eg_permute_n(x, 4, order);
}
static eg_tensor *on_rows(int f, const char *spec, eg_tensor *x)
{
    switch (f) {
    case 0: return eg_softmax(spec, x);
    case 1: return eg_log_softmax(spec, x);
    case 2: return eg_cumsum(spec, x);
    case 3: return eg_max(spec, x);
    case 4: return eg_argmin(spec, x);
    case 5: return eg_sort(spec, x);
    case 6: return eg_topk(spec, x, .k = 1);
    case 7: return eg_cast(x, EG_U8);
    default: return eg_any(spec, x);
    }
}
LOOP_TEST(rows_of_any_view_have_the_bits_of_a_copy, 4)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I32, EG_BOOL };
    static const char *const specs[] = { "a b c [d]", "a b [c] d", "a [b] c d", "[a] b c d" };
    view_state = 3 + (uint64_t)_i;
    for (int q = 0; q < 300; q++) {
        eg_ctx *cx = eg_open(.threads = 1 + q % 3, .seed = (uint64_t)q);
        const int f = _i < 2 ? q % 9 : 2 + q % 7;
        const char *spec = specs[view_draw(4)];
        eg_tensor *x = random_view(cx, types[_i]),
                  *copy = eg_full_n(cx, types[_i], 0, 4, eg_dims(x));
        eg_assign(copy, x);
        eg_tensor *y = eg_contiguous(on_rows(f, spec, x)),
                  *z = eg_contiguous(on_rows(f, spec, copy));
        eg_assert_ok(cx);
        eg_assert_close(eg_cast(y, EG_F64), eg_cast(z, EG_F64), 0);
        eg_close(cx);
    }
}

#if !EG_DEBUG_ALLOC /* the tensor behind a view is memory that was freed there */
TEST(views_of_what_no_longer_exists_are_refused)
{
    static const char *const why =
        "operand 1 is a view of a tensor whose scope was popped, or whose owner or file was closed";
    for (int how = 0; how < 2; how++) {
        eg_ctx *cx = eg_open();
        eg_owner *o = eg_owner_open(cx);
        eg_tensor *w = eg_keep_in(o, eg_ones(cx, 30, 20)), *v = eg_transpose(w, 0, 1),
                  *part = eg_slice_axis(v, 0, 2, 5, 1);
        ck_assert_double_eq(eg_item(eg_sum(NULL, part)), 90);
        eg_owner_close(o);
        if (how) eg_keep_in(eg_owner_open(cx), eg_zeros(cx, 30, 20)); /* in its place */
        ck_assert(!eg_ok(eg_sum(NULL, v)));
        eg_assert_error(cx, why);
        ck_assert(!eg_ok(eg_exp(part)));
        eg_assert_error(cx, why);
        ck_assert_ptr_null(eg_f32(part));
        eg_assert_error(cx, why);
        ck_assert_int_eq(eg_fill(part, 1), -1);
        eg_clear(cx);
        eg_close(cx);
    }
}
#endif
TEST(views_of_one_element_take_any_step)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 2);
    static const int64_t steps[] = { INT64_MAX, INT64_MAX - 1, (int64_t)1 << 61, (int64_t)1 << 31 };
    char text[200];
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        eg_tensor *one = eg_unfold_axis(x, 0, 2, steps[k]);
        ck_assert_double_eq(eg_item(eg_sum(NULL, one)), 4);
        ck_assert(eg_format(one, text, sizeof text) > 0);
    }
    ck_assert_int_eq(eg_size(eg_view(eg_zeros(cx, 0), (int64_t)1 << 32, 0, (int64_t)1 << 30)), 0);
    eg_clear(cx); /* or refused, as more than 2^63 bytes */
    eg_close(cx);
}

/* An operand for a result of 3 axes: permuted, every second element, reversed, or repeated along
 * some axes (stride 0), of a random shape below that. */
static eg_tensor *plane_operand(eg_ctx *cx, eg_dtype dtype, const int64_t *dim)
{
    static const int orders[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                     { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    const int *order = orders[view_draw(6)], step = view_draw(4) ? 1 : 2;
    int64_t size[3], back[3];
    int inverse[3];
    for (int k = 0; k < 3; k++) back[k] = view_draw(4) ? dim[k] : 1;
    for (int k = 0; k < 3; k++) size[k] = back[order[k]], inverse[order[k]] = k;
    size[2] *= step;
    eg_tensor *x = eg_cast(eg_uniform_n(cx, EG_F64, .5, 9, 3, size), dtype);
    x = eg_permute_n(eg_slice_axis(x, 2, 0, EG_END, step), 3, inverse);
    if (!view_draw(4)) x = eg_flip_axis(x, view_draw(3));
    return eg_expand_n(x, 3, dim);
}
static eg_tensor *on_planes(int f, eg_tensor *x, eg_tensor *y, eg_tensor *z)
{
    switch (f) {
    case 0: return eg_add(x, y);
    case 1: return eg_mul(x, eg_sub(y, z));
    case 2: return eg_where(eg_lt(x, y), z, x);
    case 3: return eg_maximum(x, z);
    case 4: return eg_type(x) == EG_I64 ? eg_minimum(x, y) : eg_pow(x, y);
    default: return eg_type(x) == EG_I64 ? eg_abs(z) : eg_atan2(eg_tanh(x), z);
    }
}
LOOP_TEST(planes_of_any_operands_have_the_bits_of_copies, 3)
{
    static const eg_dtype types[] = { EG_F32, EG_F64, EG_I64 };
    view_state = 9 + (uint64_t)_i;
    for (int q = 0; q < 600; q++) {
        eg_ctx *cx = eg_open(.threads = 1 + q % 2, .seed = (uint64_t)q);
        const int64_t most = q % 10 ? 24 : 150;
        const int64_t dim[3] = { 1 + (int64_t)view_draw((int)most), 1 + (int64_t)view_draw(40),
                                 1 + (int64_t)view_draw((int)most) };
        eg_tensor *x[3], *copy[3];
        for (int k = 0; k < 3; k++) {
            x[k] = plane_operand(cx, types[_i], dim);
            copy[k] = eg_full_n(cx, types[_i], 0, 3, dim);
            eg_assign(copy[k], x[k]);
        }
        eg_tensor *y = on_planes(q % 6, x[0], x[1], x[2]),
                  *z = on_planes(q % 6, copy[0], copy[1], copy[2]);
        eg_assert_ok(cx);
        eg_assert_close(eg_cast(y, EG_F64), eg_cast(z, EG_F64), 0);
        eg_close(cx);
    }
}
/* target += source, where the target is a part of each row of a matrix and the source is contiguous
 * along rows, along columns (whole and incomplete tiles), or along neither. */
TEST(sums_onto_parts_of_rows_in_any_layout)
{
    static const int64_t sizes[][2] = { { 70, 45 }, { 8, 9 }, { 33, 32 }, { 64, 96 }, { 300, 13 } };
    const eg_dtype types[] = { EG_F32, EG_F64, EG_C128 };
    for (int k = 0; k < 3 * 3 * 5; k++) {
        const eg_dtype type = types[k % 3];
        const int64_t m = sizes[k / 9][0], n = sizes[k / 9][1];
        eg_ctx *cx = eg_open(.seed = (uint64_t)k + 1);
        eg_tensor *x = eg_normal_n(cx, EG_F64, 0, 1, 3,
                                   (int64_t[]){ 2, k / 3 % 3 ? n : m, 2 * m + 2 * n }),
                  *whole =
                      eg_cast(eg_normal_n(cx, EG_F64, 0, 1, 3, (int64_t[]){ 2, m, n + 7 }), type);
        x = eg_cast(x, type);
        x = k / 3 % 3 == 0   ? eg_slice_axis(x, 2, 0, n, 1)
            : k / 3 % 3 == 1 ? eg_transpose(eg_slice_axis(x, 2, 0, m, 1), 1, 2)
                             : eg_transpose(eg_slice_axis(x, 2, 0, 2 * m, 2), 1, 2);
        eg_tensor *part = eg_slice_axis(whole, 2, 2, 2 + n, 1),
                  *want = eg_add(eg_copy(part), eg_copy(x));
        eg__add_to(part, x);
        ck_assert(eg_ok(want) && eg_ok(part));
        const eg_tensor *got = eg_copy(part);
        ck_assert(!memcmp(got->data, eg_copy(want)->data, (size_t)eg_size(want) * eg__width[type]));
        eg_assert_ok(cx);
        eg_close(cx);
    }
}
/* Returns the processor time of the gradient of a concatenation by each of n operands; the k-th of
 * them has 1 + k % 2 elements. */
static double time_of_joined(int n)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor **x = malloc((size_t)n * sizeof *x), **dx = malloc((size_t)n * sizeof *dx);
    for (int k = 0; k < n; k++) x[k] = eg_full(cx, k, 1 + k % 2);
    eg_tensor *y = eg_concat_axis_n(0, n, x);
    const clock_t start = clock();
    ck_assert_int_eq(eg_grad(y, y, n, x, dx), 0);
    const double time = (double)(clock() - start);
    for (int k = 0; k < n; k++) ck_assert(eg_f32(dx[k])[k % 2] == (float)k);
    eg_assert_ok(cx);
    eg_close(cx);
    free(x);
    free(dx);
    return time;
}
TEST(many_operands_are_joined_in_linear_time)
{
    const double few = time_of_joined(5000), many = time_of_joined(40000);
    ck_assert_msg(many < 25 * few, "8 times as many operands take %.1f times as long", many / few);
}

/* Short rows, which are copied several at a time, forwards and backwards; and numbers written into
 * such rows and columns. */
TEST(short_rows_of_any_dtype_are_copied_and_filled)
{
    static const eg_dtype dtypes[] = { EG_U8, EG_BF16, EG_F32, EG_F64, EG_C128 };
    eg_ctx *cx = eg_open(.threads = 1);
    eg_nograd(cx, true);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int n = 2; n <= 18; n++) {
            const int rows = 37;
            eg_mark mark = eg_push(cx);
            eg_tensor *x = eg_owner_tensor(eg_owner_open(cx), dtypes[d], 2, (int64_t[]){ rows, n });
            for (int r = 0; r < rows; r++)
                for (int k = 0; k < n; k++) {
                    eg_tensor *at = eg_select_axis(eg_select_axis(x, 0, r), 0, k);
                    eg_fill(at, (r * 5 + k) % 128);
                }
            eg_tensor *back = eg_cast(eg_copy(eg_flip_axis(x, 1)), EG_C128),
                      *padded = eg_cast(eg_pad_axis(x, 1, n, 3, 7), EG_C128);
            const double *b = eg_c128(back), *p = eg_c128(padded); /* pairs of numbers */
            for (int r = 0; r < rows; r++) {
                for (int k = 0; k < n; k++)
                    ck_assert(b[2 * (r * n + n - 1 - k)] == (r * 5 + k) % 128);
                for (int k = 0; k < 2 * n + 3; k++)
                    ck_assert(p[2 * (r * (2 * n + 3) + k)] ==
                              (k < n || k >= 2 * n ? 7 : (r * 5 + k - n) % 128));
            }
            eg_assert_ok(cx);
            eg_pop(cx, mark);
        }
    eg_close(cx);
}
