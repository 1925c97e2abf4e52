/* where.c: predicates, truths about indices: their parser and compiler, and a predicate as a
 * tensor.
 *
 *   truth      = both { "|" both }                                    also ||
 *   both       = denied { "&" denied }                                also &&
 *   denied     = "!" denied | comparison
 *   comparison = sum { ("==" | "!=" | "<" | "<=" | ">" | ">=") sum }  a < b <= c is a < b & b <= c
 *   sum        = product { ("+" | "-") product }
 *   product    = signed { ("*" | "/" | "%") signed }
 *   signed     = { "-" | "+" } ( number | name | "|" name "|" | "(" truth ")" )
 *
 * x / y = ⌊x / y⌋;  x % y = x − |y| ⌊x / |y|⌋, never negative;  both are 0 where y is 0. Values
 * saturate at ±(2^63 − 1). Compiled to postfix (where.h); where_value.c evaluates it. */
#include "notation/where.h"
#include <eingrad/attention.h>
#include <string.h>

enum { NESTING = 64 };

/* -- the parser ------------------------------------------------------------------------------- */
typedef enum kind { BAD, VALUE, TRUTH } kind;
typedef struct parser {
    eg_ctx *cx;
    const char *who, *text;
    int at, n, steps, nesting;
    const eg_axis_name *const *axis;
    eg_where_place *place; /* NULL; or any name is read, and where it stands goes here */
    int places;
    step step[EG_WHERE_STEPS];
} parser;

static bool where_is_start(char c) { return (unsigned)((c | 32) - 'a') < 26 || c == '_'; }
static bool where_is_digit(char c) { return (unsigned)(c - '0') < 10; }
static void blanks(parser *p)
{
    while (p->text[p->at] == ' ' || (p->text[p->at] >= '\t' && p->text[p->at] <= '\r')) p->at++;
}
static kind where_refuse(parser *p, int at, int length, const char *hint, const char *sentence)
{
    eg__caret(p->cx, p->who, p->text, 1, &(eg_caret){ at, length }, NULL, hint, "%s", sentence);
    return BAD;
}
static bool emit(parser *p, int code_, int axis, int64_t value)
{
    if (p->steps == EG_WHERE_STEPS)
        return where_refuse(p, p->at, 1, NULL, "the predicate is too long"), false;
    p->step[p->steps++] = (step){ (uint8_t)code_, (uint8_t)axis, value };
    return true;
}
static bool is_number(const parser *p, int from, int to)
{
    return to == from + 1 && p->step[from].code == NUMBER;
}

static kind truth(parser *);

/* A name, as an index (INDEX) or as the size of its axis (SIZE). */
static kind name(parser *p, int code_)
{
    const int start = p->at;
    int length = 0;
    while (where_is_start(p->text[start + length]) || where_is_digit(p->text[start + length]))
        length++;
    p->at += length;
    if (p->place) {
        if (!emit(p, code_, 0, 0)) return BAD; /* at most as many places as steps */
        p->place[p->places++] = (eg_where_place){ start, length, start, p->at, code_ == SIZE };
        return VALUE;
    }
    for (int k = 0; k < p->n; k++)
        if (p->axis[k]->length == length &&
            memcmp(p->axis[k]->text, p->text + start, (size_t)length) == 0) {
            if (k >= 32)
                return where_refuse(p, start, length, NULL,
                                    "a predicate reads the first 32 axes only");
            return emit(p, code_, k, 0) ? VALUE : BAD;
        }
    char known[160] = "";
    size_t used = 0;
    for (int k = 0; k < p->n && used < sizeof known; k++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s'%.*s'", k ? ", " : "",
                             p->axis[k]->length < 40 ? p->axis[k]->length : 40, p->axis[k]->text);
    eg__caret(p->cx, p->who, p->text, 1, &(eg_caret){ start, length }, NULL, NULL,
              p->n ? "the predicate's index '%.*s' is not one of %s"
                   : "the predicate's index '%.*s' is not in the string%s",
              length < 40 ? length : 40, p->text + start, known);
    return BAD;
}

/* A number, an index, a size |i|, or something in parentheses. */
static kind operand(parser *p)
{
    blanks(p);
    const int start = p->at;
    const char c = p->text[start];
    if (where_is_digit(c)) {
        int64_t v = 0;
        for (; where_is_digit(p->text[p->at]); p->at++)
            if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
                __builtin_add_overflow(v, (int64_t)(p->text[p->at] - '0'), &v)) {
                while (where_is_digit(p->text[p->at])) p->at++;
                return where_refuse(p, start, p->at - start, NULL,
                                    "the number does not fit in 64 bits");
            }
        if (where_is_start(p->text[p->at]))
            return where_refuse(p, p->at, 1, "a product is written with *, as in 2 * i",
                                "a name follows a number");
        return emit(p, NUMBER, 0, v) ? VALUE : BAD;
    }
    if (where_is_start(c)) return name(p, INDEX);
    if (c == '|') {
        p->at++, blanks(p);
        if (!where_is_start(p->text[p->at]))
            return where_refuse(p, p->at, 1, NULL,
                                "between the bars of a size stands one index, as in |i|");
        if (name(p, SIZE) == BAD) return BAD;
        blanks(p);
        if (p->text[p->at] != '|')
            return where_refuse(p, start, 1, NULL, "the bar of a size is not closed, as in |i|");
        p->at++;
        if (p->place) p->place[p->places - 1].from = start, p->place[p->places - 1].to = p->at;
        return VALUE;
    }
    if (c == '(') {
        p->at++;
        if (++p->nesting > NESTING)
            return where_refuse(p, start, 1, NULL, "the predicate is nested too deeply");
        const kind k = truth(p);
        p->nesting--;
        if (k == BAD) return BAD;
        if (p->text[p->at] != ')') return where_refuse(p, start, 1, NULL, "'(' is not closed");
        p->at++;
        return k;
    }
    if (c == 0)
        return where_refuse(p, start, 1, NULL,
                            start ? "the predicate ends where a number or an index is expected"
                                  : "the predicate is empty");
    return where_refuse(p, start, 1, NULL, "a number, an index or '(' is expected here");
}

/* An operand behind any number of signs. */
static kind signs(parser *p)
{
    blanks(p);
    const int start = p->at;
    bool minus = false, any = false;
    for (; p->text[p->at] == '-' || p->text[p->at] == '+'; blanks(p))
        minus ^= p->text[p->at++] == '-', any = true;
    const int from = p->steps;
    const kind k = operand(p);
    if (k == BAD || !any) return k;
    if (k == TRUTH) return where_refuse(p, start, 1, NULL, "a sign stands before a truth");
    if (!minus) return k;
    if (is_number(p, from, p->steps)) {
        p->step[from].value = -p->step[from].value;
        return k;
    }
    return emit(p, NEG, 0, 0) ? k : BAD;
}

/* Sums, or products (high), from left to right; what is constant is computed at once. */
static kind binary(parser *p, bool high)
{
    const int from = p->steps;
    kind k = high ? signs(p) : binary(p, true);
    for (;;) {
        if (k == BAD) return k;
        blanks(p);
        const int start = p->at, right = p->steps;
        const char c = p->text[start];
        const int op = high ? c == '*' ? MUL : c == '/' ? DIV : c == '%' ? MOD : -1 : c == '+' ? ADD
                       : c == '-' ? SUB
                                  : -1;
                       if (op < 0) return k;
                       p->at++;
                       if (k == TRUTH)
                           return where_refuse(p, start, 1, NULL, "arithmetic on a truth");
                       k = high ? signs(p) : binary(p, true);
                       if (k == BAD) return k;
                       if (k == TRUTH)
                           return where_refuse(p, start, 1, NULL, "arithmetic on a truth");
                       if (is_number(p, right, p->steps) && (op == DIV || op == MOD) &&
                           p->step[right].value == 0)
                           return where_refuse(p, start, p->at - start, NULL, "division by zero");
                       if (is_number(p, from, right) && is_number(p, right, p->steps)) {
                           const int64_t a = p->step[from].value, b = p->step[right].value;
                           int64_t v;
                           if (op == ADD   ? __builtin_add_overflow(a, b, &v)
                               : op == SUB ? __builtin_sub_overflow(a, b, &v)
                                           : op == MUL && __builtin_mul_overflow(a, b, &v))
                               return where_refuse(p, start, 1, NULL,
                                                   "the value does not fit in 64 bits");
                           p->step[from].value = eg__where_apply(op, a, b), p->steps = right;
                       } else if (!emit(p, op, 0, 0))
                           return BAD;
    }
}

/* The comparison at the place of p and its length; −1: there is none. */
static int comparison_at(parser *p, int *length)
{
    const char *s = p->text + p->at;
    *length = s[0] && s[1] == '=' ? 2 : 1;
    if (*length == 2)
        return s[0] == '=' ? EQ : s[0] == '!' ? NE : s[0] == '<' ? LE : s[0] == '>' ? GE : -1;
    return s[0] == '<' ? LT : s[0] == '>' ? GT : -1;
}

/* Comparisons chain: in a < b < c the steps of b are emitted twice. */
static kind comparison(parser *p)
{
    int from = p->steps, end, length; /* the code of the left operand: [from, end) */
    const kind k = binary(p, false);
    if (k == BAD) return k;
    end = p->steps;
    for (bool chained = false;; chained = true) {
        blanks(p);
        const int start = p->at, op = comparison_at(p, &length);
        if (op < 0) {
            if (p->text[start] == '=')
                return where_refuse(p, start, 1, NULL, "equality is written ==");
            return chained ? TRUTH : k;
        }
        if (k == TRUTH) return where_refuse(p, start, length, NULL, "a truth is compared");
        p->at += length;
        for (int i = from; i < end && chained; i++) /* a < b < c: b again */
            if (!emit(p, p->step[i].code, p->step[i].axis, p->step[i].value)) return BAD;
        from = p->steps;
        const kind other = binary(p, false);
        if (other == BAD) return other;
        if (other == TRUTH) return where_refuse(p, start, length, NULL, "a truth is compared");
        end = p->steps;
        if (!emit(p, op, 0, 0) || (chained && !emit(p, AND, 0, 0))) return BAD;
    }
}

static kind denied(parser *p)
{
    blanks(p);
    const int start = p->at;
    bool deny = false, any = false;
    for (; p->text[p->at] == '!' && p->text[p->at + 1] != '='; blanks(p))
        p->at++, deny = !deny, any = true;
    const kind k = comparison(p);
    if (k == VALUE && any) return where_refuse(p, start, 1, NULL, "'!' stands before a number");
    return k == TRUTH && deny && !emit(p, NOT, 0, 0) ? BAD : k;
}

/* Truths joined by `sign`: '|' binds looser than '&'. */
static kind logic(parser *p, char sign)
{
    kind k = sign == '|' ? logic(p, '&') : denied(p);
    for (;;) {
        if (k == BAD) return k;
        blanks(p);
        const int start = p->at;
        if (p->text[start] != sign) return k;
        p->at += p->text[start + 1] == sign ? 2 : 1;
        if (k == VALUE)
            return where_refuse(p, start, p->at - start, NULL,
                                sign == '|' ? "'|' joins truths, and a number stands before it"
                                            : "'&' joins truths, and a number stands before it");
        k = sign == '|' ? logic(p, '&') : denied(p);
        if (k == VALUE)
            return where_refuse(p, start, p->at - start, NULL,
                                sign == '|' ? "'|' joins truths, and a number stands after it"
                                            : "'&' joins truths, and a number stands after it");
        if (k == TRUTH && !emit(p, sign == '|' ? OR : AND, 0, 0)) return BAD;
    }
}
static kind truth(parser *p) { return logic(p, '|'); }

/* -- making ----------------------------------------------------------------------------------- */
/* The whole of p->text, which must be a truth unless `number` allows a number; BAD after an error.
 */
static kind whole(parser *p, bool number)
{
    const char *text = p->text;
    if (!text)
        return eg_fail_as(p->cx, EG_ERROR_NOTATION, "%s: no predicate was given", p->who), BAD;
    if (strlen(text) > 4000)
        return eg_fail_as(p->cx, EG_ERROR_NOTATION, "%s: the predicate is too long", p->who), BAD;
    const kind k = truth(p);
    if (k == BAD) return BAD;
    const char c = text[p->at];
    if (c == ')') return where_refuse(p, p->at, 1, NULL, "')' closes nothing");
    if (c && where_is_start(c))
        return where_refuse(p, p->at, 1, NULL, "a name stands where an operator is expected");
    if (c) return eg__caret_stray(p->cx, p->who, text, p->at, "in a predicate"), BAD;
    if (k == VALUE && !number)
        return where_refuse(p, 0, p->at, "compare it, as in i % 2 == 0",
                            "the predicate is a number, not a truth");
    return k;
}
bool eg__where_scan(eg_ctx *cx, const char *who, const char *text, eg_where_place *place,
                    int *places, bool *is_truth)
{
    if (eg__failed(cx)) return false;
    parser p = { .cx = cx, .who = who, .text = text, .place = place };
    const kind k = whole(&p, true);
    *places = p.places;
    *is_truth = k == TRUTH;
    return k != BAD;
}

/* The largest power of two up to which 32 bits are enough for every intermediate; 0: none. */
static void find_narrow(eg_predicate *p)
{
    p->narrow = 0;
    for (int64_t all = 1 << 28; all >= 64 && !p->narrow; all >>= 1)
        if (eg__where_widest(p, all) <= INT32_MAX) p->narrow = all;
}
eg_predicate *eg__where_parse(eg_ctx *cx, const char *who, const char *text, int n,
                              const eg_axis_name *const *axis)
{
    if (eg__failed(cx)) return NULL;
    parser p = { .cx = cx, .who = who, .text = text, .n = n, .axis = axis };
    if (whole(&p, false) == BAD) return NULL;

    int depth = 0;
    unsigned uses = 0, sizes = 0;
    for (int i = 0; i < p.steps; i++) {
        const int op = p.step[i].code;
        depth += op <= SIZE ? 1 : op == NEG || op == NOT ? 0 : -1;
        if (depth > EG_WHERE_DEPTH)
            return where_refuse(&p, 0, p.at, NULL, "the predicate is nested too deeply"), NULL;
        if (op == INDEX) uses |= 1u << p.step[i].axis;
        if (op == SIZE) sizes |= 1u << p.step[i].axis;
    }
    eg_predicate *y = eg__alloc(cx, sizeof *y + (size_t)p.steps * sizeof(step));
    if (!y) return NULL;
    y->steps = p.steps, y->uses = uses, y->sizes = sizes, y->narrow = 0;
    memcpy(y->step, p.step, (size_t)p.steps * sizeof(step));
    find_narrow(y);
    return y;
}
unsigned eg__where_uses(const eg_predicate *p) { return p->uses; }
unsigned eg__where_sizes(const eg_predicate *p) { return p->sizes; }
void eg__where_lengthen(eg_predicate *p, int axis, int64_t offset)
{
    if (!offset || !(p->sizes >> axis & 1)) return;
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].code == SIZE && p->step[i].axis == axis) p->step[i].value = offset;
    find_narrow(p);
}
size_t eg__where_bytes(const eg_predicate *p)
{
    return sizeof *p + (size_t)p->steps * sizeof(step);
}

/* -- eg_where_mask: the predicate as a tensor ------------------------------------------------- */
eg_tensor *eg_where_mask(eg_ctx *cx, const char *where, const char *axes, int64_t offset,
                         const int64_t *sizes)
{
    static const char who[] = "where_mask";
    eg_parse_room room;
    eg_axis_name name_of[EG_RANK_MAX];
    const eg_axis_name *names[EG_RANK_MAX];
    if (!cx || eg__failed(cx)) return eg__poison(cx);
    if (!axes) return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no axes were given", who);
    const eg_parsed *p = eg__parse(cx, who, axes, EG_READ_BY_BLANKS, &room);
    if (!p) return eg__poison(cx);
    const int n = p->term[0].slots;
    if (p->terms != 1 || p->arrow)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the axes are one term, without comma or arrow");
    if (p->axes != n || p->items != n || p->term[0].dots)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the axes are different letters or names, without groups, 1 and '...'");
    if (n && !sizes) return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no sizes were given", who);
    if (offset > INT64_MAX / 2 || offset < -INT64_MAX / 2)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: the offset %lld is too large", who,
                          (long long)offset);
    for (int k = 0; k < n; k++) {
        const eg_parsed_axis *a = &p->axis[p->item[k].axis];
        if (sizes[k] < 0 || (a->size >= 0 && a->size != sizes[k]))
            return eg__caret(cx, who, axes, 1, &(eg_caret){ a->at, a->length }, NULL, NULL,
                             a->size >= 0
                                 ? "index '%.*s' is %lld, which is not the size in the string"
                                 : "index '%.*s' is given the size %lld",
                             a->length < 40 ? a->length : 40, axes + a->at, (long long)sizes[k]);
        name_of[k] = (eg_axis_name){
            .text = axes + a->at, .length = a->length, .size = sizes[k], .from = -1
        };
        names[k] = &name_of[k];
    }
    eg_predicate *w = eg__where_parse(cx, who, where, n, names);
    if (!w) return eg__poison(cx);
    eg_tensor *y = eg__new(cx, EG_BOOL, n, sizes);
    if (!eg_ok(y)) return eg__poison(cx);
    int64_t index[EG_RANK_MAX] = { 0 }, count[EG_RANK_MAX] = { 0 };
    unsigned keys = 0; /* the bracketed axes; where none is, the last */
    for (int k = 0; k < n; k++) keys |= (unsigned)p->item[k].bracket << k;
    if (!keys && n) keys = 1u << (n - 1);
    const unsigned queries = (w->uses & ~keys ? w->uses : w->sizes) & ~keys;
    if (offset && queries & (queries - 1))
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the offset %lld can move only one index of the predicate: put all "
                         "others in brackets",
                         (long long)offset);
    if (offset && queries) {
        const int query = __builtin_ctz(queries);
        index[query] = offset;
        eg__where_lengthen(w, query, offset);
    }
    const int64_t width = n ? sizes[n - 1] : 1, rows = width ? eg_size(y) / width : 0;
    uint8_t *out = (uint8_t *)y->data;
    for (int64_t r = 0; r < rows; r++, out += width) {
        if (n)
            eg__where_row(w, n - 1, width, index, sizes, out);
        else
            *out = eg__where_test(w, index, sizes);
        /* the next row */
        for (int k = n - 2; k >= 0; index[k] -= count[k], count[k] = 0, k--) {
            index[k]++;
            if (++count[k] < sizes[k]) break;
        }
    }
    return y;
}
