/* random_views.h: random tensors of any layout, and their elements read one by one. */
#ifndef RANDOM_VIEWS_H
#define RANDOM_VIEWS_H
#include "fixtures.h"

enum { VIEW_RANK = 4 };
static inline int64_t draw_below(uint64_t *state, int64_t n) /* splitmix64, Steele et al. 2014 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (int64_t)((z ^ z >> 31) % (uint64_t)n);
}
/* Draws a rank from 1 to VIEW_RANK and sizes with a product of at most `most`; returns the rank. */
static inline int draw_sizes(uint64_t *state, int64_t most, int64_t *dim)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 7, 8, 9, 16, 17, 24, 33, 64, 70, 130 };
    const int rank = 1 + (int)draw_below(state, VIEW_RANK);
    int64_t size = 1;
    for (int r = 0; r < rank; r++) {
        do dim[r] = sizes[draw_below(state, sizeof sizes / sizeof *sizes)];
        while (size * dim[r] > most);
        size *= dim[r];
    }
    return rank;
}
/* Returns a tensor of these sizes whose axes are in random order in memory, each of them whole, a
 * part, every second element, reversed or repeated. Its elements are integers from −100 to 100; of
 * floats, sevenths of them; of bool, true if they are positive. */
static inline eg_tensor *random_view(eg_ctx *cx, uint64_t *state, eg_dtype dtype, int rank,
                                     const int64_t *dim)
{
    int axes[VIEW_RANK], form[VIEW_RANK];
    int64_t base[VIEW_RANK], n = 1;
    for (int r = 0; r < rank; r++) {
        const int other = (int)draw_below(state, r + 1);
        axes[r] = axes[other];
        axes[other] = r;
    }
    for (int r = 0; r < rank; r++) {
        const int64_t d = dim[axes[r]];
        form[r] = (int)draw_below(state, 10);
        base[r] = form[r] == 0 ? 1 : form[r] == 1 ? d + 3 : form[r] < 4 ? 2 * d : d;
        n *= base[r];
    }
    eg_tensor *x = eg_full_n(cx, EG_F64, 0, rank, base);
    double *v = eg_mut_f64(x);
    for (int64_t k = 0; v && k < n; k++) v[k] = (double)(draw_below(state, 201) - 100);
    x = dtype == EG_F32 || dtype == EG_F64 ? eg_cast(eg_scale(x, 1 / 7.), dtype)
                                           : eg_cast(dtype == EG_BOOL ? eg_relu(x) : x, dtype);
    for (int r = 0; r < rank; r++)
        if (form[r] == 1)
            x = eg_slice_axis(x, r, 2, 2 + dim[axes[r]], 1);
        else if (form[r] == 2)
            x = eg_slice_axis(x, r, 1, EG_END, 2);
        else if (form[r] == 3)
            x = eg_slice_axis(x, r, EG_END, EG_END, -2);
        else if (form[r] == 4)
            x = eg_flip_axis(x, r);
    int order[VIEW_RANK];
    for (int r = 0; r < rank; r++) order[axes[r]] = r;
    return eg_expand_n(eg_permute_n(x, rank, order), rank, dim);
}
/* Returns the address of the element with the given row-major number. */
static inline const char *element_of(eg_tensor *x, int64_t number)
{
    int64_t stride[EG_RANK_MAX];
    const char *p = eg_raw(x, stride);
    for (int r = eg_rank(x) - 1; r >= 0; r--) {
        p += number % eg_dim(x, r) * stride[r] * (int64_t)width_of(x);
        number /= eg_dim(x, r);
    }
    return p;
}
/* Returns the elements of x in a tensor of rank 1, copied one by one. */
static inline eg_tensor *elements_of(eg_tensor *x)
{
    const size_t width = width_of(x);
    const int64_t n = eg_size(x);
    char *bytes = malloc((size_t)n * width + 1);
    for (int64_t k = 0; k < n; k++) memcpy(bytes + (size_t)k * width, element_of(x, k), width);
    eg_tensor *y = eg_from_n(eg_context(x), eg_type(x), bytes, 1, &n);
    free(bytes);
    return y;
}
#endif
