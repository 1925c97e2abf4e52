/* failing.h: an allocator that gives out `*user` blocks, an int, and then nothing more:
 * eg_open(.realloc = failing, .user = &left). */
#ifndef FAILING_H
#define FAILING_H
#include <stdlib.h>

static inline void *failing(void *user, void *p, size_t old_size, size_t new_size)
{
    int *left = user;
    (void)old_size;
    if (!new_size) free(p);
    return new_size && (*left)-- > 0 ? realloc(p, new_size) : NULL;
}
#endif
