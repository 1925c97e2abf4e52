/* linear_channels.c: decays with one number for each channel, in causal linear attention.
 *
 *   y_cu = Σ_d x_cd k_ud Π_{u<s≤c} a_sd
 *
 * The products of decays depend on c, u and d, so y is no matrix product of x and k. But for all c
 * and u < c there is one size of blocks, 1, 2, 4 …, for which c and u are in two blocks side by
 * side that form a block of twice the size. Then
 *
 *   Π_{u<s≤c} a_s = (product over the positions after u in its block)
 *                   · (product over the positions up to c in its block)
 *
 * so the pairs of one size are elements of the matrix product of x times the second factor and k
 * times the first one. These products are not quotients: a decay may be 0, and decays in [0, 1]
 * give factors in [0, 1]. Yang et al. 2024 (GLA) divide chunks into blocks of one size, within
 * which they compute each pair by itself. */
#include "linear_attention.h"

/* Returns x, products over blocks of `size` positions along the axis, as products over blocks of
 * twice the size: after: the second block of a pair is multiplied by the product over the first
 * one, else the first block by that over the second one. whole: the products over blocks. */
static eg_tensor *level_doubled(eg_tensor *x, eg_tensor *whole, int axis, int64_t size, bool after)
{
    int64_t dims[EG_RANK_MAX + 2] = { 0 };
    const int rank = eg_rank(x);
    if (!eg_ok(x) || !eg_ok(whole)) return eg_ok(x) ? whole : x;
    eg_tensor *other = eg_slice_axis(whole, axis, after ? 0 : 1, EG_END, 2), *pair[2];
    pair[after] = other;
    pair[!after] = eg_ones_like(other);
    for (int k = 0; k < rank; k++) dims[k < axis ? k : k + 2] = eg_dim(x, k);
    dims[axis] = eg_dim(other, axis);
    dims[axis + 1] = 2;
    dims[axis + 2] = size;
    eg_tensor *y = eg_mul(eg_reshape_n(x, rank + 2, dims),
                          eg_unsqueeze(eg_stack_axis_n(axis + 1, 2, pair), axis + 2));
    for (int k = 0; k < rank; k++) dims[k] = eg_dim(x, k);
    return eg_reshape_n(y, rank, dims);
}

void eg__linear_levels(linear_decays *d, eg_tensor *a, int axis)
{
    const int64_t positions = eg_dim(a, axis);
    int64_t all = 1; /* the smallest power of two; further positions have a decay of 1 */
    while (all < positions) all *= 2;
    if (all > positions) a = eg_pad_axis(a, axis, 0, all - positions, 1);
    eg_tensor *from = a, *end = eg_ones_like(a);
    for (int64_t size = 1; size < all && d->levels < LEVELS; size *= 2) {
        d->level[d->levels++] = (linear_level){ size, eg_slice_axis(from, axis, 0, positions, 1),
                                                eg_slice_axis(end, axis, 0, positions, 1) };
        eg_tensor *whole = eg_slice_axis(from, axis, size - 1, EG_END, size);
        from = level_doubled(from, whole, axis, size, true);
        end = level_doubled(end, whole, axis, size, false);
    }
    d->whole = eg_select_axis(from, axis, -1);
    d->from = eg_slice_axis(from, axis, 0, positions, 1);
    d->end = eg_slice_axis(end, axis, 0, positions, 1);
}

/* Returns y where c and u, the last axes of y, are in two blocks of `size` that form one of twice
 * the size (size 0: where they are equal), and `other` elsewhere. */
static eg_tensor *level_chosen(eg_tensor *y, int64_t size, eg_tensor *other)
{
    char where[160] = "c == u";
    eg_ctx *cx = eg_context(y);
    const int64_t sizes[] = { eg_dim(y, -2), eg_dim(y, -1) };
    if (size)
        snprintf(where, sizeof where, "c / %lld == u / %lld & c / %lld > u / %lld",
                 (long long)(2 * size), (long long)(2 * size), (long long)size, (long long)size);
    const bool was = eg_nograd(cx, true);
    eg_tensor *mask = eg_where_mask(cx, where, "c [u]", 0, sizes);
    eg_nograd(cx, was);
    return eg_where(mask, y, other);
}

/* Returns Σ x_c k_c over the indices that y lacks, the elements of y with u = c, for all u. */
static eg_tensor *diagonal_pairs(const eg_spec *xs, const eg_spec *ks, const eg_spec *y,
                                 const char *c, const char *u, eg_tensor *x, eg_tensor *k,
                                 eg_tensor *like)
{
    const eg_spec *keys = eg_spec_rename(ks, u, c), *both = linear_union(xs, keys), *same = y;
    for (int n = 0; n < y->indices; n++)
        if (eg_spec_find_item(both, 0, y->index[n].name) < 0)
            same = linear_without(same, y->index[n].name);
    eg_tensor *aligned[] = { eg_einsum(eg__nn_joined(xs, keys, same), x, k), like };
    return eg_align_n(eg__nn_joined(same, y, y), 2, aligned, aligned) ? like : aligned[0];
}

eg_tensor *eg__linear_pairs(const eg_spec *xs, const eg_spec *ks, const linear_decays *d,
                            const eg_spec *y, eg_tensor *x, eg_tensor *k)
{
    if (d->left || !d->within) return eg__linear_einsum(xs, ks, d->within, y, x, k, d->left);
    const eg_spec *xfs = linear_union(xs, d->to_c), *kfs = linear_union(ks, d->to_u);
    const int last = y->term[0].items - 1;
    const char *c = y->index[y->term[0].item[last - 1].index].name,
               *u = y->index[y->term[0].item[last].index].name;
    eg_tensor *sum = eg_full_n(eg_context(x), eg_type(x), 0, 0, NULL), *like = NULL;
    for (int n = 0; n < d->levels; n++) {
        const linear_level *l = &d->level[n];
        like = eg_einsum(eg__nn_joined(xfs, kfs, y),
                         eg_einsum(eg__nn_joined(xs, d->to_c, xfs), x, l->from),
                         eg_einsum(eg__nn_joined(ks, d->to_u, kfs), k, l->end));
        sum = level_chosen(like, l->size, sum);
    }
    if (!like) /* one position: all pairs are of one */
        return eg__linear_einsum(xs, ks, d->to_u, y, x, k, eg_ones_like(d->end));
    return level_chosen(diagonal_pairs(xs, ks, y, c, u, x, k, like), 0, sum);
}
