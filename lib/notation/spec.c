/* spec.c: implements eingrad/notation.h for strings: a parsed string as a struct, and its edits. An
 * edit prints the terms with one change and parses the result, so that every edited string is
 * valid. */
#include "notation/notation.h"
#include <ctype.h>
#include <eingrad/notation.h>
#include <string.h>

/* -- a parsed string as a spec ---------------------------------------------------------------- */
/* Lists the items of a term, each with its axis of the operand. Returns their number. */
static int spec_items(const eg_parsed *p, const eg_parsed_term *t, eg_spec_item *out)
{
    int axis = -1, n = 0;
    for (int i = t->begin; i < t->end; i++, n++) {
        const eg_term_item *l = &p->item[i];
        axis += n == 0 || !l->group || l->group != p->item[i - 1].group;
        out[n] = (eg_spec_item){ .index = l->axis == EG_ITEM_ONE    ? EG_INDEX_ONE
                                          : l->axis == EG_ITEM_DOTS ? EG_INDEX_REST
                                                                    : l->axis,
                                 .axis = axis,
                                 .group = l->group,
                                 .bracket = l->bracket,
                                 .at = l->at };
    }
    return n;
}

/* As eg__alloc; an error names the function `who`. */
static void *spec_alloc(eg_ctx *cx, const char *who, size_t bytes)
{
    void *memory = eg__alloc(cx, bytes);
    if (!memory) eg_name_memory_error(cx, who);
    return memory;
}

/* Returns the spec and everything that it points to in one block of the open scope; NULL after an
 * error. */
static const eg_spec *spec_of(eg_ctx *cx, const char *who, const char *text, const eg_parsed *p)
{
    const size_t terms = (size_t)p->terms + p->arrow, axes = (size_t)p->axes,
                 length = strlen(text) + 1, whose = strlen(who) + 1;
    size_t names = 0;
    for (size_t a = 0; a < axes; a++) names += p->axis[a].length + 1u;
    char *block =
        spec_alloc(cx, who,
                   sizeof(eg_spec) + axes * sizeof(eg_spec_index) + terms * sizeof(eg_spec_term) +
                       (size_t)p->items * sizeof(eg_spec_item) + names + length + whose);
    if (!block) return NULL;
    eg_spec *s = (void *)block;
    eg_spec_index *index = (void *)(s + 1);
    eg_spec_term *term = (void *)(index + axes);
    eg_spec_item *item = (void *)(term + terms);
    char *name = (char *)(item + p->items), *copy = name + names;
    *s = (eg_spec){ .text = memcpy(copy, text, length),
                    .names = p->names,
                    .arrow = p->arrow,
                    .indices = p->axes,
                    .terms = p->terms,
                    .index = index,
                    .term = term,
                    .cx = cx,
                    .who = memcpy(copy + length, who, whose) };
    for (size_t a = 0; a < axes; a++, *name++ = 0) {
        const eg_parsed_axis *x = &p->axis[a];
        index[a] = (eg_spec_index){ .name = name, .size = x->size, .fixed = x->size >= 0 };
        memcpy(name, text + x->at, x->length);
        name += x->length;
    }
    for (size_t k = 0; k < terms; k++) {
        term[k] = (eg_spec_term){ .axes = p->term[k].slots, .item = item };
        item += term[k].items = spec_items(p, &p->term[k], item);
    }
    return s;
}

/* A separate function, since the parser's buffer is large. */
static __attribute__((noinline)) const eg_spec *spec_read(eg_ctx *cx, const char *who,
                                                          const char *text, eg_reading as)
{
    eg_parse_buffer buffer;
    const eg_parsed *p = eg__parse(cx, who, text, as, &buffer);
    return p ? spec_of(cx, who, text, p) : NULL;
}
const eg_spec *eg_spec_parse(eg_ctx *cx, const char *who, const char *text)
{
    who = who ? who : "spec";
    if (!cx || eg__failed(cx)) return NULL;
    if (!text) return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the spec is NULL", who), NULL;
    return spec_read(cx, who, text, EG_READ_BY_BLANKS);
}

const eg_spec *eg_spec_bind_called(const eg_spec *s, int count, eg_tensor *const *xs,
                                   const char *const *called)
{
    const int flags = EG_NOTATION_BRACKETS | EG_NOTATION_NEW_OUT;
    const eg_bound *b =
        s ? eg__bind_called(s->who, s->text, flags, count, xs, 0, NULL, called) : NULL;
    eg_spec *bound =
        b ? spec_alloc(s->cx, s->who, sizeof *s + (size_t)s->indices * sizeof *s->index) : NULL;
    if (!bound) return NULL;
    eg_spec_index *index = (void *)(bound + 1);
    *bound = *s;
    bound->index = index;
    for (int a = 0; a < s->indices; a++) {
        index[a] = s->index[a];
        index[a].size = b->axis[a].size;
    }
    return bound;
}
const eg_spec *eg_spec_bind(const eg_spec *s, int count, eg_tensor *const *xs)
{
    return eg_spec_bind_called(s, count, xs, NULL);
}

/* -- reading ----------------------------------------------------------------------------------- */
/* Returns the number of the index of that name; −1 if there is none. */
static int spec_find(const eg_spec *s, const char *name)
{
    for (int a = 0; s && name && a < s->indices; a++)
        if (!strcmp(s->index[a].name, name)) return a;
    return -1;
}
static const eg_spec_term *spec_term(const eg_spec *s, int term)
{
    return s && term >= 0 && term < s->terms + s->arrow ? &s->term[term] : NULL;
}
int eg_spec_find_item(const eg_spec *s, int term, const char *name)
{
    const eg_spec_term *t = spec_term(s, term);
    const int index = spec_find(s, name);
    for (int k = 0; t && index >= 0 && k < t->items; k++)
        if (t->item[k].index == index) return k;
    return -1;
}
int eg_spec_axis(const eg_spec *s, int term, const char *name)
{
    const int k = eg_spec_find_item(s, term, name);
    return k < 0 ? -1 : s->term[term].item[k].axis;
}

eg_tensor *eg_spec_fail(const eg_spec *s, eg_code code, int term, int item, const char *format, ...)
{
    char sentence[400];
    const eg_spec_term *t = spec_term(s, term);
    if (!s) return NULL;
    va_list list;
    va_start(list, format);
    eg__vsentence(sentence, sizeof sentence, format, list);
    va_end(list);
    eg_caret c = { 0, 0 };
    if (t && item >= 0 && item < t->items) {
        const int index = t->item[item].index;
        c = (eg_caret){ t->item[item].at, index >= 0 ? (int)strlen(s->index[index].name)
                                          : index == EG_INDEX_REST ? 3
                                                                   : 1 };
    } else if (t && t->items) { /* from its first item to its last */
        const int last = t->item[t->items - 1].index;
        c.at = t->item[0].at;
        c.length = t->item[t->items - 1].at - c.at +
                   (last >= 0               ? (int)strlen(s->index[last].name)
                    : last == EG_INDEX_REST ? 3
                                            : 1);
    }
    return eg__caret_as(s->cx, code, s->who, s->text, t && t->items, &c, NULL, NULL, "%s",
                        sentence);
}

/* -- printing, with one change ----------------------------------------------------------------- */
/* The change of an edit. A number of −1 means that there is no such change. */
typedef struct edit {
    int term;   /* the term that is changed; −1 for every term */
    int index;  /* the index that is replaced by `text` */
    int before; /* the item before which `text` is inserted; `items` for the end */
    const char *text;
    int inside; /* how many names are in brackets; no others are */
    const char *const *name;
} edit;
static const edit NO_EDIT = { .term = -1, .index = -1, .before = -1, .inside = -1 };

/* True if an item is in brackets after the edit. */
static bool item_bracketed(const eg_spec *s, const eg_spec_item *l, const edit *e, bool mine)
{
    if (!mine || e->inside < 0) return l->bracket;
    for (int k = 0; k < e->inside && l->index >= 0; k++)
        if (!strcmp(s->index[l->index].name, e->name[k])) return true;
    return false;
}

/* Text that is appended to. If s is NULL, only its length is counted. */
typedef struct text_buffer {
    char *s;
    size_t n;
} text_buffer;
static void spec_put(text_buffer *t, const char *s)
{
    const size_t n = strlen(s);
    if (t->s) memcpy(t->s + t->n, s, n + 1);
    t->n += n;
}

/* True if all terms consist of letters only; they are then printed without blanks. */
static bool spec_is_plain(const eg_spec *s)
{
    for (int k = 0; k < s->terms + s->arrow; k++)
        for (int i = 0; i < s->term[k].items; i++) {
            const eg_spec_item *l = &s->term[k].item[i];
            if (l->index < 0 || l->group || l->bracket || s->index[l->index].fixed) return false;
        }
    return !s->names;
}
static bool items_are_plain(const char *items)
{
    return !items || !items[strspn(items, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")];
}

/* Appends the items of an edit. Between letters that touch each other there is `blank`, since one
 * word among blanks would make names of all letters. */
static void put_items(text_buffer *out, const eg_spec *s, const char *items, const char *blank)
{
    for (const char *c = items; *c; c++) {
        spec_put(out, (char[]){ *c, 0 });
        if (!s->names && isalpha((unsigned char)c[0]) && isalpha((unsigned char)c[1]))
            spec_put(out, blank);
    }
}

/* Prints one term: ( ) and [ ] by the flags of the items, brackets always inside of a group. A size
 * in the string is printed at the first occurrence of its index in the term. */
static void print_term(text_buffer *out, const eg_spec *s, int term, const edit *e,
                       const char *blank)
{
    const eg_spec_term *t = &s->term[term];
    const bool mine = e->term < 0 || e->term == term;
    int group = 0;
    bool bracket = false, first = true;
    char size[32];
    for (int i = 0; i <= t->items; i++) {
        const eg_spec_item *l = i < t->items ? &t->item[i] : &(eg_spec_item){ .index = -3 };
        if (mine && e->index >= 0 && l->index == e->index && !*e->text) continue;
        const bool in = item_bracketed(s, l, e, mine);
        if (bracket && (!in || l->group != group)) spec_put(out, "]"), bracket = false;
        if (group && l->group != group) spec_put(out, ")"), group = 0;
        if (mine && (e->before == i || (e->before > t->items && i == t->items))) {
            spec_put(out, first ? "" : blank);
            put_items(out, s, e->text, blank);
            first = false;
        }
        if (i == t->items) break;
        spec_put(out, first ? "" : blank);
        first = false;
        if (l->group && !group) spec_put(out, "("), group = l->group;
        if (in && !bracket) spec_put(out, "["), bracket = true;
        if (mine && e->index >= 0 && l->index == e->index)
            put_items(out, s, e->text, blank);
        else if (l->index < 0)
            spec_put(out, l->index == EG_INDEX_REST ? "..." : l->group ? "" : "1");
        else {
            const eg_spec_index *x = &s->index[l->index];
            spec_put(out, x->name);
            snprintf(size, sizeof size, "=%lld", (long long)x->size);
            if (x->fixed && eg_spec_find_item(s, term, x->name) == i) spec_put(out, size);
        }
    }
}

/* A string to print: terms of several specs and an output, with the edit e in all of them. */
typedef struct printed {
    int terms;
    const eg_spec *const *from;
    const int *term; /* number of the term in from[k]; NULL for the first term of each */
    bool arrow;      /* the last of them is the output */
    const edit *e;
} printed;
static void print_all(text_buffer *out, const printed *p, bool names, const char *blank)
{
    if (names) spec_put(out, "names: ");
    for (int k = 0; k < p->terms; k++) {
        const bool last = p->arrow && k + 1 == p->terms;
        if (last)
            spec_put(out, *blank ? " -> " : "->");
        else if (k)
            spec_put(out, *blank ? ", " : ",");
        print_term(out, p->from[k], p->term ? p->term[k] : 0, p->e, blank);
    }
}
static const eg_spec *spec_printed(const printed *p)
{
    const eg_spec *s = p->from[0];
    bool names = false, plain = items_are_plain(p->e->text) && p->e->inside <= 0;
    for (int k = 0; k < p->terms; k++) {
        names |= p->from[k]->names;
        plain = plain && spec_is_plain(p->from[k]);
    }
    text_buffer out = { .n = 0 };
    print_all(&out, p, names, plain ? "" : " ");
    if (!(out.s = spec_alloc(s->cx, s->who, out.n + 1))) return NULL;
    out.n = 0;
    out.s[0] = 0;
    print_all(&out, p, names, plain ? "" : " ");
    return spec_read(s->cx, s->who, out.s, names ? EG_READ_AS_NAMES : EG_READ_AS_LETTERS);
}
static const eg_spec *spec_edited(const eg_spec *s, const edit *e)
{
    const eg_spec *from[EG_TERMS_MAX];
    int term[EG_TERMS_MAX];
    const int n = s->terms + s->arrow;
    for (int k = 0; k < n; k++) from[k] = s, term[k] = k;
    return spec_printed(
        &(printed){ .terms = n, .from = from, .term = term, .arrow = s->arrow, .e = e });
}

/* -- edits ------------------------------------------------------------------------------------ */
/* Parses `items` as letters or names, as s is. NULL after an error: they are not items of one
 * term. */
static const eg_spec *items_read(const eg_spec *s, const char *items)
{
    if (!s || eg__failed(s->cx)) return NULL;
    if (!items) return eg_fail_as(s->cx, EG_ERROR_MISUSE, "%s: the items are NULL", s->who), NULL;
    const eg_spec *part =
        spec_read(s->cx, s->who, items, s->names ? EG_READ_AS_NAMES : EG_READ_AS_LETTERS);
    if (!part || (part->terms == 1 && !part->arrow)) return part;
    return eg_spec_fail(part, EG_ERROR_NOTATION, 0, -1, "items of exactly one term are needed"),
           NULL;
}
static const eg_spec *spec_no_term(const eg_spec *s, int term)
{
    return eg_fail_as(s->cx, EG_ERROR_INDEX, "%s: \"%s\" has no term %d", s->who, s->text, term),
           NULL;
}
static const eg_spec *spec_no_index(const eg_spec *s, const char *name)
{
    return eg__caret(s->cx, s->who, s->text, 0, NULL, NULL, NULL, "the string has no index '%.40s'",
                     name ? name : "NULL"),
           NULL;
}

const eg_spec *eg_spec_of_term(const eg_spec *s, int term)
{
    if (!s || eg__failed(s->cx)) return NULL;
    if (!spec_term(s, term)) return spec_no_term(s, term);
    return spec_printed(&(printed){ .terms = 1, .from = &s, .term = &term, .e = &NO_EDIT });
}
const char *eg_spec_items(const eg_spec *s, int term)
{
    if (!s || eg__failed(s->cx)) return NULL;
    if (!spec_term(s, term)) return spec_no_term(s, term), NULL;
    const char *blank = spec_is_plain(s) ? "" : " ";
    text_buffer out = { .n = 0 };
    print_term(&out, s, term, &NO_EDIT, blank);
    if (!(out.s = spec_alloc(s->cx, s->who, out.n + 1))) return NULL;
    out.n = 0;
    out.s[0] = 0;
    print_term(&out, s, term, &NO_EDIT, blank);
    return out.s;
}
/* True if the text of a spec, without another spec that it is like, is read as other indices: as
 * letters of its names, or as names of its letters. A separate function, since the parser's buffer
 * is large. */
static __attribute__((noinline)) bool spec_reads_otherwise(const eg_spec *s)
{
    eg_parse_buffer buffer;
    const eg_parsed *p = eg__parse(NULL, s->who, s->text, EG_READ_BY_BLANKS, &buffer);
    if (!p || p->names == s->names) return !p;
    bool words = false;
    for (int k = 0; k < p->axes; k++) words |= p->axis[k].length > 1;
    for (int k = 0; k < s->indices; k++) words |= strlen(s->index[k].name) > 1;
    return words;
}
const eg_spec *eg_spec_like(const eg_spec *s, const char *items)
{
    const eg_spec *part = items_read(s, items);
    return part && spec_reads_otherwise(part) ? eg_spec_of_term(part, 0) : part;
}

const eg_spec *eg_spec_join(int count, const eg_spec *const *terms, const eg_spec *output)
{
    const eg_spec *from[EG_TERMS_MAX];
    if (count < 1 || !terms) return NULL;
    for (int k = 0; k < count; k++)
        if (!terms[k] || eg__failed(terms[k]->cx)) return NULL;
    if (count > EG_OPERANDS_MAX)
        return eg_fail_as(terms[0]->cx, EG_ERROR_NOTATION, "%s: %d terms; at most %d",
                          terms[0]->who, count, EG_OPERANDS_MAX),
               NULL;
    memcpy(from, terms, (size_t)count * sizeof *from);
    if (output) from[count] = output;
    return spec_printed(&(printed){
        .terms = count + (output != NULL), .from = from, .arrow = output != NULL, .e = &NO_EDIT });
}
const eg_spec *eg_spec_replace(const eg_spec *s, int term, const char *name, const char *items)
{
    edit e = NO_EDIT;
    const eg_spec *part = items_read(s, items);
    if (!part) return NULL;
    if (term != -1 && !spec_term(s, term)) return spec_no_term(s, term);
    e.term = term;
    e.text = part->term[0].items ? items : "";
    if ((e.index = spec_find(s, name)) < 0) return spec_no_index(s, name);
    return spec_edited(s, &e);
}
const eg_spec *eg_spec_rename(const eg_spec *s, const char *from, const char *to)
{
    const eg_spec *part = items_read(s, to);
    if (!part) return NULL;
    if (part->term[0].items != 1 || part->indices != 1)
        return eg_spec_fail(part, EG_ERROR_NOTATION, 0, -1, "exactly one %s is needed",
                            s->names ? "name" : "letter"),
               NULL;
    const int old = spec_find(s, from), taken = spec_find(s, part->index[0].name);
    if (old < 0) return spec_no_index(s, from);
    if (taken >= 0 && taken != old)
        return eg__caret(s->cx, s->who, s->text, 0, NULL, NULL, NULL,
                         "'%s' cannot be renamed to '%s', which is in the string already", from,
                         part->index[0].name),
               NULL;
    if (!s->index[old].fixed) return eg_spec_replace(s, -1, from, part->index[0].name);
    char *sized = spec_alloc(s->cx, s->who, strlen(part->index[0].name) + 32);
    if (!sized) return NULL;
    sprintf(sized, "%s=%lld", part->index[0].name, (long long)s->index[old].size);
    return eg_spec_replace(s, -1, from, sized);
}
const eg_spec *eg_spec_insert(const eg_spec *s, int term, int at, const char *items)
{
    edit e = NO_EDIT;
    if (!items_read(s, items)) return NULL;
    if (term != -1 && !spec_term(s, term)) return spec_no_term(s, term);
    e.term = term;
    e.text = items;
    e.before = at < 0 ? INT32_MAX : at;
    return spec_edited(s, &e);
}
const eg_spec *eg_spec_bracket(const eg_spec *s, int term, int count, const char *const *names)
{
    edit e = NO_EDIT;
    if (!s || eg__failed(s->cx)) return NULL;
    if (!spec_term(s, term)) return spec_no_term(s, term);
    if (count > 0 && !names) return spec_no_index(s, NULL);
    for (int k = 0; k < count; k++)
        if (!names[k] || eg_spec_find_item(s, term, names[k]) < 0)
            return spec_no_index(s, names[k]);
    e.term = term;
    e.inside = count;
    e.name = names;
    return spec_edited(s, &e);
}

const char *eg_spec_unused(const eg_spec *s, const char *wish)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!s || eg__failed(s->cx)) return NULL;
    const size_t n = wish ? strlen(wish) : 0;
    char *out = spec_alloc(s->cx, s->who, n + 32);
    if (!out) return NULL;
    for (int k = 0; s->names && n && k <= s->indices; k++) {
        memcpy(out, wish, n + 1);
        if (k) sprintf(out + n, "_%d", k + 1);
        if (spec_find(s, out) < 0) return out;
    }
    for (int k = n ? -1 : 0; k < 52; k++) {
        out[0] = k < 0 ? wish[0] : letters[k];
        out[1] = 0;
        if (spec_find(s, out) < 0) return out;
    }
    return eg__caret(s->cx, s->who, s->text, 0, NULL, NULL, NULL,
                     "the string already uses every letter"),
           NULL;
}
