/* opt.c: optimisers and schedules. Moments are made with the optimiser and live as long as the
 * parameters. */
#include <eingrad/grad.h>
#include <eingrad/train.h>
#include "opt.h"
#include "update.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* -- schedules -------------------------------------------------------------------------------- */
static double opt_clamp(double t) { return t < 0 ? 0 : t < 1 ? t : 1; }
/* How much of the way from the warm-up to the end is done, in [0, 1]. */
static double opt_share(const eg_schedule *s, double k)
{
    double way = (double)s->steps - (double)s->warmup;
    return way > 0 ? opt_clamp(k / way) : 0;
}
/* The factor after a share t of the way from 1 to `last`. */
static double towards(const eg_schedule *s, double t)
{
    return s->last == EG_OFF ? 1 - t : s->last + (1 - s->last) * (1 - t);
}

static double opt_constant(const eg_schedule *s, double k)
{
    (void)s, (void)k;
    return 1;
}
static double opt_linear(const eg_schedule *s, double k) { return towards(s, opt_share(s, k)); }
static double cosine(const eg_schedule *s, double k)
{
    return towards(s, (1 - cos(acos(-1) * opt_share(s, k))) / 2);
}
static double exponential(const eg_schedule *s, double k)
{
    return s->gamma > 0 ? pow(s->gamma, k) : NAN;
}

static double noam(const eg_schedule *s, double k)
{
    double w = (double)s->warmup, step = k + w + 1;
    return w > 0 && s->d_model > 0
               ? fmin(pow(step, -0.5), step * pow(w, -1.5)) / sqrt((double)s->d_model)
               : NAN;
}

static double steps(const eg_schedule *s, double k)
{
    double times = s->step_size > 0 ? floor(k / (double)s->step_size) : 0;
    for (int m = 0; m < EG_MILESTONES && s->milestones[m] > 0; m++)
        times += (double)s->milestones[m] <= k;
    return pow(s->gamma > 0 ? s->gamma : 0.1, times);
}

/* How much of the decay of wsd is over, in [0, 1]. */
static double wsd_decayed(const eg_schedule *s, double k)
{
    double all = (double)s->steps, length = (double)s->decay_steps;
    length = length > 0 ? length : fmax(1, floor(all / 10));
    return opt_clamp((k + (double)s->warmup - (all - length)) / length);
}
static double wsd(const eg_schedule *s, double k) { return towards(s, wsd_decayed(s, k)); }
static double wsd_sqrt(const eg_schedule *s, double k)
{
    return towards(s, sqrt(wsd_decayed(s, k)));
}

static const struct decay {
    double (*factor)(const eg_schedule *, double k); /* k: steps since the warm-up */
    bool own_warmup;                                 /* else the warm-up is linear */
    bool ends;                                       /* reads `steps` and `last` */
} decays[] = {
    [EG_CONSTANT] = { opt_constant, false, false },
    [EG_LINEAR] = { opt_linear, false, true },
    [EG_COSINE] = { cosine, false, true },
    [EG_NOAM] = { noam, true, false },
    [EG_STEPS] = { steps, false, false },
    [EG_EXPONENTIAL] = { exponential, false, false },
    [EG_WSD] = { wsd, false, true },
    [EG_WSD_SQRT] = { wsd_sqrt, false, true },
};
enum { DECAYS = sizeof decays / sizeof *decays };

double eg_schedule_factor(const eg_schedule *s, int64_t step)
{
    if (!s) return 1;
    if ((int)s->decay < 0 || (int)s->decay >= DECAYS) return NAN;
    if (step < s->warmup && !decays[s->decay].own_warmup)
        return ((double)step + 1) / (double)s->warmup;
    return decays[s->decay].factor(s, (double)step - (double)s->warmup);
}

/* True after recording what is wrong with the schedule. */
static bool schedule_refused(eg_ctx *cx, const char *who, const eg_schedule *s)
{
    long long w = (long long)s->warmup, all = (long long)s->steps,
              decay = (long long)s->decay_steps;
    int marks = 0;
    while (marks < EG_MILESTONES && s->milestones[marks] > (marks ? s->milestones[marks - 1] : 0))
        marks++;
    bool rising = marks == EG_MILESTONES || s->milestones[marks] == 0;
    if ((int)s->decay < 0 || (int)s->decay >= DECAYS)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: schedule.decay is none of EG_CONSTANT, EG_LINEAR, EG_COSINE, EG_NOAM, "
                   "EG_STEPS, EG_EXPONENTIAL, EG_WSD, "
                   "EG_WSD_SQRT, but %d",
                   who, (int)s->decay);
    else if (w < 0 || all < 0 || (decays[s->decay].ends && all <= w))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: schedule.steps must be more than schedule.warmup; they are %lld and %lld",
                   who, all, w);
    else if (!isfinite(s->last))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: schedule.last must be a number, not %g", who, s->last);
    else if (!(s->gamma >= 0 && s->gamma < INFINITY) ||
             (s->decay == EG_EXPONENTIAL && !(s->gamma > 0)))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: schedule.gamma must be a number above 0, not %g", who,
                   s->gamma);
    else if (s->decay == EG_NOAM && (w < 1 || s->d_model < 1))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: EG_NOAM needs schedule.warmup and schedule.d_model; they are %lld and %lld",
                   who, w, (long long)s->d_model);
    else if (s->decay == EG_STEPS &&
             (s->step_size < 0 || !rising || (s->step_size > 0) == (marks > 0)))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: EG_STEPS needs either schedule.step_size or schedule.milestones that rise; "
                   "step_size is %lld, and %d "
                   "milestones rise",
                   who, (long long)s->step_size, marks);
    else if ((s->decay == EG_WSD || s->decay == EG_WSD_SQRT) && (decay < 0 || decay > all - w))
        eg_fail_as(
            cx, EG_ERROR_MISUSE,
            "%s: schedule.decay_steps must be at most the %lld steps after the warm-up, not %lld",
            who, all - w, decay);
    return eg_error(cx) != NULL;
}

/* -- kinds: a row each ------------------------------------------------------------------------ */
typedef struct eg__opt_kind {
    const char *name;
    const char *moment[EG__MOMENTS];          /* names of what a step keeps of each parameter */
    bool (*kept)(const eg_opt_args *, int m); /* true if moment m is needed; NULL: each is */
    eg__update_f32 *f32;
    eg__update_f64 *f64;
    double lr, eps, weight_decay; /* defaults */
    bool squares;                 /* a moment holds g² */
} kind;

static bool sgd_keeps(const eg_opt_args *o, int m)
{
    (void)m;
    return o->momentum > 0;
}
static bool adam_keeps(const eg_opt_args *o, int m) { return m < 2 || o->amsgrad; }
static bool rmsprop_keeps(const eg_opt_args *o, int m)
{
    return m == 0 || (m == 1 ? o->momentum > 0 : o->centered);
}

static const kind sgd = {
    "sgd", { "u" }, sgd_keeps, eg__sgd_f32, eg__sgd_f64, 1e-3, 1e-8, 0, false
};
static const kind adam = {
    "adam", { "m", "v", "vmax" }, adam_keeps, eg__adam_f32, eg__adam_f64, 1e-3, 1e-8, 0, true
};
static const kind adamw = {
    "adamw", { "m", "v", "vmax" }, adam_keeps, eg__adam_f32, eg__adam_f64, 1e-3, 1e-8, 0.01, true
};
static const kind rmsprop = {
    "rmsprop", { "v", "u", "m" }, rmsprop_keeps, eg__rmsprop_f32, eg__rmsprop_f64, 1e-2, 1e-8, 0,
    true
};
static const kind adagrad = { "adagrad", { "v" }, NULL, eg__adagrad_f32, eg__adagrad_f64, 1e-2,
                              1e-10,     0,       true };

enum { STEPS, NORM_CLIPPED, VALUE_CLIPPED, COUNTS };

/* True after recording which option is wrong. */
static bool opt_refused(eg_ctx *cx, const char *who, const eg_opt_args *o)
{
#define AT(name) offsetof(eg_opt_args, name)
    static const struct {
        const char *text;
        size_t at;
        double below;
    } ranges[] = {
        /* 0 ≤ x < below */
        { "lr must not be negative", AT(lr), INFINITY },
        { "momentum must not be negative", AT(momentum), INFINITY },
        { "dampening must not be negative", AT(dampening), INFINITY },
        { "beta1 must be in [0, 1)", AT(beta1), 1 },
        { "beta2 must be in [0, 1)", AT(beta2), 1 },
        { "eps must not be negative", AT(eps), INFINITY },
        { "weight_decay must not be negative", AT(weight_decay), INFINITY },
        { "clip_norm must not be negative", AT(clip_norm), INFINITY },
        { "clip_value must not be negative", AT(clip_value), INFINITY },
        { "alpha must be in [0, 1)", AT(alpha), 1 },
        { "lr_decay must not be negative", AT(lr_decay), INFINITY },
        { "initial_accumulator_value must not be negative", AT(initial_accumulator_value),
          INFINITY },
    };
#undef AT
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        double value;
        memcpy(&value, (const char *)o + ranges[k].at, sizeof value);
        if (!(value >= 0 && value < ranges[k].below))
            return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s, not %g", who, ranges[k].text, value),
                   true;
    }
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: nesterov needs momentum and no dampening; they are %g and %g", who,
                   o->momentum, o->dampening);
    else if (!(o->norm_type <= 2 && o->norm_type >= 2) &&
             !(o->norm_type > 0 && isinf(o->norm_type)))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: norm_type must be 2 or INFINITY, not %g", who,
                   o->norm_type);
    return eg_error(cx) || schedule_refused(cx, who, &o->schedule);
}

/* Makes the moment of a parameter, zeros of its shape, and adds it to the state that is saved.
 * Moments have an owner of their own, since ranks that divide them keep others. */
static bool opt_remember(eg_opt *op, eg_params *p, const char *moment, const eg_named *of,
                         eg_tensor **x)
{
    size_t room = strlen(moment) + strlen(of->name) + 8;
    char *name = eg_params_alloc(p, room);
    *x = name ? eg_owner_tensor(op->held, eg_type(of->x), eg_rank(of->x), eg_dims(of->x)) : NULL;
    if (!eg_ok(*x)) return false;
    snprintf(name, room, "opt.%s.%s", moment, of->name);
    op->state[op->states++] = (eg_named){ name, of->axes, *x };
    return true;
}

static void fill_defaults(const kind *row, eg_opt_args *o)
{
    o->lr = eg_option(o->lr, row->lr), o->momentum = eg_option(o->momentum, 0),
    o->dampening = eg_option(o->dampening, 0);
    o->beta1 = eg_option(o->beta1, 0.9), o->beta2 = eg_option(o->beta2, 0.999),
    o->eps = eg_option(o->eps, row->eps);
    o->weight_decay = eg_option(o->weight_decay, row->weight_decay),
    o->clip_norm = eg_option(o->clip_norm, 0);
    o->clip_value = eg_option(o->clip_value, 0), o->schedule.last = eg_option(o->schedule.last, 0);
    o->alpha = eg_option(o->alpha, 0.99), o->lr_decay = eg_option(o->lr_decay, 0),
    o->norm_type = eg_option(o->norm_type, 2);
    o->initial_accumulator_value = eg_option(o->initial_accumulator_value, 0);
}

/* "opt.counts", "opt.lr", "opt.skipped", then each parameter's moments */
static bool make_state(eg_opt *op)
{
    eg_params *p = op->o.params;
    eg_owner *owner = eg_params_owner(p);
    op->counts = eg_owner_tensor(owner, EG_I64, 1, (int64_t[]){ COUNTS });
    op->lr = eg_owner_tensor(owner, EG_F64, 0, NULL);
    op->skipped = eg_owner_tensor(owner, EG_I64, 1, (int64_t[]){ op->count });
    op->state[op->states++] = (eg_named){ "opt.counts", "c", op->counts };
    op->state[op->states++] = (eg_named){ "opt.lr", "", op->lr };
    op->state[op->states++] = (eg_named){ "opt.skipped", "k", op->skipped };
    op->held = eg_owner_beside(owner);
    if (!op->held || eg_fill(op->lr, op->o.lr)) return false;
    for (int k = 0; k < op->count; k++) {
        const eg_named *one = eg_params_at(p, k);
        op->x[k] = one->x, op->name[k] = one->name;
        op->first[k + 1] = op->first[k] + (eg_size(one->x) + EG__CHUNK - 1) / EG__CHUNK;
        for (int m = 0; m < EG__MOMENTS && op->kind->moment[m]; m++)
            if ((!op->kind->kept || op->kind->kept(&op->o, m)) &&
                !opt_remember(op, p, op->kind->moment[m], one, &op->moment[m][k]))
                return false;
        if (op->kind == &adagrad && eg_fill(op->moment[0][k], op->o.initial_accumulator_value))
            return false;
    }
    op->norms = eg_params_alloc(p, (size_t)(op->count + 1) * sizeof *op->norms);
    op->squares = op->norms
                      ? eg_params_alloc(p, (size_t)op->first[op->count] * 2 * sizeof *op->squares)
                      : NULL;
    op->largest = op->squares ? op->squares + op->first[op->count] : NULL;
    return op->norms && (op->squares || !op->first[op->count]);
}

/* Makes an optimiser of the row's kind with all that its steps need. */
static eg_opt *open_kind(const kind *row, const eg_opt_args *given)
{
    enum { ARRAYS = 2 + EG__MOMENTS };
    eg_opt_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_params *p = o.params;
    eg_ctx *cx = eg_params_context(p);
    if (!p) eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: the list of parameters is NULL", row->name);
    if (!p || eg_error(cx)) return NULL;
    fill_defaults(row, &o);
    if (opt_refused(cx, row->name, &o)) return NULL;
    int n = eg_params_count(p);
    if (!n) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the list of parameters is empty", row->name);
        return NULL;
    }
    eg_opt *op = eg_params_alloc(p, sizeof *op);
    eg_tensor **arrays = eg_params_alloc(p, (size_t)n * ARRAYS * sizeof *arrays);
    eg_named *state = eg_params_alloc(p, (size_t)(EG__MOMENTS * n + 3) * sizeof *state);
    const char **name = eg_params_alloc(p, (size_t)n * sizeof *name);
    const void **at = eg_params_alloc(p, (size_t)n * sizeof *at);
    int64_t *first = eg_params_alloc(p, (size_t)(n + 1) * sizeof *first);
    if (!op || !arrays || !state || !name || !at || !first) return NULL;
    *op = (eg_opt){ .kind = row,
                    .o = o,
                    .cx = cx,
                    .count = n,
                    .state = state,
                    .name = name,
                    .x = arrays,
                    .g = arrays + n,
                    .at = at,
                    .first = first };
    for (int m = 0; m < EG__MOMENTS; m++) op->moment[m] = arrays + (2 + m) * n;
    return make_state(op) ? op : NULL;
}

/* Of parameters with copies: an optimiser for each, of that copy's list, which has its memory. */
static eg_opt *open_each(const kind *row, const eg_opt_args *given)
{
    eg_opt_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_params *p = o.params;
    const int64_t copies = eg_copies_count(eg_params_copies(p));
    if (!copies && (o.lr_each || o.clip_each)) {
        eg_fail_as(eg_params_context(p), EG_ERROR_MISUSE,
                   "%s: .%s is for parameters with copies, and these have none", row->name,
                   o.lr_each ? "lr_each" : "clip_each");
        return NULL;
    }
    if (!copies || eg_error(eg_params_context(p))) return open_kind(row, given);
    const int n = eg_params_count(p);
    eg_opt *op = eg_params_alloc(p, sizeof *op);
    eg_opt **each = eg_params_alloc(p, (size_t)copies * sizeof *each);
    eg_tensor **arrays = eg_params_alloc(p, 2 * (size_t)(n + 1) * sizeof *arrays);
    if (!op || !each || !arrays) return NULL;
    *op = (eg_opt){ .kind = row,
                    .each = each,
                    .cx = eg_params_context(p),
                    .count = n,
                    .x = arrays,
                    .g = arrays + n };
    for (int k = 0; k < n; k++) op->x[k] = eg_params_at(p, k)->x;
    for (int64_t k = 0; k < copies; k++) {
        eg_opt_args one = o;
        one.params = eg_params_of_copy(p, k);
        one.lr = o.lr_each ? o.lr_each[k] : o.lr;
        one.clip_norm = o.clip_each ? o.clip_each[k] : o.clip_norm;
        one.lr_each = one.clip_each = NULL;
        each[k] = one.params ? open_kind(row, &one) : NULL;
        if (!each[k]) return eg_fail_in(op->cx, "copy %lld", (long long)k), NULL;
    }
    return op;
}

eg_opt *eg_sgd_with(const eg_opt_args *a) { return open_each(&sgd, a); }
eg_opt *eg_adam_with(const eg_opt_args *a) { return open_each(&adam, a); }
eg_opt *eg_adamw_with(const eg_opt_args *a) { return open_each(&adamw, a); }
eg_opt *eg_rmsprop_with(const eg_opt_args *a) { return open_each(&rmsprop, a); }
eg_opt *eg_adagrad_with(const eg_opt_args *a) { return open_each(&adagrad, a); }

/* -- a step: first all that may refuse it, then all that changes ------------------------------ */
/* Measures the own chunks of all gradients, scaled; those of others are 0. */
static void opt_norms(eg_opt *op, double limit, double scale)
{
    const eg_span own = eg__opt_chunks(op);
    memset(op->squares, 0, (size_t)op->first[op->count] * 2 * sizeof *op->squares);
    for (int k = 0; k < op->count; k++)
        for (int64_t c = op->first[k]; op->at[k] && c < op->first[k + 1]; c++) {
            if (c < own.from || c >= own.to) continue;
            const int64_t from = (c - op->first[k]) * EG__CHUNK, left = eg_size(op->x[k]) - from,
                          n = left < EG__CHUNK ? left : EG__CHUNK;
            const eg__norms one =
                eg_type(op->x[k]) == EG_F64
                    ? eg__norms_f64(n, (const double *)op->at[k] + from, limit, scale)
                    : eg__norms_f32(n, (const float *)op->at[k] + from, limit, scale);
            op->squares[c] = one.squares, op->largest[c] = one.largest;
        }
}

/* True if g is a gradient for parameter k: its shape and dtype; else records how it differs. */
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

/* Records that the gradient of parameter k is not finite, and the operation that made it so: the
 * reverse sweep runs once more, traced. */
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

/* True if each gradient fits its parameter; op->at points to them. A gradient
 * that is not row-major is copied into the open scope. */
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

/* ‖g‖ after clipping by value, and the largest |g| before it: sums of squares over chunks, then
 * along the tree of all chunks, so that ranks may divide them. False after an error: a gradient
 * that is not finite, on whatever rank. */
static bool opt_measure(eg_opt *op, double limit, double *norm, double *largest)
{
    const eg_span all = { 0, op->first[op->count] };
    double most = 0;
    int reached = 0;
    for (int k = 0; k < op->count; k++) reached += op->at[k] != NULL;
    if (!reached) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: each of the %d gradients is NULL", op->kind->name,
                   op->count);
        return false;
    }
    opt_norms(op, limit, 1);
    if (!eg__opt_statistic(op, op->squares) || !eg__opt_statistic(op, op->largest)) return false;
    for (int k = 0; k < op->count; k++) {
        double of = 0; /* a NaN goes before an infinity */
        for (int64_t c = op->first[k]; c < op->first[k + 1]; c++)
            of = isnan(of) || op->largest[c] < of ? of : op->largest[c];
        if (!isfinite(of)) {
            not_finite(op, k, of);
            return false;
        }
        most = fmax(most, of);
    }
    for (int k = 0; k < op->count; k++)
        op->norms[k] =
            sqrt(eg_ranks_tree_total(op->squares, (eg_span){ op->first[k], op->first[k + 1] }));
    double clipped = fmin(most, limit);
    *largest = most;
    *norm = isinf(op->o.norm_type) ? clipped : sqrt(eg_ranks_tree_total(op->squares, all));
    if (isinf(*norm)) { /* the squares of finite numbers overflow */
        opt_norms(op, limit, 1 / clipped);
        if (!eg__opt_statistic(op, op->squares)) return false;
        *norm = clipped * sqrt(eg_ranks_tree_total(op->squares, all));
    }
    return !eg_error(op->cx);
}

/* True if the square of the largest |g| fits the moments' dtype; a moment that overflowed would
 * keep its parameter from ever moving again. */
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

/* Runs the kind's loop over the own numbers of parameter k and their moments. */
static bool opt_apply(eg_opt *op, const eg__coefficients *c, int k)
{
    const eg_span own = eg__opt_own(op, k);
    const int64_t n = own.to - own.from;
    if (n <= 0) return true;
    if (eg_type(op->x[k]) == EG_F64) {
        double *x = eg_mut_f64(op->x[k]), *moment[EG__MOMENTS];
        for (int m = 0; m < EG__MOMENTS; m++)
            moment[m] = op->moment[m][k] ? eg_mut_f64(op->moment[m][k]) : NULL;
        if (x) op->kind->f64(n, c, x + own.from, (const double *)op->at[k] + own.from, moment);
        return x != NULL;
    }
    float *x = eg_mut_f32(op->x[k]), *moment[EG__MOMENTS];
    for (int m = 0; m < EG__MOMENTS; m++)
        moment[m] = op->moment[m][k] ? eg_mut_f32(op->moment[m][k]) : NULL;
    if (x) op->kind->f32(n, c, x + own.from, (const float *)op->at[k] + own.from, moment);
    return x != NULL;
}

/* The numbers of update.h for the t-th step that reaches a parameter. */
static eg__coefficients coefficients(const eg_opt *op, double lr, double limit, double coef,
                                     int64_t t)
{
    const eg_opt_args *o = &op->o;
    bool is_adam = op->kind == &adam || op->kind == &adamw, is_rmsprop = op->kind == &rmsprop,
         decoupled = op->kind == &adamw;
    double count = (double)t, eta = is_adam ? lr / (1 - pow(o->beta1, count)) : lr;
    return (eg__coefficients){
        .limit = limit,
        .coef = coef,
        .l2 = decoupled ? 0 : o->weight_decay,
        .shrink = decoupled ? 1 - lr * o->weight_decay : 1,
        .b1 = o->beta1,
        .b2 = is_rmsprop ? o->alpha : o->beta2,
        .eps = o->eps,
        .eta = op->kind == &adagrad ? lr / (1 + (count - 1) * o->lr_decay) : eta,
        .root = sqrt(1 - pow(o->beta2, count)),
        .mu = t == 1 && !is_rmsprop ? 0 : o->momentum,
        .keep = t == 1 ? 1 : 1 - o->dampening,
        .look = o->nesterov ? 1 : 0,
        .ahead = o->nesterov ? o->momentum : 1,
    };
}

/* Checks all gradients, then counts the step and updates every parameter that has a gradient. */
static bool update_parameters(eg_opt *op)
{
    const eg_opt_args *o = &op->o;
    double limit = o->clip_value > 0 ? o->clip_value : INFINITY, norm, largest;
    if (!opt_measure(op, limit, &norm, &largest)) return false;
    double coef = o->clip_norm > 0 ? fmin(1, o->clip_norm / (norm + 1e-6)) : 1;
    if (!squares_fit(op, coef * fmin(largest, limit))) return false;
    int64_t *counts = eg_mut_i64(op->counts), *skipped = eg_mut_i64(op->skipped), last = 0;
    if (!counts || !skipped || eg_error(op->cx)) return false;
    double lr = eg_item(op->lr) * eg_schedule_factor(&o->schedule, counts[STEPS]);
    if (!isfinite(lr)) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the learning rate of step %lld is %g",
                   op->kind->name, (long long)counts[STEPS] + 1, lr);
        return false;
    }
    op->norm = norm;
    counts[STEPS]++;
    counts[NORM_CLIPPED] += coef < 1;
    counts[VALUE_CLIPPED] += largest > limit;
    eg__coefficients c = { 0 };
    for (int k = 0; k < op->count; k++) {
        skipped[k] += !op->at[k];
        int64_t t = counts[STEPS] - skipped[k];
        if (op->at[k] && t != last) c = coefficients(op, lr, limit, coef, last = t);
        if (op->at[k] && !opt_apply(op, &c, k)) return false;
    }
    return true;
}

/* In the context's floating-point mode (eg_flush), as operations run. Ranks meet before they
 * compare what they measured, and each has gathered all parameters when it returns. */
int eg__opt_update(eg_opt *op, bool good, void *room)
{
    if (!eg__opt_meet(op, good)) return -1;
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
/* With gradients that every rank has whole; good false: this rank has an error. */
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
    return eg__opt_meet(op, !bad) ? 0 : -1;
}

/* True if g[k] is a gradient of parameter k with its copies; then each copy's optimiser points to
 * its part. */
static bool opt_point_each(eg_opt *op, int k, eg_tensor *g, int64_t copies)
{
    if (g && !opt_fits(op, k, g)) return false;
    if (g && eg_copies_of(g) != eg_copies_of(op->x[k])) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: gradient %d has not the copies of its parameter",
                   op->kind->name, k + 1);
        return false;
    }
    eg_tensor *all = g ? eg_copies_out(g) : NULL;
    const bool wide = g && eg_type(g) == EG_F64;
    const char *at = !g     ? NULL
                     : wide ? (const char *)(const void *)eg_f64(all)
                            : (const char *)(const void *)eg_f32(all);
    if (g && !at) return false;
    for (int64_t c = 0; c < copies; c++)
        op->each[c]->at[k] = g ? at + c * eg_size(g) * (wide ? 8 : 4) : NULL;
    return true;
}
/* Each copy's step, with its part of the gradients. Afterwards the parameters count as written to.
 */
static int update_each(eg_opt *op, bool good, eg_tensor *const *g)
{
    const int64_t copies = eg_copies_count(eg_copies_of(op->x[0]));
    const bool was = eg_nograd(op->cx, true);
    for (int k = 0; good && k < op->count; k++) good = opt_point_each(op, k, g[k], copies);
    for (int64_t c = 0; good && c < copies; c++)
        if (eg__opt_update(op->each[c], true, NULL)) {
            eg_fail_in(op->cx, "copy %lld", (long long)c);
            good = false;
        }
    for (int k = 0; k < op->count && !eg_error(op->cx); k++) /* nothing of it, all the same */
        eg_fill(eg_slice_axis(eg_copies_out(op->x[k]), 0, 0, 0, 1), 0);
    eg_nograd(op->cx, was);
    return good ? 0 : -1;
}

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

/* Refuses a loss that is not finite; in the run of a captured step nobody knows where it comes
 * from.
 */
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
/* True if the loss is finite, or is no number at all, which eg_grad refuses; else recorded. */
static bool loss_is_finite(eg_opt *op, eg_tensor *loss)
{
    if (eg_size(loss) != 1 || (eg_type(loss) != EG_F32 && eg_type(loss) != EG_F64)) return true;
    const eg_copies *c = eg_copies_of(loss);
    for (int64_t k = 0; k < eg_copies_count(c); k++) {
        const double one = eg_item(eg_copy_at(loss, k));
        if (!isfinite(one) && !eg_error(op->cx))
            eg_fail_as(op->cx, EG_ERROR_MISUSE,
                       "%s: the loss of copy %lld is %g; the step is not done", op->kind->name,
                       (long long)k, isnan(one) ? (double)NAN : one);
    }
    if (c) return !eg_error(op->cx);
    op->loss = loss;
    const int bad = eg_host_call(op->cx, loss_host, &op, sizeof op, 1, &loss);
    op->loss = NULL;
    return !bad;
}

/* True if the loss can be differentiated by the parameters; else recorded. */
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

/* -- asking ----------------------------------------------------------------------------------- */
eg_opt *eg_opt_of_copy(const eg_opt *op, int64_t k)
{
    const int64_t copies = op && op->each ? eg_copies_count(eg_copies_of(op->x[0])) : 0;
    return k >= 0 && k < copies ? op->each[k] : NULL;
}
eg_opt_report eg_opt_now(const eg_opt *op)
{
    if (op && op->each) op = op->each[0];
    const int64_t *counts = op ? eg_i64(op->counts) : NULL;
    return counts ? (eg_opt_report){ counts[STEPS], counts[NORM_CLIPPED], counts[VALUE_CLIPPED],
                                     op->norm,
                                     eg_item(op->lr) *
                                         eg_schedule_factor(&op->o.schedule, counts[STEPS]) }
                  : (eg_opt_report){ 0 };
}

int eg_opt_set_lr(eg_opt *op, double lr)
{
    if (!op) return -1;
    if (op->each) {
        int bad = 0;
        for (int64_t k = 0; !bad && eg_opt_of_copy(op, k); k++)
            bad = eg_opt_set_lr(op->each[k], lr);
        return bad;
    }
    if (!(lr >= 0 && lr < INFINITY)) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: lr must not be negative or infinite, not %g",
                   op->kind->name, lr);
        return -1;
    }
    return eg_fill(op->lr, lr);
}

double eg_opt_norm_of(const eg_opt *op, int k)
{
    if (op && op->each) op = op->each[0];
    return op && k >= 0 && k < op->count ? op->norms[k] : NAN;
}

const eg_named *eg_opt_state(const eg_opt *op, int k)
{
    return op && k >= 0 && k < op->states ? &op->state[k] : NULL;
}
