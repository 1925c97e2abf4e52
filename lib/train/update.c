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

#define PASSED(name, real, suffix)                                                                                     \
    void eg__##name##_##suffix(int64_t n, const eg__coefficients *c, real *x, const real *g, real *m, real *v)         \
    { name##_##suffix(n, c, x, g, m, v); }
#define LOOPS(real, suffix, root_of)                                                                                   \
CLONES static eg__norms norms_##suffix(int64_t n, const real *g, double limit)                                            \
{                                                                                                                      \
    double sum[LANES] = { 0 }, most[LANES] = { 0 };                                                                    \
    int64_t k = 0;                                                                                                     \
    for (; k + LANES <= n; k += LANES)                                                                                 \
        for (int l = 0; l < LANES; l++) {                                                                              \
            double x = (double)g[k + l], c = CLIPPED(x, limit), a = x < 0 ? -x : x;                                    \
            sum[l] += c * c;                                                                                           \
            most[l] = a > most[l] ? a : most[l];                                                                       \
        }                                                                                                              \
    for (int l = 0; k < n; k++, l++) {                                                                                 \
        double x = (double)g[k], c = CLIPPED(x, limit), a = x < 0 ? -x : x;                                            \
        sum[l] += c * c;                                                                                               \
        most[l] = a > most[l] ? a : most[l];                                                                           \
    }                                                                                                                  \
    eg__norms all = { 0, 0 };                                                                                          \
    for (int l = 0; l < LANES; l++) {                                                                                  \
        all.squares += sum[l];                                                                                         \
        all.largest = most[l] > all.largest ? most[l] : all.largest;                                                   \
    }                                                                                                                  \
    return all;                                                                                                        \
}                                                                                                                      \
                                                                                                                       \
/* θ ← shrink θ − η g */                                                                                               \
CLONES static void plain_##suffix(int64_t n, const eg__coefficients *c, real *x, const real *g, real *m, real *v)         \
{                                                                                                                      \
    const real limit = (real)c->limit, coef = (real)c->coef, l2 = (real)c->l2, eta = (real)c->eta;                     \
    (void)m, (void)v;                                                                                                  \
    for (int64_t k = 0; k < n; k++)                                                                                    \
        x[k] -= eta * (CLIPPED(g[k], limit) * coef + l2 * x[k]);                                                       \
}                                                                                                                      \
                                                                                                                       \
/* u ← μu + keep g;  θ ← θ − η (look g + ahead u) */                                                                     \
CLONES static void momentum_##suffix(int64_t n, const eg__coefficients *c, real *x, const real *g, real *u, real *v)      \
{                                                                                                                      \
    const real limit = (real)c->limit, coef = (real)c->coef, l2 = (real)c->l2, eta = (real)c->eta;                     \
    const real mu = (real)c->mu, keep = (real)c->keep, look = (real)c->look, ahead = (real)c->ahead;                       \
    (void)v;                                                                                                           \
    for (int64_t k = 0; k < n; k++) {                                                                                  \
        real d = CLIPPED(g[k], limit) * coef + l2 * x[k];                                                              \
        u[k] = mu * u[k] + keep * d;                                                                                   \
        x[k] -= eta * (look * d + ahead * u[k]);                                                                       \
    }                                                                                                                  \
}                                                                                                                      \
                                                                                                                       \
/* m ← β₁m + (1 − β₁) g;  v ← β₂v + (1 − β₂) g²;  θ ← shrink θ − η m/(√v/root + eps) */                                \
CLONES static void adam_##suffix(int64_t n, const eg__coefficients *c, real *x, const real *g, real *m, real *v)          \
{                                                                                                                      \
    const real limit = (real)c->limit, coef = (real)c->coef, l2 = (real)c->l2, shrink = (real)c->shrink;               \
    const real b1 = (real)c->b1, b2 = (real)c->b2, c1 = (real)(1 - c->b1), c2 = (real)(1 - c->b2);                     \
    const real eta = (real)c->eta, root = (real)c->root, eps = (real)c->eps;                                           \
    for (int64_t k = 0; k < n; k++) {                                                                                  \
        real d = CLIPPED(g[k], limit) * coef + l2 * x[k];                                                              \
        m[k] = b1 * m[k] + c1 * d;                                                                                     \
        v[k] = b2 * v[k] + c2 * d * d;                                                                                 \
        x[k] = shrink * x[k] - eta * m[k] / (root_of(v[k]) / root + eps);                                              \
    }                                                                                                                  \
}                                                                                                                      \
                                                                                                                       \
/* clang 14 finds a cloned function only in its own file */                                                            \
eg__norms eg__norms_##suffix(int64_t n, const real *g, double limit) { return norms_##suffix(n, g, limit); }           \
PASSED(plain, real, suffix) PASSED(momentum, real, suffix) PASSED(adam, real, suffix)

LOOPS(float,  f32, sqrtf)
LOOPS(double, f64, sqrt)
