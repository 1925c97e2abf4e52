/* mha_core.c: the attention of a module between its projections: predicates and scores of the
 * module and of a run, masks by letters, grouped heads, heads with different widths, extra keys and
 * sinks. */
#include "nn.h"
#include <math.h>
#include <stdio.h>

enum { SPEC_SIZE = 512 };

/* -- predicates, and masks by letters --------------------------------------------------------- */
const eg_formula *eg__mha_formula(const eg_mha *m, eg_ctx *cx, const char *who, bool score,
                                  const char *text, const eg_given *with, bool any_tensor)
{
    const eg_formula_args o = { .size = sizeof o,
                                .who = who,
                                .text = text,
                                .score = score,
                                .complete = true,
                                .indices = m->specs->indices,
                                .with = with,
                                .any_tensor = any_tensor };
    return text ? eg_formula_parse_with(cx, &o) : NULL;
}

/* The expressions of module and run, and the tensors that they may read. */
typedef struct texts {
    const eg_formula *where, *score; /* NULL if there is none */
    eg_given with[8];                /* tensors that they may read */
} texts;
/* Combines the tensors of .with of module and run. False after an error. */
static bool join_with(const eg_mha *m, eg_ctx *cx, const eg_given *run, eg_given *with)
{
    int n = 0;
    for (; n < 8 && m->with[n].name; n++) with[n] = m->with[n];
    for (int k = 0; k < 8 && run[k].name; k++) {
        for (int j = 0; j < n; j++)
            if (!strcmp(with[j].name, run[k].name))
                return eg_fail_as(cx, EG_ERROR_NOTATION,
                                  "'%s' is in .with of the module and in that of the run",
                                  run[k].name),
                       false;
        if (n == 8)
            return eg_fail_as(cx, EG_ERROR_NOTATION,
                              ".with of the module and that of the run are more than 8 tensors"),
                   false;
        with[n++] = run[k];
    }
    return true;
}
/* Combines the predicates of module and run by &, takes the score of one of them, and reads their
 * tensors. False after an error. */
static bool read_texts(const eg_mha *m, eg_ctx *cx, const eg_mha_run_args *run, texts *t)
{
    static const char *const of_module[] = { "the module's .where", "the module's .score" };
    *t = (texts){ .where = NULL };
    if (!join_with(m, cx, run->with, t->with)) return false;
    t->where = eg_formula_and(eg__mha_formula(m, cx, of_module[0], false, m->where, t->with, false),
                              eg__mha_formula(m, cx, ".where", false, run->where, t->with, false));
    t->score = run->score ? eg__mha_formula(m, cx, ".score", true, run->score, t->with, false)
                          : eg__mha_formula(m, cx, of_module[1], true, m->score, t->with, false);
    return !eg_error(cx);
}
/* Sets *read to the tensors of .with that one of the two formulas reads: others of a module's .with
 * may be for other layers, or for runs with another predicate. */
static void choose_with(const eg_given *with, const eg_formula *a, const eg_formula *b,
                        eg_given *read)
{
    memset(read, 0, 8 * sizeof *read);
    for (int k = 0, n = 0; k < 8 && with[k].name; k++)
        if (eg_formula_reads(a, with[k].name) || eg_formula_reads(b, with[k].name))
            read[n++] = with[k];
}
/* Sets the predicate and the score of an attention, with the tensors that they read. */
static void set_formulas(eg_attention_args *o, const texts *t, const eg_formula *where,
                         const eg_formula *score)
{
    o->where = where ? where->text : NULL;
    o->score = score ? score->text : NULL;
    choose_with(t->with, where, score, o->with);
}

/* Returns the formula for one head: its letter of the head is replaced by the number `head`, and
 * |h| by the number of heads. */
static const eg_formula *with_head(const eg_mha *m, const eg_formula *f, const char *head)
{
    char count[24];
    snprintf(count, sizeof count, "%lld", (long long)m->heads);
    return eg_formula_replace(f, "h", head, count);
}

/* Returns x with axis h split into g and r; if r is 0, with the two axes merged. */
static eg_tensor *regrouped(eg_tensor *x, int axis, int64_t g, int64_t r)
{
    int64_t dims[EG_RANK_MAX];
    int n = 0;
    if (!eg_ok(x)) return x;
    for (int k = 0; k < eg_rank(x); k++) {
        dims[n++] = k == axis ? g : eg_dim(x, k);
        if (k == axis && r) dims[n++] = r;
        k += k == axis && !r;
    }
    return eg_reshape_n(x, n, dims);
}

/* Returns a mask in which the letter h is replaced by G and R. */
static eg_masked grouped(eg_ctx *cx, const char *option, eg_masked mask)
{
    const eg_spec *s = mask.axes ? eg_spec_parse(cx, option, mask.axes) : NULL;
    if (eg_spec_find_item(s, 0, "h") < 0) return mask;
    return (eg_masked){ eg_spec_items(eg_spec_replace(s, 0, "h", "(G R)"), 0), mask.x };
}

/* As `grouped`, with the axis of h split into the two. */
static eg_masked in_groups(const eg_mha *m, eg_ctx *cx, const char *option, eg_masked x)
{
    const eg_spec *s = x.axes ? eg_spec_parse(cx, option, x.axes) : NULL;
    const int axis = eg_spec_axis(s, 0, "h");
    if (axis < 0 || !eg_ok(x.x) || axis >= eg_rank(x.x) || eg_dim(x.x, axis) != m->heads) return x;
    return (eg_masked){ eg_spec_items(eg_spec_replace(s, 0, "h", "G R"), 0),
                        regrouped(x.x, axis, m->kv_heads, m->heads / m->kv_heads) };
}

/* Returns head h of a mask, whose letters then do not include h. */
static eg_masked of_head(eg_ctx *cx, const char *option, eg_masked mask, int64_t head)
{
    const eg_spec *s = mask.axes ? eg_spec_parse(cx, option, mask.axes) : NULL;
    const int axis = eg_spec_axis(s, 0, "h");
    if (axis < 0) return mask;
    return (eg_masked){ eg_spec_items(eg_spec_replace(s, 0, "h", ""), 0),
                        eg_select_axis(mask.x, axis, head) };
}

/* -- the core --------------------------------------------------------------------------------- */
/* The options .decay, .beta and .read of a linear attention. */
typedef struct mha_factors {
    eg_masked decay, beta;
    eg_tensor *read;
} mha_factors;
/* Returns those of a run: its own, or those of the module. */
static mha_factors factors_of(const eg_mha *m, const eg_mha_run_args *a)
{
    mha_factors f = { .decay = a->decay, .beta = a->beta, .read = a->read };
    if (m->linear && !f.decay.x && !f.decay.axes) f.decay = m->linear->decay;
    if (m->linear && !f.beta.x && !f.beta.axes) f.beta = m->linear->beta;
    return f;
}

/* Returns linear attention; options that need a softmax are refused with an error. */
static eg_tensor *attended_linearly(const eg_mha *m, const eg_attention_args *a,
                                    const mha_factors *f)
{
    const struct {
        const char *option;
        bool given;
    } none[] = { { ".bias", a->bias.x || a->bias.axes },
                 { ".lengths", a->lengths.x || a->lengths.axes },
                 { ".alibi", a->alibi.x || a->alibi.axes },
                 { ".score", a->score != NULL },
                 { ".score_fn", a->score_fn != NULL },
                 { ".scores", a->scores != NULL },
                 { ".lse", a->lse != NULL },
                 { ".max_scores", a->max_scores != NULL },
                 { ".empty", a->empty != NULL },
                 { ".form = EG_FUSED", a->form == EG_FUSED } };
    for (size_t k = 0; k < sizeof none / sizeof *none; k++)
        if (none[k].given)
            return eg_fail_as(eg_context(a->q), EG_ERROR_UNSUPPORTED,
                              "%s belongs to a softmax, which .linear has not", none[k].option);
    eg_linear_attention_args o = *m->linear;
    o.spec = a->spec, o.q = a->q, o.k = a->k, o.v = a->v;
    o.scale = a->scale, o.where = a->where, o.offset = a->offset, o.keep = a->keep;
    memcpy(o.with, a->with, sizeof o.with);
    o.weights = a->weights ? a->weights : a->dropped, o.weights_axes = a->weights_axes;
    o.decay = f->decay, o.beta = f->beta, o.read = f->read;
    eg_tensor *y = eg_linear_attention_with(&o);
    if (a->weights && a->dropped) *a->dropped = *a->weights;
    return y;
}

/* Keys and values of a cache may have another dtype than the query. eg_attention reads those of f16
 * and bf16 as they are; else they are cast. */
static eg_tensor *attended(const eg_mha *m, const eg_attention_args *a, const mha_factors *f)
{
    eg_attention_args o = *a;
    eg_tensor **const x[] = { &o.k, &o.v };
    for (int n = 0; n < 2; n++) {
        const eg_dtype type = eg_type(*x[n]);
        const bool read = !m->linear && !m->core && (type == EG_F16 || type == EG_BF16);
        if (type != eg_type(o.q) && !read) *x[n] = eg_cast(*x[n], eg_type(o.q));
    }
    return m->linear ? attended_linearly(m, &o, f) : m->core ? m->core(&o) : eg_attention_with(&o);
}

/* The outputs that a run may request: each has axes (… h, then the letters of the weights, for some
 * without the keys). */
enum { OUTS = 5 };
static void outputs(eg_attention_args *o, eg_tensor ***out[OUTS])
{
    out[0] = &o->weights, out[1] = &o->dropped, out[2] = &o->scores, out[3] = &o->lse;
    out[4] = &o->max_scores;
}

/* -- .score_fn and .fill, as functions of the scores (… h i j) --------------------------------- */
typedef struct hook {
    const eg_mha *m;
    const eg_mha_run_args *a;
    const texts *texts;
    int64_t offset;
} hook;

/* Returns s where the mask is true, else .fill. */
static eg_tensor *fill_forbidden(const hook *k, eg_tensor *s, const char *axes, eg_tensor *mask)
{
    static const char *const called[] = { "the score matrix", ".keep" };
    char spec[SPEC_SIZE];
    snprintf(spec, sizeof spec, "%shij,%.200s", k->m->batch, axes);
    if (!eg_ok(s) || !eg_spec_bind_called(eg_spec_parse(eg_context(s), "attention", spec), 2,
                                          (eg_tensor *[]){ s, mask }, called))
        return eg__nn_poison(eg_context(s));
    eg_tensor *m = eg_cast(mask, EG_BOOL),
              *rest = eg_scale(eg_cast(eg_not(m), eg_type(s)), k->a->fill);
    return eg_on(spec, eg_add, eg_on(spec, eg__nn_masked, s, m), rest);
}

/* Changes the scores before the softmax: calls the user's .score_fn, then sets scores that the
 * predicate or .keep forbids to .fill. Grouped heads are merged into one axis meanwhile. */
static eg_tensor *apply_score_fn(void *user, eg_tensor *s)
{
    const hook *k = user;
    const eg_mha *m = k->m;
    const bool groups = m->kv_heads != m->heads;
    eg_tensor *(*score_fn)(void *, eg_tensor *) = k->a->score_fn ? k->a->score_fn : m->score_fn;
    s = groups ? regrouped(s, m->specs->batch, m->heads, 0) : s;
    s = score_fn ? score_fn(k->a->score_fn ? k->a->user : m->user, s) : s;
    const eg_formula *where = k->texts->where;
    if (k->a->fill && where && eg_ok(s)) { /* the predicate, over the letters that it has */
        char all[EG_RANK_MAX + 8], used[EG_RANK_MAX + 8], open[3 * EG_RANK_MAX + 8];
        int64_t sizes[EG_RANK_MAX];
        int n = 0, at = 0;
        snprintf(all, sizeof all, "%shij", m->batch);
        for (int d = 0; all[d]; d++)
            if (eg_formula_has(where, (char[]){ all[d], 0 })) {
                sizes[n] = eg_dim(s, d);
                used[n++] = all[d];
                at += snprintf(open + at, sizeof open - (size_t)at, all[d] == 'i' ? "%c" : "[%c]",
                               all[d]);
            }
        used[n] = 0;
        open[at] = 0;
        eg_where_mask_args o = { .size = sizeof o,
                                 .where = where->text,
                                 .axes = open,
                                 .offset = k->offset,
                                 .sizes = sizes };
        choose_with(k->texts->with, where, NULL, o.with);
        s = fill_forbidden(k, s, used, eg_where_mask_with(eg_context(s), &o));
    }
    if (k->a->fill && k->a->keep.x) s = fill_forbidden(k, s, k->a->keep.axes, k->a->keep.x);
    return groups ? regrouped(s, m->specs->batch, m->kv_heads, m->heads / m->kv_heads) : s;
}

/* Returns the offset for the core. .offset shifts the query's letter i in the predicate or in the
 * slopes. If neither has it, .offset only applies to rotary positions; without these it is passed
 * on, and the core refuses it. */
static int64_t core_offset(const eg_mha *m, const eg_mha_run_args *a, const eg_attention_args *o,
                           const texts *t)
{
    if (o->alibi.x || eg_formula_has(t->where, "i") || eg_formula_has(t->score, "i"))
        return o->offset;
    return t->where || t->score || m->has_rotary || a->fill ? 0 : a->offset;
}

/* -- scores that no stored key has: bias_kv, zero_attn, sink --
 *
 * They form the sink of the attention: e^s of each is added to the sum by which the weights are
 * divided. They are therefore the same with any mask, in any form and with a cache, and no key is
 * stored for them. The value of the extra key is added to the result with the weight e^(s − l),
 * where l is the log-sum-exp of all scores. */
/* Returns x, which has one value for each head of keys, with one value for each head of queries. */
static eg_tensor *of_each_head(const eg_mha *m, eg_tensor *x)
{
    const int64_t r = m->heads / m->kv_heads, dims[] = { m->kv_heads, r, eg_dim(x, 1) };
    return r == 1 ? x
                  : eg_reshape_n(eg_expand_n(eg_unsqueeze(x, 1), 3, dims), 2,
                                 (int64_t[]){ m->heads, eg_dim(x, 1) });
}

/* Returns the score (… h i) of the extra key; NULL if there is none. q: the query before rotary
 * positions, since the extra key has no position. */
static eg_tensor *extra_score(const eg_mha *m, eg_tensor *q)
{
    const double scale = m->scale ? eg_option(m->scale, 0) : 1 / sqrt((double)m->d_k);
    if (!m->bias_k) return NULL;
    return eg_scale(eg_einsum(m->specs->extra_score, q, of_each_head(m, m->bias_k)), scale);
}

/* Returns the sink: the logarithm of what is added to the denominator; .x is NULL if there is
 * none. */
static eg_masked total_sink(const eg_mha *m, const eg_mha_run_args *a, eg_tensor *extra)
{
    const char *all = m->specs->rows; /* "bhi" */
    eg_ctx *cx = eg_context(a->query);
    eg_masked sink = a->sink;
    if (!sink.x && m->sink) sink = (eg_masked){ "h", m->sink };
    if (m->zero_attn) /* ln(e^z + e^0) */
        sink = sink.x ? (eg_masked){ sink.axes, eg_softplus(sink.x) }
                      : (eg_masked){ "", eg_full_n(cx, eg_type(a->query), 0, 0, NULL) };
    if (extra && sink.x) {
        char spec[SPEC_SIZE];
        if (a->ranks && eg_spec_find_item(eg_spec_parse(cx, ".sink", sink.axes), 0, "i") < 0)
            sink.x = eg_ranks_shared(a->ranks, sink.x);
        snprintf(spec, sizeof spec, "%s,%.200s", all, sink.axes ? sink.axes : "");
        sink.x = eg_on(spec, eg_logaddexp, extra, sink.x);
    }
    return !extra ? sink : (eg_masked){ all, sink.x ? sink.x : extra };
}

/* Returns y (… i h e), the result over the keys, plus the value of the extra key. */
static eg_tensor *with_extra_value(const eg_mha *m, const eg__part *part, eg_tensor *y,
                                   eg_tensor *score, eg_tensor *lse)
{
    if (!score || !eg_ok(y)) return y;
    if (!lse)
        return eg_fail_as(eg_context(y), EG_ERROR_UNSUPPORTED,
                          ".bias_kv needs the .lse of the .core, which it does not give");
    eg_tensor *w =
        eg__part_dropped(part, m->specs->batch + 1, eg_exp(eg_sub(score, lse)), m->dropout);
    return eg_add(y, eg_einsum(m->specs->extra_value, w, of_each_head(m, m->bias_v)));
}

/* Computes heads of one width, grouped or not. */
static eg_tensor *same_width(const eg_mha *m, const eg_mha_run_args *a, const eg__part *part,
                             eg_attention_args o, eg_tensor *q)
{
    const struct eg__mha_specs *s = m->specs;
    const bool groups = m->kv_heads != m->heads;
    eg_ctx *cx = eg_context(o.q);
    texts t;
    eg_tensor ***out[OUTS], *lse = NULL;
    mha_factors f = factors_of(m, a);
    eg_tensor *extra = extra_score(m, q);
    if (extra && !o.lse) o.lse = &lse;
    o.sink = total_sink(m, a, extra);
    outputs(&o, out);
    if (!read_texts(m, cx, a, &t)) return eg__nn_poison(cx);
    o.offset = core_offset(m, a, &o, &t);
    o.offset_letter = "i";
    const eg_formula *where = t.where, *score = t.score;
    hook k = { m, a, &t, o.offset };
    if (groups) {
        char head[32];
        snprintf(head, sizeof head, "G*%lld+R", (long long)(m->heads / m->kv_heads));
        where = with_head(m, where, head);
        score = with_head(m, score, head);
        o.keep = grouped(cx, ".keep", o.keep);
        o.bias = grouped(cx, ".bias", o.bias);
        o.lengths = grouped(cx, ".lengths", o.lengths);
        o.alibi = grouped(cx, ".alibi", o.alibi);
        o.sink = grouped(cx, ".sink", o.sink);
        f.decay = in_groups(m, cx, ".decay", f.decay);
        f.beta = in_groups(m, cx, ".beta", f.beta);
    }
    set_formulas(&o, &t, a->fill ? NULL : where, score);
    if (a->score_fn || m->score_fn || a->fill) o.score_fn = apply_score_fn, o.user = &k;
    if (a->fill) { /* .fill needs a bool mask; eg_attention would refuse a float mask */
        bool data = o.keep.x && eg_type(o.keep.x) != EG_F32 && eg_type(o.keep.x) != EG_F64;
        o.keep = data ? (eg_masked){ 0 } : o.keep;
        o.offset = o.alibi.x || eg_formula_has(score, "i") ? o.offset : 0;
    }
    o.spec = s->core;
    bool asked = o.score_fn != NULL;
    for (int n = 0; n < OUTS; n++) asked |= *out[n] != NULL;
    o.weights_axes = asked ? s->weights : NULL;
    o.scale = m->scale;
    o.q = groups ? regrouped(o.q, s->batch + 1, m->kv_heads, m->heads / m->kv_heads) : o.q;
    eg_tensor *y = attended(m, &o, &f);
    for (int n = 0; n < OUTS && groups; n++)
        if (*out[n]) **out[n] = regrouped(**out[n], s->batch, m->heads, 0);
    y = groups ? regrouped(y, s->batch + 1, m->heads, 0) : y;
    y = with_extra_value(m, part, y, extra, o.lse ? *o.lse : NULL);
    return a->gain ? eg_on(s->gain, eg_mul, y, a->gain) : y;
}

/* Computes heads of different widths one after another, as slices of the common projection. */
static eg_tensor *each_head(const eg_mha *m, const eg_mha_run_args *a, eg_attention_args o)
{
    eg_ctx *cx = eg_context(o.q);
    if (a->score_fn || m->score_fn || a->fill || o.alibi.x)
        return eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                          ".score_fn, .fill and .alibi need heads of one width");
    eg_tensor **heads = eg_scope_alloc(cx, (size_t)((OUTS + 1) * m->heads) * sizeof *heads),
              *y = NULL;
    eg_tensor *const q = o.q, *const k = o.k, *const v = o.v, **asked[OUTS], ***out[OUTS];
    const eg_masked all_keep = o.keep, all_bias = o.bias, all_lengths = o.lengths;
    const mha_factors all = factors_of(m, a);
    if (all.read && (!eg_ok(all.read) || eg_rank(all.read) != eg_rank(k) ||
                     eg_dim(all.read, -1) != eg_dim(k, -1)))
        return eg_fail_as(
            cx, EG_ERROR_SHAPE,
            ".read has other axes than the keys: %d of them with %lld elements of all "
            "heads are needed",
            eg_rank(k), (long long)eg_dim(k, -1));
    texts t;
    int64_t at = 0, from = 0, empty = 0;
    if (!heads) return eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory");
    outputs(&o, out);
    for (int n = 0; n < OUTS; n++) asked[n] = *out[n];
    if (!read_texts(m, cx, a, &t)) return eg__nn_poison(cx);
    o.offset = core_offset(m, a, &o, &t);
    o.offset_letter = "i";
    for (int64_t h = 0; h < m->heads; h++) {
        char head[24];
        snprintf(head, sizeof head, "%lld", (long long)h);
        int64_t d = m->d_k_each[h], e = m->d_v_each[h];
        o.q = eg_slice_axis(q, -1, at, at + d, 1);
        o.k = eg_slice_axis(k, -1, at, at + d, 1);
        o.v = eg_slice_axis(v, -1, from, from + e, 1);
        const mha_factors f = { of_head(cx, ".decay", all.decay, h),
                                of_head(cx, ".beta", all.beta, h),
                                all.read ? eg_slice_axis(all.read, -1, at, at + d, 1) : NULL };
        at += d, from += e;
        set_formulas(&o, &t, with_head(m, t.where, head), with_head(m, t.score, head));
        o.keep = of_head(cx, ".keep", all_keep, h);
        o.bias = of_head(cx, ".bias", all_bias, h);
        o.lengths = of_head(cx, ".lengths", all_lengths, h);
        o.spec = m->specs->core;
        o.weights_axes = m->specs->weights;
        o.scale = m->scale;
        for (int n = 0; n < OUTS; n++) *out[n] = asked[n] ? heads + (n + 1) * m->heads + h : NULL;
        heads[h] = attended(m, &o, &f);
        empty += o.empty ? *o.empty : 0;
        if (a->gain) heads[h] = eg_mul(heads[h], eg_select_axis(a->gain, 0, h));
    }
    y = eg_concat_axis_n(-1, (int)m->heads, heads);
    for (int n = 0; n < OUTS; n++)
        if (asked[n])
            *asked[n] = eg_stack_axis_n(m->specs->batch, (int)m->heads, heads + (n + 1) * m->heads);
    if (a->empty) *a->empty = empty;
    return y;
}

eg_tensor *eg__mha_core(const eg_mha *m, const eg_mha_run_args *a, const eg__part *part,
                        const eg_attention_args *o, eg_tensor *q)
{
    return m->d_k_each ? each_head(m, a, *o) : same_width(m, a, part, *o, q);
}
