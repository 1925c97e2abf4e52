/* contraction.h: sums of products on numbered axes. Strings are the business of lib/notation and
 * lib/einsum; here an axis is a size and its strides.
 *
 *   program.c      labels, sizes, strides: the order, what each pair leaves, how it is done; and
 * doing it order.c        which pair next: exact for few operands, greedy beyond pair.c         two
 * operands: fuse axes, classify batch / m / n / k, choose a kernel gemm.c         packing from any
 * strides into micro-panels, blocking direct.c       small products without packing; inner_batch.c:
 * batches that lie nearest map.c, sum.c, plain.c   what is no product: copies, reductions, other
 * types blis.c         the only file that knows BLIS: a micro-kernel, its register block, its name
 */
#ifndef EG_CONTRACTION_H
#define EG_CONTRACTION_H
#include "tensor/tensor.h"
#include <eingrad/einsum.h>

/* operands; different labels of one contraction */
enum { EG_EINSUM_MAX = 64, EG_LABEL_MAX = 512 };

/* -- pair.c: c = Σ a b (+ c if add). An axis is described by its size and its stride in each
 * operand (0 where absent). Strides in elements. An axis with sc ≠ 0 or size kept is free or batch,
 * one in neither a nor b nor… is refused by assert. */
typedef struct eg_axis {
    int64_t size, sa, sb, sc;
    bool in_a, in_b, in_c;
} eg_axis;
bool eg__pair(eg_ctx *, eg_dtype, int axes, const eg_axis *axis, const void *a, const void *b,
              void *c, bool add);
/* b NULL: c = Σ a, a pure reduction / transposition / copy / diagonal. The same in two parts, with
 * the same bits: */
typedef struct eg_pairing eg_pairing;
typedef enum eg_pair_kind {
    EG_PAIR_NOTHING,
    EG_PAIR_ZERO,
    EG_PAIR_PLAIN,
    EG_PAIR_MAP,
    EG_PAIR_SUM,
    EG_PAIR_DIRECT,
    EG_PAIR_PACKED,
    EG_PAIR_INNER_BATCH
} eg_pair_kind;
eg_pair_kind eg__pair_kind(const eg_pairing *);
bool eg__pair_copies(const eg_pairing *); /* EG_PAIR_DIRECT: strips of an operand? */
size_t eg__pairing_bytes(int axes);
/* in room of that size; at most 3 · EG_RANK_MAX axes */
void eg__pairing(eg_pairing *, eg_dtype dtype, int axes, const eg_axis *axis, bool two);
bool eg__pair_run(eg_ctx *, const eg_pairing *, const void *a, const void *b, void *c, bool add);

/* -- order.c: the sequence of pairs
 * Step s contracts pairs[s] into operand number n + s; there are n − 1 steps (n = 1: none). A step
 * keeps the labels that a later operand or out has and sums the others; labels that one operand
 * alone has are summed in it first (eg__pair does so by itself). Exact up to EG_ORDER_EXACT
 * operands, greedy with local exact repair beyond. False if n is not 1 … EG_EINSUM_MAX, or if no
 * order was found whose intermediate results (not the last) all have at most `limit` elements (0:
 * no limit). No allocation. */
enum { EG_ORDER_EXACT = 10 };
typedef struct eg_labelset {
    uint64_t bits[EG_LABEL_MAX / 64];
} eg_labelset;
/* opt_einsum's count (a first sum counts its operand once); elements of the largest intermediate */
typedef struct eg_cost {
    double flops, largest;
} eg_cost;
bool eg__order(int n, const eg_labelset *ops, const eg_labelset *out, const double *size,
               double limit, int (*pairs)[2], eg_cost *cost);

/* -- blis.c ----------------------------------------------------------------------------------- */
enum { EG_KERNEL_SIDE = 64 }; /* no register block is larger */
/* c[mr×nr] (+)= Σ_p a[p·mr + i] b[p·nr + j]; a, b packed panels, 64-byte aligned */
typedef struct eg_kernel {
    const char *name; /* "skx", "haswell", "plain C" */
    int mr, nr;
    bool rows; /* prefers to store c by rows (cs = 1) */
    void (*run)(const struct eg_kernel *, int64_t k, const void *a, const void *b, bool add,
                void *c, int64_t rs, int64_t cs);
    void *ukr, *cntx;
} eg_kernel;
typedef enum eg_isa { EG_ISA_PLAIN, EG_ISA_AVX2, EG_ISA_AVX512 } eg_isa;
/* chosen once per process from CPUID and BLIS_ARCH_TYPE; never NULL */
const eg_kernel *eg__kernel(eg_dtype);
eg_isa eg__kernel_isa(void);      /* what our own kernels may use */
const char *eg__kernel_why(void); /* one sentence: what was chosen and why */

/* -- pack.c: operands of a micro-kernel, from any strides ------------------------------------- */
/* One micro-panel: dst[p·w + i] = src[off[i] + k(p)] for p < k, i < w; rows from `rows` on are 0.
 * rs: the constant step of off, or any number that it is not. */
/* k: element `at`, n of them, `stride` apart */
typedef struct eg_run {
    int64_t at, n, stride;
} eg_run;
void eg__pack(size_t width, int w, int64_t rows, const int64_t *off, int64_t rs, int runs,
              const eg_run *run, const void *src, void *dst, int64_t k);

/* -- program.c: what is to be done … ---------------------------------------------------------- */
/* strides in elements */
typedef struct eg_labelled {
    int rank;
    const int64_t *dim, *stride;
    const uint16_t *label;
} eg_labelled;
typedef struct eg_order_args {
    int64_t limit;        /* bytes of the largest intermediate; 0: any; EG_OFF: none at all */
    int steps;            /* of path; −1: no path, the order is searched */
    const int (*path)[2]; /* NumPy's: places among those that are left, results are appended */
} eg_order_args;
typedef struct eg_contraction {
    eg_dtype dtype;
    int count;
    const eg_labelled *x, *out;
    eg_order_args order;
} eg_contraction;

/* … the same as sets of labels (a repeated label is a diagonal: one label, the sum of its strides),
 * with the order of pairs: step s makes number count + s, the last one the result … */
typedef struct eg_side {
    int n;
    uint16_t label[EG_RANK_MAX];
    int64_t size[EG_RANK_MAX], stride[EG_RANK_MAX];
} eg_side;
typedef struct eg_draft {
    const eg_contraction *task;
    int steps, pair[EG_EINSUM_MAX][2];    /* pair[s][1] is −1 for one operand alone */
    int64_t at[EG_EINSUM_MAX];            /* where step s puts an intermediate: bytes */
    size_t room, largest;                 /* bytes of all intermediates, of the largest */
    eg_side side[2 * EG_EINSUM_MAX], out; /* operands, then intermediates */
} eg_draft;
bool eg__draft(eg_ctx *, const eg_contraction *, eg_draft *); /* false after a message */
const eg_side *eg__draft_result(const eg_draft *, int step);
/* at most 3 · EG_RANK_MAX; axis may be NULL */
int eg__draft_axes(const eg_draft *, int step, eg_axis *axis);

/* … and as pairings. */
typedef struct eg_program_step {
    const eg_pairing *pairing;
    int a, b;
    int64_t at;
} eg_program_step;
typedef struct eg_program {
    int count, steps;
    size_t room;
    const eg_pairing *clear; /* NULL, or: the result is a diagonal in zeros */
    bool empty;
    eg_program_step step[];
} eg_program;
size_t eg__program_bytes(const eg_draft *);
eg_program *eg__program(void *room, const eg_draft *); /* points into itself */
bool eg__program_run(eg_ctx *, const eg_program *, const void *const *x, void *out, bool add);
#endif
