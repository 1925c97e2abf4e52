/* test_experiments.c: published attentions, each as one call with the expressions of
 * docs/attention.md: the fused form with all gradients equals the unfused one, and at 2048
 * positions, 4 heads of 32, it takes megabytes where the weights alone would take 67. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

/* A tensor of .with: its letters, `t` for a table of 128 positions and `w` for one of 32; of
 * integers if `most` > 0, which they are below, of bools if it is 1. */
typedef struct read_by_name {
    const char *name, *axes;
    int most;
} read_by_name;
typedef struct experiment {
    const char *name, *spec, *where, *score, *sink;
    bool no_softmax;
    read_by_name with[4];
    /* limit for the gradients of all floats, in addition to operands and gradients */
    double megabytes;
} experiment;

#define HEADS "bihd,bjhd,bjhe->bihe"
/* clang-format off */
static const experiment experiments[] = {
    { "ALiBi with learned slopes", HEADS, "j <= i", "score - u[h] * (i - j)", NULL, false,
      { { "u", "h", 0 } }, 2.5 },
    { "T5's buckets", HEADS, "j <= i", "score + r[h, bucket[clip(i - j, 0, 127)]]", NULL, false,
      { { "r", "hw", 0 }, { "bucket", "t", 32 } }, 2.5 },
    { "a table of distances", HEADS, "j <= i", "score + r[h, clip(i - j, 0, 127)]", NULL, false,
      { { "r", "ht", 0 } }, 2.5 },
    { "soft cap", HEADS, "j <= i", "30 * tanh(score / 30)", NULL, false, { { NULL, NULL,
      0 } }, 2.5 },
    { "forgetting gates", HEADS, "j <= i", "score + c[b,h,i] - c[b,h,j]", NULL, false,
      { { "c", "bhi", 0 } }, 2.5 },
    { "packed documents", HEADS, "j <= i & doc[b,i] == doc[b,j]", NULL, NULL, false,
      { { "doc", "bi", 5 } }, 2.5 },
    { "sigmoid", HEADS, "j <= i", "sigmoid(score + u[h])", NULL, true, { { "u", "h", 0 } }, 2.5 },
    { "retention", HEADS, "j <= i", "score * exp(-abs(u[h]) * (i - j))", NULL, true,
      { { "u", "h", 0 } }, 2.5 },
    { "softmax with one added", HEADS, "j <= i", NULL, "h", false, { { NULL, NULL, 0 } }, 2.5 },
    { "a window beside global tokens", HEADS, "abs(i - j) < 64 | g[b,i] | g[b,j]", NULL, NULL,
      false,
      { { "g", "bi", 1 } }, 2.5 },
    { "grouped heads", "bigrd,bjgd,bjge->bigre", "j <= i", NULL, NULL, false, { { NULL, NULL,
      0 } }, 2.5 },
    { "two maps of one key: differential", "bichd,bjchd,bjhe->biche", NULL, NULL, NULL, false,
      { { NULL, NULL, 0 } }, 6 },
    { "one latent key and value: MLA, absorbed", "bihd,bjd,bje->bihe", "j <= i", NULL, NULL, false,
      { { NULL, NULL, 0 } }, 2.5 },
    { "3 by 3 neighbours on a grid", "b(y=32 x)hd,b(s=32 t)hd,b(s=32 t)he->b(y x)he",
      "abs(y - s) <= 1 & abs(x - t) <= 1", NULL, NULL, false, { { NULL, NULL, 0 } }, 2.5 },
    { "windows that stay inside of a grid: NATTEN", "b(y=32 x)hd,b(s=32 t)hd,b(s=32 t)he->b(y x)he",
      "abs(clip(y, 1, |y| - 2) - s) <= 1 & abs(clip(x, 1, |x| - 2) - t) <= 1",
      "score + r[h, clip(y - s + 2, 0, 4), clip(x - t + 2, 0, 4)]", NULL, false,
      { { "r", "hww", 0 } }, 2.5 },
    { "rows of a grid: axial", "b(y=32 x)hd,b(s=32 t)hd,b(s=32 t)he->b(y x)he", "y == s", NULL,
      NULL, false, { { NULL, NULL, 0 } }, 2.5 },
    { "a temperature for each head", HEADS, NULL, "score * exp(u[h])", NULL, false,
      { { "u", "h", 0 } }, 2.5 },
    { "latents that read a sequence: Perceiver", "bahd,bjhd,bjhe->bahe", NULL, NULL, NULL, false,
      { { NULL, NULL, 0 } }, 2.5 },
    { "logarithm of the distance: KERPLE", HEADS, "j <= i",
      "score - softplus(p[h]) * log(1 + softplus(a[h]) * (i - j))", NULL, false,
      { { "p", "h", 0 }, { "a", "h", 0 } }, 2.5 },
    { "power of the distance: KERPLE", HEADS, "j <= i",
      "score - softplus(p[h]) * pow(i - j, 2 * sigmoid(a[h]))", NULL, false,
      { { "p", "h", 0 }, { "a", "h", 0 } }, 2.5 },
    { "blocks, global and drawn: BigBird", HEADS,
      "abs(i/64 - j/64) <= 1 | j/64 == 0 | drawn[i/64] == j/64", NULL, NULL, false,
      { { "drawn", "w", 32 } }, 2.5 },
    { "documents, a window and a prefix", HEADS,
      "doc[b,i] == doc[b,j] & (j <= i & i - j < 128 | k[b,j] == 0)", NULL, NULL, false,
      { { "doc", "bi", 5 }, { "k", "bi", 9 } }, 2.5 },
    { "a slope of each query: forgetting", HEADS, "j <= i", "score - softplus(s[b,i,h]) * (i - j)",
      NULL, false, { { "s", "bih", 0 } }, 2.5 },
    { "scalable softmax", HEADS, "j <= i", "score * u[h] * log(i + 2)", NULL, false,
      { { "u", "h", 0 } }, 2.5 },
    { "content and distance: DeBERTa", HEADS, NULL,
      "score + a[b,i,h,clip(i - j + 16, 0, 31)] + c[b,j,h,clip(j - i + 16, 0, 31)]", NULL, false,
      { { "a", "bihw", 0 }, { "c", "bjhw", 0 } }, 2.5 },
    { "edges of a graph: GAT", HEADS, "g[b,i] == g[b,j]",
      "score + max(a[b,i,h] + c[b,j,h], 0.2 * (a[b,i,h] + c[b,j,h]))", NULL, false,
      { { "g", "bi", 3 }, { "a", "bih", 0 }, { "c", "bjh", 0 } }, 2.5 },
    { "SiLU without softmax: HSTU", HEADS, "j <= i",
      "(score + r[h, clip(i - j, 0, 127)]) * sigmoid(score + r[h, clip(i - j, 0, 127)]) / |j|",
      NULL, true, { { "r", "ht", 0 } }, 2.5 },
    { "segments: XLNet", HEADS, NULL, "score + (g[b,i] == g[b,j] ? a[b,i,h] : c[b,i,h])", NULL,
      false, { { "g", "bi", 3 }, { "a", "bih", 0 }, { "c", "bih", 0 } }, 2.5 },
    { "points in space", HEADS, NULL,
      "score - softplus(u[h]) * ((x[b,i] - x[b,j]) * (x[b,i] - x[b,j]))", NULL, false,
      { { "u", "h", 0 }, { "x", "bi", 0 } }, 2.5 },
    { "blocks that a router selects: MoBA, NSA", HEADS,
      "j <= i & (i/64 == j/64 | s[b,h,i/64,j/64])", NULL, NULL, false,
      { { "s", "bhww", 1 } }, 2.5 },
    { "a window for each head", HEADS, "0 <= i - j & i - j < n[h]", NULL, NULL, false,
      { { "n", "h", 100 } }, 2.5 },
    { "prefixes of packed documents", HEADS, "doc[b,i] == doc[b,j] & (j <= i | j < n[b,doc[b,j]])",
      NULL, NULL, false, { { "doc", "bi", 5 }, { "n", "bw", 2000 } }, 2.5 },
    { "shifted windows with a table: Swin", "b(y=32 x)hd,b(s=32 t)hd,b(s=32 t)he->b(y x)he",
      "(y + 4) / 8 == (s + 4) / 8 & (x + 4) / 8 == (t + 4) / 8",
      "score + r[h, clip(y - s + 7, 0, 14), clip(x - t + 7, 0, 14)]", NULL, false,
      { { "r", "hww", 0 } }, 2.5 },
    { "a Gaussian window that the query predicts", HEADS, NULL,
      "score - (j - i - m[b,i,h]) * (j - i - m[b,i,h]) / (2 * exp(2 * s[b,i,h]))", NULL, false,
      { { "m", "bih", 0 }, { "s", "bih", 0 } }, 2.5 },
    { "three terms of the exponential: Based", HEADS, "j <= i", "1 + score + score * score / 2",
      NULL, true, { { NULL, NULL, 0 } }, 2.5 },
    { "levels of a Fenwick tree: log-linear attention", HEADS, "j <= i",
      "score * exp(c[b,h,i] - c[b,h,j]) * r[b,i,h,n[i,j]]", NULL, true,
      { { "c", "bhi", 0 }, { "r", "bihw", 0 }, { "n", "ij", 32 } }, 2.5 },
    { "a noisy half beside a clean one: block diffusion", HEADS,
      "i % (|i|/2) / 16 == j % (|j|/2) / 16 & i / (|i|/2) == j / (|j|/2) | "
      "j >= |j|/2 & j % (|j|/2) / 16 < i % (|i|/2) / 16", NULL, NULL, false,
      { { NULL, NULL, 0 } }, 2.5 },
    { "the first key that each query keeps: pruned forgetting", HEADS, "f[b,h,i] <= j & j <= i",
      "score + c[b,h,i] - c[b,h,j]", NULL, false,
      { { "c", "bhi", 0 }, { "f", "bhi", 100 } }, 2.5 },
    { "distance in a ball: hyperbolic attention", HEADS, "j <= i",
      "-softplus(m[h]) * log(1 + 2 * (a[b,i,h] * a[b,i,h] + c[b,j,h] * c[b,j,h] + abs(score)))",
      NULL, false, { { "m", "h", 0 }, { "a", "bih", 0 }, { "c", "bjh", 0 } }, 2.5 },
    { "residues modulo the head: LongNet", HEADS,
      "i / 32 == j / 32 & (i - h) % 2 == 0 & (j - h) % 2 == 0", NULL, NULL, false,
      { { NULL, NULL, 0 } }, 2.5 },
};
/* clang-format on */
enum { EXPERIMENTS = sizeof experiments / sizeof *experiments, MOST = 8 };

/* A call of `positions` positions with its operands in x, floats first; returns their number. */
static int call_of(const experiment *e, eg_ctx *cx, eg_dtype type, int64_t positions,
                   eg_attention_args *o, eg_tensor **x)
{
    const char *s = e->spec;
    int n = 0, given = 0;
    *o = (eg_attention_args){ .size = sizeof *o,
                              .spec = e->spec,
                              .where = e->where,
                              .score = e->score,
                              .no_softmax = e->no_softmax };
    for (int t = 0; t < 3 + (e->sink != NULL) + 4; t++) {
        const bool sink = t == 3 && e->sink;
        const read_by_name *w = t < 3 || sink ? NULL : &e->with[t - 3 - (e->sink != NULL)];
        const char *axes = sink ? e->sink : w ? w->axes : s;
        int64_t dim[8];
        int rank = 0;
        if (!axes) break;
        for (const char *c = axes; *c && *c != ',' && *c != '-'; c++) {
            if (*c == '(') c = strchr(c, ')'); /* positions of a grid */
            dim[rank++] = strchr("ij)", *c)   ? positions
                          : *c == 'a'         ? (positions < 400 ? positions : 400)
                          : *c == 'h'         ? 4
                          : *c == 'b'         ? 1
                          : strchr("grc", *c) ? 2
                          : *c == 't'         ? 128
                          : *c == 'w'         ? 32
                                              : 32;
        }
        if (t < 3) s = strpbrk(s, ",-") + 1;
        eg_tensor *y =
            w && w->most > 1    ? eg_cast(eg_uniform_n(cx, EG_F64, 0, w->most, rank, dim), EG_I64)
            : w && w->most == 1 ? eg_gt(eg_uniform_n(cx, EG_F64, 0, 1, rank, dim),
                                        eg_cast(eg_full(cx, 0.97, 1), EG_F64))
                                : eg_cast(eg_normal_n(cx, EG_F64, 0, 0.7, rank, dim), type);
        if (w && !strcmp(w->name, "doc")) y = eg_sort("b [i]", y);
        if (!w || !w->most) x[n++] = y;
        if (w)
            o->with[given++] = (eg_given){ w->name, y };
        else if (sink)
            o->sink = (eg_masked){ e->sink, y };
        else
            *(t == 0 ? &o->q : t == 1 ? &o->k : &o->v) = y;
    }
    return n;
}

GROUP("experiments", .timeout = 60)

/* all gradients to 1e-9 of the largest entry in f64; the default form has the bits of one of the
 * two */
LOOP_TEST(fused_form_equals_unfused_form, EXPERIMENTS)
{
    const experiment *e = &experiments[_i];
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 7);
    eg_attention_args o;
    eg_tensor *x[MOST], *y[2], *d[2][MOST];
    const int n = call_of(e, cx, EG_F64, 64, &o, x);
    for (int form = 0; form < 2; form++) {
        o.form = form ? EG_UNFUSED : EG_FUSED;
        y[form] = eg_attention_with(&o);
        ck_assert_msg(!eg_error(cx), "%s: %s", e->name, eg_error(cx));
        eg_tensor *seed = eg_sin(eg_scale(y[0], 100));
        ck_assert(!eg_grad(y[form], eg_detach(seed), n, x, d[form]));
    }
    eg_assert_close(y[0], y[1], 1e-12);
    for (int k = 0; k < n; k++) {
        const double most = eg_item(eg_max(NULL, eg_abs(d[1][k])));
        ck_assert_msg(most > 0, "%s: no gradient of operand %d", e->name, k);
        eg_assert_close(eg_scale(d[0][k], 1 / most), eg_scale(d[1][k], 1 / most), 1e-9);
    }
    eg_close(cx);
}

/* the default at 2048 positions is the fused form: weights of f32 alone would be 64 MiB, or 16 at
 * the 1024 under a sanitizer */
LOOP_TEST(memory_of_2048_positions, EXPERIMENTS)
{
    const int length = SLOWER > 1 ? 1024 : 2048;
    const experiment *e = &experiments[_i];
    eg_ctx *cx = eg_open(.threads = 1, .flush = true);
    eg_attention_args o;
    eg_tensor *x[MOST], *d[MOST];
    const int n = call_of(e, cx, EG_F32, length, &o, x);
    eg_stats_reset(cx);
    const size_t before = eg_stats(cx).used;
    eg_tensor *y = eg_attention_with(&o);
    size_t own = (size_t)eg_size(y) * 4; /* the result, and the gradients that were requested */
    for (int k = 0; k < n; k++) own += (size_t)eg_size(x[k]) * 4;
    ck_assert(!eg_grad(y, eg_ones_like(y), n, x, d));
    const double held = (double)(eg_stats(cx).used_peak - before - own) / (1 << 20);
    ck_assert_msg(held < e->megabytes, "%s: %.1f MB beside %.1f", e->name, held,
                  (double)own / (1 << 20));
    ck_assert(held + (double)own / (1 << 20) < 16);
    eg_close(cx);
}

/* -- what takes more than one call ------------------------------------------------------------- */
static eg_tensor *mixed_before(void *m, eg_tensor *s)
{
    return eg_einsum("bihj,hg->bigj", s, ((eg_tensor **)m)[0]);
}
static eg_tensor *mixed_after(void *m, eg_tensor *w)
{
    return eg_einsum("bihj,hg->bigj", w, ((eg_tensor **)m)[1]);
}
/* talking heads (Shazeer et al. 2020) mix pairs: one call, in memory */
TEST(talking_heads)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 20, 4, 8), *k = eg_normal(cx, 0, 1, 2, 20, 4, 8),
              *v = eg_normal(cx, 0, 1, 2, 20, 4, 8),
              *mix[2] = { eg_normal(cx, 0, 1, 4, 4), eg_normal(cx, 0, 1, 4, 4) };
    eg_tensor *y = eg_attention("bihd,bjhd,bjhe->bihe", q, k, v, .where = "j <= i",
                                .score_fn = mixed_before, .weights_fn = mixed_after, .user = mix),
              *s = mixed_before(mix, eg_scale(eg_einsum("bihd,bjhd->bihj", q, k), 1 / sqrt(8))),
              *w = mixed_after(mix, eg_softmax("b i h [j]", s, .where = "j <= i")),
              *z = eg_einsum("bihj,bjhe->bihe", w, v), *xs[] = { q, k, v, mix[0], mix[1] },
              *d[2][5];
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, 20, 4, 8);
    eg_assert_close(y, z, 1e-13);
    ck_assert(!eg_grad(y, seed, 5, xs, d[0]) && !eg_grad(z, seed, 5, xs, d[1]));
    for (int x = 0; x < 5; x++) eg_assert_close(d[0][x], d[1][x], 1e-11);
    eg_close(cx);
}

/* differential attention (Ye et al. 2024): both maps in one call, then their difference; with
 * rotary positions, and RMS norms of the keys (Henry et al. 2020) before */
TEST(differential_attention)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 20, 2, 3, 8), *k = eg_normal(cx, 0, 1, 2, 20, 2, 3, 8),
              *v = eg_normal(cx, 0, 1, 2, 20, 3, 5), *m = eg_from(cx, ((double[]){ 1, -0.6 }), 2),
              *z[2];
    eg_tensor *turned = eg_rotary("b i c h d, i d", eg_rmsnorm("... [d]", q)),
              *keys = eg_rotary("b j c h d, j d", eg_rmsnorm("... [d]", k)),
              *y = eg_einsum(
                  "bichd,c->bihd",
                  eg_attention("bichd,bjchd,bjhe->biche", turned, keys, v, .where = "j <= i"), m);
    for (int c = 0; c < 2; c++)
        z[c] = eg_attention("bihd,bjhd,bjhe->bihe", eg_select_axis(turned, 2, c),
                            eg_select_axis(keys, 2, c), v, .where = "j <= i");
    eg_assert_close(y, eg_sub(z[0], eg_scale(z[1], 0.6)), 1e-13);
    eg_close(cx);
}

/* -- models of papers as users write them, compared with loops --------------------------------- */
enum { T = 5, D = 4, G = 2, R = 2, E = 3, N = 3, C = 2, V = 7, H = 4, F = 6 };
#define EACH(i, n) for (int i = 0; i < (n); i++)
static double dot(const double *a, const double *b, int n)
{
    double s = 0;
    EACH(k, n) s += a[k] * b[k];
    return s;
}
static void share_of(double *w, int n) /* softmax, in place */
{
    double sum = 0;
    EACH(k, n) sum += w[k] = exp(w[k]);
    EACH(k, n) w[k] /= sum;
}

/* Rotary positions and grouped heads: two heads of the query share one key and value. Su et al.
 * 2021, Ainslie et al. 2023 */
static eg_tensor *rotary_groups(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *q = eg_rotary("igrd, id", x[0], .base = 100),
              *k = eg_rotary("jgd, jd", x[1], .base = 100);
    return eg_attention("igrd,jgd,jge->igre", q, k, x[2], .where = "j <= i");
}
static void turn(const double *x, int at, double *y)
{
    EACH(k, D / 2)
    {
        const double a = at * pow(100, -2.0 * k / D), u = x[k], v = x[k + D / 2];
        y[k] = u * cos(a) - v * sin(a);
        y[k + D / 2] = u * sin(a) + v * cos(a);
    }
}
static void rotary_groups_naive(double *const *x, double *y)
{
    EACH(i, T)
    EACH(g, G) EACH(r, R)
    {
        double w[T], q[D], k[D], *out = &y[((i * G + g) * R + r) * E];
        turn(x[0] + ((i * G + g) * R + r) * D, i, q);
        EACH(j, i + 1)
        {
            turn(x[1] + (j * G + g) * D, j, k);
            w[j] = dot(q, k, D) / sqrt(D);
        }
        share_of(w, i + 1);
        EACH(j, i + 1) EACH(e, E) out[e] += w[j] * x[2][(j * G + g) * E + e];
    }
}

/* An induction head: the first layer copies to each position the symbol before it; the second
 * attends to positions that had the same symbol before them. Elhage et al. 2021 */
static eg_tensor *induction(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *before = eg_attention("id,jd,je->ie", x[0], x[0], x[0], .where = "j == i - 1");
    return eg_attention("id,jd,je->ie", x[0], before, x[1], .where = "0 < j & j <= i", .scale = 8);
}
static void induction_naive(double *const *x, double *y)
{
    for (int i = 1; i < T; i++) { /* position 0 has no predecessor, and gets 0 */
        double w[T];
        EACH(j, i) w[j] = 8 * dot(x[0] + i * D, x[0] + j * D, D);
        share_of(w, i);
        EACH(j, i) EACH(e, E) y[i * E + e] += w[j] * x[1][(j + 1) * E + e];
    }
}

/* Slots compete for each input: softmax over the queries, then a mean over the keys. Locatello et
 * al. 2020, equations 1 and 2 */
static eg_tensor *slots(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *a = eg_softmax("[n] j", eg_scale(eg_einsum("nd,jd->nj", x[0], x[1]), 0.5));
    a = eg_on("n j, n", eg_div, a, eg_sum("n [j]", a));
    return eg_einsum("nj,je->ne", a, x[2]);
}
static void slots_naive(double *const *x, double *y)
{
    double a[T][N];
    EACH(j, T)
    {
        EACH(n, N) a[j][n] = 0.5 * dot(x[0] + n * D, x[1] + j * D, D);
        share_of(a[j], N);
    }
    EACH(n, N) EACH(e, E)
    {
        double sum = 0, of = 0;
        EACH(j, T) sum += a[j][n] * x[2][j * E + e], of += a[j][n];
        y[n * E + e] = sum / of;
    }
}

/* A mixture of heads: head 0 is shared, of the others each token takes the two that its router
 * prefers, weighed by the router. MoH, Jin et al. 2024 */
static eg_tensor *head_mixture(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *heads = eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i"),
              *route = eg_softmax("i [h]", eg_slice("i [h]", x[3], 1, H, 1)), *order;
    eg_topk("i [h]", route, 2, .order = &order);
    eg_tensor *taken = eg_sum("i [k] h", eg_cast(eg_one_hot(order, H - 1), eg_type(route))),
              *shared = eg_ones_like(eg_slice("i [h]", x[3], 0, 1, 1)),
              *gate = eg_concat("i [h]", shared, eg_mul(route, taken));
    return eg_einsum("ihe,ih,hem->im", heads, gate, x[4]);
}
static void head_mixture_naive(double *const *x, double *y)
{
    EACH(i, T)
    {
        double gate[H] = { 1 }, route[H - 1], w[T];
        EACH(h, H - 1) route[h] = x[3][i * H + h + 1];
        share_of(route, H - 1);
        EACH(h, H - 1)
        {
            int larger = 0;
            EACH(o, H - 1) larger += route[o] > route[h];
            gate[h + 1] = larger < 2 ? route[h] : 0;
        }
        EACH(h, H)
        {
            EACH(j, i + 1)
            w[j] = dot(x[0] + (i * H + h) * D, x[1] + (j * H + h) * D, D) / sqrt(D);
            share_of(w, i + 1);
            EACH(j, i + 1)
            EACH(e, E)
            EACH(m, D)
            y[i * D + m] += gate[h] * w[j] * x[2][(j * H + h) * E + e] * x[4][(h * E + e) * D + m];
        }
    }
}

/* The delta rule: S <- S + b (v - S k) k', y = S q. Schlag et al. 2021; DeltaNet, Yang et al. 2024
 */
static eg_tensor *delta_rule(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *state = eg_einsum("e,d->ed", eg_zeros_like(eg_select("[i] e", x[2], 0)),
                                 eg_select("[i] d", x[0], 0)),
              *y[T];
    EACH(t, T)
    {
        eg_tensor *q = eg_select("[i] d", x[0], t), *k = eg_select("[i] d", x[1], t),
                  *v = eg_select("[i] e", x[2], t), *rate = eg_sigmoid(eg_select("[i]", x[3], t)),
                  *wrong = eg_sub(v, eg_einsum("ed,d->e", state, k));
        state = eg_add(state, eg_einsum(",e,d->ed", rate, wrong, k));
        y[t] = eg_einsum("ed,d->e", state, q);
    }
    return eg_stack_n("[i] e", T, y);
}
static void delta_rule_naive(double *const *x, double *y)
{
    double state[E][D] = { { 0 } };
    EACH(t, T)
    {
        const double rate = 1 / (1 + exp(-x[3][t])), *k = x[1] + t * D;
        EACH(e, E)
        {
            const double wrong = x[2][t * E + e] - dot(state[e], k, D);
            EACH(d, D) state[e][d] += rate * wrong * k[d];
            y[t * E + e] = dot(state[e], x[0] + t * D, D);
        }
    }
}

/* A selective scan: h <- exp(s A) h + s B x, y = C h + D x, where the step s, B and C depend on the
 * position. Mamba, Gu and Dao 2023, equation 2 and algorithm 2 */
static eg_tensor *selective_scan(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *keep = eg_expr("l c n", "exp(-softplus(s[l,c]) * exp(a[c,n]))",
                              .with = { { "s", x[1] }, { "a", x[2] } }),
              *in = eg_expr("l c n", "softplus(s[l,c]) * b[l,n] * x[l,c]",
                            .with = { { "s", x[1] }, { "b", x[3] }, { "x", x[0] } }),
              *h = eg_linear_scan("[l] c n", keep, in);
    return eg_add(eg_einsum("lcn,ln->lc", h, x[4]), eg_einsum("lc,c->lc", x[0], x[5]));
}
static void selective_scan_naive(double *const *x, double *y)
{
    double h[C][N] = { { 0 } };
    EACH(l, T) EACH(c, C)
    {
        const double step = log1p(exp(x[1][l * C + c])), u = x[0][l * C + c];
        y[l * C + c] = x[5][c] * u;
        EACH(n, N)
        {
            h[c][n] = exp(-step * exp(x[2][c * N + n])) * h[c][n] + step * x[3][l * N + n] * u;
            y[l * C + c] += x[4][l * N + n] * h[c][n];
        }
    }
}

/* The network that shows grokking on a + b mod V: one layer of attention and one of ReLU, without
 * norms, read at the last of three positions. Power et al. 2022; Nanda et al. 2023 */
static const int sums[2][3] = { { 2, 5, V }, { 0, 6, V } };
static eg_tensor *grokking(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *tokens = eg_from(eg_context(x[0]), &sums[0][0], 2, 3),
              *s = eg_on("b i m, i m", eg_add, eg_at("[v] m, b i -> b i m", x[0], tokens), x[1]),
              *q = eg_einsum("bim,hdm->bihd", s, x[2]), *k = eg_einsum("bjm,hdm->bjhd", s, x[3]),
              *v = eg_einsum("bjm,hem->bjhe", s, x[4]),
              *y = eg_attention("bihd,bjhd,bjhe->bihe", q, k, v, .where = "j <= i");
    s = eg_add(s, eg_einsum("bihe,hem->bim", y, x[5]));
    s = eg_add(s, eg_einsum("bif,fm->bim", eg_relu(eg_einsum("bim,fm->bif", s, x[6])), x[7]));
    return eg_einsum("bm,mv->bv", eg_select("b [i] m", s, 2), x[8]);
}
static void grokking_naive(double *const *x, double *y)
{
    EACH(b, 2)
    {
        double s[3][D], last[D], w[3], q[E], key[E];
        EACH(i, 3) EACH(m, D) s[i][m] = x[0][sums[b][i] * D + m] + x[1][i * D + m];
        EACH(m, D) last[m] = s[2][m];
        EACH(h, G)
        {
            EACH(d, E) q[d] = dot(x[2] + (h * E + d) * D, s[2], D);
            EACH(j, 3)
            {
                EACH(d, E) key[d] = dot(x[3] + (h * E + d) * D, s[j], D);
                w[j] = dot(q, key, E) / sqrt(E);
            }
            share_of(w, 3);
            EACH(j, 3)
            EACH(e, E)
            EACH(m, D)
            last[m] += w[j] * dot(x[4] + (h * E + e) * D, s[j], D) * x[5][(h * E + e) * D + m];
        }
        double after[D];
        EACH(m, D) after[m] = last[m];
        EACH(f, F)
        {
            const double a = dot(x[6] + f * D, last, D);
            EACH(m, D) after[m] += (a > 0 ? a : 0) * x[7][f * D + m];
        }
        EACH(v, V) EACH(m, D) y[b * V + v] += after[m] * x[8][m * V + v];
    }
}

/* Stick-breaking: from the key before the query backwards, each key takes its share of what is
 * left. The shares of other keys are a sum along the keys, which an expression of one pair does not
 * have. Tan et al. 2024 */
static eg_tensor *sticks(void *user, eg_tensor *scores)
{
    (void)user;
    eg_tensor *left = eg_expr("i h j", "j < i ? -softplus(s) : 0", .with = { { "s", scores } }),
              *sum = eg_flip("i h [j]", eg_cumsum("i h [j]", eg_flip("i h [j]", left)));
    return eg_expr("i h j", "exp(s + sum)", .with = { { "s", scores }, { "sum", sum } });
}
static eg_tensor *stick_breaking(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j < i", .score_fn = sticks,
                        .no_softmax = true);
}
static void stick_breaking_naive(double *const *x, double *y)
{
    EACH(i, T) EACH(h, H)
    {
        double left = 1;
        for (int j = i - 1; j >= 0; j--) {
            const double s = dot(x[0] + (i * H + h) * D, x[1] + (j * H + h) * D, D) / sqrt(D),
                         share = 1 / (1 + exp(-s));
            EACH(e, E) y[(i * H + h) * E + e] += left * share * x[2][(j * H + h) * E + e];
            left *= 1 - share;
        }
    }
}

/* Softpick: weights max(e^s − 1, 0) / Σ |e^s − 1|, both divided by e^m, m the largest score. The
 * largest scores of one call are a tensor of the next. Zuhri et al. 2025 */
static eg_tensor *softpick(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *one = eg_expr("j e=1", "1 + 0 * k[j,0]", .with = { { "k", x[1] } }), *m;
    eg_attention("id,jd,je->ie", x[0], x[1], one, .where = "j <= i", .max_scores = &m);
    eg_tensor *y = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i",
                                .score = "max(exp(score - m[i]) - exp(-m[i]), 0)",
                                .with = { { "m", m } }, .no_softmax = true),
              *sum = eg_attention("id,jd,je->ie", x[0], x[1], one, .where = "j <= i",
                                  .score = "abs(exp(score - m[i]) - exp(-m[i]))",
                                  .with = { { "m", m } }, .no_softmax = true);
    return eg_div(y, sum);
}
static void softpick_naive(double *const *x, double *y)
{
    EACH(i, T)
    {
        double sum = 0;
        EACH(j, i + 1)
        {
            const double s = expm1(dot(x[0] + i * D, x[1] + j * D, D) / sqrt(D));
            sum += fabs(s);
            EACH(e, E) y[i * E + e] += fmax(s, 0) * x[2][j * E + e];
        }
        EACH(e, E) y[i * E + e] /= sum;
    }
}

/* Negative weights: sign(s) e^|s| / Σ e^|s|. The log-sum-exp of one call is a tensor of the next.
 * Lv et al. 2024 */
static eg_tensor *negative_weights(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *l;
    eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i", .score = "abs(score)",
                 .lse = &l);
    return eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i", .no_softmax = true,
                        .score = "(score > 0 ? 1 : -1) * exp(abs(score) - l[i])",
                        .with = { { "l", l } });
}
static void negative_weights_naive(double *const *x, double *y)
{
    EACH(i, T)
    {
        double sum = 0;
        EACH(j, i + 1)
        {
            const double s = dot(x[0] + i * D, x[1] + j * D, D) / sqrt(D);
            sum += exp(fabs(s));
            EACH(e, E) y[i * E + e] += (s > 0 ? 1 : -1) * exp(fabs(s)) * x[2][j * E + e];
        }
        EACH(e, E) y[i * E + e] /= sum;
    }
}

/* LASER: y = ln Σ w e^v, less the largest v. Duvvuri, Dhillon 2024 */
static eg_tensor *laser(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *most = eg_detach(eg_max("[j] e", x[2])),
              *v = eg_exp(eg_on("je,e", eg_sub, x[2], most));
    eg_tensor *y = eg_attention("id,jd,je->ie", x[0], x[1], v, .where = "j <= i");
    return eg_on("ie,e", eg_add, eg_log(y), most);
}
static void laser_naive(double *const *x, double *y)
{
    EACH(i, T)
    {
        double w[T];
        EACH(j, i + 1) w[j] = dot(x[0] + i * D, x[1] + j * D, D) / sqrt(D);
        share_of(w, i + 1);
        EACH(j, i + 1) EACH(e, E) y[i * E + e] += w[j] * exp(x[2][j * E + e]);
        EACH(e, E) y[i * E + e] = log(y[i * E + e]);
    }
}

/* Multi-token attention: a kernel (a b) over neighbouring queries and keys mixes the scores, of
 * which those of later keys are 0, before the softmax. Golovneva et al. 2025 */
static eg_tensor *neighbours_mixed(void *kernel, eg_tensor *s)
{
    s = eg_expr("i j", "j <= i ? s : 0", .with = { { "s", s } });
    s = eg_pad_axis(eg_pad_axis(s, 0, 1, 0, 0), 1, 1, 1, 0);
    s = eg_unfold_axis(eg_unfold_axis(s, 0, 2, 1), 1, 3, 1);
    return eg_einsum("ijab,ab->ij", s, kernel);
}
static eg_tensor *multi_token(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i",
                        .score_fn = neighbours_mixed, .user = x[3]);
}
static void multi_token_naive(double *const *x, double *y)
{
    EACH(i, T)
    {
        double w[T] = { 0 };
        EACH(j, i + 1) EACH(a, 2) EACH(b, 3)
        {
            const int from = i + a - 1, to = j + b - 1;
            if (from >= 0 && to >= 0 && to <= from)
                w[j] += x[3][a * 3 + b] * dot(x[0] + from * D, x[1] + to * D, D) / sqrt(D);
        }
        share_of(w, i + 1);
        EACH(j, i + 1) EACH(e, E) y[i * E + e] += w[j] * x[2][j * E + e];
    }
}

/* PaTH: the score k_j · H_{j+1} … H_i q_i with H_s = I − β_s w_s w_sᵀ is that of q and k less
 * (q w) (I + A)⁻¹ β (w k), A_st = β_s w_s·w_t for t < s. Yang et al. 2025 */
static eg_tensor *path(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *q = x[0], *k = x[1], *w = x[3], *b = x[4];
    eg_tensor *A = eg_expr("s t", "s == t ? 1 : t < s ? b[s] * g : 0",
                           .with = { { "g", eg_einsum("sd,td->st", w, w) }, { "b", b } }),
              *wk = eg_expr("s j", "j < s ? b[s] * g : 0",
                            .with = { { "g", eg_einsum("sd,jd->sj", w, k) }, { "b", b } }),
              *qw = eg_tril(eg_einsum("id,sd->is", q, w), 0);
    eg_tensor *s =
        eg_sub(eg_einsum("id,jd->ij", q, k),
               eg_einsum("it,tj->ij", qw, eg_solve_triangular("st,sj->tj", A, wk, false)));
    s = eg_softmax("i [j]", eg_scale(s, 1 / sqrt(D)), .where = "j <= i");
    return eg_einsum("ij,je->ie", s, x[2]);
}
static void path_naive(double *const *x, double *y)
{
    EACH(i, T)
    {
        double w[T], q[D];
        memcpy(q, x[0] + i * D, sizeof q);
        for (int j = i; j >= 0; j--) {
            w[j] = dot(q, x[1] + j * D, D) / sqrt(D);
            const double share = x[4][j] * dot(q, x[3] + j * D, D);
            EACH(d, D) q[d] -= share * x[3][j * D + d];
        }
        share_of(w, i + 1);
        EACH(j, i + 1) EACH(e, E) y[i * E + e] += w[j] * x[2][j * E + e];
    }
}

/* Test-time training of a linear map by mini-batches of C tokens, whose gradients are those at the
 * map before the batch. Sun et al. 2024 (TTT-Linear) */
static eg_tensor *trained_at_test(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *S = x[4], *y[T / C + 1];
    int n = 0;
    for (int from = 0; from < T; from += C) {
        const int64_t to = from + C < T ? from + C : T;
        eg_tensor *part[4];
        EACH(k, 4) part[k] = eg_slice_axis(x[k], 0, from, to, 1);
        eg_tensor *error = eg_sub(part[2], eg_einsum("jd,de->je", part[1], S));
        y[n++] = eg_linear_attention("id,jd,je->ie", part[0], part[1],
                                     eg_on("je,j", eg_mul, error, part[3]), .phi = "x",
                                     .no_norm = true, .where = "j <= i", .state = S, .next = &S);
    }
    return eg_concat_axis_n(0, n, y);
}
static void trained_at_test_naive(double *const *x, double *y)
{
    double S[D * E], old[D * E];
    memcpy(S, x[4], sizeof S);
    EACH(i, T)
    {
        if (i % C == 0) memcpy(old, S, sizeof S);
        EACH(e, E)
        {
            double error = x[2][i * E + e];
            EACH(d, D) error -= x[1][i * D + d] * old[d * E + e];
            EACH(d, D) S[d * E + e] += x[3][i] * x[1][i * D + d] * error;
        }
        EACH(d, D) EACH(e, E) y[i * E + e] += x[0][i * D + d] * S[d * E + e];
    }
}

/* DeltaProduct: two keys of each token, one after the other, then the query. Siems et al. 2025 */
static eg_tensor *delta_product(void *user, eg_tensor *const *x)
{
    (void)user; /* q (j d), k (j n d), v (j n e), β (j n) */
    eg_tensor *y = eg_linear_attention(
        "id,jd,je->ie", eg_rearrange("j d -> (j n) d", x[0], .n = 2),
        eg_rearrange("j n d -> (j n) d", x[1]), eg_rearrange("j n e -> (j n) e", x[2]), .phi = "x",
        .no_norm = true, .where = "j <= i", .beta = { "j", eg_rearrange("j n -> (j n)", x[3]) });
    return eg_slice_axis(y, 0, 1, EG_END, 2);
}
static void delta_product_naive(double *const *x, double *y)
{
    double S[D * E] = { 0 };
    EACH(i, T)
    {
        EACH(n, 2) EACH(e, E)
        {
            double u = x[2][(i * 2 + n) * E + e];
            EACH(d, D) u -= x[1][(i * 2 + n) * D + d] * S[d * E + e];
            EACH(d, D) S[d * E + e] += x[3][i * 2 + n] * x[1][(i * 2 + n) * D + d] * u;
        }
        EACH(d, D) EACH(e, E) y[i * E + e] += x[0][i * D + d] * S[d * E + e];
    }
}

static const struct {
    const char *name, *shapes;
    eg_function *f;
    void (*naive)(double *const *x, double *y); /* y is 0 before the call */
} by_hand[] = {
    { "rotary positions and grouped heads", "5x2x2x4, 5x2x4, 5x2x3", rotary_groups,
      rotary_groups_naive },
    { "an induction head", "5x4, 5x3", induction, induction_naive },
    { "stick-breaking", "5x4x4, 5x4x4, 5x4x3", stick_breaking, stick_breaking_naive },
    { "softpick", "5x4, 5x4, 5x3", softpick, softpick_naive },
    { "negative weights", "5x4, 5x4, 5x3", negative_weights, negative_weights_naive },
    { "LASER", "5x4, 5x4, 5x3", laser, laser_naive },
    { "multi-token attention", "5x4, 5x4, 5x3, 2x3", multi_token, multi_token_naive },
    { "PaTH", "5x4, 5x4, 5x3, 5x4, 5", path, path_naive },
    { "test-time training", "5x4, 5x4, 5x3, 5, 4x3", trained_at_test, trained_at_test_naive },
    { "DeltaProduct", "5x4, 5x2x4, 5x2x3, 5x2", delta_product, delta_product_naive },
    { "slot attention", "3x4, 5x4, 5x3", slots, slots_naive },
    { "a mixture of heads", "5x4x4, 5x4x4, 5x4x3, 5x4, 4x3x4", head_mixture, head_mixture_naive },
    { "DeltaNet", "5x4, 5x4, 5x3, 5", delta_rule, delta_rule_naive },
    { "a selective scan", "5x2, 5x2, 2x3, 5x3, 5x3, 2", selective_scan, selective_scan_naive },
    { "the network of grokking", "8x4, 3x4, 2x3x4, 2x3x4, 2x3x4, 2x3x4, 6x4, 6x4, 4x7", grokking,
      grokking_naive },
};
enum { BY_HAND = sizeof by_hand / sizeof *by_hand, OPERANDS = 9 };
LOOP_TEST(forms_without_the_module_equal_loops, BY_HAND)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 12);
    eg_tensor *x[OPERANDS];
    double *at[OPERANDS], want[256] = { 0 };
    int n = 0;
    for (const char *c = by_hand[_i].shapes; *c; n++) {
        int64_t dim[4];
        int rank = 0;
        for (char *end; *c && *c != ','; c = *end == 'x' ? end + 1 : end)
            dim[rank++] = strtoll(c, &end, 10);
        c += strspn(c, ", ");
        x[n] = eg_normal_n(cx, EG_F64, 0, 0.7, rank, dim);
        at[n] = eg_mut_f64(x[n]);
    }
    eg_tensor *y = eg_contiguous(by_hand[_i].f(NULL, x));
    ck_assert_msg(!eg_error(cx), "%s: %s", by_hand[_i].name, eg_error(cx));
    by_hand[_i].naive(at, want);
    for (int64_t k = 0; k < eg_size(y); k++)
        ck_assert_msg(fabs(eg_f64(y)[k] - want[k]) <= 1e-12 * (1 + fabs(want[k])),
                      "%s: entry %d is %g, not %g", by_hand[_i].name, (int)k, eg_f64(y)[k],
                      want[k]);
    eg_assert_gradcheck(by_hand[_i].f, NULL, n, x, .full = true);
    eg_close(cx);
}

/* Keys and values in pages of a pool: page p holds the positions slot[p] · N … of sequence own[p].
 * One query for each sequence reads its own pages, without a copy of them. PagedAttention, Kwon et
 * al. 2023 */
TEST(pages_of_a_pool_are_one_sequence_each)
{
    enum { PAGES = 8, SEQUENCES = 3, LONGEST = 12 };
    static const int own[PAGES] = { 0, 1, 0, 2, 1, -1, 2, 0 },
                     slot[PAGES] = { 0, 0, 1, 0, 1, 0, 1, 2 }, length[SEQUENCES] = { 10, 6, 8 };
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 5);
    eg_tensor *q = eg_normal(cx, 0, 1, SEQUENCES, H, D),
              *k = eg_normal(cx, 0, 1, PAGES, T - 1, H, D),
              *v = eg_normal(cx, 0, 1, PAGES, T - 1, H, E);
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_tensor *y =
            eg_contiguous(eg_attention("bhd,pthd,pthe->bhe", q, k, v, .form = (eg_form)form,
                                       .where = "own[p] == b & slot[p] * |t| + t < length[b]",
                                       .with = { { "own", eg_from(cx, own, PAGES) },
                                                 { "slot", eg_from(cx, slot, PAGES) },
                                                 { "length", eg_from(cx, length, SEQUENCES) } }));
        eg_assert_ok(cx);
        EACH(b, SEQUENCES) EACH(h, H)
        {
            double w[PAGES * (T - 1)], want[E] = { 0 }, sum = 0;
            EACH(p, PAGES) EACH(t, T - 1)
            {
                const int at = (p * (T - 1) + t) * H + h, here = p * (T - 1) + t;
                const bool sees = own[p] == b && slot[p] * (T - 1) + t < length[b];
                w[here] =
                    sees ? exp(dot(eg_f64(q) + (b * H + h) * D, eg_f64(k) + at * D, D) / 2) : 0;
                sum += w[here];
                EACH(e, E) want[e] += w[here] * eg_f64(v)[at * E + e];
            }
            EACH(e, E)
            ck_assert_double_eq_tol(eg_f64(y)[(b * H + h) * E + e], want[e] / sum, 1e-13);
        }
    }
    eg_close(cx);
}
/* The task of an induction head: after a b … a it predicts b. */
TEST(an_induction_head_continues)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *tokens = eg_from(cx, ((int[]){ 3, 0, 2, 1, 3 }), 5), *one = eg_one_hot(tokens, D),
              *x[] = { one, one }, *y = induction(NULL, x);
    ck_assert_int_eq((int)eg_item(eg_argmax(NULL, eg_select("[i] v", y, 4))), 0);
    ck_assert_double_gt(eg_get(y, 4, 0), 0.99);
    eg_assert_ok(cx);
    eg_close(cx);
}
