/* opt_loops.c: the loops of an optimiser's step over elements, chunk by chunk on all threads. The
 * bits of a chunk do not depend on the thread or rank that computes it. */
#include "opt.h"
#include <string.h>

/* estimated time for one element, in nanoseconds */
static const double norm_ns = 0.15, update_ns = 0.6;

typedef struct opt_loop {
    eg_opt *op;
    int64_t from;              /* number of the first chunk */
    double limit, scale;       /* used by opt_norm_piece */
    const eg__coefficients *c; /* used by opt_update_piece */
} opt_loop;
/* Returns the parameter to which a chunk belongs. */
static int opt_parameter(const eg_opt *op, int64_t chunk)
{
    int low = 0, high = op->count - 1;
    while (low < high) { /* finds the last parameter whose first chunk is not after it */
        const int middle = (low + high + 1) / 2;
        if (op->first[middle] <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
/* Returns the elements of parameter k that are in a chunk. */
static eg_span opt_numbers(const eg_opt *op, int k, int64_t chunk)
{
    const int64_t from = (chunk - op->first[k]) * EG__CHUNK, to = from + EG__CHUNK;
    return (eg_span){ from, to < op->size[k] ? to : op->size[k] };
}
/* Returns how many elements of parameters from ≤ k < to this rank has. */
static double opt_count(const eg_opt *op, int from, int to)
{
    double n = 0;
    for (int k = from; k < to; k++) {
        const eg_span own = eg__opt_own(op, k);
        n += (double)(own.to - own.from);
    }
    return n;
}
static bool opt_wide(const eg_opt *op, int k) { return eg_type(op->x[k]) == EG_F64; }

/* Computes the norms of one chunk of the gradients. */
static void opt_norm_piece(void *user, int64_t piece)
{
    const opt_loop *l = user;
    const eg_opt *op = l->op;
    const int64_t chunk = l->from + piece;
    const int k = opt_parameter(op, chunk);
    const eg_span s = opt_numbers(op, k, chunk);
    if (!op->at[k]) return;
    const eg__norms one =
        opt_wide(op, k)
            ? eg__norms_f64(s.to - s.from, (const double *)op->at[k] + s.from, l->limit, l->scale)
            : eg__norms_f32(s.to - s.from, (const float *)op->at[k] + s.from, l->limit, l->scale);
    op->squares[chunk] = one.squares, op->largest[chunk] = one.largest;
}
void eg__opt_norms(eg_opt *op, double limit, double scale)
{
    const eg_span own = eg__opt_chunks(op);
    opt_loop l = { .op = op, .from = own.from, .limit = limit, .scale = scale };
    memset(op->squares, 0, (size_t)op->first[op->count] * 2 * sizeof *op->squares);
    eg_parallel(op->cx, own.to - own.from, norm_ns * opt_count(op, 0, op->count), opt_norm_piece,
                &l);
}

/* Updates one chunk of the parameters, and of their moments, which begin with this rank's first
 * element. */
static void opt_update_piece(void *user, int64_t piece)
{
    const opt_loop *l = user;
    const eg_opt *op = l->op;
    const int64_t chunk = l->from + piece;
    const int k = opt_parameter(op, chunk);
    const eg_span s = opt_numbers(op, k, chunk), own = eg__opt_own(op, k);
    const int64_t n = s.to - s.from, at = s.from - own.from;
    void *const *to = op->to + k * (1 + EG__MOMENTS);
    if (opt_wide(op, k)) {
        double *moment[EG__MOMENTS];
        for (int m = 0; m < EG__MOMENTS; m++)
            moment[m] = to[1 + m] ? (double *)to[1 + m] + at : NULL;
        op->kind->f64(n, l->c, (double *)to[0] + s.from, (const double *)op->at[k] + s.from,
                      moment);
        return;
    }
    float *moment[EG__MOMENTS];
    for (int m = 0; m < EG__MOMENTS; m++) moment[m] = to[1 + m] ? (float *)to[1 + m] + at : NULL;
    op->kind->f32(n, l->c, (float *)to[0] + s.from, (const float *)op->at[k] + s.from, moment);
}
static void *opt_numbers_of(eg_tensor *x)
{
    return !x ? NULL : eg_type(x) == EG_F64 ? (void *)eg_mut_f64(x) : (void *)eg_mut_f32(x);
}
bool eg__opt_apply(eg_opt *op, const eg__coefficients *c, int from, int to)
{
    const eg_span own = eg__opt_chunks(op);
    const int64_t first = own.from > op->first[from] ? own.from : op->first[from],
                  end = own.to < op->first[to] ? own.to : op->first[to];
    opt_loop l = { .op = op, .from = first, .c = c };
    if (first >= end) return true;
    for (int k = from; k < to; k++) {
        const eg_span mine = eg__opt_own(op, k);
        void **at = op->to + k * (1 + EG__MOMENTS);
        if (mine.from == mine.to) continue;
        at[0] = opt_numbers_of(op->x[k]);
        for (int m = 0; m < EG__MOMENTS; m++) at[1 + m] = opt_numbers_of(op->moment[m][k]);
    }
    if (eg_error(op->cx)) return false;
    eg_parallel(op->cx, end - first, update_ns * opt_count(op, from, to), opt_update_piece, &l);
    return true;
}
