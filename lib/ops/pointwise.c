/* pointwise.c: elementwise operations y = f(x); y has the shape, dtype and layout of x. */
#include <math.h>
#include "ops/gauss.h"
#if defined(__x86_64__) && !NO_CLONES
#include <immintrin.h>
#endif

/* The attribute of an operation with constants a and b. */
typedef struct constants {
    double c[2];
} constants;

static bool pointwise_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    eg_lanes_fn *const *of = eg__lanes_op(y)->of;
    if (of[x->dtype]) return eg__shape_like(y, x->dtype, x);
    eg_fail_as(y->cx, EG_ERROR_DTYPE, "%s: operand 1 is %s; cast it to %s first", y->op->name,
               eg_type_name(x->dtype), of[EG_I64] ? "f32, f64, i32 or i64" : "f32 or f64");
    return false;
}
/* Returns constant a; 0 for an operation without constants. */
static double first_constant(const eg_tensor *y)
{
    return y->attr ? ((const constants *)y->attr)->c[0] : 0;
}

/* -- ranges of sampled operands: they avoid kinks and jumps, which are at 0 (abs, sign, relu …), ±1
 * (clip), integers (floor), halves (round) */
#define EVERYWHERE(CALL)   \
    {                      \
        CALL, "3x4", -2, 2 \
    }
#define POSITIVE(CALL)     \
    {                      \
        CALL, "3x4", .5, 2 \
    }
#define BOTH_SIDES(CALL) \
    { CALL, "3x4", .1, 2 }, { CALL, "3x4", -2, -.1 }
#define THREE_PARTS(CALL) \
    { CALL, "3x4", -.9, .9 }, { CALL, "3x4", 1.1, 2 }, { CALL, "3x4", -2, -1.1 }
#define FRACTIONS(CALL) \
    { CALL, "3x4", .1, .9 }, { CALL, "3x4", -1.9, -1.1 }
#define HALVES(CALL) \
    { CALL, "3x4", -.4, .4 }, { CALL, "3x4", .6, 1.4 }
#define INSIDE_1(CALL)       \
    {                        \
        CALL, "3x4", -.9, .9 \
    }
#define ABOVE_1(CALL)       \
    {                       \
        CALL, "3x4", 1.2, 3 \
    }

/* Calls a kernel of many instructions for n elements of `width` bytes. If they come from memory, it
 * is called block by block, while the next block is prefetched: between two loads of such a kernel
 * lie so many instructions that the processor alone has few loads under way at a time. */
static void pointwise_ahead(eg_lanes_fn *kernel, int64_t width, int64_t n, char *const *p,
                            const double *c)
{
    if (!eg__rows_ahead_gains(n / EG_BLOCK, EG_BLOCK * width, 1)) {
        kernel(n, p, c);
        return;
    }
    for (int64_t k = 0, m; k < n; k += m) {
        m = eg__min64(n - k, EG_BLOCK);
        char *const q[] = { p[0] + k * width, p[1] + k * width };
        eg__prefetch_rows(q[1] + m * width, 1, 0, eg__min64(n - k - m, EG_BLOCK) * width);
        kernel(m, q, c);
    }
}

/* -- kernels ---------------------------------------------------------------------------------- */
#define R(number) EG_RE(number)
#define T         float
#define NAME(x)   x##_f32
#define F(name)   name##f
#define REAL      float
#define CLONES    EG_CLONES EG_FUSING
#include "ops/pointwise_of.h"
#define T       double
#define NAME(x) x##_f64
#define F(name) name
#define REAL    double
#define CLONES  EG_CLONES EG_FUSING
#include "ops/pointwise_of.h"
#define T       double complex
#define NAME(x) x##_c128
#define F(name) eg__c_##name
#define REAL    double
#define CLONES
#include "ops/pointwise_of.h"

#if defined(__x86_64__) && !NO_CLONES
#define T       float
#define NAME(x) x##_f32
#define V       __m512
#define M(name) _mm512_##name##_ps
#define COMPARE _mm512_cmp_ps_mask
#define ALL     0xffff
#define LEAST   0x1p-70
#define MOST    0x1p126
#define STEPS   1
#include "ops/root_of.h"
#define T       double
#define NAME(x) x##_f64
#define V       __m512d
#define M(name) _mm512_##name##_pd
#define COMPARE _mm512_cmp_pd_mask
#define ALL     0xff
#define LEAST   0x1p-890
#define MOST    0x1p1022
#define STEPS   2
#include "ops/root_of.h"
#define ROOTS(NAME) [EG_F32] = roots_f32, [EG_F64] = roots_f64, [EG_C128] = NAME##_c128
#define POWER_ROOTS [EG_F32] = power_roots_f32, [EG_F64] = power_roots_f64, [EG_C128] = root_c128
#else
#define ROOTS(NAME) FLOATS(NAME)
#define POWER_ROOTS FLOATS(root)
#endif
/* only where the loops of other files with F(epow), such as softmax, fuse products and sums, too */
#if defined(__x86_64__) && !NO_CLONES && HAVE_TARGET_CLONES && !defined(__clang__)
/* e^x of complete groups of lanes, with the bits of epowf (tensor/epow.h): 2^n is applied by an
 * instruction, which rounds once and flushes subnormal numbers as a product does, and takes NaN
 * from its first operand. */
__attribute__((target("avx512f"))) static void fast_exp(int64_t n, char *const *p, const double *c)
{
    const float *x = (const float *)p[1];
    float *y = (float *)p[0];
    const __m512 magic = _mm512_set1_ps(0x1.8p23f);
    (void)c;
    for (int64_t k = 0; k < n; k += 16) {
        const __m512 v = _mm512_min_ps(_mm512_set1_ps(89),
                                       _mm512_max_ps(_mm512_set1_ps(-104), _mm512_loadu_ps(x + k)));
        const __m512 w =
            _mm512_sub_ps(_mm512_fmadd_ps(v, _mm512_set1_ps(EG_EPOW_PER_LN2), magic), magic);
        const __m512 r = _mm512_fnmadd_ps(w, _mm512_set1_ps(EG_EPOW_REST),
                                          _mm512_fnmadd_ps(w, _mm512_set1_ps(EG_EPOW_LN2), v));
        __m512 q = _mm512_set1_ps(EG_EPOW_Q4);
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EG_EPOW_Q3));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EG_EPOW_Q2));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EG_EPOW_Q1));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EG_EPOW_Q0));
        q = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r), _mm512_set1_ps(1));
        _mm512_storeu_ps(y + k, _mm512_scalef_ps(q, w));
    }
}
/* the kernel of eg_exp for f32 */
static void exps_f32(int64_t n, char *const *p, const double *c)
{
    if (__builtin_cpu_supports("avx512f"))
        pointwise_ahead(fast_exp, sizeof(float), n, p, c);
    else
        exp_f32(n, p, c);
}
#define EXPS(NAME) [EG_F32] = exps_f32, [EG_F64] = NAME##_f64, [EG_C128] = NAME##_c128
#else
#define EXPS(NAME) FLOATS(NAME)
#endif
static int64_t saturated(double c, int64_t low, int64_t high)
{
    return c <= (double)low ? low : c >= (double)high ? high : (int64_t)c;
}
#define T       int32_t
#define NAME(x) x##_i32
#define U       uint32_t
#define LOW     INT32_MIN
#define HIGH    INT32_MAX
#include "ops/pointwise_integers_of.h"
#define T       int64_t
#define NAME(x) x##_i64
#define U       uint64_t
#define LOW     INT64_MIN
#define HIGH    INT64_MAX
#include "ops/pointwise_integers_of.h"

/* -- code generated for each operation: rule, sample, eg_lanes_op, function ------------------- */
#define FLOATS(NAME)  [EG_F32] = NAME##_f32, [EG_F64] = NAME##_f64, [EG_C128] = NAME##_c128
#define NUMBERS(NAME) FLOATS(NAME), [EG_I32] = NAME##_i32, [EG_I64] = NAME##_i64
/* clang-format off */
#define RULE(NAME, DX)                                                                             \
    static eg_tensor *NAME##_rule(eg_tensor *y, eg_tensor *g, int i)                               \
    { eg_tensor *x = y->in[i]; const double a = first_constant(y); (void)x, (void)a; return DX; }
#define OP(NAME, RULE_OF, READS, SAMPLED, TYPES, EQUATION, GRADIENT, CALL)                         \
    static eg_tensor *NAME##_call(eg_tensor *const *x) { return CALL; }                            \
    static const eg_sample NAME##_samples[] = { SAMPLED(NAME##_call), { 0 } };                     \
    static const eg_lanes_op NAME##_op = { .of = { TYPES(NAME) }, .op = { #NAME, EQUATION,         \
        GRADIENT, 1, pointwise_shape, eg__lanes_forward, RULE_OF, EG_USES_##READS, NAME##_samples, \
        .jvp = eg_jvp_symmetric, .forward_c128 = eg__lanes_forward } };
#define ROW(CALL, NAME, VALUE, DX, READS, SAMPLED, TYPES, EQUATION, GRADIENT)                      \
    RULE(NAME, DX)                                                                                 \
    OP(NAME, NAME##_rule, READS, SAMPLED, TYPES, EQUATION, GRADIENT, CALL(x[0]))                   \
    eg_tensor *CALL(eg_tensor *x) { return eg_apply(&NAME##_op.op, NULL, 0, 1, &x); }
#define SHORT                          ROW
#define STAGED(CALL, NAME, FIRST, ...) ROW(CALL, NAME, __VA_ARGS__)
#define JUMP(CALL, NAME, VALUE, SAMPLED, TYPES, EQUATION)                                          \
    OP(NAME, eg_zero_rule, NOTHING, SAMPLED, TYPES, EQUATION, "dx = 0", CALL(x[0]))                \
    eg_tensor *CALL(eg_tensor *x) { return eg_apply(&NAME##_op.op, NULL, 0, 1, &x); }
#define WITH_CONSTANTS(CALL, NAME, VALUE, DX, READS, SAMPLED, TYPES, EQUATION, GRADIENT, SAMPLE)   \
    RULE(NAME, DX)                                                                                 \
    OP(NAME, NAME##_rule, READS, SAMPLED, TYPES, EQUATION, GRADIENT, SAMPLE)
/* clang-format on */
#include "ops/pointwise_rows.h"

/* Applies an operation with constants a and b. For an integer operand, constants must be integers
 * that its type can represent; limits of clip may be larger, and ±∞. */
static eg_tensor *with_constants(const eg_op *op, eg_tensor *x, double a, double b)
{
    if (!eg__check(op->name, x)) return eg__poison_of(x);
    if (eg__is_int(x->dtype)) {
        for (int k = 0; k < 2; k++) {
            double c = k ? b : a;
            if (floor(c) != c || (op != &clip_op.op && !eg__holds((eg_dtype)x->dtype, c)))
                return eg_fail_as(x->cx, EG_ERROR_DTYPE,
                                  "%s: operand 1 is %s and cannot take the constant %g; cast it to "
                                  "f32 or f64 first",
                                  op->name, eg_type_name(x->dtype), c);
        }
    }
    return eg_apply(op, &(constants){ { a, b } }, sizeof(constants), 1, &x);
}
eg_tensor *eg_scale(eg_tensor *x, double c) { return with_constants(&scale_op.op, x, c, 0); }
eg_tensor *eg_shift(eg_tensor *x, double c) { return with_constants(&shift_op.op, x, c, 0); }
eg_tensor *eg_leaky_relu(eg_tensor *x, double slope)
{
    return with_constants(&leaky_relu_op.op, x, slope, 0);
}
eg_tensor *eg_elu(eg_tensor *x, double alpha) { return with_constants(&elu_op.op, x, alpha, 0); }
eg_tensor *eg__huber(eg_tensor *x, double delta)
{
    return with_constants(&huber_op.op, x, delta, 0);
}
eg_tensor *eg_clip(eg_tensor *x, double low, double high)
{
    if (low <= high) return with_constants(&clip_op.op, x, low, high);
    if (!eg__check("clip", x)) return eg__poison_of(x);
    if (low > high)
        return eg_fail_as(x->cx, EG_ERROR_MISUSE,
                          "clip: the low limit %g is above the high limit %g", low, high);
    return eg_fail_as(x->cx, EG_ERROR_MISUSE, "clip: the %s limit is NaN",
                      isnan(low) ? "low" : "high");
}

/* -- powc: y = x^c, dx = g c x^(c−1) ----------------------------------------------------------- */
enum { WHOLE_MOST = 64 };
/* Powers of f32 with whole exponents of at most WHOLE_MOST: products of f64, rounded once. */
EG_CLONES static void whole_power_f32(int64_t n, char *const *p, const double *c)
{
    const float *x = (const float *)p[1];
    float *out = (float *)p[0];
    for (int64_t size; n; n -= size, x += size, out += size) {
        double y[EG_BLOCK], square[EG_BLOCK];
        size = eg__min64(n, EG_BLOCK);
        EG_EVERY_LANE
        for (int64_t k = 0; k < size; k++) y[k] = 1, square[k] = x[k];
        for (int left = (int)fabs(*c); left; left /= 2) {
            const bool used = left % 2; /* else times 1 */
            EG_EVERY_LANE
            for (int64_t k = 0; k < size; k++) {
                y[k] *= used ? square[k] : 1;
                square[k] *= square[k];
            }
        }
        EG_EVERY_LANE
        for (int64_t k = 0; k < size; k++) out[k] = (float)(*c < 0 ? 1 / y[k] : y[k]);
    }
}
/* Returns the kernel of x^c: small powers by multiplication and division, ½ and −½ by a root, other
 * whole ones by the sign of x. */
static eg_lanes_fn *powc_kernel(double c, int dtype)
{
    static eg_lanes_fn *const power[EG_DTYPES] = { FLOATS(powc) };
    static eg_lanes_fn *const cube[EG_DTYPES] = { FLOATS(cube) };
    static eg_lanes_fn *const recip_square[EG_DTYPES] = { FLOATS(recip_square) };
    static eg_lanes_fn *const root[EG_DTYPES] = { POWER_ROOTS };
    static eg_lanes_fn *const recip_root[EG_DTYPES] = { FLOATS(recip_root) };
    static eg_lanes_fn *const even[EG_DTYPES] = { FLOATS(even_power) };
    static eg_lanes_fn *const odd[EG_DTYPES] = { FLOATS(odd_power) };
    if (c == 1) return scale_op.of[dtype];
    if (c == 2) return square_op.of[dtype];
    if (c == 3) return cube[dtype];
    if (c == -1) return recip_op.of[dtype];
    if (c == -2) return recip_square[dtype];
    if (c == .5) return root[dtype];
    if (c == -.5) return recip_root[dtype];
    if (c == 0 || !isfinite(c) || floor(c) != c) return power[dtype];
    if (dtype == EG_F32 && fabs(c) <= WHOLE_MOST) return whole_power_f32;
    return (fmod(c, 2) == 0 ? even : odd)[dtype];
}
static bool powc_forward(eg_tensor *y)
{
    return eg__lanes_run(y, powc_kernel(first_constant(y), y->dtype), false);
}
static eg_tensor *powc_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const double c = first_constant(y);
    if (c == 0) return eg_zero_rule(y, g, i); /* 0 · x^−1 would be NaN at 0 */
    return c == 1 ? g : eg_mul(g, eg_scale(c == 2 ? y->in[i] : eg_powc(y->in[i], c - 1), c));
}
static eg_tensor *powc_call(eg_tensor *const *x) { return eg_powc(x[0], 2.5); }
static eg_tensor *powc_cube_call(eg_tensor *const *x) { return eg_powc(x[0], 3); }
static eg_tensor *powc_recip_call(eg_tensor *const *x) { return eg_powc(x[0], -1); }
static const eg_sample powc_samples[] = {
    POSITIVE(powc_call), EVERYWHERE(powc_cube_call), POSITIVE(powc_recip_call), { 0 }
};
static const eg_lanes_op powc_op = {
    .of = { FLOATS(powc) },
    .op = { "powc", "y = x^c", "dx = g c x^(c−1)", 1, pointwise_shape, powc_forward, powc_rule,
            EG_USES_OPERANDS, powc_samples, .jvp = eg_jvp_symmetric, .forward_c128 = powc_forward }
};
eg_tensor *eg_powc(eg_tensor *x, double c) { return with_constants(&powc_op.op, x, c, 0); }

#define ROW(CALL, NAME, ...) &NAME##_op,
#define SHORT                ROW
#define STAGED               ROW
#define JUMP                 ROW
#define WITH_CONSTANTS(...)
static const eg_lanes_op *const by_name[] = {
#include "ops/pointwise_rows.h"
};
const eg_lanes_op *eg__pointwise(const char *name)
{
    for (size_t k = 0; k < sizeof by_name / sizeof *by_name; k++)
        if (!strcmp(by_name[k]->op.name, name)) return by_name[k];
    return NULL;
}

#define ROW(CALL, NAME, ...) &NAME##_op.op,
#define SHORT                ROW
#define STAGED               ROW
#define JUMP                 ROW
#define WITH_CONSTANTS       ROW
const eg_op *const eg__pointwise_ops[] = {
#include "ops/pointwise_rows.h"
    &powc_op.op, NULL
};
