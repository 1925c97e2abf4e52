/* contraction.h: sums of products over numbered axes. Strings are handled in lib/notation and
 * lib/einsum; here an axis is a size and its strides.
 *
 *   program.c      from labels, sizes and strides to the order of pairs and each pair; running them
 *   order.c        the order of pairs: exact for few operands, greedy for more
 *   pair.c         two operands: which axes are batch, m, n and k, and which file computes it:
 *   gemm.c           large products: packs blocks of any strides into micro-panels
 *   direct.c         small products, without packing
 *   inner_batch.c    products whose batch axes have the smallest strides
 *   widen.c          f16 and bf16 operands, which are converted when they are read
 *   map.c            elementwise products and copies, without a sum
 *   sum.c            dots, matrix times vector, reductions
 *   parts.c          products of complex numbers, as products of their parts
 *   integers.c       products of matrices of integers
 *   plain.c          other integers, and the other complex numbers
 *   blis.c         a micro-kernel of BLIS; the only file that uses BLIS */
#ifndef EG_CONTRACTION_H
#define EG_CONTRACTION_H
#include "tensor/tensor.h"
#include <eingrad/einsum.h>

/* EG_EINSUM_MAX: largest number of operands. EG_LABEL_MAX: of different labels in one
 * contraction. */
enum { EG_EINSUM_MAX = 64, EG_LABEL_MAX = 512 };

/* -- pair.c: c = Σ a b ------------------------------------------------------------------------ */
/* An axis of two operands and a result: its size, and its stride in each, in elements. in_a, in_b
 * and in_c say which of them have the axis; the strides of the others are ignored. An axis that c
 * does not have is summed over. No axis may be in c alone. */
typedef struct eg_axis {
    int64_t size;
    union {
        struct {
            int64_t sa, sb, sc;
        };
        int64_t step[3]; /* the same, by operand */
    };
    bool in_a, in_b, in_c;
} eg_axis;
/* The plan for a pair of operands: everything that depends on sizes and strides only. */
typedef struct eg_pairing eg_pairing;
/* How it is computed. */
typedef enum eg_pair_kind {
    EG_PAIR_NOTHING,    /* the result is empty */
    EG_PAIR_ZERO,       /* a sum over no elements */
    EG_PAIR_PLAIN,      /* plain.c */
    EG_PAIR_MAP,        /* map.c */
    EG_PAIR_SUM,        /* sum.c */
    EG_PAIR_DIRECT,     /* direct.c */
    EG_PAIR_PACKED,     /* gemm.c */
    EG_PAIR_INNER_BATCH /* inner_batch.c */
} eg_pair_kind;
size_t eg__pairing_bytes(eg_dtype, int axes);
/* A function that is called for elements of a result as soon as their sums are complete, while they
 * are in the first-level cache: for `rows` rows of n contiguous elements, `step` elements apart, of
 * which the first is at c. It runs on the thread that computed them. */
typedef struct eg_finish {
    void (*run)(const struct eg_finish *, void *c, int64_t n, int64_t rows, int64_t step);
    /* Bytes from c to other arrays with the layout of c, which run() reads or writes too; 0: none.
     * They are prefetched while the sums are computed. */
    int64_t beside[2];
} eg_finish;
/* Makes a pairing of at most 3 · EG_RANK_MAX axes, in memory of eg__pairing_bytes bytes. two:
 * false if there is no operand b; it is then a reduction, a copy, a transpose or a diagonal. of:
 * the operands' dtypes, each either dtype or, if dtype is of floats, f16 or bf16; NULL if both are
 * dtype. */
void eg__pairing(eg_pairing *, eg_dtype dtype, const eg_dtype of[2], int axes, const eg_axis *axis,
                 bool two);
/* Sets the pointers of p, whose bytes are a copy of those of `from`, to p's own lists. */
void eg__pairing_moved(eg_pairing *p, const eg_pairing *from);
/* Computes c = alpha Σ a b, or c += if `add`; Σ a if b is NULL. alpha is an integer if c has
 * integers. finish: NULL, or called for all of c if eg__pair_finishes. False after an error. */
bool eg__pair_run(eg_ctx *, const eg_pairing *, const void *a, const void *b, void *c, double alpha,
                  bool add, const eg_finish *finish);
/* The distances in bytes of the copies of an operand or result; 0 if all copies use the same
 * one. */
typedef struct eg_copy_steps {
    int64_t count; /* number of copies */
    const int64_t *x;
    int64_t out;
} eg_copy_steps;
/* Computes the same bits as eg__pair_run once for each copy, with one call of the kernel if that
 * takes batches. False after an error. */
bool eg__pair_run_copies(eg_ctx *, const eg_pairing *, const eg_copy_steps *, const void *a,
                         const void *b, void *c, double alpha, const eg_finish *finish);
/* True if the product is computed tile by tile; only such a product calls a finish. */
bool eg__pair_finishes(const eg_pairing *);
/* eg__pairing and eg__pair_run in one call. */
bool eg__pair(eg_ctx *, eg_dtype, int axes, const eg_axis *axis, const void *a, const void *b,
              void *c, double alpha, bool add);
eg_pair_kind eg__pair_kind(const eg_pairing *);
/* Returns the multiply-adds as eg_usage counts them, including terms that are summed without a
 * multiplication; sets *terms to the number of these. */
double eg__pair_work(int n, const eg_axis *, bool two, double *terms);
bool eg__pair_copies(const eg_pairing *); /* EG_PAIR_DIRECT: true if strips of a are copied first */

/* -- order.c: the sequence of pairs ----------------------------------------------------------- */
/* Finds an order of n operands: step s contracts pairs[s] into operand number n + s, and there are
 * n − 1 steps. A step keeps the labels that a later operand or `out` has and sums over the others;
 * labels that only one operand has are summed over first. The order is optimal up to EG_ORDER_EXACT
 * operands; for more, it is found by a greedy search that is then improved. False if n is not 1 …
 * EG_EINSUM_MAX, or if every order that was found has an intermediate of more than `limit` elements
 * (0: no limit). Allocates nothing: memory has eg__order_bytes(n) bytes. */
enum { EG_ORDER_EXACT = 10 };
size_t eg__order_bytes(int n);
typedef struct eg_labelset {
    uint64_t bits[EG_LABEL_MAX / 64];
} eg_labelset;
typedef struct eg_cost {
    double work;    /* multiply-adds, and terms summed without a multiplication: order.c */
    double largest; /* elements of the largest intermediate */
} eg_cost;
bool eg__order(int n, const eg_labelset *ops, const eg_labelset *out, const double *size,
               double limit, int (*pairs)[2], eg_cost *cost, void *memory);
/* eg__order for cotangents: replaces the pairs, a tree within the limit, by the tree whose products
 * give the cotangents of the wanted operands (bit k for operand k) with the fewest multiply-adds;
 * returns these. keep: sets of operands whose contraction exists already. The tree is optimal up to
 * EG_ORDER_EXACT operands. The given pairs are kept if none are cheaper. */
double eg__order_cotangents(int n, const eg_labelset *ops, const eg_labelset *out,
                            const double *size, double limit, uint64_t wanted, int kept,
                            const uint64_t *keep, int (*pairs)[2], void *memory);

/* -- blis.c ----------------------------------------------------------------------------------- */
enum { EG_KERNEL_SIDE = 64 }; /* no register block has a longer side */
/* c[mr×nr] (+)= alpha Σ_p a[p·mr + i] b[p·nr + j]; a and b are packed panels, aligned to 64
 * bytes */
typedef struct eg_kernel {
    const char *name; /* "skx", "haswell", "plain C" */
    int mr, nr;       /* its register block */
    bool rows;        /* it is fastest if it stores c by rows (cs = 1), else by columns (rs = 1) */
    void (*run)(const struct eg_kernel *, int64_t k, double alpha, const void *a, const void *b,
                bool add, void *c, int64_t rs, int64_t cs);
    void *ukr, *cntx;
} eg_kernel;
typedef enum eg_isa { EG_ISA_PLAIN, EG_ISA_AVX2, EG_ISA_AVX512 } eg_isa;
/* Returns the kernel, which is chosen once per process from CPUID and BLIS_ARCH_TYPE; never
 * NULL. */
const eg_kernel *eg__kernel(eg_dtype);
eg_isa eg__kernel_isa(void);      /* the instruction set of the library's own kernels */
const char *eg__kernel_why(void); /* a sentence: what was chosen and why */

/* -- pack.c: operands of a micro-kernel, from any strides ------------------------------------- */
/* A run of k in an operand: n elements from `at` on, `stride` apart. */
typedef struct eg_run {
    int64_t at, n, stride;
} eg_run;
/* Writes one micro-panel: dst[p·w + i] = src[off[i] + k(p)] for p < k and i < w; 0 in rows from
 * `rows` on. rs: the difference of neighbouring off[i] if it is constant, else a number that no
 * difference is. */
void eg__pack(size_t width, int w, int64_t rows, const int64_t *off, int64_t rs, int runs,
              const eg_run *run, const void *src, void *dst, int64_t k);

/* -- memory that is prefetched while something else is computed ------------------------------- */
/* The cache lines of a matrix that is read later; they are prefetched while something else is
 * computed: of each row, `step` bytes apart, `lines` lines, `line` bytes apart. Those before line
 * `at` of the first row have been prefetched. */
typedef struct eg_ahead {
    const char *row;
    int64_t rows, step, lines, line, at;
} eg_ahead;
static inline int64_t eg__ahead_lines(const eg_ahead *x) { return x->rows * x->lines; }
/* Prefetches the next lines of x, to the first-level cache if `near`, which is a constant, else to
 * the second. Returns how many of `lines` are left after the last one. */
EG_INLINE int64_t eg__ahead_prefetch(eg_ahead *x, int64_t lines, const bool near)
{
    while (lines > 0 && x->rows > 0) {
        const int64_t n = eg__min64(lines, x->lines - x->at), line = x->line;
        const char *from = x->row + x->at * line;
        for (int64_t i = 0; i < n; i++)
            if (near)
                __builtin_prefetch(from + i * line, 0, 3);
            else
                __builtin_prefetch(from + i * line, 0, 2);
        lines -= n;
        x->at += n;
        if (x->at < x->lines) break;
        x->at = 0;
        x->row += x->step;
        x->rows--;
    }
    return lines;
}
/* Up to EG_AHEAD_MOST matrices that are read one after another, and the number of all their lines
 * that have not been prefetched. */
enum { EG_AHEAD_MOST = 3 };
typedef struct eg_ahead_list {
    int64_t lines;
    eg_ahead of[EG_AHEAD_MOST];
} eg_ahead_list;
/* Replaces matrix k. */
static inline void eg__ahead_put(eg_ahead_list *next, int k, eg_ahead x)
{
    next->of[k] = x;
    next->lines = 0;
    for (int i = 0; i < EG_AHEAD_MOST; i++)
        next->lines += eg__ahead_lines(&next->of[i]) - next->of[i].at;
}
/* Prefetches the next `lines` lines, or as many as there are. */
static inline void eg__ahead_list_prefetch(eg_ahead_list *next, int64_t lines)
{
    lines = eg__min64(lines, next->lines);
    next->lines -= lines;
    for (int k = 0; lines > 0; k++) lines = eg__ahead_prefetch(&next->of[k], lines, false);
}

/* -- direct.c: products of tiles that stay in the packed layout -------------------------------- */
/* c[column][wide] (+)= Σ_p a[p][wide] b[column/narrow][p][column%narrow], for p < depth. The number
 * of columns is rounded up to whole panels, which are b_step bytes apart in b. Meanwhile the lines
 * of `next` are prefetched (NULL: none): one for every EG_AHEAD_TERMS terms of columns. */
enum { EG_AHEAD_TERMS = 128 };
typedef struct eg_panel_kernel {
    int wide, narrow;
    void (*run)(const struct eg_panel_kernel *, int64_t depth, const void *a, const void *b,
                int64_t b_step, int64_t columns, bool add, void *c, eg_ahead_list *next);
    const eg_kernel *kernel;
    int64_t tile_bytes; /* of narrow columns of c */
} eg_panel_kernel;
eg_panel_kernel eg__panel_kernel(eg_dtype);

/* -- program.c -------------------------------------------------------------------------------- */
/* A tensor without values whose axes have labels; strides in elements. */
typedef struct eg_labelled {
    int rank;
    const int64_t *dim, *stride;
    const uint16_t *label;
} eg_labelled;
typedef struct eg_order_args {
    int64_t limit;        /* bytes of the largest intermediate; 0: any; EG_OFF: no intermediate */
    int64_t keep_limit;   /* bytes kept for the gradient; 0 for any; EG_OFF for nothing */
    int steps;            /* of path; −1 if there is no path and the order is searched */
    const int (*path)[2]; /* as NumPy's: positions among the operands left; results are appended */
    bool numbered;        /* path has operand numbers instead, as eg_draft.pair */
} eg_order_args;
/* A contraction to compute. */
typedef struct eg_contraction {
    eg_dtype dtype;     /* the dtype as which operands are read */
    const eg_dtype *of; /* by operand: dtype, or f16 or bf16; NULL if all are dtype */
    int count;
    const eg_labelled *x, *out;
    eg_order_args order;
} eg_contraction;

/* Returns the first position of a label among n labels; −1 if it is not among them. */
static inline int eg__label_at(const uint16_t *label, int n, uint16_t what)
{
    for (int k = 0; k < n; k++)
        if (label[k] == what) return k;
    return -1;
}

/* An operand as a set of labels. A label that an operand repeats is one axis, its diagonal, whose
 * stride is the sum of the strides. */
typedef struct eg_side {
    int n;
    uint16_t label[EG_RANK_MAX];
    int64_t size[EG_RANK_MAX], stride[EG_RANK_MAX];
} eg_side;
/* A contraction with its order of pairs: step s computes number count + s; the last step computes
 * the result. */
typedef struct eg_draft {
    const eg_contraction *task;
    int steps, pair[EG_EINSUM_MAX][2];    /* pair[s][1] is −1 for a single operand */
    int64_t at[EG_EINSUM_MAX];            /* offset of the intermediate of step s in bytes */
    size_t intermediates, largest;        /* bytes of all intermediates, of the largest one */
    eg_side side[2 * EG_EINSUM_MAX], out; /* operands, then intermediates */
} eg_draft;
bool eg__draft(eg_ctx *, const eg_contraction *, eg_draft *); /* false after an error */
const eg_side *eg__draft_result(const eg_draft *, int step);
/* Returns the multiply-adds of a step, as eg__pair_work does. terms may be NULL. */
double eg__draft_work(const eg_draft *, int step, double *terms);

/* The part of a draft that is kept in order to use its tree again, for values and cotangents: the
 * pairs, and the labels of their results. It is one block without pointers. */
typedef struct eg_tree_step {
    int16_t a, b;        /* numbers, as in eg_draft */
    int16_t rank, first; /* its labels are those from `first` on */
    int64_t bytes;       /* size of its result */
    uint64_t operands;   /* bit k: operand k is below it */
} eg_tree_step;
typedef struct eg_tree {
    uint64_t number; /* the call that it was planned for, by its number in the context; 0: none */
    int count, steps;
    size_t bytes;  /* of this block */
    bool searched; /* the order was searched, not given */
    uint64_t kept; /* bit s: the result of step s is kept for the gradient */
    eg_tree_step step[];
} eg_tree;
static inline const uint16_t *eg__tree_labels(const eg_tree *t, int step)
{
    return (const uint16_t *)(const void *)(t->step + t->steps) + t->step[step].first;
}
size_t eg__tree_bytes(const eg_draft *);
/* Makes the tree, of two or more operands, in memory of eg__tree_bytes(d) bytes, and marks the
 * values to keep: those that save the most multiply-adds within keep_limit. */
eg_tree *eg__tree(void *memory, const eg_draft *);
/* Sets the pairs to a tree of the same operands that gives the wanted cotangents if the `kept`
 * values of the tree exist; returns its multiply-adds, or −1 after an error. */
double eg__tree_cotangents(eg_ctx *, const eg_tree *, const eg_draft *, uint64_t wanted,
                           int (*pair)[2]);

/* A draft as pairings that can be run. */
typedef struct eg_program_step {
    const eg_pairing *pairing;
    int a, b;   /* numbers of operands; b is −1 for a single one */
    int64_t at; /* offset of the intermediate in bytes */
} eg_program_step;
typedef struct eg_program {
    int count, steps;
    size_t intermediates;    /* bytes of all intermediates */
    size_t bytes;            /* of this block */
    const eg_pairing *clear; /* writes zeros first, if the result is a diagonal; else NULL */
    bool empty;              /* the result has no elements */
    eg_program_step step[];
} eg_program;
size_t eg__program_bytes(const eg_draft *);
/* Makes the program in memory of eg__program_bytes(d) bytes. It contains pointers into itself; a
 * copy must be made by eg__program_copy. */
eg_program *eg__program(void *memory, const eg_draft *);
eg_program *eg__program_copy(void *memory, const eg_program *); /* in memory of p->bytes bytes */
/* Computes out = alpha times the contraction of x, or out += if `add`. finish: as in eg__pair_run,
 * for the last pair. kept: by step, where its intermediate is written, NULL if it is not kept; NULL
 * if none is. False after an error. */
bool eg__program_run(eg_ctx *, const eg_program *, const void *const *x, void *out, double alpha,
                     bool add, const eg_finish *finish, void *const *kept);
/* eg__program_run once for each copy, without `add`. False after an error. */
bool eg__program_run_copies(eg_ctx *, const eg_program *, const eg_copy_steps *,
                            const void *const *x, void *out, double alpha, const eg_finish *finish);
bool eg__program_finishes(const eg_program *);
#endif
