/* mha_run.c: multi-head attention, forward: project, turn, append to the cache, attend, project.
 * Errors leave it with the module's name, whichever call below recorded them. */
#include "nn.h"
#include <math.h>
#include <stdio.h>

enum { ROOM = 512 };

static eg_tensor *at_least(const eg_mha *m, const char *which, char letter, eg_tensor *x)
{
    const struct eg__mha_specs *s = m->specs;
    char text[EG_RANK_MAX * 2 + 1];
    int n = 0;
    for (int k = 0; k < s->axes; k++) {
        text[n++] = s->letter[k] == 'i' ? letter : s->letter[k] ? s->letter[k] : '*';
        text[n++] = ' ';
    }
    text[n - 1] = 0;
    return eg_fail_as(
        eg_context(x), EG_ERROR_SHAPE, "the %s has %d ax%s, but the layout \"%s\" needs %d%s",
        which, eg_rank(x), eg_rank(x) == 1 ? "is" : "es", text, s->axes,
        eg_rank(x) == 2 && s->axes == 3 ? "; .layout = \"i m\" takes one sequence" : "");
}

/* True if an operand has the axes, the type and the width of the layout; else records an error. */
static bool mha_run_operand(const eg_mha *m, const char *which, char letter, eg_tensor *x,
                            int64_t width)
{
    if (!eg_ok(x)) return false;
    const eg_dtype type = eg_type(m->W_o ? m->W_o : m->W_each[EG_O][0]);
    if (eg_rank(x) != m->specs->axes) return at_least(m, which, letter, x), false;
    if (eg_type(x) != type)
        return eg_fail_as(eg_context(x), EG_ERROR_DTYPE,
                          "the %s is %s but the module's parameters are %s; eg_cast one of them",
                          which, eg_type_name(eg_type(x)), eg_type_name(type)),
               false;
    for (int k = 0; k < m->specs->axes; k++)
        if (m->specs->letter[k] == 'm' && eg_dim(x, k) != width) {
            eg_fail_as(eg_context(x), EG_ERROR_SHAPE,
                       "'m' is %lld in the module but %lld in the %s", (long long)width,
                       (long long)eg_dim(x, k), which);
            return false;
        }
    return true;
}

/* True if two operands have the same sizes along the axes that they share: batch letters, and the
 * places of key and value; else records an error. */
static bool agree(const eg_mha *m, const char *a_is, eg_tensor *a, const char *b_is, eg_tensor *b,
                  bool places)
{
    for (int k = 0; k < m->specs->axes; k++) {
        char c = m->specs->letter[k];
        if (!c || c == 'm' || (c == 'i' && !places) || eg_dim(a, k) == eg_dim(b, k)) continue;
        eg_fail_as(eg_context(a), EG_ERROR_SHAPE, "%s '%c' is %lld in the %s but %lld in the %s",
                   c == 'i' ? "length" : "batch", c == 'i' ? 'j' : c, (long long)eg_dim(a, k), a_is,
                   (long long)eg_dim(b, k), b_is);
        return false;
    }
    return true;
}

static eg_tensor *projected(const eg_mha *m, int part, eg_tensor *x)
{
    static const char *const of[] = { "query", "key", "value" };
    const bool before = failed(x);
    eg_tensor *y = eg_affine(m->specs->project[part], x, eg__mha_part(m, part, false),
                             eg__mha_part(m, part, true));
    return eg_ok(y) || before
               ? y
               : eg_fail_in(eg_context(x), "the %s times %s", of[part], eg__mha_which(part, false));
}

/* Query or key with the module's norm over each head. */
static eg_tensor *normed(const eg_mha *m, const eg_norm *norm, eg_tensor *x)
{
    if (norm) return eg_norm_run(norm, x);
    if (m->qk_norm != EG_QK_UNIT) return x;
    const double eps = m->qk_eps ? m->qk_eps : EG_OFF; /* x/√(|x|² + d eps) */
    return eg_scale(eg_rmsnorm("... [d]", x, .eps = eps), 1 / sqrt((double)m->d_k));
}

/* Query or key turned by its places: those given, else `before` and on. */
static eg_tensor *turned(const eg_mha *m, const char *spec, eg_tensor *x, int64_t before,
                         eg_masked places)
{
    return !m->turned ? x
                      : eg_rotary(spec, x, .base = m->rotary, .frequencies = m->rotary_frequencies,
                                  .factor = m->rotary_factor, .width = m->rotary_width,
                                  .interleaved = m->interleaved, .positions = places,
                                  .offset = places.x ? 0 : before);
}

/* The places of the keys: where these are the query, those of the query under the letter j. */
static eg_masked key_places(const eg_mha_run_args *a)
{
    if ((a->key && a->key != a->query) || a->key_positions.x || !a->positions.x)
        return a->key_positions;
    const eg_spec *s = eg_spec_parse(eg_context(a->query), ".positions", a->positions.axes);
    if (eg_spec_place(s, 0, "i") >= 0) s = eg_spec_rename(s, "i", "j");
    return (eg_masked){ eg_spec_items(s, 0), a->positions.x };
}

/* -- predicates, and masks by letters --------------------------------------------------------- */
const eg_formula *eg__mha_formula(const eg_mha *m, eg_ctx *cx, const char *who, bool score,
                                  const char *text, const eg_given *with, bool any_tensor)
{
    const eg_formula_args o = { .size = sizeof o,
                                .who = who,
                                .text = text,
                                .score = score,
                                .whole = true,
                                .indices = m->specs->indices,
                                .with = with,
                                .any_tensor = any_tensor };
    return text ? eg_formula_parse_with(cx, &o) : NULL;
}

/* What module and run say in the language of expressions. */
typedef struct texts {
    const eg_formula *where, *score; /* NULL: none */
    eg_given with[8];                /* what they may read */
} texts;
/* Joins the tensors of .with of module and run. False after an error. */
static bool join_with(const eg_mha *m, eg_ctx *cx, const eg_given *run, eg_given *with)
{
    int n = 0;
    for (; n < 8 && m->with[n].name; n++) with[n] = m->with[n];
    for (int k = 0; k < 8 && run[k].name; k++) {
        for (int j = 0; j < n; j++)
            if (!strcmp(with[j].name, run[k].name))
                return eg_fail_as(cx, EG_ERROR_NOTATION,
                                  "'%s' stands in .with of the module and in that of the run",
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
/* Reads the predicates of module and run, both, the score of one of them, and their tensors. False
 * after an error. */
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
/* Sets *read to the tensors of .with that one of the formulas reads: a module's .with may be for
 * some of the layers, or for runs with another predicate. */
static void choose_with(const eg_given *with, const eg_formula *a, const eg_formula *b,
                        eg_given *read)
{
    memset(read, 0, 8 * sizeof *read);
    for (int k = 0, n = 0; k < 8 && with[k].name; k++)
        if (eg_formula_reads(a, with[k].name) || eg_formula_reads(b, with[k].name))
            read[n++] = with[k];
}
/* Sets the predicate and the score of an attention, with the tensors that they read. */
static void tell(eg_attention_args *o, const texts *t, const eg_formula *where,
                 const eg_formula *score)
{
    o->where = where ? where->text : NULL;
    o->score = score ? score->text : NULL;
    choose_with(t->with, where, score, o->with);
}

/* The head's letter of a predicate written as the number `head`, and |h| as their number. */
static const eg_formula *with_head(const eg_mha *m, const eg_formula *f, const char *head)
{
    char count[24];
    snprintf(count, sizeof count, "%lld", (long long)m->heads);
    return eg_formula_replace(f, "h", head, count);
}

/* the axis h as two, g and r; or, if r is 0, these two as one */
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

/* Letters of a mask in which h is two letters, G and R. */
static eg_masked grouped(eg_ctx *cx, const char *option, eg_masked mask)
{
    const eg_spec *s = mask.axes ? eg_spec_parse(cx, option, mask.axes) : NULL;
    if (eg_spec_place(s, 0, "h") < 0) return mask;
    return (eg_masked){ eg_spec_items(eg_spec_replace(s, 0, "h", "(G R)"), 0), mask.x };
}

/* The same with the axis of h cut into the two. */
static eg_masked in_groups(const eg_mha *m, eg_ctx *cx, const char *option, eg_masked x)
{
    const eg_spec *s = x.axes ? eg_spec_parse(cx, option, x.axes) : NULL;
    const int axis = eg_spec_axis(s, 0, "h");
    if (axis < 0 || !eg_ok(x.x) || axis >= eg_rank(x.x) || eg_dim(x.x, axis) != m->heads) return x;
    return (eg_masked){ eg_spec_items(eg_spec_replace(s, 0, "h", "G R"), 0),
                        regrouped(x.x, axis, m->kv_heads, m->heads / m->kv_heads) };
}

/* Head h of a mask, whose letters then lack h. */
static eg_masked of_head(eg_ctx *cx, const char *option, eg_masked mask, int64_t head)
{
    const eg_spec *s = mask.axes ? eg_spec_parse(cx, option, mask.axes) : NULL;
    const int axis = eg_spec_axis(s, 0, "h");
    if (axis < 0) return mask;
    return (eg_masked){ eg_spec_items(eg_spec_replace(s, 0, "h", ""), 0),
                        eg_select_axis(mask.x, axis, head) };
}

/* -- the core --------------------------------------------------------------------------------- */
/* Returns attention without a softmax; options that need a softmax are refused. */
static eg_tensor *attended_linearly(const eg_mha *m, const eg_attention_args *a,
                                    const eg_masked *decay)
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
    o.decay = decay->x ? *decay : o.decay;
    eg_tensor *y = eg_linear_attention_with(&o);
    if (a->weights && a->dropped) *a->dropped = *a->weights;
    return y;
}

static eg_tensor *attended(const eg_mha *m, const eg_attention_args *a, const eg_masked *decay)
{
    return m->linear ? attended_linearly(m, a, decay) : m->core ? m->core(a) : eg_attention_with(a);
}

/* what a run hands out, each (… h, then the letters of the weights, or without the keys) */
enum { OUTS = 4 };
static void outs(eg_attention_args *o, eg_tensor ***out[OUTS])
{
    out[0] = &o->weights, out[1] = &o->dropped, out[2] = &o->scores, out[3] = &o->lse;
}

/* -- the user's scores, and the score of what is masked, as functions of (… h i j) ------------ */
typedef struct hook {
    const eg_mha *m;
    const eg_mha_run_args *a;
    const texts *texts;
    int64_t offset;
} hook;

/* s where the mask is true, else .fill */
static eg_tensor *mha_run_fill(const hook *k, eg_tensor *s, const char *axes, eg_tensor *mask)
{
    char spec[ROOM];
    snprintf(spec, sizeof spec, "%shij,%.200s", k->m->batch, axes);
    eg_tensor *m = eg_cast(mask, EG_BOOL),
              *rest = eg_scale(eg_cast(eg_not(m), eg_type(s)), k->a->fill);
    return eg_on(spec, eg_add, eg_on(spec, eg__nn_left_out, s, m), rest);
}

/* Changes the scores before the softmax: calls the user's .score_fn, then replaces scores that the
 * predicate or .keep forbids by .fill. Grouped heads are one axis meanwhile. */
static eg_tensor *hooked(void *user, eg_tensor *s)
{
    const hook *k = user;
    const eg_mha *m = k->m;
    const bool groups = m->kv_heads != m->heads;
    eg_tensor *(*score_fn)(void *, eg_tensor *) = k->a->score_fn ? k->a->score_fn : m->score_fn;
    s = groups ? regrouped(s, m->specs->batch, m->heads, 0) : s;
    s = score_fn ? score_fn(k->a->score_fn ? k->a->user : m->user, s) : s;
    const eg_formula *where = k->texts->where;
    if (k->a->fill && where && eg_ok(s)) { /* the predicate over the letters that it has */
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
        s = mha_run_fill(k, s, used, eg_where_mask_with(eg_context(s), &o));
    }
    if (k->a->fill && k->a->keep.x) s = mha_run_fill(k, s, k->a->keep.axes, k->a->keep.x);
    return groups ? regrouped(s, m->specs->batch, m->kv_heads, m->heads / m->kv_heads) : s;
}

/* What .offset moves, i, is where the predicate or the slopes name it; else there is nothing to
 * move but rotary positions, and an offset of the caller's is refused by the core. */
static int64_t core_offset(const eg_mha *m, const eg_mha_run_args *a, const eg_attention_args *o,
                           const texts *t)
{
    if (o->alibi.x || eg_formula_has(t->where, "i") || eg_formula_has(t->score, "i"))
        return o->offset;
    return t->where || t->score || m->turned || a->fill ? 0 : a->offset;
}

/* -- scores beside the keys': bias_kv, zero_attn, sink ------------------------------------------
 * They are the attention's sink: e^s of each is added to the sum that the weights are divided by.
 * So they are the same behind any mask, in any form and with a cache, and no key is stored for
 * them. The value of the extra key is added to the result with the weight e^(s − l), l the
 * log-sum-exp of all. */
/* x, a number for each key head, for each head */
static eg_tensor *of_each_head(const eg_mha *m, eg_tensor *x)
{
    const int64_t r = m->heads / m->kv_heads, dims[] = { m->kv_heads, r, eg_dim(x, 1) };
    return r == 1 ? x
                  : eg_reshape_n(eg_expand_n(eg_unsqueeze(x, 1), 3, dims), 2,
                                 (int64_t[]){ m->heads, eg_dim(x, 1) });
}

/* Returns the score (… h i) of the extra key; NULL: there is none. q: the query before it was
 * turned, since that key has no place. */
static eg_tensor *extra_score(const eg_mha *m, eg_tensor *q)
{
    const double scale = m->scale ? eg_option(m->scale, 0) : 1 / sqrt((double)m->d_k);
    if (!m->bias_k) return NULL;
    return eg_scale(eg_einsum(m->specs->extra_score, q, of_each_head(m, m->bias_k)), scale);
}

/* Returns the logarithm of what is added to the denominator; without .x: nothing. */
static eg_masked whole_sink(const eg_mha *m, const eg_mha_run_args *a, eg_tensor *extra)
{
    const char *all = m->specs->rows; /* "bhi" */
    eg_ctx *cx = eg_context(a->query);
    eg_masked sink = a->sink;
    if (!sink.x && m->sink) sink = (eg_masked){ "h", m->sink };
    if (m->zero_attn) /* ln(e^z + e^0) */
        sink = sink.x ? (eg_masked){ sink.axes, eg_softplus(sink.x) }
                      : (eg_masked){ "", eg_full_n(cx, eg_type(a->query), 0, 0, NULL) };
    if (extra && sink.x) {
        char spec[ROOM];
        if (a->ranks && eg_spec_place(eg_spec_parse(cx, ".sink", sink.axes), 0, "i") < 0)
            sink.x = eg_ranks_shared(a->ranks, sink.x);
        snprintf(spec, sizeof spec, "%s,%.200s", all, sink.axes ? sink.axes : "");
        sink.x = eg_on(spec, eg_logaddexp, extra, sink.x);
    }
    return !extra ? sink : (eg_masked){ all, sink.x ? sink.x : extra };
}

/* y (… i h e) of the keys, with the value of the extra key. */
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

/* Heads of one width, in groups or not. */
static eg_tensor *mha_run_together(const eg_mha *m, const eg_mha_run_args *a, const eg__part *part,
                                   eg_attention_args o, eg_tensor *q)
{
    const struct eg__mha_specs *s = m->specs;
    const bool groups = m->kv_heads != m->heads;
    eg_ctx *cx = eg_context(o.q);
    texts t;
    eg_tensor ***out[OUTS], *lse = NULL;
    eg_masked decay = a->decay.x ? a->decay : m->linear ? m->linear->decay : (eg_masked){ 0 };
    eg_tensor *extra = extra_score(m, q);
    if (extra && !o.lse) o.lse = &lse;
    o.sink = whole_sink(m, a, extra);
    outs(&o, out);
    if (!read_texts(m, cx, a, &t))
        return eg_fail_as(cx, EG_ERROR_NOTATION, "the predicate or score cannot be used");
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
        decay = in_groups(m, cx, ".decay", decay);
    }
    tell(&o, &t, a->fill ? NULL : where, score);
    if (a->score_fn || m->score_fn || a->fill) o.score_fn = hooked, o.user = &k;
    if (a->fill) { /* a float is no mask: eg_attention says so */
        bool data = o.keep.x && eg_type(o.keep.x) != EG_F32 && eg_type(o.keep.x) != EG_F64;
        o.keep = data ? (eg_masked){ 0 } : o.keep;
        o.offset = o.alibi.x || eg_formula_has(score, "i") ? o.offset : 0;
    }
    o.spec = s->core;
    o.weights_axes = o.weights || o.dropped || o.scores || o.lse || o.score_fn ? s->weights : NULL;
    o.scale = m->scale;
    o.q = groups ? regrouped(o.q, s->batch + 1, m->kv_heads, m->heads / m->kv_heads) : o.q;
    eg_tensor *y = attended(m, &o, &decay);
    for (int n = 0; n < OUTS && groups; n++)
        if (*out[n]) **out[n] = regrouped(**out[n], s->batch, m->heads, 0);
    y = groups ? regrouped(y, s->batch + 1, m->heads, 0) : y;
    y = with_extra_value(m, part, y, extra, o.lse ? *o.lse : NULL);
    return a->gain ? eg_on(s->gain, eg_mul, y, a->gain) : y;
}

/* Heads of different widths, one after the other: slices of what all heads have together. */
static eg_tensor *mha_run_one_by_one(const eg_mha *m, const eg_mha_run_args *a, eg_attention_args o)
{
    eg_ctx *cx = eg_context(o.q);
    if (a->score_fn || m->score_fn || a->fill || o.alibi.x)
        return eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                          ".score_fn, .fill and .alibi need heads of one width");
    eg_owner *owner = eg_owner_open(cx);
    eg_tensor **room = owner ? eg_owner_alloc(owner, (size_t)((OUTS + 1) * m->heads) * sizeof *room)
                             : NULL,
              *y = NULL;
    eg_tensor *const q = o.q, *const k = o.k, *const v = o.v, **asked[OUTS], ***out[OUTS];
    const eg_masked all_keep = o.keep, all_bias = o.bias, all_lengths = o.lengths;
    texts t;
    int64_t at = 0, from = 0, empty = 0;
    if (!room) return eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory");
    outs(&o, out);
    for (int n = 0; n < OUTS; n++) asked[n] = *out[n];
    if (!read_texts(m, cx, a, &t))
        return eg_fail_as(cx, EG_ERROR_NOTATION, "the predicate or score cannot be used");
    o.offset = core_offset(m, a, &o, &t);
    o.offset_letter = "i";
    for (int64_t h = 0; h < m->heads; h++) {
        char head[24];
        snprintf(head, sizeof head, "%lld", (long long)h);
        int64_t d = m->d_k_each[h], e = m->d_v_each[h];
        o.q = eg_slice_axis(q, -1, at, at + d, 1);
        o.k = eg_slice_axis(k, -1, at, at + d, 1);
        o.v = eg_slice_axis(v, -1, from, from + e, 1);
        at += d, from += e;
        tell(&o, &t, with_head(m, t.where, head), with_head(m, t.score, head));
        o.keep = of_head(cx, ".keep", all_keep, h);
        o.bias = of_head(cx, ".bias", all_bias, h);
        o.lengths = of_head(cx, ".lengths", all_lengths, h);
        o.spec = m->specs->core;
        o.weights_axes = m->specs->weights;
        o.scale = m->scale;
        for (int n = 0; n < OUTS; n++) *out[n] = asked[n] ? room + (n + 1) * m->heads + h : NULL;
        room[h] = attended(m, &o, &(eg_masked){ 0 });
        empty += o.empty ? *o.empty : 0;
        if (a->gain) room[h] = eg_mul(room[h], eg_select_axis(a->gain, 0, h));
    }
    y = eg_concat_axis_n(-1, (int)m->heads, room);
    for (int n = 0; n < OUTS; n++)
        if (asked[n])
            *asked[n] = eg_stack_axis_n(m->specs->batch, (int)m->heads, room + (n + 1) * m->heads);
    if (a->empty) *a->empty = empty;
    eg_owner_close(owner);
    return y;
}

/* True if a key that is given again has the sizes of the memory's in the cache. */
static bool held(const eg_mha *m, eg_tensor *key, const eg_tensor *k)
{
    if (!mha_run_operand(m, "key", 'j', key, m->kdim)) return false;
    for (int axis = 0; axis < m->specs->axes; axis++) {
        const char c = m->specs->letter[axis];
        const int at = c == 'i'        ? m->specs->batch
                       : c && c != 'm' ? (int)(strchr(m->batch, c) - m->batch)
                                       : -1;
        if (at < 0 || eg_dim(key, axis) == eg_dim(k, at)) continue;
        eg_fail_as(eg_context(key), EG_ERROR_SHAPE,
                   "%s '%c' is %lld in the memory that the cache holds but %lld in the key",
                   c == 'i' ? "length" : "batch", c == 'i' ? 'j' : c, (long long)eg_dim(k, at),
                   (long long)eg_dim(key, axis));
        return false;
    }
    return true;
}

/* Sets the projected keys and values: of the operands, with the cache's older ones in front; or
 * those of a memory that the cache holds already. False after an error. */
static bool keys_and_values(const eg_mha *m, const eg_mha_run_args *a, int64_t before,
                            eg_tensor **k, eg_tensor **v)
{
    eg_ctx *cx = eg_context(a->query);
    eg_tensor *key = a->key ? a->key : a->query, *value = a->value ? a->value : key;
    if (a->cache && a->memory && eg__cache_filled(a->cache, a->slot)) {
        *k = *v = NULL;
        return eg__cache_append(a->cache, a->slot, true, m->specs->batch, k, v) &&
               (!a->key || held(m, a->key, *k));
    }
    if (!mha_run_operand(m, "key", 'j', key, m->kdim) ||
        !mha_run_operand(m, "value", 'j', value, m->vdim))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "the key is NULL"), false;
    if (!agree(m, "query", a->query, "key", key, false) ||
        !agree(m, "key", key, "value", value, true))
        return false;
    *k = projected(m, EG_K, key);
    *v = projected(m, EG_V, value);
    *k = turned(m, m->specs->turn_k, normed(m, m->norm_k, *k), before, key_places(a));
    return !a->cache || eg__cache_append(a->cache, a->slot, a->memory, m->specs->batch, k, v);
}

/* True if offset, fill and gain can be used; else records an error. */
static bool mha_run_numbers(const eg_mha *m, const eg_mha_run_args *a)
{
    eg_ctx *cx = eg_context(a->query);
    if (a->offset > INT64_MAX / 2 || a->offset < -INT64_MAX / 2)
        eg_fail_as(cx, EG_ERROR_MISUSE, "the offset is %lld", (long long)a->offset);
    else if (!isfinite(a->fill))
        eg_fail_as(cx, EG_ERROR_MISUSE, ".fill is %g, which is no score; 0 stands for -inf",
                   a->fill);
    else if (a->gain &&
             (!eg_ok(a->gain) || eg_rank(a->gain) != 1 || eg_dim(a->gain, 0) != m->heads))
        eg_fail_as(cx, EG_ERROR_SHAPE, "the gain has %lld numbers, but there are %lld heads",
                   (long long)eg_size(a->gain), (long long)m->heads);
    else
        return true;
    return false;
}

/* True if the options go together, and with the module; else records an error. */
static bool mha_run_goes(const eg_mha *m, const eg_mha_run_args *a)
{
    eg_ctx *cx = eg_context(a->query);
    const bool fused = a->form == EG_FUSED, sink = a->sink.x || a->sink.axes,
               places = a->positions.x || a->positions.axes,
               key_places = a->key_positions.x || a->key_positions.axes;
    if (a->fill && fused)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   ".fill changes scores in memory, which the form EG_FUSED does not have; "
                   "leave one of them out");
    else if (a->score_fn && fused)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   ".score_fn works on scores in memory, which the form EG_FUSED does not "
                   "have; leave one of them out");
    else if (m->score_fn && fused)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "the module's .score_fn works on scores in memory, which the form "
                   "EG_FUSED does not have");
    else if ((places || key_places) && !m->turned)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s is read by rotary positions, which the module does not have",
                   places ? ".positions" : ".key_positions");
    else if ((places && !eg_ok(a->positions.x)) || (key_places && !eg_ok(a->key_positions.x)))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s is NULL",
                   places && !eg_ok(a->positions.x) ? ".positions" : ".key_positions");
    else if (sink && !eg_ok(a->sink.x))
        eg_fail_as(cx, EG_ERROR_MISUSE, ".sink is NULL");
    else if (sink && m->d_k_each)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, ".sink needs heads of one width");
    else if ((m->linear || m->no_softmax) && (a->fill || sink))
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s belongs to a softmax, which %s",
                   sink ? ".sink" : ".fill",
                   m->linear ? ".linear has not" : ".no_softmax leaves out");
    else if (!m->linear && (a->decay.x || a->decay.axes))
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   ".decay belongs to a linear attention; the module was made without .linear");
    else
        return true;
    return false;
}

/* y + r of y's shape. */
static eg_tensor *mha_run_sum(eg_tensor *y, eg_tensor *r)
{
    bool same = eg_ok(r) && eg_rank(r) == eg_rank(y);
    for (int k = 0; same && k < eg_rank(y); k++) same = eg_dim(r, k) == eg_dim(y, k);
    return same ? eg_add(y, r)
                : eg_fail_as(eg_context(y), EG_ERROR_SHAPE,
                             ".add has another shape than the result, of %lld numbers",
                             (long long)eg_size(y));
}
/* Checks the options of a call and computes it: projections, rotary positions, attention and the
 * output's projection. Errors are recorded without the module's name, which the caller adds. */
static eg_tensor *mha_run_run(const eg_mha *m, const eg_mha_run_args *a, const eg__part *part)
{
    eg_ctx *cx = eg_context(a->query);
    if (!mha_run_operand(m, "query", 'i', a->query, m->qdim))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "the query cannot be used");
    int64_t before = a->cache && !a->memory ? eg__cache_taken(a->cache, a->slot) : 0;
    if (!mha_run_numbers(m, a) || !mha_run_goes(m, a))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "an option is refused");
    eg_attention_args o = { .size = sizeof o,
                            .keep = a->keep,
                            .bias = a->bias,
                            .offset = a->offset + before,
                            .dropout = m->dropout,
                            .weights = a->weights,
                            .dropped = a->dropped,
                            .scores = a->scores,
                            .lse = a->lse,
                            .empty = a->empty,
                            .lengths = a->lengths,
                            .form = a->form,
                            .alibi = a->alibi,
                            .no_softmax = m->no_softmax,
                            .ranks = a->ranks,
                            .ranks_block = a->ranks_block,
                            .zigzag = a->zigzag };
    if (m->alibi && !o.alibi.x) o.alibi = (eg_masked){ "h", m->alibi };
    if (!keys_and_values(m, a, before, &o.k, &o.v))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "there are no keys");
    eg_tensor *q = normed(m, m->norm_q, projected(m, EG_Q, a->query));
    if (m->temperature) q = eg_on(m->specs->per_head, eg_mul, q, m->temperature);
    o.q = turned(m, m->specs->turn_q, q, o.offset, a->positions);
    eg_tensor *y = m->d_k_each ? mha_run_one_by_one(m, a, o) : mha_run_together(m, a, part, o, q);
    const bool whole = !m->b_o || m->specs->last;
    y = eg_affine(m->specs->out, y, eg__mha_part(m, EG_O, false), whole ? m->b_o : NULL,
                  .add = whole ? a->add : NULL);
    if (whole || !eg_ok(y)) return y;
    y = eg_on(m->specs->out_bias, eg_add, y, m->b_o);
    return a->add ? mha_run_sum(y, a->add) : y;
}

/* -- a length that is divided among ranks ------------------------------------------------------ */
/* True if the options go with .ranks, and the module; else records an error. */
static bool parts_go(const eg_mha *m, const eg_mha_run_args *a)
{
    static const char whole[] = "asks for what no rank has whole";
    const struct {
        const char *option, *why;
        bool given;
    } none[] = {
        { ".cache", "holds places that came one after the other; decode on one rank", a->cache },
        { ".memory", "belongs to a cache", a->memory },
        { ".fill", "changes scores in memory", a->fill != 0 },
        { ".score_fn", whole, a->score_fn || m->score_fn },
        { ".weights", whole, a->weights },
        { ".dropped", whole, a->dropped },
        { ".scores", whole, a->scores },
        { ".linear", "has no softmax whose parts could be merged", m->linear },
        { ".no_softmax", "has no softmax whose parts could be merged", m->no_softmax },
        { ".core", "may not know of ranks", m->core },
    };
    for (size_t k = 0; k < sizeof none / sizeof *none; k++)
        if (none[k].given)
            return eg_fail_as(eg_context(a->query), EG_ERROR_UNSUPPORTED, ".ranks: %s %s",
                              none[k].option, none[k].why),
                   false;
    if (eg_ranks_context(a->ranks) == eg_context(a->query)) return true;
    return eg_fail_as(eg_context(a->query), EG_ERROR_MISUSE, ".ranks belongs to another context"),
           false;
}
/* Sets the places of query and key for rotary positions where the call does not, and *part where
 * something needs it. False after an error, on every rank. */
static bool parts_placed(const eg_mha *m, eg_mha_run_args *a, eg__part *part)
{
    const int axis = m->specs->place;
    const bool self = !a->key || a->key == a->query, turns = m->turned && !a->positions.x,
               keys = m->turned && !key_places(a).x,
               drops = m->bias_k && m->dropout && eg_training(eg_context(a->query));
    eg__part of_key;
    if ((turns || drops || (keys && self)) &&
        !eg__part_find(part, a->ranks, eg_dim(a->query, axis), a->ranks_block, a->zigzag))
        return false;
    if (keys && !self &&
        !eg__part_find(&of_key, a->ranks, eg_dim(a->key, axis), a->ranks_block, a->zigzag))
        return false;
    if (turns) a->positions = (eg_masked){ "i", eg__part_places(part, a->offset) };
    if (keys) a->key_positions = (eg_masked){ "j", eg__part_places(self ? part : &of_key, 0) };
    return true;
}
/* mha_run_run for this rank's places, of a module whose tensors all ranks read. */
static eg_tensor *mha_run_part(const eg_mha *m, const eg_mha_run_args *given)
{
    eg_mha_run_args all = *given, *a = &all;
    eg_mha own = *m;
    eg_norm norm[2];
    eg_ranks *r = a->ranks;
    eg__part part = { .ranks = r };
    const bool good = parts_go(m, a) && mha_run_numbers(m, a) && mha_run_goes(m, a) &&
                      mha_run_operand(m, "query", 'i', a->query, m->qdim) &&
                      (!a->key || mha_run_operand(m, "key", 'j', a->key, m->kdim));
    /* an error of one rank is one of all, before they wait for each other */
    if (eg_ranks_meet(r) || !good || !parts_placed(m, a, &part))
        return eg_fail_as(eg_context(a->query), EG_ERROR_MISUSE, "an option is refused");
    eg_tensor **const logical[2][4] = { { &own.W_q, &own.W_k, &own.W_v, &own.W_o },
                                        { &own.b_q, &own.b_k, &own.b_v, &own.b_o } };
    for (int k = 0; k < 8; k++) {
        eg_tensor *x = eg__mha_part(m, k % 4, k > 3);
        *logical[k > 3][k % 4] = x ? eg_ranks_shared(r, x) : NULL;
    }
    eg_tensor **const more[] = { &own.bias_k, &own.bias_v, &own.temperature,
                                 &own.rotary_frequencies, &a->gain };
    for (size_t k = 0; k < sizeof more / sizeof *more; k++)
        if (*more[k]) *more[k] = eg_ranks_shared(r, *more[k]);
    own.norm_q = eg__part_norm(r, m->norm_q, &norm[0]);
    own.norm_k = eg__part_norm(r, m->norm_k, &norm[1]);
    return mha_run_run(&own, a, &part);
}

eg_tensor *eg_mha_run_with(const eg_mha_run_args *given)
{
    OPTIONS(eg_mha_run_args, a, given);
    eg_tensor **const handed[] = { a->weights, a->dropped, a->scores, a->lse };
    const bool before = failed(a->query);
    for (int k = 0; k < OUTS; k++)
        if (handed[k]) *handed[k] = NULL;
    if (a->ranks && (!a->mha || !a->query)) {
        eg_fail_as(eg_ranks_context(a->ranks), EG_ERROR_MISUSE, "mha: %s is NULL",
                   a->mha ? "the query" : "the module");
        eg_ranks_meet(a->ranks);
    }
    if (!a->mha) return eg__nn_absent("mha", a->query);
    if (!a->query) return eg__nn_missing("mha", a->mha->name, "the query", a->query);
    return eg__nn_told("mha", a->mha->name, a->query, before,
                       a->ranks ? mha_run_part(a->mha, a)
                                : mha_run_run(a->mha, a, &(eg__part){ .ranks = NULL }));
}
