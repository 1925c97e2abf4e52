/* parse_terms.c: parses a string into terms of items, and formats every error of the notation.
 *
 *   string = [ ( "names" | "letters" ) ":" ] term { "," term } [ "->" term ]
 *   term   = { name [ "=" number ] | "1" | "..." | "(" term ")" | "[" term "]" }
 *
 * Groups are not nested, and neither are brackets. A name is one letter or a word. It is a word if
 * the string begins with "names:"; or if the string begins with neither "names:" nor "letters:",
 * two names are separated by blanks only, and one of them has two characters or more. */
#include "notation/notation.h"
#include <string.h>

static bool is_letter(char c) { return (unsigned)((c | 32) - 'a') < 26; }
static bool is_digit(char c) { return (unsigned)(c - '0') < 10; }
static bool is_start(char c) { return is_letter(c) || c == '_'; }
static bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* -- messages --------------------------------------------------------------------------------- */
enum { MESSAGE = 1000, SENTENCE = 480, WINDOW = 100 };

typedef struct text {
    char s[MESSAGE];
    int n;
} text;
static void put(text *t, char c)
{
    if (t->n < MESSAGE - 1) t->s[t->n++] = c;
}
static void put_all(text *t, const char *s)
{
    while (*s) put(t, *s++);
}

/* Returns the number of bytes of the UTF-8 character at s, 1 to 4; 1 for a byte that begins none.
 */
static int utf8_bytes(const char *s)
{
    const unsigned c = (unsigned char)*s;
    const int n = c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 1;
    for (int k = 1; k < n; k++)
        if ((s[k] & 0xc0) != 0x80) return 1;
    return n;
}
/* True for a byte of a UTF-8 character that is not its first byte. */
static bool inside(char c) { return (c & 0xc0) == 0x80; }
/* Appends the character of n bytes at s. Control characters, bytes that begin no character, and
 * marks that change the direction of writing are shown as '?'. */
static void put_character(text *t, const char *s, int n)
{
    const unsigned last = (unsigned char)s[n - 1];
    const bool control = n == 1 ? *s < 32 || *s > 126 : n == 2 && s[0] == '\xc2' && last < 0xa0,
               turns = n == 3 && ((!memcmp(s, "\xe2\x80", 2) && last >= 0xa8 && last <= 0xae) ||
                                  (!memcmp(s, "\xe2\x81", 2) && last >= 0xa6 && last <= 0xa9));
    if (is_blank(*s))
        put(t, ' ');
    else if (control || turns)
        put(t, '?');
    else
        for (int k = 0; k < n; k++) put(t, s[k]);
}

/* At most WINDOW bytes of a string are shown, with all carets if they fit, else with the last
 * one. */
eg_tensor *eg__caret_as(eg_ctx *cx, eg_code code, const char *who, const char *spec, int marks,
                        const eg_caret *mark, const char *tail, const char *hint,
                        const char *format, ...)
{
    text t = { .n = 0 };
    char sentence[SENTENCE];
    if (!cx) return NULL;
    va_list list;
    va_start(list, format);
    eg__vsentence(sentence, sizeof sentence, format, list);
    va_end(list);
    put_all(&t, who), put_all(&t, ": "), put_all(&t, sentence);

    int length = (int)strlen(spec), from = 0, to = length;
    if (length > WINDOW) {
        int low = length, high = 0;
        for (int k = 0; k < marks; k++) {
            if (mark[k].at < low) low = mark[k].at;
            if (mark[k].at + mark[k].length > high) high = mark[k].at + mark[k].length;
        }
        if (marks && high - low > WINDOW - 10)
            low = mark[marks - 1].at,
            high =
                low + (mark[marks - 1].length < WINDOW / 2 ? mark[marks - 1].length : WINDOW / 2);
        from = marks ? low - (WINDOW - (high - low)) / 2 : 0;
        if (from > length - WINDOW) from = length - WINDOW;
        if (from < 0) from = 0;
        to = from + WINDOW;
        /* whole characters only */
        for (int k = 0; k < 3 && from > 0 && inside(spec[from]); k++) from++;
        for (int k = 0; k < 3 && to < length && inside(spec[to]); k++) to--;
    }
    put_all(&t, "\n  ");
    if (from) put_all(&t, "…");
    uint8_t column[WINDOW + 2]; /* of each byte */
    int width = from > 0, end = 0;
    for (int i = from, n; i < to; i += n, width++) {
        n = utf8_bytes(spec + i);
        put_character(&t, spec + i, n);
        for (int k = 0; k < n && i + k <= to; k++) column[i + k - from] = (uint8_t)width;
    }
    column[to - from] = (uint8_t)width;
    if (to < length) put_all(&t, "…"), width++;
    char line[WINDOW + 8];
    memset(line, ' ', sizeof line);
    for (int k = 0; k < marks; k++)
        for (int i = 0; i < (mark[k].length > 0 ? mark[k].length : 1); i++) {
            const int at = mark[k].at + i;
            if (at < from || at > to) continue;
            line[column[at - from]] = '^';
            if (column[at - from] + 1 > end) end = column[at - from] + 1;
        }
    if (tail && *tail) {
        if (end < width + 2) end = width + 2 < (int)sizeof line ? width + 2 : (int)sizeof line;
    }
    if (end) {
        put_all(&t, "\n  ");
        for (int i = 0; i < end; i++) put(&t, line[i]);
        if (tail) put_all(&t, tail);
    }
    if (hint && *hint) put_all(&t, "\n  "), put_all(&t, hint);
    t.s[t.n] = 0;
    return eg_fail_as(cx, code, "%s", t.s);
}

void eg__caret_stray(eg_ctx *cx, const char *who, const char *spec, int where, const char *place)
{
    static const struct {
        const char *is, *hint;
    } known[] = {
        { ">", "the arrow is '->'" },
        { "→", "the arrow is '->'" },
        { "⟶", "the arrow is '->'" },
        { "⇒", "the arrow is '->'" },
        { "…", "an ellipsis is three dots" },
        { "≤", "write <=" },
        { "≥", "write >=" },
        { "≠", "write !=" },
        { "·", "write *" },
        { "×", "write *" },
        { "−", "write -" },
        { "–", "write -" },
        { "—", "write -" },
    };
    const char *s = spec + where, *hint = NULL;
    const int n = utf8_bytes(s);
    const eg_caret mark = { where, n };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (!strncmp(s, known[k].is, strlen(known[k].is))) hint = known[k].hint;
    if (n > 1 && !hint) hint = "an index is a letter from a to z or A to Z";
    if (n > 1 || (*s > 32 && *s < 127))
        eg__caret(cx, who, spec, 1, &mark, NULL, hint, "character '%.*s' has no meaning %s", n, s,
                  place);
    else
        eg__caret(cx, who, spec, 1, &mark, NULL, NULL, "byte 0x%02x has no meaning %s",
                  (unsigned)(unsigned char)*s, place);
}

/* -- letters or names ------------------------------------------------------------------------- */
/* Returns the byte after "names:" or "letters:" and sets *names; 0 if the string begins with
 * neither. */
static int prefix_of_reading(const char *s, bool *names)
{
    static const char *const word[] = { "letters", "names" };
    int from = 0;
    while (is_blank(s[from])) from++;
    for (int k = 0; k < 2; k++) {
        const size_t n = strlen(word[k]);
        if (strncmp(s + from, word[k], n)) continue;
        int i = from + (int)n;
        while (is_blank(s[i])) i++;
        if (s[i] == ':') return *names = k, i + 1;
    }
    return 0;
}
/* True if the blanks of the string show that it consists of names: two names are separated by
 * blanks only, and one of them has two characters or more. */
static bool in_names(const char *s)
{
    /* the length of the previous name, if only blanks (or its "=8") follow it; else 0 */
    int before = 0;
    bool blank = false;
    while (*s) {
        if (is_start(*s)) {
            int length = 1;
            while (is_word(s[length])) length++;
            if (before && blank && (length > 1 || before > 1)) return true;
            s += length, before = length, blank = false;
            const char *q = s;
            while (is_blank(*q)) q++;
            if (*q != '=') continue;
            for (q++; is_blank(*q); q++) {
            }
            while (is_digit(*q)) q++;
            s = q;
        } else {
            if (is_blank(*s))
                blank = true;
            else
                before = 0, blank = false;
            s++;
        }
    }
    return false;
}

/* Reads the number at *i and advances *i. False if it does not fit in 64 bits. */
static bool number(const char *s, int *i, int64_t *value)
{
    int64_t v = 0;
    bool fits = true;
    for (; is_digit(s[*i]); ++*i)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, (int64_t)(s[*i] - '0'), &v))
            fits = false;
    *value = v;
    return fits;
}

/* Returns a hint for an '=' at `where` that does not follow a name. */
static const char *size_hint(const char *spec, int where, bool letters)
{
    int k = where;
    while (k > 0 && is_blank(spec[k - 1])) k--;
    if (spec[where + 1] == '>') return "the arrow is '->'";
    if (k > 0 && (spec[k - 1] == ')' || spec[k - 1] == ']'))
        return "a size belongs to one name, as in '(h=8 d)'";
    if (k > 0 && is_digit(spec[k - 1]) && letters) return EG_LETTERS_HINT;
    return "a size follows its name, as in 'h=8'";
}

/* -- the parser ------------------------------------------------------------------------------- */
/* The state of the parser. */
typedef struct reader {
    eg_ctx *cx;
    const char *who, *spec;
    eg_parse_buffer *buffer;
    eg_parsed *p;
    eg_parsed_term *t;
    int i, terms, items;
    int groups; /* number of groups in this term so far */
    int group;  /* number of the open group, 0 if none is open; the byte of its '(' */
    int group_at, group_names;
    int bracket_at; /* byte of the open '[', −1 if none is open; number of items and group before
                     * it */
    int bracket_items, bracket_group;
    uint16_t seen[64]; /* by letter & 63: its axis + 1; 0 if it has not occurred */
} reader;

/* Records an error with carets under `length` bytes from `where` on. Returns false. */
static bool bad(const reader *r, int where, int length, const char *hint, const char *sentence)
{
    eg__caret(r->cx, r->who, r->spec, 1, &(eg_caret){ where, length }, NULL, hint, "%s", sentence);
    return false;
}
static bool too_many_axes(const reader *r, int where)
{
    eg__caret(r->cx, r->who, r->spec, 1, &(eg_caret){ where, 1 }, NULL, NULL,
              "a term has more than %d axes", EG_RANK_MAX);
    return false;
}

/* Appends an item that begins at byte `start` to the term. Outside of groups it is an axis. */
static inline bool put_item(reader *r, uint16_t axis, int start)
{
    if (!r->group && ++r->t->slots > EG_RANK_MAX) return too_many_axes(r, start);
    if (r->t->names > EG_RANK_MAX || r->items == EG_ITEMS_MAX) return too_many_axes(r, start);
    r->buffer->item[r->items++] = (eg_term_item){ .axis = axis,
                                                  .at = (uint16_t)start,
                                                  .bracket = r->bracket_at >= 0,
                                                  .group = (uint8_t)r->group };
    return true;
}

/* Reads the size after the name of n bytes at `start`, if a '=' follows: "h=8". */
static bool read_size(reader *r, eg_parsed_axis *axis, int start, int n)
{
    const char *spec = r->spec;
    int e = r->i;
    int64_t v;
    while (is_blank(spec[e])) e++;
    if (spec[e] != '=') return true;
    for (e++; is_blank(spec[e]); e++) {
    }
    const int digits = e, shown = n < 40 ? n : 40;
    if (spec[e] == '>')
        return bad(r, e - 1, 2, NULL, "'=>' has no meaning here: the arrow is '->'");
    if (!is_digit(spec[e])) {
        eg__caret(r->cx, r->who, spec, 1, &(eg_caret){ e, 1 }, NULL, NULL,
                  "'%.*s =' is not followed by a size", shown, spec + start);
        return false;
    }
    if (!number(spec, &e, &v)) {
        eg__caret(r->cx, r->who, spec, 1, &(eg_caret){ digits, e - digits }, NULL, NULL,
                  "the size of '%.*s' does not fit in 64 bits", shown, spec + start);
        return false;
    }
    if (axis->size >= 0 && axis->size != v) {
        eg__caret(r->cx, r->who, spec, 2,
                  (eg_caret[]){ { axis->size_at, 1 }, { start, e - start } }, NULL, NULL,
                  "the string gives index '%.*s' two sizes, %lld and %lld", shown, spec + start,
                  (long long)axis->size, (long long)v);
        return false;
    }
    axis->size = v;
    axis->size_at = (uint16_t)start;
    r->i = e;
    return true;
}

/* Reads a letter, or in a string of names a word, and its size, and appends it as an item. */
static inline bool read_index(reader *r)
{
    eg_parsed *p = r->p;
    const char *spec = r->spec;
    const int start = r->i;
    uint16_t *seen = &r->seen[spec[start] & 63];
    int n = 1, a = 0;
    if (p->names) {
        while (is_word(spec[start + n])) n++;
        while (a < p->axes && (p->axis[a].length != n ||
                               memcmp(spec + p->axis[a].at, spec + start, (size_t)n) != 0))
            a++;
    } else
        a = *seen ? *seen - 1 : p->axes;
    if (a == p->axes) {
        if (a == EG_AXES_MAX - EG_RANK_MAX) {
            eg__caret(r->cx, r->who, spec, 1, &(eg_caret){ start, n }, NULL, NULL,
                      "the string has more than %d different names", a);
            return false;
        }
        p->axis[p->axes++] = (eg_parsed_axis){
            .at = (uint16_t)start, .length = (uint16_t)n, .term = (uint16_t)r->terms, .size = -1
        };
        if (!p->names) *seen = (uint16_t)p->axes;
    }
    if (p->arrow)
        p->axis[a].outputs++;
    else
        p->axis[a].inputs++;
    r->i += n;
    r->t->names++;
    if (r->group) r->group_names++;
    return read_size(r, &p->axis[a], start, n) && put_item(r, (uint16_t)a, start);
}

/* Reads a number without a name: 1 is an axis of size 1, or nothing inside of a group; other
 * numbers are refused. */
static bool read_unit(reader *r)
{
    const char *spec = r->spec;
    const int start = r->i;
    int e = start;
    while (is_digit(spec[e])) e++;
    if (e == start + 1 && spec[start] == '1') {
        r->i = e;
        r->t->plain = false;
        return r->group || put_item(r, EG_ITEM_ONE, start);
    }
    const bool touches = !r->p->prefixed && start > 0 && is_letter(spec[start - 1]);
    eg__caret(r->cx, r->who, spec, 1, &(eg_caret){ start, e - start }, NULL,
              touches ? EG_LETTERS_HINT : NULL,
              "the only number that is an axis is 1: give the axis a name, as in 'r=%.*s'",
              e - start < 20 ? e - start : 20, spec + start);
    return false;
}

static bool read_dots(reader *r)
{
    const int start = r->i;
    const size_t n = strspn(r->spec + start, ".");
    if (n != 3) return bad(r, start, (int)n, NULL, "an ellipsis is three dots");
    if (r->t->dots) return bad(r, start, 3, NULL, "a term has two ellipses; at most one");
    r->t->dots = r->group ? 2 : 1;
    r->t->plain = false;
    if (r->group) r->group_names++;
    r->i += 3;
    return put_item(r, EG_ITEM_DOTS, start);
}

static bool open_group(reader *r)
{
    if (r->group) {
        eg__caret(r->cx, r->who, r->spec, 2, (eg_caret[]){ { r->group_at, 1 }, { r->i, 1 } }, NULL,
                  NULL, "groups cannot be nested");
        return false;
    }
    if (++r->groups > EG_RANK_MAX || ++r->t->slots > EG_RANK_MAX) return too_many_axes(r, r->i);
    r->group = r->groups;
    r->group_at = r->i++;
    r->group_names = 0;
    r->t->plain = false;
    return true;
}
/* A group without names, "()" or "(1)", is an axis of size 1. */
static bool close_group(reader *r)
{
    const int start = r->i;
    if (!r->group) return bad(r, start, 1, NULL, "')' closes nothing");
    if (r->bracket_at >= 0 && r->bracket_group == r->group)
        return bad(r, r->bracket_at, 1, NULL, "'[' is not closed before ')'");
    r->i++;
    const bool good = r->group_names || put_item(r, EG_ITEM_ONE, start);
    r->group = 0;
    return good;
}

static bool open_bracket(reader *r)
{
    if (r->bracket_at >= 0) {
        eg__caret(r->cx, r->who, r->spec, 2, (eg_caret[]){ { r->bracket_at, 1 }, { r->i, 1 } },
                  NULL, NULL, "brackets cannot be nested");
        return false;
    }
    if (r->p->bracket < 0) r->p->bracket = r->i;
    r->bracket_at = r->i++;
    r->bracket_items = r->items;
    r->bracket_group = r->group;
    r->t->plain = false;
    return true;
}
static bool close_bracket(reader *r)
{
    const int at = r->bracket_at;
    if (at < 0) return bad(r, r->i, 1, NULL, "']' closes nothing");
    if (r->bracket_group != r->group)
        return r->group ? bad(r, r->group_at, 1, NULL, "'(' is not closed before ']'")
                        : bad(r, at, 1, NULL, "'[' is not closed before ')'");
    if (r->items == r->bracket_items)
        return bad(r, at, r->i + 1 - at, NULL, "brackets without an axis");
    r->bracket_at = -1;
    r->i++;
    return true;
}

int eg__arrow(const char *spec)
{
    const char *at = strstr(spec, "->");
    return (int)(at ? (size_t)(at - spec) : strlen(spec));
}
/* Ends a term at a comma, at the arrow, or at the end of the string. */
static bool end_term(reader *r)
{
    const char c = r->spec[r->i];
    if (c == '-' && r->spec[r->i + 1] != '>') {
        const char next = r->spec[r->i + 1];
        return bad(
            r, r->i, 1,
            next >= '0' && next <= '9'
                ? "an axis is a letter, not a number: the last of three is [d] in \"b l [d]\""
                : NULL,
            "'-' without '>': the arrow is '->'");
    }
    if (c == '-' && r->p->arrow) return bad(r, r->i, 2, NULL, "the string has two arrows");
    if (r->group) return bad(r, r->group_at, 1, NULL, "'(' is not closed");
    if (r->bracket_at >= 0) return bad(r, r->bracket_at, 1, NULL, "'[' is not closed");
    r->t->end = (uint16_t)r->items;
    r->t->stop = (uint16_t)r->i;
    if (!c) return true;
    if (c == ',' && r->p->arrow)
        return bad(r, r->i, 1, NULL, "a comma follows '->', but there is only one output");
    if (c == '-') r->p->arrow = true;
    r->i += c == '-' ? 2 : 1;
    if (c == ',' && r->terms + 1 == EG_OPERANDS_MAX) {
        eg__caret(r->cx, r->who, r->spec, 1, &(eg_caret){ r->i, 1 }, NULL, NULL,
                  "the string has more than %d operands", EG_OPERANDS_MAX);
        return false;
    }
    r->t = &r->buffer->term[++r->terms];
    *r->t = (eg_parsed_term){ .begin = (uint16_t)r->items, .at = (uint16_t)r->i, .plain = true };
    r->groups = 0;
    return true;
}

/* Records an error for a character that begins no item. Returns false. */
static bool read_stray(const reader *r)
{
    const int i = r->i;
    switch (r->spec[i]) {
    case '=':
        return bad(r, i, 1, size_hint(r->spec, i, !r->p->names && !r->p->prefixed),
                   "'=' follows no name");
    case ':':
        return bad(r, i, 1, "only 'names:' and 'letters:' have one, before all terms",
                   "character ':' has no meaning here");
    case '_':
        return bad(r, i, 1, NULL,
                   "'_' is not an index letter (names may have it: 'names: d_k head')");
    default: eg__caret_stray(r->cx, r->who, r->spec, i, "here"); return false;
    }
}

static bool read_next(reader *r)
{
    switch (r->spec[r->i]) {
    case '.': return read_dots(r);
    case '(': return open_group(r);
    case ')': return close_group(r);
    case '[': return open_bracket(r);
    case ']': return close_bracket(r);
    case '-':
    case ',':
    case 0: return end_term(r);
    default: return is_digit(r->spec[r->i]) ? read_unit(r) : read_stray(r);
    }
}

const eg_parsed *eg__parse(eg_ctx *cx, const char *who, const char *spec, eg_reading as,
                           eg_parse_buffer *buffer)
{
    eg_parsed *p = &buffer->head;
    const size_t length = strlen(spec);
    if (length > 60000)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: the string has %zu characters; at most 60000",
                          who, length),
               NULL;
    bool names = as == EG_READ_AS_NAMES;
    const int begin = prefix_of_reading(spec, &names);
    *p = (eg_parsed){ .names = begin || as != EG_READ_BY_BLANKS ? names : in_names(spec),
                      .prefixed = begin > 0,
                      .begin = begin,
                      .bracket = -1,
                      .length = (int)length,
                      .axis = buffer->axis,
                      .term = buffer->term,
                      .item = buffer->item };
    reader r = { .cx = cx,
                 .who = who,
                 .spec = spec,
                 .buffer = buffer,
                 .p = p,
                 .t = buffer->term,
                 .i = begin,
                 .bracket_at = -1 };
    *r.t = (eg_parsed_term){ .at = (uint16_t)begin, .plain = true };
    for (;;) {
        const char c = spec[r.i];
        if (is_blank(c))
            r.i++;
        else if (!(is_start(c) && (p->names || c != '_') ? read_index(&r) : read_next(&r)))
            return NULL;
        else if (!c)
            break;
    }
    p->terms = r.terms + !p->arrow;
    p->items = r.items;
    return p;
}
