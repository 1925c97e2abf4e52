/* autograd.h: the part of the tape between some results and the xs, for the reverse sweep
 * (reverse.c) and the forward one (forward.c). */
#ifndef EG_AUTOGRAD_H
#define EG_AUTOGRAD_H
#include "ops/ops.h"

typedef struct eg_sweep {
    eg_ctx *cx;
    const char *who; /* "grad", "jvp": for messages */
    bool zeros;      /* also through rows whose gradient is zero by definition */
    uint64_t number; /* t->sweep of the nodes seen */
    /* nodes on a path from an x to a result, operands first; their cotangents or tangents, all NULL
     * at first */
    eg_tensor **node, **d;
    int64_t n;
    const eg_tensor *checked; /* the node whose operands eg__sweep_fresh looked at last … */
    int stale[2];             /* … and which of them had changed */
} eg_sweep;

/* is x[k] a float of cx? else a message; k < 0: there is only one */
bool eg__sweep_usable(eg_ctx *, const char *who, const char *what, int k, const eg_tensor *x);
/* cx and who are set; false after an error */
bool eg__sweep(eg_sweep *, int results, eg_tensor *const *ys, int count, eg_tensor *const *xs);
void eg__sweep_resume(eg_sweep *); /* after a rule, which may have swept itself */
/* True unless y was made while nothing was recorded and is none of the xs; then records an error.
 */
bool eg__sweep_history(eg_ctx *, const char *who, const eg_tensor *y, int count,
                       eg_tensor *const *xs);
/* eg_grad without that question: of the result of a function that may be constant */
int eg__grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs);
/* has what t's rule for operand i reads its old value? else a message */
bool eg__sweep_fresh(eg_sweep *, const eg_tensor *t, int i);
/* may d, from t's rule (or jvp, hook), stand for x, operand i (−1: the result)? else a message */
bool eg__sweep_like(const eg_sweep *, const eg_tensor *t, const char *from, const eg_tensor *d,
                    const eg_tensor *x, int i);
static inline bool eg__sweep_has(const eg_sweep *s, const eg_tensor *t)
{
    return t->sweep == s->number && t->slot >= 0;
}
/* nothing flows back through it */
static inline bool eg__sweep_zero(const eg_tensor *t)
{
    return t->op && t->op->rule == eg_zero_rule;
}
static inline eg_tensor *eg__sweep_at(const eg_sweep *s, const eg_tensor *t)
{
    return eg__sweep_has(s, t) ? s->d[t->slot] : NULL;
}

/* -- graph.c: all that y was made of, each once, operands before results; false after an error */
bool eg__history(const char *who, eg_tensor *y, int64_t *count, eg_tensor ***nodes);
/* True if operand i of t is still what t was made of: a header that another tensor has taken since
 * has a greater number than t. */
static inline bool eg__operand_lives(const eg_tensor *t, int i)
{
    return t->in[i]->live == EG_LIVE && t->in[i]->seq < t->seq;
}
/* false, after a message */
bool eg__operand_gone(eg_ctx *, const char *who, const eg_tensor *t, int i);

/* -- origin.c --------------------------------------------------------------------------------- */
typedef struct eg__hook {
    struct eg__hook *next;
    eg_hook_function *f;
    void *user;
    bool runs;
} eg__hook;
typedef struct eg__tag {
    const char *name;
    eg__hook *hook;
} eg__tag;
/* the program's debugging information, while it is open */
typedef struct eg__lines {
    void *so, *session, *room[24];
} eg__lines;
void eg__lines_open(eg__lines *);
void eg__lines_close(eg__lines *);
/* "model.c:88", "main+0x1a" or "" */
const char *eg__line(const eg__lines *, const void *caller, char *out, size_t room);
/* "mul (model.c:88)" */
const char *eg__origin(const eg__lines *, const eg_tensor *, char *out, size_t room);
const char *eg__origin_once(const eg_tensor *, char *out, size_t room);

/* -- autograd/replay.c ------------------------------------------------------------------------ */
/* *dy (f64, in the open scope) = the derivative of y along vs[k] of xs[k], by evaluating what was
 * recorded between them again in c128. False after an error, or with *unsupported set, and no
 * error, to a row between them that cannot. xs and vs: floats of equal shapes. y may be a gradient.
 * Costs an evaluation of the recorded rows. */
bool eg__complex_step(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs,
                      eg_tensor **dy, const eg_op **unsupported);
/* y in c128, where xs[k] has the c128 value zs[k]: what eg__complex_step does inside. NULL as
 * above. */
eg_tensor *eg__evaluate_c128(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *zs,
                             const eg_op **unsupported);
#endif
