/* threads.c: how many threads a context starts with. */
#include "core/context.h"
#if defined(_OPENMP)
#include <omp.h>
int eg__cores(void) { return omp_get_max_threads(); }
#else
int eg__cores(void) { return 1; }
#endif
