/* test_order.c: the order of pairs of a contraction, compared with all possible orders. */
#include <math.h>
#include <string.h>
#include "einsum/einsum.h"
#include "tests.h"

static double room[1 << 15]; /* for eg__order, more than eg__order_bytes(EG_ORDER_EXACT) */
static uint64_t state;
static int draw(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

/* One word of labels suffices here. */
static double volume(uint64_t set, const double *size)
{
    double v = 1;
    for (int i = 0; i < 64; i++)
        if (set >> i & 1) v *= size[i];
    return v;
}
/* A step on operands x, y of the `n` that are left: its labels, and its cost. */
static uint64_t kept(int n, const uint64_t *op, int x, int y, uint64_t out)
{
    uint64_t beside = out;
    for (int k = 0; k < n; k++)
        if (k != x && k != y) beside |= op[k];
    return (op[x] | op[y]) & beside;
}
static double price(uint64_t a, uint64_t b, const double *size) { return volume(a | b, size); }

static double cheapest(int n, const uint64_t *op, uint64_t out, const double *size, double limit)
{
    if (n == 1) return 0;
    double best = INFINITY;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            uint64_t next[8], left = kept(n, op, i, j, out);
            if (limit > 0 && n > 2 && volume(left, size) > limit) continue;
            int m = 0;
            for (int k = 0; k < n; k++)
                if (k != i && k != j) next[m++] = op[k];
            next[m++] = left;
            double cost = price(op[i], op[j], size) + cheapest(m, next, out, size, limit);
            if (cost < best) best = cost;
        }
    return best;
}
/* Returns the cost of the sequence; checks that it is valid, and that it respects the limit. */
static double replay(int n, const uint64_t *op, uint64_t out, const double *size, double limit,
                     int (*pairs)[2])
{
    uint64_t live[2 * EG_EINSUM_MAX];
    bool gone[2 * EG_EINSUM_MAX] = { false };
    double cost = 0;
    memcpy(live, op, (size_t)n * sizeof *op);
    for (int s = 0; s < n - 1; s++) {
        int i = pairs[s][0], j = pairs[s][1];
        ck_assert(i >= 0 && i < j && j < n + s && !gone[i] && !gone[j]);
        gone[i] = gone[j] = true;
        uint64_t beside = out;
        for (int k = 0; k < n + s; k++)
            if (!gone[k]) beside |= live[k];
        live[n + s] = (live[i] | live[j]) & beside;
        cost += price(live[i], live[j], size);
        if (limit > 0 && s < n - 2) ck_assert(volume(live[n + s], size) <= limit);
    }
    ck_assert(live[2 * n - 2] == out);
    return cost;
}
static void network(int n, int labels, uint64_t *op, uint64_t *out, double *size)
{
    memset(op, 0, (size_t)n * sizeof *op);
    *out = 0;
    for (int l = 0; l < labels; l++) {
        size[l] = 1 + draw(9);
        int holders = draw(4) ? 2 : 3; /* a label in three operands is a hyperedge */
        for (int k = 0; k < holders; k++) op[draw(n)] |= 1ull << l;
        if (draw(4) == 0) *out |= 1ull << l;
    }
    /* no label of only one operand: those are summed first, and counted separately */
    for (int l = 0; l < labels; l++) {
        int holders = 0;
        for (int k = 0; k < n; k++) holders += op[k] >> l & 1;
        if (holders == 1) *out |= 1ull << l;
    }
}
static void labelsets(int n, const uint64_t *op, eg_labelset *set)
{
    memset(set, 0, (size_t)n * sizeof *set);
    for (int k = 0; k < n; k++) set[k].bits[0] = op[k];
}

LOOP_TEST(exact_is_the_cheapest, 4)
{
    state = (uint64_t)_i + 1;
    for (int number = 0; number < 60; number++) {
        const int n = 2 + draw(5);
        uint64_t op[8], out;
        double size[64];
        network(n, 2 + draw(8), op, &out, size);
        eg_labelset set[8], wanted;
        labelsets(n, op, set);
        labelsets(1, &out, &wanted);
        int pairs[8][2];
        for (int limited = 0; limited < 2; limited++) {
            const double limit = limited ? 30 : 0, best = cheapest(n, op, out, size, limit);
            eg_cost cost;
            ck_assert_int_eq(eg__order(n, set, &wanted, size, limit, pairs, &cost, room),
                             best < INFINITY);
            if (!(best < INFINITY)) continue;
            ck_assert_double_eq_tol(cost.work, best, 1e-9 * best);
            ck_assert_double_eq_tol(replay(n, op, out, size, limit, pairs), best, 1e-9 * best);
        }
    }
}

TEST(many_operands)
{
    static uint64_t op[EG_EINSUM_MAX];
    static double size[64];
    static eg_labelset set[EG_EINSUM_MAX], wanted;
    int pairs[EG_EINSUM_MAX][2];
    state = 7;
    for (int n = 11; n <= 64; n += 11) {
        uint64_t out;
        network(n, n < 40 ? n : 40, op, &out, size);
        labelsets(n, op, set);
        labelsets(1, &out, &wanted);
        eg_cost cost;
        ck_assert(eg__order(n, set, &wanted, size, 0, pairs, &cost, room));
        ck_assert_double_eq_tol(replay(n, op, out, size, 0, pairs), cost.work, 1e-9 * cost.work);
        if (eg__order(n, set, &wanted, size, cost.largest / 2, pairs, NULL, room))
            replay(n, op, out, size, cost.largest / 2, pairs);
    }
    eg_cost none;
    ck_assert(eg__order(1, set, &wanted, size, 0, pairs, &none, room));
    ck_assert(!eg__order(65, set, &wanted, size, 0, pairs, &none, room));
}

/* abc,ad->d … with b, c in only one operand: they are summed in it first, not in the product */
TEST(labels_of_one_operand_are_summed_first)
{
    const double size[] = { 10, 20, 30, 40 };
    const eg_labelset op[2] = { { { 7 } }, { { 1 | 8 } } }, out = { { 8 } };
    int pairs[1][2];
    eg_cost cost;
    ck_assert(eg__order(2, op, &out, size, 0, pairs, &cost, room));
    ck_assert_double_eq(cost.work, 10 * 20 * 30 + 10 * 40);
}

/* abc,bd,c,d->a: of two orders with the same number of multiply-adds the one without the outer
 * product with c is taken */
TEST(orders_of_equal_cost_avoid_outer_products)
{
    enum { A = 1, B = 2, C = 4, D = 8 };
    const double size[] = { 32, 32, 32, 32 };
    const eg_labelset op[] = { { { A | B | C } }, { { B | D } }, { { C } }, { { D } } },
                      out = { { A } };
    int pairs[3][2];
    eg_cost cost;
    ck_assert(eg__order(4, op, &out, size, 0, pairs, &cost, room));
    ck_assert_double_eq_tol(cost.work, 32 * 32 * 32 + 2 * 32 * 32, 1e-3);
    for (int s = 0; s < 3; s++) ck_assert(!(pairs[s][0] == 2 && pairs[s][1] > 3));
}

/* -- cotangents: every tree is tried ---------------------------------------------------------- */
/* The wanted cotangents of a tree, and the cheapest of all trees. */
typedef struct trial {
    int n, kept;
    uint64_t wanted, keep[8];
    uint64_t has[16], below[16]; /* by node: its labels, the operands below it */
    int child[16][2];
    const double *size;
    double least;
} trial;
static bool there(const trial *t, int node)
{
    for (int k = 0; k < t->kept; k++)
        if (node >= t->n && t->keep[k] == t->below[node]) return true;
    return node < t->n;
}
/* The products that are computed below a node: for its value, for its cotangents, or for both. */
static double made(const trial *t, int node, bool value, bool slopes)
{
    if (there(t, node)) value = false;
    if (node < t->n || (!value && !slopes)) return 0;
    const int a = t->child[node][0], b = t->child[node][1];
    const bool wa = slopes && (t->below[a] & t->wanted), wb = slopes && (t->below[b] & t->wanted);
    return price(t->has[a], t->has[b], t->size) * (value + wa + wb) + made(t, a, value || wb, wa) +
           made(t, b, value || wa, wb);
}
static void every_tree(trial *t, int nodes, int living, const int *live, uint64_t out)
{
    if (living == 1) {
        const double cost = made(t, nodes - 1, false, true);
        if (cost < t->least) t->least = cost;
        return;
    }
    for (int i = 0; i < living; i++)
        for (int j = i + 1; j < living; j++) {
            int next[8], m = 0;
            uint64_t beside = out;
            for (int k = 0; k < living; k++)
                if (k != i && k != j) beside |= t->has[next[m++] = live[k]];
            t->child[nodes][0] = live[i];
            t->child[nodes][1] = live[j];
            t->has[nodes] = (t->has[live[i]] | t->has[live[j]]) & beside;
            t->below[nodes] = t->below[live[i]] | t->below[live[j]];
            next[m++] = nodes;
            every_tree(t, nodes + 1, m, next, out);
        }
}
LOOP_TEST(cotangents_take_the_cheapest_tree, 4)
{
    state = 50 + (uint64_t)_i;
    for (int turn = 0; turn < 60; turn++) {
        trial t = { .n = 3 + draw(3), .least = INFINITY };
        uint64_t op[8], out;
        double size[64];
        int pairs[8][2], live[8];
        network(t.n, 2 + draw(8), op, &out, size);
        eg_labelset set[8], wanted;
        labelsets(t.n, op, set);
        labelsets(1, &out, &wanted);
        ck_assert(eg__order(t.n, set, &wanted, size, 0, pairs, NULL, room));
        t.size = size;
        t.wanted = 1 + (uint64_t)draw((1 << t.n) - 1);
        for (int k = 0; k < t.n; k++) {
            t.has[k] = op[k];
            t.below[k] = 1ull << k;
            live[k] = k;
        }
        /* some results of the forward pass's tree are kept */
        for (int s = 0; s < t.n - 2; s++) {
            t.below[t.n + s] = t.below[pairs[s][0]] | t.below[pairs[s][1]];
            if (draw(2)) t.keep[t.kept++] = t.below[t.n + s];
        }
        every_tree(&t, t.n, t.n, live, out);
        const double cost =
            eg__order_cotangents(t.n, set, &wanted, size, 0, t.wanted, t.kept, t.keep, pairs, room);
        ck_assert_double_eq_tol(cost, t.least, 1e-9 * t.least);
        for (int s = 0; s < t.n - 1; s++) {
            const int a = pairs[s][0], b = pairs[s][1];
            t.child[t.n + s][0] = a;
            t.child[t.n + s][1] = b;
            t.below[t.n + s] = t.below[a] | t.below[b];
            uint64_t beside = out;
            for (int k = 0; k < t.n; k++)
                if (!(t.below[t.n + s] >> k & 1)) beside |= op[k];
            t.has[t.n + s] = (t.has[a] | t.has[b]) & beside;
        }
        ck_assert_double_eq_tol(made(&t, 2 * t.n - 2, false, true), cost, 1e-9 * cost);
    }
}
