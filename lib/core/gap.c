/* gap.c: assigns addresses in one block of memory to arrays, so that arrays that are in use at
 * different times may share bytes. Contractions use it for their intermediates, captured steps for
 * their results. */
#include "core/core.h"

/* Sorts n ranges by their start: heapsort, which allocates nothing. */
static void gap_sort(int64_t n, eg__byte_range *x)
{
    for (int64_t heap = n / 2, end = n; end > 1;) {
        eg__byte_range moved;
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

int64_t eg__gap(int64_t bytes, int64_t n, eg__byte_range *taken)
{
    int64_t at = 0;
    gap_sort(n, taken);
    for (int64_t k = 0; k < n; k++) {
        if (taken[k].from >= at + bytes) break;
        if (taken[k].to > at) at = taken[k].to;
    }
    return at;
}
