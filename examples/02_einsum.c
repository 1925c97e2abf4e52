/* 02: einsum. The string names the axes: letters that are not in the output are summed, and a
 * letter has the same size in all operands. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>

static void show(const char *spec, eg_tensor *y)
{
    printf("%s\n", spec);
    eg_print(stdout, y);
}

int main(void)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *a = eg_reshape(eg_arange(cx, EG_DEFAULT, 0, 6, 1), 2, 3), *b = eg_full(cx, 2, 3, 2);
    show("ij,jk->ik   matrix product", eg_einsum("ij,jk->ik", a, b));
    show("ij->i       row sums", eg_einsum("ij->i", a));
    show("ij,kj->     sum of all products", eg_einsum("ij,kj->", a, eg_einsum("jk->kj", b)));
    show("i->ii       a vector on the diagonal", eg_einsum("i->ii", eg_einsum("ij->i", a)));

    /* attention scores: q = 0..15 as (2, 1, 2, 4), k = 0..23 as (3, 1, 2, 4) */
    eg_tensor *q = eg_reshape(eg_arange(cx, EG_DEFAULT, 0, 16, 1), 2, 1, 2, 4);
    eg_tensor *k = eg_reshape(eg_arange(cx, EG_DEFAULT, 0, 24, 1), 3, 1, 2, 4);
    eg_tensor *s = eg_einsum("ibhd,jbhd->ijbh", q, k);
    show("ibhd,jbhd->ijbh   for each batch b and head h: queries i against keys j",
         eg_reshape(s, 12));
    static const double right[12] = { 14, 126, 62, 302, 110, 478, 62, 302, 366, 734, 670, 1166 };
    bool good = eg_item(eg_all(NULL, eg_eq(eg_reshape(s, 12), eg_from(cx, right, 12)))) == 1;

    /* names instead of letters, and groups: the string splits and merges heads */
    eg_tensor *x = eg_uniform(cx, -1, 1, 2, 5, 6), *w = eg_uniform(cx, -1, 1, 6, 8);
    eg_tensor *h = eg_einsum("batch pos model, model (head=2 width) -> batch head pos width", x, w);
    int64_t heads, width;
    good = eg_axes("batch head pos width", h, NULL, &heads, NULL, &width) && good;
    printf("heads %d of width %d\n", (int)heads, (int)width);

    /* sizes must agree; a size of 1 does not broadcast unless .broadcast asks for it */
    eg_einsum("ibhd,jbhd->ijbh", q, eg_ones(cx, 3, 1, 2, 5));
    printf("%s\n", eg_error(cx));
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
