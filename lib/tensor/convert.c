/* convert.c: detach, the parts of complex numbers, copy, cast. */
#include "tensor/tensor.h"

/* -- detach: y = x, a view,  dx = 0 ----------------------------------------------------------- */
static bool detach_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    return eg__shape_view(y, x, x->rank, x->dim, x->stride, 0);
}
static eg_tensor *detach_call(eg_tensor *const *x) { return eg_detach(x[0]); }
static const eg_sample detach_samples[] = { { detach_call, "3x4:i9", 0, 0 }, { 0 } };
static const eg_op detach_op = {
    .name = "detach",
    .equation = "y = x",
    .gradient = "dx = 0",
    .arity = 1,
    .shape = detach_shape,
    .rule = eg_zero_rule,
    .uses = EG_USES_NOTHING,
    .samples = detach_samples,
};
eg_tensor *eg_detach(eg_tensor *x) { return eg_apply(&detach_op, NULL, 0, 1, &x); }

/* -- the parts of a complex number: views without history ------------------------------------- */
static eg_tensor *complex_part(const char *who, eg_tensor *z, int part)
{
    if (!eg__check_usable(who, z)) return eg__poison_of(z);
    if (z->dtype != EG_C128)
        return eg_fail_as(z->cx, EG_ERROR_DTYPE, "%s: operand 1 is %s, not c128", who,
                          eg_type_name(z->dtype));
    eg_tensor *y = eg__part(z, part);
    return y ? y : eg__poison(z->cx);
}
eg_tensor *eg_real(eg_tensor *z) { return complex_part("real", z, 0); }
eg_tensor *eg_imag(eg_tensor *z) { return complex_part("imag", z, 1); }

/* -- copy: y = x,  dx = g --------------------------------------------------------------------- */
static bool copy_shape(eg_tensor *y)
{
    return eg__shape(y, y->in[0]->dtype, y->in[0]->rank, y->in[0]->dim);
}
static bool copy_forward(eg_tensor *y)
{
    eg__copy(y, y->in[0]);
    return true;
}
bool eg__only_moves(const eg_op *op)
{
    return !op->forward || op->forward == copy_forward || op->forward == eg__reshape_forward;
}
static eg_tensor *copy_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y;
    (void)i;
    return g;
}
static eg_tensor *copy_call(eg_tensor *const *x) { return eg_copy(x[0]); }
static const eg_sample copy_samples[] = { { copy_call, "3x4", 0, 0 },
                                          { copy_call, "5x4:i9", 0, 0 },
                                          { 0 } };
static const eg_op copy_op = {
    .name = "copy",
    .equation = "y = x",
    .gradient = "g",
    .arity = 1,
    .shape = copy_shape,
    .forward = copy_forward,
    .rule = copy_rule,
    .uses = EG_USES_NOTHING,
    .samples = copy_samples,
    .jvp = eg_jvp_symmetric,
    .forward_c128 = copy_forward,
};
eg_tensor *eg_copy(eg_tensor *x) { return eg_apply(&copy_op, NULL, 0, 1, &x); }

eg_tensor *eg_contiguous(eg_tensor *x)
{
    if (eg_is_row_major(x)) return x;
    return eg__check_usable("contiguous", x) ? eg_copy(x) : eg__poison_of(x);
}

/* -- cast: y = (dtype)x,  dx = (dtype of x)g; a path through an integer dtype has no gradient. A
 * recorded cast between floats keeps imaginary parts when it is evaluated in c128; a cast from c128
 * is refused by eg_cast, so no imaginary part is lost -- */
static bool cast_shape(eg_tensor *y)
{
    eg_dtype dtype = *(const eg_dtype *)y->attr;
    if (y->in[0]->dtype == EG_C128 && eg__is_float(dtype)) dtype = EG_C128;
    if (dtype > EG_DEFAULT && (unsigned)dtype < EG_DTYPES)
        return eg__shape_like(y, dtype, y->in[0]);
    eg_fail_as(y->cx, EG_ERROR_MISUSE, "cast: %d is not a dtype", (int)dtype);
    return false;
}
static eg_tensor *cast_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_cast(g, y->in[i]->dtype);
}
static eg_tensor *cast_down(eg_tensor *const *x) { return eg_cast(x[0], EG_F32); }
static eg_tensor *cast_up(eg_tensor *const *x) { return eg_cast(x[0], EG_F64); }
static eg_tensor *cast_int(eg_tensor *const *x) { return eg_cast(x[0], EG_I32); }
static eg_tensor *cast_bool(eg_tensor *const *x) { return eg_cast(x[0], EG_BOOL); }
static const eg_sample cast_samples[] = {
    { cast_up, "3x4", 0, 0 },
    { cast_down, "6:i9", 0, 0 },
    { cast_int, "3x4:b", 0, 0 },
    { cast_bool, "3x4:i4", 0, 0 },
    { 0 },
};
static const eg_op cast_op = {
    .name = "cast",
    .equation = "y = (dtype)x",
    .gradient = "(dtype of x)g",
    .arity = 1,
    .shape = cast_shape,
    .forward = copy_forward,
    .rule = cast_rule,
    .uses = EG_USES_NOTHING,
    .samples = cast_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = copy_forward,
};
eg_tensor *eg_cast(eg_tensor *x, eg_dtype dtype)
{
    if (dtype == EG_DEFAULT && x) dtype = eg_default_type(x->cx);
    if (x && x->dtype == EG_C128 && dtype != EG_C128 && eg__check_usable("cast", x))
        return eg_fail_as(
            x->cx, EG_ERROR_DTYPE,
            "cast: c128 to %s would drop the imaginary parts; eg_real and eg_imag take the parts",
            eg_type_name(dtype));
    return eg_apply(&cast_op, &dtype, sizeof dtype, 1, &x);
}

const eg_op *const eg__convert_ops[] = { &copy_op, &cast_op, &detach_op, NULL };
