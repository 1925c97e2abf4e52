/* remember.c: caches bound strings, so that a context binds a string only once to operands of the
 * same dtypes, sizes and strides. The cache of plans stores a copy of the block of the bound
 * string. A later call copies it into the open scope and sets its operands. No check is repeated,
 * since operands with the same properties passed all of them. */
#include "notation/notation.h"
#include <string.h>

_Static_assert(EG_OPERANDS_MAX <= 64, "one bit for each operand");
typedef struct remembered {
    const char *from; /* address of the original block, to which the copy's pointers refer */
    uint64_t viewed;  /* bit k: operand k is a view with one axis for each item */
    eg_bound bound;   /* the block */
} remembered;

/* Returns the address in the copy b of what p points to in the block at `from`. */
static void *relocated(eg_bound *b, const char *from, const void *p)
{
    return (char *)b + ((const char *)p - from);
}
static void move_term(eg_bound *b, const char *from, eg_bound_term *t)
{
    t->item = relocated(b, from, t->item);
    t->first = relocated(b, from, t->first);
    t->last = relocated(b, from, t->last);
}
/* Returns the cached string bound to xs; NULL after an error. */
static const eg_bound *bound_again(eg_ctx *cx, const remembered *m, const char *who,
                                   eg_tensor *const *xs, const char *const *called)
{
    eg_bound *b = eg__alloc(cx, m->bound.bytes);
    if (!b) return NULL;
    memcpy(b, &m->bound, m->bound.bytes);
    b->who = who;
    b->called = called;
    b->spec = relocated(b, m->from, b->spec);
    b->axis = relocated(b, m->from, b->axis);
    for (int a = 0; a < b->axes - b->dots; a++)
        b->axis[a].text = relocated(b, m->from, b->axis[a].text);
    b->term = relocated(b, m->from, b->term);
    if (b->arrow) {
        move_term(b, m->from, &b->out);
        b->out.dim = relocated(b, m->from, b->out.dim);
    }
    for (int k = 0; k < b->terms; k++) {
        eg_bound_term *t = &b->term[k];
        move_term(b, m->from, t);
        t->dim = xs[k]->dim;
        t->x = xs[k];
        if (!(m->viewed >> k & 1)) continue;
        int64_t shape[EG_RANK_MAX];
        for (int i = 0; i < t->items; i++) shape[i] = b->axis[t->item[i].axis].size;
        t->x = eg_view_n(t->x, t->items, shape);
        if (!eg_ok(t->x)) return NULL;
    }
    return b;
}
static void remember_bound(const eg_plan_key *key, const eg_bound *b)
{
    remembered *m = eg__plans_add(b->cx, key, sizeof *m - sizeof m->bound + b->bytes);
    if (!m) return;
    m->from = (const char *)b;
    m->viewed = 0;
    for (int k = 0; k < b->terms; k++)
        if (b->term[k].x != key->x[k]) m->viewed |= (uint64_t)1 << k;
    memcpy(&m->bound, b, b->bytes);
}

const eg_bound *eg__bind_called(const char *who, const char *spec, int flags, int n,
                                eg_tensor *const *xs, int sizes, const eg_sized *size,
                                const char *const *called)
{
    eg_ctx *cx = eg__context_of(who, n, xs);
    if (!cx || eg__failed(cx)) return NULL;
    if (!spec) return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: no string was given", who), NULL;
    bool keyed = n <= EG_OPERANDS_MAX;
    for (int k = 0; k < n; k++) {
        if (xs[k] && !eg__check_usable(who, xs[k])) return NULL;
        keyed &= xs[k] != NULL;
    }
    eg_plan_key key = { EG_KEY_BOUND + flags, n, strlen(spec), spec, xs };
    eg_key_text text;
    if (sizes) { /* the key is the string with its zero byte, then each name and size */
        text.length = 0;
        text.fits = true;
        eg__key_put(&text, key.length + 1, spec);
        for (int g = 0; g < sizes; g++) {
            eg__key_put(&text, sizeof size[g].length, &size[g].length);
            eg__key_put(&text, (size_t)size[g].length, size[g].name);
            eg__key_put(&text, sizeof size[g].size, &size[g].size);
        }
        key.text = text.text;
        key.length = text.length;
        keyed &= text.fits;
    }
    const remembered *m = keyed ? eg__plans_find(cx, &key) : NULL;
    if (m) return bound_again(cx, m, who, xs, called);
    const eg_bound *b = eg__bind_anew(cx, who, spec, flags, n, xs, sizes, size, called);
    if (!b) eg_name_memory_error(cx, who);
    if (b && keyed) remember_bound(&key, b);
    return b;
}

const eg_bound *eg__bind(const char *who, const char *spec, int flags, int n, eg_tensor *const *xs,
                         int sizes, const eg_sized *size)
{
    return eg__bind_called(who, spec, flags, n, xs, sizes, size, NULL);
}
