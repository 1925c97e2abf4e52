/* expression_block.h: a block of rows × lanes while the values and cotangents of an expression are
 * computed over it; shared by the expression_*.c that do so.
 *
 * A value is computed only as often as it varies: one that depends neither on rows nor on lanes is
 * stored as EG_LANES equal numbers, one that depends on rows alone as a number for each row, on
 * lanes alone as a number for each lane, and on lane − row alone as rows + lanes − 1 numbers, of
 * which those of row r begin at number rows − 1 − r. Rows of a block are padded to whole groups of
 * EG_LANES by repeating the last value, so that the bits of an element do not depend on where it
 * lies. Sums of cotangents leave the padding out and are made in doubles. */
#ifndef EG_EXPRESSION_BLOCK_H
#define EG_EXPRESSION_BLOCK_H
#include "notation/expression_gather.h"
#include "notation/expression_loops.h"
#include <string.h>

enum { EG_SCORE_BIT = 31 }; /* of eg_block_plan.wanted: the cotangent of the score */

/* Where the value of a node lies: in the workspace, or in place in an operand. */
typedef struct eg_stored {
    char *p;
    int64_t step; /* bytes from row to row, if it varies with rows and lanes */
} eg_stored;
/* A block that is being computed. */
typedef struct eg_evaluation {
    const eg_block_plan *p;
    const eg_block_data *b;
    const eg_loops *floats, *integers;
    char *work;         /* the workspace */
    eg_stored *v;       /* of each node, its value; at the beginning of the workspace */
    int64_t wide, tall; /* lanes and rows of this block, padded */
    /* of each node: it has no cotangent yet; where its cotangent lies */
    bool fresh[EG_NODES_MAX];
    char *slope[EG_NODES_MAX];
    const uint8_t *diagonals; /* those with an element that counts; NULL: all */
} eg_evaluation;
/* Returns n, at least 1, rounded up to whole groups of EG_LANES. */
static inline int64_t eg__block_padded(int64_t n) { return eg__round_up(n > 0 ? n : 1, EG_LANES); }
/* Returns the bytes of a number of node k. */
static inline int eg__node_width(const eg_block_plan *p, int k)
{
    const int kind = p->e->node[k].kind;
    return kind == EG_IS_CONDITION ? 1 : kind == EG_IS_FLOAT ? p->f64 ? 8 : 4 : p->narrow ? 4 : 8;
}
static inline eg_evaluation eg__evaluation(const eg_block_plan *p, const eg_block_data *b,
                                           void *workspace)
{
    return (eg_evaluation){ .p = p,
                            .b = b,
                            .floats = eg__loops[p->f64],
                            .integers = eg__loops[!p->narrow],
                            .work = workspace,
                            .v = workspace,
                            .wide = eg__block_padded(b->lanes),
                            .tall = eg__block_padded(b->rows) };
}
/* Returns how many numbers a value that varies with lane − row has, with the padding of its last
 * row. */
static inline int64_t eg__diagonal_padded(int64_t rows, int64_t lanes)
{
    return eg__block_padded(rows - 1 + eg__block_padded(lanes));
}
/* Returns one of four buffers of a row of any type. */
static inline void *eg__row_buffer(const eg_evaluation *x, int which)
{
    return x->work + x->p->scratch + which * eg__diagonal_padded(x->p->rows, x->p->lanes) * 8;
}
/* Returns how many numbers node k has in one row, with the padding; eg__node_count: without. */
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
/* Returns the numbers of node k in row r of the block; *step: bytes to those of the next row. */
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
/* The positions of the tensor that one row of a read takes, in elements: element l along lanes (along
 * rows, if the read depends on rows alone) is at base + l step or, if step is INT64_MIN, at base +
 * offset[l]. */
typedef struct eg_reach {
    int64_t base, step;
    int64_t *offset;
} eg_reach;
/* Writes n copies of the number `one`, of `width` bytes. */
void eg__copies(int width, int64_t n, void *to, const void *one);
/* Fills elements n … to − 1 with copies of element n − 1. */
void eg__pad_row(int width, int64_t n, int64_t to, char *p);
/* Finds the positions of read k for row r of tensors with these strides; r is 0 if the read does not
 * vary with rows and lanes. */
eg_reach eg__reach_of(const eg_evaluation *x, int k, int64_t r, const int64_t *stride);
/* True if the tensor of a read has no elements. */
bool eg__reads_empty(const eg_evaluation *x, const eg_node *n);
/* Sets *g to the positions of read k in a block, for tensors with these strides, if exactly one of its
 * indices varies along lanes, or with lane − row; the last lanes of a row are `lanes` − 1. False if
 * more of them do. */
bool eg__gathered_by_one(const eg_evaluation *x, int k, const int64_t *stride, int64_t lanes,
                         eg_gather *g);
/* Sets the values of read k: in place if they lie in the tensor as the block needs them, else they
 * are gathered row by row. */
void eg__read_values(const eg_evaluation *x, int k);
/* True if node k and its operands lie such that all rows can be computed as one long row. */
bool eg__is_flat(const eg_evaluation *x, int k, bool values);
/* Runs a loop over the rows of node k; if it has no form for the operands, row by row with single
 * numbers copied along the row. */
void eg__strip_run(const eg_evaluation *x, int k, bool values, eg_strip_loop *loop, eg_strip *s);
#endif
