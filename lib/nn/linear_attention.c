/* linear_attention.c: attention without a softmax, in time and memory O(length). Katharopoulos et
 * al. 2020, eq. 5, 9, 10
 *
 *   φ(x) = elu(x) + 1        y_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j)
 *
 * A column of ones beside v carries the denominator. Without a mask the numerator is the einsum of
 * the attention's own string, whose cheapest order joins key and value first. Causal: what the
 * places before a chunk of 64 give comes from a running sum over chunks, the rest from a triangle
 * of scores within the chunk. */
#include "nn.h"

enum { CHUNK = 64 };
enum { Q, K, V, Y };

/* The call's string. i: the first index of query and output only; j: that of key and value only; e:
 * that of value and output only; front: the output's others. */
typedef struct terms {
    const eg_spec *all, *term[4], *front;
    const char *i, *j, *e;
} terms;

static bool in(const terms *t, int term, const char *name)
{
    return eg_spec_place(t->all, term, name) >= 0;
}
static const eg_spec *linear_without(const eg_spec *s, const char *name)
{
    return eg_spec_replace(s, 0, name, "");
}
static const eg_spec *linear_with(const eg_spec *s, const char *name)
{
    return eg_spec_insert(s, 0, -1, name);
}

/* Reads the spec into t. False after an error. */
static bool read_spec(eg_ctx *cx, const char *spec, terms *t)
{
    static const char form[] = "three operands and an output are needed, without groups";
    const eg_spec *s = eg_spec_parse(cx, "linear_attention", spec);
    int queries = 0, keys = 0, widths = 0;
    *t = (terms){ .all = s };
    if (!eg__nn_simple(s, 3, true, form)) return false;
    for (int k = 0; k < 4; k++)
        for (int n = 0; n < s->term[k].items; n++) {
            const char *name = s->index[s->term[k].item[n].index].name;
            if (eg_spec_place(s, k, name) < n)
                return eg_spec_fail(s, EG_ERROR_NOTATION, k, n, "index '%s' stands twice", name),
                       false;
            const bool q = in(t, Q, name), key = in(t, K, name), v = in(t, V, name),
                       y = in(t, Y, name);
            /* others of the query, as r of grouped heads, go along with the first */
            if (k == Q && y && !key && !v && !queries++) t->i = name;
            if (k == V && key && !q && !y) t->j = name, keys++;
            if (k == V && y && !key && !q) t->e = name, widths++;
        }
    if (!queries || keys != 1 || widths != 1)
        return eg_spec_fail(s, EG_ERROR_NOTATION, -1, -1,
                            "the spec needs a query's place, one key's place and one width of the "
                            "value alone, as in \"bihd,bjhd,bjhe->bihe\""),
               false;
    for (int k = 0; k < 4; k++) t->term[k] = eg_spec_pick(s, k);
    t->front = linear_without(linear_without(t->term[Y], t->i), t->e);
    return t->front != NULL;
}

static int linear_axis_of(const terms *t, int term, const char *name)
{
    return eg_spec_axis(t->all, term, name);
}

/* axis of n·chunk places as (n, chunk), zeros where there are none */
static eg_tensor *chunked(eg_tensor *x, int axis, int64_t chunk, int64_t n)
{
    int64_t dims[EG_RANK_MAX], more = n * chunk - eg_dim(x, axis);
    x = more ? eg_pad_axis(x, axis, 0, more, 0) : x;
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

/* What the places before a chunk give, and what the chunk gives itself, as indices: n chunks of
 * queries c and keys u. Query i sees keys up to i + seen: the first `seen` keys are everybody's. */
static eg_tensor *causal(const terms *t, eg_tensor *q, eg_tensor *k, eg_tensor *v, int64_t seen)
{
    const int qi = linear_axis_of(t, Q, t->i), kj = linear_axis_of(t, K, t->j),
              vj = linear_axis_of(t, V, t->j), yi = linear_axis_of(t, Y, t->i);
    const int64_t length = eg_dim(q, qi), chunk = length < CHUNK ? length : CHUNK,
                  count = length ? (length + chunk - 1) / chunk : 0;
    const char *const n = eg_spec_fresh(t->all, "n");
    const eg_spec *more = eg_spec_insert(t->all, Y, -1, n);
    const char *const c = eg_spec_fresh(more, "c");
    const char *const u = eg_spec_fresh(eg_spec_insert(more, Y, -1, c), "u");
    const eg_spec *qs = eg_spec_insert(eg_spec_rename(t->term[Q], t->i, n), 0, qi + 1, c),
                  *ks = eg_spec_insert(eg_spec_rename(t->term[K], t->j, n), 0, kj + 1, u),
                  *vs = eg_spec_insert(eg_spec_rename(t->term[V], t->j, n), 0, vj + 1, u),
                  *ys = eg_spec_insert(eg_spec_rename(t->term[Y], t->i, n), 0, yi + 1, c),
                  *state = linear_with(linear_without(t->term[K], t->j), t->e),
                  *states = eg_spec_insert(state, 0, 0, n),
                  *scored = linear_with(linear_with(linear_with(t->front, n), c), u);
    eg_tensor *first = NULL;
    if (seen) {
        first = eg_einsum(eg__nn_joined(t->term[K], t->term[V], state),
                          eg_slice_axis(k, kj, 0, seen, 1), eg_slice_axis(v, vj, 0, seen, 1));
        k = eg_slice_axis(k, kj, seen, EG_END, 1);
        v = eg_slice_axis(v, vj, seen, EG_END, 1);
    }
    q = chunked(q, qi, chunk, count);
    k = chunked(k, kj, chunk, count);
    v = chunked(v, vj, chunk, count);
    eg_tensor *sums = eg_einsum(eg__nn_joined(ks, vs, states), k, v);
    eg_tensor *before =
        eg_sub(eg_cumsum(eg__nn_spec(eg_spec_bracket(states, 0, 1, &n)), sums), sums);
    if (first) before = eg_on(eg__nn_joined(states, state, NULL), eg_add, before, first);
    eg_tensor *y = eg_einsum(eg__nn_joined(qs, states, ys), q, before),
              *scores = eg_tril(eg_einsum(eg__nn_joined(qs, ks, scored), q, k), 0);
    return linear_merged(eg_add(y, eg_einsum(eg__nn_joined(scored, vs, ys), scores, v)), yi,
                         length);
}

/* -- whole ------------------------------------------------------------------------------------ */
static eg_tensor *feature(eg_tensor *x) { return eg_shift(eg_elu(x, 1), 1); }

/* x where the mask is true, else 0, whatever x is: no product, since 0 NaN is NaN */
static eg_tensor *left_out(eg_tensor *x, eg_tensor *keep)
{
    return eg_where(keep, x, eg_full_n(eg_context(x), eg_type(x), 0, 0, NULL));
}
/* The same by letters, of the operand that is that term; x as it is where it lacks one of the
 * mask's. */
static eg_tensor *linear_kept(const terms *t, int term, eg_tensor *x, const eg_masked *keep)
{
    const eg_spec *mask = eg_spec_like(t->all, keep->axes ? keep->axes : "");
    for (int k = 0; mask && k < mask->indices; k++)
        if (!in(t, term, mask->index[k].name)) return x;
    return eg_on(eg__nn_joined(t->term[term], mask, NULL), left_out, x, eg_cast(keep->x, EG_BOOL));
}

/* x / total, and 0 where there is nothing to divide by */
static eg_tensor *linear_share(eg_tensor *x, eg_tensor *total, const char *spec)
{
    eg_tensor *none = eg_eq(total, eg_zeros_like(total));
    return eg_on(spec, eg_div, x, eg_where(none, eg_ones_like(total), total));
}

/* True if the predicate is "j <= i". */
static bool says_causal(const terms *t, const char *where)
{
    const char who[] = "linear_attention";
    const eg_formula *causal =
        eg_formula_replace(eg_formula_parse(t->all->cx, who, "key <= query"), "key", t->j, NULL);
    return eg_formula_equals(eg_formula_parse(t->all->cx, who, where),
                             eg_formula_replace(causal, "query", t->i, NULL));
}

/* True after recording an option that linear attention does not have. */
static bool linear_refused(eg_ctx *cx, const eg_attention_args *o, const terms *t, bool *is_causal)
{
    const eg_spec *keep = o->keep.axes ? eg_spec_like(t->all, o->keep.axes) : NULL;
    *is_causal = o->where != NULL;
    if (eg_error(cx)) return true;
    if (o->where && !says_causal(t, o->where))
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "linear_attention: .where can be \"%s <= %s\" only, not \"%s\"", t->j, t->i,
                   o->where);
    else if (o->offset_letter && strcmp(o->offset_letter, t->i))
        eg_fail_as(cx, EG_ERROR_NOTATION,
                   "linear_attention: .offset moves '%s', and .offset_letter is '%.40s'", t->i,
                   o->offset_letter);
    else if (o->bias.x || o->bias.axes)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "linear_attention: there is no softmax that .bias could be added before");
    else if (o->score_fn || o->alibi.x || o->scores || o->lse || o->empty || o->form == EG_FUSED)
        eg_fail_as(
            cx, EG_ERROR_UNSUPPORTED,
            "linear_attention: .score_fn, .alibi, .scores, .lse, .empty and EG_FUSED speak of "
            "a softmax, which there is not");
    else if (o->lengths.x || o->lengths.axes)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "linear_attention: .lengths is not known; .keep leaves out keys");
    else if (o->dropout > 0)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "linear_attention: there are no weights to drop");
    else if (o->keep.x && (eg_type(o->keep.x) == EG_F32 || eg_type(o->keep.x) == EG_F64))
        eg_fail_as(
            cx, EG_ERROR_DTYPE,
            "linear_attention: .keep is %s; it needs bool or integers, non-zero for keys that "
            "take part",
            eg_type_name(eg_type(o->keep.x)));
    else if (eg_spec_place(keep, 0, t->i) >= 0)
        eg_fail_as(
            cx, EG_ERROR_NOTATION,
            "linear_attention: .keep has the letter '%s' of the query; it can leave out keys only",
            t->i);
    else
        return false;
    return true;
}

/* the same weights, as a softmax would show them: O(length²), on request only */
static eg_tensor *shown(const terms *t, eg_tensor *q, eg_tensor *k, bool is_causal, int64_t seen,
                        const char *axes)
{
    const eg_spec *rows = linear_with(t->front, t->i), *all = linear_with(rows, t->j);
    eg_tensor *w = eg_einsum(eg__nn_joined(t->term[Q], t->term[K], all), q, k);
    w = is_causal ? eg_tril(w, seen) : w;
    w = linear_share(w, eg_sum("... [j]", w), eg__nn_joined(all, rows, NULL));
    return axes ? eg_einsum(eg__nn_joined(all, NULL, eg_spec_like(all, axes)), w) : w;
}

eg_tensor *eg_linear_attention_with(const eg_attention_args *given)
{
    OPTIONS(eg_attention_args, o, given);
    eg_ctx *cx = eg_context(o->q);
    terms t;
    bool is_causal;
    if (!eg_ok(o->q) || !eg_ok(o->k) || !eg_ok(o->v))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: an operand is NULL");
    if (!read_spec(cx, o->spec, &t) || linear_refused(cx, o, &t, &is_causal))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s", o->spec);
    if (eg_rank(o->q) != t.all->term[Q].axes || eg_rank(o->k) != t.all->term[K].axes ||
        eg_rank(o->v) != t.all->term[V].axes)
        return eg_einsum(o->spec, o->q, o->k, o->v); /* which points at the operand */
    int64_t queries = eg_dim(o->q, linear_axis_of(&t, Q, t.i)),
            keys = eg_dim(o->k, linear_axis_of(&t, K, t.j)), seen = is_causal ? o->offset : 0;
    if (is_causal && (seen < 0 || keys != queries + seen))
        return eg_fail_as(
            cx, EG_ERROR_SHAPE,
            "linear_attention: a causal mask needs as many keys as queries and .offset make, "
            "but '%s' is %lld and '%s' is %lld with %lld before",
            t.j, (long long)keys, t.i, (long long)queries, (long long)seen);
    eg_tensor *q = feature(o->scale && o->scale != EG_OFF ? eg_scale(o->q, o->scale) : o->q),
              *k = o->k, *v = o->v;
    k = feature(o->keep.x ? linear_kept(&t, K, k, &o->keep) : k);
    if (o->keep.x) {
        const eg_spec *mask = eg_spec_like(t.all, o->keep.axes ? o->keep.axes : "");
        k = eg_on(eg__nn_joined(t.term[K], mask, NULL), left_out, k, eg_cast(o->keep.x, EG_BOOL));
        v = linear_kept(&t, V, v, &o->keep);
    }
    int ve = linear_axis_of(&t, V, t.e), ye = linear_axis_of(&t, Y, t.e);
    v = eg_concat_axis(ve, v, eg_ones_like(eg_slice_axis(o->v, ve, 0, 1, 1)));
    eg_tensor *y = is_causal ? causal(&t, q, k, v, seen) : eg_einsum(o->spec, q, k, v);
    eg_tensor *total = eg_select_axis(y, ye, -1);
    const eg_spec *rows = linear_without(t.term[Y], t.e);
    if (o->weights) *o->weights = shown(&t, q, k, is_causal, seen, o->weights_axes);
    if (o->dropped) *o->dropped = shown(&t, q, k, is_causal, seen, o->weights_axes);
    return linear_share(eg_slice_axis(y, ye, 0, -1, 1), total,
                        eg__nn_joined(t.term[Y], rows, NULL));
}
