/* einsum.h: einsum, and the cache of its calls.
 *
 *   call.c     the public einsum: reads a string for given tensors, options
 *   einsum.c   the operation on labels and tensors; its rule is an einsum again
 *   planned.c  calls of it: programs from the cache of plans, or planned
 *   tree.c     three and more operands: the values that are kept for the gradient, and the gradient
 *   pass.c     all gradients of such an einsum at once, while nothing is recorded
 *   expand.c   broadcast axes, whose adjoint is a sum
 *   plan.c     eg_plan: a planned einsum that no context owns
 *   explain.c  a description of how an einsum would be computed */
#ifndef EG_EINSUM_H
#define EG_EINSUM_H
#include "contraction/contraction.h"
#include "notation/notation.h"

/* -- call.c ----------------------------------------------------------------------------------- */
/* A label below EG_LETTERS is that letter of the string, for messages and graphs; EG_LETTERS + k is
 * the name with number k. */
enum { EG_LETTERS = 128 };
typedef struct eg_term_labels { /* of one operand or of the output; `items` is the number of axes */
    int items;
    bool changed;           /* it has groups or 1s: the tensor must be viewed with sizes dim */
    const uint16_t *label;  /* the numbers of the axes, from 0 */
    const uint16_t *letter; /* the same labels as nodes store them: see EG_LETTERS */
    const int64_t *dim;     /* the sizes of the axes */
} eg_term_labels;
typedef struct eg_spec_labels { /* a string that was read for operands of certain sizes */
    int rank;                   /* rank of the result, whose groups are merged */
    const int64_t *dim;
    eg_term_labels out, operand[];
} eg_spec_labels;
/* Reads spec for the operands of operation `who`, and sets x[k] to operand k viewed with one axis
 * per label. The result is an entry of the cache of plans, valid until the next eg__plans_add. NULL
 * after an error. */
const eg_spec_labels *eg__labels_of_spec(eg_ctx *, const char *who, const char *spec,
                                         bool broadcast, int count, eg_tensor *const *operand,
                                         eg_tensor **x);
/* True if there is a spec and all operands can be used; else records an error. */
bool eg__einsum_usable(eg_ctx *, const eg_einsum_args *);
/* True if all operands have one dtype, except that f16 and bf16 may be combined with floats; else
 * records an error that names the first operand that differs. */
bool eg__einsum_dtypes(eg_ctx *, int count, eg_tensor *const *x);
/* Returns the order that the options request. */
eg_order_args eg__order_of(const int (*path)[2], int steps, int64_t limit, int64_t keep_limit);
/* True if the factor `name`, alpha or beta, is an integer or the result is not of an integer dtype;
 * else records an error. */
bool eg__factor_fits(eg_ctx *, const char *name, double factor, eg_dtype dtype);
/* True if out has the dtype and the sizes of the result; else records an error. */
bool eg__out_fits(eg_ctx *, const eg_tensor *out, eg_dtype, const eg_spec_labels *);

/* -- plan.c ----------------------------------------------------------------------------------- */
/* Returns a tensor of that shape without elements, for planning; poison after an error. */
eg_tensor *eg__shape_only(eg_ctx *, const eg_shape *);

/* -- einsum.c --------------------------------------------------------------------------------- */
/* The attribute of a node: the factor, and the labels of all operands one after another, then those
 * of the output. */
typedef struct eg_einsum_attr {
    double alpha;
    int64_t limit;
    int out_rank;
    uint16_t label[]; /* begins in the last bytes of sizeof(eg_einsum_attr) */
} eg_einsum_attr;
enum { EG_EINSUM_HEAD = offsetof(eg_einsum_attr, label) };
extern const eg_op eg__einsum_op;
/* True if no label occurs twice among the n labels. */
bool eg__labels_distinct(const uint16_t *label, int n);
/* Returns y[out] = Σ Π x_k[label_k], summed over the labels that are not in out, as one node. A
 * label may repeat in an operand (its diagonal) and in out (a diagonal in zeros). The caller has
 * checked that every label of out is in some operand and that sizes agree. */
eg_tensor *eg__einsum(int count, eg_tensor *const *x, const uint16_t *const *label, int out_rank,
                      const uint16_t *out);
/* alpha times eg__einsum, in a given order of pairs or with a limit, stored in the cache under a
 * key; key NULL: under its labels and the order. */
eg_tensor *eg__einsum_keyed(const eg_plan_key *, const eg_order_args *, double alpha, int count,
                            eg_tensor *const *x, const uint16_t *const *label, int out_rank,
                            const uint16_t *out);
/* Returns alpha times the einsum that is stored under that key, of operands that were checked
 * before; NULL (no error) if there is none. */
eg_tensor *eg__einsum_lookup(eg_ctx *, const eg_plan_key *, double alpha);
/* target = alpha Σ Π x_k, or target += with `add`. Not recorded; target must overlap no operand.
 * False after an error. */
bool eg__einsum_into(eg_tensor *target, double alpha, bool add, const eg_order_args *, int count,
                     eg_tensor *const *x, const uint16_t *const *label, const uint16_t *out);
/* If y is an einsum, and the cotangent of its operand i, overlapping windows, is a product of g and
 * the other operand without a sum, sets factor[] to views of both, whose axes have the order of
 * operand i, sets bit r of axes[k] if factor k has axis r of operand i, and returns true. */
bool eg__einsum_factors(const eg_tensor *y, eg_tensor *g, int i, eg_tensor *factor[2],
                        uint32_t axes[2]);
extern const eg_order_args eg__any_order; /* the best order, without a limit */
/* Returns the dtype in which the operands are multiplied: their own; if all are f16 or bf16, f32;
 * if some are, that of the others. */
eg_dtype eg__einsum_reads(int count, eg_tensor *const *x);
/* Returns the dtype of the result: that of eg__einsum_reads, or i64 for integers. */
eg_dtype eg__einsum_type(int count, eg_tensor *const *x);
/* Sets the sizes and strides of a result. False if its bytes overflow 64 bits. */
bool eg__einsum_layout(int count, eg_tensor *const *x, const uint16_t *const *label, int rank,
                       const uint16_t *out, int64_t *dim, int64_t *stride);
/* Called in an operation's shape(): makes y the einsum of its first `count` operands. */
bool eg__einsum_shape(eg_tensor *y, int count, const uint16_t *const *label, int rank,
                      const uint16_t *out);
/* A contraction of tensors whose order is planned (a draft). */
typedef struct eg_planning {
    eg_labelled in[EG_EINSUM_MAX];
    eg_dtype of[EG_EINSUM_MAX];
    eg_contraction task;
    eg_draft draft;
} eg_planning;
/* Returns memory for it, too large for a thread's stack; its content is lost when the next
 * contraction is planned. NULL after an error. */
eg_planning *eg__planning(eg_ctx *);
/* Plans the order of the contraction of x. False after an error. */
bool eg__einsum_drafted(eg_ctx *, eg_planning *, int count, eg_tensor *const *x,
                        const uint16_t *const *label, const eg_labelled *out,
                        const eg_order_args *);
/* Returns the program of an einsum, from the cache or planned; valid until the next eg__plans_add.
 * NULL after an error. */
const eg_program *eg__einsum_program(eg_ctx *, int count, eg_tensor *const *x,
                                     const uint16_t *const *label, const eg_labelled *out,
                                     const eg_order_args *);
/* Computes y from the operands x of the program. False after an error. */
bool eg__einsum_run(eg_ctx *, const eg_program *, int count, eg_tensor *const *x, void *out,
                    double alpha, bool add, void *const *kept);
/* Computes all copies of y from those of x. False after an error. */
bool eg__einsum_run_copies(const eg_tensor *y, const eg_program *, int count, eg_tensor *const *x);
/* Returns the labels of operand k of a node that einsum made; with k = count, of its result. */
const uint16_t *eg__einsum_labels_of(const eg_tensor *y, int k);
/* those of operand 1, followed by those of the others */
const uint16_t *eg__einsum_attr_labels(const void *attr);
int64_t eg__einsum_limit(const eg_tensor *y); /* .limit of the call */
double eg__einsum_alpha(const eg_tensor *y);  /* the factor of the call */
/* Returns alpha times the einsum of two tensors that has the labels of operand i of y. */
eg_tensor *eg__einsum_cotangent(const eg_tensor *y, int i, double alpha, eg_tensor *const *in,
                                const uint16_t *const *label);
/* Writes "ij,jk->ik" for a node that einsum made, and returns out; NULL for other nodes, or if
 * `size` is too small. */
const char *eg__einsum_text(const eg_tensor *y, char *out, size_t size);

/* -- calls: the plan of a call of einsum or affine, stored for the next call with the same key - */
typedef struct eg_call {
    eg_dtype dtype; /* of the result */
    int rank;
    const int64_t *dim, *stride; /* of the result */
    size_t attr_size;
    const void *attr; /* of the node */
    const eg_program *program;
    const eg_tree *tree; /* of three or more float operands; else NULL */
    int count;           /* x: the operands of the program if they are not those of the node, … */
    eg_tensor *const *x; /* … `count` of them; else NULL */
    void *const *kept;   /* by step: where the step's value is written; NULL: nowhere */
    /* the elements of the result if they exist already; NULL: forward() computes them */
    void *data;
} eg_call;
/* Plans a call and stores it under its key, if that is not NULL. NULL after an error. */
eg_call *eg__call_plan(eg_ctx *, const eg_plan_key *, const void *attr, size_t size, int count,
                       eg_tensor *const *x, const uint16_t *const *label, const eg_labelled *out,
                       const eg_order_args *);
/* Returns the einsum of x as a node whose sizes, strides and elements are those of the call;
 * nothing is computed. Its gradients are computed along the tree of eg__einsum_keyed with this
 * order. */
eg_tensor *eg__einsum_given(const eg_call *, const eg_order_args *, int count, eg_tensor *const *x,
                            const uint16_t *const *label, const uint16_t *out);
/* The snapshot() of operations that are made by planned calls. Returns a copy of the call with its
 * own program and the operands that it reads. p: the program of a y that no call made. */
void *eg__call_snapshot(eg_tensor *y, const eg_program *p);
/* Returns the call by which y is being made; NULL if eg_apply applied the operation. */
static inline const eg_call *eg__call_saved(const eg_tensor *y)
{
    return y->saved ? *(const eg_call *const *)y->saved : NULL;
}

/* -- tree.c -------------------------------------------------------------------------------- */
/* Applies an operation by a planned call, and keeps the values of pairs for the gradient, if the
 * context records and the call has a tree. */
eg_tensor *eg__network_apply(eg_ctx *, const eg_op *, const eg_call *, const void *attr,
                             size_t attr_size, int count, eg_tensor *const *);
/* Called in forward(): records that y has three or more operands and that no value is kept. False
 * after an error. */
bool eg__network_save(eg_tensor *y);
/* Adds the cost of the einsum of y's operands; for affine, without the bias. */
void eg__network_cost(const eg_tensor *y, int count, const uint16_t *const *label,
                      const eg_labelled *out, eg_op_cost *);
/* The rule and the jvp for three and more operands. */
eg_tensor *eg__network_cotangent(eg_tensor *y, eg_tensor *g, int i);
eg_tensor *eg__network_tangent(eg_tensor *y, eg_tensor *const *dx);
#endif
