/* where.c: predicates, truths about indices: an expression of whole numbers and truths
 * (expression.c) as postfix steps (where.h), which where_value.c evaluates. */
#include "notation/where.h"
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
