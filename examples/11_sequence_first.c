/* 11: sequence first, as many implementations have it: 'ibhd,jbhd->ijbh', softmax over j,
 * 'ijbh,jbhd->ibhd'. The string states the layout, and the letters of a mask say which of its axes
 * is which. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>

static eg_tensor *attend(eg_tensor *q, eg_tensor *k, eg_tensor *v, eg_masked mask)
{
    eg_tensor *s = eg_scale(eg_einsum("ibhd,jbhd->ijbh", q, k), 1 / sqrt((double)eg_dim(q, -1)));
    return eg_einsum("ijbh,jbhd->ibhd", eg_softmax("i [j] b h", s, .keep = mask), v);
}

int main(void)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = eg_reshape(eg_arange(cx, EG_DEFAULT, 0, 16, 1), 2, 1, 2, 4);
    eg_tensor *k = eg_reshape(eg_arange(cx, EG_DEFAULT, 0, 24, 1), 3, 1, 2, 4);
    static const double want[] = { 14, 126, 62, 302, 110, 478, 62, 302, 366, 734, 670, 1166 };
    eg_tensor *scores = eg_einsum("ibhd,jbhd->ijbh", q, k);
    eg_print(stdout, eg_reshape(scores, -1));
    bool good = true;
    for (int n = 0; n < 12; n++) good = good && eg_f64(scores)[n] == want[n];
    const eg_explained *e = eg_explain("ibhd,jbhd->ijbh", q, k);
    if (e) fputs(e->text, stdout);

    /* composition, fused form, and batch first have one result */
    q = eg_normal(cx, 0, 1, 5, 3, 2, 4), k = eg_normal(cx, 0, 1, 7, 3, 2, 4);
    eg_tensor *v = eg_normal(cx, 0, 1, 7, 3, 2, 4),
              *pad = eg_lt(eg_normal(cx, 0, 1, 7, 3), eg_ones(cx, 1));
    eg_tensor *y = attend(q, k, v, (eg_masked){ "jb", pad });
    eg_tensor *fused = eg_attention("ibhd,jbhd,jbhe->ibhe", q, k, v, .keep = { "jb", pad });
    eg_tensor *batch =
        eg_attention("b i h d, b j h d, b j h e -> i b h e", eg_permute(q, 1, 0, 2, 3),
                     eg_permute(k, 1, 0, 2, 3), eg_permute(v, 1, 0, 2, 3),
                     .keep = { "bj", eg_permute(pad, 1, 0) });
    double apart = fmax(eg_item(eg_max(NULL, eg_abs(eg_sub(y, fused)))),
                        eg_item(eg_max(NULL, eg_abs(eg_sub(y, batch)))));
    printf("composed, fused, batch first: %.1e apart\n", apart);
    good = good && apart < 1e-12;

    /* a mask (batch, key, query) of sizes (2, 3, 2) could be taken for [query, key, batch]; letters
     * exclude this mistake */
    q = eg_normal(cx, 0, 1, 2, 2, 1, 4), k = eg_normal(cx, 0, 1, 3, 2, 1, 4);
    eg_tensor *mask = eg_gt(eg_normal(cx, 0, 1, 2, 3, 2), eg_zeros(cx, 1));
    eg_tensor *as_written = attend(q, k, k, (eg_masked){ "bji", mask });
    eg_tensor *turned = attend(q, k, k, (eg_masked){ "ijb", eg_permute(mask, 2, 1, 0) });
    good = good && eg_item(eg_max(NULL, eg_abs(eg_sub(as_written, turned)))) == 0;

    /* the module: (sequence, batch, model); values always have a bias */
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "mha", .d_model = 512, .heads = 8, .dropout = 0.1, .layout = "i b m",
                           .no_q_bias = true, .no_k_bias = true);
    y = eg_mha_run(m, eg_normal(cx, 0, 1, 10, 4, 512), .where = "j <= i");
    printf("(%lld, %lld, %lld), %lld parameters\n", (long long)eg_dim(y, 0),
           (long long)eg_dim(y, 1), (long long)eg_dim(y, 2), (long long)eg_params_size(p));
    good = good && eg_params_size(p) == 1049600 && eg_dim(y, 0) == 10 && !eg_error(cx);
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
