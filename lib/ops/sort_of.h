/* sort_of.h: the order of sort.c for contiguous elements of type T, which are compared by their
 * real part, of type REAL. NAME(x) is a name for this type. */

typedef __typeof__(_Generic((REAL)0, float
                            : (uint32_t)0, int32_t
                            : (uint32_t)0, uint8_t
                            : (uint8_t)0, default
                            : (uint64_t)0)) NAME(bits);
/* Returns the key of an element: an unsigned integer; keys have the order of the elements. NaN is
 * larger than every number; −0 and 0 are equal. */
EG_INLINE NAME(bits) NAME(key)(const rank_job *j, const char *x, int64_t at)
{
    const NAME(bits) all = (NAME(bits)) - 1, top = all ^ all >> 1;
    NAME(bits) key;
#if INTEGERS
    key = (NAME(bits))((NAME(bits))((const T *)(const void *)x)[at] + top);
#else
    const REAL v = EG_RE(((const T *)(const void *)x)[at]) + 0; /* −0 + 0 = 0 */
    memcpy(&key, &v, sizeof v);
    key ^= key & top ? all : top;
    key = v != v ? all : key;
#endif
    return key ^ (j->descending ? all : 0);
}
/* Returns a bound that at least k <= APART keys of a row do not exceed, and few
 * others: the k-th of the smallest keys of APART interleaved parts of the row. */
EG_INLINE NAME(bits) NAME(bound)(const rank_job *j, const char *x)
{
    NAME(bits) least[APART], bound = (NAME(bits)) - 1;
    for (int l = 0; l < APART; l++) least[l] = bound;
    for (int64_t i = 0; i + APART <= j->n; i += APART) {
        EG_EVERY_LANE
        for (int l = 0; l < APART; l++) {
            const NAME(bits) key = NAME(key)(j, x, i + l);
            least[l] = key < least[l] ? key : least[l];
        }
    }
    for (int q = 0; q < APART; q++) {
        int32_t count = 0;
        EG_EVERY_LANE
        for (int l = 0; l < APART; l++) count += least[l] <= least[q];
        bound = count >= j->k && least[q] < bound ? least[q] : bound;
    }
    return bound;
}
/* Returns bits: bit l is 1 if the key of element i + l, in a group of lanes, does not exceed
 * `most`. */
EG_INLINE uint32_t NAME(up_to)(const rank_job *j, const char *x, int64_t i, NAME(bits) most)
{
    uint32_t bits = 0;
    EG_EVERY_LANE
    for (int l = 0; l < EG_LANES; l++) bits |= (uint32_t)(NAME(key)(j, x, i + l) <= most) << l;
    return bits;
}
/* Sets place[] to the k indices with the smallest keys, equal keys in their order. The best k of
 * the elements so far are kept; an element that belongs before the last of them replaces it. If k
 * is small, keys above the bound are never compared one by one. */
EG_CLONES static void NAME(first_positions)(const rank_job *j, const char *x, int64_t *place,
                                            ranked *best)
{
    const bool few = j->k <= IN_ORDER;
    const ranked *last = best + (few ? j->k - 1 : 0);
    const NAME(bits) bound = few ? NAME(bound)(j, x) : (NAME(bits)) - 1;
    for (int64_t i = 0; i < j->k; i++) best[i] = (ranked){ bound, INT64_MAX };
    for (int64_t i = 0, m; i < j->n; i += m) {
        m = i + EG_LANES <= j->n ? EG_LANES : 1;
        uint32_t bits = m == 1 ? 1 : NAME(up_to)(j, x, i, (NAME(bits))last->key);
        for (; bits; bits &= bits - 1) {
            const int64_t at = i + __builtin_ctz(bits);
            const ranked it = { NAME(key)(j, x, at), at };
            if (!after(last, &it)) continue;
            if (few)
                put_in_order(best, j->k, it);
            else
                put_in_heap(best, j->k, it);
        }
    }
    for (int64_t i = j->k; i-- > 0;) {
        place[i] = best[few ? i : 0].place;
        if (!few) put_in_heap(best, i, best[i]);
    }
}
/* Copies the keys of a row to `key`, with the largest possible key up to whole groups of lanes, and
 * sets *low and *high to the smallest and the largest of the row. */
EG_INLINE void NAME(copy_keys)(const rank_job *j, const char *x, NAME(bits) * key, NAME(bits) * low,
                               NAME(bits) * high)
{
    const NAME(bits) all = (NAME(bits)) - 1;
    NAME(bits) least[EG_LANES], most[EG_LANES];
    int64_t i = 0;
    for (int l = 0; l < EG_LANES; l++) least[l] = all, most[l] = 0;
    for (; i + EG_LANES <= j->n; i += EG_LANES) {
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) {
            const NAME(bits) v = NAME(key)(j, x, i + l);
            key[i + l] = v;
            least[l] = v < least[l] ? v : least[l];
            most[l] = v > most[l] ? v : most[l];
        }
    }
    for (; i < j->n || i % EG_LANES; i++) {
        if (i < j->n) least[0] = (key[i] = NAME(key)(j, x, i)) < least[0] ? key[i] : least[0];
        if (i < j->n) most[0] = key[i] > most[0] ? key[i] : most[0];
        if (i >= j->n) key[i] = all;
    }
    *low = all, *high = 0;
    for (int l = 0; l < EG_LANES; l++) {
        *low = least[l] < *low ? least[l] : *low;
        *high = most[l] > *high ? most[l] : *high;
    }
}
/* Returns how many of n keys, whole groups of lanes, do not exceed `most`. */
EG_INLINE int64_t NAME(count_up_to)(int64_t n, const NAME(bits) * key, NAME(bits) most)
{
    int64_t all = 0;
    for (int64_t i = 0; i < n;) { /* counts of 32 bits */
        const int64_t end = n - i > 1 << 30 ? i + (1 << 30) : n;
        int32_t count[EG_LANES] = { 0 };
        for (; i < end; i += EG_LANES) {
            EG_EVERY_LANE
            for (int l = 0; l < EG_LANES; l++) count[l] += key[i + l] <= most;
        }
        for (int l = 0; l < EG_LANES; l++) all += count[l];
    }
    return all;
}
/* The same place[] as first_positions sets, for larger k: a bound that few more than k keys do not
 * exceed is found by halving the range of the keys, and these are sorted. If many keys are equal to
 * the k-th, the bound is this key, and the first of them count. */
EG_CLONES static void NAME(selected_positions)(const rank_job *j, const char *x, int64_t *place,
                                               ranked *pairs)
{
    const int64_t n = eg__round_up(j->n, EG_LANES), few = candidates(j->k);
    NAME(bits) *key = (NAME(bits) *)(void *)(pairs + 2 * few), low, high;
    int64_t below = 0, up_to = j->n; /* keys below low; keys up to high */
    NAME(copy_keys)(j, x, key, &low, &high);
    while (low < high && up_to > few) {
        const NAME(bits) middle = (NAME(bits))(low + (high - low) / 2);
        const int64_t count = NAME(count_up_to)(n, key, middle);
        if (count >= j->k)
            high = middle, up_to = count;
        else
            low = (NAME(bits))(middle + 1), below = count;
    }
    const int64_t all = up_to > few ? j->k : up_to;
    int64_t taken = 0, equal = up_to > few ? j->k - below : up_to; /* how many equal to high */
    for (int64_t i = 0; taken < all; i += EG_LANES) {
        uint32_t bits = 0;
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++) bits |= (uint32_t)(key[i + l] <= high) << l;
        for (; bits && taken < all; bits &= bits - 1) {
            const int64_t at = i + __builtin_ctz(bits);
            if (key[at] == high && equal-- <= 0) continue;
            pairs[taken++] = (ranked){ key[at], at };
        }
    }
    first_by_key(all, pairs, pairs + few, j->k, place);
}
/* Sets place[] to 0 … k − 1 and returns true if the keys of a row are in order, as those of an
 * expanded row are; else returns false. */
EG_CLONES static bool NAME(in_order)(const rank_job *j, const char *x, int64_t *place)
{
    const int64_t n = j->n, k = j->k;
    int64_t i = 0;
    for (; i + EG_LANES < n; i += EG_LANES) {
        int32_t after = 0;
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++)
            after |= NAME(key)(j, x, i + l) > NAME(key)(j, x, i + l + 1);
        if (after) return false;
    }
    for (; i + 1 < n; i++)
        if (NAME(key)(j, x, i) > NAME(key)(j, x, i + 1)) return false;
    for (i = 0; i < k; i++) place[i] = i;
    return true;
}
/* Adds to before[l] how many of the keys first … end − 1 are before key l of a group of lanes: of
 * equal keys those with a smaller index. `earlier` and `later`, constants: all of these keys have
 * smaller (larger) indices than the group, whose own keys are neither. */
EG_INLINE void NAME(count_before)(const bool earlier, const bool later, int first, int end,
                                  const NAME(bits) * key, const NAME(bits) * lanes,
                                  NAME(bits) * before)
{
    for (int m = first; m < end; m++) {
        const NAME(bits) it = key[m];
        EG_EVERY_LANE
        for (int l = 0; l < EG_LANES; l++)
            before[l] += earlier ? it <= lanes[l]
                         : later ? it < lanes[l]
                                 : (it < lanes[l]) | ((it == lanes[l]) & (first + l > m));
    }
}
/* Sets place[] for a row of at most COUNTED elements: the place of each is the number of elements
 * before it. No branch depends on the elements. */
EG_CLONES static void NAME(rank_by_counts)(const rank_job *j, const char *x, int64_t *place)
{
    NAME(bits) key[COUNTED];
    const int n = (int)j->n, all = (int)eg__round_up(n, EG_LANES);
    for (int i = 0; i < n; i++) key[i] = NAME(key)(j, x, i);
    for (int i = n; i < all; i++) key[i] = (NAME(bits)) - 1;
    for (int i = 0; i < all; i += EG_LANES) {
        const int end = (int)eg__min64(i + EG_LANES, n);
        NAME(bits) lanes[EG_LANES], before[EG_LANES] = { 0 };
        memcpy(lanes, key + i, sizeof lanes);
        NAME(count_before)(true, false, 0, i, key, lanes, before);
        NAME(count_before)(false, false, i, end, key, lanes, before);
        NAME(count_before)(false, true, end, n, key, lanes, before);
        for (int l = 0; l < end - i; l++)
            if ((int64_t)before[l] < j->k) place[before[l]] = i + l;
    }
}
/* Sets place[] for n elements, a constant: each one is after all elements with smaller keys, and
 * after those with an equal key and a smaller index. Branches, as of a sort by insertion, would be
 * mispredicted. */
EG_INLINE void NAME(rank_constant)(const int n, const rank_job *j, const char *x, int64_t *place)
{
    NAME(bits) key[FEW];
    int before[FEW] = { 0 };
    int64_t order[FEW] = { 0 };
    for (int i = 0; i < n; i++) key[i] = NAME(key)(j, x, i);
    for (int i = 1; i < n; i++)
        for (int l = 0; l < i; l++) {
            const int first = key[l] <= key[i];
            before[i] += first, before[l] += 1 - first;
        }
    for (int i = 0; i < n; i++) order[before[i]] = i;
    for (int64_t i = 0; i < j->k; i++) place[i] = order[i];
}
/* The same for a row of at most FEW elements, without vectors. */
static void NAME(rank_few)(const rank_job *j, const char *x, int64_t *place)
{
    switch (j->n) {
    case 1: NAME(rank_constant)(1, j, x, place); break;
    case 2: NAME(rank_constant)(2, j, x, place); break;
    case 3: NAME(rank_constant)(3, j, x, place); break;
    case 4: NAME(rank_constant)(4, j, x, place); break;
    case 5: NAME(rank_constant)(5, j, x, place); break;
    case 6: NAME(rank_constant)(6, j, x, place); break;
    case 7: NAME(rank_constant)(7, j, x, place); break;
    }
}
static void NAME(rank)(const rank_job *j, const char *x, int64_t *place, ranked *pairs)
{
    if (j->n <= FEW) {
        NAME(rank_few)(j, x, place);
        return;
    }
    const method how = rank_method(j->k, j->n, (int)sizeof(REAL));
    if (how == SEARCHED) {
        NAME(first_positions)(j, x, place, pairs);
        return;
    }
    if (how == SELECTED) {
        NAME(selected_positions)(j, x, place, pairs);
        return;
    }
    if (j->n > EG_LANES && NAME(in_order)(j, x, place)) return;
    if (j->n <= COUNTED) {
        NAME(rank_by_counts)(j, x, place);
        return;
    }
    if (fits_packed(j->n, (NAME(bits)) - 1)) {
        uint64_t *packed = (uint64_t *)(void *)pairs;
        for (int64_t i = 0; i < j->n; i++)
            packed[i] = (uint64_t)NAME(key)(j, x, i) << 32 | (uint64_t)i;
        packed = by_key_of_packed(j->n, (int)sizeof(REAL), packed, packed + j->n);
        for (int64_t i = 0; i < j->k; i++) place[i] = (int64_t)(packed[i] & UINT32_MAX);
        return;
    }
    for (int64_t i = 0; i < j->n; i++) pairs[i] = (ranked){ NAME(key)(j, x, i), i };
    first_by_key(j->n, pairs, pairs + j->n, j->k, place);
}
