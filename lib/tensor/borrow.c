/* borrow.c: how a child context reads tensors of its parent. The child makes its own header for
 * each of them, with the same sizes, strides and elements, and uses it on its tape: a backward pass
 * writes to the headers that it visits, and several children may read one tensor at the same time.
 * A hash table finds the child's header by the address of the parent's. The child does not write to
 * the parent's headers, and to the parent's elements only where a function of the library adds to
 * sums that belong to the parent (eg__borrow_here). */
#include "tensor/tensor.h"
#include <string.h>

enum { SLOTS = 256 }; /* slots of the first table */

static size_t borrow_hash(const eg_tensor *x)
{
    return (size_t)((uintptr_t)x / sizeof(void *) * 0x9e3779b97f4a7c15u >> 20);
}
static eg__loan *borrow_slot(eg__loan *table, size_t slots, const eg_tensor *x)
{
    size_t at = borrow_hash(x) & (slots - 1);
    while (table[at].of && table[at].of != x) at = (at + 1) & (slots - 1);
    return &table[at];
}
/* Doubles the number of slots and keeps the content. False after an error. */
static bool borrow_grow(eg_ctx *cx)
{
    const size_t slots = cx->loans.slots ? 2 * cx->loans.slots : SLOTS;
    eg__loan *table = eg__alloc_in(cx->loans.arena, slots * sizeof *table);
    if (!table) return false;
    memset(table, 0, slots * sizeof *table);
    for (size_t k = 0; k < cx->loans.slots; k++)
        if (cx->loans.table[k].of)
            *borrow_slot(table, slots, cx->loans.table[k].of) = cx->loans.table[k];
    cx->loans.table = table;
    cx->loans.slots = slots;
    return true;
}

eg_mark eg__borrow_open(eg_ctx *cx, bool (*check)(eg_ctx *, eg_tensor *, void *), void *user)
{
    const eg_mark m = eg_push(cx);
    if (!m.scope) return m;
    cx->loans = (eg__loans){ .arena = m.scope, .check = check, .user = user };
    return m;
}
void eg__borrow_close(eg_ctx *cx, eg_mark m)
{
    cx->loans = (eg__loans){ .arena = NULL };
    eg_pop(cx, m);
}
bool eg__borrow_resume(eg_ctx *cx, const eg__loans *kept,
                       bool (*check)(eg_ctx *, eg_tensor *, void *), void *user)
{
    for (size_t k = 0; k < kept->slots; k++) {
        const eg__loan *l = &kept->table[k];
        if (!l->of) continue;
        if (l->of->live != EG_LIVE || l->of->seq != l->seq || !eg__storage_lives(l->of))
            return false;
    }
    cx->loans = *kept;
    cx->loans.check = check;
    cx->loans.user = user;
    return true;
}
eg__loans eg__borrow_suspend(eg_ctx *cx)
{
    const eg__loans kept = cx->loans;
    cx->loans = (eg__loans){ .arena = NULL };
    return kept;
}

/* Makes a header for x's elements, with a storage that is marked as lent. NULL after an error. */
static eg_tensor *borrow_header(eg__arena *a, const eg_tensor *x)
{
    eg_tensor *t = eg__tensor_in(a);
    if (!t) return NULL;
    t->dtype = x->dtype;
    t->rank = x->rank;
    t->unrecorded = x->unrecorded;
    t->own = (eg_storage){
        .bytes = x->st->bytes, .version = x->st->version, .lent = true, .hold = x->st->hold
    };
    t->version = x->st->version;
    t->data = x->data;
    t->dim = x->dim;
    t->stride = x->stride;
    t->caller = x->caller;
    t->tag = x->tag;
    t->copies = x->copies;
    t->each = x->each;
    return t;
}
eg_tensor *eg__borrow_like(eg_ctx *cx, const eg_tensor *x)
{
    eg_tensor *t = eg__tensor_in(cx->loans.arena);
    if (!t) return NULL;
    t->dtype = x->dtype;
    t->rank = x->rank;
    t->dim = eg__alloc_in(cx->loans.arena, (2 * (size_t)x->rank + 1) * sizeof *t->dim);
    if (!t->dim) return NULL;
    t->stride = t->dim + x->rank;
    for (int k = 0; k < x->rank; k++) t->dim[k] = x->dim[k];
    eg__row_major(t->rank, t->dim, t->stride);
    t->own = (eg_storage){ .bytes = (size_t)eg_size(x) * eg__width[x->dtype], .lent = true };
    return t;
}
/* Makes t, a header of a tensor of the parent, that of the copy that the child computes. False
 * after an error: it has copies of another group. */
static bool borrow_copy(eg_ctx *cx, eg_tensor *t)
{
    const eg_copies *of = cx->loans.copies;
    if (!of || !t->copies) return true;
    if (t->copies != of) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "an operand has %lld cop%s of another group than the %lld that are computed",
                   (long long)t->copies->count, t->copies->count == 1 ? "y" : "ies",
                   (long long)of->count);
        return false;
    }
    t->data = eg__copy_data(t, cx->loans.copy);
    t->copies = NULL;
    return true;
}
eg_tensor *eg__borrow(eg_ctx *cx, eg_tensor *x)
{
    if (x->poison) return &cx->poison;
    if (x->cx != cx->parent || !cx->loans.arena) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "borrow: a tensor of another context");
        return NULL;
    }
    if (2 * cx->loans.used >= cx->loans.slots && !borrow_grow(cx)) return NULL;
    eg__loan *l = borrow_slot(cx->loans.table, cx->loans.slots, x);
    if (l->of) return l->header;
    if (cx->loans.check && !cx->loans.check(cx, x, cx->loans.user)) return NULL;
    eg_tensor *t = borrow_header(cx->loans.arena, x);
    if (!t || !borrow_copy(cx, t)) return NULL;
    *l = (eg__loan){ x, x->seq, t };
    cx->loans.used++;
    return t;
}

eg_tensor *eg__borrow_here(eg_ctx *cx, const eg_tensor *x) { return borrow_header(eg__top(cx), x); }

eg_tensor *const *eg__own_all(eg_ctx *cx, int count, eg_tensor *const *xs)
{
    static eg_tensor *const none[1]; /* without operands xs may be NULL, which would be an error */
    int k = 0;
    while (k < count && (!xs[k] || xs[k]->cx != cx->parent || !cx->parent)) k++;
    if (k == count) return xs ? xs : none;
    eg_tensor **own = eg__alloc(cx, (size_t)count * sizeof *own);
    for (k = 0; own && k < count; k++)
        if (!(own[k] = xs[k] && xs[k]->cx == cx->parent ? eg__borrow(cx, xs[k]) : xs[k]))
            if (xs[k]) return NULL;
    return own;
}
