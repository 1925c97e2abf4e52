/* refuse.c: the messages of bind_terms.c: a sentence with carets, operands and sizes, and a
 * suggestion of what may have been meant. */
#include "notation/bind_terms.h"
#include <string.h>

/* -- words for messages ----------------------------------------------------------------------- */
static const char *say(words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *say(words *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int n = eg__vsentence(w->s + w->n, sizeof w->s - w->n, format, list);
    va_end(list);
    if (n > 0) w->n += (size_t)n;
    if (w->n > sizeof w->s - 1) w->n = sizeof w->s - 1;
    return w->s;
}
static void append_dims(words *w, int rank, const int64_t *dim)
{
    say(w, "(");
    for (int r = 0; r < rank; r++) say(w, "%s%lld", r ? ", " : "", (long long)dim[r]);
    say(w, rank == 1 ? ",)" : ")");
}
const char *eg__operand_name(const char *const *called, int k, operand_name *buffer)
{
    if (called && called[k]) return called[k];
    snprintf(buffer->s, sizeof buffer->s, "operand %d", k + 1);
    return buffer->s;
}
void eg__say_operand(words *w, const char *const *called, int k, int rank, const int64_t *dim)
{
    operand_name buffer;
    say(w, "%s%s %s ", w->n ? ", " : "", eg__operand_name(called, k, &buffer),
        rank > 8 ? "has rank" : "is");
    if (rank > 8)
        say(w, "%d", rank);
    else
        append_dims(w, rank, dim);
}
/* Returns the bytes of term k without the blanks around it. */
static eg_caret term_caret(const bind *B, int k)
{
    eg_caret c = { B->p->term[k].at, B->p->term[k].stop - B->p->term[k].at };
    while (c.length > 1 && strchr(" \t\r\n", B->spec[c.at])) c.at++, c.length--;
    while (c.length > 1 && strchr(" \t\r\n", B->spec[c.at + c.length - 1])) c.length--;
    return c;
}
static int item_length(const bind *B, const eg_term_item *l)
{
    /* the axes of an ellipsis come after the others */
    return l->axis == EG_ITEM_ONE ? 1 : l->axis >= B->p->axes ? 3 : B->p->axis[l->axis].length;
}

/* -- suggestions: other orders of letters, or exchanged operands, that would fit -------------- */
/* True if all terms consist of letters or names only, and there is an operand for each. */
static bool plain(const bind *B)
{
    for (int k = 0; k < B->p->terms; k++)
        if (!B->p->term[k].plain || !B->xs[k]) return false;
    return true;
}
/* True if all terms except term `without` fit after operands x and y are exchanged. Sets size[] to
 * the sizes of the axes, −1 for unknown ones. */
static bool fits(const bind *B, int x, int y, int without, int64_t *size)
{
    for (int a = 0; a < B->p->axes; a++) size[a] = B->p->axis[a].size;
    for (int k = 0; k < B->p->terms; k++) {
        if (k == without) continue;
        const eg_parsed_term *t = &B->p->term[k];
        const eg_tensor *u = B->xs[k == x ? y : k == y ? x : k];
        if (u->rank != t->slots) return false;
        for (int r = 0; r < u->rank; r++) {
            int64_t *s = &size[B->p->item[t->begin + r].axis];
            if (*s < 0)
                *s = u->dim[r];
            else if (*s != u->dim[r])
                return false;
        }
    }
    return true;
}
/* A search for the order of a term's letters that fits its operand and is nearest to the given
 * order. moved: the number of pairs of letters in inverse order; ties: other orders with the same
 * number. */
typedef struct search {
    const eg_term_item *item;
    const int64_t *dim;
    int n, found, moved, ties, steps;
    uint8_t order[8], best[8];
    int64_t *size;
} search;
/* Tries all letters that are not in `used` for axis r, and for the axes after it. */
static void permute(search *s, int r, unsigned used)
{
    if (s->steps++ > 20000) {
        s->found = 99;
        return;
    }
    if (r == s->n) {
        int moved = 0;
        for (int i = 0; i < r; i++)
            for (int j = i + 1; j < r; j++) moved += s->order[i] > s->order[j];
        if (s->found++ == 0 || moved < s->moved)
            memcpy(s->best, s->order, sizeof s->order), s->moved = moved, s->ties = 0;
        else
            s->ties += moved == s->moved;
        return;
    }
    for (int i = 0; i < s->n; i++) {
        if (used >> i & 1) continue;
        bool again = false; /* equal letters give equal strings */
        for (int j = 0; j < i; j++) again |= !(used >> j & 1) && s->item[j].axis == s->item[i].axis;
        int64_t *size = &s->size[s->item[i].axis], old = *size;
        if (again || (old >= 0 && old != s->dim[r])) continue;
        *size = s->dim[r], s->order[r] = (uint8_t)i;
        permute(s, r + 1, used | 1u << i);
        *size = old;
    }
}
/* Writes a suggestion into w and returns it; NULL if there is none. It is the nearest order of the
 * letters of operand `second` or `first` that fits, if exactly one is nearest; else the exchange of
 * two operands, if exactly one exchange fits. */
static const char *guess(const bind *B, words *w, int first, int second)
{
    int64_t size[EG_AXES_MAX];
    const int n = B->p->terms, tried[2] = { second, first };
    operand_name name, other;
    if (!plain(B)) return NULL;
    for (int m = 0; m < 2; m++) {
        const int k = tried[m];
        if (k < 0 || (m && k == second)) continue;
        const eg_parsed_term *t = &B->p->term[k];
        if (B->xs[k]->rank != t->slots || t->slots > 8 || !fits(B, -1, -1, k, size)) continue;
        search s = {
            .item = B->p->item + t->begin, .dim = B->xs[k]->dim, .n = t->slots, .size = size
        };
        permute(&s, 0, 0);
        if (!s.found || s.ties || s.steps > 20000) continue;
        say(w, "%s would fit as '", eg__operand_name(B->called, k, &name));
        for (int r = 0; r < s.n; r++) {
            const int a = s.item[s.best[r]].axis;
            say(w, "%s%.*s", B->p->names && r ? " " : "", a_length(B, a), a_name(B, a));
        }
        return say(w, "'");
    }
    int x = -1, y = -1, found = 0;
    for (int i = 0; i < n && n <= 8; i++)
        for (int j = i + 1; j < n; j++)
            if (fits(B, i, j, -1, size)) x = i, y = j, found++;
    if (found != 1) return NULL;
    if (!B->called) return say(w, "operands %d and %d exchanged would fit", x + 1, y + 1);
    return say(w, "%s and %s exchanged would fit", eg__operand_name(B->called, x, &name),
               eg__operand_name(B->called, y, &other));
}

/* -- errors ------------------------------------------------------------------------------------ */
/* Returns a hint to separate operands by commas, with the corrected string if it has as many names
 * as there are operands, separated by blanks only, as in "ij jk->ik". NULL if missing commas are
 * not the reason. */
static const char *missing_comma(const bind *B, int n, words *w)
{
    const eg_parsed_term *t = B->p->term;
    if (n <= B->p->terms) return NULL;
    if (B->p->terms != 1 || t->end - t->begin != n || !strchr(B->spec, ' '))
        return "operands are separated by commas";
    say(w, "operands are separated by commas: '%.*s%s", clip(B->p->begin), B->spec,
        B->p->prefixed ? " " : "");
    for (int i = t->begin; i < t->end; i++) {
        const eg_term_item *l = &B->p->item[i];
        say(w, "%s%.*s", i > t->begin ? ", " : "", item_length(B, l), B->spec + l->at);
    }
    if (B->p->arrow) say(w, " %.*s", clip(B->p->length - t->stop), B->spec + t->stop);
    return say(w, "'");
}
bool eg__touches_name(const char *spec, int at)
{
    return at > 0 && (unsigned)((spec[at - 1] | 32) - 'a') < 26;
}
const eg_bound *eg__bad_count(const bind *B, int n)
{
    const int terms = B->p->terms;
    eg_caret c = { B->p->length, 1 };
    if (n < terms)
        c = term_caret(B, n);
    else if (B->p->arrow)
        c.at = B->p->term[terms - 1].stop;
    words w = { .n = 0 };
    return eg__caret(B->cx, B->who, B->spec, 1, &c, NULL, missing_comma(B, n, &w),
                     "the string has %d operand%s but %d %s given", terms, terms == 1 ? "" : "s", n,
                     n == 1 ? "was" : "were"),
           NULL;
}

/* The hint suggests how the string may have been meant. */
const eg_bound *eg__bad_rank(const bind *B, int k)
{
    const eg_parsed_term *t = &B->p->term[k];
    const eg_tensor *x = B->xs[k];
    const eg_caret c = term_caret(B, k);
    words dims = { .n = 0 }, w = { .n = 0 };
    const char *hint = guess(B, &w, -1, -1);
    bool words_apart = false; /* it has a word of two letters or more */
    int letters = 0;
    for (int i = t->at; i + 1 < t->stop; i++)
        words_apart |= (unsigned)((B->spec[i] | 32) - 'a') < 26 &&
                       (unsigned)((B->spec[i + 1] | 32) - 'a') < 26;
    for (int i = t->at; i < t->stop; i++) letters += (unsigned)((B->spec[i] | 32) - 'a') < 26;
    if (!hint && B->p->names && !B->p->prefixed && letters == x->rank && words_apart)
        hint = "blanks separate these, so they are read as names: letters are written 'i j k' or "
               "'ijk'";
    if (!hint && !B->p->names && !B->p->prefixed && t->slots > x->rank && words_apart &&
        t->slots > 3)
        hint = EG_LETTERS_HINT;
    for (int i = t->begin; i < t->end && !hint; i++)
        if (B->p->item[i].axis == EG_ITEM_ONE && eg__touches_name(B->spec, B->p->item[i].at))
            hint = EG_ONE_HINT;
    append_dims(&dims, x->rank, x->dim);
    const int slots = t->slots - (t->dots ? 1 : 0);
    operand_name name;
    return eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, 1, &c, NULL, hint,
                        "%s has rank %d: %s, its term '%.*s' names %s%d ax%s",
                        eg__operand_name(B->called, k, &name), x->rank, dims.s, clip(c.length),
                        c.length > 0 && c.at < B->p->length ? B->spec + c.at : "",
                        t->dots ? "at least " : "", slots, slots == 1 ? "is" : "es"),
           NULL;
}

/* Returns the item of axis a after `skip` others of the same axis; −1 if there is none. */
static int find(const eg_bound_term *t, int a, int skip)
{
    for (int i = 0; i < t->items; i++)
        if (t->item[i].axis == a && skip-- == 0) return i;
    return -1;
}

/* Returns the axis of the operand that item i is, alone or in a group. */
static int axis_of(const eg_bound_term *t, int i)
{
    int r = 0;
    while (r + 1 < t->rank && t->last[r] <= i) r++;
    return r;
}
/* The earlier size of axis a was given by an operand, the string or an option. */
const eg_bound *eg__bad_size(const bind *B, int a, int64_t size, int k, int i)
{
    const eg_bound *b = B->b;
    const eg_axis_name *axis = &b->axis[a];
    const int from = axis->from, j = from >= 0 ? find(&b->term[from], a, 0) : -1;
    const long long one = axis->size, other = size;
    eg_caret mark[2];
    int marks = 0;
    words tail = { .n = 0 }, w = { .n = 0 };
    operand_name name[2];
    const char *hint = NULL, *it = eg__operand_name(B->called, k, &name[0]),
               *before = from >= 0 ? eg__operand_name(B->called, from, &name[1]) : "";
    if (j >= 0)
        mark[marks++] =
            (eg_caret){ b->term[from].item[j].at, item_length(B, &b->term[from].item[j]) };
    if (from >= 0 && from != k)
        eg__say_operand(&tail, B->called, from, b->term[from].rank, b->term[from].dim);
    mark[marks++] = (eg_caret){ b->term[k].item[i].at, item_length(B, &b->term[k].item[i]) };
    eg__say_operand(&tail, B->called, k, b->term[k].rank, b->term[k].dim);
    if (a >= B->p->axes)
        return eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, marks, mark, tail.s, NULL,
                            "under '...' axis %d of %s is %lld but axis %d of %s is %lld",
                            axis_of(&b->term[from], j), before, one, axis_of(&b->term[k], i), it,
                            other),
               NULL;
    if (from >= 0 && from != k && (one == 1 || other == 1) && !(B->flags & EG_NOTATION_ONES)) {
        const bool sum = strcmp(B->who, "einsum") == 0;
        say(&w, "an axis of size 1 is not broadcast here: %sleave the letter out of %s%s",
            sum ? "set .broadcast, or " : "", one == 1 ? before : it,
            sum ? "" : ", and it broadcasts");
        hint = w.s;
    } else
        hint = guess(B, &w, from, k);
    if (from < 0)
        return eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, marks, mark, tail.s, hint,
                            "index '%.*s' is given as %lld but is %lld in %s", a_length(B, a),
                            a_name(B, a), one, other, it),
               NULL;
    if (from == k)
        return eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, marks, mark, tail.s, hint,
                            "index '%.*s' is %lld and %lld in %s", a_length(B, a), a_name(B, a),
                            one, other, it),
               NULL;
    return eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, marks, mark, tail.s, hint,
                        "index '%.*s' is %lld in %s but %lld in %s", a_length(B, a), a_name(B, a),
                        one, before, other, it),
           NULL;
}

/* Returns the group of axis r as it is written, "(h d)", and sets c to its bytes. */
static const char *group_text(const bind *B, const eg_bound_term *t, int r, words *w, eg_caret *c)
{
    const eg_term_item *l = &t->item[t->first[r]], *m = &t->item[t->last[r] - 1];
    int from = l->at, to = m->at + item_length(B, m);
    while (from > 0 && B->spec[from] != '(') from--;
    while (to < B->p->length && B->spec[to] != ')') to++;
    *c = (eg_caret){ from, to + 1 - from };
    return say(w, "%.*s", to + 1 - from < 80 ? to + 1 - from : 80, B->spec + from);
}
/* True if a letter follows another one without a blank, as in "(head=8 d)", which was read as
 * letters. */
static bool run_together(const char *s)
{
    for (; s[0] && s[1]; s++)
        if ((unsigned)((s[0] | 32) - 'a') < 26 && (unsigned)((s[1] | 32) - 'a') < 26) return true;
    return false;
}
/* An axis of an operand that is a group, for the messages about it. */
typedef struct bad_group {
    const bind *B;
    const eg_bound_term *t;
    int r;               /* the axis of the operand */
    const char *text;    /* the group as it is in the string */
    eg_caret caret;      /* its place */
    const char *operand; /* the name of the operand */
    words tail;          /* the text about the operand after the caret */
} bad_group;
/* Records that the product of the sizes, all of them known, is not the size of the axis; known is
 * that product, or −1 if it does not fit in 64 bits. */
static void bad_product(const bad_group *g, int64_t known)
{
    const bind *B = g->B;
    words v = { .n = 0 };
    for (int i = g->t->first[g->r]; i < g->t->last[g->r]; i++)
        if (g->t->item[i].axis < B->p->axes)
            say(&v, "%s%.*s = %lld", v.n ? ", " : "", a_length(B, g->t->item[i].axis),
                a_name(B, g->t->item[i].axis), (long long)B->b->axis[g->t->item[i].axis].size);
    eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, 1, &g->caret, g->tail.s, NULL,
                 known < 0 ? "%s is %lld in %s, but the product of %s does not fit in 64 bits"
                           : "%s is %lld in %s, but %s gives another size",
                 g->text, (long long)g->t->dim[g->r], g->operand, v.s);
}
/* Records that the known sizes do not divide the axis, or that with a known size of 0 the unknown
 * one is not determined. */
static void bad_divisor(const bad_group *g, int64_t known)
{
    const bind *B = g->B;
    words v = { .n = 0 };
    const char *what = "";
    const long long n = g->t->dim[g->r];
    int a = 0, count = 0;
    for (int i = g->t->first[g->r]; i < g->t->last[g->r]; i++) {
        const int other = g->t->item[i].axis;
        const int64_t size = B->b->axis[other].size;
        if (size < 0) {
            a = other;
            continue;
        }
        count++;
        say(&v, "%s%.*s = %lld", v.n ? " and " : "", a_length(B, other), a_name(B, other),
            (long long)size);
        what = v.s;
    }
    if (known == 0 && n == 0)
        eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, 1, &g->caret, g->tail.s, NULL,
                     "%s is 0 in %s, and with %s, '%.*s' can have any size: give it", g->text,
                     g->operand, what, a_length(B, a), a_name(B, a));
    else
        eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, 1, &g->caret, g->tail.s, NULL,
                     "%s is %lld in %s, which %s do%s not divide", g->text, n, g->operand, what,
                     count == 1 ? "es" : "");
}
/* Returns a size that an index may have in an axis of n elements: 8, or else the smallest divisor.
 */
static int possible_size(int64_t n)
{
    int size = 8;
    if (n % size)
        for (size = 2; size < 64 && n % size;) size++;
    return n % size ? 1 : size;
}
/* Records that more than one size is unknown. */
static void bad_unknown(const bad_group *g)
{
    const bind *B = g->B;
    words v = { .n = 0 }, hint = { .n = 0 };
    int64_t rest = g->t->dim[g->r];
    int one = -1;
    for (int i = g->t->first[g->r]; i < g->t->last[g->r]; i++) {
        const int a = g->t->item[i].axis;
        if (B->b->axis[a].size > 0) rest /= B->b->axis[a].size;
        if (B->b->axis[a].size >= 0) continue;
        if (one < 0) one = a;
        if (v.n < 120) say(&v, "%s'%.*s'", v.n ? ", " : "", a_length(B, a), a_name(B, a));
    }
    const int size = possible_size(rest);
    if (run_together(g->text) && !B->p->names && !B->p->prefixed) {
        say(&hint, "%s", EG_LETTERS_HINT);
    } else {
        say(&hint, "write %.*s=%d in the string", a_length(B, one), a_name(B, one), size);
        if (strcmp(B->who, "rearrange") == 0 && !B->p->names)
            say(&hint, ", or .%.*s = %d", a_length(B, one), a_name(B, one), size);
    }
    eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, 1, &g->caret, g->tail.s, hint.s,
                 "%s is %lld in %s, and more than one of its sizes is unknown: %s", g->text,
                 (long long)g->t->dim[g->r], g->operand, v.s);
}
/* Axis r of operand k is a group whose known sizes do not divide it, or in which more than one size
 * is unknown. */
const eg_bound *eg__bad_group(const bind *B, int k, int r, int64_t known, int unknown)
{
    bad_group g = { .B = B, .t = &B->b->term[k], .r = r };
    words text = { .n = 0 };
    operand_name name;
    g.text = group_text(B, g.t, r, &text, &g.caret);
    g.operand = eg__operand_name(B->called, k, &name);
    eg__say_operand(&g.tail, B->called, k, g.t->rank, g.t->dim);
    if (unknown == 0)
        bad_product(&g, known);
    else if (unknown == 1)
        bad_divisor(&g, known);
    else
        bad_unknown(&g);
    return NULL;
}

/* True if two names differ by one typing error: a letter omitted, inserted, exchanged with its
 * neighbour, or (inside of the word) replaced. Names such as d_k and d_v, xpos and ypos, axis1 and
 * axis2 are assumed to differ on purpose. */
static bool one_typo(const char *a, int n, const char *b, int m)
{
    if (n > m) return one_typo(b, m, a, n);
    if (n < 3 || m < 4 || m - n > 1) return false;
    int i = 0, j = 0;
    while (i < n && a[i] == b[i]) i++;
    while (j < n - i && a[n - 1 - j] == b[m - 1 - j]) j++;
    if (m > n)
        return i + j >= n && i > 0 && !(i == n && ((unsigned)(b[i] - '0') < 10 || b[i] == '_'));
    if (i + j == n - 1)
        return i > 0 && j > 0 && a[i - 1] != '_' &&
               !((unsigned)(a[i] - '0') < 10 && (unsigned)(b[i] - '0') < 10);
    return i + j == n - 2 && a[i] == b[i + 1] && a[i + 1] == b[i];
}
/* The hint suggests the index that may have been meant. */
const eg_bound *eg__bad_out(const bind *B, int a, int at)
{
    const eg_parsed *p = B->p;
    words w = { .n = 0 };
    const char *hint = NULL;
    for (int o = 0; o < p->axes && !hint; o++) {
        const eg_parsed_axis *y = &p->axis[o], *x = &p->axis[a];
        if (o == a || !y->inputs) continue;
        const bool other_case =
            x->length == 1 && y->length == 1 && (B->spec[x->at] ^ B->spec[y->at]) == 32;
        if (other_case || one_typo(B->spec + x->at, x->length, B->spec + y->at, y->length))
            hint = say(&w, "is it '%.*s'?", a_length(B, o), a_name(B, o));
    }
    /* a moved index under another name: "b [l] -> b n w" of unfold */
    for (int o = 0; o < p->axes && !hint && B->n == 1 && B->flags & EG_NOTATION_NEW_OUT; o++)
        if (p->axis[o].inputs && !p->axis[o].outputs)
            hint = say(&w, "the output lacks '%.*s' of the operand", a_length(B, o), a_name(B, o));
    if (!hint && B->flags & EG_NOTATION_NEW_OUT)
        hint = say(&w, "a new axis needs a size: write %.*s=3", a_length(B, a), a_name(B, a));
    return eg__caret(B->cx, B->who, B->spec, 1, &(eg_caret){ at, p->axis[a].length }, NULL, hint,
                     B->flags & EG_NOTATION_NEW_OUT
                         ? "output index '%.*s' is in no operand and has no size"
                         : "output index '%.*s' is in no operand",
                     a_length(B, a), a_name(B, a)),
           NULL;
}

/* Refuses a name that occurs once and differs by one typing error from a name of the same size
 * that is in no term with it: a sum or a broadcast over it would give a wrong result without an
 * error. */
const eg_bound *eg__bad_name(const bind *B, bool *found)
{
    const eg_parsed *p = B->p;
    for (int a = 0; a < p->axes; a++) {
        const eg_parsed_axis *x = &p->axis[a];
        if (x->inputs != 1 || x->outputs || x->length < 3) continue;
        for (int o = 0; o < p->axes; o++) {
            const eg_parsed_axis *y = &p->axis[o];
            if (o == a || !y->inputs || (y->inputs + y->outputs == 1 && y->at > x->at) ||
                B->b->axis[o].size != B->b->axis[a].size ||
                !one_typo(B->spec + x->at, x->length, B->spec + y->at, y->length))
                continue;
            bool beside = false;
            for (int i = p->term[x->term].begin; i < p->term[x->term].end; i++)
                beside |= p->item[i].axis == o;
            if (beside) continue;
            *found = true;
            return eg__caret(B->cx, B->who, B->spec, 2,
                             (eg_caret[]){ { y->at, y->length }, { x->at, x->length } }, NULL, NULL,
                             "name '%.*s' occurs once and differs by one typing error from '%.*s': "
                             "if it is "
                             "another axis, call it something else",
                             a_length(B, a), a_name(B, a), a_length(B, o), a_name(B, o)),
                   NULL;
        }
    }
    return NULL;
}

/* With an ellipsis both readings of "...k ij" can fit: as names (2 axes and the rest) and, as in
 * NumPy, as letters (3 and the rest). True if ranks and sizes also allow letters; the string is
 * then refused. */
bool eg__also_letters(const bind *B)
{
    int64_t size[64];
    memset(size, -1, sizeof size);
    if (strpbrk(B->spec, "_0123456789()[]=")) return false;
    for (int k = 0; k < B->p->terms; k++) {
        const eg_parsed_term *t = &B->p->term[k];
        const eg_tensor *x = B->xs[k];
        int letters = 0, r = 0;
        if (!x) return false;
        for (int i = t->at; i < t->stop; i++) letters += (unsigned)((B->spec[i] | 32) - 'a') < 26;
        if (t->dots ? letters > x->rank : letters != x->rank) return false;
        for (int i = t->at; i < t->stop; i++) {
            const char c = B->spec[i];
            if (c == '.') r += x->rank - letters, i += 2;
            if (!((unsigned)((c | 32) - 'a') < 26)) continue;
            int64_t *s = &size[c & 63];
            if (*s < 0 || *s == 1)
                *s = x->dim[r];
            else if (*s != x->dim[r] && x->dim[r] != 1)
                return false;
            r++;
        }
    }
    for (int i = B->p->arrow ? B->p->term[B->p->terms].at : B->p->length; i < B->p->length; i++)
        if ((unsigned)((B->spec[i] | 32) - 'a') < 26 && size[B->spec[i] & 63] < 0) return false;
    return true;
}

static bool is_space(char c) { return c && strchr(" \t\r\n", c); }
static bool letter_at(const char *s, int i) { return (unsigned)((s[i] | 32) - 'a') < 26; }
/* True if bytes i and i + 1 could belong to one name: two letters, or a letter and a 1. */
static bool continues_name(const char *s, int i)
{
    return letter_at(s, i) && (letter_at(s, i + 1) || s[i + 1] == '1');
}

/* True if every ellipsis has a blank, a bracket, a comma, the arrow or an end of the string on both
 * sides, as einops requires. */
static bool dots_apart(const bind *B)
{
    const char *s = B->spec;
    for (const char *d = s; (d = strstr(d, "...")); d += 3)
        if ((d > s && !strchr(" \t\r\n()[],>", d[-1])) || (d[3] && !strchr(" \t\r\n()[],-", d[3])))
            return false;
    return true;
}

/* True if an operand has axis a of p, or the string gives its size. */
static bool name_sized(const bind *B, const eg_parsed *p, int a)
{
    for (int k = 0; k < p->terms; k++)
        for (int i = p->term[k].begin; B->xs[k] && i < p->term[k].end; i++)
            if (p->item[i].axis == a) return true;
    return p->axis[a].size >= 0;
}
/* True if the string can be bound as names: every term of p has as many axes as its operand, where
 * an ellipsis takes the rest; every axis of a term without an operand (.weights_axes) has a size;
 * every axis of the output is in an operand, or is new and has a size, where that is allowed; and
 * every option names an axis. */
static bool names_fit(const bind *B, const eg_parsed *p, int sizes, const eg_sized *size)
{
    for (int k = 0; k < p->terms; k++) {
        const eg_parsed_term *t = &p->term[k];
        if (t->dots == 2) return false;
        if (!B->xs[k]) continue;
        if (t->dots ? B->xs[k]->rank < t->slots - 1 : B->xs[k]->rank != t->slots) return false;
    }
    for (int g = 0, a; g < sizes; g++) {
        for (a = 0; a < p->axes; a++)
            if (p->axis[a].length == size[g].length &&
                !memcmp(B->spec + p->axis[a].at, size[g].name, (size_t)size[g].length))
                break;
        if (a == p->axes) return false;
    }
    for (int a = 0; a < p->axes; a++)
        if (p->axis[a].inputs ? !name_sized(B, p, a)
                              : !(B->flags & EG_NOTATION_NEW_OUT && p->axis[a].size >= 0))
            return false;
    return true;
}

/* True if both readings give the same result: names of two characters or more occur only in groups,
 * where their letters are one axis of the tensor as the name is, and they share no letter with
 * another name. */
static bool names_same(const bind *B, const eg_parsed *p)
{
    bool used[64] = { false }; /* by letter & 63 */
    if (!p->arrow && B->flags & (EG_NOTATION_IMPLICIT | EG_NOTATION_UNION)) return false;
    for (int i = 0; i < p->items; i++) {
        const eg_term_item *l = &p->item[i];
        if (l->axis < p->axes && p->axis[l->axis].length > 1 && !l->group) return false;
    }
    for (int a = 0; a < p->axes; a++)
        for (int i = 0; i < p->axis[a].length; i++) {
            const int at = p->axis[a].at + i;
            if (!letter_at(B->spec, at)) continue;
            if (used[B->spec[at] & 63]) return false;
            used[B->spec[at] & 63] = true;
        }
    return true;
}

/* Appends the string with a blank between any two letters, for a hint such as "write 'h e a d
 * ...'". */
static void append_letters(words *w, const char *s)
{
    for (int i = 0; s[i]; i++)
        say(w, continues_name(s, i) ? "%c " : "%c", is_space(s[i]) ? ' ' : s[i]);
}

/* True if the string can be read as names with another result. The string is parsed again, for
 * which noinline keeps the large buffer off the stack of the caller; so this is called only if some
 * letters follow each other without a blank. */
static __attribute__((noinline)) bool also_names(const bind *B, int sizes, const eg_sized *size)
{
    eg_parse_buffer buffer;
    const eg_parsed *p = eg__parse(NULL, B->who, B->spec, EG_READ_AS_NAMES, &buffer);
    return p && p->terms == B->p->terms && names_fit(B, p, sizes, size) && !names_same(B, p);
}
bool eg__certain_letters(const bind *B, int sizes, const eg_sized *size)
{
    enum { SHOWN = 48 }; /* largest number of characters of a string that is repeated in the hint */
    const char *s = B->spec;
    int at = 0, n = 1;
    while (s[at] && !continues_name(s, at)) at++;
    if (!s[at] || !dots_apart(B) || !also_names(B, sizes, size)) return true;
    while (continues_name(s, at + n - 1)) n++;
    words letters = { .n = 0 }, hint = { .n = 0 };
    for (int i = 0; i < n && i < SHOWN; i++) say(&letters, " %c", s[at + i]);
    if (B->p->length <= SHOWN) {
        say(&hint, "say 'names: %s', or write '", s + strspn(s, " \t\r\n"));
        append_letters(&hint, s + strspn(s, " \t\r\n"));
        say(&hint, "'");
    } else
        say(&hint, "begin the string with 'names:' or with 'letters:'");
    eg__caret(B->cx, B->who, s, 1, &(eg_caret){ at, n }, NULL, hint.s,
              "'%.*s' can be read as a name or as the letters%s", clip(n), s + at, letters.s);
    return false;
}
