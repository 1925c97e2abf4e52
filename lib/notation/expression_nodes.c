/* expression_nodes.c: makes the nodes of an expression for the parser: determines their kinds,
 * shares equal nodes, and folds constants. x % y of floats, c ? a : b of bools and small powers are
 * composed of several nodes. */
#include "notation/expression_parser.h"
#include "notation/integer.h"
#include <math.h>
#include <string.h>

int eg__node_add(eg_parser *p, eg_node n)
{
    n.letters = n.code == EG_X_LETTER ? 1u << n.in[0] : n.code == EG_X_SCORE ? UINT32_MAX : 0;
    for (int k = 0; k < n.count; k++) n.letters |= p->node[n.in[k]].letters;
    for (int k = 0; k < p->nodes; k++) {
        eg_node *m = &p->node[k];
        if (m->code != n.code || m->kind != n.kind || m->count != n.count ||
            m->tensor != n.tensor || m->plain != n.plain || m->integer != n.integer ||
            memcmp(m->in, n.in, sizeof n.in))
            continue;
        /* a formula keeps the shortest text of equal parts: b < c has that of a < b < c there */
        if (p->s->any_letter && n.length < m->length) m->at = n.at, m->length = n.length;
        return k;
    }
    /* the composed form reads the score as a tensor at all letters, which needs further nodes */
    if (p->nodes == EG_NODES_MAX - (p->s->score ? p->s->letters + 1 : 0))
        return eg__expression_refuse(p, p->at, 1, NULL,
                                     "the %s is too long: it has more than %d different values",
                                     p->s->noun, p->nodes);
    p->node[p->nodes] = n;
    return p->nodes++;
}
int eg__node_integer(eg_parser *p, int at, int64_t value)
{
    return eg__node_add(p, (eg_node){ .code = EG_X_INTEGER,
                                      .kind = EG_IS_INTEGER,
                                      .integer = value,
                                      .at = (uint16_t)at,
                                      .length = (uint16_t)(p->at - at) });
}
int eg__node_real(eg_parser *p, int at, double value)
{
    return eg__node_add(p, (eg_node){ .code = EG_X_FLOAT,
                                      .kind = EG_IS_FLOAT,
                                      .real = value,
                                      .at = (uint16_t)at,
                                      .length = (uint16_t)(p->at - at) });
}
int eg__node_letter(eg_parser *p, int code, int k, int at)
{
    if (k >= EG_EXPRESSION_LETTERS)
        return eg__expression_refuse(p, at, p->at - at, NULL, "a %s reads the first %d axes only",
                                     p->s->noun, EG_EXPRESSION_LETTERS);
    const int n = eg__node_add(p, (eg_node){ .code = (uint8_t)code,
                                             .kind = EG_IS_INTEGER,
                                             .in = { (uint8_t)k },
                                             .at = (uint16_t)at,
                                             .length = (uint16_t)(p->at - at) });
    if (n < 0 || !p->s->offset || k != p->s->moved) return n;
    const int offset = eg__node_integer(p, at, p->s->offset);
    return offset < 0 ? offset : eg__node_2(p, EG_X_ADD, EG_IS_INTEGER, at, n, offset);
}
int eg__node_read(eg_parser *p, int tensor, int at, int count, const int *in, bool plain)
{
    const eg_readable *x = &p->s->readable[tensor];
    eg_node n = { .code = EG_X_READ,
                  .kind = x->dtype == EG_BOOL                                 ? EG_IS_CONDITION
                          : eg__is_inexact(x->dtype) || eg__is_half(x->dtype) ? EG_IS_FLOAT
                                                                              : EG_IS_INTEGER,
                  .count = (uint8_t)count,
                  .tensor = (uint8_t)tensor,
                  .plain = plain,
                  .at = (uint16_t)at,
                  .length = (uint16_t)(p->at - at) };
    for (int k = 0; k < count; k++) n.in[k] = (uint8_t)in[k];
    if (p->s->predicate && n.kind == EG_IS_FLOAT)
        return eg__expression_refuse(p, at, n.length,
                                     "eg_expr makes a bool tensor of a condition on floats",
                                     "'%.40s' is %s, and a predicate reads integers and booleans",
                                     x->name, eg_type_name(x->was));
    return eg__node_add(p, n);
}
int eg__node_float(eg_parser *p, int at, int k)
{
    if (k < 0 || eg__node_kind(p, k) == EG_IS_FLOAT) return k;
    if (p->s->predicate)
        return eg__expression_refuse(
            p, at, p->at - at, NULL,
            "a predicate consists of integers and booleans, not of floats");
    if (eg__node_is_constant(p, k)) return eg__node_real(p, p->node[k].at, eg__node_constant(p, k));
    return eg__node_add(p, (eg_node){ .code = EG_X_TO_FLOAT,
                                      .kind = EG_IS_FLOAT,
                                      .count = 1,
                                      .in = { (uint8_t)k },
                                      .at = p->node[k].at,
                                      .length = p->node[k].length });
}
/* Adds operation `code` of nodes of one kind. If all operands are constants, the result is a
 * constant: for integers always, for floats if the operation is − + * or /. */
static int node_operation(eg_parser *p, int code, int kind, int at, int count, const int *in)
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
        constant &= eg__node_is_constant(p, in[k]);
    }
    if (!constant) return eg__node_add(p, n);
    if (kind == EG_IS_INTEGER && eg__node_kind(p, in[0]) == EG_IS_INTEGER) {
        int64_t v[3] = { 0 };
        for (int k = 0; k < count; k++) v[k] = p->node[in[k]].integer;
        return eg__node_integer(
            p, at, eg__integer(code, v[0], count > 1 ? v[1] : 0, count > 2 ? v[2] : 0));
    }
    const double a = eg__node_constant(p, in[0]), b = count > 1 ? eg__node_constant(p, in[1]) : 0;
    if (kind == EG_IS_FLOAT && code == EG_X_NEG) return eg__node_real(p, at, -a);
    if (kind == EG_IS_FLOAT && code == EG_X_ADD) return eg__node_real(p, at, a + b);
    if (kind == EG_IS_FLOAT && code == EG_X_SUB) return eg__node_real(p, at, a - b);
    if (kind == EG_IS_FLOAT && code == EG_X_MUL) return eg__node_real(p, at, a * b);
    if (kind == EG_IS_FLOAT && code == EG_X_DIV) return eg__node_real(p, at, a / b);
    return eg__node_add(p, n);
}
int eg__node_1(eg_parser *p, int code, int at, int a)
{
    const int kind = a < 0 || code == EG_X_NOT ? EG_IS_CONDITION : eg__node_kind(p, a);
    return a < 0 ? -1 : node_operation(p, code, kind, at, 1, &a);
}
int eg__node_2(eg_parser *p, int code, int kind, int at, int a, int b)
{
    return node_operation(p, code, kind, at, 2, (const int[]){ a, b });
}
/* For bools, c ? a : b is (c & a) | (!c & b). */
int eg__node_select(eg_parser *p, int at, int c, int a, int b)
{
    if (eg__node_kind(p, a) != EG_IS_CONDITION && eg__node_kind(p, b) != EG_IS_CONDITION) {
        if (eg__node_kind(p, a) != eg__node_kind(p, b))
            a = eg__node_float(p, at, a), b = a < 0 ? -1 : eg__node_float(p, at, b);
        if (a < 0 || b < 0) return -1;
        return node_operation(p, EG_X_SELECT, eg__node_kind(p, a), at, 3, (const int[]){ c, a, b });
    }
    const int yes = eg__node_2(p, EG_X_AND, EG_IS_CONDITION, at, c, a);
    const int no = yes < 0 ? -1 : eg__node_1(p, EG_X_NOT, at, c);
    const int other = no < 0 ? -1 : eg__node_2(p, EG_X_AND, EG_IS_CONDITION, at, no, b);
    return other < 0 ? -1 : eg__node_2(p, EG_X_OR, EG_IS_CONDITION, at, yes, other);
}
/* Adds x % y of floats: r = x − |y| ⌊x / |y|⌋, plus |y| if rounding made r negative. */
static int node_modulus(eg_parser *p, int at, int x, int y)
{
    const int m = eg__node_1(p, EG_X_ABS, at, y);
    int q = m < 0 ? -1 : eg__node_2(p, EG_X_DIV, EG_IS_FLOAT, at, x, m);
    q = eg__node_1(p, EG_X_FLOOR, at, q);
    q = q < 0 ? -1 : eg__node_2(p, EG_X_MUL, EG_IS_FLOAT, at, m, q);
    const int r = q < 0 ? -1 : eg__node_2(p, EG_X_SUB, EG_IS_FLOAT, at, x, q),
              zero = eg__node_real(p, at, 0);
    if (r < 0 || zero < 0) return -1;
    const int low = eg__node_2(p, EG_X_LT, EG_IS_CONDITION, at, r, zero);
    const int up = low < 0 ? -1 : eg__node_2(p, EG_X_ADD, EG_IS_FLOAT, at, r, m);
    return up < 0 ? -1 : eg__node_select(p, at, low, up, r);
}
/* Adds a^b; without a call of pow if b is −1, 1, 2 or 3. */
static int node_power(eg_parser *p, int at, int a, int b)
{
    const double c = eg__node_is_constant(p, b) ? eg__node_constant(p, b) : NAN;
    if (c == 1) return a;
    if (c == -1) {
        const int one = eg__node_real(p, at, 1);
        return one < 0 ? -1 : eg__node_2(p, EG_X_DIV, EG_IS_FLOAT, at, one, a);
    }
    if (c != 2 && c != 3) return eg__node_2(p, EG_X_POW, EG_IS_FLOAT, at, a, b);
    const int square = eg__node_2(p, EG_X_MUL, EG_IS_FLOAT, at, a, a);
    return c == 2 || square < 0 ? square : eg__node_2(p, EG_X_MUL, EG_IS_FLOAT, at, square, a);
}
int eg__node_numbers(eg_parser *p, int code, bool integer, int at, int count, int *in)
{
    for (int k = 0; k < count; k++) integer &= eg__node_kind(p, in[k]) == EG_IS_INTEGER;
    for (int k = 0; k < count && !integer; k++)
        if ((in[k] = eg__node_float(p, at, in[k])) < 0) return -1;
    if (integer) return node_operation(p, code, EG_IS_INTEGER, at, count, in);
    if (code == EG_X_MOD) return node_modulus(p, at, in[0], in[1]);
    if (code == EG_X_POW) return node_power(p, at, in[0], in[1]);
    return node_operation(p, code, EG_IS_FLOAT, at, count, in);
}

/* -- additions -------------------------------------------------------------------------------- */
/* Returns the position along letter k without the offset. */
static int unmoved_letter(eg_parser *p, int k)
{
    return eg__node_add(
        p, (eg_node){ .code = EG_X_LETTER, .kind = EG_IS_INTEGER, .in = { (uint8_t)k } });
}
/* Returns the element that an addition reads from its tensor. */
static int added_read(eg_parser *p, const eg_addition *a)
{
    const eg_dtype t = p->s->readable[a->tensor].dtype;
    eg_node n = { .code = EG_X_READ,
                  .kind = t == EG_BOOL                 ? EG_IS_CONDITION
                          : t == EG_I32 || t == EG_I64 ? EG_IS_INTEGER
                                                       : EG_IS_FLOAT,
                  .count = a->count,
                  .tensor = a->tensor };
    for (int r = 0; r < a->count; r++) {
        const int k = unmoved_letter(p, a->letter[r]);
        if (k < 0) return -1;
        n.in[r] = (uint8_t)k;
    }
    return eg__node_add(p, n);
}
/* Returns the bool or the number that an addition adds to the value of the text. */
static int added_value(eg_parser *p, const eg_addition *a)
{
    const int x = added_read(p, a), at = p->at;
    int i, j;
    if (x < 0) return -1;
    switch (a->kind) {
    case EG_ADD_DISTANCE:
        i = eg__node_letter(p, EG_X_LETTER, a->i, at);
        j = eg__node_letter(p, EG_X_LETTER, a->j, at);
        if (i < 0 || j < 0) return -1;
        i = eg__node_1(p, EG_X_ABS, at, eg__node_2(p, EG_X_SUB, EG_IS_INTEGER, at, i, j));
        i = i < 0 ? -1 : eg__node_float(p, at, i);
        return i < 0 ? -1 : eg__node_2(p, EG_X_MUL, EG_IS_FLOAT, at, x, i);
    case EG_ADD_KEEP:
        if (eg__node_kind(p, x) == EG_IS_CONDITION) return x;
        i = eg__node_integer(p, at, 0);
        return i < 0 ? -1 : eg__node_2(p, EG_X_NE, EG_IS_CONDITION, at, x, i);
    case EG_ADD_LENGTH:
        j = unmoved_letter(p, a->j);
        return j < 0 ? -1 : eg__node_2(p, EG_X_LT, EG_IS_CONDITION, at, j, x);
    case EG_ADD_NO_INFINITY:
        i = eg__node_real(p, at, -INFINITY);
        return i < 0 ? -1 : eg__node_2(p, EG_X_NE, EG_IS_CONDITION, at, x, i);
    default: return x;
    }
}
int eg__node_additions(eg_parser *p, int root, int *strict)
{
    const eg_expression_source *s = p->s;
    int e = root;
    if (e < 0 && !s->predicate)
        root = e = eg__node_add(p, (eg_node){ .code = EG_X_SCORE, .kind = EG_IS_FLOAT });
    for (int k = 0; k < s->additions; k++) {
        const eg_addition *a = &s->addition[k];
        const int x = added_value(p, a);
        if (x < 0) return -2;
        if (s->predicate)
            e = e < 0 ? x : eg__node_2(p, EG_X_AND, EG_IS_CONDITION, p->at, e, x);
        else
            e = eg__node_2(p, a->kind == EG_ADD_DISTANCE ? EG_X_SUB : EG_X_ADD, EG_IS_FLOAT, p->at,
                           e, x);
        if (e < 0) return -2;
        if (a->kind != EG_ADD_NO_INFINITY) root = e;
    }
    *strict = e;
    return root;
}
