/* json_tree.c: a JSON text as values that point to each other. Values and strings are in one owner;
 * strings are decoded in place. */
#include "json.h"
#include <string.h>

enum { JSON_TEXT_MAX = 100000000 };

typedef struct json_place { /* where the next value is stored */
    eg_owner *owner;
    const char *key;
    const eg_json **at;
} json_place;

static bool json_item(eg__json *j, void *user);

static bool json_named(eg__json *j, void *user, char *key)
{
    json_place *place = user;
    place->key = key;
    return json_item(j, user);
}

/* Reads the next value and stores it; `place` is then where the value after it is stored. */
static bool json_item(eg__json *j, void *user)
{
    json_place *place = user;
    const char next = eg__json_peek(j);
    eg_json *x = eg_owner_alloc(place->owner, sizeof *x);
    if (!x) return false;
    x->key = place->key;
    *place->at = x, place->at = &x->next;
    json_place inside = { place->owner, NULL, &x->first };
    switch (next) {
    case '{': x->kind = EG_JSON_OBJECT; return eg__json_object(j, json_named, &inside);
    case '[': x->kind = EG_JSON_ARRAY; return eg__json_array(j, json_item, &inside);
    case '"': x->kind = EG_JSON_STRING; return (x->text = eg__json_string(j)) != NULL;
    default: return eg__json_scalar(j, &x->kind, &x->number);
    }
}

/* Returns the value in an open input; NULL after an error. */
static const eg_json *json_whole(eg__input *in)
{
    const size_t length = in->left;
    const eg_json *all = NULL;
    if (length > JSON_TEXT_MAX)
        return eg__file_refuse(in, "has %zu bytes, more than %d", length, JSON_TEXT_MAX), NULL;
    eg_owner *owner = eg_owner_open(in->cx);
    char *text = owner ? eg_owner_alloc(owner, length + 1) : NULL;
    bool good = text && eg__file_take(in, text, length);
    if (good) text[length] = 0;
    eg__json j = { in, "text", text, 0, length, 0 };
    json_place place = { owner, NULL, &all };
    if (good && !memchr("{[", eg__json_peek(&j), 2))
        good = eg__file_refuse(in, "contains neither an object nor an array");
    good = good && json_item(&j, &place) && eg__json_end(&j);
    if (!good) eg_owner_close(owner);
    if (!good) eg_name_memory_error(in->cx, in->format);
    return good ? all : NULL;
}

const eg_json *eg_json_load(eg_ctx *cx, const char *path)
{
    eg__input in;
    if (!eg__file_open(&in, cx, "json", path)) return NULL;
    const eg_json *all = json_whole(&in);
    eg__file_close(&in);
    return all;
}

const eg_json *eg_json_read(eg_ctx *cx, const void *bytes, size_t count)
{
    eg__input in;
    return eg__file_open_bytes(&in, cx, "json", bytes, count) ? json_whole(&in) : NULL;
}

const eg_json *eg_json_find(const eg_json *object, const char *key)
{
    const eg_json *found = NULL;
    if (!object || !key || object->kind != EG_JSON_OBJECT) return NULL;
    for (const eg_json *x = object->first; x; x = x->next) found = strcmp(x->key, key) ? found : x;
    return found;
}
