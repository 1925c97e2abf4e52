/* by_key_of.h: sorts elements of type PAIR by their keys, KEY(element). Those of sort.c are in
 * order of index before, and elements with equal keys keep their order. NAME(x) is x with the name
 * of the type. */

/* Sorts n elements with keys of some bytes, byte after byte, the least significant first, each
 * stably (Knuth, volume 3, 5.2.5). Bytes that all keys have in common are skipped. Returns the one
 * of the two arrays that has the order. */
EG_INLINE PAIR *NAME(by_key)(int64_t n, const int bytes, PAIR *from, PAIR *to)
{
    int64_t count[sizeof(uint64_t)][256];
    if (by_insertion(n, bytes)) {
        for (int64_t i = 1; i < n; i++) {
            const PAIR it = from[i];
            int64_t at = i;
            for (; at > 0 && KEY(from[at - 1]) > KEY(it); at--) from[at] = from[at - 1];
            from[at] = it;
        }
        return from;
    }
    memset(count, 0, (size_t)bytes * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < bytes; b++) count[b][KEY(from[i]) >> 8 * b & 255]++;
    for (int b = 0; b < bytes; b++) {
        int64_t *c = count[b], next = 0;
        if (c[KEY(*from) >> 8 * b & 255] == n) continue;
        for (int v = 0; v < 256; v++) {
            const int64_t here = c[v];
            c[v] = next;
            next += here;
        }
        for (int64_t i = 0; i < n; i++) to[c[KEY(from[i]) >> 8 * b & 255]++] = from[i];
        PAIR *sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}
#undef PAIR
#undef NAME
#undef KEY
