/* accumulate.c: y = Σ_k L_kᵀ g_k, where L_k reads a tensor of y's shape through a chain of views,
 * the last of which may be eg_at. An addend may also be a product, g_k f_k.
 *
 * The adjoint of a view adds to the elements that the view reads. A chain of views therefore needs
 * no intermediate tensors: the views are applied to y itself, and g_k is added to the elements that
 * they select. If a loop slices x, the cotangent of x thus needs one buffer instead of one per
 * slice. The operation is linear in each g_k; its gradient dg_k = L_k dy applies the same views to
 * the cotangent.
 *
 * The cotangent of overlapping windows in a product, as in a depthwise convolution, has many times
 * the elements of the tensor that the windows read: 9 for windows of 3 × 3. As a product g_k f_k of
 * two tensors with some of its axes each it is added without being stored. */
#include "ops/ops.h"

/* An addend: it has the shape of t, and is added through the `depth` views that lead to t. If the
 * last of these is eg_at, its index is operand number `index` of the node; else `index` is −1.
 * `factor` is the number of the factor, or −1. t was recorded before the sum, and exists at least
 * as long. */
typedef struct piece {
    eg_tensor *t;
    int depth, index, factor;
    uint32_t axes[2]; /* of a product, as in eg__addend */
} piece;

static const eg_op accumulate_op, accumulate_products_op;

/* A tensor read through a chain of views, with two sets of sizes and strides that are used
 * alternately. */
typedef struct seen {
    eg_tensor x;
    int64_t dim[2][EG_RANK_MAX], stride[2][EG_RANK_MAX];
} seen;

/* Returns the tensor that the `depth` views up to t read. */
static const eg_tensor *base_of(const eg_tensor *t, int depth)
{
    while (depth-- > 0) t = t->in[0];
    return t;
}
/* Applies the views from base_of(t, depth) to t to s->x, which has the shape of base_of(t,
 * depth); except t itself if it is eg_at. False if one of them is not a view, or if the chain is
 * too long. */
static bool apply_chain(seen *s, const eg_tensor *t, int depth)
{
    const eg_tensor *chain[EG_ADDEND_DEPTH] = { NULL };
    if (depth > EG_ADDEND_DEPTH) return false;
    for (int k = depth; k-- > 0; t = t->in[0]) chain[k] = t;
    if (depth && eg__at_made(chain[depth - 1])) depth--;
    for (int k = 0; k < depth; k++)
        if (!eg__view_on(chain[k], &s->x, s->dim[k & 1], s->stride[k & 1])) return false;
    return true;
}

bool eg__addend_due(const eg_tensor *t) { return eg__at_made(t) || eg__view_selects(t); }
bool eg__addend_fits(const eg_tensor *t, int depth)
{
    int64_t stride[EG_RANK_MAX];
    const eg_tensor *base = base_of(t, depth);
    seen s = { .x = *base };
    s.x.stride = stride;
    eg__row_major(base->rank, base->dim, stride);
    if (!apply_chain(&s, t, depth)) return false;
    /* if several elements have one address, as after expand, a sum is needed, which the rule of
     * expand computes */
    for (int r = 0; r < s.x.rank; r++)
        if (s.x.dim[r] > 1 && s.x.stride[r] == 0) return false;
    return true;
}

/* -- the operation ---------------------------------------------------------------------------- */
static int pieces(const eg_tensor *y) { return (int)(y->attr_size / sizeof(piece)); }
static bool accumulate_shape(eg_tensor *y)
{
    const piece *p = y->attr;
    const eg_tensor *base = base_of(p->t, p->depth);
    return eg__shape(y, (eg_dtype)y->in[0]->dtype, base->rank, base->dim);
}
/* Sets h to x, which has these axes of `like`, expanded to like's shape; false if it has other
 * sizes there. */
static bool expanded_header(const eg_tensor *x, uint32_t axes, const eg_tensor *like, seen *h)
{
    int own = 0;
    h->x = *x;
    h->x.rank = like->rank;
    h->x.dim = like->dim;
    h->x.stride = h->stride[0];
    for (int r = 0; r < like->rank; r++) {
        const bool has = axes >> r & 1;
        if (has && (own >= x->rank || x->dim[own] != like->dim[r])) return false;
        h->stride[0][r] = has ? x->stride[own++] : 0;
    }
    return own == x->rank;
}
static bool accumulate_product(eg_tensor *target, const piece *p, const eg_tensor *g,
                               const eg_tensor *f)
{
    seen a, b;
    if (!expanded_header(g, p->axes[0], target, &a) || !expanded_header(f, p->axes[1], target, &b))
        return false;
    eg__add_repeated(target, &a.x, &b.x);
    return true;
}
/* Writes r for each bit r of axes. Returns their number. */
static int axes_to_labels(uint32_t axes, uint16_t *label)
{
    int n = 0;
    for (int r = 0; r < EG_RANK_MAX; r++)
        if (axes >> r & 1) label[n++] = (uint16_t)r;
    return n;
}
/* Starts from the first addend, or from zeros if that one is added through views, and adds each
 * further addend to the part of y that its views select. False after an error. */
static bool accumulate_forward(eg_tensor *y)
{
    const piece *p = y->attr;
    const bool whole = p->depth == 0 && p->factor < 0;
    if (whole)
        eg__copy(y, y->in[0]);
    else
        eg__fill(y, 0);
    for (int k = whole, n = pieces(y); k < n; k++) {
        seen s;
        s.x = *y;
        if (!apply_chain(&s, p[k].t, p[k].depth) ||
            (p[k].factor >= 0 && !accumulate_product(&s.x, &p[k], y->in[k], y->in[p[k].factor]))) {
            eg_fail_as(y->cx, EG_ERROR_MISUSE,
                       "accumulate: operand %d cannot be added through its views", k + 1);
            return false;
        }
        if (p[k].factor >= 0) continue;
        if (p[k].index < 0)
            eg__add_repeated(&s.x, y->in[k], NULL);
        else if (!eg__at_add(p[k].t, &s.x, y->in[p[k].index], y->in[k]))
            return false;
    }
    return true;
}
/* The cotangent of addend i, L_i g, or of one of the tensors of a product, L_k g times the other,
 * summed over the axes that the one does not have. */
static eg_tensor *accumulate_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const piece *all = y->attr;
    const int n = pieces(y);
    int by = i < n ? all[i].factor : 0;
    for (int k = 0; i >= n && k < n; k++)
        if (all[k].factor == i) by = k;
    const piece *p = &all[i < n ? i : by];
    const eg_tensor *chain[EG_ADDEND_DEPTH], *t = p->t;
    for (int k = p->depth; k-- > 0; t = t->in[0]) chain[k] = t;
    const int views = p->index >= 0 ? p->depth - 1 : p->depth;
    for (int k = 0; k < views; k++)
        g = eg_apply(chain[k]->op, chain[k]->attr, chain[k]->attr_size, 1, &g);
    if (p->index >= 0) g = eg__at_again(chain[views], g, y->in[p->index]);
    if (by < 0) return g;
    uint16_t every[EG_RANK_MAX], mine[EG_RANK_MAX], others[EG_RANK_MAX];
    axes_to_labels(UINT32_MAX, every);
    const int n_mine = axes_to_labels(p->axes[i >= n], mine);
    axes_to_labels(p->axes[i < n], others);
    return eg__einsum(2, (eg_tensor *[]){ g, y->in[by] }, (const uint16_t *[]){ every, others },
                      n_mine, mine);
}

/* The operands of the node are the cotangents, then the indices of eg_at and the factors. */
eg_tensor *eg__accumulate(eg_ctx *cx, int count, const eg__addend *first)
{
    int indices = 0, products = 0;
    for (const eg__addend *p = first; p; p = p->next) {
        indices += p->depth && eg__at_made(p->t);
        products += p->f != NULL;
    }
    /* scratch memory suffices, since eg_apply copies both arrays */
    piece *each = eg__scratch(cx, EG_SCRATCH_PIECES, (size_t)count * sizeof *each);
    eg_tensor **in =
        eg__scratch(cx, EG_SCRATCH_OPERANDS, (size_t)(count + indices + products) * sizeof *in);
    if (!each || !in) return eg__poison(cx);
    int k = 0, index = count;
    for (const eg__addend *p = first; p; p = p->next, k++) {
        const bool at = p->depth && eg__at_made(p->t);
        each[k] = (piece){ p->t, p->depth, -1, -1, { p->axes[0], p->axes[1] } };
        in[k] = p->g;
        if (at) in[each[k].index = index++] = p->t->in[1];
        if (p->f) in[each[k].factor = index++] = p->f;
    }
    return eg_apply(products ? &accumulate_products_op : &accumulate_op, each,
                    (size_t)count * sizeof *each, index, in);
}

/* The sample adds to a whole matrix, to overlapping rows, to its diagonal, to a column, and to rows
 * that are given by indices. */
static eg_tensor *accumulate_call(eg_tensor *const *x)
{
    eg_ctx *cx = x[0]->cx;
    const bool was = eg_nograd(cx, false);
    eg_tensor *base = eg_zeros_like(x[0]);
    eg_tensor *windows = eg_unfold_axis(eg_slice_axis(base, 0, 1, EG_END, 1), 0, 2, 1);
    eg_tensor *diagonal = eg_diagonal(base, 0, 0, 1);
    eg_tensor *column = eg_select_axis(eg_transpose(base, 0, 1), 0, 1);
    eg_tensor *rows = eg_at("[v] m, l -> l m", eg_flip_axis(base, 0), x[4]);
    eg_nograd(cx, was);
    eg__addend part[] = { { .next = &part[1], .t = base, .g = x[0] },
                          { .next = &part[2], .t = windows, .g = x[1], .depth = 2 },
                          { .next = &part[3], .t = diagonal, .g = x[2], .depth = 1 },
                          { .next = &part[4], .t = column, .g = x[3], .depth = 2 },
                          { .t = rows, .g = x[5], .depth = 2 } };
    return eg__failed(cx) ? eg__poison(cx) : eg__accumulate(cx, 5, part);
}
static const eg_sample accumulate_samples[] = {
    { accumulate_call, "4x3, 2x3x2, 3, 4, 5:i4, 5x3", 0, 0 }, { 0 }
};
static const eg_op accumulate_op = {
    .name = "accumulate",
    .equation = "y = sum over k of the adjoint of L_k at x_k",
    .gradient = "L_k of g",
    .arity = -1,
    .shape = accumulate_shape,
    .forward = accumulate_forward,
    .rule = accumulate_rule,
    .uses = EG_USES_INTEGERS,
    .samples = accumulate_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = accumulate_forward,
};
/* A matrix of windows and channels times one of channels and positions is added to windows, and an
 * elementwise product to a column. */
static eg_tensor *accumulate_products_call(eg_tensor *const *x)
{
    eg_ctx *cx = x[0]->cx;
    const bool was = eg_nograd(cx, false);
    eg_tensor *base = eg_full_n(cx, (eg_dtype)x[0]->dtype, 0, 2, (int64_t[]){ 5, 3 });
    eg_tensor *windows = eg_unfold_axis(base, 0, 2, 1), *column = eg_select_axis(base, 1, 2);
    eg_nograd(cx, was);
    eg__addend part[] = {
        { .next = &part[1], .t = windows, .g = x[0], .f = x[1], .depth = 1, .axes = { 3, 6 } },
        { .t = column, .g = x[2], .f = x[3], .depth = 1, .axes = { 1, 1 } }
    };
    return eg__failed(cx) ? eg__poison(cx) : eg__accumulate(cx, 2, part);
}
static const eg_sample accumulate_products_samples[] = {
    { accumulate_products_call, "4x3, 3x2, 5, 5", 0, 0 }, { 0 }
};
static const eg_op accumulate_products_op = {
    .name = "accumulate_products",
    .equation = "y = sum over k of the adjoint of L_k at x_k f_k",
    .gradient = "f_k L_k of g",
    .arity = -1,
    .shape = accumulate_shape,
    .forward = accumulate_forward,
    .rule = accumulate_rule,
    .uses = EG_USES_OTHERS,
    .samples = accumulate_products_samples,
    .forward_c128 = accumulate_forward,
};

const eg_op *const eg__accumulate_ops[] = { &accumulate_op, &accumulate_products_op, NULL };
