/* flash_of.h: flash_lanes.c's arithmetic for one type and one vector: REAL, WORD (an integer of its width), BYTES of a vector, NAME;
 * and of e^x: MAGIC, LN2_HIGH, LN2_LOW, BIAS, MANTISSA, LEAST, POLYNOMIAL. A tile is rows of w lanes, w a multiple of the vector. */
#define LANES ((int)(BYTES / sizeof(REAL)))
typedef REAL NAME(vec) __attribute__((vector_size(BYTES)));
typedef WORD NAME(ivec) __attribute__((vector_size(BYTES)));
typedef uint8_t NAME(bytes) __attribute__((vector_size(BYTES / sizeof(REAL)), aligned(1)));
#define VEC  NAME(vec)
#define IVEC NAME(ivec)
#define ALL(c)       ((VEC){ 0 } + (REAL)(c))
#define H(p, c)      ((p) * r_ + ALL(c))                 /* a step of Horner's scheme */
#define PICK(m, a, b) ((VEC)(((IVEC)(a) & (m)) | ((IVEC)(b) & ~(m))))

/* y = e^x: x = n ln 2 + r, |r| ≤ ln 2/2, e^x = 2^n p(r); ln 2 in two parts (Cody, Waite 1980). What would be subnormal is 0, NaN stays. */
#define EXP(y, x) do {                                                                                                          \
        const VEC x_ = (x), n_ = x_ * ALL(1.4426950408889634) + ALL(MAGIC), f_ = n_ - ALL(MAGIC);                                \
        const VEC r_ = x_ - f_ * ALL(LN2_HIGH) - f_ * ALL(LN2_LOW), p_ = POLYNOMIAL;                                              \
        const IVEC e_ = ((IVEC)n_ + (BIAS)) << MANTISSA;                                                                         \
        y = (VEC)((IVEC)(p_ * (VEC)e_) & ~(IVEC)(x_ < ALL(LEAST)));                                                              \
    } while (0)

EG_CLONES static void NAME(scale)(int64_t n, void *x, double c)
{
    VEC *p = x;
    for (int64_t k = 0; k < n / LANES; k++) p[k] *= ALL(c);
}
EG_CLONES static void NAME(add)(int64_t n, void *x, const void *y)
{
    VEC *p = x;
    const VEC *q = y;
    for (int64_t k = 0; k < n / LANES; k++) p[k] += q[k];
}
EG_CLONES static void NAME(forbid)(int64_t n, void *x, const uint8_t *allow)
{
    VEC *p = x;
    for (int64_t k = 0; k < n / LANES; k++) {
        NAME(bytes) b;
        memcpy(&b, allow + k * LANES, sizeof b);
        const IVEC yes = __builtin_convertvector(b, IVEC) != (IVEC){ 0 };
        p[k] = PICK(yes, p[k], ALL(-INFINITY));
    }
}
EG_CLONES static void NAME(thin)(int64_t n, void *x, const uint8_t *stay, double factor)
{
    VEC *p = x;
    for (int64_t k = 0; k < n / LANES; k++) {
        NAME(bytes) b;
        memcpy(&b, stay + k * LANES, sizeof b);
        const IVEC yes = __builtin_convertvector(b, IVEC) != (IVEC){ 0 };
        p[k] = PICK(yes, p[k] * ALL(factor), ALL(0));
    }
}
EG_CLONES static bool NAME(soften)(int w, int64_t rows, void *tile, void *most, void *total, void *fade)
{
    bool faded = false;
    for (int v = 0; v < w / LANES; v++) {
        VEC *s = (VEC *)tile + v, *m = (VEC *)most + v, *l = (VEC *)total + v, old = *m, top = old, sum = ALL(0), f;
        const int64_t step = w / LANES;
        for (int64_t j = 0; j < rows; j++) top = PICK(s[j * step] > top, s[j * step], top);
        const IVEC none = top == ALL(-INFINITY), peak = top == ALL(INFINITY);
        VEC shift = PICK(none | peak, ALL(0), top);
        bool peaks = false;
        for (int k = 0; k < LANES; k++) peaks |= peak[k] != 0;
        if (peaks) {                                            /* the limit: what is +inf shares evenly           */
            for (int64_t j = 0; j < rows; j++) {
                const VEC limit = PICK(s[j * step] == ALL(INFINITY), ALL(0), ALL(-INFINITY));
                s[j * step] = PICK(peak, limit, s[j * step]);
            }
            old = PICK(peak & (old == ALL(INFINITY)), ALL(0), PICK(peak, ALL(-INFINITY), old));
        }
        for (int64_t j = 0; j < rows; j++) {
            VEC p;
            EXP(p, s[j * step] - shift);
            s[j * step] = p;
            sum += p;
        }
        EXP(f, old - shift);
        f = PICK(none, ALL(1), f);
        *l = *l * f + sum;
        *m = top;
        ((VEC *)fade)[v] = f;
        const IVEC same = f == ALL(1);
        for (int k = 0; k < LANES; k++) faded |= !same[k];
    }
    return faded;
}
EG_CLONES static void NAME(fade)(int w, int64_t rows, void *tile, const void *lane)
{
    for (int v = 0; v < w / LANES; v++) {
        VEC *s = (VEC *)tile + v;
        const VEC f = ((const VEC *)lane)[v];
        for (int64_t j = 0; j < rows; j++) s[j * (w / LANES)] *= f;
    }
}
EG_CLONES static void NAME(weigh)(int w, int64_t rows, void *tile, const void *most, const void *share)
{
    const REAL *m = most, *part = share;
    VEC *s = tile;
    for (int64_t i = 0; i < rows; i++) {
        const VEC shift = ALL(m[i] - m[i] == 0 ? m[i] : 0), times = ALL(part[i]);
        if (m[i] == INFINITY)
            for (int v = 0; v < w / LANES; v++) s[v] = PICK(s[v] == ALL(INFINITY), ALL(0), ALL(-INFINITY));
        for (int v = 0; v < w / LANES; v++, s++) {
            VEC p;
            EXP(p, *s - shift);
            *s = p * times;
        }
    }
}
EG_CLONES static void NAME(slope)(int w, int64_t rows, const void *weights, void *tile, const void *mean)
{
    const VEC *p = weights;
    VEC *d = tile;
    for (int64_t i = 0; i < rows; i++)
        for (int v = 0; v < w / LANES; v++, p++, d++) *d = *p * (*d - ALL(((const REAL *)mean)[i]));
}
static const eg_flash_lanes NAME(lanes) = {
    LANES, NAME(scale), NAME(add), NAME(forbid), NAME(thin), NAME(soften), NAME(fade), NAME(weigh), NAME(slope),
};
#undef LANES
#undef VEC
#undef IVEC
#undef ALL
#undef PICK
#undef H
#undef EXP
