/* tensor.h: making tensors, their layout, and applying an operation to them. */
#ifndef EG_TENSOR_H
#define EG_TENSOR_H
#include "core/core.h"
#include "tensor/axes.h"
#include "tensor/epow.h"
#include "tensor/halves.h"
#include "tensor/lanes.h"

/* -- apply.c ---------------------------------------------------------------------------------- */
/* Returns the context of the first operand that has one; NULL after an error, which is kept for the
 * thread. */
eg_ctx *eg__context_of(const char *who, int count, eg_tensor *const *xs);
/* True if x can be used; else records an error: x is NULL, dead, poison or of another context. */
bool eg__check_usable(const char *who, eg_tensor *x);
/* As eg__check_usable; also, the program may read x's elements now, that is, no step is being
 * captured. (access.c) */
bool eg__check_read(const char *who, eg_tensor *x);
/* As eg__check_usable; also, operations can compute with x, that is, eg__is_storage is false for
 * its dtype. */
bool eg__check(const char *who, eg_tensor *x);
bool eg__check_all(eg_ctx *, const char *who, int count, eg_tensor *const *xs);
/* As eg__check_taken for one operand, which messages call not by a number but by the option that
 * gives it, "attention: .keep", or with a name, "attention: 'doc' of .with". name may be NULL. */
bool eg__check_option(eg_ctx *, const char *who, const char *option, const char *name, eg_takes,
                      eg_tensor *x);
bool eg__check_taken(eg_ctx *, const char *who, eg_takes, int count, eg_tensor *const *xs);
/* eg_apply for operands that have passed eg__check_all. `saved` is the value of y->saved while the
 * operation's shape() and forward() run, and afterwards; NULL: nothing is saved yet. */
eg_tensor *eg__apply(eg_ctx *, const eg_op *, const void *attr, size_t attr_size, void *saved,
                     int count, eg_tensor *const *);
/* Returns copy k of y as a node of y's operation on `operands`, which are copy k of y's operands.
 * Its elements are y's, and so is what forward() has saved for this copy. */
eg_tensor *eg__apply_copy(const eg_tensor *y, int64_t k, eg_tensor *const *operands);
/* eg_node_save, for operations that save the same for all copies, or keep copies apart. */
void *eg__node_save(eg_tensor *y, size_t bytes);
/* Returns a copy of what eg_node_save returned; NULL after an error. */
void *eg__node_save_again(eg_tensor *y, const void *saved);
/* True if a result of these operands has to be made by eg__apply: the context records, captures,
 * checks or flushes, cx is a child, or an operand has copies. */
bool eg__needs_node(const eg_ctx *, int count, eg_tensor *const *);
/* Returns memory of the arena for sizes and strides, and *data for `bytes` bytes of elements. They
 * are in one block, so that an owner of one tensor has one chunk; but elements that a scope may
 * allocate again (eg__tensor_free) are in a block of their own. NULL after an error. */
int64_t *eg__tensor_block(eg__arena *, int rank, size_t bytes, char **data);
/* Returns the result of an operation that is not recorded, as eg__apply would. The caller computes
 * its elements. NULL after an error. */
eg_tensor *eg__new_unrecorded(eg_ctx *, eg_dtype, int rank, const int64_t *dims,
                              const int64_t *strides);
/* Returns the versions that y's operands had when y was made. */
static inline uint64_t *eg__versions(const eg_tensor *y)
{
    return (uint64_t *)(void *)(y->in + y->count);
}

/* -- copies.c: several tensors in one header --------------------------------------------------- */
/* True if x can be used and has no copies; else records an error. */
bool eg__check_single(const char *who, eg_tensor *x);
/* Sets *found to the group of copies that the operands have; NULL if no operand has copies. False,
 * after an error, if operands have copies of two groups. */
bool eg__copies_of_all(eg_ctx *, const char *who, int count, eg_tensor *const *xs,
                       const eg_copies **found);
/* Calls forward for each copy of y. If the operation saves memory by eg_node_save, each copy gets
 * memory of its own, and y->saved becomes the array of these. With by_elements each element of y is
 * computed from the elements of the operands at the same indices, so that one call can compute all
 * copies. False after an error. */
bool eg__copies_forward(eg_tensor *y, bool (*forward)(eg_tensor *), bool by_elements);
/* eg__new, with copies if they are not NULL. */
eg_tensor *eg__new_copies(eg_ctx *, const eg_copies *, eg_dtype, int rank, const int64_t *dims);
/* eg_keep, of tensors with copies too, in the layout of a result of x's shape (eg__shape_like) */
eg_tensor *eg__keep_like(eg_tensor *x);
/* Called in forward(). Returns the node with all copies if y is its first copy and all may be
 * computed now; the operation must then call eg__copies_done. Else returns NULL. */
static inline eg_tensor *eg__copies_all(const eg_tensor *y)
{
    eg_tensor *all = y->cx->copy.of && !y->cx->copy.k ? y->cx->copy.all : NULL;
    return all && all->op == y->op && all->data == y->data ? all : NULL;
}
static inline void eg__copies_done(const eg_tensor *y) { y->cx->copy.all = NULL; }
/* A node and its operands with their copies as an additional outermost axis. */
enum { EG_COPIES_OPERANDS = 4 };
typedef struct eg_copies_axis {
    eg_tensor y, x[EG_COPIES_OPERANDS], *in[EG_COPIES_OPERANDS];
    int64_t dims[1 + EG_COPIES_OPERANDS][2 * EG_RANK_MAX];
} eg_copies_axis;
/* Called in forward() of an operation that computes each row of numbers along the last axes
 * separately. Returns the node that forward() has to compute: y, or, if y is the first of several
 * copies, a node in *a in which the copies are an additional outer axis, so that all are computed
 * at once. */
eg_tensor *eg__copies_axis(eg_copies_axis *a, eg_tensor *y);
/* Returns the distance in bytes from one copy of x to the next; 0 if x has no copies, since all
 * then use the same elements. */
static inline int64_t eg__copy_step(const eg_tensor *x) { return x->copies ? x->each : 0; }
/* Makes the header t, on the stack, a view of `count` copies of x along a new first axis. dim has
 * room for the sizes and strides. */
void eg__copies_shown(eg_tensor *t, const eg_tensor *x, int64_t count, int64_t *dim);
/* Returns the seed of that copy of `of` which is being computed; `otherwise` if that is NULL. While
 * forward() of another operation applies this one to a single copy, it is the seed of that copy. */
uint64_t eg__copy_seed(const eg_ctx *, const eg_copies *of, uint64_t otherwise);

/* -- capture.c: a step that is recorded while it runs, to be run again (eg_capture) ------------ */
/* An act: a function that reads x, may write to `to` (NULL: it writes to no tensor of the step),
 * and is not an operation, such as an assignment, a draw or a function of the program. Returns
 * false after an error. */
typedef bool eg_act(eg_ctx *, eg_tensor *to, int count, eg_tensor *const *x, void *arg);
/* Calls the act now. If a step is being captured, each run calls it again, with a copy of the
 * `bytes` bytes of arg and with its own headers. draws: as eg_op.draws, for arg. False after an
 * error. */
bool eg__act(eg_ctx *, eg_act *, eg_tensor *to, int count, eg_tensor *const *x, void *arg,
             size_t bytes, size_t draws);
bool eg__copy_act(eg_tensor *to, eg_tensor *x); /* eg__copy as an act */
/* Marks the elements of x, a new leaf, as the same in each run. A captured step may not read a leaf
 * without this mark. */
void eg__made_once(eg_tensor *x);
/* Called in forward(): y's operation reads x, which is not one of its operands. */
void eg__also_reads(eg_tensor *y, eg_tensor *x);
/* For a backward pass, while a step is captured: eg__captured_before is true if t was made before
 * the step. If it was, and a rule reads x, version `had`, each run is refused if x has changed;
 * `what` names x in the message. eg__capture_history returns false after an error. */
bool eg__captured_before(const eg_ctx *, const eg_tensor *t);
bool eg__capture_history(eg_ctx *, eg_tensor *x, uint64_t had, const char *what);
/* For apply.c and tensor.c, while a step is captured: eg__capture_op computes y and appends its
 * operation; eg__capture_storage returns memory for y's elements (NULL after an error). */
bool eg__capture_op(eg_tensor *y, bool (*forward)(eg_tensor *));
char *eg__capture_storage(eg_tensor *y);
/* For lanes.c, while a step is captured: y is about to be computed by this kernel. */
void eg__capture_lanes(const eg_tensor *y, const eg_lanes *);
/* eg_capture in the context that this thread uses, which may be a child. */
struct eg_captured *eg__captured_make(eg_ctx *, int (*step)(void *user, eg_tensor **out),
                                      void *user, int outputs);
/* Returns the headers with which acts of the captured step refer to x's elements, so that their
 * address can be changed between runs; NULL without memory. They are valid until the step is
 * closed. */
eg_tensor **eg__captured_headers(struct eg_captured *, const eg_tensor *x, int64_t *count);
/* True if an act of the last run, which may have failed, has begun to write to x. */
bool eg__captured_wrote(const struct eg_captured *, const eg_tensor *x);
/* Returns the number of the last item that writes to x; −1 if there is none. */
int64_t eg__captured_last(const struct eg_captured *, const eg_tensor *x);
/* An observer of a run. When the items up to until[k] are done for each k ≥ `left`, f(user, left)
 * is called. */
typedef struct eg_captured_watch {
    const int64_t *until; /* for each k, not increasing; −1: before the first item */
    int left;             /* the number of k that are still to come; all of them at first */
    void (*f)(void *user, int left);
    void *user;
} eg_captured_watch;
/* eg_captured_run with a watch, which may be NULL; an error that the watch records ends the run. */
int eg__captured_run(struct eg_captured *, eg_captured_watch *);
/* For benchmarks: makes later runs compute nothing, to measure the time of the list itself. Returns
 * the number of operations and acts; sets *items to the number of items, which is smaller if there
 * are passes. (captured.c) */
int64_t eg__captured_without_kernels(struct eg_captured *, int64_t *items);

/* -- borrow.c: a child's headers of its parent's tensors --------------------------------------- */
/* Opens a scope of the child that holds these headers until it is closed. The mark is NULL after an
 * error. */
eg_mark eg__borrow_open(eg_ctx *child, bool (*check)(eg_ctx *, eg_tensor *, void *), void *user);
void eg__borrow_close(eg_ctx *child, eg_mark);
/* As eg__borrow_open, with headers in an owner of the child that are kept from call to call:
 * continues with those of the last call. False, without an error, if one of their tensors no longer
 * exists. */
bool eg__borrow_resume(eg_ctx *child, const eg__loans *kept,
                       bool (*check)(eg_ctx *, eg_tensor *, void *), void *user);
eg__loans eg__borrow_suspend(eg_ctx *child); /* returns the value that eg__borrow_resume takes */
/* Returns a header in the child's open table for elements with x's dtype and sizes, row-major. The
 * caller sets its `data`. NULL after an error. */
eg_tensor *eg__borrow_like(eg_ctx *child, const eg_tensor *x);
/* Returns the child's header of x, a live tensor of its parent; NULL after an error. */
eg_tensor *eg__borrow(eg_ctx *child, eg_tensor *x);
/* As eg__borrow, with a header in the open scope, for memory that the call itself writes to. */
eg_tensor *eg__borrow_here(eg_ctx *child, const eg_tensor *x);
/* Returns x, or the header of x in the context that this thread uses; NULL after an error. */
static inline eg_tensor *eg__own(eg_tensor *x)
{
    eg_ctx *cx = eg__here(x->cx);
    return x->cx == cx ? x : eg__borrow(cx, x);
}
/* Returns xs if all are tensors of cx; else a copy in the open scope in which the child's headers
 * replace the parent's tensors. NULL after an error. */
eg_tensor *const *eg__own_all(eg_ctx *cx, int count, eg_tensor *const *xs);

/* -- tensor.c: making tensors ----------------------------------------------------------------- */
extern const uint8_t eg__width[]; /* bytes of an element of each dtype */
static inline bool eg__is_float(int dtype) { return dtype == EG_F32 || dtype == EG_F64; }
/* floats and complex numbers */
static inline bool eg__is_inexact(int dtype) { return eg__is_float(dtype) || dtype == EG_C128; }
static inline bool eg__is_int(int dtype) { return dtype == EG_I32 || dtype == EG_I64; }
static inline bool eg__is_half(int dtype) { return dtype == EG_F16 || dtype == EG_BF16; }
/* The dtypes to which the messages on a storage type propose to cast. */
static inline const char *eg__cast_first(int dtype)
{
    return eg__is_half(dtype) ? "f32" : "i32 or f32";
}
/* True for the dtypes f16, bf16, i8 and u8, which store values but which no operation computes
 * with. */
static inline bool eg__is_storage(int dtype) { return dtype > EG_C128; }
/* Returns a leaf with storage, not filled; NULL after an error. */
eg_tensor *eg__new(eg_ctx *, eg_dtype, int rank, const int64_t *dims);
/* eg__new, filled with 0 */
eg_tensor *eg__zeros(eg_ctx *, eg_dtype, int rank, const int64_t *dims);
/* The following functions are called in an operation's shape(). They set y's shape and layout, and
 * return false after an error. */
/* row-major */
bool eg__shape(eg_tensor *y, eg_dtype, int rank, const int64_t *dims);
/* its axes in memory in the order of those of x, which has the same rank */
bool eg__shape_ordered(eg_tensor *y, eg_dtype, int rank, const int64_t *dims, const eg_tensor *x);
/* x's shape, and its layout if x is dense (which may be permuted) */
bool eg__shape_like(eg_tensor *y, eg_dtype, const eg_tensor *x);
/* axis order[0] is the outermost in memory */
bool eg__shape_strided(eg_tensor *y, eg_dtype, int rank, const int64_t *dims, const int *order);
/* the shape and strides of a result that was checked before */
bool eg__shape_known(eg_tensor *y, eg_dtype, int rank, const int64_t *dims, const int64_t *strides);
/* a view of x's storage; the operation has no forward() */
bool eg__shape_view(eg_tensor *y, const eg_tensor *x, int rank, const int64_t *dims,
                    const int64_t *strides, int64_t offset);
/* the layout of the first operand, from `first` on, that repeats no element; dtypes must be
 * equal */
bool eg__shape_pair(eg_tensor *y, eg_dtype, int first);
void eg__row_major(int rank, const int64_t *dims, int64_t *strides);
/* Returns the number of elements. */
static inline int64_t eg__count(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int k = 0; k < rank; k++) n *= dims[k];
    return n;
}
/* True if x, which has as many elements, has a view of these sizes. */
bool eg__view_exists(const eg_tensor *x, int rank, const int64_t *dims);
/* True if rank is in range, no size is negative, and the bytes are below 2^63; else records an
 * error that begins with `who`. */
bool eg__sizes_fit(eg_ctx *, const char *who, eg_dtype, int rank, const int64_t *dims);
bool eg__same_shape(const eg_tensor *a, const eg_tensor *b);
/* Sorts the axes of x whose size is not 1, except for axis `but`, by increasing |stride|, axes of
 * equal |stride| by their number. Returns how many axes there are. */
int eg__axes_by_step(const eg_tensor *x, int but, int *order);
bool eg__has_sizes(const eg_tensor *x, int rank, const int64_t *sizes);
/* Each of the two writes sizes, strides or indices like Python's tuples, "(10, 2, 8, 64)", "(5,)",
 * "()", and returns buffer. */
const char *eg__sizes_text(int rank, const int64_t *sizes, char *buffer, size_t size);
const char *eg__dims_text(const eg_tensor *x, char *buffer, size_t size); /* of x's sizes */
/* Return the f16 or bf16 value nearest to v; if two are equally near, the one with an even
 * significand. (copy.c) */
double eg__nearest_f16(double);
double eg__nearest_bf16(double);
/* Copies n elements of `width` bytes; steps in bytes. */
void eg__move(int width, int64_t n, void *to, int64_t to_step, const void *from, int64_t from_step);
/* Copies pieces of `bytes` bytes each, at most EG_PIECE_BYTES; steps in bytes. */
enum { EG_PIECE_BYTES = 256 };
void eg__move_pieces(int64_t pieces, int64_t bytes, void *to, int64_t to_step, const void *from,
                     int64_t from_step);
/* Writes `rows` rows of n copies of an element; elements are `step` bytes apart. Writes up to
 * EG_SPREAD_BYTES more bytes after the last row. */
enum { EG_SPREAD_BYTES = 64 };
void eg__spread(int width, int64_t rows, int64_t n, void *to, const void *from, int64_t step);
/* Copies between equal shapes with any strides and dtypes; values are converted as in C. */
void eg__copy(eg_tensor *target, const eg_tensor *source);
void eg__fill(eg_tensor *target, double value);
/* True if an integer dtype has the number `value` without its fraction; true for other dtypes. */
bool eg__holds(eg_dtype, double value);
/* Records the error of `who` that the dtype does not hold the value. Returns true if it does. */
bool eg__check_holds(eg_ctx *, const char *who, eg_dtype, double value);
/* Returns a view without history (a leaf). */
eg_tensor *eg__alias(eg_tensor *x, int rank, const int64_t *dims, const int64_t *strides,
                     int64_t offset);
/* Returns the real (0) or imaginary (1) parts of a c128 tensor as an f64 view without history. */
eg_tensor *eg__part(eg_tensor *z, int part);
/* True if x can be written element by element; else records an error that names elements which
 * share memory. (access.c) */
bool eg__target(const char *who, eg_tensor *x);
/* True if the elements of the operation's result are those of its operand: views and copies.
 * (convert.c) */
bool eg__only_moves(const eg_op *);
bool eg__reshape_forward(eg_tensor *y); /* (reshape.c) */
/* True if a and b may share elements: the ranges of memory that they reach overlap. (access.c) */
bool eg__overlap(const eg_tensor *a, const eg_tensor *b);
/* Allocates memory for y's elements, not filled, if it has none yet. False after an error. */
bool eg__give_storage(eg_tensor *y);

/* -- create.c -------------------------------------------------------------------------------- */
/* Makes a leaf that is not filled. Returns false, with *y the poison tensor, after an error that
 * names the function `who`. */
bool eg__leaf(eg_tensor **y, eg_ctx *, const char *who, eg_dtype, int rank, const int64_t *dims);

/* -- axes.c: one pass over up to five operands of one shape, any strides ---------------------- */
/* p[0] is the result; steps in bytes */
typedef void eg_inner(int64_t n, char *const *p, const int64_t *step, const void *user);
/* Calls inner for runs of all operands. Orders the axes by x[0] and merges them. Uses several
 * threads if x[0] repeats no element, so inner must write to no other operand. */
void eg__loop(eg_ctx *, int operands, const eg_tensor *const *x, eg_inner *, const void *user);
/* As eg__loop, if one element takes as long as `work` additions; 0: one thread. */
void eg__loop_work(eg_ctx *, int operands, const eg_tensor *const *x, eg_inner *, const void *user,
                   int64_t work);
/* A plane of `rows` runs of n elements: of operand k, row_step[k] and step[k] bytes apart */
typedef void eg_plane(int64_t rows, int64_t n, char *const *p, const int64_t *row_step,
                      const int64_t *step, const void *user);
/* As eg__loop, but where runs are short, or an operand is contiguous along another axis than x[0],
 * calls `plane` for all runs along one outer axis. x[0] repeats no element. */
void eg__loop_planes(eg_ctx *, int operands, const eg_tensor *const *x, eg_inner *, eg_plane *plane,
                     const void *user);
/* As eg__loop_work, but where runs are short, calls `plane` for the last two axes. The runs of a
 * plane, and the planes, have the order in which eg__loop_work would call `inner`. */
void eg__loop_rows(eg_ctx *, int operands, const eg_tensor *const *x, eg_inner *, eg_plane *plane,
                   const void *user, int64_t work);
/* If eg__loop would make a single run from x[k]->data on, returns its number of elements and sets
 * the steps; else returns −1. */
int64_t eg__single_run(int operands, const eg_tensor *const *x, int64_t *step);

/* -- transpose.c: elements of 4 or 8 bytes ---------------------------------------------------- */
/* Prefetches `rows` rows of `bytes` bytes, `apart` bytes apart. A processor prefetches consecutive
 * lines by itself, but often not the next row. */
static inline void eg__prefetch_rows(const char *row, int64_t rows, int64_t apart, int64_t bytes)
{
    for (; rows > 0; rows--, row += apart)
        for (int64_t i = 0; i < bytes; i += EG_LINE) __builtin_prefetch(row + i, 0, 3);
}
enum { EG_STREAM_BYTES = 12 << 20 }; /* larger results are written with non-temporal stores */
/* dst[y·ds + x] = src[x·ss + y] for x < nx, y < ny. stream: with non-temporal stores. */
void eg__transpose(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss, void *dst,
                   int64_t ds, bool stream);
/* As eg__transpose, with vectors of 16 bytes, which is faster for few elements. */
void eg__transpose_narrow(size_t width, int64_t nx, int64_t ny, const void *src, int64_t ss,
                          void *dst, int64_t ds);
/* Copies with non-temporal stores. Call eg__stream_end after the last copy. */
void eg__stream(void *to, const void *from, size_t bytes);
void eg__stream_end(void);
/* dst[r·ds + i] = src[r·ss + 2i] */
void eg__take_every_second(size_t width, int64_t n, int64_t rows, const void *src, int64_t ss,
                           void *dst, int64_t ds);

/* -- add.c: sums of cotangents and of tangents ------------------------------------------------- */
extern const eg_op eg__add_op;                  /* y = a + b of equal shapes */
eg_tensor *eg__add(eg_tensor *a, eg_tensor *b); /* recorded; equal shapes */
/* target += source; equal shapes, any strides */
void eg__add_to(eg_tensor *target, const eg_tensor *source);
/* target += a b; equal shapes, any strides, no copies; target repeats no element */
void eg__add_product_to(eg_tensor *target, const eg_tensor *a, const eg_tensor *b);
bool eg__add_act(eg_tensor *target, eg_tensor *source); /* eg__add_to as an act */
/* target *= c, of any strides; f32, f64, i64 and c128 */
void eg__scale_by(eg_tensor *target, double c);
bool eg__scale_act(eg_tensor *target, double c); /* eg__scale_by as an act */
/* y = (y + x)/c for n contiguous elements; x NULL: y = y/c. flush: that of the context */
void eg__mean_of_two(eg_dtype, int64_t n, void *y, const void *x, double c, bool flush);

/* -- view.c: views are affine maps of indices; the adjoint of a view is `embed`, and the adjoint of
 * embed is the view */
/* Returns the axis, 0 … rank − 1; negative numbers count from the last. −1 after an error. */
int eg__axis(const char *who, eg_tensor *x, int axis);
/* An axis of x, given by number or by a letter in the brackets of a string (eg__focus_named).
 * Errors name it as the caller did. */
typedef struct eg_named_axis {
    const char *who;
    eg_tensor *x;
    int axis; /* 0 … rank − 1 */
    /* records an error with a caret under the letter; NULL: the axis was given by number */
    eg_tensor *(*refuse)(const struct eg_named_axis *, eg_code, const char *sentence);
    const char *name; /* the letter or name, `length` bytes */
    int length;
    const void *bound; /* the bound string, for refuse */
    int item;          /* position of the letter in its term */
} eg_named_axis;
/* True if x can be used and has an axis k; else records an error. */
bool eg__axis_numbered(eg_named_axis *, const char *who, eg_tensor *x, int k);
/* Writes "axis 1 of (2, 5)" or "axis 'l' of size 5"; returns buffer. */
const char *eg__axis_text(const eg_named_axis *, char *buffer, size_t size);
eg_tensor *eg__refuse_axis(const eg_named_axis *, eg_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* eg_select and eg_slice for an axis that exists. */
eg_tensor *eg__select(const eg_named_axis *, int64_t index);
eg_tensor *eg__slice(const eg_named_axis *, int64_t start, int64_t stop, int64_t step);
int eg__split(const eg_named_axis *, int count, const int64_t *sizes, eg_tensor **parts);
int eg__unbind(const eg_named_axis *, int count, eg_tensor **parts);
eg_tensor *eg__unfold(const eg_named_axis *, int64_t size, int64_t step);
/* True if t is a view that leaves out elements of its operand. */
bool eg__view_selects(const eg_tensor *t);
/* If t is a view of its operand, changes x to the same view of x and returns true; else leaves x
 * unchanged. dim and stride have room for EG_RANK_MAX entries each. Records no error. */
bool eg__view_on(const eg_tensor *t, eg_tensor *x, int64_t *dim, int64_t *stride);

/* -- overlap.c: adding onto views of which several elements are the same memory ------------ */
/* target += g f, where several elements of target may be the same memory; f NULL: target += g. All
 * have one shape. */
void eg__add_repeated(eg_tensor *target, const eg_tensor *g, const eg_tensor *f);
/* If x has more elements than the memory from its first to its last one, as overlapping windows
 * have, sets order[] to the order of axes, outermost first, in which a tensor of x's shape is added
 * to x's memory in the longest runs: that of x's strides, but positions in a window outside of
 * windows. Else, and if x is expanded, returns false. */
bool eg__window_order(const eg_tensor *x, int *order);
#endif
