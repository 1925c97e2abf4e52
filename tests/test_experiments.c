/* test_experiments.c: published attentions, each one call in the language of docs/attention.md: the
 * fused form with all gradients is the composed one, and at 2048 places, 4 heads of 32, it keeps
 * megabytes where the weights alone would take 67. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

/* A tensor of .with: its letters, `t` for a table of 128 places and `w` for one of 32; of integers
 * if `most` > 0, which they stay below, of bools if it is 1. */
typedef struct read_by_name {
    const char *name, *axes;
    int most;
} read_by_name;
typedef struct experiment {
    const char *name, *spec, *where, *score, *sink;
    bool no_softmax;
    read_by_name with[4];
    double megabytes; /* at most, with the gradients of all floats, beside operands and gradients */
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
    { "rows of a grid: axial", "b(y=32 x)hd,b(s=32 t)hd,b(s=32 t)he->b(y x)he", "y == s", NULL,
      NULL, false, { { NULL, NULL, 0 } }, 2.5 },
    { "a temperature for each head", HEADS, NULL, "score * exp(u[h])", NULL, false,
      { { "u", "h", 0 } }, 2.5 },
    { "latents that read a sequence: Perceiver", "bahd,bjhd,bjhe->bahe", NULL, NULL, NULL, false,
      { { NULL, NULL, 0 } }, 2.5 },
};
/* clang-format on */
enum { EXPERIMENTS = sizeof experiments / sizeof *experiments, MOST = 8 };

/* A call of `places` places with its operands in x, floats first to last; returns how many. */
static int call_of(const experiment *e, eg_ctx *cx, eg_dtype type, int64_t places,
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
            if (*c == '(') c = strchr(c, ')'); /* places of a grid */
            dim[rank++] = strchr("ij)", *c)   ? places
                          : *c == 'a'         ? (places < 400 ? places : 400)
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

/* all gradients to 1e-9 of the largest entry in f64; the default form is one of the two, to the
 * bit */
LOOP_TEST(fused_is_composed, EXPERIMENTS)
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

/* the default at 2048 places is the fused form: weights of f32 alone would be 64 MiB */
LOOP_TEST(memory_of_2048_places, EXPERIMENTS)
{
    const experiment *e = &experiments[_i];
    eg_ctx *cx = eg_open(.threads = 1, .flush = true);
    eg_attention_args o;
    eg_tensor *x[MOST], *d[MOST];
    const int n = call_of(e, cx, EG_F32, 2048, &o, x);
    eg_stats_reset(cx);
    const size_t before = eg_stats(cx).used;
    eg_tensor *y = eg_attention_with(&o);
    size_t own = (size_t)eg_size(y) * 4; /* the result, and the gradients that were asked for */
    for (int k = 0; k < n; k++) own += (size_t)eg_size(x[k]) * 4;
    ck_assert(!eg_grad(y, eg_ones_like(y), n, x, d));
    const double held = (double)(eg_stats(cx).used_peak - before - own) / (1 << 20);
    ck_assert_msg(held < e->megabytes, "%s: %.1f MB beside %.1f", e->name, held,
                  (double)own / (1 << 20));
    ck_assert(held + (double)own / (1 << 20) < 16);
    eg_close(cx);
}

/* -- what is more than one call --------------------------------------------------------------- */
static eg_tensor *mixed_before(void *m, eg_tensor *s)
{
    return eg_einsum("bihj,hg->bigj", s, ((eg_tensor **)m)[0]);
}
static eg_tensor *mixed_after(void *m, eg_tensor *w)
{
    return eg_einsum("bihj,hg->bigj", w, ((eg_tensor **)m)[1]);
}
/* talking heads (Shazeer et al. 2020) mix pairs: one call, in memory, and no y too many */
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

/* differential attention (Ye et al. 2024): both maps in one call, their difference beside it; with
 * rotary positions, and RMS norms of the keys (Henry et al. 2020) in front */
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
