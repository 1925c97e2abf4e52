/* ops.h: operations on bracketed axes. Their forward functions get tensors with the bracketed axes
 * last, in the string's order, so that "b [l] d" and "b d [l]" are one operation on a permuted
 * view. A row of numbers is the elements along those axes.
 *
 * Elements are read in chunks of at most EG_CHUNK contiguous ones, which are gathered if the
 * strides are not 1. The blocks of a sum therefore depend only on the length of the row, and a
 * value depends neither on the layout nor on the number of threads. */
#ifndef EG_OPS_H
#define EG_OPS_H
#include "einsum/einsum.h"

/* -- aligning by letters ---------------------------------------------------------------------- */
/* Returns a recorded view of the term's operand with these axes of the bound string, in this order;
 * axes that the term does not have are expanded. */
eg_tensor *eg__align(const eg_bound *, int term, int rank, const uint16_t *axis);
/* eg__align for x, whose axis k is called label[k]; dim: the sizes of the result. */
eg_tensor *eg__align_labels(eg_tensor *x, int n, const uint16_t *label, int rank,
                            const uint16_t *axis, const int64_t *dim);
/* eg__align for x, which has the shape of the term's operand; not recorded. */
eg_tensor *eg__align_alias(const eg_bound *, eg_tensor *x, int term, int rank,
                           const uint16_t *axis);

/* -- axis.c ----------------------------------------------------------------------------------- */
/* True if spec fits x and has exactly one axis in brackets and no output; else records an error.
 * Sets *a to that axis, which points into *f. */
bool eg__axis_lettered(eg_named_axis *a, eg_focus *f, const char *who, const char *spec,
                       eg_tensor *x);

/* -- over the last `inner` axes, or all axes but them; differentiable ------------------------- */
eg_tensor *eg__sum_last(eg_tensor *x, int inner);               /* Σ x over the last axes */
eg_tensor *eg__dot_last(eg_tensor *a, eg_tensor *b, int inner); /* Σ a b over the last axes */
/* Σ a b (Σ a if b is NULL) over all axes but the last ones */
eg_tensor *eg__dot_first(eg_tensor *a, eg_tensor *b, int inner);
eg_tensor *eg__widen(eg_tensor *y, int inner);         /* y with `inner` axes of size 1 appended */
int64_t eg__row_length(const eg_tensor *x, int inner); /* number of elements of a row */
/* x, for an operation whose results of integers are i64: cast to i64 if it is an integer or bool.
 * Poison, after an error that names the operation, if it is f16 or bf16. */
eg_tensor *eg__integers_as_i64(const char *who, eg_tensor *x);
/* x, cast to i64 if it is i8 or u8. */
eg_tensor *eg__bytes_as_i64(eg_tensor *x);
/* softmax.c; keep is NULL, or bool of x's shape */
eg_tensor *eg__softmax_last(eg_tensor *x, eg_tensor *keep, int inner);
eg_tensor *eg__logsumexp_last(eg_tensor *x, int inner);   /* reduce.c */
eg_tensor *eg__take_last(eg_tensor *x, eg_tensor *index); /* index.c: x[…, index[…, l]] */
/* softmax.c: y (g − Σ g y) */
eg_tensor *eg__softmax_slope(eg_tensor *y, eg_tensor *g, int inner);
/* binary.c: the cotangent of a (i = 0) or b (i = 1) in y = a^b */
eg_tensor *eg__pow_slope(eg_tensor *a, eg_tensor *b, eg_tensor *y, eg_tensor *g, int i);
/* 0 as a number of x's dtype. */
static inline eg_tensor *eg__zero_like(const eg_tensor *x)
{
    return eg_full_n(x->cx, (eg_dtype)x->dtype, 0, 0, NULL);
}
/* True if x is f32, f64 or c128; else records an error. */
bool eg__floats(const char *who, const eg_tensor *x, int operand);

/* -- rows ------------------------------------------------------------------------------------- */
enum { EG_CHUNK = 512 };
/* Contiguous rows that a reduction reads at once, as the rows do not wait for each other. */
enum { EG_ROWS_ABREAST = 4 };
/* The memory layout of a row; neighbouring axes that have a common stride are merged. */
typedef struct eg_strip_axis {
    int64_t size, step; /* step: in bytes */
} eg_strip_axis;
typedef struct eg_strip {
    int rank, width; /* width: bytes of an element */
    int64_t n;       /* number of elements */
    eg_strip_axis axis[EG_RANK_MAX];
} eg_strip;
void eg__strip(eg_strip *, const eg_tensor *x, int inner);
static inline bool eg__strip_contiguous(const eg_strip *s)
{
    return s->rank == 1 && s->axis[0].step == s->width;
}
/* Returns elements start … start + count − 1 of a row: in place if the row is contiguous, else
 * copied into the buffer. */
const void *eg__strip_read(const eg_strip *, const char *row, int64_t start, int64_t count,
                           void *buffer);
/* Returns the address for elements from `start` on: in the row if it is contiguous, else the
 * buffer, from which eg__strip_done copies them to the row. */
void *eg__strip_buffer(const eg_strip *, char *row, int64_t start, void *buffer);
void eg__strip_done(const eg_strip *, char *row, int64_t start, int64_t count, const void *written);

/* Returns the address of element k of a row of c128. */
double complex *eg__strip_c128(const eg_strip *, const char *row, int64_t k);

/* A function that computes one row. row: its number, row-major; p[k]: address of the row of operand
 * k. */
typedef void eg_row_body(const void *user, int64_t row, char *const *p);
enum { EG_ROW_OPERANDS = 4 };
/* Calls the body for each row of the operands, which have their first `outer` axes in common, on
 * several threads if the work is large enough. x[0] is written. work: cost of a row, in
 * additions. */
void eg__rows(eg_ctx *, int outer, int operands, const eg_tensor *const *x, int64_t work,
              eg_row_body *, const void *user);

/* Functions of several rows (eg_inner): p[k] is the first row of operand k, and its rows are
 * step[k] bytes apart. Every row is contiguous and may have any number of elements. */
#define EG_ROW(T, k, r) ((T *)(void *)(p[k] + (r)*step[k])) /* row r of operand k */
/* The `user` argument of most of these functions. */
typedef struct eg_row_facts {
    int64_t n;        /* number of elements of a row */
    int masks;        /* softmax: number of masks, which are operands 2 … */
    bool log, center; /* softmax: its logarithm; norm: the mean is subtracted */
    bool from_memory; /* norm: rows come from memory and are read one after the other */
    int moments;      /* norm: the operand that has mean and r of each row, two doubles, which norm
                       * writes and norm_slope reads; 0 if there is none */
    double c;
    const void *gain, *bias; /* norm: n elements each, or NULL */
    void *sums;
    /* …_across: the distance of elements of a row in each operand, in elements. Either it is 1, or
     * rows lie one element after the other. n is at most EG_ACROSS */
    int64_t along[3];
} eg_row_facts;
enum { EG_ACROSS = 256 };
/* Calls `run` for all rows. x[0], which is written, and the other operands have their first `outer`
 * axes in common; the further axes of an operand are its rows. A row that is not contiguous is
 * gathered first, and copied back if it belongs to the result. work: cost of a row, in additions.
 * False after an error. */
bool eg__batches(eg_tensor *y, int outer, int operands, const eg_tensor *const *x, eg_inner *run,
                 const void *user, int64_t work);
/* The same for operands of which some have interleaved rows, which are read in place: `run` is a
 * function …_across, whose `user` contains *b; b->along is set. At most three operands have rows,
 * of the same single axis; those of rank `outer` have one element per row. False, and nothing is
 * computed, if no rows are interleaved or if this is slower. */
bool eg__batches_across(eg_tensor *y, int outer, int operands, const eg_tensor *const *x,
                        eg_inner *run, eg_row_facts *b, const void *user, int64_t work);
/* True if rows of x lie one element after the other along one of its outer axes, so that
 * eg__batches gathers many of them from the same cache lines. s: the layout of its rows. */
bool eg__rows_are_neighbours(const eg_tensor *x, int outer, const eg_strip *s);
/* The `user` argument of eg__rows_ahead. This function calls `run` for all rows, a few at a time,
 * and prefetches the next rows of operands 1 … meanwhile. */
typedef struct eg_rows_ahead_args {
    eg_inner *run;
    const void *user;
    int operands;
    int64_t bytes[EG_ROW_OPERANDS]; /* of a row */
} eg_rows_ahead_args;
eg_inner eg__rows_ahead;
/* True if eg__rows_ahead is faster for this number of rows of `bytes` each, in each of `reads`
 * operands. */
bool eg__rows_ahead_gains(int64_t rows, int64_t bytes, int reads);
/* pnorm.c: x with the axes of a row in the order of memory if a row is then contiguous, else x */
eg_tensor *eg__rows_in_memory_order(eg_tensor *x, int inner);
/* Returns x, or a recorded copy of it in which each row is contiguous. */
eg_tensor *eg__contiguous_rows(eg_tensor *x, int inner);

/* -- columns.c: short rows, many at a time ---------------------------------------------------- */
/* The columns of some rows: element 0 of each row, then element 1, … */
typedef struct eg_columns {
    const eg_strip *x; /* the layout of a row */
    const char *from;  /* the first element of the first row */
    int64_t rows, apart, index[EG_RANK_MAX], at;
    int64_t many; /* columns that are gathered at a time */
    _Alignas(64) char buffer[EG_CHUNK * 16];
} eg_columns;
/* Begins with column 0 of n rows, at most EG_CHUNK, which are `apart` bytes apart. */
void eg__columns(eg_columns *, const eg_strip *, const char *from, int64_t n, int64_t apart);
const void *eg__column(eg_columns *); /* the elements of the current column, contiguous */
/* The same, and the number of columns from it on, EG_COLUMNS at most, that are `step` bytes apart;
 * the last of them becomes the current one. */
const void *eg__column_run(eg_columns *, int64_t *columns, int64_t *step);
bool eg__column_next(eg_columns *); /* goes on to the next column; false after the last one */
/* Calls `run` for all rows of x, some at a time: the results of n rows are at p[0] + r step[0], the
 * first elements of the rows at p[1] + r step[1], the others in the layout *row, which `user`
 * refers to. Rows that are adjacent along the last axis of y are read in place. If that axis has
 * fewer than EG_LANES elements, rows of at most EG_ROW_GATHERED bytes, of elements of at most 8,
 * are gathered, and *row becomes the layout of the gathered ones. work: cost of a row, in
 * additions. */
enum { EG_COLUMNS = 16, EG_ROW_GATHERED = 2048 };
void eg__rows_across(eg_tensor *y, const eg_tensor *x, eg_strip *row, eg_inner *run,
                     const void *user, int64_t work);

/* -- what reductions share (reduce.c) --------------------------------------------------------- */
/* Sets the shape of a result that has the outer axes of its operand. False after an error. */
static inline bool eg__shape_outer(eg_tensor *y, int inner, eg_dtype dtype)
{
    return eg__shape(y, dtype, y->in[0]->rank - inner, y->in[0]->dim);
}
/* True if the bracketed axes have elements; else records an error. */
bool eg__has_elements(const eg_focus *);
/* pnorm.c: over the last axes; with p = 2, √(Σ x² / over). Else `over` is 1. */
eg_tensor *eg__pnorm_last(eg_tensor *x, int inner, double p, double over);

/* scan.c: y_l = a_{l−1} y_{l−1} + b_l along the last axis, y_0 = b_0 */
eg_tensor *eg__late_recurrence(eg_tensor *a, eg_tensor *b);

/* A sum of products of numbers that do not exceed it does not overflow. */
#define EG_MODERATE_F32 1e15f
#define EG_MODERATE_F64 1e150
typedef struct eg_arithmetic { /* functions on contiguous floats of one type; scalars are double */
    /* for at most EG_CHUNK elements of a row, except `moderate` */
    /* True if |x| ≤ EG_MODERATE_F32 (f64: _F64) for all elements; false for a NaN; any n. */
    bool (*moderate)(int64_t n, const void *x);
    /* (x − shift) c */
    void (*affine)(int64_t n, const void *x, double shift, double c, void *y);
    double (*sum)(int64_t n, const void *x);                    /* Σ x */
    double (*sumsq)(int64_t n, const void *x, double shift);    /* Σ (x − shift)² */
    double (*sumsq_scaled)(int64_t n, const void *x, double c); /* Σ (c x)² */
    double (*tallest)(int64_t n, const void *x);          /* max |x| over the elements that are not
                                                           * NaN; 0 if there are none */
    double (*sumpow)(int64_t n, const void *x, double p); /* Σ |x|^p */
    double (*sumabs)(int64_t n, const void *x);           /* Σ |x| */
    double (*at)(const void *x, int64_t k);               /* x[k] */
    /* functions on rows; user: an eg_row_facts */
    eg_inner *softmax;                           /* y, x, masks: softmax of c x, or its logarithm */
    eg_inner *logsum;                            /* pairs { top, ln Σ e^(x − top) }, x */
    eg_inner *softmax_slope, *log_softmax_slope; /* dx, y, g */
    /* the same for interleaved rows */
    eg_inner *softmax_across, *logsum_across, *softmax_slope_across, *log_softmax_slope_across,
        *softmax_less_across;
    eg_inner *softmax_less; /* dx, x, g     g (softmax(x) − c), where g has one element per row */
    eg_inner *rstd;         /* r, x         r = 1/√(mean (x − mean)² + c) */
    eg_inner *norm;         /* y, x         (x − mean) r gain + bias */
    /* dx, x, g     r (h − mean h − x̂ mean(h x̂)), h = g gain; if sums is not NULL, g x̂ is added
     * to its first n elements and g to the next n */
    eg_inner *norm_slope;
    void (*add)(int64_t n, void *y, const void *x); /* y += x */
} eg_arithmetic;
const eg_arithmetic *eg__arithmetic(int dtype); /* for the processor's registers */

/* -- moderate.c ------------------------------------------------------------------------------- */
/* True if all elements of x, and of its copies, satisfy eg_arithmetic.moderate; always true for
 * c128. */
bool eg__moderate(eg_tensor *x);

/* -- affine_finish.c -------------------------------------------------------------------------- */
/* Computes y = f(c + b) + r, where y contains c, a contiguous, row-major tensor of floats. */
typedef struct eg_affine_finish {
    eg_finish finish;
    int width;             /* bytes of an element */
    char *y, *z;           /* z: receives c + b; NULL if it is not kept */
    const char *bias;      /* b, contiguous, `features` elements that repeat; NULL: none */
    int64_t features;      /* at least 1 */
    eg_lanes_fn *function; /* f; NULL if there is none */
    const char *add;       /* r, with the layout of y; NULL if there is none */
    /* distance of copies in bytes for y, z, b and r; y_step is 0 if there is one copy */
    int64_t y_step, z_step, bias_step, add_step;
} eg_affine_finish;
void eg__affine_finish(eg_affine_finish *, eg_dtype); /* sets finish and width */
/* Computes it for all n elements of y, for a product that did not call the finish. */
void eg__affine_finish_all(eg_ctx *, const eg_affine_finish *, int64_t n);

/* -- affine.c --------------------------------------------------------------------------------- */
typedef struct eg_affine_call {
    const char *spec;
    eg_tensor *x, *W, *b, *add; /* b, add: NULL if there is none */
    const eg_lanes_op *f;       /* NULL if there is none */
    const char *name;           /* of f */
} eg_affine_call;
/* True if b has the sizes of the last axes of a result of these sizes, and add those of all; else
 * records an error. */
bool eg__affine_fits(eg_ctx *, const eg_tensor *b, const eg_tensor *add, int rank,
                     const int64_t *dim);
/* Returns f(einsum(spec, x, W) + b) + add, as eg_affine_with does. */
eg_tensor *eg__affine(const eg_affine_call *);
/* Computes the cotangent of operand i of y for g by the product itself, without recording: to = it,
 * or to += it if `add`. False, with `to` unchanged, if this cotangent is not a single product;
 * false also after an error. */
bool eg__affine_into(eg_tensor *y, eg_tensor *g, int i, eg_tensor *to, bool add);

/* -- pointwise.c ------------------------------------------------------------------------------ */
/* Returns the elementwise operation of that name, with one operand and no constants; NULL if there
 * is none. */
const eg_lanes_op *eg__pointwise(const char *name);
/* Returns Huber's function of each element, with a quadratic part up to |x| = delta. */
eg_tensor *eg__huber(eg_tensor *x, double delta);

/* -- ops/binary.c ----------------------------------------------------------------------------- */
/* Broadcasts up to three operands to one shape by recorded views, and applies the operation. */
eg_tensor *eg__broadcast(const eg_op *, int count, eg_tensor *const *xs);
/* Returns the binary cross entropy of the target a and the logit b of each element. */
eg_tensor *eg__bce(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__bce_slope(eg_tensor *a, eg_tensor *b); /* (1 − a) σ(b) − a σ(−b) */
/* Returns a (1 − tanh² b), that is, a times the derivative of tanh at b. The others are
 * analogous. */
eg_tensor *eg__tanh_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__sigmoid_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__gelu_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__gelu_tanh_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__silu_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__asin_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__atanh_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__acosh_slope(eg_tensor *a, eg_tensor *b);
eg_tensor *eg__asinh_slope(eg_tensor *a, eg_tensor *b);

/* -- where_mask.c: predicates over axes ------------------------------------------------------- */
/* A predicate over axes in a call. The caller sets the first members, eg__where_bind the others. */
typedef struct eg_where_call {
    eg_ctx *cx;
    const char *who, *text; /* NULL if there is no predicate */
    int rank;
    const eg_axis_name *name[EG_RANK_MAX];
    uint32_t keys; /* bits: the axes of keys, whose index an offset does not move */
    int64_t offset;
    const char *offset_letter;  /* which index the offset moves; NULL: the only one */
    bool elsewhere;             /* an offset that moves no index is not an error */
    const eg_given *with;       /* EG_GIVEN_MAX of them */
    const eg_dtype *was;        /* their dtypes before eg__given_cast */
    int64_t size[EG_RANK_MAX];  /* of each axis; −1 for the size of the tensors that it indexes */
    eg_expression *e;           /* NULL if there is no predicate */
    int moved;                  /* the axis that the offset moves; −1 if there is none */
    int64_t first[EG_RANK_MAX]; /* the position at which each axis begins */
    eg_given_tensors given;
} eg_where_call;
/* Reads the predicate (parsed texts are cached) and the tensors of .with, and checks the indices.
 * False after an error. */
bool eg__where_bind(eg_where_call *);
/* Sets w->moved to the axis that the offset moves, for expressions in which the axes of `positions`
 * occur as positions and those of `sizes` as sizes (bits). The members up to `elsewhere`, and the
 * sizes, must be set. False after an error. */
bool eg__where_moved(eg_where_call *, uint32_t positions, uint32_t sizes);
/* True if the offset is not negative; else records an error. */
bool eg__where_before(eg_ctx *, const char *who, int64_t offset);
/* Returns the predicate as a bool tensor over the axes; NULL after an error. If `whole` is false,
 * axes that the predicate does not use are expanded, not stored. */
eg_tensor *eg__where_bools(const eg_where_call *, bool whole);

/* -- masks by letters, shared by softmax and attention ---------------------------------------- */
/* Scores over axis[0 … rank), axes of the bound string; the softmax is over the last `inner`
 * axes. */
typedef struct eg_masking {
    const eg_bound *bound;
    int rank, inner;
    const uint16_t *axis;
    const char *where; /* NULL if there is none */
    const eg_given *with;
    const eg_dtype *was; /* the dtypes of .with before eg__given_cast */
    int keep, bias;      /* terms of the bound string; −1 if there is none */
    int64_t offset;
    const char *offset_letter; /* which index the offset moves; NULL: the only one */
    bool elsewhere;            /* the offset moves something else too */
    int values;                /* the term of the values of attention; 0: there are none */
} eg_masking;
/* How scores get an index of the values, for messages about an index that they lack. */
#define EG_ONLY_VALUES \
    "only the values have it: repeat the query over it (eg_rearrange) for scores of its own"
/* True if the scores have all letters of the term; else records an error. */
bool eg__masks_letters(const eg_masking *, int term, const char *which);
/* True if the letters and types of the masks fit the scores; else records an error. */
bool eg__masks_fit(const eg_masking *, eg_dtype scores);
/* Returns the softmax of scale · x[0], where scale > 0; 0 where one of x[1] … x[masks] is false. */
eg_tensor *eg__softmax_kept(eg_tensor *const *x, int masks, int inner, double scale);
/* An option of a call that is a mask: its name, such as ".keep"; its value; and its term in the
 * string, −1 if it is not given. */
typedef struct eg_mask_option {
    const char *option;
    eg_masked mask;
    int term;
} eg_mask_option;
/* Casts the mask of a call if it is of a storage type: f16 and bf16 to `floats`, or if that is
 * EG_DEFAULT, i8 and u8 to i32; others remain for eg__masks_fit. False after an error. */
bool eg__mask_cast(eg_ctx *, const char *who, const char *option, eg_dtype floats, eg_masked *);
/* Returns a string with the letters of the masks as further terms before its arrow, as in "b h i
 * [j]" → "b h i [j],bj,hij", and then those of `names`, if that is not NULL. Appends the masks to
 * xs, and their names for messages to called, and sets their terms. NULL after an error. */
const char *eg__masks_spec(eg_ctx *, const char *who, const char *spec, int count, eg_mask_option *,
                           const char *names, eg_tensor **xs, const char **called, int *n);

/* -- dropout.c -------------------------------------------------------------------------------- */
/* A dropout: an element is dropped if the 32 bits drawn for it are less than `below`; the others
 * are multiplied by `factor`. copies: each draws from its own seed; NULL: copies share the draws.
 */
typedef struct eg_drop {
    uint64_t seed, draw, below;
    double factor;
    const eg_copies *copies;
} eg_drop;
/* Takes a new draw, for tensors with these copies. False, without a draw, if dropout is the
 * identity: p is 0, or the context is not in training mode. */
bool eg__drop_draw(eg_ctx *, double p, const eg_copies *, eg_drop *);
/* The seed of its draws for the copy that is being computed. */
uint64_t eg__drop_seed(const eg_ctx *, const eg_drop *);
/* Sets stay[k] to 1 if the element with logical index first + k is kept, else to 0, for k < n. */
void eg__drop_stays(const eg_drop *, uint64_t first, int64_t n, uint8_t *stay);
/* Returns x with the dropout applied: x m factor. The result has the copies of the dropout, also if
 * x has none, as a cotangent or tangent that is the same for all copies. */
eg_tensor *eg__drop(const eg_drop *, eg_tensor *x);

/* -- memo: the cotangents of several operands, computed in one pass. A rule is called for one
 * operand at a time; the memo keeps what it computed for the others. It is valid for one cotangent
 * g only: the same tensor with the same values, in the same scope. */
enum { EG_MEMO = 24 };
typedef struct eg_memo {
    const eg_tensor *g;    /* the cotangent; NULL if the memo is empty */
    uint64_t seq, version; /* the number of g, and the version of its values */
    uint64_t scope;        /* the number of the scope in which d was computed */
    bool recorded;         /* d was recorded */
    uint64_t written;      /* sum of the versions of d */
    eg_tensor *d[EG_MEMO]; /* by operand; NULL if there is none */
} eg_memo;

static inline uint64_t eg__memo_versions(const eg_memo *m) /* versions only increase */
{
    uint64_t sum = 0;
    for (int k = 0; k < EG_MEMO; k++)
        if (m->d[k]) sum += m->d[k]->st->version;
    return sum;
}
/* True if m->d has the cotangents for g. */
static inline bool eg__remembered(const eg_memo *m, const eg_tensor *g)
{
    const eg_ctx *cx = g->cx;
    return m->g == g && m->seq == g->seq && m->version == g->st->version &&
           m->scope == cx->top->serial && m->recorded == cx->recording &&
           m->written == eg__memo_versions(m);
}
/* Notes that m->d has the cotangents for g. */
static inline void eg__remember(eg_memo *m, const eg_tensor *g)
{
    const eg_ctx *cx = g->cx;
    m->g = g;
    m->seq = g->seq;
    m->version = g->st->version;
    m->scope = cx->top->serial;
    m->recorded = cx->recording;
    m->written = eg__memo_versions(m);
}

/* -- index.c ---------------------------------------------------------------------------------- */
bool eg__at_made(const eg_tensor *t); /* true if eg_at made t */
/* Applies the operation of t to x and index. */
eg_tensor *eg__at_again(const eg_tensor *t, eg_tensor *x, eg_tensor *index);
/* sum[…, index[…], …] += u[…] with the attributes of t; false after an error */
bool eg__at_add(const eg_tensor *t, eg_tensor *sum, const eg_tensor *index, eg_tensor *u);

/* -- accumulate.c: the cotangent of a tensor that was read through views and indices, in one
 * buffer: y = Σ_k L_kᵀ g_k */
enum { EG_ADDEND_DEPTH = 16 };
/* A contribution g to the cotangent of a tensor that t is a view of: `depth` views lead from that
 * tensor to t, of which the last may be eg_at; depth 0: it is t. g has the shape of t. If f is not
 * NULL, the contribution is the product of g and f: bit r of axes[0] is 1 if g has axis r of t, and
 * of axes[1] if f has it; their axes have the order of t's. */
typedef struct eg__addend {
    struct eg__addend *next;
    eg_tensor *t, *g, *f;
    int depth;
    uint32_t axes[2];
} eg__addend;

/* True if the rule of t would add g to zeros of its operand's shape. */
bool eg__addend_due(const eg_tensor *t);
/* True if g can be added to the tensor `depth` views before t without a further buffer. */
bool eg__addend_fits(const eg_tensor *t, int depth);
/* Returns the sum of the `count` parts of the list, in order, as one node. Its rule applies the
 * views by which each t was read to the cotangent. */
eg_tensor *eg__accumulate(eg_ctx *, int count, const eg__addend *first);

/* -- copies_stack.c ---------------------------------------------------------------------------- */
/* Returns x with equal copies; x itself if it has copies. */
eg_tensor *eg__copies_spread(const eg_copies *, eg_tensor *x);
/* Returns the sum over all copies; if x has no copies, x times their number. */
eg_tensor *eg__copies_sum(const eg_copies *, eg_tensor *x);
bool eg__copies_made(const eg_tensor *); /* true for results of copies_unstack and copies_stack */
#endif
