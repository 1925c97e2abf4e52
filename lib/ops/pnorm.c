/* pnorm.c: the p-norm of rows. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

/* -- pnorm: y = (Σ |x|^p)^(1/p) = m (Σ |x/m|^p)^(1/p), m = max |x|;  dx = g sign x (|x|/y)^(p−1), 0
 * where y is 0. With p = 2 also y = √(Σ x² / over), dx = g x / (over y), as eg_std needs */
typedef struct pnorm {
    int inner;
    double p;
    double over; /* with p = 2: what the sum of squares is divided by, 1 for a norm */
} pnorm;
typedef struct pnorm_job {
    const eg_arithmetic *m;
    eg_strip x;
    double p, over;
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
/* True if a sum of squares of f64 lost nothing by overflow or underflow. */
static bool squares_are_whole(double sum) { return sum >= 0x1p-900 && sum <= 0x1p1000; }
/* Sets *sum to Σ (c x)² of one row, whose first element is at x. Returns squares_are_whole. */
static bool pnorm_sum_squares(const pnorm_job *j, const char *x, double c, double *sum)
{
    _Alignas(64) char in[EG_CHUNK * 8];
    *sum = 0;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = eg__min64(j->x.n - k, EG_CHUNK);
        *sum += j->m->sumsq_scaled(n, eg__strip_read(&j->x, x, k, n, in), c);
    }
    return squares_are_whole(*sum);
}
/* Writes (Σ |x|^p)^(1/p) of one row. The row is divided by its largest |x| first if powers could
 * overflow or underflow. */
static void pnorm_row(const void *user, int64_t row, char *const *p)
{
    const pnorm_job *j = user;
    (void)row;
    _Alignas(64) char in[EG_CHUNK * 8], scaled[EG_CHUNK * 8];
    double top = 0, total = 0;
    if (j->p == 2 && pnorm_sum_squares(j, p[1], 1, &total)) {
        pnorm_write(j, sqrt(total / j->over), p[0]);
        return;
    }
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = eg__min64(j->x.n - k, EG_CHUNK);
        const double t = j->m->tallest(n, eg__strip_read(&j->x, p[1], k, n, in));
        top = t > top ? t : top;
    }
    /* 1/m is normal */
    const double most = j->x.width == 8 ? 1e307 : 1e37, unit = top > most       ? most
                                                               : top < 1 / most ? 1 / most
                                                                                : top;
    if (j->p == 2) {
        pnorm_sum_squares(j, p[1], 1 / unit, &total);
        pnorm_write(j, unit * sqrt(total / j->over), p[0]);
        return;
    }
    total = 0;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = eg__min64(j->x.n - k, EG_CHUNK);
        j->m->affine(n, eg__strip_read(&j->x, p[1], k, n, in), 0, 1 / unit, scaled);
        total += j->m->sumpow(n, scaled, j->p);
    }
    pnorm_write(j, unit * pow(total, 1 / j->p), p[0]);
}
enum { LANES = 8 };
/* Sets the sums of the squares of `rows` rows, a constant, of at most EG_CHUNK elements of f32,
 * whose squares f64 represents exactly; nothing overflows or underflows. beyond: LANES elements
 * from any element of the rows on are memory of the tensor. */
EG_INLINE void chunk_squares(const int rows, bool beyond, int64_t n, const char *x, int64_t step,
                             double *sum)
{
    double lane[EG_ROWS_ABREAST][LANES] = { { 0 } };
    float last[LANES] = { 0 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int r = 0; r < rows; r++) {
            const float *v = (const float *)(const void *)(x + r * step) + k;
            EG_EVERY_LANE
            for (int l = 0; l < LANES; l++) lane[r][l] += (double)v[l] * (double)v[l];
        }
    for (int r = 0; r < rows; r++) {
        double *v = lane[r];
        if (beyond) {
            const float *from = (const float *)(const void *)(x + r * step) + k;
            EG_EVERY_LANE
            for (int l = 0; l < LANES; l++) {
                const double e = (double)from[l];
                v[l] += l < n - k ? e * e : 0;
            }
        } else if (k < n) {
            memcpy(last, (const float *)(const void *)(x + r * step) + k,
                   (size_t)(n - k) * sizeof *last);
            for (int l = 0; l < LANES; l++) v[l] += (double)last[l] * (double)last[l];
        }
        for (int l = 0; l < 4; l++) v[l] += v[l + 4];
        sum[r] = (v[0] + v[2]) + (v[1] + v[3]);
    }
}
/* Writes the norms of `rows` contiguous rows of f32, p = 2. */
EG_CLONES static void pnorm_rows_2(int64_t rows, char *const *p, const int64_t *step,
                                   const void *user)
{
    const int64_t n = ((const pnorm_job *)user)->x.n;
    const double over = ((const pnorm_job *)user)->over;
    const bool gapless = step[1] == n * (int64_t)sizeof(float) && n % LANES && n < EG_CHUNK;
    for (int64_t r = 0; r < rows; r += EG_ROWS_ABREAST) {
        const int m = (int)eg__min64(EG_ROWS_ABREAST, rows - r);
        double total[EG_ROWS_ABREAST] = { 0 }, sum[EG_ROWS_ABREAST] = { 0 };
        for (int64_t k = 0; k < n; k += EG_CHUNK) {
            const char *x = p[1] + r * step[1] + k * (int64_t)sizeof(float);
            const int64_t size = eg__min64(n - k, EG_CHUNK);
            if (gapless && r + m + LANES <= rows)
                chunk_squares(EG_ROWS_ABREAST, true, size, x, step[1], sum);
            else if (m == EG_ROWS_ABREAST)
                chunk_squares(EG_ROWS_ABREAST, false, size, x, step[1], sum);
            else
                for (int i = 0; i < m; i++)
                    chunk_squares(1, false, size, x + i * step[1], step[1], &sum[i]);
            for (int i = 0; i < EG_ROWS_ABREAST; i++) total[i] += sum[i];
        }
        for (int i = 0; i < EG_ROWS_ABREAST && over != 1; i++) total[i] /= over;
        EG_EVERY_LANE
        for (int i = 0; i < EG_ROWS_ABREAST; i++) total[i] = sqrt(total[i]);
        for (int i = 0; i < m; i++) *EG_ROW(float, 0, r + i) = (float)total[i];
    }
}
/* The same for a row in any layout. */
static void pnorm_row_2(const void *user, int64_t row, char *const *p)
{
    const pnorm_job *j = user;
    (void)row;
    _Alignas(64) float in[EG_CHUNK];
    double total = 0, sum;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = eg__min64(j->x.n - k, EG_CHUNK);
        chunk_squares(1, false, n, eg__strip_read(&j->x, p[1], k, n, in), 0, &sum);
        total += sum;
    }
    *(float *)(void *)p[0] = (float)sqrt(total / j->over);
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
        unit * (j->p == 2 ? csqrt(total / j->over) : eg__c_pow(total, 1 / j->p));
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
/* sum[k] = √(sum[k] / over) / unit[k] */
EG_CLONES static void pnorm_roots(int64_t n, double over, const double *unit, double *sum)
{
    for (int64_t k = 0; k < n && over != 1; k++) sum[k] /= over;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) sum[k] = sqrt(sum[k]) / unit[k];
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
static const double *pnorm_column(eg_columns *c, double *wide)
{
    if (c->x->width == 8) return eg__column(c);
    pnorm_widen(c->rows, eg__column(c), wide);
    return wide;
}
/* Sets sum[i] to Σ |x|, or Σ (x unit)² if p is 2, of m short rows, in f64; x: the first element of
 * each, `step` bytes apart. */
EG_INLINE void pnorm_column_sums(const pnorm_job *j, const char *x, int64_t m, int64_t step,
                                 const double *unit, double *sum)
{
    double wide[EG_CHUNK];
    eg_columns c;
    memset(sum, 0, (size_t)m * sizeof *sum);
    eg__columns(&c, &j->x, x, m, step);
    for (bool more = true; more; more = eg__column_next(&c)) {
        const double *column = pnorm_column(&c, wide);
        if (j->p == 2)
            pnorm_squares(m, column, unit, sum);
        else
            pnorm_sizes(m, column, sum);
    }
}
/* Writes Σ |x| or √Σ x² of n short rows; p[1]: the first element of each. If squares of f64, which
 * alone can overflow or underflow, do so in one of EG_CHUNK rows, those rows of them are divided by
 * their largest |x|. */
static void pnorm_across(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const pnorm_job *j = user;
    double unit[EG_CHUNK], sum[EG_CHUNK];
    eg_columns c;
    for (int64_t i = 0; i < EG_CHUNK; i++) unit[i] = 1;
    for (int64_t k = 0, m; k < n; k += m) {
        const char *from = p[1] + k * step[1];
        bool whole = true;
        m = eg__min64(n - k, EG_CHUNK);
        pnorm_column_sums(j, from, m, step[1], unit, sum);
        for (int64_t i = 0; i < m && j->p == 2 && j->x.width == 8; i++)
            whole &= squares_are_whole(sum[i]);
        if (!whole) {
            double top[EG_CHUNK] = { 0 };
            eg__columns(&c, &j->x, from, m, step[1]);
            for (bool more = true; more; more = eg__column_next(&c))
                pnorm_tallest(m, eg__column(&c), top);
            for (int64_t i = 0; i < m; i++)
                if (!squares_are_whole(sum[i])) unit[i] = 1 / fmin(fmax(top[i], 1e-307), 1e307);
            pnorm_column_sums(j, from, m, step[1], unit, sum);
        }
        if (j->p == 2) pnorm_roots(m, j->over, unit, sum);
        for (int64_t i = 0; i < m; i++) pnorm_write(j, sum[i], p[0] + (k + i) * step[0]);
        for (int64_t i = 0; i < m && !whole; i++) unit[i] = 1;
    }
}
static bool pnorm_shape(eg_tensor *y)
{
    return eg__shape_outer(y, ((const pnorm *)y->attr)->inner, (eg_dtype)y->in[0]->dtype);
}
/* Which of the two ways to compute a row is taken depends on its length and on p only. */
static bool pnorm_forward(eg_tensor *y)
{
    const pnorm *a = y->attr;
    const eg_tensor *const both[] = { y, y->in[0] };
    const bool squares = a->p == 2 && y->dtype == EG_F32;
    pnorm_job j = { .m = eg__arithmetic((eg_dtype)y->dtype),
                    .p = a->p,
                    .over = a->over,
                    .row = y->dtype == EG_C128 ? pnorm_row_c128
                           : a->p == 1         ? pnorm_row_1
                           : squares           ? pnorm_row_2
                                               : pnorm_row };
    eg__strip(&j.x, y->in[0], a->inner);
    if (j.x.n && j.x.n <= EG_COLUMNS && (a->p == 1 || a->p == 2) && y->dtype != EG_C128) {
        eg__rows_across(y, y->in[0], &j.x, pnorm_across, &j, 4 * j.x.n);
        return true;
    }
    if (eg__strip_contiguous(&j.x) || eg__rows_are_neighbours(y->in[0], y->rank, &j.x))
        return eg__batches(y, y->rank, 2, both, squares ? pnorm_rows_2 : pnorm_rows, &j, 4 * j.x.n);
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
    if (a->p == 2) {
        if (a->over != 1) r = eg_scale(r, 1 / a->over);
        return eg_mul(x, eg__widen(eg_mul(g, r), a->inner));
    }
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
/* Returns x with the axes of a row in the order of memory if a row is then contiguous, else x. The
 * last bits of a norm depend on that order, as those of a sum do. */
eg_tensor *eg__rows_in_memory_order(eg_tensor *x, int inner)
{
    const int outer = x->rank - inner;
    int order[EG_RANK_MAX];
    bool moved = false;
    for (int k = 0; k < x->rank; k++) order[k] = k;
    for (int k = outer + 1; k < x->rank; k++)
        for (int r = k; r > outer; r--) {
            const int before = order[r - 1];
            if (x->stride[before] >= x->stride[order[r]]) break;
            order[r - 1] = order[r], order[r] = before, moved = true;
        }
    int64_t next = 1;
    for (int k = x->rank - 1; k >= outer; k--) {
        if (x->dim[order[k]] == 1) continue;
        if (x->stride[order[k]] != next) return x;
        next *= x->dim[order[k]];
    }
    return moved ? eg_permute_n(x, x->rank, order) : x;
}
eg_tensor *eg__pnorm_last(eg_tensor *x, int inner, double p, double over)
{
    if (!eg_ok(x)) return x;
    x = eg__rows_in_memory_order(x, inner);
    return eg_apply(&pnorm_op, &(pnorm){ inner, p, over }, sizeof(pnorm), 1, &x);
}
eg_tensor *eg_pnorm(const char *spec, eg_tensor *x, double p)
{
    eg_focus f;
    if (!eg__focus(&f, "pnorm", spec, x) || !eg__floats("pnorm", x, 1)) return eg__poison_of(x);
    if (!(p > 0))
        return eg_fail_as(x->cx, EG_ERROR_MISUSE,
                          "pnorm: p is %g; it must be above 0, or INFINITY for the largest |x|", p);
    if (p == INFINITY && eg__row_length(f.x, f.inner)) return eg_max(spec, eg_abs(x));
    /* a row without elements has the norm 0 for every p */
    return eg__focus_outer(&f, eg__pnorm_last(f.x, f.inner, p == INFINITY ? 1 : p, 1));
}

const eg_op *const eg__pnorm_ops[] = { &pnorm_op, NULL };
