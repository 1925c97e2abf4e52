/* expression.h: formulas (notation/expression.h) over tensors. The files of this folder:
 *
 *   expr.c       eg_expr: its operations and the call; the loop is notation/expression_result.c
 *   affine.c     eg_affine: an activation that is an operation or an expression
 *   composed.c   the composed form, in which each node is an operation on tensors */
#ifndef EG_FORMULA_H
#define EG_FORMULA_H
#include "autograd/autograd.h"

/* The composed form of a formula, in which each node is an operation on tensors. The caller sets
 * all members but value. */
typedef struct eg_composed {
    eg_ctx *cx;
    const eg_expression *e;
    int letters;
    const int64_t *size;  /* of each letter */
    const int64_t *first; /* the position where each letter begins; NULL for 0 */
    eg_dtype floats;      /* of float nodes */
    int count;
    eg_tensor *const *x;            /* the `count` tensors that it reads */
    eg_tensor *value[EG_NODES_MAX]; /* by node: an axis for each letter, of size 1 if the value does
                                     * not depend on it; NULL if it is not computed */
} eg_composed;
/* Returns the value of the formula, with an axis of full size for each letter, and sets c->value;
 * poison after an error. */
eg_tensor *eg__composed(eg_composed *c);
/* Computes the cotangents dx of the tensors from g, that of the value; NULL for a tensor that has
 * none. Must follow eg__composed. False after an error. */
bool eg__composed_slopes(eg_composed *c, eg_tensor *g, eg_tensor **dx);
/* -- for expressions of other folders -- */
/* A call of the operation expr with a parsed expression: its attribute and its operands. */
typedef struct eg_expr_call {
    eg_ctx *cx;
    void *attr;
    size_t bytes;
    int count, tensors; /* number of operands; number of those that the expression reads */
    eg_tensor *operand[EG_TENSORS_MAX + 1];
} eg_expr_call;
/* Prepares the call of an expression over `letters` letters of these sizes, which reads the tensors
 * x, fewer than EG_TENSORS_MAX. If score is not NULL, it is the score that the expression reads,
 * with an axis for each letter; it becomes the last of the tensors. Elements where the bool tensor
 * `allow` is false do not contribute to cotangents of the first order, even if their derivative is
 * infinite; NULL if all contribute. False after an error. */
bool eg__expr_call(eg_expr_call *, eg_ctx *, const eg_expression *, int letters,
                   const int64_t *size, int count, eg_tensor *const *x, eg_tensor *score,
                   eg_tensor *allow);
eg_tensor *eg__expr_value(const eg_expr_call *);
/* Computes the cotangents of the tensors from the cotangent g of the value in one pass; NULL for
 * tensors that have no floats. The results can be differentiated. False after an error. */
bool eg__expr_slopes(const eg_expr_call *, eg_tensor *g, eg_tensor **dx);
#endif
