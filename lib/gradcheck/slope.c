/* slope.c: derivatives along a direction: by central differences, by the complex step, and by
 * forward mode.
 *
 * D(h) = (L(x+h) − L(x−h))/2h = L' + a h² + b h⁴ + …. First, two calls of f give D at a small step.
 * If it agrees with the analytic value as closely as rounding allows, that is enough. Otherwise D
 * is computed at h, h/2 and h/4, and Richardson's extrapolation gives R(h) = (4 D(h/2) − D(h))/3
 * and n = (16 R(h/2) − R(h))/15, whose error is estimated by |n − R(h/2)| plus rounding / h. If the
 * differences between D(h), D(h/2) and D(h/4) do not decrease like h² (there is a kink or a pole
 * within h), nothing is extrapolated, and these differences are the error. As long as truncation
 * exceeds rounding, h is divided by 16 and the computation repeated; the result with the smallest
 * error is kept. Richardson 1911; Ridders 1982.
 *
 * L' = Σ W_o (f_o(x+h) − f_o(x−h))/2h is summed from the differences of elements, so that elements
 * that do not change add no rounding, however large they are. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

/* The number of step sizes: LEVELS; DEEPER if no step has given a finite value, as for a logarithm
 * near 0. */
enum { LEVELS = 6, DEEPER = 8 };
#define QUICK 0x1p-16 /* the step of the first two calls, relative to the inputs */

/* Sets the inputs to the point plus t along one cell or, if cell < 0, along the direction. */
static void set_inputs(eg__trial *c, int64_t cell, const double *direction, double t)
{
    if (cell >= 0) {
        c->memory[cell] = c->point[cell] + t;
        return;
    }
    for (int64_t j = 0; j < c->cells; j++) c->memory[j] = c->point[j] + t * direction[j];
}
/* Returns the step: `share` times the largest |x| that is moved, or `share` if all are below 1.
 * Along a single cell it is rounded such that x + step is exact. */
static double slope_step(const eg__trial *c, int64_t cell, const double *direction, double share)
{
    double most = 1;
    if (cell >= 0)
        most = fmax(most, fabs(c->point[cell]));
    else
        for (int64_t j = 0; j < c->cells; j++)
            if (direction[j] != 0) most = fmax(most, fabs(c->point[j]));
    const double base = cell >= 0 ? c->point[cell] : 1;
    const volatile double up = base + most * share;
    return up - base;
}

/* The result of one step t for an output: D(t), the slopes on the two sides, and the standard error
 * of D by rounding: `noise` counts the elements that changed, `all` every element. */
typedef struct step {
    double d, left, right, noise, all;
} step;
/* Adds element k of f's result to *p, with weight w; the element is `up` at +t and `down` at −t. */
static inline void slope_add(const eg__trial *c, int64_t k, double up, double down, double w,
                             step *p)
{
    const double mid = c->middle[k];
    const double sigma = w * fmax(c->noise[k], 0.5 * c->unit * fmax(fabs(up), fabs(down)));
    p->noise += sigma * sigma;
    p->d += w * (up - down);
    p->left += w * (mid - down);
    p->right += w * (up - mid);
}
/* Computes p[o] for each output o from f's results at +t and −t. */
static void slope_steps(const eg__trial *c, const double *up, const double *down, double t, step *p)
{
    const double *mid = c->middle;
    const double all = c->o.full ? 0 : 4 * c->sum_factor / t * c->sum_noise;
    memset(p, 0, (size_t)c->outs * sizeof *p);
    for (int64_t k = 0; k < c->size; k++)
        if (up[k] != mid[k] || down[k] != mid[k])
            slope_add(c, k, up[k], down[k], c->o.full ? 1 : c->weight[k], &p[c->o.full ? k : 0]);
    for (int64_t o = 0; o < c->outs; o++) {
        p[o].d /= 2 * t;
        p[o].left /= t;
        p[o].right /= t;
        p[o].noise = 4 * (c->o.full ? 1 : c->sum_factor) / t * sqrt(p[o].noise);
        p[o].all = fmax(c->o.full ? 4 / t * c->noise[o] : all, fmax(p[o].noise, 4 * c->least / t));
    }
}
/* Calls f at +t and −t and computes p[o] for each output; y has room for both results. False if f
 * failed. */
static bool slope_at(eg__trial *c, int64_t cell, const double *direction, double t, double *y,
                     step *p)
{
    set_inputs(c, cell, direction, t);
    bool good = eg__trial_value(c, y);
    set_inputs(c, cell, direction, -t);
    good = good && eg__trial_value(c, y + c->size);
    set_inputs(c, cell, direction, 0);
    if (good) slope_steps(c, y, y + c->size, t, p);
    return good;
}

/* Calls f twice at a small step. True if D agrees with the analytic value a of every output, and
 * its rounding is so small that a wrong value would have been detected; s is then the result. */
static bool slope_quick(eg__trial *c, int64_t cell, const double *direction, const double *a,
                        double *y, step *p, eg__slope *s)
{
    const double t = slope_step(c, cell, direction, QUICK);
    if (!slope_at(c, cell, direction, t, y, p)) return false;
    for (int64_t o = 0; o < c->outs; o++) {
        const double n = p[o].d, of = fabs(n), jump = fabs(p[o].right - p[o].left);
        s[o] = (eg__slope){
            .n = n, .err = p[o].noise, .all = p[o].all, .left = p[o].left, .right = p[o].right
        };
        if (n == 0 && a[o] == 0 && jump == 0) continue;
        const double seen = c->o.full ? of / 8 : fmax(5e-8, 0.5 * c->o.rtol) * of;
        if (!(fabs(a[o] - n) <= c->o.rtol * of + p[o].noise && p[o].noise <= seen &&
              p[o].all <= 0.2 * of && jump <= 0.02 * of + 4 * p[o].noise))
            return false;
    }
    return true;
}

/* Extrapolates one output from its differences p[0 … 2] at h, h/2 and h/4. */
static eg__slope slope_fit(const step *p)
{
    const double r0 = (4 * p[1].d - p[0].d) / 3, r1 = (4 * p[2].d - p[1].d) / 3;
    const double first = p[0].d - p[1].d, second = p[1].d - p[2].d, ratio = first / second;
    const double wide = fabs(p[0].right - p[0].left);
    eg__slope f = { .n = (16 * r1 - r0) / 15, .left = p[2].left, .right = p[2].right };
    f.err = fabs(f.n - r1);
    if (fabs(second) > p[2].noise && !(ratio > 2.8 && ratio < 20)) {
        f.n = p[2].d;
        f.err = 2 * fmax(fabs(first), fabs(second));
    }
    f.all = f.err + 1.5 * p[2].all;
    /* the difference grows as h shrinks: there is a bend much sharper than h, and the growth does
     * not bound the error */
    if (fabs(second) > p[2].noise && !(fabs(ratio) > 1))
        f.err = fmax(f.err, 0.5 * fabs(f.right - f.left));
    f.err += 1.5 * p[2].noise;
    f.bend = wide > 0 ? fabs(f.right - f.left) / wide : 0;
    if (isnan(f.err)) f.err = f.all = INFINITY;
    return f;
}
/* True if the slopes on the two sides differ as at a kink. */
static bool slope_bent(const eg__slope *s)
{
    return s->bend > 0.6 &&
           fabs(s->right - s->left) > 1e-4 * fmax(fabs(s->left), fabs(s->right)) + 2 * s->all;
}
/* True if a smaller step could improve s, the result for one output; a: its analytic value. */
static bool slope_unclear(const eg__trial *c, const eg__slope *s, const step *p, const double *a)
{
    const double of = fabs(s->n), rounding = 1.5 * p[2].noise;
    if (!isfinite(s->err)) return true;
    if (s->err <= fmax(3 * rounding, 0.1 * c->o.rtol * of)) return false;
    if (!a) return true;
    /* with many outputs there is always one for which a smaller step would be better */
    return !(fabs(*a - s->n) <= c->o.rtol * of + s->err && s->err <= (c->o.full ? 0.1 : 5e-8) * of);
}

bool eg__differences(eg__trial *c, int64_t cell, const double *direction, const double *a,
                     double shrink, eg__slope *s)
{
    const int64_t n = c->outs;
    eg_mark m = eg_push(c->cx);
    double *y = eg__alloc(c->cx, (size_t)(2 * c->size + 1) * sizeof *y);
    step *p = eg__alloc(c->cx, (size_t)(3 * n + 1) * sizeof *p), of[3];
    bool good = y && p, more = good, none = false;
    if (good && a && slope_quick(c, cell, direction, a, y, p, s)) more = false;
    good = good && !c->cx->failed;
    double share = shrink / 256;
    for (int level = 0; level < (none ? DEEPER : LEVELS) && good && more; level++, share /= 16) {
        const double h = slope_step(c, cell, direction, share);
        if (h == 0) break;
        for (int k = 0; k < 3 && good; k++)
            good = slope_at(c, cell, direction, ldexp(h, -k), y, p + k * n);
        more = none = false;
        for (int64_t o = 0; o < n && good; o++) {
            for (int k = 0; k < 3; k++) of[k] = p[k * n + o];
            const eg__slope f = slope_fit(of);
            const bool kink = slope_bent(&f);
            if (level == 0 || f.err < s[o].err)
                s[o] = f;
            else if (slope_bent(&s[o])) { /* a kink must be one at this smaller step too */
                s[o].left = f.left;
                s[o].right = f.right;
                s[o].bend = f.bend;
            }
            more |= kink;
            none |= !isfinite(s[o].err);
            more |= slope_unclear(c, &f, of, a ? a + o : NULL);
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

/* Sets v[k] to a tangent of each input x[k]: a direction over cells or, if cell ≥ 0, that cell
 * alone. A tensor that was given twice is listed once. Returns how many; −1 after an error. */
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

/* Evaluates the recorded graph of y again with an imaginary step. This gives the derivatives
 * exactly up to rounding, but does not include what f computes outside of the tape (eg__off_tape).
 * The graph is evaluated at the present values of the inputs. False if an operation has no complex
 * form, and after an error. */
static bool complex_step_on(eg__trial *c, eg_tensor *y, int64_t cell, const double *direction,
                            eg__slope *s)
{
    eg_tensor *x[EG_CHECK_INPUTS], *v[EG_CHECK_INPUTS], *dy = NULL;
    const eg_op *unsupported = NULL;
    eg_mark m = eg_push(c->cx);
    const int count = slope_tangents(c, cell, direction, x, v);
    const bool good = count >= 0 && eg__complex_step(y, count, x, v, &dy, &unsupported);
    const double *d = good ? eg_f64(dy) : NULL;
    for (int64_t o = 0; d && o < c->outs; o++) {
        double n = 0, size = 0;
        for (int64_t k = c->o.full ? o : 0; k < (c->o.full ? o + 1 : c->size); k++) {
            const double p = c->o.full ? d[k] : c->weight[k] * d[k];
            n += p;
            size += fabs(p);
        }
        s[o] =
            (eg__slope){ .n = n, .err = 1e-15 * size, .all = 1e-15 * size, .left = n, .right = n };
    }
    eg_pop(c->cx, m);
    if (unsupported) c->unsupported = unsupported->name;
    return d != NULL && !c->cx->failed;
}
/* Calls f at the point and computes the complex step there. */
static bool complex_step(eg__trial *c, int64_t cell, const double *direction, eg__slope *s)
{
    eg_mark m = eg_push(c->cx);
    eg_tensor *y = eg__trial_call(c);
    const bool good = y && complex_step_on(c, y, cell, direction, s);
    eg_pop(c->cx, m);
    return good && !c->cx->failed;
}
bool eg__slopes(eg__trial *c, int64_t cell, const double *direction, const double *a, eg__slope *s)
{
    if (c->o.oracle == EG_COMPLEX_STEP) return complex_step(c, cell, direction, s);
    return eg__differences(c, cell, direction, a, 1, s);
}

/* Sets *c to the trial of ⟨f, W⟩ alone, whatever the outputs of `given` are, and *s to the complex
 * step along a random direction. Returns the direction; NULL if there is no complex step. */
static double *step_along(const eg__trial *given, eg__trial *c, eg__slope *s)
{
    *c = *given;
    c->o.full = false;
    c->outs = 1;
    double *direction = eg__alloc(c->cx, (size_t)(c->cells + 1) * sizeof *direction);
    if (!direction) return NULL;
    eg__direction(c, 80000, -1, direction);
    return complex_step(c, -1, direction, s) ? direction : NULL;
}
/* True if the complex step and differences agree on the derivative of ⟨f, W⟩ along a random
 * direction. */
static bool step_trusted(const eg__trial *given)
{
    eg__trial c;
    eg__slope by_step, by_differences;
    const double *direction = step_along(given, &c, &by_step);
    if (!direction) return false;
    for (int k = 0; k < 2; k++) {
        if (!eg__differences(&c, -1, direction, NULL, k ? EG_DEEP : 1, &by_differences))
            return false;
        if (fabs(by_step.n - by_differences.n) <=
            1e-6 * fabs(by_differences.n) + 10 * by_differences.all)
            return true;
    }
    return false;
}
bool eg__slope_recheck(eg__trial *c, int64_t cell, const double *direction, eg__slope *s)
{
    eg_ctx *cx = c->cx;
    const char *before = c->unsupported;
    if (c->step_refused || c->rechecks <= 0 || cx->failed) return false;
    c->rechecks--;
    const eg_mark m = eg_push(cx);
    if (!c->step_trusted) c->step_refused = !(c->step_trusted = step_trusted(c));
    eg_tensor *y = c->step_refused || cx->failed ? NULL : eg__trial_call(c);
    eg__slope *near = eg__alloc(cx, (size_t)(2 * c->outs + 1) * sizeof *near);
    bool good = y && near && complex_step_on(c, y, cell, direction, s);
    for (int k = -1; k <= 1 && good; k += 2) {
        for (int64_t j = 0; j < c->vars; j++) {
            const int64_t at = c->var[j].cell;
            const double u = k * 0x1p-20 * (0.5 + eg__unit(c->o.seed, 12, (uint64_t)j));
            /* an entry of 0 may tie with another 0, so signs alternate */
            if (c->memory[at] != 0)
                c->memory[at] *= 1 + u;
            else
                c->memory[at] = j % 2 ? u : -u;
        }
        good = complex_step_on(c, y, cell, direction, near + (k > 0 ? c->outs : 0));
        memcpy(c->memory, c->point, (size_t)c->cells * sizeof *c->point);
    }
    for (int64_t o = 0; o < c->outs && good; o++) /* the second difference is rounding */
        s[o].all = s[o].err += 2 * fabs(near[o].n + near[c->outs + o].n - 2 * s[o].n);
    eg_pop(cx, m);
    if (c->unsupported) c->step_refused = true;
    c->unsupported = before;
    return good && !cx->failed;
}

bool eg__off_tape(eg__trial *given, eg_report *r)
{
    eg__trial c;
    eg__slope by_step, by_differences;
    const double *direction = step_along(given, &c, &by_step);
    if (!direction || !eg__differences(&c, -1, direction, NULL, 1, &by_differences)) return false;
    if (fabs(by_step.n - by_differences.n) >
        1e-7 * fabs(by_differences.n) + 10 * by_differences.all)
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
        /* rounding of both: of the analytic values, and of f divided by x */
        double floor = 4 * c->doubt;
        for (int64_t k = 0; k < c->vars && !c->o.full; k++) floor += 8 * c->jitter[k];
        if (!isfinite(size) || fabs(forward - reverse) <= 1e-10 * size + floor) continue;
        const double *row = c->o.full ? eg__row_rounding(c, a + o * c->vars, o) : NULL;
        for (int64_t k = 0; k < c->vars && row; k++) floor += 8 * row[k];
        if (fabs(forward - reverse) <= 1e-10 * size + floor) continue;
        if (eg__hooked(c, r)) break;
        eg__report_note(c, r, EG_WRONG, -1,
                        "along a random direction forward mode says %.9g and reverse mode %.9g: "
                        "a rule or a jvp on the way is wrong",
                        forward, reverse);
        break;
    }
    eg_pop(c->cx, m);
    return d && !c->cx->failed;
}
