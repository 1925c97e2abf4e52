/* expression_operands.c: parses the operands of an expression: numbers, letters, sizes |i|, reads
 * of tensors, calls of functions. */
#include "notation/expression_parser.h"
#include <math.h>
#include <string.h>

enum { NESTING = 64 };

/* Appends an occurrence of a name, for a source that has a list of them. `from` is the first byte
 * that an edit replaces: that of the name, or its bar. False after an error. */
static bool note_occurrence(eg_parser *p, int from, int at, int length, bool size, bool tensor)
{
    int *n = p->s->occurrences;
    if (*n < EG_OCCURRENCES_MAX) {
        p->s->occurrence[(*n)++] = (eg_name_occurrence){ at, length, from, p->at, size, tensor };
        return true;
    }
    eg__expression_refuse(p, at, length, NULL, "the %s is too long: it has more than %d names",
                          p->s->noun, EG_OCCURRENCES_MAX);
    return false;
}
/* Returns 1 + the byte at which the name, of which an occurrence was noted, is read first. */
static int first_occurrence(const eg_parser *p, int at, int length)
{
    const eg_name_occurrence *o = p->s->occurrence;
    while (o->length != length || memcmp(p->text + o->name, p->text + at, (size_t)length)) o++;
    return 1 + o->name;
}
/* Appends the occurrence of a name, if the source has a list, and adds letter k for it. If any name
 * is a letter, all have number 0: nodes of different names then differ in .integer, since equal
 * nodes are shared, and i > 0 is not j > 0. */
static int name_placed(eg_parser *p, int code, int k, int from, int at, int length)
{
    if (p->s->occurrence && !note_occurrence(p, from, at, length, code == EG_X_SIZE, false))
        return -1;
    if (!p->s->any_letter) return eg__node_letter(p, code, k, from);
    return eg__node_add(p, (eg_node){ .code = (uint8_t)code,
                                      .kind = EG_IS_INTEGER,
                                      .integer = first_occurrence(p, at, length),
                                      .at = (uint16_t)from,
                                      .length = (uint16_t)(p->at - from) });
}
/* Counts one level of nesting. False after an error: there are more than NESTING. */
bool eg__expression_enter(eg_parser *p, int at)
{
    if (++p->nesting <= NESTING) return true;
    eg__expression_refuse(p, at, 1, NULL, "the %s is nested too deeply, in more than %d levels",
                          p->s->noun, NESTING);
    return false;
}
/* A part of the text. A node that occurs several times in the text stores only its first
 * occurrence. */
typedef struct part_of_text {
    int at, length;
} part_of_text;
/* Parses values that commas separate, from the opening bracket to `close`, sets in[] to them and
 * where[] (if not NULL) to their bytes in the text. Returns how many, at most EG_RANK_MAX; −1 after
 * an error. */
static int value_list(eg_parser *p, char close, int *in, part_of_text *where)
{
    const int open = p->at++;
    int n = 0;
    if (!eg__expression_enter(p, open)) return -1;
    eg__expression_blanks(p);
    if (p->text[p->at] == close) return p->at++, p->nesting--, 0;
    for (;;) {
        eg__expression_blanks(p);
        const int at = p->at, k = eg__parse_choice(p);
        int end = p->at;
        if (k < 0) return -1;
        while (p->text[end - 1] == ' ') end--;
        if (n == EG_RANK_MAX)
            return eg__expression_refuse(p, at, 1, NULL, "one bracket has more than %d values",
                                         EG_RANK_MAX);
        if (where) where[n] = (part_of_text){ at, end - at };
        in[n++] = k;
        eg__expression_blanks(p);
        const char c = p->text[p->at];
        if (c == close) return p->at++, p->nesting--, n;
        if (c != ',') return eg__expression_unexpected(p, close, open);
        p->at++;
    }
}
/* Parses and checks the arguments of function f, whose name is at byte `at`, and adds the call. */
static int call_function(eg_parser *p, const eg_function_entry *f, int at, int length)
{
    part_of_text where[EG_RANK_MAX];
    int in[EG_RANK_MAX];
    const int n = value_list(p, ')', in, where);
    if (n < 0) return -1;
    if (n != f->arity)
        return eg__expression_refuse(p, at, p->at - at, NULL,
                                     "%s takes %d number%s, but %d %s given", f->name, f->arity,
                                     f->arity == 1 ? "" : "s", n, n == 1 ? "was" : "were");
    for (int k = 0; k < n; k++)
        if (eg__node_kind(p, in[k]) == EG_IS_CONDITION)
            return eg__expression_refuse(p, where[k].at, where[k].length, NULL,
                                         "%s takes numbers, and this is a condition", f->name);
    if (p->s->predicate && !f->integer)
        return eg__expression_refuse(p, at, length, NULL,
                                     "%s makes a float, and a predicate consists of integers and "
                                     "booleans",
                                     f->name);
    if (f->code == EG_X_CLIP && eg__node_is_constant(p, in[1]) && eg__node_is_constant(p, in[2]) &&
        eg__node_constant(p, in[1]) > eg__node_constant(p, in[2]))
        return eg__expression_refuse(p, at, p->at - at, NULL,
                                     "clip's low limit %g is above its high limit %g",
                                     eg__node_constant(p, in[1]), eg__node_constant(p, in[2]));
    return eg__node_numbers(p, f->code, f->integer, at, n, in);
}
/* Records that a tensor is named without brackets; the hint shows as many as its axes need. */
static int indices_missing(eg_parser *p, const eg_readable *x, int at, int length)
{
    char hint[100];
    int n = snprintf(hint, sizeof hint, "write %.40s[", x->name);
    for (int r = 0; r < x->rank && r < 8; r++)
        n += snprintf(hint + n, sizeof hint - (size_t)n, "%s…", r ? ", " : "");
    snprintf(hint + n, sizeof hint - (size_t)n, "]");
    return eg__expression_refuse(p, at, length, hint,
                                 "'%.40s' is a tensor, and its indices are missing", x->name);
}
/* Parses the indices after the name of a tensor of .with, and adds the read. Without brackets the
 * indices are all letters in order. */
static int read_tensor(eg_parser *p, int tensor, int at)
{
    const eg_readable *x = &p->s->readable[tensor];
    part_of_text where[EG_RANK_MAX];
    int in[EG_RANK_MAX], n = 0;
    const int length = p->at - at;
    eg__expression_blanks(p);
    if (p->text[p->at] != '[') {
        p->at = at + length;
        if (!p->s->all_letters) return indices_missing(p, x, at, length);
        if (x->rank != p->s->letters)
            return eg__expression_refuse(
                p, at, length, x->rank ? "write its indices in brackets" : "write [] after it",
                "'%.40s' has %d ax%s, but without brackets it is read at all %d letter%s", x->name,
                x->rank, x->rank == 1 ? "is" : "es", p->s->letters, p->s->letters == 1 ? "" : "s");
        for (; n < x->rank; n++)
            if ((in[n] = eg__node_letter(p, EG_X_LETTER, n, at)) < 0) return -1;
        return eg__node_read(p, tensor, at, n, in, true);
    }
    if ((n = value_list(p, ']', in, where)) < 0) return -1;
    if (n != x->rank)
        return eg__expression_refuse(
            p, at, p->at - at, NULL, "'%.40s' has %d ax%s, but its brackets have %d %s", x->name,
            x->rank, x->rank == 1 ? "is" : "es", n, n == 1 ? "index" : "indices");
    for (int k = 0; k < n; k++)
        if (!eg__own_letter_sized(p, where[k].at, where[k].length, x, k)) return -1;
    for (int k = 0; k < n; k++)
        if (eg__node_kind(p, in[k]) != EG_IS_INTEGER)
            return eg__expression_refuse(
                p, where[k].at, where[k].length, NULL, "an index is an integer, but this is a %s",
                eg__node_kind(p, in[k]) == EG_IS_FLOAT ? "float" : "condition");
    return eg__node_read(p, tensor, at, n, in, false);
}
/* Parses the indices in brackets of a tensor of which only the name is known: it has a number that
 * no known tensor has, and .integer distinguishes it from others, as in name_placed. */
static int tensor_placed(eg_parser *p, int at, int length)
{
    int in[EG_RANK_MAX];
    if (!note_occurrence(p, at, at, length, false, true)) return -1;
    eg__expression_blanks(p);
    const int n = value_list(p, ']', in, NULL);
    if (n < 0) return -1;
    eg_node read = { .code = EG_X_READ,
                     .kind = EG_IS_INTEGER,
                     .count = (uint8_t)n,
                     .tensor = EG_TENSORS_MAX,
                     .integer = first_occurrence(p, at, length),
                     .at = (uint16_t)at,
                     .length = (uint16_t)(p->at - at) };
    for (int k = 0; k < n; k++) read.in[k] = (uint8_t)in[k];
    return eg__node_add(p, read);
}
/* Parses a name: a letter, a reduction, a tensor of .with, the score, or a function. A tensor may
 * be called as a reduction is, since no bracket of a call follows a tensor. */
static int name_read(eg_parser *p)
{
    const int at = p->at, length = eg__name_length(p);
    p->at += length;
    eg__expression_blanks(p);
    const bool called = p->text[p->at] == '(', indexed = p->text[p->at] == '[';
    const int reduction = eg__reduction_called(p->text + at, length);
    if (reduction >= 0 && called) return eg__parse_reduction(p, reduction, at);
    p->at = at + length;
    const int own = eg__own_letter_called(p, p->text + at, length);
    if (own >= 0) return eg__node_integer(p, at, p->own[own].position);
    const int letter = eg__letter_called(p, p->text + at, length);
    if (letter >= 0) return name_placed(p, EG_X_LETTER, letter, at, at, length);
    for (int k = 0; k < p->s->given; k++) {
        if (!eg__name_is(p->s->readable[k].name, p->text + at, length)) continue;
        if (p->s->occurrence && !note_occurrence(p, at, at, length, false, true)) return -1;
        return read_tensor(p, k, at);
    }
    if (p->s->score && eg__name_is("score", p->text + at, length))
        return eg__node_add(p, (eg_node){ .code = EG_X_SCORE,
                                          .kind = EG_IS_FLOAT,
                                          .at = (uint16_t)at,
                                          .length = (uint16_t)length });
    const eg_function_entry *f = eg__function_called(p->text + at, length);
    eg__expression_blanks(p);
    if (!(f && called)) {
        const int behind = p->at;
        p->at = at + length;
        if (indexed && p->s->any_tensor) return tensor_placed(p, at, length);
        if (!indexed && p->s->any_letter) return name_placed(p, EG_X_LETTER, 0, at, at, length);
        p->at = behind;
    }
    if (reduction >= 0)
        return eg__expression_refuse(p, at, length, NULL,
                                     "%s is a function: a letter of its own follows in ( ), as in "
                                     "%s(k=8, …)",
                                     eg__reduction_name(reduction), eg__reduction_name(reduction));
    if (!f) return eg__name_unknown(p, at, length);
    if (!called)
        return eg__expression_refuse(p, at, length, NULL,
                                     "%s is a function: its numbers follow in ( )", f->name);
    return call_function(p, f, at, length);
}
/* Returns the value of a decimal number, whatever the locale is. It is computed in long double, so
 * that rounding of digits and of the power of ten does not affect the result. */
static double decimal(const char *s, int length)
{
    long double value = 0, power = 1;
    int64_t exponent = 0, given = 0;
    bool fraction = false, minus = false;
    int k = 0;
    for (; k < length && (s[k] | 32) != 'e'; k++) {
        if (s[k] == '.')
            fraction = true;
        else {
            value = value * 10 + (s[k] - '0');
            exponent -= fraction;
        }
    }
    for (k++; k < length; k++)
        if (s[k] == '-' || s[k] == '+')
            minus = s[k] == '-';
        else if (given < 100000)
            given = given * 10 + (s[k] - '0');
    exponent += minus ? -given : given;
    for (int64_t n = exponent < 0 ? -exponent : exponent; n > 0 && power < 1e4000L; n--)
        power *= 10;
    return (double)(exponent < 0 ? value / power : value * power);
}
/* Records that a name follows the number at `at`. The hint guesses why: a suffix or a prefix of C,
 * as in 0.5f and 0x10, or a product without its sign. */
static int name_after_number(eg_parser *p, int at)
{
    const char *s = p->text;
    const int to = p->at, length = eg__name_length(p);
    const bool suffix = length <= 3 && (int)strspn(s + to, "fFlLuU") >= length,
               prefix =
                   to == at + 1 && s[at] == '0' && strchr("xXbBoO", s[to]) && eg__digit(s[to + 1]);
    return eg__expression_refuse(p, to, suffix || prefix ? length : 1,
                                 suffix   ? "a number has no suffix"
                                 : prefix ? "numbers are decimal"
                                          : "a product is written with *, as in 2 * i",
                                 "a name follows a number");
}
/* Parses a number: a float if it has a point or an exponent, else an integer. */
static int number_read(eg_parser *p)
{
    const int at = p->at;
    const char *s = p->text;
    int to = at;
    while (eg__digit(s[to])) to++;
    bool real = s[to] == '.';
    if (real) to++;
    while (real && eg__digit(s[to])) to++;
    if ((s[to] | 32) == 'e') {
        const int sign = s[to + 1] == '-' || s[to + 1] == '+';
        if (eg__digit(s[to + 1 + sign])) {
            real = true;
            for (to += 1 + sign; eg__digit(s[to]);) to++;
        }
    }
    p->at = to;
    if (eg__name_starts(s[to])) return name_after_number(p, at);
    if (real) {
        const double value = decimal(s + at, to - at);
        if (p->s->predicate)
            return eg__expression_refuse(p, at, to - at, NULL,
                                         "a predicate consists of integers and booleans, not of "
                                         "floats");
        if (!isfinite(value))
            return eg__expression_refuse(p, at, to - at, NULL,
                                         "the number is too large for a float");
        return eg__node_real(p, at, value);
    }
    int64_t v = 0;
    for (int k = at; k < to; k++)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, (int64_t)(s[k] - '0'), &v))
            return eg__expression_refuse(p, at, to - at, NULL,
                                         "the number does not fit in 64 bits");
    return eg__node_integer(p, at, v);
}
/* Parses |i|, the size of an index. If there is anything else between the bars, the message
 * suggests abs(…). */
static int size_read(eg_parser *p)
{
    const int at = p->at++;
    char hint[80] = "";
    eg__expression_blanks(p);
    const int from = p->at, length = eg__name_starts(p->text[from]) ? eg__name_length(p) : 0;
    p->at += length;
    const int end = p->at;
    eg__expression_blanks(p);
    const char *close = strchr(p->text + at + 1, '|');
    bool number = p->s->score && eg__name_is("score", p->text + from, length);
    for (int k = 0; k < p->s->given; k++)
        number |= eg__name_is(p->s->readable[k].name, p->text + from, length);
    if (close && close > p->text + from &&
        (!length || number || strchr("+-*/%", p->text[p->at]) || p->text[p->at] == '[') &&
        p->text[p->at])
        snprintf(hint, sizeof hint, "the absolute value is abs(%.*s)",
                 eg__limited((int)(close - (p->text + at + 1))), p->text + at + 1);
    if (!length || hint[0])
        return eg__expression_refuse(p, length ? p->at : from, 1, hint[0] ? hint : NULL,
                                     "a size has exactly one index between its bars, as in |i|");
    const int letter = eg__letter_called(p, p->text + from, length),
              own = eg__own_letter_called(p, p->text + from, length);
    if (own >= 0 && p->own[own].size < 0)
        return eg__expression_refuse(p, from, length, NULL,
                                     "the size of '%.*s' is not known here; write it beside the "
                                     "letter",
                                     eg__limited(length), p->text + from);
    if (letter < 0 && own < 0 && !p->s->any_letter) return eg__name_unknown(p, from, length);
    if (p->text[p->at] != '|')
        return eg__expression_refuse(p, at, 1, NULL, "the bar of a size is not closed, as in |i|");
    p->at = end;
    eg__expression_blanks(p);
    p->at++;
    if (own >= 0) return eg__node_integer(p, at, p->own[own].size);
    return name_placed(p, EG_X_SIZE, letter < 0 ? 0 : letter, at, from, length);
}
/* Parses a number, a name, a size, or an expression in parentheses. */
int eg__parse_operand(eg_parser *p)
{
    eg__expression_blanks(p);
    const int at = p->at;
    const char c = p->text[at];
    if (eg__digit(c) || (c == '.' && eg__digit(p->text[at + 1]))) return number_read(p);
    if (eg__name_starts(c)) return name_read(p);
    if (c == '|') return size_read(p);
    if (c == '(') {
        p->at++;
        if (!eg__expression_enter(p, at)) return -1;
        const int k = eg__parse_choice(p);
        p->nesting--;
        if (k < 0) return -1;
        eg__expression_blanks(p);
        if (p->text[p->at] != ')') return eg__expression_unexpected(p, ')', at);
        p->at++;
        return k;
    }
    if (c == 0 && strspn(p->text, " \t\n\v\f\r") < (size_t)at)
        return eg__expression_refuse(
            p, at, 1, NULL, "the %s ends where a number or an index is expected", p->s->noun);
    if (c == 0) return eg__expression_refuse(p, at, 1, NULL, "the %s is empty", p->s->noun);
    if (!strchr("+-*/%<>=!&?:,)[]", c)) return eg__expression_stray(p);
    return eg__expression_refuse(p, at, 1, eg__foreign_operator(p->text, at),
                                 "a number, an index or '(' is expected here");
}
