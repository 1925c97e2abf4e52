/* mha_layout.c: the strings of an attention module, which are derived from its layout once. */
#include "nn.h"
#include <stdio.h>

/* Reads the layout, in which i and m must occur once and no letter twice. Stores the letter of each
 * axis in s, and the batch letters in `batch`. False after an error. */
static bool mha_letters(struct eg__mha_specs *s, const eg_spec *layout, char *batch)
{
    if (layout->names || layout->terms != 1 || layout->arrow)
        return eg_spec_fail(layout, EG_ERROR_NOTATION, -1, -1,
                            "the layout is one term of letters and groups such as (b c=2)"),
               false;
    const eg_spec_term *t = &layout->term[0];
    int n = 0;
    if (t->axes > EG_RANK_MAX - 2)
        return eg_spec_fail(layout, EG_ERROR_SHAPE, 0, -1, "the layout has more than %d axes",
                            EG_RANK_MAX - 2),
               false;
    for (int k = 0; k < t->items; k++) {
        const eg_spec_item *item = &t->item[k];
        if (item->index == EG_INDEX_REST || item->bracket)
            return eg_spec_fail(layout, EG_ERROR_NOTATION, 0, k,
                                "the layout is made of letters and groups such as (b c=2)"),
                   false;
        const char c = item->index < 0 ? '\0' : *layout->index[item->index].name;
        s->letter[item->axis] = item->group ? '\0' : c;
        if (!c) continue;
        if (eg_spec_find_item(layout, 0, layout->index[item->index].name) < k)
            return eg_spec_fail(layout, EG_ERROR_NOTATION, 0, k,
                                "the layout has '%c' more than once", c),
                   false;
        if (strchr("jhdeosGRgr", c))
            return eg_spec_fail(layout, EG_ERROR_NOTATION, 0, k,
                                "the letter '%c' of the layout is the module's own", c),
                   false;
        if (c == 'i' || c == 'm') continue;
        if (n == EG_RANK_MAX - 4)
            return eg_spec_fail(layout, EG_ERROR_SHAPE, 0, k,
                                "the layout has more than %d batch letters", n),
                   false;
        batch[n++] = c;
    }
    s->axes = t->axes;
    for (int k = 0; k < s->axes; k++)
        if (s->letter[k] == 'i') s->position_axis = k;
    s->batch = n;
    s->last = s->axes > 0 && s->letter[s->axes - 1] == 'm';
    if (eg_spec_find_item(layout, 0, "i") >= 0 && eg_spec_find_item(layout, 0, "m") >= 0)
        return true;
    return eg_spec_fail(layout, EG_ERROR_NOTATION, 0, -1, "the layout needs '%c' once",
                        eg_spec_find_item(layout, 0, "i") < 0 ? 'i' : 'm'),
           false;
}

/* As eg__mha_layout; the parsed layouts are allocated in the open scope. */
static bool mha_compose(eg_mha *m, const char *layout, eg_params *p)
{
    eg_ctx *cx = eg_params_context(p);
    struct eg__mha_specs *s = eg_params_alloc(p, sizeof *s);
    if (s) s->who = eg__nn_who(p, "mha");
    const eg_spec *given = s ? eg_spec_parse(cx, s->who, layout ? layout : "b i m") : NULL;
    char batch[EG_RANK_MAX] = "";
    if (!given || !mha_letters(s, given, batch)) return false;
    /* the indices of the query, of key and value, of the result */
    const char *q = eg__nn_spec(eg_spec_of_term(given, 0)),
               *k = eg__nn_spec(eg_spec_rename(given, "i", "j")),
               *o = eg__nn_spec(eg_spec_rename(given, "m", "o"));
    if (eg_error(cx)) return false;
    m->specs = s;
    m->batch = eg__nn_text(p, "%s", batch);
    char indices[2 * EG_RANK_MAX + 8];
    int n = 0;
    for (const char *c = batch; *c; c++)
        n += snprintf(indices + n, sizeof indices - (size_t)n, "%c ", *c);
    s->indices = eg__nn_text(p, "%.*sh i j", n, indices);
    const bool groups = m->kv_heads != m->heads;
    /* indices inside the core */
    const char *heads = groups ? "GR" : "h", *keys = groups ? "G" : "h";
    if (m->d_k_each) {
        s->project[EG_Q] = eg__nn_text(p, "%s,ms->%sis", q, batch);
        s->project[EG_K] = s->project[EG_V] = eg__nn_text(p, "%s,ms->%sjs", k, batch);
        s->core = eg__nn_text(p, "%sid,%sjd,%sje->%sie", batch, batch, batch, batch);
        s->weights = eg__nn_text(p, "%sij", batch);
        s->out = eg__nn_text(p, "%sis,so->%s", batch, o);
    } else {
        s->project[EG_Q] = eg__nn_text(p, "%s,mhd->%sihd", q, batch);
        s->project[EG_K] = eg__nn_text(p, "%s,mhd->%sjhd", k, batch);
        s->project[EG_V] = eg__nn_text(p, "%s,mhe->%sjhe", k, batch);
        s->core = eg__nn_text(p, "%si%sd,%sj%sd,%sj%se->%si%se", batch, heads, batch, keys, batch,
                              keys, batch, heads);
        s->weights = eg__nn_text(p, "%s%sij", batch, heads);
        s->out = eg__nn_text(p, "%sihe,heo->%s", batch, o);
        s->rotate_q = eg__nn_text(p, "%sihd,id", batch);
        s->rotate_k = eg__nn_text(p, "%sjhd,jd", batch);
        s->gain = eg__nn_text(p, "%sihe,h", batch);
        s->per_head = eg__nn_text(p, "%sihd,h", batch);
        s->extra_score = eg__nn_text(p, "%sihd,hd->%shi", batch, batch);
        s->rows = eg__nn_text(p, "%shi", batch);
        s->extra_value = eg__nn_text(p, "%shi,he->%sihe", batch, batch);
    }
    s->out_bias = eg__nn_text(p, "%s,o->%s", o, o);
    s->keys = eg__nn_text(p, "%sj", batch);
    return !eg_error(cx);
}
bool eg__mha_layout(eg_mha *m, const char *layout, eg_params *p)
{
    const eg_mark mark = eg_push(eg_params_context(p));
    const bool composed = mha_compose(m, layout, p);
    eg_pop(eg_params_context(p), mark);
    return composed;
}
