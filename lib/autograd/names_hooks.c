/* names_hooks.c: the names and the hooks of tensors (eg_name, eg_hook). They are in a separate
 * struct, since few tensors have any. */
#include "autograd/autograd.h"
#include <string.h>

/* Returns the tag of x, which is made if x has none yet; NULL after an error. */
static eg__tag *tag_of(const char *who, eg_tensor *x)
{
    if (x->own.lent || x->cx != eg__here(x->cx)) {
        eg_fail_as(x->cx, EG_ERROR_MISUSE,
                   "%s: the tensor belongs to the context that waits for its blocks; a block must "
                   "not write to it",
                   who);
        return NULL;
    }
    if (!x->tag && (x->tag = eg__alloc_in(x->arena, sizeof *x->tag))) *x->tag = (eg__tag){ 0 };
    return x->tag;
}
eg_tensor *eg_name(eg_tensor *x, const char *name)
{
    if (!eg__check_usable("name", x)) return eg__poison_of(x);
    eg__tag *tag = tag_of("name", x);
    char *kept = tag && name ? eg__alloc_in(x->arena, strlen(name) + 1) : NULL;
    if (!tag || (name && !kept)) return eg_name_memory_error(x->cx, "name");
    tag->name = name ? strcpy(kept, name) : NULL;
    return x;
}
const char *eg_name_of(const eg_tensor *x) { return eg_ok(x) && x->tag ? x->tag->name : NULL; }

/* Hooks are called in the order in which they were added; f NULL removes all. */
int eg_hook(eg_tensor *x, eg_hook_function *f, void *user)
{
    if (!x || !x->cx || !eg__check_usable("hook", x) ||
        !eg__check_differentiable(x->cx, "hook", "x", -1, x))
        return -1;
    eg__tag *tag = tag_of("hook", x);
    if (!tag) return -1;
    if (!f) {
        tag->hook = NULL;
        return 0;
    }
    eg__hook *h = eg__alloc_in(x->arena, sizeof *h), **last = &tag->hook;
    if (!h) return -1;
    *h = (eg__hook){ .f = f, .user = user };
    while (*last) last = &(*last)->next;
    *last = h;
    return 0;
}
