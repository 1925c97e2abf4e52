/* add.c: the sum of two tensors of one shape, by which backward and forward passes add cotangents
 * and tangents. eg_add, which broadcasts, is in ops/binary.c and applies the same operation. */
#include "tensor/tensor.h"

/* -- add: y = a + b,  da = g, db = g -- */
#define TEMPLATE "tensor/add_of.h"
#include "tensor/each_type_of.h"
static eg_lanes_fn *const add_kernel[EG_DTYPES] = {
    [EG_F32] = add_f32, [EG_F64] = add_f64, [EG_C128] = add_c128,
    [EG_I32] = add_i32, [EG_I64] = add_i64,
};
static bool add_shape(eg_tensor *y)
{
    const eg_tensor *a = y->in[0];
    if (!eg__shape_pair(y, a->dtype, 0)) return false;
    if (add_kernel[a->dtype]) return true;
    eg_fail_as(y->cx, EG_ERROR_DTYPE,
               "add: the operands are %s; eg_cast them to f32, f64, i32 or i64 first",
               eg_type_name(a->dtype));
    return false;
}
static bool add_forward(eg_tensor *y) { return eg__lanes_run(y, add_kernel[y->dtype], true); }
static eg_tensor *add_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y, (void)i;
    return g;
}
static eg_tensor *add_call(eg_tensor *const *x) { return eg__add(x[0], x[1]); }
static const eg_sample add_samples[] = { { add_call, "3x4, 3x4", .5, 2 },
                                         { add_call, "2x3x4, 2x3x4", .5, 2 },
                                         { 0 } };
const eg_op eg__add_op = {
    .name = "add",
    .equation = "y = a + b",
    .gradient = "da = g, db = g",
    .arity = 2,
    .shape = add_shape,
    .forward = add_forward,
    .rule = add_rule,
    .uses = EG_USES_NOTHING,
    .samples = add_samples,
    .jvp = eg_jvp_symmetric,
    .forward_c128 = add_forward,
};
eg_tensor *eg__add(eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&eg__add_op, NULL, 0, 2, (eg_tensor *[]){ a, b });
}
const eg_op *const eg__add_ops[] = { &eg__add_op, NULL };

/* -- target += source, floats and c128 -------------------------------------------------------- */
static eg_inner *const add_to[EG_DTYPES] = {
    [EG_F32] = add_to_f32, [EG_F64] = add_to_f64, [EG_C128] = add_to_c128
};
static eg_plane *const add_to_plane[EG_DTYPES] = {
    [EG_F32] = add_to_plane_f32, [EG_F64] = add_to_plane_f64, [EG_C128] = add_to_plane_c128
};

void eg__add_to(eg_tensor *target, const eg_tensor *source)
{
    const uint64_t begun = eg__fpmode_begin(target->cx->flush);
    for (int64_t k = 0; k < eg__copy_count(target); k++) {
        eg_tensor to = *target, from = *source;
        to.data = eg__copy_data(target, k);
        from.data = eg__copy_data(source, k);
        const eg_tensor *const both[] = { &to, &from };
        eg__loop_planes(target->cx, 2, both, add_to[to.dtype], add_to_plane[to.dtype], NULL);
    }
    eg__fpmode_end(begun);
}

static eg_inner *const add_product[EG_DTYPES] = {
    [EG_F32] = add_product_f32, [EG_F64] = add_product_f64, [EG_C128] = add_product_c128
};
static eg_plane *const add_product_plane[EG_DTYPES] = { [EG_F32] = add_product_plane_f32,
                                                        [EG_F64] = add_product_plane_f64,
                                                        [EG_C128] = add_product_plane_c128 };
void eg__add_product_to(eg_tensor *target, const eg_tensor *a, const eg_tensor *b)
{
    const uint64_t begun = eg__fpmode_begin(target->cx->flush);
    eg__loop_planes(target->cx, 3, (const eg_tensor *[]){ target, a, b },
                    add_product[target->dtype], add_product_plane[target->dtype], NULL);
    eg__fpmode_end(begun);
}

static bool act_add(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)cx, (void)count, (void)arg;
    eg__add_to(to, x[0]);
    return true;
}
bool eg__add_act(eg_tensor *target, eg_tensor *source)
{
    return eg__act(target->cx, act_add, target, 1, &source, NULL, 0, 0);
}

/* -- target *= c, target /= c ----------------------------------------------------------------- */
static eg_inner *const scale_by[EG_DTYPES] = {
    [EG_F32] = scale_by_f32, [EG_F64] = scale_by_f64, [EG_C128] = scale_by_c128,
    [EG_I32] = scale_by_i32, [EG_I64] = scale_by_i64,
};
void eg__scale_by(eg_tensor *target, double c)
{
    const uint64_t begun = eg__fpmode_begin(target->cx->flush);
    const eg_tensor *const x = target;
    eg__loop(target->cx, 1, &x, scale_by[target->dtype], &c);
    eg__fpmode_end(begun);
}
static bool act_scale(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)cx, (void)count, (void)x;
    eg__scale_by(to, *(const double *)arg);
    return true;
}
bool eg__scale_act(eg_tensor *target, double c)
{
    return eg__act(target->cx, act_scale, target, 0, NULL, &c, sizeof c, 0);
}

static eg_inner *const divide_by[EG_DTYPES] = {
    [EG_F32] = divide_by_f32, [EG_F64] = divide_by_f64, [EG_C128] = divide_by_c128
};
void eg__mean_of_two(eg_dtype dtype, int64_t n, void *y, const void *x, double c, bool flush)
{
    char *p[] = { y, (char *)(uintptr_t)x };
    const int64_t step[] = { eg__width[dtype], eg__width[dtype] };
    const uint64_t begun = eg__fpmode_begin(flush);
    if (x) add_to[dtype](n, p, step, NULL);
    eg__fpmode_end(begun);
    divide_by[dtype](n, p, step, &c);
}
