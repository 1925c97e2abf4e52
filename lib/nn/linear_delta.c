/* linear_delta.c: the delta rule in linear attention. Each key adds u instead of v, where r·S is
 * what the state has for the key r, which is k unless the caller has other ones:
 *
 *   S_j = a_j S_{j−1} + k_j u_j,   u_j = β_j (v_j − r_j · a_j S_{j−1})
 *
 * (Schlag et al. 2021). Within a chunk the u are the solution of a triangular system (Yang et al.
 * 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length"). It is solved
 * by substitution. The inverse as a product, Π_k (I + (−A)^(2^k)), would need fewer steps, but its
 * terms grow like binomials: with 64 equal keys of length 1 and β = 1, no digit of its f32 result
 * is right. */
#include "linear_attention.h"

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
    /* square: of I + A, rows + u; cs: of r·S; head: NULL if there is no decay */
    const eg_spec *state, *vbs, *rbs, *cs, *us, *rows, *square, *ends, *head;
    eg_tensor *vb, *rb, *system, *end, *whole;
    bool each; /* chunks have different decays */
} delta;

/* Returns u of chunk n, whose first state is S; NULL: 0. The solution has all the batches and heads
 * of r·S, which vb may lack. */
static eg_tensor *delta_solved(const delta *d, int64_t n, eg_tensor *S)
{
    eg_tensor *x = eg_select_axis(d->vb, 0, n), *system = eg_select_axis(d->system, 0, n),
              *rb = eg_select_axis(d->rb, 0, n);
    if (S) {
        x = eg_on(eg__nn_joined(d->vbs, d->cs, d->cs), eg_sub, x,
                  eg_einsum(eg__nn_joined(d->rbs, d->state, d->cs), rb, S));
    } else {
        eg_tensor *both[] = { eg_select_axis(system, -1, 0), x };
        if (eg_align_n(eg__nn_joined(d->rows, d->vbs, d->cs), 2, both, both)) return both[1];
        x = both[1];
    }
    return eg_solve_triangular(eg__nn_joined(d->square, d->cs, d->us), system, x, false);
}

/* Sets states to the states S_n before the chunks and u to the solutions, each `count` tensors, and
 * returns the state after the last one:
 *
 *   S_{n+1} = A_n S_n + Σ_u (Π_{s>u} a_s) k_u u_u */
static eg_tensor *delta_states(const delta *d, eg_tensor *S, eg_tensor **states, eg_tensor **u)
{
    const char *added = eg__nn_joined(d->ends, d->us, d->state),
               *decayed = d->head ? eg__nn_joined(d->state, d->head, d->state) : NULL;
    for (int64_t n = 0; n < d->count; n++) {
        u[n] = delta_solved(d, n, S);
        eg_tensor *sum = eg_einsum(added, eg_select_axis(d->end, 0, n), u[n]);
        states[n] = S ? S : eg_zeros_like(sum);
        if (S && decayed)
            S = eg_einsum(decayed, S, d->each ? eg_select_axis(d->whole, 0, n) : d->whole);
        S = S ? eg_add(S, sum) : sum;
    }
    return S;
}

/* Returns I + A, with axes `square`, which ends in (c u), and sets *rb to β_c r_c, with axes
 * *rbs:
 *
 *   A_cu = β_c r_c · (Π_{u<s≤c} a_s) k_u   for u < c
 *
 * kc, ku: the axes of r and of k, in which the place is called c or u; beta: with the axes of kc.
 */
static eg_tensor *delta_system(const eg_spec *kc, const eg_spec *ku, const linear_factor *beta,
                               const linear_decays *d, const eg_spec *square, eg_tensor *r,
                               eg_tensor *k, const eg_spec **rbs, eg_tensor **rb)
{
    *rbs = linear_union(kc, beta->of);
    *rb = eg_einsum(eg__nn_joined(kc, beta->of, *rbs), r, beta->x);
    return unit_lower(eg__linear_pairs(*rbs, ku, d, square, *rb, k));
}

/* Returns the indices `first`, then those of batches and heads whose systems differ. */
static const eg_spec *delta_front(const linear_terms *t, const char *first, const linear_factors *f)
{
    const eg_spec *s = eg__linear_with_heads(eg_spec_like(t->all, first), t, t->term[K]);
    return eg__linear_with_heads(eg__linear_with_heads(s, t, f->decay.of), t, f->beta.of);
}

eg_tensor *eg__linear_causal_delta(linear_chunks *p, eg_tensor *k, eg_tensor *v,
                                   const linear_factors *f, eg_tensor *first, eg_tensor **next)
{
    const linear_terms *t = p->t;
    eg_ctx *cx = eg_context(k);
    const int at = eg_spec_axis(f->beta.of, 0, t->j);
    const linear_decays d = eg__linear_decays(p, f, !next);
    const linear_factor beta = { eg__linear_cut(f->beta.of, t->j, p->n, p->c),
                                 at < 0
                                     ? f->beta.x
                                     : eg__linear_chunked(f->beta.x, at, p->chunk, p->count, 0) };
    const int kj = linear_axis_of(t, K, t->j);
    k = eg__linear_chunked(k, kj, p->chunk, p->count, 0);
    eg_tensor *r = f->read ? eg__linear_chunked(f->read, kj, p->chunk, p->count, 0) : k;
    v = eg__linear_chunked(v, linear_axis_of(t, V, t->j), p->chunk, p->count, 0);
    const eg_spec *front = delta_front(t, p->n, f);
    const eg_spec *rows = linear_with(front, p->c), *square = linear_with(rows, p->u),
                  *kc = eg__linear_cut(t->term[K], t->j, p->n, p->c),
                  *vc = eg__linear_cut(t->term[V], t->j, p->n, p->c), *rbs,
                  *vbs = linear_union(linear_union(eg_spec_like(t->all, p->n), vc), beta.of),
                  *us = linear_with(linear_with(eg__linear_with_heads(front, t, t->term[V]), p->u),
                                    t->e),
                  *ends = eg_spec_like(t->all, p->n);
    ends = linear_union(ends, d.to_u ? linear_union(p->ks, d.to_u) : p->ks);
    eg_tensor *rb, *system = delta_system(kc, p->ks, &beta, &d, square, r, k, &rbs, &rb),
                   *vb = eg_einsum(eg__nn_joined(vc, beta.of, vbs), v, beta.x);
    const eg_spec *rfs = linear_union(eg_spec_like(t->all, p->n), rbs);
    rfs = d.to_c ? linear_union(rfs, d.to_c) : rfs;
    rb = d.from ? eg_einsum(eg__nn_joined(rbs, d.to_c, rfs), rb, d.from)
                : eg_einsum(eg__nn_joined(rbs, NULL, rfs), rb);
    const eg_spec *cs = linear_without(us, p->n);
    delta run = { .count = p->count,
                  .state = p->state,
                  .vbs = linear_without(vbs, p->n),
                  .rbs = linear_without(rfs, p->n),
                  .cs = eg_spec_rename(cs, p->u, p->c),
                  .us = cs,
                  .rows = linear_without(rows, p->n),
                  .square = linear_without(square, p->n),
                  .ends = linear_without(ends, p->n),
                  .vb = vb,
                  .rb = rb,
                  .system = system,
                  .whole = d.whole };
    run.end = d.end ? eg_einsum(eg__nn_joined(p->ks, d.to_u, ends), k, d.end)
                    : eg_einsum(eg__nn_joined(p->ks, NULL, ends), k);
    run.each = eg_spec_axis(d.head, 0, p->n) >= 0;
    run.head = run.each ? linear_without(d.head, p->n) : d.head;
    eg_tensor **parts = eg_scope_alloc(cx, 2 * (size_t)p->count * sizeof *parts);
    if (!parts || !run.vb || !run.rb || !run.end)
        return eg_fail_as(cx, EG_ERROR_MEMORY, "linear_attention: out of memory");
    eg_tensor *last = delta_states(&run, first, parts, parts + p->count);
    if (next) *next = last;
    eg_tensor *states = eg_stack_axis_n(0, (int)p->count, parts),
              *u = eg_stack_axis_n(0, (int)p->count, parts + p->count);
    return eg__linear_chunk_sums(p, &d, k, states, us, u);
}

eg_tensor *eg__linear_delta_weights(const linear_terms *t, const linear_factors *f,
                                    const linear_decays *d, const eg_spec *all, eg_tensor *k,
                                    eg_tensor *p)
{
    const char *s = eg_spec_unused(eg_spec_join(2, (const eg_spec *[]){ t->all, all }, NULL), "s");
    const eg_spec *rbs, *square = linear_with(linear_with(delta_front(t, "", f), s), t->j),
                        *of = f->beta.of;
    const bool each = eg_spec_axis(of, 0, t->j) >= 0;
    const linear_factor beta = { each ? eg_spec_rename(of, t->j, s) : of, f->beta.x };
    linear_decays named = *d;
    if (named.within) named.within = eg_spec_rename(named.within, t->i, s);
    eg_tensor *rb, *system = delta_system(eg_spec_rename(t->term[K], t->j, s), t->term[K], &beta,
                                          &named, square, f->read ? f->read : k, k, &rbs, &rb);
    p = eg_solve_triangular(eg__nn_joined(square, all, eg_spec_rename(all, t->j, s)), system, p,
                            true);
    return eg_einsum(eg__nn_joined(all, of, all), p, f->beta.x);
}
