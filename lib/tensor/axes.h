/* axes.h: where the elements of several operands lie that share their axes.
 *
 * An axis is an array of numbers: its size, then a step for each operand, in elements or in bytes.
 * Structs that begin so are walked as they are: `axis` is the first number of the outermost one,
 * and each begins `pitch` numbers after the one around it. Callers give pitch and operands as
 * constants, so that nothing of this is left to run time. */
#ifndef EG_AXES_H
#define EG_AXES_H
#include <stdbool.h>
#include <stdint.h>

/* Sets at[k] to the place of element number i, row-major, in operand k, and index, unless it is
 * NULL, to its index along each axis. */
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
/* Goes on to the next element; after the last one, which returns false, to the first. */
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
