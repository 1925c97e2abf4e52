/* attention.c: y = softmax(scale q·k + bias) v, in any layout: letters say what is a batch, a head, a query, a key.
 *
 *   letters of …             become
 *   q and k, not v, not y    the dot product; their sizes multiply to d, the scale is 1/√d
 *   k and v, not q, not y    the softmax: the keys
 *   every other of q or k    axes of the scores: batches first, then queries; keys last, so that a row lies together
 *
 * The weights are a tensor between two einsums; `weigh` is what a fused form will replace. Vaswani et al. 2017, eq. 1. */
#include "einsum/einsum.h"
#include "ops/softmax.h"
#include <math.h>
#include <string.h>

enum { IN_Q = 1, IN_K = 2, IN_V = 4, IN_Y = 8 };
typedef struct roles {
    const eg_bound *bound;
    uint8_t in[EG_AXES_MAX];            /* by axis: which terms have it                                       */
    int rank, inner;                    /* of the scores; keys                                                */
    uint16_t score[EG_RANK_MAX];        /* their axes                                                         */
    double width;                       /* d                                                                  */
} roles;

static bool is_dot(unsigned in) { return (in & (IN_Q | IN_K | IN_V | IN_Y)) == (IN_Q | IN_K); }
static bool is_key(unsigned in) { return (in & (IN_Q | IN_K | IN_V | IN_Y)) == (IN_K | IN_V); }
static int  place(unsigned in) { return is_dot(in) ? -1 : is_key(in) ? 3 : (in & IN_Q) && (in & IN_K) ? 0 : in & IN_Q ? 1 : 2; }

static bool assign(roles *r, const eg_bound *b)
{
    static const char *const operand[] = { "query", "key", "value" };
    *r = (roles){ .bound = b, .width = 1 };
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < b->term[t].items; k++) r->in[b->term[t].item[k].axis] |= (uint8_t)(1 << t);
    for (int k = 0; k < b->out.items; k++) r->in[b->out.item[k].axis] |= IN_Y;
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < b->term[t].items; k++) {
            const eg_axis_name *a = &b->axis[b->term[t].item[k].axis];
            if (r->in[b->term[t].item[k].axis] != 1 << t) continue;
            eg__refuse(b, t, k, "index '%.*s' is in the %s alone and not in the output; nothing says what becomes of it", a->length, a->text, operand[t]);
            return false;
        }
    int dots = 0;
    for (int a = 0; a < b->axes; a++) if (is_dot(r->in[a])) { r->width *= (double)b->axis[a].size; dots++; }
    if (!dots) {
        eg__refuse(b, 0, -1, "query and key share no index that value and output lack, so there is no product to sum; the value's width "
                             "needs a letter of its own, as in \"ibhd,jbhd,jbhe->ibhe\"");
        return false;
    }
    for (int want = 0; want < 4; want++)
        for (int t = 0; t < 2; t++)
            for (int k = 0; k < b->term[t].items; k++) {
                const uint16_t a = b->term[t].item[k].axis;
                bool have = false;
                for (int s = 0; s < r->rank; s++) have |= r->score[s] == a;
                if (have || place(r->in[a]) != want) continue;
                if (r->rank == EG_RANK_MAX) { eg__refuse(b, t, k, "the scores would have more than %d axes", EG_RANK_MAX); return false; }
                r->score[r->rank++] = a;
                r->inner += want == 3;
            }
    if (r->inner) return true;
    eg__refuse(b, 1, -1, "no index to attend over: it stands in key and value, and neither in the query nor in the output");
    return false;
}

static const uint16_t *letters(const eg_bound_term *t, uint16_t *room)
{
    for (int k = 0; k < t->items; k++) room[k] = t->item[k].axis;
    return room;
}
static bool short_enough(const eg_bound *b)
{
    for (int t = 0; t <= 3; t++) {
        const eg_bound_term *term = t < 3 ? &b->term[t] : &b->out;
        if (term->items > EG_RANK_MAX) { eg__refuse(b, t < 3 ? t : b->terms, -1, "%d axes; at most %d", term->items, EG_RANK_MAX); return false; }
    }
    return true;
}

/* q, k → the weights over r->score. */
static eg_tensor *weigh(const roles *r, const eg_masking *mask, double scale)
{
    const eg_bound *b = r->bound;
    uint16_t ql[EG_RANK_MAX], kl[EG_RANK_MAX];
    eg_tensor *q = scale == 1 ? b->term[0].x : eg_scale(b->term[0].x, scale);
    eg_tensor *s = eg__einsum(2, (eg_tensor *[]){ q, b->term[1].x }, (const uint16_t *[]){ letters(&b->term[0], ql), letters(&b->term[1], kl) }, r->rank, r->score);
    return eg__softmax_masked(mask, s, false);
}

/* The order in which the weights are handed out, as places in r->score: that of the names, or: as in the output, the keys last. */
static bool handed(const roles *r, int names, int *order)
{
    const eg_bound *b = r->bound;
    int n = 0;
    if (names >= 0) {
        const eg_bound_term *t = &b->term[names];
        if (!eg__no_repeats(b, names)) return false;
        if (t->rank != t->items) { eg__refuse(b, names, -1, "the axes of the weights take no groups"); return false; }
        for (int s = 0; s < r->rank; s++)
            if (eg__item_of(t, r->score[s]) < 0) {
                const eg_axis_name *a = &b->axis[r->score[s]];
                eg__refuse(b, names, -1, "the weights have the index '%.*s', which .weights_axes lacks", a->length, a->text);
                return false;
            }
        for (int k = 0; k < t->items; k++) {
            int s = 0;
            while (s < r->rank && r->score[s] != t->item[k].axis) s++;
            if (s == r->rank) { eg__refuse(b, names, k, "not an index of the weights"); return false; }
            order[n++] = s;
        }
        return true;
    }
    for (int k = 0; k < b->out.items; k++)
        for (int s = 0; s < r->rank; s++) if (r->score[s] == b->out.item[k].axis) order[n++] = s;
    for (int s = 0; s < r->rank; s++) if (!(r->in[r->score[s]] & IN_Y)) order[n++] = s;
    return true;
}

eg_tensor *eg_attention_with(const eg_attention_args *given)
{
    eg_attention_args o = { .size = sizeof o };
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    eg_tensor *xs[6] = { o.q, o.k, o.v };
    eg_ctx *cx = eg__context_of(3, xs);
    if (o.weights) *o.weights = eg__poison(cx);
    if (o.dropped) *o.dropped = eg__poison(cx);
    if (!cx || !eg__check_all(cx, "attention", 3, xs)) return eg__poison(cx);
    if (!o.spec) return eg_fail(cx, "attention: the spec is NULL");
    if (!isfinite(o.scale)) return eg_fail(cx, "attention: .scale is %g", o.scale);
    for (int k = 0; k < 3; k++) {
        if (!eg__floats("attention", xs[k], k + 1)) return eg__poison(cx);
        if (xs[k]->dtype != o.q->dtype)
            return eg_fail(cx, "attention: operand 1 is %s but operand %d is %s; eg_cast one of them", eg_type_name(o.q->dtype), k + 1, eg_type_name(xs[k]->dtype));
    }
    roles r;
    eg_masking mask = { .where = o.where, .offset = o.offset };
    int n = 3, order[EG_RANK_MAX];
    const char *spec = eg__masks_spec(cx, "attention", o.spec, &o.keep, &o.bias, o.weights_axes, xs, &n, &mask.keep, &mask.bias);
    const eg_bound *b = spec ? eg__bind("attention", spec, 0, n, xs, 0, NULL) : NULL;
    if (!b) return eg__poison(cx);
    if (!b->arrow) return eg__refuse(b, 2, -1, "-> and the output are missing: they say which index the softmax runs over");
    if (!short_enough(b) || !assign(&r, b) || !handed(&r, o.weights_axes ? n - 1 : -1, order)) return eg__poison(cx);
    mask.bound = b;
    mask.rank = r.rank;
    mask.inner = r.inner;
    mask.axis = r.score;

    eg_tensor *w = weigh(&r, &mask, eg__opt(o.scale, 1 / sqrt(r.width))), *d = eg_dropout(w, eg__opt(o.dropout, 0));
    uint16_t vl[EG_RANK_MAX], yl[EG_RANK_MAX];
    eg_tensor *y = eg__einsum(2, (eg_tensor *[]){ d, b->term[2].x }, (const uint16_t *[]){ r.score, letters(&b->term[2], vl) }, b->out.items, letters(&b->out, yl));
    if (o.weights) *o.weights = eg_permute_n(w, r.rank, order);
    if (o.dropped) *o.dropped = eg_permute_n(d, r.rank, order);
    return eg__merge(b, y);
}
