/* plain_of.h: the sum of plain.c for operands of type T, in type WIDE, times a FACTOR. A sum takes
 * its terms in the order of k, whether elements are summed one after another or LANES at once; the
 * compiler may reorder sums of integers, which wrap. Without b, term number k is added to sum
 * number k % SUMS, and these sums are added in pairs: one alone would wait for each of its
 * additions. */

/* sum[j] += Σ_i a[i ta + j sa] b[i tb + j sb] for j < n and i < terms, a constant, so that a sum is
 * read and written once for all terms */
#define TERM(i, sa, sb) TIMES(a[(i)*ta + j * (sa)], b[(i)*tb + j * (sb)])
#define ZERO            ((WIDE)0)
#define EACH_SUM(VALUE) \
    for (int64_t j = 0; j < n; j++) sum[j] = VALUE
#define FOUR(sa, sb) sum[j] + TERM(0, sa, sb) + TERM(1, sa, sb) + TERM(2, sa, sb) + TERM(3, sa, sb)
EG_INLINE void NAME(add_products)(const int terms, int64_t n, const T *a, int64_t sa, int64_t ta,
                                  const T *b, int64_t sb, int64_t tb, WIDE *sum)
{
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
/* sum[j] += a[j sa] */
EG_INLINE void NAME(add_terms)(int64_t n, const T *a, int64_t sa, WIDE *sum)
{
    if (sa == 1)
        EACH_SUM(sum[j] + (WIDE)a[j]);
    else
        EACH_SUM(sum[j] + (WIDE)a[j * sa]);
}
#undef TERM
#undef FOUR
#if ANY_ORDER
/* sum[j] += Σ_i a[i m + j] for j < m and i < n: sums of up to LANES elements in order of memory,
 * which are then added for each j. */
EG_INLINE void NAME(add_interleaved)(int64_t m, int64_t n, const T *a, WIDE *sum)
{
    WIDE lane[LANES] = { 0 };
    const int64_t each = LANES / m, wide = each * m, end = n / each * each;
    for (int64_t i = 0; i < end; i += each, a += wide)
        for (int64_t l = 0; l < wide; l++) lane[l] += (WIDE)a[l];
    for (int64_t l = 0; l < wide; l += m)
        for (int64_t j = 0; j < m; j++) sum[j] += lane[l + j];
    for (int64_t i = end; i < n; i++, a += m)
        for (int64_t j = 0; j < m; j++) sum[j] += (WIDE)a[j];
}
#endif
/* Returns first + Σ a[i sa] b[i sb] for i < n. */
EG_INLINE WIDE NAME(sum_products)(int64_t n, const T *a, int64_t sa, const T *b, int64_t sb,
                                  WIDE first)
{
    WIDE sum = first;
    if (sa == 1 && sb == 1)
        for (int64_t i = 0; i < n; i++) sum += TIMES(a[i], b[i]);
    else
        for (int64_t i = 0; i < n; i++) sum += TIMES(a[i * sa], b[i * sb]);
    return sum;
}
/* sum[(k + i) % SUMS] += a[i sa] for i < n; sa is a constant where it is 1 or −1. */
EG_INLINE void NAME(sum_terms)(int64_t n, const T *a, const int64_t sa, int64_t k, WIDE *sum)
{
#if SUMS == 1
    WIDE all = *sum;
    (void)k;
    for (int64_t i = 0; i < n; i++) all += (WIDE)a[i * sa];
    *sum = all;
#else
    typedef double sums __attribute__((vector_size(SUMS * sizeof(WIDE))));
    int64_t i = 0;
    sums all, next;
    for (; i < n && (k + i) % SUMS; i++) sum[(k + i) % SUMS] += a[i * sa];
    memcpy(&all, sum, sizeof all);
    for (; i + SUMS <= n; i += SUMS) {
        T near[SUMS];
        for (int s = 0; s < SUMS; s++) near[s] = a[(i + s) * sa];
        memcpy(&next, sa == 1 ? a + i : near, sizeof next);
        all += next;
    }
    memcpy(sum, &all, sizeof all);
    for (int s = 0; i < n; i++, s++) sum[s] += a[i * sa];
#endif
}
/* sum[…][j] += Σ_i a[i sa + j ra] b[i sb + j rb] for j < rows and i < n; k: the number of term 0 */
EG_INLINE void NAME(sum_rows)(int64_t rows, int64_t n, const T *a, int64_t ra, int64_t sa,
                              const T *b, int64_t rb, int64_t sb, int64_t k, WIDE (*sum)[LANES])
{
    for (int64_t j = 0; j < rows && b; j++)
        sum[0][j] = NAME(sum_products)(n, a + j * ra, sa, b + j * rb, sb, sum[0][j]);
    for (int64_t j = 0; j < rows && !b; j++) {
        WIDE each[SUMS];
        for (int s = 0; s < SUMS; s++) each[s] = sum[s][j];
        if (sa == 1)
            NAME(sum_terms)(n, a + j * ra, 1, k, each);
        else if (sa == -1)
            NAME(sum_terms)(n, a + j * ra, -1, k, each);
        else
            NAME(sum_terms)(n, a + j * ra, sa, k, each);
        for (int s = 0; s < SUMS; s++) sum[s][j] = each[s];
    }
}
/* c[j sc] (+)= alpha (repeats sum[j]) */
EG_INLINE void NAME(write_sums)(int64_t n, WIDE *sum, FACTOR alpha, FACTOR repeats, WIDE *c,
                                int64_t sc, bool add)
{
    if (alpha != 1 || repeats != 1) EACH_SUM(alpha * (repeats * sum[j]));
    for (int64_t j = 0; j < n && add; j++) c[j * sc] += sum[j];
    if (add) return;
    if (sc == 1)
        memcpy(c, sum, (size_t)n * sizeof *c);
    else
        for (int64_t j = 0; j < n; j++) c[j * sc] = sum[j];
}
#if SUMS == 1
/* c[j sc] = alpha a[j sa] b[j sb] for j < n; the steps are constants where they are common. */
EG_INLINE void NAME(each_product)(int64_t n, const T *a, const int64_t sa, const T *b,
                                  const int64_t sb, FACTOR alpha, WIDE *c, const int64_t sc)
{
    if (alpha == 1)
        for (int64_t j = 0; j < n; j++) c[j * sc] = ZERO + TIMES(a[j * sa], b[j * sb]);
    else
        for (int64_t j = 0; j < n; j++) c[j * sc] = alpha * (ZERO + TIMES(a[j * sa], b[j * sb]));
}
/* Products without a sum along the last axis of the result */
EG_CLONES static void NAME(products)(const eg_axes *out, const T *u, const T *v, int first,
                                     FACTOR alpha, WIDE *c)
{
    const eg_axis one = { .size = 1 }, *x = out->n ? &out->axis[out->n - 1] : &one;
    const int64_t n = x->size, su = x->step[first], sv = x->step[!first];
    for (int64_t o = 0; o < out->total; o += n) {
        const eg_offsets at = eg__offsets_of(out, o);
        const T *a = u + at.of[first], *b = v + at.of[!first];
        WIDE *to = c + at.c;
        if (su == 1 && sv == 1 && x->sc == 1)
            NAME(each_product)(n, a, 1, b, 1, alpha, to, 1);
        else if (su == 0 && sv == 1 && x->sc == 1)
            NAME(each_product)(n, a, 0, b, 1, alpha, to, 1);
        else
            NAME(each_product)(n, a, su, b, sv, alpha, to, x->sc);
    }
}
#endif
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
    const int64_t of_x = x->sa || x->sb ? eg__abs64(x->sa) + eg__abs64(x->sb) : INT64_MAX,
                  of_k = eg__abs64(in->sa) + eg__abs64(in->sb);
    const bool across =
        x->size > 1 && (in->size == 1 || (in->size < FEW_TERMS && x->size >= FEW_TERMS) ||
                        of_x < of_k || (of_x == of_k && x->size > in->size));
    /* The elements of a and b for LANES columns of the result remain in the cache for all rows. */
    const bool by_columns = across && terms.total >= MANY_TERMS && x->size < out->total;
    const int sums = b ? 1 : SUMS;
    /* the operand that is constant along x, if one is, comes first */
    const int first = b && x->sa && !x->sb ? EG_OF_B : EG_OF_A, other = !first;
    const T *u = first ? b : a, *v = first ? a : b;
#if SUMS == 1 /* gcc fuses products of c128, in another way there */
    if (b && !add && terms.total == 1 && repeats == 1) {
        NAME(products)(out, u, v, first, (FACTOR)alpha, c);
        return;
    }
#endif
    const int64_t su = x->step[first], sv = x->step[other], tu = in->step[first],
                  tv = in->step[other];
    for (int64_t o = 0, m, column = 0; o < out->total; o = by_columns ? o + x->size : o + m) {
        const eg_offsets at = eg__offsets_of(out, o);
        WIDE sum[SUMS][LANES];
        m = eg__min64(LANES, x->size - o % x->size);
        for (int s = 0; s < sums; s++) memset(sum[s], 0, (size_t)m * sizeof(WIDE));
        for (int64_t q = 0; q < terms.total; q += in->size) {
            const eg_offsets in_k = eg__offsets_of(&terms, q);
            const T *pu = u + at.of[first] + in_k.of[first],
                    *pv = v ? v + at.of[other] + in_k.of[other] : NULL;
            if (!across) NAME(sum_rows)(m, in->size, pu, su, tu, pv, sv, tv, q, sum);
#if ANY_ORDER
            if (across && !v && su == 1 && tu == m && m <= LANES / 4) {
                NAME(add_interleaved)(m, in->size, pu, *sum);
                continue;
            }
#endif
            for (int64_t i = 0; i < in->size && across && !v; i++)
                NAME(add_terms)(m, pu + i * tu, su, sum[(q + i) % SUMS]);
            for (int64_t i = 0, count; i < in->size && across && v; i += count) {
                count = in->size - i < 4 ? 1 : 4;
                if (count == 4)
                    NAME(add_products)(4, m, pu + i * tu, su, tu, pv + i * tv, sv, tv, *sum);
                else
                    NAME(add_products)(1, m, pu + i * tu, su, tu, pv + i * tv, sv, tv, *sum);
            }
        }
        for (int s = 1; s < sums; s *= 2)
            for (int r = 0; r + s < sums; r += 2 * s)
                for (int64_t j = 0; j < m; j++) sum[r][j] += sum[r + s][j];
        NAME(write_sums)
        (m, *sum, (FACTOR)alpha, (FACTOR)repeats, c + at.c, x->sc, add);
        if (by_columns && o + x->size >= out->total && column + m < x->size)
            o = (column += m) - x->size; /* row 0 of the next columns */
    }
}
#undef EACH_SUM
#undef ZERO
#undef T
#undef WIDE
#undef FACTOR
#undef NAME
