/* fuzz_expression.c: any bytes are a formula over (i j) and four tensors; nothing may crash, leak,
 * read outside of memory, or fail without an error message; the gradient of what evaluates exists.
 * Input: one byte for the sizes of i and j, 1 … 8 each; then the string. Built as fuzz_npy.c
 * says. */
#include <eingrad.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static eg_ctx *cx;

/* The tensors that the text names, since one that is not read is refused. */
static int given_of(const char *text, const eg_given *all, int count, eg_given *with)
{
    int n = 0;
    for (int k = 0; k < count; k++)
        if (strstr(text, all[k].name)) with[n++] = all[k];
    return n;
}
static void formula_bytes(const uint8_t *data, size_t size)
{
    const int64_t i = 1 + (data[0] & 7), j = 1 + (data[0] >> 3 & 7);
    char *text = malloc(size);
    if (!text) return;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    eg_tensor *x = eg_uniform(cx, -1, 1, i, j), *r = eg_uniform(cx, -1, 1, 6),
              *m = eg_cast(eg_scale(eg_uniform(cx, 0, 1, j), 5), EG_I64),
              *b = eg_gt(eg_uniform(cx, -1, 1, i), eg_zeros(cx, i));
    const eg_given all[] = { { "x", x }, { "rr", r }, { "mm", m }, { "bb", b } };
    eg_expr_args o = { .size = sizeof o, .axes = "i j", .text = text };
    if (!given_of(text, all, 4, o.with)) o.with[0] = all[0];
    eg_tensor *y = eg_expr_with(&o), *in[2] = { x, r }, *d[2];
    if (!eg_ok(y) && !eg_error(cx)) abort();
    if (eg_ok(y) && eg_type(y) == EG_F32 && eg_grad(y, y, 2, in, d)) abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!cx) cx = eg_open_with(&(eg_open_args){ .size = sizeof(eg_open_args), .threads = 1 });
    if (size < 1 || !cx) return 0;
    const eg_mark mark = eg_push(cx);
    formula_bytes(data, size);
    eg_clear(cx);
    eg_pop(cx, mark);
    return 0;
}
