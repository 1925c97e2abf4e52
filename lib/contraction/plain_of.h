/* plain_of.h: the sum of plain.c for operands of type T, in type SUM, times a FACTOR. A sum takes
 * its terms in the order of k, whether elements are summed one after another or LANES at once;
 * sums of integers, which wrap, may be divided by the compiler. */

/* sum[j] += a[j sa] b[j sb] for j < n; b may be NULL (a factor 1) */
EG_INLINE void NAME(add_products)(int64_t n, const T *a, int64_t sa, const T *b, int64_t sb,
                                  SUM *sum)
{
    if (!b && sa == 1)
        for (int64_t j = 0; j < n; j++) sum[j] += (SUM)a[j];
    else if (!b)
        for (int64_t j = 0; j < n; j++) sum[j] += (SUM)a[j * sa];
    else if (sa == 1 && sb == 1)
        for (int64_t j = 0; j < n; j++) sum[j] += (SUM)a[j] * (SUM)b[j];
    else if (sa == 0 && sb == 1)
        for (int64_t j = 0; j < n; j++) sum[j] += (SUM)*a * (SUM)b[j];
    else
        for (int64_t j = 0; j < n; j++) sum[j] += (SUM)a[j * sa] * (SUM)b[j * sb];
}
/* Returns first + Σ a[i sa] b[i sb] for i < n. */
EG_INLINE SUM
NAME(sum_products)(int64_t n, const T *a, int64_t sa, const T *b, int64_t sb, SUM first)
{
    SUM
    sum = first;
    if (!b && sa == 1)
        for (int64_t i = 0; i < n; i++) sum += (SUM)a[i];
    else if (!b)
        for (int64_t i = 0; i < n; i++) sum += (SUM)a[i * sa];
    else if (sa == 1 && sb == 1)
        for (int64_t i = 0; i < n; i++) sum += (SUM)a[i] * (SUM)b[i];
    else
        for (int64_t i = 0; i < n; i++) sum += (SUM)a[i * sa] * (SUM)b[i * sb];
    return sum;
}
EG_CLONES static void NAME(plain)(const eg_axes *out, const eg_axes *k, const T *a, const T *b,
                                  SUM *c, double alpha, bool add)
{
    const eg_axis one = { .size = 1 }, *in = k->n ? &k->axis[k->n - 1] : &one,
                  *x = out->n ? &out->axis[out->n - 1] : &one;
    /* along the axis whose elements are closer to each other */
    const bool across =
        x->size > 1 && eg__abs64(x->sa) + eg__abs64(x->sb) < eg__abs64(in->sa) + eg__abs64(in->sb);
    for (int64_t o = 0, m; o < out->total; o += m) {
        const eg_offsets at = eg__offsets_of(out, o);
        SUM
        sum[LANES] = { 0 };
        m = across ? eg__min64(LANES, x->size - o % x->size) : 1;
        for (int64_t q = 0; q < k->total; q += in->size) {
            const eg_offsets in_k = eg__offsets_of(k, q);
            const T *pa = a + at.a + in_k.a, *pb = b ? b + at.b + in_k.b : NULL;
            if (!across) *sum = NAME(sum_products)(in->size, pa, in->sa, pb, in->sb, *sum);
            for (int64_t i = 0; i < in->size && across; i++) NAME(add_products)
            (m, pa + i * in->sa, x->sa, pb ? pb + i * in->sb : NULL, x->sb, sum);
        }
        for (int64_t j = 0; j < m; j++) {
            SUM
            *to = c + at.c + j * x->sc;
            const SUM
            term = (FACTOR)alpha * sum[j];
            *to = add ? *to + term : term;
        }
    }
}
#undef T
#undef SUM
#undef FACTOR
#undef NAME
