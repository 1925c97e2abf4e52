/* where.c: mask predicates: truths about indices.
 *
 *   truth      = both { "|" both }                                    also ||
 *   both       = denied { "&" denied }                                also &&
 *   denied     = "!" denied | comparison
 *   comparison = sum { ("==" | "!=" | "<" | "<=" | ">" | ">=") sum }  a < b <= c is a < b & b <= c
 *   sum        = product { ("+" | "-") product }
 *   product    = signed { ("*" | "/" | "%") signed }
 *   signed     = { "-" | "+" } ( number | name | "|" name "|" | "(" truth ")" )
 *
 * x / y = ⌊x / y⌋;  x % y = x − |y| ⌊x / |y|⌋, never negative;  both are 0 where y is 0. Values saturate at ±(2^63 − 1).
 * Compiled to postfix. Three evaluators: one index; a row of indices in 32 bits, where interval arithmetic has shown that no
 * intermediate leaves them; intervals, for a tile. */
#include "notation.h"
#include <eingrad/attention.h>
#include <string.h>

enum { STEPS = 256, DEPTH = 24, NESTING = 64, LANES = 128 };
typedef enum code { NUMBER, INDEX, SIZE, NEG, ADD, SUB, MUL, DIV, MOD, EQ, NE, LT, LE, GT, GE, NOT, AND, OR } code;
typedef struct step { uint8_t code, axis; int64_t value; } step;
struct eg_predicate {
    int steps;
    unsigned uses, sizes;               /* axes that occur as i, as |i|                                */
    int64_t narrow;                     /* while all |i| stay below this, every intermediate fits in 32 bits */
    step step[];
};

/* -- arithmetic ------------------------------------------------------------------------------------------------------------------ */
static int64_t clamp(int64_t v) { return v == INT64_MIN ? -INT64_MAX : v; }
static int64_t add(int64_t a, int64_t b) { int64_t v; return __builtin_add_overflow(a, b, &v) ? a > 0 ? INT64_MAX : -INT64_MAX : clamp(v); }
static int64_t sub(int64_t a, int64_t b) { return add(a, -b); }
static int64_t mul(int64_t a, int64_t b)
{ int64_t v; return __builtin_mul_overflow(a, b, &v) ? (a > 0) == (b > 0) ? INT64_MAX : -INT64_MAX : clamp(v); }
static int64_t quotient(int64_t a, int64_t b) { return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static int64_t modulus(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    const int64_t m = b < 0 ? -b : b, r = a % m;
    return r < 0 ? r + m : r;
}
static int64_t apply(int op, int64_t a, int64_t b)
{
    switch (op) {
    case ADD: return add(a, b);
    case SUB: return sub(a, b);
    case MUL: return mul(a, b);
    case DIV: return quotient(a, b);
    case MOD: return modulus(a, b);
    case EQ:  return a == b;
    case NE:  return a != b;
    case LT:  return a < b;
    case LE:  return a <= b;
    case GT:  return a > b;
    case GE:  return a >= b;
    case AND: return a & b;
    default:  return a | b;
    }
}

/* -- the parser -------------------------------------------------------------------------------------------------------------------- */
typedef enum kind { BAD, VALUE, TRUTH } kind;
typedef struct parser {
    eg_ctx *cx;
    const char *who, *text;
    int at, n, steps, nesting;
    const eg_axis_name *const *axis;
    step step[STEPS];
} parser;

static bool is_start(char c) { return (unsigned)((c | 32) - 'a') < 26 || c == '_'; }
static bool is_digit(char c) { return (unsigned)(c - '0') < 10; }
static void blanks(parser *p) { while (p->text[p->at] == ' ' || (p->text[p->at] >= '\t' && p->text[p->at] <= '\r')) p->at++; }
static kind refuse(parser *p, int at, int length, const char *hint, const char *sentence)
{
    eg__caret(p->cx, p->who, p->text, 1, &(eg_caret){ at, length }, NULL, hint, "%s", sentence);
    return BAD;
}
static bool emit(parser *p, int code_, int axis, int64_t value)
{
    if (p->steps == STEPS) return refuse(p, p->at, 1, NULL, "the predicate is too long"), false;
    p->step[p->steps++] = (step){ (uint8_t)code_, (uint8_t)axis, value };
    return true;
}
static bool is_number(const parser *p, int from, int to) { return to == from + 1 && p->step[from].code == NUMBER; }

static kind truth(parser *);

static kind name(parser *p, int code_)
{
    const int start = p->at;
    int length = 0;
    while (is_start(p->text[start + length]) || is_digit(p->text[start + length])) length++;
    p->at += length;
    for (int k = 0; k < p->n; k++)
        if (p->axis[k]->length == length && memcmp(p->axis[k]->text, p->text + start, (size_t)length) == 0) {
            if (k >= 32) return refuse(p, start, length, NULL, "a predicate reads the first 32 axes only");
            return emit(p, code_, k, 0) ? VALUE : BAD;
        }
    char known[160] = "";
    size_t used = 0;
    for (int k = 0; k < p->n && used < sizeof known; k++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s'%.*s'", k ? ", " : "",
            p->axis[k]->length < 40 ? p->axis[k]->length : 40, p->axis[k]->text);
    eg__caret(p->cx, p->who, p->text, 1, &(eg_caret){ start, length }, NULL, NULL,
        p->n ? "the predicate's index '%.*s' is not one of %s" : "the predicate's index '%.*s' is not in the string%s",
        length < 40 ? length : 40, p->text + start, known);
    return BAD;
}

static kind operand(parser *p)
{
    blanks(p);
    const int start = p->at;
    const char c = p->text[start];
    if (is_digit(c)) {
        int64_t v = 0;
        for (; is_digit(p->text[p->at]); p->at++)
            if (__builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_add_overflow(v, (int64_t)(p->text[p->at] - '0'), &v)) {
                while (is_digit(p->text[p->at])) p->at++;
                return refuse(p, start, p->at - start, NULL, "the number does not fit in 64 bits");
            }
        if (is_start(p->text[p->at])) return refuse(p, p->at, 1, "a product is written with *, as in 2 * i", "a name follows a number");
        return emit(p, NUMBER, 0, v) ? VALUE : BAD;
    }
    if (is_start(c)) return name(p, INDEX);
    if (c == '|') {
        p->at++, blanks(p);
        if (!is_start(p->text[p->at])) return refuse(p, p->at, 1, NULL, "between the bars of a size stands one index, as in |i|");
        if (name(p, SIZE) == BAD) return BAD;
        blanks(p);
        if (p->text[p->at] != '|') return refuse(p, start, 1, NULL, "the bar of a size is not closed, as in |i|");
        p->at++;
        return VALUE;
    }
    if (c == '(') {
        p->at++;
        if (++p->nesting > NESTING) return refuse(p, start, 1, NULL, "the predicate is nested too deeply");
        const kind k = truth(p);
        p->nesting--;
        if (k == BAD) return BAD;
        if (p->text[p->at] != ')') return refuse(p, start, 1, NULL, "'(' is not closed");
        p->at++;
        return k;
    }
    if (c == 0)
        return refuse(p, start, 1, NULL, start ? "the predicate ends where a number or an index is expected"
            : "the predicate is empty");
    return refuse(p, start, 1, NULL, "a number, an index or '(' is expected here");
}

static kind signs(parser *p)
{
    blanks(p);
    const int start = p->at;
    bool minus = false, any = false;
    for (; p->text[p->at] == '-' || p->text[p->at] == '+'; blanks(p)) minus ^= p->text[p->at++] == '-', any = true;
    const int from = p->steps;
    const kind k = operand(p);
    if (k == BAD || !any) return k;
    if (k == TRUTH) return refuse(p, start, 1, NULL, "a sign stands before a truth");
    if (!minus) return k;
    if (is_number(p, from, p->steps)) { p->step[from].value = -p->step[from].value; return k; }
    return emit(p, NEG, 0, 0) ? k : BAD;
}

static kind binary(parser *p, bool high) /* sums (low) and products (high) */
{
    const int from = p->steps;
    kind k = high ? signs(p) : binary(p, true);
    for (;;) {
        if (k == BAD) return k;
        blanks(p);
        const int start = p->at, right = p->steps;
        const char c = p->text[start];
        const int op = high ? c == '*' ? MUL : c == '/' ? DIV : c == '%' ? MOD : -1 : c == '+' ? ADD : c == '-' ? SUB : -1;
        if (op < 0) return k;
        p->at++;
        if (k == TRUTH) return refuse(p, start, 1, NULL, "arithmetic on a truth");
        k = high ? signs(p) : binary(p, true);
        if (k == BAD) return k;
        if (k == TRUTH) return refuse(p, start, 1, NULL, "arithmetic on a truth");
        if (is_number(p, right, p->steps) && (op == DIV || op == MOD) && p->step[right].value == 0)
            return refuse(p, start, p->at - start, NULL, "division by zero");
        if (is_number(p, from, right) && is_number(p, right, p->steps)) {
            const int64_t a = p->step[from].value, b = p->step[right].value;
            int64_t v;
            if (op == ADD ? __builtin_add_overflow(a, b, &v) : op == SUB ? __builtin_sub_overflow(a, b, &v) : op == MUL
                && __builtin_mul_overflow(a, b, &v))
                return refuse(p, start, 1, NULL, "the value does not fit in 64 bits");
            p->step[from].value = apply(op, a, b), p->steps = right;
        } else if (!emit(p, op, 0, 0)) return BAD;
    }
}

static int comparison_at(parser *p, int *length)
{
    const char *s = p->text + p->at;
    *length = s[0] && s[1] == '=' ? 2 : 1;
    if (*length == 2) return s[0] == '=' ? EQ : s[0] == '!' ? NE : s[0] == '<' ? LE : s[0] == '>' ? GE : -1;
    return s[0] == '<' ? LT : s[0] == '>' ? GT : -1;
}

static kind comparison(parser *p)
{
    int from = p->steps, end, length;   /* the code of the left operand: [from, end)                   */
    const kind k = binary(p, false);
    if (k == BAD) return k;
    end = p->steps;
    for (bool chained = false; ; chained = true) {
        blanks(p);
        const int start = p->at, op = comparison_at(p, &length);
        if (op < 0) {
            if (p->text[start] == '=') return refuse(p, start, 1, NULL, "equality is written ==");
            return chained ? TRUTH : k;
        }
        if (k == TRUTH) return refuse(p, start, length, NULL, "a truth is compared");
        p->at += length;
        for (int i = from; i < end && chained; i++)     /* a < b < c: b again                          */
            if (!emit(p, p->step[i].code, p->step[i].axis, p->step[i].value)) return BAD;
        from = p->steps;
        const kind other = binary(p, false);
        if (other == BAD) return other;
        if (other == TRUTH) return refuse(p, start, length, NULL, "a truth is compared");
        end = p->steps;
        if (!emit(p, op, 0, 0) || (chained && !emit(p, AND, 0, 0))) return BAD;
    }
}

static kind denied(parser *p)
{
    blanks(p);
    const int start = p->at;
    bool deny = false, any = false;
    for (; p->text[p->at] == '!' && p->text[p->at + 1] != '='; blanks(p)) p->at++, deny = !deny, any = true;
    const kind k = comparison(p);
    if (k == VALUE && any) return refuse(p, start, 1, NULL, "'!' stands before a number");
    return k == TRUTH && deny && !emit(p, NOT, 0, 0) ? BAD : k;
}

static kind logic(parser *p, char sign) /* '|' over '&' */
{
    kind k = sign == '|' ? logic(p, '&') : denied(p);
    for (;;) {
        if (k == BAD) return k;
        blanks(p);
        const int start = p->at;
        if (p->text[start] != sign) return k;
        p->at += p->text[start + 1] == sign ? 2 : 1;
        if (k == VALUE)
            return refuse(p, start, p->at - start, NULL, sign == '|' ? "'|' joins truths, and a number stands before it"
                : "'&' joins truths, and a number stands before it");
        k = sign == '|' ? logic(p, '&') : denied(p);
        if (k == VALUE)
            return refuse(p, start, p->at - start, NULL, sign == '|' ? "'|' joins truths, and a number stands after it"
                : "'&' joins truths, and a number stands after it");
        if (k == TRUTH && !emit(p, sign == '|' ? OR : AND, 0, 0)) return BAD;
    }
}
static kind truth(parser *p) { return logic(p, '|'); }

/* -- intervals ------------------------------------------------------------------------------------------------------------------- */
/* A number lies in [low, high]; a truth is (0, 0) never, (1, 1) always, (0, 1) unknown. Saturation is monotone, so bounds stay bounds. */
typedef struct interval { int64_t low, high; } interval;

static interval corners(int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t low = a < b ? a : b, high = a < b ? b : a, least = c < d ? c : d, most = c < d ? d : c;
    return (interval){ low < least ? low : least, high > most ? high : most };
}
static int64_t larger(interval x) { return -x.low > x.high ? -x.low : x.high; } /* largest magnitude */
static interval join(int op, interval x, interval y)
{
    switch (op) {
    case ADD: return (interval){ add(x.low, y.low), add(x.high, y.high) };
    case SUB: return (interval){ sub(x.low, y.high), sub(x.high, y.low) };
    case MUL: return corners(mul(x.low, y.low), mul(x.low, y.high), mul(x.high, y.low), mul(x.high, y.high));
    case DIV:
        if (y.low > 0 || y.high < 0)
            return corners(quotient(x.low, y.low), quotient(x.low, y.high), quotient(x.high, y.low), quotient(x.high, y.high));
        return (interval){ -larger(x), larger(x) };
    case MOD: {
        const int64_t m = larger(y);
        if (y.low == y.high && m && quotient(x.low, m) == quotient(x.high, m)) return (interval){ modulus(x.low, m), modulus(x.high, m) };
        return (interval){ 0, m ? m - 1 : 0 };
    }
    case EQ: return (interval){ x.low == x.high && y.low == y.high && x.low == y.low, x.low <= y.high && y.low <= x.high };
    case NE: return (interval){ x.high < y.low || y.high < x.low, !(x.low == x.high && y.low == y.high && x.low == y.low) };
    case LT: return (interval){ x.high <  y.low, x.low <  y.high };
    case LE: return (interval){ x.high <= y.low, x.low <= y.high };
    case GT: return (interval){ x.low >  y.high, x.high >  y.low };
    case GE: return (interval){ x.low >= y.high, x.high >= y.low };
    case AND: return (interval){ x.low & y.low, x.high & y.high };
    default:  return (interval){ x.low | y.low, x.high | y.high };
    }
}

/* `all` > 0 stands for every letter in [−all, all] and every size in [0, all]; *widest is then the largest magnitude of any number */
static interval bounds(const eg_predicate *p, const int64_t *low, const int64_t *high, const int64_t *sizes, int64_t all, int64_t *widest)
{
    interval v[DEPTH];
    int t = 0;
    for (const step *s = p->step, *end = s + p->steps; s < end; s++) {
        switch (s->code) {
        case NUMBER: v[t++] = (interval){ s->value, s->value }; break;
        case INDEX:  v[t++] = all ? (interval){ -all, all } : (interval){ clamp(low[s->axis]), clamp(high[s->axis] - 1) }; break;
        case SIZE:   v[t++] = all ? (interval){ 0, all } : (interval){ sizes[s->axis], sizes[s->axis] }; break;
        case NEG:    v[t - 1] = (interval){ -v[t - 1].high, -v[t - 1].low }; break;
        case NOT:    v[t - 1] = (interval){ !v[t - 1].high, !v[t - 1].low }; break;
        default:     t--, v[t - 1] = join(s->code, v[t - 1], v[t]); break;
        }
        if (widest && larger(v[t - 1]) > *widest) *widest = larger(v[t - 1]);
    }
    return v[0];
}

eg_three eg__where_tile(const eg_predicate *p, const int64_t *low, const int64_t *high, const int64_t *sizes)
{
    for (unsigned u = p->uses; u; u &= u - 1) if (low[__builtin_ctz(u)] >= high[__builtin_ctz(u)]) return EG_NONE;
    const interval v = bounds(p, low, high, sizes, 0, NULL);
    return v.low ? EG_EVERY : v.high ? EG_TEST : EG_NONE;
}

/* -- making ---------------------------------------------------------------------------------------------------------------------- */
const eg_predicate *eg__where_parse(eg_ctx *cx, const char *who, const char *text, int n, const eg_axis_name *const *axis)
{
    if (eg__failed(cx)) return NULL;
    if (!text) return eg_fail(cx, "%s: no predicate was given", who), NULL;
    if (strlen(text) > 4000) return eg_fail(cx, "%s: the predicate is too long", who), NULL;
    parser p = { .cx = cx, .who = who, .text = text, .n = n, .axis = axis };
    const kind k = truth(&p);
    if (k == BAD) return NULL;
    const char c = text[p.at];
    if (c == ')') return refuse(&p, p.at, 1, NULL, "')' closes nothing"), NULL;
    if (c && is_start(c)) return refuse(&p, p.at, 1, NULL, "a name stands where an operator is expected"), NULL;
    if (c > 32 && c < 127)
        return eg__caret(cx, who, text, 1, &(eg_caret){ p.at, 1 }, NULL, NULL, "character '%c' has no meaning in a predicate", c),
            NULL;
    if (c)
        return eg__caret(cx, who, text, 1, &(eg_caret){ p.at, 1 }, NULL, NULL, "byte 0x%02x has no meaning in a predicate",
            (unsigned)(unsigned char)c), NULL;
    if (k == VALUE) return refuse(&p, 0, p.at, "compare it, as in i % 2 == 0", "the predicate is a number, not a truth"), NULL;

    int depth = 0;
    unsigned uses = 0, sizes = 0;
    for (int i = 0; i < p.steps; i++) {
        const int op = p.step[i].code;
        depth += op <= SIZE ? 1 : op == NEG || op == NOT ? 0 : -1;
        if (depth > DEPTH) return refuse(&p, 0, p.at, NULL, "the predicate is nested too deeply"), NULL;
        if (op == INDEX) uses |= 1u << p.step[i].axis;
        if (op == SIZE) sizes |= 1u << p.step[i].axis;
    }
    eg_predicate *y = eg__alloc(cx, sizeof *y + (size_t)p.steps * sizeof(step));
    if (!y) return NULL;
    y->steps = p.steps, y->uses = uses, y->sizes = sizes, y->narrow = 0;
    memcpy(y->step, p.step, (size_t)p.steps * sizeof(step));
    for (int64_t all = 1 << 28; all >= 64 && !y->narrow; all >>= 1) {
        int64_t widest = 0;
        bounds(y, NULL, NULL, NULL, all, &widest);
        if (widest <= INT32_MAX) y->narrow = all;
    }
    return y;
}
unsigned eg__where_uses(const eg_predicate *p) { return p->uses; }
size_t eg__where_bytes(const eg_predicate *p) { return sizeof *p + (size_t)p->steps * sizeof(step); }

/* -- values ---------------------------------------------------------------------------------------------------------------------- */
static bool value(const eg_predicate *p, const int64_t *index, const int64_t *sizes, int run, int64_t at)
{
    int64_t v[DEPTH];
    int t = 0;
    for (const step *s = p->step, *end = s + p->steps; s < end; s++)
        switch (s->code) {
        case NUMBER: v[t++] = s->value; break;
        case INDEX:  v[t++] = clamp(s->axis == run ? at : index[s->axis]); break;
        case SIZE:   v[t++] = sizes[s->axis]; break;
        case NEG:    v[t - 1] = -v[t - 1]; break;
        case NOT:    v[t - 1] = !v[t - 1]; break;
        default:     t--, v[t - 1] = apply(s->code, v[t - 1], v[t]); break;
        }
    return v[0];
}
bool eg__where_test(const eg_predicate *p, const int64_t *index, const int64_t *sizes) { return value(p, index, sizes, -1, 0); }

/* LANES values at a time, so that the compiler sees a fixed count; a value that is the same in all lanes stays one number.
 * ⌊x / m⌋ by 64-bit floats: x / m rounds by less than 2^−21 / m while the next integer is at least 1 / m away, so truncation is exact. */
typedef struct lanes { bool flat; int32_t one, v[LANES]; } lanes;

static inline void spread(lanes *x) { if (x->flat) { x->flat = false; for (int i = 0; i < LANES; i++) x->v[i] = x->one; } }
static inline void divide(lanes *x, int32_t m, bool rest) /* x / m or x % m, m ≠ 0 */
{
    int32_t *v = x->v;
    const int32_t n = rest && m < 0 ? -m : m;
    if (n > 0 && (n & (n - 1)) == 0) {
        const int shift = __builtin_ctz((unsigned)n);
        if (rest) for (int i = 0; i < LANES; i++) v[i] = (int32_t)((uint32_t)v[i] & (uint32_t)(n - 1));
        else      for (int i = 0; i < LANES; i++) v[i] = v[i] >= 0 ? v[i] >> shift : ~(~v[i] >> shift);
        return;
    }
    const double d = n;
    for (int i = 0; i < LANES; i++) {
        const int32_t q = (int32_t)(v[i] / d), r = (int32_t)((uint32_t)v[i] - (uint32_t)q * (uint32_t)n), off = -(r != 0 && (r ^ n) < 0);
        v[i] = rest ? (int32_t)((uint32_t)r + ((uint32_t)n & (uint32_t)off)) : q + off;
    }
}
#define EACH(e) do { for (int i = 0; i < LANES; i++) v[i] = (e); } while (0)
#if HAVE_TARGET_CLONES
__attribute__((target_clones("default", "arch=x86-64-v3")))
#endif
static void row(const eg_predicate *p, int run, int64_t at, const int64_t *index, const int64_t *sizes, uint8_t *out)
{
    lanes stack[DEPTH];
    int top = 0;                        /* the first free place                                        */
    for (const step *s = p->step, *end = s + p->steps; s < end; s++) {
        if (s->code <= SIZE) {
            lanes *x = &stack[top++];
            x->flat = s->code != INDEX || s->axis != run;
            if (x->flat) x->one = (int32_t)(s->code == NUMBER ? s->value : s->code == SIZE ? sizes[s->axis] : index[s->axis]);
            else for (int i = 0; i < LANES; i++) x->v[i] = (int32_t)at + i;
            continue;
        }
        if (s->code == NEG || s->code == NOT) {
            lanes *x = &stack[top - 1];
            int32_t *v = x->v;
            if (x->flat) x->one = s->code == NEG ? -x->one : !x->one;
            else if (s->code == NEG) EACH(-v[i]); else EACH(!v[i]);
            continue;
        }
        top--;
        lanes *a = &stack[top - 1], *b = &stack[top];
        if (a->flat && b->flat) { a->one = (int32_t)apply(s->code, a->one, b->one); continue; }
        if (b->flat && (s->code == DIV || s->code == MOD) && b->one) { divide(a, b->one, s->code == MOD); continue; }
        spread(a), spread(b);
        int32_t *v = a->v;
        const int32_t *w = b->v;
        switch (s->code) {
        case ADD: EACH(v[i] + w[i]); break;
        case SUB: EACH(v[i] - w[i]); break;
        case MUL: EACH(v[i] * w[i]); break;
        case DIV: EACH((int32_t)quotient(v[i], w[i])); break;
        case MOD: EACH((int32_t)modulus(v[i], w[i])); break;
        case EQ:  EACH(v[i] == w[i]); break;
        case NE:  EACH(v[i] != w[i]); break;
        case LT:  EACH(v[i] < w[i]); break;
        case LE:  EACH(v[i] <= w[i]); break;
        case GT:  EACH(v[i] > w[i]); break;
        case GE:  EACH(v[i] >= w[i]); break;
        case AND: EACH(v[i] & w[i]); break;
        default:  EACH(v[i] | w[i]); break;
        }
    }
    if (stack[0].flat) memset(out, stack[0].one, LANES);
    else for (int i = 0; i < LANES; i++) out[i] = (uint8_t)stack[0].v[i];
}
#undef EACH

void eg__where_row(const eg_predicate *p, int run, int64_t count, const int64_t *index, const int64_t *sizes, uint8_t *out)
{
    const int64_t start = run >= 0 ? index[run] : 0, most = p->narrow - LANES;
    if (count <= 0) return;
    if (run < 0 || run >= 32 || !(p->uses >> run & 1)) { memset(out, value(p, index, sizes, -1, 0), (size_t)count); return; }
    bool narrow = start > -most && start < most && count < most - start;
    for (unsigned u = p->uses; u; u &= u - 1) { const int64_t i = index[__builtin_ctz(u)]; narrow &= i > -most && i < most; }
    for (unsigned u = p->sizes; u; u &= u - 1) narrow &= sizes[__builtin_ctz(u)] < most;
    if (!narrow) {
        for (int64_t r = 0; r < count; r++) out[r] = value(p, index, sizes, run, add(start, r));
        return;
    }
    for (int64_t r = 0; r < count; r += LANES) {
        uint8_t rest[LANES];
        const int64_t left = count - r;
        row(p, run, start + r, index, sizes, left < LANES ? rest : out + r);
        if (left < LANES) memcpy(out + r, rest, (size_t)left);
    }
}

/* -- eg_where_mask: the predicate as a tensor ------------------------------------------------------------------------------------- */
eg_tensor *eg_where_mask(eg_ctx *cx, const char *where, const char *axes, int64_t offset, const int64_t *sizes)
{
    static const char who[] = "where_mask";
    eg_parse_room room;
    eg_axis_name name_of[EG_RANK_MAX];
    const eg_axis_name *names[EG_RANK_MAX];
    if (!cx || eg__failed(cx)) return eg__poison(cx);
    if (!axes) return eg_fail(cx, "%s: no axes were given", who);
    const eg_parsed *p = eg__parse(cx, who, axes, &room);
    if (!p) return eg__poison(cx);
    const int n = p->term[0].slots;
    if (p->terms != 1 || p->arrow) return eg__caret(cx, who, axes, 0, NULL, NULL, NULL, "the axes are one term, without comma or arrow");
    if (p->axes != n || p->items != n || p->term[0].dots)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
            "the axes are different letters or names, without groups, 1 and '...'");
    if (n && !sizes) return eg_fail(cx, "%s: no sizes were given", who);
    if (offset > INT64_MAX / 2 || offset < -INT64_MAX / 2) return eg_fail(cx, "%s: the offset %lld is too large", who, (long long)offset);
    for (int k = 0; k < n; k++) {
        const eg_parsed_axis *a = &p->axis[p->item[k].axis];
        if (sizes[k] < 0 || (a->size >= 0 && a->size != sizes[k]))
            return eg__caret(cx, who, axes, 1, &(eg_caret){ a->at, a->length }, NULL, NULL,
                a->size >= 0 ? "index '%.*s' is %lld, which is not the size in the string" : "index '%.*s' is given the size %lld",
                a->length < 40 ? a->length : 40, axes + a->at, (long long)sizes[k]);
        name_of[k] = (eg_axis_name){ .text = axes + a->at, .length = a->length, .size = sizes[k], .from = -1 };
        names[k] = &name_of[k];
    }
    const eg_predicate *w = eg__where_parse(cx, who, where, n, names);
    if (!w) return eg__poison(cx);
    eg_tensor *y = eg__new(cx, EG_BOOL, n, sizes);
    if (!eg_ok(y)) return eg__poison(cx);
    int64_t index[EG_RANK_MAX] = { 0 }, count[EG_RANK_MAX] = { 0 };
    unsigned keys = 0;                  /* the bracketed axes; where none is, the last */
    for (int k = 0; k < n; k++) keys |= (unsigned)p->item[k].bracket << k;
    if (!keys && n) keys = 1u << (n - 1);
    if (offset)                         /* the query: the last axis of the predicate that is no key */
        for (int k = n - 1; k >= 0; k--) if (w->uses >> k & 1 && !(keys >> k & 1)) { index[k] = offset; break; }
    const int64_t width = n ? sizes[n - 1] : 1, rows = width ? eg_size(y) / width : 0;
    uint8_t *out = (uint8_t *)y->data;
    for (int64_t r = 0; r < rows; r++, out += width) {
        if (n) eg__where_row(w, n - 1, width, index, sizes, out); else *out = eg__where_test(w, index, sizes);
        for (int k = n - 2; k >= 0; index[k] -= count[k], count[k] = 0, k--) { /* the next row                                */
            index[k]++;
            if (++count[k] < sizes[k]) break;
        }
    }
    return y;
}
