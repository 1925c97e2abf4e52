/* workspace.h: what the two passes over tiles share. */
#ifndef EG_FLASH_ROOM_H
#define EG_FLASH_ROOM_H
#include "attention/attention.h"

/* threads; the number of the context's buffer */
enum { EG_FLASH_TEAM = 64 };

/* stretches of one buffer; base NULL: only counted */
typedef struct eg_taking {
    char *base;
    int64_t taken;
} eg_taking;
static inline char *eg__take(eg_taking *t, int64_t bytes)
{
    char *p = t->base ? t->base + t->taken : NULL;
    t->taken += eg__round_up(bytes, 64);
    return p;
}

/* c[column][wide] (+)= Σ_p a[p][wide] b[column/narrow][p][column%narrow], columns rounded up;
 * `apart`: bytes from panel to panel of b */
static inline void eg__flash_product(const eg_flash *f, int64_t depth, const char *a, const char *b,
                                     int64_t apart, int64_t columns, bool add, char *c)
{
    const eg_kernel *kn = f->kernel;
    for (int64_t j = 0; j < columns;
         j += f->narrow, b += apart, c += f->narrow * f->wide * f->width)
        if (kn->rows)
            kn->run(kn, depth, b, a, add, c, f->wide, 1);
        else
            kn->run(kn, depth, a, b, add, c, 1, f->wide);
}

/* Of a block of rows that the predicate neither lets all through nor none: those from which and to
 * which something passes, whole panels of them, and among these the ones to be tested. False:
 * nothing passes. */
typedef struct eg_live {
    int64_t from, to, test, tested;
} eg_live;
bool eg__flash_live(const eg_flash *, const eg_flash_batch *, eg_stretch lanes, eg_stretch rows,
                    eg_live *);
/* Does something besides the predicate forbid, or must each pair be known? Then all live rows of a
 * tile are asked for. */
static inline bool eg__flash_tests_all(const eg_flash *f)
{
    return f->data[EG_AT_KEEP] || f->data[EG_AT_KEEP2] || f->careful;
}

/* fused_masked.c: what a product of weights with data[at] left out, numbers that are not finite,
 * added in the pairs that allow has (NULL: all). list: the elements of the tile's rows (turned: of
 * its lanes); columns: the kind of the product's columns; out: as the product's; off: room for an
 * offset a column. Turned: the rows from … to of a block are queries, out their panels. */
void eg__flash_repair(const eg_flash *, const eg_flash_batch *, eg_stretch list, eg_kind columns,
                      int at, double times, const char *weights, const uint8_t *allow, char *out,
                      int64_t *off);
void eg__flash_repair_turned(const eg_flash *, const eg_flash_batch *, eg_stretch list,
                             eg_kind columns, int at, eg_live rows, const char *weights,
                             const uint8_t *allow, char *out, int64_t *off);
#endif
