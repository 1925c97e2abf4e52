/* bytes.h: a file of less than a megabyte, whole; the test frees it. */
#ifndef BYTES_H
#define BYTES_H
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static inline char *bytes_of(const char *path, long *size)
{
    static const long room = 1 << 20;
    FILE *f = fopen(path, "rb");
    char *bytes = malloc((size_t)room);
    *size = (long)fread(bytes, 1, (size_t)room, f);
    ck_assert(*size > 0 && *size < room);
    fclose(f);
    return bytes;
}
#endif
