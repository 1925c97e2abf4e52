/* test_ring.c: attention over a length that is divided among ranks (eg_attention with .ranks). */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad/ranks.h>
#include <limits.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

enum { B = 2, H = 2, D = 4, E = 3, RANKS = 8, ROOM = B * H * 64 * D };
/* A case: mask, scores, dropout; and the results of all ranks together. */
typedef struct ring_case {
    const char *where, *score;
    double dropout;
    int64_t length, block;
    bool zigzag, bias, lengths, alibi, sink, keep;
    bool infinite; /* some of the scores, and the sink of one head, are ∞ */
    bool names;    /* strings are in names; keep and bias have one index, that of the keys */
    eg_dtype dtype;
    bool plain; /* without .ranks: the complete length in one call */
    int more;   /* orders of the gradient beyond the first */
    /* results: complete tensors, to which each rank writes its positions */
    double y[ROOM], lse[ROOM], dq[ROOM], dk[ROOM], dv[ROOM], extra[ROOM];
    int64_t extras;
    uint64_t forward[RANKS], backward[RANKS], draws[RANKS]; /* bytes sent */
    char message[512];
} ring_case;

/* Returns the positions of this rank in a complete tensor, along an axis. */
static eg_tensor *mine(eg_tensor *x, int axis, int runs, const eg_span *run)
{
    eg_tensor *part[2];
    for (int k = 0; k < runs; k++) part[k] = eg_slice_axis(x, axis, run[k].from, run[k].to, 1);
    return eg_copy(runs == 1 ? part[0] : eg_concat_axis_n(axis, 2, part));
}
/* Writes x, the positions of this rank along axis 1 of b i h e, to their positions in the complete
 * tensor. */
static void put(double *to, int64_t length, eg_tensor *x, int runs, const eg_span *run)
{
    const double *v = eg_f64(eg_cast(x, EG_F64));
    const int64_t n = eg_dim(x, 1), inner = eg_size(x) / (B * (n ? n : 1));
    int64_t at = 0;
    for (int k = 0; v && k < runs; k++)
        for (int64_t p = run[k].from; p < run[k].to; p++, at++)
            for (int64_t b = 0; b < B; b++)
                memcpy(to + (b * length + p) * inner, v + (b * n + at) * inner,
                       (size_t)inner * sizeof *v);
}
/* Replaces the slopes d by those of Σ ⟨tanh d, h⟩, gradients of the next order. For tensors that
 * every rank has completely, d and h are the same on every rank, and count once. */
static void again(int count, eg_tensor *const *xs, int known, eg_tensor *const *h, eg_tensor **d)
{
    eg_tensor *f = NULL;
    for (int k = 0; k < known; k++) {
        eg_tensor *one = eg_sum(NULL, eg_mul(eg_tanh(d[k]), h[k]));
        f = f ? eg_add(f, one) : one;
    }
    eg_grad(f, NULL, count, xs, d);
}
static int ring_body(void *user, const eg_ranks_table *table)
{
    ring_case *s = user;
    const int64_t n = s->length;
    eg_ctx *cx = eg_open(.threads = 1, .dtype = s->dtype, .seed = 3);
    eg_ranks *r = s->plain ? NULL : eg_ranks_open(.cx = cx, .table = table);
    eg_span run[2] = { { 0, n } };
    int runs = s->plain ? 1 : eg_attention_positions(r, n, s->block, s->zigzag, run);
    eg_tensor *q = eg_normal(cx, 0, 1, B, n, H, D), *k = eg_normal(cx, 0, 1, B, n, H, D),
              *v = eg_normal(cx, 0, 1, B, n, H, E), *g = eg_normal(cx, 0, 1, B, n, H, E),
              *gl = eg_normal(cx, 0, 1, B, n, H), *bias = eg_normal(cx, 0, 1, H, n, n),
              *slope = eg_normal(cx, 0, 0.1, H), *rel = eg_normal(cx, 0, 1, H, 8),
              *sink = eg_normal(cx, 0, 1, H), *keep = eg_randint(cx, 0, 3, B, n);
    if (s->infinite) {
        eg_tensor *all = eg_full(cx, INFINITY, H, n, n);
        bias = eg_where(eg_gt(bias, eg_full(cx, 1.5, 1)), all, bias);
        sink = eg_mul(sink, eg_cast(eg_from(cx, (double[]){ INFINITY, 1 }, H), s->dtype));
    }
    eg_tensor *h[8] = { eg_normal(cx, 0, 1, B, n, H, D), eg_normal(cx, 0, 1, B, n, H, D),
                        eg_normal(cx, 0, 1, B, n, H, E) };
    int64_t lengths[] = { n / 2 + 1, n };
    q = mine(q, 1, runs, run), k = mine(k, 1, runs, run), v = mine(v, 1, runs, run);
    g = mine(g, 1, runs, run), gl = mine(gl, 1, runs, run);
    for (int t = 0; t < 3; t++) h[t] = mine(h[t], 1, runs, run);
    eg_attention_args a = { .size = sizeof a,
                            .spec = "bihd,bjhd,bjhe->bihe",
                            .q = q,
                            .k = k,
                            .v = v,
                            .where = s->where,
                            .score = s->score,
                            .dropout = s->dropout,
                            .ranks = r,
                            .ranks_block = s->block,
                            .zigzag = s->zigzag };
    eg_tensor *xs[8] = { q, k, v }, *d[8], *lse;
    int count = 3;
    if (s->score && strstr(s->score, "r[")) a.with[0] = (eg_given){ "r", xs[count++] = rel };
    if (s->bias) a.bias = (eg_masked){ "hij", xs[count++] = bias };
    if (s->alibi) a.alibi = (eg_masked){ "h", xs[count++] = slope };
    if (s->sink) a.sink = (eg_masked){ "h", xs[count++] = sink };
    if (s->keep) a.keep = (eg_masked){ "bj", keep };
    if (s->lengths) a.lengths = (eg_masked){ "b", eg_from(cx, lengths, 2) };
    a.lse = &lse;
    if (s->names) {
        a.spec = "batch query head d, batch key head d, batch key head e -> batch query head e";
        a.bias = (eg_masked){ "key", eg_select_axis(bias, 0, 0) };
        a.bias.x = xs[3] = eg_copy(eg_select_axis(a.bias.x, 0, 0));
        a.keep = (eg_masked){ "key", eg_select_axis(keep, 0, 0) };
        a.alibi.axes = a.sink.axes = "head", a.lengths.axes = "batch";
    }
    eg_tensor *y = eg_attention_with(&a);
    if (r) s->forward[table->rank] = eg_ranks_traffic(r).sent;
    s->draws[table->rank] = eg_draws(cx);
    eg_tensor *finite = eg_maximum(lse, eg_full_n(cx, s->dtype, -100, 0, NULL));
    eg_grad(eg_add(eg_sum(NULL, eg_mul(y, g)), eg_sum(NULL, eg_mul(finite, gl))), NULL, count, xs,
            d);
    for (int e = 3; e < count && s->more; e++) h[e] = eg_scale(xs[e], 0.5);
    for (int t = 0; t < s->more; t++) again(count, xs, count, h, d);
    if (r) s->backward[table->rank] = eg_ranks_traffic(r).sent - s->forward[table->rank];
    put(s->y, n, y, runs, run), put(s->lse, n, lse, runs, run);
    put(s->dq, n, d[0], runs, run), put(s->dk, n, d[1], runs, run), put(s->dv, n, d[2], runs, run);
    /* tensors that every rank has completely, and so their gradients */
    int64_t at = 0;
    for (int e = 3; e < count && !table->rank; e++) {
        const double *from = eg_f64(eg_cast(d[e], EG_F64));
        for (int64_t p = 0; from && p < eg_size(d[e]); p++) s->extra[at++] = from[p];
    }
    if (!table->rank) s->extras = at;
    const bool bad = eg_error(cx) != NULL;
    if (bad) snprintf(s->message, sizeof s->message, "%s", eg_error(cx));
    eg_ranks_close(r);
    eg_close(cx);
    return bad;
}
static eg_ctx *cx;
static void open_cx(void) { cx = eg_open(); }
static void close_cx(void) { eg_close(cx); }
static void run(ring_case *s, int ranks)
{
    s->message[0] = 0;
    eg_ranks_simulate(cx, ranks, ring_body, s);
    ck_assert_msg(!s->message[0], "%s", s->message);
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
}
static bool same(const ring_case *a, const ring_case *b, double tol)
{
    const double *x[] = { a->y, a->lse, a->dq, a->dk, a->dv, a->extra },
                 *y[] = { b->y, b->lse, b->dq, b->dk, b->dv, b->extra };
    for (int t = 0; t < 6; t++)
        for (int k = 0; k < ROOM; k++)
            if (!(x[t][k] == y[t][k] || fabs(x[t][k] - y[t][k]) <= tol)) return false;
    return true;
}

GROUP("ring", .setup = open_cx, .teardown = close_cx)

static const ring_case ring_cases[] = {
    { .length = 24, .block = 3 },
    { .where = "j <= i", .length = 24, .block = 3, .zigzag = true },
    { .where = "j <= i & j > i - 6", .length = 23, .block = 4 },
    { .where = "j <= i",
      .score = "score + r[h, clip(i - j, 0, 7)]",
      .length = 32,
      .block = 2,
      .zigzag = true },
    { .where = "i % 3 != 0 | j < |j| / 2",
      .score = "4 * tanh(score / 4)",
      .length = 20,
      .block = 2,
      .bias = true },
    { .where = "j <= i", .length = 24, .block = 2, .alibi = true, .lengths = true, .zigzag = true },
    { .length = 16, .block = 1, .sink = true, .keep = true },
};
/* Compared with attention of the complete length, with its gradients, in f64. */
LOOP_TEST(a_divided_length_is_the_whole_one, 2 * sizeof ring_cases / sizeof *ring_cases)
{
    static ring_case whole, parts;
    whole = parts = ring_cases[_i / 2];
    whole.dtype = parts.dtype = EG_F64;
    whole.plain = true;
    run(&whole, 1);
    run(&parts, _i % 2 ? 3 : 4);
    ck_assert(same(&whole, &parts, 1e-12));
    ck_assert(!same(&whole, &parts, 0)); /* the sums have another order */
}
/* Masks of one index, whose name is a word, are not read as letters. */
LOOP_TEST(a_divided_length_in_names, 2)
{
    static ring_case whole, parts;
    whole = parts = (ring_case){ .length = 14,
                                 .block = 2,
                                 .bias = true,
                                 .alibi = true,
                                 .sink = true,
                                 .lengths = true,
                                 .names = true,
                                 .dtype = EG_F64 };
    whole.plain = true;
    run(&whole, 1);
    run(&parts, _i ? 3 : 1);
    ck_assert(same(&whole, &parts, 1e-12));
}
/* Also for one rank; with dropout, too. */
LOOP_TEST(the_bits_are_those_of_one_rank, 2 * sizeof ring_cases / sizeof *ring_cases)
{
    static ring_case one, parts;
    static const int ranks[] = { 3, 8, 2, 4, 5 };
    const size_t from = SLOWER > 1 ? _i % 2 : 0,
                 to = SLOWER > 1 ? from + 1 : sizeof ranks / sizeof *ranks;
    one = ring_cases[_i / 2];
    one.dtype = EG_F32, one.dropout = _i % 2 ? 0.25 : 0;
    parts = one;
    run(&one, 1);
    for (size_t p = from; p < to; p++) {
        run(&parts, ranks[p]);
        ck_assert_msg(same(&one, &parts, 0), "%d ranks", ranks[p]);
        ck_assert_uint_eq(one.draws[0], parts.draws[0]);
    }
}

/* Places along the last axis, where a block's strides would be those of the rank's part; and an
 * index of the scores that the output lacks. What all ranks together gave: y, lse, dq, dk, dv, and
 * of the sink, which all of them have. */
enum { PLACES_ALONG = 17 };
typedef struct along {
    const char *spec;
    int block;
    eg_dtype dtype;
    bool plain;
    double out[6][6 * PLACES_ALONG * 2];
} along;
static int along_body(void *user, const eg_ranks_table *table)
{
    along *s = user;
    enum { N = PLACES_ALONG };
    eg_ctx *own = eg_open(.threads = 1, .dtype = s->dtype, .seed = 4);
    eg_ranks *r = s->plain ? NULL : eg_ranks_open(.cx = own, .table = table);
    eg_span run[2] = { { 0, N } };
    if (r) eg_attention_positions(r, N, s->block, false, run);
    eg_tensor *x[] = { eg_normal(own, 0, 1, 2, 6, N), eg_normal(own, 0, 1, 2, 6, N),
                       eg_normal(own, 0, 1, 2, 6, N), eg_normal(own, 0, 1, 2) },
              *lse, *d[4];
    for (int t = 0; t < 3; t++) x[t] = mine(x[t], 2, 1, run);
    eg_tensor *y =
        eg_attention(s->spec, x[0], x[1], x[2], .where = "j <= i + 2", .sink = { "h", x[3] },
                     .ranks = r, .ranks_block = s->block, .lse = &lse, .weights_axes = "hij");
    eg_grad(eg_add(eg_sum(NULL, eg_sin(y)), eg_sum(NULL, eg_cos(lse))), NULL, 4, x, d);
    eg_tensor *const all[] = { y, lse, d[0], d[1], d[2] };
    for (int t = 0; t < 5 && !eg_error(own); t++) {
        eg_tensor *z = eg_cast(eg_contiguous(all[t]), EG_F64);
        const int64_t n = run[0].to - run[0].from;
        for (int64_t k = 0; n && k < eg_size(z); k++)
            s->out[t][k / n * N + run[0].from + k % n] = eg_f64(z)[k];
    }
    for (int k = 0; k < 2 && !table->rank && !eg_error(own); k++) s->out[5][k] = eg_get(d[3], k);
    const bool bad = eg_error(own) != NULL;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}
LOOP_TEST(positions_along_the_last_axis, 12)
{
    static const char *const specs[] = { "hdi,hdj,hej->ehi", "hdi,hdj,hej->hei",
                                         "hdi,hdj,hej->ei" };
    static const int blocks[] = { 1, 2, 7, 13 };
    static along whole, one, parts;
    for (int type = EG_F32; type <= EG_F64; type++) {
        one = (along){ .spec = specs[_i % 3], .block = blocks[_i / 3], .dtype = (eg_dtype)type };
        whole = one;
        whole.plain = true;
        ck_assert_msg(!eg_ranks_simulate(cx, 1, along_body, &whole), "%s", eg_error(cx));
        ck_assert_msg(!eg_ranks_simulate(cx, 1, along_body, &one), "%s", eg_error(cx));
        const double tolerance = type == EG_F64 ? 1e-12 : 1e-4;
        for (int t = 0; t < 6; t++)
            for (int k = 0; k < 6 * PLACES_ALONG * 2; k++)
                ck_assert_double_eq_tol(whole.out[t][k], one.out[t][k], tolerance);
        for (int p = 2; p <= 5; p += SLOWER > 1 ? 3 : 1) {
            parts = (along){ .spec = one.spec, .block = one.block, .dtype = one.dtype };
            ck_assert_msg(!eg_ranks_simulate(cx, p, along_body, &parts), "%s", eg_error(cx));
            for (int t = 0; t < 6; t++)
                ck_assert_msg(!memcmp(one.out[t], parts.out[t], sizeof one.out[t]), "%d ranks, %d",
                              p, t);
        }
    }
}

/* A sink with the query's index: a rank has the part of its own queries, whose gradient is a sum
 * over 21 heads. */
enum { OWN_SINKS = 17 };
typedef struct own_sinks {
    bool plain;
    double d[OWN_SINKS];
} own_sinks;
static int own_sinks_body(void *user, const eg_ranks_table *table)
{
    own_sinks *s = user;
    eg_ctx *own = eg_open(.threads = 1, .seed = 9);
    eg_ranks *r = s->plain ? NULL : eg_ranks_open(.cx = own, .table = table);
    eg_span run[2] = { { 0, OWN_SINKS } };
    const int runs = r ? eg_attention_positions(r, OWN_SINKS, 3, true, run) : 1;
    eg_tensor *x[3], *z = mine(eg_normal(own, 0, 1, OWN_SINKS), 0, runs, run), *d;
    for (int t = 0; t < 3; t++) x[t] = mine(eg_normal(own, 0, 1, 7, 3, 4, OWN_SINKS), 3, runs, run);
    eg_tensor *y = eg_attention("ghdi,ghdj,ghej->ghei", x[0], x[1], x[2], .sink = { "i", z },
                                .ranks = r, .ranks_block = 3, .zigzag = true);
    eg_grad(eg_sum(NULL, eg_sin(y)), NULL, 1, &z, &d);
    int at = 0;
    for (int k = 0; k < runs && !eg_error(own); k++)
        for (int64_t i = run[k].from; i < run[k].to; i++) s->d[i] = eg_get(d, at++);
    const bool bad = eg_error(own) != NULL;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}
TEST(the_gradient_of_a_sink_of_own_queries_has_the_same_bits)
{
    own_sinks whole = { .plain = true }, one = { 0 };
    ck_assert_msg(!eg_ranks_simulate(cx, 1, own_sinks_body, &whole), "%s", eg_error(cx));
    ck_assert_msg(!eg_ranks_simulate(cx, 1, own_sinks_body, &one), "%s", eg_error(cx));
    for (int i = 0; i < OWN_SINKS; i++) ck_assert_double_eq_tol(whole.d[i], one.d[i], 1e-5);
    for (int p = 2; p <= 7; p++) {
        own_sinks parts = { 0 };
        ck_assert_msg(!eg_ranks_simulate(cx, p, own_sinks_body, &parts), "%s", eg_error(cx));
        ck_assert_msg(!memcmp(one.d, parts.d, sizeof one.d), "%d ranks", p);
    }
}

/* A row shares its weight among its scores of ∞, wherever their blocks are, and with a sink of ∞.
 */
static const ring_case infinite[] = {
    { .length = 20, .block = 3, .bias = true },
    { .where = "j <= i", .length = 19, .block = 4, .bias = true, .zigzag = true, .dropout = 0.25 },
    { .where = "j != i", .length = 20, .block = 2, .bias = true, .sink = true, .lengths = true },
    { .where = "j <= i", .length = 17, .block = 1, .bias = true, .sink = true, .alibi = true },
};
LOOP_TEST(infinite_scores_are_those_of_the_whole_length, sizeof infinite / sizeof *infinite)
{
    static ring_case whole, one, parts;
    whole = infinite[_i];
    whole.infinite = true, whole.dtype = EG_F64;
    one = parts = whole;
    whole.plain = true, whole.dropout = parts.dropout = 0;
    run(&whole, 1);
    run(&parts, 3);
    int rows = 0;
    for (int k = 0; k < B * H * whole.length; k++) rows += isinf(whole.lse[k]) && whole.lse[k] > 0;
    ck_assert_int_gt(rows, 10);
    ck_assert(same(&whole, &parts, 1e-12));
    one.dtype = EG_F32;
    parts = one;
    run(&one, 1);
    for (int ranks = 2; ranks <= 5; ranks++) {
        run(&parts, ranks);
        ck_assert_msg(same(&one, &parts, 0), "%d ranks", ranks);
    }
}

/* Copies have the bits of each alone, also with a sink (_i & 1), and where only the last two have
 * scores of ∞, in other rows (_i & 2). */
LOOP_TEST(copies_are_those_alone, 4)
{
    enum { COPIES = 3, N = 6 };
    eg_ranks *r = eg_ranks_open(.cx = cx);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    eg_tensor *all[4], *z = _i & 1 ? eg_normal(cx, 0, 1, 2) : NULL, *d[2][3], *y[2];
    for (int k = 0; k < 3; k++) all[k] = eg_normal(cx, 0, 1, COPIES, N, 2, 4);
    all[3] = eg_normal(cx, 0, 1, COPIES, 2, N, N);
    const int of = 2 * N * N, at[] = { of + 1, of + 4, of + 9, 2 * of + 7, 2 * of + 20 };
    for (size_t k = 0; k < sizeof at / sizeof *at && _i & 2; k++)
        eg_mut_f32(all[3])[at[k]] = INFINITY;
    for (int k = -1; k < COPIES; k++) { /* −1: all together */
        eg_tensor *x[4];
        const int t = k >= 0;
        for (int i = 0; i < 4; i++)
            x[i] = t ? eg_select_axis(all[i], 0, k) : eg_copies_unstack(c, all[i]);
        y[t] = eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .bias = { "hij", x[3] },
                            .sink = { z ? "h" : NULL, z }, .ranks = r, .ranks_block = 2);
        eg_tensor *loss = eg_sum(NULL, eg_tanh(y[t]));
        eg_grad(t ? loss : eg_sum(NULL, eg_copies_stack(loss)), NULL, 3, x, d[t]);
        ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
        for (int i = 0; i < 3 && t; i++) ck_assert(same_bits(eg_copy_at(d[0][i], k), d[1][i]));
        if (t) ck_assert(same_bits(eg_copy_at(y[0], k), y[1]));
    }
    eg_ranks_close(r);
}

/* Second and third order compared with the complete length in f64, and with the bits of one rank in
 * f32. */
LOOP_TEST(gradients_of_gradients_are_those_of_one_rank, 2 * sizeof ring_cases / sizeof *ring_cases)
{
    static ring_case whole, one, parts;
    whole = ring_cases[_i / 2];
    whole.dtype = EG_F64, whole.more = 1 + _i % 2, whole.plain = true;
    parts = whole;
    parts.plain = false;
    run(&whole, 1);
    run(&parts, 3);
    double size = 0;
    for (int k = 0; k < ROOM; k++) size = fmax(size, fabs(whole.dq[k]));
    ck_assert(size > 0);
    ck_assert(same(&whole, &parts, 1e-10 * fmax(size, 1)));
    one = parts;
    one.dtype = EG_F32;
    parts = one;
    run(&one, 1);
    for (int ranks = SLOWER > 1 ? 4 : 2; ranks <= 4; ranks += 2) {
        run(&parts, ranks);
        ck_assert_msg(same(&one, &parts, 0), "%d ranks", ranks);
    }
}

#if !EG_DEBUG_ALLOC /* this tests an operation at its first use, also over the ranks */
/* A call sends 8 bytes when it is bound, before each turn and at its end to agree that there is no
 * error, and 16 for its lengths; the keys and values of a rank are sent P − 1 times. Backward they
 * are sent again, and dk and dv of each rank are sent back, with a byte for each block of keys and
 * each run of queries. */
LOOP_TEST(bytes_are_those_of_the_formula, 3)
{
    static ring_case s;
    const uint64_t p = 2u << _i, share = 64 / p * B * H * (D + E) * 4, others = p - 1;
    s = (ring_case){
        .where = "j <= i", .length = 64, .block = (int64_t)(32 / p), .zigzag = true, .dtype = EG_F32
    };
    run(&s, (int)p);
    for (uint64_t k = 0; k < p; k++) {
        ck_assert_uint_eq(s.forward[k], others * (share + 8 * (p + 3) + 16));
        ck_assert_uint_eq(s.backward[k], others * (2 * share + 8 * (4 * p - 1) + 4));
    }
    s.zigzag = false, s.where = NULL;
    run(&s, (int)p);
    for (uint64_t k = 0; k < p; k++)
        ck_assert_uint_eq(s.backward[k], others * (2 * share + 8 * (4 * p - 1) + 2));
}
#endif

/* -- what is refused --------------------------------------------------------------------------- */
TEST(what_ranks_cannot_do_is_refused)
{
    eg_ranks *r = eg_ranks_open(.cx = cx);
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 6, 2, 4), *w;
#define REFUSED(text, call)                                                            \
    do {                                                                               \
        (void)(call);                                                                  \
        ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), text), "%s", eg_error(cx)); \
        eg_clear(cx);                                                                  \
    } while (0)
#define RING(spec, ...) eg_attention(spec, x, x, x, .ranks = r, .ranks_block = 2, __VA_ARGS__)
    static const char spec[] = "bihd,bjhd,bjhe->bihe";
    REFUSED(".weights is not supported with a divided sequence", RING(spec, .weights = &w));
    REFUSED(".no_softmax is not supported", RING(spec, .no_softmax = true));
    REFUSED("attention: .offset is -2, but it is the number of positions before the first query",
            RING(spec, .where = "j <= i", .offset = -2));
    REFUSED("neither groups, nor 1, nor an ellipsis",
            RING("...ihd,...jhd,...jhe->...ihe", .scale = 1));
    REFUSED("exactly one index of the query alone can be divided",
            RING("bihd,bjkd,bjke->bihe", .where = "j <= i"));
    REFUSED(".sink has 'j', the index of the keys", RING(spec, .sink = { "j", eg_ones(cx, 6) }));
    REFUSED("index 'd'", eg_attention(spec, x, eg_ones(cx, 1, 6, 2, 3), x, .ranks = r));
    eg_ctx *other = eg_open();
    eg_ranks *elsewhere = eg_ranks_open(.cx = other);
    REFUSED("belongs to another context", eg_attention(spec, x, x, x, .ranks = elsewhere));
    eg_ranks_close(elsewhere);
    eg_close(other);
    eg_ranks_close(r);
}
TEST(sinks_may_be_infinite) /* ∞ takes all the weight, −∞ none */
{
    static const double z[] = { INFINITY, -INFINITY };
    eg_ranks *r = eg_ranks_open(.cx = cx);
    eg_tensor *x = eg_normal(cx, 0, 1, 6, 2, 4), *sink = eg_cast(eg_from(cx, z, 2), EG_F32),
              *lse[2], *d[2], *y[2];
    for (int k = 0; k < 2; k++) { /* the first two rows have no keys */
        y[k] = eg_attention("ihd,jhd,jhe->ihe", x, x, x, .where = "j < i - 1", .ranks = r,
                            .ranks_block = 2, .sink = { k ? "h" : NULL, k ? sink : NULL },
                            .lse = &lse[k]);
        eg_grad(eg_sum(NULL, eg_square(y[k])), NULL, 1, &x, &d[k]);
    }
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    for (int e = 0; e < 48; e++) {
        const bool all = e / 4 % 2 == 0;
        ck_assert_float_eq_tol(eg_f32(y[1])[e], all ? 0 : eg_f32(y[0])[e], 1e-6);
        ck_assert_float_eq_tol(eg_f32(d[1])[e], all ? 0 : eg_f32(d[0])[e], 1e-5);
    }
    for (int e = 0; e < 12; e++) {
        const float want = e % 2 ? eg_f32(lse[0])[e] : INFINITY, got = eg_f32(lse[1])[e];
        ck_assert(want == got || fabsf(want - got) < 1e-5f);
    }
    eg_ranks_close(r);
}
static eg_tensor *twice(eg_tensor *y, eg_tensor *x)
{
    eg_tensor *d, *dd;
    eg_grad(eg_sum(NULL, eg_square(y)), NULL, 1, &x, &d);
    eg_grad(eg_sum(NULL, eg_square(d)), NULL, 1, &x, &dd);
    return dd;
}
TEST(a_second_gradient_with_dropout_is_refused)
{
    eg_ranks *r = eg_ranks_open(.cx = cx);
    eg_tensor *x = eg_normal(cx, 0, 1, 6, 4);
    for (int on = 0; on < 2; on++) {
        twice(eg_attention("id,jd,je->ie", x, x, x, .ranks = r, .ranks_block = 2,
                           .dropout = 0.5 * on),
              x);
        ck_assert_msg(!on == !eg_error(cx), "%s", eg_error(cx));
    }
    ck_assert(strstr(eg_error(cx), "with .dropout there are gradients of the first order only"));
    eg_clear(cx);
    eg_ranks_close(r);
}
static int uneven_body(void *user, const eg_ranks_table *table)
{
    char(*message)[256] = user;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_tensor *x = eg_normal(own, 0, 1, table->rank ? 5 : 4, 2);
    eg_attention("id,jd,je->ie", x, x, x, .ranks = r, .ranks_block = 2);
    return end_rank(message[table->rank], own, r);
}
TEST(other_positions_than_its_own_are_refused_on_every_rank)
{
    char message[3][256] = { "" };
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, uneven_body, message), 0);
    for (int k = 0; k < 3; k++) /* 14 positions are 7 blocks: 2, 2 and 3 */
        ck_assert_msg(strstr(message[k], "rank 1 has 5 positions of index 'i', but "
                                         "eg_attention_positions gives it 4 of 14 in blocks of 2"),
                      "%s", message[k]);
}
/* Rank 1 of 2 has one option that differs. */
static const struct {
    const char *message;
    eg_attention_args o[2];
    int64_t width[2];
} unlike[] = {
    { "rank 0 has .ranks_block 4, but rank 1 has .ranks_block 2",
      { { .ranks_block = 4 }, { .ranks_block = 2 } },
      { 2, 2 } },
    { "rank 0 has .zigzag 0, but rank 1 has .zigzag 1",
      { { .ranks_block = 2 }, { .ranks_block = 2, .zigzag = true } },
      { 2, 2 } },
    { "rank 0 has .where j <= i, but rank 1 has .where none",
      { { .where = "j <= i" }, { .where = NULL } },
      { 2, 2 } },
    { "rank 0 has .score max(score; 1), but rank 1 has .score max(score; 2)",
      { { .score = "max(score, 1)" }, { .score = "max(score, 2)" } },
      { 2, 2 } },
    { "rank 0 has .dropout 0.5, but rank 1 has .dropout 0.25",
      { { .dropout = 0.5 }, { .dropout = 0.25 } },
      { 2, 2 } },
    { "rank 0 has query of * 2, but rank 1 has query of * 3",
      { { .scale = 1 }, { .scale = 1 } },
      { 2, 3 } },
};
typedef struct unlike_call {
    int kind;
    char message[2][256];
} unlike_call;
static int unlike_body(void *user, const eg_ranks_table *table)
{
    unlike_call *c = user;
    const int me = table->rank;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_attention_args o = unlike[c->kind].o[me];
    o.size = sizeof o, o.spec = "id,jd,je->ie", o.ranks = r;
    if (!o.ranks_block) o.ranks_block = 4;
    o.q = o.k = o.v = eg_normal(own, 0, 1, 4, unlike[c->kind].width[me]);
    eg_train(own);
    eg_attention_with(&o);
    return end_rank(c->message[me], own, r);
}
LOOP_TEST(options_that_differ_are_refused_on_every_rank, sizeof unlike / sizeof *unlike)
{
    unlike_call c = { .kind = _i };
    ck_assert_int_eq(eg_ranks_simulate(cx, 2, unlike_body, &c), 0);
    for (int k = 0; k < 2; k++)
        ck_assert_msg(strstr(c.message[k], unlike[_i].message) != NULL, "rank %d: \"%s\"", k,
                      c.message[k]);
}
static int extreme_body(void *user, const eg_ranks_table *table)
{
    char(*message)[256] = user;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    /* a block longer than the sequence: the last rank has all of it */
    const int64_t mine = table->rank == 2 ? 5 : 0;
    if (eg_attention_length(r, mine, INT64_MAX, false) != 5 || eg_error(own))
        snprintf(message[table->rank], sizeof *message, "a block of INT64_MAX: %s", eg_error(own));
    else if (eg_attention_length(r, INT64_MAX / 2, 2, false) != -1)
        snprintf(message[table->rank], sizeof *message, "a sum that overflows is not refused");
    else
        snprintf(message[table->rank], sizeof *message, "%s", eg_error(own));
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
TEST(lengths_that_would_overflow_are_refused_on_every_rank)
{
    char message[3][256] = { "" };
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, extreme_body, message), 0);
    for (int k = 0; k < 3; k++)
        ck_assert_msg(strstr(message[k], "the number of positions is 4611686018427387903"), "%s",
                      message[k]);
}

/* Memory runs out on one rank. */
typedef struct shortage {
    int bad_rank, left; /* number of allocations that succeed there */
    bool forward;       /* in the forward pass too, else in the gradient alone */
    bool message[3];    /* an error, by rank */
} shortage;
static int shortage_body(void *user, const eg_ranks_table *table)
{
    shortage *s = user;
    const int me = table->rank;
    int left = INT_MAX; /* number of allocations that succeed */
    eg_ctx *own = eg_open(.threads = 1, .realloc = failing, .user = &left);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_tensor *q = eg_normal(own, 0, 1, 4, 2), *k = eg_normal(own, 0, 1, 4, 2),
              *v = eg_normal(own, 0, 1, 4, 2), *d[3];
    if (s->forward && me == s->bad_rank) left = s->left;
    eg_tensor *y = eg_attention("id,jd,je->ie", q, k, v, .where = "j <= i", .ranks = r,
                                .ranks_block = 2, .zigzag = true);
    if (!s->forward && me == s->bad_rank) left = s->left;
    eg_grad(y, eg_ok(y) ? v : NULL, 3, (eg_tensor *[]){ q, k, v }, d);
    left = INT_MAX;
    s->message[me] = eg_error(own) != NULL;
    eg_ranks_close(r);
    eg_close(own);
    return s->message[me];
}
/* No rank waits for ever for one whose memory ran out, at whichever allocation. */
LOOP_TEST(memory_that_ends_on_one_rank_ends_the_call, 6)
{
    int failed = 0;
    bool more = true;
    for (int n = 0; more; n += n < 30 ? 1 : n / 4) {
        shortage s = { .bad_rank = _i % 3, .left = n, .forward = _i < 3 };
        eg_ranks_simulate(cx, 3, shortage_body, &s);
        eg_clear(cx);
        more = s.message[0] || s.message[1] || s.message[2];
        ck_assert_msg(!more || s.message[s.bad_rank], "%d: an error, but not on rank %d", n,
                      s.bad_rank);
        failed += more;
    }
    ck_assert_int_gt(failed, 6); /* the gradient computes in memory of the forward pass */
}

#if !EG_DEBUG_ALLOC
/* An error of one rank inside of a call, or before it, is an error of all, and after eg_clear the
 * group computes the same bits as before. */
typedef struct alone {
    int what, left; /* what happens on rank 1; number of allocations that succeed there */
    uint64_t first[3], later[3]; /* hashes of results, by rank */
    char message[3][300];
} alone;
enum { ALONE = 5 };
static int alone_body(void *user, const eg_ranks_table *table)
{
    alone *s = user;
    const int me = table->rank;
    int left = INT_MAX; /* number of allocations that succeed */
    eg_ctx *own = eg_open(.threads = 1, .realloc = failing, .user = &left);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    for (int turn = 0; turn < 3; turn++) {
        const bool now = turn == 1 && me == 1;
        const eg_mark m = eg_push(own);
        const int64_t n = turn == 1 ? 20 : 4, e = turn == 1 ? 8000 : 2; /* needs new memory */
        eg_set_draws(own, 0);
        eg_tensor *q = eg_normal(own, 0, 1, n, 2), *k = eg_normal(own, 0, 1, n, 2),
                  *v = eg_normal(own, 0, 1, n, e), *y;
        if (now && s->what == 2) eg_fail(own, "an error before the call");
        if (now && s->what < 2) left = s->left;
        if (s->what == 1)
            y = eg_ranks_sum(r, v);
        else
            y = eg_attention("id,jd,je->ie", q, now && s->what == 3 ? NULL : k, v,
                             .where = "j <= i", .ranks = r, .ranks_block = n / 2, .zigzag = true,
                             .no_softmax = now && s->what == 4);
        left = INT_MAX;
        if (eg_ranks_barrier(r) && turn == 1)
            snprintf(s->message[me], sizeof s->message[me], "%s", eg_error(own));
        if (turn == 1) eg_clear(own);
        if (turn != 1 && eg_ok(y))
            (turn ? s->later : s->first)[me] = eg_hash(EG_HASH_START, eg_f32(y), 8 * sizeof(float));
        eg_pop(own, m);
    }
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
LOOP_TEST(after_an_error_of_one_rank_the_group_goes_on, ALONE)
{
    int failed = 0;
    bool more = true;
    for (int n = 0; more; n++) {
        alone s = { .what = _i, .left = n };
        ck_assert_int_eq(eg_ranks_simulate(cx, 3, alone_body, &s), 0);
        more = _i < 2 && *s.message[1];
        failed += *s.message[1] != 0;
        for (int k = 0; k < 3; k++) {
            const char *text = s.message[k];
            ck_assert_msg(s.first[k] && s.first[k] == s.later[k], "%d: other bits on rank %d", n,
                          k);
            ck_assert_msg(!*s.message[1] == !*text, "%d: rank %d has '%s'", n, k, text);
            ck_assert_msg(k == 1 || !*text || strstr(text, "rank 1: "), "%d: %s", n, text);
        }
    }
    ck_assert_int_gt(failed, 0);
}
#endif

/* -- 2-D tiles, which the library does not have: what they would send -------------------------- */
/* Ranks form `rows` rows of `columns`. A rank gathers the queries of its row and the keys and
 * values of its column, and computes (o, lse) for these; the parts of its own queries are sent back
 * to it along the row, and merged. */
typedef struct grid {
    int rows, columns;
    uint64_t sent[16];
    double far; /* difference from attention of the complete length */
    char message[256];
} grid;
enum { PLACES = 32, HEADS = 2, WIDTH = 3 };
/* Sends `mine` to the ranks of a line, those with numbers first + k step, and returns theirs, in
 * their order. */
static eg_tensor *line(eg_ranks *r, eg_tensor *mine, int first, int step, int n)
{
    eg_tensor *part[16];
    const int at = (eg_ranks_rank(r) - first) / step;
    const size_t bytes = (size_t)eg_size(mine) * sizeof(double);
    part[at] = mine;
    for (int s = 1; s < n; s++) {
        const int to = (at + s) % n, from = (at + n - s) % n;
        part[from] = eg_copy(mine);
        eg_ranks_exchange(r, first + to * step, eg_f64(mine), bytes, first + from * step,
                          eg_mut_f64(part[from]), bytes);
    }
    return n > 1 ? eg_concat_axis_n(0, n, part) : mine;
}
static int grid_body(void *user, const eg_ranks_table *table)
{
    static const char spec[] = "ihd,jhd,jhe->ihe";
    grid *g = user;
    const int me = table->rank, ranks = table->ranks, b = g->columns, row = me / b, column = me % b;
    const int64_t n = PLACES / ranks, at = n * me;
    eg_ctx *own = eg_open(.threads = 1, .dtype = EG_F64, .seed = 2);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_tensor *q = eg_normal(own, 0, 1, PLACES, HEADS, WIDTH), *part[2][16] = { { NULL } },
              *k = eg_normal(own, 0, 1, PLACES, HEADS, WIDTH), *lse,
              *v = eg_normal(own, 0, 1, PLACES, HEADS, WIDTH);
    eg_tensor *whole = eg_slice_axis(eg_attention(spec, q, k, v), 0, at, at + n, 1);
    eg_nograd(own, true);
    const uint64_t before = eg_ranks_traffic(r).sent;
    eg_tensor *mine[] = { eg_copy(eg_slice_axis(q, 0, at, at + n, 1)),
                          eg_copy(eg_slice_axis(k, 0, at, at + n, 1)),
                          eg_copy(eg_slice_axis(v, 0, at, at + n, 1)) };
    eg_tensor *o =
        eg_attention(spec, line(r, mine[0], row * b, 1, b), line(r, mine[1], column, b, g->rows),
                     line(r, mine[2], column, b, g->rows), .lse = &lse);
    for (int s = 0; s < b; s++) {
        const int to = (column + s) % b, from = (column + b - s) % b;
        eg_tensor *x[] = { o, lse };
        for (int t = 0; t < 2; t++) {
            eg_tensor *out = eg_copy(eg_slice_axis(x[t], 0, n * to, n * (to + 1), 1)),
                      *in = eg_copy(out);
            const size_t bytes = (size_t)eg_size(out) * sizeof(double);
            if (s)
                eg_ranks_exchange(r, row * b + to, eg_f64(out), bytes, row * b + from,
                                  eg_mut_f64(in), bytes);
            part[t][from] = in;
        }
    }
    eg_tensor *y = part[0][0], *l = part[1][0];
    for (int c = 1; c < b; c++) {
        eg_tensor *all = eg_logaddexp(l, part[1][c]);
        y = eg_add(eg_einsum("ihd,ih->ihd", y, eg_exp(eg_sub(l, all))),
                   eg_einsum("ihd,ih->ihd", part[0][c], eg_exp(eg_sub(part[1][c], all))));
        l = all;
    }
    g->sent[me] = eg_ranks_traffic(r).sent - before;
    const double far = eg_item(eg_max("[i h d]", eg_abs(eg_sub(y, whole))));
    if (!(far < 1e-12) || eg_error(own))
        snprintf(g->message, sizeof g->message, "rank %d: %g %s", me, far,
                 eg_error(own) ? eg_error(own) : "");
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
/* nd/P words for each of the other ranks of the row, twice, and of the column, twice, and a
 * log-sum-exp for each query and head: 4 nd (√P − 1)/P if there are as many rows as columns. */
LOOP_TEST(tiles_would_send_the_bytes_of_the_formula, 5)
{
    static const int rows[] = { 1, 2, 2, 4, 8 }, columns[] = { 2, 2, 4, 4, 1 };
    grid g = { .rows = rows[_i], .columns = columns[_i] };
    const int p = g.rows * g.columns;
    ck_assert_int_eq(eg_ranks_simulate(cx, p, grid_body, &g), 0);
    ck_assert_msg(!g.message[0], "%s", g.message);
    const int words = PLACES * HEADS * WIDTH / p * (2 * (g.rows - 1) + 2 * (g.columns - 1)) +
                      PLACES * HEADS / p * (g.columns - 1);
    for (int k = 0; k < p; k++) ck_assert_uint_eq(g.sent[k], (uint64_t)(8 * words));
}

/* -- names of any length: the strings of a call are made of them ------------------------------- */
typedef struct long_names {
    int length;
    char message[256];
} long_names;
static int long_names_body(void *user, const eg_ranks_table *table)
{
    enum { LONGEST = 3000, N = 6 };
    long_names *s = user;
    eg_ctx *own = eg_open(.threads = 1, .dtype = EG_F64, .seed = 2);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    char *head = eg_scope_alloc(own, LONGEST + 1), *spec = eg_scope_alloc(own, 5 * LONGEST);
    if (!head || !spec) return -1;
    memset(head, 'h', (size_t)s->length);
    snprintf(spec, 5 * LONGEST, "names: b i %s d, b j %s d, b j %s e -> b i %s e", head, head, head,
             head);
    eg_span run[2];
    const int runs = eg_attention_positions(r, N, 1, false, run);
    eg_tensor *q = eg_normal(own, 0, 1, 2, N, 3, 4), *k = eg_normal(own, 0, 1, 2, N, 3, 4),
              *v = eg_normal(own, 0, 1, 2, N, 3, 5), *slope = eg_alibi_slopes(own, 3);
    eg_tensor *whole = eg_attention(spec, q, k, v, .alibi = { head, slope }),
              *y = eg_attention(spec, mine(q, 1, runs, run), mine(k, 1, runs, run),
                                mine(v, 1, runs, run), .alibi = { head, slope }, .ranks = r,
                                .ranks_block = 1);
    const double most = eg_item(eg_max(NULL, eg_abs(eg_sub(y, mine(whole, 1, runs, run)))));
    if (!(most < 1e-12) || eg_error(own))
        snprintf(s->message, sizeof s->message, "%g %.200s", most,
                 eg_error(own) ? eg_error(own) : "");
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
LOOP_TEST(names_may_have_any_length, 4)
{
    static const int lengths[] = { 4, 120, 600, 3000 };
    for (int ranks = 1; ranks < 4; ranks += 2) {
        long_names s = { .length = lengths[_i] };
        ck_assert_msg(!eg_ranks_simulate(cx, ranks, long_names_body, &s), "%s", eg_error(cx));
        ck_assert_msg(!s.message[0], "%d ranks: %s", ranks, s.message);
    }
}
