/* extremes.c: the largest and smallest elements of rows (eg_max, eg_min), their indices (eg_argmax,
 * eg_argmin), and whether any or all elements are true. */
#include "ops/ops.h"
#include <string.h>

/* -- extremes: the largest or smallest element, or NaN if there is one; searched by lanes; complex
 * numbers by their real parts */
typedef struct eg_search {
    /* Sets best to the best of best and x; true if it has changed. */
    bool (*better)(int64_t n, const void *x, void *best);
    /* Returns the first k with x[k] = best. */
    int64_t (*find)(int64_t n, const void *x, const void *best);
    /* Writes the best element of each row, contiguous, of at least EG_LANES elements. */
    void (*rows)(int64_t rows, int64_t n, const char *x, int64_t x_step, char *y, int64_t y_step);
    /* Sets each best[k] to the best of itself and x[k] of `columns` columns, `step` bytes apart. */
    void (*better_each)(int64_t columns, int64_t step, int64_t n, const void *x, void *best);
    /* Sets first[i], if it is negative, to k where x[i] = best[i]. */
    void (*find_each)(int64_t n, const void *x, const void *best, int64_t k, int64_t *first);
} eg_search;
#define TEMPLATE  "ops/search_of.h"
#define WITH_BOOL uint8_t
#include "tensor/each_type_of.h"
#define SEARCH(S)                                                                    \
    {                                                                                \
        { larger_##S, find_##S, larger_rows_##S, larger_each_##S, find_each_##S },   \
        {                                                                            \
            smaller_##S, find_##S, smaller_rows_##S, smaller_each_##S, find_each_##S \
        }                                                                            \
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

/* Searches n elements, of which the first is element k of a row. best, *first: the extreme of the
 * row so far, and its index. */
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
/* The same, without an index, for one row whose last axis, of EG_LANES to EG_CHUNK elements, is
 * contiguous: its parts are compared with each other where they lie. */
static void search_parts(const void *user, int64_t row, char *const *p)
{
    const search_job *j = user;
    (void)row;
    _Alignas(64) char part[EG_CHUNK * 16];
    const int last = j->x.rank - 1, outer = last - 1;
    const int64_t *axes = (const int64_t *)(const void *)j->x.axis, size = j->x.axis[last].size;
    int64_t index[EG_RANK_MAX], at, first = 0;
    uint64_t best[2] = { 0 };
    eg__axes_to(outer, axes, 2, 1, 0, index, &at);
    memcpy(part, p[1], (size_t)(size * j->x.width));
    do j->search->better_each(j->x.axis[outer].size, j->x.axis[outer].step, size, p[1] + at, part);
    while (eg__axes_next(outer, axes, 2, 1, index, &at));
    search_some(j, 0, size, part, best, &first);
    search_end(j, best, &first, p[0]);
}
/* The same for contiguous rows. */
static void search_rows(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const search_job *j = user;
    if (!j->index && j->x.n >= EG_LANES) {
        j->search->rows(rows, j->x.n, p[1], step[1], p[0], step[0]);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        uint64_t best[2] = { 0 };
        int64_t first = 0;
        search_some(j, 0, j->x.n, p[1] + r * step[1], best, &first);
        search_end(j, best, &first, p[0] + r * step[0]);
    }
}
/* The same, without an index, for short rows of elements of 4 or 8 bytes: blocks of them are
 * transposed. */
static void search_transposed(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    enum { BYTES = 16 << 10 };
    const search_job *j = user;
    const int64_t n = j->x.n, w = j->x.width, most = BYTES / (n * w) & -EG_LANES;
    _Alignas(64) char column[BYTES], best[BYTES];
    for (int64_t r = 0, m; r < rows; r += m) {
        const bool in_place = step[0] == w;
        char *to = p[0] + r * step[0], *at = in_place ? to : best;
        m = eg__min64(rows - r, most);
        eg__transpose((size_t)w, m, n, p[1] + r * step[1], step[1] / w, column, m, false);
        memcpy(at, column, (size_t)(m * w));
        j->search->better_each(n - 1, m * w, m, column + m * w, at);
        if (!in_place) eg__move((int)w, m, to, step[0], best, w);
    }
}
/* Writes the extremes of n rows that are short, or whose elements are further apart than the rows;
 * p[1]: the first element of each. */
static void search_across(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const search_job *j = user;
    const int64_t w = j->x.width;
    const bool in_place = !j->index && step[0] == w;
    _Alignas(64) char buffer[EG_CHUNK * 16];
    int64_t first[EG_CHUNK];
    eg_columns c;
    for (int64_t k = 0, m; k < n; k += m) {
        const char *from = p[1] + k * step[1];
        char *const best = in_place ? p[0] + k * w : buffer;
        m = eg__min64(n - k, EG_CHUNK);
        eg__move((int)w, m, best, w, from, step[1]);
        eg__columns(&c, &j->x, from, m, step[1]);
        int64_t columns, apart;
        do {
            const void *column = eg__column_run(&c, &columns, &apart);
            j->search->better_each(columns, apart, m, column, best);
        } while (eg__column_next(&c));
        if (!j->index) {
            if (!in_place) eg__move((int)w, m, p[0] + k * step[0], step[0], best, w);
            continue;
        }
        memset(first, -1, (size_t)m * sizeof *first);
        eg__columns(&c, &j->x, from, m, step[1]);
        int64_t at = 0;
        for (bool more = true; more; more = eg__column_next(&c))
            j->search->find_each(m, eg__column(&c), best, at++, first);
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
    return eg__shape_outer(y, a->inner, a->index ? EG_I64 : (eg_dtype)y->in[0]->dtype);
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
    const bool beside = y->rank && y->dim[y->rank - 1] >= EG_LANES;
    const bool few = sorted.n <= EG_COLUMNS && sorted.width <= 8 && eg_size(y) >= EG_LANES;
    /* many rows are at equal distances: windows of a short axis are not */
    const bool even = y->rank < 2 || beside ||
                      x->stride[y->rank - 2] == x->stride[y->rank - 1] * y->dim[y->rank - 1];
    const bool dense = !a->index && eg__strip_contiguous(&j.x) && j.x.width >= 4 && even &&
                       j.x.width <= 8 && j.x.n > 1 && j.x.n <= EG_COLUMNS && eg_size(y) >= EG_LANES;
    if (!j.x.n) { /* only any and all accept rows without elements */
        eg__fill(y, a->smallest);
        return true;
    }
    if (dense)
        return eg__batches(y, y->rank, 2, (const eg_tensor *[]){ y, x }, search_transposed, &j,
                           j.x.n);
    if (y->rank && (few || (beside && (nearer || sorted.n <= EG_COLUMNS)))) {
        j.x = sorted;
        eg__rows_across(y, x, &j.x, search_across, &j, j.x.n);
        return true;
    }
    if (batches)
        return eg__batches(y, y->rank, 2, (const eg_tensor *[]){ y, x }, search_rows, &j, j.x.n);
    j.x = sorted;
    const eg_strip_axis *last = &sorted.axis[sorted.rank - 1];
    const bool parts = !a->index && sorted.rank > 1 && last->step == sorted.width &&
                       last->size >= EG_LANES && last->size <= EG_CHUNK;
    eg__rows(y->cx, y->rank, 2, (const eg_tensor *[]){ y, x }, j.x.n,
             parts ? search_parts : search_row, &j);
    return true;
}
/* Equal extremes share the cotangent: dx = g [x = y] / Σ [x = y]. */
static eg_tensor *extreme_hits(eg_tensor *x, eg_tensor *y, int inner)
{
    return eg_cast(eg_eq(x, eg__widen(y, inner)), (eg_dtype)x->dtype);
}

/* -- the gradient of an extreme, in one pass; operands: x, its extreme y, g. Where a row has no
 * element that equals y, all of it is NaN. */
static const struct {
    void (*count)(int columns, const int64_t *at, int64_t n, const char *x, const void *best,
                  void *ties);
    void (*divide)(int64_t n, const void *g, void *share);
    void (*share)(int columns, const int64_t *at, const int64_t *to_at, int64_t n, const char *x,
                  const void *best, const void *share, char *dx);
    eg_inner *rows;
} shares[EG_DTYPES] = {
    [EG_F32] = { count_ties_f32, divide_ties_f32, share_ties_f32, share_rows_f32 },
    [EG_F64] = { count_ties_f64, divide_ties_f64, share_ties_f64, share_rows_f64 },
    [EG_C128] = { count_ties_c128, divide_ties_c128, share_ties_c128, share_rows_c128 },
};
enum { SHARED = 64 }; /* columns at a time */
typedef struct share_job {
    eg_strip x, dx;
    int dtype;
    int64_t at[SHARED], to_at[SHARED]; /* the offsets of the first columns of x and dx */
} share_job;
/* Sets the offsets of up to SHARED columns of a strip from column `first` on. */
static void column_offsets(const eg_strip *s, int64_t first, int64_t *at)
{
    const int64_t *axes = (const int64_t *)(const void *)s->axis,
                  n = eg__min64(s->n, first + SHARED);
    int64_t index[EG_RANK_MAX], here;
    eg__axes_to(s->rank, axes, 2, 1, first, index, &here);
    for (int64_t k = first; k < n; k++, eg__axes_next(s->rank, axes, 2, 1, index, &here))
        at[k - first] = here;
}
/* Gathers these columns of n rows, one after the other. */
static void gather_columns(int w, int columns, const int64_t *at, int64_t n, const char *from,
                           int64_t step, char *to)
{
    for (int c = 0; c < columns; c++) eg__move(w, n, to + c * n * w, w, from + at[c], step);
}
/* Writes the gradients of n rows, at most EG_CHUNK, whose extremes and cotangents are contiguous,
 * some columns at a time: as many as fit a buffer, if the elements of a column of x or dx lie
 * apart. */
static void share_some(const share_job *j, int64_t n, char *const *p, const int64_t *step,
                       const void *best, const void *g)
{
    enum { BUFFER = EG_CHUNK * 16 };
    const int w = (int)j->x.width;
    const bool near = step[1] == w, to_near = step[0] == w;
    _Alignas(64) char share[BUFFER], x[BUFFER], dx[BUFFER];
    int64_t more[2][SHARED], packed[SHARED];
    const int most = near && to_near ? SHARED : (int)eg__min64(SHARED, BUFFER / (n * w));
    for (int c = 0; c < most && c < j->x.n && !(near && to_near); c++) packed[c] = c * n * w;
    memset(share, 0, (size_t)(n * w));
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t first = 0; first < j->x.n; first += most) {
            const int64_t *at = first ? more[0] : j->at, *to_at = first ? more[1] : j->to_at;
            const int columns = (int)eg__min64(most, j->x.n - first);
            const char *from = near ? p[1] : x;
            if (first) column_offsets(&j->x, first, more[0]);
            if (first && pass) column_offsets(&j->dx, first, more[1]);
            if (!near && (!pass || j->x.n > most)) /* else x is still in the buffer */
                gather_columns(w, columns, at, n, p[1], step[1], x);
            if (!near) at = packed;
            if (!pass)
                shares[j->dtype].count(columns, at, n, from, best, share);
            else
                shares[j->dtype].share(columns, at, to_near ? to_at : packed, n, from, best, share,
                                       to_near ? p[0] : dx);
            for (int c = 0; pass && !to_near && c < columns; c++)
                eg__move(w, n, p[0] + to_at[c], step[0], dx + packed[c], w);
        }
        if (!pass) shares[j->dtype].divide(n, g, share);
    }
}
/* The same for any number of rows; operands: dx, x, the extremes, g. */
static void share_across(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const share_job *j = user;
    const int w = (int)j->x.width;
    _Alignas(64) char best[EG_CHUNK * 16], g[EG_CHUNK * 16];
    for (int64_t k = 0, m; k < n; k += m) {
        char *q[4];
        m = eg__min64(n - k, EG_CHUNK);
        for (int i = 0; i < 4; i++) q[i] = p[i] + k * step[i];
        if (step[2] != w) eg__move(w, m, best, w, q[2], step[2]);
        if (step[3] != w) eg__move(w, m, g, w, q[3], step[3]);
        share_some(j, m, q, step, step[2] == w ? q[2] : best, step[3] == w ? q[3] : g);
    }
}
static bool share_shape(eg_tensor *dx)
{
    const eg_tensor *x = dx->in[0];
    int order[EG_RANK_MAX];
    return eg__window_order(x, order)
               ? eg__shape_strided(dx, (eg_dtype)x->dtype, x->rank, x->dim, order)
               : eg__shape_like(dx, (eg_dtype)x->dtype, x);
}
/* True if rows of this layout are read one by one, not column by column. */
static bool shares_by_rows(const eg_tensor *x, int outer, const eg_strip *s)
{
    return !outer || (s->n > 4 && eg__strip_contiguous(s) && x->stride[outer - 1] != 1);
}
/* Goes row by row or column by column, as shares_by_rows says. */
static bool share_forward(eg_tensor *dx)
{
    const int inner = *(const int *)dx->attr, outer = dx->rank - inner;
    const eg_tensor *x = dx->in[0], *const all[] = { dx, x, dx->in[1], dx->in[2] };
    share_job j = { .dtype = dx->dtype };
    eg__strip(&j.x, x, inner);
    eg__strip(&j.dx, dx, inner);
    if (!eg_size(dx)) return true;
    if (shares_by_rows(x, outer, &j.x))
        return eg__batches(dx, outer, 4, all, shares[dx->dtype].rows, &j.x.n, 2 * j.x.n);
    column_offsets(&j.x, 0, j.at);
    column_offsets(&j.dx, 0, j.to_at);
    eg_tensor to = *dx, from = *x; /* the first element of each row */
    to.rank = from.rank = (uint8_t)outer;
    eg__loop_work(dx->cx, 4, (const eg_tensor *[]){ &to, &from, all[2], all[3] }, share_across, &j,
                  2 * j.x.n);
    return true;
}
static eg_tensor *share_rule(eg_tensor *dx, eg_tensor *h, int i)
{
    if (i < 2) return eg_zero_rule(dx, h, i);
    const int inner = *(const int *)dx->attr;
    eg_tensor *hit = extreme_hits(dx->in[0], dx->in[1], inner);
    return eg_div(eg__dot_last(h, hit, inner), eg__sum_last(hit, inner));
}
static const eg_op share_op;
static eg_tensor *share_call(eg_tensor *const *x)
{
    eg_tensor *all[] = { x[0], eg_max("i [j]", x[0]), x[1] };
    return eg_apply(&share_op, &(int){ 1 }, sizeof(int), 3, all);
}
static const eg_sample share_samples[] = { { share_call, "3x4, 3", 0, 0 }, { 0 } };
static const eg_op share_op = {
    .name = "extreme_slope",
    .equation = "d = g [x = y] / ties",
    .gradient = "dg = sum u [x = y] / ties, dx = dy = 0",
    .arity = 3,
    .shape = share_shape,
    .forward = share_forward,
    .rule = share_rule,
    .uses = EG_USES_OTHERS,
    .samples = share_samples,
    .forward_c128 = share_forward,
};
/* Rows of fewer neighbours than half a vector has are compared by separate operations. */
static eg_tensor *extreme_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const int inner = ((const extreme *)y->attr)->inner;
    eg_tensor *x = y->in[i];
    eg_strip s;
    eg__strip(&s, x, inner);
    if (shares_by_rows(x, y->rank, &s) || y->dim[y->rank - 1] >= EG_LANES / 2)
        return eg_apply(&share_op, &inner, sizeof inner, 3, (eg_tensor *[]){ x, y, g });
    eg_tensor *hit = extreme_hits(x, y, inner);
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
    if (!eg__focus(&f, op->name, spec, x) || !eg__has_elements(&f)) return eg__poison_of(x);
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
    if (!eg_ok(bools)) return eg_fail_in(x->cx, "%s", op->name);
    return eg__focus_outer(&f, eg_apply(op, &a, sizeof a, 1, &bools));
}
eg_tensor *eg_any(const char *spec, eg_tensor *x) { return any_or_all(&any_op, spec, x, false); }
eg_tensor *eg_all(const char *spec, eg_tensor *x) { return any_or_all(&all_op, spec, x, true); }

const eg_op *const eg__extreme_ops[] = { &max_op, &min_op, &argmax_op, &argmin_op,
                                         &any_op, &all_op, &share_op,  NULL };
