/* opt_step.c: a step of an optimiser: first all checks that may refuse it, then everything that
 * changes values. */
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
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: gradient %d is %s", op->kind->name, op->own[k] + 1,
                   eg_ok(g) ? "of another context" : "no usable tensor");
        return false;
    }
    const eg_tensor *x = op->x[k];
    const int rank = eg_rank(x);
    const bool alike = eg_type(g) == eg_type(x) && eg_rank(g) == rank;
    if (alike && !memcmp(eg_dims(g), eg_dims(x), (size_t)rank * sizeof(int64_t))) return true;
    int r = 0;
    while (alike && r < rank && eg_dim(g, r) == eg_dim(x, r)) r++;
    if (eg_type(g) != eg_type(x))
        eg_fail_as(op->cx, EG_ERROR_DTYPE, "%s: gradient %d is %s, its parameter %s",
                   op->kind->name, op->own[k] + 1, eg_type_name(eg_type(g)),
                   eg_type_name(eg_type(x)));
    else if (eg_rank(g) != eg_rank(x))
        eg_fail_as(op->cx, EG_ERROR_SHAPE, "%s: gradient %d has rank %d, its parameter rank %d",
                   op->kind->name, op->own[k] + 1, eg_rank(g), rank);
    else
        eg_fail_as(op->cx, EG_ERROR_SHAPE,
                   "%s: axis %d of gradient %d has size %lld, of its parameter %lld",
                   op->kind->name, r, op->own[k] + 1, (long long)eg_dim(g, r),
                   (long long)eg_dim(x, r));
    return false;
}

/* Records the error that the gradient of parameter k is not finite. To name the operation that
 * computed it, runs the backward pass again with tracing. */
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
    eg_fail_as(op->cx, EG_ERROR_NONFINITE,
               "%s: the gradient of \"%s\" has a %g%s; the step is not done", op->kind->name,
               op->name[k], isnan(value) ? (double)NAN : value, origin);
}

/* True if each gradient fits its parameter and has its copies; sets op->at to the first copy's
 * numbers. A gradient that is not row-major is copied into the open scope. */
static bool opt_point(eg_opt *op, eg_tensor *const *gradient)
{
    for (int k = 0; k < op->count; k++) {
        eg_tensor *g = gradient[k];
        op->at[k] = NULL;
        if (!g) continue;
        if (!opt_fits(op, k, g)) return false;
        if (op->each && eg_copies_of(g) != eg_copies_of(op->x[k])) {
            eg_fail_as(op->cx, EG_ERROR_MISUSE,
                       "%s: gradient %d does not have the copies of its parameter", op->kind->name,
                       op->own[k] + 1);
            return false;
        }
        if (op->each) g = eg_copies_stack(g);
        op->at[k] = eg_type(g) == EG_F64 ? (const void *)eg_f64(g) : (const void *)eg_f32(g);
        if (!op->at[k]) return false;
    }
    return true;
}

/* Measures the gradients of copy c again, scaled: their squares overflow. False after an error. */
static bool measure_again(eg_opt *op, int64_t c, double limit, double scale)
{
    eg_opt *one = eg__opt_at(op, c);
    for (int k = 0; k < op->count && op->each; k++) {
        const int64_t at = c * op->size[k];
        one->at[k] = !op->at[k]    ? NULL
                     : op->wide[k] ? (const void *)((const double *)op->at[k] + at)
                                   : (const void *)((const float *)op->at[k] + at);
    }
    eg__opt_norms(one, limit, scale);
    return eg__opt_statistic(one, one->squares);
}
/* Sets the norm of each parameter's gradient: unit · √(sum of squares). */
static void opt_norms_of(eg_opt *op, double unit)
{
    for (int k = 0; k < op->count; k++) {
        const eg_span own = { op->first[k], op->first[k + 1] };
        op->norms[k] = unit * sqrt(own.to - own.from == 1 ? op->squares[own.from]
                                                          : eg_ranks_tree_total(op->squares, own));
    }
}
/* Computes ‖g‖ of copy c after clipping by value, and the largest |g| before it, from the sums of
 * squares of chunks, which are added along the tree of all chunks, so that ranks can share the
 * work. False after an error, also if a gradient on another rank is not finite. */
static bool opt_measure(eg_opt *group, int64_t c, double limit)
{
    eg_opt *op = eg__opt_at(group, c);
    const eg_span all = { 0, op->first[op->count] };
    double most = 0;
    if (!eg__opt_statistic(op, op->squares) || !eg__opt_statistic(op, op->largest)) return false;
    for (int k = 0; k < op->count; k++) {
        double of = 0; /* a NaN is reported before an infinity */
        for (int64_t n = op->first[k]; n < op->first[k + 1]; n++)
            of = isnan(of) || op->largest[n] < of ? of : op->largest[n];
        if (!isfinite(of)) {
            not_finite(op, k, of);
            return false;
        }
        most = most < of ? of : most;
    }
    opt_norms_of(op, 1);
    const double clipped = fmin(most, limit);
    double norm = isinf(op->o.norm_type) ? clipped : sqrt(eg_ranks_tree_total(op->squares, all));
    if (isinf(norm)) { /* squares of finite numbers can overflow */
        /* 1/unit must not be subnormal, since such numbers count as 0 here */
        const double unit = fmin(clipped, 0x1p1000);
        if (!measure_again(group, c, limit, 1 / unit)) return false;
        norm = unit * sqrt(eg_ranks_tree_total(op->squares, all));
        opt_norms_of(op, unit);
    }
    op->found = (eg__opt_found){ .norm = norm, .largest = most };
    return !eg_error(op->cx);
}

/* True if the square of the largest |g| can be represented in the moments' dtype; else records an
 * error: with an infinite moment a parameter would never change again. */
static bool squares_fit(eg_opt *op, double largest)
{
    const bool narrow = !op->wide[0];
    if (!op->kind->squares || largest <= sqrt(narrow ? FLT_MAX : DBL_MAX)) return true;
    eg_fail_as(
        op->cx, EG_ERROR_MISUSE,
        "%s: a gradient has an element of %g, whose square overflows %s; the step is not done",
        op->kind->name, largest, narrow ? "f32" : "f64");
    return false;
}

/* -- the update ------------------------------------------------------------------------------- */
static double opt_limit(const eg_opt *op)
{
    return op->o.clip_value > 0 ? op->o.clip_value : INFINITY;
}
/* True if the numbers in the update of parameter k are finite in its dtype; else records an error:
 * an infinity times a gradient of 0 is NaN. */
static bool opt_rates_fit(eg_opt *op, int k, const void *const *at)
{
    const int64_t *skipped = op->found.skipped, t = op->found.counts[COUNT_STEPS] + 1;
    const bool narrow = !op->wide[k];
    const double most = narrow ? FLT_MAX : DBL_MAX;
    if (!at[k] || op->kind->rule) return true; /* a rule gets them in f64 */
    if (k && at[k - 1] && op->wide[k] == op->wide[k - 1] && skipped[k] == skipped[k - 1] &&
        !memcmp(&op->of[k], &op->of[k - 1], sizeof *op->of))
        return true; /* those of the parameter before it */
    const eg__coefficients c =
        eg__opt_coefficients(op, op->of[k], op->found.lr, INFINITY, 1, t - skipped[k]);
    const struct {
        const char *name;
        double value;
    } all[] = { { "the learning rate", c.eta },
                { "weight_decay", c.l2 },
                { "1 - lr weight_decay", c.shrink },
                { "momentum", op->o.momentum } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(fabs(all[i].value) <= most))
            return eg_fail_as(op->cx, EG_ERROR_MISUSE,
                              "%s: %s of \"%s\" in step %lld is %g, which overflows %s; the step "
                              "is not done",
                              op->kind->name, all[i].name, op->name[k], (long long)t, all[i].value,
                              narrow ? "f32" : "f64"),
                   false;
    return true;
}
/* Checks all that may refuse the step of copy c, and sets found. False after an error. */
static bool opt_check(eg_opt *group, int64_t c)
{
    eg_opt *op = eg__opt_at(group, c);
    const eg_opt_args *o = &op->o;
    const double limit = opt_limit(op);
    if (!opt_measure(group, c, limit)) return false;
    eg__opt_found *f = &op->found;
    f->coef = o->clip_norm > 0 ? fmin(1, o->clip_norm / (f->norm + 1e-6)) : 1;
    if (!squares_fit(op, f->coef * fmin(f->largest, limit))) return false;
    f->counts = eg_mut_i64(op->counts), f->skipped = eg_mut_i64(op->skipped);
    if (!f->counts || !f->skipped || eg_error(op->cx)) return false;
    f->lr = eg_item(op->lr) * eg_schedule_factor(&o->schedule, f->counts[COUNT_STEPS]);
    if (!isfinite(f->lr))
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the learning rate of step %lld is %g",
                   op->kind->name, (long long)f->counts[COUNT_STEPS] + 1, f->lr);
    for (int k = 0; k < op->count && !eg_error(op->cx); k++) opt_rates_fit(op, k, group->at);
    return !eg_error(op->cx);
}
/* Counts the step of an optimiser without copies, and sets the numbers of its update: parameters in
 * their t-th step with the same options have the same ones. at: as in the group. */
static void opt_count_step(eg_opt *op, const void *const *at)
{
    const eg__opt_found f = op->found;
    const double limit = opt_limit(op);
    const eg__opt_options *of = NULL;
    int64_t *counts = f.counts, *skipped = f.skipped, t = 0;
    op->norm = f.norm;
    counts[COUNT_STEPS]++;
    counts[COUNT_NORM_CLIPPED] += f.coef < 1;
    counts[COUNT_VALUE_CLIPPED] += f.largest > limit;
    for (int k = 0, same = -1; k < op->count; k++) {
        if (!at[k]) {
            skipped[k]++;
            continue;
        }
        if (!of || counts[COUNT_STEPS] - skipped[k] != t || memcmp(of, &op->of[k], sizeof *of)) {
            t = counts[COUNT_STEPS] - skipped[k], of = &op->of[k];
            op->c[++same] = eg__opt_coefficients(op, *of, f.lr, limit, f.coef, t);
        }
        op->same[k] = same;
    }
}
/* Takes back what opt_count_step counted. */
static void opt_uncount_step(eg_opt *op, const void *const *at)
{
    int64_t *counts = op->found.counts;
    counts[COUNT_STEPS]--;
    counts[COUNT_NORM_CLIPPED] -= op->found.coef < 1;
    counts[COUNT_VALUE_CLIPPED] -= op->found.largest > opt_limit(op);
    for (int k = 0; k < op->count; k++) op->found.skipped[k] -= !at[k];
}
/* Checks all gradients of all copies, then counts the step and updates every parameter that has a
 * gradient. False after an error. */
static bool update_parameters(eg_opt *op)
{
    int reached = 0;
    for (int k = 0; k < op->count; k++) reached += op->at[k] != NULL;
    if (!reached) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE,
                   op->count == 1 ? "%s: the gradient is NULL"
                                  : "%s: each of the %d gradients is NULL",
                   op->kind->name, op->count);
        return false;
    }
    eg__opt_norms(op, opt_limit(op), 1);
    for (int64_t c = 0; c < op->copies; c++)
        if (!opt_check(op, c)) {
            if (op->each) eg_fail_in(op->cx, "copy %lld", (long long)c);
            return false;
        }
    if (!eg__opt_targets(op)) return false;
    for (int64_t c = 0; c < op->copies; c++) opt_count_step(eg__opt_at(op, c), op->at);
    if (eg__opt_apply(op)) return true;
    for (int64_t c = 0; c < op->copies; c++) opt_uncount_step(eg__opt_at(op, c), op->at);
    return false;
}

/* Subnormal numbers count as 0, whether eg_flush is on or not: a moment whose gradient stays 0, as
 * that of a rare token, decays by a factor at each step, is subnormal after some 700 steps, and
 * never becomes 0 by rounding; an Intel processor then takes 6 to 8 times as long for it. Ranks
 * agree that they have no error before they compare their norms, and each has all parameters when
 * the function returns. */
int eg__opt_update(eg_opt *op, bool good, void *memory)
{
    if (!eg__opt_agree(op, good)) return -1;
    const bool flush = eg_flush(op->cx, true);
    const uint64_t begun = eg_flush_begin(op->cx);
    const bool done = update_parameters(op) && eg__opt_gather(op, memory);
    eg_flush_end(begun);
    eg_flush(op->cx, flush);
    return done ? 0 : -1;
}

static int opt_host(void *args, int count, eg_tensor *const *g)
{
    eg_opt *op = *(eg_opt **)args;
    (void)count;
    const bool was = eg_nograd(op->cx, true);
    const int bad = opt_point(op, g) ? eg__opt_update(op, true, NULL) : -1;
    eg_nograd(op->cx, was);
    return bad;
}
/* Updates with gradients that every rank has completely. good: this rank has no error so far.
 * Returns 0; −1 after an error. */
static int update(eg_opt *op, bool good, eg_tensor *const *g)
{
    if (!op->ranks) return good ? eg_host_call(op->cx, opt_host, &op, sizeof op, op->count, g) : -1;
    char *memory = NULL;
    good = good && opt_point(op, g) && (op->tree = eg__opt_tree(op, op->ranks, &memory));
    const int bad = eg__opt_update(op, good, memory);
    eg_ranks_tree_close(op->tree);
    op->tree = NULL;
    return eg__opt_agree(op, !bad) ? 0 : -1;
}

/* -- what the user calls ---------------------------------------------------------------------- */
int eg__opt_step(eg_opt *op)
{
    eg_mark m = eg_push(op->cx);
    int bad = update(op, !eg_error(op->cx), op->g);
    eg_pop(op->cx, m);
    return bad;
}
int eg_step_by(eg_opt *op, eg_tensor *const *gradients)
{
    if (!op) {
        eg_fail_as(NULL, EG_ERROR_MISUSE, "step: the optimiser is NULL");
        return -1;
    }
    if (!eg_error(op->cx) && !gradients)
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the list of gradients is NULL", op->kind->name);
    for (int k = 0; gradients && k < op->count; k++) {
        op->g[k] = gradients[op->own[k]];
        if (op->g[k] && !eg_ok(op->g[k]))
            eg_fail_as(op->cx, EG_ERROR_MISUSE,
                       "%s: the gradient of \"%s\" failed, or its scope was popped", op->kind->name,
                       eg_params_at(op->o.params, op->own[k])->name);
    }
    const eg_mark m = eg_push(op->cx);
    const bool good = eg__opt_alike(op, eg__opt_group(op), !eg_error(op->cx));
    const int bad = update(op, good, op->g);
    eg_pop(op->cx, m);
    return bad;
}

/* Refuses a loss that is not finite. In the run of a captured step the error cannot name the
 * operation that computed it. */
static int loss_host(void *args, int count, eg_tensor *const *x)
{
    eg_opt *op = *(eg_opt **)args;
    (void)count;
    const double value = eg_item(x[0]), shown = isnan(value) ? (double)NAN : value; /* not "-nan" */
    if (isfinite(value) || eg_error(op->cx)) return eg_error(op->cx) != NULL;
    if (op->loss)
        eg_fail_as(op->cx, EG_ERROR_NONFINITE,
                   "%s: the loss is %g, which comes from %s; the step is not done", op->kind->name,
                   shown, eg_origin(eg_first_nonfinite(op->loss)));
    else
        eg_fail_as(op->cx, EG_ERROR_NONFINITE, "%s: the loss is %g; the step is not done",
                   op->kind->name, shown);
    return -1;
}
/* As loss_host, for the loss of each copy. */
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
            eg_fail_as(op->cx, EG_ERROR_NONFINITE,
                       "%s: the loss of copy %lld is %g, which comes from %s; the step is not done",
                       op->kind->name, (long long)k, isnan(one) ? (double)NAN : one,
                       eg_origin(eg_first_nonfinite(x[0])));
    }
    eg_nograd(op->cx, was);
    return eg_error(op->cx) != NULL;
}
/* True if the loss is finite; else records an error. Also true if it is not a single float, which
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
                   "%s: the loss does not have the copies of the parameters: it depends on none of "
                   "them, or adds them up",
                   op->kind->name);
    if (!eg_error(op->cx) && eg_ok(loss) && eg_size(loss) != 1)
        eg_fail_as(op->cx, EG_ERROR_SHAPE,
                   "%s: the loss has %lld elements, not one: reduce it, as by eg_mean(NULL, loss)",
                   op->kind->name, (long long)eg_size(loss));
    return !eg_error(op->cx) && loss_is_finite(op, loss);
}

/* Called after eg_grad_of_loss failed. If the loss depends on none of the optimiser's parameters,
 * but on another one of the list, the error names that one. */
static void name_foreign_parameter(const eg_opt *op, eg_tensor *loss)
{
    char error[1024];
    const int listed = eg_params_count(op->o.params);
    if (eg_error_code(op->cx) != EG_ERROR_MISUSE || op->count == listed) return;
    snprintf(error, sizeof error, "%s", eg_error(op->cx));
    eg_clear(op->cx);
    bool reached = false;
    const eg_named *foreign = NULL;
    for (int k = 0; k < op->count && !reached; k++)
        reached = eg_path_to(loss, op->x[k], NULL) == EG_OPEN_PATH;
    for (int k = 0, own = 0; k < listed && !reached && !foreign; k++) {
        const eg_named *one = eg_params_at(op->o.params, k);
        if (own < op->count && op->own[own] == k)
            own++;
        else if (eg_path_to(loss, one->x, NULL) == EG_OPEN_PATH)
            foreign = one;
    }
    char none[64] = "not on its parameter";
    if (op->count != 1) snprintf(none, sizeof none, "on none of its %d parameters", op->count);
    if (foreign)
        eg_fail_as(
            op->cx, EG_ERROR_MISUSE,
            "%s: the loss depends on \"%s\", which the optimiser does not have, and %s; it has "
            "those that its list had when it was made, without frozen ones",
            op->kind->name, foreign->name, none);
    else
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s", error);
}
/* Gradients and update are in one scope, so that all temporaries are freed with it. */
int eg_step(eg_opt *op, eg_tensor *loss)
{
    if (!op) {
        eg_fail_as(loss ? eg_context(loss) : NULL, EG_ERROR_MISUSE, "step: the optimiser is NULL");
        return -1;
    }
    eg_mark m = eg_push(op->cx);
    bool was = eg_nograd(op->cx, true);
    eg_ranks *r = loss ? eg_ranks_of(loss) : NULL;
    bool good = loss_fits(op, loss);
    if (r) good = !eg_ranks_barrier(r) && good; /* the gradients of other ranks wait for this one */
    if (good && eg_grad_of_loss(op->kind->name, loss, op->count, op->x, op->g)) {
        name_foreign_parameter(op, loss);
        good = false;
    }
    op->loss = loss; /* not_finite differentiates it again */
    good = eg__opt_alike(op, r ? r : eg__opt_group(op), good);
    const int bad = update(op, good, op->g);
    op->loss = NULL;
    eg_nograd(op->cx, was);
    eg_pop(op->cx, m);
    return bad;
}
