/* call.h: an einsum that was done before, kept in the context: for what is written and operands of these types, sizes and strides, the
 * result's layout, what its node keeps, and the program. */
#ifndef EG_CALL_H
#define EG_CALL_H
#include "einsum/program.h"

/* a string; with .broadcast; eg_affine's; labels; … + i: the cotangent of operand i */
typedef enum eg_written { EG_SPEC, EG_SPEC_ONES, EG_AFFINE, EG_LABELS, EG_LABELS_BACK } eg_written;
typedef struct eg_wanted { int written, count; size_t length; const void *text; eg_tensor *const *x; } eg_wanted;   /* length: of text */

typedef struct eg_call {
    eg_wanted what;             /* x: NULL                                                            */
    const int64_t *shapes;      /* of each operand: its type and rank, then size and stride by axis   */
    int rank; const int64_t *dim, *stride;      /* of the result                                      */
    size_t attr_size; const void *attr; const eg_program *program;
} eg_call;
const eg_call *eg__call_find(eg_ctx *, const eg_wanted *);
/* with room for attr and program; in the cache, else in the open scope; NULL after an error */
eg_call *eg__call_new(eg_ctx *, const eg_wanted *, const eg_labelled *out, size_t attr_size, void **attr, size_t program_bytes,
                      void **program);

/* -- einsum.c ------------------------------------------------------------------------------------------------------------------ */
extern const eg_order_args eg__any_order;                       /* the best order, without a limit                                */
/* in a row's shape(): the layout of the einsum of y's first `count` operands                                                   */
bool eg__einsum_shape(eg_tensor *y, int count, const uint16_t *const *label, int rank, const uint16_t *out);
/* a new call whose contraction is planned; attr begins with a pointer, which in what is kept points at the call; NULL after an error */
eg_call *eg__call_plan(eg_ctx *, const eg_wanted *, const void *attr, size_t size, int count, eg_tensor *const *x,
                       const uint16_t *const *label, const eg_labelled *out, const eg_order_args *);
eg_tensor *eg__einsum_call(eg_ctx *, const eg_wanted *);        /* what was called before (checked operands); else NULL, and no error */
eg_tensor *eg__einsum_said(const eg_wanted *, const eg_order_args *, int count, eg_tensor *const *x, const uint16_t *const *label,
                           int out_rank, const uint16_t *out); /* eg__einsum_as; what it is called from now on, or NULL       */
#endif
