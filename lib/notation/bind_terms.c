/* bind_terms.c: binds a string: from its terms and the operands to the size of every axis, and to a
 * view of every operand with one axis per item; or to an error with carets.
 *
 * Sizes are given by the string (h=8), by options (.h = 8), and by operands: first by axes that are
 * not in groups, then by groups: (a b c) = n with one unknown size a gives a = n / (b c). The
 * latter is repeated until nothing changes. */
#include "notation/bind_terms.h"
#include <string.h>

/* Appends an item that is an ellipsis, expanded to `dots` axes, from item m on. Returns the number
 * of items then. */
static int fill_dots(const bind *B, eg_bound_term *t, const eg_term_item *item, int m, int dots)
{
    for (int e = 0; e < dots; e++, m++) {
        t->item[m] = *item;
        t->item[m].axis = (uint16_t)(B->b->axes - dots + e);
    }
    return m;
}
/* Sets the items of a term, with its ellipsis expanded to `dots` axes, and the range of items of
 * each axis of the operand. */
static void fill(const bind *B, eg_bound_term *t, const eg_parsed_term *pt, int dots)
{
    const eg_term_item *item = B->p->item + pt->begin, *end = B->p->item + pt->end;
    int r = 0, m = 0;
    if (pt->plain) {
        for (; item < end; item++, m++) t->item[m] = *item, t->first[m] = m, t->last[m] = m + 1;
        t->items = t->rank = m;
        return;
    }
    while (item < end) {
        const int group = item->group, start = m;
        const bool ellipsis = item->axis == EG_ITEM_DOTS;
        do {
            if (item->axis == EG_ITEM_DOTS)
                m = fill_dots(B, t, item, m, dots);
            else if (item->axis != EG_ITEM_ONE)
                t->item[m++] = *item;
            item++;
        } while (group && item < end && item->group == group);
        if (!group && ellipsis) /* each axis of the ellipsis is one of the operand */
            for (int i = start; i < m; i++) t->first[r] = i, t->last[r++] = i + 1;
        else
            t->first[r] = start, t->last[r++] = m;
    }
    t->items = m, t->rank = r;
}

/* Sets the size of axis a to that of item i of operand k. False after an error: the axis already
 * has another size, and neither of the two is a 1 that is broadcast. */
static bool unify_size(bind *B, int a, int64_t size, int k, int i)
{
    eg_axis_name *axis = &B->b->axis[a];
    if (axis->size == size) return true;
    if (axis->size < 0) {
        axis->size = size, axis->from = k;
        return true;
    }
    if (a >= B->p->axes || B->flags & EG_NOTATION_ONES) {
        const eg_bound_term *t = &B->b->term[k];
        for (int r = 0; r < t->rank; r++) { /* a diagonal is not broadcast: ii of (1, 5) */
            if (t->first[r] >= i) break;
            if (t->item[t->first[r]].axis == a && t->dim[r] != size) {
                axis->size = t->dim[r], axis->from = k;
                return eg__bad_size(B, a, size, k, i), false;
            }
        }
        if (size == 1) return B->broadcasts = true;
        if (axis->size == 1 && axis->from >= 0) {
            axis->size = size, axis->from = k;
            return B->broadcasts = true;
        }
    }
    return eg__bad_size(B, a, size, k, i), false;
}

/* Determines the unknown size of the group that axis r of operand k is, if there is one; *progress
 * is then set. In the last pass refuses sizes that are still unknown or do not fit. False after an
 * error. */
static bool solve_group(bind *B, int k, int r, bool last, bool *progress)
{
    eg_bound *b = B->b;
    const eg_bound_term *t = &b->term[k];
    int64_t known = 1;
    int unknown = 0, a = 0;
    bool fit = true, zero = false;
    for (int i = t->first[r]; i < t->last[r]; i++) {
        const int64_t size = b->axis[t->item[i].axis].size;
        if (size < 0)
            unknown++, a = t->item[i].axis;
        else if (size == 0)
            zero = true;
        else if (__builtin_mul_overflow(known, size, &known))
            fit = false;
    }
    if (zero) known = 0, fit = true;
    if (unknown == 0) {
        if (!last || (fit && known == t->dim[r])) return true;
        if (B->flags & EG_NOTATION_ONES && t->dim[r] == 1) return B->broadcasts = true;
        return eg__bad_group(B, k, r, fit ? known : -1, 0), false;
    }
    if (unknown > 1) return !last || (eg__bad_group(B, k, r, known, 2), false);
    if (!fit || known == 0 || t->dim[r] % known) return eg__bad_group(B, k, r, known, 1), false;
    b->axis[a].size = t->dim[r] / known, b->axis[a].from = k;
    return *progress = true;
}
/* Determines sizes from groups: (a b c) = n with one unknown size a gives a = n / (b c). Repeats
 * until nothing changes, and then makes a last pass. False after an error. */
static bool solve_groups(bind *B)
{
    const eg_bound *b = B->b;
    for (bool last = false, progress = true;; last = !progress) {
        progress = false;
        for (int k = 0; k < b->terms; k++) {
            const eg_bound_term *t = &b->term[k];
            for (int r = 0; t->x && r < t->rank; r++) {
                if (t->first[r] == t->last[r] || !t->item[t->first[r]].group) continue;
                if (!solve_group(B, k, r, last, &progress)) return false;
            }
        }
        if (last) return true;
    }
}

/* Removes the items of an axis of size 1 whose letter has a greater size: the operand then does not
 * have the letter, and is broadcast along it. */
static void drop_ones(eg_bound_term *t, const eg_axis_name *axis)
{
    int m = 0;
    for (int r = 0; r < t->rank; r++) {
        const int first = t->first[r], last = t->last[r];
        bool drop = false;
        for (int i = first; i < last; i++)
            drop |= t->dim[r] == 1 && axis[t->item[i].axis].size != 1;
        t->first[r] = m;
        for (int i = first; i < last && !drop; i++) t->item[m++] = t->item[i];
        t->last[r] = m;
    }
    t->items = m;
}

/* True if the product of the sizes other than 0 fits in 64 bits, in bytes; else records an error.
 * Sizes of 0 do not help, since strides are such products. */
static bool countable(const bind *B, const eg_bound_term *t)
{
    int64_t all = 1;
    bool fit = true;
    for (int i = 0; i < t->items; i++) {
        const int64_t size = B->b->axis[t->item[i].axis].size;
        if (size && (__builtin_mul_overflow(all, size, &all) || all > INT64_MAX / 8)) fit = false;
    }
    if (!fit)
        eg__refuse(B->b, (int)(t == &B->b->out ? B->b->terms : t - B->b->term), -1,
                   "the sizes multiply to more than 64 bits can count");
    return fit;
}
/* Sets the sizes of the axes of a term without a tensor: products over groups. False after an
 * error. */
static bool sizes_of(const bind *B, eg_bound_term *t)
{
    if (!countable(B, t)) return false;
    for (int r = 0; r < t->rank; r++) {
        t->dim[r] = 1;
        for (int i = t->first[r]; i < t->last[r]; i++)
            t->dim[r] *= B->b->axis[t->item[i].axis].size;
    }
    return true;
}

/* Records an error: the option .a = size is negative, or the string gives a different size. Returns
 * NULL. */
static const eg_bound *bad_given(const bind *B, int a, int64_t size)
{
    const eg_parsed_axis *x = &B->p->axis[a];
    if (size < 0)
        return eg_fail_as(B->cx, EG_ERROR_MISUSE, "%s: the size given for '%.*s' is %lld", B->who,
                          a_length(B, a), a_name(B, a), (long long)size),
               NULL;
    return eg__caret(B->cx, B->who, B->spec, 1, &(eg_caret){ x->size_at, x->length }, NULL, NULL,
                     "index '%.*s' is %lld in the string but %lld in the option .%.*s",
                     a_length(B, a), a_name(B, a), (long long)x->size, (long long)size,
                     a_length(B, a), a_name(B, a)),
           NULL;
}

/* Records an error: an option gives the size of a letter that is not in the string. If a name
 * begins with it, it may be the name that is meant, whose size can only stand in the string. */
static void bad_option(const bind *B, const eg_sized *given)
{
    char hint[120];
    int a = 0;
    while (a < B->p->axes && (B->b->axis[a].length < 2 || B->b->axis[a].text[0] != given->name[0]))
        a++;
    if (a < B->p->axes)
        snprintf(hint, sizeof hint, "the size of a name is written in the string: '%.*s=%lld'",
                 a_length(B, a), a_name(B, a), (long long)given->size);
    eg__caret(B->cx, B->who, B->spec, 0, NULL, NULL, a < B->p->axes ? hint : NULL,
              "a size is given for '%.*s', which is not in the string", clip(given->length),
              given->name);
}

/* -- the steps of binding: each returns false after an error ---------------------------------- */
/* Checks that the string has a term of the right rank for each operand. Sets B->dots to the number
 * of axes of the ellipsis, the most of all operands. */
static bool match_ranks(bind *B)
{
    const eg_parsed *p = B->p;
    operand_name name;
    if (p->terms != B->n) return eg__bad_count(B, B->n), false;
    if (p->bracket >= 0 && !(B->flags & EG_NOTATION_BRACKETS)) {
        eg__caret(B->cx, B->who, B->spec, 1, &(eg_caret){ p->bracket, 1 }, NULL, NULL,
                  "brackets have no meaning here");
        return false;
    }
    for (int k = 0; k < B->n; k++) {
        const eg_parsed_term *t = &p->term[k];
        const eg_tensor *x = B->xs[k];
        const int rank = x ? x->rank : t->slots;
        if (t->dots == 2) {
            eg__caret(B->cx, B->who, B->spec, 1, &(eg_caret){ t->at, t->stop - t->at }, NULL, NULL,
                      "an ellipsis is inside of a group of %s, so its axes cannot be determined",
                      eg__operand_name(B->called, k, &name));
            return false;
        }
        if (t->dots ? rank < t->slots - 1 : rank != t->slots) return eg__bad_rank(B, k), false;
        if (t->dots && x && rank - t->slots + 1 > B->dots) B->dots = rank - t->slots + 1;
    }
    if (!p->names || p->prefixed || !B->dots || !eg__also_letters(B)) return true;
    eg__caret(B->cx, B->who, B->spec, 0, NULL, NULL,
              "for names begin it with 'names:', for letters with 'letters:'",
              "with '...' the string can be read as letters and as names");
    return false;
}

/* Returns the number of axes of the ellipsis of term k; k = n is the output. */
static int dots_of(const bind *B, int k)
{
    const eg_parsed_term *t = &B->p->term[k];
    return !t->dots ? 0 : k < B->n && B->xs[k] ? B->xs[k]->rank - t->slots + 1 : B->dots;
}

/* Allocates the result in one block: head, axes, terms, sizes, ranges of items, items, the
 * string. */
static bool lay_out(bind *B)
{
    const eg_parsed *p = B->p;
    const int n = B->n, axes = p->axes + B->dots;
    int items = 0, slots = 0, dims = 0;
    for (int k = 0; k < n + p->arrow; k++) {
        const eg_parsed_term *t = &p->term[k];
        const int e = dots_of(B, k);
        if (t->names + e > EG_RANK_MAX) {
            eg__caret(B->cx, B->who, B->spec, 1, &(eg_caret){ t->at, t->stop - t->at }, NULL, NULL,
                      "a term has %d axes; at most %d", t->names + e, EG_RANK_MAX);
            return false;
        }
        items += t->end - t->begin + e;
        slots += t->slots + e;
        if (k == n || !B->xs[k]) dims += t->slots + e;
    }
    const bool implicit = !p->arrow && B->flags & (EG_NOTATION_IMPLICIT | EG_NOTATION_UNION);
    if (implicit) items += axes, slots += axes, dims += axes;

    const size_t head =
        sizeof(eg_bound) + (size_t)axes * sizeof(eg_axis_name) + (size_t)n * sizeof(eg_bound_term);
    const size_t bytes = head + (size_t)dims * sizeof(int64_t) + 2 * (size_t)slots * sizeof(int) +
                         (size_t)items * sizeof(eg_term_item) + (size_t)p->length + 1;
    eg_bound *b = eg__alloc(B->cx, bytes);
    if (!b) return false;
    *b = (eg_bound){ .bytes = bytes,
                     .who = B->who,
                     .prefixed = p->prefixed,
                     .begin = p->begin,
                     .called = B->called,
                     .cx = B->cx,
                     .axes = axes,
                     .axis = (eg_axis_name *)(b + 1),
                     .dots = B->dots,
                     .terms = n,
                     .arrow = p->arrow || implicit };
    b->term = (eg_bound_term *)(b->axis + axes);
    B->b = b;
    B->dim = (int64_t *)(b->term + n);
    B->place = (int *)(B->dim + dims);
    B->item = (eg_term_item *)(B->place + 2 * slots);
    b->spec = memcpy(B->item + items, B->spec, (size_t)p->length + 1);
    return true;
}

/* Fills the table of axes, with the sizes given by the string and by options. */
static bool name_axes(bind *B, int sizes, const eg_sized *size)
{
    const eg_parsed *p = B->p;
    eg_bound *b = B->b;
    for (int a = 0; a < p->axes; a++)
        b->axis[a] = (eg_axis_name){ .text = b->spec + p->axis[a].at,
                                     .length = p->axis[a].length,
                                     .size = p->axis[a].size,
                                     .from = -1 };
    for (int a = p->axes; a < b->axes; a++)
        b->axis[a] = (eg_axis_name){ .text = "...", .length = 3, .size = -1, .from = -1 };
    for (int g = 0; g < sizes; g++) {
        int a = 0;
        while (a < p->axes && (b->axis[a].length != size[g].length ||
                               memcmp(b->axis[a].text, size[g].name, (size_t)size[g].length)))
            a++;
        if (a == p->axes) return bad_option(B, &size[g]), false;
        if (size[g].size < 0 || (b->axis[a].size >= 0 && b->axis[a].size != size[g].size))
            return bad_given(B, a, size[g].size), false;
        b->axis[a].size = size[g].size;
    }
    return true;
}

/* Records an error: the string has a 1 for axis r of operand k, whose size is not 1. */
static void refuse_size_of_one(const bind *B, int k, int r)
{
    const eg_bound_term *t = &B->b->term[k];
    const eg_parsed_term *pt = &B->p->term[k];
    const int e = dots_of(B, k);
    words tail = { .n = 0 };
    operand_name name;
    int nth = 0, at = pt->at;
    for (int q = pt->begin; q < pt->end; q++) {
        const eg_term_item *l = &B->p->item[q];
        if (l->axis == EG_ITEM_ONE && nth == r) at = l->at;
        if (!l->group || q + 1 == pt->end || l[1].group != l->group)
            nth += l->axis == EG_ITEM_DOTS ? e : 1;
    }
    eg__say_operand(&tail, B->called, k, t->rank, t->dim);
    eg__caret_as(B->cx, EG_ERROR_SHAPE, B->who, B->spec, 1, &(eg_caret){ at, 1 }, tail.s,
                 eg__touches_name(B->spec, at) ? EG_ONE_HINT : NULL,
                 "axis %d of %s is %lld where the string has 1", r,
                 eg__operand_name(B->called, k, &name), (long long)t->dim[r]);
}

/* Sets the items of operand k, and the sizes of those that are not in groups. */
static bool bind_operand(bind *B, int k)
{
    eg_bound_term *t = &B->b->term[k];
    const eg_parsed_term *pt = &B->p->term[k];
    eg_tensor *x = t->x = B->xs[k];
    const int e = dots_of(B, k), rank = x ? x->rank : pt->slots - (pt->dots == 1) + e;
    t->item = B->item;
    t->first = B->place;
    t->last = B->place + rank;
    fill(B, t, pt, e);
    B->item += t->items;
    B->place += 2 * t->rank;
    if (!x) {
        t->dim = B->dim;
        B->dim += t->rank;
        return true;
    }
    t->dim = x->dim;
    for (int r = 0; r < t->rank; r++) {
        const int i = t->first[r];
        if (i == t->last[r]) {
            if (t->dim[r] != 1) return refuse_size_of_one(B, k, r), false;
        } else if (t->item[i].group)
            B->groups = true;
        else if (!unify_size(B, t->item[i].axis, t->dim[r], k, i))
            return false;
    }
    return true;
}

/* Binds the term after the arrow. False after an error. */
static bool written_output(bind *B)
{
    const eg_parsed *p = B->p;
    const eg_parsed_term *pt = &p->term[B->n];
    eg_bound *b = B->b;
    operand_name name;
    for (int i = pt->begin; i < pt->end; i++) {
        const int a = p->item[i].axis;
        if (a < p->axes && !p->axis[a].inputs &&
            !(B->flags & EG_NOTATION_NEW_OUT && b->axis[a].size >= 0))
            return eg__bad_out(B, a, p->item[i].at), false;
    }
    for (int k = 0; !pt->dots && B->dots && k < B->n; k++)
        for (int i = 0; i < b->term[k].items; i++) {
            const eg_term_item *l = &b->term[k].item[i];
            if (l->axis < p->axes || l->bracket) continue;
            eg__caret(B->cx, B->who, B->spec, 1, &(eg_caret){ l->at, 3 }, NULL, NULL,
                      "the output has no '...', which stands for %d ax%s of %s", B->dots,
                      B->dots == 1 ? "is" : "es", eg__operand_name(B->called, k, &name));
            return false;
        }
    b->out.last = b->out.first + pt->slots + (pt->dots == 1 ? B->dots - 1 : 0);
    fill(B, &b->out, pt, B->dots);
    return true;
}
/* Lists all axes in the order of first appearance, the axes of the ellipsis where it first occurs.
 * Returns their number. */
static int union_output(const bind *B, eg_term_item *out)
{
    const eg_bound *b = B->b;
    const int named = B->p->axes;
    bool had[EG_AXES_MAX];
    int m = 0;
    memset(had, 0, (size_t)b->axes);
    for (int k = 0; k < B->n; k++)
        for (int i = 0; i < b->term[k].items; i++) {
            const eg_term_item l = b->term[k].item[i];
            const int from = l.axis < named ? l.axis : named,
                      to = l.axis < named ? l.axis + 1 : b->axes;
            for (int a = from; a < to; a++) {
                if (had[a]) continue;
                had[a] = true;
                out[m] = l;
                out[m].group = 0;
                out[m++].axis = (uint16_t)a;
            }
        }
    return m;
}
/* Lists the axes of the ellipsis, then the axes that occur once, in alphabetical order with
 * capitals first, as NumPy does. Returns their number. */
static int once_output(const bind *B, eg_term_item *out)
{
    const eg_bound *b = B->b;
    const eg_parsed *p = B->p;
    int m = 0;
    for (int a = p->axes; a < b->axes; a++)
        out[m++] = (eg_term_item){ .axis = (uint16_t)a, .at = (uint16_t)p->length };
    for (int a = 0; a < p->axes; a++) {
        if (p->axis[a].inputs != 1) continue;
        int j = m++;
        for (; j > B->dots; j--) {
            const eg_axis_name *x = &b->axis[out[j - 1].axis], *y = &b->axis[a];
            const int shorter = x->length < y->length ? x->length : y->length,
                      order = memcmp(x->text, y->text, (size_t)shorter);
            if (order < 0 || (order == 0 && x->length < y->length)) break;
            out[j] = out[j - 1];
        }
        out[j] = (eg_term_item){ .axis = (uint16_t)a, .at = p->axis[a].at };
    }
    return m;
}
static bool bind_output(bind *B)
{
    eg_bound_term *o = &B->b->out;
    o->item = B->item;
    o->first = B->place;
    o->dim = B->dim;
    if (B->p->arrow) return written_output(B);
    const int m = B->flags & EG_NOTATION_UNION ? union_output(B, o->item) : once_output(B, o->item);
    if (m > EG_RANK_MAX)
        return eg_fail_as(B->cx, EG_ERROR_SHAPE, "%s: the output has %d axes; at most %d", B->who,
                          m, EG_RANK_MAX),
               false;
    o->items = o->rank = m;
    o->last = o->first + m;
    for (int i = 0; i < m; i++) o->first[i] = i, o->last[i] = i + 1;
    return true;
}

/* True if every index has a size; else records an error. An axis of an ellipsis that no operand has
 * gets size 1. */
static bool all_sized(const bind *B)
{
    eg_bound *b = B->b;
    for (int a = 0; a < b->axes; a++) {
        if (b->axis[a].size >= 0) continue;
        if (a < B->p->axes) {
            eg__caret(B->cx, B->who, B->spec, 1,
                      &(eg_caret){ B->p->axis[a].at, B->p->axis[a].length }, NULL, NULL,
                      "index '%.*s' has no size", a_length(B, a), a_name(B, a));
            return false;
        }
        b->axis[a].size = 1;
    }
    return true;
}

/* Replaces operand k by a view with one axis for each item. False after an error. */
static bool split_operand(const bind *B, int k)
{
    eg_bound_term *t = &B->b->term[k];
    if (!t->x) return sizes_of(B, t);
    if (B->broadcasts) drop_ones(t, B->b->axis);
    if (B->p->term[k].plain && !B->broadcasts) return true;
    bool changed = false;
    for (int r = 0; r < t->rank; r++) changed |= t->last[r] - t->first[r] != 1;
    if (!changed) return true;
    if (!countable(B, t)) return false;
    int64_t shape[EG_RANK_MAX];
    for (int i = 0; i < t->items; i++) shape[i] = B->b->axis[t->item[i].axis].size;
    t->x = eg_view_n(t->x, t->items, shape);
    return eg_ok(t->x);
}

/* True if the string has only one plausible reading; else records an error: a name seems to be
 * mistyped, or the letters could be names too. */
static bool reading_is_certain(const bind *B, int sizes, const eg_sized *size)
{
    const eg_parsed *p = B->p;
    bool found = false;
    if (p->names && B->n > 1) eg__bad_name(B, &found);
    return !found && (p->names || p->prefixed || eg__certain_letters(B, sizes, size));
}

/* Sets *index to the first index of the output that no operand has, with `size`. False if there is
 * none. */
static bool new_index(const eg_parsed *p, const char *spec, int64_t size, eg_sized *index)
{
    for (int k = 0; p->arrow && k < p->axes; k++)
        if (!p->axis[k].inputs) {
            *index = (eg_sized){ spec + p->axis[k].at, p->axis[k].length, size };
            return true;
        }
    return false;
}

const eg_bound *eg__bind_anew(eg_ctx *cx, const char *who, const char *spec, int flags, int n,
                              eg_tensor *const *xs, int sizes, const eg_sized *size,
                              const char *const *called)
{
    eg_parse_buffer buffer;
    const eg_parsed *p = eg__parse(cx, who, spec, EG_READ_BY_BLANKS, &buffer);
    if (!p) return NULL;
    eg_sized index;
    if (sizes && !size->name) {
        sizes = new_index(p, spec, size->size, &index);
        size = &index;
    }
    bind B = { .cx = cx,
               .who = who,
               .spec = spec,
               .flags = flags,
               .n = n,
               .xs = xs,
               .p = p,
               .called = called };
    if (!match_ranks(&B) || !lay_out(&B) || !name_axes(&B, sizes, size)) return NULL;
    for (int k = 0; k < n; k++)
        if (!bind_operand(&B, k)) return NULL;
    if (B.groups && !solve_groups(&B)) return NULL;
    if ((B.b->arrow && !bind_output(&B)) || !all_sized(&B)) return NULL;
    if ((B.b->arrow && !sizes_of(&B, &B.b->out)) || !reading_is_certain(&B, sizes, size))
        return NULL;
    for (int k = 0; k < n; k++)
        if (!split_operand(&B, k)) return NULL;
    return B.b;
}

eg_tensor *eg__refuse(const eg_bound *b, int term, int item, const char *format, ...)
{
    char sentence[400];
    va_list list;
    va_start(list, format);
    eg__vsentence(sentence, sizeof sentence, format, list);
    va_end(list);
    const eg_bound_term *t = term < b->terms ? &b->term[term] : &b->out;
    eg_caret c = { 0, 1 };
    words tail = { .n = 0 };
    if (item >= 0 && item < t->items) {
        const eg_axis_name *axis = &b->axis[t->item[item].axis];
        c = (eg_caret){ t->item[item].at, axis->length };
    } else { /* the whole term, between commas and arrow */
        int at = b->begin, k = 0;
        const char *s = b->spec;
        for (; s[at] && k < term; at++) {
            if (s[at] == '-' && s[at + 1] == '>')
                k = b->terms, at++;
            else if (s[at] == ',')
                k++;
        }
        while (s[at] == ' ') at++;
        int end = at;
        while (s[end] && s[end] != ',' && s[end] != '-') end++;
        while (end > at && s[end - 1] == ' ') end--;
        c = (eg_caret){ at, end - at };
    }
    if (term < b->terms && t->x) eg__say_operand(&tail, b->called, term, t->rank, t->dim);
    return eg__caret(b->cx, b->who, b->spec, 1, &c, tail.s, NULL, "%s", sentence);
}
