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

/* A list of pairs of neighbouring lines for eg_wide_run, of at most `most`. */
typedef struct eg_lines {
    int n, most;
    const char *at[EG_KC / EG_AHEAD_EVERY];
} eg_lines;
/* Appends the next `count` lines of x to a list, or as many as fit; lines that are not neighbours
 * each with the line after it. */
static inline void eg__lines_add(eg_lines *l, eg_ahead *x, int64_t count)
{
    const int64_t each = x->line == EG_LINE ? 2 : 1, step = each * x->line;
    while (count > 0 && x->rows > 0 && l->n < l->most) {
        const int64_t lines = eg__min64(count, x->lines - x->at),
                      n = eg__min64((lines + each - 1) / each, l->most - l->n);
        const char *from = x->row + x->at * x->line, **to = l->at + l->n;
        for (int64_t i = 0; i < n; i++) to[i] = from + i * step;
        l->n += (int)n;
        count -= n * each;
        x->at += n * each;
        if (x->at < x->lines) continue;
        x->at = 0;
        x->row += x->step;
        x->rows--;
    }
}
/* Appends the lines of `pieces` contiguous pieces of `bytes` bytes, `step` bytes apart. */
static inline void eg__lines_add_tile(eg_lines *l, const char *at, int64_t bytes, int pieces,
                                      int64_t step)
{
    for (; bytes > 0; bytes -= 2 * EG_LINE, at += 2 * EG_LINE)
        eg__lines_add(l, &(eg_ahead){ at, 1, 0, pieces, step, 0 }, pieces);
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
    const int64_t lines = (bytes + line - 1) / line;
    if (lines == 1) return (eg_ahead){ from, 1, 0, y->size, w * sy, 0 };
    return (eg_ahead){ from, dense ? 1 : y->size, w * sy, lines, line, 0 };
}
#endif
