/* expression_block.h: a block of rows × lanes while the values and cotangents of an expression are
 * computed for it; shared by the files expression_*.c that do so.
 *
 * A value is stored only as often as it varies: one that depends neither on rows nor on lanes as
 * EG_LANES equal elements; one that depends only on rows as one element per row; only on lanes as
 * one element per lane; only on lane − row as rows + lanes − 1 elements, of which those of row r
 * begin at element rows − 1 − r. Rows of a block are padded to whole groups of EG_LANES by
 * repeating the last element, so that the bits of an element do not depend on its position. Sums of
 * cotangents exclude the padding and are computed in f64. */
#ifndef EG_EXPRESSION_BLOCK_H
#define EG_EXPRESSION_BLOCK_H
#include "notation/expression_gather.h"
#include "notation/expression_loops.h"
#include <string.h>

enum { EG_SCORE_BIT = 31 }; /* bit of eg_block_plan.wanted for the cotangent of the score */

/* Where the value of a node is stored: in the workspace, or in place in an operand. */
typedef struct eg_stored {
    char *p;
    int64_t step; /* bytes between rows, if it varies with rows and lanes */
} eg_stored;
/* A block that is being computed. */
typedef struct eg_evaluation {
    const eg_block_plan *p;
    const eg_block_data *b;
    const eg_loops *floats, *integers;
    char *work;         /* the workspace */
    eg_stored *v;       /* by node, its value; this array is at the beginning of the workspace */
    int64_t wide, tall; /* lanes and rows of this block, padded */
    /* by node: it has no cotangent yet; where its cotangent is stored */
    bool fresh[EG_NODES_MAX];
    char *slope[EG_NODES_MAX];
    const uint8_t *diagonals; /* by diagonal: it has an element that counts; NULL if all have */
} eg_evaluation;
/* Returns n, at least 1, rounded up to whole groups of EG_LANES. */
static inline int64_t eg__block_padded(int64_t n) { return eg__round_up(n > 0 ? n : 1, EG_LANES); }
/* Returns the bytes of an element of node k. */
static inline int eg__node_width(const eg_block_plan *p, int k)
{
    const int kind = p->e->node[k].kind;
    return kind == EG_IS_CONDITION ? 1 : kind == EG_IS_FLOAT ? p->f64 ? 8 : 4 : p->narrow ? 4 : 8;
}
/* Sets all but the cotangents. */
static inline void eg__evaluation(eg_evaluation *x, const eg_block_plan *p, const eg_block_data *b,
                                  void *workspace)
{
    x->p = p;
    x->b = b;
    x->floats = eg__loops[p->f64];
    x->integers = eg__loops[!p->narrow];
    x->work = workspace;
    x->v = workspace;
    x->wide = eg__block_padded(b->lanes);
    x->tall = eg__block_padded(b->rows);
    x->diagonals = NULL;
}
/* Returns how many elements a value that varies with lane − row has, including the padding of its
 * last row. */
static inline int64_t eg__diagonal_padded(int64_t rows, int64_t lanes)
{
    return eg__block_padded(rows - 1 + eg__block_padded(lanes));
}
/* Returns one of four buffers for a row of any type. */
static inline void *eg__row_buffer(const eg_evaluation *x, int which)
{
    return x->work + x->p->scratch + which * eg__diagonal_padded(x->p->rows, x->p->lanes) * 8;
}
/* Returns how many elements node k has in one row, including the padding; eg__node_count: without
 * it. */
static inline int64_t eg__node_length(const eg_evaluation *x, int k)
{
    switch (x->p->extent[k]) {
    case EG_EXTENT_ONE: return EG_LANES;
    case EG_EXTENT_ROWS: return x->tall;
    case EG_EXTENT_DIAGONAL: return eg__diagonal_padded(x->b->rows, x->b->lanes);
    default: return x->wide;
    }
}
static inline int64_t eg__node_count(const eg_evaluation *x, int k)
{
    switch (x->p->extent[k]) {
    case EG_EXTENT_ONE: return 1;
    case EG_EXTENT_ROWS: return x->b->rows;
    case EG_EXTENT_DIAGONAL: return x->b->rows - 1 + x->b->lanes;
    default: return x->b->lanes;
    }
}
/* Returns the elements of node k in row r of the block. Sets *step to the bytes between rows. */
static inline const char *eg__node_row(const eg_evaluation *x, int k, int64_t r, int64_t *step)
{
    const eg_stored *v = &x->v[k];
    const int width = eg__node_width(x->p, k);
    switch (x->p->extent[k]) {
    case EG_EXTENT_BLOCK: *step = v->step; break;
    case EG_EXTENT_ROWS: *step = width; break;
    case EG_EXTENT_DIAGONAL: *step = -width; return v->p + (x->b->rows - 1 - r) * width;
    default: *step = 0;
    }
    return v->p + r * *step;
}
/* The elements of a tensor that one row of a read takes: element l along lanes (along rows, if the
 * read depends only on rows) is at base + l step; or, if step is INT64_MIN, at base + offset[l]. */
typedef struct eg_reach {
    int64_t base, step;
    int64_t *offset;
} eg_reach;
/* Fills elements n … to − 1 with copies of element n − 1. */
void eg__pad_row(int width, int64_t n, int64_t to, char *p);
/* Returns the elements that read k takes in row r of tensors with these strides; r is 0 if the read
 * does not vary with both rows and lanes. */
eg_reach eg__reach_of(const eg_evaluation *x, int k, int64_t r, const int64_t *stride);
/* True if the tensor of a read has no elements. */
bool eg__reads_empty(const eg_evaluation *x, const eg_node *n);
/* Sets *g to the elements that read k takes in a block, for tensors with these strides and with
 * `lanes` lanes per row. False if the read varies with rows only; if several of its indices vary
 * along lanes, and the block has a single row, or they all vary with lane − row only, or their sums
 * need wider integers than the plan's. */
bool eg__gather_of(const eg_evaluation *x, int k, const int64_t *stride, int64_t lanes,
                   eg_gather *g);
/* Sets the values of read k: in place if the tensor has them in the required layout, else gathered
 * row by row. */
void eg__read_values(const eg_evaluation *x, int k);
/* True if node k and its operands are stored such that all rows can be computed as a single one. */
bool eg__is_flat(const eg_evaluation *x, int k);
/* Runs a loop over the rows of node k. */
void eg__strip_run(const eg_evaluation *x, int k, eg_strip_loop *loop, eg_loop_strip *s);
#endif
