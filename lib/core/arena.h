/* arena.h: chunks and arenas, as scopes, owners and contexts use them */
#ifndef EG_CORE_ARENA_H
#define EG_CORE_ARENA_H
#include "core/core.h"

/* The allocator of a context that is given none. */
void *eg__plain_realloc(void *user, void *p, size_t old_size, size_t new_size);
/* Returns a chunk of the allocator's with room for cap bytes; NULL (no error) without memory. */
eg__chunk *eg__chunk_new(eg_ctx *, size_t cap);
void eg__chunk_free(eg_ctx *, eg__chunk *);
/* Returns a chunk from the pool, or a new one of at least `floor` bytes, more the more is in use
 * already; floor 0: no more than it needs. NULL (no error) without memory. */
eg__chunk *eg__chunk_take(eg_ctx *, eg__chunk **pool, size_t need, size_t floor);
/* Ends all that the arena holds: owners, foreign memory, tensors, numbers. */
void eg__arena_release(eg__arena *);
/* Leaves the chunks of a scope that ends to another arena; its tensors are dead to the caller. */
void eg__arena_leave(eg__arena *, eg__arena *heir);
/* Frees what no arena uses: pools, scratch buffers, plans. */
void eg__arenas_end(eg_ctx *);

/* `used` falls only where chunks are released, so it is enough to look for its peak there and where
 * it is asked for. */
static inline void eg__note_peak(eg_usage *u)
{
    if (u->used > u->used_peak) u->used_peak = u->used;
}
#endif
