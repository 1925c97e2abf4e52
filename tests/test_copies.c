/* test_copies.c: tensors with copies: every operation computes for each copy the same bits as for a
 * single tensor. */
#include <eingrad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

enum { COPIES = 3 };

/* -- every sample of every row ----------------------------------------------------------------- */
/* Returns the last size of a sample's first operand, "3x4, 4" gives 4; 0 if it has none. */
static int64_t last_size(const char *shapes)
{
    char *end;
    int64_t n = 0;
    for (const char *c = shapes; *c >= '0' && *c <= '9'; c = *end == 'x' ? end + 1 : end)
        n = strtoll(c, &end, 10);
    return n;
}
/* "2x3:b, 4:i5": one operand of a sample, COPIES times; NULL: no more. Every axis as long as the
 * last one of the first operand is made `times` as long. */
static eg_tensor *copies_operand(eg_ctx *cx, const eg_sample *s, int64_t times, const char **at)
{
    int64_t dim[EG_RANK_MAX] = { COPIES }, below = 0;
    int rank = 1;
    const char *c = *at;
    if (!*c) return NULL;
    while (*c == ' ') c++;
    char *end = (char *)(uintptr_t)c;
    if (*c == '(')
        end += 2;
    else
        for (; *c >= '0' && *c <= '9'; c = *end == 'x' ? end + 1 : end) {
            dim[rank] = strtoll(c, &end, 10);
            dim[rank] *= dim[rank] == last_size(s->shapes) ? times : 1;
            rank++;
        }
    eg_tensor *x;
    if (!strncmp(end, ":i", 2)) {
        below = strtoll(end + 2, &end, 10);
        x = eg_randint_n(cx, 0, below, rank, dim);
    } else if (!strncmp(end, ":b", 2)) {
        end += 2;
        x = eg_gt(eg_uniform_n(cx, EG_F32, 0, 1, rank, dim), eg_full_n(cx, EG_F32, .5, 0, NULL));
    } else {
        const bool any = s->low < s->high;
        x = eg_uniform_n(cx, EG_F32, any ? s->low : -2, any ? s->high : 2, rank, dim);
    }
    while (*end == ',' || *end == ' ') end++;
    *at = end;
    return x;
}

/* A sample on tensors with copies, and on each of them alone. */
typedef struct trial {
    const eg_op *op;
    const eg_sample *s;
    int shared; /* this operand has no copies; −1: all have */
    int n, bad;
    const eg_copies *c;
    eg_tensor *all[16], *in[16]; /* the operands: (copies, …), and as the sample gets them */
    eg_tensor *y, *d[16];        /* its result, and cotangents of the operands */
    eg_tensor *moved[2];         /* the tangents of y and of d[0] */
    bool slopes;
} trial;
static int floats_of(int n, eg_tensor *const *in, eg_tensor **xs)
{
    int floats = 0;
    for (int k = 0; k < n; k++)
        if (eg_type(in[k]) == EG_F32) xs[floats++] = in[k];
    return floats;
}
static void complain(trial *t, const char *what, int64_t copy)
{
    eg_ctx *cx = eg_context(t->all[0]);
    printf("%s, sample %d, shared %d: %s of copy %lld%s%s\n", t->op->name,
           (int)(t->s - t->op->samples), t->shared, what, (long long)copy, eg_error(cx) ? ": " : "",
           eg_error(cx) ? eg_error(cx) : "");
    eg_clear(cx);
    t->bad++;
}
/* The gradients of ⟨cos y, y⟩, for which cos y is a cotangent that differs from copy to copy. */
static bool slopes_of(eg_tensor *y, int n, eg_tensor *const *in, eg_tensor **d)
{
    eg_tensor *xs[16];
    const int floats = floats_of(n, in, xs);
    return !eg_grad(y, eg_cos(eg_detach(y)), floats, xs, d);
}
/* The tangents of y and, unless an operand is shared, of its first gradient d, along cos x. */
static bool tangents_of(const trial *t, eg_tensor *y, eg_tensor *d, eg_tensor *const *in,
                        eg_tensor **tangent)
{
    eg_tensor *xs[16], *vs[16];
    const int floats = floats_of(t->n, in, xs);
    for (int k = 0; k < floats; k++) vs[k] = eg_cos(eg_detach(xs[k]));
    tangent[0] = eg_jvp(y, floats, xs, vs);
    tangent[1] = t->shared < 0 ? eg_jvp(d, floats, xs, vs) : tangent[0];
    return eg_ok(tangent[0]) && eg_ok(tangent[1]);
}
static void alone(trial *t, int64_t k)
{
    eg_ctx *cx = eg_context(t->all[0]);
    eg_tensor *one[16], *e[16], *moved[2];
    for (int i = 0; i < t->n; i++)
        one[i] = i == t->shared ? t->in[i] : eg_copy(eg_select_axis(t->all[i], 0, k));
    eg_seed(cx, eg_copies_seed(t->c, k));
    eg_set_draws(cx, 100);
    eg_tensor *z = t->s->call(one);
    eg_seed(cx, 5);
    if (!same_bits(eg_copy_at(t->y, k), z)) complain(t, "other bits", k);
    if (!t->slopes) return;
    if (!slopes_of(z, t->n, one, e)) complain(t, "no gradient", k);
    for (int i = 0, f = 0; i < t->n; i++) {
        if (eg_type(one[i]) != EG_F32) continue;
        if (i != t->shared && !same_bits(eg_copy_at(t->d[f], k), e[f]))
            complain(t, "other bits of a gradient", k);
        f++;
    }
    if (!tangents_of(t, z, e[0], one, moved)) complain(t, "no tangent", k);
    for (int i = 0; i < 2; i++)
        if (!same_bits(eg_copy_at(t->moved[i], k), moved[i]))
            complain(t, i ? "other bits of a gradient's tangent" : "other bits of a tangent", k);
}
/* The sample as a step: its result, then the cotangents. */
static int sample_step(void *user, eg_tensor **out)
{
    const trial *t = user;
    out[0] = t->s->call((eg_tensor **)(uintptr_t)t->in);
    return t->slopes ? !slopes_of(out[0], t->n, t->in, out + 1) : !eg_ok(out[0]);
}
static void captured_alike(trial *t)
{
    eg_tensor *xs[16];
    eg_ctx *cx = eg_context(t->all[0]);
    const int outputs = 1 + (t->slopes ? floats_of(t->n, t->in, xs) : 0);
    eg_set_draws(cx, 100);
    eg_captured *c = eg_capture(cx, sample_step, t, outputs);
    for (int run = 0; c && run < 2; run++) {
        eg_set_draws(cx, 100);
        if (eg_captured_run(c)) break;
        for (int k = 0; k < outputs; k++)
            if (!same_bits(eg_copies_stack(eg_captured_output(c, k)),
                           eg_copies_stack(k ? t->d[k - 1] : t->y)))
                complain(t, "other bits when captured", k);
    }
    if (eg_error(cx)) complain(t, "not captured", 0);
}
/* One sample on copies of all operands but the shared one, with long axes if times is not 1.
 * Returns the number of differences; −1 if the sample does not take long axes, since its call names
 * sizes. */
static int try_sample(eg_ctx *cx, const eg_op *op, const eg_sample *s, int shared, int64_t times)
{
    trial t = { .op = op, .s = s, .shared = shared };
    const char *at = s->shapes;
    t.c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    while (t.n < 16 && (t.all[t.n] = copies_operand(cx, s, times, &at))) t.n++;
    if (shared >= t.n || (shared >= 0 && t.n == 1)) return 0;
    for (int k = 0; k < t.n; k++)
        t.in[k] = k == shared ? eg_select_axis(t.all[k], 0, 0) : eg_copies_unstack(t.c, t.all[k]);
    eg_set_draws(cx, 100);
    t.y = s->call(t.in);
    if (times > 1 && !eg_ok(t.y)) {
        eg_clear(cx);
        return -1;
    }
    eg_tensor *xs[16];
    t.slopes = eg_type(t.y) == EG_F32 && floats_of(t.n, t.in, xs) && op->rule;
    if (!eg_ok(t.y) || !eg_copies_of(t.y))
        complain(&t, "no result", 0);
    else if (t.slopes && !slopes_of(t.y, t.n, t.in, t.d))
        complain(&t, "no gradient", 0);
    else if (t.slopes && !tangents_of(&t, t.y, t.d[0], t.in, t.moved))
        complain(&t, "no tangent", 0);
    else
        for (int k = 0; k < COPIES; k++) alone(&t, k);
    if (!t.bad && (shared < 0 || !t.slopes)) captured_alike(&t);
    return t.bad;
}
TEST(copies_every_row_gives_each_copy_the_bits_of_one)
{
    eg_ctx *cx = eg_open(.seed = 5);
    int calls = 0, bad = 0;
    for (int r = 0; eg_op_at(r); r++) {
        const eg_op *op = eg_op_at(r);
        /* they make copies and end them; a sample that draws from a seed of its own */
        if (!strncmp(op->name, "copies_", 7) || !strcmp(op->name, "dropout")) continue;
        for (const eg_sample *s = op->samples; s && s->call; s++)
            for (int shared = -1; shared < 2; shared++, calls++) {
                eg_mark m = eg_push(cx);
                bad += try_sample(cx, op, s, shared, 1);
                eg_pop(cx, m);
            }
    }
    ck_assert_int_gt(calls, 200);
    ck_assert_int_eq(bad, 0);
    eg_close(cx);
}

/* Rows long enough for what only long rows get: moments that are kept, vectors, prefetching. */
TEST(copies_every_row_that_takes_long_axes_gives_each_copy_the_bits_of_one)
{
    eg_ctx *cx = eg_open(.seed = 5);
    int calls = 0;
    for (int r = 0; eg_op_at(r); r++) {
        const eg_op *op = eg_op_at(r);
        /* the sizes of accumulate's operands follow from each other */
        if (!strncmp(op->name, "copies_", 7) || !strcmp(op->name, "dropout") ||
            !strncmp(op->name, "accumulate", 10))
            continue;
        for (const eg_sample *s = op->samples; s && s->call; s++) {
            eg_mark m = eg_push(cx);
            const int bad = try_sample(cx, op, s, -1, 17);
            ck_assert_int_le(bad, 0);
            calls += bad == 0;
            eg_pop(cx, m);
        }
    }
    ck_assert_int_gt(calls, 100);
    eg_close(cx);
}

/* A predicate that reads a tensor with copies applies in each copy the elements of that copy: in a
 * softmax, in an attention of any form, in a formula. */
TEST(copies_of_what_a_predicate_reads)
{
    enum { EACH = 3, KEYS = 5 };
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 2);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), EACH, NULL);
    const int64_t t[] = { 2, 5, 1 };
    eg_tensor *x = eg_normal(cx, 0, 1, EACH, 2, KEYS),
              *q = eg_normal(cx, 0, 1, EACH, 1, KEYS, 1, 2),
              *of = eg_from_n(cx, EG_I64, t, 2, (int64_t[]){ EACH, 1 }),
              *bucket = eg_randint(cx, 0, 3, EACH, KEYS), *table = eg_normal(cx, 0, 1, 3);
    for (int how = 0; how < 6; how++) {
        eg_tensor *y[2][EACH];
        for (int k = -1; k < EACH; k++) {
            eg_tensor *xs = k < 0 ? eg_copies_unstack(c, x) : eg_select_axis(x, 0, k),
                      *qs = k < 0 ? eg_copies_unstack(c, q) : eg_select_axis(q, 0, k),
                      *ts = k < 0 ? eg_copies_unstack(c, of) : eg_select_axis(of, 0, k),
                      *bs = k < 0 ? eg_copies_unstack(c, bucket) : eg_select_axis(bucket, 0, k);
            eg_tensor *one =
                how == 0 ? eg_softmax("i [j]", xs, .where = "j < t[0]", .with = { { "t", ts } })
                : how == 1
                    ? eg_expr("i j", "j < t[0] ? x : x * r[b[j]]",
                              .with = { { "x", xs }, { "t", ts }, { "r", table }, { "b", bs } })
                : how == 2 ? eg_attention("bihd,bjhd,bjhe->bihe", qs, qs, qs,
                                          .lengths = { "b", ts }, .form = EG_UNFUSED)
                : how == 3 ? eg_attention("bihd,bjhd,bjhe->bihe", qs, qs, qs,
                                          .lengths = { "b", ts }, .form = EG_FUSED)
                : how == 4
                    ? eg_attention("bihd,bjhd,bjhe->bihe", qs, qs, qs, .where = "j < t[b]",
                                   .with = { { "t", ts } })
                    : eg_attention("bihd,bjhd,bjhe->bihe", qs, qs, qs, .score = "score + r[b0[j]]",
                                   .with = { { "r", table }, { "b0", bs } }, .form = EG_UNFUSED);
            eg_assert_ok(cx);
            for (int n = 0; n < EACH; n++) {
                if (k < 0) y[0][n] = eg_copy_at(one, n);
                if (k == n) y[1][n] = one;
            }
        }
        for (int n = 0; n < EACH; n++) eg_assert_close(y[0][n], y[1][n], 0);
    }
    eg_close(cx);
}

/* -- products of all sizes --------------------------------------------------------------------- */
/* Returns the next number below n of a fixed sequence. */
static int picked(uint64_t *state, int n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}
/* Writes some of the letters a … e in any order; returns their number. */
static int term_of(uint64_t *state, char *to, const char *from)
{
    char left[8];
    int n = 0;
    snprintf(left, sizeof left, "%s", from);
    for (size_t k = strlen(left); k > 0; k--) {
        const int at = picked(state, (int)k);
        if (picked(state, 4)) to[n++] = left[at];
        left[at] = left[k - 1];
    }
    to[n] = 0;
    return n;
}
/* A tensor with the term's sizes, `copies` times along a first axis. */
static eg_tensor *product_operand(eg_ctx *cx, const char *term, const int64_t *size, int64_t copies)
{
    int64_t dim[8] = { copies };
    int n = 1;
    for (const char *c = term; *c; c++) dim[n++] = size[*c - 'a'];
    return eg_normal_n(cx, EG_DEFAULT, 0, 1, n, dim);
}
/* Products of one string on copies, the second operand of which may have none, and for each copy
 * alone. */
static void try_product(eg_ctx *cx, uint64_t *state, int t)
{
    static const int64_t sizes[] = { 1, 2, 3, 8, 13, 16, 33, 70 };
    char a[8], b[8], both[8] = "", out[8], spec[64];
    int64_t size[5], work = 1;
    int n = 0;
    for (int k = 0; k < 5; k++) {
        size[k] = t % 8 || k ? sizes[picked(state, 8)] : 300; /* a sum of more than one block */
        if (work * size[k] > 1 << 19) size[k] = 2;
        work *= size[k];
    }
    const int na = term_of(state, a, "abcde"), nb = term_of(state, b, "abcde");
    if (!na || !nb) return;
    for (const char *c = "abcde"; *c; c++)
        if (strchr(a, *c) || strchr(b, *c)) both[n++] = *c;
    term_of(state, out, both);
    const bool shared = picked(state, 4) == 0;
    snprintf(spec, sizeof spec, "%s,%s->%s", a, b, out);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    eg_tensor *x = product_operand(cx, a, size, COPIES),
              *w = product_operand(cx, b, size, shared ? 1 : COPIES),
              *y = eg_einsum(spec, eg_copies_unstack(c, x),
                             shared ? eg_select_axis(w, 0, 0) : eg_copies_unstack(c, w));
    for (int k = 0; k < COPIES; k++) {
        eg_tensor *z = eg_einsum(spec, eg_copy(eg_select_axis(x, 0, k)),
                                 eg_copy(eg_select_axis(w, 0, shared ? 0 : k)));
        ck_assert_msg(same_bits(eg_copy_at(y, k), z), "\"%s\", product %d, copy %d: %s", spec, t, k,
                      eg_error(cx) ? eg_error(cx) : "other bits");
    }
}
static const int product_threads[] = { 1, 2, 5 };
LOOP_TEST(copies_products_of_all_sizes_have_the_bits_of_one, 6)
{
    uint64_t state = 11 + (uint64_t)_i;
    eg_ctx *cx =
        eg_open(.seed = 8, .threads = product_threads[_i % 3], .dtype = _i < 3 ? EG_F32 : EG_F64);
    for (int t = 0; t < 150 / SLOWER; t++) {
        eg_mark m = eg_push(cx);
        try_product(cx, &state, t);
        eg_pop(cx, m);
    }
    eg_close(cx);
}
/* Bias, activation and residual in the tiles of a product: for each copy, or one for all. */
LOOP_TEST(copies_of_affine_maps_have_the_bits_of_one, 16)
{
    static const int64_t sizes[][3] = {
        { 12, 16, 16 }, { 5, 7, 3 }, { 70, 33, 64 }, { 1, 16, 40 }
    };
    const int64_t *n = sizes[_i % 4];
    const bool shared = _i / 4 % 2, wide = _i / 8;
    eg_ctx *cx = eg_open(.seed = 9, .threads = 2, .dtype = wide ? EG_F64 : EG_F32);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    eg_tensor *x = eg_normal(cx, 0, 1, COPIES, n[0], n[1]),
              *w = eg_normal(cx, 0, 1, COPIES, n[1], n[2]), *b = eg_normal(cx, 0, 1, COPIES, n[2]),
              *r = eg_normal(cx, 0, 1, COPIES, n[0], n[2]), *const all[4] = { x, w, b, r }, *in[4],
              *d[4], *e[4];
    for (int f = 0; f < 3; f++) {
        const char *const of = (const char *const[]){ NULL, "gelu", "exp" }[f];
        for (int k = 0; k < 4; k++)
            in[k] = shared && k > 1 ? eg_select_axis(all[k], 0, 0) : eg_copies_unstack(c, all[k]);
        eg_tensor *y = eg_affine("bi,io->bo", in[0], in[1], in[2], .activation = of, .add = in[3]);
        ck_assert(!eg_grad(y, eg_cos(eg_detach(y)), 4, in, d));
        for (int k = 0; k < COPIES; k++) {
            eg_tensor *one[4];
            for (int i = 0; i < 4; i++)
                one[i] = eg_copy(eg_select_axis(all[i], 0, shared && i > 1 ? 0 : k));
            eg_tensor *z =
                eg_affine("bi,io->bo", one[0], one[1], one[2], .activation = of, .add = one[3]);
            ck_assert(!eg_grad(z, eg_cos(eg_detach(z)), 4, one, e));
            ck_assert_msg(same_bits(eg_copy_at(y, k), z), "%s, copy %d", of ? of : "none", k);
            for (int i = 0; i < (shared ? 2 : 4); i++)
                ck_assert_msg(same_bits(eg_copy_at(d[i], k), e[i]), "%s, gradient %d of copy %d",
                              of ? of : "none", i, k);
        }
    }
    ck_assert_ptr_null(eg_error(cx));
    eg_close(cx);
}

/* Copies whose elements alternate in memory: the step from copy to copy is the smallest stride, but
 * must not decide the order of a sum. */
TEST(copies_that_alternate_have_the_bits_of_one)
{
    enum { MANY = 9, ROWS = 40, COLUMNS = 20 };
    eg_ctx *cx = eg_open(.seed = 3);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), MANY, NULL);
    eg_tensor *x = eg_rearrange("a b s -> s a b", eg_normal(cx, 0, 1, ROWS, COLUMNS, MANY)),
              *w = eg_rearrange("b s -> s b", eg_normal(cx, 0, 1, COLUMNS, MANY)), *y[2], *in[2];
    for (int how = 0; how < 8; how++)
        for (int k = -1; k < MANY; k++) {
            in[0] = k < 0 ? eg_copies_unstack(c, x) : eg_select_axis(x, 0, k);
            in[1] = k < 0 ? eg_copies_unstack(c, w) : eg_select_axis(w, 0, k);
            y[k >= 0] = how == 0   ? eg_einsum("ab->b", in[0])
                        : how == 1 ? eg_einsum("ab->a", in[0])
                        : how == 2 ? eg_einsum("ab->", in[0])
                        : how == 3 ? eg_einsum("ab,b->a", in[0], in[1])
                        : how == 4 ? eg_softmax("a [b]", in[0])
                        : how == 5 ? eg_layernorm("a [b]", in[0], .gain = in[1])
                        : how == 6 ? eg_rmsnorm("[a] b", in[0])
                                   : eg_logsumexp("[a] b", in[0]);
            eg_assert_ok(cx);
            if (k >= 0) ck_assert_msg(same_bits(eg_copy_at(y[0], k), y[1]), "%d, copy %d", how, k);
        }
    eg_close(cx);
}

/* -- what copies draw, share and refuse -------------------------------------------------------- */
/* The mask of a dropout is that of its forward pass also where a cotangent or a tangent has other
 * copies than x: none, if a sum of y is differentiated; those of a later operand, if x has none. */
TEST(copies_dropout_draws_once_for_values_and_gradients)
{
    enum { N = 40 };
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    const uint64_t seeds[COPIES] = { 7, 5, 11 };
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, seeds);
    eg_tensor *x = eg_copies_unstack(c, eg_ones(cx, COPIES, N)), *shared = eg_ones(cx, N),
              *y = eg_dropout(x, .5), *d;
    eg_grad(eg_sum(NULL, y), NULL, 1, &x, &d);
    eg_assert_close(eg_copies_stack(d), eg_contiguous(eg_copies_stack(y)), 0);
    d = eg_jvp(y, 1, &x, &shared);
    eg_assert_close(eg_copies_stack(d), eg_contiguous(eg_copies_stack(y)), 0);
    y = eg_dropout(shared, .5);
    eg_grad_each(eg_sum(NULL, eg_mul(y, x)), 1, &shared, &d);
    d = eg_contiguous(d);
    for (int64_t k = 0; k < COPIES; k++) eg_assert_close(eg_copy(eg_select_axis(d, 0, k)), y, 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Attention without copies, of which each copy of a later operand has a gradient: one draw for all.
 */
TEST(copies_of_a_later_operand_share_the_draws_of_attention)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    eg_tensor *x[] = { eg_normal(cx, 0, 1, 9, 4), eg_normal(cx, 0, 1, 9, 4),
                       eg_normal(cx, 0, 1, 9, 5) },
              *seeds = eg_normal(cx, 0, 1, COPIES, 9, 5), *d[3], *e[3];
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_tensor *y = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .dropout = .4,
                                    .where = "j <= i", .form = (eg_form)form);
        eg_grad_each(eg_sum(NULL, eg_mul(y, eg_copies_unstack(c, seeds))), 3, x, d);
        for (int64_t k = 0; k < COPIES; k++) {
            eg_grad(y, eg_copy(eg_select_axis(seeds, 0, k)), 3, x, e);
            eg_assert_ok(cx);
            for (int n = 0; n < 3; n++)
                eg_assert_close(eg_copy(eg_select_axis(d[n], 0, k)), e[n], 1e-13);
        }
    }
    eg_close(cx);
}

/* .empty counts the rows of all copies, in both forms. */
TEST(copies_all_count_their_empty_rows)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), 3, NULL);
    const bool kept[] = { 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 };
    eg_tensor *keep = eg_copies_unstack(c, eg_from(cx, kept, 3, 4)), *x = eg_ones(cx, 4, 2);
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        int64_t empty = -1;
        eg_attention("id,jd,je->ie", x, x, x, .keep = { "j", keep }, .empty = &empty,
                     .form = (eg_form)form);
        eg_assert_ok(cx);
        ck_assert_int_eq(empty, 8);
    }
    eg_close(cx);
}

/* A copy's result and gradients are those in a context of its seed, also if only the values have
 * copies, or only a mask, so that the weights are the same before dropout; in both forms. */
TEST(copies_attention_drops_weights_by_each_seed)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    const uint64_t seeds[COPIES] = { 7, 5, 11 };
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, seeds);
    eg_tensor *all[4] = {
        eg_normal(cx, 0, 1, COPIES, 9, 4),
        eg_normal(cx, 0, 1, COPIES, 9, 4),
        eg_normal(cx, 0, 1, COPIES, 9, 5),
        eg_normal(cx, 0, 1, COPIES, 9)
    };
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++)
        for (int part = 0; part < 4; part++)
            for (int64_t k = -1; k < COPIES; k++) {
                static eg_tensor *y, *t, *d[3];
                eg_tensor *x[4], *mine, *e[3];
                for (int n = 0; n < 4; n++) {
                    eg_tensor *one = eg_copy(eg_select_axis(all[n], 0, n == part && k > 0 ? k : 0));
                    x[n] = n == part && k < 0 ? eg_copies_unstack(c, all[n]) : one;
                }
                eg_seed(cx, k < 0 ? 3 : seeds[k]);
                eg_set_draws(cx, 100);
                mine = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .bias = { "j", x[3] },
                                    .dropout = .4, .form = (eg_form)form);
                if (k < 0) y = mine;
                eg_grad(eg_sum(NULL, mine), NULL, 3, x, k < 0 ? d : e);
                eg_tensor *v = eg_ones_like(all[2]), *along;
                v = eg_copy(eg_select_axis(v, 0, 0)), along = eg_jvp(mine, 1, &x[2], &v);
                eg_assert_ok(cx);
                if (k < 0) t = along;
                if (k < 0) continue;
                eg_assert_close(eg_copy(eg_copy_at(y, k)), mine, 1e-13);
                eg_assert_close(eg_copy(eg_copy_at(t, k)), along, 1e-13);
                if (part < 3) eg_assert_close(eg_copy(eg_copy_at(d[part], k)), e[part], 1e-13);
            }
    eg_close(cx);
}

TEST(copies_dropout_draws_as_in_a_context_of_each_seed)
{
    const uint64_t seeds[] = { 3, 99, 12345 };
    float want[COPIES][40];
    for (int k = 0; k < COPIES; k++) {
        eg_ctx *cx = eg_open(.seed = seeds[k]);
        memcpy(want[k], eg_f32(eg_dropout(eg_ones(cx, 4, 10), .5)), sizeof want[k]);
        eg_close(cx);
    }
    eg_ctx *cx = eg_open(.seed = 1);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, seeds);
    eg_tensor *y = eg_dropout(eg_copies_unstack(c, eg_ones(cx, COPIES, 4, 10)), .5);
    for (int k = 0; k < COPIES; k++)
        ck_assert(!memcmp(want[k], eg_f32(eg_copy_at(y, k)), sizeof want[k]));
    ck_assert(memcmp(want[0], want[1], sizeof want[0]) != 0);
    eg_close(cx);
}

TEST(copies_of_one_x_add_up_in_its_gradient)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 2);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    eg_tensor *W = eg_normal(cx, 0, 1, 4, 5), *x = eg_normal(cx, 0, 1, COPIES, 6, 4), *d, *each, *e,
              *twin;
    eg_tensor *h = eg_tanh(eg_einsum("bi,io->bo", eg_copies_unstack(c, x), eg_scale(W, 2)));
    ck_assert(!eg_grad(eg_sum(NULL, eg_square(h)), NULL, 1, &W, &d));
    eg_tensor *flat = eg_tanh(eg_einsum("sbi,io->sbo", x, eg_scale(W, 2)));
    ck_assert(!eg_grad(eg_sum(NULL, eg_square(flat)), NULL, 1, &W, &e));
    ck_assert_ptr_null(eg_copies_of(d));
    ck_assert_double_le(eg_item(eg_max(NULL, eg_abs(eg_sub(d, e)))), 1e-12);
    /* the part of each copy, as in a loop */
    ck_assert(!eg_grad_each(eg_sum(NULL, eg_square(h)), 1, &W, &each));
    ck_assert_int_eq(eg_rank(each), 3);
    for (int k = 0; k < COPIES; k++) {
        eg_tensor *one = eg_tanh(eg_einsum("bi,io->bo", eg_select_axis(x, 0, k), eg_scale(W, 2)));
        ck_assert(!eg_grad(eg_sum(NULL, eg_square(one)), NULL, 1, &W, &twin));
        ck_assert(same_bits(eg_select_axis(each, 0, k), twin));
    }
    /* an x may be what eg_copies_unstack made */
    eg_tensor *in = eg_copies_unstack(c, x);
    ck_assert(!eg_grad_each(eg_sum(NULL, eg_tanh(in)), 1, &in, &each));
    ck_assert(!eg_grad(eg_sum(NULL, eg_tanh(in)), NULL, 1, &in, &e));
    ck_assert(same_bits(each, eg_copies_stack(e)));
    /* a constant's gradient is zeros, of each copy */
    eg_tensor *other = eg_ones(cx, 2);
    ck_assert(!eg_grad_each(eg_sum(NULL, h), 1, &other, &each));
    ck_assert_int_eq(eg_size(each), 2 * COPIES);
    ck_assert_double_eq(eg_item(eg_max(NULL, each)), 0);
    eg_close(cx);
}

/* The range of r[i - j] needs j <= i, and t, which .where reads too, has copies. */
typedef struct lookup {
    const eg_copies *c;
    eg_tensor *t, *x, *r;
} lookup;
static int lookup_step(void *user, eg_tensor **out)
{
    const lookup *l = user;
    eg_tensor *t = eg_copies_unstack(l->c, l->t), *x = eg_copies_unstack(l->c, l->x);
    out[0] = eg_copies_stack(eg_attention(
        "id,jd,je->ie", x, x, x, .where = "j <= i & t[j] != 3", .score = "score + r[i - j]",
        .with = { { "t", t }, { "r", l->r } }, .form = EG_UNFUSED));
    return !eg_ok(out[0]);
}
TEST(copies_of_what_a_captured_predicate_reads)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 1);
    lookup l = { .c = eg_copies_open(eg_owner_open(cx), 2, NULL),
                 .t = eg_from(cx, ((int64_t[]){ 0, 8, 3, 1, 2, 3, 4, 5 }), 2, 4),
                 .x = eg_normal(cx, 0, 1, 2, 4, 4),
                 .r = eg_normal(cx, 0, 1, 4) };
    eg_tensor *y;
    eg_captured *c = eg_capture(cx, lookup_step, &l, 1);
    for (int run = 0; run < 2; run++) {
        ck_assert(!lookup_step(&l, &y));
        ck_assert_msg(!eg_captured_run(c), "%s", eg_error(cx));
        ck_assert(same_bits(eg_captured_output(c, 0), y));
        eg_assign(l.t, eg_from(cx, ((int64_t[]){ 1, 3, 4, 2, 0, 1, 3, 5 }), 2, 4));
        eg_assign(l.x, eg_normal(cx, 0, 1, 2, 4, 4));
    }
    eg_close(cx);
}
static void refused(eg_ctx *cx, const char *part)
{
    ck_assert_ptr_nonnull(eg_error(cx));
    ck_assert_msg(strstr(eg_error(cx), part), "%s", eg_error(cx));
    eg_clear(cx);
}
static eg_tensor *times_w(void *w, eg_tensor *const *x) { return eg_tanh(eg_mul(x[0], w)); }
TEST(copies_in_a_checkpoint_have_the_gradients_of_the_function_itself)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 2);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    eg_tensor *w = eg_normal(cx, 0, 1, 4), *x = eg_normal(cx, 0, 1, COPIES, 4), *d[2], *each[2],
              *dd[2], *own[2], *t[2], *in = eg_copies_unstack(c, x);
    for (int k = 0; k < 2; k++) {
        eg_tensor *y = eg_sum(NULL, k ? eg_checkpoint(times_w, w, 1, &in) : times_w(w, &in));
        ck_assert(!eg_grad(y, NULL, 1, &w, &d[k]) && !eg_grad_each(y, 1, &w, &each[k]));
        ck_assert(!eg_grad(y, NULL, 1, &in, &own[k]));
        ck_assert(!eg_grad(eg_sum(NULL, eg_square(d[k])), NULL, 1, &w, &dd[k]));
        t[k] = eg_jvp(y, 1, &w, &w);
    }
    ck_assert(same_bits(d[0], d[1]) && same_bits(each[0], each[1]) && same_bits(dd[0], dd[1]));
    ck_assert(same_bits(eg_copies_stack(own[0]), eg_copies_stack(own[1])));
    ck_assert(same_bits(eg_copies_stack(t[0]), eg_copies_stack(t[1])));
    eg_close(cx);
}
TEST(copies_are_all_looked_at_for_numbers_that_are_not_finite)
{
    for (int bad = 0; bad < COPIES; bad++) {
        eg_ctx *cx = eg_open();
        eg_tensor *all = eg_ones(cx, COPIES, 2), *x;
        eg_fill(eg_slice_axis(eg_select_axis(all, 0, bad), 0, 1, 2, 1), -1);
        x = eg_copies_unstack(eg_copies_open(eg_owner_open(cx), COPIES, NULL), all);
        eg_tensor *log = eg_log(x);
        ck_assert_ptr_eq(eg_first_nonfinite(eg_exp(log)), log);
        ck_assert_ptr_null(eg_first_nonfinite(x));
        eg_trace(cx, true);
        char part[80];
        snprintf(part, sizeof part, "at (1,) of (2,), copy %d, and its operands are finite", bad);
        ck_assert(!eg_ok(eg_log(x)));
        refused(cx, part);
        /* what another copy had before does not count */
        eg_tensor *y = eg_copies_unstack(eg_copies_of(x), eg_ones(cx, COPIES, 2));
        eg_fill(eg_copy_at(y, (bad + 1) % COPIES), NAN);
        ck_assert(!eg_ok(eg_log(eg_add(x, eg_scale(y, 0)))));
        refused(cx, "log");
        eg_close(cx);
    }
}

/* True if the elements of a and b differ by rounding at most, and both have the same NaN. */
static bool close_to(eg_tensor *a, eg_tensor *b)
{
    const double *p = eg_f64(a), *q = eg_f64(b);
    double most = 0, largest = 0;
    for (int64_t k = 0; p && q && k < eg_size(a); k++) {
        if (isnan(p[k]) != isnan(q[k])) return false;
        if (isnan(p[k])) continue;
        most = fmax(most, fabs(p[k] - q[k])), largest = fmax(largest, fabs(q[k]));
    }
    return p && q && eg_size(a) == eg_size(b) && most <= 1e-9 * largest;
}
/* The sum of the squares of the gradients by all operands of floats but the shared one, and of
 * their products with the result: a number for each copy. NULL if there are none. */
static eg_tensor *square_of_slopes(const eg_sample *s, int n, eg_tensor *const *in, int shared)
{
    eg_tensor *y = s->call(in), *xs[16], *d[16], *sum = NULL;
    int floats = 0;
    for (int k = 0; k < n; k++)
        if (k != shared && eg_type(in[k]) == EG_F64) xs[floats++] = in[k];
    if (!floats || eg_type(y) != EG_F64 || eg_grad(y, eg_cos(eg_detach(y)), floats, xs, d))
        return NULL;
    for (int k = 0; k < floats; k++) {
        eg_tensor *one = eg_sum(NULL, eg_square(d[k]));
        sum = sum ? eg_add(sum, one) : one;
    }
    return sum;
}
/* Second derivatives by an operand without copies: the sum of those of each copy alone, and by
 * eg_grad_each each of them. Returns the number of differences. */
static int try_shared_twice(eg_ctx *cx, const eg_op *op, const eg_sample *s, int shared)
{
    eg_tensor *all[16], *in[16], *one[16], *d, *each, *alone, *sum = NULL;
    const char *at = s->shapes;
    uint64_t seed[COPIES]; /* one seed: a shared operand has one draw for all copies */
    for (int k = 0; k < COPIES; k++) seed[k] = eg_seed_of(cx);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, seed);
    int n = 0, bad = 0;
    for (; n < 16 && (all[n] = copies_operand(cx, s, 1, &at)); n++)
        if (eg_type(all[n]) == EG_F32) all[n] = eg_cast(all[n], EG_F64);
    if (shared >= n || eg_type(all[shared]) != EG_F64) return 0;
    for (int k = 0; k < n; k++)
        in[k] = k == shared ? eg_copy(eg_select_axis(all[k], 0, 0)) : eg_copies_unstack(c, all[k]);
    eg_set_draws(cx, 100);
    eg_tensor *z = square_of_slopes(s, n, in, shared), *x = in[shared];
    if (!z && !eg_error(cx)) return 0;
    bad += eg_grad(z, NULL, 1, &x, &d) != 0;
    bad += eg_copies_of(z) && eg_grad_each(z, 1, &x, &each) != 0;
    for (int k = 0; k < COPIES && !bad; k++) {
        for (int i = 0; i < n; i++)
            one[i] = i == shared ? x : eg_copy(eg_select_axis(all[i], 0, k));
        eg_set_draws(cx, 100);
        if (eg_grad(square_of_slopes(s, n, one, shared), NULL, 1, &x, &alone)) bad++;
        if (eg_copies_of(z) && !close_to(eg_select_axis(each, 0, k), alone)) bad++;
        sum = sum ? eg_add(sum, alone) : alone;
    }
    bad += !bad && eg_copies_of(z) && !close_to(d, sum);
    if (bad || eg_error(cx))
        printf("%s, sample %d, shared %d: other second derivatives%s%s\n", op->name,
               (int)(s - op->samples), shared, eg_error(cx) ? ": " : "",
               eg_error(cx) ? eg_error(cx) : "");
    eg_clear(cx);
    return bad;
}
TEST(copies_second_derivatives_by_a_shared_operand_add_up)
{
    eg_ctx *cx = eg_open(.seed = 5);
    int bad = 0;
    for (int r = 0; eg_op_at(r); r++) {
        const eg_op *op = eg_op_at(r);
        if (!strncmp(op->name, "copies_", 7) || !strcmp(op->name, "dropout") || !op->rule) continue;
        for (const eg_sample *s = op->samples; s && s->call; s++)
            for (int shared = 0; shared < 4; shared++) {
                eg_mark m = eg_push(cx);
                eg_seed(cx, 5);
                bad += try_shared_twice(cx, op, s, shared);
                eg_pop(cx, m);
            }
    }
    ck_assert_int_eq(bad, 0);
    eg_close(cx);
}

TEST(copies_second_derivatives_and_forward_mode_are_those_of_one)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 2);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    eg_tensor *X = eg_normal(cx, 0, 1, COPIES, 4), *x = eg_copies_unstack(c, X),
              *v = eg_ones(cx, 4), *d, *dd, *e, *ee;
    eg_tensor *y = eg_sum(NULL, eg_mul(eg_sin(x), eg_exp(x))), *t = eg_jvp(y, 1, &x, &v);
    ck_assert(!eg_grad(y, NULL, 1, &x, &d) &&
              !eg_grad(eg_sum(NULL, eg_square(d)), NULL, 1, &x, &dd));
    for (int k = 0; k < COPIES; k++) {
        eg_tensor *one = eg_copy(eg_select_axis(X, 0, k));
        eg_tensor *z = eg_sum(NULL, eg_mul(eg_sin(one), eg_exp(one)));
        ck_assert(same_bits(eg_copy_at(t, k), eg_jvp(z, 1, &one, &v)));
        ck_assert(!eg_grad(z, NULL, 1, &one, &e) &&
                  !eg_grad(eg_sum(NULL, eg_square(e)), NULL, 1, &one, &ee));
        ck_assert(same_bits(eg_copy_at(dd, k), ee));
    }
    /* copies_stack couples the copies, and its adjoint separates them */
    eg_tensor *all = eg_copies_stack(x), *m = eg_sum(NULL, eg_square(eg_mean("[s] i", all)));
    ck_assert(!eg_grad(m, NULL, 1, &x, &d) && !eg_grad(m, NULL, 1, &X, &e));
    ck_assert(same_bits(eg_copies_stack(d), e));
    eg_close(cx);
}

/* One part may be shared; a captured step has the same bits. */
static int complex_step(void *user, eg_tensor **out)
{
    eg_tensor *const *x = user;
    eg_tensor *z = eg_add(eg_complex(x[0], x[1]), eg_complex(x[1], x[0]));
    out[0] = eg_copies_stack(eg_real(z));
    out[1] = eg_copies_stack(eg_imag(eg_complex(x[2], x[0])));
    return eg_ok(out[1]) ? 0 : -1;
}
TEST(copies_of_complex_numbers_have_the_parts_of_each)
{
    eg_ctx *cx = eg_open(.seed = 2, .dtype = EG_F64);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), 3, NULL);
    eg_tensor *a = eg_normal(cx, 0, 1, 3, 4, 2), *b = eg_normal(cx, 0, 1, 3, 4, 2), *out[2],
              *x[3] = { eg_copies_unstack(c, a), eg_copies_unstack(c, b), eg_ones(cx, 4, 2) };
    ck_assert_int_eq(complex_step(x, out), 0);
    ck_assert(same_bits(out[0], eg_add(a, b)) && same_bits(out[1], a));
    eg_captured *step = eg_capture(cx, complex_step, x, 2);
    ck_assert_msg(step != NULL, "%s", eg_error(cx));
    eg_assign(a, eg_copy(b));
    ck_assert_int_eq(eg_captured_run(step), 0);
    ck_assert(same_bits(eg_captured_output(step, 0), eg_add(b, b)));
    ck_assert(same_bits(eg_captured_output(step, 1), b));
    eg_complex(x[0], eg_copies_unstack(eg_copies_open(eg_owner_open(cx), 3, NULL), b));
    refused(cx, "complex: operand 1 has 3 copies and operand 2 3 of another group");
    eg_close(cx);
}

TEST(copies_refusals_name_both_numbers)
{
    eg_ctx *cx = eg_open(.seed = 2);
    eg_owner *o = eg_owner_open(cx);
    const eg_copies *c = eg_copies_open(o, 3, NULL), *b = eg_copies_open(o, 2, NULL);
    eg_tensor *x = eg_copies_unstack(c, eg_ones(cx, 3, 4)),
              *z = eg_copies_unstack(b, eg_ones(cx, 2, 4)), *d;
    eg_add(x, z), refused(cx, "add: operand 1 has 3 copies and operand 2 2 of another group");
    eg_copies_unstack(c, eg_ones(cx, 4, 3)), refused(cx, "its first axis must have the 3 copies");
    eg_copies_unstack(c, x), refused(cx, "has copies already: 3");
    eg_copies_stack(eg_ones(cx, 2)), refused(cx, "copies_stack: operand 1 has no copies");
    eg_f32(x), refused(cx, "f32: the tensor has 3 copies; eg_copies_stack shows them all");
    eg_item(eg_sum(NULL, x)), refused(cx, "item: the tensor has 3 copies");
    eg_keep(x), refused(cx, "keep: the tensor has 3 copies");
    eg_print(stdout, x), refused(cx, "print: the tensor has 3 copies");
    eg_copy_at(x, 3), refused(cx, "copy_at: there is no copy 3; operand 1 has 3, counted from 0");
    eg_copies_open(o, 0, NULL), refused(cx, "copies: there must be 1 to 2^32, not 0");
    eg_copies_open(o, INT64_MAX, NULL),
        refused(cx, "there must be 1 to 2^32, not 9223372036854775807");
    eg_assign(eg_ones(cx, 4), x), refused(cx, "assign: the value has 3 copies, the target none");
    eg_assign(z, x), refused(cx, "assign: the value has 3 copies, the target others");
    eg_grad_each(eg_sum(NULL, eg_ones(cx, 2)), 1, &x, &d),
        refused(cx, "grad_each: y has no copies");
    eg_tensor *mixed = eg_mul(x, eg_mean("[s] i", eg_copies_stack(x)));
    eg_grad_each(eg_sum(NULL, mixed), 1, &x, &d), refused(cx, "grad_each: copies_stack (");
    eg_grad_each(eg_sum(NULL, mixed), 1, &x, &d), refused(cx, "so that copies are coupled");
    eg_where_mask(cx, "x[i] > 0", "i", 0, (int64_t[]){ 4 },
                  .with = { { "x", eg_cast(x, EG_I32) } });
    refused(cx, "where_mask: the tensor has 3 copies");
    eg_mask_additive(x), refused(cx, "mask_additive: the tensor has 3 copies");
    eg_heads(eg_copies_unstack(c, eg_ones(cx, 3, 2, 4, 4)), .spec = "[h] i j"),
        refused(cx, "heads: .weights have 3 copies; eg_copy_at shows one");
    FILE *stream = tmpfile();
    ck_assert_int_eq(eg_npy_write(stream, x), -1);
    ck_assert_int_eq(ftell(stream), 0); /* nothing of it was written */
    fclose(stream), refused(cx, "npy: operand 1 has 3 copies; eg_copies_stack shows them all");
    const char *const name[] = { "x" };
    eg_npz_save(cx, "/nonexistent/x.npz", 1, name, &x),
        refused(cx, "x.npz: copies are not written; save eg_copies_stack of array 'x'");
    eg_safetensors_save(cx, "/nonexistent/x.st", 1, name, &x, NULL),
        refused(cx, "x.st: copies are not written; save eg_copies_stack of tensor 'x'");
    eg_nograd(cx, true);
    eg_einsum_to(eg_ones(cx, 4), "i->i", x),
        refused(cx, "einsum: .out is refused if operands have copies");
    eg_close(cx);
}

TEST(a_cache_takes_no_copies)
{
    eg_ctx *cx = eg_open(.seed = 2);
    eg_owner *o = eg_owner_open(cx);
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "at", .d_model = 4, .heads = 2);
    eg_cache *c = eg_cache_new(o, 4);
    eg_tensor *all = eg_ones(cx, 2, 1, 3, 4),
              *x = eg_copies_unstack(eg_copies_open(o, 2, NULL), all),
              *one = eg_select_axis(all, 0, 0),
              *zeros = eg_cast(eg_mul(x, eg_zeros(cx, 1)), EG_I64);
    eg_nograd(cx, true);
    eg_mha_run(m, x, .cache = c);
    refused(cx, "mha \"at\": the new keys have 2 copies, but a cache has none");
    eg_mha_run(m, one, .key = one, .value = x, .cache = c, .slot = 1, .memory = true);
    refused(cx, "mha \"at\": the new values have 2 copies, but a cache has none");
    eg_cache_set_state(c, 2, x, 1);
    refused(cx, "cache: the state has 2 copies, but a cache has none");
    eg_mha_run(m, one, .cache = c);
    zeros = eg_slice_axis(eg_select_axis(eg_select_axis(zeros, 0, 0), 0, 0), 0, 0, 1, 1);
    eg_cache_select(c, zeros);
    refused(cx, "cache: the numbers have 2 copies, but a cache has none");
    eg_cache_keep(c, 0, zeros);
    refused(cx, "cache: the numbers have 2 copies, but a cache has none");
    ck_assert(eg_cache_length(c) == 3 && !eg_ok(eg_cache_state(c, 2)));
    eg_tensor *y = eg_mha_run(m, one, .key = one, .cache = c, .slot = 1, .memory = true);
    ck_assert(eg_ok(y) && !eg_copies_of(y)); /* and copies may ask what it holds */
    y = eg_mha_run(m, x, .cache = c, .slot = 1, .memory = true);
    eg_assert_close(eg_copy(eg_copy_at(y, 1)), eg_mha_run(m, one), 1e-6);
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(copies_are_filled_and_assigned_all_together)
{
    eg_ctx *cx = eg_open(.seed = 2);
    const eg_copies *c = eg_copies_open(eg_owner_open(cx), 3, NULL);
    eg_tensor *base = eg_zeros(cx, 3, 2), *x = eg_copies_unstack(c, base);
    ck_assert(!eg_fill(x, 2) && !eg_assign(eg_copy_at(x, 1), eg_full(cx, 7, 2)));
    const float one[] = { 2, 2, 7, 7, 2, 2 }, two[] = { 4, 4, 14, 14, 4, 4 };
    ck_assert(!memcmp(eg_f32(base), one, sizeof one));
    ck_assert(!eg_assign(x, eg_scale(x, 2)));
    ck_assert(!memcmp(eg_f32(base), two, sizeof two));
    ck_assert(!memcmp(eg_f32(eg_copy_at(x, -1)), two + 4, 8));
    eg_close(cx);
}

/* -- models ------------------------------------------------------------------------------------ */
enum { MODELS = 3, BATCH = 4, PLACES = 6, STEPS = 4 };
static const double rates[MODELS] = { 1e-3, 3e-3, 1e-2 }, clips[MODELS] = { 0, .5, 1 };
static const uint64_t model_seeds[MODELS] = { 4, 8, 15 };
/* The tokens of a step of one model, with another length in each, as for its own task. */
static eg_tensor *tokens_of(eg_ctx *cx, uint64_t seed, int step)
{
    int64_t t[BATCH * PLACES];
    for (int k = 0; k < BATCH * PLACES; k++)
        t[k] = (int64_t)((seed * 7 + (uint64_t)step * 13 + (uint64_t)(k * k)) % 9);
    return eg_from_n(cx, EG_I64, t, 2, (int64_t[]){ BATCH, PLACES });
}
static eg_transformer *model_of(eg_params *p)
{
    return eg_transformer_new(p, "", .vocabulary = 9, .length = PLACES, .d_model = 16, .heads = 2,
                              .layers = 2, .dropout = .1,
                              .mha = &(eg_mha_args){ .kv_heads = 1, .alibi = true });
}
static eg_tensor *loss_of(eg_transformer *m, eg_tensor *tokens)
{
    return eg_cross_entropy("b l [v]", eg_transformer_run(m, tokens, .where = "j <= i"), tokens,
                            .ignore = 3);
}
TEST(copies_of_a_model_train_to_the_bits_of_single_runs)
{
    eg_ctx *all = eg_open(.seed = 77, .threads = 2);
    eg_params *p = eg_params_open(all, .copies = MODELS, .seeds = model_seeds);
    eg_transformer *m = model_of(p);
    eg_opt *opt = eg_adamw(p, .copies = MODELS, .lr_each = rates, .clip_each = clips);
    ck_assert_msg(opt != NULL, "%s", eg_error(all));
    float losses[STEPS][MODELS];
    for (int s = 0; s < STEPS; s++) {
        eg_mark mark = eg_push(all);
        eg_tensor *t[MODELS];
        for (int k = 0; k < MODELS; k++) t[k] = tokens_of(all, model_seeds[k], s);
        eg_tensor *tokens = eg_copies_unstack(eg_params_copies(p), eg_stack_axis_n(0, MODELS, t));
        eg_tensor *loss = loss_of(m, tokens);
        ck_assert_msg(!eg_step(opt, loss), "%s", eg_error(all));
        memcpy(losses[s], eg_f32(eg_copies_stack(loss)), sizeof losses[s]);
        eg_pop(all, mark);
    }
    for (int k = 0; k < MODELS; k++) {
        eg_ctx *cx = eg_open(.seed = model_seeds[k], .threads = 1);
        eg_params *q = eg_params_open(cx);
        eg_transformer *one = model_of(q);
        eg_opt *alone = eg_adamw(q, .lr = rates[k], .clip_norm = clips[k]);
        for (int s = 0; s < STEPS; s++) {
            eg_mark mark = eg_push(cx);
            eg_tensor *loss = loss_of(one, tokens_of(cx, model_seeds[k], s));
            ck_assert(!memcmp(&losses[s][k], eg_f32(loss), sizeof(float)));
            ck_assert(!eg_step(alone, loss));
            eg_pop(cx, mark);
        }
        eg_params *copy = eg_params_of_copy(p, k);
        ck_assert_int_eq(eg_params_count(copy), eg_params_count(q));
        for (int n = 0; n < eg_params_count(q); n++) {
            const eg_named *x = eg_params_at(copy, n), *y = eg_params_at(q, n);
            ck_assert_str_eq(x->name, y->name);
            ck_assert_msg(same_bits(x->x, y->x), "%s of copy %d", x->name, k);
        }
        ck_assert_int_eq(eg_opt_report_of(eg_opt_of_copy(opt, k)).norm_clipped,
                         eg_opt_report_of(alone).norm_clipped);
        eg_close(cx);
    }
    ck_assert_int_gt(eg_opt_report_of(eg_opt_of_copy(opt, 1)).norm_clipped, 0);
    eg_close(all);
}

/* A step of a model with dropout, in which tensors with copies are filled and assigned. */
typedef struct training {
    eg_transformer *m;
    eg_opt *opt;
    eg_tensor *tokens, *seen;
} training;
static int training_step(void *user, eg_tensor **out)
{
    const training *l = user;
    out[0] = loss_of(l->m, l->tokens);
    return eg_step(l->opt, out[0]) || eg_fill(l->seen, 3) ||
           eg_assign(l->seen, eg_add(l->seen, eg_detach(out[0])));
}
TEST(copies_of_a_model_train_in_a_captured_step)
{
    eg_ctx *cx[2];
    eg_params *p[2];
    training l[2];
    eg_captured *c = NULL;
    eg_tensor *out[1];
    for (int k = 0; k < 2; k++) {
        cx[k] = eg_open(.seed = 77);
        p[k] = eg_params_open(cx[k], .copies = MODELS, .seeds = model_seeds);
        l[k].m = model_of(p[k]);
        l[k].opt = eg_adamw(p[k], .copies = MODELS, .lr_each = rates, .clip_each = clips);
        l[k].tokens = eg_owner_copies(eg_params_owner(p[k]), eg_params_copies(p[k]), EG_I64, 2,
                                      (int64_t[]){ BATCH, PLACES });
        l[k].seen = eg_owner_copies(eg_params_owner(p[k]), eg_params_copies(p[k]), EG_F32, 0, NULL);
    }
    for (int s = 0; s < STEPS; s++) {
        for (int k = 0; k < 2; k++) {
            const eg_mark mark = eg_push(cx[k]);
            for (int n = 0; n < MODELS; n++)
                ck_assert(
                    !eg_assign(eg_copy_at(l[k].tokens, n), tokens_of(cx[k], model_seeds[n], s)));
            eg_pop(cx[k], mark);
        }
        const eg_mark mark = eg_push(cx[0]);
        ck_assert(!training_step(&l[0], out));
        if (s == 0) c = eg_capture(cx[1], training_step, &l[1], 1);
        ck_assert_msg(c && (s == 0 || !eg_captured_run(c)), "%s", eg_error(cx[1]));
        ck_assert(same_bits(eg_copies_stack(out[0]), eg_copies_stack(eg_captured_output(c, 0))));
        ck_assert(same_bits(eg_copies_stack(l[0].seen), eg_copies_stack(l[1].seen)));
        for (int n = 0; n < eg_params_count(p[0]); n++)
            ck_assert_msg(same_bits(eg_copies_stack(eg_params_at(p[0], n)->x),
                                    eg_copies_stack(eg_params_at(p[1], n)->x)),
                          "%s after step %d", eg_params_at(p[0], n)->name, s + 1);
        eg_pop(cx[0], mark);
    }
    for (int k = 0; k < 2; k++) eg_close(cx[k]);
}

TEST(copies_with_one_example_each_give_gradients_of_each_example)
{
    eg_ctx *cx = eg_open(.seed = 6, .dtype = EG_F64);
    eg_params *p = eg_params_open(cx);
    eg_transformer *m = model_of(p);
    const eg_copies *b = eg_copies_open(eg_owner_open(cx), BATCH, NULL);
    eg_eval(cx);
    eg_tensor *tokens = tokens_of(cx, 3, 1), *x[64], *each[64], *d[64];
    const int n = eg_params_count(p);
    for (int k = 0; k < n; k++) x[k] = eg_params_at(p, k)->x;
    eg_tensor *apart = eg_copies_unstack(b, eg_rearrange("b l -> b 1 l", tokens));
    ck_assert_msg(!eg_grad_each(loss_of(m, apart), n, x, each), "%s", eg_error(cx));
    for (int e = 0; e < BATCH; e++) {
        ck_assert(!eg_grad(loss_of(m, eg_slice_axis(tokens, 0, e, e + 1, 1)), NULL, n, x, d));
        for (int k = 0; k < n; k++)
            ck_assert_msg(same_bits(eg_select_axis(each[k], 0, e), d[k]), "%s of example %d",
                          eg_params_at(p, k)->name, e);
    }
    eg_close(cx);
}

/* A copy's moments are in the memory of those of all copies: a state that is loaded into one copy
 * is that of the next step. */
TEST(copies_continue_from_the_state_of_a_single_optimiser)
{
    char path[] = "/tmp/eg_copies_XXXXXX";
    close(mkstemp(path));
    eg_ctx *cx = eg_open();
    eg_params *q = eg_params_open(cx), *p = eg_params_open(cx, .copies = 2);
    eg_tensor *y = eg_param(q, "x", "i", 3), *x = eg_param(p, "x", "i", 3), *g[2];
    eg_opt *alone = eg_adam(q), *all = eg_adam(p), *one = eg_opt_of_copy(all, 1);
    for (int k = 0; k < 2; k++) g[k] = eg_shift(eg_arange(cx, EG_F32, 0, 3, 1), k + 1);
    for (int k = 0; k < 2; k++) {
        ck_assert(!eg_step_by(alone, &g[k]));
        if (k) break;
        ck_assert(!eg_opt_save(alone, path));
        ck_assert_msg(eg_opt_resume(one, path) == 1, "%s", eg_error(cx));
    }
    eg_tensor *both = eg_copies_unstack(eg_params_copies(p), eg_stack_axis(0, g[0], g[1]));
    ck_assert_msg(!eg_step_by(all, &both), "%s", eg_error(cx));
    ck_assert(same_bits(eg_contiguous(eg_copy_at(x, 1)), y));
    ck_assert_int_eq(eg_opt_report_of(one).steps, 2);
    ck_assert_int_eq(eg_opt_report_of(all).steps, eg_opt_report_of(eg_opt_of_copy(all, 0)).steps);
    ck_assert_int_gt(eg_opt_report_of(all).steps, 0);
    unlink(path);
    eg_close(cx);
}

/* A step that one copy refuses changes no copy: all checks come first. Squares of gradients that
 * overflow f64 are measured again, in each copy alone. */
TEST(copies_are_updated_together_or_not_at_all)
{
    eg_ctx *cx = eg_open();
    eg_params *p = eg_params_open(cx, .copies = 2, .dtype = EG_F64);
    eg_tensor *x = eg_param(p, "x", "i", 3), *g = eg_ones(cx, 2, 3), *d;
    eg_opt *opt = eg_sgd(p, .lr = 1, .clip_norm = 1);
    const double alone[2] = { -1 / (sqrt(3.) + 1e-6), -1e200 / (1e200 * sqrt(3.) + 1e-6) };
    g = eg_cast(g, EG_F64);
    d = eg_copies_unstack(eg_params_copies(p), g);
    eg_fill(eg_select_axis(g, 0, 1), INFINITY);
    ck_assert_int_eq(eg_step_by(opt, &d), -1);
    refused(cx, "copy 1: sgd: the gradient of \"x\" has a inf");
    for (int k = 0; k < 2; k++) {
        ck_assert_double_eq(eg_get(eg_copy_at(x, k), 0), 0);
        ck_assert_int_eq(eg_opt_report_of(eg_opt_of_copy(opt, k)).steps, 0);
    }
    eg_fill(eg_select_axis(g, 0, 1), 1e200);
    ck_assert_msg(!eg_step_by(opt, &d), "%s", eg_error(cx));
    for (int k = 0; k < 2; k++) {
        ck_assert_double_eq_tol(eg_get(eg_copy_at(x, k), 0), alone[k], 1e-12);
        ck_assert_int_eq(eg_opt_report_of(eg_opt_of_copy(opt, k)).steps, 1);
    }
    eg_close(cx);
}

/* More copies than a piece of the loop takes; two chunks of elements. */
TEST(copies_of_any_number_are_updated_as_one_each)
{
    enum { S = 37, N = 5000 };
    double lr[S];
    for (int k = 0; k < S; k++) lr[k] = 1e-3 * (k + 1);
    for (int threads = 1; threads <= 3; threads += 2) {
        eg_ctx *cx = eg_open(.threads = threads);
        eg_params *p = eg_params_open(cx, .copies = S);
        eg_tensor *x = eg_param(p, "x", "i", N), *g = eg_normal(cx, 0, 1, S, N), *d;
        eg_opt *all = eg_adam(p, .copies = S, .lr_each = lr, .clip_norm = 1);
        d = eg_copies_unstack(eg_params_copies(p), g);
        eg_tensor *start = eg_copy(eg_copies_stack(x));
        for (int step = 0; step < 2; step++)
            ck_assert_msg(!eg_step_by(all, &d), "%s", eg_error(cx));
        for (int k = 0; k < S; k++) {
            eg_params *q = eg_params_open(cx);
            eg_tensor *y = eg_param(q, "x", "i", N), *one = eg_select_axis(g, 0, k);
            eg_opt *alone = eg_adam(q, .lr = lr[k], .clip_norm = 1);
            ck_assert(!eg_assign(y, eg_select_axis(start, 0, k)));
            for (int step = 0; step < 2; step++) ck_assert(!eg_step_by(alone, &one));
            ck_assert_msg(same_bits(eg_contiguous(eg_copy_at(x, k)), y), "copy %d", k);
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}
TEST(copies_of_parameters_refuse_in_one_sentence)
{
    eg_ctx *cx = eg_open();
    ck_assert_ptr_null(eg_params_open(cx, .copies = -1));
    refused(cx, "params: there must be at least 1 copy, not -1");
    eg_params *p = eg_params_open(cx, .copies = 2), *q = eg_params_open(cx);
    eg_linear *l = eg_linear_new(p, "a", .in = 2, .out = 3);
    eg_linear_new(q, "a", .in = 2, .out = 3);
    ck_assert_ptr_null(eg_adam(q, .lr_each = rates));
    refused(cx, "adam: .lr_each is for parameters with copies, but these have none");
    ck_assert_ptr_null(eg_adam(p, .copies = 2, .lr_each = (const double[]){ 1, -1 }));
    refused(cx, "copy 1: adam: lr must not be negative, not -1");
    ck_assert_ptr_null(eg_sgd(p, .lr_each = rates));
    refused(cx, "sgd: .lr_each has 0 numbers (.copies), but the parameters have 2 copies");
    ck_assert_ptr_null(eg_adagrad(p, .copies = 3, .clip_each = clips));
    refused(cx, "adagrad: .clip_each has 3 numbers (.copies), but the parameters have 2 copies");
    ck_assert_ptr_null(eg_rmsprop(p, .copies = 1));
    refused(cx, "rmsprop: .copies is 1, but the parameters have 2 copies");
    ck_assert_ptr_null(eg_adamw(q, .copies = 1));
    refused(cx, "adamw: .copies is 1, but the parameters have 0 copies");
    ck_assert_ptr_null(eg_params_of_copy(p, 2));
    refused(cx, "params_of_copy: there is no copy 2; the parameters have 2, counted from 0");
    eg_opt *opt = eg_adam(p);
    eg_tensor *x = eg_ones(cx, 1, 2), *y = eg_linear_run(l, x);
    ck_assert_int_eq(eg_step(opt, eg_sum(NULL, eg_copies_stack(y))), -1);
    refused(cx, "the loss does not have the copies of the parameters");
    eg_fill(eg_copy_at(l->bias, 1), INFINITY);
    ck_assert_int_eq(eg_step(opt, eg_sum(NULL, eg_linear_run(l, x))), -1);
    refused(
        cx,
        "adam: the loss of copy 1 is inf, which comes from a leaf \"a.b\"; the step is not done");
    ck_assert_int_eq(eg_opt_save(opt, "/nowhere/x"), -1);
    refused(cx, "opt_save: the parameters have copies; eg_opt_of_copy gives the optimiser of one");
    ck_assert_int_eq(eg_params_save(p, "/nowhere/x"), -1);
    refused(cx,
            "params_save: the parameters have 2 copies; eg_params_of_copy gives the list of one");
    eg_close(cx);
}

/* An optimiser makes the lists of the copies; a module that is added later is in the lists, and in
 * the next optimiser, too. */
TEST(lists_of_copies_get_later_parameters)
{
    eg_ctx *cx = eg_open();
    eg_params *p = eg_params_open(cx, .copies = 2), *alone = eg_params_open(cx);
    eg_linear_new(p, "a", .in = 2, .out = 3);
    eg_sgd(p, .lr = 0.1);
    eg_params *second = eg_params_of_copy(p, 1);
    ck_assert_int_eq(eg_params_count(second), 2);
    eg_linear *b = eg_linear_new(p, "b", .in = 2, .out = 1);
    ck_assert_ptr_eq(eg_params_of_copy(p, 1), second);
    ck_assert_int_eq(eg_params_count(second), 4);
    ck_assert_ptr_eq(eg_f32(eg_params_find(second, "b.W")), eg_f32(eg_copy_at(b->weight, 1)));
    eg_opt *opt =
        eg_adam(p, .lr = 0.1, .groups = (eg_opt_group[]){ { "a.*", .frozen = true }, { 0 } });
    ck_assert_msg(opt != NULL, "%s", eg_error(cx));
    eg_linear_new(alone, "b", .in = 2, .out = 1);
    ck_assert(!eg_params_copy(alone, eg_params_of_copy(p, 0)));
    eg_tensor *x = eg_ones(cx, 1, 2);
    ck_assert_int_eq(eg_step(opt, eg_sum(NULL, eg_linear_run(b, x))), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- an operation whose forward() applies operations ------------------------------------------- */
static bool applying_forward(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    eg_tensor *h = eg_affine("im,jm->ij", x, x, NULL, .activation = "gelu");
    h = eg_layernorm("i [j]", eg_softmax("i [j]", h), NULL, NULL, 1e-5);
    h = eg_attention("id,jd,je->ie", h, h, h, .where = "j <= i", .form = EG_FUSED);
    return eg_assign(y, eg_einsum("ij,jm->im", h, x)) == 0;
}
static eg_tensor *applying_call(eg_tensor *const *x)
{
    static const eg_op op = {
        .name = "applying", .arity = 1, .shape = like_first, .forward = applying_forward
    };
    return eg_apply(&op, NULL, 0, 1, x);
}
TEST(operations_applied_by_forward_compute_one_copy)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 1);
    eg_tensor *all = eg_normal(cx, 0, 1, COPIES, 6, 4);
    eg_tensor *x = eg_copies_unstack(eg_copies_open(eg_owner_open(cx), COPIES, NULL), all);
    eg_tensor *y = applying_call(&x);
    for (int64_t k = 0; k < COPIES; k++) {
        eg_tensor *one = eg_select_axis(all, 0, k);
        ck_assert_msg(same_bits(eg_copy(eg_copy_at(y, k)), applying_call(&one)), "copy %lld: %s",
                      (long long)k, eg_error(cx));
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- an operation whose rule differentiates what it computes again: y = sin(x w), elementwise -- */
static bool differentiating_forward(eg_tensor *y)
{
    return eg_assign(y, eg_sin(eg_mul(eg_operand(y, 0), eg_operand(y, 1)))) == 0;
}
static eg_tensor *differentiating_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x[2], *d;
    const bool was = eg_nograd(eg_context(y), false);
    for (int k = 0; k < 2; k++) x[k] = eg_permute(eg_operand(y, k), 0);
    eg_tensor *again = eg_sum(NULL, eg_mul(g, eg_sin(eg_mul(x[0], x[1]))));
    eg_nograd(eg_context(y), was);
    return eg_grad(again, NULL, 1, &x[i], &d) ? NULL : d;
}
static eg_tensor *differentiating(eg_tensor *x, eg_tensor *w)
{
    static const eg_op op = { .name = "differentiating",
                              .arity = 2,
                              .shape = like_first,
                              .forward = differentiating_forward,
                              .rule = differentiating_rule };
    return eg_apply(&op, NULL, 0, 2, (eg_tensor *[]){ x, w });
}
TEST(gradients_in_a_rule_are_those_of_each_copy)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 1);
    eg_tensor *all = eg_normal(cx, 0, 1, COPIES, 5), *w = eg_normal(cx, 0, 1, 5), *d[2], *dd[2],
              *x = eg_copies_unstack(eg_copies_open(eg_owner_open(cx), COPIES, NULL), all), *g, *h;
    for (int own = 0; own < 2; own++) {
        eg_tensor *y = own ? differentiating(x, w) : eg_sin(eg_mul(x, w));
        eg_tensor *z = eg_sum(NULL, eg_square(y));
        eg_assert_ok(cx);
        ck_assert(!eg_grad(z, NULL, 1, &w, &d[own]) && !eg_grad(z, NULL, 1, &x, &g));
        ck_assert(!eg_grad(eg_sum(NULL, eg_square(g)), NULL, 1, &w, &dd[own]));
        ck_assert(!eg_grad_each(z, 1, &w, &h) && close_to(eg_sum("[s] k", h), d[own]));
    }
    ck_assert(close_to(d[1], d[0]));
    ck_assert(close_to(dd[1], dd[0]));
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- an operation whose rule needs what forward() saved ---------------------------------------- */
/* y = Σ x³ of the elements that a draw keeps, and the largest element, whose place is saved. The
 * memory is allocated by shape(), or by forward() if attr is true. */
typedef struct kept {
    int64_t largest;
    float keep[6];
} kept;
static bool keeping_shape(eg_tensor *y)
{
    return eg_result(y, EG_F32, 0, NULL) &&
           (*(const bool *)eg_attr(y) || eg_node_save(y, sizeof(kept)));
}
static bool keeping_forward(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0), *scale = eg_operand(y, 1), *drawn;
    kept *s = *(const bool *)eg_attr(y) ? eg_node_save(y, sizeof *s) : eg_node_saved(y);
    if (!s || !(drawn = eg_uniform_n(eg_context(x), EG_F32, 0, 1, 1, eg_dims(x)))) return false;
    s->largest = 0;
    double sum = 0;
    for (int64_t k = 0; k < 6; k++) {
        const float v = eg_f32(x)[k];
        if (v > eg_f32(x)[s->largest]) s->largest = k;
        s->keep[k] = eg_f32(drawn)[k] < .5f;
        sum += (double)s->keep[k] * v * v * v;
    }
    *eg_mut_f32(y) = ((float)sum + eg_f32(x)[s->largest]) * *eg_f32(scale);
    return true;
}
static eg_tensor *keeping_slope(eg_tensor *y, eg_tensor *x)
{
    const kept *s = eg_node_saved(y);
    eg_tensor *one = eg_zeros_like(x);
    eg_mut_f32(one)[s->largest] = 1;
    eg_tensor *keep = eg_from(eg_context(x), s->keep, 6);
    return eg_add(eg_mul(keep, eg_scale(eg_square(x), 3)), one);
}
static eg_tensor *keeping_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, 0), *scale = eg_operand(y, 1);
    return i ? eg_mul(g, eg_div(y, scale)) : eg_mul(eg_mul(keeping_slope(y, x), g), scale);
}
static eg_tensor *keeping_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    eg_tensor *t = NULL;
    if (dx[0]) t = eg_sum("[k]", keeping_rule(y, dx[0], 0));
    if (dx[1]) t = t ? eg_add(t, keeping_rule(y, dx[1], 1)) : keeping_rule(y, dx[1], 1);
    return t;
}
static eg_tensor *keeping(bool late, bool jvp, eg_tensor *x, eg_tensor *scale)
{
    static eg_op op = { .name = "keeping",
                        .arity = 2,
                        .shape = keeping_shape,
                        .forward = keeping_forward,
                        .rule = keeping_rule },
                 with;
    with = op;
    with.jvp = keeping_jvp;
    return eg_apply(jvp ? &with : &op, &late, sizeof late, 2, (eg_tensor *[]){ x, scale });
}
/* y, its gradients, their tangents and its own along x: for one tensor or all copies. */
static void keeping_all(bool late, bool jvp, eg_tensor *x, eg_tensor *scale, eg_tensor **r)
{
    eg_ctx *cx = eg_context(x);
    eg_set_draws(cx, 100);
    eg_tensor *xs[] = { x, scale }, *vs[] = { x, scale };
    r[0] = keeping(late, jvp, x, scale);
    ck_assert_msg(!eg_grad(r[0], NULL, 2, xs, r + 1), "%s", eg_error(cx));
    r[3] = eg_jvp(r[1], 2, xs, vs);
    r[4] = eg_jvp(r[0], 2, xs, vs);
    ck_assert_msg(!eg_grad(eg_sum("[k]", r[1]), NULL, 2, xs, r + 5), "%s", eg_error(cx));
}
/* Returns whether all elements are equal; 0 and −0 are: what is added through a view is added to
 * 0. */
static bool equal_values(eg_tensor *x, eg_tensor *y)
{
    bool same = eg_size(x) == eg_size(y);
    for (int64_t k = 0; same && k < eg_size(x); k++) same = eg_f32(x)[k] == eg_f32(y)[k];
    return same;
}
typedef struct keeping_run {
    bool late;
    eg_tensor *x, *scale;
} keeping_run;
static int keeping_step(void *user, eg_tensor **out)
{
    const keeping_run *r = user;
    out[0] = keeping(r->late, false, r->x, r->scale);
    return !eg_ok(out[0]);
}
TEST(copies_of_one_tensor_that_are_taken_out_have_gradients)
{
    eg_ctx *cx = eg_open(.seed = 1);
    eg_tensor *all = eg_normal(cx, 0, 1, COPIES, 4), *d;
    eg_tensor *x = eg_copies_unstack(eg_copies_open(eg_owner_open(cx), COPIES, NULL), all);
    eg_tensor *y = eg_sum("[k]", eg_mul(eg_copy_at(x, 0), eg_copy_at(x, 2)));
    ck_assert_msg(!eg_grad(y, NULL, 1, &x, &d), "%s", eg_error(cx));
    ck_assert(equal_values(eg_copy_at(d, 0), eg_copy_at(x, 2)));
    ck_assert(equal_values(eg_copy_at(d, 1), eg_zeros(cx, 4)));
    ck_assert(equal_values(eg_copy_at(d, 2), eg_copy_at(x, 0)));
    eg_close(cx);
}
TEST(copies_each_have_what_a_custom_operation_saves)
{
    for (int variant = 0; variant < 8; variant++) {
        const bool late = variant & 1, jvp = variant & 2, shared = variant & 4;
        eg_ctx *cx = eg_open(.seed = 1);
        const eg_copies *c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
        eg_tensor *all = eg_normal(cx, 0, 1, COPIES, 6), *scales = eg_uniform(cx, 1, 2, COPIES);
        eg_tensor *x = eg_copies_unstack(c, all), *r[7], *e[7];
        eg_tensor *scale = shared ? eg_select_axis(scales, 0, 0) : eg_copies_unstack(c, scales);
        keeping_all(late, jvp, x, scale, r);
        eg_set_draws(cx, 100);
        eg_captured *step = eg_capture(cx, keeping_step, &(keeping_run){ late, x, scale }, 1);
        for (int run = 0; run < 3; run++) {
            eg_set_draws(cx, 100);
            ck_assert_msg(!eg_captured_run(step), "%s", eg_error(cx));
            ck_assert(
                same_bits(eg_copies_stack(eg_captured_output(step, 0)), eg_copies_stack(r[0])));
        }
        for (int64_t k = 0; k < COPIES; k++) {
            eg_seed(cx, eg_copies_seed(c, k));
            keeping_all(late, jvp, eg_copy(eg_select_axis(all, 0, k)),
                        shared ? scale : eg_copy(eg_select_axis(scales, 0, k)), e);
            for (int n = 0; n < 7; n++)
                if (eg_copies_of(r[n]))
                    ck_assert_msg(equal_values(eg_copy(eg_copy_at(r[n], k)), e[n]),
                                  "variant %d, copy %lld, %d", variant, (long long)k, n);
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}
TEST(copies_that_are_taken_out_have_tangents_that_are_the_same_for_every_copy)
{
    eg_ctx *cx = eg_open(.seed = 1);
    eg_tensor *all = eg_normal(cx, 0, 1, COPIES, 4), *x = eg_normal(cx, 0, 1, 4);
    eg_tensor *p = eg_copies_unstack(eg_copies_open(eg_owner_open(cx), COPIES, NULL), all);
    eg_tensor *v = eg_normal(cx, 0, 1, 4);
    /* The tangent of x + p along v has no copies: it is v for every copy. */
    eg_tensor *taken = eg_jvp(eg_copies_stack(eg_add(x, p)), 1, &x, &v);
    eg_tensor *plain = eg_jvp(eg_add(x, all), 1, &x, &v);
    eg_assert_ok(cx);
    ck_assert(equal_values(taken, eg_copy(plain)));
    /* The same of a gradient, which forward mode goes through a second time. */
    eg_tensor *y = eg_sum(NULL, eg_sin(eg_copies_stack(eg_add(x, p)))), *hv[2];
    ck_assert_msg(!eg_hvp(y, 1, &x, &v, &hv[0]), "%s", eg_error(cx));
    ck_assert_msg(!eg_hvp(eg_sum(NULL, eg_sin(eg_add(x, all))), 1, &x, &v, &hv[1]), "%s",
                  eg_error(cx));
    for (int k = 0; k < 4; k++) ck_assert_double_eq_tol(eg_f32(hv[0])[k], eg_f32(hv[1])[k], 1e-5);
    eg_close(cx);
}
