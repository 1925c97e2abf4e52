/* context.c: what a context owns: memory in arenas, the scope stack, owners, the first error,
 * switches.
 *
 * Memory comes from the allocator in chunks. An arena (one scope, or one owner) bumps through its
 * chunks and gives them all back to the context's pool at once, where the next arena finds them: a
 * training step that repeats asks the allocator for nothing. Tensor headers lie in chunks of their
 * own, which never hold anything else, so that a tensor used after its scope was popped is still
 * recognised, until its slot is taken again: not before RESTING others were. With EG_DEBUG_ALLOC
 * every header and every block of data is an allocation of its own, freed at the pop, so that
 * sanitizers and valgrind see each misuse. */
#include "core/core.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = EG_ALIGN, CHUNK_MIN = 1 << 16, CHUNK_MAX = 1 << 26, PAGE = 1 << 21 };
/* headers: in a chunk; at least so many rest before the one that died first is taken again */
enum { UNIT = 16, RESTING = 2048 };
/* owners in a block; bytes of an owner's small chunk */
#if EG_DEBUG_ALLOC
enum { OWNERS = 1 };
#else
enum { OWNERS = 32, SMALL = 1 << 12 };
#endif
#define HEADER EG_CHUNK_HEADER

/* An owner may be one tensor's, so it takes what it holds and little more: it lies in a block with
 * others, its first header in a chunk of its own, and its numbers in chunks that go back to the
 * allocator when it is closed. */
struct eg_owner {
    eg__arena arena;
    eg_owner *next, **link;
};

/* Large blocks lie on large pages where the system has them: fewer faults at first, fewer misses of
 * the page table's cache later. */
static void *plain_realloc(void *user, void *p, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size) {
        p = realloc(p, new_size);
#ifdef MADV_HUGEPAGE
        const uintptr_t from = ((uintptr_t)p + PAGE - 1) & -(uintptr_t)PAGE,
                        to = ((uintptr_t)p + new_size) & -(uintptr_t)PAGE;
        /* advice: whether it is taken is no error */
        if (p && new_size >= 2 * PAGE) madvise((void *)from, to - from, MADV_HUGEPAGE);
#endif
        return p;
    }
    free(p);
    return NULL;
}

/* -- chunks ----------------------------------------------------------------------------------- */
static eg__chunk *chunk_new(eg_ctx *cx, size_t cap)
{
    if (cap > SIZE_MAX - HEADER - ALIGN) return NULL;
    size_t total = HEADER + cap + ALIGN;
    void *raw = cx->realloc(cx->user, NULL, 0, total);
    if (!raw) return NULL;
    eg__chunk *c = (eg__chunk *)(((uintptr_t)raw + ALIGN - 1) / ALIGN * ALIGN);
    *c = (eg__chunk){ .total = total, .raw = raw, .cap = cap };
    cx->use.mallocs++;
    cx->use.bytes += total;
    if (cx->use.bytes > cx->use.peak) cx->use.peak = cx->use.bytes;
    return c;
}
static void chunk_free(eg_ctx *cx, eg__chunk *c)
{
    cx->use.bytes -= c->total;
    cx->realloc(cx->user, c->raw, c->total, 0);
}

/* A chunk from the pool, or a new one of at least `floor` bytes, more the more is in use already;
 * floor 0: no more than it needs. */
static eg__chunk *chunk_take(eg_ctx *cx, eg__chunk **pool, size_t need, size_t floor)
{
#if !EG_DEBUG_ALLOC
    for (eg__chunk **at = pool; *at; at = &(*at)->next)
        if ((*at)->cap >= need) {
            eg__chunk *c = *at;
            *at = c->next;
            c->used = 0;
            return c;
        }
    if (!floor) return chunk_new(cx, need);
    size_t grow = cx->use.bytes / 2 < CHUNK_MAX ? cx->use.bytes / 2 : CHUNK_MAX;
    if (grow < floor) grow = floor;
    if (need < grow) {
        eg__chunk *c = chunk_new(cx, grow);
        if (c) return c; /* else less will have to do */
    }
#else
    (void)pool;
    (void)floor;
#endif
    return chunk_new(cx, need);
}
/* The same for an owner: what is asked for, or, for an owner that grows by small pieces, twice as
 * much as before. */
static eg__chunk *chunk_for_owner(eg__arena *a, size_t need)
{
#if !EG_DEBUG_ALLOC
    size_t grow = a->data ? 2 * a->data->cap : 0, most = need < SMALL / UNIT ? SMALL : UNIT * need;
    if (grow > most) grow = most;
    if (grow > CHUNK_MAX) grow = CHUNK_MAX;
    eg__chunk *c = need < grow ? chunk_new(a->cx, grow) : NULL;
    if (c) return c;
#endif
    return chunk_new(a->cx, need);
}
/* `used` falls only where chunks are released, so it is enough to look for its peak there and where
 * it is asked for. */
static void note_peak(eg_usage *u)
{
    if (u->used > u->used_peak) u->used_peak = u->used;
}

/* An owner's chunks go back to the allocator, a scope's to the pool of the context. */
static void data_release(eg_ctx *cx, eg__chunk **list, bool owned)
{
    note_peak(&cx->use);
    for (eg__chunk *c = *list, *next; c; c = next) {
        next = c->next;
        cx->use.used -= c->used;
        if (!eg__hold_leave_chunk(cx, c)) continue;
#if EG_DEBUG_ALLOC
        chunk_free(cx, c);
        (void)owned;
#else
        if (owned) {
            chunk_free(cx, c);
            continue;
        }
        /* the chunk that was taken first ends up in front: the next step takes them in the same
         * order */
        c->next = cx->spare_data;
        cx->spare_data = c;
#endif
    }
    *list = NULL;
}

/* -- chunks of headers ------------------------------------------------------------------------ */
static void headers_release(eg_ctx *cx, eg__chunk **list)
{
    for (eg__chunk *c = *list, *next; c; c = next) {
        next = c->next;
        for (size_t at = c->from; at < c->used; at += sizeof(eg_tensor))
            ((eg_tensor *)(void *)(eg__chunk_room(c) + at))->live = EG_DEAD;
#if EG_DEBUG_ALLOC
        chunk_free(cx, c);
#else
        const int unit = (int)(c->cap / sizeof(eg_tensor));
        struct eg__headers *h = &cx->headers[unit == 1];
        c->from = c->used;
        if (c->cap - c->used >= sizeof(eg_tensor)) {
            c->next = h->begun;
            h->begun = c;
        } else {
            c->next = NULL;
            if (!h->dead) h->end = &h->dead;
            *h->end = c;
            h->end = &c->next;
            h->resting += unit;
        }
#endif
    }
    *list = NULL;
}

#if EG_DEBUG_ALLOC
static eg__chunk *headers_take(eg_ctx *cx, int unit)
{
    (void)unit;
    return chunk_new(cx, sizeof(eg_tensor));
}
#else
/* A block of at least `chunks` chunks, which are begun from its start; false without memory. */
static bool headers_block(eg_ctx *cx, struct eg__headers *h, int unit, int64_t chunks)
{
    const size_t cap = (size_t)unit * sizeof(eg_tensor);
    const size_t step = (EG_CHUNK_HEADER + cap + ALIGN - 1) / ALIGN * ALIGN;
    eg__chunk *block = chunk_new(cx, (size_t)chunks * step);
    if (!block) return false;
    block->next = h->blocks;
    h->blocks = block;
    for (int64_t k = chunks; k-- > 0;) {
        eg__chunk *c = (eg__chunk *)(void *)(eg__chunk_room(block) + (size_t)k * step);
        *c = (eg__chunk){ .cap = cap, .next = h->begun };
        h->begun = c;
    }
    h->made += chunks * unit;
    return true;
}
/* A chunk with room for a header: begun, else the one that is dead longest if enough others rest
 * after it, else a new one. The first block is small; the next ones hold as many as there are, and
 * RESTING twice for scopes, so that a step that repeats soon needs no more. */
static eg__chunk *headers_take(eg_ctx *cx, int unit)
{
    struct eg__headers *h = &cx->headers[unit == 1];
    const int64_t made = h->made, least = unit == 1 ? UNIT : 2 * RESTING;
    const int64_t more = !made ? 4 : (made > least ? made : least) / unit;
    if (!h->begun && h->resting < RESTING + unit && !headers_block(cx, h, unit, more) && !h->dead &&
        !headers_block(cx, h, unit, 1))
        return NULL;
    eg__chunk *c = h->begun;
    if (c)
        h->begun = c->next;
    else {
        c = h->dead;
        h->dead = c->next;
        h->resting -= unit;
        c->from = c->used = 0;
    }
    return c;
}
#endif

/* -- arenas ----------------------------------------------------------------------------------- */
void *eg__alloc_chunk(eg__arena *a, size_t bytes)
{
    eg__chunk *c = a->data;
    const size_t need = bytes ? bytes : 1;
    eg__chunk *fresh = a->owned ? chunk_for_owner(a, need)
                                : chunk_take(a->cx, &a->cx->spare_data, need, 4 * CHUNK_MIN);
    if (!fresh) {
        eg_fail_as(a->cx, EG_ERROR_MEMORY, "out of memory: %zu bytes more than the %zu in use",
                   bytes, a->cx->use.used);
        return NULL;
    }
    fresh->used = bytes;
    a->cx->use.used += bytes;
    /* the old chunk has more room left: stay in it */
    if (c && c->cap - c->used > fresh->cap - fresh->used) {
        fresh->next = c->next;
        c->next = fresh;
    } else {
        fresh->next = c;
        a->data = fresh;
    }
    return eg__chunk_room(fresh);
}
bool eg__nodes_chunk(eg__arena *a)
{
    eg__chunk *c = headers_take(a->cx, a->owned && !a->nodes ? 1 : UNIT);
    if (!c) {
        eg_fail_as(a->cx, EG_ERROR_MEMORY, "out of memory: no room for one more tensor");
        return false;
    }
    c->next = a->nodes;
    a->nodes = c;
    return true;
}
static void arena_release(eg__arena *a)
{
    while (a->owners || a->foreign) { /* a release() may open an owner in turn */
        while (a->owners) eg_owner_close(a->owners);
        eg__hold_end_foreign(a);
    }
    headers_release(a->cx, &a->nodes);
    data_release(a->cx, &a->data, a->owned);
}

/* Leaves the chunks of a scope that ends to another arena; its tensors are dead to the caller. */
static void arena_leave(eg__arena *a, eg__arena *heir)
{
    for (eg__chunk *c = a->nodes; c; c = c->next)
        for (size_t at = c->from; at < c->used; at += sizeof(eg_tensor))
            ((eg_tensor *)(void *)(eg__chunk_room(c) + at))->live = EG_DEAD;
    eg__chunk **const lists[][2] = { { &a->nodes, &heir->nodes }, { &a->data, &heir->data } };
    for (int k = 0; k < 2; k++) {
        eg__chunk **end = lists[k][1]; /* behind the first, which the heir takes memory of */
        if (*end) end = &(*end)->next;
        eg__chunk *rest = *end;
        *end = *lists[k][0];
        while (*end) end = &(*end)->next;
        *end = rest;
        *lists[k][0] = NULL;
    }
}

void *eg__alloc(eg_ctx *cx, size_t bytes) { return eg__alloc_in(eg__top(cx), bytes); }

void *eg__scratch(eg_ctx *cx, eg_scratch which, size_t bytes)
{
    cx = eg__here(cx);
    eg__chunk **s = &cx->scratch[which];
    if (*s && (*s)->cap >= bytes) return eg__chunk_room(*s);
    size_t cap = *s && bytes < 2 * (*s)->cap ? 2 * (*s)->cap : bytes;
    if (*s) {
        chunk_free(cx, *s);
        *s = NULL;
    }
    *s = chunk_new(cx, cap ? cap : ALIGN);
    if (!*s) {
        eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory: %zu bytes of scratch", bytes);
        return NULL;
    }
    return eg__chunk_room(*s);
}

void *eg__plan_cache_room(eg_ctx *cx, size_t bytes)
{
    cx = eg__here(cx);
    eg__chunk *c = cx->plan_cache ? NULL : chunk_new(cx, bytes);
    if (c) cx->plan_cache = eg__chunk_room(c);
    return cx->plan_cache;
}

/* -- context ---------------------------------------------------------------------------------- */
const char *eg_type_name(eg_dtype t)
{
    static const char *const name[] = { "default", "f32", "f64",  "i32", "i64", "bool",
                                        "c128",    "f16", "bf16", "i8",  "u8" };
    return (unsigned)t < EG_DTYPES ? name[t] : "unknown";
}

/* Checks the options, then makes a context in one block of the given allocator. NULL after an
 * error, which the thread keeps: there is no context to record it in. */
eg_ctx *eg__context_open(const eg_open_args *given)
{
    eg_open_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_clear(NULL); /* so that eg_error(NULL) tells of this call */
    if (o.dtype != EG_DEFAULT && o.dtype != EG_F32 && o.dtype != EG_F64) {
        eg_fail_as(NULL, EG_ERROR_DTYPE, "open: .dtype is %s, not f32 or f64",
                   eg_type_name(o.dtype));
        return NULL;
    }
    if (o.threads < 0) {
        eg_fail_as(NULL, EG_ERROR_MISUSE, "open: .threads is %d", o.threads);
        return NULL;
    }
    if (!o.realloc) o.realloc = plain_realloc;
    eg_ctx *cx = o.realloc(o.user, NULL, 0, sizeof *cx);
    if (!cx) {
        eg_fail_as(NULL, EG_ERROR_MEMORY, "out of memory: no room for a context");
        return NULL;
    }
    *cx = (eg_ctx){
        .realloc = o.realloc,
        .user = o.user,
        .seed = o.seed,
        .training = true,
        .recording = true,
        .flush = o.flush,
        .dtype = o.dtype ? o.dtype : EG_F32,
        .threads = o.threads ? o.threads : eg__cores(),
        .poison = { .live = EG_LIVE, .poison = true, .dtype = EG_F32 },
    };
    cx->poison.cx = cx;
    cx->poison.st = &cx->poison.own;
    cx->poison.dim = cx->poison.stride = cx->no_dims;
    cx->root = (eg__arena){ .cx = cx };
    cx->top = &cx->root;
    eg__text(&cx->text, &cx->text_size);
    cx->use = (eg_usage){ .mallocs = 1, .bytes = sizeof *cx, .peak = sizeof *cx };
    return cx;
}

static void give_back(eg_ctx *cx)
{
    eg__chunk *lists[] = { cx->spare_data, cx->headers[0].blocks, cx->headers[1].blocks,
                           cx->spare_scopes, cx->owner_blocks };
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (eg__chunk *c = lists[k], *next; c; c = next) {
            next = c->next;
            chunk_free(cx, c);
        }
    for (int k = 0; k < EG_SCRATCHES; k++)
        if (cx->scratch[k]) chunk_free(cx, cx->scratch[k]);
}
void eg_close(eg_ctx *cx)
{
    if (!cx || (cx->parent && cx->family)) return; /* a child ends with its parent */
    eg__children_close(cx);
    eg__team_close(cx);
    while (cx->top != &cx->root) eg_pop(cx, (eg_mark){ cx->top, cx->top->serial });
    arena_release(&cx->root);
    give_back(cx);
    if (cx->plan_cache) chunk_free(cx, (eg__chunk *)(void *)((char *)cx->plan_cache - HEADER));
    cx->realloc(cx->user, cx, sizeof *cx, 0);
}

void eg__brief_open(eg_ctx *cx)
{
    memset(cx, 0, offsetof(eg_ctx, no_dims)); /* the poison and the message are not wanted */
    cx->realloc = plain_realloc;
    cx->dtype = EG_F32;
    cx->threads = 1;
    cx->root.cx = cx;
    cx->top = &cx->root;
}
void eg__brief_close(eg_ctx *cx)
{
    arena_release(&cx->root);
    give_back(cx);
}

/* The first failure of this thread that had no context to be recorded in; empty if there was
 * none. */
static _Thread_local char homeless[512];
static _Thread_local eg_code homeless_code;

const char *eg_error(const eg_ctx *cx)
{
    cx = eg__here(cx);
    if (!cx) return *homeless ? homeless : "there is no context: a NULL was given for it";
    return cx->failed ? cx->message : NULL;
}
eg_code eg_error_code(const eg_ctx *cx)
{
    cx = eg__here(cx);
    if (!cx) return *homeless ? homeless_code : EG_ERROR_MISUSE;
    return cx->failed ? cx->code : EG_ERROR_NONE;
}
void eg_clear(eg_ctx *cx)
{
    cx = eg__here(cx);
    if (cx)
        cx->failed = false;
    else
        *homeless = '\0';
}
bool eg__failed(const eg_ctx *cx) { return !cx || eg__here(cx)->failed; }
eg_tensor *eg__poison(eg_ctx *cx) { return cx ? &eg__here(cx)->poison : NULL; }

static eg_tensor *fail_list(eg_ctx *cx, eg_code code, const char *format, va_list list)
{
    cx = eg__here(cx);
    if (cx ? cx->failed : *homeless) /* the first failure is the one worth reading */
        return cx ? &cx->poison : NULL;
    vsnprintf(cx ? cx->message : homeless, cx ? sizeof cx->message : sizeof homeless, format, list);
    if (cx)
        cx->failed = true, cx->code = code;
    else
        homeless_code = code;
    return cx ? &cx->poison : NULL;
}

eg_tensor *eg_fail_as(eg_ctx *cx, eg_code code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    eg_tensor *poison = fail_list(cx, code, format, list);
    va_end(list);
    return poison;
}

eg_tensor *eg_fail(eg_ctx *cx, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    eg_tensor *poison = fail_list(cx, EG_ERROR_USER, format, list);
    va_end(list);
    return poison;
}

eg_tensor *eg_fail_in(eg_ctx *cx, const char *format, ...)
{
    char words[sizeof cx->message];
    cx = eg__here(cx);
    if (!cx) return NULL;
    if (!cx->failed) return &cx->poison;
    va_list ap;
    va_start(ap, format);
    vsnprintf(words, sizeof words - 2, format, ap);
    va_end(ap);
    strcat(words, ": ");
    const size_t n = strlen(words), old = strlen(cx->message),
                 keep = old < sizeof words - n ? old : sizeof words - n - 1;
    memmove(cx->message + n, cx->message, keep);
    cx->message[n + keep] = 0;
    memcpy(cx->message, words, n);
    return &cx->poison;
}

/* -- scopes ----------------------------------------------------------------------------------- */
eg_mark eg_push(eg_ctx *cx)
{
    cx = eg__here(cx);
    if (!cx) return (eg_mark){ NULL, 0 };
    eg__chunk *c = chunk_take(cx, &cx->spare_scopes, sizeof(eg__arena), 0);
    if (!c) {
        eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory: no room for a scope");
        return (eg_mark){ NULL, 0 };
    }
    eg__arena *a = (eg__arena *)(void *)eg__chunk_room(c);
    *a = (eg__arena){ .cx = cx, .outer = cx->top, .self = c, .serial = ++cx->scopes };
    cx->top = a;
    return (eg_mark){ a, a->serial };
}

/* Ends the scope of the mark and all scopes that were left open inside it. Its memory goes to the
 * pool of the context, not to the allocator. */
void eg_pop(eg_ctx *cx, eg_mark m)
{
    cx = eg__here(cx);
    if (!cx || !m.scope) return;
    eg__arena *a = cx->top;
    while (a != &cx->root && a != cx->heir && (a != m.scope || a->serial != m.serial)) a = a->outer;
    if (a == &cx->root || a == cx->heir) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "pop: this mark belongs to no open scope (popped twice, or out of order)");
        return;
    }
    for (bool last = false; !last;) { /* scopes left open inside go with it */
        a = cx->top;
        last = a == m.scope;
        cx->top = a->outer;
        if (cx->heir && !cx->aside)
            arena_leave(a, cx->heir);
        else
            arena_release(a);
        eg__chunk *c = a->self;
#if EG_DEBUG_ALLOC
        chunk_free(cx, c);
#else
        c->next = cx->spare_scopes;
        cx->spare_scopes = c;
#endif
    }
}

/* -- owners: arenas that hang on the scope in which they were opened -------------------------- */
/* An owner from a block of several, not filled; NULL without memory. */
static eg_owner *owner_take(eg_ctx *cx)
{
    eg_owner *o = cx->spare_owners;
    eg__chunk *block = o ? NULL : chunk_new(cx, OWNERS * sizeof *o);
    if (block) {
#if !EG_DEBUG_ALLOC
        block->next = cx->owner_blocks;
        cx->owner_blocks = block;
#endif
        eg_owner *all = (eg_owner *)(void *)eg__chunk_room(block);
        for (int k = OWNERS; k-- > 0; o = all + k) all[k].next = o;
    }
    if (o) cx->spare_owners = o->next;
    return o;
}
static void owner_give_back(eg_ctx *cx, eg_owner *o)
{
#if EG_DEBUG_ALLOC
    chunk_free(cx, (eg__chunk *)(void *)((char *)o - HEADER));
#else
    o->next = cx->spare_owners;
    cx->spare_owners = o;
#endif
}
/* An owner in the list that begins or goes on at *link: that of its scope. NULL after an error. */
static eg_owner *owner_at(eg_ctx *cx, eg_owner **link)
{
    if (eg__failed(cx) || eg__capture_refuses(cx, "owner", "nothing outlives the step but outputs"))
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
/* True if the owner belongs to the context that this thread computes in; else recorded. */
static bool owner_is_here(const eg_owner *o)
{
    eg_ctx *cx = o->arena.cx;
    if (cx != eg__here(cx))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "owner: it belongs to the context that waits for its blocks, and stays as it is "
                   "inside them");
    return cx == eg__here(cx);
}
eg_owner *eg_owner_beside(eg_owner *o)
{
    return o && owner_is_here(o) ? owner_at(o->arena.cx, &o->next) : NULL;
}
void eg_owner_close(eg_owner *o)
{
    if (!o || !owner_is_here(o)) return;
    *o->link = o->next;
    if (o->next) o->next->link = o->link;
    arena_release(&o->arena);
    owner_give_back(o->arena.cx, o);
}
eg_ctx *eg_owner_context(const eg_owner *o) { return o ? o->arena.cx : NULL; }
void *eg_owner_alloc(eg_owner *o, size_t bytes)
{
    if (!o || !owner_is_here(o) || o->arena.cx->failed) return NULL;
    void *p = eg__alloc_in(&o->arena, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}
eg__arena *eg__owner_arena(eg_owner *o) { return owner_is_here(o) ? &o->arena : NULL; }

bool eg__capture_refuses(eg_ctx *cx, const char *who, const char *why)
{
    if (!cx || !eg__capturing(cx)) return false;
    eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s: in a step that is captured %s", who, why);
    return true;
}

/* -- switches and counters -------------------------------------------------------------------- */
void eg_seed(eg_ctx *cx, uint64_t seed)
{
    cx = eg__here(cx);
    if (cx && !eg__capture_refuses(cx, "seed", "draws follow the context's seed")) {
        cx->seed = seed;
        cx->draw = 0;
    }
}
uint64_t eg_seed_now(const eg_ctx *cx) { return cx ? eg__here(cx)->seed : 0; }
uint64_t eg_draws(const eg_ctx *cx) { return cx ? eg__here(cx)->draw : 0; }
void eg_set_draws(eg_ctx *cx, uint64_t draw)
{
    cx = eg__here(cx);
    if (cx && !eg__capture_refuses(cx, "set_draws", "draws are counted on from those before"))
        cx->draw = draw;
}
uint64_t eg__draw(eg_ctx *cx) { return eg__here(cx)->draw++; }
uint64_t eg__seed_of(const eg_ctx *cx) { return eg__here(cx)->seed; }
eg_dtype eg_default_type(const eg_ctx *cx) { return cx ? eg__here(cx)->dtype : EG_F32; }
void eg_train(eg_ctx *cx)
{
    cx = eg__here(cx);
    if (cx) cx->training = true;
}
void eg_eval(eg_ctx *cx)
{
    cx = eg__here(cx);
    if (cx) cx->training = false;
}
bool eg_training(const eg_ctx *cx) { return cx && eg__here(cx)->training; }
bool eg_nograd(eg_ctx *cx, bool on)
{
    cx = eg__here(cx);
    if (!cx) return false;
    bool old = !cx->recording;
    cx->recording = !on;
    return old;
}
bool eg_flush(eg_ctx *cx, bool on)
{
    cx = eg__here(cx);
    if (!cx) return false;
    bool old = cx->flush;
    cx->flush = on;
    return old;
}
bool eg_flushes(const eg_ctx *cx) { return cx && eg__here(cx)->flush; }
uint64_t eg_flush_begin(const eg_ctx *cx) { return eg__fpmode_begin(eg_flushes(cx)); }
void eg_flush_end(uint64_t begun) { eg__fpmode_end(begun); }
bool eg__recording(const eg_ctx *cx) { return eg__here(cx)->recording; }
int eg_threads(eg_ctx *cx, int threads)
{
    cx = eg__here(cx);
    if (!cx) return 1;
    if (threads < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "threads: %d is not a number of threads", threads);
    else if (threads > 0 && cx->parent)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "threads: a block runs on the threads of the context that waits for it");
    else if (threads > 0)
        cx->threads = threads;
    return cx->threads;
}
eg_usage eg_stats(const eg_ctx *cx)
{
    cx = eg__here(cx);
    eg_usage u = cx ? cx->use : (eg_usage){ 0 };
    note_peak(&u);
    if (cx && !cx->parent) eg__children_usage(cx, &u);
    return u;
}
void eg_stats_reset(eg_ctx *cx)
{
    if (!(cx = eg__here(cx))) return;
    cx->use.used_peak = cx->use.used;
    if (!cx->parent) eg__children_reset(cx);
}
const char *eg_version(void) { return EG_VERSION; }

/* -- options ---------------------------------------------------------------------------------- */
double eg_option(double given, double otherwise)
{
    return given == 0 ? otherwise : given == EG_OFF ? 0 : given;
}
void eg_options(void *own, size_t size, const void *given)
{
    size_t have;
    if (!given) return;
    memcpy(&have, given, sizeof have);
    memcpy(own, given, have < size ? have : size);
}
