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
#include <blis.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif
