/* expression_run_of.h: for indices of type INDEX, whose unsigned type is BITS: NAME returns the
 * difference of neighbours in a group of indices, 0, 1 or −1, if it is the same in the whole group
 * and no index must be clamped; else NO_RUN. */
EG_INLINE int NAME(const INDEX *i, int64_t limit)
{
    const BITS first = (BITS)i[0], d = (BITS)i[1] - first;
    const INDEX last = i[EG_LANES - 1];
    BITS off = 0;
    if (d + 1 > 2 || (limit >= 0 && (i[0] < 0 || last < 0 || i[0] > limit || last > limit)))
        return NO_RUN;
    EG_EVERY_LANE
    for (int l = 0; l < EG_LANES; l++) off |= (BITS)i[l] ^ (first + d * (BITS)l);
    return off ? NO_RUN : (int)(d + 1) - 1;
}
#undef INDEX
#undef BITS
#undef NAME
