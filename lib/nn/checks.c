/* checks.c: checks that modules share, the names of modules in messages, and texts in memory of a
 * list of parameters. */
#include "nn.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool eg__params_there(const char *who, const eg_params *p)
{
    if (!p) eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: the list of parameters is NULL", who);
    return p;
}
bool eg__params_single(const char *who, const eg_params *p)
{
    if (!eg__params_there(who, p)) return false;
    const int64_t copies = eg_copies_count(eg_params_copies(p));
    if (copies)
        eg_fail_as(eg_params_context(p), EG_ERROR_MISUSE,
                   "%s: the parameters have %lld cop%s; eg_params_of_copy gives the list of one",
                   who, (long long)copies, copies == 1 ? "y" : "ies");
    return !copies;
}
eg_tensor *eg__nn_absent(const char *who, eg_tensor *x)
{
    return eg_fail_as(eg_context(x), EG_ERROR_MISUSE, "%s: the module is NULL", who);
}

eg_tensor *eg__nn_missing(const char *who, const char *name, const char *operand, eg_tensor *x)
{
    return eg_fail_as(eg_context(x), EG_ERROR_MISUSE, "%s \"%s\": %s is NULL", who, name, operand);
}

eg_tensor *eg__nn_error_in(const char *who, const char *name, eg_tensor *x, bool failed,
                           eg_tensor *y)
{
    return eg_ok(y) || failed ? y : eg_fail_in(eg_context(x), "%s \"%s\"", who, name);
}

eg_tensor *eg__nn_dropped(eg_tensor *x, double p) { return p > 0 ? eg_dropout(x, p) : x; }

eg_tensor *eg__nn_masked(eg_tensor *x, eg_tensor *keep)
{
    return eg_where(keep, x, eg_full_n(eg_context(x), eg_type(x), 0, 0, NULL));
}

char *eg__nn_text(eg_params *p, const char *format, ...)
{
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, format, values);
    char *out = length < 0 ? NULL : eg_params_alloc(p, (size_t)length + 1);
    if (out) vsnprintf(out, (size_t)length + 1, format, again);
    va_end(again);
    va_end(values);
    return out;
}

const char *eg__nn_joined(const eg_spec *a, const eg_spec *b, const eg_spec *y)
{
    const eg_spec *const both[] = { a, b };
    return eg__nn_spec(eg_spec_join(b ? 2 : 1, both, y));
}

bool eg__nn_only_indices(const eg_spec *s, int terms, bool arrow, const char *wanted)
{
    if (!s) return false;
    if (s->terms != terms || s->arrow != arrow)
        return eg_spec_fail(s, EG_ERROR_NOTATION, -1, -1, "%s", wanted), false;
    for (int k = 0; k < terms + arrow; k++)
        for (int i = 0; i < s->term[k].items; i++)
            if (s->term[k].item[i].index < 0 || s->term[k].item[i].group)
                return eg_spec_fail(s, EG_ERROR_NOTATION, k, i, "%s", wanted), false;
    return true;
}

bool eg__nn_offset_fits(eg_ctx *cx, const char *who, int64_t offset)
{
    return offset >= 0 ||
           (eg_fail_as(
                cx, EG_ERROR_MISUSE,
                "%s.offset is %lld, but it is the number of positions before the first query", who,
                (long long)offset),
            false);
}

bool eg__nn_indices_differ(const eg_spec *s, int term)
{
    const eg_spec_term *t = &s->term[term];
    for (int k = 0; k < t->items; k++) {
        const int index = t->item[k].index;
        if (index < 0 || eg_spec_find_item(s, term, s->index[index].name) == k) continue;
        eg_spec_fail(s, EG_ERROR_NOTATION, term, k, "index '%s' occurs twice",
                     s->index[index].name);
        return false;
    }
    return true;
}

bool eg__nn_width_fits(const char *who, const char *name, char letter, eg_tensor *x, int64_t width)
{
    if (!eg_ok(x)) return false;
    if (eg_rank(x) > 0 && eg_dim(x, -1) == width) return true;
    if (eg_rank(x) == 0)
        eg_fail_as(eg_context(x), EG_ERROR_SHAPE,
                   "%s \"%s\": '%c' is %lld in the module, but the operand has no axes", who, name,
                   letter, (long long)width);
    else
        eg_fail_as(eg_context(x), EG_ERROR_SHAPE,
                   "%s \"%s\": '%c' is %lld in the module but %lld in the operand's last axis", who,
                   name, letter, (long long)width, (long long)eg_dim(x, -1));
    return false;
}

eg_params *eg__nn_under(eg_params *p, const char *who, const char *name)
{
    if (!p) eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: the list of parameters is NULL", who);
    const bool failed = eg_error(eg_params_context(p));
    eg_params *under = eg_params_under(p, name);
    if (!failed) eg_name_memory_error(eg_params_context(p), who);
    return under;
}

bool eg__nn_path(const eg_params *p, const char *who, const char *path)
{
    if (!path) eg_fail_as(eg_params_context(p), EG_ERROR_MISUSE, "%s: the path is NULL", who);
    return path;
}

/* Returns the length of the name in a prefix such as "0.self.". */
static int params_named(const eg_params *p)
{
    return *eg_params_prefix(p) ? (int)strlen(eg_params_prefix(p)) - 1 : 0;
}
const char *eg__nn_who(eg_params *p, const char *who)
{
    const int n = params_named(p);
    return n ? eg__nn_text(p, "%s \"%.*s\"", who, n, eg_params_prefix(p)) : who;
}

void eg__nn_refuse(const eg_params *p, eg_code code, const char *who, const char *format, ...)
{
    eg_ctx *cx = eg_params_context(p);
    const int n = params_named(p);
    va_list values;
    if (eg_error(cx)) return; /* only the first error is kept */
    va_start(values, format);
    eg_vfail_as(cx, code, format, values);
    va_end(values);
    if (n)
        eg_fail_in(cx, "%s \"%.*s\"", who, n, eg_params_prefix(p));
    else
        eg_fail_in(cx, "%s", who);
}

bool eg__nn_dropout_fits(const eg_params *p, const char *who, double dropout)
{
    if ((dropout >= 0 && dropout <= 1) || dropout == EG_OFF) return true;
    eg__nn_refuse(p, EG_ERROR_MISUSE, who, "dropout must be in [0, 1], not %g", dropout);
    return false;
}

bool eg__nn_positive(const eg_params *p, const char *who, const char *option_name, int64_t size)
{
    if (size < 1)
        eg__nn_refuse(p, EG_ERROR_MISUSE, who, "%s must be positive, not %lld", option_name,
                      (long long)size);
    else if (size > INT32_MAX) /* so that products of two sizes fit */
        eg__nn_refuse(p, EG_ERROR_MISUSE, who, "%s is %lld, more than %d", option_name,
                      (long long)size, INT32_MAX);
    return size >= 1 && size <= INT32_MAX;
}
