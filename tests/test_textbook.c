/* test_textbook.c: statements of texts on attention, a test for each: common mistakes, self- and
 * cross-attention, shapes, the layout with the sequence first, an example computed with numbers.
 * The values are those of NumPy and PyTorch in f64. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 20); }
static void shut(void)
{
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    eg_close(cx);
}
static eg_tensor *counting(int64_t n) { return eg_arange(cx, EG_DEFAULT, 0, (double)n, 1); }

/* -- common mistakes -------------------------------------------------------------------------- */
GROUP("mistakes", .setup = open_f64, .teardown = shut)

TEST(query_and_key_lengths_differ)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 2);
    eg_tensor *y = eg_mha_run(m, eg_normal(cx, 0, 1, 2, 5, 8), .key = eg_normal(cx, 0, 1, 2, 7, 8));
    eg_assert_axes("n=2 s=5 e=8", y);
}

TEST(permuted_key_gives_the_same_scores)
{
    eg_tensor *query = eg_normal(cx, 0, 1, 2, 3, 8), *key = eg_normal(cx, 0, 1, 2, 5, 8);
    eg_tensor *q = eg_rearrange("n s (h d) -> n h s d", query, .h = 2),
              *k = eg_rearrange("n t (h d) -> n h t d", key, .h = 2);
    eg_tensor *kt = eg_permute(eg_view(key, 2, 5, 2, 4), 0, 2, 3, 1); /* n h d t, a view */
    ck_assert_ptr_eq(eg_raw(kt, NULL), eg_raw(key, NULL));
    eg_assert_close(eg_einsum("nhsd,nhdt->nhst", q, kt), eg_einsum("nhsd,nhtd->nhst", q, k), 1e-14);
}

TEST(the_scale_is_that_of_the_head_width)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 5, 2, 9), *k = eg_normal(cx, 0, 1, 1, 5, 2, 9), *w, *v;
    eg_attention("bihd,bjhd,bjhe->bihe", q, k, k, .weights = &w, .weights_axes = "b h i j");
    eg_attention("bihd,bjhd,bjhe->bihe", q, k, k, .weights = &v, .weights_axes = "b h i j",
                 .scale = 1.0 / 3);
    eg_assert_close(w, v, 1e-15);
    eg_assert_close(
        w, eg_softmax("b h i [j]", eg_scale(eg_einsum("bihd,bjhd->bhij", q, k), 1 / sqrt(9))),
        1e-14);
}

TEST(a_mask_is_not_a_factor)
{
    eg_tensor *s = eg_from(cx, ((double[]){ 1, 2, 3, 4 }), 4),
              *keep = eg_from(cx, ((bool[]){ true, true, false, false }), 4);
    eg_tensor *right = eg_from(cx, ((double[]){ 0.26894142, 0.73105858, 0, 0 }), 4);
    eg_assert_close(eg_softmax("[t]", s, .keep = { "t", keep }), right, 1e-8);
    eg_tensor *bug = eg_softmax("[t]", eg_mul(s, eg_cast(keep, EG_F64)));
    eg_assert_close(bug, eg_from(cx, ((double[]){ 0.2245, 0.6103, 0.0826, 0.0826 }), 4), 1e-4);
}

TEST(softmax_over_named_axes)
{
    eg_tensor *s = eg_scale(eg_normal(cx, 0, 1, 2, 3, 4, 5), 300);
    eg_assert_close(eg_sum("n h s [t]", eg_softmax("n h s [t]", s)), eg_ones(cx, 2, 3, 4), 1e-14);
    eg_tensor *both = eg_softmax("n h [s t]", s);
    eg_assert_close(eg_sum("n h [s t]", both), eg_ones(cx, 2, 3), 1e-14);
    eg_assert_close(both, eg_reshape(eg_softmax("n h [x]", eg_reshape(s, 2, 3, 20)), 2, 3, 4, 5),
                    1e-15);
}

TEST(dropout_between_softmax_and_value)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 4, 2, 3), *v = eg_normal(cx, 0, 1, 1, 4, 2, 3), *w,
              *dropped;
    eg_tensor *y = eg_attention("bihd,bjhd,bjhe->bihe", q, q, v, .dropout = 0.5, .weights = &w,
                                .dropped = &dropped, .weights_axes = "b h i j");
    eg_assert_close(y, eg_einsum("bhij,bjhd->bihd", dropped, v), 1e-14);
    eg_assert_close(eg_sum("b h i [j]", w), eg_ones(cx, 1, 2, 4), 1e-14);
    eg_assert_close(dropped,
                    eg_mul(w, eg_scale(eg_cast(eg_ne(dropped, eg_zeros_like(dropped)), EG_F64), 2)),
                    1e-14);
    eg_eval(cx);
    eg_assert_close(eg_attention("bihd,bjhd,bjhe->bihe", q, q, v, .dropout = 0.5),
                    eg_einsum("bhij,bjhd->bihd", w, v), 1e-14);
}

TEST(heads_are_merged_by_letters)
{
    eg_tensor *x = eg_reshape(counting(12), 1, 2, 3, 2);
    static const double right[12] = { 0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11 };
    eg_assert_close(eg_rearrange("n h s d -> n s (h d)", x), eg_from(cx, right, 1, 3, 4), 0);
    eg_assert_close(eg_einsum("n h s d -> n s (h d)", x), eg_from(cx, right, 1, 3, 4), 0);
}

TEST(the_scale_is_a_number)
{
    eg_assert_close(eg_scale(eg_ones(cx, 3), 1 / sqrt(4)), eg_full(cx, 0.5, 3), 0);
}

TEST(a_row_without_a_key_is_zero_and_so_is_its_gradient)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 2, 1, 3), *k = eg_normal(cx, 0, 1, 1, 4, 1, 3),
              *v = eg_normal(cx, 0, 1, 1, 4, 1, 3), *dx[3], *w;
    eg_tensor *keep =
        eg_from(cx, ((bool[]){ true, true, false, true, false, false, false, false }), 2, 4);
    eg_tensor *y =
        eg_attention("nshd,nthd,nthe->nshe", q, k, v, .keep = { "st", keep }, .weights = &w);
    ck_assert_double_eq(eg_item(eg_sum(NULL, eg_abs(eg_select_axis(y, 1, 1)))), 0);
    ck_assert_double_eq(eg_get(w, 0, 0, 0, 2), 0);
    eg_grad(eg_sum(NULL, eg_square(y)), NULL, 3, (eg_tensor *[]){ q, k, v }, dx);
    ck_assert_double_eq(eg_item(eg_sum(NULL, eg_abs(eg_select_axis(dx[0], 1, 1)))), 0);
    for (int n = 0; n < 3; n++) ck_assert_double_eq(eg_item(eg_any(NULL, eg_isnan(dx[n]))), 0);
    eg_assert_close(eg_attention("nshd,nthd,nthe->nshe", q, k, v),
                    eg_attention("nshd,nthd,nthe->nshe", q, k, v,
                                 .keep = { "t", eg_cast(eg_ones(cx, 4), EG_BOOL) }),
                    1e-15);
}

TEST(variance_of_a_score)
{
    for (int d = 16; d <= 64; d *= 4) {
        eg_tensor *q = eg_normal(cx, 0, 1, 20000, d), *k = eg_normal(cx, 0, 1, 20000, d);
        eg_tensor *s = eg_einsum("nd,nd->n", q, k);
        double plain = eg_item(eg_var(NULL, s)),
               scaled = eg_item(eg_var(NULL, eg_scale(s, 1 / sqrt((double)d))));
        ck_assert_msg(fabs(plain / d - 1) < 0.05 && fabs(scaled - 1) < 0.05, "d %d: %g, %g", d,
                      plain, scaled);
    }
}

TEST(sizes_of_real_models_run)
{
    eg_ctx *single = eg_open(.seed = 1);
    for (int e = 512; e <= 768; e += 256)
        for (int n = 10; n <= 50; n += 40) {
            eg_mark m = eg_push(single);
            eg_params *p = eg_params_open(single);
            eg_tensor *y = eg_mha_run(eg_mha_new(p, "attn", .d_model = e, .heads = 8),
                                      eg_normal(single, 0, 1, 2, n, e));
            ck_assert_msg(eg_axes("b i m", y), "%s", eg_error(single));
            ck_assert_double_eq(eg_item(eg_any(NULL, eg_isnan(y))), 0);
            eg_pop(single, m);
        }
    eg_close(single);
}

/* -- self- and cross-attention ---------------------------------------------------------------- */
GROUP("self_and_cross", .setup = open_f64, .teardown = shut)

TEST(one_head_with_another_value_width)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 5, 8), *a;
    eg_tensor *q = eg_einsum("im,md->id", x, eg_normal(cx, 0, 1, 8, 3)),
              *k = eg_einsum("im,md->id", x, eg_normal(cx, 0, 1, 8, 3));
    eg_tensor *v = eg_einsum("im,me->ie", x, eg_normal(cx, 0, 1, 8, 6));
    eg_tensor *z = eg_attention("id,jd,je->ie", q, k, v, .weights = &a);
    eg_assert_axes("n=5 e=6", z);
    eg_assert_axes("n=5 m=5", a);
    eg_assert_close(eg_sum("i [j]", a), eg_ones(cx, 5), 5 * 2.3e-16);
}

TEST(einsum_equals_the_loop)
{
    eg_tensor *a = eg_normal(cx, 0, 1, 4, 5), *v = eg_normal(cx, 0, 1, 5, 3),
              *z = eg_einsum("ij,jd->id", a, v);
    for (int i = 0; i < 4; i++)
        for (int d = 0; d < 3; d++) {
            double sum = 0;
            for (int j = 0; j < 5; j++) sum += eg_get(a, i, j) * eg_get(v, j, d);
            ck_assert_double_eq_tol(eg_get(z, i, d), sum, 1e-14);
        }
}

TEST(matrices_per_head_equal_the_stacked_one)
{
    enum { heads = 2 };
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 8), *w[3][heads], *stacked[3], *o[heads], *dw[2];
    for (int k = 0; k < 3; k++) {
        for (int h = 0; h < heads; h++) w[k][h] = eg_normal(cx, 0, 1, 8, 4);
        stacked[k] = eg_stack_axis(1, w[k][0], w[k][1]); /* m h d */
    }
    eg_tensor *wo = eg_normal(cx, 0, 1, heads, 4, 8), *q[3];
    for (int k = 0; k < 3; k++) q[k] = eg_einsum("bim,mhd->bihd", x, stacked[k]);
    eg_tensor *y =
        eg_einsum("bihd,hdm->bim", eg_attention("bihd,bjhd,bjhe->bihe", q[0], q[1], q[2]), wo);
    for (int h = 0; h < heads; h++)
        o[h] = eg_attention("bid,bjd,bje->bie", eg_einsum("bim,md->bid", x, w[0][h]),
                            eg_einsum("bim,md->bid", x, w[1][h]),
                            eg_einsum("bim,md->bid", x, w[2][h]));
    eg_tensor *z = eg_einsum("bic,cm->bim", eg_concat_axis(-1, o[0], o[1]), eg_reshape(wo, 8, 8));
    eg_assert_close(y, z, 1e-12);
    eg_grad(eg_sum(NULL, eg_square(y)), NULL, 1, &w[0][1], &dw[0]);
    eg_grad(eg_sum(NULL, eg_square(z)), NULL, 1, &w[0][1], &dw[1]);
    eg_assert_close(dw[0], dw[1], 1e-12);
}

TEST(heads_must_divide)
{
    ck_assert_ptr_null(eg_mha_new(eg_params_open(cx), "attn", .d_model = 10, .heads = 4));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "10"));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "4"));
    eg_assert_error(cx, "d_model must be divisible by heads");
}

TEST(self_attention_is_attention_to_oneself)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 6, .heads = 2);
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 4, 6), *q = eg_copy(x), *k = eg_copy(x), *v = eg_copy(x),
              *dx, *d[3];
    eg_tensor *self = eg_mha_run(m, x), *apart = eg_mha_run(m, q, .key = k, .value = v);
    eg_assert_close(self, apart, 0);
    eg_grad(eg_sum(NULL, eg_square(self)), NULL, 1, &x, &dx);
    eg_grad(eg_sum(NULL, eg_square(apart)), NULL, 3, (eg_tensor *[]){ q, k, v }, d);
    eg_assert_close(dx, eg_add(eg_add(d[0], d[1]), d[2]), 1e-13); /* three paths */
}

TEST(weights_are_returned_before_dropout)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 2, .dropout = 0.1);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *w, *dropped;
    uint64_t draw = eg_draws(cx);
    eg_tensor *y = eg_mha_run(m, x, .weights = &w, .dropped = &dropped);
    eg_set_draws(cx, draw);
    eg_assert_close(eg_mha_run(m, x), y, 0); /* requesting the weights changes nothing */
    eg_assert_close(eg_sum("b h i [j]", w), eg_ones(cx, 2, 2, 5), 1e-14);
    ck_assert(eg_item(eg_max(NULL, eg_abs(eg_sub(w, dropped)))) > 0);
}

TEST(a_float_is_no_keep_mask)
{
    eg_softmax("i [j]", eg_ones(cx, 2, 3), .keep = { "j", eg_ones(cx, 3) });
    eg_assert_error(cx, "keep");
    eg_tensor *bias = eg_from(cx, ((double[]){ 0, -1e9, 0 }), 3);
    eg_assert_close(eg_softmax("i [j]", eg_ones(cx, 2, 3), .bias = { "j", bias }),
                    eg_softmax("i [j]", eg_ones(cx, 2, 3),
                               .keep = { "j", eg_from(cx, ((int64_t[]){ 1, 0, 7 }), 3) }),
                    1e-15);
}

TEST(a_masked_row_is_zero_not_uniform_and_not_nan)
{
    eg_tensor *s = eg_normal(cx, 0, 1, 1, 4), *none = eg_cast(eg_zeros(cx, 4), EG_BOOL);
    eg_assert_close(eg_softmax("i [j]", s, .keep = { "j", none }), eg_zeros(cx, 1, 4), 0);
    /* −1e9, the usual fill, makes the row uniform */
    eg_assert_close(eg_softmax("i [j]", eg_zeros(cx, 1, 4), .bias = { "j", eg_full(cx, -1e9, 4) }),
                    eg_full(cx, 0.25, 1, 4), 0);
}

TEST(view_of_a_transposed_tensor_is_refused)
{
    eg_tensor *x = eg_transpose(eg_normal(cx, 0, 1, 2, 3, 4, 5), 1, 2);
    eg_view(x, 2, 4, 15);
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "axes"));
    eg_assert_error(cx, "view");
    eg_assert_close(eg_reshape(x, 2, 4, 15), eg_rearrange("b i h d -> b i (h d)", x), 0);
}

/* -- shapes ----------------------------------------------------------------------------------- */
GROUP("shapes", .setup = open_f64, .teardown = shut)

TEST(what_must_agree_and_what_need_not)
{
    eg_tensor *q = eg_ones(cx, 2, 4, 3), *k = eg_ones(cx, 2, 6, 3), *v = eg_ones(cx, 2, 6, 5);
    ck_assert(eg_ok(eg_attention("bld,bsd,bse->ble", q, k, v)));  /* L_Q ≠ L_K, d_v ≠ d_k */
    eg_attention("bld,bsd,bse->ble", q, eg_ones(cx, 2, 6, 4), v); /* D_Q ≠ D_K */
    eg_assert_error(cx, "'d' is 3 in the query but 4 in the key");
    eg_attention("bld,bsd,bse->ble", q, k, eg_ones(cx, 2, 7, 5)); /* L_K ≠ L_V */
    eg_assert_error(cx, "'s' is 6 in the key but 7 in the value");
    eg_attention("bld,bsd,bsd->bld", q, k, k); /* d everywhere would be a batch letter */
    eg_assert_error(cx, "give the value's width another letter");
}

TEST(each_step_has_its_axes)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 4, 6), *y = eg_normal(cx, 0, 1, 2, 5, 6);
    eg_tensor *q = eg_rearrange("b l (h d) -> b h l d", x, .h = 2),
              *k = eg_rearrange("b s (h d) -> b h s d", y, .h = 2);
    eg_assert_axes("b=2 h=2 l=4 d=3", q);
    eg_tensor *s = eg_einsum("bhld,bhsd->bhls", q, k);
    eg_assert_axes("b=2 h=2 l=4 s=5", s);
    eg_tensor *o = eg_einsum("bhls,bhsd->bhld", s, k);
    eg_assert_axes("b=2 h=2 l=4 d=3", o);
    eg_assert_axes("b=2 l=4 m=6", eg_rearrange("b h l d -> b l (h d)", o));
}

TEST(six_queries_and_nine_keys)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 512, .heads = 8);
    eg_assert_axes("b=2 l=6 m=512",
                   eg_mha_run(m, eg_ones(cx, 2, 6, 512), .key = eg_ones(cx, 2, 9, 512)));
}

TEST(batches_must_agree)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 512, .heads = 8);
    eg_mha_run(m, eg_ones(cx, 2, 6, 512), .key = eg_ones(cx, 3, 4, 512));
    ck_assert_ptr_nonnull(eg_error(cx));
    ck_assert_msg(strstr(eg_error(cx), "'b'") && strstr(eg_error(cx), "2") &&
                      strstr(eg_error(cx), "3"),
                  "%s", eg_error(cx));
    eg_clear(cx);
}

TEST(scores_have_the_key_length)
{
    eg_tensor *w;
    eg_attention("blhd,bshd,bshe->blhe", eg_ones(cx, 2, 4, 3, 5), eg_ones(cx, 2, 7, 3, 5),
                 eg_ones(cx, 2, 7, 3, 5), .weights = &w, .weights_axes = "b h l s");
    eg_assert_axes("b=2 h=3 l=4 s=7", w);
}

TEST(any_value_width_and_output_width)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 12, .heads = 3, .d_v = 5, .d_out = 7);
    eg_assert_axes("b=2 l=4 m=7", eg_mha_run(m, eg_ones(cx, 2, 4, 12)));
    eg_assert_axes("h=3 e=5 m=7", eg_params_find(p, "attn.W_o"));
}

TEST(width_10_and_3_heads_are_refused_at_construction)
{
    ck_assert_ptr_null(eg_mha_new(eg_params_open(cx), "attn", .d_model = 10, .heads = 3));
    eg_assert_error(cx, "10 / 3");
}

TEST(parameters_of_width_512_and_8_heads)
{
    eg_ctx *single = eg_open();
    eg_params *p = eg_params_open(single), *bare = eg_params_open(single);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 512, .heads = 8);
    eg_mha_new(bare, "attn", .d_model = 512, .heads = 8, .no_bias = true);
    ck_assert_int_eq(eg_params_size(p), 1050624);
    ck_assert_int_eq(eg_params_size(bare), 1048576);
    ck_assert(eg_axes("b=10 l=60 m=512", eg_mha_run(m, eg_normal(single, 0, 1, 10, 60, 512))));
    eg_close(single);
}

TEST(a_scale_of_one_can_be_asked_for)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 3, 4), *k = eg_normal(cx, 0, 1, 5, 4);
    eg_assert_close(eg_attention("id,jd,je->ie", q, k, k, .scale = 1),
                    eg_einsum("ij,jd->id", eg_softmax("i [j]", eg_einsum("id,jd->ij", q, k)), k),
                    1e-14);
}

/* -- sequence first: q is i b h d, k is j b h d ----------------------------------------------- */
GROUP("sequence_first", .setup = open_f64, .teardown = shut)

TEST(projection_of_either_rank)
{
    eg_tensor *w = eg_normal(cx, 0, 1, 512, 8, 64), *x = eg_normal(cx, 0, 1, 10, 32, 512);
    eg_assert_axes("s=10 b=32 h=8 d=64", eg_einsum("...m,mhd->...hd", x, w));
    eg_tensor *one = eg_einsum("...m,mhd->...hd", eg_select_axis(x, 0, 3), w);
    eg_assert_axes("b=32 h=8 d=64", one);
    eg_assert_close(one, eg_select_axis(eg_einsum("...m,mhd->...hd", x, w), 0, 3), 1e-12);
}

TEST(bias_of_the_value_only)
{
    eg_ctx *single = eg_open();
    eg_params *p = eg_params_open(single);
    eg_mha_new(p, "attn", .d_model = 512, .heads = 8, .no_q_bias = true, .no_k_bias = true);
    ck_assert_int_eq(eg_params_size(p), 1049600); /* value and output keep theirs */
    ck_assert_ptr_null(eg_params_find(p, "attn.b_q"));
    ck_assert_ptr_nonnull(eg_params_find(p, "attn.b_v"));
    eg_close(single);
}

TEST(the_key_axis_by_its_letter)
{
    eg_tensor *s = eg_normal(cx, 0, 1, 3, 4, 2, 5); /* i j b h */
    eg_tensor *other = eg_rearrange("i j b h -> b h i j", s);
    eg_assert_close(eg_rearrange("i j b h -> b h i j", eg_softmax("i [j] b h", s)),
                    eg_softmax("b h i [j]", other), 1e-15);
}

TEST(scores_of_counting_queries_and_keys)
{
    eg_tensor *q = eg_reshape(counting(16), 2, 1, 2, 4), *k = eg_reshape(counting(24), 3, 1, 2, 4);
    static const double right[12] = { 14, 126, 62, 302, 110, 478, 62, 302, 366, 734, 670, 1166 };
    eg_assert_close(eg_einsum("ibhd,jbhd->ijbh", q, k), eg_from(cx, right, 2, 3, 1, 2), 0);
}

TEST(values_and_the_gradients_are_einsums)
{
    eg_tensor *a = eg_normal(cx, 0, 1, 2, 3, 2, 2), *v = eg_normal(cx, 0, 1, 3, 2, 2, 4),
              *g = eg_normal(cx, 0, 1, 2, 2, 2, 4), *dx[2];
    eg_tensor *y = eg_einsum("ijbh,jbhd->ibhd", a, v);
    eg_grad(y, g, 2, (eg_tensor *[]){ a, v }, dx);
    eg_assert_close(dx[0], eg_einsum("ibhd,jbhd->ijbh", g, v), 1e-14);
    eg_assert_close(dx[1], eg_einsum("ibhd,ijbh->jbhd", g, a), 1e-14);
}

/* .score_fn corresponds to a method get_scores that other libraries let users override. */
static eg_tensor *relative(void *user, eg_tensor *s) { return eg_on("ibhj, ij", eg_add, s, user); }
TEST(the_scores_can_be_replaced)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 3, 2, 2, 4), *k = eg_normal(cx, 0, 1, 5, 2, 2, 4),
              *v = eg_normal(cx, 0, 1, 5, 2, 2, 4), *r = eg_normal(cx, 0, 1, 3, 5);
    const char *spec = "ibhd,jbhd,jbhe->ibhe";
    eg_tensor *y = eg_attention(spec, q, k, v, .score_fn = relative, .user = r), *dr;
    eg_assert_close(y, eg_attention(spec, q, k, v, .bias = { "ij", r }), 1e-14);
    ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(y)), NULL, 1, &r, &dr), 0);
    ck_assert(eg_item(eg_max(NULL, eg_abs(dr))) > 0);
}

TEST(each_axis_of_a_mask_is_checked)
{
    /* i b h d: query 2, batch 2; key 3 */
    eg_tensor *q = eg_ones(cx, 2, 2, 1, 4), *k = eg_ones(cx, 3, 2, 1, 4);
    static const struct {
        int64_t dims[3];
        const char *letter;
    } wrong[] = { { { 3, 3, 2 }, "'i'" }, { { 2, 4, 2 }, "'j'" }, { { 2, 3, 3 }, "'b'" } };
    for (int n = 0; n < 3; n++) {
        eg_tensor *mask = eg_full_n(cx, EG_BOOL, 1, 3, wrong[n].dims);
        eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, k, .keep = { "ijb", mask });
        eg_assert_error(cx, wrong[n].letter);
    }
}

TEST(the_letters_of_a_mask_give_its_order)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 2, 1, 4), *k = eg_normal(cx, 0, 1, 3, 2, 1, 4);
    eg_tensor *bji = eg_from(
        cx,
        ((bool[]){ true, false, true, true, false, true, true, true, false, true, true, false }), 2,
        3, 2);
    eg_tensor *y = eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, k, .keep = { "bji", bji });
    eg_assert_close(y,
                    eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, k,
                                 .keep = { "ijb", eg_rearrange("b j i -> i j b", bji) }),
                    0);
    /* (2, 3, 2) could be i = 2, j = 3, b = 2 */
    eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, k, .keep = { "ijb", eg_transpose(bji, 0, 0) });
    ck_assert_ptr_null(eg_error(cx)); /* the sizes are valid; the letters decide */
}

TEST(causal_has_no_batch)
{
    eg_tensor *s = eg_normal(cx, 0, 1, 4, 4, 2, 3); /* i j b h */
    eg_tensor *causal = eg_cast(eg_tril(eg_ones(cx, 4, 4), 0), EG_BOOL);
    eg_assert_close(eg_softmax("i [j] b h", s, .where = "j <= i"),
                    eg_softmax("i [j] b h", s, .keep = { "ij", causal }), 0);
}

TEST(a_missing_letter_broadcasts)
{
    eg_tensor *s = eg_normal(cx, 0, 1, 2, 3, 4, 5), *b = eg_normal(cx, 0, 1, 2, 5);
    eg_assert_close(eg_on("bhij, bj", eg_add, s, b), eg_add(s, eg_reshape(b, 2, 1, 1, 5)), 0);
}

TEST(the_projection_splits_the_heads)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 2, 8), *w = eg_normal(cx, 0, 1, 8, 8);
    eg_tensor *split = eg_einsum("s b m, m (h=2 d) -> s b h d", x, w);
    eg_assert_axes("s=3 b=2 h=2 d=4", split);
    eg_assert_close(split, eg_reshape(eg_einsum("sbm,mc->sbc", x, w), 3, 2, 2, 4), 1e-14);
}

TEST(in_place_where_no_gradient_reads)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 3, 4), *dq, *again;
    eg_tensor *s = eg_einsum("id,jd->ij", q, q);
    eg_grad(s, eg_ones(cx, 3, 3), 1, &q, &dq);
    eg_assign(s, eg_scale(s, 0.5)); /* scores *= scale */
    eg_grad(s, eg_ones(cx, 3, 3), 1, &q, &again);
    eg_assert_close(dq, again, 0);
    eg_tensor *a = eg_softmax("i [j]", s);
    eg_assign(a, eg_scale(a, 2)); /* softmax's gradient reads its result */
    ck_assert_int_eq(eg_grad(a, eg_ones(cx, 3, 3), 1, &q, &again), -1);
    eg_assert_error(cx, "softmax");
}

TEST(mask_softmax_dropout)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 3, 2, 2, 4),
              *keep = eg_cast(eg_tril(eg_ones(cx, 3, 3), -1), EG_BOOL), *w, *y;
    y = eg_attention("ibhd,jbhd,jbhe->ibhe", q, q, q, .keep = { "ij", keep }, .dropout = 0.2,
                     .weights = &w);
    ck_assert_double_eq(eg_item(eg_any(NULL, eg_isnan(y))), 0);
    /* query 0 sees nothing */
    ck_assert_double_eq(eg_item(eg_sum(NULL, eg_abs(eg_select_axis(y, 0, 0)))), 0);
}

TEST(undropped_weights_sum_to_one)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 64, 1, 1, 4), *w, *dropped;
    eg_attention("ibhd,jbhd,jbhe->ibhe", q, q, q, .dropout = 0.1, .weights = &w,
                 .dropped = &dropped, .weights_axes = "b h i j");
    eg_assert_close(eg_sum("b h i [j]", w), eg_ones(cx, 1, 1, 64), 1e-13);
    ck_assert(eg_item(eg_max(NULL, eg_sum("b h i [j]", dropped))) > 1.0001);
}

TEST(the_string_merges_the_heads)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 2, 2, 4);
    eg_assert_close(eg_rearrange("i b h d -> i b (h d)", x), eg_reshape(x, 3, 2, 8), 0);
    eg_assert_close(eg_einsum("ibhd->ib(hd)", x), eg_reshape(x, 3, 2, 8), 0);
}

TEST(a_query_of_rank_two_is_refused_in_a_sentence)
{
    eg_mha_run(eg_mha_new(eg_params_open(cx), "attn", .d_model = 8, .heads = 2), eg_ones(cx, 3, 8));
    eg_assert_error(cx, "has 2 axes, but the layout \"b i m\" needs 3");
}

/* -- a worked example: 4 tokens of width 8, heads of width 4 ---------------------------------- */
/* x[i][m] = i + m + 1; the matrices of head 1 are W[m][d] = (m + n[d]) / 10, with n = 1 2 3 4 for
 * W_q, 2 1 4 3 for W_k, 3 4 1 2 for W_v. Its scores reach 3286, so that softmax is one-hot. */
static eg_tensor *worked(double first, double second, double third, double fourth, double times)
{
    eg_tensor *d =
        eg_cast(eg_from(cx, ((double[]){ first, second, third, fourth }), 4), eg_default_type(cx));
    return eg_scale(eg_on("m, d -> m d", eg_add, counting(8), d), 0.1 * times);
}
static eg_tensor *worked_head(double times, eg_tensor **weights, int head)
{
    eg_tensor *x = eg_on("i, m -> i m", eg_add, counting(4), eg_shift(counting(8), 1));
    eg_tensor *wq = head ? worked(2, 4, 1, 3, times) : worked(1, 2, 3, 4, times),
              *wk = worked(2, 1, 4, 3, times), *wv = worked(3, 4, 1, 2, 1);
    return eg_attention("id,jd,je->ie", eg_einsum("im,md->id", x, wq),
                        eg_einsum("im,md->id", x, wk), eg_einsum("im,md->id", x, wv),
                        .weights = weights);
}

GROUP("worked_example", .setup = open_f64, .teardown = shut)

TEST(module_and_four_einsums_agree)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 2, .no_bias = true);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *w[3];
    for (int k = 0; k < 3; k++)
        w[k] = eg_einsum(
            "bim,mhd->bihd", x,
            eg_params_find(p, ((const char *[]){ "attn.W_q", "attn.W_k", "attn.W_v" })[k]));
    eg_tensor *a = eg_softmax("b h i [j]", eg_scale(eg_einsum("bihd,bjhd->bhij", w[0], w[1]), 0.5));
    eg_assert_close(eg_mha_run(m, x),
                    eg_einsum("bhij,bjhd,hdm->bim", a, w[2], eg_params_find(p, "attn.W_o")), 1e-12);
}

TEST(heads_of_the_example)
{
    static const double q1[4] = { 20.4, 24.0, 27.6, 31.2 }, last[4] = { 43.2, 49.2, 31.2, 37.2 };
    eg_tensor *x = eg_on("i, m -> i m", eg_add, counting(4), eg_shift(counting(8), 1)), *a;
    eg_assert_close(eg_select_axis(eg_einsum("im,md->id", x, worked(1, 2, 3, 4, 1)), 0, 0),
                    eg_from(cx, q1, 4), 1e-12);
    eg_tensor *head = worked_head(1, &a, 0);
    for (int i = 0; i < 4; i++) {
        eg_assert_close(eg_select_axis(head, 0, i), eg_from(cx, last, 4), 1e-12);
        eg_assert_close(eg_select_axis(a, 0, i), eg_from(cx, ((double[]){ 0, 0, 0, 1 }), 4),
                        1e-100);
    }
    eg_ctx *f64 = cx;
    cx = eg_open(); /* f32 */
    eg_assert_close(eg_select_axis(worked_head(1, &a, 0), 0, 2),
                    eg_from(cx, ((float[]){ 43.2f, 49.2f, 31.2f, 37.2f }), 4), 1e-5);
    eg_close(cx);
    cx = f64;
}

TEST(output_of_the_example)
{
    static const double right[8] = {
        141.12, 173.28, 205.44, 237.6, 269.76, 301.92, 334.08, 366.24
    };
    eg_tensor *both = eg_concat_axis(1, worked_head(1, NULL, 0), worked_head(1, NULL, 1));
    eg_tensor *wo =
        eg_scale(eg_on("r, c -> r c", eg_add, counting(8), eg_shift(counting(8), 1)), 0.1);
    eg_tensor *y = eg_einsum("ir,rc->ic", both, wo);
    for (int i = 0; i < 4; i++)
        eg_assert_close(eg_select_axis(y, 0, i), eg_from(cx, right, 8), 1e-12);
}

TEST(scores_are_scaled_once)
{
    eg_tensor *x = eg_on("i, m -> i m", eg_add, counting(4), eg_shift(counting(8), 1));
    eg_tensor *s = eg_scale(eg_einsum("id,jd->ij", eg_einsum("im,md->id", x, worked(1, 2, 3, 4, 1)),
                                      eg_einsum("im,md->id", x, worked(2, 1, 4, 3, 1))),
                            0.5);
    static const double first[4] = { 1350.72, 1602.72, 1854.72, 2106.72 };
    eg_assert_close(eg_select_axis(s, 0, 0), eg_from(cx, first, 4), 1e-12);
    ck_assert_double_eq_tol(eg_get(s, 3, 3), 3286.08, 1e-9);
}

TEST(no_score_overflows)
{
    for (int f32 = 0; f32 < 2; f32++) {
        eg_tensor *s = eg_cast(eg_from(cx, ((double[]){ 3286, -1e30, 1e30, 1e30, 0, -3286 }), 2, 3),
                               f32 ? EG_F32 : EG_F64);
        eg_tensor *y = eg_cast(eg_softmax("i [j]", s), EG_F64);
        eg_assert_close(y, eg_from(cx, ((double[]){ 0, 0, 1, 1, 0, 0 }), 2, 3), 0);
    }
}

TEST(heads_of_the_example_with_smaller_matrices)
{
    static const double w1[4] = { 0.000479, 0.005953, 0.073989, 0.919579 },
                        w4[4] = { 0.000007, 0.000377, 0.019235, 0.980380 };
    static const double h1[4] = { 42.745873, 48.676007, 30.885604, 36.815738 },
                        h4[4] = { 43.095937, 49.079927, 31.127956, 37.111946 };
    static const double entropy[4] = { 0.303916, 0.209767, 0.144103, 0.098487 };
    eg_tensor *a, *head = worked_head(0.1, &a, 0);
    eg_assert_close(eg_select_axis(a, 0, 0), eg_from(cx, w1, 4), 1e-6);
    eg_assert_close(eg_select_axis(a, 0, 3), eg_from(cx, w4, 4), 1e-6);
    eg_assert_close(eg_select_axis(head, 0, 0), eg_from(cx, h1, 4), 1e-7);
    eg_assert_close(eg_select_axis(head, 0, 3), eg_from(cx, h4, 4), 1e-7);
    eg_assert_close(eg_neg(eg_einsum("ij,ij->i", a, eg_log(a))), eg_from(cx, entropy, 4), 1e-6);
}

TEST(parameters_do_not_depend_on_heads)
{
    for (int h = 1; h <= 8; h *= 2) {
        eg_params *p = eg_params_open(cx);
        eg_mha_new(p, "attn", .d_model = 16, .heads = h, .no_bias = true);
        ck_assert_int_eq(eg_params_size(p), 4 * 16 * 16);
        eg_params_close(p);
    }
}

/* 2 heads have as many parameters as 1, but another result. */
TEST(heads_divide_the_same_parameters)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 3, 8), *y[2];
    int64_t count[2];
    for (int h = 1; h <= 2; h++) {
        eg_params *p = eg_params_open(cx);
        eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = h, .no_bias = true);
        for (int k = 0; k < 4; k++) {
            eg_tensor *w = eg_params_find(
                p, ((const char *[]){ "attn.W_q", "attn.W_k", "attn.W_v", "attn.W_o" })[k]);
            double *v = eg_mut_f64(w);
            /* (8, h, 8/h) or (h, 8/h, 8): the same matrix */
            for (int64_t i = 0; i < eg_size(w); i++) v[i] = sin(0.7 * (double)(i + k));
        }
        count[h - 1] = eg_params_size(p);
        y[h - 1] = eg_mha_run(m, x);
    }
    ck_assert_int_eq(count[0], count[1]);
    ck_assert_double_gt(eg_item(eg_max(NULL, eg_abs(eg_sub(y[0], y[1])))), 1e-3);
}

TEST(output_has_the_shape_of_the_input)
{
    eg_tensor *y = eg_mha_run(eg_mha_new(eg_params_open(cx), "attn", .d_model = 8, .heads = 2),
                              eg_ones(cx, 1, 4, 8));
    eg_assert_axes("b=1 i=4 m=8", y);
}

TEST(a_loop_over_heads_and_any_threads)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 3, 40, 4, 8), *k = eg_normal(cx, 0, 1, 3, 40, 4, 8),
              *v = eg_normal(cx, 0, 1, 3, 40, 4, 8), *y[2];
    for (int t = 0; t < 2; t++) {
        eg_threads(cx, t + 1);
        y[t] = eg_attention("bihd,bjhd,bjhe->bihe", q, k, v);
    }
    eg_assert_close(y[0], y[1], 0);
    for (int h = 0; h < 4; h++)
        eg_assert_close(eg_select_axis(y[0], 2, h),
                        eg_attention("bid,bjd,bje->bie", eg_select_axis(q, 2, h),
                                     eg_select_axis(k, 2, h), eg_select_axis(v, 2, h)),
                        1e-13);
}

TEST(without_positions_order_does_not_matter)
{
    eg_mha *m = eg_mha_new(eg_params_open(cx), "attn", .d_model = 8, .heads = 2);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8),
              *order = eg_from(cx, ((int64_t[]){ 3, 0, 5, 1, 4, 2 }), 6);
    eg_tensor *moved = eg_at("b [l] m, i -> b i m", x, order);
    eg_assert_close(eg_mha_run(m, moved), eg_at("b [l] m, i -> b i m", eg_mha_run(m, x), order),
                    1e-14);
}

TEST(initial_values_norm_residual_clipping)
{
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "W", "i o", 200, 300);
    double bound = sqrt(6.0 / 500);
    ck_assert(eg_item(eg_max(NULL, eg_abs(w))) <= bound);
    ck_assert_double_eq_tol(eg_item(eg_std(NULL, w)), bound / sqrt(3), 0.01 * bound);
    eg_init_normal(w, 0.02);
    ck_assert_double_eq_tol(eg_item(eg_std(NULL, w)), 0.02, 0.0005);
    /* residual and layer norm */
    eg_block *b = eg_block_new(p, "block", .d_model = 8, .heads = 2);
    eg_assert_axes("b=2 i=3 m=8", eg_block_run(b, eg_normal(cx, 0, 1, 2, 3, 8)));
    eg_opt *op = eg_adam(p, .lr = 1e-3, .clip_norm = 1);
    ck_assert_int_eq(eg_step(op, eg_sum(NULL, eg_square(w))), 0);
}

/* Sparse and local attention for long inputs: a window is a predicate, and equals the corresponding
 * mask. */
TEST(local_attention_is_a_predicate)
{
    const int64_t n = 40;
    eg_tensor *q = eg_normal(cx, 0, 1, n, 4), *k = eg_normal(cx, 0, 1, n, 4),
              *v = eg_normal(cx, 0, 1, n, 4);
    eg_tensor *keep = eg_full_n(cx, EG_BOOL, 0, 2, (int64_t[]){ n, n });
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            eg_mut_bool(keep)[i * n + j] = (i - 8 < j && j <= i) || j < 2;
    eg_assert_close(eg_attention("id,jd,je->ie", q, k, v, .where = "i - 8 < j <= i | j < 2"),
                    eg_attention("id,jd,je->ie", q, k, v, .keep = { "ij", keep }), 1e-14);
}

/* Batched products equal the loop over samples, and intermediates are reused: after the first call,
 * the heads' products take no more memory. */
TEST(batched_products_reuse_their_memory)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 4, 8, 20, 16), *k = eg_normal(cx, 0, 1, 4, 8, 20, 16), *loop,
              *w[4];
    size_t warm = 0;
    for (int step = 0; step < 5; step++) {
        eg_mark m = eg_push(cx);
        eg_tensor *s = eg_einsum("bhid,bhjd->bhij", q, k), *y = eg_einsum("bhij,bhjd->bihd", s, k);
        ck_assert(eg_ok(y));
        eg_pop(cx, m);
        if (step == 2) warm = eg_stats(cx).bytes;
    }
    ck_assert_uint_eq(eg_stats(cx).bytes, warm);
    for (int b = 0; b < 4; b++)
        w[b] = eg_einsum("hid,hjd->hij", eg_select_axis(q, 0, b), eg_select_axis(k, 0, b));
    loop = eg_stack_axis(0, w[0], w[1], w[2], w[3]);
    eg_assert_close(eg_einsum("bhid,bhjd->bhij", q, k), loop, 1e-13);
}
