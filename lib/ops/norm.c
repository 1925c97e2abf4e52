/* norm.c: layer norm and RMS norm over the bracketed axes, including gain and bias, and their
 * gradient, each in one pass.
 *
 * x̂ = (x − mean) r with r = 1/√(var + eps). The rule of x̂ is its slope, the rule of the slope
 * needs r, and the rule of r needs x̂: all three are operations, and every derivative consists
 * of them; dx, dgain and dbias together are a fourth operation. RMS norm is the same without the
 * mean. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

/* The attribute of all four operations. Operands: x (then g), then gain and bias if there are
 * any. */
typedef struct norm {
    int inner;       /* how many of the last axes are normalised together */
    bool center;     /* the mean is subtracted (layer norm) */
    bool gain, bias; /* there is such an operand */
    double eps;      /* added to the variance */
} norm;
/* What a recorded norm keeps for its gradient: dgain and dbias, which are computed with dx, and
 * mean and r of each row, so that the gradient does not compute them again. */
typedef struct norm_saved {
    eg_memo memo;
    int64_t rows; /* of moments; 0 if none were kept */
    double moments[];
} norm_saved;
/* Rows below this number of bytes keep no moments, which would take more than 1/16 of their
 * memory. */
enum { KEEPS_FROM = 256 };
static const norm sampled = { 1, true, false, false, 1e-5 },
                  sampled_rms = { 1, false, false, false, 1e-5 };
static eg_tensor *normalised(const norm *, eg_tensor *x, eg_tensor *gain, eg_tensor *bias);
static eg_tensor *deviation(const norm *, eg_tensor *x);
static eg_tensor *norm_slope(const norm *, eg_tensor *x, eg_tensor *g, eg_tensor *gain);
static eg_tensor *gain_of(const eg_tensor *y, int at)
{
    return ((const norm *)y->attr)->gain ? y->in[at] : NULL;
}

static bool same_shape(eg_tensor *y)
{
    return eg__shape_like(y, (eg_dtype)y->in[0]->dtype, y->in[0]);
}
/* True if the rows of y and its operands, `count` tensors together, come from memory. */
static bool beyond_caches(int count, const eg_tensor *y)
{
    return count * eg__count(y->rank, y->dim) * eg__width[y->dtype] > EG_STREAM_BYTES;
}
/* Returns r and sets *mean for a row in c128; r is 0 if all elements are equal. */
static double complex moments_c128(const eg_row_facts *b, const double complex *x,
                                   double complex *mean)
{
    double complex squares = 0;
    *mean = 0;
    for (int64_t k = 0; b->center && k < b->n; k++) *mean += x[k] / (double)b->n;
    for (int64_t k = 0; k < b->n; k++) squares += (x[k] - *mean) * (x[k] - *mean);
    const double complex variance = squares / (double)b->n + b->c;
    return variance == 0 ? 0 : 1 / csqrt(variance);
}
/* Rows of several copies: gain and bias are operands too, with these numbers; 0 if there is
 * none. */
typedef struct norm_copies {
    eg_inner *run;
    eg_row_facts b;
    int gain, bias;
} norm_copies;
static void norm_copies_rows(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const norm_copies *c = user;
    eg_row_facts b = c->b;
    const bool same = (!c->gain || !step[c->gain]) && (!c->bias || !step[c->bias]);
    const int64_t m = same ? rows : 1; /* rows of one copy */
    for (int64_t r = 0; r < rows; r += m) {
        char *q[EG_ROW_OPERANDS];
        const int operands = c->gain ? c->gain : c->bias;
        for (int k = 0; k < operands; k++) q[k] = p[k] + r * step[k];
        if (c->gain) b.gain = p[c->gain] + r * step[c->gain];
        if (c->bias) b.bias = p[c->bias] + r * step[c->bias];
        c->run(m, q, step, &b);
    }
}
/* Returns w, the gain or the bias of each copy, as an operand with the rows of y: all rows of a
 * copy are the same. */
static eg_tensor norm_spread(const eg_tensor *y, const eg_tensor *w, int outer, int64_t *dim)
{
    eg_tensor all = *w;
    all.rank = (uint8_t)(outer + w->rank - 1);
    all.dim = dim;
    all.stride = dim + all.rank;
    for (int r = 0; r < all.rank; r++) {
        dim[r] = r < outer ? y->dim[r] : w->dim[r - outer + 1];
        all.stride[r] = r == 0 ? w->stride[0] : r < outer ? 0 : w->stride[r - outer + 1];
    }
    return all;
}
/* Returns `moments`, two numbers for each row of y, as an operand with the rows of y. */
static eg_tensor norm_moments(const eg_tensor *y, int outer, double *moments, int64_t *dim)
{
    eg_tensor all = *y;
    all.rank = (uint8_t)(outer + 1);
    all.dtype = EG_F64;
    all.dim = dim;
    all.stride = dim + all.rank;
    for (int r = 0; r < outer; r++) dim[r] = y->dim[r];
    dim[outer] = 2;
    eg__row_major(all.rank, all.dim, all.stride);
    all.data = (char *)moments;
    return all;
}
/* Calls `run` for every row of y, x and, if there are three operands, g; rows without elements give
 * 0. gain, bias: number of that operand of y; 0 if there is none. moments: two numbers for each row
 * of y, which has no copies; or NULL. */
static bool each_row(eg_tensor *y, int operands, int gain, int bias, double *moments, eg_inner *run,
                     eg_inner *run_c128)
{
    const norm *a = y->attr;
    eg_copies_axis copies;
    eg_tensor *const all = eg__copies_axis(&copies, y), spread[2], kept;
    const eg_tensor *x[EG_ROW_OPERANDS] = { all, all->in[0], operands == 3 ? all->in[1] : NULL };
    const int outer = all->in[0]->rank - a->inner;
    int64_t dims[2][2 * EG_RANK_MAX];
    norm_copies c = { .run = y->dtype == EG_C128 ? run_c128 : run,
                      .b = { .n = eg__row_length(y->in[0], a->inner),
                             .center = a->center,
                             .c = a->eps,
                             .gain = gain ? y->in[gain]->data : NULL,
                             .bias = bias ? y->in[bias]->data : NULL } };
    c.b.from_memory = beyond_caches(operands, all);
    if (!c.b.n) {
        eg__fill(all, 0);
        return true;
    }
    const bool many = all != y && (gain || bias);
    if (moments) {
        kept = norm_moments(y, outer, moments, dims[0]);
        x[c.b.moments = operands++] = &kept;
    }
    if (many && gain) spread[0] = norm_spread(all, all->in[gain], outer, dims[0]);
    if (many && bias) spread[1] = norm_spread(all, all->in[bias], outer, dims[1]);
    if (many && gain) x[c.gain = operands++] = &spread[0];
    if (many && bias) x[c.bias = operands++] = &spread[1];
    return eg__batches(all, outer, operands, x, many ? norm_copies_rows : c.run,
                       many ? (const void *)&c : &c.b, 4 * c.b.n);
}

/* -- rstd: r = 1/√(var + eps),  dx = −g r² x̂ / n --------------------------------------------- */
static bool rstd_shape(eg_tensor *y)
{
    return eg__shape(y, (eg_dtype)y->in[0]->dtype, y->in[0]->rank - ((const norm *)y->attr)->inner,
                     y->in[0]->dim);
}
static void rstd_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    double complex mean;
    for (int64_t r = 0; r < rows; r++)
        *EG_ROW(double complex, 0, r) = moments_c128(user, EG_ROW(double complex, 1, r), &mean);
}
static bool rstd_forward(eg_tensor *y)
{
    return each_row(y, 2, 0, 0, NULL, eg__arithmetic(y->dtype)->rstd, rstd_c128);
}
static eg_tensor *rstd_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const norm *a = y->attr;
    eg_tensor *x = y->in[i],
              *c = eg_scale(eg_mul(g, eg_square(y)), -1 / (double)eg__row_length(x, a->inner));
    return eg_mul(normalised(a, x, NULL, NULL), eg__widen(c, a->inner));
}
static eg_tensor *rstd_mean(eg_tensor *const *x) { return deviation(&sampled, x[0]); }
static eg_tensor *rstd_rms(eg_tensor *const *x) { return deviation(&sampled_rms, x[0]); }
static const eg_sample rstd_samples[] = { { rstd_mean, "3x4", 0, 0 },
                                          { rstd_rms, "3x4", 0, 0 },
                                          { 0 } };
static const eg_op rstd_op = {
    .name = "rstd",
    .equation = "r = 1/sqrt(var x + eps)",
    .gradient = "dx = -g r^2 xhat / n",
    .arity = 1,
    .shape = rstd_shape,
    .forward = rstd_forward,
    .rule = rstd_rule,
    .uses = EG_USES_ALL,
    .samples = rstd_samples,
    .forward_c128 = rstd_forward,
};
static eg_tensor *deviation(const norm *a, eg_tensor *x)
{
    return eg_apply(&rstd_op, a, sizeof *a, 1, &x);
}

/* -- the slope: d = r (h − mean h − x̂ mean(h x̂)), h = g gain: symmetric in h;  dx = −(r/n)(x̂ Σ u
 * d + d Σ u x̂ + slope(u) Σ h x̂) */
static void slope_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const eg_row_facts *b = user;
    const double complex *gain = b->gain;
    for (int64_t row = 0; row < rows; row++) {
        double complex *d = EG_ROW(double complex, 0, row), *x = EG_ROW(double complex, 1, row),
                       *g = EG_ROW(double complex, 2, row);
        double complex mean, r = moments_c128(b, x, &mean), total = 0, along = 0;
        for (int64_t k = 0; k < b->n; k++) {
            d[k] = gain ? g[k] * gain[k] : g[k];
            total += b->center ? d[k] / (double)b->n : 0;
            along += d[k] * (x[k] - mean) * r / (double)b->n;
        }
        for (int64_t k = 0; k < b->n; k++) d[k] = r * (d[k] - total - (x[k] - mean) * r * along);
    }
}
static bool norm_slope_forward(eg_tensor *y)
{
    return each_row(y, 3, gain_of(y, 2) ? 2 : 0, 0, NULL, eg__arithmetic(y->dtype)->norm_slope,
                    slope_c128);
}
static eg_tensor *norm_slope_rule(eg_tensor *y, eg_tensor *u, int i)
{
    const norm *a = y->attr;
    eg_tensor *x = y->in[0], *g = y->in[1], *gain = gain_of(y, 2), *du = norm_slope(a, x, u, NULL);
    if (i == 1) return gain ? eg_mul(du, gain) : du;
    if (i == 2) return eg__dot_first(du, g, a->inner);
    eg_tensor *n = normalised(a, x, NULL, NULL), *h = gain ? eg_mul(g, gain) : g;
    eg_tensor *sum = eg_mul(n, eg__widen(eg__dot_last(u, y, a->inner), a->inner));
    sum = eg_add(sum, eg_mul(y, eg__widen(eg__dot_last(u, n, a->inner), a->inner)));
    sum = eg_add(sum, eg_mul(du, eg__widen(eg__dot_last(h, n, a->inner), a->inner)));
    return eg_mul(
        sum,
        eg__widen(eg_scale(deviation(a, x), -1 / (double)eg__row_length(x, a->inner)), a->inner));
}
static eg_tensor *slope_mean(eg_tensor *const *x) { return norm_slope(&sampled, x[0], x[1], x[2]); }
static eg_tensor *slope_rms(eg_tensor *const *x)
{
    return norm_slope(&sampled_rms, x[0], x[1], NULL);
}
static const eg_sample slope_samples[] = { { slope_mean, "3x4, 3x4, 4", 0, 0 },
                                           { slope_rms, "3x4, 3x4", 0, 0 },
                                           { 0 } };
static const eg_op slope_op = {
    .name = "normalise_slope",
    .equation = "d = r (h - mean h - xhat mean(h xhat)), h = g gain",
    .gradient = "dg = gain slope(u), dx = -(r/n)(xhat sum u d + d sum u xhat + slope(u) sum h "
                "xhat), dgain = sum g slope(u)",
    .arity = -1,
    .shape = same_shape,
    .forward = norm_slope_forward,
    .rule = norm_slope_rule,
    .uses = EG_USES_ALL,
    .samples = slope_samples,
    .forward_c128 = norm_slope_forward,
};
static eg_tensor *norm_slope(const norm *a, eg_tensor *x, eg_tensor *g, eg_tensor *gain)
{
    norm with = *a;
    with.gain = gain;
    with.bias = false;
    return eg_apply(&slope_op, &with, sizeof with, gain ? 3 : 2,
                    (eg_tensor *[]){ x, g, gain ? eg__contiguous_rows(gain, a->inner) : NULL });
}

/* -- dx, dgain and dbias in one pass: the rows of slope(g), then Σ g x̂ if there is a gain and Σ g
 * if there is a bias. Each block of rows is summed separately, and the blocks are added in pairs,
 * so the number of threads changes no bit. */
enum { BLOCK = 64, GRAIN = 1 << 18 };
typedef struct gradient_job {
    eg_inner *run;
    eg_row_facts b;
    int64_t rows, bytes;
    char *dx, *x, *g, *sums;
    char *moments; /* of each row, if b.moments */
} gradient_job;
enum { MOMENTS = 2 * sizeof(double) }; /* bytes of a row's moments */
static void gradient_block(void *user, int64_t block, int thread)
{
    const gradient_job *j = user;
    const int64_t from = block * BLOCK, rows = j->rows - from < BLOCK ? j->rows - from : BLOCK,
                  at = from * j->bytes;
    eg_row_facts b = j->b;
    (void)thread;
    b.sums = memset(j->sums + 2 * block * j->bytes, 0, (size_t)(2 * j->bytes));
    char *p[] = { j->dx + at, j->x + at, j->g + at,
                  b.moments ? j->moments + from * MOMENTS : NULL };
    const int64_t step[] = { j->bytes, j->bytes, j->bytes, MOMENTS };
    if (eg__rows_ahead_gains(j->rows, j->bytes, 2))
        eg__rows_ahead(
            rows, p, step,
            &(eg_rows_ahead_args){
                j->run, &b, b.moments ? 4 : 3, { j->bytes, j->bytes, j->bytes, MOMENTS } });
    else
        j->run(rows, p, step, &b);
}
static bool norm_gradient_shape(eg_tensor *d)
{
    const norm *a = d->attr;
    const int64_t n = eg__row_length(d->in[0], a->inner),
                  outer = eg__count(d->in[0]->rank - a->inner, d->in[0]->dim);
    return eg__shape(d, (eg_dtype)d->in[0]->dtype, 2, (int64_t[]){ outer + a->gain + a->bias, n });
}
/* Writes dx and, after its rows, dgain and dbias. Each block of rows sums the latter separately;
 * these sums are added along a tree, whose form depends on sizes only. */
static bool norm_gradient_forward(eg_tensor *d)
{
    const norm *a = d->attr;
    norm_saved *s = d->saved;
    const eg_arithmetic *m = eg__arithmetic(d->dtype);
    const int64_t n = d->dim[1], rows = d->dim[0] - a->gain - a->bias,
                  bytes = n * eg__width[d->dtype], blocks = (rows + BLOCK - 1) / BLOCK;
    gradient_job j = { .run = m->norm_slope,
                       .b = { .n = n,
                              .from_memory = beyond_caches(3, d),
                              .center = a->center,
                              .moments = s && s->rows ? 3 : 0,
                              .c = a->eps,
                              .gain = a->gain ? d->in[2]->data : NULL },
                       .rows = rows,
                       .bytes = bytes,
                       .dx = d->data,
                       .x = d->in[0]->data,
                       .g = d->in[1]->data,
                       .moments = s ? (char *)s->moments : NULL };
    if (!rows || !n) {
        eg__fill(d, 0);
        return true;
    }
    if (!(j.sums = eg__scratch(d->cx, EG_SCRATCH_PARTS, (size_t)(2 * blocks * bytes))))
        return false;
    eg__parallel(d->cx, eg__team(d->cx, 8 * rows * n, GRAIN), blocks, gradient_block, &j);
    for (int64_t step = 1; step < blocks; step *= 2)
        for (int64_t k = 0; k + step < blocks; k += 2 * step)
            m->add(2 * n, j.sums + 2 * k * bytes, j.sums + 2 * (k + step) * bytes);
    if (a->gain) memcpy(d->data + rows * bytes, j.sums, (size_t)bytes);
    if (a->bias) memcpy(d->data + (rows + a->gain) * bytes, j.sums + bytes, (size_t)bytes);
    return true;
}
/* The complex form of norm_gradient_forward: dgain = Σ g (x − mean) r, dbias = Σ g, where r =
 * 1/√(variance of the row + eps). */
static bool norm_gradient_c128(eg_tensor *d)
{
    const norm *a = d->attr;
    const int64_t n = d->dim[1], rows = d->dim[0] - a->gain - a->bias, bytes = n * 16;
    const eg_row_facts b = {
        .n = n, .center = a->center, .c = a->eps, .gain = a->gain ? d->in[2]->data : NULL
    };
    double complex *along = (double complex *)(void *)d->data + rows * n,
                   *total = along + a->gain * n;
    eg__fill(d, 0);
    if (n)
        slope_c128(rows, (char *[]){ d->data, d->in[0]->data, d->in[1]->data },
                   (int64_t[]){ bytes, bytes, bytes }, &b);
    for (int64_t row = 0; row < rows; row++) {
        const double complex *x = (double complex *)(void *)d->in[0]->data + row * n;
        const double complex *g = (double complex *)(void *)d->in[1]->data + row * n;
        double complex mean, r = moments_c128(&b, x, &mean);
        for (int64_t k = 0; a->gain && k < n; k++) along[k] += g[k] * (x[k] - mean) * r;
        for (int64_t k = 0; a->bias && k < n; k++) total[k] += g[k];
    }
    return true;
}
/* Returns part 0 (x), 1 (gain) or 2 (bias) of a tensor with the shape of d; NULL if there is no
 * such part. */
static eg_tensor *norm_part_of(const eg_tensor *d, eg_tensor *x, int part)
{
    const norm *a = d->attr;
    const int64_t rows = d->dim[0] - a->gain - a->bias, from = part == 0   ? 0
                                                               : part == 1 ? rows
                                                                           : rows + a->gain;
    const int outer = part ? d->in[0]->rank - a->inner : 0;
    if ((part == 1 && !a->gain) || (part == 2 && !a->bias)) return NULL;
    return eg_reshape_n(eg_slice_axis(x, 0, from, part ? from + 1 : rows, 1),
                        d->in[0]->rank - outer, d->in[0]->dim + outer);
}
/* Computes the derivative of slope(g) and of Σ g x̂: by x, slope(g u); by g, x̂ u. */
static eg_tensor *norm_gradient_rule(eg_tensor *d, eg_tensor *u, int i)
{
    const norm *a = d->attr;
    eg_tensor *x = d->in[0], *g = d->in[1], *along = norm_part_of(d, u, 1),
              *total = norm_part_of(d, u, 2);
    eg_tensor *slope = norm_slope(a, x, g, gain_of(d, 2));
    if (!eg_ok(slope)) return slope; /* poison has no operands that its rule could read */
    eg_tensor *s = norm_slope_rule(slope, norm_part_of(d, u, 0), i);
    if (i == 0 && along) s = eg_add(s, norm_slope(a, x, eg_mul(g, along), NULL));
    if (i == 1 && along) s = eg_add(s, eg_mul(normalised(a, x, NULL, NULL), along));
    return i == 1 && total ? eg_add(s, total) : s;
}
static eg_tensor *norm_gradient(const norm *a, eg_tensor *x, eg_tensor *g, eg_tensor *gain,
                                norm_saved *saved);
static eg_tensor *gradient_both(eg_tensor *const *x)
{
    return norm_gradient(&(norm){ 1, true, true, true, 1e-5 }, x[0], x[1], x[2], NULL);
}
static eg_tensor *gradient_rms(eg_tensor *const *x)
{
    return norm_gradient(&(norm){ 1, false, true, false, 1e-5 }, x[0], x[1], x[2], NULL);
}
static eg_tensor *gradient_bias(eg_tensor *const *x)
{
    return norm_gradient(&(norm){ 2, true, false, true, 1e-5 }, x[0], x[1], NULL, NULL);
}
static const eg_sample gradient_samples[] = {
    { gradient_both, "3x4, 3x4, 4", 0, 0 },
    { gradient_rms, "2x3x4, 2x3x4, 4", 0, 0 },
    { gradient_bias, "2x3x2, 2x3x2", 0, 0 },
    { 0 },
};
static const eg_op gradient_op = {
    .name = "normalise_gradient",
    .equation = "(dx, dgain, dbias) = (normalise_slope(g), sum g xhat, sum g)",
    .gradient = "of normalise_slope, and of u sum g xhat: dx = slope(g u), dg = xhat u",
    .arity = -1,
    .shape = norm_gradient_shape,
    .forward = norm_gradient_forward,
    .rule = norm_gradient_rule,
    .uses = EG_USES_OPERANDS,
    .samples = gradient_samples,
    .forward_c128 = norm_gradient_c128,
};
/* saved: what the norm of x kept; NULL if there is none. */
static eg_tensor *norm_gradient(const norm *a, eg_tensor *x, eg_tensor *g, eg_tensor *gain,
                                norm_saved *saved)
{
    eg_tensor *in[] = { eg_contiguous(x), eg_contiguous(g), gain ? eg_contiguous(gain) : NULL };
    const int count = gain ? 3 : 2;
    eg_ctx *cx = eg__here(x->cx);
    if (!eg__check_all(cx, gradient_op.name, count, in)) return eg__poison(cx);
    return eg__apply(cx, &gradient_op, a, sizeof *a, saved, count, in);
}

/* -- normalise: y = x̂ gain + bias,  dx = slope(g), dgain = Σ g x̂, dbias = Σ g over the other
 * axes */
static void normalise_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const eg_row_facts *b = user;
    const double complex *gain = b->gain, *bias = b->bias;
    for (int64_t row = 0; row < rows; row++) {
        double complex *y = EG_ROW(double complex, 0, row), *x = EG_ROW(double complex, 1, row),
                       mean, r = moments_c128(b, x, &mean);
        for (int64_t k = 0; k < b->n; k++)
            y[k] = (x[k] - mean) * r * (gain ? gain[k] : 1) + (bias ? bias[k] : 0);
    }
}
/* Returns the number of rows of which y, a recorded norm, keeps the moments. They are kept in the
 * order in which the gradient reads x. Copies keep none: y is then a header of one copy, whose
 * memory would be that of all. */
static int64_t rows_kept(const eg_tensor *y)
{
    const norm *a = y->attr;
    const eg_tensor *x = y->in[0];
    eg_strip all;
    eg__strip(&all, x, x->rank);
    if (y->dtype == EG_C128 || y->cx->copy.of || !eg__strip_contiguous(&all) ||
        eg__row_length(x, a->inner) * eg__width[x->dtype] < KEEPS_FROM)
        return 0;
    return eg__count(x->rank - a->inner, x->dim);
}
static bool normalise_forward(eg_tensor *y)
{
    const norm *a = y->attr;
    norm_saved *s = NULL;
    if (eg__recording(y->cx) && (a->gain || a->bias)) {
        const int64_t rows = rows_kept(y);
        s = eg__node_save(y, sizeof *s + 2 * (size_t)rows * sizeof *s->moments);
        if (!s) return false;
        s->rows = rows;
    }
    return each_row(y, 2, a->gain, a->bias ? 1 + a->gain : 0, s && s->rows ? s->moments : NULL,
                    eg__arithmetic(y->dtype)->norm, normalise_c128);
}
static void normalise_cost(const eg_tensor *y, eg_op_cost *cost)
{
    const norm_saved *s = y->saved;
    if (s) cost->bytes += (double)(s->rows * MOMENTS);
}
/* A backward pass asks for dx first. dgain and dbias are computed in the same pass and kept in a
 * memo. */
static eg_tensor *normalise_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const norm *a = y->attr;
    norm_saved *s = y->saved;
    eg_memo *memo = s ? &s->memo : NULL;
    if (memo && eg__remembered(memo, g)) return memo->d[i];
    if (i == 0 && memo) {
        eg_tensor *d = norm_gradient(a, y->in[0], g, gain_of(y, 1), s);
        if (!eg_ok(d)) return d;
        memo->d[0] = norm_part_of(d, d, 0);
        if (a->gain) memo->d[1] = norm_part_of(d, d, 1);
        if (a->bias) memo->d[1 + a->gain] = norm_part_of(d, d, 2);
        eg__remember(memo, g);
        return memo->d[0];
    }
    if (i == 0) return norm_slope(a, y->in[0], g, gain_of(y, 1));
    return eg__dot_first(g, a->gain && i == 1 ? normalised(a, y->in[0], NULL, NULL) : NULL,
                         a->inner);
}
/* Returns slope(dx) gain + x̂ dgain + dbias. */
static eg_tensor *normalise_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const norm *a = y->attr;
    eg_tensor *gain = gain_of(y, 1),
              *t = dx[0] ? norm_slope(a, y->in[0], dx[0], NULL) : eg_zeros_like(y);
    if (gain && dx[0]) t = eg_mul(t, gain);
    if (gain && dx[1]) t = eg_add(t, eg_mul(normalised(a, y->in[0], NULL, NULL), dx[1]));
    return a->bias && dx[1 + a->gain] ? eg_add(t, dx[1 + a->gain]) : t;
}
static eg_tensor *layernorm_rows(eg_tensor *const *x)
{
    return eg_layernorm("i [j]", x[0], .gain = x[1], .bias = x[2]);
}
static eg_tensor *layernorm_bias(eg_tensor *const *x)
{
    return eg_layernorm("i [j]", x[0], .bias = x[1]);
}
static eg_tensor *layernorm_columns(eg_tensor *const *x)
{
    return eg_layernorm("[i] j [k]", x[0], .gain = x[1]);
}
static eg_tensor *rmsnorm_rows(eg_tensor *const *x)
{
    return eg_rmsnorm("i [j]", x[0], .gain = x[1]);
}
static const eg_sample normalise_samples[] = {
    { layernorm_rows, "3x4, 4, 4", 0, 0 },
    { layernorm_bias, "3x4, 4", 0, 0 },
    { layernorm_columns, "2x3x4, 2x4", 0, 0 },
    { rmsnorm_rows, "3x4, 4", 0, 0 },
    { 0 },
};
static const eg_op normalise_op = {
    .name = "normalise",
    .equation = "y = (x - mean) r gain + bias",
    .gradient = "dx = normalise_slope(g), dgain = sum g xhat, dbias = sum g",
    .arity = -1,
    .shape = same_shape,
    .forward = normalise_forward,
    .rule = normalise_rule,
    .uses = EG_USES_OPERANDS,
    .samples = normalise_samples,
    .jvp = normalise_jvp,
    .forward_c128 = normalise_forward,
    .cost = normalise_cost,
};
static eg_tensor *normalised(const norm *a, eg_tensor *x, eg_tensor *gain, eg_tensor *bias)
{
    norm with = *a;
    eg_tensor *operand[3] = { x };
    int n = 1;
    with.gain = gain;
    with.bias = bias;
    if (gain) operand[n++] = eg__contiguous_rows(gain, a->inner);
    if (bias) operand[n++] = eg__contiguous_rows(bias, a->inner);
    return eg_apply(&normalise_op, &with, sizeof with, n, operand);
}
const eg_op *const eg__norm_ops[] = { &rstd_op, &slope_op, &gradient_op, &normalise_op, NULL };

/* -- layer norm: y = x̂ gain + bias; RMS norm: y = x̂ gain ------------------------------------ */
/* Returns gain or bias, which must have the bracketed shape; poison after an error. */
static eg_tensor *fitted(const eg_focus *f, eg_tensor *w, const char *name)
{
    int64_t dim[EG_RANK_MAX];
    const int rank = eg__focus_dims(f, true, dim);
    if (w->dtype != f->x->dtype)
        return eg_fail_as(w->cx, EG_ERROR_DTYPE,
                          "%s: %s is %s, operand 1 is %s; eg_cast one of them", f->who, name,
                          eg_type_name(w->dtype), eg_type_name(f->x->dtype));
    if (w->rank == rank && (rank == 0 || !memcmp(w->dim, dim, (size_t)rank * sizeof *dim)))
        return rank == f->inner ? w : eg_reshape_n(w, f->inner, f->x->dim + f->outer);
    char have[256], want[256];
    return eg_fail_as(w->cx, EG_ERROR_SHAPE, "%s: %s is %s but the bracketed axes are %s", f->who,
                      name, eg__dims_text(w, have, sizeof have),
                      eg__sizes_text(rank, dim, want, sizeof want));
}
/* Checks the arguments of eg_layernorm (center) or eg_rmsnorm, and applies the operation. */
static eg_tensor *norm_with(const char *who, const eg_norm_args *given, bool center)
{
    eg_norm_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_focus f;
    if (!eg__focus(&f, who, o.spec, o.x) || !eg__floats(who, o.x, 1)) return eg__poison_of(o.x);
    eg_ctx *cx = eg__here(o.x->cx);
    if (f.bound && f.bound->arrow)
        return eg__refuse(f.bound, f.bound->terms, -1,
                          "the result has the operand's axes; it takes no output");
    const norm a = { .inner = f.inner, .center = center, .eps = eg_option(o.eps, 1e-5) };
    if (!(a.eps >= 0 && a.eps < INFINITY))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: eps is %g; it must be finite and not negative",
                          who, a.eps);
    if (!center && o.bias) return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: takes no bias", who);
    eg_tensor *gain =
        o.gain && eg__check_all(cx, who, 1, &o.gain) ? fitted(&f, o.gain, "gain") : NULL;
    eg_tensor *bias =
        o.bias && eg__check_all(cx, who, 1, &o.bias) ? fitted(&f, o.bias, "bias") : NULL;
    return eg__failed(cx) ? eg__poison(cx) : eg__focus_same(&f, normalised(&a, f.x, gain, bias));
}
eg_tensor *eg_layernorm_with(const eg_norm_args *o) { return norm_with("layernorm", o, true); }
eg_tensor *eg_rmsnorm_with(const eg_norm_args *o) { return norm_with("rmsnorm", o, false); }
