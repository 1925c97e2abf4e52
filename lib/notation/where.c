/* where.c: predicates, truths about indices: an expression of whole numbers and truths
 * (expression.c) as postfix steps (where.h), which where_value.c evaluates; and a predicate as a
 * tensor. */
#include "notation/where.h"
#include <eingrad/attention.h>
#include <string.h>

/* -- making ----------------------------------------------------------------------------------- */
typedef struct steps {
    const eg_expression *e;
    int count, depth, deepest;
    step step[EG_WHERE_STEPS];
} steps;
/* Writes node k, its operands first; false if there are too many. */
static bool emit(steps *s, int k)
{
    const eg_node *n = &s->e->node[k];
    for (int i = 0; i < n->count; i++)
        if (!emit(s, n->in[i])) return false;
    if (s->count == EG_WHERE_STEPS) return false;
    s->step[s->count++] = (step){ n->code, n->in[0], n->code == EG_X_WHOLE ? n->whole : 0 };
    s->depth += 1 - n->count;
    if (s->depth > s->deepest) s->deepest = s->depth;
    return true;
}

/* The largest power of two up to which 32 bits are enough for every intermediate; 0: none. */
static void find_narrow(eg_predicate *p)
{
    p->narrow = 0;
    for (int64_t all = 1 << 28; all >= 64 && !p->narrow; all >>= 1)
        if (eg__where_widest(p, all) <= INT32_MAX) p->narrow = all;
}
eg_predicate *eg__where_parse(eg_ctx *cx, const char *who, const char *text, int n,
                              const eg_axis_name *const *axis)
{
    const eg_expression *e = eg__expression_parse(cx, &(eg_expression_source){ .who = who,
                                                                               .text = text,
                                                                               .noun = "predicate",
                                                                               .letters = n,
                                                                               .letter = axis,
                                                                               .predicate = true });
    if (!e) return NULL;
    steps s = { .e = e };
    const bool fits = emit(&s, e->root);
    if (!fits || s.deepest > EG_WHERE_DEPTH)
        return eg__caret(cx, who, text, 1, &(eg_caret){ 0, (int)strlen(text) }, NULL, NULL,
                         fits ? "the predicate is nested too deeply" : "the predicate is too long"),
               NULL;
    eg_predicate *y = eg__alloc(cx, sizeof *y + (size_t)s.count * sizeof(step));
    if (!y) return NULL;
    y->steps = s.count, y->uses = e->positions, y->sizes = e->sizes, y->narrow = 0;
    memcpy(y->step, s.step, (size_t)s.count * sizeof(step));
    find_narrow(y);
    return y;
}
unsigned eg__where_uses(const eg_predicate *p) { return p->uses; }
unsigned eg__where_sizes(const eg_predicate *p) { return p->sizes; }
void eg__where_lengthen(eg_predicate *p, int axis, int64_t offset)
{
    if (!offset || !(p->sizes >> axis & 1)) return;
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].code == EG_X_SIZE && p->step[i].axis == axis) p->step[i].value = offset;
    find_narrow(p);
}
size_t eg__where_bytes(const eg_predicate *p)
{
    return sizeof *p + (size_t)p->steps * sizeof(step);
}

/* -- eg_where_mask: the predicate as a tensor ------------------------------------------------- */
eg_tensor *eg_where_mask(eg_ctx *cx, const char *where, const char *axes, int64_t offset,
                         const int64_t *sizes)
{
    static const char who[] = "where_mask";
    eg_parse_room room;
    eg_axis_name name_of[EG_RANK_MAX];
    const eg_axis_name *names[EG_RANK_MAX];
    if (!cx || eg__failed(cx)) return eg__poison(cx);
    if (!axes) return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no axes were given", who);
    const eg_parsed *p = eg__parse(cx, who, axes, EG_READ_BY_BLANKS, &room);
    if (!p) return eg__poison(cx);
    const int n = p->term[0].slots;
    if (p->terms != 1 || p->arrow)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the axes are one term, without comma or arrow");
    if (p->axes != n || p->items != n || p->term[0].dots)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the axes are different letters or names, without groups, 1 and '...'");
    if (n && !sizes) return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: no sizes were given", who);
    if (offset > INT64_MAX / 2 || offset < -INT64_MAX / 2)
        return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: the offset %lld is too large", who,
                          (long long)offset);
    for (int k = 0; k < n; k++) {
        const eg_parsed_axis *a = &p->axis[p->item[k].axis];
        if (sizes[k] < 0 || (a->size >= 0 && a->size != sizes[k]))
            return eg__caret(cx, who, axes, 1, &(eg_caret){ a->at, a->length }, NULL, NULL,
                             a->size >= 0
                                 ? "index '%.*s' is %lld, which is not the size in the string"
                                 : "index '%.*s' is given the size %lld",
                             a->length < 40 ? a->length : 40, axes + a->at, (long long)sizes[k]);
        name_of[k] = (eg_axis_name){
            .text = axes + a->at, .length = a->length, .size = sizes[k], .from = -1
        };
        names[k] = &name_of[k];
    }
    eg_predicate *w = eg__where_parse(cx, who, where, n, names);
    if (!w) return eg__poison(cx);
    eg_tensor *y = eg__new(cx, EG_BOOL, n, sizes);
    if (!eg_ok(y)) return eg__poison(cx);
    int64_t index[EG_RANK_MAX] = { 0 }, count[EG_RANK_MAX] = { 0 };
    unsigned keys = 0; /* the bracketed axes; where none is, the last */
    for (int k = 0; k < n; k++) keys |= (unsigned)p->item[k].bracket << k;
    if (!keys && n) keys = 1u << (n - 1);
    const unsigned queries = (w->uses & ~keys ? w->uses : w->sizes) & ~keys;
    if (offset && queries & (queries - 1))
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the offset %lld can move only one index of the predicate: put all "
                         "others in brackets",
                         (long long)offset);
    if (offset && queries) {
        const int query = __builtin_ctz(queries);
        index[query] = offset;
        eg__where_lengthen(w, query, offset);
    }
    const int64_t width = n ? sizes[n - 1] : 1, rows = width ? eg_size(y) / width : 0;
    uint8_t *out = (uint8_t *)y->data;
    for (int64_t r = 0; r < rows; r++, out += width) {
        if (n)
            eg__where_row(w, n - 1, width, index, sizes, out);
        else
            *out = eg__where_test(w, index, sizes);
        /* the next row */
        for (int k = n - 2; k >= 0; index[k] -= count[k], count[k] = 0, k--) {
            index[k]++;
            if (++count[k] < sizes[k]) break;
        }
    }
    return y;
}
