/* child.c: children of a context, in which several threads compute parts of one call (the blocks of
 * eg_grad_over) while the parent waits. A child has its own memory, scopes, plans, draws and error.
 * What parent and children share is not written to meanwhile; a child reads the parent's tensors
 * through its own headers (tensor/borrow.c).
 *
 * Tensors, specs and modules of the parent refer to the parent as their context. A thread that is
 * inside a child keeps the child in a thread-local variable, and every function that is given a
 * context reads that variable first (eg__here), unless the context has no children. Children take
 * memory through the parent's allocator one call at a time, since a user's allocator need not be
 * thread-safe. */
#include "core/core.h"
#include <pthread.h>
#include <string.h>

enum { FAMILY_MAX = 256 }; /* the largest number of children */
struct eg__family {
    eg_ctx *parent;
    pthread_mutex_t allocating; /* protects the parent's allocator */
    pthread_mutex_t borrowing;  /* protects the headers of the parent's tensors (eg__family_lock) */
    int children;
    eg_ctx *child[FAMILY_MAX];
};

static _Thread_local eg_ctx *child_inside;

eg_ctx *eg__child_at_work(eg_ctx *cx)
{
    return child_inside && child_inside->family == cx->family ? child_inside : cx->family->parent;
}

/* Calls the parent's allocator, one thread at a time. */
static void *child_realloc(void *user, void *p, size_t old_size, size_t new_size)
{
    struct eg__family *f = user;
    pthread_mutex_lock(&f->allocating);
    p = f->parent->realloc(f->parent->user, p, old_size, new_size);
    pthread_mutex_unlock(&f->allocating);
    return p;
}

static struct eg__family *child_family_of(eg_ctx *parent)
{
    struct eg__family *f = parent->family;
    if (f) return f;
    f = parent->realloc(parent->user, NULL, 0, sizeof *f);
    if (!f) return NULL;
    memset(f, 0, sizeof *f);
    f->parent = parent;
    pthread_mutex_init(&f->allocating, NULL);
    pthread_mutex_init(&f->borrowing, NULL);
    parent->use.mallocs++;
    parent->use.bytes += sizeof *f;
    return parent->family = f;
}

eg_ctx *eg__child(eg_ctx *parent, int k)
{
    struct eg__family *f = child_family_of(parent);
    if (f && k < FAMILY_MAX && !f->child[k]) {
        f->child[k] = eg__context_open(&(eg_open_args){
            .size = sizeof(eg_open_args), .threads = 1, .realloc = child_realloc, .user = f });
        if (f->child[k]) f->child[k]->family = f, f->child[k]->parent = parent;
    }
    eg_ctx *cx = f && k < FAMILY_MAX ? f->child[k] : NULL;
    if (!cx) {
        eg_fail_as(parent, EG_ERROR_MEMORY, "out of memory: no room for a context of a thread");
        return NULL;
    }
    if (k >= f->children) f->children = k + 1;
    cx->dtype = parent->dtype;
    cx->flush = parent->flush;
    cx->training = parent->training;
    cx->recording = true;
    cx->hooks = parent->hooks;
    cx->failed = false;
    return cx;
}

eg_ctx *eg__child_of(const eg_ctx *parent, int k)
{
    return parent->family && k < parent->family->children ? parent->family->child[k] : NULL;
}

void eg__enter(eg_ctx *child, const void *frame, void *from)
{
    child->frame = frame;
    child->from = from;
    child_inside = child;
}
void eg__leave(void) { child_inside = NULL; }

void eg__family_lock(eg_ctx *child) { pthread_mutex_lock(&child->family->borrowing); }
void eg__family_unlock(eg_ctx *child) { pthread_mutex_unlock(&child->family->borrowing); }

void eg__children_close(eg_ctx *parent)
{
    struct eg__family *f = parent->family;
    if (!f) return;
    parent->family = NULL;
    for (int k = 0; k < f->children; k++)
        if (f->child[k]) {
            f->child[k]->family = NULL;
            eg_close(f->child[k]);
        }
    pthread_mutex_destroy(&f->allocating);
    pthread_mutex_destroy(&f->borrowing);
    parent->use.bytes -= sizeof *f;
    parent->realloc(parent->user, f, sizeof *f, 0);
}

void eg__children_usage(const eg_ctx *parent, eg_usage *u)
{
    const struct eg__family *f = parent->family;
    for (int k = 0; f && k < f->children; k++) {
        if (!f->child[k]) continue;
        const eg_usage c = f->child[k]->use;
        u->mallocs += c.mallocs;
        u->bytes += c.bytes;
        u->peak += c.peak;
        u->used += c.used;
        u->used_peak += c.used_peak;
        u->nodes += c.nodes;
    }
}
void eg__children_reset(eg_ctx *parent)
{
    struct eg__family *f = parent->family;
    for (int k = 0; f && k < f->children; k++)
        if (f->child[k]) f->child[k]->use.used_peak = f->child[k]->use.used;
}
