/* sum.c: c[o] (+)= alpha Σ_k a[o,k] b[o,k] (or alpha Σ_k a[o,k]) where a matrix product would waste
 * its tiles: dots, matrix times vector, reductions, traces. "Along": the axis of the operand with
 * the smallest stride is one of k, and each result is the dot of a row; if that axis has few
 * elements, of a row along the longest axis. "Across": the axis with the smallest stride is a free
 * one, and whole rows are added.
 *
 * Sums are trees, so that the error grows with log k: blocks of a fixed size are combined in pairs,
 * like the carries of a binary counter, and long sums are divided into parts of a fixed number of
 * blocks, which threads share. The tree depends on sizes and strides only. */
#include "contraction/gemm.h"
#include <string.h>

enum { BLOCK = 2048, PART = 32 };     /* along: elements of a block, blocks of a part */
enum { ROWS = 32, PART_ROWS = 4096 }; /* across: rows of a block, rows of a part */
enum { LEVELS = 8 };                  /* a part has at most 2^7 blocks */
enum { FEW = 8, TERMS = 4 };          /* an axis, and a sum, that is not worth a loop along it */
/* Rows in memory are prefetched so many rows before they are converted. */
enum { NEXT = 4 };

/* What the elements of a row of a are multiplied by: nothing, one number of b, a row of b. */
typedef enum sum_factor { NO_FACTOR, NUMBER_FACTOR, ROW_FACTOR } sum_factor;
/* The loops over rows, for one type and one instruction set (sum_rows_of.h) */
typedef struct sum_kernels {
    void (*dots)(int64_t rows, int64_t n, const void *a, int64_t ra, int64_t sa, const void *b,
                 int64_t rb, int64_t sb, void *c, int64_t rc, double alpha, bool add, bool far);
    void (*interleaved)(int columns, int64_t n, const void *a, void *sum);
    void (*block)(sum_factor, int64_t n, int rows, const void *a, const int64_t *at_a,
                  const void *b, const int64_t *at_b, void *c, double alpha, bool add,
                  const int64_t (*next)[ROWS]);
} sum_kernels;
typedef struct plan {
    const sum_kernels *kernels;
    const eg_axes *out;
    eg_axis x;      /* the axis with the smallest stride: of k (along; the longest if that has few
                     * elements), or free (across) */
    eg_axes rest;   /* k without x */
    eg_axes others; /* out without x */
    bool across;
    bool far;           /* the operands do not fit in the cache: rows are prefetched */
    bool rows_in_place; /* across: rows of neighbours, whose offsets the kernel takes */
    bool in_place;      /* across: one block of such rows, into neighbours; at: their offsets */
    int64_t at[2][ROWS];
    int beside;            /* along: neighbouring results that are computed at once, or 1 */
    bool turned;           /* along: blocks of neighbouring rows are computed together */
    int64_t per_row, rows; /* along: blocks per row of x, or (0) rows of x per block */
    int64_t blocks, parts, chunk, chunks, k_total; /* chunk: columns at once (across) */
    eg_dtype dtype, of[2];
    double alpha;
    bool add; /* the sum is added to c */
} plan;
/* Returns the address `by` elements after x in an operand; NULL if x is NULL. */
static const char *sum_from(const plan *p, int which, const char *x, int64_t by)
{
    return x ? x + by * eg__width[p->of[which]] : NULL;
}
/* True if the elements of an operand can be added without a copy: they have the type of the sum,
 * and are contiguous or one repeated element. */
static bool sum_in_place(const plan *p, int which, int64_t step)
{
    return p->of[which] == p->dtype && (step == 0 || step == 1);
}
/* True if all operands are added where they are; b NULL: there is only a. */
static bool sum_reads_in_place(const plan *p, const char *b)
{
    return sum_in_place(p, 0, p->x.sa) && (!b || sum_in_place(p, 1, p->x.sb));
}
/* Returns rows of n elements each, which are *apart elements apart, in the type of the sum: in
 * place, or copied to `memory`, which is contiguous. Sets *apart and *step to theirs. */
static const void *sum_loaded(const plan *p, int which, const char *x, int64_t rows, int64_t n,
                              int64_t *apart, int64_t *step, void *memory)
{
    const int64_t width = eg__width[p->dtype];
    if (!x || sum_in_place(p, which, *step)) return x;
    if (!*step) n = 1;
    if (!*apart) rows = 1;
    if (p->of[which] != p->dtype)
        eg__widen_rows(p->dtype, p->of[which], rows, n, x, *apart, *step, memory,
                       p->far ? NEXT * *apart : 0);
    else
        for (int64_t r = 0; r < rows; r++)
            eg__move((int)width, n, (char *)memory + r * n * width, width, x + r * *apart * width,
                     *step * width);
    *apart = *apart ? n : 0;
    *step = *step ? 1 : 0;
    return memory;
}

static sum_factor sum_factor_of(const plan *p, const char *b)
{
    return !b ? NO_FACTOR : p->x.sb ? ROW_FACTOR : NUMBER_FACTOR;
}
/* Writes the offsets of rows `from` … from + rows − 1 of an across sum in both operands; b may be
 * NULL. */
static void sum_row_offsets(const plan *p, const char *b, int64_t from, int rows,
                            int64_t at[2][ROWS])
{
    eg__offsets(&p->rest, EG_OF_A, from, rows, at[0]);
    if (b) eg__offsets(&p->rest, EG_OF_B, from, rows, at[1]);
}

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
typedef float four_f32 __attribute__((vector_size(16)));
typedef double four_f64 __attribute__((vector_size(32)));
#define TEMPLATE "contraction/sum_types_of.h"
#include "tensor/each_set_of.h"

static const sum_kernels *sum_kernels_for(eg_dtype dtype)
{
    static const sum_kernels *const all[2][3] = { EG_OF_EACH_SET(kernels_f32),
                                                  EG_OF_EACH_SET(kernels_f64) };
    return all[dtype == EG_F64][eg__kernel_isa()];
}

#define REAL    float
#define NAME(x) x##_f32
#include "contraction/sum_of.h"
#define REAL    double
#define NAME(x) x##_f64
#include "contraction/sum_of.h"

/* Returns l without its axis `at`; the axes are stored in `axes`. */
static eg_axes sum_without(const eg_axes *l, int at, eg_axis *axes)
{
    eg_axes r = { .n = 0, .total = 1, .axis = axes };
    for (int i = 0; i < l->n; i++)
        if (i != at) {
            axes[r.n++] = l->axis[i];
            r.total *= l->axis[i].size;
        }
    return r;
}
/* Returns l with one more axis outside of it; the axes are stored in `axes`. */
static eg_axes sum_outside(const eg_axis *x, const eg_axes *l, eg_axis *axes)
{
    axes[0] = *x;
    if (l->n) memcpy(axes + 1, l->axis, (size_t)l->n * sizeof *axes);
    return (eg_axes){ .n = l->n + 1, .total = l->total * x->size, .axis = axes };
}
/* Returns the axis with the smallest stride in a among those of at least that size; −1: none. */
static int sum_nearest(const eg_axes *l, int64_t size)
{
    int best = -1;
    for (int i = 0; i < l->n; i++)
        if (l->axis[i].sa && l->axis[i].size >= size &&
            (best < 0 || eg__abs64(l->axis[i].sa) < eg__abs64(l->axis[best].sa)))
            best = i;
    return best;
}

/* Returns the number of the longest axis, `at` if none is longer; sets *other to whether it is
 * another one. */
static int sum_longest(const eg_axes *l, int at, bool *other)
{
    const int before = at;
    for (int i = 0; i < l->n; i++)
        if (l->axis[i].size > l->axis[at].size) at = i;
    *other = at != before;
    return at;
}

/* True if the elements of a do not fit in the cache; they may overlap. */
static bool sum_is_far(const plan *p, const eg_axes *k)
{
    int64_t n = eg__width[p->of[0]];
    for (int i = 0; i < k->n; i++) n *= k->axis[i].sa ? k->axis[i].size : 1;
    for (int i = 0; i < p->out->n; i++) n *= p->out->axis[i].sa ? p->out->axis[i].size : 1;
    return n > EG_CACHED_BYTES;
}
/* Chooses between along and across, divides the sum into blocks and parts, and computes it.
 * `copies`, unless it is NULL, is the outermost axis of the result, and has no influence on the
 * choice. False after an error. */
bool eg__sum(eg_ctx *cx, eg_dtype dtype, const eg_dtype of[2], const eg_axes *out, const eg_axes *k,
             const eg_axis *copies, const void *a, const void *b, void *c, double alpha, bool add)
{
    eg_axis axes[EG_PAIR_AXES], axes_others[EG_PAIR_AXES], axes_out[EG_PAIR_AXES];
    plan p = { .kernels = sum_kernels_for(dtype),
               .out = out,
               .k_total = k->total,
               .dtype = dtype,
               .beside = 1,
               .of = { of[0], of[1] },
               .alpha = alpha,
               .add = add };
    int xk = sum_nearest(k, 1), xo = sum_nearest(out, 1);
    /* of an operand that is expanded along all of k, rows are added as those of its copy are */
    const int64_t of_out = xo < 0 ? INT64_MAX : eg__abs64(out->axis[xo].sa),
                  of_k = xk < 0 && !b ? INT64_MAX
                         : xk < 0     ? 0
                                      : eg__abs64(k->axis[xk].sa);
    if (xk < 0) xk = k->n - 1;
    /* the strides of overlapping windows and of the positions in a window may be equal */
    p.across =
        xo >= 0 && (of_out < of_k || (of_out == of_k && out->axis[xo].size > k->axis[xk].size));
    /* a sum of few terms pays for a copy of each row */
    if (p.across ? out->axis[xo].size < FEW : k->total <= TERMS) {
        xo = sum_nearest(out, FEW);
        p.across = xo >= 0 && k->total <= ROWS;
    }
    if (p.across) {
        p.x = out->axis[xo];
        p.others = sum_without(out, xo, axes_others);
        p.rest = *k;
        p.parts = (k->total + PART_ROWS - 1) / PART_ROWS;
    } else {
        if (k->axis[xk].size < FEW) xk = sum_longest(k, xk, &p.turned);
        p.x = k->axis[xk];
        p.rest = sum_without(k, xk, axes);
        p.per_row = p.x.size >= BLOCK ? (p.x.size + BLOCK - 1) / BLOCK : 0;
        p.rows = p.per_row ? 0 : BLOCK / p.x.size;
        p.blocks = p.per_row ? p.rest.total * p.per_row : (p.rest.total + p.rows - 1) / p.rows;
        p.parts = (p.blocks + PART - 1) / PART;
    }
    p.far = sum_is_far(&p, k);
    const eg_axis *last = out->n ? &out->axis[out->n - 1] : NULL;
    if (!p.across && (p.per_row || k->n == 1) && !b && of[0] == dtype && last && last->sa == 1 &&
        last->size > 1 && last->size < FEW && p.x.sa == last->size)
        p.beside = (int)last->size;
    const bool b_in_place = !b || sum_in_place(&p, 1, p.x.sb);
    p.rows_in_place = p.across && of[0] == dtype && p.x.sa == 1 && b_in_place;
    p.in_place = p.rows_in_place && p.x.sc == 1 && p.rest.total <= ROWS;
    if (p.in_place) sum_row_offsets(&p, b, 0, (int)p.rest.total, p.at);
    const eg_axes all = copies ? sum_outside(copies, out, axes_out) : *out;
    if (copies) {
        eg_axes *o = &p.others;
        p.out = &all;
        if (p.across) {
            memmove(o->axis + 1, o->axis, (size_t)o->n * sizeof *o->axis);
            o->axis[0] = *copies;
            o->n++, o->total *= copies->size;
        }
    }
    return dtype == EG_F64 ? run_f64(cx, &p, a, b, c) : run_f32(cx, &p, a, b, c);
}
