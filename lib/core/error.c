/* error.c: the first error of a context, or of a thread where there is no context. */
#include "core/core.h"
#include <stdio.h>
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

static eg_tensor *fail_list(eg_ctx *cx, eg_code code, const char *format, va_list list)
{
    cx = eg__here(cx);
    if (cx ? cx->failed : *thread_message) /* only the first error is kept */
        return cx ? &cx->poison : NULL;
    vsnprintf(cx ? cx->message : thread_message, cx ? sizeof cx->message : sizeof thread_message,
              format, list);
    if (cx)
        cx->failed = true, cx->code = code;
    else
        thread_code = code;
    return cx ? &cx->poison : NULL;
}

eg_tensor *eg_fail_as(eg_ctx *cx, eg_code code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    eg_tensor *poison = fail_list(cx, code, format, list);
    va_end(list);
    return poison;
}

eg_tensor *eg_fail(eg_ctx *cx, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    eg_tensor *poison = fail_list(cx, EG_ERROR_USER, format, list);
    va_end(list);
    return poison;
}

eg_tensor *eg_fail_in(eg_ctx *cx, const char *format, ...)
{
    char words[sizeof cx->message];
    cx = eg__here(cx);
    if (!cx) return NULL;
    if (!cx->failed) return &cx->poison;
    va_list ap;
    va_start(ap, format);
    vsnprintf(words, sizeof words - 2, format, ap);
    va_end(ap);
    strcat(words, ": ");
    const size_t n = strlen(words), old = strlen(cx->message),
                 keep = old < sizeof words - n ? old : sizeof words - n - 1;
    memmove(cx->message + n, cx->message, keep);
    cx->message[n + keep] = 0;
    memcpy(cx->message, words, n);
    return &cx->poison;
}

bool eg__capture_refuses(eg_ctx *cx, const char *who, const char *why)
{
    if (!cx || !eg__capturing(cx)) return false;
    eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s: not possible in a captured step: %s", who, why);
    return true;
}
