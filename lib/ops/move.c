/* move.c: rearrange and eg_on. Both are made of recorded views (permute, expand, reshape), so that
 * they need no row of their own. */
#include "ops/ops.h"
#include <string.h>

static void term_axes(const eg_bound_term *t, uint16_t *axis)
{
    for (int k = 0; k < t->items; k++) axis[k] = t->item[k].axis;
}

/* -- rearrange: the axes of x, split, in another order, repeated, merged ---------------------- */
eg_tensor *eg_rearrange_with(const eg_rearrange_args *given)
{
    eg_rearrange_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!eg__check("rearrange", o.x)) return o.x ? eg__poison(o.x->cx) : NULL;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    const int64_t *size = &o.a; /* 26 members of one type, in this order */
    eg_given sizes[26];
    int n = 0;
    for (int k = 0; k < 26; k++)
        if (size[k]) sizes[n++] = (eg_given){ letters + k, 1, size[k] };
    const eg_bound *b = eg__bind("rearrange", o.spec, EG_NOTATION_NEW_OUT, 1, &o.x, n, sizes);
    if (!b) return eg__poison(o.x->cx);
    if (!b->arrow) return eg__refuse(b, 0, -1, "-> and the new order of the axes are missing");
    const eg_bound_term *t = &b->term[0];
    if (b->out.items > EG_RANK_MAX)
        return eg__refuse(b, b->terms, -1, "%d axes in the output; at most %d", b->out.items,
                          EG_RANK_MAX);
    if (!eg__no_repeats(b, 0) || !eg__no_repeats(b, b->terms)) return eg__poison(b->cx);
    for (int k = 0; k < t->items; k++)
        if (eg__item_of(&b->out, t->item[k].axis) < 0) {
            const eg_axis_name *a = &b->axis[t->item[k].axis];
            return eg__refuse(
                b, 0, k,
                "index '%.*s' is not in the output; to sum over it use eg_sum or eg_einsum",
                a->length, a->text);
        }
    uint16_t out[EG_RANK_MAX];
    term_axes(&b->out, out);
    return eg__merge(b, eg__align(b, 0, b->out.items, out));
}

/* -- on: f of two operands that were aligned by letters --------------------------------------- */
eg_tensor *eg_on(const char *spec, eg_tensor *(*f)(eg_tensor *, eg_tensor *), eg_tensor *x,
                 eg_tensor *y)
{
    eg_tensor *const xs[] = { x, y };
    eg_ctx *cx = eg__context_of("on", 2, xs);
    if (!cx || !eg__check_all(cx, "on", 2, xs)) return eg__poison(cx);
    if (!f) return eg_fail_as(cx, EG_ERROR_MISUSE, "on: the function is NULL");
    const eg_bound *b = eg__bind("on", spec, EG_NOTATION_UNION, 2, xs, 0, NULL);
    if (!b) return eg__poison(cx);
    const int rank = b->out.items;
    if (rank > EG_RANK_MAX)
        return eg__refuse(b, b->terms, -1, "%d axes; at most %d", rank, EG_RANK_MAX);
    uint16_t out[EG_RANK_MAX];
    term_axes(&b->out, out);
    for (int k = 0; k < 3; k++)
        if (!eg__no_repeats(b, k)) return eg__poison(cx);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < b->term[k].items; i++)
            if (eg__item_of(&b->out, b->term[k].item[i].axis) < 0) {
                const eg_axis_name *a = &b->axis[b->term[k].item[i].axis];
                return eg__refuse(b, k, i,
                                  "index '%.*s' is not in the output; an index is not summed here, "
                                  "use eg_einsum or eg_sum",
                                  a->length, a->text);
            }
    eg_tensor *one = eg__align(b, 0, rank, out), *two = eg__align(b, 1, rank, out),
              *r = f(one, two);
    if (!eg_ok(r)) return r ? r : eg_fail_as(cx, EG_ERROR_MISUSE, "on: the function returned NULL");
    if (!eg__same_shape(r, one)) {
        char have[256], want[256];
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "on: the function returned the shape %s for operands of the shape %s",
                          eg__dims_text(r, have, sizeof have),
                          eg__dims_text(one, want, sizeof want));
    }
    return eg__merge(b, r);
}
