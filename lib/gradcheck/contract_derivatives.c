/* contract_derivatives.c: contracts about derivatives: the cotangent is linear in g, agrees with
 * jvp, is the derivative of the operation's forward function, and, if it has a gradient, that is
 * its derivative. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

/* -- linear in g ------------------------------------------------------------------------------ */
/* Kinds of cotangents g that a rule may treat as special. */
typedef enum special { ONES, INTEGERS, NEGATIVE_ZEROS, SPECIALS } special;
static eg_tensor *special_g(const eg_tensor *like, special s)
{
    eg_tensor *g = eg__contract_noise(like, 6);
    for (int64_t j = 0, n = g ? eg_size(g) : 0; j < n; j++) {
        double *v = eg__contract_numbers(g) + j;
        *v = s == ONES ? 1 : s == INTEGERS ? (double)(j % 5 + 1) : j % 2 == 0 ? -0.0 : *v;
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
    if (!eg__contract_alike(e, sum, 1, 1e-10)) return eg__breaks(k, i, words);
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
        "is not linear in g: where g has elements of -0 it is not what the others add"
    };
    const int64_t n = eg_size(k->g), step = n > 3 ? (n - 1) / 2 : 1;
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *d;
        if (!k->r[i]) continue;
        for (int f = 0; f < 4; f++) {
            eg_tensor *g = eg__leaf_copy(k->g);
            for (int64_t j = 0; g && j < n; j++) eg__contract_numbers(g)[j] *= factor[f];
            if (!eg__contract_rule(k->y, g, i, &d) ||
                !eg__contract_alike(d, k->r[i], factor[f], 1e-10))
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

/* -- jvp -------------------------------------------------------------------------------------- */
/* Returns ⟨a, b⟩ and adds the magnitudes of its terms to *size. */
static double contract_dot(eg_tensor *a, eg_tensor *b, double *size)
{
    const double *x = eg_f64(a), *y = eg_f64(b);
    double sum = 0;
    for (int64_t k = 0, n = x && y ? eg_size(a) : 0; k < n; k++) {
        sum += x[k] * y[k];
        *size += fabs(x[k] * y[k]);
    }
    return sum;
}
/* Returns the tangent of y for a random tangent of the operand `only`, or, if that is −1, of all
 * operands with a cotangent; sets dx to these tangents. NULL if an operand's tangent cannot be
 * made, and after an error. */
static eg_tensor *jvp_of(const eg__contract_call *k, eg_tensor *y, int only, eg_tensor **dx)
{
    for (int i = 0; i < k->t->count; i++) {
        dx[i] = NULL;
        if (!k->r[i] || (only >= 0 && i != only)) continue;
        if (!(dx[i] = eg__contract_noise(eg_operand(y, i), 7 + (uint64_t)i))) return NULL;
    }
    eg_tensor *d = k->t->op->jvp(y, dx);
    return d && eg_ok(d) ? d : NULL;
}
/* True if ⟨jvp(dx), g⟩ = Σ ⟨r_i, dx_i⟩, where r_i is the rule's result for operand i of y, for a
 * tangent of each operand alone and of all together; else notes what is broken. */
static bool jvp_agrees(eg__contract_call *k, eg_tensor *y, eg_tensor *g, eg_tensor *const *r,
                       const char *where)
{
    for (int only = -1; only < k->t->count; only++) {
        eg_tensor *dx[EG_ASKED_OPERANDS];
        double size = 0, value = 0, right = 0;
        char words[200];
        if (only >= 0 && !k->r[only]) continue;
        eg_tensor *d = jvp_of(k, y, only, dx);
        for (int i = 0; i < k->t->count; i++)
            if (dx[i] && r[i]) right += contract_dot(r[i], dx[i], &size);
        const double left = d ? contract_dot(d, g, &size) : 0;
        contract_dot(y, g, &value);
        if (!k->cx->failed && fabs(left - right) <= 1e-9 * size + (where[0] ? 1e-9 : 1e-14) * value)
            continue;
        if (only < 0)
            snprintf(words, sizeof words,
                     "and its jvp disagree where all operands move%s: %.6g, %.6g", where, right,
                     left);
        else
            snprintf(words, sizeof words,
                     "and its jvp disagree where operand %d moves alone%s: %.6g, %.6g", only + 1,
                     where, right, left);
        return eg__breaks(k, only, words);
    }
    return true;
}
bool eg__jvp_adjoint(eg__contract_call *k)
{
    return !k->t->op->jvp || jvp_agrees(k, k->y, k->g, k->r, "");
}
/* True if the jvp gives the same tangent for tangents that are not row-major as for row-major
 * copies, and if it is linear: a large tangent gives a tangent that is large in proportion. */
bool eg__jvp_tangents(eg__contract_call *k)
{
    if (!k->t->op->jvp) return true;
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *dx[EG_ASKED_OPERANDS], *d, *e;
        if (!k->r[i]) continue;
        if (!(d = jvp_of(k, k->y, i, dx))) return true;
        eg_tensor *flat = dx[i];
        for (int how = 0; how < EG_LAYOUTS; how++) {
            char words[96];
            if (!(dx[i] = eg__laid_out(flat, how)) && !k->cx->failed) continue;
            e = k->t->op->jvp(k->y, dx);
            snprintf(words, sizeof words, "and its jvp disagree where the tangent is %s",
                     eg__layout_name(how));
            if (k->cx->failed || !eg__contract_alike(e, d, 1, 1e-10))
                return eg__breaks(k, i, words);
        }
        if (!(dx[i] = eg__leaf_copy(flat))) return true;
        for (int64_t j = 0, n = eg_size(flat); j < n; j++)
            eg__contract_numbers(dx[i])[j] *= 0x1p100;
        e = k->t->op->jvp(k->y, dx);
        if (k->cx->failed || !eg__contract_alike(e, d, 0x1p100, 1e-10))
            return eg__breaks(k, i, "and its jvp disagree where the tangent is huge");
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
        *value = good ? contract_dot(d, m->along, terms) : 0;
    } else if (good)
        *value = contract_dot(y, m->g, terms);
    eg__refused(cx);
    eg_pop(cx, scope);
    return good;
}
/* Returns a bound for what the rounding of x + h v changes of the slope at the smallest step h,
 * where d is the cotangent of x: 4 ε Σ |d v x| / h. */
static double moved_rounding(const moved *m, eg_tensor *d)
{
    const double *slope = d ? eg_f64(d) : NULL, *v = eg__contract_numbers(m->v),
                 *x = eg__contract_numbers(m->x[m->i]);
    double sum = 0;
    for (int64_t j = 0, n = slope ? eg_size(d) : 0; j < n; j++)
        if (isfinite(slope[j])) sum += fabs(slope[j] * v[j] * x[j]);
    return 4 * 0x1p-52 * sum / 0x1p-11;
}
/* Computes the derivative of moved_value(m, t) at 0, and its error. False at a kink, and if there
 * is no value. */
static bool contract_slope(const moved *m, double size, double *n, double *err)
{
    double d[3], bend[3], middle, terms, other;
    if (!moved_value(m, 0, &middle, &terms)) return false;
    for (int k = 0; k < 3; k++) {
        const double h = ldexp(0x1p-9, -k);
        double up, down;
        if (!moved_value(m, h, &up, &other) || !moved_value(m, -h, &down, &other)) return false;
        d[k] = (up - down) / (2 * h);
        bend[k] = fabs(up - 2 * middle + down) / h; /* difference of the slopes on the two sides */
    }
    if (bend[2] > 0.6 * bend[0] && bend[2] > 1e-6 * fabs(d[2]) + 1e-10 * size) return false;
    const double r0 = (4 * d[1] - d[0]) / 3, r1 = (4 * d[2] - d[1]) / 3;
    const double first = d[0] - d[1], second = d[1] - d[2], ratio = first / second;
    /* a cusp or a pole */
    if (fabs(second) > 1e-11 * terms && !(fabs(ratio) > 1.1)) return false;
    *n = (16 * r1 - r0) / 15;
    *err = fabs(*n - r1) + 1e-11 * size + 1e-290;
    if (fabs(second) > 1e-11 * size && !(ratio > 2.8 && ratio < 20))
        *err = fmax(fabs(first), fabs(second)) * 4 + 1e-11 * size;
    return isfinite(*n) && isfinite(*err);
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
            if (!contract_slope(&p, size, &slope[part], &of[part])) return false;
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
bool eg__derivative_at(eg__contract_call *k, eg_tensor *const *x, const char *where, bool refuses)
{
    eg_tensor *y = eg__contract_apply(k, x), *g = y ? eg__contract_noise(y, 8) : NULL, *d;
    eg_tensor *r[EG_ASKED_OPERANDS] = { NULL };
    bool finite = true;
    eg__refused(k->cx);
    if (!g || y->dtype != EG_F64 || !eg__all_finite(y)) return true;
    for (int i = 0; i < k->t->count; i++) {
        double size = 0, n, err;
        char words[200];
        if (!k->r[i] || !eg_size(x[i])) continue;
        eg_tensor *v = eg__contract_noise(x[i], 9);
        if (!v) return true;
        if (!eg__contract_rule(y, g, i, &d)) {
            finite = false;
            if (refuses && eg__refused(k->cx)) continue;
            return eg__breaks(k, i, where);
        }
        const double a = d ? contract_dot(d, v, &size) : 0;
        r[i] = d;
        finite &= isfinite(a);
        if (!isfinite(a)) {
            size = 0;
            if (!same_side(k, x)) continue;
        }
        contract_dot(y, g, &size);
        moved m = { .k = k, .x = x, .g = g, .v = v, .i = i, .of = -1 };
        if (!contract_slope(&m, size, &n, &err)) continue;
        err += moved_rounding(&m, d);
        if (fabs(a - n) <= 1e-6 * fmax(fabs(a), fabs(n)) + 10 * err) continue;
        if (!slope_is_linear(&m, size, n, err)) continue;
        snprintf(words, sizeof words,
                 "disagrees with its own forward%s: %.6g, not %.6g along a "
                 "random direction",
                 where, a, n);
        return eg__breaks(k, i, words);
    }
    return !finite || !k->t->op->jvp || jvp_agrees(k, y, g, r, where);
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
    if (s->where[0]) contract_dot(s->y, s->g, &value);
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
        const double a = contract_dot(dj, v, &size);
        contract_dot(s->r[i], along, &size);
        moved m = { .k = k, .x = s->x, .g = s->g, .v = v, .i = j, .of = i, .along = along };
        if (!contract_slope(&m, size, &n, &err)) continue;
        /* the rule's intermediate results may be as large as the value */
        contract_dot(s->y, s->g, &value);
        err += moved_rounding(&m, dj) + 4 * 0x1p-52 * value / 0x1p-11;
        if (fabs(a - n) <= 1e-5 * fmax(fabs(a), fabs(n)) + 10 * err) continue;
        if (!slope_is_linear(&m, size, n, err)) continue;
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
    const double a = contract_dot(dg, h, &size), b = contract_dot(d, along, &size);
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
    eg_tensor *t = jvp_of(k, s->y, i, dx);
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
