/* formula.c: eingrad/notation.h: a predicate or a number over indices as data: which indices it has
 * and where they stand. The parser of expression.c finds the places; an edit writes something else
 * there and parses the result. */
#include "notation/notation.h"
#include <eingrad/notation.h>
#include <string.h>

/* A place in an eg_formula; index: which of its names. */
typedef struct eg__formula_place {
    int from, to, index;
    bool size;
} eg__formula_place;
/* A formula of that text with room for its places, which are in order of the text. */
static eg_formula *formula_of(eg_ctx *cx, const char *who, const char *text, bool truth, int places,
                              const eg_name_place *at)
{
    const size_t n = (size_t)places, length = strlen(text) + 1, whose = strlen(who) + 1;
    size_t names = 0;
    for (size_t k = 0; k < n; k++) names += (size_t)at[k].length + 1;
    char *block =
        eg__alloc(cx, sizeof(eg_formula) + n * (sizeof(eg__formula_place) + 2 * sizeof(char *)) +
                          names + length + whose);
    if (!block) return NULL;
    eg_formula *f = (void *)block;
    eg__formula_place *place = (void *)(f + 1);
    const char **index = (void *)(place + n), **tensor = index + n;
    char *name = (char *)(tensor + n), *copy = name + names;
    *f = (eg_formula){ .text = memcpy(copy, text, length),
                       .truth = truth,
                       .index = index,
                       .tensor = tensor,
                       .cx = cx,
                       .who = memcpy(copy + length, who, whose),
                       .place = place };
    for (size_t k = 0; k < n; k++) {
        memcpy(name, text + at[k].name, (size_t)at[k].length);
        name[at[k].length] = 0;
        const char **of = at[k].tensor ? tensor : index;
        int *count = at[k].tensor ? &f->tensors : &f->indices, i = 0;
        while (i < *count && strcmp(of[i], name)) i++;
        if (i == *count) {
            of[(*count)++] = name;
            name += at[k].length + 1;
        }
        if (!at[k].tensor)
            place[f->places++] = (eg__formula_place){ at[k].from, at[k].to, i, at[k].size };
    }
    return f;
}

/* The places make a frame of some kilobytes, which calls that go on do not keep. */
static __attribute__((noinline)) const eg_formula *formula_read(eg_ctx *cx, const char *who,
                                                                const char *text, bool score)
{
    eg_name_place place[EG_PLACES_MAX];
    int places = 0;
    const eg_expression *e =
        eg__expression_parse(cx, &(eg_expression_source){ .who = who,
                                                          .text = text,
                                                          .noun = score ? "score" : "predicate",
                                                          .predicate = !score,
                                                          .score = score,
                                                          .place = place,
                                                          .places = &places });
    if (!e) return NULL;
    const eg_node *root = &e->node[e->root];
    eg_formula *f = formula_of(cx, who, text, root->kind == EG_IS_TRUTH || root->code == EG_X_READ,
                               places, place);
    if (f) f->score = score;
    return f;
}
const eg_formula *eg_formula_parse(eg_ctx *cx, const char *who, const char *text)
{
    return cx ? formula_read(cx, who ? who : "formula", text, false) : NULL;
}
const eg_formula *eg_formula_score(eg_ctx *cx, const char *who, const char *text)
{
    return cx ? formula_read(cx, who ? who : "score", text, true) : NULL;
}

bool eg_formula_has(const eg_formula *f, const char *name)
{
    for (int k = 0; f && name && k < f->indices; k++)
        if (!strcmp(f->index[k], name)) return true;
    return false;
}

bool eg_formula_reads(const eg_formula *f, const char *name)
{
    for (int k = 0; f && name && k < f->tensors; k++)
        if (!strcmp(f->tensor[k], name)) return true;
    return false;
}

bool eg_formula_equals(const eg_formula *f, const eg_formula *g)
{
    static const char blank[] = " \t\n\v\f\r"; /* two words never stand apart by blanks alone */
    if (!f || !g) return false;
    const char *a = f->text, *b = g->text;
    for (;; a++, b++) {
        a += strspn(a, blank);
        b += strspn(b, blank);
        if (*a != *b || !*a) return *a == *b;
    }
}

/* What stands for a number: as it is if it is one word, else in parentheses. NULL after an error:
 * no number. */
static const char *formula_operand(const eg_formula *f, const char *text)
{
    const eg_formula *number = formula_read(f->cx, f->who, text, false);
    if (!number) return NULL;
    if (number->truth)
        return eg__caret(f->cx, f->who, text, 0, NULL, NULL, NULL,
                         "a number is asked for, and this is true or false"),
               NULL;
    if (number->places == 1 && !number->place[0].from && !text[number->place[0].to]) return text;
    if (!text[strspn(text, "0123456789")]) return text;
    char *out = eg__alloc(f->cx, strlen(text) + 3);
    if (out) sprintf(out, "(%s)", text);
    return out;
}

const eg_formula *eg_formula_replace(const eg_formula *f, const char *name, const char *value,
                                     const char *size)
{
    if (!f || eg__failed(f->cx)) return NULL;
    if (!eg_formula_has(f, name) || (!value && !size)) return f;
    const char *const with[2] = { value ? formula_operand(f, value) : NULL,
                                  size ? formula_operand(f, size) : NULL };
    if ((value && !with[0]) || (size && !with[1])) return NULL;
    size_t room = strlen(f->text) + 1;
    for (int k = 0; k < f->places; k++)
        room += with[f->place[k].size] ? strlen(with[f->place[k].size]) : 0;
    char *out = eg__alloc(f->cx, room), *to = out;
    if (!out) return NULL;
    int from = 0;
    for (int k = 0; k < f->places; k++) {
        const eg__formula_place *p = &f->place[k];
        if (!with[p->size] || strcmp(f->index[p->index], name)) continue;
        to += sprintf(to, "%.*s%s", p->from - from, f->text + from, with[p->size]);
        from = p->to;
    }
    strcpy(to, f->text + from);
    return formula_read(f->cx, f->who, out, f->score);
}

const eg_formula *eg_formula_and(const eg_formula *f, const eg_formula *g)
{
    if (!f || !g) return f ? f : g;
    if (eg__failed(f->cx)) return NULL;
    char *out = eg__alloc(f->cx, strlen(f->text) + strlen(g->text) + 8);
    if (!out) return NULL;
    sprintf(out, "(%s) & (%s)", f->text, g->text);
    return formula_read(f->cx, f->who, out, f->score);
}
