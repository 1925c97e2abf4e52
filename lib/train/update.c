/* update.c: optimiser steps as flat loops, f32 and f64 from one text. Sums are in f64, in sixteen fixed lanes. */
#if HAVE_CONFIG_H
#include <config.h>
#endif
#include "update.h"
#include <math.h>

#if HAVE_TARGET_CLONES
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES
#endif
enum { LANES = 16 };

#define CLIPPED(g, limit) ((g) > (limit) ? (limit) : (g) < -(limit) ? -(limit) : (g))       /* NaN stays            */

#define LARGER(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))      /* NaN if b is; a NaN a stays */

#define PASSED(name, real, suffix)                                                               \
    void eg__##name##_##suffix(int64_t n, const eg__coefficients *c, real *x, const real *g,     \
        real *const *moment)                                                                     \
    { name##_##suffix(n, c, x, g, moment); }
#define GRADIENT (CLIPPED(g[k], limit) * coef + l2 * x[k])
#define LOOPS(real, suffix, root_of)                                                             \
CLONES static eg__norms norms_##suffix(int64_t n, const real *g, double limit, double scale)     \
{                                                                                                \
    double sum[LANES] = { 0 }, most[LANES] = { 0 };                                              \
    int64_t k = 0;                                                                               \
    for (; k + LANES <= n; k += LANES)                                                           \
        for (int l = 0; l < LANES; l++) {                                                        \
            double x = (double)g[k + l], c = CLIPPED(x, limit) * scale, a = x < 0 ? -x : x;      \
            sum[l] += c * c;                                                                     \
            most[l] = LARGER(most[l], a);                                                        \
        }                                                                                        \
    for (int l = 0; k < n; k++, l++) {                                                           \
        double x = (double)g[k], c = CLIPPED(x, limit) * scale, a = x < 0 ? -x : x;              \
        sum[l] += c * c;                                                                         \
        most[l] = LARGER(most[l], a);                                                            \
    }                                                                                            \
    eg__norms all = { 0, 0 };                                                                    \
    for (int l = 0; l < LANES; l++) {                                                            \
        all.squares += sum[l];                                                                   \
        all.largest = LARGER(all.largest, most[l]);                                              \
    }                                                                                            \
    return all;                                                                                  \
}                                                                                                \
                                                                                                 \
/* θ ← θ − η g;  with momentum u ← μu + keep g, θ ← θ − η (look g + ahead u) */                  \
CLONES static void sgd_##suffix(int64_t n, const eg__coefficients *c, real *x, const real *g,    \
    real *const *moment)                                                                         \
{                                                                                                \
    const real limit = (real)c->limit, coef = (real)c->coef, l2 = (real)c->l2,                   \
        eta = (real)c->eta;                                                                      \
    const real mu = (real)c->mu, keep = (real)c->keep, look = (real)c->look,                     \
        ahead = (real)c->ahead;                                                                  \
    real *u = moment[0];                                                                      \
    const int64_t still = u ? 0 : n, moving = n - still; /* counts, so that loops vectorise */   \
    for (int64_t k = 0; k < still; k++)                                                          \
        x[k] -= eta * GRADIENT;                                                                  \
    for (int64_t k = 0; k < moving; k++) {                                                       \
        real d = GRADIENT;                                                                       \
        u[k] = mu * u[k] + keep * d;                                                             \
        x[k] -= eta * (look * d + ahead * u[k]);                                                 \
    }                                                                                            \
}                                                                                                \
                                                                                                 \
/* m ← β₁m + (1 − β₁) g;  v ← β₂v + (1 − β₂) g²;  θ ← shrink θ − η m/(√v/root + eps);            \
 * amsgrad: the largest v so far */                                                              \
CLONES static void adam_##suffix(int64_t n, const eg__coefficients *c, real *x, const real *g,   \
    real *const *moment)                                                                         \
{                                                                                                \
    const real limit = (real)c->limit, coef = (real)c->coef, l2 = (real)c->l2,                   \
        shrink = (real)c->shrink;                                                                \
    const real b1 = (real)c->b1, b2 = (real)c->b2, c1 = (real)(1 - c->b1),                       \
        c2 = (real)(1 - c->b2);                                                                  \
    const real eta = (real)c->eta, root = (real)c->root, eps = (real)c->eps;                     \
    real *m = moment[0], *v = moment[1], *most = moment[2];                                      \
    const int64_t usual = most ? 0 : n, amsgrad = n - usual;                                     \
    for (int64_t k = 0; k < usual; k++) {                                                        \
        real d = GRADIENT;                                                                       \
        m[k] = b1 * m[k] + c1 * d;                                                               \
        v[k] = b2 * v[k] + c2 * d * d;                                                           \
        x[k] = shrink * x[k] - eta * m[k] / (root_of(v[k]) / root + eps);                        \
    }                                                                                            \
    for (int64_t k = 0; k < amsgrad; k++) {                                                      \
        real d = GRADIENT;                                                                       \
        m[k] = b1 * m[k] + c1 * d;                                                               \
        v[k] = b2 * v[k] + c2 * d * d;                                                           \
        most[k] = LARGER(most[k], v[k]);                                                         \
        x[k] = shrink * x[k] - eta * m[k] / (root_of(most[k]) / root + eps);                     \
    }                                                                                            \
}                                                                                                \
                                                                                                 \
/* v ← αv + (1 − α) g²;  d = g/(√v̂ + eps), v̂ = v or, with m ← αm + (1 − α) g, the              \
 * variance v − m², which rounding may                                                           \
 * make negative;  with momentum u ← μu + d, d = u;  θ ← θ − η d */                              \
CLONES static void rmsprop_##suffix(int64_t n, const eg__coefficients *c, real *x,               \
    const real *g, real *const *moment)                                                          \
{                                                                                                \
    const real limit = (real)c->limit, coef = (real)c->coef, l2 = (real)c->l2,                   \
        eta = (real)c->eta;                                                                      \
    const real b2 = (real)c->b2, c2 = (real)(1 - c->b2), eps = (real)c->eps, mu = (real)c->mu;   \
    real *v = moment[0], *u = moment[1], *m = moment[2];                                         \
    for (int64_t k = 0; k < n; k++) {                                                            \
        real d = GRADIENT, spread;                                                               \
        spread = v[k] = b2 * v[k] + c2 * d * d;                                                  \
        if (m) {                                                                                 \
            m[k] = b2 * m[k] + c2 * d;                                                           \
            spread = LARGER(v[k] - m[k] * m[k], 0);                                              \
        }                                                                                        \
        d /= root_of(spread) + eps;                                                              \
        if (u)                                                                                   \
            d = u[k] = mu * u[k] + d;                                                            \
        x[k] -= eta * d;                                                                         \
    }                                                                                            \
}                                                                                                \
                                                                                                 \
/* v ← v + g²;  θ ← θ − η g/(√v + eps) */                                                        \
CLONES static void adagrad_##suffix(int64_t n, const eg__coefficients *c, real *x,               \
    const real *g, real *const *moment)                                                          \
{                                                                                                \
    const real limit = (real)c->limit, coef = (real)c->coef, l2 = (real)c->l2,                   \
        eta = (real)c->eta, eps = (real)c->eps;                                                  \
    real *v = moment[0];                                                                         \
    for (int64_t k = 0; k < n; k++) {                                                            \
        real d = GRADIENT;                                                                       \
        v[k] += d * d;                                                                           \
        x[k] -= eta * d / (root_of(v[k]) + eps);                                                 \
    }                                                                                            \
}                                                                                                \
                                                                                                 \
/* clang 14 finds a cloned function only in its own file */                                      \
eg__norms eg__norms_##suffix(int64_t n, const real *g, double limit,                             \
    double scale) { return norms_##suffix(n, g, limit, scale); }                                 \
PASSED(sgd, real, suffix) PASSED(adam, real, suffix) PASSED(rmsprop, real,                       \
    suffix) PASSED(adagrad, real, suffix)

LOOPS(float,  f32, sqrtf)
LOOPS(double, f64, sqrt)
