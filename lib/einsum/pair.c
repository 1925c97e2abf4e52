/* pair.c: what a contraction of two operands is, and who does it.
 *
 * Axes of size 1 go, axes that lie together in every operand fuse, and each of the rest has a role by where it moves:
 *   batch (a, b, c)   m (a, c)   n (b, c)   k (a, b)   and lonely (a alone, or b alone), which is summed before anything else.
 * An operand that an axis does not move in (stride 0: broadcast) counts as not having it. */
#include "einsum/gemm.h"
#include <string.h>

static int64_t size_of(int64_t x) { return x < 0 ? -x : x; }

/* x outside y: does x continue y in every operand? */
static bool fuses(const eg_axis *x, const eg_axis *y)
{
    return x->in_c == y->in_c && x->sa == y->sa * y->size && x->sb == y->sb * y->size && x->sc == y->sc * y->size;
}
static int fuse(int n, eg_axis *x)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if (i == j || !fuses(&x[i], &x[j])) continue;
            x[j].size *= x[i].size;         /* j stays, i goes; look again from the start */
            x[i] = x[--n];
            i = -1;
            break;
        }
    return n;
}

/* The axis that moves least goes innermost: by its stride in c, else in a and b; ties by the other strides. */
static int64_t nearest(const eg_axis *x)
{
    int64_t a = size_of(x->sa), b = size_of(x->sb);
    return x->sc ? size_of(x->sc) : !a ? b : !b ? a : a < b ? a : b;
}
static bool outside(const eg_axis *x, const eg_axis *y)
{
    int64_t p = nearest(x), q = nearest(y);
    return p != q ? p > q : size_of(x->sa) + size_of(x->sb) > size_of(y->sa) + size_of(y->sb);
}
static eg_list list(eg_axis *first, int n)
{
    eg_list l = { .n = n, .total = 1, .axis = first };
    for (int i = 0; i < n; i++) l.total *= first[i].size;
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && outside(&first[j], &first[j - 1]); j--) { eg_axis t = first[j]; first[j] = first[j - 1]; first[j - 1] = t; }
    return l;
}

static void zero(eg_dtype dtype, const eg_list *out, void *c)
{
    size_t w = dtype == EG_F32 ? 4 : 8;
    for (int64_t o = 0; o < out->total; o++) memset((char *)c + eg__place(out, o).c * (int64_t)w, 0, w);
}

/* The sum of an operand over its lonely axes, row-major in scratch; `other` axes keep their strides in it in `to`. */
static void *presum(eg_ctx *cx, eg_dtype dtype, int which, int n, eg_axis *x, const void *operand, bool of_b)
{
    eg_axis kept[EG_AXES_MAX], gone[EG_AXES_MAX];
    int nkept = 0, ngone = 0;
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        int64_t s = of_b ? x[i].sb : x[i].sa, o = of_b ? x[i].sa : x[i].sb;
        if (!s) continue;
        eg_axis y = { .size = x[i].size, .sa = s, .in_a = true };
        if (!o && !x[i].sc) { gone[ngone++] = y; continue; }
        y.sc = stride;
        y.in_c = true;
        stride *= y.size;
        kept[nkept++] = y;
        *(of_b ? &x[i].sb : &x[i].sa) = y.sc;
    }
    void *sum = eg__scratch(cx, which, (size_t)stride * (dtype == EG_F32 ? 4 : 8));
    if (!sum) return NULL;
    memcpy(kept + nkept, gone, (size_t)ngone * sizeof *gone);
    return eg__pair(cx, dtype, nkept + ngone, kept, operand, NULL, sum, false) ? sum : NULL;
}

void eg__exchange(eg_gemm *g)
{
    const eg_list m = g->m, *all[4] = { &g->batch, &g->m, &g->n, &g->k };
    const char *a = g->a;
    g->m = g->n; g->n = m;
    g->a = g->b; g->b = a;
    for (int l = 0; l < 4; l++)
        for (int i = 0; i < all[l]->n; i++) { eg_axis *x = &all[l]->axis[i]; int64_t s = x->sa; x->sa = x->sb; x->sb = s; }
}

/* Not a matrix product: the axes of c, and those that are summed */
static bool simply(eg_ctx *cx, eg_dtype dtype, int n, const eg_axis *x, const void *a, const void *b, void *c, bool add)
{
    eg_axis free_axes[EG_AXES_MAX], summed[EG_AXES_MAX];
    int nfree = 0, nsummed = 0;
    int64_t of_a = 1, of_b = 1;
    for (int i = 0; i < n; i++) {
        if (x[i].sa) of_a *= x[i].size;
        if (x[i].sb) of_b *= x[i].size;
    }
    const bool swap = b && of_b > of_a;     /* the larger operand decides the loops, and comes first */
    for (int i = 0; i < n; i++) {
        eg_axis y = x[i];
        if (swap) { y.sa = x[i].sb; y.sb = x[i].sa; }
        if (y.in_c) free_axes[nfree++] = y; else summed[nsummed++] = y;
    }
    const void *p = swap ? b : a, *q = swap ? a : b;
    eg_list out = list(free_axes, nfree), k = list(summed, nsummed);
    if (!eg__is_float(dtype)) { eg__plain(dtype, &out, &k, p, q, c, add); return true; }
    return k.n ? eg__sum(cx, dtype, &out, &k, p, q, c, add) : eg__map(cx, dtype, &out, p, q, c, add);
}

bool eg__pair(eg_ctx *cx, eg_dtype dtype, int axes, const eg_axis *axis, const void *a, const void *b, void *c, bool add)
{
    eg_axis x[EG_AXES_MAX], role[5][EG_AXES_MAX];
    enum { BATCH, M, N, K, LONELY };
    int n = 0, count[5] = { 0 };
    bool empty_sum = false;
    if (axes > EG_AXES_MAX) { eg_fail(cx, "einsum: %d axes in one pair; at most %d", axes, EG_AXES_MAX); return false; }
    for (int i = 0; i < axes; i++) {
        if (axis[i].size == 0) {
            if (axis[i].in_c) return true;
            empty_sum = true;
        }
        if (axis[i].size == 1) continue;
        x[n] = axis[i];
        if (!b) x[n].sb = 0;
        if (!x[n].in_a) x[n].sa = 0;
        if (!x[n].in_b) x[n].sb = 0;
        if (!x[n].in_c) x[n].sc = 0;
        n++;
    }
    if (empty_sum) {
        if (add) return true;
        int m = 0;
        for (int i = 0; i < n; i++) if (x[i].in_c) x[m++] = x[i];
        eg_list out = list(x, m);
        zero(dtype, &out, c);
        return true;
    }
    n = fuse(n, x);
    if (!eg__is_float(dtype) || !b) return simply(cx, dtype, n, x, a, b, c, add);

    bool lonely_a = false, lonely_b = false;
    for (int i = 0; i < n; i++) if (!x[i].in_c) { lonely_a |= x[i].sa && !x[i].sb; lonely_b |= x[i].sb && !x[i].sa; }
    if (lonely_a && !(a = presum(cx, dtype, 1, n, x, a, false))) return false;
    if (lonely_b && !(b = presum(cx, dtype, 2, n, x, b, true))) return false;
    if (lonely_a || lonely_b) {
        int m = 0;
        for (int i = 0; i < n; i++) if (x[i].in_c || (x[i].sa && x[i].sb) || (!x[i].sa && !x[i].sb)) x[m++] = x[i];
        n = fuse(m, x);
    }
    for (int i = 0; i < n; i++) {
        int r = !x[i].in_c ? K : x[i].sa && x[i].sb ? BATCH : x[i].sa ? M : x[i].sb ? N : BATCH;
        role[r][count[r]++] = x[i];
    }
    if (!count[K] || !count[M] || !count[N]) return simply(cx, dtype, n, x, a, b, c, add);
    eg_gemm g = { .dtype = dtype, .a = a, .b = b, .c = c, .add = add };
    g.batch = list(role[BATCH], count[BATCH]);
    g.m = list(role[M], count[M]);
    g.n = list(role[N], count[N]);
    g.k = list(role[K], count[K]);

    /* Let m be where c is contiguous, if it is: the small kernels store along m, BLIS's along m or along n. */
    const int64_t cm = g.m.axis[g.m.n - 1].sc, cn = g.n.axis[g.n.n - 1].sc;
    if (cn == 1 && cm != 1) eg__exchange(&g);
    if (eg__direct_suits(&g)) return eg__direct(cx, &g);
    if (eg__kernel(dtype)->rows) eg__exchange(&g);
    return eg__gemm(cx, &g);
}
