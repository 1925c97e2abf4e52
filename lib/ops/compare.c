/* compare.c: comparisons and logic, broadcasting as binary.c does. Results are bool, so no gradient
 * flows: the operations have no rule. i32 and i64 may be compared: the former are read as i64,
 * which changes no value. A NaN compares as in C: only ≠ holds. Comparisons of complex numbers
 * compare the real parts. */
#include "ops/ops.h"

static bool compare_shape(eg_tensor *y)
{
    const int dtype = y->in[0]->dtype;
    if (!eg__shape_pair(y, EG_BOOL, 0)) return false;
    if (eg__lanes_op(y)->of[dtype]) return true;
    eg_fail_as(y->cx, EG_ERROR_DTYPE, "%s: the operand%s %s, not bool; compare first", y->op->name,
               y->count == 1 ? " is" : "s are", eg_type_name(dtype));
    return false;
}

static eg_tensor *compared(const eg_op *op, eg_tensor *a, eg_tensor *b)
{
    if (a && b && a->dtype == EG_I32 && b->dtype == EG_I64)
        a = eg_cast(a, EG_I64);
    else if (a && b && a->dtype == EG_I64 && b->dtype == EG_I32)
        b = eg_cast(b, EG_I64);
    return eg__broadcast(op, 2, (eg_tensor *[]){ a, b });
}

/* X(function, name, operands, value, sampled, equation) */
/* clang-format off */
#define COMPARISONS(X)                                                  \
    X(eg_eq, eq, 2, a == b,     "3x4, 3x1",     "y = [a = b]")          \
    X(eg_ne, ne, 2, a != b,     "3x4, 3x1",     "y = [a ≠ b]")          \
    X(eg_lt, lt, 2, a < b,      "3x4, 3x1",     "y = [a < b]")          \
    X(eg_le, le, 2, a <= b,     "3x4, 3x1",     "y = [a ≤ b]")          \
    X(eg_gt, gt, 2, a > b,      "3x4, 3x1",     "y = [a > b]")          \
    X(eg_ge, ge, 2, a >= b,     "3x4, 3x1",     "y = [a ≥ b]")          \
    X(eg_isnan, isnan, 1, a != a,     "3x4",          "y = [a is NaN]")
#define LOGIC(X)                                               \
    X(eg_and, and, 2, a & b,      "3x4:b, 3x1:b", "y = a ∧ b") \
    X(eg_or, or, 2, a | b,      "3x4:b, 3x1:b", "y = a ∨ b")   \
    X(eg_xor, xor, 2, a ^ b,      "3x4:b, 3x1:b", "y = a ⊻ b") \
    X(eg_not, not, 1, !a,         "3x4:b",        "y = ¬a")
/* clang-format on */

/* Bools are read as bytes, because gcc 12 does not vectorise !a of bools. */
#define T       uint8_t
#define NAME(x) x##_bool
#define REAL    uint8_t
#define ROWS         \
    COMPARISONS(ROW) \
    LOGIC(ROW)
#include "ops/compare_of.h"
#undef T
#undef NAME
#undef REAL
#undef ROWS
#define ROWS     COMPARISONS(ROW)
#define TEMPLATE "ops/compare_of.h"
#include "tensor/each_type_of.h"
#undef ROWS

#define BOOLS(NAME) [EG_BOOL] = NAME##_bool
#define EVERY(NAME)                                                                             \
    [EG_F32] = NAME##_f32, [EG_F64] = NAME##_f64, [EG_I32] = NAME##_i32, [EG_I64] = NAME##_i64, \
    [EG_C128] = NAME##_c128, BOOLS(NAME)
#define SAMPLE_1(CALL) CALL(x[0])
#define SAMPLE_2(CALL) CALL(x[0], x[1])
#define CONSTRUCTOR_1(CALL, NAME) \
    eg_tensor *CALL(eg_tensor *a) { return eg_apply(&NAME##_op.op, NULL, 0, 1, &a); }
#define CONSTRUCTOR_2(CALL, NAME) \
    eg_tensor *CALL(eg_tensor *a, eg_tensor *b) { return compared(&NAME##_op.op, a, b); }
/* clang-format off */
#define DEFINE(CALL, NAME, N, TYPES, SAMPLED, EQUATION)                                            \
    static eg_tensor *NAME##_call(eg_tensor *const *x) { return SAMPLE_##N(CALL); }                \
    static const eg_sample NAME##_samples[] = { { NAME##_call, SAMPLED, 0, 0 }, { 0 } };           \
    static const eg_lanes_op NAME##_op = { .of = { TYPES(NAME) }, .exact = true, .op = { #NAME,    \
        EQUATION, "none: bool", N, compare_shape, eg__lanes_forward, NULL, EG_USES_NOTHING,        \
        .samples = NAME##_samples, .forward_c128 = eg__lanes_forward } };
/* clang-format on */
#define DEFINE_EVERY(CALL, NAME, N, VALUE, SAMPLED, EQUATION) \
    DEFINE(CALL, NAME, N, EVERY, SAMPLED, EQUATION)           \
    CONSTRUCTOR_##N(CALL, NAME)
#define DEFINE_BOOLS(CALL, NAME, N, VALUE, SAMPLED, EQUATION) \
    DEFINE(CALL, NAME, N, BOOLS, SAMPLED, EQUATION)           \
    CONSTRUCTOR_##N(CALL, NAME)
COMPARISONS(DEFINE_EVERY)
LOGIC(DEFINE_BOOLS)

#define LIST(CALL, NAME, ...) &NAME##_op.op,
const eg_op *const eg__compare_ops[] = { COMPARISONS(LIST) LOGIC(LIST) NULL };
