/* linear_chunks.c: causal linear attention in chunks of positions, without a decay and with one.
 * The contribution of the positions before a chunk comes from a state, Σ φ(k) v with its decay,
 * that is scanned over the chunks; the rest from a triangle of scores within the chunk. All decays
 * within a chunk are products of neighbours, not quotients of running products, so that a decay of
 * 0 and long chunks of small decays lose no accuracy. */
#include "linear_attention.h"

eg_tensor *eg__linear_chunked(eg_tensor *x, int axis, int64_t chunk, int64_t n, double value)
{
    int64_t dims[EG_RANK_MAX], more = n * chunk - eg_dim(x, axis);
    x = more ? eg_pad_axis(x, axis, 0, more, value) : x;
    for (int k = 0, d = 0; k < eg_rank(x); k++) {
        if (k == axis) dims[d++] = n;
        dims[d++] = k == axis ? chunk : eg_dim(x, k);
    }
    return eg_reshape_n(x, eg_rank(x) + 1, dims);
}

eg_tensor *eg__linear_merged(eg_tensor *x, int axis, int64_t length)
{
    int64_t dims[EG_RANK_MAX], all = eg_dim(x, axis) * eg_dim(x, axis + 1);
    for (int k = 0, d = 0; k < eg_rank(x); k++)
        if (k != axis + 1) dims[d++] = k == axis ? all : eg_dim(x, k);
    x = eg_reshape_n(x, eg_rank(x) - 1, dims);
    return all == length ? x : eg_slice_axis(x, axis, 0, length, 1);
}

const eg_spec *eg__linear_cut(const eg_spec *s, const char *place, const char *n, const char *in)
{
    const int axis = eg_spec_axis(s, 0, place);
    return axis < 0 ? s : eg_spec_insert(eg_spec_rename(s, place, n), 0, axis + 1, in);
}

const eg_spec *eg__linear_with_heads(const eg_spec *s, const linear_terms *t, const eg_spec *more)
{
    for (int k = 0; more && k < more->indices; k++) {
        const char *name = more->index[k].name;
        if (linear_has(t, Y, name) && strcmp(name, t->e) != 0 && eg_spec_find_item(s, 0, name) < 0)
            s = linear_with(s, name);
    }
    return s;
}

void eg__linear_chunk_specs(linear_chunks *p, const linear_terms *t, const eg_spec *decay,
                            const eg_spec *beta, int64_t length, int64_t chunk)
{
    p->t = t;
    p->length = length;
    p->chunk = length < chunk ? length : chunk;
    p->count = length ? (length + p->chunk - 1) / p->chunk : 0;
    const eg_spec *more = t->all;
    more = eg_spec_insert(more, Y, -1, p->n = eg_spec_unused(more, "n"));
    more = eg_spec_insert(more, Y, -1, p->c = eg_spec_unused(more, "c"));
    p->u = eg_spec_unused(more, "u");
    p->qs = eg__linear_cut(t->term[Q], t->i, p->n, p->c);
    p->ks = eg__linear_cut(t->term[K], t->j, p->n, p->u);
    p->vs = eg__linear_cut(t->term[V], t->j, p->n, p->u);
    p->ys = eg__linear_cut(t->term[Y], t->i, p->n, p->c);
    p->state = linear_without(t->term[K], t->j);
    /* indices of heads that share keys but have different decays, β or values */
    p->state = eg__linear_with_heads(eg__linear_with_heads(p->state, t, decay), t, beta);
    p->state = linear_with(eg__linear_with_heads(p->state, t, t->term[V]), t->e);
    p->states = eg_spec_insert(p->state, 0, 0, p->n);
    p->scored = linear_with(linear_with(linear_with(t->front, p->n), p->c), p->u);
}

eg_tensor *eg__linear_causal(linear_chunks *p, eg_tensor *k, eg_tensor *v, int64_t seen,
                             eg_tensor *first, eg_tensor **next)
{
    const linear_terms *t = p->t;
    const int kj = linear_axis_of(t, K, t->j), vj = linear_axis_of(t, V, t->j);
    if (seen || (next && !p->count)) {
        eg_tensor *older =
            eg_einsum(eg__nn_joined(t->term[K], t->term[V], p->state),
                      eg_slice_axis(k, kj, 0, seen, 1), eg_slice_axis(v, vj, 0, seen, 1));
        first = first ? eg_add(first, older) : older;
    }
    k = eg__linear_chunked(eg_slice_axis(k, kj, seen, EG_END, 1), kj, p->chunk, p->count, 0);
    v = eg__linear_chunked(eg_slice_axis(v, vj, seen, EG_END, 1), vj, p->chunk, p->count, 0);
    /* before[n] is a sum of the chunks before n alone: upto[n] less the sum of chunk n would round
     * by the size of keys that the chunk's first queries must not see */
    eg_tensor *sums = eg_einsum(eg__nn_joined(p->ks, p->vs, p->states), k, v), *before;
    sums = first ? eg_concat_axis(0, eg_unsqueeze(first, 0), sums) : eg_pad_axis(sums, 0, 1, 0, 0);
    before = eg_cumsum(eg__nn_spec(eg_spec_bracket(p->states, 0, 1, &p->n)), sums);
    if (next) *next = eg_select_axis(before, 0, -1);
    before = eg_slice_axis(before, 0, 0, -1, 1);
    eg_tensor *scores = eg_tril(eg_einsum(eg__nn_joined(p->qs, p->ks, p->scored), p->q, k), 0);
    return eg_add(eg_einsum(eg__nn_joined(p->qs, p->states, p->ys), p->q, before),
                  eg_einsum(eg__nn_joined(p->scored, p->vs, p->ys), scores, v));
}

eg_tensor *eg__linear_decay_products(eg_tensor *a)
{
    eg_ctx *cx = eg_context(a);
    const int64_t positions = eg_dim(a, -1), sizes[] = { positions, positions + 1 };
    const bool was = eg_nograd(cx, true);
    eg_tensor *within = eg_where_mask(cx, "u <= c", "c [u]", 0, sizes);
    eg_nograd(cx, was);
    eg_tensor *x = eg_where(within, eg_unsqueeze(a, -1), eg_full_n(cx, eg_type(a), 1, 0, NULL));
    return eg_tril(eg_cumprod("... [c] u", x), 1);
}

eg_tensor *eg__linear_repeated(eg_tensor *a, int64_t positions)
{
    int64_t dims[EG_RANK_MAX] = { 0 };
    for (int k = 0; k < eg_rank(a); k++) dims[k] = eg_dim(a, k);
    dims[eg_rank(a)] = positions;
    return eg_expand_n(eg_unsqueeze(a, -1), eg_rank(a) + 1, dims);
}

eg_tensor *eg__linear_einsum(const eg_spec *a, const eg_spec *b, const eg_spec *c, const eg_spec *y,
                             eg_tensor *x0, eg_tensor *x1, eg_tensor *x2)
{
    const eg_spec *const all[] = { a, b, c };
    if (!x2) return eg_einsum(eg__nn_joined(a, b, y), x0, x1);
    return eg_einsum(eg__nn_spec(eg_spec_join(3, all, y)), x0, x1, x2);
}

linear_decays eg__linear_decays(const linear_chunks *p, const linear_factors *f, bool even)
{
    const linear_terms *t = p->t;
    linear_decays d = { .whole = NULL };
    const eg_spec *of = f->decay.of;
    eg_tensor *a = f->decay.x;
    if (!of) return d;
    int at = eg_spec_axis(of, 0, t->j);
    if (at < 0 && !even && p->length % p->chunk) {
        at = eg_rank(a);
        of = linear_with(of, t->j);
        a = eg__linear_repeated(a, p->length);
    }
    const eg_spec *rest = at < 0 ? of : linear_without(of, t->j);
    d.head = at < 0 ? rest : eg_spec_insert(rest, 0, 0, p->n);
    if (at >= 0) { /* padding with 1 leaves the state unchanged */
        a = eg__linear_chunked(a, at, p->chunk, p->count, 1);
        of = eg__linear_cut(of, t->j, p->n, p->c);
    } else {
        a = eg__linear_repeated(a, p->chunk);
        of = linear_with(of, p->c);
    }
    d.to_c = f->channels ? of : linear_with(d.head, p->c);
    d.to_u = eg_spec_rename(d.to_c, p->c, p->u);
    d.within = linear_with(d.to_c, p->u);
    if (f->channels) { /* in the order of the decays, which mostly is that of the keys */
        eg__linear_levels(&d, a, eg_spec_axis(of, 0, p->c));
        d.whole = eg_einsum(eg__nn_joined(linear_without(of, p->c), NULL, d.head), d.whole);
        return d;
    }
    a = eg_einsum(eg__nn_joined(of, NULL, d.to_c), a); /* positions last */
    d.left = eg__linear_decay_products(a);
    d.from = eg_select_axis(d.left, -1, 0);
    d.end = eg_select_axis(d.left, -2, -1);
    d.whole = eg_select_axis(d.end, -1, 0);
    d.left = eg_slice_axis(d.left, -1, 1, EG_END, 1);
    d.end = eg_slice_axis(d.end, -1, 1, EG_END, 1);
    return d;
}

eg_tensor *eg__linear_chunk_sums(const linear_chunks *p, const linear_decays *d, eg_tensor *k,
                                 eg_tensor *states, const eg_spec *vs, eg_tensor *v)
{
    eg_tensor *y = eg__linear_einsum(p->qs, p->states, d->to_c, p->ys, p->q, states, d->from),
              *scores = eg__linear_pairs(p->qs, p->ks, d, p->scored, p->q, k);
    if (!d->whole) scores = eg_tril(scores, 0);
    return eg_add(y, eg_einsum(eg__nn_joined(p->scored, vs, p->ys), scores, v));
}

eg_tensor *eg__linear_causal_decayed(linear_chunks *p, eg_tensor *k, eg_tensor *v,
                                     const linear_factors *f, eg_tensor *first, eg_tensor **next)
{
    const linear_terms *t = p->t;
    const linear_decays d = eg__linear_decays(p, f, !next);
    const bool each = eg_spec_axis(d.head, 0, p->n) >= 0; /* chunks have different decays */
    k = eg__linear_chunked(k, linear_axis_of(t, K, t->j), p->chunk, p->count, 0);
    v = eg__linear_chunked(v, linear_axis_of(t, V, t->j), p->chunk, p->count, 0);
    eg_tensor *sums = eg__linear_einsum(p->ks, p->vs, d.to_u, p->states, k, v, d.end);
    first = first ? first : eg_zeros_like(eg_select_axis(sums, 0, 0));
    sums = eg_concat_axis(0, eg_unsqueeze(first, 0), sums);
    eg_tensor *both[] = { each ? eg_pad_axis(d.whole, 0, 1, 0, 1) : d.whole, sums };
    if (eg_align_n(eg__nn_joined(d.head, p->states, p->states), 2, both, both)) return sums;
    eg_tensor *states =
        eg_linear_scan(eg__nn_spec(eg_spec_bracket(p->states, 0, 1, &p->n)), both[0], both[1]);
    if (next) *next = eg_select_axis(states, 0, -1);
    return eg__linear_chunk_sums(p, &d, k, eg_slice_axis(states, 0, 0, -1, 1), p->vs, v);
}
