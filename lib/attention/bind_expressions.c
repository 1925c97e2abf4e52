/* bind_expressions.c: the two expressions of a call over the letters of the scores: the
 * predicate, which determines the allowed pairs, and the score. The options .keep, .lengths,
 * .bias and .alibi are short forms that are added to the expressions:
 *
 *   option     the predicate       the score
 *   .keep      & keep[b,j]
 *   .lengths   & j < lengths[b]
 *   .bias      (& bias[h,i,j] != −inf, if operands are not finite)   + bias[h,i,j]
 *   .alibi                                                           − slopes[h] abs(i − j)
 *
 * The bounds of the elements of integer tensors depend on values, so they are computed in every
 * call; everything else is cached with the plan. A captured step has wider bounds. */
#include "attention/attention.h"
#include <string.h>

static const eg_masked *option_of(const eg_attention_args *o, int k)
{
    const eg_masked *const all[EG_MASKS] = { [EG_MASK_KEEP] = &o->keep,
                                             [EG_MASK_BIAS] = &o->bias,
                                             [EG_MASK_LENGTHS] = &o->lengths,
                                             [EG_MASK_ALIBI] = &o->alibi,
                                             [EG_MASK_SINK] = &o->sink };
    return all[k];
}
int eg__attention_tensors(const eg_attention_args *o, eg_tensor *const *mask, eg_tensor **x)
{
    int n = 0;
    while (n < EG_GIVEN_MAX && o->with[n].name) x[n] = o->with[n].x, n++;
    for (int k = 0; k < EG_MASK_SINK; k++)
        if (mask[k]) x[n++] = mask[k];
    return n;
}
bool eg__attention_within(const eg_attention_plan *a, eg_tensor *const *x)
{
    for (int t = 0; t < a->tensors; t++) {
        int64_t least, most;
        if (!eg__is_int(x[t]->dtype)) continue;
        eg__extremes(x[t], &least, &most);
        if (least < a->least[t] || most > a->most[t]) return false;
    }
    return true;
}

/* -- short forms ------------------------------------------------------------------------------ */
/* What the options add to the two expressions. */
typedef struct short_forms {
    int where, score; /* numbers of additions */
    eg_addition of_where[4], of_score[2];
} short_forms;

/* Returns the addition that reads tensor `number` at the letters of the option's term. */
static eg_addition added_term(const eg_masking *m, int kind, int term, int number)
{
    const eg_bound_term *t = &m->bound->term[term];
    eg_addition a = { .kind = (uint8_t)kind, .tensor = (uint8_t)number };
    a.count = (uint8_t)t->items;
    for (int k = 0; k < t->items; k++)
        for (int r = 0; r < m->rank; r++)
            if (m->axis[r] == t->item[k].axis) a.letter[k] = (uint8_t)r;
    a.j = (uint8_t)(m->rank - 1);
    return a;
}
static bool has_letter(const eg_addition *a, int letter)
{
    for (int k = 0; k < a->count; k++)
        if (a->letter[k] == letter) return true;
    return false;
}
/* True if .lengths has integers between 0 and the number of keys and no index of the keys; else
 * records an error. */
static bool lengths_fit(const eg_masking *m, int term, const eg_addition *a)
{
    const eg_bound *b = m->bound;
    const eg_axis_name *key = &b->axis[m->axis[m->rank - 1]];
    eg_tensor *x = b->term[term].x;
    int64_t least, most;
    if (!eg__is_int(x->dtype))
        return eg_fail_as(b->cx, EG_ERROR_DTYPE,
                          "attention: .lengths is %s; lengths are i32 or i64",
                          eg_type_name(x->dtype)),
               false;
    if (m->inner != 1)
        return eg_fail_as(b->cx, EG_ERROR_UNSUPPORTED,
                          "attention: .lengths counts along one index, but there are %d to attend "
                          "over; use .keep",
                          m->inner),
               false;
    if (has_letter(a, a->j))
        return eg__refuse(b, term, -1, "a length is a number of keys and has no index '%.*s'",
                          key->length, key->text),
               false;
    eg__extremes(x, &least, &most);
    if (least >= 0 && most <= key->size) return true;
    eg_tensor *whole = eg_cast(eg_contiguous(x), EG_I64);
    if (!eg_ok(whole)) return false;
    const int64_t *v = (const int64_t *)(const void *)whole->data;
    int64_t k = 0;
    while (v[k] >= 0 && v[k] <= key->size) k++;
    return eg_fail_as(b->cx, EG_ERROR_INDEX,
                      "attention: .lengths is %lld at element %lld, but index '%.*s' is %lld",
                      (long long)v[k], (long long)k, key->length, key->text, (long long)key->size),
           false;
}
/* True if .offset_letter names the letter of row r. */
static bool offset_letter_is(const eg_masking *m, int r)
{
    const eg_axis_name *name = &m->bound->axis[m->axis[r]];
    return m->offset_letter && strlen(m->offset_letter) == (size_t)name->length &&
           !memcmp(m->offset_letter, name->text, (size_t)name->length);
}
/* Sets the letters of the query and the key whose distance .alibi multiplies. Besides the
 * letters of the slopes there must be exactly one of each, or .offset_letter names that of the
 * query. False after an error. */
static bool distance_letters(const eg_masking *m, eg_addition *a, const bool *query)
{
    int queries = 0;
    for (int r = 0; r < m->rank - m->inner; r++) {
        if (!query[r] || has_letter(a, r)) continue;
        a->i = (uint8_t)r;
        queries++;
        if (!offset_letter_is(m, r)) continue;
        queries = 1;
        break;
    }
    if (m->offset > 1ll << 52)
        return eg_fail_as(m->bound->cx, EG_ERROR_MISUSE,
                          "attention: .offset is %lld; with .alibi it is at most 2^52",
                          (long long)m->offset),
               false;
    if (queries == 1 && m->inner == 1 && !has_letter(a, a->j)) return true;
    eg_fail_as(
        m->bound->cx, EG_ERROR_NOTATION,
        "attention: .alibi takes the distance between one query index and one key index that "
        "the slopes do not have; here are %d and %d",
        queries, m->inner - has_letter(a, a->j));
    return false;
}
/* Lists the additions of the options. Their tensors are numbered from `number` on. False after
 * an error. */
static bool short_forms_of(short_forms *f, const eg_masking *m, const int *term, int number,
                           const bool *query)
{
    *f = (short_forms){ 0 };
    if (term[EG_MASK_KEEP] >= 0)
        f->of_where[f->where++] = added_term(m, EG_ADD_KEEP, term[EG_MASK_KEEP], number++);
    const int bias = term[EG_MASK_BIAS] >= 0 ? number++ : -1;
    if (term[EG_MASK_LENGTHS] >= 0) {
        eg_addition *a = &f->of_where[f->where++];
        *a = added_term(m, EG_ADD_LENGTH, term[EG_MASK_LENGTHS], number++);
        if (!lengths_fit(m, term[EG_MASK_LENGTHS], a)) return false;
    }
    if (bias >= 0) {
        f->of_score[f->score++] = added_term(m, EG_ADD_BIAS, term[EG_MASK_BIAS], bias);
        f->of_where[f->where++] = added_term(m, EG_ADD_NO_INFINITY, term[EG_MASK_BIAS], bias);
    }
    if (term[EG_MASK_ALIBI] >= 0) {
        eg_addition *a = &f->of_score[f->score++];
        *a = added_term(m, EG_ADD_DISTANCE, term[EG_MASK_ALIBI], number);
        if (!distance_letters(m, a, query)) return false;
    }
    return true;
}

/* -- the expressions -------------------------------------------------------------------------- */
/* Determines the letter that .offset is added to: the one that the expressions read, or else the
 * query's letter of .alibi; −1 if there is none. False after an error. */
static bool letter_moved(eg_ctx *cx, eg_expression_source *where, eg_expression_source *score,
                         const eg_masking *m, const short_forms *f, const bool *query, int *moved)
{
    uint32_t positions = 0, sizes = 0, queries = 0;
    eg_expression_source *const both[] = { where, score };
    const eg_addition *alibi = f->score ? &f->of_score[f->score - 1] : NULL;
    if (alibi && alibi->kind != EG_ADD_DISTANCE) alibi = NULL;
    for (int r = 0; r < m->rank; r++) queries |= (uint32_t)query[r] << r;
    for (int k = 0; k < 2 && m->offset; k++) {
        eg_expression_source bare = *both[k];
        bare.additions = 0;
        if (!bare.text) continue;
        const eg_expression *e = eg__expression_parse(cx, &bare);
        if (!e) return false;
        positions |= e->positions, sizes |= e->sizes;
    }
    /* without .offset_letter, letters of the query alone take precedence over those of batches
     * and heads */
    if (!m->offset_letter && positions & queries) positions &= queries;
    if (!m->offset_letter && sizes & queries) sizes &= queries;
    eg_where_call w = { .cx = cx,
                        .who = "attention",
                        .text = where->text ? where->text : score->text,
                        .rank = m->rank,
                        .offset = m->offset,
                        .offset_letter = m->offset_letter,
                        .elsewhere = alibi != NULL };
    for (int r = 0; r < m->rank; r++) {
        w.name[r] = where->letter[r];
        w.size[r] = w.name[r]->size;
        w.keys |= (uint32_t)(r >= m->rank - m->inner) << r;
    }
    if (!eg__where_moved(&w, positions, sizes)) return false;
    *moved = w.moved;
    if (!alibi || !m->offset) return true;
    const eg_axis_name *counts = &m->bound->axis[m->axis[alibi->i]];
    const char *letter = m->offset_letter;
    const bool same = letter ? offset_letter_is(m, alibi->i) : *moved < 0 || *moved == alibi->i;
    *moved = alibi->i;
    if (same) return true;
    return eg_fail_as(cx, EG_ERROR_NOTATION,
                      "attention: .offset is %lld, but .alibi counts from '%.*s' and \"%s\" has "
                      "another index that it could move; say .offset_letter = \"%.*s\"",
                      (long long)m->offset, counts->length, counts->text, letter ? letter : w.text,
                      counts->length, counts->text),
           false;
}
/* Describes each tensor of a call for the expressions: dtype, shape, and for integers the bounds
 * of the elements. lengths: the number of that of .lengths; −1: there is none. */
static void readables_of(const eg_attention_texts *t, const eg_given_tensors *given,
                         const eg_masking *m, int lengths, eg_readable *r)
{
    for (int k = 0; k < t->tensors; k++) {
        const eg_tensor *x = t->x[k];
        r[k] = (eg_readable){
            .name = "", .dtype = (eg_dtype)x->dtype, .rank = x->rank, .dim = x->dim, .most = 1
        };
        if (k < given->count)
            r[k] = given->readable[k];
        else if (eg__is_int(x->dtype))
            eg__extremes(x, &r[k].least, &r[k].most);
        if (k == lengths) /* valid lengths get the bounds 0 and the number of keys, so that one
                           * plan serves all calls */
            r[k].least = 0, r[k].most = m->bound->axis[m->axis[m->rank - 1]].size;
    }
}
/* An expression of a call, and how its indices are checked: those of a score only in pairs that the
 * predicate allows, by the text `both`, which begins with the predicate. */
typedef struct call_text {
    const eg_expression_source *s;
    eg_expression *e; /* NULL: there is none */
    const int64_t *size;
    eg_expression_source both;
    const eg_expression *joined; /* the parsed text `both`; NULL: all pairs are checked */
    int shift;                   /* the place of the score in `both` */
} call_text;
/* Parses the expression of a source, if there is one. False after an error. */
static bool text_read(eg_ctx *cx, const eg_expression_source *s, const int64_t *size, call_text *t)
{
    *t = (call_text){ .s = s, .size = size };
    return (!s->text && !s->additions) || (t->e = eg__expression_parse(cx, s));
}
/* Parses the text that has the predicate and the score, unless it is too long. False after an
 * error. */
static bool text_join(eg_ctx *cx, const call_text *where, call_text *t)
{
    static const char form[] = "(%s) ? (%s) : 0.0";
    const char *first = where->s->text, *second = t->s->text;
    if (!first || !second || !t->e->reads || t->e->nodes + where->e->nodes + 4 >= EG_NODES_MAX ||
        strlen(first) + strlen(second) >= 3900)
        return true;
    const size_t size = strlen(first) + strlen(second) + sizeof form;
    char *text = eg__alloc(cx, size);
    if (!text) return false;
    snprintf(text, size, form, first, second);
    t->both = *t->s;
    t->both.text = text, t->both.additions = 0;
    t->shift = (int)(strlen(first) + strlen("() ? ("));
    return (t->joined = eg__expression_parse(cx, &t->both));
}
/* True if no index is outside of its tensor, with the bounds in x; sets the values that
 * eg__expression_fits sets. Else records an error. */
static bool text_fits(eg_ctx *cx, const call_text *t, const eg_readable *x, int count)
{
    static const int64_t none[EG_RANK_MAX];
    eg_box box = { .low = none, .high = t->size, .size = t->size };
    if (!t->e) return true;
    for (int k = 0; k < count; k++) box.least[k] = x[k].least, box.most[k] = x[k].most;
    if (!t->joined || !eg__expression_inside(cx, &t->both, t->joined, &box, t->s->text, t->shift))
        return !eg__failed(cx) && eg__expression_fits(cx, t->s, t->e, &box);
    eg__expression_settle(t->s, t->e, &box);
    return true;
}
/* The expressions of a call and the number of tensors that they read. */
typedef struct call_texts {
    call_text where, score;
    int tensors;
} call_texts;
static bool texts_fit(eg_ctx *cx, void *user, const eg_readable *x)
{
    const call_texts *c = user;
    return text_fits(cx, &c->where, x, c->tensors) && text_fits(cx, &c->score, x, c->tensors);
}
/* True if a predicate reads no tensor and is true for every pair, as "j <= i" is for a query after
 * all keys of a cache. This depends on the sizes alone. */
static bool allows_all(const eg_expression *e, const int64_t *size)
{
    static const int64_t none[EG_RANK_MAX];
    eg_interval range[EG_NODES_MAX];
    return !e->reads && e->root >= 0 && e->strict == e->root &&
           eg__expression_cover(e, &(eg_box){ .low = none, .high = size, .size = size }, range) ==
               EG_COVER_ALL;
}
/* Lists the letters that only the values and the output have: the scores lack them. Returns their
 * number. */
static int letters_of_values(const eg_bound *b, const eg_axis_name **letter)
{
    int n = 0;
    const eg_bound_term *v = &b->term[2];
    for (int k = 0; k < v->items; k++) {
        bool alone = true;
        for (int t = 0; t < 2; t++)
            for (int r = 0; r < b->term[t].items; r++)
                alone = alone && b->term[t].item[r].axis != v->item[k].axis;
        if (alone && n < EG_RANK_MAX) letter[n++] = &b->axis[v->item[k].axis];
    }
    return n;
}
bool eg__attention_texts(eg_attention_texts *t, const eg_masking *m, const eg_attention_args *o,
                         const int *term, const bool *query)
{
    eg_ctx *cx = m->bound->cx;
    eg_readable readable[EG_TENSORS_MAX];
    eg_tensor *mask[EG_MASKS];
    const eg_axis_name *letter[EG_RANK_MAX], *of_values[EG_RANK_MAX];
    int64_t size[EG_RANK_MAX];
    short_forms f;
    int moved;
    eg_given_tensors given;
    *t = (eg_attention_texts){ 0 };
    if (!eg__given_read(cx, "attention", o->where, o->score, o->with, m->was, &given)) return false;
    for (int k = 0; k < EG_MASKS; k++)
        mask[k] = term[k] >= 0 && option_of(o, k)->x ? m->bound->term[term[k]].x : NULL;
    t->tensors = eg__attention_tensors(o, mask, t->x);
    for (int r = 0; r < m->rank; r++) {
        letter[r] = &m->bound->axis[m->axis[r]];
        size[r] = letter[r]->size;
    }
    if (!short_forms_of(&f, m, term, given.count, query)) return false;
    const int lengths = term[EG_MASK_LENGTHS] < 0
                            ? -1
                            : given.count + (term[EG_MASK_KEEP] >= 0) + (term[EG_MASK_BIAS] >= 0);
    readables_of(t, &given, m, lengths, readable);
    eg_expression_source where = { .who = "attention",
                                   .text = o->where,
                                   .noun = "predicate",
                                   .letters = m->rank,
                                   .letter = letter,
                                   .others = letters_of_values(m->bound, of_values),
                                   .other = of_values,
                                   .why_not = EG_ONLY_VALUES,
                                   .given = given.count,
                                   .readable = readable,
                                   .additions = f.where,
                                   .addition = f.of_where,
                                   .predicate = true };
    eg_expression_source score = where;
    score.text = o->score, score.noun = "score";
    score.additions = f.score, score.addition = f.of_score;
    score.predicate = false, score.score = score.number = true;
    if (!letter_moved(cx, &where, &score, m, &f, query, &moved)) return false;
    if (moved >= 0) where.moved = score.moved = moved, where.offset = score.offset = m->offset;
    uint32_t positions = 0;
    for (int r = 0; r < m->rank; r++)
        positions |= (uint32_t)(query[r] || r >= m->rank - m->inner) << r;
    call_texts c = { .tensors = t->tensors };
    if (!text_read(cx, &where, size, &c.where) || !text_fits(cx, &c.where, readable, t->tensors) ||
        !text_read(cx, &score, size, &c.score) || !text_join(cx, &c.where, &c.score) ||
        !text_fits(cx, &c.score, readable, t->tensors))
        return false;
    const eg_widening w = { .count = t->tensors,
                            .readable = readable,
                            .fixed = lengths < 0 ? 0 : 1u << lengths,
                            .e = { c.where.e, c.score.e },
                            .fits = texts_fit,
                            .user = &c };
    t->where = c.where.e, t->score = c.score.e;
    if (!eg__given_lengths(cx, &where, t->where, positions, size) ||
        !eg__given_lengths(cx, &score, t->score, positions, size) || !eg__given_widen(cx, &w))
        return false;
    for (int k = 0; k < t->tensors; k++)
        t->least[k] = readable[k].least, t->most[k] = readable[k].most;
    const bool used =
        eg__given_used(cx, "attention", &given, t->where, t->score, ".where or .score");
    if (t->where && allows_all(t->where, size)) t->where = NULL;
    return used;
}
