/* expression_gather.h: reading a tensor at indices that vary along the lanes of a block, and adding
 * to it there; expression_gather.c defines the functions; expression_read.c and expression_slopes.c
 * call them. */
#ifndef EG_EXPRESSION_GATHER_H
#define EG_EXPRESSION_GATHER_H
#include "notation/integer.h"

/* Rows of elements of a tensor: element k of row r is at base[r] + stride · index[r][k]. */
typedef struct eg_gather {
    int64_t rows, lanes;
    const int64_t *base; /* of each row, in elements; NULL: 0 */
    const void *index;   /* int32_t if narrow, else int64_t */
    bool narrow;
    int64_t index_step;    /* elements of `index` from row to row */
    int64_t stride, limit; /* indices are clamped to 0 … limit, unless limit is negative */
} eg_gather;
/* out[r][k] = the element of `from`; out_step: elements from row to row. lanes is a multiple of
 * EG_LANES. Whole numbers are converted to `width` bytes. */
void eg__gather_rows(const eg_gather *, eg_dtype dtype, const void *from, int width, void *out,
                     int64_t out_step);
/* Adds x[r][k], floats of `width` bytes, to the element of `to`, row by row. Neighbours that go to
 * one element are added to each other first, EG_LANES of them pairwise. */
void eg__scatter_rows(const eg_gather *, int width, const void *x, int64_t x_step, double *to);
#endif
