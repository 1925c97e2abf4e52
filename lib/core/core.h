/* core.h: contexts (errors, scopes, memory, draws, threads) and the header of a tensor.
 *
 * A folder of lib/ shows one header of its own name, and that is all that other folders see of it.
 * Nothing calls upward: core < tensor < notation < contraction < einsum < ops < autograd <
 * expression < attention < gradcheck (tests/layers.sh checks both). lib/io, lib/nn and lib/train
 * include none of these: they use what a user could use. */
#ifndef EG_CORE_H
#define EG_CORE_H
#if HAVE_CONFIG_H
#include <config.h>
#endif
#include <eingrad/copies.h>
#include <eingrad/core.h>
#include <eingrad/grad.h>
#include "core/fpmode.h"
#include <stdarg.h>
#include <stdatomic.h>

/* Loops over numbers are compiled for three levels of x86-64 where the compiler can; the order of
 * their sums does not depend on it. */
#if HAVE_TARGET_CLONES
#define EG_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define EG_CLONES
#endif
/* A function that is inlined into its caller, where functions and sizes that it is given are
 * known. */
#define EG_INLINE static inline __attribute__((always_inline))

/* -- small arithmetic -------------------------------------------------------------------------- */
static inline int64_t eg__min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t eg__abs64(int64_t x) { return x < 0 ? -x : x; }
/* Returns the smallest multiple of `to` that is not below a. */
static inline int64_t eg__round_up(int64_t a, int64_t to) { return (a + to - 1) / to * to; }
/* The same for bytes, up to a multiple that serves the alignment of every type. */
static inline size_t eg__up16(size_t bytes) { return (bytes + 15) & -(size_t)16; }

/* -- a tensor, memory, errors ------------------------------------------------------------------ */
/* shared by the views of one tensor */
typedef struct eg_storage {
    size_t bytes;
    uint64_t version;
    bool lent;             /* a tensor of the parent context: it is not written to */
    uint8_t made;          /* in a step that is captured: eg_made */
    uint32_t place;        /* in a captured step: 1 + index in its list of numbers; else 0 */
    struct eg__hold *hold; /* of foreign memory; NULL: memory of the context */
} eg_storage;
enum { EG_DTYPES = EG_U8 + 1 }; /* tables by dtype have as many entries */
enum { EG_LIVE = 0x5eed, EG_DEAD = 0xdead };
/* How the numbers of a storage were made: before the step that is being captured; in a way that is
 * not known; once, with the same numbers in each run; or in each run, by an act or a row. */
typedef enum eg_made { EG_MADE_BEFORE, EG_MADE_SOMEHOW, EG_MADE_ONCE, EG_MADE_EACH_RUN } eg_made;

struct eg_tensor {
    uint32_t live; /* EG_LIVE until its scope is popped */
    uint8_t dtype, rank;
    bool poison;
    bool unrecorded; /* made by an operation while nothing was recorded: op is NULL */
    bool captured;   /* in a captured step; only its runs use it */
    int count;       /* operands */
    uint32_t attr_size;
    eg_ctx *cx;
    const eg_op *op;  /* the row that made it; NULL for a leaf */
    const void *attr; /* the arguments of the call: a copy of eg_apply's attr */
    void *saved;      /* what the row computed and keeps (eg_node_save), or NULL */
    eg_tensor **in;   /* operands, then (as uint64_t) the versions they had: tensor/apply.c */
    /* st points to this tensor's own storage, or to that of the tensor that it is a view of */
    eg_storage *st, own;
    char *data; /* element 0 of the logical order */
    /* rank entries each; strides in elements, any sign, 0 for broadcast */
    int64_t *dim, *stride;
    uint64_t seq;     /* order of creation: operands have smaller numbers */
    uint64_t version; /* of its own storage when the tensor was made */
    uint64_t sweep;
    int64_t slot; /* scratch of sweeps */
    struct eg__arena *home;
    /* return address of the user's call that made it, or NULL: core/caller.c */
    void *caller;
    struct eg__tag *tag; /* name and hooks, or NULL: autograd/origin.c */
    /* NULL, or the tensor has copies (tensor/copies.c), `each` bytes apart; data is that of the
     * first */
    const eg_copies *copies;
    int64_t each;
};

/* -- tensor/copies.c: several tensors of one shape in one header ------------------------------- */
struct eg_copies {
    eg_ctx *cx;
    int64_t count;
    const uint64_t *seed; /* of each copy's draws */
};
/* Returns the address of copy k of x; x->data if x has no copies. */
static inline char *eg__copy_data(const eg_tensor *x, int64_t k)
{
    return x->copies ? x->data + k * x->each : x->data;
}
/* Returns the number of copies; 1 if x has none. */
static inline int64_t eg__copy_count(const eg_tensor *x)
{
    return x->copies ? x->copies->count : 1;
}

/* -- core/child.c: contexts that compute parts of one call, each on one thread -------------------
 */
/* A parent and its children. While a thread is inside a child (eg__enter), every function that it
 * calls with the parent or a sibling as context works in that child. */
typedef struct eg__family eg__family;
eg_ctx *eg__child_at_work(eg_ctx *);
/* Returns the context in which this thread works when a function is given cx: cx itself, or the
 * child that the thread is inside. */
static inline eg_ctx *eg__here(const eg_ctx *cx);
/* Returns child k, which is opened at the first call, with the parent's seed and switches as they
 * are now. NULL after an error, which the parent has. Valid until the parent is closed. */
eg_ctx *eg__child(eg_ctx *parent, int k);
eg_ctx *eg__child_of(const eg_ctx *parent, int k); /* NULL: it is not open */
/* From here to eg__leave this thread works in the child. `frame` is the address of a frame of the
 * caller: a call that is made from no function inside it is reported as made from `from`. */
void eg__enter(eg_ctx *child, const void *frame, void *from);
void eg__leave(void);
/* Hold this lock while a child calls anything that writes to headers of the parent's tensors. */
void eg__family_lock(eg_ctx *child);
void eg__family_unlock(eg_ctx *child);
void eg__children_close(eg_ctx *parent);
/* Adds the children's memory counters to *u. */
void eg__children_usage(const eg_ctx *parent, eg_usage *);
void eg__children_reset(eg_ctx *parent); /* their used_peak starts again from now */
/* The parent's tensors that a child has read (tensor/borrow.c): a hash table. */
typedef struct eg__loan {
    const eg_tensor *of;
    uint64_t seq;    /* its number then */
    eg_tensor *twin; /* a header of the child on the same numbers */
} eg__loan;
typedef struct eg__loans {
    struct eg__arena *home; /* the arena that holds table and twins; NULL: none is open */
    eg__loan *table;
    size_t slots, used;
    /* NULL, or a test of each tensor before it is lent: false, after an error, if a block must not
     * read x as a constant */
    bool (*check)(eg_ctx *child, eg_tensor *x, void *user);
    void *user;
} eg__loans;

/* Returns memory of the open scope, not zeroed, aligned to 64 bytes (to 16 if it is smaller); NULL
 * after "out of memory". */
void *eg__alloc(eg_ctx *, size_t bytes);
/* The context's reusable buffers. Each has one user. A buffer that grows loses its content. */
typedef enum eg_scratch {
    EG_SCRATCH_PANELS,   /* contraction/gemm.c, direct.c: blocks of operands as kernels read them */
    EG_SCRATCH_SUM_A,    /* contraction/pair.c: operand a summed over the axes that it alone has */
    EG_SCRATCH_SUM_B,    /* the same of b */
    EG_SCRATCH_PARTS,    /* contraction/sum.c, ops/norm.c: partial sums; ops/sort.c: rows by key */
    EG_SCRATCH_BATCH_A,  /* contraction/inner_batch.c: a block of a, batch by batch */
    EG_SCRATCH_BATCH_B,  /* the same of b */
    EG_SCRATCH_ROWS,     /* ops/rows.c: every thread's rows that are not contiguous */
    EG_SCRATCH_TILES,    /* attention: every thread's tiles */
    EG_SCRATCH_STACK,    /* autograd/walk.c: nodes that are being visited */
    EG_SCRATCH_ORDER,    /* autograd/walk.c: nodes in order */
    EG_SCRATCH_PIECES,   /* ops/accumulate.c: where each summand goes */
    EG_SCRATCH_OPERANDS, /* ops/accumulate.c: the operands of that node */
    EG_SCRATCH_BLOCKS,   /* expression: every thread's block of values */
    EG_SCRATCH_SUMS,     /* expression: every piece's cotangents that are added */
    EG_SCRATCHES
} eg_scratch;
/* Returns buffer `which` with room for at least `bytes`; NULL after "out of memory". */
void *eg__scratch(eg_ctx *, eg_scratch which, size_t bytes);
bool eg__failed(const eg_ctx *);
eg_tensor *eg__poison(eg_ctx *); /* of a NULL context: NULL */
/* Returns the poison tensor of x's context; NULL if x is NULL. */
static inline eg_tensor *eg__poison_of(const eg_tensor *x) { return x ? eg__poison(x->cx) : NULL; }
uint64_t eg__draw(eg_ctx *); /* the number of this random draw; counts up */
uint64_t eg__seed_of(const eg_ctx *);
bool eg__recording(const eg_ctx *);
/* Returns how many threads are worth using for `work` items, of which `grain` take 15 µs. */
int eg__team(eg_ctx *, int64_t work, int64_t grain);
/* The body of a loop for one piece. 0 ≤ thread < team; pieces that run at the same time have
 * different ones. */
typedef void eg_piece(void *user, int64_t piece, int thread);
/* Calls body for piece 0 … pieces − 1, once each, in any order, on up to `team` threads. A call
 * from inside a piece runs on the calling thread alone. */
void eg__parallel(eg_ctx *, int team, int64_t pieces, eg_piece *, void *user);

/* -- core/gap.c: positions in one block for what lives at different times */
typedef struct eg__stretch {
    int64_t from, to; /* bytes */
} eg__stretch;
/* Returns the lowest place for `bytes` that overlaps none of the n stretches; sorts these. */
int64_t eg__gap(int64_t bytes, int64_t n, eg__stretch *taken);

/* -- core/random.c: Philox 4x32-10 (Salmon et al. 2011), keyed by seed and draw, counted by the
 * logical index */
void eg__philox(uint64_t seed, uint64_t draw, uint64_t index, uint32_t out[4]);
double eg__unit(uint64_t seed, uint64_t draw, uint64_t index); /* [0, 1), 53 bits */

/* -- the inside of a context ------------------------------------------------------------------ */
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.1.0"
#endif
#define EG_VERSION PACKAGE_VERSION

enum { EG_ALIGN = 64 };
typedef struct eg__chunk eg__chunk;
struct eg__chunk {
    eg__chunk *next;
    size_t total;          /* bytes asked of the allocator */
    void *raw;             /* what it returned */
    size_t cap, used;      /* bytes after the header, and how many of them are taken */
    size_t from;           /* in chunks of tensor headers: those before this are dead */
    struct eg__hold *hold; /* of data: NULL if the arena alone uses it */
};
#define EG_CHUNK_HEADER ((sizeof(eg__chunk) + EG_ALIGN - 1) / EG_ALIGN * EG_ALIGN)
static inline char *eg__chunk_room(eg__chunk *c) { return (char *)c + EG_CHUNK_HEADER; }

typedef struct eg__arena eg__arena;
struct eg__arena { /* the memory of one scope or of one owner */
    eg_ctx *cx;
    eg__arena *outer; /* the scope around this one */
    eg__chunk *self;  /* where this struct lies (scopes) */
    eg__chunk *data, *nodes;
    eg_owner *owners;         /* opened in this scope: they end with it */
    struct eg__hold *foreign; /* foreign memory of its tensors, which lies in none of its chunks */
    uint64_t serial;          /* number of the scope */
    bool owned;               /* the arena of an owner */
    bool fixed;               /* a row's in a captured step: it gets no second chunk */
};

/* Functions that are called at each operation for the gradient check, eg_trace and the checks of
 * rows. All are NULL in normal use. */
typedef struct eg_hooks {
    void (*operand)(eg_ctx *, eg_tensor *x); /* before an operation reads x */
    bool (*result)(const eg_tensor *y);      /* after y was made; false after an error */
    bool (*recorded)(eg_tensor *y);          /* after y was recorded; false after an error */
    /* called with c, the cotangent of operand i of y; its result takes the place of c */
    eg_tensor *(*cotangent)(eg_ctx *, const eg_tensor *y, int i, eg_tensor *c);
} eg_hooks;

struct eg__headers {        /* chunks of tensor headers that no arena uses */
    eg__chunk *begun;       /* partly used: the next header comes from the first of them */
    eg__chunk *dead, **end; /* full of dead headers; those that died first come first */
    int64_t resting, made;  /* headers in `dead`; headers made so far */
    eg__chunk *blocks;      /* what the allocator returned, cut into chunks */
};

struct eg_ctx {
    struct eg__family *family; /* core/child.c; NULL: the context has no children and is no child */
    eg_ctx *parent;            /* of a child; else NULL */
    eg__loans loans;           /* of a child */
    const void *frame;         /* of a child: see eg__enter */
    void *from;
    void *(*realloc)(void *user, void *p, size_t old_size, size_t new_size);
    void *user;
    eg__arena root, *top;
    struct eg__team *team; /* helper threads; NULL before the first loop that is worth dividing */
    /* work that eg__team found worth dividing while the helpers slept, in pieces: when it is enough
     * they are woken */
    int64_t pending_work;
    void *plan_cache;            /* plans.c; NULL before the first string      */
    struct eg__capture *capture; /* the step that is being captured: tensor/capture.c; else NULL */
    eg__arena *heir; /* while a step is captured: takes the memory of scopes that end; else NULL */
    int aside;       /* > 0: these operations are part of something that is captured as a whole */
    bool replaying;  /* a captured step runs */
    eg_hooks hooks;  /* all NULL in normal use */
    struct eg__probe *probe; /* the gradient check that runs: gradcheck/probe.c */
    eg__chunk *spare_data, *spare_scopes, *scratch[EG_SCRATCHES];
    struct eg__headers headers[2]; /* chunks of several headers; of one: an owner's first */
    eg_owner *spare_owners;
    eg__chunk *owner_blocks;   /* what the allocator returned, cut into owners */
    uintptr_t text, text_size; /* the library's code: core/caller.c */
    /* The node whose rule is running, for messages and hooks; NULL outside of sweeps. The source
     * line of that node's call is reported for operations that the rule applies. */
    const eg_tensor *rule_node;
    const char *rule_kind; /* "gradient" or "tangent": what that rule makes */
#if EG_DEBUG_ALLOC
    /* rows that were checked at their first use: gradcheck/op.c */
    struct {
        const eg_op **seen;
        int n, room;
    } rows;
#endif
    /* a row's forward() computes copy k of these; `of` NULL: its operands have no copies */
    struct {
        const eg_copies *of;
        int64_t k;
        /* the node with all its copies. A forward() that is called for copy 0 may compute all of
         * them and then sets it to NULL */
        eg_tensor *all;
    } copy;
    /* in a child that computes a block: the numbers from which the seeds of its draws are made, and
     * its range of examples */
    struct {
        bool on;
        uint64_t draw, block;
        int64_t from, to;
    } block;
    uint64_t seed, draw, seq, scopes, sweep;
    uint64_t trees; /* calls of einsum that were planned with a tree; each has a number */
    /* the number of the node visit in which a backward sweep calls a rule, once for each operand;
     * 0 outside of sweeps; and the number of visits so far */
    uint64_t pull, pulls;
    eg_dtype dtype;
    int threads;
    bool training, recording, failed, flush;
    eg_code code; /* of the failure in message, if failed */
    eg_usage use;
    int64_t no_dims[2]; /* sizes and strides of tensors of rank 0 and of the poison tensor */
    eg_tensor poison;
    char message[1024];
};

/* Opens a context as eg_open_with (lib/open.c) does, but without hooks. */
eg_ctx *eg__context_open(const eg_open_args *);
int eg__cores(void); /* core/threads.c: cores this process may use */
void eg__team_close(eg_ctx *);
/* Lets the child's loops run on the parent's threads until the team is taken back. */
void eg__team_lend(eg_ctx *parent, eg_ctx *child);
void eg__team_take_back(eg_ctx *child);
/* Returns cx->plan_cache, which is allocated at the first call: `bytes`, not zeroed, aligned to 64
 * bytes, valid until the context is closed. NULL (no error) without memory. */
void *eg__plan_cache_room(eg_ctx *, size_t bytes);
/* Opens a context on the caller's stack, with one thread and malloc, for one call that makes no
 * tensors. */
void eg__brief_open(eg_ctx *);
void eg__brief_close(eg_ctx *);
eg__arena *eg__owner_arena(eg_owner *);
/* True while operations in cx are recorded for the runs of a captured step. */
static inline bool eg__capturing(const eg_ctx *cx) { return cx->capture && !cx->aside; }
/* True if a step is being captured, which cannot contain the call `who`; then also records an
 * error. */
bool eg__capture_refuses(eg_ctx *, const char *who, const char *why);
/* -- core/hold.c: memory that is freed by its last holder. One holder is the arena of the tensors
 * that lie in it; the others are exported tensors. */
typedef struct eg__hold {
    struct eg__hold *next; /* of foreign memory: another one of the same arena */
    atomic_long holders;
    void (*release)(void *user); /* of foreign memory, or NULL; the last holder calls it */
    void *user;
    eg__chunk *chunk; /* or a chunk of the context's, which the last holder frees */
    bool writable;
    void *(*realloc)(void *user, void *p, size_t old_size, size_t new_size);
    void *allocator; /* the user data of realloc */
} eg__hold;
/* Makes a hold for foreign memory, with the arena as its holder. Returns NULL after "out of
 * memory". */
eg__hold *eg__hold_foreign(eg__arena *, void (*release)(void *user), void *user, bool writable);
/* Returns the hold of the memory at `data`, an address in one of the arena's chunks, with the
 * caller as one more holder; NULL after "out of memory". */
eg__hold *eg__hold_chunk(eg__arena *, const char *data);
static inline void eg__hold_share(eg__hold *h) { atomic_fetch_add(&h->holders, 1); }
/* Ends one holder's use. The last holder frees or releases the memory, and the hold. May be called
 * in any thread. */
void eg__hold_end(eg__hold *);
/* For an arena that ends. True if it was the chunk's only holder, so that it may reuse the chunk.
 * Else its last holder frees the chunk, which the context no longer counts. */
bool eg__hold_leave_chunk(eg_ctx *, eg__chunk *);
void eg__hold_end_foreign(eg__arena *); /* the same of all foreign memory */

void *eg__alloc_chunk(eg__arena *, size_t bytes); /* eg__alloc_in from another chunk */
bool eg__nodes_chunk(eg__arena *);
static inline eg_ctx *eg__here(const eg_ctx *cx)
{
    eg_ctx *self = (eg_ctx *)(uintptr_t)cx;
    return cx && cx->family ? eg__child_at_work(self) : self;
}
static inline eg__arena *eg__top(eg_ctx *cx) { return eg__here(cx)->top; }
static inline void *eg__alloc_in(eg__arena *a, size_t bytes)
{
#if EG_DEBUG_ALLOC
    if (a->fixed)
#endif
    {
        eg__chunk *c = a->data;
        /* align: a power of two */
        const size_t align = bytes >= EG_ALIGN ? EG_ALIGN : 16,
                     at = c ? (c->used + align - 1) & -align : 0;
        if (c && at <= c->cap && bytes <= c->cap - at) {
            a->cx->use.used += at + bytes - c->used;
            c->used = at + bytes;
            return eg__chunk_room(c) + at;
        }
    }
    return eg__alloc_chunk(a, bytes);
}
/* Returns a tensor's header, live and numbered, all else 0; NULL after "out of memory". */
static inline eg_tensor *eg__tensor_in(eg__arena *a)
{
    if ((!a->nodes || a->nodes->cap - a->nodes->used < sizeof(eg_tensor)) && !eg__nodes_chunk(a))
        return NULL;
    eg_tensor *t = (eg_tensor *)(void *)(eg__chunk_room(a->nodes) + a->nodes->used);
    a->nodes->used += sizeof *t;
    *t = (eg_tensor){ .live = EG_LIVE, .cx = a->cx, .seq = ++a->cx->seq, .st = &t->own, .home = a };
    return t;
}
void eg__text(uintptr_t *start, uintptr_t *size); /* core/caller.c */
/* Returns the return address of the user's call; NULL if the frames cannot be followed. */
void *eg__caller(const eg_ctx *);
#include "core/plans.h"
#endif
