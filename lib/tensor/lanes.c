/* lanes.c: from operands of any strides to contiguous lanes. */
#include "tensor/tensor.h"

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

void eg__lanes_inner(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const eg_lanes *l = user;
    bool unit = true;
    for (int i = 0; i <= l->operands; i++) unit &= step[i] == l->width[i];
    int64_t whole = !unit ? 0 : l->exact ? n : n & -EG_LANES;
    if (whole) l->kernel(whole, p, l->c);
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
    else
        for (int64_t r = 0; r < rows; r++)
            eg__move(width, n, y + r * n * width, width, from + r * row_step, step);
}
/* Computes a plane in tiles of at most EG_BLOCK elements: of whole rows or, if an operand is
 * contiguous along the other axis, of squares. Operands that are not contiguous in a tile are
 * copied to buffers on the stack. */
static void lanes_plane(int64_t rows, int64_t n, char *const *p, const int64_t *row_step,
                        const int64_t *step, const void *user)
{
    enum { SIDE = 16 };
    const eg_lanes *l = user;
    _Alignas(64) char block[4][EG_BLOCK * 16 + EG_SPREAD_BYTES];
    bool turned = n > EG_BLOCK / 2;
    for (int i = 1; i <= l->operands; i++)
        turned |= row_step[i] == l->width[i] && step[i] && step[i] != l->width[i];
    const int64_t high = turned ? SIDE : EG_BLOCK / n, wide = turned ? SIDE : n;
    for (int64_t r = 0; r < rows; r += high)
        for (int64_t c = 0; c < n; c += wide) {
            const int64_t tr = eg__min64(high, rows - r), tc = eg__min64(wide, n - c);
            const int64_t m = tr * tc, lanes = l->exact ? m : (m + EG_LANES - 1) & -EG_LANES;
            char *q[4], *at[4];
            bool direct[4];
            for (int i = 0; i <= l->operands; i++) {
                const int width = l->width[i];
                at[i] = p[i] + r * row_step[i] + c * step[i];
                direct[i] =
                    lanes == m && step[i] == width && (tr == 1 || row_step[i] == tc * width);
                q[i] = direct[i] ? at[i] : block[i];
                /* an operand that is the same in all tiles: its buffer is filled once, for the
                 * largest tile */
                const bool same = !row_step[i] && (!step[i] || !turned) && r + c > 0;
                if (!i || direct[i] || (same && lanes == m)) continue;
                tile_read(width, tr, tc, block[i], at[i], row_step[i], step[i]);
                eg__move(width, lanes - m, block[i] + m * width, width, block[i], 0);
            }
            l->kernel(lanes, q, l->c);
            if (direct[0]) continue;
            const int width = l->width[0];
            for (int64_t k = 0; k < tr; k++)
                eg__move(width, tc, at[0] + k * row_step[0], step[0], block[0] + k * tc * width,
                         width);
        }
}

bool eg__lanes_run(eg_tensor *y, eg_lanes_fn *kernel, bool exact)
{
    static const double none[2];
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
