/* 09: from one head to several: Z = softmax(QKᵀ/√d_k)V. With a matrix for each of h heads, or with
 * one stacked tensor, results and gradients are the same. Self-attention is attention whose three
 * inputs are one tensor; its gradient is the sum over three paths. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>

/* one head: X (i m), W_q W_k (m d), W_v (m e) -> (i e); d_v need not be d_k */
static eg_tensor *head(eg_tensor *x, eg_tensor *y, eg_tensor *Wq, eg_tensor *Wk, eg_tensor *Wv,
                       eg_tensor **weights)
{
    return eg_attention("id,jd,je->ie", eg_einsum("im,md->id", x, Wq),
                        eg_einsum("jm,md->jd", y, Wk), eg_einsum("jm,me->je", y, Wv),
                        .weights = weights);
}

static double apart(eg_tensor *a, eg_tensor *b)
{
    return eg_item(eg_max(NULL, eg_abs(eg_sub(a, b))));
}

int main(void)
{
    enum { N = 5, M = 8, H = 2, D = M / H };
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 1);
    eg_tensor *x = eg_normal(cx, 0, 1, N, M), *w, *z[H], *cat, *stacked;
    eg_tensor *Wq = eg_normal(cx, 0, 0.3, M, H, D), *Wk = eg_normal(cx, 0, 0.3, M, H, D),
              *Wv = eg_normal(cx, 0, 0.3, M, H, D);
    eg_tensor *Wo = eg_normal(cx, 0, 0.3, M, M);

    /* one head at a time, concatenated */
    for (int h = 0; h < H; h++)
        z[h] = head(x, x, eg_select("m [h] d", Wq, h), eg_select("m [h] d", Wk, h),
                    eg_select("m [h] d", Wv, h), &w);
    printf("rows of the weights sum to\n");
    eg_print(stdout, eg_sum("i [j]", w));
    cat = eg_einsum("ic,cm->im", eg_concat("i [e]", z[0], z[1]), Wo);
    /* all heads at once: the head is a letter */
    eg_tensor *q = eg_einsum("im,mhd->ihd", x, Wq), *k = eg_einsum("jm,mhd->jhd", x, Wk),
              *v = eg_einsum("jm,mhe->jhe", x, Wv);
    stacked = eg_einsum("ihe,hem->im", eg_attention("ihd,jhd,jhe->ihe", q, k, v),
                        eg_rearrange("(h e) m -> h e m", Wo, .h = H));
    eg_tensor *in[] = { x, Wq, Wk, Wv, Wo }, *da[5], *db[5], *seed = eg_normal(cx, 0, 1, N, M);
    eg_grad(cat, seed, 5, in, da);
    eg_grad(stacked, seed, 5, in, db);
    double worst = apart(cat, stacked);
    for (int n = 0; n < 5; n++) worst = fmax(worst, apart(da[n], db[n]));
    printf("one by one against stacked, values and five gradients: %.1e apart\n", worst);

    /* the module checks names and divisibility; self and cross attention */
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "mha", .d_model = M, .heads = H, .dropout = 0.1);
    eg_eval(cx);
    eg_tensor *b = eg_unsqueeze(x, 0), *three[] = { eg_copy(b), eg_copy(b), eg_copy(b) }, *d1,
              *d3[3];
    eg_tensor *self = eg_mha_run(m, b),
              *mha = eg_mha_run(m, three[0], .key = three[1], .value = three[2]);
    eg_grad(self, eg_ones_like(self), 1, &b, &d1);
    eg_grad(mha, eg_ones_like(mha), 3, three, d3);
    worst = fmax(worst, apart(d1, eg_add(eg_add(d3[0], d3[1]), d3[2])));
    printf("the gradient of self-attention is the sum of three paths: %.1e apart\n", worst);
    for (int n = 0; n < eg_params_count(p); n++) printf("%s ", eg_params_at(p, n)->name);
    bool good = !eg_error(cx) && worst < 1e-12;
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    eg_mha_new(p, "odd", .d_model = 10, .heads = 3);
    printf("\n%s\n", eg_error(cx));
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
