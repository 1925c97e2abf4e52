/* expression.h: formulas (notation/expression.h) as operations of tensors: expr.c. */
#ifndef EG_FORMULA_H
#define EG_FORMULA_H
#include "ops/ops.h"

/* The composed form of a formula: one operation a node. */
typedef struct eg_composed {
    eg_ctx *cx;
    const eg_expression *e;
    int letters;
    const int64_t *size;
    eg_dtype floats;
    int count;
    eg_tensor *const *x;            /* what it reads */
    eg_tensor *score;               /* an axis for each letter; NULL if it is not read */
    eg_tensor *value[EG_NODES_MAX]; /* of nodes: an axis for each letter, 1 where none is needed */
} eg_composed;
/* The value, with all axes; sets c->value. */
eg_tensor *eg__composed(eg_composed *c);
/* After eg__composed: cotangents of what is read, NULL where there is none, from g, that of the
 * value; false after an error. dscore may be NULL. */
bool eg__composed_slopes(eg_composed *c, eg_tensor *g, eg_tensor **dx, eg_tensor **dscore);
/* The least and the largest of whole numbers; 0 and 0 of none. */
void eg__extremes(const eg_tensor *x, int64_t *least, int64_t *most);
#endif
