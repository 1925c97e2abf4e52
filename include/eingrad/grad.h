/* eingrad/grad.h: gradients, and how an operation is written. */
#ifndef EINGRAD_GRAD_H
#define EINGRAD_GRAD_H
#include <eingrad/blocks.h>
#include <eingrad/copies.h>
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- differentiation -------------------------------------------------------------------------- */
/* dxs[k] = ∂⟨seed, y⟩/∂xs[k]. The dxs are recorded, so they can be differentiated again. seed NULL:
 * y has one element and the seed is 1. For an x that y does not depend on, dxs[k] is zeros.
 * Refused: a y or x that is neither f32 nor f64, a seed of another shape or dtype, an operand that
 * was changed in place since it was used, an operation without a rule; a y that was made under
 * eg_nograd, unless it is one of the xs. The functions below refuse the same. eg_grad, eg_hvp and
 * eg_hessian also refuse an x on which y depends only because eg_assign wrote a result that depends
 * on x to a tensor. Under eg_nograd nothing is recorded, and the memory of a cotangent between y
 * and the xs is used again during the backward pass. Returns 0, or −1 after an error (dxs are then
 * poison); functions that return a tensor return poison. */
EG_API int eg_grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs);

/* As eg_grad, but dxs[k] is NULL instead of zeros if y does not depend on xs[k] (allow_unused of
 * PyTorch). Also refused: a y that depends on none of the xs. The error names the operation that
 * cuts the path (eg_detach, floor) or that reads a result made under eg_nograd, or says that no x
 * was read. */
EG_API int eg_grad_or_null(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs,
                           eg_tensor **dxs);

/* As eg_grad_or_null, for optimisers: y is the loss and the xs are the parameters. An error message
 * begins with `who` and uses these words: "adam: the loss depends on none of its 3 parameters:
 * …". */
EG_API int eg_grad_of_loss(const char *who, eg_tensor *loss, int count, eg_tensor *const *xs,
                           eg_tensor **dxs);

/* The gradient of each copy: y has copies (copies.h), of one element each. dxs[k] has no copies and
 * the axes (copies, the axes of xs[k]): dxs[k][c, …] = ∂y_c/∂xs[k]. This holds also for an x
 * without copies, where eg_grad would give the sum over c. If each copy is one example, these are
 * the gradients of each example:
 *
 *     tokens = eg_copies_unstack(b, eg_rearrange("b l -> b 1 l", tokens));
 *     eg_grad_each(loss(tokens), n, parameters, gradients);           gradients: (b, …)
 *
 * Refused, in addition to what eg_grad refuses: a y without copies; an operation between y and the
 * xs that makes copies depend on each other (eg_copies_stack). */
EG_API int eg_grad_each(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor **dxs);

/* Returns how y depends on x in the recorded graph. EG_NO_PATH: not at all. EG_CUT_PATH: only
 * through operations whose gradient is zero by definition or whose result is integer (floor,
 * detach, argmax, a comparison), one of which is stored in *cut (cut may be NULL). EG_OPEN_PATH: by
 * a path that eg_grad follows. */
typedef enum eg_path { EG_NO_PATH, EG_CUT_PATH, EG_OPEN_PATH } eg_path;
EG_API eg_path eg_path_to(eg_tensor *y, eg_tensor *x, eg_tensor **cut);

/* A hook is called when the cotangent g of x is complete, before the rule of the operation that
 * made x reads g. This happens in every gradient computation in which x is y, one of the xs, or
 * between them. Hooks of several tensors are called in the order of reverse mode, from y to the xs,
 * those of one tensor in the order in which they were added. The hook returns the tensor that
 * replaces g, or NULL to keep g. Refused: a hook that would call itself, because a gradient
 * computation inside it reaches its own x. */
typedef eg_tensor *eg_hook_function(void *user, eg_tensor *x, eg_tensor *g);
/* Adds a hook to x; f NULL: removes the hooks of x. Returns 0, or −1 if x is not a tensor of
 * floats */
EG_API int eg_hook(eg_tensor *x, eg_hook_function *f, void *user);

/* The operation that made x and the user's call of it, for messages: "mul (model.c:88)" with
 * elfutils' libdw and -g, else "mul (main+0x1a)". The text lives in the open scope. */
EG_API const char *eg_origin(eg_tensor *x);
/* x with a name (copied) for messages and graphs */
EG_API eg_tensor *eg_name(eg_tensor *x, const char *name);
EG_API const char *eg_name_of(const eg_tensor *x); /* the name of x; NULL: none */

/* Finds the origin of a NaN. With `on`, the first operation whose result has a NaN or infinity
 * although none of its operands has one records an error. The message names the operation, such as
 * einsum "ij,jk->ik" (model.c:88), and the element; in a backward pass it also names the operation
 * whose gradient is computed. Every result is read once more. Returns the old state. */
EG_API bool eg_trace(eg_ctx *, bool on);
/* Finds the origin of a NaN or infinity of y in the recorded graph, without eg_trace. It goes back
 * from y along operands that are not finite, to a leaf, to a result of finite operands, or to a
 * result in which an infinite constant became a NaN. Returns that tensor, whose operation eg_origin
 * names; NULL if all elements of y are finite. Each result on the way is read once. */
EG_API eg_tensor *eg_first_nonfinite(eg_tensor *y);

/* Prints the recorded graph of y, operands first: number, operation, einsum's string, operands,
 * dtype and shape, name, source line. −1 after an error. */
EG_API int eg_graph_print(FILE *, eg_tensor *y);
EG_API int eg_graph_dot(FILE *, eg_tensor *y); /* writes that graph for Graphviz: dot -Tsvg */

/* Forward mode, applied to the recorded graph. The results are recorded and have gradients of any
 * order; under eg_nograd they have none, and eg_jacobian frees the temporaries of each row at once.
 * vs[k] NULL: xs[k] does not change. Refused: what eg_grad refuses; a v of another shape or dtype
 * than its x. */
/* Σ_k ∂y/∂xs[k] vs[k], of y's shape */
EG_API eg_tensor *eg_jvp(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs);
/* hv[k] = Σ_l ∂²y/∂xs[k]∂xs[l] vs[l], y of one element: forward over reverse (Pearlmutter 1994) */
EG_API int eg_hvp(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs,
                  eg_tensor **hv);
/* ∂y/∂x: y's axes, then x's; the cheaper of both modes */
EG_API eg_tensor *eg_jacobian(eg_tensor *y, eg_tensor *x);
/* ∂²y/∂a∂b: a's axes, then b's; y of one element */
EG_API eg_tensor *eg_hessian(eg_tensor *y, eg_tensor *a, eg_tensor *b);

/* y = f(user, xs), without keeping intermediate results: the gradient computation calls f again,
 * with the same random draws and in the same mode (train or eval), and differentiates this call.
 * There are gradients of any order, by reverse and forward mode. Tensors that f reads through
 * `user` have gradients too, and must not change in between. Refused: an f that returns another
 * shape or reads other tensors when it is called again. Each level of an f that calls eg_checkpoint
 * itself takes 1.5 KB of stack in addition to f's. The context is that of xs[0]. Chen et al.
 * 2016 */
typedef eg_tensor *eg_function(void *user, eg_tensor *const *xs);
EG_API eg_tensor *eg_checkpoint(eg_function *f, void *user, int count, eg_tensor *const *xs);

/* -- an operation: one struct, whose address is its identity; docs/operations.md shows how to write
 * one. */
typedef struct eg_sample {                   /* how tests call the operation; ended by { 0 } */
    eg_tensor *(*call)(eg_tensor *const *x); /* through its public function */
    const char *shapes; /* "3x4, 4": float operands; "5:i4": i64 below 4; "3x4:b": bool */
    double low, high;   /* float operands are drawn from [low, high] (0, 0: from [-2, 2]) */
} eg_sample;
/* The tensors that a rule reads; a change in place of one of them is detected. */
typedef enum eg_uses {
    EG_USES_ALL, /* operands and result */
    EG_USES_NOTHING,
    EG_USES_OPERANDS,
    EG_USES_OTHERS, /* the cotangent of operand i reads the operands except i */
    EG_USES_RESULT,
    EG_USES_INTEGERS /* the operands that are not floats: indices, masks */
} eg_uses;
/* Which dtypes forward() reads besides those that all operations compute with. Operands of the
 * other dtypes are refused before shape() is called. */
typedef enum eg_takes {
    EG_TAKES_NUMBERS, /* none */
    EG_TAKES_HALVES,  /* f16 and bf16 */
    EG_TAKES_ALL      /* f16, bf16, i8 and u8: numbers that are only moved */
} eg_takes;
typedef struct eg_op_cost {
    double multiply_adds; /* as eg_usage counts them */
    double bytes;         /* kept in addition to the result, for the gradient */
} eg_op_cost;
typedef struct eg_op {
    const char *name, *equation, *gradient;
    int arity;                     /* −1: any number of operands */
    bool (*shape)(eg_tensor *y);   /* calls eg_result; false after eg_fail */
    bool (*forward)(eg_tensor *y); /* fills y; false after eg_fail */
    /* returns the cotangent of operand i, computed by public operations. NULL: the operation has no
     * gradient. If y has copies, a gradient that the rule computes (eg_grad) by a tensor without
     * copies has copies, not their sum */
    eg_tensor *(*rule)(eg_tensor *y, eg_tensor *g, int i);
    eg_uses uses; /* what the rule reads */
    const eg_sample *samples;
    /* returns the tangent of y, computed by public operations; dx[i] is NULL if operand i is
     * constant. It may read the tensors that .uses names. NULL: the tangent is computed from the
     * rule, which is linear in g */
    eg_tensor *(*jvp)(eg_tensor *y, eg_tensor *const *dx);
    /* fills y from c128 operands, by the analytic continuation of forward. NULL: c128 is refused,
     * and the gradient check cannot use the complex step */
    bool (*forward_c128)(eg_tensor *y);
    /* adds the cost of computing y to *cost, for eg_explain_graph; NULL: y costs nothing */
    void (*cost)(const eg_tensor *y, eg_op_cost *cost);
    /* if attr holds the seed and the number of a random draw, as two consecutive uint64_t: 1 +
     * their offset in bytes. Each run of a captured step writes a new draw there. 0: no draw */
    size_t draws;
    /* called after forward() while a step is captured: returns memory of y (eg_node_save) with a
     * copy of what forward() looked up. In each run eg_node_saved(y) returns this memory when
     * forward() is called. Returns NULL after an error. If this member is NULL, eg_node_saved(y)
     * returns in each run what was saved before forward() was first called */
    void *(*snapshot)(eg_tensor *y);
    eg_takes takes;
} eg_op;
/* Applies the operation to the operands and returns its result; attr is copied. */
EG_API eg_tensor *eg_apply(const eg_op *, const void *attr, size_t attr_size, int count,
                           eg_tensor *const *operands);
EG_API eg_tensor *eg_operand(const eg_tensor *y, int i); /* operand i, from 0 */
EG_API int eg_operands(const eg_tensor *y);              /* the number of operands of y */
EG_API const void *eg_attr(const eg_tensor *y);          /* the copy that eg_apply made of attr */
/* Allocates zeroed memory for values that shape() or forward() computes and the rule needs; it
 * lives as long as y and belongs to the node y. NULL after an error. eg_node_saved returns this
 * memory, or NULL if there is none. If y has copies, each copy has such memory, and rule() and
 * jvp() are called for each of them, as for a single tensor. */
EG_API void *eg_node_save(eg_tensor *y, size_t bytes);
EG_API void *eg_node_saved(const eg_tensor *y);
/* Called by shape(): gives y its dtype and sizes, row-major. False after an error */
EG_API bool eg_result(eg_tensor *y, eg_dtype, int rank, const int64_t *dims);
/* a rule for gradients that are zero by definition: zeros of operand i's shape */
EG_API eg_tensor *eg_zero_rule(eg_tensor *y, eg_tensor *g, int i);
/* the jvp of an operation that is linear in all its float operands together: the operation itself
 * on the tangents */
EG_API eg_tensor *eg_jvp_linear(eg_tensor *y, eg_tensor *const *dx);
/* the jvp of an operation whose Jacobian is symmetric (pointwise functions, softmax): the rule on
 * the tangents */
EG_API eg_tensor *eg_jvp_symmetric(eg_tensor *y, eg_tensor *const *dx);
EG_API const eg_op *eg_op_of(const eg_tensor *y); /* the operation of y; NULL: a leaf */
EG_API const eg_op *eg_op_at(int k); /* operation k of the library's table; NULL past its end */

#ifdef __cplusplus
} /* extern "C" */
#endif
#include <eingrad/capture.h>
#include <eingrad/gradcheck.h>
#endif
