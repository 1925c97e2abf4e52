/* axis.c: views along an axis that is in the brackets of a string: eg_select("b [l] d", x, k). Each
 * applies the operation of the same name by number (tensor/view.c) to the operand with its groups
 * split, so that a group may contain brackets: "b ([h=8] d)". */
#include "ops/ops.h"

bool eg__axis_lettered(eg_named_axis *a, eg_focus *f, const char *who, const char *spec,
                       eg_tensor *x)
{
    if (!eg__focus_in_place(f, who, spec, x, NULL) || !eg__focus_one(f)) return false;
    *a = eg__focus_named(f, 0);
    return true;
}

eg_tensor *eg_slice(const char *spec, eg_tensor *x, int64_t start, int64_t stop, int64_t step)
{
    eg_focus f;
    eg_named_axis a;
    if (!eg__axis_lettered(&a, &f, "slice", spec, x)) return eg__poison_of(x);
    return eg__merge(&f.bound->term[0], eg__slice(&a, start, stop, step));
}

eg_tensor *eg_flip(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus_in_place(&f, "flip", spec, x, NULL) || !eg__focus_no_output(&f))
        return eg__poison_of(x);
    for (int k = 0; k < f.inner; k++) {
        const eg_named_axis a = eg__focus_named(&f, k);
        f.x = eg__slice(&a, EG_END, EG_END, -1);
    }
    return eg__merge(&f.bound->term[0], f.x);
}

int eg_split(const char *spec, eg_tensor *x, int count, const int64_t *sizes, eg_tensor **parts)
{
    eg_focus f;
    eg_named_axis a;
    for (int k = 0; parts && k < count; k++) parts[k] = eg__poison_of(x);
    if (!eg__axis_lettered(&a, &f, "split", spec, x) || eg__split(&a, count, sizes, parts))
        return -1;
    for (int k = 0; k < count; k++) parts[k] = eg__merge(&f.bound->term[0], parts[k]);
    return eg__failed(x->cx) ? -1 : 0;
}

eg_tensor *eg_select(const char *spec, eg_tensor *x, int64_t index)
{
    eg_focus f;
    if (!eg__focus_in_place(&f, "select", spec, x, NULL) || !eg__focus_axis(&f))
        return eg__poison_of(x);
    const eg_named_axis a = eg__focus_named(&f, 0);
    return eg__focus_outer(&f, eg__select(&a, index));
}

int eg_unbind(const char *spec, eg_tensor *x, int count, eg_tensor **parts)
{
    eg_focus f;
    for (int k = 0; parts && k < count; k++) parts[k] = eg__poison_of(x);
    if (!eg__focus_in_place(&f, "unbind", spec, x, NULL) || !eg__focus_axis(&f)) return -1;
    const eg_named_axis a = eg__focus_named(&f, 0);
    if (eg__unbind(&a, count, parts)) return -1;
    for (int k = 0; k < count; k++) parts[k] = eg__focus_outer(&f, parts[k]);
    return eg__failed(x->cx) ? -1 : 0;
}

/* -- unfold: the position in the window is a new axis, where the output has it ---------------- */
/* Returns y, whose axes are those of the operand and then the position in the window, with its axes
 * in the order of the output. Poison after an error: the output does not have all of them. */
static eg_tensor *window_placed(const eg_focus *f, eg_tensor *y)
{
    const eg_bound *b = f->bound;
    const eg_bound_term *t = &b->term[0];
    int order[EG_RANK_MAX];
    if (!eg__no_repeats(b, b->terms)) return eg__poison(b->cx);
    for (int k = 0; k < t->items; k++)
        if (eg__item_of(&b->out, t->item[k].axis) < 0)
            return eg__refuse(b, 0, k, "index '%.*s' is not in the output",
                              b->axis[t->item[k].axis].length, b->axis[t->item[k].axis].text);
    if (b->out.items != t->items + 1)
        return eg__refuse(b, b->terms, -1,
                          "the output has no new index for the position in the window");
    for (int k = 0; k < b->out.items; k++) {
        const int item = eg__item_of(t, b->out.item[k].axis);
        order[k] = item < 0 ? t->items : item;
    }
    return eg__merge(&b->out, eg__reordered(y, b->out.items, order));
}

eg_tensor *eg_unfold(const char *spec, eg_tensor *x, int64_t size, int64_t step)
{
    eg_focus f;
    if (!eg__check_usable("unfold", x)) return eg__poison_of(x);
    const eg_bound *b = eg__bind("unfold", spec, EG_NOTATION_BRACKETS | EG_NOTATION_NEW_OUT, 1, &x,
                                 1, &(eg_sized){ .name = NULL, .size = size > 0 ? size : 1 });
    if (!b || !eg__focus_items(&f, b, x) || !eg__focus_axis(&f)) return eg__poison_of(x);
    if (!b->arrow)
        return eg__refuse(
            b, 0, -1,
            "the output is missing: its new index is the position in the window, as in "
            "\"b [l] -> b l w\"");
    const eg_named_axis a = eg__focus_named(&f, 0);
    eg_tensor *y = eg__unfold(&a, size, step);
    return eg_ok(y) ? window_placed(&f, y) : y;
}
