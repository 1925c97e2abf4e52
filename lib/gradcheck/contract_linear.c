/* contract_linear.c: the contract that a rule is linear in the cotangent g of its result. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

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
/* True if the rule is linear at the operands of the call; else notes what is broken. */
static bool linear_at(eg__contract_call *k)
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
/* True if the rounding error that cancelled terms may leave exceeds 1e-7 of a cotangent's largest
 * element, and thus hides its errors. */
static bool linear_is_hidden(const eg__contract_call *k)
{
    const double floor = eg__cancelled(k, k->g);
    for (int i = 0; i < k->t->count; i++)
        if (k->r[i] && floor > 1e-7 * eg__largest(k->r[i])) return true;
    return false;
}
/* Where a cotangent is hidden, as that of a saturated softmax is, the rule is also tested with all
 * operands times powers of 10, with the largest element near 1, then 0.1 and 0.01. */
bool eg__linear(eg__contract_call *k)
{
    double most = 0;
    if (!linear_at(k)) return false;
    for (int i = 0; i < k->t->count; i++)
        if (k->r[i]) most = fmax(most, eg__largest(k->x[i]));
    double factor = most > 0 ? pow(10, -round(log10(most))) : 1;
    for (int q = 0; q < 3 && most > 0 && !eg__only_here(k->cx) && linear_is_hidden(k);
         q++, factor /= 10) {
        eg__contract_call at = *k;
        bool good = true;
        for (int i = 0; i < k->t->count && good; i++) {
            if (k->x[i]->dtype != EG_F64) continue;
            if (!(at.x[i] = eg__leaf_copy(k->x[i]))) return true;
            for (int64_t j = 0, n = eg_size(at.x[i]); j < n; j++)
                eg__contract_numbers(at.x[i])[j] *= factor;
            good = eg__sampled_there(k->t->op, at.x[i]);
        }
        at.y = good ? eg__contract_apply(&at, at.x) : NULL;
        good = at.y && eg__same_shape(at.y, k->y) && eg__all_finite(at.y);
        for (int i = 0; i < k->t->count && good; i++)
            good = !k->r[i] || (eg__contract_rule(at.y, at.g, i, &at.r[i]) && at.r[i] &&
                                eg__all_finite(at.r[i]));
        eg__refused(k->cx);
        if (!good) continue;
        if (!linear_at(&at)) {
            k->operand = at.operand;
            return false;
        }
        if (!linear_is_hidden(&at)) break;
    }
    return true;
}
