/* softmax.c: softmax and log-softmax over the bracketed axes, with masks that carry letters.
 *
 * A row is read once for its maximum and once for its exponentials, chunk by chunk while it is in
 * cache. What is masked is −inf to both, so that a row with nothing to attend to has the maximum
 * −inf: it is 0 (log: −inf), and so is its gradient. A NaN that no mask forbids makes NaN of what
 * its row may attend to; what is masked is 0 (log: −inf) in every row. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

typedef struct softmax_job {
    const eg_arithmetic *m;
    eg_strip y, x, mask[2];
    int masks;
    bool log;
    double scale;
} softmax_job;
/* what a node of softmax, of log-softmax (scale 1) and of their slopes remembers: how many of the
 * last axes a row is, and of what it is */
typedef struct softening {
    int inner;
    double scale;
} softening;

/* Elements k … k + n of the scores, −inf where a mask is false. */
static const void *softmax_scores(const softmax_job *j, char *const *p, int64_t k, int64_t n,
                                  void *buffer)
{
    _Alignas(64) uint8_t bytes[EG_CHUNK];
    const void *x = eg__strip_read(&j->x, p[1], k, n, buffer);
    for (int m = 0; m < j->masks; m++) {
        j->m->select(n, x, eg__strip_read(&j->mask[m], p[2 + m], k, n, bytes), buffer);
        x = buffer;
    }
    return x;
}
static void softmax_row(const void *user, int64_t row, char *const *p)
{
    const softmax_job *j = user;
    const eg_arithmetic *m = j->m;
    _Alignas(64) char in[EG_CHUNK * 8], out[EG_CHUNK * 8];
    const void *x = NULL;
    double top = -INFINITY, total = 0;
    (void)row;
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = j->x.n - k < EG_CHUNK ? j->x.n - k : EG_CHUNK;
        x = softmax_scores(j, p, k, n, in);
        const double t = m->top(n, x);
        top = t > top ? t : top;
    }
    const bool once = j->x.n <= EG_CHUNK;
    _Alignas(64) char shifted[EG_CHUNK * 8];
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = j->x.n - k < EG_CHUNK ? j->x.n - k : EG_CHUNK;
        if (!once) x = softmax_scores(j, p, k, n, in);
        m->shift(n, x, top, shifted);
        if (j->scale != 1) m->affine(n, shifted, 0, j->scale, shifted);
        void *e = j->log ? (void *)out : eg__strip_room(&j->y, p[0], k, out);
        total += m->expsum(n, shifted, 0, e);
        if (!once && !j->log) eg__strip_done(&j->y, p[0], k, n, e);
    }
    double last = total == 0 ? 1 : total;
    if (j->log) eg__logs(1, &last);
    for (int64_t k = 0, n; k < j->x.n; k += n) {
        n = j->x.n - k < EG_CHUNK ? j->x.n - k : EG_CHUNK;
        void *y = eg__strip_room(&j->y, p[0], k, out);
        if (j->log) {
            if (!once) m->shift(n, softmax_scores(j, p, k, n, in), top, shifted);
            m->affine(n, shifted, last, 1, y);
        } else
            m->affine(n, once ? y : eg__strip_read(&j->y, p[0], k, n, out), 0,
                      total == 0 ? 0 : 1 / total, y);
        for (int i = 0; i < j->masks && total != total; i++) {
            _Alignas(64) uint8_t bytes[EG_CHUNK];
            m->erase(n, eg__strip_read(&j->mask[i], p[2 + i], k, n, bytes), j->log ? -INFINITY : 0,
                     y);
        }
        eg__strip_done(&j->y, p[0], k, n, y);
    }
}

/* The same of c128, without haste: the real maximum is subtracted. A masked entry is −inf, whatever
 * its imaginary part. */
static bool kept_c128(const softmax_job *j, char *const *p, int64_t k)
{
    uint8_t byte = 1;
    for (int m = 0; m < j->masks && byte; m++)
        byte = *(const uint8_t *)eg__strip_read(&j->mask[m], p[2 + m], k, 1, &byte);
    return byte;
}
static double complex score_c128(const softmax_job *j, char *const *p, int64_t k)
{
    return kept_c128(j, p, k) ? *eg__strip_c128(&j->x, p[1], k) : -INFINITY;
}
static void softmax_row_c128(const void *user, int64_t row, char *const *p)
{
    const softmax_job *j = user;
    double top = -INFINITY;
    double complex total = 0;
    (void)row;
    for (int64_t k = 0; k < j->x.n; k++) top = fmax(top, creal(score_c128(j, p, k)));
    const double shift = isfinite(top) ? top : 0;
    for (int64_t k = 0; k < j->x.n; k++) {
        double complex *y = eg__strip_c128(&j->y, p[0], k), x = score_c128(j, p, k);
        /* the limit: what is +inf shares evenly */
        if (top == INFINITY && !isnan(creal(x))) x = creal(x) == top ? 0 : -INFINITY;
        *y = (x - shift) * j->scale;
        total += cexp(*y);
    }
    for (int64_t k = 0; k < j->x.n; k++) {
        double complex *y = eg__strip_c128(&j->y, p[0], k);
        const bool nan = isnan(creal(total));
        if (nan && !kept_c128(j, p, k))
            *y = j->log ? -INFINITY : 0;
        else if (j->log)
            *y = creal(*y) == -INFINITY && !nan ? -INFINITY : *y - clog(total);
        else
            *y = total == 0 ? 0 : nan ? total : cexp(*y) / total;
    }
}

/* operands: x, then up to two bool masks of its shape */
static bool softmax_shape(eg_tensor *y)
{
    return eg__shape_like(y, (eg_dtype)y->in[0]->dtype, y->in[0]);
}
static bool softmax_run(eg_tensor *y, bool log)
{
    const softening *of = y->attr;
    const int inner = of->inner;
    softmax_job j = { .m = eg__arithmetic((eg_dtype)y->dtype),
                      .masks = y->count - 1,
                      .log = log,
                      .scale = of->scale };
    const eg_tensor *all[EG_ROW_OPERANDS] = { y, y->in[0] };
    eg__strip(&j.y, y, inner);
    eg__strip(&j.x, y->in[0], inner);
    for (int k = 0; k < j.masks; k++) {
        eg__strip(&j.mask[k], y->in[k + 1], inner);
        all[k + 2] = y->in[k + 1];
    }
    const int64_t work = (log ? 6 : 4) * j.x.n;
    const eg_batch b = { .n = j.x.n, .masked = j.masks, .log = log, .c = of->scale };
    if (!j.x.n) return true;
    if (y->dtype == EG_C128)
        eg__rows(y->cx, y->rank - inner, y->count + 1, all, work, softmax_row_c128, &j);
    else if (j.masks < 2 && j.x.n <= EG_CHUNK && eg__strip_contiguous(&j.x) &&
             eg__strip_contiguous(&j.y) && (!j.masks || eg__strip_contiguous(&j.mask[0])))
        eg__batches(y, y->rank - inner, y->count + 1, all, j.m->softmax, &b, work);
    else
        eg__rows(y->cx, y->rank - inner, y->count + 1, all, work, softmax_row, &j);
    return true;
}
static eg_tensor *softmax_slope(const eg_op *op, eg_tensor *y, eg_tensor *g, const softening *of)
{
    return eg_apply(op, of, sizeof *of, 2,
                    (eg_tensor *[]){ eg__rowwise(y, of->inner), eg__rowwise(g, of->inner) });
}
static bool softmax_slope_shape(eg_tensor *y)
{
    return eg__shape_like(y, (eg_dtype)y->in[0]->dtype, y->in[0]);
}
static bool slope_run(eg_tensor *y, eg_inner *run, eg_inner *run_c128)
{
    const softening *of = y->attr;
    if (y->dtype == EG_C128) run = run_c128;
    const eg_batch b = { .n = eg__last(y, of->inner), .c = of->scale };
    if (b.n)
        eg__batches(y, y->rank - of->inner, 3, (const eg_tensor *[]){ y, y->in[0], y->in[1] }, run,
                    &b, 4 * b.n);
    return true;
}

/* -- the gradient of softmax, in one pass: d = c y (g − Σ g y), symmetric in g;  dy = c u (g − Σ g
 * y) − c g Σ u y. Where y is 0 so is d, also where the row's sum is NaN: what is masked has no
 * gradient ------------------------------------------------ */
static const eg_op softmax_slope_op;
static void softmax_slope_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const eg_batch *b = user;
    for (int64_t r = 0; r < rows; r++) {
        double complex *d = EG_ROW(double complex, 0, r), *y = EG_ROW(double complex, 1, r),
                       *g = EG_ROW(double complex, 2, r), s = 0;
        for (int64_t k = 0; k < b->n; k++) s += y[k] * g[k];
        for (int64_t k = 0; k < b->n; k++) d[k] = y[k] == 0 ? 0 : b->c * (y[k] * (g[k] - s));
    }
}
static bool softmax_slope_forward(eg_tensor *y)
{
    return slope_run(y, eg__arithmetic(y->dtype)->softmax_slope, softmax_slope_c128);
}
static eg_tensor *softmax_slope_rule(eg_tensor *y, eg_tensor *u, int i)
{
    const softening *of = y->attr;
    const int inner = of->inner;
    eg_tensor *a = y->in[0], *g = y->in[1];
    if (i == 1) return softmax_slope(&softmax_slope_op, a, u, of);
    return eg_scale(eg_sub(eg_mul(u, eg_sub(g, eg__widen(eg__dot_last(g, a, inner), inner))),
                           eg_mul(g, eg__widen(eg__dot_last(u, a, inner), inner))),
                    of->scale);
}
static eg_tensor *softmax_slope_rows(eg_tensor *const *x)
{
    return softmax_slope(&softmax_slope_op, x[0], x[1], &(softening){ 1, 1 });
}
static eg_tensor *softmax_slope_scaled(eg_tensor *const *x)
{
    return softmax_slope(&softmax_slope_op, x[0], x[1], &(softening){ 1, .7 });
}
static const eg_sample softmax_slope_samples[] = { { softmax_slope_rows, "3x4, 3x4", 0, 0 },
                                                   { softmax_slope_scaled, "3x4, 3x4", 0, 0 },
                                                   { 0 } };
static const eg_op softmax_slope_op = {
    .name = "softmax_slope",
    .equation = "d = c y (g - sum g y)",
    .gradient = "dg = softmax_slope(y, u), dy = c u (g - sum g y) - c g sum u y",
    .arity = 2,
    .shape = softmax_slope_shape,
    .forward = softmax_slope_forward,
    .rule = softmax_slope_rule,
    .uses = EG_USES_OPERANDS,
    .samples = softmax_slope_samples,
    .forward_c128 = softmax_slope_forward,
};
eg_tensor *eg__softmax_slope(eg_tensor *y, eg_tensor *g, int inner)
{
    return softmax_slope(&softmax_slope_op, y, g, &(softening){ inner, 1 });
}

/* -- the gradient of log-softmax: d = g − e^y Σ g, where g counts as 0 wherever y is −inf;  dy = −u
 * e^y Σ g */
static const eg_op log_softmax_slope_op;
static void log_softmax_slope_c128(int64_t rows, char *const *p, const int64_t *step,
                                   const void *user)
{
    const int64_t n = ((const eg_batch *)user)->n;
    for (int64_t r = 0; r < rows; r++) {
        double complex *d = EG_ROW(double complex, 0, r), *y = EG_ROW(double complex, 1, r),
                       *g = EG_ROW(double complex, 2, r), s = 0;
        for (int64_t k = 0; k < n; k++) s += d[k] = creal(y[k]) == -INFINITY ? 0 : g[k];
        for (int64_t k = 0; k < n; k++)
            if (creal(y[k]) != -INFINITY) d[k] -= cexp(y[k]) * s;
    }
}
static bool log_softmax_slope_forward(eg_tensor *y)
{
    return slope_run(y, eg__arithmetic(y->dtype)->log_softmax_slope, log_softmax_slope_c128);
}
static eg_tensor *where_finite(eg_tensor *y, eg_tensor *x)
{
    const eg_dtype t = (eg_dtype)y->dtype;
    return eg_where(eg_ne(y, eg_full_n(y->cx, t, -INFINITY, 0, NULL)), x,
                    eg_full_n(y->cx, t, 0, 0, NULL));
}
static eg_tensor *softmax_centered(eg_tensor *y, eg_tensor *u, int inner) /* u − Σ e^y u */
{
    return where_finite(
        y, eg_sub(u, eg__widen(eg__dot_last(eg_exp(y), where_finite(y, u), inner), inner)));
}
static eg_tensor *log_softmax_slope_rule(eg_tensor *y, eg_tensor *u, int i)
{
    const int inner = ((const softening *)y->attr)->inner;
    eg_tensor *a = y->in[0], *g = y->in[1];
    if (i == 1) return softmax_centered(a, u, inner);
    return eg_neg(
        eg_mul(eg_mul(u, eg_exp(a)), eg__widen(eg__sum_last(where_finite(a, g), inner), inner)));
}
static eg_tensor *log_softmax_slope_rows(eg_tensor *const *x)
{
    return softmax_slope(&log_softmax_slope_op, x[0], x[1], &(softening){ 1, 1 });
}
static const eg_sample log_softmax_slope_samples[] = { { log_softmax_slope_rows, "3x4, 3x4", 0, 0 },
                                                       { 0 } };
static const eg_op log_softmax_slope_op = {
    .name = "log_softmax_slope",
    .equation = "d = g - e^y sum g",
    .gradient = "dg = u - sum e^y u, dy = -u e^y sum g",
    .arity = 2,
    .shape = softmax_slope_shape,
    .forward = log_softmax_slope_forward,
    .rule = log_softmax_slope_rule,
    .uses = EG_USES_OPERANDS,
    .samples = log_softmax_slope_samples,
    .forward_c128 = log_softmax_slope_forward,
};

/* -- softmax: y = e^cx / Σ e^cx,  dx = c y (g − Σ g y); c > 0 is attention's scale, else 1 */
static bool softmax_forward(eg_tensor *y) { return softmax_run(y, false); }
static eg_tensor *softmax_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return softmax_slope(&softmax_slope_op, y, g, y->attr);
}
static eg_tensor *softmax_plain(eg_tensor *const *x) { return eg_softmax("i [j]", x[0]); }
static eg_tensor *softmax_two(eg_tensor *const *x) { return eg_softmax("[s] i [t]", x[0]); }
static eg_tensor *softmax_causal(eg_tensor *const *x)
{
    return eg_softmax("b i [j]", x[0], .where = "j <= i", .keep = { "bj", x[1] },
                      .bias = { "ij", x[2] });
}
static eg_tensor *softmax_scaled(eg_tensor *const *x)
{
    return eg__softmax_kept((eg_tensor *[]){ x[0], x[1] }, 1, 1, .7);
}
static const eg_sample softmax_samples[] = {
    { softmax_scaled, "3x4, 3x4:b", 0, 0 },
    { softmax_plain, "3x4", 0, 0 },
    { softmax_two, "2x3x3", 0, 0 },
    { softmax_causal, "2x3x4, 2x4:b, 3x4", 0, 0 },
    { 0 },
};
static const eg_op softmax_op = {
    .name = "softmax",
    .equation = "y = e^cx / sum e^cx",
    .gradient = "dx = c y (g - sum g y)",
    .arity = -1,
    .shape = softmax_shape,
    .forward = softmax_forward,
    .rule = softmax_rule,
    .uses = EG_USES_RESULT,
    .samples = softmax_samples,
    .jvp = eg_jvp_symmetric,
    .forward_c128 = softmax_forward,
};
eg_tensor *eg__softmax_kept(eg_tensor *const *x, int masks, int inner, double scale)
{
    const softening of = { inner, scale };
    return eg_apply(&softmax_op, &of, sizeof of, 1 + masks, x);
}
eg_tensor *eg__softmax_last(eg_tensor *x, eg_tensor *keep, int inner)
{
    return eg__softmax_kept((eg_tensor *[]){ x, keep }, keep != NULL, inner, 1);
}

/* -- log-softmax: y = x − ln Σ e^x,  dx = g − e^y Σ g, where g counts as 0 wherever y is −inf */
static bool log_softmax_forward(eg_tensor *y) { return softmax_run(y, true); }
static eg_tensor *log_softmax_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return softmax_slope(&log_softmax_slope_op, y, g, y->attr);
}
static eg_tensor *log_softmax_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    return softmax_centered(y, dx[0], ((const softening *)y->attr)->inner);
}
static eg_tensor *log_softmax_plain(eg_tensor *const *x) { return eg_log_softmax("i [j]", x[0]); }
static eg_tensor *log_softmax_two(eg_tensor *const *x) { return eg_log_softmax("[s] i [t]", x[0]); }
static const eg_sample log_softmax_samples[] = { { log_softmax_plain, "3x4", 0, 0 },
                                                 { log_softmax_two, "2x3x3", 0, 0 },
                                                 { 0 } };
static const eg_op log_softmax_op = {
    .name = "log_softmax",
    .equation = "y = x - ln sum e^x",
    .gradient = "dx = g - e^y sum g",
    .arity = -1,
    .shape = softmax_shape,
    .forward = log_softmax_forward,
    .rule = log_softmax_rule,
    .uses = EG_USES_RESULT,
    .samples = log_softmax_samples,
    .jvp = log_softmax_jvp,
    .forward_c128 = log_softmax_forward,
};
const eg_op *const eg__softmax_rows[] = { &softmax_op, &softmax_slope_op, &log_softmax_op,
                                          &log_softmax_slope_op, NULL };

/* -- predicates as data: bool over the axes that occur in them, then aligned without copying */
eg_tensor *eg__where_tensor(eg_ctx *cx, const eg_predicate *p, int rank, const int64_t *size,
                            int moved, int64_t offset)
{
    const unsigned uses = eg__where_uses(p);
    int64_t index[EG_RANK_MAX] = { 0 }, dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    int used[EG_RANK_MAX], n = 0;
    for (int r = 0; r < rank; r++)
        if (uses >> r & 1) {
            dim[n] = size[r];
            used[n++] = r;
        }
    eg_tensor *m = eg__new(cx, EG_BOOL, n, dim);
    if (!m) return NULL;
    const int run = n ? used[n - 1] : -1;
    const int64_t count = n ? dim[n - 1] : 1, rows = count ? eg__count(n, dim) / count : 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t rest = row;
        for (int r = 0; r < rank; r++) index[r] = r == moved ? offset : 0;
        for (int k = n - 1; k-- > 0; rest /= dim[k]) index[used[k]] += rest % dim[k];
        eg__where_row(p, run, count, index, size, (uint8_t *)m->data + row * count);
    }
    for (int r = 0, k = 0; r < rank; r++) stride[r] = uses >> r & 1 ? m->stride[k++] : 0;
    return eg__alias(m, rank, size, stride, 0);
}

bool eg__masks_where(const eg_masking *o, const eg_predicate **where, int *moved)
{
    const eg_bound *b = o->bound;
    const eg_axis_name *name[EG_RANK_MAX] = { NULL };
    int64_t last;
    *where = NULL;
    *moved = -1;
    for (int r = 0; r < o->rank; r++) name[r] = &b->axis[o->axis[r]];
    if (o->where && !(*where = eg__where_parse(b->cx, b->who, o->where, o->rank, name)))
        return false;
    for (int r = 0; o->where && r < o->rank - o->inner; r++)
        if (eg__where_uses(*where) >> r & 1) *moved = r;
    if (*moved >= 0 && __builtin_add_overflow(o->offset, name[*moved]->size, &last))
        eg_fail_as(b->cx, EG_ERROR_INDEX,
                   "%s: .offset %lld and the %lld positions it moves do not fit in 64 bits", b->who,
                   (long long)o->offset, (long long)name[*moved]->size);
    else if (*moved < 0 && o->offset && !o->elsewhere && o->where)
        eg_fail_as(b->cx, EG_ERROR_NOTATION,
                   "%s: .offset is %lld, but \"%s\" names no query index that it could move",
                   b->who, (long long)o->offset, o->where);
    else if (*moved < 0 && o->offset && !o->elsewhere)
        eg_fail_as(b->cx, EG_ERROR_MISUSE,
                   "%s: .offset is %lld, but there is no .where that it could move", b->who,
                   (long long)o->offset);
    return !eg__failed(b->cx);
}

bool eg__masks_letters(const eg_masking *o, int term, const char *which)
{
    const eg_bound *b = o->bound;
    if (!eg__no_repeats(b, term)) return false;
    for (int k = 0; k < b->term[term].items; k++) {
        int r = 0;
        while (r < o->rank && o->axis[r] != b->term[term].item[k].axis) r++;
        if (r < o->rank) continue;
        const eg_axis_name *a = &b->axis[b->term[term].item[k].axis];
        eg__refuse(b, term, k, "index '%.*s' of %s is not an index of the scores", a->length,
                   a->text, which);
        return false;
    }
    return true;
}

bool eg__masks_fit(const eg_masking *o, eg_dtype scores)
{
    const eg_bound *b = o->bound;
    if (o->bias >= 0 && !eg__masks_letters(o, o->bias, ".bias")) return false;
    if (o->bias >= 0 && b->term[o->bias].x->dtype != scores)
        return eg_fail_as(b->cx, EG_ERROR_DTYPE, "%s: .bias is %s but the scores are %s", b->who,
                          eg_type_name(b->term[o->bias].x->dtype), eg_type_name(scores)),
               false;
    if (o->keep >= 0 && eg__is_inexact(b->term[o->keep].x->dtype))
        return eg_fail_as(
                   b->cx, EG_ERROR_DTYPE,
                   "%s: .keep is %s, and a mask says true or false (bool or integer, non-zero "
                   "= attend); numbers to be added to "
                   "the scores are a .bias",
                   b->who, eg_type_name(b->term[o->keep].x->dtype)),
               false;
    return o->keep < 0 || eg__masks_letters(o, o->keep, ".keep");
}

/* -- softmax with masks: e^(x + bias), 0 where `where` or `keep` says no ---------------------- */
static eg_tensor *softmax_masked(const eg_masking *o, eg_tensor *x, bool log)
{
    const eg_bound *b = o->bound;
    eg_tensor *operand[EG_ROW_OPERANDS - 1];
    const eg_predicate *where;
    int64_t size[EG_RANK_MAX];
    int n = 1, moved;
    if (!eg__masks_fit(o, (eg_dtype)x->dtype) || !eg__masks_where(o, &where, &moved))
        return eg__poison(b->cx);
    eg_tensor *bias = o->bias >= 0 ? eg__align(b, o->bias, o->rank, o->axis) : NULL, *given = x;
    if (bias && !eg_ok(bias)) return bias;
    if (bias) x = eg_add(x, bias);
    for (int r = 0; r < o->rank; r++) size[r] = b->axis[o->axis[r]].size;
    if (where && !(operand[n++] = eg__where_tensor(b->cx, where, o->rank, size, moved, o->offset)))
        return eg__poison(b->cx);
    if (o->keep >= 0) {
        eg_tensor *keep = b->term[o->keep].x;
        if (keep->dtype != EG_BOOL) keep = eg_cast(keep, EG_BOOL);
        if (!eg_ok(keep) || !(operand[n++] = eg__align_alias(b, keep, o->keep, o->rank, o->axis)))
            return eg__poison(b->cx);
    }
    if (bias && !eg__tame(bias) && !eg__tame(given)) { /* NaN − inf is NaN, but −inf forbids */
        eg_tensor *allow = eg_ne(bias, eg_full_n(b->cx, (eg_dtype)bias->dtype, -INFINITY, 0, NULL));
        if (o->keep >= 0) allow = eg_and(operand[--n], allow);
        if (!eg_ok(allow)) return allow;
        operand[n++] = allow;
    }
    operand[0] = x;
    const softening of = { o->inner, 1 };
    return eg_apply(log ? &log_softmax_op : &softmax_op, &of, sizeof of, n, operand);
}

const char *eg__masks_spec(eg_ctx *cx, const char *who, const char *spec, int count,
                           eg_mask_option *all, const char *names, eg_tensor **xs,
                           const char **called, int *n)
{
    const char *arrow = strstr(spec, "->");
    const size_t head = arrow ? (size_t)(arrow - spec) : strlen(spec);
    size_t room = strlen(spec) + (names ? strlen(names) : 0) + 8;
    for (int k = 0; k < count; k++) room += all[k].mask.axes ? strlen(all[k].mask.axes) + 1 : 0;
    char *out = eg__alloc(cx, room), *at = out;
    if (!out) return NULL;
    memcpy(at, spec, head);
    at += head;
    for (int k = 0; k < count; k++) {
        const eg_masked *m = &all[k].mask;
        all[k].term = -1;
        if (!m->axes && !m->x) continue;
        if (!m->axes)
            return eg_fail_as(cx, EG_ERROR_NOTATION,
                              "%s: %s has a tensor but no letters; write %s = { \"bj\", tensor }",
                              who, all[k].option, all[k].option),
                   NULL;
        if (!m->x)
            return eg_fail_as(cx, EG_ERROR_MISUSE,
                              "%s: %s has the letters \"%s\" but its tensor is NULL", who,
                              all[k].option, m->axes),
                   NULL;
        all[k].term = *n;
        called[*n] = all[k].option;
        xs[(*n)++] = m->x;
        at += sprintf(at, ",%s", m->axes);
    }
    if (names) {
        called[*n] = ".weights_axes";
        xs[(*n)++] = NULL;
        at += sprintf(at, ",%s", names);
    }
    strcpy(at, spec + head);
    return out;
}

static eg_tensor *softmax(const char *who, const eg_softmax_args *given, bool log)
{
    eg_softmax_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!eg__check(who, o.x)) return o.x ? eg__poison(o.x->cx) : NULL;
    if (!o.spec) return eg_fail_as(o.x->cx, EG_ERROR_MISUSE, "%s: the spec is NULL", who);
    if (!eg__floats(who, o.x, 1)) return eg__poison(o.x->cx);
    eg_tensor *xs[3] = { o.x };
    const char *called[3] = { NULL };
    int n = 1;
    eg_mask_option masks[] = { { ".keep", o.keep, -1 }, { ".bias", o.bias, -1 } };
    const char *spec = eg__masks_spec(o.x->cx, who, o.spec, 2, masks, NULL, xs, called, &n);
    eg_masking m = {
        .where = o.where, .offset = o.offset, .keep = masks[0].term, .bias = masks[1].term
    };
    eg_focus f;
    if (!spec ||
        !(m.bound = eg__bind_called(who, spec, EG_NOTATION_BRACKETS, n, xs, 0, NULL, called)) ||
        !eg__focus_bound(&f, m.bound, o.x))
        return eg__poison(o.x->cx);
    if (m.bound->arrow)
        return eg__refuse(m.bound, m.bound->terms, -1,
                          "the result has the operand's axes; there is no output to name");
    uint16_t axis[EG_RANK_MAX];
    for (int k = 0; k < f.outer + f.inner; k++) axis[k] = m.bound->term[0].item[f.item[k]].axis;
    m.axis = axis;
    m.rank = f.outer + f.inner;
    m.inner = f.inner;
    return eg__focus_same(&f, softmax_masked(&m, f.x, log));
}
eg_tensor *eg_softmax_with(const eg_softmax_args *o) { return softmax("softmax", o, false); }
eg_tensor *eg_log_softmax_with(const eg_softmax_args *o) { return softmax("log_softmax", o, true); }
