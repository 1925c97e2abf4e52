/* reduce.c: reductions over the bracketed axes that are sums. The operations get these as the last
 * axes (ops.h); the attribute is their number. Products are in prod.c, extremes in extremes.c,
 * norms in pnorm.c. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

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
/* Sums of bytes and bools are i64, and do not depend on the order. Up to BYTES_32 of them, which
 * i32 can hold, are added in i32. */
enum { BYTES_32 = 1 << 14 };
/* Returns byte k of x as a number; dtype, a constant: EG_I8, EG_U8 or EG_BOOL. */
EG_INLINE int32_t byte_at(const int dtype, const char *x, int64_t k)
{
    return dtype == EG_I8 ? ((const int8_t *)x)[k] : ((const uint8_t *)x)[k];
}
EG_INLINE int64_t sum_of_bytes(const int dtype, int64_t n, const char *x)
{
    int64_t total = 0;
    for (int64_t k = 0, m; k < n; k += m) {
        int32_t part = 0;
        m = eg__min64(n - k, BYTES_32);
        for (int64_t i = 0; i < m; i++) part += byte_at(dtype, x + k, i);
        total += part;
    }
    return total;
}
EG_CLONES static int64_t sum_of_i8(int64_t n, const char *x) { return sum_of_bytes(EG_I8, n, x); }
EG_CLONES static int64_t sum_of_u8(int64_t n, const char *x) { return sum_of_bytes(EG_U8, n, x); }
/* Adds `columns` columns of n bytes, `step` apart, to total. */
EG_INLINE void add_bytes(const int dtype, int64_t columns, int64_t step, int64_t n, const char *x,
                         int64_t *total)
{
    int32_t part[EG_CHUNK] = { 0 };
    for (int64_t c = 0; c < columns; c++)
        for (int64_t k = 0; k < n; k++) part[k] += byte_at(dtype, x + c * step, k);
    for (int64_t k = 0; k < n; k++) total[k] += part[k];
}
EG_CLONES static void add_i8(int64_t columns, int64_t step, int64_t n, const char *x, int64_t *to)
{
    add_bytes(EG_I8, columns, step, n, x, to);
}
EG_CLONES static void add_u8(int64_t columns, int64_t step, int64_t n, const char *x, int64_t *to)
{
    add_bytes(EG_U8, columns, step, n, x, to);
}
typedef struct byte_job {
    eg_strip x;
    bool is_signed;
} byte_job;
/* Sorts the axes of a row so that the last one has the smallest step, and merges them: sums do not
 * depend on the order of the elements. */
static void byte_order(eg_strip *x)
{
    int n = 0;
    for (int i = 1; i < x->rank; i++)
        for (int j = i; j && eg__abs64(x->axis[j - 1].step) < eg__abs64(x->axis[j].step); j--) {
            const eg_strip_axis other = x->axis[j];
            x->axis[j] = x->axis[j - 1];
            x->axis[j - 1] = other;
        }
    for (int i = 1; i < x->rank; i++)
        if (x->axis[n].step == x->axis[i].step * x->axis[i].size)
            x->axis[n] = (eg_strip_axis){ x->axis[n].size * x->axis[i].size, x->axis[i].step };
        else
            x->axis[++n] = x->axis[i];
    x->rank = n + 1;
}
/* Writes the sum of one row in any layout. */
static void byte_row(const void *user, int64_t row, char *const *p)
{
    const byte_job *j = user;
    char buffer[EG_CHUNK];
    int64_t total = 0;
    (void)row;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = eg__strip_contiguous(&j->x) ? j->x.n : eg__min64(j->x.n - k, EG_CHUNK);
        total +=
            (j->is_signed ? sum_of_i8 : sum_of_u8)(n, eg__strip_read(&j->x, p[1], k, n, buffer));
    }
    *(int64_t *)(void *)p[0] = total;
}
static void byte_rows(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const byte_job *j = user;
    int64_t (*sum)(int64_t n, const char *x) = j->is_signed ? sum_of_i8 : sum_of_u8;
    for (int64_t r = 0; r < rows; r++) *EG_ROW(int64_t, 0, r) = sum(j->x.n, EG_ROW(char, 1, r));
}
/* Writes the sums of rows whose elements are further apart than the rows. */
static void bytes_across(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const byte_job *j = user;
    int64_t total[EG_CHUNK], columns, apart;
    eg_columns c;
    for (int64_t k = 0, m; k < n; k += m) {
        m = eg__min64(n - k, EG_CHUNK);
        memset(total, 0, (size_t)m * sizeof *total);
        eg__columns(&c, &j->x, p[1] + k * step[1], m, step[1]);
        do {
            const char *column = eg__column_run(&c, &columns, &apart);
            (j->is_signed ? add_i8 : add_u8)(columns, apart, m, column, total);
        } while (eg__column_next(&c));
        eg__move(sizeof *total, m, p[0] + k * step[0], step[0], total, sizeof *total);
    }
}
static bool byte_sum_shape(eg_tensor *y) { return eg__shape_outer(y, *(int *)y->attr, EG_I64); }
/* Sums column by column, if rows are closer to each other than their elements, else row by row. */
static bool byte_sum_forward(eg_tensor *y)
{
    const eg_tensor *x = y->in[0], *const both[] = { y, x };
    byte_job j = { .is_signed = x->dtype == EG_I8 };
    eg__strip(&j.x, x, *(const int *)y->attr);
    const bool in_order = eg__strip_contiguous(&j.x);
    byte_order(&j.x);
    const eg_strip_axis *last = &j.x.axis[j.x.rank - 1];
    const bool nearer = y->rank && (y->dim[y->rank - 1] >= EG_LANES || j.x.n <= EG_COLUMNS) &&
                        eg__abs64(x->stride[y->rank - 1]) < eg__abs64(last->step);
    if (!j.x.n)
        eg__fill(y, 0);
    else if (nearer)
        eg__rows_across(y, x, &j.x, bytes_across, &j, j.x.n);
    else if (in_order)
        return eg__batches(y, y->rank, 2, both, byte_rows, &j, j.x.n);
    else
        eg__rows(y->cx, y->rank, 2, both, j.x.n, byte_row, &j);
    return true;
}
static eg_tensor *byte_sum_rows(eg_tensor *const *x) { return eg_sum("i [j]", x[0]); }
static eg_tensor *byte_sum_columns(eg_tensor *const *x) { return eg_sum("[i] j [k]", x[0]); }
static const eg_sample byte_sum_samples[] = { { byte_sum_rows, "3x4:b", 0, 0 },
                                              { byte_sum_columns, "2x3x4:b", 0, 0 },
                                              { 0 } };
static const eg_op byte_sum_op = {
    .name = "sum",
    .equation = "y = sum x",
    .gradient = "dx = 0",
    .arity = 1,
    .shape = byte_sum_shape,
    .forward = byte_sum_forward,
    .rule = eg_zero_rule,
    .uses = EG_USES_NOTHING,
    .samples = byte_sum_samples,
    .forward_c128 = byte_sum_forward,
    .takes = EG_TAKES_ALL,
};
eg_tensor *eg_sum(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "sum", spec, x)) return eg__poison_of(x);
    const bool bytes = f.x->dtype == EG_I8 || f.x->dtype == EG_U8 || f.x->dtype == EG_BOOL;
    return eg__focus_outer(&f, bytes ? eg_apply(&byte_sum_op, &f.inner, sizeof f.inner, 1, &f.x)
                                     : eg__sum_last(f.x, f.inner));
}

static eg_tensor *mean_last(eg_tensor *x, int inner)
{
    if (!eg_ok(x)) return x; /* poison has no axes */
    return eg_scale(eg__sum_last(x, inner), 1 / (double)eg__row_length(x, inner));
}

/* True if the bracketed axes have elements; else records an error: an empty set has no mean and no
 * maximum. */
bool eg__has_elements(const eg_focus *f)
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
    if (!eg__focus(&f, "mean", spec, x) || !eg__floats("mean", x, 1) || !eg__has_elements(&f))
        return eg__poison_of(x);
    return eg__focus_outer(&f, mean_last(f.x, f.inner));
}

/* -- var: y = Σ d² / (n − correction), d = x − mean; std: its root, rounded once, with the gradient
 * of a norm */
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
/* The variance of long rows in one pass over memory. A row is divided into parts, and a part into
 * chunks. Of each chunk the mean and Σ d² are computed in the cache; those of two pieces are joined
 * (Chan, Golub, LeVeque 1979). All differences are to the first element of the row, so that d is 0
 * if all elements are equal. */
enum { VAR_LONG = 256, VAR_PART = 64 * EG_CHUNK };
typedef struct var_attr {
    int inner;
    double left; /* n − correction */
} var_attr;
typedef struct var_part {
    double mean, squares;
} var_part;
typedef struct var_job {
    const eg_arithmetic *m;
    const char *x;
    int64_t n, parts, width;
    var_part *part;
} var_job;
/* Sets *all, of n elements, to that of these and m others, *more. */
static void var_join(double n, var_part *all, double m, const var_part *more)
{
    const double d = more->mean - all->mean, share = m / (n + m);
    all->mean += d * share;
    all->squares += more->squares + d * d * n * share;
}
/* Computes one part of a row. */
static void var_of_part(void *user, int64_t piece, int thread)
{
    const var_job *j = user;
    const int64_t from = piece % j->parts * VAR_PART, end = eg__min64(from + VAR_PART, j->n);
    const char *row = j->x + piece / j->parts * j->n * j->width;
    const double first = j->m->at(row, 0);
    _Alignas(64) char d[EG_CHUNK * 8];
    var_part all = { 0 };
    (void)thread;
    for (int64_t k = from, m; k < end; k += m) {
        m = eg__min64(end - k, EG_CHUNK);
        var_part more;
        j->m->affine(m, row + k * j->width, first, 1, d);
        more.mean = j->m->sum(m, d) / (double)m;
        more.squares = j->m->sumsq(m, d, more.mean);
        var_join((double)(k - from), &all, (double)m, &more);
    }
    j->part[piece] = all;
}
static bool var_shape(eg_tensor *y)
{
    return eg__shape_outer(y, ((const var_attr *)y->attr)->inner, (eg_dtype)y->in[0]->dtype);
}
/* Computes all parts of the rows of x, which is row-major, and joins those of each row in order:
 * the division into parts depends on the length of a row only. */
static bool var_forward(eg_tensor *y)
{
    const var_attr *a = y->attr;
    const eg_tensor *x = y->in[0];
    const int64_t n = eg__row_length(x, a->inner), rows = eg__count(y->rank, y->dim);
    var_job j = { eg__arithmetic(x->dtype), x->data, n, (n + VAR_PART - 1) / VAR_PART,
                  eg__width[x->dtype],      NULL };
    const int64_t pieces = rows * j.parts;
    if (!pieces) return true;
    if (!(j.part = eg__scratch(y->cx, EG_SCRATCH_PARTS, (size_t)pieces * sizeof *j.part)))
        return false;
    eg__parallel(y->cx, eg__team(y->cx, 4 * rows * n, 1 << 18), pieces, var_of_part, &j);
    for (int64_t r = 0; r < rows; r++) {
        var_part all = j.part[r * j.parts];
        for (int64_t k = 1; k < j.parts; k++)
            var_join((double)(k * VAR_PART), &all, (double)eg__min64(VAR_PART, n - k * VAR_PART),
                     &j.part[r * j.parts + k]);
        if (j.width == 8)
            ((double *)(void *)y->data)[r] = all.squares / a->left;
        else
            ((float *)(void *)y->data)[r] = (float)(all.squares / a->left);
    }
    return true;
}
static bool var_forward_c128(eg_tensor *y)
{
    const var_attr *a = y->attr;
    const int64_t n = eg__row_length(y->in[0], a->inner), rows = eg__count(y->rank, y->dim);
    for (int64_t r = 0; r < rows; r++) {
        const double complex *x = (const double complex *)(const void *)y->in[0]->data + r * n;
        double complex mean = 0, squares = 0;
        for (int64_t k = 0; k < n; k++) mean += (x[k] - x[0]) / (double)n;
        for (int64_t k = 0; k < n; k++) squares += (x[k] - x[0] - mean) * (x[k] - x[0] - mean);
        ((double complex *)(void *)y->data)[r] = squares / a->left;
    }
    return true;
}
static eg_tensor *var_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const var_attr *a = y->attr;
    return eg_mul(reduce_centered(y->in[i], a->inner),
                  eg__widen(eg_scale(g, 2 / a->left), a->inner));
}
static eg_tensor *var_rows(eg_tensor *const *x) { return eg_var("i [j]", x[0]); }
static const eg_sample var_samples[] = { { var_rows, "2x260", 0, 0 }, { 0 } };
static const eg_op var_op = {
    .name = "var",
    .equation = "y = sum d^2 / (n - c), d = x - mean x",
    .gradient = "dx = 2 g d / (n - c)",
    .arity = 1,
    .shape = var_shape,
    .forward = var_forward,
    .rule = var_rule,
    .uses = EG_USES_OPERANDS,
    .samples = var_samples,
    .forward_c128 = var_forward_c128,
};
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
    eg_tensor *v = eg__rows_in_memory_order(f.x, f.inner);
    if (!root && n >= VAR_LONG && eg_is_row_major(v))
        return eg__focus_outer(
            &f, eg_apply(&var_op, &(var_attr){ f.inner, left }, sizeof(var_attr), 1, &v));
    eg_tensor *d = reduce_centered(f.x, f.inner);
    eg_tensor *y = root ? eg__pnorm_last(d, f.inner, 2, left)
                        : eg_scale(eg__dot_last(d, d, f.inner), 1 / left);
    return eg__focus_outer(&f, y);
}
eg_tensor *eg_var_with(const eg_var_args *o) { return variance("var", o, false); }
eg_tensor *eg_std_with(const eg_var_args *o) { return variance("std", o, true); }

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
    return eg__shape_outer(y, *(const int *)y->attr, (eg_dtype)y->in[0]->dtype);
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

const eg_op *const eg__reduce_ops[] = { &byte_sum_op, &var_op, &lse_op, NULL };
