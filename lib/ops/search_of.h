/* search_of.h: the search of extremes.c for the largest or smallest element of type T of
 * tensor/each_type_of.h. */

/* True if v is NaN, which no number replaces. */
#if INTEGERS
EG_INLINE bool NAME(odd)(T v) { return (void)v, false; }
#else
EG_INLINE bool NAME(odd)(T v) { return v != v; }
#endif
/* Returns the larger (smallest: smaller) of v and best; NaN if one of them is. */
EG_INLINE T NAME(pick)(bool smallest, T v, T best)
{
    const bool better = smallest ? EG_RE(v) < EG_RE(best) : EG_RE(v) > EG_RE(best);
    return better ? v : NAME(odd)(v) ? v : best;
}
/* Sets each of `half` lanes, a constant, to the best of itself and the lane `half` lanes later. */
EG_INLINE void NAME(halve)(const int half, bool smallest, T *lane)
{
    EG_EVERY_LANE
    for (int l = 0; l < half; l++) lane[l] = NAME(pick)(smallest, lane[l + half], lane[l]);
}
/* Sets *best to the best of itself and x; true if it has changed. */
EG_INLINE bool NAME(better)(bool smallest, int64_t n, const T *x, T *best)
{
    const T had = *best;
    T lane[EG_LANES];
    int64_t k = 0;
    if (NAME(odd)(had)) return false;
    for (int l = 0; l < EG_LANES; l++) lane[l] = had;
    for (; k + EG_LANES <= n; k += EG_LANES) {
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) lane[l] = NAME(pick)(smallest, x[k + l], lane[l]);
    }
    for (int l = 0; k < n; k++, l++) lane[l] = NAME(pick)(smallest, x[k], lane[l]);
    NAME(halve)(8, smallest, lane);
    NAME(halve)(4, smallest, lane);
    NAME(halve)(2, smallest, lane);
    NAME(halve)(1, smallest, lane);
    *best = lane[0];
    return NAME(odd)(lane[0]) ||
           (smallest ? EG_RE(lane[0]) < EG_RE(had) : EG_RE(lane[0]) > EG_RE(had));
}
EG_CLONES static bool NAME(larger)(int64_t n, const void *x, void *best)
{
    return NAME(better)(false, n, x, best);
}
EG_CLONES static bool NAME(smaller)(int64_t n, const void *x, void *best)
{
    return NAME(better)(true, n, x, best);
}
/* Sets each best[k] to the best of itself and x[k]. */
EG_INLINE void NAME(better_each)(bool smallest, int64_t n, const T *x, T *best)
{
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) best[k] = NAME(pick)(smallest, x[k], best[k]);
}
EG_CLONES static void NAME(larger_each)(int64_t n, const void *x, void *best)
{
    NAME(better_each)(false, n, x, best);
}
EG_CLONES static void NAME(smaller_each)(int64_t n, const void *x, void *best)
{
    NAME(better_each)(true, n, x, best);
}
/* Returns the first k with x[k] = best. */
static int64_t NAME(find)(int64_t n, const void *from, const void *best)
{
    const T *x = from, b = *(const T *)best;
    int64_t k = 0;
    while (k < n - 1 && !(EG_RE(x[k]) == EG_RE(b) || (NAME(odd)(b) && NAME(odd)(x[k])))) k++;
    return k;
}
/* Sets first[i], if it is negative, to k where x[i] = best[i]. */
EG_CLONES static void NAME(find_each)(int64_t n, const void *from, const void *best, int64_t k,
                                      int64_t *first)
{
    const T *x = from, *b = best;
    for (int64_t i = 0; i < n; i++) {
        const int same = EG_RE(x[i]) == EG_RE(b[i]), odd_x = NAME(odd)(x[i]),
                  odd_b = NAME(odd)(b[i]), unset = first[i] < 0;
        first[i] = ((same | (odd_x & odd_b)) & unset) ? k : first[i];
    }
}
