/* judge.c: the verdict on an entry, from its analytic and its numeric value and the errors of both.
 * An entry is WRONG only if a second step confirms it, and RIGHT only if a wrong value would have
 * been found. */
#include "gradcheck/gradcheck.h"
#include <math.h>

/* SURE: standard deviations. CONFIRMED: after this many WRONG entries no further ones are
 * confirmed. */
enum { SURE = 8, CONFIRMED = 16 };

double eg__allowed(const eg__trial *c, const eg__slope *s, double jitter)
{
    return c->o.rtol * fabs(s->n) + c->o.atol * c->scale + s->err + SURE * jitter;
}

eg_verdict eg__judge(const eg__trial *c, double a, double jitter, const eg__slope *s, bool *covered)
{
    const double slack = eg__allowed(c, s, jitter), jump = fabs(s->right - s->left);
    const double low = fmin(s->left, s->right), high = fmax(s->left, s->right);
    const double apart = fabs(a - s->n);
    const double lost = fmax(0, s->all - s->err); /* an element that seems not to change may have
                                                   * changed by less than this */
    *covered = fabs(s->n) > slack + lost;
    if (isinf(jitter)) return EG_NOISE; /* rounding determines whether a is finite */
    if (isnan(a)) return EG_WRONG;
    if (!isfinite(s->n) || !isfinite(s->err)) return EG_NOISE;
    const bool kink = s->bend > 0.6 && jump > 1e-4 * fmax(fabs(high), fabs(low)) &&
                      jump > 1e-4 * fabs(s->n) && jump > SURE * s->all;
    if (kink && a >= low - slack - 0.02 * jump && a <= high + slack + 0.02 * jump) return EG_KINK;
    if (apart <= slack) {
        if (*covered || fabs(a) <= SURE * jitter + c->o.atol * c->scale) return EG_RIGHT;
        return EG_UNTESTED;
    }
    if (apart <= fmax(slack + lost, c->doubt)) {
        *covered = false; /* they differ, and rounding may be the reason: nothing is shown here */
        return EG_UNTESTED;
    }
    /* a kink: the slopes on the two sides do not converge as h shrinks, and a is between them */
    const double least = fmin(low, s->n), most = fmax(high, s->n), wide = most - least;
    const bool apart_still = s->bend > 0.35 || s->n < low - 0.5 * wide || s->n > high + 0.5 * wide;
    const bool between = a >= least - 0.02 * wide && a <= most + 0.02 * wide;
    return c->again || apart < 4 * (s->err + SURE * jitter) || (apart_still && between) ? EG_NOISE
                                                                                        : EG_WRONG;
}

/* Returns the magnitude of an entry; for an entry of 0 the largest of its input; 0 along a
 * direction. */
static double own_scale(const eg__trial *c, int64_t cell)
{
    double most = 0;
    int input = -1;
    if (cell < 0 || c->point[cell] != 0) return cell < 0 ? 0 : fabs(c->point[cell]);
    for (int64_t k = 0; k < c->vars && input < 0; k++)
        if (c->var[k].cell == cell) input = c->var[k].input;
    for (int64_t k = 0; k < c->vars; k++)
        if (c->var[k].input == input) most = fmax(most, fabs(c->point[c->var[k].cell]));
    return most;
}
/* Returns the step, relative to the inputs that move, in which f would change by its own magnitude
 * if a were right; 0 if that step is not small. */
static double judge_step(const eg__trial *c, int64_t cell, int64_t out, double a)
{
    double f = 0, x = 1;
    for (int64_t k = 0; k < c->size; k++)
        if (!c->o.full || k == out) f += fabs(c->middle[k]) * (c->o.full ? 1 : c->weight[k]);
    for (int64_t j = 0; j < c->cells; j++)
        if (cell < 0 || j == cell) x = fmax(x, fabs(c->point[j]));
    const double share = a != 0 ? f / fabs(a) / x : 0;
    return share < 1e-3 ? share : 0;
}
/* Confirms WRONG with other steps, some a little and some much smaller. If one of them agrees with
 * the analytic value, its result is used; if one disagrees with the first step, the verdict is
 * NOISE. */
static eg_verdict judge_confirm(eg__trial *c, const eg__judged *q, eg__slope *s, eg__slope *other,
                                eg_verdict v, bool *covered)
{
    const double a = q->a;
    /* an entry far below 1 may have a scale of its own: then its magnitude, a little smaller, a
     * part of the magnitude, the step that a implies, and a much smaller one */
    const double x = own_scale(c, q->cell);
    const double part = x < 1e-3 ? x * 0x1p-16 : 0, own = x < 1e-3 ? x : 0;
    const double shrink[] = { own, 0.07, part, judge_step(c, q->cell, q->out, a), EG_DEEP };
    for (int k = 0; k < 5 && c->confirmed < CONFIRMED; k++) {
        bool seen;
        if (shrink[k] == 0) continue;
        if (v == EG_KINK && k) break;
        if (!eg__differences(c, q->cell, q->direction, NULL, shrink[k], other)) break;
        const eg__slope *o = &other[q->out];
        const eg_verdict w = eg__judge(c, a, q->jitter, o, &seen);
        const double between = fabs(o->n - s->n), most = fmax(fabs(o->n), fabs(s->n));
        const double slack = eg__allowed(c, o, q->jitter);
        if (k < 2 && (w == EG_RIGHT || (w == EG_KINK && k))) {
            *s = *o;
            *covered = seen;
            return w;
        }
        /* at this step the rounding of f is as large as a */
        if ((k == 0 || k == 2) && w == EG_UNTESTED) v = EG_NOISE;
        /* a smaller step agrees with a but not with the first step, and could distinguish the
         * two */
        if (fabs(a - o->n) <= slack && between > 2 * (slack + o->all)) v = EG_NOISE;
        if ((k == 1 || k == 4) && !(between <= 3 * (s->all + o->all) + 1e-3 * most)) v = EG_NOISE;
    }
    c->confirmed += v == EG_WRONG;
    return v;
}

eg_verdict eg__judge_again(eg__trial *c, const eg__judged *q, eg__slope *s, bool *covered)
{
    eg_ctx *cx = c->cx;
    const double a = q->a, jitter = q->jitter;
    eg_verdict v = eg__judge(c, a, jitter, s, covered);
    if (v == EG_RIGHT || c->again || isnan(a) || isinf(jitter)) return v;
    const eg_mark m = eg_push(cx);
    eg__slope *other = eg__alloc(cx, (size_t)(c->outs + 1) * sizeof *other), was = *s;
    if (other && v != EG_UNTESTED && c->o.oracle == EG_DIFFERENCES)
        v = judge_confirm(c, q, s, other, v, covered);
    /* if a part of f is not on the tape, or at a kink, the complex step must not overrule a clear
     * difference */
    if (other && c->o.oracle == EG_DIFFERENCES && v != EG_RIGHT && v != EG_KINK && !cx->failed &&
        (v != EG_WRONG || fabs(a - was.n) < 1e3 * (was.all + SURE * jitter)) &&
        eg__slope_recheck(c, q->cell, q->direction, other)) {
        eg__slope *t = &other[q->out];
        const bool near = fabs(t->n - was.n) <= 3 * (was.all + t->err) || v == EG_NOISE;
        const double apart = fabs(a - t->n), slack = eg__allowed(c, t, jitter);
        const double both = fmax(fabs(a), fabs(t->n));
        if (near && apart <= fmax(slack, 1e-7 * fabs(t->n))) {
            v = EG_RIGHT;
            *covered = fabs(t->n) > slack;
            *s = *t;
        } else if (near && both <= c->tiny && (a == 0 || t->n == 0)) {
            v = EG_RIGHT; /* both are 0 up to rounding: another point must test it */
            *covered = false;
        } else if (near && v == EG_UNTESTED && apart > fmax(0.01 * both, c->doubt) &&
                   t->err + SURE * jitter < 1e-3 * both) {
            v = EG_WRONG;
            *s = *t;
        }
    }
    eg_pop(cx, m);
    return v;
}
