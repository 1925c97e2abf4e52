/* test_copies.c: tensors with copies: every operation does for each copy, to the bit, what it does
 * for a tensor alone. */
#include <eingrad.h>
#include <stdlib.h>
#include <string.h>
#include "tests.h"

enum { COPIES = 3 };

/* True if both hold the same bytes. */
static bool copies_equal(eg_tensor *a, eg_tensor *b)
{
    if (!eg_ok(a) || !eg_ok(b) || eg_rank(a) != eg_rank(b) || eg_type(a) != eg_type(b))
        return false;
    for (int k = 0; k < eg_rank(a); k++)
        if (eg_dim(a, k) != eg_dim(b, k)) return false;
    eg_tensor *x = eg_contiguous(a), *y = eg_contiguous(b);
    const size_t width = eg_type(a) == EG_BOOL                          ? 1
                         : eg_type(a) == EG_F32 || eg_type(a) == EG_I32 ? 4
                         : eg_type(a) == EG_C128                        ? 16
                                                                        : 8;
    return !memcmp(eg_raw(x, NULL), eg_raw(y, NULL), width * (size_t)eg_size(a));
}

/* -- every sample of every row ----------------------------------------------------------------- */
/* "2x3:b, 4:i5": one operand of a sample, COPIES times; NULL: no more. */
static eg_tensor *copies_operand(eg_ctx *cx, const eg_sample *s, const char **at)
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
        for (; *c >= '0' && *c <= '9'; c = *end == 'x' ? end + 1 : end)
            dim[rank++] = strtoll(c, &end, 10);
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

/* What a sample makes of copies, and of each of them alone. */
typedef struct trial {
    const eg_op *op;
    const eg_sample *s;
    int shared; /* this operand is one for all; −1: none */
    int n, bad;
    const eg_copies *c;
    eg_tensor *all[16], *in[16]; /* the operands: (copies, …), and as the sample gets them */
    eg_tensor *y, *d[16];        /* its result, and cotangents of the operands */
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
/* The gradients of ⟨cos y, y⟩: cos y is a cotangent that differs from copy to copy. */
static bool slopes_of(eg_tensor *y, int n, eg_tensor *const *in, eg_tensor **d)
{
    eg_tensor *xs[16];
    const int floats = floats_of(n, in, xs);
    return !eg_grad(y, eg_cos(eg_detach(y)), floats, xs, d);
}
static void alone(trial *t, int64_t k)
{
    eg_ctx *cx = eg_context(t->all[0]);
    eg_tensor *one[16], *e[16];
    for (int i = 0; i < t->n; i++)
        one[i] = i == t->shared ? t->in[i] : eg_copy(eg_select_axis(t->all[i], 0, k));
    eg_seed(cx, eg_copies_seed(t->c, k));
    eg_set_draws(cx, 100);
    eg_tensor *z = t->s->call(one);
    eg_seed(cx, 5);
    if (!copies_equal(eg_copy_at(t->y, k), z)) complain(t, "other bits", k);
    if (!t->slopes) return;
    if (!slopes_of(z, t->n, one, e)) complain(t, "no gradient", k);
    for (int i = 0, f = 0; i < t->n; i++) {
        if (eg_type(one[i]) != EG_F32) continue;
        if (i != t->shared && !copies_equal(eg_copy_at(t->d[f], k), e[f]))
            complain(t, "other bits of a gradient", k);
        f++;
    }
}
/* One sample on copies of all operands but the shared one. Returns how much is wrong. */
static int try_sample(eg_ctx *cx, const eg_op *op, const eg_sample *s, int shared)
{
    trial t = { .op = op, .s = s, .shared = shared };
    const char *at = s->shapes;
    t.c = eg_copies_open(eg_owner_open(cx), COPIES, NULL);
    while (t.n < 16 && (t.all[t.n] = copies_operand(cx, s, &at))) t.n++;
    if (shared >= t.n || (shared >= 0 && t.n == 1)) return 0;
    for (int k = 0; k < t.n; k++)
        t.in[k] = k == shared ? eg_select_axis(t.all[k], 0, 0) : eg_copies_in(t.c, t.all[k]);
    eg_set_draws(cx, 100);
    t.y = s->call(t.in);
    eg_tensor *xs[16];
    t.slopes = eg_type(t.y) == EG_F32 && floats_of(t.n, t.in, xs) && op->rule;
    if (!eg_ok(t.y) || !eg_copies_of(t.y))
        complain(&t, "no result", 0);
    else if (t.slopes && !slopes_of(t.y, t.n, t.in, t.d))
        complain(&t, "no gradient", 0);
    else
        for (int k = 0; k < COPIES; k++) alone(&t, k);
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
                bad += try_sample(cx, op, s, shared);
                eg_pop(cx, m);
            }
    }
    ck_assert_int_gt(calls, 200);
    ck_assert_int_eq(bad, 0);
    eg_close(cx);
}
