/* complex.c: complex functions that C11's <complex.h> lacks. */
#include "tensor/tensor.h"
#include <stdint.h>

/* (e^x − 1) cos y − 2 sin²(y/2) + i e^x sin y */
double complex eg__c_expm1(double complex z)
{
    const double x = creal(z), y = cimag(z), s = sin(y / 2);
    return CMPLX(expm1(x) * cos(y) - 2 * s * s, exp(x) * sin(y));
}

/* ½ ln(1 + x (2 + x) + y²) + i atan2(y, 1 + x) */
double complex eg__c_log1p(double complex z)
{
    const double x = creal(z), y = cimag(z);
    return cabs(z) < .5 ? CMPLX(.5 * log1p(x * (2 + x) + y * y), atan2(y, 1 + x)) : clog(1 + z);
}

/* erf(x + iy) = erf x + rest and erfc(x + iy) = erfc x − rest, with
 *
 * rest = e^−x²/2πx (1 − cos 2xy + i sin 2xy)
 *      + 2/π e^−x² Σ_{n ≥ 1} e^{−n²/4}/(n² + 4x²) (f_n + i g_n)
 * f_n = 2x − 2x cosh ny cos 2xy + n sinh ny sin 2xy
 * g_n = 2x cosh ny sin 2xy + n sinh ny cos 2xy
 *
 * to 1e-16 of |erf z| (Abramowitz, Stegun 1964, 7.1.29; Salzer 1951). The largest term is at n =
 * 2|y|. The exponents are added before exp is called, since e^−x² alone may be 0 where the product
 * is not. */
static double sinc(double t) { return fabs(t) < 1e-8 ? 1 : sin(t) / t; }
static double complex erf_rest(double complex z)
{
    const double x = creal(z), y = cimag(z), t = x * y;
    double re = exp(-x * x) * y * sin(t) * sinc(t) * M_1_PI,
           im = exp(-x * x) * y * sinc(2 * t) * M_1_PI;
    if (y == 0) return CMPLX(0, y);
    /* for |y| ≥ 1000 the sum overflows, or all digits are lost by cancellation */
    if (!isfinite(x) || !(fabs(y) < 1000)) return CMPLX(NAN, NAN);
    for (double n = 1, last = ceil(2 * fabs(y)) + 13; n <= last; n++) {
        const double d = -n * n / 4 - x * x, up = exp(d + n * y), down = exp(d - n * y),
                     c = M_1_PI / (n * n + 4 * x * x);
        const double two_sinh = fabs(n * y) < .1 ? 2 * exp(d) * sinh(n * y) : up - down;
        re += c * (4 * x * exp(d) - 2 * x * (up + down) * cos(2 * t) + n * two_sinh * sin(2 * t));
        im += c * (2 * x * (up + down) * sin(2 * t) + n * two_sinh * cos(2 * t));
    }
    return CMPLX(re, im);
}
double complex eg__c_erf(double complex z)
{
    const double complex rest = erf_rest(z);
    return CMPLX(erf(creal(z)) + creal(rest), cimag(rest));
}
double complex eg__c_erfc(double complex z)
{
    const double complex rest = erf_rest(z);
    return CMPLX(erfc(creal(z)) - creal(rest), -cimag(rest));
}

/* atan2 is the arctangent of y/x or of x/y, whichever has a real part of at most 1, plus a multiple
 * of π/2 */
double complex eg__c_atan2(double complex y, double complex x)
{
    const double re = creal(x), im = creal(y);
    if (fabs(im) > fabs(re)) return copysign(M_PI_2, im) - catan(x / y);
    if (re == 0 && im == 0) return atan2(im, re);
    return catan(y / x) + (re < 0 ? copysign(M_PI, im) : 0);
}

double complex eg__c_hypot(double complex a, double complex b) { return csqrt(a * a + b * b); }

double complex eg__c_pow(double complex a, double complex b)
{
    const double e = creal(b);
    if (cimag(b) == 0 && e == rint(e) && fabs(e) < 0x1p31) {
        double complex power = 1, square = a;
        for (uint64_t n = (uint64_t)fabs(e); n; n /= 2, square *= square)
            if (n % 2) power *= square;
        return e < 0 ? 1 / power : power;
    }
    return cexp(b * clog(a));
}
