/* contract_derivatives.c: contracts about derivatives: the cotangent is linear in g, agrees with
 * jvp, is the derivative of the operation's forward function, and, if it has a gradient, that is
 * its derivative. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

/* -- linear in g ------------------------------------------------------------------------------ */
/* Kinds of cotangents g that a rule may treat as special. */
typedef enum special { ONES, INTEGERS, NEGATIVE_ZEROS, TINY_ELEMENTS, SPECIALS } special;
static eg_tensor *special_g(const eg_tensor *like, special s)
{
    eg_tensor *g = eg__contract_noise(like, 6);
    for (int64_t j = 0, n = g ? eg_size(g) : 0; j < n; j++) {
        double *v = eg__contract_numbers(g) + j;
        if (s == ONES)
            *v = 1;
        else if (s == INTEGERS)
            *v = (double)(j % 5 + 1);
        else if (j % 2 == 0)
            *v = s == NEGATIVE_ZEROS ? -0.0 : 1e-7 * *v;
    }
    return g;
}
/* True if the rule's results for g2 and for g + g2 agree with linearity; else notes what is
 * broken. */
static bool linear_in(eg__contract_call *k, int i, eg_tensor *g2, const char *words)
{
    eg_tensor *both = eg__leaf_copy(k->g), *d, *e;
    if (!both || !g2) return eg__breaks(k, i, "out of memory");
    eg__add_to(both, g2);
    if (!eg__contract_rule(k->y, g2, i, &d) || !eg__contract_rule(k->y, both, i, &e))
        return eg__breaks(k, i, words);
    eg_tensor *sum = eg__leaf_copy(k->r[i]), *part = d ? eg__leaf_copy(d) : NULL;
    if (sum && part) eg__add_to(sum, part);
    if (!eg__contract_close(k, i, e, sum, 1, 1e-10)) return eg__breaks(k, i, words);
    return true;
}
bool eg__linear(eg__contract_call *k)
{
    static const double factor[] = { -1, 0x1p-100, 0x1p100, 0 };
    static const char *const words[] = {
        "is not linear in g: of -g it is not the negative",
        "is not linear in g: a tiny g gives no tiny cotangent in proportion",
        "is not linear in g: a huge g gives no huge cotangent in proportion",
        "is not linear in g: of g = 0 it is not 0"
    };
    static const char *const special_words[] = {
        "is not linear in g: where g is 1 everywhere it is not what that adds",
        "is not linear in g: where g is of whole numbers it is not what that adds",
        "is not linear in g: where g has elements of -0 it is not what the others add",
        "is not linear in g: where g has tiny elements beside others it is not what these add"
    };
    const int64_t n = eg_size(k->g), step = n > 3 ? (n - 1) / 2 : 1;
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *d;
        if (!k->r[i]) continue;
        for (int f = 0; f < 4; f++) {
            eg_tensor *g = eg__leaf_copy(k->g);
            for (int64_t j = 0; g && j < n; j++) eg__contract_numbers(g)[j] *= factor[f];
            if (!eg__contract_rule(k->y, g, i, &d) ||
                !eg__contract_close(k, i, d, k->r[i], factor[f], 1e-10))
                return eg__breaks(k, i, words[f]);
        }
        if (!linear_in(k, i, eg__contract_noise(k->g, 4),
                       "is not linear in g: of g + h it is not the sum"))
            return false;
        for (int s = 0; s < SPECIALS; s++)
            if (!linear_in(k, i, special_g(k->g, (special)s), special_words[s])) return false;
        for (int64_t at = 0; at < n; at += step) {
            eg_tensor *g = eg__zeros(k->cx, EG_F64, k->g->rank, k->g->dim);
            if (g) eg__contract_numbers(g)[at] = 1;
            if (!linear_in(k, i, g,
                           "is not linear in g: of a g that is 0 but for one element it "
                           "is not what that element adds"))
                return false;
        }
    }
    return true;
}

/* -- the derivative --------------------------------------------------------------------------- */
/* An operand of the operation that is moved along v from x. */
typedef struct moved {
    const eg__contract_call *k;
    eg_tensor *const *x, *g, *v;
    int i, of;        /* operand i is moved; observed is the rule's result for operand `of`, or, if
                       * that is −1, the operation's result */
    eg_tensor *along; /* the direction along which the rule's result is observed */
} moved;
/* Computes ⟨g, result⟩, or ⟨rule(g, of), along⟩, with the operand moved by t v. Sets *terms to the
 * magnitude of the terms. False if there is no value. */
static bool moved_value(const moved *m, double t, double *value, double *terms)
{
    eg_ctx *cx = m->k->cx;
    const eg_mark scope = eg_push(cx);
    eg_tensor *x[EG_ASKED_OPERANDS], *d, *y;
    *terms = 0;
    memcpy(x, m->x, (size_t)m->k->t->count * sizeof *x);
    x[m->i] = eg__leaf_copy(m->x[m->i]);
    for (int64_t j = 0, n = x[m->i] ? eg_size(x[m->i]) : 0; j < n; j++)
        eg__contract_numbers(x[m->i])[j] += t * eg__contract_numbers(m->v)[j];
    y = x[m->i] ? eg__contract_apply(m->k, x) : NULL;
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
#define FIRST 0x1p-9 /* the largest step */
/* Returns a bound for what the rounding of x + h v changes of the slope at the smallest step h,
 * where d is the cotangent of x: 4 ε Σ |d x| / h, with smaller addends where v is small. */
static double moved_rounding(const moved *m, eg_tensor *d)
{
    const double *slope = d ? eg_f64(d) : NULL, *v = eg__contract_numbers(m->v),
                 *x = eg__contract_numbers(m->x[m->i]);
    double sum = 0;
    for (int64_t j = 0, n = slope ? eg_size(d) : 0; j < n; j++)
        if (isfinite(slope[j])) sum += fabs(slope[j] * fmin(fabs(v[j]), 1) * x[j]);
    return 4 * 0x1p-52 * sum / (FIRST / 4);
}
/* Computes the derivative of moved_value(m, t) at 0 from differences at first, first/2 and first/4,
 * and its error. False at a kink, and if there is no value. */
static bool contract_slope(const moved *m, double first_step, double size, double *n, double *err)
{
    double d[3], bend[3], middle, terms, other;
    const double rounding = 1e-11 * size * (FIRST / first_step);
    if (!moved_value(m, 0, &middle, &terms)) return false;
    for (int k = 0; k < 3; k++) {
        const double h = ldexp(first_step, -k);
        double up, down;
        if (!moved_value(m, h, &up, &other) || !moved_value(m, -h, &down, &other)) return false;
        d[k] = (up - down) / (2 * h);
        bend[k] = fabs(up - 2 * middle + down) / h; /* difference of the slopes on the two sides */
    }
    if (bend[2] > 0.6 * bend[0] &&
        bend[2] > 1e-6 * fabs(d[2]) + 10 * fmin(rounding, 1e-11 * terms * (FIRST / first_step)))
        return false;
    const double r0 = (4 * d[1] - d[0]) / 3, r1 = (4 * d[2] - d[1]) / 3;
    const double first = d[0] - d[1], second = d[1] - d[2], ratio = first / second;
    /* a cusp or a pole */
    if (fabs(second) > 1e-11 * terms && !(fabs(ratio) > 1.1)) return false;
    *n = (16 * r1 - r0) / 15;
    /* differences at larger steps may be much larger than the slope, as of x³ at 1e-10 */
    *err = fabs(*n - r1) + rounding + 16 * 0x1p-52 * fabs(d[0]) + 1e-290;
    if (fabs(second) > rounding && !(ratio > 2.8 && ratio < 20))
        *err = fmax(fabs(first), fabs(second)) * 4 + rounding;
    return isfinite(*n) && isfinite(*err);
}
/* True if a is the slope at steps that are 32 times as small, at which the slope is not n: there is
 * a kink within the larger steps. */
static bool slope_is_near(const moved *m, double size, double a, double n)
{
    double near, err;
    if (!contract_slope(m, FIRST / 32, size, &near, &err)) return false;
    return fabs(a - near) <= 1e-6 * fmax(fabs(a), fabs(near)) + 10 * err &&
           fabs(near - n) > 20 * err;
}
/* True if the slope n along v is the sum of the slopes along two parts of v, for two random
 * partitions. It is not at a kink that no single line shows: the median of equal numbers has the
 * same slope in front of and behind them. */
static bool slope_is_linear(const moved *m, double size, double n, double err)
{
    for (uint64_t turn = 0; turn < 2; turn++) {
        double slope[2], of[2];
        for (int part = 0; part < 2; part++) {
            moved p = *m;
            if (!(p.v = eg__leaf_copy(m->v))) return false;
            for (int64_t j = 0, count = eg_size(p.v); j < count; j++)
                if ((eg__drawn(24 + turn, j) > 0) != part) eg__contract_numbers(p.v)[j] = 0;
            if (!contract_slope(&p, FIRST, size, &slope[part], &of[part])) return false;
        }
        const double apart = fabs(slope[0] + slope[1] - n);
        if (apart > 1e-6 * fmax(fabs(slope[0]), fabs(slope[1])) + 10 * (err + of[0] + of[1]))
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
/* An error of one element, such as the last of a block, may be small beside the slope along a
 * direction over all elements. */
enum { HALVINGS = 20 };
#define NEARLY 5e-3 /* how far the slopes of an approximation may be apart */
#define WRONG  0.05 /* and those by a single element */
/* True if the rule's result d nearly agrees with the slope n: also in the element that is found by
 * halving the direction and following the part that differs more. */
static bool slope_is_nearly(const moved *m, eg_tensor *d, double a, double n, double size)
{
    const int64_t count = d ? eg_size(d) : 0;
    const double *slope = d ? eg_f64(d) : NULL;
    int64_t from = 0, to = count;
    if (!slope || !(fabs(a - n) <= NEARLY * fmax(fabs(a), fabs(n)))) return false;
    for (int turn = 0; turn < HALVINGS && to - from > 1; turn++) {
        const int64_t middle = from + (to - from) / 2;
        double apart[2] = { 0 };
        for (int half = 0; half < 2; half++) {
            moved p = *m;
            double own = 0, other, err;
            if (!(p.v = eg__leaf_copy(m->v))) return false;
            for (int64_t j = 0; j < count; j++)
                if (j < (half ? middle : from) || j >= (half ? to : middle))
                    eg__contract_numbers(p.v)[j] = 0;
                else
                    own += slope[j] * eg__contract_numbers(p.v)[j];
            if (!contract_slope(&p, FIRST, size, &other, &err)) return false;
            apart[half] = fabs(own - other);
            const bool one = (half ? to - middle : middle - from) == 1;
            if (one && apart[half] > WRONG * fmax(fabs(own), fabs(other)) + 10 * err) return false;
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
    snprintf(
        k->note, sizeof k->note,
        "agrees with its own forward only up to %.1g%s: an approximation, or an iteration that "
        "has not converged there",
        fabs(a - n) / fmax(fabs(a), fabs(n)), where);
}
/* True if the rule may be right although the slope n at large steps is another one: f varies within
 * a step, as x + sin x at 1e10, and n is the mean of the derivative over the step. The rule's mean
 * at SAMPLES points is compared with it, within its standard error. */
static bool slope_is_mean(const moved *m, double n)
{
    enum { SAMPLES = 16 };
    eg_ctx *cx = m->k->cx;
    double sum = 0, squares = 0, size = 0;
    for (int q = 0; q < SAMPLES; q++) {
        eg_tensor *x[EG_ASKED_OPERANDS], *d;
        memcpy(x, m->x, (size_t)m->k->t->count * sizeof *x);
        if (!(x[m->i] = eg__leaf_copy(m->x[m->i]))) return true;
        for (int64_t j = 0, of = eg_size(m->v); j < of; j++)
            eg__contract_numbers(x[m->i])[j] +=
                FIRST * ((2 * q + 1.) / SAMPLES - 1) * eg__contract_numbers(m->v)[j];
        if (!eg__contract_rule(eg__contract_apply(m->k, x), m->g, m->i, &d) || !d) {
            eg__refused(cx);
            return true;
        }
        const double a = eg__contract_dot(d, m->v, &size);
        sum += a / SAMPLES;
        squares += a * a / SAMPLES;
    }
    const double error = 4 * sqrt(fmax(0, squares - sum * sum) / SAMPLES);
    return !(fabs(sum - n) > 0.01 * fmax(fabs(sum), fabs(n)) + error);
}
/* True if the rule's result d for operand i at x agrees with differences; else notes what is
 * broken. */
static bool derivative_of(eg__contract_call *k, eg_tensor *const *x, eg_tensor *y, eg_tensor *g,
                          int i, eg_tensor *d, const char *where)
{
    double size = 0, n, err;
    char words[200];
    eg_tensor *v = eg__contract_noise(x[i], 9);
    if (!v) return true;
    const double large = eg__largest(x[i]);
    const bool scaled = large > 1e7 && large < 1e100;
    for (int64_t j = 0, of = eg_size(v); j < of && scaled; j++)
        eg__contract_numbers(v)[j] *= large; /* so that x + h v is another number than x */
    const double a = d ? eg__contract_dot(d, v, &size) : 0;
    if (!isfinite(a)) {
        size = 0;
        if (!same_side(k, x)) return true;
    }
    eg__contract_dot(y, g, &size);
    moved m = { .k = k, .x = x, .g = g, .v = v, .i = i, .of = -1 };
    if (!contract_slope(&m, FIRST, size, &n, &err)) return true;
    err += moved_rounding(&m, d);
    if (fabs(a - n) <= 1e-6 * fmax(fabs(a), fabs(n)) + 10 * err) return true;
    if (!slope_is_linear(&m, size, n, err) || slope_is_near(&m, size, a, n)) return true;
    if (scaled && isfinite(a) && slope_is_mean(&m, n)) return true;
    if (where[0] && isfinite(a) && slope_is_nearly(&m, d, a, n, size)) {
        note_nearly(k, i, where, a, n);
        return true;
    }
    snprintf(words, sizeof words,
             "disagrees with its own forward%s: %.6g, not %.6g along a random direction", where, a,
             n);
    return eg__breaks(k, i, words);
}
bool eg__derivative_at(eg__contract_call *k, eg_tensor *const *x, const char *where, bool refuses)
{
    eg_tensor *y = eg__contract_apply(k, x), *g = y ? eg__contract_noise(y, 8) : NULL, *d;
    eg_tensor *r[EG_ASKED_OPERANDS] = { NULL };
    bool finite = true;
    char words[200];
    eg__refused(k->cx);
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
    char said[200];
    snprintf(said, sizeof said, "has a wrong gradient of its own (second order) %s%s", words,
             s->where);
    return eg__breaks(s->k, i, said);
}
/* Returns what two derivatives may differ by at a point other than that of the check: where an
 * operation is saturated, they are rounding errors of its value. */
static double second_floor(const second *s)
{
    double value = 0;
    if (s->where[0]) eg__contract_dot(s->y, s->g, &value);
    return 1e-9 * value;
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
        double size = 0, value = 0, n, err;
        char words[80];
        if (!v || eg_grad(s->r[i], along, 1, &s->x[j], &dj) || !eg__all_finite(dj)) {
            eg__refused(k->cx);
            continue;
        }
        const double a = eg__contract_dot(dj, v, &size);
        eg__contract_dot(s->r[i], along, &size);
        moved m = { .k = k, .x = s->x, .g = s->g, .v = v, .i = j, .of = i, .along = along };
        if (!contract_slope(&m, FIRST, size, &n, &err)) continue;
        /* the rule's intermediate results may be as large as the value */
        eg__contract_dot(s->y, s->g, &value);
        err += moved_rounding(&m, dj) + 4 * 0x1p-52 * value / 0x1p-11;
        if (fabs(a - n) <= 1e-5 * fmax(fabs(a), fabs(n)) + 10 * err) continue;
        if (!slope_is_linear(&m, size, n, err) || slope_is_near(&m, size, a, n)) continue;
        snprintf(words, sizeof words, "by operand %d: %.6g, not %.6g", j + 1, a, n);
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
        if (!eg__all_finite(by_rule) || eg__contract_alike(by_jvp, by_rule, 1, share)) continue;
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
        /* one that is so small beside another is saturated: it may have no correct digit */
        if (!s.r[i] || !(eg__largest(s.r[i]) > 1e-8 * most)) continue;
        if (!second_by_g(&s, i) || !second_of(&s, i) || !second_of_jvp(&s, i)) return false;
    }
    return true;
}
bool eg__second_order(eg__contract_call *k) { return eg__second_at(k, k->x, ""); }
