/* noise.c: measures the rounding of f (Hamming 1962; Moré, Wild 2011).
 *
 * f is evaluated at seven points that are so close together that f is a polynomial of low degree
 * there. Its differences of orders 3 to 5 are then caused by rounding alone: if each value has an
 * independent error of standard deviation σ, differences of order k have the variance σ²
 * (2k)!/(k!)². If the values differ too much for that, the points are moved closer together; if
 * values are equal, further apart. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

enum { AT = 7, SWEEPS = 5 };
#define NEAR    0x1p-36 /* distance of two points, relative to each entry */
#define NEARER  0x1p-46
#define FARTHER 0x1p-20
#define ROUNDED 1.2e-16 /* standard deviation of a single, well rounded operation, at least */

/* The rounding of values at equally spaced points: sigma, the standard deviation; wide: the range
 * of the values is more than a tenth of the largest; flat: at least half of them equal the next
 * one. */
typedef struct spread {
    double sigma;
    bool wide, flat;
} spread;
/* Estimates σ of n values from their differences of orders 3 to 5; see the beginning of this
 * file. */
static spread noise_of(const double *v, int n)
{
    static const double gamma[] = { 1, 1. / 2, 1. / 6, 1. / 20, 1. / 70, 1. / 252 };
    double d[AT], low = INFINITY, high = -INFINITY, largest = 0;
    spread s = { 0 };
    int equal = 0;
    for (int k = 0; k < n; k++) {
        d[k] = v[k];
        low = fmin(low, v[k]);
        high = fmax(high, v[k]);
        largest = fmax(largest, fabs(v[k]));
        equal += k && v[k] == v[k - 1];
    }
    s.wide = !(high - low <= 0.1 * largest);
    s.flat = 2 * equal >= n - 1;
    for (int order = 1; order < n - 1 && order <= 5; order++) {
        double sum = 0;
        for (int k = 0; k + order < n; k++) {
            d[k] = d[k + 1] - d[k];
            sum += d[k] * d[k];
        }
        if (order >= 3) s.sigma = fmax(s.sigma, sqrt(gamma[order] * sum / (n - order)));
    }
    if (!isfinite(s.sigma)) s.sigma = 0;
    return s;
}

/* Moves the inputs along a random direction: each entry in proportion to itself, an entry of 0 in
 * proportion to the largest. */
static void noise_move(eg__trial *c, double distance)
{
    double most = 0;
    for (int64_t k = 0; k < c->cells; k++) most = fmax(most, fabs(c->point[k]));
    if (most == 0) most = 1;
    for (int64_t k = 0; k < c->vars; k++) {
        const int64_t cell = c->var[k].cell;
        const double u = eg__unit(c->o.seed, 11, (uint64_t)k) - 0.5, x = c->point[cell];
        c->memory[cell] = x + distance * (u < 0 ? u - .5 : u + .5) * (x != 0 ? fabs(x) : most);
    }
}
static void noise_back(eg__trial *c)
{
    memcpy(c->memory, c->point, (size_t)c->cells * sizeof *c->point);
}

/* Measures the rounding of each element and (last) of ⟨f, W⟩ from points at this distance. False
 * after an error. */
static bool noise_measure(eg__trial *c, double distance, spread *of)
{
    double v[AT], *y = eg__alloc(c->cx, (size_t)(AT * c->size + 1) * sizeof *y);
    bool good = y != NULL;
    for (int k = 0; k < AT && good; k++) {
        if (k == AT / 2) {
            if (c->size) memcpy(y + k * c->size, c->middle, (size_t)c->size * sizeof *y);
            continue;
        }
        noise_move(c, (k - AT / 2) * distance);
        good = eg__trial_value(c, y + k * c->size);
    }
    noise_back(c);
    if (!good) return eg__refused(c->cx); /* f has no value at a point nearby */
    for (int64_t o = 0; o < c->size; o++) {
        for (int k = 0; k < AT; k++) v[k] = y[k * c->size + o];
        of[o] = noise_of(v, AT);
    }
    for (int k = 0; k < AT; k++) {
        v[k] = 0;
        for (int64_t o = 0; o < c->size; o++)
            v[k] += (y[k * c->size + o] - c->middle[o]) * c->weight[o];
    }
    of[c->size] = noise_of(v, AT);
    return true;
}

bool eg__noise(eg__trial *c)
{
    static const double distance[] = { NEAR, NEARER, FARTHER };
    eg_ctx *cx = c->cx;
    const int64_t n = c->size + 1;
    if (!c->noise && !(c->noise = eg__alloc(cx, (size_t)n * sizeof *c->noise))) return false;
    const eg_mark m = eg_push(cx);
    spread *s[3] = { NULL };
    bool good = true, ask[3] = { true, false, false };
    for (int k = 0; k < 3 && good; k++) {
        good = (s[k] = eg__alloc(cx, (size_t)n * sizeof *s[k])) != NULL;
        for (int64_t o = 0; o < n && good; o++) s[k][o] = (spread){ 0 };
        good = good && (!ask[k] || noise_measure(c, distance[k], s[k]));
        for (int64_t o = 0; o < n && good && k == 0; o++) {
            ask[1] |= s[0][o].wide;
            ask[2] |= s[0][o].flat;
        }
    }
    double apart = 0, most = 0, x = 0, *rounding = eg__alloc(cx, (size_t)n * sizeof *rounding);
    good = good && rounding && eg__rounding(c, -1, NULL, rounding);
    for (int64_t o = 0; o < n && good; o++) {
        spread t = s[0][o];
        if (t.wide) t.sigma = s[1][o].wide ? fmin(t.sigma, s[1][o].sigma) : s[1][o].sigma;
        if (t.flat && !s[2][o].wide) t.sigma = fmax(t.sigma, s[2][o].sigma);
        t.sigma = fmax(t.sigma, rounding[o]);
        if (o == c->size) {
            c->sum_factor = apart > 0 ? fmin(fmax(1, t.sigma / sqrt(apart)), sqrt((double)n)) : 1;
            continue;
        }
        c->noise[o] = fmax(t.sigma, c->unit / 2.3e-16 * ROUNDED * fabs(c->middle[o]));
        apart += c->weight[o] * c->weight[o] * c->noise[o] * c->noise[o];
        most = fmax(most, fabs(c->middle[o]));
    }
    for (int64_t k = 0; k < c->cells; k++) x = fmax(x, fabs(c->point[k]));
    c->sum_noise = sqrt(apart);
    c->least = ROUNDED * fmax(most, fmin(x, 1e3));
    eg_pop(cx, m);
    return good && !cx->failed;
}

/* Computes the gradients g[k · vars + v] at points at this distance. False after an error, or if
 * there is no gradient. */
static bool noise_sweeps(eg__trial *c, double distance, double *g)
{
    bool good = true;
    for (int k = 0; k < SWEEPS && good; k++) {
        noise_move(c, (k - SWEEPS / 2) * distance);
        good = eg__trial_gradient(c, g + k * c->vars);
    }
    noise_back(c);
    return good;
}
bool eg__gradient_noise(eg__trial *c, const double *a)
{
    eg_ctx *cx = c->cx;
    const size_t bytes = (size_t)(c->o.full ? c->outs : c->vars) * sizeof *c->jitter;
    if (!c->jitter && !(c->jitter = eg__alloc(cx, bytes + 1))) return false;
    memset(c->jitter, 0, bytes);
    if (c->o.full && !c->row) {
        if (!(c->row = eg__alloc(cx, (size_t)(c->outs + 1) * sizeof *c->row))) return false;
        memset(c->row, 0, (size_t)c->outs * sizeof *c->row);
    }
    for (int64_t o = 0; o < c->outs && c->o.full; o++) { /* in proportion to the largest of a row */
        double most = 0;
        for (int64_t k = 0; k < c->vars; k++) most = fmax(most, fabs(a[o * c->vars + k]));
        c->jitter[o] = 0.25 * c->unit * most;
    }
    if (c->o.full || !c->size) return true;
    const eg_mark m = eg_push(cx);
    double *g = eg__alloc(cx, (size_t)(SWEEPS * c->vars + 1) * sizeof *g), v[SWEEPS];
    bool *flats = eg__alloc(cx, (size_t)c->vars + 1), flat = false, good = g && flats;
    for (int pass = 0; pass < (flat ? 2 : 1) && good; pass++) {
        good = noise_sweeps(c, pass ? FARTHER : NEAR, g);
        for (int64_t j = 0; j < c->vars && good; j++) {
            for (int k = 0; k < SWEEPS; k++) v[k] = g[k * c->vars + j];
            const spread s = noise_of(v, SWEEPS);
            if (pass == 0) flats[j] = s.flat && a[j] != 0;
            flat |= flats[j];
            /* at a kink the values on one side are equal: this is not rounding */
            const double beside = fmax(fabs(v[1] - v[0]), fabs(v[4] - v[3]));
            if ((beside >= 0.1 * s.sigma || s.sigma <= 1e-3 * fabs(a[j])) &&
                (pass == 0 || flats[j]))
                c->jitter[j] = fmax(c->jitter[j], s.sigma);
        }
    }
    if (good && (good = eg__rounding(c, -1, a, g)))
        for (int64_t j = 0; j < c->vars; j++) c->jitter[j] = fmax(c->jitter[j], g[j]);
    eg_pop(cx, m);
    return (good || eg__refused(c->cx)) && !cx->failed;
}
