/* pair.c: classifies a contraction of two operands and chooses the kernel.
 *
 * Axes of size 1 are dropped, and axes that are contiguous with each other in every operand are
 * fused. Each remaining axis has a role, by the tensors in which its stride is not 0: batch (a, b,
 * c), m (a, c), n (b, c), k (a, b), unshared (a alone, or b alone). An operand is summed over its
 * unshared axes first.
 *
 * All this depends on sizes and strides only, so it is done once (eg__pairing), and the pairing can
 * be run any number of times. */
#include "contraction/gemm.h"
#include <string.h>

/* True if axis x, outside of axis y, and y can be one axis in every operand. Axes along which
 * operands are expanded are one only if the same operands have them: see assign_roles. */
static bool fuses(const eg_axis *x, const eg_axis *y)
{
    return x->in_c == y->in_c && x->sa == y->sa * y->size && x->sb == y->sb * y->size &&
           x->sc == y->sc * y->size &&
           (x->sa || x->sb || (x->in_a == y->in_a && x->in_b == y->in_b));
}
static int fuse(int n, eg_axis *x)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if (i == j || !fuses(&x[i], &x[j])) continue;
            x[j].size *= x[i].size; /* axis j remains, i is removed; start again */
            x[i] = x[--n];
            i = -1;
            break;
        }
    return n;
}

/* The key by which axes are sorted: the axis with the smallest stride in c, else in a and b, is
 * innermost; the other strides break ties. */
static int64_t pair_nearest(const eg_axis *x)
{
    int64_t a = eg__abs64(x->sa), b = eg__abs64(x->sb);
    return x->sc ? eg__abs64(x->sc) : !a ? b : !b ? a : a < b ? a : b;
}
static bool pair_outside(const eg_axis *x, const eg_axis *y)
{
    int64_t p = pair_nearest(x), q = pair_nearest(y);
    return p != q ? p > q
                  : eg__abs64(x->sa) + eg__abs64(x->sb) > eg__abs64(y->sa) + eg__abs64(y->sb);
}
static eg_axes list(eg_axis *first, int n)
{
    eg_axes l = { .n = n, .total = 1, .axis = first };
    for (int i = 0; i < n; i++) l.total *= first[i].size;
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && pair_outside(&first[j], &first[j - 1]); j--) {
            eg_axis t = first[j];
            first[j] = first[j - 1];
            first[j - 1] = t;
        }
    return l;
}

static void pair_zero(eg_dtype dtype, const eg_axes *out, char *c)
{
    const eg_axis one = { .size = 1, .sc = 1 }, *x = out->n ? &out->axis[out->n - 1] : &one;
    const int64_t w = eg__is_inexact(dtype) ? eg__width[dtype] : 8; /* sums of integers are i64 */
    for (int64_t o = 0; o < out->total; o += x->size) {
        char *to = c + eg__offsets_of(out, o).c * w;
        if (x->sc == 1)
            memset(to, 0, (size_t)(x->size * w));
        else
            for (int64_t i = 0; i < x->size; i++) memset(to + i * x->sc * w, 0, (size_t)w);
    }
}

/* Appends a list of axes to those of the pairing. */
static eg_axes pair_take(eg_pairing *p, int n, const eg_axis *x)
{
    eg_axis *first = p->axis + p->axes;
    memcpy(first, x, (size_t)n * sizeof *x);
    p->axes += n;
    return list(first, n);
}

/* True if x is summed over, and only operand b (of_b: false: only a) has it and is expanded along
 * it. */
static bool repeats(const eg_axis *x, bool of_b)
{
    return !x->in_c && !x->sa && !x->sb && x->in_a == !of_b && x->in_b == of_b;
}

/* Plans the sum of an operand over its unshared axes, row-major in scratch memory, and sets the
 * strides that its other axes have there. */
static void sum_unshared(eg_pairing *p, int n, eg_axis *x, bool of_b)
{
    eg_axis kept[EG_PAIR_AXES], gone[EG_PAIR_AXES];
    int nkept = 0, ngone = 0;
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        int64_t s = of_b ? x[i].sb : x[i].sa, o = of_b ? x[i].sa : x[i].sb;
        if (!s && !repeats(&x[i], of_b)) continue;
        eg_axis y = { .size = x[i].size, .sa = s, .in_a = true };
        if (!o && !x[i].sc) {
            gone[ngone++] = y;
            continue;
        }
        y.sc = stride;
        y.in_c = true;
        stride *= y.size;
        kept[nkept++] = y;
        *(of_b ? &x[i].sb : &x[i].sa) = y.sc;
    }
    eg_unshared *l = &p->unshared[of_b];
    nkept = fuse(nkept, kept); /* an axis of c is never fused with one that c does not have */
    ngone = fuse(ngone, gone);
    *l = (eg_unshared){ .out = pair_take(p, nkept, kept),
                        .bytes = (size_t)stride * eg__width[p->gemm.dtype] };
    p->gemm.of[of_b] = p->gemm.dtype; /* the kernel reads the sum instead */
    l->k = pair_take(p, ngone, gone);
}

static void swap_types(eg_gemm *g)
{
    const eg_dtype of_a = g->of[0];
    g->of[0] = g->of[1];
    g->of[1] = of_a;
}
static void exchange(eg_pairing *p)
{
    eg_gemm *g = &p->gemm;
    const eg_axes m = g->m, *all[4] = { &g->batch, &g->m, &g->n, &g->k };
    g->m = g->n;
    g->n = m;
    swap_types(g);
    p->swap = !p->swap;
    for (int l = 0; l < 4; l++)
        for (int i = 0; i < all[l]->n; i++) {
            eg_axis *x = &all[l]->axis[i];
            int64_t s = x->sa;
            x->sa = x->sb;
            x->sb = s;
        }
}

/* Plans a contraction that is not a matrix product, by the axes of c and those that are summed
 * over. */
static void pair_without_product(eg_pairing *p, int n, const eg_axis *x, bool two)
{
    eg_axis free_axes[EG_PAIR_AXES], summed[EG_PAIR_AXES];
    int nfree = 0, nsummed = 0;
    int64_t of_a = 1, of_b = 1;
    for (int i = 0; i < n; i++) {
        if (x[i].sa) of_a *= x[i].size;
        if (x[i].sb) of_b *= x[i].size;
    }
    p->swap = two && of_b > of_a; /* the larger operand determines the loops, so it comes first */
    if (p->swap) swap_types(&p->gemm);
    for (int i = 0; i < n; i++) {
        eg_axis y = x[i];
        if (p->swap) {
            y.sa = x[i].sb;
            y.sb = x[i].sa;
        }
        if (y.in_c)
            free_axes[nfree++] = y;
        else
            summed[nsummed++] = y;
    }
    p->gemm.batch = pair_take(p, nfree, free_axes);
    p->gemm.k = pair_take(p, nsummed, summed);
    p->kind = !eg__is_float(p->gemm.dtype) ? EG_PAIR_PLAIN : nsummed ? EG_PAIR_SUM : EG_PAIR_MAP;
}

enum { BATCH, M, N, K };
typedef struct roles {
    int n[4];
    eg_axis axis[4][EG_PAIR_AXES];
} roles;

/* Assigns a role to each axis. An axis of c along which an operand is expanded (its stride there is
 * 0) is a batch. But if m or n has no other axis, it is given that role: the product is then as
 * fast as with a contiguous copy of the operand, and has the same bits. */
static void assign_roles(roles *r, int n, const eg_axis *x)
{
    for (int i = 0; i < n; i++) {
        const int k = !x[i].in_c           ? K
                      : x[i].sa && x[i].sb ? BATCH
                      : x[i].sa            ? M
                      : x[i].sb            ? N
                                           : BATCH;
        r->axis[k][r->n[k]++] = x[i];
    }
    for (int s = M; r->n[K] && s <= N; s++) {
        if (r->n[s]) continue;
        int batches = 0;
        for (int i = 0; i < r->n[BATCH]; i++) {
            const eg_axis y = r->axis[BATCH][i];
            if (!y.sa && !y.sb && (s == M ? y.in_a && !y.in_b : y.in_b && !y.in_a))
                r->axis[s][r->n[s]++] = y;
            else
                r->axis[BATCH][batches++] = y;
        }
        r->n[BATCH] = batches;
    }
}

/* If m or n has several axes that cannot be fused, keeps one of each, that of m along vectors
 * (where c is contiguous), and makes the others batches. direct.c can then compute what gemm.c
 * would have to scatter element by element. False, without a change, if m and n have one axis each
 * already, or if the axes are too short. */
static bool spill_to_batches(roles *r, eg_dtype dtype)
{
    enum { SHORTEST = 8, LEAST_WORK = 2048 };
    const int64_t lanes = dtype == EG_F64 ? 8 : 16;
    if (r->n[K] != 1 || r->n[M] + r->n[N] == 2) return false;
    int along[2] = { -1, -1 }, side = -1; /* of M, of N; which of the two is along vectors */
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < r->n[M + s]; i++)
            if (r->axis[M + s][i].sc == 1) {
                side = s;
                along[s] = i;
            }
    if (side < 0) return false;
    const int64_t v = r->axis[M + side][along[side]].size;
    if (10 * v < 7 * ((v + lanes - 1) / lanes * lanes)) return false;
    const eg_axis *other = r->axis[N - side];
    int best = 0;
    for (int i = 1; i < r->n[N - side]; i++)
        if (other[i].size > other[best].size) best = i;
    for (int i = 0; i < r->n[N - side]; i++)
        if (eg__abs64(side ? other[i].sa : other[i].sb) == 1 && other[i].size >= SHORTEST) best = i;
    if (other[best].size < SHORTEST || v * other[best].size * r->axis[K]->size < LEAST_WORK)
        return false;
    along[!side] = best;
    for (int s = 0; s < 2; s++) {
        eg_axis *x = r->axis[M + s], kept = x[along[s]];
        for (int i = 0; i < r->n[M + s]; i++)
            if (i != along[s]) r->axis[BATCH][r->n[BATCH]++] = x[i];
        x[0] = kept;
        r->n[M + s] = 1;
    }
    return true;
}
/* Sets the four lists of a matrix product, which are still empty, and chooses the kernel. */
static void pair_product(eg_pairing *p, const roles *r)
{
    eg_gemm *g = &p->gemm;
    g->batch = pair_take(p, r->n[BATCH], r->axis[BATCH]);
    g->m = pair_take(p, r->n[M], r->axis[M]);
    g->n = pair_take(p, r->n[N], r->axis[N]);
    g->k = pair_take(p, r->n[K], r->axis[K]);

    /* m is the side on which c is contiguous, if there is one: the small kernels store along m,
     * BLIS's along m or along n. */
    const int64_t cm = g->m.axis[g->m.n - 1].sc, cn = g->n.axis[g->n.n - 1].sc;
    if (cn == 1 && cm != 1) exchange(p);
    const bool wide = eg__widens(g->dtype, g->of);
    bool small = eg__direct_suits(g);
    p->kind = !wide && eg__inner_batch_suits(g, &small) ? EG_PAIR_INNER_BATCH
              : small                                   ? EG_PAIR_DIRECT
                                                        : EG_PAIR_PACKED;
    if (p->kind == EG_PAIR_DIRECT) g->tiling = eg__direct_tiling(g);
    p->once = g->tiling.single && g->tiling.in_place && g->batch.total == 1 &&
              !p->unshared[0].bytes && !p->unshared[1].bytes;
    if (!small && eg__kernel(g->dtype)->rows) exchange(p);
}

/* An axis of stride 0, along which an operand is expanded, adds no terms to the sum of that
 * operand, unless the operand alone is summed over it. An axis without elements leaves nothing to
 * compute. */
double eg__pair_work(int n, const eg_axis *x, bool two, double *terms)
{
    double all[2] = { 1, 1 }, product = 1;
    bool sums[2] = { false, false };
    *terms = 0;
    for (int i = 0; i < n; i++) {
        if (x[i].size == 1) continue;
        if (x[i].size == 0) return *terms = 0;
        const double size = (double)x[i].size;
        const bool has[2] = { x[i].in_a, two && x[i].in_b };
        const bool once = !x[i].in_c && has[0] != has[1];
        const bool reads[2] = { has[0] && (x[i].sa || once), has[1] && (x[i].sb || once) };
        const bool alone = !x[i].in_c && reads[0] != reads[1];
        for (int q = 0; q < 2; q++) {
            if (reads[q]) all[q] *= size;
            sums[q] |= alone && reads[q];
        }
        if (!two || !alone) product *= size;
    }
    for (int q = 0; q < 2; q++)
        if (sums[q]) *terms += all[q];
    return (two ? product : 0) + *terms;
}
eg_pair_kind eg__pair_kind(const eg_pairing *p) { return p->kind; }
bool eg__pair_copies(const eg_pairing *p)
{
    return p->kind == EG_PAIR_DIRECT && !p->gemm.tiling.in_place;
}
bool eg__pair_finishes(const eg_pairing *p)
{
    return (p->kind == EG_PAIR_DIRECT || p->kind == EG_PAIR_PACKED) && !p->parts.used;
}
/* axes of c, and of each sum that is computed first; for complex numbers also two for their parts
 * in each of these, and those of each copy of an operand */
enum { PAIR_LISTS = 3, PAIR_LISTS_C128 = 5, PAIR_PARTS = 6 };
size_t eg__pairing_bytes(eg_dtype dtype, int axes)
{
    const int most = dtype == EG_C128 ? PAIR_LISTS_C128 * axes + PAIR_PARTS : PAIR_LISTS * axes;
    return sizeof(eg_pairing) + (size_t)most * sizeof(eg_axis);
}

/* Lists in x the axes whose size is not 1, with a stride of 0 in those that do not have them.
 * Returns their number; −1 if the result is empty. *empty_sum: a summed axis has size 0. */
static int pair_axes(int axes, const eg_axis *axis, bool two, eg_axis *x, bool *empty_sum)
{
    int n = 0;
    *empty_sum = false;
    for (int i = 0; i < axes; i++) {
        if (axis[i].size == 0) {
            if (axis[i].in_c) return -1;
            *empty_sum = true;
        }
        if (axis[i].size == 1) continue;
        x[n] = axis[i];
        if (!two) x[n].sb = 0;
        if (!x[n].in_a) x[n].sa = 0;
        if (!x[n].in_b) x[n].sb = 0;
        if (!x[n].in_c) x[n].sc = 0;
        n++;
    }
    return n;
}
/* Plans the sums over axes that one operand alone has, and removes these axes. Returns the number
 * of the others. */
static int pair_sum_unshared(eg_pairing *p, int n, eg_axis *x)
{
    bool unshared_a = false, unshared_b = false;
    for (int i = 0; i < n; i++)
        if (!x[i].in_c) {
            unshared_a |= (x[i].sa && !x[i].sb) || repeats(&x[i], false);
            unshared_b |= (x[i].sb && !x[i].sa) || repeats(&x[i], true);
        }
    if (unshared_a) sum_unshared(p, n, x, false);
    if (unshared_b) sum_unshared(p, n, x, true);
    if (!unshared_a && !unshared_b) return n;
    int m = 0;
    for (int i = 0; i < n; i++)
        if (x[i].in_c || (x[i].sa && x[i].sb) ||
            (!x[i].sa && !x[i].sb && !repeats(&x[i], false) && !repeats(&x[i], true)))
            x[m++] = x[i];
    return fuse(m, x);
}
/* Makes a product of complex numbers one of their parts, in f64, if that is faster. Returns the
 * number of its axes. */
static int pair_parts(eg_pairing *p, int n, eg_axis *x)
{
    eg_parts_plan t;
    const int axes = eg__parts(&t, n, x);
    if (!axes) return n;
    p->parts = (eg_parts){ .used = true,
                           .doubled = t.doubled,
                           .of_c = t.of_c,
                           .of_sum = t.of_sum,
                           .size = { t.size[0], t.size[1] },
                           .batch = pair_take(p, t.batches, t.batch) };
    for (int s = 0; s < 2; s++)
        if (t.size[s]) p->parts.copy[s] = pair_take(p, fuse(t.n[s], t.copy[s]), t.copy[s]);
    p->gemm.dtype = p->of[0] = p->of[1] = p->gemm.of[0] = p->gemm.of[1] = EG_F64;
    return fuse(axes, x);
}
/* Drops axes of size 1, fuses axes, plans the sums over axes of one operand alone, and assigns
 * roles to the other axes. */
void eg__pairing(eg_pairing *p, eg_dtype dtype, const eg_dtype of[2], int axes, const eg_axis *axis,
                 bool two)
{
    eg_axis x[EG_PAIR_AXES];
    roles role = { .n = { 0 } };
    bool empty_sum;
    *p = (eg_pairing){ .kind = EG_PAIR_NOTHING, .gemm = { .dtype = dtype } };
    for (int q = 0; q < 2; q++) p->of[q] = p->gemm.of[q] = of && (two || !q) ? of[q] : dtype;
    int n = pair_axes(axes, axis, two, x, &empty_sum);
    if (n < 0) return;
    if (empty_sum) {
        int m = 0;
        for (int i = 0; i < n; i++)
            if (x[i].in_c) x[m++] = x[i];
        p->gemm.batch = pair_take(p, m, x);
        p->kind = EG_PAIR_ZERO;
        return;
    }
    n = fuse(n, x);
    double terms;
    const double work = eg__pair_work(n, x, two, &terms);
    p->work = work < 0x1p63 ? (uint64_t)work : (uint64_t)1 << 63; /* views may have more */
    if (two && dtype == EG_C128) {
        n = pair_parts(p, n, x);
        dtype = p->gemm.dtype;
    }
    if (!eg__is_float(dtype) || !two) {
        pair_without_product(p, n, x, two);
        return;
    }
    n = pair_sum_unshared(p, n, x);
    assign_roles(&role, n, x);
    if (!role.n[K] || !role.n[M] || !role.n[N]) {
        pair_without_product(p, n, x, two);
        return;
    }
    const eg_pairing before = *p;
    roles alone = role;
    if (!eg__widens(dtype, p->gemm.of) && spill_to_batches(&alone, dtype)) {
        pair_product(p, &alone);
        if (p->kind == EG_PAIR_DIRECT ||
            (p->kind == EG_PAIR_INNER_BATCH && p->gemm.m.axis[0].sc == 1))
            return;
        *p = before;
    }
    pair_product(p, &role);
}

void eg__pairing_moved(eg_pairing *p, const eg_pairing *from)
{
    eg_gemm *g = &p->gemm;
    eg_axes *const lists[] = { &g->batch,
                               &g->m,
                               &g->n,
                               &g->k,
                               &p->unshared[0].out,
                               &p->unshared[0].k,
                               &p->unshared[1].out,
                               &p->unshared[1].k,
                               &p->parts.copy[0],
                               &p->parts.copy[1],
                               &p->parts.batch };
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        if (lists[k]->axis) lists[k]->axis = p->axis + (lists[k]->axis - from->axis);
}
/* Computes the sums that come first, exchanges the operands if the pairing says so, and calls the
 * kernel. */
static bool pair_in_steps(eg_ctx *cx, const eg_pairing *p, const void *a, const void *b, void *c,
                          double alpha, bool add, const eg_finish *finish)
{
    const eg_dtype dtype = p->gemm.dtype;
    for (int s = 0; s < 2; s++) {
        const eg_unshared *l = &p->unshared[s];
        if (!l->bytes) continue;
        void *sum = eg__scratch(cx, s ? EG_SCRATCH_SUM_B : EG_SCRATCH_SUM_A, l->bytes);
        if (!sum || !eg__sum(cx, dtype, (eg_dtype[]){ p->of[s], dtype }, &l->out, &l->k, NULL,
                             s ? b : a, NULL, sum, 1, false))
            return false;
        *(s ? &b : &a) = sum;
    }
    if (p->swap) {
        const void *t = a;
        a = b;
        b = t;
    }
    switch (p->kind) {
    case EG_PAIR_NOTHING: return true;
    case EG_PAIR_ZERO:
        if (!add) pair_zero(dtype, &p->gemm.batch, c);
        return true;
    case EG_PAIR_PLAIN:
        eg__plain(cx, dtype, &p->gemm.batch, &p->gemm.k, a, b, c, alpha, add);
        return true;
    case EG_PAIR_MAP: return eg__map(cx, dtype, p->gemm.of, &p->gemm.batch, a, b, c, alpha, add);
    case EG_PAIR_SUM:
        return eg__sum(cx, dtype, p->gemm.of, &p->gemm.batch, &p->gemm.k, NULL, a, b, c, alpha,
                       add);
    case EG_PAIR_DIRECT:
    case EG_PAIR_PACKED:
    case EG_PAIR_INNER_BATCH: break;
    }
    eg_gemm g = p->gemm;
    g.a = a;
    g.b = b;
    g.c = c;
    g.alpha = alpha;
    g.add = add;
    g.finish = eg__pair_finishes(p) ? finish : NULL;
    return p->kind == EG_PAIR_DIRECT        ? eg__direct(cx, &g)
           : p->kind == EG_PAIR_INNER_BATCH ? eg__inner_batch(cx, &g)
                                            : eg__gemm(cx, &g);
}

EG_INLINE bool pair_run(eg_ctx *cx, const eg_pairing *p, const void *a, const void *b, void *c,
                        double alpha, bool add, const eg_finish *finish)
{
    if (!p->once) return pair_in_steps(cx, p, a, b, c, alpha, add, finish);
    eg__direct_once(&p->gemm, p->swap ? b : a, p->swap ? a : b, c, alpha, add, finish);
    return true;
}
/* Copies the parts of complex operands, batch by batch, and computes their products in f64. */
static bool pair_run_parts(eg_ctx *cx, const eg_pairing *p, const char *a, const char *b, char *c,
                           double alpha, bool add)
{
    enum { W = sizeof(double complex) };
    const eg_parts *t = &p->parts;
    const size_t bytes = (size_t)(t->size[0] + t->size[1]) * sizeof(double);
    double *copies = eg__scratch(cx, EG_SCRATCH_COMPLEX, bytes);
    bool good = copies;
    for (int64_t i = 0; good && i < t->batch.total; i++) {
        const eg_offsets at = eg__offsets_of(&t->batch, i);
        const void *x[2] = { a + at.a * W, b + at.b * W };
        double *to = copies;
        for (int s = 0; s < 2; s++) {
            if (!t->size[s]) continue;
            eg__parts_copy(cx, &t->copy[s], s == t->doubled, t->of_c, t->of_sum, x[s], to);
            x[s] = to;
            to += t->size[s];
        }
        good = pair_run(cx, p, x[0], x[1], c + at.c * W, alpha, add, NULL);
    }
    return good;
}
bool eg__pair_run(eg_ctx *cx, const eg_pairing *p, const void *a, const void *b, void *c,
                  double alpha, bool add, const eg_finish *finish)
{
    cx->use.multiply_adds += p->work;
    return p->parts.used ? pair_run_parts(cx, p, a, b, c, alpha, add)
                         : pair_run(cx, p, a, b, c, alpha, add, finish);
}

/* The copies are one more batch of small products and of sums, the outermost: kernel, tiles and the
 * order of sums are those of one copy. */
bool eg__pair_run_copies(eg_ctx *cx, const eg_pairing *p, const eg_copy_steps *s, const void *a,
                         const void *b, void *c, double alpha, const eg_finish *finish)
{
    const bool one_call = (p->kind == EG_PAIR_DIRECT || p->kind == EG_PAIR_SUM) &&
                          !p->unshared[0].bytes && !p->unshared[1].bytes && !p->parts.used &&
                          p->gemm.batch.n < EG_PAIR_AXES;
    if (!one_call) {
        bool good = true;
        for (int64_t k = 0; good && k < s->count; k++)
            good = eg__pair_run(cx, p, (const char *)a + k * s->x[0],
                                b ? (const char *)b + k * s->x[1] : NULL, (char *)c + k * s->out,
                                alpha, false, finish);
        return good;
    }
    eg_axis batch[EG_PAIR_AXES];
    eg_gemm g = p->gemm;
    /* without b there is one distance */
    batch[0] = (eg_axis){ .size = s->count,
                          .sa = s->x[p->swap] / eg__width[g.of[0]],
                          .sb = b ? s->x[!p->swap] / eg__width[g.of[1]] : 0,
                          .sc = s->out / eg__width[g.dtype] };
    g.a = p->swap ? b : a;
    g.b = p->swap ? a : b;
    cx->use.multiply_adds += p->work * (uint64_t)s->count;
    if (p->kind == EG_PAIR_SUM)
        return eg__sum(cx, g.dtype, g.of, &g.batch, &g.k, batch, g.a, g.b, c, alpha, false);
    memcpy(batch + 1, g.batch.axis, (size_t)g.batch.n * sizeof *batch);
    g.batch = (eg_axes){ g.batch.n + 1, g.batch.total * s->count, batch };
    g.tiling.units *= s->count;
    g.c = c;
    g.alpha = alpha;
    g.add = false;
    g.finish = finish;
    return eg__direct(cx, &g);
}

bool eg__pair(eg_ctx *cx, eg_dtype dtype, int axes, const eg_axis *axis, const void *a,
              const void *b, void *c, double alpha, bool add)
{
    union {
        eg_pairing p;
        char buffer[sizeof(eg_pairing) +
                    (PAIR_LISTS_C128 * EG_PAIR_AXES + PAIR_PARTS) * sizeof(eg_axis)];
    } u;
    if (axes > EG_PAIR_AXES) {
        eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: %d axes in one pair; at most %d", axes,
                   EG_PAIR_AXES);
        return false;
    }
    eg__pairing(&u.p, dtype, NULL, axes, axis, b != NULL);
    return eg__pair_run(cx, &u.p, a, b, c, alpha, add, NULL);
}
