/* expression.c: parses predicates, scores and formulas of eg_expr by recursive descent.
 *
 *   choice     = condition [ "?" choice ":" choice ]
 *   condition  = both { "|" both }                                    also ||
 *   both       = denied { "&" denied }                                also &&
 *   denied     = "!" denied | comparison
 *   comparison = sum { ("==" | "!=" | "<" | "<=" | ">" | ">=") sum }  a < b <= c is a < b & b <= c
 *   sum        = product { ("+" | "-") product }
 *   product    = signed { ("*" | "/" | "%") signed }
 *   signed     = { "-" | "+" } operand
 *   operand    = number | letter | "|" letter "|" | "(" choice ")" | "score" | tensor
 *              | tensor "[" choice { "," choice } "]" | function "(" choice { "," choice } ")"
 *              | ( "sum" | "any" | "all" ) "(" letter [ "=" number ] "," choice ")"
 *
 * For integers x / y = ⌊x / y⌋ and x % y = x − |y| ⌊x / |y|⌋ ≥ 0; both are 0 if y is 0. Integers
 * saturate at ±(2^63 − 1). If one operand is a float, the other one is converted to float. */
#include "notation/expression_parser.h"
#include <string.h>

int eg__expression_refuse(eg_parser *p, int at, int length, const char *hint, const char *format,
                          ...)
{
    char sentence[400];
    va_list list;
    va_start(list, format);
    eg__vsentence(sentence, sizeof sentence, format, list);
    va_end(list);
    eg__caret(p->cx, p->s->who, p->text, 1, &(eg_caret){ at, length }, NULL, hint, "%s", sentence);
    return -1;
}

int eg__expression_stray(eg_parser *p)
{
    char where[40];
    const char *hint = eg__foreign_operator(p->text, p->at);
    if (hint)
        return eg__expression_refuse(p, p->at, 1, hint, "character '%c' has no meaning in %s %s",
                                     p->text[p->at], p->s->noun[0] == 'e' ? "an" : "a", p->s->noun);
    snprintf(where, sizeof where, "in %s %s", p->s->noun[0] == 'e' ? "an" : "a", p->s->noun);
    return eg__caret_stray(p->cx, p->s->who, p->text, p->at, where), -1;
}
int eg__expression_unexpected(eg_parser *p, char close, int open)
{
    const int at = p->at;
    const char c = p->text[at];
    if (!c) return eg__expression_refuse(p, open, 1, NULL, "'%c' is not closed", p->text[open]);
    if (eg__name_starts(c) || eg__digit(c))
        return eg__expression_refuse(p, at, eg__name_starts(c) ? eg__name_length(p) : 1,
                                     eg__foreign_name(p->text + at, eg__name_length(p)),
                                     "a %s where an operator is expected",
                                     eg__digit(c) ? "number" : "name");
    if (close && strchr(",)]:", c))
        return eg__expression_refuse(p, at, 1, NULL, "'%c' where '%c' is expected", c, close);
    if (c == ')' || c == ']')
        return eg__expression_refuse(p, at, 1, NULL, "'%c' closes nothing", c);
    return eg__expression_stray(p);
}

/* True if the names of .with are valid names without another meaning; else records an error. */
static bool names_clear(eg_parser *p)
{
    const eg_expression_source *s = p->s;
    for (int k = 0; k < s->given; k++) {
        const char *name = s->readable[k].name, *as = NULL;
        int n = 0;
        while (eg__name_starts(name[n]) || (n && eg__digit(name[n]))) n++;
        bool twice = false;
        for (int j = 0; j < k; j++) twice |= !strcmp(name, s->readable[j].name);
        if (!n || name[n])
            return eg_fail_as(p->cx, EG_ERROR_NOTATION,
                              "%s: \"%.40s\" in .with is not a name: it has other characters than "
                              "letters, digits and _",
                              s->who, name),
                   false;
        if (twice)
            as = "occurs twice in .with";
        else if (eg__letter_called(p, name, n) >= 0)
            as = "is a letter and cannot be a tensor's name too";
        else if (eg__function_called(name, n))
            as = "is a function and cannot be a tensor's name too";
        else if (s->score && !strcmp(name, "score"))
            as = "is the score and cannot be a tensor's name too";
        if (as)
            return eg__names_refuse(p->cx, s->who, s->text, NULL, 1, &name, EG_ERROR_NOTATION,
                                    "'%.40s' %s", name, as);
    }
    return true;
}
/* Parses the whole text and returns its root, a condition or a number as the source requires; −1
 * after an error. */
static int whole_text(eg_parser *p)
{
    const eg_expression_source *s = p->s;
    const int k = eg__parse_choice(p);
    if (k < 0) return -1;
    eg__expression_blanks(p);
    if (p->text[p->at]) return eg__expression_unexpected(p, 0, 0);
    if (s->predicate && !s->any_kind && !eg__may_be_condition(p->node, k))
        return eg__expression_refuse(p, 0, p->at, "compare it, as in i % 2 == 0",
                                     "the %s is a number, not a condition", s->noun);
    if (!s->number) return k;
    if (eg__node_kind(p, k) == EG_IS_CONDITION)
        return eg__expression_refuse(p, 0, p->at, "choose by it, as in j <= i ? score : 0",
                                     "the %s is a condition, not a number", s->noun);
    return eg__node_float(p, 0, k);
}

/* The nodes are on the stack, and are copied to the open scope at the end. */
eg_expression *eg__expression_parse(eg_ctx *cx, const eg_expression_source *s)
{
    if (eg__failed(cx)) return NULL;
    if (!s->text && !s->additions)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no %s was given", s->who, s->noun), NULL;
    const size_t length = s->text ? strlen(s->text) : 0;
    if (length > EG_TEXT_MAX)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: the %s has %zu bytes, more than %d", s->who,
                          s->noun, length, EG_TEXT_MAX),
               NULL;
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
    for (int k = p.nodes; k-- > 0;) { /* nodes that constant folding left unused do not count */
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
