/* gemm.h: the interface between pair.c, which classifies a contraction, and the files that compute
 * it. */
#ifndef EG_GEMM_H
#define EG_GEMM_H
#include "contraction/contraction.h"

enum { EG_PAIR_AXES = 3 * EG_RANK_MAX }; /* the most axes of a pair of operands */
/* k is summed in blocks of this length in every kernel, which gives the same bits. */
enum { EG_KC = 256 };

/* A list of axes, the outermost first, and the product of their sizes (1 if the list is empty). No
 * size is 0 or 1. */
typedef struct eg_axes {
    int n;
    int64_t total;
    eg_axis *axis;
} eg_axes;
/* A kernel of direct.c: c[i + j cn] (+)= alpha Σ_p a[i + p ak] b[p bk + j bn], for i < lanes, p < k
 * and the columns j of the kernel. */
typedef void eg_tile_run(int64_t lanes, int64_t k, const void *a, int64_t ak, const void *b,
                         int64_t bk, int64_t bn, void *c, int64_t cn, double alpha, bool add);
/* A kernel of direct.c for whole tiles, from packed panels of a and b: c[i + j cn] (+)= alpha
 * Σ_p a[p·mr + i] b[p·nr + j]. ahead: ⌊k/EG_AHEAD_EVERY⌋ addresses, each of two lines that are
 * prefetched to the second-level cache, two for that many terms. All at a time they would fill the
 * queue of a core's cache misses, and the loads of a and b would wait. */
enum { EG_AHEAD_EVERY = 4 };
typedef void eg_wide_run(int64_t k, const void *a, const void *b, void *c, int64_t cn, double alpha,
                         bool add, const char *const *ahead);
/* to[i + p·L] = a[i + p·ak] for p < k and i < L, where L is the number of lanes of the kernel's
 * vectors; lanes of them are copied, the others are 0. prefetches: the next L elements of each row
 * are prefetched. */
typedef void eg_copy_run(int64_t lanes, int64_t k, const void *a, int64_t ak, void *to,
                         bool prefetches);
/* Kernels for whole tiles: run computes one; copy packs panels of a whose rows are contiguous. */
typedef struct eg_wide {
    eg_wide_run *run;
    eg_copy_run *copy;
} eg_wide;
/* The number of products of equal shape, and the elements from one to the next in each operand.
 * ahead: elements from their columns of b to those that later ones read (0: none), whose cache
 * lines are prefetched: each product, the first one as number `number`, prefetches half a column.
 */
typedef struct eg_tile_batch {
    int64_t count, a, b, c, ahead, number;
} eg_tile_batch;
/* eg_tile_run for each product of a batch */
typedef void eg_batch_run(const eg_tile_batch *, int64_t lanes, int64_t k, const void *a,
                          int64_t ak, const void *b, int64_t bk, int64_t bn, void *c, int64_t cn,
                          double alpha, bool add);
/* The fewest columns for which direct.c has kernels of batches with rows of a that are far apart */
enum { EG_FAR_LEAST = 6 };
/* Operands of more bytes are taken to come from memory, not from a cache. */
enum { EG_CACHED_BYTES = 1 << 20 };
/* How direct.c computes a product: strips of a times blocks of b, in every batch. */
typedef struct eg_tiling {
    const void *kernels;   /* for this dtype and processor */
    eg_tile_run *tile;     /* computes a whole product of a batch; NULL if it takes several tiles */
    eg_batch_run *batch;   /* computes many of them; NULL if there is no such kernel */
    int64_t strip, strips; /* rows of a strip; strips in a batch */
    int64_t block, blocks; /* columns of a block; blocks in a batch */
    int64_t units;         /* strips × blocks × batches */
    int64_t strip_bytes;   /* bytes for a strip that is copied; 0 if none is */
    bool in_place;         /* a is read in place */
    bool prefetches;       /* its tiles prefetch a */
    bool ahead;            /* prefetching the next batch is worthwhile */
    bool single;           /* one strip, one block, k whole */
    /* So many batches read the same cache lines of b (0: not known). The lines that are read after
     * theirs begin `next` elements further on; after the last ones, `beyond` (0: none). */
    int64_t sharing, next, beyond;
} eg_tiling;
/* c[b,m,n] (+)= alpha Σ_k a[b,m,k] b[b,k,n]. m axes have sb = 0, n axes sa = 0, k axes sc = 0. */
typedef struct eg_gemm {
    eg_dtype dtype; /* of c */
    eg_dtype of[2]; /* of a and b: the same, or f16 or bf16, which are converted */
    eg_axes batch, m, n, k;
    eg_tiling tiling;
    const char *a, *b;
    char *c;
    double alpha;
    bool add;
    const eg_finish *finish; /* NULL if c is not processed afterwards */
} eg_gemm;

/* The sum of an operand over axes that neither the other operand nor c has. It is computed before
 * the product. */
typedef struct eg_unshared {
    eg_axes out, k;
    size_t bytes; /* size of that sum; 0 if there is none */
} eg_unshared;
/* How a product of complex numbers becomes one of their parts (parts.c). */
typedef struct eg_parts_plan {
    int doubled;          /* operand of which the copy has x and i x: EG_OF_A or EG_OF_B */
    int64_t of_c, of_sum; /* distances of the parts in this copy */
    int n[2];             /* axes of the copy of each operand; 0: it is read in place */
    int64_t size[2];      /* numbers in that copy */
    int batches; /* axes of c and both operands along which products are computed in turn */
    eg_axis batch[EG_PAIR_AXES];
    eg_axis copy[2][EG_PAIR_AXES]; /* sa: stride in the operand, sc: in the copy, in numbers */
} eg_parts_plan;
typedef struct eg_parts {
    bool used; /* false: the pairing is no product of complex numbers */
    int doubled;
    int64_t of_c, of_sum;
    int64_t size[2];
    eg_axes copy[2], batch;
} eg_parts;
/* It contains pointers into itself; eg__pairing_moved sets those of a copy. */
struct eg_pairing {
    eg_pair_kind kind;
    bool swap;      /* the kernel's a is the second operand */
    bool once;      /* it is a single product for eg__direct_once, with no sum before it */
    eg_dtype of[2]; /* of the operands in the order of the call */
    uint64_t work;  /* multiply-adds, as eg_usage counts them */
    /* Its a, b and c are not set. If this is not a matrix product, batch has the axes of c, and k
     * those that are summed over. */
    eg_gemm gemm;
    eg_unshared unshared[2]; /* of each operand */
    eg_parts parts;          /* of complex numbers, whose product is one in f64 */
    int axes;
    eg_axis axis[]; /* the axes of all lists */
};

bool eg__gemm(eg_ctx *, const eg_gemm *); /* gemm.c: floats, any m, n, k ≥ 1 */

/* direct.c: products by our own vector kernels, without packing b */
/* True if direct.c can compute the product and is faster than gemm.c: c is contiguous along m,
 * there is one axis each of m, n and k, and not all of them are large. */
bool eg__direct_suits(const eg_gemm *);
/* Returns kernels with the mr and nr of eg__kernel's; NULL if there are none. */
const eg_wide *eg__wide_kernel(eg_dtype);
/* Numbers in a vector, and the most columns of a tile; 0 without a kernel */
int eg__direct_lanes(eg_dtype);
int eg__direct_columns(eg_dtype);
eg_tiling eg__direct_tiling(const eg_gemm *); /* depends on sizes and strides only */
bool eg__direct(eg_ctx *, const eg_gemm *);   /* g->tiling must be set */
/* eg__direct for a single product whose a is read in place (eg_pairing.once): computes the tiles
 * only, on this thread. What is not known before a run is given as arguments, not read from g. */
void eg__direct_once(const eg_gemm *, const void *a, const void *b, void *c, double alpha, bool add,
                     const eg_finish *);
/* c[m[i] + n[j]] (+)= tile[i + j·ts]. stretch[i]: number of consecutive elements of m from i on */
void eg__scatter(size_t width, int64_t rows, int64_t cols, const void *tile, int64_t ts, void *c,
                 const int64_t *m, const int64_t *n, const int64_t *stretch, bool add);
/* inner_batch.c: products whose batch axes have the smallest strides in an operand, so that blocks
 * of it are transposed first */
/* True if g is such a product. Sets *small if its blocks are for direct.c; else they are for
 * gemm.c. */
bool eg__inner_batch_suits(const eg_gemm *, bool *small);
bool eg__inner_batch(eg_ctx *, const eg_gemm *);
/* map.c: products without a sum; sum.c: dots, matrix times vector, reductions. For floats; b may be
 * NULL. copies: NULL, or one more axis of the result, outside of the others; no bit depends on it.
 * False after an error. */
bool eg__map(eg_ctx *, eg_dtype, const eg_dtype of[2], const eg_axes *out, const void *a,
             const void *b, void *c, double alpha, bool add);
bool eg__sum(eg_ctx *, eg_dtype, const eg_dtype of[2], const eg_axes *out, const eg_axes *k,
             const eg_axis *copies, const void *a, const void *b, void *c, double alpha, bool add);
/* widen.c: f16 and bf16 as f32 and f64 */
/* y[r·n + i] = x[r·apart + i·step], of type `to`, for r < rows and i < n. The elements `ahead`
 * after them, unless that is 0, are prefetched. */
void eg__widen_rows(eg_dtype to, eg_dtype from, int64_t rows, int64_t n, const void *x,
                    int64_t apart, int64_t step, void *y, int64_t ahead);
/* eg__pack of elements of type `from`, converted to `to` if that is another type */
void eg__pack_from(eg_dtype to, eg_dtype from, int w, int64_t rows, const int64_t *off, int64_t rs,
                   int runs, const eg_run *run, const void *src, void *dst, int64_t k);
/* True if an operand is narrower than c. */
static inline bool eg__widens(eg_dtype dtype, const eg_dtype of[2])
{
    return of[0] != dtype || of[1] != dtype;
}
/* parts.c: products of complex numbers as one product in f64 */
/* Changes the n axes of a product to those of a product of parts, with the strides of numbers in
 * f64, and sets t. Returns their number; 0, without a change, if plain.c is faster. */
int eg__parts(eg_parts_plan *t, int n, eg_axis *x);
/* Copies the parts of an operand; the axes have sa and sc as in eg_parts_plan. */
void eg__parts_copy(eg_ctx *, const eg_axes *, bool doubled, int64_t of_c, int64_t of_sum,
                    const void *from, double *to);
/* integers.c: products of matrices of i32, i64 and bool; false, without a change, if this is none
 * or plain.c is faster */
bool eg__integers(eg_ctx *, eg_dtype, const eg_axes *out, const eg_axes *k, const void *a,
                  const void *b, void *c, double alpha, bool add);
/* plain.c: any type but f16 and bf16 */
void eg__plain(eg_ctx *, eg_dtype, const eg_axes *out, const eg_axes *k, const void *a,
               const void *b, void *c, double alpha, bool add);

/* -- where the elements of a list of axes lie (tensor/axes.h) ---------------------------------- */
enum { EG_OF_A, EG_OF_B, EG_OF_C, EG_OF_ALL, EG_AXIS_PITCH = sizeof(eg_axis) / sizeof(int64_t) };
typedef union eg_offsets { /* of one element, in each operand, in elements */
    struct {
        int64_t a, b, c;
    };
    int64_t of[EG_OF_ALL];
} eg_offsets;
static inline const int64_t *eg__axis_numbers(const eg_axes *l)
{
    return (const int64_t *)(const void *)l->axis;
}
/* Returns the offsets of element number i. */
static inline eg_offsets eg__offsets_of(const eg_axes *l, int64_t i)
{
    eg_offsets p;
    eg__axes_to(l->n, eg__axis_numbers(l), EG_AXIS_PITCH, EG_OF_ALL, i, NULL, p.of);
    return p;
}
/* Sets off[] to the offsets of elements [from, from + count) in operand `which`: EG_OF_A … */
void eg__offsets(const eg_axes *, int which, int64_t from, int64_t count, int64_t *off);

/* A traversal of consecutive elements from a given one on. */
typedef struct eg_axes_walk {
    const eg_axes *list;
    eg_offsets at;
    int64_t index[EG_PAIR_AXES];
} eg_axes_walk;
static inline void eg__axes_walk_to(eg_axes_walk *w, const eg_axes *l, int64_t i)
{
    w->list = l;
    eg__axes_to(l->n, eg__axis_numbers(l), EG_AXIS_PITCH, EG_OF_ALL, i, w->index, w->at.of);
}
static inline void eg__axes_walk_on(eg_axes_walk *w)
{
    const eg_axes *l = w->list;
    eg__axes_next(l->n, eg__axis_numbers(l), EG_AXIS_PITCH, EG_OF_ALL, w->index, w->at.of);
}
#endif
