/* fused_masked.c: products of tiles under masks, for operands with elements that are not finite.
 * A forbidden pair has the weight 0, but 0 · NaN is NaN. If an operand has such elements, the
 * panels that are multiplied with weights contain 0 in their place, and the functions of this
 * file add their products in allowed pairs. */
#include "attention/workspace.h"

#define T       double
#define NAME(x) x##_f64
#include "attention/fused_masked_of.h"
#undef T
#undef NAME
#define T       float
#define NAME(x) x##_f32
#include "attention/fused_masked_of.h"

void eg__fused_repair(const eg_fused *f, const eg_fused_batch *b, eg_stretch list, eg_part columns,
                      int at, double times, bool zeros, const char *weights, const uint8_t *allow,
                      char *out, int64_t *off)
{
    eg__fused_offsets(f, columns, at, 0, f->list[columns].total, off);
    (f->width == 8 ? repair_f64 : repair_f32)(f, b, list, columns, at, times, zeros, NULL, weights,
                                              allow, out, off);
}
void eg__fused_repair_turned(const eg_fused *f, const eg_fused_batch *b, eg_stretch list,
                             eg_part columns, int at, const eg_live *rows, const char *weights,
                             const uint8_t *allow, char *out, int64_t *off)
{
    eg__fused_offsets(f, columns, at, 0, f->list[columns].total, off);
    (f->width == 8 ? repair_f64 : repair_f32)(f, b, list, columns, at, 1, f->a->rescored, rows,
                                              weights, allow, out, off);
}
