/* unfused.c: attention composed of recorded operations: einsum, the expression of the score,
 * softmax, einsum. This form defines the result. Second derivatives and tangents of the fused
 * form are computed by it too. */
#include "attention/attention.h"
#include <math.h>
#include <string.h>

/* Returns x, which has the axes of a term, as a view with the first n axes of the scores. */
static eg_tensor *unfused_aligned(const eg_attention_plan *a, int term, eg_tensor *x, int n)
{
    int64_t dim[EG_RANK_MAX];
    eg__score_sizes(a, dim);
    return eg__align_labels(x, a->rank[term], a->label[term], n, a->score, dim);
}
eg_attention_masks eg__attend_masks(const eg_attention_plan *a, eg_tensor *const *x)
{
    int64_t size[EG_RANK_MAX];
    if (!eg__attention_where(a)) return (eg_attention_masks){ 0 };
    eg__score_sizes(a, size);
    eg_composed c = { .cx = eg__here(x[EG_TERM_Q]->cx),
                      .e = eg__attention_where(a),
                      .letters = a->scores,
                      .size = size,
                      .floats = (eg_dtype)x[EG_TERM_Q]->dtype,
                      .count = a->tensors,
                      .x = x + EG_TERMS };
    eg_attention_masks m = { 1, { eg__composed(&c) } };
    if (!eg_ok(m.mask[0])) m.n = -1;
    return m;
}
/* Returns the einsum of two terms. If `one` is negative, u has the axes of the scores. */
static eg_tensor *unfused_product(const eg_attention_plan *a, const eg_attention_masks *m,
                                  bool masked, int one, eg_tensor *u, int two, eg_tensor *v,
                                  int rank, const uint16_t *out)
{
    const uint16_t *const label[] = { one < 0 ? a->score : a->label[one], a->label[two] };
    if (!eg_ok(u) || !eg_ok(v)) return eg_ok(u) ? v : u;
    if (!masked) return eg__einsum(2, (eg_tensor *[]){ u, v }, label, rank, out);
    return eg__masked_product(
        a, m, &(eg_labelled_tensor){ u, one < 0 ? a->scores : a->rank[one], label[0] },
        &(eg_labelled_tensor){ v, a->rank[two], label[1] }, rank, out);
}

/* Returns scale q·k / left. */
static eg_tensor *unfused_dots(const eg_attention_plan *a, const eg_attention_masks *m,
                               eg_tensor *const *x, double left)
{
    eg_tensor *q = left == a->scale ? x[EG_TERM_Q] : eg_scale(x[EG_TERM_Q], a->scale);
    return unfused_product(a, m, m && a->careful, EG_TERM_Q, q, EG_TERM_K, x[EG_TERM_K], a->scores,
                           a->score);
}
/* Prepares the call that evaluates the expression of the score with s = scale q·k. False after
 * an error. */
static bool unfused_formula(eg_expr_call *f, const eg_attention_plan *a,
                            const eg_attention_masks *m, eg_tensor *const *x, eg_tensor *s)
{
    int64_t size[EG_RANK_MAX];
    eg__score_sizes(a, size);
    return eg_ok(s) && eg__expr_call(f, s->cx, eg__attention_score(a), a->scores, size, a->tensors,
                                     x + EG_TERMS, s, m && m->n ? m->mask[0] : NULL);
}
eg_tensor *eg__attend_scores(const eg_attention_plan *a, const eg_attention_masks *m,
                             eg_tensor *const *x, double *left)
{
    eg_expr_call f;
    *left = !a->score_bytes && a->scale > 0 ? a->scale : 1;
    eg_tensor *s = unfused_dots(a, m, x, *left);
    if (!a->score_bytes || !eg_ok(s)) return s;
    return unfused_formula(&f, a, m, x, s) ? eg__expr_value(&f) : eg__poison(s->cx);
}

/* -- the softmax: the sink is one more key, after the others, and always allowed -------------- */
/* Returns x, which is over the scores, with the keys merged to one axis and the row's element of
 * `last` appended to it. */
static eg_tensor *with_last_key(const eg_attention_plan *a, eg_tensor *x, eg_tensor *last)
{
    const int rows = a->scores - a->inner;
    int64_t dim[EG_RANK_MAX];
    eg__score_sizes(a, dim);
    for (int k = rows + 1; k < a->scores; k++) dim[rows] *= dim[k];
    x = eg_reshape_n(x, rows + 1, dim);
    dim[rows] = 1;
    last = eg_reshape_n(eg_expand_n(last, rows, dim), rows + 1, dim);
    return eg_concat_axis_n(rows, 2, (eg_tensor *[]){ x, last });
}
/* Returns *left scores, with the sink appended if there is one. Sets *mask to their mask (NULL
 * if there is none). */
static eg_tensor *unfused_keys(const eg_attention_plan *a, const eg_attention_masks *m,
                               eg_tensor *const *x, eg_tensor *scores, double left,
                               eg_tensor **mask)
{
    const int rows = a->scores - a->inner;
    *mask = m->n ? m->mask[0] : NULL;
    if (!x[EG_TERM_SINK]) return scores;
    if (*mask) *mask = with_last_key(a, *mask, eg_full_n(scores->cx, EG_BOOL, 1, 0, NULL));
    return with_last_key(a, left == 1 ? scores : eg_scale(scores, left),
                         unfused_aligned(a, EG_TERM_SINK, x[EG_TERM_SINK], rows));
}
/* Returns the weights. Sets *of_sink (if not NULL) to the weight of the sink in each row. */
static eg_tensor *unfused_weights(const eg_attention_plan *a, const eg_attention_masks *m,
                                  eg_tensor *const *x, eg_tensor *scores, double left,
                                  eg_tensor **of_sink)
{
    const int rows = a->scores - a->inner;
    int64_t dim[EG_RANK_MAX];
    eg_tensor *operand[2], *s = unfused_keys(a, m, x, scores, left, &operand[1]);
    operand[0] = s;
    if (!x[EG_TERM_SINK]) return eg__softmax_kept(operand, m->n, a->inner, left);
    eg_tensor *w = eg_ok(s) ? eg__softmax_kept(operand, m->n, 1, 1) : s;
    if (!eg_ok(w)) return w;
    const int64_t keys = w->dim[rows] - 1;
    if (of_sink) *of_sink = eg_select_axis(w, rows, keys);
    eg__score_sizes(a, dim);
    return eg_reshape_n(eg_slice_axis(w, rows, 0, keys, 1), a->scores, dim);
}
eg_tensor *eg__attend_weights(const eg_attention_plan *a, const eg_attention_masks *m,
                              eg_tensor *const *x, eg_tensor *scores, double left)
{
    if (!eg_ok(scores)) return scores;
    if (!a->no_softmax) return unfused_weights(a, m, x, scores, left, NULL);
    eg_tensor *w = left == 1 ? scores : eg_scale(scores, left);
    return m->n && eg_ok(w) ? eg_where(m->mask[0], w, eg__zero_like(w)) : w;
}
/* If a pair may be forbidden, this product is a separate node even if all elements are finite
 * now: the cotangent, which is not known yet, may have elements that are not. */
eg_tensor *eg__attend_values(const eg_attention_plan *a, const eg_attention_masks *m,
                             eg_tensor *const *x, eg_tensor *weights)
{
    const bool masked =
        a->careful || (eg__attention_may_forbid(a) && eg__recording(x[EG_TERM_V]->cx));
    return unfused_product(a, m, masked, -1, weights, EG_TERM_V, x[EG_TERM_V], a->rank[EG_TERM_Y],
                           a->label[EG_TERM_Y]);
}
eg_tensor *eg__attend_lse(const eg_attention_plan *a, const eg_attention_masks *m,
                          eg_tensor *const *x, eg_tensor *scores)
{
    eg_tensor *mask, *s = eg_ok(scores) ? unfused_keys(a, m, x, scores, 1, &mask) : scores;
    if (eg_ok(s) && m->n)
        s = eg_where(mask, s, eg_full_n(s->cx, (eg_dtype)s->dtype, -INFINITY, 0, NULL));
    return eg_ok(s) ? eg__logsumexp_last(s, x[EG_TERM_SINK] ? 1 : a->inner) : s;
}
eg_tensor *eg__attend_max(const eg_attention_plan *a, const eg_attention_masks *m,
                          eg_tensor *const *x, eg_tensor *scores)
{
    const int rows = a->scores - a->inner;
    int64_t dim[EG_RANK_MAX], all[2] = { 1, 1 };
    eg_tensor *mask, *s = eg_ok(scores) ? unfused_keys(a, m, x, scores, 1, &mask) : scores;
    eg__score_sizes(a, dim);
    for (int k = 0; k < a->scores; k++) all[k >= rows] *= dim[k];
    if (!eg_ok(s)) return s;
    eg_tensor *low = eg_full_n(s->cx, (eg_dtype)s->dtype, -INFINITY, 0, NULL);
    if (!all[1]) return eg_detach(eg_expand_n(low, rows, dim));
    s = m->n ? eg_where(mask, eg_detach(s), low) : eg_detach(s);
    return eg_reshape_n(eg_max("i [j]", eg_reshape_n(s, 2, all)), rows, dim);
}
/* Returns `rows`, which has one element per row, with axes of size 1 appended in place of the
 * keys. */
static eg_tensor *over_keys(const eg_attention_plan *a, eg_tensor *rows)
{
    for (int k = 0; k < a->inner && eg_ok(rows); k++) rows = eg_unsqueeze(rows, rows->rank);
    return rows;
}

/* Sets d[EG_TERM_SINK] = Σ P_z (g_lse − D), with the sink's weight P_z and D = Σ_j P dP; either may
 * be NULL. Where P_z is 0, D is taken to be 0. */
static void sink_gradient(const eg_attention_plan *a, eg_tensor *of_sink, eg_tensor *mean,
                          eg_tensor *g_lse, eg_tensor **d)
{
    eg_tensor *dz = NULL, *zero = eg__zero_like(of_sink);
    if (mean) dz = eg_neg(eg_where(eg_eq(of_sink, zero), zero, eg_mul(of_sink, mean)));
    if (g_lse) dz = dz ? eg_add(dz, eg_mul(of_sink, g_lse)) : eg_mul(of_sink, g_lse);
    d[EG_TERM_SINK] = eg_ok(dz) ? eg__einsum(1, &dz, (const uint16_t *[]){ a->score },
                                             a->rank[EG_TERM_SINK], a->label[EG_TERM_SINK])
                                : dz;
}
/* Returns the cotangent dP of the weights: m g vᵀ, where m is dropout's mask times its factor. Also
 * sets the cotangent of the value. */
static eg_tensor *weight_gradient(const eg_attention_plan *a, const eg_attention_masks *m,
                                  eg_tensor *const *x, eg_tensor *w, eg_tensor *g, eg_tensor **d)
{
    eg_tensor *dp = unfused_product(a, m, a->careful, EG_TERM_Y, g, EG_TERM_V, x[EG_TERM_V],
                                    a->scores, a->score);
    if (a->dropping) dp = eg__drop(&a->drop, dp);
    eg_tensor *dropped = a->dropping ? eg__drop(&a->drop, w) : w;
    d[EG_TERM_V] = eg_ok(dropped) ? unfused_product(a, m, a->careful, -1, dropped, EG_TERM_Y, g,
                                                    a->rank[EG_TERM_V], a->label[EG_TERM_V])
                                  : dropped;
    return dp;
}
/* Returns the cotangent dS of the scores: P (dP − D) + P g_lse with D = Σ P dP; dP without a
 * softmax. Also sets the cotangents of the value and the sink, whose weight is of_sink. */
static eg_tensor *score_gradient(const eg_attention_plan *a, const eg_attention_masks *m,
                                 eg_tensor *const *x, eg_tensor *w, eg_tensor *of_sink,
                                 eg_tensor *g, eg_tensor *g_lse, eg_tensor **d)
{
    eg_tensor *ds = NULL, *mean = NULL;
    if (g) {
        eg_tensor *dp = weight_gradient(a, m, x, w, g, d);
        if (!eg_ok(dp)) return dp;
        if (a->no_softmax) return m->n ? eg_where(m->mask[0], dp, eg__zero_like(dp)) : dp;
        if (x[EG_TERM_SINK]) mean = eg__sum_last(eg_mul(w, dp), a->inner);
        ds = eg__softmax_slope(w, dp, a->inner);
    }
    if (g_lse) {
        eg_tensor *more = eg_mul(w, over_keys(a, g_lse));
        ds = ds ? eg_add(ds, more) : more;
    }
    if (x[EG_TERM_SINK] && eg_ok(ds)) sink_gradient(a, of_sink, mean, g_lse, d);
    return ds;
}
void eg__attend_gradient(const eg_attention_plan *a, eg_tensor *const *x, eg_tensor *g,
                         eg_tensor *g_lse, eg_tensor **d)
{
    double left = 1;
    eg_expr_call f;
    eg_tensor *part[EG_TENSORS_MAX + 1];
    eg_ctx *cx = eg__here(x[EG_TERM_Q]->cx);
    for (int k = 0; k < EG_ATTENTION_OPERANDS; k++) d[k] = NULL;
    d[EG_TERM_Q] = eg__poison(cx);
    if ((g && !eg_ok(g)) || (g_lse && !eg_ok(g_lse))) return;
    if (!(a = eg__attention_for_nonfinite(a, x, g, g_lse))) return;
    const eg_attention_masks m = eg__attend_masks(a, x);
    if (m.n < 0) return;
    if (!a->score_bytes && a->scale > 0) left = a->scale;
    eg_tensor *s = unfused_dots(a, &m, x, left);
    if (a->score_bytes && !unfused_formula(&f, a, &m, x, s)) return;
    if (a->score_bytes) s = eg__expr_value(&f);
    eg_tensor *of_sink = NULL, *ds,
              *w = a->no_softmax || !eg_ok(s) ? eg__attend_weights(a, &m, x, s, left)
                                              : unfused_weights(a, &m, x, s, left, &of_sink);
    if (!eg_ok(w)) return;
    ds = score_gradient(a, &m, x, w, of_sink, g, g_lse, d);
    if (!eg_ok(ds)) return;
    if (a->score_bytes) {
        if (!eg__expr_slopes(&f, ds, part)) return;
        for (int t = 0; t < a->tensors; t++) d[EG_TERMS + t] = part[t];
        ds = part[a->tensors];
    }
    eg_tensor *scaled = eg_scale(ds, a->scale);
    d[EG_TERM_Q] = unfused_product(a, &m, a->careful, -1, scaled, EG_TERM_K, x[EG_TERM_K],
                                   a->rank[EG_TERM_Q], a->label[EG_TERM_Q]);
    d[EG_TERM_K] = unfused_product(a, &m, a->careful, -1, scaled, EG_TERM_Q, x[EG_TERM_Q],
                                   a->rank[EG_TERM_K], a->label[EG_TERM_K]);
}
