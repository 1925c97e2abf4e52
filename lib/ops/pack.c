/* pack.c: sequences of different lengths concatenated without padding (eg_pack), and with padding
 * again (eg_unpack).
 *
 * Both operations copy x[b, i] ↔ p[Σ_{c<b} t[c] + i] for i < t[b], and write 0 everywhere else.
 * Each is linear in its first operand, and the adjoint of the other. */
#include "ops/ops.h"
#include <string.h>

/* The attribute: the number of positions of the result. */
typedef struct packing {
    int64_t positions;
} packing;

static int64_t length_at(const eg_tensor *t, int64_t b)
{
    const char *at = t->data + b * t->stride[0] * eg__width[t->dtype];
    return t->dtype == EG_I64 ? *(const int64_t *)(const void *)at
                              : *(const int32_t *)(const void *)at;
}
/* True if the lengths t are integers of shape (b), with b = rows unless rows is −1; else records an
 * error. */
static bool lengths_shaped(const char *who, const eg_tensor *t, int64_t rows)
{
    char have[256];
    if (!eg__is_int(t->dtype))
        eg_fail_as(t->cx, EG_ERROR_DTYPE, "%s: the lengths are %s, not i32 or i64", who,
                   eg_type_name(t->dtype));
    else if (t->rank != 1)
        eg_fail_as(t->cx, EG_ERROR_SHAPE,
                   "%s: the lengths are %s, but must have one axis, a length per sequence", who,
                   eg__dims_text(t, have, sizeof have));
    else if (rows >= 0 && t->dim[0] != rows)
        eg_fail_as(t->cx, EG_ERROR_SHAPE, "%s: there %s %lld length%s, but %lld sequence%s", who,
                   t->dim[0] == 1 ? "is" : "are", (long long)t->dim[0], t->dim[0] == 1 ? "" : "s",
                   (long long)rows, rows == 1 ? "" : "s");
    else
        return true;
    return false;
}
/* True if each length is in 0 … longest and their sum is at most `positions`; else records an
 * error. */
static bool lengths_in_range(const char *who, const eg_tensor *t, int64_t longest,
                             int64_t positions)
{
    int64_t left = positions;
    for (int64_t b = 0; b < t->dim[0]; b++) {
        const int64_t n = length_at(t, b);
        if (n < 0 || n > longest)
            return eg_fail_as(t->cx, EG_ERROR_INDEX,
                              "%s: lengths[%lld] is %lld, but a sequence has %lld position%s", who,
                              (long long)b, (long long)n, (long long)longest,
                              longest == 1 ? "" : "s"),
                   false;
        if (n > left)
            return eg_fail_as(t->cx, EG_ERROR_SHAPE,
                              "%s: there %s %lld packed position%s, of which %lld %s before "
                              "sequence %lld, whose length is %lld",
                              who, positions == 1 ? "is" : "are", (long long)positions,
                              positions == 1 ? "" : "s", (long long)(positions - left),
                              positions - left == 1 ? "is" : "are", (long long)b, (long long)n),
                   false;
        left -= n;
    }
    return true;
}

/* -- copying ---------------------------------------------------------------------------------- */
/* A call. If `pack`, the row-major result y is packed, else x is. Any thread copies a piece of the
 * sequences. */
typedef struct pack_job {
    const eg_tensor *y, *x, *lengths;
    bool pack;
    int axis;               /* of the positions of x */
    int64_t width;          /* bytes of an element, … */
    int64_t position_bytes; /* … and of a position */
    bool together;          /* the positions of a sequence are row-major in x too */
    int64_t pieces;
} pack_job;
/* True if positions of t are consecutive in memory along an axis, and each is row-major. */
static bool positions_together(const eg_tensor *t, int axis)
{
    int64_t run = 1;
    for (int k = t->rank; --k > axis; run *= t->dim[k])
        if (t->dim[k] != 1 && t->stride[k] != run) return false;
    return t->stride[axis] == run;
}
/* Copies n ≥ 1 positions of x, from the address `from` on, to consecutive positions of y. */
static void copy_positions(const pack_job *job, char *to, char *from, int64_t n)
{
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    if (job->together) {
        memcpy(to, from, (size_t)(n * job->position_bytes));
        return;
    }
    eg_tensor source = *job->x, target = *job->y;
    source.rank = target.rank = (uint8_t)(job->x->rank - job->axis);
    memcpy(dim, job->x->dim + job->axis, source.rank * sizeof *dim);
    dim[0] = n;
    eg__row_major(target.rank, dim, stride);
    source.data = from, source.dim = dim, source.stride = job->x->stride + job->axis;
    target.data = to, target.dim = dim, target.stride = stride;
    eg__copy(&target, &source);
}
/* Copies a piece of the sequences, and writes 0 to padding and unused positions of y. */
static void pack_sequences(void *user, int64_t piece, int thread)
{
    (void)thread;
    const pack_job *job = user;
    const eg_tensor *x = job->x, *y = job->y;
    const int64_t rows = job->lengths->dim[0], first = rows * piece / job->pieces,
                  end = rows * (piece + 1) / job->pieces;
    int64_t at = 0; /* the packed position */
    for (int64_t b = 0; b < first; b++) at += length_at(job->lengths, b);
    for (int64_t b = first; b < end; b++) {
        const int64_t n = length_at(job->lengths, b);
        char *to = y->data + (job->pack ? at : b * y->dim[1]) * job->position_bytes;
        if (n)
            copy_positions(job, to, x->data + (job->pack ? b : at) * x->stride[0] * job->width, n);
        if (!job->pack)
            memset(to + n * job->position_bytes, 0,
                   (size_t)((y->dim[1] - n) * job->position_bytes));
        at += n;
    }
    if (job->pack && end == rows)
        memset(y->data + at * job->position_bytes, 0,
               (size_t)((y->dim[0] - at) * job->position_bytes));
}
/* Checks the lengths and divides the sequences among threads. False after an error. */
static bool pack_all(eg_tensor *y, bool pack)
{
    const eg_tensor *x = y->in[0], *t = y->in[1];
    const int64_t rows = t->dim[0], size = eg_size(y);
    if (!lengths_in_range(y->op->name, t, pack ? x->dim[1] : y->dim[1],
                          pack ? y->dim[0] : x->dim[0]))
        return false;
    if (!size) return true;
    const int team = eg__team(y->cx, size, 1 << 18);
    pack_job job = {
        y, x, t, .pack = pack, .axis = pack, .width = eg__width[y->dtype], .pieces = 1
    };
    job.position_bytes = size / (pack ? y->dim[0] : rows * y->dim[1]) * job.width;
    job.together = positions_together(x, job.axis);
    if (team > 1 && rows) job.pieces = eg__min64(rows, 4 * team);
    eg__parallel(y->cx, team, job.pieces, pack_sequences, &job);
    return true;
}

/* -- pack: (b l …) → (p …) -------------------------------------------------------------------- */
/* Applies one of the two operations. Poison after an error. */
static eg_tensor *apply_packing(const eg_op *op, eg_tensor *x, eg_tensor *lengths,
                                int64_t positions)
{
    const packing p = { positions };
    if (positions >= 0 || !x) return eg_apply(op, &p, sizeof p, 2, (eg_tensor *[]){ x, lengths });
    return eg_fail_as(x->cx, EG_ERROR_SHAPE, "%s: the number of positions is %lld", op->name,
                      (long long)positions);
}
static bool pack_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0], *t = y->in[1];
    int64_t dim[EG_RANK_MAX];
    char have[256];
    if (x->rank < 2)
        return eg_fail_as(y->cx, EG_ERROR_SHAPE, "pack: operand 1 is %s, not (b l ...)",
                          eg__dims_text(x, have, sizeof have)),
               false;
    if (!lengths_shaped("pack", t, x->dim[0])) return false;
    dim[0] = ((const packing *)y->attr)->positions;
    memcpy(dim + 1, x->dim + 2, (size_t)(x->rank - 2) * sizeof *dim);
    return eg__shape(y, x->dtype, x->rank - 1, dim);
}
static bool pack_forward(eg_tensor *y) { return pack_all(y, true); }
static eg_tensor *pack_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_unpack(g, y->in[1], y->in[i]->dim[1]);
}
static eg_tensor *pack_call(eg_tensor *const *x) { return eg_pack(x[0], x[1], 14); }
static const eg_sample pack_samples[] = { { pack_call, "3x4x2, 3:i5", 0, 0 },
                                          { pack_call, "3x4, 3:i5", 0, 0 },
                                          { pack_call, "3x4x2x2:i9, 3:i5", 0, 0 },
                                          { 0 } };
static const eg_op pack_op = {
    .name = "pack",
    .equation = "y[sum of t[c] over c < b + i] = x[b, i], i < t[b]; else 0",
    .gradient = "unpack(g, t)",
    .arity = 2,
    .shape = pack_shape,
    .forward = pack_forward,
    .rule = pack_rule,
    .uses = EG_USES_INTEGERS,
    .samples = pack_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = pack_forward,
    .takes = EG_TAKES_ALL,
};
int64_t eg_packed_length(eg_tensor *lengths)
{
    int64_t sum = 0;
    if (!eg__check("packed_length", lengths) || !eg__check_single("packed_length", lengths) ||
        !lengths_shaped("packed_length", lengths, -1) ||
        eg_refuse_capture(lengths->cx, "packed_length"))
        return -1;
    for (int64_t b = 0; b < lengths->dim[0]; b++) {
        const int64_t n = length_at(lengths, b);
        const bool too_large =
            __builtin_add_overflow(sum, n, &sum) || sum > INT64_MAX - EG_PACK_ROUND;
        if (n < 0 || too_large)
            return eg_fail_as(lengths->cx, EG_ERROR_INDEX,
                              "packed_length: lengths[%lld] is %lld, %s", (long long)b,
                              (long long)n,
                              n < 0 ? "but no sequence is shorter than 0"
                                    : "with which the sum is too large"),
                   -1;
    }
    return (sum + EG_PACK_ROUND - 1) / EG_PACK_ROUND * EG_PACK_ROUND;
}
eg_tensor *eg_pack(eg_tensor *x, eg_tensor *lengths, int64_t positions)
{
    return apply_packing(&pack_op, x, lengths, positions);
}

/* -- unpack: (p …) → (b l …) ------------------------------------------------------------------ */
static bool unpack_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0], *t = y->in[1];
    int64_t dim[EG_RANK_MAX + 1];
    char have[256];
    if (x->rank < 1 || x->rank == EG_RANK_MAX)
        return eg_fail_as(y->cx, EG_ERROR_SHAPE,
                          x->rank ? "unpack: operand 1 is %s, and the result has an axis more than "
                                    "a tensor can have"
                                  : "unpack: operand 1 is %s, not (p ...)",
                          eg__dims_text(x, have, sizeof have)),
               false;
    if (!lengths_shaped("unpack", t, -1)) return false;
    dim[0] = t->dim[0], dim[1] = ((const packing *)y->attr)->positions;
    memcpy(dim + 2, x->dim + 1, (size_t)(x->rank - 1) * sizeof *dim);
    return eg__shape(y, x->dtype, x->rank + 1, dim);
}
static bool unpack_forward(eg_tensor *y) { return pack_all(y, false); }
static eg_tensor *unpack_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_pack(g, y->in[1], y->in[i]->dim[0]);
}
static eg_tensor *unpack_call(eg_tensor *const *x) { return eg_unpack(x[0], x[1], 4); }
static const eg_sample unpack_samples[] = { { unpack_call, "14x2, 3:i5", 0, 0 },
                                            { unpack_call, "14, 3:i5", 0, 0 },
                                            { unpack_call, "14x2x2:i9, 3:i5", 0, 0 },
                                            { 0 } };
static const eg_op unpack_op = {
    .name = "unpack",
    .equation = "y[b, i] = x[sum of t[c] over c < b + i], i < t[b]; else 0",
    .gradient = "pack(g, t)",
    .arity = 2,
    .shape = unpack_shape,
    .forward = unpack_forward,
    .rule = unpack_rule,
    .uses = EG_USES_INTEGERS,
    .samples = unpack_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = unpack_forward,
    .takes = EG_TAKES_ALL,
};
eg_tensor *eg_unpack(eg_tensor *x, eg_tensor *lengths, int64_t positions)
{
    return apply_packing(&unpack_op, x, lengths, positions);
}

const eg_op *const eg__pack_ops[] = { &pack_op, &unpack_op, NULL };
