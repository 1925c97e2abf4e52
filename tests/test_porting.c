/* test_porting.c: what docs/porting.md says of NumPy, JAX, PyTorch, einops and einx: the formulas
 * of its sections, with the values of those libraries in f64. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 28); }
static void shut(void)
{
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    eg_close(cx);
}
/* sin(1.7 k) for k = 0, 1, …, as the references have it */
static eg_tensor *waves(int64_t n) { return eg_sin(eg_scale(eg_arange(cx, EG_F64, 0, n, 1), 1.7)); }
#define F64(...) eg_from(cx, ((double[]){ __VA_ARGS__ }), sizeof((double[]){ __VA_ARGS__ }) / 8)
#define I64(...) eg_from(cx, ((int64_t[]){ __VA_ARGS__ }), sizeof((int64_t[]){ __VA_ARGS__ }) / 8)

GROUP("numpy", .setup = open_f64, .teardown = shut)

TEST(quantiles)
{
    eg_tensor *x = eg_reshape(waves(27), 3, 9), *q = F64(0, 0.1, 0.5, 1);
    eg_tensor *sorted = eg_sort("b [l]", x), *at = eg_scale(q, 8);
    eg_tensor *lower = eg_clip(eg_cast(eg_floor(at), EG_I64), 0, 7);
    eg_tensor *y = eg_expr("q b", "s[b, i[q]] + (a[q] - i[q]) * (s[b, i[q] + 1] - s[b, i[q]])",
                           .with = { { "s", sorted }, { "i", lower }, { "a", at } });
    eg_tensor *numpy = F64(-0.925814682328, -0.971798445744, -0.99608650312, -0.74506268654,
                           -0.963477682652, -0.926950638091, 0, -0.108636595424, 0.0406932573499,
                           0.991664810452, 0.999792900143, 0.985600298791);
    eg_assert_close(y, eg_reshape(numpy, 4, 3), 1e-11);
}

TEST(histogram)
{
    eg_tensor *v = waves(9), *low = eg_min(NULL, v);
    eg_tensor *part = eg_div(eg_sub(v, low), eg_sub(eg_max(NULL, v), low));
    eg_tensor *bin = eg_cast(eg_clip(eg_scale(part, 5), 0, 4), EG_I64);
    eg_assert_close(eg_scatter_add("[n], l, l", eg_zeros(cx, 5), bin, eg_ones_like(v)),
                    F64(3, 1, 1, 1, 3), 0);
}

TEST(covariance)
{
    eg_tensor *x = eg_reshape(waves(27), 3, 9);
    eg_tensor *centred = eg_sub(x, eg_mean("b [l] -> b 1", x));
    eg_tensor *unit = eg_div(centred, eg_pnorm("b [l] -> b 1", centred, 2));
    eg_assert_close(eg_scale(eg_einsum("b l, d l -> b d", centred, centred), 1.0 / 8),
                    eg_reshape(F64(0.543943705989, -0.49480123429, 0.364442860295, -0.49480123429,
                                   0.537807005997, -0.492537975164, 0.364442860295, -0.492537975164,
                                   0.539788675556),
                               3, 3),
                    1e-11);
    eg_assert_close(eg_einsum("b l, d l -> b d", unit, unit),
                    eg_reshape(F64(1, -0.914830359509, 0.672574788953, -0.914830359509, 1,
                                   -0.914143990061, 0.672574788953, -0.914143990061, 1),
                               3, 3),
                    1e-11);
}

TEST(mean_without_nan)
{
    eg_tensor *x = eg_reshape(waves(27), 3, 9);
    x = eg_where(eg_gt(x, eg_full(cx, 0.8, 1)), eg_full(cx, NAN, 1), x);
    eg_tensor *given = eg_where(eg_isnan(x), eg_zeros_like(x), eg_ones_like(x));
    eg_tensor *sum = eg_sum("b [l]", eg_where(eg_isnan(x), eg_zeros_like(x), x));
    eg_assert_close(eg_div(sum, eg_sum("b [l]", given)),
                    F64(-0.172395302918, -0.288667138812, -0.171211805633), 1e-11);
}

TEST(interpolation)
{
    eg_tensor *p = eg_arange(cx, EG_F64, 0, 7, 1), *f = waves(7);
    eg_tensor *w = eg_scale(eg_shift(waves(9), 0.8), 4);
    eg_tensor *left = eg_expr("l h", "p[h] <= w[l]", .with = { { "p", p }, { "w", w } });
    eg_tensor *i = eg_clip(eg_shift(eg_sum("l [h]", left), -1), 0, 5);
    eg_tensor *share = eg_expr("l", "clip((w - p[i]) / (p[i + 1] - p[i]), 0, 1)",
                               .with = { { "w", w }, { "i", i }, { "p", p } });
    eg_tensor *y = eg_expr("l", "f[i] + (f[i + 1] - f[i]) * t",
                           .with = { { "f", f }, { "i", i }, { "t", share } });
    eg_assert_close(y,
                    F64(-0.641829075634, -0.699874687594, -0.37473960091, 0, 0.534096071721,
                        -0.699874687594, 0.397162995796, 0.721388104487, -0.699874687594),
                    1e-11);
}

TEST(fourier_transform)
{
    eg_tensor *v = waves(9);
    eg_tensor *turn = eg_expr("k=9 n=9", "6.283185307179586 * (k * n % 9) / 9", .cx = cx);
    eg_assert_close(eg_einsum("k n, n -> k", eg_cos(turn), v),
                    F64(0.644059504886, 0.864300389259, 2.94541572895, -2.76056380732,
                        -1.37118206332, -1.37118206332, -2.76056380732, 2.94541572895,
                        0.864300389259),
                    1e-11);
    eg_assert_close(eg_neg(eg_einsum("k n, n -> k", eg_sin(turn), v)),
                    F64(0, -0.142486913183, -0.645822574509, 0.462861805581, 0.083673664187,
                        -0.083673664187, -0.462861805581, 0.645822574509, 0.142486913183),
                    1e-11);
}

TEST(functions_of_matrices)
{
    eg_tensor *A = eg_reshape(waves(9), 3, 3), *B = eg_scale(A, 1.0 / 64), *E;
    eg_tensor *eye = E = eg_expr("i=3 j=3", "i == j ? 1.0 : 0.0", .cx = cx);
    for (int k = 12; k > 0; k--) E = eg_add(eye, eg_scale(eg_einsum("ij,jk->ik", B, E), 1.0 / k));
    for (int k = 0; k < 6; k++) E = eg_einsum("ij,jk->ik", E, E);
    eg_assert_close(E,
                    eg_reshape(F64(0.473752979738, 1.08951323677, 0.245491456222, -1.31000594423,
                                   0.481919743532, 1.44350952153, -0.464059159218, -1.48115884854,
                                   1.84573748484),
                               3, 3),
                    1e-11);
    eg_tensor *Q = eg_normal(cx, 0, 1, 6, 4);
    Q = eg_div(Q, eg_pnorm("[i j] -> 1 1", Q, 2));
    for (int k = 0; k < 40; k++)
        Q = eg_sub(eg_scale(Q, 1.5), eg_scale(eg_einsum("ij,kj,kl->il", Q, Q, Q), 0.5));
    eg_assert_close(eg_einsum("ij,ik->jk", Q, Q),
                    eg_expr("i=4 j=4", "i == j ? 1.0 : 0.0", .cx = cx), 1e-12);
    eg_tensor *u = eg_normal(cx, 0, 1, 6), *v = NULL, *W = eg_scale(Q, 3);
    W = eg_mul(W, eg_add(eye = eg_ones(cx, 4), eg_one_hot(eg_from(cx, (int64_t[]){ 2 }, 1), 4)));
    for (int k = 0; k < 50; k++) {
        v = eg_einsum("o i, o -> i", W, u), v = eg_div(v, eg_pnorm("[i] -> 1", v, 2));
        u = eg_einsum("o i, i -> o", W, v), u = eg_div(u, eg_pnorm("[o] -> 1", u, 2));
    }
    eg_assert_close(eg_einsum("o, o i, i ->", u, W, v), eg_full_n(cx, EG_F64, 6, 0, NULL), 1e-12);
}

GROUP("einops_and_einx", .setup = open_f64, .teardown = shut)

TEST(matrices_on_the_diagonal_and_products)
{
    eg_tensor *x = eg_reshape(waves(18), 2, 3, 3), *y = eg_reshape(waves(6), 2, 3);
    eg_assert_close(
        eg_einsum("b i j -> (b i) (b j)", x),
        eg_expr("i=6 j=6", "i / 3 == j / 3 ? x[i / 3, i % 3, j % 3] : 0.0", .with = { { "x", x } }),
        0);
    eg_tensor *z = eg_einsum("i j, k l -> (i k) (j l)", y, eg_select("[b] i j", x, 1));
    eg_assert_close(z,
                    eg_expr("r=6 c=9", "y[r / 3, c / 3] * x[1, r % 3, c % 3]",
                            .with = { { "x", x }, { "y", y } }),
                    0);
}

TEST(coordinates_and_patches)
{
    eg_tensor *x = eg_reshape(waves(2 * 4 * 6 * 3), 2, 4, 6, 3);
    eg_tensor *i = eg_reshape(I64(0, 0, 3, 5, 1, 2, 2, 4), 2, 2, 2);
    eg_tensor *at[2];
    eg_unbind("b p [k]", i, 2, at);
    eg_tensor *y = eg_expr("b p c", "x[b, r[b, p], s[b, p], c]",
                           .with = { { "x", x }, { "r", at[0] }, { "s", at[1] } });
    ck_assert(eg_get(y, 0, 1, 2) == eg_get(x, 0, 3, 5, 2));
    ck_assert(eg_get(y, 1, 0, 1) == eg_get(x, 1, 1, 2, 1));
    eg_tensor *W = eg_reshape(waves(60), 2, 2, 3, 5), *bias = waves(5);
    eg_tensor *mix = eg_affine("b (h p) (w q) c, p q c o -> b (h w) o", x, W, bias);
    eg_tensor *patches = eg_rearrange("b (h p) (w q) c -> b (h w) (p q c)", x, .p = 2, .q = 2);
    eg_assert_close(
        mix, eg_add(eg_einsum("b n k, k o -> b n o", patches, eg_reshape(W, 12, 5)), bias), 1e-13);
    eg_tensor *packed = eg_concat("h w [c]", eg_select("[b] h w c", x, 0),
                                  eg_rearrange("h w -> h w 1", eg_reshape(waves(24), 4, 6)));
    eg_assert_axes("h=4 w=6 c=4", packed);
}

GROUP("jax_and_torch", .setup = open_f64, .teardown = shut)

static eg_tensor *reversed(void *user, eg_tensor *x, eg_tensor *g)
{
    (void)x;
    return eg_scale(g, -*(double *)user);
}
TEST(gradients_of_ones_own)
{
    double factor = 0.3;
    eg_tensor *x = waves(7), *y = eg_add(x, eg_detach(eg_sub(eg_round(x), x))), *g;
    eg_assert_close(y, eg_round(x), 0);
    eg_grad(eg_sum(NULL, eg_square(y)), NULL, 1, &x, &g);
    eg_assert_close(g, eg_scale(eg_round(x), 2), 0);
    y = eg_copy(x);
    eg_hook(y, reversed, &factor);
    eg_grad(eg_sum(NULL, eg_square(y)), NULL, 1, &x, &g);
    eg_assert_close(g, eg_scale(x, -0.6), 1e-15);
}

static eg_tensor *convolution(eg_tensor *x, eg_tensor *W)
{
    x = eg_pad("b h [w] o", eg_pad("b [h] w o", x, 1, 1, 0), 1, 1, 0);
    x = eg_unfold("b [h] w o -> b h p w o", x, eg_dim(W, 0), 2);
    x = eg_unfold("b h p [w] o -> b h w p q o", x, eg_dim(W, 1), 2);
    return eg_einsum("b h w p q o, p q o c -> b h w c", x, W);
}
/* value and gradients of F.conv_transpose2d(image, W, stride=2, padding=1) */
TEST(a_transposed_convolution_is_a_gradient)
{
    eg_tensor *image = eg_reshape(waves(36), 2, 3, 2, 3), *W = eg_reshape(waves(96), 4, 4, 2, 3),
              *zero = eg_zeros(cx, 2, 6, 4, 2), *in[] = { image, W }, *y, *g[2];
    eg_grad(convolution(zero, W), image, 1, &zero, &y);
    eg_assert_close(eg_reshape(eg_slice("[h] w o", eg_select("[b] h w o", y, 0), 0, 2, 1), 16),
                    F64(0.858246407731, 0.893163841057, -0.540445309364, -2.78528716233,
                        -1.56510779949, 1.60213533603, 1.74072385668, 0.294204531203, 0.72754205016,
                        -0.68094684498, -1.72937483556, 0.546213287361, 2.14228776635,
                        1.07326090097, -1.07739532897, -0.837955375449),
                    1e-11);
    eg_grad(eg_sum(NULL, eg_square(y)), NULL, 2, in, g);
    eg_assert_close(eg_reshape(eg_select("[b] h w c", g[0], 0), 18),
                    F64(-15.935109726, 18.4569358164, 11.178960603, -22.5182020075, -14.3212390185,
                        26.2086276056, -14.020240403, -5.71785248384, 15.4936680265, 5.68801966506,
                        -13.2781092347, -2.26639712598, 20.7265655942, -16.4064960772,
                        -16.4987922137, 20.8116128858, 19.0050414387, -25.7090027923),
                    1e-9);
    eg_assert_close(eg_reshape(eg_slice("[q] o c", eg_select("[p] q o c", g[1], 0), 0, 2, 1), 12),
                    F64(-6.26321262162, 9.34256339803, 3.85573690874, -2.10510342778,
                        -3.99063039054, 3.13344493696, 2.92445314871, -16.5503826345, 1.34039821317,
                        8.86257716633, -3.30519779197, -8.01086409022),
                    1e-9);
}

/* F.grid_sample(…, align_corners=True) with its gradients by the positions, and F.pad */
TEST(elements_between_pixels)
{
    eg_tensor *x = eg_reshape(waves(48), 2, 3, 4, 2), *u, *v, *g[2];
    u = eg_reshape(F64(0, 1.3, 1.8, 0.5, 1, 1.9), 2, 3);
    v = eg_reshape(F64(0.25, 2.9, 1.75, 2.5, 0, 2), 2, 3);
    eg_tensor *uv[] = { u, v }, *i = eg_clip(eg_floor(u), 0, (double)eg_dim(x, 1) - 2),
              *j = eg_clip(eg_floor(v), 0, (double)eg_dim(x, 2) - 2);
    eg_tensor *sampled = eg_expr(
        "b n c",
        "(1 - r[b,n]) * ((1 - s[b,n]) * x[b,i[b,n],j[b,n],c] + s[b,n] * x[b,i[b,n],j[b,n] + 1,c])"
        " + r[b,n] * ((1 - s[b,n]) * x[b,i[b,n] + 1,j[b,n],c]"
        " + s[b,n] * x[b,i[b,n] + 1,j[b,n] + 1,c])",
        .with = { { "x", x },
                  { "r", eg_sub(u, i) },
                  { "s", eg_sub(v, j) },
                  { "i", eg_cast(i, EG_I64) },
                  { "j", eg_cast(j, EG_I64) } });
    eg_assert_close(eg_reshape(sampled, 12),
                    F64(-0.0638852755067, 0.512294937257, -0.60593636963, 0.457424281873,
                        0.273676518533, -0.414879865791, 0.0485891492986, -0.106349448201,
                        -0.837627257147, -0.433765540976, -0.606671637046, 0.809619933898),
                    1e-11);
    eg_grad(eg_sum(NULL, eg_square(sampled)), NULL, 2, uv, g);
    eg_assert_close(eg_reshape(g[0], 6),
                    F64(-0.317970417144, -0.238898542582, 0.145824283205, -0.00264337156082,
                        -0.75430890117, 0.806362934174),
                    1e-11);
    eg_assert_close(eg_reshape(g[1], 6),
                    F64(-1.93197944548, 2.79168178977, 1.87579176677, 0.0357971988128,
                        -3.53409984762, -4.00708657802),
                    1e-11);
    eg_tensor *t = eg_reshape(waves(12), 2, 6);
    t = eg_expr("b l=11", "t[b, 5 - abs(5 - abs(l - 2))]", .with = { { "t", t } });
    eg_assert_close(eg_select("[b] l", t, 1),
                    F64(0.859161814856, -0.618137112237, -0.699874687594, -0.618137112237,
                        0.859161814856, 0.396740573131, -0.96139749188, -0.148999025814,
                        -0.96139749188, 0.396740573131, 0.859161814856),
                    1e-11);
}

static bool cholesky_shape(eg_tensor *y)
{
    return eg_result(y, EG_F64, 2, eg_dims(eg_operand(y, 0)));
}
static bool cholesky_forward(eg_tensor *y)
{
    const double *a = eg_f64(eg_operand(y, 0));
    double *l = eg_mut_f64(y);
    const int64_t n = eg_dim(y, 0);
    for (int64_t i = 0; a && l && i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            double s = a[i * n + j];
            for (int64_t k = 0; k < j; k++) s -= l[i * n + k] * l[j * n + k];
            l[i * n + j] = i == j ? sqrt(s) : s / l[j * n + j];
        }
        for (int64_t j = i + 1; j < n; j++) l[i * n + j] = 0;
    }
    return a && l;
}
static eg_tensor *cholesky_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    eg_tensor *p = eg_tril(eg_einsum("ki,kj->ij", y, eg_tril(g, 0)), 0);
    p = eg_expr("i j", "i == j ? 0.5 * p : p", .with = { { "p", p } });
    p = eg_solve_triangular("ij,ik->jk", eg_transpose(y, 0, 1), p, true);
    eg_tensor *s = eg_solve_triangular("ji,ki->kj", y, p, true);
    return eg_scale(eg_add(s, eg_transpose(s, 0, 1)), 0.5);
}
static const eg_op cholesky_op = {
    .name = "cholesky",
    .equation = "y yᵀ = a",
    .gradient = "da = (s + sᵀ)/2, s = y⁻ᵀ p y⁻¹",
    .arity = 1,
    .shape = cholesky_shape,
    .forward = cholesky_forward,
    .rule = cholesky_rule,
    .uses = EG_USES_RESULT,
};
/* torch.linalg.cholesky, its gradient and its second derivative */
TEST(a_cholesky_factor)
{
    eg_tensor *B = eg_reshape(waves(16), 4, 4), *eye, *a, *y, *g, *h;
    eye = eg_expr("i=4 j=4", "i == j ? 1.0 : 0.0", .cx = cx);
    a = eg_add(eg_einsum("ik,jk->ij", B, B), eg_scale(eye, 4));
    y = eg_apply(&cholesky_op, NULL, 0, 1, &a);
    eg_assert_close(eg_einsum("ik,jk->ij", y, y), a, 1e-14);
    eg_assert_close(eg_reshape(y, 16),
                    F64(2.43019200417, 0, 0, 0, 0.634912275117, 2.31312216356, 0, 0, 0.319750753945,
                        0.563420945468, 2.32859705555, 0, -0.0789312690821, 0.395815830448,
                        0.643690577822, 2.34679888293),
                    1e-11);
    eg_grad(eg_sum(NULL, eg_mul(y, B)), NULL, 1, &a, &g);
    eg_assert_close(eg_reshape(g, 16),
                    F64(-0.0240067426212, 0.0472030384592, 0.146333422378, 0.233355131918,
                        0.0472030384592, 0.130333222245, 0.159892131687, 0.0194037597531,
                        0.146333422378, 0.159892131687, -0.142905979706, -0.229812750836,
                        0.233355131918, 0.0194037597531, -0.229812750836, 0.0764996005055),
                    1e-11);
    g = eg_einsum("ij,ij->", g, g);
    eg_grad(g, NULL, 1, &a, &h);
    eg_assert_close(eg_reshape(h, 16),
                    F64(-0.0275184008517, -0.00887882326372, 0.0251413324985, 0.00345405804477,
                        -0.00887882326372, -0.011270410121, 0.00462415502562, 0.0109274511263,
                        0.0251413324985, 0.00462415502562, -0.0248581413757, -0.00244051232613,
                        0.00345405804477, 0.0109274511263, -0.00244051232613, -0.00326484150535),
                    1e-11);
}

static double derivative_of_lgamma(double x, int n)
{
    static const double bernoulli[] = { 1. / 6,  -1. / 30,     1. / 42, -1. / 30,
                                        5. / 66, -691. / 2730, 7. / 6,  -3617. / 510 };
    double sum = 0, factor = n / 2.0, factorial = 1;
    if (!(x > 0)) return NAN;
    if (n == 0) return lgamma(x);
    for (; x < 15 + n; x++) sum += pow(x, -n);
    sum += (n == 1 ? -log(x) : pow(x, 1 - n) / (n - 1)) + pow(x, -n) / 2;
    for (int k = 1; k <= 8; k++) { /* factor = n (n + 1) … (n + 2k − 2)/(2k)! */
        sum += bernoulli[k - 1] * factor * pow(x, 1 - n - 2 * k);
        factor *= (n + 2.0 * k - 1) * (n + 2 * k) / ((2.0 * k + 1) * (2 * k + 2));
    }
    for (int k = 2; k < n; k++) factorial *= k;
    return n % 2 ? -factorial * sum : factorial * sum;
}
static bool lgamma_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool lgamma_forward(eg_tensor *y)
{
    const double *x = eg_f64(eg_operand(y, 0));
    double *out = eg_mut_f64(y);
    for (int64_t k = 0; x && out && k < eg_size(y); k++)
        out[k] = derivative_of_lgamma(x[k], *(const int *)eg_attr(y));
    return x && out;
}
static eg_tensor *polygamma(int n, eg_tensor *x);
static eg_tensor *lgamma_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_mul(g, polygamma(*(const int *)eg_attr(y), eg_operand(y, i)));
}
static const eg_op lgamma_op = {
    .name = "lgamma",
    .equation = "y = (d/dx)ⁿ ln Γ(x)",
    .gradient = "dx = g (d/dx)ⁿ⁺¹ ln Γ(x)",
    .arity = 1,
    .shape = lgamma_shape,
    .forward = lgamma_forward,
    .rule = lgamma_rule,
    .uses = EG_USES_OPERANDS,
};
static eg_tensor *polygamma(int n, eg_tensor *x) /* −1: ln Γ, 0: digamma, 1: trigamma … */
{
    const int derivative = n + 1;
    eg_tensor *in = eg_cast(x, EG_F64);
    return eg_cast(eg_apply(&lgamma_op, &derivative, sizeof derivative, 1, &in), eg_type(x));
}
/* ln Γ and its derivatives, with the values of mpmath */
TEST(derivatives_of_the_gamma_function)
{
    eg_tensor *x = F64(0.02, 1.5, 15.5, 1000), *y = polygamma(-1, x);
    const double right[4][4] = {
        { 3.900804516098, -0.1207822376352, 26.53691449112, 5905.220423209 },
        { -50.54478931046, 0.03648997397858, 2.70823524259, 6.907255195649 },
        { 2501.598118192, 0.9348022005447, 0.06664201358328, 0.001000500166667 },
        { -250002.2790542, -0.8287966442343, -0.004439518913277, -1.0010005e-6 }
    };
    for (int k = 0; k < 4; k++) {
        eg_tensor *z = eg_from(cx, right[k], 4), *g;
        eg_assert_close(eg_div(y, z), eg_ones(cx, 4), 2e-12);
        eg_assert_close(polygamma(k - 1, x), y, 0);
        eg_grad(eg_sum(NULL, y), NULL, 1, &x, &g);
        y = g;
    }
    eg_tensor *single = polygamma(0, eg_cast(x, EG_F32));
    ck_assert(eg_type(single) == EG_F32 && eg_item(eg_any(NULL, eg_isnan(single))) == 0);
    ck_assert(isnan(eg_item(polygamma(0, eg_scalar(cx, -1)))));
}

TEST(slices_and_segments)
{
    eg_tensor *x = eg_reshape(waves(24), 8, 3), *start = I64(2), *s = I64(0, 0, 1, 2, 2, 2, 1, 0);
    eg_assert_close(eg_at("[l] d, n -> n d", x, eg_add(start, eg_arange(cx, EG_I64, 0, 3, 1))),
                    eg_slice("[l] d", x, 2, 5, 1), 0);
    eg_tensor *u = eg_zeros(cx, 2, 3);
    eg_tensor *y = eg_expr("l d", "0 <= l - s[0] < 2 ? u[clip(l - s[0], 0, 1), d] : x",
                           .with = { { "x", x }, { "u", u }, { "s", start } });
    eg_assert_close(
        y, eg_concat("[l] d", eg_slice("[l] d", x, 0, 2, 1), u, eg_slice("[l] d", x, 4, EG_END, 1)),
        0);
    eg_tensor *most = eg_max("n [l] d", eg_expr("n=3 l d", "s[l] == n ? x[l, d] : -1e30",
                                                .with = { { "s", s }, { "x", x } }));
    for (int64_t d = 0; d < 3; d++)
        ck_assert(eg_get(most, 1, d) == fmax(eg_get(x, 2, d), eg_get(x, 6, d)));
    eg_tensor *sum = eg_scatter_add("[n] d, l, l d", eg_zeros(cx, 3, 3), s, x);
    eg_assert_close(eg_sum("[n] d", sum), eg_sum("[l] d", x), 1e-14);
}

typedef struct net {
    eg_linear *body, *head;
} net;
static net make(eg_params *p)
{
    return (net){ eg_linear_new(p, "body", .in = 3, .out = 4),
                  eg_linear_new(p, "head", .in = 4, .out = 2) };
}
static eg_tensor *loss_of(net m)
{
    eg_tensor *h = eg_tanh(eg_linear_run(m.body, eg_reshape(waves(15), 5, 3)));
    return eg_mse(eg_linear_run(m.head, h), eg_reshape(eg_cos(waves(10)), 5, 2));
}

/* Parameters without a gradient keep values, moments and counts, so that their first step later is
 * the first of Adam, of size lr. */
TEST(parameters_frozen_for_some_steps)
{
    eg_params *p = eg_params_open(cx);
    const net m = make(p);
    eg_opt *op = eg_adam(p, .lr = 0.1);
    eg_tensor *w[4], *g[4];
    for (int step = 0; step < 4; step++) {
        eg_tensor *before = eg_copy(m.body->weight), *head = eg_copy(m.head->weight);
        for (int k = 0; k < 4; k++) w[k] = eg_params_at(p, k)->x;
        eg_grad(loss_of(m), NULL, 4, w, g);
        for (int k = 0; k < 4 && step < 3; k++)
            if (!strncmp(eg_params_at(p, k)->name, "body.", 5)) g[k] = NULL;
        eg_step_by(op, g);
        eg_tensor *moved = eg_max(NULL, eg_abs(eg_sub(m.body->weight, before)));
        ck_assert_double_eq_tol(eg_item(moved), step < 3 ? 0 : 0.1, 1e-6);
        ck_assert(eg_item(eg_max(NULL, eg_abs(eg_sub(m.head->weight, head)))) > 0);
    }
}

TEST(a_step_that_is_not_finite_is_skipped)
{
    eg_params *p = eg_params_open(cx);
    const net m = make(p);
    eg_opt *op = eg_adam(p, .lr = 0.1);
    ck_assert(!eg_step(op, loss_of(m)));
    eg_tensor *before = eg_copy(m.body->weight);
    ck_assert(eg_step(op, eg_div(loss_of(m), eg_zeros(cx, 1))));
    eg_assert_error(cx, "adam: the loss is inf");
    eg_clear(cx);
    eg_assert_close(m.body->weight, before, 0);
    ck_assert(!eg_step(op, loss_of(m)));
    ck_assert_int_eq(eg_opt_report_of(op).steps, 2);
}

/* The step of sharpness-aware minimisation is the gradient at w + 0.05 g/|g|. */
TEST(a_gradient_at_other_weights)
{
    eg_params *p = eg_params_open(cx), *q = eg_params_open(cx);
    const net m = make(p), near_net = make(q);
    eg_opt *op = eg_sgd(p, .lr = 0.1);
    eg_named near[5] = { { 0 } };
    eg_tensor *w[4], *g[4], *there[4], *square = eg_zeros(cx, 1), *want[4];
    for (int k = 0; k < 4; k++) w[k] = eg_params_at(p, k)->x;
    eg_grad(loss_of(m), NULL, 4, w, g);
    for (int k = 0; k < 4; k++) square = eg_add(square, eg_sum(NULL, eg_square(g[k])));
    for (int k = 0; k < 4; k++) {
        near[k] = *eg_params_at(p, k);
        near[k].x = eg_add(w[k], eg_detach(eg_mul(g[k], eg_scale(eg_rsqrt(square), 0.05))));
        eg_assign(there[k] = eg_params_at(q, k)->x, near[k].x);
    }
    eg_grad(loss_of(near_net), NULL, 4, there, g);
    for (int k = 0; k < 4; k++) want[k] = eg_sub(w[k], eg_scale(g[k], 0.1));
    eg_step(op, loss_of(make(eg_params_open(cx, .values = near))));
    for (int k = 0; k < 4; k++) eg_assert_close(w[k], want[k], 1e-14);
}

static eg_tensor *ctc(eg_tensor *log_p, eg_tensor *target)
{
    const double none = -1e30; /* the logarithm of 0 */
    eg_tensor *blank = eg_zeros_like(target), *a = NULL;
    eg_tensor *label = eg_rearrange("n b s -> b (s n)", eg_stack("[n] b s", blank, target));
    label = eg_concat("b [k]", label, eg_slice("b [s]", blank, 0, 1, 1));
    /* a step may skip the blank between two different targets */
    eg_tensor *skip = eg_expr("b k", "k % 2 == 1 & k > 1 & l[b, k] != l[b, max(k - 2, 0)]",
                              .with = { { "l", label } });
    for (int64_t t = 0; t < eg_dim(log_p, 0); t++) {
        eg_tensor *p = eg_at("b [c], b k -> b k", eg_select("[t] b c", log_p, t), label);
        if (!a) {
            a = eg_expr("b k", "k < 2 ? p : -1e30", .with = { { "p", p } });
            continue;
        }
        eg_tensor *one = eg_pad("b [k]", eg_slice("b [k]", a, 0, -1, 1), 1, 0, none);
        eg_tensor *two = eg_pad("b [k]", eg_slice("b [k]", a, 0, -2, 1), 2, 0, none);
        two = eg_where(skip, two, eg_full(eg_context(a), none, 1, 1));
        a = eg_add(p, eg_logsumexp("[n] b k", eg_stack("[n] b k", a, one, two)));
    }
    return eg_neg(eg_logsumexp("b [k]", eg_slice("b [k]", a, -2, EG_END, 1)));
}
static eg_tensor *ctc_of_logits(void *user, eg_tensor *const *x)
{
    return ctc(eg_log_softmax("t b [c]", x[0]), user);
}
TEST(a_loss_over_all_alignments)
{
    eg_tensor *x = eg_reshape(waves(48), 6, 2, 4), *target = eg_reshape(I64(1, 2, 3, 3), 2, 2);
    eg_tensor *y = ctc_of_logits(target, &x), *g;
    eg_assert_close(y, F64(3.2880124739874517, 5.9734651252449975), 1e-12);
    eg_grad(eg_sum(NULL, y), NULL, 1, &x, &g);
    eg_assert_close(
        eg_select("[b] c", eg_select("[t] b c", g, 0), 1),
        F64(-0.2577839775580407, 0.45380029519583104, 0.10142254691731428, -0.2974388645551046),
        1e-12);
    eg_assert_grad2(ctc_of_logits, target, x);
}

static eg_tensor *transducer(eg_tensor *log_p, eg_tensor *label)
{
    eg_tensor *blank = eg_select("t u [c]", log_p, 0), *a = NULL;
    eg_tensor *right = eg_at("t u [c], u -> t u", eg_slice("t [u] c", log_p, 0, -1, 1), label);
    right = eg_pad("t [u]", eg_cumsum("t [u]", right), 1, 0, 0);
    for (int64_t t = 0; t < eg_dim(log_p, 0); t++) {
        eg_tensor *r = eg_select("[t] u", right, t);
        if (!a) {
            a = r;
            continue;
        }
        eg_tensor *down = eg_add(a, eg_select("[t] u", blank, t - 1));
        a = eg_add(r, eg_logcumsumexp("[u]", eg_sub(down, r)));
    }
    return eg_neg(
        eg_add(eg_select("[u]", a, -1), eg_select("[u]", eg_select("[t] u", blank, -1), -1)));
}
static eg_tensor *transducer_of_logits(void *user, eg_tensor *const *x)
{
    return transducer(eg_log_softmax("t u [c]", x[0]), user);
}
/* the sum over all paths, by a loop over all t and u */
TEST(a_loss_over_all_paths)
{
    eg_tensor *x = eg_reshape(waves(48), 4, 3, 4), *label = I64(2, 1);
    eg_tensor *p = eg_log_softmax("t u [c]", x), *y = transducer_of_logits(label, &x);
    const int64_t of[] = { 2, 1 };
    double a[4][3] = { { 0 } };
    for (int t = 0; t < 4; t++)
        for (int u = 0; u < 3; u++) {
            const double down = t ? exp(a[t - 1][u] + eg_get(p, t - 1, u, 0)) : 0;
            const double right = u ? exp(a[t][u - 1] + eg_get(p, t, u - 1, of[u - 1])) : 0;
            if (t || u) a[t][u] = log(down + right);
        }
    ck_assert_double_eq_tol(eg_item(y), -a[3][2] - eg_get(p, 3, 2, 0), 1e-12);
    eg_assert_grad2(transducer_of_logits, label, x);
}

TEST(distances_by_a_product)
{
    eg_tensor *x = eg_reshape(waves(12), 4, 3), *y = eg_normal(cx, 0, 1, 5, 3);
    eg_tensor *a = eg_sum("i [d]", eg_square(x)), *c = eg_sum("j [d]", eg_square(y));
    eg_tensor *distance =
        eg_expr("i j", "sqrt(max(a[i] + c[j] - 2 * s, 1e-12))",
                .with = { { "a", a }, { "c", c }, { "s", eg_einsum("id,jd->ij", x, y) } });
    eg_tensor *all = eg_expr("i j d", "x[i, d] - y[j, d]", .with = { { "x", x }, { "y", y } });
    eg_assert_close(distance, eg_pnorm("i j [d]", all, 2), 1e-12);
    eg_assert_close(
        eg_argmin("i [j]", eg_expr("i j", "c[j] - 2 * s",
                                   .with = { { "c", c }, { "s", eg_einsum("id,jd->ij", x, y) } })),
        eg_argmin("i [j]", distance), 0);
}

/* the heads of Mamba-2: one query and key for all heads, a decay of each */
TEST(heads_that_share_query_and_key)
{
    eg_tensor *C = eg_normal(cx, 0, 1, 2, 9, 4), *B = eg_normal(cx, 0, 1, 2, 9, 4);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 9, 3, 5), *a = eg_uniform(cx, 0.5, 1, 2, 9, 3);
    eg_tensor *q = eg_rearrange("b l n -> b l h n", C, .h = 3);
    eg_tensor *k = eg_rearrange("b l n -> b l h n", B, .h = 3);
    eg_tensor *y = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, x, .phi = "x", .no_norm = true,
                                       .where = "j <= i", .decay = { "bjh", a });
    eg_tensor *s = eg_cumsum("b [l] h", eg_log(a)), *w = eg_einsum("bin,bjn->bij", C, B);
    w = eg_expr("b i j h", "j <= i ? w[b,i,j] * exp(s[b,i,h] - s[b,j,h]) : 0.0",
                .with = { { "w", w }, { "s", s } });
    eg_assert_close(y, eg_einsum("bijh,bjhe->bihe", w, x), 1e-12);
}

/* an inner gradient under eg_nograd, as a TTT layer needs it in evaluation */
TEST(an_inner_gradient_where_nothing_is_recorded)
{
    eg_tensor *k = eg_normal(cx, 0, 1, 6, 4), *v = eg_normal(cx, 0, 1, 6, 4), *y[2];
    for (int n = 0; n < 2; n++) {
        const bool outer = eg_nograd(cx, n == 1);
        eg_tensor *W = eg_scale(eg_one_hot(eg_arange(cx, EG_I64, 0, 4, 1), 4), 0.5), *g;
        const bool was = eg_nograd(cx, false);
        eg_grad(eg_mse(eg_einsum("ld,de->le", k, W), v), NULL, 1, &W, &g);
        eg_nograd(cx, was);
        y[n] = eg_einsum("ld,de->le", k, eg_sub(W, eg_scale(g, 0.1)));
        eg_nograd(cx, outer);
    }
    eg_assert_close(y[0], y[1], 0);
}

TEST(batches_by_length_and_by_weight)
{
    eg_tensor *length = eg_randint(cx, 1, 30, 16), *weight = F64(1, 0, 3, 4);
    eg_tensor *by_length = eg_rearrange("(c b) -> c b", eg_argsort("[n]", length), .b = 4);
    eg_tensor *mixed =
        eg_at("[c] b, a -> a b", by_length, eg_argsort("[c]", eg_uniform(cx, 0, 1, 4)));
    eg_assert_close(eg_sort("[n]", eg_reshape(mixed, 16)), eg_arange(cx, EG_I64, 0, 16, 1), 0);
    eg_tensor *lengths = eg_at("[n], a b -> a b", length, mixed);
    eg_assert_close(eg_sort("a [b]", lengths), lengths, 0);
    eg_tensor *sum = eg_cumsum("[n]", weight), *ones = eg_ones(cx, 8000);
    eg_tensor *u = eg_mul(eg_uniform(cx, 0, 1, 8000), eg_select("[n]", sum, -1));
    eg_tensor *below = eg_expr("i n", "s[n] <= u[i]", .with = { { "s", sum }, { "u", u } });
    eg_tensor *drawn = eg_clip(eg_sum("i [n]", below), 0, 3);
    eg_tensor *counts = eg_scatter_add("[n], i, i", eg_zeros(cx, 4), drawn, ones);
    ck_assert(eg_get(counts, 1) == 0);
    eg_assert_close(counts, F64(1000, 0, 3000, 4000), 200);
}

TEST(a_search_for_a_learning_rate_leaves_no_trace)
{
    char path[] = "/tmp/eg_porting_XXXXXX";
    ck_assert_int_ge(close(mkstemp(path)), 0);
    eg_params *p = eg_params_open(cx);
    const net m = make(p);
    eg_opt *op = eg_adam(p, .lr = 0.01);
    eg_step(op, loss_of(m));
    eg_tensor *before = eg_copy(m.body->weight);
    double smallest = INFINITY, rate = 0;
    eg_opt_save(op, path);
    for (double lr = 1e-6; lr < 10; lr *= 1.3) {
        eg_tensor *loss = loss_of(m);
        const double now = eg_item(loss);
        if (now < smallest) smallest = now, rate = lr;
        if (!(now < 4 * smallest) || eg_opt_set_lr(op, lr) || eg_step(op, loss)) break;
    }
    ck_assert(rate > 1e-3 && rate < 10);
    ck_assert_int_eq(eg_opt_resume(op, path), 1);
    unlink(path);
    eg_assert_close(m.body->weight, before, 0);
    ck_assert(eg_opt_report_of(op).lr == 0.01);
}

/* vmap(jacrev(f)) and vmap(hessian(f)), beside the derivatives of each example alone */
TEST(derivatives_of_each_example)
{
    eg_tensor *x = eg_reshape(waves(15), 5, 3), *W = eg_reshape(waves(12), 3, 4);
    const eg_copies *each = eg_copies_open(eg_owner_open(cx), 5, NULL);
    eg_tensor *apart = eg_copies_unstack(each, x), *one = eg_select("[b] i", x, 3);
    eg_tensor *y = eg_tanh(eg_einsum("i,ij->j", apart, W)),
              *z = eg_tanh(eg_einsum("i,ij->j", one, W));
    eg_assert_close(eg_select("[b] j i", eg_copies_stack(eg_jacobian(y, apart)), 3),
                    eg_jacobian(z, one), 1e-14);
    y = eg_sum(NULL, eg_square(y)), z = eg_sum(NULL, eg_square(z));
    eg_assert_close(eg_select("[b] i k", eg_copies_stack(eg_hessian(y, apart, apart)), 3),
                    eg_hessian(z, one, one), 1e-14);
}

/* A captured step with a mask by lengths, which are others in each run: by a comparison, and by a
 * predicate. */
typedef struct masked {
    eg_tensor *x, *n;
    bool predicate;
} masked;
static int masked_step(void *user, eg_tensor **out)
{
    masked *m = user;
    eg_tensor *places = eg_arange(cx, EG_I64, 0, eg_dim(m->x, 1), 1);
    eg_tensor *keep = eg_lt(places, eg_rearrange("b -> b 1", m->n));
    out[0] = m->predicate
                 ? eg_softmax("b [j]", m->x, .where = "j < n[b]", .with = { { "n", m->n } })
                 : eg_softmax("b [j]", m->x, .keep = { "bj", keep });
    return 0;
}
TEST(a_mask_by_lengths_is_captured)
{
    masked m = { eg_reshape(waves(24), 3, 8), eg_copy(I64(2, 3, 4)), false }, predicate = m;
    predicate.predicate = true;
    eg_captured *c[] = { eg_capture(cx, masked_step, &m, 1),
                         eg_capture(cx, masked_step, &predicate, 1) };
    eg_assign(m.n, I64(8, 1, 5));
    for (int k = 0; k < 2; k++) {
        ck_assert(!eg_captured_run(c[k]));
        eg_assert_close(eg_captured_output(c[k], 0),
                        eg_softmax("b [j]", m.x, .where = "j < n[b]", .with = { { "n", m.n } }), 0);
    }
}
