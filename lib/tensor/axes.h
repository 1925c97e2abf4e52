/* axes.h: finds the offsets of elements of several operands that have their axes in common. An axis
 * is an array of integers: its size, then a step for each operand, in elements or in bytes. Arrays
 * of structs that begin with these integers can be traversed directly: `axis` points to the first
 * integer of the outermost axis, and each axis begins `pitch` integers after the previous one.
 * Callers give pitch and operands as constants, so that the compiler knows both. */
#ifndef EG_AXES_H
#define EG_AXES_H
#include <stdbool.h>
#include <stdint.h>

/* Sets at[k] to the offset in operand k of the element with the given row-major number, and index[]
 * (unless NULL) to its index along each axis. */
static inline void eg__axes_to(int axes, const int64_t *axis, int pitch, int operands, int64_t i,
                               int64_t *index, int64_t *at)
{
    for (int k = 0; k < operands; k++) at[k] = 0;
    for (int r = axes - 1; r >= 0 && (i || index); r--) {
        const int64_t *x = axis + r * pitch, here = i ? i % x[0] : 0;
        if (i) i /= x[0];
        for (int k = 0; k < operands; k++) at[k] += here * x[1 + k];
        if (index) index[r] = here;
    }
}
/* Goes to the next element and returns true; after the last one goes back to the first and returns
 * false. */
static inline bool eg__axes_next(int axes, const int64_t *axis, int pitch, int operands,
                                 int64_t *index, int64_t *at)
{
    for (int r = axes - 1; r >= 0; r--) {
        const int64_t *x = axis + r * pitch;
        for (int k = 0; k < operands; k++) at[k] += x[1 + k];
        if (++index[r] < x[0]) return true;
        index[r] = 0;
        for (int k = 0; k < operands; k++) at[k] -= x[0] * x[1 + k];
    }
    return false;
}
#endif
