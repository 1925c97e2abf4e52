/* refuse.c: loaded by LD_PRELOAD, lets allocations of a process fail, those of the C library and of
 * every other library, too.
 *
 *     EG_REFUSE=n      the n-th allocation fails (counted from 1); none if it is not set
 *     EG_REFUSE_ALL=1  all later ones fail, too
 *     EG_REFUSE_LOG=f  at a normal end the number of allocations is written to the file f */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

extern char **environ;
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
void *memalign(size_t, size_t);

static _Atomic long calls;
static long first = -1, last;

/* getenv may not work yet when the loader allocates */
static const char *variable(const char *name)
{
    for (char **e = environ; e && *e; e++) {
        const char *a = *e, *b = name;
        while (*b && *a == *b) a++, b++;
        if (!*b && *a == '=') return a + 1;
    }
    return NULL;
}
static long number(const char *text)
{
    long n = 0;
    while (text && *text >= '0' && *text <= '9') n = 10 * n + *text++ - '0';
    return n;
}
static int refused(void)
{
    if (first < 0) {
        first = number(variable("EG_REFUSE"));
        last = variable("EG_REFUSE_ALL") ? __LONG_MAX__ : first;
    }
    const long n = atomic_fetch_add(&calls, 1) + 1;
    if (!first || n < first || n > last) return 0;
    errno = ENOMEM;
    return 1;
}
void *malloc(size_t size) { return refused() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return refused() ? NULL : __libc_calloc(count, size); }
void *realloc(void *p, size_t size) { return refused() ? NULL : __libc_realloc(p, size); }
void *memalign(size_t align, size_t size)
{
    return refused() ? NULL : __libc_memalign(align, size);
}
void *aligned_alloc(size_t align, size_t size)
{
    return refused() ? NULL : __libc_memalign(align, size);
}
int posix_memalign(void **p, size_t align, size_t size)
{
    if (refused()) return ENOMEM;
    *p = __libc_memalign(align, size);
    return *p ? 0 : ENOMEM;
}
static void __attribute__((destructor)) report(void)
{
    const char *path = variable("EG_REFUSE_LOG");
    const long n = calls;
    first = 0;
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld\n", n);
    fclose(f);
}
