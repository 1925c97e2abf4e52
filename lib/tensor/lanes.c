/* lanes.c: from operands of any strides to contiguous lanes. */
#include "tensor/tensor.h"
#include <string.h>

static const double none[2]; /* the constants of a kernel that has none */

/* Computes the elements from … n − 1 in blocks. Operands that are not contiguous, and blocks that
 * must be padded, are copied to buffers on the stack. */
static void lanes_blocks(int64_t from, int64_t n, char *const *p, const int64_t *step,
                         const eg_lanes *l)
{
    _Alignas(64) char block[4][EG_BLOCK * 16];
    char *q[4];
    for (int64_t k = from, m; k < n; k += m) {
        m = n - k < EG_BLOCK ? n - k : EG_BLOCK;
        int64_t lanes = l->exact ? m : (m + EG_LANES - 1) & -EG_LANES;
        for (int i = 1; i <= l->operands; i++) {
            const int width = l->width[i];
            q[i] = block[i];
            if (step[i] == width && lanes == m)
                q[i] = p[i] + k * step[i];
            else if (step[i] ||
                     /* an operand with stride 0: its buffer is filled once, for the largest
                      * block */
                     k == from) {
                eg__move(width, m, block[i], width, p[i] + k * step[i], step[i]);
                eg__move(width, lanes - m, block[i] + m * width, width, block[i], 0);
            }
        }
        bool direct = step[0] == l->width[0] && lanes == m;
        q[0] = direct ? p[0] + k * step[0] : block[0];
        l->kernel(lanes, q, l->c);
        if (!direct) eg__move(l->width[0], m, p[0] + k * step[0], step[0], block[0], l->width[0]);
    }
}

/* Returns the operand (1 or 2) of which the kernel reads a single element for the row, and sets *c
 * to the argument that selects this form of the kernel. Returns 0 if the kernel has no such form,
 * or if the other operand or the result is not contiguous. Complex kernels are not called in this
 * form: gcc 12 fuses the products of a complex number with one that does not change in the loop
 * (vfmaddsub), in spite of -ffp-contract=off, so that they would have other bits. */
static int lanes_constant_operand(const eg_lanes *l, const int64_t *step, const double **c)
{
    static const double of[3][2] = { [1] = { 1, 0 }, [2] = { 0, 1 } };
    const bool has = l->exact && l->operands == 2 && l->width[1] <= 8; /* c128 has 16 bytes */
    const int i = !has || step[0] != l->width[0]       ? 0
                  : !step[1] && step[2] == l->width[2] ? 1
                  : !step[2] && step[1] == l->width[1] ? 2
                                                       : 0;
    if (i) *c = of[i];
    return i;
}
void eg__lanes_inner(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const eg_lanes *l = user;
    const double *c = l->c;
    bool unit = true;
    for (int i = 0; i <= l->operands; i++) unit &= step[i] == l->width[i];
    int64_t whole = !unit && !lanes_constant_operand(l, step, &c) ? 0
                    : l->exact                                    ? n
                                                                  : n & -EG_LANES;
    if (whole) l->kernel(whole, p, c);
    if (whole < n) lanes_blocks(whole, n, p, step, l);
}

/* Copies a tile of `rows` rows of n elements to `to`, which is row-major and has EG_SPREAD_BYTES
 * more bytes. */
static void tile_read(int width, int64_t rows, int64_t n, void *to, const char *from,
                      int64_t row_step, int64_t step)
{
    char *y = to;
    if (step == 0)
        eg__spread(width, rows, n, to, from, row_step);
    else if (row_step == width && (width == 4 || width == 8) && step % width == 0)
        eg__transpose((size_t)width, n, rows, from, step / width, to, n, false);
    else if (!row_step) { /* a repeated row: each copy has twice as many of them */
        const int64_t all = rows * n * width;
        eg__move(width, n, y, width, from, step);
        for (int64_t done = n * width; done < all; done *= 2)
            memcpy(y + done, y, (size_t)eg__min64(done, all - done));
    } else
        for (int64_t r = 0; r < rows; r++)
            eg__move(width, n, y + r * n * width, width, from + r * row_step, step);
}
/* A tile of a plane: its sizes, and the first element and the steps in bytes of each operand.
 * Bit i of `kept`: the operand is the same in all tiles, so that its buffer is filled once, for the
 * first tile, which is the largest. */
typedef struct lanes_tile {
    int64_t rows, n;
    char *at[4];
    const int64_t *row_step, *step;
    uint32_t kept;
    bool first;
    int still; /* the operand that is one element for each row, if the kernel is given that; or 0 */
    const double *c;
} lanes_tile;
enum { TILE_BYTES = EG_BLOCK * 16 };
/* Computes one tile. An operand whose rows are contiguous is used in place if the kernel takes rows
 * of n elements; others are copied to and from buffers, in which rows are adjacent. Rows that are
 * adjacent in every operand are computed by one call. */
static void lanes_tile_run(const lanes_tile *t, char (*block)[TILE_BYTES + EG_SPREAD_BYTES],
                           const eg_lanes *l)
{
    const int64_t m = t->rows * t->n, lanes = l->exact ? m : (m + EG_LANES - 1) & -EG_LANES;
    const bool by_row = l->exact || t->n % EG_LANES == 0;
    char *q[4];
    int64_t pitch[4];
    bool adjacent = true, direct = false;
    for (int i = l->operands; i >= 0; i--) {
        const int width = l->width[i];
        const int64_t dense = t->n * width;
        if (i && i == t->still) {
            q[i] = t->at[i], pitch[i] = t->row_step[i], adjacent = false;
            continue;
        }
        const bool near = t->rows == 1 || t->row_step[i] == dense, kept = t->kept >> i & 1;
        direct = t->step[i] == width && (near ? by_row || lanes == m : by_row && !kept);
        q[i] = direct ? t->at[i] : block[i];
        pitch[i] = direct && !near ? t->row_step[i] : dense;
        adjacent &= pitch[i] == dense;
        if (!i || direct || (kept && !t->first && lanes == m)) continue;
        tile_read(width, t->rows, t->n, block[i], t->at[i], t->row_step[i], t->step[i]);
        eg__move(width, lanes - m, block[i] + m * width, width, block[i], 0);
    }
    if (adjacent)
        l->kernel(lanes, q, t->c);
    else
        for (int64_t r = 0; r < t->rows; r++) {
            l->kernel(t->n, q, t->c);
            for (int i = 0; i <= l->operands; i++) q[i] += pitch[i];
        }
    const int width = l->width[0];
    for (int64_t r = 0; r < t->rows && !direct; r++)
        eg__move(width, t->n, t->at[0] + r * t->row_step[0], t->step[0],
                 block[0] + r * t->n * width, width);
}
/* Computes a plane in tiles of which each operand takes at most TILE_BYTES: of whole rows or, if an
 * operand is contiguous along the other axis, of SIDE rows. */
static void lanes_plane(int64_t rows, int64_t n, char *const *p, const int64_t *row_step,
                        const int64_t *step, const void *user)
{
    enum { SIDE = 16, STILL = 192 }; /* STILL: bytes of a row that is worth a call */
    const eg_lanes *l = user;
    _Alignas(64) char block[4][TILE_BYTES + EG_SPREAD_BYTES];
    int widest = l->width[0];
    bool transposed = n > EG_BLOCK;
    for (int i = 1; i <= l->operands; i++) {
        transposed |= row_step[i] == l->width[i] && step[i] && step[i] != l->width[i];
        widest = l->width[i] > widest ? l->width[i] : widest;
    }
    const int64_t most = TILE_BYTES / widest, fit = transposed ? SIDE : most / n,
                  even = fit < 4          ? 1
                         : fit < EG_LANES ? 4
                                          : EG_LANES,
                  high = fit & -even, /* complete groups of lanes */
        wide = transposed ? most / SIDE : n;
    lanes_tile t = { .row_step = row_step, .step = step, .first = true, .c = l->c };
    if (n * l->width[1] >= STILL && !transposed) t.still = lanes_constant_operand(l, step, &t.c);
    /* if rows of an operand are apart, each row is a call, which takes a repeated row in place */
    bool apart = false;
    for (int i = 0; i <= l->operands && l->exact; i++)
        apart |= step[i] == l->width[i] && row_step[i] && row_step[i] != n * l->width[i];
    for (int i = 1; i <= l->operands; i++)
        if (!row_step[i] && (!step[i] || !transposed) && !(apart && step[i] == l->width[i]))
            t.kept |= 1u << i;
    for (int64_t r = 0; r < rows; r += high)
        for (int64_t c = 0; c < n; c += wide) {
            t.rows = eg__min64(high, rows - r), t.n = eg__min64(wide, n - c);
            for (int i = 0; i <= l->operands; i++) t.at[i] = p[i] + r * row_step[i] + c * step[i];
            lanes_tile_run(&t, block, l);
            t.first = false;
        }
}

bool eg__lanes_run(eg_tensor *y, eg_lanes_fn *kernel, bool exact)
{
    const eg_tensor *x[4] = { y };
    eg_lanes l = {
        .kernel = kernel, .operands = y->count, .exact = exact, .c = y->attr ? y->attr : none
    };
    for (int i = 0; i < y->count; i++) x[i + 1] = y->in[i];
    for (int i = 0; i <= y->count; i++) l.width[i] = eg__width[x[i]->dtype];
    if (y->cx->capture) eg__capture_lanes(y, &l);
    eg__loop_planes(y->cx, y->count + 1, x, eg__lanes_inner, lanes_plane, &l);
    return true;
}
bool eg__lanes_forward(eg_tensor *y)
{
    const eg_lanes_op *row = eg__lanes_op(y);
    return eg__lanes_run(y, row->of[y->in[0]->dtype], row->exact);
}
