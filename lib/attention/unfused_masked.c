/* unfused_masked.c: the products of attention under masks, for operands that have elements
 * which are not finite, or so large that a product of two overflows.
 *
 * The weight of a forbidden pair is 0, but 0 · NaN and 0 · inf are NaN, so a plain einsum would
 * propagate elements of forbidden pairs to the result. Here an element that is not moderate (beyond
 * EG_MODERATE_F32 or _F64, or NaN) counts only in pairs that the masks allow: the einsum is
 * computed with 0 in place of these elements, and their products in allowed pairs are then added
 * one by one. All other bits are those of einsum. If all elements are moderate, the cost is one
 * pass over q, k and v to determine that, and over g in the gradient.
 *
 * .score_fn is a function of the caller that may mask too, which is not known here. In the
 * gradients of q and k, a pair whose score has the cotangent 0 is therefore treated as
 * forbidden. */
#include "attention/attention.h"
#include <string.h>

/* The attribute. Operands: the two factors, then the masks. */
typedef struct masked {
    int scores; /* axes of the scores */
    uint16_t score[EG_RANK_MAX];
    int rank[3]; /* of the factors and the result */
    uint16_t label[3][EG_RANK_MAX];
    bool sums;    /* the first factor is over the scores; else the result is */
    bool careful; /* a factor has elements that are not moderate; else this is a plain einsum */
    bool zeros;   /* in the rule, a pair whose cotangent is 0 is treated as forbidden */
} masked;
enum { MASKS = 3 };
/* The arrays that a traversal visits together: the scores; the factor or result that is not over
 * the scores; the masks. */
enum { IN_SCORES, IN_OTHER, IN_MASK, PLACES = IN_MASK + MASKS };
typedef struct masked_axis {
    int64_t size, step[PLACES];
} masked_axis;

/* Returns the position of a label in a list of n; n if it is not there. */
static int masked_find(int n, const uint16_t *label, uint16_t want)
{
    int k = 0;
    while (k < n && label[k] != want) k++;
    return k;
}
/* Advances to the next element. False after the last one, with all offsets as at the beginning. */
static bool masked_next(int n, const masked_axis *axis, int64_t *at, int64_t *off)
{
    for (int k = n; k-- > 0; at[k] = 0) {
        for (int p = 0; p < PLACES; p++) off[p] += axis[k].step[p];
        if (++at[k] < axis[k].size) return true;
        for (int p = 0; p < PLACES; p++) off[p] -= axis[k].step[p] * axis[k].size;
    }
    return false;
}
/* True if all masks allow the pair at these offsets. */
static bool masked_keeps(const eg_tensor *y, const int64_t *off)
{
    for (int m = 2; m < y->count; m++)
        if (!((const uint8_t *)y->in[m]->data)[off[IN_MASK + m - 2]]) return false;
    return true;
}
/* Sets axis[] to the axes of the scores, with their strides in the scores and in the masks. */
static void masked_axes(const eg_tensor *y, const eg_tensor *scores, masked_axis *axis)
{
    const masked *a = y->attr;
    for (int r = 0; r < a->scores; r++) {
        axis[r] = (masked_axis){ scores->dim[r], { scores->stride[r] } };
        for (int m = 2; m < y->count; m++) axis[r].step[IN_MASK + m - 2] = y->in[m]->stride[r];
    }
}

#define T        double
#define MODERATE EG_MODERATE_F64
#define NAME(x)  x##_f64
#include "attention/unfused_masked_of.h"
#undef T
#undef MODERATE
#undef NAME
#define T        float
#define MODERATE EG_MODERATE_F32
#define NAME(x)  x##_f32
#include "attention/unfused_masked_of.h"
#undef T
#undef MODERATE
#undef NAME
#define T        double complex
#define MODERATE EG_MODERATE_F64
#define NAME(x)  x##_c128
#include "attention/unfused_masked_of.h"
#define OF_TYPE(f, x) ((x)->dtype == EG_F64 ? f##_f64 : (x)->dtype == EG_F32 ? f##_f32 : f##_c128)

/* Sets the forbidden scores that are not moderate to 0. */
static void masked_clear(eg_tensor *y)
{
    masked_axis axis[EG_RANK_MAX];
    if (!eg_size(y)) return;
    masked_axes(y, y, axis);
    OF_TYPE(masked_clear, y)(y, axis);
}

/* Returns a copy of x with 0 in place of elements that are not moderate. It has the strides of x,
 * since the bits of a sum may depend on them. NULL after an error. */
static eg_tensor *masked_moderate(eg_tensor *x)
{
    int64_t first = 0, count = 1;
    for (int k = 0; k < x->rank && eg_size(x); k++) {
        const int64_t span = (x->dim[k] - 1) * x->stride[k];
        count += span < 0 ? -span : span;
        first += span < 0 ? -span : 0;
    }
    eg_tensor *all = eg__zeros(x->cx, (eg_dtype)x->dtype, 1, &count),
              *z = all ? eg__alias(all, x->rank, x->dim, x->stride, first) : NULL;
    if (!eg_ok(z)) return NULL;
    eg__copy(z, x);
    OF_TYPE(masked_purge, all)(all);
    return z;
}

/* Adds to y the products with the elements that masked_moderate replaced by 0. The outer loop is
 * over the axes of x, the inner one over the other axes of the scores in their order. */
static void masked_add(eg_tensor *y)
{
    const masked *a = y->attr;
    const eg_tensor *w = y->in[0], *x = y->in[1];
    masked_axis score[EG_RANK_MAX], axis[2 * EG_RANK_MAX] = { { 0 } };
    int rest = 0;
    if (!eg_size(w) || !eg_size(x) || !eg_size(y)) return;
    masked_axes(y, w, score);
    for (int k = 0; k < x->rank; k++) axis[k].size = x->dim[k];
    for (int r = 0; r < a->scores; r++) {
        int k = masked_find(x->rank, a->label[1], a->score[r]);
        if (k == x->rank) k += rest++;
        axis[k] = score[r];
        const int at = masked_find(a->rank[2], a->label[2], a->score[r]);
        if (at < a->rank[2]) axis[k].step[IN_OTHER] = y->stride[at];
    }
    for (int r = 0; r < a->rank[2]; r++) { /* axes of x and y that the scores do not have */
        const int k = masked_find(x->rank, a->label[1], a->label[2][r]);
        if (k < x->rank) axis[k].step[IN_OTHER] = y->stride[r];
    }
    OF_TYPE(masked_add, y)(y, rest, axis);
}

/* -- attention_product: y = Σ a b by labels, where a number that is not moderate counts in
 * allowed pairs only;  da = Σ g b, db = Σ g a, each by the same operation */
static bool masked_shape(eg_tensor *y)
{
    const masked *a = y->attr;
    return eg__einsum_shape(y, 2, (const uint16_t *[]){ a->label[0], a->label[1] }, a->rank[2],
                            a->label[2]);
}
/* Computes the product for all copies in one call, if all elements are moderate. */
static bool masked_copies(const eg_tensor *y)
{
    const masked *a = y->attr;
    const uint16_t *const label[] = { a->label[0], a->label[1] };
    const void *const data[] = { y->in[0]->data, y->in[1]->data };
    const int64_t step[] = { eg__copy_step(y->in[0]), eg__copy_step(y->in[1]) };
    const eg_program *p = eg__einsum_program(
        y->cx, 2, y->in, label, &(eg_labelled){ y->rank, y->dim, y->stride, a->label[2] },
        &eg__any_order);
    eg__copies_done(y);
    return p &&
           eg__program_run_copies(y->cx, p, &(eg_copy_steps){ y->copies->count, step, y->each },
                                  data, y->data, 1, NULL);
}
static bool masked_forward(eg_tensor *y)
{
    const masked *a = y->attr;
    const eg_tensor *all = a->careful ? NULL : eg__copies_all(y);
    if (all) return masked_copies(all);
    eg_tensor *const x[] = { y->in[0],
                             a->careful && a->sums ? masked_moderate(y->in[1]) : y->in[1] };
    if (!x[1] || !eg__einsum_into(y, 1, false, &eg__any_order, 2, x,
                                  (const uint16_t *[]){ a->label[0], a->label[1] }, a->label[2]))
        return false;
    if (a->careful && a->sums) masked_add(y);
    if (a->careful && !a->sums) masked_clear(y);
    return true;
}
static eg_tensor *masked_apply(const masked *, int masks, eg_tensor *const *mask, eg_tensor *u,
                               eg_tensor *v);
/* Adds x ≠ 0 to the masks; if there are MASKS, as they may be after several derivatives, to the
 * last one. */
static void masked_nonzero(eg_tensor **mask, int *masks, eg_tensor *x)
{
    eg_tensor *m = eg_ne(x, eg__zero_like(x));
    if (*masks < MASKS)
        mask[(*masks)++] = m;
    else
        mask[MASKS - 1] = eg_and(mask[MASKS - 1], m);
}
/* The cotangent of a factor is the product of g and the other factor. The operand over the
 * scores is the first one. */
static eg_tensor *masked_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const masked *a = y->attr;
    masked b = *a;
    const int first = a->sums && i == 1 ? 0 : 2, second = a->sums ? (i == 0 ? 1 : 2) : 1 - i,
              order[] = { first, second, i };
    eg_tensor *term[] = { y->in[0], y->in[1], g }, *mask[MASKS] = { NULL };
    int masks = y->count - 2;
    if (i > 1) return NULL;
    b.sums = !(a->sums && i == 0);
    b.zeros = false;
    for (int k = 0; k < 3; k++) {
        b.rank[k] = a->rank[order[k]];
        memcpy(b.label[k], a->label[order[k]], sizeof b.label[k]);
    }
    const bool exceeds = !eg__moderate(g);
    b.careful = a->careful || exceeds;
    if (!b.careful)
        return eg__einsum(2, (eg_tensor *[]){ term[first], term[second] },
                          (const uint16_t *[]){ b.label[0], b.label[1] }, b.rank[2], b.label[2]);
    for (int k = 0; k < masks; k++) mask[k] = y->in[2 + k];
    if (exceeds && a->sums && i == 1) /* in dV, a weight of 0, for example by −inf in .bias,
                                       * contributes nothing */
        masked_nonzero(mask, &masks, term[0]);
    if (a->zeros) masked_nonzero(mask, &masks, g);
    return masked_apply(&b, masks, mask, term[first], term[second]);
}
static eg_tensor *masked_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const masked *a = y->attr;
    eg_tensor *sum = NULL;
    for (int i = 0; i < 2; i++) {
        if (!dx[i]) continue;
        masked b = *a;
        b.careful = a->careful || !eg__moderate(dx[i]);
        eg_tensor *part = masked_apply(&b, y->count - 2, y->in + 2, i == 0 ? dx[0] : y->in[0],
                                       i == 1 ? dx[1] : y->in[1]);
        sum = sum ? eg_add(sum, part) : part;
    }
    return sum;
}
static eg_tensor *masked_sample(eg_tensor *const *x, bool sums)
{
    masked a = { .scores = 2,
                 .score = { 0, 1 },
                 .sums = sums,
                 .careful = true,
                 .rank = { 2, 2, 2 },
                 .label = { { 0, 2 }, { 1, 2 }, { 0, 1 } } };
    if (sums)
        memcpy(a.label, (uint16_t[3][EG_RANK_MAX]){ { 0, 1 }, { 1, 2 }, { 0, 2 } }, sizeof a.label);
    return masked_apply(&a, 1, x + 2, x[0], x[1]);
}
static eg_tensor *sample_scores(eg_tensor *const *x) { return masked_sample(x, false); }
static eg_tensor *sample_sums(eg_tensor *const *x) { return masked_sample(x, true); }
static const eg_sample masked_samples[] = {
    { sample_scores, "3x2, 4x2, 3x4:b", 0, 0 },
    { sample_sums, "3x4, 4x2, 3x4:b", 0, 0 },
    { 0 },
};
static const eg_op masked_op = {
    .name = "attention_product",
    .equation = "y = sum a b, NaN and inf in allowed pairs alone",
    .gradient = "da = sum g b, db = sum g a",
    .arity = -1,
    .shape = masked_shape,
    .forward = masked_forward,
    .rule = masked_rule,
    .uses = EG_USES_OPERANDS,
    .samples = masked_samples,
    .jvp = masked_jvp,
    .forward_c128 = masked_forward,
};
const eg_op *const eg__masked_ops[] = { &masked_op, NULL };
static eg_tensor *masked_apply(const masked *a, int masks, eg_tensor *const *mask, eg_tensor *u,
                               eg_tensor *v)
{
    eg_tensor *operand[2 + MASKS] = { u, v };
    for (int m = 0; m < masks; m++) operand[2 + m] = mask[m];
    return eg_apply(&masked_op, a, sizeof *a, 2 + masks, operand);
}

eg_tensor *eg__masked_product(const eg_attention_plan *a, const eg_attention_masks *m,
                              const eg_labelled_tensor *u, const eg_labelled_tensor *v, int rank,
                              const uint16_t *out)
{
    masked k = { .scores = a->scores,
                 .rank = { u->rank, v->rank, rank },
                 .sums = out != a->score,
                 .careful = a->careful,
                 .zeros = a->rescored && out == a->score };
    memcpy(k.score, a->score, sizeof k.score);
    memcpy(k.label[0], u->label, (size_t)u->rank * sizeof *u->label);
    memcpy(k.label[1], v->label, (size_t)v->rank * sizeof *v->label);
    memcpy(k.label[2], out, (size_t)rank * sizeof *out);
    return masked_apply(&k, m->n, m->mask, u->x, v->x);
}

bool eg__attention_has_nonfinite(const eg_attention_plan *a, eg_tensor *const *x, eg_tensor *g)
{
    if (!eg__attention_may_forbid(a)) return false;
    for (int t = EG_TERM_Q; !g && t <= EG_TERM_V; t++)
        if (x[t] && !eg__moderate(x[t])) return true;
    return g && !eg__moderate(g);
}
const eg_attention_plan *eg__attention_for_nonfinite(const eg_attention_plan *a,
                                                     eg_tensor *const *x, eg_tensor *g,
                                                     eg_tensor *g_lse)
{
    if (a->careful || !((g && eg__attention_has_nonfinite(a, x, g)) ||
                        (g_lse && eg__attention_has_nonfinite(a, x, g_lse))))
        return a;
    eg_attention_plan *careful = eg__alloc(x[EG_TERM_Q]->cx, eg__attention_bytes(a));
    if (!careful) return NULL;
    memcpy(careful, a, eg__attention_bytes(a));
    /* without eg__attention_be_strict: the gradient uses the weights of the result, so a pair
     * that was allowed there is allowed here */
    careful->careful = true;
    return careful;
}
