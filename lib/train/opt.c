/* opt.c: optimisers and schedules. Every moment is made at construction and lives as long as the parameters. */
#include <eingrad/grad.h>
#include <eingrad/train.h>
#include "update.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* -- schedules -------------------------------------------------------------------------------------------------------------- */
static double constant(double t, double last) { (void)t, (void)last; return 1; }
static double linear  (double t, double last) { return 1 + (last - 1) * t; }
static double cosine  (double t, double last) { return last + (1 - last) * (1 + cos(acos(-1) * t)) / 2; }

static double (*const decays[])(double t, double last) = { [EG_CONSTANT] = constant, [EG_LINEAR] = linear, [EG_COSINE] = cosine };
enum { DECAYS = sizeof decays / sizeof *decays };

double eg_schedule_factor(const eg_schedule *s, int64_t step)
{
    if (!s)
        return 1;
    if (step < s->warmup)
        return ((double)step + 1) / (double)s->warmup;
    double warmup = (double)s->warmup, t = s->steps > s->warmup ? ((double)step - warmup) / ((double)s->steps - warmup) : 0;
    return (int)s->decay >= 0 && (int)s->decay < DECAYS ? decays[s->decay](t < 1 ? t : 1, s->last) : NAN;
}

/* -- kinds: a row each ------------------------------------------------------------------------------------------------------- */
typedef struct kind {
    const char *name, *moment[2];       /* names of what a step remembers of each parameter                     */
    eg__update_f32 *f32; eg__update_f64 *f64;
} kind;
static const kind sgd      = { "sgd",   { NULL, NULL }, eg__plain_f32,    eg__plain_f64 };
static const kind momentum = { "sgd",   { "u", NULL },  eg__momentum_f32, eg__momentum_f64 };
static const kind adam     = { "adam",  { "m", "v" },   eg__adam_f32,     eg__adam_f64 };
static const kind adamw    = { "adamw", { "m", "v" },   eg__adam_f32,     eg__adam_f64 };

enum { STEPS, NORM_CLIPPED, VALUE_CLIPPED, COUNTS };
struct eg_opt {
    const kind *kind;
    eg_opt_args o;                      /* with the defaults filled in                                          */
    eg_ctx  *cx;
    int      count, states;
    eg_named *state;                    /* "opt.counts", "opt.lr", then the moments                             */
    eg_tensor **x, **g, **moment[2];
    eg_tensor *counts, *lr;
    double   norm;
};

static double option(double given, double otherwise) { return given == EG_OFF ? 0 : given != 0 ? given : otherwise; }

static bool refused(eg_ctx *cx, const char *who, const eg_opt_args *o)
{
    static const struct { const char *text; size_t at; double below; } ranges[] = {     /* 0 ≤ option < below      */
        { "lr must not be negative",                offsetof(eg_opt_args, lr), INFINITY },
        { "momentum must not be negative",          offsetof(eg_opt_args, momentum), INFINITY },
        { "dampening must not be negative",         offsetof(eg_opt_args, dampening), INFINITY },
        { "beta1 must be in [0, 1)",                offsetof(eg_opt_args, beta1), 1 },
        { "beta2 must be in [0, 1)",                offsetof(eg_opt_args, beta2), 1 },
        { "eps must not be negative",               offsetof(eg_opt_args, eps), INFINITY },
        { "weight_decay must not be negative",      offsetof(eg_opt_args, weight_decay), INFINITY },
        { "clip_norm must not be negative",         offsetof(eg_opt_args, clip_norm), INFINITY },
        { "clip_value must not be negative",        offsetof(eg_opt_args, clip_value), INFINITY },
    };
    const eg_schedule *s = &o->schedule;
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        double value;
        memcpy(&value, (const char *)o + ranges[k].at, sizeof value);
        if (!(value >= 0 && value < ranges[k].below))
            return eg_fail(cx, "%s: %s, not %g", who, ranges[k].text, value), true;
    }
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        eg_fail(cx, "%s: nesterov needs momentum and no dampening; they are %g and %g", who, o->momentum, o->dampening);
    else if ((int)s->decay < 0 || (int)s->decay >= DECAYS)
        eg_fail(cx, "%s: schedule.decay is none of EG_CONSTANT, EG_LINEAR, EG_COSINE, but %d", who, (int)s->decay);
    else if (s->warmup < 0 || s->steps < 0 || (s->decay && s->steps <= s->warmup))
        eg_fail(cx, "%s: schedule.steps must be more than schedule.warmup; they are %lld and %lld", who, (long long)s->steps,
                (long long)s->warmup);
    else if (!isfinite(s->last))
        eg_fail(cx, "%s: schedule.last must be a number, not %g", who, s->last);
    return eg_error(cx) != NULL;
}

static bool remember(eg_opt *op, eg_params *p, const char *moment, const eg_named *of, eg_tensor **x)
{
    size_t room = strlen(moment) + strlen(of->name) + 8;
    char *name = eg_params_alloc(p, room);
    *x = name ? eg_owner_tensor(eg_params_owner(p), eg_type(of->x), eg_rank(of->x), eg_dims(of->x)) : NULL;
    if (!eg_ok(*x))
        return false;
    snprintf(name, room, "opt.%s.%s", moment, of->name);
    op->state[op->states++] = (eg_named){ name, of->axes, *x };
    return true;
}

static eg_opt *open_kind(const kind *row, const eg_opt_args *given, double weight_decay)
{
    eg_opt_args o = { .size = sizeof o };
    if (given)                                      /* a caller built with an older header has fewer options */
        memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    eg_params *p = o.params;
    eg_ctx *cx = eg_params_context(p);
    if (!p || eg_error(cx))
        return NULL;
    o.lr = option(o.lr, 1e-3), o.momentum = option(o.momentum, 0), o.dampening = option(o.dampening, 0);
    if (row == &sgd && o.momentum != 0)
        row = &momentum;
    o.beta1 = option(o.beta1, 0.9), o.beta2 = option(o.beta2, 0.999), o.eps = option(o.eps, 1e-8);
    o.weight_decay = option(o.weight_decay, weight_decay), o.clip_norm = option(o.clip_norm, 0);
    o.clip_value = option(o.clip_value, 0), o.schedule.last = option(o.schedule.last, 0);
    if (refused(cx, row->name, &o))
        return NULL;
    int n = eg_params_count(p);
    if (!n) {
        eg_fail(cx, "%s: the list of parameters is empty", row->name);
        return NULL;
    }
    eg_opt *op = eg_params_alloc(p, sizeof *op);
    eg_tensor **arrays = eg_params_alloc(p, (size_t)n * 4 * sizeof *arrays);
    eg_named *state = eg_params_alloc(p, (size_t)(2 * n + 2) * sizeof *state);
    if (!op || !arrays || !state)
        return NULL;
    *op = (eg_opt){ .kind = row, .o = o, .cx = cx, .count = n, .state = state,
                    .x = arrays, .g = arrays + n, .moment = { arrays + 2 * n, arrays + 3 * n } };
    op->counts = eg_owner_tensor(eg_params_owner(p), EG_I64, 1, (int64_t[]){ COUNTS });
    op->lr = eg_owner_tensor(eg_params_owner(p), EG_F64, 0, NULL);
    state[op->states++] = (eg_named){ "opt.counts", "c", op->counts };
    state[op->states++] = (eg_named){ "opt.lr", "", op->lr };
    if (eg_fill(op->lr, o.lr))
        return NULL;
    for (int k = 0; k < n; k++) {
        const eg_named *one = eg_params_at(p, k);
        op->x[k] = one->x;
        for (int s = 0; s < 2 && row->moment[s]; s++)
            if (!remember(op, p, row->moment[s], one, &op->moment[s][k]))
                return NULL;
    }
    return op;
}

eg_opt *eg_sgd_with(const eg_opt_args *a)   { return open_kind(&sgd, a, 0); }
eg_opt *eg_adam_with(const eg_opt_args *a)  { return open_kind(&adam, a, 0); }
eg_opt *eg_adamw_with(const eg_opt_args *a) { return open_kind(&adamw, a, 0.01); }

/* -- a step -------------------------------------------------------------------------------------------------------------------- */
static eg__norms norms_of(eg_tensor *g, double limit)
{
    if (eg_type(g) == EG_F64) {
        const double *x = eg_f64(g);
        return x ? eg__norms_f64(eg_size(g), x, limit) : (eg__norms){ NAN, NAN };
    }
    const float *x = eg_f32(g);
    return x ? eg__norms_f32(eg_size(g), x, limit) : (eg__norms){ NAN, NAN };
}

static bool fits(eg_opt *op, int k, eg_tensor *g)
{
    if (!eg_ok(g) || eg_context(g) != op->cx) {
        eg_fail(op->cx, "%s: gradient %d is %s", op->kind->name, k + 1, eg_ok(g) ? "of another context" : "no usable tensor");
        return false;
    }
    const eg_tensor *x = op->x[k];
    int r = 0;
    while (r < eg_rank(g) && r < eg_rank(x) && eg_dim(g, r) == eg_dim(x, r))
        r++;
    if (eg_type(g) != eg_type(x))
        eg_fail(op->cx, "%s: gradient %d is %s, its parameter %s", op->kind->name, k + 1, eg_type_name(eg_type(g)),
                eg_type_name(eg_type(x)));
    else if (eg_rank(g) != eg_rank(x))
        eg_fail(op->cx, "%s: gradient %d has rank %d, its parameter rank %d", op->kind->name, k + 1, eg_rank(g), eg_rank(x));
    else if (r < eg_rank(x))
        eg_fail(op->cx, "%s: axis %d of gradient %d has size %lld, of its parameter %lld", op->kind->name, r, k + 1,
                (long long)eg_dim(g, r), (long long)eg_dim(x, r));
    else
        return true;
    return false;
}

/* θ, moments ← the kind's loop. The gradient may be stored in any order; eg_f32 then copies it into the open scope. */
static bool apply(eg_opt *op, const eg__coefficients *c, int k, eg_tensor *g)
{
    int64_t n = eg_size(op->x[k]);
    eg_tensor *m = op->moment[0][k], *v = op->moment[1][k];
    if (eg_type(op->x[k]) == EG_F64) {
        const double *from = eg_f64(g);
        double *x = eg_mut_f64(op->x[k]), *mx = m ? eg_mut_f64(m) : NULL, *vx = v ? eg_mut_f64(v) : NULL;
        if (from && x)
            op->kind->f64(n, c, x, from, mx, vx);
        return from && x;
    }
    const float *from = eg_f32(g);
    float *x = eg_mut_f32(op->x[k]), *mx = m ? eg_mut_f32(m) : NULL, *vx = v ? eg_mut_f32(v) : NULL;
    if (from && x)
        op->kind->f32(n, c, x, from, mx, vx);
    return from && x;
}

static int update_parameters(eg_opt *op, eg_tensor *const *g)
{
    const eg_opt_args *o = &op->o;
    double limit = o->clip_value > 0 ? o->clip_value : INFINITY, squares = 0, largest = 0;
    for (int k = 0; k < op->count; k++) {
        if (!fits(op, k, g[k]))
            return -1;
        eg__norms one = norms_of(g[k], limit);
        squares += one.squares;
        largest = one.largest > largest ? one.largest : largest;
    }
    int64_t *counts = eg_mut_i64(op->counts);
    if (!counts || eg_error(op->cx))
        return -1;
    op->norm = sqrt(squares);
    double coef = o->clip_norm > 0 ? o->clip_norm / (op->norm + 1e-6) : 1;
    coef = coef > 1 ? 1 : coef;
    double lr = eg_item(op->lr) * eg_schedule_factor(&o->schedule, counts[STEPS]);
    int64_t t = ++counts[STEPS];
    counts[NORM_CLIPPED] += coef < 1;
    counts[VALUE_CLIPPED] += largest > limit;
    bool is_adam = op->kind->moment[1], decoupled = op->kind == &adamw;
    eg__coefficients c = {
        .limit = limit, .coef = coef, .l2 = decoupled ? 0 : o->weight_decay, .shrink = decoupled ? 1 - lr * o->weight_decay : 1,
        .b1 = o->beta1, .b2 = o->beta2, .eps = o->eps,
        .eta = is_adam ? lr / (1 - pow(o->beta1, (double)t)) : lr, .root = sqrt(1 - pow(o->beta2, (double)t)),
        .mu = t == 1 ? 0 : o->momentum, .keep = t == 1 ? 1 : 1 - o->dampening,
        .look = o->nesterov ? 1 : 0, .ahead = o->nesterov ? o->momentum : 1,
    };
    for (int k = 0; k < op->count; k++)
        if (!apply(op, &c, k, g[k]))
            return -1;
    return 0;
}

/* in the context's floating-point mode, as the operations are */
static int update(eg_opt *op, eg_tensor *const *g)
{
    const uint64_t begun = eg_flush_begin(op->cx);
    const int bad = update_parameters(op, g);
    eg_flush_end(begun);
    return bad;
}

int eg_step_by(eg_opt *op, eg_tensor *const *gradients)
{
    if (!op || eg_error(op->cx))
        return -1;
    if (!gradients) {
        eg_fail(op->cx, "%s: the list of gradients is NULL", op->kind->name);
        return -1;
    }
    eg_mark m = eg_push(op->cx);
    int bad = update(op, gradients);
    eg_pop(op->cx, m);
    return bad;
}

int eg_step(eg_opt *op, eg_tensor *loss)
{
    if (!op || eg_error(op->cx))
        return -1;
    if (!loss) {
        eg_fail(op->cx, "%s: the loss is NULL", op->kind->name);
        return -1;
    }
    if (eg_context(loss) != op->cx) {
        eg_fail(op->cx, "%s: the loss belongs to another context", op->kind->name);
        return -1;
    }
    eg_mark m = eg_push(op->cx);
    bool was = eg_nograd(op->cx, true);
    int bad = eg_grad(loss, NULL, op->count, op->x, op->g);
    eg_nograd(op->cx, was);
    bad = bad ? bad : update(op, op->g);
    eg_pop(op->cx, m);
    return bad;
}

/* -- asking ---------------------------------------------------------------------------------------------------------------------- */
eg_opt_report eg_opt_now(const eg_opt *op)
{
    const int64_t *counts = op ? eg_i64(op->counts) : NULL;
    return counts ? (eg_opt_report){ counts[STEPS], counts[NORM_CLIPPED], counts[VALUE_CLIPPED], op->norm,
                                     eg_item(op->lr) * eg_schedule_factor(&op->o.schedule, counts[STEPS]) }
                  : (eg_opt_report){ 0 };
}

int eg_opt_set_lr(eg_opt *op, double lr)
{
    if (!op)
        return -1;
    if (!(lr >= 0 && lr < INFINITY)) {
        eg_fail(op->cx, "%s: lr must not be negative or infinite, not %g", op->kind->name, lr);
        return -1;
    }
    return eg_fill(op->lr, lr);
}

const eg_named *eg_opt_state(const eg_opt *op, int k) { return op && k >= 0 && k < op->states ? &op->state[k] : NULL; }
