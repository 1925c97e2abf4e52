/* sort_of.h: the order of sort.c for numbers of one type T, which stand by REAL, their real part.
 * NAME(x) is a name for this type. */

/* Returns the element's key, of as many bytes as REAL has: unsigned numbers in the order of the
 * elements. A NaN is larger than every number, −0 and 0 are equal. */
EG_INLINE uint64_t NAME(key)(const rank_job *j, const char *x, int64_t at)
{
    const uint64_t top = (uint64_t)1 << (8 * sizeof(REAL) - 1), all = top | (top - 1);
    uint64_t key = 0;
#if INTEGERS
    key = ((uint64_t) * (const T *)(const void *)(x + at * j->step) + top) & all;
#else
    const REAL v = EG_RE(*(const T *)(const void *)(x + at * j->step)) + 0; /* −0 + 0 = 0 */
    memcpy(&key, &v, sizeof v);
    key ^= key & top ? all : top;
    key = isnan((double)v) ? all : key;
#endif
    return key ^ (j->descending ? all : 0);
}
/* The k places that come first of those with the least keys, equal keys in their order: n log k
 * comparisons. */
static void NAME(first_places)(const rank_job *j, const char *x, int64_t *place, ranked *heap)
{
    for (int64_t i = 0; i < j->k; i++) heap[i] = (ranked){ NAME(key)(j, x, i), i };
    for (int64_t i = j->k / 2; i-- > 0;) sink(heap, j->k, i);
    const rank_job one = *j;
    uint64_t last = heap[0].key;
    for (int64_t i = one.k; i < one.n; i++) {
        const uint64_t key = NAME(key)(&one, x, i);
        if (key >= last) continue; /* of equal keys the earlier place stays */
        heap[0] = (ranked){ key, i };
        sink(heap, one.k, 0);
        last = heap[0].key;
    }
    for (int64_t i = j->k; i-- > 0;) {
        place[i] = heap[0].place;
        heap[0] = heap[i];
        sink(heap, i, 0);
    }
}
static void NAME(rank)(const rank_job *j, const char *x, int64_t *place, ranked *room)
{
    if (j->k < j->n / FEW) {
        NAME(first_places)(j, x, place, room);
        return;
    }
    for (int64_t i = 0; i < j->n; i++) room[i] = (ranked){ NAME(key)(j, x, i), i };
    const ranked *in_order = by_key(j->n, (int)sizeof(REAL), room, room + j->n);
    for (int64_t i = 0; i < j->k; i++) place[i] = in_order[i].place;
}
