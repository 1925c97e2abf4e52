/* arena.h: chunks and arenas, for the files of lib/core that make scopes, owners and contexts. */
#ifndef EG_CORE_ARENA_H
#define EG_CORE_ARENA_H
#include "core/core.h"

/* The allocator of a context that is opened without one. */
void *eg__plain_realloc(void *user, void *p, size_t old_size, size_t new_size);
/* Returns a chunk from the allocator with room for cap bytes; NULL (no error) without memory. */
eg__chunk *eg__chunk_new(eg_ctx *, size_t cap);
void eg__chunk_free(eg_ctx *, eg__chunk *);
/* Returns a chunk with room for `need` bytes, from the pool or new. With floor > 0 a new one has at
 * least `floor` bytes, and more if much memory is already in use; with floor 0 it has `need` bytes.
 * NULL (no error) without memory. */
eg__chunk *eg__chunk_take(eg_ctx *, eg__chunk **pool, size_t need, size_t floor);
/* Frees all that the arena holds: owners, foreign memory, tensors and their elements. */
void eg__arena_release(eg__arena *);
/* Moves the chunks of a scope that ends to another arena. Its tensors are dead afterwards, although
 * their memory is kept. */
void eg__arena_leave(eg__arena *, eg__arena *receiver);
/* Frees all memory that no arena uses: pools, scratch buffers, plans. */
void eg__arenas_end(eg_ctx *);

/* Updates the peak of `used`. `used` decreases only where chunks are released, so it is enough to
 * call this there and where the peak is read. */
static inline void eg__note_peak(eg_usage *u)
{
    if (u->used > u->used_peak) u->used_peak = u->used;
}
#endif
