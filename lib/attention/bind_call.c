/* bind_call.c: binds the string of an attention call, y = softmax(score(scale q·k)) v (Vaswani et
 * al. 2017, eq. 1), in any layout. The terms that have a letter determine what it is:
 *
 *   letters of …             are
 *   q and k, not v, not y    summed in the dot product; the product of their sizes is d, and the
 *                            default scale 1/√d
 *   k and v, not q, not y    the keys, which the softmax runs over
 *   every other of q or k    axes of the scores: batches first, then queries;
 *                            keys last, so that a row is contiguous
 *
 * The resulting plan (attention.h) is used by both forms: einsum, softmax, einsum (unfused.c), and
 * tiles (fused.c). call.c makes it and keeps it for later calls. In the fused form, a letter of
 * q and y alone is a query, and one that k or v shares with y a batch. */
#include "attention/bind_call.h"
#include <math.h>
#include <string.h>

enum { IN_Q = 1, IN_K = 2, IN_V = 4, IN_Y = 8 };

static bool is_dot(unsigned in) { return (in & (IN_Q | IN_K | IN_V | IN_Y)) == (IN_Q | IN_K); }
static bool is_key(unsigned in) { return (in & (IN_Q | IN_K | IN_V | IN_Y)) == (IN_K | IN_V); }
/* Returns the group of a letter among the axes of the scores: 0 batch, 1 query, 2 another letter
 * of the key, 3 key; −1 for a letter that is summed. */
static int score_group(unsigned in)
{
    return is_dot(in) ? -1 : is_key(in) ? 3 : (in & IN_Q) && (in & IN_K) ? 0 : in & IN_Q ? 1 : 2;
}

/* Writes " 'x' 'y'" for the letters that the terms `in`, and no others, have. Returns text. */
static const char *letters(const eg_call_roles *r, unsigned in, char *text, size_t size)
{
    size_t w = 0;
    *text = '\0';
    for (int a = 0; a < r->bound->axes && w < size; a++)
        if (r->in[a] == in)
            w += (size_t)snprintf(text + w, size - w, " '%.*s'", r->bound->axis[a].length,
                                  r->bound->axis[a].text);
    return text;
}
/* True unless the query has two letters that are in no other operand and the softmax would run
 * over two axes of the key; else records an error. The usual cause is a head with one name in
 * the query and another in the key. To attend over two axes, the caller merges them: (j k).
 * Sizes are not tested, so the same string is either always valid or never. */
static bool keys_fit(const eg_call_roles *r)
{
    const eg_bound *b = r->bound;
    const eg_bound_term *key = &b->term[1];
    char keys[256], queries[256];
    int own_queries = 0, over = 0;
    for (int a = 0; a < b->axes; a++) own_queries += r->in[a] == (IN_Q | IN_Y);
    for (int x = 0; x < key->rank; x++) {
        bool summed = false;
        for (int k = key->first[x]; k < key->last[x]; k++)
            summed |= is_key(r->in[key->item[k].axis]);
        over += summed;
    }
    if (own_queries < 2 || over < 2) return true;
    eg__refuse(
        b, 1, -1,
        "the softmax would run over%s together, and%s are indices of the query alone; give a "
        "head the same letter in query, key and value; to attend over several axes, merge "
        "them in key and value, as in (j k)",
        letters(r, IN_K | IN_V, keys, sizeof keys),
        letters(r, IN_Q | IN_Y, queries, sizeof queries));
    return false;
}

/* Determines which letters are summed, which are keys, and the axes of the scores. False after
 * an error. */
static bool roles_of_letters(eg_call_roles *r, const eg_bound *b)
{
    static const char *const operand[] = { "query", "key", "value" };
    *r = (eg_call_roles){ .bound = b, .width = 1 };
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < b->term[t].items; k++)
            r->in[b->term[t].item[k].axis] |= (uint8_t)(1 << t);
    for (int k = 0; k < b->out.items; k++) r->in[b->out.item[k].axis] |= IN_Y;
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < b->term[t].items; k++) {
            const eg_axis_name *a = &b->axis[b->term[t].item[k].axis];
            if (r->in[b->term[t].item[k].axis] != 1 << t) continue;
            eg__refuse(b, t, k,
                       "index '%.*s' is in the %s alone: no other operand has it, and neither "
                       "has the output",
                       a->length, a->text, operand[t]);
            return false;
        }
    int dots = 0;
    for (int a = 0; a < b->axes; a++)
        if (is_dot(r->in[a])) {
            r->width *= (double)b->axis[a].size;
            dots++;
        }
    if (!dots) {
        eg__refuse(b, 0, -1,
                   "query and key share no index that is absent from value and output, so there "
                   "is no dot product; give the value's width another letter, as in "
                   "\"ibhd,jbhd,jbhe->ibhe\"");
        return false;
    }
    for (int want = 0; want < 4; want++)
        for (int t = 0; t < 2; t++)
            for (int k = 0; k < b->term[t].items; k++) {
                const uint16_t a = b->term[t].item[k].axis;
                bool have = false;
                for (int s = 0; s < r->rank; s++) have |= r->score[s] == a;
                if (have || score_group(r->in[a]) != want) continue;
                if (r->rank == EG_RANK_MAX) {
                    eg__refuse(b, t, k, "the scores would have more than %d axes", EG_RANK_MAX);
                    return false;
                }
                r->score[r->rank++] = a;
                r->inner += want == 3;
            }
    if (r->inner) return keys_fit(r);
    eg__refuse(b, 1, -1,
               "no index to attend over: such an index is in key and value, and neither in the "
               "query nor in the output");
    return false;
}

static bool ranks_fit(const eg_bound *b)
{
    for (int t = 0; t <= 3; t++) {
        const eg_bound_term *term = t < 3 ? &b->term[t] : &b->out;
        if (term->items > EG_RANK_MAX) {
            eg__refuse(b, t < 3 ? t : b->terms, -1, "%d axes; at most %d", term->items,
                       EG_RANK_MAX);
            return false;
        }
    }
    return true;
}

/* Sets order[] to the axes of the weights as the caller gets them, as positions in r->score: the
 * order of .weights_axes (term `names`), or, if names < 0, that of the output with the keys
 * last. False after an error. */
static bool weights_order(const eg_call_roles *r, int names, int *order)
{
    const eg_bound *b = r->bound;
    int n = 0;
    if (names >= 0) {
        const eg_bound_term *t = &b->term[names];
        if (!eg__no_repeats(b, names)) return false;
        if (t->rank != t->items) {
            eg__refuse(b, names, -1, "the axes of the weights take no groups");
            return false;
        }
        for (int s = 0; s < r->rank; s++)
            if (eg__item_of(t, r->score[s]) < 0) {
                const eg_axis_name *a = &b->axis[r->score[s]];
                eg__refuse(b, names, -1,
                           "the weights have the index '%.*s', which .weights_axes lacks",
                           a->length, a->text);
                return false;
            }
        for (int k = 0; k < t->items; k++) {
            int s = 0;
            while (s < r->rank && r->score[s] != t->item[k].axis) s++;
            if (s == r->rank) {
                const eg_axis_name *a = &b->axis[t->item[k].axis];
                eg__refuse(b, names, k,
                           "index '%.*s' of .weights_axes is not an index of the weights",
                           a->length, a->text);
                return false;
            }
            order[n++] = s;
        }
        return true;
    }
    for (int k = 0; k < b->out.items; k++)
        for (int s = 0; s < r->rank; s++)
            if (r->score[s] == b->out.item[k].axis) order[n++] = s;
    for (int s = 0; s < r->rank; s++)
        if (!(r->in[r->score[s]] & IN_Y)) order[n++] = s;
    return true;
}

/* -- the plan --------------------------------------------------------------------------------- */
static eg_part part_of(unsigned in)
{
    return is_dot(in)            ? EG_PART_DOT
           : is_key(in)          ? EG_PART_KEY
           : in == (IN_Q | IN_Y) ? EG_PART_QUERY
           : in == (IN_V | IN_Y) ? EG_PART_VALUE
                                 : EG_PART_BATCH;
}
static bool term_has(const eg_attention_plan *a, int term, uint16_t axis)
{
    for (int k = 0; k < a->rank[term]; k++)
        if (a->label[term][k] == axis) return true;
    return false;
}
/* Sets the axes of a term in the plan, each once. Returns the operand of the term, or its
 * diagonal view if a letter occurs twice; NULL for the output. */
static eg_tensor *distinct(eg_attention_plan *a, int term, const eg_bound_term *t,
                           const uint16_t *number)
{
    uint16_t all[EG_RANK_MAX];
    a->rank[term] = 0;
    for (int k = 0; k < t->items; k++) {
        all[k] = number[t->item[k].axis];
        if (!term_has(a, term, all[k])) a->label[term][a->rank[term]++] = all[k];
    }
    return t->x && a->rank[term] < t->items
               ? eg__einsum(1, (eg_tensor *[]){ t->x }, (const uint16_t *[]){ all }, a->rank[term],
                            a->label[term])
               : t->x;
}

/* Returns the number of the node whose value is score · c or score / c for a constant c, if no
 * other node reads the score, and sets *factor to c or 1 / c; −1 if there is none. *score: the
 * node of the score. */
static int scaled_score(const eg_expression *e, int *score, double *factor)
{
    int reader = -1, readers = 0;
    *score = -1;
    for (int k = 0; k < e->nodes; k++) {
        const eg_node *n = &e->node[k];
        if (n->code == EG_X_SCORE) *score = k;
        for (int i = 0; i < n->count && n->code > EG_X_SCORE && *score >= 0; i++)
            if (n->in[i] == *score) reader = k, readers++;
    }
    if (readers != 1 || *score == e->root || *score == e->strict) return -1;
    const eg_node *n = &e->node[reader];
    const bool first = n->in[0] == *score, divides = n->code == EG_X_DIV && first;
    if (!divides && n->code != EG_X_MUL) return -1;
    const eg_node *c = &e->node[n->in[first]];
    *factor = divides ? 1 / c->real : c->real;
    /* other factors could exceed the range of floats where the value does not */
    return c->code == EG_X_FLOAT && fabs(*factor) > 0x1p-64 && fabs(*factor) < 0x1p64 ? reader : -1;
}
/* Makes constant factors of the score part of the scale. Returns e; NULL if nothing but the score
 * remains of it. */
static eg_expression *into_scale(eg_expression *e, double *scale)
{
    int score, reader;
    double factor;
    while ((reader = scaled_score(e, &score, &factor)) >= 0) {
        *scale *= factor;
        for (int k = reader + 1; k < e->nodes; k++)
            for (int i = 0; i < e->node[k].count && e->node[k].code > EG_X_SCORE; i++)
                if (e->node[k].in[i] == reader) e->node[k].in[i] = (uint8_t)score;
        if (e->root == reader) e->root = score;
        if (e->strict == reader) e->strict = score;
        e->node[reader] = (eg_node){ .code = EG_X_FLOAT, .kind = EG_IS_FLOAT };
    }
    return e->root >= 0 && e->node[e->root].code == EG_X_SCORE ? NULL : e;
}
/* Writes the expressions of a call into its plan. */
static void put_expressions(eg_attention_plan *a, const eg_attention_texts *t)
{
    char *at = (char *)a->expressions;
    a->tensors = t->tensors;
    memcpy(a->least, t->least, sizeof a->least);
    memcpy(a->most, t->most, sizeof a->most);
    if (t->where) memcpy(at, t->where, eg__expression_bytes(t->where));
    if (t->score) memcpy(at + a->where_bytes, t->score, eg__expression_bytes(t->score));
}
/* Returns the plan of a bound call and sets x to its operands. NULL after an error. */
static eg_attention_plan *plan_of(eg_call_roles *r, const eg_masking *mask,
                                  const eg_attention_args *o, const int *term, eg_tensor **x)
{
    const eg_bound *b = r->bound;
    eg_attention_texts t;
    bool query[EG_RANK_MAX];
    for (int s = 0; s < r->rank; s++) query[s] = part_of(r->in[r->score[s]]) == EG_PART_QUERY;
    if (!o->scale && r->width == 0) {
        char dots[256];
        return eg_fail_as(b->cx, EG_ERROR_SHAPE,
                          "attention:%s is 0, so the default scale 1/√0 is not finite; give .scale",
                          letters(r, IN_Q | IN_K, dots, sizeof dots)),
               NULL;
    }
    if (!eg__attention_texts(&t, mask, o, term, query)) return NULL;
    double scale = eg_option(o->scale, 1 / sqrt(r->width));
    if (t.score) t.score = into_scale(t.score, &scale);
    const size_t where = t.where ? eg__up16(eg__expression_bytes(t.where)) : 0,
                 score = t.score ? eg__up16(eg__expression_bytes(t.score)) : 0;
    eg_attention_plan *a = eg__alloc(b->cx, sizeof *a + where + score);
    if (!a) return NULL;
    memset(a, 0, sizeof *a + where + score);
    *a = (eg_attention_plan){ .scores = r->rank,
                              .inner = r->inner,
                              .scale = scale,
                              .no_softmax = o->no_softmax,
                              .where_bytes = where,
                              .score_bytes = score };
    put_expressions(a, &t);
    for (int k = 0; k < b->axes; k++) {
        if (!r->in[k]) continue;
        a->size[a->axes] = b->axis[k].size;
        a->part[a->axes] = (uint8_t)part_of(r->in[k]);
        r->number[k] = (uint16_t)a->axes++;
    }
    for (int s = 0; s < r->rank; s++) a->score[s] = r->number[r->score[s]];
    const int of[EG_TERMS] = { 0, 1, 2, term[EG_MASK_SINK] };
    for (int k = 0; k < EG_TERMS; k++) {
        a->rank[k] = -1;
        if (of[k] >= 0) x[k] = distinct(a, k, &b->term[of[k]], r->number);
    }
    memcpy(x + EG_TERMS, t.x, (size_t)t.tensors * sizeof *x);
    distinct(a, EG_TERM_Y, &b->out, r->number);
    a->key_range = eg__attention_key_range(a);
    /* an axis of the scores that the output does not have is summed in eg__call_result */
    for (int s = 0; s < r->rank - r->inner; s++) {
        if (term_has(a, EG_TERM_Y, a->score[s])) continue;
        if (a->rank[EG_TERM_Y] == EG_RANK_MAX)
            return eg__refuse(b, b->terms, -1,
                              "with the indices that are summed at last the result would have more "
                              "than %d axes",
                              EG_RANK_MAX),
                   NULL;
        a->label[EG_TERM_Y][a->rank[EG_TERM_Y]++] = a->score[s];
    }
    for (int k = 0; k < EG_ATTENTION_OPERANDS; k++)
        if (x[k] && !eg_ok(x[k])) return NULL;
    return eg__failed(b->cx) ? NULL : a;
}
eg_tensor *eg__call_result(const eg_call_roles *r, const eg_attention_plan *a, eg_tensor *y)
{
    const eg_bound *b = r->bound;
    uint16_t want[EG_RANK_MAX];
    bool same = a->rank[EG_TERM_Y] == b->out.items;
    for (int k = 0; k < b->out.items; k++) {
        want[k] = r->number[b->out.item[k].axis];
        same &= k < a->rank[EG_TERM_Y] && a->label[EG_TERM_Y][k] == want[k];
    }
    return eg__merge(&b->out, same || !eg_ok(y)
                                  ? y
                                  : eg__einsum(1, &y, (const uint16_t *[]){ a->label[EG_TERM_Y] },
                                               b->out.items, want));
}

bool eg__call_is_as_given(const eg_attention_call *c, const eg_call_roles *r,
                          const eg_attention_plan *a)
{
    const eg_bound *b = r->bound;
    bool same = b->out.rank == b->out.items && a->rank[EG_TERM_Y] == b->out.items;
    for (int k = 0; same && k < b->out.items; k++)
        same = a->label[EG_TERM_Y][k] == r->number[b->out.item[k].axis];
    for (int k = 0; same && k < c->terms; k++) {
        const eg_bound_term *t = &b->term[k];
        same = t->x == c->x[k] && t->items == t->rank;
        for (int i = 0; same && i < t->items; i++) same = eg__item_of(t, t->item[i].axis) == i;
    }
    return same;
}

/* -- masks, and the whole call ---------------------------------------------------------------- */
/* Sets term[] to the terms of the masks. True if their dtypes and letters fit the scores; else
 * records an error. */
static bool masks_have_terms(const eg_attention_call *c, const eg_masking *mask, int *term)
{
    const eg_dtype type = (eg_dtype)c->o.q->dtype;
    for (int k = 0; k < EG_MASKS; k++) {
        const eg_mask_option *m = &c->mask[k];
        term[k] = m->term;
        if (k >= EG_MASK_LENGTHS && m->term >= 0 && !eg__masks_letters(mask, m->term, m->option))
            return false;
        if (k >= EG_MASK_ALIBI && m->term >= 0 && m->mask.x->dtype != type) {
            eg_fail_as(mask->bound->cx, EG_ERROR_DTYPE, "attention: %s is %s but the scores are %s",
                       m->option, eg_type_name((eg_dtype)m->mask.x->dtype), eg_type_name(type));
            return false;
        }
    }
    return true;
}
/* True if the sink, which is a term if `term` is not negative, has no index of keys; else records
 * an error. */
static bool sink_fits(const eg_call_roles *r, int term)
{
    const eg_bound *b = r->bound;
    for (int k = 0; term >= 0 && k < b->term[term].items; k++) {
        const uint16_t axis = b->term[term].item[k].axis;
        if (!is_key(r->in[axis])) continue;
        eg__refuse(b, term, k,
                   "the sink is one more key of each query and has no index '%.*s' of keys",
                   b->axis[axis].length, b->axis[axis].text);
        return false;
    }
    return true;
}
eg_attention_plan *eg__call_bind(const eg_attention_call *c, eg_call_roles *r, eg_tensor **x,
                                 int *order)
{
    const eg_attention_args *o = &c->o;
    const eg_bound *b =
        eg__bind_called("attention", c->spec, 0, c->terms, c->x, 0, NULL, c->called);
    if (!b) return NULL;
    if (!b->arrow)
        return eg__refuse(
                   b, 2, -1,
                   "-> and the output are missing: they say which index the softmax runs over"),
               NULL;
    if (!ranks_fit(b) || !roles_of_letters(r, b) ||
        !weights_order(r, o->weights_axes ? c->terms - 1 : -1, order))
        return NULL;
    const eg_masking mask = { .bound = b,
                              .rank = r->rank,
                              .inner = r->inner,
                              .axis = r->score,
                              .where = o->where,
                              .was = c->was,
                              .offset = o->offset,
                              .offset_letter = o->offset_letter,
                              .keep = c->mask[EG_MASK_KEEP].term,
                              .bias = c->mask[EG_MASK_BIAS].term,
                              .values = EG_TERM_V };
    int term[EG_MASKS];
    if (!eg__masks_fit(&mask, (eg_dtype)o->q->dtype) || !masks_have_terms(c, &mask, term) ||
        !sink_fits(r, term[EG_MASK_SINK]))
        return NULL;
    return plan_of(r, &mask, o, term, x);
}
