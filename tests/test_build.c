/* test_build.c: the version is that of the package, and what configure found out about the compiler
 * is true. */
#include <config.h>
#include <eingrad.h>
#include <math.h>
#include "tests.h"

TEST(version_is_that_of_the_package) { ck_assert_str_eq(eg_version(), PACKAGE_VERSION); }

#if HAVE_TARGET_CLONES
__attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4"))) static double dot(
    const double *x, const double *y, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

TEST(target_clones) /* the clone that this processor selects computes the function */
{
    double x[9], y[9];
    for (int i = 0; i < 9; i++) x[i] = i, y[i] = 2;
    ck_assert_double_eq(dot(x, y, 9), 72);
}
#endif

/* A value is a*b rounded, then plus c rounded: no loop body may fuse what its remainder does
 * not. */
TEST(no_contraction)
{
    volatile double e = 0x1p-30;
    double a = 1 + e, b = 1 - e, c = -1;
    ck_assert_double_eq(a * b + c, 0);
}

/* configure refuses flags like -ffast-math; a build by other means fails here. The compiler may not
 * assume that x is no NaN and no infinity. */
TEST(infinities_and_nan)
{
    volatile double zero = 0, x = 1 / zero, y = x - x;
    ck_assert(isinf(x) && isnan(y) && !(y == y));
}
