/* fused.c: the operations of fused attention. Only one tile of the weights is in memory at a time;
 * a node keeps its operands, its result and two numbers for each row of scores, and the gradient
 * computes the tiles again. Where the log-sum-exp is wanted too, a node has y and lse one after the
 * other along one axis, and the caller gets views of it; a loss of both then needs one backward
 * pass. The largest score of each row, which has no gradient, may follow them. Derivatives of the
 * gradient, and tangents, are computed by the unfused form (unfused.c), so they need memory for all
 * weights. */
#include "attention/workspace.h"
#include <math.h>
#include <string.h>

/* -- the operands of a node: the terms that are present, then the tensors of the expressions -- */
static bool has_operand(const eg_attention_plan *a, int k)
{
    return k < EG_TERMS ? a->rank[k] >= 0 : k - EG_TERMS < a->tensors;
}
static int operands_of(const eg_attention_plan *a, eg_tensor *const *x, eg_tensor **operand)
{
    int n = 0;
    for (int k = 0; k < EG_ATTENTION_OPERANDS; k++)
        if (has_operand(a, k)) operand[n++] = x[k];
    return n;
}
static void from_operands(const eg_attention_plan *a, eg_tensor *const *operand, eg_tensor **x)
{
    for (int k = 0; k < EG_ATTENTION_OPERANDS; k++) x[k] = has_operand(a, k) ? *operand++ : NULL;
}

_Static_assert(EG_ATTENTION_OPERANDS + 2 <= EG_MEMO,
               "a memo has room for every operand of the gradient");
/* What a node of the two operations (attention, its gradient) saves. Where eg__apply passes the
 * saved data of another node, the new node reads that node's statistics instead of computing its
 * own. */
typedef struct fused_saved {
    eg_row_stats stats;
    int64_t empty;            /* rows with nothing to attend to */
    eg_memo memo;             /* the cotangents of all operands */
    const eg_tensor *part[2]; /* the views y and lse, if the node has both */
    /* only in the saved data of copy 0 of a node with copies: those of all copies, and what the
     * node was given */
    struct fused_saved **each;
    const struct fused_saved *lent;
} fused_saved;
/* Returns the saved data that node y was given, for the copy that is being computed; NULL if
 * there is none. */
static const fused_saved *lent_to(const eg_tensor *y)
{
    const eg_ctx *cx = y->cx;
    const fused_saved *s = y->saved;
    if (cx->copy.of && cx->copy.k) s = s->lent;
    return s && cx->copy.of && s->each ? s->each[cx->copy.k] : s;
}
/* Sets y->saved and returns it, with the statistics of `lent`. If `lent` has none and `stats` is
 * true, memory for the node's own statistics is allocated. NULL after an error. */
static fused_saved *fused_save(eg_tensor *y, const fused_saved *lent, bool stats)
{
    const eg_copies *copies = y->cx->copy.of;
    const int64_t copy = copies ? y->cx->copy.k : 0;
    const fused_saved *given = y->saved;
    fused_saved *first = copy ? y->saved : NULL, *s;
    s = copy ? eg__alloc(y->cx, sizeof *s) : eg__node_save(y, sizeof *s);
    if (!s) return NULL;
    *s = (fused_saved){ .empty = 0 };
    if (copies && !copy) {
        s->lent = given;
        s->each = eg__alloc(y->cx, (size_t)copies->count * sizeof *s->each);
        if (!s->each) return NULL;
        memset(s->each, 0, (size_t)copies->count * sizeof *s->each);
    }
    if (copies) (copy ? first : s)->each[copy] = s;
    if (lent && lent->stats.row_max) {
        s->stats = lent->stats;
        return s;
    }
    if (!stats) return s;
    eg_fused f;
    eg__fused_open(&f, y->attr, (eg_dtype)y->dtype);
    const size_t bytes =
        (size_t)(f.list[EG_PART_BATCH].total * f.list[EG_PART_QUERY].total * f.width);
    s->stats.row_max = eg__alloc(y->cx, bytes);
    s->stats.inv_sum = eg__alloc(y->cx, bytes);
    return s->stats.row_max && s->stats.inv_sum ? s : NULL;
}

/* Sets the arrays of the operands, and computes the bounds that the predicate needs of them.
 * False after an error. */
static bool fused_place(eg_fused *f, const eg_attention_plan *a, const eg_tensor *y, eg_part lanes)
{
    static const int at[EG_TERMS] = { EG_SLOT_Q, EG_SLOT_K, EG_SLOT_V, EG_SLOT_SINK };
    eg_tensor *x[EG_ATTENTION_OPERANDS];
    from_operands(a, y->in, x);
    eg__fused_open(f, a, (eg_dtype)y->dtype);
    f->drop.seed = eg__drop_seed(y->cx, &f->drop);
    for (int t = 0; t < EG_TERMS; t++)
        if (x[t]) eg__fused_place(f, at[t], t, x[t]);
    for (int t = 0; t < a->tensors; t++) {
        const eg_tensor *z = x[EG_TERMS + t];
        f->source[t] = (eg_source){ z->data, z->stride, (eg_dtype)z->dtype, z->dim };
    }
    return eg__fused_bound(y->cx, f, lanes);
}

/* -- y, the log-sum-exp and the largest scores in one node, one after the other, row-major, y with
 * the axes in the order in which attention_shape stores them, the others with those of the scores'
 * rows */
enum { FUSED_Y, FUSED_LSE, FUSED_MAX };
typedef struct fused_part {
    int rank;
    const uint16_t *label;
    int64_t at, count;
    int64_t dim[EG_RANK_MAX], step[EG_RANK_MAX]; /* by axis */
    int64_t stored[EG_RANK_MAX];                 /* sizes, as stored */
    int back[EG_RANK_MAX];                       /* by axis: its index in `stored` */
} fused_part;
/* Sets dim[] to the sizes of y and order[] to its axes as they are stored: as einsum stores a
 * result, trailing batch letters outermost. Returns the rank. */
static int stored_axes(const eg_attention_plan *a, int64_t *dim, int *order)
{
    const int rank = a->rank[EG_TERM_Y];
    int from = rank;
    while (from > 0 && a->part[a->label[EG_TERM_Y][from - 1]] == EG_PART_BATCH) from--;
    for (int r = 0; r < rank; r++) {
        dim[r] = a->size[a->label[EG_TERM_Y][r]];
        order[r] = r + from < rank ? r + from : r + from - rank;
    }
    return rank;
}
/* Returns where a part lies in a node that has several. */
static fused_part fused_part_of(const eg_attention_plan *a, int which)
{
    fused_part p = { .label = a->score, .count = 1 };
    int order[EG_RANK_MAX];
    p.rank = stored_axes(a, p.dim, order);
    if (which == FUSED_Y)
        p.label = a->label[EG_TERM_Y];
    else {
        p.at = 1;
        for (int k = 0; k < p.rank; k++) p.at *= p.dim[k];
        p.rank = a->scores - a->inner;
        for (int k = 0; k < p.rank; k++) p.dim[k] = a->size[a->score[k]], order[k] = k;
    }
    for (int k = p.rank; k-- > 0; p.count *= p.dim[order[k]]) {
        p.stored[k] = p.dim[order[k]];
        p.back[order[k]] = k;
        p.step[order[k]] = p.count;
    }
    if (which == FUSED_MAX) p.at += p.count;
    return p;
}
/* Sets array `at` to a part of x, which has several. */
static void place_part(eg_fused *f, int at, int which, const eg_tensor *x)
{
    fused_part p = fused_part_of(f->a, which);
    for (int k = 0; k < p.rank; k++) p.step[k] *= x->stride[0];
    eg__fused_lay(f, at, p.rank, p.label, p.step, x->data + p.at * x->stride[0] * f->width);
}
/* Returns a part of x, which has several: a view. */
static eg_tensor *part_view(const eg_attention_plan *a, int which, eg_tensor *x)
{
    const fused_part p = fused_part_of(a, which);
    x = eg_reshape_n(eg_slice_axis(x, 0, p.at, p.at + p.count, 1), p.rank, p.stored);
    return eg_permute_n(x, p.rank, p.back);
}
/* Returns x, a part of a node that has several, with one axis, in the order of the node. */
static eg_tensor *part_flat(const eg_attention_plan *a, int which, eg_tensor *x)
{
    const fused_part p = fused_part_of(a, which);
    int order[EG_RANK_MAX];
    for (int k = 0; k < p.rank; k++) order[p.back[k]] = k;
    return eg_reshape_n(eg_permute_n(x, p.rank, order), 1, &p.count);
}
/* Sets *g and *g_lse to the cotangents of y and of lse that x consists of; NULL: none. */
static void cotangents_of(const eg_attention_plan *a, eg_tensor *x, eg_tensor **g,
                          eg_tensor **g_lse)
{
    const bool y = a->rank[EG_TERM_V] >= 0;
    *g = !y ? NULL : a->wants_lse ? part_view(a, FUSED_Y, x) : x;
    *g_lse = !a->wants_lse ? NULL : y ? part_view(a, FUSED_LSE, x) : x;
}

/* -- the unfused form, made of new views of the operands, so that derivatives by these views go no
 * further */
static void detached_operands(const eg_attention_plan *a, eg_tensor *const *operand, eg_tensor **x)
{
    from_operands(a, operand, x);
    for (int k = 0; k < EG_ATTENTION_OPERANDS; k++)
        if (x[k]) x[k] = eg__fresh_view(x[k]);
}
/* Returns the value of a node by the unfused form. */
static eg_tensor *unfused_value(const eg_attention_plan *a, eg_tensor *const *x)
{
    const eg_attention_masks m = eg__attend_masks(a, x);
    double left;
    if (m.n < 0) return eg__poison(x[EG_TERM_Q]->cx);
    eg_tensor *s = eg__attend_scores(a, &m, x, &left), *w = eg__attend_weights(a, &m, x, s, left),
              *y = eg__attend_values(a, &m, x, a->dropping ? eg__drop(&a->drop, w) : w);
    if (!a->wants_lse || !eg_ok(y)) return y;
    s = eg_scale(s, left);
    eg_tensor *part[] = { y, eg__attend_lse(a, &m, x, s),
                          a->wants_max ? eg__attend_max(a, &m, x, s) : NULL };
    const int parts = a->wants_max ? 3 : 2;
    for (int k = 0; k < parts; k++) part[k] = part_flat(a, k, part[k]);
    return eg_concat_axis_n(0, parts, part);
}
/* There are no tiles of c128. */
static bool forward_c128(eg_tensor *node)
{
    eg_tensor *x[EG_ATTENTION_OPERANDS];
    from_operands(node->attr, node->in, x);
    eg_tensor *y = unfused_value(node->attr, x);
    if (eg_ok(y)) eg__copy(node, y);
    return eg_ok(y);
}
/* -- the gradient of attention: the cotangents of q, k, v, the sink and the wanted tensors,
 * concatenated along one axis */
static const eg_op attention_op, gradient_op;
/* Sets in[] to the operands whose cotangents the gradient contains, NULL for the others. Returns
 * the number of entries. */
static int wanted_operands(const eg_attention_plan *a, eg_tensor *const *operand, eg_tensor **in)
{
    int n = 0;
    for (int k = 0; k < EG_ATTENTION_OPERANDS; k++)
        if (has_operand(a, k)) {
            in[n] = k < EG_TERMS || a->wanted >> (k - EG_TERMS) & 1 ? operand[n] : NULL;
            n++;
        }
    return n;
}
static bool fused_gradient_shape(eg_tensor *d)
{
    eg_tensor *in[EG_ATTENTION_OPERANDS];
    const int count = wanted_operands(d->attr, d->in, in);
    const int64_t n = eg__gradient_size(count, in);
    return eg__shape(d, (eg_dtype)d->in[0]->dtype, 1, &n);
}
/* Sets the arrays of the result and of the cotangents. */
static void place_cotangents(eg_fused *f, const eg_tensor *result, const eg_tensor *g)
{
    const eg_attention_plan *a = f->a;
    if (a->rank[EG_TERM_V] < 0) {
        eg__fused_lay(f, EG_SLOT_G_LSE, g->rank, a->score, g->stride, g->data);
        return;
    }
    eg__fused_place(f, EG_SLOT_Y, EG_TERM_Y, result);
    if (a->wants_lse) {
        place_part(f, EG_SLOT_G, FUSED_Y, g);
        place_part(f, EG_SLOT_G_LSE, FUSED_LSE, g);
    } else
        eg__fused_place(f, EG_SLOT_G, EG_TERM_Y, g);
}
/* Writes the cotangents into d, one after the other. Reads the row statistics of the forward node;
 * if there are none, runs the forward pass again. */
static bool fused_gradient_forward(eg_tensor *d)
{
    const eg_attention_plan *a = d->attr;
    const fused_saved *lent = lent_to(d);
    fused_saved *s = fused_save(d, lent, !a->no_softmax);
    eg_fused f;
    eg_tensor *x[EG_ATTENTION_OPERANDS];
    char *part[EG_ATTENTION_OPERANDS] = { NULL }, *to = d->data;
    if (!s) return false;
    if (!lent && !a->no_softmax &&
        (!fused_place(&f, a, d, EG_PART_QUERY) ||
         !eg__fused_forward(d->cx, &f, &s->stats, &s->empty)))
        return false;
    from_operands(a, d->in, x);
    eg_tensor *g = d->in[d->count - 1];
    if (!(a = eg__attention_for_nonfinite(a, x, g, NULL)) || !fused_place(&f, a, d, EG_PART_KEY))
        return false;
    place_cotangents(&f, d->in[d->count - 2], g);
    for (int k = 0; k < EG_ATTENTION_OPERANDS; k++) {
        if (!x[k] || !eg__is_float(x[k]->dtype)) continue;
        if (k >= EG_TERMS && !(a->wanted >> (k - EG_TERMS) & 1)) continue;
        const size_t bytes = (size_t)(eg_size(x[k]) * f.width);
        if (k <= EG_TERM_V)
            eg__fused_spread(&f, EG_SLOT_DQ + k, k, to);
        else
            memset(to, 0, bytes); /* sums are added to it; those of q, k and v are written */
        part[k] = to;
        to += bytes;
    }
    return eg__fused_back(d->cx, &f, &s->stats, x, part);
}
static bool fused_gradient_c128(eg_tensor *d)
{
    const eg_attention_plan *a = d->attr;
    eg_tensor *x[EG_ATTENTION_OPERANDS], *by[EG_ATTENTION_OPERANDS], *in[EG_ATTENTION_OPERANDS],
        *first[EG_ATTENTION_OPERANDS], *g, *g_lse;
    from_operands(a, d->in, x);
    cotangents_of(a, d->in[d->count - 1], &g, &g_lse);
    eg__attend_gradient(a, x, g, g_lse, by);
    if (!eg_ok(by[EG_TERM_Q])) return false;
    const int n = wanted_operands(a, d->in, in);
    operands_of(a, by, first);
    return eg__gradient_fill(d, n, in, first);
}
/* Returns the derivative of ⟨c, d⟩ by operand i, where d is the gradient in the unfused form. The
 * operands are those of attention, its result, and g. */
static eg_tensor *fused_gradient_rule(eg_tensor *d, eg_tensor *c, int i)
{
    const eg_attention_plan *a = d->attr;
    eg_memo *memo = &((fused_saved *)d->saved)->memo;
    const int last = d->count - 1;
    if (i == last - 1)
        return NULL; /* the result is a function of the operands, whose cotangents
                      * include its part */
    if (!eg__remembered(memo, c)) {
        enum { MOST = EG_ATTENTION_OPERANDS + 1 };
        eg_tensor *x[MOST], *g, *part[2], *d1[MOST], *by[MOST], *dx[MOST], *in[MOST], *first[MOST];
        int at[MOST], n = 0;
        /* the derivative of ⟨c, d⟩ needs recorded operations, even if the caller does not record */
        const bool was_off = eg_nograd(d->cx, false);
        g = eg__fresh_view(d->in[last]);
        detached_operands(a, d->in, x);
        cotangents_of(a, g, &part[0], &part[1]);
        eg__attend_gradient(a, x, part[0], part[1], d1);
        const int count = wanted_operands(a, d->in, in);
        operands_of(a, d1, first);
        eg_tensor *all = eg_ok(d1[EG_TERM_Q]) ? eg__gradient_dot(c, count, in, first) : NULL;
        eg_nograd(d->cx, was_off);
        if (!all) return eg__failed(d->cx) ? eg__poison(d->cx) : NULL;
        operands_of(a, x, first);
        for (int k = 0; k < count; k++)
            if (eg__is_float(first[k]->dtype)) {
                at[n] = k;
                by[n++] = first[k];
            }
        at[n] = last;
        by[n++] = g;
        if (eg_grad(all, NULL, n, by, dx)) return eg__poison(d->cx);
        for (int k = 0; k < n; k++) memo->d[at[k]] = dx[k];
        eg__remember(memo, c);
    }
    return memo->d[i];
}
/* The tangent of the gradient in the unfused form. The rule would compute the derivatives by all
 * operands once for each of them. */
static eg_tensor *fused_gradient_jvp(eg_tensor *d, eg_tensor *const *dx)
{
    const eg_attention_plan *a = d->attr;
    const int last = d->count - 1;
    eg_tensor *x[EG_ATTENTION_OPERANDS], *by[EG_ATTENTION_OPERANDS], *in[EG_ATTENTION_OPERANDS],
        *first[EG_MEMO] = { NULL }, *part[EG_ATTENTION_OPERANDS], *g[2];
    const bool was_off = eg_nograd(d->cx, false), tracing = eg_trace(d->cx, false);
    detached_operands(a, d->in, x);
    first[last] = eg__fresh_view(d->in[last]);
    cotangents_of(a, first[last], &g[0], &g[1]);
    eg__attend_gradient(a, x, g[0], g[1], by);
    const int count = wanted_operands(a, d->in, in);
    operands_of(a, by, part);
    operands_of(a, x, first); /* not the result, a function of the others */
    eg_tensor *r = eg_ok(by[EG_TERM_Q]) ? eg__gradient_join(count, in, part) : by[EG_TERM_Q];
    eg_trace(d->cx, tracing);
    eg_nograd(d->cx, was_off);
    return eg__tangent_of(r, d->count, first, dx);
}
/* Returns the tensors of the expressions (bit k for tensor k) whose cotangents the current
 * backward pass needs, when it asks for operand i. */
static uint32_t tensors_wanted(const eg_tensor *y, int i)
{
    const eg_attention_plan *a = y->attr;
    uint32_t wanted = 0;
    int n = 0;
    for (int k = 0; k < EG_ATTENTION_OPERANDS; k++) {
        if (!has_operand(a, k)) continue;
        const eg_tensor *x = y->in[n];
        if (k >= EG_TERMS && eg__is_float(x->dtype) &&
            (n == i || (x->sweep == y->sweep && x->slot >= 0)))
            wanted |= 1u << (k - EG_TERMS);
        n++;
    }
    return wanted;
}
/* Applies the operation of the gradient to in, the operands of node y, to its result and to the
 * cotangent g, which is that of y if `values`, of lse if `lse`, or of both. */
static eg_tensor *gradient_of(const eg_tensor *y, eg_tensor *const *in, eg_tensor *result,
                              eg_tensor *g, uint32_t wanted, bool values, bool lse)
{
    eg_tensor *x[EG_ATTENTION_OPERANDS], *operand[EG_ATTENTION_OPERANDS + 2];
    const size_t bytes = eg__attention_bytes(y->attr);
    eg_attention_plan *a = eg__alloc(y->cx, bytes);
    if (!a) return eg__poison(y->cx);
    from_operands(y->attr, in, x);
    memcpy(a, y->attr, bytes);
    a->wanted = wanted;
    a->wants_lse = lse;
    a->wants_max = false;
    if (!values) a->rank[EG_TERM_V] = -1, a->dropping = false;
    const int n = operands_of(a, x, operand);
    operand[n] = result;
    operand[n + 1] = g;
    if (!eg__check_all(y->cx, gradient_op.name, n + 2, operand)) return eg__poison(y->cx);
    return eg__apply(y->cx, &gradient_op, a, bytes, y->saved, n + 2, operand);
}
/* Attention has no c128 tiles, so for c128 the node of attention is made from the real parts. */
static eg_tensor *gradient_sample(eg_tensor *const *x)
{
    eg_tensor *real[3];
    for (int k = 0; k < 3; k++) real[k] = eg_type(x[k]) == EG_C128 ? eg_real(x[k]) : x[k];
    eg_tensor *y = eg_attention("bid,bjd,bje->bie", real[0], real[1], real[2],
                                .where = "j <= i + 1", .form = EG_FUSED);
    if (eg_op_of(y) == &attention_op) return gradient_of(y, x, y, x[3], 0, true, false);
    /* a size is 0: there is no node of attention, and all cotangents are empty or 0 */
    for (int k = 0; k < 3; k++) real[k] = eg_scale(eg_reshape(x[k], -1), 0);
    return eg_ok(y) ? eg_concat_axis_n(0, 3, real) : y;
}
static const eg_sample gradient_samples[] = {
    { gradient_sample, "2x3x2, 2x4x2, 2x4x3, 2x3x3", -1, 1 }, { 0 }
};
static const eg_op gradient_op = {
    .name = "attention_gradient",
    .equation = "d = (dS k, dS^T q, P^T g), dS = P (g v - g y)",
    .gradient = "of the unfused form",
    .arity = -1,
    .shape = fused_gradient_shape,
    .forward = fused_gradient_forward,
    .rule = fused_gradient_rule,
    .jvp = fused_gradient_jvp,
    .samples = gradient_samples,
    .forward_c128 = fused_gradient_c128,
    .draws = 1 + offsetof(eg_attention_plan, drop),
};

/* True if the sweep that calls a rule of `node` has a cotangent of view x of the node. Outside of a
 * sweep a cotangent is one of all that the node has. */
static bool part_wanted(const eg_tensor *node, const eg_tensor *x)
{
    return !node->cx->pull || !x || (x->sweep == node->sweep && x->slot >= 0);
}
/* Applies the gradient to what has cotangents in g, that of node y: y, lse or both. */
static eg_tensor *gradient_of_parts(eg_tensor *y, eg_tensor *g, uint32_t wanted)
{
    const eg_attention_plan *a = y->attr;
    const fused_saved *s = y->saved;
    eg_tensor *result = y;
    const bool values = !a->wants_lse || part_wanted(y, s->part[FUSED_Y]),
               lse = a->wants_lse && part_wanted(y, s->part[FUSED_LSE]);
    if (a->wants_lse && values) result = part_view(a, FUSED_Y, y);
    if (a->wants_lse && values != lse) g = part_view(a, values ? FUSED_Y : FUSED_LSE, g);
    return gradient_of(y, y->in, result, g, wanted, values, lse);
}
/* Computes all wanted cotangents in one pass and keeps them for the operands that are asked for
 * next. */
static eg_tensor *attention_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_memo *memo = &((fused_saved *)y->saved)->memo;
    if (!eg__remembered(memo, g) || (!memo->d[i] && i != EG_TERM_V)) {
        eg_tensor *in[EG_ATTENTION_OPERANDS], *part[EG_ATTENTION_OPERANDS],
            *x[EG_ATTENTION_OPERANDS], *d = gradient_of_parts(y, g, tensors_wanted(y, i));
        if (!eg_ok(d)) return d;
        const int n = wanted_operands(d->attr, d->in, in);
        eg__gradient_parts(d, n, in, part);
        from_operands(d->attr, part, x); /* without a cotangent of y, v has none */
        operands_of(y->attr, x, memo->d);
        eg__remember(memo, g);
    }
    return memo->d[i];
}

/* The tangent of the unfused form, for the same reason as that of the gradient. */
static eg_tensor *attention_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const eg_attention_plan *a = y->attr;
    eg_tensor *x[EG_ATTENTION_OPERANDS], *first[EG_ATTENTION_OPERANDS];
    /* of r only the history is read: a NaN in it is no error */
    const bool was_off = eg_nograd(y->cx, false), tracing = eg_trace(y->cx, false);
    detached_operands(a, y->in, x);
    operands_of(a, x, first);
    eg_tensor *r = unfused_value(a, x);
    eg_trace(y->cx, tracing);
    eg_nograd(y->cx, was_off);
    return eg__tangent_of(r, y->count, first, dx);
}

/* -- attention: y = softmax(score(scale q·k)) v. Vaswani et al. 2017, eq. 1 ------------------- */
static bool attention_shape(eg_tensor *y)
{
    const eg_attention_plan *a = y->attr;
    const eg_dtype dtype = (eg_dtype)y->in[0]->dtype;
    int64_t dim[EG_RANK_MAX];
    int order[EG_RANK_MAX];
    const fused_part last = fused_part_of(a, a->wants_max ? FUSED_MAX : FUSED_LSE);
    if (a->wants_lse) return eg__shape(y, dtype, 1, (int64_t[]){ last.at + last.count });
    const int rank = stored_axes(a, dim, order);
    return eg__shape_strided(y, dtype, rank, dim, order);
}
/* Returns the largest score of a row with these statistics: −∞ if it has none, NaN if it has one.
 * That it is the lowest number stands for a score whose product with log2 e is below it, usually
 * for the lowest number. */
static double max_of(const eg_fused *f, double row_max, double inv_sum)
{
    const double lowest = f->width == 8 ? -DBL_MAX : -FLT_MAX;
    if (isnan(inv_sum)) return inv_sum;
    return row_max == lowest ? lowest : row_max / EG_LOG2_E;
}
static double log_sum_of(const eg_fused *f, double row_max, double inv_sum)
{
    return inv_sum == 0 ? -INFINITY : max_of(f, row_max, inv_sum) - log(inv_sum);
}
/* Writes a number of each row of scores to array EG_SLOT_LSE, from the rows' statistics. */
static void write_rows(const eg_fused *f, const eg_row_stats *s,
                       double (*number)(const eg_fused *, double row_max, double inv_sum))
{
    const int64_t queries = f->list[EG_PART_QUERY].total;
    for (int64_t n = 0; n < f->list[EG_PART_BATCH].total * queries; n++)
        eg__set_real(f, f->data[EG_SLOT_LSE],
                     eg__fused_at(f, EG_PART_BATCH, EG_SLOT_LSE, n / queries) +
                         eg__fused_at(f, EG_PART_QUERY, EG_SLOT_LSE, n % queries),
                     number(f, eg__real_at(f, s->row_max, n), eg__real_at(f, s->inv_sum, n)));
}
/* Computes the result, and the statistics of rows if the gradient or the log-sum-exp needs them. */
static bool attention_forward(eg_tensor *y)
{
    const eg_attention_plan *a = y->attr;
    const bool stats = !a->no_softmax && (eg__recording(y->cx) || a->wants_lse);
    fused_saved *s = fused_save(y, NULL, stats);
    eg_fused f;
    if (!s) return false;
    if (!fused_place(&f, a, y, EG_PART_QUERY)) return false;
    if (a->wants_lse) {
        place_part(&f, EG_SLOT_Y, FUSED_Y, y);
        place_part(&f, EG_SLOT_LSE, FUSED_LSE, y);
    } else
        eg__fused_place(&f, EG_SLOT_Y, EG_TERM_Y, y);
    const bool good = eg__fused_forward(y->cx, &f, s->stats.row_max ? &s->stats : NULL, &s->empty);
    if (good && a->wants_lse) write_rows(&f, &s->stats, log_sum_of);
    if (good && a->wants_max) {
        place_part(&f, EG_SLOT_LSE, FUSED_MAX, y);
        write_rows(&f, &s->stats, max_of);
    }
    if (s != y->saved) ((fused_saved *)y->saved)->empty += s->empty;
    return good;
}
static eg_tensor *sample_plain(eg_tensor *const *x)
{
    return eg_attention("id,jd,je->ie", x[0], x[1], x[2], .form = EG_FUSED);
}
static eg_tensor *sample_causal(eg_tensor *const *x)
{
    return eg_attention("ibhd,jbhd,jbhe->ibhe", x[0], x[1], x[2], .where = "j <= i", .offset = 1,
                        .keep = { "bj", x[3] }, .bias = { "hij", x[4] }, .form = EG_FUSED);
}
static eg_tensor *sample_alibi(eg_tensor *const *x)
{
    return eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i", .offset = 1,
                        .alibi = { "h", x[3] }, .form = EG_FUSED);
}
static eg_tensor *sample_expression(eg_tensor *const *x)
{
    return eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i + 1",
                        .score = "2 * tanh((score + r[h, clip(i - j, 0, 2)] * c[j, h]) / 2)",
                        .with = { { "r", x[3] }, { "c", x[4] } }, .sink = { "h", x[5] },
                        .form = EG_FUSED);
}
static eg_tensor *sample_sigmoid(eg_tensor *const *x)
{
    return eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i + 1",
                        .score = "sigmoid(score + b[h])", .with = { { "b", x[3] } },
                        .no_softmax = true, .form = EG_FUSED);
}
static eg_tensor *sample_lse(eg_tensor *const *x)
{
    eg_tensor *lse, *y = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .sink = { "i", x[3] },
                                      .form = EG_FUSED, .lse = &lse);
    return eg_einsum("ie,i->ie", y, lse);
}
static const eg_sample attention_samples[] = {
    { sample_lse, "3x2, 4x2, 4x3, 3", 0, 0 },
    { sample_expression, "3x2x2, 4x2x2, 4x2x3, 2x3, 4x2, 2", -1, 1 },
    { sample_sigmoid, "3x2x2, 4x2x2, 4x2x3, 2", -1, 1 },
    { sample_alibi, "3x2x2, 4x2x2, 4x2x2, 2", -1, 1 },
    { sample_plain, "3x2, 4x2, 4x3", 0, 0 },
    { sample_causal, "3x2x1x2, 4x2x1x2, 4x2x1x2, 2x4:b, 1x3x4", -1, 1 },
    { 0 },
};
/* Counts the multiplications for the scores and the weighted values of all pairs, including
 * those that a mask skips. */
static void attention_cost(const eg_tensor *y, eg_op_cost *cost)
{
    const eg_attention_plan *a = y->attr;
    double scores = 1, values = 1;
    for (int k = 0; k < a->axes; k++) {
        if (a->part[k] != EG_PART_VALUE) scores *= (double)a->size[k];
        if (a->part[k] != EG_PART_DOT) values *= (double)a->size[k];
    }
    cost->multiply_adds += scores + values;
}
static const eg_op attention_op = {
    .name = "attention",
    .equation = "y = softmax(score(scale q k)) v",
    .gradient = "dv = P^T g, dS = P (g v - g y), dq = scale dS k, dk = scale dS^T q",
    .arity = -1,
    .shape = attention_shape,
    .forward = attention_forward,
    .rule = attention_rule,
    .jvp = attention_jvp,
    .samples = attention_samples,
    .forward_c128 = forward_c128,
    .cost = attention_cost,
    .draws = 1 + offsetof(eg_attention_plan, drop),
};

const eg_op *const eg__fused_ops[] = { &attention_op, &gradient_op, NULL };

/* Returns an operand expanded along the batch letters that it does not have. The rule of the
 * view then sums its cotangent. */
static eg_tensor *fused_batches(eg_attention_plan *a, int term, eg_tensor *x)
{
    uint16_t label[EG_RANK_MAX];
    int64_t dim[EG_RANK_MAX];
    int n = 0;
    for (int s = 0; s < a->scores; s++) {
        bool have = a->part[a->score[s]] != EG_PART_BATCH;
        for (int r = 0; r < a->rank[term]; r++) have |= a->label[term][r] == a->score[s];
        if (!have && n < EG_RANK_MAX) label[n++] = a->score[s];
    }
    if (!n) return x;
    if (n + a->rank[term] > EG_RANK_MAX)
        return eg_fail_as(
            x->cx, EG_ERROR_SHAPE,
            "attention: an operand with all batch indices would have %d axes; at most %d",
            n + a->rank[term], EG_RANK_MAX);
    for (int r = 0; r < a->rank[term]; r++) label[n++] = a->label[term][r];
    for (int r = 0; r < n; r++) dim[r] = a->size[label[r]];
    x = eg__align_labels(x, a->rank[term], a->label[term], n, label, dim);
    a->rank[term] = n;
    memcpy(a->label[term], label, (size_t)n * sizeof *label);
    return x;
}
eg_tensor *eg__fused(const eg_attention_plan *a, eg_tensor *const *x, int64_t *empty,
                     eg_tensor **lse, eg_tensor **max)
{
    const size_t bytes = eg__attention_bytes(a);
    eg_attention_plan *b = eg__alloc(x[0]->cx, bytes);
    if (!b) return eg__poison(x[0]->cx);
    memcpy(b, a, bytes);
    eg_tensor *operand[EG_ATTENTION_OPERANDS], *all[EG_ATTENTION_OPERANDS];
    memcpy(all, x, sizeof all);
    for (int t = 0; t <= EG_TERM_V; t++)
        if (!eg_ok(all[t] = fused_batches(b, t, all[t]))) return all[t];
    const int n = operands_of(b, all, operand);
    eg_ctx *cx = eg__here(x[0]->cx);
    if (!eg__check_all(cx, attention_op.name, n, operand)) return eg__poison(cx);
    eg_tensor *node = eg__apply(cx, &attention_op, b, bytes, NULL, n, operand), *y = node;
    if (!eg_ok(node)) return node;
    fused_saved *s = node->saved;
    if (empty) *empty = s ? s->empty : 0;
    if (!a->wants_lse) return y;
    y = part_view(b, FUSED_Y, node);
    *lse = part_view(b, FUSED_LSE, node);
    if (a->wants_max) *max = part_view(b, FUSED_MAX, eg_detach(node));
    if (s) s->part[FUSED_Y] = y, s->part[FUSED_LSE] = *lse;
    return y;
}
