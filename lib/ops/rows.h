/* rows.h: operations on bracketed axes. Their rows (eg_op) see the bracketed axes last, in the string's order, so that
 * "b [l] d" and "b d [l]" are one operation on a permuted view; a row of numbers is what lies along those axes.
 *
 * Numbers are read in chunks of at most EG_CHUNK contiguous elements, gathered where the strides are not 1: the blocks of a sum
 * are functions of the row's length alone, and a value never depends on the layout or on the number of threads. */
#ifndef EG_ROWS_H
#define EG_ROWS_H
#include "notation/notation.h"
#include "tensor/complex.h"

/* -- strings: who, spec and x → x with the bracketed axes last ---------------------------------------------------------------- */
typedef struct eg_focus {
    const char *who;
    const eg_bound *bound;              /* NULL: spec was NULL, all axes                                     */
    eg_tensor *given, *x;               /* the operand, and a view of it: `outer` other axes, then `inner` bracketed ones */
    int outer, inner;
    int item[EG_RANK_MAX];              /* axis of x → item of the operand's term                           */
} eg_focus;
bool eg__focus(eg_focus *, const char *who, const char *spec, eg_tensor *x);             /* false after a message      */
bool eg__focus_bound(eg_focus *, const eg_bound *, eg_tensor *given);                    /* the same of a bound string's term 0 */
bool eg__focus_axis(const eg_focus *);                          /* one axis in brackets? else a message                */
bool eg__focus_one(const eg_focus *);                           /* the same, and no output                             */
/* y, with x's axes (bracketed sizes may differ), in the operand's own order and groups */
eg_tensor *eg__focus_same(const eg_focus *, eg_tensor *y);
eg_tensor *eg__focus_rest(const eg_focus *, eg_tensor *y);      /* y, which has x's outer axes, as the string orders them */
/* the operand's own axes that are (not) in brackets, groups merged; how many */
int eg__focus_dims(const eg_focus *, bool bracketed, int64_t *dim);

/* -- aligning by letters ------------------------------------------------------------------------------------------------------- */
int eg__item_of(const eg_bound_term *, int axis);               /* the item that is this axis, or −1                   */
bool eg__no_repeats(const eg_bound *, int term);                /* false after a message: an index stands twice       */
/* recorded views: the term's operand over these axes, the missing ones expanded */
eg_tensor *eg__align(const eg_bound *, int term, int rank, const uint16_t *axis);
/* the same of x with those n axes */
eg_tensor *eg__align_labels(eg_tensor *x, int n, const uint16_t *label, int rank, const uint16_t *axis, const int64_t *dim);
/* the same, unrecorded, of x shaped as the term's operand */
eg_tensor *eg__align_alias(const eg_bound *, eg_tensor *x, int term, int rank, const uint16_t *axis);

/* -- trailing axes, differentiable ------------------------------------------------------------------------------------------- */
eg_tensor *eg__sum_last(eg_tensor *x, int inner);                       /* Σ x over the last axes                     */
eg_tensor *eg__dot_last(eg_tensor *a, eg_tensor *b, int inner);         /* Σ a b over the last axes                   */
eg_tensor *eg__dot_first(eg_tensor *a, eg_tensor *b, int inner);        /* Σ a b (b NULL: Σ a) over all but the last axes */
eg_tensor *eg__widen(eg_tensor *y, int inner);                          /* y with that many axes of size 1 appended   */
int64_t    eg__last(const eg_tensor *x, int inner);                     /* elements of one row                        */
eg_tensor *eg__softmax_last(eg_tensor *x, eg_tensor *keep, int inner);  /* softmax.c; keep: NULL, or bool of x's shape */
eg_tensor *eg__logsumexp_last(eg_tensor *x, int inner);                 /* reduce.c                                    */
eg_tensor *eg__take_last(eg_tensor *x, eg_tensor *index);               /* index.c: x[…, index[…, l]]                  */
eg_tensor *eg__softmax_slope(eg_tensor *y, eg_tensor *g, int inner);    /* softmax.c: y (g − Σ g y)                   */
bool eg__floats(const char *who, const eg_tensor *x, int operand);      /* false after a message: x is not f32 or f64 */

/* -- numbers ------------------------------------------------------------------------------------------------------------------- */
enum { EG_CHUNK = 512 };
/* a row: axes merged, steps in bytes */
typedef struct eg_strip { int rank, width; int64_t n, dim[EG_RANK_MAX], step[EG_RANK_MAX]; } eg_strip;
void eg__strip(eg_strip *, const eg_tensor *x, int inner);
static inline bool eg__strip_contiguous(const eg_strip *s) { return s->rank == 1 && s->step[0] == s->width; }
const void *eg__strip_read(const eg_strip *, const char *row, int64_t start, int64_t count, void *buffer);  /* in place where contiguous */
void *eg__strip_room(const eg_strip *, char *row, int64_t start, void *buffer);         /* where to write a chunk … */
void  eg__strip_done(const eg_strip *, char *row, int64_t start, int64_t count, const void *written);       /* … and that it is written */

double complex *eg__strip_c128(const eg_strip *, const char *row, int64_t k);  /* element k of a row of c128, which is read one by one */

typedef void eg_row_body(const void *user, int64_t row, char *const *p); /* row: its number, row-major; p[k]: the row in operand k */
enum { EG_ROW_OPERANDS = 4 };
/* x[0] is written; work: additions a row costs */
void eg__rows(eg_ctx *, int outer, int operands, const eg_tensor *const *x, int64_t work, eg_row_body *, const void *user);

/* Several rows at once, each contiguous: p[k] the first row in operand k, steps in bytes from row to row. For any number of elements. */
typedef struct eg_batch { int64_t n; bool masked, log, center; double c; const void *gain, *bias; void *sums; } eg_batch;
#define EG_ROW(T, k, r) ((T *)(void *)(p[k] + (r) * step[k]))  /* row r of operand k, in a batch's loop                   */
eg_tensor *eg__rowwise(eg_tensor *x, int inner);        /* x, or a recorded copy of it, so that each row is contiguous      */
/* x[0] is written */
void eg__batches(eg_tensor *y, int outer, int operands, const eg_tensor *const *x, eg_inner *, const void *user, int64_t work);

typedef struct eg_arithmetic {          /* of contiguous floats of one type; scalars as double                       */
    /* at most EG_CHUNK elements of a row */
    double (*top)    (int64_t n, const void *x);                                /* max x, whatever is NaN; −inf of none     */
    void   (*select) (int64_t n, const void *x, const uint8_t *keep, void *y);  /* keep ? x : −inf                   */
    void   (*shift)  (int64_t n, const void *x, double top, void *y);           /* x − top; top +inf: x = +inf ? 0 : −inf; −inf: x */
    double (*expsum) (int64_t n, const void *x, double shift, void *y);         /* y = e^(x − shift); Σ y            */
    void   (*affine) (int64_t n, const void *x, double shift, double c, void *y); /* (x − shift) c                   */
    void   (*gain)   (int64_t n, void *y, const void *gain, const void *bias);  /* y gain + bias in place; NULL: without    */
    double (*sum)    (int64_t n, const void *x);                                /* Σ x                               */
    double (*sumsq)  (int64_t n, const void *x, double shift);                  /* Σ (x − shift)²                    */
    double (*tallest)(int64_t n, const void *x);                                /* max |x|, whatever is NaN; 0 of none */
    double (*sumpow) (int64_t n, const void *x, double p);                      /* Σ |x|^p                           */
    double (*at)     (const void *x, int64_t k);                                /* x[k]                              */
    /* rows, user: an eg_batch */
    eg_inner *softmax;                  /* y, x, mask   of c x          n at most EG_CHUNK; the same bits as chunk by chunk */
    eg_inner *logsum;                   /* { top, ln Σ e^(x − top) }, x */
    eg_inner *softmax_slope, *log_softmax_slope;        /* dx, y, g     */
    eg_inner *softmax_less;             /* dx, x, g     g (softmax(x) − c), g one number for a row                   */
    eg_inner *rstd;                     /* r, x         r = 1/√(mean (x − mean)² + c)                                */
    eg_inner *norm;                     /* y, x         (x − mean) r gain + bias                                     */
    eg_inner *norm_slope; /* dx, x, g     r (h − mean h − x̂ mean(h x̂)), h = g gain; sums, if not NULL: n times += g x̂, n times += g */
    void   (*add)    (int64_t n, void *y, const void *x);                       /* y += x                            */
} eg_arithmetic;
extern const eg_arithmetic eg__arithmetic_f32, eg__arithmetic_f64;
static inline const eg_arithmetic *eg__arithmetic(int dtype) { return dtype == EG_F64 ? &eg__arithmetic_f64 : &eg__arithmetic_f32; }
void eg__logs(int64_t n, double *v);    /* v = ln v, by the vector function                                           */
#endif
