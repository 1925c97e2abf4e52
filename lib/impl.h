/* impl.h: what the folders of lib/ know of each other. Nothing calls upward: core < tensor < notation < einsum < ops < autograd.
 * lib/nn, lib/train and lib/io do not include this file: they use what a user could use.
 * Names: eg__file_thing lives in file.c. */
#ifndef EG_IMPL_H
#define EG_IMPL_H
#if HAVE_CONFIG_H
#include <config.h>
#endif
#include <eingrad/core.h>
#include <eingrad/grad.h>
#include <stdarg.h>

/* Loops over numbers are compiled for three levels of x86-64 where the compiler can; the order of their sums does not depend on it. */
#if HAVE_TARGET_CLONES
#define EG_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define EG_CLONES
#endif

/* -- core/context.c: errors, scopes, memory --------------------------------------------------------------------------------- */
typedef struct eg_storage { void *base; size_t bytes; uint64_t version; } eg_storage;   /* shared by the views of one tensor */
enum { EG_LIVE = 0x5eed, EG_DEAD = 0xdead };

struct eg_tensor {
    uint32_t live;              /* EG_LIVE until its scope is popped                                 */
    uint8_t  dtype, rank;
    bool     poison;
    int      count;             /* operands                                                          */
    uint32_t attr_size;
    eg_ctx  *cx;
    const eg_op *op;            /* the row that made it; NULL for a leaf                             */
    const void  *attr;
    eg_tensor  **in;            /* operands, then (as uint64_t) the versions they had: tape.c     */
    eg_storage  *st, own;       /* st points at the own one, or at that of the tensor it is a view of   */
    char    *data;              /* element 0 of the logical order                                    */
    int64_t *dim, *stride;      /* rank entries each; strides in elements, any sign, 0 for broadcast */
    uint64_t seq;               /* order of creation: operands have smaller numbers                  */
    uint64_t version;           /* of the own storage when it was made                               */
    uint64_t sweep; int64_t slot; /* scratch of sweeps                                               */
    struct eg__arena *home;
    void    *caller;            /* return address of the user's call that made it, or NULL: core/caller.c */
    struct eg__tag *tag;        /* name and hooks, or NULL: autograd/origin.c                        */
};

void *eg__alloc(eg_ctx *, size_t bytes);            /* 64-byte aligned, in the open scope, not zeroed; NULL after "out of memory" */
/* the context's reusable buffer number `which` (0..EG_SCRATCH-1); grows; NULL after "out of memory" */
void *eg__scratch(eg_ctx *, int which, size_t bytes);
enum { EG_SCRATCH = 8 };
bool  eg__failed(const eg_ctx *);
eg_tensor *eg__poison(eg_ctx *);                    /* of a NULL context: NULL                        */
uint64_t eg__draw(eg_ctx *);                        /* the number of this random draw; counts up      */
uint64_t eg__seed_of(const eg_ctx *);
bool  eg__recording(const eg_ctx *);
int   eg__team(eg_ctx *, int64_t work, int64_t grain); /* threads worth using for `work` items, of which `grain` take 15 µs */
typedef void eg_piece(void *user, int64_t piece, int thread); /* thread: 0 ≤ thread < team, no two at once */
/* each piece once, in any order, on up to `team` threads; nested: alone */
void  eg__parallel(eg_ctx *, int team, int64_t pieces, eg_piece *, void *user);
eg_ctx *eg__context_of(int count, eg_tensor *const *xs);     /* of the first operand that has one     */
bool  eg__check(const char *who, eg_tensor *x); /* true if x can be used; else NULL/poison/dead: recorded where a context can be found */
bool  eg__check_all(eg_ctx *, const char *who, int count, eg_tensor *const *xs);
/* eg_apply of operands that eg__check_all has seen */
eg_tensor *eg__apply(eg_ctx *, const eg_op *, const void *attr, size_t attr_size, int count, eg_tensor *const *);
double eg__opt(double given, double otherwise);     /* 0 → otherwise, EG_OFF → 0                      */

/* -- core/random.c: Philox 4x32-10 (Salmon et al. 2011), keyed by seed and draw, counted by the logical index ---------------- */
void eg__philox(uint64_t seed, uint64_t draw, uint64_t index, uint32_t out[4]);
double eg__unit(uint64_t seed, uint64_t draw, uint64_t index);  /* [0, 1), 53 bits                    */

/* -- tensor/tensor.c: making tensors ------------------------------------------------------------------------------------------ */
enum { EG_DTYPES = EG_C128 + 1 };                    /* tables by dtype have as many entries           */
extern const uint8_t eg__width[];                   /* bytes of a dtype                               */
static inline bool eg__is_float(int dtype) { return dtype == EG_F32 || dtype == EG_F64; }
static inline bool eg__is_inexact(int dtype) { return eg__is_float(dtype) || dtype == EG_C128; }  /* NumPy's word */
static inline bool eg__is_int(int dtype)   { return dtype == EG_I32 || dtype == EG_I64; }
eg_tensor *eg__new(eg_ctx *, eg_dtype, int rank, const int64_t *dims);       /* a leaf with storage, not filled; NULL after an error */
eg_tensor *eg__zeros(eg_ctx *, eg_dtype, int rank, const int64_t *dims);     /* … filled with 0       */
bool eg__shape(eg_tensor *y, eg_dtype, int rank, const int64_t *dims);       /* in a row's shape(): y is row-major */
bool eg__shape_like(eg_tensor *y, eg_dtype, const eg_tensor *x);             /* x's shape, and its layout where x is dense (permuted too) */
bool eg__shape_strided(eg_tensor *y, eg_dtype, int rank, const int64_t *dims, const int *order); /* stored with axis order[0] outermost */
/* as another result had it: no check */
bool eg__shape_known(eg_tensor *y, eg_dtype, int rank, const int64_t *dims, const int64_t *strides);
/* shares x's storage; the row has no forward */
bool eg__shape_view(eg_tensor *y, const eg_tensor *x, int rank, const int64_t *dims, const int64_t *strides, int64_t offset);
void eg__row_major(int rank, const int64_t *dims, int64_t *strides);
int64_t eg__count(int rank, const int64_t *dims);
/* rank in range, sizes ≥ 0, bytes < 2^63; else one sentence that names who */
bool eg__sizes_fit(eg_ctx *, const char *who, eg_dtype, int rank, const int64_t *dims);
bool eg__same_shape(const eg_tensor *a, const eg_tensor *b);
const char *eg__dims_text(const eg_tensor *x, char *buffer, size_t room);    /* "(10, 2, 8, 64)"      */
void eg__copy(eg_tensor *target, const eg_tensor *source);  /* equal shapes, any strides, any dtypes (converted as C does) */
void eg__fill(eg_tensor *target, double value);
eg_tensor *eg__alias(eg_tensor *x, int rank, const int64_t *dims, const int64_t *strides, int64_t offset); /* an unrecorded view (a leaf) */
eg_tensor *eg__part(eg_tensor *z, int part); /* the real (0) or imaginary (1) parts of a c128 tensor as an unrecorded f64 view */
bool eg__target(const char *who, eg_tensor *x);      /* may x be written element by element? else a message (read.c) */
bool eg__overlap(const eg_tensor *a, const eg_tensor *b);   /* may they share elements? by the stretch of memory each reaches (read.c) */
bool eg__give_storage(eg_tensor *y);                /* if it has none yet: memory for its elements, not filled */

/* -- tensor/loop.c: one pass over up to five operands of one shape, any strides ------------------------------------------------ */
typedef void eg_inner(int64_t n, char *const *p, const int64_t *step, const void *user);    /* p[0] is the result; steps in bytes */
/* axes merged and ordered by x[0]; threads where no operand but 0 is written and 0 has no zero stride */
void eg__loop(eg_ctx *, int operands, const eg_tensor *const *x, eg_inner *, const void *user);
/* the same where an element costs `work` additions; 0: one thread */
void eg__loop_work(eg_ctx *, int operands, const eg_tensor *const *x, eg_inner *, const void *user, int64_t work);


/* -- tensor/turn.c: dst[y·ds + x] = src[x·ss + y] for x < nx, y < ny; elements of 4 or 8 bytes ---------------------------------- */
enum { EG_FAR = 12 << 20 };                         /* a result of more bytes goes past the caches */
void eg__turn(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss, void *dst, int64_t ds, bool far);
/* as without AVX-512: for little */
void eg__turn_narrow(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss, void *dst, int64_t ds);
void eg__stream(void *to, const void *from, size_t bytes);  /* a copy past the caches; after the last one eg__streamed */
void eg__streamed(void);
/* dst[r·ds + i] = src[r·ss + 2i] */
void eg__halve(size_t width, int64_t n, int64_t rows, const void *src, int64_t ss, void *dst, int64_t ds);

/* -- tensor/fold.c (floats) ---------------------------------------------------------------------------------------------------- */
void eg__add_to(eg_tensor *target, const eg_tensor *source);    /* target += source; equal shapes, any strides   */

/* -- tensor/view.c: views are affine index maps; the adjoint of a view is `embed`, and the adjoint of embed is the view --------- */
int eg__axis(const char *who, eg_tensor *x, int axis);  /* 0 … rank − 1; −1 is the last; −1 after a message       */
/* did a view that leaves elements of its operand out make t? */
bool eg__view_selects(const eg_tensor *t);
/* True if a view made t (eg__reshape_on: a reshape that is a view of x too), and x has become what
 * t shows of it; dim and stride are room for that. */
bool eg__view_on(const eg_tensor *t, eg_tensor *x, int64_t *dim, int64_t *stride);
bool eg__reshape_on(const eg_tensor *t, eg_tensor *x, int64_t *dim, int64_t *stride);
/* target += g, where target may show an element more than once */
void eg__add_repeated(eg_tensor *target, const eg_tensor *g);

/* -- ops/index.c ------------------------------------------------------------------------------- */
bool eg__at_made(const eg_tensor *t);                   /* did eg_at make t?          */
/* t's row on x and index */
eg_tensor *eg__at_again(const eg_tensor *t, eg_tensor *x, eg_tensor *index);
/* sum[…, index[…], …] += u[…] with t's attributes; false after a message */
bool eg__at_add(const eg_tensor *t, eg_tensor *sum, const eg_tensor *index, eg_tensor *u);

/* -- notation/notation.h holds the parser's interface; einsum/einsum.h the contraction's -------------------------------------- */

/* "ij,jk->ik" of what einsum made; NULL of others, or if there is no room */
const char *eg__einsum_text(const eg_tensor *y, char *out, size_t room);

/* -- ops/binary.c --------------------------------------------------------------------------------------------------------------- */
/* up to three operands, stretched to one shape by recorded views, then eg_apply */
eg_tensor *eg__broadcast(const eg_op *, int count, eg_tensor *const *xs);
eg_tensor *eg__tanh_slope(eg_tensor *a, eg_tensor *b);      /* a (1 − b²)  */
eg_tensor *eg__sigmoid_slope(eg_tensor *a, eg_tensor *b);   /* a b (1 − b) */
eg_tensor *eg__gelu_slope(eg_tensor *a, eg_tensor *b);      /* a times the slope of gelu at b; so the next two */
eg_tensor *eg__gelu_tanh_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__silu_slope(eg_tensor *a, eg_tensor *b);
/* in a row's shape(): laid out as the first operand from `first` on that repeats nothing; refuses mixed dtypes */
bool eg__shape_pair(eg_tensor *y, eg_dtype, int first);

/* -- autograd/replay.c ------------------------------------------------------------------------------------------------------------- */
/* *dy (f64, in the open scope) = the derivative of y along vs[k] of xs[k], by evaluating what was recorded between them again in c128.
 * False after an error, or with *unsupported set, and no error, to a row between them that cannot. xs and vs: floats of equal shapes.
 * y may be a gradient. Costs an evaluation of the recorded rows. */
bool eg__complex_step(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs, eg_tensor **dy, const eg_op **unsupported);
/* y in c128, where xs[k] has the c128 value zs[k]: what eg__complex_step does inside. NULL as above. */
eg_tensor *eg__evaluate_c128(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *zs, const eg_op **unsupported);

/* -- the table: each file of lib/ops ends in its rows; ops/table.c lists the files ---------------------------------------------- */
bool eg__in_table(const eg_op *);
#endif
