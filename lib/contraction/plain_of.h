/* plain_of.h: the sum of plain.c for operands of type T, in type WIDE, times a FACTOR. A sum takes
 * its terms in the order of k, whether elements are summed one after another or LANES at once; the
 * compiler may reorder sums of integers, which wrap. */

/* sum[j] += Σ_i a[i ta + j sa] b[i tb + j sb] for j < n and i < terms, a constant, so that a sum is
 * read and written once for all terms; b may be NULL (a factor 1) */
#define TERM(i, sa, sb) TIMES(a[(i)*ta + j * (sa)], b[(i)*tb + j * (sb)])
#define EACH_SUM(VALUE) \
    for (int64_t j = 0; j < n; j++) sum[j] = VALUE
#define FOUR(sa, sb) sum[j] + TERM(0, sa, sb) + TERM(1, sa, sb) + TERM(2, sa, sb) + TERM(3, sa, sb)
EG_INLINE void NAME(add_products)(const int terms, int64_t n, const T *a, int64_t sa, int64_t ta,
                                  const T *b, int64_t sb, int64_t tb, WIDE *sum)
{
    for (int i = 0; i < terms && !b; i++)
        if (sa == 1)
            EACH_SUM(sum[j] + (WIDE)a[i * ta + j]);
        else
            EACH_SUM(sum[j] + (WIDE)a[i * ta + j * sa]);
    if (!b) return;
    if (sa == 1 && sb == 1 && terms == 4)
        EACH_SUM(FOUR(1, 1));
    else if (sa == 1 && sb == 1)
        EACH_SUM(sum[j] + TERM(0, 1, 1));
    else if (sa == 0 && sb == 1 && terms == 4)
        EACH_SUM(FOUR(0, 1));
    else if (sa == 0 && sb == 1)
        EACH_SUM(sum[j] + TERM(0, 0, 1));
    else if (terms == 4)
        EACH_SUM(FOUR(sa, sb));
    else
        EACH_SUM(sum[j] + TERM(0, sa, sb));
}
#undef TERM
#undef EACH_SUM
#undef FOUR
/* Returns first + Σ a[i sa] b[i sb] for i < n. */
EG_INLINE WIDE NAME(sum_products)(int64_t n, const T *a, int64_t sa, const T *b, int64_t sb,
                                  WIDE first)
{
    WIDE sum = first;
    if (!b && sa == 1)
        for (int64_t i = 0; i < n; i++) sum += (WIDE)a[i];
    else if (!b)
        for (int64_t i = 0; i < n; i++) sum += (WIDE)a[i * sa];
    else if (sa == 1 && sb == 1)
        for (int64_t i = 0; i < n; i++) sum += TIMES(a[i], b[i]);
    else
        for (int64_t i = 0; i < n; i++) sum += TIMES(a[i * sa], b[i * sb]);
    return sum;
}
/* sum[j] += Σ_i a[i sa + j ra] b[i sb + j rb] for j < rows and i < n */
EG_INLINE void NAME(sum_rows)(int64_t rows, int64_t n, const T *a, int64_t ra, int64_t sa,
                              const T *b, int64_t rb, int64_t sb, WIDE *sum)
{
    for (int64_t j = 0; j < rows; j++)
        sum[j] = NAME(sum_products)(n, a + j * ra, sa, b ? b + j * rb : NULL, sb, sum[j]);
}
EG_CLONES static void NAME(plain)(const eg_axes *out, const eg_axes *k, const T *a, const T *b,
                                  WIDE *c, double alpha, bool add)
{
    const eg_axis one = { .size = 1 }, *x = out->n ? &out->axis[out->n - 1] : &one;
    eg_axes terms = *k;
    uint64_t repeats = 1; /* of each term, along axes that a and b are expanded to */
    for (; terms.n && !terms.axis[terms.n - 1].sa && !terms.axis[terms.n - 1].sb; terms.n--) {
        repeats *= (uint64_t)terms.axis[terms.n - 1].size;
        terms.total /= terms.axis[terms.n - 1].size;
    }
    const eg_axis *in = terms.n ? &terms.axis[terms.n - 1] : &one;
    /* along the axis whose elements are closer to each other or, if they are equally close, as in
     * overlapping windows, the longer one; along x if the innermost axis of the sum is short */
    const int64_t of_x = eg__abs64(x->sa) + eg__abs64(x->sb),
                  of_k = eg__abs64(in->sa) + eg__abs64(in->sb);
    const bool across =
        x->size > 1 && (in->size == 1 || (in->size < FEW_TERMS && x->size >= FEW_TERMS) ||
                        of_x < of_k || (of_x == of_k && x->size > in->size));
    /* The elements of a and b for LANES columns of the result remain in the cache for all rows. */
    const bool by_columns = across && terms.total >= MANY_TERMS && x->size < out->total;
    for (int64_t o = 0, m, column = 0; o < out->total; o = by_columns ? o + x->size : o + m) {
        const eg_offsets at = eg__offsets_of(out, o);
        WIDE sum[LANES] = { 0 };
        m = eg__min64(LANES, x->size - o % x->size);
        for (int64_t q = 0; q < terms.total; q += in->size) {
            const eg_offsets in_k = eg__offsets_of(&terms, q);
            const T *pa = a + at.a + in_k.a, *pb = b ? b + at.b + in_k.b : NULL;
            if (!across) NAME(sum_rows)(m, in->size, pa, x->sa, in->sa, pb, x->sb, in->sb, sum);
            for (int64_t i = 0, count; i < in->size && across; i += count) {
                const T *ai = pa + i * in->sa, *bi = pb ? pb + i * in->sb : NULL;
                count = in->size - i < 4 ? 1 : 4;
                if (count == 4)
                    NAME(add_products)(4, m, ai, x->sa, in->sa, bi, x->sb, in->sb, sum);
                else
                    NAME(add_products)(1, m, ai, x->sa, in->sa, bi, x->sb, in->sb, sum);
            }
        }
        for (int64_t j = 0; j < m; j++) {
            WIDE *to = c + at.c + j * x->sc;
            const WIDE term = (FACTOR)alpha * ((FACTOR)repeats * sum[j]);
            *to = add ? *to + term : term;
        }
        if (by_columns && o + x->size >= out->total && column + m < x->size)
            o = (column += m) - x->size; /* row 0 of the next columns */
    }
}
#undef T
#undef WIDE
#undef FACTOR
#undef NAME
