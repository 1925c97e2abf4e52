/* axes.h: finds where the elements of several operands lie that have their axes in common.
 *
 * An axis is an array of numbers: its size, then a step for each operand, in elements or in bytes.
 * A struct that begins with these numbers can be walked as it is: `axis` points to the first number
 * of the outermost axis, and each axis begins `pitch` numbers after the one outside it. Callers
 * give pitch and operands as constants, so that both are known when a function is compiled. */
#ifndef EG_AXES_H
#define EG_AXES_H
#include <stdbool.h>
#include <stdint.h>

/* Sets at[k] to the offset of element number i, row-major, in operand k, and index[] (unless NULL)
 * to its index along each axis. */
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
