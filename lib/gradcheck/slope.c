/* slope.c: derivatives along a direction: by central differences, by the complex step, by
 * forward mode.
 *
 * Three differences at h, h/2, h/4 and Richardson's extrapolation: D(h) = (L(x+h) − L(x−h))/2h = L'
 * + a h² + b h⁴ + …, R = (4 D(h/2) − D(h))/3, n = (16 R(h/2) − R(h))/15, whose own error estimate
 * is |n − R(h/2)| plus the rounding of L over h. Where the first exceeds the second (a kink or a
 * pole within h, a fast function) h is divided by 16, and the best of four is kept. Richardson
 * 1911; Ridders 1982. */
#include "gradcheck/gradcheck.h"
#include <math.h>

/* DEEPER: where f has no value yet, as a logarithm near 0 */
enum { LEVELS = 4, DEEPER = 8, POINTS = 7 };

static void go(eg__trial *c, int64_t cell, const double *direction, double t)
{
    if (cell >= 0) {
        c->memory[cell] = c->point[cell] + t;
        return;
    }
    for (int64_t j = 0; j < c->cells; j++) c->memory[j] = c->point[j] + t * direction[j];
}
static double slope_step(const eg__trial *c, int64_t cell, const double *direction)
{
    double most = 1;
    if (cell >= 0)
        most = fmax(most, fabs(c->point[cell]));
    else
        for (int64_t j = 0; j < c->cells; j++)
            if (direction[j] != 0) most = fmax(most, fabs(c->point[j]));
    return most / 256;
}

bool eg__differences(eg__trial *c, int64_t cell, const double *direction, eg__slope *s)
{
    const int64_t n = c->outs;
    eg_mark m = eg_push(c->cx);
    double *v = eg__alloc(c->cx, (size_t)(2 * POINTS * n + 1) * sizeof *v),
           *size = v ? v + POINTS * n : NULL;
    if (!v || !eg__trial_value(c, v, size)) {
        eg_pop(c->cx, m);
        return false;
    }
    bool good = true, more = true, none = false;
    double wanted = slope_step(c, cell, direction);
    for (int level = 0; level < (none ? DEEPER : LEVELS) && good && more; level++, wanted /= 16) {
        const double base = cell >= 0 ? c->point[cell] : 1;
        const volatile double up = base + wanted;
        const double h = up - base;                /* exactly representable at the entry */
        for (int k = 1; k < POINTS && good; k++) { /* h, −h, h/2, −h/2, h/4, −h/4 */
            go(c, cell, direction, ldexp(k & 1 ? h : -h, -(k - 1) / 2));
            good = eg__trial_value(c, v + k * n, size + k * n);
        }
        go(c, cell, direction, 0);
        more = none = false;
        for (int64_t o = 0; o < n && good; o++) {
            double d[3], most = 0;
            for (int k = 0; k < 3; k++) {
                d[k] = (v[(1 + 2 * k) * n + o] - v[(2 + 2 * k) * n + o]) / ldexp(2 * h, -k);
                most = fmax(most, fmax(size[(1 + 2 * k) * n + o], size[(2 + 2 * k) * n + o]));
            }
            const double r0 = (4 * d[1] - d[0]) / 3, r1 = (4 * d[2] - d[1]) / 3, t = h / 4,
                         mid = v[o];
            const double wide = fabs((v[n + o] - mid) / h - (mid - v[2 * n + o]) / h),
                         rounding = 4 * c->unit * most / t;
            eg__slope f = { .n = (16 * r1 - r0) / 15,
                            .left = (mid - v[6 * n + o]) / t,
                            .right = (v[5 * n + o] - mid) / t };
            f.err = fabs(f.n - r1) + rounding;
            f.bend = wide > 0 ? fabs(f.right - f.left) / wide : 0;
            if (isnan(f.err)) f.err = INFINITY;
            if (level == 0 || f.err < s[o].err) s[o] = f;
            none |= !isfinite(s[o].err);
            more |= !(s[o].err <= fmax(5 * rounding, 0.1 * c->o.rtol * fabs(s[o].n)));
        }
    }
    eg_pop(c->cx, m);
    return good && !c->cx->failed;
}

void eg__direction(const eg__trial *c, int number, int input, double *direction)
{
    for (int64_t j = 0; j < c->cells; j++) direction[j] = 0;
    for (int64_t k = 0; k < c->vars; k++)
        if (input < 0 || c->var[k].input == input) {
            const double u = eg__unit(c->o.seed, (uint64_t)(16 + number), (uint64_t)k);
            direction[c->var[k].cell] = u < .5 ? -.5 - u : u; /* ±[.5, 1) */
        }
}

/* A direction over cells (or one cell) as a tensor for each input; a tensor given twice is listed
 * once. Returns how many; −1: an error. */
static int slope_tangents(const eg__trial *c, int64_t cell, const double *direction, eg_tensor **x,
                          eg_tensor **v)
{
    int count = 0;
    for (int k = 0; k < c->o.count; k++) {
        bool twice = false;
        for (int j = 0; j < count; j++) twice |= x[j] == c->o.xs[k];
        if (twice) continue;
        x[count] = c->o.xs[k];
        if (!(v[count] = eg__new(c->cx, EG_F64, x[count]->rank, x[count]->dim))) return -1;
        double *to = (double *)(void *)v[count]->data;
        for (int64_t j = 0, n = eg_size(v[count]); j < n; j++) {
            const int64_t at = c->var[c->var_of[k][j]].cell;
            to[j] = cell < 0 ? direction[at] : at == cell;
        }
        count++;
    }
    return count;
}

/* What was recorded, again with an imaginary step: exact to rounding, but blind to what is not on
 * the tape (eg__off_tape). */
static bool complex_step(eg__trial *c, int64_t cell, const double *direction, eg__slope *s)
{
    eg_tensor *x[EG_CHECK_INPUTS], *v[EG_CHECK_INPUTS], *dy = NULL;
    const eg_op *unsupported = NULL;
    eg_mark m = eg_push(c->cx);
    eg_tensor *y = eg__trial_call(c);
    const int count = y ? slope_tangents(c, cell, direction, x, v) : -1;
    const bool good = count >= 0 && eg__complex_step(y, count, x, v, &dy, &unsupported);
    const double *d = good ? eg_f64(dy) : NULL;
    for (int64_t o = 0; d && o < c->outs; o++) {
        double n = 0, size = 0;
        for (int64_t k = c->o.full ? o : 0; k < (c->o.full ? o + 1 : c->size); k++) {
            const double p = c->o.full ? d[k] : c->weight[k] * d[k];
            n += p;
            size += fabs(p);
        }
        s[o] = (eg__slope){ .n = n, .err = 1e-15 * size, .left = n, .right = n };
    }
    eg_pop(c->cx, m);
    if (unsupported) c->unsupported = unsupported->name;
    return d != NULL && !c->cx->failed;
}
bool eg__slopes(eg__trial *c, int64_t cell, const double *direction, eg__slope *s)
{
    if (c->o.oracle == EG_COMPLEX_STEP) return complex_step(c, cell, direction, s);
    return eg__differences(c, cell, direction, s);
}

bool eg__off_tape(eg__trial *given, eg_report *r)
{
    eg__trial t = *given, *c = &t;
    eg__slope by_step, by_differences;
    c->o.full = false;
    c->outs = 1;
    double *direction = eg__alloc(c->cx, (size_t)(c->cells + 1) * sizeof *direction);
    if (!direction) return false;
    eg__direction(c, 80000, -1, direction);
    if (!complex_step(c, -1, direction, &by_step) ||
        !eg__differences(c, -1, direction, &by_differences))
        return false;
    if (fabs(by_step.n - by_differences.n) >
        1e-7 * fabs(by_differences.n) + 10 * by_differences.err)
        eg__report_note(given, r, EG_WRONG, -1,
                        "along a random direction differences of f say %.9g, and the complex step "
                        "through what was "
                        "recorded %.9g: a part of f is not on the tape, or there is a kink",
                        by_differences.n, by_step.n);
    return true;
}

bool eg__forward(eg__trial *c, eg_report *r, const double *a)
{
    eg_tensor *x[EG_CHECK_INPUTS], *v[EG_CHECK_INPUTS], *moved = NULL;
    eg_mark m = eg_push(c->cx);
    double *direction = eg__alloc(c->cx, (size_t)(c->cells + 1) * sizeof *direction);
    if (direction) eg__direction(c, 90000, -1, direction);
    eg_tensor *y = direction ? eg__trial_call(c) : NULL;
    const int count = y ? slope_tangents(c, -1, direction, x, v) : -1;
    if (count >= 0) moved = eg_jvp(y, count, x, v);
    const double *d = eg_ok(moved) ? eg_f64(moved) : NULL;
    double forward = 0, reverse = 0, size = 0;
    for (int64_t o = 0; d && o < c->outs; o++) {
        if (c->o.full)
            forward = d[o], size = fabs(d[o]), reverse = 0;
        else
            for (int64_t k = 0; k < c->size; k++) {
                forward += c->weight[k] * d[k];
                size += fabs(c->weight[k] * d[k]);
            }
        for (int64_t k = 0; k < c->vars; k++) {
            const double p = direction[c->var[k].cell] * a[o * c->vars + k];
            reverse += p;
            size += fabs(p);
        }
        if (!isfinite(size) || fabs(forward - reverse) <= 1e-10 * size) continue;
        eg__report_note(c, r, EG_WRONG, -1,
                        "along a random direction forward mode says %.9g and reverse mode %.9g: "
                        "a rule or a jvp on the way is wrong",
                        forward, reverse);
        break;
    }
    eg_pop(c->cx, m);
    return d && !c->cx->failed;
}
