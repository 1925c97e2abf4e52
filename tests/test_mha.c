/* test_mha.c: the attention module in every form, layout and width; rotary positions; the cache.
 * Laws: the same result with any form of the weights, with any order of axes, in one call or step
 * by step. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 11); }
static void close_cx(void) { eg_close(cx); }

/* -- forms ------------------------------------------------------------------------------------ */
static const eg_mha_form forms[] = { EG_SEPARATE, EG_PACKED, EG_PER_HEAD };

GROUP("mha", .setup = open_f64, .teardown = close_cx)

/* result, and gradient of every logical weight */
LOOP_TEST(one_set_of_numbers_in_any_form, 9)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *a = eg_mha_new(eg_params_under(p, "a"), "", .d_model = 12, .heads = 3);
    eg_mha *b =
        eg_mha_new(eg_params_under(p, "b"), "", .d_model = 12, .heads = 3, .form = forms[_i / 3]);
    eg_mha *c =
        eg_mha_new(eg_params_under(p, "c"), "", .d_model = 12, .heads = 3, .form = forms[_i % 3]);
    randomise(p, 0.4);
    ck_assert_int_eq(eg_mha_copy(b, a), 0);
    ck_assert_int_eq(eg_mha_copy(c, b), 0);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 12), *seed = eg_normal(cx, 0, 1, 2, 5, 12);
    eg_tensor *y = eg_mha_run(a, x, .where = "j <= i"), *z = eg_mha_run(c, x, .where = "j <= i");
    eg_assert_close(z, y, 0);
    eg_tensor *xs[40], *dxs[40];
    int count = 0;
    for (int k = 0; eg_params_at(p, k); k++)
        if (eg_params_at(p, k)->name[0] == 'c') xs[count++] = eg_params_at(p, k)->x;
    ck_assert_int_eq(eg_grad(z, seed, count, xs, dxs), 0);
    eg_nograd(cx, true);
    /* assign the gradients to the parameters, to read them as logical weights */
    for (int k = 0; k < count; k++) ck_assert_int_eq(eg_assign(xs[k], dxs[k]), 0);
    static const char *const which[] = { "W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o" };
    eg_tensor *ws[8], *dws[8];
    for (int k = 0; k < 8; k++) ws[k] = eg_mha_weight(a, which[k]);
    eg_nograd(cx, false);
    ck_assert_int_eq(eg_grad(y, seed, 8, ws, dws), 0);
    for (int k = 0; k < 8; k++)
        eg_assert_close(eg_contiguous(eg_mha_weight(c, which[k])), dws[k], 1e-13);
}

/* The residual is added with the bits of eg_add, in any layout and with any bias. */
LOOP_TEST(a_run_adds_the_tensor_of_add, 8)
{
    static const char *const layouts[] = { "b i m", "i b m", "m i b", "(b=2 i) m" };
    const char *layout = layouts[_i / 2];
    eg_mha *m = eg_mha_new(eg_params_open(cx), "attn", .d_model = 12, .heads = 3, .layout = layout,
                           .no_bias = _i % 2);
    eg_tensor *x = _i / 2 == 3   ? eg_normal(cx, 0, 1, 10, 12)
                   : _i / 2 == 2 ? eg_normal(cx, 0, 1, 12, 5, 2)
                                 : eg_normal(cx, 0, 1, 2, 5, 12);
    eg_tensor *r = eg_flip_axis(x, 0), *y = eg_mha_run(m, x, .add = r);
    eg_assert_close(y, eg_add(eg_mha_run(m, x), r), 0);
    ck_assert(!eg_ok(eg_mha_run(m, x, .add = eg_slice_axis(r, 0, 0, 1, 1))));
    eg_assert_error(cx, "mha \"attn\": ");
}

TEST(names_and_counts_of_the_forms)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "packed", .d_model = 8, .heads = 2, .form = EG_PACKED),
           *n = eg_mha_new(p, "each", .d_model = 8, .heads = 2, .form = EG_PER_HEAD);
    ck_assert_int_eq(eg_params_size(p), 2 * (4 * 64 + 4 * 8));
    ck_assert_ptr_eq(eg_params_find(p, "packed.W_qkv"), m->W_qkv);
    ck_assert_ptr_eq(eg_params_find(p, "each.W_v.1"), n->W_each[2][1]);
    ck_assert_ptr_nonnull(eg_params_find(p, "each.b_o"));
    int64_t c, h, d, w;
    eg_assert_axes("m c h d", m->W_qkv, &w, &c, &h, &d);
    ck_assert(w == 8 && c == 3 && h == 2 && d == 4);
    eg_assert_axes("e m", n->W_each[3][0], &d, &w);
    ck_assert(d == 4 && w == 8);
    double right = sqrt(2.0 / 128);
    eg_mha *wide = eg_mha_new(p, "wide", .d_model = 64, .heads = 8, .form = EG_PACKED),
           *loose = eg_mha_new(p, "loose", .d_model = 64, .heads = 8, .form = EG_PER_HEAD);
    /* the same spread, packed or not: pytorch#166378 */
    ck_assert(fabs(eg_item(eg_std(NULL, wide->W_qkv)) / right - 1) < 0.03);
    ck_assert(fabs(eg_item(eg_std(NULL, eg_mha_weight(loose, "W_q"))) / right - 1) < 0.03);
    eg_mha *small = eg_mha_new(p, "small", .d_model = 64, .heads = 8, .init = 0.02);
    ck_assert(fabs(eg_item(eg_std(NULL, small->W_v)) / 0.02 - 1) < 0.05);
    eg_mha *bare =
        eg_mha_new(p, "bare", .d_model = 8, .heads = 2, .form = EG_PACKED, .no_bias = true);
    ck_assert(!bare->b_qkv && !eg_mha_weight(bare, "b_q") && !eg_mha_weight(bare, "nothing") &&
              !eg_mha_weight(NULL, "W_q"));
    eg_assert_ok(cx);
}

LOOP_TEST(forms_refuse_what_they_cannot_hold, 20)
{
    static const int64_t widths[] = { 4, 4 }, none[] = { 4, 0 };
    const struct {
        eg_mha_args a;
        const char *why;
    } cases[] = {
        { { .form = EG_PACKED, .kdim = 5 },
          "packed weights need one width, but qdim is 8, kdim 5 and vdim 8" },
        { { .form = EG_PACKED, .d_k = 3 }, "packed weights need d_k = d_v, not 3 and 4" },
        { { .form = EG_PER_HEAD, .kv_heads = 1 }, "2 heads on 1 kv_heads need the separate form" },
        { { .form = EG_PACKED, .no_k_bias = true },
          "a bias for query, key and value, or for none" },
        { { .d_k_each = widths }, "heads of different widths need .form = EG_PER_HEAD" },
        { { .d_k_each = none, .form = EG_PER_HEAD }, "d_k_each must be positive, not 0" },
        { { .d_k_each = widths, .form = EG_PER_HEAD, .rotary = 1e4 },
          "rotary positions need heads of one width" },
        { { .d_k = 3, .rotary = 1e4 }, "rotary positions rotate pairs of elements, but d_k is 3" },
        { { .rotary = -1 }, "the base of rotary positions is -1" },
        { { .kv_heads = 3, .heads = 4 }, "heads must be divisible by kv_heads: 4 / 3" },
        { { .kv_heads = -1 }, "kv_heads must be positive, not -1" },
        { { .layout = "b i" }, "the layout needs 'm' once" },
        { { .layout = "i i m" }, "the layout has 'i' more than once" },
        { { .layout = "b b i m" }, "has 'b' more than once" },
        { { .layout = "h i m" }, "the letter 'h' of the layout is the module's own" },
        { { .layout = "b ( i m" }, "mha \"attn\": '(' is not closed\n  b ( i m\n    ^" },
        { { .layout = "b i) m" }, "mha \"attn\": ')' closes nothing" },
        { { .layout = "((b) i) m" }, "mha \"attn\": groups cannot be nested" },
        { { .layout = "b i [m]" }, "the layout is made of letters and groups such as" },
        { { .qdim = 8, .kdim = 8, .vdim = 8, .d_k = 4, .d_v = 4, .d_model = -1 },
          "d_model must be positive, not -1" },
    };
    eg_mha_args a = cases[_i].a;
    a.size = sizeof a, a.params = eg_params_open(cx), a.name = "attn";
    a.heads = a.heads ? a.heads : 2;
    a.d_model = a.d_model ? a.d_model : 8;
    ck_assert_ptr_null(eg_mha_new_with(&a));
    eg_assert_error(cx, cases[_i].why);
}

TEST(copies_refuse_other_sizes)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *a = eg_mha_new(p, "a", .d_model = 8, .heads = 2),
           *b = eg_mha_new(p, "b", .d_model = 8, .heads = 4);
    eg_mha *c = eg_mha_new(p, "c", .d_model = 8, .heads = 2, .no_v_bias = true);
    ck_assert_int_eq(eg_mha_copy(a, b), -1);
    eg_assert_error(cx, "mha_copy: heads is 2 in \"a\" but 4 in \"b\"");
    ck_assert_int_eq(eg_mha_copy(a, c), -1);
    eg_assert_error(cx, "\"a\" has a b_v, \"c\" has none");
    ck_assert_int_eq(eg_mha_copy(a, NULL), -1);
    eg_assert_error(cx, "mha_copy: the module to copy from is NULL");
}

/* -- layouts ---------------------------------------------------------------------------------- */
LOOP_TEST(any_layout, 4)
{
    static const struct {
        const char *layout, *there, *back;
    } cases[] = {
        { "i b m", "b i m -> i b m", "i b m -> b i m" },
        { "m i b", "b i m -> m i b", "m i b -> b i m" },
        { "(b=2 i) m", "b i m -> (b i) m", "(b=2 i) m -> b i m" },
        { "i b (c=2 m)", "b i m -> i b r=2 m", NULL },
    };
    eg_params *p = eg_params_open(cx);
    eg_mha *a = eg_mha_new(p, "", .d_model = 12, .heads = 3);
    randomise(p, 0.4);
    eg_mha *b =
        eg_mha_new(eg_params_open(cx), "", .d_model = 12, .heads = 3, .layout = cases[_i].layout);
    ck_assert_int_eq(eg_mha_copy(b, a), 0);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 12), *k = eg_normal(cx, 0, 1, 2, 7, 12), *w, *v;
    eg_tensor *y = eg_mha_run(a, x, .key = k, .where = "j <= i + 1", .weights = &w);
    bool twice = !cases[_i].back;
    eg_tensor *there = eg_rearrange(cases[_i].there, x), *keys = eg_rearrange(cases[_i].there, k);
    if (twice) {
        there = eg_rearrange("i b r m -> i b (r m)", there);
        keys = eg_rearrange("i b r m -> i b (r m)", keys);
    }
    eg_tensor *z = eg_mha_run(b, there, .key = keys, .where = "j <= i + 1", .weights = &v);
    eg_assert_ok(cx);
    eg_assert_close(twice ? eg_select_axis(eg_rearrange("i b (r=2 m) -> r b i m", z), 0, 1)
                          : eg_rearrange(cases[_i].back, z),
                    y, 1e-13);
    if (!twice) eg_assert_close(eg_contiguous(v), eg_contiguous(w), 1e-13);
}

/* with the layout for it; otherwise refused */
TEST(one_sequence_without_a_batch)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *a = eg_mha_new(p, "", .d_model = 8, .heads = 2),
           *b = eg_mha_new(eg_params_open(cx), "attn", .d_model = 8, .heads = 2, .layout = "i m");
    randomise(p, 0.4);
    eg_mha_copy(b, a);
    eg_tensor *x = eg_normal(cx, 0, 1, 5, 8);
    eg_assert_close(eg_mha_run(b, x), eg_select_axis(eg_mha_run(a, eg_unsqueeze(x, 0)), 0, 0),
                    1e-13);
    ck_assert(!eg_ok(eg_mha_run(a, x)));
    eg_assert_error(cx, "the query has 2 axes, but the layout \"b i m\" needs 3; .layout = \"i m\" "
                        "takes one sequence");
    ck_assert(!eg_ok(eg_mha_run(b, x, .key = eg_ones(cx, 4, 7))));
    eg_assert_error(cx, "mha \"attn\": 'm' is 8 in the module but 7 in the key");
}

/* -- widths and heads ------------------------------------------------------------------------- */
static eg_tensor *run(void *m, eg_tensor *const *x) /* x: query, key, value */
{
    return eg_mha_run(m, x[0], .key = x[1], .value = x[2], .where = "j <= i + 1");
}

LOOP_TEST(gradients_of_every_kind, 7) /* to second order */
{
    static const int64_t each[] = { 1, 3, 2 }, each_v[] = { 2, 1, 1 };
    const struct eg_mha_args kinds[] = {
        { .d_model = 4, .heads = 2 },
        { .heads = 2, .qdim = 3, .kdim = 2, .vdim = 4, .d_k = 2, .d_v = 3, .d_out = 5 },
        { .d_model = 6, .heads = 3, .form = EG_PER_HEAD, .d_k_each = each, .d_v_each = each_v },
        { .d_model = 4, .heads = 2, .form = EG_PACKED, .layout = "i b m" },
        { .d_model = 8, .heads = 4, .kv_heads = 2 },
        { .d_model = 4, .heads = 2, .kv_heads = 1, .rotary = 100 },
        { .d_model = 4, .heads = 1, .rotary = 100, .interleaved = true },
    };
    eg_mha_args a = kinds[_i];
    a.size = sizeof a, a.params = eg_params_open(cx), a.name = "";
    eg_mha *m = eg_mha_new_with(&a);
    randomise(a.params, 0.4);
    bool first = a.layout != NULL;
    eg_tensor *q = eg_normal(cx, 0, 1, first ? 3 : 2, first ? 2 : 3, m->qdim),
              *k = eg_normal(cx, 0, 1, first ? 3 : 2, first ? 2 : 3, m->kdim),
              *v = eg_normal(cx, 0, 1, first ? 3 : 2, first ? 2 : 3, m->vdim);
    eg_assert_grad2(run, m, q, k, v);
}

TEST(uneven_heads) /* each head as a separate attention */
{
    static const int64_t each[] = { 1, 4, 2 };
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 6, .heads = 3, .form = EG_PER_HEAD, .d_k_each = each);
    randomise(p, 0.4);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 6), *bias = eg_normal(cx, 0, 1, 3, 5, 5), *w,
              *sum = NULL;
    eg_tensor *y = eg_mha_run(m, x, .bias = { "hij", bias }, .where = "j <= i + h", .weights = &w);
    for (int h = 0; h < 3; h++) {
        eg_tensor *q = eg_add(eg_einsum("bim,md->bid", x, m->W_each[0][h]), m->b_each[0][h]);
        eg_tensor *k = eg_add(eg_einsum("bim,md->bid", x, m->W_each[1][h]), m->b_each[1][h]);
        eg_tensor *v = eg_add(eg_einsum("bim,md->bid", x, m->W_each[2][h]), m->b_each[2][h]);
        char where[] = "j <= i + 0";
        where[sizeof where - 2] = (char)('0' + h);
        eg_tensor *s = eg_on("bij,ij", eg_add,
                             eg_scale(eg_einsum("bid,bjd->bij", q, k), 1 / sqrt((double)each[h])),
                             eg_select_axis(bias, 0, h));
        eg_tensor *a = eg_softmax("b i [j]", s, .where = where),
                  *z = eg_einsum("bij,bjd,dm->bim", a, v, m->W_each[3][h]);
        eg_assert_close(eg_contiguous(eg_select_axis(w, 1, h)), eg_contiguous(a), 1e-13);
        sum = sum ? eg_add(sum, z) : z;
    }
    eg_assert_close(y, eg_add(sum, m->b_o), 1e-13);
    ck_assert_int_eq(eg_params_size(p), 4 * 6 * 7 + 3 * 7 + 6);
    eg_mha *twin = eg_mha_new(eg_params_open(cx), "", .d_model = 6, .heads = 3, .form = EG_PER_HEAD,
                              .d_k_each = each);
    ck_assert_int_eq(eg_mha_copy(twin, m), 0);
    eg_assert_close(eg_mha_run(twin, x, .bias = { "hij", bias }, .where = "j <= i + h"), y, 0);
}

TEST(grouped_heads) /* heads g·r share the keys of g: equal to repeated keys */
{
    eg_params *p = eg_params_open(cx), *full = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 12, .heads = 6, .kv_heads = 2),
           *all = eg_mha_new(full, "", .d_model = 12, .heads = 6);
    randomise(p, 0.4);
    static const char *const shared[] = { "W_k", "W_v", "b_k", "b_v" };
    for (int k = 0; k < 4; k++)
        eg_assign(eg_params_find(full, shared[k]),
                  k < 2 ? eg_rearrange("m g d -> m (g r=3) d", eg_params_find(p, shared[k]))
                        : eg_rearrange("g d -> (g r=3) d", eg_params_find(p, shared[k])));
    static const char *const own[] = { "W_q", "W_o", "b_q", "b_o" };
    for (int k = 0; k < 4; k++) eg_assign(eg_params_find(full, own[k]), eg_params_find(p, own[k]));
    bool keep[2][5] = { { 1, 1, 1, 0, 0 }, { 1, 1, 1, 1, 1 } };
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 12), *bias = eg_normal(cx, 0, 1, 6, 5, 5), *w, *v,
              *pad = eg_from(cx, &keep[0][0], 2, 5);
    eg_tensor *gain = eg_normal(cx, 0, 1, 6);
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i + h % 3 | |h| == 5", .bias = { "hij", bias },
                              .keep = { "bj", pad }, .weights = &w, .gain = gain);
    eg_tensor *z = eg_mha_run(all, x, .where = "j <= i + h % 3 | |h| == 5", .bias = { "hij", bias },
                              .keep = { "bj", pad }, .weights = &v, .gain = gain);
    eg_assert_close(y, z, 1e-13);
    eg_assert_close(eg_contiguous(w), eg_contiguous(v), 1e-13);
    ck_assert_int_eq(eg_params_size(p), 12 * 12 * 2 + 2 * 12 * 4 + 12 + 12 + 4 + 4);
}

TEST(a_head_off)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 6, .heads = 3);
    randomise(p, 0.4);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 4, 6);
    double on[] = { 1, 0, 1 };
    eg_tensor *off = eg_mha_run(m, x, .gain = eg_from(cx, on, 3));
    eg_assign(eg_select_axis(m->W_o, 0, 1), eg_zeros(cx, 2, 6));
    eg_assert_close(eg_mha_run(m, x), off, 1e-13);
    eg_assert_close(eg_mha_run(m, x, .gain = eg_ones(cx, 3)), off, 1e-13);
    ck_assert(!eg_ok(eg_mha_run(m, x, .gain = eg_ones(cx, 2))));
    eg_assert_error(cx, "mha \"attn\": the gain has 2 numbers for 3 heads");
}

TEST(masks_of_the_module_and_of_the_run)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 6, .heads = 2, .where = "i - 2 < j"),
           *plain = eg_mha_new(eg_params_open(cx), "", .d_model = 6, .heads = 2);
    eg_mha_copy(plain, m);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 6), *g, *h;
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i | j == 5"),
              *z = eg_mha_run(plain, x, .where = "i - 2 < j & (j <= i | j == 5)");
    eg_assert_close(y, z, 0);
    eg_assert_close(eg_mha_run(m, x), eg_mha_run(plain, x, .where = "i - 2 < j"), 0);
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, 6, 6);
    ck_assert(!eg_grad(y, seed, 1, &x, &g) && !eg_grad(z, seed, 1, &x, &h));
    eg_assert_close(g, h, 0);
    char text[600] = "j <= i"; /* long texts are allowed */
    memset(text + 6, ' ', sizeof text - 7);
    eg_assert_close(eg_mha_run(m, x, .where = text), eg_mha_run(m, x, .where = "j <= i"), 0);
}

/* -- options that are passed on to eg_attention, and scores of masked pairs -------------------- */
static eg_tensor *soft_cap(void *user, eg_tensor *s)
{
    double c = *(double *)user;
    return eg_scale(eg_tanh(eg_scale(s, 1 / c)), c);
}
typedef struct slopes {
    eg_tensor *of_head;
} slopes; /* learned: s − slope_h |i − j| */
static eg_tensor *sloped(void *user, eg_tensor *s)
{
    eg_tensor *i = eg_arange(cx, EG_F64, 0, (double)eg_dim(s, 2), 1),
              *j = eg_arange(cx, EG_F64, 0, (double)eg_dim(s, 3), 1);
    eg_tensor *far = eg_abs(eg_sub(eg_unsqueeze(i, 1), j));
    return eg_on("bhij,hij", eg_sub, s, eg_einsum("h,ij->hij", ((slopes *)user)->of_head, far));
}
static eg_tensor *run_sloped(void *m, eg_tensor *const *x)
{
    slopes t = { x[1] };
    return eg_mha_run(m, x[0], .where = "j <= i", .score_fn = sloped, .user = &t);
}

/* .score_fn and .bias of the run or of the module, also with grouped heads; trained */
TEST(a_score_of_the_users)
{
    double cap = 0.7;
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 4, .kv_heads = 2, .score_fn = soft_cap,
                           .user = &cap);
    randomise(p, 0.4);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *slope = eg_normal(cx, 0, 1, 4), *w, *s;
    eg_mha_run(m, x, .weights = &w, .scores = &s);
    ck_assert(eg_item(eg_max(NULL, eg_abs(s))) < cap);
    eg_assert_close(eg_contiguous(w), eg_softmax("b h i [j]", eg_contiguous(s)), 1e-13);
    m->score_fn = NULL;
    eg_mha_run(m, x, .scores = &s);
    ck_assert(eg_item(eg_max(NULL, eg_abs(s))) > cap);
    slopes t = { slope };
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i", .score_fn = sloped, .user = &t);
    eg_tensor *bias = eg_neg(eg_select_axis(sloped(&t, eg_zeros(cx, 1, 4, 5, 5)), 0, 0));
    eg_assert_close(y, eg_mha_run(m, x, .where = "j <= i", .bias = { "hij", eg_neg(bias) }), 1e-13);
    eg_assert_grad2(run_sloped, m, eg_normal(cx, 0, 1, 1, 3, 8), slope);
    eg_block *b = eg_block_new(p, "block", .d_model = 8, .heads = 4,
                               .mha = &(eg_mha_args){ .score_fn = soft_cap, .user = &cap });
    eg_assert_ok(cx);
    eg_tensor *one = eg_block_run(b, x);
    cap = 0.01;
    ck_assert(largest_difference(one, eg_block_run(b, x)) > 1e-4);
}

/* Masks and scores that read tensors, those of the module and those of the run: the same as the
 * equivalent data, for heads of one width, in groups, and of different widths. */
LOOP_TEST(texts_that_read_tensors, 4)
{
    static const int64_t widths[] = { 2, 6, 4 };
    eg_params *p = eg_params_open(cx);
    eg_tensor *r = eg_normal(cx, 0, 1, 3, 6),
              *doc = eg_from(cx, ((int64_t[]){ 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 2, 2 }), 2, 6);
    eg_mha_args o = { .size = sizeof o,
                      .params = p,
                      .name = "m",
                      .d_model = 12,
                      .heads = 3,
                      .kv_heads = _i == 1 ? 1 : 0,
                      .d_k_each = _i == 2 ? widths : NULL,
                      .form = _i == 2 ? EG_PER_HEAD : EG_SEPARATE,
                      .where = "far[h] | i - j < 3" };
    eg_mha *plain = eg_mha_new_with(&(eg_mha_args){ .size = sizeof o,
                                                    .params = p,
                                                    .name = "plain",
                                                    .d_model = 12,
                                                    .heads = 3,
                                                    .kv_heads = o.kv_heads,
                                                    .d_k_each = o.d_k_each,
                                                    .form = o.form });
    o.score = "score + r[h, clip(i - j, 0, 5)]";
    o.with[0] = (eg_given){ "far", eg_from(cx, ((bool[]){ true, false, true }), 3) };
    o.with[1] = (eg_given){ "r", r };
    o.with[2] = (eg_given){ "unused", doc }; /* for runs with another predicate */
    eg_mha *m = eg_mha_new_with(&o);
    eg_assert_ok(cx);
    randomise(p, .4);
    ck_assert(!eg_mha_copy(plain, m));
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 12);
    const double fill = _i == 3 ? -50 : 0;
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i & doc[b,i] == doc[b,j]",
                              .with = { { "doc", doc } }, .fill = fill);
    const int64_t sizes[] = { 2, 3, 6, 6 };
    eg_tensor *mask = eg_where_mask(cx, "(far[h] | i - j < 3) & (j <= i & doc[b,i] == doc[b,j])",
                                    "b h i [j]", 0, sizes, .with = { o.with[0], { "doc", doc } });
    eg_tensor *bias = eg_expr("h i j", "r[h, clip(i - j, 0, 5)] + 0 * z",
                              .with = { { "r", r }, { "z", eg_zeros(cx, 3, 6, 6) } });
    eg_tensor *z =
        eg_mha_run(plain, x, .keep = { "bhij", mask }, .bias = { "hij", bias }, .fill = fill);
    eg_assert_close(y, z, 1e-12);
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, 6, 12), *in[2] = { x, r }, *d[2], *e[2];
    ck_assert(!eg_grad(y, seed, 2, in, d) && !eg_grad(z, seed, 2, in, e));
    for (int k = 0; k < 2; k++) eg_assert_close(d[k], e[k], 1e-12);
    if (!fill) { /* queries with a cache */
        eg_nograd(cx, true);
        eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
        for (int from = 0; from < 6; from += 2) {
            eg_tensor *part =
                eg_mha_run(m, eg_slice_axis(x, 1, from, from + 2, 1), .cache = c,
                           .where = "j <= i & doc[b,i] == doc[b,j]", .with = { { "doc", doc } });
            eg_assert_close(part, eg_slice_axis(y, 1, from, from + 2, 1), 1e-12);
        }
        eg_nograd(cx, false);
    }
    ck_assert(!eg_ok(eg_mha_run(m, x, .where = "j < r[i]", .with = { { "r", doc } })));
    eg_assert_error(cx, "'r' is in .with of the module and in that of the run");
    ck_assert(!eg_ok(eg_mha_run(m, x, .where = "doc[b,i] == doc[b,j]")));
    eg_assert_error(cx, "'doc'");
    ck_assert(!eg_ok(eg_mha_run(m, x, .score = "score * (1 + k)")));
    eg_assert_error(
        cx, "mha \"m\": .score: the score's name 'k' is not one of 'b', 'h', 'i', 'j', 'far', 'r', "
            "'unused'\n  score * (1 + k)\n               ^");
}

/* a text that is invalid for every run is refused by the constructor; tensors may be given with a
 * run */
LOOP_TEST(texts_are_read_at_new, 12)
{
    eg_tensor *r = eg_ones(cx, 2, 9), *doc = eg_full_n(cx, EG_I64, 0, 2, (int64_t[]){ 2, 5 });
    const struct {
        eg_mha_args a;
        const char *why;
    } cases[] = {
        { { .where = "j <= k" },
          "mha \"a\": .where: the predicate's index 'k' is not one of 'b', 'h', 'i', 'j'\n  j <= "
          "k\n"
          "       ^" },
        { { .where = "j <= |k|" }, ".where: the predicate's index 'k' is not one of" },
        { { .where = "j <= i &" }, "mha \"a\": .where: the predicate ends where" },
        { { .where = "j + i" }, "mha \"a\": .where: the predicate is a number, not a condition" },
        { { .where = "tanh(j) < i" }, "mha \"a\": .where: tanh makes a float" },
        { { .where = "r[h, j] < 1", .with = { { "r", r } } },
          "mha \"a\": .where: 'r' is f64, and a predicate reads integers and booleans" },
        { { .score = "" }, "mha \"a\": .score: the score is empty" },
        { { .score = "socre + i" },
          "mha \"a\": .score: the score's index 'socre' is not one of 'b', 'h', 'i', 'j'\n  socre "
          "+ i\n"
          "  ^^^^^\n  is 'score' meant?" },
        { { .score = "score + r[h]", .with = { { "r", r } } },
          "mha \"a\": .score: 'r' has 2 axes, but its brackets have 1 index\n  score + r[h]" },
        { { .score = "j <= i" }, "mha \"a\": .score: the score is a condition, not a number" },
        { { .score = "score + sqtr(2)" }, "is 'sqrt' meant?" },
        { { .score = "score + i[h]", .with = { { "i", r } } },
          "mha \"a\": .score: 'i' is a letter and cannot be a tensor's name too" },
    };
    eg_mha_args a = cases[_i].a;
    a.size = sizeof a, a.params = eg_params_open(cx), a.name = "a", a.d_model = 8, a.heads = 2;
    ck_assert_ptr_null(eg_mha_new_with(&a));
    eg_assert_error(cx, cases[_i].why);
    /* in a run: the same errors, and every tensor is known */
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 2,
                           .where = "j <= i & doc[b,i] == doc[b,j]", .with = { { "r", r } });
    eg_assert_ok(cx);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8);
    ck_assert(eg_ok(eg_mha_run(m, x, .with = { { "doc", doc } })));
    ck_assert(!eg_ok(eg_mha_run(m, x, .with = { { "dco", doc } })));
    eg_assert_error(
        cx, "mha \"a\": the module's .where: the predicate's tensor 'doc' is not one of 'b', "
            "'h', 'i', 'j', 'r', 'dco'\n  j <= i & doc[b,i] == doc[b,j]\n           ^^^\n  "
            "give the tensor in .with");
}

/* a choice between elements of tensors that only a run has may be a condition */
LOOP_TEST(choices_of_conditions_at_new, 4)
{
    static const char *const texts[] = { "i < 3 ? pad[b, j] : see[b, j]",
                                         "!(i < 3 ? pad[b, j] : see[b, j])",
                                         "(i < 3 ? pad[b, j] : see[b, j]) & j <= i",
                                         "(i < 3 ? pad[b, j] : see[b, j]) ? score : score - 9" };
    eg_params *p = eg_params_open(cx);
    eg_mha_args o = { .size = sizeof o, .params = p, .name = "a", .d_model = 8, .heads = 2 };
    *(_i == 3 ? &o.score : &o.where) = texts[_i];
    eg_mha *at_new = eg_mha_new_with(&o);
    o.name = "b", o.where = o.score = NULL;
    eg_mha *m = eg_mha_new_with(&o);
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_mha_copy(m, at_new), 0);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *zero = eg_zeros(cx, 1),
              *pad = eg_gt(eg_normal(cx, 0, 1, 2, 5), zero),
              *see = eg_gt(eg_normal(cx, 0, 1, 2, 5), zero);
    const eg_mha_run_args with = { .with = { { "pad", pad }, { "see", see } } };
    eg_mha_run_args run = with;
    run.size = sizeof run, run.mha = at_new, run.query = x;
    eg_tensor *y = eg_mha_run_with(&run);
    run.mha = m;
    *(_i == 3 ? &run.score : &run.where) = texts[_i];
    eg_assert_close(y, eg_mha_run_with(&run), 0);
    eg_assert_ok(cx);
}

/* ALiBi: the same as its bias; slopes can be learned; what it does not go with */
LOOP_TEST(slopes_of_distance, 2)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 4, .kv_heads = _i ? 2 : 4,
                           .alibi = true),
           *plain = eg_mha_new(eg_params_open(cx), "", .d_model = 8, .heads = 4,
                               .kv_heads = m->kv_heads);
    randomise(p, 0.4);
    eg_mha_copy(plain, m);
    ck_assert(eg_get(m->alibi, 0) == 0.25 && eg_get(m->alibi, 3) == 1 / 256.0);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *other = eg_normal(cx, 0, 1, 4), *g, *h;
    eg_tensor *bias = sloped(&(slopes){ m->alibi }, eg_zeros(cx, 1, 4, 5, 5)),
              *learned = sloped(&(slopes){ other }, eg_zeros(cx, 1, 4, 5, 5));
    eg_assert_close(
        eg_mha_run(m, x, .where = "j <= i"),
        eg_mha_run(plain, x, .where = "j <= i", .bias = { "hij", eg_select_axis(bias, 0, 0) }),
        1e-13);
    eg_tensor *y = eg_mha_run(m, x, .alibi = { "h", other }),
              *z = eg_mha_run(plain, x, .bias = { "hij", eg_select_axis(learned, 0, 0) });
    eg_assert_close(y, z, 1e-13);
    ck_assert(!eg_grad(y, eg_ones_like(y), 1, &other, &g) &&
              !eg_grad(z, eg_ones_like(z), 1, &other, &h));
    eg_assert_close(g, h, 1e-12);
    eg_tensor *all = sloped(&(slopes){ m->alibi }, eg_zeros(cx, 1, 4, 7, 5)),
              *late = eg_slice_axis(eg_select_axis(all, 0, 0), 1, 2, EG_END, 1);
    static const char *const offset[] = { "i - j < 2 | j == 0", "j < 4",        "h + j <= i",
                                          "j - |j| <= i",       "j <= |i| - h", "h < j" };
    static const char *const written[] = { "i + 2 - j < 2 | j == 0", "j < 4",
                                           "h + j <= i + 2",         "j - |j| <= i + 2",
                                           "j <= |i| + 2 - h",       "h < j" };
    for (int k = 0; k < 6; k++) /* with a cache, or with the same offset: 2 positions further */
        eg_assert_close(eg_mha_run(m, x, .where = offset[k], .offset = 2),
                        eg_mha_run(plain, x, .where = written[k], .bias = { "hij", late }), 1e-13);
}

/* with −1e9 a row without keys is uniform; here it is 0 by default */
LOOP_TEST(filled_not_left_out, 2)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 4, .kv_heads = _i ? 2 : 4);
    randomise(p, 0.4);
    bool keep[2][4] = { { 0 }, { 1, 1, 0, 1 } };
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 4, 8), *pad = eg_from(cx, &keep[0][0], 2, 4), *w, *v;
    int64_t empty = -1;
    eg_mha_run(m, x, .keep = { "bj", pad }, .weights = &w, .empty = &empty);
    ck_assert(eg_get(w, 0, 0, 0, 0) == 0 && empty == 4 * 4);
    eg_mha_run(m, x, .keep = { "bj", pad }, .weights = &w, .fill = -1e9);
    ck_assert(eg_get(w, 0, 3, 2, 1) == 0.25 && eg_get(w, 1, 2, 3, 2) == 0);
    eg_mha_run(m, x, .where = "j < i + h % 2", .keep = { "bj", pad }, .weights = &w, .fill = -1e9,
               .offset = 1);
    eg_mha_run(m, x, .where = "j < i + h % 2", .keep = { "bj", pad }, .weights = &v, .offset = 1);
    eg_assert_close(eg_contiguous(eg_select_axis(w, 0, 1)), eg_contiguous(eg_select_axis(v, 0, 1)),
                    1e-14);
    /* rows with a key: no difference */
    ck_assert(!eg_ok(eg_mha_run(m, x, .keep = { "bj", eg_ones(cx, 2, 4) }, .fill = -1e9)));
    ck_assert_ptr_nonnull(eg_error(cx));
    eg_clear(cx);
    ck_assert(
        !eg_ok(eg_mha_run(m, x, .keep = { "bj", eg_slice_axis(pad, 1, 0, 3, 1) }, .fill = -1e9)));
    eg_assert_error(cx, "mha \"\": attention: index 'j' is 4 in the score matrix but 3 in .keep");
    ck_assert(!eg_ok(eg_mha_run(m, x, .keep = { "bj", pad }, .fill = NAN)));
    eg_assert_error(cx, "mha \"\": .fill is nan; it must be finite and negative, or 0 for -inf");
    ck_assert(!eg_ok(eg_mha_run(m, x, .keep = { "bj", pad }, .fill = -INFINITY)));
    eg_assert_error(cx, "mha \"\": .fill is -inf; it must be finite and negative, or 0 for -inf");
}

/* equal heads, in groups, uneven: lse = ln Σ e^scores; lengths as a mask of keys */
LOOP_TEST(scores_and_sums_of_any_heads, 3)
{
    static const int64_t each[] = { 3, 5 };
    static const eg_mha_args kinds[] = { { .heads = 2 },
                                         { .heads = 4, .kv_heads = 2 },
                                         { .heads = 2, .form = EG_PER_HEAD, .d_k_each = each } };
    eg_mha_args a = kinds[_i];
    a.size = sizeof a, a.params = eg_params_open(cx), a.name = "", a.d_model = 8;
    eg_mha *m = eg_mha_new_with(&a);
    randomise(a.params, 0.4);
    int64_t count[] = { 2, 5 };
    int64_t empty = -1;
    bool keep[2][5] = { { 1, 1, 0, 0, 0 }, { 1, 1, 1, 1, 1 } };
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *s, *l, *w, *largest;
    eg_tensor *lengths = eg_from(cx, count, 2);
    eg_tensor *y = eg_mha_run(m, x, .lengths = { "b", lengths }, .scores = &s, .lse = &l,
                              .weights = &w, .empty = &empty, .max_scores = &largest);
    eg_assert_close(y, eg_mha_run(m, x, .keep = { "bj", eg_from(cx, &keep[0][0], 2, 5) }), 1e-13);
    eg_assert_close(
        eg_softmax("b h i [j]", eg_contiguous(s), .keep = { "bj", eg_from(cx, &keep[0][0], 2, 5) }),
        eg_contiguous(w), 1e-13);
    eg_assert_close(eg_contiguous(eg_select_axis(l, 0, 1)),
                    eg_logsumexp("h i [j]", eg_select_axis(s, 0, 1)), 1e-13);
    eg_assert_close(eg_select_axis(largest, 0, 1), eg_max("h i [j]", eg_select_axis(s, 0, 1)),
                    1e-13);
    eg_assert_close(eg_select_axis(largest, 0, 0),
                    eg_max("h i [j]", eg_slice_axis(eg_select_axis(s, 0, 0), 2, 0, 2, 1)), 1e-13);
    ck_assert_int_eq(empty, 0);
    eg_assert_close(eg_mha_run(m, x, .form = EG_FUSED, .where = "j <= i"),
                    eg_mha_run(m, x, .form = EG_UNFUSED, .where = "j <= i"), 1e-12);
    if (m->d_k_each) {
        ck_assert(!eg_ok(eg_mha_run(m, x, .fill = -1e9)));
        eg_assert_error(cx, ".score_fn, .fill and .alibi need heads of one width");
    }
}

/* -- rotary positions ------------------------------------------------------------------------- */
static eg_tensor *turn(void *interleaved, eg_tensor *const *x)
{
    return eg_rotary("b i h d, i d", x[0], .base = 100, .offset = 3,
                     .interleaved = interleaved != NULL);
}

GROUP("rotary", .setup = open_f64, .teardown = close_cx)

TEST(rotary_by_its_definition) /* Su et al. 2021, eq. 34, with angles and pairs written out */
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 2, 6);
    for (int mixed = 0; mixed < 2; mixed++) {
        eg_tensor *y = turn(mixed ? &mixed : NULL, &x),
                  *other = eg_rotary("d h i b, i d", eg_permute(x, 3, 2, 1, 0), .base = 100,
                                     .offset = 3, .interleaved = mixed);
        for (int n = 0; n < 2 * 3 * 2 * 3; n++) {
            int k = n % 3, h = n / 3 % 2, i = n / 6 % 3, b = n / 18, one = mixed ? 2 * k : k,
                two = mixed ? 2 * k + 1 : k + 3;
            double angle = (i + 3) * pow(100, -2.0 * k / 6), p = eg_get(x, b, i, h, one),
                   q = eg_get(x, b, i, h, two);
            ck_assert_double_eq_tol(eg_get(y, b, i, h, one), p * cos(angle) - q * sin(angle),
                                    1e-14);
            ck_assert_double_eq_tol(eg_get(y, b, i, h, two), p * sin(angle) + q * cos(angle),
                                    1e-14);
        }
        eg_assert_close(eg_contiguous(eg_permute(other, 3, 2, 1, 0)), eg_contiguous(y), 1e-14);
        eg_assert_grad2(turn, mixed ? &mixed : NULL, x);
    }
}

/* ⟨R_i q, R_j k⟩ is a function of i − j: an offset of both changes no weight */
TEST(rotary_positions_may_have_the_name_of_one_index)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 2, 4), *t = eg_uniform(cx, 0, 9, 3);
    eg_assert_close(eg_rotary("batch query head d, query d", x, .positions = { "query", t }),
                    eg_rotary("bihd, id", x, .positions = { "i", t }), 0);
}
TEST(rotary_scores_depend_on_distances_only)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 2, .rotary = 50);
    randomise(p, 0.4);
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 5, 2, 4), *k = eg_normal(cx, 0, 1, 2, 5, 2, 4);
    eg_tensor *near =
        eg_einsum("bihd,bjhd->bhij", eg_rotary("bihd,id", q), eg_rotary("bihd,id", k));
    eg_tensor *far = eg_einsum("bihd,bjhd->bhij", eg_rotary("bihd,id", q, .offset = 1000),
                               eg_rotary("bihd,id", k, .offset = 1000));
    eg_assert_close(far, near, 1e-12);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *moved = eg_mha_run(m, x, .offset = 1);
    eg_assert_ok(cx);
    ck_assert(largest_difference(eg_mha_run(m, x), moved) > 1e-3);
}

LOOP_TEST(rotary_refuses, 9)
{
    static const struct {
        const char *spec;
        double base;
        const char *why;
    } cases[] = {
        { "b i d, i d", 0, "the width must be even, not 5" },
        { "b i d", 0, "the indices of x are needed, a comma, and those of position and width" },
        { "b i d, i x", 0, "x does not have this index\n  b i d, i x\n           ^" },
        { "b (i=2 j) d, i d", 0, "position and width, without groups, as in" },
        { "b i d, d d", 0, "rotary: the indices of x are needed" },
        { "b i d, i d b", 0, "rotary: the indices of x are needed" },
        { "b c e i d, i d", 0, "the string names 5 axes of x, which has 3" },
        { "b d i, d i", -2, "the width must be even, not 5" },
        { "i d b, i d", -2, ".base must be positive, not -2" },
    };
    eg_tensor *x = eg_ones(cx, 2, 4, 5);
    ck_assert(!eg_ok(eg_rotary(cases[_i].spec, x, .base = cases[_i].base)));
    eg_assert_error(cx, cases[_i].why);
}

/* -- the cache -------------------------------------------------------------------------------- */
GROUP("cache", .setup = open_f64, .teardown = close_cx)

/* position by position, then in pieces; any form, layout, grouping, with rotary positions */
LOOP_TEST(cached_is_full, 7)
{
    static const int64_t each[] = { 1, 4, 3 };
    static const struct eg_mha_args kinds[] = {
        { .d_model = 8, .heads = 2 },
        { .d_model = 8, .heads = 4, .kv_heads = 2, .rotary = 100 },
        { .d_model = 8, .heads = 2, .layout = "i b m", .rotary = 10 },
        { .d_model = 6, .heads = 3, .form = EG_PER_HEAD, .d_k_each = each },
        { .d_model = 8, .heads = 2, .where = "i - 3 < j" },
        { .d_model = 8, .heads = 4, .kv_heads = 2, .alibi = true },
        { .d_model = 8, .heads = 2, .alibi = true, .layout = "i b m" },
    };
    for (int narrow = 0; narrow < 2; narrow++) {
        eg_mha_args a = kinds[_i];
        a.size = sizeof a, a.params = eg_params_open(cx, .dtype = narrow ? EG_F32 : EG_F64),
        a.name = "";
        eg_mha *m = eg_mha_new_with(&a);
        randomise(a.params, 0.4);
        int place = a.layout ? 0 : 1;
        eg_tensor *x = eg_cast(a.layout ? eg_normal(cx, 0, 1, 9, 2, m->qdim)
                                        : eg_normal(cx, 0, 1, 2, 9, m->qdim),
                               narrow ? EG_F32 : EG_F64);
        eg_nograd(cx, true);
        eg_tensor *full = eg_mha_run(m, x, .where = "j <= i"), *parts[9];
        static const int64_t ends[2][10] = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 0 }, { 4, 5, 7, 9, 0 } };
        for (int way = 0; way < 2; way++) {
            eg_cache *c = eg_cache_new(eg_params_owner(a.params), 9);
            int n = 0;
            for (int64_t from = 0; ends[way][n]; from = ends[way][n++])
                parts[n] = eg_mha_run(m, eg_slice_axis(x, place, from, ends[way][n], 1),
                                      .where = "j <= i", .cache = c);
            ck_assert_int_eq(eg_cache_length(c), 9);
            eg_assert_close(eg_concat_axis_n(place, n, parts), full, narrow ? 2e-5 : 1e-12);
        }
        /* without a mask the last position sees all of them in both cases */
        eg_cache *c = eg_cache_new(eg_params_owner(a.params), 9);
        eg_mha_run(m, eg_slice_axis(x, place, 0, 8, 1), .cache = c);
        eg_tensor *last = eg_mha_run(m, eg_slice_axis(x, place, 8, 9, 1), .cache = c);
        eg_assert_close(last, eg_contiguous(eg_slice_axis(eg_mha_run(m, x), place, 8, 9, 1)),
                        narrow ? 2e-5 : 1e-12);
        eg_nograd(cx, false);
    }
}

/* A cache of f16 or bf16: the same as attention to all keys and values, rounded to that type. */
static eg_dtype stored_type;
static eg_tensor *rounded_core(const eg_attention_args *a)
{
    eg_attention_args o = *a;
    o.k = eg_cast(eg_cast(a->k, stored_type), eg_type(a->k));
    o.v = eg_cast(eg_cast(a->v, stored_type), eg_type(a->v));
    return eg_attention_with(&o);
}
static eg_tensor *type_of_keys(const eg_attention_args *a)
{
    stored_type = eg_type(a->k);
    return eg_attention_with(a);
}
LOOP_TEST(keys_in_half_the_memory, 5)
{
    static const int64_t each[] = { 1, 4, 3 };
    static const struct eg_mha_args kinds[] = {
        { .d_model = 8, .heads = 2 },
        { .d_model = 8, .heads = 4, .kv_heads = 2, .rotary = 100 },
        { .d_model = 8, .heads = 2, .layout = "i b m", .alibi = true },
        { .d_model = 6, .heads = 3, .form = EG_PER_HEAD, .d_k_each = each },
        { .d_model = 8, .heads = 2, .zero_attn = true, .bias_kv = true },
    };
    enum { LENGTH = 9 };
    for (int type = 0; type < 2; type++)
        for (int masked = 0; masked < 2; masked++) {
            eg_mha_args a = kinds[_i];
            a.size = sizeof a, a.params = eg_params_open(cx, .dtype = EG_F32), a.name = "a";
            eg_mha *m = eg_mha_new_with(&a);
            a.params = eg_params_open(cx, .dtype = EG_F32), a.core = rounded_core;
            eg_mha *rounds = eg_mha_new_with(&a);
            randomise(a.params, 0.4);
            ck_assert_int_eq(eg_mha_copy(m, rounds), 0);
            stored_type = type ? EG_F16 : EG_BF16;
            const int place = a.layout ? 0 : 1;
            eg_tensor *x = eg_cast(a.layout ? eg_normal(cx, 0, 1, LENGTH, 2, m->qdim)
                                            : eg_normal(cx, 0, 1, 2, LENGTH, m->qdim),
                                   EG_F32);
            /* the second predicate also forbids pairs of the last query */
            const char *where = masked ? "j <= i & i - j < 4" : "j <= i";
            eg_nograd(cx, true);
            eg_cache *c = eg_cache_new(eg_params_owner(a.params), LENGTH, .dtype = stored_type);
            eg_tensor *full = eg_mha_run(rounds, x, .where = where), *parts[LENGTH];
            for (int n = 0; n < LENGTH; n++)
                parts[n] =
                    eg_mha_run(m, eg_slice_axis(x, place, n, n + 1, 1), .where = where, .cache = c);
            eg_assert_close(eg_concat_axis_n(place, LENGTH, parts), full, 2e-5);
            ck_assert_int_eq(eg_cache_truncate(c, 3), 0);
            ck_assert_int_eq(eg_cache_select(c, eg_from(cx, ((int64_t[]){ 1, 0 }), 2)), 0);
            ck_assert_int_eq(eg_cache_select(c, eg_from(cx, ((int64_t[]){ 1, 0 }), 2)), 0);
            eg_tensor *rest =
                eg_mha_run(m, eg_slice_axis(x, place, 3, LENGTH, 1), .where = where, .cache = c);
            eg_assert_close(rest, eg_contiguous(eg_slice_axis(full, place, 3, LENGTH, 1)), 2e-5);
            eg_nograd(cx, false);
        }
}
/* Other attentions get keys and values in the query's dtype; a memory is stored so, too. */
TEST(stored_halves_reach_a_custom_core_in_the_type_of_the_query)
{
    eg_params *p = eg_params_open(cx, .dtype = EG_F32);
    eg_nograd(cx, true);
    eg_tensor *x = eg_cast(eg_normal(cx, 0, 1, 2, 4, 8), EG_F32), *y[2];
    eg_mha *own = eg_mha_new(p, "own", .d_model = 8, .heads = 2, .core = type_of_keys);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 8, .dtype = EG_F16);
    for (int slot = 0; slot < 2; slot++) {
        stored_type = EG_DEFAULT;
        eg_mha_run(own, x, .key = x, .cache = c, .slot = slot, .memory = slot == 1);
        ck_assert_int_eq(stored_type, EG_F32);
    }
    eg_assert_ok(cx);
    eg_mha *plain = eg_mha_new(p, "plain", .d_model = 8, .heads = 2);
    for (int n = 0; n < 2; n++)
        y[n] = eg_mha_run(plain, x, .key = n ? NULL : x, .cache = c, .slot = 2, .memory = true);
    eg_assert_close(y[0], y[1], 0);
    eg_assert_close(y[0], eg_mha_run(plain, x), 1e-2);
    eg_cache *wide = eg_cache_new(eg_params_owner(p), 8, .dtype = EG_F64);
    eg_assert_close(eg_mha_run(plain, x, .cache = wide), eg_mha_run(plain, x), 1e-6);
    ck_assert_ptr_null(eg_cache_new(eg_params_owner(p), 8, .dtype = EG_I8));
    eg_assert_error(cx, "cache: .dtype is i8; it must be f32, f64, f16 or bf16");
    eg_nograd(cx, false);
}
/* A run that fails after its keys were appended can be repeated. */
TEST(a_run_that_failed_leaves_the_cache_as_it_was)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 2, .rotary = 100);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *parts[3];
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 5);
    for (int k = 0; k < 3; k++) {
        eg_tensor *part = eg_slice_axis(x, 1, k ? 2 * k - 1 : 0, 2 * k + 1, 1);
        ck_assert(!eg_ok(eg_mha_run(m, part, .where = "j <= k", .cache = c)));
        eg_assert_error(cx, "the predicate's index 'k'");
        ck_assert_int_eq(eg_cache_length(c), k ? 2 * k - 1 : 0);
        parts[k] = eg_mha_run(m, part, .where = "j <= i", .cache = c);
        ck_assert_int_eq(eg_cache_length(c), 2 * k + 1);
    }
    eg_assert_close(eg_concat_axis_n(1, 3, parts), eg_mha_run(m, x, .where = "j <= i"), 1e-12);
    eg_nograd(cx, false);
}

/* i is counted from the cache's length, whatever else the predicate contains */
LOOP_TEST(predicates_behind_a_cache, 2)
{
    static const char *const where[] = {
        "j <= i",     "j <= i & j >= h", "j - |j| <= i - |i|",
        "j <= i + b", "j < 3 + h",       "(i - j) % (h + 2) == 0 & j <= i | j == |h|"
    };
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 4, .kv_heads = _i % 2 ? 4 : 2);
    randomise(p, 0.4);
    for (int k = 0; k < 6; k++) {
        bool all_at_once = k == 3 || k == 4 || k == 5;
        /* these look ahead: later positions cannot be attended to yet */
        eg_nograd(cx, true);
        eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8), *full = eg_mha_run(m, x, .where = where[k]);
        eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
        int64_t last = all_at_once ? 5 : 0;
        eg_mha_run(m, eg_slice_axis(x, 1, 0, last ? last : 2, 1), .where = where[k], .cache = c);
        eg_tensor *rest = eg_mha_run(m, eg_slice_axis(x, 1, last ? last : 2, 6, 1),
                                     .where = where[k], .cache = c);
        eg_assert_close(rest, eg_contiguous(eg_slice_axis(full, 1, last ? last : 2, 6, 1)), 1e-12);
        eg_nograd(cx, false);
    }
}

TEST(cache_truncate_and_select)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 2);
    randomise(p, 0.4);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    ck_assert_int_eq(eg_cache_capacity(c), 6);
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 6, 8), *full = eg_mha_run(m, x, .where = "j <= i");
    eg_mha_run(m, x, .where = "j <= i", .cache = c);
    /* a slot with fewer positions remains as it is */
    eg_mha_run(m, eg_slice_axis(x, 1, 0, 1, 1), .cache = c, .slot = 1);
    ck_assert_int_eq(eg_cache_truncate(c, 2), 0);
    ck_assert_int_eq(eg_cache_length(c), 2);
    eg_assert_close(eg_mha_run(m, eg_slice_axis(x, 1, 1, 2, 1), .cache = c, .slot = 1),
                    eg_contiguous(eg_slice_axis(full, 1, 1, 2, 1)), 1e-12);
    eg_assert_close(eg_mha_run(m, eg_slice_axis(x, 1, 2, 5, 1), .where = "j <= i", .cache = c),
                    eg_contiguous(eg_slice_axis(full, 1, 2, 5, 1)), 1e-12);
    int64_t order[] = { 2, 2, 0 };
    eg_tensor *index = eg_from(cx, order, 3);
    ck_assert_int_eq(eg_cache_select(c, index), 0);
    eg_tensor *last =
        eg_mha_run(m, eg_at("[b] i m, c -> c i m", eg_slice_axis(x, 1, 5, 6, 1), index),
                   .where = "j <= i", .cache = c);
    eg_assert_close(
        last, eg_at("[b] i m, c -> c i m", eg_contiguous(eg_slice_axis(full, 1, 5, 6, 1)), index),
        1e-12);
    ck_assert_int_eq(eg_cache_select(c, eg_from(cx, order, 0)), -1);
    eg_assert_error(cx, "cache: the index must have one axis and at least one element, but has "
                        "1 axis and 0 elements");
    ck_assert_int_eq(eg_cache_select(c, eg_from(cx, order, 3, 1)), -1);
    eg_assert_error(cx, "but has 2 axes and 3 elements");
    ck_assert_int_eq(eg_cache_select(c, eg_from(cx, (int64_t[]){ 3 }, 1)), -1);
    eg_assert_error(cx, "cache: batch 3 to select, but slot 0 holds 3 (0 to 2)");
    ck_assert_int_eq(eg_cache_select(c, eg_from(cx, ((int32_t[]){ 0, -1 }), 2)), -1);
    eg_assert_error(cx, "cache: batch -1 to select, but slot 0 holds 3 (0 to 2)");
    ck_assert_int_eq(eg_cache_select(c, eg_ones(cx, 2)), -1);
    eg_assert_error(cx, "cache: a batch to select is i32 or i64, not f64");
    ck_assert_int_eq(eg_cache_truncate(c, 7), -1);
    eg_assert_error(cx, "cache: cut to 7 positions, but it holds 6");
    ck_assert_int_eq(eg_cache_truncate(c, 0), 0);
    eg_assert_close(eg_mha_run(m, x, .where = "j <= i", .cache = c), full, 1e-12);
    eg_nograd(cx, false);
}

/* The positions that eg_cache_keep leaves, at random for all, for each batch, and for each batch
 * and head: a step with them equals one that forbids the others. Rotary positions count what was
 * dropped. */
enum { KEPT_ROWS = 2, KEPT_STEPS = 12 };
typedef struct remaining {
    int count, heads;
    int64_t at[KEPT_ROWS][4][KEPT_STEPS]; /* former positions, by batch and head */
} remaining;
/* Positions of `each` leading axes; their former ones replace those in *k. */
static eg_tensor *keeping(remaining *k, int each)
{
    const int n = 1 + (int)eg_item(eg_randint(cx, 0, k->count, 1)), rows = each > 0 ? KEPT_ROWS : 1,
              heads = each > 1 ? k->heads : 1;
    int64_t to[KEPT_ROWS * 4 * KEPT_STEPS];
    remaining next = *k;
    next.count = n;
    for (int row = 0; row < rows; row++)
        for (int head = 0; head < heads; head++) {
            const int64_t *order = eg_raw(eg_argsort("[n]", eg_uniform(cx, 0, 1, k->count)), NULL);
            int64_t *mine = to + (row * heads + head) * n;
            memcpy(mine, order, (size_t)n * sizeof *mine);
            for (int b = each > 0 ? row : 0; b <= (each > 0 ? row : KEPT_ROWS - 1); b++)
                for (int h = each > 1 ? head : 0; h <= (each > 1 ? head : k->heads - 1); h++)
                    for (int j = 0; j < n; j++) next.at[b][h][j] = k->at[b][h][mine[j]];
        }
    *k = next;
    return each == 0   ? eg_from(cx, to, n)
           : each == 1 ? eg_from(cx, to, rows, n)
                       : eg_from(cx, to, rows, heads, n);
}
LOOP_TEST(kept_positions_are_the_others_forbidden, 4)
{
    const struct eg_mha_args form =
        ((struct eg_mha_args[]){ { .heads = 2 },
                                 { .heads = 4, .kv_heads = 2, .rotary = 100 },
                                 { .heads = 2, .layout = "i b m" },
                                 { .heads = 4, .kv_heads = 1, .rotary = 10 } })[_i];
    const int place = form.layout ? 0 : 1, heads = (int)form.heads;
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = heads, .kv_heads = form.kv_heads,
                           .rotary = form.rotary, .layout = form.layout);
    randomise(p, 0.4);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), KEPT_STEPS, .dtype = EG_F64);
    remaining k = { .heads = form.kv_heads ? (int)form.kv_heads : heads };
    eg_tensor *all = NULL;
    for (int t = 0; t < KEPT_STEPS; t++) {
        eg_tensor *x =
            place ? eg_normal(cx, 0, 1, KEPT_ROWS, 1, 8) : eg_normal(cx, 0, 1, 1, KEPT_ROWS, 8);
        all = all ? eg_concat_axis(place, all, x) : x;
        for (int b = 0; b < KEPT_ROWS; b++)
            for (int h = 0; h < k.heads; h++) k.at[b][h][k.count] = t;
        k.count++;
        bool here[KEPT_ROWS * 4 * KEPT_STEPS] = { false };
        for (int b = 0; b < KEPT_ROWS; b++)
            for (int h = 0; h < heads; h++)
                for (int j = 0; j < k.count; j++)
                    here[(b * heads + h) * (t + 1) + k.at[b][h * k.heads / heads][j]] = true;
        eg_tensor *y = eg_mha_run(m, x, .where = "j <= i", .cache = c),
                  *whole = eg_mha_run(
                      m, all, .where = "here[b,h,j]",
                      .with = { { "here", eg_from(cx, here, KEPT_ROWS, heads, t + 1) } });
        ck_assert_int_eq(eg_cache_length(c), k.count);
        ck_assert_int_eq(eg_cache_position(c), t + 1);
        eg_assert_close(eg_contiguous(y), eg_contiguous(eg_slice_axis(whole, place, t, t + 1, 1)),
                        1e-12);
        if (t % 2) ck_assert_int_eq(eg_cache_keep(c, t % 3 ? 0 : -1, keeping(&k, t / 2 % 3)), 0);
    }
    eg_nograd(cx, false);
}

/* In a model: all slots at once, learned positions, tokens that are taken back, a run that fails,
 * and a memory, which remains. */
TEST(a_model_keeps_positions)
{
    enum { LENGTH = 10, VOCABULARY = 12 };
    eg_params *p = eg_params_open(cx);
    eg_transformer *m =
        eg_transformer_new(p, "", .vocabulary = VOCABULARY, .d_model = 8, .heads = 2, .layers = 2,
                           .width = 8, .length = LENGTH + 1);
    randomise(p, 0.4);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), LENGTH + 1);
    eg_tensor *tokens = eg_randint(cx, 0, VOCABULARY, 2, LENGTH);
    const int64_t sink[] = { 0, 1, 6, 7 };
    const bool here[] = { 1, 1, 0, 0, 0, 0, 1, 1, 1, 1 };
    /* two sinks and a window of four: the rest of 0 to 7 is forbidden from position 8 on */
    eg_tensor *whole = eg_transformer_run(m, tokens, .where = "j <= i & (i < 8 | here[j])",
                                          .with = { { "here", eg_from(cx, here, LENGTH) } });
    eg_transformer_run(m, eg_slice_axis(tokens, 1, 0, 8, 1), .where = "j <= i", .cache = c);
    ck_assert_int_eq(eg_cache_keep(c, -1, eg_from(cx, sink, 4)), 0);
    for (int again = 0; again < 2; again++) { /* draft tokens are taken back */
        eg_transformer_run(m, eg_slice_axis(tokens, 1, 0, 3, 1), .where = "j <= i", .cache = c);
        ck_assert(eg_cache_length(c) == 7 && eg_cache_position(c) == 11);
        ck_assert_int_eq(eg_cache_truncate(c, 4), 0);
        ck_assert(eg_cache_length(c) == 4 && eg_cache_position(c) == 8);
        ck_assert(!eg_ok(eg_transformer_run(m, eg_randint(cx, 0, VOCABULARY, 2, 4),
                                            .where = "j <= i", .cache = c)));
        eg_clear(cx); /* the table of positions ends */
        ck_assert(eg_cache_length(c) == 4 && eg_cache_position(c) == 8);
    }
    eg_tensor *rest = eg_transformer_run(m, eg_slice_axis(tokens, 1, 8, LENGTH, 1),
                                         .where = "j <= i", .cache = c);
    eg_assert_close(rest, eg_contiguous(eg_slice_axis(whole, 1, 8, LENGTH, 1)), 1e-12);
    ck_assert_int_eq(eg_cache_truncate(c, 0), 0);
    ck_assert_int_eq(eg_cache_position(c), 0);
    eg_nograd(cx, false);
}

/* Slot 1 keeps two positions of eight. Taking the last four back empties it; its next token has
 * position 4 nevertheless, as that of slot 0, so later tokens are taken back from both alike. Also
 * with more batches than before. */
TEST(a_slot_without_positions_continues_at_the_position_of_the_others)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 4, .heads = 1, .rotary = 100);
    eg_nograd(cx, true);
    for (int64_t rows = 1; rows < 3; rows++) {
        eg_cache *c = eg_cache_new(eg_params_owner(p), 8);
        eg_tensor *x = eg_normal(cx, 0, 1, rows, 8, 4), *w[2];
        for (int slot = 0; slot < 2; slot++)
            eg_mha_run(m, eg_slice_axis(x, 0, 0, slot ? 1 : rows, 1), .cache = c, .slot = slot);
        eg_cache_keep(c, 1, eg_from(cx, ((int64_t[]){ 6, 7 }), 2));
        eg_cache_truncate(c, 4);
        for (int slot = 0; slot < 2; slot++)
            eg_mha_run(m, eg_slice_axis(x, 1, 4, 8, 1), .cache = c, .slot = slot);
        eg_cache_truncate(c, 6);
        for (int slot = 0; slot < 2; slot++)
            eg_mha_run(m, eg_slice_axis(x, 1, 6, 7, 1), .cache = c, .slot = slot,
                       .weights = &w[slot]);
        eg_assert_ok(cx);
        ck_assert_int_eq(eg_dim(w[0], -1), 7);
        ck_assert_int_eq(eg_dim(w[1], -1), 3); /* 4, 5 and the new one */
    }
    eg_nograd(cx, false);
}

TEST(positions_that_cannot_be_kept)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 2),
           *alone = eg_mha_new(p, "alone", .d_model = 8, .heads = 2, .layout = "i m");
    randomise(p, 0.4);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6, .dtype = EG_F16);
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 4, 8);
    ck_assert_int_eq(eg_cache_keep(c, 0, eg_from(cx, ((int64_t[]){ 0 }), 1)), -1);
    eg_assert_error(cx, "cache: slot 0 holds no positions");
    ck_assert_int_eq(eg_cache_keep(c, -1, eg_from(cx, ((int64_t[]){ 0 }), 1)), 0);
    eg_mha_run(m, x, .cache = c);
    eg_mha_run(m, x, .key = x, .cache = c, .slot = 1, .memory = true);
    eg_mha_run(alone, eg_select_axis(x, 0, 0), .cache = c, .slot = 2);
    ck_assert_int_eq(eg_cache_set_state(c, 3, x, 4), 0);
    static const struct {
        int slot, axes;
        int64_t dims[4];
        const char *says;
    } refused[] = {
        { 0,
          0,
          { 0 },
          "the positions to keep have 0 axes and 1 element; their axes must be n, batch n, or "
          "batch heads n" },
        { 0, 1, { 0 }, "the positions to keep have 1 axis and 0 elements" },
        { 0, 4, { 3, 2, 1, 1 }, "the positions to keep have 4 axes and 6 elements" },
        { 0, 1, { 5 }, "cache: 5 positions to keep, but slot 0 holds 4" },
        { 0, 2, { 2, 1 }, "cache: positions of 2 batches, but slot 0 holds 3" },
        { 0, 3, { 3, 1, 1 }, "cache: positions of 1 head, but slot 0 holds 2" },
        { 1, 1, { 1 }, "cache: slot 1 holds a memory, of which no positions can be kept" },
        { 2,
          2,
          { 1, 1 },
          "cache: positions of each batch, but slot 2 holds keys without such an axis" },
        { 2, 3, { 1, 2, 1 }, "cache: positions of each batch and head, but slot 2" },
        { 3, 1, { 1 }, "cache: slot 3 holds a state, of which no positions can be kept" },
        { 99, 1, { 1 }, "cache: slot 99 holds no positions" },
        { -1,
          2,
          { 3, 1 },
          "but slot 2 holds keys without such an axis" }, /* and slot 0 is as it was */
    };
    eg_tensor *before = eg_mha_run(m, eg_slice_axis(x, 1, 0, 1, 1), .cache = c);
    ck_assert_int_eq(eg_cache_truncate(c, 4), 0);
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
        ck_assert_int_eq(eg_cache_keep(c, refused[k].slot,
                                       eg_full_n(cx, EG_I64, 0, refused[k].axes, refused[k].dims)),
                         -1);
        eg_assert_error(cx, refused[k].says);
        ck_assert_int_eq(eg_cache_length(c), 4);
    }
    ck_assert_int_eq(eg_cache_keep(c, 0, eg_from(cx, ((int64_t[]){ 4 }), 1)), -1);
    eg_assert_error(cx, "cache: position 4 to keep, but slot 0 holds 4 (0 to 3)");
    ck_assert_int_eq(eg_cache_keep(c, 0, eg_from(cx, ((int64_t[]){ 3, -1 }), 2)), -1);
    eg_assert_error(cx, "cache: position -1 to keep, but slot 0 holds 4 (0 to 3)");
    ck_assert_int_eq(eg_cache_keep(c, 0, eg_zeros(cx, 1)), -1);
    eg_assert_error(cx, "cache: a position to keep is i32 or i64, not f64");
    ck_assert_int_eq(eg_cache_keep(NULL, 0, x), -1);
    ck_assert_int_eq(eg_cache_keep(c, 0, NULL), -1);
    eg_assert_error(cx, "cache: the tensor of positions is NULL");
    eg_assert_close(eg_mha_run(m, eg_slice_axis(x, 1, 0, 1, 1), .cache = c), before, 0);
    eg_nograd(cx, false);
}

/* An attention by eg_attention, with grouped heads, a learned bias and documents, that appends its
 * keys and values itself: step by step as in one pass, in a slot other than 0, with selected
 * batches. */
static eg_tensor *behind(eg_cache *c, eg_tensor *const *x, int64_t from, int64_t to)
{
    eg_tensor *q = eg_slice("b [i] g r d", x[0], from, to, 1),
              *k = eg_slice("b [j] g d", x[1], from, to, 1),
              *v = eg_slice("b [j] g e", x[2], from, to, 1),
              *doc = eg_slice("b [j]", x[4], 0, to, 1);
    const int64_t added = to - from;
    if (eg_cache_append(c, 2, -3, &k, &v)) return NULL;
    return eg_attention("b i g r d, b j g d, b j g e -> b i g r e", q, k, v,
                        .where = "j <= i & doc[b,i] == doc[b,j]", .offset = eg_dim(k, 1) - added,
                        .offset_letter = "i", .score = "score + dist[g, r, i - j]",
                        .with = { { "dist", x[3] }, { "doc", doc } });
}
TEST(a_written_attention_decodes_with_a_cache)
{
    static const int64_t ends[] = { 3, 4, 7 };
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 2, 7, 2, 3, 4), eg_normal(cx, 0, 1, 2, 7, 2, 4),
                       eg_normal(cx, 0, 1, 2, 7, 2, 5), eg_normal(cx, 0, 1, 2, 3, 7),
                       eg_cumsum("b [j]", eg_randint(cx, 0, 2, 2, 7)) },
              *y[3];
    eg_owner *owner = eg_owner_open(cx);
    eg_cache *c = eg_cache_new(owner, 7), *all = eg_cache_new(owner, 7);
    eg_nograd(cx, true);
    eg_tensor *whole = behind(all, x, 0, 7);
    for (int k = 0; k < 3; k++) y[k] = behind(c, x, k ? ends[k - 1] : 0, ends[k]);
    eg_assert_close(eg_concat_n("b [i] g r e", 3, y), whole, 1e-12);
    ck_assert_int_eq(eg_cache_length(c), 0); /* of slot 0 */
    /* batch 1 twice, before its last three positions */
    eg_tensor *one = eg_from(cx, ((int64_t[]){ 1, 1 }), 2), *again[5];
    c = eg_cache_new(owner, 7);
    behind(c, x, 0, 4);
    ck_assert_int_eq(eg_cache_select(c, one), 0);
    for (int k = 0; k < 5; k++) again[k] = k == 3 ? x[k] : eg_at("[b] ..., c -> c ...", x[k], one);
    eg_assert_close(behind(c, again, 4, 7),
                    eg_at("[b] ..., c -> c ...", eg_slice("b [i] g r e", whole, 4, 7, 1), one),
                    1e-12);
    eg_assert_ok(cx);
    eg_nograd(cx, false);
}
TEST(cache_append_refuses)
{
    eg_owner *owner = eg_owner_open(cx);
    eg_cache *c = eg_cache_new(owner, 4), *none = NULL;
    eg_tensor *k = eg_normal(cx, 0, 1, 2, 3, 4), *v = eg_normal(cx, 0, 1, 2, 3, 5), *keys = k,
              *values = v, *two = eg_normal(cx, 0, 1, 2, 2, 5), *absent = NULL;
    ck_assert_int_eq(eg_cache_append(c, 0, 1, &k, &v), -1);
    eg_assert_error(cx, "cache: a cache keeps no history, so it needs eg_nograd");
    eg_nograd(cx, true);
    ck_assert_int_eq(eg_cache_append(c, 0, 1, &k, &two), -1);
    eg_assert_error(cx, "cache: axis 1 is 3 in the keys but 2 in the values");
    ck_assert_int_eq(eg_cache_append(c, 0, 3, &k, &v), -1);
    eg_assert_error(cx, "cache: axis 3 is not one of the keys and values, which have 3 and 3 axes");
    ck_assert_int_eq(eg_cache_append(c, 0, 1, &k, &absent), -1);
    eg_assert_error(cx, "cache: the tensor of values is NULL");
    ck_assert_int_eq(eg_cache_append(c, 0, 1, NULL, &v), -1);
    eg_assert_error(cx, "cache: a pointer to keys and values is NULL");
    ck_assert_int_eq(eg_cache_append(c, -1, 1, &k, &v), -1);
    eg_assert_error(cx, "cache: the cache has no slot -1");
    ck_assert_int_eq(eg_cache_set_state(c, 1, k, 1), 0);
    ck_assert_int_eq(eg_cache_append(c, 1, 1, &k, &v), -1);
    eg_assert_error(cx, "cache: slot 1 of the cache holds a state, no keys");
    ck_assert(k == keys && v == values && eg_cache_length(c) == 0);
    ck_assert_int_eq(eg_cache_append(c, 0, 1, &k, &v), 0);
    eg_assert_close(k, keys, 0);
    k = keys, v = values;
    ck_assert_int_eq(eg_cache_append(c, 0, 2, &k, &k), -1);
    eg_assert_error(cx, "cache: slot 0 has positions along axis 1, not along axis 2");
    ck_assert_int_eq(eg_cache_append(c, 0, 1, &k, &v), -1);
    eg_assert_error(cx, "cache: the cache has room for 4 positions; it holds 3, and 3 more came");
    ck_assert(k == keys && v == values && eg_cache_length(c) == 3);
    ck_assert_int_eq(eg_cache_append(none, 0, 1, &k, &v), -1);
    ck_assert_str_eq(eg_error(NULL), "cache: it is NULL");
    eg_clear(NULL);
    eg_nograd(cx, false);
}

/* A state beside the keys of an attention: replaced, selected (fewer, more and again as many
 * batches), cut, and every refusal. */
TEST(cache_holds_states)
{
    eg_params *p = eg_params_open(cx);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    eg_tensor *h = eg_normal(cx, 0, 1, 3, 2, 4), *next = eg_normal(cx, 0, 1, 3, 2, 4);
    ck_assert_ptr_null(eg_cache_state(c, 0));
    ck_assert_ptr_null(eg_cache_state(NULL, 0));
    ck_assert_int_eq(eg_cache_set_state(c, 0, h, 1), 0);
    eg_assert_close(eg_cache_state(c, 0), h, 0);
    ck_assert_int_eq(eg_cache_set_state(c, 0, eg_permute(next, 0, 1, 2), 4), 0);
    ck_assert_int_eq(eg_cache_length(c), 4);
    ck_assert_int_eq(eg_cache_set_state(c, 40, eg_select_axis(next, 1, 1), 4), 0);
    static const int64_t order[] = { 2, 0, 2, 1, 1, 0, 2, 2 };
    eg_tensor *expect = next;
    for (int n = 1; n <= 8; n = n == 1 ? 3 : n == 3 ? 8 : 9) {
        int64_t taken[8];
        for (int k = 0; k < n; k++) taken[k] = order[k] % eg_dim(expect, 0);
        eg_tensor *index = eg_from(cx, taken, n);
        ck_assert_int_eq(eg_cache_select(c, index), 0);
        expect = eg_at("[b] l m, c -> c l m", expect, index);
        eg_assert_close(eg_cache_state(c, 0), expect, 0);
        eg_assert_close(eg_cache_state(c, 40), eg_contiguous(eg_select_axis(expect, 1, 1)), 0);
    }
    ck_assert_int_eq(eg_cache_truncate(c, 4), 0);
    ck_assert_int_eq(eg_cache_truncate(c, 3), -1);
    eg_assert_error(cx,
                    "cache: slot 0 holds the state after 4 positions, which cannot be cut to 3");
    ck_assert_int_eq(eg_cache_set_state(c, 0, h, 5), -1);
    eg_assert_error(cx, "cache: axis 0 of the state of slot 0 is 8, but 3 in the new one");
    ck_assert_int_eq(eg_cache_set_state(c, 0, eg_cast(h, EG_F32), 5), -1);
    eg_assert_error(cx, "cache: the state of slot 0 has 3 axes of f64, but the new one has 3 of "
                        "f32");
    ck_assert_int_eq(eg_cache_set_state(c, 0, h, 7), -1);
    eg_assert_error(cx, "cache: a state after 7 positions, but the capacity is 6");
    ck_assert_int_eq(eg_cache_set_state(c, 1, eg_sum(NULL, h), 1), -1);
    eg_assert_error(cx, "cache: the first axis of a state is the batch, but it has no axes");
    ck_assert_int_eq(eg_cache_truncate(c, 0), 0);
    ck_assert_ptr_null(eg_cache_state(c, 0));
    ck_assert_int_eq(eg_cache_set_state(c, 0, eg_cast(h, EG_F32), 6), 0);
    ck_assert_int_eq(eg_type(eg_cache_state(c, 0)), EG_F32);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 2);
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 2, 8);
    ck_assert(!eg_ok(eg_mha_run(m, x, .where = "j <= i", .cache = c)));
    eg_assert_error(cx, "slot 0 of the cache holds a state, no keys");
    eg_mha_run(m, x, .where = "j <= i", .cache = c, .slot = 1);
    ck_assert_int_eq(eg_cache_set_state(c, 1, h, 1), -1);
    eg_assert_error(cx, "slot 1 of the cache holds keys, no state");
    eg_nograd(cx, false);
    ck_assert_int_eq(eg_cache_set_state(c, 0, h, 1), -1);
    eg_assert_error(cx, "a cache keeps no history, so it needs eg_nograd");
}

/* Beams: rows are selected at random after every position, some twice, some never; each row of the
 * cache equals a pass over the positions that led to it. Grouped heads, rotary positions, packed
 * and separate weights, positions before batches. */
LOOP_TEST(selected_rows_equal_complete_passes, 5)
{
    enum { ROWS = 4, PLACES = 7, WIDTH = 8 };
    const eg_mha_args form = ((eg_mha_args[]){ { .heads = 2 },
                                               { .heads = 4, .kv_heads = 2, .rotary = 100 },
                                               { .heads = 2, .form = EG_PACKED },
                                               { .heads = 2, .layout = "i b m" },
                                               { .heads = 4, .kv_heads = 1, .alibi = true } })[_i];
    const int place = form.layout ? 0 : 1;
    int back = 0;
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = WIDTH, .heads = form.heads, .kv_heads = form.kv_heads,
                           .rotary = form.rotary, .form = form.form, .layout = form.layout,
                           .alibi = form.alibi);
    randomise(p, 0.4);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), PLACES);
    eg_tensor *before = NULL;
    for (int t = 0; t < PLACES; t++) {
        eg_tensor *x =
            place ? eg_normal(cx, 0, 1, ROWS, 1, WIDTH) : eg_normal(cx, 0, 1, 1, ROWS, WIDTH);
        before = before ? eg_concat_axis(place, before, x) : x;
        eg_tensor *y = eg_mha_run(m, x, .where = "j <= i", .cache = c),
                  *whole = eg_mha_run(m, before, .where = "j <= i");
        eg_assert_close(eg_contiguous(y), eg_contiguous(eg_slice_axis(whole, place, t, t + 1, 1)),
                        1e-12);
        eg_tensor *pick = eg_randint(cx, 0, ROWS, ROWS);
        ck_assert_int_eq(eg_cache_select(c, pick), 0);
        before = place ? eg_at("[b] i m, c -> c i m", before, pick)
                       : eg_at("i [b] m, c -> i c m", before, pick);
        if (t != 3 || back++) continue; /* once, a beam goes back two positions */
        ck_assert_int_eq(eg_cache_truncate(c, 2), 0);
        before = eg_slice_axis(before, place, 0, 2, 1);
        t = 1;
        eg_mha *other =
            eg_mha_new(eg_params_open(cx), "", .d_model = WIDTH, .heads = 2, .layout = "i m");
        eg_cache *one = eg_cache_new(eg_params_owner(p), ROWS);
        ck_assert(eg_ok(eg_mha_run(other, eg_normal(cx, 0, 1, ROWS, WIDTH), .cache = one)));
        ck_assert_int_eq(eg_cache_select(one, pick), -1);
        eg_assert_error(cx, "cache: its keys have no batch that could be picked; they come from "
                            "the layout of one sequence");
    }
    eg_nograd(cx, false);
}

/* 1 row, then 4, 2, 7: a search begins with one prefix; with a memory, too */
LOOP_TEST(a_cache_has_as_many_rows_as_are_selected, 2)
{
    const eg_mha_args form =
        ((eg_mha_args[]){ { .heads = 2 }, { .heads = 4, .kv_heads = 2, .rotary = 100 } })[_i];
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = form.heads, .kv_heads = form.kv_heads,
                           .rotary = form.rotary);
    randomise(p, 0.4);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 5), *kept = eg_cache_new(eg_params_owner(p), 5);
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 2, 8), *source = eg_normal(cx, 0, 1, 1, 3, 8);
    eg_mha_run(m, x, .where = "j <= i", .cache = c);
    eg_mha_run(m, x, .key = source, .cache = kept, .memory = true);
    static const int64_t pick[3][7] = { { 0, 0, 0, 0 }, { 3, 1 }, { 1, 0, 0, 1, 1, 1, 0 } },
                         rows[] = { 4, 2, 7 };
    for (int t = 0; t < 3; t++) {
        eg_tensor *index = eg_from_n(cx, EG_I64, pick[t], 1, &rows[t]),
                  *one = eg_normal(cx, 0, 1, rows[t], 1, 8);
        ck_assert_int_eq(eg_cache_select(c, index), 0);
        ck_assert_int_eq(eg_cache_select(kept, index), 0);
        x = eg_concat_axis(1, eg_at("[b] i m, c -> c i m", x, index), one);
        source = eg_at("[b] i m, c -> c i m", source, index);
        eg_tensor *y = eg_mha_run(m, one, .where = "j <= i", .cache = c),
                  *whole = eg_mha_run(m, x, .where = "j <= i");
        eg_assert_close(y, eg_contiguous(eg_slice_axis(whole, 1, t + 2, t + 3, 1)), 1e-12);
        eg_assert_close(eg_mha_run(m, one, .key = source, .cache = kept, .memory = true),
                        eg_mha_run(m, one, .key = source), 1e-12);
    }
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 4, 1, 8), .cache = c)));
    eg_assert_error(cx, "the batch is 7 in the cache but 4 in the new keys");
    ck_assert_int_eq(eg_cache_truncate(c, 0), 0); /* an empty cache accepts any number of rows */
    eg_tensor *fresh = eg_normal(cx, 0, 1, 9, 3, 8);
    eg_assert_close(eg_mha_run(m, fresh, .where = "j <= i", .cache = c),
                    eg_mha_run(m, fresh, .where = "j <= i"), 1e-12);
    eg_nograd(cx, false);
}

TEST(errors_name_module_and_option)
{
    eg_mha *m = eg_mha_new(eg_params_open(cx), "enc.0.attn", .d_model = 8, .heads = 2),
           *grouped = eg_mha_new(eg_params_open(cx), "g", .d_model = 8, .heads = 4, .kv_heads = 2);
    eg_linear *up = eg_linear_new(eg_params_open(cx), "up", .in = 8, .out = 4);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *mask = eg_cast(eg_ones(cx, 2, 6), EG_BOOL);
    eg_mha_run(m, x, .keep = { "bj", mask });
    eg_assert_error(cx,
                    "mha \"enc.0.attn\": attention: index 'j' is 5 in the key but 6 in .keep\n");
    eg_mha_run(grouped, x, .bias = { "hij", eg_ones(cx, 4, 5, 6) });
    eg_assert_error(cx, "mha \"g\": attention: index 'j' is 5 in the key but 6 in .bias");
    eg_mha_run(m, x, .lengths = { "b", eg_from(cx, (int64_t[]){ 5, 9 }, 2) });
    eg_assert_error(cx, "mha \"enc.0.attn\": attention: .lengths is 9 at element 1");
    eg_mha_run(m, x, .where = "k <= i");
    eg_assert_error(
        cx, "mha \"enc.0.attn\": .where: the predicate's index 'k' is not one of 'b', 'h', 'i', "
            "'j'\n  k <= i\n  ^");
    eg_mha_run(grouped, x, .where = "g <= i");
    eg_assert_error(
        cx, "mha \"g\": .where: the predicate's index 'g' is not one of 'b', 'h', 'i', 'j'");
    eg_mha_run(m, x, .where = "j <=");
    eg_assert_error(cx, "mha \"enc.0.attn\": .where: the predicate ends where");
    eg_mha_run(m, x, .fill = -1e9, .where = "j <= i", .form = EG_FUSED);
    eg_assert_error(cx, "mha \"enc.0.attn\": .fill changes scores in memory, which the form "
                        "EG_FUSED does not have");
    eg_mha_run(m, eg_cast(x, EG_F32));
    eg_assert_error(cx, "mha \"enc.0.attn\": the query is f32 but the module's parameters are f64; "
                        "eg_cast one of them");
    eg_linear_run(up, eg_cast(x, EG_F32));
    eg_assert_error(cx, "linear \"up\": affine: x is f32 but W is f64; eg_cast one of them");
    eg_fail(cx, "before"); /* an error that was there before is kept */
    eg_mha_run(m, x);
    eg_linear_run(up, x);
    ck_assert_str_eq(eg_error(cx), "before");
    eg_clear(cx);
    eg_fail_in(cx, "nothing failed");
    ck_assert_ptr_null(eg_error(cx));
}

/* constant keys: projected once; of the key of later calls only the sizes are checked */
TEST(cache_of_a_memory)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 2);
    randomise(p, 0.4);
    eg_nograd(cx, true);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 8), *memory = eg_normal(cx, 0, 1, 2, 7, 8),
              *full = eg_mha_run(m, x, .key = memory);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 4);
    eg_assert_close(eg_mha_run(m, eg_slice_axis(x, 1, 0, 1, 1), .key = memory, .cache = c,
                               .slot = 1, .memory = true),
                    eg_contiguous(eg_slice_axis(full, 1, 0, 1, 1)), 1e-12);
    eg_usage before = eg_stats(cx);
    eg_assert_close(
        eg_mha_run(m, eg_slice_axis(x, 1, 1, 3, 1), .cache = c, .slot = 1, .memory = true),
        eg_contiguous(eg_slice_axis(full, 1, 1, 3, 1)), 1e-12);
    ck_assert_int_eq(eg_cache_length(c), 0);
    ck_assert(eg_stats(cx).nodes > before.nodes);
    ck_assert(eg_ok(eg_mha_run(m, x, .key = memory, .cache = c, .slot = 1, .memory = true)));
    ck_assert(!eg_ok(eg_mha_run(m, x, .key = eg_slice_axis(memory, 1, 0, 6, 1), .cache = c,
                                .slot = 1, .memory = true)));
    eg_assert_error(
        cx, "mha \"\": length 'j' is 7 in the memory that the cache holds but 6 in the key");
    ck_assert(!eg_ok(eg_mha_run(m, x, .key = eg_slice_axis(memory, 0, 0, 1, 1), .cache = c,
                                .slot = 1, .memory = true)));
    eg_assert_error(cx,
                    "mha \"\": batch 'b' is 2 in the memory that the cache holds but 1 in the key");
    eg_nograd(cx, false);
}

TEST(cache_refuses)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 2),
           *other = eg_mha_new(p, "other", .d_model = 8, .heads = 4);
    ck_assert_ptr_null(eg_cache_new(eg_params_owner(p), 0));
    eg_assert_error(cx, "cache: the capacity must be positive, not 0");
    eg_cache *c = eg_cache_new(eg_params_owner(p), 8);
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 2, 3, 8), .cache = c)));
    eg_assert_error(cx, "mha \"attn\": a cache keeps no history, so it needs eg_nograd");
    eg_nograd(cx, true);
    ck_assert(eg_ok(eg_mha_run(m, eg_ones(cx, 2, 7, 8), .cache = c)));
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 2, 2, 8), .cache = c)));
    eg_assert_error(
        cx, "mha \"attn\": the cache has room for 8 positions; it holds 7, and 2 more came");
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 3, 1, 8), .cache = c)));
    eg_assert_error(cx, "mha \"attn\": the batch is 2 in the cache but 3 in the new keys");
    ck_assert(!eg_ok(eg_mha_run(other, eg_ones(cx, 2, 1, 8), .cache = c)));
    eg_assert_error(cx, "mha \"other\": the heads' size is 2 in the cache but 4 in the new keys");
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 2, 1, 8), .cache = c, .slot = -1)));
    eg_assert_error(cx, "mha \"attn\": .slot is -1; it must not be negative");
    ck_assert(eg_ok(eg_mha_run(m, eg_ones(cx, 2, 7, 8), .cache = c, .key = eg_ones(cx, 2, 8, 8),
                               .slot = 3, .memory = true)));
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 2, 1, 8), .cache = c, .slot = 3)));
    eg_assert_error(cx, "mha \"attn\": slot 3 of the cache holds a memory");
    ck_assert_int_eq(eg_cache_length(c), 7);
    ck_assert_ptr_null(eg_cache_new(NULL, 3));
    ck_assert(eg_cache_length(NULL) == 0 && eg_cache_truncate(NULL, 0) == -1 &&
              eg_cache_select(NULL, NULL) == -1);
    eg_assert_ok(cx);
    eg_nograd(cx, false);
}

/* -- linear attention ------------------------------------------------------------------------- */
/* the definition, with all scores at once */
static eg_tensor *dense(eg_tensor *q, eg_tensor *k, eg_tensor *v, const char *where, int64_t offset,
                        eg_tensor *keep)
{
    eg_tensor *s =
        eg_einsum("bihd,bjhd->bhij", eg_shift(eg_elu(q, 1), 1), eg_shift(eg_elu(k, 1), 1));
    int64_t sizes[] = { eg_dim(q, 1), eg_dim(k, 1) };
    if (where)
        s = eg_on("bhij,ij", eg_mul, s,
                  eg_cast(eg_where_mask(cx, where, "i [j]", offset, sizes), eg_type(q)));
    if (keep) s = eg_on("bhij,bj", eg_mul, s, eg_cast(keep, eg_type(q)));
    return eg_einsum("bhij,bjhe->bihe", eg_on("bhij,bhi", eg_div, s, eg_sum("bhi[j]", s)), v);
}

GROUP("others", .setup = open_f64, .teardown = close_cx)

/* below, at and above a chunk; values and all gradients */
LOOP_TEST(linear_attention_is_its_definition, 7)
{
    static const struct {
        int64_t i, j;
        const char *where;
        int64_t offset;
        bool pad;
    } cases[] = { { 5, 7, NULL, 0, false },        { 130, 90, NULL, 0, true },
                  { 5, 5, "j <= i", 0, false },    { 64, 64, "j<=i", 0, false },
                  { 150, 150, "j <= i", 0, true }, { 1, 9, "j <= i", 8, false },
                  { 70, 80, "j <= i", 10, true } };
    int64_t n = cases[_i].i, l = cases[_i].j;
    eg_tensor *q = eg_normal(cx, 0, 1, 2, n, 2, 3), *k = eg_normal(cx, 0, 1, 2, l, 2, 3),
              *v = eg_normal(cx, 0, 1, 2, l, 2, 4), *keep = NULL;
    if (cases[_i].pad) keep = eg_gt(eg_normal(cx, 1, 1, 2, l), eg_zeros(cx, 2, l));
    eg_tensor *y =
        eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, v, .where = cases[_i].where,
                            .offset = cases[_i].offset, .keep = { keep ? "bj" : NULL, keep });
    eg_tensor *z = dense(q, k, v, cases[_i].where, cases[_i].offset, keep),
              *seed = eg_normal(cx, 0, 1, 2, n, 2, 4), *xs[] = { q, k, v }, *one[3], *two[3];
    eg_assert_close(y, z, 1e-12);
    ck_assert(!eg_grad(y, seed, 3, xs, one) && !eg_grad(z, seed, 3, xs, two));
    for (int x = 0; x < 3; x++) eg_assert_close(one[x], two[x], 1e-11);
    eg_tensor *moved = eg_linear_attention(
        "ibhd,jbhd,jbhe->hibe", eg_transpose(q, 0, 1), eg_transpose(k, 0, 1), eg_transpose(v, 0, 1),
        .where = cases[_i].where, .offset = cases[_i].offset, .keep = { keep ? "bj" : NULL, keep });
    eg_assert_close(eg_rearrange("h i b e -> b i h e", moved), y, 1e-13);
}

static eg_tensor *linear(void *where, eg_tensor *const *x)
{
    return eg_linear_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .where = where);
}
LOOP_TEST(linear_attention_to_second_order, 2)
{
    static char causal[] = "j <= i";
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 3, 2), *k = eg_normal(cx, 0, 1, 2, 3, 2),
              *v = eg_normal(cx, 0, 1, 2, 3, 2);
    eg_assert_grad2(linear, _i ? causal : NULL, q, k, v);
}

/* grouped heads, a cache, weights on request; a position without keys */
TEST(linear_attention_in_the_module)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 4, .kv_heads = 2,
                           .linear = &(eg_linear_attention_args){ 0 });
    randomise(p, 0.4);
    bool keep[2][6] = { { 0 }, { 1, 1, 1, 1, 1, 1 } };
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8), *w,
              *y = eg_mha_run(m, x, .where = "j <= i", .weights = &w),
              *one = eg_mha_run(m, x, .where = "j <= i");
    eg_assert_close(y, one, 0);
    eg_assert_close(eg_sum("b h i [j]", w), eg_ones(cx, 2, 4, 6), 1e-13);
    ck_assert(eg_get(w, 0, 3, 0, 1) == 0 && eg_get(w, 0, 3, 0, 0) == 1);
    eg_tensor *vs = eg_on("bjge,ge", eg_add, eg_einsum("bjm,mge->bjge", x, m->W_v), m->b_v);
    eg_tensor *by_weights =
        eg_einsum("bhij,bjhe,heo->bio", w, eg_rearrange("b j g e -> b j (g r=2) e", vs), m->W_o);
    eg_assert_close(eg_add(by_weights, m->b_o), y, 1e-12);
    eg_tensor *none = eg_mha_run(m, x, .keep = { "bj", eg_from(cx, &keep[0][0], 2, 6) }), *g;
    eg_assert_close(eg_select_axis(none, 0, 0), eg_expand(m->b_o, 6, 8), 0);
    ck_assert_int_eq(eg_grad(none, eg_ones_like(none), 1, &x, &g), 0);
    eg_assert_close(eg_select_axis(g, 0, 0), eg_zeros(cx, 6, 8), 0);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    eg_tensor *parts[6];
    for (int t = 0; t < 6; t++)
        parts[t] = eg_mha_run(m, eg_slice_axis(x, 1, t, t + 1, 1), .where = "j <= i", .cache = c);
    eg_assert_close(eg_concat_axis_n(1, 6, parts), y, 1e-12);
    eg_nograd(cx, false);
}

TEST(linear_attention_takes_linear_memory) /* 4096 positions: all scores would take 128 MB */
{
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 4096, 1, 8), *g;
    eg_stats_reset(cx);
    size_t before = eg_stats(cx).used;
    eg_tensor *y = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, q, q, .where = "j <= i");
    ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 1, &q, &g), 0);
    ck_assert_msg(eg_stats(cx).used_peak - before < 60u << 20, "%zu bytes",
                  eg_stats(cx).used_peak - before);
}

LOOP_TEST(linear_attention_refuses, 9)
{
    eg_tensor *x = eg_ones(cx, 2, 4, 3, 2), *keys = eg_ones(cx, 2, 5, 3, 2),
              *bias = eg_ones(cx, 4, 4);
    const struct {
        const char *spec;
        eg_linear_attention_args o;
        const char *why;
    } cases[] = {
        { "bihd,bjhd,bjhe->bihe",
          { .where = "j < i" },
          ".where may be \"j <= i\" and conditions on keys or on queries alone, as \"pad[j]\", "
          "joined "
          "by &; but \"j < i\" is of both" },
        { "bihd,bjhd,bjhe->bihe",
          { .where = "j <= i", .k = keys, .v = keys },
          "'j' is 5 and 'i' is 4 with 0 before" },
        { "bihd,bjhd,bjhe->bihe",
          { .keep = { "bj", bias } },
          ".keep is f64; it needs bool or integers" },
        { "bihd,bjhd,bjhe->bihe",
          { .keep = { "ij", eg_cast(bias, EG_BOOL) } },
          ".keep has the letter 'i' of the query" },
        { "bihd,bjhd->bihd", { 0 }, "three operands and an output are needed" },
        { "bihd,bihd,bihd->bihd",
          { 0 },
          "needs an index of the query, one of the key and one of the value's width" },
        { "bid,bjd,bjhe->bihe",
          { 0 },
          "the values have the indices 'h' and 'e', which queries and keys lack, but their width" },
        { "bid,bjd,bje->bie", { 0 }, "operand 1 has rank 4" },
        { "bihd,bjhd,bjhe->bihe",
          { .phi = "exp(" },
          "linear_attention: .phi: expr: the expression ends where a number" },
        { "bihd,bjhd,bjhe->bihe", { .k = keys }, "index 'j' is 5 in operand 2 but 4 in operand 3" },
    };
    eg_linear_attention_args o = cases[_i].o;
    o.size = sizeof o, o.spec = cases[_i].spec, o.q = x;
    o.k = o.k ? o.k : x, o.v = o.v ? o.v : x;
    ck_assert(!eg_ok(eg_linear_attention_with(&o)));
    if (o.phi) /* what calls it is named once */
        ck_assert_int_eq(strncmp(eg_error(cx), cases[_i].why, strlen(cases[_i].why)), 0);
    eg_assert_error(cx, cases[_i].why);
    ck_assert(!eg_ok(eg_linear_attention("bihd,bjhd,bjhe->bihe", x, NULL, x)));
    eg_clear(cx);
}

/* -- local and block-sparse attention: predicates of the module ------------------------------- */
LOOP_TEST(local_and_block_sparse, 4) /* compared with all scores under the same mask */
{
    static const char *const where[] = { "i - 3 < j <= i", "i - 2 < j < i + 2",
                                         "i/4 == j/4 | j < 2", "i/2 == j/2 | (j/2) % 3 == 0" };
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 2, .where = where[_i]);
    randomise(p, 0.4);
    int64_t sizes[] = { 11, 11 };
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 11, 8),
              *mask = eg_where_mask(cx, where[_i], "i [j]", 0, sizes), *y = eg_mha_run(m, x), *g[2],
              *h[2];
    eg_tensor *q = eg_on("bihd,hd", eg_add, eg_einsum("bim,mhd->bihd", x, m->W_q), m->b_q),
              *k = eg_on("bihd,hd", eg_add, eg_einsum("bim,mhd->bihd", x, m->W_k), m->b_k);
    eg_tensor *v = eg_on("bihd,hd", eg_add, eg_einsum("bim,mhd->bihd", x, m->W_v), m->b_v);
    eg_tensor *s = eg_scale(eg_einsum("bihd,bjhd->bhij", q, k), 0.5),
              *e = eg_on("bhij,ij", eg_mul, eg_exp(s), eg_cast(mask, EG_F64));
    eg_tensor *z = eg_add(eg_einsum("bhij,bjhd,hdm->bim",
                                    eg_on("bhij,bhi", eg_div, e, eg_sum("bhi[j]", e)), v, m->W_o),
                          m->b_o);
    eg_assert_close(y, z, 1e-12);
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, 11, 8), *xs[] = { x, m->W_k };
    ck_assert(!eg_grad(y, seed, 2, xs, g) && !eg_grad(z, seed, 2, xs, h));
    for (int n = 0; n < 2; n++) eg_assert_close(g[n], h[n], 1e-12);
}

static eg_tensor *self(void *m, eg_tensor *const *x) { return eg_mha_run(m, x[0]); }
LOOP_TEST(drop_in_modules_to_second_order, 3)
{
    static const eg_linear_attention_args linear;
    static const eg_mha_args kinds[] = { { .where = "i - 2 < j <= i" },
                                         { .where = "i/2 == j/2 | j < 1" },
                                         { .linear = &linear } };
    eg_mha_args a = kinds[_i];
    a.size = sizeof a, a.params = eg_params_open(cx), a.name = "", a.d_model = 4, a.heads = 2;
    eg_mha *m = eg_mha_new_with(&a);
    randomise(a.params, 0.4);
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 4, 4);
    eg_assert_grad2(self, m, x);
}

TEST(parameters_without_a_part)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 4, .heads = 2);
    eg_linear *spare = eg_linear_new(p, "spare", .in = 4, .out = 4);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 4), *y = eg_mha_run(m, x);
    const eg_named *out[16];
    ck_assert_int_eq(eg_params_unused(p, 1, &y, out), 2);
    ck_assert_str_eq(out[0]->name, "spare.W");
    ck_assert_str_eq(out[1]->name, "spare.b");
    eg_tensor *ys[] = { y, eg_linear_run(spare, x) };
    ck_assert_int_eq(eg_params_unused(p, 2, ys, NULL), 0);
    ck_assert_int_eq(eg_params_unused(p, 1, ys + 1, out), 8);
    ys[1] = eg_fail(cx, "on purpose");
    eg_clear(cx);
    ck_assert_int_eq(eg_params_unused(p, 2, ys, NULL), -1);
    eg_assert_error(cx, "params_unused: y 1 is NULL, failed or gone with its scope");
    eg_tensor *deep = x; /* a long history, in which each step is an operand twice */
    for (int k = 0; k < 3000; k++) deep = eg_add(deep, deep);
    ck_assert_int_eq(eg_params_unused(p, 1, &deep, NULL), 10);
    ck_assert(eg_params_unused(p, 0, NULL, NULL) == 10 &&
              eg_params_unused(p, 2, NULL, NULL) == 10 &&
              eg_params_unused(NULL, 0, NULL, NULL) == -1);
}

/* What .keep masks may have any content, in key and value: the result of the module (in both forms,
 * with filled scores, in groups) and that of linear attention have the same values as with zeros
 * there, and so have the gradients of everything that is not masked. */
TEST(padding_may_be_nan)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 2),
           *grouped = eg_mha_new(p, "g", .d_model = 8, .heads = 4, .kv_heads = 2);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 5, 8), *memory = eg_normal(cx, 0, 1, 2, 6, 8);
    eg_tensor *pad = eg_from(cx, ((bool[]){ 1, 1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 1 }), 2, 6),
              *wide = eg_unsqueeze(pad, 2);
    const double odd[] = { 0, NAN, INFINITY };
    enum { MODULE, FUSED, GROUPS, FILLED, LINEAR, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        eg_tensor *y[3], *d[3][2];
        for (int k = 0; k < 3; k++) {
            eg_tensor *key = eg_where(wide, memory, eg_full(cx, odd[k], 1)),
                      *four = eg_reshape(key, 2, 6, 2, 4);
            if (kind == LINEAR)
                y[k] = eg_linear_attention("bihd,bjhd,bjhe->bihe", eg_reshape(x, 2, 5, 2, 4), four,
                                           four, .keep = { "bj", pad });
            else if (kind == FILLED) /* its value has a weight, but its score is replaced */
                eg_mha_run(m, x, .key = key, .value = memory, .keep = { "bj", pad }, .fill = -3,
                           .weights = &y[k]);
            else
                y[k] =
                    eg_mha_run(kind == GROUPS ? grouped : m, x, .key = key, .keep = { "bj", pad },
                               .form = kind == FUSED ? EG_FUSED : EG_UNFUSED);
            ck_assert(!eg_grad(y[k], eg_mul(y[0], y[0]), 2, (eg_tensor *[]){ x, key }, d[k]));
            eg_assert_ok(cx);
            eg_assert_close(y[k], y[0], 0);
            eg_assert_close(d[k][0], d[0][0], 0);
            d[k][1] = eg_where(wide, d[k][1], eg_full(cx, 0, 1));
            eg_assert_close(d[k][1], d[0][1], 0);
        }
    }
}
