/* reduce.c: reductions over the bracketed axes. The operations get these as the last axes (ops.h);
 * the attribute is their number. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

/* Sets the shape of a result that has the outer axes of its operand. */
static bool shape_outer(eg_tensor *y, int inner, eg_dtype dtype)
{
    return eg__shape(y, dtype, y->in[0]->rank - inner, y->in[0]->dim);
}

/* -- sum: y = Σ x, by einsum; mean: y = Σ x / n ----------------------------------------------- */
eg_tensor *eg__integers_as_i64(const char *who, eg_tensor *x)
{
    if (eg__is_half(x->dtype) && !eg__check(who, x)) return eg__poison_of(x);
    return eg__is_inexact(x->dtype) ? x : eg_cast(x, EG_I64);
}
eg_tensor *eg__bytes_as_i64(eg_tensor *x)
{
    return x->dtype == EG_I8 || x->dtype == EG_U8 ? eg_cast(x, EG_I64) : x;
}
eg_tensor *eg_sum(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "sum", spec, x)) return eg__poison_of(x);
    return eg__focus_outer(&f, eg__sum_last(eg__bytes_as_i64(f.x), f.inner));
}

static eg_tensor *mean_last(eg_tensor *x, int inner)
{
    return eg_scale(eg__sum_last(x, inner), 1 / (double)eg__row_length(x, inner));
}

/* True if the bracketed axes have elements; else records an error: an empty set has no mean and no
 * maximum. */
static bool has_elements(const eg_focus *f)
{
    if (eg__row_length(f->x, f->inner)) return true;
    char dims[256];
    eg_fail_as(f->x->cx, EG_ERROR_SHAPE,
               "%s: the bracketed axes have no elements in operand 1, which is %s", f->who,
               eg__dims_text(f->given, dims, sizeof dims));
    return false;
}
eg_tensor *eg_mean(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "mean", spec, x) || !eg__floats("mean", x, 1) || !has_elements(&f))
        return eg__poison_of(x);
    return eg__focus_outer(&f, mean_last(f.x, f.inner));
}

/* -- var: y = Σ d² / (n − correction), d = x − mean, in two passes; std: y = ‖d‖ / √(n −
 * correction), with the gradient of a norm */
static eg_tensor *pnorm_last(eg_tensor *x, int inner, double p);
/* Returns d. It is exactly 0 if all elements of a row are equal, although the mean is rounded,
 * since it is computed from the differences to the first element of the row. That element is
 * detached, since d does not depend on it. */
static eg_tensor *reduce_centered(eg_tensor *x, int inner)
{
    eg_tensor *first = x;
    for (int k = 0; k < inner; k++) first = eg_slice_axis(first, -1 - k, 0, 1, 1);
    x = eg_sub(x, eg_detach(first));
    return eg_sub(x, eg__widen(mean_last(x, inner), inner));
}
/* Returns the variance of each row; if `root`, the standard deviation. */
static eg_tensor *variance(const char *who, const eg_var_args *given, bool root)
{
    eg_var_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_focus f;
    if (!eg__focus(&f, who, o.spec, o.x) || !eg__floats(who, o.x, 1)) return eg__poison_of(o.x);
    const int64_t n = eg__row_length(f.x, f.inner);
    const double left = (double)n - eg_option(o.correction, 1);
    if (!isfinite(left))
        return eg_fail_as(o.x->cx, EG_ERROR_MISUSE, "%s: the correction is %g; it must be finite",
                          who, o.correction);
    if (!(left > 0))
        return eg_fail_as(o.x->cx, EG_ERROR_SHAPE,
                          "%s: %lld element%s less the correction %g leave%s nothing to divide by",
                          who, (long long)n, n == 1 ? "" : "s", eg_option(o.correction, 1),
                          n == 1 ? "s" : "");
    eg_tensor *d = reduce_centered(f.x, f.inner);
    eg_tensor *y = root ? eg_scale(pnorm_last(d, f.inner, 2), 1 / sqrt(left))
                        : eg_scale(eg__dot_last(d, d, f.inner), 1 / left);
    return eg__focus_outer(&f, y);
}
eg_tensor *eg_var_with(const eg_var_args *o) { return variance("var", o, false); }
eg_tensor *eg_std_with(const eg_var_args *o) { return variance("std", o, true); }

/* -- prod: y = Π x as a balanced tree of products, whose gradient has no division, and is correct
 * with any number of zeros. The reduced axis is moved to the front once it has at most PROD_NARROW
 * elements, or if it is not contiguous: then each half of the tensor is contiguous. */
enum { PROD_NARROW = 64 };
/* Returns x with its last axis in front; NULL if x is NULL. */
static eg_tensor *prod_axis_first(eg_tensor *x)
{
    int order[EG_RANK_MAX];
    if (!eg_ok(x)) return x;
    for (int k = 0; k < x->rank; k++) order[k] = k ? k - 1 : x->rank - 1;
    return eg_contiguous(eg_permute_n(x, x->rank, order));
}
eg_tensor *eg_prod(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "prod", spec, x)) return eg__poison_of(x);
    eg_tensor *v = eg__integers_as_i64("prod", f.x), *odd = NULL;
    if (!eg_ok(v)) return v;
    int64_t n = eg__row_length(f.x, f.inner), dim[EG_RANK_MAX + 1];
    if (f.outer) memcpy(dim, f.x->dim, (size_t)f.outer * sizeof *dim);
    if (!n) return eg__focus_outer(&f, eg_full_n(x->cx, (eg_dtype)v->dtype, 1, f.outer, dim));
    if (f.inner) {
        dim[f.outer] = n;
        v = eg_reshape_n(v, f.outer + 1, dim);
        for (int axis = f.outer; n > 1; n /= 2) {
            const int64_t half = n / 2;
            if (axis && eg_ok(v) && (n <= PROD_NARROW || v->stride[axis] != 1))
                v = prod_axis_first(v), odd = prod_axis_first(odd), axis = 0;
            eg_tensor *last = n % 2 ? eg_slice_axis(v, axis, n - 1, n, 1) : NULL;
            v = eg_mul(eg_slice_axis(v, axis, 0, half, 1),
                       eg_slice_axis(v, axis, half, 2 * half, 1));
            if (last) odd = odd ? eg_mul(odd, last) : last;
        }
        v = eg_reshape_n(odd ? eg_mul(v, odd) : v, f.outer, dim);
    }
    return eg__focus_outer(&f, v);
}

/* -- extremes: the largest or smallest element, or NaN if there is one; searched by lanes; complex
 * numbers by their real parts */
typedef struct eg_search {
    /* Sets best to the best of best and x; true if it has changed. */
    bool (*better)(int64_t n, const void *x, void *best);
    /* Returns the first k with x[k] = best. */
    int64_t (*find)(int64_t n, const void *x, const void *best);
    /* Sets each best[k] to the best of itself and x[k]. */
    void (*better_each)(int64_t n, const void *x, void *best);
    /* Sets first[i], if it is negative, to k where x[i] = best[i]. */
    void (*find_each)(int64_t n, const void *x, const void *best, int64_t k, int64_t *first);
} eg_search;
#define TEMPLATE  "ops/search_of.h"
#define WITH_BOOL uint8_t
#include "tensor/each_type_of.h"
#define SEARCH(S)                                                  \
    {                                                              \
        { larger_##S, find_##S, larger_each_##S, find_each_##S },  \
        {                                                          \
            smaller_##S, find_##S, smaller_each_##S, find_each_##S \
        }                                                          \
    }
static const eg_search
    search[EG_DTYPES]
          [2] = { /* [1]: smallest */
                  [EG_F32] = SEARCH(f32), [EG_F64] = SEARCH(f64), [EG_C128] = SEARCH(c128),
                  [EG_I32] = SEARCH(i32), [EG_I64] = SEARCH(i64), [EG_BOOL] = SEARCH(bool)
          };

typedef struct extreme {
    int inner;
    bool smallest, index;
} extreme;
typedef struct search_job {
    const eg_search *search;
    eg_strip x;
    bool index;
} search_job;

/* Searches n elements, of which the first is element k of a row. best: so far, and its index. */
static void search_some(const search_job *j, int64_t k, int64_t n, const void *x, void *best,
                        int64_t *first)
{
    if (k == 0) memcpy(best, x, (size_t)j->x.width);
    if (j->search->better(n, x, best) && j->index) *first = k + j->search->find(n, x, best);
}
static void search_end(const search_job *j, const void *best, const int64_t *first, void *y)
{
    if (j->index)
        memcpy(y, first, sizeof *first);
    else
        memcpy(y, best, (size_t)j->x.width);
}
/* Writes the largest or smallest element of one row or, if j->index, the first index of it. */
static void search_row(const void *user, int64_t row, char *const *p)
{
    const search_job *j = user;
    (void)row;
    _Alignas(64) char buffer[EG_CHUNK * 16];
    uint64_t best[2] = { 0 };
    int64_t first = 0;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = j->x.n - k < EG_CHUNK ? j->x.n - k : EG_CHUNK;
        search_some(j, k, n, eg__strip_read(&j->x, p[1], k, n, buffer), best, &first);
    }
    search_end(j, best, &first, p[0]);
}
/* The same for contiguous rows. */
static void search_rows(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const search_job *j = user;
    for (int64_t r = 0; r < rows; r++) {
        uint64_t best[2] = { 0 };
        int64_t first = 0;
        search_some(j, 0, j->x.n, p[1] + r * step[1], best, &first);
        search_end(j, best, &first, p[0] + r * step[0]);
    }
}
/* rows of at most so many elements are computed across, although elements are gathered for it */
enum { SHORT_ROW = EG_COLUMNS };
/* The columns of some rows: element 0 of each row, then element 1, … */
typedef struct columns {
    const eg_strip *x;
    const char *from; /* the first element of the first row */
    int64_t rows, apart, index[EG_RANK_MAX], at;
    _Alignas(64) char buffer[EG_CHUNK * 16];
} columns;
/* Begins with column 0 of n rows, at most EG_CHUNK, which are `apart` bytes apart. */
static void strip_columns(columns *c, const eg_strip *x, const char *from, int64_t n, int64_t apart)
{
    c->x = x;
    c->from = from;
    c->rows = n;
    c->apart = apart;
    eg__axes_to(x->rank, (const int64_t *)(const void *)x->axis, 2, 1, 0, c->index, &c->at);
}
/* Returns the elements of the current column, contiguous. */
static const void *strip_column(columns *c)
{
    const char *x = c->from + c->at;
    if (c->apart == c->x->width) return x;
    eg__move((int)c->x->width, c->rows, c->buffer, c->x->width, x, c->apart);
    return c->buffer;
}
/* Goes on to the next column; false after the last one. */
static bool strip_column_next(columns *c)
{
    return eg__axes_next(c->x->rank, (const int64_t *)(const void *)c->x->axis, 2, 1, c->index,
                         &c->at);
}
/* Writes the extremes of n rows that are short, or whose elements are further apart than the rows;
 * p[1]: the first element of each. */
static void search_across(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const search_job *j = user;
    const int64_t w = j->x.width;
    _Alignas(64) char best[EG_CHUNK * 16];
    int64_t first[EG_CHUNK];
    columns c;
    for (int64_t k = 0, m; k < n; k += m) {
        const char *from = p[1] + k * step[1];
        m = eg__min64(n - k, EG_CHUNK);
        eg__move((int)w, m, best, w, from, step[1]);
        strip_columns(&c, &j->x, from, m, step[1]);
        while (strip_column_next(&c)) j->search->better_each(m, strip_column(&c), best);
        if (!j->index) {
            eg__move((int)w, m, p[0] + k * step[0], step[0], best, w);
            continue;
        }
        memset(first, -1, (size_t)m * sizeof *first);
        strip_columns(&c, &j->x, from, m, step[1]);
        int64_t at = 0;
        for (bool more = true; more; more = strip_column_next(&c))
            j->search->find_each(m, strip_column(&c), best, at++, first);
        eg__move(sizeof *first, m, p[0] + k * step[0], step[0], first, sizeof *first);
    }
}
/* Puts the axes of a row in the order of their strides, which is that of memory, merges neighbours,
 * and drops axes along which the row is expanded. The extreme of a row does not depend on the order
 * of its elements, nor on their number. */
static void strip_in_memory_order(eg_strip *s)
{
    int last = 0, kept = 0;
    for (int r = 0; r < s->rank; r++)
        if (s->axis[r].step || !s->axis[r].size) s->axis[kept++] = s->axis[r];
    if (!kept) s->axis[kept++] = (eg_strip_axis){ 1, s->width };
    s->rank = kept;
    s->n = 1;
    for (int r = 0; r < kept; r++) s->n *= s->axis[r].size;
    for (int i = 1; i < s->rank; i++)
        for (int r = i; r > 0 && eg__abs64(s->axis[r].step) > eg__abs64(s->axis[r - 1].step); r--) {
            const eg_strip_axis outer = s->axis[r - 1];
            s->axis[r - 1] = s->axis[r];
            s->axis[r] = outer;
        }
    for (int r = 1; r < s->rank; r++) {
        eg_strip_axis *out = &s->axis[last], *in = &s->axis[r];
        if (out->step == in->step * in->size)
            *out = (eg_strip_axis){ out->size * in->size, in->step };
        else
            s->axis[++last] = *in;
    }
    s->rank = last + 1;
}
static bool extreme_shape(eg_tensor *y)
{
    const extreme *a = y->attr;
    return shape_outer(y, a->inner, a->index ? EG_I64 : (eg_dtype)y->in[0]->dtype);
}
/* Searches rows across, if they are short or closer to each other than their elements, else in
 * batches if they are contiguous or neighbours, else one after another. */
static bool extreme_forward(eg_tensor *y)
{
    const extreme *a = y->attr;
    const eg_tensor *x = y->in[0];
    search_job j = { .search = &search[x->dtype][a->smallest], .index = a->index };
    eg__strip(&j.x, x, a->inner);
    const bool batches = eg__strip_contiguous(&j.x) || eg__rows_are_neighbours(x, y->rank, &j.x);
    eg_strip sorted = j.x;
    if (!a->index) strip_in_memory_order(&sorted);
    const int64_t apart = y->rank ? eg__abs64(x->stride[y->rank - 1]) * sorted.width : 0;
    const bool nearer = !a->index && apart < eg__abs64(sorted.axis[sorted.rank - 1].step);
    const bool across =
        y->rank && y->dim[y->rank - 1] >= EG_LANES && (nearer || sorted.n <= SHORT_ROW);
    if (!j.x.n) { /* only any and all accept rows without elements */
        eg__fill(y, a->smallest);
        return true;
    }
    const bool listed =
        !across && y->rank && j.x.n <= SHORT_ROW && eg_size(y) >= EG_LANES && j.x.width <= 8;
    if (listed) {
        j.x = eg__columns_strip(x, sorted.n);
        eg__rows_as_columns(y, x, &sorted, search_across, &j, sorted.n);
        return true;
    }
    if (batches && !across)
        return eg__batches(y, y->rank, 2, (const eg_tensor *[]){ y, x }, search_rows, &j, j.x.n);
    eg_tensor first = *x; /* the first element of each row */
    first.rank = y->rank;
    j.x = sorted;
    if (across)
        eg__loop_work(y->cx, 2, (const eg_tensor *[]){ y, &first }, search_across, &j, j.x.n);
    else
        eg__rows(y->cx, y->rank, 2, (const eg_tensor *[]){ y, x }, j.x.n, search_row, &j);
    return true;
}
/* Equal extremes share the cotangent: dx = g [x = y] / Σ [x = y]. */
static eg_tensor *extreme_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const int inner = ((const extreme *)y->attr)->inner;
    eg_tensor *x = y->in[i], *hit = eg_cast(eg_eq(x, eg__widen(y, inner)), (eg_dtype)x->dtype);
    return eg_mul(hit, eg__widen(eg_div(g, eg__sum_last(hit, inner)), inner));
}

/* clang-format off */
#define ROW(NAME, RULE, EQUATION, GRADIENT)                                                        \
    static eg_tensor *NAME##_rows(eg_tensor *const *x) { return eg_##NAME("i [j]", x[0]); }        \
    static eg_tensor *NAME##_columns(eg_tensor *const *x) { return eg_##NAME("[i] j [k]", x[0]); } \
    static const eg_sample NAME##_samples[] =                                                      \
        { { NAME##_rows, "3x4", 0, 0 }, { NAME##_columns, "2x3x4", 0, 0 }, { 0 } };                \
    static const eg_op NAME##_op = EXTREME(NAME, RULE, EQUATION, GRADIENT);
#define EXTREME(NAME, RULE, EQUATION, GRADIENT) { #NAME, EQUATION, GRADIENT, 1, extreme_shape,     \
    extreme_forward, RULE, EG_USES_ALL, NAME##_samples, .forward_c128 = extreme_forward }
ROW(max,    extreme_rule, "y = max x",                "dx = g [x = y] / ties")
ROW(min,    extreme_rule, "y = min x",                "dx = g [x = y] / ties")
ROW(argmax, eg_zero_rule, "y = first index of max x", "dx = 0")
ROW(argmin, eg_zero_rule, "y = first index of min x", "dx = 0")
ROW(any,    eg_zero_rule, "y = x1 or x2 or …",        "dx = 0")
ROW(all,    eg_zero_rule, "y = x1 and x2 and …",      "dx = 0")
/* clang-format on */
/* Applies a search. Rows without elements are refused: they have no extreme, and no index of
 * one. */
static eg_tensor *extreme_of(const eg_op *op, const char *spec, eg_tensor *x, bool smallest,
                             bool index)
{
    eg_focus f;
    if (!eg__focus(&f, op->name, spec, x) || !has_elements(&f)) return eg__poison_of(x);
    const extreme a = { f.inner, smallest, index };
    return eg__focus_outer(&f, eg_apply(op, &a, sizeof a, 1, &f.x));
}
eg_tensor *eg_max(const char *spec, eg_tensor *x)
{
    return extreme_of(&max_op, spec, x, false, false);
}
eg_tensor *eg_min(const char *spec, eg_tensor *x)
{
    return extreme_of(&min_op, spec, x, true, false);
}
eg_tensor *eg_argmax(const char *spec, eg_tensor *x)
{
    return extreme_of(&argmax_op, spec, x, false, true);
}
eg_tensor *eg_argmin(const char *spec, eg_tensor *x)
{
    return extreme_of(&argmin_op, spec, x, true, true);
}
/* any and all: the extreme of bools; for another type, of x ≠ 0. */
static eg_tensor *any_or_all(const eg_op *op, const char *spec, eg_tensor *x, bool smallest)
{
    eg_focus f;
    if (!eg__focus(&f, op->name, spec, x)) return eg__poison_of(x);
    eg_tensor *bools = x->dtype == EG_BOOL ? f.x : eg_cast(f.x, EG_BOOL);
    const extreme a = { f.inner, smallest, false };
    return eg__focus_outer(&f, eg_apply(op, &a, sizeof a, 1, &bools));
}
eg_tensor *eg_any(const char *spec, eg_tensor *x) { return any_or_all(&any_op, spec, x, false); }
eg_tensor *eg_all(const char *spec, eg_tensor *x) { return any_or_all(&all_op, spec, x, true); }

/* -- logsumexp: y = ln Σ e^x = m + ln Σ e^(x − m), m = max x;  dx = g softmax(x) -------------- */
typedef struct lse_job {
    eg_inner *logsum;
    eg_row_facts b;
    int width;
} lse_job;
/* Writes ln Σ e^x of each row. The kernel gives it as two addends in f64. */
static void lse_rows(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const lse_job *j = user;
    double pair[32][2];
    for (int64_t first = 0, count; first < rows; first += count) {
        count = rows - first < 32 ? rows - first : 32;
        j->logsum(count, (char *[]){ (char *)pair, p[1] + first * step[1] },
                  (int64_t[]){ sizeof *pair, step[1] }, &j->b);
        for (int64_t r = 0; r < count; r++) {
            /* ln 0 = −inf, ln inf = inf, and NaN remains */
            const double y = pair[r][0] + pair[r][1];
            if (j->width == 8)
                *EG_ROW(double, 0, first + r) = y;
            else
                *EG_ROW(float, 0, first + r) = (float)y;
        }
    }
}
static void lse_rows_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const int64_t n = ((const lse_job *)user)->b.n;
    for (int64_t r = 0; r < rows; r++) {
        const double complex *x = EG_ROW(double complex, 1, r);
        double top = -INFINITY;
        double complex total = 0;
        for (int64_t k = 0; k < n; k++) top = fmax(top, creal(x[k]));
        const double shift = isfinite(top) ? top : 0;
        for (int64_t k = 0; k < n; k++) total += cexp(x[k] - shift);
        *EG_ROW(double complex, 0, r) = shift + clog(total);
    }
}
static bool lse_shape(eg_tensor *y)
{
    return shape_outer(y, *(const int *)y->attr, (eg_dtype)y->in[0]->dtype);
}
static bool reduce_lse_forward(eg_tensor *y)
{
    eg_copies_axis copies;
    y = eg__copies_axis(&copies, y);
    const eg_tensor *x = y->in[0];
    const lse_job j = { eg__arithmetic(y->dtype)->logsum,
                        { .n = eg__row_length(x, *(const int *)y->attr) },
                        eg__width[y->dtype] };
    if (j.b.n)
        eg__batches(y, y->rank, 2, (const eg_tensor *[]){ y, x },
                    y->dtype == EG_C128 ? lse_rows_c128 : lse_rows, &j, 4 * j.b.n);
    else
        eg__fill(y, -INFINITY);
    return true;
}
static eg_tensor *lse_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const int inner = *(const int *)y->attr;
    return eg_mul(eg__softmax_last(y->in[i], NULL, inner), eg__widen(g, inner));
}
static eg_tensor *lse_last_call(eg_tensor *const *x) { return eg_logsumexp("i [j]", x[0]); }
static eg_tensor *lse_columns(eg_tensor *const *x) { return eg_logsumexp("[i] j [k]", x[0]); }
static const eg_sample lse_samples[] = { { lse_last_call, "3x4", 0, 0 },
                                         { lse_columns, "2x3x4", 0, 0 },
                                         { 0 } };
static const eg_op lse_op = {
    .name = "logsumexp",
    .equation = "y = ln sum e^x",
    .gradient = "dx = g softmax(x)",
    .arity = 1,
    .shape = lse_shape,
    .forward = reduce_lse_forward,
    .rule = lse_rule,
    .uses = EG_USES_OPERANDS,
    .samples = lse_samples,
    .forward_c128 = reduce_lse_forward,
};
eg_tensor *eg__logsumexp_last(eg_tensor *x, int inner)
{
    x = eg__contiguous_rows(x, inner);
    return eg_apply(&lse_op, &inner, sizeof inner, 1, &x);
}
eg_tensor *eg_logsumexp(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "logsumexp", spec, x) || !eg__floats("logsumexp", x, 1))
        return eg__poison_of(x);
    return eg__focus_outer(&f, eg__logsumexp_last(f.x, f.inner));
}

/* -- pnorm: y = (Σ |x|^p)^(1/p) = m (Σ |x/m|^p)^(1/p), m = max |x|;  dx = g sign x (|x|/y)^(p−1), 0
 * where y is 0 */
typedef struct pnorm {
    int inner;
    double p;
} pnorm;
typedef struct pnorm_job {
    const eg_arithmetic *m;
    eg_strip x;
    double p;
    eg_row_body *row; /* writes the norm of one row */
} pnorm_job;
static void pnorm_write(const pnorm_job *j, double y, char *to)
{
    if (j->x.width == 8)
        *(double *)(void *)to = y;
    else
        *(float *)(void *)to = (float)y;
}
/* Writes Σ |x| of one row. */
static void pnorm_row_1(const void *user, int64_t row, char *const *p)
{
    const pnorm_job *j = user;
    (void)row;
    _Alignas(64) char in[EG_CHUNK * 8];
    double total = 0;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = eg__min64(j->x.n - k, EG_CHUNK);
        total += j->m->sumabs(n, eg__strip_read(&j->x, p[1], k, n, in));
    }
    pnorm_write(j, total, p[0]);
}
/* Writes (Σ |x|^p)^(1/p) of one row. The row is divided by its largest |x| first, so that no power
 * overflows or underflows. */
static void pnorm_row(const void *user, int64_t row, char *const *p)
{
    const pnorm_job *j = user;
    (void)row;
    _Alignas(64) char in[EG_CHUNK * 8], scaled[EG_CHUNK * 8];
    double top = 0, total = 0;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = eg__min64(j->x.n - k, EG_CHUNK);
        const double t = j->m->tallest(n, eg__strip_read(&j->x, p[1], k, n, in));
        top = t > top ? t : top;
    }
    /* 1/m is normal */
    const double most = j->x.width == 8 ? 1e307 : 1e37, unit = top > most       ? most
                                                               : top < 1 / most ? 1 / most
                                                                                : top;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = eg__min64(j->x.n - k, EG_CHUNK);
        j->m->affine(n, eg__strip_read(&j->x, p[1], k, n, in), 0, 1 / unit, scaled);
        total += j->p == 2 ? j->m->sumsq(n, scaled, 0) : j->m->sumpow(n, scaled, j->p);
    }
    pnorm_write(j, unit * (j->p == 2 ? sqrt(total) : pow(total, 1 / j->p)), p[0]);
}
static void pnorm_row_c128(const void *user, int64_t row, char *const *p)
{
    const pnorm_job *j = user;
    double top = 0;
    double complex total = 0;
    (void)row;
    for (int64_t k = 0; k < j->x.n; k++)
        top = fmax(top, fabs(creal(*eg__strip_c128(&j->x, p[1], k))));
    const double unit = top > 1e307 ? 1e307 : top < 1e-307 ? 1e-307 : top;
    for (int64_t k = 0; k < j->x.n; k++)
        total += eg__c_pow(eg__c_fabs(*eg__strip_c128(&j->x, p[1], k)) / unit, j->p);
    *(double complex *)(void *)p[0] =
        unit * (j->p == 2 ? csqrt(total) : eg__c_pow(total, 1 / j->p));
}
/* Writes the norms of contiguous rows. */
static void pnorm_rows(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    pnorm_job j = *(const pnorm_job *)user;
    j.x.rank = 1, j.x.axis[0] = (eg_strip_axis){ j.x.n, j.x.width };
    for (int64_t r = 0; r < rows; r++)
        j.row(&j, r, (char *const[]){ p[0] + r * step[0], p[1] + r * step[1] });
}
/* sum[k] += (x[k] unit[k])², or |x[k]| */
EG_CLONES static void pnorm_squares(int64_t n, const double *x, const double *unit, double *sum)
{
    for (int64_t k = 0; k < n; k++) sum[k] += (x[k] * unit[k]) * (x[k] * unit[k]);
}
EG_CLONES static void pnorm_sizes(int64_t n, const double *x, double *sum)
{
    for (int64_t k = 0; k < n; k++) sum[k] += fabs(x[k]);
}
EG_CLONES static void pnorm_tallest(int64_t n, const double *x, double *top)
{
    for (int64_t k = 0; k < n; k++) top[k] = fabs(x[k]) > top[k] ? fabs(x[k]) : top[k];
}
EG_CLONES static void pnorm_widen(int64_t n, const float *x, double *y)
{
    for (int64_t k = 0; k < n; k++) y[k] = (double)x[k];
}
/* Returns the current column as numbers of f64, in place or in `wide`. */
static const double *pnorm_column(columns *c, double *wide)
{
    if (c->x->width == 8) return strip_column(c);
    pnorm_widen(c->rows, strip_column(c), wide);
    return wide;
}
/* Writes Σ |x| or √Σ x² of n short rows, in f64; p[1]: the first element of each. Only squares of
 * f64 can overflow or underflow: they are divided by the largest |x| of their row. */
static void pnorm_across(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const pnorm_job *j = user;
    double unit[EG_CHUNK], sum[EG_CHUNK], wide[EG_CHUNK];
    columns c;
    for (int64_t k = 0, m; k < n; k += m) {
        const char *from = p[1] + k * step[1];
        m = eg__min64(n - k, EG_CHUNK);
        memset(sum, 0, (size_t)m * sizeof *sum);
        memset(unit, 0, (size_t)m * sizeof *unit);
        strip_columns(&c, &j->x, from, m, step[1]);
        const bool scaled = j->p == 2 && j->x.width == 8;
        for (bool more = scaled; more; more = strip_column_next(&c))
            pnorm_tallest(m, strip_column(&c), unit);
        for (int64_t i = 0; i < m; i++)
            unit[i] = scaled ? 1 / fmin(fmax(unit[i], 1e-307), 1e307) : 1;
        strip_columns(&c, &j->x, from, m, step[1]);
        for (bool more = true; more; more = strip_column_next(&c)) {
            const double *x = pnorm_column(&c, wide);
            if (j->p == 2)
                pnorm_squares(m, x, unit, sum);
            else
                pnorm_sizes(m, x, sum);
        }
        for (int64_t i = 0; i < m; i++)
            pnorm_write(j, j->p == 2 ? sqrt(sum[i]) / unit[i] : sum[i], p[0] + (k + i) * step[0]);
    }
}
static bool pnorm_shape(eg_tensor *y)
{
    return shape_outer(y, ((const pnorm *)y->attr)->inner, (eg_dtype)y->in[0]->dtype);
}
/* Which of the two ways to compute a row is taken depends on its length and on p only. */
static bool pnorm_forward(eg_tensor *y)
{
    const pnorm *a = y->attr;
    const eg_tensor *const both[] = { y, y->in[0] };
    pnorm_job j = { .m = eg__arithmetic((eg_dtype)y->dtype),
                    .p = a->p,
                    .row = y->dtype == EG_C128 ? pnorm_row_c128
                           : a->p == 1         ? pnorm_row_1
                                               : pnorm_row };
    eg__strip(&j.x, y->in[0], a->inner);
    if (j.x.n && j.x.n <= SHORT_ROW && (a->p == 1 || a->p == 2) && y->dtype != EG_C128) {
        eg_tensor first = *y->in[0]; /* the first element of each row */
        first.rank = y->rank;
        const eg_strip row = j.x;
        if (!y->rank || y->dim[y->rank - 1] >= EG_LANES || eg_size(y) < EG_LANES) {
            eg__loop_work(y->cx, 2, (const eg_tensor *[]){ y, &first }, pnorm_across, &j,
                          4 * row.n);
        } else {
            j.x = eg__columns_strip(&first, row.n);
            eg__rows_as_columns(y, y->in[0], &row, pnorm_across, &j, 4 * row.n);
        }
        return true;
    }
    if (eg__rows_are_neighbours(y->in[0], y->rank, &j.x))
        return eg__batches(y, y->rank, 2, both, pnorm_rows, &j, 4 * j.x.n);
    eg__rows(y->cx, y->rank, 2, both, 4 * j.x.n, j.row, &j);
    return true;
}
static eg_tensor *pnorm_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const pnorm *a = y->attr;
    eg_tensor *x = y->in[i], *zero = eg__zero_like(y), *one = eg_shift(zero, 1);
    if (a->p == 1) return eg_mul(eg_sign(x), eg__widen(g, a->inner));
    /* 1/y, or 0 */
    eg_tensor *none = eg_eq(y, zero), *r = eg_where(none, zero, eg_recip(eg_where(none, one, y)));
    if (a->p == 2) return eg_mul(x, eg__widen(eg_mul(g, r), a->inner));
    /* 0^… has no slope */
    eg_tensor *share = eg_mul(eg_abs(x), eg__widen(r, a->inner)), *flat = eg_eq(share, zero);
    eg_tensor *power = eg_where(flat, zero, eg_powc(eg_where(flat, one, share), a->p - 1));
    return eg_mul(eg_mul(eg_sign(x), power), eg__widen(g, a->inner));
}
static eg_tensor *pnorm_1(eg_tensor *const *x) { return eg_pnorm("i [j]", x[0], 1); }
static eg_tensor *pnorm_2(eg_tensor *const *x) { return eg_pnorm("[i] j [k]", x[0], 2); }
static eg_tensor *pnorm_3(eg_tensor *const *x) { return eg_pnorm("i [j]", x[0], 3.5); }
static const eg_sample pnorm_samples[] = {
    { pnorm_1, "3x4", .1, 2 },
    { pnorm_2, "2x3x4", 0, 0 },
    { pnorm_3, "3x4", .5, 2 },
    { pnorm_3, "3x4", -2, -.5 },
    { 0 },
};
static const eg_op pnorm_op = {
    .name = "pnorm",
    .equation = "y = (sum |x|^p)^(1/p)",
    .gradient = "dx = g sign x (|x|/y)^(p-1)",
    .arity = 1,
    .shape = pnorm_shape,
    .forward = pnorm_forward,
    .rule = pnorm_rule,
    .uses = EG_USES_ALL,
    .samples = pnorm_samples,
    .forward_c128 = pnorm_forward,
};
static eg_tensor *pnorm_last(eg_tensor *x, int inner, double p)
{
    return eg_apply(&pnorm_op, &(pnorm){ inner, p }, sizeof(pnorm), 1, &x);
}
eg_tensor *eg_pnorm(const char *spec, eg_tensor *x, double p)
{
    eg_focus f;
    if (!eg__focus(&f, "pnorm", spec, x) || !eg__floats("pnorm", x, 1)) return eg__poison_of(x);
    if (!(p > 0))
        return eg_fail_as(x->cx, EG_ERROR_MISUSE,
                          "pnorm: p is %g; it must be above 0, or INFINITY for the largest |x|", p);
    if (p == INFINITY && eg__row_length(f.x, f.inner)) return eg_max(spec, eg_abs(x));
    return eg__focus_outer(&f, pnorm_last(f.x, f.inner, p));
}

const eg_op *const eg__reduce_ops[] = { &max_op, &min_op, &argmax_op, &argmin_op, &any_op,
                                        &all_op, &lse_op, &pnorm_op,  NULL };
