/* head_sums.c: measures of attention without its weights in memory. All of them are computed from
 * log-sum-exps of attentions, l_i = ln Σ_j e^s_ij, with a_ij = e^(s_ij − l_i):
 *
 *   mass on a region   Σ_{j in R} a_ij = e^(l_i(R) − l_i)
 *       l(R) is the log-sum-exp with R as an additional mask
 *   entropy            −Σ_j a_ij ln a_ij = l_i − scale q_i · Σ_j a_ij k_j
 *       since s = scale q·k; the sum is an attention whose values are the keys
 *   overlap of heads   Σ_j a^g_ij a^h_ij = e^(L^gh_i − l^g_i − l^h_i)
 *       L^gh is the log-sum-exp of s^g + s^h, a product of width 2 d, over the keys that both
 *       heads may see */
#include <eingrad/heads.h>
#include <eingrad/grad.h>
#include "nn.h"
#include <math.h>
#include <stdio.h>

enum { Q, K, V, Y };
typedef struct measured {
    eg_ctx *cx;
    const char *who;
    eg_attention_args o; /* the caller's, without the outputs */
    const eg_spec *spec;
    const eg_spec *rows;    /* q's indices without those that are summed with k's */
    int dots, dot_q, dot_k; /* the number of these; the axis of the last one in q and in k */
    bool region;            /* a region may also read tensors of .with */
} measured;

static bool measure_has(const measured *p, int term, const char *name)
{
    return eg_spec_find_item(p->spec, term, name) >= 0;
}
static const char *measure_name(const measured *p, int term, int item)
{
    return p->spec->index[p->spec->term[term].item[item].index].name;
}

/* Sets the context, that of the first operand that is not NULL. True if query, key and value are
 * there; else records an error in it. */
static bool measure_operands(measured *p)
{
    static const char *const called[] = { "query", "key", "value" };
    eg_tensor *const x[] = { p->o.q, p->o.k, p->o.v };
    for (int k = 0; k < 3 && !p->cx; k++) p->cx = eg_context(x[k]);
    for (int k = 0; k < 3 && p->cx; k++)
        if (!eg_ok(x[k]))
            eg_fail_as(p->cx, EG_ERROR_MISUSE, "%s: the %s is %s", p->who, called[k],
                       x[k] ? "failed or gone with its scope" : "NULL");
    return p->cx && !eg_error(p->cx);
}

/* Takes the options of an attention and sorts its indices. False after an error: the string cannot
 * be read, or an option requires scores in memory. */
static bool measure_begin(measured *p, const char *who, const eg_attention_args *given)
{
    *p = (measured){ .who = who, .o = { .size = sizeof p->o } };
    eg_options(&p->o, sizeof p->o, given);
    if (!measure_operands(p)) return false;
    p->o.weights = p->o.dropped = p->o.scores = p->o.lse = p->o.max_scores = NULL;
    p->o.empty = NULL;
    p->o.dropout = 0; /* the weights before dropout are measured */
    if (p->o.score_fn || p->o.weights_fn) {
        eg_fail_as(p->cx, EG_ERROR_UNSUPPORTED,
                   "%s: a %s function has its %s in memory; ask eg_attention for .weights", who,
                   p->o.score_fn ? ".score_fn" : ".weights_fn",
                   p->o.score_fn ? "scores" : "weights");
        return false;
    }
    if (p->o.no_softmax) {
        eg_fail_as(p->cx, EG_ERROR_UNSUPPORTED,
                   "%s: .no_softmax leaves no log-sum-exp; ask eg_attention for .weights", who);
        return false;
    }
    p->spec = eg_spec_parse(p->cx, who, p->o.spec);
    if (!eg__nn_only_indices(p->spec, 3, true,
                             "three terms of letters and an output are needed, as in "
                             "\"bihd,bjhd,bjhe->bihe\", without groups"))
        return false;
    p->rows = eg_spec_of_term(p->spec, Q);
    for (int k = 0; k < p->spec->term[Q].items; k++) {
        const char *x = measure_name(p, Q, k);
        if (!measure_has(p, K, x) || measure_has(p, V, x) || measure_has(p, Y, x)) continue;
        p->dots++;
        p->dot_q = k;
        p->dot_k = eg_spec_find_item(p->spec, K, x);
        p->rows = eg_spec_replace(p->rows, 0, x, "");
    }
    const eg_spec *axes = p->rows; /* the axes of the weights: those of the rows, then the keys */
    for (int k = 0; k < p->spec->term[K].items; k++) {
        const char *x = measure_name(p, K, k);
        if (!measure_has(p, Q, x) && measure_has(p, V, x)) axes = eg_spec_insert(axes, 0, -1, x);
    }
    p->o.weights_axes = eg_spec_items(axes, 0);
    return p->o.weights_axes != NULL;
}
/* True if the scores are only q·k, with one row for each row of the query, as entropy and
 * similarity require; else records an error. */
static bool measure_plain(const measured *p)
{
    if (p->o.bias.x || p->o.alibi.x || p->o.score || p->o.sink.x) {
        eg_fail_as(p->cx, EG_ERROR_UNSUPPORTED,
                   "%s: %s is no part of q·k; ask eg_attention for .weights", p->who,
                   p->o.bias.x    ? "a .bias"
                   : p->o.alibi.x ? ".alibi"
                   : p->o.score   ? "a .score"
                                  : "a .sink");
        return false;
    }
    for (int k = 0; k < p->spec->term[K].items; k++) {
        const char *x = measure_name(p, K, k);
        if (measure_has(p, Q, x) || !measure_has(p, Y, x)) continue;
        eg_spec_fail(p->spec, EG_ERROR_UNSUPPORTED, K, k,
                     "'%s' is in key and output, but not in the query; ask eg_attention for "
                     ".weights",
                     x);
        return false;
    }
    return true;
}
/* The log-sum-exp does not depend on the values, so one element of each value suffices. */
static eg_tensor *measure_log_sum(measured *p, const char *where, eg_tensor *q, eg_tensor *k,
                                  double scale)
{
    eg_tensor *l = NULL;
    eg_attention_args o = p->o;
    const eg_spec_term *v = &p->spec->term[V];
    for (int x = 0; x < v->items && eg_rank(o.v) == v->items; x++)
        if (!measure_has(p, Q, measure_name(p, V, x)) &&
            !measure_has(p, K, measure_name(p, V, x)) && eg_dim(o.v, x) > 1)
            o.v = eg_slice_axis(o.v, x, 0, 1, 1);
    o.where = where;
    const eg_formula *mask = where ? eg_formula_parse(p->cx, p->who, where) : NULL,
                     *score = o.score ? eg_formula_score(p->cx, p->who, o.score) : NULL;
    memset(o.with, 0, sizeof o.with);
    /* a region may read tensors that .where does not read */
    for (int x = 0, n = 0; x < 8 && p->o.with[x].name; x++)
        if (!p->region || eg_formula_reads(mask, p->o.with[x].name) ||
            eg_formula_reads(score, p->o.with[x].name))
            o.with[n++] = p->o.with[x];
    o.q = q;
    o.k = k;
    o.scale = scale;
    o.lse = &l;
    eg_tensor *y = eg_attention_with(&o);
    return eg_ok(y) ? l : y;
}
/* Returns l ≠ −inf. The −inf is a leaf, since eg_trace tests the results of operations. */
static eg_tensor *has_allowed_key(eg_tensor *l)
{
    return eg_ne(l, eg_full_n(eg_context(l), eg_type(l), -INFINITY, 0, NULL));
}
/* Returns e^x where l is finite or NaN, and 0 where every pair is forbidden (l = −inf). */
static eg_tensor *exp_where(eg_tensor *l, eg_tensor *x)
{
    eg_tensor *zero = eg_zeros_like(l), *some = has_allowed_key(l);
    return eg_where(some, eg_exp(eg_where(some, x, zero)), zero);
}

/* Returns the only index of the two expressions that the query has, with `only` the only one of
 * these that key and value lack; NULL if there is none or several. */
static const char *moved_index(const measured *p, const eg_formula *const *f, bool only)
{
    const char *found = NULL;
    for (int k = 0; k < 2; k++)
        for (int x = 0; f[k] && x < f[k]->indices; x++) {
            const char *name = f[k]->index[x];
            if (!measure_has(p, Q, name) ||
                (only && (measure_has(p, K, name) || measure_has(p, V, name))))
                continue;
            if (found && strcmp(found, name)) return NULL;
            found = name;
        }
    return found;
}
/* Returns the index of the two expressions that the offset applies to; NULL if it is not known. */
static const char *offset_index(const measured *p, const eg_formula *const *f)
{
    const char *i = p->o.offset_letter;
    if (!i) i = moved_index(p, f, true);
    return i ? i : moved_index(p, f, false);
}
/* Sets .offset_letter to the index that the offset applies to, one of .where, region and score
 * together. Returns the offset for .where and score alone, which may lack that index. */
static int64_t offset_without_region(measured *p, const eg_formula *mask, const eg_formula *both,
                                     const eg_formula *score)
{
    const eg_formula *const f[] = { both, score };
    if (!p->o.offset) return 0;
    const char *i = p->o.offset_letter = offset_index(p, f);
    const bool read = i && (eg_formula_has(mask, i) || eg_formula_has(score, i));
    return !i || read || p->o.alibi.x ? p->o.offset : 0;
}

eg_tensor *eg_attention_mass_with(const eg_attention_args *given, const char *region)
{
    measured p;
    if (!measure_begin(&p, "attention_mass", given))
        return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_mass: the query is NULL");
    if (!region) return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_mass: the region is NULL");
    p.region = true;
    const eg_formula *r = eg_formula_parse(p.cx, p.who, region),
                     *mask = p.o.where ? eg_formula_parse(p.cx, p.who, p.o.where) : NULL,
                     *both = eg_formula_and(mask, r);
    const eg_formula *score = p.o.score ? eg_formula_score(p.cx, p.who, p.o.score) : NULL;
    for (int x = 0; x < 8 && p.o.with[x].name; x++)
        if (!eg_formula_reads(both, p.o.with[x].name) && !eg_formula_reads(score, p.o.with[x].name))
            eg_fail_as(p.cx, EG_ERROR_NOTATION,
                       "attention_mass: '%.40s' of .with is not in .where, .score or the region",
                       p.o.with[x].name);
    if (!both || eg_error(p.cx)) return eg__nn_poison(p.cx);
    const int64_t offset = p.o.offset;
    p.o.offset = offset_without_region(&p, mask, both, score);
    eg_tensor *all = measure_log_sum(&p, p.o.where, p.o.q, p.o.k, p.o.scale);
    p.o.offset = offset;
    p.o.sink = (eg_masked){ 0 }; /* the sink is part of the denominator, but of no region */
    eg_tensor *in = measure_log_sum(&p, both->text, p.o.q, p.o.k, p.o.scale);
    return exp_where(all, eg_sub(in, all));
}

/* Returns Σ_j a_ij s_ij for each row, by the attention whose values are the keys:
 * scale q_i · Σ_j a_ij k_j. Its gradient is one of first order, which keeps no weights. Sets *l to
 * the log-sum-exps. */
static eg_tensor *measure_mean_score(measured *p, eg_tensor **l)
{
    eg_attention_args o = p->o;
    const eg_spec *all =
        eg_spec_bind_called(p->spec, 3, (eg_tensor *[]){ o.q, o.k, o.v },
                            (const char *[]){ "the query", "the key", "the value" });
    if (!all) return *l = eg__nn_poison(p->cx);
    const eg_spec *of_q = eg_spec_of_term(all, Q), *of_k = eg_spec_of_term(all, K);
    const eg_spec *dot_q = of_q, *of_v = of_k, *of_y = p->rows;
    double width = 1; /* of the sum q·k */
    for (int x = 0; x < p->spec->term[Q].items; x++) {
        const char *name = measure_name(p, Q, x);
        if (eg_spec_axis(p->rows, 0, name) >= 0) continue; /* else it is summed in q·k */
        const char *other = eg_spec_unused(all, "e");
        width *= (double)eg_dim(o.q, x);
        all = eg_spec_insert(all, V, -1, other);
        dot_q = eg_spec_rename(dot_q, name, other);
        of_v = eg_spec_rename(of_v, name, other);
        of_y = eg_spec_insert(of_y, 0, -1, other);
    }
    const double scale = eg_option(o.scale, 1 / sqrt(width));
    const eg_spec *spec = eg_spec_join(3, (const eg_spec *[]){ of_q, of_k, of_v }, of_y);
    *l = NULL;
    o.spec = spec ? spec->text : NULL;
    o.v = o.k;
    o.lse = l;
    eg_tensor *y = eg_attention_with(&o);
    if (!eg_ok(y)) return *l = y;
    return eg_scale(eg_einsum(eg__nn_joined(dot_q, of_y, p->rows), o.q, y), scale);
}

eg_tensor *eg_attention_entropy_with(const eg_attention_args *given)
{
    measured p;
    if (!measure_begin(&p, "attention_entropy", given))
        return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_entropy: the query is NULL");
    if (!measure_plain(&p)) return eg__nn_poison(p.cx);
    eg_tensor *l, *mean = measure_mean_score(&p, &l), *zero = eg_zeros_like(l);
    eg_tensor *some = has_allowed_key(l);
    return eg_where(some, eg_sub(eg_where(some, l, zero), mean), zero);
}

/* Returns element g along the axis `head` of a mask's tensor, repeated for each head; NULL if the
 * mask has no such axis. */
static eg_tensor *measure_of_head(const measured *p, eg_masked mask, const char *head, int64_t g)
{
    const eg_spec *s = mask.axes && mask.x ? eg_spec_like(p->spec, mask.axes) : NULL;
    const int axis = s ? eg_spec_axis(s, 0, head) : -1;
    if (axis < 0 || !eg_ok(mask.x) || axis >= eg_rank(mask.x)) return NULL;
    return eg_expand_n(eg_slice_axis(mask.x, axis, g, g + 1, 1), eg_rank(mask.x), eg_dims(mask.x));
}
/* Sets the masks of p to pairs that both head g and the respective head may see, by the masks
 * `given`. False after an error. */
static bool measure_both(measured *p, const eg_attention_args *given, const char *head, int64_t g)
{
    char number[24];
    const eg_formula *f = given->where ? eg_formula_parse(p->cx, p->who, given->where) : NULL;
    const char *moved = offset_index(p, (const eg_formula *[]){ f, NULL });
    snprintf(number, sizeof number, "%lld",
             (long long)(g + (moved && !strcmp(moved, head) ? given->offset : 0)));
    if (eg_formula_has(f, head)) {
        f = eg_formula_and(f, eg_formula_replace(f, head, number, NULL));
        p->o.where = f ? f->text : given->where;
    }
    eg_tensor *x = measure_of_head(p, given->keep, head, g);
    if (x && eg_type(x) != EG_F32 && eg_type(x) != EG_F64) /* eg_attention refuses floats */
        p->o.keep.x = eg_and(eg_cast(given->keep.x, EG_BOOL), eg_cast(x, EG_BOOL));
    x = measure_of_head(p, given->lengths, head, g);
    if (x) p->o.lengths.x = eg_where(eg_lt(given->lengths.x, x), given->lengths.x, x);
    return !eg_error(p->cx);
}

/* For each head g the joint log-sum-exps L^gh with all heads h; the diagonal L^gg/2 normalises the
 * overlaps. */
eg_tensor *eg_attention_similarity_with(const eg_attention_args *given, const char *head)
{
    measured p;
    if (!measure_begin(&p, "attention_similarity", given))
        return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_similarity: the query is NULL");
    const int hq = eg_spec_find_item(p.spec, Q, head), hk = eg_spec_find_item(p.spec, K, head);
    if (hq < 0 || hk < 0 || !measure_has(&p, Y, head))
        return eg_fail_as(
            p.cx, EG_ERROR_INDEX,
            "attention_similarity: query, key and output have no common index '%.40s'",
            head ? head : "");
    if (p.dots != 1)
        return eg_spec_fail(p.spec, EG_ERROR_UNSUPPORTED, -1, -1,
                            "one index must be summed between query and key, not %d", p.dots);
    if (!measure_plain(&p)) return eg__nn_poison(p.cx);
    const int rank_q = eg_rank(p.o.q), rank_k = eg_rank(p.o.k);
    if ((hq >= rank_q || p.dot_q >= rank_q || hk >= rank_k || p.dot_k >= rank_k) &&
        !eg_spec_bind(p.spec, 3, (eg_tensor *[]){ p.o.q, p.o.k, p.o.v })) /* which says why */
        return eg__nn_poison(p.cx);
    const int64_t heads = eg_dim(p.o.q, hq);
    const double scale = p.o.scale == EG_OFF ? EG_OFF
                         : p.o.scale != 0    ? p.o.scale
                                             : 1 / sqrt((double)eg_dim(p.o.q, p.dot_q));
    eg_tensor **joint = eg_scope_alloc(p.cx, (size_t)(3 * heads + 1) * sizeof *joint);
    if (!joint) return eg_fail_as(p.cx, EG_ERROR_MEMORY, "attention_similarity: out of memory");
    eg_tensor **own_half = joint + heads, **out = own_half + heads;
    const int at = eg_spec_axis(p.rows, 0, head);
    const char *others[EG_RANK_MAX];
    int n = 0;
    for (int k = 0; k < p.rows->indices; k++)
        if (strcmp(p.rows->index[k].name, head)) others[n++] = p.rows->index[k].name;
    const char *mean = eg__nn_spec(eg_spec_bracket(p.rows, 0, n, others));
    const eg_attention_args all = p.o;
    for (int64_t g = 0; g < heads && measure_both(&p, &all, head, g); g++) {
        eg_tensor *q =
            eg_expand_n(eg_slice_axis(p.o.q, hq, g, g + 1, 1), eg_rank(p.o.q), eg_dims(p.o.q));
        eg_tensor *k =
            eg_expand_n(eg_slice_axis(p.o.k, hk, g, g + 1, 1), eg_rank(p.o.k), eg_dims(p.o.k));
        joint[g] = measure_log_sum(&p, p.o.where, eg_concat_axis(p.dot_q, p.o.q, q),
                                   eg_concat_axis(p.dot_k, p.o.k, k), scale);
        own_half[g] = eg_scale(eg_slice_axis(joint[g], at, g, g + 1, 1), 0.5);
    }
    if (eg_error(p.cx)) return eg__nn_poison(p.cx);
    eg_tensor *half = eg_concat_axis_n(at, (int)heads, own_half);
    for (int64_t g = 0; g < heads; g++) {
        eg_tensor *x = eg_sub(eg_sub(joint[g], half), own_half[g]);
        out[g] = eg_mean(mean, exp_where(joint[g], x));
    }
    return eg_stack_axis_n(0, (int)heads, out);
}
