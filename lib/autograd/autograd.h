/* autograd.h: gradients and tangents of recorded operations.
 *
 * The tape consists of the tensors themselves: each refers to its operation and its operands. One
 * traversal (walk.c) lists the nodes that a tensor was computed from. All other files read that
 * list: the backward pass (grad.c, reverse*.c), the forward pass (forward.c), evaluation in c128
 * (complex_step.c), eg_checkpoint (recompute.c), eg_path_to (path.c), graphs (graph.c), and the
 * gradient check. gradient_op.c is for operations that compute the gradient of another
 * operation. */
#ifndef EG_AUTOGRAD_H
#define EG_AUTOGRAD_H
#include "ops/ops.h"

/* -- walk.c: the nodes of the tape ------------------------------------------------------------ */
/* The nodes that some tensors were computed from, in an order in which operands come before
 * results. */
typedef struct eg_walk {
    /* set by the caller */
    eg_ctx *cx;
    /* begins error messages; if NULL, operands of closed scopes are skipped without an error */
    const char *who;
    uint64_t oldest; /* tensors with a smaller eg_tensor.seq are skipped */
    bool own;        /* a block's headers of its parent's tensors are skipped, too */
    bool floats;     /* tensors that are neither f32 nor f64 are skipped, too */
    bool slopes; /* operands of operations whose gradient is zero by definition are skipped, too */
    uint64_t leaves; /* operands of tensors with a seq of at most this are skipped; 0: of none */
    /* set by eg__walk */
    uint64_t number; /* t->sweep of the nodes in the list */
    /* in a scratch buffer, which the next traversal overwrites; t->slot is the node's index */
    eg_tensor **node;
    int64_t n;
} eg_walk;
/* Lists the ys and all nodes that they were computed from, except those that the options skip.
 * False after an error. */
bool eg__walk(eg_walk *, int results, eg_tensor *const *ys);
/* True if t is in the list. Valid until another traversal begins. */
static inline bool eg__walked(const eg_walk *w, const eg_tensor *t)
{
    return t->sweep == w->number && t->slot >= 0;
}
/* True if operand i of t is still the tensor that t was computed from: if the header was reused for
 * another tensor, that tensor's number is larger than t's. */
static inline bool eg__operand_lives(const eg_tensor *t, int i)
{
    return t->in[i]->live == EG_LIVE && t->in[i]->seq < t->seq;
}
/* True if the gradient of t's operation is zero by definition. */
static inline bool eg__sweep_zero(const eg_tensor *t)
{
    return t->op && t->op->rule == eg_zero_rule;
}

/* The nodes on a path from an x to a result, with the cotangents or tangents of a backward or
 * forward pass. */
typedef struct eg_sweep {
    /* set by the caller */
    eg_ctx *cx;
    const char *who; /* "grad", "jvp": begins error messages */
    bool zeros;      /* also follow operations whose gradient is zero by definition */
    uint64_t leaves; /* tensors with a seq of at most this are leaves without hooks; 0: none */
    /* set by eg__sweep */
    uint64_t number;  /* t->sweep of the nodes */
    eg_tensor **node; /* operands first; t->slot is the node's index */
    eg_tensor **d;    /* by node: its cotangent or tangent; all NULL at first */
    int64_t n;
    /* the node whose operands eg__check_unchanged tested last, and the first two of them that had
     * changed; −1: none */
    const eg_tensor *checked;
    int stale[2];
} eg_sweep;
/* True if the pass ends at t: nothing is propagated between t and its operands. */
static inline bool eg__sweep_ends(const eg_sweep *s, const eg_tensor *t)
{
    return !t->op || t->seq <= s->leaves || eg__sweep_zero(t);
}
/* Finds the nodes on a path from one of xs to one of ys. False after an error. */
bool eg__sweep(eg_sweep *, int results, eg_tensor *const *ys, int count, eg_tensor *const *xs);
/* Marks the nodes as those of this pass again. Must be called after every rule, jvp and hook: each
 * of them may compute gradients, and a pass inside it overwrites the marks. */
void eg__sweep_reclaim(eg_sweep *);
/* True if t is one of the nodes. */
static inline bool eg__sweep_has(const eg_sweep *s, const eg_tensor *t)
{
    return t->sweep == s->number && t->slot >= 0;
}
/* Returns the cotangent or tangent that t has so far; NULL if it has none or is not one of the
 * nodes. */
static inline eg_tensor *eg__sweep_at(const eg_sweep *s, const eg_tensor *t)
{
    return eg__sweep_has(s, t) ? s->d[t->slot] : NULL;
}

/* True if x can be differentiated in cx: alive, of this context, f32 or f64, not poison. Else
 * records an error in which x is called `what[k]`, or `what` if k < 0. */
bool eg__check_differentiable(eg_ctx *, const char *who, const char *what, int k,
                              const eg_tensor *x);
/* eg__check_differentiable of a seed or a tangent, which is read as an operand is: the gradient
 * check makes it f64. */
bool eg__check_seed(eg_ctx *, const char *who, const char *what, int k, eg_tensor *x);
/* False, after an error, if y was computed by an operation while the context did not record, and is
 * none of the xs. */
bool eg__check_recorded(eg_ctx *, const char *who, const char *what, const eg_tensor *y, int count,
                        eg_tensor *const *xs);
/* True if every value that t's rule reads for operand i is unchanged since the forward pass. Else
 * records an error that names the tensor that was written to. */
bool eg__check_unchanged(eg_sweep *, const eg_tensor *t, int i);
/* True if d has the shape and dtype that a cotangent (or tangent) of x must have. Else records an
 * error that names what returned d: the `source` ("rule", "jvp", "hook") of t, for operand i or,
 * with i = −1, for the result. */
bool eg__check_cotangent(const eg_sweep *, const eg_tensor *t, const char *source,
                         const eg_tensor *d, const eg_tensor *x, int i);

/* -- copy_rules.c ----------------------------------------------------------------------------- */
/* Calls the rule, or the jvp, of y's operation: once, or for each copy if the operation has saved
 * memory for each (eg_node_save). */
eg_tensor *eg__rule(eg_tensor *y, eg_tensor *g, int i);
eg_tensor *eg__jvp_rule(eg_tensor *y, eg_tensor *const *dx);

/* eg_grad for a y that may be a constant: an x that y does not depend on gets zeros. Returns 0; −1
 * after an error. */
int eg__grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs);
/* eg__grad and eg_jvp for one part of a graph: tensors with a seq of at most `leaves` are leaves,
 * and their hooks are not called. If x1 was computed from x0, and both are leaves, dxs[0] is the
 * partial derivative, for a constant x1. If eg_ctx.each_copy, an x without copies that y's copies
 * read gets a gradient with copies instead of their sum. */
int eg__grad_part(eg_tensor *y, eg_tensor *seed, uint64_t leaves, int count, eg_tensor *const *xs,
                  eg_tensor **dxs);
bool eg__is_checkpoint(const eg_tensor *); /* its rule sums the cotangents of copies by itself */
eg_tensor *eg__jvp_part(eg_tensor *y, uint64_t leaves, int count, eg_tensor *const *xs,
                        eg_tensor *const *vs);
/* A sum to which gradients of an x are added, with x's shape. */
typedef struct eg_into {
    eg_tensor *sum;
    bool reached; /* false: the sum is not initialised, and the first gradient overwrites it */
} eg_into;
/* An observer of complete sums. The backward pass calls complete(user, k) when nothing more will be
 * added to sums k and above. k decreases from call to call; the last call has k = 0. */
typedef struct eg_into_watch {
    void (*complete)(void *user, int k);
    void *user;
} eg_into_watch;
/* Adds the gradients of y to the sums of the xs, and sets `reached` of the sums that y contributes
 * to. Nothing is recorded. The watch may be NULL; an error that it records ends the pass. Returns
 * 0, or −1 after an error, as eg_grad_or_null does; the sums must then not be used. */
int eg__grad_into(eg_tensor *y, int count, eg_tensor *const *xs, eg_into *, const eg_into_watch *);

/* -- communicating.c: passes in which this rank waits for others ------------------------------ */
/* Notes that the rule or the tangent of y, if it is recorded, waits for other ranks. Returns y. */
eg_tensor *eg__communicates(eg_tensor *y);
/* Called after an error in a pass, with the nodes [from, to) still to be visited: if other ranks
 * wait for this one at one of them, tells them the error. */
void eg__pass_failed(eg_sweep *, int64_t from, int64_t to);
/* Called after an error before the nodes of a pass were known. */
void eg__pass_refused(const eg_ctx *);

/* -- blocks.c: the gradient of a sum over examples; processes compute separate leaves of it ---- */
/* in one call; times 4096 leaves this fits an int64_t */
#define EG__EXAMPLES_MOST ((int64_t)1 << 48)
/* How eg__grad_over delivers gradients before the last block is done. While that block is computed,
 * it calls complete(user, k, numbers) for each x, from the last to the first, as soon as nothing
 * more will be added to its sum over this subtree of leaves. `numbers` are the elements of the sum,
 * as the later call of `take` would give them; NULL if no block reaches x. The sums that `take`
 * gets afterwards for these xs are undefined. One thread calls at a time, during the backward pass
 * of a block. After an error there may be fewer calls or none. */
typedef struct eg_early {
    void (*complete)(void *user, int k, const void *numbers);
    void *user;
} eg_early;
/* Returns the number of examples of the first tensor of .batch; 0 if there is none. */
int64_t eg__batch_examples(const eg_given *);
/* eg_grad_over, whose leaves [from_leaf, to_leaf) must form one subtree. early may be NULL. Returns
 * as eg_grad_over. */
int eg__grad_over(const eg_grad_over_args *, const eg_early *early);

/* -- names_hooks.c --------------------------------------------------------------------------- */
typedef struct eg__hook {
    struct eg__hook *next;
    eg_hook_function *f;
    void *user;
    bool runs;
} eg__hook;
/* the name and the hooks of a tensor, a separate struct since few tensors have any */
typedef struct eg__tag {
    const char *name; /* NULL if the tensor has none */
    eg__hook *hook;   /* in the order in which they were added */
} eg__tag;

/* -- origin.c: a description of how a result was computed -------------------------------------- */
/* The program's debugging information, while it is open. */
typedef struct eg__lines {
    void *so;        /* libdw; NULL if it is not installed */
    void *session;   /* NULL if there is no debugging information */
    void *libdw[32]; /* pointers to libdw's functions */
} eg__lines;
void eg__lines_open(eg__lines *);
void eg__lines_close(eg__lines *);
/* Writes "model.c:88", or "main+0x1a", or "" if nothing is known, and returns out. */
const char *eg__line(const eg__lines *, const void *caller, char *out, size_t size);
/* Writes the source line of a call one frame further out, that is, the line that calls the function
 * which contains the call that returns to `caller`: the call of its inlined copy, or the call that
 * returns to `outer`. If outer is NULL, writes the line of the call itself. Returns out. */
const char *eg__line_around(const eg__lines *, const void *caller, const void *outer, char *out,
                            size_t size);
/* Writes the operation and its line, "mul (model.c:88)"; opens and closes the debugging
 * information. Returns out. */
const char *eg__origin(const eg_tensor *, char *out, size_t size);

/* -- complex_step.c: recorded operations, evaluated again in c128 ------------------------------ */
/* Sets *dy (f64, in the open scope) to the derivative of y along vs[k] of xs[k], by the complex
 * step, which takes one evaluation of the operations between xs and y. xs and vs are floats of
 * equal shapes; y may be a gradient. False after an error. Also false, without an error, if an
 * operation between xs and y has no forward_c128; *unsupported is then that operation. */
bool eg__complex_step(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs,
                      eg_tensor **dy, const eg_op **unsupported);
/* Returns the value of y in c128 if xs[k] has the c128 value zs[k]; NULL in the cases in which
 * eg__complex_step is false. */
eg_tensor *eg__evaluate_c128(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *zs,
                             const eg_op **unsupported);

/* -- gradient_op.c: operations whose result d consists of the cotangents of several operands of
 * another operation, one after another along one axis --
 *
 * The first operands of such an operation are these operands, x[0 … count), count ≤ EG_MEMO.
 * Integer and bool operands have no part in d, nor has an x[k] that is NULL. */
/* Returns the number of elements of d. */
int64_t eg__gradient_size(int count, eg_tensor *const *x);
/* Sets part[k] to a view of the part of d that belongs to x[k], with the shape of x[k]; NULL if
 * x[k] has none. d: the result, or a cotangent of it. */
void eg__gradient_parts(eg_tensor *d, int count, eg_tensor *const *x, eg_tensor **part);
/* Copies the cotangents dx to their parts of d, without recording; zeros where dx[k] is NULL. False
 * after an error. */
bool eg__gradient_fill(eg_tensor *d, int count, eg_tensor *const *xs, eg_tensor *const *dx);
/* Returns the cotangents dx one after the other, as d has them; zeros where dx[k] is NULL. */
eg_tensor *eg__gradient_join(int count, eg_tensor *const *x, eg_tensor *const *dx);
/* Returns the tangent of r, computed from the x, for tangents dx of these; NULL in x or dx: none.
 * For the jvp of an operation that is computed again by operations, from new views of its operands.
 */
eg_tensor *eg__tangent_of(eg_tensor *r, int count, eg_tensor *const *x, eg_tensor *const *dx);
/* Returns the inner product ⟨u, d⟩ for a cotangent u of d. d is replaced by the same values dx,
 * computed again by operations, so that the result can be differentiated. NULL if every dx is
 * NULL. */
eg_tensor *eg__gradient_dot(eg_tensor *u, int count, eg_tensor *const *x, eg_tensor *const *dx);
/* Returns a new recorded view of x. Nothing else depends on the view, so a derivative by it
 * contains only what was computed from it. Returns x itself if it is neither f32 nor f64. */
eg_tensor *eg__fresh_view(eg_tensor *x);
#endif
