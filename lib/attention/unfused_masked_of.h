/* unfused_masked_of.h: part of unfused_masked.c, for one type T. */

/* True if a product of x can overflow, or x is not finite. */
static bool NAME(masked_exceeds)(T x) { return !(EG_RE(x) <= MODERATE && EG_RE(x) >= -MODERATE); }

/* y is over the scores. Sets to 0 the elements that are forbidden and exceed MODERATE. */
static void NAME(masked_clear)(eg_tensor *y, const masked_axis *axis)
{
    const masked *a = y->attr;
    int64_t at[EG_RANK_MAX] = { 0 }, off[PLACES] = { 0 };
    do {
        T *s = (T *)(void *)y->data + off[IN_SCORES];
        if (NAME(masked_exceeds)(*s) && !masked_keeps(y, off)) *s = 0;
    } while (masked_next(a->scores, axis, at, off));
}

/* Sets the elements of z that exceed MODERATE to 0; z is row-major. */
static void NAME(masked_purge)(eg_tensor *z)
{
    T *v = (T *)(void *)z->data;
    for (int64_t k = 0; k < eg_size(z); k++)
        if (NAME(masked_exceeds)(v[k])) v[k] = 0;
}

/* y += w v for each v of x that exceeds MODERATE and each allowed pair that contains it. The first
 * axes are those of x; `rest` others follow. */
static void NAME(masked_add)(eg_tensor *y, int rest, const masked_axis *axis)
{
    const eg_tensor *w = y->in[0], *x = y->in[1];
    int64_t at[2 * EG_RANK_MAX] = { 0 }, off[PLACES] = { 0 };
    do {
        int64_t from = 0;
        for (int k = 0; k < x->rank; k++) from += at[k] * x->stride[k];
        const T v = ((const T *)(const void *)x->data)[from];
        if (!NAME(masked_exceeds)(v)) continue;
        do {
            if (!masked_keeps(y, off)) continue;
            T *to = (T *)(void *)y->data + off[IN_OTHER];
            *to += ((const T *)(const void *)w->data)[off[IN_SCORES]] * v;
        } while (masked_next(rest, axis + x->rank, at + x->rank, off));
    } while (masked_next(x->rank, axis, at, off));
}
