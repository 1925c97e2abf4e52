/* contract_jvp.c: contracts of an operation's jvp: it is the adjoint of the rule, linear, does not
 * depend on the layout of tangents, and gives the same tangent in every call. */
#include "gradcheck/contracts.h"
#include <math.h>

eg_tensor *eg__contract_jvp(const eg__contract_call *k, eg_tensor *y, int only, eg_tensor **dx)
{
    for (int i = 0; i < k->t->count; i++) {
        dx[i] = NULL;
        if (!k->r[i] || (only >= 0 && i != only)) continue;
        if (!(dx[i] = eg__contract_noise(eg_operand(y, i), 7 + (uint64_t)i))) return NULL;
    }
    return eg__contract_tangent(y, dx);
}
bool eg__jvp_agrees(eg__contract_call *k, eg_tensor *y, eg_tensor *g, eg_tensor *const *r,
                    const char *where)
{
    for (int only = -1; only < k->t->count; only++) {
        eg_tensor *dx[EG_ASKED_OPERANDS];
        double size = 0, value = 0, right = 0;
        char words[200];
        if (only >= 0 && !k->r[only]) continue;
        eg_tensor *d = eg__contract_jvp(k, y, only, dx);
        for (int i = 0; i < k->t->count; i++)
            if (dx[i] && r[i]) right += eg__contract_dot(r[i], dx[i], &size);
        const double left = d ? eg__contract_dot(d, g, &size) : 0;
        eg__contract_dot(y, g, &value);
        if (!k->cx->failed && fabs(left - right) <= 1e-9 * size + (where[0] ? 1e-9 : 1e-14) * value)
            continue;
        if (only < 0)
            eg__sentence(words, sizeof words,
                         "and its jvp disagree where all operands move%s: %.6g, %.6g", where, right,
                         left);
        else
            eg__sentence(words, sizeof words,
                         "and its jvp disagree where operand %d moves alone%s: %.6g, %.6g",
                         only + 1, where, right, left);
        return eg__breaks(k, only, words);
    }
    return true;
}
bool eg__jvp_adjoint(eg__contract_call *k)
{
    return !k->t->op->jvp || eg__jvp_agrees(k, k->y, k->g, k->r, "");
}

/* -- tangents ---------------------------------------------------------------------------------- */
/* The tangent of y for the random tangent `flat` of operand i alone. */
typedef struct alone {
    eg__contract_call *k;
    int i;
    eg_tensor *flat, *d;
} alone;
/* Returns the tangent of y if dx is that of operand i; NULL after an error. */
static eg_tensor *jvp_alone(const alone *a, eg_tensor *dx)
{
    eg_tensor *all[EG_ASKED_OPERANDS] = { NULL };
    all[a->i] = dx;
    return dx ? eg__contract_tangent(a->k->y, all) : NULL;
}
static bool jvp_breaks(const alone *a, const char *words)
{
    char message[160];
    snprintf(message, sizeof message, "and its jvp disagree where the tangent is %s", words);
    return eg__breaks(a->k, a->i, message);
}
/* True if the jvp is the same for tangents that are not row-major, or expanded, as for row-major
 * copies. */
static bool jvp_of_layouts(const alone *a)
{
    const eg__contract_call *k = a->k;
    const double floor = eg__cancelled(k, a->flat);
    for (int how = 0; how < EG_LAYOUTS; how++) {
        eg_tensor *dx = eg__laid_out(a->flat, how);
        if (!dx && !k->cx->failed) continue;
        eg_tensor *e = jvp_alone(a, dx);
        if (k->cx->failed || !eg__contract_above(e, a->d, 1, 1e-10, floor))
            return jvp_breaks(a, eg__layout_name(how));
    }
    for (int how = 0; how < EG_REPEATED; how++) {
        eg_tensor *wide = eg__repeated(a->flat, how), *copy = wide ? eg__leaf_copy(wide) : NULL;
        if (!copy) continue;
        eg_tensor *e = jvp_alone(a, wide), *d = k->cx->failed ? NULL : jvp_alone(a, copy);
        if (k->cx->failed || !eg__contract_above(e, d, 1, 1e-10, floor))
            return jvp_breaks(a, "expanded");
    }
    return true;
}
/* True if the jvp is linear: for multiples of the tangent, and for a sum with a tangent of ones,
 * and with one that is 0 except in one element. */
static bool jvp_is_linear(const alone *a)
{
    static const double factor[] = { 0x1p100, 0x1p-100, -1 };
    static const char *const name[] = { "huge", "tiny", "of the other sign", "1 everywhere",
                                        "0 but for one element" };
    const eg__contract_call *k = a->k;
    const int64_t n = eg_size(a->flat);
    const double floor = eg__cancelled(k, a->flat);
    for (int f = 0; f < 3; f++) {
        eg_tensor *dx = eg__leaf_copy(a->flat);
        for (int64_t j = 0; dx && j < n; j++) eg__contract_numbers(dx)[j] *= factor[f];
        eg_tensor *e = jvp_alone(a, dx);
        if (k->cx->failed || !eg__contract_above(e, a->d, factor[f], 1e-10, floor))
            return jvp_breaks(a, name[f]);
    }
    for (int s = 0; s < 2 && n > 1; s++) {
        eg_tensor *dx = eg__leaf_copy(a->flat), *w = dx ? eg__leaf_copy(a->flat) : NULL;
        for (int64_t j = 0; w && j < n; j++) {
            eg__contract_numbers(w)[j] = s == 0 || j == n / 2;
            eg__contract_numbers(dx)[j] += eg__contract_numbers(w)[j];
        }
        eg_tensor *e = jvp_alone(a, w), *both = k->cx->failed ? NULL : jvp_alone(a, dx);
        if (k->cx->failed) return jvp_breaks(a, name[3 + s]);
        eg_tensor *sum = a->d ? eg__leaf_copy(a->d) : NULL, *part = e ? eg__leaf_copy(e) : NULL;
        if (sum && part) eg__add_to(sum, part);
        const double most = fmax(eg__largest(e), eg__largest(a->d)), of = eg__largest(both);
        const double share = of > 0 ? 1e-10 * fmax(1, most / of) : 0;
        if (!eg__contract_above(both, sum ? sum : e, 1, share, floor))
            return jvp_breaks(a, name[3 + s]);
    }
    return true;
}
/* True if the jvp gives the same tangent when it is called again, while the context does not
 * record, and on another number of threads. */
static bool jvp_is_same_again(const alone *a)
{
    static const char *const name[] = {
        "and its jvp disagree when it is called again",
        "and its jvp disagree while nothing is recorded (eg_nograd)",
        "and its jvp disagree on another number of threads"
    };
    eg_ctx *cx = a->k->cx;
    for (int s = 0; s < (cx->parent ? 2 : 3); s++) {
        const bool was = eg_nograd(cx, s == 1);
        const int threads = cx->threads;
        if (s == 2) cx->threads = threads == 1 ? 3 : 1;
        eg_tensor *e = jvp_alone(a, a->flat);
        cx->threads = threads;
        eg_nograd(cx, was);
        if (cx->failed || !eg__contract_alike(e, a->d, 1e-12))
            return eg__breaks(a->k, a->i, name[s]);
    }
    return true;
}
/* True if the jvp gives the same tangent where operands i and j of one shape have one tensor as
 * their tangent as where they have equal ones. */
static bool jvp_of_one_tangent(eg__contract_call *k, int i, int j)
{
    eg_tensor *dx[EG_ASKED_OPERANDS] = { NULL }, *e;
    if (!(dx[i] = dx[j] = eg__contract_noise(k->x[i], 7))) return true;
    eg_tensor *d = eg__contract_tangent(k->y, dx);
    if (k->cx->failed || !(dx[j] = eg__leaf_copy(dx[i]))) return true;
    e = eg__contract_tangent(k->y, dx);
    return (!k->cx->failed && eg__contract_alike(d, e, 1e-10)) ||
           eg__breaks(k, j, "and its jvp disagree where two tangents are one tensor");
}
bool eg__jvp_tangents(eg__contract_call *k)
{
    if (!k->t->op->jvp) return true;
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *dx[EG_ASKED_OPERANDS];
        alone a = { .k = k, .i = i };
        if (!k->r[i]) continue;
        if (!(a.d = eg__contract_jvp(k, k->y, i, dx))) return true;
        a.flat = dx[i];
        if (!jvp_of_layouts(&a) || !jvp_is_linear(&a) || !jvp_is_same_again(&a)) return false;
        for (int j = i + 1; j < k->t->count; j++)
            if (k->r[j] && eg__same_shape(k->x[i], k->x[j]) && !jvp_of_one_tangent(k, i, j))
                return false;
    }
    return true;
}
