/* check_paths.c: what the tape says of the inputs: is there a path with a gradient from x to f's result, and where does one end?
 * A path ends at an operation whose gradient is zero by definition or not defined (floor, a comparison, a cast to an integer), and at
 * eg_detach, which leaves no operand behind but shares the storage of what it was made from. */
#include "autograd/check.h"
#include <stdio.h>
#include <string.h>

typedef struct node { eg_tensor *t; uint64_t any, alive; } node;        /* bit k: some path, a path with a gradient, from input k */
typedef struct walk { eg__trial *c; eg__path *path; node *done; int64_t n, room; uint64_t number; } walk;

static void *grown(eg_ctx *cx, void *old, size_t elem, int64_t n, int64_t *room)
{
    const int64_t more = *room ? 2 * *room : 64;
    void *p = eg__alloc(cx, (size_t)more * elem);
    if (p && n) memcpy(p, old, (size_t)n * elem);
    if (p) *room = more;
    return p;
}

/* The inputs that lie in this storage. */
static uint64_t inputs_in(const eg__trial *c, const eg_storage *st)
{
    uint64_t mask = 0;
    for (int k = 0; k < c->o.count; k++) if (c->o.xs[k]->st == st) mask |= UINT64_C(1) << k;
    return mask;
}
/* What a leaf was detached from: the tensor whose own storage it shares; NULL if none of f's. */
static eg_tensor *origin(const eg__trial *c, const eg_tensor *leaf)
{
    if (leaf->st == &leaf->own || leaf->seq < c->probe->born || inputs_in(c, leaf->st)) return NULL;
    for (const eg__moved *m = c->probe->moved; m; m = m->next) if (leaf->st == &m->now || leaf->st == m->st) return NULL;
    return (eg_tensor *)(void *)((char *)leaf->st - offsetof(eg_tensor, own));
}
static eg_tensor *operand(const eg__trial *c, const eg_tensor *t, int i)
{
    return t->op ? i < t->count ? t->in[i] : NULL : i == 0 ? origin(c, t) : NULL;
}

const char *eg__called(const eg_tensor *y, char *out, size_t room)
{
    snprintf(out, room, "%s", y->op ? y->op->name : "detach");
    return out;
}
static void add(char *list, size_t room, const char *name)
{
    const size_t n = strlen(list), want = strlen(name);
    for (const char *at = strstr(list, name); at; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ' ') && (at[want] == ',' || !at[want])) return;
    if (n + want + 3 < room) snprintf(list + n, room - n, "%s%s", n ? ", " : "", name);
}

/* In post-order, so that the operands are done. */
static bool finish(walk *w, eg_tensor *t)
{
    const eg__trial *c = w->c;
    char name[96];
    node *f = &w->done[w->n];
    *f = (node){ .t = t };
    t->slot = w->n++;
    for (int k = 0; k < c->o.count; k++) if (c->o.xs[k] == t) f->any |= UINT64_C(1) << k;
    f->alive = f->any;
    if (f->any) return true;
    uint64_t ends = t->op ? 0 : inputs_in(c, t->st), used = ends;       /* detached from an input itself */
    const bool flat = !t->op || !t->op->rule || t->op->rule == eg_zero_rule || !eg__is_float(t->dtype);
    f->any = ends;
    for (int i = 0; operand(c, t, i); i++) {
        const eg_tensor *x = operand(c, t, i);
        if (x->sweep != w->number) continue;
        const node *from = &w->done[x->slot];
        f->any |= from->any;
        *(flat ? &ends : &f->alive) |= from->alive;
        for (int k = 0; k < c->o.count; k++) if (c->o.xs[k] == x) used |= UINT64_C(1) << k;
    }
    for (int k = 0; k < c->o.count; k++) {
        if (ends >> k & 1) add(w->path[k].cut, sizeof w->path[k].cut, eg__called(t, name, sizeof name));
        if (used >> k & 1) add(w->path[k].used, sizeof w->path[k].used, eg__called(t, name, sizeof name));
    }
    return true;
}

bool eg__paths(eg__trial *c, eg_tensor *y, eg__path *path)
{
    eg_ctx *cx = c->cx;
    walk w = { .c = c, .path = path, .number = ++cx->sweep };
    struct visit { eg_tensor *t; int next; } *stack = NULL;
    int64_t depth = 0, room = 0;
    eg_tensor *enter = y;
    for (int k = 0; k < c->o.count; k++) path[k] = (eg__path){ .alive = false };
    for (;;) {
        if (enter) {
            if (depth == room && !(stack = grown(cx, stack, sizeof *stack, depth, &room))) return false;
            stack[depth++] = (struct visit){ .t = enter };
            enter->sweep = w.number;
            enter = NULL;
        }
        struct visit *v = &stack[depth - 1];
        eg_tensor *x = operand(c, v->t, v->next++);
        if (x) {
            bool input = false;
            for (int k = 0; k < c->o.count; k++) input |= c->o.xs[k] == x;
            if (x->sweep != w.number && (input || x->seq >= c->probe->born)) enter = x;
            continue;
        }
        if (w.n == w.room && !(w.done = grown(cx, w.done, sizeof *w.done, w.n, &w.room))) return false;
        finish(&w, v->t);
        if (--depth == 0) break;
    }
    const node *last = &w.done[w.n - 1];
    for (int k = 0; k < c->o.count; k++) { path[k].alive = last->alive >> k & 1; path[k].any = last->any >> k & 1; }
    return true;
}
