// A user's C++17 file: user.c, with the same names.
#include <eingrad.h>
#include <cmath>
#include <cstdio>

static eg_tensor *product(void *, eg_tensor *const *x)
{
    return eg_tanh(eg_einsum("ij,jk->ik", x[0], x[1]));
}

int main()
{
    eg_open_args open = {};
    open.dtype = EG_F64;
    open.seed = 1;
    eg_ctx *cx = eg_open(open);
    eg_tensor *a = eg_normal(cx, 0, 1, 2, 3), *b = eg_normal(cx, 0, 1, 3, 4);
    eg_tensor *c = eg_einsum("ij,jk->ik", a, b);
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 5, 6);
    eg_rearrange_args heads = {};
    heads.h = 2;
    eg_tensor *q = eg_rearrange("b l (h d) -> b l h d", x, heads);
    eg_tensor *w, *y = eg_attention("bihd,bjhd,bjhe->bihe", q, q, q);
    eg_attention_args causal = {};
    causal.where = "j <= i";
    causal.weights = &w;
    eg_tensor *z = eg_attention("bihd,bjhd,bjhe->bihe", q, q, q, causal);
    eg_where_mask_args documents = {};
    const int64_t number[] = { 0, 0, 1, 1, 1 };
    documents.with[0] = { "doc", eg_from(cx, number, 5) };
    eg_tensor *mask = eg_where_mask(cx, "doc[i] == doc[j]", "i j", 0, nullptr, documents);
    eg_softmax_args packed = {};
    packed.where = "doc[i] == doc[j]";
    packed.with[0] = documents.with[0];
    eg_tensor *s = eg_softmax("i [j]", eg_ones(cx, 5, 5), packed);
    eg_tensor *inputs[] = { a, b };
    const eg_report *r = eg_gradcheck(product, nullptr, 2, inputs);
    const eg_shape shapes[] = { eg_shape_of(a), eg_shape_of(b) };
    const eg_explained *e = eg_explain_shapes(cx, "ij,jk->ik", 2, shapes);

    bool bad = eg_error(cx) || !r || !r->passed || eg_dim(c, 1) != 4 || eg_size(y) != 30;
    bad |= !(std::fabs(eg_get(z, 0, 0, 0, 0) - eg_get(x, 0, 0, 0)) < 1e-12);
    bad |= !e || e->steps != 1 || e->forward != 24;
    bad |= eg_get(mask, 0, 1) != 1 || eg_get(mask, 1, 2) != 0 || eg_get(s, 1, 1) != 0.5;
    if (bad) std::fprintf(stderr, "user.cc: %s\n", eg_error(cx) ? eg_error(cx) : "wrong values");
    eg_close(cx);
    return bad;
}
