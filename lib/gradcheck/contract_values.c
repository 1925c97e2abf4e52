/* contract_values.c: contracts about values: an operation gives the same result in every call,
 * writes to nothing, reads only what it declares, and depends neither on the layout of g or of
 * operands, nor on whether two operands are one tensor. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

/* -- the same result --------------------------------------------------------------------------- */
/* True if value and cotangents are the same on another number of threads. */
static bool same_on_threads(eg__contract_call *k)
{
    const int was = k->cx->threads;
    bool good = true;
    eg_tensor *d;
    if (k->cx->parent) return true; /* a block runs on the threads of the waiting context */
    k->cx->threads = was == 1 ? 3 : 1;
    eg_tensor *y = eg__contract_apply(k, k->x);
    if (!eg__contract_alike(y, k->y, 1, 1e-12))
        good = eg__breaks(k, -1, "has another value on another number of threads");
    for (int i = 0; i < k->t->count && good; i++)
        if (k->r[i] &&
            (!eg__contract_rule(y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12)))
            good = eg__breaks(k, i, "gives another cotangent on another number of threads");
    k->cx->threads = was;
    return good;
}
bool eg__same_again(eg__contract_call *k)
{
    eg_tensor *d, *other[EG_ASKED_OPERANDS], *z;
    for (int i = 0; i < k->t->count; i++)
        if (k->r[i] &&
            (!eg__contract_rule(k->y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12)))
            return eg__breaks(k, i, "gives another cotangent when it is asked again");
    eg_tensor *fresh = eg__contract_apply(k, k->x);
    for (int i = k->t->count; i-- > 0;)
        if (k->r[i] &&
            (!eg__contract_rule(fresh, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12)))
            return eg__breaks(k, i,
                              "depends on what the rules of other operands left behind: asked in "
                              "another order it gives another cotangent");
    for (int i = 0; i < k->t->count; i++) {
        other[i] = k->x[i];
        if (k->x[i]->dtype != EG_F64 || !(other[i] = eg__leaf_copy(k->x[i]))) continue;
        for (int64_t j = 0, n = eg_size(other[i]); j < n; j++)
            eg__contract_numbers(other[i])[j] *= 1 + 0.01 * eg__drawn(3, j);
    }
    fresh = eg__contract_apply(k, k->x);
    z = k->cx->failed ? NULL : eg__contract_apply(k, other);
    eg__refused(k->cx);
    for (int i = 0; z && i < k->t->count; i++) {
        if (k->r[i]) eg__contract_rule(z, k->g, i, &d);
        if (k->r[i] &&
            (!eg__contract_rule(fresh, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12)))
            return eg__breaks(k, i,
                              "depends on what was called in between: state outlives the call");
    }
    const bool was = eg_nograd(k->cx, true);
    bool good = true;
    int at = 0;
    for (int i = 0; i < k->t->count && good; i++)
        if (k->r[i]) {
            at = i;
            good = eg__contract_rule(k->y, k->g, i, &d) && eg__contract_alike(d, k->r[i], 1, 1e-12);
        }
    z = good ? eg__contract_apply(k, k->x) : NULL;
    const bool value = !good || eg__contract_alike(z, k->y, 1, 1e-12);
    eg_nograd(k->cx, was);
    if (!good)
        return eg__breaks(k, at, "gives another cotangent while nothing is recorded (eg_nograd)");
    if (!value) return eg__breaks(k, -1, "has another value while nothing is recorded (eg_nograd)");
    return same_on_threads(k);
}

/* -- writes to nothing, reads only what it declares -------------------------------------------- */
bool eg__writes_nothing(eg__contract_call *k)
{
    eg_tensor *before[EG_ASKED_OPERANDS], *d, *y = eg__leaf_copy(k->y), *g = eg__leaf_copy(k->g);
    for (int i = 0; i < k->t->count; i++)
        if (!(before[i] = eg__leaf_copy(k->x[i]))) return true;
    for (int i = 0; i < k->t->count; i++) {
        if (!k->r[i]) continue;
        eg__contract_rule(k->y, k->g, i, &d);
        if (!eg__contract_alike(k->g, g, 1, 0))
            return eg__breaks(k, i, "writes to the cotangent that it is given");
        if (!eg__contract_alike(k->y, y, 1, 0)) return eg__breaks(k, i, "writes to the result");
        for (int j = 0; j < k->t->count; j++)
            if (k->x[j]->dtype == EG_F64 && !eg__contract_alike(k->x[j], before[j], 1, 0))
                return eg__breaks(k, i, "writes to an operand");
    }
    return true;
}
/* Sets all elements of x to NaN. */
static void poisoned(eg_tensor *x)
{
    for (int64_t k = 0, n = eg_size(x); k < n; k++) eg__contract_numbers(x)[k] = NAN;
}
bool eg__uses_correct(eg__contract_call *k)
{
    const eg_uses uses = k->t->op->uses;
    const bool result = uses == EG_USES_ALL || uses == EG_USES_RESULT;
    if (uses == EG_USES_ALL) return true;
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *x[EG_ASKED_OPERANDS], *d;
        if (!k->r[i]) continue;
        for (int j = 0; j < k->t->count; j++)
            if (!(x[j] = k->x[j]->dtype == EG_F64 ? eg__leaf_copy(k->x[j]) : k->x[j])) return true;
        eg_tensor *y = eg__contract_apply(k, x);
        if (!y || y->st != &y->own) return true;
        if (!result) poisoned(y);
        for (int j = 0; j < k->t->count; j++) {
            const bool reads = uses == EG_USES_OPERANDS || (uses == EG_USES_OTHERS && j != i);
            if (x[j]->dtype == EG_F64 && !reads) poisoned(x[j]);
        }
        if (!eg__contract_rule(y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12))
            return eg__breaks(k, i, "reads what .uses says that it does not read");
    }
    return true;
}

/* -- layouts ----------------------------------------------------------------------------------- */
/* Returns by how much the largest element of r exceeds that of e, at least 1: where the cotangent
 * of an equal g cancels to e, its rounding is that of r. */
static double share_of(eg_tensor *r, eg_tensor *e)
{
    const double of = eg__largest(e);
    return of > 0 ? fmax(1, eg__largest(r) / of) : 1;
}
bool eg__layouts_of_g(eg__contract_call *k)
{
    char words[96];
    eg_tensor *d, *e;
    for (int i = 0; i < k->t->count; i++) {
        if (!k->r[i]) continue;
        for (int how = 0; how < EG_LAYOUTS; how++) {
            eg_tensor *g = eg__laid_out(k->g, how);
            if (!g && !k->cx->failed) continue;
            snprintf(words, sizeof words,
                     "depends on the layout of g: where g is %s it is another one",
                     eg__layout_name(how));
            if (!eg__contract_rule(k->y, g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-10))
                return eg__breaks(k, i, words);
        }
        for (int how = 0; how < EG_REPEATED; how++) {
            eg_tensor *wide = eg__repeated(k->g, how), *flat = wide ? eg__leaf_copy(wide) : NULL;
            if (!flat) continue;
            if (!eg__contract_rule(k->y, flat, i, &e) || !eg__contract_rule(k->y, wide, i, &d) ||
                !eg__contract_alike(d, e, 1, 1e-10 * share_of(k->r[i], e)))
                return eg__breaks(k, i,
                                  "depends on the layout of g: of an expanded g it is another one");
        }
    }
    return true;
}
/* True if the cotangents d for x and e for copies of x have the same gradients with respect to
 * operand j. */
static bool same_second(const eg__contract_call *k, eg_tensor *d, eg_tensor *e, eg_tensor *x,
                        eg_tensor *flat)
{
    eg_tensor *along = d && e ? eg__contract_noise(e, 18) : NULL, *a, *b, *cut;
    if (!along || e->unrecorded || !e->op || eg_path_to(e, flat, &cut) != EG_OPEN_PATH ||
        eg_grad(e, along, 1, &flat, &b) || !eg__all_finite(b)) {
        eg__refused(k->cx);
        return true;
    }
    return !eg_grad(d, along, 1, &x, &a) && eg__contract_alike(a, b, 1, 1e-8);
}
/* True if the jvp gives the same tangent at y and z, where operand j moves alone. */
static bool same_tangent(eg__contract_call *k, eg_tensor *y, eg_tensor *z, int j, const char *words)
{
    eg_tensor *dx[EG_ASKED_OPERANDS] = { NULL }, *a, *b;
    char said[160];
    if (!k->r[j] || !(dx[j] = eg__contract_noise(k->x[j], 7))) return true;
    b = k->t->op->jvp(z, dx);
    if (k->cx->failed || (b && !eg__all_finite(b))) return true;
    a = k->t->op->jvp(y, dx);
    snprintf(said, sizeof said, "and its jvp disagree where %s", words);
    return (!k->cx->failed && eg__contract_alike(a, b, 1, 1e-9)) || eg__breaks(k, j, said);
}
/* True if the operation gives the same result and cotangents for x as for row-major copies of x, or
 * if it refuses x. j: the operand that is not row-major, −1 if two are one tensor. */
static bool same_on(eg__contract_call *k, eg_tensor *const *x, int j, const char *words)
{
    eg_tensor *flat[EG_ASKED_OPERANDS], *d, *e;
    char said[160];
    for (int i = 0; i < k->t->count; i++)
        if (!(flat[i] = x[i]->dtype == EG_F64 ? eg__leaf_copy(x[i]) : x[i])) return true;
    eg_tensor *y = eg__contract_apply(k, x), *z = y ? eg__contract_apply(k, flat) : NULL;
    if (!y || !z) {
        eg__refused(k->cx);
        return true;
    }
    if (!eg__all_finite(z)) return true;
    if (!eg__contract_alike(y, z, 1, 1e-10)) {
        snprintf(said, sizeof said, "has another value where %s", words);
        return eg__breaks(k, -1, said);
    }
    eg_tensor *g = eg__contract_noise(z, 5);
    for (int i = 0; g && i < k->t->count; i++) {
        if (!k->r[i]) continue;
        if (!eg__contract_rule(z, g, i, &e)) return true;
        if (e && !eg__all_finite(e)) continue;
        snprintf(said, sizeof said, "gives another cotangent where %s", words);
        if (!eg__contract_rule(y, g, i, &d) ||
            !eg__contract_alike(d, e, 1, 1e-9 * share_of(k->r[i], e)))
            return eg__breaks(k, i, said);
        snprintf(said, sizeof said, "has another gradient of its own (second order) where %s",
                 words);
        if (j >= 0 && k->r[j] && !same_second(k, d, e, x[j], flat[j]))
            return eg__breaks(k, i, said);
    }
    return !k->t->op->jvp || j < 0 || same_tangent(k, y, z, j, words);
}
bool eg__layouts_of_operands(eg__contract_call *k)
{
    char words[64];
    eg_tensor *x[EG_ASKED_OPERANDS];
    for (int i = 0; i < k->t->count; i++) {
        if (k->x[i]->dtype != EG_F64 || !eg_size(k->x[i])) continue;
        memcpy(x, k->x, sizeof x);
        for (int how = 0; how < EG_LAYOUTS + EG_REPEATED; how++) {
            const bool laid = how < EG_LAYOUTS;
            x[i] = laid ? eg__laid_out(k->x[i], how) : eg__repeated(k->x[i], how - EG_LAYOUTS);
            snprintf(words, sizeof words, "operand %d is %s", i + 1,
                     laid ? eg__layout_name(how) : "expanded");
            if (x[i] && !same_on(k, x, i, words)) return false;
        }
        for (int j = i + 1; j < k->t->count; j++) {
            if (k->x[j]->dtype != EG_F64 || !eg__same_shape(k->x[i], k->x[j])) continue;
            memcpy(x, k->x, sizeof x);
            x[j] = x[i] = k->x[i];
            snprintf(words, sizeof words, "operands %d and %d are the same tensor", i + 1, j + 1);
            if (!same_on(k, x, -1, words)) return false;
        }
    }
    return true;
}
