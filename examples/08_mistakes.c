/* 08: seven mistakes in multi-head attention, each next to the correct code. N samples, S queries,
 * T keys, H heads of width E/H. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>

static bool good = true;
static void expect(const char *what, eg_tensor *x, int n, const double *want)
{
    printf("%s: ", what);
    eg_print(stdout, x);
    eg_tensor *flat = eg_reshape(x, -1);
    for (int k = 0; k < n; k++) good = good && fabs(eg_get(flat, k) - want[k]) < 5e-5;
}

/* the correct code: projections, split, 1/√(E/H), a mask that removes, softmax over the keys,
 * dropout, merge, projection */
static eg_tensor *attend(eg_mha *m, eg_tensor *query, eg_tensor *key, eg_tensor *mask)
{
    return eg_mha_run(m, query, .key = key, .keep = { "bij", mask });
}

int main(void)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    /* a mask must not be a factor: a score of 0 still has a weight in the softmax */
    static const double score[] = { 1, 2, 3, 4 }, right[] = { 0.2689, 0.7311, 0, 0 },
                        wrong[] = { 0.2245, 0.6103, 0.0826, 0.0826 };
    static const bool keep[] = { true, true, false, false };
    eg_tensor *e = eg_from(cx, score, 4), *k = eg_from(cx, keep, 4);
    expect("masked", eg_softmax("[t]", e, .keep = { "t", k }), 4, right);
    expect("multiplied", eg_softmax("[t]", eg_mul(e, eg_cast(k, EG_F64))), 4, wrong);

    /* softmax(dim=(2,3)) makes every matrix sum to 1, softmax(dim=3) every row: the brackets say
     * which */
    eg_tensor *s = eg_normal(cx, 0, 1, 2, 2, 3, 5);
    static const double one[] = { 1, 1, 1, 1 }, third[] = { 1, 1, 1 };
    expect("both axes", eg_sum("n h [s t]", eg_softmax("n h [s t]", s)), 4, one);
    expect("the keys",
           eg_sum("s [t]",
                  eg_select("[h] s t", eg_select("[n] h s t", eg_softmax("n h s [t]", s), 0), 0)),
           3, third);

    /* heads are merged as the last axis, n h s d -> n s (h d); a reshape alone mixes positions */
    eg_tensor *o = eg_reshape(eg_arange(cx, EG_DEFAULT, 0, 12, 1), 1, 2, 3, 2);
    static const double merged[] = { 0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11 },
                        mixed[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    expect("merged", eg_rearrange("n h s d -> n s (h d)", o), 12, merged);
    expect("reshaped", eg_reshape(o, 1, 3, 4), 12, mixed);

    /* for q and k with variance 1 the product has variance d, and divided by √d variance 1.
     * Division by √S would make it depend on the length */
    eg_tensor *q = eg_normal(cx, 0, 1, 20000, 16), *r = eg_normal(cx, 0, 1, 20000, 16),
              *dot = eg_einsum("nd,nd->n", q, r);
    printf("variance of q·k, width 16: %.2f; of q·k/4: %.3f\n", eg_item(eg_var(NULL, dot)),
           eg_item(eg_var(NULL, eg_scale(dot, 0.25))));
    good = good && fabs(eg_item(eg_var(NULL, eg_scale(dot, 0.25))) - 1) < 0.05;

    /* S ≠ T, and a query without a key: its heads give 0, and the result is b_o, not NaN */
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "attn", .d_model = 8, .heads = 2, .dropout = 0.1);
    bool some[1][2][3] = { { { true, true, false }, { false, false, false } } };
    eg_tensor *y = attend(m, eg_normal(cx, 0, 1, 1, 2, 8), eg_normal(cx, 0, 1, 1, 3, 8),
                          eg_from(cx, &some[0][0][0], 1, 2, 3));
    static const double zero[8] = { 0 };
    expect("nothing to attend to", eg_select("[i] m", eg_select("[b] i m", y, 0), 1), 8, zero);
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    good = good && !eg_error(cx);
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
