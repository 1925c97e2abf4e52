/* 10: the shapes of multi-head attention, each asserted where it occurs: B samples, L queries, S
 * keys, H heads of width d. Two mistakes that a reshape would hide are errors here; a third, //
 * instead of /, is found by the gradient check. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>

static eg_tensor *forward(eg_tensor *x, eg_tensor *y, eg_tensor *Wq, eg_tensor *Wk, eg_tensor *Wv,
                          eg_tensor *Wo)
{
    int64_t b, l, s, h, d;
    eg_tensor *q = eg_einsum("blm,mhd->bhld", x, Wq); /* BLD -> BLHd -> BHLd */
    eg_tensor *k = eg_einsum("bsm,mhd->bhsd", y, Wk), *v = eg_einsum("bsm,mhd->bhsd", y, Wv);
    eg_axes("b h l d", q, &b, &h, &l, &d);
    eg_axes("b h s d", k, &b, &h, &s, &d);
    /* BHLd · BHSd -> BHLS */
    eg_tensor *scores = eg_scale(eg_einsum("bhld,bhsd->bhls", q, k), 1 / sqrt((double)d));
    eg_tensor *prob = eg_softmax("b h l [s]", scores);
    eg_tensor *o = eg_einsum("bhls,bhsd->blhd", prob, v); /* BHLS · BHSd -> BHLd -> BLHd */
    return eg_einsum("blhd,hdm->blm", o, Wo);             /* -> BLD, even if H·d ≠ D */
}

/* scores // √d, Python's division that rounds down: its gradient is 0 */
static eg_tensor *floored(void *user, eg_tensor *const *x)
{
    eg_tensor *s = eg_floor(eg_scale(eg_einsum("ld,sd->ls", x[0], x[1]), 1 / sqrt(8)));
    return eg_einsum("ls,sd->ld", eg_softmax("l [s]", s), user);
}

int main(void)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    enum { M = 16, H = 2, D = 8 };
    eg_tensor *Wq = eg_normal(cx, 0, 0.2, M, H, D), *Wk = eg_normal(cx, 0, 0.2, M, H, D),
              *Wv = eg_normal(cx, 0, 0.2, M, H, D);
    eg_tensor *Wo = eg_normal(cx, 0, 0.2, H, D, M), *x = eg_normal(cx, 0, 1, 2, 6, M);
    eg_tensor *y = forward(x, eg_normal(cx, 0, 1, 2, 9, M), Wq, Wk, Wv, Wo);
    bool good = eg_rank(y) == 3 && eg_dim(y, 0) == 2 && eg_dim(y, 1) == 6 && eg_dim(y, 2) == M &&
                !eg_error(cx);
    printf("6 queries, 9 keys: (%lld, %lld, %lld)\n", (long long)eg_dim(y, 0),
           (long long)eg_dim(y, 1), (long long)eg_dim(y, 2));

    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "mha", .d_model = 512, .heads = 8, .dropout = 0.1, .W_q = "q_proj",
                           .W_k = "k_proj", .W_v = "v_proj", .W_o = "o_proj");
    y = eg_mha_run(m, eg_normal(cx, 0, 1, 10, 60, 512));
    printf("512 wide, 8 heads, batch 10, length 60: (%lld, %lld, %lld), %lld parameters\n",
           (long long)eg_dim(y, 0), (long long)eg_dim(y, 1), (long long)eg_dim(y, 2),
           (long long)eg_params_size(p));
    good = good && eg_params_size(p) == 1050624 && eg_dim(y, 1) == 60 && !eg_error(cx);

    /* keys of 3 samples for queries of 2: a reshape to the query's sizes would mix samples without
     * an error */
    eg_mha_run(m, eg_normal(cx, 0, 1, 2, 6, 512), .key = eg_normal(cx, 0, 1, 3, 4, 512));
    printf("%s\n", eg_error(cx));
    good = good && eg_error(cx);
    eg_clear(cx);

    eg_tensor *qk[] = { eg_normal(cx, 0, 1, 3, 8), eg_normal(cx, 0, 1, 4, 8) };
    const eg_report *r = eg_gradcheck(floored, eg_normal(cx, 0, 1, 4, 8), 2, qk, .names = "q, k",
                                      .axes = "l d, s d");
    eg_report_print(stdout, r);
    good = good && r && !r->passed;
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
