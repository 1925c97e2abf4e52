/* table.c: the table of operations: each file with operations ends in a list of them, and this file
 * lists these lists (eg_op_at). */
#include "gradcheck/gradcheck.h"

/* clang-format off */
#define LISTS(X) X(view) X(reshape) X(convert) X(add) X(einsum) X(expand) X(affine) X(pointwise) \
    X(binary) X(compare) X(reduce) X(prod) X(extreme) X(pnorm) X(softmax) X(fused) X(masked)  \
    X(norm) X(loss) X(dropout) X(index) X(accumulate) X(join) X(pack) X(scan) X(sort) X(band) \
    X(convolve) X(recompute) X(expr) X(copies) X(solve)
/* clang-format on */

#define DECLARE(name) extern const eg_op *const eg__##name##_ops[];
#define REF(name)     eg__##name##_ops,
LISTS(DECLARE)
static const eg_op *const *const lists[] = { LISTS(REF) };

bool eg__in_table(const eg_op *op)
{
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const eg_op *const *at = lists[l]; *at; at++)
            if (*at == op) return true;
    return false;
}
const eg_op *eg_op_at(int k)
{
    for (size_t l = 0; l < sizeof lists / sizeof *lists && k >= 0; l++)
        for (const eg_op *const *at = lists[l]; *at; at++)
            if (k-- == 0) return *at;
    return NULL;
}
