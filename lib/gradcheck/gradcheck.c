/* gradcheck.c: compares the gradient of f, entry by entry, with derivatives of f that are computed
 * without it, and tests whether a wrong gradient would have been found.
 *
 * The scalar is L(x) = ⟨f(x), W⟩ with one fixed random W, or with .full each element of f(x), all
 * in f64 (substitute.c). The check of order k is the check of order 1 for the function x → Σ
 * ⟨∂L/∂x, V⟩ of the order below, with fixed random V. */
#include "gradcheck/gradcheck.h"
#include <math.h>

enum { ORDERS = 8 };

/* -- one order -------------------------------------------------------------------------------- */
/* Returns the verdict on an input of which no entry is covered at the point, and adds notes. */
static eg_verdict uncovered(eg__trial *c, eg_report *r, int k, const eg__path *p,
                            const eg__elsewhere *f)
{
    const bool along = c->o.directions > 0;
    const int64_t n = along ? c->o.directions : eg_size(c->o.xs[k]);
    char ends[512];
    /* f is linear in this input: the second derivative is zero */
    if (r->order > 1 && !p->alive) return EG_ZERO;
    if (!p->alive) eg__sites_text(p->cut, p->cuts, ends, sizeof ends);
    switch (f->v) {
    case EG_WRONG:
        if (!p->any)
            eg__report_note(c, r, f->v, k,
                            "f depends on it, but no recorded path leads from it to f's result");
        else if (!p->alive)
            eg__report_note(c, r, f->v, k, "f depends on it, but its path has zero gradient: %s",
                            ends);
        return f->v;
    case EG_RIGHT:
        eg__report_note(c, r, EG_RIGHT, k, "zero: the gradient is zero here, and it was tested %s",
                        f->where);
        return EG_ZERO;
    case EG_UNTESTED:
        eg__report_note(c, r, f->v, k,
                        "0 of %lld %s above the noise here; it can be tested with this input %s",
                        (long long)n,
                        along    ? n == 1 ? "direction is" : "directions are"
                        : n == 1 ? "entry is"
                                 : "entries are",
                        f->where);
        return f->v;
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

/* Adds notes that do not come from entries: f is random, a cast, paths without a gradient. */
static void add_notes(eg__trial *c, eg_report *r, const eg__path *path)
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
        bool noted = false;
        for (int j = 0; j < r->notes; j++) noted |= r->note[j].input == k;
        if (r->order == 1 && path[k].cuts && !noted)
            eg__report_note(c, r, EG_RIGHT, k, "%s zero gradient: %s",
                            path[k].alive ? "one of its paths has" : "its path has",
                            eg__sites_text(path[k].cut, path[k].cuts, ends, sizeof ends));
    }
    if (c->unsupported)
        eg__report_note(c, r, EG_RIGHT, -1,
                        "%s cannot be evaluated in c128: differences instead of the complex step",
                        c->unsupported);
}

/* Sets the oracle to differences, with tolerances to match. */
static void by_differences(eg__trial *c)
{
    c->o.oracle = EG_DIFFERENCES;
    c->o.rtol = fmax(c->o.rtol, 1e-8);
    c->o.atol = fmax(c->o.atol, 1e-15);
}

/* Computes what follows from the tape: the paths of the inputs, the contracts of operations, the
 * gradient a. False after an error. */
static bool recorded(eg__trial *c, eg_report *r, eg__path *path, double *a)
{
    eg_ctx *cx = c->cx;
    eg_mark m = eg_push(cx);
    eg_tensor *y = eg__named_call(c);
    const bool good = y && eg__paths(c, y, path) &&
                      (c->order > 1 || (eg__contracts(c, r, y) && eg__unlisted(c, r, y))) &&
                      !cx->failed;
    eg_pop(cx, m);
    if (!good || !eg__trial_gradient(c, a)) return false;
    eg__trial_scale(c, a);
    if (c->probe->cast.name) {
        c->unit = 6e-8;
        for (int64_t k = 0; k < c->size; k++)
            c->noise[k] = fmax(c->noise[k], c->unit * fabs(c->middle[k]));
    }
    return eg__gradient_noise(c, a);
}

/* Tests at other points, and adds the findings about inputs and entries that are not covered at
 * this point. False after an error. */
static bool other_points(eg__entries *e, const eg__path *path)
{
    eg__trial *c = e->c;
    eg_report *r = e->r;
    eg__elsewhere found[EG_CHECK_INPUTS];
    for (int k = 0; k < c->o.count; k++) found[k] = (eg__elsewhere){ .v = EG_ZERO };
    int64_t open = 0, left = 0;
    for (int64_t v = 0; v < c->vars && c->o.directions > 0; v++)
        e->open[v] = e->tested[c->var[v].input] ? EG_COVERED : EG_BOTH_ZERO;
    for (int64_t v = 0; v < c->vars; v++) open += e->open[v] != EG_COVERED;
    if (c->order == 1 && !c->again && !c->probe->cast.name &&
        !eg__points(c, e->open, e->tested, e->input, found))
        return false;
    for (int64_t v = 0; v < c->vars; v++) left += e->open[v] != EG_COVERED;
    r->elsewhere = open - left;
    for (int k = 0; k < c->o.count; k++) {
        if (e->input[k] != EG_RIGHT) continue;
        if (!e->tested[k])
            e->input[k] = uncovered(c, r, k, &path[k], &found[k]);
        else if (found[k].v == EG_WRONG)
            e->input[k] = EG_WRONG;
        if (e->input[k] == EG_WRONG && found[k].v == EG_WRONG &&
            !eg__entries_add(e, &found[k].worst))
            return false;
    }
    int64_t lost = 0, first = -1;
    for (int64_t v = 0; v < c->vars && c->order == 1; v++) {
        if (e->open[v] != EG_HIDDEN || e->input[c->var[v].input] != EG_RIGHT) continue;
        if (!lost++) first = v;
    }
    if (lost) {
        const int k = c->var[first].input;
        eg__report_note(c, r, EG_UNTESTED, k,
                        "%lld entr%s not 0 and below the noise, here and elsewhere; the "
                        "first is element %lld",
                        (long long)lost, lost == 1 ? "y is" : "ies are",
                        (long long)c->var[first].index);
        e->input[k] = EG_UNTESTED;
    }
    return true;
}

static eg_report *report_new(eg__trial *c, int order, const eg_report *higher)
{
    eg_report *r = eg__alloc(c->cx, sizeof *r);
    eg_verdict *input = eg__alloc(c->cx, (size_t)(c->o.count + 1) * sizeof *input);
    char *words = eg__alloc(c->cx, EG_CHECK_TEXT);
    if (!r || !input || !words) return NULL;
    *r = (eg_report){
        .passed = true, .input = input, .text = words, .order = order, .higher = higher
    };
    for (int k = 0; k < c->o.count; k++) {
        input[k] = eg_size(c->o.xs[k]) ? EG_RIGHT : EG_EMPTY;
        if (input[k] == EG_EMPTY) eg__report_note(c, r, EG_RIGHT, k, "empty: it has no elements");
    }
    return r;
}

/* Makes the tests that follow the entries: forward mode, values that are not on the tape, state,
 * precision, and blame. False after an error. */
static bool final_tests(eg__entries *e, const eg__path *path)
{
    eg__trial *c = e->c;
    eg_report *r = e->r;
    const bool first = r->order == 1, cast = c->probe->cast.name != NULL;
    bool wrong = false, cut = false, state = false;
    for (int k = 0; k < c->o.count; k++) {
        wrong |= e->input[k] == EG_WRONG;
        cut |= path[k].cuts > 0;
    }
    if (!cast && !c->forwardless && !eg__forward(c, r, e->a)) return false;
    const int before = r->notes;
    if (first && c->size && !c->again && !eg__state(c, r, e->a)) return false;
    for (int k = before; k < r->notes; k++) state |= r->note[k].verdict == EG_WRONG;
    if ((wrong || state) && first && !eg__blame(c, r, cut || !wrong)) return false;
    if (c->o.oracle == EG_COMPLEX_STEP && first && c->size && !eg__off_tape(c, r)) return false;
    add_notes(c, r, path);
    return !c->cx->failed;
}

/* Returns the report of one order; NULL after an error. */
static eg_report *one_order(eg__trial *c, int order, const eg_report *higher)
{
    eg_ctx *cx = c->cx;
    eg_report *r = report_new(c, order, higher);
    double *a = eg__alloc(cx, (size_t)(c->outs * c->vars + 1) * sizeof *a);
    eg__path *path = eg__alloc(cx, (size_t)(c->o.count + 1) * sizeof *path);
    if (!r || !a || !path || !recorded(c, r, path, a)) return NULL;
    eg__entries e = { .c = c, .r = r, .input = (eg_verdict *)(uintptr_t)r->input, .a = a };
    if (!eg__entries_open(&e)) return NULL;
    if (!eg__entries_all(&e)) {
        if (cx->failed || !c->unsupported) return NULL;
        by_differences(c);
        if (!eg__entries_open(&e) || !eg__entries_all(&e)) return NULL;
    }
    if (c->size && !other_points(&e, path)) return NULL;
    if (!final_tests(&e, path)) return NULL;
    for (int k = 0; k < c->o.count; k++) r->passed &= !eg__fails(r->input[k]);
    for (int k = 0; k < r->notes; k++) r->passed &= !eg__fails(r->note[k].verdict);
    if (r->passed && c->o.mutate && order == 1) {
        if (!eg__mutate(c, c->scale, r) || cx->failed) return NULL;
        r->passed = r->survivors == 0;
    }
    if (!r->passed) eg__hints(&e);
    eg__entries_close(&e);
    if (order == 1) {
        r->calls = *c->calls;
        r->sweeps = *c->sweeps;
    }
    double noise = 0, of = 0;
    for (int64_t k = 0; k < c->size; k++) {
        noise = fmax(noise, c->noise[k]);
        of = fmax(of, fabs(c->middle[k]));
    }
    r->noise = of > 0 ? noise / of : 0;
    if (order > 1)
        eg__report_write(c, r, path);
    else
        *c->first_order = (eg__first_order){ .c = *c, .path = path, .a = a };
    if (higher) r->passed &= higher->passed;
    return r;
}

/* -- all orders -------------------------------------------------------------------------------- */
/* The function of the next order: Σ ⟨∂L/∂x, V⟩ of the order below. */
static eg_tensor *gradient_product(void *user, eg_tensor *const *xs)
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

/* Makes the reports of all orders, the highest first, since each report points to that of the next
 * order. NULL after an error. */
static eg_report *orders(eg__trial *first)
{
    eg__trial trial[ORDERS];
    if (first->probe->cast.name && first->o.oracle == EG_COMPLEX_STEP) by_differences(first);
    eg_report *r = NULL;
    int64_t beside = 0;
    trial[0] = *first;
    for (int k = 1; k < first->o.order; k++) {
        trial[k - 1].o.full = k == 1 ? first->o.full : false;
        trial[k] = trial[k - 1];
        trial[k].o.f = gradient_product;
        trial[k].o.user = &trial[k - 1];
        trial[k].o.full = false;
        trial[k].order = k + 1;
        trial[k].calls = &beside; /* its calls of f are counted in the order below */
        if (!eg__trial_measure(&trial[k])) return NULL;
    }
    for (int k = first->o.order; k-- > 0;)
        if (!(r = one_order(&trial[k], k + 1, r))) return NULL;
    return r;
}

/* True if a list such as "A, B" or "i j, j k" has more parts than there are inputs; then also
 * records an error. */
static bool too_many_parts(eg_ctx *cx, const eg_gradcheck_args *o, const char *list,
                           const char *what)
{
    int n, more = o->count;
    while (eg__check_part(list, more, &n), n) more++;
    if (more > o->count)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "gradcheck: \"%.200s\" has %d parts, but there %s %d input%s for .%s", list,
                   more, o->count == 1 ? "is" : "are", o->count, o->count == 1 ? "" : "s", what);
    return more > o->count;
}
/* True if .axes has a letter or a word for each axis of each input that it names; else records an
 * error. */
static bool axes_fit(eg_ctx *cx, const eg_gradcheck_args *o)
{
    for (int k = 0; k < o->count; k++) {
        const eg_tensor *x = o->xs[k];
        int length, words = 0;
        const char *part = eg__check_part(o->axes, k, &length);
        for (int i = 0; i < length; i++) words += part[i] != ' ' && (!i || part[i - 1] == ' ');
        const int named = eg__check_words(x->rank, part, length) ? words : length;
        if (!length || named == x->rank) continue;
        char dims[256];
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "gradcheck: .axes names the axes of input %d \"%.*s\", but its rank is %d: %s",
                   k + 1, length, part, x->rank, eg__dims_text(x, dims, sizeof dims));
        return false;
    }
    return true;
}
static bool is_tolerance(double x) { return (x >= 0 && x < INFINITY) || x == EG_OFF; }
/* True if the arguments can be used; else records an error. */
static bool arguments_fit(eg_ctx *cx, const eg_gradcheck_args *o)
{
    if (!o->f)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: the function is NULL");
    else if (o->count > EG_CHECK_INPUTS)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: %d inputs; at most %d", o->count,
                   EG_CHECK_INPUTS);
    else if (o->order < 0 || o->order > ORDERS)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: order %d is not in 1 to %d", o->order, ORDERS);
    else if (!is_tolerance(o->rtol) || !is_tolerance(o->atol) || o->directions < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "gradcheck: rtol %g, atol %g or directions %d is negative or not finite",
                   o->rtol, o->atol, o->directions);
    else if (o->oracle != EG_DIFFERENCES && o->oracle != EG_COMPLEX_STEP)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: oracle %d is unknown", (int)o->oracle);
    else if (!too_many_parts(cx, o, o->names, "names") && !too_many_parts(cx, o, o->axes, "axes") &&
             eg__check_all(cx, "gradcheck", o->count, o->xs) && axes_fit(cx, o))
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
    if (!cx || cx->failed || !arguments_fit(cx, &c.o)) return NULL;
    int64_t calls = 0, sweeps = 0;
    c.calls = &calls;
    c.sweeps = &sweeps;
    const bool step = c.o.oracle == EG_COMPLEX_STEP;
    c.o.rtol = eg_option(c.o.rtol, step ? 1e-11 : 1e-8);
    c.o.atol = eg_option(c.o.atol, step ? 1e-14 : 1e-15);
    if (!c.o.order) c.o.order = 1;
    c.order = 1;
    c.unit = 2.3e-16;
    c.draws = cx->draw;
    c.training = cx->training;
    eg__probe probe = {
        .outer = cx->probe, .first_seq = cx->seq + 1, .arena = cx->top, .only_here = c.o.only_here
    };
    const eg_dtype dtype = cx->dtype;
    const bool recording = eg_nograd(cx, false);
    const eg_hooks before = cx->hooks;
    /* a difference of two values of f needs all their bits, including those of subnormal numbers */
    const bool flush = eg_flush(cx, false);
    const uint64_t begun = eg__fpmode_exact();
    cx->probe = c.probe = &probe;
    cx->hooks.operand = eg__probe_operand;
    if (probe.outer) cx->hooks.result = NULL; /* rounding.c's hook of the outer check */
    cx->hooks.cotangent = NULL;
    cx->hooks.recorded = NULL;
    cx->dtype = EG_F64;
    eg__first_order first_order = { .path = NULL };
    c.first_order = &first_order;
    eg_report *r = eg__trial_open(&c) ? orders(&c) : NULL;
    if (!r) eg__blame_error(&c);
    eg__probe_end(cx);
    cx->hooks.operand = before.operand;
    cx->hooks.result = before.result;
    cx->hooks.cotangent = before.cotangent;
    cx->hooks.recorded = before.recorded;
    eg__fpmode_end(begun);
    eg_flush(cx, flush);
    cx->dtype = dtype;
    cx->training = c.training;
    eg_nograd(cx, recording);
    eg_set_draws(cx, c.draws);
    if (!r || cx->failed || !eg__precision(&first_order, r)) return NULL;
    eg__report_write(&first_order.c, r, first_order.path);
    return r;
}
