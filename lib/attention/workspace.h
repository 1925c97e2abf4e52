/* workspace.h: what the two passes over tiles have in common. */
#ifndef EG_WORKSPACE_H
#define EG_WORKSPACE_H
#include "attention/attention.h"

enum { EG_FLASH_TEAM = 64 }; /* threads at most */

/* One buffer, given out in pieces of whole cache lines. base NULL: they are only counted. */
typedef struct eg_workspace {
    char *base;
    int64_t taken;
} eg_workspace;
static inline char *eg__workspace_take(eg_workspace *t, int64_t bytes)
{
    char *p = t->base ? t->base + t->taken : NULL;
    t->taken += eg__round_up(bytes, 64);
    return p;
}

/* c[column][wide] (+)= Σ_p a[p][wide] b[column/narrow][p][column%narrow], for p < depth and the
 * columns rounded up to whole panels, which lie b_step bytes apart in b. */
static inline void eg__flash_product(const eg_flash *f, int64_t depth, const char *a, const char *b,
                                     int64_t b_step, int64_t columns, bool add, char *c)
{
    f->kernel.run(&f->kernel, depth, a, b, b_step, columns, add, c);
}

/* The rows of a block that count for a panel of lanes, as the predicate says: it forbids all before
 * `from` and from `to` on, and allows all before `test` and from `tested` on, where from ≤ test ≤
 * tested ≤ to. Whole panels but for the last. */
typedef struct eg_live {
    int64_t from, to, test, tested;
} eg_live;
/* False if the predicate forbids all rows. */
bool eg__flash_live(const eg_flash *, const eg_flash_batch *, eg_stretch lanes, eg_stretch rows,
                    eg_live *);
/* True if each pair of the live rows has to be looked at: something besides the predicate forbids,
 * or an operand is not tame. */
static inline bool eg__flash_tests_all(const eg_flash *f)
{
    return f->data[EG_SLOT_KEEP] || f->data[EG_SLOT_LENGTHS] || f->careful;
}

/* -- fused_masked.c --------------------------------------------------------------------------- */
/* Adds to the product `out` of weights and array `at` what was left out of it: numbers times
 * elements of the array that are not finite, in the pairs that `allow` has (NULL: in all). `list`
 * are the elements of the tile's rows, `columns` the part of the product's columns; off is room for
 * an offset for each of these. */
void eg__flash_repair(const eg_flash *, const eg_flash_batch *, eg_stretch list, eg_part columns,
                      int at, double times, const char *weights, const uint8_t *allow, char *out,
                      int64_t *off);
/* The same of the transposed tile: `list` are the elements of its lanes, and `out` has the rows
 * rows.from … rows.to of a block, in panels. */
void eg__flash_repair_turned(const eg_flash *, const eg_flash_batch *, eg_stretch list,
                             eg_part columns, int at, eg_live rows, const char *weights,
                             const uint8_t *allow, char *out, int64_t *off);
#endif
