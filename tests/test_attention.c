/* test_attention.c: attention in any layout against stored values, plain loops, and its own
 * parts. */
#ifdef HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include "tests.h"
#include "stored_values.h"
#include <eingrad.h>

static eg_tensor *causal_heads(void *keep, eg_tensor *const *x)
{
    return eg_attention("ibhd,jbhd,jbhe->ibhe", x[0], x[1], x[2], .where = "j <= i", .offset = 1,
                        .keep = { "bj", keep }, .bias = { "hij", x[3] });
}
TEST(attention_equals_stored_values)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { wave(cx, 0, 4, 2, 2, 3), wave(cx, 1, 5, 2, 2, 3), wave(cx, 2, 5, 2, 2, 2),
                       wave(cx, 3, 2, 4, 5) };
    eg_tensor *keep = eg_from(cx, ((bool[]){ 1, 1, 1, 1, 0, 0, 1, 1, 1, 1 }), 2, 5);
    as_stored(causal_heads(keep, x), ref_attention, 4, x,
              GRADIENTS(ref_attention_d0, ref_attention_d1, ref_attention_d2, ref_attention_d3));
    eg_assert_grad2(causal_heads, keep, x[0], x[1], x[2], x[3]);
    eg_close(cx);
}

TEST(layouts_and_names_agree)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = wave(cx, 0, 4, 2, 3, 6), *k = wave(cx, 1, 5, 2, 3, 6),
              *v = wave(cx, 2, 5, 2, 3, 2);
    eg_tensor *y = eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, v);
    eg_tensor *t = eg_attention("bhid,bhdj,bjhe->bihe", eg_rearrange("ibhd->bhid", q),
                                eg_rearrange("jbhd->bhdj", k), eg_rearrange("jbhe->bjhe", v));
    eg_assert_close(eg_rearrange("bihe->ibhe", t), y, 1e-14);
    eg_assert_close(
        eg_attention(
            "query batch head dim, key batch head dim, key batch head val -> query batch head val",
            q, k, v),
        y, 0);
    eg_tensor *merged = eg_rearrange("ibhd->ib(hd)", q);
    eg_assert_close(eg_attention("ib(hd),jbhd,jbhe->ib(he)", merged, k, v),
                    eg_rearrange("ibhe->ib(he)", y), 0);
    eg_tensor *s = eg_einsum("ibhd,jbhd->bhij", q, k);
    eg_assert_close(
        eg_einsum("bhij,jbhe->ibhe", eg_softmax("b h i [j]", eg_scale(s, 1 / sqrt(6))), v), y,
        1e-14);
    eg_assert_close(eg_attention("... i d, ... j d, ... j e -> ... i e",
                                 eg_rearrange("ibhd->bhid", q), eg_rearrange("jbhd->bhjd", k),
                                 eg_rearrange("jbhe->bhje", v)),
                    eg_rearrange("ibhe->bhie", y), 1e-14);
    eg_close(cx);
}

/* Calls that differ in one option, made in turn, twice: a repeated call is found in the cache of
 * plans, and never another one. */
enum { CALLS = 20 };
static eg_tensor *one_call(eg_ctx *cx, int which)
{
    const eg_dtype dtype = which == 16 ? EG_F32 : EG_F64;
    const int j = which == 17 ? 6 : 5;
    eg_tensor *q = eg_cast(wave(cx, 0, 2, 4, 2, 3), dtype),
              *k = eg_cast(wave(cx, 1, 2, j, 2, 3), dtype);
    eg_tensor *v = eg_cast(wave(cx, 2, 2, j, 2, 3), dtype), *w;
    eg_tensor *added = wave(cx, 3, 2, 4, 5), *some = eg_gt(wave(cx, 4, 2, 5), eg_zeros(cx, 2, 5)),
              *slopes = wave(cx, 5, 2);
    eg_tensor *most = eg_from(cx, ((int64_t[]){ 2, 4 }), 2),
              *least = eg_from(cx, ((int64_t[]){ 5, 1 }), 2);
    static const char spec[] = "bihd,bjhd,bjhe->bihe";
    if (which == 18) q = eg_permute(eg_copy(eg_permute(q, 3, 2, 1, 0)), 3, 2, 1, 0);
    switch (which) {
    case 1: return eg_attention(spec, q, k, v, .where = "j <= i");
    case 2: return eg_attention(spec, q, k, v, .where = "j < i");
    case 3: return eg_attention(spec, q, k, v, .where = "j <= i", .offset = 1);
    case 4: return eg_attention(spec, q, k, v, .scale = .5);
    case 5: return eg_attention(spec, q, k, v, .keep = { "bj", some });
    case 6: return eg_attention(spec, q, k, v, .keep = { "bj", eg_cast(eg_not(some), EG_I32) });
    case 7: return eg_attention(spec, q, k, v, .bias = { "bij", added });
    case 8: return eg_attention(spec, q, k, v, .bias = { "hij", added });
    case 9: return eg_attention(spec, q, k, v, .alibi = { "h", slopes });
    case 10: return eg_attention(spec, q, k, v, .alibi = { "b", slopes });
    case 11: return eg_attention(spec, q, k, v, .lengths = { "b", most });
    case 12: return eg_attention(spec, q, k, v, .lengths = { "b", least });
    case 13: return eg_attention(spec, q, k, v, .weights = &w, .weights_axes = "bhij") ? w : NULL;
    case 14: return eg_attention(spec, q, k, v, .weights = &w, .weights_axes = "hbij") ? w : NULL;
    case 15: return eg_attention("bihd,bjhd,bjhe->ihbe", q, k, v);
    case 19: return eg_attention(spec, q, k, v, .bias = { "b", slopes });
    default: return eg_attention(spec, q, k, v);
    }
}
TEST(cached_plans_do_not_change_the_results_of_other_calls)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64), *other;
    for (int turn = 0; turn < 3; turn++)
        for (int n = 0; n < CALLS; n++) {
            const int which = turn == 1 ? CALLS - 1 - n : n;
            other = eg_open(.dtype = EG_F64);
            eg_tensor *y = eg_contiguous(one_call(cx, which)),
                      *z = eg_contiguous(one_call(other, which));
            eg_assert_ok(cx);
            ck_assert_msg(eg_type(y) == eg_type(z) && eg_rank(y) == eg_rank(z) &&
                              eg_size(y) == eg_size(z),
                          "call %d", which);
            const size_t bytes = (size_t)eg_size(y) * (eg_type(y) == EG_F64 ? 8 : 4);
            ck_assert_msg(!memcmp(eg_raw(y, NULL), eg_raw(z, NULL), bytes), "call %d, turn %d",
                          which, turn);
            eg_close(other);
        }
    eg_tensor *x = wave(cx, 0, 2, 4, 2, 3);
    ck_assert(!eg_ok(eg_attention("bihd,bjhd,bjhe->bihe", x, x, x, .offset = 1)));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), ".offset is 1"));
    eg_close(cx);
}

TEST(weights_times_values)
{
    eg_ctx *cx = eg_open();
    /* d_v ≠ d_k */
    eg_tensor *q = eg_normal(cx, 0, 1, 7, 4), *k = eg_normal(cx, 0, 1, 9, 4),
              *v = eg_normal(cx, 0, 1, 9, 3), *w;
    eg_tensor *z = eg_attention("id,jd,je->ie", q, k, v, .weights = &w);
    const float *a = eg_f32(w), *value = eg_f32(v), *y = eg_f32(z);
    for (int i = 0; i < 7; i++) {
        double row = 0;
        for (int j = 0; j < 9; j++) row += a[i * 9 + j];
        ck_assert_double_eq_tol(row, 1, 9 * 1.2e-7);
        for (int e = 0; e < 3; e++) {
            double sum = 0;
            for (int j = 0; j < 9; j++) sum += (double)a[i * 9 + j] * value[j * 3 + e];
            ck_assert_double_eq_tol(y[i * 3 + e], sum, 1e-6);
        }
    }
    eg_close(cx);
}

TEST(the_scale_is_that_of_the_width)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    const int widths[] = { 64, 16 };
    for (int k = 0; k < 2; k++) { /* Var(q·k) = d, Var(q·k/√d) = 1 */
        const int d = widths[k], n = 20000;
        eg_tensor *q = eg_normal(cx, 0, 1, n, d),
                  *s = eg_einsum("nd,nd->n", q, eg_normal(cx, 0, 1, n, d));
        ck_assert_double_eq_tol(eg_item(eg_var(NULL, s)) / d, 1, .05);
        ck_assert_double_eq_tol(eg_item(eg_var(NULL, eg_scale(s, 1 / sqrt(d)))), 1, .05);
    }
    /* S = 5 and E = 3 differ */
    eg_tensor *q = wave(cx, 0, 5, 3), *k = wave(cx, 1, 7, 3), *v = wave(cx, 2, 7, 2), *w;
    eg_tensor *y = eg_attention("sd,td,te->se", q, k, v, .weights = &w);
    eg_assert_close(w, eg_softmax("s [t]", eg_scale(eg_einsum("sd,td->st", q, k), 1 / sqrt(3))),
                    1e-15);
    eg_assert_close(eg_attention("sd,td,te->se", q, k, v, .scale = 1 / sqrt(3)), y, 0);
    eg_attention("sd,td,te->se", q, k, v, .scale = 1, .weights = &w);
    eg_assert_close(w, eg_softmax("s [t]", eg_einsum("sd,td->st", q, k)), 1e-15);
    eg_attention("sd,td,te->se", q, k, v, .scale = EG_OFF, .weights = &w);
    eg_assert_close(w, eg_full(cx, 1 / 7., 5, 7), 1e-15);
    eg_close(cx);
}

TEST(dropout_acts_on_the_weights)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = wave(cx, 0, 2, 6, 4), *k = wave(cx, 1, 2, 8, 4), *v = wave(cx, 2, 2, 8, 3), *w,
              *d;
    uint64_t draw = eg_draws(cx);
    eg_tensor *y =
        eg_attention("bid,bjd,bje->bie", q, k, v, .dropout = .5, .weights = &w, .dropped = &d);
    eg_set_draws(cx, draw);
    eg_tensor *plain = eg_attention("bid,bjd,bje->bie", q, k, v, .dropout = .5);
    ck_assert(same_bits(plain, y)); /* requesting the weights changes nothing */
    eg_assert_close(eg_sum("b i [j]", w), eg_ones(cx, 2, 6), 1e-15);
    eg_tensor *kept = eg_ne(d, eg_scalar(cx, 0));
    eg_assert_close(eg_where(kept, eg_scale(w, 2), eg_zeros_like(w)), d, 1e-15);
    const double share = eg_item(eg_sum(NULL, kept)) / (double)eg_size(kept);
    ck_assert(share > .3 && share < .7);
    eg_assert_close(eg_einsum("bij,bje->bie", d, v), y, 1e-14);
    eg_eval(cx);
    y = eg_attention("bid,bjd,bje->bie", q, k, v, .dropout = .5, .weights = &w, .dropped = &d);
    eg_assert_close(d, w, 0);
    eg_assert_close(y, eg_attention("bid,bjd,bje->bie", q, k, v), 0);
    eg_close(cx);
}

TEST(grouped_queries)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = wave(cx, 0, 2, 4, 3, 2, 6), *k = wave(cx, 1, 2, 5, 3, 6),
              *v = wave(cx, 2, 2, 5, 3, 2), *w;
    eg_tensor *y = eg_attention("b i g r d, b j g d, b j g e -> b i g r e", q, k, v,
                                .where = "j <= i", .weights = &w);
    eg_assert_axes("b=2 i=4 g=3 r=2 j=5", w);
    eg_tensor *each = eg_attention(
        "b i h d, b j h d, b j h e -> b i h e", eg_rearrange("b i g r d -> b i (g r) d", q),
        eg_rearrange("b j g d -> b j (g r) d", k, .r = 2),
        eg_rearrange("b j g e -> b j (g r) e", v, .r = 2), .where = "j <= i");
    eg_assert_close(eg_rearrange("b i g r e -> b i (g r) e", y), each, 1e-14);
    eg_assert_close(eg_attention("bihd, bjd, bje -> bihe", wave(cx, 0, 2, 4, 3, 6),
                                 wave(cx, 1, 2, 5, 6), wave(cx, 2, 2, 5, 2)),
                    eg_attention("bihd, bjhd, bjhe -> bihe", wave(cx, 0, 2, 4, 3, 6),
                                 eg_rearrange("b j d -> b j h d", wave(cx, 1, 2, 5, 6), .h = 3),
                                 /* one head of keys for all heads of queries */
                                 eg_rearrange("b j e -> b j h e", wave(cx, 2, 2, 5, 2), .h = 3)),
                    1e-14);
    eg_close(cx);
}

TEST(softmax_over_two_letters)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    /* keys on a grid */
    eg_tensor *q = wave(cx, 0, 2, 4, 3), *k = wave(cx, 1, 2, 5, 6, 3), *v = wave(cx, 2, 2, 5, 6, 2);
    eg_tensor *y =
        eg_attention("b i d, b s t d, b s t e -> b i e", q, k, v, .where = "s + t <= i + 2");
    eg_tensor *mask = eg_where_mask(cx, "s + t <= i + 2", "i [s t]", 0, (int64_t[]){ 4, 5, 6 });
    eg_tensor *flat =
        eg_attention("b i d, b j d, b j e -> b i e", q, eg_rearrange("b s t d -> b (s t) d", k),
                     eg_rearrange("b s t e -> b (s t) e", v),
                     .keep = { "ij", eg_rearrange("i s t -> i (s t)", mask) });
    eg_assert_close(y, flat, 1e-14);
    eg_close(cx);
}

/* A head with two names would be attended over together with the keys; several axes of the key are
 * attended over if they are merged in it. */
TEST(a_head_by_two_names_is_refused)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = wave(cx, 0, 2, 4, 6, 3), *k = wave(cx, 1, 2, 5, 6, 3),
              *v = wave(cx, 2, 2, 5, 6, 2);
    const char *says = "attention: the softmax would run over 'j' 'g' together, and 'i' 'h' are "
                       "indices of the query alone; give a head the same letter";
    ck_assert(!eg_ok(eg_attention("bihd,bjgd,bjge->bihe", q, k, v)));
    eg_assert_error(cx, says);
    /* fewer heads of keys */
    ck_assert(!eg_ok(eg_attention("bihd,bjgd,bjge->bihe", q, eg_slice_axis(k, 2, 0, 2, 1),
                                  eg_slice_axis(v, 2, 0, 2, 1))));
    eg_assert_error(cx, says);
    ck_assert(eg_ok(eg_attention("bihd,bjhd,bjhe->bihe", q, k, v)));
    /* one head of keys */
    ck_assert(eg_ok(
        eg_attention("bihd,bjd,bje->bihe", q, eg_select_axis(k, 2, 0), eg_select_axis(v, 2, 0))));
    eg_tensor *grid = eg_attention(
        "b x y d, b (s=5 t) d, b (s t) e -> b x y e", q, eg_rearrange("b s t d -> b (s t) d", k),
        eg_rearrange("b s t e -> b (s t) e", v), .where = "s + t <= x + y");
    eg_tensor *flat = eg_attention(
        "b i d, b s t d, b s t e -> b i e", eg_rearrange("b x y d -> b (x y) d", q), k, v,
        .keep = { "i s t", eg_rearrange("x y s t -> (x y) s t",
                                        eg_where_mask(cx, "s + t <= x + y", "x y [s t]", 0,
                                                      (int64_t[]){ 4, 6, 5, 6 })) });
    eg_assert_close(grid, eg_rearrange("b (x=4 y) e -> b x y e", flat), 1e-14);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(weights_come_in_the_order_asked_for)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = wave(cx, 0, 4, 2, 3, 6), *k = wave(cx, 1, 5, 2, 3, 6),
              *v = wave(cx, 2, 5, 2, 3, 2), *w, *t;
    eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, v, .weights = &w);
    eg_assert_axes("i=4 b=2 h=3 j=5", w); /* the output's letters, the keys last */
    eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, v, .weights = &t, .weights_axes = "b h i j");
    eg_assert_close(t, eg_rearrange("ibhj->bhij", w), 0);
    eg_assert_ok(cx);
    eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, v, .weights = &t, .weights_axes = "bij");
    eg_assert_error(cx, "the weights have the index 'h', which .weights_axes lacks");
    ck_assert(!eg_ok(t));
    eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, v, .weights = &t, .weights_axes = "bhije");
    eg_assert_error(cx, "not an index of the weights");
    eg_close(cx);
}

TEST(a_query_with_no_key_gives_zero)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { wave(cx, 0, 2, 3, 4), wave(cx, 1, 2, 5, 4), wave(cx, 2, 2, 5, 2) }, *dx[3];
    eg_tensor *keep = eg_from(cx, ((int[]){ 0, 0, 0, 0, 0, 1, 0, 7, -1, 0 }), 2, 5);
    eg_tensor *y = eg_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .keep = { "bj", keep });
    eg_assert_close(eg_select_axis(y, 0, 0), eg_zeros(cx, 3, 2), 0);
    eg_grad(eg_sum(NULL, eg_square(y)), NULL, 3, x, dx);
    for (int k = 0; k < 3; k++) {
        eg_assert_close(eg_select_axis(dx[k], 0, 0), eg_zeros_like(eg_select_axis(dx[k], 0, 0)), 0);
        ck_assert_double_eq(eg_item(eg_sum(NULL, eg_isnan(dx[k]))), 0);
    }
    eg_close(cx);
}

TEST(gradients_of_saturated_scores_are_not_nan)
{
    eg_ctx *cx = eg_open();
    eg_tensor *q = eg_scale(eg_normal(cx, 0, 1, 4, 4), 1e15),
              *k = eg_scale(eg_normal(cx, 0, 1, 4, 4), 1e15), *v = eg_normal(cx, 0, 1, 4, 2),
              *dx[3], *w;
    eg_tensor *y = eg_attention("id,jd,je->ie", q, k, v, .weights = &w);
    eg_grad(eg_sum(NULL, y), NULL, 3, (eg_tensor *[]){ q, k, v }, dx);
    eg_assert_close(eg_sum("i [j]", w), eg_ones(cx, 4), 1e-6);
    for (int n = 0; n < 3; n++) ck_assert_double_eq(eg_item(eg_sum(NULL, eg_isnan(dx[n]))), 0);
    eg_close(cx);
}

/* -- a score function of the user's ----------------------------------------------------------- */
static eg_tensor *soft_cap(void *cap, eg_tensor *s)
{
    return eg_scale(eg_tanh(eg_scale(s, 1 / *(double *)cap)), *(double *)cap);
}
/* s[b,h,i,j] + table[h, i − j + n − 1]: Shaw et al. 2018, as T5 has it */
static eg_tensor *relative(void *table, eg_tensor *s)
{
    const int64_t n = eg_dim(s, 2);
    eg_tensor *i = eg_arange(eg_context(s), EG_I64, 0, (double)n, 1),
              *far = eg_add(eg_sub(eg_unsqueeze(i, 1), i),
                            eg_full_n(eg_context(s), EG_I64, (double)(n - 1), 0, NULL));
    return eg_on("bhij, hij", eg_add, s, eg_at("h [r], i j -> h i j", *(eg_tensor **)table, far));
}
static eg_tensor *capped(void *cap, eg_tensor *const *x)
{
    return eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i", .score_fn = soft_cap,
                        .user = cap);
}
static eg_tensor *by_place(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_attention("ibhd,jbhd,jbhe->ibhe", x[0], x[1], x[2], .score_fn = relative,
                        .user = (void *)&x[3], .weights_axes = "b h i j");
}
TEST(a_score_function_of_the_users)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    double cap = 1.5;
    eg_tensor *x[] = { wave(cx, 0, 4, 3), wave(cx, 1, 5, 3), wave(cx, 2, 5, 2) };
    eg_tensor *s = eg_scale(eg_einsum("id,jd->ij", x[0], x[1]), 1 / sqrt(3));
    eg_assert_close(
        capped(&cap, x),
        eg_einsum("ij,je->ie", eg_softmax("i [j]", soft_cap(&cap, s), .where = "j <= i"), x[2]),
        1e-14);
    eg_assert_grad2(capped, &cap, x[0], x[1], x[2]);
    eg_tensor *r[] = { wave(cx, 0, 4, 1, 2, 3), wave(cx, 1, 4, 1, 2, 3), wave(cx, 2, 4, 1, 2, 2),
                       wave(cx, 3, 2, 7) };
    eg_assert_grad(by_place, NULL, r[0], r[1], r[2], r[3]);
    eg_close(cx);
}

/* Scores that a score function takes from pairs that the mask forbids have their gradients too: of
 * q, k and the tensors of the expression; so do those of .scores. */
static eg_tensor *of_the_next_key(void *user, eg_tensor *s)
{
    (void)user;
    return eg_pad("h i [j]", eg_slice("h i [j]", s, 1, EG_END, 1), 0, 1, 0);
}
static eg_tensor *heads_mixed(void *mix, eg_tensor *s)
{
    return eg_einsum("hij,hg->gij", s, *(eg_tensor *const *)mix);
}
static const eg_attention_args expressions[] = { { .bias = { .axes = "j" } },
                                                 { .alibi = { .axes = "h" } },
                                                 { .score = "score * t[j] + i" } };
static eg_tensor *functions_of_all(void *user, eg_tensor *const *x)
{
    const int kind = *(const int *)user, e = kind % 3;
    eg_attention_args o = expressions[e];
    eg_tensor *scores = NULL;
    o.size = sizeof o, o.spec = "hid,hjd,hje->hie", o.q = x[0], o.k = x[1], o.v = x[2];
    o.where = kind & 1 ? "j <= i - h + 1" : "j <= i", o.weights_axes = "h i j";
    if (e == 0) o.bias.x = x[3];
    if (e == 1) o.alibi.x = eg_slice("[j]", x[3], 0, 2, 1);
    if (e == 2) o.with[0] = (eg_given){ "t", x[3] };
    if (kind < 3) o.score_fn = of_the_next_key;
    if (kind >= 3 && kind < 6) o.score_fn = heads_mixed, o.user = (void *)&x[4];
    if (kind >= 6) o.scores = &scores;
    eg_tensor *y = eg_attention_with(&o);
    return kind < 6 ? y : eg_einsum("hie,hij->ej", y, eg_square(scores));
}
LOOP_TEST(scores_of_forbidden_pairs_have_gradients, 9)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { wave(cx, 0, 2, 4, 3), wave(cx, 1, 2, 4, 3), wave(cx, 2, 2, 4, 2),
                       wave(cx, 3, 4), wave(cx, 4, 2, 2) };
    const eg_report *r = eg_gradcheck(functions_of_all, &_i, _i / 3 == 1 ? 5 : 4, x, .order = 2,
                                      .names = "q, k, v, t");
    ck_assert_msg(r->passed, "%.2000s", r->text);
    eg_close(cx);
}

/* The output at position i is the value at position i − 1: scores of content cannot express this, a
 * relative table learns it. */
TEST(a_relative_score_is_trained)
{
    eg_ctx *cx = eg_open();
    eg_params *p = eg_params_open(cx);
    eg_tensor *table = eg_param(p, "table", "h r", 1, 15), *x = eg_normal(cx, 0, 1, 8, 4, 1, 6),
              *zero = eg_scale(x, 0);
    eg_opt *op = eg_adam(p, .lr = .3);
    double loss = 1;
    for (int step = 0; step < 60; step++) {
        eg_mark m = eg_push(cx);
        eg_tensor *y = eg_attention("ibhd,jbhd,jbhe->ibhe", zero, zero, x, .score_fn = relative,
                                    .user = &table, .weights_axes = "b h i j");
        eg_tensor *l = eg_mse(eg_slice_axis(y, 0, 1, EG_END, 1), eg_slice_axis(x, 0, 0, 7, 1));
        loss = eg_item(l);
        eg_step(op, l);
        eg_pop(cx, m);
    }
    eg_assert_ok(cx);
    ck_assert_msg(loss < 1e-2, "the loss is %g", loss);
    eg_close(cx);
}

TEST(masks_as_pytorch_writes_them)
{
    eg_ctx *cx = eg_open();
    eg_tensor *keep = eg_mask_ignore(eg_from(cx, ((bool[]){ 0, 1, 1, 0 }), 4));
    eg_tensor *added = eg_mask_additive(eg_from(cx, ((float[]){ 0, -INFINITY, -INFINITY, 0 }), 4));
    ck_assert(same_bits(keep, eg_from(cx, ((bool[]){ 1, 0, 0, 1 }), 4)) && same_bits(keep, added));
    ck_assert(same_bits(keep, eg_mask_ignore(eg_from(cx, ((int[]){ 0, 5, -1, 0 }), 4))));
    eg_assert_close(
        eg_alibi_slopes(cx, 8),
        eg_from(cx,
                ((float[]){ .5f, .25f, .125f, .0625f, 1 / 32.f, 1 / 64.f, 1 / 128.f, 1 / 256.f }),
                8),
        0);
    /* two of two, the first of four */
    eg_assert_close(eg_alibi_slopes(cx, 3),
                    eg_from(cx, ((float[]){ 1 / 16.f, 1 / 256.f, 1 / 4.f }), 3), 0);
    eg_assert_ok(cx);
    eg_mask_ignore(eg_ones(cx, 3));
    eg_assert_error(cx, "mask_ignore: the mask is f32");
    eg_mask_additive(keep);
    eg_assert_error(cx, "mask_additive: the mask is bool");
    eg_mask_additive(eg_from(cx, ((float[]){ 0, -1e9f, -INFINITY }), 3));
    eg_assert_error(cx, "mask_additive: 1 of 3 elements is neither 0 nor -inf");
    eg_tensor *copied =
        eg_copies_unstack(eg_copies_open(eg_owner_open(cx), 2, NULL), eg_zeros(cx, 2, 3));
    ck_assert(!eg_ok(eg_mask_additive(copied)));
    eg_assert_error(cx, "copies");
    eg_alibi_slopes(cx, 0);
    eg_assert_error(cx, "alibi_slopes: there must be 1 to 2^20 heads, not 0");
    eg_close(cx);
}

static eg_tensor *nothing(void *user, eg_tensor *s)
{
    (void)user, (void)s;
    return NULL;
}
static eg_tensor *shorter(void *user, eg_tensor *s)
{
    (void)user;
    return eg_slice_axis(s, 1, 0, 4, 1);
}
TEST(options_refuse)
{
    eg_ctx *cx = eg_open();
    eg_tensor *q = eg_ones(cx, 2, 4, 3), *k = eg_ones(cx, 2, 5, 3), *v = eg_ones(cx, 2, 5, 6),
              *t = eg_from(cx, ((int[]){ 5, 6 }), 2), *m = eg_ones(cx, 2);
#define REFUSED(says, ...)                                                     \
    ck_assert(!eg_ok(eg_attention("bid,bjd,bje->bie", q, k, v, __VA_ARGS__))); \
    eg_assert_error(cx, says)
    REFUSED("attention: .lengths is 6 at element 1, but index 'j' is 5", .lengths = { "b", t });
    REFUSED("attention: .lengths is f32; lengths are i32 or i64", .lengths = { "b", m });
    REFUSED("index 'd' of .lengths is not an index of the scores",
            .lengths = { "d", eg_randint(cx, 0, 5, 3) });
    REFUSED("a length is a number of keys and has no index 'j'",
            .lengths = { "j", eg_randint(cx, 0, 5, 5) });
    REFUSED(".lengths has the letters \"b\" but its tensor is NULL", .lengths = { "b", NULL });
    REFUSED("index 'b' is 2 in the query but 3 in .lengths",
            .lengths = { "b", eg_randint(cx, 0, 5, 3) });
    REFUSED("attention: .alibi is f64 but the scores are f32",
            .alibi = { "b", eg_cast(m, EG_F64) });
    REFUSED("attention: .alibi takes the distance between one query index and one key index "
            "that the slopes do not have; here are 0 and 1",
            .alibi = { "i", eg_ones(cx, 4) });
    REFUSED("here are 1 and 0", .alibi = { "j", eg_ones(cx, 5) });
    REFUSED("attention: .offset is 9007199254740993; with .alibi it is at most 2^52",
            .alibi = { "b", m }, .offset = (1ll << 53) + 1);
    REFUSED("attention: .form is 7; it is EG_FUSED or EG_UNFUSED, or not given",
            .form = (eg_form)7);
    REFUSED("attention: .form is EG_FUSED, but .score_fn works on scores in memory",
            .form = EG_FUSED, .score_fn = nothing);
    REFUSED("attention: .score_fn returned NULL", .score_fn = nothing);
    REFUSED("attention: .score_fn returned f32 (2, 4, 4) for scores that are f32 (2, 5, 4)",
            .score_fn = shorter, .weights_axes = "bji");
    eg_close(cx);
}

/* Options that are tensors are checked before their elements are read: dead ones, and those of
 * another context. */
TEST(options_are_of_this_context_and_alive)
{
    eg_ctx *cx = eg_open(), *elsewhere = eg_open();
    const eg_mark mark = eg_push(cx);
    eg_tensor *dead[] = { eg_ones(cx, 2), eg_from(cx, ((int64_t[]){ 1, 2 }), 2) };
    eg_pop(cx, mark);
    eg_tensor *strange[] = { eg_ones(elsewhere, 2), eg_from(elsewhere, ((int64_t[]){ 1, 2 }), 2) };
    eg_tensor *q = eg_ones(cx, 2, 4, 3);
#if EG_DEBUG_ALLOC /* a dead tensor is memory that was freed */
    enum { KINDS = 1 };
#else
    enum { KINDS = 2 };
#endif
    for (int k = 0; k < KINDS; k++) {
        eg_tensor *const *x = k ? dead : strange;
        char want[5][80];
        const char *const option[] = { "keep", "bias", "lengths", "alibi", "sink" };
        for (int o = 0; o < 5; o++)
            snprintf(want[o], sizeof want[o], "attention: .%s %s", option[o],
                     k ? "was used after the scope" : "belongs to another context");
        eg_attention("bid,bjd,bje->bie", q, q, q, .keep = { "b", x[1] });
        eg_assert_error(cx, want[0]);
        eg_attention("bid,bjd,bje->bie", q, q, q, .bias = { "b", x[0] });
        eg_assert_error(cx, want[1]);
        eg_attention("bid,bjd,bje->bie", q, q, q, .lengths = { "b", x[1] });
        eg_assert_error(cx, want[2]);
        eg_attention("bid,bjd,bje->bie", q, q, q, .alibi = { "b", x[0] });
        eg_assert_error(cx, want[3]);
        eg_attention("bid,bjd,bje->bie", q, q, q, .sink = { "b", x[0] });
        eg_assert_error(cx, want[4]);
        eg_softmax("b i [j]", q, .keep = { "b", x[1] });
        eg_assert_error(cx, k ? "softmax: .keep was used" : "softmax: .keep belongs to another");
    }
    eg_close(elsewhere);
    eg_close(cx);
}

TEST(attention_refuses)
{
    eg_ctx *cx = eg_open();
    eg_tensor *q = eg_ones(cx, 2, 4, 3), *k = eg_ones(cx, 2, 5, 3), *v = eg_ones(cx, 2, 5, 6), *w;
    const struct {
        const char *spec, *says;
    } bad[] = {
        { "bid,bjd,bje->be", "index 'i' is in the query alone: no other operand has it, and "
                             "neither has the output\n  bid,bjd,bje->be\n   ^" },
        { "bid,bjf,bje->bie", "index 'd' is in the query alone" },
        { "bid,bjd,bke->bie", "index 'j' is in the key alone" },
        { "bid,bjd,bjf->bi", "index 'f' is in the value alone" },
        { "bid,bjd,bje->bije", "no index to attend over" },
        { "bid,bjd,bje", "-> and the output are missing" },
        { "bid,bjd,cje->bie", "index 'c' is in the value alone" },
        { "bid,bdj,bje->bie", "index 'd' is 3 in the query but 5 in the key" },
        { "bid,bjd->bie", "2 operands" },
        { "bi[d],bjd,bje->bie", "brackets" },
        { "bid,bjd,bje->bieq", "'q'" },
    };
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        ck_assert(!eg_ok(eg_attention(bad[n].spec, q, k, v, .weights = &w)));
        ck_assert(!eg_ok(w));
        eg_assert_error(cx, bad[n].says);
    }
    eg_attention("bid,bjd,bje->bie", q, eg_cast(k, EG_F64), v);
    eg_assert_error(cx, "attention: the query is f32 but the key is f64");
    eg_attention("bid,bjd,bje->bie", q, k, v, .keep = { "bj", eg_ones(cx, 2, 6) });
    eg_assert_error(cx, "attention: index 'j' is 5 in the key but 6 in .keep\n  "
                        "bid,bjd,bje,bj->bie\n       ^       ^       "
                        "the key is (2, 5, 3), .keep is (2, 6)");
    eg_attention("bid,bjd,bje->bie", q, k, v, .bias = { "ijb", eg_ones(cx, 2, 4, 5) });
    eg_assert_error(cx, "\n  .bias would fit as 'bij'");
    eg_softmax("b i [j]", eg_ones(cx, 2, 4, 5), .bias = { "ij", eg_ones(cx, 4, 6) });
    eg_assert_error(cx, "softmax: index 'j' is 5 in operand 1 but 6 in .bias");
    eg_attention("bid,bjd,bje->bie", q, k, v, .keep = { "bj", eg_ones(cx, 2, 5) });
    eg_assert_error(cx, "attention: .keep is f32");
    eg_attention("bid,bjd,bje->bie", q, k, v,
                 .keep = { "bd", eg_cast(eg_ones(cx, 2, 3), EG_BOOL) });
    eg_assert_error(cx, "index 'd' of .keep is not an index of the scores\n  bid,bjd,bje,bd->bie\n "
                        "              ^");
    eg_attention("bid,bjd,bje->bie", q, k, v, .where = "e <= i");
    eg_assert_error(cx, "e");
    eg_attention("bid,bjd,bje->bie", q, k, v, .scale = NAN);
    eg_assert_error(cx, "attention: .scale is nan; it must be finite");
    ck_assert(eg_ok(eg_attention("bid,bjd,bje->bie", q, k, v, .dropout = EG_OFF)));
    eg_attention("bid,bjd,bje->bie", q, k, v, .dropout = 1.5);
    eg_assert_error(cx, "dropout: 1.5 is not a probability");
    eg_attention("bid,bjd,bje->bie", q, k, NULL);
    eg_assert_error(cx, "attention: operand 3 is NULL");
    eg_close(cx);
}

/* Numbers in forbidden positions that are finite, but whose products overflow, have no more effect
 * than NaN: on y and the first and second gradients, in both forms, with dropout and without. */
LOOP_TEST(huge_numbers_in_forbidden_positions_are_as_nan, 8)
{
    const bool single = _i & 1;
    const double huge[] = { NAN, single ? 3e38 : 1e308, single ? 1e30 : 1e200 };
    eg_ctx *cx = eg_open(.dtype = single ? EG_F32 : EG_F64);
    eg_tensor *drawn[3], *found[3][10], *x[3], *d[3], *dd[3];
    for (int t = 0; t < 3; t++) drawn[t] = eg_normal(cx, 0, 1, 2, 40, 8);
    eg_tensor *bad = eg_ge(eg_arange(cx, EG_I64, 0, 40, 1), eg_full_n(cx, EG_I64, 28, 0, NULL));
    bad = eg_expand_n(eg_unsqueeze(bad, 1), 3, (int64_t[]){ 2, 40, 8 });
    const uint64_t draws = eg_draws(cx);
    for (int h = 0; h < 3; h++) {
        int n = 0;
        eg_set_draws(cx, draws);
        for (int t = 0; t < 3; t++)
            x[t] = eg_copy(t ? eg_where(bad, eg_scalar(cx, huge[h]), drawn[t]) : drawn[t]);
        eg_tensor *y =
            eg_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .where = "j < 28",
                         .dropout = _i & 2 ? .3 : 0, .form = _i & 4 ? EG_FUSED : EG_UNFUSED);
        ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(y)), NULL, 3, x, d), 0);
        eg_tensor *sum = eg_add(eg_sum(NULL, eg_square(d[0])), eg_sum(NULL, eg_square(d[2])));
        ck_assert_int_eq(eg_grad(sum, NULL, 3, x, dd), 0);
        found[h][n++] = y;
        for (int t = 0; t < 3; t++) found[h][n++] = d[t], found[h][n++] = dd[t];
        for (int k = 0; k < n; k++) {
            ck_assert_msg(!eg_first_nonfinite(found[h][k]), "%g: result %d", huge[h], k);
            eg_assert_close(found[h][k], found[0][k], single ? 1e-5 : 1e-13);
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Derivatives of orders 1 to 4: a NaN in a key and value that no query may read changes none; an
 * infinity in a value that is read makes them NaN or infinite at most, in both forms. */
static eg_tensor *masked_call(int which, eg_form form, eg_tensor *const *x)
{
    eg_tensor *keep = eg_from(eg_context(x[0]), ((bool[]){ 1, 1, 0 }), 1, 3);
    switch (which) {
    case 0:
        return eg_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .where = "j < 2", .form = form);
    case 1:
        return eg_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .keep = { "bj", keep },
                            .form = form);
    case 2:
        return eg_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .where = "j < 2 & j <= i + 1",
                            .keep = { "bj", keep }, .score = "5 * tanh(score / 5)", .form = form);
    default:
        return eg_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .where = "j < 2",
                            .score = "sigmoid(score)", .no_softmax = true, .form = form);
    }
}
LOOP_TEST(four_orders_with_numbers_that_are_not_finite, 8)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 11);
    eg_tensor *clean[3], *x[2][3], *sum[2], *d[2][3];
    for (int t = 0; t < 3; t++) clean[t] = eg_normal(cx, 0, 1, 1, 3, 2);
    for (int read = 0; read < 2; read++) {
        for (int bad = 0; bad < 2; bad++) {
            for (int t = 0; t < 3; t++) x[bad][t] = eg_copy(clean[t]);
            if (bad && read) eg_fill(eg_slice_axis(x[bad][2], 1, 0, 1, 1), INFINITY);
            if (bad && !read) eg_fill(eg_slice_axis(x[bad][1], 1, 2, 3, 1), NAN);
            if (bad && !read) eg_fill(eg_slice_axis(x[bad][2], 1, 2, 3, 1), NAN);
            sum[bad] = eg_sum(
                NULL, eg_square(masked_call(_i / 2, _i % 2 ? EG_FUSED : EG_UNFUSED, x[bad])));
        }
        for (int order = 1; order <= 4; order++) {
            for (int bad = 0; bad < 2; bad++) {
                ck_assert_int_eq(eg_grad(sum[bad], NULL, 3, x[bad], d[bad]), 0);
                sum[bad] = eg_sum(NULL, eg_square(d[bad][0]));
                for (int t = 1; t < 3; t++)
                    sum[bad] = eg_add(sum[bad], eg_sum(NULL, eg_square(d[bad][t])));
            }
            if (read) continue;
            for (int t = 0; t < 3; t++)
                eg_assert_close(d[1][t], d[0][t],
                                1e-11 * fmax(1, eg_item(eg_max(NULL, eg_abs(d[0][t])))));
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
/* A predicate that allows every pair is no mask if it reads no tensor; else the form would depend
 * on values. The bits are those without a predicate, or of the form that its letters ask for. */
TEST(predicates_that_allow_all)
{
    eg_ctx *cx = eg_open(.seed = 5);
    enum { QUERIES = 130, KEYS = 140 };
    eg_tensor *x[] = { eg_normal(cx, 0, 1, QUERIES, 2, 8), eg_normal(cx, 0, 1, KEYS, 2, 8),
                       eg_normal(cx, 0, 1, KEYS, 2, 8) },
              *doc = eg_full_n(cx, EG_I32, 0, 1, (int64_t[]){ KEYS }), *y[4];
    y[0] = eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2]);
    y[1] = eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i", .offset = KEYS);
    y[2] = eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "doc[j] <= doc[i]",
                        .with = { { "doc", doc } });
    y[3] = eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .form = EG_FUSED);
    eg_assert_ok(cx);
    const size_t bytes = sizeof(float) * (size_t)eg_size(y[0]);
    for (int k = 0; k < 4; k++) y[k] = eg_contiguous(y[k]);
    ck_assert_mem_eq(eg_f32(y[0]), eg_f32(y[1]), bytes);
    ck_assert_mem_eq(eg_f32(y[2]), eg_f32(y[3]), bytes);
    ck_assert_mem_ne(eg_f32(y[0]), eg_f32(y[2]), bytes);
    eg_close(cx);
}
/* A window far from most keys: tiles, and only the keys near it are tested for NaN. NaN in other
 * keys and values, next to the window or far from it, changes nothing: in the result, in further
 * outputs, in gradients of two orders. */
LOOP_TEST(windows_of_few_queries, 12)
{
    enum { KEYS = 2048, WIDTH = 8, WINDOWS = 4 };
    const int queries = _i % 3 * 20 + 1, bad = 1 + _i / 3 % 2, near = _i / 6;
    const struct {
        const char *where;
        int64_t offset, from, to; /* the keys that a query may attend to */
    } window[WINDOWS] = {
        { "i - j < 40 & j <= i", KEYS - queries, KEYS - queries - 39, KEYS },
        { "j >= 1000 & j < 1064 + i", 0, 1000, 1063 + queries },
        { "j < 70", 0, 0, 70 },
        { "abs(j - 600) < 30", 0, 571, 630 },
    };
    for (int w = 0; w < WINDOWS; w++)
        for (int records = 0; records < 2; records++) {
            eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 9);
            const int64_t from = window[w].from, to = window[w].to;
            eg_tensor *x[] = { eg_normal(cx, 0, 1, queries, 2, WIDTH),
                               eg_normal(cx, 0, 1, KEYS, 2, WIDTH),
                               eg_normal(cx, 0, 1, KEYS, 2, WIDTH) },
                      *y[2], *lse[2], *weights[2], *d[2][3];
            for (int form = 0; form < 2; form++) {
                eg_tensor *z[] = { x[0], eg_copy(x[1]), eg_copy(x[2]) };
                for (int64_t j = 0; !form && j < KEYS; j++)
                    if (near ? (j < from && j >= from - 9) || (j >= to && j < to + 9)
                             : j < from - 520 || j >= to + 520)
                        eg_fill(eg_slice_axis(z[bad], 0, j, j + 1, 1), j % 2 ? INFINITY : NAN);
                eg_nograd(cx, !records);
                for (int all = 0; all < 2; all++) {
                    y[form] = eg_attention(
                        "ihd,jhd,jhe->ihe", z[0], z[1], z[2], .where = window[w].where,
                        .offset = window[w].offset, .form = form ? EG_UNFUSED : EG_FORM_BY_SIZE,
                        .lse = &lse[form], .weights = all ? &weights[form] : NULL);
                    if (all) continue;
                    eg_assert_ok(cx);
                    ck_assert(isfinite(eg_item(eg_sum(NULL, y[form]))));
                }
                if (records) {
                    eg_tensor *sum = eg_sum(NULL, eg_square(y[form]));
                    ck_assert_int_eq(eg_grad(sum, NULL, 3, z, d[form]), 0);
                    sum = eg_sum(NULL, eg_square(d[form][0]));
                    ck_assert_int_eq(eg_grad(sum, NULL, 3, z, d[form]), 0);
                }
                eg_nograd(cx, false);
            }
            eg_assert_ok(cx);
            eg_assert_close(y[0], y[1], 1e-12);
            eg_assert_close(lse[0], lse[1], 1e-12);
            eg_assert_close(weights[0], weights[1], 1e-12);
            for (int k = 0; records && k < 3; k++) eg_assert_close(d[0][k], d[1][k], 1e-9);
            eg_close(cx);
        }
}
/* The largest allowed score of each query, in both forms, equals that of the scores in memory; with
 * log-sum-exp or without, y and its gradients have the same bits as without it. */
LOOP_TEST(largest_scores, 8)
{
    enum { ROWS = 150, WIDTH = 8 };
    const bool wide = _i & 1, fused = _i & 2, records = _i & 4;
    static const struct {
        const char *where, *score;
    } call[] = { { NULL, NULL },
                 { "j <= i & i != 7", NULL },
                 { "j > i - 20", "30 * tanh(score / 30) - abs(i - j) / 8" } };
    for (size_t c = 0; c < sizeof call / sizeof *call; c++) {
        eg_ctx *cx = eg_open(.dtype = wide ? EG_F64 : EG_F32, .seed = 4, .threads = 2);
        eg_tensor *x[3], *max, *lse, *scores, *mask, *d[3][3], *y[3];
        for (int k = 0; k < 3; k++) x[k] = eg_normal(cx, 0, 2, 2, ROWS, 3, WIDTH);
        eg_nograd(cx, !records);
        for (int with = 0; with < 3; with++) {
            y[with] = eg_attention("bihd,bjhd,bjhe->bihe", x[0], x[1], x[2], .where = call[c].where,
                                   .score = call[c].score, .form = fused ? EG_FUSED : EG_UNFUSED,
                                   .lse = with > 1 ? &lse : NULL, .max_scores = with ? &max : NULL);
            ck_assert(same_bits(y[0], y[with]));
            if (!records) continue;
            eg_tensor *sum = eg_sum(NULL, eg_square(y[with]));
            if (with > 1) sum = eg_add(sum, eg_scale(eg_sum(NULL, lse), 0));
            if (with) sum = eg_add(sum, eg_scale(eg_sum(NULL, max), 0));
            ck_assert_int_eq(eg_grad(sum, NULL, 3, x, d[with]), 0);
            for (int k = 0; k < 3; k++)
                eg_assert_close(d[with][k], d[0][k], with > 1 ? (wide ? 1e-12 : 1e-4) : 0);
        }
        eg_attention("bihd,bjhd,bjhe->bihe", x[0], x[1], x[2], .score = call[c].score,
                     .form = EG_UNFUSED, .scores = &scores, .weights_axes = "bhij");
        if (call[c].where) {
            mask = eg_where_mask(cx, call[c].where, "ij", 0, ((int64_t[]) {
                                     ROWS
                                     , ROWS
                                 }));
            mask = eg_rearrange("i j -> 1 1 i j", mask);
            scores = eg_where(mask, scores, eg_full(cx, -INFINITY, 1));
        }
        eg_tensor *want = eg_max("b h i [j]", scores);
        max = eg_rearrange("b i h -> b h i", max);
        if (c == 1) ck_assert(isinf(eg_get(max, 0, 0, 7)) && isinf(eg_get(want, 0, 0, 7)));
        /* −inf of both is compared as a number */
        eg_tensor *low = eg_full(cx, -1e30, 1);
        eg_assert_close(eg_maximum(max, low), eg_maximum(want, low), wide ? 1e-12 : 1e-5);
        ck_assert_int_eq(eg_path_to(eg_sum(NULL, max), x[0], NULL),
                         records ? EG_CUT_PATH : EG_NO_PATH);
        eg_assert_ok(cx);
        eg_close(cx);
    }
}
/* To second order in the loss of y and lse beside it, in a captured step, of NaN, of no keys. */
TEST(largest_scores_in_second_order_captured_with_nan_and_without_keys)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 4);
    eg_tensor *x[3], *max[2], *lse[2], *d[2][3], *h[2][3];
    for (int k = 0; k < 3; k++) x[k] = eg_normal(cx, 0, 1, 20, 2, 4);
    for (int form = 0; form < 2; form++) {
        eg_tensor *y = eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i",
                                    .form = form ? EG_FUSED : EG_UNFUSED, .lse = &lse[form],
                                    .max_scores = &max[form]);
        eg_tensor *sum = eg_add(eg_sum(NULL, eg_mul(eg_square(lse[form]), max[form])),
                                eg_sum(NULL, eg_square(y)));
        ck_assert_int_eq(eg_grad(sum, NULL, 3, x, d[form]), 0);
        sum = eg_sum(NULL, eg_square(d[form][0]));
        ck_assert_int_eq(eg_grad(sum, NULL, 3, x, h[form]), 0);
        eg_assert_ok(cx);
    }
    for (int k = 0; k < 3; k++) {
        eg_assert_close(d[0][k], d[1][k], 1e-11);
        eg_assert_close(h[0][k], h[1][k], 1e-10);
    }
    eg_assert_close(max[0], max[1], 1e-13);
    eg_fill(eg_slice_axis(x[1], 0, 3, 4, 1), NAN);
    for (int form = 0; form < 2; form++) {
        eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i",
                     .form = form ? EG_FUSED : EG_UNFUSED, .max_scores = &max[form]);
        ck_assert(isnan(eg_get(max[form], 5, 0)) && isfinite(eg_get(max[form], 2, 0)));
    }
    eg_tensor *none = eg_zeros(cx, 0, 2, 4);
    ck_assert(eg_ok(eg_attention("ihd,jhd,jhe->ihe", x[0], none, none, .max_scores = &max[0])));
    ck_assert(eg_get(max[0], 19, 1) < -DBL_MAX);
    eg_assert_ok(cx);
    ck_assert(!eg_ok(eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .max_scores = &max[0],
                                  .sink = { "h", eg_zeros(cx, 2) })));
    ck_assert(!eg_ok(max[0]));
    eg_assert_error(cx, ".max_scores is not supported with .sink, which counts as a score");
    ck_assert(!eg_ok(eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .max_scores = &max[0],
                                  .no_softmax = true)));
    eg_assert_error(cx, ".max_scores needs a softmax, but .no_softmax is given");
    eg_close(cx);
}
