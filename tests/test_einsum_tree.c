/* test_einsum_tree.c: an einsum of three and more operands is computed by pairs: values, gradients
 * and tangents are those of the same network written as pairs, for no more multiply-adds, and with
 * all gradients for at most three times those of the forward pass. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>
#include "tests.h"

static eg_ctx *cx;
static void setup(void) { cx = eg_open(.dtype = EG_F64, .seed = 3); }
static void teardown(void)
{
    eg_assert_ok(cx);
    eg_close(cx);
}

GROUP("network", .setup = setup, .teardown = teardown, .timeout = 300)

/* -- networks --------------------------------------------------------------------------------- */
static uint64_t state;
static int draw(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}
enum { MOST = 24, LETTERS = 52, AXES = 9 };
typedef struct net {
    int n;
    char term[MOST][AXES + 1], out[AXES + 1];
    int64_t size[LETTERS];
} net;
static char letter(int k) { return (char)(k < 26 ? 'a' + k : 'A' + k - 26); }
static int number(char c) { return c >= 'a' ? c - 'a' : c - 'A' + 26; }
static void put(char *term, int k)
{
    const size_t n = strlen(term);
    if (n < AXES) {
        term[n] = letter(k);
        term[n + 1] = 0;
    }
}
typedef enum shape { CHAIN, RING, TREE, STAR, COMB, RANDOM, SHAPES } shape;
/* chain ab,bc,cd->ad; ring ab,bc,ca->; a binary tree of edges; star: one letter that all share, and
 * one of each operand; comb: a chain whose links have a letter of the result each */
static net network(shape s, int n, int size)
{
    net q = { .n = n };
    for (int k = 0; k < LETTERS; k++) q.size[k] = size + (size > 2 ? draw(3) : 0);
    for (int k = 0; k < n; k++) {
        if (s == CHAIN || s == COMB || s == RING) {
            put(q.term[k], k);
            put(q.term[k], s == RING && k == n - 1 ? 0 : k + 1);
        }
        if (s == COMB && k % 6 == 0) {
            put(q.term[k], 30 + k / 6);
            put(q.out, 30 + k / 6);
        }
        if (s == TREE) {
            put(q.term[k], k);
            if (2 * k + 1 < n) put(q.term[k], 2 * k + 1);
            if (2 * k + 2 < n) put(q.term[k], 2 * k + 2);
        }
        if (s == STAR) {
            put(q.term[k], 51);
            put(q.term[k], k);
        }
    }
    if (s == CHAIN || s == TREE) put(q.out, 0);
    if (s == CHAIN) put(q.out, n);
    if (s == STAR) put(q.out, 51);
    for (int k = 0; s == RANDOM && k < n + 2; k++) {
        const int holders = draw(8) == 0 ? 1 : draw(4) ? 2 : 3;
        q.size[k] = 1 + draw(size);
        for (int h = 0; h < holders; h++) put(q.term[draw(n)], k); /* a letter may repeat */
        bool held = false;
        for (int t = 0; t < n; t++) held |= strchr(q.term[t], letter(k)) != NULL;
        if (held && draw(5) == 0 && strlen(q.out) < 5) put(q.out, k);
    }
    return q;
}
static const char *spec_of(const net *q)
{
    static char spec[MOST * (AXES + 1) + 16];
    char *s = spec;
    for (int k = 0; k < q->n; k++) s += sprintf(s, "%s%s", k ? "," : "", q->term[k]);
    sprintf(s, "->%s", q->out);
    return spec;
}
/* Operands: some permuted, some expanded along an axis, some slices. */
static void operands(const net *q, eg_dtype dtype, bool odd, eg_tensor **x)
{
    for (int k = 0; k < q->n; k++) {
        int64_t dim[AXES], small[AXES];
        const int rank = (int)strlen(q->term[k]), how = odd ? draw(5) : 0;
        for (int r = 0; r < rank; r++) small[r] = dim[r] = q->size[number(q->term[k][r])];
        if (how == 1 && rank) small[draw(rank)] = 1;
        x[k] = dtype == EG_I64
                   ? eg_randint_n(cx, -3, 4, rank, small)
                   : eg_uniform_n(cx, dtype == EG_C128 ? EG_F64 : dtype, -1, 1, rank, small);
        if (dtype == EG_C128) x[k] = eg_complex(x[k], eg_square(x[k]));
        x[k] = eg_expand_n(x[k], rank, dim);
        if (how == 2 && rank) x[k] = eg_flip_axis(x[k], draw(rank));
        if (how == 3 && rank > 1)
            x[k] = eg_transpose(eg_contiguous(eg_transpose(x[k], 0, rank - 1)), 0, rank - 1);
    }
}
/* The same from left to right, as pairs. */
static eg_tensor *as_pairs(const net *q, eg_tensor *const *x)
{
    char have[64];
    eg_tensor *y = x[0];
    strcpy(have, q->term[0]);
    for (int k = 1; k < q->n; k++) {
        char left[64] = "", *end = left, spec[256];
        for (int from = 0; from < 2; from++)
            for (const char *c = from ? q->term[k] : have; *c; c++) {
                bool needed = strchr(q->out, *c) != NULL;
                for (int later = k + 1; later < q->n; later++)
                    needed |= strchr(q->term[later], *c) != NULL;
                if (needed && !strchr(left, *c)) *end++ = *c, *end = 0;
            }
        sprintf(spec, "%s,%s->%s", have, q->term[k], k == q->n - 1 ? q->out : left);
        y = eg_einsum(spec, y, x[k]);
        strcpy(have, left);
    }
    return y;
}
static double work(void) { return (double)eg_stats(cx).multiply_adds; }
static double allowed(eg_dtype dtype) { return dtype == EG_F32 ? 2e-4 : 1e-11; }

/* -- the same as pairs ------------------------------------------------------------------------ */
LOOP_TEST(random_networks_are_their_pairs, 4)
{
    static const eg_dtype dtypes[] = { EG_F64, EG_F32, EG_C128, EG_I64 };
    const eg_dtype dtype = dtypes[_i];
    state = 11 + (uint64_t)_i;
    for (int number_of = 0; number_of < 160 / SLOWER; number_of++) {
        const eg_mark m = eg_push(cx);
        const net q = network(RANDOM, 3 + draw(10), 3);
        eg_tensor *x[MOST], *some[MOST], *dx[MOST], *want[MOST];
        operands(&q, dtype, true, x);
        eg_tensor *y = eg_einsum_n(spec_of(&q), q.n, x), *z = as_pairs(&q, x);
        ck_assert_msg(eg_ok(y) && eg_ok(z), "%s: %s", spec_of(&q), eg_error(cx));
        if (dtype == EG_C128) {
            eg_assert_close(eg_real(y), eg_real(z), 1e-12);
            eg_assert_close(eg_imag(y), eg_imag(z), 1e-12);
        } else
            eg_assert_close(y, z, dtype == EG_I64 ? 0 : allowed(dtype));
        if (dtype == EG_F64 || dtype == EG_F32) {
            eg_tensor *g = eg_uniform_n(cx, dtype, -1, 1, eg_rank(y), eg_dims(y));
            int wanted = 0;
            for (int k = 0; k < q.n; k++)
                if (draw(3) || (k == q.n - 1 && !wanted)) some[wanted++] = x[k];
            ck_assert_int_eq(eg_grad(y, g, wanted, some, dx), 0);
            ck_assert_int_eq(eg_grad(z, g, wanted, some, want), 0);
            for (int k = 0; k < wanted; k++) eg_assert_close(dx[k], want[k], allowed(dtype));
            for (int k = 0; k < wanted; k++)
                want[k] = eg_uniform_n(cx, dtype, -1, 1, eg_rank(some[k]), eg_dims(some[k]));
            eg_assert_close(eg_jvp(y, wanted, some, want), eg_jvp(z, wanted, some, want),
                            allowed(dtype));
        }
        eg_pop(cx, m);
    }
}

typedef struct problem {
    net q;
    int64_t keep;
} problem;
static eg_tensor *einsum_of(void *user, eg_tensor *const *x)
{
    const problem *p = user;
    return eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                             .spec = spec_of(&p->q),
                                             .count = p->q.n,
                                             .operands = x,
                                             .alpha = -0.7,
                                             .keep_limit = p->keep });
}
LOOP_TEST(second_derivatives_of_random_networks, 4)
{
    state = 400 + (uint64_t)_i;
    for (int k = 0; k < 8 / SLOWER + 1; k++) {
        const eg_mark m = eg_push(cx);
        problem p = { .q = network(RANDOM, 3 + draw(4), 3),
                      .keep = (int64_t[]){ 0, EG_OFF, 40, 400 }[draw(4)] };
        eg_tensor *x[MOST];
        operands(&p.q, EG_F64, true, x);
        const eg_report *r = eg_gradcheck(.f = einsum_of, .user = &p, .count = p.q.n, .xs = x,
                                          .order = 2, .directions = 2, .atol = 1e-7);
        ck_assert_msg(r != NULL, "'%s': %s", spec_of(&p.q), eg_error(cx));
        for (int i = 0; i < p.q.n; i++)
            ck_assert_msg(r->passed || r->input[i] == EG_ZERO || r->input[i] == EG_RIGHT,
                          "'%s': %s", spec_of(&p.q), r->text);
        eg_pop(cx, m);
    }
}

/* -- counted ---------------------------------------------------------------------------------- */
LOOP_TEST(all_gradients_cost_two_forwards, SHAPES)
{
    state = 77 + (uint64_t)_i;
    for (int n = 3; n <= MOST; n++) {
        const eg_mark m = eg_push(cx);
        const net q = network((shape)_i, _i == RANDOM && n > 14 ? 14 : n,
                              _i == RANDOM ? 3
                              : _i == TREE ? 2
                                           : 4);
        eg_tensor *x[MOST], *dx[MOST];
        operands(&q, n % 2 ? EG_F64 : EG_F32, false, x);
        eg_nograd(cx, true);
        double start = work();
        eg_tensor *quiet = eg_einsum_n(spec_of(&q), q.n, x);
        const double bare = work() - start;
        eg_nograd(cx, false);
        start = work();
        eg_tensor *y = eg_einsum_n(spec_of(&q), q.n, x);
        const double forward = work() - start;
        eg_tensor *g = eg_ones_like(y);
        start = work();
        ck_assert_int_eq(eg_grad(y, g, q.n, x, dx), 0);
        const double gradient = work() - start;
        ck_assert_msg(forward == bare, "%s: %g while recording, else %g", spec_of(&q), forward,
                      bare);
        ck_assert_msg(gradient <= 2 * forward, "%s: gradients %g, forward %g", spec_of(&q),
                      gradient, forward);
        start = work();
        eg_tensor *z = as_pairs(&q, x);
        ck_assert_int_eq(eg_grad(z, g, q.n, x, dx), 0);
        ck_assert_msg(forward + gradient <= work() - start, "%s: %g, as pairs %g", spec_of(&q),
                      forward + gradient, work() - start);
        /* recording changes no bit */
        ck_assert(memcmp(eg_raw(eg_contiguous(quiet), NULL), eg_raw(eg_contiguous(y), NULL),
                         (size_t)eg_size(y) * (n % 2 ? 8 : 4)) == 0);
        eg_pop(cx, m);
    }
}
/* One gradient of a chain of matrices between vectors takes only products of matrix and vector,
 * whatever order the forward pass had. */
TEST(one_gradient_takes_the_tree_that_is_cheapest_for_it)
{
    const int path[3][2] = { { 1, 2 }, { 0, 2 }, { 0, 1 } }; /* the product of the matrices first */
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 50), eg_normal(cx, 0, 1, 50, 50),
                       eg_normal(cx, 0, 1, 50, 50), eg_normal(cx, 0, 1, 50) };
    eg_tensor *y = eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                     .spec = "a,ab,bc,c->",
                                                     .count = 4,
                                                     .operands = x,
                                                     .path = path,
                                                     .steps = 3 });
    eg_tensor *dx[4], *all[4];
    double start = work();
    ck_assert_int_eq(eg_grad(y, NULL, 1, x, dx), 0);
    /* its value A B is kept: one product with c, one with g */
    ck_assert_double_eq(work() - start, 50 * 50 + 50);
    start = work();
    ck_assert_int_eq(eg_grad(y, NULL, 1, x + 1, dx + 1), 0);
    ck_assert_double_le(work() - start, 2 * 50 * 50 + 50);
    start = work();
    ck_assert_int_eq(eg_grad(y, NULL, 4, x, all), 0);
    /* not the 2 · 50³ of the path */
    ck_assert_double_le(work() - start, 6 * 50 * 50 + 200);
    eg_assert_close(all[0], dx[0], 1e-13);
    eg_assert_close(all[1], dx[1], 1e-13);
}
TEST(second_order_costs_a_few_forwards)
{
    state = 5;
    const net q = network(CHAIN, 16, 8);
    eg_tensor *x[MOST], *v[MOST], *hv[MOST], *dx[MOST];
    operands(&q, EG_F64, false, x);
    for (int k = 0; k < q.n; k++) v[k] = eg_ones_like(x[k]);
    double start = work();
    eg_tensor *y = eg_einsum_n(spec_of(&q), q.n, x), *loss = eg_sum(NULL, eg_square(y));
    const double forward = work() - start;
    start = work();
    ck_assert_int_eq(eg_hvp(loss, q.n, x, v, hv), 0);
    /* 2 for the gradient, 2 for y's tangent, and two for each of the gradient's three products */
    ck_assert_double_le(work() - start, 10 * forward);
    start = work();
    ck_assert_int_eq(eg_grad(loss, NULL, q.n, x, dx), 0);
    eg_tensor *sum = NULL;
    for (int k = 0; k < q.n; k++) {
        eg_tensor *s = eg_sum(NULL, dx[k]);
        sum = sum ? eg_add(sum, s) : s;
    }
    ck_assert_int_eq(eg_grad(sum, NULL, q.n, x, dx), 0);
    ck_assert_double_le(work() - start, 12 * forward);
    for (int k = 0; k < q.n; k++) eg_assert_close(dx[k], hv[k], 1e-10);
}

/* -- what is kept ----------------------------------------------------------------------------- */
static eg_tensor *chain_of(void *user, eg_tensor *const *x) { return eg_einsum_n(user, 4, x); }
TEST(values_are_kept_only_while_recording)
{
    enum { N = 64 };
    char spec[] = "ab,bc,cd,de->ae";
    eg_tensor *x[4], *dx[4], *want[4];
    for (int k = 0; k < 4; k++) x[k] = eg_normal(cx, 0, 1, N, N);
    const size_t one = N * N * sizeof(double);
    size_t before = eg_stats(cx).used;
    eg_tensor *y = eg_einsum_n(spec, 4, x);
    ck_assert_uint_ge(eg_stats(cx).used - before, 3 * one);
    ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 4, x, want), 0);
    before = eg_stats(cx).used;
    eg_tensor *z = eg_checkpoint(chain_of, spec, 4, x);
    ck_assert_uint_lt(eg_stats(cx).used - before, 2 * one);
    ck_assert_int_eq(eg_grad(z, eg_ones_like(z), 4, x, dx), 0);
    for (int k = 0; k < 4; k++) eg_assert_close(dx[k], want[k], 0);
    eg_nograd(cx, true);
    before = eg_stats(cx).used;
    eg_einsum_n(spec, 4, x);
    ck_assert_uint_lt(eg_stats(cx).used - before, 2 * one);
    eg_nograd(cx, false);
    const eg_mark m = eg_push(cx);
    before = eg_stats(cx).used;
    eg_einsum_n(spec, 4, x);
    eg_pop(cx, m);
    ck_assert_uint_le(eg_stats(cx).used, before);
}
/* A value that is not kept is computed again, once; the values, and with them the gradients, remain
 * the same. */
LOOP_TEST(a_limit_on_what_is_kept, SHAPES)
{
    state = 31 + (uint64_t)_i;
    for (int n = 3; n <= 12; n++) {
        const net q = network((shape)_i, n, 3);
        eg_tensor *x[MOST], *dx[MOST], *want[MOST];
        operands(&q, EG_F64, false, x);
        double start = work();
        eg_tensor *all = eg_einsum_n(spec_of(&q), n, x), *g = eg_ones_like(all);
        const double forward = work() - start;
        ck_assert_int_eq(eg_grad(all, g, n, x, want), 0);
        for (int turn = 0; turn < 4; turn++) {
            eg_einsum_args o = { .size = sizeof o, .spec = spec_of(&q), .count = n, .operands = x };
            const double kept = eg_explain_with(&o)->kept;
            o.keep_limit = turn == 0 || kept < 8 ? EG_OFF : (int64_t)kept * turn / 4;
            const eg_explained *e = eg_explain_with(&o);
            ck_assert_double_le(e->kept, o.keep_limit == EG_OFF ? 0 : (double)o.keep_limit);
            start = work();
            eg_tensor *y = eg_einsum_with(&o);
            ck_assert_double_eq(work() - start, forward);
            eg_assert_close(y, all, 0);
            start = work();
            ck_assert_int_eq(eg_grad(y, g, n, x, dx), 0);
            ck_assert_double_le(work() - start, 3 * forward);
            for (int k = 0; k < n; k++) eg_assert_close(dx[k], want[k], 1e-12);
        }
    }
    eg_tensor *x[] = { eg_ones(cx, 2, 2), eg_ones(cx, 2, 2), eg_ones(cx, 2, 2) };
    eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                      .spec = "ab,bc,cd->ad",
                                      .count = 3,
                                      .operands = x,
                                      .keep_limit = -3 });
    eg_assert_error(cx, "einsum: .keep_limit is -3 bytes");
}
TEST(gradients_have_the_same_bits_for_any_threads)
{
    state = 9;
    for (int n = 3; n < 12; n += 4) {
        const net q = network(CHAIN, n, 90);
        eg_tensor *x[MOST], *dx[MOST], *first[MOST] = { NULL };
        operands(&q, EG_F32, false, x);
        for (int turn = 0; turn < 6; turn++) {
            eg_threads(cx, 1 + turn % 3);
            eg_tensor *y = eg_einsum_n(spec_of(&q), n, x), *g = eg_ones_like(y);
            eg_nograd(cx, turn > 2); /* nor does it depend on whether the gradient is recorded */
            ck_assert_int_eq(eg_grad(y, g, n, x, dx), 0);
            eg_nograd(cx, false);
            for (int k = 0; k < n; k++) {
                if (!first[k]) first[k] = dx[k];
                ck_assert(memcmp(eg_raw(eg_contiguous(first[k]), NULL),
                                 eg_raw(eg_contiguous(dx[k]), NULL),
                                 (size_t)eg_size(x[k]) * sizeof(float)) == 0);
            }
        }
    }
}
static bool same_bits(eg_tensor *a, eg_tensor *b)
{
    return eg_rank(a) == eg_rank(b) && eg_size(a) == eg_size(b) &&
           memcmp(eg_raw(eg_contiguous(a), NULL), eg_raw(eg_contiguous(b), NULL),
                  (size_t)eg_size(a) * (eg_type(a) == EG_F32 ? 4 : 8)) == 0;
}
/* While nothing is recorded all gradients are computed at once: the same products, to the bit, for
 * any wanted gradients, kept values, factor, and strides of operands and cotangent, planned or from
 * the cache. */
LOOP_TEST(gradients_at_once_are_the_recorded_ones, SHAPES)
{
    state = 501 + (uint64_t)_i;
    for (int n = 3; n <= (_i == RANDOM ? 12 : MOST); n += 1 + n / 8) {
        const eg_mark m = eg_push(cx);
        const eg_dtype dtype = n % 2 ? EG_F64 : EG_F32;
        const net q = network((shape)_i, n, _i == RANDOM || _i == TREE ? 3 : 5);
        eg_tensor *x[MOST], *some[MOST], *at_once[MOST], *again[MOST], *recorded[MOST];
        operands(&q, dtype, n % 3 != 0, x);
        for (int turn = 0; turn < 6; turn++) {
            eg_einsum_args o = { .size = sizeof o, .spec = spec_of(&q), .count = n, .operands = x };
            o.keep_limit = (int64_t[]){ 0, EG_OFF, 40, 400, 4000, 0 }[turn];
            o.alpha = (double[]){ -0.7, 1, 0.3, 1, 2.5, 1 }[turn];
            eg_tensor *y = eg_einsum_with(&o);
            eg_tensor *g = turn % 2 ? eg_expand_n(eg_full_n(cx, EG_DEFAULT, 0.3, 0, NULL),
                                                  eg_rank(y), eg_dims(y))
                                    : eg_uniform_n(cx, dtype, -1, 1, eg_rank(y), eg_dims(y));
            g = eg_cast(g, dtype);
            int wanted = 0;
            for (int k = 0; k < n; k++)
                if (turn == 0 || draw(3) || (k == n - 1 && !wanted)) some[wanted++] = x[k];
            double start = work();
            ck_assert_int_eq(eg_grad(y, g, wanted, some, recorded), 0);
            const double first = work() - start;
            eg_nograd(cx, true);
            for (int time = 0; time < 2; time++) {
                start = work();
                ck_assert_int_eq(eg_grad(y, g, wanted, some, time ? again : at_once), 0);
                ck_assert_msg(work() - start == first, "%s: %g multiply-adds, recorded %g",
                              spec_of(&q), work() - start, first);
            }
            eg_nograd(cx, false);
            for (int k = 0; k < wanted; k++) {
                ck_assert_msg(same_bits(at_once[k], recorded[k]), "%s: gradient %d of %d",
                              spec_of(&q), k, wanted);
                ck_assert(same_bits(again[k], recorded[k]));
                int64_t step[2][AXES + 1] = { { 0 } };
                eg_raw(at_once[k], step[0]);
                eg_raw(recorded[k], step[1]);
                ck_assert(memcmp(step[0], step[1], sizeof *step) == 0);
            }
        }
        eg_pop(cx, m);
    }
}
/* The tree for some of the gradients may have a kept value with its axes in another order. */
TEST(any_subset_of_the_gradients_at_once_is_the_recorded_one)
{
    const char *const spec[] = { "bdc,bd,a,dba->ac", "e,dae,a,->de",
                                 "eef,cdab,bcd,eig,eih,ahf->ig" };
    const int64_t size[][9] = { { 2, 3, 2, 1 }, { 2, 1, 1, 3, 3 }, { 1, 3, 1, 3, 2, 2, 1, 4, 4 } };
    for (size_t k = 0; k < sizeof spec / sizeof *spec; k++) {
        const eg_mark m = eg_push(cx);
        eg_tensor *x[6], *some[6], *quiet[6], *recorded[6];
        int64_t dim[4];
        int n = 0, rank = 0;
        for (const char *c = spec[k]; *c != '>'; c++)
            if (*c >= 'a')
                dim[rank++] = size[k][number(*c)];
            else if (*c == ',' || *c == '-')
                x[n++] = eg_uniform_n(cx, EG_F64, -1, 1, rank, dim), rank = 0;
        eg_tensor *y = eg_einsum_n(spec[k], n, x), *g = eg_square(y);
        for (unsigned of = 1; of < 1u << n; of++) {
            int wanted = 0;
            for (int i = 0; i < n; i++)
                if (of >> i & 1) some[wanted++] = x[i];
            ck_assert_int_eq(eg_grad(y, g, wanted, some, recorded), 0);
            eg_nograd(cx, true);
            ck_assert_int_eq(eg_grad(y, g, wanted, some, quiet), 0);
            eg_nograd(cx, false);
            for (int i = 0; i < wanted; i++)
                ck_assert_msg(same_bits(quiet[i], recorded[i]), "%s, subset %u: gradient %d",
                              spec[k], of, i);
        }
        eg_pop(cx, m);
    }
}
/* A cached pass reads the cotangent that it is given, and the values of its own tree only. */
TEST(a_remembered_pass_is_that_of_its_cotangent_and_tree)
{
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 4, 4), eg_normal(cx, 0, 1, 4, 4),
                       eg_normal(cx, 0, 1, 4, 4), eg_normal(cx, 0, 1, 4, 4) };
    eg_tensor *g = eg_normal(cx, 0, 1, 4, 4), *dx[4], *want[4];
    const char *const spec[] = { "ab,bc,cd,de->ae", "ab,cb,cd,de->ae", "ab,bc,cd,ed->ae" };
    for (int turn = 0; turn < 12; turn++) {
        eg_tensor *y = eg_einsum_n(spec[turn % 3], 4, x);
        eg_tensor *h = turn % 2 ? eg_transpose(g, 0, 1) : turn % 4 ? g : eg_flip_axis(g, 0);
        ck_assert_int_eq(eg_grad(y, h, 4, x, want), 0);
        eg_nograd(cx, true);
        ck_assert_int_eq(eg_grad(y, h, 4, x, dx), 0);
        eg_nograd(cx, false);
        for (int k = 0; k < 4; k++) ck_assert(same_bits(dx[k], want[k]));
    }
    /* thousands of other calls replace the cached entries */
    eg_tensor *y = eg_einsum_n(spec[0], 4, x);
    ck_assert_int_eq(eg_grad(y, g, 4, x, want), 0);
    for (int k = 1; k < 2000; k++) {
        const eg_mark m = eg_push(cx);
        eg_einsum("ij,jk->ik", eg_ones(cx, 1 + k % 50, 1 + k / 50), eg_ones(cx, 1 + k / 50, 3));
        if (k % 500 == 0) {
            eg_nograd(cx, true);
            ck_assert_int_eq(eg_grad(y, g, 4, x, dx), 0);
            eg_nograd(cx, false);
            for (int i = 0; i < 4; i++) ck_assert(same_bits(dx[i], want[i]));
        }
        eg_pop(cx, m);
    }
}
/* Kept values are arrays of the node; each pass that records makes tensors of them, which end with
 * its scope. */
TEST(kept_values_outlive_the_tensors_made_of_them)
{
    state = 12;
    const net q = network(CHAIN, 9, 4);
    eg_tensor *x[MOST], *dx[MOST], *second[2][MOST];
    operands(&q, EG_F64, false, x);
    uint64_t nodes = eg_stats(cx).nodes;
    eg_tensor *y = eg_einsum_n(spec_of(&q), q.n, x), *g = eg_ones_like(y);
    ck_assert_uint_eq(eg_stats(cx).nodes - nodes, 1);
    for (int turn = 0; turn < 2; turn++) {
        eg_mark m = eg_push(cx);
        ck_assert_int_eq(eg_grad(y, g, q.n, x, dx), 0);
        eg_tensor *sum = NULL;
        for (int k = 0; k < q.n; k++)
            sum =
                sum ? eg_add(sum, eg_sum(NULL, eg_square(dx[k]))) : eg_sum(NULL, eg_square(dx[k]));
        ck_assert_int_eq(eg_grad(sum, NULL, q.n, x, dx), 0);
        for (int k = 0; k < q.n; k++) second[turn][k] = eg_keep(dx[k]);
        eg_pop(cx, m);
        eg_mark other = eg_push(cx); /* reuses the memory of the tensors that have ended */
        for (int k = 0; k < 60; k++) eg_full(cx, 7, 5, 5);
        eg_pop(cx, other);
    }
    for (int k = 0; k < q.n; k++) ck_assert(same_bits(second[0][k], second[1][k]));
    nodes = eg_stats(cx).nodes;
    eg_nograd(cx, true);
    ck_assert_int_eq(eg_grad(y, g, q.n, x, dx), 0);
    ck_assert_uint_eq(eg_stats(cx).nodes - nodes, (uint64_t)q.n);
}

/* -- captured steps and copies ---------------------------------------------------------------- */
enum { FOUR = 4 };
typedef struct captured_case {
    eg_tensor *x[FOUR], *y; /* y: made before the step; NULL: the step makes it */
} captured_case;
static int captured_gradients(void *user, eg_tensor **out)
{
    captured_case *c = user;
    eg_tensor *y = c->y ? c->y : eg_einsum_n("ab,bc,cd,de->ae", FOUR, c->x);
    const bool was = eg_nograd(cx, true);
    const int bad = eg_grad(y, eg_ones_like(y), FOUR, c->x, out);
    eg_nograd(cx, was);
    return bad;
}
LOOP_TEST(gradients_in_a_captured_step, 2)
{
    captured_case c = { .y = NULL };
    eg_tensor *want[FOUR];
    for (int k = 0; k < FOUR; k++) c.x[k] = eg_normal(cx, 0, 1, 6, 6);
    const eg_mark m = eg_push(cx);
    if (_i) c.y = eg_einsum_n("ab,bc,cd,de->ae", FOUR, c.x);
    eg_captured *step = eg_capture(cx, captured_gradients, &c, FOUR);
    ck_assert_msg(step != NULL, "%s", eg_error(cx));
    for (int run = 0; run < 3; run++) {
        ck_assert_int_eq(eg_captured_run(step), 0);
        ck_assert_int_eq(captured_gradients(&c, want), 0);
        for (int k = 0; k < FOUR; k++)
            ck_assert(same_bits(eg_copy(eg_captured_output(step, k)), want[k]));
        for (int k = 0; k < FOUR && !_i; k++) eg_assign(c.x[k], eg_normal(cx, 0, 1, 6, 6));
    }
    eg_pop(cx, m);
}
/* Only small values are kept. In a captured step they are tensors, einsums of three operands; the
 * tree of their gradients is that of a kept array. */
typedef struct limited_case {
    const char *spec;
    int n;
    eg_tensor *x[MOST];
} limited_case;
static int limited_second_gradients(void *user, eg_tensor **out)
{
    const limited_case *c = user;
    eg_tensor *dx[MOST], *sum = NULL;
    eg_tensor *y = eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                     .spec = c->spec,
                                                     .count = c->n,
                                                     .operands = c->x,
                                                     .keep_limit = 200 });
    if (eg_grad(y, eg_ones_like(y), c->n, c->x, dx)) return -1;
    for (int k = 0; k < c->n; k++) {
        eg_tensor *one = eg_sum(NULL, eg_square(dx[k]));
        sum = sum ? eg_add(sum, one) : one;
    }
    return eg_grad(sum, NULL, c->n, c->x, out);
}
LOOP_TEST(second_gradients_of_kept_networks_in_a_captured_step, 4)
{
    static const char *const specs[] = { "ab,ab,ab,c->a", "ab,ab,ab,ac,ac,ac->a",
                                         "ab,ab,ab,c,c,c->a", "abc,ab,ac,bc,d,d->ad" };
    limited_case c = { .spec = specs[_i] };
    eg_tensor *want[MOST];
    for (const char *s = c.spec; *s && *s != '-'; s += *s == ',', c.n++) {
        int64_t dim[4];
        int rank = 0;
        for (; *s >= 'a'; s++) dim[rank++] = *s == 'a' ? 9 : 17 - 2 * (*s - 'a');
        c.x[c.n] = eg_uniform_n(cx, EG_F32, -1, 1, rank, dim);
    }
    const eg_mark m = eg_push(cx);
    ck_assert_int_eq(limited_second_gradients(&c, want), 0);
    eg_captured *step = eg_capture(cx, limited_second_gradients, &c, c.n);
    ck_assert_msg(step != NULL, "%s", eg_error(cx));
    for (int k = 0; k < c.n; k++)
        ck_assert_msg(same_bits(eg_copy(eg_captured_output(step, k)), want[k]), "%d", k);
    eg_pop(cx, m);
}
TEST(gradients_of_copies_are_those_of_each)
{
    enum { COPIES = 3 };
    eg_owner *owner = eg_owner_open(cx);
    const eg_copies *copies = eg_copies_open(owner, COPIES, NULL);
    eg_tensor *all[FOUR], *x[FOUR], *one[FOUR], *dx[FOUR], *want[FOUR];
    for (int k = 0; k < FOUR; k++) {
        all[k] = eg_normal(cx, 0, 1, COPIES, 5, 5);
        x[k] = eg_copies_unstack(copies, all[k]);
    }
    eg_tensor *y = eg_einsum_n("ab,bc,cd,de->ae", FOUR, x);
    for (int quiet = 0; quiet < 2; quiet++) {
        eg_nograd(cx, quiet);
        ck_assert_int_eq(eg_grad(y, eg_ones_like(y), FOUR, x, dx), 0);
        eg_nograd(cx, false);
        for (int s = 0; s < COPIES; s++) {
            for (int k = 0; k < FOUR; k++) one[k] = eg_copy(eg_select_axis(all[k], 0, s));
            eg_tensor *z = eg_einsum_n("ab,bc,cd,de->ae", FOUR, one);
            ck_assert_int_eq(eg_grad(z, eg_ones_like(z), FOUR, one, want), 0);
            for (int k = 0; k < FOUR; k++)
                ck_assert(same_bits(eg_copy(eg_copy_at(dx[k], s)), want[k]));
        }
    }
    eg_owner_close(owner);
}
/* Eight values of 2^61 bytes each, of operands with one element each. */
TEST(values_that_leave_the_address_space_are_an_error)
{
    enum { N = 10 };
    const int64_t dim[2] = { (int64_t)1 << 29, (int64_t)1 << 29 };
    int path[N - 1][2];
    eg_tensor *x[N];
    for (int k = 0; k < N; k++) x[k] = eg_expand_n(eg_ones(cx, 1, 1), 2, dim);
    for (int s = 0; s < N - 1; s++) path[s][0] = 0, path[s][1] = 1;
    ck_assert(!eg_ok(eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                       .spec = "ab,ab,ab,ab,ab,ab,ab,ab,ab,ab->",
                                                       .count = N,
                                                       .operands = x,
                                                       .path = (const int(*)[2])path,
                                                       .steps = N - 1 })));
    eg_assert_error(cx, "the intermediates take more than 2^63 bytes");
}
TEST(an_operand_that_changed_is_noticed)
{
    eg_tensor *x[] = { eg_ones(cx, 2, 3), eg_ones(cx, 3, 4), eg_ones(cx, 4, 5) }, *dx[3];
    eg_tensor *y = eg_einsum_n("ab,bc,cd->ad", 3, x), *g = eg_ones_like(y);
    eg_fill(x[0], 7);
    ck_assert_int_eq(eg_grad(y, g, 1, x, dx), 0); /* needs only the others */
    ck_assert_double_eq(eg_get(dx[0], 0, 0), 4 * 5);
    ck_assert_int_ne(eg_grad(y, g, 1, x + 2, dx), 0);
    eg_assert_error(cx, "operand 1 of einsum");
}
