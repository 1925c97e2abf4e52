/* json.c: JSON of RFC 8259. jsmn finds the end of a string, number or word and knows the letters of
 * escapes; everything else is checked here: commas and colons, numbers, surrogates, UTF-8. jsmn
 * gets memory for one token at a time, so that nothing is allocated and time is linear; its tokens
 * for a whole header would take twenty times the bytes of the header. */
#define JSMN_STATIC
#define JSMN_STRICT
#include <jsmn.h>
#include "json.h"
#include "text.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_DEPTH_MAX = 128 }; /* limits the recursion, as in the reader of safetensors */

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

/* -- strings, numbers, words ------------------------------------------------------------------ */
/* The token at the cursor: a string without its quotes, or a number or word. jsmn continues with
 * the next token, for which it has no memory, so its result says nothing about this one. */
static bool json_token(eg__json *j, jsmntype_t type, char **start, size_t *length)
{
    jsmn_parser parser;
    jsmntok_t token = { .type = JSMN_UNDEFINED };
    const bool string = eg__json_peek(j) == '"';
    jsmn_init(&parser);
    (void)jsmn_parse(&parser, j->text + j->at, j->length - j->at, &token, 1);
    /* jsmn skips colons and commas before a token */
    if (!parser.toknext || token.type != type || token.start != (string ? 1 : 0))
        return json_refuse(j, string ? "a string without an end, or with an invalid escape"
                                     : "a value expected");
    *start = j->text + j->at + token.start;
    *length = (size_t)(token.end - token.start);
    return true;
}

static uint32_t json_hex4(const char *s)
{
    char digits[5] = { s[0], s[1], s[2], s[3], 0 };
    return (uint32_t)strtoul(digits, NULL, 16);
}

/* Returns the code point of the escape \uXXXX or \uXXXX\uXXXX at *s, which is moved past it; 0 for
 * half a pair of surrogates. */
static uint32_t json_escaped(const char **s, const char *end)
{
    uint32_t code = json_hex4(*s + 2), low;
    *s += 6;
    if (code < 0xD800 || code > 0xDFFF) return code;
    if (code > 0xDBFF || end - *s < 6 || (*s)[0] != '\\' || (*s)[1] != 'u') return 0;
    low = json_hex4(*s + 2);
    *s += 6;
    return low < 0xDC00 || low > 0xDFFF ? 0 : 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
}

static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";

/* Decodes the escapes in place: the result is never longer than the text. */
char *eg__json_string(eg__json *j)
{
    char *start, *out;
    size_t length;
    if (!json_token(j, JSMN_STRING, &start, &length)) return NULL;
    const char *s = out = start, *end = start + length, *why = NULL;
    while (s < end && !why) {
        if (*s != '\\') {
            if ((unsigned char)*s < 0x20) why = "a control character in a string";
            *out++ = *s++;
        } else if (s[1] != 'u') {
            *out++ = meanings[strchr(letters, s[1]) - letters];
            s += 2;
        } else {
            char bytes[5];
            uint32_t code = json_escaped(&s, end);
            int n = eg__text_utf8(code, bytes);
            if (!code) why = "an escape \\u that is no character";
            memcpy(out, bytes, (size_t)n);
            out += n;
        }
    }
    if (!why) {
        *out = 0; /* at the closing quote or before it */
        if (!eg__text_valid(start)) why = "a string is not UTF-8";
    }
    if (why) {
        json_refuse(j, why);
        return NULL;
    }
    j->at = (size_t)(end - j->text) + 1;
    return start;
}

static const char *json_digits(const char *s, const char *end)
{
    while (s < end && *s >= '0' && *s <= '9') s++;
    return s;
}

/* True if it is -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?; *whole: it has neither fraction nor
 * exponent. */
static bool json_is_number(const char *s, size_t length, bool *whole)
{
    const char *end = s + length, *from;
    if (s < end && *s == '-') s++;
    s = json_digits(from = s, end);
    if (s == from || (*from == '0' && s > from + 1)) return false;
    *whole = s == end;
    if (s < end && *s == '.') {
        s = json_digits(from = s + 1, end);
        if (s == from) return false;
    }
    if (s < end && (*s == 'e' || *s == 'E')) {
        s++;
        if (s < end && (*s == '+' || *s == '-')) s++;
        s = json_digits(from = s, end);
        if (s == from) return false;
    }
    return s == end;
}

/* A number, true, false or null. *whole: a number without fraction and exponent. */
static bool json_word(eg__json *j, char **start, bool *whole)
{
    static const char *const words[] = { "true", "false", "null" };
    size_t length;
    if (!json_token(j, JSMN_PRIMITIVE, start, &length)) return false;
    bool good = json_is_number(*start, length, whole);
    for (size_t k = 0; k < 3 && !good; k++) {
        good = length == strlen(words[k]) && !memcmp(*start, words[k], length);
        *whole = false;
    }
    if (!good) return json_refuse(j, "neither a number nor true, false or null");
    j->at += length;
    return true;
}

bool eg__json_natural(eg__json *j, int64_t *out)
{
    char *start, next = eg__json_peek(j);
    bool whole;
    *out = -1;
    if (next == '{' || next == '[' || next == '"') return eg__json_skip(j);
    if (!json_word(j, &start, &whole)) return false;
    if (!whole) return true;
    errno = 0;
    long long value = strtoll(start, NULL, 10);
    *out = value >= 0 ? value : -1;
    if (errno != ERANGE) return true;
    j->at = (size_t)(start - j->text);
    return json_refuse(j, "an integer of more than 64 bits");
}

bool eg__json_scalar(eg__json *j, eg_json_kind *kind, double *value)
{
    char *start;
    bool whole;
    if (!json_word(j, &start, &whole)) return false;
    *kind = *start == 'n' ? EG_JSON_NULL : strchr("tf", *start) ? EG_JSON_BOOL : EG_JSON_NUMBER;
    *value = *kind == EG_JSON_NUMBER ? eg_number_read(start, NULL) : *start == 't';
    if (isfinite(*value)) return true;
    j->at = (size_t)(start - j->text);
    return json_refuse(j, "a number that is too large for a double");
}

/* -- objects, arrays -------------------------------------------------------------------------- */
/* Reads an object or array, from its bracket `opened` to `closed`; `one` reads what is between
 * commas. */
static bool json_list(eg__json *j, char opened, char closed, bool (*one)(eg__json *, void *),
                      void *user)
{
    if (!json_expect(j, opened, opened == '{' ? "'{' expected" : "'[' expected")) return false;
    if (++j->depth > JSON_DEPTH_MAX) return json_refuse(j, "nested deeper than 128 levels");
    for (bool first = true; eg__json_peek(j) != closed || !first; first = false) {
        if (!one(j, user)) return false;
        if (eg__json_peek(j) == closed) break;
        if (!json_expect(j, ',', closed == '}' ? "',' or '}' expected" : "',' or ']' expected"))
            return false;
    }
    j->at++;
    j->depth--;
    return true;
}

typedef struct json_reading {
    bool (*member)(eg__json *, void *, char *key);
    void *user;
} json_reading;

static bool json_member(eg__json *j, void *user)
{
    const json_reading *r = user;
    if (eg__json_peek(j) != '"') return json_refuse(j, "a key in quotes expected");
    char *key = eg__json_string(j);
    return key && json_expect(j, ':', "':' expected") && r->member(j, r->user, key);
}

bool eg__json_object(eg__json *j, bool (*member)(eg__json *, void *, char *key), void *user)
{
    json_reading r = { member, user };
    return json_list(j, '{', '}', json_member, &r);
}

bool eg__json_array(eg__json *j, bool (*item)(eg__json *, void *), void *user)
{
    return json_list(j, '[', ']', item, user);
}

static bool json_skip_item(eg__json *j, void *user)
{
    (void)user;
    return eg__json_skip(j);
}

static bool json_skip_member(eg__json *j, void *user, char *key)
{
    (void)user, (void)key;
    return eg__json_skip(j);
}

bool eg__json_skip(eg__json *j)
{
    char *start;
    bool whole;
    switch (eg__json_peek(j)) {
    case '{': return eg__json_object(j, json_skip_member, NULL);
    case '[': return eg__json_array(j, json_skip_item, NULL);
    case '"': return eg__json_string(j) != NULL;
    default: return json_word(j, &start, &whole);
    }
}

bool eg__json_end(eg__json *j)
{
    eg__json_peek(j);
    return j->at == j->length || json_refuse(j, "end of file expected");
}

/* -- writing ---------------------------------------------------------------------------------- */
static size_t json_byte(char *out, size_t n, char c)
{
    if (out) out[n] = c;
    return n + 1;
}

size_t eg__json_quote(const char *s, char *out)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = json_byte(out, 0, '"');
    for (; *s; s++) {
        const char *known = *s == '/' ? NULL : strchr(meanings, *s);
        const char code[] = { 'u', '0', '0', hex[*s >> 4 & 15], hex[*s & 15] };
        const bool control = (unsigned char)*s < 0x20;
        if (known || control) n = json_byte(out, n, '\\');
        if (!known && control)
            for (size_t k = 0; k < sizeof code; k++) n = json_byte(out, n, code[k]);
        else
            n = json_byte(out, n, known ? letters[known - meanings] : *s);
    }
    return json_byte(out, n, '"');
}
