/* core.h: contexts (errors, scopes, memory, draws, threads) and the header of a tensor.
 *
 * Each folder of lib/ has one header of its own name, and other folders include only that one. A
 * folder calls only folders before it: core < tensor < notation < contraction < einsum < ops <
 * autograd < ranks < expression < attention < gradcheck (tests/layers.sh checks both). lib/io,
 * lib/nn and lib/train include none of these headers but only public ones. */
#ifndef EG_CORE_H
#define EG_CORE_H
#if HAVE_CONFIG_H
#include <config.h>
#endif
#include <eingrad/blocks.h>
#include <eingrad/copies.h>
#include <eingrad/core.h>
#include <eingrad/grad.h>
#include "core/fpmode.h"
#include <stdarg.h>
#include <stdatomic.h>

/* Loops over elements are compiled for three levels of x86-64 if the compiler can; the order of
 * their sums is the same in all three. */
#if HAVE_TARGET_CLONES
#define EG_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define EG_CLONES
#endif
/* A function that is inlined into its caller, where the functions and sizes that are passed to it
 * are constants. */
#define EG_INLINE static inline __attribute__((always_inline))

/* -- small arithmetic -------------------------------------------------------------------------- */
static inline int64_t eg__min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t eg__abs64(int64_t x) { return x < 0 ? -x : x; }
/* Returns the smallest multiple of `to` that is at least a. */
static inline int64_t eg__round_up(int64_t a, int64_t to) { return (a + to - 1) / to * to; }
/* Returns the smallest multiple of 16 that is at least `bytes`; 16 is the alignment of every
 * type. */
static inline size_t eg__up16(size_t bytes) { return (bytes + 15) & -(size_t)16; }

/* -- a tensor, memory, errors ------------------------------------------------------------------ */
/* A tensor and the scope that it was made in, with which its header ends. */
typedef struct eg__scoped {
    eg_tensor *x;
    eg_mark scope;
} eg__scoped;
/* A group of ranks. tell: takes part in an exchange of errors with its other ranks. */
typedef struct eg__group {
    struct eg__group *next;
    void (*tell)(struct eg__group *);
} eg__group;
/* the storage of a tensor, which all views of it share */
typedef struct eg_storage {
    size_t bytes;
    /* number of changes in place; a node keeps those that its operands had (eg__versions) */
    uint64_t version;
    bool lent;      /* memory of a tensor of the parent context, which may not be written to */
    bool exposed;   /* a pointer was returned through which a program may write at any time */
    uint8_t made;   /* an eg_made, used while a step is captured */
    uint32_t place; /* while a step is captured: 1 + index in eg__capture.each; else 0 */
    struct eg__hold *hold; /* of foreign memory; NULL: memory of the context */
    const eg_tensor *of;   /* the tensor for which the memory was allocated; NULL: never freed */
    /* number of cotangents of running backward passes that are in it: autograd/reverse.h */
    uint32_t pending;
    eg__scoped assigned; /* the recorded result that eg_assign has written here; NULL: none */
} eg_storage;
enum { EG_DTYPES = EG_U8 + 1 }; /* length of tables that are indexed by dtype */
enum { EG_LIVE = 0x5eed, EG_DEAD = 0xdead };
/* How the elements of a storage were computed, for a captured step: before the step; in an unknown
 * way; once, with the same values in each run; or in each run, by an act or an operation. */
typedef enum eg_made { EG_MADE_BEFORE, EG_MADE_UNKNOWN, EG_MADE_ONCE, EG_MADE_EACH_RUN } eg_made;

struct eg_tensor {
    uint32_t live; /* EG_LIVE, and EG_DEAD after its scope is popped */
    uint8_t dtype, rank;
    bool poison;
    bool unrecorded;   /* the result of an operation that was not recorded: op is NULL */
    bool captured;     /* belongs to a captured step; only its runs use it */
    bool saves;        /* by eg_node_save, which custom operations call */
    bool saved_each;   /* `saved` is an array of what was saved for each copy: tensor/copies.c */
    bool communicates; /* recorded, and its rule waits for other ranks:
                        * autograd/communicating.c */
    int count;         /* number of operands */
    uint32_t attr_size;
    eg_ctx *cx;
    const eg_op *op;  /* the operation that it is the result of; NULL for a leaf */
    const void *attr; /* the arguments of the call: a copy of eg_apply's attr */
    void *saved;      /* what the operation keeps for its rule (eg_node_save), or NULL */
    /* the operands, then (as uint64_t) the versions that they had: tensor/apply.c */
    eg_tensor **in;
    /* st points to `own`, or to the storage of the tensor that this one is a view of */
    eg_storage *st, own;
    char *data; /* address of the element whose indices are all 0 */
    /* of `rank` entries; strides are in elements, of any sign, 0 for a broadcast axis */
    int64_t *dim, *stride;
    uint64_t seq;     /* number in the order of creation, larger than those of its operands */
    uint64_t version; /* version of its storage when the tensor was made */
    uint64_t sweep;
    int64_t slot; /* used by a backward or forward pass */
    struct eg__arena *arena;
    /* return address of the user's call that made the tensor, or NULL: core/caller.c */
    void *caller;
    struct eg__tag *tag; /* name and hooks, or NULL: autograd/names_hooks.c */
    /* NULL, or the group of its copies (tensor/copies.c): `data` is that of copy 0, and the others
     * follow at distances of `each` bytes */
    const eg_copies *copies;
    int64_t each;
};

/* True if the tensor for which x's memory was allocated still exists. It is older than its views;
 * if its header belongs to a younger tensor, it was freed. */
static inline bool eg__storage_lives(const eg_tensor *x)
{
    const eg_tensor *of = x->st->of;
    return of == x || !of || (of->live == EG_LIVE && of->seq <= x->seq);
}

/* -- tensor/copies.c: several tensors of one shape in one header ------------------------------- */
struct eg_copies {
    eg_ctx *cx;
    int64_t count;
    const uint64_t *seed; /* seeds of each copy's draws */
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

/* -- core/child.c: contexts that compute parts of one call, each on one thread ----------------- */
/* A parent and its children. While a thread is inside a child (eg__enter), every function that it
 * calls with the parent or a sibling as context works in that child. */
typedef struct eg__family eg__family;
eg_ctx *eg__child_at_work(eg_ctx *);
/* Returns the context that this thread uses when a function is given cx: the child that the thread
 * is inside, or cx if it is inside none. */
static inline eg_ctx *eg__here(const eg_ctx *cx);
/* Returns child k, which is opened by the first call, with the parent's present dtype and switches.
 * NULL after an error, which the parent records. Valid until the parent is closed. */
eg_ctx *eg__child(eg_ctx *parent, int k);
eg_ctx *eg__child_of(const eg_ctx *parent, int k); /* NULL if it is not open */
/* Between this call and eg__leave the thread works in the child. `frame` is the address of a stack
 * frame of the caller. A call of the library that no user function inside that frame made is
 * reported as made from address `from`. */
void eg__enter(eg_ctx *child, const void *frame, void *from);
void eg__leave(void);
/* A child holds this lock while it calls a function that writes to headers of the parent's
 * tensors. */
void eg__family_lock(eg_ctx *child);
void eg__family_unlock(eg_ctx *child);
void eg__children_close(eg_ctx *parent);
/* Adds the children's memory counters to *u. */
void eg__children_usage(const eg_ctx *parent, eg_usage *);
void eg__children_reset(eg_ctx *parent); /* their used_peak is set to their current use */
/* The parent's tensors that a child has read (tensor/borrow.c), as a hash table. */
typedef struct eg__loan {
    const eg_tensor *of;
    uint64_t seq;      /* its `seq` at that time */
    eg_tensor *header; /* the child's header with the same elements */
} eg__loan;
typedef struct eg__loans {
    /* the arena that holds the table and the headers; NULL: no table is open */
    struct eg__arena *arena;
    eg__loan *table;
    size_t slots, used;
    /* NULL, or a test that is called before a tensor is lent: false, after an error, if a block
     * must not read x as a constant */
    bool (*check)(eg_ctx *child, eg_tensor *x, void *user);
    void *user;
    /* of tensors with these copies only copy `copy` is lent, without copies; NULL: all copies */
    const struct eg_copies *copies;
    int64_t copy;
} eg__loans;

/* Returns memory of the open scope, not zeroed, aligned to 64 bytes (blocks below 64 bytes: to 16).
 * NULL after the error "out of memory". */
void *eg__alloc(eg_ctx *, size_t bytes);
/* What the gradient check has to know about an error, besides its code. */
typedef enum eg__cause {
    EG_CAUSE_OTHER,
    EG_CAUSE_CHANGED,  /* a tensor was changed in place, and its old value is needed */
    EG_CAUSE_NONFINITE /* eg_trace found the first NaN or infinity */
} eg__cause;
/* The context's reusable buffers. Each has one user. Its content is lost when the buffer grows. */
typedef enum eg_scratch {
    EG_SCRATCH_PANELS, /* contraction/gemm.c, direct.c: blocks of operands as kernels read them */
    EG_SCRATCH_SUM_A,  /* contraction/pair.c: operand a, summed over the axes that only it has */
    EG_SCRATCH_SUM_B,  /* contraction/pair.c: operand b, likewise */
    /* contraction/sum.c, ops/norm.c: partial sums; ops/sort.c: the keys of a row of numbers;
     * ops/convolve.c: lines and their transforms */
    EG_SCRATCH_PARTS,
    EG_SCRATCH_COMPLEX, /* contraction/pair.c: the parts of complex operands */
    EG_SCRATCH_BATCH_A, /* contraction/inner_batch.c: a block of a, batch by batch */
    EG_SCRATCH_BATCH_B, /* contraction/inner_batch.c: a block of b, likewise */
    /* ops/rows.c: each thread's copies of rows of numbers that are not contiguous */
    EG_SCRATCH_ROWS,
    EG_SCRATCH_TILES,    /* attention: each thread's tiles */
    EG_SCRATCH_STACK,    /* autograd/walk.c: nodes that are being visited */
    EG_SCRATCH_ORDER,    /* autograd/walk.c: nodes in order */
    EG_SCRATCH_PIECES,   /* ops/accumulate.c: where each summand is added */
    EG_SCRATCH_OPERANDS, /* ops/accumulate.c: the operands of that node */
    EG_SCRATCH_BLOCKS,   /* expression: each thread's block of values */
    EG_SCRATCH_SUMS,     /* expression: each piece's cotangents that are added up */
    EG_SCRATCH_SEARCH,   /* contraction/program.c: costs of all subsets of operands */
    EG_SCRATCH_PLANNING, /* einsum: a contraction whose order is planned */
    EG_SCRATCHES
} eg_scratch;
/* Returns buffer `which` with room for at least `bytes`; NULL after the error "out of memory". */
void *eg__scratch(eg_ctx *, eg_scratch which, size_t bytes);
bool eg__failed(const eg_ctx *);
eg_tensor *eg__poison(eg_ctx *); /* NULL if the context is NULL */
/* Returns the poison tensor of x's context; NULL if x is NULL. */
static inline eg_tensor *eg__poison_of(const eg_tensor *x) { return x ? eg__poison(x->cx) : NULL; }
uint64_t eg__draw(eg_ctx *); /* returns the number of the next random draw */
uint64_t eg__seed_of(const eg_ctx *);
bool eg__recording(const eg_ctx *);
/* Returns how many threads should share `work` items, of which `grain` take about 15 µs. */
int eg__team(eg_ctx *, int64_t work, int64_t grain);
/* The body of a loop for one piece. 0 ≤ thread < team; two pieces that run at the same time have
 * different `thread`. */
typedef void eg_piece(void *user, int64_t piece, int thread);
/* Calls body for piece 0 … pieces − 1, once each, in any order, on up to `team` threads. A call
 * from inside a piece runs on the calling thread alone. */
void eg__parallel(eg_ctx *, int team, int64_t pieces, eg_piece *, void *user);

/* -- core/gap.c: addresses in one block for arrays that are in use at different times ---------- */
typedef struct eg__byte_range {
    int64_t from, to; /* range of bytes, [from, to) */
} eg__byte_range;
/* Returns the lowest offset at which `bytes` bytes overlap none of the n ranges. Sorts the
 * ranges. */
int64_t eg__gap(int64_t bytes, int64_t n, eg__byte_range *taken);

/* -- core/random.c: Philox 4x32-10 (Salmon et al. 2011), keyed by seed and draw, counted by the
 * logical index */
void eg__philox(uint64_t seed, uint64_t draw, uint64_t index, uint32_t out[4]);
/* The same for n indices from `first` on, `step` apart, to out[4 n]. */
void eg__philox_many(uint64_t seed, uint64_t draw, uint64_t first, uint64_t step, int64_t n,
                     uint32_t *out);
double eg__unit(uint64_t seed, uint64_t draw, uint64_t index); /* [0, 1), 53 bits */

/* -- the members of a context ------------------------------------------------------------------ */
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.1.0"
#endif
#define EG_VERSION PACKAGE_VERSION

enum { EG_ALIGN = 64 };
enum { EG_LINE = 64 }; /* bytes of a cache line */
typedef struct eg__chunk eg__chunk;
struct eg__chunk {
    eg__chunk *next;
    size_t total;     /* bytes that were requested from the allocator */
    void *raw;        /* the pointer that the allocator returned */
    size_t cap, used; /* bytes after the header, and how many of them are in use */
    size_t from;      /* in chunks of tensor headers: the headers before this offset are dead */
    struct eg__hold *hold; /* of a chunk with elements: NULL if only the arena uses the chunk */
};
#define EG_CHUNK_HEADER ((sizeof(eg__chunk) + EG_ALIGN - 1) / EG_ALIGN * EG_ALIGN)
static inline char *eg__chunk_memory(eg__chunk *c) { return (char *)c + EG_CHUNK_HEADER; }

typedef struct eg__arena eg__arena;
struct eg__arena { /* the memory of one scope or of one owner */
    eg_ctx *cx;
    eg__arena *outer; /* arena of the enclosing scope */
    eg__chunk *self;  /* of a scope: the chunk that this struct is in */
    /* chunks with elements and other memory; chunks with tensor headers */
    eg__chunk *data, *nodes;
    eg_owner *owners;         /* the owners that were opened in it and end with it */
    struct eg__hold *foreign; /* the foreign memory that its tensors use */
    /* memory of tensors that ended before the arena, which it allocates again, and its size */
    struct eg__spare *spare;
    size_t spare_bytes;
    uint64_t serial; /* number of the scope, unique in the context */
    bool owned;      /* true for the arena of an owner */
    bool pooled;     /* of an owner: its chunks are those of cx->spare_owned */
    bool fixed; /* true for the memory of an operation in a captured step, which may not grow */
};

/* -- scope.c -- */
eg__scoped eg__scoped_of(eg_tensor *x); /* x with its scope */
/* Returns the tensor; NULL if there is none, or if its scope has ended and its header with it. */
eg_tensor *eg__scoped_tensor(const eg_ctx *, const eg__scoped *);

/* Functions that observe each operation. The gradient check, eg_trace and the check of operations
 * at their first use set them; all are NULL in normal use. */
typedef struct eg_hooks {
    void (*operand)(eg_ctx *, eg_tensor *x); /* before an operation reads x */
    bool (*result)(const eg_tensor *y);      /* after y was made; returns false after an error */
    bool (*recorded)(eg_tensor *y); /* after y was recorded; returns false after an error */
    /* is given c, the cotangent of operand i of y, and returns the tensor that replaces c */
    eg_tensor *(*cotangent)(eg_ctx *, const eg_tensor *y, int i, eg_tensor *c);
} eg_hooks;

struct eg__headers {        /* chunks of tensor headers that no arena uses */
    eg__chunk *begun;       /* partly used ones: the next header is taken from the first */
    eg__chunk *dead, **end; /* chunks of dead headers only, in the order in which they died */
    int64_t resting, made;  /* number of headers in `dead`; number of all headers */
    eg__chunk *blocks; /* the blocks that the allocator returned, which are divided into chunks */
};

enum { EG_READS = 4 }; /* views that a loop may read in turns with a single copy of each */
struct eg_ctx {
    struct eg__family *family; /* core/child.c; NULL: the context has no children and is no child */
    eg_ctx *parent;            /* the parent of a child; else NULL */
    eg__loans loans;           /* used in a child */
    const void *frame;         /* used in a child: see eg__enter */
    /* in a child: see eg__enter; in a parent, while its blocks are computed: the return address of
     * the user's call */
    void *from;
    void *(*realloc)(void *user, void *p, size_t old_size, size_t new_size);
    void *user;
    eg__arena root, *top;
    struct eg__team *team; /* helper threads; NULL before the first loop that is worth dividing */
    /* work that eg__team found worth dividing while the helpers slept, in pieces; if it is enough,
     * the helpers are woken */
    int64_t pending_work;
    void *plan_cache;            /* plans.c; NULL before the first call that stores a plan */
    struct eg__capture *capture; /* while a step is captured: tensor/capture.c; else NULL */
    /* while a step is captured: the arena that takes over the memory of scopes that end; else
     * NULL */
    eg__arena *receiver;
    /* > 0 while operations run that are not recorded in the captured step, as parts of an act */
    int aside;
    bool replaying;          /* true while a captured step is run */
    eg_hooks hooks;          /* all NULL in normal use */
    struct eg__probe *probe; /* the running gradient check (gradcheck/substitute.c), or NULL */
    eg__chunk *spare_data, *spare_scopes, *spare_handles, *scratch[EG_SCRATCHES];
    eg__chunk *spare_owned; /* of owners that eg__owner_open_pooled opened */
    /* chunks of UNIT headers; chunks of one header, the first header of an owner */
    struct eg__headers headers[2];
    eg_owner *spare_owners;
    /* the blocks that the allocator returned, which are divided into owners */
    eg__chunk *owner_blocks;
    uintptr_t text, text_size; /* the library's code: core/caller.c */
    /* The node whose rule is running, for messages and hooks; NULL outside of backward and forward
     * passes. Operations that the rule applies are reported with the source line of that node's
     * call. */
    const eg_tensor *rule_node;
    const char *rule_kind; /* "gradient" or "tangent": what that rule computes */
#if EG_DEBUG_ALLOC
    /* operations that were checked at their first use: gradcheck/op.c */
    struct {
        const eg_op **seen;
        int n, capacity;
    } checked;
#endif
    /* an operation's forward() computes copy k of these; `of` is NULL if its operands have no
     * copies */
    struct {
        const eg_copies *of;
        int64_t k;
        /* The node with all its copies. A forward() that is called for copy 0 may compute all
         * copies, and then sets this to NULL. */
        eg_tensor *all;
        /* the copy's seed, while forward() of another operation applies operations to the tensors
         * of one copy, and `of` is NULL; NULL: it does not */
        const uint64_t *seed;
    } copy;
    /* eg__apply_copy: the next node is copy k of `of`, which has been computed; `of` is NULL
     * otherwise */
    struct {
        const eg_tensor *of;
        int64_t k;
    } computed;
    /* the block that is being computed, in a child, or in this context by eg_block_call */
    struct {
        /* true in a child: the seeds of the copies' draws are derived from the other two, the
         * numbers of the call and of the block */
        bool on;
        uint64_t draw, block;
        int64_t from, to; /* its examples [from, to); `to` is 0 outside of blocks */
        int64_t copy;     /* the copy that it computes (eg_block_copy); 0 without copies */
        const struct eg__block_batch *batch; /* of which it reads these examples; or NULL */
    } block;
    /* the row-major copies that were returned last for reading: tensor/access.c */
    struct {
        uint64_t seq, written; /* of the tensor; its storage's version + acts, when it was copied */
        eg__scoped copy;
    } read[EG_READS];
    uint64_t reads, acts; /* number of such copies; of acts that wrote to a tensor */
    uint64_t seed, draw, seq, scopes, sweep;
    /* number of calls of einsum that were planned with a tree of products; each tree has a
     * number */
    uint64_t trees;
    eg__group *groups; /* of ranks (eg_ranks_open) that are open, in this order; NULL: none */
    /* the last recorded tensor that `communicates`, and the number of those so far */
    eg__scoped last_communicating;
    uint64_t communications;
    /* The number of the current visit of a node in a backward pass, which calls the node's rule
     * once for each operand; 0 outside of backward passes. `pulls` is the number of visits so
     * far. */
    uint64_t pull, pulls;
    eg_dtype dtype;
    int threads;
    union { /* the switches but eg_trace: each, and all at once */
        struct {
            bool training, recording, flush;
        };
        uint32_t switches;
    };
    bool failed;
    uint64_t errors; /* number of errors so far; that of the one in `message`, if `failed` */
    bool each_copy;  /* in a rule: the backward pass is that of eg_grad_each */
    eg_code code;    /* code of the error in `message`, if `failed` */
    eg__cause cause; /* likewise */
    eg_usage use;
    int64_t no_dims[2]; /* sizes and strides of tensors of rank 0 and of the poison tensor */
    eg_tensor poison;
    char message[1024];
};

/* Opens a context as eg_open_with (lib/open.c) does, but without hooks. */
eg_ctx *eg__context_open(const eg_open_args *);
int eg__cores(void); /* core/threads.c: the number of cores that this process may use */
void eg__team_close(eg_ctx *);
/* Lets the child's loops run on the parent's threads until eg__team_take_back. */
void eg__team_lend(eg_ctx *parent, eg_ctx *child);
void eg__team_take_back(eg_ctx *child);
/* Returns cx->plan_cache, `bytes` bytes that the first call allocates, not zeroed, aligned to 64
 * bytes, valid until the context is closed. NULL (no error) without memory. */
void *eg__plan_cache_memory(eg_ctx *, size_t bytes);
/* Opens a context in memory of the caller, with one thread and malloc, for one call that makes no
 * tensors. */
void eg__temporary_open(eg_ctx *);
void eg__temporary_close(eg_ctx *);
eg__arena *eg__owner_arena(eg_owner *);
/* eg_owner_open, but the memory of the owner returns to a pool of the context when it is closed, so
 * that work between ranks that repeats does not call the allocator. The pool has at most as many
 * chunks as such owners had at one time. */
eg_owner *eg__owner_open_pooled(eg_ctx *);
void eg__owner_pool_free(eg_ctx *); /* frees what no owner uses of that pool */
/* eg_switches_of a context that is eg__here. */
static inline eg_switches eg__switches_in(const eg_ctx *cx)
{
    return (eg_switches){ cx->switches, (void (*)(void))cx->hooks.result };
}
/* True if the switches of a context that is eg__here are still those that were read before. */
static inline bool eg__switches_are(const eg_ctx *cx, eg_switches was)
{
    const eg_switches now = eg__switches_in(cx);
    return now.on == was.on && now.trace == was.trace;
}
/* Restores the switches after a call of the program's function `where`. True if there is no error;
 * else records, unless an error was recorded before, that the function left a switch changed:
 * "who: eg_eval was called in .score_fn and not undone". */
bool eg__switches_kept(eg_ctx *, eg_switches was, const char *who, const char *where);
/* snprintf for messages: numbers have a decimal point under every locale of the program. */
int eg__sentence(char *out, size_t size, const char *format, ...) EG_FORMAT_(3, 4);
int eg__vsentence(char *out, size_t size, const char *format, va_list) EG_FORMAT_(3, 0);
/* As eg_fail_as, with a cause. */
eg_tensor *eg__fail_because(eg_ctx *, eg__cause, eg_code, const char *format, ...) EG_FORMAT_(4, 5);
/* True while operations in cx are recorded in a captured step. */
static inline bool eg__capturing(const eg_ctx *cx) { return cx->capture && !cx->aside; }
/* True, after an error, if a step is being captured, which cannot contain a call of the function
 * `who` for the reason `why`. */
bool eg__capture_refuses(eg_ctx *, const char *who, const char *why);
/* -- core/hold.c: memory that several holders use and the last one frees --
 *
 * A holder is the arena of the tensors in this memory, or an exported tensor. */
typedef struct eg__hold {
    struct eg__hold *next; /* of foreign memory: the next one of the same arena */
    atomic_long holders;
    void (*release)(void *user); /* of foreign memory, or NULL; called by the last holder */
    void *user;
    eg__chunk *chunk; /* the chunk, if this is memory of the context; the last holder frees it */
    bool writable;
    void *(*realloc)(void *user, void *p, size_t old_size, size_t new_size);
    void *allocator; /* the user data of realloc */
} eg__hold;
/* Makes a hold for foreign memory, with the arena as its holder. NULL after the error "out of
 * memory". */
eg__hold *eg__hold_foreign(eg__arena *, void (*release)(void *user), void *user, bool writable);
/* Returns the hold of the memory at `data`, an address in one of the arena's chunks, with the
 * caller as an additional holder; NULL after the error "out of memory". */
eg__hold *eg__hold_chunk(eg__arena *, const char *data);
static inline void eg__hold_share(eg__hold *h) { atomic_fetch_add(&h->holders, 1); }
/* Ends one holder's use. The last holder frees or releases the memory, and frees the hold. May be
 * called in any thread. */
void eg__hold_end(eg__hold *);
/* Called when an arena ends. True if the arena was the only holder of the chunk and may reuse it.
 * Otherwise the last holder frees the chunk, and the context no longer counts it as in use. */
bool eg__hold_leave_chunk(eg_ctx *, eg__chunk *);
void eg__hold_end_foreign(eg__arena *); /* eg__hold_end for all foreign memory of the arena */

/* Makes an object that ends with its owner, and that the program may also end by a function. Its
 * first members are `eg_ctx *cx; eg_owner *owner;`, which are set; the others are zeros. When the
 * owner is closed, `owner` becomes NULL. The memory stays readable until another object takes it,
 * so that a use after the end can be refused. With EG_DEBUG_ALLOC it is freed. NULL after the error
 * "out of memory". */
void *eg__handle(eg_owner *, size_t bytes);
/* True if the object exists; else records an error that begins with `who`, after which the words
 * `what` name the object. */
bool eg__handle_lives(const void *object, const char *who, const char *what);

void *eg__alloc_chunk(eg__arena *, size_t bytes); /* as eg__alloc_in, from another chunk */
/* Gives the chunks of the arena other than `data` back to the allocator. Returns a size of `data`
 * that suffices for what is in all of them; 0 if there are no others. */
size_t eg__arena_keep_chunk(eg__arena *, eg__chunk *data);
/* The smallest number of bytes of elements for which a tensor may be freed before its arena ends.
 * With EG_DEBUG_ALLOC smaller tensors are freed as well, so that tests detect their use
 * afterwards. */
#if EG_DEBUG_ALLOC
enum { EG_SPARE_LEAST = EG_ALIGN };
#else
enum { EG_SPARE_LEAST = 1 << 12 };
#endif
/* Frees t, whose elements are in a separate piece of memory of arena t->arena: any later use of it
 * or of its views is refused. The arena uses the memory of its elements again, if it is at least
 * EG_SPARE_LEAST bytes. */
void eg__tensor_free(eg_tensor *t);
/* Returns `bytes` bytes of memory that was given back; NULL if no piece of it is large enough. */
void *eg__spare_take(eg__arena *, size_t bytes);
/* Adds a chunk with room for a tensor header; false after the error "out of memory". */
bool eg__nodes_chunk(eg__arena *);
static inline eg_ctx *eg__here(const eg_ctx *cx)
{
    eg_ctx *self = (eg_ctx *)(uintptr_t)cx;
    return cx && cx->family ? eg__child_at_work(self) : self;
}
static inline eg__arena *eg__top(eg_ctx *cx) { return eg__here(cx)->top; }
/* Returns memory of the arena, aligned as eg__alloc does; NULL after the error "out of memory". */
static inline void *eg__alloc_in(eg__arena *a, size_t bytes)
{
#if EG_DEBUG_ALLOC
    if (a->fixed)
#endif
    {
        void *again = a->spare && bytes >= EG_SPARE_LEAST ? eg__spare_take(a, bytes) : NULL;
        if (again) return again;
        eg__chunk *c = a->data;
        const size_t align = bytes >= EG_ALIGN ? EG_ALIGN : 16,
                     at = c ? (c->used + align - 1) & -align : 0;
        if (c && at <= c->cap && bytes <= c->cap - at) {
            a->cx->use.used += at + bytes - c->used;
            c->used = at + bytes;
            return eg__chunk_memory(c) + at;
        }
    }
    return eg__alloc_chunk(a, bytes);
}
/* Returns a new tensor header that is live and numbered, with all other members 0; NULL after the
 * error "out of memory". */
static inline eg_tensor *eg__tensor_in(eg__arena *a)
{
    if ((!a->nodes || a->nodes->cap - a->nodes->used < sizeof(eg_tensor)) && !eg__nodes_chunk(a))
        return NULL;
    eg_tensor *t = (eg_tensor *)(void *)(eg__chunk_memory(a->nodes) + a->nodes->used);
    a->nodes->used += sizeof *t;
    *t =
        (eg_tensor){ .live = EG_LIVE, .cx = a->cx, .seq = ++a->cx->seq, .st = &t->own, .arena = a };
    t->own.of = t;
    return t;
}
void eg__text(uintptr_t *start, uintptr_t *size); /* core/caller.c */
/* True if `at` is an address in the library's code; false if the library does not know where its
 * code is. */
static inline bool eg__is_library(const eg_ctx *cx, uintptr_t at)
{
    return at - cx->text < cx->text_size;
}
/* Returns the return address of the user's call; NULL if the frames cannot be followed. */
void *eg__caller(const eg_ctx *);
#include "core/plans.h"
#endif
