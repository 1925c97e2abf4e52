/* rounding.c: measures by random rounding how much rounding changes f and its gradient (Vignes
 * 1974; Parker 1997).
 *
 * f is evaluated again at the point, and its gradient computed again, while each element that an
 * operation computes is changed by one or two units in the last place, up or down at random. The
 * differences of f and of the gradient show the effect of one rounding in each operation. Points
 * nearby (noise.c) do not show it if an operation rounds all of them in the same way: cos x is 1
 * for every x below 1e-8, and (1 − cos x)/x² has no correct digit there, although it does not
 * vary. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

enum { SAMPLES = 6 };
#define SHARE 0.4 /* a rounding as a share of the random changes, which are larger */

/* Returns a number that differs for any two elements of a sample (a bijective mix of z). */
static uint64_t hashed(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
/* The magnitudes of the operands: a table with 16 bits per element, in which each magnitude sets a
 * bit. Two elements may share a bit; which ones do depends on salt, which differs from sample to
 * sample. */
typedef struct seen {
    uint64_t mask, salt;
    uint8_t *bit;
} seen;
static uint64_t seen_at(const seen *s, double x)
{
    uint64_t z;
    x = fabs(x);
    memcpy(&z, &x, sizeof z);
    return hashed(z ^ s->salt) & s->mask;
}
/* Sets the bits of the elements of x. */
static void seen_add(seen *s, const eg_tensor *x)
{
    int64_t index[EG_RANK_MAX] = { 0 }, at = 0;
    for (int64_t n = eg_size(x); n > 0; n--) {
        const uint64_t k = seen_at(s, eg__element(x, at));
        s->bit[k / 8] |= (uint8_t)(1u << k % 8);
        for (int r = x->rank; r-- > 0;) {
            at += x->stride[r];
            if (++index[r] < x->dim[r]) break;
            at -= x->stride[r] * x->dim[r];
            index[r] = 0;
        }
    }
}
/* Sets the bits of all elements of y's operands. False if memory runs out. */
static bool seen_of(const eg_tensor *y, seen *s)
{
    int64_t n = 0;
    for (int i = 0; i < y->count; i++) n += y->in[i]->dtype == EG_F64 ? eg_size(y->in[i]) : 0;
    for (s->mask = 1023; s->mask < 16 * (uint64_t)n;) s->mask = 2 * s->mask + 1;
    if (!(s->bit = eg__alloc(y->cx, (size_t)s->mask / 8 + 1))) return false;
    memset(s->bit, 0, (size_t)s->mask / 8 + 1);
    for (int i = 0; i < y->count; i++)
        if (y->in[i]->dtype == EG_F64) seen_add(s, y->in[i]);
    return true;
}
/* True for operations that do not round: those whose gradient is zero by definition (floor,
 * one_hot, a comparison), and clip, whose results do not exceed its limits. */
static bool is_exact(const eg_op *op)
{
    return op && eg__in_table(op) && (op->rule == eg_zero_rule || !strcmp(op->name, "clip"));
}
/* The hook on each result: changes its elements by one or two units in the last place. Elements
 * that an operand has too are not changed: a maximum, a copy and a sum with 0 do not round, and
 * rules compare their results with operands. False after an error. */
static bool rounded_at_random(const eg_tensor *y)
{
    eg__probe *p = y->cx->probe;
    seen s = { .salt = p->rounding };
    if (y->dtype != EG_F64 || y->st != &y->own || !y->data || is_exact(y->op)) return true;
    const eg_mark m = eg_push(y->cx);
    const bool good = seen_of(y, &s);
    double *v = (double *)(void *)y->data;
    for (int64_t k = 0, n = eg_size(y); k < n && good; k++) {
        const uint64_t r = hashed(p->rounding += 0x9e3779b97f4a7c15u), at = seen_at(&s, v[k]);
        const double units = r >> 62 & 1 ? 2 : 1;
        if (isnormal(v[k]) && !(s.bit[at / 8] >> at % 8 & 1))
            v[k] *= 1 + (r >> 63 ? units : -units) * 0x1p-52;
    }
    eg_pop(y->cx, m);
    return good;
}

/* Evaluates f with random rounding, and sets *y to its result. False after an error. */
static bool rounding_call(eg__trial *c, int sample, eg_tensor **y)
{
    c->probe->rounding = hashed(c->o.seed + (uint64_t)sample + 1);
    c->cx->hooks.result = rounded_at_random;
    return (*y = eg__trial_call(c)) != NULL;
}

/* Returns the square of the change of a value: infinite if only one of the two values is finite, 0
 * if neither is. */
static double rounding_square(double now, double was)
{
    if (isfinite(now) && isfinite(was)) return (now - was) * (now - was);
    return isfinite(now) == isfinite(was) ? 0 : INFINITY;
}

/* Adds the squares of the changes of f's elements and (last) of ⟨f, W⟩ to `of`. False after an
 * error. */
static bool rounding_of_values(eg__trial *c, double *of)
{
    eg_tensor *y;
    for (int s = 0; s < SAMPLES; s++) {
        const eg_mark m = eg_push(c->cx);
        const double *v = rounding_call(c, s, &y) ? eg_f64(y) : NULL;
        double sum = 0;
        for (int64_t k = 0; v && k < c->size; k++) {
            sum += c->weight[k] * (v[k] - c->middle[k]);
            of[k] += rounding_square(v[k], c->middle[k]);
        }
        of[c->size] += rounding_square(sum, 0);
        eg_pop(c->cx, m);
        if (!v) return false;
    }
    return true;
}
/* Adds the squares of the changes of the gradient `a` of output `out` (−1: of ⟨f, W⟩) to `of`.
 * False after an error. */
static bool rounding_of_gradient(eg__trial *c, int64_t out, const double *a, double *b, double *of)
{
    eg_tensor *y;
    for (int s = 0; s < SAMPLES; s++) {
        const eg_mark m = eg_push(c->cx);
        bool good = rounding_call(c, SAMPLES + s, &y);
        eg_tensor *seed = good && out >= 0 ? eg__zeros(c->cx, EG_F64, c->rank, c->dim) : c->w;
        if (good && seed && out >= 0) ((double *)(void *)seed->data)[out] = 1;
        good = good && seed && eg__trial_sweep(c, y, seed, b);
        for (int64_t k = 0; good && k < c->vars; k++) of[k] += rounding_square(b[k], a[k]);
        eg_pop(c->cx, m);
        if (!good) return false;
    }
    return true;
}
bool eg__rounding(eg__trial *c, int64_t out, const double *a, double *of)
{
    eg_ctx *cx = c->cx;
    const int64_t n = a ? c->vars : c->size + 1;
    const eg_hooks before = cx->hooks;
    const eg_mark m = eg_push(cx);
    double *b = a ? eg__alloc(cx, (size_t)(c->vars + 1) * sizeof *b) : NULL;
    for (int64_t k = 0; k < n; k++) of[k] = 0;
    const bool good = !a  ? rounding_of_values(c, of)
                      : b ? rounding_of_gradient(c, out, a, b, of)
                          : false;
    cx->hooks.result = before.result;
    eg_pop(cx, m);
    for (int64_t k = 0; k < n; k++) of[k] = good ? SHARE * sqrt(of[k] / SAMPLES) : 0;
    return (good || eg__refused(cx)) && !cx->failed;
}

const double *eg__row_rounding(eg__trial *c, const double *a, int64_t out)
{
    double *of = c->row[out];
    if (of) return of;
    if (!(of = eg__alloc_in(c->probe->arena, (size_t)(c->vars + 1) * sizeof *of)) ||
        !eg__rounding(c, out, a, of))
        return NULL;
    return c->row[out] = of;
}
