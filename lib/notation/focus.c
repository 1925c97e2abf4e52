/* focus.c: views of an operand for operations on bracketed axes: with the bracketed axes last, or
 * in the order of the string with one axis described; and results with the axes in the order of the
 * string. */
#include "notation/notation.h"
#include <string.h>

int eg__item_of(const eg_bound_term *t, int axis)
{
    for (int k = 0; k < t->items; k++)
        if (t->item[k].axis == axis) return k;
    return -1;
}

bool eg__no_repeats(const eg_bound *b, int term)
{
    const eg_bound_term *t = term == b->terms ? &b->out : &b->term[term];
    for (int k = 1; k < t->items; k++)
        if (eg__item_of(t, t->item[k].axis) < k) {
            const eg_axis_name *a = &b->axis[t->item[k].axis];
            eg__refuse(b, term, k,
                       "index '%.*s' occurs twice in one term; take the diagonal first with "
                       "eg_einsum or eg_diagonal",
                       a->length, a->text);
            return false;
        }
    return true;
}

eg_tensor *eg__reordered(eg_tensor *x, int rank, const int *order)
{
    bool same = true;
    for (int k = 0; k < rank; k++) same &= order[k] == k;
    return same ? x : eg_permute_n(x, rank, order);
}

/* The outer axes are first, in their order, then the bracketed ones in theirs. */
bool eg__focus_items(eg_focus *f, const eg_bound *b, eg_tensor *given)
{
    const eg_bound_term *t = &b->term[0];
    *f = (eg_focus){ .who = b->who, .bound = b, .given = given };
    if (t->items > EG_RANK_MAX) {
        eg__refuse(b, 0, -1, "%d axes; at most %d", t->items, EG_RANK_MAX);
        return false;
    }
    if (!eg__no_repeats(b, 0)) return false;
    for (int inside = 0; inside < 2; inside++)
        for (int k = 0; k < t->items; k++)
            if (t->item[k].bracket == inside) {
                f->item[f->outer + f->inner] = k;
                if (inside)
                    f->inner++;
                else
                    f->outer++;
            }
    if (!f->inner) {
        eg__refuse(
            b, 0, -1,
            "no index is in brackets; the axes to work along are in [ ], as in \"b h i [j]\"");
        return false;
    }
    f->x = t->x;
    return true;
}
bool eg__focus_bound(eg_focus *f, const eg_bound *b, eg_tensor *given)
{
    if (!eg__focus_items(f, b, given)) return false;
    f->x = eg__reordered(f->x, f->outer + f->inner, f->item);
    return eg_ok(f->x);
}

bool eg__focus(eg_focus *f, const char *who, const char *spec, eg_tensor *x)
{
    if (!eg__check_usable(who, x)) return false;
    if (spec) {
        const eg_bound *b = eg__bind(who, spec, EG_NOTATION_BRACKETS, 1, &x, 0, NULL);
        return b && eg__focus_bound(f, b, x);
    }
    *f = (eg_focus){ .who = who, .given = x, .x = x, .inner = x->rank };
    for (int k = 0; k < x->rank; k++) f->item[k] = k;
    return true;
}

bool eg__focus_in_place(eg_focus *f, const char *who, const char *spec, eg_tensor *x,
                        const char *const *called)
{
    if (!eg__check_usable(who, x)) return false;
    const eg_bound *b = eg__bind_called(who, spec, EG_NOTATION_BRACKETS, 1, &x, 0, NULL, called);
    return b && eg__focus_items(f, b, x);
}
static eg_tensor *focus_refuse(const eg_named_axis *a, eg_code code, const char *sentence)
{
    return eg__refuse_as(a->bound, code, 0, a->item, "%s", sentence);
}
eg_named_axis eg__focus_named(const eg_focus *f, int k)
{
    const eg_bound *b = f->bound;
    const int item = f->item[f->outer + k];
    const eg_axis_name *name = &b->axis[b->term[0].item[item].axis];
    return (eg_named_axis){ .who = f->who,
                            .x = f->x,
                            .axis = item,
                            .refuse = focus_refuse,
                            .name = name->text,
                            .length = name->length,
                            .bound = b,
                            .item = item };
}

eg_tensor *eg__refuse_as(const eg_bound *b, eg_code code, int term, int item, const char *format,
                         ...)
{
    const bool first = !b->cx->failed;
    char sentence[400];
    va_list list;
    va_start(list, format);
    eg__vsentence(sentence, sizeof sentence, format, list);
    va_end(list);
    eg__refuse(b, term, item, "%s", sentence);
    if (first) b->cx->code = code;
    return eg__poison(b->cx);
}

eg_tensor *eg__merge(const eg_bound_term *t, eg_tensor *y)
{
    int64_t dim[EG_RANK_MAX];
    if (!eg_ok(y)) return y;
    for (int r = 0; r < t->rank; r++)
        dim[r] = eg__count(t->last[r] - t->first[r], y->dim + t->first[r]);
    return t->rank == y->rank && !memcmp(dim, y->dim, (size_t)t->rank * sizeof *dim)
               ? y
               : eg_reshape_n(y, t->rank, dim);
}
/* Undoes the permutation and merges groups. */
eg_tensor *eg__focus_same(const eg_focus *f, eg_tensor *y)
{
    const int n = f->outer + f->inner;
    int back[EG_RANK_MAX];
    for (int k = 0; k < n; k++) back[f->item[k]] = k;
    y = eg__reordered(y, n, back);
    return f->bound ? eg__merge(&f->bound->term[0], y) : y;
}

bool eg__focus_axis(const eg_focus *f)
{
    const eg_bound *b = f->bound;
    char text[256];
    if (f->inner == 1) return true;
    if (b)
        eg__refuse(b, 0, f->item[f->outer + 1],
                   "works along one axis, and this is the second one in brackets");
    else
        eg_fail_as(f->x->cx, EG_ERROR_NOTATION,
                   "%s: %s has no single axis; name one, as in \"b [l] d\"", f->who,
                   eg__dims_text(f->x, text, sizeof text));
    return false;
}
bool eg__focus_no_output(const eg_focus *f)
{
    const eg_bound *b = f->bound;
    if (!b || !b->arrow) return true;
    eg__refuse(b, b->terms, -1, "the result has the operand's axes; it takes no output");
    return false;
}
bool eg__focus_one(const eg_focus *f) { return eg__focus_axis(f) && eg__focus_no_output(f); }

/* A group with some items in brackets counts both as bracketed and as outer, each time with that
 * part of the size. */
int eg__focus_dims(const eg_focus *f, bool bracketed, int64_t *dim)
{
    const eg_bound *b = f->bound;
    int rank = 0;
    if (!b) {
        for (int k = 0; bracketed && k < f->inner; k++) dim[rank++] = f->x->dim[k];
        return rank;
    }
    const eg_bound_term *t = &b->term[0];
    for (int r = 0; r < t->rank; r++) {
        int64_t size = 1;
        bool mine = t->first[r] == t->last[r] && !bracketed;
        for (int k = t->first[r]; k < t->last[r]; k++)
            if (t->item[k].bracket == bracketed) {
                mine = true;
                size *= b->axis[t->item[k].axis].size;
            }
        if (mine) dim[rank++] = size;
    }
    return rank;
}

/* If there is an arrow, the order is that of the output; else that of the operand without the
 * bracketed axes, with groups merged and 1s kept. */
eg_tensor *eg__focus_outer(const eg_focus *f, eg_tensor *y)
{
    const eg_bound *b = f->bound;
    if (!b || !eg_ok(y)) return y;
    const eg_bound_term *t = &b->term[0];
    if (b->arrow) {
        int order[EG_RANK_MAX];
        for (int k = 0; k < b->out.items; k++) {
            int at = 0;
            while (at < f->outer && t->item[f->item[at]].axis != b->out.item[k].axis) at++;
            if (at == f->outer)
                return eg__refuse(
                    b, b->terms, k,
                    "a bracketed index is no axis of the result and cannot be in the output");
            order[k] = at;
        }
        if (!eg__no_repeats(b, b->terms)) return eg__poison(y->cx);
        for (int k = 0; k < f->outer; k++) {
            const eg_term_item *l = &t->item[f->item[k]];
            if (eg__item_of(&b->out, l->axis) < 0)
                return eg__refuse(b, 0, f->item[k],
                                  "index '%.*s' is neither in brackets nor in the output",
                                  b->axis[l->axis].length, b->axis[l->axis].text);
        }
        return eg__merge(&b->out, eg__reordered(y, f->outer, order));
    }
    int64_t dim[EG_RANK_MAX];
    const int rank = eg__focus_dims(f, false, dim);
    if (rank == y->rank && !memcmp(dim, y->dim, (size_t)rank * sizeof *dim)) return y;
    return eg_reshape_n(y, rank, dim);
}
