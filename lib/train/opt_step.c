/* opt_step.c: a step of an optimiser: first all checks that may refuse it, then all that changes
 * values. */
#include <eingrad/grad.h>
#include <eingrad/train.h>
#include "opt.h"
#include "update.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* -- gradients: their checks and their norm ---------------------------------------------------- */
/* True if g has the shape and dtype of parameter k; else records an error. */
static bool opt_fits(eg_opt *op, int k, eg_tensor *g)
{
    if (!eg_ok(g) || eg_context(g) != op->cx) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: gradient %d is %s", op->kind->name, k + 1,
                   eg_ok(g) ? "of another context" : "no usable tensor");
        return false;
    }
    const eg_tensor *x = op->x[k];
    int r = 0;
    while (r < eg_rank(g) && r < eg_rank(x) && eg_dim(g, r) == eg_dim(x, r)) r++;
    if (eg_type(g) != eg_type(x))
        eg_fail_as(op->cx, EG_ERROR_DTYPE, "%s: gradient %d is %s, its parameter %s",
                   op->kind->name, k + 1, eg_type_name(eg_type(g)), eg_type_name(eg_type(x)));
    else if (eg_rank(g) != eg_rank(x))
        eg_fail_as(op->cx, EG_ERROR_SHAPE, "%s: gradient %d has rank %d, its parameter rank %d",
                   op->kind->name, k + 1, eg_rank(g), eg_rank(x));
    else if (r < eg_rank(x))
        eg_fail_as(op->cx, EG_ERROR_SHAPE,
                   "%s: axis %d of gradient %d has size %lld, of its parameter %lld",
                   op->kind->name, r, k + 1, (long long)eg_dim(g, r), (long long)eg_dim(x, r));
    else
        return true;
    return false;
}

/* Records an error: the gradient of parameter k is not finite. To name the operation that made it
 * so, runs the reverse sweep once more with tracing. */
static void not_finite(eg_opt *op, int k, double value)
{
    char origin[700] = "";
    if (op->loss || op->over) {
        bool was = eg_trace(op->cx, true);
        if (op->loss)
            eg_grad_or_null(op->loss, NULL, op->count, op->x, op->g);
        else
            eg__step_over_again(op);
        eg_trace(op->cx, was);
        if (eg_error(op->cx)) snprintf(origin, sizeof origin, ": %s", eg_error(op->cx));
        eg_clear(op->cx);
    }
    eg_fail_as(op->cx, EG_ERROR_MISUSE,
               "%s: the gradient of \"%s\" has a %g%s; the step is not done", op->kind->name,
               op->name[k], isnan(value) ? (double)NAN : value, origin);
}

/* True if each gradient fits its parameter; sets op->at. A gradient that is not row-major is copied
 * into the open scope. */
static bool opt_point(eg_opt *op, eg_tensor *const *g)
{
    for (int k = 0; k < op->count; k++) {
        op->at[k] = NULL;
        if (!g[k]) continue;
        if (!opt_fits(op, k, g[k])) return false;
        op->at[k] =
            eg_type(g[k]) == EG_F64 ? (const void *)eg_f64(g[k]) : (const void *)eg_f32(g[k]);
        if (!op->at[k]) return false;
    }
    return true;
}

/* Computes ‖g‖ after clipping by value, and the largest |g| before it: sums of squares over chunks,
 * then along the tree of all chunks, so that ranks can share the work. False after an error, also
 * if a gradient on another rank is not finite. */
static bool opt_measure(eg_opt *op, double limit, double *norm, double *largest)
{
    const eg_span all = { 0, op->first[op->count] };
    double most = 0;
    int reached = 0;
    for (int k = 0; k < op->count; k++) reached += op->at[k] != NULL;
    if (!reached) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE,
                   op->count == 1 ? "%s: the gradient is NULL"
                                  : "%s: each of the %d gradients is NULL",
                   op->kind->name, op->count);
        return false;
    }
    eg__opt_norms(op, limit, 1);
    if (!eg__opt_statistic(op, op->squares) || !eg__opt_statistic(op, op->largest)) return false;
    for (int k = 0; k < op->count; k++) {
        double of = 0; /* a NaN is reported before an infinity */
        for (int64_t c = op->first[k]; c < op->first[k + 1]; c++)
            of = isnan(of) || op->largest[c] < of ? of : op->largest[c];
        if (!isfinite(of)) {
            not_finite(op, k, of);
            return false;
        }
        most = fmax(most, of);
    }
    for (int k = 0; k < op->count; k++) {
        const eg_span own = { op->first[k], op->first[k + 1] };
        op->norms[k] = sqrt(own.to - own.from == 1 ? op->squares[own.from]
                                                   : eg_ranks_tree_total(op->squares, own));
    }
    double clipped = fmin(most, limit);
    *largest = most;
    *norm = isinf(op->o.norm_type) ? clipped : sqrt(eg_ranks_tree_total(op->squares, all));
    if (isinf(*norm)) { /* squares of finite numbers can overflow */
        eg__opt_norms(op, limit, 1 / clipped);
        if (!eg__opt_statistic(op, op->squares)) return false;
        *norm = clipped * sqrt(eg_ranks_tree_total(op->squares, all));
    }
    return !eg_error(op->cx);
}

/* True if the square of the largest |g| can be represented in the moments' dtype; else records an
 * error: a moment that overflowed would never let its parameter move again. */
static bool squares_fit(eg_opt *op, double largest)
{
    bool narrow = eg_type(op->x[0]) == EG_F32;
    if (!op->kind->squares || largest <= sqrt(narrow ? FLT_MAX : DBL_MAX)) return true;
    eg_fail_as(
        op->cx, EG_ERROR_MISUSE,
        "%s: a gradient has an element of %g, whose square overflows %s; the step is not done",
        op->kind->name, largest, narrow ? "f32" : "f64");
    return false;
}

/* -- the update ------------------------------------------------------------------------------- */
/* Checks all gradients, then counts the step and updates every parameter that has a gradient. False
 * after an error. */
static bool update_parameters(eg_opt *op)
{
    const eg_opt_args *o = &op->o;
    double limit = o->clip_value > 0 ? o->clip_value : INFINITY, norm, largest;
    if (!opt_measure(op, limit, &norm, &largest)) return false;
    double coef = o->clip_norm > 0 ? fmin(1, o->clip_norm / (norm + 1e-6)) : 1;
    if (!squares_fit(op, coef * fmin(largest, limit))) return false;
    int64_t *counts = eg_mut_i64(op->counts), *skipped = eg_mut_i64(op->skipped);
    if (!counts || !skipped || eg_error(op->cx)) return false;
    double lr = eg_item(op->lr) * eg_schedule_factor(&o->schedule, counts[COUNT_STEPS]);
    if (!isfinite(lr)) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the learning rate of step %lld is %g",
                   op->kind->name, (long long)counts[COUNT_STEPS] + 1, lr);
        return false;
    }
    op->norm = norm;
    counts[COUNT_STEPS]++;
    counts[COUNT_NORM_CLIPPED] += coef < 1;
    counts[COUNT_VALUE_CLIPPED] += largest > limit;
    for (int k = 0; k < op->count; k++) skipped[k] += !op->at[k];
    for (int k = 0, end; k < op->count; k = end) { /* parameters in their t-th step */
        const int64_t t = counts[COUNT_STEPS] - skipped[k];
        end = k + 1;
        if (!op->at[k]) continue;
        while (end < op->count && op->at[end] && counts[COUNT_STEPS] - skipped[end] == t) end++;
        const eg__coefficients c = eg__opt_coefficients(op, lr, limit, coef, t);
        if (!eg__opt_apply(op, &c, k, end)) return false;
    }
    return true;
}

/* Runs in the context's floating-point mode (eg_flush), like operations. Ranks meet before they
 * compare what they measured, and each has all parameters when it returns. */
int eg__opt_update(eg_opt *op, bool good, void *room)
{
    if (!eg__opt_agree(op, good)) return -1;
    const uint64_t begun = eg_flush_begin(op->cx);
    const bool done = update_parameters(op) && eg__opt_gather(op, room);
    eg_flush_end(begun);
    return done ? 0 : -1;
}

static int opt_host(void *args, int count, eg_tensor *const *g)
{
    eg_opt *op = *(eg_opt **)args;
    (void)count;
    return opt_point(op, g) ? eg__opt_update(op, true, NULL) : -1;
}
/* Updates with gradients that every rank has whole. good: this rank has no error so far. Returns 0;
 * −1 after an error. */
static int update(eg_opt *op, bool good, eg_tensor *const *g)
{
    if (!op->ranks) return good ? eg_host_call(op->cx, opt_host, &op, sizeof op, op->count, g) : -1;
    char *room = NULL;
    eg_owner *owner = eg_owner_open(op->cx);
    good = good && opt_point(op, g) && (op->tree = eg__opt_tree(op, op->ranks, owner, &room));
    const int bad = eg__opt_update(op, good, room);
    eg_ranks_tree_close(op->tree);
    eg_owner_close(owner);
    op->tree = NULL;
    return eg__opt_agree(op, !bad) ? 0 : -1;
}

/* -- parameters with copies ------------------------------------------------------------------- */
/* True if g[k] is a gradient of parameter k with the same copies; then sets each copy's optimiser
 * to its part. Else records an error. */
static bool opt_point_each(eg_opt *op, int k, eg_tensor *g, int64_t copies)
{
    if (g && !opt_fits(op, k, g)) return false;
    if (g && eg_copies_of(g) != eg_copies_of(op->x[k])) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: gradient %d has not the copies of its parameter",
                   op->kind->name, k + 1);
        return false;
    }
    eg_tensor *all = g ? eg_copies_stack(g) : NULL;
    const bool wide = g && eg_type(g) == EG_F64;
    const char *at = !g     ? NULL
                     : wide ? (const char *)(const void *)eg_f64(all)
                            : (const char *)(const void *)eg_f32(all);
    const int64_t bytes = g ? eg_size(g) * (wide ? 8 : 4) : 0;
    if (g && !at) return false;
    for (int64_t c = 0; c < copies; c++) op->each[c]->at[k] = g ? at + c * bytes : NULL;
    return true;
}
/* Does each copy's step with its part of the gradients. Afterwards the parameters count as written
 * to. Returns 0; −1 after an error. */
static int each_host(void *args, int count, eg_tensor *const *g)
{
    eg_opt *op = *(eg_opt **)args;
    const int64_t copies = eg_copies_count(eg_copies_of(op->x[0]));
    const bool was = eg_nograd(op->cx, true);
    bool good = true;
    for (int k = 0; good && k < count; k++) good = opt_point_each(op, k, g[k], copies);
    for (int64_t c = 0; good && c < copies; c++)
        if (eg__opt_update(op->each[c], true, NULL)) {
            eg_fail_in(op->cx, "copy %lld", (long long)c);
            good = false;
        }
    for (int k = 0; k < op->count && !eg_error(op->cx); k++) { /* the copies' numbers changed */
        eg_tensor *all = eg_copies_stack(op->x[k]);
        if (eg_type(all) == EG_F64)
            (void)eg_mut_f64(all);
        else
            (void)eg_mut_f32(all);
    }
    eg_nograd(op->cx, was);
    return good ? 0 : -1;
}
static int update_each(eg_opt *op, bool good, eg_tensor *const *g)
{
    return good ? eg_host_call(op->cx, each_host, &op, sizeof op, op->count, g) : -1;
}

/* -- what the user calls ---------------------------------------------------------------------- */
int eg_step_by(eg_opt *op, eg_tensor *const *gradients)
{
    if (!op) {
        eg_fail_as(NULL, EG_ERROR_MISUSE, "step: the optimiser is NULL");
        return -1;
    }
    bool good = !eg_error(op->cx);
    if (good && !gradients) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the list of gradients is NULL", op->kind->name);
        good = false;
    }
    eg_mark m = eg_push(op->cx);
    int bad = op->each ? update_each(op, good, gradients) : update(op, good, gradients);
    eg_pop(op->cx, m);
    return bad;
}

/* Refuses a loss that is not finite. In the run of a captured step the error cannot name the
 * operation that made it. */
static int loss_host(void *args, int count, eg_tensor *const *x)
{
    eg_opt *op = *(eg_opt **)args;
    (void)count;
    const double value = eg_item(x[0]), shown = isnan(value) ? (double)NAN : value; /* no "-nan" */
    if (isfinite(value) || eg_error(op->cx)) return eg_error(op->cx) != NULL;
    if (op->loss)
        eg_fail_as(op->cx, EG_ERROR_MISUSE,
                   "%s: the loss is %g, which comes from %s; the step is not done", op->kind->name,
                   shown, eg_origin(eg_first_nonfinite(op->loss)));
    else
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the loss is %g; the step is not done",
                   op->kind->name, shown);
    return -1;
}
/* The same for the loss of each copy. */
static int losses_host(void *args, int count, eg_tensor *const *x)
{
    eg_opt *op = *(eg_opt **)args;
    const bool was = eg_nograd(op->cx, true);
    const int64_t copies = eg_copies_count(eg_copies_of(x[0]));
    eg_tensor *all = eg_reshape_n(eg_copies_stack(x[0]), 1, &copies);
    const double *f64 = eg_type(all) == EG_F64 ? eg_f64(all) : NULL;
    const float *f32 = eg_type(all) == EG_F32 ? eg_f32(all) : NULL;
    (void)count;
    for (int64_t k = 0; (f64 || f32) && k < copies; k++) {
        const double one = f64 ? f64[k] : f32[k];
        if (!isfinite(one) && !eg_error(op->cx))
            eg_fail_as(op->cx, EG_ERROR_MISUSE,
                       "%s: the loss of copy %lld is %g; the step is not done", op->kind->name,
                       (long long)k, isnan(one) ? (double)NAN : one);
    }
    eg_nograd(op->cx, was);
    return eg_error(op->cx) != NULL;
}
/* True if the loss is finite; else records an error. True also if it is not a single float, which
 * eg_grad refuses. */
static bool loss_is_finite(eg_opt *op, eg_tensor *loss)
{
    if (eg_size(loss) != 1 || (eg_type(loss) != EG_F32 && eg_type(loss) != EG_F64)) return true;
    if (eg_copies_of(loss)) return !eg_host_call(op->cx, losses_host, &op, sizeof op, 1, &loss);
    op->loss = loss;
    const int bad = eg_host_call(op->cx, loss_host, &op, sizeof op, 1, &loss);
    op->loss = NULL;
    return !bad;
}

/* True if the loss can be differentiated by the parameters; else records an error. */
static bool loss_fits(eg_opt *op, eg_tensor *loss)
{
    if (eg_error(op->cx)) return false;
    if (!loss)
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the loss is NULL", op->kind->name);
    else if (eg_context(loss) != op->cx)
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the loss belongs to another context",
                   op->kind->name);
    if (!eg_error(op->cx) && op->each && eg_copies_of(loss) != eg_copies_of(op->x[0]))
        eg_fail_as(op->cx, EG_ERROR_MISUSE,
                   "%s: the loss has not the copies of the parameters: what made it reads none of "
                   "them, or added them up",
                   op->kind->name);
    return !eg_error(op->cx) && loss_is_finite(op, loss);
}

/* Gradients and update in one scope, so that all temporaries are freed with it. */
int eg_step(eg_opt *op, eg_tensor *loss)
{
    char reason[700];
    if (!op) {
        eg_fail_as(loss ? eg_context(loss) : NULL, EG_ERROR_MISUSE, "step: the optimiser is NULL");
        return -1;
    }
    eg_mark m = eg_push(op->cx);
    bool was = eg_nograd(op->cx, true);
    const bool fits = loss_fits(op, loss),
               good = fits && !eg_grad_or_null(loss, NULL, op->count, op->x, op->g);
    if (fits && !good && !strncmp(eg_error(op->cx), "grad: y", 7)) {
        const eg_code code = eg_error_code(op->cx);
        snprintf(reason, sizeof reason, "%s", eg_error(op->cx));
        eg_clear(op->cx);
        eg_fail_as(op->cx, code, "%s: the loss has no gradient: %s", op->kind->name, reason);
    }
    op->loss = loss; /* not_finite differentiates it again */
    const int bad = op->each ? update_each(op, good, op->g) : update(op, good, op->g);
    op->loss = NULL;
    eg_nograd(op->cx, was);
    eg_pop(op->cx, m);
    return bad;
}
