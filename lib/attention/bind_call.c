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
 * The resulting plan (attention.h) is used by both forms: einsum, softmax, einsum (composed.c),
 * and tiles (fused.c). In the fused form, a letter of q and y alone is a query, and one that k
 * or v shares with y a batch. */
#include "attention/attention.h"
#include <math.h>
#include <string.h>

enum { IN_Q = 1, IN_K = 2, IN_V = 4, IN_Y = 8 };
/* The role of each letter of a bound string. */
typedef struct roles {
    const eg_bound *bound;
    uint8_t in[EG_AXES_MAX];     /* by axis: which terms have it, IN_Q | … */
    int rank, inner;             /* axes of the scores; the last `inner` of them are keys */
    uint16_t score[EG_RANK_MAX]; /* axes of the scores, as axes of `bound` */
    double width; /* product of the sizes of the letters that are summed for a score */
    uint16_t number[EG_AXES_MAX]; /* by axis: its number in the plan */
} roles;

static bool is_dot(unsigned in) { return (in & (IN_Q | IN_K | IN_V | IN_Y)) == (IN_Q | IN_K); }
static bool is_key(unsigned in) { return (in & (IN_Q | IN_K | IN_V | IN_Y)) == (IN_K | IN_V); }
/* Returns the group of a letter among the axes of the scores: 0 batch, 1 query, 2 another letter
 * of the key, 3 key; −1 for a letter that is summed. */
static int score_group(unsigned in)
{
    return is_dot(in) ? -1 : is_key(in) ? 3 : (in & IN_Q) && (in & IN_K) ? 0 : in & IN_Q ? 1 : 2;
}

/* Writes " 'x' 'y'" for the letters that the terms `in`, and no others, have. Returns text. */
static const char *letters(const roles *r, unsigned in, char *text, size_t size)
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
static bool keys_fit(const roles *r)
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
static bool assign(roles *r, const eg_bound *b)
{
    static const char *const operand[] = { "query", "key", "value" };
    *r = (roles){ .bound = b, .width = 1 };
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

static bool short_enough(const eg_bound *b)
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
static bool weights_order(const roles *r, int names, int *order)
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
                eg__refuse(b, names, k, "not an index of the weights");
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
static bool has(const eg_attention_plan *a, int term, uint16_t axis)
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
        if (!has(a, term, all[k])) a->label[term][a->rank[term]++] = all[k];
    }
    return t->x && a->rank[term] < t->items
               ? eg__einsum(1, (eg_tensor *[]){ t->x }, (const uint16_t *[]){ all }, a->rank[term],
                            a->label[term])
               : t->x;
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
static eg_attention_plan *plan_of(roles *r, const eg_masking *mask, const eg_attention_args *o,
                                  const int *term, eg_tensor **x)
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
    const size_t where = t.where ? eg__up16(eg__expression_bytes(t.where)) : 0,
                 score = t.score ? eg__up16(eg__expression_bytes(t.score)) : 0;
    eg_attention_plan *a = eg__alloc(b->cx, sizeof *a + where + score);
    if (!a) return NULL;
    memset(a, 0, sizeof *a + where + score);
    *a = (eg_attention_plan){ .scores = r->rank,
                              .inner = r->inner,
                              .scale = eg_option(o->scale, 1 / sqrt(r->width)),
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
    /* an axis of the scores that the output does not have is summed in result() */
    for (int s = 0; s < r->rank - r->inner; s++) {
        if (has(a, EG_TERM_Y, a->score[s])) continue;
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
static eg_tensor *result(const roles *r, const eg_attention_plan *a, eg_tensor *y)
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

/* -- what the caller's functions and the other outputs need ----------------------------------- */
/* Applies a function of the caller to the scores or weights s and returns its result, or poison
 * after an error. The function gets the axes in the order of .weights_axes. Messages name
 * `option` and, as `what`, "scores" or "weights". */
static eg_tensor *changed(eg_tensor *(*f)(void *, eg_tensor *), const char *option,
                          const char *what, void *user, eg_tensor *s, int rank, const int *order)
{
    int back[EG_RANK_MAX];
    char have[256], want[256];
    if (!eg_ok(s)) return s;
    for (int k = 0; k < rank; k++) back[order[k]] = k;
    eg_tensor *x = eg_permute_n(s, rank, order), *y = f(user, x);
    if (!y) return eg_fail_as(s->cx, EG_ERROR_MISUSE, "attention: %s returned NULL", option);
    snprintf(have, sizeof have, "the result of %s", option);
    if (!eg__check_option(s->cx, "attention", have, NULL, y)) return eg__poison(s->cx);
    if (!eg__same_shape(x, y) || y->dtype != x->dtype)
        return eg_fail_as(s->cx, y->dtype == x->dtype ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                          "attention: %s returned %s %s for %s that are %s %s", option,
                          eg_type_name(y->dtype), eg__dims_text(y, have, sizeof have), what,
                          eg_type_name(x->dtype), eg__dims_text(x, want, sizeof want));
    return eg_permute_n(y, rank, back);
}
static void count_empty(eg_tensor *weights, int inner, int64_t *empty)
{
    eg_tensor *none = eg_eq(eg__sum_last(eg_detach(weights), inner), eg__zero_like(weights));
    *empty = (int64_t)eg_item(eg_sum(NULL, none));
}
/* Returns x, whose axes are those of the scores' rows, with the axes in the order of the
 * weights. */
static eg_tensor *rows_ordered(const eg_attention_plan *a, eg_tensor *x, const int *order)
{
    const int rows = a->scores - a->inner;
    int axes[EG_RANK_MAX], n = 0;
    for (int k = 0; k < a->scores; k++)
        if (order[k] < rows) axes[n++] = order[k];
    return eg_permute_n(x, rows, axes);
}

/* -- plans of earlier calls: the same strings, types and sizes give the same plan ------------- */
/* An entry of the plan cache: the order of the weights' axes. The plan follows it in memory. */
typedef struct bind_cached {
    int order[EG_RANK_MAX];
    _Alignas(16) size_t bytes;
} bind_cached;
enum { OPERANDS = 4 + EG_MASKS }; /* terms of the bound string */
/* The key of a call in the plan cache, with room for its text and its list of operands. */
typedef struct call_key {
    eg_plan_key key;
    eg_key_text text;
    eg_tensor *x[OPERANDS + EG_GIVEN_MAX];
} call_key;
static void put_text(eg_key_text *t, const char *text)
{
    eg__key_put(t, text ? strlen(text) + 1 : 1, text ? text : "");
}
/* Makes the key of a call from its strings, the options that binding reads, and the given
 * operands, which are listed in c->x. False if the text does not fit; the call is then not
 * cached. */
static bool attention_key(call_key *c, const eg_attention_args *o, const char *spec,
                          const eg_mask_option *masks, int n, eg_tensor *const *xs)
{
    uint16_t there = (uint16_t)(o->no_softmax << 15);
    int8_t term[EG_MASKS];
    int count = 0;
    for (int k = 0; k < n; k++)
        if (xs[k]) {
            there |= (uint16_t)(1 << k);
            c->x[count++] = xs[k];
        }
    for (int k = 0; k < EG_MASKS; k++) term[k] = (int8_t)masks[k].term;
    c->text.length = 0;
    c->text.fits = true;
    eg__key_put(&c->text, sizeof o->scale, &o->scale);
    eg__key_put(&c->text, sizeof o->offset, &o->offset);
    eg__key_put(&c->text, sizeof term, term);
    eg__key_put(&c->text, sizeof there, &there);
    put_text(&c->text, spec);
    put_text(&c->text, o->offset_letter);
    put_text(&c->text, o->where);
    if (o->score) put_text(&c->text, o->score);
    for (int k = 0; k < EG_GIVEN_MAX && o->with[k].name; k++) {
        put_text(&c->text, o->with[k].name);
        c->x[count++] = o->with[k].x;
    }
    c->key = (eg_plan_key){ EG_KEY_ATTENTION, count, c->text.length, c->text.text, c->x };
    return c->text.fits;
}
/* True if no operand was split, merged or reduced to a diagonal and the result needs no such
 * step, so that the plan applies to the operands of a later call as they are. Only such calls
 * are cached. */
static bool as_given(const roles *r, const eg_attention_plan *a, int n, eg_tensor *const *xs)
{
    const eg_bound *b = r->bound;
    bool same = b->out.rank == b->out.items && a->rank[EG_TERM_Y] == b->out.items;
    for (int k = 0; same && k < b->out.items; k++)
        same = a->label[EG_TERM_Y][k] == r->number[b->out.item[k].axis];
    for (int k = 0; same && k < n; k++) {
        const eg_bound_term *t = &b->term[k];
        same = t->x == xs[k] && t->items == t->rank;
        for (int i = 0; same && i < t->items; i++) same = eg__item_of(t, t->item[i].axis) == i;
    }
    return same;
}
static void remember(const roles *r, const eg_plan_key *key, const eg_attention_plan *a,
                     const int *order)
{
    const size_t bytes = eg__attention_bytes(a);
    bind_cached *k = eg__plans_add(r->bound->cx, key, sizeof *k + bytes);
    if (!k) return;
    memcpy(k->order, order, sizeof k->order);
    k->bytes = bytes;
    memcpy(k + 1, a, bytes);
}

/* Returns the scores for the output .scores. They are left · s, where s was computed for the
 * softmax, if s is the same for forbidden pairs as for allowed ones; else they are computed again
 * for all pairs. */
static eg_tensor *all_scores(const eg_attention_args *o, const eg_attention_plan *a,
                             const eg_attention_masks *m, eg_tensor *const *x, eg_tensor *s,
                             double left)
{
    if (!s || (m->n && !o->score_fn && (a->score_bytes || a->careful)))
        s = eg__attend_scores(a, NULL, x, &left);
    return left == 1 || !eg_ok(s) ? s : eg_scale(s, left);
}
/* Casts keys and values of f16 and bf16 to the type of the query unless einsum alone reads them:
 * tiles, products that leave out forbidden elements, and gradients need them in that type. False
 * after an error. */
static bool operands_cast(const eg_attention_plan *a, bool fused, eg_tensor **x)
{
    const eg_tensor *q = x[EG_TERM_Q];
    for (int t = EG_TERM_K; t <= EG_TERM_V; t++)
        if (eg__is_half(x[t]->dtype) && (fused || a->careful || eg__recording(q->cx)) &&
            !eg_ok(x[t] = eg_cast(x[t], (eg_dtype)q->dtype)))
            return false;
    return true;
}
static bool is_fused(const eg_attention_args *o, const eg_attention_plan *a, eg_dtype type)
{
    return !o->score_fn && !o->weights_fn &&
           (o->form == EG_FUSED ? eg__flash_possible(a, type)
                                : o->form != EG_UNFUSED && eg__flash_suits(a, type));
}
/* Computes y and the other outputs of the call, in the composed or the fused form. r NULL: y
 * already has the axes of the output. */
static eg_tensor *compute(const eg_attention_args *o, const roles *r, const eg_attention_plan *a,
                          bool fused, eg_tensor **x, const int *order)
{
    eg_tensor *s = NULL, *w = NULL, *d = NULL, *lse = NULL, *max = NULL, *y;
    double left = 1;
    if (!operands_cast(a, fused, x)) return eg__poison(x[EG_TERM_Q]->cx);
    eg_attention_masks m = { 0 };
    const bool composed = !fused || o->weights || o->dropped;
    if (composed && (m = eg__attend_masks(a, x)).n < 0) return eg__poison(x[0]->cx);
    /* .score_fn may read the scores of forbidden pairs, which then have gradients. If an operand is
     * not finite or very large, it reads 0 there, since NaN times a cotangent of 0 is NaN. */
    if (composed) s = eg__attend_scores(a, o->score_fn && !a->careful ? NULL : &m, x, &left);
    if (o->score_fn) {
        s = changed(o->score_fn, ".score_fn", "scores", o->user, eg_scale(s, left), a->scores,
                    order);
        left = 1;
    }
    if (composed) w = eg__attend_weights(a, &m, x, s, left);
    if (o->weights_fn)
        w = changed(o->weights_fn, ".weights_fn", "weights", o->user, w, a->scores, order);
    if (o->scores) *o->scores = eg_permute_n(all_scores(o, a, &m, x, s, left), a->scores, order);
    if (left != 1 && a->wants_lse && !fused) s = eg_scale(s, left);
    if (!fused || o->dropped) d = a->dropping && w ? eg__drop(&a->drop, w) : w;
    y = fused ? eg__flash(a, x, x[EG_TERM_SINK] ? NULL : o->empty, &lse, &max)
              : eg__attend_values(a, &m, x, d);
    if (!eg_ok(y)) return y;
    if (o->empty && !fused && !x[EG_TERM_SINK]) count_empty(w, a->inner, o->empty);
    if (o->lse && !fused) lse = eg__attend_lse(a, &m, x, s);
    if (o->lse) *o->lse = rows_ordered(a, lse, order);
    if (o->max_scores && !fused) max = eg__attend_max(a, &m, x, s);
    if (o->max_scores) *o->max_scores = rows_ordered(a, max, order);
    if (o->weights) *o->weights = eg_permute_n(w, a->scores, order);
    if (o->dropped) *o->dropped = eg_permute_n(d, a->scores, order);
    return r ? result(r, a, y) : y;
}

/* Binds the string. Returns the plan, and sets x to the operands and order[] to the order of the
 * weights' axes; NULL after an error. */
static eg_attention_plan *bound(const eg_attention_args *o, const char *spec,
                                const eg_mask_option *masks, int n, eg_tensor *const *xs,
                                const char *const *called, roles *r, eg_tensor **x, int *order)
{
    const eg_bound *b = eg__bind_called("attention", spec, 0, n, xs, 0, NULL, called);
    if (!b) return NULL;
    if (!b->arrow)
        return eg__refuse(
                   b, 2, -1,
                   "-> and the output are missing: they say which index the softmax runs over"),
               NULL;
    if (!short_enough(b) || !assign(r, b) || !weights_order(r, o->weights_axes ? n - 1 : -1, order))
        return NULL;
    const eg_masking mask = { .bound = b,
                              .rank = r->rank,
                              .inner = r->inner,
                              .axis = r->score,
                              .where = o->where,
                              .offset = o->offset,
                              .offset_letter = o->offset_letter,
                              .keep = masks[EG_MASK_KEEP].term,
                              .bias = masks[EG_MASK_BIAS].term };
    int term[EG_MASKS];
    if (!eg__masks_fit(&mask, (eg_dtype)o->q->dtype)) return NULL;
    for (int k = 0; k < EG_MASKS; k++) {
        term[k] = masks[k].term;
        if (k >= EG_MASK_LENGTHS && term[k] >= 0 &&
            !eg__masks_letters(&mask, term[k], masks[k].option))
            return NULL;
        if (k >= EG_MASK_ALIBI && term[k] >= 0 && masks[k].mask.x->dtype != o->q->dtype)
            return eg_fail_as(b->cx, EG_ERROR_DTYPE, "attention: %s is %s but the scores are %s",
                              masks[k].option, eg_type_name(masks[k].mask.x->dtype),
                              eg_type_name(o->q->dtype)),
                   NULL;
    }
    if (term[EG_MASK_SINK] >= 0)
        for (int k = 0; k < b->term[term[EG_MASK_SINK]].items; k++) {
            const uint16_t axis = b->term[term[EG_MASK_SINK]].item[k].axis;
            if (!is_key(r->in[axis])) continue;
            return eg__refuse(
                       b, term[EG_MASK_SINK], k,
                       "the sink is one more key of each query and has no index '%.*s' of keys",
                       b->axis[axis].length, b->axis[axis].text),
                   NULL;
        }
    return plan_of(r, &mask, o, term, x);
}

/* True if the options can be combined and have valid values; else records an error. */
static bool options_fit(eg_ctx *cx, const eg_attention_args *o)
{
    const double dropout = eg_option(o->dropout, 0);
    const char *refused = !o->no_softmax  ? NULL
                          : o->lse        ? ".lse"
                          : o->empty      ? ".empty"
                          : o->sink.x     ? ".sink"
                          : o->max_scores ? ".max_scores"
                                          : NULL;
    if (!isfinite(o->scale))
        eg_fail_as(cx, EG_ERROR_MISUSE, "attention: .scale is %g; it must be finite", o->scale);
    else if (!(dropout >= 0 && dropout <= 1))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "attention: .dropout: %g is not a probability; it must lie in [0, 1]", dropout);
    else if (o->ranks_block < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "attention: .ranks_block is %lld",
                   (long long)o->ranks_block);
    else if (o->form < EG_FORM_BY_SIZE || o->form > EG_UNFUSED)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "attention: .form is %d; it is EG_FUSED or EG_UNFUSED, or not given",
                   (int)o->form);
    else if (o->form == EG_FUSED && (o->score_fn || o->weights_fn))
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "attention: .form is EG_FUSED, but %s works on %s in memory, which that form "
                   "does not have",
                   o->score_fn ? ".score_fn" : ".weights_fn", o->score_fn ? "scores" : "weights");
    else if (o->max_scores && o->sink.x)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "attention: .max_scores is not supported with .sink, which counts as a score");
    else if (refused)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "attention: %s needs a softmax, but .no_softmax is given", refused);
    return !eg__failed(cx);
}
/* True if no tensor of .with is NULL and each that has floats has the type of the query; else
 * records an error. */
static bool with_fits(eg_ctx *cx, const eg_attention_args *o)
{
    for (int k = 0; k < EG_GIVEN_MAX && o->with[k].name; k++) {
        eg_tensor *x = o->with[k].x;
        if (!x)
            return eg_fail_as(cx, EG_ERROR_MISUSE, "attention: '%.40s' of .with is NULL",
                              o->with[k].name),
                   false;
        if (!eg__check_option(cx, "attention", ".with", o->with[k].name, x)) return false;
        if (eg__is_inexact(x->dtype) && x->dtype != o->q->dtype)
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "attention: the query is %s but '%.40s' of .with is %s; eg_cast one "
                              "of them",
                              eg_type_name(o->q->dtype), o->with[k].name, eg_type_name(x->dtype)),
                   false;
    }
    return true;
}
/* Copies the plan of an earlier call with the same key, and lists the operands of this call in
 * x. NULL if there is none whose bounds hold for these operands; NULL also after an error. */
static eg_attention_plan *remembered(eg_ctx *cx, const eg_plan_key *key, const eg_attention_args *o,
                                     const eg_mask_option *masks, eg_tensor *const *xs,
                                     eg_tensor **x, int *order)
{
    const bind_cached *m = eg__plans_find(cx, key);
    eg_tensor *given[EG_MASKS];
    if (!m) return NULL;
    for (int k = 0; k < EG_MASKS; k++) given[k] = masks[k].term < 0 ? NULL : xs[masks[k].term];
    memcpy(x, xs, 3 * sizeof *x);
    x[EG_TERM_SINK] = given[EG_MASK_SINK];
    eg__attention_tensors(o, given, x + EG_TERMS);
    const eg_attention_plan *of = (const void *)(m + 1);
    if (!eg__attention_within(of, x + EG_TERMS)) return NULL;
    eg_attention_plan *a = eg__alloc(cx, m->bytes);
    if (!a) return NULL;
    memcpy(order, m->order, sizeof m->order);
    return memcpy(a, of, m->bytes);
}

/* Casts the query to the type of the scores: f64 if an operand is f64, else f32. Keys and values of
 * f16 and bf16 remain as they are, unless the length is divided among ranks. False after an error:
 * operands of integers, or of two types that are no halves. */
static bool types_fit(eg_ctx *cx, eg_attention_args *o, eg_tensor **xs, const char *const *called)
{
    int first = -1;
    for (int k = 0; k < 3; k++) {
        const eg_dtype type = (eg_dtype)xs[k]->dtype;
        if (eg__is_half(type)) continue;
        if (!eg__is_inexact(type))
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "attention: %s is %s; cast it to f32 or f64 first", called[k],
                              eg_type_name(type)),
                   false;
        if (first < 0) first = k;
        if (type != xs[first]->dtype)
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "attention: %s is %s but %s is %s; eg_cast one of them",
                              called[first], eg_type_name((eg_dtype)xs[first]->dtype), called[k],
                              eg_type_name(type)),
                   false;
    }
    const eg_dtype type = first < 0 ? EG_F32 : (eg_dtype)xs[first]->dtype;
    for (int k = 0; k < (o->ranks ? 3 : 1); k++)
        if (eg__is_half(xs[k]->dtype) && !eg_ok(xs[k] = eg_cast(xs[k], type))) return false;
    o->q = xs[0], o->k = xs[1], o->v = xs[2];
    return true;
}
eg_tensor *eg_attention_with(const eg_attention_args *given)
{
    eg_attention_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_tensor *xs[OPERANDS] = { o.q, o.k, o.v }, *x[EG_ATTENTION_OPERANDS] = { NULL };
    const char *called[OPERANDS] = { "the query", "the key", "the value" };
    eg_ctx *cx = eg__context_of("attention", 3, xs);
    eg_tensor **const out[] = { o.weights, o.dropped, o.scores, o.lse, o.max_scores };
    for (int k = 0; k < 5; k++)
        if (out[k]) *out[k] = eg__poison(cx);
    if (o.empty) *o.empty = 0;
    if (!cx || !eg__check_taken(cx, "attention", EG_TAKES_HALVES, 3, xs)) return eg__poison(cx);
    if (!o.spec) return eg_fail_as(cx, EG_ERROR_MISUSE, "attention: the spec is NULL");
    if (!options_fit(cx, &o)) return eg__poison(cx);
    if (!types_fit(cx, &o, xs, called)) return eg__poison(cx);
    if (!with_fits(cx, &o)) return eg__poison(cx);
    if (o.ranks && eg__capture_refuses(cx, "attention", "processes cannot wait for each other"))
        return eg__poison(cx);
    if (o.empty && !o.sink.x &&
        eg__capture_refuses(cx, "attention", ".empty would not be counted again in each run"))
        return eg__poison(cx);
    if (o.ranks) return eg__attention_ring(cx, &o);
    roles r;
    int n = 3, order[EG_RANK_MAX];
    eg_mask_option masks[] = { [EG_MASK_KEEP] = { ".keep", o.keep, -1 },
                               [EG_MASK_BIAS] = { ".bias", o.bias, -1 },
                               [EG_MASK_LENGTHS] = { ".lengths", o.lengths, -1 },
                               [EG_MASK_ALIBI] = { ".alibi", o.alibi, -1 },
                               [EG_MASK_SINK] = { ".sink", o.sink, -1 } };
    const char *spec =
        eg__masks_spec(cx, "attention", o.spec, EG_MASKS, masks, o.weights_axes, xs, called, &n);
    if (!spec) return eg__poison(cx);
    call_key key;
    const bool keyed = attention_key(&key, &o, spec, masks, n, xs);
    eg_attention_plan *a = keyed ? remembered(cx, &key.key, &o, masks, xs, x, order) : NULL;
    const bool known = a != NULL;
    if (!a) {
        memset(x, 0, sizeof x);
        a = bound(&o, spec, masks, n, xs, called, &r, x, order);
        if (a && keyed && as_given(&r, a, n, xs)) remember(&r, &key.key, a, order);
    }
    if (!a) return eg__poison(cx);
    for (int t = 0; t < a->tensors; t++)
        if (eg__is_int(x[EG_TERMS + t]->dtype) &&
            !eg__extremes_act("attention", x[EG_TERMS + t], a->least[t], a->most[t]))
            return eg__poison(cx);
    a->dropping = eg__drop_draw(cx, eg_option(o.dropout, 0), &a->drop);
    a->wants_lse = o.lse || o.max_scores;
    a->wants_max = o.max_scores != NULL;
    a->rescored = o.score_fn || o.score;
    const bool fused = is_fused(&o, a, (eg_dtype)x[EG_TERM_Q]->dtype);
    a->careful = eg__attention_reads_nonfinite(a, x, fused);
    if (a->careful || a->no_softmax) eg__attention_be_strict(a);
    return eg__failed(cx) ? eg__poison(cx) : compute(&o, known ? NULL : &r, a, fused, x, order);
}
