/* 07: a worked example of multi-head attention, with its results. Four tokens of width 8, two heads
 * of width 4; both heads have the same W_k and W_v. Its scores are in the thousands, so that the
 * softmax is one-hot; with W_q and W_k × 0.1 it is not. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>

/* w[m][d] = (m + first[d]) / 10 */
static eg_tensor *matrix(eg_ctx *cx, const double *first)
{
    eg_tensor *m = eg_arange(cx, EG_DEFAULT, 0, 8, 1), *d = eg_from(cx, first, 4);
    return eg_scale(eg_on("m, d -> m d", eg_add, m, d), 0.1);
}
static void show(const char *name, eg_tensor *x)
{
    printf("%s =\n", name);
    eg_print(stdout, x);
}

int main(void)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_on("i, m -> i m", eg_add, eg_arange(cx, EG_DEFAULT, 0, 4, 1),
                         eg_arange(cx, EG_DEFAULT, 1, 9, 1));
    static const double q1[4] = { 1, 2, 3, 4 }, k1[4] = { 2, 1, 4, 3 }, v1[4] = { 3, 4, 1, 2 },
                        q2[4] = { 2, 4, 1, 3 };
    eg_tensor *Wq = eg_stack("m [h] d", matrix(cx, q1), matrix(cx, q2)); /* (m h d) */
    eg_tensor *Wk = eg_stack("m [h] d", matrix(cx, k1), matrix(cx, k1)),
              *Wv = eg_stack("m [h] d", matrix(cx, v1), matrix(cx, v1));
    eg_tensor *Wo = eg_on("r, c -> r c", eg_add, eg_arange(cx, EG_DEFAULT, 0, 8, 1),
                          eg_arange(cx, EG_DEFAULT, 1, 9, 1));
    Wo = eg_rearrange("(h d) m -> h d m", eg_scale(Wo, 0.1), .h = 2);

    eg_tensor *q = eg_einsum("im,mhd->ihd", x, Wq), *k = eg_einsum("jm,mhd->jhd", x, Wk),
              *v = eg_einsum("jm,mhd->jhd", x, Wv);
    show("Q1", eg_select("i [h] d", q, 0));
    show("K1", eg_select("i [h] d", k, 0));
    show("V1", eg_select("i [h] d", v, 0));
    show("Q2", eg_select("i [h] d", q, 1));
    eg_tensor *s = eg_scale(eg_einsum("ihd,jhd->hij", q, k), 0.5); /* 1/√4 */
    show("scores of head 1", eg_select("[h] i j", s, 0));
    eg_tensor *a = eg_softmax("h i [j]", s); /* one-hot; exp(3286) is not computed */
    show("weights of head 1", eg_select("[h] i j", a, 0));
    eg_tensor *o = eg_einsum("hij,jhd->ihd", a, v);
    show("head 1", eg_select("i [h] d", o, 0));
    eg_tensor *y = eg_einsum("ihd,hdm->im", o, Wo);
    show("output", y);

    /* W_q and W_k times 0.1: not saturated */
    eg_tensor *b = eg_softmax("h i [j]", eg_scale(s, 0.01));
    show("weights of head 1, W_q and W_k times 0.1", eg_select("[h] i j", b, 0));
    show("head 1, W_q and W_k times 0.1", eg_select("i [h] d", eg_einsum("hij,jhd->ihd", b, v), 0));
    eg_tensor *entropy = eg_neg(
        eg_einsum("ij,ij->i", eg_select("[h] i j", b, 0), eg_log(eg_select("[h] i j", b, 0))));
    show("entropy of its rows", entropy);

    static const double right[8] = {
        141.12, 173.28, 205.44, 237.6, 269.76, 301.92, 334.08, 366.24
    };
    double apart = eg_item(eg_max(NULL, eg_abs(eg_sub(y, eg_from(cx, right, 8)))));
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    bool good = apart < 1e-9;
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
