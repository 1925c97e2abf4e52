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
#include "notation/expression.h"
#include "notation/whole.h"
#include <math.h>
#include <string.h>

enum { NESTING = 64 };

typedef struct parser {
    eg_ctx *cx;
    const eg_expression_source *s;
    const char *text;
    int at, nesting, nodes;
    eg_node node[EG_NODES_MAX];
} parser;

static bool expression_starts(char c) { return (unsigned)((c | 32) - 'a') < 26 || c == '_'; }
static bool expression_digit(char c) { return (unsigned)(c - '0') < 10; }
static void expression_blanks(parser *p)
{
    while (p->text[p->at] == ' ' || (p->text[p->at] >= '\t' && p->text[p->at] <= '\r')) p->at++;
}
/* Records an error with a caret under `length` bytes of the text at `at`, and a hint if it is not
 * NULL. Returns −1. */
static int expression_refuse(parser *p, int at, int length, const char *hint, const char *format,
                             ...) __attribute__((format(printf, 5, 6)));
static int expression_refuse(parser *p, int at, int length, const char *hint, const char *format,
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

/* -- nodes ------------------------------------------------------------------------------------ */
/* Adds a node, unless there is an equal one already, and returns its number; −1 after an error. */
static int add_node(parser *p, eg_node n)
{
    n.letters = n.code == EG_X_LETTER ? 1u << n.in[0] : n.code == EG_X_SCORE ? UINT32_MAX : 0;
    for (int k = 0; k < n.count; k++) n.letters |= p->node[n.in[k]].letters;
    for (int k = 0; k < p->nodes; k++) {
        const eg_node *m = &p->node[k];
        if (m->code == n.code && m->kind == n.kind && m->count == n.count &&
            m->tensor == n.tensor && m->plain == n.plain && m->whole == n.whole &&
            !memcmp(m->in, n.in, sizeof n.in))
            return k;
    }
    if (p->nodes == EG_NODES_MAX)
        return expression_refuse(p, p->at, 1, NULL, "the %s is too long", p->s->noun);
    p->node[p->nodes] = n;
    return p->nodes++;
}
static int add_whole(parser *p, int at, int64_t value)
{
    return add_node(p, (eg_node){ .code = EG_X_WHOLE,
                                  .kind = EG_IS_WHOLE,
                                  .whole = value,
                                  .at = (uint16_t)at,
                                  .length = (uint16_t)(p->at - at) });
}
static int add_real(parser *p, int at, double value)
{
    return add_node(p, (eg_node){ .code = EG_X_FLOAT,
                                  .kind = EG_IS_FLOAT,
                                  .real = value,
                                  .at = (uint16_t)at,
                                  .length = (uint16_t)(p->at - at) });
}
static int node_kind(const parser *p, int k) { return p->node[k].kind; }
static bool is_constant(const parser *p, int k)
{
    return p->node[k].code == EG_X_WHOLE || p->node[k].code == EG_X_FLOAT;
}
static double constant_of(const parser *p, int k)
{
    return p->node[k].code == EG_X_WHOLE ? (double)p->node[k].whole : p->node[k].real;
}

/* Returns node k converted to float; −1 after an error, as in a predicate. */
static int to_float(parser *p, int at, int k)
{
    if (k < 0 || node_kind(p, k) == EG_IS_FLOAT) return k;
    if (p->s->predicate)
        return expression_refuse(p, at, p->at - at, NULL,
                                 "a predicate is made of whole numbers and truths, not of floats");
    if (is_constant(p, k)) return add_real(p, p->node[k].at, constant_of(p, k));
    return add_node(p, (eg_node){ .code = EG_X_TO_FLOAT,
                                  .kind = EG_IS_FLOAT,
                                  .count = 1,
                                  .in = { (uint8_t)k },
                                  .at = p->node[k].at,
                                  .length = p->node[k].length });
}
/* Adds operation `code` of nodes of one kind; if all are constants, whole numbers, and floats where
 * + − * / are asked for, give a constant. */
static int add_operation(parser *p, int code, int kind, int at, int count, const int *in)
{
    eg_node n = { .code = (uint8_t)code,
                  .kind = (uint8_t)kind,
                  .count = (uint8_t)count,
                  .at = (uint16_t)at,
                  .length = (uint16_t)(p->at - at) };
    bool constant = true;
    for (int k = 0; k < count; k++) {
        if (in[k] < 0) return -1;
        n.in[k] = (uint8_t)in[k];
        constant &= is_constant(p, in[k]);
    }
    if (!constant) return add_node(p, n);
    if (kind == EG_IS_WHOLE && node_kind(p, in[0]) == EG_IS_WHOLE) {
        int64_t v[3];
        for (int k = 0; k < count; k++) v[k] = p->node[in[k]].whole;
        return add_whole(p, at, eg__whole(code, v[0], count > 1 ? v[1] : 0, count > 2 ? v[2] : 0));
    }
    const double a = constant_of(p, in[0]), b = count > 1 ? constant_of(p, in[1]) : 0;
    if (kind == EG_IS_FLOAT && code == EG_X_NEG) return add_real(p, at, -a);
    if (kind == EG_IS_FLOAT && code == EG_X_ADD) return add_real(p, at, a + b);
    if (kind == EG_IS_FLOAT && code == EG_X_SUB) return add_real(p, at, a - b);
    if (kind == EG_IS_FLOAT && code == EG_X_MUL) return add_real(p, at, a * b);
    if (kind == EG_IS_FLOAT && code == EG_X_DIV) return add_real(p, at, a / b);
    return add_node(p, n);
}
static int add_1(parser *p, int code, int at, int a)
{
    return a < 0 ? -1 : add_operation(p, code, node_kind(p, a), at, 1, &a);
}
static int add_2(parser *p, int code, int kind, int at, int a, int b)
{
    return add_operation(p, code, kind, at, 2, (const int[]){ a, b });
}
/* Adds c ? a : b; if a and b are truths, as (c & a) | (!c & b). */
static int add_select(parser *p, int at, int c, int a, int b)
{
    if (node_kind(p, a) != EG_IS_TRUTH) {
        if (node_kind(p, a) != node_kind(p, b))
            a = to_float(p, at, a), b = a < 0 ? -1 : to_float(p, at, b);
        if (a < 0 || b < 0) return -1;
        return add_operation(p, EG_X_SELECT, node_kind(p, a), at, 3, (const int[]){ c, a, b });
    }
    const int yes = add_2(p, EG_X_AND, EG_IS_TRUTH, at, c, a);
    const int no = yes < 0 ? -1 : add_1(p, EG_X_NOT, at, c);
    const int other = no < 0 ? -1 : add_2(p, EG_X_AND, EG_IS_TRUTH, at, no, b);
    return other < 0 ? -1 : add_2(p, EG_X_OR, EG_IS_TRUTH, at, yes, other);
}
/* Adds x % y of floats: r = x − |y| ⌊x / |y|⌋, plus |y| if rounding made r negative. */
static int add_modulus(parser *p, int at, int x, int y)
{
    const int m = add_1(p, EG_X_ABS, at, y);
    int q = m < 0 ? -1 : add_2(p, EG_X_DIV, EG_IS_FLOAT, at, x, m);
    q = add_1(p, EG_X_FLOOR, at, q);
    q = q < 0 ? -1 : add_2(p, EG_X_MUL, EG_IS_FLOAT, at, m, q);
    const int r = q < 0 ? -1 : add_2(p, EG_X_SUB, EG_IS_FLOAT, at, x, q), zero = add_real(p, at, 0);
    if (r < 0 || zero < 0) return -1;
    const int low = add_2(p, EG_X_LT, EG_IS_TRUTH, at, r, zero);
    const int up = low < 0 ? -1 : add_2(p, EG_X_ADD, EG_IS_FLOAT, at, r, m);
    return up < 0 ? -1 : add_select(p, at, low, up, r);
}
/* Adds a^b; for b = −1, 1, 2 and 3 without a call of pow. */
static int add_power(parser *p, int at, int a, int b)
{
    const double c = is_constant(p, b) ? constant_of(p, b) : NAN;
    if (c == 1) return a;
    if (c == -1) {
        const int one = add_real(p, at, 1);
        return one < 0 ? -1 : add_2(p, EG_X_DIV, EG_IS_FLOAT, at, one, a);
    }
    if (c != 2 && c != 3) return add_2(p, EG_X_POW, EG_IS_FLOAT, at, a, b);
    const int square = add_2(p, EG_X_MUL, EG_IS_FLOAT, at, a, a);
    return c == 2 || square < 0 ? square : add_2(p, EG_X_MUL, EG_IS_FLOAT, at, square, a);
}
/* Adds a function of numbers, or + − * /. The result is a whole number if all operands are and
 * `whole` is true; else they are converted to float. */
static int add_numbers(parser *p, int code, bool whole, int at, int count, int *in)
{
    for (int k = 0; k < count; k++) whole &= node_kind(p, in[k]) == EG_IS_WHOLE;
    for (int k = 0; k < count && !whole; k++)
        if ((in[k] = to_float(p, at, in[k])) < 0) return -1;
    if (whole) return add_operation(p, code, EG_IS_WHOLE, at, count, in);
    if (code == EG_X_MOD) return add_modulus(p, at, in[0], in[1]);
    if (code == EG_X_POW) return add_power(p, at, in[0], in[1]);
    return add_operation(p, code, EG_IS_FLOAT, at, count, in);
}

/* -- operands --------------------------------------------------------------------------------- */
static int choice(parser *);
static int limited(int length) { return length < 40 ? length : 40; }

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
static const char *nearest(const parser *p, const char *word, int length, char *hint, size_t room)
{
    int best = length < 3 ? 0 : length < 4 ? 2 : 3;
    const char *found = NULL;
    hint[0] = 0;
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (functions[k].name[0] && edits(word, length, functions[k].name) < best)
            best = edits(word, length, found = functions[k].name);
    for (int k = 0; k < p->s->given; k++)
        if (edits(word, length, p->s->readable[k].name) < best)
            best = edits(word, length, found = p->s->readable[k].name);
    if (p->s->score && edits(word, length, "score") < best) found = "score";
    if (found) snprintf(hint, room, "is '%s' meant?", found);
    return hint;
}
/* Records that a name is not known, with the names that are, and returns −1. */
static int unknown_name(parser *p, int at, int length)
{
    char known[200] = "", hint[64];
    size_t used = 0;
    const int all = p->s->letters + p->s->given;
    for (int k = 0; k < all && used < sizeof known; k++) {
        const bool letter = k < p->s->letters;
        const char *name = letter ? p->s->letter[k]->text : p->s->readable[k - p->s->letters].name;
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s'%.*s'", k ? ", " : "",
                             limited(letter ? p->s->letter[k]->length : (int)strlen(name)), name);
    }
    nearest(p, p->text + at, length, hint, sizeof hint);
    return expression_refuse(p, at, length, hint[0] ? hint : NULL, "the %s's %s '%.*s' is not %s%s",
                             p->s->noun, p->s->given ? "name" : "index", limited(length),
                             p->text + at, all ? "one of " : "in the string", known);
}
static int word_length(const parser *p)
{
    int n = 0;
    while (expression_starts(p->text[p->at + n]) || expression_digit(p->text[p->at + n])) n++;
    return n;
}
static int letter_called(const parser *p, const char *text, int length)
{
    for (int k = 0; k < p->s->letters; k++)
        if (p->s->letter[k]->length == length &&
            memcmp(p->s->letter[k]->text, text, (size_t)length) == 0)
            return k;
    return -1;
}
/* Adds letter k as a position (EG_X_LETTER) or as a size (EG_X_SIZE). */
static int add_letter(parser *p, int code, int k, int at)
{
    if (k >= EG_EXPRESSION_LETTERS)
        return expression_refuse(p, at, p->at - at, NULL, "a %s reads the first %d axes only",
                                 p->s->noun, EG_EXPRESSION_LETTERS);
    return add_node(p, (eg_node){ .code = (uint8_t)code,
                                  .kind = EG_IS_WHOLE,
                                  .in = { (uint8_t)k },
                                  .at = (uint16_t)at,
                                  .length = (uint16_t)(p->at - at) });
}
/* Notes the place of a name, for a source that asks for places, and adds a letter for it. `from` is
 * the first byte to replace: that of the name, or its bar. */
static int name_placed(parser *p, int code, int from, int at, int length)
{
    int *n = p->s->places;
    if (*n == EG_PLACES_MAX)
        return expression_refuse(p, at, length, NULL, "the %s is too long", p->s->noun);
    p->s->place[(*n)++] = (eg_name_place){ at, length, from, p->at, code == EG_X_SIZE };
    return add_letter(p, code, 0, from);
}
/* Counts one level of nesting; false after an error: there are more than NESTING. */
static bool expression_enter(parser *p, int at)
{
    if (++p->nesting <= NESTING) return true;
    expression_refuse(p, at, 1, NULL, "the %s is nested too deeply", p->s->noun);
    return false;
}
/* Parses values that commas separate, from the opening bracket to `close`. Returns how many; −1
 * after an error. */
static int value_list(parser *p, char close, int most, int *in)
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
            return expression_refuse(p, at, 1, NULL, "more than %d values stand in one bracket",
                                     most);
        in[n++] = k;
        expression_blanks(p);
        const char c = p->text[p->at];
        if (c == close) return p->at++, p->nesting--, n;
        if (c != ',')
            return expression_refuse(p, open, 1, NULL, "'%c' is not closed", p->text[open]);
        p->at++;
    }
}
/* Parses and checks the arguments of function f, whose name stands at `at`, and adds the call. */
static int call_function(parser *p, const function *f, int at, int length)
{
    int in[EG_READ_MAX];
    const int n = value_list(p, ')', EG_READ_MAX, in);
    if (n < 0) return -1;
    if (n != f->arity)
        return expression_refuse(p, at, p->at - at, NULL, "%s takes %d number%s, and here are %d",
                                 f->name, f->arity, f->arity == 1 ? "" : "s", n);
    for (int k = 0; k < n; k++)
        if (node_kind(p, in[k]) == EG_IS_TRUTH)
            return expression_refuse(p, p->node[in[k]].at, p->node[in[k]].length, NULL,
                                     "%s is of numbers, and this is a truth", f->name);
    if (p->s->predicate && !f->whole)
        return expression_refuse(p, at, length, NULL,
                                 "%s makes a float, and a predicate is made of whole numbers and "
                                 "truths",
                                 f->name);
    if (f->code == EG_X_CLIP && is_constant(p, in[1]) && is_constant(p, in[2]) &&
        constant_of(p, in[1]) > constant_of(p, in[2]))
        return expression_refuse(p, at, p->at - at, NULL,
                                 "clip's low limit %g is above its high limit %g",
                                 constant_of(p, in[1]), constant_of(p, in[2]));
    return add_numbers(p, f->code, f->whole, at, n, in);
}
/* Adds the element of a tensor at `count` indices; its kind follows from the dtype. */
static int add_read(parser *p, int tensor, int at, int count, const int *in, bool plain)
{
    const eg_readable *x = &p->s->readable[tensor];
    eg_node n = { .code = EG_X_READ,
                  .kind = x->dtype == EG_BOOL                        ? EG_IS_TRUTH
                          : x->dtype == EG_I32 || x->dtype == EG_I64 ? EG_IS_WHOLE
                                                                     : EG_IS_FLOAT,
                  .count = (uint8_t)count,
                  .tensor = (uint8_t)tensor,
                  .plain = plain,
                  .at = (uint16_t)at,
                  .length = (uint16_t)(p->at - at) };
    for (int k = 0; k < count; k++) n.in[k] = (uint8_t)in[k];
    if (p->s->predicate && n.kind == EG_IS_FLOAT)
        return expression_refuse(p, at, n.length, NULL,
                                 "'%s' is %s, and a predicate reads whole numbers and truths",
                                 x->name, eg_type_name(x->dtype));
    return add_node(p, n);
}
/* Parses what follows the name of a tensor of .with, its indices, and adds the read. Without
 * brackets the indices are all letters in order. */
static int read_tensor(parser *p, int tensor, int at)
{
    const eg_readable *x = &p->s->readable[tensor];
    int in[EG_READ_MAX], n = 0;
    const int length = p->at - at;
    if (x->rank > EG_READ_MAX)
        return expression_refuse(p, at, length, NULL,
                                 "'%s' has %d axes, and an expression reads at most %d", x->name,
                                 x->rank, EG_READ_MAX);
    expression_blanks(p);
    if (p->text[p->at] != '[') {
        p->at = at + length;
        if (!p->s->whole)
            return expression_refuse(p, at, length, "as in r[h, i - j]",
                                     "'%s' is a tensor, and its indices are missing", x->name);
        if (x->rank != p->s->letters)
            return expression_refuse(p, at, length, "name those that it has in brackets",
                                     "'%s' has %d ax%s, but without brackets it has all %d letters",
                                     x->name, x->rank, x->rank == 1 ? "is" : "es", p->s->letters);
        for (; n < x->rank; n++)
            if ((in[n] = add_letter(p, EG_X_LETTER, n, at)) < 0) return -1;
        return add_read(p, tensor, at, n, in, true);
    }
    if ((n = value_list(p, ']', EG_READ_MAX, in)) < 0) return -1;
    if (n != x->rank)
        return expression_refuse(
            p, at, p->at - at, NULL, "'%s' has %d ax%s, but %d %s in its brackets", x->name,
            x->rank, x->rank == 1 ? "is" : "es", n, n == 1 ? "index stands" : "indices stand");
    for (int k = 0; k < n; k++)
        if (node_kind(p, in[k]) != EG_IS_WHOLE)
            return expression_refuse(p, p->node[in[k]].at, p->node[in[k]].length, NULL,
                                     "an index is a whole number, and this is a %s",
                                     node_kind(p, in[k]) == EG_IS_FLOAT ? "float" : "truth");
    return add_read(p, tensor, at, n, in, false);
}
/* Parses a name: a letter, a tensor of .with, the score, or a function. */
static int name_read(parser *p)
{
    const int at = p->at, length = word_length(p);
    p->at += length;
    const int letter = letter_called(p, p->text + at, length);
    if (letter >= 0) return add_letter(p, EG_X_LETTER, letter, at);
    for (int k = 0; k < p->s->given; k++)
        if (same_word(p->s->readable[k].name, p->text + at, length)) return read_tensor(p, k, at);
    if (p->s->score && same_word("score", p->text + at, length))
        return add_node(p, (eg_node){ .code = EG_X_SCORE,
                                      .kind = EG_IS_FLOAT,
                                      .at = (uint16_t)at,
                                      .length = (uint16_t)length });
    const function *f = function_called(p->text + at, length);
    expression_blanks(p);
    const bool called = p->text[p->at] == '(';
    if (p->s->place && !(f && called)) {
        p->at = at + length;
        return name_placed(p, EG_X_LETTER, at, at, length);
    }
    if (!f) return unknown_name(p, at, length);
    if (!called)
        return expression_refuse(p, at, length, NULL, "%s is a function: its numbers follow in ( )",
                                 f->name);
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
static int number_read(parser *p)
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
        return expression_refuse(p, to, 1, "a product is written with *, as in 2 * i",
                                 "a name follows a number");
    if (real) {
        const double value = decimal(s + at, to - at);
        if (p->s->predicate)
            return expression_refuse(p, at, to - at, NULL,
                                     "a predicate is made of whole numbers and truths, not of "
                                     "floats");
        if (!isfinite(value))
            return expression_refuse(p, at, to - at, NULL, "the number is no finite float");
        return add_real(p, at, value);
    }
    int64_t v = 0;
    for (int k = at; k < to; k++)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, (int64_t)(s[k] - '0'), &v))
            return expression_refuse(p, at, to - at, NULL, "the number does not fit in 64 bits");
    return add_whole(p, at, v);
}
/* Parses |i|, the size of an index. For anything else between bars the error proposes abs(…). */
static int size_read(parser *p)
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
                 limited((int)(close - (p->text + at + 1))), p->text + at + 1);
    if (!length || hint[0])
        return expression_refuse(p, length ? p->at : from, 1, hint[0] ? hint : NULL,
                                 "between the bars of a size stands one index, as in |i|");
    const int letter = letter_called(p, p->text + from, length);
    if (letter < 0 && !p->s->place) return unknown_name(p, from, length);
    if (p->text[p->at] != '|')
        return expression_refuse(p, at, 1, NULL, "the bar of a size is not closed, as in |i|");
    p->at = end;
    expression_blanks(p);
    p->at++;
    if (p->s->place) return name_placed(p, EG_X_SIZE, at, from, length);
    return add_letter(p, EG_X_SIZE, letter, at);
}
/* Parses a number, a name, a size, or a choice in parentheses. */
static int operand(parser *p)
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
        if (p->text[p->at] != ')') return expression_refuse(p, at, 1, NULL, "'(' is not closed");
        p->at++;
        return k;
    }
    if (c == 0 && at)
        return expression_refuse(p, at, 1, NULL,
                                 "the %s ends where a number or an index is expected", p->s->noun);
    if (c == 0) return expression_refuse(p, at, 1, NULL, "the %s is empty", p->s->noun);
    return expression_refuse(p, at, 1, NULL, "a number, an index or '(' is expected here");
}

/* -- operators -------------------------------------------------------------------------------- */
/* Parses an operand with any number of signs in front. */
static int signs(parser *p)
{
    expression_blanks(p);
    const int at = p->at;
    bool minus = false, any = false;
    for (; p->text[p->at] == '-' || p->text[p->at] == '+'; expression_blanks(p))
        minus ^= p->text[p->at++] == '-', any = true;
    const int k = operand(p);
    if (k < 0 || !any) return k;
    if (node_kind(p, k) == EG_IS_TRUTH)
        return expression_refuse(p, at, 1, NULL, "a sign stands before a truth");
    return minus ? add_1(p, EG_X_NEG, at, k) : k;
}
static int code_of(bool high, char c)
{
    if (high) return c == '*' ? EG_X_MUL : c == '/' ? EG_X_DIV : c == '%' ? EG_X_MOD : -1;
    return c == '+' ? EG_X_ADD : c == '-' ? EG_X_SUB : -1;
}
/* Parses a product (high) or a sum, from left to right. */
static int arithmetic(parser *p, bool high)
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
        if (node_kind(p, k) == EG_IS_TRUTH)
            return expression_refuse(p, at, 1, NULL, "arithmetic on a truth");
        const int other = high ? signs(p) : arithmetic(p, true);
        if (other < 0) return other;
        if (node_kind(p, other) == EG_IS_TRUTH)
            return expression_refuse(p, at, 1, NULL, "arithmetic on a truth");
        const eg_node *a = &p->node[k], *b = &p->node[other];
        if (b->code == EG_X_WHOLE && a->kind == EG_IS_WHOLE) {
            int64_t v;
            if (b->whole == 0 && (code == EG_X_DIV || code == EG_X_MOD))
                return expression_refuse(p, at, p->at - at, NULL, "division by zero");
            if (a->code == EG_X_WHOLE &&
                (code == EG_X_ADD ? __builtin_add_overflow(a->whole, b->whole, &v)
                 : code == EG_X_SUB
                     ? __builtin_sub_overflow(a->whole, b->whole, &v)
                     : code == EG_X_MUL && __builtin_mul_overflow(a->whole, b->whole, &v)))
                return expression_refuse(p, at, 1, NULL, "the value does not fit in 64 bits");
        }
        int in[2] = { k, other };
        k = add_numbers(p, code, true, from, 2, in);
    }
}
/* Returns the code of the comparison that stands here, with its length; −1 if there is none. */
static int comparison_at(const parser *p, int *length)
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
static int comparison(parser *p)
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
                return expression_refuse(p, at, 1, NULL, "equality is written ==");
            return truth >= 0 ? truth : left;
        }
        if (node_kind(p, left) == EG_IS_TRUTH)
            return expression_refuse(p, at, length, NULL, "a truth is compared");
        p->at += length;
        const int right = arithmetic(p, false);
        if (right < 0) return right;
        if (node_kind(p, right) == EG_IS_TRUTH)
            return expression_refuse(p, at, length, NULL, "a truth is compared");
        int a = left, b = right;
        if (node_kind(p, a) != node_kind(p, b)) a = to_float(p, from, a), b = to_float(p, from, b);
        const int is = a < 0 || b < 0 ? -1 : add_2(p, code, EG_IS_TRUTH, from, a, b);
        if (is < 0) return is;
        truth = truth < 0 ? is : add_2(p, EG_X_AND, EG_IS_TRUTH, from, truth, is);
        if (truth < 0) return truth;
        left = right;
    }
}
/* Parses a comparison with any number of '!' in front. */
static int denied(parser *p)
{
    expression_blanks(p);
    const int at = p->at;
    bool deny = false, any = false;
    for (; p->text[p->at] == '!' && p->text[p->at + 1] != '='; expression_blanks(p))
        p->at++, deny = !deny, any = true;
    const int k = comparison(p);
    if (k >= 0 && any && node_kind(p, k) != EG_IS_TRUTH)
        return expression_refuse(p, at, 1, NULL, "'!' stands before a number");
    return k >= 0 && deny ? add_1(p, EG_X_NOT, at, k) : k;
}
/* Parses truths joined by `sign`; '|' binds less tightly than '&'. */
static int logic(parser *p, char sign)
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
        if (node_kind(p, k) != EG_IS_TRUTH)
            return expression_refuse(p, at, length, NULL,
                                     "'%c' joins truths, and a number stands before it", sign);
        const int other = sign == '|' ? logic(p, '&') : denied(p);
        if (other < 0) return other;
        if (node_kind(p, other) != EG_IS_TRUTH)
            return expression_refuse(p, at, length, NULL,
                                     "'%c' joins truths, and a number stands after it", sign);
        k = add_2(p, sign == '|' ? EG_X_OR : EG_X_AND, EG_IS_TRUTH, from, k, other);
    }
}
/* Parses a truth or c ? a : b, where b may be a choice again. */
static int choice(parser *p)
{
    expression_blanks(p);
    const int from = p->at, c = logic(p, '|');
    if (c < 0) return c;
    expression_blanks(p);
    const int at = p->at;
    if (p->text[at] != '?') return c;
    if (node_kind(p, c) != EG_IS_TRUTH)
        return expression_refuse(p, at, 1, "compare it, as in i % 2 == 0",
                                 "a truth stands before '?', and this is a number");
    if (!expression_enter(p, at)) return -1;
    p->at++;
    const int a = choice(p);
    if (a < 0) return a;
    expression_blanks(p);
    const int colon = p->at;
    if (p->text[colon] != ':')
        return expression_refuse(p, colon, 1, NULL, "'?' has no ':' after its first value");
    p->at++;
    const int b = choice(p);
    if (b < 0) return b;
    p->nesting--;
    if ((node_kind(p, a) == EG_IS_TRUTH) != (node_kind(p, b) == EG_IS_TRUTH))
        return expression_refuse(p, colon, 1, NULL,
                                 "one of the two values is a truth, the other a number");
    return add_select(p, from, c, a, b);
}

/* -- the whole text --------------------------------------------------------------------------- */
/* True if the names of .with are names and stand for nothing else; else records an error. */
static bool names_clear(parser *p)
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
static int whole_text(parser *p)
{
    const eg_expression_source *s = p->s;
    const int k = choice(p);
    if (k < 0) return -1;
    expression_blanks(p);
    const char c = p->text[p->at];
    if (c == ')' || c == ']') return expression_refuse(p, p->at, 1, NULL, "'%c' closes nothing", c);
    if (c && (expression_starts(c) || expression_digit(c)))
        return expression_refuse(p, p->at, 1, NULL, "a name stands where an operator is expected");
    if (c) {
        char where[40];
        snprintf(where, sizeof where, "in %s %s", s->noun[0] == 'e' ? "an" : "a", s->noun);
        return eg__caret_stray(p->cx, s->who, p->text, p->at, where), -1;
    }
    if (s->predicate && !s->place && node_kind(p, k) != EG_IS_TRUTH)
        return expression_refuse(p, 0, p->at, "compare it, as in i % 2 == 0",
                                 "the %s is a number, not a truth", s->noun);
    if (!s->number) return k;
    if (node_kind(p, k) == EG_IS_TRUTH)
        return expression_refuse(p, 0, p->at, "choose by it, as in j <= i ? score : 0",
                                 "the %s is a truth, not a number", s->noun);
    return to_float(p, 0, k);
}

/* The nodes are made on the stack and copied to the open scope at the end. */
eg_expression *eg__expression_parse(eg_ctx *cx, const eg_expression_source *s)
{
    if (eg__failed(cx)) return NULL;
    if (!s->text)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no %s was given", s->who, s->noun), NULL;
    if (strlen(s->text) > 4000)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: the %s is too long", s->who, s->noun), NULL;
    parser p = { .cx = cx, .s = s, .text = s->text };
    if (!names_clear(&p)) return NULL;
    const int root = whole_text(&p);
    if (root < 0) return NULL;
    eg_expression *e = eg__alloc(cx, sizeof *e + (size_t)p.nodes * sizeof(eg_node));
    if (!e) return NULL;
    *e = (eg_expression){ .nodes = p.nodes, .root = root, .letters = s->letters };
    bool used[EG_NODES_MAX] = { [0] = false };
    used[root] = true;
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

/* -- sizes ------------------------------------------------------------------------------------ */
bool eg__expression_sizes(eg_ctx *cx, const eg_expression_source *s, const eg_expression *e,
                          int64_t *size)
{
    const char *from[EG_EXPRESSION_LETTERS] = { NULL };
    bool fixed[EG_EXPRESSION_LETTERS] = {
        false
    }; /* by the caller, or by a read without brackets */
    for (int l = 0; l < s->letters && l < EG_EXPRESSION_LETTERS; l++) fixed[l] = size[l] >= 0;
    for (int brackets = 0; brackets < 2; brackets++) {
        for (int k = 0; k < e->nodes; k++) {
            const eg_node *n = &e->node[k];
            if (n->code != EG_X_READ || n->plain == brackets) continue;
            const eg_readable *x = &s->readable[n->tensor];
            for (int r = 0; r < n->count; r++) {
                const int l = e->node[n->in[r]].in[0];
                if (e->node[n->in[r]].code != EG_X_LETTER || (brackets && fixed[l])) continue;
                if (size[l] < 0) size[l] = x->dim[r], from[l] = x->name;
                if (size[l] == x->dim[r]) continue;
                return eg__caret(cx, s->who, s->text, 1, &(eg_caret){ n->at, n->length }, NULL,
                                 NULL, "index '%.*s' is %lld%s%s%s but %lld in '%s'",
                                 limited(s->letter[l]->length), s->letter[l]->text,
                                 (long long)size[l], from[l] ? " in '" : "", from[l] ? from[l] : "",
                                 from[l] ? "'" : "", (long long)x->dim[r], x->name),
                       false;
            }
        }
        for (int l = 0; l < s->letters && l < EG_EXPRESSION_LETTERS; l++) fixed[l] = size[l] >= 0;
    }
    for (int l = 0; l < s->letters; l++)
        if (size[l] < 0)
            return eg_fail_as(cx, EG_ERROR_NOTATION,
                              "%s: letter '%.*s' has no size: no tensor has it as an axis", s->who,
                              limited(s->letter[l]->length), s->letter[l]->text),
                   false;
    return true;
}
