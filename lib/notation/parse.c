/* parse.c: a string → terms of items.
 *
 *   string = [ ( "names" | "letters" ) ":" ] term { "," term } [ "->" term ]
 *   term   = { name [ "=" number ] | "1" | "..." | "(" … ")" | "[" … "]" }      groups do not nest,
 * brackets neither
 *
 * A name is one letter; or a word, when the string says "names:", or says nothing and two names
 * stand apart by blanks alone and one of them has two characters or more. */
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

int eg__utf8_bytes(const char *s)
{
    const unsigned c = (unsigned char)*s;
    const int n = c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 1;
    for (int k = 1; k < n; k++)
        if ((s[k] & 0xc0) != 0x80) return 1;
    return n;
}
/* a byte of a character, not its first */
static bool inside(char c) { return (c & 0xc0) == 0x80; }
/* Controls, bytes that begin no character, and marks that turn the direction of writing are shown
 * as '?'. */
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

/* A long string is clipped to WINDOW bytes that hold all marks if they can, else the last one. */
eg_tensor *eg__caret(eg_ctx *cx, const char *who, const char *spec, int marks, const eg_caret *mark,
                     const char *tail, const char *hint, const char *format, ...)
{
    text t = { .n = 0 };
    char sentence[SENTENCE];
    if (!cx) return NULL;
    va_list list;
    va_start(list, format);
    vsnprintf(sentence, sizeof sentence, format, list);
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
        /* whole characters */
        for (int k = 0; k < 3 && from > 0 && inside(spec[from]); k++) from++;
        for (int k = 0; k < 3 && to < length && inside(spec[to]); k++) to--;
    }
    put_all(&t, "\n  ");
    if (from) put_all(&t, "…");
    uint8_t column[WINDOW + 2]; /* of each byte */
    int width = from > 0, end = 0;
    for (int i = from, n; i < to; i += n, width++) {
        n = eg__utf8_bytes(spec + i);
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
    return eg_fail_as(cx, EG_ERROR_NOTATION, "%s", t.s);
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
    };
    const char *s = spec + where, *hint = NULL;
    const int n = eg__utf8_bytes(s);
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
/* The offset behind "names:" or "letters:", or 0 */
static int reading_said(const char *s, bool *names)
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
static bool in_names(const char *s)
{
    /* length of the name before, if only blanks (and its "=8") came since; else 0 */
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

/* -- the parser ------------------------------------------------------------------------------- */
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

static const eg_parsed *at(eg_ctx *cx, const char *who, const char *spec, int where, int length,
                           const char *sentence)
{
    return eg__caret(cx, who, spec, 1, &(eg_caret){ where, length }, NULL, NULL, "%s", sentence),
           NULL;
}

/* Why the '=' at `where` stands behind no name */
static const char *size_hint(const char *spec, int where, bool letters)
{
    int k = where;
    while (k > 0 && is_blank(spec[k - 1])) k--;
    if (spec[where + 1] == '>') return "the arrow is '->'";
    if (k > 0 && (spec[k - 1] == ')' || spec[k - 1] == ']'))
        return "a size belongs to one name: it stands inside, as in '(h=8 d)'";
    if (k > 0 && is_digit(spec[k - 1]) && letters) return EG_LETTERS_HINT;
    return "a size stands behind its name, as in 'h=8'";
}

const eg_parsed *eg__parse(eg_ctx *cx, const char *who, const char *spec, eg_reading_as as,
                           eg_parse_room *room)
{
    eg_parsed *p = &room->head;
    const size_t length = strlen(spec);
    if (length > 60000)
        return eg_fail_as(cx, EG_ERROR_NOTATION,
                          "%s: the string has %zu characters, 60000 is the most", who, length),
               NULL;
    bool names = as == EG_READ_AS_NAMES;
    const int begin = reading_said(spec, &names);
    *p = (eg_parsed){ .names = begin || names ? names : in_names(spec),
                      .said = begin > 0,
                      .begin = begin,
                      .bracket = -1,
                      .length = (int)length,
                      .axis = room->axis,
                      .term = room->term,
                      .item = room->item };

    uint16_t seen[64] = { 0 }; /* letter & 63 → its axis + 1 */
    int i = begin, terms = 0, items = 0, groups = 0, group = 0, group_at = 0, group_names = 0,
        bracket_at = -1, bracket_items = 0, bracket_group = 0;
    eg_parsed_term *t = &room->term[0];
    *t = (eg_parsed_term){ .at = (uint16_t)begin, .plain = true };
    for (;;) {
        const char c = spec[i];
        uint16_t axis;
        int start = i;
        if (is_start(c) && (p->names || c != '_')) {
            int n = 1, a;
            if (p->names) {
                while (is_word(spec[i + n])) n++;
                for (a = 0; a < p->axes; a++)
                    if (room->axis[a].length == n &&
                        memcmp(spec + room->axis[a].at, spec + i, (size_t)n) == 0)
                        break;
            } else
                a = seen[c & 63] ? seen[c & 63] - 1 : p->axes;
            if (a == p->axes) {
                if (a == EG_AXES_MAX - EG_RANK_MAX)
                    return eg__caret(cx, who, spec, 1, &(eg_caret){ i, n }, NULL, NULL,
                                     "the string has more than %d different names", a),
                           NULL;
                room->axis[p->axes++] = (eg_parsed_axis){
                    .at = (uint16_t)i, .length = (uint16_t)n, .term = (uint16_t)terms, .size = -1
                };
                if (!p->names) seen[c & 63] = (uint16_t)p->axes;
            }
            if (p->arrow)
                room->axis[a].outputs++;
            else
                room->axis[a].inputs++;
            axis = (uint16_t)a;
            i += n, t->names++;
            if (group) group_names++;
            int e = i;
            while (is_blank(spec[e])) e++;
            if (spec[e] == '=') { /* h=8 */
                int64_t v;
                for (e++; is_blank(spec[e]); e++) {
                }
                int digits = e;
                if (spec[e] == '>')
                    return at(cx, who, spec, e - 1, 2,
                              "'=>' has no meaning here: the arrow is '->'");
                if (!is_digit(spec[e]))
                    return eg__caret(cx, who, spec, 1, &(eg_caret){ e, 1 }, NULL, NULL,
                                     "'%.*s =' is not followed by a size", n < 40 ? n : 40,
                                     spec + start),
                           NULL;
                if (!number(spec, &e, &v))
                    return eg__caret(cx, who, spec, 1, &(eg_caret){ digits, e - digits }, NULL,
                                     NULL, "the size of '%.*s' does not fit in 64 bits",
                                     n < 40 ? n : 40, spec + start),
                           NULL;
                if (room->axis[a].size >= 0 && room->axis[a].size != v)
                    return eg__caret(
                               cx, who, spec, 2,
                               (eg_caret[]){ { room->axis[a].size_at, 1 }, { start, e - start } },
                               NULL, NULL, "the string gives index '%.*s' two sizes, %lld and %lld",
                               n < 40 ? n : 40, spec + start, (long long)room->axis[a].size,
                               (long long)v),
                           NULL;
                room->axis[a].size = v, room->axis[a].size_at = (uint16_t)start;
                i = e;
            }
            goto item;
        }
        switch (c) {
        case ' ':
        case '\t':
        case '\n':
        case '\r': i++; continue;
        case '1':
            if (!is_digit(spec[i + 1])) {
                i++, t->plain = false;
                if (group) continue; /* (h 1) is (h) */
                axis = EG_ITEM_ONE;
                goto item;
            } /* FALLTHROUGH */
        case '0':
        case '2':
        case '3':
        case '4':
        case '5':
        case '6':
        case '7':
        case '8':
        case '9': {
            int e = i;
            while (is_digit(spec[e])) e++;
            return eg__caret(cx, who, spec, 1, &(eg_caret){ i, e - i }, NULL,
                             !p->said && i > 0 && is_letter(spec[i - 1]) ? EG_LETTERS_HINT : NULL,
                             "a number stands for an axis only as 1: give the axis a name, as in "
                             "'r=%.*s'",
                             e - i < 20 ? e - i : 20, spec + i),
                   NULL;
        }
        case '.':
            if (spec[i + 1] != '.' || spec[i + 2] != '.' || spec[i + 3] == '.') {
                int e = i;
                while (spec[e] == '.') e++;
                return at(cx, who, spec, i, e - i, "an ellipsis is three dots");
            }
            if (t->dots) return at(cx, who, spec, i, 3, "a term has two ellipses, one is the most");
            t->dots = group ? 2 : 1, t->plain = false;
            if (group) group_names++;
            axis = EG_ITEM_DOTS, i += 3;
            goto item;
        case '(':
            if (group)
                return eg__caret(cx, who, spec, 2, (eg_caret[]){ { group_at, 1 }, { i, 1 } }, NULL,
                                 NULL, "a group stands inside a group"),
                       NULL;
            if (++groups > EG_RANK_MAX || ++t->slots > EG_RANK_MAX) goto many;
            group = groups, group_at = i++, group_names = 0, t->plain = false;
            continue;
        case ')':
            if (!group) return at(cx, who, spec, i, 1, "')' closes nothing");
            if (bracket_at >= 0 && bracket_group == group)
                return at(cx, who, spec, bracket_at, 1, "'[' is not closed before ')'");
            axis = EG_ITEM_ONE, i++;
            if (group_names) {
                group = 0;
                continue;
            }
            goto item; /* () is 1 */
        case '[':
            if (bracket_at >= 0)
                return eg__caret(cx, who, spec, 2, (eg_caret[]){ { bracket_at, 1 }, { i, 1 } },
                                 NULL, NULL, "brackets stand inside brackets"),
                       NULL;
            if (p->bracket < 0) p->bracket = i;
            bracket_at = i++, bracket_items = items, bracket_group = group, t->plain = false;
            continue;
        case ']':
            if (bracket_at < 0) return at(cx, who, spec, i, 1, "']' closes nothing");
            if (bracket_group != group)
                return at(cx, who, spec, group ? group_at : bracket_at, 1,
                          group ? "'(' is not closed before ']'" : "'[' is not closed before ')'");
            if (items == bracket_items)
                return at(cx, who, spec, bracket_at, i + 1 - bracket_at,
                          "brackets without an axis");
            bracket_at = -1, i++;
            continue;
        case '-':
            if (spec[i + 1] != '>')
                return at(cx, who, spec, i, 1, "'-' without '>': the arrow is '->'");
            if (p->arrow) return at(cx, who, spec, i, 2, "the string has two arrows");
            /* FALLTHROUGH */
        case ',':
        case 0:
            if (group) return at(cx, who, spec, group_at, 1, "'(' is not closed");
            if (bracket_at >= 0) return at(cx, who, spec, bracket_at, 1, "'[' is not closed");
            t->end = (uint16_t)items, t->stop = (uint16_t)i;
            if (c == 0) {
                p->terms = terms + !p->arrow, p->items = items;
                return p;
            }
            if (c == ',' && p->arrow)
                return at(cx, who, spec, i, 1, "a comma stands after '->': there is one output");
            if (c == '-') p->arrow = true;
            i += c == '-' ? 2 : 1;
            if (c == ',' && terms + 1 == EG_OPERANDS_MAX)
                return eg__caret(cx, who, spec, 1, &(eg_caret){ i, 1 }, NULL, NULL,
                                 "the string has more than %d operands", EG_OPERANDS_MAX),
                       NULL;
            t = &room->term[++terms];
            *t = (eg_parsed_term){ .begin = (uint16_t)items, .at = (uint16_t)i, .plain = true };
            groups = 0;
            continue;
        case '=':
            return eg__caret(cx, who, spec, 1, &(eg_caret){ i, 1 }, NULL,
                             size_hint(spec, i, !p->names && !p->said), "'=' follows no name"),
                   NULL;
        case ':':
            return eg__caret(cx, who, spec, 1, &(eg_caret){ i, 1 }, NULL,
                             "only 'names:' and 'letters:' have one, before all terms",
                             "character ':' has no meaning here"),
                   NULL;
        case '_':
            return at(cx, who, spec, i, 1,
                      "'_' is not an index letter (names may have it: 'names: d_k head')");
        default: return eg__caret_stray(cx, who, spec, i, "here"), NULL;
        }
    item:
        if (!group && ++t->slots > EG_RANK_MAX) goto many;
        if (t->names > EG_RANK_MAX || items == EG_ITEMS_MAX) goto many;
        room->item[items++] = (eg_letter){
            .axis = axis, .at = (uint16_t)start, .bracket = bracket_at >= 0, .group = (uint8_t)group
        };
        if (c == ')') group = 0;
        continue;
    many:
        return eg__caret(cx, who, spec, 1, &(eg_caret){ start, 1 }, NULL, NULL,
                         "a term has more than %d axes", EG_RANK_MAX),
               NULL;
    }
}
