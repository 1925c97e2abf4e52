/* create.c: makes leaves: from C arrays, constants, ramps and random draws. Of all functions that
 * return tensors only these have a context as parameter. */
#include "tensor/tensor.h"
#include <math.h>
#include <string.h>

/* Makes a leaf that is not filled. Returns false, with *y the poison tensor, after an error that
 * names the function `who`. */
static bool create_made(eg_tensor **y, eg_ctx *cx, const char *who, eg_dtype dtype, int rank,
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
    if (t) *y = t;
    return t;
}

eg_tensor *eg_from_n(eg_ctx *cx, eg_dtype dtype, const void *data, int rank, const int64_t *dims)
{
    eg_tensor *y;
    if (eg__capture_refuses(eg__here(cx), "from",
                            "the elements of an array would be the same in each run; make the "
                            "tensor before the step and write to it between runs"))
        return eg__poison(cx);
    if (!create_made(&y, cx, "from", dtype, rank, dims)) return y;
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
/* The call of f is an act, so that runs of a captured step fill the tensor again. */
eg_tensor *eg_from_call(eg_ctx *cx, eg_dtype dtype, int rank, const int64_t *dims,
                        eg_fill_function *f, const void *args, size_t bytes)
{
    eg_tensor *y;
    cx = eg__here(cx);
    if (!create_made(&y, cx, "from_call", dtype, rank, dims)) return y;
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
    if (!create_made(&y, cx, who, dtype, rank, dims)) return y;
    eg__fill(y, value);
    eg__made_once(y);
    return y;
}
/* Copies re and im into the halves of a new c128 tensor. */
eg_tensor *eg_complex(eg_tensor *re, eg_tensor *im)
{
    eg_tensor *const parts[] = { re, im };
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
    eg_tensor *z, *part;
    if (!create_made(&z, cx, "complex", EG_C128, re->rank, re->dim)) return z;
    for (int k = 0; k < 2; k++) {
        if (!(part = eg__part(z, k)) || !eg__copy_act(part, parts[k])) return eg__poison(cx);
    }
    return z;
}
eg_tensor *eg_scalar(eg_ctx *cx, double value) { return eg_full_n(cx, EG_DEFAULT, value, 0, NULL); }

static eg_tensor *like(const char *who, const eg_tensor *x, double value)
{
    eg_tensor *y;
    if (!eg__check_usable(who, (eg_tensor *)(uintptr_t)x)) return eg__poison_of(x);
    if (!create_made(&y, x->cx, who, x->dtype, x->rank, x->dim)) return y;
    eg__fill(y, value);
    eg__made_once(y);
    return y;
}
eg_tensor *eg_zeros_like(const eg_tensor *x) { return like("zeros_like", x, 0); }
eg_tensor *eg_ones_like(const eg_tensor *x) { return like("ones_like", x, 1); }

/* -- arange: y[i] = start + i step,  0 ≤ i < ⌈(stop − start)/step⌉ ---------------------------- */
#define RAMP(TYPE, T, exact)                                                 \
    static void ramp_##TYPE(char *out, int64_t n, double start, double step) \
    {                                                                        \
        for (int64_t i = 0; i < n; i++)                                      \
            ((T *)out)[i] = (T)((exact)start + (exact)i * (exact)step);      \
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
    if (!create_made(&y, cx, "arange", dtype, 1, &(int64_t){ n > 0 ? (int64_t)n : 0 })) return y;
    if (!ramp[y->dtype])
        return eg_fail_as(cx, EG_ERROR_DTYPE, "arange: %s has no ramp", eg_type_name(y->dtype));
    if (!eg__is_float(y->dtype) && (start != floor(start) || step != floor(step) ||
                                    fabs(start) > 0x1p62 || fabs(step) > 0x1p62))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "arange: start %g and step %g must be integers for %s", start, step,
                          eg_type_name(y->dtype));
    ramp[y->dtype](y->data, y->dim[0], start, step);
    eg__made_once(y);
    return y;
}

/* -- random draws: each element from its own counter, so that bits do not depend on threads ---- */
typedef struct draws {
    uint64_t seed, draw;
    double a, b;
    int64_t low;
    uint64_t range;
    void (*pair)(const struct draws *, int64_t i, int64_t n);
    eg_dtype dtype;
    char *out;
} draws;
enum { GRAIN = 1 << 13 };

static void create_put(const draws *d, int64_t i, double v)
{
    if (d->dtype == EG_F64)
        ((double *)d->out)[i] = v;
    else
        ((float *)d->out)[i] = (float)v;
}

typedef struct drawing {
    const draws *d;
    int64_t n, pieces;
} drawing;
static void piece_of_draws(void *user, int64_t piece, int thread)
{
    (void)thread;
    const drawing *w = user;
    const int64_t pairs = (w->n + 1) / 2, to = pairs * (piece + 1) / w->pieces;
    for (int64_t k = pairs * piece / w->pieces; k < to; k++)
        w->d->pair(w->d, 2 * k, 2 * k + 1 < w->n ? 2 : 1);
}
/* Fills n elements in pairs: elements 2k and 2k + 1 are computed from the same random bits. */
static bool act_draw(eg_ctx *cx, eg_tensor *y, int count, eg_tensor *const *x, void *arg)
{
    (void)count, (void)x;
    draws d = *(const draws *)arg;
    const int64_t n = eg_size(y);
    d.out = y->data;
    int team = eg__team(cx, n, GRAIN);
    drawing w = { &d, n, team > 1 ? 4 * team : 1 };
    eg__parallel(cx, team, w.pieces, piece_of_draws, &w);
    return true;
}
static eg_tensor *create_drawn(eg_tensor *y, draws d,
                               void (*pair)(const draws *, int64_t i, int64_t n))
{
    d.seed = eg__seed_of(y->cx);
    d.draw = eg__draw(y->cx);
    d.pair = pair;
    d.dtype = y->dtype;
    return eg__act(y->cx, act_draw, y, 0, NULL, &d, sizeof d, 1 + offsetof(draws, seed))
               ? y
               : eg__poison(y->cx);
}

static bool float_made(eg_tensor **y, eg_ctx *cx, const char *who, eg_dtype dtype, int rank,
                       const int64_t *dims)
{
    if (!create_made(y, cx, who, dtype, rank, dims)) return false;
    if (eg__is_float((*y)->dtype)) return true;
    *y = eg_fail_as(cx, EG_ERROR_DTYPE,
                    "%s: draws are f32 or f64, not %s; eg_randint draws integers", who,
                    eg_type_name((*y)->dtype));
    return false;
}

/* uniform: low + (high − low) u; if that is rounded to high, which is excluded, the next smaller
 * value */
static void uniform_pair(const draws *d, int64_t i, int64_t n)
{
    for (int64_t k = i; k < i + n; k++) {
        double v = d->a + (d->b - d->a) * eg__unit(d->seed, d->draw, (uint64_t)k);
        if (d->dtype == EG_F32 && (float)v >= (float)d->b) v = nextafterf((float)d->b, (float)d->a);
        if (d->dtype == EG_F64 && v >= d->b) v = nextafter(d->b, d->a);
        create_put(d, k, v);
    }
}
eg_tensor *eg_uniform_n(eg_ctx *cx, eg_dtype dtype, double low, double high, int rank,
                        const int64_t *dims)
{
    eg_tensor *y = eg__poison(cx);
    if (eg__failed(cx)) return y;
    if (!(low < high) || !isfinite(high - low))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "uniform: [%g, %g) is not an interval", low, high);
    return float_made(&y, cx, "uniform", dtype, rank, dims)
               ? create_drawn(y, (draws){ .a = low, .b = high }, uniform_pair)
               : y;
}

/* normal: mean + deviation √(−2 ln u) (cos, sin) 2πv, u in (0, 1] (Box, Muller 1958) */
static void normal_pair(const draws *d, int64_t i, int64_t n)
{
    uint32_t r[4];
    eg__philox(d->seed, d->draw, (uint64_t)i, r);
    double u = ((double)(((uint64_t)r[1] << 32 | r[0]) >> 11) + 1) * 0x1p-53,
           v = (double)(((uint64_t)r[3] << 32 | r[2]) >> 11) * 0x1p-53;
    double radius = sqrt(-2 * log(u)), angle = 6.283185307179586476925286766559 * v;
    create_put(d, i, d->a + d->b * radius * cos(angle));
    if (n > 1) create_put(d, i + 1, d->a + d->b * radius * sin(angle));
}
eg_tensor *eg_normal_n(eg_ctx *cx, eg_dtype dtype, double mean, double deviation, int rank,
                       const int64_t *dims)
{
    eg_tensor *y = eg__poison(cx);
    if (eg__failed(cx)) return y;
    if (!isfinite(mean) || !isfinite(deviation) || deviation < 0)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "normal: mean %g and deviation %g are not those of a normal distribution",
                          mean, deviation);
    return float_made(&y, cx, "normal", dtype, rank, dims)
               ? create_drawn(y, (draws){ .a = mean, .b = deviation }, normal_pair)
               : y;
}

/* randint: a 64-bit word modulo the range. The words below 2^64 mod range, which would make small
 * remainders more likely, are rejected and drawn again. */
static void randint_pair(const draws *d, int64_t i, int64_t n)
{
    uint64_t refused = (uint64_t)-d->range % d->range; /* 2^64 mod range */
    for (int64_t k = i; k < i + n; k++) {
        uint64_t word = 0;
        for (uint64_t seed = d->seed, found = 0; !found; seed += 0x9e3779b97f4a7c15u) {
            uint32_t r[4];
            eg__philox(seed, d->draw, (uint64_t)k, r);
            for (int half = 0; half < 4 && !found; half += 2) {
                word = (uint64_t)r[half + 1] << 32 | r[half];
                found = word >= refused;
            }
        }
        ((int64_t *)d->out)[k] = (int64_t)((uint64_t)d->low + word % d->range);
    }
}
eg_tensor *eg_randint_n(eg_ctx *cx, int64_t low, int64_t high, int rank, const int64_t *dims)
{
    eg_tensor *y = eg__poison(cx);
    if (eg__failed(cx)) return y;
    if (low >= high)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "randint: [%lld, %lld) contains no integer",
                          (long long)low, (long long)high);
    if (!create_made(&y, cx, "randint", EG_I64, rank, dims)) return y;
    return create_drawn(y, (draws){ .low = low, .range = (uint64_t)high - (uint64_t)low },
                        randint_pair);
}
