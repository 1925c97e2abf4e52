#include "kernel.h"
#include <math.h>

static double scale(const double *x)
{
    double sum = 0;
    for (int k = 0; k < RMS_N; k++) sum += x[k] * x[k];
    return 1 / sqrt(sum / RMS_N + 1e-6);
}
int rms(void *user, const double *x, double *y)
{
    const double s = scale(x);
    (void)user;
    for (int k = 0; k < RMS_N; k++) y[k] = s * x[k];
    return 0;
}
/* dx = s g − s³ x ⟨g, x⟩ / n */
int rms_vjp(void *user, const double *x, const double *g, double *dx)
{
    const double s = scale(x);
    double dot = 0;
    (void)user;
    for (int k = 0; k < RMS_N; k++) dot += g[k] * x[k];
    for (int k = 0; k < RMS_N; k++) dx[k] = s * g[k] - s * s * s * x[k] * dot / RMS_N;
    return 0;
}
