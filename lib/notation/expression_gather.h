/* expression_gather.h: reading a tensor at indices that vary along the lanes of a block, and adding
 * to it there. expression_gather.c defines the functions; expression_read.c and expression_slopes.c
 * call them. */
#ifndef EG_EXPRESSION_GATHER_H
#define EG_EXPRESSION_GATHER_H
#include "notation/integer.h"

/* Rows of elements of a tensor: element k of row r is at base[r] + stride · index[r][k]. counts:
 * the index is first + k in each row, and needs no clamping. */
typedef struct eg_gather {
    int64_t rows, lanes;
    const int64_t *base; /* by row, in elements; NULL for 0 */
    const void *index;   /* int32_t if narrow, else int64_t */
    bool narrow, counts;
    int64_t first;
    int64_t index_step;    /* distance of the rows of `index` in elements */
    int64_t stride, limit; /* limit: indices are clamped to 0 … limit, unless it is negative */
} eg_gather;
/* Returns the offset of the first element, if `counts`. */
static inline int64_t eg__gather_first(const eg_gather *g)
{
    return (g->base ? g->base[0] : 0) + g->first * g->stride;
}
/* Returns the distance of the rows of a gather that `counts`, in elements; INT64_MIN if it is not
 * the same for all rows, or if the gather does not count. */
int64_t eg__gather_apart(const eg_gather *);
/* out[r][k] = element k of row r of `from`. Rows of out are out_step elements apart; lanes is a
 * multiple of EG_LANES unless the gather `counts`. Integers are converted to `width` bytes. */
void eg__gather_rows(const eg_gather *, eg_dtype dtype, const void *from, int width, void *out,
                     int64_t out_step);
/* Adds x[r][k], floats of `width` bytes, to element k of row r of `to`, row by row. If all EG_LANES
 * indices of a group are equal, their summands are first added pairwise. `to` has floats of the
 * same width if `same`, else doubles. */
void eg__scatter_rows(const eg_gather *, int width, const void *x, int64_t x_step, bool same,
                      void *to);
#endif
