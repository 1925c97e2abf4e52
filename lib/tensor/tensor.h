/* tensor.h: making tensors, their layout, and applying a row to them. */
#ifndef EG_TENSOR_H
#define EG_TENSOR_H
#include "core/core.h"
#include "tensor/axes.h"
#include "tensor/epow.h"
#include "tensor/halves.h"
#include "tensor/lanes.h"

/* -- apply.c ---------------------------------------------------------------------------------- */
/* Returns the context of the first operand that has one; NULL after an error, which the thread
 * keeps. */
eg_ctx *eg__context_of(const char *who, int count, eg_tensor *const *xs);
/* True if x can be used; else records that it is NULL, dead, poison or of another context. */
bool eg__check_held(const char *who, eg_tensor *x);
/* … and its numbers can be had by the program now: no step is being captured. (read.c) */
bool eg__check_read(const char *who, eg_tensor *x);
/* … and computed with: its dtype is none that only holds numbers. */
bool eg__check(const char *who, eg_tensor *x);
bool eg__check_all(eg_ctx *, const char *who, int count, eg_tensor *const *xs);
bool eg__check_taken(eg_ctx *, const char *who, eg_takes, int count, eg_tensor *const *xs);
/* eg_apply of operands that eg__check_all has seen. `saved` is y->saved while the row's shape() and
 * forward() run and afterwards; NULL: nothing is saved yet. */
eg_tensor *eg__apply(eg_ctx *, const eg_op *, const void *attr, size_t attr_size, void *saved,
                     int count, eg_tensor *const *);
/* The versions of y's operands when y was made. */
static inline uint64_t *eg__versions(const eg_tensor *y)
{
    return (uint64_t *)(void *)(y->in + y->count);
}

/* -- copies.c: several tensors in one header ----------------------------------------------------
 */
/* True if x can be used and has no copies; else recorded. */
bool eg__check_single(const char *who, eg_tensor *x);
/* *found becomes the copies that the operands have; NULL: none. False after an error: they are of
 * two groups. */
bool eg__copies_of_all(eg_ctx *, const char *who, int count, eg_tensor *const *xs,
                       const eg_copies **found);
/* Calls forward for each copy of y. by_elements: each element of y is made of the same one of each
 * operand, so that one call will do. */
bool eg__copies_forward(eg_tensor *y, bool (*forward)(eg_tensor *), bool by_elements);
/* eg__new with copies (NULL: without). */
eg_tensor *eg__new_copies(eg_ctx *, const eg_copies *, eg_dtype, int rank, const int64_t *dims);
/* In forward(): the node with all copies, if y is its first one and all may be computed now, which
 * the row then says by eg__copies_done; else NULL. */
static inline eg_tensor *eg__copies_all(const eg_tensor *y)
{
    eg_tensor *all = y->cx->copy.of && !y->cx->copy.k ? y->cx->copy.all : NULL;
    return all && all->op == y->op && all->data == y->data ? all : NULL;
}
static inline void eg__copies_done(const eg_tensor *y) { y->cx->copy.all = NULL; }
/* Bytes from one copy of x to the next; 0: it has none, and all use it. */
static inline int64_t eg__copy_step(const eg_tensor *x) { return x->copies ? x->each : 0; }
/* Makes t, a header on the stack, show `count` copies of x along a first axis; dim: room for its
 * sizes and strides. */
void eg__copies_shown(eg_tensor *t, const eg_tensor *x, int64_t count, int64_t *dim);
/* The seed of the copy whose turn it is; `otherwise` where no row is at work on copies. */
uint64_t eg__copy_seed(const eg_ctx *, uint64_t otherwise);

/* -- capture.c: a step that is recorded while it runs, to be run again (eg_capture) -------------
 */
/* What writes to `to` (NULL: to nothing of the step's) and reads x, and is no row: an assignment, a
 * draw, a function of the program. False after an error. */
typedef bool eg_act(eg_ctx *, eg_tensor *to, int count, eg_tensor *const *x, void *arg);
/* Does it now, and in each run of the step that is captured, if one is, with copies of the `bytes`
 * of arg and headers of its own. draws: as eg_op.draws, of arg. */
bool eg__act(eg_ctx *, eg_act *, eg_tensor *to, int count, eg_tensor *const *x, void *arg,
             size_t bytes, size_t draws);
bool eg__copy_act(eg_tensor *to, eg_tensor *x); /* eg__copy as an act */
/* The numbers of x, a new leaf, are the same in each run. Where nothing is said of a leaf, the step
 * is refused if it reads it. */
void eg__made_once(eg_tensor *x);
/* In forward(): y's row reads x, which is not one of its operands. */
void eg__also_reads(eg_tensor *y, eg_tensor *x);
/* For apply.c and tensor.c: computes y and appends its row; memory for y's numbers. */
bool eg__capture_row(eg_tensor *y, bool (*forward)(eg_tensor *));
char *eg__capture_storage(eg_tensor *y);
/* For lanes.c: while a step is captured, y is about to be computed so. */
void eg__capture_lanes(const eg_tensor *y, const eg_lanes *);
/* eg_capture in the context that this thread computes in, which may be a child's. */
struct eg_captured *eg__captured_make(eg_ctx *, int (*step)(void *user, eg_tensor **out),
                                      void *user, int outputs);
/* The headers of its own that acts of the captured step have of x's numbers, so that they can be
 * moved to other memory between runs; NULL without memory. They end with the step. */
eg_tensor **eg__captured_headers(struct eg_captured *, const eg_tensor *x, int64_t *count);
/* True if an act of the last run, which may have ended with an error, has begun to write to x. */
bool eg__captured_wrote(const struct eg_captured *, const eg_tensor *x);
/* The number of the last item that writes to x; −1 if none does. */
int64_t eg__captured_last(const struct eg_captured *, const eg_tensor *x);
/* A run calls f(user, left) when, for each k from `left` on, the items up to until[k] are done. */
typedef struct eg_captured_watch {
    const int64_t *until; /* of each k, not rising: −1: before the first item */
    int left;             /* at first their count */
    void (*f)(void *user, int left);
    void *user;
} eg_captured_watch;
/* eg_captured_run; the watch may be NULL, and an error that it records ends the run. */
int eg__captured_run(struct eg_captured *, eg_captured_watch *);
/* For benchmarks: from now on runs compute nothing, and what is left of their time is that of the
 * list itself. Returns the number of rows and acts, and sets how many items are left of them where
 * passes are one. (captured.c) */
int64_t eg__captured_hollow(struct eg_captured *, int64_t *items);

/* -- borrow.c: a child's headers of its parent's tensors --------------------------------------- */
/* Opens a scope of the child that holds them until it is closed; a mark of NULL after an error. */
eg_mark eg__borrow_open(eg_ctx *child, bool (*check)(eg_ctx *, eg_tensor *, void *), void *user);
void eg__borrow_close(eg_ctx *child, eg_mark);
/* The same with headers that an owner of the child holds, across calls: goes on with those that
 * were kept. False, without an error, if a tensor that one of them shows is gone. */
bool eg__borrow_resume(eg_ctx *child, const eg__loans *kept,
                       bool (*check)(eg_ctx *, eg_tensor *, void *), void *user);
eg__loans eg__borrow_suspend(eg_ctx *child); /* what is kept for the next time */
/* Returns a header in the child's open loans that shows numbers of x's dtype and sizes, row-major;
 * its `data` is set by the caller. NULL after an error. */
eg_tensor *eg__borrow_like(eg_ctx *child, const eg_tensor *x);
/* Returns the child's header of x, a live tensor of its parent; NULL after an error. */
eg_tensor *eg__borrow(eg_ctx *child, eg_tensor *x);
/* Another one in the open scope, for what the call itself writes to. */
eg_tensor *eg__borrow_here(eg_ctx *child, const eg_tensor *x);
/* x itself, or the header of it of the context that this thread computes in; NULL after an error.
 */
static inline eg_tensor *eg__own(eg_tensor *x)
{
    eg_ctx *cx = eg__here(x->cx);
    return x->cx == cx ? x : eg__borrow(cx, x);
}
/* Returns xs itself where all are of cx; else a copy in the open scope, in which the child's
 * headers stand for tensors of its parent. NULL after an error. */
eg_tensor *const *eg__own_all(eg_ctx *cx, int count, eg_tensor *const *xs);

/* -- tensor.c: making tensors ----------------------------------------------------------------- */
extern const uint8_t eg__width[]; /* bytes of a dtype */
static inline bool eg__is_float(int dtype) { return dtype == EG_F32 || dtype == EG_F64; }
/* floats and complex numbers */
static inline bool eg__is_inexact(int dtype) { return eg__is_float(dtype) || dtype == EG_C128; }
static inline bool eg__is_int(int dtype) { return dtype == EG_I32 || dtype == EG_I64; }
static inline bool eg__is_half(int dtype) { return dtype == EG_F16 || dtype == EG_BF16; }
/* numbers are held in it and not computed with: f16, bf16, i8, u8 */
static inline bool eg__is_held(int dtype) { return dtype > EG_C128; }
/* Returns a leaf with storage, not filled; NULL after an error. */
eg_tensor *eg__new(eg_ctx *, eg_dtype, int rank, const int64_t *dims);
eg_tensor *eg__zeros(eg_ctx *, eg_dtype, int rank, const int64_t *dims); /* … filled with 0 */
/* The following are called in a row's shape(): they declare y, and return false after an error. */
/* y is row-major */
bool eg__shape(eg_tensor *y, eg_dtype, int rank, const int64_t *dims);
/* x's shape, and its layout where x is dense (permuted too) */
bool eg__shape_like(eg_tensor *y, eg_dtype, const eg_tensor *x);
/* stored with axis order[0] outermost */
bool eg__shape_strided(eg_tensor *y, eg_dtype, int rank, const int64_t *dims, const int *order);
/* as a result that was checked before */
bool eg__shape_known(eg_tensor *y, eg_dtype, int rank, const int64_t *dims, const int64_t *strides);
/* shares x's storage; the row has no forward */
bool eg__shape_view(eg_tensor *y, const eg_tensor *x, int rank, const int64_t *dims,
                    const int64_t *strides, int64_t offset);
/* laid out as the first operand from `first` on that repeats no element; refuses mixed dtypes */
bool eg__shape_pair(eg_tensor *y, eg_dtype, int first);
void eg__row_major(int rank, const int64_t *dims, int64_t *strides);
int64_t eg__count(int rank, const int64_t *dims);
/* True if x has a view of these sizes, of which it has as many elements. */
bool eg__view_exists(const eg_tensor *x, int rank, const int64_t *dims);
/* True if rank is in range, no size is negative, and the bytes are below 2^63; else records what is
 * not, in the name of who. */
bool eg__sizes_fit(eg_ctx *, const char *who, eg_dtype, int rank, const int64_t *dims);
bool eg__same_shape(const eg_tensor *a, const eg_tensor *b);
bool eg__has_sizes(const eg_tensor *x, int rank, const int64_t *sizes);
/* Write sizes, strides or places as Python's tuples: "(10, 2, 8, 64)", "(5,)", "()". Return
 * buffer. */
const char *eg__sizes_text(int rank, const int64_t *sizes, char *buffer, size_t room);
const char *eg__dims_text(const eg_tensor *x, char *buffer, size_t room); /* of x's sizes */
/* The number of the type nearest to v, of two the even one. (copy.c) */
double eg__nearest_f16(double);
double eg__nearest_bf16(double);
/* Copies n elements of `width` bytes; steps in bytes. */
void eg__move(int width, int64_t n, void *to, int64_t to_step, const void *from, int64_t from_step);
/* equal shapes, any strides, any dtypes (converted as C does) */
void eg__copy(eg_tensor *target, const eg_tensor *source);
void eg__fill(eg_tensor *target, double value);
/* an unrecorded view (a leaf) */
eg_tensor *eg__alias(eg_tensor *x, int rank, const int64_t *dims, const int64_t *strides,
                     int64_t offset);
/* the real (0) or imaginary (1) parts of a c128 tensor as an unrecorded f64 view */
eg_tensor *eg__part(eg_tensor *z, int part);
/* False, after recording it, if x lies in read-only memory or is only lent to a block. (read.c) */
bool eg__writable(const char *who, const eg_tensor *x);
/* True if x can be written element by element; else records which of its elements share a place.
 * (read.c) */
bool eg__target(const char *who, eg_tensor *x);
/* True if the row has its operands' numbers as they are: views and copies. (read.c) */
bool eg__only_moves(const eg_op *);
bool eg__reshape_forward(eg_tensor *y); /* (reshape.c) */
/* True if a and b may share elements: the stretches of memory that they reach overlap. (read.c) */
bool eg__overlap(const eg_tensor *a, const eg_tensor *b);
/* Gives y memory for its elements, not filled, if it has none yet. False after an error. */
bool eg__give_storage(eg_tensor *y);

/* -- axes.c: one pass over up to five operands of one shape, any strides ---------------------- */
/* p[0] is the result; steps in bytes */
typedef void eg_inner(int64_t n, char *const *p, const int64_t *step, const void *user);
/* Calls inner on runs of all operands, whose axes it orders by x[0] and merges. Several threads
 * where x[0] repeats no element, so inner may write to no other operand. */
void eg__loop(eg_ctx *, int operands, const eg_tensor *const *x, eg_inner *, const void *user);
/* the same where an element costs `work` additions; 0: one thread */
void eg__loop_work(eg_ctx *, int operands, const eg_tensor *const *x, eg_inner *, const void *user,
                   int64_t work);
/* Returns the number of elements, and sets the steps, if eg__loop makes one run of them from
 * x[k]->data on; else −1. */
int64_t eg__single_run(int operands, const eg_tensor *const *x, int64_t *step);

/* -- transpose.c: elements of 4 or 8 bytes ---------------------------------------------------- */
enum { EG_STREAM_BYTES = 12 << 20 }; /* results of more bytes are written past the caches */
/* dst[y·ds + x] = src[x·ss + y] for x < nx, y < ny. far: past the caches */
void eg__transpose(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss, void *dst,
                   int64_t ds, bool far);
/* The same by vectors of 16 bytes: faster for few elements. */
void eg__transpose_narrow(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss,
                          void *dst, int64_t ds);
/* Copies past the caches; call eg__stream_end after the last one. */
void eg__stream(void *to, const void *from, size_t bytes);
void eg__stream_end(void);
/* dst[r·ds + i] = src[r·ss + 2i] */
void eg__take_every_second(size_t width, int64_t n, int64_t rows, const void *src, int64_t ss,
                           void *dst, int64_t ds);

/* -- add.c: what the sums of cotangents and of tangents need ---------------------------------- */
extern const eg_op eg__add_op;                  /* y = a + b of equal shapes */
eg_tensor *eg__add(eg_tensor *a, eg_tensor *b); /* recorded; equal shapes */
/* target += source; equal shapes, any strides */
void eg__add_to(eg_tensor *target, const eg_tensor *source);
bool eg__add_act(eg_tensor *target, eg_tensor *source); /* … as an act */
/* target *= c, of any strides; f32, f64, i64 and c128 */
void eg__scale_by(eg_tensor *target, double c);
bool eg__scale_act(eg_tensor *target, double c); /* … as an act */

/* -- view.c: views are affine index maps; the adjoint of a view is `embed`, and the adjoint of
 * embed is the view */
/* Returns the axis, 0 … rank − 1; negative numbers count from the last. −1 after an error. */
int eg__axis(const char *who, eg_tensor *x, int axis);
/* An axis of x as the caller of an operation named it: by number, or by a letter in the brackets of
 * a string (eg__focus_named). What an operation refuses is told in the caller's terms. */
typedef struct eg_named_axis {
    const char *who;
    eg_tensor *x;
    int axis; /* 0 … rank − 1 */
    /* records a sentence with a caret under the letter; NULL: the axis was given by number */
    eg_tensor *(*refuse)(const struct eg_named_axis *, eg_code, const char *sentence);
    const char *name; /* the letter or name, of `length` bytes */
    int length;
    const void *bound; /* the bound string, for refuse */
    int item;          /* which of its items */
} eg_named_axis;
/* True if x can be used and k is the number of one of its axes; else records why not. */
bool eg__axis_numbered(eg_named_axis *, const char *who, eg_tensor *x, int k);
/* "axis 1 of (2, 5)" or "axis 'l' of size 5" */
const char *eg__axis_text(const eg_named_axis *, char *buffer, size_t room);
eg_tensor *eg__refuse_axis(const eg_named_axis *, eg_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The public functions of these names, of an axis that is known to be one. */
eg_tensor *eg__select(const eg_named_axis *, int64_t index);
eg_tensor *eg__slice(const eg_named_axis *, int64_t start, int64_t stop, int64_t step);
int eg__split(const eg_named_axis *, int count, const int64_t *sizes, eg_tensor **parts);
int eg__unbind(const eg_named_axis *, int count, eg_tensor **parts);
eg_tensor *eg__unfold(const eg_named_axis *, int64_t size, int64_t step);
/* True if t was made by a view that leaves elements of its operand out. */
bool eg__view_selects(const eg_tensor *t);
/* True if t is a view of its operand and x has become the same view of x; else x is as it was. dim
 * and stride are room for EG_RANK_MAX of each. Records nothing. */
bool eg__view_on(const eg_tensor *t, eg_tensor *x, int64_t *dim, int64_t *stride);
/* target += g, where target may show an element more than once */
void eg__add_repeated(eg_tensor *target, const eg_tensor *g);
#endif
