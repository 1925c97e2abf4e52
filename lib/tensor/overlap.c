/* overlap.c: adding onto views of which several elements are the same memory, such as overlapping
 * windows, and the layout in which that is fast. */
#include "tensor/tensor.h"

/* The number of axes of x, without its axis `but`, along which elements may be the same memory as
 * others. It is 0 if each stride is larger than the distance that the axes with smaller strides
 * reach together: then all elements are different memory. */
static int repeating_axes(const eg_tensor *x, int but)
{
    int order[EG_RANK_MAX], repeating = 0;
    const int n = eg__axes_by_step(x, but, order);
    int64_t reach = 0;
    for (int k = 0; k < n; k++) {
        const int64_t s = eg__abs64(x->stride[order[k]]);
        repeating += s <= reach;
        reach += s * (x->dim[order[k]] - 1);
    }
    return repeating;
}
bool eg__window_order(const eg_tensor *x, int *order)
{
    int by_step[EG_RANK_MAX], at = 0;
    int64_t span = 1, size = 1;
    for (int r = 0; r < x->rank; r++) {
        if (!x->stride[r] && x->dim[r] > 1) return false;
        span += eg__abs64(x->stride[r]) * (x->dim[r] - 1);
        size *= x->dim[r];
    }
    if (span >= size) return false;
    const int n = eg__axes_by_step(x, -1, by_step);
    for (int r = 0; r < x->rank; r++)
        if (x->dim[r] == 1) order[at++] = r;
    for (int k = n; k-- > 0; at++) {
        const int r = by_step[k];
        int to = at;
        for (; to > 0; to--) {
            const int outer = order[to - 1];
            const int64_t reach = eg__abs64(x->stride[r]) * (x->dim[r] - 1);
            if (eg__abs64(x->stride[outer]) > reach || x->dim[outer] <= x->dim[r]) break;
            order[to] = outer;
        }
        order[to] = r;
    }
    return true;
}

/* A header with sizes and strides of its own. */
typedef struct header {
    eg_tensor x;
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
} header;
/* Sets h->x to x without this axis. */
static void header_without(header *h, const eg_tensor *x, int axis)
{
    h->x = *x;
    h->x.rank = 0;
    h->x.dim = h->dim;
    h->x.stride = h->stride;
    for (int r = 0; r < x->rank; r++) {
        if (r == axis) continue;
        h->dim[h->x.rank] = x->dim[r];
        h->stride[h->x.rank++] = x->stride[r];
    }
}
/* Returns the shorter of two axes that are the same memory only together, as the windows and the
 * positions in a window are: `along`, or another one without which fewer axes repeat memory, but
 * not fewer if `along` is not there either. */
static int shorter_partner(const eg_tensor *x, int along, int repeating)
{
    header rest;
    int best = along;
    header_without(&rest, x, along);
    for (int r = 0; r < x->rank; r++)
        if (r != along && x->dim[r] < x->dim[best] && x->stride[r] && x->stride[along] &&
            repeating_axes(x, r) < repeating &&
            repeating_axes(&rest.x, r - (r > along)) == repeating - 1)
            best = r;
    return best;
}
enum { SLICE_MIN = 512 }; /* elements: a loop over fewer costs more for its call than for them */
/* Adds the slices of target along one axis one after another, so that elements that are added at
 * the same time are different memory. An element's addends are added in the order of an axis
 * without which fewer axes repeat memory: the first such axis, or the last one if slices along the
 * former are small. With n windows of w elements, where the windows i and their positions q with
 * equal i + q are the same memory, the order of increasing i is that of decreasing q. The slices
 * are therefore taken along the shorter of the two axes, from its end. `size`: the elements of g if
 * slices were taken along the longer axes. f: a factor of g, or NULL. */
static void add_repeated(eg_tensor *target, const eg_tensor *g, const eg_tensor *f, int64_t size)
{
    const int repeating = repeating_axes(target, -1);
    if (repeating == 0) {
        if (f)
            eg__add_product_to(target, g, f);
        else
            eg__add_to(target, g);
        return;
    }
    int along = -1, last = -1;
    for (int r = 0; r < target->rank; r++) {
        if (repeating_axes(target, r) >= repeating) continue;
        if (along < 0) along = r;
        last = r;
    }
    if (size / target->dim[along] < SLICE_MIN) along = last;
    const int by = shorter_partner(target, along, repeating);
    const int64_t n = target->dim[by], w = eg__width[target->dtype];
    const bool back = by != along && (target->stride[by] > 0) == (target->stride[along] > 0);
    const int64_t to = target->stride[by] * w, from = g->stride[by] * w,
                  from_f = f ? f->stride[by] * w : 0;
    size /= target->dim[along];
    header t, s, u;
    header_without(&t, target, by);
    header_without(&s, g, by);
    if (f) header_without(&u, f, by);
    for (int64_t k = 0; k < n; k++) {
        const int64_t at = back ? n - 1 - k : k;
        t.x.data = target->data + at * to;
        s.x.data = g->data + at * from;
        if (f) u.x.data = f->data + at * from_f;
        add_repeated(&t.x, &s.x, f ? &u.x : NULL, size);
    }
}
void eg__add_repeated(eg_tensor *target, const eg_tensor *g, const eg_tensor *f)
{
    if (eg_size(g)) add_repeated(target, g, f, eg_size(g));
}
