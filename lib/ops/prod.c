/* prod.c: the product over the bracketed axes, y = Π x as a balanced tree of products, whose
 * gradient has no division, and is correct with any number of zeros. The first half of n numbers is
 * multiplied by the second half, until one number is left. Where a level has an odd number of
 * elements, the last one becomes a factor of a separate product, which is multiplied with the
 * result at the end. One operation computes the trees of rows of up to PROD_MOST elements. Of
 * longer rows, and of rows whose elements lie next to those of other rows, it computes several
 * levels at once if their lengths are even, as they are without at most PROD_COLUMN − 1 elements at
 * the end of a row, which are a tree of their own; else they are halved by products of tensors. */
#include "ops/ops.h"
#include <string.h>

/* Rows of at most PROD_MOST elements of `width` bytes are copied to the stack. PROD_SIDE of them
 * are computed together, one in each lane, once they have PROD_NARROW elements or fewer. */
#define PROD_MOST(width) ((width) > sizeof(double) ? 4096 : 8192)
enum { PROD_LEVELS = 14, PROD_NARROW = 32, PROD_SIDE = 32 };
/* Rows that are computed one in each lane from the first level on have at most PROD_COLUMN
 * elements. */
enum { PROD_BESIDE = 256, PROD_COLUMN = 512 };
/* Returns how many such rows of n elements are computed together; `most`: PROD_MOST. */
static int64_t prod_beside(int64_t n, int64_t most)
{
    return eg__min64(PROD_BESIDE, 2 * most / n & -EG_LANES);
}
/* The loops of prod_of.h get the layout of a row of x as `user`. */
#define WITH_SLOPES
#define T       float
#define NAME(x) x##_f32
#include "ops/prod_of.h"
#define T       double
#define NAME(x) x##_f64
#include "ops/prod_of.h"
#define T       double complex
#define NAME(x) x##_c128
#include "ops/prod_of.h"
#undef WITH_SLOPES
#define T       uint64_t /* overflow wraps */
#define NAME(x) x##_i64
#include "ops/prod_of.h"

/* -- the gradient: d_k = g Π_{j ≠ k} x_j;  operands: x, whose rows are the last axis, and g. Its
 * gradient consists of recurrences: with p_k = Π_{j < k} x_j, s_k = Π_{j > k} x_j,
 * a_k = x_{k−1} a_{k−1} + u_{k−1} p_{k−1} = Σ_{i < k} u_i Π_{j < k, j ≠ i} x_j, and b, which is a
 * from the end, dx_k = g (a_k s_k + p_k b_k) */
static bool prod_slope_shape(eg_tensor *d)
{
    return eg__shape_like(d, (eg_dtype)d->in[0]->dtype, d->in[0]);
}
static bool prod_slope_forward(eg_tensor *d)
{
    static eg_inner *const run[EG_DTYPES] = {
        [EG_F32] = prod_slopes_f32, [EG_F64] = prod_slopes_f64, [EG_C128] = prod_slopes_c128
    };
    eg_strip row;
    eg__strip(&row, d->in[0], 1);
    return eg__batches(d, d->rank - 1, 3, (const eg_tensor *[]){ d, d->in[0], d->in[1] },
                       run[d->dtype], &row, 3 * row.n);
}
static const eg_op prod_slope_op;
static eg_tensor *prod_slope(eg_tensor *x, eg_tensor *g)
{
    return eg_apply(&prod_slope_op, NULL, 0, 2, (eg_tensor *[]){ x, g });
}
/* y_k = x_{k−1} y_{k−1} + v_{k−1}, y_0 = first; if `back`, from the end */
static eg_tensor *prod_before(eg_tensor *x, eg_tensor *v, double first, bool back)
{
    if (back) x = eg_flip_axis(x, -1), v = eg_flip_axis(v, -1);
    v = eg_pad_axis(eg_slice_axis(v, -1, 0, -1, 1), -1, 1, 0, first);
    eg_tensor *y = eg__late_recurrence(x, v);
    return back ? eg_flip_axis(y, -1) : y;
}
static eg_tensor *prod_slope_rule(eg_tensor *d, eg_tensor *u, int i)
{
    eg_tensor *x = d->in[0], *g = d->in[1];
    if (i == 1) return eg__dot_last(u, prod_slope(x, eg_ones_like(g)), 1);
    eg_tensor *none = eg_zeros_like(x), *p = prod_before(x, none, 1, false),
              *s = prod_before(x, none, 1, true), *a = prod_before(x, eg_mul(u, p), 0, false),
              *b = prod_before(x, eg_mul(u, s), 0, true);
    return eg_mul(eg__widen(g, 1), eg_add(eg_mul(a, s), eg_mul(p, b)));
}
static eg_tensor *prod_slope_call(eg_tensor *const *x) { return prod_slope(x[0], x[1]); }
static const eg_sample prod_slope_samples[] = { { prod_slope_call, "2x5, 2", -1, 1 },
                                                { prod_slope_call, "3x1, 3", 0, 0 },
                                                { 0 } };
static const eg_op prod_slope_op = {
    .name = "prod_slope",
    .equation = "d_k = g prod over j != k of x_j",
    .gradient = "dg = sum u_k prod x_j, dx_k = g sum over i != k of u_i prod over j != i, k of x_j",
    .arity = 2,
    .shape = prod_slope_shape,
    .forward = prod_slope_forward,
    .rule = prod_slope_rule,
    .uses = EG_USES_OPERANDS,
    .samples = prod_slope_samples,
    .forward_c128 = prod_slope_forward,
};

/* -- prod: y = Π x over the last axis -- */
static bool prod_shape(eg_tensor *y) { return eg__shape_outer(y, 1, (eg_dtype)y->in[0]->dtype); }
/* True if rows lie one element after the other, also in reverse order, and are short enough for
 * prod_across. gcc fuses some complex products, so that the last bits of c128 depend on the way:
 * its reversed rows remain with products of tensors. */
static bool prod_is_across(const eg_tensor *x)
{
    const int inner = x->rank - 1, outer = inner - 1;
    return outer >= 0 && x->dim[outer] >= EG_LANES && x->dim[inner] <= PROD_COLUMN &&
           eg__abs64(x->stride[outer]) == 1 && eg__abs64(x->stride[inner]) != 1 &&
           (x->dtype != EG_C128 || (x->stride[outer] > 0 && x->stride[inner] > 0));
}
/* True if fewer rows lie one element after the other, but eg__rows_across gathers many of them. For
 * rows of fewer than PROD_GATHERED bytes, products of tensors are faster. */
static bool prod_is_gathered(const eg_tensor *x)
{
    enum { PROD_GATHERED = 128 };
    const int inner = x->rank - 1, outer = inner - 1;
    const int64_t width = eg__width[x->dtype], bytes = x->dim[inner] * width;
    return outer >= 0 && width <= 8 && x->dim[outer] > 1 && x->dim[outer] < EG_LANES &&
           eg__abs64(x->stride[outer]) == 1 && eg__abs64(x->stride[inner]) != 1 &&
           bytes >= PROD_GATHERED && bytes <= EG_ROW_GATHERED &&
           eg__count(inner, x->dim) >= EG_LANES;
}
/* True if one operation computes the products of rows of this layout. */
static bool prod_is_direct(const eg_tensor *x)
{
    const int inner = x->rank - 1;
    return x->dim[inner] <= PROD_MOST(eg__width[x->dtype]) &&
           (x->stride[inner] == 1 || prod_is_across(x) || prod_is_gathered(x));
}
/* True if a copy, whose rows are contiguous, is faster than products of halves: the elements of a
 * row are no further apart than the rows. */
static bool prod_is_copied(const eg_tensor *x)
{
    const int inner = x->rank - 1;
    const int64_t apart = eg__abs64(x->stride[inner]);
    bool near = false;
    for (int r = 0; r < inner; r++)
        near |= x->stride[r] && x->dim[r] > 1 && eg__abs64(x->stride[r]) < apart;
    return !near && x->dtype != EG_C128 && x->dim[inner] <= PROD_MOST(eg__width[x->dtype]);
}
#define OF_TYPES(NAME)                                                         \
    {                                                                          \
        [EG_F32] = NAME##_f32, [EG_F64] = NAME##_f64, [EG_C128] = NAME##_c128, \
        [EG_I64] = NAME##_i64                                                  \
    }
/* Computes interleaved rows together, one in each lane; other rows one after the other. */
static bool prod_forward(eg_tensor *y)
{
    static eg_inner *const run[EG_DTYPES] = OF_TYPES(prod_rows);
    static eg_inner *const across[EG_DTYPES] = OF_TYPES(prod_across);
    eg_copies_axis copies;
    y = eg__copies_axis(&copies, y);
    const eg_tensor *x = y->in[0], *const both[] = { y, x };
    eg_strip row;
    eg__strip(&row, x, 1);
    if (!prod_is_across(x) && !prod_is_gathered(x))
        return eg__batches(y, y->rank, 2, both, run[y->dtype], &row, row.n);
    eg__rows_across(y, x, &row, across[y->dtype], &row, row.n);
    return true;
}
static eg_tensor *prod_rule(eg_tensor *y, eg_tensor *g, int i) { return prod_slope(y->in[i], g); }
static eg_tensor *prod_call(eg_tensor *const *x) { return eg_prod("i [j]", x[0]); }
static eg_tensor *prod_columns(eg_tensor *const *x) { return eg_prod("[i] j", x[0]); }
static const eg_sample prod_samples[] = { { prod_columns, "5x17", 0, 0 },
                                          { prod_call, "3x5", 0, 0 },
                                          { prod_call, "2x70", .8, 1.2 },
                                          { prod_call, "3x4:i9", 0, 0 },
                                          { 0 } };
static const eg_op prod_op = {
    .name = "prod",
    .equation = "y = prod x",
    .gradient = "dx_k = g prod over j != k of x_j",
    .arity = 1,
    .shape = prod_shape,
    .forward = prod_forward,
    .rule = prod_rule,
    .uses = EG_USES_OPERANDS,
    .samples = prod_samples,
    .forward_c128 = prod_forward,
};
/* Returns x with its last axis in front; NULL if x is NULL. */
static eg_tensor *prod_axis_first(eg_tensor *x)
{
    int order[EG_RANK_MAX];
    if (!eg_ok(x)) return x;
    for (int k = 0; k < x->rank; k++) order[k] = k ? k - 1 : x->rank - 1;
    return eg_contiguous(eg_permute_n(x, x->rank, order));
}
/* Returns level log₂ s of the trees of rows of *n elements, the last axis of x, for a large power
 * of two s, and sets *n to n / s; x itself if there is none. Element k of that level is a product
 * of s elements of a row, which are n / s apart: a row of prod_across. */
static eg_tensor *prod_by_levels(eg_tensor *x, int64_t *n)
{
    const int outer = x->rank - 1;
    int64_t dim[EG_RANK_MAX], s = 1;
    int order[EG_RANK_MAX];
    const bool columns = x->stride[outer] != 1;
    while (s < PROD_COLUMN && *n % (2 * s) == 0 && (columns || *n / s > 2 * PROD_NARROW)) s *= 2;
    if (s < 8 || x->rank == EG_RANK_MAX) return x;
    memcpy(dim, x->dim, (size_t)outer * sizeof *dim);
    dim[outer] = s;
    dim[outer + 1] = *n / s;
    eg_tensor *v = eg_view_n(x, outer + 2, dim);
    for (int r = 0; r < outer; r++) order[r + columns] = r;
    order[columns ? 0 : outer] = outer + 1;
    order[outer + 1] = outer;
    v = eg_permute_n(v, outer + 2, order);
    if (!eg_ok(v) || !prod_is_across(v)) return x;
    *n /= s;
    v = eg_apply(&prod_op, NULL, 0, 1, &v);
    for (int r = 0; columns && r <= outer; r++) order[r] = r < outer ? r + 1 : 0;
    return columns ? eg_permute_n(v, outer + 1, order) : v;
}
/* Returns the products over an axis of n > 1 elements, the last one, by products of tensors. An
 * axis that is not contiguous is moved to the front: then each half of the tensor is contiguous. */
static eg_tensor *prod_by_halves(eg_tensor *x, int64_t n)
{
    eg_tensor *odd = NULL;
    int axis = x->rank - 1;
    for (; n > 1; n /= 2) {
        const int64_t half = n / 2;
        if (axis && eg_ok(x) && (n <= 2 * PROD_NARROW || x->stride[axis] != 1))
            x = prod_axis_first(x), odd = prod_axis_first(odd), axis = 0;
        eg_tensor *last = n % 2 ? eg_slice_axis(x, axis, n - 1, n, 1) : NULL;
        x = eg_mul(eg_slice_axis(x, axis, 0, half, 1), eg_slice_axis(x, axis, half, 2 * half, 1));
        if (last) odd = odd ? eg_mul(odd, last) : last;
    }
    return odd ? eg_mul(x, odd) : x;
}
/* Returns the products over the last axis of x, of n > 0 elements. The elements at the end of a
 * long row that prevent levels of even lengths get a tree of their own. */
static eg_tensor *prod_over_last(eg_tensor *x, int64_t n)
{
    int64_t dim[EG_RANK_MAX];
    const int outer = x->rank - 1;
    memcpy(dim, x->dim, (size_t)outer * sizeof *dim);
    for (int64_t all = 0; eg_ok(x) && n > 1 && all != n && !prod_is_direct(x);) {
        all = n;
        x = prod_by_levels(x, &n);
    }
    if (!eg_ok(x)) return x;
    if (n > PROD_MOST(eg__width[x->dtype]) && n % 8) {
        const int64_t whole = n - n % PROD_COLUMN;
        return eg_mul(prod_over_last(eg_slice_axis(x, outer, 0, whole, 1), whole),
                      prod_over_last(eg_slice_axis(x, outer, whole, n, 1), n - whole));
    }
    if (n > 1 && !prod_is_direct(x) && prod_is_copied(x)) x = eg_contiguous(x);
    if (!eg_ok(x)) return x;
    if (n > 1 && prod_is_direct(x)) return eg_apply(&prod_op, NULL, 0, 1, &x);
    return eg_reshape_n(prod_by_halves(x, n), outer, dim);
}
/* Returns x, whose axes from `outer` on are those of a row of n elements, with one axis for the
 * row. If their order is not that of memory, the first levels of a tree are products over the
 * largest power of two s in the size of the first of them, which are contiguous. A copy is faster
 * for a small s, and where neither the first nor the last axis is contiguous. */
static eg_tensor *prod_row_axis(eg_tensor *x, int outer, int64_t n)
{
    int64_t row[EG_RANK_MAX], dim[EG_RANK_MAX];
    int order[EG_RANK_MAX];
    const int rank = x->rank + 1;
    memcpy(row, x->dim, (size_t)outer * sizeof *row);
    row[outer] = n;
    const int64_t s = x->dim[outer] & -x->dim[outer];
    if (s >= PROD_NARROW / 2 && rank <= EG_RANK_MAX && x->dtype != EG_C128 &&
        (x->stride[outer] == 1 || x->stride[rank - 2] == 1) &&
        !eg__view_exists(x, outer + 1, row)) {
        memcpy(dim, x->dim, (size_t)outer * sizeof *dim);
        dim[outer] = s, dim[outer + 1] = x->dim[outer] / s;
        for (int r = outer + 1; r < x->rank; r++) dim[r + 1] = x->dim[r];
        for (int r = 0; r < rank; r++) order[r] = r < outer ? r : r < rank - 1 ? r + 1 : outer;
        x = eg_permute_n(eg_view_n(x, rank, dim), rank, order);
        if (!eg_ok(x)) return x;
        x = prod_over_last(x, s);
        row[outer] = n / s;
    }
    return eg_reshape_n(x, outer + 1, row);
}
eg_tensor *eg_prod(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "prod", spec, x)) return eg__poison_of(x);
    eg_tensor *v = eg__integers_as_i64("prod", f.x);
    if (!eg_ok(v)) return v;
    const int64_t n = eg__row_length(f.x, f.inner);
    if (!n) return eg__focus_outer(&f, eg_full_n(x->cx, (eg_dtype)v->dtype, 1, f.outer, f.x->dim));
    if (!f.inner) return eg__focus_outer(&f, v);
    v = prod_row_axis(v, f.outer, n);
    if (!eg_ok(v)) return v;
    return eg__focus_outer(&f, prod_over_last(v, v->dim[f.outer]));
}

const eg_op *const eg__prod_ops[] = { &prod_op, &prod_slope_op, NULL };
