/* order.c: finds the order in which pairs of operands are contracted, from sets of labels and sizes
 * only.
 *
 * A label is summed in the step after which neither another operand nor the output has it. So the
 * contraction of a subset S of the operands is the same in whatever order they are contracted, and
 * the cost of a step depends on its two subsets only. Cost is counted in multiply-adds, where a
 * multiplication and the addition that follows it count as one: cost(A, B) = Π size of the labels
 * of A or B. Terms that are summed without a multiplication (labels that one operand alone has)
 * count as one each.
 *
 * Cotangents are computed down the tree along which values are computed up. If A and B are
 * contracted to S, the cotangent of A is a product of the cotangent of S and the value of B, over
 * the labels that cost(A, B) also counts. So a node of the tree costs one product for its value,
 * and one for each child that leads to a wanted operand. One search serves both: it minimises over
 * trees the cost of the value (UP), of the wanted cotangents (DOWN), or of both. A value that
 * exists already costs nothing.
 *
 * Up to EG_ORDER_EXACT operands all splits are tried, including outer products: cost(S) = min over
 * A ∪ B = S of the costs of A, of B and of the products of S. For more operands, a greedy search is
 * run with several weights of the sizes that a pair removes relative to the size that it makes;
 * then every neighbourhood of the best tree is solved exactly again until nothing improves. */
#include "contraction/contraction.h"
#include <math.h>

#define SHADE 0x1p-36
enum { WORDS = EG_LABEL_MAX / 64, NEAR = 8 };
typedef eg_labelset set;

static set labels_union(const set *a, const set *b, int words)
{
    set c = { { 0 } };
    for (int w = 0; w < words; w++) c.bits[w] = a->bits[w] | b->bits[w];
    return c;
}
static set labels_intersection(const set *a, const set *b, int words)
{
    set c = { { 0 } };
    for (int w = 0; w < words; w++) c.bits[w] = a->bits[w] & b->bits[w];
    return c;
}
static double volume(const set *a, const double *size, int words)
{
    double v = 1;
    for (int w = 0; w < words; w++)
        for (uint64_t x = a->bits[w]; x; x &= x - 1) v *= size[w * 64 + __builtin_ctzll(x)];
    return v;
}

/* What is computed at a node: its value, the wanted cotangents below it, or both. */
enum { UP, DOWN, BOTH, MODES };
/* The input of the search besides the operands' labels. */
typedef struct problem {
    int words; /* number of words of a set that are in use */
    const double *size;
    double limit;    /* most elements of a value or cotangent, except the last; 0: any */
    double shade;    /* relative increase of the cost of products without a sum; 0 for none */
    uint64_t wanted; /* the operands whose cotangents are wanted; 0 if the value is */
    int kept;
    const uint64_t *keep; /* the sets of operands whose value exists already */
} problem;
static bool order_kept(const problem *p, uint64_t operands)
{
    for (int k = 0; k < p->kept; k++)
        if (p->keep[k] == operands) return true;
    return false;
}

/* A node with its costs. */
typedef struct part {
    double cost[MODES], volume;
    double read; /* terms of single operands, summed before each product that reads the node */
    bool empty;  /* the sum of a single operand that has no terms: its products are 0 */
    uint64_t operands;
    set has;
} part;
/* Computes the costs of a node whose value does not exist yet, from the costs of its children and
 * the cost v of a product. */
static void combine(const problem *p, const part *x, const part *y, double v, double *cost)
{
    const bool wx = (x->operands & p->wanted) != 0, wy = (y->operands & p->wanted) != 0;
    const double value = x->empty || y->empty ? 0 : v + x->read + y->read,
                 slopes = (wx && !y->empty ? v + y->read : 0) + (wy && !x->empty ? v + x->read : 0);
    cost[UP] = value + x->cost[UP] + y->cost[UP];
    cost[DOWN] = slopes + x->cost[wx ? wy ? BOTH : DOWN : UP] + y->cost[wy ? wx ? BOTH : DOWN : UP];
    cost[BOTH] = value + slopes + x->cost[wx ? BOTH : UP] + y->cost[wy ? BOTH : UP];
    if (!wx && !wy) cost[DOWN] = 0;
}
/* Sets the costs of a node whose value exists already. */
static void given_value(double *cost)
{
    cost[UP] = 0;
    cost[BOTH] = cost[DOWN];
}
/* Returns what must be computed at child x if `mode` must be computed at S; y is the other
 * child. */
static int mode_of(const problem *p, int mode, bool kept, const part *x, const part *y)
{
    const bool wx = (x->operands & p->wanted) != 0, wy = (y->operands & p->wanted) != 0;
    if (mode == BOTH && kept) mode = DOWN;
    return mode == UP || !wx ? UP : mode == DOWN && !wy ? DOWN : BOTH;
}

/* A tree of contractions: nodes 0 … n−1 are the operands; each other node has two children of
 * smaller numbers; the root is the last. */
typedef struct tree {
    int n;
    int child[2 * EG_EINSUM_MAX][2];
    part node[2 * EG_EINSUM_MAX];
    int mode[2 * EG_EINSUM_MAX]; /* what is computed at the node; −1 for nothing */
} tree;
/* Returns the multiply-adds of a product whose result has `left` elements. A product without a sum
 * counts slightly more, so that among orders of equal cost those without an outer product are
 * preferred. */
static double product(const problem *p, const part *x, const part *y, double left)
{
    const set all = labels_union(&x->has, &y->has, p->words);
    const double v = volume(&all, p->size, p->words);
    return v > left ? v : v * (1 + p->shade);
}
/* Recomputes the costs of all nodes, and what is computed at each. Returns the total cost. */
static double recompute_costs(const problem *p, tree *tr)
{
    const int root = 2 * tr->n - 2;
    for (int k = tr->n; k <= root; k++) {
        part *const s = &tr->node[k], *x = &tr->node[tr->child[k][0]],
                    *y = &tr->node[tr->child[k][1]];
        s->operands = x->operands | y->operands;
        combine(p, x, y, product(p, x, y, s->volume), s->cost);
        if (order_kept(p, s->operands)) given_value(s->cost);
        tr->mode[k] = -1;
    }
    tr->mode[root] = p->wanted ? DOWN : UP;
    for (int k = root; k >= tr->n; k--) {
        const bool kept = order_kept(p, tr->node[k].operands);
        for (int q = 0; q < 2; q++)
            tr->mode[tr->child[k][q]] =
                tr->mode[k] < 0 || (tr->mode[k] == UP && kept)
                    ? -1
                    : mode_of(p, tr->mode[k], kept, &tr->node[tr->child[k][q]],
                              &tr->node[tr->child[k][!q]]);
    }
    return tr->node[root].cost[tr->mode[root]];
}

/* -- exact ------------------------------------------------------------------------------------ */
typedef struct table {
    part s;
    bool kept;
    uint16_t split[MODES];
} table;

/* Fills t[1 … 2^n − 1] for n parts with the result labels `out`. Returns the cost; infinity if no
 * order is within the limit. */
static double search_all_splits(const problem *p, int n, const part *const *leaf, const set *out,
                                int mode, table *t)
{
    const unsigned full = (1u << n) - 1;
    const int words = p->words;
    for (unsigned s = 1; s <= full; s++) {
        if (!(s & (s - 1))) {
            t[s].s = *leaf[__builtin_ctz(s)];
            continue;
        }
        part *const me = &t[s].s;
        set in = { { 0 } }, beside = *out;
        me->operands = 0;
        for (int k = 0; k < n; k++) {
            set *to = s >> k & 1 ? &in : &beside;
            *to = labels_union(to, &leaf[k]->has, words);
            if (s >> k & 1) me->operands |= leaf[k]->operands;
        }
        me->has = labels_intersection(&in, &beside, words);
        me->volume = volume(&me->has, p->size, words);
        me->read = 0, me->empty = false;
        for (int m = 0; m < MODES; m++) me->cost[m] = INFINITY;
        t[s].kept = s != full && order_kept(p, me->operands);
        if (p->limit > 0 && s != full && me->volume > p->limit) continue;
        const unsigned low = s & -s, others = s ^ low;
        /* b: every part of s without its lowest operand */
        for (unsigned b = others; b; b = (b - 1) & others) {
            const part *x = &t[s ^ b].s, *y = &t[b].s;
            double cost[MODES], least = x->volume > y->volume ? x->volume : y->volume;
            if (least < me->volume) least = me->volume;
            if (!p->wanted && !(x->cost[UP] + y->cost[UP] + least < me->cost[UP])) continue;
            combine(p, x, y, product(p, x, y, me->volume), cost);
            for (int m = 0; m < MODES; m++)
                if (cost[m] < me->cost[m]) {
                    me->cost[m] = cost[m];
                    t[s].split[m] = (uint16_t)b;
                }
        }
        if (t[s].kept) {
            given_value(me->cost);
            t[s].split[BOTH] = t[s].split[DOWN];
        }
    }
    return t[full].s.cost[mode];
}
/* Builds the subtree of subset s. Its leaves are leaf[0 …]; its inner nodes are taken from nodes[].
 * Returns its root. */
static int order_grow(const problem *p, tree *tr, const table *t, unsigned s, int mode,
                      const int *leaf, const int *nodes, int *used)
{
    if (!(s & (s - 1))) return leaf[__builtin_ctz(s)];
    const unsigned b = t[s].split[mode], a = s ^ b;
    const int l = order_grow(p, tr, t, a, mode_of(p, mode, t[s].kept, &t[a].s, &t[b].s), leaf,
                             nodes, used),
              r = order_grow(p, tr, t, b, mode_of(p, mode, t[s].kept, &t[b].s, &t[a].s), leaf,
                             nodes, used);
    const int me = nodes[(*used)++];
    tr->child[me][0] = l;
    tr->child[me][1] = r;
    tr->node[me] = t[s].s;
    return me;
}

/* -- greedy ----------------------------------------------------------------------------------- */
/* Repeatedly contracts the pair with the lowest score; pairs that share a label come first. The
 * score is the size of the result minus `weight` times the sizes of the two. False if the limit
 * forbids every pair. */
static bool greedy(const problem *p, tree *tr, const set *out, double weight)
{
    int live[EG_EINSUM_MAX], n = tr->n;
    const int words = p->words;
    for (int k = 0; k < n; k++) live[k] = k;
    for (int next = tr->n; n > 1; next++, n--) {
        /* labels that 1, 2, 3 or more of the remaining nodes have */
        set two = { { 0 } }, three = { { 0 } }, one = { { 0 } };
        for (int k = 0; k < n; k++)
            for (int w = 0; w < words; w++) {
                const uint64_t x = tr->node[live[k]].has.bits[w];
                three.bits[w] |= two.bits[w] & x;
                two.bits[w] |= one.bits[w] & x;
                one.bits[w] |= x;
            }
        int bi = -1, bj = -1;
        bool best_shares = false;
        double best = INFINITY;
        set best_left = { { 0 } };
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++) {
                const set *a = &tr->node[live[i]].has, *b = &tr->node[live[j]].has;
                set left = { { 0 } };
                bool shares = false;
                for (int w = 0; w < words; w++) {
                    const uint64_t x = a->bits[w], y = b->bits[w];
                    shares |= (x & y) != 0;
                    left.bits[w] = (x | y) & (out->bits[w] | (x & y & three.bits[w]) |
                                              ((x ^ y) & two.bits[w]));
                }
                if (best_shares && !shares) continue;
                const double made = volume(&left, p->size, words);
                if (p->limit > 0 && n > 2 && made > p->limit) continue;
                const double score =
                    made - weight * (tr->node[live[i]].volume + tr->node[live[j]].volume);
                if (bi < 0 || (shares && !best_shares) || score < best) {
                    best = score;
                    bi = i;
                    bj = j;
                    best_shares = shares;
                    best_left = left;
                }
            }
        if (bi < 0) return false;
        tr->child[next][0] = live[bi];
        tr->child[next][1] = live[bj];
        tr->node[next] = (part){ .has = best_left, .volume = volume(&best_left, p->size, words) };
        live[bi] = next;
        live[bj] = live[n - 1];
    }
    return true;
}

/* Solves the NEAR nodes below a node exactly. True if that is cheaper than the present tree. */
static bool improve(const problem *p, tree *tr, int root, table *t)
{
    int leaf[NEAR], inner[NEAR], leaves = 1, inners = 0;
    const int mode = tr->mode[root];
    if (mode < 0) return false;
    leaf[0] = root;
    while (leaves < NEAR) {
        int at = -1;
        for (int k = 0; k < leaves; k++)
            if (leaf[k] >= tr->n && (at < 0 || leaf[k] > leaf[at])) at = k;
        if (at < 0) break;
        const int node = leaf[at];
        inner[inners++] = node;
        leaf[at] = tr->child[node][0];
        leaf[leaves++] = tr->child[node][1];
    }
    if (leaves < 3) return false;
    const part *part_of[NEAR];
    for (int k = 0; k < leaves; k++) part_of[k] = &tr->node[leaf[k]];
    const set out = tr->node[root].has;
    const double old = tr->node[root].cost[mode],
                 now = search_all_splits(p, leaves, part_of, &out, mode, t);
    if (!(now < old * (1 - 1e-12))) return false;
    int used = 0;
    /* the root last */
    for (int i = 0; i < inners / 2; i++) {
        int k = inner[i];
        inner[i] = inner[inners - 1 - i];
        inner[inners - 1 - i] = k;
    }
    order_grow(p, tr, t, (1u << leaves) - 1, mode, leaf, inner, &used);
    recompute_costs(p, tr);
    return true;
}
/* Improves a tree as long as it becomes cheaper. Returns its cost. */
static double improved(const problem *p, tree *tr, table *t)
{
    recompute_costs(p, tr);
    for (int pass = 0, better = 1; pass < 8 && better; pass++) {
        better = 0;
        for (int node = 2 * tr->n - 2; node >= tr->n; node--) better |= improve(p, tr, node, t);
    }
    return recompute_costs(p, tr);
}

/* -- the result -------------------------------------------------------------------------------- */
static int order_emit(const tree *tr, int node, int *next, int (*pairs)[2])
{
    if (node < tr->n) return node;
    int l = order_emit(tr, tr->child[node][0], next, pairs),
        r = order_emit(tr, tr->child[node][1], next, pairs);
    int me = (*next)++;
    pairs[me - tr->n][0] = l < r ? l : r;
    pairs[me - tr->n][1] = l < r ? r : l;
    return me;
}

/* Sets the nodes of the operands. Labels that only one operand has are summed before a product
 * reads it, and are not part of the search. */
static void order_leaves(problem *p, tree *tr, int n, const eg_labelset *ops,
                         const eg_labelset *out)
{
    /* labels that only one operand has, and the output does not, are summed first */
    set one = { { 0 } }, two = { { 0 } };
    for (int k = 0; k < n; k++)
        for (int w = 0; w < WORDS; w++) {
            two.bits[w] |= one.bits[w] & ops[k].bits[w];
            one.bits[w] |= ops[k].bits[w];
        }
    p->words = 1;
    for (int w = 1; w < WORDS; w++)
        if (one.bits[w]) p->words = w + 1;
    tr->n = n;
    for (int k = 0; k < n; k++) {
        part *x = &tr->node[k];
        *x = (part){ .operands = (uint64_t)1 << k };
        for (int w = 0; w < WORDS; w++)
            x->has.bits[w] = ops[k].bits[w] & (two.bits[w] | out->bits[w]);
        const double all = volume(&ops[k], p->size, p->words);
        x->volume = volume(&x->has, p->size, p->words);
        if (all > x->volume) x->read = all;
        x->empty = all < x->volume;
    }
}
/* Builds the whole tree by the exact method. Returns its cost, or infinity. */
static double whole(const problem *p, tree *tr, const set *out, table *t)
{
    const part *part_of[EG_ORDER_EXACT];
    int leaf[EG_ORDER_EXACT], nodes[EG_ORDER_EXACT], used = 0;
    const int n = tr->n, mode = p->wanted ? DOWN : UP;
    for (int k = 0; k < n; k++) {
        part_of[k] = &tr->node[k];
        leaf[k] = k;
        nodes[k] = n + k;
    }
    const double cost = search_all_splits(p, n, part_of, out, mode, t);
    if (!(cost < INFINITY)) return cost;
    order_grow(p, tr, t, (1u << n) - 1, mode, leaf, nodes, &used);
    return recompute_costs(p, tr);
}

size_t eg__order_bytes(int n) { return sizeof(table) << (n <= EG_ORDER_EXACT ? n : NEAR); }
bool eg__order(int n, const eg_labelset *ops, const eg_labelset *out, const double *size,
               double limit, int (*pairs)[2], eg_cost *cost, void *memory)
{
    problem p = { .size = size, .limit = limit, .shade = SHADE };
    if (cost) *cost = (eg_cost){ 0, 0 };
    if (n < 2 || n > EG_EINSUM_MAX) return n == 1;
    if (n == 2 && !cost) {
        pairs[0][0] = 0;
        pairs[0][1] = 1;
        return true;
    }
    tree tr, best;
    order_leaves(&p, &tr, n, ops, out);
    table *t = memory;
    double least = INFINITY;
    if (n <= EG_ORDER_EXACT) {
        least = whole(&p, &tr, out, t);
        best = tr;
    } else {
        static const double weights[] = { 1, 0.5, 0, 2, 0.25, 4 };
        for (size_t k = 0; k < sizeof weights / sizeof *weights; k++) {
            if (!greedy(&p, &tr, out, weights[k])) continue;
            const double now = improved(&p, &tr, t);
            if (now < least) best = tr;
            if (now < least) least = now;
        }
    }
    if (!(least < INFINITY)) return false;
    int next = n;
    order_emit(&best, 2 * n - 2, &next, pairs);
    for (int k = n; cost && k < 2 * n - 2; k++)
        if (best.node[k].volume > cost->largest) cost->largest = best.node[k].volume;
    p.shade = 0;
    if (cost) cost->work = recompute_costs(&p, &best);
    return true;
}

/* Builds the tree of given pairs. */
static void order_given(const problem *p, tree *tr, const set *out, const int (*pairs)[2])
{
    const int n = tr->n;
    for (int k = n; k <= 2 * n - 2; k++) {
        set in = { { 0 } }, beside = *out;
        uint64_t operands = 0;
        for (int q = 0; q < 2; q++) {
            tr->child[k][q] = pairs[k - n][q];
            operands |= tr->node[pairs[k - n][q]].operands;
        }
        for (int l = 0; l < n; l++) {
            set *to = operands >> l & 1 ? &in : &beside;
            *to = labels_union(to, &tr->node[l].has, p->words);
        }
        tr->node[k] =
            (part){ .operands = operands, .has = labels_intersection(&in, &beside, p->words) };
        tr->node[k].volume = volume(&tr->node[k].has, p->size, p->words);
    }
}
double eg__order_cotangents(int n, const eg_labelset *ops, const eg_labelset *out,
                            const double *size, double limit, uint64_t wanted, int kept,
                            const uint64_t *keep, int (*pairs)[2], void *memory)
{
    problem p = {
        .size = size, .limit = limit, .shade = SHADE, .wanted = wanted, .kept = kept, .keep = keep
    };
    tree given, tr;
    order_leaves(&p, &given, n, ops, out);
    order_given(&p, &given, out, (const int(*)[2])pairs);
    table *t = memory;
    tr = given;
    const double had = recompute_costs(&p, &given),
                 found = n <= EG_ORDER_EXACT ? whole(&p, &tr, out, t) : improved(&p, &tr, t);
    p.shade = 0;
    if (!(found < had * (1 - 1e-12))) return recompute_costs(&p, &given);
    int next = n;
    order_emit(&tr, 2 * n - 2, &next, pairs);
    return recompute_costs(&p, &tr);
}
