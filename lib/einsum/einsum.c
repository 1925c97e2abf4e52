/* einsum.c: y[out] = Σ Π x_k[labels_k]: the row on labels, and the public functions on strings.
 *
 * It is the only linear primitive, and its gradient is itself: the cotangent of operand i is the einsum of g and the other
 * operands, with the labels of the output and of operand i exchanged. A label that may repeat on both sides closes the family
 * ("ii->i" has the cotangent "i->ii"). A label that only operand i has was summed alone: its cotangent is expanded, not computed. */
#include "einsum/einsum.h"
#include "notation/notation.h"
#include <string.h>

/* What a node remembers: the labels, operand after operand, then the output's. */
typedef struct labels { int out_rank; int start[EG_EINSUM_MAX + 1]; uint16_t label[]; } labels;
static const uint16_t *labels_of(const labels *l, int k) { return l->label + l->start[k]; }
static const uint16_t *labels_out(const labels *l, int count) { return l->label + l->start[count]; }

static int find(const uint16_t *label, int n, uint16_t what)
{
    for (int k = 0; k < n; k++) if (label[k] == what) return k;
    return -1;
}
static bool distinct(const uint16_t *label, int n)
{
    for (int k = 1; k < n; k++) if (find(label, k, label[k]) >= 0) return false;
    return true;
}

/* One operand as a set of labels: a repeated label is a diagonal, whose stride is the sum of the strides. */
typedef struct side { int n; uint16_t label[EG_RANK_MAX]; int64_t size[EG_RANK_MAX], stride[EG_RANK_MAX]; void *data; } side;
static void side_of(side *s, const eg_tensor *x, const uint16_t *label)
{
    s->n = 0;
    s->data = x->data;
    for (int k = 0; k < x->rank; k++) {
        int at = find(s->label, s->n, label[k]);
        if (at < 0) { at = s->n++; s->label[at] = label[k]; s->size[at] = x->dim[k]; s->stride[at] = 0; }
        s->stride[at] += x->stride[k];
    }
}
static bool contract(eg_ctx *cx, eg_dtype dtype, const side *a, const side *b, const side *c)
{
    eg_axis axis[3 * EG_RANK_MAX];
    int n = 0;
    const side *all[3] = { a, b, c };
    uint16_t seen[3 * EG_RANK_MAX];
    for (int s = 0; s < 3; s++)
        for (int k = 0; all[s] && k < all[s]->n; k++) {
            int at = find(seen, n, all[s]->label[k]);
            if (at < 0) { at = n++; seen[at] = all[s]->label[k]; axis[at] = (eg_axis){ .size = all[s]->size[k] }; }
            int64_t stride = all[s]->stride[k];
            if (s == 0) { axis[at].in_a = true; axis[at].sa = stride; }
            if (s == 1) { axis[at].in_b = true; axis[at].sb = stride; }
            if (s == 2) { axis[at].in_c = true; axis[at].sc = stride; }
        }
    return eg__pair(cx, dtype, n, axis, a->data, b ? b->data : NULL, c->data, false);
}

/* -- three and more operands: pairs in the planned order, intermediates in a scope of their own ----------------------------------- */
static bool needed(const side *s, const bool *gone, int n, int i, int j, const side *out, uint16_t label)
{
    for (int k = 0; k < n; k++) if (!gone[k] && k != i && k != j && find(s[k].label, s[k].n, label) >= 0) return true;
    return find(out->label, out->n, label) >= 0;
}
/* The intermediate of s[i] and s[j] keeps what somebody still needs: shared labels first, then i's own, then j's own. */
static bool intermediate(eg_ctx *cx, eg_dtype dtype, const side *s, const bool *gone, int n, int i, int j, const side *out, side *c)
{
    c->n = 0;
    for (int turn = 0; turn < 3; turn++) {
        const side *from = turn == 2 ? &s[j] : &s[i], *other = turn == 2 ? &s[i] : &s[j];
        for (int k = 0; k < from->n; k++) {
            bool shared = find(other->label, other->n, from->label[k]) >= 0;
            if (shared != (turn == 0) || !needed(s, gone, n, i, j, out, from->label[k])) continue;
            if (c->n == EG_RANK_MAX) { eg_fail(cx, "einsum: an intermediate of operands %d and %d would have more than %d axes", i + 1, j + 1, EG_RANK_MAX); return false; }
            c->label[c->n] = from->label[k];
            c->size[c->n++] = from->size[k];
        }
    }
    eg__row_major(c->n, c->size, c->stride);
    int64_t bytes = eg__width[dtype];
    for (int k = 0; k < c->n; k++)
        if (__builtin_mul_overflow(bytes, c->size[k], &bytes)) { eg_fail(cx, "einsum: an intermediate of operands %d and %d is too large", i + 1, j + 1); return false; }
    return (c->data = eg__alloc(cx, (size_t)bytes)) != NULL;
}
static void set_of(eg_labelset *set, const side *s, double *size)
{
    *set = (eg_labelset){ { 0 } };
    for (int k = 0; k < s->n; k++) {
        set->bits[s->label[k] / 64] |= (uint64_t)1 << s->label[k] % 64;
        size[s->label[k]] = (double)s->size[k];
    }
}
static bool chain(eg_ctx *cx, eg_dtype dtype, int n, side *s, const side *out)
{
    bool gone[EG_EINSUM_MAX] = { false };
    int pairs[EG_EINSUM_MAX][2];
    eg_labelset set[EG_EINSUM_MAX], all;
    double size[EG_LABEL_MAX];
    for (int k = 0; k < n; k++) set_of(&set[k], &s[k], size);
    set_of(&all, out, size);
    if (!eg__order(n, set, &all, size, 0, pairs, NULL)) { eg_fail(cx, "einsum: no order of its %d operands was found", n); return false; }
    eg__order_slots(n, pairs);
    for (int step = 0; step < n - 1; step++) {
        int i = pairs[step][0], j = pairs[step][1];
        if (step == n - 2) return contract(cx, dtype, &s[i], &s[j], out);
        side c;
        if (!intermediate(cx, dtype, s, gone, n, i, j, out, &c) || !contract(cx, dtype, &s[i], &s[j], &c)) return false;
        s[i] = c;
        gone[j] = true;
    }
    return true;
}

/* -- einsum: y[out] = Σ Π x_k,  dx_i = einsum(g, others -> labels of i) --------------------------------------------------------------- */
static bool einsum_shape(eg_tensor *y)
{
    const labels *l = y->attr;
    const uint16_t *out = labels_out(l, y->count);
    int64_t dim[EG_RANK_MAX];
    for (int r = 0; r < l->out_rank; r++)
        for (int k = 0; k < y->count; k++) {
            int at = find(labels_of(l, k), y->in[k]->rank, out[r]);
            if (at >= 0) { dim[r] = y->in[k]->dim[at]; break; }
        }
    /* layout: a function of the labels alone. Trailing batch labels (in every operand) are stored outermost, so that the last
     * stored axis is one that a product runs over: "->ijbh" is stored as bhij. */
    int order[EG_RANK_MAX], batch = l->out_rank;
    while (y->count > 1 && batch > 0) {
        bool everywhere = true;
        for (int k = 0; k < y->count; k++) everywhere &= find(labels_of(l, k), y->in[k]->rank, out[batch - 1]) >= 0;
        if (!everywhere) break;
        batch--;
    }
    for (int r = 0; r < l->out_rank; r++) order[r] = (r + batch) % l->out_rank;
    return eg__shape_strided(y, (eg_dtype)y->in[0]->dtype, l->out_rank, dim, order);
}
static bool einsum_forward(eg_tensor *y)
{
    const labels *l = y->attr;
    const uint16_t *outl = labels_out(l, y->count);
    if (y->own.bytes == 0) return true;
    side out, s[EG_EINSUM_MAX];
    side_of(&out, y, outl);
    if (out.n < y->rank) memset(y->data, 0, y->own.bytes);       /* a diagonal in zeros */
    for (int k = 0; k < y->count; k++) side_of(&s[k], y->in[k], labels_of(l, k));
    if (y->count <= 2) return contract(y->cx, (eg_dtype)y->dtype, &s[0], y->count == 2 ? &s[1] : NULL, &out);
    eg_mark m = eg_push(y->cx);
    bool good = !eg__failed(y->cx) && chain(y->cx, (eg_dtype)y->dtype, y->count, s, &out);
    eg_pop(y->cx, m);
    return good;
}
static eg_tensor *einsum_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const labels *l = y->attr;
    const uint16_t *mine = labels_of(l, i);
    eg_tensor *x = y->in[i], *in[EG_EINSUM_MAX];
    const uint16_t *label[EG_EINSUM_MAX];
    int n = 0;
    in[n] = g;
    label[n++] = labels_out(l, y->count);
    for (int k = 0; k < y->count; k++) if (k != i) { in[n] = y->in[k]; label[n++] = labels_of(l, k); }

    uint16_t have[EG_RANK_MAX], all[EG_RANK_MAX];       /* operand i's labels without repeats: those that others know, and all */
    int64_t dim[EG_RANK_MAX];
    int nhave = 0, nall = 0;
    for (int k = 0; k < x->rank; k++) {
        if (find(all, nall, mine[k]) >= 0) continue;
        dim[nall] = x->dim[k];
        all[nall++] = mine[k];
        for (int j = 0; j < n; j++) if (find(label[j], in[j]->rank, mine[k]) >= 0) { have[nhave++] = mine[k]; break; }
    }
    if (nhave == nall) return eg__einsum(n, in, label, x->rank, mine);
    eg_tensor *dx = eg__einsum(n, in, label, nhave, have);
    for (int k = 0; k < nall; k++) if (find(have, nhave, all[k]) < 0) dx = eg_unsqueeze(dx, k);
    dx = eg_expand_n(dx, nall, dim);
    return nall == x->rank ? dx : eg__einsum(1, &dx, (const uint16_t *[]){ all }, x->rank, mine);
}

static eg_tensor *ij_jk(eg_tensor *const *x) { return eg_einsum("ij,jk->ik", x[0], x[1]); }
static eg_tensor *scores(eg_tensor *const *x) { return eg_einsum("ibhd,jbhd->ijbh", x[0], x[1]); }
static eg_tensor *trace(eg_tensor *const *x) { return eg_einsum("iij->j", x[0]); }
static eg_tensor *embed(eg_tensor *const *x) { return eg_einsum("i->ii", x[0]); }
static eg_tensor *lonely(eg_tensor *const *x) { return eg_einsum("ijj,k->i", x[0], x[1]); }
static eg_tensor *hyper(eg_tensor *const *x) { return eg_einsum("ia,ib,ic->abc", x[0], x[1], x[2]); }
static eg_tensor *chained(eg_tensor *const *x) { return eg_einsum("ab,bc,cd,->ad", x[0], x[1], x[2], x[3]); }
static eg_tensor *merged(eg_tensor *const *x) { return eg_einsum("b l (h=2 d), h d m -> (b l) m", x[0], x[1]); }
static const eg_sample einsum_samples[] = {
    { ij_jk, "3x4, 4x2", 0, 0 }, { scores, "3x2x2x4, 2x2x2x4", 0, 0 }, { trace, "3x3x2", 0, 0 }, { embed, "4", 0, 0 },
    { lonely, "2x3x3, 4", 0, 0 }, { hyper, "3x2, 3x4, 3x2", 0, 0 }, { chained, "2x3, 3x4, 4x2, ()", 0, 0 }, { merged, "2x3x4, 2x2x3", 0, 0 }, { 0 },
};
static const eg_op einsum_op = {
    .name = "einsum", .equation = "y[out] = sum of prod x_k[in_k]", .gradient = "dx_i[in_i] = einsum(g, others)",
    .arity = -1, .shape = einsum_shape, .forward = einsum_forward, .rule = einsum_rule, .uses = EG_USES_OTHERS, .samples = einsum_samples,
};
const eg_op *const eg__einsum_rows[] = { &einsum_op, NULL };

eg_tensor *eg__einsum(int count, eg_tensor *const *x, const uint16_t *const *label, int out_rank, const uint16_t *out)
{
    eg_ctx *cx = eg__context_of(count, x);
    if (!cx) return NULL;
    if (!eg__check_all(cx, "einsum", count, x)) return eg__poison(cx);
    int total = out_rank;
    for (int k = 0; k < count; k++) total += x[k]->rank;
    if (count == 1 && out_rank == x[0]->rank && distinct(out, out_rank) && distinct(label[0], out_rank)) {   /* only the order changes: a view */
        int axes[EG_RANK_MAX];
        bool same = true;
        for (int r = 0; r < out_rank; r++) { axes[r] = find(label[0], out_rank, out[r]); same &= axes[r] == r; }
        return same ? x[0] : eg_permute_n(x[0], out_rank, axes);
    }
    union { labels l; char room[sizeof(labels) + (EG_EINSUM_MAX + 1) * EG_RANK_MAX * sizeof(uint16_t)]; } u;
    labels *l = &u.l;
    l->out_rank = out_rank;
    l->start[0] = 0;
    for (int k = 0; k < count; k++) {
        if (x[k]->rank) memcpy(l->label + l->start[k], label[k], x[k]->rank * sizeof *out);
        l->start[k + 1] = l->start[k] + x[k]->rank;
    }
    if (out_rank) memcpy(l->label + l->start[count], out, (size_t)out_rank * sizeof *out);
    return eg_apply(&einsum_op, l, sizeof *l + (size_t)total * sizeof *out, count, x);
}

/* -- strings ---------------------------------------------------------------------------------------------------------------------------- */
static void letters(const eg_bound_term *t, uint16_t *out) { for (int k = 0; k < t->items; k++) out[k] = t->item[k].axis; }

eg_tensor *eg_einsum_with(const eg_einsum_args *given)
{
    eg_einsum_args o = { .size = sizeof o };
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    eg_ctx *cx = eg__context_of(o.count, o.operands);
    if (!cx) return NULL;
    if (!o.spec) return eg_fail(cx, "einsum: the spec is NULL");
    if (o.count > EG_EINSUM_MAX) return eg_fail(cx, "einsum: %d operands; at most %d", o.count, EG_EINSUM_MAX);
    if (!eg__check_all(cx, "einsum", o.count, o.operands)) return eg__poison(cx);
    for (int k = 1; k < o.count; k++)
        if (o.operands[k]->dtype != o.operands[0]->dtype)
            return eg_fail(cx, "einsum: operand 1 is %s but operand %d is %s; eg_cast one of them", eg_type_name(o.operands[0]->dtype),
                           k + 1, eg_type_name(o.operands[k]->dtype));
    const eg_bound *b = eg__bind("einsum", o.spec, EG_NOTATION_IMPLICIT | (o.broadcast ? EG_NOTATION_ONES : 0), o.count, o.operands, 0, NULL);
    if (!b) return eg__poison(cx);
    eg_tensor *x[EG_EINSUM_MAX];
    uint16_t room[EG_EINSUM_MAX][EG_RANK_MAX], out[EG_RANK_MAX];
    const uint16_t *label[EG_EINSUM_MAX];
    for (int k = 0; k < o.count; k++) {
        x[k] = b->term[k].x;
        if (!eg__is_float(x[k]->dtype)) x[k] = eg_cast(x[k], EG_I64);    /* integers are summed in i64 */
        if (b->term[k].items > EG_RANK_MAX) return eg_fail(cx, "einsum: operand %d has %d axes; at most %d", k + 1, b->term[k].items, EG_RANK_MAX);
        letters(&b->term[k], room[k]);
        label[k] = room[k];
    }
    if (b->out.items > EG_RANK_MAX) return eg_fail(cx, "einsum: the output has %d axes; at most %d", b->out.items, EG_RANK_MAX);
    letters(&b->out, out);
    return eg__merge(b, eg__einsum(o.count, x, label, b->out.items, out));
}
eg_tensor *eg_einsum_n(const char *spec, int count, eg_tensor *const *operands)
{
    return eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args), .spec = spec, .count = count, .operands = operands });
}
