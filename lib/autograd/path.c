/* path.c: finds out whether x has a gradient path to y and, if not, which operation cuts it. */
#include "autograd/autograd.h"

/* True if eg_grad follows the edge from operand i to t. */
static bool open_at(const eg_tensor *t, int i)
{
    return eg__is_float(t->dtype) && eg__is_float(t->in[i]->dtype) && !eg__sweep_zero(t);
}

/* First each node's best path from x is found, in the order of the list; then, if y's is cut, the
 * operation that cuts it. */
eg_path eg_path_to(eg_tensor *y, eg_tensor *x, eg_tensor **cut)
{
    eg_ctx *cx = eg__context_of("path_to", 2, (eg_tensor *[]){ y, x });
    if (cut) *cut = NULL;
    if (!cx || !eg__check_all(cx, "path_to", 2, (eg_tensor *[]){ y, x })) return EG_NO_PATH;
    if (!(x = eg__own(x)) || !(y = eg__own(y))) return EG_NO_PATH;
    const eg_mark m = eg_push(cx);
    eg_walk w = { .cx = cx, .who = "path_to", .oldest = x->seq };
    const bool walked = eg__walk(&w, 1, &y);
    /* from here on t->slot is the eg_path from x to t */
    for (int64_t k = 0; walked && k < w.n; k++) {
        eg_tensor *t = w.node[k];
        t->slot = t == x ? EG_OPEN_PATH : EG_NO_PATH;
        for (int i = 0; i < t->count; i++) {
            const eg_tensor *in = t->in[i];
            if (in->seq < x->seq) continue;
            const int64_t by = in->slot == EG_OPEN_PATH && !open_at(t, i) ? EG_CUT_PATH : in->slot;
            if (by > t->slot) t->slot = by;
        }
    }
    eg_pop(cx, m);
    const eg_path path = walked ? (eg_path)y->slot : EG_NO_PATH;
    /* follow a cut path from y back to the cut that is nearest to x */
    for (eg_tensor *t = y; path == EG_CUT_PATH && cut && !*cut;) {
        eg_tensor *through = NULL;
        for (int i = 0; i < t->count; i++) {
            eg_tensor *in = t->in[i];
            if (in->seq < x->seq) continue;
            if (in->slot == EG_OPEN_PATH)
                *cut = t;
            else if (in->slot == EG_CUT_PATH)
                through = in;
        }
        if (!*cut) t = through;
    }
    return path;
}
