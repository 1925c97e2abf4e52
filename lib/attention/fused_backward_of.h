/* fused_backward_of.h: part of fused_backward.c, for one type T. */

/* Writes D = g·y of queries [from, to) to their positions in out. */
static void NAME(means)(const eg_fused *f, const eg_fused_batch *b, int64_t from, int64_t to,
                        char *out)
{
    const eg_fused_list *l = &f->list[EG_PART_VALUE];
    const eg_fused_axis *last = &l->axis[l->n ? l->n - 1 : 0];
    const int64_t e = l->total, size = l->n ? last->size : 1, gs = l->n ? last->step[EG_SLOT_G] : 0,
                  ys = l->n ? last->step[EG_SLOT_Y] : 0;
    const T *g = (const T *)(void *)f->data[EG_SLOT_G] + b->at[EG_SLOT_G],
            *y = (const T *)(void *)f->data[EG_SLOT_Y];
    for (int64_t i = from; i < to; i++) {
        const T *gi = g + eg__fused_at(f, EG_PART_QUERY, EG_SLOT_G, i);
        T sum = 0;
        for (int64_t c = 0, n; c < e; c += n) {
            n = eg__min64(size, e - c);
            const T *gc = gi + eg__fused_at(f, EG_PART_VALUE, EG_SLOT_G, c),
                    *yc = y + b->at[EG_SLOT_Y] + eg__fused_at(f, EG_PART_QUERY, EG_SLOT_Y, i) +
                          eg__fused_at(f, EG_PART_VALUE, EG_SLOT_Y, c);
            sum += (T)f->ops->dot(n, gc, gs, yc, ys);
        }
        ((T *)(void *)out)[i] = sum;
    }
}
