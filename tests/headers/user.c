/* A user's C file, built by tests/install.sh against the installed library, also with -DN=64
 * -DH=8. */
#include <eingrad.h>
#include <math.h>

static eg_tensor *product(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_tanh(eg_einsum("ij,jk->ik", x[0], x[1]));
}

int main(void)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 1);
    eg_tensor *a = eg_normal(cx, 0, 1, 2, 3), *b = eg_normal(cx, 0, 1, 3, 4);
    eg_tensor *c = eg_einsum("ij,jk->ik", a, b);
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 5, 6);
    eg_tensor *q = eg_rearrange("b l (h d) -> b l h d", x, .h = 2);
    eg_tensor *w, *y = eg_attention("bihd,bjhd,bjhe->bihe", q, q, q);
    eg_tensor *z = eg_attention("bihd,bjhd,bjhe->bihe", q, q, q, .where = "j <= i", .weights = &w);
    const eg_report *r = eg_gradcheck(.f = product, .count = 2, .xs = (eg_tensor *[]){ a, b });

    int bad = eg_error(cx) || !r || !r->passed || eg_dim(c, 1) != 4 || eg_size(y) != 30;
    /* the first query sees the first key alone */
    bad |= !(fabs(eg_get(z, 0, 0, 0, 0) - eg_get(x, 0, 0, 0)) < 1e-12);
    if (bad) fprintf(stderr, "user.c: %s\n", eg_error(cx) ? eg_error(cx) : "wrong values");
    eg_close(cx);
    return bad;
}
