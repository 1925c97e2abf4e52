/* rotary.c: places as rotations of pairs of numbers. Su et al. 2021, "RoFormer", eq. 34 */
#include "nn.h"
#include <math.h>

/* "b i h d, i d": the axes of x that the two indices behind the comma name */
static bool axes_of(const eg_spec *s, eg_tensor *x, int *place, int *width)
{
    static const char wanted[] = "the indices of x are needed, a comma, and those of place and "
                                 "width, as in \"bihd, id\"";
    if (!eg__nn_simple(s, 2, false, wanted)) return false;
    const eg_spec_term *two = &s->term[1];
    int axis[2] = { -1, -1 };
    if (two->items != 2 || two->item[0].index == two->item[1].index)
        return eg_spec_fail(s, EG_ERROR_NOTATION, 1, -1, "%s", wanted), false;
    for (int k = 0; k < 2; k++)
        if ((axis[k] = eg_spec_axis(s, 0, s->index[two->item[k].index].name)) < 0)
            return eg_spec_fail(s, EG_ERROR_NOTATION, 1, k, "x does not have this index"), false;
    if (s->term[0].axes != eg_rank(x))
        return eg_spec_fail(s, EG_ERROR_SHAPE, 0, -1, "the string names %d axes of x, which has %d",
                            s->term[0].axes, eg_rank(x)),
               false;
    *place = axis[0];
    *width = axis[1];
    return true;
}

/* cos and sin of (i + offset) base^(−2k/d), in f64, then in x's type: (i, d/2) */
static void angles(eg_tensor *x, double base, int64_t offset, int64_t places, int64_t pairs,
                   eg_tensor **c, eg_tensor **s)
{
    eg_ctx *cx = eg_context(x);
    eg_tensor *i = eg_shift(eg_arange(cx, EG_F64, 0, (double)places, 1), (double)offset);
    eg_tensor *k =
        eg_exp(eg_scale(eg_arange(cx, EG_F64, 0, (double)pairs, 1), -log(base) / (double)pairs));
    eg_tensor *angle = eg_einsum("i,k->ik", i, k);
    *c = eg_cast(eg_cos(angle), eg_type(x));
    *s = eg_cast(eg_sin(angle), eg_type(x));
}

eg_tensor *eg_rotary_with(const eg_rotary_args *given)
{
    OPTIONS(eg_rotary_args, a, given);
    eg_ctx *cx = eg_context(a->x);
    eg_tensor *x = a->x, *c, *s;
    int place, width;
    if (!eg_ok(x) || !axes_of(eg_spec_parse(cx, "rotary", a->spec), x, &place, &width))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "rotary: x is NULL");
    int64_t d = eg_dim(x, width), pairs = d / 2;
    double base = eg_option(a->base, 10000);
    if (d % 2)
        return eg_fail_as(cx, EG_ERROR_SHAPE, "rotary: the width is %lld, which makes no pairs",
                          (long long)d);
    if (!(base > 0) || !isfinite(base))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "rotary: the base is %g", base);
    bool was = eg_nograd(cx, true);
    angles(x, base, a->offset, eg_dim(x, place), pairs, &c, &s);
    eg_nograd(cx, was);
    int64_t dims[EG_RANK_MAX];
    for (int k = 0; k < eg_rank(x); k++) /* (i, k) as x stretches it */
        dims[k] = k == place ? eg_dim(x, k) : k == width ? pairs : 1;
    if (place > width) c = eg_transpose(c, 0, 1), s = eg_transpose(s, 0, 1);
    c = eg_reshape_n(c, eg_rank(x), dims), s = eg_reshape_n(s, eg_rank(x), dims);
    int64_t step = a->interleaved ? 2 : 1;
    eg_tensor *x1 = eg_slice_axis(x, width, 0, a->interleaved ? d : pairs, step),
              *x2 = eg_slice_axis(x, width, a->interleaved ? 1 : pairs, d, step);
    eg_tensor *y1 = eg_sub(eg_mul(x1, c), eg_mul(x2, s)),
              *y2 = eg_add(eg_mul(x1, s), eg_mul(x2, c));
    if (!a->interleaved) return eg_concat_axis(width, y1, y2);
    for (int k = 0; k < eg_rank(x); k++) dims[k] = eg_dim(x, k);
    return eg_reshape_n(eg_stack_axis(width + 1, y1, y2), eg_rank(x), dims);
}
