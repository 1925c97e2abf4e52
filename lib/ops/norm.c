/* norm.c: layer norm and RMS norm over the bracketed axes: a fused row of normalised numbers, gain and bias by public operations.
 *
 * x̂ = (x − mean) r with r = 1/√(var + eps); the rule of x̂ needs r, and the rule of r needs x̂, so that both are rows and each
 * derivative is again made of the two. RMS norm is the same without the mean. */
#include "ops/rows.h"
#include <math.h>
#include <string.h>

typedef struct norm { int inner; bool center; double eps; } norm;
typedef struct norm_job { const eg_arithmetic *m; norm a; eg_strip x, y; } norm_job;

/* Mean and r of one row, in two passes; sums over chunks in double. */
static double statistics(const norm_job *j, const char *p, double *mean, void *buffer)
{
    double total = 0, squares = 0;
    const double count = (double)j->x.n;
    for (int64_t k = 0, n; j->a.center && k < j->x.n; k += n) {
        n = j->x.n - k < EG_CHUNK ? j->x.n - k : EG_CHUNK;
        total += j->m->sum(n, eg__strip_read(&j->x, p, k, n, buffer));
    }
    *mean = total / count;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = j->x.n - k < EG_CHUNK ? j->x.n - k : EG_CHUNK;
        squares += j->m->sumsq(n, eg__strip_read(&j->x, p, k, n, buffer), *mean);
    }
    return 1 / sqrt(squares / count + j->a.eps);
}
/* Both rows of c128. */
static double complex statistics_c128(const norm_job *j, const char *p, double complex *mean)
{
    double complex squares = 0;
    *mean = 0;
    for (int64_t k = 0; j->a.center && k < j->x.n; k++) *mean += *eg__strip_c128(&j->x, p, k) / (double)j->x.n;
    for (int64_t k = 0; k < j->x.n; k++) {
        const double complex d = *eg__strip_c128(&j->x, p, k) - *mean;
        squares += d * d;
    }
    return 1 / csqrt(squares / (double)j->x.n + j->a.eps);
}
static bool norm_run(eg_tensor *y, eg_row_body *body)
{
    norm_job j = { .m = eg__arithmetic((eg_dtype)y->dtype), .a = *(const norm *)y->attr };
    const eg_tensor *x = y->in[0];
    eg__strip(&j.x, x, j.a.inner);
    eg__strip(&j.y, y, y->rank == x->rank ? j.a.inner : 0);
    if (j.x.n) eg__rows(y->cx, x->rank - j.a.inner, 2, (const eg_tensor *[]){ y, x }, 2 * j.x.n, body, &j);
    else eg__fill(y, 0);
    return true;
}
static eg_tensor *normalised(const norm *, eg_tensor *x);
static eg_tensor *deviation(const norm *, eg_tensor *x);
static const norm sampled = { 1, true, 1e-5 }, sampled_rms = { 1, false, 1e-5 };

/* -- rstd: r = 1/√(var + eps),  dx = −g r² x̂ / n ------------------------------------------------------------------------------------------ */
static void rstd_row(const void *user, int64_t row, char *const *p)
{
    const norm_job *j = user;
    _Alignas(64) char in[EG_CHUNK * 8];
    double mean;
    (void)row;
    const double r = statistics(j, p[1], &mean, in);
    if (j->y.width == 8) *(double *)(void *)p[0] = r; else *(float *)(void *)p[0] = (float)r;
}
static void rstd_row_c128(const void *user, int64_t row, char *const *p)
{
    double complex mean;
    (void)row;
    *(double complex *)(void *)p[0] = statistics_c128(user, p[1], &mean);
}
static bool rstd_shape(eg_tensor *y) { return eg__shape(y, (eg_dtype)y->in[0]->dtype, y->in[0]->rank - ((const norm *)y->attr)->inner, y->in[0]->dim); }
static bool rstd_forward(eg_tensor *y) { return norm_run(y, y->dtype == EG_C128 ? rstd_row_c128 : rstd_row); }
static eg_tensor *rstd_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const norm *a = y->attr;
    eg_tensor *x = y->in[i], *c = eg_scale(eg_mul(g, eg_square(y)), -1 / (double)eg__last(x, a->inner));
    return eg_mul(normalised(a, x), eg__widen(c, a->inner));
}
static eg_tensor *rstd_mean(eg_tensor *const *x) { return deviation(&sampled, x[0]); }
static eg_tensor *rstd_rms(eg_tensor *const *x) { return deviation(&sampled_rms, x[0]); }
static const eg_sample rstd_samples[] = { { rstd_mean, "3x4", 0, 0 }, { rstd_rms, "3x4", 0, 0 }, { 0 } };
static const eg_op rstd_op = {
    .name = "rstd", .equation = "r = 1/sqrt(var x + eps)", .gradient = "dx = -g r^2 xhat / n",
    .arity = 1, .shape = rstd_shape, .forward = rstd_forward, .rule = rstd_rule, .uses = EG_USES_ALL, .samples = rstd_samples,
    .forward_c128 = rstd_forward,
};
static eg_tensor *deviation(const norm *a, eg_tensor *x) { return eg_apply(&rstd_op, a, sizeof *a, 1, &x); }

/* -- normalise: x̂ = (x − mean) r,  dx = r (g − mean g − x̂ mean(g x̂)) ------------------------------------------------------------------- */
static void normalise_row(const void *user, int64_t row, char *const *p)
{
    const norm_job *j = user;
    _Alignas(64) char in[EG_CHUNK * 8], out[EG_CHUNK * 8];
    double mean;
    (void)row;
    const double r = statistics(j, p[1], &mean, in);
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = j->x.n - k < EG_CHUNK ? j->x.n - k : EG_CHUNK;
        void *y = eg__strip_room(&j->y, p[0], k, out);
        j->m->affine(n, eg__strip_read(&j->x, p[1], k, n, in), mean, r, y);
        eg__strip_done(&j->y, p[0], k, n, y);
    }
}
static void normalise_row_c128(const void *user, int64_t row, char *const *p)
{
    const norm_job *j = user;
    double complex mean;
    (void)row;
    const double complex r = statistics_c128(j, p[1], &mean);
    for (int64_t k = 0; k < j->x.n; k++) *eg__strip_c128(&j->y, p[0], k) = (*eg__strip_c128(&j->x, p[1], k) - mean) * r;
}
static bool normalise_shape(eg_tensor *y) { return eg__shape_like(y, (eg_dtype)y->in[0]->dtype, y->in[0]); }
static bool normalise_forward(eg_tensor *y) { return norm_run(y, y->dtype == EG_C128 ? normalise_row_c128 : normalise_row); }
static eg_tensor *normalise_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const norm *a = y->attr;
    eg_tensor *x = y->in[i];
    const double each = 1 / (double)eg__last(x, a->inner);
    eg_tensor *along = eg_scale(eg__dot_last(g, y, a->inner), each);
    eg_tensor *d = eg_sub(g, eg_mul(y, eg__widen(along, a->inner)));
    if (a->center) d = eg_sub(d, eg__widen(eg_scale(eg__sum_last(g, a->inner), each), a->inner));
    return eg_mul(d, eg__widen(deviation(a, x), a->inner));
}
static eg_tensor *layernorm_rows(eg_tensor *const *x) { return eg_layernorm("i [j]", x[0], .gain = x[1], .bias = x[2]); }
static eg_tensor *layernorm_columns(eg_tensor *const *x) { return eg_layernorm("[i] j [k]", x[0], .gain = x[1]); }
static eg_tensor *rmsnorm_rows(eg_tensor *const *x) { return eg_rmsnorm("i [j]", x[0], .gain = x[1]); }
static const eg_sample normalise_samples[] = {
    { layernorm_rows, "3x4, 4, 4", 0, 0 }, { layernorm_columns, "2x3x4, 2x4", 0, 0 }, { rmsnorm_rows, "3x4, 4", 0, 0 }, { 0 },
};
static const eg_op normalise_op = {
    .name = "normalise", .equation = "y = (x - mean) r", .gradient = "dx = r (g - mean g - y mean(g y))",
    .arity = 1, .shape = normalise_shape, .forward = normalise_forward, .rule = normalise_rule, .uses = EG_USES_ALL, .samples = normalise_samples,
    .jvp = eg_jvp_symmetric, .forward_c128 = normalise_forward,
};
static eg_tensor *normalised(const norm *a, eg_tensor *x) { return eg_apply(&normalise_op, a, sizeof *a, 1, &x); }
const eg_op *const eg__norm_rows[] = { &rstd_op, &normalise_op, NULL };

/* -- layer norm: y = x̂ gain + bias; RMS norm: y = x̂ gain ---------------------------------------------------------------------------------- */
/* Gain and bias have the bracketed shape: nothing else is stretched to it. NULL after a message. */
static eg_tensor *fitted(const eg_focus *f, eg_tensor *w, const char *name)
{
    int64_t dim[EG_RANK_MAX];
    const int rank = eg__focus_dims(f, true, dim);
    if (w->rank == rank && (rank == 0 || !memcmp(w->dim, dim, (size_t)rank * sizeof *dim)))
        return rank == f->inner ? w : eg_reshape_n(w, f->inner, f->x->dim + f->outer);
    char have[256], want[256];
    const eg_tensor shape = { .rank = (uint8_t)rank, .dim = dim };
    return eg_fail(w->cx, "%s: %s is %s but the bracketed axes are %s", f->who, name, eg__dims_text(w, have, sizeof have), eg__dims_text(&shape, want, sizeof want));
}
static eg_tensor *norm_with(const char *who, const eg_norm_args *given, bool center)
{
    eg_norm_args o = { .size = sizeof o };
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    eg_focus f;
    if (!eg__focus(&f, who, o.spec, o.x) || !eg__floats(who, o.x, 1)) return o.x ? eg__poison(o.x->cx) : NULL;
    eg_ctx *cx = o.x->cx;
    if (f.bound && f.bound->arrow) return eg__refuse(f.bound, f.bound->terms, -1, "the result has the operand's axes; there is no output to name");
    const norm a = { f.inner, center, eg__opt(o.eps, 1e-5) };
    if (!(a.eps >= 0)) return eg_fail(cx, "%s: eps is %g; it must not be negative", who, a.eps);
    if (!center && o.bias) return eg_fail(cx, "%s: takes no bias", who);
    eg_tensor *y = normalised(&a, f.x);
    if (o.gain && eg__check_all(cx, who, 1, &o.gain)) y = eg_mul(y, fitted(&f, o.gain, "gain"));
    if (o.bias && eg__check_all(cx, who, 1, &o.bias)) y = eg_add(y, fitted(&f, o.bias, "bias"));
    return eg__failed(cx) ? eg__poison(cx) : eg__focus_same(&f, y);
}
eg_tensor *eg_layernorm_with(const eg_norm_args *o) { return norm_with("layernorm", o, true); }
eg_tensor *eg_rmsnorm_with(const eg_norm_args *o) { return norm_with("rmsnorm", o, false); }
