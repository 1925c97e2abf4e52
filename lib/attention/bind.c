/* bind.c: y = softmax(scale q·k + bias) v, in any layout: letters say what is a batch, a head,
 * a query, a key.
 *
 *   letters of …             become
 *   q and k, not v, not y    the dot product; their sizes multiply to d, the scale is 1/√d
 *   k and v, not q, not y    the softmax: the keys
 *   every other of q or k    axes of the scores: batches first, then queries;
 *                            keys last, so that a row is contiguous
 *
 * The plan (attention.h) that comes of it serves both forms: einsum, softmax, einsum (composed.c),
 * and tiles (fused.c), for which a letter of q and y alone is a query, and one that k or v shares
 * with y a batch. Vaswani et al. 2017, eq. 1. */
#include "attention/attention.h"
#include <math.h>
#include <string.h>

enum { IN_Q = 1, IN_K = 2, IN_V = 4, IN_Y = 8 };
/* What the letters of a bound string are to each other. */
typedef struct roles {
    const eg_bound *bound;
    uint8_t in[EG_AXES_MAX];     /* by axis: which terms have it, IN_Q | … */
    int rank, inner;             /* axes of the scores; the last `inner` are the keys */
    uint16_t score[EG_RANK_MAX]; /* these axes */
    double width; /* product of the sizes of the letters that are summed for a score */
    uint16_t number[EG_AXES_MAX]; /* by axis: its number in the plan */
} roles;

static bool is_dot(unsigned in) { return (in & (IN_Q | IN_K | IN_V | IN_Y)) == (IN_Q | IN_K); }
static bool is_key(unsigned in) { return (in & (IN_Q | IN_K | IN_V | IN_Y)) == (IN_K | IN_V); }
/* Where a letter stands among the axes of the scores: 0 batch, 1 query, 2 other, 3 key; −1: it is
 * summed. */
static int place(unsigned in)
{
    return is_dot(in) ? -1 : is_key(in) ? 3 : (in & IN_Q) && (in & IN_K) ? 0 : in & IN_Q ? 1 : 2;
}

/* " 'x' 'y'" of the letters whose terms are `in` */
static const char *letters(const roles *r, unsigned in, char *text, size_t room)
{
    size_t w = 0;
    *text = '\0';
    for (int a = 0; a < r->bound->axes && w < room; a++)
        if (r->in[a] == in)
            w += (size_t)snprintf(text + w, room - w, " '%.*s'", r->bound->axis[a].length,
                                  r->bound->axis[a].text);
    return text;
}
/* False, after an error, if the query has two letters for itself and the softmax would run over two
 * axes of the key. Most often a head then has one name in the query and another in the key; a
 * caller who means both axes merges them, (j k). Sizes are not looked at, so that no call works
 * with one length and fails with another. */
static bool keys_are_meant(const roles *r)
{
    const eg_bound *b = r->bound;
    const eg_bound_term *key = &b->term[1];
    char keys[256], queries[256];
    int detached_view = 0, over = 0;
    for (int a = 0; a < b->axes; a++) detached_view += r->in[a] == (IN_Q | IN_Y);
    for (int x = 0; x < key->rank; x++) {
        bool summed = false;
        for (int k = key->first[x]; k < key->last[x]; k++)
            summed |= is_key(r->in[key->item[k].axis]);
        over += summed;
    }
    if (detached_view < 2 || over < 2) return true;
    eg__refuse(b, 1, -1,
               "the softmax would run over%s together, and the query has%s for itself; a head has "
               "the same letter in query, key "
               "and value; to attend over several axes, merge them in key and value, as in (j k)",
               letters(r, IN_K | IN_V, keys, sizeof keys),
               letters(r, IN_Q | IN_Y, queries, sizeof queries));
    return false;
}

/* Finds which letters are summed, which are keys, and the axes of the scores. False after an error.
 */
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
                       "index '%.*s' is in the %s alone and not in the output; nothing says what "
                       "becomes of it",
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
                   "query and key share no index that value and output lack, so there is no "
                   "product to sum; the value's width "
                   "needs a letter of its own, as in \"ibhd,jbhd,jbhe->ibhe\"");
        return false;
    }
    for (int want = 0; want < 4; want++)
        for (int t = 0; t < 2; t++)
            for (int k = 0; k < b->term[t].items; k++) {
                const uint16_t a = b->term[t].item[k].axis;
                bool have = false;
                for (int s = 0; s < r->rank; s++) have |= r->score[s] == a;
                if (have || place(r->in[a]) != want) continue;
                if (r->rank == EG_RANK_MAX) {
                    eg__refuse(b, t, k, "the scores would have more than %d axes", EG_RANK_MAX);
                    return false;
                }
                r->score[r->rank++] = a;
                r->inner += want == 3;
            }
    if (r->inner) return keys_are_meant(r);
    eg__refuse(b, 1, -1,
               "no index to attend over: it stands in key and value, and neither in the query nor "
               "in the output");
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

/* Finds the order in which the weights' axes are given to the caller, as places in r->score: that
 * of .weights_axes (term `names`), or if names < 0 that of the output, the keys last. False after
 * an error. */
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

/* -- the bound string as an eg_attention_plan
 * ------------------------------------------------------ */
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
/* Sets the axes of a term in the plan, each once. Returns its operand, of which the diagonal is
 * taken where an axis stands twice; NULL for the output. */
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

/* .lengths = { "b", t } as a mask over b and the keys: j < t[b]. Poison if it is none. */
static eg_tensor *lengths(eg_attention_plan *a, const roles *r, const eg_bound_term *t)
{
    const eg_bound *b = r->bound;
    const eg_axis_name *key = &b->axis[r->score[r->rank - 1]];
    const int term = (int)(t - b->term);
    eg_tensor *x = t->x;
    if (x->dtype != EG_I32 && x->dtype != EG_I64)
        return eg_fail_as(b->cx, EG_ERROR_DTYPE,
                          "attention: .lengths is %s; lengths are i32 or i64",
                          eg_type_name(x->dtype));
    if (r->inner != 1)
        return eg_fail_as(b->cx, EG_ERROR_UNSUPPORTED,
                          "attention: .lengths counts along one index, but there are %d to attend "
                          "over; use .keep",
                          r->inner);
    if (has(a, EG_TERM_LENGTHS, a->score[r->rank - 1]) || t->items == EG_RANK_MAX)
        return eg__refuse(b, term, -1, "a length is a number of keys and has no index '%.*s'",
                          key->length, key->text);
    for (int64_t k = 0, n = eg_size(x); k < n; k++) {
        const eg_tensor *whole = eg_contiguous(x);
        if (!eg_ok(whole)) return eg__poison(b->cx);
        const int64_t length = x->dtype == EG_I32 ? ((const int32_t *)(const void *)whole->data)[k]
                                                  : ((const int64_t *)(const void *)whole->data)[k];
        if (length >= 0 && length <= key->size) continue;
        return eg_fail_as(b->cx, EG_ERROR_INDEX,
                          "attention: .lengths has %lld at place %lld, but index '%.*s' is %lld",
                          (long long)length, (long long)k, key->length, key->text,
                          (long long)key->size);
    }
    a->label[EG_TERM_LENGTHS][a->rank[EG_TERM_LENGTHS]++] = a->score[r->rank - 1];
    return eg_lt(eg_arange(b->cx, (eg_dtype)x->dtype, 0, (double)key->size, 1),
                 eg_unsqueeze(x, x->rank));
}

/* Finds the query and the key axis whose distance .alibi counts: the only ones there are, not
 * counting those of the slopes. False after an error. */
static bool distances(eg_attention_plan *a, const roles *r)
{
    int queries = 0;
    for (int s = 0; s < r->rank - r->inner; s++) {
        const uint16_t axis = a->score[s];
        if (a->part[axis] != EG_PART_QUERY || has(a, EG_TERM_SLOPES, axis)) continue;
        a->slope_query = axis;
        queries++;
    }
    a->slope_key = a->score[r->rank - 1];
    if (a->offset > 1ll << 52 || a->offset < -(1ll << 52))
        return eg_fail_as(r->bound->cx, EG_ERROR_MISUSE,
                          "attention: .offset is %lld, too far for .alibi", (long long)a->offset),
               false;
    if (queries == 1 && r->inner == 1 && !has(a, EG_TERM_SLOPES, a->slope_key)) return true;
    eg_fail_as(r->bound->cx, EG_ERROR_NOTATION,
               "attention: .alibi counts the distance of one query index from one key index, which "
               "are not the slopes'; "
               "here are %d and %d",
               queries, r->inner - has(a, EG_TERM_SLOPES, a->slope_key));
    return false;
}

/* True if the index that .offset moves in the predicate is the query of the distance: one offset
 * moves one index. Else records an error. */
static bool moves_distance(const eg_attention_plan *a, const roles *r, const eg_masking *mask)
{
    const eg_bound *b = r->bound;
    int s = 0;
    while (a->score[s] != a->slope_query) s++;
    const eg_axis_name *query = &b->axis[r->score[s]];
    const char *letter = mask->offset_letter;
    const bool same = letter ? strlen(letter) == (size_t)query->length &&
                                   !memcmp(letter, query->text, strlen(letter))
                             : a->moved < 0 || a->moved == s;
    if (same || !mask->offset) return true;
    return eg_fail_as(b->cx, EG_ERROR_NOTATION,
                      "attention: .offset is %lld, but .alibi counts from '%.*s' and \"%s\" has "
                      "another index that it could move; say .offset_letter = \"%.*s\"",
                      (long long)mask->offset, query->length, query->text,
                      letter ? letter : mask->where, query->length, query->text),
           false;
}

/* The terms that softmax lacks; −1: there is none. */
typedef struct extra_terms {
    int alibi, lengths;
} extra_terms;
/* The plan of a bound call, and its operands by term in x. NULL after an error. */
static eg_attention_plan *plan_of(roles *r, const eg_masking *mask, extra_terms extra, double scale,
                                  eg_tensor **x)
{
    const eg_bound *b = r->bound;
    const eg_predicate *where;
    int moved;
    if (!eg__masks_where(mask, &where, &moved)) return NULL;
    eg_attention_plan *a = eg__alloc(b->cx, sizeof *a + (where ? eg__where_bytes(where) : 0));
    if (!a) return NULL;
    *a = (eg_attention_plan){ .scores = r->rank,
                              .inner = r->inner,
                              .scale = scale,
                              .offset = mask->offset,
                              .moved = moved,
                              .masked = where != NULL };
    if (where) memcpy(a->predicate, where, eg__where_bytes(where));
    for (int k = 0; k < b->axes; k++) {
        if (!r->in[k]) continue;
        a->size[a->axes] = b->axis[k].size;
        a->part[a->axes] = (uint8_t)part_of(r->in[k]);
        r->number[k] = (uint16_t)a->axes++;
    }
    for (int s = 0; s < r->rank; s++) a->score[s] = r->number[r->score[s]];
    const int term[EG_TERMS] = { 0, 1, 2, mask->bias, extra.alibi, mask->keep, extra.lengths };
    for (int t = 0; t < EG_TERMS; t++) {
        a->rank[t] = -1;
        if (term[t] >= 0) x[t] = distinct(a, t, &b->term[term[t]], r->number);
    }
    distinct(a, EG_TERM_Y, &b->out, r->number);
    /* an index that the output lacks is summed at last */
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
    if (extra.lengths >= 0) x[EG_TERM_LENGTHS] = lengths(a, r, &b->term[extra.lengths]);
    if (extra.alibi >= 0 && (!distances(a, r) || !moves_distance(a, r, mask))) return NULL;
    for (int t = 0; t < EG_TERMS; t++)
        if (x[t] && !eg_ok(x[t])) return NULL;
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

/* -- what else is asked for ------------------------------------------------------------------- */
/* The scores as .score_fn changes them, which sees their axes in the order of the weights. */
static eg_tensor *scored(const eg_attention_args *o, eg_tensor *s, int rank, const int *order)
{
    int back[EG_RANK_MAX];
    char have[256], want[256];
    if (!eg_ok(s)) return s;
    for (int k = 0; k < rank; k++) back[order[k]] = k;
    eg_tensor *x = eg_permute_n(s, rank, order), *y = o->score_fn(o->user, x);
    if (!y) return eg_fail_as(s->cx, EG_ERROR_MISUSE, "attention: .score_fn returned NULL");
    if (!eg__check_all(s->cx, "attention: .score_fn", 1, &y)) return eg__poison(s->cx);
    if (!eg__same_shape(x, y) || y->dtype != x->dtype)
        return eg_fail_as(s->cx, y->dtype == x->dtype ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                          "attention: .score_fn returned %s %s for scores that are %s %s",
                          eg_type_name(y->dtype), eg__dims_text(y, have, sizeof have),
                          eg_type_name(x->dtype), eg__dims_text(x, want, sizeof want));
    return eg_permute_n(y, rank, back);
}
static void count_empty(eg_tensor *weights, int inner, int64_t *empty)
{
    eg_tensor *none = eg_eq(eg__sum_last(eg_detach(weights), inner),
                            eg_full_n(weights->cx, (eg_dtype)weights->dtype, 0, 0, NULL));
    *empty = (int64_t)eg_item(eg_sum(NULL, none));
}
/* The rows' ln Σ e^scores, axes in the order of the weights, without the keys. scores NULL: from
 * the statistics of y, which the fused form made. */
static eg_tensor *log_sum(const eg_attention_plan *a, const eg_attention_masks *m,
                          eg_tensor *const *x, const eg_tensor *y, eg_tensor *scores,
                          const int *order)
{
    const int rows = a->scores - a->inner;
    int axes[EG_RANK_MAX], n = 0;
    for (int k = 0; k < a->scores; k++)
        if (order[k] < rows) axes[n++] = order[k];
    if (scores) return eg_permute_n(eg__attend_lse(a, m, scores), rows, axes);
    const size_t bytes = eg__attention_bytes(a);
    eg_attention_plan *l = eg__alloc(x[0]->cx, bytes);
    if (!l) return eg__poison(x[0]->cx);
    memcpy(l, a, bytes);
    l->rank[EG_TERM_V] = -1;
    l->dropping = false;
    l->rank[EG_TERM_Y] = rows;
    for (int k = 0; k < rows; k++) l->label[EG_TERM_Y][k] = a->score[axes[k]];
    return eg__flash_lse(l, y, x);
}

/* -- a call that was made before: the same strings, types and sizes give the same plan -------- */
/* An entry of the plan cache: the order of the weights' axes; the plan follows. */
typedef struct bind_cached {
    int order[EG_RANK_MAX];
    _Alignas(16) size_t bytes;
} bind_cached;
enum { KEEP, BIAS, LENGTHS, ALIBI, MASKS };
/* The key of a call in the plan cache, with room for its text and its list of operands. */
typedef struct call_key {
    eg_plan_key key;
    eg_key_text text;
    eg_tensor *x[8];
} call_key;
/* Builds the key of a call: its strings, the options that binding reads, and the operands that
 * are given, c->x. False if the call cannot be cached: the text has no room, or there are
 * .lengths, which are looked at in every call. */
static bool attention_key(call_key *c, const eg_attention_args *o, const char *spec,
                          const eg_mask_option *masks, int n, eg_tensor *const *xs)
{
    uint8_t there = 0;
    int count = 0, term[MASKS];
    for (int k = 0; k < n; k++)
        if (xs[k]) {
            there |= (uint8_t)(1 << k);
            c->x[count++] = xs[k];
        }
    for (int k = 0; k < MASKS; k++) term[k] = masks[k].term;
    c->text.length = 0;
    c->text.fits = !o->lengths.x;
    eg__key_put(&c->text, sizeof o->scale, &o->scale);
    eg__key_put(&c->text, sizeof o->offset, &o->offset);
    eg__key_put(&c->text, sizeof term, term);
    eg__key_put(&c->text, 1, &there);
    eg__key_put(&c->text, strlen(spec) + 1, spec);
    const char *letter = o->offset_letter ? o->offset_letter : "";
    eg__key_put(&c->text, strlen(letter) + 1, letter);
    if (o->where) eg__key_put(&c->text, strlen(o->where) + 1, o->where);
    c->key = (eg_plan_key){ EG_KEY_ATTENTION, count, c->text.length, c->text.text, c->x };
    return c->text.fits;
}
/* True if nothing was split, merged or taken from a diagonal: operands and result are those of the
 * call. Only such calls are cached. */
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

/* Computes y, and what else the call asks for, in the form that fits. r NULL: y's axes are those of
 * the output. */
static eg_tensor *compute(const eg_attention_args *o, const roles *r, const eg_attention_plan *a,
                          eg_tensor *const *x, const int *order)
{
    const eg_dtype type = (eg_dtype)x[EG_TERM_Q]->dtype;
    const bool fused =
        !o->score_fn && (o->form == EG_FUSED ? eg__flash_possible(a, type)
                                             : o->form != EG_UNFUSED && eg__flash_suits(a, type));
    eg_tensor *s = NULL, *w = NULL, *d = NULL, *y;
    double left = 1;
    eg_attention_masks m = { 0 };
    const bool composed = !fused || o->weights || o->dropped || o->scores;
    if (composed && (m = eg__attend_masks(a, x)).n < 0) return eg__poison(x[0]->cx);
    if (composed) s = eg__attend_scores(a, &m, x, &left);
    if (o->score_fn) {
        s = scored(o, eg_scale(s, left), a->scores, order);
        left = 1;
    }
    if (!fused || o->weights || o->dropped) w = eg__attend_weights(a, &m, s, left);
    if (left != 1 && (o->scores || (o->lse && !fused))) s = eg_scale(s, left);
    if (!fused || o->dropped) d = a->dropping && w ? eg__drop(&a->drop, w) : w;
    y = fused ? eg__flash(a, x, o->empty) : eg__attend_values(a, &m, x, d);
    if (!eg_ok(y)) return y;
    if (o->empty && !fused) count_empty(w, a->inner, o->empty);
    if (o->lse) *o->lse = log_sum(a, &m, x, y, fused ? NULL : s, order);
    if (o->scores) *o->scores = eg_permute_n(s, a->scores, order);
    if (o->weights) *o->weights = eg_permute_n(w, a->scores, order);
    if (o->dropped) *o->dropped = eg_permute_n(d, a->scores, order);
    return r ? result(r, a, y) : y;
}

/* Binds the string. Returns the plan, the operands by term in x and the order of the weights' axes;
 * NULL after an error. */
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
                              .keep = masks[KEEP].term,
                              .bias = masks[BIAS].term,
                              .elsewhere = o->alibi.x != NULL };
    if (!eg__masks_fit(&mask, (eg_dtype)o->q->dtype)) return NULL;
    for (int k = LENGTHS; k < MASKS; k++)
        if (masks[k].term >= 0 && !eg__masks_letters(&mask, masks[k].term, masks[k].option))
            return NULL;
    if (o->alibi.x && o->alibi.x->dtype != o->q->dtype)
        return eg_fail_as(b->cx, EG_ERROR_DTYPE, "attention: .alibi is %s but the scores are %s",
                          eg_type_name(o->alibi.x->dtype), eg_type_name(o->q->dtype)),
               NULL;
    return plan_of(r, &mask, (extra_terms){ masks[ALIBI].term, masks[LENGTHS].term },
                   eg_option(o->scale, 1 / sqrt(r->width)), x);
}

eg_tensor *eg_attention_with(const eg_attention_args *given)
{
    eg_attention_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_tensor *xs[8] = { o.q, o.k, o.v }, *x[EG_TERMS] = { NULL };
    const char *called[8] = { "the query", "the key", "the value" };
    eg_ctx *cx = eg__context_of("attention", 3, xs);
    eg_tensor **const out[] = { o.weights, o.dropped, o.scores, o.lse };
    for (int k = 0; k < 4; k++)
        if (out[k]) *out[k] = eg__poison(cx);
    if (o.empty) *o.empty = 0;
    if (!cx || !eg__check_all(cx, "attention", 3, xs)) return eg__poison(cx);
    if (!o.spec) return eg_fail_as(cx, EG_ERROR_MISUSE, "attention: the spec is NULL");
    if (!isfinite(o.scale))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "attention: .scale is %g", o.scale);
    const double dropout = eg_option(o.dropout, 0);
    if (!(dropout >= 0 && dropout <= 1))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "attention: .dropout: %g is not a probability; it must lie in [0, 1]",
                          dropout);
    if (o.form < EG_FORM_BY_SIZE || o.form > EG_UNFUSED)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "attention: .form is %d; it is EG_FUSED or EG_UNFUSED, or not given",
                          (int)o.form);
    if (o.form == EG_FUSED && o.score_fn)
        return eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                          "attention: .form is EG_FUSED, but .score_fn works on scores in memory, "
                          "which that form does not have");
    for (int k = 0; k < 3; k++) {
        if (!eg__floats("attention", xs[k], k + 1)) return eg__poison(cx);
        if (xs[k]->dtype != o.q->dtype)
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "attention: the query is %s but %s is %s; eg_cast one of them",
                              eg_type_name(o.q->dtype), called[k], eg_type_name(xs[k]->dtype));
    }
    roles r;
    int n = 3, order[EG_RANK_MAX];
    eg_mask_option masks[] = { [KEEP] = { ".keep", o.keep, -1 },
                               [BIAS] = { ".bias", o.bias, -1 },
                               [LENGTHS] = { ".lengths", o.lengths, -1 },
                               [ALIBI] = { ".alibi", o.alibi, -1 } };
    const char *spec =
        eg__masks_spec(cx, "attention", o.spec, 4, masks, o.weights_axes, xs, called, &n);
    if (!spec) return eg__poison(cx);
    call_key key;
    const bool keyed = attention_key(&key, &o, spec, masks, n, xs);
    const bind_cached *m = keyed ? eg__plans_find(cx, &key.key) : NULL;
    eg_attention_plan *a =
        m ? eg__alloc(cx, m->bytes) : bound(&o, spec, masks, n, xs, called, &r, x, order);
    if (!a) return eg__poison(cx);
    if (m) {
        memcpy(a, m + 1, m->bytes);
        memcpy(order, m->order, sizeof order);
        const int term[] = { 0,
                             1,
                             2,
                             [EG_TERM_BIAS] = masks[BIAS].term,
                             [EG_TERM_SLOPES] = masks[ALIBI].term,
                             [EG_TERM_KEEP] = masks[KEEP].term };
        for (int t = 0; t <= EG_TERM_KEEP; t++) x[t] = term[t] < 0 ? NULL : xs[term[t]];
    } else if (keyed && as_given(&r, a, n, xs))
        remember(&r, &key.key, a, order);
    if (x[EG_TERM_KEEP] && x[EG_TERM_KEEP]->dtype != EG_BOOL &&
        !eg_ok(x[EG_TERM_KEEP] = eg_cast(x[EG_TERM_KEEP], EG_BOOL)))
        return eg__poison(cx);
    a->dropping = eg__drop_draw(cx, dropout, &a->drop);
    a->wants_lse = o.lse != NULL;
    a->hooked = o.score_fn != NULL;
    a->careful = eg__attend_careful(a, x, NULL);
    return compute(&o, m ? NULL : &r, a, x, order);
}
