/* kinks.c: at a kink of f, the analytic values of some entries may be any element of the
 * generalised gradient (Clarke 1983): along a direction v, ⟨a, v⟩ is between the slopes of f at
 * points nearby and on the two sides. Testing entries separately is not enough: if three elements
 * tie for a maximum, 1 for each of them passes entry by entry, but is not a subgradient. Therefore
 * the test is along the joint direction of all entries, along random ones, and along pairs. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

enum { JOINT = 6, PAIRS = 48, NEARBY = 6 };
#define STEP 0x1p-20

typedef struct kinks {
    eg__trial *c;
    double *direction, *a, *y, unit; /* unit: of the steps */
    int64_t count;
    const int64_t *var;
} kinks;

/* Computes ⟨f, W⟩ at the present inputs minus its value at the point. False after an error. */
static bool kinks_value(kinks *k, double *value)
{
    eg__trial *c = k->c;
    *value = 0;
    if (!eg__trial_value(c, k->y)) return false;
    for (int64_t o = 0; o < c->size; o++) *value += c->weight[o] * (k->y[o] - c->middle[o]);
    return true;
}
/* Moves the inputs to the point (nearby = 0) or to a point nearby, plus t along the direction. */
static void kinks_move(kinks *k, int nearby, double t)
{
    eg__trial *c = k->c;
    memcpy(c->memory, c->point, (size_t)c->cells * sizeof *c->point);
    for (int64_t j = 0; j < k->count; j++) {
        const int64_t at = c->var[k->var[j]].cell;
        const double u = 2 * eg__unit(c->o.seed, (uint64_t)(50 + nearby), (uint64_t)j) - 1;
        c->memory[at] += (nearby ? k->unit * u : 0) + t * k->direction[at];
    }
}
/* Computes the smallest and the largest slope along the direction: on both sides of the point, and
 * around points nearby. False after an error. */
static bool kinks_interval(kinks *k, double *low, double *high)
{
    eg__trial *c = k->c;
    *low = INFINITY, *high = -INFINITY;
    bool good = true;
    for (int n = -1; n <= NEARBY && good; n++) {
        /* −1, 0: the two sides of the point; else around a point nearby */
        const double from = n < 0    ? -k->unit
                            : n == 0 ? 0
                                     : -k->unit / 64,
                     to = n < 0    ? 0
                          : n == 0 ? k->unit
                                   : k->unit / 64;
        double down, up;
        kinks_move(k, n > 0 ? n : 0, from);
        good = kinks_value(k, &down);
        kinks_move(k, n > 0 ? n : 0, to);
        good = good && kinks_value(k, &up);
        if (!good) break;
        *low = fmin(*low, (up - down) / (to - from));
        *high = fmax(*high, (up - down) / (to - from));
    }
    memcpy(c->memory, c->point, (size_t)c->cells * sizeof *c->point);
    return good;
}
static bool kinks_inside(kinks *k, bool *is)
{
    eg__trial *c = k->c;
    double low, high, a = 0, size = 0;
    for (int64_t j = 0; j < k->count; j++) {
        const double p = k->direction[c->var[k->var[j]].cell] * k->a[j];
        a += p;
        size += fabs(p);
    }
    if (!kinks_interval(k, &low, &high)) return false;
    const double slack = 1e-5 * (size + fabs(low) + fabs(high)) + 0.02 * (high - low);
    *is = *is && a >= low - slack && a <= high + slack;
    return true;
}

bool eg__subgradient(eg__trial *c, const double *a, int64_t count, const int64_t *vars, bool *is)
{
    eg_ctx *cx = c->cx;
    const eg_mark m = eg_push(cx);
    kinks k = { .c = c, .count = count, .var = vars, .unit = STEP };
    for (int64_t j = 0; j < count; j++)
        k.unit = fmax(k.unit, STEP * fabs(c->point[c->var[vars[j]].cell]));
    k.direction = eg__alloc(cx, (size_t)(c->cells + 1) * sizeof *k.direction);
    k.a = eg__alloc(cx, (size_t)(count + 1) * sizeof *k.a);
    k.y = eg__alloc(cx, (size_t)(c->size + 1) * sizeof *k.y);
    bool good = k.direction && k.a && k.y;
    for (int64_t j = 0; j < count && good; j++) {
        k.a[j] = 0;
        for (int64_t o = 0; o < c->outs; o++)
            k.a[j] += a[o * c->vars + vars[j]] * (c->o.full ? c->weight[o] : 1);
    }
    *is = true;
    for (int n = 0; n < JOINT + PAIRS && good && *is; n++) {
        if (n >= JOINT && count < 2) break;
        for (int64_t j = 0; j < c->cells; j++) k.direction[j] = 0;
        const int64_t one =
            n < JOINT ? -1 : (int64_t)(eg__unit(c->o.seed, 60, (uint64_t)n) * (double)count);
        for (int64_t j = 0; j < count; j++) {
            const double u = eg__unit(c->o.seed, (uint64_t)(61 + n), (uint64_t)j);
            const bool pair = j == one || j == (one + 1 + n % (count > 1 ? count - 1 : 1)) % count;
            /* the first: all entries equally; then with one sign, then with both */
            const double d = n == 0 ? 1 : n < JOINT / 2 ? 0.5 + u : u < .5 ? -.5 - u : u;
            if (n < JOINT || pair) k.direction[c->var[vars[j]].cell] = n < JOINT || n % 2 ? d : 1;
        }
        good = kinks_inside(&k, is);
    }
    eg_pop(cx, m);
    return good && !cx->failed;
}
