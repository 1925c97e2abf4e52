/* scan_of.h: the recurrence of scan.c for one type T, computed in type WIDE. NAME(x) is a name for
 * this type. */

/* Computes elements first … end − 1 of m ≤ LANES lines; y, a and b are element 0 of the first line,
 * step: distances of lines in bytes, run: the elements before, which it replaces. close: the lines
 * lie one element after the other in all operands, so that each step of the recurrence is a loop
 * over vectors. */
EG_INLINE void NAME(scan_some)(const int64_t m, const bool close, const line *l, int64_t first,
                               int64_t end, WIDE *run, char *y, const char *a, const char *b,
                               const int64_t *step)
{
    const int64_t w = (int64_t)sizeof(T), sy = close ? w : step[0], sa = close ? w : step[1],
                  sb = close ? w : step[2];
    for (int64_t i = first; i < end; i++) {
        const char *factor = a + (i - l->late) * l->a, *term = b + i * l->b;
        char *to = y + i * l->y;
        for (int64_t k = 0; k < m; k++) {
            const WIDE before = i ? (WIDE) * (const T *)(factor + k * sa) * run[k] : 0;
            run[k] = before + (WIDE) * (const T *)(term + k * sb);
            *(T *)(to + k * sy) = (T)run[k];
        }
    }
}
/* Copies elements first … end − 1 of FEW lines, `lines` bytes apart, to near[line][element]. x is
 * element 0 of the first line; elements are ±sizeof(T) bytes apart. Returns where element 0 would
 * be. */
EG_INLINE const char *NAME(scan_near)(const char *x, int64_t along, int64_t lines, int64_t first,
                                      int64_t end, T *near)
{
    const bool reversed = along < 0;
    const char *lowest = x + along * (reversed ? end - 1 : first);
    for (int64_t k = 0; k < FEW; k++)
        memcpy(near + k * COLUMNS, lowest + k * lines, (size_t)(end - first) * sizeof(T));
    return (const char *)near - along * (reversed ? end - 1 : first);
}
/* Computes FEW lines, which have no gaps in a and b but may be reversed there. COLUMNS elements of
 * each line are copied and computed there: lines at distances of a power of two share few sets of a
 * cache, and would be fetched again for each element. */
EG_INLINE void NAME(scan_copied)(const line *l, char *y, const char *a, const char *b,
                                 const int64_t *step)
{
    enum { W = sizeof(T) };
    T of_a[FEW * COLUMNS], of_b[FEW * COLUMNS];
    const int64_t near[3] = { step[0], COLUMNS * W, COLUMNS * W };
    WIDE run[FEW];
    for (int64_t i = 0, end; i < l->n; i = end) {
        end = eg__min64(i + COLUMNS, l->n);
        const char *factors =
                       NAME(scan_near)(a, l->a, step[1], i ? i - l->late : 0, end - l->late, of_a),
                   *terms = NAME(scan_near)(b, l->b, step[2], i, end, of_b);
        NAME(scan_some)(FEW, false, l, i, end, run, y, factors, terms, near);
    }
}
/* Writes elements first … end − 1 of m lines to transposed[element][line], in reverse if along < 0.
 */
EG_INLINE void NAME(scan_turned)(int64_t m, const char *x, int64_t along, int64_t lines,
                                 int64_t first, int64_t end, T *transposed)
{
    const char *lowest = x + along * (along < 0 ? end - 1 : first);
    if (first < end)
        eg__transpose(sizeof(T), m, end - first, lowest, lines / (int64_t)sizeof(T), transposed,
                      ABREAST, false);
}
/* Computes m ≤ ABREAST lines without gaps, which may be reversed in a and b: COLUMNS elements of
 * each line are transposed, so that each step is a loop over vectors. */
EG_INLINE void NAME(scan_abreast)(int64_t m, const line *l, char *y, const char *a, const char *b,
                                  const int64_t *step)
{
    const int64_t w = (int64_t)sizeof(T);
    T of_a[COLUMNS * ABREAST], of_b[COLUMNS * ABREAST], out[COLUMNS * ABREAST];
    WIDE run[ABREAST] = { 0 };
    if (m < ABREAST) {
        memset(of_a, 0, sizeof of_a);
        memset(of_b, 0, sizeof of_b);
    }
    for (int64_t i = 0, end; i < l->n; i = end) {
        end = eg__min64(i + COLUMNS, l->n);
        const int64_t from = i ? i - l->late : 0, to = end - l->late; /* of the factors */
        NAME(scan_turned)(m, a, l->a, step[1], from, to, of_a);
        NAME(scan_turned)(m, b, l->b, step[2], i, end, of_b);
        for (int64_t k = i; k < end; k++) {
            const int64_t f = k ? k - l->late : from;
            const T *factor = of_a + (l->a < 0 ? to - 1 - f : f - from) * ABREAST,
                    *term = of_b + (l->b < 0 ? end - 1 - k : k - i) * ABREAST;
            EG_EVERY_LANE
            for (int64_t j = 0; j < ABREAST; j++) {
                const WIDE before = k ? (WIDE)factor[j] * run[j] : 0;
                run[j] = before + (WIDE)term[j];
                out[(k - i) * ABREAST + j] = (T)run[j];
            }
        }
        eg__transpose(sizeof(T), end - i, m, out, ABREAST, y + i * w, step[0] / w, false);
    }
}
EG_CLONES static void NAME(scan)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const line *l = user;
    const int64_t w = (int64_t)sizeof(T);
    const bool contiguous = eg__abs64(l->b) < eg__abs64(step[2]), /* each line is contiguous */
        copied = eg__abs64(l->a) == w && eg__abs64(l->b) == w && eg__abs64(step[2]) > COLUMNS * w,
               abreast = w <= 8 && l->y == w && eg__abs64(l->a) == w && eg__abs64(l->b) == w &&
                         l->n >= ABREAST,
               close = step[0] == w && step[1] == w && step[2] == w,
               few = contiguous || (close && w <= 8); /* gcc would fuse other products of c128 */
    for (int64_t j = 0, m; j < n; j += m) {
        char *y = p[0] + j * step[0], *a = p[1] + j * step[1], *b = p[2] + j * step[2];
        WIDE run[LANES];
        const int64_t left = n - j;
        m = abreast && left >= FEW                               ? eg__min64(left, ABREAST)
            : few && left >= FEW && (contiguous || left < LANES) ? FEW
            : few && left < FEW                                  ? few_lines(left)
                                                                 : eg__min64(left, LANES);
        if (abreast && m >= FEW && m <= ABREAST)
            NAME(scan_abreast)(m, l, y, a, b, step);
        else if (m == LANES && close)
            NAME(scan_some)(LANES, true, l, 0, l->n, run, y, a, b, step);
        else if (m == FEW && copied)
            NAME(scan_copied)(l, y, a, b, step);
        else if (m == FEW && few && close)
            NAME(scan_some)(FEW, true, l, 0, l->n, run, y, a, b, step);
        else if (m == FEW)
            NAME(scan_some)(FEW, false, l, 0, l->n, run, y, a, b, step);
        else if (m == 4)
            NAME(scan_some)(4, false, l, 0, l->n, run, y, a, b, step);
        else if (m == 2)
            NAME(scan_some)(2, false, l, 0, l->n, run, y, a, b, step);
        else if (m == 1)
            NAME(scan_some)(1, false, l, 0, l->n, run, y, a, b, step);
        else
            NAME(scan_some)(m, false, l, 0, l->n, run, y, a, b, step);
    }
}
#undef T
#undef NAME
#undef WIDE
