/* points.c: repeats the check at other points, since a single point may hide a mistake: a factor
 * happens to be 0 or 1, a matrix is symmetric, a softmax is saturated. All inputs are moved
 * together, and the check is made along one random direction of each input. For entries that no
 * point has covered yet, their input is scaled or drawn again. If a direction disagrees, its
 * variables are halved until one entry is left. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

static const char *const point_name[] = {
    "with every input moved",
    "scaled by 0.3",
    "scaled by 0.1",
    "scaled by 0.01",
    "drawn again from [-1, 1)",
    "with every input scaled by 0.1",
    "with every input negated",
    "with every input scaled by 0.01",
    "with every input scaled by 10",
};
/* THIRD: for an input that is partly covered; near enough to the point for a gradient that is cut
 * off where the input is large. */
enum {
    MOVED,
    THIRD,
    TENTH,
    HUNDREDTH,
    DRAWN,
    ALL_TENTH,
    PLACES,
    ALL_NEGATED = PLACES,
    ALL_HUNDREDTH,
    ALL_TENFOLD,
    ALONE = THIRD
};
enum { FEW = 64 }; /* groups of at most this number of entries are tested one by one */

typedef struct points {
    eg__trial t; /* ⟨f, W⟩ at another point */
    const double *base;
    double *to, *a, *direction;
    bool *in; /* by variable: it is in the group */
    eg__elsewhere *found;
    uint8_t *open;
} points;

/* -- moving to a point ------------------------------------------------------------------------- */
/* Returns the value of variable k at a point. attempt: how often the point has been tried, with
 * smaller moves each time. */
static double entry_there(const eg__trial *c, int place, double x, double most, int64_t k,
                          int attempt)
{
    const double u = 2 * eg__unit(c->o.seed, 7, (uint64_t)k) - 1,
                 draw = u < 0 ? u - .5 : u + .5; /* ±[.5, 1.5) */
    switch (place) {
    case MOVED:
        if (x != 0) return x * (1 + (attempt ? 0.02 : 0.2) * draw);
        return attempt == 0 ? 0.25 * most * draw : attempt == 1 ? 0.05 * most * fabs(draw) : 0;
    case DRAWN: return u;
    case THIRD: return x * 0.3;
    case HUNDREDTH:
    case ALL_HUNDREDTH: return x * 0.01;
    case ALL_NEGATED: return -x;
    case ALL_TENFOLD: return x * 10;
    default: return x * 0.1;
    }
}
/* Moves to a point, and computes the value of f and its gradient there. input: the one that is
 * moved. False if f has no value there, and after an error. */
static bool points_move(points *p, int place, int input)
{
    eg__trial *c = &p->t;
    double most[EG_CHECK_INPUTS] = { 0 };
    const bool all = place == MOVED || place >= ALL_TENTH;
    for (int64_t k = 0; k < c->vars; k++)
        most[c->var[k].input] = fmax(most[c->var[k].input], fabs(p->base[c->var[k].cell]));
    for (int attempt = 0; attempt < (place == MOVED ? 3 : 1); attempt++) {
        memcpy(p->to, p->base, (size_t)c->cells * sizeof *p->to);
        for (int64_t k = 0; k < c->vars; k++) {
            const int64_t cell = c->var[k].cell;
            const int of = c->var[k].input;
            if (all || of == input)
                p->to[cell] =
                    entry_there(c, place, p->base[cell], most[of] > 0 ? most[of] : 1, k, attempt);
        }
        if (eg__trial_go(c, p->to) && eg__trial_gradient(c, p->a)) {
            eg__trial_scale(c, p->a);
            return true;
        }
        if (c->cx->failed && !eg__refused(c->cx)) return false;
    }
    return false;
}

/* -- a group of variables at the present point ------------------------------------------------ */
/* RIGHT: covered. ZERO: the numeric derivative cannot be distinguished from 0, and the analytic
 * values are 0 up to rounding. UNTESTED: only the former. NOISE, also after an error. WRONG. */
static eg_verdict group_verdict(points *p, eg__slope *s, double *analytic)
{
    eg__trial *c = &p->t;
    double a = 0, size = 0;
    bool covered;
    int64_t cell = -1, n = 0; /* of a group of one variable, whose own scale is tried too */
    for (int64_t k = 0; k < c->cells; k++) p->direction[k] = 0;
    for (int64_t k = 0; k < c->vars; k++) {
        if (!p->in[k]) continue;
        const double u = eg__unit(c->o.seed, 13, (uint64_t)k), d = u < .5 ? -.5 - u : u;
        p->direction[c->var[k].cell] = d;
        cell = n++ ? -1 : c->var[k].cell;
        a += d * p->a[k];
        size += fabs(d * p->a[k]);
    }
    if (cell >= 0) {                    /* along the entry itself */
        a = a / p->direction[cell] + 0; /* + 0, so that it is not −0 */
        size = fabs(a);
        p->direction[cell] = 1;
    }
    *analytic = a;
    if (!eg__slopes(c, cell, p->direction, &a, s)) {
        eg__refused(c->cx);
        return EG_NOISE;
    }
    double jitter = 0.25 * c->unit * size;
    eg_verdict v = eg__judge(c, a, jitter, s, &covered);
    if (v != EG_RIGHT && v != EG_UNTESTED) {
        const bool measured = eg__noise(c) && eg__gradient_noise(c, p->a);
        for (int64_t k = 0; k < c->vars && measured; k++)
            jitter += fabs(p->direction[c->var[k].cell]) * c->jitter[k];
        if (measured)
            v = eg__judge_again(c, &(eg__judged){ cell, p->direction, 0, a, jitter }, s, &covered);
        if (c->cx->failed) {
            eg__refused(c->cx);
            return EG_NOISE;
        }
    }
    if (v == EG_UNTESTED && size <= 4 * c->tiny) v = EG_RIGHT;
    if (v == EG_RIGHT && !covered) return EG_ZERO;
    return v == EG_KINK ? EG_NOISE : v;
}

/* Tests a part of a group that is WRONG: its variables number from … to − 1. */
static eg_verdict group_part(points *p, const bool *all, int64_t from, int64_t to, eg__slope *s,
                             double *a)
{
    int64_t seen = 0;
    for (int64_t k = 0; k < p->t.vars; k++) {
        p->in[k] = all[k] && seen >= from && seen < to;
        seen += all[k];
    }
    return group_verdict(p, s, a);
}
/* Finds the entry that makes a group WRONG: halves the group, then tests the last few one by one.
 * If neither half is wrong, and one of them is not clear, the group itself is the result. False if
 * both halves are right, or if none of the last few is wrong by itself: the step did not suit all
 * of them. */
static bool locate(points *p, eg_entry *e, int input, const char *where, eg__slope s, double a)
{
    eg__trial *c = &p->t;
    eg__slope t;
    double b, worst = -1;
    int64_t n = 0, from = 0, best = -1;
    bool *all = eg__alloc(c->cx, (size_t)c->vars + 1), halves = all != NULL;
    for (int64_t k = 0; k < c->vars; k++) n += p->in[k];
    if (all) memcpy(all, p->in, (size_t)c->vars);
    while (n > FEW && halves) {
        int right = 0;
        halves = false;
        for (int half = 0; half < 2 && !halves; half++) {
            const int64_t lo = half ? from + n / 2 : from, hi = half ? from + n : from + n / 2;
            const eg_verdict v = group_part(p, all, lo, hi, &t, &b);
            right += v == EG_RIGHT || v == EG_ZERO;
            if (v != EG_WRONG) continue;
            halves = true;
            from = lo;
            n = hi - lo;
        }
        if (right == 2) return false;
    }
    for (int64_t k = from; k < from + n && all && n <= FEW; k++)
        if (group_part(p, all, k, k + 1, &t, &b) == EG_WRONG && fabs(b - t.n) > worst) {
            worst = fabs(b - t.n);
            best = k;
            s = t;
            a = b;
        }
    int64_t var = -1, seen = 0;
    for (int64_t k = 0; k < c->vars && best >= 0; k++)
        if (all[k] && seen++ == best) var = k;
    if (all && n <= FEW && var < 0) return false;
    *e = (eg_entry){ .input = input,
                     .index = var < 0 ? -1 : c->var[var].index,
                     .analytic = a,
                     .numeric = s.n,
                     .left = s.left,
                     .right = s.right,
                     .error = s.err,
                     .verdict = EG_WRONG,
                     .output = -1,
                     .shared = var < 0 ? 1 : c->var[var].shared,
                     .at = where,
                     .operand = -1 };
    return true;
}

/* Sets the group to the variables of an input, or only to those that are open. Returns their
 * number. */
static int64_t points_group(points *p, int input, bool open)
{
    int64_t n = 0;
    for (int64_t k = 0; k < p->t.vars; k++) {
        p->in[k] = p->t.var[k].input == input && (!open || p->open[k] != EG_COVERED);
        n += p->in[k];
    }
    return n;
}
/* True if the verdict is WRONG with one entry whose difference exceeds all noise. */
static bool points_done(const eg__elsewhere *f)
{
    const double apart = fabs(f->worst.numeric - f->worst.analytic);
    return f->v == EG_WRONG && f->worst.index >= 0 && f->worst.error <= 1e-4 * apart;
}
/* Returns the verdict on the group at this point; locates the entry if it is WRONG, and marks
 * variables that are covered. */
static eg_verdict points_test(points *p, int place, int input, bool open)
{
    eg__slope s;
    double a;
    eg__elsewhere *f = &p->found[input];
    if (points_done(f) || !points_group(p, input, open)) return EG_ZERO;
    eg_verdict v = group_verdict(p, &s, &a);
    eg_entry e;
    if (v == EG_WRONG && !locate(p, &e, input, point_name[place], s, a)) v = EG_NOISE;
    if (v == EG_WRONG) {
        const double was = fabs(f->worst.numeric - f->worst.analytic);
        if (f->v != EG_WRONG ||
            (e.index >= 0 && (f->worst.index < 0 || fabs(e.numeric - e.analytic) > was)))
            f->worst = e;
        f->where = f->worst.at;
        f->v = EG_WRONG;
    } else if (v == EG_RIGHT && open && place != THIRD)
        for (int64_t k = 0; k < p->t.vars; k++)
            if (p->in[k]) p->open[k] = EG_COVERED;
    return v;
}

static bool left_open(const points *p, int input)
{
    for (int64_t k = 0; k < p->t.vars; k++)
        if (p->t.var[k].input == input && p->open[k] != EG_COVERED) return true;
    return false;
}
/* Tries points for the entries of one input that no point has covered yet. False after an error. */
static bool points_search(points *p, int input, bool tested)
{
    eg__elsewhere *f = &p->found[input];
    bool unclear = false;
    for (int place = ALONE; place < PLACES; place++) {
        if (points_done(f) || !left_open(p, input)) break;
        if (place == THIRD && !tested) continue;
        if (!points_move(p, place, input)) {
            if (p->t.cx->failed) return false;
            unclear = true;
            continue;
        }
        const eg_verdict v = points_test(p, place, input, true);
        unclear |= v == EG_NOISE || v == EG_UNTESTED;
        if (v != EG_RIGHT || f->v == EG_WRONG) continue;
        f->v = place < ALL_TENTH ? EG_UNTESTED : EG_RIGHT;
        f->where = point_name[place];
    }
    if (f->v == EG_ZERO && unclear && !tested) f->v = EG_NOISE;
    return !p->t.cx->failed;
}

/* Returns the largest magnitude of an element of f's result. */
static double points_largest(const eg__trial *c)
{
    double most = 0;
    for (int64_t k = 0; k < c->size; k++) most = fmax(most, fabs(c->middle[k]));
    return most;
}
/* Tests at points where f may take another branch. f must consist of operations of the library,
 * whose derivatives are right there, too; an operation of the user may have a smaller domain, and
 * contracts.c tests it. A point at which f is much larger is left out, because its rounding exceeds
 * the differences. */
static void points_branches(points *p, const eg_verdict *input, double largest)
{
    static const int place[] = { ALL_NEGATED, ALL_TENTH, ALL_HUNDREDTH, ALL_TENFOLD };
    eg__trial *c = &p->t;
    double most = 0;
    for (int64_t k = 0; k < c->vars; k++) most = fmax(most, fabs(p->base[c->var[k].cell]));
    for (size_t n = 0; n < sizeof place / sizeof *place && !c->cx->failed; n++) {
        if (place[n] == ALL_TENFOLD && most > 10) continue; /* a step may span several periods */
        if (!points_move(p, place[n], -1) || points_largest(c) > 1e3 * fmax(largest, 1)) continue;
        for (int k = 0; k < c->o.count; k++)
            if (input[k] != EG_WRONG) points_test(p, place[n], k, false);
    }
}
bool eg__points(eg__trial *c, uint8_t *open, const bool *tested, const eg_verdict *input,
                eg__elsewhere *found)
{
    eg_ctx *cx = c->cx;
    const eg_mark m = eg_push(cx);
    const size_t cells = (size_t)(c->cells + 1) * sizeof(double);
    double *base = eg__alloc(cx, cells);
    points p = { .t = *c, .base = base, .found = found, .open = open };
    p.t.o.full = false;
    p.t.outs = 1;
    p.t.jitter = NULL;
    p.t.middle = eg__alloc(cx, (size_t)(c->size + 1) * sizeof(double));
    p.t.noise = eg__alloc(cx, (size_t)(c->size + 1) * sizeof(double));
    p.to = eg__alloc(cx, cells);
    p.direction = eg__alloc(cx, cells);
    p.a = eg__alloc(cx, (size_t)(c->vars + 1) * sizeof *p.a);
    p.in = eg__alloc(cx, (size_t)c->vars + 1);
    bool good = base && p.t.middle && p.t.noise && p.to && p.direction && p.a && p.in;
    if (good) {
        memcpy(base, c->point, (size_t)c->cells * sizeof *base);
        memcpy(p.t.noise, c->noise, (size_t)c->size * sizeof *base);
    }
    for (int k = 0; k < c->o.count; k++) found[k] = (eg__elsewhere){ .v = EG_ZERO };
    if (good && points_move(&p, MOVED, -1))
        for (int k = 0; k < c->o.count; k++) {
            if (input[k] == EG_WRONG) continue;
            if (points_test(&p, MOVED, k, false) == EG_RIGHT) {
                found[k].v = EG_RIGHT;
                found[k].where = point_name[MOVED];
            }
            points_test(&p, MOVED, k, true);
        }
    good = good && !cx->failed;
    for (int k = 0; k < c->o.count && good; k++)
        if (input[k] != EG_WRONG &&
            (found[k].v == EG_ZERO || (!tested[k] && found[k].v == EG_RIGHT) || left_open(&p, k)))
            good = points_search(&p, k, tested[k]);
    if (good && !c->custom && !c->o.only_here && !c->o.directions)
        points_branches(&p, input, points_largest(c));
    good = good && !cx->failed;
    if (base) {
        memcpy(c->point, base, (size_t)c->cells * sizeof *base);
        memcpy(c->memory, base, (size_t)c->cells * sizeof *base);
    }
    c->rechecks = p.t.rechecks;
    c->step_trusted = p.t.step_trusted;
    c->step_refused = p.t.step_refused;
    eg_pop(cx, m);
    return good;
}
