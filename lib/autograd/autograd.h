/* autograd.h: gradients and tangents of what was recorded.
 *
 * The tape is the tensors themselves: each remembers its row and its operands. One walk (walk.c)
 * lists the nodes that a tensor was made of; everything else reads that list: the reverse sweep
 * (reverse.c), the forward one (forward.c), evaluation in c128 (replay.c), eg_checkpoint
 * (recompute.c), eg_path_to (path.c), graphs (graph.c), and the gradient check. gradient_row.c is
 * for rows that are themselves the gradient of a row. */
#ifndef EG_AUTOGRAD_H
#define EG_AUTOGRAD_H
#include "ops/ops.h"

/* -- walk.c: the nodes of the tape ------------------------------------------------------------ */
/* What some tensors were made of, in an order in which operands stand before results. */
typedef struct eg_walk {
    /* set by the caller */
    eg_ctx *cx;
    const char *who; /* for messages: a walk refuses an operand whose scope was closed; NULL: it
                      * passes over it */
    uint64_t oldest; /* tensors with a smaller number (eg_tensor.seq) are passed over */
    bool floats;     /* so are tensors that are neither f32 nor f64 */
    bool slopes;     /* … and the operands of rows whose gradient is zero by definition */
    /* the result */
    uint64_t number; /* t->sweep of the nodes in the list */
    eg_tensor *
        *node; /* t->slot is its place. In a scratch buffer, which the next walk overwrites */
    int64_t n;
} eg_walk;
/* Lists the ys and all that they were made of, as far as the bounds let it. False after an
 * error. */
bool eg__walk(eg_walk *, int results, eg_tensor *const *ys);
/* True if t is in the list, so long as no other walk has begun. */
static inline bool eg__walked(const eg_walk *w, const eg_tensor *t)
{
    return t->sweep == w->number && t->slot >= 0;
}
/* True if operand i of t is still what t was made of: a header that another tensor has taken since
 * has a greater number than t. */
static inline bool eg__operand_lives(const eg_tensor *t, int i)
{
    return t->in[i]->live == EG_LIVE && t->in[i]->seq < t->seq;
}
/* True if t's row says that no gradient flows through it. */
static inline bool eg__sweep_zero(const eg_tensor *t)
{
    return t->op && t->op->rule == eg_zero_rule;
}

/* The nodes on a path from an x to a result, with what a sweep carries along them. */
typedef struct eg_sweep {
    /* set by the caller */
    eg_ctx *cx;
    const char *who; /* "grad", "jvp": for messages */
    bool zeros;      /* also through rows whose gradient is zero by definition */
    /* set by eg__sweep */
    uint64_t number;  /* t->sweep of the nodes */
    eg_tensor **node; /* operands first; t->slot is its place */
    eg_tensor **d;    /* by node: its cotangent or tangent; all NULL at first */
    int64_t n;
    /* the node whose operands eg__check_unchanged looked at last, and which of them had changed:
     * the first two, or −1 */
    const eg_tensor *checked;
    int stale[2];
} eg_sweep;
/* Finds the nodes that lie on a path from one of xs to one of ys. False after an error. */
bool eg__sweep(eg_sweep *, int results, eg_tensor *const *ys, int count, eg_tensor *const *xs);
/* Marks the nodes as this sweep's again. Call it after every rule, jvp and hook: it may itself take
 * gradients, which uses the same marks. */
void eg__sweep_reclaim(eg_sweep *);
/* True if t is one of the nodes. */
static inline bool eg__sweep_has(const eg_sweep *s, const eg_tensor *t)
{
    return t->sweep == s->number && t->slot >= 0;
}
/* The cotangent or tangent of t so far; NULL if it has none or is not one of the nodes. */
static inline eg_tensor *eg__sweep_at(const eg_sweep *s, const eg_tensor *t)
{
    return eg__sweep_has(s, t) ? s->d[t->slot] : NULL;
}

/* True if x can be differentiated in cx: alive, of this context, f32 or f64, not poison. Else
 * records an error that calls it `what[k]`, or `what` if k < 0. */
bool eg__check_differentiable(eg_ctx *, const char *who, const char *what, int k,
                              const eg_tensor *x);
/* True unless y was made while nothing was recorded and is none of the xs; else records that. */
bool eg__check_recorded(eg_ctx *, const char *who, const eg_tensor *y, int count,
                        eg_tensor *const *xs);
/* True if every value that t's rule reads for operand i is what it was in the forward pass. Else
 * records which tensor was written to since. */
bool eg__check_unchanged(eg_sweep *, const eg_tensor *t, int i);
/* True if d has the shape and dtype that a cotangent (or tangent) of x must have. Else records an
 * error that names `source` ("rule", "jvp", "hook") of t and its operand i; −1: the result. */
bool eg__check_cotangent(const eg_sweep *, const eg_tensor *t, const char *source,
                         const eg_tensor *d, const eg_tensor *x, int i);

/* eg_grad of a y that may be a constant: where it depends on no x, dxs are zeros. */
int eg__grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs);
/* A sum of gradients, of its x's shape. */
typedef struct eg_into {
    eg_tensor *sum;
    bool reached; /* it holds something; else it is written */
} eg_into;
/* A sweep calls complete(user, k) when the sums from the k-th on are complete: nothing more will be
 * added to them. Each call has a smaller k than the one before, the last one 0. */
typedef struct eg_into_watch {
    void (*complete)(void *user, int k);
    void *user;
} eg_into_watch;
/* Adds the gradients of y to the sums of the xs, and sets reached of those that y reaches. Not
 * recorded. The watch may be NULL; an error that it records ends the sweep. 0, or −1 after an error
 * as of eg_grad_or_null; the sums are then worth nothing. */
int eg__grad_into(eg_tensor *y, int count, eg_tensor *const *xs, eg_into *, const eg_into_watch *);

/* -- blocks.c: a sum over examples, whose leaves are divided among processes ------------------- */
/* eg__grad_over calls complete(user, k, numbers) with the gradients of its subtree of leaves while
 * the last of its blocks is still computed: from the last x to the first one, each as soon as
 * nothing more will be added to it. `numbers` are those of its sum (NULL: no block reaches it), as
 * `take` would get them. The call of `take`, which follows, has sums without meaning in their
 * place. One thread calls at a time, inside the sweep of a block. After an error there may be fewer
 * calls, or none. */
typedef struct eg_early {
    void (*complete)(void *user, int k, const void *numbers);
    void *user;
} eg_early;
/* eg_grad_over whose leaves [from_leaf, to_leaf) make one subtree; early may be NULL. */
int eg__grad_over(const eg_grad_over_args *, const eg_early *early);

/* -- origin.c: where a result comes from, in words; names and hooks --------------------------- */
typedef struct eg__hook {
    struct eg__hook *next;
    eg_hook_function *f;
    void *user;
    bool runs;
} eg__hook;
/* what only few tensors have */
typedef struct eg__tag {
    const char *name; /* NULL: none */
    eg__hook *hook;   /* in the order in which they were given */
} eg__tag;
/* The program's debugging information, while it is open. */
typedef struct eg__lines {
    void *so;       /* libdw, NULL if it is not there */
    void *session;  /* NULL: there is no information */
    void *room[32]; /* libdw's functions */
} eg__lines;
void eg__lines_open(eg__lines *);
void eg__lines_close(eg__lines *);
/* Writes "model.c:88", or "main+0x1a", or "" if nothing is known, and returns out. */
const char *eg__line(const eg__lines *, const void *caller, char *out, size_t room);
/* Writes the line of the call of the function in which the call that returns to `caller` stands: of
 * its inlined copy, or of what returns to `outer`; the call's own line if outer is NULL. */
const char *eg__line_around(const eg__lines *, const void *caller, const void *outer, char *out,
                            size_t room);
/* Writes the operation and its line, "mul (model.c:88)", and returns out. */
const char *eg__origin(const eg__lines *, const eg_tensor *, char *out, size_t room);
/* The same, opening and closing the debugging information. */
const char *eg__origin_once(const eg_tensor *, char *out, size_t room);

/* -- replay.c: what was recorded, evaluated again in c128 ------------------------------------- */
/* Gives in *dy (f64, in the open scope) the derivative of y along vs[k] of xs[k], by the complex
 * step. Costs one evaluation of the rows between xs and y. False after an error, and also, without
 * one, if a row between them has no forward_c128: then *unsupported is that row. xs and vs are
 * floats of equal shapes; y may be a gradient. */
bool eg__complex_step(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs,
                      eg_tensor **dy, const eg_op **unsupported);
/* Returns y in c128 as it is where xs[k] has the c128 value zs[k]; NULL where eg__complex_step is
 * false. */
eg_tensor *eg__evaluate_c128(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *zs,
                             const eg_op **unsupported);

/* -- gradient_row.c: rows whose result d is the cotangents of several operands of another row, one
 * after the other in one axis. Their operands begin with those, x[0 … count); of these, integers
 * and truths have no part in d, nor has x[k] = NULL. count is at most EG_MEMO. ----------------- */
/* Returns the elements of d. */
int64_t eg__gradient_size(int count, eg_tensor *const *x);
/* Sets part[k] to the view of d, or of a cotangent of d, that belongs to x[k] and has its shape;
 * NULL if x[k] has no part. */
void eg__gradient_parts(eg_tensor *d, int count, eg_tensor *const *x, eg_tensor **part);
/* Copies the cotangents dx to their parts of d, unrecorded; NULL: zeros. False after an error. */
bool eg__gradient_fill(eg_tensor *d, int count, eg_tensor *const *xs, eg_tensor *const *dx);
/* Returns ⟨u, d⟩ for a cotangent u of d, with d made of operations anew as dx, so that it can be
 * differentiated. NULL if every dx is NULL. */
eg_tensor *eg__gradient_dot(eg_tensor *u, int count, eg_tensor *const *x, eg_tensor *const *dx);
/* Returns a new recorded view of x, on which nothing else depends, so that derivatives by it are
 * those of what is made of it. x itself if it is neither f32 nor f64. */
eg_tensor *eg__fresh_view(eg_tensor *x);
#endif
