/* 04: attention in four einsums. Heads are split and merged by letters, without reshapes; the mask
 * is written in index notation. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>

/* multi-head attention, whole: x (b i m), W_q W_k W_v (m h d), W_o (h d m), pad (b j): which
 * positions hold a token */
static eg_tensor *mha(eg_tensor *x, eg_tensor *Wq, eg_tensor *Wk, eg_tensor *Wv, eg_tensor *Wo,
                      eg_tensor *pad)
{
    eg_tensor *q = eg_einsum("bim,mhd->bihd", x, Wq), *k = eg_einsum("bim,mhd->bihd", x, Wk);
    eg_tensor *v = eg_einsum("bim,mhd->bihd", x, Wv);
    int64_t b, i, h, d;
    if (!eg_axes("b i h d", q, &b, &i, &h, &d)) return q; /* checks the rank, reads sizes */
    eg_tensor *s = eg_scale(eg_einsum("bihd,bjhd->bhij", q, k), 1 / sqrt((double)d));
    eg_tensor *a = eg_softmax("b h i [j]", s, .where = "j <= i", .keep = { "bj", pad });
    return eg_einsum("bhij,bjhd,hdm->bim", a, v, Wo);
}

int main(void)
{
    enum { BATCH = 2, LENGTH = 5, MODEL = 8, HEADS = 2, WIDTH = 4 };
    eg_ctx *cx = eg_open(.seed = 4);
    eg_tensor *x = eg_normal(cx, 0, 1, BATCH, LENGTH, MODEL), *w[3],
              *Wo = eg_normal(cx, 0, 0.3, HEADS, WIDTH, MODEL);
    for (int n = 0; n < 3; n++) w[n] = eg_normal(cx, 0, 0.3, MODEL, HEADS, WIDTH);
    bool tokens[BATCH][LENGTH] = { { true, true, true, true, true },
                                   { true, true, true, false, false } };
    eg_tensor *pad = eg_from(cx, &tokens[0][0], BATCH, LENGTH);

    eg_tensor *y = mha(x, w[0], w[1], w[2], Wo, pad);
    printf("four einsums, batch 1:\n");
    eg_print(stdout, eg_select("[b] i m", y, 1));

    /* scores, mask, softmax and sum in one call, in any layout; it also returns the weights */
    eg_tensor *q = eg_einsum("bim,mhd->bihd", x, w[0]), *k = eg_einsum("bjm,mhd->bjhd", x, w[1]),
              *v = eg_einsum("bjm,mhd->bjhd", x, w[2]);
    eg_tensor *a, *z = eg_attention("bihd,bjhd,bjhe->bihe", q, k, v, .where = "j <= i",
                                    .keep = { "bj", pad }, .weights = &a);
    z = eg_einsum("bihd,hdm->bim", z, Wo);
    printf("attention weights of batch 1, head 0 (causal, two padded keys):\n");
    eg_print(stdout, eg_select("[h] i j", eg_select("[b] h i j", a, 1), 0));

    double apart = eg_item(eg_max(NULL, eg_abs(eg_sub(y, z))));
    printf("largest difference between the two: %s 1e-6\n", apart < 1e-6 ? "below" : "ABOVE");
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    bool good = !eg_error(cx) && apart < 1e-6;
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
