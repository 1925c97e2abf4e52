/* expression_sums.c: parses sum(k=8, w[k] * x[h, k]), any(k=2, …) and all(k=2, …), reductions over
 * a letter of their own. The text after the comma is parsed once for each position of the letter,
 * which is an integer constant there, so that a reduction has the nodes of the written-out text:
 *
 *   sum(k=3, e(k)) = e(0) + e(1) + e(2)        any: e(0) | e(1) | e(2)        all: e(0) & e(1) & …
 */
#include "notation/expression_parser.h"
#include <string.h>

enum { TERMS_MAX = 4096 }; /* terms of all reductions of a text */
static const struct {
    const char *name;
    uint8_t code;
} reductions[] = { { "sum", EG_X_ADD }, { "any", EG_X_OR }, { "all", EG_X_AND } };

int eg__reduction_called(const char *text, int length)
{
    for (int k = 0; k < (int)(sizeof reductions / sizeof *reductions); k++)
        if (eg__name_is(reductions[k].name, text, length)) return k;
    return -1;
}
const char *eg__reduction_name(int k)
{
    return k < (int)(sizeof reductions / sizeof *reductions) ? reductions[k].name : NULL;
}
int eg__own_letter_called(const eg_parser *p, const char *text, int length)
{
    for (int k = p->owns; k-- > 0;)
        if (p->own[k].length == length && !memcmp(p->text + p->own[k].at, text, (size_t)length))
            return k;
    return -1;
}
bool eg__own_letter_sized(eg_parser *p, int at, int length, const eg_readable *x, int axis)
{
    const int k = eg__own_letter_called(p, p->text + at, length);
    if (k < 0 || p->own[k].given || p->own[k].size == x->dim[axis]) return true;
    if (p->own[k].size < 0) return p->own[k].size = x->dim[axis], true;
    eg__expression_refuse(p, at, length, NULL,
                          "letter '%.*s' is %lld, but axis %d of '%.40s' is %lld",
                          eg__limited(length), p->text + at, (long long)p->own[k].size, axis,
                          x->name, (long long)x->dim[axis]);
    return false;
}

/* Parses the letter with its size, "k=8" or "k", and the comma after it. False after an error: it
 * is no name or has another meaning, its size is not a number from 1 on, or there is no comma. */
static bool own_letter_read(eg_parser *p, const char *of, int open, eg_own_letter *own)
{
    eg__expression_blanks(p);
    const int at = p->at, length = eg__name_starts(p->text[at]) ? eg__name_length(p) : 0;
    const char *name = p->text + at, *as = NULL;
    *own = (eg_own_letter){ .at = at, .length = length, .size = -1 };
    p->at += length;
    eg__expression_blanks(p);
    if (p->text[p->at] == '=' && eg__digit(p->text[p->at + 1 + (p->text[p->at + 1] == ' ')])) {
        own->given = true;
        for (own->size = 0, p->at++; p->text[p->at] == ' ';) p->at++;
        for (; eg__digit(p->text[p->at]); p->at++)
            if (own->size <= TERMS_MAX) own->size = own->size * 10 + (p->text[p->at] - '0');
        eg__expression_blanks(p);
    }
    if (!length || p->text[p->at] != ',')
        return eg__expression_refuse(p, open, 1, NULL,
                                     "%s begins with a letter of its own, as in %s(k=8, …)", of,
                                     of),
               false;
    if (eg__letter_called(p, name, length) >= 0)
        as = "is a letter already";
    else if (eg__own_letter_called(p, name, length) >= 0)
        as = "is the letter of another reduction around it";
    else if (eg__function_called(name, length) ||
             (p->s->score && eg__name_is("score", name, length)))
        as = "has another meaning";
    for (int k = 0; k < p->s->given && !as; k++)
        if (eg__name_is(p->s->readable[k].name, name, length)) as = "is a tensor of .with";
    if (as)
        return eg__expression_refuse(p, at, length, NULL, "'%.*s' %s", eg__limited(length), name,
                                     as),
               false;
    if (own->given && own->size < 1)
        return eg__expression_refuse(p, at, p->at - at, NULL, "%s has at least one term", of),
               false;
    p->at++;
    return true;
}
/* Parses one term. Returns its node; −1 after an error: it is of the wrong kind, or there are more
 * than TERMS_MAX. */
static int term_of_reduction(eg_parser *p, int reduction)
{
    const char *of = reductions[reduction].name;
    const bool sum = reductions[reduction].code == EG_X_ADD;
    eg__expression_blanks(p);
    const int at = p->at;
    if (++p->terms > TERMS_MAX)
        return eg__expression_refuse(p, at, 1, NULL,
                                     "the reductions of the %s have more than %d terms", p->s->noun,
                                     TERMS_MAX);
    const int k = eg__parse_choice(p);
    if (k < 0) return k;
    if (sum ? eg__node_kind(p, k) == EG_IS_CONDITION : !eg__may_be_condition(p->node, k))
        return eg__expression_refuse(p, at, p->at - at, NULL, "%s takes %s, and this is a %s", of,
                                     sum ? "numbers" : "conditions", sum ? "condition" : "number");
    return k;
}
/* Returns node k, the terms of any or all from byte `at` on, as a node of its own, for a source
 * that only describes the text: its conditions are not joined with those outside of the brackets.
 * The byte makes it different from others. */
static int whole_reduction(eg_parser *p, int k, int at)
{
    const int here = eg__node_integer(p, at, at);
    if (k < 0 || here < 0) return -1;
    return eg__node_add(p, (eg_node){ .code = EG_X_READ,
                                      .kind = EG_IS_CONDITION,
                                      .count = 2,
                                      .tensor = EG_TENSORS_MAX,
                                      .in = { (uint8_t)k, (uint8_t)here },
                                      .at = (uint16_t)at,
                                      .length = (uint16_t)(p->at - at) });
}
int eg__parse_reduction(eg_parser *p, int reduction, int at)
{
    const char *of = reductions[reduction].name;
    const int code = reductions[reduction].code, open = p->at++;
    eg_own_letter own;
    if (!eg__expression_enter(p, open) || !own_letter_read(p, of, open, &own)) return -1;
    if (p->owns == EG_OWN_LETTERS)
        return eg__expression_refuse(p, own.at, own.length, NULL,
                                     "more than %d reductions are in each other", EG_OWN_LETTERS);
    eg_own_letter *letter = &p->own[p->owns++];
    const int body = p->at;
    int all = -1;
    *letter = own;
    do {
        p->at = body;
        int in[2] = { all, term_of_reduction(p, reduction) };
        if (in[1] < 0) return -1;
        if (letter->size < 0 && !p->s->occurrence)
            return eg__expression_refuse(
                p, own.at, own.length, NULL,
                "letter '%.*s' has no size: it is no index of a tensor; write '%.*s=8'",
                eg__limited(own.length), p->text + own.at, eg__limited(own.length),
                p->text + own.at);
        all = !letter->position  ? in[1]
              : code == EG_X_ADD ? eg__node_numbers(p, code, true, at, 2, in)
                                 : eg__node_2(p, code, EG_IS_CONDITION, at, in[0], in[1]);
        if (all < 0) return -1;
    } while (++letter->position < letter->size && !p->s->occurrence);
    eg__expression_blanks(p);
    p->owns--, p->nesting--;
    if (p->text[p->at] != ')') return eg__expression_unexpected(p, ')', open);
    p->at++;
    return p->s->occurrence && code != EG_X_ADD ? whole_reduction(p, all, at) : all;
}
