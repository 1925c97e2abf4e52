/* attend.c: attention composed of public operations: einsum, softmax, einsum. It says what attention means; the fused rows have their
 * second derivatives from here. */
#include "attention/attention.h"
#include <math.h>

/* The einsum of two terms; one < 0: x are scores */
static eg_tensor *product(const eg_attending *a, int one, eg_tensor *x, int two, eg_tensor *y, int rank, const uint16_t *out)
{
    const uint16_t *const label[] = { one < 0 ? a->score : a->label[one], a->label[two] };
    return eg__einsum(2, (eg_tensor *[]){ x, y }, label, rank, out);
}
eg_tensor *eg__attend_aligned(const eg_attending *a, int term, eg_tensor *x)
{
    int64_t dim[EG_RANK_MAX];
    for (int s = 0; s < a->scores; s++) dim[s] = a->size[a->score[s]];
    return eg__align_labels(x, a->rank[term], a->label[term], a->scores, a->score, dim);
}
/* |i + offset − j| over the two axes that count for the slopes */
static eg_tensor *distance(const eg_attending *a, const eg_tensor *like)
{
    const double at = (double)a->offset, queries = (double)a->size[a->here], keys = (double)a->size[a->there];
    eg_tensor *i = eg_arange(like->cx, EG_F64, at, at + queries, 1), *j = eg_arange(like->cx, EG_F64, 0, keys, 1);
    return eg_cast(eg_abs(eg_sub(eg_unsqueeze(i, 1), j)), (eg_dtype)like->dtype);
}
eg_tensor *eg__attend_scores(const eg_attending *a, eg_tensor *const *x, double *left)
{
    *left = !x[EG_ATT_BIAS] && !x[EG_ATT_SLOPES] && a->scale > 0 ? a->scale : 1;
    eg_tensor *q = *left == a->scale ? x[EG_ATT_Q] : eg_scale(x[EG_ATT_Q], a->scale);
    if (!eg_ok(q) || !eg_ok(x[EG_ATT_K])) return q;
    eg_tensor *s = product(a, EG_ATT_Q, q, EG_ATT_K, x[EG_ATT_K], a->scores, a->score);
    if (x[EG_ATT_BIAS]) s = eg_add(s, eg__attend_aligned(a, EG_ATT_BIAS, x[EG_ATT_BIAS]));
    if (!x[EG_ATT_SLOPES] || !eg_ok(s)) return s;
    int64_t dim[EG_RANK_MAX];
    for (int k = 0; k < a->scores; k++) dim[k] = a->size[a->score[k]];
    eg_tensor *far = eg__align_labels(distance(a, s), 2, (uint16_t[]){ a->here, a->there }, a->scores, a->score, dim);
    return eg_sub(s, eg_mul(eg__attend_aligned(a, EG_ATT_SLOPES, x[EG_ATT_SLOPES]), far));
}

/* What may be seen, as up to two masks over the scores; −1 after an error. */
static int masks(const eg_attending *a, eg_tensor *const *x, eg_tensor **mask)
{
    int n = 0;
    int64_t size[EG_RANK_MAX];
    eg_ctx *cx = x[EG_ATT_Q]->cx;
    for (int s = 0; s < a->scores; s++) size[s] = a->size[a->score[s]];
    if (a->masked) mask[n++] = eg__where_tensor(cx, eg__attending_where(a), a->scores, size, a->moved, a->offset);
    eg_tensor *keep[2] = { x[EG_ATT_KEEP], x[EG_ATT_KEEP2] };
    for (int k = 0; k < 2; k++) if (keep[k]) keep[k] = eg__attend_aligned(a, EG_ATT_KEEP + k, keep[k]);
    if (keep[0] || keep[1]) mask[n++] = !keep[0] ? keep[1] : !keep[1] ? keep[0] : eg_and(keep[0], keep[1]);
    for (int k = 0; k < n; k++) if (!eg_ok(mask[k])) return -1;
    return n;
}
eg_tensor *eg__attend_weights(const eg_attending *a, eg_tensor *const *x, eg_tensor *scores, double left)
{
    eg_tensor *operand[3] = { scores };
    const int n = eg_ok(scores) ? masks(a, x, operand + 1) : -1;
    return n < 0 ? scores ? eg__poison(scores->cx) : NULL : eg__softmax_kept(operand, n, a->inner, left);
}
eg_tensor *eg__attend_values(const eg_attending *a, eg_tensor *const *x, eg_tensor *weights)
{
    if (!eg_ok(weights) || !eg_ok(x[EG_ATT_V])) return weights;
    return product(a, -1, weights, EG_ATT_V, x[EG_ATT_V], a->rank[EG_ATT_Y], a->label[EG_ATT_Y]);
}
eg_tensor *eg__attend_lse(const eg_attending *a, eg_tensor *const *x, eg_tensor *s)
{
    eg_tensor *mask[2];
    const int n = eg_ok(s) ? masks(a, x, mask) : -1;
    if (n < 0) return s ? eg__poison(s->cx) : NULL;
    for (int k = 0; k < n; k++) s = eg_where(mask[k], s, eg_full_n(s->cx, (eg_dtype)s->dtype, -INFINITY, 0, NULL));
    return eg__logsumexp_last(s, a->inner);
}

/* dS = P (m g vᵀ − D), D = Σ P m g vᵀ;  of the log-sum-exp dS = P g */
void eg__attend_gradient(const eg_attending *a, eg_tensor *const *x, eg_tensor *g, eg_tensor **d)
{
    const bool values = a->rank[EG_ATT_V] >= 0;
    double left;
    eg_tensor *s = eg__attend_scores(a, x, &left), *w = eg__attend_weights(a, x, s, left), *ds;
    for (int t = 0; t <= EG_ATT_SLOPES; t++) d[t] = w;
    if (!eg_ok(w) || !eg_ok(g)) return;
    if (values) {
        ds = product(a, EG_ATT_Y, g, EG_ATT_V, x[EG_ATT_V], a->scores, a->score);
        if (a->dropping) ds = eg__drop(&a->drop, ds);
        ds = eg_mul(w, eg_sub(ds, eg__widen(eg__dot_last(w, ds, a->inner), a->inner)));
        eg_tensor *dropped = a->dropping ? eg__drop(&a->drop, w) : w;
        d[EG_ATT_V] = eg_ok(dropped) ? product(a, -1, dropped, EG_ATT_Y, g, a->rank[EG_ATT_V], a->label[EG_ATT_V]) : dropped;
    } else ds = eg_mul(w, eg__attend_aligned(a, EG_ATT_Y, g));
    for (int t = 0; t <= EG_ATT_SLOPES; t++) if (t != EG_ATT_V) d[t] = ds;
    if (!eg_ok(ds)) return;
    eg_tensor *scaled = eg_scale(ds, a->scale);
    d[EG_ATT_Q] = product(a, -1, scaled, EG_ATT_K, x[EG_ATT_K], a->rank[EG_ATT_Q], a->label[EG_ATT_Q]);
    d[EG_ATT_K] = product(a, -1, scaled, EG_ATT_Q, x[EG_ATT_Q], a->rank[EG_ATT_K], a->label[EG_ATT_K]);
    if (x[EG_ATT_BIAS]) d[EG_ATT_BIAS] = eg__einsum(1, &ds, (const uint16_t *[]){ a->score }, a->rank[EG_ATT_BIAS], a->label[EG_ATT_BIAS]);
    if (!x[EG_ATT_SLOPES]) return;
    eg_tensor *far = eg_neg(distance(a, ds));
    const uint16_t *const label[] = { a->score, (uint16_t[]){ a->here, a->there } };
    d[EG_ATT_SLOPES] = eg_ok(far) ? eg__einsum(2, (eg_tensor *[]){ ds, far }, label, a->rank[EG_ATT_SLOPES], a->label[EG_ATT_SLOPES]) : far;
}
