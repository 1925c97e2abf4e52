/* update.h: the loops over elements of an optimiser step. */
#ifndef EG_TRAIN_UPDATE_H
#define EG_TRAIN_UPDATE_H
#include <stdint.h>

/* largest number for a parameter; the pointer is NULL for one that is not used */
enum { EG__MOMENTS = 8 };
/* The coefficients of a step, which depend on the optimiser's options and the number of the
 * step. */
typedef struct eg__coefficients {
    double limit, coef;            /* g ← coef · clip(g, ±limit); infinity and 1 when off */
    double l2, shrink;             /* g ← g + l2 θ;  θ ← shrink θ */
    double b1, b2, eta, root, eps; /* adam: η/(1 − β₁ᵗ), √(1 − β₂ᵗ); rmsprop: b2 = α */
    double mu, keep;               /* sgd: u ← μu + keep g; 0 and 1 in the first step */
    double of_g, of_u;             /* sgd: θ ← θ − η (of_g g + of_u u) */
    int64_t t;                     /* the number of the step, of custom rules */
} eg__coefficients;

typedef struct eg__norms {
    double squares; /* Σ (scale · clip(g, ±limit))² */
    double largest; /* max |g|, NaN if an element is NaN */
} eg__norms;
eg__norms eg__norms_f32(int64_t n, const float *g, double limit, double scale);
eg__norms eg__norms_f64(int64_t n, const double *g, double limit, double scale);
typedef void eg__update_f32(int64_t n, const eg__coefficients *, float *x, const float *g,
                            float *const *moment);
typedef void eg__update_f64(int64_t n, const eg__coefficients *, double *x, const double *g,
                            double *const *moment);
eg__update_f32 eg__sgd_f32, eg__adam_f32, eg__rmsprop_f32, eg__adagrad_f32;
eg__update_f64 eg__sgd_f64, eg__adam_f64, eg__rmsprop_f64, eg__adagrad_f64;
#endif
