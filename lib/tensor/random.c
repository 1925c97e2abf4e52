/* random.c: leaves of random numbers. Each element has a counter of its own, its index (Philox), so
 * no bit depends on threads. The functions are written out, in loops over lanes: the same bits on
 * all processors, since nothing is fused, and no call for each element. */
#include "tensor/lanes.h"
#include "tensor/tensor.h"
#include <float.h>
#include <math.h>
#include <string.h>

typedef struct draws {
    uint64_t seed, draw;
    double a, b; /* the bounds, or mean and deviation */
    int64_t low; /* randint */
    uint64_t range;
    /* computes units [from, from + n), n ≤ UNITS */
    void (*run)(const struct draws *, int64_t from, int64_t n);
    int each; /* elements of a unit */
    eg_dtype dtype;
    int64_t n; /* elements */
    char *out;
} draws;
/* UNITS: the most units of a call. GRAIN: elements for which another thread is worthwhile. */
enum { UNITS = 128, GRAIN = 1 << 13 };

static void random_piece(void *user, int64_t piece, int thread)
{
    const draws *d = user;
    const int64_t units = (d->n + d->each - 1) / d->each, from = piece * GRAIN,
                  to = eg__min64(units, from + GRAIN);
    (void)thread;
    for (int64_t k = from; k < to; k += UNITS) d->run(d, k, eg__min64(to - k, UNITS));
}
static bool act_draw(eg_ctx *cx, eg_tensor *y, int count, eg_tensor *const *x, void *arg)
{
    (void)count, (void)x;
    draws d = *(const draws *)arg;
    d.n = eg_size(y);
    d.out = y->data;
    const int64_t units = (d.n + d.each - 1) / d.each;
    eg__parallel(cx, eg__team(cx, d.n, GRAIN), (units + GRAIN - 1) / GRAIN, random_piece, &d);
    return true;
}
static eg_tensor *random_made(eg_tensor *y, draws d)
{
    d.seed = eg__copy_seed(y->cx, y->cx->copy.of, eg__seed_of(y->cx));
    d.draw = eg__draw(y->cx);
    d.dtype = (eg_dtype)y->dtype;
    return eg__act(y->cx, act_draw, y, 0, NULL, &d, sizeof d, 1 + offsetof(draws, seed))
               ? y
               : eg__poison(y->cx);
}
static bool random_float(eg_tensor **y, eg_ctx *cx, const char *who, eg_dtype dtype, int rank,
                         const int64_t *dims)
{
    if (!eg__leaf(y, cx, who, dtype, rank, dims)) return false;
    if (eg__is_float((*y)->dtype)) return true;
    *y = eg_fail_as(cx, EG_ERROR_DTYPE,
                    "%s: draws are f32 or f64, not %s; eg_randint draws integers", who,
                    eg_type_name((*y)->dtype));
    return false;
}
/* Returns true if `value` is finite in the dtype of *y; else records why, and *y is poisoned. */
static bool random_within(eg_tensor **y, const char *who, const char *what, double value)
{
    if ((*y)->dtype == EG_F64 || isfinite((float)value)) return true;
    *y = eg_fail_as((*y)->cx, EG_ERROR_MISUSE, "%s: %s %g is beyond %g, the largest number of f32",
                    who, what, value, FLT_MAX);
    return false;
}
/* 53 bits of two words, in [0, 1) */
EG_INLINE double unit_of(const uint32_t *r)
{
    return (double)(((uint64_t)r[1] << 32 | r[0]) >> 11) * 0x1p-53;
}

/* -- uniform: low + (high − low) u; if that is rounded to high, which is excluded, the next smaller
 * value */
/* Computes elements [from, from + n). */
EG_CLONES static void uniform_run(const draws *d, int64_t from, int64_t n)
{
    uint32_t r[4 * UNITS];
    eg__philox_many(d->seed, d->draw, (uint64_t)from, 1, n, r);
    const double low = d->a, width = d->b - d->a;
    if (d->dtype == EG_F64) {
        double *y = (double *)(void *)d->out + from;
        const double high = d->b, last = nextafter(high, low);
        EG_EVERY_LANE
        for (int64_t k = 0; k < n; k++) {
            const double v = low + width * unit_of(r + 4 * k);
            y[k] = v >= high ? last : v;
        }
    } else {
        float *y = (float *)(void *)d->out + from;
        const float high = (float)d->b, last = nextafterf(high, (float)low);
        EG_EVERY_LANE
        for (int64_t k = 0; k < n; k++) {
            const float v = (float)(low + width * unit_of(r + 4 * k));
            y[k] = v >= high ? last : v;
        }
    }
}
eg_tensor *eg_uniform_n(eg_ctx *cx, eg_dtype dtype, double low, double high, int rank,
                        const int64_t *dims)
{
    eg_tensor *y = eg__poison(cx);
    if (eg__failed(cx)) return y;
    if (!(low < high) || !isfinite(high - low))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "uniform: [%g, %g) is not an interval", low, high);
    return random_float(&y, cx, "uniform", dtype, rank, dims) &&
                   random_within(&y, "uniform", "the bound", low) &&
                   random_within(&y, "uniform", "the bound", high)
               ? random_made(y, (draws){ .a = low, .b = high, .run = uniform_run, .each = 1 })
               : y;
}

/* -- normal: mean + deviation √(−2 ln u) (cos, sin) 2πv, u in (0, 1] (Box, Muller 1958); elements
 * 2k and 2k + 1 have the counter 2k */
/* ln x, x in (0, 1] and not subnormal: x = 2^k (1 + f), √½ ≤ 1 + f < √2, s = f/(2 + f),
 * ln (1 + f) = f − f²/2 + s (f²/2 + R), R the polynomial in s² of fdlibm's e_log.c (Sun, 1993);
 * within 1 ulp */
EG_INLINE double random_log(double x)
{
    enum { BIAS = 1023 };
    uint64_t bits, k;
    double f, whole;
    memcpy(&bits, &x, sizeof bits);
    k = (bits - 0x3fe6a09e667f3bcd + ((uint64_t)BIAS << 52)) >> 52; /* the exponent + BIAS */
    bits -= (k - BIAS) << 52;
    memcpy(&f, &bits, sizeof f);
    bits = k | 0x4330000000000000; /* 2^52 + k */
    memcpy(&whole, &bits, sizeof whole);
    whole -= 0x1p52 + BIAS;
    f -= 1;
    const double s = f / (2 + f), z = s * s, w = z * z, half = .5 * f * f;
    const double odd = w * (3.999999999940941908e-01 +
                            w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01)),
                 even = z * (6.666666666666735130e-01 +
                             w * (2.857142874366239149e-01 +
                                  w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    return whole * 6.93147180369123816490e-01 -
           (half - (s * (half + (odd + even)) + whole * 1.90821492927058770002e-10) - f);
}
/* cos and sin of 2πv, v in [0, 1): 4v = q + r with |r| ≤ ½ exactly, and the polynomials of fdlibm's
 * k_cos.c and k_sin.c (Sun, 1993) for the angle πr/2; within 1 ulp */
EG_INLINE void random_circle(double v, double *cosine, double *sine)
{
    const double magic = 0x1.8p52, n = 4 * v + magic, x = (4 * v - (n - magic)) * M_PI_2, z = x * x;
    uint64_t q;
    memcpy(&q, &n, sizeof q);
    const double c = 1 - (.5 * z - z * z *
                                       (4.16666666666666019037e-02 +
                                        z * (-1.38888888888741095749e-03 +
                                             z * (2.48015872894767294178e-05 +
                                                  z * (-2.75573143513906633035e-07 +
                                                       z * (2.08757232129817482790e-09 +
                                                            z * -1.13596475577881948265e-11)))))),
                 s = x + x * z *
                             (-1.66666666666666324348e-01 +
                              z * (8.33333333332248946124e-03 +
                                   z * (-1.98412698298579493134e-04 +
                                        z * (2.75573137070700676789e-06 +
                                             z * (-2.50507602534068634195e-08 +
                                                  z * 1.58969099521155010221e-10)))));
    const double of_cos = q & 1 ? s : c, of_sin = q & 1 ? c : s;
    *cosine = (q + 1) & 2 ? -of_cos : of_cos;
    *sine = q & 2 ? -of_sin : of_sin;
}
/* Computes pairs [from, from + n); the last pair may have one element. */
EG_CLONES static void normal_run(const draws *d, int64_t from, int64_t n)
{
    uint32_t r[4 * UNITS];
    double u[UNITS], v[UNITS], y[2 * UNITS];
    eg__philox_many(d->seed, d->draw, 2 * (uint64_t)from, 2, n, r);
    /* divided by 256 if deviation √(−2 ln u), at most 8.6 deviations, could be infinite */
    const double unit = d->b > 0x1p1000 ? 256 : 1, mean = d->a / unit, deviation = d->b / unit;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) {
        u[k] = unit_of(r + 4 * k) + 0x1p-53;
        v[k] = unit_of(r + 4 * k + 2);
    }
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) u[k] = deviation * sqrt(-2 * random_log(u[k]));
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) {
        double c, s;
        random_circle(v[k], &c, &s);
        y[2 * k] = unit * (mean + u[k] * c);
        y[2 * k + 1] = unit * (mean + u[k] * s);
    }
    n = eg__min64(2 * n, d->n - 2 * from);
    if (d->dtype == EG_F64) {
        memcpy((double *)(void *)d->out + 2 * from, y, (size_t)n * sizeof *y);
        return;
    }
    float *to = (float *)(void *)d->out + 2 * from;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) to[k] = (float)y[k];
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
    return random_float(&y, cx, "normal", dtype, rank, dims) &&
                   random_within(&y, "normal", "the mean", mean) &&
                   random_within(&y, "normal", "the deviation", deviation)
               ? random_made(y, (draws){ .a = mean, .b = deviation, .run = normal_run, .each = 2 })
               : y;
}

/* -- randint: a 64-bit word modulo the range. The words below 2^64 mod range, which would make
 * small remainders more likely, are rejected and drawn again */
__extension__ typedef unsigned __int128 two_words;
/* Returns word mod range, by the multiple q = ⌊word inverse / 2^64⌋ of range, where inverse =
 * ⌊(2^64 − 1) / range⌋: word / range − q < 2. */
static inline uint64_t randint_modulo(uint64_t word, uint64_t range, uint64_t inverse)
{
    const uint64_t rest = word - (uint64_t)((two_words)word * inverse >> 64) * range;
    return rest >= range ? rest - range : rest;
}
/* Returns the first word of element `index` that is not rejected; r: its first numbers. */
static uint64_t randint_again(const draws *d, uint64_t index, uint64_t refused, const uint32_t *r)
{
    uint32_t next[4];
    memcpy(next, r, sizeof next);
    for (uint64_t seed = d->seed;;) {
        for (int half = 0; half < 4; half += 2) {
            const uint64_t word = (uint64_t)next[half + 1] << 32 | next[half];
            if (word >= refused) return word;
        }
        eg__philox(seed += 0x9e3779b97f4a7c15u, d->draw, index, next);
    }
}
/* Computes elements [from, from + n). */
static void randint_run(const draws *d, int64_t from, int64_t n)
{
    const uint64_t range = d->range, refused = -range % range, /* 2^64 mod range */
        inverse = UINT64_MAX / range, low = (uint64_t)d->low;
    int64_t *y = (int64_t *)(void *)d->out + from;
    uint32_t r[4 * UNITS];
    eg__philox_many(d->seed, d->draw, (uint64_t)from, 1, n, r);
    for (int64_t k = 0; k < n; k++) {
        uint64_t word = (uint64_t)r[4 * k + 1] << 32 | r[4 * k];
        if (word < refused) word = randint_again(d, (uint64_t)(from + k), refused, r + 4 * k);
        y[k] = (int64_t)(low + randint_modulo(word, range, inverse));
    }
}
eg_tensor *eg_randint_n(eg_ctx *cx, int64_t low, int64_t high, int rank, const int64_t *dims)
{
    eg_tensor *y = eg__poison(cx);
    if (eg__failed(cx)) return y;
    if (low >= high)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "randint: [%lld, %lld) contains no integer",
                          (long long)low, (long long)high);
    if (!eg__leaf(&y, cx, "randint", EG_I64, rank, dims)) return y;
    return random_made(y, (draws){ .low = low,
                                   .range = (uint64_t)high - (uint64_t)low,
                                   .run = randint_run,
                                   .each = 1 });
}
