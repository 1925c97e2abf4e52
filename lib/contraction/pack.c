/* pack.c: one micro-panel: dst[p·w + i] = src[off[i] + k(p)], for w rows and a part of k that is
 * given as runs of constant stride; rows after the last are 0. Data is only moved, so one function
 * serves floats and integers of a width. Consecutive rows are copied, consecutive elements of k are
 * transposed in registers, everything else is gathered. */
#include "contraction/gemm.h"
#include <string.h>

#define WORD    uint32_t
#define NAME(x) x##32
#include "contraction/pack_of.h"

#define WORD    uint64_t
#define NAME(x) x##64
#include "contraction/pack_of.h"

void eg__pack(size_t width, int w, int64_t rows, const int64_t *off, int64_t rs, int runs,
              const eg_run *run, const void *src, void *dst, int64_t k)
{
    if (width == 4)
        panel32(w, rows, off, rs, runs, run, src, dst, k);
    else
        panel64(w, rows, off, rs, runs, run, src, dst, k);
}
