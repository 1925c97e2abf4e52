/* expression_loops.h: the loops of expressions over numbers that lie one after another, shared by
 * expression_block.c, which calls them, and expression_loops.c. */
#ifndef EG_EXPRESSION_LOOPS_H
#define EG_EXPRESSION_LOOPS_H
#include "notation/whole.h"

/* out[k] = f(in[0][k], …) for k < n; bit j of still: operand j is one number, in[j][0]; of three
 * operands the last two are, or none. n is a multiple of EG_LANES, out may be an operand. */
typedef void eg_value_loop(int64_t n, void *out, const void *const *in, unsigned still);
/* d[k] = the cotangent of operand i of f from g[k] and y[k], the cotangent and the value of f. */
typedef void eg_slope_loop(int64_t n, void *d, const void *g, const void *y, const void *const *in,
                           unsigned still);

/* By type: 0 the narrow one (float, int32_t), 1 the wide one (double, int64_t). */
typedef struct eg_loops {
    eg_value_loop *of_float[EG_X_CODES], *of_whole[EG_X_CODES], *of_truth[EG_X_CODES];
    eg_slope_loop *slope[EG_X_CODES][3];
    eg_value_loop *float_of[2]; /* floats of whole numbers, narrow or wide */
    /* sum[k] += x[k]; and Σ x[k] */
    void (*add)(int64_t n, void *sum, const void *x);
    void (*add_wide)(int64_t n, double *sum, const void *x);
    double (*total)(int64_t n, const void *x);
    void (*from_wide)(int64_t n, void *x, const double *sum);
    /* to[offset[k]] += x[k], in order; offset NULL: to[k step] */
    void (*scatter)(int64_t n, double *to, const int64_t *offset, int64_t step, const void *x);
} eg_loops;
extern const eg_loops *const eg__loops[2];

/* offset[k] += clamped index[k] · step; index is int32_t or int64_t; limit −1: no clamping */
void eg__offsets_add(int64_t n, int64_t *offset, bool narrow, const void *index, int64_t step,
                     int64_t limit);
/* out[k] = from[offset[k]], elements of 1, 4 or 8 bytes; step: offset[k] is k · step */
void eg__gather(int64_t n, int width, void *out, const void *from, const int64_t *offset);
void eg__gather_steps(int64_t n, int width, void *out, const void *from, int64_t step);
/* Whole numbers from int32_t or int64_t (wide) to the other or the same. */
void eg__whole_copy(int64_t n, bool to_wide, void *out, bool wide, const void *from);
#endif
