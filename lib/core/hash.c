/* hash.c: FNV-1a, the hash of bytes that the library, its program and its tests use. Fowler, Noll,
 * Vo 1991. */
#include "core/core.h"

uint64_t eg_hash(uint64_t h, const void *bytes, size_t n)
{
    for (size_t k = 0; bytes && k < n; k++) h = (h ^ ((const uint8_t *)bytes)[k]) * 1099511628211u;
    return h;
}
