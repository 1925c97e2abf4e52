/* axes_by_letters.c: eg_axes, which checks the shape of a tensor by a string and reads the sizes of
 * its letters. */
#include "notation/notation.h"
#include <eingrad/ops.h>
#include <stddef.h>
#include <string.h>

bool eg_axes_with(const eg_axes_args *o)
{
    int64_t *out[EG_RANK_MAX] = { NULL };
    const size_t at = offsetof(eg_axes_args, o0);
    if (!o || o->size < at) return false;
    const size_t bytes = o->size - at < sizeof out ? o->size - at : sizeof out;
    memcpy(out, (const char *)o + at, bytes - bytes % sizeof *out);
    int given = EG_RANK_MAX;
    while (given > 0 && !out[given - 1]) given--;
    /* after an error the sizes are 0 instead of undefined */
    for (int k = 0; k < given; k++)
        if (out[k]) *out[k] = 0;
    if (!o->x || !eg__check_usable("axes", o->x)) return false;

    const eg_bound *b =
        eg__bind("axes", o->spec, EG_NOTATION_BRACKETS, 1, (eg_tensor *[]){ o->x }, 0, NULL);
    if (!b) return false;
    if (b->arrow)
        return eg__refuse(b, b->terms, -1,
                          "the string has an output, but axes reads one shape only"),
               false;
    const int axes = b->axes - b->dots;
    if (given > axes)
        return eg__refuse(b, 0, -1, "%d size%s asked for, but the string has %d ax%s", given,
                          given == 1 ? " is" : "s are", axes, axes == 1 ? "is" : "es"),
               false;
    for (int k = 0; k < given; k++)
        if (out[k]) *out[k] = b->axis[k].size;
    return true;
}
