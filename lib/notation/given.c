/* given.c: the tensors of .with, which expressions read by their names. */
#include "notation/expression_parser.h"
#include <eingrad/ops.h>
#include <string.h>

/* Sets *c to the first place of a name in a text. False if there is none. */
static bool place_of(const char *text, const char *name, eg_caret *c)
{
    const size_t n = strlen(name);
    for (const char *at = text; n && at && (at = strstr(at, name)); at++) {
        const bool begins = at == text || (!eg__name_starts(at[-1]) && !eg__digit(at[-1]));
        if (!begins || eg__name_starts(at[n]) || eg__digit(at[n])) continue;
        *c = (eg_caret){ (int)(at - text), (int)n };
        return true;
    }
    return false;
}
bool eg__names_refuse(eg_ctx *cx, const char *who, const char *text, const char *other, int count,
                      const char *const *name, eg_code code, const char *format, ...)
{
    char sentence[400];
    va_list list;
    va_start(list, format);
    eg__vsentence(sentence, sizeof sentence, format, list);
    va_end(list);
    for (int second = 0; second < 2; second++) {
        eg_caret mark[3], *m = mark;
        for (int k = 0; k < count; k++) m += place_of(second ? other : text, name[k], m);
        if (m == mark) continue;
        if (m == mark + 2 && mark[1].at < mark[0].at)
            m[0] = mark[0], mark[0] = mark[1], mark[1] = m[0];
        eg__caret_as(cx, code, who, second ? other : text, (int)(m - mark), mark, NULL, NULL, "%s",
                     sentence);
        return false;
    }
    eg_fail_as(cx, code, "%s: %s", who, sentence);
    return false;
}
bool eg__given_cast(eg_ctx *cx, const char *who, eg_dtype floats, eg_given *with, eg_dtype *was)
{
    const int most = EG_GIVEN_MAX;
    for (int k = 0; k < most && with[k].name && !floats; k++)
        if (eg_ok(with[k].x) && eg__is_inexact(with[k].x->dtype))
            floats = (eg_dtype)with[k].x->dtype;
    for (int k = 0; k < most && with[k].name; k++) {
        eg_tensor *x = with[k].x;
        was[k] = x ? (eg_dtype)x->dtype : EG_DEFAULT;
        if (!eg_ok(x) || !eg__is_storage(x->dtype)) continue; /* others: eg__given_read */
        if (!eg__check_option(cx, who, ".with", with[k].name, EG_TAKES_ALL, x)) return false;
        with[k].x = eg_cast(x, !eg__is_half(x->dtype) ? EG_I32 : floats ? floats : EG_F32);
        if (!eg_ok(with[k].x)) return false;
    }
    return true;
}
bool eg__given_read(eg_ctx *cx, const char *who, const char *text, const char *other,
                    const eg_given *with, const eg_dtype *was, eg_given_tensors *g)
{
    const char *first = NULL;
    *g = (eg_given_tensors){ .floats = EG_DEFAULT };
    for (; g->count < EG_GIVEN_MAX && with[g->count].name; g->count++) {
        g->x[g->count] = with[g->count].x;
        if (!g->x[g->count])
            return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: '%.40s' of .with is NULL", who,
                              with[g->count].name),
                   false;
    }
    for (int k = 0; k < g->count; k++) {
        const eg_tensor *x = g->x[k];
        if (!eg__check_option(cx, who, ".with", with[k].name, EG_TAKES_NUMBERS, g->x[k]))
            return false;
        g->readable[k] = (eg_readable){ .name = with[k].name,
                                        .dtype = (eg_dtype)x->dtype,
                                        .was = was[k],
                                        .rank = x->rank,
                                        .dim = x->dim };
        if (eg__is_int(x->dtype)) eg__extremes(x, &g->readable[k].least, &g->readable[k].most);
        if (!eg__is_inexact(x->dtype)) continue;
        if (first && g->floats != (eg_dtype)x->dtype)
            return eg__names_refuse(
                cx, who, text, other, 2, (const char *const[]){ first, with[k].name },
                EG_ERROR_DTYPE, "'%.40s' is %s but '%.40s' is %s; eg_cast one of them first", first,
                eg_type_name(g->floats), with[k].name, eg_type_name((eg_dtype)x->dtype));
        first = with[k].name;
        g->floats = (eg_dtype)x->dtype;
    }
    return true;
}
/* In a captured step, appends a check of each tensor of integers: a run refuses those outside of
 * the bounds. False after an error. */
static bool given_acts(const char *who, const eg_given_tensors *g)
{
    for (int k = 0; k < g->count; k++)
        if (eg__is_int(g->x[k]->dtype) &&
            !eg__extremes_act(who, g->x[k], g->readable[k].least, g->readable[k].most))
            return false;
    return true;
}
/* Makes the bounds of integers wider: −most, or 0 if `positive`, and most; if `indices`, an integer
 * that by itself is an index is any index of that axis instead. */
static void given_spread(const eg_widening *w, int64_t most, bool positive, bool indices,
                         eg_readable *x)
{
    eg_interval v[EG_TENSORS_MAX];
    for (int k = 0; k < w->count; k++) v[k] = (eg_interval){ positive ? 0 : -most, most };
    for (int o = 0; o < EG_WIDENED && indices; o++)
        for (int k = 0; w->e[o] && k < w->e[o]->nodes; k++) {
            const eg_node *n = &w->e[o]->node[k];
            for (int r = 0; n->code == EG_X_READ && r < n->count; r++) {
                const eg_node *i = &w->e[o]->node[n->in[r]];
                const int64_t end = x[n->tensor].dim[r] - 1;
                if (i->code == EG_X_READ) v[i->tensor] = (eg_interval){ 0, end };
            }
        }
    for (int k = 0; k < w->count; k++) {
        if (!eg__is_int(x[k].dtype) || w->fixed >> k & 1) continue;
        if (v[k].low < x[k].least) x[k].least = v[k].low;
        if (v[k].high > x[k].most) x[k].most = v[k].high;
    }
}
/* True if the expressions fit with the bounds in x and their integers have the width `narrow`.
 * Removes the message if they do not fit. */
static bool widening_fits(eg_ctx *cx, const eg_widening *w, const eg_readable *x,
                          const bool *narrow)
{
    bool fits = w->fits(cx, w->user, x);
    for (int o = 0; o < EG_WIDENED; o++) fits = fits && (!w->e[o] || w->e[o]->narrow == narrow[o]);
    eg_clear(cx);
    return fits;
}
bool eg__given_widen(eg_ctx *cx, const eg_widening *w)
{
    enum { FORMS = 4, BITS = 30, MANY = 4096 };
    const size_t bytes = (size_t)w->count * sizeof *w->readable;
    eg_readable best[EG_TENSORS_MAX], wide[EG_TENSORS_MAX];
    bool narrow[EG_WIDENED], integers = false;
    for (int o = 0; o < EG_WIDENED; o++) narrow[o] = w->e[o] && w->e[o]->narrow;
    for (int k = 0; k < w->count; k++)
        integers |= eg__is_int(w->readable[k].dtype) && !(w->fixed >> k & 1);
    if (!integers || !eg__capturing(cx)) return true;
    memcpy(best, w->readable, bytes);
    int64_t most = -1;
    for (int form = 0; form < FORMS && most < MANY; form++) {
        most = -1; /* the largest one that fits, of 2^30 + 1 */
        for (int64_t step = (int64_t)1 << BITS; step; step /= 2) {
            memcpy(wide, w->readable, bytes);
            given_spread(w, most + step, form % 2, form / 2, wide);
            if (!widening_fits(cx, w, wide, narrow)) continue;
            most += step;
            memcpy(best, wide, bytes);
        }
    }
    memcpy(w->readable, best, bytes);
    return w->fits(cx, w->user, w->readable);
}
/* The arguments of eg__given_fit. */
typedef struct given_fit {
    const eg_expression_source *s;
    eg_expression *e;
    const int64_t *low, *high, *size;
} given_fit;
static bool fits_given(eg_ctx *cx, void *user, const eg_readable *x)
{
    const given_fit *f = user;
    eg_box box = { .low = f->low, .high = f->high, .size = f->size };
    for (int k = 0; k < f->s->given; k++) box.least[k] = x[k].least, box.most[k] = x[k].most;
    return eg__expression_fits(cx, f->s, f->e, &box);
}
bool eg__given_fit(eg_ctx *cx, const eg_expression_source *s, eg_expression *e, const int64_t *low,
                   const int64_t *high, const int64_t *size, eg_given_tensors *g)
{
    given_fit f = { s, e, low, high, size };
    const eg_widening w = {
        .count = g->count, .readable = g->readable, .e = { e }, .fits = fits_given, .user = &f
    };
    return fits_given(cx, &f, g->readable) && eg__given_widen(cx, &w) && given_acts(s->who, g);
}
eg_expression *eg__expression_read(eg_ctx *cx, const eg_expression_source *s,
                                   const eg_given_tensors *g)
{
    eg_key_text text = { .length = 0, .fits = true };
    eg__key_put(&text, 1, s->predicate ? "?" : "=");
    eg__key_put(&text, strlen(s->text) + 1, s->text);
    for (int r = 0; r < s->letters; r++) {
        eg__key_put(&text, (size_t)s->letter[r]->length, s->letter[r]->text);
        eg__key_put(&text, 1, ",");
    }
    for (int k = 0; k < g->count; k++)
        eg__key_put(&text, strlen(g->readable[k].name) + 1, g->readable[k].name);
    const eg_plan_key key = { EG_KEY_EXPRESSION, g->count, text.length, text.text, g->x };
    const eg_expression *known = text.fits ? eg__plans_find(cx, &key) : NULL;
    if (known) {
        eg_expression *copy = eg__alloc(cx, eg__expression_bytes(known));
        if (copy) memcpy(copy, known, eg__expression_bytes(known));
        return copy;
    }
    eg_expression *e = eg__expression_parse(cx, s);
    eg_expression *kept = e && text.fits ? eg__plans_add(cx, &key, eg__expression_bytes(e)) : NULL;
    if (kept) memcpy(kept, e, eg__expression_bytes(e));
    return e;
}
bool eg__given_used(eg_ctx *cx, const char *who, const eg_given_tensors *g, const eg_expression *a,
                    const eg_expression *b, const char *what)
{
    const uint32_t reads = (a ? a->reads : 0) | (b ? b->reads : 0);
    for (int k = 0; k < g->count; k++)
        if (!(reads >> k & 1))
            return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: '%.40s' of .with is not used in %s", who,
                              g->readable[k].name, what),
                   false;
    return true;
}

/* Returns the letters (bits) that are by themselves the index of axis r of tensor t. Sets *other to
 * whether a read has any other index there. */
static uint32_t letters_of_axis(const eg_expression *e, int t, int r, bool *other)
{
    uint32_t letters = 0;
    *other = false;
    for (int k = 0; k < e->nodes; k++) {
        const eg_node *n = &e->node[k];
        if (n->code != EG_X_READ || n->tensor != t || r >= n->count) continue;
        const eg_node *i = &e->node[n->in[r]];
        if (i->code == EG_X_LETTER)
            letters |= 1u << i->in[0];
        else
            *other = true;
    }
    return letters;
}
/* Returns the number of axes of tensor t; 0 if it is not read. */
static int axes_of_tensor(const eg_expression *e, int t)
{
    for (int k = 0; k < e->nodes && e->reads >> t & 1; k++)
        if (e->node[k].code == EG_X_READ && e->node[k].tensor == t) return e->node[k].count;
    return 0;
}
uint32_t eg__expression_positions(const eg_expression *e, uint32_t known)
{
    for (int k = 0; k < e->nodes; k++) {
        const eg_node *n = &e->node[k];
        if (n->code == EG_X_READ || n->code == EG_X_LETTER || n->code == EG_X_SIZE) continue;
        for (int q = 0; q < n->count; q++)
            if (e->node[n->in[q]].code == EG_X_LETTER) known |= 1u << e->node[n->in[q]].in[0];
    }
    for (uint32_t before = ~known; before != known;) {
        before = known;
        for (int t = 0; t < EG_TENSORS_MAX; t++)
            for (int r = 0, rank = axes_of_tensor(e, t); r < rank; r++) {
                bool other;
                const uint32_t letters = letters_of_axis(e, t, r, &other);
                if (other || letters & known || letters & (letters - 1)) known |= letters;
            }
    }
    return known;
}
bool eg__given_lengths(eg_ctx *cx, const eg_expression_source *s, const eg_expression *e,
                       uint32_t positions, const int64_t *size)
{
    for (int k = 0; e && k <= e->root; k++) {
        const eg_node *n = &e->node[k];
        for (int r = 0; n->code == EG_X_READ && n->tensor < s->given && r < n->count; r++) {
            const eg_node *i = &e->node[n->in[r]];
            const eg_readable *x = &s->readable[n->tensor];
            const int letter = i->in[0];
            if (i->code != EG_X_LETTER || positions >> letter & 1 || x->dim[r] <= size[letter])
                continue;
            eg__caret(cx, s->who, s->text, 1, &(eg_caret){ n->at, n->length }, NULL, NULL,
                      "axis %d of '%.40s' is %lld, but index '%.*s' is %lld", r, x->name,
                      (long long)x->dim[r], s->letter[letter]->length, s->letter[letter]->text,
                      (long long)size[letter]);
            return false;
        }
    }
    return true;
}
