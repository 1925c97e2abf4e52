/* tile_math_of.h: the arithmetic of tile_math.c for one type and one length of vectors. Parameters:
 * REAL, WORD (an integer of the same width), BYTES of a vector, NAME; and, for 2^x, MAGIC,
 * MANTISSA, LEAST, POLYNOMIAL. Where instructions for them are given, also TARGET, the attribute of
 * functions that have them, and MAX(a, b), which is a > b ? a : b, REDUCE(x), which is x minus the
 * nearest integer, and SCALE(p, n), which is p 2^n. A tile consists of rows of w lanes, where w is
 * a multiple of the vector's length. */
#define LANES ((int)(BYTES / sizeof(REAL)))
typedef REAL NAME(vec) __attribute__((vector_size(BYTES)));
typedef WORD NAME(ivec) __attribute__((vector_size(BYTES)));
#define VEC           NAME(vec)
#define IVEC          NAME(ivec)
#define ALL(c)        ((VEC){ 0 } + (REAL)(c))
#define H(p, c)       ((p)*r_ + ALL(c)) /* one step of Horner's scheme */
#define PICK(m, a, b) ((VEC)(((IVEC)(a) & (m)) | ((IVEC)(b) & ~(m))))

/* y = 2^x for x ≤ 127: x = n + r, |r| ≤ 1/2, 2^x = 2^n p(r). A NaN remains NaN. Without
 * instructions for it, MAGIC + x rounds x to n and has n + bias in its lowest bits, which become
 * the exponent; for x ≤ LEAST these bits are 0, and so is y. SCALE has subnormal results there,
 * which the processor sets to 0 (eg__fpmode_begin), so both have the same bits. */
#ifdef SCALE
#define TILE_CLONES TARGET
#define EXP2(y, x)                           \
    do {                                     \
        const VEC x_ = (x), r_ = REDUCE(x_); \
        y = SCALE((POLYNOMIAL), x_ - r_);    \
    } while (0)
#else
#define TILE_CLONES EG_CLONES
#define MAX(a, b)   PICK((a) > (b), a, b)
#define EXP2(y, x)                                                                  \
    do {                                                                            \
        const VEC given_ = (x), x_ = MAX(ALL(LEAST), given_), n_ = x_ + ALL(MAGIC), \
                  r_ = x_ - (n_ - ALL(MAGIC));                                      \
        y = (POLYNOMIAL) * (VEC)((IVEC)n_ << MANTISSA);                             \
    } while (0)
#endif

TILE_CLONES EG_FUSING static void NAME(scale)(int64_t n, void *x, double c)
{
    VEC *p = x;
    for (int64_t k = 0; k < n / LANES; k++) p[k] *= ALL(c);
}
TILE_CLONES EG_FUSING static void NAME(add)(int64_t n, void *x, const void *y, double c)
{
    VEC *p = x;
    const VEC *q = y;
    for (int64_t k = 0; k < n / LANES; k++) p[k] += q[k] * ALL(c);
}
/* mask_out and apply_dropout are loops over numbers, because gcc 12 converts a vector of bytes to a
 * mask one byte after another. */
TILE_CLONES EG_FUSING static void NAME(mask_out)(int64_t n, void *x, const uint8_t *allow)
{
    REAL *p = x;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) p[k] = allow[k] ? p[k] : -(REAL)INFINITY;
}
TILE_CLONES EG_FUSING static void NAME(apply_dropout)(int64_t n, void *x, const uint8_t *kept,
                                                      double factor)
{
    const REAL c = (REAL)factor;
    REAL *p = x;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) p[k] = kept[k] ? p[k] * c : 0;
}
TILE_CLONES EG_FUSING static void NAME(zero_nonfinite)(int64_t n, void *x)
{
    VEC *p = x;
    for (int64_t k = 0; k < n / LANES; k++) p[k] = PICK(p[k] - p[k] == ALL(0), p[k], ALL(0));
}
TILE_CLONES EG_FUSING static bool NAME(online_softmax)(int w, int64_t rows, void *tile,
                                                       void *row_max, void *row_sum, void *decay)
{
    bool any_decay = false;
    for (int v = 0; v < w / LANES; v++) {
        VEC *s = (VEC *)tile + v, *m = (VEC *)row_max + v, *l = (VEC *)row_sum + v, old = *m,
            new_max = old, sum = ALL(0), f, max_1 = old, max_2 = old, max_3 = old;
        const int64_t step = w / LANES;
        int64_t i = 0;
        for (; i + 4 <= rows; i += 4) { /* four independent maxima, since each comparison waits for
                                         * the one before */
            const VEC *x = s + i * step;
            new_max = MAX(x[0], new_max);
            max_1 = MAX(x[step], max_1);
            max_2 = MAX(x[2 * step], max_2);
            max_3 = MAX(x[3 * step], max_3);
        }
        for (; i < rows; i++) new_max = MAX(s[i * step], new_max);
        new_max = MAX(max_1, new_max);
        new_max = MAX(max_2, new_max);
        new_max = MAX(max_3, new_max);
        const IVEC none = new_max == ALL(-INFINITY), peak = new_max == ALL(INFINITY);
        VEC shift = PICK(none | peak, ALL(0), new_max);
        bool peaks = false;
        for (int k = 0; k < LANES; k++) peaks |= peak[k] != 0;
        if (peaks) { /* the limit for scores of +inf: they share the weight equally */
            for (int64_t j = 0; j < rows; j++) {
                const VEC x = s[j * step], limit = PICK(x == ALL(INFINITY), ALL(0), ALL(-INFINITY));
                s[j * step] = PICK(peak & (x == x), limit, x); /* NaN remains */
            }
            old = PICK(peak & (old == ALL(INFINITY)), ALL(0), PICK(peak, ALL(-INFINITY), old));
        }
        for (int64_t j = 0; j < rows; j++) {
            VEC p;
            EXP2(p, s[j * step] - shift);
            s[j * step] = p;
            sum += p;
        }
        EXP2(f, old - shift);
        f = PICK(none | (new_max != new_max), ALL(1), f);
        *l = *l * f + sum;
        *m = new_max;
        ((VEC *)decay)[v] = f;
        const IVEC same = f == ALL(1);
        for (int k = 0; k < LANES; k++) any_decay |= !same[k];
    }
    return any_decay;
}
TILE_CLONES EG_FUSING static void NAME(scale_lanes)(int w, int64_t rows, void *tile,
                                                    const void *lane)
{
    VEC *s = tile;
    const VEC *f = lane;
    for (int64_t j = 0; j < rows; j++)
        for (int v = 0; v < w / LANES; v++) *s++ *= f[v];
}
TILE_CLONES EG_FUSING static void NAME(exp_scaled)(int w, int64_t rows, void *tile,
                                                   const void *row_max, const void *inv_sum)
{
    const REAL *m = row_max, *part = inv_sum;
    VEC *s = tile;
    for (int64_t i = 0; i < rows; i++) {
        const VEC shift = ALL(m[i] - m[i] == 0 ? m[i] : 0), times = ALL(part[i]);
        if (m[i] == INFINITY)
            for (int v = 0; v < w / LANES; v++)
                s[v] = PICK(s[v] == ALL(INFINITY), ALL(0), ALL(-INFINITY));
        for (int v = 0; v < w / LANES; v++, s++) {
            VEC p;
            EXP2(p, *s - shift);
            *s = p * times;
        }
    }
}
TILE_CLONES EG_FUSING static void NAME(softmax_slope)(int w, int64_t rows, const void *weights,
                                                      void *tile, const void *mean,
                                                      const void *added)
{
    const REAL *m = mean, *more = added;
    const VEC *p = weights;
    VEC *d = tile;
    for (int64_t i = 0; i < rows; i++, p += w / LANES, d += w / LANES) {
        const VEC plus = ALL(more ? more[i] : 0), none = ALL(m[i] - m[i] == 0);
        for (int v = 0; v < w / LANES; v++)
            d[v] = p[v] * (PICK(p[v] == none, ALL(0), d[v] - ALL(m[i])) + plus);
    }
}
TILE_CLONES static double NAME(dot)(int64_t n, const void *x, int64_t x_step, const void *y,
                                    int64_t y_step)
{
    enum { PARTS = 16 };
    const REAL *p = x, *q = y;
    REAL sum[PARTS] = { 0 };
    int64_t i = 0;
    if (x_step == 1 && y_step == 1)
        for (; i + PARTS <= n; i += PARTS)
            for (int k = 0; k < PARTS; k++) sum[k] += p[i + k] * q[i + k];
    for (; i < n; i++) sum[i % PARTS] += p[i * x_step] * q[i * y_step];
    for (int k = 0; k < 8; k++) sum[k] += sum[k + 8];
    for (int k = 0; k < 4; k++) sum[k] += sum[k + 4];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}
TILE_CLONES static int64_t NAME(invert_sums)(int64_t n, const void *row_sum, void *inv_sum)
{
    const REAL *sum = row_sum;
    int64_t zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        ((REAL *)inv_sum)[i] = sum[i] == 0 ? 0 : 1 / sum[i];
        zeros += sum[i] == 0;
    }
    return zeros;
}
static const eg_tile_ops NAME(lanes) = {
    .lanes = LANES,
    .scale = NAME(scale),
    .add = NAME(add),
    .mask_out = NAME(mask_out),
    .apply_dropout = NAME(apply_dropout),
    .zero_nonfinite = NAME(zero_nonfinite),
    .dot = NAME(dot),
    .invert_sums = NAME(invert_sums),
    .online_softmax = NAME(online_softmax),
    .scale_lanes = NAME(scale_lanes),
    .exp_scaled = NAME(exp_scaled),
    .softmax_slope = NAME(softmax_slope),
};
#undef LANES
#undef VEC
#undef IVEC
#undef ALL
#undef PICK
#undef H
#undef EXP2
#undef MAX
#undef TILE_CLONES
#undef TARGET
#undef REDUCE
#undef SCALE
