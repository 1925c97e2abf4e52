/* caller.c: finds the call in the user's program from which the library was entered. The library
 * keeps frame pointers (-fno-omit-frame-pointer), so the frames of the stack can be followed
 * outwards from each of its functions. The first return address outside of the library's code
 * (mark.h) is the user's. In a child context the search ends at the frame where the thread entered
 * the child, since the frames beyond it may belong to a thread that was not started by the user. */
#include "core/core.h"

#if EG_TEXT_MARKED
/* weak: a linker that drops the section leaves them NULL */
extern const int32_t __start_eg_text[] __attribute__((weak, visibility("hidden"))),
    __stop_eg_text[] __attribute__((weak, visibility("hidden")));
void eg__text(uintptr_t *start, uintptr_t *size)
{
    uintptr_t low = UINTPTR_MAX, high = 0;
    /* each entry is a distance from its own address */
    for (const int32_t *m = __start_eg_text; m < __stop_eg_text; m += 2) {
        const uintptr_t begin = (uintptr_t)m + (uintptr_t)(intptr_t)m[0],
                        end = (uintptr_t)(m + 1) + (uintptr_t)(intptr_t)m[1];
        if (begin < low) low = begin;
        if (end > high) high = end;
    }
    *start = low;
    *size = high > low ? high - low : 0;
}
void *eg__caller(const eg_ctx *cx)
{
    const uintptr_t *frame = __builtin_frame_address(0);
    const uintptr_t last = cx->frame ? (uintptr_t)cx->frame : UINTPTR_MAX;
    for (int depth = 0; cx->text_size && depth < 100; depth++) {
        if ((uintptr_t)frame >= last) return cx->from;
        const uintptr_t *outer = (const uintptr_t *)frame[0];
        if (!eg__is_library(cx, frame[1])) return (void *)frame[1];
        if (outer <= frame || (uintptr_t)outer % sizeof *outer) break;
        frame = outer;
    }
    return NULL;
}
#else
void eg__text(uintptr_t *start, uintptr_t *size) { *start = *size = 0; }
void *eg__caller(const eg_ctx *cx)
{
    (void)cx;
    return NULL;
}
#endif
