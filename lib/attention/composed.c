/* composed.c: attention composed of public operations: einsum, softmax, einsum. It says what
 * attention means; the fused rows have their second derivatives from here. */
#include "attention/attention.h"
#include <math.h>
#include <string.h>

/* x, of a term's axes, over the scores */
static eg_tensor *composed_aligned(const eg_attention_plan *a, int term, eg_tensor *x)
{
    int64_t dim[EG_RANK_MAX];
    for (int s = 0; s < a->scores; s++) dim[s] = a->size[a->score[s]];
    return eg__align_labels(x, a->rank[term], a->label[term], a->scores, a->score, dim);
}
/* The predicate is one mask; .keep, .lengths and, if the plan is careful, −inf in the bias are
 * together another one. */
eg_attention_masks eg__attend_masks(const eg_attention_plan *a, eg_tensor *const *x)
{
    static const int term[] = { EG_TERM_KEEP, EG_TERM_LENGTHS, EG_TERM_BIAS };
    eg_attention_masks m = { 0 };
    int64_t size[EG_RANK_MAX];
    eg_ctx *cx = x[EG_TERM_Q]->cx;
    for (int s = 0; s < a->scores; s++) size[s] = a->size[a->score[s]];
    if (a->masked)
        m.mask[m.n++] =
            eg__where_tensor(cx, eg__attention_where(a), a->scores, size, a->moved, a->offset);
    eg_tensor *keep[] = { x[EG_TERM_KEEP], x[EG_TERM_LENGTHS], NULL }, *all = NULL,
              *bias = x[EG_TERM_BIAS];
    if (a->careful && bias)
        keep[2] = eg_ne(bias, eg_full_n(cx, (eg_dtype)bias->dtype, -INFINITY, 0, NULL));
    for (int k = 0; k < 3; k++) {
        if (!keep[k]) continue;
        if (!eg_ok(keep[k])) return (eg_attention_masks){ .n = -1 };
        keep[k] = composed_aligned(a, term[k], keep[k]);
        all = all ? eg_and(all, keep[k]) : keep[k];
    }
    if (all) m.mask[m.n++] = all;
    for (int k = 0; k < m.n; k++)
        if (!eg_ok(m.mask[k])) return (eg_attention_masks){ .n = -1 };
    return m;
}
/* The einsum of two terms, of the scores u where one < 0. */
static eg_tensor *composed_product(const eg_attention_plan *a, const eg_attention_masks *m,
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
/* |i + offset − j| over the two axes that count for the slopes */
static eg_tensor *composed_distance(const eg_attention_plan *a, const eg_tensor *like)
{
    const double at = (double)a->offset, queries = (double)a->size[a->slope_query],
                 keys = (double)a->size[a->slope_key];
    eg_tensor *i = eg_arange(like->cx, EG_F64, at, at + queries, 1),
              *j = eg_arange(like->cx, EG_F64, 0, keys, 1);
    return eg_cast(eg_abs(eg_sub(eg_unsqueeze(i, 1), j)), (eg_dtype)like->dtype);
}
eg_tensor *eg__attend_scores(const eg_attention_plan *a, const eg_attention_masks *m,
                             eg_tensor *const *x, double *left)
{
    *left = !x[EG_TERM_BIAS] && !x[EG_TERM_SLOPES] && a->scale > 0 ? a->scale : 1;
    eg_tensor *q = *left == a->scale ? x[EG_TERM_Q] : eg_scale(x[EG_TERM_Q], a->scale);
    if (!eg_ok(q) || !eg_ok(x[EG_TERM_K])) return q;
    eg_tensor *s = composed_product(a, m, a->careful, EG_TERM_Q, q, EG_TERM_K, x[EG_TERM_K],
                                    a->scores, a->score);
    if (x[EG_TERM_BIAS]) s = eg_add(s, composed_aligned(a, EG_TERM_BIAS, x[EG_TERM_BIAS]));
    if (!x[EG_TERM_SLOPES] || !eg_ok(s)) return s;
    int64_t dim[EG_RANK_MAX];
    for (int k = 0; k < a->scores; k++) dim[k] = a->size[a->score[k]];
    eg_tensor *far =
        eg__align_labels(composed_distance(a, s), 2, (uint16_t[]){ a->slope_query, a->slope_key },
                         a->scores, a->score, dim);
    return eg_sub(s, eg_mul(composed_aligned(a, EG_TERM_SLOPES, x[EG_TERM_SLOPES]), far));
}

eg_tensor *eg__attend_weights(const eg_attention_plan *a, const eg_attention_masks *m,
                              eg_tensor *scores, double left)
{
    eg_tensor *operand[3] = { scores, m->mask[0], m->mask[1] };
    return eg_ok(scores) ? eg__softmax_kept(operand, m->n, a->inner, left) : scores;
}
/* Beside masks this is a product of its own even where all numbers are finite now: the cotangent,
 * which comes later, may not be. */
eg_tensor *eg__attend_values(const eg_attention_plan *a, const eg_attention_masks *m,
                             eg_tensor *const *x, eg_tensor *weights)
{
    const bool masked = a->careful || (m->n > 0 && eg__recording(x[EG_TERM_V]->cx));
    return composed_product(a, m, masked, -1, weights, EG_TERM_V, x[EG_TERM_V], a->rank[EG_TERM_Y],
                            a->label[EG_TERM_Y]);
}
eg_tensor *eg__attend_lse(const eg_attention_plan *a, const eg_attention_masks *m, eg_tensor *s)
{
    for (int k = 0; eg_ok(s) && k < m->n; k++)
        s = eg_where(m->mask[k], s, eg_full_n(s->cx, (eg_dtype)s->dtype, -INFINITY, 0, NULL));
    return eg_ok(s) ? eg__logsumexp_last(s, a->inner) : s;
}

/* dS = P (m g vᵀ − D), D = Σ P m g vᵀ, m: dropout's mask times its factor;  of the log-sum-exp
 * dS = P g */
void eg__attend_gradient(const eg_attention_plan *a, eg_tensor *const *x, eg_tensor *g,
                         eg_tensor **d)
{
    const bool values = a->rank[EG_TERM_V] >= 0;
    double left = 1;
    if (!a->careful && eg_ok(g) && eg__attend_careful(a, x, g)) {
        eg_attention_plan *careful = eg__alloc(g->cx, eg__attention_bytes(a));
        for (int t = 0; t <= EG_TERM_SLOPES; t++) d[t] = eg__poison(g->cx);
        if (!careful) return;
        memcpy(careful, a, eg__attention_bytes(a));
        careful->careful = true;
        a = careful;
    }
    const eg_attention_masks m = eg__attend_masks(a, x);
    eg_tensor *s = m.n < 0 ? eg__poison(x[0]->cx) : eg__attend_scores(a, &m, x, &left),
              *w = eg__attend_weights(a, &m, s, left), *ds;
    for (int t = 0; t <= EG_TERM_SLOPES; t++) d[t] = w;
    if (!eg_ok(w) || !eg_ok(g)) return;
    if (values) {
        ds = composed_product(a, &m, a->careful, EG_TERM_Y, g, EG_TERM_V, x[EG_TERM_V], a->scores,
                              a->score);
        if (a->dropping) ds = eg__drop(&a->drop, ds);
        ds = eg__softmax_slope(w, ds, a->inner);
        eg_tensor *dropped = a->dropping ? eg__drop(&a->drop, w) : w;
        d[EG_TERM_V] = eg_ok(dropped) ? composed_product(a, &m, a->careful, -1, dropped, EG_TERM_Y,
                                                         g, a->rank[EG_TERM_V], a->label[EG_TERM_V])
                                      : dropped;
    } else
        ds = eg_mul(w, composed_aligned(a, EG_TERM_Y, g));
    for (int t = 0; t <= EG_TERM_SLOPES; t++)
        if (t != EG_TERM_V) d[t] = ds;
    if (!eg_ok(ds)) return;
    eg_tensor *scaled = eg_scale(ds, a->scale);
    d[EG_TERM_Q] = composed_product(a, &m, a->careful, -1, scaled, EG_TERM_K, x[EG_TERM_K],
                                    a->rank[EG_TERM_Q], a->label[EG_TERM_Q]);
    d[EG_TERM_K] = composed_product(a, &m, a->careful, -1, scaled, EG_TERM_Q, x[EG_TERM_Q],
                                    a->rank[EG_TERM_K], a->label[EG_TERM_K]);
    if (x[EG_TERM_BIAS])
        d[EG_TERM_BIAS] = eg__einsum(1, &ds, (const uint16_t *[]){ a->score },
                                     a->rank[EG_TERM_BIAS], a->label[EG_TERM_BIAS]);
    if (!x[EG_TERM_SLOPES]) return;
    eg_tensor *far = eg_neg(composed_distance(a, ds));
    const uint16_t *const label[] = { a->score, (uint16_t[]){ a->slope_query, a->slope_key } };
    d[EG_TERM_SLOPES] = eg_ok(far) ? eg__einsum(2, (eg_tensor *[]){ ds, far }, label,
                                                a->rank[EG_TERM_SLOPES], a->label[EG_TERM_SLOPES])
                                   : far;
}
