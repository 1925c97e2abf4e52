/* eingrad/scan.h: cumulative sums and the like, linear recurrences and causal convolutions: results
 * of the shape of x in which position l along the bracketed axis depends on positions up to l. */
#ifndef EINGRAD_SCAN_H
#define EINGRAD_SCAN_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* "b [l]": y[l] = Σ_{k ≤ l} x[k], in i64 for integers and bool, as eg_cumprod */
EG_API eg_tensor *eg_cumsum(const char *spec, eg_tensor *x);
/* "b [l]": y[l] = Π_{k ≤ l} x[k]; the gradient is right if elements are 0, too */
EG_API eg_tensor *eg_cumprod(const char *spec, eg_tensor *x);
/* "b [l]": y[l] = max over k ≤ l of x[k], as torch.cummax and NumPy's maximum.accumulate. Of equal
 * elements the last one gets the cotangent. From the first NaN on, y is NaN. x may have integers or
 * bools; y has the dtype of x */
EG_API eg_tensor *eg_cummax(const char *spec, eg_tensor *x);
/* y[l] = min over k ≤ l of x[k], as eg_cummax */
EG_API eg_tensor *eg_cummin(const char *spec, eg_tensor *x);
/* "b [l]": y[l] = ln Σ_{k ≤ l} e^x[k], without overflow; −∞ while all x[k] are, with gradient 0 */
EG_API eg_tensor *eg_logcumsumexp(const char *spec, eg_tensor *x);
/* "b [l]": y[l] = a[l] y[l−1] + b[l], y[−1] = 0; a and b of one shape. Martin, Cundy 2018 */
EG_API eg_tensor *eg_linear_scan(const char *spec, eg_tensor *a, eg_tensor *b);
/* "b [l] c": y[l] = Σ_{k ≤ l} f[k] x[l−k], a causal convolution along l. f may have any number of
 * taps k along its axis l (those beyond the length of x have no effect), and broadcasts to x in the
 * other axes as in NumPy: (k, c) for x (b, l, c). Sums are in f64. Many taps are convolved by
 * Fourier transforms, in O(l log l): a rounding error is then relative to the largest |f| times the
 * largest |x| of a line, and later elements of x change a result by that much. Refused: integers */
EG_API eg_tensor *eg_convolve(const char *spec, eg_tensor *x, eg_tensor *f);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
