/* json.c: JSON objects read member by member with jansson. A tree of a whole header takes up to
 * fifty times its bytes; the tree of one member is released before the next is read. Blanks are
 * those of RFC 8259. */
#include "json.h"
#include <errno.h>
#include <string.h>

char eg__json_peek(eg__json *j)
{
    while (j->at < j->length && memchr(" \t\r\n", j->text[j->at], 4)) j->at++;
    return j->at < j->length ? j->text[j->at] : 0;
}

static bool json_refuse(const eg__json *j, const char *why)
{
    return eg__file_refuse(j->in, "its %s is not valid JSON at byte %zu: %s", j->what, j->at, why);
}

static bool json_expect(eg__json *j, char c, const char *why)
{
    if (eg__json_peek(j) != c) return json_refuse(j, why);
    j->at++;
    return true;
}

json_t *eg__json_value(eg__json *j, size_t most)
{
    const size_t how = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK;
    eg__json_peek(j);
    size_t left = j->length - j->at, room = left < most ? left : most;
    const char *text = j->text + j->at;
    json_error_t error, second;
    errno = 0; /* jansson takes a lack of memory for bad syntax … */
    json_t *value = json_loadb(text, room, how, &error), *again = NULL;
    if (!value && errno == ENOMEM)
        eg__file_refuse(j->in, "out of memory");
    else if (!value && room < left && (size_t)error.position >= room)
        eg__file_refuse(j->in, "the value at byte %zu of its %s is longer than %zu bytes", j->at,
                        j->what, most);
    else if (!value) {
        j->at += error.position > 0 ? (size_t)error.position : 0;
        json_refuse(j, error.text);
    }
    /* … and drops a character of a string whose buffer cannot grow (2.14): what is read twice must
     * be the same */
    if (value && !json_equal(value, again = json_loadb(text, room, how, &second))) {
        eg__file_refuse(j->in, "out of memory");
        json_decref(value);
        value = NULL;
    }
    json_decref(again);
    if (value) j->at += (size_t)error.position;
    return value;
}

bool eg__json_object(eg__json *j, bool (*member)(eg__json *, void *, const char *key), void *user)
{
    if (!json_expect(j, '{', "'{' expected")) return false;
    if (eg__json_peek(j) == '}') {
        j->at++;
        return true;
    }
    for (;;) {
        if (eg__json_peek(j) != '"') return json_refuse(j, "a key in quotes expected");
        json_t *key = eg__json_value(j, j->length);
        bool good =
            key && json_expect(j, ':', "':' expected") && member(j, user, json_string_value(key));
        json_decref(key);
        if (!good) return false;
        if (eg__json_peek(j) == '}') {
            j->at++;
            return true;
        }
        if (!json_expect(j, ',', "',' or '}' expected")) return false;
    }
}

bool eg__json_end(eg__json *j)
{
    eg__json_peek(j);
    return j->at == j->length || json_refuse(j, "end of file expected");
}
