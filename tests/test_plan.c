/* test_plan.c: the options of einsum (alpha, out, beta, path, limit), the cache of plans, and plans
 * without a context. */
#include <config.h> /* EG_DEBUG_ALLOC */
#include <eingrad.h>
#include <eingrad/check.h>
#include <pthread.h>
#include <stdlib.h>
#include "tests.h"

static eg_ctx *cx;
static void setup(void) { cx = eg_open(.dtype = EG_F64, .seed = 3); }
static void teardown(void) { eg_close(cx); }
#define WITH(spec_, operands_, ...)                                                            \
    eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),                          \
                                      .spec = (spec_),                                         \
                                      .count = (int)(sizeof(operands_) / sizeof *(operands_)), \
                                      .operands = (operands_),                                 \
                                      __VA_ARGS__ })

/* -- out -------------------------------------------------------------------------------------- */
GROUP("plan", .setup = setup, .teardown = teardown)

TEST(out_is_any_view)
{
    eg_tensor *a = eg_normal(cx, 0, 1, 5, 6), *b = eg_normal(cx, 0, 1, 6, 4),
              *want = eg_einsum("ij,jk->ik", a, b);
    eg_nograd(cx, true);
    eg_tensor *room = eg_full(cx, 7, 8, 9);
    /* 4 × 5, reversed, with gaps */
    eg_tensor *out = eg_flip_axis(
        eg_slice_axis(eg_slice_axis(eg_transpose(room, 0, 1), 0, 1, 9, 2), 1, 0, 5, 1), 0);
    ck_assert_ptr_eq(eg_einsum_to(out, "ij,jk->ki", a, b), out);
    eg_assert_close(eg_contiguous(out), eg_contiguous(eg_transpose(want, 0, 1)), 1e-14);
    double left = 0;
    for (int64_t k = 0; k < 72; k++) left += eg_f64(room)[k] == 7;
    ck_assert(left == 72 - 20);
    eg_tensor *grouped = eg_zeros(cx, 5, 2, 2), *flat = eg_view(grouped, 20);
    eg_einsum_to(flat, "ij,jk->(i k)", a, b);
    eg_assert_close(eg_view(flat, 5, 4), eg_contiguous(want), 1e-14);
    eg_tensor *diagonal = eg_full(cx, 3, 5, 5);
    eg_einsum_to(diagonal, "ij->ii", a);
    ck_assert(eg_get(diagonal, 0, 1) == 0 &&
              fabs(eg_get(diagonal, 2, 2) - eg_item(eg_select_axis(eg_sum("i [j]", a), 0, 2))) <
                  1e-14);
    eg_tensor *counts = eg_from(cx, ((int64_t[]){ 0, 0 }), 2),
              *ints = eg_from(cx, ((int[]){ 1, 2, 3, 4 }), 2, 2);
    eg_einsum_to(counts, "ij->i", ints);
    ck_assert(eg_i64(counts)[1] == 7);
    eg_assert_ok(cx);
}

TEST(beta_adds)
{
    eg_nograd(cx, true);
    eg_tensor *a = eg_normal(cx, 0, 1, 3, 4), *b = eg_normal(cx, 0, 1, 4, 3),
              *c = eg_full(cx, 2, 3, 3), *x[] = { a, b };
    WITH("ij,jk->ik", x, .out = c, .beta = 1);
    eg_assert_close(c, eg_shift(eg_einsum("ij,jk->ik", a, b), 2), 1e-14);
    eg_tensor *d = eg_full(cx, 1, 3, 3), *v[] = { eg_from(cx, ((double[]){ 1, 2, 3 }), 3) };
    WITH("i->ii", v, .out = d, .beta = 1);
    ck_assert(eg_get(d, 1, 1) == 3 && eg_get(d, 0, 1) == 1);
    eg_tensor *overlapping[] = { d };
    WITH("ij->ji", overlapping, .out = d, .beta = 1);
    ck_assert(eg_get(d, 1, 1) == 6 && eg_get(d, 0, 1) == 2);
    ck_assert(!eg_ok(WITH("ij,jk->ik", x, .beta = 1)));
    eg_assert_error(cx, "einsum: .beta is the factor of .out or .add, and neither is given");
}

/* .add, as torch.baddbmm's input: value and gradients are those of the sum written out, in one node
 * or two, for every shape that broadcasts. */
static const struct {
    const char *spec;
    int operands;
    double alpha, beta;
    int rank;
    int64_t dim[3];
} adding[] = {
    { "bij,bjk->bik", 2, 0, 0, 3, { 2, 3, 5 } },   { "bij,bjk->bik", 2, 0, -1.5, 3, { 2, 3, 5 } },
    { "bij,bjk->bik", 2, 2, 0.5, 3, { 2, 3, 5 } }, { "bij,bjk->bik", 2, 0, 3, 1, { 5 } },
    { "bij,bjk->bik", 2, 0, 3, 2, { 3, 1 } },      { "bij,bjk->bik", 2, 0, 0, 0, { 0 } },
    { "bij,bjk->kbi", 2, 0, 2, 3, { 5, 2, 3 } },   { "bij,bjk->(b i) k", 2, 0, 2, 2, { 6, 5 } },
    { "bij,bjk,kl->bil", 3, 0, 2, 2, { 3, 2 } },   { "bij->bji", 1, 3, 2, 3, { 2, 4, 3 } },
    { "bij,bjk->bik", 2, 0, EG_OFF, 1, { 5 } },
};
static eg_tensor *with_add(void *user, eg_tensor *const *x)
{
    const int k = *(const int *)user, n = adding[k].operands;
    return eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                             .spec = adding[k].spec,
                                             .count = n,
                                             .operands = x,
                                             .alpha = adding[k].alpha,
                                             .beta = adding[k].beta,
                                             .add = x[n] });
}
LOOP_TEST(add_is_the_sum_written_out, sizeof adding / sizeof *adding)
{
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 2, 3, 4), eg_normal(cx, 0, 1, 2, 4, 5),
                       eg_normal(cx, 0, 1, 5, 2), NULL };
    const int n = adding[_i].operands;
    x[n] = eg_normal_n(cx, EG_F64, 0, 1, adding[_i].rank, adding[_i].dim);
    eg_tensor *y = with_add(&_i, x),
              *want = eg_scale(eg_einsum_n(adding[_i].spec, n, x), eg_option(adding[_i].alpha, 1));
    want = eg_add(want, eg_scale(x[n], eg_option(adding[_i].beta, 1)));
    eg_assert_close(eg_contiguous(y), eg_contiguous(want), 1e-13);
    if (adding[_i].beta != EG_OFF) eg_assert_gradcheck(with_add, &_i, n + 1, x, .order = 2);
    eg_tensor *again = with_add(&_i, x);
    eg_nograd(cx, true);
    eg_assert_close(eg_contiguous(again), eg_contiguous(with_add(&_i, x)), 0);
    eg_assert_ok(cx);
}
TEST(add_refused)
{
    eg_tensor *x[] = { eg_ones(cx, 2, 3), eg_ones(cx, 3, 4) },
              *i[] = { eg_cast(x[0], EG_I32), eg_cast(x[1], EG_I32) };
    ck_assert(!eg_ok(WITH("ij,jk->ik", x, .add = eg_ones(cx, 3, 4))));
    eg_assert_error(cx, "einsum: .add is (3, 4) and does not broadcast to the result (2, 4)");
    ck_assert(!eg_ok(WITH("ij,jk->ik", x, .add = eg_ones(cx, 1, 2, 4))));
    eg_assert_error(cx, "einsum: .add is (1, 2, 4) and does not broadcast to the result (2, 4)");
    ck_assert(!eg_ok(WITH("ij,jk->ik", x, .add = eg_cast(eg_ones(cx, 4), EG_F32))));
    eg_assert_error(cx, "einsum: .add is f32, the result f64");
    ck_assert(!eg_ok(WITH("ij,jk->ik", i, .beta = 0.5, .add = eg_cast(eg_ones(cx, 4), EG_I64))));
    eg_assert_error(cx, "einsum: .beta is 0.5, and the result i64");
    ck_assert(eg_item(eg_sum(NULL, WITH("ij,jk->ik", i, .beta = 2,
                                        .add = eg_cast(eg_ones(cx, 4), EG_I64)))) == 40);
    eg_nograd(cx, true);
    ck_assert(!eg_ok(WITH("ij,jk->ik", x, .out = eg_ones(cx, 2, 4), .add = eg_ones(cx, 4))));
    eg_assert_error(cx, "einsum: .out and .add are given, and .beta has one factor");
}

TEST(operands_in_the_memory_of_out)
{
    eg_tensor *a = eg_normal(cx, 0, 1, 6, 6), *b = eg_normal(cx, 0, 1, 6, 6),
              *want = eg_copy(eg_einsum("ij,jk->ik", a, b));
    eg_nograd(cx, true);
    eg_tensor *a2 = eg_copy(a);
    eg_einsum_to(a2, "ij,jk->ik", a2, b);
    eg_assert_close(a2, want, 0);
    eg_tensor *t = eg_copy(a), *turned = eg_copy(eg_transpose(a, 0, 1));
    eg_einsum_to(t, "ij->ji", t);
    eg_assert_close(t, turned, 0);
    eg_tensor *whole = eg_normal(cx, 0, 1, 6, 12), *left = eg_slice_axis(whole, 1, 0, 6, 1),
              *right = eg_slice_axis(whole, 1, 6, 12, 1);
    eg_tensor *square = eg_copy(eg_einsum("ij,jk->ik", left, left));
    eg_einsum_to(right, "ij,jk->ik", left, left);
    eg_assert_close(eg_contiguous(right), square, 1e-14);
    eg_assert_ok(cx);
}

TEST(out_refused)
{
    eg_tensor *a = eg_ones(cx, 2, 3), *c = eg_zeros(cx, 2, 2), *narrow = eg_zeros(cx, 2);
    ck_assert(!eg_ok(eg_einsum_to(c, "ij,kj->ik", a, a)));
    eg_assert_error(cx, "einsum: a result in .out has no gradients");
    eg_nograd(cx, true);
    eg_einsum_to(narrow, "ij,kj->ik", a, a);
    eg_assert_error(cx, "einsum: .out is (2,), the result (2, 2)");
    eg_einsum_to(eg_cast(c, EG_F32), "ij,kj->ik", a, a);
    eg_assert_error(cx, "einsum: .out is f32, the result f64");
    eg_einsum_to(eg_expand(narrow, 2, 2), "ij,kj->ik", a, a);
    eg_assert_error(cx, "einsum: axis 0 of the target");
    eg_einsum_to(eg_zeros(cx, 3, 2), "ij,kj->ik", a, a);
    eg_assert_error(cx, "(3, 2)");
    eg_ctx *other = eg_open();
    eg_einsum_to(eg_zeros(other, 2, 2), "ij,kj->ik", a, a);
    eg_assert_error(cx, "another context");
    eg_close(other);
}

/* A write to a tensor that a recorded operation used is detected by its gradient. */
TEST(out_bumps_the_version)
{
    eg_tensor *a = eg_ones(cx, 2, 2), *b = eg_ones(cx, 2, 2), *y = eg_einsum("ij,jk->", a, b), *db;
    eg_nograd(cx, true);
    eg_einsum_to(a, "ij->ij", b);
    eg_nograd(cx, false);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &b, &db), -1);
    eg_assert_error(cx, "changed in place");
}

/* One or two integer operands are read without a copy, whatever their type, and out may be one of
 * them. */
TEST(integers_are_not_copied)
{
    enum { MANY = 1 << 17 };
    static const eg_dtype types[] = { EG_BOOL, EG_I32, EG_I64 };
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        eg_tensor *x = eg_full_n(cx, types[k], 1, 2, (int64_t[]){ MANY, 2 }),
                  *t = eg_transpose(x, 0, 1);
        eg_tensor *warm = eg_einsum("ij,jk->ik", t, x);
        const size_t before = eg_stats(cx).used;
        ck_assert(eg_get(eg_einsum("ij,jk->ik", t, x), 1, 0) == MANY &&
                  eg_item(eg_einsum("ij->", x)) == 2 * MANY);
        ck_assert_uint_lt(eg_stats(cx).used - before, MANY);
        eg_assert_close(
            eg_einsum("ij,jk,kl->il", t, x, eg_full_n(cx, types[k], 1, 2, (int64_t[]){ 2, 2 })),
            eg_add(warm, warm), 0);
        ck_assert(eg_type(eg_einsum("ij->ji", x)) == EG_I64 && eg_type(warm) == EG_I64);
    }
    eg_tensor *a = eg_from(cx, ((int64_t[]){ 1, 2, 3, 4 }), 2, 2);
    eg_nograd(cx, true);
    eg_einsum_to(a, "ij,jk->ik", a, a);
    eg_assert_close(a, eg_from(cx, ((int64_t[]){ 7, 10, 15, 22 }), 2, 2), 0);
    eg_assert_ok(cx);
}

/* -- path, limit ------------------------------------------------------------------------------ */
TEST(every_path_gives_the_same_numbers)
{
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 2, 3), eg_normal(cx, 0, 1, 3, 4),
                       eg_normal(cx, 0, 1, 4, 5), eg_normal(cx, 0, 1, 5, 2) };
    eg_tensor *want = eg_einsum_n("ab,bc,cd,de->ae", 4, x);
    int tried = 0;
    for (int p = 0; p < 12 * 6 * 2; p++) {
        const int(
            path[3])[2] = { { p / 12 % 4, p / 48 }, { p % 12 / 4, p % 3 }, { p & 1, !(p & 1) } };
        if (path[0][0] == path[0][1] || path[1][0] == path[1][1]) continue;
        eg_assert_close(WITH("ab,bc,cd,de->ae", x, .path = path, .steps = 3), want, 1e-13);
        tried++;
    }
    ck_assert_int_gt(tried, 30);
    const int two[1][2] = { { 1, 0 } };
    eg_tensor *pair[] = { x[0], x[1] };
    eg_assert_close(WITH("ab,bc->ac", pair, .path = two, .steps = 1),
                    eg_einsum("ab,bc->ac", x[0], x[1]), 0);
    eg_assert_ok(cx);
}

TEST(paths_refused)
{
    eg_tensor *a = eg_ones(cx, 2, 2), *x[] = { a, a, a };
    const int far[2][2] = { { 0, 1 }, { 0, 2 } }, self[2][2] = { { 1, 1 }, { 0, 1 } },
              below[2][2] = { { -1, 1 }, { 0, 1 } };
    WITH("ab,bc,cd->ad", x, .path = far, .steps = 1);
    eg_assert_error(cx, "einsum: .path has 1 step; 3 operands take 2");
    WITH("ab,bc,cd->ad", x, .path = far, .steps = 2);
    eg_assert_error(cx, "einsum: step 2 of .path is (0, 2), but 2 are left then: 0 to 1");
    WITH("ab,bc,cd->ad", x, .path = self, .steps = 2);
    eg_assert_error(cx, "einsum: step 1 of .path is (1, 1): an operand with itself");
    WITH("ab,bc,cd->ad", x, .path = below, .steps = 2);
    eg_assert_error(cx, "(-1, 1)");
    WITH("ab,bc,cd->ad", x, .steps = 2);
    eg_assert_error(cx, "einsum: .path is NULL");
    WITH("ab,bc,cd->ad", x, .path = far, .steps = -1);
    eg_assert_error(cx, "einsum: .path has -1 steps");
    eg_assert_close(WITH("ab,bc,cd->ad", x, .limit = 1 << 20), eg_full(cx, 4, 2, 2), 0);
    /* what is kept for the limit alone is not the result */
    WITH("ab,bc,cd->ad", x, .path = far, .limit = 1 << 20);
    eg_assert_error(cx, "einsum: .path has 0 steps");
}

TEST(limit_is_kept_or_refused)
{
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 40, 2), eg_normal(cx, 0, 1, 2, 40),
                       eg_normal(cx, 0, 1, 40, 40), eg_normal(cx, 0, 1, 40) };
    eg_tensor *want = eg_einsum_n("ab,bc,cd,d->a", 4, x);
    eg_assert_close(WITH("ab,bc,cd,d->a", x, .limit = 40 * 8), want, 1e-12);
    ck_assert(!eg_ok(WITH("ab,bc,cd,d->a", x, .limit = 40 * 8 - 1)));
    eg_assert_error(cx, "einsum: .limit is 319 bytes, and every order of the 4 operands that was "
                        "found has an intermediate of at least 320 bytes");
    WITH("ab,bc,cd,d->a", x, .limit = EG_OFF);
    eg_assert_error(cx, "einsum: .limit is 0 bytes");
    WITH("ab,bc,cd,d->a", x, .limit = -5);
    eg_assert_error(cx, "einsum: .limit is -5 bytes");
    const int outward[3][2] = { { 0, 1 }, { 0, 2 }, { 0, 1 } };
    WITH("ab,bc,cd,d->a", x, .path = outward, .steps = 3, .limit = 4000);
    eg_assert_error(cx, "einsum: .limit is 4000 bytes, and step 1 makes an intermediate of 12800");
    /* the gradient respects it, too, or refuses */
    eg_tensor *y = WITH("ab,bc,cd,d->a", x, .limit = 40 * 40 * 8), *dx[4], *want_dx[4],
              *g = eg_normal(cx, 0, 1, 40);
    ck_assert_int_eq(eg_grad(y, g, 4, x, dx), 0);
    ck_assert_int_eq(eg_grad(want, g, 4, x, want_dx), 0);
    for (int k = 0; k < 4; k++) eg_assert_close(dx[k], want_dx[k], 1e-12);
    eg_assert_ok(cx);
}

/* -- the cache of plans ------------------------------------------------------------------------ */
TEST(repeated_einsums_call_no_allocator)
{
    eg_tensor *a = eg_normal(cx, 0, 1, 8, 8), *first = eg_copy(eg_einsum("ij,jk->ik", a, a));
    uint64_t calls = 0;
    for (int k = 0; k < 50; k++) {
        const eg_mark m = eg_push(cx);
        /* other tensors, the same shapes */
        eg_tensor *x[] = { eg_copy(a), eg_copy(a) }, *dx[2];
        eg_assert_close(eg_einsum_n("ij,jk->ik", 2, x), first, 0);
        ck_assert_int_eq(eg_grad(eg_einsum("i (h j), (h=2 j) k -> h i k", x[0], x[1]),
                                 eg_ones(cx, 2, 8, 8), 2, x, dx),
                         0);
        eg_pop(cx, m);
        if (k == 5) calls = eg_stats(cx).mallocs;
    }
#if !EG_DEBUG_ALLOC /* with a malloc for each tensor every call takes memory */
    ck_assert_uint_eq(eg_stats(cx).mallocs, calls);
#else
    (void)calls;
#endif
}

/* One buffer holds one string after another, for operands of several types, sizes and strides, in
 * mixed order: calls are distinguished. With .limit calls are not cached as a whole; bits and
 * gradients are the same. */
TEST(different_calls_have_different_plans)
{
    static const char *const spec[] = {
        "abcd,efgh,efgh->abcd", "abcd,efgh,fegh->abcd",         "abcd,efgh,efgh->abdc",
        "abcd,bcde,cdef->abef", "abcd,abce,abcf->def",          "abcd,bdca,dcba->abcd",
        "abca,bccb,adda->dcba", "a b c d, a b c d, a b c d ->",
    };
    enum { SPECS = sizeof spec / sizeof *spec, FORMS = 6, GOES = 3 };
    eg_tensor *x[FORMS][3];
    for (int k = 0; k < 3; k++) {
        eg_tensor *wide = eg_normal(cx, 0, 1, 3, 3, 3, 6);
        x[0][k] = eg_slice_axis(wide, 3, 0, 3, 1);
        x[1][k] = eg_slice_axis(eg_cast(wide, EG_F32), 3, 0, 3, 1);
        x[2][k] = eg_permute_n(x[0][k], 4, (int[]){ 3, 1, 2, 0 });
        x[3][k] = eg_slice_axis(wide, 3, 0, 6, 2);
        x[4][k] = eg_flip_axis(x[0][k], k);
        x[5][k] = x[0][k];
        for (int axis = 0; axis < 4; axis++) x[5][k] = eg_slice_axis(x[5][k], axis, 0, 2, 1);
    }
    char text[64];
    for (int n = 0; n < GOES * SPECS * FORMS; n++) {
        const int form = n / SPECS % FORMS,
                  other = n / SPECS / FORMS == 2 ? (int[FORMS]){ 2, 1, 0, 0, 2, 5 }[form] : form;
        const eg_mark m = eg_push(cx);
        snprintf(text, sizeof text, "%s", spec[n % SPECS]);
        eg_tensor *in[] = { x[form][0], x[other][1], x[form][2] }, *dx[3], *want_dx[3];
        eg_tensor *y = eg_einsum_n(text, 3, in), *want = WITH(text, in, .limit = 1 << 20),
                  *g = eg_sin(want);
        eg_assert_close(y, want, 0);
        ck_assert_int_eq(eg_grad(y, g, 3, in, dx), 0);
        ck_assert_int_eq(eg_grad(want, g, 3, in, want_dx), 0);
        for (int k = 0; k < 3; k++) eg_assert_close(dx[k], want_dx[k], 0);
        eg_pop(cx, m);
    }
    eg_assert_ok(cx);
    snprintf(text, sizeof text, "%s", spec[4]);
    /* each was valid with others */
    ck_assert(!eg_ok(eg_einsum(text, x[0][0], x[1][1], x[0][2])));
    eg_assert_error(cx, "einsum: operand 1 is f64 but operand 2 is f32; eg_cast one of them");
    ck_assert(!eg_ok(eg_einsum(text, x[0][0], x[5][1], x[0][2])));
    eg_assert_error(cx, "einsum: index 'a' is 3 in operand 1 but 2 in operand 2");
    eg_tensor *thin = eg_slice_axis(x[0][1], 0, 0, 1, 1), *in[] = { x[0][0], thin, x[0][2] };
    eg_assert_close(WITH(text, in, .broadcast = true),
                    eg_einsum(text, x[0][0], eg_expand(thin, 3, 3, 3, 3), x[0][2]), 1e-12);
    ck_assert(!eg_ok(eg_einsum_n(text, 3, in)));
    eg_assert_error(cx, "einsum: index 'a' is 3 in operand 1 but 1 in operand 2");
}

/* An unlimited number of shapes: memory is bounded, and what was evicted is planned again. */
TEST(what_is_kept_is_bounded)
{
    size_t bytes = 0;
    for (int round = 0; round < 2; round++)
        for (int n = 1; n <= 1500; n++) {
            const eg_mark m = eg_push(cx);
            eg_tensor *v = eg_full_n(cx, EG_F64, 2, 1, (int64_t[]){ n }),
                      *w = eg_full_n(cx, EG_F64, 3, 2, (int64_t[]){ 2, n });
            eg_tensor *y = eg_einsum("n,(h=2) n,h->h", v, w, eg_ones(cx, 2));
            ck_assert_msg(eg_ok(y) && eg_get(y, 1) == 6.0 * n, "%d: %s", n, eg_error(cx));
            eg_pop(cx, m);
            if (round == 0 && n == 200) bytes = eg_stats(cx).bytes;
        }
    ck_assert_uint_le(eg_stats(cx).bytes, bytes + (1 << 20));
}

/* Operands of different ranks whose sizes, strides and labels form the same sequence of
 * integers. */
TEST(cache_entries_have_different_keys)
{
    eg_tensor *ab = eg_full(cx, 2, 5, 3), *one = eg_scalar(cx, 1),
              *step = eg_slice_axis(eg_ones(cx, 10), 0, 0, 10, 2);
    eg_tensor *none = eg_slice_axis(eg_select_axis(eg_ones(cx, 4, 5), 1, 0), 0, 0, 0, 1),
              *out = eg_zeros(cx, 3);
    eg_nograd(cx, true);
    eg_einsum_to(out, "ab,c,->b", ab, none, one);
    eg_assert_close(out, eg_full(cx, 0, 3), 0);
    eg_einsum_to(out, "ab,,a->b", ab, one, step);
    eg_assert_close(out, eg_full(cx, 10, 3), 0);
    eg_assert_ok(cx);
}

/* An allocator that refuses large blocks: nothing is cached, and all results are right. */
static void *no_large(void *user, void *p, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size > 400 << 10) return NULL;
    if (new_size) return realloc(p, new_size);
    free(p);
    return NULL;
}
TEST(without_memory_plans_are_not_cached)
{
    eg_ctx *poor = eg_open(.dtype = EG_F64, .realloc = no_large);
    eg_tensor *a = eg_normal(poor, 0, 1, 8, 8), *da;
    for (int k = 0; k < 20; k++) {
        const eg_mark m = eg_push(poor);
        eg_tensor *y = eg_einsum("ij,jk,kl->", a, a, a);
        ck_assert_int_eq(eg_grad(y, NULL, 1, &a, &da), 0);
        eg_assert_ok(poor);
        eg_pop(poor, m);
    }
    eg_close(poor);
}

/* -- plans ------------------------------------------------------------------------------------ */
typedef struct job {
    const eg_plan *plan;
    const void *x[2];
    double out[6 * 5];
    const double *want;
    int wrong;
} job;
static void *work(void *user)
{
    job *j = user;
    for (int k = 0; k < 20000; k++) {
        memset(j->out, 0, sizeof j->out);
        if (eg_plan_run(j->plan, j->x, j->out) || memcmp(j->out, j->want, sizeof j->out))
            j->wrong++;
    }
    return NULL;
}
TEST(one_plan_many_threads)
{
    eg_tensor *a = eg_normal(cx, 0, 1, 6, 7), *b = eg_normal(cx, 0, 1, 5, 7),
              *y = eg_contiguous(eg_einsum("ij,kj->ik", a, b));
    eg_plan *p = eg_plan_new(.spec = "ij,kj->ik", .count = 2,
                             .operands = ((eg_shape[]){ eg_shape_of(a), eg_shape_of(b) }));
    ck_assert_ptr_nonnull(p);
    static job jobs[4];
    pthread_t thread[4];
    for (int k = 0; k < 4; k++) {
        jobs[k] = (job){ .plan = p, .x = { eg_f64(a), eg_f64(b) }, .want = eg_f64(y) };
        ck_assert_int_eq(pthread_create(&thread[k], NULL, work, &jobs[k]), 0);
    }
    for (int k = 0; k < 4; k++) {
        pthread_join(thread[k], NULL);
        ck_assert_int_eq(jobs[k].wrong, 0);
    }
    eg_plan_free(p);
    eg_plan_free(NULL);
}

/* Large products, chains, sums need scratch; the bits are those of eg_einsum_to. */
TEST(plans_give_the_bits_of_einsum)
{
    static const struct {
        const char *spec;
        int count;
        int64_t dim[3][4];
        int rank[3];
    } cases[] = {
        { "ij,jk->ik", 2, { { 150, 300 }, { 300, 140 } }, { 2, 2 } },
        { "bij,bkj->bik", 2, { { 3, 20, 30 }, { 3, 25, 30 } }, { 3, 3 } },
        { "ij,jk,kl->il", 3, { { 20, 30 }, { 30, 40 }, { 40, 10 } }, { 2, 2, 2 } },
        { "ij->", 1, { { 300, 400 } }, { 2 } },
        { "ij->j", 1, { { 9000, 40 } }, { 2 } },
        { "ijk,l->i", 2, { { 9, 8, 7 }, { 5 } }, { 3, 1 } },
        { "ij->ji", 1, { { 70, 90 } }, { 2 } },
        { "ii->ii", 1, { { 9, 9 } }, { 2 } },
        { "b l (h=2 d), h d m -> b (l m)", 2, { { 2, 5, 8 }, { 2, 4, 3 } }, { 3, 3 } },
        { "i,->i", 2, { { 5 }, { 0 } }, { 1, 0 } },
        { "ij,jk->ik", 2, { { 3, 0 }, { 0, 4 } }, { 2, 2 } },
    };
    eg_nograd(cx, true);
    for (int add = 0; add < 2; add++)
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            eg_tensor *x[3];
            eg_shape shape[3];
            char why[256];
            for (int i = 0; i < cases[k].count; i++)
                shape[i] = eg_shape_of(
                    x[i] = eg_normal_n(cx, EG_F32, 0, 1, cases[k].rank[i], cases[k].dim[i]));
            eg_plan *p =
                eg_plan_new(.spec = cases[k].spec, .count = cases[k].count, .operands = shape,
                            .beta = add, .why = why, .why_size = sizeof why);
            ck_assert_msg(p != NULL, "%s", why);
            const eg_shape *o = eg_plan_out(p);
            eg_tensor *a = eg_full_n(cx, EG_F32, 1, o->rank, o->dim),
                      *b = eg_full_n(cx, EG_F32, 1, o->rank, o->dim);
            ck_assert(eg_ok(eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                              .spec = cases[k].spec,
                                                              .count = cases[k].count,
                                                              .operands = x,
                                                              .out = a,
                                                              .beta = add })));
            ck_assert_msg(eg_plan_run_on(p, x, b, why, sizeof why) == 0, "%s", why);
            ck_assert_msg(memcmp(eg_f32(a), eg_f32(b), (size_t)eg_size(a) * 4) == 0, "%s",
                          cases[k].spec);
            eg_plan_free(p);
        }
    eg_assert_ok(cx);
}

static const char *refusal(const eg_plan_args *o)
{
    static char why[1024];
    eg_plan_args q = *o;
    q.size = sizeof q;
    q.why = why;
    q.why_size = sizeof why;
    ck_assert_ptr_null(eg_plan_new_with(&q));
    return why;
}
#define REFUSED(text, ...)                                             \
    do {                                                               \
        const char *message = refusal(&(eg_plan_args){ __VA_ARGS__ }); \
        ck_assert_msg(strstr(message, text) != NULL, "%s", message);   \
    } while (0)
TEST(plans_refused)
{
    const int64_t d[] = { 2, 3 }, e[] = { 4, 2 }, minus[] = { -1, 2 }, zero[] = { 0, 0 },
                  flat_dims[] = { 2, 2 }, huge[] = { INT64_MAX, INT64_MAX };
    const eg_shape a = { EG_F32, 2, d, NULL }, b = { EG_F32, 2, e, NULL },
                   c = { EG_F64, 2, d, NULL }, i = { EG_I32, 2, d, NULL };
    const eg_shape n = { EG_F32, 2, minus, NULL }, h = { EG_F32, 2, huge, NULL },
                   deep = { EG_F32, 40, d, NULL }, flat = { EG_F32, 2, flat_dims, zero },
                   square_shape = { EG_F32, 2, flat_dims, NULL };
    REFUSED("index 'j' is 3 in operand 1 but 4 in operand 2", .spec = "ij,jk->ik", .count = 2,
            .operands = ((eg_shape[]){ a, b }));
    REFUSED("einsum: operand 1 is f32 but operand 2 is f64", .spec = "ij,ij->", .count = 2,
            .operands = ((eg_shape[]){ a, c }));
    REFUSED("a plan is for floats or i64, and an operand is i32", .spec = "ij->", .count = 1,
            .operands = &i);
    REFUSED("size -1 of axis 0 is negative", .spec = "ij->", .count = 1, .operands = &n);
    REFUSED("2^63", .spec = "ij->", .count = 1, .operands = &h);
    REFUSED("rank 40", .spec = "ij->", .count = 1, .operands = &deep);
    REFUSED("0 operands", .spec = "ij->", .count = 0, .operands = &a);
    REFUSED("spec is NULL", .count = 1, .operands = &a);
    REFUSED(".out is (2, 2), the result (2, 3)", .spec = "ij->ij", .count = 1, .operands = &a,
            .out = &square_shape);
    REFUSED("expanded", .spec = "ij,kj->ik", .count = 2, .operands = ((eg_shape[]){ a, a }),
            .out = &flat);
    static const int64_t far[][2] = { { INT64_MAX, 1 },
                                      { INT64_MIN, 1 },
                                      { INT64_MAX / 8, INT64_MAX / 8 } };
    for (int k = 0; k < 3; k++)
        REFUSED("lead further than 64 bits", .spec = "ij->", .count = 1,
                .operands = (&(eg_shape){ EG_F64, 2, d, far[k] }));
    ck_assert_ptr_null(eg_plan_new(.spec = "ij", .count = 1, .operands = NULL));
    ck_assert_int_eq(eg_plan_run(NULL, NULL, NULL), -1);
    ck_assert_ptr_null(eg_plan_out(NULL));

    char why[512];
    eg_tensor *x = eg_full_n(cx, EG_F32, 1, 2, d), *y = eg_full_n(cx, EG_F32, 1, 1, d),
              *square = eg_full_n(cx, EG_F32, 1, 2, (int64_t[]){ 2, 2 });
    eg_plan *p = eg_plan_new(.spec = "ij->i", .count = 1, .operands = &a);
    ck_assert_int_eq(eg_plan_run_on(p, &x, y, NULL, 0), 0);
    ck_assert(eg_get(y, 1) == 3);
    ck_assert_int_eq(eg_plan_run_on(p, &square, y, why, sizeof why), -1);
    ck_assert_str_eq(why, "einsum: operand 1 is f32 (2, 2) with strides (2, 1), and the plan is "
                          "for f32 (2, 3) with strides (3, 1)");
    ck_assert_int_eq(
        eg_plan_run_on(p,
                       &(eg_tensor *){ eg_slice_axis(
                           eg_full_n(cx, EG_F32, 1, 2, (int64_t[]){ 2, 6 }), 1, 0, 6, 2) },
                       y, why, sizeof why),
        -1);
    ck_assert(strstr(why, "strides (6, 2)"));
    ck_assert_int_eq(eg_plan_run_on(p, &(eg_tensor *){ eg_cast(x, EG_F64) }, y, why, sizeof why),
                     -1);
    ck_assert_int_eq(eg_plan_run_on(p, &x, eg_select_axis(x, 1, 0), why, sizeof why), -1);
    ck_assert(strstr(why, "out is f32 (2,) with strides (3,)"));
    ck_assert_int_eq(eg_plan_run_on(p, &(eg_tensor *){ NULL }, y, why, sizeof why), -1);
    ck_assert(strstr(why, "operand 1 is NULL"));
    ck_assert_int_eq(eg_plan_run_on(p, NULL, y, why, sizeof why), -1);
    ck_assert_str_eq(why, "einsum: the operands are NULL");
    ck_assert_int_eq(eg_plan_run(p, NULL, eg_mut_f32(y)), -1);
    ck_assert_int_eq(eg_plan_run(p, &(const void *){ eg_f32(x) }, NULL), -1);
    eg_plan_free(p);
    eg_plan *same = eg_plan_new(.spec = "ij->ji", .count = 1,
                                .operands = (&(eg_shape){ EG_F32, 2, (int64_t[]){ 2, 2 }, NULL }));
    ck_assert_int_eq(eg_plan_run_on(same, &square, square, why, sizeof why), -1);
    ck_assert(strstr(why, "operand 1 shares memory with out"));
    eg_plan_free(same);
    eg_assert_ok(cx);
}
