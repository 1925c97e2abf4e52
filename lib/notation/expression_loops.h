/* expression_loops.h: the inner loops of expressions over contiguous elements. expression_loops.c
 * defines them; expression_values.c and expression_slopes.c call them. */
#ifndef EG_EXPRESSION_LOOPS_H
#define EG_EXPRESSION_LOOPS_H
#include "notation/integer.h"

/* Rows of n elements that a loop reads and writes; n is a multiple of EG_LANES. A step is the
 * distance of rows in bytes. */
typedef struct eg_loop_strip {
    int64_t rows, n;
    void *out;
    int64_t out_step;
    const void *in[3];
    int64_t step[3];
    unsigned still; /* bit j: in[j] has one element per row */
    /* Only for functions of which eg__keeps_first is true. A loop of values writes the first step
     * of the function to `first` if that is not NULL, and then values only if `out` is not NULL; a
     * loop of cotangents reads it. */
    void *first;
    int64_t first_step;
    /* for cotangents: the cotangent and the value of the function */
    const void *g, *y;
    int64_t g_step, y_step;
    double sign[3], factor; /* only for the loops `sum` and `product` */
} eg_loop_strip;
/* Computes out[k] = f(in[0][k], …), or the cotangents out[k] of one operand of f; out may be an
 * operand. */
typedef void eg_strip_loop(const eg_loop_strip *);

/* The loops for one width, by eg_node_code; eg__loops[0] is for float and int32_t (narrow),
 * eg__loops[1] for double and int64_t (wide). */
typedef struct eg_loops {
    eg_strip_loop *of_float[EG_X_CODES], *of_integer[EG_X_CODES], *of_condition[EG_X_CODES];
    eg_strip_loop *slope[EG_X_CODES][3];
    eg_strip_loop *float_of[2]; /* conversion of integers, narrow or wide, to float */
    /* ((sign[0] in[0] + sign[1] in[1]) + sign[2] in[2]) factor, where signs are 1 or −1; in[1] and
     * in[2] may have one element per row */
    eg_strip_loop *sum;
    eg_strip_loop *product; /* in[0] in[1] factor */
    /* add: sum[k] += x[k]. For rows r of x, `step` bytes apart: add_rows: sum[k] += Σ_r x[r][k];
     * add_diagonals: sum[rows − 1 − r + k] += x[r][k]; totals: sum[r] = Σ_k x[r][k]. from_wide:
     * x[k] = sum[k] */
    void (*add)(int64_t n, void *sum, const void *x);
    void (*add_rows)(int64_t rows, int64_t n, double *sum, const void *x, int64_t step);
    void (*add_diagonals)(int64_t rows, int64_t n, double *sum, const void *x, int64_t step);
    void (*totals)(int64_t rows, int64_t n, double *sum, const void *x, int64_t step);
    void (*from_wide)(int64_t n, void *x, const double *sum);
    void (*scale)(int64_t n, void *x, double factor);
    void (*clear)(int64_t n, void *x, const uint8_t *allow); /* x[k] = allow[k] ? x[k] : 0 */
    /* to[offset[k]] += x[k] in the order of k; to[k · step] += x[k] if offset is NULL; `to` has
     * doubles, that of scatter_same floats of this width */
    void (*scatter)(int64_t n, void *to, const int64_t *offset, int64_t step, const void *x);
    void (*scatter_same)(int64_t n, void *to, const int64_t *offset, int64_t step, const void *x);
} eg_loops;
extern const eg_loops *const eg__loops[2];
/* Returns 1 if the cotangent of operand i of a function of floats is that of its value, −1 if it is
 * minus that, else 0. */
static inline int eg__slope_sign(int code, int i)
{
    return code == EG_X_ADD ? 1 : code == EG_X_SUB ? 1 - 2 * i : code == EG_X_NEG ? -1 : 0;
}

/* True if the cotangent of the operand of a function of this code depends on the first step of the
 * function, the exponential e of expression_rows.h. In f64 tanh x has no such step. */
static inline bool eg__keeps_first(int code, bool f64)
{
    return code == EG_X_SIGMOID || code == EG_X_SOFTPLUS || (code == EG_X_TANH && !f64);
}
/* True if the cotangents of operands of a function of this code depend on its value. */
static inline bool eg__slope_reads_value(int code)
{
    return !eg__slope_sign(code, 0) && code != EG_X_MUL && code != EG_X_SELECT &&
           code != EG_X_CLIP && code != EG_X_TANH && !eg__keeps_first(code, false);
}

/* Sets n elements, whole groups of EG_LANES, to first, first + step, …, modulo 2^32. */
void eg__count_from(int64_t n, int32_t *to, int32_t first, int32_t step);
/* sum[r][k] = stride · index[r][k], added to the old sum if `add`, in rows of n elements, n whole
 * groups of EG_LANES. Sums and indices are int32_t (narrow) or int64_t; rows of the index are
 * index_step elements apart; it is clamped to 0 … limit, unless limit is negative. */
void eg__indices_add(int64_t rows, int64_t n, bool narrow, const void *index, int64_t index_step,
                     int64_t stride, int64_t limit, bool add, void *sum);
/* offset[k] += step · index[k], where the index, int32_t (narrow) or int64_t, is clamped to 0 …
 * limit, unless limit is negative. */
void eg__offsets_add(int64_t n, int64_t *offset, bool narrow, const void *index, int64_t step,
                     int64_t limit);
/* out[k] = from[offset[k]], elements of 1, 4 or 8 bytes; eg__gather_steps: from[k · step]. */
void eg__gather(int64_t n, int width, void *out, const void *from, const int64_t *offset);
void eg__gather_steps(int64_t n, int width, void *out, const void *from, int64_t step);
/* Copies integers from int32_t or int64_t (wide) to int32_t or int64_t (to_wide). */
void eg__integers_copy(int64_t n, bool to_wide, void *out, bool wide, const void *from);
#endif
