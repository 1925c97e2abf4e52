/* rearrange.c: eg_rearrange, and operands aligned by letters (eg_align, eg_on). Both consist of
 * recorded views (permute, expand, reshape), so they need no operation of their own. */
#include "ops/ops.h"

static void term_axes(const eg_bound_term *t, uint16_t *axis)
{
    for (int k = 0; k < t->items; k++) axis[k] = t->item[k].axis;
}

/* -- rearrange: the axes of x, split, in another order, repeated, merged ---------------------- */
eg_tensor *eg_rearrange_with(const eg_rearrange_args *given)
{
    eg_rearrange_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!eg__check_usable("rearrange", o.operand)) return eg__poison_of(o.operand);
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    const int64_t *size = &o.a; /* 26 members of one type, in this order */
    eg_sized sizes[26];
    int n = 0;
    for (int k = 0; k < 26; k++)
        if (size[k]) sizes[n++] = (eg_sized){ letters + k, 1, size[k] };
    const eg_bound *b = eg__bind("rearrange", o.spec, EG_NOTATION_NEW_OUT, 1, &o.operand, n, sizes);
    if (!b) return eg__poison(o.operand->cx);
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
    return eg__merge(&b->out, eg__align(b, 0, b->out.items, out));
}

/* -- operands aligned by letters -------------------------------------------------------------- */
/* Sets out[] to views of xs that all have the axes of the output, one axis per item. NULL after an
 * error. */
static const eg_bound *aligned(const char *who, const char *spec, int count, eg_tensor *const *xs,
                               eg_tensor **out)
{
    eg_ctx *cx = eg__context_of(who, count, xs);
    if (!cx || !eg__check_all(cx, who, count, xs)) return NULL;
    const eg_bound *b = eg__bind(who, spec, EG_NOTATION_UNION, count, xs, 0, NULL);
    if (!b) return NULL;
    const int rank = b->out.items;
    if (rank > EG_RANK_MAX)
        return eg__refuse(b, b->terms, -1, "%d axes; at most %d", rank, EG_RANK_MAX), NULL;
    for (int k = 0; k <= count; k++)
        if (!eg__no_repeats(b, k)) return NULL;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < b->term[k].items; i++)
            if (eg__item_of(&b->out, b->term[k].item[i].axis) < 0) {
                const eg_axis_name *a = &b->axis[b->term[k].item[i].axis];
                return eg__refuse(b, k, i,
                                  "index '%.*s' is not in the output; an index is not summed here, "
                                  "use eg_einsum or eg_sum",
                                  a->length, a->text),
                       NULL;
            }
    uint16_t axis[EG_RANK_MAX];
    term_axes(&b->out, axis);
    for (int k = 0; k < count; k++) out[k] = eg__align(b, k, rank, axis);
    return b;
}

int eg_align_n(const char *spec, int count, eg_tensor *const *xs, eg_tensor **out)
{
    eg_ctx *cx = eg__context_of("align", count, xs);
    if (!out) return eg_fail_as(cx, EG_ERROR_MISUSE, "align: out is NULL"), -1;
    const eg_bound *b = cx ? aligned("align", spec, count, xs, out) : NULL;
    for (int k = 0; k < count; k++) out[k] = b ? eg__merge(&b->out, out[k]) : eg__poison(cx);
    return b && !eg__failed(cx) ? 0 : -1;
}

/* -- on: f of two operands that are aligned by letters ---------------------------------------- */
eg_tensor *eg_on(const char *spec, eg_tensor *(*f)(eg_tensor *, eg_tensor *), eg_tensor *a,
                 eg_tensor *b)
{
    eg_tensor *const xs[] = { a, b }, *view[2];
    eg_ctx *cx = eg__context_of("on", 2, xs);
    if (!f && cx) return eg_fail_as(cx, EG_ERROR_MISUSE, "on: the function is NULL");
    const eg_bound *bound = cx ? aligned("on", spec, 2, xs, view) : NULL;
    if (!bound) return eg__poison(cx);
    eg_tensor *y = f(view[0], view[1]);
    if (!eg_ok(y)) return y ? y : eg_fail_as(cx, EG_ERROR_MISUSE, "on: the function returned NULL");
    if (!eg__same_shape(y, view[0])) {
        char have[256], want[256];
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "on: the function returned the shape %s for operands of the shape %s",
                          eg__dims_text(y, have, sizeof have),
                          eg__dims_text(view[0], want, sizeof want));
    }
    return eg__merge(&bound->out, y);
}
