/* ring_sink.c: the sink of attention over a divided sequence. Each row has the sink z as one more
 * key. All ranks have z, unless it has the query's index: then each rank has the part for its own
 * queries. There are two operations, each the transpose of the other: one spreads z over the rows
 * of this rank; the other folds a cotangent: it sums over each block of queries, then, if all ranks
 * have z, over the blocks of all ranks along their tree, so that the bits depend on the length and
 * the size of a block only. */
#include "attention/ring_walk.h"
#include <float.h>

typedef struct sink_of {
    const eg_ring *r;
    const char *spread, *fold; /* einsums "z, rows -> rows" and "rows -> z" */
    int axis;                  /* of z with the query's index; −1: all ranks have z */
    int rank;                  /* of z */
    int64_t dims[EG_RANK_MAX];
} sink_of;
static const sink_of *sink_attr(const eg_tensor *y) { return eg_attr(y); }

static eg_tensor *sink_spread(const sink_of *s, eg_tensor *z);
static eg_tensor *sink_fold(const sink_of *s, eg_tensor *g);
static bool sink_spread_shape(eg_tensor *y)
{
    const eg_ring *r = sink_attr(y)->r;
    return eg_result(y, r->dtype, r->l_rank, r->l_dims);
}
static bool sink_spread_forward(eg_tensor *y)
{
    const eg_mark m = eg_push(y->cx);
    const bool was = eg_nograd(y->cx, true);
    const int bad =
        eg_assign(y, eg_einsum(sink_attr(y)->spread, eg_operand(y, 0), eg_ones_like(y)));
    eg_nograd(y->cx, was);
    eg_pop(y->cx, m);
    return !bad;
}
static eg_tensor *sink_spread_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return sink_fold(sink_attr(y), g);
}
static const eg_op sink_spread_op = {
    .name = "attention over ranks, its sink",
    .equation = "y[b,h,i] = z[h] for the rows of a rank",
    .gradient = "dz = sum over all rows of g",
    .arity = 1,
    .shape = sink_spread_shape,
    .forward = sink_spread_forward,
    .rule = sink_spread_rule,
    .uses = EG_USES_NOTHING,
    .jvp = eg_jvp_linear,
};
static eg_tensor *sink_spread(const sink_of *s, eg_tensor *z)
{
    return eg_apply(&sink_spread_op, s, sizeof *s, 1, &z);
}

/* Returns the sum of the leaves below a node, added along the tree. */
static eg_tensor *fold_tree(eg_tensor *const *leaf, eg_span node)
{
    if (node.to - node.from < 2) return leaf[node.from];
    const int64_t middle = eg_ranks_tree_middle(node);
    return eg_add(fold_tree(leaf, (eg_span){ node.from, middle }),
                  fold_tree(leaf, (eg_span){ middle, node.to }));
}
static bool sink_fold_shape(eg_tensor *y)
{
    const sink_of *s = sink_attr(y);
    return eg_result(y, s->r->dtype, s->rank, s->dims);
}
/* Returns the sum of the rows of one block. */
static eg_tensor *fold_block(eg_tensor *y, const eg_ring_block *b)
{
    const sink_of *s = sink_attr(y);
    return eg_einsum(s->fold, eg__ring_slice(eg_operand(y, 0), s->r->l_axis, b));
}
/* Sums the rows of each block of this rank, gathers the sums of all ranks, and adds them. */
static bool fold_all(eg_tensor *y)
{
    const sink_of *s = sink_attr(y);
    const eg_ring *r = s->r;
    eg_ctx *cx = y->cx;
    eg_ring_walk w = { .r = r, .cx = cx, .width = r->dtype == EG_F64 ? 8 : 4 };
    const int ranks = eg_ranks_count(r->ranks), me = eg_ranks_rank(r->ranks);
    const size_t each = (size_t)eg_size(y) * w.width;
    int n = 0, most = 0;
    for (int k = 0; k < ranks; k++) {
        eg__ring_blocks(&w, &r->query, k, &n);
        most = n > most ? n : most;
    }
    char *mine = eg__alloc(cx, (size_t)most * each + 1),
         *all = eg__alloc(cx, (size_t)most * (size_t)ranks * each + 1);
    eg_tensor **leaf = eg__alloc(cx, (size_t)(r->query.blocks + 1) * sizeof(eg_tensor *));
    const eg_ring_block *own = eg__ring_blocks(&w, &r->query, me, &n);
    for (int b = 0; mine && own && b < n; b++)
        eg__ring_copy(&w, mine + (size_t)b * each, fold_block(y, &own[b]));
    bool good =
        !eg_ranks_barrier(r->ranks) && !eg_ranks_gather(r->ranks, mine, (size_t)most * each, all);
    for (int k = 0; good && k < ranks; k++) {
        const eg_ring_block *of = eg__ring_blocks(&w, &r->query, k, &n);
        for (int b = 0; of && b < n; b++)
            leaf[of[b].block] =
                eg_from_n(cx, r->dtype, all + ((size_t)k * (size_t)most + (size_t)b) * each,
                          eg_rank(y), eg_dims(y));
        good = of != NULL;
    }
    return good && !eg_assign(y, fold_tree(leaf, (eg_span){ 0, r->query.blocks }));
}
/* Writes the sum of the rows of each block of this rank to the block's part of y. */
static bool fold_own(eg_tensor *y)
{
    const sink_of *s = sink_attr(y);
    const eg_ring *r = s->r;
    eg_ring_walk w = { .r = r, .cx = y->cx, .width = r->dtype == EG_F64 ? 8 : 4 };
    int n = 0;
    const eg_ring_block *own = eg__ring_blocks(&w, &r->query, eg_ranks_rank(r->ranks), &n);
    for (int b = 0; own && b < n; b++) {
        eg_tensor *sum = fold_block(y, &own[b]);
        if (eg_ok(sum)) eg__ring_put(&w, y->data, s->rank, s->dims, s->axis, &own[b], sum);
    }
    return own && !eg_error(y->cx);
}
static bool sink_fold_forward(eg_tensor *y)
{
    const eg_mark m = eg_push(y->cx);
    const bool was = eg_nograd(y->cx, true),
               good = sink_attr(y)->axis < 0 ? fold_all(y) : fold_own(y);
    eg_nograd(y->cx, was);
    eg_pop(y->cx, m);
    return good;
}
static eg_tensor *sink_fold_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return sink_spread(sink_attr(y), g);
}
static const eg_op sink_fold_op = {
    .name = "attention over ranks, its sink's gradient",
    .equation = "y[h] = the sum over all rows of all ranks of x[b,h,i]",
    .gradient = "dx[b,h,i] = g[h]",
    .arity = 1,
    .shape = sink_fold_shape,
    .forward = sink_fold_forward,
    .rule = sink_fold_rule,
    .uses = EG_USES_NOTHING,
    .jvp = eg_jvp_linear,
};
static eg_tensor *sink_fold(const sink_of *s, eg_tensor *g)
{
    return s->axis < 0 ? eg__ranks_apply(s->r->ranks, &sink_fold_op, s, sizeof *s, 1, &g)
                       : eg_apply(&sink_fold_op, s, sizeof *s, 1, &g);
}

static const char *sink_text(eg_ctx *cx, const eg_spec *s)
{
    char *to = s ? eg__alloc(cx, strlen(s->text) + 1) : NULL;
    return to ? strcpy(to, s->text) : NULL;
}
/* Returns a sink as one element for each row of this rank, row-major like the log-sum-exp. Poison
 * after an error. */
static eg_tensor *sink_of_rows(eg_ctx *cx, const eg_ring *r, const eg_masked *sink)
{
    static const char named[] = "attention: .ranks: .sink";
    char text[512];
    snprintf(text, sizeof text, "names:%s", strrchr(r->inner, '>') + 1);
    const eg_spec *z = eg_spec_like(eg_spec_parse(cx, named, r->o.spec), sink->axes),
                  *rows = eg_spec_parse(cx, named, text);
    if (!z || !rows) return eg__poison(cx);
    if (eg_spec_find_item(z, 0, r->key.letter) >= 0)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s has '%s', the index of the keys", named,
                          r->key.letter);
    sink_of s = { .r = r, .axis = eg_spec_axis(z, 0, r->query.letter), .rank = eg_rank(sink->x) };
    memcpy(s.dims, eg_dims(sink->x), (size_t)s.rank * sizeof *s.dims);
    s.spread = sink_text(cx, eg_spec_join(2, (const eg_spec *[]){ z, rows }, rows));
    s.fold = sink_text(cx, eg_spec_join(1, (const eg_spec *[]){ rows }, z));
    return s.spread && s.fold ? sink_spread(&s, sink->x) : eg__poison(cx);
}

/* -- y times one number for each row. The gradient by that number sums products over the axes of
 * values, separately for each block of queries, so that its bits depend on the blocks alone. There
 * are two operations, each of which computes the gradient of the other. */
static const eg_ring *sink_ring(const eg_tensor *y) { return *(const eg_ring *const *)eg_attr(y); }
static eg_tensor *sink_rows_times(const eg_ring *r, eg_tensor *x, eg_tensor *rows);
static eg_tensor *sink_rows_product(const eg_ring *r, eg_tensor *x, eg_tensor *y);

static bool rows_times_shape(eg_tensor *y)
{
    const eg_ring *r = sink_ring(y);
    return eg_result(y, r->dtype, r->y_rank, r->y_dims);
}
static bool rows_times_forward(eg_tensor *y)
{
    const bool was = eg_nograd(y->cx, true);
    const int bad =
        eg_assign(y, eg_einsum(sink_ring(y)->weigh, eg_operand(y, 0), eg_operand(y, 1)));
    eg_nograd(y->cx, was);
    return !bad;
}
static eg_tensor *rows_times_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const eg_ring *r = sink_ring(y);
    return i ? sink_rows_product(r, g, eg_operand(y, 0)) : sink_rows_times(r, g, eg_operand(y, 1));
}
static const eg_op rows_times_op = {
    .name = "attention over ranks, rows times a number",
    .equation = "y[b,h,i,e] = x[b,h,i,e] c[b,h,i]",
    .gradient = "dx = g c, dc = sum over e of g x",
    .arity = 2,
    .shape = rows_times_shape,
    .forward = rows_times_forward,
    .rule = rows_times_rule,
};
static eg_tensor *sink_rows_times(const eg_ring *r, eg_tensor *x, eg_tensor *rows)
{
    return eg_apply(&rows_times_op, &r, sizeof r, 2, (eg_tensor *[]){ x, rows });
}

static bool rows_product_shape(eg_tensor *y)
{
    const eg_ring *r = sink_ring(y);
    return eg_result(y, r->dtype, r->l_rank, r->l_dims);
}
static bool rows_product_forward(eg_tensor *y)
{
    const eg_ring *r = sink_ring(y);
    eg_ring_walk w = { .r = r, .cx = y->cx, .width = r->dtype == EG_F64 ? 8 : 4 };
    const eg_mark m = eg_push(y->cx);
    const bool was = eg_nograd(y->cx, true);
    int n = 0;
    const eg_ring_block *own = eg__ring_blocks(&w, &r->query, eg_ranks_rank(r->ranks), &n);
    for (int b = 0; own && b < n; b++) {
        eg_tensor *one = eg_einsum(r->inner, eg__ring_slice(eg_operand(y, 0), r->y_axis, &own[b]),
                                   eg__ring_slice(eg_operand(y, 1), r->y_axis, &own[b]));
        if (eg_ok(one)) eg__ring_put(&w, y->data, r->l_rank, r->l_dims, r->l_axis, &own[b], one);
    }
    eg_nograd(y->cx, was);
    eg_pop(y->cx, m);
    return own && !eg_error(y->cx);
}
static eg_tensor *rows_product_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return sink_rows_times(sink_ring(y), eg_operand(y, !i), g);
}
static const eg_op rows_product_op = {
    .name = "attention over ranks, products of rows",
    .equation = "y[b,h,i] = sum over e of a[b,h,i,e] b[b,h,i,e]",
    .gradient = "da = b g, db = a g",
    .arity = 2,
    .shape = rows_product_shape,
    .forward = rows_product_forward,
    .rule = rows_product_rule,
};
static eg_tensor *sink_rows_product(const eg_ring *r, eg_tensor *x, eg_tensor *y)
{
    return eg_apply(&rows_product_op, &r, sizeof r, 2, (eg_tensor *[]){ x, y });
}

/* -- a sink beside the scores ------------------------------------------------------------------ */
/* y = b, with the gradient of x: rows whose scores or sink are ∞ are computed from finite numbers
 * with the same differences. */
static bool sink_finite_shape(eg_tensor *y)
{
    const eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool sink_finite_forward(eg_tensor *y)
{
    const bool was = eg_nograd(y->cx, true);
    const int bad = eg_assign(y, eg_operand(y, 1));
    eg_nograd(y->cx, was);
    return !bad;
}
static eg_tensor *sink_finite_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y;
    return i ? NULL : g;
}
static const eg_op sink_finite_op = {
    .name = "attention over ranks, a row with infinite scores",
    .equation = "y = b",
    .gradient = "dx = g",
    .arity = 2,
    .shape = sink_finite_shape,
    .forward = sink_finite_forward,
    .rule = sink_finite_rule,
    .uses = EG_USES_NOTHING,
};
static eg_tensor *sink_finite(eg_tensor *x, eg_tensor *rows, eg_tensor *value)
{
    const bool was = eg_nograd(eg_context(x), true);
    eg_tensor *in[] = { x, eg_where(rows, value, x) };
    eg_nograd(eg_context(x), was);
    return eg_apply(&sink_finite_op, NULL, 0, 2, in);
}
static eg_tensor *sink_full(const eg_tensor *like, double value)
{
    return eg_full_n(eg_context(like), eg_type(like), value, eg_rank(like), eg_dims(like));
}
/* Replaces l and z in rows where one of them, or both, is ∞. If n scores are ∞, the sink then gets
 * the weight 1/(n + 1). Returns what must be added to ln (e^l + e^z); NULL if there are no such
 * rows. */
static eg_tensor *sink_finite_rows(eg_tensor *n, eg_tensor **l, eg_tensor **z)
{
    eg_ctx *cx = eg_context(*l);
    const bool was = eg_nograd(cx, true);
    const double most = eg_type(*l) == EG_F64 ? DBL_MAX : FLT_MAX;
    eg_tensor *big = sink_full(*l, most), *zero = eg_zeros_like(*l), *lowest = sink_full(*l, -1e38),
              *of_l = eg_gt(*l, big), *of_z = eg_gt(*z, big), *rows = eg_or(of_l, of_z),
              *logs = eg_log(eg_maximum(n ? n : zero, sink_full(*l, 1))),
              *to_l = eg_where(of_l, logs, lowest), *to_z = eg_where(of_z, zero, lowest),
              *more = eg_where(rows, sink_full(*l, INFINITY), sink_full(*l, -0.0));
    const bool some = eg__attention_count(rows) > 0;
    eg_nograd(cx, was);
    if (!some) return NULL;
    /* a NaN in a row with ∞ makes the row NaN */
    *l = sink_finite(*l, rows, eg_where(eg_isnan(*l), *l, to_l));
    *z = sink_finite(*z, rows, eg_where(eg_isnan(*z), *z, to_z));
    return more;
}
/* Computes l = ln (e^lse + e^z) and y e^(lse − l) = y/(1 + e^(z − lse)). */
bool eg__ring_add_sink(eg_ctx *cx, const eg_ring *r, const eg_masked *sink, eg_tensor *infinite,
                       eg_tensor **y, eg_tensor **lse)
{
    eg_tensor *z = sink_of_rows(cx, r, sink);
    if (!eg_ok(z)) return false;
    eg_tensor *more = sink_finite_rows(infinite, lse, &z),
              *over = eg_sub(eg_maximum(*lse, eg_full_n(cx, r->dtype, -1e38, 0, NULL)), z);
    *y = sink_rows_times(r, *y, eg_sigmoid(over));
    *lse = eg_logaddexp(*lse, z);
    if (more) *lse = eg_add(*lse, more);
    return !eg_error(cx);
}
