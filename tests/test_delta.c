/* test_delta.c: the delta rule of linear attention: every set of letters, chunk and length compared
 * with the recurrence step by step, values and gradients; laws of the rule; keys that make the
 * systems badly conditioned. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 29); }
static void close_cx(void) { eg_close(cx); }

GROUP("delta", .setup = open_f64, .teardown = close_cx)

static const char spec[] = "bihd,bjhd,bjhe->bihe";
/* Returns x, with these axes, as (b j h) or, if `channels`, (b j h d). */
static eg_tensor *in_full(const char *axes, eg_tensor *x, int64_t n, bool channels)
{
    char text[32];
    const int64_t dims[] = { 2, n, 2, 3 };
    if (!x) return NULL;
    snprintf(text, sizeof text, "%s, %s", channels ? "bjhd" : "bjh", axes);
    eg_tensor *out[] = { eg_full_n(cx, EG_F64, 1, channels ? 4 : 3, dims), x };
    ck_assert_int_eq(eg_align_n(text, 2, out, out), 0);
    return out[1];
}
static eg_tensor *factor_of(const char *axes, int64_t n, double high)
{
    const int64_t size[] = { 2, n, 2, 3 };
    int64_t dims[4];
    int rank = 0;
    if (!axes) return NULL;
    for (const char *c = axes; *c; c++) dims[rank++] = size[strchr("bjhd", *c) - "bjhd"];
    return eg_uniform_n(cx, EG_F64, 0.3, high, rank, dims);
}
/* The recurrence, for the last `queries` positions: S = a S, u = β (v − r·S), S += k u, y = q·S.
 * beta (b j h); a: (b j h d), or NULL. Sets *last to the state after all. */
static eg_tensor *read_by(eg_tensor *r, eg_tensor *q, eg_tensor *k, eg_tensor *v, eg_tensor *beta,
                          eg_tensor *a, eg_tensor **last)
{
    const int64_t n = eg_dim(k, 1), from = n - eg_dim(q, 1);
    eg_tensor *S = NULL, *y[128];
    for (int64_t j = 0; j < n; j++) {
        eg_tensor *kj = eg_select_axis(k, 1, j), *u = eg_select_axis(v, 1, j);
        if (S && a) S = eg_on("bhde,bhd", eg_mul, S, eg_select_axis(a, 1, j));
        if (S) u = eg_sub(u, eg_einsum("bhd,bhde->bhe", eg_select_axis(r, 1, j), S));
        u = eg_on("bhe,bh", eg_mul, u, eg_select_axis(beta, 1, j));
        eg_tensor *more = eg_einsum("bhd,bhe->bhde", kj, u);
        S = S ? eg_add(S, more) : more;
        if (j >= from) y[j - from] = eg_einsum("bhd,bhde->bhe", eg_select_axis(q, 1, j - from), S);
    }
    *last = S;
    return eg_stack_axis_n(1, (int)(n - from), y);
}
static eg_tensor *step_by_step(eg_tensor *q, eg_tensor *k, eg_tensor *v, eg_tensor *beta,
                               eg_tensor *a, eg_tensor **last)
{
    return read_by(k, q, k, v, beta, a, last);
}

static const char *const decays[] = { NULL, "h", "bjh", "bjhd", "hd", "j", "", "hjdb" },
                         *const betas[] = { "bjh", "bj", "h", "", "jhb" };
enum { DECAYS = sizeof decays / sizeof *decays, BETAS = sizeof betas / sizeof *betas };

/* lengths below, at and above a chunk; with older keys; weights; another order of axes */
LOOP_TEST(delta_is_its_recurrence, DECAYS *BETAS)
{
    static const struct {
        int64_t queries, keys, chunk;
    } cases[] = { { 70, 70, 0 }, { 33, 33, 16 }, { 9, 9, 1 }, { 9, 30, 7 }, { 1, 1, 0 } };
    const char *decay = decays[_i / BETAS], *beta = betas[_i % BETAS];
    const int64_t n = cases[(_i / 3) % 5].queries, l = cases[(_i / 3) % 5].keys,
                  chunk = cases[(_i / 3) % 5].chunk;
    eg_tensor *q = eg_normal(cx, 0, 1, 2, n, 2, 3), *k = eg_normal(cx, 0, 0.5, 2, l, 2, 3),
              *v = eg_normal(cx, 0, 1, 2, l, 2, 4), *a = factor_of(decay, l, 1),
              *b = factor_of(beta, l, 1.2), *w, *end, *last;
    eg_tensor *y = eg_linear_attention(spec, q, k, v, .phi = "x", .no_norm = true,
                                       .where = "j <= i", .offset = l - n, .chunk = chunk,
                                       .decay = { decay, a }, .beta = { beta, b }, .weights = &w,
                                       .weights_axes = "bhij", .next = &end),
              *z = step_by_step(q, k, v, in_full(beta, b, l, false), in_full(decay, a, l, true),
                                &last);
    eg_assert_ok(cx);
    eg_assert_close(y, z, 1e-10);
    eg_assert_close(eg_contiguous(end), last, 1e-10);
    eg_assert_close(eg_einsum("bhij,bjhe->bihe", w, v), z, 1e-10);
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, n, 2, 4), *xs[] = { q, k, v, b, a }, *one[5], *two[5];
    const int count = a ? 5 : 4;
    ck_assert(!eg_grad(y, seed, count, xs, one) && !eg_grad(z, seed, count, xs, two));
    for (int x = 0; x < count; x++) eg_assert_close(one[x], two[x], 1e-9);
    eg_tensor *moved = eg_linear_attention(
        "ibhd,jbhd,ejbh->hibe", eg_transpose(q, 0, 1),
        eg_flip_axis(eg_flip_axis(eg_transpose(k, 0, 1), 3), 3),
        eg_rearrange("b j h e -> e j b h", v), .phi = "x", .no_norm = true, .where = "j<=i",
        .offset = l - n, .chunk = chunk, .decay = { decay, a }, .beta = { beta, b });
    eg_assert_close(eg_rearrange("h i b e -> b i h e", moved), y, 1e-12);
}

/* Other keys read the state than write to it; masked ones, which may be NaN, do neither. */
LOOP_TEST(delta_reads_by_other_keys, DECAYS * 3)
{
    enum { N = 21 };
    const char *decay = decays[_i / 3];
    eg_tensor *q = eg_normal(cx, 0, 1, 2, N, 2, 3), *k = eg_normal(cx, 0, 0.5, 2, N, 2, 3),
              *r = eg_normal(cx, 0, 0.5, 2, N, 2, 3), *v = eg_normal(cx, 0, 1, 2, N, 2, 4),
              *a = factor_of(decay, N, 1), *b = factor_of("bjh", N, 1.2), *w, *end, *last;
    eg_tensor *here = eg_expr("b=2 j=21", "(j + b) % 4 > 0", .cx = cx),
              *y = eg_linear_attention(
                  spec, q, k, v, .phi = "x * abs(x)", .no_norm = true,
                  .read = eg_where(eg_rearrange("b j -> b j 1 1", here), r, eg_full(cx, NAN, 1)),
                  .where = "j <= i", .keep = { "bj", here },
                  .chunk = (int64_t[]){ 0, 1, 5 }[_i % 3], .decay = { decay, a },
                  .beta = { "bjh", b }, .weights = &w, .weights_axes = "bhij", .next = &end),
              *some = eg_on("bjh,bj", eg_mul, b, eg_cast(here, EG_F64)),
              *z = read_by(eg_mul(r, eg_abs(r)), eg_mul(q, eg_abs(q)), eg_mul(k, eg_abs(k)), v,
                           some, in_full(decay, a, N, true), &last);
    eg_assert_ok(cx);
    eg_assert_close(y, z, 1e-10);
    eg_assert_close(eg_contiguous(end), last, 1e-10);
    eg_assert_close(eg_einsum("bhij,bjhe->bihe", w, v), z, 1e-10);
    eg_tensor *seed = eg_normal(cx, 0, 1, 2, N, 2, 4), *xs[] = { r, q, k, v, b, a }, *one[6],
              *two[6];
    const int count = a ? 6 : 5;
    ck_assert(!eg_grad(y, seed, count, xs, one) && !eg_grad(z, seed, count, xs, two));
    for (int x = 0; x < count; x++) eg_assert_close(one[x], two[x], 1e-9);
}

/* RWKV-7, S = S diag(w) − (S κ) (κ a)ᵀ + v kᵀ with κ of length 1, in two positions for each token:
 * the first one reads by κ / w, after the decay w, and writes along κ a; the second one adds. */
TEST(a_token_may_be_two_positions)
{
    enum { N = 9 };
    eg_tensor *q = eg_normal(cx, 0, 1, 2, N, 2, 3), *k = eg_normal(cx, 0, 1, 2, N, 2, 3),
              *c = eg_normal(cx, 0, 1, 2, N, 2, 3), *v = eg_normal(cx, 0, 1, 2, N, 2, 4),
              *w = eg_uniform(cx, 0.6, 1, 2, N, 2, 3), *a = eg_uniform(cx, 0, 1, 2, N, 2, 3),
              *none = eg_zeros_like(c), *S = eg_zeros(cx, 2, 2, 3, 4), *z[N];
    c = eg_div(c, eg_on("bjhd,bjh", eg_mul, eg_ones_like(c), eg_pnorm("b j h [d]", c, 2)));
    for (int64_t j = 0; j < N; j++) {
        eg_tensor *x[5] = { k, c, v, w, eg_mul(c, a) };
        for (int n = 0; n < 5; n++) x[n] = eg_select_axis(x[n], 1, j);
        eg_tensor *had = eg_einsum("bhde,bhd->bhe", S, x[1]);
        S = eg_sub(eg_on("bhde,bhd", eg_mul, S, x[3]), eg_einsum("bhd,bhe->bhde", x[4], had));
        S = eg_add(S, eg_einsum("bhd,bhe->bhde", x[0], x[2]));
        z[j] = eg_einsum("bhd,bhde->bhe", eg_select_axis(q, 1, j), S);
    }
#define TWO(one, other) eg_rearrange("b j n h d -> b (j n) h d", eg_stack_axis(2, one, other))
    eg_tensor *y = eg_linear_attention(
        spec, TWO(q, q), TWO(eg_mul(c, a), k), TWO(eg_zeros_like(v), v), .phi = "x",
        .no_norm = true, .where = "j <= i", .decay = { "bjhd", TWO(w, eg_ones_like(w)) },
        .beta = { "", eg_scalar(cx, 1) }, .read = TWO(eg_div(c, w), none));
    eg_assert_ok(cx);
    eg_assert_close(eg_contiguous(eg_slice_axis(y, 1, 1, EG_END, 2)), eg_stack_axis_n(1, N, z),
                    1e-12);
#undef TWO
}

typedef struct called {
    const char *decay, *beta;
    int64_t chunk;
} called;
static eg_tensor *call(void *user, eg_tensor *const *x)
{
    const called *c = user;
    return eg_linear_attention("bid,bjd,bje->bie", x[0], x[1], x[2], .phi = "x", .where = "j <= i",
                               .no_norm = true, .chunk = c->chunk, .beta = { c->beta, x[3] },
                               .decay = { c->decay, c->decay ? x[4] : NULL });
}
LOOP_TEST(delta_to_second_order, 5)
{
    static called kinds[] = {
        { NULL, "bj", 2 },  { "b", "b", 2 },    { "bj", "bj", 0 },
        { "bjd", "bj", 2 }, { "bjd", "bj", 0 },
    };
    called *c = &kinds[_i];
    const int64_t dims[] = { 1, 3, 2 };
    eg_tensor *q = eg_normal(cx, 0, 1, 1, 3, 2), *k = eg_normal(cx, 0, 1, 1, 3, 2),
              *v = eg_normal(cx, 0, 1, 1, 3, 2),
              *b = eg_uniform_n(cx, EG_F64, 0.3, 1, (int)strlen(c->beta), dims);
    if (!c->decay)
        eg_assert_grad2(call, c, q, k, v, b);
    else
        eg_assert_grad2(call, c, q, k, v, b,
                        eg_uniform_n(cx, EG_F64, 0.3, 1, (int)strlen(c->decay), dims));
}

/* pieces of any length with states are the whole call, in f64 and f32 */
LOOP_TEST(delta_continues_from_a_state, DECAYS * 2)
{
    const char *decay = decays[_i / 2];
    const eg_dtype type = _i % 2 ? EG_F32 : EG_F64;
    const double close = _i % 2 ? 1e-4 : 1e-12;
    eg_tensor *q = eg_cast(eg_normal(cx, 0, 1, 2, 12, 2, 3), type),
              *k = eg_cast(eg_normal(cx, 0, 0.5, 2, 12, 2, 3), type),
              *v = eg_cast(eg_normal(cx, 0, 1, 2, 12, 2, 4), type), *state = NULL, *end, *parts[12],
              *a = decay ? eg_cast(factor_of(decay, 12, 1), type) : NULL,
              *b = eg_cast(factor_of("bjh", 12, 1.2), type);
    eg_tensor *whole =
        eg_linear_attention(spec, q, k, v, .phi = "x", .no_norm = true, .where = "j <= i",
                            .decay = { decay, a }, .beta = { "bjh", b }, .next = &end, .chunk = 5);
    static const int64_t ends[2][13] = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0 },
                                         { 5, 6, 12, 0 } };
    const char *place = decay ? strchr(decay, 'j') : NULL;
    for (int way = 0; way < 2; way++, state = NULL) {
        int n = 0;
        for (int64_t from = 0; ends[way][n]; from = ends[way][n++]) {
            const int64_t to = ends[way][n];
            eg_tensor *now = place ? eg_slice_axis(a, (int)(place - decay), from, to, 1) : a;
            parts[n] = eg_linear_attention(
                spec, eg_slice_axis(q, 1, from, to, 1), eg_slice_axis(k, 1, from, to, 1),
                eg_slice_axis(v, 1, from, to, 1), .phi = "x", .where = "j <= i", .no_norm = true,
                .decay = { decay, now }, .beta = { "bjh", eg_slice_axis(b, 1, from, to, 1) },
                .state = state, .next = &state);
        }
        eg_assert_ok(cx);
        eg_assert_close(eg_concat_axis_n(1, n, parts), whole, close);
        eg_assert_close(eg_contiguous(state), eg_contiguous(end), close);
    }
    int64_t b_, h, d, e;
    eg_assert_axes("b h d e", end, &b_, &h, &d, &e);
    ck_assert(b_ == 2 && h == 2 && d == 3 && e == 4);
}

/* q, k and v may each lack the heads or have them alone; so may decay and β */
LOOP_TEST(delta_of_shared_operands, 5)
{
    static const char *const specs[] = { "bihd,bjd,bje->bihe", "bihd,bjd,bjhe->bihe",
                                         "bihd,bjhd,bje->bihe", "bid,bjhd,bjhe->bihe",
                                         "bihd,bjd,bje->bihe" },
                             *const rates[] = { "bjh", "bj", "bj", "bj", "bj" },
                             *const drops[] = { "bj", "bjh", NULL, "bjh", "h" };
    const char *s = specs[_i];
    const bool heads[] = { s[2] == 'h', strncmp(s + 5 - (s[2] != 'h'), "bjh", 3) == 0,
                           strstr(s, "bjhe") != NULL };
    eg_tensor *x[3], *full[3], *last, *a = factor_of(drops[_i], 9, 1),
                                      *b = factor_of(rates[_i], 9, 1);
    for (int n = 0; n < 3; n++) {
        const int64_t width = n == 2 ? 4 : 3;
        x[n] =
            heads[n] ? eg_normal(cx, 0, 0.6, 2, 9, 2, width) : eg_normal(cx, 0, 0.6, 2, 9, width);
        full[n] = heads[n] ? x[n] : eg_expand(eg_unsqueeze(x[n], 2), 2, 9, 2, width);
    }
    eg_tensor *y = eg_linear_attention(s, x[0], x[1], x[2], .phi = "x", .no_norm = true, .chunk = 4,
                                       .where = "j <= i", .beta = { rates[_i], b },
                                       .decay = { drops[_i], a }),
              *z = step_by_step(full[0], full[1], full[2], in_full(rates[_i], b, 9, false),
                                in_full(drops[_i], a, 9, true), &last);
    eg_assert_ok(cx);
    eg_assert_close(y, z, 1e-12);
    eg_tensor *w;
    eg_linear_attention(s, x[0], x[1], x[2], .phi = "x", .no_norm = true, .where = "j <= i",
                        .beta = { rates[_i], b }, .decay = { drops[_i], a }, .weights = &w,
                        .weights_axes = "bhij");
    eg_assert_ok(cx);
    eg_assert_close(eg_einsum("bhij,bjhe->bihe", w, full[2]), z, 1e-12);
}

static eg_tensor *unit(eg_tensor *x)
{
    return eg_on("bjhd,bjh", eg_div, x, eg_pnorm("b j h [d]", x, 2));
}
/* Laws with keys of length 1. β = 1: a query equal to the latest key gets its value, whatever came
 * before. β = 0: nothing is written. β = 2 with values of 0: S is reflected, and keeps its norm. */
TEST(laws_of_keys_of_length_1)
{
    eg_tensor *k = unit(eg_normal(cx, 0, 1, 2, 20, 2, 3)), *v = eg_normal(cx, 0, 1, 2, 20, 2, 4),
              *one = eg_ones(cx, 1), *state = eg_normal(cx, 0, 1, 2, 2, 3, 4), *next,
              *a = factor_of("bjhd", 20, 1);
    one = eg_select_axis(one, 0, 0);
    eg_assert_close(eg_linear_attention(spec, k, k, v, .phi = "x", .no_norm = true, .chunk = 8,
                                        .where = "j <= i", .beta = { "", one }, .state = state,
                                        .decay = { "bjhd", a }),
                    v, 1e-12);
    eg_linear_attention(spec, k, k, v, .phi = "x", .no_norm = true, .where = "j <= i", .chunk = 8,
                        .beta = { "", eg_zeros_like(one) }, .state = state, .next = &next);
    eg_assert_close(eg_contiguous(next), state, 1e-14);
    eg_linear_attention(spec, k, k, eg_zeros_like(v), .phi = "x", .no_norm = true, .chunk = 8,
                        .where = "j <= i", .beta = { "", eg_scale(one, 2) }, .state = state,
                        .next = &next);
    eg_assert_close(eg_sum("b h [d] e", eg_square(next)), eg_sum("b h [d] e", eg_square(state)),
                    1e-12);
}

/* Equal and nearly equal keys of length 1, whose systems an inverse as a product of powers cannot
 * solve: f32 in chunks of 64 against the recurrence in f64. */
LOOP_TEST(equal_keys_are_accurate, 6)
{
    const double beta = _i % 3 == 0 ? 0.5 : _i % 3, near = _i / 3 ? 1e-3 : 0;
    eg_tensor *k = unit(
                  eg_add(eg_normal(cx, 0, 1, 2, 1, 2, 3), eg_normal(cx, 0, near, 2, 100, 2, 3))),
              *v = eg_normal(cx, 0, 1, 2, 100, 2, 4), *b = eg_full(cx, beta, 2, 100, 2), *last;
    k = eg_cast(eg_cast(k, EG_F32), EG_F64);
    v = eg_cast(eg_cast(v, EG_F32), EG_F64);
    eg_tensor *z = step_by_step(k, k, v, b, NULL, &last), *k32 = eg_cast(k, EG_F32),
              *y = eg_linear_attention(spec, k32, k32, eg_cast(v, EG_F32), .phi = "x",
                                       .no_norm = true, .where = "j <= i", .chunk = 64,
                                       .beta = { "bjh", eg_cast(b, EG_F32) });
    eg_assert_ok(cx);
    eg_tensor *error = eg_max(NULL, eg_abs(eg_sub(eg_cast(y, EG_F64), z)));
    const double of = eg_item(eg_max(NULL, eg_abs(z)));
    ck_assert_msg(eg_item(error) < 2e-4 * of, "%g of %g", eg_item(error), of);
}

/* what PyTorch's autograd gives for the recurrence (f64), with cotangents cos(0.3 n) */
LOOP_TEST(delta_as_pytorch, 3)
{
    static const double want[3][5][6] = {
        { { 0.351225164143115, 0.136300963092266, 0.668528758199313, 0.156229383056158,
            -0.131248344999344, -0.0921516924504181 },
          { 0.544793076990988, 0.595310890733603, 0.262284180914614, 0.478972050117183,
            0.124709639875979, 0.18962763728536 },
          { 0.535942876917245, 0.755692322676308, -0.353979649544514, -0.262486455819231,
            -0.00732355306479381, 0.00205441808757477 },
          { 1.05717167943556, 0.898553929765961, 0.132436978716413, 0.0904765954846766,
            0.0108676210376822, 0.00212150862371067 },
          { 2.34899269145529, -0.630420741514467, -0.0413840468745502 } },
        { { 0.351225164143115, 0.136300963092266, 0.166925593824591, -0.0384292045800743,
            -0.0457333245236467, -0.0383405002821438 },
          { 0.544793076990988, 0.595310890733603, -0.00976116830957063, 0.152899106108424,
            0.0336254033081566, 0.0617571008972734 },
          { 0.196605842198838, 0.54716561959377, -0.253292086916274, -0.197384865606901,
            -0.00996771539114158, 0.0175038199287314 },
          { 0.60934449728373, 0.543543520217262, 0.122274882368032, 0.0884928149531955,
            0.0108676210376822, 0.00212150862371067 },
          { 1.37055419094788, -0.509459910345265, -0.103470570610915 } },
        { { 0.351225164143115, 0.136300963092266, 0.295737306213577, 0.0115591284000439,
            -0.105724566629357, -0.0751386012366945 },
          { 0.544793076990988, 0.595310890733603, 0.0249500938956527, 0.280001501883988,
            0.0429445781419183, 0.121801542224933 },
          { 0.241872761962643, 0.625383181733779, -0.269307486356973, -0.209034942556182,
            -0.00837479404884059, 0.0116577382218588 },
          { 0.710027835714958, 0.631915000912437, 0.128934832275732, 0.0897929284843607,
            0.0108676210376822, 0.00212150862371067 },
          { 1.59608056152783, -0.533698346391825, -0.081845972303224 } },
    };
    static const double of_decay[3][6] = { { 0 },
                                           { 0, 0.752560530158651, -0.0187150523769792 },
                                           { 0, 0, 0.415025755795147, 0.316443268565249,
                                             0.00693760918648549, -0.0415279802609014 } };
    const char *const decay[] = { NULL, "bjh", "bjhd" };
    eg_tensor *x[5], *d[5];
    for (int n = 0; n < 5; n++) {
        const int count = n < 3 || (n == 4 && _i == 2) ? 6 : 3;
        double of[6];
        for (int k = 0; k < count; k++) {
            of[k] = sin(0.7 * k + n + .1);
            if (n == 3) of[k] = 0.5 + 0.4 * of[k];
            if (n == 4) of[k] = 0.6 + 0.3 * of[k];
        }
        x[n] = count == 6 ? eg_from(cx, of, 1, 3, 1, 2) : eg_from(cx, of, 1, 3, 1);
    }
    double seed[6];
    for (int k = 0; k < 6; k++) seed[k] = cos(0.3 * k);
    for (int64_t chunk = 0; chunk < 3; chunk++) {
        eg_tensor *y = eg_linear_attention(
            spec, x[0], x[1], x[2], .phi = "x", .no_norm = true, .where = "j <= i", .chunk = chunk,
            .beta = { "bjh", x[3] }, .decay = { decay[_i], _i ? x[4] : NULL });
        ck_assert_int_eq(eg_grad(y, eg_from(cx, seed, 1, 3, 1, 2), _i ? 5 : 4, x, d), 0);
        for (int n = 0; n < (_i ? 6 : 5); n++) {
            const double *w = n < 5 ? want[_i][n] : of_decay[_i], *g = eg_f64(n ? d[n - 1] : y);
            for (int64_t k = 0; k < eg_size(n ? d[n - 1] : y); k++)
                ck_assert_double_eq_tol(g[k], w[k], 1e-13);
        }
    }
}

/* a masked key changes nothing: the result is that without it; it may be NaN, as may its β */
LOOP_TEST(masked_keys_change_nothing, 2)
{
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 30, 2, 3), *k = eg_normal(cx, 0, 0.5, 2, 30, 2, 3),
              *v = eg_normal(cx, 0, 1, 2, 30, 2, 4), *b = factor_of("bjh", 30, 1),
              *pad = eg_ones(cx, 30), *bad = eg_full(cx, NAN, 1), *y;
    eg_assign(eg_slice_axis(pad, 0, 10, 15, 1), eg_zeros(cx, 5));
    pad = eg_cast(pad, EG_BOOL);
    eg_tensor *wide = eg_unsqueeze(eg_unsqueeze(pad, -1), -1);
    eg_tensor *kn = eg_where(wide, k, bad), *vn = eg_where(wide, v, bad),
              *bn = eg_where(eg_unsqueeze(pad, -1), b, bad);
    if (_i)
        y = eg_linear_attention(spec, q, kn, vn, .phi = "x", .no_norm = true,
                                .where = "j <= i & pad[j]", .with = { { "pad", pad } },
                                .beta = { "bjh", bn }, .chunk = 8);
    else
        y = eg_linear_attention(spec, q, kn, vn, .phi = "x", .no_norm = true, .where = "j <= i",
                                .keep = { "j", pad }, .beta = { "bjh", bn }, .chunk = 8);
#define WITHOUT(x) \
    eg_concat_axis(1, eg_slice_axis(x, 1, 0, 10, 1), eg_slice_axis(x, 1, 15, EG_END, 1))
    eg_tensor *z =
        eg_linear_attention(spec, WITHOUT(q), WITHOUT(k), WITHOUT(v), .phi = "x", .no_norm = true,
                            .where = "j <= i", .beta = { "bjh", WITHOUT(b) });
    eg_assert_ok(cx);
    eg_assert_close(WITHOUT(y), z, 1e-12);
}

/* DeltaNet in the module: β of the run or of the module, in groups, with heads of different widths
 * and with a cache */
LOOP_TEST(delta_in_the_module, 6)
{
    eg_params *p = eg_params_open(cx);
    double rate[] = { 0.9, 0.8, 0.95, 0.7 };
    static const int64_t each[] = { 2, 2, 2, 2 };
    eg_tensor *g = eg_from(cx, rate, 4);
    const bool groups = _i % 3 == 1, own = _i / 3, widths = _i % 3 == 2;
    const eg_linear_attention_args constant = { .phi = "x", .no_norm = true, .beta = { "h", g } },
                                   gated = { .phi = "x", .no_norm = true };
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 4, .kv_heads = groups ? 2 : 4,
                           .form = widths ? EG_PER_HEAD : EG_SEPARATE,
                           .d_k_each = widths ? each : NULL, .linear = own ? &constant : &gated,
                           .qk_norm = widths ? EG_QK_AS_IS : EG_QK_UNIT);
    eg_assert_ok(cx);
    randomise(p, 0.5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8), *parts[6], *last,
              *beta = own ? NULL : eg_sigmoid(eg_normal(cx, 0, 1, 2, 6, 4)),
              *decay = eg_sigmoid(eg_normal(cx, 2, 1, 2, 6, 4)),
              *y = eg_mha_run(m, x, .where = "j <= i", .beta = { own ? NULL : "bjh", beta },
                              .decay = { "bjh", decay });
    eg_assert_ok(cx);
    eg_tensor *q = eg_einsum("bim,mhd->bihd", x, eg_reshape(eg_mha_weight(m, "W_q"), 8, 4, 2)),
              *k = eg_einsum("bjm,mhd->bjhd", x,
                             eg_reshape(eg_mha_weight(m, "W_k"), 8, groups ? 2 : 4, 2)),
              *v = eg_einsum("bjm,mhd->bjhd", x,
                             eg_reshape(eg_mha_weight(m, "W_v"), 8, groups ? 2 : 4, 2));
    q = eg_on("bihd,hd", eg_add, q, eg_reshape(eg_mha_weight(m, "b_q"), 4, 2));
    k = eg_on("bihd,hd", eg_add, k, eg_reshape(eg_mha_weight(m, "b_k"), groups ? 2 : 4, 2));
    v = eg_on("bihd,hd", eg_add, v, eg_reshape(eg_mha_weight(m, "b_v"), groups ? 2 : 4, 2));
    if (!widths) q = unit(q), k = unit(k);
    if (groups) {
        k = eg_rearrange("b j g d -> b j (g r=2) d", k);
        v = eg_rearrange("b j g d -> b j (g r=2) d", v);
    }
    eg_tensor *all = own ? eg_expand(g, 2, 6, 4) : beta,
              *z = step_by_step(q, k, v, all, eg_expand(eg_unsqueeze(decay, 3), 2, 6, 4, 2), &last);
    z = eg_on("bim,m", eg_add,
              eg_einsum("bihe,hem->bim", z, eg_reshape(eg_mha_weight(m, "W_o"), 4, 2, 8)),
              eg_mha_weight(m, "b_o"));
    eg_assert_close(y, z, 1e-12);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    for (int t = 0; t < 6; t++)
        parts[t] = eg_mha_run(
            m, eg_slice_axis(x, 1, t, t + 1, 1), .where = "j <= i", .cache = c,
            .beta = { own ? NULL : "bjh", own ? NULL : eg_slice_axis(beta, 1, 0, t + 1, 1) },
            .decay = { "bjh", eg_slice_axis(decay, 1, 0, t + 1, 1) });
    eg_assert_ok(cx);
    eg_assert_close(eg_concat_axis_n(1, 6, parts), y, 1e-12);
    eg_nograd(cx, false);
}

/* .read in the module is that of the function: the module's own keys as .read change nothing, and
 * others are those of the recurrence; heads grouped, of different widths, with a cache */
LOOP_TEST(keys_that_read_in_the_module, 3)
{
    eg_params *p = eg_params_open(cx);
    static const int64_t each[] = { 2, 3, 1, 2 };
    const bool groups = _i == 1, widths = _i == 2;
    const int64_t g = groups ? 2 : 4;
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 4, .kv_heads = g,
                           .form = widths ? EG_PER_HEAD : EG_SEPARATE,
                           .d_k_each = widths ? each : NULL, .no_bias = true,
                           .linear = &(eg_linear_attention_args){ .phi = "x", .no_norm = true });
    randomise(p, 0.5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8), *b = eg_sigmoid(eg_normal(cx, 0, 1, 2, 6, 4)),
              *k = eg_einsum(widths ? "bjm,ms->bjs" : "bjm,mhd->bjhd", x, eg_mha_weight(m, "W_k")),
              *r = eg_scale(k, 0.5), *last, *parts[6];
    eg_tensor *y = eg_mha_run(m, x, .where = "j <= i", .beta = { "bjh", b });
    eg_assert_close(eg_mha_run(m, x, .where = "j <= i", .beta = { "bjh", b }, .read = k), y, 1e-12);
    y = eg_mha_run(m, x, .where = "j <= i", .beta = { "bjh", b }, .read = r);
    eg_assert_ok(cx);
    if (!widths) {
        eg_tensor *q = eg_einsum("bim,mhd->bihd", x, m->W_q),
                  *v = eg_einsum("bjm,mhe->bjhe", x, m->W_v);
        eg_tensor **const all[] = { &k, &v, &r };
        for (int n = 0; n < 3 && groups; n++)
            *all[n] = eg_rearrange("b j g d -> b j (g r=2) d", *all[n]);
        eg_tensor *z = read_by(r, q, k, v, b, NULL, &last);
        eg_assert_close(y, eg_einsum("bihe,hem->bim", z, m->W_o), 1e-12);
    }
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    r = eg_scale(eg_einsum(widths ? "bjm,ms->bjs" : "bjm,mhd->bjhd", x, eg_mha_weight(m, "W_k")),
                 0.5);
    for (int t = 0; t < 6; t++)
        parts[t] = eg_mha_run(m, eg_slice_axis(x, 1, t, t + 1, 1), .where = "j <= i", .cache = c,
                              .beta = { "bjh", eg_slice_axis(b, 1, 0, t + 1, 1) },
                              .read = eg_slice_axis(r, 1, 0, t + 1, 1));
    eg_assert_close(eg_concat_axis_n(1, 6, parts), y, 1e-12);
    eg_nograd(cx, false);
    eg_mha_run(m, x, .where = "j <= i", .beta = { "bjh", b }, .read = b);
    eg_assert_error(cx, widths ? "mha \"a\": .read has other axes than the keys: 3 of them with 8 "
                                 "elements of all heads are needed"
                               : "linear_attention: .read has 3 axes, but the key has 4");
    eg_mha *s = eg_mha_new(p, "s", .d_model = 8, .heads = 4);
    eg_mha_run(s, x, .read = k);
    eg_assert_error(cx, "mha \"s\": .read belongs to a linear attention; the module was made "
                        "without .linear");
}

/* .decay, .beta and .read of a block are those of its self attention, in every position of the
 * norms, of a sequence at once and with a cache; a block by softmax refuses them */
LOOP_TEST(gates_of_a_block, 3)
{
    eg_params *p = eg_params_open(cx);
    eg_block *m = eg_block_new(
        p, "a", .d_model = 8, .heads = 4, .width = 8, .post_norm = _i == 1, .branch_norm = _i == 2,
        .mha =
            &(eg_mha_args){ .linear = &(eg_linear_attention_args){ .phi = "x", .no_norm = true } });
    randomise(p, 0.5);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 6, 8), *b = eg_sigmoid(eg_normal(cx, 0, 1, 2, 6, 4)),
              *g = eg_sigmoid(eg_normal(cx, 0, 1, 2, 6, 4)), *r = eg_normal(cx, 0, 0.5, 2, 6, 4, 2);
    eg_tensor *n = _i ? x : eg_norm_run(m->norm_self, x),
              *a = eg_mha_run(m->self, n, .where = "j <= i", .decay = { "bjh", g },
                              .beta = { "bjh", b }, .read = r),
              *sum = _i == 2   ? eg_add(x, eg_norm_run(m->norm_self, a))
                     : _i == 1 ? eg_norm_run(m->norm_self, eg_add(x, a))
                               : eg_add(x, a),
              *f = eg_ffn_run(m->ffn, _i ? sum : eg_norm_run(m->norm_ffn, sum)), *parts[6],
              *want = _i == 2   ? eg_add(sum, eg_norm_run(m->norm_ffn, f))
                      : _i == 1 ? eg_norm_run(m->norm_ffn, eg_add(sum, f))
                                : eg_add(sum, f);
    eg_assert_close(eg_block_run(m, x, .where = "j <= i", .decay = { "bjh", g },
                                 .beta = { "bjh", b }, .read = r),
                    want, 1e-12);
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 6);
    for (int t = 0; t < 6; t++)
        parts[t] = eg_block_run(m, eg_slice_axis(x, 1, t, t + 1, 1), .where = "j <= i", .cache = c,
                                .decay = { "bjh", eg_slice_axis(g, 1, 0, t + 1, 1) },
                                .beta = { "bjh", eg_slice_axis(b, 1, 0, t + 1, 1) },
                                .read = eg_slice_axis(r, 1, 0, t + 1, 1));
    eg_assert_close(eg_concat_axis_n(1, 6, parts), want, 1e-12);
    eg_nograd(cx, false);
    eg_block *s = eg_block_new(p, "s", .d_model = 8, .heads = 4);
    eg_block_run(s, x, .decay = { "bjh", g });
    eg_assert_error(cx, "mha \"s.self\": .decay belongs to a linear attention; the module was made "
                        "without .linear");
}

/* Long keys whose transitions, multiplied over a chunk, overflow, at a state to which they are
 * orthogonal (_i = 0), or of 0 with a value at the last key only: u is finite, and so are y and its
 * gradients. */
LOOP_TEST(a_product_of_transitions_that_overflows, 2)
{
    eg_tensor *n = eg_from(cx, &_i, 1);
    eg_tensor *k = eg_expr("b=1 j=64 h=1 d=2",
                           "d == (j >= 32 ? 1 - i[0] : 0) ? j < 32 ? 1.0 : 1e6 : 0.0",
                           .with = { { "i", n } }),
              *v =
                  eg_expr("b=1 j=64 h=1 e=1", "j == 63 * i[0] ? 1.0 : 0.0", .with = { { "i", n } });
    eg_tensor *y[2], *dv[2];
    for (int c = 0; c < 2; c++) {
        y[c] = eg_linear_attention(spec, k, k, v, .phi = "x", .no_norm = true, .where = "j <= i",
                                   .beta = { "", eg_scalar(cx, 1) }, .chunk = c);
        eg_grad(eg_select_axis(y[c], 1, _i ? 63 : 0), eg_ones(cx, 1, 1, 1), 1, &v, &dv[c]);
    }
    eg_assert_close(y[0], y[1], 1e-12);
    eg_assert_close(dv[0], dv[1], 1e-12);
    ck_assert_double_eq(eg_item(eg_max(NULL, y[0])), _i ? 1e12 : 1);
    eg_assert_ok(cx);
}

/* with copies, each is the call for it alone */
TEST(delta_of_copies)
{
    eg_owner *o = eg_owner_open(cx);
    const eg_copies *s = eg_copies_open(o, 2, NULL);
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 2, 20, 2, 3), *b = eg_uniform(cx, 0, 1, 2, 2, 20, 2),
              *x = eg_copies_unstack(s, q);
    eg_tensor *y =
        eg_linear_attention(spec, x, x, x, .phi = "x", .no_norm = true, .chunk = 8,
                            .where = "j <= i", .beta = { "bjh", eg_copies_unstack(s, b) });
    for (int n = 0; n < 2; n++) {
        eg_tensor *one = eg_select_axis(q, 0, n);
        eg_assert_close(eg_copy_at(y, n),
                        eg_linear_attention(spec, one, one, one, .phi = "x", .no_norm = true,
                                            .chunk = 8, .where = "j <= i",
                                            .beta = { "bjh", eg_select_axis(b, 0, n) }),
                        0);
    }
    eg_assert_ok(cx);
}

LOOP_TEST(delta_refused, 15)
{
    eg_tensor *x = eg_ones(cx, 2, 4, 3, 2), *one = eg_ones(cx, 3);
    const struct {
        eg_linear_attention_args o;
        const char *why;
    } cases[] = {
        { { .beta = { "h", one }, .where = "j <= i" },
          "linear_attention: .beta needs .no_norm = true, since the delta rule has no "
          "denominator" },
        { { .beta = { "h", one }, .no_norm = true },
          ".decay, .beta, .state, .next and .chunk need .where = \"j <= i\"" },
        { { .beta = { "h", NULL }, .no_norm = true, .where = "j <= i" },
          "linear_attention: .beta is NULL" },
        { { .beta = { "bjhd", x }, .no_norm = true, .where = "j <= i" },
          ".beta has one number for all elements of a key, without 'd'" },
        { { .beta = { "i", one }, .no_norm = true, .where = "j <= i" },
          ".beta has the key's indices, and those of the output but 'i' and 'e', each once" },
        { { .beta = { "hh", one }, .no_norm = true, .where = "j <= i" },
          ".beta has the key's indices" },
        { { .beta = { "(bh)", one }, .no_norm = true, .where = "j <= i" },
          "the indices of .beta are needed, as in \"bjh\"" },
        { { .beta = { "b", one }, .no_norm = true, .where = "j <= i" },
          "index 'b' is 2 in operand 1 but 3 in .beta" },
        { { .beta = { "h", eg_cast(one, EG_F32) }, .no_norm = true, .where = "j <= i" },
          "linear_attention: .beta is f32, the key f64" },
        { { .beta = { "h", one }, .no_norm = true, .where = "j <= i", .state = eg_ones(cx, 2) },
          "linear_attention: .state has 1 axis," },
        { { .beta = { "h", one },
            .no_norm = true,
            .where = "j <= i",
            .state = eg_ones(cx, 2, 3, 2, 5) },
          "linear_attention: index 'e' is 2 in the value but 5 in .state" },
        { { .read = x, .where = "j <= i" }, "linear_attention: .read is read with .beta only" },
        { { .beta = { "h", one }, .no_norm = true, .where = "j <= i", .read = one },
          "linear_attention: .read has 1 axis, but the key has 4" },
        { { .beta = { "h", one },
            .no_norm = true,
            .where = "j <= i",
            .read = eg_ones(cx, 2, 4, 3, 1) },
          "linear_attention: index 'd' is 2 in the key but 1 in .read" },
        { { .beta = { "h", one }, .no_norm = true, .where = "j <= i", .read = eg_cast(x, EG_F32) },
          "linear_attention: .read is f32, the key f64" },
    };
    eg_linear_attention_args o = cases[_i].o;
    o.size = sizeof o, o.spec = spec, o.q = o.k = o.v = x;
    ck_assert(!eg_ok(eg_linear_attention_with(&o)));
    eg_assert_error(cx, cases[_i].why);
}

/* With .chunk = 1 a NaN in a value, or a state that overflows since β k·k is large, reaches no
 * earlier position; a masked key reaches none. */
TEST(what_is_not_finite_spreads_forward_step_by_step)
{
    enum { N = 40, AT = 33 };
    eg_tensor *x = eg_ones(cx, N, 2), *one = eg_ones(cx, N), *v = eg_normal(cx, 0, 1, N, 3);
    for (int how = 0; how < 4; how++) {
        eg_tensor *keys = how == 1 ? eg_scale(x, 1e160) : x, *bad = eg_copy(v);
        bool here[N];
        for (int n = 0; n < N; n++) here[n] = how < 3 || n < AT;
        if (how != 1)
            for (int e = 0; e < 3; e++) eg_mut_f64(bad)[3 * AT + e] = NAN;
        eg_tensor *y = eg_linear_attention(
            "id,jd,je->ie", x, keys, bad, .phi = "x", .no_norm = true, .where = "j <= i",
            .beta = { how == 2 ? NULL : "j", how == 2 ? NULL : one },
            .keep = { "j", eg_from(cx, here, N) }, .chunk = how == 3 ? 0 : 1);
        const double *p = eg_f64(y);
        eg_assert_ok(cx);
        const int finite = how == 1 ? 1 : how == 3 ? N : AT;
        for (int n = 0; n < 3 * N; n++)
            ck_assert_msg(isfinite(p[n]) == (n < 3 * finite) || (how == 1 && n < 9), "%d: %d", how,
                          n);
    }
}

TEST(beta_without_linear_is_refused)
{
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "a", .d_model = 8, .heads = 4);
    ck_assert(!eg_ok(eg_mha_run(m, eg_ones(cx, 1, 2, 8), .beta = { "h", eg_ones(cx, 4) })));
    eg_assert_error(cx, ".beta belongs to a linear attention; the module was made without .linear");
}
