/* gemm.h: between pair.c, which finds out what a contraction is, and the files that do it. */
#ifndef EG_GEMM_H
#define EG_GEMM_H
#include "contraction/contraction.h"

enum { EG_AXES_MAX = 3 * EG_RANK_MAX }; /* of one pair */
enum { EG_KC = 256 }; /* k is summed in blocks of this many, in every kernel: same bits */

/* c[b,m,n] (+)= Σ_k a[b,m,k] b[b,k,n]: four lists of axes, the outermost first, with the products
 * of their sizes. A list may be empty (product 1). No size is 0 or 1. m axes have sb = 0, n axes sa
 * = 0, k axes sc = 0. */
typedef struct eg_axes {
    int n;
    int64_t total;
    eg_axis *axis;
} eg_axes;
/* How direct.c does it: strips of a by blocks of b in every batch, and bytes for a strip that is
 * copied. `single`: one of each, k whole */
typedef struct eg_tiling {
    const void *kernels;
    int64_t strip, strips, block, blocks, units, room;
    bool in_place, far, single;
} eg_tiling;
typedef struct eg_gemm {
    eg_dtype dtype;
    eg_axes batch, m, n, k;
    eg_tiling tiling;
    const char *a, *b;
    char *c;
    bool add;
} eg_gemm;

/* What two operands are to each other, found out once: pair.c. A pairing points into itself: it
 * stays where it was made. */
/* an operand's sum before everything else; 0 bytes: none */
typedef struct eg_unshared {
    eg_axes out, k;
    size_t bytes;
} eg_unshared;
struct eg_pairing {
    eg_pair_kind kind;
    bool swap; /* the kernel's a is the second operand */
    /* without pointers; not a product: batch are the axes of c, k those that are summed */
    eg_gemm gemm;
    eg_unshared unshared[2];
    int axes;
    eg_axis axis[];
};

bool eg__gemm(eg_ctx *, const eg_gemm *); /* gemm.c: floats, any m, n, k ≥ 1 */

/* direct.c: c is contiguous along m, not all sizes large: without packing, or with strips of a
 * copied … */
bool eg__direct_suits(const eg_gemm *);
eg_tiling eg__direct_tiling(const eg_gemm *); /* … by sizes and strides … */
/* … by our own vector kernels; its tiling is there */
bool eg__direct(eg_ctx *, const eg_gemm *);
/* c[m[i] + n[j]] (+)= tile[i + j·ts]; stretch[i]: so many of m from i on are neighbours */
void eg__scatter(size_t width, int64_t rows, int64_t cols, const void *tile, int64_t ts, void *c,
                 const int64_t *m, const int64_t *n, const int64_t *stretch, bool add);
/* inner_batch.c: batches lie nearest in an operand … (small: for direct.c) */
bool eg__inner_batch_suits(const eg_gemm *, bool *small);
bool eg__inner_batch(eg_ctx *, const eg_gemm *); /* … so blocks of it are turned first */
/* map.c: no sum; sum.c: dots, matrix times vector, reductions. Floats; b may be NULL */
bool eg__map(eg_ctx *, eg_dtype, const eg_axes *out, const void *a, const void *b, void *c,
             bool add);
bool eg__sum(eg_ctx *, eg_dtype, const eg_axes *out, const eg_axes *k, const void *a, const void *b,
             void *c, bool add);
/* plain.c: any type */
void eg__plain(eg_dtype, const eg_axes *out, const eg_axes *k, const void *a, const void *b,
               void *c, bool add);

/* -- lists: where the element number `i` of a list of axes lies in an operand ----------------- */
typedef struct eg_place {
    int64_t a, b, c;
} eg_place; /* offsets in elements */
eg_place eg__place(const eg_axes *, int64_t i);
/* which: offsetof(eg_axis, sa) … */
void eg__offsets(const eg_axes *, size_t which, int64_t from, int64_t count, int64_t *off);

/* one after the other */
typedef struct eg_walk {
    const eg_axes *list;
    eg_place at;
    int64_t index[EG_AXES_MAX];
} eg_walk;
static inline void eg__walk_to(eg_walk *w, const eg_axes *l, int64_t i)
{
    w->list = l;
    w->at = eg__place(l, i);
    for (int x = l->n - 1; x >= 0; x--) {
        w->index[x] = i ? i % l->axis[x].size : 0;
        if (i) i /= l->axis[x].size;
    }
}
static inline void eg__walk_on(eg_walk *w)
{
    for (int x = w->list->n - 1; x >= 0; x--) {
        const eg_axis *q = &w->list->axis[x];
        w->at.a += q->sa;
        w->at.b += q->sb;
        w->at.c += q->sc;
        if (++w->index[x] < q->size) return;
        w->index[x] = 0;
        w->at.a -= q->size * q->sa;
        w->at.b -= q->size * q->sb;
        w->at.c -= q->size * q->sc;
    }
}
#endif
