/* communicating.c: backward and forward passes in which this rank waits for others.
 *
 * The rules of attention over a divided length and of eg_ranks_shared exchange messages, and begin
 * with an exchange of errors. If a pass ends early on one rank, as when an allocation fails between
 * two of these rules, the others wait in the next rule. This rank then takes part in its exchange
 * of errors, after which all ranks have the error, and none of them visits another node. */
#include "autograd/autograd.h"

eg_tensor *eg__communicates(eg_tensor *y)
{
    if (!y || y->poison || !y->op) return y;
    y->communicates = true;
    y->cx->communications++;
    y->cx->last_communicating = eg__scoped_of(y);
    return y;
}
/* An error that all ranks have is not told again. */
static void tell_groups(const eg_ctx *cx)
{
    for (eg__group *g = cx->failed ? cx->groups : NULL; g; g = g->next) g->tell(g);
}
void eg__pass_failed(eg_sweep *s, int64_t from, int64_t to)
{
    if (!s->cx->groups) return;
    eg__sweep_reclaim(s);
    for (int64_t k = from; k < to; k++) {
        const eg_tensor *t = s->node[k];
        if (!t->communicates || eg__sweep_ends(s, t)) continue;
        for (int i = 0; i < t->count; i++)
            if (eg__sweep_has(s, t->in[i])) {
                tell_groups(s->cx);
                return;
            }
    }
}
/* Without the nodes, it is assumed that the other ranks visit what was recorded last and still
 * exists. */
void eg__pass_refused(const eg_ctx *cx)
{
    if (cx->groups && eg__scoped_tensor(cx, &cx->last_communicating)) tell_groups(cx);
}
