/* test_fused.c: fused attention compared with the unfused form: values and all gradients for every
 * kind of mask, layout and width, at the edges of blocks and panels; the same bits for any number
 * of threads; memory. */
#include "attention/attention.h"
#include "core/fpmode.h"
#include "data/attention.h"
#include "tests.h"
#include "stored_values.h"
#include <float.h>

/* -- cases ------------------------------------------------------------------------------------ */
typedef struct made {
    eg_tensor *x[4], *keep, *lengths;
} made; /* q k v; bias or slopes */
typedef struct fused_case {
    /* letters with sizes: "b=2 i=70 d=5", or NULL: no bias */
    const char *name, *spec, *shape[4];
    const char *bias, *alibi, *keep, *lengths, *where; /* letters */
    int64_t offset;
    double scale, dropout;
} fused_case;
static const fused_case cases[] = {
    { "plain", "id,jd,je->ie", { "70 5", "131 5", "131 3" }, .scale = 0 },
    { "one query", "id,jd,je->ie", { "1 5", "300 5", "300 3" }, .where = "j <= i", .offset = 290 },
    { "one key", "id,jd,je->ie", { "300 5", "1 5", "1 3" }, .where = "j <= i" },
    { "width 1", "id,jd,je->ie", { "33 1", "40 1", "40 1" }, .scale = 0 },
    { "no width of value", "id,jd,j->i", { "33 4", "40 4", "40" }, .scale = 0 },
    { "wide", "id,jd,je->ie", { "40 300", "50 300", "50 290" }, .scale = 0 },
    { "causal, several blocks",
      "bhid,bhjd,bhje->bhie",
      { "1 2 600 8", "1 2 600 8", "1 2 600 6" },
      .where = "j <= i" },
    { "fewer queries the later the key",
      "id,jd,je->ie",
      { "600 8", "600 8", "600 6" },
      .where = "i + j < |i|" },
    { "queries of an inner key only",
      "id,jd,je->ie",
      { "600 8", "600 8", "600 6" },
      .where = "abs(i - 300) < 280 - abs(j - 200)" },
    { "causal, aligned at the end",
      "ibhd,jbhd,jbhe->ibhe",
      { "90 2 2 4", "400 2 2 4", "400 2 2 5" },
      .where = "j - |j| <= i - |i|" },
    { "window",
      "bihd,bjhd,bjhe->bihe",
      { "1 700 2 4", "1 700 2 4", "1 700 2 5" },
      .where = "i - 100 < j <= i" },
    { "dilated", "id,jd,je->ie", { "280 4", "300 4", "300 4" }, .where = "(i - j) % 3 == 0" },
    { "blocks", "id,jd,je->ie", { "280 4", "300 4", "300 4" }, .where = "i/64 == j/64" },
    { "prefix", "id,jd,je->ie", { "280 4", "300 4", "300 4" }, .where = "j <= i | j < 10" },
    { "two stripes",
      "id,jd,je->ie",
      { "280 4", "600 4", "600 4" },
      .where = "j < 20 | 400 <= j < 420 & i != 7" },
    { "nothing at all", "id,jd,je->ie", { "40 4", "50 4", "50 4" }, .where = "j < 0" },
    { "empty rows", "id,jd,je->ie", { "300 4", "280 4", "280 4" }, .where = "j < i - 20" },
    { "heads differ",
      "bhid,bhjd,bhje->bhie",
      { "2 3 40 4", "2 3 50 4", "2 3 50 4" },
      .where = "h == 0 & j <= i | h == 1 | h == 2 & b == 1" },
    { "heads moved",
      "bhid,bhjd,bhje->bhie",
      { "2 3 40 4", "2 3 50 4", "2 3 50 4" },
      .where = "j < 9 * h",
      .offset = 2 },
    { "keep b j", "bihd,bjhd,bjhe->bihe", { "2 60 2 4", "2 270 2 4", "2 270 2 5" }, .keep = "bj" },
    { "keep i j, bias h i j",
      "bihd,bjhd,bjhe->bihe",
      { "2 60 2 4", "2 270 2 4", "2 270 2 5", "2 60 270" },
      .keep = "ij",
      .bias = "hij" },
    { "bias j", "bihd,bjhd,bjhe->bihe", { "2 60 2 4", "2 70 2 4", "2 70 2 5", "70" }, .bias = "j" },
    { "bias of all",
      "bihd,bjhd,bjhe->bihe",
      { "2 60 2 4", "2 70 2 4", "2 70 2 5", "70 2 60 2" },
      .bias = "jbih",
      .where = "j <= i" },
    { "lengths",
      "bihd,bjhd,bjhe->bihe",
      { "3 60 2 4", "3 270 2 4", "3 270 2 5" },
      .lengths = "b",
      .where = "j <= i + 100" },
    { "lengths and keep",
      "bihd,bjhd,bjhe->bihe",
      { "3 60 2 4", "3 70 2 4", "3 70 2 5" },
      .lengths = "b",
      .keep = "ij" },
    { "grouped heads",
      "b i g r d, b j g d, b j g e -> b i g r e",
      { "2 50 2 3 4", "2 60 2 4", "2 60 2 5" },
      .where = "j <= i" },
    { "grouped heads, r outside",
      "b g r i d, b g j d, b g j e -> b g r i e",
      { "2 2 3 50 4", "2 2 60 4", "2 2 60 5" },
      .where = "j <= i" },
    { "one key head", "bhid,bjd,bje->bhie", { "2 3 40 4", "2 50 4", "2 50 5" }, .where = "j <= i" },
    { "heads in key alone",
      "bid,bhjd,bhje->bhie",
      { "2 40 4", "2 3 50 4", "2 3 50 5" },
      .where = "j <= i" },
    { "values alike for all heads",
      "bhid,bhjd,bje->bhie",
      { "2 3 40 4", "2 3 50 4", "2 50 5" },
      .scale = .3 },
    { "heads summed", "bhid,bhjd,bhje->bie", { "2 3 40 4", "2 3 50 4", "2 3 50 5" }, .scale = .3 },
    { "queries on a grid",
      "x y d, j d, j e -> y x e",
      { "9 11 4", "80 4", "80 3" },
      .where = "x + y <= j" },
    { "keys on a grid",
      "b i d, b s t d, b s t e -> b e i",
      { "2 40 4", "2 15 11 4", "2 15 11 3" },
      .where = "s + t <= i" },
    { "two widths",
      "i a c, c j a, j e f -> f i e",
      { "40 3 2", "2 50 3", "50 2 4" },
      .where = "j <= i" },
    { "diagonals", "i i d, j d, j e e -> i e", { "40 40 4", "50 4", "50 3 3" }, .where = "j <= i" },
    { "alibi",
      "bihd,bjhd,bjhe->bihe",
      { "2 60 3 4", "2 270 3 4", "2 270 3 5", "3" },
      .alibi = "h" },
    { "alibi of grouped heads, causal, moved",
      "b i g r d, b j g d, b j g e -> b i g r e",
      { "2 50 2 3 4", "2 60 2 4", "2 60 2 5", "3 2" },
      .alibi = "rg",
      .where = "j <= i",
      .offset = 9 },
    { "one alibi", "id,jd,je->ie", { "50 4", "60 4", "60 5", "" }, .alibi = "" },
    { "dropout",
      "bihd,bjhd,bjhe->bihe",
      { "2 60 2 4", "2 270 2 4", "2 270 2 5" },
      .dropout = .3,
      .where = "j <= i + 9" },
};
enum { CASES = sizeof cases / sizeof *cases };

static eg_tensor *parsed(eg_ctx *cx, eg_dtype type, const char *sizes, int which)
{
    int64_t dim[8];
    int rank = 0;
    for (char *at = (char *)sizes; *at;) dim[rank++] = strtoll(at, &at, 10);
    return eg_cast(eg_normal_n(cx, EG_F64, 0, which < 2 ? 1.5 : 1, rank, dim), type);
}
/* in the query or the key */
static int64_t size_of(const fused_case *c, const made *m, char letter)
{
    int term = 0, axis = 0;
    for (const char *s = c->spec; *s != '-'; s++) {
        if (*s == ',') {
            term++;
            axis = 0;
        } else if (*s != ' ' && *s == letter)
            return eg_dim(m->x[term], axis);
        else
            axis += *s != ' ';
    }
    ck_abort_msg("%s: no %c", c->name, letter);
    return 0;
}
static void make(eg_ctx *cx, eg_dtype type, const fused_case *c, made *m)
{
    *m = (made){ 0 };
    for (int k = 0; k < 4; k++) m->x[k] = c->shape[k] ? parsed(cx, type, c->shape[k], k) : NULL;
    int64_t dim[8];
    int rank = 0;
    for (const char *s = c->keep; s && *s; s++) dim[rank++] = size_of(c, m, *s);
    if (c->keep)
        m->keep =
            eg_gt(eg_uniform_n(cx, EG_F32, 0, 1, rank, dim), eg_full_n(cx, EG_F32, .4, 0, NULL));
    rank = 0;
    for (const char *s = c->lengths; s && *s; s++) dim[rank++] = size_of(c, m, *s);
    if (c->lengths) m->lengths = eg_randint_n(cx, 0, size_of(c, m, 'j') + 1, rank, dim);
}
static eg_tensor *attend(const fused_case *c, const made *m, eg_form form, eg_tensor **weights)
{
    return eg_attention(c->spec, m->x[0], m->x[1], m->x[2], .where = c->where, .offset = c->offset,
                        .scale = c->scale, .dropout = c->dropout, .form = form,
                        .bias = { c->bias, c->bias ? m->x[3] : NULL },
                        .alibi = { c->alibi, c->alibi ? m->x[3] : NULL },
                        .keep = { c->keep, m->keep }, .lengths = { c->lengths, m->lengths },
                        .weights = weights);
}
static void close_to(const fused_case *c, const char *what, eg_tensor *a, eg_tensor *b,
                     double tolerance)
{
    const double size = eg_item(eg_max(NULL, eg_abs(b))),
                 off = eg_item(eg_max(NULL, eg_abs(eg_sub(a, b))));
    ck_assert_msg(eg_ok(a) && eg_ok(b) && off <= tolerance * fmax(size, 1),
                  "%s: %s is off by %g of %g", c->name, what, off, size);
}
static void fused_is_unfused(const fused_case *c, eg_dtype type, double tolerance)
{
    static const char *const name[] = { "dq", "dk", "dv", "dbias" };
    eg_ctx *cx = eg_open(.dtype = type);
    made m;
    make(cx, type, c, &m);
    const int n = m.x[3] ? 4 : 3;
    const uint64_t draw = eg_draws(cx);
    eg_tensor *y = attend(c, &m, EG_UNFUSED, NULL), *d[4], *e[4], *w;
    eg_set_draws(cx, draw);
    eg_tensor *z = attend(c, &m, EG_FUSED, NULL);
    eg_assert_ok(cx);
    ck_assert_str_ne(eg_op_of(y)->name, "attention");
    close_to(c, "y", z, y, tolerance);
    eg_set_draws(cx, draw);
    ck_assert_msg(same_bits(z, attend(c, &m, EG_FUSED, &w)),
                  "%s: asking for the weights changes the result", c->name);
    eg_tensor *g = eg_cast(eg_normal_n(cx, EG_F64, 0, 1, eg_rank(y), eg_dims(y)), type);
    ck_assert(!eg_grad(y, g, n, m.x, d) && !eg_grad(z, g, n, m.x, e));
    /* the cotangent of slopes is a sum of terms over all pairs that cancel */
    for (int k = 0; k < n; k++)
        close_to(c, name[k], e[k], d[k], k == 3 && c->alibi ? 4 * tolerance : tolerance);
    eg_assert_ok(cx);
    eg_close(cx);
}
LOOP_TEST(fused_form_equals_unfused_form_in_f64, CASES)
{
    fused_is_unfused(&cases[_i], EG_F64, 1e-12);
}
LOOP_TEST(fused_form_equals_unfused_form_in_f32, CASES)
{
    fused_is_unfused(&cases[_i], EG_F32, 2e-5);
}

/* -- PyTorch's values: every mask with every pair of widths, in every layout, in both forms ---- */
static const struct {
    const char *mask, *where, *option;
} told[] = {
    { "none", NULL, "" },
    { "causal", "j <= i", "" },
    { "causal at the end", "j - |j| <= i - |i|", "" },
    { "window", "i - 9 < j <= i", "" },
    { "blocks", "i/8 == j/8", "" },
    { "padding", NULL, "lengths" },
    { "bias", NULL, "bias" },
    { "bias, causal", "j <= i", "bias" },
    { "alibi, causal", "j <= i", "alibi" },
    { "scale", NULL, "scale" },
    { "one key head", "j <= i", "one" },
};
static const struct {
    const char *heads, *one, *q, *k, *v, *y;
} layouts[] = {
    { "bhid,bhjd,bhje->bhie", "bhid,b1jd,b1je->bhie", "bhid->bhid", "bhjd->bhjd", "bhje->bhje",
      "bhie->bhie" },
    { "ibhd,jbhd,jbhe->ibhe", "ibhd,jb1d,jb1e->ibhe", "bhid->ibhd", "bhjd->jbhd", "bhje->jbhe",
      "ibhe->bhie" },
    { "bihd,bhdj,bjhe->behi", "bihd,b1dj,bj1e->behi", "bhid->bihd", "bhjd->bhdj", "bhje->bjhe",
      "behi->bhie" },
};
static void sums_are(const char *what, int layout, int n, eg_tensor *x, const double *sums)
{
    const double *v = eg_f64(x);
    for (int t = 0; t < 6; t++) {
        double sum = 0, size = 1e-300;
        for (int64_t k = 0; k < eg_size(x); k++) {
            sum += v[k] * cos(.9 * (double)k + t);
            size += fabs(v[k]);
        }
        ck_assert_msg(fabs(sum - sums[t]) <= 1e-13 * size,
                      "%s, layout %d, tensor %d, sum %d: %.17g, PyTorch has %.17g", what, layout, n,
                      t, sum, sums[t]);
    }
}
LOOP_TEST(as_pytorch, sizeof ref_sdpa / sizeof *ref_sdpa)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    const int d = ref_sdpa[_i].d, e = ref_sdpa[_i].e;
    const char *name = ref_sdpa[_i].mask;
    int m = 0;
    while (strcmp(told[m].mask, name)) m++;
    const char *option = told[m].option;
    const bool one = !strcmp(option, "one"), bias = !strcmp(option, "bias");
    eg_tensor *x[] = { wave(cx, 0, 2, 2, 37, d), wave(cx, 1, 2, one ? 1 : 2, 45, d),
                       wave(cx, 2, 2, one ? 1 : 2, 45, e), wave(cx, 3, 2, 37, 45) },
              *dx[4];
    eg_tensor *g = eg_full(cx, 0, 2, 2, 37, e), *slopes = eg_alibi_slopes(cx, 2),
              *lengths = eg_from(cx, ((int[]){ 37, 1 }), 2);
    double *p = eg_mut_f64(g);
    for (int64_t k = 0; k < eg_size(g); k++) p[k] = cos(.3 * (double)k);
    for (int n = 0; n < 6; n++) {
        const int l = n / 2;
        eg_tensor *y = eg_attention(
            one ? layouts[l].one : layouts[l].heads, eg_rearrange(layouts[l].q, x[0]),
            eg_rearrange(layouts[l].k, x[1]), eg_rearrange(layouts[l].v, x[2]),
            .where = told[m].where, .bias = { bias ? "hij" : NULL, bias ? x[3] : NULL },
            .scale = !strcmp(option, "scale") ? .3 : 0,
            .alibi = { !strcmp(option, "alibi") ? "h" : NULL,
                       !strcmp(option, "alibi") ? slopes : NULL },
            .lengths = { !strcmp(option, "lengths") ? "b" : NULL,
                         !strcmp(option, "lengths") ? lengths : NULL },
            .form = n % 2 ? EG_FUSED : EG_UNFUSED);
        eg_assert_ok(cx);
        ck_assert_int_eq(strcmp(eg_op_of(y)->name, "attention") == 0, n % 2);
        y = eg_rearrange(layouts[l].y, y);
        sums_are(name, l, 0, y, ref_sdpa[_i].sums[0]);
        eg_grad(y, g, bias ? 4 : 3, x, dx);
        eg_assert_ok(cx);
        for (int k = 0; k < (bias ? 4 : 3); k++)
            sums_are(name, l, k + 1, dx[k], ref_sdpa[_i].sums[k + 1]);
    }
    eg_close(cx);
}

/* -- the same bits, whatever the number of threads: several batches, and one whose keys are
 * split */
/* The second derivative is the same if the last pass records nothing. */
TEST(second_order_while_nothing_is_recorded)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[3] = { eg_uniform(cx, -1, 1, 5, 4), eg_uniform(cx, -1, 1, 7, 4),
                        eg_uniform(cx, -1, 1, 7, 3) },
              *g[3], *h[2][3];
    eg_tensor *y =
        eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i + 2", .form = EG_FUSED);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_mul(y, y)), NULL, 3, x, g), 0);
    for (int quiet = 0; quiet < 2; quiet++) {
        eg_tensor *all = eg_sum(NULL, eg_exp(g[0]));
        for (int k = 1; k < 3; k++) all = eg_add(all, eg_sum(NULL, eg_mul(g[k], g[k])));
        eg_nograd(cx, quiet);
        ck_assert_msg(!eg_grad(all, NULL, 3, x, h[quiet]), "%s", eg_error(cx));
        eg_nograd(cx, false);
    }
    for (int k = 0; k < 3; k++) eg_assert_close(h[1][k], h[0][k], 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(threads_do_not_change_bits)
{
    static const fused_case wide = {
        "split", "id,jd,je->ie", { "1100 24", "1500 24", "1500 24" }, .where = "j <= i + 300"
    };
    static const fused_case many = { "batches",
                                     "bihd,bjhd,bjhe->bihe",
                                     { "3 300 3 24", "3 300 3 24", "3 300 3 24" },
                                     .where = "j <= i" };
    const fused_case *both[] = { &wide, &many };
    for (int c = 0; c < 2; c++) {
        eg_tensor *y[3], *d[3][3];
        eg_ctx *cx[3];
        for (int k = 0; k < 3; k++) {
            made m;
            cx[k] = eg_open(.threads = (int[]){ 1, 2, 5 }[k]);
            make(cx[k], EG_F32, both[c], &m);
            y[k] = attend(both[c], &m, EG_FUSED, NULL);
            eg_grad(y[k], y[k], 3, m.x, d[k]);
            eg_assert_ok(cx[k]);
        }
        for (int k = 1; k < 3; k++) {
            ck_assert(same_bits(y[0], y[k]));
            for (int n = 0; n < 3; n++) ck_assert(same_bits(d[0][n], d[k][n]));
        }
        for (int k = 0; k < 3; k++) eg_close(cx[k]);
    }
}

/* Tiles leave out rows that bounds of the predicate forbid: that changes no bit of y and of the
 * gradients of q, k and v. The same mask is given by blocks, which bounds decide, and by pairs in
 * an order of which they know nothing. */
static const struct {
    const char *score;
    double dropout;
    bool no_softmax, lse;
} sparse[] = {
    { NULL, 0, false, false },
    { NULL, .3, false, false },
    { "tanh(score + r[clip(i - j, 0, 49)]) + c[j]", 0, false, true },
    { "score * r[(i + j) % 50] + c[j]", .3, false, true },
    { "sigmoid(score + r[abs(i - j) / 12]) * c[j]", .2, true, false },
};
enum { SPARSE = sizeof sparse / sizeof *sparse };
LOOP_TEST(sparse_tiles_change_no_bit, 4 * SPARSE)
{
    const int v = _i % SPARSE, wide = _i / SPARSE % 2, share = _i / SPARSE / 2 ? 8 : 2;
    const int64_t N = 590, b = 2, blocks = (N + 15) / 16;
    eg_ctx *cx = eg_open(.dtype = wide ? EG_F64 : EG_F32, .seed = 5 + (uint64_t)_i, .threads = 1);
    eg_tensor *x[] = { eg_normal(cx, 0, 1, b, N, 12), eg_normal(cx, 0, 1, b, N, 12),
                       eg_normal(cx, 0, 1, b, N, 20), eg_normal(cx, 0, 1, 50),
                       eg_normal(cx, 0, 1, N) },
              *table = eg_expr("b i j", "t == 0",
                               .with = { { "t", eg_randint(cx, 0, share, b, blocks, blocks) } }),
              *pairs = eg_expr("b i=590 j=590", "t[b, i / 16, j / 16]", .with = { { "t", table } }),
              *at = eg_arange(cx, EG_I64, 0, (double)N, 1), *y[3], *d[3][5];
    const int n = sparse[v].score ? 5 : 3;
    for (int k = 0; k < 3; k++) {
        eg_seed(cx, 3); /* the same dropout */
        eg_tensor *lse;
        eg_attention_args o = { .size = sizeof o,
                                .spec = "bid,bjd,bje->bie",
                                .q = x[0],
                                .k = x[1],
                                .v = x[2],
                                .where = k ? "pairs[b, at[i], j]" : "table[b, i / 16, j / 16]",
                                .score = sparse[v].score,
                                .dropout = sparse[v].dropout,
                                .no_softmax = sparse[v].no_softmax,
                                .form = k < 2 ? EG_FUSED : EG_UNFUSED,
                                .lse = sparse[v].lse ? &lse : NULL };
        int given = 0;
        o.with[given++] = k ? (eg_given){ "pairs", pairs } : (eg_given){ "table", table };
        if (k) o.with[given++] = (eg_given){ "at", at };
        if (n > 3)
            o.with[given++] = (eg_given){ "r", x[3] }, o.with[given++] = (eg_given){ "c", x[4] };
        y[k] = eg_attention_with(&o);
        if (o.lse) y[k] = eg_expr("b i e", "y + l[b, i]", .with = { { "y", y[k] }, { "l", lse } });
        eg_tensor *g = eg_expr("b i e", "sin(3 * y)", .with = { { "y", eg_detach(y[0]) } });
        eg_assert_ok(cx);
        ck_assert(!eg_grad(y[k], g, n, x, d[k]));
    }
    ck_assert(same_bits(y[0], y[1]));
    for (int k = 0; k < 3; k++) ck_assert_msg(same_bits(d[0][k], d[1][k]), "operand %d", k);
    for (int k = 3; k < n; k++) /* sums over pairs, added in another order */
        eg_assert_close(d[0][k], d[1][k], wide ? 1e-12 : 1e-5);
    eg_assert_close(y[0], y[2], wide ? 1e-11 : 2e-4);
    for (int k = 0; k < n; k++) eg_assert_close(d[0][k], d[2][k], wide ? 1e-9 : 1e-2);
    eg_close(cx);
}

/* -- other outputs and options ----------------------------------------------------------------- */
TEST(lse_scores_and_empty_rows_in_both_forms)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { wave(cx, 0, 2, 40, 3, 4), wave(cx, 1, 2, 50, 3, 4),
                       wave(cx, 2, 2, 50, 3, 5) },
              *lse[2], *s[2], *w, *y[2], *dx[2][3];
    int64_t empty[2];
    for (int f = 0; f < 2; f++) {
        y[f] = eg_attention("bihd,bjhd,bjhe->bihe", x[0], x[1], x[2], .where = "5 <= i & j <= i",
                            .form = f ? EG_FUSED : EG_UNFUSED, .lse = &lse[f], .scores = &s[f],
                            .weights = &w, .empty = &empty[f]);
        eg_grad(eg_einsum("bih->", eg_slice_axis(lse[f], 1, 5, EG_END, 1)), NULL, 3, x, dx[f]);
        eg_assert_ok(cx);
        ck_assert_int_eq(empty[f], 2 * 5 * 3);
    }
    eg_assert_axes("b=2 i=40 h=3", lse[0]);
    eg_assert_close(s[0], eg_scale(eg_einsum("bihd,bjhd->bihj", x[0], x[1]), .5), 1e-14);
    eg_assert_close(s[1], s[0], 0);
    for (int f = 0; f < 2; f++) {
        ck_assert(eg_item(eg_max(NULL, eg_slice_axis(lse[f], 1, 0, 5, 1))) == -INFINITY);
        eg_assert_close(eg_slice_axis(y[f], 1, 0, 5, 1), eg_zeros(cx, 2, 5, 3, 5), 0);
        for (int k = 0; k < 2; k++) eg_assert_close(dx[f][k], dx[0][k], 1e-13);
    }
    eg_assert_close(eg_slice_axis(lse[1], 1, 5, EG_END, 1), eg_slice_axis(lse[0], 1, 5, EG_END, 1),
                    1e-14);
    eg_tensor *live = eg_slice_axis(w, 1, 5, EG_END, 1),
              *again = eg_exp(eg_sub(eg_slice_axis(s[1], 1, 5, EG_END, 1),
                                     eg_unsqueeze(eg_slice_axis(lse[1], 1, 5, EG_END, 1), 3)));
    /* w = e^(s − lse) */
    eg_assert_close(live, eg_where(eg_gt(live, eg_scalar(cx, 0)), again, eg_zeros_like(live)),
                    1e-14);
    eg_attention("bihd,bjhd,bjhe->bihe", x[0], x[1], eg_slice_axis(x[2], 1, 0, 50, 1),
                 .empty = &empty[0], .form = EG_FUSED);
    ck_assert_int_eq(empty[0], 0);
    eg_close(cx);
}

/* The form is chosen by sizes, and by whether the predicate relates queries to keys. */
TEST(form_by_size_and_predicate)
{
    static const struct {
        const char *where;
        int queries, keys, fused;
    } of[] = {
        { NULL, 256, 256, 1 },     { NULL, 255, 256, 0 },         { NULL, 256, 255, 0 },
        { "j <= i", 128, 128, 1 }, { "j <= i", 127, 128, 0 },     { "j <= i", 128, 127, 0 },
        { "j < 99", 255, 255, 0 }, { "j < 9 & i < 9", 2, 99, 0 }, { "i > 4 | j < 9", 128, 200, 1 },
    };
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        eg_ctx *cx = eg_open(.seed = 5);
        eg_tensor *x[] = { eg_normal(cx, 0, 1, of[k].queries, 8),
                           eg_normal(cx, 0, 1, of[k].keys, 8), eg_normal(cx, 0, 1, of[k].keys, 5) },
                  *y[3];
        for (int form = EG_FORM_BY_SIZE; form <= EG_UNFUSED; form++)
            y[form] = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = of[k].where,
                                   .form = (eg_form)form);
        eg_assert_ok(cx);
        ck_assert(same_bits(y[EG_FORM_BY_SIZE], y[of[k].fused ? EG_FUSED : EG_UNFUSED]));
        ck_assert_msg(!same_bits(y[EG_FUSED], y[EG_UNFUSED]), "row %zu cannot tell", k);
        eg_close(cx);
    }
}

TEST(infinite_scores_are_shared_evenly) /* as in the unfused form: the limit */
{
    eg_ctx *cx = eg_open();
    eg_tensor *q = eg_full(cx, 1e30, 3, 2),
              *k =
                  eg_cast(eg_from(cx, ((double[]){ 1e30, 1e30, 1, 1, 1e30, 1e30, -1e30, 0 }), 4, 2),
                          EG_F32),
              *v = eg_normal(cx, 0, 1, 4, 3), *dx[2][3];
    eg_tensor *y[2];
    for (int f = 0; f < 2; f++) {
        y[f] = eg_attention("id,jd,je->ie", q, k, v, .form = f ? EG_FUSED : EG_UNFUSED);
        eg_grad(y[f], y[f], 3, (eg_tensor *[]){ q, k, v }, dx[f]);
    }
    eg_assert_ok(cx);
    eg_assert_close(
        y[0],
        eg_expand(eg_scale(eg_add(eg_select_axis(v, 0, 0), eg_select_axis(v, 0, 2)), .5), 3, 3),
        1e-6);
    eg_assert_close(y[1], y[0], 1e-6);
    eg_assert_close(dx[1][2], dx[0][2], 1e-6);
    eg_close(cx);
}

/* The lowest number of the type, with which other libraries forbid pairs, is finite: a row in which
 * all pairs have it is a mean of the values, and not empty. The fused form multiplies the scores by
 * log2 e. */
LOOP_TEST(the_lowest_score_is_finite, 2 * 3)
{
    const bool f64 = _i % 2;
    eg_ctx *cx = eg_open(.dtype = f64 ? EG_F64 : EG_F32);
    const double lowest = f64 ? -DBL_MAX : -FLT_MAX;
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 3, 2), eg_normal(cx, 0, 1, 40, 2),
                       eg_normal(cx, 0, 1, 40, 3), eg_full(cx, lowest, 3, 40),
                       eg_scalar(cx, lowest) },
              *y[2], *lse[2], *dx[2][5];
    int64_t empty[2];
    eg_fill(eg_select_axis(eg_select_axis(x[3], 0, 1), 0, 7), 0.5);
    eg_fill(eg_slice_axis(eg_select_axis(x[3], 0, 2), 0, 5, 30, 1), lowest * 0.6);
    for (int f = 0; f < 2; f++) {
        eg_attention_args a = { .size = sizeof a,
                                .spec = "id,jd,je->ie",
                                .q = x[0],
                                .k = x[1],
                                .v = x[2],
                                .form = f ? EG_FUSED : EG_UNFUSED,
                                .empty = &empty[f],
                                .lse = &lse[f] };
        if (_i / 2 == 1)
            a.score = "b[i,j]", a.with[0] = (eg_given){ "b", x[3] };
        else
            a.bias = (eg_masked){ "ij", x[3] };
        if (_i / 2 == 2) a.sink = (eg_masked){ "", x[4] };
        y[f] = eg_attention_with(&a);
        eg_grad(y[f], y[f], 5, x, dx[f]);
    }
    eg_assert_ok(cx);
    eg_assert_close(y[1], y[0], 1e-6);
    eg_assert_close(eg_scale(lse[1], 1e-7), eg_scale(lse[0], 1e-7), 1e-6);
    for (int k = 0; k < 2; k++) ck_assert_int_eq(empty[k], 0);
    for (int k = 0; k < 5; k++) eg_assert_close(dx[1][k], dx[0][k], 1e-6);
    eg_close(cx);
}
/* With a sink no query counts as empty: not even if it is −∞, which has no other effect. */
LOOP_TEST(no_query_is_empty_with_a_sink, 2)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_normal(cx, 0, 1, 4, 2), *y[2];
    int64_t empty[2];
    for (int sink = 0; sink < 2; sink++)
        y[sink] = eg_attention(
            "id,jd,je->ie", x, x, x, .where = "j < i", .form = _i ? EG_FUSED : EG_UNFUSED,
            .sink = { sink ? "" : NULL, sink ? eg_full_n(cx, EG_F32, -INFINITY, 0, NULL) : NULL },
            .empty = &empty[sink]);
    eg_assert_ok(cx);
    eg_assert_close(y[1], y[0], 0);
    ck_assert_int_eq(empty[0], 1);
    ck_assert_int_eq(empty[1], 0);
    eg_close(cx);
}
/* Lanes beyond the last key would have the score 0, and 2^(0 − most) is infinite here: most =
 * −128. */
TEST(scores_far_below_zero)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x[] = { eg_ones(cx, 5, 1), eg_shift(eg_normal(cx, 0, .01, 7, 1), -128 * log(2)),
                       eg_normal(cx, 0, 1, 7, 3) },
              *y[2], *dx[2][3];
    for (int f = 0; f < 2; f++) {
        y[f] = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .form = f ? EG_FUSED : EG_UNFUSED);
        eg_grad(y[f], y[f], 3, x, dx[f]);
    }
    eg_assert_ok(cx);
    eg_assert_close(y[1], y[0], 1e-4);
    for (int k = 0; k < 3; k++)
        eg_assert_close(eg_scale(dx[1][k], .01), eg_scale(dx[0][k], .01), 1e-4);
    eg_close(cx);
}

static int subnormals(eg_tensor *x)
{
    int count = 0;
    const float *v = eg_f32(eg_copy(x));
    for (int64_t k = 0; k < eg_size(x); k++) count += fpclassify(v[k]) == FP_SUBNORMAL;
    return count;
}
/* With a bias of -j/10 the weights of distant keys fall below the smallest normal number. The
 * unfused form then has subnormal cotangents, the fused one has zeros in their place, and both
 * leave the mode of the thread as it was. */
LOOP_TEST(the_fused_form_has_no_subnormal_results, 2)
{
    if (!EG_FPMODE_FLUSH) return; /* a processor without the mode */
    enum { N = 1200 };
    eg_ctx *cx = eg_open(.threads = _i ? 4 : 1);
    const uint64_t mode = eg__fpmode();
    eg_tensor *x[] = { eg_normal(cx, 0, 1, N, 4), eg_normal(cx, 0, 1, N, 4),
                       eg_normal(cx, 0, 1, N, 3), eg_full_n(cx, EG_F32, .1, 0, NULL) };
    for (int f = 0; f < 2; f++) {
        eg_tensor *d[4], *y = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "i <= j",
                                           .score = "score - r[] * j", .with = { { "r", x[3] } },
                                           .form = f ? EG_FUSED : EG_UNFUSED);
        eg_tensor *first = eg_slice_axis(y, 0, 0, 1, 1);
        ck_assert(!eg_grad(eg_sum(NULL, first), NULL, 4, x, d));
        eg_assert_ok(cx);
        int count = subnormals(y);
        for (int k = 0; k < 4; k++) count += subnormals(d[k]);
        ck_assert_int_eq(count > 0, !f);
        ck_assert_uint_eq(eg__fpmode(), mode);
    }
    eg_close(cx);
}

TEST(a_nan_query_makes_its_row_nan)
{
    eg_ctx *cx = eg_open();
    eg_tensor *q = eg_normal(cx, 0, 1, 40, 2), *k = eg_normal(cx, 0, 1, 50, 2),
              *v = eg_normal(cx, 0, 1, 50, 3);
    eg_mut_f32(q)[2 * 7] = NAN;
    eg_tensor *y = eg_attention("id,jd,je->ie", q, k, v, .form = EG_FUSED);
    ck_assert_double_eq(eg_item(eg_sum(NULL, eg_isnan(y))), 3);
    ck_assert(isnan(eg_get(y, 7, 0)));
    eg_close(cx);
}

/* A NaN in the cotangent of query 2 reaches the keys and values that this query attends to, and no
 * others; of the queries it reaches only that one. Both forms. */
LOOP_TEST(a_nan_cotangent_stays_with_its_query, 2)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 6, 3), eg_normal(cx, 0, 1, 8, 3),
                       eg_normal(cx, 0, 1, 8, 2) },
              *g[] = { eg_normal(cx, 0, 1, 6, 2), NULL }, *d[2][3];
    put(g[0], 0, 2, 1);
    g[1] = eg_copy(g[0]);
    put(g[1], NAN, 2, 1);
    eg_tensor *y = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i",
                                .form = _i ? EG_FUSED : EG_UNFUSED);
    for (int k = 0; k < 2; k++) ck_assert(!eg_grad(y, g[k], 3, x, d[k]));
    eg_assert_ok(cx);
    for (int k = 0; k < 3; k++)
        for (int j = 0; j < eg_dim(x[k], 0); j++)
            for (int c = 0; c < eg_dim(x[k], 1); c++) {
                const bool sees = k == 0 ? j == 2 : j <= 2;
                if (!sees)
                    ck_assert_double_eq(eg_get(d[1][k], j, c), eg_get(d[0][k], j, c));
                else if (k < 2 || c == 1)
                    ck_assert_double_nan(eg_get(d[1][k], j, c));
            }
    eg_close(cx);
}

/* .score_fn may mask, too: a key whose scores it replaces may be NaN, without an effect on
 * gradients. */
static eg_tensor *replaced(void *mask, eg_tensor *scores)
{
    return eg_where(mask, scores, eg_full_n(eg_context(scores), eg_type(scores), -3, 0, NULL));
}
TEST(what_score_replaces_may_be_nan)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 6, 3), eg_normal(cx, 0, 1, 8, 3),
                       eg_normal(cx, 0, 1, 8, 2) },
              *d[2][3], *y[2];
    eg_tensor *mask = eg_ne(eg_arange(cx, EG_F64, 0, 8, 1), eg_full_n(cx, EG_F64, 5, 0, NULL));
    for (int k = 0; k < 2; k++) {
        x[1] = eg_copy(x[1]);
        put(x[1], k ? NAN : 0, 5, 1);
        y[k] = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .score_fn = replaced, .user = mask);
        ck_assert(!eg_grad(eg_sum(NULL, eg_square(y[k])), NULL, 3, x, d[k]));
    }
    eg_assert_ok(cx);
    eg_assert_close(y[1], y[0], 0);
    for (int k = 0; k < 3; k++) eg_assert_close(d[1][k], d[0][k], 0);
    eg_close(cx);
}

/* The tangent of the fused form and that of its gradient are those of the unfused form, which is
 * computed once: as many multiply-adds as a call of the unfused form and its tangent. */
TEST(fused_tangents_cost_what_unfused_ones_do)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 2, 40, 8), eg_normal(cx, 0, 1, 2, 50, 8),
                       eg_normal(cx, 0, 1, 2, 50, 6), eg_normal(cx, 0, 1, 2) },
              *v[4], *t[2], *lse[2], *hv[2][4];
    uint64_t cost[2], all[2];
    for (int k = 0; k < 4; k++) v[k] = eg_normal_n(cx, EG_F64, 0, 1, eg_rank(x[k]), eg_dims(x[k]));
    for (int f = 0; f < 2; f++) {
        all[f] = eg_stats(cx).multiply_adds;
        eg_tensor *y = eg_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .where = "j <= i + 3",
                                    .score = "2 * tanh(score)", .sink = { "b", x[3] },
                                    .lse = &lse[f], .form = f ? EG_UNFUSED : EG_FUSED);
        cost[f] = eg_stats(cx).multiply_adds;
        t[f] = eg_jvp(eg_einsum("bie,bi->bie", y, lse[f]), 4, x, v);
        cost[f] = eg_stats(cx).multiply_adds - cost[f];
        eg_hvp(eg_sum(NULL, eg_einsum("bie,bi->bie", y, eg_square(lse[f]))), 4, x, v, hv[f]);
        all[f] = eg_stats(cx).multiply_adds - all[f];
    }
    eg_assert_ok(cx);
    eg_assert_close(t[0], t[1], 1e-12);
    for (int k = 0; k < 4; k++) eg_assert_close(hv[0][k], hv[1][k], 1e-12);
    /* the unfused form is made again for each of the three tangents */
    ck_assert_msg(cost[0] <= 2 * cost[1], "%llu, unfused %llu", (unsigned long long)cost[0],
                  (unsigned long long)cost[1]);
    ck_assert_msg(all[0] <= 2 * all[1], "%llu, unfused %llu", (unsigned long long)all[0],
                  (unsigned long long)all[1]);
    eg_close(cx);
}

/* -- NaN and infinity in what a mask forbids: everything that does not depend on them has the same
 * values as with zeros in their place; what depends on a NaN is NaN. Random positions, both forms,
 * both types, contiguous and strided, values, gradients, tangents and second derivatives -- */
enum { B = 2, H = 2, D = 5, E = 3, MOST = 300 };
typedef struct forbidding {
    const char *name, *where, *keep, *bias;
    bool lengths;
    int queries, keys;
} forbidding;
static const forbidding forbids[] = {
    { "causal", "j <= i", NULL, NULL, false, 37, 45 },
    { "window", "i - 9 < j <= i", NULL, NULL, false, 70, MOST },
    { "keep bj", NULL, "bj", NULL, false, 37, 45 },
    { "keep bhij, causal", "j <= i + 5", "bhij", NULL, false, 37, 45 },
    { "keep ij", NULL, "ij", NULL, false, 40, MOST },
    { "lengths", NULL, NULL, NULL, true, 20, 45 },
    { "lengths, keep ij, causal", "j <= i + 3", "ij", NULL, true, 37, 45 },
    { "bias of -inf", NULL, NULL, "hij", false, 37, 45 },
    { "bias of -inf, keep bj", NULL, "bj", "j", false, 37, 45 },
};
/* The operands of one call, and which elements of its keys and values are not finite. */
typedef struct law {
    eg_tensor *x[3], *keep, *bias, *lengths, *g, *move[3];
    int which[B][H][MOST]; /* of key j: 1: an element of its key, 2: of its value; 0: none */
    int place[B][H][MOST]; /* the index of the element */
    double what[B][H][MOST];
} law;
typedef struct outcome {
    eg_tensor *y, *d[3], *dd[3], *move, *lse, *w;
} outcome;
static eg_tensor *strided(eg_tensor *x, bool yes)
{
    return yes ? eg_transpose(eg_copy(eg_transpose(x, 1, 3)), 1, 3) : x;
}
static void outcome_of(const forbidding *f, const law *l, eg_form form, bool turned, outcome *o)
{
    eg_tensor *x[3];
    for (int k = 0; k < 3; k++) x[k] = strided(l->x[k], turned);
    o->y = eg_attention("bhid,bhjd,bhje->bhie", x[0], x[1], x[2], .where = f->where,
                        .keep = { f->keep, l->keep }, .bias = { f->bias, l->bias },
                        .lengths = { l->lengths ? "b" : NULL, l->lengths }, .form = form,
                        .lse = &o->lse, .weights = &o->w, .weights_axes = "bhij");
    eg_assert_ok(eg_context(o->y));
    ck_assert(!eg_grad(o->y, l->g, 3, x, o->d));
    o->move = eg_jvp(o->y, 3, x, (eg_tensor **)l->move);
    eg_tensor *sum = eg_sum(NULL, eg_mul(o->d[0], l->move[0]));
    ck_assert(!eg_grad(eg_add(sum, eg_sum(NULL, eg_mul(o->d[2], l->move[2]))), NULL, 3, x, o->dd));
    eg_assert_ok(eg_context(o->y));
}

/* Random elements for the axes in `letters`; NULL without letters. */
static eg_tensor *drawn(eg_ctx *cx, eg_dtype type, const forbidding *f, const char *letters,
                        bool normal)
{
    const int64_t sizes[256] = { ['b'] = B, ['h'] = H, ['i'] = f->queries, ['j'] = f->keys };
    int64_t dim[4];
    int rank = 0;
    for (const char *s = letters; s && *s; s++) dim[rank++] = sizes[(int)*s];
    return !letters ? NULL
           : normal ? eg_normal_n(cx, type, 0, 1, rank, dim)
                    : eg_gt(eg_uniform_n(cx, EG_F32, 0, 1, rank, dim),
                            eg_full_n(cx, EG_F32, .4, 0, NULL));
}
/* Draws the operands and masks; every element is finite. */
static void draw_law(eg_ctx *cx, const forbidding *f, eg_dtype type, law *l)
{
    const int n = f->queries, m = f->keys;
    *l = (law){ .x = { eg_normal(cx, 0, 1, B, H, n, D), eg_normal(cx, 0, 1, B, H, m, D),
                       eg_normal(cx, 0, 1, B, H, m, E) },
                .g = eg_normal(cx, 0, 1, B, H, n, E) };
    for (int k = 0; k < 3; k++) l->move[k] = eg_normal_n(cx, type, 0, 1, 4, eg_dims(l->x[k]));
    l->keep = drawn(cx, type, f, f->keep, false);
    eg_tensor *some = drawn(cx, type, f, f->bias, false);
    if (some)
        l->bias = eg_where(some, drawn(cx, type, f, f->bias, true),
                           eg_full_n(cx, type, -INFINITY, 0, NULL));
    if (f->lengths) l->lengths = eg_from(cx, ((int32_t[]){ m - 9, 4 }), B);
}
/* Makes one element of some keys, or of their values, NaN or infinite in l and 0 in zero. */
static void spoil(eg_ctx *cx, const forbidding *f, law *l, law *zero)
{
    const double odd[] = { NAN, INFINITY, -INFINITY };
    const int n = f->queries, m = f->keys, width[] = { D, D, E };
    *zero = *l;
    for (int k = 1; k < 3; k++) {
        l->x[k] = eg_copy(l->x[k]);
        zero->x[k] = eg_copy(l->x[k]);
    }
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int j = 0; j < m; j++) {
                const double draw = eg_item(eg_uniform(cx, 0, 1, 1));
                const bool bad =
                    draw < (m > 100 ? .004 : .02) || (m > 100 ? j == n / 2 : j % 24 == 20);
                const int k = l->which[b][h][j] = bad ? 1 + (int)(draw * 1e4) % 2 : 0;
                if (!k) continue;
                const int at = l->place[b][h][j] = (int)(draw * 1e5) % width[k];
                l->what[b][h][j] = odd[(int)(draw * 1e6) % 3];
                put(l->x[k], l->what[b][h][j], b, h, j, at);
                put(zero->x[k], 0, b, h, j, at);
            }
}
#define SAME(A, C, ...)                                                           \
    ck_assert_msg(same_number(eg_get(A, __VA_ARGS__), eg_get(C, __VA_ARGS__)),    \
                  "%s: %s at %d %d %d: %.9g, %.9g with zeros", name, #A, b, h, i, \
                  eg_get(A, __VA_ARGS__), eg_get(C, __VA_ARGS__))
/* Row i of (b, h): a weight that is forbidden is 0, and a NaN that the row depends on is in its
 * results. True if it depends on an element that is not finite. */
static bool row_sees(const law *l, const char *name, int m, const outcome *bad, const outcome *good,
                     int b, int h, int i)
{
    bool touched = false;
    for (int j = 0; j < m; j++) {
        const int which = l->which[b][h][j];
        if (!(eg_get(good->w, b, h, i, j) > 0)) {
            ck_assert_msg(eg_get(bad->w, b, h, i, j) == 0, "%s: a forbidden weight is %g", name,
                          eg_get(bad->w, b, h, i, j));
            continue;
        }
        touched |= which;
        if (!which || !isnan(l->what[b][h][j])) continue;
        ck_assert(isnan(eg_get(bad->y, b, h, i, which == 2 ? l->place[b][h][j] : 0)));
        ck_assert_msg(isnan(eg_get(bad->d[0], b, h, i, 0)), "%s: dq does not see the NaN", name);
        if (which == 1) ck_assert(isnan(eg_get(bad->lse, b, h, i)));
    }
    return touched;
}
/* What does not depend on an element that is not finite is the same as with zeros: rows of queries,
 * then gradients of keys and values. Returns the number of rows that depend on one. */
static int compare(const law *l, const forbidding *f, const char *name, const outcome *bad,
                   const outcome *good)
{
    const int n = f->queries, m = f->keys, width[] = { D, D, E };
    int clean = 0, hit = 0;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++) {
            bool touched[MOST] = { false };
            for (int i = 0; i < n; i++) {
                touched[i] = row_sees(l, name, m, bad, good, b, h, i);
                hit += touched[i];
                if (touched[i]) continue;
                clean++;
                SAME(bad->lse, good->lse, b, h, i);
                for (int c = 0; c < E; c++) {
                    SAME(bad->y, good->y, b, h, i, c);
                    SAME(bad->move, good->move, b, h, i, c);
                }
                for (int c = 0; c < D; c++) {
                    SAME(bad->d[0], good->d[0], b, h, i, c);
                    SAME(bad->dd[0], good->dd[0], b, h, i, c);
                }
            }
            for (int i = 0; i < m; i++) { /* a key */
                bool seen = false;
                for (int q = 0; q < n; q++) seen |= touched[q] && eg_get(good->w, b, h, q, i) > 0;
                clean += !seen;
                for (int k = 1; !seen && k < 3; k++)
                    for (int c = 0; c < width[k]; c++) {
                        SAME(bad->d[k], good->d[k], b, h, i, c);
                        SAME(bad->dd[k], good->dd[k], b, h, i, c);
                    }
            }
        }
    ck_assert_msg(clean > 0, "%s: nothing is clean", name);
    return hit;
}
static int law_holds(const forbidding *f, eg_dtype type, eg_form form, bool turned, uint64_t seed)
{
    static law bad, zero;
    char name[128];
    snprintf(name, sizeof name, "%s, %s, %s%s", f->name, type == EG_F64 ? "f64" : "f32",
             form == EG_FUSED ? "fused" : "unfused", turned ? ", strided" : "");
    eg_ctx *cx = eg_open(.dtype = type, .seed = seed);
    draw_law(cx, f, type, &bad);
    spoil(cx, f, &bad, &zero);
    outcome found, wanted;
    outcome_of(f, &bad, form, turned, &found);
    outcome_of(f, &zero, form, turned, &wanted);
    const int hit = compare(&bad, f, name, &found, &wanted);
    eg_close(cx);
    return hit;
}
LOOP_TEST(what_is_forbidden_changes_nothing, sizeof forbids / sizeof *forbids)
{
    int hit = 0;
    for (int t = 0; t < 8; t++)
        hit += law_holds(&forbids[_i], t & 1 ? EG_F64 : EG_F32, t & 2 ? EG_FUSED : EG_UNFUSED,
                         t & 4, 100 + (uint64_t)t);
    ck_assert_int_gt(hit, 0);
}
/* The bits of a sum may depend on strides. A forbidden NaN changes none of them, for permuted,
 * sliced, reversed and expanded values, with one NaN among keys that are next to each other in
 * memory, or not. */
LOOP_TEST(forbidden_nan_changes_no_bit_for_any_strides, 10)
{
    const eg_form form = _i % 2 ? EG_FUSED : EG_UNFUSED;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = eg_normal(cx, 0, 1, 3, 10, 2), *k = eg_normal(cx, 0, 1, 3, 42, 2), *v, *d[2][3],
              *clean, *seed = eg_normal(cx, 0, 1, 10, 3, 1), *y[2];
    switch (_i / 2) {
    case 0: v = eg_permute(eg_normal(cx, 0, 1, 42, 3, 1), 1, 0, 2); break;
    case 1: v = eg_permute(eg_normal(cx, 0, 1, 1, 42, 3), 2, 1, 0); break;
    case 2: v = eg_slice_axis(eg_normal(cx, 0, 1, 3, 84, 1), 1, 0, 84, 2); break;
    case 3: v = eg_flip_axis(eg_normal(cx, 0, 1, 3, 42, 1), 1); break;
    default: v = eg_expand(eg_normal(cx, 0, 1, 1, 42, 1), 3, 42, 1);
    }
    clean = k;
    for (int dirty = 0; dirty < 2; dirty++) {
        if (dirty) put(k = eg_copy(clean), NAN, 1, 41, 0);
        if (_i / 2 % 2) k = strided_by_two(k);
        y[dirty] =
            eg_copy(eg_attention("fsx,bcx,fcd->sbd", q, k, v, .where = "c < 41", .form = form));
        ck_assert_msg(!eg_grad(y[dirty], seed, 3, (eg_tensor *[]){ q, k, v }, d[dirty]), "%s",
                      eg_error(cx));
    }
    ck_assert(!memcmp(eg_f64(y[0]), eg_f64(y[1]), 30 * sizeof(double)));
    for (int x = 0; x < 3; x++) {
        eg_tensor *a = eg_contiguous(d[0][x]), *b = eg_contiguous(d[1][x]);
        for (int64_t n = 0; n < eg_size(a); n++) ck_assert(eg_f64(a)[n] == eg_f64(b)[n]);
    }
    eg_close(cx);
}

/* More blocks of keys than those whose bounds are kept from one head to the next, each with other
 * forbidden panels. */
TEST(bounds_of_many_blocks_of_keys)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 1);
    eg_tensor *q = eg_normal(cx, 0, 1, 40, 3, 2), *k = eg_normal(cx, 0, 1, 6000, 3, 2), *y[2];
    for (int form = 0; form < 2; form++)
        y[form] = eg_attention("ihd,jhd,jhe->ihe", q, k, k, .where = "(j + 7 * i) % 4200 < 90",
                               .form = form ? EG_FUSED : EG_UNFUSED);
    eg_assert_close(y[1], y[0], 1e-12);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Keys beyond the lengths may have any content, also values so large that their products
 * overflow. */
TEST(padding_may_be_anything)
{
    const double garbage[] = { NAN, INFINITY, -INFINITY, 3e38, 0 };
    for (int type = 0; type < 2; type++)
        for (int form = 0; form < 2; form++) {
            eg_ctx *cx = eg_open(.dtype = type ? EG_F64 : EG_F32);
            eg_tensor *x[] = { eg_normal(cx, 0, 1, 2, 30, 4), eg_normal(cx, 0, 1, 2, 70, 4),
                               eg_normal(cx, 0, 1, 2, 70, 3) },
                      *y[5], *d[5][3];
            eg_tensor *g = eg_shift(eg_normal(cx, 0, 1, 2, 30, 3), 20),
                      *t = eg_from(cx, ((int32_t[]){ 40, 7 }), 2);
            eg_tensor *pad =
                eg_unsqueeze(eg_lt(eg_arange(cx, EG_I32, 0, 70, 1), eg_unsqueeze(t, 1)), 2);
            for (int k = 4; k >= 0; k--) {
                eg_tensor *own[] = { x[0], eg_where(pad, x[1], eg_full(cx, garbage[k], 1)),
                                     eg_where(pad, x[2], eg_full(cx, garbage[k], 1)) };
                y[k] = eg_attention("bid,bjd,bje->bie", own[0], own[1], own[2],
                                    .lengths = { "b", t }, .form = form ? EG_FUSED : EG_UNFUSED);
                ck_assert(!eg_grad(y[k], g, 3, own, d[k]));
                ck_assert(same_bits(y[k], y[4]));
                for (int n = 0; n < 3; n++) eg_assert_close(d[k][n], d[4][n], 0);
            }
            eg_assert_ok(cx);
            eg_close(cx);
        }
}

/* -- cancellation: dS = P (dP − Σ P dP). If only one key is allowed, the gradient is exactly 0;
 * otherwise both forms differ by less than 4 ulp of the sum of the terms that cancel, Σ_j scale
 * P_ij (A_ij + Σ_j P_ij A_ij) |k_j| with A = |g| |v|ᵀ for dq, and likewise for dk. The error of a
 * score is a relative error of its weight, so that with large scores each term counts 1 + scale |q|
 * |k|ᵀ times -- */
TEST(one_key_has_no_gradient)
{
    for (int t = 0; t < 16; t++) {
        eg_ctx *cx = eg_open(.dtype = t & 1 ? EG_F64 : EG_F32, .seed = 7 + (uint64_t)t);
        const bool alone = t & 4;
        eg_tensor *x[] = { eg_normal(cx, 0, 3, 2, 60, 16),
                           eg_normal(cx, 0, 3, 2, alone ? 1 : 60, 16),
                           eg_normal(cx, 0, 3, 2, alone ? 1 : 60, 21) },
                  *d[3];
        eg_tensor *y =
            eg_attention("hid,hjd,hje->hie", x[0], x[1], x[2], .where = alone ? NULL : "j == i",
                         .dropout = t & 8 ? .3 : 0, .form = t & 2 ? EG_FUSED : EG_UNFUSED);
        eg_grad(y, eg_normal(cx, 0, 3, 2, 60, 21), 3, x, d);
        eg_assert_ok(cx);
        for (int k = 0; k < 2; k++) eg_assert_close(d[k], eg_zeros_like(x[k]), 0);
        eg_close(cx);
    }
}

static double worst_of(eg_tensor *a, eg_tensor *b, eg_tensor *terms)
{
    return eg_item(
        eg_max(NULL, eg_div(eg_abs(eg_sub(eg_cast(a, EG_F64), eg_cast(b, EG_F64))), terms)));
}
TEST(forms_agree_to_what_cancels)
{
    static const struct {
        int n, m, d;
        double size, shift;
    } of[] = { { 40, 40, 4, 1, 0 },    { 40, 3, 8, 1, 0 },    { 100, 600, 64, 1, 0 },
               { 300, 300, 16, 2, 0 }, { 60, 700, 32, 1, 1 }, { 40, 50, 8, 8, 0 } };
    for (size_t c = 0; c < sizeof of / sizeof *of; c++)
        for (int type = 0; type < 2; type++)
            for (int causal = 0; causal < 2; causal++) {
                eg_ctx *cx = eg_open(.dtype = type ? EG_F64 : EG_F32, .seed = 3 + (uint64_t)c);
                const int n = of[c].n, m = of[c].m, d = of[c].d;
                eg_tensor *x[] = { eg_normal(cx, 0, of[c].size, n, d),
                                   eg_normal(cx, 0, of[c].size, m, d),
                                   eg_normal(cx, of[c].shift, 1, m, d) },
                          *dx[2][3], *w;
                eg_tensor *g = eg_normal(cx, of[c].shift, 1, n, d);
                for (int f = 0; f < 2; f++) {
                    eg_tensor *y = eg_attention("id,jd,je->ie", x[0], x[1], x[2],
                                                .where = causal ? "j <= i" : NULL,
                                                .form = f ? EG_FUSED : EG_UNFUSED, .weights = &w);
                    eg_grad(y, g, 3, x, dx[f]);
                }
                eg_tensor *p = eg_cast(w, EG_F64), *q = eg_abs(eg_cast(x[0], EG_F64)),
                          *k = eg_abs(eg_cast(x[1], EG_F64)),
                          *tiny = eg_full_n(cx, EG_F64, 1e-300, 0, NULL);
                eg_tensor *a = eg_einsum("ie,je->ij", eg_abs(eg_cast(g, EG_F64)),
                                         eg_abs(eg_cast(x[2], EG_F64)));
                eg_tensor *s =
                    eg_scale(eg_mul(p, eg_add(a, eg_unsqueeze(eg_einsum("ij,ij->i", p, a), 1))),
                             1 / sqrt(d));
                if (of[c].size > 1)
                    s = eg_mul(s, eg_shift(eg_scale(eg_einsum("id,jd->ij", q, k), 1 / sqrt(d)), 1));
                const double ulp = type ? 0x1p-52 : 0x1p-23;
                const double worst =
                    fmax(worst_of(dx[0][0], dx[1][0], eg_add(eg_einsum("ij,jd->id", s, k), tiny)),
                         worst_of(dx[0][1], dx[1][1], eg_add(eg_einsum("ij,id->jd", s, q), tiny)));
                eg_assert_ok(cx);
                ck_assert_msg(worst <= 4 * ulp, "case %zu, %s, causal %d: %.2f ulp", c,
                              type ? "f64" : "f32", causal, worst / ulp);
                eg_close(cx);
            }
}

/* -- elements that are not finite: y, its log-sum-exp and all gradients have the same infinities
 * and NaNs in both forms, wherever operands and cotangents have some -- */
typedef struct wild_case {
    const char *name, *where, *keep, *score;
    bool bias, sink, no_softmax, lse, both; /* the loss reads the log-sum-exp alone; and y */
    double dropout;
    int each; /* one in `each` elements of an operand is not finite */
} wild_case;
static const wild_case wilds[] = {
    { "plain", .each = 60 },
    { "causal", .where = "j <= i", .each = 60 },
    { "keys left out", .keep = "bj", .each = 40 },
    { "bias", .bias = true, .each = 12 },
    { "bias, causal", .where = "j <= i", .bias = true, .each = 25 },
    { "bias without a softmax", .where = "j <= i", .bias = true, .no_softmax = true, .each = 25 },
    { "score", .score = "score - 0.1 * (i - j)", .each = 60 },
    { "sink", .sink = true, .each = 6 },
    { "sink, few keys seen", .where = "j < i / 9", .sink = true, .each = 4 },
    { "dropout", .where = "j <= i", .dropout = .5, .each = 60 },
    { "dropout, sink, few keys seen", "j < i / 9", .sink = true, .dropout = .5, .each = 9 },
    { "log-sum-exp", .where = "j <= i", .sink = true, .lse = true, .each = 9 },
    { "y and log-sum-exp", .where = "j <= i", .sink = true, .both = true, .each = 60 },
    { "y and log-sum-exp, few keys seen", "j < i / 9", .sink = true, .both = true, .each = 9 },
    { "y and log-sum-exp, dropout", .both = true, .dropout = .5, .each = 30 },
};
/* Normally distributed elements. If `some`, about one in `each` is not finite. */
static eg_tensor *wild(eg_ctx *cx, bool some, int each, int rank, const int64_t *dim)
{
    const eg_dtype type = eg_default_type(cx);
    eg_tensor *x = eg_normal_n(cx, type, 0, 1, rank, dim);
    if (!some) return x;
    eg_tensor *draw = eg_uniform_n(cx, EG_F64, 0, 1, rank, dim);
    const double odd[] = { NAN, INFINITY, -INFINITY };
    for (int64_t k = 0; k < eg_size(x); k++) {
        const double of = eg_f64(draw)[k] * each;
        if (of >= 1) continue;
        if (type == EG_F64)
            eg_mut_f64(x)[k] = odd[(int)(of * 3)];
        else
            eg_mut_f32(x)[k] = (float)odd[(int)(of * 3)];
    }
    return x;
}
static void same_kind(const wild_case *c, uint64_t seed, const char *what, int which, eg_tensor *a,
                      eg_tensor *b)
{
    const double *u = eg_f64(eg_cast(eg_copy(a), EG_F64)), *v = eg_f64(eg_cast(eg_copy(b), EG_F64));
    for (int64_t k = 0; k < eg_size(a); k++)
        ck_assert_msg(isnan(u[k])   ? isnan(v[k])
                      : isinf(u[k]) ? u[k] == v[k]
                                    : isfinite(v[k]),
                      "%s, seed %d: %s %d at %d: fused %g, unfused %g", c->name, (int)seed, what,
                      which, (int)k, u[k], v[k]);
}
static void wild_call(const wild_case *c, eg_dtype type, uint64_t seed)
{
    enum { I = 19, J = 23 };
    eg_ctx *cx = eg_open(.dtype = type, .seed = seed, .threads = 1);
    eg_tensor *some = eg_randint(cx, 0, 2, 6), *y[3], *l[3] = { NULL }, *d[2][5];
    const int32_t *in = eg_i32(eg_cast(some, EG_I32));
#define WILD(k, ...)                                                                      \
    wild(cx, in[k], c->each, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
         (int64_t[]){ __VA_ARGS__ })
    eg_tensor *x[5] = { WILD(0, B, I, H, D), WILD(1, B, J, H, D), WILD(2, B, J, H, E) },
              *g = WILD(5, B, I, H, E), *h = WILD(5, B, I, H),
              *keep = eg_gt(eg_uniform(cx, 0, 1, B, J), eg_full(cx, .3, B, J));
    int n = 3, bias = -1, sink = -1;
    if (c->bias) x[bias = n++] = WILD(3, H, I, J);
    if (c->sink) x[sink = n++] = WILD(4, B, H, I);
#undef WILD
    for (int f = 0; f < 3; f++) {
        eg_seed(cx, seed);
        eg_nograd(cx, f == 2);
        y[f] = eg_attention("bihd,bjhd,bjhe->bihe", x[0], x[1], x[2], .where = c->where,
                            .keep = { c->keep, c->keep ? keep : NULL }, .score = c->score,
                            .bias = { c->bias ? "hij" : NULL, c->bias ? x[bias] : NULL },
                            .sink = { c->sink ? "bhi" : NULL, c->sink ? x[sink] : NULL },
                            .no_softmax = c->no_softmax, .dropout = c->dropout,
                            .lse = c->lse || c->both ? &l[f] : NULL,
                            .form = f == 1 ? EG_UNFUSED : EG_FUSED);
        if (f == 2) break;
        if (c->both) /* the gradients of a product are its factors, even if its value is NaN */
            ck_assert(!eg_grad(eg_add(eg_sum(NULL, eg_mul(y[f], g)), eg_sum(NULL, eg_mul(l[f], h))),
                               NULL, n, x, d[f]));
        else
            ck_assert(!eg_grad(c->lse ? l[f] : y[f], c->lse ? h : g, n, x, d[f]));
        eg_assert_ok(cx);
    }
    same_kind(c, seed, "y", 0, y[0], y[1]);
    const double *u = eg_f64(eg_cast(eg_copy(y[0]), EG_F64)),
                 *v = eg_f64(eg_cast(eg_copy(y[2]), EG_F64));
    for (int64_t k = 0; k < eg_size(y[0]); k++)
        ck_assert_msg(same_number(u[k], v[k]), "%s, seed %d: y at %d is %g, without a gradient %g",
                      c->name, (int)seed, (int)k, u[k], v[k]);
    if (l[0]) same_kind(c, seed, "log-sum-exp", 0, l[0], l[1]);
    for (int k = 0; k < n; k++) same_kind(c, seed, "gradient", k, d[0][k], d[1][k]);
    eg_close(cx);
}
LOOP_TEST(what_is_not_finite_is_so_in_both_forms, sizeof wilds / sizeof *wilds)
{
    for (uint64_t seed = 1; seed <= 60 / SLOWER; seed++) {
        wild_call(&wilds[_i], EG_F64, seed);
        wild_call(&wilds[_i], EG_F32, seed);
    }
}

/* Arrays of threads have 64 entries (EG_FUSED_TEAM; TEAM_MAX of products): with 70 threads, and
 * work for all of them, results have the bits of one thread. */
TEST(more_threads_than_a_team)
{
#ifdef __SANITIZE_THREAD__ /* 70 spinning threads take minutes there */
    return;
#endif
    eg_tensor *results[2][2];
    eg_ctx *of[2];
    for (int k = 0; k < 2; k++) {
        eg_ctx *c = of[k] = eg_open(.threads = k ? 70 : 1, .seed = 4);
        eg_tensor *x = eg_normal(c, 0, 1, 8, 8, 320, 48), *a = eg_normal(c, 0, 1, 660, 660);
        int64_t empty = -1;
        results[k][0] = eg_attention("bhid,bhjd,bhje->bhie", x, x, x, .where = "j != 3 & i > 1",
                                     .form = EG_FUSED, .empty = &empty);
        ck_assert_int_eq(empty, 2 * 8 * 8);
        results[k][1] = eg_einsum("ij,jk->ik", a, a);
        eg_assert_ok(c);
    }
    for (int r = 0; r < 2; r++) ck_assert(same_bits(results[0][r], results[1][r]));
    for (int k = 0; k < 2; k++) eg_close(of[k]);
}

/* -- 2^x in tiles ------------------------------------------------------------------------------ */
/* The instructions of AVX-512 for 2^x, which vectors of 64 bytes use where the processor has them,
 * give the bits of the arithmetic of shorter vectors. In clang 14's builds last bits differ: they
 * have no clones (configure.ac), so that products of shorter vectors are not fused. */
static bool same_power(double a, double b, double epsilon)
{
#if defined(__clang__)
    return fabs(a - b) <= 2 * epsilon * fabs(a);
#else
    (void)epsilon;
    return !memcmp(&a, &b, sizeof a);
#endif
}
TEST(powers_of_two_do_not_depend_on_the_length_of_vectors)
{
    enum { N = 1 << 16 };
    static const double wild[] = { 0,    -0.0, NAN,   -INFINITY, -0.5,   0.5,      -1.5,  -125.75,
                                   -126, -127, -149,  -126.5,    -127.5, -1e30,    -1022, -1023,
                                   126,  127,  126.5, -1074,     -1e300, -DBL_MIN, 1e-30, -1022.5 };
    static _Alignas(64) double x[3][N];
    static _Alignas(64) float narrow[3][N];
    static double zero[N], one[N];
    static float unit[N];
    eg_ctx *c = eg_open(.threads = 1);
    const double *random = eg_f64(eg_uniform_n(c, EG_F64, 0, 1, 1, (int64_t[]){ N }));
    for (int k = 0; k < N; k++) {
        const double least = k % 4 == 0 ? -1 : k % 4 == 1 ? -30 : k % 4 == 2 ? -160 : -1100;
        const double v = k < (int)(sizeof wild / sizeof *wild) ? wild[k] : least * random[k];
        for (int t = 0; t < 3; t++) x[t][k] = v, narrow[t][k] = (float)v;
        one[k] = unit[k] = 1;
    }
    const uint64_t begun = eg__fpmode_begin(true);
    for (int t = 0; t < 3; t++) { /* 64, 32 and 16 bytes */
        const int w = 16 >> t, d = 8 >> t;
        eg__tile_ops(EG_F32, w)->exp_scaled(w, N / w, narrow[t], zero, unit);
        eg__tile_ops(EG_F64, d)->exp_scaled(d, N / d, x[t], zero, one);
    }
    eg__fpmode_end(begun);
    for (int t = 1; t < 3; t++)
        for (int k = 0; k < N; k++) {
            ck_assert_msg(isnan(x[0][k]) ? isnan(x[t][k])
                                         : same_power(x[0][k], x[t][k], DBL_EPSILON),
                          "f64, %d: %.17g, %.17g", k, x[0][k], x[t][k]);
            ck_assert_msg(
                isnan(narrow[0][k])
                    ? isnan(narrow[t][k])
                    : same_power((double)narrow[0][k], (double)narrow[t][k], (double)FLT_EPSILON),
                "f32, %d: %.9g, %.9g", k, (double)narrow[0][k], (double)narrow[t][k]);
        }
    ck_assert(narrow[0][0] == 1 && isnan(narrow[0][2]) && narrow[0][3] == 0);
    eg_close(c);
}
TEST(large_results_have_the_bits_of_their_parts)
{
    /* results of more than EG_STREAM_BYTES are written with non-temporal stores; each batch alone
     * is smaller */
    static const int64_t widths[] = { 64, 66 };
    for (int k = 0; k < 2; k++) {
        const int64_t d = widths[k];
        eg_ctx *c = eg_open(.threads = 2);
        eg_tensor *x[4], *dx[3];
        for (int t = 0; t < 4; t++) x[t] = eg_normal(c, 0, 1, 4, 3301, 4, d);
        eg_tensor *y = eg_attention("bihd,bjhd,bjhe->bihe", x[0], x[1], x[2],
                                    .where = "i - 9 < j <= i", .form = EG_FUSED);
        ck_assert(eg_size(y) * 4 > EG_STREAM_BYTES);
        ck_assert_int_eq(eg_grad(y, x[3], 3, x, dx), 0);
        for (int64_t b = 0; b < 4; b++) {
            eg_tensor *part[4], *own[3];
            for (int t = 0; t < 4; t++) part[t] = eg_copy(eg_slice_axis(x[t], 0, b, b + 1, 1));
            eg_tensor *one = eg_attention("bihd,bjhd,bjhe->bihe", part[0], part[1], part[2],
                                          .where = "i - 9 < j <= i", .form = EG_FUSED);
            ck_assert_int_eq(eg_grad(one, part[3], 3, part, own), 0);
            ck_assert(same_bits(one, eg_slice_axis(y, 0, b, b + 1, 1)));
            for (int t = 0; t < 3; t++)
                ck_assert(same_bits(own[t], eg_slice_axis(dx[t], 0, b, b + 1, 1)));
        }
        eg_close(c);
    }
}
