/* expression_loops.c: the inner loops of expressions: macros that generate a loop from a formula
 * for one element, the tables of loops for both widths, and the loops over indices. */
#include "notation/expression_loops.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* clang-format off */
#define EACH(...) EG_EVERY_LANE for (int64_t k = 0; k < n; k++) { __VA_ARGS__; }
/* products and sums are fused, as epow requires (tensor/epow.h); no other formula has a sum of a
 * product */
#define LOOP(NAME) EG_CLONES EG_FUSING static void NAME(const eg_loop_strip *s)
#define ROWS       for (int64_t r = 0, n = s->n & -EG_LANES; r < s->rows; r++)
#define OUT(T, p)  T *p = (T *)(void *)((char *)s->out + r * s->out_step)
#define IN(T, p, FROM, STEP) \
    const T *p = (const T *)(const void *)((const char *)(FROM) + r * (STEP))
#define UNARY(NAME, TO, FROM, VALUE) LOOP(NAME)                                             \
    {                                                                                       \
        ROWS { OUT(TO, o); IN(FROM, p, s->in[0], s->step[0]);                               \
            EACH(const FROM x = p[k]; o[k] = (TO)(VALUE)) }                                 \
    }
/* out[k] = last(x[k], first(x[k])), by lanes_of.h */
#define STAGES(FIRST, LAST, SKIPS)                                                           \
        ROWS LANES(eg__each_staged)(FIRST, LAST, SKIPS, n,                                  \
            (char *const[]){ (char *)s->out + r * s->out_step, (char *)s->in[0] + r * s->step[0] });
/* the same; the results of `first` are kept in s->first */
#define KEPT_STAGES(FIRST, LAST)                                                            \
        ROWS { IN(T, p, s->in[0], s->step[0]);                                              \
            T *first = (T *)(void *)((char *)s->first + r * s->first_step);                 \
            EACH(first[k] = FIRST(p[k]))                                                    \
            if (s->out) { OUT(T, o); EACH(o[k] = LAST(p[k], first[k])) } }
#define IN_STAGES(KEEPS, FIRST, LAST, SKIPS) \
        if ((KEEPS) && s->first) KEPT_STAGES(FIRST, LAST) else STAGES(FIRST, LAST, SKIPS)
/* a loop with two operands; if SINGLE, the second is the scalar Q, and `inverse` is 1 / Q */
#define BY(SINGLE, Q, ...) {                                                                \
        const bool single = SINGLE;                                                         \
        const double inverse = single ? 1 / (double)(Q) : 0;                                \
        (void)single, (void)inverse;                                                        \
        __VA_ARGS__ }
#define OPERANDS_OF(SINGLE, Q, TO, FROM, A, B, VALUE) \
    BY(SINGLE, Q, EACH(const FROM a = A, b = B; o[k] = (TO)(VALUE)))
#define BINARY(NAME, TO, FROM, VALUE) LOOP(NAME) {                                          \
        ROWS { OUT(TO, o); IN(FROM, p, s->in[0], s->step[0]); IN(FROM, q, s->in[1], s->step[1]); \
            const FROM p0 = *p, q0 = *q;                                                    \
            if (s->still == 1) OPERANDS_OF(false, 1, TO, FROM, p0, q[k], VALUE)             \
            else if (s->still == 2) OPERANDS_OF(true, q0, TO, FROM, p[k], q0, VALUE)        \
            else OPERANDS_OF(false, 1, TO, FROM, p[k], q[k], VALUE) } }
/* a row of an operand of three: if it is one element for the row, EG_LANES copies of it */
#define THIRDS(T, p, I)                                                                     \
        T p##_one[EG_LANES];                                                                \
        IN(T, p, s->in[I], s->step[I]);                                                     \
        const int64_t p##_next = s->still >> I & 1 ? 0 : EG_LANES;                          \
        if (!p##_next) { EG_EVERY_LANE for (int l = 0; l < EG_LANES; l++) p##_one[l] = *p;  \
                         p = p##_one; }
#define EACH_OF_3(...)                                                                      \
        for (int64_t i = 0; i < n; i += EG_LANES, p += p_next, q += q_next, t += t_next)    \
            EG_EVERY_LANE for (int k = 0; k < EG_LANES; k++) { __VA_ARGS__; }
#define TERNARY(NAME, TO, FIRST, FROM, VALUE) LOOP(NAME) {                                  \
        ROWS { OUT(TO, o); THIRDS(FIRST, p, 0) THIRDS(FROM, q, 1) THIRDS(FROM, t, 2)        \
            EACH_OF_3(const FIRST a = p[k]; const FROM b = q[k], c = t[k];                  \
                      o[i + k] = (TO)(VALUE)) } }
#define SLOPE_ROWS ROWS { OUT(T, d); IN(T, v, s->g, s->g_step); IN(T, w, s->y, s->y_step);
#define UNARY_SLOPE(NAME, VALUE) LOOP(NAME)                                                 \
    {                                                                                       \
        SLOPE_ROWS IN(T, p, s->in[0], s->step[0]); IN(T, f, s->first, s->first_step);       \
            EACH(const T g = v[k], y = w[k], x = p[k], e = f[k];                            \
                 (void)g, (void)y, (void)x, (void)e; d[k] = VALUE) } }
#define OPERANDS_2(A, B, VALUE) \
    EACH(const T g = v[k], y = w[k], a = A, b = B; (void)g, (void)y, (void)a, (void)b; d[k] = VALUE)
#define BINARY_SLOPE(NAME, VALUE) LOOP(NAME) {                                              \
        SLOPE_ROWS IN(T, p, s->in[0], s->step[0]); IN(T, q, s->in[1], s->step[1]);          \
            const T p0 = *p, q0 = *q;                                                       \
            if (s->still == 1) BY(false, 1, OPERANDS_2(p0, q[k], VALUE))                    \
            else if (s->still == 2) BY(true, q0, OPERANDS_2(p[k], q0, VALUE))               \
            else BY(false, 1, OPERANDS_2(p[k], q[k], VALUE)) } }
#define TERNARY_SLOPE(NAME, FIRST, VALUE) LOOP(NAME)                                        \
    {                                                                                       \
        SLOPE_ROWS THIRDS(FIRST, p, 0) THIRDS(T, q, 1) THIRDS(T, t, 2) (void)w;             \
            EACH_OF_3(const T g = v[i + k], b = q[k], c = t[k]; const FIRST a = p[k];       \
                      (void)b, (void)c; d[i + k] = VALUE) } }
#define COMPARISONS(FROM, OF)                                                               \
    BINARY(NAME(OF##_eq), uint8_t, FROM, a == b) BINARY(NAME(OF##_ne), uint8_t, FROM, a != b) \
    BINARY(NAME(OF##_lt), uint8_t, FROM, a < b)  BINARY(NAME(OF##_le), uint8_t, FROM, a <= b) \
    BINARY(NAME(OF##_gt), uint8_t, FROM, a > b)  BINARY(NAME(OF##_ge), uint8_t, FROM, a >= b)
/* the entries of the tables of loops */
#define OF_1(CODE, ...) [EG_X_##CODE] = NAME(CODE),
#define TO_1(CODE, ...) [EG_X_##CODE] = { NAME(CODE##_slope) },
#define TO_2(CODE, ...) [EG_X_##CODE] = { NAME(CODE##_slope_a), NAME(CODE##_slope_b) },
#define COMPARED(OF)                                                                 \
    [EG_X_EQ] = NAME(OF##_eq), [EG_X_NE] = NAME(OF##_ne), [EG_X_LT] = NAME(OF##_lt), \
    [EG_X_LE] = NAME(OF##_le), [EG_X_GT] = NAME(OF##_gt), [EG_X_GE] = NAME(OF##_ge)
/* clang-format on */

/* Vectors of 32 bytes: with AVX2 gcc 12 keeps sums in longer vectors in memory. */
typedef double four_doubles __attribute__((vector_size(32)));
#if defined(__clang__)
#define EVERY_VECTOR _Pragma("clang loop unroll(full)")
#else
#define EVERY_VECTOR _Pragma("GCC unroll 8")
#endif

UNARY(condition_not, uint8_t, uint8_t, !x)
BINARY(condition_and, uint8_t, uint8_t, a &b)
BINARY(condition_or, uint8_t, uint8_t, a | b)

#define T           float
#define W           int32_t
#define F(name)     name##f
#define NAME(name)  narrow_##name
#define LANES(name) name##_f32
#define WIDE        0
#define MOST        FLT_MAX
#include "notation/expression_loops_of.h"
#undef T
#undef W
#undef F
#undef NAME
#undef LANES
#undef WIDE
#undef MOST
#define T           double
#define W           int64_t
#define F(name)     name
#define NAME(name)  wide_##name
#define LANES(name) name##_f64
#define WIDE        1
#define MOST        DBL_MAX
#include "notation/expression_loops_of.h"
#undef T
#undef W
#undef F
#undef NAME
#undef LANES
#undef WIDE
#undef MOST

const eg_loops *const eg__loops[2] = { &narrow_loops, &wide_loops };

/* -- indices ---------------------------------------------------------------------------------- */
#define WITHIN(v, low, high) ((v) < (low) ? (low) : (v) > (high) ? (high) : (v))
#define OFFSETS(NAME, I)                                                                       \
    EG_CLONES static void NAME(int64_t n, int64_t *o, const I *i, int64_t step, I low, I high) \
    {                                                                                          \
        EACH(o[k] += WITHIN(i[k], low, high) * step)                                           \
    }
OFFSETS(offsets_narrow, int32_t)
OFFSETS(offsets_wide, int64_t)
#define SUM_ROWS(I, U)                                \
    for (; rows-- > 0; index += index_step, sum += n) \
    EACH(sum[k] = (I)((add ? (U)sum[k] : 0) + (U)WITHIN(index[k], low, high) * (U)stride))
#define SUMS(NAME, I, U)                                                                    \
    EG_CLONES static void NAME(int64_t rows, int64_t n, const I *index, int64_t index_step, \
                               I stride, I low, I high, bool add, I *sum)                   \
    {                                                                                       \
        SUM_ROWS(I, U)                                                                      \
    }
SUMS(sums_narrow, int32_t, uint32_t)
SUMS(sums_wide, int64_t, uint64_t)
EG_CLONES static void expression_count(int64_t n, int32_t *to, int32_t first, int32_t step)
{
    EACH(to[k] = (int32_t)((uint32_t)first + (uint32_t)step * (uint32_t)k))
}
void eg__count_from(int64_t n, int32_t *to, int32_t first, int32_t step)
{
    expression_count(n & -EG_LANES, to, first, step);
}
void eg__offsets_add(int64_t n, int64_t *offset, bool narrow, const void *index, int64_t step,
                     int64_t limit)
{
    if (narrow)
        offsets_narrow(n, offset, index, step, limit < 0 ? INT32_MIN : 0,
                       limit < 0 || limit > INT32_MAX ? INT32_MAX : (int32_t)limit);
    else
        offsets_wide(n, offset, index, step, limit < 0 ? INT64_MIN : 0,
                     limit < 0 ? INT64_MAX : limit);
}
void eg__indices_add(int64_t rows, int64_t n, bool narrow, const void *index, int64_t index_step,
                     int64_t stride, int64_t limit, bool add, void *sum)
{
    n &= -EG_LANES;
    if (narrow)
        sums_narrow(rows, n, index, index_step, (int32_t)stride, limit < 0 ? INT32_MIN : 0,
                    limit < 0 || limit > INT32_MAX ? INT32_MAX : (int32_t)limit, add, sum);
    else
        sums_wide(rows, n, index, index_step, stride, limit < 0 ? INT64_MIN : 0,
                  limit < 0 ? INT64_MAX : limit, add, sum);
}
#define GATHERS(NAME, E)                                                                    \
    static void NAME(int64_t n, E *out, const E *from, const int64_t *offset, int64_t step) \
    {                                                                                       \
        for (int64_t k = 0; k < n; k++) out[k] = from[offset ? offset[k] : k * step];       \
    }
GATHERS(expression_gather_1, uint8_t)
GATHERS(expression_gather_4, uint32_t)
GATHERS(expression_gather_8, uint64_t)
static void gather_of(int64_t n, int width, void *out, const void *from, const int64_t *offset,
                      int64_t step)
{
    if (width == 1)
        expression_gather_1(n, out, from, offset, step);
    else if (width == 4)
        expression_gather_4(n, out, from, offset, step);
    else
        expression_gather_8(n, out, from, offset, step);
}
void eg__gather(int64_t n, int width, void *out, const void *from, const int64_t *offset)
{
    gather_of(n, width, out, from, offset, 0);
}
void eg__gather_steps(int64_t n, int width, void *out, const void *from, int64_t step)
{
    if (step == 1)
        memcpy(out, from, (size_t)(n * width));
    else
        gather_of(n, width, out, from, NULL, step);
}
#define COPY(TO, FROM) \
    for (int64_t k = 0; k < n; k++) ((TO *)out)[k] = (TO)((const FROM *)from)[k]
void eg__integers_copy(int64_t n, bool to_wide, void *out, bool wide, const void *from)
{
    if (to_wide && !wide)
        COPY(int64_t, int32_t);
    else if (!to_wide && wide)
        COPY(int32_t, int64_t);
    else
        memmove(out, from, (size_t)n * (wide ? 8 : 4));
}
