/* grad.c: eg_grad and the functions like it: what they refuse, the backward pass that they run, and
 * the gradients that they return. */
#include "autograd/reverse.h"
#include <string.h>

/* True if the seed fits y; else records an error. who, what: as in grad_call_fits. */
static bool grad_seed_fits(eg_ctx *cx, const char *who, const char *what, const eg_tensor *y,
                           const eg_tensor *seed)
{
    char a[256], b[256];
    if (!seed && eg_size(y) != 1)
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "%s: %s has %lld elements, shape %s: give a seed, or reduce it to one", who,
                   what, (long long)eg_size(y), eg__dims_text(y, a, sizeof a));
    else if (seed && (!eg__same_shape(seed, y) || seed->dtype != y->dtype))
        eg_fail_as(cx, seed->dtype == y->dtype ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                   "grad: the seed is %s %s, y is %s %s", eg_type_name((eg_dtype)seed->dtype),
                   eg__dims_text(seed, a, sizeof a), eg_type_name((eg_dtype)y->dtype),
                   eg__dims_text(y, b, sizeof b));
    return !cx->failed;
}

/* Records why y depends on none of the xs: an operation cuts the path, an operand was computed
 * under eg_nograd, or no operation in y's history reads one. loss_of: as in grad_call. Returns
 * false. */
static bool grad_refuse_unreached(eg_ctx *cx, const char *loss_of, eg_tensor *y, int count,
                                  eg_tensor *const *xs)
{
    char at[256], whose[256], none[160];
    eg_tensor *cut = NULL;
    eg_walk w = { .cx = cx, .who = "grad" };
    if (loss_of && count == 1)
        snprintf(none, sizeof none, "%.80s: the loss does not depend on its parameter", loss_of);
    else if (loss_of)
        snprintf(none, sizeof none, "%.80s: the loss depends on none of its %d parameters", loss_of,
                 count);
    else
        snprintf(none, sizeof none,
                 count == 1 ? "grad: y does not reach x" : "grad: y reaches none of the %d xs",
                 count);
    for (int k = 0; k < count; k++) {
        if (eg_path_to(y, xs[k], &cut) != EG_CUT_PATH) continue;
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s cuts the path to xs[%d], %s", none,
                   eg__origin(cut, at, sizeof at), k, eg__origin(xs[k], whose, sizeof whose));
        return false;
    }
    if (cx->failed || !eg__walk(&w, 1, &y)) return false;
    for (int64_t k = 0; k < w.n; k++)
        for (int i = 0; i < w.node[k]->count; i++) {
            if (!w.node[k]->in[i]->unrecorded) continue;
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "%s: operand %d of %s was made while nothing was recorded (eg_nograd)", none,
                       i + 1, eg__origin(w.node[k], at, sizeof at));
            return false;
        }
    eg_fail_as(cx, EG_ERROR_MISUSE, "%s: no operation in its history reads %s", none,
               count == 1 ? "it" : "one");
    return false;
}

/* Operand i of a node of y's history, to which eg_assign wrote a recorded result. */
typedef struct assigned {
    const eg_tensor *node;
    int i;
} assigned;
/* Returns the recorded result that operand a got; NULL if it no longer exists or is younger than
 * the node that reads the operand. */
static eg_tensor *assigned_result(const assigned *a)
{
    eg_tensor *v = eg__scoped_tensor(a->node->cx, &a->node->in[a->i]->st->assigned);
    return v && v->seq < a->node->seq ? v : NULL;
}
/* False, after an error, if y reads a tensor to which eg_assign wrote a result that depends on an x
 * without a gradient (lost[k]). */
static bool grad_not_assigned(eg_ctx *cx, eg_tensor *y, int count, eg_tensor *const *xs,
                              const bool *lost)
{
    char text[256];
    int64_t found = 0;
    eg_tensor *cut = NULL;
    eg_walk w = { .cx = cx, .who = "grad" };
    if (!eg__walk(&w, 1, &y)) return false;
    for (int64_t k = 0; k < w.n; k++)
        for (int i = 0; i < w.node[k]->count; i++)
            found += assigned_result(&(assigned){ w.node[k], i }) != NULL;
    if (!found) return true;
    assigned *all = eg__alloc(cx, (size_t)found * sizeof *all), *next = all;
    if (!all) return false;
    /* another walk, as eg_path_to makes one, uses the memory of this one */
    for (int64_t k = 0; k < w.n; k++)
        for (int i = 0; i < w.node[k]->count; i++)
            if (assigned_result(&(assigned){ w.node[k], i })) *next++ = (assigned){ w.node[k], i };
    for (int k = 0; k < count; k++)
        for (const assigned *a = all; a < next && lost[k]; a++) {
            eg_tensor *v = assigned_result(a);
            if (eg_path_to(v, xs[k], &cut) != EG_OPEN_PATH) continue;
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "grad: y depends on xs[%d] only by eg_assign, which wrote the result of %s "
                       "to operand %d of %s and has no gradient: use eg_where, eg_concat or "
                       "eg_scatter_add, or assign what eg_detach returns",
                       k, v->op->name, a->i + 1, eg__origin(a->node, text, sizeof text));
            return false;
        }
    return !cx->failed;
}

/* True if a check or a trace gets the results of operations or the cotangents, and may keep them.
 */
static bool grad_is_observed(const eg_ctx *cx)
{
    return cx->probe || cx->hooks.operand || cx->hooks.result || cx->hooks.cotangent;
}

/* The gradient of an x that y does not depend on. ZEROS_OF_ANY: y may also be a constant.
 * ZEROS_OF_EACH: of eg_grad_each. COPIES_OF_EACH: of a part of it; gradients remain copies. */
typedef enum unreached { ZEROS, ZEROS_OF_ANY, NULLS, ZEROS_OF_EACH, COPIES_OF_EACH } unreached;
/* A call of eg_grad or a function like it. */
typedef struct grad_call {
    eg_tensor *y, *seed; /* seed NULL: y has one element, and the seed is 1 */
    int count;
    eg_tensor *const *xs;
    eg_tensor **dxs; /* NULL if gradients are added to sums */
    unreached how;
    uint64_t leaves; /* tensors with a seq of at most this are leaves */
    eg_into *into;   /* NULL without sums */
    const eg_into_watch *watch;
    const char *loss_of; /* the optimiser whose loss y is, for messages; NULL: y is called y */
} grad_call;
/* True if the arguments are valid and y was recorded; else records an error, one about y under the
 * name that loss_of says. */
static bool grad_call_fits(eg_ctx *cx, const grad_call *q)
{
    char who[128] = "grad";
    const char *what = q->loss_of ? "it" : "y";
    if (q->loss_of) snprintf(who, sizeof who, "%.80s: the loss has no gradient", q->loss_of);
    if (!eg__check_differentiable(cx, who, what, -1, q->y) ||
        (q->seed && !eg__check_seed(cx, "grad", "the seed", -1, q->seed)))
        return false;
    if (q->count < 0) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "grad: the number of xs is %d, but must not be negative",
                   q->count);
        return false;
    }
    if (q->count && (!q->xs || (!q->dxs && !q->into))) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "grad: %s is NULL", q->xs ? "dxs" : "xs");
        return false;
    }
    for (int k = 0; k < q->count; k++)
        if (!eg__check_differentiable(cx, "grad", "xs", k, q->xs[k])) return false;
    if (!grad_seed_fits(cx, who, what, q->y, q->seed)) return false;
    const bool constant = q->how == ZEROS_OF_ANY || q->how == COPIES_OF_EACH;
    if (q->count && !constant && !eg__check_recorded(cx, who, what, q->y, q->count, q->xs))
        return false;
    if (q->how == ZEROS_OF_EACH && !q->y->copies) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "grad_each: y has no copies; eg_copies_unstack makes each example one");
        return false;
    }
    return true;
}
/* Sets the dxs to the cotangents of the xs after the pass. False after an error, such as an x on
 * which y depends by eg_assign alone. */
static bool grad_results(reverse *r, const grad_call *q)
{
    eg_ctx *cx = r->s.cx;
    bool *lost = NULL; /* for each x, that it has no gradient; NULL: all have one */
    for (int k = 0; k < q->count; k++) {
        eg_tensor *x = q->xs[k], *d = eg__sweep_at(&r->s, x);
        if (d && r->is_x[x->slot]) d->st->pending--;
        if (d) r->is_x[x->slot] = false;
        if (!d && q->how == ZEROS && !lost) {
            if (!(lost = eg__alloc(cx, (size_t)q->count))) return false;
            memset(lost, 0, (size_t)q->count);
        }
        if (lost) lost[k] = !d;
        q->dxs[k] = d || q->how == NULLS ? d : eg_zeros_like(x);
        const eg_copies *c = r->each ? q->y->copies : x->copies;
        if (c && q->dxs[k]) q->dxs[k] = eg__copies_spread(c, q->dxs[k]);
        if (q->how == ZEROS_OF_EACH) q->dxs[k] = eg_copies_stack(q->dxs[k]);
    }
    /* the marks of the pass are no longer needed */
    return !lost || grad_not_assigned(cx, q->y, q->count, q->xs, lost);
}
/* True for a call of eg_grad, of a y with copies, by the rule of an operation with copies. A
 * gradient by an x without copies then has copies, since the backward pass that calls the rule adds
 * them up. (What a checkpoint calls again is not a rule.) */
static bool called_by_rule_of_copies(const eg_ctx *cx, const grad_call *q)
{
    const eg_tensor *t = cx->rule_node;
    return (q->how == ZEROS || q->how == NULLS) && q->y->copies && t && t->copies &&
           !eg__is_checkpoint(t);
}
/* Finds the nodes between y and the xs, and runs the backward pass. False after an error. */
static bool grad_pass(eg_ctx *cx, const grad_call *q, reverse *r)
{
    eg_sweep *s = &r->s;
    if (q->count && !eg__sweep(s, 1, &q->y, q->count, q->xs)) return false;
    if (q->count && !s->n && q->how == NULLS)
        return grad_refuse_unreached(cx, q->loss_of, q->y, q->count, q->xs);
    r->sums = s->n ? eg__alloc(cx, 2 * (size_t)s->n) : NULL;
    if (s->n && !r->sums) return false;
    if (s->n) memset(r->sums, 0, 2 * (size_t)s->n);
    r->is_x = s->n ? r->sums + s->n : NULL;
    if (q->into && s->n && !eg__reverse_targets(r)) return false;
    for (int k = 0; k < q->count; k++)
        if (eg__sweep_has(s, q->xs[k])) r->is_x[q->xs[k]->slot] = true;
    /* y is the last one in the list */
    if (s->n) reverse_keep(s->d[s->n - 1] = q->seed ? q->seed : eg_ones_like(q->y));
    if (!eg__reverse_nodes(r)) return false;
    return (q->into || grad_results(r, q)) && !cx->failed;
}
/* Checks the call and computes the gradients. After an error on this rank alone, the other ranks
 * learn of it. False after an error. */
static bool grad_run(eg_ctx *cx, const grad_call *q)
{
    reverse r = { .s = { .cx = cx, .who = "grad", .leaves = q->leaves },
                  .begun = cx->seq,
                  .ends = !cx->recording && !eg__capturing(cx) && !grad_is_observed(cx),
                  .each = q->how == ZEROS_OF_EACH || q->how == COPIES_OF_EACH ||
                          called_by_rule_of_copies(cx, q),
                  .count = q->count,
                  .xs = q->xs,
                  .into = q->into,
                  .watch = q->watch,
                  .at = -1,
                  .left = q->count };
    const bool fits = grad_call_fits(cx, q);
    if (fits && grad_pass(cx, q, &r)) return true;
    if (r.at < 0) {
        eg__pass_refused(cx);
        return false;
    }
    /* what a checkpoint calls may have failed before it communicated */
    const bool communicated = r.called && !eg__is_checkpoint(r.s.node[r.at]);
    eg__pass_failed(&r.s, 0, r.at + !communicated);
    return false;
}

/* Computes the gradients of a call in the context that this thread uses. Returns 0; −1 after an
 * error, when the dxs are poison. */
static int grad_as(grad_call q)
{
    eg_ctx *cx = q.y ? eg__here(q.y->cx) : eg__context_of("grad", q.count, q.xs);
    eg_tensor *const *seed = &q.seed;
    /* in a child context the child's headers replace tensors of the parent */
    const bool own = !cx || !cx->parent || q.count < 0 || !q.xs || !q.y ||
                     ((q.xs = eg__own_all(cx, q.count, q.xs)) && (q.y = eg__own(q.y)) &&
                      (seed = eg__own_all(cx, 1, seed)));
    if (own) q.seed = *seed;
    const bool good = cx && own && grad_run(cx, &q);
    if (!good && q.dxs)
        for (int k = 0; k < q.count; k++) q.dxs[k] = eg__poison(cx);
    return good ? 0 : -1;
}
int eg_grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(
        (grad_call){ .y = y, .seed = seed, .count = count, .xs = xs, .dxs = dxs, .how = ZEROS });
}
int eg_grad_each(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(
        (grad_call){ .y = y, .count = count, .xs = xs, .dxs = dxs, .how = ZEROS_OF_EACH });
}
int eg__grad(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as((grad_call){
        .y = y, .seed = seed, .count = count, .xs = xs, .dxs = dxs, .how = ZEROS_OF_ANY });
}
int eg__grad_part(eg_tensor *y, eg_tensor *seed, uint64_t leaves, int count, eg_tensor *const *xs,
                  eg_tensor **dxs)
{
    const bool each = eg_ok(y) && y->copies && y->cx->each_copy;
    return grad_as((grad_call){ .y = y,
                                .seed = seed,
                                .count = count,
                                .xs = xs,
                                .dxs = dxs,
                                .how = each ? COPIES_OF_EACH : ZEROS_OF_ANY,
                                .leaves = leaves });
}
int eg_grad_or_null(eg_tensor *y, eg_tensor *seed, int count, eg_tensor *const *xs, eg_tensor **dxs)
{
    return grad_as(
        (grad_call){ .y = y, .seed = seed, .count = count, .xs = xs, .dxs = dxs, .how = NULLS });
}
int eg_grad_of_loss(const char *who, eg_tensor *loss, int count, eg_tensor *const *xs,
                    eg_tensor **dxs)
{
    return grad_as((grad_call){ .y = loss,
                                .count = count,
                                .xs = xs,
                                .dxs = dxs,
                                .how = NULLS,
                                .loss_of = who ? who : "grad_of_loss" });
}
int eg__grad_into(eg_tensor *y, int count, eg_tensor *const *xs, eg_into *into,
                  const eg_into_watch *watch)
{
    return grad_as((grad_call){
        .y = y, .count = count, .xs = xs, .how = NULLS, .into = into, .watch = watch });
}
