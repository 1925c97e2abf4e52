/* opt_loops.c: the loops of an optimiser's step over elements, chunk by chunk on all threads. The
 * bits of a chunk do not depend on the thread or rank that computes it. */
#include "opt.h"
#include <string.h>

/* estimated time for one element, in nanoseconds */
static const double norm_ns = 0.15, update_ns = 0.6;

/* A loop over chunks, and over the copies of a chunk, which follow each other in memory: a piece is
 * one chunk of some copies. */
enum { PIECE_COPIES = 16 };
typedef struct opt_loop {
    const eg_opt *op;    /* points to the numbers of the first copy */
    int64_t from;        /* the first chunk */
    int64_t parts;       /* pieces of a chunk */
    double limit, scale; /* of opt_norm_piece */
} opt_loop;
static opt_loop opt_loop_of(const eg_opt *op)
{
    return (opt_loop){ .op = op,
                       .from = eg__opt_chunks(op).from,
                       .parts = (op->copies + PIECE_COPIES - 1) / PIECE_COPIES };
}
static int64_t opt_pieces(const opt_loop *l)
{
    return (eg__opt_chunks(l->op).to - l->from) * l->parts;
}
/* A piece: its chunk, the chunk's parameter and numbers in the first copy, and its copies. */
typedef struct opt_part {
    int64_t chunk;
    int k;
    eg_span s, copies;
} opt_part;
static opt_part opt_part_of(const opt_loop *l, int64_t piece)
{
    const eg_opt *op = l->op;
    const int64_t part = l->parts > 1 ? piece % l->parts : 0,
                  chunk = l->from + (l->parts > 1 ? piece / l->parts : piece);
    const int k = op->parameter[chunk];
    const int64_t from = (chunk - op->first[k]) * EG__CHUNK, to = from + EG__CHUNK,
                  first = part * PIECE_COPIES, end = first + PIECE_COPIES;
    return (opt_part){ chunk,
                       k,
                       { from, to < op->size[k] ? to : op->size[k] },
                       { first, end < op->copies ? end : op->copies } };
}
/* Returns how many numbers this rank has, of all copies. */
static double opt_count(const eg_opt *op)
{
    double n = 0;
    for (int k = 0; k < op->count; k++) {
        const eg_span own = eg__opt_own(op, k);
        n += (double)(own.to - own.from);
    }
    return n * (double)op->copies;
}

/* Measures a piece of the gradients. */
static void opt_norm_piece(void *user, int64_t piece)
{
    const opt_loop *l = user;
    const eg_opt *op = l->op;
    const opt_part p = opt_part_of(l, piece);
    const int64_t n = p.s.to - p.s.from;
    const void *g = op->at[p.k];
    const bool wide = op->wide[p.k];
    for (int64_t copy = p.copies.from; g && copy < p.copies.to; copy++) {
        const eg_opt *own = op->each ? op->each[copy] : op;
        const int64_t at = copy * op->size[p.k] + p.s.from;
        const eg__norms one = wide ? eg__norms_f64(n, (const double *)g + at, l->limit, l->scale)
                                   : eg__norms_f32(n, (const float *)g + at, l->limit, l->scale);
        own->squares[p.chunk] = one.squares, own->largest[p.chunk] = one.largest;
    }
}
void eg__opt_norms(eg_opt *op, double limit, double scale)
{
    opt_loop l = opt_loop_of(op);
    l.limit = limit, l.scale = scale;
    for (int64_t c = 0; c < op->copies; c++)
        memset(eg__opt_at(op, c)->squares, 0,
               (size_t)op->first[op->count] * 2 * sizeof *op->squares);
    eg_parallel(op->cx, opt_pieces(&l), norm_ns * opt_count(op), opt_norm_piece, &l);
}

/* Updates a piece of the parameters, and of their moments, which begin with this rank's first
 * number. */
static void opt_update_piece(void *user, int64_t piece)
{
    const opt_loop *l = user;
    const eg_opt *op = l->op;
    const opt_part p = opt_part_of(l, piece);
    const int64_t n = p.s.to - p.s.from, skip = eg__opt_own(op, p.k).from;
    const void *g = op->at[p.k];
    void *const *to = op->to + p.k * (1 + EG__MOMENTS);
    const bool wide = op->wide[p.k];
    for (int64_t copy = p.copies.from; g && copy < p.copies.to; copy++) {
        const eg_opt *own = op->each ? op->each[copy] : op;
        const eg__coefficients *c = &own->c[own->same[p.k]];
        const int64_t at = copy * op->size[p.k] + p.s.from;
        double *f64[EG__MOMENTS];
        float *f32[EG__MOMENTS];
        for (int m = 0; m < EG__MOMENTS && wide; m++)
            f64[m] = to[1 + m] ? (double *)to[1 + m] + at - skip : NULL;
        for (int m = 0; m < EG__MOMENTS && !wide; m++)
            f32[m] = to[1 + m] ? (float *)to[1 + m] + at - skip : NULL;
        if (wide)
            op->kind->f64(n, c, (double *)to[0] + at, (const double *)g + at, f64);
        else
            op->kind->f32(n, c, (float *)to[0] + at, (const float *)g + at, f32);
    }
}
void *eg__opt_numbers(eg_tensor *x)
{
    if (x && eg_copies_of(x)) x = eg_copies_stack(x);
    return !x ? NULL : eg_type(x) == EG_F64 ? (void *)eg_mut_f64(x) : (void *)eg_mut_f32(x);
}
bool eg__opt_targets(eg_opt *op)
{
    if (op->kind->rule) return true;
    for (int k = 0; k < op->count; k++) {
        const eg_span mine = eg__opt_own(op, k);
        void **at = op->to + k * (1 + EG__MOMENTS);
        if (!op->at[k] || mine.from == mine.to) continue;
        at[0] = eg__opt_numbers(op->x[k]);
        if (eg_error(op->cx)) /* a parameter that cannot be written to, such as a shared one */
            return eg_fail_in(op->cx, "%s: \"%s\"", op->kind->name, op->name[k]), false;
        for (int m = 0; m < EG__MOMENTS && !op->each; m++)
            at[1 + m] = eg__opt_numbers(op->moment[m][k]);
    }
    return !eg_error(op->cx);
}
bool eg__opt_apply(eg_opt *op)
{
    if (op->kind->rule) return eg__rule_apply(op);
    opt_loop l = opt_loop_of(op);
    eg_parallel(op->cx, opt_pieces(&l), update_ns * opt_count(op), opt_update_piece, &l);
    return true;
}
