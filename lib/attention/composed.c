/* composed.c: attention composed of public operations: einsum, softmax, einsum. It says what
 * attention means; the fused rows have their second derivatives from here. */
#include "attention/attention.h"
#include <math.h>
#include <string.h>

eg_tensor *eg__attend_aligned(const eg_attending *a, int term, eg_tensor *x)
{
    int64_t dim[EG_RANK_MAX];
    for (int s = 0; s < a->scores; s++) dim[s] = a->size[a->score[s]];
    return eg__align_labels(x, a->rank[term], a->label[term], a->scores, a->score, dim);
}
/* What may be seen, as up to two masks over the scores; −1 after an error. */
static int masks(const eg_attending *a, eg_tensor *const *x, eg_tensor **mask)
{
    int n = 0;
    int64_t size[EG_RANK_MAX];
    eg_ctx *cx = x[EG_ATT_Q]->cx;
    for (int s = 0; s < a->scores; s++) size[s] = a->size[a->score[s]];
    if (a->masked)
        mask[n++] =
            eg__where_tensor(cx, eg__attending_where(a), a->scores, size, a->moved, a->offset);
    eg_tensor *keep[] = { x[EG_ATT_KEEP], x[EG_ATT_KEEP2], NULL }, *all = NULL,
              *bias = x[EG_ATT_BIAS];
    if (a->careful && bias)
        keep[2] = eg_ne(bias, eg_full_n(cx, (eg_dtype)bias->dtype, -INFINITY, 0, NULL));
    for (int k = 0; k < 3; k++) {
        if (!keep[k]) continue;
        if (!eg_ok(keep[k])) return -1;
        keep[k] = eg__attend_aligned(a, k < 2 ? EG_ATT_KEEP + k : EG_ATT_BIAS, keep[k]);
        all = all ? eg_and(all, keep[k]) : keep[k];
    }
    if (all) mask[n++] = all;
    for (int k = 0; k < n; k++)
        if (!eg_ok(mask[k])) return -1;
    return n;
}
/* The einsum of two terms, of the scores u where one < 0; x: by term */
static eg_tensor *composed_product(const eg_attending *a, eg_tensor *const *x, int one,
                                   eg_tensor *u, int two, eg_tensor *v, int rank,
                                   const uint16_t *out)
{
    const uint16_t *const label[] = { one < 0 ? a->score : a->label[one], a->label[two] };
    if (!a->careful) return eg__einsum(2, (eg_tensor *[]){ u, v }, label, rank, out);
    eg_tensor *mask[2];
    const int n = eg_ok(u) && eg_ok(v) ? masks(a, x, mask) : -1;
    if (n < 0) return eg__poison(x[EG_ATT_Q]->cx);
    return eg__masked_product(
        a, n, mask, &(eg_labelled_tensor){ u, one < 0 ? a->scores : a->rank[one], label[0] },
        &(eg_labelled_tensor){ v, a->rank[two], label[1] }, rank, out);
}
/* |i + offset − j| over the two axes that count for the slopes */
static eg_tensor *composed_distance(const eg_attending *a, const eg_tensor *like)
{
    const double at = (double)a->offset, queries = (double)a->size[a->here],
                 keys = (double)a->size[a->there];
    eg_tensor *i = eg_arange(like->cx, EG_F64, at, at + queries, 1),
              *j = eg_arange(like->cx, EG_F64, 0, keys, 1);
    return eg_cast(eg_abs(eg_sub(eg_unsqueeze(i, 1), j)), (eg_dtype)like->dtype);
}
eg_tensor *eg__attend_scores(const eg_attending *a, eg_tensor *const *x, double *left)
{
    *left = !x[EG_ATT_BIAS] && !x[EG_ATT_SLOPES] && a->scale > 0 ? a->scale : 1;
    eg_tensor *q = *left == a->scale ? x[EG_ATT_Q] : eg_scale(x[EG_ATT_Q], a->scale);
    if (!eg_ok(q) || !eg_ok(x[EG_ATT_K])) return q;
    eg_tensor *s = composed_product(a, x, EG_ATT_Q, q, EG_ATT_K, x[EG_ATT_K], a->scores, a->score);
    if (x[EG_ATT_BIAS]) s = eg_add(s, eg__attend_aligned(a, EG_ATT_BIAS, x[EG_ATT_BIAS]));
    if (!x[EG_ATT_SLOPES] || !eg_ok(s)) return s;
    int64_t dim[EG_RANK_MAX];
    for (int k = 0; k < a->scores; k++) dim[k] = a->size[a->score[k]];
    eg_tensor *far = eg__align_labels(composed_distance(a, s), 2, (uint16_t[]){ a->here, a->there },
                                      a->scores, a->score, dim);
    return eg_sub(s, eg_mul(eg__attend_aligned(a, EG_ATT_SLOPES, x[EG_ATT_SLOPES]), far));
}

eg_tensor *eg__attend_weights(const eg_attending *a, eg_tensor *const *x, eg_tensor *scores,
                              double left)
{
    eg_tensor *operand[3] = { scores };
    const int n = eg_ok(scores) ? masks(a, x, operand + 1) : -1;
    return n < 0 ? scores ? eg__poison(scores->cx) : NULL
                 : eg__softmax_kept(operand, n, a->inner, left);
}
eg_tensor *eg__attend_values(const eg_attending *a, eg_tensor *const *x, eg_tensor *weights)
{
    if (!eg_ok(weights) || !eg_ok(x[EG_ATT_V])) return weights;
    return composed_product(a, x, -1, weights, EG_ATT_V, x[EG_ATT_V], a->rank[EG_ATT_Y],
                            a->label[EG_ATT_Y]);
}
eg_tensor *eg__attend_lse(const eg_attending *a, eg_tensor *const *x, eg_tensor *s)
{
    eg_tensor *mask[2];
    const int n = eg_ok(s) ? masks(a, x, mask) : -1;
    if (n < 0) return s ? eg__poison(s->cx) : NULL;
    for (int k = 0; k < n; k++)
        s = eg_where(mask[k], s, eg_full_n(s->cx, (eg_dtype)s->dtype, -INFINITY, 0, NULL));
    return eg__logsumexp_last(s, a->inner);
}

/* dS = P (m g vᵀ − D), D = Σ P m g vᵀ;  of the log-sum-exp dS = P g */
void eg__attend_gradient(const eg_attending *a, eg_tensor *const *x, eg_tensor *g, eg_tensor **d)
{
    const bool values = a->rank[EG_ATT_V] >= 0;
    double left;
    if (!a->careful && eg_ok(g) && eg__attend_careful(a, x, g)) {
        eg_attending *careful = eg__alloc(g->cx, eg__attending_bytes(a));
        for (int t = 0; t <= EG_ATT_SLOPES; t++) d[t] = eg__poison(g->cx);
        if (!careful) return;
        memcpy(careful, a, eg__attending_bytes(a));
        careful->careful = true;
        a = careful;
    }
    eg_tensor *s = eg__attend_scores(a, x, &left), *w = eg__attend_weights(a, x, s, left), *ds;
    for (int t = 0; t <= EG_ATT_SLOPES; t++) d[t] = w;
    if (!eg_ok(w) || !eg_ok(g)) return;
    if (values) {
        ds = composed_product(a, x, EG_ATT_Y, g, EG_ATT_V, x[EG_ATT_V], a->scores, a->score);
        if (a->dropping) ds = eg__drop(&a->drop, ds);
        ds = eg__softmax_slope(w, ds, a->inner);
        eg_tensor *dropped = a->dropping ? eg__drop(&a->drop, w) : w;
        d[EG_ATT_V] = eg_ok(dropped) ? composed_product(a, x, -1, dropped, EG_ATT_Y, g,
                                                        a->rank[EG_ATT_V], a->label[EG_ATT_V])
                                     : dropped;
    } else
        ds = eg_mul(w, eg__attend_aligned(a, EG_ATT_Y, g));
    for (int t = 0; t <= EG_ATT_SLOPES; t++)
        if (t != EG_ATT_V) d[t] = ds;
    if (!eg_ok(ds)) return;
    eg_tensor *scaled = eg_scale(ds, a->scale);
    d[EG_ATT_Q] = composed_product(a, x, -1, scaled, EG_ATT_K, x[EG_ATT_K], a->rank[EG_ATT_Q],
                                   a->label[EG_ATT_Q]);
    d[EG_ATT_K] = composed_product(a, x, -1, scaled, EG_ATT_Q, x[EG_ATT_Q], a->rank[EG_ATT_K],
                                   a->label[EG_ATT_K]);
    if (x[EG_ATT_BIAS])
        d[EG_ATT_BIAS] = eg__einsum(1, &ds, (const uint16_t *[]){ a->score }, a->rank[EG_ATT_BIAS],
                                    a->label[EG_ATT_BIAS]);
    if (!x[EG_ATT_SLOPES]) return;
    eg_tensor *far = eg_neg(composed_distance(a, ds));
    const uint16_t *const label[] = { a->score, (uint16_t[]){ a->here, a->there } };
    d[EG_ATT_SLOPES] = eg_ok(far) ? eg__einsum(2, (eg_tensor *[]){ ds, far }, label,
                                               a->rank[EG_ATT_SLOPES], a->label[EG_ATT_SLOPES])
                                  : far;
}
