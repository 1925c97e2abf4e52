/* where_mask.c: predicates such as "j <= i & doc[b,i] == doc[b,j]" over the axes of scores, as
 * masks: which index an offset moves, the bool tensor of a predicate, and eg_where_mask. */
#include "ops/ops.h"
#include <string.h>

/* Sets w->moved to the axis that the offset moves: the one that .offset_letter names, or the only
 * one of the predicate that is not a key; −1 if there is none. False after an error. */
static bool find_moved(eg_where_call *w, uint32_t positions, uint32_t sizes)
{
    const uint32_t in = positions & ~w->keys ? positions & ~w->keys : sizes & ~w->keys;
    w->moved = in ? 31 - __builtin_clz(in) : -1;
    if (w->offset_letter) {
        const size_t n = strlen(w->offset_letter);
        for (int r = 0; r < w->rank; r++) {
            const eg_axis_name *a = w->name[r];
            if (w->keys >> r & 1 || (size_t)a->length != n || memcmp(a->text, w->offset_letter, n))
                continue;
            w->moved = (positions | sizes) >> r & 1 ? r : -1;
            return true;
        }
        return eg_fail_as(w->cx, EG_ERROR_NOTATION,
                          "%s: .offset_letter is '%.40s', which is no index of the queries", w->who,
                          w->offset_letter),
               false;
    }
    if (w->offset && in & (in - 1))
        return eg_fail_as(w->cx, EG_ERROR_NOTATION,
                          "%s: .offset is %lld, but \"%s\" has more than one index that it could "
                          "move; name one by .offset_letter",
                          w->who, (long long)w->offset, w->text),
               false;
    return true;
}
/* True if the offset moves an index, and the positions fit in 64 bits; else records an error. */
static bool offset_fits(const eg_where_call *w)
{
    int64_t last;
    if (w->moved >= 0 && __builtin_add_overflow(w->offset, w->size[w->moved], &last))
        eg_fail_as(w->cx, EG_ERROR_MISUSE,
                   "%s: .offset %lld and the %lld position%s it moves do not fit in 64 bits",
                   w->who, (long long)w->offset, (long long)w->size[w->moved],
                   w->size[w->moved] == 1 ? "" : "s");
    else if (w->moved < 0 && w->offset && !w->elsewhere && w->text)
        eg_fail_as(w->cx, EG_ERROR_NOTATION,
                   "%s: .offset is %lld, but \"%s\" names no query index that it could move",
                   w->who, (long long)w->offset, w->text);
    else if (w->moved < 0 && w->offset && !w->elsewhere)
        eg_fail_as(w->cx, EG_ERROR_MISUSE,
                   "%s: .offset is %lld, but no expression has an index that it could move", w->who,
                   (long long)w->offset);
    return !eg__failed(w->cx);
}
bool eg__where_before(eg_ctx *cx, const char *who, int64_t offset)
{
    return offset >= 0 ||
           (eg_fail_as(
                cx, EG_ERROR_MISUSE,
                "%s: .offset is %lld, but it is the number of positions before the first query",
                who, (long long)offset),
            false);
}
bool eg__where_moved(eg_where_call *w, uint32_t positions, uint32_t sizes)
{
    return eg__where_before(w->cx, w->who, w->offset) && find_moved(w, positions, sizes) &&
           offset_fits(w);
}
/* Returns the letters along which tables may be longer than in this call: the keys, letters with
 * which the predicate computes, and the query, which is the letter before the keys or the one that
 * the offset moves. */
static uint32_t where_positions(const eg_where_call *w)
{
    uint32_t known = w->keys;
    for (int r = 0; r + 1 < w->rank; r++)
        if (w->keys >> (r + 1) & 1) known |= 1u << r;
    if (w->moved >= 0 && (w->offset || w->offset_letter)) known |= 1u << w->moved;
    return eg__expression_positions(w->e, known);
}
bool eg__where_bind(eg_where_call *w)
{
    int64_t low[EG_RANK_MAX], high[EG_RANK_MAX], size[EG_RANK_MAX];
    if (!eg__given_read(w->cx, w->who, w->text, NULL, w->with, w->was, &w->given)) return false;
    const eg_expression_source source = { .who = w->who,
                                          .text = w->text,
                                          .noun = "predicate",
                                          .letters = w->rank,
                                          .letter = w->name,
                                          .given = w->given.count,
                                          .readable = w->given.readable,
                                          .predicate = true };
    eg_expression *e = w->text ? eg__expression_read(w->cx, &source, &w->given) : NULL;
    w->e = e;
    if (w->text && !e) return false;
    if (!e && w->given.count)
        return eg_fail_as(w->cx, EG_ERROR_MISUSE,
                          "%s: .with has '%s', but there is no .where that could read it", w->who,
                          w->given.readable[0].name),
               false;
    if (e && (!eg__expression_sizes(w->cx, &source, e, w->size) ||
              !eg__given_used(w->cx, w->who, &w->given, e, NULL, "the predicate")))
        return false;
    if (!eg__where_moved(w, e ? e->positions : 0, e ? e->sizes : 0)) return false;
    for (int r = 0; r < w->rank; r++) {
        low[r] = w->first[r] = r == w->moved ? w->offset : 0;
        size[r] = high[r] = low[r] + w->size[r];
    }
    return !e || (eg__given_fit(w->cx, &source, e, low, high, size, &w->given) &&
                  eg__given_lengths(w->cx, &source, e, where_positions(w), w->size));
}
eg_tensor *eg__where_bools(const eg_where_call *w, bool whole)
{
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX], loop[EG_RANK_MAX];
    int n = 0;
    for (int r = 0; r < w->rank; r++) {
        const bool used = whole || w->e->positions >> r & 1;
        loop[r] = used ? w->size[r] : 1;
        if (used) dim[n++] = w->size[r];
    }
    eg_tensor *y = eg__expression_values(w->cx,
                                         &(eg_expression_values){ .who = w->who,
                                                                  .e = w->e,
                                                                  .root = w->e->root,
                                                                  .letters = w->rank,
                                                                  .size = loop,
                                                                  .first = w->first,
                                                                  .x = w->given.x,
                                                                  .count = w->given.count },
                                         EG_BOOL, n, dim);
    if (!y || n == w->rank) return y;
    for (int r = 0, k = 0; r < w->rank; r++)
        stride[r] = w->e->positions >> r & 1 ? y->stride[k++] : 0;
    return eg__alias(y, w->rank, w->size, stride, 0);
}

/* -- eg_where_mask: the predicate as a tensor ------------------------------------------------- */
/* Sets the axes of a mask, and the sizes that are given (−1: not given), in w and name. False after
 * an error. */
static bool mask_axes(eg_where_call *w, const char *axes, const int64_t *sizes, eg_axis_name *name)
{
    eg_parse_buffer buffer;
    const eg_parsed *p = eg__parse(w->cx, w->who, axes, EG_READ_BY_BLANKS, &buffer);
    if (!p) return false;
    const int n = w->rank = p->term[0].slots;
    if (p->terms != 1 || p->arrow)
        return eg__caret(w->cx, w->who, axes, 0, NULL, NULL, NULL,
                         "the axes must be one term, without comma or arrow"),
               false;
    if (p->axes != n || p->items != n || p->term[0].dots)
        return eg__caret(
                   w->cx, w->who, axes, 0, NULL, NULL, NULL,
                   "the axes must be different letters or names, without groups, 1 and '...'"),
               false;
    for (int k = 0; k < n; k++) {
        const eg_parsed_axis *a = &p->axis[p->item[k].axis];
        if (sizes && (sizes[k] < 0 || (a->size >= 0 && a->size != sizes[k])))
            return eg__caret(w->cx, w->who, axes, 1, &(eg_caret){ a->at, a->length }, NULL, NULL,
                             a->size >= 0
                                 ? "index '%.*s' is %lld, which is not the size in the string"
                                 : "index '%.*s' is given the size %lld",
                             a->length < 40 ? a->length : 40, axes + a->at, (long long)sizes[k]),
                   false;
        w->size[k] = sizes ? sizes[k] : a->size;
        name[k] = (eg_axis_name){
            .text = axes + a->at, .length = a->length, .size = w->size[k], .from = -1
        };
        w->name[k] = &name[k];
        w->keys |= (uint32_t)p->item[k].bracket << k;
    }
    if (!w->keys && n) w->keys = 1u << (n - 1);
    return true;
}
eg_tensor *eg_where_mask_with(eg_ctx *cx, const eg_where_mask_args *given)
{
    eg_where_mask_args o = { .size = sizeof o };
    eg_dtype was[EG_GIVEN_MAX];
    eg_axis_name name[EG_RANK_MAX];
    eg_options(&o, sizeof o, given);
    if (!cx || eg__failed(cx)) return eg__poison(cx);
    eg_where_call w = { .cx = cx,
                        .who = "where_mask",
                        .text = o.where,
                        .with = o.with,
                        .was = was,
                        .offset = o.offset,
                        .offset_letter = o.offset_letter,
                        .elsewhere = true };
    if (!o.axes) return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no axes were given", w.who);
    if (!o.where) return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no predicate was given", w.who);
    const int most = (int)(sizeof o.with / sizeof *o.with);
    for (int k = 0; k < most && o.with[k].name; k++) /* one mask, not one for each copy */
        if (o.with[k].x && !eg__check_single(w.who, o.with[k].x)) return eg__poison(cx);
    eg_tensor *y = eg__given_cast(cx, w.who, EG_DEFAULT, o.with, was) &&
                           mask_axes(&w, o.axes, o.sizes, name) && eg__where_bind(&w)
                       ? eg__where_bools(&w, true)
                       : NULL;
    return y ? y : eg_name_memory_error(cx, w.who);
}
