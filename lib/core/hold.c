/* hold.c: memory that a context shares with others: foreign memory that its tensors use, and chunks
 * with the elements of an exported tensor. The holders are counted, and the last one frees the
 * memory. An arena counts as one holder, independent of the number of its tensors, since within a
 * context lifetimes are those of scopes and owners. Consumers of exported tensors may run in other
 * threads, so the count is atomic, and the last holder uses nothing of the context except its
 * allocator. */
#include "core/core.h"

/* Returns a hold in memory of the context's allocator, which the last holder frees; NULL after the
 * error "out of memory". */
static eg__hold *hold_new(eg_ctx *cx, eg__hold made)
{
    eg__hold *h = cx->realloc(cx->user, NULL, 0, sizeof *h);
    if (!h) {
        eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory: no room to share memory");
        return NULL;
    }
    *h = made;
    h->realloc = cx->realloc;
    h->allocator = cx->user;
    cx->use.mallocs++;
    cx->use.bytes += sizeof *h;
    if (cx->use.bytes > cx->use.peak) cx->use.peak = cx->use.bytes;
    return h;
}

eg__hold *eg__hold_foreign(eg__arena *a, void (*release)(void *user), void *user, bool writable)
{
    eg__hold *h = hold_new(a->cx, (eg__hold){ .next = a->foreign,
                                              .holders = 1,
                                              .release = release,
                                              .user = user,
                                              .writable = writable });
    if (h) a->foreign = h;
    return h;
}

eg__hold *eg__hold_chunk(eg__arena *a, const char *data)
{
    eg__chunk *c = a->data;
    while (c && (data < eg__chunk_memory(c) || data >= eg__chunk_memory(c) + c->cap)) c = c->next;
    if (!c) {
        eg_fail_as(a->cx, EG_ERROR_MISUSE,
                   "to_dlpack: operand 1 has memory of a captured step; eg_copy it first");
        return NULL;
    }
    if (!c->hold) c->hold = hold_new(a->cx, (eg__hold){ .holders = 1, .chunk = c });
    if (c->hold) eg__hold_share(c->hold);
    return c->hold;
}

void eg__hold_end(eg__hold *h)
{
    if (atomic_fetch_sub(&h->holders, 1) != 1) return;
    if (h->release) h->release(h->user);
    if (h->chunk) h->realloc(h->allocator, h->chunk->raw, h->chunk->total, 0);
    h->realloc(h->allocator, h, sizeof *h, 0);
}

bool eg__hold_leave_chunk(eg_ctx *cx, eg__chunk *c)
{
    eg__hold *h = c->hold;
    /* read before the arena's hold ends: afterwards another thread may free the chunk */
    const size_t total = c->total;
    if (!h) return true;
    cx->use.bytes -= sizeof *h;
    c->hold = NULL;
    if (atomic_fetch_sub(&h->holders, 1) == 1) {
        h->realloc(h->allocator, h, sizeof *h, 0);
        return true;
    }
    cx->use.bytes -= total;
    return false;
}

void eg__hold_end_foreign(eg__arena *a)
{
    for (eg__hold *h; (h = a->foreign);) {
        a->foreign = h->next;
        a->cx->use.bytes -= sizeof *h;
        eg__hold_end(h);
    }
}
