/* einsum.c: y[out] = alpha Σ Π x_k[labels_k], the operation on labels.
 *
 * Its gradient is an einsum again: the cotangent of operand i is the einsum of g and the other
 * operands, with the labels of the output and of operand i exchanged. Labels may repeat in operands
 * and in the output, so that this holds for diagonals too ("ii->i" has the cotangent "i->ii"). The
 * cotangent is constant along a label that only operand i has (over which the einsum sums); it is
 * broadcast along that axis. */
#include "einsum/einsum.h"
#include <ctype.h>
#include <string.h>

const uint16_t *eg__einsum_attr_labels(const void *attr)
{
    return ((const eg_einsum_attr *)attr)->label;
}
double eg__einsum_alpha(const eg_tensor *y) { return ((const eg_einsum_attr *)y->attr)->alpha; }
int64_t eg__einsum_limit(const eg_tensor *y) { return ((const eg_einsum_attr *)y->attr)->limit; }
const uint16_t *eg__einsum_labels_of(const eg_tensor *y, int k)
{
    const uint16_t *l = ((const eg_einsum_attr *)y->attr)->label;
    for (int j = 0; j < k; j++) l += y->in[j]->rank;
    return l;
}
static const uint16_t *labels_of(const eg_tensor *y, int k) { return eg__einsum_labels_of(y, k); }
static const uint16_t *labels_out(const eg_tensor *y) { return labels_of(y, y->count); }

bool eg__labels_distinct(const uint16_t *label, int n)
{
    for (int k = 1; k < n; k++)
        if (eg__label_at(label, k, label[k]) >= 0) return false;
    return true;
}

/* -- the result: its sizes, and its layout, which depends only on the labels. Trailing batch labels
 * (those of every operand) are stored outermost, so that the last axis in memory is one that a
 * product runs over: "->ijbh" is stored as bhij. If one operand has every label of the result, as
 * in "bldw,wd->bld", or if nothing is summed, as in "in,jn->ijn", there is no product of matrices,
 * and the result is row-major -- */
static bool covers_result(const eg_tensor *x, const uint16_t *label, int rank, const uint16_t *out)
{
    bool all = true;
    for (int r = 0; r < rank && all; r++) all = eg__label_at(label, x->rank, out[r]) >= 0;
    return all;
}
static bool sums_labels(int count, eg_tensor *const *x, const uint16_t *const *label, int rank,
                        const uint16_t *out)
{
    for (int k = 0; k < count; k++)
        for (int r = 0; r < x[k]->rank; r++)
            if (eg__label_at(out, rank, label[k][r]) < 0) return true;
    return false;
}
bool eg__einsum_layout(int count, eg_tensor *const *x, const uint16_t *const *label, int rank,
                       const uint16_t *out, int64_t *dim, int64_t *stride)
{
    int order[EG_RANK_MAX];
    for (int r = 0; r < rank; r++)
        for (int k = 0; k < count; k++) {
            const int at = eg__label_at(label[k], x[k]->rank, out[r]);
            if (at >= 0) {
                dim[r] = x[k]->dim[at];
                break;
            }
        }
    int batch = rank;
    bool product = count > 1 && sums_labels(count, x, label, rank, out);
    for (int k = 0; k < count; k++) product &= !covers_result(x[k], label[k], rank, out);
    while (product && batch > 0) {
        bool everywhere = true;
        for (int k = 0; k < count && everywhere; k++)
            everywhere = eg__label_at(label[k], x[k]->rank, out[batch - 1]) >= 0;
        if (!everywhere) break;
        batch--;
    }
    for (int r = 0; r < rank; r++) order[r] = r + batch < rank ? r + batch : r + batch - rank;
    bool fits = true;
    int64_t w = 1, bytes = eg__width[eg__einsum_type(count, x)];
    for (int k = rank; k-- > 0;) {
        stride[order[k]] = w;
        const int64_t size = dim[order[k]] ? dim[order[k]] : 1;
        if (__builtin_mul_overflow(w, size, &w) || __builtin_mul_overflow(bytes, size, &bytes))
            fits = false;
    }
    return fits;
}

eg_dtype eg__einsum_reads(int count, eg_tensor *const *x)
{
    for (int k = 0; k < count; k++)
        if (!eg__is_half(x[k]->dtype)) return (eg_dtype)x[k]->dtype;
    return EG_F32;
}
eg_dtype eg__einsum_type(int count, eg_tensor *const *x)
{
    const eg_dtype read = eg__einsum_reads(count, x);
    return eg__is_inexact(read) ? read : EG_I64;
}

bool eg__einsum_shape(eg_tensor *y, int count, const uint16_t *const *label, int rank,
                      const uint16_t *out)
{
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    eg__einsum_layout(count, y->in, label, rank, out, dim, stride);
    if (!eg__shape(y, eg__einsum_type(count, y->in), rank, dim)) return false;
    if (rank) memcpy(y->stride, stride, (size_t)rank * sizeof *stride);
    return true;
}

/* True if the results of the pairs are kept for the gradient. */
static bool is_network(const eg_ctx *cx, int count, eg_tensor *const *x)
{
    return count > 2 && cx->recording && eg__is_float(eg__einsum_reads(count, x));
}

/* -- einsum: y[out] = alpha Σ Π x_k,  dx_i = alpha einsum(g, others -> labels of i) ------------ */
/* By a planned call, shape and strides are those of the plan; else they are derived from the
 * labels. */
static bool einsum_shape(eg_tensor *y)
{
    const eg_einsum_attr *l = y->attr;
    const uint16_t *label[EG_EINSUM_MAX], *next = l->label;
    const eg_call *c = eg__call_saved(y);
    if (c && !eg__shape_known(y, c->dtype, c->rank, c->dim, c->stride)) return false;
    if (c && c->data) {
        y->data = c->data;
        y->own.bytes = (size_t)eg__count(y->rank, y->dim) * eg__width[y->dtype];
        y->each = (int64_t)y->own.bytes;
    }
    if (c) return true;
    for (int k = 0; k < y->count; next += y->in[k++]->rank) label[k] = next;
    return eg__einsum_shape(y, y->count, label, l->out_rank, next);
}
/* Returns the program of a node that eg_apply made, not a planned call; NULL after an error. */
static const eg_program *program_of(const eg_tensor *y)
{
    const uint16_t *label[EG_EINSUM_MAX];
    for (int k = 0; k < y->count; k++) label[k] = labels_of(y, k);
    return eg__einsum_program(y->cx, y->count, y->in, label,
                              &(eg_labelled){ y->rank, y->dim, y->stride, labels_out(y) },
                              &(eg_order_args){ .limit = eg__einsum_limit(y), .steps = -1 });
}
/* By a planned call, the program runs on the call's operands (c->x) or the node's; with copies, on
 * all of them at once. */
static bool einsum_forward(eg_tensor *y)
{
    const eg_call *c = eg__call_saved(y);
    const eg_tensor *all = eg__copies_all(y);
    const double alpha = eg__einsum_alpha(y);
    if (c && c->x && all) return eg__einsum_run_copies(all, c->program, c->count, c->x);
    if (c && c->x)
        return eg__einsum_run(y->cx, c->program, c->count, c->x, y->data, alpha, false, NULL);
    if (c && all) return eg__einsum_run_copies(all, c->program, y->count, all->in);
    if (c)
        return eg__einsum_run(y->cx, c->program, y->count, y->in, y->data, alpha, false, c->kept);
    if (is_network(y->cx, y->count, y->in) && !eg__network_save(y)) return false;
    const eg_program *p = program_of(y);
    if (p && all) return eg__einsum_run_copies(all, p, y->count, all->in);
    return p && eg__einsum_run(y->cx, p, y->count, y->in, y->data, alpha, false, NULL);
}
static void *einsum_snapshot(eg_tensor *y)
{
    return eg__call_snapshot(y, eg__call_saved(y) ? NULL : program_of(y));
}
/* Returns alpha times the einsum of `in` with the labels of operand i. Afterwards the result is
 * broadcast along labels that only operand i has, and written to the diagonal for labels that
 * operand i repeats. */
static eg_tensor *cotangent_of(const eg_tensor *y, int i, const eg_plan_key *key, double alpha,
                               int n, eg_tensor *const *in, const uint16_t *const *label)
{
    const uint16_t *mine = labels_of(y, i);
    const eg_tensor *x = y->in[i];
    /* operand i's distinct labels: those that other operands or the output also have, and all */
    uint16_t have[EG_RANK_MAX], all[EG_RANK_MAX];
    int64_t dim[EG_RANK_MAX];
    int nhave = 0, nall = 0;
    for (int k = 0; k < x->rank; k++) {
        if (eg__label_at(all, nall, mine[k]) >= 0) continue;
        dim[nall] = x->dim[k];
        all[nall++] = mine[k];
        for (int j = 0; j < n; j++)
            if (eg__label_at(label[j], in[j]->rank, mine[k]) >= 0) {
                have[nhave++] = mine[k];
                break;
            }
    }
    if (nhave == nall)
        return eg__einsum_keyed(key, &eg__any_order, alpha, n, in, label, x->rank, mine);
    eg_tensor *dx = eg__einsum_keyed(NULL, &eg__any_order, alpha, n, in, label, nhave, have);
    for (int k = 0; k < nall; k++)
        if (eg__label_at(have, nhave, all[k]) < 0) dx = eg_unsqueeze(dx, k);
    dx = eg_expand_n(dx, nall, dim);
    return nall == x->rank ? dx : eg__einsum(1, &dx, (const uint16_t *[]){ all }, x->rank, mine);
}
eg_tensor *eg__einsum_cotangent(const eg_tensor *y, int i, double alpha, eg_tensor *const *in,
                                const uint16_t *const *label)
{
    return cotangent_of(y, i, NULL, alpha, 2, in, label);
}
/* Smaller cotangents in another order than that of their operand take less time than a plan. */
enum { REORDERED = 4096 };
/* Sets order[] to the order of axes, outermost first, in which a cotangent is added to x's memory:
 * that of overlapping windows, or of a large operand that is permuted. False if it is row-major. */
static bool einsum_order(const eg_tensor *x, int *order)
{
    int by_step[EG_RANK_MAX], at = 0;
    if (eg__window_order(x, order)) return true;
    if (eg_size(x) < REORDERED) return false;
    const int n = eg__axes_by_step(x, -1, by_step);
    bool permuted = false;
    for (int r = 0; r < x->rank; r++)
        if (x->dim[r] == 1) order[at++] = r;
    for (int k = n; k-- > 0; order[at++] = by_step[k]) {
        if (!x->stride[by_step[k]]) return false;
        permuted |= k < n - 1 && by_step[k] < by_step[k + 1];
    }
    return permuted;
}
/* The cotangent of such an operand, if it is a product without a sum: then its layout is that
 * order, not that of the labels. NULL otherwise. */
static eg_tensor *cotangent_in_order(const eg_tensor *y, int i, eg_tensor *const *in,
                                     const uint16_t *const *label)
{
    const eg_tensor *x = y->in[i];
    const uint16_t *mine = labels_of(y, i);
    uint16_t stored[EG_RANK_MAX];
    int order[EG_RANK_MAX], back[EG_RANK_MAX];
    if (!eg__labels_distinct(mine, x->rank) || !einsum_order(x, order)) return NULL;
    if (sums_labels(2, in, label, x->rank, mine)) return NULL;
    for (int r = 0; r < x->rank; r++) {
        if (eg__label_at(label[0], in[0]->rank, mine[r]) < 0 &&
            eg__label_at(label[1], in[1]->rank, mine[r]) < 0)
            return NULL;
        stored[r] = mine[order[r]];
        back[order[r]] = r;
    }
    eg_tensor *dx =
        eg__einsum_keyed(NULL, &eg__any_order, eg__einsum_alpha(y), 2, in, label, x->rank, stored);
    return eg_permute_n(dx, x->rank, back);
}
/* For one or two operands: the einsum of g and the other operand. */
static eg_tensor *einsum_rule(eg_tensor *y, eg_tensor *g, int i)
{
    if (y->count > 2) return eg__network_cotangent(y, g, i);
    const eg_einsum_attr *l = y->attr;
    const int n = y->count, other = 1 - i;
    eg_tensor *const in[] = { g, n > 1 ? y->in[other] : NULL };
    const uint16_t *const label[] = { labels_out(y), n > 1 ? labels_of(y, other) : NULL };
    const eg_plan_key w = { EG_KEY_COTANGENT + i, n, y->attr_size - EG_EINSUM_HEAD, l->label, in };
    if (!eg__check_taken(y->cx, "einsum", EG_TAKES_HALVES, n, in)) return eg__poison(y->cx);
    eg_tensor *ordered = n > 1 ? cotangent_in_order(y, i, in, label) : NULL;
    if (ordered) return ordered;
    eg_tensor *again = n > 1 ? eg__einsum_lookup(y->cx, &w, l->alpha) : NULL;
    return again ? again : cotangent_of(y, i, n > 1 ? &w : NULL, l->alpha, n, in, label);
}
/* Returns x, whose axes have these labels, with its axes in the order of operand i of y; bit r of
 * *has is set if it has axis r of operand i. */
static eg_tensor *einsum_ordered(const eg_tensor *y, int i, eg_tensor *x, const uint16_t *label,
                                 uint32_t *has)
{
    int order[EG_RANK_MAX], n = 0;
    *has = 0;
    for (int r = 0; r < y->in[i]->rank; r++) {
        const int at = eg__label_at(label, x->rank, labels_of(y, i)[r]);
        if (at < 0) continue;
        order[n++] = at;
        *has |= (uint32_t)1 << r;
    }
    return eg_permute_n(x, n, order);
}
bool eg__einsum_factors(const eg_tensor *y, eg_tensor *g, int i, eg_tensor *factor[2],
                        uint32_t axes[2])
{
    int order[EG_RANK_MAX];
    if (!y->op || y->op->rule != einsum_rule || y->count != 2 || eg__einsum_alpha(y) != 1)
        return false;
    const eg_tensor *x = y->in[i];
    eg_tensor *const in[] = { g, y->in[1 - i] };
    const uint16_t *const label[] = { labels_out(y), labels_of(y, 1 - i) }, *mine = labels_of(y, i);
    if (eg_size(x) < REORDERED || !eg__window_order(x, order) ||
        !eg__labels_distinct(mine, x->rank))
        return false;
    for (int k = 0; k < 2; k++) {
        if (in[k]->dtype != x->dtype || !eg__labels_distinct(label[k], in[k]->rank)) return false;
        for (int r = 0; r < in[k]->rank; r++)
            if (eg__label_at(mine, x->rank, label[k][r]) < 0) return false;
    }
    for (int r = 0; r < x->rank; r++)
        if (eg__label_at(label[0], g->rank, mine[r]) < 0 &&
            eg__label_at(label[1], in[1]->rank, mine[r]) < 0)
            return false;
    for (int k = 0; k < 2; k++) factor[k] = einsum_ordered(y, i, in[k], label[k], &axes[k]);
    return true;
}

/* Σ_i einsum(x_1 … dx_i … x_n): linear in each operand */
static eg_tensor *einsum_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const eg_einsum_attr *l = y->attr;
    const uint16_t *label[2];
    eg_tensor *in[2], *sum = NULL;
    if (y->count > 2) return eg__network_tangent(y, dx);
    for (int k = 0; k < y->count; k++) {
        in[k] = y->in[k];
        label[k] = labels_of(y, k);
    }
    for (int i = 0; i < y->count; i++) {
        if (!dx[i]) continue;
        in[i] = dx[i];
        eg_tensor *part = eg__einsum_keyed(NULL, &eg__any_order, l->alpha, y->count, in, label,
                                           l->out_rank, labels_out(y));
        in[i] = y->in[i];
        sum = sum ? eg__add(sum, part) : part;
    }
    return sum;
}

/* Writes the letters of n labels at `at`: those of the spec or, for names, unused letters, which
 * are stored in name[]. Returns the end. */
static char *einsum_put(const eg_tensor *y, char *at, const uint16_t *label, int n, uint16_t *name)
{
    for (int k = 0; k < n; k++) {
        int c = label[k] < EG_LETTERS && isalpha(label[k]) ? label[k] : 0;
        for (int l = 'a'; !c && l <= 'z'; l++)
            if (name[l] == label[k] + 1) c = l;
        for (int l = 'a'; !c && l <= 'z'; l++) {
            bool taken = name[l] != 0;
            for (int o = 0; o <= y->count && !taken; o++)
                taken = eg__label_at(labels_of(y, o), o < y->count ? y->in[o]->rank : y->rank,
                                     (uint16_t)l) >= 0;
            if (!taken) {
                c = l;
                name[l] = (uint16_t)(label[k] + 1);
            }
        }
        *at++ = (char)(c ? c : '?');
    }
    return at;
}
/* Writes the string of a node, "ij,jk->ik", if `size` suffices. */
const char *eg__einsum_text(const eg_tensor *y, char *out, size_t size)
{
    uint16_t name[EG_LETTERS] = { 0 };
    size_t need = 3 + (size_t)y->rank;
    if (!y->op || y->op->rule != einsum_rule || !y->count) return NULL;
    for (int k = 0; k < y->count; k++) need += (size_t)y->in[k]->rank + 1;
    if (need > size) return NULL;
    char *at = out;
    for (int k = 0; k < y->count; k++) {
        at = einsum_put(y, at, labels_of(y, k), y->in[k]->rank, name);
        *at++ = k < y->count - 1 ? ',' : '-';
    }
    *at++ = '>';
    *einsum_put(y, at, labels_out(y), y->rank, name) = 0;
    return out;
}

/* Counts the multiply-adds of the order in which the node was made, or would be made now. */
static void einsum_cost(const eg_tensor *y, eg_op_cost *cost)
{
    const uint16_t *label[EG_EINSUM_MAX];
    for (int k = 0; k < y->count; k++) label[k] = labels_of(y, k);
    eg__network_cost(y, y->count, label,
                     &(eg_labelled){ y->rank, y->dim, y->stride, labels_out(y) }, cost);
}

static eg_tensor *ij_jk(eg_tensor *const *x) { return eg_einsum("ij,jk->ik", x[0], x[1]); }
static eg_tensor *einsum_scores(eg_tensor *const *x)
{
    return eg_einsum("ibhd,jbhd->ijbh", x[0], x[1]);
}
static eg_tensor *einsum_trace(eg_tensor *const *x) { return eg_einsum("iij->j", x[0]); }
static eg_tensor *embed(eg_tensor *const *x) { return eg_einsum("i->ii", x[0]); }
static eg_tensor *einsum_unshared(eg_tensor *const *x) { return eg_einsum("ijj,k->i", x[0], x[1]); }
static eg_tensor *hyper(eg_tensor *const *x)
{
    return eg_einsum("ia,ib,ic->abc", x[0], x[1], x[2]);
}
static eg_tensor *chained(eg_tensor *const *x)
{
    return eg_einsum("ab,bc,cd,->ad", x[0], x[1], x[2], x[3]);
}
/* The tree for some of the gradients has the axes of a kept value in another order. */
static eg_tensor *einsum_reordered(eg_tensor *const *x)
{
    return eg_einsum("bdc,bd,a,dba->ac", x[0], x[1], x[2], x[3]);
}
static eg_tensor *einsum_merged(eg_tensor *const *x)
{
    return eg_einsum("b l (h=2 d), h d m -> (b l) m", x[0], x[1]);
}
static eg_tensor *scaled(const char *spec, int count, eg_tensor *const *x)
{
    return eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                             .spec = spec,
                                             .count = count,
                                             .operands = x,
                                             .alpha = -0.7 });
}
static eg_tensor *einsum_scaled(eg_tensor *const *x) { return scaled("ij->ji", 1, x); }
static eg_tensor *einsum_scaled_pair(eg_tensor *const *x) { return scaled("ijj,jk->ik", 2, x); }
static eg_tensor *einsum_scaled_chain(eg_tensor *const *x) { return scaled("ab,bc,c->a", 3, x); }
static const eg_sample einsum_samples[] = {
    { ij_jk, "3x4, 4x2", 0, 0 },
    { einsum_scores, "3x2x2x4, 2x2x2x4", 0, 0 },
    { einsum_trace, "3x3x2", 0, 0 },
    { embed, "4", 0, 0 },
    { einsum_unshared, "2x3x3, 4", 0, 0 },
    { hyper, "3x2, 3x4, 3x2", 0, 0 },
    { chained, "2x3, 3x4, 4x2, ()", 0, 0 },
    { einsum_reordered, "3x1x2, 3x1, 2, 1x3x2", 0, 0 },
    { einsum_merged, "2x3x4, 2x2x3", 0, 0 },
    { einsum_scaled, "3x4", 0, 0 },
    { einsum_scaled_pair, "2x3x3, 3x4", 0, 0 },
    { einsum_scaled_chain, "2x3, 3x4, 4", 0, 0 },
    { 0 },
};
const eg_op eg__einsum_op = {
    .name = "einsum",
    .equation = "y[out] = alpha sum of prod x_k[in_k]",
    .gradient = "dx_i[in_i] = alpha einsum(g, others)",
    .arity = -1,
    .shape = einsum_shape,
    .forward = einsum_forward,
    .rule = einsum_rule,
    .uses = EG_USES_OTHERS,
    .samples = einsum_samples,
    .jvp = einsum_jvp,
    .forward_c128 = einsum_forward,
    .cost = einsum_cost,
    .snapshot = einsum_snapshot,
    .takes = EG_TAKES_HALVES,
};
const eg_op *const eg__einsum_ops[] = { &eg__einsum_op, NULL };
