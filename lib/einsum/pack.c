/* pack.c: one micro-panel: dst[p·w + i] = src[off[i] + k(p)], for w rows and a stretch of k given as runs of constant stride; rows
 * beyond the last are 0. Data only moves, so one body serves floats and integers of a width. Three ways: rows that are neighbours
 * are copied, runs of neighbours are turned in registers, everything else is gathered. */
#include "einsum/gemm.h"
#include <string.h>

typedef uint32_t vec32 __attribute__((vector_size(16)));
typedef uint64_t vec64 __attribute__((vector_size(16)));

#define SHUFFLE(...) __builtin_shufflevector(__VA_ARGS__)
#define WORD uint32_t
#define LANES 4
#define NAME(x) x##32
#define SQUARE(x, y)                                                                                                               \
    vec32 a = SHUFFLE(x[0], x[1], 0, 4, 1, 5), b = SHUFFLE(x[2], x[3], 0, 4, 1, 5);                                                \
    vec32 c = SHUFFLE(x[0], x[1], 2, 6, 3, 7), d = SHUFFLE(x[2], x[3], 2, 6, 3, 7);                                                \
    y[0] = SHUFFLE(a, b, 0, 1, 4, 5), y[1] = SHUFFLE(a, b, 2, 3, 6, 7);                                                            \
    y[2] = SHUFFLE(c, d, 0, 1, 4, 5), y[3] = SHUFFLE(c, d, 2, 3, 6, 7);
#include "einsum/pack_of.h"
#undef WORD
#undef LANES
#undef NAME
#undef SQUARE

#define WORD uint64_t
#define LANES 2
#define NAME(x) x##64
#define SQUARE(x, y) y[0] = SHUFFLE(x[0], x[1], 0, 2); y[1] = SHUFFLE(x[0], x[1], 1, 3);
#include "einsum/pack_of.h"

void eg__pack(size_t width, int w, int64_t rows, const int64_t *off, int64_t rs, int runs, const eg_run *run, const void *src, void *dst, int64_t k)
{
    if (width == 4) panel32(w, rows, off, rs, runs, run, src, dst, k);
    else panel64(w, rows, off, rs, runs, run, src, dst, k);
}
