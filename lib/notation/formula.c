/* formula.c: implements eingrad/notation.h for formulas: a predicate or a number over indices as
 * data: which indices it has, and where they occur. The parser of expressions finds these
 * occurrences; an edit replaces the text at some of them and parses the result. */
#include "notation/notation.h"
#include <eingrad/notation.h>
#include <string.h>

static const char formula_blanks[] = " \t\n\v\f\r";

/* One occurrence of a name in an eg_formula; index: the number of the name. */
typedef struct eg__formula_occurrence {
    int from, to, index;
    bool size;
} eg__formula_occurrence;
/* Returns a formula of that text with its occurrences of names, in the order of the text; NULL
 * after an error. */
static eg_formula *formula_of(eg_ctx *cx, const char *who, const char *text, bool condition,
                              int occurrences, const eg_name_occurrence *at)
{
    const size_t n = (size_t)occurrences, length = strlen(text) + 1, whose = strlen(who) + 1;
    size_t names = 0;
    for (size_t k = 0; k < n; k++) names += (size_t)at[k].length + 1;
    char *block = eg__alloc(cx, sizeof(eg_formula) +
                                    n * (sizeof(eg__formula_occurrence) + 2 * sizeof(char *)) +
                                    names + length + whose);
    if (!block) return NULL;
    eg_formula *f = (void *)block;
    eg__formula_occurrence *occurrence = (void *)(f + 1);
    const char **index = (void *)(occurrence + n), **tensor = index + n;
    char *name = (char *)(tensor + n), *copy = name + names;
    *f = (eg_formula){ .text = memcpy(copy, text, length),
                       .condition = condition,
                       .index = index,
                       .tensor = tensor,
                       .cx = cx,
                       .who = memcpy(copy + length, who, whose),
                       .occurrence = occurrence };
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
            occurrence[f->occurrences++] =
                (eg__formula_occurrence){ at[k].from, at[k].to, i, at[k].size };
    }
    return f;
}

/* Reads the names of the indices, which are separated by blanks. False after an error: there are
 * too many. */
static bool formula_indices(eg_ctx *cx, const eg_formula_args *o, eg_axis_name *name,
                            const eg_axis_name **letter, int *letters)
{
    const char *const blank = formula_blanks;
    *letters = 0;
    for (const char *c = o->indices ? o->indices : ""; *(c += strspn(c, blank));) {
        const int length = (int)strcspn(c, blank);
        if (*letters == EG_EXPRESSION_LETTERS)
            return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: more than %d indices: \"%.80s\"", o->who,
                              EG_EXPRESSION_LETTERS, o->indices),
                   false;
        letter[*letters] = &name[*letters];
        name[(*letters)++] = (eg_axis_name){ .text = c, .length = length, .size = -1, .from = -1 };
        c += length;
    }
    return true;
}
/* The occurrences take some kilobytes of stack, which are released before further calls are
 * made. */
static __attribute__((noinline)) eg_formula *formula_parsed(eg_ctx *cx, const eg_formula_args *o)
{
    eg_name_occurrence occurrence[EG_OCCURRENCES_MAX];
    eg_axis_name name[EG_EXPRESSION_LETTERS];
    const eg_axis_name *letter[EG_EXPRESSION_LETTERS];
    eg_readable readable[EG_GIVEN_MAX];
    int occurrences = 0, letters, given = 0;
    if (!formula_indices(cx, o, name, letter, &letters)) return NULL;
    for (; o->with && given < EG_GIVEN_MAX && o->with[given].name; given++) {
        const eg_tensor *x = o->with[given].x;
        if (!eg_ok(x))
            return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: '%.40s' of .with is NULL", o->who,
                              o->with[given].name),
                   NULL;
        readable[given] = (eg_readable){ .name = o->with[given].name,
                                         .dtype = (eg_dtype)x->dtype,
                                         .was = (eg_dtype)x->dtype,
                                         .rank = x->rank,
                                         .dim = x->dim };
    }
    const eg_expression *e =
        eg__expression_parse(cx, &(eg_expression_source){ .who = o->who,
                                                          .text = o->text,
                                                          .noun = o->score ? "score" : "predicate",
                                                          .letters = letters,
                                                          .letter = letter,
                                                          .given = given,
                                                          .readable = readable,
                                                          .predicate = !o->score,
                                                          .score = o->score,
                                                          .number = o->score && o->complete,
                                                          .occurrence = occurrence,
                                                          .occurrences = &occurrences,
                                                          .any_tensor = !o->with || o->any_tensor,
                                                          .any_letter = !letters,
                                                          .any_kind = !o->complete });
    if (!e) return NULL;
    const bool condition =
        e->node[e->root].code == EG_X_READ || eg__may_be_condition(e->node, e->root);
    eg_formula *f = formula_of(cx, o->who, o->text, condition, occurrences, occurrence);
    if (f) f->score = o->score;
    return f;
}
static size_t formula_bytes_of(const eg_formula *f)
{
    return (size_t)(f->who + strlen(f->who) + 1 - (const char *)f);
}
/* Writes a copy of a formula, with everything that it points to, into `memory`, which has
 * formula_bytes_of(from) bytes. */
static eg_formula *formula_into(void *memory, eg_ctx *cx, const eg_formula *from)
{
    const char *const old = (const char *)from;
    eg_formula *f = memcpy(memory, from, formula_bytes_of(from));
    char *const new = memory;
    const char **index = (void *)(new + ((const char *)from->index - old)),
               **tensor = (void *)(new + ((const char *)from->tensor - old));
    f->cx = cx;
    f->text = new + (from->text - old);
    f->who = new + (from->who - old);
    f->occurrence = (const void *)(new + ((const char *)from->occurrence - old));
    for (int k = 0; k < f->indices; k++) index[k] = new + (from->index[k] - old);
    for (int k = 0; k < f->tensors; k++) tensor[k] = new + (from->tensor[k] - old);
    f->index = index;
    f->tensor = tensor;
    return f;
}
static void formula_key(eg_key_text *t, const char *text)
{
    eg__key_put(t, 1, text ? "+" : "-");
    if (text) eg__key_put(t, strlen(text) + 1, text);
}
/* Returns a copy of the formula from the cache, or parses it and adds it to the cache. The key
 * includes the names that it may use and the shapes and dtypes of their tensors, on which its
 * meaning depends. */
static const eg_formula *formula_read(eg_ctx *cx, const eg_formula_args *o)
{
    eg_tensor *x[EG_GIVEN_MAX];
    eg_key_text text = { .length = 0, .fits = true };
    int n = 0;
    const bool flags[] = { o->score, o->complete, o->any_tensor, o->with != NULL };
    if (eg__failed(cx)) return NULL;
    eg__key_put(&text, sizeof flags, flags);
    formula_key(&text, o->who);
    formula_key(&text, o->text);
    formula_key(&text, o->indices);
    for (; o->with && n < EG_GIVEN_MAX && o->with[n].name; n++) {
        formula_key(&text, o->with[n].name);
        x[n] = o->with[n].x;
        text.fits &= eg_ok(x[n]);
    }
    const eg_plan_key key = { EG_KEY_FORMULA, n, text.length, text.text, x };
    const eg_formula *known = o->text && text.fits ? eg__plans_find(cx, &key) : NULL;
    if (known) {
        void *memory = eg__alloc(cx, formula_bytes_of(known));
        return memory ? formula_into(memory, cx, known) : NULL;
    }
    const eg_formula *f = formula_parsed(cx, o);
    void *memory = f && text.fits ? eg__plans_add(cx, &key, formula_bytes_of(f)) : NULL;
    if (memory) formula_into(memory, cx, f);
    return f;
}
/* Parses a text that is the result of an edit of f. */
static const eg_formula *formula_again(const eg_formula *f, const char *text, bool score)
{
    return formula_read(f->cx, &(eg_formula_args){ .who = f->who, .text = text, .score = score });
}
const eg_formula *eg_formula_parse(eg_ctx *cx, const char *who, const char *text)
{
    const eg_formula_args o = { .who = who ? who : "formula", .text = text };
    return cx ? formula_read(cx, &o) : NULL;
}
const eg_formula *eg_formula_score(eg_ctx *cx, const char *who, const char *text)
{
    const eg_formula_args o = { .who = who ? who : "score", .text = text, .score = true };
    return cx ? formula_read(cx, &o) : NULL;
}
const eg_formula *eg_formula_parse_with(eg_ctx *cx, const eg_formula_args *given)
{
    eg_formula_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    o.who = o.who ? o.who : "formula";
    return cx ? formula_read(cx, &o) : NULL;
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
    const char *const blank = formula_blanks; /* in a formula, two words are never separated by
                                               * blanks only */
    if (!f || !g) return false;
    const char *a = f->text, *b = g->text;
    for (;; a++, b++) {
        a += strspn(a, blank);
        b += strspn(b, blank);
        if (*a != *b || !*a) return *a == *b;
    }
}

/* Returns the text as an operand: as it is if it is one word, else in parentheses, and so is 0,
 * since a letter may be a divisor and have the value 0. NULL after an error: it is not a number. */
static const char *formula_operand(const eg_formula *f, const char *text)
{
    const eg_formula *number = formula_again(f, text, false);
    if (!number) return NULL;
    if (number->condition)
        return eg__caret(f->cx, f->who, text, 0, NULL, NULL, NULL,
                         "a number is needed, but this is a condition"),
               NULL;
    if (number->occurrences == 1 && !number->occurrence[0].from && !text[number->occurrence[0].to])
        return text;
    if (text[strspn(text, "0")] && !text[strspn(text, "0123456789")]) return text;
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
    size_t bytes = strlen(f->text) + 1;
    for (int k = 0; k < f->occurrences; k++)
        bytes += with[f->occurrence[k].size] ? strlen(with[f->occurrence[k].size]) : 0;
    char *out = eg__alloc(f->cx, bytes), *to = out;
    if (!out) return NULL;
    int from = 0;
    for (int k = 0; k < f->occurrences; k++) {
        const eg__formula_occurrence *p = &f->occurrence[k];
        if (!with[p->size] || strcmp(f->index[p->index], name)) continue;
        to += sprintf(to, "%.*s%s", p->from - from, f->text + from, with[p->size]);
        from = p->to;
    }
    strcpy(to, f->text + from);
    return formula_again(f, out, f->score);
}

const eg_formula *eg_formula_and(const eg_formula *f, const eg_formula *g)
{
    if (!f || !g) return f ? f : g;
    if (eg__failed(f->cx)) return NULL;
    char *out = eg__alloc(f->cx, strlen(f->text) + strlen(g->text) + 8);
    if (!out) return NULL;
    sprintf(out, "(%s) & (%s)", f->text, g->text);
    return formula_again(f, out, f->score);
}

/* -- the conditions that & joins --------------------------------------------------------------- */
/* True if node k is an & of two conditions in the text: one that is outside of brackets. a < b < c
 * and all(k=2, …) are nodes of this kind too, without an & between their parts. */
static bool joins(const eg_expression *e, const char *text, int k)
{
    const eg_node *n = &e->node[k];
    if (n->code != EG_X_AND) return false;
    int depth = 0;
    for (int i = n->at; i < n->at + n->length; i++) {
        depth += (text[i] == '(' || text[i] == '[') - (text[i] == ')' || text[i] == ']');
        if (text[i] == '&' && !depth) return true;
    }
    return false;
}
int eg_formula_terms(const eg_formula *f, int most, const eg_formula **term)
{
    eg_name_occurrence occurrence[EG_OCCURRENCES_MAX];
    int occurrences = 0, stack[EG_NODES_MAX], depth = 0, n = 0;
    const eg_expression *e = NULL;
    if (f && !f->score)
        e = eg__expression_parse(f->cx, &(eg_expression_source){ .who = f->who,
                                                                 .text = f->text,
                                                                 .noun = "predicate",
                                                                 .predicate = true,
                                                                 .occurrence = occurrence,
                                                                 .occurrences = &occurrences,
                                                                 .any_tensor = true,
                                                                 .any_letter = true,
                                                                 .any_kind = true });
    if (!e) return -1;
    if (!term)
        return eg_fail_as(f->cx, EG_ERROR_MISUSE, "%s: the list for the conditions is NULL",
                          f->who),
               -1;
    for (stack[depth++] = e->root; depth;) {
        const eg_node *k = &e->node[stack[--depth]];
        if (joins(e, f->text, stack[depth])) {
            stack[depth] = k->in[1];
            stack[depth + 1] = k->in[0];
            depth += 2;
            continue;
        }
        if (n == most)
            return eg_fail_as(f->cx, EG_ERROR_NOTATION, "%s: more than %d condition%s joined: %s",
                              f->who, most, most == 1 ? " is" : "s are", f->text),
                   -1;
        size_t length = k->length; /* with the blanks after it */
        while (length && strchr(formula_blanks, f->text[k->at + length - 1])) length--;
        char *text = eg__alloc(f->cx, length + 1);
        if (!text) return -1;
        memcpy(text, f->text + k->at, length);
        text[length] = 0;
        if (!(term[n++] = formula_again(f, text, false))) return -1;
    }
    return n;
}
