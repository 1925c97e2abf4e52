/* unused.c: finds the parameters on which results do not depend, by a traversal of their
 * history. */
#include "nn.h"
#include <eingrad/grad.h>

typedef struct visit {
    eg_owner *owner;
    const eg_tensor **seen;
    size_t slots, taken;
    eg_tensor **todo;
    size_t left, capacity;
} visit;

static bool unused_push(visit *v, eg_tensor *x)
{
    if (v->left == v->capacity) {
        size_t capacity = v->capacity ? 2 * v->capacity : 256;
        eg_tensor **more = eg_owner_alloc(v->owner, capacity * sizeof *more);
        if (!more) return false;
        if (v->left) memcpy(more, v->todo, v->left * sizeof *more);
        v->todo = more, v->capacity = capacity;
    }
    v->todo[v->left++] = x;
    return true;
}

/* Returns the slot of x in a table that is at most half full. */
static size_t unused_slot(const visit *v, const eg_tensor *x)
{
    size_t at = ((uintptr_t)x >> 5) * 0x9e3779b97f4a7c15u % v->slots;
    while (v->seen[at] && v->seen[at] != x) at = (at + 1) % v->slots;
    return at;
}

static bool unused_add(visit *v, const eg_tensor *x) /* false without memory */
{
    if (2 * v->taken >= v->slots) {
        visit old = *v;
        v->slots = old.slots ? 4 * old.slots : 1024;
        v->seen = eg_owner_alloc(v->owner, v->slots * sizeof *v->seen);
        if (!v->seen) return false;
        for (size_t k = 0; k < old.slots; k++)
            if (old.seen[k]) v->seen[unused_slot(v, old.seen[k])] = old.seen[k];
    }
    v->seen[unused_slot(v, x)] = x;
    v->taken++;
    return true;
}

static bool walk(visit *v, int count, eg_tensor *const *ys)
{
    for (int k = 0; k < count; k++)
        if (!unused_push(v, ys[k])) return false;
    while (v->left) {
        eg_tensor *x = v->todo[--v->left];
        if (!eg_ok(x) || (v->slots && v->seen[unused_slot(v, x)])) continue;
        if (!unused_add(v, x)) return false;
        for (int i = 0; i < eg_operands(x); i++)
            if (!unused_push(v, eg_operand(x, i))) return false;
    }
    return true;
}

int eg_params_unused(const eg_params *p, int count, eg_tensor *const *ys, const eg_named **out)
{
    eg_ctx *cx = eg_params_context(p);
    int n = 0;
    if (!eg__params_there("params_unused", p) || eg_error(cx) ||
        eg_refuse_capture(cx, "params_unused"))
        return -1;
    for (int k = 0; ys && k < count; k++)
        if (!eg_ok(ys[k])) {
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "params_unused: y %d is NULL, failed or gone with its scope", k);
            return -1;
        }
    visit v = { .owner = eg_owner_open(cx) };
    bool good = v.owner && walk(&v, ys ? count : 0, ys);
    for (int k = 0; good && eg_params_at(p, k); k++)
        if (!v.slots || !v.seen[unused_slot(&v, eg_params_at(p, k)->x)]) {
            if (out) out[n] = eg_params_at(p, k);
            n++;
        }
    eg_owner_close(v.owner);
    return good ? n : -1;
}
