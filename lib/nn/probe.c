/* probe.c: what heads look at without their weights in memory: everything here is made of the
 * log-sum-exps of attentions,
 *
 *   l_i = ln Σ_j e^s_ij,   a_ij = e^(s_ij − l_i)
 *   mass on a region   Σ_{j in R} a_ij = e^(l_i(R) − l_i),           l(R) the log-sum-exp with R as
 * a further mask entropy            −Σ_j a_ij ln a_ij = l_i − q_i · ∂l_i/∂q_i     (s is linear in
 * q: Σ_j a_ij s_ij = q_i · ∂l_i/∂q_i) overlap of heads   Σ_j a^g_ij a^h_ij = e^(L^gh_i − l^g_i −
 * l^h_i), L^gh the log-sum-exp of s^g + s^h, a product of width 2 d */
#include <eingrad/heads.h>
#include <eingrad/grad.h>
#include "nn.h"
#include <math.h>
#include <stdio.h>

enum { SPEC = 1024, TERMS = 4 };
typedef struct name {
    const char *s;
    int n;
} name;
typedef struct probed {
    eg_ctx *cx;
    const char *who;
    eg_attention_args o; /* the caller's, without what else it asks for */
    int count[TERMS];
    name in[TERMS][EG_RANK_MAX]; /* q, k, v, output */
    int rows;
    name row[EG_RANK_MAX];  /* q's letters without those that are summed with k's */
    int dots, dot_q, dot_k; /* how many of these; the place of the last one */
    char axes[SPEC];        /* rows, then keys */
    char reading[8];        /* "names: " in front of strings made of these, or "" */
} probed;

static int probe_find(const probed *p, int term, name x)
{
    for (int k = 0; k < p->count[term]; k++)
        if (p->in[term][k].n == x.n && memcmp(p->in[term][k].s, x.s, (size_t)x.n) == 0) return k;
    return -1;
}
static void probe_put(char *text, name x, const char *format)
{
    snprintf(text + strlen(text), SPEC - strlen(text), format, x.n, x.s);
}

static bool read_terms(probed *p)
{
    const char *s = p->o.spec;
    if (!s || strlen(s) >= SPEC / 4) {
        eg_fail_as(p->cx, EG_ERROR_MISUSE, "%s: the spec is %s", p->who, s ? "too long" : "NULL");
        return false;
    }
    const bool words = in_names(s);
    int t = 0;
    char said;
    if (words) snprintf(p->reading, sizeof p->reading, "names: ");
    for (const char *c = without_reading(s, &said); *c;) {
        if (*c == ' ') {
            c++;
            continue;
        }
        if (*c == ',' && t < 2) {
            t++;
            c++;
            continue;
        }
        if (t == 2 && c[0] == '-' && c[1] == '>') {
            t = 3;
            c += 2;
            continue;
        }
        int n = 1;
        while (words && name_char(c[n])) n++;
        if (!name_char(*c) || p->count[t] == EG_RANK_MAX) {
            eg_fail_as(p->cx, EG_ERROR_NOTATION,
                       "%s: \"%s\": three terms of letters and an output are needed, as in "
                       "\"bihd,bjhd,bjhe->bihe\", without groups",
                       p->who, s);
            return false;
        }
        p->in[t][p->count[t]++] = (name){ c, n };
        c += n;
    }
    return true;
}

/* Who asks: the options that cannot be honoured are refused, the letters sorted. */
static bool probe_begin(probed *p, const char *who, const eg_attention_args *given)
{
    *p = (probed){ .who = who, .o = { .size = sizeof p->o } };
    eg_options(&p->o, sizeof p->o, given);
    if (!eg_ok(p->o.q) || !(p->cx = eg_context(p->o.q)) || eg_error(p->cx)) return false;
    p->o.weights = p->o.dropped = p->o.scores = p->o.lse = NULL;
    p->o.empty = NULL;
    p->o.dropout = 0; /* of the weights before dropout */
    if (p->o.score) {
        eg_fail_as(p->cx, EG_ERROR_MISUSE,
                   "%s: a .score function has its scores in memory; ask eg_attention for .weights",
                   who);
        return false;
    }
    if (!read_terms(p)) return false;
    for (int k = 0; k < p->count[0]; k++) {
        const name x = p->in[0][k];
        const int at = probe_find(p, 1, x);
        if (at >= 0 && probe_find(p, 2, x) < 0 && probe_find(p, 3, x) < 0) {
            p->dots++;
            p->dot_q = k;
            p->dot_k = at;
        } else {
            p->row[p->rows++] = x;
            probe_put(p->axes, x, "%.*s ");
        }
    }
    for (int k = 0; k < p->count[1]; k++)
        if (probe_find(p, 0, p->in[1][k]) < 0 && probe_find(p, 2, p->in[1][k]) >= 0)
            probe_put(p->axes, p->in[1][k], "%.*s ");
    p->o.weights_axes = p->axes;
    return true;
}
/* Scores that are q·k alone, a row for each of the query's: what entropy and overlap are made of.
 */
static bool probe_plain(const probed *p)
{
    if (p->o.bias.x || p->o.alibi.x) {
        eg_fail_as(p->cx, EG_ERROR_MISUSE,
                   "%s: %s is no part of q·k; ask eg_attention for .weights", p->who,
                   p->o.bias.x ? "a .bias" : ".alibi");
        return false;
    }
    for (int k = 0; k < p->count[1]; k++) {
        const name x = p->in[1][k];
        if (probe_find(p, 0, x) >= 0 || probe_find(p, 3, x) < 0) continue;
        eg_fail_as(
            p->cx, EG_ERROR_NOTATION,
            "%s: \"%s\": '%.*s' is in key and output, but not in the query; ask eg_attention "
            "for .weights",
            p->who, p->o.spec, x.n, x.s);
        return false;
    }
    return true;
}
/* The values play no part: one of each width is enough. */
static eg_tensor *probe_log_sum(probed *p, const char *where, eg_tensor *q, eg_tensor *k,
                                double scale)
{
    eg_tensor *l = NULL;
    eg_attention_args o = p->o;
    for (int x = 0; x < p->count[2] && eg_rank(o.v) == p->count[2]; x++)
        if (probe_find(p, 0, p->in[2][x]) < 0 && probe_find(p, 1, p->in[2][x]) < 0 &&
            eg_dim(o.v, x) > 1)
            o.v = eg_slice_axis(o.v, x, 0, 1, 1);
    o.where = where;
    o.q = q;
    o.k = k;
    o.scale = scale;
    o.lse = &l;
    eg_tensor *y = eg_attention_with(&o);
    return eg_ok(y) ? l : y;
}
/* l ≠ −inf; the −inf is a leaf, because eg_trace looks at operations */
static eg_tensor *is_something(eg_tensor *l)
{
    return eg_ne(l, eg_full_n(eg_context(l), eg_type(l), -INFINITY, 0, NULL));
}
/* e^x where l is a number or NaN; 0 where nothing is attended to (l = −inf) */
static eg_tensor *exp_where(eg_tensor *l, eg_tensor *x)
{
    eg_tensor *zero = eg_zeros_like(l), *some = is_something(l);
    return eg_where(some, eg_exp(eg_where(some, x, zero)), zero);
}

eg_tensor *eg_attention_mass_with(const eg_attention_args *given, const char *region)
{
    probed p;
    if (!probe_begin(&p, "attention_mass", given))
        return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_mass: the query is NULL");
    char where[SPEC];
    if (!region || strlen(region) + (p.o.where ? strlen(p.o.where) : 0) > SPEC - 16)
        return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_mass: the region is %s",
                          region ? "too long" : "NULL");
    snprintf(where, sizeof where, p.o.where ? "(%s) & (%s)" : "%s%s", p.o.where ? p.o.where : "",
             region);
    eg_tensor *all = probe_log_sum(&p, p.o.where, p.o.q, p.o.k, p.o.scale),
              *in = probe_log_sum(&p, where, p.o.q, p.o.k, p.o.scale);
    return exp_where(all, eg_sub(in, all));
}

eg_tensor *eg_attention_entropy_with(const eg_attention_args *given)
{
    probed p;
    if (!probe_begin(&p, "attention_entropy", given))
        return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_entropy: the query is NULL");
    if (!probe_plain(&p)) return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_entropy: failed");
    const bool was = eg_nograd(p.cx, false);
    eg_tensor *q = eg_shift(p.o.q, 0), *dq, *l = probe_log_sum(&p, p.o.where, q, p.o.k, p.o.scale),
              *zero = eg_zeros_like(l);
    eg_grad(l, eg_ones_like(l), 1, &q, &dq);
    eg_nograd(p.cx, was);
    char text[2 * SPEC];
    snprintf(text, sizeof text, "%s", p.reading);
    for (int t = 0; t < 2; t++) {
        for (int k = 0; k < p.count[0]; k++) probe_put(text, p.in[0][k], "%.*s ");
        probe_put(text, (name){ t ? "->" : ",", t ? 2 : 1 }, "%.*s ");
    }
    for (int k = 0; k < p.rows; k++) probe_put(text, p.row[k], "%.*s ");
    eg_tensor *mean = eg_einsum(text, q, dq), *some = is_something(l);
    return eg_where(some, eg_sub(eg_where(some, l, zero), mean), zero);
}

eg_tensor *eg_attention_similarity_with(const eg_attention_args *given, const char *head)
{
    probed p;
    if (!probe_begin(&p, "attention_similarity", given))
        return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_similarity: the query is NULL");
    const name h = { head ? head : "", head ? (int)strlen(head) : 0 };
    const int hq = probe_find(&p, 0, h), hk = probe_find(&p, 1, h);
    if (hq < 0 || hk < 0 || probe_find(&p, 3, h) < 0)
        return eg_fail_as(p.cx, EG_ERROR_INDEX,
                          "attention_similarity: query, key and output have no common index '%.*s'",
                          h.n, h.s);
    if (p.dots != 1)
        return eg_fail_as(
            p.cx, EG_ERROR_NOTATION,
            "attention_similarity: \"%s\": one index must be summed between query and key, not %d",
            p.o.spec, p.dots);
    if (!probe_plain(&p)) return eg_fail_as(p.cx, EG_ERROR_MISUSE, "attention_similarity: failed");
    const int64_t heads = eg_dim(p.o.q, hq);
    const double scale = p.o.scale == EG_OFF ? EG_OFF
                         : p.o.scale != 0    ? p.o.scale
                                             : 1 / sqrt((double)eg_dim(p.o.q, p.dot_q));
    eg_owner *own = eg_owner_open(p.cx);
    eg_tensor **joint = own ? eg_owner_alloc(own, (size_t)(3 * heads + 1) * sizeof *joint) : NULL;
    if (!joint) return eg_fail_as(p.cx, EG_ERROR_MEMORY, "attention_similarity: out of memory");
    eg_tensor **own_half = joint + heads, **out = own_half + heads;
    int at = 0; /* of the head among the rows */
    while (at < p.rows && !(p.row[at].n == h.n && memcmp(p.row[at].s, h.s, (size_t)h.n) == 0)) at++;
    char mean[SPEC];
    snprintf(mean, sizeof mean, "%s", p.reading);
    for (int k = 0; k < p.rows; k++) probe_put(mean, p.row[k], k == at ? "%.*s " : "[%.*s] ");
    for (int64_t g = 0; g < heads; g++) {
        eg_tensor *q =
            eg_expand_n(eg_slice_axis(p.o.q, hq, g, g + 1, 1), eg_rank(p.o.q), eg_dims(p.o.q));
        eg_tensor *k =
            eg_expand_n(eg_slice_axis(p.o.k, hk, g, g + 1, 1), eg_rank(p.o.k), eg_dims(p.o.k));
        joint[g] = probe_log_sum(&p, p.o.where, eg_concat_axis(p.dot_q, p.o.q, q),
                                 eg_concat_axis(p.dot_k, p.o.k, k), scale);
        own_half[g] = eg_scale(eg_slice_axis(joint[g], at, g, g + 1, 1), 0.5);
    }
    eg_tensor *half = eg_concat_axis_n(at, (int)heads, own_half);
    for (int64_t g = 0; g < heads; g++) {
        eg_tensor *x = eg_sub(eg_sub(joint[g], half), own_half[g]);
        out[g] = eg_mean(mean, exp_where(joint[g], x));
    }
    return eg_stack_axis_n(0, (int)heads, out);
}
