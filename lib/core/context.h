/* context.h: the inside of a context, for lib/core and the few places that make tensors. */
#ifndef EG_CONTEXT_H
#define EG_CONTEXT_H
#include "impl.h"
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.1.0"
#endif
#define EG_VERSION PACKAGE_VERSION

enum { EG_ALIGN = 64 };
typedef struct eg__chunk eg__chunk;
struct eg__chunk {
    eg__chunk *next;
    size_t     total;           /* bytes asked of the allocator                    */
    void      *raw;             /* what the allocator gave                          */
    size_t     cap, used;       /* bytes of room after the header, and taken of it  */
    size_t     from;            /* of tensor headers: those before are dead already */
};
#define EG_CHUNK_HEADER ((sizeof(eg__chunk) + EG_ALIGN - 1) / EG_ALIGN * EG_ALIGN)
static inline char *eg__chunk_room(eg__chunk *c) { return (char *)c + EG_CHUNK_HEADER; }

typedef struct eg__arena eg__arena;
struct eg__arena {              /* the memory of one scope or of one owner  */
    eg_ctx    *cx;
    eg__arena *outer;           /* the scope around this one                */
    eg__chunk *self;            /* where this struct lies (scopes)          */
    eg__chunk *data, *nodes;
    eg_owner  *owners;          /* that live no longer than this scope      */
    uint64_t   serial;
    bool       owned;           /* of an owner                              */
};

struct eg_ctx {
    void *(*realloc)(void *user, void *p, size_t old_size, size_t new_size);
    void *user;
    eg__arena root, *top;
    struct eg__team *team;      /* helping threads; NULL until wanted       */
    int64_t undivided;          /* work since then, while they sleep        */
    void  *kept;                /* eg__keep_block                           */
    struct eg__probe *probe;    /* a gradient check that runs: autograd/probe.h */
    eg__chunk *spare_data, *spare_scopes, *scratch[EG_SCRATCH];
    struct {                    /* chunks of headers that no arena has          */
        eg__chunk *begun;       /* not full: the next header is a fresh one …   */
        eg__chunk *dead, **end; /* … or full, the longest dead first            */
        int64_t resting, made;  /* headers among the dead, and in all           */
        eg__chunk *blocks;      /* what the allocator gave, cut into chunks     */
    } headers;
    uintptr_t text, text_size;  /* the library's code: core/caller.c        */
    const eg_tensor *blame;     /* the node whose rule is at work: what the rule applies is called from there too */
    const char *making;         /* "gradient" or "tangent": what that rule makes */
    bool tracing;               /* eg_trace                                 */
#if EG_DEBUG_ALLOC
    struct { const eg_op **seen; int n, room; } rows;      /* checked at their first use: autograd/rowcheck.c */
#endif
    uint64_t seed, draw, seq, scopes, sweep;
    uint64_t pull, pulls;       /* the node whose cotangent a sweep hands on: a number of its own; 0 outside */
    eg_dtype dtype;
    int  threads;
    bool training, recording, failed;
    eg_usage use;
    int64_t nothing[2];         /* dims of the poison tensor                */
    eg_tensor poison;
    char message[1024];
};

int eg__cores(void);                                /* core/threads.c: cores this process may use */
void eg__team_close(eg_ctx *);
/* cx->kept: not zeroed, 64-byte aligned, until the context is closed; NULL (no error) without memory */
void *eg__keep_block(eg_ctx *, size_t bytes);
void  eg__brief_open(eg_ctx *); /* a context for one call, on the caller's stack: one thread, malloc, scratch and scopes, no tensors */
void  eg__brief_close(eg_ctx *);
eg__arena *eg__owner_arena(eg_owner *);
void *eg__alloc_chunk(eg__arena *, size_t bytes);   /* where the present chunk has no room        */
bool  eg__nodes_chunk(eg__arena *);
static inline eg__arena *eg__top(eg_ctx *cx) { return cx->top; }
static inline void *eg__alloc_in(eg__arena *a, size_t bytes)
{
#if !EG_DEBUG_ALLOC
    eg__chunk *c = a->data;
    const size_t align = bytes >= EG_ALIGN ? EG_ALIGN : 16, at = c ? (c->used + align - 1) & -align : 0;    /* align: a power of two */
    if (c && at <= c->cap && bytes <= c->cap - at) {
        a->cx->use.used += at + bytes - c->used;
        c->used = at + bytes;
        return eg__chunk_room(c) + at;
    }
#endif
    return eg__alloc_chunk(a, bytes);
}
/* a header: live, numbered, nothing else */
static inline eg_tensor *eg__tensor_in(eg__arena *a)
{
    if ((!a->nodes || a->nodes->cap - a->nodes->used < sizeof(eg_tensor)) && !eg__nodes_chunk(a)) return NULL;
    eg_tensor *t = (eg_tensor *)(void *)(eg__chunk_room(a->nodes) + a->nodes->used);
    a->nodes->used += sizeof *t;
    *t = (eg_tensor){ .live = EG_LIVE, .cx = a->cx, .seq = ++a->cx->seq, .st = &t->own, .home = a };
    return t;
}
void  eg__text(uintptr_t *start, uintptr_t *size);  /* core/caller.c                              */
void *eg__caller(const eg_ctx *);                   /* the user's call: its return address; NULL where frames cannot be followed */
bool  eg__trace(const eg_tensor *y);                /* autograd/trace.c: has y no NaN or infinity, or its operands too? else a message */
/* of the operands, as eg_apply found them */
static inline uint64_t *eg__versions(const eg_tensor *y) { return (uint64_t *)(void *)(y->in + y->count); }
#endif
