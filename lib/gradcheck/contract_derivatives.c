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
bool eg__jvp_adjoint(eg__contract_call *k)
{
    if (!k->t->op->jvp) return true;
    for (int only = -1; only < k->t->count; only++) {
        eg_tensor *dx[EG_ASKED_OPERANDS] = { NULL };
        double size = 0, right = 0;
        char words[160];
        if (only >= 0 && !k->r[only]) continue;
        for (int i = 0; i < k->t->count; i++) {
            if (!k->r[i] || (only >= 0 && i != only)) continue;
            if (!(dx[i] = eg__contract_noise(k->x[i], 7 + (uint64_t)i))) return true;
            right += contract_dot(k->r[i], dx[i], &size);
        }
        eg_tensor *d = k->t->op->jvp(k->y, dx);
        const double left = d && eg_ok(d) ? contract_dot(d, k->g, &size) : 0;
        if (!k->cx->failed && fabs(left - right) <= 1e-9 * size) continue;
        if (only < 0)
            snprintf(words, sizeof words,
                     "and its jvp disagree where all operands move: %.6g, %.6g", right, left);
        else
            snprintf(words, sizeof words,
                     "and its jvp disagree where operand %d moves alone: %.6g, %.6g", only + 1,
                     right, left);
        return eg__breaks(k, only, words);
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
bool eg__derivative_at(eg__contract_call *k, eg_tensor *const *x, const char *where, bool refuses)
{
    eg_tensor *y = eg__contract_apply(k, x), *g = y ? eg__contract_noise(y, 8) : NULL, *d;
    eg__refused(k->cx);
    if (!g || y->dtype != EG_F64 || !eg__all_finite(y)) return true;
    for (int i = 0; i < k->t->count; i++) {
        double size = 0, n, err;
        char words[200];
        if (!k->r[i] || !eg_size(x[i])) continue;
        eg_tensor *v = eg__contract_noise(x[i], 9);
        if (!v) return true;
        if (!eg__contract_rule(y, g, i, &d)) {
            if (refuses && eg__refused(k->cx)) continue;
            return eg__breaks(k, i, where);
        }
        const double a = d ? contract_dot(d, v, &size) : 0;
        contract_dot(y, g, &size);
        moved m = { .k = k, .x = x, .g = g, .v = v, .i = i, .of = -1 };
        if (!isfinite(a) || !contract_slope(&m, size, &n, &err)) continue;
        if (fabs(a - n) <= 1e-6 * fmax(fabs(a), fabs(n)) + 10 * err) continue;
        snprintf(words, sizeof words,
                 "disagrees with its own forward%s: %.6g, not %.6g along a "
                 "random direction",
                 where, a, n);
        return eg__breaks(k, i, words);
    }
    return true;
}
/* -- the derivative of the cotangent ---------------------------------------------------------- */
/* True if the cotangent for operand i has the right gradient with respect to each operand; else
 * notes what is broken. */
static bool second_of(eg__contract_call *k, int i)
{
    eg_tensor *along = eg__contract_noise(k->r[i], 14), *cut;
    if (!along || k->r[i]->unrecorded || !k->r[i]->op) return true; /* no gradient is promised */
    bool any = false;
    for (int j = 0; j < k->t->count; j++)
        any |= k->r[j] && eg_path_to(k->r[i], k->x[j], &cut) != EG_NO_PATH;
    for (int j = 0; j < k->t->count && any; j++) {
        eg_tensor *dj, *v = k->r[j] ? eg__contract_noise(k->x[j], 15) : NULL;
        double size = 0, n, err;
        char words[200];
        if (!v || eg_grad(k->r[i], along, 1, &k->x[j], &dj) || !eg__all_finite(dj)) {
            eg__refused(k->cx);
            continue;
        }
        const double a = contract_dot(dj, v, &size);
        contract_dot(k->r[i], along, &size);
        moved m = { .k = k, .x = k->x, .g = k->g, .v = v, .i = j, .of = i, .along = along };
        if (!contract_slope(&m, size, &n, &err)) continue;
        if (fabs(a - n) <= 1e-5 * fmax(fabs(a), fabs(n)) + 10 * err) continue;
        snprintf(words, sizeof words,
                 "has a wrong gradient of its own (second order) by operand %d: %.6g, not %.6g",
                 j + 1, a, n);
        return eg__breaks(k, i, words);
    }
    return true;
}
/* True if the gradient of ⟨rule(g), along⟩ with respect to g, along h, is ⟨rule(h), along⟩. */
static bool second_by_g(eg__contract_call *k, int i)
{
    eg_tensor *along = eg__contract_noise(k->r[i], 16), *h = eg__contract_noise(k->g, 17), *d, *dg,
              *cut;
    double size = 0;
    if (!along || !h || k->r[i]->unrecorded || !k->r[i]->op ||
        eg_path_to(k->r[i], k->g, &cut) != EG_OPEN_PATH)
        return true;
    if (eg_grad(k->r[i], along, 1, &k->g, &dg) || !eg__contract_rule(k->y, h, i, &d) || !d) {
        eg__refused(k->cx);
        return true;
    }
    const double a = contract_dot(dg, h, &size), b = contract_dot(d, along, &size);
    if (!(fabs(a - b) > 1e-9 * size)) return true;
    return eg__breaks(k, i,
                      "has a wrong gradient of its own (second order) by g: a part of g is "
                      "read as plain numbers");
}
bool eg__second_order(eg__contract_call *k)
{
    for (int i = 0; i < k->t->count; i++)
        if (k->r[i] && (!second_by_g(k, i) || !second_of(k, i))) return false;
    return true;
}
