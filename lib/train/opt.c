/* opt.c: optimisers: a struct for each kind, their options, and the functions that read their
 * state. Moments are allocated with the optimiser and are valid as long as the parameters. Steps
 * are in opt_step.c. */
#include <eingrad/train.h>
#include "opt.h"
#include "update.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* -- kinds, a struct for each ------------------------------------------------------------------ */
typedef eg__opt_kind kind;

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

static const kind sgd = { .name = "sgd",
                          .moment = { "u" },
                          .kept = sgd_keeps,
                          .f32 = eg__sgd_f32,
                          .f64 = eg__sgd_f64,
                          .lr = 1e-3,
                          .eps = 1e-8 };
static const kind adam = { .name = "adam",
                           .moment = { "m", "v", "vmax" },
                           .kept = adam_keeps,
                           .f32 = eg__adam_f32,
                           .f64 = eg__adam_f64,
                           .lr = 1e-3,
                           .eps = 1e-8,
                           .squares = true };
static const kind adamw = { .name = "adamw",
                            .moment = { "m", "v", "vmax" },
                            .kept = adam_keeps,
                            .f32 = eg__adam_f32,
                            .f64 = eg__adam_f64,
                            .lr = 1e-3,
                            .eps = 1e-8,
                            .weight_decay = 0.01,
                            .squares = true };
static const kind rmsprop = { .name = "rmsprop",
                              .moment = { "v", "u", "m" },
                              .kept = rmsprop_keeps,
                              .f32 = eg__rmsprop_f32,
                              .f64 = eg__rmsprop_f64,
                              .lr = 1e-2,
                              .eps = 1e-8,
                              .squares = true };
static const kind adagrad = { .name = "adagrad",
                              .moment = { "v" },
                              .f32 = eg__adagrad_f32,
                              .f64 = eg__adagrad_f64,
                              .lr = 1e-2,
                              .eps = 1e-10,
                              .squares = true };
bool eg__opt_built_in(const char *name)
{
    static const kind *const all[] = { &sgd, &adam, &adamw, &rmsprop, &adagrad };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (!strcmp(all[k]->name, name)) return true;
    return false;
}

eg__coefficients eg__opt_coefficients(const eg_opt *op, eg__opt_options of, double rate,
                                      double limit, double coef, int64_t t)
{
    const eg_opt_args *o = &op->o;
    bool is_adam = op->kind == &adam || op->kind == &adamw, is_rmsprop = op->kind == &rmsprop,
         decoupled = op->kind == &adamw;
    double count = (double)t, lr = rate * of.lr,
           eta = is_adam ? lr / (1 - pow(o->beta1, count)) : lr;
    return (eg__coefficients){
        .limit = limit,
        .coef = coef,
        .l2 = decoupled ? 0 : of.weight_decay,
        .shrink = decoupled ? 1 - lr * of.weight_decay : 1,
        .b1 = o->beta1,
        .b2 = is_rmsprop ? o->alpha : o->beta2,
        .eps = o->eps,
        .eta = op->kind == &adagrad ? lr / (1 + (count - 1) * o->lr_decay) : eta,
        .root = sqrt(1 - pow(o->beta2, count)),
        .mu = t == 1 && !is_rmsprop ? 0 : o->momentum,
        .keep = t == 1 ? 1 : 1 - o->dampening,
        .of_g = o->nesterov ? 1 : 0,
        .of_u = o->nesterov ? o->momentum : 1,
        .t = t,
    };
}

/* -- opening ---------------------------------------------------------------------------------- */
/* clang-format off */
/* The options that only some kinds read. */
enum { READERS = 4 };
static const struct {
    const char *name;
    size_t at;
    bool number; /* else a bool */
    const kind *of[READERS];
} own_options[] = {
    { "eps",       offsetof(eg_opt_args, eps),       true,  { &adam, &adamw, &rmsprop, &adagrad } },
    { "momentum",  offsetof(eg_opt_args, momentum),  true,  { &sgd, &rmsprop } },
    { "dampening", offsetof(eg_opt_args, dampening), true,  { &sgd } },
    { "nesterov",  offsetof(eg_opt_args, nesterov),  false, { &sgd } },
    { "beta1",     offsetof(eg_opt_args, beta1),     true,  { &adam, &adamw } },
    { "beta2",     offsetof(eg_opt_args, beta2),     true,  { &adam, &adamw } },
    { "amsgrad",   offsetof(eg_opt_args, amsgrad),   false, { &adam, &adamw } },
    { "alpha",     offsetof(eg_opt_args, alpha),     true,  { &rmsprop } },
    { "centered",  offsetof(eg_opt_args, centered),  false, { &rmsprop } },
    { "lr_decay",  offsetof(eg_opt_args, lr_decay),  true,  { &adagrad } },
    { "initial_accumulator_value", offsetof(eg_opt_args, initial_accumulator_value), true,
      { &adagrad } },
};
/* clang-format on */
/* True if an option is given that only other kinds of optimisers read; then also records an
 * error. */
static bool opt_foreign(eg_ctx *cx, const kind *row, const eg_opt_args *o)
{
    for (size_t k = 0; k < sizeof own_options / sizeof *own_options; k++) {
        const char *at = (const char *)o + own_options[k].at, *names[READERS];
        double value = 0;
        bool reads = false;
        int n = 0;
        if (own_options[k].number)
            memcpy(&value, at, sizeof value);
        else
            value = *(const bool *)at;
        for (; n < READERS && own_options[k].of[n]; n++) {
            reads |= own_options[k].of[n] == row;
            names[n] = own_options[k].of[n]->name;
        }
        if (reads || value == 0 || value == EG_OFF) continue;
        char list[EG__LIST];
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s belongs to %s", row->name, own_options[k].name,
                   eg__opt_list(n, names, list));
        return true;
    }
    return false;
}

/* True if an option is wrong; then also records an error. */
static bool opt_refused(eg_ctx *cx, const kind *row, const eg_opt_args *o)
{
    const char *who = row->name;
#define RANGE(name, below)                        \
    {                                             \
#name, offsetof(eg_opt_args, name), below \
    }
    static const struct {
        const char *name;
        size_t at;
        double below;
    } ranges[] = {
        /* 0 ≤ x < below */
        RANGE(lr, INFINITY),
        RANGE(momentum, INFINITY),
        RANGE(dampening, INFINITY),
        RANGE(beta1, 1),
        RANGE(beta2, 1),
        RANGE(eps, INFINITY),
        RANGE(weight_decay, INFINITY),
        RANGE(clip_norm, INFINITY),
        RANGE(clip_value, INFINITY),
        RANGE(alpha, 1),
        RANGE(lr_decay, INFINITY),
        RANGE(initial_accumulator_value, INFINITY),
    };
#undef RANGE
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        double value;
        memcpy(&value, (const char *)o + ranges[k].at, sizeof value);
        if (value >= 0 && value < ranges[k].below) continue;
        return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s must %s, not %g", who, ranges[k].name,
                          ranges[k].below <= 1 ? "be in [0, 1)"
                          : isfinite(value)    ? "not be negative"
                                               : "be finite",
                          value),
               true;
    }
    if (o->rule && !row->rule)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: rule belongs to opt_custom", row->name);
    else if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: nesterov needs momentum and no dampening; they are %g and %g", who,
                   o->momentum, o->dampening);
    else if (o->dampening != 0 && o->momentum == 0)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: dampening is %g, but is read with momentum only, which is 0", who,
                   o->dampening);
    else if (!(o->norm_type <= 2 && o->norm_type >= 2) &&
             !(o->norm_type > 0 && isinf(o->norm_type)))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: norm_type must be 2 or INFINITY, not %g", who,
                   o->norm_type);
    return eg_error(cx) || eg__schedule_refused(cx, who, &o->schedule);
}

/* Makes a moment of a parameter: zeros of this shape and with its copies. all: NULL, or the moment
 * of all copies, of which this is that of copy c, in the same memory. Moments have an owner of
 * their own, since an optimiser that is divided among ranks replaces them. NULL after an error. */
static eg_tensor *opt_moment(const eg_opt *op, const eg_tensor *x, int rank, const int64_t *dims,
                             eg_tensor *all, int64_t c)
{
    if (!all) return eg_owner_copies(op->moment_owner, eg_copies_of(x), eg_type(x), rank, dims);
    const eg_mark m = eg_push(op->cx);
    const bool was = eg_nograd(op->cx, true);
    const void *numbers = eg_raw(eg_copy_at(all, c), NULL);
    eg_nograd(op->cx, was);
    eg_pop(op->cx, m);
    return numbers ? eg_from_memory(op->cx, eg_type(x), numbers, rank, dims, .writable = true,
                                    .owner = op->moment_owner)
                   : NULL;
}
/* Adds a moment to the state that is saved. False after an error. */
static bool opt_add_state(eg_opt *op, const char *moment, const eg_named *of, eg_tensor *x)
{
    size_t size = strlen(moment) + strlen(of->name) + 8;
    char *name = eg_ok(x) ? eg_params_alloc(op->o.params, size) : NULL;
    if (!name) return false;
    snprintf(name, size, "opt.%s.%s", moment, of->name);
    op->state[op->states++] = (eg_named){ name, of->axes, x };
    return true;
}

double eg__opt_default_decay(const char *optimiser)
{
    return strcmp(optimiser, adamw.name) ? 0 : adamw.weight_decay;
}
/* Replaces options that are left out by their defaults, and EG_OFF by 0. */
static void fill_defaults(const kind *row, eg_opt_args *o)
{
    o->lr = eg_option(o->lr, row->lr);
    o->schedule.last = eg_option(o->schedule.last, 0);
    o->weight_decay = eg_option(o->weight_decay, row->weight_decay);
    o->clip_norm = eg_option(o->clip_norm, 0);
    o->norm_type = eg_option(o->norm_type, 2);
    o->clip_value = eg_option(o->clip_value, 0);
    o->eps = eg_option(o->eps, row->eps);
    o->momentum = eg_option(o->momentum, 0);
    o->dampening = eg_option(o->dampening, 0);
    o->beta1 = eg_option(o->beta1, 0.9);
    o->beta2 = eg_option(o->beta2, 0.999);
    o->alpha = eg_option(o->alpha, 0.99);
    o->lr_decay = eg_option(o->lr_decay, 0);
    o->initial_accumulator_value = eg_option(o->initial_accumulator_value, 0);
    /* a step counts subnormal numbers as 0, and 0 would mean: no limit */
    if (o->clip_norm > 0) o->clip_norm = fmax(o->clip_norm, DBL_MIN);
    if (o->clip_value > 0) o->clip_value = fmax(o->clip_value, DBL_MIN);
}

/* Makes the moments of parameter k, and its part of the list of chunks. False after an error. */
static bool make_moments(eg_opt *op, int k, const eg_opt *all, int64_t c)
{
    const eg_named *one = eg_params_at(op->o.params, op->own[k]);
    op->x[k] = one->x, op->name[k] = one->name;
    for (int m = 0; m < EG__MOMENTS && op->kind->moment[m]; m++) {
        if (op->kind->kept && !op->kind->kept(&op->o, m)) continue;
        int64_t dims[EG_RANK_MAX];
        const int rank = eg__rule_shape(op, one, m, dims);
        if (eg_error(op->cx)) return false;
        if (rank < 0) continue;
        op->moment[m][k] = opt_moment(op, one->x, rank, dims, all ? all->moment[m][k] : NULL, c);
        if (!opt_add_state(op, op->kind->moment[m], one, op->moment[m][k])) return false;
    }
    if (op->kind != &adagrad || all) return true;
    if (eg_type(one->x) == EG_F32 && op->o.initial_accumulator_value > (double)FLT_MAX)
        return eg_fail_as(
                   op->cx, EG_ERROR_MISUSE,
                   "adagrad: initial_accumulator_value is %g, which overflows f32, the dtype "
                   "of \"%s\"",
                   op->o.initial_accumulator_value, one->name),
               false;
    return !eg_fill(op->moment[0][k], op->o.initial_accumulator_value);
}
/* Numbers the chunks of all parameters, and makes room for what a step measures and computes of
 * each chunk and of each parameter. False after an error. */
static bool make_chunks(eg_opt *op)
{
    eg_params *p = op->o.params;
    const size_t n = (size_t)op->count;
    for (int k = 0; k < op->count; k++) {
        op->size[k] = eg_size(op->x[k]);
        op->wide[k] = eg_type(op->x[k]) == EG_F64;
        op->first[k + 1] = op->first[k] + (op->size[k] + EG__CHUNK - 1) / EG__CHUNK;
    }
    const size_t chunks = (size_t)op->first[op->count];
    op->norms = eg_params_alloc(p, (n + 2 * chunks) * sizeof *op->norms);
    op->c = eg_params_alloc(p, n * sizeof *op->c);
    op->same = eg_params_alloc(p, (n + chunks) * sizeof *op->same);
    if (!op->norms || !op->c || !op->same) return false;
    op->squares = op->norms + n, op->largest = op->squares + chunks;
    op->parameter = op->same + n;
    for (int k = 0; k < op->count; k++)
        for (int64_t chunk = op->first[k]; chunk < op->first[k + 1]; chunk++)
            op->parameter[chunk] = k;
    return true;
}
/* Makes the state: "opt.counts", "opt.lr", "opt.skipped", then each parameter's moments. all: the
 * optimiser of all copies, of which this is that of copy c; or NULL. False after an error. */
static bool make_state(eg_opt *op, const eg_opt *all, int64_t c)
{
    eg_params *p = op->o.params;
    eg_owner *owner = eg_params_owner(p);
    op->counts = eg_owner_tensor(owner, EG_I64, 1, (int64_t[]){ COUNTS });
    op->lr = eg_owner_tensor(owner, EG_F64, 0, NULL);
    op->skipped = eg_owner_tensor(owner, EG_I64, 1, (int64_t[]){ op->count });
    op->state[op->states++] = (eg_named){ "opt.counts", "c", op->counts };
    op->state[op->states++] = (eg_named){ "opt.lr", "", op->lr };
    op->state[op->states++] = (eg_named){ "opt.skipped", "k", op->skipped };
    op->moment_owner = eg_owner_open_in(owner);
    if (!op->moment_owner || eg_fill(op->lr, op->o.lr)) return false;
    for (int k = 0; k < op->count; k++)
        if (!make_moments(op, k, all, c)) return false;
    return make_chunks(op);
}

/* True if an optimiser can change the parameter; else records an error. */
static bool opt_changes(const kind *row, const eg_named *one)
{
    eg_ctx *cx = eg_context(one->x);
    const eg_dtype type = eg_type(one->x);
    if (type != EG_F32 && type != EG_F64)
        eg_fail_as(cx, EG_ERROR_DTYPE,
                   "%s: \"%s\" is %s, and an optimiser changes f32 and f64 only; copy the list to "
                   "one of f32 (eg_params_copy), or freeze the parameter (.groups)",
                   row->name, one->name, eg_type_name(type));
    else if (!eg_is_writable(one->x) && !eg__opt_numbers(one->x)) /* which says why */
        eg_fail_in(cx, "%s: \"%s\"", row->name, one->name);
    else
        return true;
    return false;
}
/* Makes an optimiser of this kind with all that its steps need. all, c: as in make_state. NULL
 * after an error. */
static eg_opt *open_kind(const kind *row, const eg_opt_args *given, const eg_opt *all, int64_t c)
{
    enum { ARRAYS = 2 + EG__MOMENTS };
    eg_opt_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_params *p = o.params;
    eg_ctx *cx = eg_params_context(p);
    if (!p) eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: the list of parameters is NULL", row->name);
    if (!p || eg_error(cx)) return NULL;
    if (opt_foreign(cx, row, &o)) return NULL;
    fill_defaults(row, &o);
    if (opt_refused(cx, row, &o)) return NULL;
    const size_t listed = (size_t)eg_params_count(p);
    int *own = all ? all->own : eg_params_alloc(p, (listed + 1) * sizeof *own);
    eg__opt_options *of = all ? all->of : eg_params_alloc(p, (listed + 1) * sizeof *of);
    if (!own || !of) return NULL;
    const int n = all ? all->count : eg__opt_members(row->name, &o, own, of);
    if (n < 0) return NULL;
    for (int k = 0; k < n; k++)
        if (!opt_changes(row, eg_params_at(p, own[k]))) return NULL;
    o.groups = NULL, o.rule = NULL; /* the caller's memory */
    eg_opt *op = eg_params_alloc(p, sizeof *op);
    eg_tensor **arrays = eg_params_alloc(p, (size_t)n * ARRAYS * sizeof *arrays);
    eg_named *state = eg_params_alloc(p, (size_t)(EG__MOMENTS * n + 3) * sizeof *state);
    const char **name = eg_params_alloc(p, (size_t)n * sizeof *name);
    const void **at = eg_params_alloc(p, (size_t)n * sizeof *at);
    void **to = eg_params_alloc(p, (size_t)n * (1 + EG__MOMENTS) * sizeof *to);
    int64_t *first = eg_params_alloc(p, (size_t)(2 * n + 1) * sizeof *first);
    bool *wide = eg_params_alloc(p, (size_t)n * sizeof *wide);
    if (!op || !arrays || !state || !name || !at || !to || !first || !wide) return NULL;
    *op = (eg_opt){ .kind = row,
                    .copies = 1,
                    .o = o,
                    .cx = cx,
                    .count = n,
                    .state = state,
                    .name = name,
                    .own = own,
                    .of = of,
                    .x = arrays,
                    .g = arrays + n,
                    .at = at,
                    .to = to,
                    .first = first,
                    .size = first + n + 1,
                    .wide = wide };
    for (int m = 0; m < EG__MOMENTS; m++) op->moment[m] = arrays + (2 + m) * n;
    return make_state(op, all, c) ? op : NULL;
}

/* True if .lr_each and .clip_each have one value for each copy of the parameters; else records an
 * error. */
static bool lists_fit(const kind *row, const eg_opt_args *o, int64_t copies)
{
    eg_ctx *cx = eg_params_context(o->params);
    const char *list = o->lr_each ? "lr_each" : o->clip_each ? "clip_each" : NULL;
    if (list && !copies)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: .%s is for parameters with copies, but these have none", row->name, list);
    else if (list && o->copies != copies)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: .%s has %lld number%s (.copies), but the parameters have %lld cop%s",
                   row->name, list, (long long)o->copies, o->copies == 1 ? "" : "s",
                   (long long)copies, copies == 1 ? "y" : "ies");
    else if (o->copies && o->copies != copies)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .copies is %lld, but the parameters have %lld cop%s",
                   row->name, (long long)o->copies, (long long)copies, copies == 1 ? "y" : "ies");
    else
        return true;
    return false;
}

/* For parameters with copies: makes an optimiser of all, and one for each copy, on a list of that
 * copy's tensors, which shares its parameters and moments. NULL after an error. */
static eg_opt *open_all(const kind *row, const eg_opt_args *o)
{
    eg_params *p = o->params;
    const int64_t copies = eg_copies_count(eg_params_copies(p));
    if (!lists_fit(row, o, copies)) return NULL;
    eg_opt *op = open_kind(row, o, NULL, 0);
    if (!op || !copies) return op;
    op->states = 0; /* each copy's optimiser has its own */
    op->copies = copies;
    const eg_mark mark = eg_push(op->cx);
    const bool was = eg_nograd(op->cx, true);
    for (int k = 0; k < op->count; k++) /* moments of copies are never replaced */
        for (int m = 0; m < EG__MOMENTS; m++)
            op->to[k * (1 + EG__MOMENTS) + 1 + m] = eg__opt_numbers(op->moment[m][k]);
    eg_nograd(op->cx, was);
    eg_pop(op->cx, mark);
    if (eg_error(op->cx)) return NULL;
    op->each = eg_params_alloc(p, (size_t)copies * sizeof *op->each);
    for (int64_t k = 0; op->each && k < copies; k++) {
        eg_opt_args one = *o;
        one.params = eg_params_of_copy(p, k);
        one.lr = o->lr_each ? o->lr_each[k] : o->lr;
        one.clip_norm = o->clip_each ? o->clip_each[k] : o->clip_norm;
        one.lr_each = one.clip_each = NULL, one.copies = 0;
        op->each[k] = one.params ? open_kind(row, &one, op, k) : NULL;
        if (!op->each[k]) return eg_fail_in(op->cx, "copy %lld", (long long)k), NULL;
        op->each[k]->of_copy = true;
        op->each[k]->seed = eg_copies_seed(eg_params_copies(p), k);
    }
    return op->each ? op : NULL;
}

eg_opt *eg__opt_open(const kind *row, const eg_opt_args *given)
{
    eg_opt_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_ctx *cx = eg_params_context(o.params);
    if (cx && eg_refuse_capture(cx, row->name)) return NULL;
    const bool failed = eg_error(cx);
    eg_opt *op = open_all(row, &o);
    if (!failed && eg_error_code(cx) == EG_ERROR_MEMORY) eg_fail_in(cx, "%s", row->name);
    return op;
}

eg_opt *eg_sgd_with(const eg_opt_args *a) { return eg__opt_open(&sgd, a); }
eg_opt *eg_adam_with(const eg_opt_args *a) { return eg__opt_open(&adam, a); }
eg_opt *eg_adamw_with(const eg_opt_args *a) { return eg__opt_open(&adamw, a); }
eg_opt *eg_rmsprop_with(const eg_opt_args *a) { return eg__opt_open(&rmsprop, a); }
eg_opt *eg_adagrad_with(const eg_opt_args *a) { return eg__opt_open(&adagrad, a); }

/* -- reading the state ------------------------------------------------------------------------- */
eg_opt *eg_opt_of_copy(const eg_opt *op, int64_t k)
{
    return op && op->each && k >= 0 && k < op->copies ? op->each[k] : NULL;
}
eg_opt_report eg_opt_report_of(const eg_opt *op)
{
    if (op && op->each) op = op->each[0];
    if (op && eg_refuse_capture(op->cx, "opt_report_of")) return (eg_opt_report){ 0 };
    const int64_t *counts = op ? eg_i64(op->counts) : NULL;
    return counts ? (eg_opt_report){ counts[COUNT_STEPS], counts[COUNT_NORM_CLIPPED],
                                     counts[COUNT_VALUE_CLIPPED], op->norm,
                                     eg_item(op->lr) *
                                         eg_schedule_factor(&op->o.schedule, counts[COUNT_STEPS]) }
                  : (eg_opt_report){ 0 };
}

bool eg__opt_there(const char *who, const eg_opt *op)
{
    if (!op) eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: the optimiser is NULL", who);
    return op;
}
int eg_opt_set_lr(eg_opt *op, double lr)
{
    if (!eg__opt_there("opt_set_lr", op)) return -1;
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
    int own = 0;
    while (op && own < op->count && op->own[own] != k) own++;
    return op && own < op->count ? op->norms[own] : NAN;
}

const eg_named *eg_opt_state(const eg_opt *op, int k)
{
    return op && k >= 0 && k < op->states ? &op->state[k] : NULL;
}
