/* contract_derivatives.c: contracts about derivatives: the cotangent is the derivative of the
 * operation's forward function, forward_c128 has the same, and, if the cotangent has a gradient,
 * that is its derivative. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

/* -- the derivative --------------------------------------------------------------------------- */
/* An operand of the operation that is moved along v from x. */
typedef struct moved {
    const eg__contract_call *k;
    eg_tensor *const *x, *g, *v;
    int i, of;        /* operand i is moved; observed is the rule's result for operand `of`, or, if
                       * that is −1, the operation's result */
    eg_tensor *along; /* the direction along which the rule's result is observed */
    double floor;     /* what intermediate values contribute to the observed value */
    double step;      /* the largest one of the differences */
    int with;         /* 1 + the number of an operand of the same shape that is moved in the same
                       * way; 0: none */
} moved;
/* Sets *x to a copy of itself, moved by t v. False after an error. */
static bool move_along(eg_tensor **x, double t, eg_tensor *v)
{
    if (!(*x = eg__leaf_copy(*x))) return false;
    for (int64_t j = 0, n = eg_size(*x); j < n; j++)
        eg__contract_numbers(*x)[j] += t * eg__contract_numbers(v)[j];
    return true;
}
/* Computes ⟨g, result⟩, or ⟨rule(g, of), along⟩, with the operand moved by t v. Sets *terms to the
 * magnitude of the terms. False if there is no value. */
static bool moved_value(const moved *m, double t, double *value, double *terms)
{
    eg_ctx *cx = m->k->cx;
    const eg_mark scope = eg_push(cx);
    eg_tensor *x[EG_ASKED_OPERANDS], *d, *y;
    *terms = 0;
    memcpy(x, m->x, (size_t)m->k->t->count * sizeof *x);
    const bool moves =
        move_along(&x[m->i], t, m->v) && (!m->with || move_along(&x[m->with - 1], t, m->v));
    y = moves ? eg__contract_apply(m->k, x) : NULL;
    bool good = y != NULL;
    if (good && m->of >= 0) {
        good = eg__contract_rule(y, m->g, m->of, &d) && d;
        *value = good ? eg__contract_dot(d, m->along, terms) : 0;
    } else if (good)
        *value = eg__contract_dot(y, m->g, terms);
    eg__refused(cx);
    eg_pop(cx, scope);
    return good;
}
#define FIRST  0x1p-9  /* the largest step */
#define CLOSER 0x1p-19 /* the largest step where there is a kink within FIRST */
#define TINY   0x1p-42 /* a step relative to operands above 1e7 */
#define EPS    0x1p-52
/* The slope n along v at one step, and its error. kink: n and err are not set, since the one-sided
 * slopes left and right do not approach each other. */
typedef struct slope {
    double n, err, left, right;
    double floor; /* what intermediate values near 1 contribute to err */
    bool kink;
} slope;
/* Returns a bound of the error of the slope that the rounding of x + h v causes at the smallest
 * step h/4, where d is the cotangent of x: 4 ε Σ |d x| / h, with smaller addends where v is
 * small. */
static double moved_rounding(const moved *m, eg_tensor *d, double first_step)
{
    const double *along = d ? eg_f64(d) : NULL, *v = eg__contract_numbers(m->v),
                 *x = eg__contract_numbers(m->x[m->i]);
    double sum = 0;
    for (int64_t j = 0, n = along ? eg_size(d) : 0; j < n; j++)
        if (isfinite(along[j])) sum += fabs(along[j] * fmin(fabs(v[j]), 1) * x[j]);
    return 4 * EPS * sum / (first_step / 4);
}
/* Computes the derivative of moved_value(m, t) at 0 from differences at first, first/2 and first/4,
 * and its error. False at a kink, and if there is no value.
 *
 * The error has three parts in addition to that of the extrapolation. (1) The rounding of the terms
 * of the value. (2) Rounding that is larger, since terms cancelled: the fourth difference, which
 * for a smooth function is only h⁴ f⁗. (3) ε |g| / h (m->floor), since intermediate values may be
 * near 1 where the value is not: log(1 + eᵃ) is 0 for a < −37, and its steps are ε wide before.
 * That part is left out if the value changes by much more, so that (2) includes such steps. */
static bool contract_slope(const moved *m, double first_step, double size, slope *s)
{
    double d[3], bend[3], middle, terms, other, up[3], down[3];
    const double larger = FIRST / first_step, rounding = 1e-11 * size * larger;
    s->kink = false;
    if (!moved_value(m, 0, &middle, &terms)) return false;
    for (int k = 0; k < 3; k++) {
        const double h = ldexp(first_step, -k);
        if (!moved_value(m, h, &up[k], &other)) return false;
        terms = fmax(terms, other);
        if (!moved_value(m, -h, &down[k], &other)) return false;
        terms = fmax(terms, other);
        d[k] = (up[k] - down[k]) / (2 * h);
        bend[k] = fabs(up[k] - 2 * middle + down[k]) / h; /* left slope − right slope */
    }
    const double least = first_step / 4, first = d[0] - d[1], second = d[1] - d[2];
    const double fourth = fabs(up[1] + down[1] - 4 * (up[2] + down[2]) + 6 * middle);
    const double change = fmax(fabs(up[0] - middle), fabs(down[0] - middle));
    s->floor = change > 0x1p16 * EPS * m->floor ? 0 : 4 * EPS * m->floor / least;
    s->right = (up[2] - middle) / least;
    s->left = (middle - down[2]) / least;
    if (bend[2] > 0.6 * bend[0] &&
        bend[2] > 1e-6 * fabs(d[2]) + 10 * (fmin(rounding, 1e-11 * terms * larger) + s->floor)) {
        s->kink = true;
        return false;
    }
    const double r0 = (4 * d[1] - d[0]) / 3, r1 = (4 * d[2] - d[1]) / 3;
    const double ratio = first / second;
    /* a cusp or a pole; not differences of rounding errors, which exceed those of the terms where
     * values near 1 cancelled, as in a determinant of 0 */
    if (fabs(second) > 1e-11 * terms * larger + s->floor && fabs(second) > 1e-7 * fabs(d[2]) &&
        !(fabs(ratio) > 1.1))
        return false;
    s->n = (16 * r1 - r0) / 15;
    /* differences at larger steps may be much larger than the slope, such as for x³ at 1e-10 */
    s->err = fabs(s->n - r1) + rounding + 16 * EPS * fabs(d[0]) + 1e-290;
    if (fabs(second) > rounding && !(ratio > 2.8 && ratio < 20))
        s->err = fmax(fabs(first), fabs(second)) * 4 + rounding;
    s->err += s->floor + fourth / (4 * least);
    return isfinite(s->n) && isfinite(s->err);
}
/* True if a is the slope at smaller steps, at which the slope is not n, or if a is between the
 * one-sided slopes at such a step: there is a kink within the larger steps. Steps: FIRST / 32, then
 * each a 32nd of the one before, and last one that is small relative to operands far below 1. */
static bool slope_is_near(const moved *m, eg_tensor *d, double size, double a, double n)
{
    enum { SMALLER = 4 };
    const double own = FIRST * eg__largest(m->x[m->i]);
    double step = FIRST;
    if (!isfinite(a)) return false;
    for (int k = 0; k <= SMALLER; k++) {
        slope near;
        step = k < SMALLER ? step / 32 : own;
        if (k == SMALLER && !(own > 0 && own < FIRST / 32)) break;
        if (contract_slope(m, step, size, &near)) {
            near.err += moved_rounding(m, d, step);
            if (fabs(a - near.n) <= 1e-6 * fmax(fabs(a), fabs(near.n)) + 10 * near.err &&
                fabs(near.n - n) > 20 * near.err)
                return true;
        } else if (near.kink) {
            const double slack = 0.02 * fabs(near.left - near.right);
            if (a >= fmin(near.left, near.right) - slack &&
                a <= fmax(near.left, near.right) + slack)
                return true;
        }
    }
    return false;
}
/* True if the slope n along v is the sum of the slopes along two parts of v, for two random
 * partitions. It is not at a kink that no single line shows: the median of equal numbers has the
 * same slope on both sides of them. */
static bool slope_is_linear(const moved *m, double size, const slope *whole)
{
    for (uint64_t partition = 0; partition < 2; partition++) {
        slope of[2];
        for (int part = 0; part < 2; part++) {
            moved p = *m;
            if (!(p.v = eg__leaf_copy(m->v))) return false;
            for (int64_t j = 0, count = eg_size(p.v); j < count; j++)
                if ((eg__drawn(24 + partition, j) > 0) != part) eg__contract_numbers(p.v)[j] = 0;
            if (!contract_slope(&p, p.step, size, &of[part])) return false;
        }
        const double apart = fabs(of[0].n + of[1].n - whole->n), err = of[0].err + of[1].err;
        if (apart > 1e-6 * fmax(fabs(of[0].n), fabs(of[1].n)) + 10 * (whole->err + err))
            return false;
    }
    return true;
}
/* True if no element of x has another sign than the elements of the operand in the call: beyond 0
 * the forward function may have a value, such as 0 for x ln x, that is not meant to have a
 * gradient. */
static bool same_side(const eg__contract_call *k, eg_tensor *const *x)
{
    for (int i = 0; i < k->t->count; i++) {
        const int64_t n = eg_size(k->x[i]);
        if (k->x[i]->dtype != EG_F64 || x[i] == k->x[i] || !n) continue;
        for (int64_t j = 0, m = eg_size(x[i]); j < m; j++)
            if (eg__contract_numbers(x[i])[j] * eg__contract_numbers(k->x[i])[j % n] < 0)
                return false;
    }
    return true;
}
/* True if an element is subnormal: its square is 0, and a right rule that divides by it, as that of
 * sin x / x, has no value there. */
static bool has_subnormal(eg_tensor *x)
{
    for (int64_t j = 0, n = eg_size(x); j < n; j++)
        if (fpclassify(eg__contract_numbers(x)[j]) == FP_SUBNORMAL) return true;
    return false;
}
/* True if the rule is the slope at points nearby, and a is its limit there, or between its limits:
 * where three operands are equal, min(max(x, low), high) does not change along x alone, but 1 is
 * the limit of its derivative from within the bounds. Each operand is moved as a whole by a small
 * random number. */
static bool slope_is_limit(const moved *m, double a, double size)
{
    enum { NEARBY = 24 };
    double low = INFINITY, high = -INFINITY;
    for (uint64_t q = 0; q < NEARBY; q++) {
        eg_tensor *x[EG_ASKED_OPERANDS], *d = NULL;
        moved near = *m;
        slope s;
        double terms = 0;
        memcpy(x, m->x, (size_t)m->k->t->count * sizeof *x);
        for (int i = 0; i < m->k->t->count; i++) {
            if (x[i]->dtype != EG_F64) continue;
            if (!(x[i] = eg__leaf_copy(x[i]))) return false;
            for (int64_t j = 0, n = eg_size(x[i]); j < n; j++)
                eg__contract_numbers(x[i])[j] += 0x1p-12 * eg__drawn(60 + q, i);
        }
        const bool any = eg__contract_rule(eg__contract_apply(m->k, x), m->g, m->i, &d) && d;
        eg__refused(m->k->cx);
        if (!any || !eg__same_shape(d, m->v)) return false;
        const double there = eg__contract_dot(d, m->v, &terms);
        near.x = x;
        if (!contract_slope(&near, 0x1p-20, size, &s) ||
            !(fabs(there - s.n) <= 1e-4 * fmax(fabs(there), fabs(s.n)) + 10 * s.err))
            continue;
        low = fmin(low, there);
        high = fmax(high, there);
        const double slack = 0.01 * fmax(fabs(low), fabs(high));
        if (a >= low - slack && a <= high + slack) return true;
    }
    return false;
}
/* The relative difference between the numeric slope and a rule that is an approximation, at most;
 * and the same in a single element. An error of one element, such as the last of a block, may be
 * small relative to the slope along a direction over all elements. */
enum { HALVINGS = 20 };
#define NEARLY 5e-3
#define WRONG  0.05
/* True if the rule's result d nearly agrees with the slope n: also in the element that is found by
 * halving the direction and following the part that differs more. */
static bool slope_is_nearly(const moved *m, eg_tensor *d, double a, double n, double size)
{
    const int64_t count = d ? eg_size(d) : 0;
    const double *element = d ? eg_f64(d) : NULL;
    int64_t from = 0, to = count;
    if (!element || !(fabs(a - n) <= NEARLY * fmax(fabs(a), fabs(n)))) return false;
    for (int halving = 0; halving < HALVINGS && to - from > 1; halving++) {
        const int64_t middle = from + (to - from) / 2;
        double apart[2] = { 0 };
        for (int half = 0; half < 2; half++) {
            moved p = *m;
            slope other;
            double own = 0;
            if (!(p.v = eg__leaf_copy(m->v))) return false;
            for (int64_t j = 0; j < count; j++)
                if (j < (half ? middle : from) || j >= (half ? to : middle))
                    eg__contract_numbers(p.v)[j] = 0;
                else
                    own += element[j] * eg__contract_numbers(p.v)[j];
            if (!contract_slope(&p, p.step, size, &other)) return false;
            apart[half] = fabs(own - other.n);
            const bool one = (half ? to - middle : middle - from) == 1;
            if (one && apart[half] > WRONG * fmax(fabs(own), fabs(other.n)) + 10 * other.err)
                return false;
        }
        if (apart[0] > apart[1])
            to = middle;
        else
            from = middle;
    }
    return true;
}
/* Notes that the rule for operand i is an approximation at this point. */
static void note_nearly(eg__contract_call *k, int i, const char *where, double a, double n)
{
    if (k->note[0]) return;
    k->operand = i;
    eg__sentence(
        k->note, sizeof k->note,
        "agrees with its own forward only up to %.1g%s: an approximation, or an iteration that "
        "has not converged there",
        fabs(a - n) / fmax(fabs(a), fabs(n)), where);
}
/* True if the rule may be right although the slope n at large steps differs: f varies within a
 * step, as x + sin x does at 1e10, and n is the mean of the derivative over the step. The rule's
 * mean at SAMPLES points is compared with it, within its standard error. */
static bool slope_is_mean(const moved *m, double n)
{
    enum { SAMPLES = 32 };
    eg_ctx *cx = m->k->cx;
    double sum = 0, squares = 0, size = 0;
    for (int q = 0; q < SAMPLES; q++) {
        eg_tensor *x[EG_ASKED_OPERANDS], *d;
        memcpy(x, m->x, (size_t)m->k->t->count * sizeof *x);
        if (!(x[m->i] = eg__leaf_copy(m->x[m->i]))) return true;
        /* at equal distances the points may all have the same phase */
        const double irregular = fmod(eg__drawn(41, q), 1);
        for (int64_t j = 0, of = eg_size(m->v); j < of; j++)
            eg__contract_numbers(x[m->i])[j] +=
                FIRST * ((2 * q + 1 + irregular) / SAMPLES - 1) * eg__contract_numbers(m->v)[j];
        if (!eg__contract_rule(eg__contract_apply(m->k, x), m->g, m->i, &d) || !d) {
            eg__refused(cx);
            return true;
        }
        const double a = eg__contract_dot(d, m->v, &size);
        sum += a / SAMPLES;
        squares += a * a / SAMPLES;
    }
    const double error = 5 * sqrt(fmax(0, squares - sum * sum) / SAMPLES);
    return !(fabs(sum - n) > 0.01 * fmax(fabs(sum), fabs(n)) + error);
}
/* True if a, and not n, is the slope on one side over moves of about 1024 or 128 units in the last
 * place of the operand's largest element. The steps of the floor of x are narrower than the larger
 * differences at 1e10, over which it has the slope of x; one of them may lie on the other side. */
static bool slope_is_of_steps(const moved *m, double a, double n)
{
    const double share = 0.02 * fabs(n);
    double middle, there, terms;
    if (!(fabs(a - n) > 10 * share) || !moved_value(m, 0, &middle, &terms)) return false;
    for (int q = 0; q < 4; q++) {
        const double t = (q % 2 ? -1 : 1) * (q < 2 ? TINY : TINY / 8);
        if (moved_value(m, t, &there, &terms) && fabs(a - (there - middle) / t) <= share)
            return true;
    }
    return false;
}
/* True if the slope n at 0 becomes smaller with the step: it may be 0 there, as that of x²
 * sin(1/x), which varies within every step. */
static bool slope_vanishes(const moved *m, double n, double size)
{
    slope closer;
    return eg__largest(m->x[m->i]) == 0 && contract_slope(m, m->step / 64, size, &closer) &&
           fabs(closer.n) < 0.5 * fabs(n);
}
/* True if rounding can explain the difference of a and n, since terms of the rule cancel, as those
 * of cos x / x − sin x / x² at 1e-10: it is at most 64 ε |g| |y / x| plus 64 times the largest
 * change of a when the operand's elements are multiplied by 1 + t with t about 2^-32. These nearby
 * points do not include the point itself, so a mistake at a single value, or on one side of it, is
 * not hidden. */
static bool slope_is_rounding(const moved *m, double a, double n)
{
    enum { NEARBY = 5, UNITS = 64 };
    eg_ctx *cx = m->k->cx;
    double least = INFINITY, most = -INFINITY, size = 0, value = 0;
    for (int q = 1; q <= NEARBY; q++) {
        eg_tensor *x[EG_ASKED_OPERANDS], *d, *y;
        memcpy(x, m->x, (size_t)m->k->t->count * sizeof *x);
        if (!(x[m->i] = eg__leaf_copy(m->x[m->i]))) return false;
        for (int64_t j = 0, of = eg_size(m->v); j < of; j++)
            eg__contract_numbers(x[m->i])[j] *= 1 + 0x1p-32 * fabs(eg__drawn(50 + (uint64_t)q, j));
        y = eg__contract_apply(m->k, x);
        if (!eg__contract_rule(y, m->g, m->i, &d) || !d) {
            eg__refused(cx);
            return false;
        }
        const double near = eg__contract_dot(d, m->v, &size);
        least = fmin(least, near);
        most = fmax(most, near);
        value = 0;
        eg__contract_dot(y, m->g, &value);
    }
    const double large = eg__largest(m->x[m->i]);
    const double cancelled = EPS * value * eg__largest(m->v) / fmax(large, 1e-300);
    return isfinite(a) && fabs(a - n) <= UNITS * (most - least + cancelled);
}
/* True if a and the slope s agree within its error. Its floor counts only if there may be steps:
 * not if the slope is the same up to 1e-6 at steps 8192 times as large. */
static bool slope_agrees(const moved *m, double a, const slope *s, double size)
{
    if (!isfinite(a)) return false; /* a share of an infinite a would be infinite too */
    const double apart = fabs(a - s->n), share = 1e-6 * fmax(fabs(a), fabs(s->n));
    slope wide;
    if (apart <= share + 10 * (s->err - s->floor)) return true;
    return apart <= share + 10 * s->err &&
           !(s->n != 0 && contract_slope(m, 8192 * FIRST, size, &wide) &&
             fabs(wide.n - s->n) < 1e-6 * fabs(s->n));
}
/* Returns the largest magnitude of an element of the operands without operand i. */
static double largest_but(const eg__contract_call *k, eg_tensor *const *x, int i)
{
    double most = 0;
    for (int j = 0; j < k->t->count; j++)
        if (j != i && x[j]->dtype == EG_F64) most = fmax(most, eg__largest(x[j]));
    return most;
}
/* Returns √Σ g² times the unit of the operation's values: the rounding error of ⟨g, y⟩ by
 * intermediate values of that unit, if their roundings are independent. */
static double floor_of(eg__contract_call *k, eg_tensor *g)
{
    double sum = 0;
    for (int64_t j = 0, n = eg_size(g); j < n; j++) sum += pow(eg__contract_numbers(g)[j], 2);
    return eg__contract_unit(k) * sqrt(sum);
}
/* Computes the slope, with smaller steps if there is none at the largest ones, or if its error
 * hides a hundredth of a: elements that are close to each other, or to a kink, may cross it. Sets
 * m->step. False as contract_slope. */
static bool closest_slope(moved *m, double a, double size, slope *s)
{
    slope closer;
    m->step = FIRST;
    const bool any = contract_slope(m, FIRST, size, s);
    if (any && 10 * s->err <= 0.01 * fmax(fabs(a), fabs(s->n))) return true;
    if (!contract_slope(m, CLOSER, size, &closer) || (any && closer.err >= s->err)) return any;
    m->step = CLOSER;
    *s = closer;
    return true;
}
typedef enum outcome { AGREES, UNCLEAR, DISAGREES } outcome;
/* Compares the rule's result d for operand i at x with differences along v. UNCLEAR: there are
 * none, or their error hides a hundredth of them. DISAGREES: what is broken is noted. */
static outcome derivative_along(eg__contract_call *k, eg_tensor *const *x, eg_tensor *y,
                                eg_tensor *g, int i, eg_tensor *d, eg_tensor *v, const char *where)
{
    double size = 0;
    slope s;
    char words[200];
    const double a = d ? eg__contract_dot(d, v, &size) : 0;
    if (!isfinite(a)) {
        size = 0;
        if (!same_side(k, x) || has_subnormal(x[i])) return AGREES;
    }
    eg__contract_dot(y, g, &size);
    moved m = { .k = k, .x = x, .g = g, .v = v, .i = i, .of = -1, .floor = floor_of(k, g) };
    const double large = fmax(eg__largest(x[i]), largest_but(k, x, i));
    m.floor *= fmax(1, largest_but(k, x, i)); /* values as large as that may have cancelled */
    if (!closest_slope(&m, a, size, &s)) return UNCLEAR;
    s.err += moved_rounding(&m, d, m.step);
    if (slope_agrees(&m, a, &s, size))
        return 10 * s.err <= 0.01 * fmax(fabs(a), fabs(s.n)) ? AGREES : UNCLEAR;
    if (!slope_is_linear(&m, size, &s) || slope_is_near(&m, d, size, a, s.n)) return AGREES;
    if (where[0] && eg__largest(x[i]) < 0.1 && slope_is_rounding(&m, a, s.n)) return AGREES;
    if (large > 1e7 && isfinite(a) && slope_is_mean(&m, s.n)) return AGREES;
    if (a == 0 && slope_vanishes(&m, s.n, size)) return AGREES;
    if (eg__largest(x[i]) > 1e7 && slope_is_of_steps(&m, a, s.n)) return AGREES;
    if (where[0] && isfinite(a) && slope_is_nearly(&m, d, a, s.n, size)) {
        note_nearly(k, i, where, a, s.n);
        return AGREES;
    }
    if (where[0] && slope_is_limit(&m, a, size)) return AGREES;
    eg__sentence(words, sizeof words,
                 "disagrees with its own forward%s: %.6g, not %.6g along a random direction", where,
                 a, s.n);
    eg__breaks(k, i, words);
    return DISAGREES;
}
/* True if the rule's result d for operand i at x agrees with differences; else notes what is
 * broken. Where elements are so small that differences cross a kink or leave the domain at 0, as
 * those of x ln x do, elements are moved in proportion to their magnitude. */
static bool derivative_of(eg__contract_call *k, eg_tensor *const *x, eg_tensor *y, eg_tensor *g,
                          int i, eg_tensor *d, const char *where)
{
    eg_tensor *v = eg__contract_noise(x[i], 9);
    if (!v) return true;
    const double large = eg__largest(x[i]);
    const bool scaled = large > 1e7 && large < 1e100;
    for (int64_t j = 0, of = eg_size(v); j < of && scaled; j++)
        eg__contract_numbers(v)[j] *= large; /* so that x + h v is another number than x */
    outcome o = derivative_along(k, x, y, g, i, d, v, where);
    if (o != UNCLEAR || large >= 1 || !(v = eg__contract_noise(x[i], 9))) return o != DISAGREES;
    for (int64_t j = 0, of = eg_size(v); j < of; j++)
        eg__contract_numbers(v)[j] *= fabs(eg__contract_numbers(x[i])[j]);
    /* elements of 0 are not moved, and may have no derivative */
    return (d && !eg__all_finite(d)) || derivative_along(k, x, y, g, i, d, v, where) != DISAGREES;
}
bool eg__derivative_at(eg__contract_call *k, eg_tensor *const *x, const char *where, bool refuses)
{
    eg_tensor *y = eg__contract_apply(k, x), *g = y ? eg__contract_noise(y, 8) : NULL, *d;
    eg_tensor *r[EG_ASKED_OPERANDS] = { NULL };
    bool finite = true;
    char words[200];
    eg__refused(k->cx);
    for (int i = 0; i < k->t->count; i++)
        if (x[i] != k->x[i] && x[i]->dtype == EG_F64 && !eg__sampled_there(k->t->op, x[i]))
            return true;
    if (!g || y->dtype != EG_F64 || !eg__all_finite(y)) return true;
    for (int i = 0; i < k->t->count; i++) {
        if (!k->r[i] || !eg_size(x[i])) continue;
        if (!eg__contract_rule(y, g, i, &d)) {
            finite = false;
            if (refuses && eg__refused(k->cx)) continue;
            return eg__breaks(k, i, where);
        }
        if (d && !eg__same_shape(d, x[i])) {
            snprintf(words, sizeof words, "gives a cotangent of another shape than the operand%s",
                     where);
            return eg__breaks(k, i, words);
        }
        r[i] = d;
        finite &= !d || eg__all_finite(d);
        if (!derivative_of(k, x, y, g, i, d, where)) return false;
    }
    return !finite || !k->t->op->jvp || eg__jvp_agrees(k, y, g, r, where);
}
/* Where elements are equal there may be a kink along most directions, as for a maximum; but not
 * along one that keeps them equal. A rule that gives g to each of two equal maxima is wrong there.
 * Points at which rounding, an approximation, or a slope that varies within a step could explain a
 * difference are left to eg__derivative_at. */
bool eg__derivative_together(eg__contract_call *k, eg_tensor *const *x, int i, int with,
                             eg_tensor *v, const char *where)
{
    eg_tensor *y = eg__contract_apply(k, x), *g = y ? eg__contract_noise(y, 8) : NULL, *d, *e;
    double size = 0;
    char words[200];
    slope s;
    moved m = { .k = k, .x = x, .g = g, .v = v, .i = i, .of = -1, .with = with + 1 };
    const double large = fmax(eg__largest(x[i]), largest_but(k, x, i));
    const bool usable = v && g && y->dtype == EG_F64 && eg__all_finite(y) && k->r[i] &&
                        eg__sampled_there(k->t->op, x[i]) && (with < 0 || k->r[with]) &&
                        large >= 0.1 && large <= 1e7 && eg__contract_rule(y, g, i, &d) && d &&
                        eg__same_shape(d, x[i]) &&
                        (with < 0 || (eg__contract_rule(y, g, with, &e) && e));
    eg__refused(k->cx);
    if (!usable || !(d = eg__leaf_copy(d))) return true;
    if (with >= 0) eg__add_to(d, e);
    const double a = eg__contract_dot(d, v, &size);
    eg__contract_dot(y, g, &size);
    m.floor = floor_of(k, g) * fmax(1, largest_but(k, x, i));
    if (!isfinite(a) || !closest_slope(&m, a, size, &s)) return true;
    s.err += moved_rounding(&m, d, m.step) * (with < 0 ? 1 : 2);
    if (fabs(a - s.n) <= NEARLY * fmax(fabs(a), fabs(s.n)) || slope_agrees(&m, a, &s, size) ||
        (with >= 0 && !slope_is_linear(&m, size, &s)) || slope_is_near(&m, d, size, a, s.n))
        return true;
    eg__sentence(words, sizeof words, "disagrees with its own forward%s: %.6g, not %.6g", where, a,
                 s.n);
    return eg__breaks(k, i, words);
}

/* -- complex numbers --------------------------------------------------------------------------- */
/* True if forward_c128 agrees with forward: the same value at real operands and, along a direction
 * of operand i, the same derivative. A branch at a kink is left out, as is an operation that
 * refuses c128. */
static bool complex_along(eg__contract_call *k, int i)
{
    const double h = 0x1p-100;
    eg_tensor *z[EG_ASKED_OPERANDS], *v = eg__contract_noise(k->x[i], 40), *y = NULL;
    double size = 0;
    char words[200];
    slope s;
    bool good = v != NULL;
    for (int j = 0; j < k->t->count && good; j++) {
        z[j] = k->x[j];
        if (z[j]->dtype == EG_F64)
            z[j] = eg_complex(z[j], j == i ? eg_scale(v, h) : eg_zeros_like(z[j]));
        good = eg_ok(z[j]);
    }
    if (good) y = eg__contract_apply(k, z);
    eg__refused(k->cx);
    if (!y || y->dtype != EG_C128 || !eg__same_shape(y, k->y)) return true;
    eg_tensor *value = eg__leaf_copy(eg_real(y)), *moves = eg__leaf_copy(eg_imag(y));
    if (!value || !moves) return true;
    if (!eg__contract_close(k, -1, value, k->y, 1, 1e-10))
        return eg__breaks(k, -1, "has a forward_c128 with another value than its forward");
    const double right = eg__contract_dot(k->r[i], v, &size),
                 step = eg__contract_dot(moves, k->g, &size) / h;
    moved m = {
        .k = k, .x = k->x, .g = k->g, .v = v, .i = i, .of = -1, .floor = floor_of(k, k->g)
    };
    eg__contract_dot(k->y, k->g, &size);
    if (fabs(step - right) <= 1e-7 * size || !closest_slope(&m, right, size, &s) ||
        !slope_agrees(&m, right, &s, size) || slope_agrees(&m, step, &s, size) ||
        slope_is_near(&m, k->r[i], size, step, s.n))
        return true;
    eg__sentence(words, sizeof words,
                 "has a forward_c128 that disagrees with its forward along a random direction of "
                 "operand %d: %.6g, not %.6g",
                 i + 1, step, s.n);
    return eg__breaks(k, -1, words);
}
bool eg__complex_forward(eg__contract_call *k)
{
    bool good = true;
    for (int i = 0; i < k->t->count && good && k->t->op->forward_c128; i++)
        good = !k->r[i] || complex_along(k, i);
    return good;
}

/* -- second order ------------------------------------------------------------------------------ */
/* The operation at the point where the second order is tested. */
typedef struct second {
    eg__contract_call *k;
    eg_tensor *const *x;
    eg_tensor *y, *g;
    eg_tensor *r[EG_ASKED_OPERANDS]; /* the rule's results; NULL: none, or it is not finite */
    const char *where;
} second;

static bool second_breaks(const second *s, int i, const char *words)
{
    char message[200];
    snprintf(message, sizeof message, "has a wrong gradient of its own (second order) %s%s", words,
             s->where);
    return eg__breaks(s->k, i, message);
}
/* Returns the bound for the difference of two derivatives: the rounding error that cancelled terms
 * leave and, at a point other than that of the check, rounding errors of the operation's value,
 * since it may be saturated there. */
static double second_floor(const second *s)
{
    double value = 0;
    if (s->where[0]) eg__contract_dot(s->y, s->g, &value);
    return 1e-9 * value + (double)eg_size(s->g) * eg__cancelled(s->k, s->g);
}
/* True if the cotangent for operand i has the right gradient with respect to each operand; else
 * notes what is broken. */
static bool second_of(const second *s, int i)
{
    const eg__contract_call *k = s->k;
    eg_tensor *along = eg__contract_noise(s->r[i], 14), *cut;
    if (!along || s->r[i]->unrecorded || !s->r[i]->op) return true; /* no gradient is promised */
    bool any = false;
    for (int j = 0; j < k->t->count; j++)
        any |= k->r[j] && eg_path_to(s->r[i], s->x[j], &cut) != EG_NO_PATH;
    for (int j = 0; j < k->t->count && any; j++) {
        eg_tensor *dj, *v = k->r[j] ? eg__contract_noise(s->x[j], 15) : NULL;
        double size = 0, value = 0;
        slope n;
        char words[80];
        if (!v || eg_grad(s->r[i], along, 1, &s->x[j], &dj) || !eg__all_finite(dj)) {
            eg__refused(k->cx);
            continue;
        }
        const double a = eg__contract_dot(dj, v, &size);
        eg__contract_dot(s->r[i], along, &size);
        moved m = { .k = k, .x = s->x, .g = s->g, .v = v, .i = j, .of = i, .along = along };
        m.step = FIRST;
        m.floor = floor_of(s->k, along);
        if (!contract_slope(&m, FIRST, size, &n)) continue;
        /* the rule's intermediate results may be as large as the value */
        eg__contract_dot(s->y, s->g, &value);
        n.err += moved_rounding(&m, dj, FIRST) + 4 * EPS * value / 0x1p-11;
        if (fabs(a - n.n) <= 1e-5 * fmax(fabs(a), fabs(n.n)) + 10 * n.err) continue;
        if (!slope_is_linear(&m, size, &n) || slope_is_near(&m, dj, size, a, n.n)) continue;
        eg__sentence(words, sizeof words, "by operand %d: %.6g, not %.6g", j + 1, a, n.n);
        return second_breaks(s, i, words);
    }
    return true;
}
/* True if the gradient of ⟨rule(g), along⟩ with respect to g, along h, is ⟨rule(h), along⟩. */
static bool second_by_g(const second *s, int i)
{
    eg_tensor *along = eg__contract_noise(s->r[i], 16), *h = eg__contract_noise(s->g, 17), *d, *dg,
              *g = s->g, *cut;
    double size = 0;
    if (!along || !h || s->r[i]->unrecorded || !s->r[i]->op ||
        eg_path_to(s->r[i], g, &cut) != EG_OPEN_PATH)
        return true;
    if (eg_grad(s->r[i], along, 1, &g, &dg) || !eg__contract_rule(s->y, h, i, &d) || !d) {
        eg__refused(s->k->cx);
        return true;
    }
    const double a = eg__contract_dot(dg, h, &size), b = eg__contract_dot(d, along, &size);
    if (!(fabs(a - b) > 1e-9 * size + second_floor(s))) return true;
    return second_breaks(s, i, "by g: a part of g is read as plain numbers");
}
/* True if ⟨jvp(dx), g⟩ and ⟨rule(g, i), dx⟩, which are equal, have the same gradients with respect
 * to each operand and to dx, where dx is a tangent of operand i. An operation whose rule or jvp
 * computes with plain numbers promises no such gradients. */
static bool second_of_jvp(const second *s, int i)
{
    const eg__contract_call *k = s->k;
    eg_tensor *dx[EG_ASKED_OPERANDS], *by_jvp, *by_rule, *g = s->g, *cut;
    if (!k->t->op->jvp || s->r[i]->unrecorded || !s->r[i]->op ||
        eg_path_to(s->r[i], g, &cut) != EG_OPEN_PATH)
        return true;
    eg_tensor *t = eg__contract_jvp(k, s->y, i, dx);
    if (!t || !t->op || eg_path_to(t, dx[i], &cut) == EG_NO_PATH) return true;
    for (int j = -1; j < k->t->count; j++) {
        eg_tensor *by = j < 0 ? dx[i] : s->x[j];
        if (j >= 0 && !k->r[j]) continue;
        if (eg_grad(t, g, 1, &by, &by_jvp)) break;
        if (j < 0)
            by_rule = s->r[i];
        else if (eg_grad(s->r[i], dx[i], 1, &by, &by_rule))
            break;
        const double most = eg__largest(by_rule);
        const double share = most > 0 ? 1e-5 + second_floor(s) / most : 1e-5;
        if (!eg__all_finite(by_rule) || eg__contract_alike(by_jvp, by_rule, share)) continue;
        char words[80];
        if (j < 0) return second_breaks(s, i, "and its jvp disagree by the tangent");
        snprintf(words, sizeof words, "and its jvp disagree by operand %d", j + 1);
        return second_breaks(s, i, words);
    }
    eg__refused(k->cx);
    return true;
}
bool eg__second_at(eg__contract_call *k, eg_tensor *const *x, const char *where)
{
    second s = { .k = k, .x = x, .where = where, .y = eg__contract_apply(k, x) };
    double most = 0;
    eg__refused(k->cx);
    s.g = s.y && s.y->dtype == EG_F64 && eg__all_finite(s.y) ? eg__contract_noise(s.y, 1) : NULL;
    for (int i = 0; s.g && i < k->t->count; i++) {
        if (!k->r[i] || !eg__contract_rule(s.y, s.g, i, &s.r[i]) || !s.r[i] ||
            !eg__all_finite(s.r[i]))
            s.r[i] = NULL;
        most = fmax(most, eg__largest(s.r[i]));
        eg__refused(k->cx);
    }
    for (int i = 0; s.g && i < k->t->count; i++) {
        /* one that is so small relative to another is saturated: it may have no correct digit */
        if (!s.r[i] || !(eg__largest(s.r[i]) > 1e-8 * most)) continue;
        if (!second_by_g(&s, i) || !second_of(&s, i) || !second_of_jvp(&s, i)) return false;
    }
    return true;
}
bool eg__second_order(eg__contract_call *k) { return eg__second_at(k, k->x, ""); }
