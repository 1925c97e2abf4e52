/* part.c: functions of modules that compute this rank's positions of a sequence that is divided
 * among ranks. */
#include "nn.h"

bool eg__part_find(eg__part *p, eg_ranks *r, int64_t positions, int64_t block, bool zigzag)
{
    *p = (eg__part){ .ranks = r, .block = block ? block : 512 };
    if (!r) return true;
    p->length = eg_attention_length(r, positions, block, zigzag);
    if (p->length < 0) return false;
    p->runs = eg_attention_positions(r, p->length, block, zigzag, p->run);
    return true;
}
eg_tensor *eg__part_positions(const eg__part *p, int64_t offset)
{
    eg_tensor *run[2];
    for (int k = 0; k < p->runs; k++)
        run[k] = eg_arange(eg_ranks_context(p->ranks), EG_I64, (double)(p->run[k].from + offset),
                           (double)(p->run[k].to + offset), 1);
    return p->runs == 1 ? run[0] : eg_concat_axis_n(0, p->runs, run);
}
/* Block k of the sequence has draw first + k, whichever rank computes it. */
eg_tensor *eg__part_dropped(const eg__part *p, int axis, eg_tensor *x, double share)
{
    if (!p->ranks || !(share > 0)) return eg__nn_dropped(x, share);
    eg_ctx *cx = eg_context(x);
    if (!eg_ok(x) || !eg_training(cx)) return x;
    const uint64_t first = eg_draws(cx);
    const int64_t blocks = (p->length + p->block - 1) / p->block;
    int64_t at = 0;
    int n = 0;
    eg_tensor **part = eg_scope_alloc(cx, (size_t)(blocks + 1) * sizeof *part);
    for (int k = 0; part && k < p->runs; k++)
        for (int64_t a = p->run[k].from, b; a < p->run[k].to; a = b) {
            b = a + p->block < p->run[k].to ? a + p->block : p->run[k].to;
            eg_set_draws(cx, first + (uint64_t)(a / p->block));
            part[n++] = eg_dropout(eg_slice_axis(x, axis, at, at + b - a, 1), share);
            at += b - a;
        }
    eg_set_draws(cx, first + (uint64_t)blocks);
    eg_tensor *y = n > 1 ? eg_concat_axis_n(axis, n, part) : n ? part[0] : x;
    if (!part) y = eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory");
    return y;
}
eg_norm *eg__part_norm(eg_ranks *r, const eg_norm *m, eg_norm *copy)
{
    if (!m) return NULL;
    *copy = *m;
    copy->gain = eg_ranks_shared(r, m->gain);
    if (m->bias) copy->bias = eg_ranks_shared(r, m->bias);
    return copy;
}
eg_linear *eg__part_linear(eg_ranks *r, const eg_linear *m, eg_linear *copy)
{
    if (!m) return NULL;
    *copy = *m;
    copy->weight = eg_ranks_shared(r, m->weight);
    if (m->bias) copy->bias = eg_ranks_shared(r, m->bias);
    return copy;
}
