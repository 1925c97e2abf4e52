/* config.c: reads settings from a config.json; a value of another kind than expected is refused
 * with an error that names its key. */
#include "config.h"
#include <stdio.h>

/* Returns the value as text for a message. */
static const char *config_shown(const eg_json *x, char text[64])
{
    static const char *const kinds[] = { "null", NULL, NULL, NULL, "an array", "an object" };
    if (!x) return "missing";
    if (x->kind == EG_JSON_STRING)
        snprintf(text, 64, "\"%.50s\"", x->text);
    else if (x->kind == EG_JSON_NUMBER)
        snprintf(text, 64, "%g", x->number);
    else
        snprintf(text, 64, "%s",
                 x->kind != EG_JSON_BOOL ? kinds[x->kind]
                 : x->number > 0         ? "true"
                                         : "false");
    return text;
}

void eg__config_refuse(const eg__config *c, eg_code code, const eg_json *x, const char *key,
                       const char *why)
{
    char text[64];
    eg_fail_as(c->cx, code, "%s: \"%s\" is %s%s%s", c->path, key, config_shown(x, text),
               *why ? ", " : "", why);
}

const eg_json *eg__config_find(const eg_json *object, const char *key)
{
    const eg_json *x = eg_json_find(object, key);
    return x && x->kind != EG_JSON_NULL ? x : NULL;
}

int64_t eg__config_count(const eg__config *c, const char *key, int64_t otherwise, int64_t most)
{
    const eg_json *x = eg__config_find(c->all, key);
    char why[64];
    if (!x && otherwise) return otherwise;
    if (x && x->kind == EG_JSON_NUMBER && x->number >= 1 && x->number <= (double)most &&
        x->number == (double)(int64_t)x->number)
        return (int64_t)x->number;
    snprintf(why, sizeof why, "not an integer from 1 to %lld", (long long)most);
    eg__config_refuse(c, EG_ERROR_FILE, x, key, why);
    return 1;
}

int64_t eg__config_size(const eg__config *c, const char *key, int64_t otherwise)
{
    return eg__config_count(c, key, otherwise, 1 << 30);
}

double eg__config_real(const eg__config *c, const eg_json *object, const char *key,
                       double otherwise)
{
    const eg_json *x = eg__config_find(object, key);
    if (!x) return otherwise;
    if (x->kind != EG_JSON_NUMBER || x->number < 0)
        eg__config_refuse(c, EG_ERROR_FILE, x, key, "not a number >= 0");
    return x->number;
}

bool eg__config_flag(const eg__config *c, const eg_json *object, const char *key, bool otherwise)
{
    const eg_json *x = eg__config_find(object, key);
    if (!x) return otherwise;
    if (x->kind != EG_JSON_BOOL)
        eg__config_refuse(c, EG_ERROR_FILE, x, key, "neither true nor false");
    return x->number > 0;
}

const char *eg__config_word(const eg__config *c, const eg_json *object, const char *key,
                            const char *otherwise)
{
    const eg_json *x = eg__config_find(object, key);
    if (x && x->kind == EG_JSON_STRING) return x->text;
    if (x) eg__config_refuse(c, EG_ERROR_FILE, x, key, "not a string");
    return otherwise;
}

bool eg__config_set(const eg_json *x)
{
    return x && (x->number > 0 || (x->text && *x->text) || x->first);
}
