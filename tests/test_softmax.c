/* test_softmax.c: softmax and log-softmax over any axes, masks by letters, rows without allowed
 * elements. */
#include "tensor/tensor.h"
#include "tests.h"
#include "stored_values.h"

GROUP("softmax")

TEST(softmax_equals_stored_values)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 0, 2, 3, 4);
    as_stored(eg_softmax("[b] i [j]", x), ref_softmax, OPERANDS(x), GRADIENTS(ref_softmax_d0));
    as_stored(eg_log_softmax("b [i] j", x), ref_log_softmax, OPERANDS(x),
              GRADIENTS(ref_log_softmax_d0));
    as_stored(eg_log(eg_softmax("b [i] j", x)), ref_log_softmax, OPERANDS(x),
              GRADIENTS(ref_log_softmax_d0));
    eg_close(cx);
}

TEST(rows_sum_to_one_and_shifts_do_not_matter)
{
    eg_ctx *cx = eg_open();
    const int64_t sizes[] = { 1, 2, 15, 16, 17, 511, 512, 513, 3000 };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        eg_tensor *x = eg_normal_n(cx, EG_F32, 0, 4, 2, (int64_t[]){ 7, sizes[k] });
        eg_tensor *y = eg_softmax("i [j]", x), *wide = eg_softmax("i [j]", eg_cast(x, EG_F64));
        eg_assert_close(eg_sum("i [j]", eg_cast(y, EG_F64)),
                        eg_full_n(cx, EG_F64, 1, 1, (int64_t[]){ 7 }),
                        1.2e-7 * (double)(sizes[k] < 64 ? sizes[k] : 64));
        eg_assert_close(eg_cast(y, EG_F64), wide, 1e-6);
        eg_assert_close(eg_softmax("i [j]", eg_shift(eg_cast(x, EG_F64), 1000)), wide, 1e-12);
        eg_assert_close(eg_exp(eg_log_softmax("i [j]", eg_cast(x, EG_F64))), wide, 1e-14);
        ck_assert(
            same_bits(eg_transpose(eg_softmax("[j] i", eg_copy(eg_transpose(x, 0, 1))), 0, 1), y));
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* The gradient of log-softmax over a middle axis, whose rows are interleaved, has the bits of that
 * of contiguous rows, also where elements are infinite or NaN. */
TEST(log_softmax_over_a_middle_axis_has_the_gradient_of_rows)
{
    static const int lengths[] = { 2, 3, 15, 16, 17, 63, 64, 100, 256, 257 };
    for (int k = 0; k < 10 * 2 * 2; k++) {
        eg_ctx *cx = eg_open(.dtype = k % 2 ? EG_F64 : EG_F32, .threads = 1 + k % 3);
        const int n = lengths[k / 4];
        eg_tensor *x = eg_uniform(cx, -4, 4, 3, n, 35), *g = eg_uniform(cx, -1, 1, 3, n, 35), *d[2];
        for (int i = 0; i < 3; i++)
            eg_fill(eg_select_axis(eg_slice_axis(x, 1, i, i + 1, 1), 2, 9 * i + 3), i == 2 ? NAN
                                                                                    : i ? -INFINITY
                                                                                        : INFINITY);
        if (k / 2 % 2) x = eg_flip_axis(eg_flip_axis(x, 1), 2);
        eg_tensor *rows = eg_contiguous(eg_rearrange("b v l -> b l v", x)),
                  *y = eg_log_softmax("b [v] l", x), *z = eg_log_softmax("b l [v]", rows);
        eg_grad(y, g, 1, &x, &d[0]);
        eg_grad(z, eg_contiguous(eg_rearrange("b v l -> b l v", g)), 1, &rows, &d[1]);
        eg_assert_ok(cx);
        ck_assert(same_bits(eg_rearrange("b v l -> b l v", y), z));
        ck_assert_msg(same_bits(eg_rearrange("b v l -> b l v", d[0]), d[1]), "rows of %d", n);
        eg_close(cx);
    }
}

/* An element far above the others has the weight 1, at any position; a maximum that misses it would
 * overflow. */
LOOP_TEST(softmax_finds_the_largest_element_at_each_position, 70)
{
    eg_ctx *cx = eg_open(.dtype = _i & 1 ? EG_F64 : EG_F32);
    const int n = _i / 2 + 1;
    eg_tensor *one = eg_where_mask(cx, "i == j", "i j", 0, (int64_t[]){ n, n }),
              *peaks = eg_scale(eg_cast(one, _i & 1 ? EG_F64 : EG_F32), 1e4),
              *most = eg_full_n(cx, eg_type(peaks), 1e4, 1, (int64_t[]){ n });
    eg_assert_close(eg_softmax("i [j]", peaks), eg_cast(one, eg_type(peaks)), 0);
    eg_assert_close(eg_logsumexp("i [j]", peaks), most, 0);
    eg_close(cx);
}

TEST(a_mask_is_not_a_factor)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *s = eg_from(cx, ((double[]){ 1, 2, 3, 4 }), 4),
              *keep = eg_from(cx, ((bool[]){ 1, 1, 0, 0 }), 4);
    eg_tensor *right = eg_from(cx, ((double[]){ 0.2689, 0.7311, 0, 0 }), 4),
              *bug = eg_from(cx, ((double[]){ 0.2245, 0.6103, 0.0826, 0.0826 }), 4);
    eg_assert_close(eg_softmax("[t]", s, .keep = { "t", keep }), right, 5e-5);
    eg_assert_close(eg_softmax("[t]", s, .where = "t < 2"), right, 5e-5);
    eg_assert_close(eg_softmax("[t]", eg_mul(s, eg_cast(keep, EG_F64))), bug, 5e-5);
    eg_close(cx);
}

TEST(the_axes_are_named)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_scale(wave(cx, 0, 2, 3, 4, 5), 300);
    eg_assert_close(eg_sum("n h s [t]", eg_softmax("n h s [t]", x)), eg_ones(cx, 2, 3, 4), 1e-15);
    eg_assert_close(eg_sum("n h [s t]", eg_softmax("n h [s t]", x)), eg_ones(cx, 2, 3), 1e-15);
    eg_close(cx);
}

static eg_tensor *masked(void *keep, eg_tensor *const *x)
{
    return eg_softmax("b i [j]", x[0], .where = "j <= i", .keep = { "bj", keep },
                      .bias = { "ij", x[1] });
}
/* masked entries are −inf, and have weight 0 */
static eg_tensor *log_masked(void *keep, eg_tensor *const *x)
{
    return eg_mul(eg_exp(eg_log_softmax("b i [j]", x[0], .where = "j <= i", .keep = { "bj", keep },
                                        .bias = { "ij", x[1] })),
                  x[0]);
}
TEST(a_row_with_no_key_is_zero)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 0, 2, 4, 5), *bias = wave(cx, 1, 4, 5), *dx, *ddx, *y;
    /* sample 0: no key for queries 0 and 1 */
    eg_tensor *keep = eg_from(cx, ((bool[]){ 0, 0, 1, 1, 0, 1, 0, 1, 1, 1 }), 2, 5);
    y = masked(keep, (eg_tensor *[]){ x, bias });
    eg_assert_close(eg_sum("b i [j]", y), eg_from(cx, ((double[]){ 0, 0, 1, 1, 1, 1, 1, 1 }), 2, 4),
                    1e-15);
    eg_assert_grad2(masked, keep, x, bias);
    eg_assert_grad2(log_masked, keep, x, bias);
    eg_tensor *l =
        eg_log_softmax("b i [j]", x, .keep = { "bj", eg_cast(eg_zeros(cx, 2, 5), EG_I32) });
    eg_assert_close(l, eg_full(cx, -INFINITY, 2, 4, 5), 0);
    for (int log = 0; log < 2; log++) {
        y = log ? eg_log_softmax("b i [j]", x, .where = "j < 0")
                : eg_softmax("b i [j]", x, .where = "j < 0");
        eg_grad(y, eg_ones(cx, 2, 4, 5), 1, &x, &dx);
        eg_assert_close(dx, eg_zeros(cx, 2, 4, 5), 0);
        eg_grad(eg_sum(NULL, dx), NULL, 1, &x, &ddx);
        ck_assert(!any_nan(ddx));
    }
    eg_close(cx);
}

TEST(a_float_is_not_a_keep_mask)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3), *f = eg_ones(cx, 3);
    eg_softmax("i [j]", x, .keep = { "j", f });
    eg_assert_error(cx, "softmax: .keep is f32, but it must be bool or integer ("
                        "non-zero = attend); numbers to be added to the scores are a .bias");
    ck_assert(eg_ok(eg_softmax("i [j]", x, .keep = { "j", eg_cast(f, EG_I32) })));
    ck_assert(eg_ok(eg_softmax("i [j]", x, .keep = { "j", eg_cast(f, EG_I64) })));
    ck_assert(eg_ok(eg_softmax("i [j]", x, .bias = { "j", f })));
    eg_close(cx);
}

TEST(a_large_negative_number_is_not_a_mask)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_from(cx, ((float[]){ 1, 2, 3, 4 }), 4);
    eg_assert_close(eg_softmax("[j]", x, .bias = { "j", eg_full(cx, -1e9, 4) }),
                    eg_full(cx, .25, 4), 1e-7);
    eg_assert_close(eg_softmax("[j]", x, .bias = { "j", eg_full(cx, -INFINITY, 4) }),
                    eg_zeros(cx, 4), 0);
    eg_assert_close(eg_softmax("[j]", x, .where = "j < 0"), eg_zeros(cx, 4), 0);
    eg_close(cx);
}

TEST(the_axis_is_a_letter_in_any_layout)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *s = wave(cx, 0, 4, 5, 2, 3);
    eg_tensor *y = eg_softmax("i [j] b h", s),
              *t = eg_softmax("b h i [j]", eg_rearrange("i j b h -> b h i j", s));
    eg_assert_close(eg_rearrange("i j b h -> b h i j", y), t, 1e-16);
    eg_assert_close(eg_sum("i [j] b h", y), eg_ones(cx, 4, 2, 3), 1e-15);
    eg_close(cx);
}

TEST(a_missing_letter_is_shared)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *s = wave(cx, 0, 4, 5, 2, 3), *keep = eg_gt(wave(cx, 1, 4, 5, 2), eg_scalar(cx, -1));
    eg_tensor *y = eg_softmax("i [j] b h", s, .keep = { "ijb", keep });
    eg_tensor *full = eg_expand(eg_unsqueeze(keep, -1), 4, 5, 2, 3);
    ck_assert(same_bits(y, eg_softmax("i [j] b h", s, .keep = { "i j b h", full })));
    ck_assert(
        same_bits(y, eg_softmax("i [j] b h", s, .keep = { "bji", eg_permute(keep, 2, 1, 0) })));
    eg_close(cx);
}

TEST(scores_of_any_size)
{
    eg_ctx *cx = eg_open();
    for (int type = EG_F32; type <= EG_F64; type++) {
        eg_tensor *x = eg_cast(eg_from(cx,
                                       ((double[]){ 3286, 2500, 1e30, -1e30, 1e30, 0, -1e30, -2e30,
                                                    -1e30, -3e30, -INFINITY, -2e30 }),
                                       2, 6),
                               (eg_dtype)type),
                  *dx;
        eg_tensor *y = eg_softmax("i [j]", x), *l = eg_log_softmax("i [j]", x);
        eg_tensor *want = eg_from(cx, ((double[]){ 0, 0, .5, 0, .5, 0, .5, 0, .5, 0, 0, 0 }), 2, 6);
        eg_assert_close(eg_cast(y, EG_F64), want, 1e-7);
        ck_assert(!any_nan(l));
        eg_grad(eg_sum(NULL, eg_add(eg_square(y), eg_exp(l))), NULL, 1, &x, &dx);
        ck_assert(!any_nan(dx));
    }
    eg_tensor *x = eg_from(cx, ((float[]){ INFINITY, 0, INFINITY, -INFINITY }), 4);
    /* the limit */
    eg_assert_close(eg_softmax("[j]", x), eg_from(cx, ((float[]){ .5, 0, .5, 0 }), 4), 0);
    ck_assert(any_nan(eg_softmax("[j]", eg_from(cx, ((float[]){ NAN, 0 }), 2))));
    eg_close(cx);
}

/* -- predicates ------------------------------------------------------------------------------- */
TEST(where_equals_the_same_mask_as_data)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 0, 2, 6, 9);
    const struct {
        const char *where;
        int64_t offset;
    } all[] = {
        { "j <= i", 0 },
        { "j <= i", 3 },
        { "i - 2 < j <= i", 0 },
        { "(i - j) % 2 == 0", 0 },
        { "i/3 == j/3", 0 },
        { "j <= i | j < 2", 0 },
        { "j - |j| <= i - |i|", 0 },
        { "j < 4", 0 },
        { "i > 2", 0 },
        { "b == 0 | j > i", 0 },
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        eg_tensor *mask = eg_where_mask(cx, all[k].where, "b i [j]", all[k].offset, eg_dims(x));
        eg_tensor *y = eg_softmax("b i [j]", x, .where = all[k].where, .offset = all[k].offset);
        ck_assert(same_bits(y, eg_softmax("b i [j]", x, .keep = { "bij", mask })));
        eg_assert_close(
            y, eg_softmax("b i [j]", eg_where(mask, x, eg_full_n(cx, EG_F64, -INFINITY, 0, NULL))),
            1e-15);
        eg_assert_close(eg_where(mask, eg_zeros_like(y), y), eg_zeros_like(y), 0);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(masks_add_up_and_names_work)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = wave(cx, 0, 2, 3, 4, 5), *pad = eg_gt(wave(cx, 1, 2, 5), eg_scalar(cx, -1)),
              *bias = wave(cx, 2, 3, 4, 5);
    eg_tensor *y = eg_softmax("b h i [j]", x, .where = "j <= i", .keep = { "bj", pad },
                              .bias = { "hij", bias });
    eg_tensor *z = eg_softmax("batch head query [key]", x, .where = "key <= query",
                              .keep = { "batch key", pad }, .bias = { "head query key", bias });
    ck_assert(same_bits(y, z));
    eg_tensor *s = eg_on("bhij, hij", eg_add, x, bias);
    s = eg_where(eg_expand(eg_view(pad, 2, 1, 1, 5), 2, 3, 4, 5), s,
                 eg_full_n(cx, EG_F64, -INFINITY, 0, NULL));
    eg_assert_close(y, eg_softmax("b h i [j]", s, .where = "j <= i"), 1e-15);
    eg_assert_axes("b=2 (h=3 i=4) j=5",
                   eg_softmax("b (h=3 i) [j]", eg_reshape(x, 2, 12, 5), .where = "j <= i"));
    eg_assert_close(eg_softmax("... i [j]", x,
                               .keep = { "... i j", eg_where_mask(cx, "j <= i", "ij", 0,
                                                                  (int64_t[]){ 4, 5 }) }),
                    eg_softmax("b h i [j]", x, .where = "j <= i"), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- predicates that read tensors ------------------------------------------------------------- */
/* The mask of `text`, element by element: h reads doc (b l) of integers and pad (l) of bools, at
 * position i + offset of the query. */
static bool with_holds(int text, int64_t (*doc)[12], const uint8_t *pad, int b, int i, int j)
{
    const int64_t d = i - j < 0 ? 0 : i - j;
    switch (text) {
    case 0: return doc[b][i] == doc[b][j];
    case 1: return j <= i && doc[b][i] == doc[b][j];
    case 2: return pad[j] || (i == j && !pad[i]);
    case 3: return (doc[1][d] + b) % 2 == 0;
    default: return (pad[i] ? doc[0][j] : j) < doc[b][11 - i];
    }
}
static const char *const with_texts[] = { "doc[b,i] == doc[b,j]", "j <= i & doc[b,i] == doc[b,j]",
                                          "pad[j] | i == j & !pad[i]",
                                          "(doc[1, clip(i - j, 0, 11)] + b) % 2 == 0",
                                          "(pad[i] ? doc[0, j] : j) < doc[b, 11 - i]" };
LOOP_TEST(where_reads_tensors, sizeof with_texts / sizeof *with_texts)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    int64_t doc[2][12];
    uint8_t pad[12];
    for (int k = 0; k < 24; k++) (&doc[0][0])[k] = k % 12 / 3 + k / 12;
    for (int k = 0; k < 12; k++) pad[k] = k % 5 != 2;
    eg_tensor *d = eg_from_n(cx, EG_I64, doc, 2, (int64_t[]){ 2, 12 }),
              *p = eg_from_n(cx, EG_BOOL, pad, 1, (int64_t[]){ 12 });
    /* in order, narrow and transposed, reversed twice, every second element */
    eg_tensor *docs[] = { d, eg_transpose(eg_copy(eg_transpose(eg_cast(d, EG_I32), 0, 1)), 0, 1),
                          eg_flip_axis(eg_copy(eg_flip_axis(d, 1)), 1),
                          eg_slice_axis(eg_reshape(eg_stack_axis(-1, d, d), 2, 24), 1, 0, EG_END,
                                        2) };
    const bool reads[] = { strstr(with_texts[_i], "doc"), strstr(with_texts[_i], "pad") };
    for (int way = 0; way < 4; way++)
        for (int offset = 0; offset < 12; offset += 5) {
            const int queries = 12 - offset;
            eg_given with[8] = { { 0 } };
            int n = 0;
            if (reads[0]) with[n++] = (eg_given){ "doc", docs[way] };
            if (reads[1]) with[n++] = (eg_given){ "pad", p };
            eg_softmax_args o = { .size = sizeof o,
                                  .spec = "b i [j]",
                                  .x = wave(cx, way, 2, queries, 12),
                                  .where = with_texts[_i],
                                  .offset = offset,
                                  .offset_letter = "i" };
            eg_where_mask_args m = { .size = sizeof m,
                                     .where = o.where,
                                     .axes = "b i [j]",
                                     .sizes = eg_dims(o.x),
                                     .offset = offset,
                                     .offset_letter = "i" };
            memcpy(o.with, with, sizeof with), memcpy(m.with, with, sizeof with);
            eg_tensor *mask = eg_where_mask_with(cx, &m);
            eg_assert_ok(cx);
            const bool *is = eg_bool(mask);
            for (int k = 0; k < 2 * queries * 12; k++)
                ck_assert_msg(is[k] == with_holds(_i, doc, pad, k / 12 / queries,
                                                  k / 12 % queries + offset, k % 12),
                              "'%s' from %d at %d", with_texts[_i], offset, k);
            for (int again = 0; again < 2; again++) { /* the second time the text is in the cache */
                ck_assert(same_bits(eg_softmax_with(&o),
                                    eg_softmax("b i [j]", o.x, .keep = { "bij", mask })));
                ck_assert(same_bits(eg_log_softmax_with(&o),
                                    eg_log_softmax("b i [j]", o.x, .keep = { "bij", mask })));
            }
        }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Elements are read in each call, though text and shapes are those of the call before. */
TEST(where_reads_new_values)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 4, 4), *doc = eg_cast(eg_zeros(cx, 4), EG_I64), *table;
    for (int k = 0; k < 4; k++) {
        eg_tensor *y =
            eg_softmax("i [j]", x, .where = "doc[i] == doc[j]", .with = { { "doc", doc } });
        eg_assert_ok(cx);
        ck_assert_msg(eg_get(y, 0, 0) == 1.f / (float)(4 - k), "%g", eg_get(y, 0, 0));
        if (k < 3) eg_mut_i64(doc)[3 - k] = k + 1;
    }
    /* an index that was in range before may be out of range now */
    table = eg_cast(eg_ones(cx, 4), EG_BOOL);
    for (int k = 0; k < 2; k++) {
        eg_mut_i64(doc)[0] = k ? 4 : 3;
        ck_assert(eg_ok(eg_softmax("i [j]", x, .where = "t[doc[i]] | i == j",
                                   .with = { { "doc", doc }, { "t", table } })) == !k);
    }
    eg_assert_error(cx, "softmax: the index of axis 0 of 't' goes from 1 to 4, but that axis is 4: "
                        "'i' is 4\n  t[doc[i]] | i == j\n    ^^^^^^");
    eg_close(cx);
}

TEST(where_refuses_tensors)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3, 4), *doc = eg_cast(eg_ones(cx, 2, 4), EG_I64);
    const struct {
        const char *where;
        eg_given with[2];
        const char *says;
    } all[] = {
        { "doc[b,i] == doc[b,j]",
          { { "doc", x } },
          "softmax: 'doc' has 3 axes, but its brackets have 2 indices" },
        { "doc[b,i,j] == 1", { { "doc", x } }, "'doc' is f32, and a predicate reads integers" },
        { "doc[b,i] == dog[b,j]", { { "doc", doc } }, "is 'doc' meant?" },
        { "doc == 1", { { "doc", doc } }, "'doc' is a tensor, and its indices are missing" },
        { "doc[b,j]", { { "doc", doc } }, "the predicate is a number, not a condition" },
        { "j <= i", { { "doc", doc } }, "'doc' of .with is not used in the predicate" },
        { "doc[b,j+i] > 0", { { "doc", doc } }, "the index of axis 1 of 'doc' goes from 0 to 5" },
        { "i[b,j] > 0", { { "i", doc } }, "'i' is a letter and cannot be a tensor's name too" },
        { "doc[b,j] > 0", { { "doc", NULL } }, "softmax: 'doc' of .with is NULL" },
        { NULL, { { "doc", doc } }, "softmax: .with has 'doc', but there is no .where" },
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        ck_assert(!eg_ok(eg_softmax("b i [j]", x, .where = all[k].where,
                                    .with = { all[k].with[0], all[k].with[1] })));
        eg_assert_error(cx, all[k].says);
    }
    ck_assert(!eg_ok(eg_where_mask(cx, "t[i] & j < 2", "i j",
                                   .with = { { "t", eg_cast(eg_ones(cx, 4), EG_BOOL) } })));
    eg_assert_error(cx, "where_mask: letter 'j' has no size: no tensor has it as an axis");
    eg_tensor *mask =
        eg_where_mask(cx, "doc[b,i] == doc[b,j] & j <= i", "b i [j]", .with = { { "doc", doc } });
    eg_assert_axes("b=2 i=4 j=4", mask);
    eg_close(cx);
}

TEST(softmax_has_the_same_bits_for_any_threads)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_normal_n(cx, EG_F32, 0, 3, 3, (int64_t[]){ 40, 50, 60 });
    eg_tensor *y = eg_softmax("b i [j]", x, .where = "j <= i"), *l = eg_log_softmax("b [i] j", x);
    eg_tensor *doc = eg_cast(eg_uniform(cx, 0, 3, 40, 60), EG_I32),
              *mask = eg_where_mask(cx, "doc[b,i] == doc[b,j] | (i + j) % 3 == 0", "b i j",
                                    .with = { { "doc", doc } });
    eg_threads(cx, 6);
    ck_assert(same_bits(eg_cast(mask, EG_F32),
                        eg_cast(eg_where_mask(cx, "doc[b,i] == doc[b,j] | (i + j) % 3 == 0",
                                              "b i j", .with = { { "doc", doc } }),
                                EG_F32)));
    ck_assert(same_bits(y, eg_softmax("b i [j]", x, .where = "j <= i")));
    ck_assert(same_bits(l, eg_log_softmax("b [i] j", x)));
    eg_close(cx);
}

TEST(softmax_refuses)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 2, 3, 4), *pad = eg_cast(eg_ones(cx, 2, 4), EG_BOOL),
              *half = eg_cast(eg_ones(cx, 4), EG_F64);
    ck_assert(!eg_ok(eg_softmax("b i [j]", x, .keep = { "bk", pad })));
    eg_assert_error(cx,
                    "index 'k' of .keep is not an index of the scores\n  b i [j],bk\n           ^");
    eg_softmax("b i [j]", x, .keep = { "jb", pad });
    eg_assert_error(cx, "index 'j' is 4 in operand 1 but 2 in .keep");
    eg_softmax("b i [j]", x, .keep = { NULL, pad });
    eg_assert_error(cx, "softmax: .keep has a tensor but no letters");
    eg_softmax("b i [j]", x, .bias = { "bj", NULL });
    eg_assert_error(cx, "softmax: .bias has the letters \"bj\" but its tensor is NULL");
    eg_softmax("b i [j]", x, .bias = { "j", half });
    eg_assert_error(cx, "softmax: .bias is f64 but the scores are f32");
    eg_softmax("b i [j]", x, .where = "k <= i");
    eg_assert_error(cx, "k");
    eg_softmax("b i [j]", x, .offset = 3);
    eg_assert_error(cx, "softmax: .offset is 3, but no expression has an index that it could move");
    eg_softmax("b i j", x);
    eg_assert_error(cx, "no index is in brackets");
    eg_softmax("b i [j] -> b j i", x);
    eg_assert_error(cx, "it takes no output");
    eg_softmax("b [j]", x);
    eg_assert_error(cx, "rank 3");
    eg_softmax(NULL, x);
    eg_assert_error(cx, "softmax: the spec is NULL");
    eg_log_softmax("b [j]", eg_cast(pad, EG_I32));
    eg_assert_error(cx, "log_softmax: operand 1 is i32; cast it to f32 or f64 first");
    ck_assert_ptr_null(eg_softmax("[j]", NULL));
    eg_softmax("b [j]", eg_ones(cx, 2, 3), .where = "j <= b", .offset = INT64_MAX);
    eg_assert_error(cx, "do not fit in 64 bits");
    eg_close(cx);
}

/* -- the fused operations and their gradients equal plain operations, for any length of a row -- */
typedef struct pair_of {
    const char *name;
    eg_tensor *(*fused)(eg_tensor *const *x, eg_tensor *target),
        *(*plain)(eg_tensor *const *x, eg_tensor *target);
} pair_of;
static eg_tensor *share(eg_tensor *x) /* e^x / Σ e^x */
{
    eg_tensor *e = eg_exp(x);
    return eg_div(e, eg_unsqueeze(eg_sum("b [v]", e), 1));
}
/* d / √(mean d² + 1e-5) times the gain */
static eg_tensor *scaled(eg_tensor *const *x, eg_tensor *d)
{
    return eg_mul(
        eg_div(d, eg_unsqueeze(eg_sqrt(eg_shift(eg_mean("b [v]", eg_square(d)), 1e-5)), 1)), x[1]);
}
#define FUSED(NAME, CALL, PLAIN)                                      \
    static eg_tensor *NAME##_fused(eg_tensor *const *x, eg_tensor *t) \
    {                                                                 \
        (void)t;                                                      \
        return CALL;                                                  \
    }                                                                 \
    static eg_tensor *NAME##_plain(eg_tensor *const *x, eg_tensor *t) \
    {                                                                 \
        (void)t;                                                      \
        return PLAIN;                                                 \
    }
FUSED(softmax, eg_softmax("b [v]", x[0]), share(x[0]))
FUSED(log_softmax, eg_log_softmax("b [v]", x[0]), eg_log(share(x[0])))
FUSED(logsumexp, eg_logsumexp("b [v]", x[0]), eg_log(eg_sum("b [v]", eg_exp(x[0]))))
FUSED(layernorm, eg_layernorm("b [v]", x[0], .gain = x[1], .bias = x[2]),
      eg_add(scaled(x, eg_sub(x[0], eg_unsqueeze(eg_mean("b [v]", x[0]), 1))), x[2]))
FUSED(rmsnorm, eg_rmsnorm("b [v]", x[0], .gain = x[1]), scaled(x, x[0]))
FUSED(cross_entropy, eg_cross_entropy("b [v]", x[0], t, .smoothing = .1, .each = true),
      eg_neg(eg_sum("b [v]", eg_mul(eg_shift(eg_scale(eg_one_hot(t, eg_dim(x[0], 1)), .9),
                                             .1 / (double)eg_dim(x[0], 1)),
                                    eg_log(share(x[0]))))))
/* clang-format off */
#define PAIR(NAME) { #NAME, NAME##_fused, NAME##_plain }
/* clang-format on */
static const pair_of pairs[] = { PAIR(softmax),   PAIR(log_softmax), PAIR(logsumexp),
                                 PAIR(layernorm), PAIR(rmsnorm),     PAIR(cross_entropy) };

GROUP("fused")

LOOP_TEST(fused_softmax_equals_the_separate_operations, sizeof pairs / sizeof *pairs)
{
    const int64_t lengths[] = { 1, 5, 16, 26, 64, 65, 511, 512, 513, 1300 };
    const pair_of *f = &pairs[_i];
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        const int64_t n = lengths[k];
        eg_mark m = eg_push(cx);
        eg_tensor *x[] = { wave(cx, 0, 5, n), wave(cx, 1, n), wave(cx, 2, n) },
                  *t = eg_from(cx, ((int64_t[]){ 0, n - 1, n / 2, n / 3, 0 }), 5);
        eg_tensor *gap = eg_slice_axis(wave(cx, 0, 5, 2 * n), 1, 0, EG_END, 2),
                  *turned = eg_transpose(eg_copy(eg_transpose(x[0], 0, 1)), 0, 1);
        eg_tensor *layouts[] = { x[0], gap, turned };
        for (int l = 0; l < 3; l++) {
            x[0] = layouts[l];
            eg_tensor *a = f->fused(x, t), *b = f->plain(x, t),
                      *g = wave_n(cx, 3, eg_rank(a), eg_dims(a)), *da[3], *db[3], *dda[3], *ddb[3];
            eg_tensor *u = wave(cx, 4, 5, n);
            eg_assert_close(a, b, 1e-12);
            eg_grad(a, g, 3, x, da);
            eg_grad(b, g, 3, x, db);
            eg_grad(da[0], u, 3, x, dda);
            eg_grad(db[0], u, 3, x, ddb);
            eg_assert_ok(cx);
            for (int i = 0; i < 3; i++) {
                eg_assert_close(da[i], db[i], 1e-12 * (double)n);
                eg_assert_close(dda[i], ddb[i], 1e-11 * (double)n);
            }
            eg_tensor *s[] = { eg_cast(x[0], EG_F32), eg_cast(x[1], EG_F32),
                               eg_cast(x[2], EG_F32) },
                      *single = f->fused(s, t), *ds[3];
            eg_assert_close(eg_cast(single, EG_F64), a, 2e-5);
            eg_grad(single, eg_cast(g, EG_F32), 3, s, ds);
            eg_assert_close(eg_cast(ds[0], EG_F64), da[0], 2e-4);
        }
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* One thread and three have the same bits. */
LOOP_TEST(fused_threads, sizeof pairs / sizeof *pairs)
{
    eg_ctx *cx = eg_open(.threads = 1);
    const pair_of *f = &pairs[_i];
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 3000, 70), eg_normal(cx, 0, 1, 70),
                       eg_normal(cx, 0, 1, 70) },
              *t = eg_full_n(cx, EG_I64, 3, 1, (int64_t[]){ 3000 });
    eg_tensor *one[4], *three[4];
    for (int k = 0; k < 2; k++) {
        eg_tensor **r = k ? three : one;
        eg_threads(cx, k ? 3 : 1);
        r[0] = f->fused(x, t);
        eg_grad(r[0], eg_ones_like(r[0]), 3, x, r + 1);
    }
    eg_assert_ok(cx);
    for (int k = 0; k < 4; k++)
        ck_assert_msg(same_bits(one[k], three[k]),
                      "%s: tensor %d changes with the number of threads", f->name, k);
    eg_close(cx);
}

/* The bits of a row do not depend on the other rows: rows that are summed two at a time, and rows
 * of a large tensor, which are computed a few at a time. */
LOOP_TEST(fused_rows_alone, sizeof pairs / sizeof *pairs)
{
    /* number of rows, their length, how many are computed at once instead */
    static const int64_t sizes[][3] = {
        { 7, 5, 1 }, { 5, 17, 1 }, { 4, 600, 3 }, { 6400, 512, 901 }
    };
    eg_ctx *cx = eg_open(.seed = 3);
    const pair_of *f = &pairs[_i];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t n = sizes[k][0], by = sizes[k][2];
        eg_mark m = eg_push(cx);
        eg_tensor *x[] = { eg_normal(cx, 1, 1, n, sizes[k][1]), eg_normal(cx, 0, 1, sizes[k][1]),
                           eg_normal(cx, 0, 1, sizes[k][1]) },
                  *t = eg_full_n(cx, EG_I64, 3, 1, &n), *y = f->fused(x, t),
                  *g = eg_normal_n(cx, EG_F32, 0, 1, eg_rank(y), eg_dims(y)), *dx, *d;
        ck_assert(k < 3 || n * sizes[k][1] * 4 > EG_STREAM_BYTES);
        eg_grad(y, g, 1, x, &dx);
        for (int64_t from = 0, to; from < n; from = to) {
            to = eg__min64(from + by, n);
            eg_tensor *some[] = { eg_slice_axis(x[0], 0, from, to, 1), x[1], x[2] },
                      *z = f->fused(some, eg_slice_axis(t, 0, from, to, 1));
            eg_grad(z, eg_slice_axis(g, 0, from, to, 1), 1, some, &d);
            eg_assert_ok(cx);
            ck_assert_msg(same_bits(eg_slice_axis(y, 0, from, to, 1), z), "%s", f->name);
            ck_assert_msg(same_bits(eg_slice_axis(dx, 0, from, to, 1), d), "%s", f->name);
        }
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* eg_memo in lib/ops/ops.h: what a rule keeps for the next operands is not used for another
 * gradient. */
static eg_tensor *attends(eg_tensor *const *x)
{
    return eg_attention("id,jd,je->ie", x[0], x[1], x[2], .form = EG_FUSED);
}
static eg_tensor *normalises(eg_tensor *const *x)
{
    return eg_layernorm("b [v]", x[0], .gain = x[1], .bias = x[2]);
}
TEST(a_gradient_asked_for_again)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (int norm = 0; norm < 2; norm++) {
        eg_tensor *(*f)(eg_tensor *const *) = norm ? normalises : attends, *first[3], *again[3],
                                         *second[3], *fresh[3];
        eg_tensor *x[] = { wave(cx, 0, 130, 6), norm ? wave(cx, 1, 6) : wave(cx, 1, 7, 6),
                           norm ? wave(cx, 2, 6) : wave(cx, 2, 7, 6) };
        eg_tensor *y = f(x), *z = f(x), *g = wave(cx, 3, 130, 6), *twice = eg_scale(g, 2);
        eg_nograd(cx, true);
        eg_grad(y, g, 3, x, first);
        eg_nograd(cx, false);
        eg_grad(y, g, 3, x, again); /* now with a history of its own */
        eg_grad(eg_sum(NULL, eg_square(again[0])), NULL, 3, x, second);
        eg_grad(z, g, 3, x, again);
        eg_grad(eg_sum(NULL, eg_square(again[0])), NULL, 3, x, fresh);
        for (int k = 0; k < 3; k++)
            ck_assert(same_bits(second[k], fresh[k]) && same_bits(first[k], again[k]));
        /* 130 rows: two blocks and a part */
        if (norm) eg_grad(layernorm_plain(x, NULL), g, 3, x, fresh);
        for (int k = 0; norm && k < 3; k++) eg_assert_close(first[k], fresh[k], 1e-12);
        eg_assign(again[0], eg_zeros_like(again[0])); /* the tensor now belongs to the user */
        eg_grad(z, g, 3, x, again);
        ck_assert(same_bits(first[0], again[0]));
        eg_assign(g, twice);
        eg_grad(z, g, 3, x, again);
        for (int k = 0; k < 3; k++) eg_assert_close(again[k], eg_scale(first[k], 2), 1e-14);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* A recorded norm of long contiguous rows keeps the mean and r of each row for its gradient; that
 * of rows in another order computes them again. Both have the same bits, a captured step reads the
 * moments of its run, and the second gradient is that of the definition. */
typedef struct norm_case {
    eg_ctx *cx;
    eg_tensor *x[3], *g;
    int kind; /* layer norm with gain and bias, with a bias, RMS norm */
    bool turned;
} norm_case;
static eg_tensor *norm_of(const norm_case *c, eg_tensor *x)
{
    if (c->kind == 2) return eg_rmsnorm("b [v]", x, .gain = c->x[1]);
    return eg_layernorm("b [v]", x, .gain = c->kind ? NULL : c->x[1], .bias = c->x[2]);
}
static int norm_step(void *user, eg_tensor **out)
{
    const norm_case *c = user;
    eg_tensor *x = c->x[0], *in[] = { x, c->x[1], c->x[2] };
    eg_tensor *y = norm_of(c, c->turned ? eg_transpose(eg_copy(eg_transpose(x, 0, 1)), 0, 1) : x);
    out[0] = y;
    return eg_grad(y, c->g, 3, in, out + 1);
}
LOOP_TEST(norms_keep_the_moments_of_long_rows, 18)
{
    const int n = (int[]){ 32, 64, 200 }[_i % 3];
    const eg_dtype type = _i / 9 ? EG_F64 : EG_F32;
    eg_ctx *cx = eg_open(.dtype = type, .threads = 2);
    norm_case c = { .cx = cx,
                    .x = { wave(cx, 0, 150, n), wave(cx, 1, n), wave(cx, 2, n) },
                    .g = wave(cx, 3, 150, n),
                    .kind = _i / 3 % 3 };
    eg_captured *kept = eg_capture(cx, norm_step, &c, 4);
    eg_assert_ok(cx);
    for (int turn = 0; turn < 2; turn++) {
        eg_tensor *out[4], *turned[4], *square[1];
        if (turn) eg_assign(c.x[0], eg_shift(eg_scale(c.x[0], 3), 1));
        if (turn) ck_assert(!eg_captured_run(kept));
        c.turned = false;
        ck_assert(!norm_step(&c, out));
        c.turned = true;
        ck_assert(!norm_step(&c, turned));
        for (int k = 0; k < 4; k++) {
            ck_assert_msg(same_bits(out[k], turned[k]), "result %d", k);
            ck_assert_msg(same_bits(out[k], eg_captured_output(kept, k)), "captured: %d", k);
        }
        ck_assert(!eg_grad(eg_sum(NULL, eg_square(out[1])), NULL, 1, c.x, square));
        eg_tensor *of_copy[1];
        ck_assert(!eg_grad(eg_sum(NULL, eg_square(turned[1])), NULL, 1, c.x, of_copy));
        eg_assert_close(square[0], of_copy[0], type == EG_F64 ? 1e-12 : 1e-4);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Random rows with NaN and infinities, of every length that the loops treat differently, contiguous
 * and not: if a NaN is allowed the row is NaN (masked elements 0, −inf in the logarithm), and what
 * a mask forbids changes no bit of anything. */
static double odd_number(eg_ctx *cx)
{
    const double draw = eg_item(eg_uniform(cx, 0, 1, 1));
    return draw < .2 ? NAN : draw < .4 ? INFINITY : draw < .6 ? -INFINITY : draw;
}
LOOP_TEST(softmax_with_nan_is_nan_unless_it_is_masked, 24)
{
    static const int sizes[] = { 1, 2, 3, 15, 16, 17, 31, 40, 511, 512, 513, 1100 };
    const eg_dtype type = _i % 2 ? EG_F64 : EG_F32;
    const int n = sizes[_i / 2];
    for (int turned = 0; turned < 2; turned++) /* no mask, .keep, .keep and .where, .bias of −inf */
        for (int masked = 0; masked < 4; masked++) {
            eg_ctx *cx = eg_open(.dtype = type, .seed = 5 + (uint64_t)n);
            enum { ROWS = 12 };
            eg_tensor *x = eg_normal(cx, 0, 1, ROWS, n),
                      *keep = eg_gt(eg_uniform(cx, 0, 1, ROWS, n), eg_scalar(cx, .3)), *zero;
            for (int r = 0; r < ROWS; r++)
                for (int t = 0; t < 3 && r; t++)
                    put(x, odd_number(cx), r, (int)(eg_item(eg_uniform(cx, 0, 1, 1)) * n));
            eg_tensor *odd = eg_ne(eg_sub(x, x), eg_scalar(cx, 0)),
                      *bias = eg_where(keep, eg_scalar(cx, 0), eg_scalar(cx, -INFINITY));
            eg_tensor *allow =
                masked == 2 ? eg_and(keep, eg_ne(eg_cast(eg_arange(cx, EG_F64, 0, n, 1), type),
                                                 eg_scalar(cx, 1)))
                            : keep;
            zero = masked ? eg_where(eg_and(odd, eg_not(allow)), eg_scalar(cx, 0), x) : x;
            eg_tensor *out[2][4], *dx[2][2], *g = eg_normal(cx, 0, 1, ROWS, n);
            for (int k = 0; k < 2; k++) {
                eg_tensor *v = k ? zero : x;
                if (turned) v = eg_transpose(eg_copy(eg_transpose(v, 0, 1)), 0, 1);
                const eg_masked keeps = { masked == 1 || masked == 2 ? "ij" : NULL,
                                          masked == 1 || masked == 2 ? keep : NULL };
                const eg_masked adds = { masked == 3 ? "ij" : NULL, masked == 3 ? bias : NULL };
                out[k][0] = eg_softmax("i [j]", v, .keep = keeps, .bias = adds,
                                       .where = masked == 2 ? "j != 1" : NULL);
                out[k][1] = eg_log_softmax("i [j]", v, .keep = keeps, .bias = adds,
                                           .where = masked == 2 ? "j != 1" : NULL);
                out[k][2] = eg_logsumexp("i [j]", v);
                out[k][3] = eg_max("i [j]", v);
                for (int l = 0; l < 2; l++) eg_grad(out[k][l], g, 1, &v, &dx[k][l]);
            }
            eg_assert_ok(cx);
            for (int r = 0; r < ROWS; r++) {
                bool nan = false, any = false;
                for (int k = 0; k < n; k++) {
                    const bool may = !masked || eg_get(allow, r, k) != 0;
                    nan |= may && isnan(eg_get(x, r, k));
                    any |= isnan(eg_get(x, r, k));
                }
                for (int k = 0; k < n; k++) {
                    const bool may = !masked || eg_get(allow, r, k) != 0;
                    for (int l = 0; l < 2; l++) {
                        const double y = eg_get(out[0][l], r, k), z = eg_get(out[1][l], r, k),
                                     d = eg_get(dx[0][l], r, k);
                        if (nan && may)
                            ck_assert_msg(isnan(y) && isnan(d),
                                          "n %d, masked %d, output %d, row %d, %d: %g, gradient %g",
                                          n, masked, l, r, k, y, d);
                        else if (nan)
                            ck_assert(y == (l ? -INFINITY : 0) && (d == 0 || l));
                        else
                            ck_assert_msg(y == z && !isnan(y),
                                          "n %d, masked %d, output %d, row %d, %d: %g, %g", n,
                                          masked, l, r, k, y, z);
                        if (!nan) ck_assert(same_number(d, eg_get(dx[1][l], r, k)));
                    }
                }
                for (int l = 2; l < 4; l++) ck_assert(isnan(eg_get(out[0][l], r)) == any);
            }
            eg_close(cx);
        }
}

/* A row has the bits that it has alone, whatever the rows next to it contain, also infinities and
 * NaN, for lengths below, at and above the sizes at which the loops over rows change. */
LOOP_TEST(rows_have_the_bits_that_they_have_alone, 2)
{
    enum { ROWS = 37 };
    static const int64_t lengths[] = { 1,  7,  15,  16,  17,  26,  64,  95,
                                       96, 97, 112, 113, 200, 512, 513, 1030 };
    eg_ctx *cx = eg_open(.dtype = _i ? EG_F64 : EG_F32, .seed = 3);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const eg_mark m = eg_push(cx);
        const int64_t n = lengths[l];
        eg_tensor *x = eg_normal(cx, 0, 3, ROWS, n);
        const double odd[] = { INFINITY, INFINITY, -INFINITY, NAN };
        for (int r = 0; r < 4; r++) {
            eg_fill(eg_slice_axis(eg_select_axis(x, 0, 2 * r), 0, 0, (n + 1) / 2, 1), odd[r]);
            if (r == 2) eg_fill(eg_select_axis(x, 0, 2 * r), odd[r]);
        }
        for (int f = 0; f < 3; f++) {
            eg_tensor *y = f == 0   ? eg_softmax("i [j]", x)
                           : f == 1 ? eg_log_softmax("i [j]", x)
                                    : eg_logsumexp("i [j]", x);
            for (int64_t r = 0; r < ROWS; r++) {
                eg_tensor *one = eg_copy(eg_slice_axis(x, 0, r, r + 1, 1)),
                          *z = f == 0   ? eg_softmax("i [j]", one)
                               : f == 1 ? eg_log_softmax("i [j]", one)
                                        : eg_logsumexp("i [j]", one),
                          *own = eg_contiguous(eg_slice_axis(y, 0, r, r + 1, 1));
                ck_assert_msg(same_bits(own, z), "%s of row %lld of %lld",
                              f == 0   ? "softmax"
                              : f == 1 ? "log-softmax"
                                       : "log-sum-exp",
                              (long long)r, (long long)n);
            }
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* Rows along an axis that is not the last lie one element after the other, and are gathered many at
 * a time. They have the bits of contiguous rows, forward and in the gradient, for any layout. */
static eg_tensor *row_function(int f, const char *spec, eg_tensor *x, eg_tensor *gain)
{
    switch (f) {
    case 0: return eg_softmax(spec, x);
    case 1: return eg_log_softmax(spec, x);
    case 2: return eg_layernorm(spec, x, gain, gain);
    case 3: return eg_rmsnorm(spec, x, gain);
    case 4: return eg_logsumexp(spec, x);
    case 5: return eg_max(spec, x);
    case 6: return eg_min(spec, x);
    case 7: return eg_pnorm(spec, x, 1);
    case 8: return eg_pnorm(spec, x, 2);
    case 9: return eg_pnorm(spec, x, 3);
    default: return eg_argmax(spec, x);
    }
}
enum { ROW_FUNCTIONS = 11, GRADIENTS_OF = 10, ROW_LAYOUTS = 6 };
/* Returns x[b, n, m] with these elements in another layout. */
static eg_tensor *laid_out(int layout, eg_tensor *x)
{
    const int64_t n = eg_dim(x, 1), m = eg_dim(x, 2);
    if (layout == 1) /* rows of a wider matrix */
        return eg_slice_axis(eg_pad_axis(x, 2, 3, 2, 7), 2, 3, 3 + m, 1);
    if (layout == 2) return eg_flip_axis(eg_copy(eg_flip_axis(x, 1)), 1);
    if (layout == 3) return eg_flip_axis(eg_copy(eg_flip_axis(x, 2)), 2);
    if (layout == 4) /* every second element along the rows */
        return eg_slice_axis(eg_reshape(eg_stack_axis(2, x, x), 2, 2 * n, m), 1, 1, EG_END, 2);
    if (layout == 5) /* every third row */
        return eg_slice_axis(eg_reshape(eg_stack_axis(3, x, x, x), 2, n, 3 * m), 2, 1, EG_END, 3);
    return x;
}
LOOP_TEST(neighbouring_rows_have_the_bits_of_contiguous_ones, 2 * ROW_LAYOUTS)
{
    /* of 90000 elements 16 rows of f32 and 8 of f64 are gathered */
    static const int64_t lengths[] = { 1, 9, 70, 513, 1030, 90000 }, many[] = { 17, 1, 16, 33, 70 };
    eg_ctx *cx = eg_open(.dtype = _i % 2 ? EG_F64 : EG_F32, .seed = 5, .threads = _i < 4 ? 1 : 3);
    for (int c = 0; c < (_i < 2 ? 26 : 25); c++) {
        const eg_mark mark = eg_push(cx);
        const int64_t n = lengths[c / 5], m = many[c % 5];
        eg_tensor *plain = eg_normal(cx, 0, 3, 2, n, m), *x = laid_out(_i / 2, plain),
                  *rows = eg_copy(eg_transpose(plain, 1, 2)), *gain = eg_normal(cx, 1, 1, n);
        for (int f = 0; f < ROW_FUNCTIONS; f++) {
            if (c == 25 && f != 0 && f != 2 && f != 8) continue; /* takes long */
            eg_tensor *y = row_function(f, "b [n] m", x, gain),
                      *z = row_function(f, "b m [n]", rows, gain), *g, *dx, *dz;
            ck_assert_msg(same_bits(f < 4 ? eg_copy(eg_transpose(y, 1, 2)) : y, z),
                          "function %d, layout %d: %lld rows of %lld", f, _i / 2, (long long)m,
                          (long long)n);
            if (f == GRADIENTS_OF) continue;
            g = eg_normal_n(cx, EG_DEFAULT, 0, 1, eg_rank(z), eg_dims(z));
            eg_grad(z, g, 1, &rows, &dz);
            eg_grad(y, f < 4 ? eg_copy(eg_transpose(g, 1, 2)) : g, 1, &x, &dx);
            eg_assert_ok(cx);
            ck_assert_msg(same_bits(eg_copy(eg_transpose(dx, 1, 2)), eg_copy(dz)),
                          "gradient of function %d, layout %d: %lld rows of %lld", f, _i / 2,
                          (long long)m, (long long)n);
        }
        eg_pop(cx, mark);
    }
    eg_close(cx);
}

/* Interleaved rows along two axes, as in the scores "i j b h", have the bits of contiguous ones,
 * for few letters and many, and any number of threads. */
LOOP_TEST(rows_beside_each_other_have_the_bits_of_contiguous_ones, 4)
{
    static const int64_t sizes[][4] = { { 2, 9, 3, 6 },   { 5, 60, 10, 8 }, { 3, 17, 1, 16 },
                                        { 2, 256, 4, 5 }, { 2, 257, 4, 5 }, { 4, 12, 2, 2 } };
    eg_ctx *cx = eg_open(.dtype = _i % 2 ? EG_F64 : EG_F32, .seed = 8, .threads = _i < 2 ? 1 : 3);
    for (int c = 0; c < 6; c++) {
        const int64_t *n = sizes[c];
        eg_tensor *x = eg_normal(cx, 0, 3, n[0], n[1], n[2], n[3]),
                  *g = eg_normal(cx, 0, 1, n[0], n[1], n[2], n[3]);
        x = eg_where(eg_gt(x, eg_scalar(cx, 8)), eg_scalar(cx, INFINITY), x); /* some limits */
        eg_tensor *rows = eg_copy(eg_rearrange("i j b h -> i b h j", x)),
                  *g_rows = eg_copy(eg_rearrange("i j b h -> i b h j", g));
        for (int f = 0; f < 2; f++) {
            eg_tensor *y = row_function(f, "i [j] b h", x, NULL),
                      *z = row_function(f, "i b h [j]", rows, NULL), *dx, *dz;
            ck_assert(same_bits(eg_copy(eg_rearrange("i j b h -> i b h j", y)), z));
            eg_grad(y, g, 1, &x, &dx);
            eg_grad(z, g_rows, 1, &rows, &dz);
            eg_assert_ok(cx);
            ck_assert(same_bits(eg_copy(eg_rearrange("i j b h -> i b h j", dx)), eg_copy(dz)));
        }
    }
    eg_close(cx);
}
