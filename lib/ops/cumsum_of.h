/* cumsum_of.h: the cumulative sum and product of scan.c for results of type T from operands of type
 * FROM, computed in type WIDE. NAME(x) is a name for FROM; product is a constant. */

/* Returns the sum or product of the elements before v, `run`, and v; first: there are none. */
EG_INLINE WIDE NAME(cumulate)(const bool product, const bool first, WIDE run, WIDE v)
{
    return first ? v : product ? run * v : run + v;
}
/* Computes m ≤ LANES lines; ys, xs: distance of lines in bytes. */
EG_INLINE void NAME(cumsum_some)(const bool product, const int64_t m, const line *l, char *y,
                                 int64_t ys, const char *x, int64_t xs)
{
    WIDE run[LANES] = { 0 };
    for (int64_t i = 0; i < l->n; i++, y += l->y, x += l->a)
        for (int64_t k = 0; k < m; k++) {
            run[k] =
                NAME(cumulate)(product, product && !i, run[k], (WIDE) * (const FROM *)(x + k * xs));
            *(T *)(y + k * ys) = (T)run[k];
        }
}
/* The same for m ≤ ABREAST lines without gaps, which may be reversed in x: COLUMNS elements of each
 * line are transposed, so that each step takes vectors. */
EG_INLINE void NAME(cumsum_abreast)(const bool product, int64_t m, const line *l, char *y,
                                    int64_t ys, const char *x, int64_t xs)
{
    const int64_t w = (int64_t)sizeof(T), v = (int64_t)sizeof(FROM);
    const bool reversed = l->a < 0;
    const int64_t advance = reversed ? -ABREAST : ABREAST;
    FROM in[COLUMNS * ABREAST];
    T out[COLUMNS * ABREAST];
    WIDE run[ABREAST] = { 0 };
    if (m < ABREAST) memset(in, 0, sizeof in);
    for (int64_t i = 0, count; i < l->n; i += count) {
        count = eg__min64(l->n - i, COLUMNS);
        const char *lowest = x + l->a * (reversed ? i + count - 1 : i);
        eg__transpose(sizeof(FROM), m, count, lowest, xs / v, in, ABREAST, false);
        const FROM *next = reversed ? in + (count - 1) * ABREAST : in;
        for (int64_t k = 0; k < count; k++, next += advance) {
            const bool first = product && !i && !k;
            EG_EVERY_LANE
            for (int64_t j = 0; j < ABREAST; j++) {
                run[j] = NAME(cumulate)(product, first, run[j], (WIDE)next[j]);
                out[k * ABREAST + j] = (T)run[j];
            }
        }
        eg__transpose(sizeof(T), count, m, out, ABREAST, y + i * w, ys / w, false);
    }
}
/* The loops over FEW and fewer lines and over LANES neighbouring lines have constant bounds: the
 * compiler keeps the sums of the former in registers, and neighbouring lines are vectors. */
EG_INLINE void NAME(cumulated)(const bool product, int64_t n, char *const *p, const int64_t *step,
                               const line *l)
{
    const int64_t w = (int64_t)sizeof(T), v = (int64_t)sizeof(FROM);
    const bool along = !step[1] || eg__abs64(l->a) < eg__abs64(step[1]),
               abreast = (v == 4 || v == 8) && l->n >= ABREAST && l->y == w && eg__abs64(l->a) == v,
               beside = step[0] == w && step[1] == v,
               /* gcc would fuse other products of c128 */
        few = (along || beside || n == 1) && !(product && w > 8);
    const int64_t most = abreast ? ABREAST : along ? FEW : LANES;
    for (int64_t j = 0, m; j < n; j += m) {
        char *y = p[0] + j * step[0], *x = p[1] + j * step[1];
        m = eg__min64(n - j, most);
        if (few && !along && m < LANES && m > FEW) m = FEW;
        if (few && m < FEW) m = few_lines(m);
        if (abreast && m >= FEW)
            NAME(cumsum_abreast)(product, m, l, y, step[0], x, step[1]);
        else if (few && beside && m == FEW)
            NAME(cumsum_some)(product, FEW, l, y, w, x, v);
        else if (few && beside && m == 4)
            NAME(cumsum_some)(product, 4, l, y, w, x, v);
        else if (along && m == FEW)
            NAME(cumsum_some)(product, FEW, l, y, step[0], x, step[1]);
        else if (few && m == 4)
            NAME(cumsum_some)(product, 4, l, y, step[0], x, step[1]);
        else if (few && m == 2)
            NAME(cumsum_some)(product, 2, l, y, step[0], x, step[1]);
        else if (few && m == 1)
            NAME(cumsum_some)(product, 1, l, y, step[0], x, step[1]);
        else if (beside && m == LANES)
            NAME(cumsum_some)(product, LANES, l, y, w, x, v);
        else
            NAME(cumsum_some)(product, m, l, y, step[0], x, step[1]);
    }
}
EG_CLONES static void NAME(cumsum)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    NAME(cumulated)(false, n, p, step, user);
}
EG_CLONES static void NAME(cumprod)(int64_t n, char *const *p, const int64_t *step,
                                    const void *user)
{
    NAME(cumulated)(true, n, p, step, user);
}
#undef FROM
#undef T
#undef NAME
#undef WIDE
