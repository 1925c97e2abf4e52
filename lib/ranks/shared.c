/* shared.c: tensors that are the same on all ranks, and sums over the ranks. These are two
 * operations, each the other's transpose: with L = Σ_r L_r, the cotangent of a tensor that all
 * ranks read is the sum of the ranks' cotangents, and the cotangent of a sum is the same on all
 * ranks. */
#include "ranks/ranks.h"
#include "autograd/autograd.h"

static eg_ranks *ranks_of(const eg_tensor *y) { return *(eg_ranks *const *)eg_attr(y); }
/* True if x can be used with the group; else records an error. */
static bool group_fits(const char *who, eg_ranks *r, eg_tensor *x)
{
    if (!eg__check(who, x)) return false;
    if (r->cx != x->cx)
        eg_fail_as(x->cx, EG_ERROR_MISUSE, "%s: the group belongs to another context", who);
    else if (x->dtype != EG_F32 && x->dtype != EG_F64)
        eg_fail_as(x->cx, EG_ERROR_DTYPE, "%s: the tensor is %s; f32 or f64 is needed", who,
                   eg_type_name((eg_dtype)x->dtype));
    else
        return !eg__capture_refuses(x->cx, who, "processes cannot wait for each other");
    return false;
}
static bool group_shape(eg_tensor *y)
{
    const eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}

static eg_tensor *shared_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return eg_ranks_sum(ranks_of(y), g);
}
static bool shared_forward(eg_tensor *y) { return !eg_assign(y, eg_operand(y, 0)); }
static const eg_op shared_op = {
    .name = "shared by ranks",
    .equation = "y_r = x",
    .gradient = "dx = sum over ranks of g_r",
    .arity = 1,
    .shape = group_shape,
    .forward = shared_forward,
    .rule = shared_rule,
    .uses = EG_USES_NOTHING,
    .jvp = eg_jvp_linear,
};
eg_tensor *eg_ranks_shared(eg_ranks *r, eg_tensor *x)
{
    if (!r || !group_fits("ranks_shared", r, x)) return r ? eg__poison_of(x) : x;
    if (r->table.ranks == 1 || !x->cx->recording) return x;
    return eg__communicates(eg_apply(&shared_op, &r, sizeof r, 1, &x));
}

static eg_tensor *sum_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return eg_ranks_shared(ranks_of(y), g);
}
/* Adds along the tree of the ranks, each of which has one leaf. False after an error. */
static bool sum_forward(eg_tensor *y)
{
    eg_ranks *r = ranks_of(y);
    const int64_t n = eg_size(y), each = n / r->table.ranks + 1;
    if (eg_assign(y, eg_operand(y, 0))) return false;
    eg_ranks_tree *t =
        eg_ranks_tree_open(.ranks = r, .dtype = eg_type(y), .leaves = r->table.ranks, .parts = 1,
                           .counts = &n, .chunk = each < EG_RANKS_CHUNK ? each : EG_RANKS_CHUNK);
    void *own = y->data;
    const bool good =
        !eg_ranks_barrier(r) && !eg_ranks_tree_sum(t, &own, own) && !eg_ranks_tree_gather(t, own);
    eg_ranks_tree_close(t);
    return good;
}
static const eg_op ranks_sum_op = {
    .name = "sum over ranks",
    .equation = "y = sum over ranks of x_r",
    .gradient = "dx_r = g",
    .arity = 1,
    .shape = group_shape,
    .forward = sum_forward,
    .rule = sum_rule,
    .uses = EG_USES_NOTHING,
    .jvp = eg_jvp_linear,
};
eg_ranks *eg__ranks_of_node(const eg_tensor *t)
{
    return t->op == &shared_op || t->op == &ranks_sum_op ? ranks_of(t) : NULL;
}
/* True on all ranks if none has an error and their tensors have one size; otherwise false on all of
 * them, after an error. */
static bool sum_agrees(eg_ranks *r, eg_tensor *x)
{
    const int ranks = r->table.ranks;
    if (!x) eg_fail_as(r->cx, EG_ERROR_MISUSE, "ranks_sum: the tensor is NULL");
    group_fits("ranks_sum", r, x);
    const eg_mark m = eg_push(r->cx);
    int64_t mine[2] = { 0 }, *all = eg__alloc(r->cx, (size_t)ranks * sizeof mine);
    if (x) mine[0] = eg_size(x), mine[1] = x->dtype;
    bool good = !eg_ranks_barrier(r) && !eg_ranks_gather(r, mine, sizeof mine, all);
    for (int k = 1; good && k < ranks; k++) {
        if (all[2 * k] == all[0] && all[2 * k + 1] == all[1]) continue;
        eg_fail_as(r->cx, EG_ERROR_SHAPE,
                   "ranks_sum: the tensor has %lld numbers of %s on rank 0, but %lld of %s on rank "
                   "%d",
                   (long long)all[0], eg_type_name((eg_dtype)all[1]), (long long)all[2 * k],
                   eg_type_name((eg_dtype)all[2 * k + 1]), k);
        eg_ranks_barrier(r);
        good = false;
    }
    eg_pop(r->cx, m);
    return good;
}
eg_tensor *eg_ranks_sum(eg_ranks *r, eg_tensor *x)
{
    if (!r) return x;
    if (!sum_agrees(r, x)) return eg__poison(r->cx);
    return r->table.ranks == 1 ? x : eg__ranks_apply(r, &ranks_sum_op, &r, sizeof r, 1, &x);
}
