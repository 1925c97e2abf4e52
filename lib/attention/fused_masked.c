/* fused_masked.c: tiles beside masks, where operands have numbers that are not finite.
 *
 * A forbidden pair has the weight 0, but the products of a tile would make 0 NaN = NaN of it. Where
 * an operand is not tame, the panels that are multiplied with weights hold 0 for what is not
 * finite, and here those numbers are added to the pairs that may see them. */
#include "attention/workspace.h"

#define EVERY_COLUMN(T, BODY)                                                  \
    do {                                                                       \
        const T *x = (const T *)(void *)f->data[at] + b->at[at],               \
                *weight = (const T *)(const void *)weights;                    \
        T *to = (T *)(void *)out;                                              \
        for (int64_t r = 0; r < list.count; r++) {                             \
            const T *line = x + eg__flash_at(f, list.kind, at, list.from + r); \
            for (int64_t c = 0; c < f->list[columns].total; c++) {             \
                const T v = line[off[c]] * (T)times;                           \
                if (v - v == 0) continue;                                      \
                BODY                                                           \
            }                                                                  \
        }                                                                      \
    } while (0)

void eg__flash_repair(const eg_flash *f, const eg_flash_batch *b, eg_stretch list, eg_kind columns,
                      int at, double times, const char *weights, const uint8_t *allow, char *out,
                      int64_t *off)
{
    const int64_t wide = f->wide;
    eg__flash_offsets(f, columns, at, 0, f->list[columns].total, off);
#define LANES_OF_A_ROW                 \
    for (int64_t l = 0; l < wide; l++) \
        if (!allow || allow[r * wide + l]) to[c * wide + l] += weight[r * wide + l] * v;
    if (f->width == 8)
        EVERY_COLUMN(double, LANES_OF_A_ROW);
    else
        EVERY_COLUMN(float, LANES_OF_A_ROW);
}
void eg__flash_repair_turned(const eg_flash *f, const eg_flash_batch *b, eg_stretch list,
                             eg_kind columns, int at, eg_live rows, const char *weights,
                             const uint8_t *allow, char *out, int64_t *off)
{
    const int64_t wide = f->wide, panel = eg__round_up(f->list[columns].total, f->narrow) * wide;
    const double times = 1;
    eg__flash_offsets(f, columns, at, 0, f->list[columns].total, off);
#define ROWS_OF_A_LANE                                                                       \
    for (int64_t i = rows.from; i < rows.to; i++) {                                          \
        const int64_t k = (i - rows.from) * wide + r;                                        \
        if (!allow || allow[k]) to[i / wide * panel + c * wide + i % wide] += weight[k] * v; \
    }
    if (f->width == 8)
        EVERY_COLUMN(double, ROWS_OF_A_LANE);
    else
        EVERY_COLUMN(float, ROWS_OF_A_LANE);
}
