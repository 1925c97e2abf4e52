/* expression_loops_of.h: the inner loops of expressions for floats of type T and integers of type
 * W. expression_loops.c includes it once for each width, after defining T, W, F(name), NAME(name),
 * LANES(name) and WIDE (0 or 1). */

/* -- functions that libm lacks ---------------------------------------------------------------- */
/* g (1 − tanh² x) without the cancellation of 1 − y². In f32, where e is e^2|x|, it is g q (2 − q)
 * with q = 1 − |tanh x| = 2 / (e + 1); where e would overflow, it is below 1e-37 and set to 0. */
static inline T F(slope_of_tanh)(T g, T x, T e)
{
    if (WIDE) {
        const T s = F(epow)(-2 * F(fabs)(x));
        return g * (4 * s / ((1 + s) * (1 + s)));
    }
    const T q = 2 / (e + 1);
    return g * (F(fabs)(x) > (T)EG_TANH_MOST ? 0 : q * (2 - q));
}
/* max(a, b), and min(max(a, b), c); NaN if an operand is NaN */
static inline T F(raised)(T a, T b) { return ((a < b) | (b != b)) ? b : a; }
static inline T F(clipped)(T a, T b, T c)
{
    const T m = F(raised)(a, b);
    return ((m > c) | (c != c)) ? c : m;
}
/* x f, but not −∞ unless x is −∞: a finite number, such as the lowest one in a mask, remains one.
 * NaN remains. */
static inline T F(multiplied)(T x, T f)
{
    const T y = x * f, finite = y < -MOST ? -MOST : y;
    return x == -(T)INFINITY ? x : finite;
}
/* Arithmetic saturates in 64 bits. 32 bits are used only if no value exceeds them
 * (eg__expression_fits). */
static inline W NAME(plus)(W a, W b) { return WIDE ? (W)eg__sum(a, b) : (W)(a + b); }
static inline W NAME(minus)(W a, W b) { return WIDE ? (W)eg__difference(a, b) : (W)(a - b); }
static inline W NAME(times)(W a, W b) { return WIDE ? (W)eg__product(a, b) : (W)(a * b); }

/* a / b where b is one element for the row: for f32, a · (1 / b) in f64. It is equal to a / b to
 * the last bit, since no quotient of two floats is that close to the middle of two neighbouring
 * floats, unless it is subnormal. */
#define RATIO(a, b) (single && !WIDE ? (T)((double)(a)*inverse) : (a) / (b))

/* -- loops of the rows ------------------------------------------------------------------------ */
/* clang-format off */
#define LOOP_1(CODE, NAMED, FIRST, VALUE, ...)                               \
    EG_INLINE T NAME(CODE##_first)(T x) { (void)x; return FIRST; }           \
    EG_INLINE T NAME(CODE##_last)(T x, T e) { (void)e; return VALUE; }       \
    LOOP(NAME(CODE)) { IN_STAGES(eg__keeps_first(EG_X_##CODE, WIDE),         \
                                 NAME(CODE##_first), NAME(CODE##_last),      \
                                 EG_X_##CODE == EG_X_TANH ? F(etanh_all_small) : NULL) }
#define LOOP_2(CODE, NAMED, VALUE, ...) BINARY(NAME(CODE), T, T, VALUE)
EG_FUNCTIONS_1(LOOP_1)
EG_FUNCTIONS_2(LOOP_2)
#define SLOPE_1(CODE, NAMED, FIRST, VALUE, SLOPE, ...) UNARY_SLOPE(NAME(CODE##_slope), SLOPE)
#define SLOPE_2(CODE, NAMED, VALUE, DA, DB, ...) \
    BINARY_SLOPE(NAME(CODE##_slope_a), DA) BINARY_SLOPE(NAME(CODE##_slope_b), DB)
EG_FUNCTIONS_1(SLOPE_1)
EG_FUNCTIONS_2(SLOPE_2)
#undef RATIO
#undef LOOP_1
#undef LOOP_2
#undef SLOPE_1
#undef SLOPE_2
COMPARISONS(T, float)
COMPARISONS(W, integer)

TERNARY(NAME(select_float), T, uint8_t, T, a ? b : c)
TERNARY(NAME(select_integer), W, uint8_t, W, a ? b : c)
TERNARY(NAME(clip_float), T, T, T, F(clipped)(a, b, c))
TERNARY(NAME(clip_integer), W, W, W, (a < b ? b : a) > c ? c : a < b ? b : a)
TERNARY_SLOPE(NAME(select_slope_a), uint8_t, a ? g : 0)
TERNARY_SLOPE(NAME(select_slope_b), uint8_t, a ? 0 : g)
TERNARY_SLOPE(NAME(clip_slope_x), T, ((a >= b) & (a <= c)) ? g : 0)
TERNARY_SLOPE(NAME(clip_slope_low), T, ((a < b) & (b <= c)) ? g : 0)
TERNARY_SLOPE(NAME(clip_slope_high), T, F(raised)(a, b) > c ? g : 0)

UNARY(NAME(integer_neg), W, W, NAME(minus)(0, x))
UNARY(NAME(integer_abs), W, W, x < 0 ? NAME(minus)(0, x) : x)
UNARY(NAME(of_narrow), T, int32_t, x)
UNARY(NAME(of_wide), T, int64_t, x)
BINARY(NAME(product), T, T, F(multiplied)(a * b, (T)s->factor))
BINARY(NAME(integer_add), W, W, NAME(plus)(a, b))
BINARY(NAME(integer_sub), W, W, NAME(minus)(a, b))
BINARY(NAME(integer_mul), W, W, NAME(times)(a, b))
BINARY(NAME(integer_min), W, W, a < b ? a : b)
BINARY(NAME(integer_max), W, W, a > b ? a : b)
BINARY(NAME(integer_divide), W, W, eg__quotient(a, b))
BINARY(NAME(integer_rest), W, W, eg__modulus(a, b))
/* clang-format on */

/* x / m, or x % m (rest), for one m per row: a shift or a mask if m is a power of two; else, in 32
 * bits, x times the double nearest to 1 / m, truncated. This quotient is right or one too large or
 * too small, which its remainder shows. */
EG_CLONES static void NAME(integer_by)(int64_t n, W *out, const W *x, W m, bool rest)
{
    const W by = m < 0 ? NAME(minus)(0, m) : m, sign = rest || m > 0 ? 1 : -1;
    n &= -EG_LANES;
    if ((by & (by - 1)) == 0) {
        const int shift = __builtin_ctzll((uint64_t)by);
        if (rest)
            EACH(out[k] = x[k] & (by - 1))
        else
            EACH(const W v = sign < 0 ? NAME(minus)(0, x[k]) : x[k];
                 out[k] = v >= 0 ? v >> shift : ~(~v >> shift))
        return;
    }
    if (WIDE) {
        for (int64_t k = 0; k < n; k++)
            out[k] = (W)(rest ? eg__modulus(x[k], by)
                              : eg__quotient(sign < 0 ? eg__difference(0, x[k]) : x[k], by));
        return;
    }
    const double d = 1 / (double)by;
    if (rest)
        EACH(const W q = (W)((double)x[k] * d);
             const W r = (W)((uint32_t)x[k] - (uint32_t)q * (uint32_t)by);
             const W s = r + (by & -(W)(r < 0)); out[k] = s - (by & -(W)(s >= by)))
    else
        EACH(const W v = x[k] * sign; const W q = (W)((double)v * d);
             const W r = (W)((uint32_t)v - (uint32_t)q * (uint32_t)by);
             out[k] = q - (W)(r < 0) + (W)(r >= by))
}
/* x / m or x % m, row by row; by the loop `plain` if m is 0 or not the same in a whole row */
static void NAME(integer_ratio)(const eg_loop_strip *s, bool rest, eg_strip_loop *plain)
{
    bool one = s->still == 2;
    for (int64_t r = 0; r < s->rows && one; r++)
        one = *(const W *)(const void *)((const char *)s->in[1] + r * s->step[1]) != 0;
    if (!one) {
        plain(s);
        return;
    }
    for (int64_t r = 0; r < s->rows; r++) NAME(integer_by)
    (s->n, (W *)(void *)((char *)s->out + r * s->out_step),
     (const W *)(const void *)((const char *)s->in[0] + r * s->step[0]),
     *(const W *)(const void *)((const char *)s->in[1] + r * s->step[1]), rest);
}
static void NAME(integer_div)(const eg_loop_strip *s)
{
    NAME(integer_ratio)(s, false, NAME(integer_divide));
}
static void NAME(integer_mod)(const eg_loop_strip *s)
{
    NAME(integer_ratio)(s, true, NAME(integer_rest));
}

/* Products with a sign are exact, so this is two additions, each rounded once, even where a product
 * is fused with an addition. */
LOOP(NAME(sum))
{
    const T u = (T)s->sign[0], v = (T)s->sign[1], w = (T)s->sign[2], f = (T)s->factor;
    ROWS
    {
        OUT(T, o);
        IN(T, p, s->in[0], s->step[0]);
        IN(T, q, s->in[1], s->step[1]);
        IN(T, t, s->in[2], s->step[2]);
        const T q0 = v * *q, t0 = w * *t;
        if (s->still == 6)
            EACH(o[k] = F(multiplied)((u * p[k] + q0) + t0, f))
        else if (s->still == 4)
            EACH(o[k] = F(multiplied)((u * p[k] + v * q[k]) + t0, f))
        else if (s->still == 2)
            EACH(o[k] = F(multiplied)((u * p[k] + q0) + w * t[k], f))
        else
            EACH(o[k] = F(multiplied)((u * p[k] + v * q[k]) + w * t[k], f))
    }
}
/* -- sums ------------------------------------------------------------------------------------- */
EG_CLONES static void NAME(add)(int64_t n, void *sum, const void *x)
{
    T *s = sum;
    const T *v = x;
    EACH(s[k] += v[k])
}
typedef T NAME(four) __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
#define FOUR(p) __builtin_convertvector(*(const NAME(four) *)(const void *)(p), four_doubles)
/* The sums of 32 lanes are kept in registers while the rows are traversed. */
EG_CLONES static void NAME(add_rows)(int64_t rows, int64_t n, double *sum, const void *x,
                                     int64_t step)
{
    enum { VECTORS = 8 };
    int64_t first = 0;
    for (; first + 4 * VECTORS <= n; first += 4 * VECTORS) {
        const char *v = (const char *)x + first * (int64_t)sizeof(T);
        four_doubles part[VECTORS];
        memcpy(part, sum + first, sizeof part);
        for (int64_t r = 0; r < rows; r++, v += step)
            EVERY_VECTOR for (int l = 0; l < VECTORS; l++) part[l] +=
                FOUR((const T *)(const void *)v + 4 * l);
        memcpy(sum + first, part, sizeof part);
    }
    for (int64_t r = 0; r < rows && first < n; r++) {
        const T *v = (const T *)(const void *)((const char *)x + r * step);
        for (int64_t k = first; k < n; k++) sum[k] += (double)v[k];
    }
}
/* Blocks of EG_LANES rows and at most 4 EG_LANES lanes are copied between zeros, so that the sums
 * of EG_LANES neighbouring diagonals are kept in registers while the rows are traversed. */
EG_CLONES static void NAME(add_diagonals)(int64_t rows, int64_t n, double *sum, const void *x,
                                          int64_t step)
{
    enum { SIDE = EG_LANES, WIDE_SLAB = 4 * EG_LANES };
    _Alignas(64) T slab[SIDE][WIDE_SLAB + 2 * SIDE] = { { 0 } };
    for (int64_t r = 0, tall; r < rows; r += tall) {
        tall = rows - r < SIDE ? rows - r : SIDE;
        for (int64_t c = 0, wide; c < n; c += wide) {
            wide = n - c < WIDE_SLAB ? n - c : WIDE_SLAB;
            if (tall < SIDE || (c && wide < WIDE_SLAB)) memset(slab, 0, sizeof slab);
            for (int64_t i = 0; i < tall; i++) {
                const T *v = (const T *)(const void *)((const char *)x + (r + i) * step) + c;
                int64_t k = 0;
                for (; k + SIDE <= wide; k += SIDE)
                    memcpy(slab[i] + SIDE + k, v + k, SIDE * sizeof(T));
                for (; k < wide; k++) slab[i][SIDE + k] = v[k];
            }
            /* element (i, k) of the slab is on its diagonal SIDE − 1 − i + k, and `first` is the
             * number of its diagonal 0 in sum[]; if the slab has fewer rows, its first diagonals
             * have no elements */
            const int64_t first = rows - r - SIDE + c, end = SIDE - 1 + wide;
            for (int64_t d = 0; d < end; d += SIDE) {
                _Alignas(64) double part[SIDE] = { 0 };
                for (int64_t i = 0; i < SIDE; i++) {
                    const T *v = slab[i] + d + i + 1;
                    EG_EVERY_LANE
                    for (int l = 0; l < SIDE; l++) part[l] += (double)v[l];
                }
                if (d >= SIDE - tall && d + SIDE <= end)
                    for (int l = 0; l < SIDE; l++) sum[first + d + l] += part[l];
                else
                    for (int64_t e = d < SIDE - tall ? SIDE - tall : d; e < d + SIDE && e < end;
                         e++)
                        sum[first + e] += part[e - d];
            }
        }
    }
}
/* Element k of a row is added to partial sum k mod 16; the partial sums are added in halves of 8,
 * 4, 2 and 1. */
EG_CLONES static void NAME(totals)(int64_t rows, int64_t n, double *sum, const void *x,
                                   int64_t step)
{
    for (int64_t r = 0; r < rows; r++) {
        const T *v = (const T *)(const void *)((const char *)x + r * step);
        four_doubles part[4] = { { 0 } };
        int64_t k = 0;
        for (; k + 16 <= n; k += 16)
            EVERY_VECTOR for (int l = 0; l < 4; l++) part[l] += FOUR(v + k + 4 * l);
        if (k < n) {
            T rest[16] = { 0 };
            memcpy(rest, v + k, (size_t)(n - k) * sizeof(T));
            EVERY_VECTOR for (int l = 0; l < 4; l++) part[l] += FOUR(rest + 4 * l);
        }
        const four_doubles all = (part[0] + part[2]) + (part[1] + part[3]);
        sum[r] = (all[0] + all[2]) + (all[1] + all[3]);
    }
}
#undef FOUR
EG_CLONES static void NAME(from_wide)(int64_t n, void *x, const double *sum)
{
    T *v = x;
    EACH(v[k] = (T)sum[k])
}
EG_CLONES static void NAME(scale)(int64_t n, void *x, double factor)
{
    T *v = x;
    const T f = (T)factor;
    EACH(v[k] = F(multiplied)(v[k], f))
}
EG_CLONES static void NAME(clear)(int64_t n, void *x, const uint8_t *allow)
{
    T *v = x;
    for (int64_t k = 0; k < n; k++) v[k] = allow[k] ? v[k] : 0;
}
#define SCATTERS(CALLED, TO)                                                                      \
    static void NAME(CALLED)(int64_t n, void *to, const int64_t *at, int64_t step, const void *x) \
    {                                                                                             \
        const T *v = x;                                                                           \
        for (int64_t k = 0; k < n; k++) ((TO *)to)[at ? at[k] : k * step] += (TO)v[k];            \
    }
SCATTERS(scatter, double)
SCATTERS(scatter_same, T)
#undef SCATTERS

/* clang-format off */
static const eg_loops NAME(loops) = {
    .of_float = { [EG_X_SELECT] = NAME(select_float), [EG_X_CLIP] = NAME(clip_float),
                  EG_FUNCTIONS_1(OF_1) EG_FUNCTIONS_2(OF_1) COMPARED(float) },
    .of_integer = { [EG_X_NEG] = NAME(integer_neg), [EG_X_ABS] = NAME(integer_abs),
                    [EG_X_ADD] = NAME(integer_add), [EG_X_SUB] = NAME(integer_sub),
                    [EG_X_MUL] = NAME(integer_mul), [EG_X_DIV] = NAME(integer_div),
                    [EG_X_MOD] = NAME(integer_mod), [EG_X_MIN] = NAME(integer_min),
                    [EG_X_MAX] = NAME(integer_max), COMPARED(integer),
                    [EG_X_SELECT] = NAME(select_integer), [EG_X_CLIP] = NAME(clip_integer) },
    .of_condition = { [EG_X_NOT] = condition_not, [EG_X_AND] = condition_and,
                      [EG_X_OR] = condition_or },
    .slope = { [EG_X_SELECT] = { NULL, NAME(select_slope_a), NAME(select_slope_b) },
               [EG_X_CLIP] = { NAME(clip_slope_x), NAME(clip_slope_low), NAME(clip_slope_high) },
               EG_FUNCTIONS_1(TO_1) EG_FUNCTIONS_2(TO_2) },
    .float_of = { NAME(of_narrow), NAME(of_wide) }, .sum = NAME(sum), .product = NAME(product),
    .add = NAME(add), .add_rows = NAME(add_rows),
    .add_diagonals = NAME(add_diagonals), .totals = NAME(totals),
    .from_wide = NAME(from_wide), .scale = NAME(scale), .clear = NAME(clear),
    .scatter = NAME(scatter), .scatter_same = NAME(scatter_same),
};
/* clang-format on */
