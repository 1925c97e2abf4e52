/* contract_single.c: the rule and the jvp give the same in f32 as in f64, up to rounding, at the
 * point and where the operands are larger, smaller or negated. eg__precision (precision.c) compares
 * f as a whole, at the point.
 *
 * The operands have the same values, which f32 can represent, in both types. A result in f32 that
 * only loses digits is not a mistake, so a difference counts if (1) the results of forward agree,
 * (2) it exceeds what rounding leaves of values as large as g y / x, and (3) it is the same, up to
 * a fifth, where the operands are changed by a few units in the last place; rounding errors differ
 * then. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

enum { NEARBY = 2, UNITS = 5 }; /* points nearby, which are UNITS units in the last place apart */
#define FORWARD 2e-4
#define SAME    2e-4
#define IN_F32  1e30 /* larger values cannot be represented in f32 */

/* The operation at one point, in both types. */
typedef struct single {
    eg__contract_call *k;
    double factor;     /* operands are those of the call, times this */
    const char *where; /* "" or " where all operands are …" */
    eg_tensor *x[2][EG_ASKED_OPERANDS], *y[2], *g[2]; /* [0] in f64, [1] in f32 */
    double most_x, apart; /* largest element of an operand; largest difference of the results */
} single;

/* Returns a copy of x, times factor and moved by `units` units of f32 in the last place, rounded to
 * f32, and in *narrow the same in f32. NULL after an error. */
static eg_tensor *rounded(eg_tensor *x, double factor, int units, eg_tensor **narrow)
{
    eg_tensor *wide = eg__leaf_copy(x);
    *narrow = wide ? eg__new(x->cx, EG_F32, x->rank, x->dim) : NULL;
    for (int64_t j = 0, n = *narrow ? eg_size(wide) : 0; j < n; j++) {
        double *v = eg__contract_numbers(wide) + j;
        const float f = (float)(factor * *v * (1 + (j % 2 ? -1 : 1) * units * 0x1p-23));
        ((float *)(void *)(*narrow)->data)[j] = f;
        *v = (double)f;
    }
    return *narrow ? wide : NULL;
}
/* Applies the operation in both types. False if one of them refuses, or the results differ. */
static bool single_open(single *s, int units)
{
    eg__contract_call *k = s->k;
    s->most_x = 0;
    for (int i = 0; i < k->t->count; i++) {
        s->x[0][i] = s->x[1][i] = k->x[i];
        if (k->x[i]->dtype != EG_F64) continue;
        if (!(s->x[0][i] = rounded(k->x[i], s->factor, units, &s->x[1][i]))) return false;
        s->most_x = fmax(s->most_x, eg__largest(s->x[0][i]));
        if (s->where[0] && !eg__sampled_there(k->t->op, s->x[0][i])) return false;
    }
    for (int t = 0; t < 2; t++)
        if (!(s->y[t] = eg__contract_apply(k, s->x[t]))) return false;
    if (s->y[0]->dtype != EG_F64 || s->y[1]->dtype != EG_F32 || !eg__all_finite(s->y[0]) ||
        eg__largest(s->y[0]) > IN_F32)
        return false;
    eg_tensor *wide = eg_cast(s->y[1], EG_F64), *noise = eg__contract_noise(s->y[0], 1);
    if (!eg_ok(wide) || !eg__contract_alike(wide, s->y[0], FORWARD)) return false;
    const double *narrow = eg_f64(wide), *exact = eg_f64(s->y[0]);
    s->apart = 0;
    for (int64_t j = 0, n = narrow && exact ? eg_size(wide) : 0; j < n; j++)
        s->apart = fmax(s->apart, fabs(narrow[j] - exact[j]));
    return noise && (s->g[0] = rounded(noise, 1, 0, &s->g[1])) != NULL;
}
/* Sets d to the rule's results for operand i or, if jvp is true, to the tangents for a tangent of
 * operand i, in both types, both as f64. False if one refuses. */
static bool single_results(const single *s, int i, bool jvp, eg_tensor **d)
{
    eg_tensor *dx[2][EG_ASKED_OPERANDS];
    memset(dx, 0, sizeof dx);
    if (jvp) {
        eg_tensor *v = eg__contract_noise(s->x[0][i], 7);
        if (!v || !(dx[0][i] = rounded(v, 1, 0, &dx[1][i]))) return false;
    }
    for (int t = 0; t < 2; t++) {
        if (jvp)
            d[t] = eg__contract_tangent(s->y[t], dx[t]);
        else if (!eg__contract_rule(s->y[t], s->g[t], i, &d[t]))
            return false;
        if (s->k->cx->failed || !eg_ok(d[t])) return false;
    }
    if (d[1]->dtype == EG_F32) d[1] = eg_cast(d[1], EG_F64);
    return eg_ok(d[1]) && eg__same_shape(d[0], d[1]) && d[0]->dtype == EG_F64 &&
           d[1]->dtype == EG_F64 && eg__all_finite(d[0]) && eg__largest(d[0]) < IN_F32;
}
/* True if the results agree, or if rounding may explain the difference; else notes it. */
static bool single_agrees(const single *s, int i, bool jvp)
{
    eg_tensor *d[2];
    char words[200];
    if (!single_results(s, i, jvp, d)) return true;
    const double most = eg__largest(d[0]);
    /* jvp: the tangent instead of g; in both cases the magnitude is about 1 */
    const double value = eg__largest(s->y[0]);
    /* rounding of y / x; a rule that reads y has its error, and terms as large as y may cancel,
     * and smaller numbers are subnormal */
    const double floor =
        fmax(1e-4 * value / fmax(s->most_x, 1e-30), 8 * s->apart + 16 * 0x1p-24 * value + 0x1p-122);
    const double *wide = eg_f64(d[0]), *v = eg_f64(d[1]);
    int64_t at = -1;
    double apart = fmax(SAME * most, floor);
    for (int64_t j = 0, n = wide && v ? eg_size(d[0]) : 0; j < n; j++)
        if (!(fabs(v[j] - wide[j]) <= apart)) {
            apart = fabs(v[j] - wide[j]);
            at = j;
            if (!isfinite(v[j])) break;
        }
    if (at < 0) return true;
    const double was = v[at], is = wide[at], error = was - is;
    for (int near = 1; near <= NEARBY && isfinite(error); near++) {
        single other = { .k = s->k, .factor = s->factor, .where = "" };
        if (!single_open(&other, near * UNITS) || !single_results(&other, i, jvp, d)) return true;
        wide = eg_f64(d[0]), v = eg_f64(d[1]);
        if (!wide || !v || !(fabs(v[at] - wide[at] - error) <= 0.2 * fabs(error))) return true;
    }
    eg__sentence(words, sizeof words, "%s in f32 than in f64%s: %.6g, not %.6g",
                 jvp ? "has a jvp that gives another tangent" : "gives another cotangent", s->where,
                 was, is);
    return eg__breaks(s->k, i, words);
}
bool eg__same_in_single(eg__contract_call *k)
{
    static const double factor[] = { 1, 10, 100, -1, 0.01 };
    static const char *const where[] = { "", " where all operands are 10 times as large",
                                         " where all operands are 100 times as large",
                                         " where all operands are of the other sign",
                                         " where all operands are 100 times as small" };
    eg_ctx *cx = k->cx;
    eg__probe *probe = cx->probe;
    const eg_hooks hooks = cx->hooks;
    const eg_dtype dtype = cx->dtype;
    bool good = true;
    /* an operation that reads tensors other than its operands reads f64 ones while the check runs,
     * and then refuses f32 operands */
    cx->hooks = (eg_hooks){ .operand = NULL };
    cx->dtype = EG_F32;
    const int factors = eg__only_here(cx) ? 1 : 5; /* asked before the probe is removed */
    cx->probe = NULL;
    for (int f = 0; f < factors && good; f++) {
        const eg_mark m = eg_push(cx);
        single s = { .k = k, .factor = factor[f], .where = where[f] };
        if (single_open(&s, 0))
            for (int i = 0; i < k->t->count && good; i++)
                good = !k->r[i] || (single_agrees(&s, i, false) &&
                                    (!k->t->op->jvp || single_agrees(&s, i, true)));
        eg__refused(cx);
        eg_pop(cx, m);
    }
    cx->probe = probe;
    cx->hooks = hooks;
    cx->dtype = dtype;
    return good;
}
