/* error.c: the first error of a context, or of a thread where there is no context. */
#include "core/core.h"
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first error of this thread that had no context to be recorded in; empty if there is none. */
static _Thread_local char thread_message[512];
static _Thread_local eg_code thread_code;

const char *eg_error(const eg_ctx *cx)
{
    cx = eg__here(cx);
    if (!cx)
        return *thread_message ? thread_message : "there is no context: a NULL was given for it";
    return cx->failed ? cx->message : NULL;
}
eg_code eg_error_code(const eg_ctx *cx)
{
    cx = eg__here(cx);
    if (!cx) return *thread_message ? thread_code : EG_ERROR_MISUSE;
    return cx->failed ? cx->code : EG_ERROR_NONE;
}
void eg_clear(eg_ctx *cx)
{
    cx = eg__here(cx);
    if (cx)
        cx->failed = false;
    else
        *thread_message = '\0';
}
bool eg__failed(const eg_ctx *cx) { return !cx || eg__here(cx)->failed; }
eg_tensor *eg__poison(eg_ctx *cx) { return cx ? &eg__here(cx)->poison : NULL; }

int eg__vsentence(char *out, size_t size, const char *format, va_list list)
{
    /* the C locale needs no memory, and is not freed */
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = plain ? uselocale(plain) : (locale_t)0;
    const int length = vsnprintf(out, size, format, list);
    if (before) uselocale(before);
    return length;
}
int eg__sentence(char *out, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int length = eg__vsentence(out, size, format, list);
    va_end(list);
    return length;
}

/* Replaces characters that control a terminal by '?': control characters other than ends of lines
 * and tabs, and marks that change the direction of writing. Names in a message may come from
 * foreign files. An end of line is replaced if it comes from a name: the library's own are followed
 * by two blanks, as before the caret, and a message about a file has none. A message that fills its
 * `size` bytes may have been cut inside a character; the bytes of such a character are removed. */
static void make_printable(eg_code code, char *message, size_t size)
{
    char *to = message;
    for (const char *s = message; *s;) {
        const unsigned char c = (unsigned char)*s, next = (unsigned char)s[1],
                            last = next ? (unsigned char)s[2] : 0;
        const bool own = code == EG_ERROR_USER || (next == ' ' && last == ' '),
                   line = c == '\n' && code != EG_ERROR_FILE && own,
                   control = (c < 0x20 && !line && c != '\t') || c == 0x7f,
                   high = c == 0xc2 && next >= 0x80 && next < 0xa0,
                   turns = c == 0xe2 && ((next == 0x80 && last >= 0xa8 && last <= 0xae) ||
                                         (next == 0x81 && last >= 0xa6 && last <= 0xa9));
        *to++ = control || high || turns ? '?' : *s;
        s += high ? 2 : turns ? 3 : 1;
    }
    *to = '\0';
    if ((size_t)(to - message) + 1 < size) return;
    int n = 0; /* bytes after the last one that begins a character */
    while (n < 3 && ((unsigned char)to[-1 - n] & 0xc0) == 0x80) n++;
    const unsigned char lead = (unsigned char)to[-1 - n];
    if (lead >= 0xc0 && n < (lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1)) to[-1 - n] = '\0';
}

/* Writes a text that is longer than `size` bytes to out with "…" in place of its middle: the reason
 * is at the end of a message that begins with a long name, and at the beginning of one that ends
 * with a long string. The part before and the part after end and begin with whole characters. */
static void message_fold(char *out, size_t size, const char *text, size_t length)
{
    static const char dots[] = "…";
    size_t before = size / 2, after = size - before - sizeof dots;
    while (before && ((unsigned char)text[before] & 0xc0) == 0x80) before--;
    while (after && ((unsigned char)text[length - after] & 0xc0) == 0x80) after--;
    memcpy(out, text, before);
    memcpy(out + before, dots, sizeof dots - 1);
    memcpy(out + before + sizeof dots - 1, text + length - after, after + 1);
}
/* Writes a message to its `size` bytes, folded if it is longer. Without memory for the whole
 * message its end is cut off. */
static void write_message(char *out, size_t size, const char *format, va_list list)
{
    va_list again;
    va_copy(again, list);
    const int length = eg__vsentence(out, size, format, list);
    char *whole = length < 0 || (size_t)length < size ? NULL : malloc((size_t)length + 1);
    if (whole) {
        eg__vsentence(whole, (size_t)length + 1, format, again);
        message_fold(out, size, whole, (size_t)length);
        free(whole);
    }
    va_end(again);
}

static eg_tensor *fail_list(eg_ctx *cx, eg__cause cause, eg_code code, const char *format,
                            va_list list)
{
    cx = eg__here(cx);
    if (cx ? cx->failed : *thread_message) /* only the first error is kept */
        return cx ? &cx->poison : NULL;
    char *message = cx ? cx->message : thread_message;
    const size_t size = cx ? sizeof cx->message : sizeof thread_message;
    write_message(message, size, format, list);
    make_printable(code, message, size);
    if (cx)
        cx->failed = true, cx->errors++, cx->code = code, cx->cause = cause;
    else
        thread_code = code;
    return cx ? &cx->poison : NULL;
}

eg_tensor *eg_vfail_as(eg_ctx *cx, eg_code code, const char *format, va_list list)
{
    return fail_list(cx, EG_CAUSE_OTHER, code, format, list);
}

eg_tensor *eg_fail_as(eg_ctx *cx, eg_code code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    eg_tensor *poison = fail_list(cx, EG_CAUSE_OTHER, code, format, list);
    va_end(list);
    return poison;
}

eg_tensor *eg__fail_because(eg_ctx *cx, eg__cause cause, eg_code code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    eg_tensor *poison = fail_list(cx, cause, code, format, list);
    va_end(list);
    return poison;
}

eg_tensor *eg_fail(eg_ctx *cx, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    eg_tensor *poison = fail_list(cx, EG_CAUSE_OTHER, EG_ERROR_USER, format, list);
    va_end(list);
    return poison;
}

eg_tensor *eg_fail_in(eg_ctx *cx, const char *format, ...)
{
    enum { SIZE = sizeof cx->message };
    char whole[2 * SIZE];
    cx = eg__here(cx);
    if (!cx) return NULL;
    if (!cx->failed) return &cx->poison;
    va_list ap;
    va_start(ap, format);
    write_message(whole, SIZE - 2, format, ap);
    va_end(ap);
    strcat(strcat(whole, ": "), cx->message);
    const size_t length = strlen(whole);
    if (length < SIZE)
        memcpy(cx->message, whole, length + 1);
    else
        message_fold(cx->message, SIZE, whole, length);
    make_printable(cx->code, cx->message, sizeof cx->message);
    return &cx->poison;
}

eg_tensor *eg_name_memory_error(eg_ctx *cx, const char *who)
{
    const char *error = cx ? eg_error(cx) : NULL;
    const bool unnamed = error && !strncmp(error, "out of memory", strlen("out of memory"));
    return unnamed && who ? eg_fail_in(cx, "%s", who) : eg__poison(cx);
}

bool eg__capture_refuses(eg_ctx *cx, const char *who, const char *why)
{
    if (!cx || !eg__capturing(cx)) return false;
    eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s: not possible in a captured step: %s", who, why);
    return true;
}
