/* numbers.c: loops over the elements of sums between ranks. */
#include "core/core.h"
#include "ranks/ranks.h"

enum { LANES = 16 };
#define REAL    float
#define NAME(x) x##_f32
#include "ranks/numbers_of.h"

#define REAL    double
#define NAME(x) x##_f64
#include "ranks/numbers_of.h"
