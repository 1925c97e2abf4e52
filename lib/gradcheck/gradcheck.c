/* gradcheck.c: does the gradient of f agree with derivatives of f found without it, entry by entry,
 * and was anything tested?
 *
 * L(x) = ⟨f(x), W⟩ with one fixed random W, or each element of f(x) with .full, all in f64
 * (probe.c). The k-th order is the first of x → Σ ⟨∂L/∂x, V⟩ of the order below, with fixed random
 * V: a function like any other. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ORDERS = 8 };

/* -- verdicts --------------------------------------------------------------------------------- */
static double check_allowed(const eg__trial *c, const eg__slope *n, double scale)
{
    return c->o.rtol * fabs(n->n) + c->o.atol * scale + n->err;
}
/* True if 0 in place of the analytic value would have been refused. */
static bool covered(const eg__trial *c, const eg__slope *n, double scale)
{
    return fabs(n->n) > check_allowed(c, n, scale);
}
/* Whether the analytic value a agrees with the numeric one, n. */
static eg_verdict verdict_of(const eg__trial *c, double a, const eg__slope *n, double scale)
{
    const double allowed = check_allowed(c, n, scale), jump = fabs(n->right - n->left);
    const double low = fmin(n->left, n->right), high = fmax(n->left, n->right);
    if (isnan(a)) return EG_WRONG;
    if (!isfinite(n->n) || !isfinite(n->err)) return EG_NOISE;
    const bool kink = n->bend > 0.6 && jump > 1e-4 * fmax(scale, fabs(n->n));
    if (kink && a >= low - allowed - 0.02 * jump && a <= high + allowed + 0.02 * jump)
        return EG_KINK;
    if (fabs(a - n->n) <= allowed) return EG_RIGHT;
    return c->again || n->err > 1e-2 * fmax(fabs(n->n), 1e-3 * scale) ? EG_NOISE : EG_WRONG;
}
/* For qsort: the worst entry first. */
static int worse(const void *p, const void *q)
{
    const eg_entry *a = p, *b = q;
    static const int rank[] = {
        [EG_EMPTY] = 0, [EG_UNTESTED] = 1, [EG_NOISE] = 2, [EG_KINK] = 3, [EG_WRONG] = 4
    };
    if (rank[a->verdict] != rank[b->verdict]) return rank[b->verdict] - rank[a->verdict];
    const double x = fabs(a->analytic - a->numeric), y = fabs(b->analytic - b->numeric);
    if (isnan(x) != isnan(y)) return isnan(x) ? -1 : 1;
    if (x != y && !isnan(x)) return x > y ? -1 : 1;
    if (a->input != b->input) return a->input - b->input;
    return a->index != b->index ? (a->index < b->index ? -1 : 1)
                                : (a->output > b->output) - (a->output < b->output);
}

/* -- columns: the variables, or random directions; each gives one entry for every output ------ */
static int64_t column_count(const eg__trial *c)
{
    return c->o.directions > 0 ? (int64_t)c->o.directions * c->o.count : c->vars;
}
static int column_input(const eg__trial *c, int64_t k)
{
    return c->o.directions > 0 ? (int)(k % c->o.count) : c->var[k].input;
}

/* The slopes of a column, and its entries with the analytic values of gradient a. */
static bool column(eg__trial *c, int64_t k, double *direction, const double *a, eg__slope *s,
                   eg_entry *e)
{
    const bool along = c->o.directions > 0;
    if (along) eg__direction(c, (int)k, column_input(c, k), direction);
    if (!eg__slopes(c, along ? -1 : c->var[k].cell, direction, s)) return false;
    for (int64_t o = 0; o < c->outs; o++) {
        double sum = along ? 0 : a[o * c->vars + k];
        /* 0 in other inputs */
        for (int64_t j = 0; along && j < c->vars; j++)
            sum += direction[c->var[j].cell] * a[o * c->vars + j];
        e[o] = (eg_entry){ .input = column_input(c, k),
                           .index = along ? -1 : c->var[k].index,
                           .analytic = sum,
                           .numeric = s[o].n,
                           .left = s[o].left,
                           .right = s[o].right,
                           .error = s[o].err,
                           .output = c->o.full ? o : -1,
                           .shared = along ? 1 : c->var[k].shared };
    }
    return true;
}

/* -- an input without a covered entry: does another point test it? ---------------------------- */
/* The verdict at the present point, `where`: WRONG, with the worst entry, or UNTESTED if the input
 * can be tested there; NOISE if no entry is clear; ZERO if all are zero. */
static eg_verdict recheck_at(eg__trial *c, int input, const char *where, eg_entry *worst)
{
    eg_mark m = eg_push(c->cx);
    const int64_t n = column_count(c), outs = c->outs;
    double *a = eg__alloc(c->cx, (size_t)(outs * c->vars + 1) * sizeof *a);
    double *direction = eg__alloc(c->cx, (size_t)(c->cells + 1) * sizeof *direction);
    eg__slope *s = eg__alloc(c->cx, (size_t)(n * outs + 1) * sizeof *s);
    eg_entry *e = eg__alloc(c->cx, (size_t)(n * outs + 1) * sizeof *e);
    eg_verdict found = EG_ZERO;
    double scale = 0;
    bool good = a && direction && s && e && eg__trial_gradient(c, a);
    for (int64_t k = 0; good && k < n; k++) {
        if (column_input(c, k) != input) continue;
        good = column(c, k, direction, a, s + k * outs, e + k * outs);
        for (int64_t o = k * outs; good && o < (k + 1) * outs; o++)
            scale = fmax(scale, fabs(s[o].n));
    }
    for (int64_t k = 0; good && k < n * outs; k++) {
        if (column_input(c, k / outs) != input) continue;
        if (!covered(c, &s[k], scale) && fabs(e[k].analytic) <= c->o.atol * scale + s[k].err)
            continue;
        e[k].verdict = verdict_of(c, e[k].analytic, &s[k], scale);
        e[k].at = where;
        const double error = fabs(e[k].analytic - e[k].numeric);
        if (e[k].verdict == EG_WRONG &&
            (found != EG_WRONG || error > fabs(worst->analytic - worst->numeric))) {
            found = EG_WRONG;
            *worst = e[k];
        } else if (e[k].verdict == EG_RIGHT && covered(c, &s[k], scale) && found != EG_WRONG)
            found = EG_UNTESTED;
        else if (e[k].verdict != EG_RIGHT && found == EG_ZERO)
            found = EG_NOISE;
    }
    eg_pop(c->cx, m);
    return found;
}
/* The same at points near zero, and at one drawn again, until one shows something. */
static eg_verdict recheck_elsewhere(eg__trial *c, int input, const char **where, eg_entry *worst)
{
    eg_ctx *cx = c->cx;
    static const char *const name[] = { "scaled by 0.1", "scaled by 0.01",
                                        "drawn again from [-1, 1)" };
    double *kept = eg__alloc(c->cx, (size_t)(c->cells + 1) * sizeof *kept);
    eg_verdict found = EG_ZERO;
    bool unclear = false;
    if (!kept) return EG_NOISE;
    memcpy(kept, c->point, (size_t)c->cells * sizeof *kept);
    for (int turn = 0; turn < 3 && found == EG_ZERO && !c->cx->failed; turn++) {
        for (int64_t k = 0; k < c->vars; k++) {
            const int64_t cell = c->var[k].cell;
            if (c->var[k].input != input) continue;
            c->point[cell] = turn == 2 ? 2 * eg__unit(c->o.seed, 7, (uint64_t)k) - 1
                                       : kept[cell] * (turn ? 0.01 : 0.1);
        }
        memcpy(c->memory, c->point, (size_t)c->cells * sizeof *kept);
        found = recheck_at(c, input, name[turn], worst);
        /* f refuses that point */
        if (cx->failed && strncmp(eg_error(cx), "out of memory", 13) != 0) {
            eg_clear(cx);
            found = EG_NOISE;
        }
        *where = name[turn];
        unclear |= found == EG_NOISE;
        if (found == EG_NOISE) found = EG_ZERO;
    }
    memcpy(c->point, kept, (size_t)c->cells * sizeof *kept);
    memcpy(c->memory, kept, (size_t)c->cells * sizeof *kept);
    return found == EG_ZERO && unclear ? EG_NOISE : found;
}

/* -- one order -------------------------------------------------------------------------------- */
/* Finds out why no entry covers input k, with a note for the report, and returns its verdict.
 * *worst is the entry that another point shows wrong. */
static eg_verdict uncovered(eg__trial *c, eg_report *r, int k, const eg__path *p, eg_entry *worst)
{
    const bool along = c->o.directions > 0;
    const char *where = NULL;
    char ends[512];
    /* linear in it: zero, and the slopes agree */
    if (r->order > 1 && !p->alive) return EG_ZERO;
    const eg_verdict v = recheck_elsewhere(c, k, &where, worst);
    if (!p->alive) eg__sites_text(p->cut, p->cuts, ends, sizeof ends);
    switch (v) {
    case EG_WRONG:
        if (!p->any)
            eg__report_note(c, r, v, k,
                            "f depends on it, but no recorded path leads from it to f's result");
        else if (!p->alive)
            eg__report_note(c, r, v, k, "f depends on it, but its path has zero gradient: %s",
                            ends);
        return v;
    case EG_UNTESTED:
        eg__report_note(
            c, r, v, k,
            "0 of %lld %s are above the noise here; it can be tested with this input %s",
            (long long)(along ? c->o.directions : eg_size(c->o.xs[k])),
            along ? "directions" : "entries", where);
        return v;
    case EG_NOISE:
        eg__report_note(
            c, r, EG_UNTESTED, k,
            "no entry is above the noise here, nor with this input scaled or drawn again");
        return EG_UNTESTED;
    default:
        if (!p->any)
            eg__report_note(c, r, EG_UNTESTED, k,
                            "f does not read it: no recorded path leads from it to f's result");
        else if (!p->alive)
            eg__report_note(c, r, EG_UNTESTED, k, "path has zero gradient: %s", ends);
        else if (r->order == 1)
            eg__report_note(c, r, EG_RIGHT, k,
                            "zero: the gradient is zero here and elsewhere, analytic and numeric");
        return p->alive ? EG_ZERO : EG_UNTESTED;
    }
}

/* Notes on what makes the check itself weaker: no determinism, casts, paths that end. */
static void findings(eg__trial *c, eg_report *r, const eg__path *path)
{
    char ends[512];
    if (c->again)
        eg__report_note(
            c, r, EG_NOISE, -1,
            "f gives another value when it is called again with the same inputs and draws: "
            "it is not deterministic");
    if (c->probe->cast.name)
        eg__report_note(
            c, r, EG_NOISE, -1,
            "a cast to f32 inside f, by %s: its rounding is 1e-7, and so is the check's",
            eg__sites_text(&c->probe->cast, 1, ends, sizeof ends));
    for (int k = 0; k < c->o.count; k++) {
        bool said = false;
        for (int j = 0; j < r->notes; j++) said |= r->note[j].input == k;
        if (r->order == 1 && path[k].cuts && !said)
            eg__report_note(c, r, EG_RIGHT, k, "%s zero gradient: %s",
                            path[k].alive ? "one of its paths has" : "its path has",
                            eg__sites_text(path[k].cut, path[k].cuts, ends, sizeof ends));
    }
    if (c->unsupported)
        eg__report_note(c, r, EG_RIGHT, -1,
                        "%s cannot be evaluated in c128: differences instead of the complex step",
                        c->unsupported);
}

/* Differences instead of the complex step, and tolerances to match. */
static void by_differences(eg__trial *c)
{
    c->o.oracle = EG_DIFFERENCES;
    c->o.rtol = fmax(c->o.rtol, 1e-7);
    c->o.atol = fmax(c->o.atol, 1e-9);
}
/* One order of a check, and what its report is made of. */
typedef struct order_run {
    eg_report *r;
    eg_verdict *input; /* by input */
    bool *tested;      /* by input: some entry of it is covered */
    eg__path *path;    /* by input */
    eg_entry *all;     /* the entries, then one for each input that another point shows wrong */
    eg__slope *s;      /* by entry */
    double *a;         /* the gradient: a[out · vars + var] */
    double *direction; /* room for one */
    double scale;      /* the largest numeric value */
    int64_t entries, listed;
} order_run;
static bool order_open(eg__trial *c, order_run *o, int order, const eg_report *higher)
{
    eg_ctx *cx = c->cx;
    const size_t count = (size_t)c->o.count + 1;
    o->entries = o->listed = column_count(c) * c->outs;
    o->r = eg__alloc(cx, sizeof *o->r);
    char *words = eg__alloc(cx, EG_CHECK_TEXT);
    o->input = eg__alloc(cx, count * sizeof *o->input);
    o->tested = eg__alloc(cx, count * sizeof *o->tested);
    o->path = eg__alloc(cx, count * sizeof *o->path);
    o->all = eg__alloc(cx, ((size_t)o->entries + count) * sizeof *o->all);
    o->s = eg__alloc(cx, (size_t)(o->entries + 1) * sizeof *o->s);
    o->a = eg__alloc(cx, (size_t)(c->outs * c->vars + 1) * sizeof *o->a);
    o->direction = eg__alloc(cx, (size_t)(c->cells + 1) * sizeof *o->direction);
    if (!o->r || !words || !o->input || !o->tested || !o->path || !o->all || !o->s || !o->a ||
        !o->direction)
        return false;
    *o->r = (eg_report){ .passed = true,
                         .entries = o->entries,
                         .input = o->input,
                         .text = words,
                         .entry = o->all,
                         .order = order,
                         .higher = higher };
    return true;
}

/* Walks the tape for the inputs' paths, and finds the analytic and numeric value of every entry. */
static bool order_measure(eg__trial *c, order_run *o)
{
    const eg_mark m = eg_push(c->cx);
    eg_tensor *y = eg__trial_call(c);
    const bool walked = y && eg__paths(c, y, o->path);
    eg_pop(c->cx, m);
    if (!walked || !eg__trial_gradient(c, o->a)) return false;
    if (c->probe->cast.name) c->unit = 6e-8;
    for (int64_t k = 0; k < column_count(c); k++) {
        if (!column(c, k, o->direction, o->a, o->s + k * c->outs, o->all + k * c->outs)) {
            if (c->cx->failed || !c->unsupported) return false;
            by_differences(c); /* from the first column on */
            k = -1;
            o->scale = 0;
            continue;
        }
        for (int64_t e = k * c->outs; e < (k + 1) * c->outs; e++)
            if (fabs(o->s[e].n) > o->scale) o->scale = fabs(o->s[e].n);
    }
    return true;
}

/* The verdict on every entry, and by them on every input; which inputs are tested. */
static void order_judge(eg__trial *c, order_run *o)
{
    eg_report *r = o->r;
    for (int k = 0; k < c->o.count; k++) {
        o->input[k] = eg_size(c->o.xs[k]) ? EG_RIGHT : EG_EMPTY;
        o->tested[k] = false;
    }
    for (int64_t k = 0; k < o->entries; k++) {
        eg_entry *e = &o->all[k];
        const double error = fabs(e->analytic - e->numeric),
                     allowed = check_allowed(c, &o->s[k], o->scale);
        e->verdict = verdict_of(c, e->analytic, &o->s[k], o->scale);
        r->right += e->verdict == EG_RIGHT;
        r->covered += covered(c, &o->s[k], o->scale);
        o->tested[e->input] |= covered(c, &o->s[k], o->scale);
        if (o->scale > 0) r->worst = fmax(r->worst, error / o->scale);
        if (allowed > 0) r->margin = fmax(r->margin, error / allowed);
        if (!isfinite(error)) r->worst = r->margin = INFINITY;
        if (eg__fails(e->verdict) && (o->input[e->input] == EG_RIGHT || e->verdict == EG_WRONG))
            o->input[e->input] = e->verdict;
    }
    /* an input whose memory is another one's is tested with it */
    for (int k = 0; k < c->o.count; k++)
        for (int64_t j = 0, size = eg_size(c->o.xs[k]); j < size && !o->tested[k]; j++)
            o->tested[k] = o->tested[c->var[c->var_of[k][j]].input];
    for (int k = 0; k < c->o.count; k++)
        if (o->input[k] == EG_EMPTY)
            eg__report_note(c, r, EG_RIGHT, k, "empty: it has no elements");
    for (int k = 0; k < c->o.count && c->size; k++)
        if (o->input[k] == EG_RIGHT && !o->tested[k] &&
            (o->input[k] = uncovered(c, r, k, &o->path[k], &o->all[o->listed])) == EG_WRONG)
            o->listed++;
}

/* What the entries do not show: forward mode, which rule is wrong, the complex step beside
 * differences, mutants; and whether all of it passes. False after an error. */
static bool order_beyond_entries(eg__trial *c, order_run *o)
{
    eg_report *r = o->r;
    const bool first = r->order == 1;
    bool wrong = false, cut = false;
    for (int k = 0; k < c->o.count; k++) {
        wrong |= o->input[k] == EG_WRONG;
        cut |= o->path[k].cuts > 0;
    }
    if (c->cx->failed || (!c->probe->cast.name && !eg__forward(c, r, o->a)) ||
        (wrong && first && !eg__blame(c, r, cut)))
        return false;
    if (c->o.oracle == EG_COMPLEX_STEP && first && c->size && !eg__off_tape(c, r)) return false;
    findings(c, r, o->path);
    for (int k = 0; k < c->o.count; k++) r->passed &= !eg__fails(o->input[k]);
    for (int k = 0; k < r->notes; k++) r->passed &= !eg__fails(r->note[k].verdict);
    if (r->passed && c->o.mutate && first) {
        if (!eg__mutate(c, o->scale, r) || c->cx->failed) return false;
        r->passed = r->survivors == 0;
    }
    return true;
}

/* The report of one order; NULL after an error. */
static eg_report *one_order(eg__trial *c, int order, const eg_report *higher)
{
    order_run o = { .scale = 0 };
    if (!order_open(c, &o, order, higher) || !order_measure(c, &o)) return NULL;
    order_judge(c, &o);
    if (!order_beyond_entries(c, &o)) return NULL;
    qsort(o.all, (size_t)o.listed, sizeof *o.all, worse);
    o.r->shown = o.listed < EG_CHECK_SHOWN ? (int)o.listed : EG_CHECK_SHOWN;
    if (order == 1) {
        o.r->calls = *c->calls;
        o.r->sweeps = *c->sweeps;
    }
    eg__report_write(c, o.r, o.path);
    if (higher) o.r->passed &= higher->passed;
    return o.r;
}

/* -- all of them ------------------------------------------------------------------------------ */
/* f of the next order: Σ ⟨∂L/∂x, V⟩ of this one. */
static eg_tensor *pulled(void *user, eg_tensor *const *xs)
{
    eg__trial *c = user;
    eg_tensor *dx[EG_CHECK_INPUTS], *sum = NULL;
    eg_tensor *y = eg__trial_call(c);
    ++*c->sweeps;
    if (!y || eg__grad(y, c->w, c->o.count, xs, dx)) return eg__poison(c->cx);
    for (int k = 0; k < c->o.count; k++) {
        eg_tensor *v = eg__new(c->cx, EG_F64, dx[k]->rank, dx[k]->dim);
        for (int64_t j = 0, n = v ? eg_size(v) : 0; j < n; j++)
            ((double *)(void *)v->data)[j] =
                0.5 + eg__unit(c->o.seed, (uint64_t)(1000 + k), (uint64_t)j);
        eg_tensor *p = eg_sum(NULL, eg_mul(dx[k], v));
        sum = sum ? eg_add(sum, p) : p;
    }
    return sum ? sum : eg__poison(c->cx);
}

/* The reports of all orders, the highest first, since each holds the one above it. */
static const eg_report *orders(eg__trial *first)
{
    eg__trial trial[ORDERS];
    if (first->probe->cast.name && first->o.oracle == EG_COMPLEX_STEP) by_differences(first);
    const eg_report *r = NULL;
    int64_t beside = 0;
    trial[0] = *first;
    for (int k = 1; k < first->o.order; k++) {
        trial[k - 1].o.full = k == 1 ? first->o.full : false;
        trial[k] = trial[k - 1];
        trial[k].o.f = pulled;
        trial[k].o.user = &trial[k - 1];
        trial[k].o.full = false;
        trial[k].order = k + 1;
        trial[k].calls = &beside; /* its calls of f are those of the order below */
        if (!eg__trial_measure(&trial[k])) return NULL;
    }
    for (int k = first->o.order; k-- > 0;)
        if (!(r = one_order(&trial[k], k + 1, r))) return NULL;
    return r;
}

/* True, after an error, if a list such as "A, B" or "i j, j k" has more parts than there are
 * inputs. */
static bool surplus(eg_ctx *cx, const eg_gradcheck_args *o, const char *list, const char *what)
{
    int n, more = o->count;
    while (eg__check_part(list, more, &n), n) more++;
    if (more > o->count)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "gradcheck: \"%.200s\" has %d parts, but there %s %d input%s for .%s", list,
                   more, o->count == 1 ? "is" : "are", o->count, o->count == 1 ? "" : "s", what);
    return more > o->count;
}
/* True if the arguments can be used; else records an error. */
static bool sensible(eg_ctx *cx, const eg_gradcheck_args *o)
{
    if (!o->f)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: the function is NULL");
    else if (o->count > EG_CHECK_INPUTS)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: %d inputs; at most %d", o->count,
                   EG_CHECK_INPUTS);
    else if (o->order < 0 || o->order > ORDERS)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: order %d is not in 1 to %d", o->order, ORDERS);
    else if (!(o->rtol >= 0 || o->rtol == EG_OFF) || !(o->atol >= 0 || o->atol == EG_OFF) ||
             o->directions < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "gradcheck: rtol %g, atol %g or directions %d is negative or no number", o->rtol,
                   o->atol, o->directions);
    else if (o->oracle != EG_DIFFERENCES && o->oracle != EG_COMPLEX_STEP)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: oracle %d is none", (int)o->oracle);
    else if (!surplus(cx, o, o->names, "names") && !surplus(cx, o, o->axes, "axes") &&
             eg__check_all(cx, "gradcheck", o->count, o->xs))
        for (int k = 0; k < o->count; k++)
            if (!eg__is_float(o->xs[k]->dtype))
                eg_fail_as(cx, EG_ERROR_DTYPE,
                           "gradcheck: input %d is %s; only floats have gradients", k + 1,
                           eg_type_name((eg_dtype)o->xs[k]->dtype));
    return !cx->failed;
}

const eg_report *eg_gradcheck_with(const eg_gradcheck_args *given)
{
    eg__trial c = { .o = { .size = sizeof c.o } };
    eg_options(&c.o, sizeof c.o, given);
    eg_ctx *cx = c.cx = eg__context_of("gradcheck", c.o.count, c.o.xs);
    if (!cx || cx->failed || !sensible(cx, &c.o)) return NULL;
    int64_t calls = 0, sweeps = 0;
    c.calls = &calls;
    c.sweeps = &sweeps;
    const bool step = c.o.oracle == EG_COMPLEX_STEP;
    c.o.rtol = eg_option(c.o.rtol, step ? 1e-11 : 1e-7);
    c.o.atol = eg_option(c.o.atol, step ? 1e-12 : 1e-9);
    if (!c.o.order) c.o.order = 1;
    c.unit = 2.3e-16;
    c.draws = cx->draw;
    c.training = cx->training;
    eg__probe probe = { .outer = cx->probe, .born = cx->seq + 1, .home = cx->top };
    const eg_dtype dtype = cx->dtype;
    const bool recording = eg_nograd(cx, false);
    const eg_hooks before = cx->hooks;
    /* a difference of two values of f needs all their bits, the subnormal ones too */
    const bool flush = eg_flush(cx, false);
    const uint64_t begun = eg__fpmode_exact();
    cx->probe = c.probe = &probe;
    cx->hooks.operand = eg__probe_operand;
    cx->hooks.cotangent = NULL;
    cx->hooks.recorded = NULL;
    cx->dtype = EG_F64;
    const eg_report *r = eg__trial_open(&c) ? orders(&c) : NULL;
    eg__probe_end(cx);
    cx->hooks.operand = before.operand;
    cx->hooks.cotangent = before.cotangent;
    cx->hooks.recorded = before.recorded;
    eg__fpmode_end(begun);
    eg_flush(cx, flush);
    cx->dtype = dtype;
    cx->training = c.training;
    eg_nograd(cx, recording);
    eg_set_draws(cx, c.draws);
    return cx->failed ? NULL : r;
}
