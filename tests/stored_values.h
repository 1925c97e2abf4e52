/* stored_values.h: comparing values and gradients with those that tests/reference/rows.py stored in
 * data/rows.h; its operands are wave(cx, s, dims…). */
#ifndef STORED_VALUES_H
#define STORED_VALUES_H
#include <eingrad/check.h>
#include "data/rows.h"
#include "fixtures.h"

/* Asserts that y and its gradients for the cotangent cos(0.3 k) are the stored ones. */
static inline void as_stored(eg_tensor *y, const double *value, int count, eg_tensor *const *xs,
                             const double *const *gradient)
{
    eg_ctx *cx = eg_context(y);
    eg_assert_ok(cx);
    eg_tensor *g = eg_zeros_like(y), *dx[8];
    double *p = eg_mut_f64(g);
    for (int64_t k = 0; k < eg_size(y); k++) p[k] = cos(0.3 * (double)k);
    eg_assert_close(y, eg_from_n(cx, EG_F64, value, eg_rank(y), eg_dims(y)), 1e-13);
    eg_grad(y, g, count, xs, dx);
    eg_assert_ok(cx);
    for (int k = 0; k < count; k++)
        eg_assert_close(dx[k], eg_from_n(cx, EG_F64, gradient[k], eg_rank(xs[k]), eg_dims(xs[k])),
                        1e-12);
}
/* clang-format off */
#define GRADIENTS(...) (const double *const[]){ __VA_ARGS__ }
#define OPERANDS(...)                                                 \
    (int)(sizeof((eg_tensor *[]){ __VA_ARGS__ }) / sizeof(eg_tensor *)), \
    (eg_tensor *[]){ __VA_ARGS__ }
/* clang-format on */

/* x[at] = v of a float tensor that is row-major */
static inline void put_n(eg_tensor *x, double v, int rank, const int *at)
{
    int64_t k = 0;
    for (int r = 0; r < rank; r++) k = k * eg_dim(x, r) + at[r];
    if (eg_type(x) == EG_F64)
        eg_mut_f64(x)[k] = v;
    else
        eg_mut_f32(x)[k] = (float)v;
}
#define put(x, v, ...) \
    put_n((x), (v), (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)), (int[]){ __VA_ARGS__ })

#endif
