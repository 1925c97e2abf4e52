/* path.c: does x reach y, and if no gradient does: what cuts it? */
#include "autograd/autograd.h"

/* Is the way from operand i to t one that eg_grad follows? */
static bool open_at(const eg_tensor *t, int i)
{
    return eg__is_float(t->dtype) && eg__is_float(t->in[i]->dtype) && !eg__sweep_zero(t);
}

/* Depth first; slot: what the node's operands have said so far. */
static bool path_search(eg_tensor *y, const eg_tensor *x)
{
    eg_ctx *cx = y->cx;
    typedef struct visit {
        eg_tensor *t;
        int next;
    } visit;
    int64_t depth = 0, room = 0;
    visit *stack = NULL;
    const uint64_t number = ++cx->sweep;
    for (eg_tensor *enter = y;;) {
        if (enter) {
            if (depth == room) {
                visit *more = eg__alloc(cx, (size_t)(room = room ? 2 * room : 64) * sizeof *more);
                if (!more) return false;
                for (int64_t k = 0; k < depth; k++) more[k] = stack[k];
                stack = more;
            }
            enter->sweep = number;
            enter->slot = enter == x ? EG_OPEN_PATH : EG_NO_PATH;
            stack[depth++] = (visit){ enter, 0 };
            enter = NULL;
        }
        visit *v = &stack[depth - 1];
        eg_tensor *t = v->t;
        if (v->next < t->count && t->slot != EG_OPEN_PATH) {
            if (!eg__operand_lives(t, v->next)) return eg__operand_gone(cx, "path_to", t, v->next);
            eg_tensor *in = t->in[v->next];
            if (in->seq >= x->seq && in->sweep != number) {
                enter = in;
                continue;
            }
            const int64_t had = in->sweep == number ? in->slot : EG_NO_PATH;
            const int64_t now = had == EG_OPEN_PATH && !open_at(t, v->next) ? EG_CUT_PATH : had;
            if (now > t->slot) t->slot = now;
            v->next++;
            continue;
        }
        if (--depth == 0) return true;
    }
}

eg_path eg_path_to(eg_tensor *y, eg_tensor *x, eg_tensor **cut)
{
    eg_ctx *cx = eg__context_of("path_to", 2, (eg_tensor *[]){ y, x });
    if (cut) *cut = NULL;
    if (!cx || !eg__check_all(cx, "path_to", 2, (eg_tensor *[]){ y, x })) return EG_NO_PATH;
    const eg_mark m = eg_push(cx);
    const eg_path path = path_search(y, x) ? (eg_path)y->slot : EG_NO_PATH;
    eg_pop(cx, m);
    const uint64_t number = cx->sweep;
    /* the cut nearest to x on one of the ways */
    for (eg_tensor *t = y; path == EG_CUT_PATH && cut && !*cut;) {
        eg_tensor *through = NULL;
        for (int i = 0; i < t->count; i++) {
            eg_tensor *in = t->in[i];
            if (in->sweep != number) continue;
            if (in->slot == EG_OPEN_PATH)
                *cut = t;
            else if (in->slot == EG_CUT_PATH)
                through = in;
        }
        if (!*cut) t = through;
    }
    return path;
}
