/* arena.c: memory in arenas.
 *
 * Memory comes from the allocator in chunks. An arena (of one scope or of one owner) fills its
 * chunks from front to back and returns all of them at once to a pool of the context, from which
 * the next arena takes them. A training step that repeats therefore does not call the allocator.
 *
 * Tensor headers are in chunks that hold only headers. A header whose scope was popped can
 * therefore still be recognised as dead. It is reused only after RESTING other headers have died
 * after it. With EG_DEBUG_ALLOC each header and each block of data is a separate allocation that is
 * freed by eg_pop, so that sanitizers and valgrind detect every use after it. */
#include "core/arena.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = EG_ALIGN, CHUNK_MIN = 1 << 16, CHUNK_MAX = 1 << 26, PAGE = 1 << 21 };
/* UNIT: number of headers in a chunk. RESTING: a dead header is reused only if as many headers died
 * after it. */
enum { UNIT = 16, RESTING = 2048 };
#if !EG_DEBUG_ALLOC
enum { SMALL = 1 << 12 }; /* largest chunk of an owner whose blocks are small */
#endif
#define HEADER EG_CHUNK_HEADER

/* Asks the system for large pages for large blocks: fewer page faults at first, fewer TLB misses
 * later. */
void *eg__plain_realloc(void *user, void *p, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size) {
        p = realloc(p, new_size);
#ifdef MADV_HUGEPAGE
        const uintptr_t from = ((uintptr_t)p + PAGE - 1) & -(uintptr_t)PAGE,
                        to = ((uintptr_t)p + new_size) & -(uintptr_t)PAGE;
        /* only advice: an error is ignored */
        if (p && new_size >= 2 * PAGE) madvise((void *)from, to - from, MADV_HUGEPAGE);
#endif
        return p;
    }
    free(p);
    return NULL;
}

/* -- chunks ----------------------------------------------------------------------------------- */
eg__chunk *eg__chunk_new(eg_ctx *cx, size_t cap)
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
void eg__chunk_free(eg_ctx *cx, eg__chunk *c)
{
    cx->use.bytes -= c->total;
    cx->realloc(cx->user, c->raw, c->total, 0);
}

/* A new chunk grows with the memory in use, so that a growing step needs few chunks; if that much
 * memory cannot be had, the chunk has only the size that is needed. */
static __attribute__((noinline)) eg__chunk *chunk_grown(eg_ctx *cx, size_t need, size_t floor)
{
#if !EG_DEBUG_ALLOC
    if (!floor) return eg__chunk_new(cx, need);
    size_t grow = cx->use.bytes / 2 < CHUNK_MAX ? cx->use.bytes / 2 : CHUNK_MAX;
    if (grow < floor) grow = floor;
    if (need < grow) {
        eg__chunk *c = eg__chunk_new(cx, grow);
        if (c) return c; /* else try a smaller chunk */
    }
#else
    (void)floor;
#endif
    return eg__chunk_new(cx, need);
}
/* A chunk from the pool is taken if one is large enough. */
eg__chunk *eg__chunk_take(eg_ctx *cx, eg__chunk **pool, size_t need, size_t floor)
{
#if !EG_DEBUG_ALLOC
    for (eg__chunk **at = pool; *at; at = &(*at)->next)
        if ((*at)->cap >= need) {
            eg__chunk *c = *at;
            *at = c->next;
            c->used = 0;
            return c;
        }
#else
    (void)pool;
#endif
    return chunk_grown(cx, need, floor);
}
#if !EG_DEBUG_ALLOC
/* Returns the smallest chunk of cx->spare_owned that has `need` bytes. If all are smaller, a new
 * one replaces the largest, so that the pool has no more chunks than were in use at one time. NULL
 * (no error) without memory. */
static eg__chunk *chunk_pooled(eg_ctx *cx, size_t need)
{
    eg__chunk **best = NULL;
    for (eg__chunk **at = &cx->spare_owned; *at; at = &(*at)->next) {
        const size_t cap = (*at)->cap, of = best ? (*best)->cap : 0;
        if (cap < need ? of < need && cap >= of : of < need || cap < of) best = at;
        if (cap == need) break;
    }
    eg__chunk *c = best ? *best : NULL;
    if (c) *best = c->next;
    if (c && c->cap >= need) return c;
    if (c) eg__chunk_free(cx, c);
    return eg__chunk_new(cx, need);
}
#endif
/* Returns a chunk for an owner: of the size that is needed or, if the owner grows in small pieces,
 * of twice the size of its last chunk. */
static __attribute__((noinline)) eg__chunk *chunk_for_owner(eg__arena *a, size_t need)
{
#if !EG_DEBUG_ALLOC
    eg__chunk *(*const take)(eg_ctx *, size_t) = a->pooled ? chunk_pooled : eg__chunk_new;
    size_t grow = a->data ? 2 * a->data->cap : 0, most = need < SMALL / UNIT ? SMALL : UNIT * need;
    if (grow > most) grow = most;
    if (grow > CHUNK_MAX) grow = CHUNK_MAX;
    eg__chunk *c = need < grow ? take(a->cx, grow) : NULL;
    return c ? c : take(a->cx, need);
#else
    return eg__chunk_new(a->cx, need);
#endif
}
/* Returns the chunks of an owner to the allocator, those of a scope or of a pooled owner to a pool
 * of the context. */
static void data_release(eg__arena *a)
{
    eg_ctx *cx = a->cx;
    eg__note_peak(&cx->use);
    cx->use.used += a->spare_bytes;
    a->spare_bytes = 0;
    a->spare = NULL;
    for (eg__chunk *c = a->data, *next; c; c = next) {
        next = c->next;
        cx->use.used -= c->used;
        if (!eg__hold_leave_chunk(cx, c)) continue;
#if EG_DEBUG_ALLOC
        eg__chunk_free(cx, c);
#else
        if (a->owned && !a->pooled) {
            eg__chunk_free(cx, c);
            continue;
        }
        /* the first chunk that was taken becomes the first of the pool, so that the next step takes
         * the chunks in the same order */
        eg__chunk **const pool = a->owned ? &cx->spare_owned : &cx->spare_data;
        c->next = *pool;
        *pool = c;
#endif
    }
    a->data = NULL;
}

/* -- chunks of headers ------------------------------------------------------------------------ */
/* Marks all headers of the chunks as dead. Chunks with room for more headers become available at
 * once, full ones are appended to the list of dead chunks. */
static void headers_release(eg_ctx *cx, eg__chunk **list)
{
    for (eg__chunk *c = *list, *next; c; c = next) {
        next = c->next;
        for (size_t at = c->from; at < c->used; at += sizeof(eg_tensor))
            ((eg_tensor *)(void *)(eg__chunk_memory(c) + at))->live = EG_DEAD;
#if EG_DEBUG_ALLOC
        eg__chunk_free(cx, c);
#else
        struct eg__headers *h = &cx->headers[c->cap == sizeof(eg_tensor)];
        c->from = c->used;
        if (c->cap - c->used >= sizeof(eg_tensor)) {
            c->next = h->begun;
            h->begun = c;
        } else {
            c->next = NULL;
            if (!h->dead) h->end = &h->dead;
            *h->end = c;
            h->end = &c->next;
            h->resting += (int64_t)(c->cap / sizeof(eg_tensor));
        }
#endif
    }
    *list = NULL;
}

#if EG_DEBUG_ALLOC
static eg__chunk *headers_take(eg_ctx *cx, int unit)
{
    (void)unit;
    return eg__chunk_new(cx, sizeof(eg_tensor));
}
#else
/* Allocates a block of at least `chunks` chunks of headers and adds them to h->begun. False,
 * without an error, if there is no memory. */
static bool headers_block(eg_ctx *cx, struct eg__headers *h, int unit, int64_t chunks)
{
    const size_t cap = (size_t)unit * sizeof(eg_tensor);
    const size_t step = (EG_CHUNK_HEADER + cap + ALIGN - 1) / ALIGN * ALIGN;
    eg__chunk *block = eg__chunk_new(cx, (size_t)chunks * step);
    if (!block) return false;
    block->next = h->blocks;
    h->blocks = block;
    for (int64_t k = chunks; k-- > 0;) {
        eg__chunk *c = (eg__chunk *)(void *)(eg__chunk_memory(block) + (size_t)k * step);
        *c = (eg__chunk){ .cap = cap, .next = h->begun };
        h->begun = c;
    }
    h->made += chunks * unit;
    return true;
}
/* The first block of chunks is small. Each later one holds as many headers as exist already, for
 * scopes at least twice RESTING, so that a step that repeats soon needs no more blocks. False,
 * without an error, if there is no memory and no dead header. */
static __attribute__((noinline)) bool headers_more(eg_ctx *cx, struct eg__headers *h, int unit)
{
    const int64_t made = h->made, least = unit == 1 ? UNIT : 2 * RESTING;
    const int64_t more = !made ? 4 : (made > least ? made : least) / unit;
    return headers_block(cx, h, unit, more) || h->dead || headers_block(cx, h, unit, 1);
}
/* Returns a chunk with room for a header: a partly used one; else the one that died first, if
 * enough headers died after it; else a new one. NULL (no error) without memory. */
static eg__chunk *headers_take(eg_ctx *cx, int unit)
{
    struct eg__headers *h = &cx->headers[unit == 1];
    if (!h->begun && h->resting < RESTING + unit && !headers_more(cx, h, unit)) return NULL;
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
/* The new chunk becomes the first one of the arena, from which eg__alloc_in allocates, unless the
 * old first chunk has more memory left. */
void *eg__alloc_chunk(eg__arena *a, size_t bytes)
{
    eg__chunk *c = a->data;
    const size_t need = bytes ? bytes : 1;
    eg__chunk *fresh = a->owned ? chunk_for_owner(a, need)
                                : eg__chunk_take(a->cx, &a->cx->spare_data, need, 4 * CHUNK_MIN);
    if (!fresh) {
        eg_fail_as(a->cx, EG_ERROR_MEMORY, "out of memory: %zu bytes more than the %zu in use",
                   bytes, a->cx->use.used);
        return NULL;
    }
    fresh->used = bytes;
    a->cx->use.used += bytes;
    if (c && c->cap - c->used > fresh->cap - fresh->used) {
        fresh->next = c->next;
        c->next = fresh;
    } else {
        fresh->next = c;
        a->data = fresh;
    }
    return eg__chunk_memory(fresh);
}

size_t eg__arena_keep_chunk(eg__arena *a, eg__chunk *data)
{
    size_t bytes = data->used;
    bool more = false;
    for (eg__chunk *c = a->data, *next; c; c = next) {
        next = c->next;
        if (c == data) continue;
        bytes += c->used + ALIGN;
        more = true;
        a->cx->use.used -= c->used;
        eg__chunk_free(a->cx, c);
    }
    data->next = NULL;
    a->data = data;
    return more ? bytes : 0;
}

/* -- tensors that are freed before their arena ------------------------------------------------- */
/* Describes a piece of memory of an arena that no tensor uses; it is stored at the beginning of the
 * piece. */
struct eg__spare {
    struct eg__spare *next;
    size_t bytes; /* a multiple of EG_ALIGN */
};
/* Only the first SEARCHED pieces are compared with the size that is needed: a backward pass usually
 * needs the sizes that it freed last. */
enum { SEARCHED = 16 };
void eg__tensor_free(eg_tensor *t)
{
    const size_t bytes = t->own.bytes & -(size_t)EG_ALIGN;
    t->live = EG_DEAD;
    t->own.version++;
    if (bytes < EG_SPARE_LEAST || (uintptr_t)t->data % EG_ALIGN) return;
#if EG_DEBUG_ALLOC
    memset(t->data, 0xff, bytes); /* NaN, so that a read that is not refused shows */
#else
    eg__arena *a = t->arena;
    eg__note_peak(&a->cx->use);
    struct eg__spare *s = (struct eg__spare *)(void *)t->data;
    *s = (struct eg__spare){ a->spare, bytes };
    a->spare = s;
    a->spare_bytes += bytes;
    a->cx->use.used -= bytes;
#endif
}
/* The rest of a piece that is larger than needed remains available. */
void *eg__spare_take(eg__arena *a, size_t bytes)
{
    const size_t need = (bytes + EG_ALIGN - 1) & -(size_t)EG_ALIGN;
    struct eg__spare **best = NULL, **at = &a->spare;
    for (int k = 0; k < SEARCHED && *at; k++, at = &(*at)->next)
        if ((*at)->bytes >= need && (!best || (*at)->bytes < (*best)->bytes)) best = at;
    if (!best) return NULL;
    struct eg__spare *s = *best;
    if (s->bytes - need >= EG_SPARE_LEAST) {
        struct eg__spare *rest = (struct eg__spare *)(void *)((char *)s + need);
        *rest = (struct eg__spare){ s->next, s->bytes - need };
        *best = rest;
        a->spare_bytes -= need;
        a->cx->use.used += need;
    } else {
        *best = s->next;
        a->spare_bytes -= s->bytes;
        a->cx->use.used += s->bytes;
    }
    return s;
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
void eg__arena_release(eg__arena *a)
{
    while (a->owners || a->foreign) { /* a release() may open an owner, which is closed as well */
        while (a->owners) eg_owner_close(a->owners);
        eg__hold_end_foreign(a);
    }
    headers_release(a->cx, &a->nodes);
    data_release(a);
}

void eg__arena_leave(eg__arena *a, eg__arena *receiver)
{
    for (eg__chunk *c = a->nodes; c; c = c->next)
        for (size_t at = c->from; at < c->used; at += sizeof(eg_tensor))
            ((eg_tensor *)(void *)(eg__chunk_memory(c) + at))->live = EG_DEAD;
    /* the receiver does not use this memory again as long as it exists */
    a->cx->use.used += a->spare_bytes;
    eg__chunk **const lists[][2] = { { &a->nodes, &receiver->nodes },
                                     { &a->data, &receiver->data } };
    for (int k = 0; k < 2; k++) {
        eg__chunk **end = lists[k][1]; /* the receiver still allocates from its first chunk */
        if (*end) end = &(*end)->next;
        eg__chunk *rest = *end;
        *end = *lists[k][0];
        while (*end) end = &(*end)->next;
        *end = rest;
        *lists[k][0] = NULL;
    }
}

void *eg__alloc(eg_ctx *cx, size_t bytes) { return eg__alloc_in(eg__top(cx), bytes); }

/* A buffer that is too small is replaced by one of at least twice its size; its content is not
 * copied. */
void *eg__scratch(eg_ctx *cx, eg_scratch which, size_t bytes)
{
    cx = eg__here(cx);
    eg__chunk **s = &cx->scratch[which];
    if (*s && (*s)->cap >= bytes) return eg__chunk_memory(*s);
    size_t cap = *s && bytes < 2 * (*s)->cap ? 2 * (*s)->cap : bytes;
    if (*s) {
        eg__chunk_free(cx, *s);
        *s = NULL;
    }
    *s = eg__chunk_new(cx, cap ? cap : ALIGN);
    if (!*s) {
        eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory: %zu bytes of scratch", bytes);
        return NULL;
    }
    return eg__chunk_memory(*s);
}

void *eg__plan_cache_memory(eg_ctx *cx, size_t bytes)
{
    cx = eg__here(cx);
    eg__chunk *c = cx->plan_cache ? NULL : eg__chunk_new(cx, bytes);
    if (c) cx->plan_cache = eg__chunk_memory(c);
    return cx->plan_cache;
}

static void chunks_free(eg_ctx *cx, eg__chunk *list)
{
    for (eg__chunk *c = list, *next; c; c = next) {
        next = c->next;
        eg__chunk_free(cx, c);
    }
}
void eg__owner_pool_free(eg_ctx *cx)
{
    chunks_free(cx, cx->spare_owned);
    cx->spare_owned = NULL;
}
void eg__arenas_end(eg_ctx *cx)
{
    eg__chunk *lists[] = { cx->spare_data,   cx->headers[0].blocks, cx->headers[1].blocks,
                           cx->spare_scopes, cx->spare_handles,     cx->owner_blocks,
                           cx->spare_owned };
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) chunks_free(cx, lists[k]);
    for (int k = 0; k < EG_SCRATCHES; k++)
        if (cx->scratch[k]) eg__chunk_free(cx, cx->scratch[k]);
    if (cx->plan_cache) eg__chunk_free(cx, (eg__chunk *)(void *)((char *)cx->plan_cache - HEADER));
}
