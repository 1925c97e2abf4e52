/* expression_operators.c: parses the operators of an expression, from signs up to c ? a : b. */
#include "notation/expression_parser.h"

bool eg__may_be_condition(const eg_node *node, int k)
{
    const eg_node *n = &node[k];
    return n->kind == EG_IS_CONDITION || (n->code == EG_X_READ && n->tensor >= EG_TENSORS_MAX) ||
           (n->code == EG_X_SELECT && eg__may_be_condition(node, n->in[1]) &&
            eg__may_be_condition(node, n->in[2]));
}
static const char as_number[] = "a condition c as a number is (c ? 1 : 0)";

/* Parses an operand with any number of signs before it. */
static int signs(eg_parser *p)
{
    eg__expression_blanks(p);
    const int at = p->at;
    bool minus = false, any = false;
    for (; p->text[p->at] == '-' || p->text[p->at] == '+'; eg__expression_blanks(p))
        minus ^= p->text[p->at++] == '-', any = true;
    const int k = eg__parse_operand(p);
    if (k < 0 || !any) return k;
    if (eg__node_kind(p, k) == EG_IS_CONDITION)
        return eg__expression_refuse(p, at, 1, as_number, "a condition cannot have a sign");
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
    eg__expression_blanks(p);
    const int from = p->at;
    int k = high ? signs(p) : arithmetic(p, true);
    for (;;) {
        if (k < 0) return k;
        eg__expression_blanks(p);
        const int at = p->at, code = code_of(high, p->text[at]);
        if (code < 0) return k;
        p->at++;
        if (eg__node_kind(p, k) == EG_IS_CONDITION)
            return eg__expression_refuse(p, at, 1, as_number, "arithmetic on a condition");
        eg__expression_blanks(p);
        const bool digits = p->text[p->at] >= '0' && p->text[p->at] <= '9';
        const int other = high ? signs(p) : arithmetic(p, true);
        if (other < 0) return other;
        if (eg__node_kind(p, other) == EG_IS_CONDITION)
            return eg__expression_refuse(p, at, 1, as_number, "arithmetic on a condition");
        const eg_node *a = &p->node[k], *b = &p->node[other];
        if (b->code == EG_X_INTEGER && a->kind == EG_IS_INTEGER) {
            int64_t v;
            /* a constant like (1 - 1) may have the value of a letter in it (eg_formula_replace) */
            if (b->integer == 0 && digits && (code == EG_X_DIV || code == EG_X_MOD))
                return eg__expression_refuse(p, at, p->at - at, NULL, "division by zero");
            if (a->code == EG_X_INTEGER &&
                (code == EG_X_ADD ? __builtin_add_overflow(a->integer, b->integer, &v)
                 : code == EG_X_SUB
                     ? __builtin_sub_overflow(a->integer, b->integer, &v)
                     : code == EG_X_MUL && __builtin_mul_overflow(a->integer, b->integer, &v)))
                return eg__expression_refuse(p, at, 1, NULL, "the value does not fit in 64 bits");
        }
        int in[2] = { k, other };
        k = eg__node_numbers(p, code, true, from, 2, in);
    }
}
/* Returns the code of the comparison at the current byte, and its length; −1 if there is none. */
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
/* Adds a == b or a != b of conditions: (a & b) | (!a & !b) or (a & !b) | (!a & b). */
static int condition_equality(eg_parser *p, int code, int at, int a, int b)
{
    const int denied = eg__node_1(p, EG_X_NOT, at, b);
    if (denied < 0) return denied;
    return eg__node_select(p, at, a, code == EG_X_EQ ? b : denied, code == EG_X_EQ ? denied : b);
}
/* Adds the comparison of a and b, numbers or, for == and !=, conditions. The operator is the
 * `length` bytes at byte `at`. */
static int comparison_node(eg_parser *p, int code, int from, int at, int length, int a, int b)
{
    const bool equality = code == EG_X_EQ || code == EG_X_NE;
    if (eg__node_kind(p, a) == EG_IS_CONDITION || eg__node_kind(p, b) == EG_IS_CONDITION) {
        if (equality && eg__may_be_condition(p->node, a) && eg__may_be_condition(p->node, b))
            return condition_equality(p, code, from, a, b);
        return eg__expression_refuse(p, at, length, as_number,
                                     equality ? "a condition is compared with a number"
                                              : "a condition is compared");
    }
    if (eg__node_kind(p, a) != eg__node_kind(p, b))
        a = eg__node_float(p, from, a), b = eg__node_float(p, from, b);
    return a < 0 || b < 0 ? -1 : eg__node_2(p, code, EG_IS_CONDITION, from, a, b);
}
/* Parses comparisons, which chain: a < b < c is a < b & b < c. */
static int comparison(eg_parser *p)
{
    eg__expression_blanks(p);
    const int from = p->at;
    int left = arithmetic(p, false), condition = -1, length;
    if (left < 0) return left;
    for (;;) {
        eg__expression_blanks(p);
        const int at = p->at, code = comparison_at(p, &length);
        if (code < 0) {
            if (p->text[at] == '=' && strchr("<>", p->text[at + 1]) && p->text[at + 1])
                return eg__expression_refuse(
                    p, at, 2, NULL, "'=%c' is written %c=", p->text[at + 1], p->text[at + 1]);
            if (p->text[at] == '=')
                return eg__expression_refuse(p, at, 1, NULL, "equality is written ==");
            return condition >= 0 ? condition : left;
        }
        p->at += length;
        const int right = arithmetic(p, false);
        const int is = right < 0 ? -1 : comparison_node(p, code, from, at, length, left, right);
        if (is < 0) return is;
        condition =
            condition < 0 ? is : eg__node_2(p, EG_X_AND, EG_IS_CONDITION, from, condition, is);
        if (condition < 0) return condition;
        left = right;
    }
}
/* Parses a comparison with any number of '!' before it. */
static int negation(eg_parser *p)
{
    eg__expression_blanks(p);
    const int at = p->at;
    bool deny = false, any = false;
    for (; p->text[p->at] == '!' && p->text[p->at + 1] != '='; eg__expression_blanks(p))
        p->at++, deny = !deny, any = true;
    const int k = comparison(p);
    if (k >= 0 && any && !eg__may_be_condition(p->node, k))
        return eg__expression_refuse(p, at, 1, NULL, "'!' needs a condition, but a number follows");
    return k >= 0 && deny ? eg__node_1(p, EG_X_NOT, at, k) : k;
}
/* Parses conditions joined by `sign`; '|' binds less tightly than '&'. */
static int logic(eg_parser *p, char sign)
{
    eg__expression_blanks(p);
    const int from = p->at;
    int k = sign == '|' ? logic(p, '&') : negation(p);
    for (;;) {
        if (k < 0) return k;
        eg__expression_blanks(p);
        const int at = p->at;
        if (p->text[at] != sign) return k;
        p->at += p->text[at + 1] == sign ? 2 : 1;
        const int length = p->at - at;
        if (!eg__may_be_condition(p->node, k))
            return eg__expression_refuse(p, at, length, NULL,
                                         "'%c' joins conditions, but there is a number before it",
                                         sign);
        const int other = sign == '|' ? logic(p, '&') : negation(p);
        if (other < 0) return other;
        if (!eg__may_be_condition(p->node, other))
            return eg__expression_refuse(
                p, at, length, NULL, "'%c' joins conditions, but there is a number after it", sign);
        k = eg__node_2(p, sign == '|' ? EG_X_OR : EG_X_AND, EG_IS_CONDITION, from, k, other);
    }
}
/* Parses a condition or number, or c ? a : b, where a and b may be choices too. */
int eg__parse_choice(eg_parser *p)
{
    eg__expression_blanks(p);
    const int from = p->at, c = logic(p, '|');
    if (c < 0) return c;
    eg__expression_blanks(p);
    const int at = p->at;
    if (p->text[at] != '?') return c;
    if (!eg__may_be_condition(p->node, c))
        return eg__expression_refuse(p, at, 1, "compare it, as in i % 2 == 0",
                                     "'?' needs a condition before it, and this is a number");
    if (!eg__expression_enter(p, at)) return -1;
    p->at++;
    const int a = eg__parse_choice(p);
    if (a < 0) return a;
    eg__expression_blanks(p);
    const int colon = p->at;
    if (p->text[colon] != ':')
        return eg__expression_refuse(p, colon, 1, NULL, "'?' has no ':' after its first value");
    p->at++;
    const int b = eg__parse_choice(p);
    if (b < 0) return b;
    p->nesting--;
    const bool condition = eg__may_be_condition(p->node, a) && eg__may_be_condition(p->node, b);
    if (!condition &&
        (eg__node_kind(p, a) == EG_IS_CONDITION) != (eg__node_kind(p, b) == EG_IS_CONDITION))
        return eg__expression_refuse(p, colon, 1, NULL,
                                     "one of the two values is a condition, the other a number");
    return eg__node_select(p, from, c, a, b);
}
