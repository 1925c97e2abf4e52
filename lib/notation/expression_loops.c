/* expression_loops.c: the loops of expressions over numbers, for both widths. */
#include "notation/expression_loops.h"
#include "notation/expression_rows.h"
#include <math.h>
#include <string.h>

/* clang-format off */
#define EACH(...) EG_EVERY_LANE for (int64_t k = 0; k < n; k++) { __VA_ARGS__; }
#define LOOP(NAME) EG_CLONES static void NAME(int64_t n, void *out, const void *const *in, unsigned still)
#define SLOPE(NAME) \
    EG_CLONES static void NAME(int64_t n, void *out, const void *g_, const void *y_, const void *const *in, unsigned still)
#define UNARY(NAME, TO, FROM, VALUE) LOOP(NAME)                                             \
    {                                                                                       \
        TO *o = out; const FROM *p = in[0]; (void)still; n &= -EG_LANES;                    \
        EACH(const FROM x = p[k]; o[k] = (TO)(VALUE))                                       \
    }
#define BINARY(NAME, TO, FROM, VALUE) LOOP(NAME)                                            \
    {                                                                                       \
        TO *o = out; const FROM *p = in[0], *q = in[1], p0 = *p, q0 = *q; n &= -EG_LANES;   \
        if (still == 1) EACH(const FROM a = p0, b = q[k]; o[k] = (TO)(VALUE))               \
        else if (still == 2) EACH(const FROM a = p[k], b = q0; o[k] = (TO)(VALUE))          \
        else EACH(const FROM a = p[k], b = q[k]; o[k] = (TO)(VALUE)) }
#define TERNARY(NAME, TO, FIRST, FROM, VALUE) LOOP(NAME)                                    \
    {                                                                                       \
        TO *o = out; const FIRST *p = in[0]; const FROM *q = in[1], *r = in[2]; (void)still; \
        EACH(const FIRST a = p[k]; const FROM b = q[k], c = r[k]; (void)b, (void)c;         \
             o[k] = (TO)(VALUE))                                                            \
    }
#define UNARY_SLOPE(NAME, VALUE) SLOPE(NAME)                                                \
    {                                                                                       \
        T *d = out; const T *v = g_, *w = y_, *p = in[0]; (void)still; n &= -EG_LANES;      \
        EACH(const T g = v[k], y = w[k], x = p[k]; (void)g, (void)y, (void)x; d[k] = VALUE) \
    }
#define OPERANDS_2(A, B, VALUE) \
    EACH(const T g = v[k], y = w[k], a = A, b = B; (void)g, (void)y, (void)a, (void)b; d[k] = VALUE)
#define BINARY_SLOPE(NAME, VALUE) SLOPE(NAME)                                               \
    {                                                                                       \
        T *d = out; const T *v = g_, *w = y_, *p = in[0], *q = in[1], p0 = *p, q0 = *q; n &= -EG_LANES; \
        if (still == 1) OPERANDS_2(p0, q[k], VALUE)                                         \
        else if (still == 2) OPERANDS_2(p[k], q0, VALUE)                                    \
        else OPERANDS_2(p[k], q[k], VALUE) }
#define TERNARY_SLOPE(NAME, FIRST, VALUE) SLOPE(NAME)                                       \
    {                                                                                       \
        T *d = out; const T *v = g_, *q = in[1], *r = in[2]; const FIRST *p = in[0]; (void)still, (void)y_; \
        EACH(const T g = v[k], b = q[k], c = r[k]; const FIRST a = p[k]; (void)b, (void)c;  \
             d[k] = VALUE)                                                                  \
    }
#define COMPARISONS(FROM, OF)                                                               \
    BINARY(NAME(OF##_eq), uint8_t, FROM, a == b) BINARY(NAME(OF##_ne), uint8_t, FROM, a != b) \
    BINARY(NAME(OF##_lt), uint8_t, FROM, a < b)  BINARY(NAME(OF##_le), uint8_t, FROM, a <= b) \
    BINARY(NAME(OF##_gt), uint8_t, FROM, a > b)  BINARY(NAME(OF##_ge), uint8_t, FROM, a >= b)
/* clang-format on */

#define T          float
#define W          int32_t
#define F(name)    name##f
#define NAME(name) narrow_##name
#define WIDE       0
#include "notation/expression_loops_of.h"
#undef T
#undef W
#undef F
#undef NAME
#undef WIDE
#define T          double
#define W          int64_t
#define F(name)    name
#define NAME(name) wide_##name
#define WIDE       1
#include "notation/expression_loops_of.h"
#undef T
#undef W
#undef F
#undef NAME
#undef WIDE

UNARY(truth_not, uint8_t, uint8_t, !x)
BINARY(truth_and, uint8_t, uint8_t, a &b)
BINARY(truth_or, uint8_t, uint8_t, a | b)

/* clang-format off */
#define OF_1(CODE, ...)  [EG_X_##CODE] = NAME(CODE),
#define TO_1(CODE, ...)  [EG_X_##CODE] = { NAME(CODE##_slope) },
#define TO_2(CODE, ...)  [EG_X_##CODE] = { NAME(CODE##_slope_a), NAME(CODE##_slope_b) },
#define COMPARED(OF)                                                                        \
    [EG_X_EQ] = NAME(OF##_eq), [EG_X_NE] = NAME(OF##_ne), [EG_X_LT] = NAME(OF##_lt),        \
    [EG_X_LE] = NAME(OF##_le), [EG_X_GT] = NAME(OF##_gt), [EG_X_GE] = NAME(OF##_ge)
#define TABLE                                                                               \
    { { EG_FUNCTIONS_1(OF_1) EG_FUNCTIONS_2(OF_1) [EG_X_SELECT] = NAME(select_float),       \
        [EG_X_CLIP] = NAME(clip_float), COMPARED(float) },                                  \
      { [EG_X_NEG] = NAME(whole_neg), [EG_X_ABS] = NAME(whole_abs),                         \
        [EG_X_ADD] = NAME(whole_add), [EG_X_SUB] = NAME(whole_sub),                         \
        [EG_X_MUL] = NAME(whole_mul), [EG_X_DIV] = NAME(whole_div),                         \
        [EG_X_MOD] = NAME(whole_mod), [EG_X_MIN] = NAME(whole_min),                         \
        [EG_X_MAX] = NAME(whole_max), [EG_X_SELECT] = NAME(select_whole),                   \
        [EG_X_CLIP] = NAME(clip_whole), COMPARED(whole) },                                  \
      { [EG_X_NOT] = truth_not, [EG_X_AND] = truth_and, [EG_X_OR] = truth_or },             \
      { EG_FUNCTIONS_1(TO_1) EG_FUNCTIONS_2(TO_2)                                           \
        [EG_X_SELECT] = { NULL, NAME(select_slope_a), NAME(select_slope_b) },               \
        [EG_X_CLIP] = { NAME(clip_slope_x), NAME(clip_slope_low), NAME(clip_slope_high) } }, \
      { NAME(of_narrow), NAME(of_wide) }, NAME(add), NAME(add_wide), NAME(total), NAME(from_wide) }
/* clang-format on */
const eg_loops eg__loops[2] = {
#define NAME(name) narrow_##name
    TABLE,
#undef NAME
#define NAME(name) wide_##name
    TABLE
#undef NAME
};

/* -- indices ---------------------------------------------------------------------------------- */
#define OFFSETS(NAME, I)                                                             \
    EG_CLONES static void NAME(int64_t n, int64_t *offset, const I *i, int64_t step, \
                               int64_t limit)                                        \
    {                                                                                \
        if (limit < 0)                                                               \
            EACH(offset[k] += (int64_t)i[k] * step)                                  \
        else                                                                         \
            EACH(offset[k] += (i[k] < 0 ? 0 : i[k] > limit ? limit : i[k]) * step)   \
    }
OFFSETS(offsets_narrow, int32_t)
OFFSETS(offsets_wide, int64_t)
void eg__offsets_add(int64_t n, int64_t *offset, bool narrow, const void *index, int64_t step,
                     int64_t limit)
{
    if (narrow)
        offsets_narrow(n, offset, index, step, limit);
    else
        offsets_wide(n, offset, index, step, limit);
}
#define GATHERS(NAME, E)                                                                    \
    static void NAME(int64_t n, E *out, const E *from, const int64_t *offset, int64_t step) \
    {                                                                                       \
        if (offset)                                                                         \
            for (int64_t k = 0; k < n; k++) out[k] = from[offset[k]];                       \
        else                                                                                \
            for (int64_t k = 0; k < n; k++) out[k] = from[k * step];                        \
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
void eg__whole_copy(int64_t n, bool to_wide, void *out, bool wide, const void *from)
{
    if (to_wide && !wide)
        COPY(int64_t, int32_t);
    else if (!to_wide && wide)
        COPY(int32_t, int64_t);
    else
        memmove(out, from, (size_t)n * (wide ? 8 : 4));
}
