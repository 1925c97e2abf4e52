/* test_order.c: the order of pairs of a contraction, compared with all possible orders. */
#include <math.h>
#include <string.h>
#include "einsum/einsum.h"
#include "tests.h"

static uint64_t state;
static int draw(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

/* One word of labels is enough here. */
static double volume(uint64_t set, const double *size)
{
    double v = 1;
    for (int i = 0; i < 64; i++)
        if (set >> i & 1) v *= size[i];
    return v;
}
/* A step of operands x, y among `n` living ones: what it keeps, and what it costs */
static uint64_t kept(int n, const uint64_t *op, int x, int y, uint64_t out)
{
    uint64_t beside = out;
    for (int k = 0; k < n; k++)
        if (k != x && k != y) beside |= op[k];
    return (op[x] | op[y]) & beside;
}
static double price(uint64_t a, uint64_t b, uint64_t left, const double *size)
{
    return volume(a | b, size) * ((a | b) == left ? 1 : 2);
}

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
            double cost = price(op[i], op[j], left, size) + cheapest(m, next, out, size, limit);
            if (cost < best) best = cost;
        }
    return best;
}
/* What the sequence costs; checks that it is one, and that it keeps to the limit */
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
        cost += price(live[i], live[j], live[n + s], size);
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
    /* no label of one operand alone: those are summed first, counted apart */
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
            ck_assert_int_eq(eg__order(n, set, &wanted, size, limit, pairs, &cost),
                             best < INFINITY);
            if (!(best < INFINITY)) continue;
            ck_assert_double_eq_tol(cost.flops, best, 1e-9 * best);
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
        ck_assert(eg__order(n, set, &wanted, size, 0, pairs, &cost));
        ck_assert_double_eq_tol(replay(n, op, out, size, 0, pairs), cost.flops, 1e-9 * cost.flops);
        if (eg__order(n, set, &wanted, size, cost.largest / 2, pairs, NULL))
            replay(n, op, out, size, cost.largest / 2, pairs);
    }
    eg_cost none;
    ck_assert(eg__order(1, set, &wanted, size, 0, pairs, &none));
    ck_assert(!eg__order(65, set, &wanted, size, 0, pairs, &none));
}

/* abc,ad->d … with b, c in one operand alone: they are summed in it first, not carried through the
 * product */
TEST(lonely_labels_are_summed_first)
{
    const double size[] = { 10, 20, 30, 40 };
    const eg_labelset op[2] = { { { 7 } }, { { 1 | 8 } } }, out = { { 8 } };
    int pairs[1][2];
    eg_cost cost;
    ck_assert(eg__order(2, op, &out, size, 0, pairs, &cost));
    ck_assert_double_eq(cost.flops, 10 * 20 * 30 + 2 * 10 * 40);
}
