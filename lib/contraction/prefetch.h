/* prefetch.h: memory is prefetched before it is needed. Processors prefetch along the rows of a
 * matrix by themselves, but neither the next matrix nor a result that lies in memory. */
#ifndef EG_PREFETCH_H
#define EG_PREFETCH_H
#include "contraction/gemm.h"

/* Prefetches what finish->run() will need for `rows` rows of `bytes` bytes, `step` bytes apart, the
 * first at c. */
static inline void eg__finish_prefetch(const eg_finish *finish, const void *c, int64_t bytes,
                                       int64_t rows, int64_t step)
{
    for (int x = 0; x < 2; x++) {
        const char *at = (const char *)((uintptr_t)c + (uintptr_t)finish->beside[x]);
        if (finish->beside[x])
            for (int64_t r = 0; r < rows; r++, at += step)
                for (int64_t i = 0; i < bytes; i += EG_LINE) __builtin_prefetch(at + i, 1, 3);
    }
}

/* Sets the lines of x->size by y->size elements of w bytes, which are sx and sy elements apart and
 * begin at `from`. */
static inline eg_ahead eg__ahead_of(const char *from, int64_t w, const eg_axis *x, int64_t sx,
                                    const eg_axis *y, int64_t sy)
{
    if (eg__abs64(sx) > eg__abs64(sy)) return eg__ahead_of(from, w, y, sy, x, sx);
    if (sx < 0) from += w * sx * (x->size - 1);
    sx = w * eg__abs64(sx);
    const bool dense = w * sy == sx * x->size; /* one row */
    const int64_t bytes = dense ? sx * x->size * y->size : sx * (x->size - 1) + w,
                  line = dense || sx < EG_LINE ? EG_LINE : sx;
    return (eg_ahead){ from, dense ? 1 : y->size, w * sy, (bytes + line - 1) / line, line, 0 };
}
#endif
