/* accumulate.h: the cotangent of a tensor that was read through views and indices: y = Σ_k L_kᵀ
 * g_k, in one buffer. */
#ifndef EG_ACCUMULATE_H
#define EG_ACCUMULATE_H
#include "impl.h"

enum { EG_ADDEND_DEPTH = 16 };
/* A contribution g to the cotangent of the tensor that lies `depth` operands before t: t is a view
 * of a view … of it (depth 1: of the tensor itself; the last step may be eg_at), and g has t's
 * shape. depth 0: t is the tensor. */
typedef struct eg__addend {
    struct eg__addend *next;
    eg_tensor *t, *g;
    int depth;
} eg__addend;

/* Would t's rule put g into zeros of its operand's shape? */
bool eg__addend_due(const eg_tensor *t);
/* True if g can be added through t and what lies before it, up to the tensor `depth` operands
 * before t, without a buffer between. */
bool eg__addend_fits(const eg_tensor *t, int depth);
/* The sum in the order of the list, which has `count` parts; one node, whose rule reads its
 * cotangent as t was read. */
eg_tensor *eg__accumulate(eg_ctx *, int count, const eg__addend *first);
#endif
