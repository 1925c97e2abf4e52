/* paths.c: what the tape says of the inputs: is there a path with a gradient from x to f's
 * result, and where does one end? A path ends at an operation whose gradient is zero by definition
 * or not defined: floor, detach, a comparison, a cast to an integer. */
#include "gradcheck/gradcheck.h"
#include <string.h>

/* bit k: some path, a path with a gradient, from input k */
typedef struct node {
    eg_tensor *t;
    uint64_t any, alive;
} node;
typedef struct walk {
    eg__trial *c;
    eg__path *path;
    node *done;
    int64_t n, room;
    uint64_t number;
} walk;

static void *grown(eg_ctx *cx, void *old, size_t elem, int64_t n, int64_t *room)
{
    const int64_t more = *room ? 2 * *room : 64;
    void *p = eg__alloc(cx, (size_t)more * elem);
    if (p && n) memcpy(p, old, (size_t)n * elem);
    if (p) *room = more;
    return p;
}

static void paths_add(eg__site *list, int *count, const eg_tensor *t)
{
    for (int k = 0; k < *count && k < EG_SITES; k++)
        if (list[k].name == t->op->name && list[k].caller == t->caller) return;
    if (*count < EG_SITES) list[*count] = eg__site_of(t);
    ++*count;
}

/* In post-order, so that the operands are done. */
static void paths_finish(walk *w, eg_tensor *t)
{
    const eg__trial *c = w->c;
    node *f = &w->done[w->n];
    *f = (node){ .t = t };
    t->slot = w->n++;
    for (int k = 0; k < c->o.count; k++)
        if (c->o.xs[k] == t) f->any |= UINT64_C(1) << k;
    f->alive = f->any;
    uint64_t ends = 0, used = 0;
    const bool flat =
        t->op && (!t->op->rule || t->op->rule == eg_zero_rule || !eg__is_float(t->dtype));
    for (int i = 0; i < t->count; i++) {
        const eg_tensor *x = t->in[i];
        if (x->sweep != w->number) continue;
        const node *from = &w->done[x->slot];
        f->any |= from->any;
        *(flat ? &ends : &f->alive) |= from->alive;
        for (int k = 0; k < c->o.count; k++)
            if (c->o.xs[k] == x) used |= UINT64_C(1) << k;
    }
    for (int k = 0; k < c->o.count; k++) {
        if (ends >> k & 1) paths_add(w->path[k].cut, &w->path[k].cuts, t);
        if (used >> k & 1) paths_add(w->path[k].used, &w->path[k].uses, t);
    }
}

bool eg__paths(eg__trial *c, eg_tensor *y, eg__path *path)
{
    eg_ctx *cx = c->cx;
    walk w = { .c = c, .path = path, .number = ++cx->sweep };
    struct visit {
        eg_tensor *t;
        int next;
    } *stack = NULL;
    int64_t depth = 0, room = 0;
    eg_tensor *enter = y;
    for (int k = 0; k < c->o.count; k++) path[k] = (eg__path){ .alive = false };
    for (;;) {
        if (enter) {
            if (depth == room && !(stack = grown(cx, stack, sizeof *stack, depth, &room)))
                return false;
            stack[depth++] = (struct visit){ .t = enter };
            enter->sweep = w.number;
            enter = NULL;
        }
        struct visit *v = &stack[depth - 1];
        eg_tensor *x = v->next < v->t->count ? v->t->in[v->next++] : NULL;
        if (x) {
            bool input = false;
            for (int k = 0; k < c->o.count; k++) input |= c->o.xs[k] == x;
            if (x->sweep != w.number && (input || x->seq >= c->probe->born)) enter = x;
            continue;
        }
        if (w.n == w.room && !(w.done = grown(cx, w.done, sizeof *w.done, w.n, &w.room)))
            return false;
        paths_finish(&w, v->t);
        if (--depth == 0) break;
    }
    const node *last = &w.done[w.n - 1];
    for (int k = 0; k < c->o.count; k++) {
        path[k].alive = last->alive >> k & 1;
        path[k].any = last->any >> k & 1;
    }
    return true;
}
