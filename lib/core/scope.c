/* scope.c: the stack of scopes, and owners, which are arenas that end with a scope or earlier. */
#include "core/arena.h"
#include <string.h>

/* number of owners in a block */
#if EG_DEBUG_ALLOC
enum { OWNERS = 1 };
#else
enum { OWNERS = 32 };
#endif

/* An owner may hold a single tensor, so it uses little other memory: it is in a block with other
 * owners, its first header in a chunk for one header, and its elements in chunks that are returned
 * to the allocator when it is closed. */
struct eg_owner {
    eg__arena arena;
    eg_owner *next, **link;
};

/* -- scopes ----------------------------------------------------------------------------------- */
eg_mark eg_push(eg_ctx *cx)
{
    cx = eg__here(cx);
    if (!cx) return (eg_mark){ NULL, 0 };
    eg__chunk *c = eg__chunk_take(cx, &cx->spare_scopes, sizeof(eg__arena), 0);
    if (!c) {
        eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory: no room for a scope");
        return (eg_mark){ NULL, 0 };
    }
    eg__arena *a = (eg__arena *)(void *)eg__chunk_memory(c);
    *a = (eg__arena){ .cx = cx, .outer = cx->top, .self = c, .serial = ++cx->scopes };
    cx->top = a;
    return (eg_mark){ a, a->serial };
}

/* Ends the scope of the mark and all scopes that were left open inside it. Its memory returns to
 * the pool of the context, not to the allocator. */
void eg_pop(eg_ctx *cx, eg_mark m)
{
    cx = eg__here(cx);
    if (!cx || !m.scope) return;
    eg__arena *a = cx->top;
    while (a != &cx->root && a != cx->receiver && (a != m.scope || a->serial != m.serial))
        a = a->outer;
    if (a == &cx->root || a == cx->receiver) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "pop: this mark belongs to no open scope (popped twice, or out of order)");
        return;
    }
    for (bool last = false; !last;) { /* also ends the scopes that were left open inside */
        a = cx->top;
        last = a == m.scope;
        cx->top = a->outer;
        if (cx->receiver && !cx->aside)
            eg__arena_leave(a, cx->receiver);
        else
            eg__arena_release(a);
        eg__chunk *c = a->self;
#if EG_DEBUG_ALLOC
        eg__chunk_free(cx, c);
#else
        c->next = cx->spare_scopes;
        cx->spare_scopes = c;
#endif
    }
}

eg__scoped eg__scoped_of(eg_tensor *x)
{
    eg__arena *a = x->arena;
    /* the result of a captured operation lives as long as the step, not as its own memory */
    while (a->fixed) a = a->outer;
    return (eg__scoped){ x, { a, a->serial } };
}
eg_tensor *eg__scoped_tensor(const eg_ctx *cx, const eg__scoped *m)
{
    for (const eg__arena *a = m->x ? cx->top : NULL; a; a = a->outer)
        if (a == m->scope.scope && a->serial == m->scope.serial) return m->x;
    return NULL;
}

/* -- owners: arenas that are listed in the scope in which they were opened --------------------- */
/* Returns an owner from a block of several, not initialised; NULL (no error) without memory. */
static eg_owner *owner_take(eg_ctx *cx)
{
    eg_owner *o = cx->spare_owners;
    eg__chunk *block = o ? NULL : eg__chunk_new(cx, OWNERS * sizeof *o);
    if (block) {
#if !EG_DEBUG_ALLOC
        block->next = cx->owner_blocks;
        cx->owner_blocks = block;
#endif
        eg_owner *all = (eg_owner *)(void *)eg__chunk_memory(block);
        for (int k = OWNERS; k-- > 0; o = all + k) all[k].next = o;
    }
    if (o) cx->spare_owners = o->next;
    return o;
}
static void owner_give_back(eg_ctx *cx, eg_owner *o)
{
#if EG_DEBUG_ALLOC
    eg__chunk_free(cx, (eg__chunk *)(void *)((char *)o - EG_CHUNK_HEADER));
#else
    o->arena.owned = false;
    o->next = cx->spare_owners;
    cx->spare_owners = o;
#endif
}
/* Makes an owner and inserts it at *link, into the list of owners of a scope. NULL after an
 * error. */
static eg_owner *owner_at(eg_ctx *cx, eg_owner **link)
{
    if (eg__failed(cx) || eg__capture_refuses(cx, "owner", "only outputs are kept after the step"))
        return NULL;
    eg_owner *o = owner_take(cx);
    if (!o) {
        eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory: no room for an owner");
        return NULL;
    }
    *o = (eg_owner){ .arena = { .cx = cx, .owned = true }, .next = *link, .link = link };
    if (o->next) o->next->link = &o->next;
    return *link = o;
}
eg_owner *eg_owner_open(eg_ctx *cx)
{
    cx = eg__here(cx);
    return cx ? owner_at(cx, &cx->top->owners) : NULL;
}
/* True if the owner is open and belongs to the context that this thread works in; else records an
 * error. */
static bool owner_is_here(const eg_owner *o)
{
    eg_ctx *cx = o->arena.cx;
    if (!o->arena.owned) /* its memory is kept for the next owner */
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "owner: it was closed before, by eg_owner_close or with its scope"),
               false;
    if (cx != eg__here(cx))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "owner: it belongs to the context that waits for its blocks, and stays as it is "
                   "inside them");
    return cx == eg__here(cx);
}
eg_owner *eg__owner_open_pooled(eg_ctx *cx)
{
    eg_owner *o = eg_owner_open(cx);
    if (o) o->arena.pooled = true;
    return o;
}
eg_owner *eg_owner_sibling(eg_owner *o)
{
    return o && owner_is_here(o) ? owner_at(o->arena.cx, &o->next) : NULL;
}
eg_owner *eg_owner_open_in(eg_owner *o)
{
    return o && owner_is_here(o) ? owner_at(o->arena.cx, &o->arena.owners) : NULL;
}
void eg_owner_close(eg_owner *o)
{
    if (!o || !owner_is_here(o)) return;
    *o->link = o->next;
    if (o->next) o->next->link = o->link;
    eg__arena_release(&o->arena);
    owner_give_back(o->arena.cx, o);
}
eg_ctx *eg_owner_context(const eg_owner *o) { return o ? o->arena.cx : NULL; }
void *eg_owner_alloc(eg_owner *o, size_t bytes)
{
    if (!o || !owner_is_here(o) || o->arena.cx->failed) return NULL;
    void *p = eg__alloc_in(&o->arena, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}
void *eg_scope_alloc(eg_ctx *cx, size_t bytes)
{
    cx = eg__here(cx);
    if (!cx || cx->failed) return NULL;
    void *p = eg__alloc(cx, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}
eg__arena *eg__owner_arena(eg_owner *o) { return owner_is_here(o) ? &o->arena : NULL; }

/* -- objects that end with an owner ------------------------------------------------------------ */
typedef struct handle { /* the first members of each object */
    eg_ctx *cx;
    eg_owner *owner;
} handle;

/* Called when the owner is closed. */
static void handle_end(void *user)
{
    eg__chunk *c = user;
    handle *h = (handle *)(void *)eg__chunk_memory(c);
    eg_ctx *cx = h->cx;
    h->owner = NULL;
#if EG_DEBUG_ALLOC
    eg__chunk_free(cx, c);
#else
    c->next = cx->spare_handles;
    cx->spare_handles = c;
#endif
}
void *eg__handle(eg_owner *o, size_t bytes)
{
    eg_ctx *cx = o->arena.cx;
    eg__chunk *c = eg__chunk_take(cx, &cx->spare_handles, bytes, 0);
    if (!c) {
        eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory: no room for a captured step");
        return NULL;
    }
    handle *h = memset(eg__chunk_memory(c), 0, bytes);
    *h = (handle){ cx, o };
    if (eg__hold_foreign(&o->arena, handle_end, c, false)) return h;
    handle_end(c);
    return NULL;
}
bool eg__handle_lives(const void *object, const char *who, const char *what)
{
    const handle *h = object;
    if (!h->owner)
        eg_fail_as(h->cx, EG_ERROR_MISUSE,
                   "%s: the %s ended before, by a call that frees them or with the scope or owner",
                   who, what);
    return h->owner;
}
