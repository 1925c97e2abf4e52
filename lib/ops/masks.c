/* masks.c: converts masks in the conventions of other libraries (true = ignore, or 0 and −inf to be
 * added) to masks of this one (true = attend); and the slopes of ALiBi. */
#include "ops/ops.h"
#include <eingrad/attention.h>
#include <math.h>

eg_tensor *eg_mask_ignore(eg_tensor *x)
{
    static const char who[] = "mask_ignore";
    if (!eg__check_usable(who, x)) return eg__poison_of(x);
    if (eg__is_inexact(x->dtype) || eg__is_half(x->dtype))
        return eg_fail_as(
            x->cx, EG_ERROR_DTYPE,
            "%s: the mask is %s, but a mask with true = ignore is bool or integer; a float mask "
            "is added to the scores (.bias)",
            who, eg_type_name(eg_type(x)));
    return eg_not(eg_cast(x, EG_BOOL));
}

eg_tensor *eg_mask_additive(eg_tensor *x)
{
    static const char who[] = "mask_additive";
    if (!eg__check_usable(who, x) || !eg__check_single(who, x)) return eg__poison_of(x);
    if (eg__is_half(x->dtype) && !eg_ok(x = eg_cast(x, EG_F32))) return x;
    if (!eg__is_float(x->dtype))
        return eg_fail_as(x->cx, EG_ERROR_DTYPE,
                          "%s: the mask is %s, but a mask that is added to scores is f32 or f64",
                          who, eg_type_name(eg_type(x)));
    if (eg__capture_refuses(eg__here(x->cx), who, "its elements decide whether it is a mask"))
        return eg__poison(x->cx);
    eg_tensor *keep = eg_eq(x, eg__zero_like(x));
    eg_tensor *none = eg_eq(x, eg_full_n(x->cx, eg_type(x), -INFINITY, 0, NULL));
    const double known = eg_item(eg_sum(NULL, eg_or(keep, none)));
    if (isnan(known)) return eg__poison(x->cx); /* it cannot be read: the mask has copies */
    if (known == (double)eg_size(x)) return keep;
    const int64_t other = eg_size(x) - (int64_t)known;
    return eg_fail_as(x->cx, EG_ERROR_MISUSE,
                      "%s: %lld of %lld element%s %s neither 0 nor -inf; give the mask as .bias",
                      who, (long long)other, (long long)eg_size(x), eg_size(x) == 1 ? "" : "s",
                      other == 1 ? "is" : "are");
}

eg_tensor *eg_alibi_slopes(eg_ctx *cx, int64_t heads)
{
    if (!cx || eg__failed(cx)) return eg__poison(cx);
    if (heads < 1 || heads > 1 << 20)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "alibi_slopes: there must be 1 to 2^20 heads, not %lld",
                          (long long)heads);
    if (eg__capture_refuses(eg__here(cx), "alibi_slopes", "make the slopes before the step"))
        return eg__poison(cx);
    int64_t whole = 1;
    while (2 * whole <= heads) whole *= 2;
    eg_tensor *y = eg_full_n(cx, EG_F64, 0, 1, &heads);
    double *m = eg_mut_f64(y);
    for (int64_t k = 0; m && k < heads; k++)
        m[k] = k < whole ? exp2(-8.0 * (double)(k + 1) / (double)whole)
                         : exp2(-4.0 * (double)(2 * (k - whole) + 1) / (double)whole);
    return eg_cast(y, eg_default_type(cx));
}
