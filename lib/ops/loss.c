/* loss.c: cross entropy and KL divergence over the bracketed axes, binary cross entropy with
 * logits, mean squared error, Huber loss. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

typedef struct xent {
    int inner;
    bool ignoring;
    int64_t ignore;
    double smoothing;
} xent;
typedef struct xent_job {
    const eg_arithmetic *m;
    eg_inner *run; /* logsum or softmax_less; with interleaved rows their form …_across */
    xent a;
    eg_row_facts b;
    int width;
} xent_job;

static bool counts(const xent *a, int64_t target) { return !a->ignoring || target != a->ignore; }

static void loss_put(char *p, int width, double v)
{
    if (width == 8)
        *(double *)(void *)p = v;
    else
        *(float *)(void *)p = (float)v;
}
static double loss_get(const char *p, int width)
{
    return width == 8 ? *(const double *)(const void *)p : (double)*(const float *)(const void *)p;
}
/* Returns v − top, where top is the largest element of the row; the limit, as in log-softmax, if
 * top is infinite. Whether a target has the largest element cannot be predicted. */
static double xent_below(double v, double top)
{
    return fabs(top) == INFINITY && v == top ? 0 : v - top;
}
/* Returns the mean of a row x minus its maximum `top`. */
static double xent_mean_below(const xent_job *j, const char *x, double top)
{
    _Alignas(64) char row[EG_ACROSS * sizeof(double)];
    double sum = 0;
    if (j->b.along[1] != 1) {
        eg__move(j->width, j->b.n, row, j->width, x, j->b.along[1] * j->width);
        x = row;
    }
    for (int64_t k = 0; k < j->b.n; k += EG_CHUNK)
        sum += j->m->sum(j->b.n - k < EG_CHUNK ? j->b.n - k : EG_CHUNK, x + k * j->width);
    if (top != INFINITY) return sum / (double)j->b.n - top;
    for (int64_t k = 0; k < j->b.n; k++)
        if (j->m->at(x, k) != top) return -INFINITY;
    return 0;
}
/* Computes ln Σ e^x − x[target], with the maximum subtracted from both; p: loss, logits, target. */
static void xent_rows(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const xent_job *j = user;
    const double smoothing = j->a.smoothing;
    double pair[32][2]; /* max x, ln Σ e^(x − max x) */
    for (int64_t first = 0, count; first < rows; first += count) {
        count = rows - first < 32 ? rows - first : 32;
        j->run(count, (char *[]){ (char *)pair, p[1] + first * step[1] },
               (int64_t[]){ sizeof *pair, step[1] }, &j->b);
        for (int64_t r = 0; r < count; r++) {
            const int64_t target = *EG_ROW(int64_t, 2, first + r);
            const char *x = p[1] + (first + r) * step[1];
            const double top = pair[r][0], rest = pair[r][1];
            double loss = 0;
            if (counts(&j->a, target)) {
                const double hit = loss_get(x + target * j->b.along[1] * j->width, j->width);
                /* with an element of −inf the mean is −inf too */
                const bool never = hit == -INFINITY && !isnan(rest);
                loss = never ? INFINITY : (1 - smoothing) * (rest - xent_below(hit, top));
                if (smoothing > 0 && !never)
                    loss += smoothing * (rest - xent_mean_below(j, x, top));
            }
            loss_put(p[0] + (first + r) * step[0], j->width, loss);
        }
    }
}
/* The complex form of cross entropy, with max Re x subtracted from the logits: y = (1 − s)(ln Σ e^x
 * − x_target) + s (ln Σ e^x − mean x). */
static void xent_rows_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const xent_job *j = user;
    const double smoothing = j->a.smoothing;
    for (int64_t r = 0; r < rows; r++) {
        const double complex *x = EG_ROW(double complex, 1, r);
        const int64_t target = *EG_ROW(int64_t, 2, r);
        double top = -INFINITY;
        double complex total = 0, sum = 0, *y = EG_ROW(double complex, 0, r);
        *y = 0;
        if (!counts(&j->a, target)) continue;
        for (int64_t k = 0; k < j->b.n; k++) top = fmax(top, creal(x[k]));
        for (int64_t k = 0; k < j->b.n; k++) {
            total += cexp(x[k] - top);
            sum += x[k] - top;
        }
        *y = creal(x[target]) == -INFINITY && !isnan(creal(total))
                 ? INFINITY
                 : (1 - smoothing) * (clog(total) - (x[target] - top));
        if (smoothing > 0) *y += smoothing * (clog(total) - sum / (double)j->b.n);
    }
}
static xent_job job_of(const eg_tensor *y)
{
    const xent *a = y->attr;
    return (xent_job){ .m = eg__arithmetic(y->dtype),
                       .run = eg__arithmetic(y->dtype)->logsum,
                       .a = *a,
                       .b = { .n = eg__row_length(y->in[0], a->inner), .along = { 1, 1, 1 } },
                       .width = eg__width[y->dtype] };
}
static bool xent_shape(eg_tensor *y)
{
    return eg__shape(y, (eg_dtype)y->in[0]->dtype, y->in[1]->rank, y->in[1]->dim);
}
/* Computes interleaved rows of a single axis in place, with j->run = `across`; false if there are
 * none. */
static bool loss_rows(eg_tensor *y, int outer, int operands, const eg_tensor *const *x, xent_job *j,
                      eg_inner *run, eg_inner *across, int64_t work)
{
    eg_inner *const contiguous = j->run;
    j->run = across;
    if (j->a.inner == 1 && eg__batches_across(y, outer, operands, x, run, &j->b, j, work))
        return true;
    j->run = contiguous;
    return false;
}
/* Rows of no classes have the loss 0. */
static bool xent_forward(eg_tensor *y)
{
    eg_copies_axis copies;
    y = eg__copies_axis(&copies, y);
    xent_job j = job_of(y);
    const eg_tensor *all[] = { y, y->in[0], y->in[1] };
    if (!j.b.n) {
        eg__fill(y, 0);
        return true;
    }
    return loss_rows(y, y->rank, 3, all, &j, xent_rows, j.m->logsum_across, 4 * j.b.n) ||
           eg__batches(y, y->rank, 3, all, y->dtype == EG_C128 ? xent_rows_c128 : xent_rows, &j,
                       4 * j.b.n);
}

/* Writes the distribution of each target; if `to` is a bool tensor, whether the target counts. */
static bool act_targets(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)cx, (void)count;
    const xent *a = arg;
    const eg_tensor *classes = x[0];
    const int64_t rows = eg__count(classes->rank, classes->dim), n = rows ? eg_size(to) / rows : 0,
                  *target = (const int64_t *)(void *)classes->data;
    const double even = a->smoothing / (double)n;
    const int width = eg__width[to->dtype];
    memset(to->data, 0, (size_t)(eg_size(to) * width));
    for (int64_t row = 0; row < rows; row++) {
        const bool yes = counts(a, target[row]);
        if (to->dtype == EG_BOOL) ((bool *)to->data)[row] = yes;
        if (to->dtype == EG_BOOL || !yes) continue;
        char *at = to->data + row * n * width;
        for (int64_t c = 0; c < n && even > 0; c++) loss_put(at + c * width, width, even);
        loss_put(at + target[row] * width, width,
                 width == 8 ? even + (1 - a->smoothing)
                            : (double)((float)even + (float)(1 - a->smoothing)));
    }
    return true;
}
/* An act and its argument, for act_copies, which calls it once for each copy. */
typedef struct loss_copies {
    eg_act *act;
    _Alignas(16) char arg[64];
} loss_copies;
static bool act_copies(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    loss_copies *of = arg;
    (void)count;
    for (int64_t k = 0; k < to->copies->count; k++) {
        eg_tensor one = *to, from = *x[0], *in = &from;
        one.data = eg__copy_data(to, k);
        from.data = eg__copy_data(x[0], k);
        one.copies = from.copies = NULL;
        if (!of->act(cx, &one, 1, &in, of->arg)) return false;
    }
    return true;
}
/* Runs an act that reads x and writes to `to`; if there are copies, once for each copy. False after
 * an error. */
static bool loss_act(eg_act *act, eg_tensor *to, eg_tensor *x, const void *arg, size_t bytes)
{
    loss_copies of = { .act = act };
    memcpy(of.arg, arg, bytes);
    return to->copies ? eg__act(to->cx, act_copies, to, 1, &x, &of, sizeof of, 0)
                      : eg__act(to->cx, act, to, 1, &x, of.arg, bytes, 0);
}
/* Returns the distributions of the targets, (1 − ε) one-hot + ε/n, as constants, and sets *keep to
 * which targets count (NULL if all do). NULL after an error. */
static eg_tensor *distribution(const eg_tensor *y, eg_tensor **keep)
{
    xent a = *(const xent *)y->attr;
    const eg_tensor *x = y->in[0];
    eg_tensor *classes = y->in[1],
              *t = eg__new_copies(y->cx, classes->copies, (eg_dtype)x->dtype, x->rank, x->dim),
              *k = a.ignoring ? eg__new_copies(y->cx, classes->copies, EG_BOOL, classes->rank,
                                               classes->dim)
                              : NULL;
    if (!t || (a.ignoring && !k)) return NULL;
    if (!loss_act(act_targets, t, classes, &a, sizeof a)) return NULL;
    if (k && !loss_act(act_targets, k, classes, &a, sizeof a)) return NULL;
    *keep = NULL;
    if (k) {
        int64_t stride[EG_RANK_MAX] = { 0 };
        if (k->rank) memcpy(stride, k->stride, (size_t)k->rank * sizeof *stride);
        if (!(*keep = eg__alias(k, x->rank, x->dim, stride, 0))) return NULL;
    }
    return t;
}

/* -- its gradient, in one pass: d = g (p − t), p = softmax(x), 0 if the target does not count; dx =
 * p (g u − Σ g u p), dg = Σ u (p − t) */
/* p: d, x, g, target */
static void slope_rows(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const xent_job *j = user;
    const int64_t along = j->b.along[0];
    j->run(rows, p, step, &j->b);
    for (int64_t r = 0; r < rows; r++) {
        char *d = p[0] + r * step[0];
        const int64_t target = *EG_ROW(int64_t, 3, r);
        char *hit = d + target * along * j->width;
        if (!counts(&j->a, target))
            for (int64_t k = 0; k < j->b.n; k++) loss_put(d + k * along * j->width, j->width, 0);
        else
            loss_put(hit, j->width,
                     loss_get(hit, j->width) -
                         (1 - j->a.smoothing) * loss_get(p[2] + r * step[2], j->width));
    }
}
static void slope_rows_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const xent_job *j = user;
    for (int64_t r = 0; r < rows; r++) {
        double complex *d = EG_ROW(double complex, 0, r), *x = EG_ROW(double complex, 1, r),
                       g = *EG_ROW(double complex, 2, r), total = 0;
        const int64_t target = *EG_ROW(int64_t, 3, r);
        double top = -INFINITY;
        for (int64_t k = 0; k < j->b.n; k++) top = fmax(top, creal(x[k]));
        for (int64_t k = 0; k < j->b.n; k++) total += d[k] = cexp(x[k] - top);
        for (int64_t k = 0; k < j->b.n; k++)
            d[k] = counts(&j->a, target)
                       ? g * (d[k] / total - j->b.c - (k == target) * (1 - j->a.smoothing))
                       : 0;
    }
}
static bool loss_slope_shape(eg_tensor *y)
{
    return eg__shape_like(y, (eg_dtype)y->in[0]->dtype, y->in[0]);
}
static bool loss_slope_forward(eg_tensor *y)
{
    eg_copies_axis copies;
    y = eg__copies_axis(&copies, y);
    xent_job j = job_of(y);
    if (!j.b.n) return true;
    j.b.c = j.a.smoothing / (double)j.b.n;
    j.run = j.m->softmax_less;
    const eg_tensor *all[] = { y, y->in[0], y->in[2], y->in[1] };
    const int outer = y->in[1]->rank;
    return loss_rows(y, outer, 4, all, &j, slope_rows, j.m->softmax_less_across, 6 * j.b.n) ||
           eg__batches(y, outer, 4, all, y->dtype == EG_C128 ? slope_rows_c128 : slope_rows, &j,
                       6 * j.b.n);
}
static eg_tensor *loss_slope_rule(eg_tensor *y, eg_tensor *u, int i)
{
    const int inner = ((const xent *)y->attr)->inner;
    eg_tensor *keep, *t = distribution(y, &keep);
    if (!t) return eg__poison(y->cx);
    eg_tensor *p = eg__softmax_last(y->in[0], keep, inner);
    return i == 2 ? eg__dot_last(u, eg_sub(p, t), inner)
                  : eg__softmax_slope(p, eg_mul(u, eg__widen(y->in[2], inner)), inner);
}
static const eg_op slope_op;
static eg_tensor *slope_of(const xent *a, eg_tensor *x, eg_tensor *target, eg_tensor *g)
{
    return eg_apply(&slope_op, a, sizeof *a, 3, (eg_tensor *[]){ x, target, g });
}
/* The sample needs targets below 4, which eg_cross_entropy checks for other callers. */
static eg_tensor *slope_call(eg_tensor *const *x)
{
    if (eg_dim(x[0], 1) != 4)
        return eg_fail_as(eg_context(x[0]), EG_ERROR_MISUSE,
                          "cross_entropy_slope: the sample has 4 classes, not %lld",
                          (long long)eg_dim(x[0], 1));
    return slope_of(&(xent){ 1, true, 2, .2 }, x[0], eg_contiguous(x[1]), x[2]);
}
static const eg_sample slope_samples[] = { { slope_call, "5x4, 5:i4, 5", 0, 0 }, { 0 } };
static const eg_op slope_op = {
    .name = "cross_entropy_slope",
    .equation = "d = g (softmax(x) - t)",
    .gradient = "dx = softmax_slope(p, g u), dg = sum u (p - t)",
    .arity = 3,
    .shape = loss_slope_shape,
    .forward = loss_slope_forward,
    .rule = loss_slope_rule,
    .uses = EG_USES_OPERANDS,
    .samples = slope_samples,
    .forward_c128 = loss_slope_forward,
};

/* -- cross entropy: y = −Σ t ln softmax(x),  dx = g (softmax(x) − t) -------------------------- */
static eg_tensor *xent_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return slope_of(y->attr, y->in[i], y->in[1], g);
}
static eg_tensor *xent_plain(eg_tensor *const *x) { return eg_cross_entropy("i [v]", x[0], x[1]); }
static eg_tensor *xent_options(eg_tensor *const *x)
{
    return eg_cross_entropy("b [v] l", x[0], x[1], .ignore = 2, .smoothing = .2, .each = true);
}
static const eg_sample xent_samples[] = { { xent_plain, "5x4, 5:i4", 0, 0 },
                                          { xent_options, "2x4x3, 2x3:i4", 0, 0 },
                                          { 0 } };
static const eg_op xent_op = {
    .name = "cross_entropy",
    .equation = "y = -sum t ln softmax(x)",
    .gradient = "dx = g (softmax(x) - t)",
    .arity = 2,
    .shape = xent_shape,
    .forward = xent_forward,
    .rule = xent_rule,
    .uses = EG_USES_OPERANDS,
    .samples = xent_samples,
    .forward_c128 = xent_forward,
};
const eg_op *const eg__loss_ops[] = { &xent_op, &slope_op, NULL };

/* Returns the targets as contiguous i64; NULL after an error. */
static eg_tensor *checked(const eg_focus *f, eg_tensor *target)
{
    eg_ctx *cx = eg__here(f->x->cx);
    int64_t want[EG_RANK_MAX];
    char have_text[256], want_text[256];
    const int rank = eg__focus_dims(f, false, want);
    if (!eg__is_int(target->dtype))
        return eg_fail_as(cx, EG_ERROR_DTYPE,
                          "cross_entropy: the target is %s; class numbers are i32 or i64",
                          eg_type_name(target->dtype)),
               NULL;
    if (!eg__has_sizes(target, rank, want))
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "cross_entropy: the target is %s but the logits without their bracketed "
                          "axes are %s",
                          eg__dims_text(target, have_text, sizeof have_text),
                          eg__sizes_text(rank, want, want_text, sizeof want_text)),
               NULL;
    if (target->dtype != EG_I64) target = eg_cast(target, EG_I64);
    target = eg_contiguous(target);
    return eg_ok(target) ? target : NULL;
}
typedef struct classes_act {
    xent of;
    int64_t classes;
} classes_act;
_Static_assert(sizeof(classes_act) <= sizeof((loss_copies *)0)->arg, "loss_act has room for it");
/* Checks that targets are classes, and sets `to` to 1 / the number of targets that are not ignored;
 * to 0 if all are ignored. False after an error. */
static bool act_classes(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)count;
    const classes_act *a = arg;
    const eg_tensor *target = x[0];
    const int64_t n = eg__count(target->rank, target->dim),
                  *t = (const int64_t *)(void *)target->data;
    int64_t counted = 0;
    char text[256];
    for (int64_t k = 0; k < n; k++) {
        if (!counts(&a->of, t[k])) continue;
        ++counted;
        if (t[k] >= 0 && t[k] < a->classes) continue;
        int64_t at[EG_RANK_MAX], rest = k;
        for (int r = target->rank; r-- > 0; rest /= target->dim[r]) at[r] = rest % target->dim[r];
        return eg_fail_as(
                   cx, EG_ERROR_INDEX,
                   "cross_entropy: the class at %s of the target is %lld, outside [0, %lld)%s",
                   eg__sizes_text(target->rank, at, text, sizeof text), (long long)t[k],
                   (long long)a->classes,
                   /* which PyTorch ignores by default */
                   t[k] == -100 ? "; .ignore = -100 leaves such targets out" : ""),
               false;
    }
    eg__fill(to, counted ? 1 / (double)counted : 0);
    return true;
}

/* Returns (ln Σ e^x)² where the target counts, else 0. */
static eg_tensor *log_square(const eg_focus *f, const xent *a, eg_tensor *target)
{
    eg_tensor *z = eg__logsumexp_last(f->x, f->inner);
    if (!a->ignoring) return eg_square(z);
    eg_tensor *ignored = eg__new(f->x->cx, EG_I64, 0, NULL), *zero = eg__zero_like(f->x);
    if (!ignored) return eg__poison(f->x->cx);
    memcpy(ignored->data, &a->ignore, sizeof a->ignore);
    eg__made_once(ignored);
    return eg_square(eg_where(eg_ne(target, ignored), z, zero));
}

eg_tensor *eg_cross_entropy_with(const eg_cross_entropy_args *given)
{
    eg_cross_entropy_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_tensor *const xs[] = { o.logits, o.target };
    eg_ctx *cx = eg__context_of("cross_entropy", 2, xs);
    if (!cx || !eg__check_all(cx, "cross_entropy", 2, xs)) return eg__poison(cx);
    eg_focus f;
    if (!eg__floats("cross_entropy", o.logits, 1)) return eg__poison(cx);
    if (!o.spec) return eg_fail_as(cx, EG_ERROR_MISUSE, "cross_entropy: the spec is NULL");
    if (!eg__focus(&f, "cross_entropy", o.spec, o.logits)) return eg__poison(cx);
    if (f.bound->arrow)
        return eg__refuse(
            f.bound, f.bound->terms, -1,
            "the loss is a scalar and takes no output; .each gives one loss per target");
    o.smoothing = eg_option(o.smoothing, 0), o.z_loss = eg_option(o.z_loss, 0);
    if (!(o.smoothing >= 0 && o.smoothing <= 1))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "cross_entropy: the smoothing is %g; it must lie in [0, 1]", o.smoothing);
    if (!(o.z_loss >= 0 && o.z_loss < INFINITY))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "cross_entropy: the weight of the z-loss is %g; it must not be negative",
                          o.z_loss);
    const xent a = { f.inner, o.ignore != 0, o.ignore == EG_OFF ? 0 : o.ignore, o.smoothing };
    eg_tensor *t = checked(&f, o.target),
              *share = t ? eg__new_copies(cx, t->copies, eg_type(f.x), 0, NULL) : NULL;
    classes_act k = { a, eg__row_length(f.x, f.inner) };
    if (!share || !loss_act(act_classes, share, t, &k, sizeof k)) return eg__poison(cx);
    if (eg_rank(t) != f.outer) t = eg_reshape_n(t, f.outer, f.x->dim);
    eg_tensor *each = eg_apply(&xent_op, &a, sizeof a, 2, (eg_tensor *[]){ f.x, t });
    if (o.z_loss != 0) each = eg_add(each, eg_scale(log_square(&f, &a, t), o.z_loss));
    return o.each ? eg__focus_outer(&f, each) : eg_mul(eg_sum(NULL, each), share);
}

/* -- binary cross entropy: mean of t ln(1 + e^−x) + (1 − t) ln(1 + e^x), two positive terms, so
 * nothing cancels */
static bool loss_operands_match(const char *who, eg_tensor *a, eg_tensor *b)
{
    eg_tensor *const xs[] = { a, b };
    eg_ctx *cx = eg__context_of(who, 2, xs);
    if (!cx || !eg__check_all(cx, who, 2, xs)) return false;
    if (!eg__floats(who, a, 1) || !eg__floats(who, b, 2)) return false;
    char one[256], two[256];
    if (a->dtype != b->dtype) {
        eg_fail_as(cx, EG_ERROR_DTYPE, "%s: operand 1 is %s, operand 2 is %s; eg_cast one of them",
                   who, eg_type_name(a->dtype), eg_type_name(b->dtype));
        return false;
    }
    if (!eg__same_shape(a, b)) {
        eg_fail_as(cx, EG_ERROR_SHAPE, "%s: operand 1 is %s but operand 2 is %s", who,
                   eg__dims_text(a, one, sizeof one), eg__dims_text(b, two, sizeof two));
        return false;
    }
    return true;
}
/* Returns y, the result of eg_mean or eg_sum; if that failed, the error begins with the loss. */
static eg_tensor *reduced(const char *who, const eg_tensor *operand, eg_tensor *y)
{
    return eg_ok(y) ? y : eg_fail_in(operand->cx, "%s", who);
}
eg_tensor *eg_bce_logits(eg_tensor *logits, eg_tensor *target)
{
    if (!loss_operands_match("bce_logits", logits, target))
        return eg__poison(eg__context_of("bce_logits", 2, (eg_tensor *[]){ logits, target }));
    return reduced("bce_logits", logits, eg_mean(NULL, eg__bce(target, logits)));
}

/* -- mse: mean of (a − b)² -------------------------------------------------------------------- */
eg_tensor *eg_mse(eg_tensor *a, eg_tensor *b)
{
    if (!loss_operands_match("mse", a, b))
        return eg__poison(eg__context_of("mse", 2, (eg_tensor *[]){ a, b }));
    return reduced("mse", a, eg_mean(NULL, eg_square(eg_sub(a, b))));
}

/* -- huber: mean of d²/2 up to |d| = δ, then δ (|d| − δ/2), d = a − b. Huber 1964 -------------- */
eg_tensor *eg_huber(eg_tensor *a, eg_tensor *b, double delta)
{
    if (!loss_operands_match("huber", a, b))
        return eg__poison(eg__context_of("huber", 2, (eg_tensor *[]){ a, b }));
    if (!(delta > 0))
        return eg_fail_as(a->cx, EG_ERROR_MISUSE, "huber: delta is %g; it must be above 0", delta);
    return reduced("huber", a, eg_mean(NULL, eg__huber(eg_sub(a, b), delta)));
}

/* -- kl_div: Σ p (ln p − ln q); where p is 0 the term is 0, whatever q is --------------------- */
eg_tensor *eg_kl_div(const char *spec, eg_tensor *p, eg_tensor *log_q)
{
    if (!loss_operands_match("kl_div", p, log_q))
        return eg__poison(eg__context_of("kl_div", 2, (eg_tensor *[]){ p, log_q }));
    eg_tensor *zero = eg__zero_like(p), *some = eg_ne(p, zero);
    eg_tensor *log_p = eg_log(eg_where(some, p, eg_shift(zero, 1)));
    return reduced("kl_div", p,
                   eg_sum(spec, eg_mul(p, eg_sub(log_p, eg_where(some, log_q, zero)))));
}
