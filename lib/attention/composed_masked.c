/* composed_masked.c: attention's products beside masks, where operands have numbers that are not
 * finite.
 *
 * The weight of a pair that a mask forbids is 0, but 0 NaN and 0 inf are NaN, so that a plain
 * einsum would let what is forbidden in. Here a number that is not finite counts in the pairs that
 * the masks allow and in no other. Everything else is einsum's, bit by bit: the einsum runs on
 * operands in which such numbers are 0, and their pairs are added one by one. composed.c comes here
 * only if an operand is not tame (ops.h), so that the usual case pays for one look at q, k and v.
 */
#include "attention/attention.h"
#include <string.h>

/* of the operands and the result; one of these terms, the first or the last, is the scores */
typedef struct masked {
    int scores, rank[3];
    uint16_t score[EG_RANK_MAX], label[3][EG_RANK_MAX];
    bool sums; /* the first term is the scores, and keys or queries are summed */
} masked;
/* the scores; the other of the two; bool: keep */
enum { IN_SCORES, IN_OTHER, IN_MASK, IN_MASK2, PLACES };
typedef struct masked_axis {
    int64_t size, step[PLACES];
} masked_axis;

/* The next place; false after the last one, all offsets as they were. */
static bool masked_next(int n, const masked_axis *axis, int64_t *at, int64_t *off)
{
    for (int k = n; k-- > 0; at[k] = 0) {
        for (int p = 0; p < PLACES; p++) off[p] += axis[k].step[p];
        if (++at[k] < axis[k].size) return true;
        for (int p = 0; p < PLACES; p++) off[p] -= axis[k].step[p] * axis[k].size;
    }
    return false;
}
static bool masked_keeps(const eg_tensor *y, const int64_t *off)
{
    for (int m = 2; m < y->count; m++)
        if (!((const uint8_t *)y->in[m]->data)[off[IN_MASK + m - 2]]) return false;
    return true;
}
static void masked_axes(const eg_tensor *y, const eg_tensor *scores, masked_axis *axis)
{
    const masked *a = y->attr;
    for (int r = 0; r < a->scores; r++) {
        axis[r] = (masked_axis){ scores->dim[r], { scores->stride[r] } };
        for (int m = 2; m < y->count; m++) axis[r].step[IN_MASK + m - 2] = y->in[m]->stride[r];
    }
}

/* Scores that are forbidden and not finite: 0 */
#define CLEAR(T)                                                             \
    do {                                                                     \
        do {                                                                 \
            T *s = (T *)(void *)y->data + off[IN_SCORES];                    \
            if (EG_RE(*s) - EG_RE(*s) != 0 && !masked_keeps(y, off)) *s = 0; \
        } while (masked_next(a->scores, axis, at, off));                     \
    } while (0)
static void masked_clear(eg_tensor *y)
{
    const masked *a = y->attr;
    masked_axis axis[EG_RANK_MAX];
    int64_t at[EG_RANK_MAX] = { 0 }, off[PLACES] = { 0 };
    if (!eg_size(y)) return;
    masked_axes(y, y, axis);
    if (y->dtype == EG_F64)
        CLEAR(double);
    else if (y->dtype == EG_F32)
        CLEAR(float);
    else
        CLEAR(double complex);
}

/* x with 0 for what is not finite */
#define PURGE(T)                                          \
    do {                                                  \
        T *v = (T *)(void *)z->data;                      \
        for (int64_t k = 0; k < eg_size(z); k++)          \
            if (EG_RE(v[k]) - EG_RE(v[k]) != 0) v[k] = 0; \
    } while (0)
static eg_tensor *masked_finite(eg_tensor *x)
{
    eg_tensor *z = eg_copy(x);
    if (!eg_ok(z)) return z;
    if (z->dtype == EG_F64)
        PURGE(double);
    else if (z->dtype == EG_F32)
        PURGE(float);
    else
        PURGE(double complex);
    return z;
}

/* y += w v for each v of x that is not finite and each allowed pair that it is in. The axes of x
 * come first, then the others. */
#define ADD(T)                                                                 \
    do {                                                                       \
        do {                                                                   \
            const T v = ((const T *)(const void *)x->data)[from];              \
            if (EG_RE(v) - EG_RE(v) == 0) break;                               \
            do {                                                               \
                if (!masked_keeps(y, off)) continue;                           \
                T *to = (T *)(void *)y->data + off[IN_OTHER];                  \
                *to += ((const T *)(const void *)w->data)[off[IN_SCORES]] * v; \
            } while (masked_next(rest, axis + x->rank, at + x->rank, off));    \
        } while (0);                                                           \
    } while (0)
static void masked_add(eg_tensor *y)
{
    const masked *a = y->attr;
    const eg_tensor *w = y->in[0], *x = y->in[1];
    masked_axis score[EG_RANK_MAX], axis[2 * EG_RANK_MAX] = { { 0 } };
    int64_t at[2 * EG_RANK_MAX] = { 0 }, off[PLACES] = { 0 }, from = 0;
    int rest = 0;
    if (!eg_size(w) || !eg_size(x) || !eg_size(y)) return;
    masked_axes(y, w, score);
    for (int k = 0; k < x->rank; k++) axis[k].size = x->dim[k];
    for (int r = 0; r < a->scores; r++) {
        int k = 0;
        while (k < x->rank && a->label[1][k] != a->score[r]) k++;
        if (k == x->rank) k += rest++;
        axis[k] = score[r];
    }
    for (int r = 0; r < a->rank[2]; r++) {
        int k = 0;
        while (k < x->rank && a->label[1][k] != a->label[2][r]) k++;
        if (k < x->rank) {
            axis[k].step[IN_OTHER] = y->stride[r];
            continue;
        }
        int at_rest = x->rank;
        for (int s = 0; s < a->scores; s++) { /* the others stand in the order of the scores */
            bool mine = false;
            for (int i = 0; i < x->rank; i++) mine |= a->label[1][i] == a->score[s];
            if (mine) continue;
            if (a->score[s] == a->label[2][r]) axis[at_rest].step[IN_OTHER] = y->stride[r];
            at_rest++;
        }
    }
    do {
        from = 0;
        for (int k = 0; k < x->rank; k++) from += at[k] * x->stride[k];
        if (y->dtype == EG_F64)
            ADD(double);
        else if (y->dtype == EG_F32)
            ADD(float);
        else
            ADD(double complex);
    } while (masked_next(x->rank, axis, at, off));
}

/* -- attention_product: y = Σ a b by labels, where a number that is not finite counts in allowed
 * pairs alone; its gradient is itself -- */
static bool masked_shape(eg_tensor *y)
{
    const masked *a = y->attr;
    int64_t dim[EG_RANK_MAX];
    for (int r = 0; r < a->rank[2]; r++)
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < a->rank[k]; i++)
                if (a->label[k][i] == a->label[2][r]) dim[r] = y->in[k]->dim[i];
    return eg__shape(y, (eg_dtype)y->in[0]->dtype, a->rank[2], dim);
}
static bool masked_forward(eg_tensor *y)
{
    const masked *a = y->attr;
    const bool recording = eg_nograd(y->cx, true); /* true: it was off */
    eg_tensor *const x[] = { y->in[0], a->sums ? masked_finite(y->in[1]) : y->in[1] };
    eg_tensor *z = eg_ok(x[1]) ? eg__einsum(2, x, (const uint16_t *[]){ a->label[0], a->label[1] },
                                            a->rank[2], a->label[2])
                               : x[1];
    eg_nograd(y->cx, recording);
    if (!eg_ok(z)) return false;
    eg__copy(y, z);
    if (a->sums)
        masked_add(y);
    else
        masked_clear(y);
    return true;
}
static eg_tensor *masked_apply(const masked *, int masks, eg_tensor *const *mask, eg_tensor *u,
                               eg_tensor *v);
static eg_tensor *masked_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const masked *a = y->attr;
    masked b = *a;
    const bool scores = a->sums && i == 0; /* the cotangent of the weights is over the scores */
    const int first = a->sums && i == 1 ? 0 : 2, second = a->sums ? (i == 0 ? 1 : 2) : 1 - i,
              order[] = { first, second, i };
    eg_tensor *term[] = { y->in[0], y->in[1], g };
    if (i > 1) return NULL;
    b.sums = !scores;
    for (int k = 0; k < 3; k++) {
        b.rank[k] = a->rank[order[k]];
        memcpy(b.label[k], a->label[order[k]], sizeof b.label[k]);
    }
    return masked_apply(&b, y->count - 2, y->in + 2, term[first], term[second]);
}
static eg_tensor *masked_sample(eg_tensor *const *x, bool sums)
{
    masked a = { .scores = 2,
                 .score = { 0, 1 },
                 .sums = sums,
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
    .forward_c128 = masked_forward,
};
const eg_op *const eg__masked_rows[] = { &masked_op, NULL };
static eg_tensor *masked_apply(const masked *a, int masks, eg_tensor *const *mask, eg_tensor *u,
                               eg_tensor *v)
{
    eg_tensor *operand[4] = { u, v };
    for (int m = 0; m < masks; m++) operand[2 + m] = mask[m];
    return eg_apply(&masked_op, a, sizeof *a, 2 + masks, operand);
}

eg_tensor *eg__masked_product(const eg_attending *a, int masks, eg_tensor *const *mask,
                              const eg_labelled_tensor *u, const eg_labelled_tensor *v, int rank,
                              const uint16_t *out)
{
    masked m = { .scores = a->scores, .rank = { u->rank, v->rank, rank }, .sums = out != a->score };
    memcpy(m.score, a->score, sizeof m.score);
    memcpy(m.label[0], u->label, (size_t)u->rank * sizeof *u->label);
    memcpy(m.label[1], v->label, (size_t)v->rank * sizeof *v->label);
    memcpy(m.label[2], out, (size_t)rank * sizeof *out);
    return masked_apply(&m, masks, mask, u->x, v->x);
}

/* -- when -- */
bool eg__attend_careful(const eg_attending *a, eg_tensor *const *x, const eg_tensor *g)
{
    if (!a->masked && !x[EG_ATT_KEEP] && !x[EG_ATT_KEEP2] && !x[EG_ATT_BIAS]) return false;
    for (int t = EG_ATT_Q; !g && t <= EG_ATT_V; t++)
        if (x[t] && !eg__tame(x[t])) return true;
    return g && !eg__tame(g);
}
