/* order.c: which pair next. Only sets of labels are known here, and sizes.
 *
 * A label is summed in the step after which no other operand and not the output has it; so what
 * remains of a subset S of the operands is the same in whatever order they were contracted, and a
 * step's cost depends on the two subsets alone: cost(A, B) = Π size of the labels of A or B · (2 if
 * a label is summed, else 1)        (opt_einsum's count) Up to EG_ORDER_EXACT operands: best(S) =
 * min over A ∪ B = S of best(A) + best(B) + cost(A, B), over all splits, outer products too.
 * Beyond: greedy, for several weights of what a pair frees against what it makes, then every
 * neighbourhood of the best tree is solved exactly again until nothing improves. */
#include "contraction/contraction.h"
#include <math.h>
#include <string.h>

enum { WORDS = EG_LABEL_MAX / 64, NEAR = 8 };
typedef eg_labelset set;

static set either(const set *a, const set *b, int words)
{
    set c = { { 0 } };
    for (int w = 0; w < words; w++) c.bits[w] = a->bits[w] | b->bits[w];
    return c;
}
static set both(const set *a, const set *b, int words)
{
    set c = { { 0 } };
    for (int w = 0; w < words; w++) c.bits[w] = a->bits[w] & b->bits[w];
    return c;
}
static bool equal(const set *a, const set *b, int words)
{
    return memcmp(a->bits, b->bits, (size_t)words * sizeof *a->bits) == 0;
}
static double volume(const set *a, const double *size, int words)
{
    double v = 1;
    for (int w = 0; w < words; w++)
        for (uint64_t x = a->bits[w]; x; x &= x - 1) v *= size[w * 64 + __builtin_ctzll(x)];
    return v;
}

/* A tree of contractions: nodes 0 … n−1 are the operands, the others have two children; the root is
 * the last. */
typedef struct tree {
    int n;
    int child[2 * EG_EINSUM_MAX][2];
    set has[2 * EG_EINSUM_MAX];
    double cost;
} tree;

/* -- exact ------------------------------------------------------------------------------------ */
typedef struct table {
    double best, volume;
    uint16_t split;
    set has;
} table;

/* Fills t[1 … 2^n − 1] for n operands of which `out` is wanted; the cost, or infinity if the limit
 * allows no order. */
static double exact(int n, const set *const *op, const set *out, const double *size, int words,
                    double limit, table *t)
{
    const unsigned full = (1u << n) - 1;
    for (unsigned s = 1; s <= full; s++) {
        set in = { { 0 } }, beside = *out;
        for (int k = 0; k < n; k++) {
            set *to = s >> k & 1 ? &in : &beside;
            *to = either(to, op[k], words);
        }
        t[s].has = both(&in, &beside, words);
        t[s].volume = volume(&t[s].has, size, words);
        t[s].best = INFINITY;
        if (!(s & (s - 1))) {
            t[s].best = 0;
            t[s].has = *op[__builtin_ctz(s)];
            t[s].volume = volume(&t[s].has, size, words);
            continue;
        }
        if (limit > 0 && s != full && t[s].volume > limit) continue;
        const unsigned low = s & -s, others = s ^ low;
        /* b: every part of s without its lowest operand */
        for (unsigned b = others; b; b = (b - 1) & others) {
            const table *x = &t[s ^ b], *y = &t[b];
            double cost = x->best + y->best, least = x->volume > y->volume ? x->volume : y->volume;
            if (least < t[s].volume) least = t[s].volume;
            if (!(cost + least < t[s].best)) continue;
            const set all = either(&x->has, &y->has, words);
            cost += volume(&all, size, words) * (equal(&all, &t[s].has, words) ? 1 : 2);
            if (cost < t[s].best) {
                t[s].best = cost;
                t[s].split = (uint16_t)b;
            }
        }
    }
    return t[full].best;
}
/* The subtree of subset s; its leaves are leaf[0 …], its inner nodes are taken from *free; returns
 * its root. */
static int order_grow(tree *tr, const table *t, unsigned s, const int *leaf, const int *nodes,
                      int *used)
{
    if (!(s & (s - 1))) return leaf[__builtin_ctz(s)];
    int l = order_grow(tr, t, s ^ t[s].split, leaf, nodes, used),
        r = order_grow(tr, t, t[s].split, leaf, nodes, used);
    int me = nodes[(*used)++];
    tr->child[me][0] = l;
    tr->child[me][1] = r;
    tr->has[me] = t[s].has;
    return me;
}

/* -- greedy ----------------------------------------------------------------------------------- */
static double step_cost(const tree *tr, int l, int r, const set *left, const double *size,
                        int words)
{
    const set all = either(&tr->has[l], &tr->has[r], words);
    return volume(&all, size, words) * (equal(&all, left, words) ? 1 : 2);
}
/* Contracts the pair with the lowest score again and again; a pair that shares a label comes
 * before one that does not. The score is what it makes, minus `weight` times what it frees. False
 * if the limit forbids every pair. */
static bool greedy(tree *tr, const set *out, const double *size, int words, double limit,
                   double weight)
{
    int live[EG_EINSUM_MAX], n = tr->n;
    double vol[2 * EG_EINSUM_MAX];
    for (int k = 0; k < n; k++) {
        live[k] = k;
        vol[k] = volume(&tr->has[k], size, words);
    }
    for (int next = tr->n; n > 1; next++, n--) {
        /* labels that 1, 2, 3 or more of the living have */
        set two = { { 0 } }, three = { { 0 } }, one = { { 0 } };
        for (int k = 0; k < n; k++)
            for (int w = 0; w < words; w++) {
                const uint64_t x = tr->has[live[k]].bits[w];
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
                const set *a = &tr->has[live[i]], *b = &tr->has[live[j]];
                set left = { { 0 } };
                bool shares = false;
                for (int w = 0; w < words; w++) {
                    const uint64_t x = a->bits[w], y = b->bits[w];
                    shares |= (x & y) != 0;
                    left.bits[w] = (x | y) & (out->bits[w] | (x & y & three.bits[w]) |
                                              ((x ^ y) & two.bits[w]));
                }
                if (best_shares && !shares) continue;
                const double made = volume(&left, size, words);
                if (limit > 0 && n > 2 && made > limit) continue;
                const double score = made - weight * (vol[live[i]] + vol[live[j]]);
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
        tr->has[next] = best_left;
        vol[next] = volume(&best_left, size, words);
        live[bi] = next;
        live[bj] = live[n - 1];
    }
    return true;
}

/* The NEAR nodes below a node, solved exactly; true if that was cheaper. */
static bool improve(tree *tr, int root, const double *size, int words, double limit, table *t)
{
    int leaf[NEAR], inner[NEAR], leaves = 1, inners = 0;
    double old = 0;
    leaf[0] = root;
    while (leaves < NEAR) {
        int at = -1;
        for (int k = 0; k < leaves; k++)
            if (leaf[k] >= tr->n && (at < 0 || leaf[k] > leaf[at])) at = k;
        if (at < 0) break;
        int node = leaf[at];
        inner[inners++] = node;
        old += step_cost(tr, tr->child[node][0], tr->child[node][1], &tr->has[node], size, words);
        leaf[at] = tr->child[node][0];
        leaf[leaves++] = tr->child[node][1];
    }
    if (leaves < 3) return false;
    const set *op[NEAR];
    for (int k = 0; k < leaves; k++) op[k] = &tr->has[leaf[k]];
    const double now = exact(leaves, op, &tr->has[root], size, words, limit, t);
    if (!(now < old * (1 - 1e-12))) return false;
    int used = 0;
    /* the root last */
    for (int i = 0; i < inners / 2; i++) {
        int k = inner[i];
        inner[i] = inner[inners - 1 - i];
        inner[inners - 1 - i] = k;
    }
    order_grow(tr, t, (1u << leaves) - 1, leaf, inner, &used);
    return true;
}

/* -- the answer ------------------------------------------------------------------------------- */
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

/* Labels that one operand alone has are summed over beforehand, so that they play no part in the
 * search. */
bool eg__order(int n, const eg_labelset *ops, const eg_labelset *out, const double *size,
               double limit, int (*pairs)[2], eg_cost *cost)
{
    eg_cost c = { 0, 0 };
    if (cost) *cost = c;
    if (n < 2 || n > EG_EINSUM_MAX) return n == 1;
    if (n == 2 && !cost) {
        pairs[0][0] = 0;
        pairs[0][1] = 1;
        return true;
    }

    /* a label's other operands: what only one has, and the output has not, is summed before
     * everything else */
    set one = { { 0 } }, two = { { 0 } };
    for (int k = 0; k < n; k++)
        for (int w = 0; w < WORDS; w++) {
            two.bits[w] |= one.bits[w] & ops[k].bits[w];
            one.bits[w] |= ops[k].bits[w];
        }
    int words = 1;
    for (int w = 1; w < WORDS; w++)
        if (one.bits[w]) words = w + 1;
    tree tr, best;
    tr.n = n;
    for (int k = 0; k < n; k++) {
        bool unshared = false;
        for (int w = 0; w < WORDS; w++) {
            tr.has[k].bits[w] = ops[k].bits[w] & (two.bits[w] | out->bits[w]);
            unshared |= tr.has[k].bits[w] != ops[k].bits[w];
        }
        if (unshared && volume(&ops[k], size, words) > volume(&tr.has[k], size, words))
            c.flops += volume(&ops[k], size, words);
    }
    union {
        table exact[1 << EG_ORDER_EXACT];
        table near[1 << NEAR];
    } t;
    if (n <= EG_ORDER_EXACT) {
        const set *op[EG_ORDER_EXACT];
        int leaf[EG_ORDER_EXACT], nodes[EG_ORDER_EXACT], used = 0;
        for (int k = 0; k < n; k++) {
            op[k] = &tr.has[k];
            leaf[k] = k;
            nodes[k] = n + k;
        }
        tr.cost = exact(n, op, out, size, words, limit, t.exact);
        if (!(tr.cost < INFINITY)) return false;
        order_grow(&tr, t.exact, (1u << n) - 1, leaf, nodes, &used);
        best = tr;
    } else {
        static const double weights[] = { 1, 0.5, 0, 2, 0.25, 4 };
        bool found = false;
        for (size_t k = 0; k < sizeof weights / sizeof *weights; k++) {
            if (!greedy(&tr, out, size, words, limit, weights[k])) continue;
            for (int pass = 0, better = 1; pass < 8 && better; pass++) {
                better = 0;
                for (int node = 2 * n - 2; node >= n; node--)
                    better |= improve(&tr, node, size, words, limit, t.near);
            }
            tr.cost = 0;
            for (int node = n; node < 2 * n - 1; node++)
                tr.cost += step_cost(&tr, tr.child[node][0], tr.child[node][1], &tr.has[node], size,
                                     words);
            if (!found || tr.cost < best.cost) best = tr;
            found = true;
        }
        if (!found) return false;
    }
    int next = n;
    order_emit(&best, 2 * n - 2, &next, pairs);
    if (cost) {
        c.flops += best.cost;
        for (int k = n; k < 2 * n - 2; k++) {
            double v = volume(&best.has[k], size, words);
            if (v > c.largest) c.largest = v;
        }
        *cost = c;
    }
    return true;
}
