/* test_linear.c: linear attention. Every kernel, decay and chunk compared with the sum over all
 * pairs, values and gradients; step by step compared with one call. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 23); }
static void close_cx(void) { eg_close(cx); }

/* -- the definition ---------------------------------------------------------------------------- */
/* Π_{j<s≤i} a_s for j ≤ i, else 0, of a (b j h d) > 0: e^(sum of logarithms) */
static eg_tensor *decays(eg_tensor *a)
{
    eg_tensor *l = eg_cumsum("b [j] h d", eg_log(a));
    eg_tensor *i = eg_rearrange("b i h d -> b h i 1 d", l),
              *j = eg_rearrange("b j h d -> b h 1 j d", l);
    const int64_t n = eg_dim(a, 1), sizes[] = { n, n };
    eg_tensor *seen = eg_where_mask(cx, "j <= i", "i [j]", 0, sizes);
    eg_tensor *zero = eg_zeros(cx, 1);
    eg_tensor *wide = eg_unsqueeze(seen, 2);
    return eg_where(wide, eg_exp(eg_where(wide, eg_sub(i, j), zero)), zero);
}
/* y of φ(q), φ(k) and v, for the last `queries` of as many positions as there are keys */
static eg_tensor *by_pairs(eg_tensor *q, eg_tensor *k, eg_tensor *v, eg_tensor *a, bool no_norm,
                           eg_tensor **w)
{
    eg_tensor *p = decays(a);
    p = eg_slice_axis(p, 2, eg_dim(k, 1) - eg_dim(q, 1), EG_END, 1);
    eg_tensor *s = eg_einsum("bihd,bhijd->bhijd", q, p);
    s = eg_einsum("bhijd,bjhd->bhij", s, k);
    if (!no_norm) s = eg_on("bhij,bhi", eg_div, s, eg_sum("bhi[j]", s));
    *w = s;
    return eg_einsum("bhij,bjhe->bihe", s, v);
}

static const char *const letters[] = { "h", "bjh", "bjhd", "hd", "j", "", "d", "hjdb" };
enum { DECAYS = sizeof letters / sizeof *letters };
/* A decay with those letters, and the same as (b j h d). */
static eg_tensor *a_decay(const char *axes, int64_t n, eg_tensor **full)
{
    const int64_t size[] = { 2, n, 2, 3 };
    int64_t dims[4];
    int rank = 0;
    for (const char *c = axes; *c; c++) dims[rank++] = size[strchr("bjhd", *c) - "bjhd"];
    eg_tensor *x = eg_uniform_n(cx, EG_F64, 0.3, 1, rank, dims);
    char text[32];
    snprintf(text, sizeof text, "bjhd, %s", axes);
    eg_tensor *out[] = { eg_full_n(cx, EG_F64, 1, 4, size), x };
    ck_assert_int_eq(eg_align_n(text, 2, out, out), 0);
    *full = out[1];
    return x;
}

GROUP("linear", .setup = open_f64, .teardown = close_cx)

/* every set of letters; lengths below, at and above a chunk; with older keys */
LOOP_TEST(decay_is_its_definition, DECAYS * 6)
{
    static const struct {
        int64_t queries, keys, chunk;
        bool no_norm;
    } cases[] = { { 5, 5, 0, false },  { 70, 70, 0, true }, { 33, 33, 16, false },
                  { 20, 20, 1, true }, { 9, 30, 7, false }, { 1, 1, 0, false } };
    const char *axes = letters[_i / 6];
    const int64_t n = cases[_i % 6].queries, l = cases[_i % 6].keys;
    eg_tensor *q = eg_normal(cx, 0, 1, 2, n, 2, 3), *k = eg_normal(cx, 0, 1, 2, l, 2, 3),
              *v = eg_normal(cx, 0, 1, 2, l, 2, 4), *full, *a = a_decay(axes, l, &full), *w, *want;
    eg_tensor *y = eg_linear_attention(
        "bihd,bjhd,bjhe->bihe", q, k, v, .where = "j <= i", .offset = l - n, .phi = "exp(x)",
        .decay = { axes, a }, .chunk = cases[_i % 6].chunk, .no_norm = cases[_i % 6].no_norm,
        .weights = &w, .weights_axes = "bhij");
    eg_tensor *z = by_pairs(eg_exp(q), eg_exp(k), v, full, cases[_i % 6].no_norm, &want);
    eg_assert_ok(cx);
    eg_assert_close(y, z, 1e-12);
    eg_assert_close(eg_contiguous(w), want, 1e-12);
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, n, 2, 4), *xs[] = { q, k, v, a }, *one[4], *two[4];
    ck_assert(!eg_grad(y, seed, 4, xs, one) && !eg_grad(z, seed, 4, xs, two));
    for (int x = 0; x < 4; x++) eg_assert_close(one[x], two[x], 1e-10);
    /* another order of axes */
    eg_tensor *moved = eg_linear_attention(
        "ibhd,jbhd,ejbh->hibe", eg_transpose(q, 0, 1), eg_transpose(k, 0, 1),
        eg_rearrange("b j h e -> e j b h", v), .where = "j<=i", .offset = l - n, .phi = "exp(x)",
        .decay = { axes, a }, .chunk = cases[_i % 6].chunk, .no_norm = cases[_i % 6].no_norm);
    eg_assert_close(eg_rearrange("h i b e -> b i h e", moved), y, 1e-12);
}

/* a decay of 0 removes everything before; a decay of 1 nothing */
LOOP_TEST(decays_of_nothing_and_everything, 2)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 40, 1, 3), *v = eg_normal(cx, 0, 1, 1, 40, 1, 2),
              *a = eg_ones(cx, 40), *g;
    if (_i) eg_assign(eg_slice_axis(a, 0, 20, 21, 1), eg_zeros(cx, 1));
    eg_tensor *y = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, q, v, .where = "j <= i",
                                       .decay = { "j", a }, .chunk = 8),
              *plain = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, q, v, .where = "j <= i");
    eg_assert_close(eg_slice_axis(y, 1, 0, 20, 1), eg_slice_axis(plain, 1, 0, 20, 1), 1e-12);
    eg_tensor *late = eg_slice_axis(q, 1, 20, 40, 1),
              *alone = eg_linear_attention("bihd,bjhd,bjhe->bihe", late, late,
                                           eg_slice_axis(v, 1, 20, 40, 1), .where = "j <= i");
    eg_assert_close(eg_slice_axis(y, 1, 20, 40, 1), _i ? alone : eg_slice_axis(plain, 1, 20, 40, 1),
                    1e-12);
    ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 1, &a, &g), 0);
    ck_assert(!any_nan(g));
}

/* The results of a query have the same bits whatever the keys after it are, and its gradients are
 * as accurate as those of the sum over all pairs where φ(k) grows by 10^17: without a decay, with
 * one, and after older keys. */
LOOP_TEST(later_keys_change_no_bit, 3)
{
    enum { AT = 21 };
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 40, 2, 3), *k = eg_normal(cx, 0, 1, 1, 40, 2, 3),
              *v = eg_normal(cx, 0, 1, 1, 40, 2, 2), *a = eg_full(cx, 0.9, 40), *full = NULL, *y[2],
              *w;
    const int64_t seen = _i == 2 ? 3 : 0;
    if (seen) q = eg_slice_axis(q, 1, 0, 40 - seen, 1);
    k = eg_expr("b j h d", "j < 21 ? x - 20 : x", .with = { { "x", k } });
    for (int n = 0; n < 2; n++) {
        eg_tensor *keys = k;
        if (n) keys = eg_expr("b j h d", "j < 21 ? x : x + 20", .with = { { "x", k } });
        y[n] = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, keys, v, .where = "j <= i",
                                   .phi = "exp(x)", .chunk = 8, .offset = seen,
                                   .decay = { _i == 1 ? "j" : NULL, _i == 1 ? a : NULL });
    }
    eg_assert_ok(cx);
    ck_assert_mem_eq(eg_f64(eg_contiguous(eg_slice_axis(y[0], 1, 0, AT - seen, 1))),
                     eg_f64(eg_contiguous(eg_slice_axis(y[1], 1, 0, AT - seen, 1))),
                     (AT - seen) * 4 * sizeof(double));
    full = eg_expand(eg_reshape(a, 1, 40, 1, 1), 1, 40, 2, 3);
    if (_i != 1) full = eg_ones_like(full);
    eg_tensor *z = by_pairs(eg_exp(q), eg_exp(k), v, full, false, &w);
    eg_tensor *seed = eg_normal(cx, 0, 1, 1, 40 - seen, 2, 2), *xs[] = { q, k, v }, *one[3],
              *two[3];
    ck_assert(!eg_grad(y[0], seed, 3, xs, one) && !eg_grad(z, seed, 3, xs, two));
    for (int x = 0; x < 3; x++) eg_assert_close(one[x], two[x], 1e-12);
}

/* φ as a text equals φ as operations; no_norm is the numerator; both with and without a mask */
LOOP_TEST(kernels_by_formula, 10)
{
    static const char *const phi[] = { "exp(x)", "softplus(x)", "x", "max(x, 0)",
                                       "x > 0 ? x + 1 : exp(x)" };
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 7, 2, 3), *k = eg_normal(cx, 0, 1, 2, 7, 2, 3),
              *v = eg_normal(cx, 0, 1, 2, 7, 2, 4), *of[2], *x[] = { q, k };
    for (int n = 0; n < 2; n++)
        of[n] = _i / 2 == 0   ? eg_exp(x[n])
                : _i / 2 == 1 ? eg_softplus(x[n])
                : _i / 2 == 2 ? x[n]
                : _i / 2 == 3 ? eg_relu(x[n])
                              : eg_shift(eg_elu(x[n], 1), 1);
    eg_tensor *s = eg_einsum("bihd,bjhd->bhij", of[0], of[1]);
    if (_i % 2) s = eg_tril(s, 0);
    eg_tensor *z = eg_einsum("bhij,bjhe->bihe", s, v);
    const char *where = _i % 2 ? "j <= i" : NULL;
    eg_tensor *y = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, v, .phi = phi[_i / 2],
                                       .no_norm = true, .where = where);
    eg_assert_close(y, z, 1e-12);
    eg_tensor *total = eg_sum("bhi[j]", s);
    if (_i / 2 != 2 && _i / 2 != 3) /* sums that are not near 0 */
        eg_assert_close(eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, v, .phi = phi[_i / 2],
                                            .where = where),
                        eg_on("bihe,bhi", eg_div, z, total), 1e-11);
    if (_i / 2 == 4)
        eg_assert_close(eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, v, .where = where),
                        eg_on("bihe,bhi", eg_div, z, total), 1e-11);
}

typedef struct called {
    const char *where, *decay;
    bool no_norm;
    int64_t chunk;
} called;
static eg_tensor *call(void *user, eg_tensor *const *x)
{
    const called *c = user;
    return eg_linear_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .phi = "exp(x)",
                               .where = c->where, .no_norm = c->no_norm, .chunk = c->chunk,
                               .decay = { c->decay, c->decay ? x[3] : NULL });
}
LOOP_TEST(every_kind_to_second_order, 6)
{
    static called kinds[] = { { NULL, NULL, true, 0 },      { "j <= i", NULL, true, 2 },
                              { "j <= i", "b", true, 2 },   { "j <= i", "bj", false, 2 },
                              { "j <= i", "bjd", true, 2 }, { "j <= i", "bjd", false, 0 } };
    called *c = &kinds[_i];
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 3, 2), *k = eg_normal(cx, 0, 1, 1, 3, 2),
              *v = eg_normal(cx, 0, 1, 1, 3, 2);
    if (!c->decay) {
        eg_assert_grad2(call, c, q, k, v);
        return;
    }
    const int64_t dims[] = { 1, 3, 2 };
    eg_assert_grad2(call, c, q, k, v,
                    eg_uniform_n(cx, EG_F64, 0.3, 1, (int)strlen(c->decay), dims));
}

/* one position with the last state is the next step; so are pieces of any length */
LOOP_TEST(linear_attention_continues_from_a_state, DECAYS + 1)
{
    const char *axes = _i < DECAYS ? letters[_i] : NULL;
    for (int kind = 0; kind < 4; kind++) {
        const bool no_norm = kind % 2;
        const eg_dtype type = kind / 2 ? EG_F32 : EG_F64;
        eg_tensor *q = eg_cast(eg_normal(cx, 0, 1, 2, 12, 2, 3), type),
                  *k = eg_cast(eg_normal(cx, 0, 1, 2, 12, 2, 3), type),
                  *v = eg_cast(eg_normal(cx, 0, 1, 2, 12, 2, 4), type), *full, *state = NULL, *end,
                  *parts[12], *a = axes ? eg_cast(a_decay(axes, 12, &full), type) : NULL;
        eg_tensor *whole =
            eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, v, .where = "j <= i",
                                .no_norm = no_norm, .decay = { axes, a }, .next = &end, .chunk = 5);
        static const int64_t ends[2][13] = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0 },
                                             { 5, 6, 12, 0 } };
        const char *place = axes ? strchr(axes, 'j') : NULL;
        for (int way = 0; way < 2; way++, state = NULL) {
            int n = 0;
            for (int64_t from = 0; ends[way][n]; from = ends[way][n++]) {
                const int64_t to = ends[way][n];
                eg_tensor *now = place ? eg_slice_axis(a, (int)(place - axes), from, to, 1) : a;
                parts[n] = eg_linear_attention(
                    "bihd,bjhd,bjhe->bihe", eg_slice_axis(q, 1, from, to, 1),
                    eg_slice_axis(k, 1, from, to, 1), eg_slice_axis(v, 1, from, to, 1),
                    .where = "j <= i", .no_norm = no_norm, .decay = { axes, now }, .state = state,
                    .next = &state);
            }
            eg_assert_ok(cx);
            eg_assert_close(eg_concat_axis_n(1, n, parts), whole, kind / 2 ? 1e-4 : 1e-12);
            eg_assert_close(eg_contiguous(state), eg_contiguous(end), kind / 2 ? 1e-4 : 1e-12);
        }
        int64_t b, h, d, e;
        eg_assert_axes("b h d e", end, &b, &h, &d, &e);
        ck_assert(b == 2 && h == 2 && d == 3 && e == (no_norm ? 4 : 5));
    }
}

/* keys that the heads share, values that they do not */
LOOP_TEST(values_of_heads_with_shared_keys, 4)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 9, 2, 3), *k = eg_normal(cx, 0, 1, 2, 9, 3),
              *v = eg_normal(cx, 0, 1, 2, 9, 2, 4), *next,
              *a = _i / 2 ? eg_uniform(cx, 0.3, 1, 9) : NULL,
              *wide = eg_expand(eg_unsqueeze(k, 2), 2, 9, 2, 3);
    eg_tensor *y = eg_linear_attention("bihd,bjd,bjhe->bihe", q, k, v, .phi = "exp(x)", .chunk = 4,
                                       .where = "j <= i", .decay = { a ? "j" : NULL, a },
                                       .no_norm = _i % 2, .next = &next),
              *z = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, wide, v, .phi = "exp(x)",
                                       .where = "j <= i", .decay = { a ? "j" : NULL, a },
                                       .no_norm = _i % 2);
    eg_assert_ok(cx);
    eg_assert_close(y, z, 1e-12);
    ck_assert_int_eq(eg_rank(next), 4);
}

/* 4096 positions with a decay of every channel: all pairs would take 1 GB */
TEST(decay_takes_linear_memory)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 4096, 1, 8), *g[2],
              *a = eg_sigmoid(eg_normal(cx, 3, 1, 1, 4096, 1, 8)), *xs[] = { q, a };
    eg_stats_reset(cx);
    size_t before = eg_stats(cx).used;
    eg_tensor *y = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, q, q, .where = "j <= i",
                                       .decay = { "bjhd", a });
    ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 2, xs, g), 0);
    ck_assert_msg(eg_stats(cx).used_peak - before < 100u << 20, "%zu bytes",
                  eg_stats(cx).used_peak - before);
}

/* chunks of 64 with decays of channels: two tensors of all pairs of a chunk and channels would take
 * 67 MB; and the same numbers as the recurrence, with decays of 0 */
LOOP_TEST(no_pairs_of_channels_in_memory, 2)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 1024, 1, 64), *k = eg_normal(cx, 0, 0.1, 1, 1024, 1, 64),
              *a = eg_relu(eg_uniform(cx, -0.01, 1, 1, 1024, 1, 64)),
              *b = eg_uniform(cx, 0, 1, 1, 1024, 1), *y[2] = { 0 };
    eg_nograd(cx, true);
    for (int n = 0; n < 2; n++) {
        eg_stats_reset(cx);
        const size_t before = eg_stats(cx).used;
        y[n] = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, q, .phi = "x", .no_norm = true,
                                   .where = "j <= i", .decay = { "bjhd", a }, .chunk = n ? 1 : 64,
                                   .beta = { _i ? "bjh" : NULL, _i ? b : NULL });
        ck_assert_msg(n || eg_stats(cx).used_peak - before < 64u << 20, "%zu bytes",
                      eg_stats(cx).used_peak - before);
    }
    eg_assert_close(y[0], y[1], 1e-12);
}

/* RetNet: a constant for each head, in groups; GLA: gates of the batch. In one call, and with a
 * cache of keys */
LOOP_TEST(decay_in_the_module, 4)
{
    eg_params *p = eg_params_open(cx);
    double gamma[] = { 0.9, 0.8, 0.95, 0.7 };
    eg_tensor *g = eg_from(cx, gamma, 4);
    const eg_linear_attention_args retnet = { .phi = "x", .no_norm = true, .decay = { "h", g } },
                                   gla = { .phi = "x", .no_norm = true };
    const bool groups = _i % 2, gates = _i / 2;
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 4, .kv_heads = groups ? 2 : 4,
                           .linear = gates ? &gla : &retnet, .rotary = 30);
    randomise(p, 0.5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8), *w, *parts[6],
              *gate = gates ? eg_sigmoid(eg_normal(cx, 2, 1, 2, 6, 4, 2)) : NULL,
              *y = eg_mha_run(m, x, .where = "j <= i", .weights = &w,
                              .decay = { gates ? "bjhd" : NULL, gate });
    eg_assert_ok(cx);
    eg_tensor *q = eg_on("bihd,hd", eg_add, eg_einsum("bim,mhd->bihd", x, m->W_q), m->b_q),
              *k = eg_on("bjhd,hd", eg_add, eg_einsum("bjm,mhd->bjhd", x, m->W_k), m->b_k),
              *v = eg_on("bjhe,he", eg_add, eg_einsum("bjm,mhe->bjhe", x, m->W_v), m->b_v), *want;
    q = eg_scale(eg_rotary("bihd,id", q, .base = 30), 1);
    k = eg_rotary("bjhd,jd", k, .base = 30);
    if (groups) {
        k = eg_rearrange("b j g d -> b j (g r=2) d", k);
        v = eg_rearrange("b j g d -> b j (g r=2) d", v);
    }
    eg_tensor *all = gates ? gate : eg_expand(eg_reshape(g, 1, 1, 4, 1), 2, 6, 4, 2),
              *z = by_pairs(q, k, v, eg_contiguous(all), true, &want);
    eg_assert_close(eg_contiguous(w), want, 1e-12);
    eg_assert_close(y, eg_on("bim,m", eg_add, eg_einsum("bihe,hem->bim", z, m->W_o), m->b_o),
                    1e-12);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    for (int t = 0; t < 6; t++)
        parts[t] = eg_mha_run(
            m, eg_slice_axis(x, 1, t, t + 1, 1), .where = "j <= i", .cache = c,
            .decay = { gates ? "bjhd" : NULL, gates ? eg_slice_axis(gate, 1, 0, t + 1, 1) : NULL });
    eg_assert_close(eg_concat_axis_n(1, 6, parts), y, 1e-12);
    eg_nograd(cx, false);
}

/* conditions on only keys or only queries, with "j <= i" and without it, with older keys: weights,
 * values and gradients compared with the sum over all pairs; what is masked may be NaN */
static const char *const wheres[] = {
    "pad[b,j]",
    "j <= i & pad[b,j]",
    "pad[b, j] & doc[b,i] != 2 & i >= j",
    "(j <= i & doc[b,j] == 1) & (h == 1 | doc[b,j] < 2)",
    "j <= i & i % 3 != 1 & b < |b|",
    "j >= |i| - 4 & h < |h|",
    "j <= i & doc[b,i] * 0 == 0 & 1 < 2",
    "b == 1 & j <= i",
    "j <= i & i > 0 & j > 0",
};
enum { WHERES = sizeof wheres / sizeof *wheres };
LOOP_TEST(conditions_on_keys_and_queries, WHERES * 3)
{
    const bool no_norm = _i % 3 == 1, late = _i % 3 == 2;
    const char *where = wheres[_i / 3];
    const int64_t l = 11, n = late ? 6 : l, sizes[] = { 2, 2, n, l };
    eg_tensor *q = eg_normal(cx, 0, 1, 2, n, 2, 3), *k = eg_normal(cx, 0, 1, 2, l, 2, 3),
              *v = eg_normal(cx, 0, 1, 2, l, 2, 4), *w,
              *doc = eg_cast(eg_uniform(cx, 0, 3, 2, l), EG_I64),
              *pad = eg_gt(eg_normal(cx, 0.5, 1, 2, l), eg_zeros(cx, 1));
    eg_linear_attention_args o = { .size = sizeof o,
                                   .spec = "bihd,bjhd,bjhe->bihe",
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .where = where,
                                   .offset = l - n,
                                   .phi = "exp(x)",
                                   .no_norm = no_norm,
                                   .weights = &w,
                                   .weights_axes = "bhij" };
    eg_where_mask_args m = { .size = sizeof m,
                             .where = where,
                             .axes = "b h i [j]",
                             .offset = l - n,
                             .offset_letter = "i",
                             .sizes = sizes };
    int given = 0;
    if (strstr(where, "pad")) o.with[given] = m.with[given] = (eg_given){ "pad", pad }, given++;
    if (strstr(where, "doc")) o.with[given] = m.with[given] = (eg_given){ "doc", doc }, given++;
    eg_tensor *y = eg_linear_attention_with(&o), *seen = eg_where_mask_with(cx, &m);
    eg_assert_ok(cx);
    eg_tensor *all = eg_einsum("bihd,bjhd->bhij", eg_exp(q), eg_exp(k));
    all = eg_where(seen, all, eg_zeros(cx, 1));
    eg_tensor *sum = eg_sum("b h i [j]", all), *none = eg_eq(sum, eg_zeros_like(sum));
    if (!no_norm) all = eg_on("bhij,bhi", eg_div, all, eg_where(none, eg_ones_like(sum), sum));
    eg_tensor *z = eg_einsum("bhij,bjhe->bihe", all, v);
    eg_assert_close(eg_contiguous(w), all, 1e-12);
    eg_assert_close(y, z, 1e-12);
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, n, 2, 4), *xs[] = { q, k, v }, *one[3], *two[3];
    ck_assert(!eg_grad(y, seed, 3, xs, one) && !eg_grad(z, seed, 3, xs, two));
    for (int x = 0; x < 3; x++) eg_assert_close(one[x], two[x], 1e-11);
    /* whether a condition masks keys or queries */
    const bool of_query = strstr(where, "% 3") != NULL;
    eg_tensor *bad = eg_full(cx, NAN, 1), *any = eg_cast(seen, EG_F64);
    any = of_query ? eg_sum("b h i [j] -> b i h", any) : eg_sum("b h [i] j -> b j h", any);
    any = eg_unsqueeze(eg_gt(any, eg_zeros(cx, 1)), 3);
    o.weights = NULL;
    if (of_query)
        o.q = eg_where(any, q, bad);
    else if (!late)
        o.k = eg_where(any, k, bad), o.v = eg_where(any, v, bad);
    eg_assert_close(eg_linear_attention_with(&o), y, 1e-12);
}

/* if the key is called "query", "query <= row" is causal, and "row <= row" is not */
LOOP_TEST(the_key_may_have_any_name, 2)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 7, 3), *k = eg_normal(cx, 0, 1, 7, 3),
              *v = eg_normal(cx, 0, 1, 7, 4);
    eg_assert_close(eg_linear_attention("row d, query d, query e -> row e", q, k, v,
                                        .where = _i ? "query <= row" : "row <= row"),
                    eg_linear_attention("id,jd,je->ie", q, k, v, .where = _i ? "j <= i" : NULL), 0);
}

/* "key" is no typing error for "keys" if the string itself says that there are both */
TEST(factors_with_names_that_are_alike)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 7, 3), *k = eg_normal(cx, 0, 1, 7, 3),
              *v = eg_normal(cx, 0, 1, 7, 4), *a = eg_uniform(cx, 0, 1, 7);
    eg_assert_close(
        eg_linear_attention("keys d, key d, key e -> keys e", q, k, v, .where = "key <= keys",
                            .decay = { "key", a }),
        eg_linear_attention("id,jd,je->ie", q, k, v, .where = "j <= i", .decay = { "j", a }), 0);
}

LOOP_TEST(values_may_have_no_elements, 2)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 5, 3), *v = eg_normal(cx, 0, 1, 5, 0), *dq;
    eg_tensor *y = eg_linear_attention("id,jd,je->ie", q, q, v, .where = _i ? "j <= i" : NULL);
    ck_assert(eg_rank(y) == 2 && eg_dim(y, 0) == 5 && eg_dim(y, 1) == 0);
    eg_grad(eg_sum(NULL, y), NULL, 1, &q, &dq);
    eg_assert_close(dq, eg_zeros_like(q), 0);
}

/* a condition on one index, whose name is a word, is not read as letters */
LOOP_TEST(conditions_in_names, 2)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 7, 2, 3), *k = eg_normal(cx, 0, 1, 2, 7, 2, 3),
              *v = eg_normal(cx, 0, 1, 2, 7, 2, 4),
              *pad = eg_gt(eg_normal(cx, 0.5, 1, 2, 7), eg_zeros(cx, 1));
    eg_tensor *y = eg_linear_attention("batch query head d, batch key head d, batch key head e -> "
                                       "batch query head e",
                                       q, k, v, .with = { { "pad", pad } },
                                       .where = _i ? "key <= query & key > 1 & query != 4 & "
                                                     "pad[batch,key] & head < |head|"
                                                   : "key > 1 & query != 4 & pad[batch,key]");
    eg_tensor *z = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, v, .with = { { "pad", pad } },
                                       .where = _i ? "j <= i & j > 1 & i != 4 & pad[b,j] & h < |h|"
                                                   : "j > 1 & i != 4 & pad[b,j]");
    eg_assert_close(y, z, 0);
}

/* names of any length: a condition of the keys has two of them, one of the queries an offset */
LOOP_TEST(conditions_in_long_names, 3)
{
    static const int lengths[] = { 12, 250, 900 };
    char b[1000], i[1000], j[1000], spec[9000], where[9000];
    const int n = lengths[_i];
    memset(b, 'b', (size_t)n), memset(i, 'i', (size_t)n), memset(j, 'j', (size_t)n);
    b[n] = i[n] = j[n] = 0;
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 3, 4), *k = eg_normal(cx, 0, 1, 2, 7, 4),
              *v = eg_normal(cx, 0, 1, 2, 7, 5),
              *pad = eg_gt(eg_normal(cx, 0.5, 1, 2, 7), eg_zeros(cx, 1));
    snprintf(spec, sizeof spec, "names: %s %s d, %s %s d, %s %s e -> %s %s e", b, i, b, j, b, j, b,
             i);
    snprintf(where, sizeof where, "%s > 1 & %s != 5 & pad[%s,%s]", j, i, b, j);
    eg_tensor *y = eg_linear_attention(spec, q, k, v, .where = where, .offset = 4,
                                       .with = { { "pad", pad } }),
              *z = eg_linear_attention("bid,bjd,bje->bie", q, k, v, .offset = 4,
                                       .where = "j > 1 & i != 5 & pad[b,j]",
                                       .with = { { "pad", pad } });
    eg_assert_ok(cx);
    eg_assert_close(y, z, 0);
}

/* without .weights_axes the weights have the axes of those of eg_attention */
LOOP_TEST(axes_of_the_weights, 3)
{
    static const char *const specs[] = { "bihd,bjhd,bjhe->bihe", "bihd,bjhd,bjhe->ebhi",
                                         "bihd,bjhd,bjhe->hibe" },
                             *const order[] = { "b i h j -> b i h j", "b h i j -> b i h j",
                                                "h i b j -> b i h j" };
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 5, 3, 4), *k = eg_normal(cx, 0, 1, 2, 7, 3, 4),
              *v = eg_normal(cx, 0, 1, 2, 7, 3, 2), *w, *named, *attention;
    eg_linear_attention(specs[_i], q, k, v, .phi = "exp(x)", .weights = &w);
    eg_linear_attention(specs[_i], q, k, v, .phi = "exp(x)", .weights = &named,
                        .weights_axes = "bihj");
    eg_attention(specs[_i], q, k, v, .weights = &attention);
    eg_assert_ok(cx);
    for (int d = 0; d < 4; d++) ck_assert_int_eq(eg_dim(w, d), eg_dim(attention, d));
    eg_assert_close(eg_rearrange(order[_i], w), named, 0);
}

/* an error in .phi together with a state; an offset that overflows with any size */
TEST(options_refused)
{
    eg_tensor *q = eg_ones(cx, 1, 3, 2, 2), *state = eg_ones(cx, 1, 2, 2, 3), *next;
    ck_assert(!eg_ok(eg_linear_attention("bihd,bjhd,bjhe->bihe", q, q, q, .where = "j <= i",
                                         .phi = "expo(x)", .state = state, .next = &next)));
    eg_assert_error(cx, "'expo'");
    ck_assert(!eg_ok(eg_linear_attention("bihd,bjhd,bjhe->bihe", q, q, q, .where = "i < 2",
                                         .offset = INT64_MAX)));
    eg_assert_error(cx, "linear_attention: the offset 9223372036854775807 is too large");
}

LOOP_TEST(conditions_of_pairs_are_refused, 9)
{
    eg_tensor *x = eg_ones(cx, 2, 4, 3, 2),
              *pad = eg_full_n(cx, EG_BOOL, 1, 2, (int64_t[]){ 2, 4 });
    const struct {
        eg_linear_attention_args o;
        const char *why;
    } cases[] = {
        { { .where = "j <= i & pad[b,i] & pad[b,j] | j == i", .with = { { "pad", pad } } },
          "alone, as \"pad[j]\", joined by &; but \"j <= i & pad[b,i] & pad[b,j] | j == i\" is of "
          "both" },
        { { .where = "j <= i & i - 4 < j" }, "but \"i - 4 < j\" is of both" },
        { { .where = "pad[b,j]" },
          "linear_attention: the predicate's tensor 'pad' is not one of 'b', 'i', 'h', 'j'\n  "
          "pad[b,j]" },
        { { .where = "j <= i", .with = { { "pad", pad } } },
          "linear_attention: 'pad' of .with is not in .where" },
        { { .with = { { "pad", pad } } }, "linear_attention: 'pad' of .with is not in .where" },
        { { .where = "d < 1" }, "linear_attention: the predicate's index 'd' is not one of" },
        { { .where = "pad[h,j]", .with = { { "pad", pad } } }, "where_mask: " },
        { { .where = "j + i" }, "linear_attention: the predicate is a number, not a condition" },
        { { .where = "pad[b,j]", .with = { { "pad", pad } }, .chunk = 3 },
          ".decay, .beta, .state, .next and .chunk need .where = \"j <= i\"" },
    };
    eg_linear_attention_args o = cases[_i].o;
    o.size = sizeof o, o.spec = "bihd,bjhd,bjhe->bihe", o.q = o.k = o.v = x;
    ck_assert(!eg_ok(eg_linear_attention_with(&o)));
    eg_assert_error(cx, cases[_i].why);
    /* a key without heads cannot be left out for one of them */
    eg_tensor *k = eg_ones(cx, 2, 4, 2);
    ck_assert(!eg_ok(eg_linear_attention("bihd,bjd,bje->bihe", x, k, k, .where = "j > h")));
    eg_assert_error(cx, "\"j > h\" of .where has the index 'h', which the key lacks");
    ck_assert(!eg_ok(
        eg_linear_attention("bihd,bjd,bje->bihe", x, k, k,
                            .keep = { "hj", eg_full_n(cx, EG_BOOL, 1, 2, (int64_t[]){ 3, 4 }) })));
    eg_assert_error(cx, ".keep has the index 'h', which the key lacks");
}

/* the module passes its .where and .with on, also in groups and with a cache */
LOOP_TEST(conditions_in_the_module, 2)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 4, .kv_heads = _i ? 2 : 4,
                           .linear = &(eg_linear_attention_args){ .phi = "exp(x)" });
    randomise(p, 0.5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8), *w,
              *pad = eg_gt(eg_normal(cx, 1, 1, 2, 6), eg_zeros(cx, 1));
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i & pad[b,j]", .with = { { "pad", pad } },
                              .weights = &w),
              *same = eg_mha_run(m, x, .where = "j <= i", .keep = { "bj", pad });
    eg_assert_ok(cx);
    eg_assert_close(y, same, 0);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    eg_tensor *part[2];
    for (int k = 0; k < 2; k++)
        part[k] = eg_mha_run(m, eg_slice_axis(x, 1, 4 * k, k ? 6 : 4, 1), .cache = c,
                             .where = "j <= i & pad[b,j]",
                             .with = { { "pad", eg_slice_axis(pad, 1, 0, k ? 6 : 4, 1) } });
    eg_assert_close(eg_concat_axis_n(1, 2, part), y, 1e-12);
    eg_nograd(cx, false);
}

LOOP_TEST(refuses_options, 18)
{
    eg_tensor *x = eg_ones(cx, 2, 4, 3, 2), *one = eg_ones(cx, 3), *t;
    const struct {
        eg_linear_attention_args o;
        const char *why;
    } cases[] = {
        { { .decay = { "h", one }, .where = NULL },
          ".decay, .beta, .state, .next and .chunk need .where = \"j <= i\"" },
        { { .next = &t }, ".decay, .beta, .state, .next and .chunk need .where" },
        { { .chunk = 4 }, ".decay, .beta, .state, .next and .chunk need .where" },
        { { .chunk = -1, .where = "j <= i" }, "linear_attention: .chunk is -1" },
        { { .decay = { "h", NULL }, .where = "j <= i" }, "linear_attention: .decay is NULL" },
        { { .decay = { "i", one }, .where = "j <= i" },
          ".decay has the key's indices, and those of the output but 'i' and 'e', each once" },
        { { .decay = { "e", one }, .where = "j <= i" }, ".decay has the key's indices" },
        { { .decay = { "x", one }, .where = "j <= i" }, ".decay has the key's indices" },
        { { .decay = { "hh", one }, .where = "j <= i" }, ".decay has the key's indices" },
        { { .decay = { "(bh)", one }, .where = "j <= i" }, "the indices of .decay are needed" },
        { { .decay = { "b", one }, .where = "j <= i" },
          "index 'b' is 2 in operand 1 but 3 in .decay" },
        { { .decay = { "h", eg_cast(one, EG_F32) }, .where = "j <= i" },
          "linear_attention: .decay is f32, the key f64" },
        { { .phi = "exp(y)" }, "linear_attention: .phi: expr: " },
        { { .phi = "x > 0" }, "linear_attention: .phi gives bool, not f64: \"x > 0\"" },
        { { .phi = "3" }, "linear_attention: .phi: expr: " },
        { { .state = eg_ones(cx, 2), .where = "j <= i" }, "linear_attention: .state has 1 axis," },
        { { .beta = { "jb", eg_ones(cx, 4, 3) }, .no_norm = true, .where = "j <= i" },
          "index 'b' is 2 in operand 1 but 3 in .beta" },
        { { .state = eg_ones(cx, 2, 3, 2, 5), .where = "j <= i" }, "but 5 in .state" },
    };
    eg_linear_attention_args o = cases[_i].o;
    o.size = sizeof o, o.spec = "bihd,bjhd,bjhe->bihe", o.q = o.k = o.v = x;
    ck_assert(!eg_ok(eg_linear_attention_with(&o)));
    eg_assert_error(cx, cases[_i].why);
}

/* A query whose weights sum to 0, because the state was multiplied by 0 or because weights cancel,
 * gives 0, with gradients and second derivatives 0. */
TEST(weights_that_sum_to_0_have_no_gradient)
{
    for (int cancel = 0; cancel < 2; cancel++) {
        eg_tensor *q = eg_ones(cx, 1, 2, 1), *v = eg_from(cx, ((double[]){ 5, 7 }), 1, 2, 1);
        eg_tensor *k = eg_from(cx, ((double[]){ 1, cancel ? -1 : 1 }), 1, 2, 1);
        eg_tensor *decay = eg_from(cx, ((double[]){ 1, cancel ? 1 : 0 }), 1, 2);
        eg_tensor *keep = eg_from(cx, ((bool[]){ 1, cancel }), 1, 2);
        eg_tensor *xs[] = { q, k, v, decay }, *d[4], *dd[4];
        eg_tensor *y =
            eg_linear_attention("bid,bjd,bje->bie", q, k, v, .phi = "x", .where = "j <= i",
                                .decay = { "bj", decay }, .keep = { "bj", keep });
        ck_assert(eg_get(y, 0, 0, 0) == 5 && eg_get(y, 0, 1, 0) == 0);
        eg_tensor *second = eg_sum(NULL, eg_square(eg_shift(eg_select_axis(y, 1, 1), 1)));
        ck_assert_int_eq(eg_grad(second, NULL, 4, xs, d), 0);
        for (int t = 0; t < 4; t++) eg_assert_close(d[t], eg_zeros_like(d[t]), 0);
        eg_tensor *all = eg_sum(NULL, eg_square(d[1]));
        for (int t = 0; t < 4; t++) all = eg_add(all, eg_sum(NULL, d[t]));
        ck_assert_int_eq(eg_grad(all, NULL, 4, xs, dd), 0);
        for (int t = 0; t < 4; t++) eg_assert_close(dd[t], eg_zeros_like(dd[t]), 0);
    }
    eg_assert_ok(cx);
}

/* Types that differ are refused by the operand's name; a formula of x reads operands of any rank.
 */
LOOP_TEST(refuses_types_that_differ, 6)
{
    eg_tensor *x = eg_ones(cx, 2, 4, 3, 2), *xs[3] = { x, x, x };
    const struct {
        int operand;
        eg_dtype type;
        const char *phi, *why;
    } cases[] = {
        { 0, EG_F32, NULL, "linear_attention: the query is f32 but the key is f64; eg_cast one" },
        { 1, EG_F32, "exp(x)", "linear_attention: the query is f64 but the key is f32" },
        { 2, EG_F32, NULL, "linear_attention: the query is f64 but the value is f32" },
        { 1, EG_BF16, "x", "linear_attention: the query is f64 but the key is bf16" },
        { 2, EG_BOOL, "x", "linear_attention: the query is f64 but the value is bool" },
        { -1, EG_BF16, NULL, "linear_attention: elu: operand 1 is bf16, which is a storage type" },
    };
    for (int k = 0; k < 3; k++)
        if (cases[_i].operand == k || cases[_i].operand < 0) xs[k] = eg_cast(xs[k], cases[_i].type);
    for (int causal = 0; causal < 2; causal++) {
        ck_assert(
            !eg_ok(eg_linear_attention("bihd,bjhd,bjhe->bihe", xs[0], xs[1], xs[2],
                                       .phi = cases[_i].phi, .where = causal ? "j <= i" : NULL)));
        eg_assert_error(cx, cases[_i].why);
    }
}
TEST(phi_of_queries_with_one_axis)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 3), *k = eg_normal(cx, 0, 1, 3),
              *v = eg_normal(cx, 0, 1, 3, 2);
    eg_tensor *y = eg_linear_attention("i,j,je->ie", q, k, v, .phi = "exp(x)");
    eg_tensor *w = eg_einsum("i,j->ij", eg_exp(q), eg_exp(k));
    eg_assert_close(y, eg_on("ie,i", eg_div, eg_einsum("ij,je->ie", w, v), eg_sum("i [j]", w)),
                    1e-14);
    ck_assert(!eg_ok(eg_linear_attention("i,j,je->ie", q, k, v, .phi = "exp(y)")));
    eg_assert_error(cx, "the expression's name 'y' is not one of 'x'\n");
}
