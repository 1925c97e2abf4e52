/* test_heads.c: measures of heads, their similarity, and the loss that keeps them different. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include "tests.h"

static eg_ctx *cx;
static void setup(void) { cx = eg_open(.dtype = EG_F64, .seed = 5); }
static void teardown(void) { eg_close(cx); }
#define near(a, b) ck_assert_double_eq_tol((a), (b), 1e-12)

/* Five heads with known patterns, 16 queries and keys each. */
static eg_tensor *habits(void)
{
    enum { N = 16 };
    static double w[2][5][N][N];
    memset(w, 0, sizeof w);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < N; i++) {
            w[b][0][i][i ? i - 1 : 0] = 1;                       /* the one before */
            for (int j = 0; j < N; j++) w[b][1][i][j] = 1.0 / N; /* equal weights */
            /* a few positions, the same for each query */
            w[b][2][i][3] = 0.6, w[b][2][i][11] = 0.3, w[b][2][i][15] = 0.1;
            /* all positions, not equally */
            for (int j = 0; j < N; j++) w[b][3][i][j] = j % 2 ? 0.02 : 0.105;
        } /* the fifth attends to nothing */
    return eg_from(cx, &w[0][0][0][0], 2, 5, N, N);
}

GROUP("numbers", .setup = setup, .teardown = teardown)

TEST(a_label_for_each_head)
{
    static const char *const label[] = { "local", "uniform", "sparse", "global", "empty" };
    const eg_head *h = eg_heads(habits(), "b [h] i j");
    eg_assert_ok(cx);
    for (int k = 0; k < 5; k++) ck_assert_str_eq(h[k].label, label[k]);
    ck_assert(h[0].rows == 32 && h[0].empty == 0 && h[4].rows == 0 && h[4].empty == 32);
    near(h[0].previous, 15.0 / 16);
    near(h[0].self, 1.0 / 16);
    near(h[0].first, 2.0 / 16);
    near(h[0].next, 0);
    near(h[0].distance, 15.0 / 16);
    near(h[0].entropy, 0);
    near(h[0].saturated, 1);
    near(h[0].top, 1);
    near(h[1].entropy, log(16));
    near(h[1].spread, 1);
    near(h[1].top, 3.0 / 16);
    near(h[1].saturated, 0);
    near(h[1].distance, (16 * 16 - 1) / 48.0); /* mean |i − j| = (n² − 1)/3n */
    near(h[2].entropy, -0.6 * log(0.6) - 0.3 * log(0.3) - 0.1 * log(0.1));
    near(h[2].spread, h[2].entropy / log(3));
    near(h[2].top, 1);
    near(eg_heads(habits(), "b [h] i j", .top = 1)[2].top, 0.6);
}

/* Any order of axes, a single map, names, f32, an offset. */
TEST(layouts_agree)
{
    eg_tensor *w = eg_softmax("b h i [j]", eg_normal(cx, 0, 2, 3, 2, 5, 7));
    const eg_head *h = eg_heads(w, "b [h] i j"),
                  *p = eg_heads(eg_permute(w, 0, 2, 3, 1), .spec = "b i j [h]"),
                  *n = eg_heads(w, .spec = "batch [head] query key"),
                  *f = eg_heads(eg_cast(w, EG_F32), .spec = "b[h]ij");
    eg_assert_ok(cx);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(h[k].rows, 15);
        ck_assert(memcmp(&h[k].entropy, &p[k].entropy, sizeof(double)) == 0 ||
                  fabs(h[k].entropy - p[k].entropy) < 1e-14);
        near(h[k].distance, p[k].distance);
        near(h[k].top, n[k].top);
        ck_assert_double_eq_tol(h[k].spread, f[k].spread, 1e-6);
    }
    const eg_head *one = eg_heads(eg_select_axis(w, 0, 1), "[h] i j"),
                  *moved = eg_heads(w, "b [h] i j", .offset = 2);
    ck_assert_int_eq(one[0].rows, 5);
    double sum = 0; /* E|i + 2 − j|, computed directly */
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < 7; j++) sum += abs(i + 2 - j) * eg_get(w, b, 1, i, j);
    near(moved[1].distance, sum / 15);
}

/* The weights of eg_attention have the output's order by default, and those of a module have heads
 * first. */
TEST(each_source_of_weights_has_its_spec)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 3, 4), *mine, *named;
    eg_attention("bihd,bjhd,bjhe->bihe", x, x, x, .where = "j == i - 1 | j == 0 & i == 0",
                 .weights = &mine);
    eg_attention("bihd,bjhd,bjhe->bihe", x, x, x, .where = "j == i - 1 | j == 0 & i == 0",
                 .weights = &named, .weights_axes = "bhij");
    const eg_head *h = eg_heads(mine, "b i [h] j"), *n = eg_heads(named, "b [h] i j");
    eg_assert_ok(cx);
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(h[k].rows, 12);
        near(h[k].previous, 5.0 / 6);
        ck_assert_mem_eq(&h[k], &n[k], sizeof *h);
    }
}

/* The first head of the worked example of test_textbook.c: with W_q and W_k × 0.1, and unchanged,
 * where it is saturated. */
TEST(entropy_and_saturation)
{
    static const double q[4][4] = { { 20.4, 24.0, 27.6, 31.2 },
                                    { 24.0, 28.4, 32.8, 37.2 },
                                    { 27.6, 32.8, 38.0, 43.2 },
                                    { 31.2, 37.2, 43.2, 49.2 } };
    static const double k[4][4] = { { 24.0, 20.4, 31.2, 27.6 },
                                    { 28.4, 24.0, 37.2, 32.8 },
                                    { 32.8, 27.6, 43.2, 38.0 },
                                    { 37.2, 31.2, 49.2, 43.2 } };
    static const double entropy[] = { 0.303916, 0.209767, 0.144103, 0.098487 };
    eg_tensor *s = eg_scale(
        eg_einsum("id,jd->ij", eg_from(cx, &q[0][0], 4, 4), eg_from(cx, &k[0][0], 4, 4)), 0.5);
    eg_tensor *mild = eg_softmax("i [j]", eg_scale(s, 0.01)), *hard = eg_softmax("i [j]", s);
    double mean = 0;
    for (int i = 0; i < 4; i++) {
        const eg_head *row =
            eg_heads(eg_unsqueeze(eg_slice_axis(mild, 0, i, i + 1, 1), 0), "[h] i j");
        ck_assert_double_eq_tol(row->entropy, entropy[i], 1e-6);
        mean += row->entropy / 4;
    }
    near(eg_heads(eg_unsqueeze(mild, 0), "[h] i j")->entropy, mean);
    near(eg_heads(eg_unsqueeze(mild, 0), "[h] i j")->saturated, 0);
    near(eg_heads(eg_unsqueeze(hard, 0), "[h] i j")->saturated, 1);
}

/* -- similarity -------------------------------------------------------------------------------- */
TEST(similarity_is_the_mean_cosine)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 4, 5), *s = eg_head_similarity("b [h] i d", x);
    ck_assert(eg_rank(s) == 2 && eg_dim(s, 0) == 3 && eg_dim(s, 1) == 3);
    for (int h = 0; h < 3; h++)
        for (int g = 0; g < 3; g++) {
            double want = 0;
            for (int b = 0; b < 2; b++)
                for (int i = 0; i < 4; i++) {
                    double hg = 0, hh = 0, gg = 0;
                    for (int d = 0; d < 5; d++) {
                        double p = eg_get(x, b, h, i, d), q = eg_get(x, b, g, i, d);
                        hg += p * q, hh += p * p, gg += q * q;
                    }
                    want += hg / sqrt(hh * gg) / 8;
                }
            near(eg_get(s, h, g), want);
        }
    eg_assert_close(eg_head_similarity("i [head] batch d", eg_permute(x, 2, 1, 0, 3)), s, 1e-12);
    eg_tensor *w = eg_head_similarity("b [h] i j", habits());
    /* zeros are similar to nothing */
    near(eg_get(w, 0, 0), 1);
    near(eg_get(w, 4, 4), 0);
    near(eg_get(w, 0, 4), 0);
}

static eg_tensor *f_similarity(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_head_similarity("b [h] i d", x[0]);
}
static eg_tensor *f_diversity(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_head_diversity("b i [h] d", eg_permute(x[0], 0, 2, 1, 3));
}
TEST(gradients_to_second_order)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 2, 3);
    eg_assert_grad2(f_similarity, NULL, x);
    eg_assert_grad2(f_diversity, NULL, x);
    eg_tensor *w = habits(), *d; /* a head of zeros: gradient 0, no NaN */
    ck_assert_int_eq(eg_grad(eg_head_diversity("b [h] i j", w), NULL, 1, &w, &d), 0);
    ck_assert_double_eq(eg_item(eg_sum(NULL, eg_abs(eg_select_axis(d, 1, 4)))), 0);
    ck_assert(isfinite(eg_item(eg_sum(NULL, d))));
}

/* Equal heads have similarity 1, disjoint ones 0; descending the loss makes them different. */
TEST(diversity_loss_decreases_the_similarity_of_heads)
{
    eg_tensor *one =
        eg_softmax("b h i [j]", eg_expand(eg_normal(cx, 0, 1, 1, 1, 4, 4), 1, 3, 4, 4));
    near(eg_item(eg_head_diversity("b [h] i j", one)), 1);
    static const double apart[2][2][2] = { { { 1, 0 }, { 0, 1 } }, { { 0, 1 }, { 1, 0 } } };
    near(eg_item(eg_head_diversity("[h] i j", eg_from(cx, &apart[0][0][0], 2, 2, 2))), 0);
    near(eg_item(eg_head_diversity("[h] i j", eg_ones(cx, 1, 2, 2))), 0);
    eg_params *p = eg_params_open(cx);
    eg_tensor *x = eg_init_normal(eg_param(p, "s", "h i j", 3, 6, 6), 0.01);
    eg_opt *op = eg_adam(p, .lr = 0.1);
    double first = 0, last = 0;
    for (int step = 0; step < 60; step++) {
        eg_mark m = eg_push(cx);
        eg_tensor *loss = eg_head_diversity("[h] i j", eg_softmax("h i [j]", x));
        last = eg_item(loss);
        if (!step) first = last;
        eg_step(op, loss);
        eg_pop(cx, m);
    }
    eg_assert_ok(cx);
    ck_assert_msg(first > 0.99 && last < 0.2, "from %g to %g", first, last);
}

/* -- without the weights ---------------------------------------------------------------------- */
#define CALL "bihd,bjhd,bjhe->bihe", x[0], x[1], x[2], .where = "j <= i", .keep = { "bj", keep }
static void three(eg_tensor **x)
{
    for (int k = 0; k < 3; k++) x[k] = eg_normal(cx, 0, 1, 2, 6, 3, 4);
}
static eg_tensor *some_keys(void) /* the first row of batch 1 has no key */
{
    static const bool keep[2][6] = { { true, true, true, false, true, true },
                                     { false, true, true, true, true, false } };
    return eg_from(cx, &keep[0][0], 2, 6);
}
TEST(measures_of_heads_agree_with_the_weights)
{
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_tensor *x[3], *keep = some_keys(), *w, *dx[3], *want[3];
        three(x);
        eg_attention(CALL, .weights = &w, .weights_axes = "bihj");
        eg_tensor *safe = eg_where(eg_gt(w, eg_zeros_like(w)), w, eg_ones_like(w)),
                  *h = eg_neg(eg_sum("b i h [j]", eg_mul(safe, eg_log(safe))));
        eg_tensor *entropy = eg_attention_entropy(CALL, .form = (eg_form)form);
        eg_assert_close(entropy, h, 1e-12);
        eg_tensor *before = eg_attention_mass("j == i - 1", CALL, .form = (eg_form)form);
        for (int b = 0; b < 2; b++)
            for (int i = 1; i < 6; i++) near(eg_get(before, b, i, 1), eg_get(w, b, i, 1, i - 1));
        near(eg_get(before, 0, 0, 0), 0);
        near(eg_get(before, 1, 0, 0), 0);
        eg_tensor *like = eg_attention_similarity("h", CALL, .form = (eg_form)form),
                  *as = eg_head_similarity("b i [h] j", w);
        eg_assert_close(like, as, 1e-12);
        eg_tensor *g = eg_normal(cx, 0, 1, 3, 3), *e = eg_normal(cx, 0, 1, 2, 6, 3);
        ck_assert_int_eq(eg_grad(like, g, 3, x, dx), 0);
        ck_assert_int_eq(eg_grad(as, g, 3, x, want), 0);
        for (int k = 0; k < 3; k++) eg_assert_close(dx[k], want[k], 1e-11);
        ck_assert_int_eq(eg_grad(entropy, e, 2, x, dx), 0);
        ck_assert_int_eq(eg_grad(h, e, 2, x, want), 0);
        for (int k = 0; k < 2; k++) eg_assert_close(dx[k], want[k], 1e-11);
        eg_assert_ok(cx);
    }
}

/* The gradient of the entropy takes less memory than the weights of one head. */
TEST(the_gradient_of_the_entropy_keeps_no_weights)
{
    enum { N = 400 };
    eg_tensor *x[2] = { eg_normal(cx, 0, 1, N, 2, 4), eg_normal(cx, 0, 1, N, 2, 4) }, *dx[2];
    eg_stats_reset(cx);
    const size_t before = eg_stats(cx).used;
    eg_tensor *h = eg_attention_entropy("ihd,jhd,jhe->ihe", x[0], x[1], x[1], .where = "j <= i");
    ck_assert_int_eq(eg_grad(h, eg_ones_like(h), 2, x, dx), 0);
    ck_assert_uint_lt(eg_stats(cx).used_peak - before, N * N * sizeof(double));
    eg_assert_ok(cx);
}
/* Two letters are summed in q·k, one of which the values have in the output, and the scale is
 * given; values of other sizes are refused. */
TEST(the_entropy_of_scores_over_two_letters)
{
    static const double scale[] = { 0, 0.3, EG_OFF };
    eg_tensor *q = eg_normal(cx, 0, 1, 5, 3, 2), *k = eg_normal(cx, 0, 1, 6, 2, 3), *w;
    for (int s = 0; s < 3; s++) {
        eg_attention("i c d, j d c, j e -> i e", q, k, eg_ones(cx, 6, 1), .scale = scale[s],
                     .weights = &w);
        eg_assert_close(eg_attention_entropy("i c d, j d c, j e -> i e", q, k, eg_ones(cx, 6, 1),
                                             .scale = scale[s]),
                        eg_neg(eg_sum("i [j]", eg_mul(w, eg_log(w)))), 1e-12);
    }
    eg_assert_ok(cx);
    ck_assert(!eg_ok(eg_attention_entropy("i c d, j d c, j e -> i e", q, k, eg_ones(cx, 7, 1))));
    eg_assert_error(cx, "index 'j' is 6 in the key but 7 in the value");
}

/* Letters with blanks between them are letters for .weights_axes too, which the probes set: read as
 * a name, "bihj" would have no size. */
TEST(blanks_between_letters_change_no_measure)
{
    const char *spaced = "b i h d, b j h d, b j h e -> b i h e", *close = "bihd,bjhd,bjhe->bihe";
    eg_tensor *x[3], *w, *v;
    three(x);
    eg_attention(spaced, x[0], x[1], x[2], .weights = &w, .weights_axes = "bihj");
    eg_attention(close, x[0], x[1], x[2], .weights = &v, .weights_axes = "bihj");
    eg_assert_close(w, v, 0);
    eg_assert_close(eg_attention_mass("j == 0", spaced, x[0], x[1], x[2]),
                    eg_attention_mass("j == 0", close, x[0], x[1], x[2]), 0);
    eg_assert_close(eg_attention_entropy(spaced, x[0], x[1], x[2]),
                    eg_attention_entropy(close, x[0], x[1], x[2]), 0);
    eg_assert_close(eg_attention_similarity("h", spaced, x[0], x[1], x[2]),
                    eg_attention_similarity("h", close, x[0], x[1], x[2]), 0);
    eg_assert_ok(cx);
}

/* The offset applies to one index of .where, region and score together, which .where and score,
 * that determine all of the weight, need not have. */
LOOP_TEST(an_offset_moves_the_region, 12)
{
    static const struct {
        const char *where, *region, *score, *moved[3];
    } cases[] = {
        { NULL, "j == i", NULL, { NULL, "j == i + 3" } },
        { "j < 5", "j == i", NULL, { "j < 5", "j == i + 3" } },
        { "j <= h + 2", "j == i", NULL, { "j <= h + 2", "j == i + 3" } },
        { NULL, "j == i", "score - h", { NULL, "j == i + 3", "score - h" } },
        { "j <= i", "j > 2", NULL, { "j <= i + 3", "j > 2" } },
        { NULL, "j > h", "score - i * j", { NULL, "j > h", "score - (i + 3) * j" } },
    };
    const char *where = cases[_i / 2].where,
               *score = cases[_i / 2].score, *const *moved = cases[_i / 2].moved;
    eg_tensor *x[3], *q, *m, *w;
    three(x);
    q = eg_slice_axis(x[0], 1, 0, 2, 1);
    m = eg_attention_mass(cases[_i / 2].region, "bihd,bjhd,bjhe->bihe", q, x[1], x[2], .offset = 3,
                          .where = where, .score = score, .offset_letter = _i % 2 ? "i" : NULL);
    w = eg_attention_mass(moved[1], "bihd,bjhd,bjhe->bihe", q, x[1], x[2], .where = moved[0],
                          .score = moved[2]);
    eg_assert_close(m, w, 1e-12);
    eg_assert_ok(cx);
}

TEST(an_offset_may_move_the_head)
{
    eg_tensor *x[3];
    three(x);
    eg_assert_close(eg_attention_similarity("h", "bihd,bjhd,bjhe->bihe", x[0], x[1], x[2],
                                            .offset = 2, .where = "j <= h"),
                    eg_attention_similarity("h", "bihd,bjhd,bjhe->bihe", x[0], x[1], x[2],
                                            .where = "j <= h + 2"),
                    1e-12);
    eg_assert_ok(cx);
}

/* A mask of the head alone, whose name is a word, is not read as letters. */
TEST(names_and_letters_give_one_similarity)
{
    eg_tensor *x[3], *t = eg_from(cx, ((int64_t[]){ 1, 3, 6 }), 3);
    three(x);
    eg_tensor *s = eg_attention_similarity("h", "bihd,bjhd,bjhe->bihe", x[0], x[1], x[2],
                                           .lengths = { "h", t });
    eg_assert_close(eg_attention_similarity("head",
                                            "batch query head d, batch key head d, batch key head "
                                            "e -> batch query head e",
                                            x[0], x[1], x[2], .lengths = { "head", t }),
                    s, 0);
    eg_assert_ok(cx);
}

/* Masks that differ between heads: only keys that both heads may see count, and a head that sees
 * nothing is like no other. */
LOOP_TEST(similarity_with_masks_of_heads, 14)
{
    static const char *const wheres[] = { "j <= i + h",
                                          "h != 1 | j == 0",
                                          "h > 0 & b < |h| - 1",
                                          "see[h, j] & j <= i",
                                          "!(h == 2 ? see[b % 2, j] : see[h, i])",
                                          "j % h == 0 | i / (h - 1) == 1",
                                          "j >= i" };
    const bool masks = _i % 7 == 6; /* .keep and .lengths with the letter h */
    eg_tensor *x[3], *w, *dx[2], *want[2],
        *see = eg_gt(eg_normal(cx, 0.3, 1, 3, 6), eg_zeros(cx, 1)),
        *keep = eg_randint(cx, 0, 3, 3, 6), *t = eg_randint(cx, 0, 7, 3, 2);
    three(x);
    eg_attention_args o = { .size = sizeof o,
                            .spec = "bihd,bjhd,bjhe->bihe",
                            .q = x[0],
                            .k = x[1],
                            .v = x[2],
                            .where = wheres[_i % 7],
                            .form = _i < 7 ? EG_FUSED : EG_UNFUSED,
                            .weights_axes = "bihj" };
    if (strstr(o.where, "see")) o.with[0] = (eg_given){ "see", see };
    if (masks) o.keep = (eg_masked){ "hj", keep }, o.lengths = (eg_masked){ "hb", t };
    eg_tensor *like = eg_attention_similarity_with(&o, "h"), *g = eg_normal(cx, 0, 1, 3, 3);
    o.weights = &w;
    o.form = EG_UNFUSED;
    eg_attention_with(&o);
    eg_tensor *as = eg_head_similarity("b i [h] j", w);
    eg_assert_ok(cx);
    eg_assert_close(like, as, 1e-12);
    ck_assert(!eg_grad(like, g, 2, x, dx) && !eg_grad(as, g, 2, x, want));
    for (int k = 0; k < 2; k++) eg_assert_close(dx[k], want[k], 1e-11);
    eg_assert_ok(cx);
}

/* c ? a : b is a condition if a and b are, even if the tensors are not known yet. */
TEST(a_choice_between_conditions_is_a_condition)
{
    eg_tensor *x[3], *see = eg_gt(eg_normal(cx, 0.3, 1, 2, 6), eg_zeros(cx, 1)), *w;
    three(x);
    eg_attention_args o = { .size = sizeof o,
                            .spec = "bihd,bjhd,bjhe->bihe",
                            .q = x[0],
                            .k = x[1],
                            .v = x[2],
                            .where = "!(i < 3 ? see[b, j] : see[b, i])",
                            .with = { { "see", see } } };
    eg_tensor *mass = eg_attention_mass_with(&o, "i < 2 ? see[b, i] : see[b, j]");
    o.weights = &w, o.weights_axes = "bihj";
    eg_attention_with(&o);
    eg_tensor *in = eg_where_mask(cx, "i < 2 ? see[b, i] : see[b, j]", "b i [j]",
                                  .with = { { "see", see } }, .sizes = (int64_t[]){ 2, 6, 6 });
    eg_assert_close(mass, eg_einsum("bihj,bij->bih", w, eg_cast(in, EG_F64)), 1e-12);
    eg_assert_ok(cx);
}

/* A query that is NaN has no entropy, in either form; a row without keys has entropy 0. */
TEST(measures_of_heads_of_nan_are_nan)
{
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_tensor *x[3], *keep = some_keys(), *l;
        three(x);
        eg_mut_f64(x[0])[(2 * 3 + 1) * 4] = NAN;
        eg_attention(CALL, .lse = &l, .weights_axes = "bihj", .form = (eg_form)form);
        ck_assert(isnan(eg_get(l, 0, 2, 1)) && eg_get(l, 1, 0, 0) == -INFINITY);
        eg_tensor *h = eg_attention_entropy(CALL, .form = (eg_form)form);
        ck_assert(isnan(eg_get(h, 0, 2, 1)) && isfinite(eg_get(h, 0, 2, 0)) &&
                  eg_get(h, 1, 0, 0) == 0);
        eg_assert_ok(cx);
    }
}

TEST(measures_of_heads_refuse_other_operands)
{
    eg_tensor *x[3], *keep = some_keys();
    three(x);
    ck_assert(!eg_ok(eg_attention_mass("j = 0", CALL)));
    eg_assert_error(cx, "");
    ck_assert(!eg_ok(eg_attention_mass(NULL, CALL)));
    eg_assert_error(cx, "attention_mass: the region is NULL");
    /* a tensor that only the region reads; one that nothing reads */
    eg_tensor *doc = eg_full_n(cx, EG_I64, 1, 1, (int64_t[]){ 6 });
    eg_tensor *all = eg_attention_mass("doc[i] == doc[j]", CALL, .with = { { "doc", doc } });
    eg_assert_close(all, eg_attention_mass("j >= 0", CALL), 1e-13);
    ck_assert(!eg_ok(eg_attention_mass("j == 0", CALL, .with = { { "doc", doc } })));
    eg_assert_error(cx, "attention_mass: 'doc' of .with is not in .where, .score or the region");
    ck_assert(!eg_ok(eg_attention_entropy(CALL, .with = { { "doc", doc } })));
    eg_assert_error(cx, "'doc' of .with is not used in .where or .score");
    ck_assert(!eg_ok(eg_attention_similarity("z", CALL)));
    eg_assert_error(cx, "attention_similarity: query, key and output have no common index 'z'");
    ck_assert(!eg_ok(eg_attention_entropy(CALL, .bias = { "ij", eg_ones(cx, 6, 6) })));
    eg_assert_error(cx, "attention_entropy: a .bias is no part of q·k");
    ck_assert(!eg_ok(eg_attention_entropy(CALL, .alibi = { "h", eg_full(cx, 2, 3) })));
    eg_assert_error(cx, "attention_entropy: .alibi is no part of q·k");
    ck_assert(!eg_ok(eg_attention_similarity("h", CALL, .alibi = { "h", eg_full(cx, 2, 3) })));
    eg_assert_error(cx, "attention_similarity: .alibi is no part of q·k");
    ck_assert(!eg_ok(eg_attention_entropy("id,jhd,jhe->ihe", eg_ones(cx, 4, 3),
                                          eg_ones(cx, 4, 1, 3), eg_ones(cx, 4, 1, 3))));
    eg_assert_error(cx, "'h' is in key and output, but not in the query");
    ck_assert(
        !eg_ok(eg_attention_entropy("b i (h d), b j (h d), b j e -> b i e", x[0], x[1], x[2])));
    eg_assert_error(cx, "without groups");
    ck_assert(!eg_ok(eg_attention_entropy("bihd,bjhd", x[0], x[1], x[2])));
    eg_assert_error(cx, "attention");
}

TEST(wrong_specs_of_heads_are_refused)
{
    eg_tensor *w = eg_ones(cx, 2, 3, 4, 4);
    static const struct {
        const char *spec, *says;
    } bad[] = {
        { "b h i j",
          "head_similarity: one index, the head's, must be in brackets, as in \"b [h] i j\"\n"
          "  b h i j\n  ^^^^^^^" },
        { "b [h i] j", "one index, the head's, must be in brackets" },
        { "b [h] i", "head_similarity: the string names 3 axes, but the tensor has 4" },
        { "b [h] i i", "index 'i' occurs twice\n  b [h] i i\n          ^" },
        { "b [h] ... j", "without groups, 1 and '...'\n  b [h] ... j\n        ^^^" },
        { "b [h i j", "'[' is not closed" },
        { "b ]h[ i j", "']' closes nothing" },
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ck_assert(!eg_ok(eg_head_similarity(bad[k].spec, w)));
        eg_assert_error(cx, bad[k].says);
    }
    ck_assert(!eg_ok(eg_head_diversity(NULL, w)));
    eg_assert_error(cx, "head_diversity: the spec is NULL");
    ck_assert_ptr_null(eg_heads(eg_ones(cx, 3, 3), .spec = "[h] j"));
    eg_assert_error(cx, "heads: there is no index for the query\n  [h] j");
    ck_assert_ptr_null(eg_heads(w, "b [h] i j", .top = -1));
    eg_assert_error(cx, "heads: .top is -1");
    ck_assert_ptr_null(eg_heads(eg_randint(cx, 0, 2, 2, 3, 4, 4), "b [h] i j"));
    eg_assert_error(cx, "heads: the tensor is i64, not a float");
    ck_assert_ptr_null(eg_heads(NULL));
    eg_tensor *failed = eg_fail(cx, "on purpose");
    eg_clear(cx);
    ck_assert_ptr_null(eg_heads(failed, "b [h] i j"));
    eg_assert_error(cx, "heads: .weights are NULL, failed or gone with their scope");
    ck_assert_ptr_null(eg_heads(w));
    eg_assert_error(cx, "heads: .spec is missing: weights of 4 axes may be \"b [h] i j\", as a "
                        "module gives them, or \"b i [h] j\", as eg_attention does");
    ck_assert(!eg_ok(eg_head_diversity("[h] j", NULL)));
    eg_tensor *q = eg_ones(cx, 2, 3, 4);
    const eg_attention_args without[] = {
        { .size = sizeof *without, .spec = "bid,bjd,bje->bie", .q = NULL, .k = q, .v = q },
        { .size = sizeof *without, .spec = "bid,bjd,bje->bie", .q = q, .k = NULL, .v = q },
        { .size = sizeof *without, .spec = "bid,bjd,bje->bie", .q = q, .k = q, .v = NULL },
        { .size = sizeof *without, .spec = "bid,bjd,bje->bie", .q = q, .k = failed, .v = q },
    };
    for (int k = 0; k < 4; k++) {
        static const char *const says[] = { "the query is NULL", "the key is NULL",
                                            "the value is NULL",
                                            "the key is failed or gone with its scope" };
        ck_assert(!eg_ok(eg_attention_mass_with(&without[k], "j == 0")));
        eg_assert_error(cx, says[k]);
        ck_assert(!eg_ok(eg_attention_entropy_with(&without[k])));
        eg_assert_error(cx, says[k]);
        ck_assert(!eg_ok(eg_attention_similarity_with(&without[k], "b")));
        eg_assert_error(cx, says[k]);
    }
    ck_assert(!eg_ok(eg_attention_mass_with(&without[1], "j == 0")));
    eg_assert_error(cx, "attention_mass: the key");
    eg_tensor *four = eg_ones(cx, 1, 3, 2, 4), *one = eg_ones(cx, 3);
    eg_attention_similarity("h", "bihd,bjhd,bjhe->bihe", one, four, four);
    eg_assert_error(cx, "attention_similarity: operand 1 has rank 1: (3,), its term 'bihd'");
    eg_attention_similarity("h", "bihd,bjhd,bjhe->bihe", four, one, four);
    eg_assert_error(cx, "attention_similarity: operand 2 has rank 1: (3,), its term 'bjhd'");
    const eg_head *none = eg_heads(eg_ones(cx, 0, 2, 3, 3), "b [h] i j");
    ck_assert(none[1].rows == 0 && strcmp(none[1].label, "empty") == 0);
    ck_assert_double_eq(eg_item(eg_head_diversity("b [h] i j", eg_ones(cx, 0, 2, 3, 3))), 0);
    eg_assert_ok(cx);
}
