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
    eg__loop(y->cx, y->count + 1, x, eg__lanes_inner, &l);
    return true;
}
bool eg__lanes_forward(eg_tensor *y)
{
    const eg_lanes_op *row = eg__lanes_op(y);
    return eg__lanes_run(y, row->of[y->in[0]->dtype], row->exact);
}
