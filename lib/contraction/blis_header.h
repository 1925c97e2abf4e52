/* blis_header.h: includes <blis.h>, whose inline functions cause warnings. For blis.c, and for the
 * benchmark that calls BLIS itself. */
#ifndef EG_BLIS_HEADER_H
#define EG_BLIS_HEADER_H
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#endif
/* The inline functions of BLIS 0.9 are `static`. Without optimisation gcc keeps all of those, and
 * the linker would need what they call: the rest of BLIS, and OpenMP. */
#if !defined(__OPTIMIZE__)
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define static static inline
#endif
#include <blis.h>
#undef static
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif
