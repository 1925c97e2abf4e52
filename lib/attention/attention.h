/* attention.h: y = softmax(score(scale q·k)) v with masks and dropout, in two forms with the same
 * result up to rounding: unfused (einsum, softmax and einsum), or fused, which never holds all
 * weights in memory (Dao et al. 2022; Rabe, Staats 2021; the online softmax of Milakov, Gimelshein
 * 2018). The files of this folder:
 *
 *   call.c              eg_attention: the checks, the cache of plans, the choice of the results
 *   bind_call.c         makes an eg_attention_plan of the string and the options
 *   bind_expressions.c  for the plan: the predicate, the score and the tensors that they read
 *   choose_form.c       chooses between the two forms
 *   unfused.c           the unfused form, which defines the result
 *   unfused_masked.c    its products if operands that a mask forbids are not finite
 *   fused.c             the operations of the fused form: attention with its log-sum-exp, its
 *                       gradient
 *   fused_forward.c     the forward pass over tiles of scores
 *   fused_backward.c    the backward pass over tiles of scores
 *   fused_masked.c      what unfused_masked.c does, for tiles
 *   ring.c              eg_attention(.ranks): a length that is divided among ranks
 *   ring_walk.h         names the files that compute it
 *   tiles.c             addresses of the elements of a tile
 *   tile_values.c       the predicate, the score and its cotangents over a tile
 *   tile_sums.c         cotangents of the tensors that the score reads, summed over tiles
 *   tile_math.c         arithmetic on a tile */
#ifndef EG_ATTENTION_H
#define EG_ATTENTION_H
#include "expression/expression.h"
#include <eingrad/attention.h>

/* -- a call, bound ---------------------------------------------------------------------------- */
/* The terms of a call: the operands in the order in which a node of attention has them, then the
 * result. */
enum {
    EG_TERM_Q,
    EG_TERM_K,
    EG_TERM_V,
    EG_TERM_SINK,
    EG_TERMS,
    EG_TERM_Y = EG_TERMS,
    /* The largest number of operands of a node: one per term, then the tensors that the expressions
     * read. */
    EG_ATTENTION_OPERANDS = EG_TERMS + EG_TENSORS_MAX
};
/* The role of an axis in the two products, q·k and weights · v. */
typedef enum eg_part {
    EG_PART_BATCH, /* in both products */
    EG_PART_QUERY, /* in q and y alone */
    EG_PART_KEY,   /* in k and v; the softmax runs over it */
    EG_PART_DOT,   /* in q and k; summed to a score */
    EG_PART_VALUE, /* in v and y alone */
    EG_PARTS
} eg_part;
/* The plan of an attention call: the role of each axis, and the options. It is the attribute of
 * the node and contains no tensor. */
typedef struct eg_attention_plan {
    int axes; /* number of axes of all terms together; they are numbered from 0 */
    int64_t size[3 * EG_RANK_MAX];
    uint8_t part[3 * EG_RANK_MAX]; /* eg_part */
    int rank[EG_TERMS + 1];        /* by term, the result last; −1 if there is no such term */
    uint16_t label[EG_TERMS + 1][EG_RANK_MAX]; /* the axes of each term, all different */
    int scores, inner; /* axes of the scores; the last `inner` are the keys */
    uint16_t score[EG_RANK_MAX];
    double scale; /* of q·k, before the expression is applied; may be negative */
    eg_drop drop;
    bool dropping;   /* dropout is applied, with `drop` */
    bool no_softmax; /* the scores are the weights */
    bool rescored;   /* .score or .score_fn changes the scores, and may mask some of them */
    bool wants_lse; /* the node has y and the log-sum-exp (fused.c), its gradient's cotangent too */
    bool wants_max; /* the node has the largest score of each row after them (with wants_lse) */
    bool careful;   /* what is forbidden may have numbers that are not finite:
                     * eg__attention_has_nonfinite */
    eg_span key_range; /* eg__attention_key_range */
    uint32_t wanted;   /* of a gradient: the tensors of the expressions whose cotangents it has */
    /* the expressions: letter k is axis score[k]; the tensors are operands after those of terms */
    int tensors;
    int64_t least[EG_TENSORS_MAX], most[EG_TENSORS_MAX];
    /* sizes in bytes: of the predicate, which includes .keep, .lengths and a strict .bias, and
     * of the score, which includes .bias and .alibi; 0 if there is none */
    size_t where_bytes, score_bytes;
    uint64_t expressions[];
} eg_attention_plan;
/* Returns the predicate of all masks together; NULL if no pair is forbidden. */
static inline const eg_expression *eg__attention_where(const eg_attention_plan *a)
{
    const eg_expression *e = (const void *)a->expressions;
    return a->where_bytes && e->root >= 0 ? e : NULL;
}
/* Returns the expression that changes a score; NULL if the scores are scale q·k. */
static inline const eg_expression *eg__attention_score(const eg_attention_plan *a)
{
    return a->score_bytes ? (const void *)((const char *)a->expressions + a->where_bytes) : NULL;
}
static inline size_t eg__attention_bytes(const eg_attention_plan *a)
{
    return sizeof *a + a->where_bytes + a->score_bytes;
}
/* Changes the predicate so that −inf in .bias forbids its pair, as a mask does. Otherwise −inf
 * only makes the weight 0, which has the same effect if the operands are finite and there is a
 * softmax. */
static inline void eg__attention_be_strict(eg_attention_plan *a)
{
    eg_expression *e = (void *)a->expressions;
    if (a->where_bytes) e->root = e->strict;
}
/* True if a pair may be forbidden: by a mask, by .score or .score_fn, or by a score of −inf. */
static inline bool eg__attention_may_forbid(const eg_attention_plan *a)
{
    return a->where_bytes || a->rescored;
}
/* Sets size[] to the sizes of the scores. */
static inline void eg__score_sizes(const eg_attention_plan *a, int64_t *size)
{
    for (int s = 0; s < a->scores; s++) size[s] = a->size[a->score[s]];
}

/* -- bind_expressions.c ----------------------------------------------------------------------- */
/* The options whose value is a tensor with its own letters. */
enum { EG_MASK_KEEP, EG_MASK_BIAS, EG_MASK_LENGTHS, EG_MASK_ALIBI, EG_MASK_SINK, EG_MASKS };
/* The two expressions of a call and the tensors that they read. */
typedef struct eg_attention_texts {
    eg_expression *where, *score; /* NULL if there is none */
    int tensors;
    eg_tensor *x[EG_TENSORS_MAX];
    int64_t least[EG_TENSORS_MAX], most[EG_TENSORS_MAX];
} eg_attention_texts;
/* Lists in x the tensors that the expressions of a call read: those of .with, then those of the
 * options in mask[EG_MASKS] (NULL for one that is not given). Returns how many. */
int eg__attention_tensors(const eg_attention_args *, eg_tensor *const *mask, eg_tensor **x);
/* True if the elements of all tensors of integers are within the bounds that the plan has for
 * them. */
bool eg__attention_within(const eg_attention_plan *, eg_tensor *const *x);
/* Parses the two expressions of a call over the scores of `m`. term[EG_MASKS] has the terms of
 * the options in the bound string, −1 for one that is not given; query[r] is true if axis r of
 * the scores is of the query alone. False after an error. */
bool eg__attention_texts(eg_attention_texts *, const eg_masking *m, const eg_attention_args *,
                         const int *term, const bool *query);
/* The number of true elements of a bool tensor, in all of its copies (call.c). */
int64_t eg__attention_count(eg_tensor *x);

/* -- unfused.c -------------------------------------------------------------------------------- */
/* In all functions of this section x lists the operands by term, with NULL for a term that is
 * absent, and scores and weights have the axes a->score. After an error, a function that returns
 * a tensor returns poison. */
/* The masks of a call: bool tensors over the scores, true where a pair is allowed. There is at
 * most one. */
typedef struct eg_attention_masks {
    int n; /* −1 after an error */
    eg_tensor *mask[1];
} eg_attention_masks;
eg_attention_masks eg__attend_masks(const eg_attention_plan *, eg_tensor *const *x);
/* Returns score(scale q·k) / *left. If there is no expression, *left is set to the scale, by
 * which the caller multiplies later; else to 1. With masks, no gradient passes through the
 * expression at forbidden pairs, and if the plan is careful, their q·k is 0. With NULL in place of
 * masks, all pairs are treated as allowed. */
eg_tensor *eg__attend_scores(const eg_attention_plan *, const eg_attention_masks *,
                             eg_tensor *const *x, double *left);
/* Returns softmax(*left scores), or *left scores if there is no softmax; 0 where a mask forbids. */
eg_tensor *eg__attend_weights(const eg_attention_plan *, const eg_attention_masks *,
                              eg_tensor *const *x, eg_tensor *scores, double left);
/* Returns weights · v. */
eg_tensor *eg__attend_values(const eg_attention_plan *, const eg_attention_masks *,
                             eg_tensor *const *x, eg_tensor *weights);
/* Returns ln (Σ e^scores + e^sink), where the sum is over the allowed pairs. */
eg_tensor *eg__attend_lse(const eg_attention_plan *, const eg_attention_masks *,
                          eg_tensor *const *x, eg_tensor *scores);
/* Returns the largest allowed score of each row, −inf if there is none, without a history. There is
 * no sink. */
eg_tensor *eg__attend_max(const eg_attention_plan *, const eg_attention_masks *,
                          eg_tensor *const *x, eg_tensor *scores);
/* Sets d[] to the cotangents of the operands (NULL: none), made of differentiable operations; after
 * an error the query's is poison. g is the cotangent of y, g_lse that of the log-sum-exp, with the
 * axes of the scores' rows; one of them may be NULL. */
void eg__attend_gradient(const eg_attention_plan *, eg_tensor *const *x, eg_tensor *g,
                         eg_tensor *g_lse, eg_tensor **d);

/* -- unfused_masked.c ------------------------------------------------------------------------- */
/* True if a pair may be forbidden and q, k or v has an element that is not finite, or so large
 * that products overflow (eg__moderate). If g is not NULL, only g is tested. If this is true for
 * the operands, −inf in .bias forbids its pair too (eg__attention_be_strict). */
bool eg__attention_has_nonfinite(const eg_attention_plan *, eg_tensor *const *x, eg_tensor *g);
/* Returns the plan itself, or a careful copy of it if the cotangents g and g_lse (NULL: none) need
 * one; NULL after an error. */
const eg_attention_plan *eg__attention_for_nonfinite(const eg_attention_plan *, eg_tensor *const *x,
                                                     eg_tensor *g, eg_tensor *g_lse);
typedef struct eg_labelled_tensor {
    eg_tensor *x;
    int rank;
    const uint16_t *label;
} eg_labelled_tensor;
/* Returns the einsum of u and v. One of u, v and the result is over the scores; it is the result
 * if out == a->score. An element that is not finite counts only in pairs that all masks allow:
 * for q, k and v only if the plan is careful, for cotangents always. */
eg_tensor *eg__masked_product(const eg_attention_plan *, const eg_attention_masks *,
                              const eg_labelled_tensor *u, const eg_labelled_tensor *v, int rank,
                              const uint16_t *out);

/* -- choose_form.c --------------------------------------------------------------------------- */
/* The largest number of keys in a block of the fused form's forward pass. */
enum { EG_FUSED_KEYS = 256 };
/* Returns the range of keys outside of which every pair is forbidden, as far as bounds of a
 * predicate without tensors show it; all keys if there are few or several axes of them. */
eg_span eg__attention_key_range(const eg_attention_plan *);
/* True if the fused form can compute this call: no size is 0, and the width of the kernel's tile
 * is a multiple of a vector's length. */
bool eg__fused_possible(const eg_attention_plan *, eg_dtype);
/* True if the fused form can compute this call and is expected to be faster than the unfused
 * one; depends only on sizes, and on the letters of the predicate. */
bool eg__fused_suits(const eg_attention_plan *, eg_dtype);
/* As eg__attention_has_nonfinite for q, k and v, but if the form is fused and the call is not
 * recorded, only for keys that the form may read. */
bool eg__attention_reads_nonfinite(const eg_attention_plan *, eg_tensor *const *x, bool fused);

/* -- fused.c ---------------------------------------------------------------------------------- */
/* Returns y, equal to the unfused form's up to rounding. Sets *empty (if not NULL) to the number
 * of rows in which every pair is forbidden, and, if the plan wants them, *lse to the log-sum-exp of
 * each row and *max to its largest score, with the axes of the scores' rows. */
eg_tensor *eg__fused(const eg_attention_plan *, eg_tensor *const *x, int64_t *empty,
                     eg_tensor **lse, eg_tensor **max);

/* -- ring.c ----------------------------------------------------------------------------------- */
/* Computes eg_attention if .ranks is given. */
eg_tensor *eg__attention_ring(eg_ctx *, const eg_attention_args *);

/* -- tile_math.c ------------------------------------------------------------------------------ */
/* Arithmetic on a tile of f32 or f64: rows of w lanes, aligned to 64 bytes. In the forward pass
 * a lane is a query, in the backward pass a key. An argument "by lane" has one element per lane,
 * one "by row" one per row. Scores are multiplied by log2 e before, so that weights are powers
 * of 2. */
typedef struct eg_tile_ops {
    int lanes; /* in a vector; w is a multiple of it */
    /* functions on n elements */
    void (*scale)(int64_t n, void *x, double c);                  /* x c */
    void (*add)(int64_t n, void *x, const void *y, double c);     /* x + c y */
    void (*mask_out)(int64_t n, void *x, const uint8_t *allowed); /* allowed ? x : −inf */
    void (*apply_dropout)(int64_t n, void *x, const uint8_t *kept, double factor);
    /* kept ? x factor : 0 */
    void (*zero_nonfinite)(int64_t n, void *x); /* x is finite ? x : 0 */
    /* Σ x y: elements whose positions are equal modulo 16 are added in order, then these 16 sums
     * in halves. The strides do not change the order. */
    double (*dot)(int64_t n, const void *x, int64_t x_step, const void *y, int64_t y_step);
    /* inv_sum = 1/row_sum, or 0 where row_sum is 0; returns the number of zeros in row_sum */
    int64_t (*invert_sums)(int64_t n, const void *row_sum, void *inv_sum);
    /* One step of the online softmax, by lane: m' = max(m, x), x = 2^(x − m'), decay = 2^(m −
     * m'), sum = sum decay + Σ x. If m is NaN, it remains NaN and decay is 1. True if any decay
     * is not 1. */
    bool (*online_softmax)(int w, int64_t rows, void *x, void *row_max, void *row_sum, void *decay);
    /* x times the element of its lane */
    void (*scale_lanes)(int w, int64_t rows, void *x, const void *lane);
    /* by row: 2^(x − row_max) inv_sum */
    void (*exp_scaled)(int w, int64_t rows, void *x, const void *row_max, const void *inv_sum);
    /* by row: weights (x − mean + added). The mean is Σ weights x. Where a weight is 1, x − mean is
     * taken to be 0, so that rounding leaves no difference; if the mean is not finite, it is taken
     * to be 0 where a weight is 0 instead. added NULL: 0 */
    void (*softmax_slope)(int w, int64_t rows, const void *weights, void *x, const void *mean,
                          const void *added);
} eg_tile_ops;
/* Returns the functions for tiles of w lanes; NULL if w is not a multiple of the length of any
 * vector. */
const eg_tile_ops *eg__tile_ops(eg_dtype, int w);
/* tile[j w + i] = byte j % 4, in memory, of words[j / 4 w + i] for j < rows, i < w */
void eg__bytes_of_words(int w, int64_t rows, const uint32_t *words, uint8_t *tile);

/* -- tiles.c: addresses of elements ----------------------------------------------------------- */
/* The arrays that a pass reads or writes. */
enum {
    EG_SLOT_Q,
    EG_SLOT_K,
    EG_SLOT_V,
    EG_SLOT_SINK,
    EG_SLOT_Y,
    EG_SLOT_LSE,
    EG_SLOT_G,     /* cotangents: of y, */
    EG_SLOT_G_LSE, /* of the log-sum-exp */
    EG_SLOT_DQ,
    EG_SLOT_DK,
    EG_SLOT_DV,
    EG_SLOT_DSINK, /* sums in f64 */
    EG_SLOT_DRAW,  /* the index of the draw of dropout: that of the score, row-major */
    EG_SLOTS
};
typedef struct eg_fused_axis {
    int64_t size;
    int64_t step[EG_SLOTS]; /* distance of consecutive elements in each array; 0 if the array
                             * does not have this axis */
    int axis;               /* its number in the plan */
    int score;              /* its position in a->score; −1 if it is not there */
} eg_fused_axis;
/* The axes of one part, the last varying fastest; `total` is the product of their sizes. */
typedef struct eg_fused_list {
    int n;
    int64_t total;
    eg_fused_axis axis[EG_RANK_MAX];
} eg_fused_list;
/* A plan and the arrays that a pass over tiles reads and writes. */
typedef struct eg_fused {
    const eg_attention_plan *a;
    eg_drop drop; /* that of the plan; with copies, that of the copy being computed */
    eg_fused_list list[EG_PARTS];
    eg_panel_kernel kernel;
    const eg_tile_ops *ops;
    eg_dtype dtype;
    int64_t width;        /* bytes of an element */
    int wide, narrow;     /* lanes of a tile; columns of the kernel's other side */
    bool careful;         /* an operand is not moderate (eg__moderate): forbidden pairs must not
                           * contribute at all */
    char *data[EG_SLOTS]; /* NULL for an array that is not read or written */
    /* the expressions (NULL if there is none), the tensors that they read, and the bounds of
     * tensors of integers */
    const eg_expression *where, *score;
    eg_source source[EG_TENSORS_MAX];
    int64_t size[EG_RANK_MAX]; /* of the scores */
    eg_bounds bounds;
    bool bounded; /* the predicate reads tensors, and `bounds` is filled */
} eg_fused;
void eg__fused_open(eg_fused *, const eg_attention_plan *, eg_dtype);
/* Sets array `at` to the tensor x, which has the axes of `term`. */
void eg__fused_place(eg_fused *, int at, int term, const eg_tensor *);
/* Sets array `at` to data, whose n axes are those of the plan in label, with these steps. */
void eg__fused_lay(eg_fused *, int at, int n, const uint16_t *label, const int64_t *step,
                   char *data);
/* Sets array `at` to row-major memory with the axes of `term`. */
void eg__fused_spread(eg_fused *, int at, int term, char *data);
/* Returns the offset, in elements, of element i of a part in array `at`. */
int64_t eg__fused_at(const eg_fused *, eg_part, int at, int64_t i);
/* Sets off[] to the offsets of elements from … from + count − 1. */
void eg__fused_offsets(const eg_fused *, eg_part, int at, int64_t from, int64_t count,
                       int64_t *off);

/* Elements from … from + count − 1 of a part. */
typedef struct eg_stretch {
    eg_part part;
    int64_t from, count;
} eg_stretch;
/* Packs rows into panels of w, dst[panel][depth][w]. `runs` has room for depth.count + 1 runs. */
void eg__fused_pack(const eg_fused *, int w, eg_stretch rows, eg_stretch depth, int at,
                    const char *base, char *dst, eg_run *runs);
/* Writes the lanes of one panel, tile[column][wide], to their addresses in array `at`. */
void eg__fused_unpack(const eg_fused *, eg_stretch lanes, eg_stretch columns, int at,
                      const char *tile, char *base);

/* One batch of the scores. */
typedef struct eg_fused_batch {
    int64_t number;
    int64_t index[EG_RANK_MAX]; /* by axis of the scores; only the axes of the batch are set */
    int64_t at[EG_SLOTS];       /* offset of its first element in each array */
} eg_fused_batch;
void eg__fused_batch(const eg_fused *, int64_t number, eg_fused_batch *);
/* For dropout: sets tile[] to 1 where a weight is kept and to 0 where it is dropped or the lane is
 * not below lanes.count. */
void eg__fused_dropout(const eg_fused *, const eg_fused_batch *, eg_stretch rows, eg_stretch lanes,
                       uint8_t *tile);

/* -- fused_forward.c, fused_backward.c -------------------------------------------------------- */
#define EG_LOG2_E 1.4426950408889634
/* The statistics of each row of the scores times log2 e, in the scores' type. */
typedef struct eg_row_stats {
    void *row_max; /* max s; NULL: the statistics are not kept */
    void *inv_sum; /* 1/Σ 2^(s − max s); 0 where every pair of the row is forbidden */
} eg_row_stats;
/* Computes y (if array Y is set) and the statistics (each if not NULL). Sets *empty to the
 * number of rows in which every pair is forbidden. False after an error. */
bool eg__fused_forward(eg_ctx *, const eg_fused *, const eg_row_stats *, int64_t *empty);
/* Computes from the arrays Y, G and G_LSE (Y and G may be absent together, or G_LSE) and the
 * statistics the arrays DQ, DK and DV, and writes the cotangents of the sink and of the tensors
 * that the score reads (x: all operands) to to[k] (NULL: not wanted). False after an error. */
bool eg__fused_back(eg_ctx *, eg_fused *, const eg_row_stats *, eg_tensor *const *x,
                    char *const *to);
#endif
