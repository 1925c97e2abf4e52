/* linear_attention.c: attention without a softmax, in time and memory O(length).
 *
 *   w_ij = φ(q_i) · (Π_{j<s≤i} a_s) φ(k_j)       y_i = Σ_j w_ij v_j / Σ_j w_ij
 *
 * (Katharopoulos et al. 2020, eq. 5, 9, 10; with decay Sun et al. 2023 (RetNet), Yang et al. 2024
 * (GLA)). A column of ones appended to v yields the denominator. Without a mask the numerator is
 * the einsum of the attention's string, whose cheapest order multiplies key and value first. With a
 * causal mask it is computed in chunks: the contribution of the positions before a chunk comes from
 * a state, Σ φ(k) v with its decay, that is scanned over the chunks; the rest from a triangle of
 * scores within the chunk. All decays within a chunk are products of neighbours, not quotients of
 * running products, so that a decay of 0 and long chunks of small decays lose no accuracy.
 *
 * With β, the delta rule, each key adds u instead of v, where k·S is what the state has for the
 * key:
 *
 *   S_j = a_j S_{j−1} + k_j u_j,   u_j = β_j (v_j − k_j · a_j S_{j−1})
 *
 * (Schlag et al. 2021). Within a chunk the u are the solution of a triangular system (Yang et al.
 * 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length"). It is solved
 * by substitution. The inverse as a product, Π_k (I + (−A)^(2^k)), would need fewer steps, but its
 * terms grow like binomials: with 64 equal keys of length 1 and β = 1, no digit of its f32 result
 * is right. */
#include "nn.h"
#include <math.h>
#include <stdio.h>

enum { CHUNK = 64, CHUNK_OF_DELTA = 32, CHUNK_OF_CHANNELS = 8 };
enum { Q, K, V, Y };

/* The string of a call. i: the first index that only query and output have; j: that only key and
 * value have; e: that only value and output have; front: the other indices of the output. */
typedef struct terms {
    const eg_spec *all, *term[4], *front;
    const char *i, *j, *e;
} terms;

static bool in(const terms *t, int term, const char *name)
{
    return eg_spec_find_item(t->all, term, name) >= 0;
}
static const eg_spec *linear_without(const eg_spec *s, const char *name)
{
    return eg_spec_replace(s, 0, name, "");
}
static const eg_spec *linear_with(const eg_spec *s, const char *name)
{
    return eg_spec_insert(s, 0, -1, name);
}

/* Returns s with the indices of `more` that it lacks. */
static const eg_spec *linear_union(const eg_spec *s, const eg_spec *more)
{
    for (int k = 0; more && k < more->indices; k++)
        if (eg_spec_find_item(s, 0, more->index[k].name) < 0)
            s = linear_with(s, more->index[k].name);
    return s;
}

/* Reads the string of a call into t. False after an error. */
static bool read_spec(eg_ctx *cx, const char *spec, terms *t)
{
    static const char form[] = "three operands and an output are needed, without groups";
    const eg_spec *s = eg_spec_parse(cx, "linear_attention", spec);
    int queries = 0, keys = 0, widths = 0;
    *t = (terms){ .all = s };
    if (!eg__nn_simple(s, 3, true, form)) return false;
    for (int k = 0; k < 4; k++) {
        if (!eg__nn_once(s, k)) return false;
        for (int n = 0; n < s->term[k].items; n++) {
            const char *name = s->index[s->term[k].item[n].index].name;
            const bool q = in(t, Q, name), key = in(t, K, name), v = in(t, V, name),
                       y = in(t, Y, name);
            /* further indices of only the query, such as r of grouped heads, are treated like the
             * first */
            if (k == Q && y && !key && !v && !queries++) t->i = name;
            if (k == V && key && !q && !y) t->j = name, keys++;
            if (k == V && y && !key && !q) t->e = name, widths++;
        }
    }
    if (!queries || keys != 1 || widths != 1)
        return eg_spec_fail(s, EG_ERROR_NOTATION, -1, -1,
                            "the spec needs an index of the query, one of the key and one of the "
                            "value's width, as in \"bihd,bjhd,bjhe->bihe\""),
               false;
    for (int k = 0; k < 4; k++) t->term[k] = eg_spec_of_term(s, k);
    t->front = linear_without(linear_without(t->term[Y], t->i), t->e);
    return t->front != NULL;
}

static int linear_axis_of(const terms *t, int term, const char *name)
{
    return eg_spec_axis(t->all, term, name);
}

/* Splits an axis of positions into (n, chunk); the last chunk is padded with `value`. */
static eg_tensor *chunked(eg_tensor *x, int axis, int64_t chunk, int64_t n, double value)
{
    int64_t dims[EG_RANK_MAX], more = n * chunk - eg_dim(x, axis);
    x = more ? eg_pad_axis(x, axis, 0, more, value) : x;
    for (int k = 0, d = 0; k < eg_rank(x); k++) {
        if (k == axis) dims[d++] = n;
        dims[d++] = k == axis ? chunk : eg_dim(x, k);
    }
    return eg_reshape_n(x, eg_rank(x) + 1, dims);
}

static eg_tensor *linear_merged(eg_tensor *x, int axis, int64_t length)
{
    int64_t dims[EG_RANK_MAX], all = eg_dim(x, axis) * eg_dim(x, axis + 1);
    for (int k = 0, d = 0; k < eg_rank(x); k++)
        if (k != axis + 1) dims[d++] = k == axis ? all : eg_dim(x, k);
    x = eg_reshape_n(x, eg_rank(x) - 1, dims);
    return all == length ? x : eg_slice_axis(x, axis, 0, length, 1);
}

/* An option that is a factor, .decay or .beta, and its indices; of is NULL if it is not given. */
typedef struct factor {
    const eg_spec *of;
    eg_tensor *x;
} factor;
typedef struct factors {
    factor decay, beta;
    bool channels; /* .decay has an index that is summed over */
} factors;

/* -- causal, by chunks ------------------------------------------------------------------------ */
/* A causal call by chunks, and the strings of operands that are divided into chunks. Indices: n,
 * the chunk; c, a query in it; u, a key in it. */
typedef struct chunks {
    const terms *t;
    const char *n, *c, *u;
    const eg_spec *qs, *ks, *vs, *ys, *state, *states, *scored;
    int64_t length, chunk, count;
    eg_tensor *q, *k, *v;
} chunks;

static const eg_spec *cut_spec(const eg_spec *s, const char *place, const char *n, const char *in)
{
    const int axis = eg_spec_axis(s, 0, place);
    return axis < 0 ? s : eg_spec_insert(eg_spec_rename(s, place, n), 0, axis + 1, in);
}

/* Returns s with the indices of batches and heads of `more` that it lacks. */
static const eg_spec *with_heads(const eg_spec *s, const terms *t, const eg_spec *more)
{
    for (int k = 0; more && k < more->indices; k++) {
        const char *name = more->index[k].name;
        if (in(t, Y, name) && strcmp(name, t->e) != 0 && eg_spec_find_item(s, 0, name) < 0)
            s = linear_with(s, name);
    }
    return s;
}

/* Makes the strings of a causal call over `length` positions. */
static void chunk_specs(chunks *p, const terms *t, const eg_spec *decay, const eg_spec *beta,
                        int64_t length, int64_t chunk)
{
    p->t = t;
    p->length = length;
    p->chunk = length < chunk ? length : chunk;
    p->count = length ? (length + p->chunk - 1) / p->chunk : 0;
    const eg_spec *more = t->all;
    more = eg_spec_insert(more, Y, -1, p->n = eg_spec_unused(more, "n"));
    more = eg_spec_insert(more, Y, -1, p->c = eg_spec_unused(more, "c"));
    p->u = eg_spec_unused(more, "u");
    p->qs = cut_spec(t->term[Q], t->i, p->n, p->c);
    p->ks = cut_spec(t->term[K], t->j, p->n, p->u);
    p->vs = cut_spec(t->term[V], t->j, p->n, p->u);
    p->ys = cut_spec(t->term[Y], t->i, p->n, p->c);
    p->state = linear_without(t->term[K], t->j);
    /* indices of heads that share keys but have different decays, β or values */
    p->state = with_heads(with_heads(p->state, t, decay), t, beta);
    p->state = linear_with(with_heads(p->state, t, t->term[V]), t->e);
    p->states = eg_spec_insert(p->state, 0, 0, p->n);
    p->scored = linear_with(linear_with(linear_with(t->front, p->n), p->c), p->u);
}

/* Returns the sums without decay. Query i attends to keys up to i + seen, so every query attends to
 * the first `seen` keys. first: the state before all keys; NULL: 0. Sets *next to the state after
 * them. */
static eg_tensor *causal(chunks *p, eg_tensor *k, eg_tensor *v, int64_t seen, eg_tensor *first,
                         eg_tensor **next)
{
    const terms *t = p->t;
    const int kj = linear_axis_of(t, K, t->j), vj = linear_axis_of(t, V, t->j);
    if (seen || (next && !p->count)) {
        eg_tensor *older =
            eg_einsum(eg__nn_joined(t->term[K], t->term[V], p->state),
                      eg_slice_axis(k, kj, 0, seen, 1), eg_slice_axis(v, vj, 0, seen, 1));
        first = first ? eg_add(first, older) : older;
    }
    k = chunked(eg_slice_axis(k, kj, seen, EG_END, 1), kj, p->chunk, p->count, 0);
    v = chunked(eg_slice_axis(v, vj, seen, EG_END, 1), vj, p->chunk, p->count, 0);
    eg_tensor *sums = eg_einsum(eg__nn_joined(p->ks, p->vs, p->states), k, v),
              *upto = eg_cumsum(eg__nn_spec(eg_spec_bracket(p->states, 0, 1, &p->n)), sums),
              *before = eg_sub(upto, sums);
    if (first) before = eg_on(eg__nn_joined(p->states, p->state, NULL), eg_add, before, first);
    if (next) {
        eg_tensor *last = p->count ? eg_select_axis(upto, 0, -1) : NULL;
        *next = last && first ? eg_add(last, first) : last ? last : first;
    }
    eg_tensor *scores = eg_tril(eg_einsum(eg__nn_joined(p->qs, p->ks, p->scored), p->q, k), 0);
    return eg_add(eg_einsum(eg__nn_joined(p->qs, p->states, p->ys), p->q, before),
                  eg_einsum(eg__nn_joined(p->scored, p->vs, p->ys), scores, v));
}

/* Returns Π_{s=u..c} a_s for c = 0 … positions − 1 and u = 0 … positions, where it is 1 for u = c +
 * 1 and 0 for greater u; c and u are appended to the other axes of a, whose last axis is that of
 * positions. */
static eg_tensor *decay_products(eg_tensor *a)
{
    eg_ctx *cx = eg_context(a);
    const int64_t positions = eg_dim(a, -1), sizes[] = { positions, positions + 1 };
    const bool was = eg_nograd(cx, true);
    eg_tensor *within = eg_where_mask(cx, "u <= c", "c [u]", 0, sizes);
    eg_nograd(cx, was);
    eg_tensor *x = eg_where(within, eg_unsqueeze(a, -1), eg_full_n(cx, eg_type(a), 1, 0, NULL));
    return eg_tril(eg_cumprod("... [c] u", x), 1);
}

/* Returns a, repeated along a new last axis of positions. */
static eg_tensor *at_each_position(eg_tensor *a, int64_t positions)
{
    int64_t dims[EG_RANK_MAX] = { 0 };
    for (int k = 0; k < eg_rank(a); k++) dims[k] = eg_dim(a, k);
    dims[eg_rank(a)] = positions;
    return eg_expand_n(eg_unsqueeze(a, -1), eg_rank(a) + 1, dims);
}

/* Returns the einsum of x0, x1 and x2; of the first two if x2 is NULL. */
static eg_tensor *einsum3(const eg_spec *a, const eg_spec *b, const eg_spec *c, const eg_spec *y,
                          eg_tensor *x0, eg_tensor *x1, eg_tensor *x2)
{
    const eg_spec *const all[] = { a, b, c };
    if (!x2) return eg_einsum(eg__nn_joined(a, b, y), x0, x1);
    return eg_einsum(eg__nn_spec(eg_spec_join(3, all, y)), x0, x1, x2);
}

/* The products of the decays within each chunk. All are NULL if there is no decay. */
typedef struct chunk_decays {
    const eg_spec *head, *to_c, *to_u, *within; /* indices: of whole, from, end and left */
    eg_tensor *whole;                           /* Π_s a_s over the chunk */
    eg_tensor *from;                            /* Π_{s≤c} a_s */
    eg_tensor *end;                             /* Π_{s>u} a_s */
    eg_tensor *left;                            /* Π_{u<s≤c} a_s; 0 for u > c */
} chunk_decays;
/* even: a shorter last chunk may have the products of the others. */
static chunk_decays decays_of(const chunks *p, const factor *decay, bool even)
{
    const terms *t = p->t;
    chunk_decays d = { .whole = NULL };
    const eg_spec *of = decay->of;
    eg_tensor *a = decay->x;
    if (!of) return d;
    int at = eg_spec_axis(of, 0, t->j);
    if (at < 0 && !even && p->length % p->chunk) {
        at = eg_rank(a);
        of = linear_with(of, t->j);
        a = at_each_position(a, p->length);
    }
    const eg_spec *rest = at < 0 ? of : linear_without(of, t->j);
    d.head = rest;
    if (at >= 0) { /* axes (n … c); padding with 1 leaves the state unchanged */
        d.head = eg_spec_insert(rest, 0, 0, p->n);
        a = eg_einsum(
            eg__nn_joined(cut_spec(of, t->j, p->n, p->c), NULL, linear_with(d.head, p->c)),
            chunked(a, at, p->chunk, p->count, 1));
    } else {
        a = at_each_position(a, p->chunk);
    }
    d.to_c = linear_with(d.head, p->c);
    d.to_u = linear_with(d.head, p->u);
    d.within = linear_with(d.to_c, p->u);
    d.left = decay_products(a);
    d.from = eg_select_axis(d.left, -1, 0);
    d.end = eg_select_axis(d.left, -2, -1);
    d.whole = eg_select_axis(d.end, -1, 0);
    d.left = eg_slice_axis(d.left, -1, 1, EG_END, 1);
    d.end = eg_slice_axis(d.end, -1, 1, EG_END, 1);
    return d;
}

/* Returns y from the states before the chunks and the values v within them. */
static eg_tensor *chunk_sums(const chunks *p, const chunk_decays *d, eg_tensor *k,
                             eg_tensor *states, const eg_spec *vs, eg_tensor *v)
{
    eg_tensor *y = einsum3(p->qs, p->states, d->to_c, p->ys, p->q, states, d->from),
              *scores = einsum3(p->qs, p->ks, d->within, p->scored, p->q, k, d->left);
    if (!d->left) scores = eg_tril(scores, 0);
    return eg_add(y, eg_einsum(eg__nn_joined(p->scored, vs, p->ys), scores, v));
}

/* Returns the sums with decay over all keys. The states before the chunks are
 *
 *   S_{n+1} = A_n S_n + Σ_u (Π_{s>u} a_s) k_u v_u,   A_n = Π_s a_s, s in chunk n */
static eg_tensor *causal_decayed(chunks *p, eg_tensor *k, eg_tensor *v, const factor *decay,
                                 eg_tensor *first, eg_tensor **next)
{
    const terms *t = p->t;
    const chunk_decays d = decays_of(p, decay, !next);
    const bool each = eg_spec_axis(d.head, 0, p->n) >= 0; /* chunks have different decays */
    k = chunked(k, linear_axis_of(t, K, t->j), p->chunk, p->count, 0);
    v = chunked(v, linear_axis_of(t, V, t->j), p->chunk, p->count, 0);
    eg_tensor *sums = einsum3(p->ks, p->vs, d.to_u, p->states, k, v, d.end);
    first = first ? first : eg_zeros_like(eg_select_axis(sums, 0, 0));
    sums = eg_concat_axis(0, eg_unsqueeze(first, 0), sums);
    eg_tensor *both[] = { each ? eg_pad_axis(d.whole, 0, 1, 0, 1) : d.whole, sums };
    if (eg_align_n(eg__nn_joined(d.head, p->states, p->states), 2, both, both)) return sums;
    eg_tensor *states =
        eg_linear_scan(eg__nn_spec(eg_spec_bracket(p->states, 0, 1, &p->n)), both[0], both[1]);
    if (next) *next = eg_select_axis(states, 0, -1);
    return chunk_sums(p, &d, k, eg_slice_axis(states, 0, 0, -1, 1), p->vs, v);
}

/* -- the delta rule --------------------------------------------------------------------------- */
/* Returns I + the part of x, whose last axes are (c u), with u < c. */
static eg_tensor *unit_lower(eg_tensor *x)
{
    eg_ctx *cx = eg_context(x);
    if (!eg_ok(x)) return x;
    const int64_t sizes[] = { eg_dim(x, -2), eg_dim(x, -1) };
    const bool was = eg_nograd(cx, true);
    eg_tensor *eye = eg_cast(eg_where_mask(cx, "u == c", "c [u]", 0, sizes), eg_type(x));
    eg_nograd(cx, was);
    return eg_add(eg_tril(x, -1), eye);
}

/* The operands of the recurrence over chunks, with the chunks as their first axis, and their
 * indices without it. */
typedef struct delta {
    int64_t count;
    const eg_spec *state, *us, *ws, *ends, *head; /* head: NULL if there is no decay */
    eg_tensor *U, *W, *end, *whole;
    bool each; /* chunks have different decays */
} delta;

/* Sets states to the states S_n before the chunks and u to U_n − W_n S_n, each `count` tensors, and
 * returns the state after the last one:
 *
 *   S_{n+1} = A_n S_n + Σ_u (Π_{s>u} a_s) k_u u_u */
static eg_tensor *delta_states(const delta *d, eg_tensor *S, eg_tensor **states, eg_tensor **u)
{
    const char *used = eg__nn_joined(d->ws, d->state, d->us),
               *added = eg__nn_joined(d->ends, d->us, d->state),
               *decayed = d->head ? eg__nn_joined(d->state, d->head, d->state) : NULL;
    for (int64_t n = 0; n < d->count; n++) {
        u[n] = eg_select_axis(d->U, 0, n);
        if (S) u[n] = eg_sub(u[n], eg_einsum(used, eg_select_axis(d->W, 0, n), S));
        eg_tensor *sum = eg_einsum(added, eg_select_axis(d->end, 0, n), u[n]);
        states[n] = S ? S : eg_zeros_like(sum);
        if (S && decayed)
            S = eg_einsum(decayed, S, d->each ? eg_select_axis(d->whole, 0, n) : d->whole);
        S = S ? eg_add(S, sum) : sum;
    }
    return S;
}

/* Returns I + A, with axes `square`, which ends in (c u), and sets *kb to β_c k_c, with axes
 * *kbs:
 *
 *   A_cu = β_c k_c · (Π_{u<s≤c} a_s) k_u   for u < c
 *
 * kc, ku: the axes of k, in which the place is called c or u; beta: with the axes of kc. */
static eg_tensor *delta_system(const eg_spec *kc, const eg_spec *ku, const factor *beta,
                               const chunk_decays *d, const eg_spec *square, eg_tensor *k,
                               const eg_spec **kbs, eg_tensor **kb)
{
    *kbs = linear_union(kc, beta->of);
    *kb = eg_einsum(eg__nn_joined(kc, beta->of, *kbs), k, beta->x);
    return unit_lower(einsum3(*kbs, ku, d->within, square, *kb, k, d->left));
}

/* Returns the indices `first`, then those of batches and heads whose systems differ. */
static const eg_spec *delta_front(const terms *t, const char *first, const factors *f)
{
    const eg_spec *s = with_heads(eg_spec_like(t->all, first), t, t->term[K]);
    return with_heads(with_heads(s, t, f->decay.of), t, f->beta.of);
}

/* Returns the solution of the systems, whose axes are `square`, for right-hand sides x, whose axes
 * are `of` and which are the same for batches and heads that they lack. The solution has the axes
 * `to`. */
static eg_tensor *delta_solved(const eg_spec *square, eg_tensor *system, const eg_spec *rows,
                               const eg_spec *of, eg_tensor *x, const eg_spec *to)
{
    const eg_spec *all = linear_union(rows, of);
    eg_tensor *both[] = { eg_select_axis(system, -1, 0), x };
    if (eg_align_n(eg__nn_joined(rows, of, all), 2, both, both)) return both[1];
    return eg_solve_triangular(eg__nn_joined(square, all, to), system, both[1], false);
}

/* Returns the sums of the delta rule over all keys. Within a chunk whose first state is S,
 *
 *   u_c + Σ_{u<c} A_cu u_u = β_c (v_c − (Π_{s≤c} a_s) k_c · S)
 *
 * so u = U − W S, where U and W are the solutions for β_c v_c and for β_c (Π_{s≤c} a_s) k_c. */
static eg_tensor *causal_delta(chunks *p, eg_tensor *k, eg_tensor *v, const factors *f,
                               eg_tensor *first, eg_tensor **next)
{
    const terms *t = p->t;
    eg_ctx *cx = eg_context(k);
    const int at = eg_spec_axis(f->beta.of, 0, t->j);
    const chunk_decays d = decays_of(p, &f->decay, !next);
    const factor beta = { cut_spec(f->beta.of, t->j, p->n, p->c),
                          at < 0 ? f->beta.x : chunked(f->beta.x, at, p->chunk, p->count, 0) };
    k = chunked(k, linear_axis_of(t, K, t->j), p->chunk, p->count, 0);
    v = chunked(v, linear_axis_of(t, V, t->j), p->chunk, p->count, 0);
    const eg_spec *front = delta_front(t, p->n, f);
    const eg_spec *rows = linear_with(front, p->c), *square = linear_with(rows, p->u),
                  *kc = cut_spec(t->term[K], t->j, p->n, p->c),
                  *vc = cut_spec(t->term[V], t->j, p->n, p->c), *kbs,
                  *vbs = linear_union(vc, beta.of),
                  *us = linear_with(linear_with(with_heads(front, t, t->term[V]), p->u), t->e),
                  *ws = linear_with(front, p->u), *ends = eg_spec_like(t->all, p->n);
    ends = linear_union(ends, d.to_u ? linear_union(p->ks, d.to_u) : p->ks);
    for (int n = 0; n < t->term[K]->indices; n++) {
        const char *name = t->term[K]->index[n].name;
        if (strcmp(name, t->j) != 0 && !in(t, Y, name)) ws = linear_with(ws, name);
    }
    eg_tensor *kb, *system = delta_system(kc, p->ks, &beta, &d, square, k, &kbs, &kb),
                   *vb = eg_einsum(eg__nn_joined(vc, beta.of, vbs), v, beta.x);
    const eg_spec *kfs = d.to_c ? linear_union(kbs, d.to_c) : kbs;
    if (d.from) kb = eg_einsum(eg__nn_joined(kbs, d.to_c, kfs), kb, d.from);
    delta r = { .count = p->count,
                .state = p->state,
                .us = linear_without(us, p->n),
                .ws = linear_without(ws, p->n),
                .ends = linear_without(ends, p->n),
                .U = delta_solved(square, system, rows, vbs, vb, us),
                .W = delta_solved(square, system, rows, kfs, kb, ws),
                .whole = d.whole };
    r.end = d.end ? eg_einsum(eg__nn_joined(p->ks, d.to_u, ends), k, d.end)
                  : eg_einsum(eg__nn_joined(p->ks, NULL, ends), k);
    r.each = eg_spec_axis(d.head, 0, p->n) >= 0;
    r.head = r.each ? linear_without(d.head, p->n) : d.head;
    eg_owner *owner = eg_owner_open(cx);
    eg_tensor **parts = owner ? eg_owner_alloc(owner, 2 * (size_t)p->count * sizeof *parts) : NULL;
    if (!parts || !r.U || !r.W || !r.end) {
        eg_owner_close(owner);
        return eg_fail_as(cx, EG_ERROR_MEMORY, "linear_attention: out of memory");
    }
    eg_tensor *last = delta_states(&r, first, parts, parts + p->count);
    if (next) *next = last;
    eg_tensor *states = eg_stack_axis_n(0, (int)p->count, parts),
              *u = eg_stack_axis_n(0, (int)p->count, parts + p->count);
    eg_owner_close(owner);
    return chunk_sums(p, &d, k, states, us, u);
}

/* -- parts of a call --------------------------------------------------------------------------- */
/* Returns φ(x): by the formula, whose indices are its own, or elu(x) + 1. */
static eg_tensor *feature(const char *phi, eg_tensor *x)
{
    char axes[8 * EG_RANK_MAX] = "";
    eg_ctx *cx = eg_context(x);
    if (!phi) return eg_shift(eg_elu(x, 1), 1);
    if (!eg_ok(x) || eg_error(cx)) return x;
    for (int k = 0, n = 0; k < eg_rank(x); k++)
        n += snprintf(axes + n, sizeof axes - (size_t)n, "axis%d ", k);
    eg_expr_args o = { .size = sizeof o, .axes = axes, .text = phi, .with = { { "x", x } } };
    eg_tensor *y = eg_expr_with(&o);
    if (!eg_ok(y)) return eg_fail_in(cx, "linear_attention: .phi");
    if (eg_type(y) == eg_type(x)) return y;
    return eg_fail_as(cx, EG_ERROR_DTYPE, "linear_attention: .phi gives %s, not %s: \"%s\"",
                      eg_type_name(eg_type(y)), eg_type_name(eg_type(x)), phi);
}

/* Returns the first index of a mask that a term does not have; NULL if it has all. */
static const char *lacking_in_mask(const terms *t, int term, const eg_spec *mask)
{
    for (int k = 0; k < mask->indices; k++)
        if (!in(t, term, mask->index[k].name)) return mask->index[k].name;
    return NULL;
}

/* Returns x, an operand of that term, with 0 where a mask is false. Masks with indices that the
 * term does not have are skipped. */
static eg_tensor *linear_kept(const terms *t, int term, eg_tensor *x, int n, const eg_masked *mask)
{
    for (int m = 0; m < n; m++) {
        const eg_spec *s = eg_spec_like(t->all, mask[m].axes);
        if (!s || lacking_in_mask(t, term, s)) continue;
        x = eg_on(eg__nn_joined(t->term[term], s, NULL), eg__nn_left_out, x,
                  eg_cast(mask[m].x, EG_BOOL));
    }
    return x;
}

/* Returns x / total, and 0 where the total is 0. */
static eg_tensor *linear_share(eg_tensor *x, eg_tensor *total, const char *spec)
{
    eg_tensor *none = eg_eq(total, eg_zeros_like(total));
    return eg_on(spec, eg_div, x, eg_where(none, eg_ones_like(total), total));
}

/* -- masks: chunks exclude later positions; masks of keys and of queries, single ones ---------- */
enum { CONDITIONS = 16 };
/* The predicate in its parts: "j <= i", which the chunks compute; and masks of keys, including
 * .keep, and of queries. */
typedef struct masks {
    bool causal;
    int keys, queries;
    eg_masked key[CONDITIONS + 1], query[CONDITIONS];
} masks;

/* Returns β with 0 where a mask of keys is false, since a masked element may be NaN. Masks with
 * indices that β does not have are skipped. */
static eg_tensor *beta_kept(const factor *beta, const masks *m)
{
    eg_tensor *x = beta->x;
    for (int n = 0; beta->of && n < m->keys; n++) {
        const eg_spec *s = eg_spec_like(beta->of, m->key[n].axes);
        bool within = s != NULL;
        for (int k = 0; within && k < s->indices; k++)
            within = eg_spec_find_item(beta->of, 0, s->index[k].name) >= 0;
        if (within)
            x = eg_on(eg__nn_joined(beta->of, s, NULL), eg__nn_left_out, x,
                      eg_cast(m->key[n].x, EG_BOOL));
    }
    return x;
}

/* True if the predicate is "j <= i" or "i >= j". */
static bool is_causal_condition(const terms *t, const eg_formula *f)
{
    static const char *const ways[] = { "key <= query", "query >= key" };
    bool same = false;
    for (int k = 0; k < 2; k++) {
        const eg_formula *causal = eg_formula_parse(t->all->cx, "linear_attention", ways[k]);
        causal = eg_formula_replace(causal, "key", t->j, NULL);
        same |= eg_formula_equals(f, eg_formula_replace(causal, "query", t->i, NULL));
    }
    return same;
}

/* Returns the condition f, over indices of only the key or only the query, as a bool tensor whose
 * axes are those indices in the order of the scores. */
static eg_masked condition_mask(const eg_linear_attention_args *o, const terms *t,
                                const eg_formula *f, bool of_key)
{
    char axes[16 * EG_RANK_MAX] = "";
    int64_t sizes[EG_RANK_MAX];
    const char *place = of_key ? t->j : t->i;
    const int term = of_key ? K : Q;
    eg_tensor *x = of_key ? o->k : o->q;
    int n = 0, rank = 0;
    for (int d = 0; d < t->term[term]->term[0].items; d++) {
        const char *name = t->all->index[t->all->term[term].item[d].index].name;
        if (!eg_formula_has(f, name)) continue;
        n += snprintf(axes + n, sizeof axes - (size_t)n, "%s ", name);
        sizes[rank++] = eg_dim(x, d);
    }
    if (!rank) { /* a condition without an index, or of sizes alone: the same at each position */
        snprintf(axes, sizeof axes, "%s", place);
        sizes[rank++] = eg_dim(x, linear_axis_of(t, term, place));
    }
    eg_where_mask_args w = { .size = sizeof w,
                             .where = f->text,
                             .axes = eg_spec_items(eg_spec_like(t->all, axes), 0) };
    w.sizes = sizes;
    for (int k = 0, to = 0; k < 8 && o->with[k].name; k++)
        if (eg_formula_reads(f, o->with[k].name)) w.with[to++] = o->with[k];
    return (eg_masked){ w.axes, eg_where_mask_with(t->all->cx, &w) };
}

/* Returns the first index of f that a term does not have; NULL if it has all. */
static const char *lacking_in_formula(const terms *t, int term, const eg_formula *f)
{
    for (int k = 0; k < f->indices; k++)
        if (!in(t, term, f->index[k])) return f->index[k];
    return NULL;
}

/* Adds one condition of the predicate to the masks. False after an error. */
static bool add_condition(const eg_linear_attention_args *o, const terms *t, const eg_formula *f,
                          masks *m)
{
    eg_ctx *cx = t->all->cx;
    char at[200], size[24];
    if (is_causal_condition(t, f)) return m->causal = true;
    snprintf(at, sizeof at, "%.160s + %lld", t->i, (long long)o->offset);
    snprintf(size, sizeof size, "%lld",
             (long long)(eg_dim(o->q, linear_axis_of(t, Q, t->i)) + o->offset));
    f = eg_formula_replace(f, t->i, NULL, size);
    if (!f) return false;
    const bool has_i = eg_formula_has(f, t->i), has_j = eg_formula_has(f, t->j),
               of_query = has_i || (!has_j && lacking_in_formula(t, K, f));
    const char *lacks = lacking_in_formula(t, of_query ? Q : K, f);
    if (has_i && has_j)
        eg_fail_as(
            cx, EG_ERROR_UNSUPPORTED,
            "linear_attention: .where may be \"%s <= %s\" and conditions on keys or on queries "
            "alone, as \"pad[%s]\", joined by &; but \"%s\" is of both",
            t->j, t->i, t->j, f->text);
    else if (lacks)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "linear_attention: \"%s\" of .where has the index '%s', which the %s lacks",
                   f->text, lacks, of_query ? "query" : "key");
    if (eg_error(cx)) return false;
    if (of_query && o->offset) f = eg_formula_replace(f, t->i, at, NULL);
    if (!f) return false;
    *(of_query ? &m->query[m->queries++] : &m->key[m->keys++]) = condition_mask(o, t, f, !of_query);
    return !eg_error(cx);
}

/* Splits .where into its conditions. False after an error: a condition that the chunks cannot
 * compute, or tensors of .with that .where does not read. */
static bool where_masks(const eg_linear_attention_args *o, const terms *t, masks *m)
{
    eg_ctx *cx = t->all->cx;
    char indices[16 * EG_RANK_MAX] = "";
    int n = 0, count;
    const eg_formula *term[CONDITIONS], *f = NULL;
    for (int d = 0; d < t->term[Y]->term[0].items; d++) {
        const char *name = t->all->index[t->all->term[Y].item[d].index].name;
        if (strcmp(name, t->e)) n += snprintf(indices + n, sizeof indices - (size_t)n, "%s ", name);
        if (n >= (int)sizeof indices) n = sizeof indices - 1;
    }
    snprintf(indices + n, sizeof indices - (size_t)n, "%s", t->j);
    if (o->where)
        f = eg_formula_parse_with(cx, &(eg_formula_args){ .size = sizeof(eg_formula_args),
                                                          .who = "linear_attention",
                                                          .text = o->where,
                                                          .complete = true,
                                                          .indices = indices,
                                                          .with = o->with });
    if (o->where && !f) return false;
    for (int k = 0; k < 8 && o->with[k].name; k++)
        if (!eg_formula_reads(f, o->with[k].name))
            return eg_fail_as(cx, EG_ERROR_NOTATION,
                              "linear_attention: '%.40s' of .with is not in .where",
                              o->with[k].name),
                   false;
    if (!f) return true;
    if ((count = eg_formula_terms(f, CONDITIONS, term)) < 0) return false;
    for (int k = 0; k < count; k++)
        if (!add_condition(o, t, term[k], m)) return false;
    return true;
}

/* Sets the masks. False after an error: .where, .keep, or an option that needs .where cannot be
 * used. */
static bool linear_masks(eg_ctx *cx, const eg_linear_attention_args *o, const terms *t, masks *m)
{
    const eg_spec *keep = o->keep.axes ? eg_spec_like(t->all, o->keep.axes) : NULL;
    *m = (masks){ .keys = 0 };
    if (eg_error(cx)) return false;
    if (o->keep.x && (eg_type(o->keep.x) == EG_F32 || eg_type(o->keep.x) == EG_F64))
        eg_fail_as(
            cx, EG_ERROR_DTYPE,
            "linear_attention: .keep is %s; it needs bool or integers, non-zero for keys that "
            "take part",
            eg_type_name(eg_type(o->keep.x)));
    else if (eg_spec_find_item(keep, 0, t->i) >= 0)
        eg_fail_as(
            cx, EG_ERROR_NOTATION,
            "linear_attention: .keep has the letter '%s' of the query; it can only leave out keys",
            t->i);
    else if (keep && lacking_in_mask(t, K, keep))
        eg_fail_as(cx, EG_ERROR_NOTATION,
                   "linear_attention: .keep has the index '%s', which the key lacks",
                   lacking_in_mask(t, K, keep));
    else if (o->chunk < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: .chunk is %lld", (long long)o->chunk);
    else if (o->offset > INT64_MAX / 2)
        eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: the offset %lld is too large",
                   (long long)o->offset);
    else if (!isfinite(o->scale))
        eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: .scale is %g", o->scale);
    if (o->keep.x) m->key[m->keys++] = (eg_masked){ o->keep.axes ? o->keep.axes : "", o->keep.x };
    if (eg_error(cx) || !where_masks(o, t, m)) return false;
    const bool beta = o->beta.x || o->beta.axes;
    if (beta && !o->no_norm)
        return eg_fail_as(
                   cx, EG_ERROR_UNSUPPORTED,
                   "linear_attention: .beta needs .no_norm = true, since the delta rule has no "
                   "denominator"),
               false;
    if (m->causal || !(beta || o->decay.x || o->decay.axes || o->state || o->next || o->chunk))
        return true;
    return eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                      "linear_attention: .decay, .beta, .state, .next and .chunk need .where = "
                      "\"%s <= %s\"",
                      t->j, t->i),
           false;
}

/* Returns the indices of an option that is a factor of the state, .decay or .beta. Each must be the
 * key's, or one of the output's batches or heads. channels: where to put whether one of them is
 * summed over; NULL: such indices are refused. NULL if the option is not given, and after an
 * error. */
static const eg_spec *factor_indices(const eg_linear_attention_args *o, const terms *t,
                                     const char *option, const eg_masked *x, bool *channels)
{
    eg_ctx *cx = eg_context(o->q);
    char wanted[80];
    if (channels) *channels = false;
    if (!x->x && !x->axes) return NULL;
    const eg_spec *s = eg_spec_like(t->all, x->axes ? x->axes : "");
    if (!x->x || !eg_ok(x->x))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s is NULL", option), NULL;
    snprintf(wanted, sizeof wanted, "the indices of %s are needed, as in \"bjh\"", option);
    if (!s || !eg__nn_simple(s, 1, false, wanted)) return NULL;
    for (int k = 0; k < s->term[0].items; k++) {
        const char *name = s->index[s->term[0].item[k].index].name;
        const bool key = in(t, K, name), y = in(t, Y, name),
                   channel = key && !y && strcmp(name, t->j) != 0;
        if (channel && !channels)
            return eg_spec_fail(s, EG_ERROR_NOTATION, 0, k,
                                "%s has one number for all elements of a key, without '%s'", option,
                                name),
                   NULL;
        if (eg_spec_find_item(s, 0, name) < k || (!key && !y) || !strcmp(name, t->i) ||
            !strcmp(name, t->e))
            return eg_spec_fail(s, EG_ERROR_NOTATION, 0, k,
                                "%s has the key's indices, and those of the output but '%s' "
                                "and '%s', each once",
                                option, t->i, t->e),
                   NULL;
        if (channel) *channels = true;
    }
    const eg_spec *const both[] = { t->term[Q], t->term[K], s };
    eg_tensor *const xs[] = { o->q, o->k, x->x };
    if (!eg_spec_bind(eg_spec_join(3, both, NULL), 3, xs)) return NULL;
    if (eg_type(x->x) == eg_type(o->k)) return s;
    return eg_fail_as(cx, EG_ERROR_DTYPE, "linear_attention: %s is %s, the key %s", option,
                      eg_type_name(eg_type(x->x)), eg_type_name(eg_type(o->k))),
           NULL;
}

/* Returns y of a causal call from φ(q), φ(k) and v. Unless the denominator is off, index e of the
 * values is larger by one for it. */
static eg_tensor *by_chunks(const eg_linear_attention_args *o, const terms *t, const factors *f,
                            eg_tensor *q, eg_tensor *k, eg_tensor *v)
{
    const int qi = linear_axis_of(t, Q, t->i), yi = linear_axis_of(t, Y, t->i);
    const int64_t queries = eg_dim(q, qi), seen = o->offset,
                  more = f->decay.of || f->beta.of ? seen : 0;
    chunks p;
    chunk_specs(&p, t, f->decay.of, f->beta.of, queries + more,
                o->chunk      ? o->chunk
                : f->channels ? CHUNK_OF_CHANNELS
                : f->beta.of  ? CHUNK_OF_DELTA
                              : CHUNK);
    if (!p.states || !p.scored) /* the error is recorded already, for instance by .phi */
        return eg_fail_as(eg_context(o->q), EG_ERROR_MEMORY, "linear_attention: out of memory");
    if (o->state && eg_rank(o->state) != p.state->term[0].axes)
        return eg_fail_as(eg_context(q), EG_ERROR_SHAPE,
                          "linear_attention: .state has %d ax%s, but %s are %d", eg_rank(o->state),
                          eg_rank(o->state) == 1 ? "is" : "es", eg__nn_spec(p.state),
                          p.state->term[0].axes);
    const eg_spec *const sized[] = { t->term[K], t->term[V], p.state };
    eg_tensor *const sizes[] = { k, v, o->state };
    if (o->state && !eg_spec_bind(eg_spec_join(3, sized, NULL), 3, sizes))
        return eg_fail_as(eg_context(q), EG_ERROR_SHAPE, "linear_attention: .state");
    if (more) q = eg_pad_axis(q, qi, more, 0, 0);
    p.q = chunked(q, qi, p.chunk, p.count, 0);
    eg_tensor *y = f->beta.of && p.count    ? causal_delta(&p, k, v, f, o->state, o->next)
                   : f->decay.of && p.count ? causal_decayed(&p, k, v, &f->decay, o->state, o->next)
                                            : causal(&p, k, v, seen, o->state, o->next);
    y = linear_merged(y, yi, p.length);
    return more ? eg_slice_axis(y, yi, more, EG_END, 1) : y;
}

/* Returns the weights w of the delta rule, whose axes are `all`, from the weights p without it:
 * w = z β, z (I + A) = p. d: decays of all positions, as of one chunk. */
static eg_tensor *delta_weights(const terms *t, const factors *f, const chunk_decays *d,
                                const eg_spec *all, eg_tensor *k, eg_tensor *p)
{
    const char *s = eg_spec_unused(eg_spec_join(2, (const eg_spec *[]){ t->all, all }, NULL), "s");
    const eg_spec *kbs, *square = linear_with(linear_with(delta_front(t, "", f), s), t->j),
                        *of = f->beta.of;
    const bool each = eg_spec_axis(of, 0, t->j) >= 0;
    const factor beta = { each ? eg_spec_rename(of, t->j, s) : of, f->beta.x };
    chunk_decays named = *d;
    if (named.within) named.within = eg_spec_rename(named.within, t->i, s);
    eg_tensor *kb, *system = delta_system(eg_spec_rename(t->term[K], t->j, s), t->term[K], &beta,
                                          &named, square, k, &kbs, &kb);
    p = eg_solve_triangular(eg__nn_joined(square, all, eg_spec_rename(all, t->j, s)), system, p,
                            true);
    return eg_einsum(eg__nn_joined(all, of, all), p, f->beta.x);
}

/* Returns the weights of all pairs, for a caller that requests them. */
static eg_tensor *linear_weights(const eg_linear_attention_args *o, const terms *t,
                                 const factors *f, bool is_causal, eg_tensor *q, eg_tensor *k)
{
    const eg_spec *rows = linear_with(t->front, t->i), *all = linear_with(rows, t->j),
                  *decay = f->decay.of;
    const int at = decay ? eg_spec_axis(decay, 0, t->j) : -1;
    eg_tensor *w, *a = f->decay.x;
    chunk_decays d = { .whole = NULL };
    if (decay) {
        const eg_spec *rest = at < 0 ? decay : linear_without(decay, t->j);
        const int64_t keys = eg_dim(k, linear_axis_of(t, K, t->j));
        a = at < 0 ? at_each_position(a, keys)
                   : eg_einsum(eg__nn_joined(decay, NULL, linear_with(rest, t->j)), a);
        d.left = eg_slice_axis(decay_products(a), -1, 1, EG_END, 1);
        d.within = linear_with(linear_with(rest, t->i), t->j);
        w = einsum3(t->term[Q], t->term[K], d.within, all, q, k,
                    eg_slice_axis(d.left, -2, o->offset, EG_END, 1));
    } else {
        w = eg_einsum(eg__nn_joined(t->term[Q], t->term[K], all), q, k);
        w = is_causal ? eg_tril(w, o->offset) : w;
    }
    if (f->beta.of) w = delta_weights(t, f, &d, all, k, w);
    if (!o->no_norm) w = linear_share(w, eg_sum("... [j]", w), eg__nn_joined(all, rows, NULL));
    const eg_spec *axes = o->weights_axes ? eg_spec_like(all, o->weights_axes)
                                          : linear_with(linear_without(t->term[Y], t->e), t->j);
    return eg_einsum(eg__nn_joined(all, NULL, axes), w);
}

/* True if .offset is a number of positions, and there are as many keys as a causal mask needs; else
 * records an error. */
static bool enough_keys(const eg_linear_attention_args *o, const terms *t, bool is_causal)
{
    const int64_t queries = eg_dim(o->q, linear_axis_of(t, Q, t->i)),
                  keys = eg_dim(o->k, linear_axis_of(t, K, t->j));
    if (!eg__nn_before(eg_context(o->q), "linear_attention: ", o->offset)) return false;
    if (!is_causal || keys - queries == o->offset) return true;
    return eg_fail_as(
               eg_context(o->q), EG_ERROR_SHAPE,
               "linear_attention: a causal mask needs as many keys as queries and .offset make, "
               "but '%s' is %lld and '%s' is %lld with %lld before",
               t->j, (long long)keys, t->i, (long long)queries, (long long)o->offset),
           false;
}

/* Operands are masked before and after φ, since φ(0) need not be 0 and a masked element may be
 * NaN. */
eg_tensor *eg_linear_attention_with(const eg_linear_attention_args *given)
{
    OPTIONS(eg_linear_attention_args, o, given);
    eg_ctx *cx = eg_context(o->q);
    terms t;
    masks m;
    factors f = { .channels = false };
    if (o->weights) *o->weights = NULL;
    if (o->next) *o->next = NULL;
    if (!eg_ok(o->q) || !eg_ok(o->k) || !eg_ok(o->v) || (o->state && !eg_ok(o->state)))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: an operand is NULL");
    if (!read_spec(cx, o->spec, &t))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s", o->spec);
    if (eg_rank(o->q) != t.all->term[Q].axes || eg_rank(o->k) != t.all->term[K].axes ||
        eg_rank(o->v) != t.all->term[V].axes)
        return eg_einsum(o->spec, o->q, o->k, o->v); /* records an error that names the operand */
    if (!linear_masks(cx, o, &t, &m))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s", o->spec);
    f.decay = (factor){ factor_indices(o, &t, ".decay", &o->decay, &f.channels), o->decay.x };
    f.beta = (factor){ factor_indices(o, &t, ".beta", &o->beta, NULL), o->beta.x };
    if (eg_error(cx) || !enough_keys(o, &t, m.causal))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s", o->spec);
    eg_tensor *q = linear_kept(&t, Q, o->q, m.queries, m.query),
              *k = linear_kept(&t, K, o->k, m.keys, m.key),
              *v = linear_kept(&t, V, o->v, m.keys, m.key);
    q = feature(o->phi, o->scale && o->scale != EG_OFF ? eg_scale(q, o->scale) : q);
    q = linear_kept(&t, Q, q, m.queries, m.query);
    k = linear_kept(&t, K, feature(o->phi, k), m.keys, m.key);
    f.beta.x = beta_kept(&f.beta, &m);
    const int ve = linear_axis_of(&t, V, t.e), ye = linear_axis_of(&t, Y, t.e);
    if (!o->no_norm) v = eg_concat_axis(ve, v, eg_ones_like(eg_slice_axis(o->v, ve, 0, 1, 1)));
    eg_tensor *y = m.causal ? by_chunks(o, &t, &f, q, k, v) : eg_einsum(o->spec, q, k, v);
    if (o->weights) *o->weights = linear_weights(o, &t, &f, m.causal, q, k);
    if (!o->no_norm)
        y = linear_share(eg_slice_axis(y, ye, 0, -1, 1), eg_select_axis(y, ye, -1),
                         eg__nn_joined(t.term[Y], linear_without(t.term[Y], t.e), NULL));
    return linear_kept(&t, Y, y, m.queries, m.query);
}
