/* linear_attention.c: attention without a softmax, in time and memory O(length).
 *
 *   w_ij = φ(q_i) · (Π_{j<s≤i} a_s) φ(k_j)       y_i = Σ_j w_ij v_j / Σ_j w_ij
 *
 * (Katharopoulos et al. 2020, eq. 5, 9, 10; with decay Sun et al. 2023 (RetNet), Yang et al. 2024
 * (GLA)). A column of ones appended to v yields the denominator. Without a mask the numerator is
 * the einsum of the attention's string, whose cheapest order multiplies key and value first. With a
 * causal mask it is computed in chunks (linear_chunks.c; decays of channels: linear_channels.c),
 * with the delta rule too (linear_delta.c). */
#include "linear_attention.h"
#include <math.h>
#include <stdio.h>

enum { CHUNK = 64, CHUNK_OF_DELTA = 32, CHUNK_OF_CHANNELS = 16 };

/* Reads the string of a call into t. False after an error. */
static bool read_spec(eg_ctx *cx, const char *spec, linear_terms *t)
{
    static const char form[] = "three operands and an output are needed, without groups";
    const eg_spec *s = eg_spec_parse(cx, "linear_attention", spec);
    int queries = 0, keys = 0, widths = 0;
    const char *head = NULL; /* an index of the values alone, besides the width */
    *t = (linear_terms){ .all = s };
    if (!eg__nn_only_indices(s, 3, true, form)) return false;
    for (int k = 0; k < 4; k++) {
        if (!eg__nn_indices_differ(s, k)) return false;
        for (int n = 0; n < s->term[k].items; n++) {
            const char *name = s->index[s->term[k].item[n].index].name;
            const bool q = linear_has(t, Q, name), key = linear_has(t, K, name),
                       v = linear_has(t, V, name), y = linear_has(t, Y, name);
            /* further indices of only the query, such as r of grouped heads, are treated like the
             * first */
            if (k == Q && y && !key && !v && !queries++) t->i = name;
            if (k == V && key && !q && !y) t->j = name, keys++;
            if (k == V && y && !key && !q) head = t->e, t->e = name, widths++;
        }
    }
    if (queries && keys == 1 && widths > 1)
        return eg_spec_fail(s, EG_ERROR_NOTATION, V, -1,
                            "the values have the indices '%s' and '%s', which queries and keys "
                            "lack, but their width is one index: repeat queries and keys over the "
                            "other, as eg_rearrange(\"b j d -> b j h d\", k, .h = 8) does",
                            head, t->e),
               false;
    if (!queries || keys != 1 || widths != 1)
        return eg_spec_fail(s, EG_ERROR_NOTATION, -1, -1,
                            "the spec needs an index of the query, one of the key and one of the "
                            "value's width, as in \"bihd,bjhd,bjhe->bihe\""),
               false;
    for (int k = 0; k < 4; k++) t->term[k] = eg_spec_of_term(s, k);
    t->front = linear_without(linear_without(t->term[Y], t->i), t->e);
    return t->front != NULL;
}

/* Returns φ(x): by the formula, which reads no index, or elu(x) + 1. */
static eg_tensor *feature(const char *phi, eg_tensor *x)
{
    eg_ctx *cx = eg_context(x);
    if (!eg_ok(x) || eg_error(cx)) return x;
    eg_tensor *y = phi ? eg_expr("...", phi, .with = { { "x", x } }) : eg_shift(eg_elu(x, 1), 1);
    if (!eg_ok(y)) return eg_fail_in(cx, phi ? "linear_attention: .phi" : "linear_attention");
    if (eg_type(y) == eg_type(x)) return y;
    return eg_fail_as(cx, EG_ERROR_DTYPE, "linear_attention: .phi gives %s, not %s: \"%s\"",
                      eg_type_name(eg_type(y)), eg_type_name(eg_type(x)), phi);
}

/* Returns x / total; where the total is 0, x / ∞, which is 0 with gradient 0. */
static eg_tensor *linear_share(eg_tensor *x, eg_tensor *total, const char *spec)
{
    eg_tensor *none = eg_eq(total, eg_zeros_like(total)),
              *never = eg_full_n(eg_context(total), eg_type(total), INFINITY, 0, NULL);
    return eg_on(spec, eg_div, x, eg_where(none, never, total));
}

/* Returns the indices of an option that is a factor of the state, .decay or .beta. Each must be the
 * key's, or one of the output's batches or heads. channels: where to put whether one of them is
 * summed over; NULL: such indices are refused. NULL if the option is not given, and after an
 * error. */
static const eg_spec *factor_indices(const eg_linear_attention_args *o, const linear_terms *t,
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
    if (!s || !eg__nn_only_indices(s, 1, false, wanted)) return NULL;
    for (int k = 0; k < s->term[0].items; k++) {
        const char *name = s->index[s->term[0].item[k].index].name;
        const bool key = linear_has(t, K, name), y = linear_has(t, Y, name),
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
    /* with the output, so that no name occurs once that does not in the string of the call */
    const eg_spec *const all[] = { t->term[Q], t->term[K], t->term[V], s };
    eg_tensor *const xs[] = { o->q, o->k, o->v, x->x };
    const char *const called[] = { NULL, NULL, NULL, option };
    if (!eg_spec_bind_called(eg_spec_join(4, all, t->term[Y]), 4, xs, called)) return NULL;
    if (eg_type(x->x) == eg_type(o->k)) return s;
    return eg_fail_as(cx, EG_ERROR_DTYPE, "linear_attention: %s is %s, the key %s", option,
                      eg_type_name(eg_type(x->x)), eg_type_name(eg_type(o->k))),
           NULL;
}

/* True if the keys and values can be multiplied by the queries, as values of f16 and bf16 can; else
 * records an error. */
static bool linear_types_fit(const eg_linear_attention_args *o)
{
    const eg_dtype query = eg_type(o->q), key = eg_type(o->k), value = eg_type(o->v);
    const bool half = value == EG_F16 || value == EG_BF16;
    if (key == query && (value == query || half)) return true;
    return eg_fail_as(eg_context(o->q), EG_ERROR_DTYPE,
                      "linear_attention: the query is %s but the %s is %s; eg_cast one of them",
                      eg_type_name(query), key == query ? "value" : "key",
                      eg_type_name(key == query ? value : key)),
           false;
}

/* True if .read has the axes of the keys and belongs to a delta rule; else records an error. */
static bool read_fits(const eg_linear_attention_args *o, const linear_terms *t)
{
    eg_ctx *cx = eg_context(o->q);
    const eg_spec *const both[] = { t->term[K], t->term[K] };
    eg_tensor *const xs[] = { o->k, o->read };
    const char *const called[] = { "the key", ".read" };
    if (!o->read) return true;
    if (!o->beta.x)
        eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: .read is read with .beta only");
    else if (!eg_ok(o->read) || eg_rank(o->read) != eg_rank(o->k))
        eg_fail_as(cx, EG_ERROR_SHAPE, "linear_attention: .read has %d ax%s, but the key has %d",
                   eg_rank(o->read), eg_rank(o->read) == 1 ? "is" : "es", eg_rank(o->k));
    else if (eg_type(o->read) != eg_type(o->k))
        eg_fail_as(cx, EG_ERROR_DTYPE, "linear_attention: .read is %s, the key %s",
                   eg_type_name(eg_type(o->read)), eg_type_name(eg_type(o->k)));
    else
        return eg_spec_bind_called(eg_spec_join(2, both, NULL), 2, xs, called);
    return false;
}

/* Returns y of a causal call from φ(q), φ(k) and v. Unless the denominator is off, index e of the
 * values is larger by one for it. */
static eg_tensor *by_chunks(const eg_linear_attention_args *o, const linear_terms *t,
                            const linear_factors *f, eg_tensor *q, eg_tensor *k, eg_tensor *v)
{
    const int qi = linear_axis_of(t, Q, t->i), yi = linear_axis_of(t, Y, t->i);
    const int64_t queries = eg_dim(q, qi), seen = o->offset,
                  more = f->decay.of || f->beta.of ? seen : 0;
    linear_chunks p;
    eg__linear_chunk_specs(&p, t, f->decay.of, f->beta.of, queries + more,
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
    const char *const called[] = { "the key", "the value", ".state" };
    if (o->state && !eg_spec_bind_called(eg_spec_join(3, sized, NULL), 3, sizes, called))
        return eg_fail_as(eg_context(q), EG_ERROR_SHAPE, "linear_attention: .state");
    if (more) q = eg_pad_axis(q, qi, more, 0, 0);
    p.q = eg__linear_chunked(q, qi, p.chunk, p.count, 0);
    eg_tensor *y = f->beta.of && p.count ? eg__linear_causal_delta(&p, k, v, f, o->state, o->next)
                   : f->decay.of && p.count
                       ? eg__linear_causal_decayed(&p, k, v, f, o->state, o->next)
                       : eg__linear_causal(&p, k, v, seen, o->state, o->next);
    y = eg__linear_merged(y, yi, p.length);
    return more ? eg_slice_axis(y, yi, more, EG_END, 1) : y;
}

/* Returns the weights of all pairs, for a caller that requests them. */
static eg_tensor *linear_weights(const eg_linear_attention_args *o, const linear_terms *t,
                                 const linear_factors *f, bool is_causal, eg_tensor *q,
                                 eg_tensor *k)
{
    const eg_spec *rows = linear_with(t->front, t->i), *all = linear_with(rows, t->j),
                  *decay = f->decay.of;
    const int at = decay ? eg_spec_axis(decay, 0, t->j) : -1;
    eg_tensor *w, *a = f->decay.x;
    linear_decays d = { .whole = NULL };
    if (decay) {
        const eg_spec *rest = at < 0 ? decay : linear_without(decay, t->j);
        const int64_t keys = eg_dim(k, linear_axis_of(t, K, t->j));
        a = at < 0 ? eg__linear_repeated(a, keys)
                   : eg_einsum(eg__nn_joined(decay, NULL, linear_with(rest, t->j)), a);
        d.left = eg_slice_axis(eg__linear_decay_products(a), -1, 1, EG_END, 1);
        d.within = linear_with(linear_with(rest, t->i), t->j);
        w = eg__linear_einsum(t->term[Q], t->term[K], d.within, all, q, k,
                              eg_slice_axis(d.left, -2, o->offset, EG_END, 1));
    } else {
        w = eg_einsum(eg__nn_joined(t->term[Q], t->term[K], all), q, k);
        w = is_causal ? eg_tril(w, o->offset) : w;
    }
    if (f->beta.of) w = eg__linear_delta_weights(t, f, &d, all, k, w);
    if (!o->no_norm) w = linear_share(w, eg_sum("... [j]", w), eg__nn_joined(all, rows, NULL));
    const eg_spec *axes = o->weights_axes ? eg_spec_like(all, o->weights_axes)
                                          : linear_with(linear_without(t->term[Y], t->e), t->j);
    return eg_einsum(eg__nn_joined(all, NULL, axes), w);
}

/* True if .offset is a number of positions, and there are as many keys as a causal mask needs; else
 * records an error. */
static bool enough_keys(const eg_linear_attention_args *o, const linear_terms *t, bool is_causal)
{
    const int64_t queries = eg_dim(o->q, linear_axis_of(t, Q, t->i)),
                  keys = eg_dim(o->k, linear_axis_of(t, K, t->j));
    if (!eg__nn_offset_fits(eg_context(o->q), "linear_attention: ", o->offset)) return false;
    if (!is_causal || keys - queries == o->offset) return true;
    return eg_fail_as(
               eg_context(o->q), EG_ERROR_SHAPE,
               "linear_attention: a causal mask needs as many keys as queries and .offset make, "
               "but '%s' is %lld and '%s' is %lld with %lld before",
               t->j, (long long)keys, t->i, (long long)queries, (long long)o->offset),
           false;
}

/* Returns v with a further element 1 along an axis, which may be empty. */
static eg_tensor *with_ones(eg_tensor *v, int axis)
{
    int64_t dims[EG_RANK_MAX];
    if (!eg_ok(v)) return v;
    for (int r = 0; r < eg_rank(v); r++) dims[r] = r == axis ? 1 : eg_dim(v, r);
    return eg_concat_axis(axis, v, eg_full_n(eg_context(v), eg_type(v), 1, eg_rank(v), dims));
}

/* Operands are masked before and after φ, since φ(0) need not be 0 and a masked element may be
 * NaN. */
eg_tensor *eg_linear_attention_with(const eg_linear_attention_args *given)
{
    OPTIONS(eg_linear_attention_args, o, given);
    eg_ctx *cx = eg_context(o->q);
    linear_terms t;
    linear_masks m;
    linear_factors f = { .channels = false };
    if (o->weights) *o->weights = NULL;
    if (o->next) *o->next = NULL;
    if (!eg_ok(o->q) || !eg_ok(o->k) || !eg_ok(o->v) || (o->state && !eg_ok(o->state)))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: an operand is NULL");
    if (!read_spec(cx, o->spec, &t))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s", o->spec);
    if (eg_rank(o->q) != t.all->term[Q].axes || eg_rank(o->k) != t.all->term[K].axes ||
        eg_rank(o->v) != t.all->term[V].axes)
        return (void)eg_einsum(o->spec, o->q, o->k,
                               o->v), /* records an error that names the operand */
               eg_fail_in(cx, "linear_attention");
    if (!eg__linear_masks(cx, o, &t, &m))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s", o->spec);
    f.decay =
        (linear_factor){ factor_indices(o, &t, ".decay", &o->decay, &f.channels), o->decay.x };
    f.beta = (linear_factor){ factor_indices(o, &t, ".beta", &o->beta, NULL), o->beta.x };
    if (eg_error(cx) || !linear_types_fit(o) || !read_fits(o, &t) || !enough_keys(o, &t, m.causal))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s", o->spec);
    eg_tensor *q = eg__linear_kept(&t, Q, o->q, m.queries, m.query),
              *k = eg__linear_kept(&t, K, o->k, m.keys, m.key),
              *v = eg__linear_kept(&t, V, o->v, m.keys, m.key);
    q = feature(o->phi, o->scale ? eg_scale(q, eg_option(o->scale, 1)) : q);
    q = eg__linear_kept(&t, Q, q, m.queries, m.query);
    k = eg__linear_kept(&t, K, feature(o->phi, k), m.keys, m.key);
    f.beta.x = eg__linear_beta_kept(&f.beta, &m);
    if (o->read)
        f.read = eg__linear_kept(
            &t, K, feature(o->phi, eg__linear_kept(&t, K, o->read, m.keys, m.key)), m.keys, m.key);
    const int ve = linear_axis_of(&t, V, t.e), ye = linear_axis_of(&t, Y, t.e);
    if (!o->no_norm) v = with_ones(v, ve);
    eg_tensor *y = m.causal ? by_chunks(o, &t, &f, q, k, v) : eg_einsum(o->spec, q, k, v);
    if (o->weights) *o->weights = linear_weights(o, &t, &f, m.causal, q, k);
    if (!o->no_norm)
        y = linear_share(eg_slice_axis(y, ye, 0, -1, 1), eg_select_axis(y, ye, -1),
                         eg__nn_joined(t.term[Y], linear_without(t.term[Y], t.e), NULL));
    return eg__linear_kept(&t, Y, y, m.queries, m.query);
}
