/* linear_masks.c: .where and .keep of linear attention, as the causal mask and masks of keys and of
 * queries alone. */
#include "linear_attention.h"
#include <math.h>
#include <stdio.h>

/* Returns the first index of a mask that a term does not have; NULL if it has all. */
static const char *lacking_in_mask(const linear_terms *t, int term, const eg_spec *mask)
{
    for (int k = 0; k < mask->indices; k++)
        if (!linear_has(t, term, mask->index[k].name)) return mask->index[k].name;
    return NULL;
}

eg_tensor *eg__linear_kept(const linear_terms *t, int term, eg_tensor *x, int n,
                           const eg_masked *mask)
{
    for (int m = 0; m < n; m++) {
        const eg_spec *s = eg_spec_like(t->all, mask[m].axes);
        if (!s || lacking_in_mask(t, term, s)) continue;
        x = eg_on(eg__nn_joined(t->term[term], s, NULL), eg__nn_masked, x,
                  eg_cast(mask[m].x, EG_BOOL));
    }
    return x;
}

eg_tensor *eg__linear_beta_kept(const linear_factor *beta, const linear_masks *m)
{
    eg_tensor *x = beta->x;
    for (int n = 0; beta->of && n < m->keys; n++) {
        const eg_spec *s = eg_spec_like(beta->of, m->key[n].axes);
        bool within = s != NULL;
        for (int k = 0; within && k < s->indices; k++)
            within = eg_spec_find_item(beta->of, 0, s->index[k].name) >= 0;
        if (within)
            x = eg_on(eg__nn_joined(beta->of, s, NULL), eg__nn_masked, x,
                      eg_cast(m->key[n].x, EG_BOOL));
    }
    return x;
}

/* True if the predicate is "j <= i" or "i >= j". The names are not replaced one after the other,
 * since the key may be called "query". */
static bool is_causal_condition(const linear_terms *t, const eg_formula *f)
{
    static const char *const ways[] = { "%s <= %s", "%s >= %s" };
    bool same = false;
    const size_t size = strlen(t->i) + strlen(t->j) + sizeof " <= ";
    char *text = eg_scope_alloc(t->all->cx, size);
    for (int k = 0; k < 2 && text; k++) {
        snprintf(text, size, ways[k], k ? t->i : t->j, k ? t->j : t->i);
        same |= eg_formula_equals(f, eg_formula_parse(t->all->cx, "linear_attention", text));
    }
    return same;
}

/* Returns room for the names of all indices of the string, with a blank after each; NULL after an
 * error. */
static char *names_room(const linear_terms *t)
{
    size_t size = 1;
    for (int k = 0; k < t->all->indices; k++) size += strlen(t->all->index[k].name) + 1;
    return eg_scope_alloc(t->all->cx, size);
}
/* Returns the condition f, over indices of only the key or only the query, as a bool tensor whose
 * axes are those indices in the order of the scores. */
static eg_masked condition_mask(const eg_linear_attention_args *o, const linear_terms *t,
                                const eg_formula *f, bool of_key)
{
    char *axes = names_room(t);
    int64_t sizes[EG_RANK_MAX];
    const char *place = of_key ? t->j : t->i;
    const int term = of_key ? K : Q;
    eg_tensor *x = of_key ? o->k : o->q;
    int rank = 0;
    if (!axes) return (eg_masked){ 0 };
    for (int d = 0; d < t->term[term]->term[0].items; d++) {
        const char *name = t->all->index[t->all->term[term].item[d].index].name;
        if (!eg_formula_has(f, name)) continue;
        strcat(strcat(axes, name), " ");
        sizes[rank++] = eg_dim(x, d);
    }
    if (!rank) { /* a condition without an index, or of sizes alone: the same at each position */
        strcpy(axes, place);
        sizes[rank++] = eg_dim(x, linear_axis_of(t, term, place));
    }
    const eg_spec *s = eg_spec_like(t->all, axes);
    eg_where_mask_args w = { .size = sizeof w, .where = f->text, .axes = eg__nn_spec(s) };
    w.sizes = sizes;
    for (int k = 0, to = 0; k < 8 && o->with[k].name; k++)
        if (eg_formula_reads(f, o->with[k].name)) w.with[to++] = o->with[k];
    return (eg_masked){ eg_spec_items(s, 0), eg_where_mask_with(t->all->cx, &w) };
}

/* Returns the first index of f that a term does not have; NULL if it has all. */
static const char *lacking_in_formula(const linear_terms *t, int term, const eg_formula *f)
{
    for (int k = 0; k < f->indices; k++)
        if (!linear_has(t, term, f->index[k])) return f->index[k];
    return NULL;
}

/* Adds one condition of the predicate to the masks. False after an error. */
static bool add_condition(const eg_linear_attention_args *o, const linear_terms *t,
                          const eg_formula *f, linear_masks *m)
{
    eg_ctx *cx = t->all->cx;
    const size_t room = strlen(t->i) + 32;
    char *at = eg_scope_alloc(cx, room), size[24];
    if (!at) return false;
    if (is_causal_condition(t, f)) return m->causal = true;
    snprintf(at, room, "%s + %lld", t->i, (long long)o->offset);
    snprintf(size, sizeof size, "%lld",
             (long long)(eg_dim(o->q, linear_axis_of(t, Q, t->i)) + o->offset));
    f = eg_formula_replace(f, t->i, NULL, size);
    if (!f) return false;
    const bool has_i = eg_formula_has(f, t->i), has_j = eg_formula_has(f, t->j),
               of_query = has_i || (!has_j && lacking_in_formula(t, K, f));
    const char *lacks = lacking_in_formula(t, of_query ? Q : K, f);
    if (has_i && has_j)
        eg_fail_as(
            cx, EG_ERROR_UNSUPPORTED,
            "linear_attention: .where may be \"%s <= %s\" and conditions on keys or on queries "
            "alone, as \"pad[%s]\", joined by &; but \"%s\" is of both",
            t->j, t->i, t->j, f->text);
    else if (lacks)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "linear_attention: \"%s\" of .where has the index '%s', which the %s lacks",
                   f->text, lacks, of_query ? "query" : "key");
    if (eg_error(cx)) return false;
    if (of_query && o->offset) f = eg_formula_replace(f, t->i, at, NULL);
    if (!f) return false;
    *(of_query ? &m->query[m->queries++] : &m->key[m->keys++]) = condition_mask(o, t, f, !of_query);
    return !eg_error(cx);
}

/* Splits .where into its conditions. False after an error: a condition that the chunks cannot
 * compute, or tensors of .with that .where does not read. */
static bool where_masks(const eg_linear_attention_args *o, const linear_terms *t, linear_masks *m)
{
    eg_ctx *cx = t->all->cx;
    char *indices = names_room(t);
    int count;
    const eg_formula *term[CONDITIONS], *f = NULL;
    if (!indices) return false;
    for (int d = 0; d < t->term[Y]->term[0].items; d++) {
        const char *name = t->all->index[t->all->term[Y].item[d].index].name;
        if (strcmp(name, t->e)) strcat(strcat(indices, name), " ");
    }
    strcat(indices, t->j);
    if (o->where)
        f = eg_formula_parse_with(cx, &(eg_formula_args){ .size = sizeof(eg_formula_args),
                                                          .who = "linear_attention",
                                                          .text = o->where,
                                                          .complete = true,
                                                          .indices = indices,
                                                          .with = o->with });
    if (o->where && !f) return false;
    for (int k = 0; k < 8 && o->with[k].name; k++)
        if (!eg_formula_reads(f, o->with[k].name))
            return eg_fail_as(cx, EG_ERROR_NOTATION,
                              "linear_attention: '%.40s' of .with is not in .where",
                              o->with[k].name),
                   false;
    if (!f) return true;
    if ((count = eg_formula_terms(f, CONDITIONS, term)) < 0) return false;
    for (int k = 0; k < count; k++)
        if (!add_condition(o, t, term[k], m)) return false;
    return true;
}

bool eg__linear_masks(eg_ctx *cx, const eg_linear_attention_args *o, const linear_terms *t,
                      linear_masks *m)
{
    const eg_spec *keep = o->keep.axes ? eg_spec_like(t->all, o->keep.axes) : NULL;
    *m = (linear_masks){ .keys = 0 };
    if (eg_error(cx)) return false;
    if (o->keep.x && (eg_type(o->keep.x) == EG_F32 || eg_type(o->keep.x) == EG_F64))
        eg_fail_as(
            cx, EG_ERROR_DTYPE,
            "linear_attention: .keep is %s; it needs bool or integers, non-zero for keys that "
            "take part",
            eg_type_name(eg_type(o->keep.x)));
    else if (eg_spec_find_item(keep, 0, t->i) >= 0)
        eg_fail_as(
            cx, EG_ERROR_NOTATION,
            "linear_attention: .keep has the letter '%s' of the query; it can only leave out keys",
            t->i);
    else if (keep && lacking_in_mask(t, K, keep))
        eg_fail_as(cx, EG_ERROR_NOTATION,
                   "linear_attention: .keep has the index '%s', which the key lacks",
                   lacking_in_mask(t, K, keep));
    else if (o->chunk < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: .chunk is %lld", (long long)o->chunk);
    else if (o->offset > INT64_MAX / 2)
        eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: the offset %lld is too large",
                   (long long)o->offset);
    else if (!isfinite(o->scale))
        eg_fail_as(cx, EG_ERROR_MISUSE, "linear_attention: .scale is %g", o->scale);
    if (o->keep.x) m->key[m->keys++] = (eg_masked){ o->keep.axes ? o->keep.axes : "", o->keep.x };
    if (eg_error(cx) || !where_masks(o, t, m)) return false;
    const bool beta = o->beta.x || o->beta.axes;
    if (beta && !o->no_norm)
        return eg_fail_as(
                   cx, EG_ERROR_UNSUPPORTED,
                   "linear_attention: .beta needs .no_norm = true, since the delta rule has no "
                   "denominator"),
               false;
    if (m->causal || !(beta || o->decay.x || o->decay.axes || o->state || o->next || o->chunk))
        return true;
    return eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                      "linear_attention: .decay, .beta, .state, .next and .chunk need .where = "
                      "\"%s <= %s\"",
                      t->j, t->i),
           false;
}
