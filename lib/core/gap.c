/* gap.c: finds positions in one block of memory for arrays that are used at different times, so that
 * arrays that are not used at the same time may share bytes. A contraction places its intermediates
 * with it, and a captured step its results. */
#include "core/core.h"

/* Sorts n stretches by where they begin: heapsort, which allocates nothing. */
static void gap_sort(int64_t n, eg__stretch *x)
{
    for (int64_t heap = n / 2, end = n; end > 1;) {
        eg__stretch moved;
        if (heap > 0)
            moved = x[--heap];
        else {
            moved = x[--end];
            x[end] = x[0];
        }
        int64_t at = heap;
        for (int64_t child; (child = 2 * at + 1) < end; at = child) {
            if (child + 1 < end && x[child + 1].from > x[child].from) child++;
            if (x[child].from <= moved.from) break;
            x[at] = x[child];
        }
        x[at] = moved;
    }
}

int64_t eg__gap(int64_t bytes, int64_t n, eg__stretch *taken)
{
    int64_t at = 0;
    gap_sort(n, taken);
    for (int64_t k = 0; k < n; k++) {
        if (taken[k].from >= at + bytes) break;
        if (taken[k].to > at) at = taken[k].to;
    }
    return at;
}
