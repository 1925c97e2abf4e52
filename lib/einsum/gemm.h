/* gemm.h: between pair.c, which finds out what a contraction is, and the files that do it. */
#ifndef EG_GEMM_H
#define EG_GEMM_H
#include "einsum/einsum.h"

enum { EG_AXES_MAX = 3 * EG_RANK_MAX };     /* of one pair */
enum { EG_KC = 256 };                       /* k is summed in blocks of this many, in every kernel: same bits */

/* c[b,m,n] (+)= Σ_k a[b,m,k] b[b,k,n]: four lists of axes, the outermost first, with the products of their sizes. A list may be
 * empty (product 1). No size is 0 or 1. m axes have sb = 0, n axes sa = 0, k axes sc = 0. */
typedef struct eg_list { int n; int64_t total; eg_axis *axis; } eg_list;
typedef struct eg_gemm {
    eg_dtype dtype;
    eg_list batch, m, n, k;
    const char *a, *b;
    char *c;
    bool add;
} eg_gemm;

bool eg__gemm(eg_ctx *, const eg_gemm *);                    /* gemm.c: floats, any m, n, k ≥ 1 */

void eg__plain(eg_dtype, const eg_list *out, const eg_list *k, const void *a, const void *b, void *c, bool add); /* plain.c: any type */

/* -- pack.c: one micro-panel ---------------------------------------------------------------------------------------------------------- */
typedef struct eg_run { int64_t at, n, stride; } eg_run;     /* k: element `at`, n of them, `stride` apart */
void eg__pack(size_t width, int w, int64_t rows, const int64_t *off, int64_t rs, int runs, const eg_run *run, const void *src, void *dst, int64_t k);

/* -- lists: where the element number `i` of a list of axes lies in an operand ------------------------------------------------------------ */
typedef struct eg_place { int64_t a, b, c; } eg_place;       /* offsets in elements */
eg_place eg__place(const eg_list *, int64_t i);
void eg__offsets(const eg_list *, size_t which, int64_t from, int64_t count, int64_t *off);  /* which: offsetof(eg_axis, sa) … */
#endif
