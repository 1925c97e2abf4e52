/* expression.c: parses predicates, scores and formulas of eg_expr by recursive descent.
 *
 *   choice     = truth [ "?" choice ":" choice ]
 *   truth      = both { "|" both }                                    also ||
 *   both       = denied { "&" denied }                                also &&
 *   denied     = "!" denied | comparison
 *   comparison = sum { ("==" | "!=" | "<" | "<=" | ">" | ">=") sum }  a < b <= c is a < b & b <= c
 *   sum        = product { ("+" | "-") product }
 *   product    = signed { ("*" | "/" | "%") signed }
 *   signed     = { "-" | "+" } operand
 *   operand    = number | letter | "|" letter "|" | "(" choice ")" | "score" | tensor
 *              | tensor "[" choice { "," choice } "]" | function "(" choice { "," choice } ")"
 *
 * Whole numbers have x / y = ⌊x / y⌋ and x % y = x − |y| ⌊x / |y|⌋ ≥ 0; both are 0 if y is 0. They
 * saturate at ±(2^63 − 1). If one operand is a float, the other is converted to float. */
#include "notation/expression_parser.h"
#include <math.h>
#include <string.h>

enum { NESTING = 64 };

static bool expression_starts(char c) { return (unsigned)((c | 32) - 'a') < 26 || c == '_'; }
static bool expression_digit(char c) { return (unsigned)(c - '0') < 10; }
static void expression_blanks(eg_parser *p)
{
    while (p->text[p->at] == ' ' || (p->text[p->at] >= '\t' && p->text[p->at] <= '\r')) p->at++;
}
int eg__expression_refuse(eg_parser *p, int at, int length, const char *hint, const char *format,
                          ...)
{
    char sentence[400];
    va_list list;
    va_start(list, format);
    vsnprintf(sentence, sizeof sentence, format, list);
    va_end(list);
    eg__caret(p->cx, p->s->who, p->text, 1, &(eg_caret){ at, length }, NULL, hint, "%s", sentence);
    return -1;
}

/* -- functions -------------------------------------------------------------------------------- */
typedef struct function {
    const char *name;
    uint8_t code, arity;
    bool whole; /* the result is a whole number if all operands are */
} function;
static const function functions[] = {
#define LIST(CODE, NAME, ...) { NAME, EG_X_##CODE, 1, EG_X_##CODE == EG_X_ABS },
    EG_FUNCTIONS_1(LIST)
#undef LIST
#define LIST(CODE, NAME, ...) { NAME, EG_X_##CODE, 2, EG_X_##CODE != EG_X_POW },
        EG_FUNCTIONS_2(LIST)
#undef LIST
            { "clip", EG_X_CLIP, 3, true },
};
static bool same_word(const char *word, const char *text, int length)
{
    return (int)strlen(word) == length && memcmp(word, text, (size_t)length) == 0;
}
static const function *function_called(const char *text, int length)
{
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (length && same_word(functions[k].name, text, length)) return &functions[k];
    return NULL;
}

/* -- operands --------------------------------------------------------------------------------- */
static int choice(eg_parser *);

/* Returns the edit distance of two words (insertions, deletions and replacements); 40 if one of
 * them is too long. */
static int edits(const char *a, int n, const char *b)
{
    const int m = (int)strlen(b);
    int row[40];
    if (n >= 40 || m >= 40) return 40;
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int up = row[j], side = row[j - 1], change = corner + (a[i - 1] != b[j - 1]);
            row[j] = up < side ? up + 1 : side + 1;
            if (change < row[j]) row[j] = change;
            corner = up;
        }
    }
    return row[m];
}
/* Writes "is 'tanh' meant?" with the known name that is nearest to the word to hint; "" if none is
 * near. Returns hint. */
static const char *nearest(const eg_parser *p, const char *word, int length, char *hint,
                           size_t room)
{
    int best = length < 3 ? 0 : length < 4 ? 2 : 3;
    const char *found = NULL;
    hint[0] = 0;
    for (int k = 0; k < p->s->given; k++)
        if (edits(word, length, p->s->readable[k].name) < best)
            best = edits(word, length, found = p->s->readable[k].name);
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (functions[k].name[0] && (functions[k].whole || !p->s->predicate) &&
            edits(word, length, functions[k].name) < best)
            best = edits(word, length, found = functions[k].name);
    if (p->s->score && edits(word, length, "score") < best) found = "score";
    if (found) snprintf(hint, room, "is '%s' meant?", found);
    return hint;
}
/* Records that a name is not known, with the names that are, and returns −1. */
static int unknown_name(eg_parser *p, int at, int length)
{
    char known[200] = "", hint[64];
    size_t used = 0;
    const int all = p->s->letters + p->s->given;
    for (int k = 0; k < all && used < sizeof known; k++) {
        const bool letter = k < p->s->letters;
        const char *name = letter ? p->s->letter[k]->text : p->s->readable[k - p->s->letters].name;
        used += (size_t)snprintf(known + used, sizeof known - used, "%s'%.*s'", k ? ", " : "",
                                 eg__limited(letter ? p->s->letter[k]->length : (int)strlen(name)),
                                 name);
    }
    nearest(p, p->text + at, length, hint, sizeof hint);
    int behind = at + length;
    while (p->text[behind] == ' ') behind++;
    const bool read = p->text[behind] == '[';
    return eg__expression_refuse(p, at, length,
                                 hint[0] ? hint
                                 : read  ? "give the tensor in .with"
                                         : NULL,
                                 "the %s's %s '%.*s' is not %s%s", p->s->noun,
                                 read          ? "tensor"
                                 : p->s->given ? "name"
                                               : "index",
                                 eg__limited(length), p->text + at,
                                 all ? "one of " : "in the string", known);
}
static int word_length(const eg_parser *p)
{
    int n = 0;
    while (expression_starts(p->text[p->at + n]) || expression_digit(p->text[p->at + n])) n++;
    return n;
}
static int letter_called(const eg_parser *p, const char *text, int length)
{
    for (int k = 0; k < p->s->letters; k++)
        if (p->s->letter[k]->length == length &&
            memcmp(p->s->letter[k]->text, text, (size_t)length) == 0)
            return k;
    return -1;
}
/* Notes the place of a name, for a source that asks for places. `from` is the first byte to
 * replace: that of the name, or its bar. False after an error. */
static bool note_place(eg_parser *p, int from, int at, int length, bool size, bool tensor)
{
    int *n = p->s->places;
    if (*n < EG_PLACES_MAX) {
        p->s->place[(*n)++] = (eg_name_place){ at, length, from, p->at, size, tensor };
        return true;
    }
    eg__expression_refuse(p, at, length, NULL, "the %s is too long", p->s->noun);
    return false;
}
/* Notes the place of a name, if places are asked for, and adds letter k for it. */
static int name_placed(eg_parser *p, int code, int k, int from, int at, int length)
{
    if (p->s->place && !note_place(p, from, at, length, code == EG_X_SIZE, false)) return -1;
    return eg__node_letter(p, code, k, from);
}
/* Counts one level of nesting; false after an error: there are more than NESTING. */
static bool expression_enter(eg_parser *p, int at)
{
    if (++p->nesting <= NESTING) return true;
    eg__expression_refuse(p, at, 1, NULL, "the %s is nested too deeply", p->s->noun);
    return false;
}
/* Parses values that commas separate, from the opening bracket to `close`. Returns how many; −1
 * after an error. */
static int value_list(eg_parser *p, char close, int most, int *in)
{
    const int open = p->at++;
    int n = 0;
    if (!expression_enter(p, open)) return -1;
    expression_blanks(p);
    if (p->text[p->at] == close) return p->at++, p->nesting--, 0;
    for (;;) {
        const int at = p->at, k = choice(p);
        if (k < 0) return -1;
        if (n == most)
            return eg__expression_refuse(p, at, 1, NULL, "more than %d values stand in one bracket",
                                         most);
        in[n++] = k;
        expression_blanks(p);
        const char c = p->text[p->at];
        if (c == close) return p->at++, p->nesting--, n;
        if (c != ',')
            return eg__expression_refuse(p, open, 1, NULL, "'%c' is not closed", p->text[open]);
        p->at++;
    }
}
/* Parses and checks the arguments of function f, whose name stands at `at`, and adds the call. */
static int call_function(eg_parser *p, const function *f, int at, int length)
{
    int in[EG_READ_MAX];
    const int n = value_list(p, ')', EG_READ_MAX, in);
    if (n < 0) return -1;
    if (n != f->arity)
        return eg__expression_refuse(p, at, p->at - at, NULL,
                                     "%s takes %d number%s, and here are %d", f->name, f->arity,
                                     f->arity == 1 ? "" : "s", n);
    for (int k = 0; k < n; k++)
        if (eg__node_kind(p, in[k]) == EG_IS_TRUTH)
            return eg__expression_refuse(p, p->node[in[k]].at, p->node[in[k]].length, NULL,
                                         "%s is of numbers, and this is a truth", f->name);
    if (p->s->predicate && !f->whole)
        return eg__expression_refuse(
            p, at, length, NULL,
            "%s makes a float, and a predicate is made of whole numbers and "
            "truths",
            f->name);
    if (f->code == EG_X_CLIP && eg__node_is_constant(p, in[1]) && eg__node_is_constant(p, in[2]) &&
        eg__node_constant(p, in[1]) > eg__node_constant(p, in[2]))
        return eg__expression_refuse(p, at, p->at - at, NULL,
                                     "clip's low limit %g is above its high limit %g",
                                     eg__node_constant(p, in[1]), eg__node_constant(p, in[2]));
    return eg__node_numbers(p, f->code, f->whole, at, n, in);
}
/* Parses what follows the name of a tensor of .with, its indices, and adds the read. Without
 * brackets the indices are all letters in order. */
static int read_tensor(eg_parser *p, int tensor, int at)
{
    const eg_readable *x = &p->s->readable[tensor];
    int in[EG_READ_MAX], n = 0;
    const int length = p->at - at;
    if (x->rank > EG_READ_MAX)
        return eg__expression_refuse(p, at, length, NULL,
                                     "'%s' has %d axes, and an expression reads at most %d",
                                     x->name, x->rank, EG_READ_MAX);
    expression_blanks(p);
    if (p->text[p->at] != '[') {
        p->at = at + length;
        if (!p->s->whole)
            return eg__expression_refuse(p, at, length, "as in r[h, i - j]",
                                         "'%s' is a tensor, and its indices are missing", x->name);
        if (x->rank != p->s->letters)
            return eg__expression_refuse(
                p, at, length, "name those that it has in brackets",
                "'%s' has %d ax%s, but without brackets it has all %d letters", x->name, x->rank,
                x->rank == 1 ? "is" : "es", p->s->letters);
        for (; n < x->rank; n++)
            if ((in[n] = eg__node_letter(p, EG_X_LETTER, n, at)) < 0) return -1;
        return eg__node_read(p, tensor, at, n, in, true);
    }
    if ((n = value_list(p, ']', EG_READ_MAX, in)) < 0) return -1;
    if (n != x->rank)
        return eg__expression_refuse(
            p, at, p->at - at, NULL, "'%s' has %d ax%s, but %d %s in its brackets", x->name,
            x->rank, x->rank == 1 ? "is" : "es", n, n == 1 ? "index stands" : "indices stand");
    for (int k = 0; k < n; k++)
        if (eg__node_kind(p, in[k]) != EG_IS_WHOLE)
            return eg__expression_refuse(p, p->node[in[k]].at, p->node[in[k]].length, NULL,
                                         "an index is a whole number, and this is a %s",
                                         eg__node_kind(p, in[k]) == EG_IS_FLOAT ? "float"
                                                                                : "truth");
    return eg__node_read(p, tensor, at, n, in, false);
}
/* Parses the brackets of a tensor that only its name is known of. */
static int tensor_placed(eg_parser *p, int at, int length)
{
    /* beyond those that are known; tells most tensors apart */
    const int number = EG_TENSORS_MAX + *p->s->places % EG_TENSORS_MAX;
    int in[EG_READ_MAX];
    if (!note_place(p, at, at, length, false, true)) return -1;
    expression_blanks(p);
    const int n = value_list(p, ']', EG_READ_MAX, in);
    if (n < 0) return -1;
    eg_node read = { .code = EG_X_READ,
                     .kind = EG_IS_WHOLE,
                     .count = (uint8_t)n,
                     .tensor = (uint8_t)number,
                     .at = (uint16_t)at,
                     .length = (uint16_t)(p->at - at) };
    for (int k = 0; k < n; k++) read.in[k] = (uint8_t)in[k];
    return eg__node_add(p, read);
}
/* True if node k is a truth, or an element of a tensor that only its name is known of. */
static bool may_be_truth(const eg_parser *p, int k)
{
    return eg__node_kind(p, k) == EG_IS_TRUTH ||
           (p->node[k].code == EG_X_READ && p->node[k].tensor >= EG_TENSORS_MAX);
}
/* Parses a name: a letter, a tensor of .with, the score, or a function. */
static int name_read(eg_parser *p)
{
    const int at = p->at, length = word_length(p);
    p->at += length;
    const int letter = letter_called(p, p->text + at, length);
    if (letter >= 0) return name_placed(p, EG_X_LETTER, letter, at, at, length);
    for (int k = 0; k < p->s->given; k++) {
        if (!same_word(p->s->readable[k].name, p->text + at, length)) continue;
        if (p->s->place && !note_place(p, at, at, length, false, true)) return -1;
        return read_tensor(p, k, at);
    }
    if (p->s->score && same_word("score", p->text + at, length))
        return eg__node_add(p, (eg_node){ .code = EG_X_SCORE,
                                          .kind = EG_IS_FLOAT,
                                          .at = (uint16_t)at,
                                          .length = (uint16_t)length });
    const function *f = function_called(p->text + at, length);
    expression_blanks(p);
    const bool called = p->text[p->at] == '(', indexed = p->text[p->at] == '[';
    if (!(f && called)) {
        const int behind = p->at;
        p->at = at + length;
        if (indexed && p->s->any_tensor) return tensor_placed(p, at, length);
        if (!indexed && p->s->any_letter) return name_placed(p, EG_X_LETTER, 0, at, at, length);
        p->at = behind;
    }
    if (!f) return unknown_name(p, at, length);
    if (!called)
        return eg__expression_refuse(p, at, length, NULL,
                                     "%s is a function: its numbers follow in ( )", f->name);
    return call_function(p, f, at, length);
}
/* Returns the value of a decimal number, independently of the locale. The arithmetic is in long
 * double, so that rounding in the digits and the power of ten does not reach the result. */
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
/* Parses a number: a float if it has a point or an exponent, else a whole number. */
static int number_read(eg_parser *p)
{
    const int at = p->at;
    const char *s = p->text;
    int to = at;
    while (expression_digit(s[to])) to++;
    bool real = s[to] == '.';
    if (real) to++;
    while (real && expression_digit(s[to])) to++;
    if ((s[to] | 32) == 'e') {
        const int sign = s[to + 1] == '-' || s[to + 1] == '+';
        if (expression_digit(s[to + 1 + sign])) {
            real = true;
            for (to += 1 + sign; expression_digit(s[to]);) to++;
        }
    }
    p->at = to;
    if (expression_starts(s[to]))
        return eg__expression_refuse(p, to, 1, "a product is written with *, as in 2 * i",
                                     "a name follows a number");
    if (real) {
        const double value = decimal(s + at, to - at);
        if (p->s->predicate)
            return eg__expression_refuse(p, at, to - at, NULL,
                                         "a predicate is made of whole numbers and truths, not of "
                                         "floats");
        if (!isfinite(value))
            return eg__expression_refuse(p, at, to - at, NULL, "the number is no finite float");
        return eg__node_real(p, at, value);
    }
    int64_t v = 0;
    for (int k = at; k < to; k++)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, (int64_t)(s[k] - '0'), &v))
            return eg__expression_refuse(p, at, to - at, NULL,
                                         "the number does not fit in 64 bits");
    return eg__node_whole(p, at, v);
}
/* Parses |i|, the size of an index. For anything else between bars the error proposes abs(…). */
static int size_read(eg_parser *p)
{
    const int at = p->at++;
    char hint[80] = "";
    expression_blanks(p);
    const int from = p->at, length = expression_starts(p->text[from]) ? word_length(p) : 0;
    p->at += length;
    const int end = p->at;
    expression_blanks(p);
    const char *close = strchr(p->text + at + 1, '|');
    if (close && (!length || strchr("+-*/%", p->text[p->at]) || p->text[p->at] == '[') &&
        p->text[p->at])
        snprintf(hint, sizeof hint, "the absolute value is abs(%.*s)",
                 eg__limited((int)(close - (p->text + at + 1))), p->text + at + 1);
    if (!length || hint[0])
        return eg__expression_refuse(p, length ? p->at : from, 1, hint[0] ? hint : NULL,
                                     "between the bars of a size stands one index, as in |i|");
    const int letter = letter_called(p, p->text + from, length);
    if (letter < 0 && !p->s->any_letter) return unknown_name(p, from, length);
    if (p->text[p->at] != '|')
        return eg__expression_refuse(p, at, 1, NULL, "the bar of a size is not closed, as in |i|");
    p->at = end;
    expression_blanks(p);
    p->at++;
    return name_placed(p, EG_X_SIZE, letter < 0 ? 0 : letter, at, from, length);
}
/* Parses a number, a name, a size, or a choice in parentheses. */
static int operand(eg_parser *p)
{
    expression_blanks(p);
    const int at = p->at;
    const char c = p->text[at];
    if (expression_digit(c) || (c == '.' && expression_digit(p->text[at + 1])))
        return number_read(p);
    if (expression_starts(c)) return name_read(p);
    if (c == '|') return size_read(p);
    if (c == '(') {
        p->at++;
        if (!expression_enter(p, at)) return -1;
        const int k = choice(p);
        p->nesting--;
        if (k < 0) return -1;
        expression_blanks(p);
        if (p->text[p->at] != ')')
            return eg__expression_refuse(p, at, 1, NULL, "'(' is not closed");
        p->at++;
        return k;
    }
    if (c == 0 && strspn(p->text, " \t\n\v\f\r") < (size_t)at)
        return eg__expression_refuse(
            p, at, 1, NULL, "the %s ends where a number or an index is expected", p->s->noun);
    if (c == 0) return eg__expression_refuse(p, at, 1, NULL, "the %s is empty", p->s->noun);
    return eg__expression_refuse(p, at, 1, NULL, "a number, an index or '(' is expected here");
}

/* -- operators -------------------------------------------------------------------------------- */
/* Parses an operand with any number of signs in front. */
static int signs(eg_parser *p)
{
    expression_blanks(p);
    const int at = p->at;
    bool minus = false, any = false;
    for (; p->text[p->at] == '-' || p->text[p->at] == '+'; expression_blanks(p))
        minus ^= p->text[p->at++] == '-', any = true;
    const int k = operand(p);
    if (k < 0 || !any) return k;
    if (eg__node_kind(p, k) == EG_IS_TRUTH)
        return eg__expression_refuse(p, at, 1, NULL, "a sign stands before a truth");
    return minus ? eg__node_1(p, EG_X_NEG, at, k) : k;
}
static int code_of(bool high, char c)
{
    if (high) return c == '*' ? EG_X_MUL : c == '/' ? EG_X_DIV : c == '%' ? EG_X_MOD : -1;
    return c == '+' ? EG_X_ADD : c == '-' ? EG_X_SUB : -1;
}
/* Parses a product (high) or a sum, from left to right. */
static int arithmetic(eg_parser *p, bool high)
{
    expression_blanks(p);
    const int from = p->at;
    int k = high ? signs(p) : arithmetic(p, true);
    for (;;) {
        if (k < 0) return k;
        expression_blanks(p);
        const int at = p->at, code = code_of(high, p->text[at]);
        if (code < 0) return k;
        p->at++;
        if (eg__node_kind(p, k) == EG_IS_TRUTH)
            return eg__expression_refuse(p, at, 1, NULL, "arithmetic on a truth");
        const int other = high ? signs(p) : arithmetic(p, true);
        if (other < 0) return other;
        if (eg__node_kind(p, other) == EG_IS_TRUTH)
            return eg__expression_refuse(p, at, 1, NULL, "arithmetic on a truth");
        const eg_node *a = &p->node[k], *b = &p->node[other];
        if (b->code == EG_X_WHOLE && a->kind == EG_IS_WHOLE) {
            int64_t v;
            if (b->whole == 0 && (code == EG_X_DIV || code == EG_X_MOD))
                return eg__expression_refuse(p, at, p->at - at, NULL, "division by zero");
            if (a->code == EG_X_WHOLE &&
                (code == EG_X_ADD ? __builtin_add_overflow(a->whole, b->whole, &v)
                 : code == EG_X_SUB
                     ? __builtin_sub_overflow(a->whole, b->whole, &v)
                     : code == EG_X_MUL && __builtin_mul_overflow(a->whole, b->whole, &v)))
                return eg__expression_refuse(p, at, 1, NULL, "the value does not fit in 64 bits");
        }
        int in[2] = { k, other };
        k = eg__node_numbers(p, code, true, from, 2, in);
    }
}
/* Returns the code of the comparison that stands here, with its length; −1 if there is none. */
static int comparison_at(const eg_parser *p, int *length)
{
    const char *s = p->text + p->at;
    *length = s[0] && s[1] == '=' ? 2 : 1;
    if (*length == 2)
        return s[0] == '='   ? EG_X_EQ
               : s[0] == '!' ? EG_X_NE
               : s[0] == '<' ? EG_X_LE
               : s[0] == '>' ? EG_X_GE
                             : -1;
    return s[0] == '<' ? EG_X_LT : s[0] == '>' ? EG_X_GT : -1;
}
/* Parses comparisons, which chain: a < b < c is a < b & b < c. */
static int comparison(eg_parser *p)
{
    expression_blanks(p);
    const int from = p->at;
    int left = arithmetic(p, false), truth = -1, length;
    if (left < 0) return left;
    for (;;) {
        expression_blanks(p);
        const int at = p->at, code = comparison_at(p, &length);
        if (code < 0) {
            if (p->text[at] == '=')
                return eg__expression_refuse(p, at, 1, NULL, "equality is written ==");
            return truth >= 0 ? truth : left;
        }
        if (eg__node_kind(p, left) == EG_IS_TRUTH)
            return eg__expression_refuse(p, at, length, NULL, "a truth is compared");
        p->at += length;
        const int right = arithmetic(p, false);
        if (right < 0) return right;
        if (eg__node_kind(p, right) == EG_IS_TRUTH)
            return eg__expression_refuse(p, at, length, NULL, "a truth is compared");
        int a = left, b = right;
        if (eg__node_kind(p, a) != eg__node_kind(p, b))
            a = eg__node_float(p, from, a), b = eg__node_float(p, from, b);
        const int is = a < 0 || b < 0 ? -1 : eg__node_2(p, code, EG_IS_TRUTH, from, a, b);
        if (is < 0) return is;
        truth = truth < 0 ? is : eg__node_2(p, EG_X_AND, EG_IS_TRUTH, from, truth, is);
        if (truth < 0) return truth;
        left = right;
    }
}
/* Parses a comparison with any number of '!' in front. */
static int denied(eg_parser *p)
{
    expression_blanks(p);
    const int at = p->at;
    bool deny = false, any = false;
    for (; p->text[p->at] == '!' && p->text[p->at + 1] != '='; expression_blanks(p))
        p->at++, deny = !deny, any = true;
    const int k = comparison(p);
    if (k >= 0 && any && !may_be_truth(p, k))
        return eg__expression_refuse(p, at, 1, NULL, "'!' stands before a number");
    return k >= 0 && deny ? eg__node_1(p, EG_X_NOT, at, k) : k;
}
/* Parses truths joined by `sign`; '|' binds less tightly than '&'. */
static int logic(eg_parser *p, char sign)
{
    expression_blanks(p);
    const int from = p->at;
    int k = sign == '|' ? logic(p, '&') : denied(p);
    for (;;) {
        if (k < 0) return k;
        expression_blanks(p);
        const int at = p->at;
        if (p->text[at] != sign) return k;
        p->at += p->text[at + 1] == sign ? 2 : 1;
        const int length = p->at - at;
        if (!may_be_truth(p, k))
            return eg__expression_refuse(p, at, length, NULL,
                                         "'%c' joins truths, and a number stands before it", sign);
        const int other = sign == '|' ? logic(p, '&') : denied(p);
        if (other < 0) return other;
        if (!may_be_truth(p, other))
            return eg__expression_refuse(p, at, length, NULL,
                                         "'%c' joins truths, and a number stands after it", sign);
        k = eg__node_2(p, sign == '|' ? EG_X_OR : EG_X_AND, EG_IS_TRUTH, from, k, other);
    }
}
/* Parses a truth or c ? a : b, where b may be a choice again. */
static int choice(eg_parser *p)
{
    expression_blanks(p);
    const int from = p->at, c = logic(p, '|');
    if (c < 0) return c;
    expression_blanks(p);
    const int at = p->at;
    if (p->text[at] != '?') return c;
    if (!may_be_truth(p, c))
        return eg__expression_refuse(p, at, 1, "compare it, as in i % 2 == 0",
                                     "a truth stands before '?', and this is a number");
    if (!expression_enter(p, at)) return -1;
    p->at++;
    const int a = choice(p);
    if (a < 0) return a;
    expression_blanks(p);
    const int colon = p->at;
    if (p->text[colon] != ':')
        return eg__expression_refuse(p, colon, 1, NULL, "'?' has no ':' after its first value");
    p->at++;
    const int b = choice(p);
    if (b < 0) return b;
    p->nesting--;
    const bool truths = may_be_truth(p, a) && may_be_truth(p, b);
    if (!truths && (eg__node_kind(p, a) == EG_IS_TRUTH) != (eg__node_kind(p, b) == EG_IS_TRUTH))
        return eg__expression_refuse(p, colon, 1, NULL,
                                     "one of the two values is a truth, the other a number");
    return eg__node_select(p, from, c, a, b);
}

/* -- the whole text --------------------------------------------------------------------------- */
/* True if the names of .with are names and stand for nothing else; else records an error. */
static bool names_clear(eg_parser *p)
{
    const eg_expression_source *s = p->s;
    for (int k = 0; k < s->given; k++) {
        const char *name = s->readable[k].name, *as = NULL;
        int n = 0;
        while (expression_starts(name[n]) || (n && expression_digit(name[n]))) n++;
        bool twice = false;
        for (int j = 0; j < k; j++) twice |= !strcmp(name, s->readable[j].name);
        if (!n || name[n])
            return eg_fail_as(p->cx, EG_ERROR_NOTATION,
                              "%s: \"%.40s\" in .with is no name: letters, digits and _ make one",
                              s->who, name),
                   false;
        if (twice)
            as = "stands in .with twice";
        else if (letter_called(p, name, n) >= 0)
            as = "is a letter and cannot be a tensor's name too";
        else if (function_called(name, n))
            as = "is a function and cannot be a tensor's name too";
        else if (s->score && !strcmp(name, "score"))
            as = "is the score and cannot be a tensor's name too";
        if (as) return eg_fail_as(p->cx, EG_ERROR_NOTATION, "%s: '%s' %s", s->who, name, as), false;
    }
    return true;
}
/* Parses the whole text and returns its root, of the kind that the source asks for; −1 after an
 * error. */
static int whole_text(eg_parser *p)
{
    const eg_expression_source *s = p->s;
    const int k = choice(p);
    if (k < 0) return -1;
    expression_blanks(p);
    const char c = p->text[p->at];
    if (c == ')' || c == ']')
        return eg__expression_refuse(p, p->at, 1, NULL, "'%c' closes nothing", c);
    if (c && (expression_starts(c) || expression_digit(c)))
        return eg__expression_refuse(p, p->at, 1, NULL,
                                     "a name stands where an operator is expected");
    if (c) {
        char where[40];
        snprintf(where, sizeof where, "in %s %s", s->noun[0] == 'e' ? "an" : "a", s->noun);
        return eg__caret_stray(p->cx, s->who, p->text, p->at, where), -1;
    }
    if (s->predicate && !s->any_kind && !may_be_truth(p, k))
        return eg__expression_refuse(p, 0, p->at, "compare it, as in i % 2 == 0",
                                     "the %s is a number, not a truth", s->noun);
    if (!s->number) return k;
    if (eg__node_kind(p, k) == EG_IS_TRUTH)
        return eg__expression_refuse(p, 0, p->at, "choose by it, as in j <= i ? score : 0",
                                     "the %s is a truth, not a number", s->noun);
    return eg__node_float(p, 0, k);
}

/* The nodes are made on the stack and copied to the open scope at the end. */
eg_expression *eg__expression_parse(eg_ctx *cx, const eg_expression_source *s)
{
    if (eg__failed(cx)) return NULL;
    if (!s->text && !s->additions)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no %s was given", s->who, s->noun), NULL;
    if (s->text && strlen(s->text) > 4000)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: the %s is too long", s->who, s->noun), NULL;
    eg_parser p = { .cx = cx, .s = s, .text = s->text ? s->text : "" };
    if (!names_clear(&p)) return NULL;
    int root = s->text ? whole_text(&p) : -1, strict;
    if (s->text && root < 0) return NULL;
    if ((root = eg__node_additions(&p, root, &strict)) < -1) return NULL;
    eg_expression *e = eg__alloc(cx, sizeof *e + (size_t)p.nodes * sizeof(eg_node));
    if (!e) return NULL;
    *e = (eg_expression){ .nodes = p.nodes, .root = root, .strict = strict, .letters = s->letters };
    bool used[EG_NODES_MAX] = { [0] = false };
    used[strict] = true;
    for (int k = p.nodes; k-- > 0;) { /* nodes that folding left unused do not count */
        const eg_node *n = &p.node[k];
        if (!used[k]) continue;
        for (int j = 0; j < n->count; j++) used[n->in[j]] = true;
        if (n->code == EG_X_LETTER) e->positions |= 1u << n->in[0];
        if (n->code == EG_X_SIZE) e->sizes |= 1u << n->in[0];
        if (n->code == EG_X_READ) e->reads |= 1u << n->tensor;
        e->score |= n->code == EG_X_SCORE;
    }
    memcpy(e->node, p.node, (size_t)p.nodes * sizeof(eg_node));
    return e;
}
size_t eg__expression_bytes(const eg_expression *e)
{
    return sizeof *e + (size_t)e->nodes * sizeof(eg_node);
}
