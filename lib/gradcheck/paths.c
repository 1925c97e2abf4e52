/* paths.c: finds the paths on the tape from each input to the result of f, whether a path has a
 * gradient, and where a path ends. A path ends at an operation whose gradient is zero by definition
 * or not defined: floor, detach, a comparison, a cast to an integer. */
#include "gradcheck/gradcheck.h"
#include <string.h>

/* For a node, bit k for input k: there is a path from the input to the node; there is a path with a
 * gradient. */
typedef struct reach {
    uint64_t any, alive;
} reach;

/* Returns the inputs (bits) that are the tensor t; several, if a tensor was given twice. */
static uint64_t inputs_at(const eg__trial *c, const eg_tensor *t)
{
    uint64_t is = 0;
    for (int k = 0; k < c->o.count; k++)
        if (c->o.xs[k] == t) is |= UINT64_C(1) << k;
    return is;
}
static void paths_add(eg__site *list, int *count, const eg_tensor *t)
{
    for (int k = 0; k < *count && k < EG_SITES; k++)
        if (list[k].name == t->op->name && list[k].caller == t->caller) return;
    if (*count < EG_SITES) list[*count] = eg__site_of(t);
    ++*count;
}

/* Returns which inputs reach node t. Adds to `path` the operations at which a path with a gradient
 * ends, and the operations that read an input. */
static reach paths_at(const eg__trial *c, const eg_walk *w, const reach *done, const eg_tensor *t,
                      eg__path *path)
{
    const uint64_t is = inputs_at(c, t);
    reach f = { is, is };
    uint64_t ends = 0, used = 0;
    const bool flat =
        t->op && (!t->op->rule || t->op->rule == eg_zero_rule || !eg__is_float(t->dtype));
    for (int i = 0; i < t->count; i++) {
        const eg_tensor *x = t->in[i];
        const uint64_t read = inputs_at(c, x);
        const reach from = eg__walked(w, x) ? done[x->slot] : (reach){ read, read };
        f.any |= from.any;
        *(flat ? &ends : &f.alive) |= from.alive;
        used |= read;
    }
    for (int k = 0; k < c->o.count; k++) {
        if (ends >> k & 1) paths_add(path[k].cut, &path[k].cuts, t);
        if (used >> k & 1) paths_add(path[k].used, &path[k].uses, t);
    }
    return f;
}

bool eg__paths(eg__trial *c, eg_tensor *y, eg__path *path)
{
    eg_walk w = { .cx = c->cx, .oldest = c->probe->first_seq };
    reach *done = eg__walk(&w, 1, &y) ? eg__alloc(c->cx, (size_t)w.n * sizeof *done) : NULL;
    if (!done) return false;
    for (int k = 0; k < c->o.count; k++) path[k] = (eg__path){ .alive = false };
    for (int64_t n = 0; n < w.n; n++) done[n] = paths_at(c, &w, done, w.node[n], path);
    for (int k = 0; k < c->o.count; k++) {
        path[k].alive = done[w.n - 1].alive >> k & 1;
        path[k].any = done[w.n - 1].any >> k & 1;
    }
    return true;
}

bool eg__nodes(eg_tensor *y, int64_t *count, eg_tensor ***node)
{
    eg_walk w = { .cx = y->cx };
    if (!eg__walk(&w, 1, &y)) return false;
    *count = w.n;
    *node = eg__alloc(y->cx, (size_t)(w.n + 1) * sizeof **node);
    if (*node) memcpy(*node, w.node, (size_t)w.n * sizeof **node);
    return *node != NULL;
}
