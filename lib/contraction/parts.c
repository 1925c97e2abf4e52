/* parts.c: products of complex numbers as one product of real numbers, in f64, with the kernels of
 * the floats: (re c, im c) = Σ re a (re b, im b) + im a (−im b, re b). One operand is read as its
 * parts, which are one more axis of the sum; of the other one, which is doubled, there is a copy
 * that contains b and i b. Doubled is the operand with the axis along which c is contiguous, so
 * that the parts of c are contiguous with that axis; or the smaller one, if the sum is along
 * contiguous numbers of the larger one, which is then not copied. */
#include "contraction/gemm.h"

/* Elements of a piece: along the axis along which the operand is contiguous, and along the other
 * axis if that one is contiguous in the copy. */
enum { PARTS_LINE = 2048, PARTS_SIDE = 8 };
/* What is smaller is faster in plain.c: numbers along the axes of the operand that is not doubled,
 * multiply-adds. */
enum { LEAST_OTHER = 8, LEAST_WORK = 64 };
/* From so many rows on the smaller operand is doubled if the other one is read in place. */
enum { SMALLER_ROWS = 3 };

/* Lists in `copy` the axes that operand s has, the outermost in memory first. */
static int parts_axes(int n, const eg_axis *x, int s, int *order)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (!x[i].step[s]) continue;
        int j = count++;
        for (; j > 0 && eg__abs64(x[order[j - 1]].step[s]) < eg__abs64(x[i].step[s]); j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    return count;
}
/* Appends axis x of operand s to the axes of its copy, where its stride is sc. */
static void parts_append(eg_parts_plan *t, int s, const eg_axis *x, int64_t sc)
{
    t->copy[s][t->n[s]++] =
        (eg_axis){ .size = x->size, .sa = x->step[s], .sc = sc, .in_a = true, .in_c = true };
}
/* Sets the strides of the doubled operand s in its copy, whose axes are in the order of the
 * operand: the parts of c follow axis z, those of the sum axis y. */
static void parts_double(eg_parts_plan *t, int n, eg_axis *x, int s, int z, int y)
{
    int order[EG_PAIR_AXES];
    int64_t stride = 1;
    for (int i = parts_axes(n, x, s, order) - 1; i >= 0; i--) {
        eg_axis *const at = &x[order[i]];
        if (order[i] == z) {
            t->of_c = stride;
            stride *= 2;
        }
        if (order[i] == y) {
            t->of_sum = stride;
            stride *= 2;
        }
        parts_append(t, s, at, stride);
        at->step[s] = stride;
        stride *= at->size;
    }
    t->size[s] = stride;
}
/* The same for the other operand if its parts are not contiguous with axis y of the sum. */
static void parts_copied(eg_parts_plan *t, int n, eg_axis *x, int s, int y)
{
    int order[EG_PAIR_AXES];
    int64_t stride = 2 * x[y].size;
    const int count = parts_axes(n, x, s, order);
    if (x[y].step[s] == 1) {
        for (int i = 0; i < n; i++) x[i].step[s] *= 2;
        return;
    }
    parts_append(t, s, &x[y], 2);
    x[y].step[s] = 2;
    for (int i = count - 1; i >= 0; i--) {
        eg_axis *const at = &x[order[i]];
        if (order[i] == y) continue;
        parts_append(t, s, at, stride);
        at->step[s] = stride;
        stride *= at->size;
    }
    t->size[s] = stride;
}
/* Moves the batch axes outside of axis z of c from x to the plan; returns how many axes remain. */
static int parts_batches(eg_parts_plan *t, int n, eg_axis *x, int64_t apart)
{
    int left = 0;
    for (int i = 0; i < n; i++)
        if (x[i].in_c && x[i].sa && x[i].sb && eg__abs64(x[i].sc) > apart)
            t->batch[t->batches++] = x[i];
        else
            x[left++] = x[i];
    return left;
}
/* Returns the axis with the smallest stride in s (an operand, or c) of those that are summed over
 * or, if not `summed`, that c and one operand have; −1 if there are none. without: an operand that
 * must not have it, or EG_OF_C. size: numbers along all of them. */
static int parts_nearest(int n, const eg_axis *x, bool summed, int s, int without, double *size)
{
    int nearest = -1;
    *size = 1;
    for (int i = 0; i < n; i++) {
        const bool shared = x[i].sa && x[i].sb, one = !x[i].sa != !x[i].sb;
        if (summed ? x[i].in_c || !shared : !x[i].in_c || !one) continue;
        if (without != EG_OF_C && x[i].step[without]) continue;
        *size *= (double)x[i].size;
        if (nearest < 0 || eg__abs64(x[i].step[s]) < eg__abs64(x[nearest].step[s])) nearest = i;
    }
    return nearest;
}
int eg__parts(eg_parts_plan *t, int n, eg_axis *x)
{
    double free, sum, own, other;
    int z = parts_nearest(n, x, false, EG_OF_C, EG_OF_C, &free);
    if (z < 0 || n > EG_PAIR_AXES - 2) return 0;
    int s = x[z].sa ? EG_OF_A : EG_OF_B, y = parts_nearest(n, x, true, !s, EG_OF_C, &sum);
    parts_nearest(n, x, false, EG_OF_C, !s, &own);
    const int line = parts_nearest(n, x, true, s, EG_OF_C, &sum),
              rows = parts_nearest(n, x, false, EG_OF_C, s, &other);
    if (y >= 0 && x[line].step[s] == 1 && other >= SMALLER_ROWS && 2 * other <= own)
        s = !s, y = line, z = rows, other = own;
    if (y < 0 || other < LEAST_OTHER || free * sum < LEAST_WORK) return 0;
    *t = (eg_parts_plan){ .doubled = s };
    n = parts_batches(t, n, x, eg__abs64(x[z].sc));
    z = parts_nearest(n, x, false, EG_OF_C, !s, &free);
    y = parts_nearest(n, x, true, !s, EG_OF_C, &sum);
    parts_double(t, n, x, s, z, y);
    parts_copied(t, n, x, !s, y);
    for (int i = 0; i < n; i++) x[i].sc *= 2;
    x[n] =
        (eg_axis){ .size = 2, .sc = 1, .in_a = s == EG_OF_A, .in_b = s == EG_OF_B, .in_c = true };
    x[n].step[s] = t->of_c;
    x[n + 1] = (eg_axis){ .size = 2, .in_a = true, .in_b = true };
    x[n + 1].step[s] = t->of_sum;
    x[n + 1].step[!s] = 1;
    return n + 2;
}

/* A copy of an operand: `last` is the axis that is innermost in the copy, `near` that in the
 * operand, in blocks of `block` elements. */
typedef struct parts_copy {
    eg_axes others; /* without these two */
    eg_axis last, near;
    int64_t block, blocks;
    bool doubled;
    int64_t of_c, of_sum; /* distances of the parts in the copy */
    const double *from;
    double *to;
} parts_copy;
/* Copies n numbers: re and im, of_c apart; if `doubled` also −im and re, of_sum further. */
EG_INLINE void parts_line(int64_t n, const double *x, const int64_t sx, double *y, int64_t sy,
                          const bool doubled, int64_t of_c, int64_t of_sum)
{
    for (int64_t i = 0; i < n; i++, x += 2 * sx, y += sy) {
        const double re = x[0], im = x[1];
        y[0] = re;
        y[of_c] = im;
        if (!doubled) continue;
        y[of_sum] = -im;
        y[of_sum + of_c] = re;
    }
}
/* Copies a block along `near`, for each position along `last`. */
static void parts_piece(void *user, int64_t piece, int thread)
{
    const parts_copy *c = user;
    const eg_offsets at = eg__offsets_of(&c->others, piece / c->blocks);
    const int64_t from = piece % c->blocks * c->block, n = eg__min64(c->block, c->near.size - from);
    const double *x = c->from + 2 * (at.a + from * c->near.sa);
    double *y = c->to + at.c + from * c->near.sc;
    (void)thread;
    for (int64_t i = 0; i < c->last.size; i++, x += 2 * c->last.sa, y += c->last.sc)
        if (!c->doubled)
            parts_line(n, x, c->near.sa, y, c->near.sc, false, 1, 0);
        else if (c->of_c == 1 && c->near.sa == 1)
            parts_line(n, x, 1, y, c->near.sc, true, 1, c->of_sum);
        else
            parts_line(n, x, c->near.sa, y, c->near.sc, true, c->of_c, c->of_sum);
}
void eg__parts_copy(eg_ctx *cx, const eg_axes *axes, bool doubled, int64_t of_c, int64_t of_sum,
                    const void *from, double *to)
{
    const eg_axis one = { .size = 1 };
    eg_axis other[EG_PAIR_AXES];
    parts_copy c = { .last = one,
                     .near = one,
                     .block = PARTS_LINE,
                     .doubled = doubled,
                     .of_c = of_c,
                     .of_sum = of_sum,
                     .from = from,
                     .to = to };
    int near = axes->n - 1, n = 0;
    for (int i = 0; i < axes->n; i++)
        if (eg__abs64(axes->axis[i].sa) < eg__abs64(axes->axis[near].sa)) near = i;
    if (axes->n) c.near = axes->axis[near];
    if (near < axes->n - 1) {
        c.last = axes->axis[axes->n - 1];
        c.block = PARTS_SIDE;
    }
    c.blocks = (c.near.size + c.block - 1) / c.block;
    c.others = (eg_axes){ .total = 1, .axis = other };
    for (int i = 0; i < axes->n - 1; i++)
        if (i != near) other[n++] = axes->axis[i], c.others.total *= axes->axis[i].size;
    c.others.n = n;
    eg__parallel(cx, eg__team(cx, axes->total, PARTS_LINE * PARTS_SIDE), c.others.total * c.blocks,
                 parts_piece, &c);
}
