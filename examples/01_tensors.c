/* 01: tensors and views. A tensor has a shape, a dtype and strides; a view shares the elements and
 * has its own strides. */
#include <eingrad.h>
#include <stdlib.h>

int main(void)
{
    eg_ctx *cx = eg_open(); /* owns everything below; f32 */
    float numbers[6] = { 1, 2, 3, 4, 5, 6 };
    /* copies the C array; the dtype is that of its elements */
    eg_tensor *x = eg_from(cx, numbers, 2, 3);
    printf("x =\n");
    eg_print(stdout, x);

    printf("its transpose, a view:\n");
    eg_print(stdout, eg_rearrange("i j -> j i", x));
    printf("columns 2, 0 (start at the end, step -2):\n");
    eg_print(stdout, eg_slice("i [j]", x, EG_END, EG_END, -2));
    printf("its diagonal: ");
    eg_print(stdout, eg_diagonal(x, 0, 0, 1));
    printf("windows of 2 along the rows have shape (2, 2, 2):\n");
    eg_print(stdout, eg_unfold("i [j] -> i j w", x, 2, 1));

    eg_tensor *row = eg_select("[i] j", x, 1); /* writing through a view changes x */
    eg_assign(row, eg_full(cx, 9, 3));
    printf("x, after its row 1 was set to 9:\n");
    eg_print(stdout, x);

    printf("letters move axes too: \"(a b) -> b a\" with b = 2:\n");
    eg_print(stdout, eg_rearrange("(a b) -> b a", eg_arange(cx, EG_DEFAULT, 0, 6, 1), .b = 2));

    /* an error makes all dependent results poison, as NaN does */
    eg_tensor *bad = eg_exp(eg_add(x, eg_ones(cx, 4)));
    printf("(2, 3) + (4,): %s\n", eg_error(cx));
    bool good = !eg_ok(bad);
    eg_clear(cx);
    good = good && eg_get(x, 1, 2) == 9 && !eg_error(cx);
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
