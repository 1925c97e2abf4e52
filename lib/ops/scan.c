/* scan.c: cumulative sums and products, linear recurrences along one axis; running maxima and
 * minima, and the cumulative log-sum-exp, which is made of both. */
#include "ops/ops.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* Lines that are computed together: at most LANES. Of contiguous lines it is FEW, but cumulative
 * sums and products of numbers of 4 or 8 bytes take FEW to ABREAST lines, COLUMNS elements of each
 * at a time. */
enum { LANES = 64, FEW = 8, ABREAST = 16, COLUMNS = 64 };
/* Returns how many of fewer than FEW contiguous lines are computed together, with their sums in
 * registers: a sum in memory would wait for its last value to be stored. */
static int64_t few_lines(int64_t left) { return left < 2 ? 1 : left < 4 ? 2 : 4; }
/* n: number of elements; y, a, b: distances in bytes along the axis, in the result and in the
 * operands; late: 1 if the factor of element l is a_{l−1}; smallest: of minima */
typedef struct line {
    int64_t n, y, a, b, late;
    bool smallest;
} line;

/* -- cumsum: y_l = Σ_{k ≤ l} x_k,  dx = flip(cumsum(flip g)); integers and bools are summed in i64,
 * f32 in f64, and multiplied so by cumprod, see below */
#define FROM    float
#define T       float
#define NAME(x) x##_f32
#define WIDE    double
#include "ops/cumsum_of.h"
#define FROM    double
#define T       double
#define NAME(x) x##_f64
#define WIDE    double
#include "ops/cumsum_of.h"
#define FROM    double complex
#define T       double complex
#define NAME(x) x##_c128
#define WIDE    double complex
#include "ops/cumsum_of.h"
#define FROM    int32_t
#define T       int64_t
#define NAME(x) x##_i32
#define WIDE    uint64_t /* overflow wraps */
#include "ops/cumsum_of.h"
#define FROM    int64_t
#define T       int64_t
#define NAME(x) x##_i64
#define WIDE    uint64_t
#include "ops/cumsum_of.h"
#define FROM    uint8_t
#define T       int64_t
#define NAME(x) x##_bool
#define WIDE    uint64_t
#include "ops/cumsum_of.h"
static eg_inner *const cumsum[EG_DTYPES] = {
    [EG_F32] = cumsum_f32, [EG_F64] = cumsum_f64, [EG_C128] = cumsum_c128,
    [EG_I32] = cumsum_i32, [EG_I64] = cumsum_i64, [EG_BOOL] = cumsum_bool
};
static eg_inner *const cumprod[EG_DTYPES] = {
    [EG_F32] = cumprod_f32, [EG_F64] = cumprod_f64, [EG_C128] = cumprod_c128,
    [EG_I32] = cumprod_i32, [EG_I64] = cumprod_i64, [EG_BOOL] = cumprod_bool
};
static bool cumsum_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    return eg__shape_like(y, eg__is_inexact(x->dtype) ? x->dtype : EG_I64, x);
}
static bool cumulate(eg_tensor *y, eg_inner *const of_dtype[EG_DTYPES])
{
    eg_tensor out = *y, in = *y->in[0];
    int last = y->rank - 1;
    const line l = { y->dim[last],
                     y->stride[last] * eg__width[y->dtype],
                     in.stride[last] * eg__width[in.dtype],
                     0,
                     0,
                     false };
    out.rank--;
    in.rank--;
    eg__loop_work(y->cx, 2, (const eg_tensor *[]){ &out, &in }, of_dtype[in.dtype], &l,
                  l.n ? l.n : 1);
    return true;
}
static bool cumsum_forward(eg_tensor *y) { return cumulate(y, cumsum); }
static const eg_op cumsum_op;
static eg_tensor *cumsum_last(eg_tensor *x) { return eg_apply(&cumsum_op, NULL, 0, 1, &x); }
static eg_tensor *cumsum_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y;
    (void)i;
    return eg_flip_axis(cumsum_last(eg_flip_axis(g, -1)), -1);
}
static eg_tensor *cumsum_call(eg_tensor *const *x) { return eg_cumsum("b [l] d", x[0]); }
static const eg_sample cumsum_samples[] = { { cumsum_call, "2x5x3", 0, 0 },
                                            { cumsum_call, "2x5x3:i9", 0, 0 },
                                            { cumsum_call, "2x5x3:b", 0, 0 },
                                            { 0 } };
static const eg_op cumsum_op = {
    .name = "cumsum",
    .equation = "y_l = sum over k <= l of x_k",
    .gradient = "flip(cumsum(flip g))",
    .arity = 1,
    .shape = cumsum_shape,
    .forward = cumsum_forward,
    .rule = cumsum_rule,
    .uses = EG_USES_NOTHING,
    .samples = cumsum_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = cumsum_forward,
};
eg_tensor *eg_cumsum(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "cumsum", spec, x) || !eg__focus_one(&f)) return eg__poison_of(x);
    return eg__focus_same(&f, cumsum_last(eg__bytes_as_i64(f.x)));
}

/* -- linear_scan: y_l = a_l y_{l−1} + b_l, y_{−1} = 0; integers are computed in i64, f32 in f64. db
 * is a recurrence from the end, c_l = g_l + a_{l+1} c_{l+1}, that is, of the flipped tensors with
 * late factors; and da_l = c_l y_{l−1}. The attribute, `late`, is 1 if the factor is a_{l−1}.
 * Martin, Cundy 2018 */
#define T       float
#define NAME(x) x##_f32
#define WIDE    double
#include "ops/scan_of.h"
#define T       double
#define NAME(x) x##_f64
#define WIDE    double
#include "ops/scan_of.h"
#define T       double complex
#define NAME(x) x##_c128
#define WIDE    double complex
#include "ops/scan_of.h"
#define T       int64_t
#define NAME(x) x##_i64
#define WIDE    uint64_t /* overflow wraps */
#include "ops/scan_of.h"
static eg_inner *const scan[] = {
    [EG_F32] = scan_f32, [EG_F64] = scan_f64, [EG_I64] = scan_i64, [EG_C128] = scan_c128
};

static bool scan_shape(eg_tensor *y) { return eg__shape_pair(y, y->in[0]->dtype, 0); }
static bool scan_forward(eg_tensor *y)
{
    eg_tensor x[3] = { *y, *y->in[0], *y->in[1] };
    int64_t step[3];
    const int last = y->rank - 1;
    for (int k = 0; k < 3; k++) {
        step[k] = x[k].stride[last] * eg__width[y->dtype];
        x[k].rank--;
    }
    const line l = { y->dim[last], step[0], step[1], step[2], *(const int64_t *)y->attr, false };
    eg__loop_work(y->cx, 3, (const eg_tensor *[]){ &x[0], &x[1], &x[2] }, scan[y->dtype], &l,
                  l.n ? l.n : 1);
    return true;
}
static eg_tensor *recurrence(eg_tensor *a, eg_tensor *b, int64_t late);
static eg_tensor *scan_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const int64_t late = *(const int64_t *)y->attr;
    if (!eg_size(y)) return g;
    eg_tensor *c =
        eg_flip_axis(recurrence(eg_flip_axis(y->in[0], -1), eg_flip_axis(g, -1), !late), -1);
    if (i == 1) return c;
    eg_tensor *da = eg_mul(eg_slice_axis(c, -1, 1, EG_END, 1), eg_slice_axis(y, -1, 0, -1, 1));
    return eg_pad_axis(da, -1, !late, late, 0);
}
static eg_tensor *scan_call(eg_tensor *const *x) { return eg_linear_scan("b [l] d", x[0], x[1]); }
static eg_tensor *scan_late(eg_tensor *const *x) { return recurrence(x[0], x[1], 1); }
static const eg_sample scan_samples[] = { { scan_call, "2x5x3, 2x5x3", -1, 1 },
                                          { scan_late, "2x3x5, 2x3x5", -1, 1 },
                                          { scan_call, "2x5x3:i9, 2x5x3:i9", 0, 0 },
                                          { 0 } };
static const eg_op scan_op = {
    .name = "linear_scan",
    .equation = "y_l = a_l y_{l-1} + b_l",
    .gradient = "db_l = c_l = g_l + a_{l+1} c_{l+1}, da_l = c_l y_{l-1}",
    .arity = 2,
    .shape = scan_shape,
    .forward = scan_forward,
    .rule = scan_rule,
    .uses = EG_USES_ALL,
    .samples = scan_samples,
    .forward_c128 = scan_forward,
};
static eg_tensor *recurrence(eg_tensor *a, eg_tensor *b, int64_t late)
{
    return eg_apply(&scan_op, &late, sizeof late, 2, (eg_tensor *[]){ a, b });
}
eg_tensor *eg__late_recurrence(eg_tensor *a, eg_tensor *b) { return recurrence(a, b, 1); }
/* Compares the caller's operands: those of scan_op have the axis of the scan last. */
static bool scan_shapes_agree(const eg_tensor *a, const eg_tensor *b)
{
    char one[256], two[256];
    if (eg__same_shape(a, b)) return true;
    eg_fail_as(a->cx, EG_ERROR_SHAPE,
               "linear_scan: operand 1 is %s but operand 2 is %s; use eg_expand or eg_on first",
               eg__dims_text(a, one, sizeof one), eg__dims_text(b, two, sizeof two));
    return false;
}
eg_tensor *eg_linear_scan(const char *spec, eg_tensor *a, eg_tensor *b)
{
    eg_tensor *const xs[] = { a, b };
    eg_ctx *cx = eg__context_of("linear_scan", 2, xs);
    eg_focus f, of_b;
    if (!cx || !eg__check_all(cx, "linear_scan", 2, xs)) return eg__poison(cx);
    if (!eg__focus(&f, "linear_scan", spec, a) || !eg__focus_one(&f) ||
        !eg__focus(&of_b, "linear_scan", spec, b) || !scan_shapes_agree(a, b))
        return eg__poison(cx);
    eg_tensor *v[2] = { f.x, of_b.x };
    for (int k = 0; k < 2; k++)
        if (!eg__is_inexact(v[k]->dtype)) v[k] = eg_cast(v[k], EG_I64);
    return eg__focus_same(&f, recurrence(v[0], v[1], 0));
}

/* -- cumprod: y_l = x_l y_{l−1}, y_{−1} = 1; dx_l = c_l y_{l−1} with c_l = g_l + x_{l+1} c_{l+1}:
 * there is no division, so the gradient is correct with any number of zeros */
static bool cumprod_forward(eg_tensor *y) { return cumulate(y, cumprod); }
static eg_tensor *cumprod_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = y->in[i];
    if (!eg_size(y)) return g;
    eg_tensor *c = eg_flip_axis(recurrence(eg_flip_axis(x, -1), eg_flip_axis(g, -1), 1), -1);
    return eg_mul(c, eg_pad_axis(eg_slice_axis(y, -1, 0, -1, 1), -1, 1, 0, 1));
}
static eg_tensor *cumprod_call(eg_tensor *const *x) { return eg_cumprod("b [l] d", x[0]); }
static const eg_sample cumprod_samples[] = { { cumprod_call, "2x5x3", 0, 0 },
                                             { cumprod_call, "2x5x3:i9", 0, 0 },
                                             { cumprod_call, "2x5x3:b", 0, 0 },
                                             { 0 } };
static const eg_op cumprod_op = {
    .name = "cumprod",
    .equation = "y_l = x_l y_{l-1}",
    .gradient = "dx_l = c_l y_{l-1}, c_l = g_l + x_{l+1} c_{l+1}",
    .arity = 1,
    .shape = cumsum_shape,
    .forward = cumprod_forward,
    .rule = cumprod_rule,
    .uses = EG_USES_ALL,
    .samples = cumprod_samples,
    .forward_c128 = cumprod_forward,
};
eg_tensor *eg_cumprod(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "cumprod", spec, x) || !eg__focus_one(&f)) return eg__poison_of(x);
    eg_tensor *v = eg__bytes_as_i64(f.x);
    return eg__focus_same(&f, eg_apply(&cumprod_op, NULL, 0, 1, &v));
}

/* -- cummax: the operation computes indices (i64), y_l = the last k ≤ l at which x_k is the largest
 * or, with the attribute, the smallest, or a NaN. The elements are read at them by `at`, which has
 * a gradient. -- */
#define INDEX(T) /* the integers of T's width */ \
    __typeof__(_Generic((T)0, float : (int32_t)0, int32_t : (int32_t)0, default : (int64_t)0))
#define TEMPLATE  "ops/cummax_of.h"
#define WITH_BOOL uint8_t
#include "tensor/each_type_of.h"
static eg_inner *const cummax[EG_DTYPES] = {
    [EG_F32] = cummax_f32, [EG_F64] = cummax_f64, [EG_C128] = cummax_c128,
    [EG_I32] = cummax_i32, [EG_I64] = cummax_i64, [EG_BOOL] = cummax_bool
};
static bool cummax_shape(eg_tensor *y) { return eg__shape_like(y, EG_I64, y->in[0]); }
static bool cummax_forward(eg_tensor *y)
{
    eg_tensor out = *y, in = *y->in[0];
    const int last = y->rank - 1;
    const line l = { y->dim[last],
                     y->stride[last] * eg__width[y->dtype],
                     in.stride[last] * eg__width[in.dtype],
                     0,
                     0,
                     *(const bool *)y->attr };
    out.rank--;
    in.rank--;
    eg__loop_work(y->cx, 2, (const eg_tensor *[]){ &out, &in }, cummax[in.dtype], &l,
                  l.n ? l.n : 1);
    return true;
}
static eg_tensor *cummax_call(eg_tensor *const *x) { return eg_cummax("b [l] d", x[0]); }
static eg_tensor *cummin_call(eg_tensor *const *x) { return eg_cummin("b [l] d", x[0]); }
static const eg_sample cummax_samples[] = { { cummax_call, "2x5x3", 0, 0 },
                                            { cummin_call, "2x5x3", 0, 0 },
                                            { cummax_call, "2x5x3:i9", 0, 0 },
                                            { cummin_call, "2x5x3:b", 0, 0 },
                                            { 0 } };
static const eg_op cummax_op = {
    .name = "cummax",
    .equation = "y_l = the last k <= l of the largest x_k",
    .gradient = "dx = 0",
    .arity = 1,
    .shape = cummax_shape,
    .forward = cummax_forward,
    .rule = eg_zero_rule,
    .uses = EG_USES_NOTHING,
    .samples = cummax_samples,
    .forward_c128 = cummax_forward,
};
static eg_tensor *running(eg_tensor *x, bool smallest)
{
    return eg__take_last(x, eg_apply(&cummax_op, &smallest, sizeof smallest, 1, &x));
}
static eg_tensor *running_of(const char *who, const char *spec, eg_tensor *x, bool smallest)
{
    eg_focus f;
    if (!eg__focus(&f, who, spec, x) || !eg__focus_one(&f) || !eg__check(who, x))
        return eg__poison_of(x);
    return eg__focus_same(&f, running(f.x, smallest));
}
eg_tensor *eg_cummax(const char *spec, eg_tensor *x)
{
    return running_of("cummax", spec, x, false);
}
eg_tensor *eg_cummin(const char *spec, eg_tensor *x) { return running_of("cummin", spec, x, true); }

/* -- logcumsumexp: y_l = m_l + ln s_l with the running maximum m and
 * s_l = e^(m_{l−1} − m_l) s_{l−1} + e^(x_l − m_l), so 1 ≤ s_l ≤ l. The value does not depend on m,
 * which is a constant for gradients, and a finite number where it is infinite. -- */
eg_tensor *eg_logcumsumexp(const char *spec, eg_tensor *x)
{
    eg_focus f;
    if (!eg__focus(&f, "logcumsumexp", spec, x) || !eg__focus_one(&f) ||
        !eg__floats("logcumsumexp", x, 1))
        return eg__poison_of(x);
    if (!eg_size(f.x)) return eg__focus_same(&f, eg_copy(f.x));
    const eg_dtype dtype = (eg_dtype)f.x->dtype;
    const double most = dtype == EG_F32 ? FLT_MAX : DBL_MAX;
    eg_tensor *largest = eg_detach(running(f.x, false)), *m = eg_clip(largest, -most, most);
    eg_tensor *before =
        eg_concat_axis(-1, eg_slice_axis(m, -1, 0, 1, 1), eg_slice_axis(m, -1, 0, -1, 1));
    eg_tensor *s = recurrence(eg_exp(eg_sub(before, m)), eg_exp(eg_sub(f.x, m)), 0);
    /* where all elements so far are −∞, s is 0 */
    eg_tensor *none = eg_lt(largest, eg_full_n(x->cx, dtype, -most, 0, NULL));
    eg_tensor *y = eg_add(m, eg_log(eg_where(none, eg_full_n(x->cx, dtype, 1, 0, NULL), s)));
    return eg__focus_same(&f, eg_where(none, largest, y));
}

const eg_op *const eg__scan_ops[] = { &cumsum_op, &scan_op, &cumprod_op, &cummax_op, NULL };
