/* copies.c: tensors with copies: S tensors of one shape behind one header. Its data is that of the
 * first copy; the others follow at distances of `each` bytes. Sizes, strides and strings do not
 * mention copies.
 *
 * shape() of an operation is called once, and forward() once for each copy, on headers of the
 * operands that point to this copy. An operation therefore computes for each copy the same bits as
 * for a single tensor, and rules, which consist of operations, work without a change. For
 * elementwise operations forward() is called once, with the copies as an additional axis. An
 * operation may also compute all copies when it is called for the first one (eg__copies_all):
 * products do, and operations on rows of numbers, for which the copies are additional rows
 * (eg__copies_axis). */
#include "tensor/tensor.h"
#include <string.h>

/* -- groups ------------------------------------------------------------------------------------ */
const eg_copies *eg_copies_open(eg_owner *owner, int64_t count, const uint64_t *seed)
{
    eg_ctx *cx = eg_owner_context(owner);
    if (!owner || count < 1 || count > (int64_t)1 << 32) {
        if (!owner)
            eg_fail_as(NULL, EG_ERROR_MISUSE, "copies: the owner is NULL");
        else
            eg_fail_as(cx, EG_ERROR_MISUSE, "copies: there must be 1 to 2^32, not %lld",
                       (long long)count);
        return NULL;
    }
    eg_copies *c = eg_owner_alloc(owner, sizeof *c);
    uint64_t *own = c ? eg_owner_alloc(owner, (size_t)count * sizeof *own) : NULL;
    if (!own) return NULL;
    for (int64_t k = 0; k < count; k++) own[k] = seed ? seed[k] : cx->seed + (uint64_t)k;
    *c = (eg_copies){ cx, count, own };
    return c;
}
int64_t eg_copies_count(const eg_copies *c) { return c ? c->count : 0; }
uint64_t eg_copies_seed(const eg_copies *c, int64_t k)
{
    return c && k >= 0 && k < c->count ? c->seed[k] : 0;
}
const eg_copies *eg_copies_of(const eg_tensor *x)
{
    if (!eg_ok(x) || !x->copies) return NULL;
    const eg_ctx *cx = eg__here(x->cx); /* of a block that computes one copy of its parent's x */
    return cx != x->cx && cx->loans.copies == x->copies ? NULL : x->copies;
}

bool eg__check_single(const char *who, eg_tensor *x)
{
    if (!eg__check_usable(who, x)) return false;
    if (x->copies)
        eg_fail_as(x->cx, EG_ERROR_MISUSE,
                   "%s: the tensor has %lld cop%s; eg_copies_stack shows them all, eg_copy_at one",
                   who, (long long)x->copies->count, x->copies->count == 1 ? "y" : "ies");
    return !x->copies;
}

uint64_t eg__copy_seed(const eg_ctx *cx, const eg_copies *of, uint64_t otherwise)
{
    uint32_t key[4];
    const uint64_t *own = of && cx->copy.of ? &of->seed[cx->copy.k] : cx->copy.seed;
    if (!own) return otherwise;
    const uint64_t seed = *own;
    if (!cx->block.on) return seed;
    eg__philox(seed, cx->block.draw, cx->block.block, key);
    return (uint64_t)key[1] << 32 | key[0];
}

/* -- an operation on copies -------------------------------------------------------------------- */
bool eg__copies_of_all(eg_ctx *cx, const char *who, int count, eg_tensor *const *xs,
                       const eg_copies **found)
{
    int first = 0;
    *found = NULL;
    for (int k = 0; k < count; k++) {
        if (!xs[k]->copies) continue;
        if (*found && *found != xs[k]->copies)
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "%s: operand %d has %lld cop%s and operand %d %lld of another group", who,
                       first + 1, (long long)(*found)->count, (*found)->count == 1 ? "y" : "ies",
                       k + 1, (long long)xs[k]->copies->count);
        if (!*found) first = k;
        *found = xs[k]->copies;
    }
    return !cx->failed;
}

void eg__copies_shown(eg_tensor *t, const eg_tensor *x, int64_t count, int64_t *dim)
{
    *t = *x;
    t->copies = NULL;
    t->rank++;
    t->dim = dim;
    t->stride = dim + t->rank;
    dim[0] = count;
    t->stride[0] = x->copies ? x->each / eg__width[x->dtype] : 0;
    if (x->rank) memcpy(dim + 1, x->dim, x->rank * sizeof *dim);
    if (x->rank) memcpy(t->stride + 1, x->stride, x->rank * sizeof *dim);
}
/* True if y and its operands can have the copies as an additional axis. */
static bool copies_fit(const eg_tensor *y)
{
    bool fit = y->count <= EG_COPIES_OPERANDS && y->rank < EG_RANK_MAX && y->each;
    for (int k = 0; fit && k < y->count; k++) fit = y->in[k]->rank < EG_RANK_MAX;
    return fit;
}
/* Returns a header of y, for which copies_fit is true, with its copies as an additional axis. */
static eg_tensor *copies_shown_all(eg_copies_axis *a, const eg_tensor *y)
{
    eg__copies_shown(&a->y, y, y->copies->count, a->dims[0]);
    for (int k = 0; k < y->count; k++) {
        a->in[k] = &a->x[k];
        eg__copies_shown(&a->x[k], y->in[k], y->copies->count, a->dims[1 + k]);
    }
    a->y.in = a->in;
    return &a->y;
}
eg_tensor *eg__copies_axis(eg_copies_axis *a, eg_tensor *y)
{
    const eg_tensor *all = eg__copies_all(y);
    if (!all || !copies_fit(all)) return y;
    eg__copies_done(y);
    return copies_shown_all(a, all);
}
/* Returns an array with a copy of `saved`, what shape() has saved for y, for each copy of y; of
 * NULL if that is NULL. NULL after an error. */
static void **copies_saved(eg_tensor *y, const void *saved)
{
    const int64_t count = y->copies->count;
    void **each = eg__alloc(y->cx, (size_t)count * sizeof *each);
    for (int64_t k = 0; each && k < count; k++)
        if (!(each[k] = saved ? eg__node_save_again(y, saved) : NULL) && saved) return NULL;
    return each;
}
/* Elementwise operations compute all copies in one call, others one call for each copy, on headers
 * `one` and `header` that point to it. A call for copy 0 that computed all copies sets cx->copy.all
 * to NULL. */
bool eg__copies_forward(eg_tensor *y, bool (*forward)(eg_tensor *), bool by_elements)
{
    enum { FEW = 4 };
    eg_ctx *cx = y->cx;
    eg_tensor some[FEW], *few[FEW], one = *y;
    const int n = y->count;
    if (by_elements && copies_fit(y) && !cx->hooks.result) {
        eg_copies_axis all;
        return forward(copies_shown_all(&all, y));
    }
    char *memory = n > FEW ? eg__alloc(cx, (size_t)n * (sizeof(eg_tensor) + sizeof *few)) : NULL;
    if (n > FEW && !memory) return false;
    eg_tensor *header = n > FEW ? (eg_tensor *)(void *)memory : some,
              **in = n > FEW ? (eg_tensor **)(void *)(header + n) : few;
    for (int i = 0; i < n; i++) {
        header[i] = *y->in[i];
        header[i].copies = NULL;
        in[i] = y->in[i]->copies ? &header[i] : y->in[i];
    }
    one.in = in;
    one.copies = NULL;
    one.saved_each = y->saved_each = false; /* true if a captured step runs y again */
    eg_tensor *const outer_all = cx->copy.all;
    const eg_copies *const outer = cx->copy.of;
    const int64_t outer_k = cx->copy.k;
    const uint64_t draw = cx->draw; /* forward() makes the same draws for each copy, by its seed */
    bool good = true;
    void **each = NULL; /* what forward() saves for each copy, by eg_node_save */
    if (y->saves && !(each = copies_saved(y, y->saved))) return false;
    cx->copy.of = y->copies;
    cx->copy.all = y;
    for (int64_t k = 0; good && cx->copy.all && k < y->copies->count; k++) {
        cx->copy.k = k;
        cx->draw = draw;
        one.data = y->data + k * y->each;
        for (int i = 0; i < n; i++)
            if (in[i] == &header[i]) header[i].data = y->in[i]->data + k * y->in[i]->each;
        if (each) one.saved = each[k];
        good = forward(&one);
        if (one.saves && !each && !(each = copies_saved(y, NULL))) good = false;
        if (each) each[k] = one.saved;
        y->saved = one.saved;
    }
    if (good && each) {
        y->saved = each;
        y->saves = y->saved_each = true;
    }
    cx->copy.of = outer;
    cx->copy.k = outer_k;
    cx->copy.all = outer_all;
    return good;
}
