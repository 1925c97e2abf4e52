/* rotary.c: positions as rotations of pairs of elements. Su et al. 2021, "RoFormer", eq. 34
 *
 * Angles are computed in f64, since the seven digits of f32 do not suffice for a position and its
 * fraction of a turn; their sines and cosines are rounded once. They have a history where the
 * positions or the frequencies have one. */
#include "nn.h"
#include <math.h>

/* The string and the options of a call. */
typedef struct rotation {
    const eg_rotary_args *a;
    const eg_spec *spec;           /* its first term: the indices of x */
    const char *wide;              /* the index of the width */
    int position_axis, width_axis; /* of x */
    int64_t d;                     /* number of elements along the width that are rotated */
    /* rank of the positions; axis[r]: the axis of x that corresponds to axis r of the positions */
    int positions, axis[EG_RANK_MAX];
} rotation;

/* Finds, for "b i h d, i d", the axes of x that the two indices after the comma name. False after
 * an error. */
static bool axes_of(rotation *t, const eg_spec *s)
{
    static const char wanted[] = "the indices of x are needed, a comma, and those of position "
                                 "and width, without groups, as in \"bihd, id\"";
    if (!eg__nn_only_indices(s, 2, false, wanted)) return false;
    const eg_spec_term *two = &s->term[1];
    int axis[2] = { -1, -1 };
    if (two->items != 2 || two->item[0].index == two->item[1].index)
        return eg_spec_fail(s, EG_ERROR_NOTATION, 1, -1, "%s", wanted), false;
    for (int k = 0; k < 2; k++)
        if ((axis[k] = eg_spec_axis(s, 0, s->index[two->item[k].index].name)) < 0)
            return eg_spec_fail(s, EG_ERROR_NOTATION, 1, k, "x does not have this index"), false;
    if (s->term[0].axes != eg_rank(t->a->x))
        return eg_spec_fail(s, EG_ERROR_SHAPE, 0, -1, "the string names %d ax%s of x, which has %d",
                            s->term[0].axes, s->term[0].axes == 1 ? "is" : "es", eg_rank(t->a->x)),
               false;
    t->position_axis = axis[0];
    t->width_axis = axis[1];
    t->spec = s;
    t->wide = s->index[two->item[1].index].name;
    t->positions = 1;
    t->axis[0] = axis[0];
    return true;
}

static bool floats(const eg_tensor *x) { return eg_type(x) == EG_F32 || eg_type(x) == EG_F64; }

/* Checks the dtype of x and the options that are numbers. c128 is allowed for the complex step of
 * the gradient check. False after an error. */
static bool rotary_numbers(rotation *t)
{
    const eg_rotary_args *a = t->a;
    eg_ctx *cx = eg_context(a->x);
    const int64_t all = eg_dim(a->x, t->width_axis);
    const double base = eg_option(a->base, 10000), factor = eg_option(a->factor, 1);
    t->d = a->width ? a->width : all;
    if (!floats(a->x) && eg_type(a->x) != EG_C128)
        eg_fail_as(cx, EG_ERROR_DTYPE, "rotary: x is %s; cast it to f32 or f64 first",
                   eg_type_name(eg_type(a->x)));
    else if (t->d < 0 || t->d > all)
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "rotary: .width is %lld, but x has %lld element%s along '%s'", (long long)t->d,
                   (long long)all, all == 1 ? "" : "s", t->wide);
    else if (t->d % 2)
        eg_fail_as(cx, EG_ERROR_SHAPE, "rotary: the width must be even, not %lld", (long long)t->d);
    else if (!(base > 0) || !isfinite(base))
        eg_fail_as(cx, EG_ERROR_MISUSE, "rotary: .base must be positive, not %g", base);
    else if (!(factor > 0) || !isfinite(factor))
        eg_fail_as(cx, EG_ERROR_MISUSE, "rotary: .factor must be positive, not %g", factor);
    else
        return true;
    return false;
}

/* Checks the options that are tensors: .positions, whose indices must be indices of x, and
 * .frequencies. False after an error. */
static bool rotary_tensors(rotation *t)
{
    const eg_rotary_args *a = t->a;
    eg_ctx *cx = eg_context(a->x);
    eg_tensor *p = a->positions.x, *f = a->frequencies;
    if ((p && !eg_ok(p)) || (f && !eg_ok(f))) return false;
    if (f && (!floats(f) || eg_rank(f) != 1 || eg_dim(f, 0) != t->d / 2))
        return eg_fail_as(
                   cx, floats(f) ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                   "rotary: .frequencies are %lld number%s of %s in %d ax%s, but %lld pair%s "
                   "%s turned, each by a float",
                   (long long)eg_size(f), eg_size(f) == 1 ? "" : "s", eg_type_name(eg_type(f)),
                   eg_rank(f), eg_rank(f) == 1 ? "is" : "es", (long long)(t->d / 2),
                   t->d / 2 == 1 ? "" : "s", t->d / 2 == 1 ? "is" : "are"),
               false;
    if (!p)
        return !a->positions.axes ||
               (eg_fail_as(cx, EG_ERROR_MISUSE, "rotary: .positions is NULL"), false);
    if (!floats(p) && eg_type(p) != EG_I32 && eg_type(p) != EG_I64)
        return eg_fail_as(cx, EG_ERROR_DTYPE, "rotary: .positions is %s, neither float nor integer",
                          eg_type_name(eg_type(p))),
               false;
    /* a single name would be read as letters; the text of a spec says that it is none */
    const eg_spec *named = NULL;
    if (t->spec->names) named = eg_spec_like(t->spec, a->positions.axes);
    const eg_spec *s =
        eg_spec_parse(cx, "rotary: .positions", named ? named->text : a->positions.axes);
    if (!eg__nn_only_indices(s, 1, false,
                             "the indices of the positions are needed, as in \"bi\"") ||
        !eg__nn_indices_differ(s, 0))
        return false;
    for (int k = 0; k < s->term[0].items; k++) {
        const char *name = s->index[s->term[0].item[k].index].name;
        const int axis = eg_spec_axis(t->spec, 0, name);
        if (axis < 0 || axis == t->width_axis)
            return eg_spec_fail(s, EG_ERROR_NOTATION, 0, k,
                                axis < 0 ? "x does not have this index"
                                         : "the width has no positions"),
                   false;
        if (s->term[0].axes == eg_rank(p) && eg_dim(p, k) != eg_dim(a->x, axis))
            return eg_spec_fail(s, EG_ERROR_SHAPE, 0, k, "index '%s' is %lld in x but %lld here",
                                name, (long long)eg_dim(a->x, axis), (long long)eg_dim(p, k)),
                   false;
        t->axis[k] = axis;
    }
    if (s->term[0].axes != eg_rank(p))
        return eg_spec_fail(s, EG_ERROR_SHAPE, 0, -1,
                            "the string names %d ax%s of a tensor that has %d", s->term[0].axes,
                            s->term[0].axes == 1 ? "is" : "es", eg_rank(p)),
               false;
    t->positions = s->term[0].axes;
    return true;
}

/* Returns c, whose axes are those of the positions and then the pairs, with axes that broadcast
 * over x. */
static eg_tensor *rotary_placed(const rotation *t, eg_tensor *c)
{
    int64_t dims[EG_RANK_MAX];
    int order[EG_RANK_MAX], n = 0;
    bool moved = false;
    for (int k = 0; k < eg_rank(t->a->x); k++) {
        int from = k == t->width_axis ? t->positions : 0;
        while (k != t->width_axis && from < t->positions && t->axis[from] != k) from++;
        const bool there = k == t->width_axis || from < t->positions;
        dims[k] = there ? eg_dim(c, from) : 1;
        if (!there) continue;
        moved |= from != n;
        order[n++] = from;
    }
    return eg_reshape_n(moved ? eg_permute_n(c, n, order) : c, eg_rank(t->a->x), dims);
}

/* Sets *c and *s to cos θ and sin θ, θ = (position + offset)/factor · frequency, in x's dtype. */
static void angles(const rotation *t, eg_tensor **c, eg_tensor **s)
{
    const eg_rotary_args *a = t->a;
    eg_ctx *cx = eg_context(a->x);
    const int64_t pairs = t->d / 2;
    const double step = -log(eg_option(a->base, 10000)) / (double)(pairs ? pairs : 1),
                 factor = eg_option(a->factor, 1);
    const bool learned = a->frequencies || (a->positions.x && floats(a->positions.x)),
               was = eg_nograd(cx, true);
    if (learned) eg_nograd(cx, was);
    eg_tensor *i = a->positions.x
                       ? eg_cast(a->positions.x, EG_F64)
                       : eg_arange(cx, EG_F64, 0, (double)eg_dim(a->x, t->position_axis), 1),
              *f = a->frequencies
                       ? eg_cast(a->frequencies, EG_F64)
                       : eg_exp(eg_scale(eg_arange(cx, EG_F64, 0, (double)pairs, 1), step));
    i = a->offset ? eg_shift(i, (double)a->offset) : i;
    i = factor != 1 ? eg_scale(i, 1 / factor) : i;
    eg_tensor *angle = eg_einsum("...,k->...k", i, f);
    *c = rotary_placed(t, eg_cast(eg_cos(angle), eg_type(a->x)));
    *s = rotary_placed(t, eg_cast(eg_sin(angle), eg_type(a->x)));
    eg_nograd(cx, was);
}

/* y1 = x1 c − x2 s, y2 = x1 s + x2 c, where x1 and x2 are even and odd elements (.interleaved) or
 * the first and second half; elements after .d are unchanged. */
eg_tensor *eg_rotary_with(const eg_rotary_args *given)
{
    OPTIONS(eg_rotary_args, a, given);
    eg_ctx *cx = eg_context(a->x);
    rotation t = { .a = a };
    if (!eg_ok(a->x) || !axes_of(&t, eg_spec_parse(cx, "rotary", a->spec)) || !rotary_numbers(&t) ||
        !rotary_tensors(&t))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "rotary: x, its positions or frequencies are NULL");
    const int w = t.width_axis;
    const int64_t pairs = t.d / 2, step = a->interleaved ? 2 : 1;
    eg_tensor *x1 = eg_slice_axis(a->x, w, 0, a->interleaved ? t.d : pairs, step),
              *x2 = eg_slice_axis(a->x, w, a->interleaved ? 1 : pairs, t.d, step), *c, *s;
    angles(&t, &c, &s);
    eg_tensor *y[] = { eg_sub(eg_mul(x1, c), eg_mul(x2, s)), eg_add(eg_mul(x1, s), eg_mul(x2, c)),
                       NULL };
    int parts = 2;
    if (a->interleaved) {
        int64_t dims[EG_RANK_MAX];
        for (int k = 0; k < eg_rank(a->x); k++) dims[k] = k == w ? t.d : eg_dim(a->x, k);
        y[0] = eg_reshape_n(eg_stack_axis_n(w + 1, 2, y), eg_rank(a->x), dims);
        parts = 1;
    }
    if (t.d < eg_dim(a->x, w)) y[parts++] = eg_slice_axis(a->x, w, t.d, EG_END, 1);
    return parts > 1 ? eg_concat_axis_n(w, parts, y) : y[0];
}
