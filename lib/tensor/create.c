/* create.c: makes leaves: from C arrays (eg_from), from a function of the program (eg_from_call),
 * constants and ramps (eg_arange). */
#include "tensor/tensor.h"
#include <math.h>
#include <string.h>

bool eg__leaf(eg_tensor **y, eg_ctx *cx, const char *who, eg_dtype dtype, int rank,
              const int64_t *dims)
{
    *y = eg__poison(cx);
    if (eg__failed(cx)) return false;
    if ((unsigned)dtype >= EG_DTYPES) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %d is not a dtype", who, (int)dtype);
        return false;
    }
    if (dtype == EG_DEFAULT) dtype = eg_default_type(cx);
    if (!eg__sizes_fit(cx, who, dtype, rank, dims)) return false;
    eg_tensor *t = eg__new(cx, dtype, rank, dims);
    if (t)
        *y = t;
    else
        eg_fail_in(cx, "%s", who);
    return t;
}

eg_tensor *eg_from_n(eg_ctx *cx, eg_dtype dtype, const void *data, int rank, const int64_t *dims)
{
    eg_tensor *y;
    if (eg__capture_refuses(eg__here(cx), "from",
                            "the elements of an array would be the same in each run; make the "
                            "tensor before the step and write to it between runs"))
        return eg__poison(cx);
    if (!eg__leaf(&y, cx, "from", dtype, rank, dims)) return y;
    if (!data && y->st->bytes)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "from: the data are NULL, but the sizes make %lld element%s",
                          (long long)eg_size(y), eg_size(y) == 1 ? "" : "s");
    if (y->st->bytes) memcpy(y->data, data, y->st->bytes);
    return y;
}

/* The function that a program gave to eg_from_call, followed by a copy of its arguments. */
typedef struct from_call {
    eg_fill_function *f;
    _Alignas(16) char args[];
} from_call;
static bool act_from_call(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)count, (void)x;
    from_call *c = arg;
    if (!c->f(c->args, to->data, eg_size(to))) return !cx->failed;
    if (!cx->failed)
        eg_fail_as(cx, EG_ERROR_USER, "from_call: the function failed without recording an error");
    return false;
}
/* Runs of a captured step call f again, which fills the tensor. */
eg_tensor *eg_from_call(eg_ctx *cx, eg_dtype dtype, int rank, const int64_t *dims,
                        eg_fill_function *f, const void *args, size_t bytes)
{
    eg_tensor *y;
    cx = eg__here(cx);
    if (!eg__leaf(&y, cx, "from_call", dtype, rank, dims)) return y;
    if (!f || (bytes && !args))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "from_call: %s",
                          f ? "arguments are NULL" : "the function is NULL");
    from_call *c = eg__alloc(cx, sizeof *c + bytes);
    if (!c) return eg__poison(cx);
    c->f = f;
    if (bytes) memcpy(c->args, args, bytes);
    return eg__act(cx, act_from_call, y, 0, NULL, c, sizeof *c + bytes, 0) ? y : eg__poison(cx);
}

eg_tensor *eg_from_with(const eg_from_args *given)
{
    eg_from_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    int64_t dim[EG_RANK_MAX + 1];
    int rank = 0;
    memcpy(dim, &o.d0, sizeof dim); /* d0 … d32 are consecutive members */
    while (rank <= EG_RANK_MAX && dim[rank] != EG_END) rank++;
    return eg_from_n(o.cx, o.dtype, o.data, rank, dim);
}

eg_tensor *eg_full_n(eg_ctx *cx, eg_dtype dtype, double value, int rank, const int64_t *dims)
{
    eg_tensor *y;
    /* eg_zeros and eg_ones are macros that call this function */
    const char *who = value == 0 ? "zeros" : value == 1 ? "ones" : "full";
    if (!eg__leaf(&y, cx, who, dtype, rank, dims)) return y;
    if (!eg__check_holds(y->cx, who, (eg_dtype)y->dtype, value)) return eg__poison(y->cx);
    eg__fill(y, value);
    eg__made_once(y);
    return y;
}
/* Copies re and im into the halves of a new c128 tensor, which has copies if one of them has. */
eg_tensor *eg_complex(eg_tensor *re, eg_tensor *im)
{
    eg_tensor *const parts[] = { re, im };
    const eg_copies *copies;
    eg_ctx *cx = eg__context_of("complex", 2, parts);
    char a[256], b[256];
    if (!cx || !eg__check_all(cx, "complex", 2, parts)) return eg__poison(cx);
    for (int k = 0; k < 2; k++)
        if (!eg__is_float(parts[k]->dtype))
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "complex: operand %d is %s; the parts are f32 or f64", k + 1,
                              eg_type_name(parts[k]->dtype));
    if (!eg__same_shape(re, im))
        return eg_fail_as(cx, EG_ERROR_SHAPE, "complex: operand 1 is %s but operand 2 is %s",
                          eg__dims_text(re, a, sizeof a), eg__dims_text(im, b, sizeof b));
    if (!eg__copies_of_all(cx, "complex", 2, parts, &copies) ||
        !eg__sizes_fit(cx, "complex", EG_C128, re->rank, re->dim))
        return eg__poison(cx);
    eg_tensor *part, *z = eg__new_copies(cx, copies, EG_C128, re->rank, re->dim);
    if (!z) return eg_fail_in(cx, "complex");
    for (int k = 0; k < 2; k++) {
        if (!(part = eg__part(z, k)) || !eg__copy_act(part, parts[k])) return eg__poison(cx);
    }
    return z;
}
eg_tensor *eg_scalar(eg_ctx *cx, double value) { return eg_full_n(cx, EG_DEFAULT, value, 0, NULL); }

static eg_tensor *full_like(const char *who, const eg_tensor *x, double value)
{
    eg_tensor *y;
    if (!eg__check_usable(who, (eg_tensor *)(uintptr_t)x)) return eg__poison_of(x);
    if (!eg__leaf(&y, x->cx, who, x->dtype, x->rank, x->dim)) return y;
    eg__fill(y, value);
    eg__made_once(y);
    return y;
}
eg_tensor *eg_zeros_like(const eg_tensor *x) { return full_like("zeros_like", x, 0); }
eg_tensor *eg_ones_like(const eg_tensor *x) { return full_like("ones_like", x, 1); }

/* -- arange: y[i] = start + i step,  0 ≤ i < ⌈(stop − start)/step⌉ ---------------------------- */
/* Elements of a block are counted in 32 bits, which AVX2 converts to doubles. All i are exact. */
enum { RAMP_BLOCK = 1 << 20 };
#define RAMP_LOOP(T, exact)                                                        \
    for (int64_t k = 0; k < n; k += RAMP_BLOCK)                                    \
        for (int32_t i = 0, m = (int32_t)eg__min64(n - k, RAMP_BLOCK); i < m; i++) \
    ((T *)out)[k + i] = (T)((exact)start + ((exact)k + (exact)i) * (exact)step)
#define RAMP(TYPE, T, exact)                                                           \
    EG_CLONES static void ramp_##TYPE(char *out, int64_t n, double start, double step) \
    {                                                                                  \
        RAMP_LOOP(T, exact);                                                           \
    }
RAMP(F32, float, double)
RAMP(F64, double, double)
RAMP(I32, int32_t, int64_t)
RAMP(I64, int64_t, int64_t)
static void (*const ramp[EG_DTYPES])(char *, int64_t, double, double) = {
    [EG_F32] = ramp_F32,
    [EG_F64] = ramp_F64,
    [EG_I32] = ramp_I32,
    [EG_I64] = ramp_I64,
};
/* Returns whether start + (n - 1) step, the last element of a ramp of integers, fits the dtype. */
static bool ramp_fits(eg_dtype dtype, int64_t n, double start, double step)
{
    int64_t last;
    if (n < 1) return true;
    if (__builtin_mul_overflow(n - 1, (int64_t)step, &last) ||
        __builtin_add_overflow(last, (int64_t)start, &last))
        return false;
    return dtype != EG_I32 || ((int64_t)start == (int32_t)(int64_t)start && last == (int32_t)last);
}
/* Refuses a step of 0, a ramp with too many elements, and values that an integer dtype cannot
 * represent. */
eg_tensor *eg_arange(eg_ctx *cx, eg_dtype dtype, double start, double stop, double step)
{
    eg_tensor *y = eg__poison(cx);
    if (eg__failed(cx)) return y;
    if (!isfinite(start) || !isfinite(stop) || !isfinite(step) || step == 0)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "arange: from %g to %g in steps of %g makes no sequence", start, stop,
                          step);
    double n = ceil((stop - start) / step);
    if (n > 0x1p60)
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "arange: from %g to %g in steps of %g makes %g elements", start, stop,
                          step, n);
    if (!eg__leaf(&y, cx, "arange", dtype, 1, &(int64_t){ n > 0 ? (int64_t)n : 0 })) return y;
    if (!ramp[y->dtype])
        return eg_fail_as(cx, EG_ERROR_DTYPE, "arange: %s has no ramp", eg_type_name(y->dtype));
    if (!eg__is_float(y->dtype) && (start != floor(start) || step != floor(step) ||
                                    fabs(start) > 0x1p62 || fabs(step) > 0x1p62))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "arange: start %g and step %g must be integers for %s, of at most 2^62",
                          start, step, eg_type_name(y->dtype));
    if (!eg__is_float(y->dtype) && !ramp_fits(y->dtype, y->dim[0], start, step))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "arange: from %.17g to %.17g in steps of %.17g, %s cannot hold all",
                          start, stop, step, eg_type_name(y->dtype));
    ramp[y->dtype](y->data, y->dim[0], start, step);
    eg__made_once(y);
    return y;
}
