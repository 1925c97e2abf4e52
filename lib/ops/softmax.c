/* softmax.c: softmax and log-softmax over the bracketed axes, with masks that have letters.
 *
 * A masked element counts as −inf in the maximum and in the sum. If all elements of a row are
 * masked, its maximum is −inf, its result 0 (log: −inf), and its gradient 0. An allowed NaN makes
 * all allowed elements of its row NaN; masked elements are 0 (log: −inf) in every row. The loops
 * over rows are in arithmetic_softmax_of.h. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

/* The attribute of softmax, of log-softmax (scale 1) and of their slopes. */
typedef struct softmax_attr {
    int inner;    /* number of last axes that are a row */
    double scale; /* softmax of scale x; scale > 0 */
} softmax_attr;

/* True if all masks allow the element. In c128 a masked element is −inf, whatever its imaginary
 * part is. */
static bool allowed_c128(const eg_row_facts *b, int64_t row, int64_t k, char *const *p,
                         const int64_t *step)
{
    bool all = true;
    for (int m = 0; m < b->masks; m++) all = all && EG_ROW(uint8_t, 2 + m, row)[k];
    return all;
}
/* The complex form of softmax or log-softmax of one row: e^(c (x − m)) / Σ e^(c (x − m)), where m
 * is the largest real part that is allowed, and c is b->c. If all elements are forbidden, the
 * weights are 0. */
static void softmax_row_c128(const eg_row_facts *b, int64_t row, char *const *p,
                             const int64_t *step)
{
    double complex *y = EG_ROW(double complex, 0, row), total = 0;
    const double complex *x = EG_ROW(double complex, 1, row);
    double top = -INFINITY;
    for (int64_t k = 0; k < b->n; k++)
        if (allowed_c128(b, row, k, p, step)) top = fmax(top, creal(x[k]));
    const double shift = isfinite(top) ? top : 0;
    for (int64_t k = 0; k < b->n; k++) {
        double complex v = allowed_c128(b, row, k, p, step) ? x[k] : -INFINITY;
        /* the limit: elements of +inf share the weight equally */
        if (top == INFINITY && !isnan(creal(v))) v = creal(v) == top ? 0 : -INFINITY;
        y[k] = (v - shift) * b->c;
        total += cexp(y[k]);
    }
    const bool nan = isnan(creal(total));
    for (int64_t k = 0; k < b->n; k++)
        if (nan && !allowed_c128(b, row, k, p, step))
            y[k] = b->log ? -INFINITY : 0;
        else if (b->log)
            y[k] = creal(y[k]) == -INFINITY && !nan ? -INFINITY : y[k] - clog(total);
        else
            y[k] = total == 0 ? 0 : nan ? total : cexp(y[k]) / total;
}
static void softmax_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    for (int64_t r = 0; r < rows; r++) softmax_row_c128(user, r, p, step);
}

/* The operands are x and up to two bool masks of its shape. */
static bool softmax_shape(eg_tensor *y)
{
    return eg__shape_like(y, (eg_dtype)y->in[0]->dtype, y->in[0]);
}
/* Interleaved rows without masks are read in place, others row by row. */
static bool softmax_run(eg_tensor *y, bool log)
{
    const softmax_attr *of = y->attr;
    eg_copies_axis copies;
    y = eg__copies_axis(&copies, y);
    eg_row_facts b = {
        .n = eg__row_length(y, of->inner), .masks = y->count - 1, .log = log, .c = of->scale
    };
    const eg_tensor *all[EG_ROW_OPERANDS] = { y };
    for (int k = 0; k < y->count; k++) all[k + 1] = y->in[k];
    return !b.n ||
           (of->inner == 1 && !b.masks &&
            eg__batches_across(y, y->rank - 1, 2, all, eg__arithmetic(y->dtype)->softmax_across, &b,
                               &b, 4 * b.n)) ||
           eg__batches(y, y->rank - of->inner, y->count + 1, all,
                       y->dtype == EG_C128 ? softmax_c128 : eg__arithmetic(y->dtype)->softmax, &b,
                       (log ? 6 : 4) * b.n);
}
static eg_tensor *softmax_slope(const eg_op *op, eg_tensor *y, eg_tensor *g, const softmax_attr *of)
{
    return eg_apply(op, of, sizeof *of, 2, (eg_tensor *[]){ y, g });
}
static bool slope_run(eg_tensor *y, eg_inner *run, eg_inner *run_across, eg_inner *run_c128)
{
    const softmax_attr *of = y->attr;
    eg_copies_axis copies;
    y = eg__copies_axis(&copies, y);
    if (y->dtype == EG_C128) run = run_c128;
    eg_row_facts b = { .n = eg__row_length(y, of->inner), .c = of->scale };
    const eg_tensor *all[] = { y, y->in[0], y->in[1] };
    return !b.n ||
           (of->inner == 1 &&
            eg__batches_across(y, y->rank - 1, 3, all, run_across, &b, &b, 4 * b.n)) ||
           eg__batches(y, y->rank - of->inner, 3, all, run, &b, 4 * b.n);
}

/* -- the gradient of softmax, in one pass: d = c y (g − Σ g y), symmetric in g, dy = c u (g − Σ g
 * y) − c g Σ u y. Where y is 0, d is 0, even if the sum of the row is NaN: a masked element has no
 * gradient. */
static const eg_op softmax_slope_op;
static void softmax_slope_c128(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const eg_row_facts *b = user;
    for (int64_t r = 0; r < rows; r++) {
        double complex *d = EG_ROW(double complex, 0, r), *y = EG_ROW(double complex, 1, r),
                       *g = EG_ROW(double complex, 2, r), s = 0;
        for (int64_t k = 0; k < b->n; k++) s += y[k] * g[k];
        for (int64_t k = 0; k < b->n; k++) d[k] = y[k] == 0 ? 0 : b->c * (y[k] * (g[k] - s));
    }
}
static bool softmax_slope_forward(eg_tensor *y)
{
    const eg_arithmetic *m = eg__arithmetic(y->dtype);
    return slope_run(y, m->softmax_slope, m->softmax_slope_across, softmax_slope_c128);
}
static eg_tensor *softmax_slope_rule(eg_tensor *y, eg_tensor *u, int i)
{
    const softmax_attr *of = y->attr;
    const int inner = of->inner;
    eg_tensor *a = y->in[0], *g = y->in[1];
    if (i == 1) return softmax_slope(&softmax_slope_op, a, u, of);
    return eg_scale(eg_sub(eg_mul(u, eg_sub(g, eg__widen(eg__dot_last(g, a, inner), inner))),
                           eg_mul(g, eg__widen(eg__dot_last(u, a, inner), inner))),
                    of->scale);
}
static eg_tensor *softmax_slope_rows(eg_tensor *const *x)
{
    return softmax_slope(&softmax_slope_op, x[0], x[1], &(softmax_attr){ 1, 1 });
}
static eg_tensor *softmax_slope_scaled(eg_tensor *const *x)
{
    return softmax_slope(&softmax_slope_op, x[0], x[1], &(softmax_attr){ 1, .7 });
}
static const eg_sample softmax_slope_samples[] = { { softmax_slope_rows, "3x4, 3x4", 0, 0 },
                                                   { softmax_slope_scaled, "3x4, 3x4", 0, 0 },
                                                   { 0 } };
static const eg_op softmax_slope_op = {
    .name = "softmax_slope",
    .equation = "d = c y (g - sum g y)",
    .gradient = "dg = softmax_slope(y, u), dy = c u (g - sum g y) - c g sum u y",
    .arity = 2,
    .shape = softmax_shape,
    .forward = softmax_slope_forward,
    .rule = softmax_slope_rule,
    .uses = EG_USES_OPERANDS,
    .samples = softmax_slope_samples,
    .forward_c128 = softmax_slope_forward,
};
eg_tensor *eg__softmax_slope(eg_tensor *y, eg_tensor *g, int inner)
{
    return softmax_slope(&softmax_slope_op, y, g, &(softmax_attr){ inner, 1 });
}

/* -- the gradient of log-softmax: d = g − e^y Σ g, where g counts as 0 where y is −inf, dy = −u e^y
 * Σ g */
static const eg_op log_softmax_slope_op;
static void log_softmax_slope_c128(int64_t rows, char *const *p, const int64_t *step,
                                   const void *user)
{
    const int64_t n = ((const eg_row_facts *)user)->n;
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
    const eg_arithmetic *m = eg__arithmetic(y->dtype);
    return slope_run(y, m->log_softmax_slope, m->log_softmax_slope_across, log_softmax_slope_c128);
}
/* Returns x, with 0 where y is −inf. */
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
    const int inner = ((const softmax_attr *)y->attr)->inner;
    eg_tensor *a = y->in[0], *g = y->in[1];
    if (i == 1) return softmax_centered(a, u, inner);
    return eg_neg(
        eg_mul(eg_mul(u, eg_exp(a)), eg__widen(eg__sum_last(where_finite(a, g), inner), inner)));
}
static eg_tensor *log_softmax_slope_rows(eg_tensor *const *x)
{
    return softmax_slope(&log_softmax_slope_op, x[0], x[1], &(softmax_attr){ 1, 1 });
}
static const eg_sample log_softmax_slope_samples[] = { { log_softmax_slope_rows, "3x4, 3x4", 0, 0 },
                                                       { 0 } };
static const eg_op log_softmax_slope_op = {
    .name = "log_softmax_slope",
    .equation = "d = g - e^y sum g",
    .gradient = "dg = u - sum e^y u, dy = -u e^y sum g",
    .arity = 2,
    .shape = softmax_shape,
    .forward = log_softmax_slope_forward,
    .rule = log_softmax_slope_rule,
    .uses = EG_USES_OPERANDS,
    .samples = log_softmax_slope_samples,
    .forward_c128 = log_softmax_slope_forward,
};

/* -- softmax: y = e^cx / Σ e^cx,  dx = c y (g − Σ g y); c > 0 is the scale of attention, else 1 */
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
    const softmax_attr of = { inner, scale };
    return eg_apply(&softmax_op, &of, sizeof of, 1 + masks, x);
}
eg_tensor *eg__softmax_last(eg_tensor *x, eg_tensor *keep, int inner)
{
    return eg__softmax_kept((eg_tensor *[]){ x, keep }, keep != NULL, inner, 1);
}

/* -- log-softmax: y = x − ln Σ e^x,  dx = g − e^y Σ g, where g counts as 0 where y is −inf */
static bool log_softmax_forward(eg_tensor *y) { return softmax_run(y, true); }
static eg_tensor *log_softmax_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return softmax_slope(&log_softmax_slope_op, y, g, y->attr);
}
static eg_tensor *log_softmax_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    return softmax_centered(y, dx[0], ((const softmax_attr *)y->attr)->inner);
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
const eg_op *const eg__softmax_ops[] = { &softmax_op, &softmax_slope_op, &log_softmax_op,
                                         &log_softmax_slope_op, NULL };

bool eg__masks_letters(const eg_masking *o, int term, const char *which)
{
    const eg_bound *b = o->bound;
    if (!eg__no_repeats(b, term)) return false;
    for (int k = 0; k < b->term[term].items; k++) {
        int r = 0;
        while (r < o->rank && o->axis[r] != b->term[term].item[k].axis) r++;
        if (r < o->rank) continue;
        const eg_axis_name *a = &b->axis[b->term[term].item[k].axis];
        const bool of_values =
            o->values && eg__item_of(&b->term[o->values], b->term[term].item[k].axis) >= 0;
        eg__refuse(b, term, k, "index '%.*s' of %s is not an index of the scores%s", a->length,
                   a->text, which, of_values ? "; " EG_ONLY_VALUES : "");
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
    const int keep = o->keep >= 0 ? b->term[o->keep].x->dtype : EG_BOOL;
    if (eg__is_inexact(keep) || eg__is_half(keep))
        return eg_fail_as(
                   b->cx, EG_ERROR_DTYPE,
                   "%s: .keep is %s, but it must be bool or integer (non-zero = attend); numbers "
                   "to be added to the scores are a .bias",
                   b->who, eg_type_name((eg_dtype)keep)),
               false;
    return o->keep < 0 || eg__masks_letters(o, o->keep, ".keep");
}

/* -- softmax with masks: e^(x + bias), 0 where `where` or `keep` is false --------------------- */
static eg_tensor *softmax_masked(const eg_masking *o, eg_tensor *x, bool log)
{
    const eg_bound *b = o->bound;
    eg_tensor *operand[EG_ROW_OPERANDS - 1];
    eg_where_call where = { .cx = b->cx,
                            .who = b->who,
                            .text = o->where,
                            .with = o->with,
                            .was = o->was,
                            .rank = o->rank,
                            .keys = ~0u << (o->rank - o->inner),
                            .offset = o->offset,
                            .offset_letter = o->offset_letter };
    int n = 1;
    for (int r = 0; r < o->rank; r++) {
        where.name[r] = &b->axis[o->axis[r]];
        where.size[r] = where.name[r]->size;
    }
    if (!eg__masks_fit(o, (eg_dtype)x->dtype) || !eg__where_bind(&where))
        return eg_name_memory_error(b->cx, b->who);
    eg_tensor *bias = o->bias >= 0 ? eg__align(b, o->bias, o->rank, o->axis) : NULL, *given = x;
    if (bias && !eg_ok(bias)) return bias;
    if (bias) x = eg_add(x, bias);
    if (where.e && !(operand[n++] = eg__where_bools(&where, false)))
        return eg_name_memory_error(b->cx, b->who);
    if (o->keep >= 0) {
        eg_tensor *keep = b->term[o->keep].x;
        if (keep->dtype != EG_BOOL) keep = eg_cast(keep, EG_BOOL);
        if (!eg_ok(keep) || !(operand[n++] = eg__align_alias(b, keep, o->keep, o->rank, o->axis)))
            return eg__poison(b->cx);
    }
    if (bias && !eg__moderate(bias) &&
        !eg__moderate(given)) { /* NaN − inf is NaN, but −inf forbids */
        eg_tensor *allow = eg_ne(bias, eg_full_n(b->cx, (eg_dtype)bias->dtype, -INFINITY, 0, NULL));
        if (o->keep >= 0) allow = eg_and(operand[--n], allow);
        if (!eg_ok(allow)) return allow;
        operand[n++] = allow;
    }
    operand[0] = x;
    const softmax_attr of = { o->inner, 1 };
    return eg_apply(log ? &log_softmax_op : &softmax_op, &of, sizeof of, n, operand);
}

bool eg__mask_cast(eg_ctx *cx, const char *who, const char *option, eg_dtype floats, eg_masked *m)
{
    if (!m->x || !eg_ok(m->x) || !eg__is_storage(m->x->dtype)) return true;
    if (!eg__check_option(cx, who, option, NULL, EG_TAKES_ALL, m->x)) return false;
    if (eg__is_half(m->x->dtype) == !floats) return true;
    m->x = eg_cast(m->x, floats ? floats : EG_I32);
    return eg_ok(m->x);
}
const char *eg__masks_spec(eg_ctx *cx, const char *who, const char *spec, int count,
                           eg_mask_option *all, const char *names, eg_tensor **xs,
                           const char **called, int *n)
{
    const size_t head = (size_t)eg__arrow(spec);
    size_t size = strlen(spec) + (names ? strlen(names) : 0) + 8;
    for (int k = 0; k < count; k++) size += all[k].mask.axes ? strlen(all[k].mask.axes) + 1 : 0;
    char *out = eg__alloc(cx, size), *at = out;
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
        if (!eg__check_option(cx, who, all[k].option, NULL, EG_TAKES_ALL, m->x)) return NULL;
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

/* Checks the arguments of eg_softmax or eg_log_softmax (log), binds the spec with the masks, and
 * applies the operation. */
static eg_tensor *softmax(const char *who, const eg_softmax_args *given, bool log)
{
    eg_softmax_args o = { .size = sizeof o };
    eg_dtype was[EG_GIVEN_MAX];
    eg_options(&o, sizeof o, given);
    if (!eg__check(who, o.x)) return eg__poison_of(o.x);
    if (!o.spec) return eg_fail_as(o.x->cx, EG_ERROR_MISUSE, "%s: the spec is NULL", who);
    if (!eg__floats(who, o.x, 1) ||
        !eg__given_cast(eg__context_of(who, 1, &o.x), who, EG_DEFAULT, o.with, was))
        return eg__poison(o.x->cx);
    eg_ctx *cx = o.x->cx;
    if (!eg__mask_cast(cx, who, ".keep", EG_DEFAULT, &o.keep) ||
        !eg__mask_cast(cx, who, ".bias", (eg_dtype)o.x->dtype, &o.bias))
        return eg__poison(cx);
    eg_tensor *xs[3] = { o.x };
    const char *called[3] = { NULL };
    int n = 1;
    eg_mask_option masks[] = { { ".keep", o.keep, -1 }, { ".bias", o.bias, -1 } };
    const char *spec = eg__masks_spec(o.x->cx, who, o.spec, 2, masks, NULL, xs, called, &n);
    eg_masking m = { .where = o.where,
                     .with = o.with,
                     .was = was,
                     .offset = o.offset,
                     .offset_letter = o.offset_letter,
                     .keep = masks[0].term,
                     .bias = masks[1].term };
    eg_focus f;
    if (!spec ||
        !(m.bound = eg__bind_called(who, spec, EG_NOTATION_BRACKETS, n, xs, 0, NULL, called)) ||
        !eg__focus_bound(&f, m.bound, o.x))
        return eg__poison(o.x->cx);
    if (m.bound->arrow)
        return eg__refuse(m.bound, m.bound->terms, -1,
                          "the result has the operand's axes; it takes no output");
    uint16_t axis[EG_RANK_MAX];
    for (int k = 0; k < f.outer + f.inner; k++) axis[k] = m.bound->term[0].item[f.item[k]].axis;
    m.axis = axis;
    m.rank = f.outer + f.inner;
    m.inner = f.inner;
    return eg__focus_same(&f, softmax_masked(&m, f.x, log));
}
eg_tensor *eg_softmax_with(const eg_softmax_args *o) { return softmax("softmax", o, false); }
eg_tensor *eg_log_softmax_with(const eg_softmax_args *o) { return softmax("log_softmax", o, true); }
