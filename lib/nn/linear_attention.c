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
#include <ctype.h>
#include <stdio.h>

enum { CHUNK = 64, TERM = 64, SPEC = 6 * TERM };

/* the four terms; i: in query and output only; j: in key and value only; e: in value and output
 * only; front: the output's but i and e */
typedef struct terms {
    char q[TERM], k[TERM], v[TERM], y[TERM], front[TERM], i, j, e;
} terms;

static bool in(const char *term, char c) { return strchr(term, c) != NULL; }

static void linear_without(const char *term, char a, char b, char *out)
{
    for (; *term; term++)
        if (*term != a && *term != b) *out++ = *term;
    *out = 0;
}

static bool split(const char *spec, terms *t)
{
    char *const term[] = { t->q, t->k, t->v, t->y };
    int k = 0, n = 0;
    char said;
    for (const char *c = without_reading(spec ? spec : "", &said); *c; c++) {
        if (said == 'n') return false;
        if (*c == ',' || (*c == '-' && c[1] == '>')) {
            c += *c == '-';
            k++, n = 0;
        } else if (isalpha((unsigned char)*c)) {
            if (k > 3 || n == 30 || in(term[k], *c)) return false;
            term[k][n++] = *c;
        } else if (!isspace((unsigned char)*c))
            return false;
    }
    return k == 3;
}

static bool read_spec(eg_ctx *cx, const char *spec, terms *t)
{
    int queries = 0, keys = 0, widths = 0;
    *t = (terms){ 0 };
    if (!split(spec, t))
        return eg_fail_as(
                   cx, EG_ERROR_NOTATION,
                   "linear_attention: the spec \"%s\" needs three operands and an output, in "
                   "letters without groups",
                   spec ? spec : ""),
               false;
    for (const char *c = t->q; *c; c++)
        if (in(t->y, *c) && !in(t->k, *c) && !in(t->v, *c) && !queries++)
            t->i = *c; /* the first: others, as r of grouped heads, go along */
    for (const char *c = t->v; *c; c++) {
        if (in(t->k, *c) && !in(t->q, *c) && !in(t->y, *c)) t->j = *c, keys++;
        if (in(t->y, *c) && !in(t->k, *c) && !in(t->q, *c)) t->e = *c, widths++;
    }
    linear_without(t->y, t->i, t->e, t->front);
    if (queries && keys == 1 && widths == 1) return true;
    return eg_fail_as(
               cx, EG_ERROR_SHAPE,
               "linear_attention: the spec \"%s\" needs a query's place, one key's place and "
               "one width of the value "
               "alone, as in \"bihd,bjhd,bjhe->bihe\"",
               spec),
           false;
}

static int linear_axis_of(const char *term, char letter)
{
    return (int)(strchr(term, letter) - term);
}

/* a letter of a term written as others: j → nu */
static void with(const char *term, char letter, const char *text, char *out)
{
    for (; *term; term++)
        if (*term == letter)
            out = strcpy(out, text) + strlen(text);
        else
            *out++ = *term;
    *out = 0;
}

/* three letters that no term has */
static bool linear_fresh(const terms *t, char out[3])
{
    int n = 0;
    for (const char *c = "ncutxyzwsNCUTXYZW"; *c && n < 3; c++)
        if (!in(t->q, *c) && !in(t->k, *c) && !in(t->v, *c) && !in(t->y, *c)) out[n++] = *c;
    return n == 3;
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

/* query i sees keys up to i + seen: the first `seen` keys are everybody's */
static eg_tensor *causal(const terms *t, eg_tensor *q, eg_tensor *k, eg_tensor *v, int64_t seen)
{
    eg_ctx *cx = eg_context(q);
    int qi = linear_axis_of(t->q, t->i), kj = linear_axis_of(t->k, t->j),
        vj = linear_axis_of(t->v, t->j), yi = linear_axis_of(t->y, t->i);
    int64_t length = eg_dim(q, qi), chunk = length < CHUNK ? length : CHUNK,
            count = length ? (length + chunk - 1) / chunk : 0;
    char f[3], nc[3] = { 0 }, nu[3] = { 0 }, qs[TERM], ks[TERM], vs[TERM], ys[TERM],
               state[TERM] = "", spec[SPEC];
    if (!linear_fresh(t, f))
        return eg_fail_as(cx, EG_ERROR_NOTATION,
                          "linear_attention: the spec leaves no letters for chunks");
    nc[0] = nu[0] = f[0], nc[1] = f[1], nu[1] = f[2];
    with(t->q, t->i, nc, qs);
    with(t->k, t->j, nu, ks);
    with(t->v, t->j, nu, vs);
    with(t->y, t->i, nc, ys);
    linear_without(t->k, t->j, 0, state);
    state[strlen(state)] = t->e;
    eg_tensor *first = NULL;
    if (seen) {
        snprintf(spec, sizeof spec, "%s,%s->%s", t->k, t->v, state);
        first = eg_einsum(spec, eg_slice_axis(k, kj, 0, seen, 1), eg_slice_axis(v, vj, 0, seen, 1));
        k = eg_slice_axis(k, kj, seen, EG_END, 1);
        v = eg_slice_axis(v, vj, seen, EG_END, 1);
    }
    q = chunked(q, qi, chunk, count);
    k = chunked(k, kj, chunk, count);
    v = chunked(v, vj, chunk, count);
    snprintf(spec, sizeof spec, "%s,%s->%c%s", ks, vs, f[0], state);
    eg_tensor *sums = eg_einsum(spec, k, v);
    snprintf(spec, sizeof spec, "[%c]%s", f[0], state);
    eg_tensor *before = eg_sub(eg_cumsum(spec, sums), sums);
    if (first) {
        snprintf(spec, sizeof spec, "%c%s,%s", f[0], state, state);
        before = eg_on(spec, eg_add, before, first);
    }
    snprintf(spec, sizeof spec, "%s,%c%s->%s", qs, f[0], state, ys);
    eg_tensor *y = eg_einsum(spec, q, before);
    snprintf(spec, sizeof spec, "%s,%s->%s%c%c%c", qs, ks, t->front, f[0], f[1], f[2]);
    eg_tensor *scores = eg_tril(eg_einsum(spec, q, k), 0);
    snprintf(spec, sizeof spec, "%s%c%c%c,%s->%s", t->front, f[0], f[1], f[2], vs, ys);
    return linear_merged(eg_add(y, eg_einsum(spec, scores, v)), yi, length);
}

/* -- whole ------------------------------------------------------------------------------------ */
static eg_tensor *feature(eg_tensor *x) { return eg_shift(eg_elu(x, 1), 1); }

/* x where the mask is true, else 0, whatever x is: no product, since 0 NaN is NaN */
static eg_tensor *left_out(eg_tensor *x, eg_tensor *keep)
{
    return eg_where(keep, x, eg_full_n(eg_context(x), eg_type(x), 0, 0, NULL));
}
/* The same by letters; x as it is where it lacks one of the mask's */
static eg_tensor *linear_kept(const char *term, eg_tensor *x, const eg_masked *keep)
{
    char spec[SPEC];
    for (const char *c = keep->axes ? keep->axes : ""; *c; c++)
        if (isalpha((unsigned char)*c) && !in(term, *c)) return x;
    snprintf(spec, sizeof spec, "%s,%.60s", term, keep->axes ? keep->axes : "");
    return eg_on(spec, left_out, x, eg_cast(keep->x, EG_BOOL));
}

/* x / total, and 0 where there is nothing to divide by */
static eg_tensor *linear_share(eg_tensor *x, eg_tensor *total, const char *spec)
{
    eg_tensor *none = eg_eq(total, eg_zeros_like(total));
    return eg_on(spec, eg_div, x, eg_where(none, eg_ones_like(total), total));
}

static bool linear_refused(eg_ctx *cx, const eg_attention_args *o, const terms *t, bool *is_causal)
{
    char where[8] = "", want[] = { t->j, '<', '=', t->i, 0 };
    size_t n = 0;
    for (const char *c = o->where ? o->where : ""; *c && n < sizeof where - 1; c++)
        if (!isspace((unsigned char)*c)) where[n++] = *c;
    *is_causal = o->where != NULL;
    if (o->where && strcmp(where, want))
        eg_fail_as(cx, EG_ERROR_NOTATION,
                   "linear_attention: .where can be \"%c <= %c\" only, not \"%s\"", t->j, t->i,
                   o->where);
    else if (o->bias.x || o->bias.axes)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "linear_attention: there is no softmax that .bias could be added before");
    else if (o->score || o->alibi.x || o->scores || o->lse || o->empty || o->form == EG_FUSED)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "linear_attention: .score, .alibi, .scores, .lse, .empty and EG_FUSED speak of "
                   "a softmax, which there is not");
    else if (o->lengths.x || o->lengths.axes)
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "linear_attention: .lengths is not known; .keep leaves out keys");
    else if (o->dropout > 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: there are no weights to drop");
    else if (o->keep.x && (eg_type(o->keep.x) == EG_F32 || eg_type(o->keep.x) == EG_F64))
        eg_fail_as(
            cx, EG_ERROR_DTYPE,
            "linear_attention: .keep is %s; it needs bool or integers, non-zero for keys that "
            "take part",
            eg_type_name(eg_type(o->keep.x)));
    else if (o->keep.axes && in(o->keep.axes, t->i))
        eg_fail_as(
            cx, EG_ERROR_NOTATION,
            "linear_attention: .keep has the letter '%c' of the query; it can leave out keys only",
            t->i);
    else
        return false;
    return true;
}

/* the same weights, as a softmax would show them: O(length²), on request only */
static eg_tensor *shown(const terms *t, eg_tensor *q, eg_tensor *k, bool is_causal, int64_t seen,
                        const char *axes)
{
    char spec[SPEC], all[TERM + 3];
    snprintf(all, sizeof all, "%s%c%c", t->front, t->i, t->j);
    snprintf(spec, sizeof spec, "%s,%s->%s", t->q, t->k, all);
    eg_tensor *w = eg_einsum(spec, q, k);
    w = is_causal ? eg_tril(w, seen) : w;
    snprintf(spec, sizeof spec, "%s,%s%c", all, t->front, t->i);
    w = linear_share(w, eg_sum("... [j]", w), spec);
    snprintf(spec, sizeof spec, "%s->%s", all, axes);
    return axes ? eg_einsum(spec, w) : w;
}

eg_tensor *eg_linear_attention_with(const eg_attention_args *given)
{
    OPTIONS(eg_attention_args, o, given);
    eg_ctx *cx = eg_context(o->q);
    terms t;
    bool is_causal;
    char spec[SPEC];
    if (!eg_ok(o->q) || !eg_ok(o->k) || !eg_ok(o->v))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: an operand is NULL");
    if (!read_spec(cx, o->spec, &t) || linear_refused(cx, o, &t, &is_causal))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: %s", o->spec);
    if (eg_rank(o->q) != (int)strlen(t.q) || eg_rank(o->k) != (int)strlen(t.k) ||
        eg_rank(o->v) != (int)strlen(t.v))
        return eg_einsum(o->spec, o->q, o->k, o->v); /* which points at the operand */
    int64_t queries = eg_dim(o->q, linear_axis_of(t.q, t.i)),
            keys = eg_dim(o->k, linear_axis_of(t.k, t.j)), seen = is_causal ? o->offset : 0;
    if (is_causal && (seen < 0 || keys != queries + seen))
        return eg_fail_as(
            cx, EG_ERROR_NOTATION,
            "linear_attention: a causal mask needs as many keys as queries and .offset make, "
            "but '%c' is %lld and '%c' is %lld with %lld before",
            t.j, (long long)keys, t.i, (long long)queries, (long long)seen);
    eg_tensor *q = feature(o->scale && o->scale != EG_OFF ? eg_scale(o->q, o->scale) : o->q),
              *k = o->k, *v = o->v;
    k = feature(o->keep.x ? linear_kept(t.k, k, &o->keep) : k);
    if (o->keep.x) {
        snprintf(spec, sizeof spec, "%s,%.60s", t.k, o->keep.axes ? o->keep.axes : "");
        k = eg_on(spec, left_out, k, eg_cast(o->keep.x, EG_BOOL));
        v = linear_kept(t.v, v, &o->keep);
    }
    int ve = linear_axis_of(t.v, t.e), ye = linear_axis_of(t.y, t.e);
    v = eg_concat_axis(ve, v, eg_ones_like(eg_slice_axis(o->v, ve, 0, 1, 1)));
    eg_tensor *y = is_causal ? causal(&t, q, k, v, seen) : eg_einsum(o->spec, q, k, v);
    eg_tensor *total = eg_select_axis(y, ye, -1);
    char sum[TERM];
    linear_without(t.y, t.e, 0, sum);
    snprintf(spec, sizeof spec, "%s,%s", t.y, sum);
    if (o->weights) *o->weights = shown(&t, q, k, is_causal, seen, o->weights_axes);
    if (o->dropped) *o->dropped = shown(&t, q, k, is_causal, seen, o->weights_axes);
    return linear_share(eg_slice_axis(y, ye, 0, -1, 1), total, spec);
}
