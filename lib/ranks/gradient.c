/* gradient.c: eg_grad_over with its leaves divided among ranks. A rank computes the largest
 * subtrees that consist of its leaves; these are added between ranks along the same tree, so that
 * gradient and mean have the same bits as those of a single rank. Afterwards each rank has one
 * range of the sum.
 *
 * If ranks add by halving, the first exchange begins in a rank's last block: each gradient that is
 * complete is copied to the buffer that is sent, and is sent while the others are still being
 * computed (pieces.c). All ranks therefore agree before the blocks that they can compute: a rank
 * that cannot, for lack of memory, could not take part in the exchange either. After the exchange
 * each rank reports with its counts whether it has failed. */
#include "ranks/tree.h"
#include "autograd/autograd.h"
#include <string.h>

enum { BLOCK = 8, LEAVES = 16 }; /* as in eg_grad_over */
enum { FAILED = -1 };

/* What ranks send each other for a subtree in addition to its gradient. */
typedef struct subtree_total {
    double loss;
    int64_t count; /* FAILED in the first subtree of a rank if that rank has an error */
} subtree_total;
typedef struct gradient {
    eg_ranks *ranks;
    eg_grad_over_args o;
    eg_owner *owner;
    eg_ranks_tree *tree;
    size_t width;
    int64_t n, *counts; /* number of elements of all xs together; number of elements of each x */
    int taken;          /* number of subtrees that were delivered so far */
    int early;          /* the xs from this one on were delivered before the last block was done */
    char *at;           /* address of the elements of the first of these xs */
    void **subtree;     /* the sums of this rank's subtrees, n elements each */
    subtree_total *mine,
        *all;         /* what this rank sends; what all ranks send, `most` entries for each */
    int most;         /* the largest number of subtrees of a rank */
    uint8_t *reached; /* by x: reached by this rank's leaves; then the same for all ranks */
    bool *somewhere;  /* by x: reached by the leaves of some rank */
    char *sum;        /* n elements, those of subtree[0], which becomes the sum */
    int (*take)(void *user, const eg_ranks_gradient *);
    void *user;
} gradient;
static int gradient_gather(void *user, const eg_ranks_gradient *);

/* Copies the elements of xs[i]'s sum to the buffer that is sent. If no leaf reached x (NULL),
 * writes −0, which does not change the bits of a value that it is added to. */
static void gradient_copy(gradient *g, int i, const void *numbers, char *to)
{
    g->reached[i] |= numbers != NULL;
    if (numbers) {
        memcpy(to, numbers, (size_t)g->counts[i] * g->width);
        return;
    }
    for (int64_t e = 0; e < g->counts[i]; e++)
        if (g->width == sizeof(double))
            ((double *)(void *)to)[e] = -0.0;
        else
            ((float *)(void *)to)[e] = -0.0f;
}
/* The function eg_early.complete: takes the gradient of xs[i] while the last block is being
 * computed. The gradients of the xs after it were taken before. */
static void gradient_early(void *user, int i, const void *numbers)
{
    gradient *g = user;
    g->early = i;
    g->at -= (size_t)g->counts[i] * g->width;
    gradient_copy(g, i, numbers, g->at);
    eg__ranks_pieces_begin(g->tree, g->subtree[0], i);
}
/* The function eg_grad_over_args.take: keeps the sum of a subtree, except for the xs that were
 * taken early. Returns 0. */
static int gradient_take(void *user, const eg_leaf_sum *s)
{
    gradient *g = user;
    const int k = g->taken++;
    char *to = g->subtree[k];
    g->mine[k] = (subtree_total){ s->loss, s->count };
    for (int i = 0; i < g->early; i++) {
        gradient_copy(g, i, s->reached[i] ? eg_raw(s->gradient[i], NULL) : NULL, to);
        to += (size_t)g->counts[i] * g->width;
    }
    return 0;
}

/* True if eg_grad_over would also refuse the options on a single rank. */
static bool gradient_bad(const gradient *g)
{
    const eg_grad_over_args *o = &g->o;
    return o->examples < 1 || o->examples > EG__EXAMPLES_MOST || o->block < 0 || o->leaves < 0 ||
           o->count < 1 || !o->xs || (g->take == gradient_gather && !o->dxs);
}
/* True if the call can be divided among ranks; else records an error. */
static bool gradient_fits(const gradient *g)
{
    const eg_grad_over_args *o = &g->o;
    eg_ctx *cx = g->ranks->cx;
    if (o->cx != cx)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the ranks belong to another context", o->who);
    else if (o->take || o->from_leaf || o->to_leaf)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: leaves are divided among ranks already", o->who);
    else if (!o->count)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: there are no xs", o->who);
    else if (gradient_bad(g))
        eg_grad_over_with(o); /* records the error */
    for (int k = 0; k < o->count && !eg_error(cx); k++)
        if (eg_copies_of(o->xs[k]))
            eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s: xs[%d] has copies, which ranks do not divide",
                       o->who, k);
        else if (eg_type(o->xs[k]) != eg_type(o->xs[0]))
            eg_fail_as(cx, EG_ERROR_DTYPE,
                       "%s: between ranks gradients have one type, but xs[0] is %s and xs[%d] %s",
                       o->who, eg_type_name(eg_type(o->xs[0])), k, eg_type_name(eg_type(o->xs[k])));
    return !eg_error(cx);
}

/* Allocates the tree and the buffers that are sent and received. False after an error. */
static bool gradient_alloc(gradient *g)
{
    const eg_grad_over_args *o = &g->o;
    const int ranks = g->ranks->table.ranks;
    const int64_t blocks = (o->examples + o->block - 1) / o->block,
                  leaves = o->leaves < blocks ? o->leaves : blocks;
    const eg_dtype dtype = eg_type(o->xs[0]);
    g->width = dtype == EG_F64 ? sizeof(double) : sizeof(float);
    g->counts = eg_owner_alloc(g->owner, (size_t)o->count * sizeof *g->counts);
    for (int k = 0; g->counts && k < o->count; k++) g->n += g->counts[k] = eg_size(o->xs[k]);
    if (!g->counts) return false;
    g->tree = eg_ranks_tree_open_with(&(eg_ranks_tree_args){ .size = sizeof(eg_ranks_tree_args),
                                                             .ranks = g->ranks,
                                                             .dtype = dtype,
                                                             .leaves = leaves,
                                                             .parts = o->count,
                                                             .counts = g->counts });
    if (!g->tree) return false;
    for (int r = 0; r < ranks; r++) {
        const int n = eg__ranks_tree_subtrees_of(g->tree, r);
        g->most = n > g->most ? n : g->most;
    }
    const int own = eg_ranks_tree_subtrees(g->tree);
    g->subtree = eg_owner_alloc(g->owner, (size_t)(own + 1) * sizeof *g->subtree);
    g->mine = eg_owner_alloc(g->owner, (size_t)g->most * sizeof *g->mine);
    g->all = eg_owner_alloc(g->owner, (size_t)(g->most * ranks) * sizeof *g->all);
    g->reached = eg_owner_alloc(g->owner, (size_t)o->count * (size_t)(ranks + 1));
    g->somewhere = eg_owner_alloc(g->owner, (size_t)o->count * sizeof *g->somewhere);
    if (!g->subtree || !g->mine || !g->all || !g->reached || !g->somewhere) return false;
    for (int k = 0; k < (own ? own : 1); k++)
        if (!(g->subtree[k] = eg_owner_alloc(g->owner, (size_t)g->n * g->width + 1))) return false;
    g->sum = g->subtree[0];
    g->early = o->count;
    g->at = g->sum + (size_t)g->n * g->width;
    return true;
}

/* Computes the leaves of this rank. A rank without leaves still counts the draw that the others
 * make. */
static void gradient_leaves(gradient *g)
{
    const eg_span own = eg_ranks_tree_leaves(g->tree);
    if (own.from == own.to) {
        eg_set_draws(g->o.cx, eg_draws(g->o.cx) + 1);
        if (g->o.sums) *g->o.sums = 0;
        return;
    }
    eg_grad_over_args o = g->o;
    o.dxs = NULL, o.mean = NULL, o.counted = NULL;
    o.from_leaf = own.from, o.to_leaf = own.to;
    o.take = gradient_take, o.take_user = g;
    const eg_early early = { gradient_early, g };
    eg__grad_over(&o, eg__ranks_pieces_fit(g->tree) ? &early : NULL);
}

/* Adds the losses and counts below a node in the order in which gradients are added. */
static subtree_total total_of(const gradient *g, eg_span node)
{
    const int ranks = g->ranks->table.ranks;
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < eg__ranks_tree_subtrees_of(g->tree, r); k++) {
            const eg_span s = eg__ranks_tree_subtree_of(g->tree, r, k);
            if (s.from == node.from && s.to == node.to) return g->all[r * g->most + k];
        }
    const int64_t middle = eg_ranks_tree_middle(node);
    const subtree_total a = total_of(g, (eg_span){ node.from, middle }),
                        b = total_of(g, (eg_span){ middle, node.to });
    return (subtree_total){ a.loss + b.loss, a.count + b.count };
}

/* Divides this rank's range of the sum by the count. */
static void gradient_divide(gradient *g, int64_t count)
{
    const eg_span own = eg_ranks_tree_range(g->tree);
    for (int64_t c = own.from; c < own.to; c++) {
        const eg_span s = eg_ranks_tree_chunk(g->tree, c);
        for (int64_t k = s.from; k < s.to; k++)
            if (g->width == sizeof(double))
                ((double *)(void *)g->sum)[k] /= (double)count;
            else
                ((float *)(void *)g->sum)[k] =
                    (float)((double)((float *)(void *)g->sum)[k] / (double)count);
    }
}

/* Finishes the early exchange even after an error, since the other ranks wait for it; then reports
 * to them whether this rank has failed. False after an error on any rank. */
static bool gradient_exchange(gradient *g)
{
    const int ranks = g->ranks->table.ranks;
    if (eg__ranks_pieces_fit(g->tree) && eg__ranks_pieces_end(g->tree, g->sum)) return false;
    if (eg_error(g->o.cx)) g->mine[0].count = FAILED;
    if (eg__ranks_gather(g->ranks, g->mine, (size_t)g->most * sizeof *g->mine, g->all))
        return false;
    for (int r = 0; r < ranks; r++)
        if (g->all[r * g->most].count == FAILED) return eg_ranks_barrier(g->ranks) == 0;
    return true;
}
/* All exchanges after this rank's leaves. False after an error on any rank. */
static bool gradient_between(gradient *g)
{
    const eg_grad_over_args *o = &g->o;
    const int ranks = g->ranks->table.ranks;
    if (!gradient_exchange(g) ||
        eg_ranks_gather(g->ranks, g->reached, (size_t)o->count, g->reached + o->count))
        return false;
    for (int k = 0; k < o->count; k++)
        for (int r = 1; r <= ranks; r++) g->somewhere[k] |= g->reached[r * o->count + k] != 0;
    const subtree_total total = total_of(g, (eg_span){ 0, eg__ranks_tree_leaf_count(g->tree) });
    if (!total.count) {
        eg_fail_as(o->cx, EG_ERROR_MISUSE, "%s: the count of all blocks is 0", o->who);
        eg__ranks_agreed(g->ranks);
        return false;
    }
    if (eg_ranks_tree_sum(g->tree, g->subtree, g->sum)) return false;
    gradient_divide(g, total.count);
    const eg_ranks_gradient handed = { g->tree, g->sum, g->somewhere };
    g->take(g->user, &handed);
    if (eg_ranks_barrier(g->ranks)) return false;
    if (o->mean) *o->mean = total.loss / (double)total.count;
    if (o->counted) *o->counted = total.count;
    return true;
}

/* The `take` of eg_ranks_grad_over: gathers the gradient and makes tensors of it. Returns 0, or −1
 * after an error. */
static int gradient_gather(void *user, const eg_ranks_gradient *all)
{
    const eg_grad_over_args *o = user;
    const char *at = all->numbers;
    if (eg_ranks_tree_gather(all->tree, all->numbers)) return -1;
    for (int k = 0; k < o->count; k++) {
        const eg_tensor *x = o->xs[k];
        o->dxs[k] =
            all->reached[k] ? eg_from_n(o->cx, eg_type(x), at, eg_rank(x), eg_dims(x)) : NULL;
        at += (size_t)eg_size(x) * (eg_type(x) == EG_F64 ? sizeof(double) : sizeof(float));
    }
    return 0;
}

/* Writes what must be the same on all ranks for a result with the bits of one rank. */
static void gradient_text(const gradient *g, size_t size, char *out)
{
    const eg_grad_over_args *o = &g->o;
    eg_ctx *cx = g->ranks->cx;
    size_t n = (size_t)snprintf(
        out, size,
        "examples %lld, block %lld, leaves %d, %d xs, %lld elements of %s, %s, seed %llu, "
        "%llu random draws",
        (long long)o->examples, (long long)o->block, o->leaves, o->count, (long long)g->n,
        o->count > 0 ? eg_type_name(eg_type(o->xs[0])) : "",
        eg_training(cx) ? "eg_train" : "eg_eval", (unsigned long long)eg__seed_of(cx),
        (unsigned long long)eg_draws(cx));
    for (int k = 0; k < 8 && o->batch[k].name && n < size; k++) {
        const eg_tensor *x = o->batch[k].x;
        n += (size_t)snprintf(out + n, size - n, ", batch %.40s of %s (", o->batch[k].name,
                              eg_type_name(eg_type(x)));
        for (int a = 0; a < eg_rank(x) && n < size; a++)
            n += (size_t)snprintf(out + n, size - n, "%s%lld", a ? " " : "",
                                  (long long)eg_dim(x, a));
        if (n < size) n += (size_t)snprintf(out + n, size - n, ")");
    }
    if (o->agreed && n < size) snprintf(out + n, size - n, ", %s", o->agreed);
}

/* Runs the call; g->take gets this rank's range. After an error the rank still takes part in the
 * agreement of the ranks. Returns 0, or −1 after an error. */
static int gradient_run(gradient *g)
{
    if (!g->o.who) g->o.who = "grad_over";
    if (!g->o.examples) g->o.examples = eg__batch_examples(g->o.batch);
    if (!g->o.block) g->o.block = BLOCK;
    if (g->o.block > g->o.examples) g->o.block = g->o.examples;
    if (!g->o.leaves) g->o.leaves = LEAVES;
    eg_ctx *cx = g->ranks->cx;
    char text[2048] = "";
    const bool good = !eg_error(cx) && gradient_fits(g) &&
                      (g->owner = eg__owner_open_pooled(cx)) != NULL && gradient_alloc(g);
    if (good) gradient_text(g, sizeof text, text);
    const bool all = eg__ranks_barrier_same(g->ranks, g->o.who, text) == 0 && good;
    if (all) gradient_leaves(g);
    const bool done = all && gradient_between(g);
    eg_ranks_tree_close(g->tree);
    eg_owner_close(g->owner);
    return done ? 0 : -1;
}

int eg_ranks_grad_range(eg_ranks *ranks, const eg_grad_over_args *given,
                        int (*take)(void *user, const eg_ranks_gradient *), void *user)
{
    gradient g = { .ranks = ranks, .o = { .size = sizeof g.o }, .take = take, .user = user };
    eg_options(&g.o, sizeof g.o, given);
    if (ranks && take) return gradient_run(&g);
    eg_fail_as(g.o.cx, EG_ERROR_MISUSE, "%s: %s", g.o.who ? g.o.who : "grad_over",
               ranks ? "nobody takes the range" : "there is no group of ranks");
    return -1;
}

int eg_ranks_grad_over(eg_ranks *ranks, const eg_grad_over_args *given)
{
    gradient g = { .ranks = ranks, .o = { .size = sizeof g.o }, .take = gradient_gather };
    eg_options(&g.o, sizeof g.o, given);
    if (!ranks || ranks->table.ranks == 1) return eg_grad_over_with(&g.o);
    g.user = &g.o;
    if (!gradient_run(&g)) return 0;
    for (int k = 0; g.o.dxs && k < g.o.count; k++) g.o.dxs[k] = NULL;
    return -1;
}
