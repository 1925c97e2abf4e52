/* pack.h: operands of a micro-kernel, from any strides. */
#ifndef EG_PACK_H
#define EG_PACK_H
#include "impl.h"

/* One micro-panel: dst[p·w + i] = src[off[i] + k(p)] for p < k, i < w; rows from `rows` on are 0. rs: the constant step of off, or any
 * number that it is not. */
typedef struct eg_run { int64_t at, n, stride; } eg_run;     /* k: element `at`, n of them, `stride` apart */
void eg__pack(size_t width, int w, int64_t rows, const int64_t *off, int64_t rs, int runs, const eg_run *run,
             const void *src, void *dst, int64_t k);
#endif
