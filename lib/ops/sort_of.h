/* sort_of.h: the order of sort.c for numbers of one type T, which stand by REAL, their real part.
 * NAME(x) is a name for this type. */

/* True if place a comes before place b. A NaN is larger than every number, and equal values stay in
 * their order. So no two places are equal, and every method of sorting gives the same order. */
static bool NAME(before)(const rank_job *j, const char *x, int64_t a, int64_t b)
{
    const REAL u = EG_RE(*(const T *)(const void *)(x + a * j->step)),
               v = EG_RE(*(const T *)(const void *)(x + b * j->step));
    /* of integers both are false, which a compiler sees */
    const bool u_nan = isnan((double)u), v_nan = isnan((double)v);
    const bool below = u < v || (v_nan && !u_nan), above = u > v || (u_nan && !v_nan);
    return below ? !j->descending : above ? j->descending : a < b;
}
/* Moves the place at heap[at] down until none of its children comes after it. */
static void NAME(sink)(const rank_job *j, const char *x, int64_t *heap, int64_t count, int64_t at)
{
    const int64_t place = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && NAME(before)(j, x, heap[child], heap[child + 1])) child++;
        if (!NAME(before)(j, x, place, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = place;
}
/* Williams' heap of the k places that come first; its root is the last of them. All n places are
 * tried, then the heap is sorted in place. It takes n log k comparisons and no memory but the
 * result's. */
static void NAME(rank)(const void *user, int64_t row, char *const *p)
{
    const rank_job *j = user;
    int64_t *heap = (int64_t *)(void *)p[0];
    (void)row;
    for (int64_t i = 0; i < j->k; i++) heap[i] = i;
    for (int64_t i = j->k / 2; i-- > 0;) NAME(sink)(j, p[1], heap, j->k, i);
    for (int64_t i = j->k; i < j->n; i++) {
        if (!NAME(before)(j, p[1], i, heap[0])) continue;
        heap[0] = i;
        NAME(sink)(j, p[1], heap, j->k, 0);
    }
    for (int64_t i = j->k; i-- > 1;) {
        const int64_t last = heap[0];
        heap[0] = heap[i];
        heap[i] = last;
        NAME(sink)(j, p[1], heap, i, 0);
    }
}
