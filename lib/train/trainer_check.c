/* trainer_check.c: eg_trainer_check: compares the gradients of a trained model with finite
 * differences. */
#include "trainer.h"
#include <eingrad/grad.h>
#include <math.h>

/* ROWS: number of test examples; DIRECTIONS: number for each tensor */
enum { ROWS = 4, DIRECTIONS = 3 };
/* Relative to the largest slope: the tolerance, and the error up to which a central difference is
 * not improved by extrapolation. */
static const double right_to = 1e-6, central_to = 1e-8;
/* A copy of the model in f64, and a batch of test examples. */
typedef struct probe {
    eg_trainer *t;
    eg_trainer copy; /* t with the copies instead of its parameters */
    eg_params *params;
    eg_batch batch;
} probe;

static eg_tensor *loss_of(const probe *p)
{
    eg_ctx *cx = p->t->cx;
    eg_tensor *auxiliary = NULL;
    eg_batch b = p->batch;
    b.auxiliary_loss = &auxiliary;
    eg_tensor *logits = eg__network_logits(&p->copy, cx, &b, NULL);
    return eg_scale(eg__network_loss(&p->copy, cx, &b, logits, p->t->o.smoothing),
                    1 / (double)eg_batch_counted(&b));
}

/* Sets θ ← θ₀ + step · sign; returns the loss there. sign has entries ±1/√n. */
static double loss_at(const probe *p, eg_tensor *x, const double *from, const double *sign,
                      double step)
{
    double *at = eg_mut_f64(x);
    for (int64_t k = 0, n = eg_size(x); at && k < n; k++) at[k] = from[k] + step * sign[k];
    eg_mark m = eg_push(p->t->cx);
    bool was = eg_nograd(p->t->cx, true);
    double loss = eg_item(loss_of(p));
    eg_nograd(p->t->cx, was);
    eg_pop(p->t->cx, m);
    return loss;
}

/* D(δ) = (f(δ) − f(−δ))/2δ: error O(δ²) */
static double difference(const probe *p, eg_tensor *x, const double *from, const double *sign,
                         double d)
{
    return (loss_at(p, x, from, sign, d) - loss_at(p, x, from, sign, -d)) / (2 * d);
}
static double central_difference(const probe *p, eg_tensor *x, const double *from,
                                 const double *sign)
{
    return difference(p, x, from, sign, 1e-4);
}
/* (4 D(δ) − D(2δ))/3: error O(δ⁴). Richardson 1911 */
static double extrapolated(const probe *p, eg_tensor *x, const double *from, const double *sign)
{
    const double d = 1e-3;
    return (4 * difference(p, x, from, sign, d) - difference(p, x, from, sign, 2 * d)) / 3;
}

/* The slopes of a tensor along its directions. */
typedef struct slopes {
    double analytic[DIRECTIONS], numeric[DIRECTIONS];
} slopes;
/* Returns the largest difference between the two slopes along any direction; NaN if one is NaN. */
static double slope_error(const slopes *s)
{
    double most = 0;
    for (int r = 0; r < DIRECTIONS; r++) {
        const double e = fabs(s->analytic[r] - s->numeric[r]);
        if (e > most || isnan(e)) most = e;
    }
    return most;
}
static double largest_of(const slopes *all, int count)
{
    double largest = 0;
    for (int k = 0; k < count; k++)
        for (int r = 0; r < DIRECTIONS; r++) largest = fmax(largest, fabs(all[k].numeric[r]));
    return largest;
}
/* Sets sign[] to direction r of tensor k, n entries ±1/√n. */
static void direction(int k, int r, int64_t n, double *sign)
{
    eg_rng rng = { 1, (uint64_t)(k * DIRECTIONS + r), 0 };
    for (int64_t i = 0; i < n; i++) sign[i] = (eg_rng_below(&rng, 2) ? 1 : -1) / sqrt((double)n);
}
/* Computes the slopes of tensor k, whose gradient is g, the numeric ones by `slope`. False after an
 * error. */
static bool compare_slopes(const probe *p, int k, eg_tensor *g, slopes *s,
                           double slope(const probe *, eg_tensor *, const double *, const double *))
{
    const eg_mark m = eg_push(p->t->cx);
    eg_tensor *x = eg_params_at(p->params, k)->x;
    const int64_t n = eg_size(x);
    const double *a = eg_f64(g), *from = eg_f64(eg_copy(x));
    double *sign = eg_mut_f64(eg_zeros_like(x));
    for (int r = 0; r < DIRECTIONS && a && from && sign; r++) {
        direction(k, r, n, sign);
        s->analytic[r] = 0;
        for (int64_t i = 0; i < n; i++) s->analytic[r] += a[i] * sign[i];
        s->numeric[r] = slope(p, x, from, sign);
    }
    if (from && sign) loss_at(p, x, from, sign, 0); /* restores θ₀ */
    eg_pop(p->t->cx, m);
    return !eg_error(p->t->cx);
}
/* Computes the slopes of all tensors, with extrapolation where central differences disagree, and
 * the largest numeric slope. False after an error. */
static bool compare_tensors(const probe *p, int count, eg_tensor **g, slopes *all, double *largest)
{
    for (int k = 0; k < count; k++)
        if (!compare_slopes(p, k, g[k], &all[k], central_difference)) return false;
    const double trusted = central_to * largest_of(all, count);
    for (int k = 0; k < count; k++)
        if (!(slope_error(&all[k]) <= trusted) &&
            !compare_slopes(p, k, g[k], &all[k], extrapolated))
            return false;
    *largest = largest_of(all, count);
    return true;
}
/* Makes the model again in f64, with the same parameters. It is called in evaluation mode, without
 * dropout. False after an error. */
static bool probe_open(probe *p)
{
    eg_trainer *t = p->t;
    p->params = eg_params_open(t->cx, .dtype = EG_F64);
    int64_t rows = t->o.batch;
    if (rows > ROWS) rows = ROWS;
    if (rows > t->batches->tests) rows = t->batches->tests;
    p->copy = *t;
    p->copy.gain_now = NULL;
    p->copy.net = eg__network_make(t, p->params);
    if (!p->copy.net) return false;
    p->batch = eg__batches_tested(t->batches, 0, rows);
    return p->batch.rows && !eg_params_copy(p->params, t->params);
}

/* A tensor passes if along each direction the two slopes differ by at most 1e-6 times the largest
 * numeric slope of all tensors. */
int eg_trainer_check(eg_trainer *t, eg_trainer_check_report *out)
{
    if (out) *out = (eg_trainer_check_report){ 0 };
    if (!eg__trainer_ready("trainer_check", t)) return -1;
    eg__evaluation e = eg__evaluation_begin(t->cx);
    eg_nograd(t->cx, false); /* gradients need a history */
    /* constants that a custom network makes in its context are f64 as well */
    const eg_dtype usual = eg_set_default_type(t->cx, EG_F64);
    eg_mark m = eg_push(t->cx);
    probe p = { .t = t };
    eg_trainer_check_report r = { 0 };
    eg_owner *owner = eg_owner_open(t->cx);
    int count = eg_params_count(t->params);
    eg_tensor **x = owner ? eg_owner_alloc(owner, 2 * (size_t)count * sizeof *x) : NULL,
              **g = x ? x + count : NULL;
    slopes *all = x ? eg_owner_alloc(owner, (size_t)count * sizeof *all) : NULL;
    if (all && probe_open(&p)) {
        double largest = 0;
        count = eg_params_count(p.params); /* without what the user has added to the list */
        for (int k = 0; k < count; k++) x[k] = eg_params_at(p.params, k)->x;
        const bool done = !eg_grad(loss_of(&p), NULL, count, x, g) &&
                          compare_tensors(&p, count, g, all, &largest);
        for (int k = 0; done && k < count; k++) {
            const double error = slope_error(&all[k]) / (largest > 0 ? largest : 1);
            r.entries += eg_size(x[k]);
            if (error <= right_to) r.right += eg_size(x[k]);
            if (!(error > r.worst || isnan(error))) continue;
            r.worst = error;
            r.worst_name = eg_params_at(t->params, k)->name;
        }
    }
    eg_pop(t->cx, m);
    eg_set_default_type(t->cx, usual);
    eg__evaluation_end(t->cx, e);
    if (out) *out = r;
    return eg_error(t->cx) ? -1 : 0;
}
