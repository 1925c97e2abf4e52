/* complex.h: the dtype c128. The gradient check computes complex steps in it
 * (autograd/complex_step.c); it has no gradients. An operation computes the analytic continuation
 * of its real function: the same expression with EG_RE in every comparison, so that functions with
 * branches (abs, max, clip, relu, comparisons) branch on the real part, and with the functions
 * below in place of libm's. Then f(x + i h) = f(x) + i h f′(x) up to h² wherever f has a
 * derivative. */
#ifndef EG_COMPLEX_H
#define EG_COMPLEX_H
#include <complex.h>
#include <math.h>
#undef I
#ifndef CMPLX /* missing with clang and glibc's header */
#define CMPLX(re, im) __builtin_complex((double)(re), (double)(im))
#endif
typedef double complex eg_complex128;

/* The real part of a value of any type. */
#define EG_RE(v) _Generic((v), double complex : creal(v), default : (v))

/* Functions that <complex.h> lacks, or whose branch cut there is at a point where the real function
 * is smooth. Tables of operations use them as F(name). */
static inline double complex eg__c_fabs(double complex z) { return creal(z) < 0 ? -z : z; }
static inline double complex eg__c_floor(double complex z) { return floor(creal(z)); }
static inline double complex eg__c_ceil(double complex z) { return ceil(creal(z)); }
static inline double complex eg__c_trunc(double complex z) { return trunc(creal(z)); }
static inline double complex eg__c_nearbyint(double complex z) { return nearbyint(creal(z)); }
static inline double complex eg__c_exp2(double complex z)
{
    return exp2(creal(z)) * cexp(CMPLX(0, M_LN2 * cimag(z)));
}
static inline double complex eg__c_log2(double complex z) { return clog(z) * M_LOG2E; }
static inline double complex eg__c_log10(double complex z) { return clog(z) * M_LOG10E; }
double complex eg__c_expm1(double complex); /* e^z − 1, accurate near 0 */
double complex eg__c_log1p(double complex); /* ln(1 + z), accurate near 0 */
double complex eg__c_erf(double complex);
double complex eg__c_erfc(double complex); /* 1 − erf z, accurate where it is small */
double complex eg__c_atan2(double complex y, double complex x); /* the angle of (x, y) */
double complex eg__c_hypot(double complex a, double complex b);
/* for integers b a product, so that a may be negative */
double complex eg__c_pow(double complex a, double complex b);
#define eg__c_exp   cexp
#define eg__c_log   clog
#define eg__c_sqrt  csqrt
#define eg__c_sin   csin
#define eg__c_cos   ccos
#define eg__c_tan   ctan
#define eg__c_asin  casin
#define eg__c_acos  cacos
#define eg__c_atan  catan
#define eg__c_sinh  csinh
#define eg__c_cosh  ccosh
#define eg__c_asinh casinh
#define eg__c_acosh cacosh
#define eg__c_atanh catanh
#endif
