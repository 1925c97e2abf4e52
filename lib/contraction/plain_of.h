/* plain_of.h: the sum of plain.c for operands of type T, in type SUM, times a FACTOR. */

static void NAME(plain)(const eg_axes *out, const eg_axes *k, const T *a, const T *b, SUM *c,
                        double alpha, bool add)
{
    const eg_axis one = { .size = 1 }, *in = k->n ? &k->axis[k->n - 1] : &one;
    for (int64_t o = 0; o < out->total; o++) {
        const eg_offsets at = eg__offsets_of(out, o);
        SUM
        sum = 0;
        for (int64_t q = 0; q < k->total; q += in->size) {
            const eg_offsets in_k = eg__offsets_of(k, q);
            const T *pa = a + at.a + in_k.a, *pb = b ? b + at.b + in_k.b : NULL;
            for (int64_t i = 0; i < in->size; i++)
                sum += pb ? (SUM)pa[i * in->sa] * (SUM)pb[i * in->sb] : (SUM)pa[i * in->sa];
        }
        sum = (FACTOR)alpha * sum;
        c[at.c] = add ? c[at.c] + sum : sum;
    }
}
#undef T
#undef SUM
#undef FACTOR
#undef NAME
