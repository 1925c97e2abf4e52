/* attention.h: y = softmax(score(scale q·k)) v with masks and dropout, in two forms with the same
 * result up to rounding: composed of einsum, softmax and einsum, or fused, which never holds all
 * weights in memory (Dao et al. 2022; Rabe, Staats 2021; the online softmax of Milakov, Gimelshein
 * 2018). The files of this folder:
 *
 *   bind.c              makes an eg_attention_plan of the string and the options; chooses the form
 *   bind_expressions.c  its part of it: the predicate, the score and the tensors that they read
 *   composed.c          the composed form, which defines the result
 *   composed_masked.c   its products if operands that a mask forbids are not finite
 *   fused.c             the rows of the fused form: attention, its log-sum-exp, their gradient
 *   fused_forward.c     the forward pass over tiles of scores
 *   fused_backward.c    the backward pass over tiles of scores
 *   fused_masked.c      what composed_masked.c does, for tiles
 *   ring.c              eg_attention(.ranks): a length that is divided among ranks
 *   ring_walk.h         names the files that compute it
 *   tiles.c             where elements of a tile lie
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
/* The role of an axis in the two products, q·k and weights v. */
typedef enum eg_part {
    EG_PART_BATCH, /* of both products */
    EG_PART_QUERY, /* of q and y alone */
    EG_PART_KEY,   /* of k and v: what the softmax runs over */
    EG_PART_DOT,   /* of q and k: what is summed for a score */
    EG_PART_VALUE, /* of v and y alone */
    EG_PARTS
} eg_part;
/* A bound attention call: the role of each axis, and the options. It is the attribute of the node
 * and holds no tensor. */
typedef struct eg_attention_plan {
    int axes; /* of all terms together; they are numbered from 0 */
    int64_t size[3 * EG_RANK_MAX];
    uint8_t part[3 * EG_RANK_MAX]; /* eg_part */
    int rank[EG_TERMS + 1];        /* by term, the result last; −1: there is no such term */
    uint16_t label[EG_TERMS + 1][EG_RANK_MAX]; /* the terms' axes, all different within a term */
    int scores, inner; /* axes of the scores; the last `inner` are the keys */
    uint16_t score[EG_RANK_MAX];
    double scale; /* of q·k, before the expression; may be negative */
    eg_drop drop;
    bool dropping;   /* dropout is on: drop is set */
    bool no_softmax; /* the scores are the weights */
    bool hooked;     /* .score_fn changes the scores, and may mask some of them */
    bool wants_lse; /* the node has y and the log-sum-exp (fused.c), its gradient's cotangent too */
    bool careful;   /* what is forbidden may have numbers that are not finite:
                     * eg__attend_careful */
    uint32_t wanted; /* of a gradient: the tensors of the expressions whose cotangents it has */
    /* the expressions: letter k is axis score[k]; the tensors are operands after those of terms */
    int tensors;
    int64_t least[EG_TENSORS_MAX], most[EG_TENSORS_MAX]; /* bounds of those of integers */
    /* bytes of the predicate, with all that .keep, .lengths and a strict .bias add, and of the
     * score, with .bias and .alibi; 0: there is none */
    size_t where_bytes, score_bytes;
    uint64_t expressions[];
} eg_attention_plan;
/* Returns the predicate that all masks together make; NULL if no pair is forbidden. */
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
/* Makes −inf in .bias forbid its pair as masks do. Without this it only makes the weight 0, which
 * is the same if the operands are finite and there is a softmax. */
static inline void eg__attention_be_strict(eg_attention_plan *a)
{
    eg_expression *e = (void *)a->expressions;
    if (a->where_bytes) e->root = e->strict;
}
/* True if pairs may be forbidden: by masks, by the caller's function, or by a score of −inf. */
static inline bool eg__attention_watches(const eg_attention_plan *a)
{
    return a->where_bytes || a->hooked;
}
/* Sets size[] to the sizes of the scores. */
static inline void eg__score_sizes(const eg_attention_plan *a, int64_t *size)
{
    for (int s = 0; s < a->scores; s++) size[s] = a->size[a->score[s]];
}

/* -- bind_expressions.c ----------------------------------------------------------------------- */
/* The options whose value is a tensor with letters of its own. */
enum { EG_MASK_KEEP, EG_MASK_BIAS, EG_MASK_LENGTHS, EG_MASK_ALIBI, EG_MASK_SINK, EG_MASKS };
/* The two expressions of a call and the tensors that they read. */
typedef struct eg_attention_texts {
    eg_expression *where, *score; /* NULL: there is none */
    int tensors;
    eg_tensor *x[EG_TENSORS_MAX];
    int64_t least[EG_TENSORS_MAX], most[EG_TENSORS_MAX];
} eg_attention_texts;
/* Lists the tensors that the expressions of a call read: those of .with, then those of options,
 * mask[EG_MASKS] (NULL: not given). Returns how many. */
int eg__attention_tensors(const eg_attention_args *, eg_tensor *const *mask, eg_tensor **x);
/* True if the values of the tensors of integers lie within the bounds of the plan. */
bool eg__attention_within(const eg_attention_plan *, eg_tensor *const *x);
/* Parses the expressions of a call over the scores of `m`. The options are the terms term[EG_MASKS]
 * of its bound string, −1: not given; query[r] is true if axis r of the scores is one of the query
 * alone. False after an error. */
bool eg__attention_texts(eg_attention_texts *, const eg_masking *m, const eg_attention_args *,
                         const int *term, const bool *query);

/* -- composed.c ------------------------------------------------------------------------------- */
/* In all functions of this section x lists the operands by term, NULL for a term that is absent;
 * scores and weights have the axes a->score. Functions that return a tensor return poison after an
 * error. */
/* The masks of a call: bool tensors over the scores, true where a pair is allowed; at most one. */
typedef struct eg_attention_masks {
    int n; /* −1 after an error */
    eg_tensor *mask[1];
} eg_attention_masks;
eg_attention_masks eg__attend_masks(const eg_attention_plan *, eg_tensor *const *x);
/* Returns score(scale q·k) / *left. Sets *left to the scale if there is no expression, else to 1:
 * the caller multiplies by it later. */
eg_tensor *eg__attend_scores(const eg_attention_plan *, const eg_attention_masks *,
                             eg_tensor *const *x, double *left);
/* softmax(left scores), or left scores without a softmax; 0 where a mask forbids */
eg_tensor *eg__attend_weights(const eg_attention_plan *, const eg_attention_masks *,
                              eg_tensor *const *x, eg_tensor *scores, double left);
/* weights v */
eg_tensor *eg__attend_values(const eg_attention_plan *, const eg_attention_masks *,
                             eg_tensor *const *x, eg_tensor *weights);
/* Returns ln (Σ e^scores + e^sink), summed over the allowed pairs. */
eg_tensor *eg__attend_lse(const eg_attention_plan *, const eg_attention_masks *,
                          eg_tensor *const *x, eg_tensor *scores);
/* Sets d[] to the cotangents of the operands (NULL: none), made of differentiable operations; after
 * an error the query's is poison. g is the cotangent of y, g_lse that of the log-sum-exp, with the
 * axes of the scores' rows; one of them may be NULL. */
void eg__attend_gradient(const eg_attention_plan *, eg_tensor *const *x, eg_tensor *g,
                         eg_tensor *g_lse, eg_tensor **d);

/* -- composed_masked.c ------------------------------------------------------------------------ */
/* True if a pair may be forbidden and q, k or v has a number that is not finite, or so large that
 * products overflow (eg__tame). With g not NULL, only g is tested. If true, −inf in .bias forbids,
 * too. */
bool eg__attend_careful(const eg_attention_plan *, eg_tensor *const *x, eg_tensor *g);
/* Returns the plan itself, or a careful copy of it if the cotangents g and g_lse (NULL: none) need
 * one; NULL after an error. */
const eg_attention_plan *eg__attention_careful(const eg_attention_plan *, eg_tensor *const *x,
                                               eg_tensor *g, eg_tensor *g_lse);
typedef struct eg_labelled_tensor {
    eg_tensor *x;
    int rank;
    const uint16_t *label;
} eg_labelled_tensor;
/* Returns the einsum of u and v. One of u, v and the result (out == a->score) is over the scores. A
 * number that is not finite counts only in pairs that all masks allow. Numbers of the operands q, k
 * and v are treated so only if the plan is careful, numbers of cotangents always. */
eg_tensor *eg__masked_product(const eg_attention_plan *, const eg_attention_masks *,
                              const eg_labelled_tensor *u, const eg_labelled_tensor *v, int rank,
                              const uint16_t *out);

/* -- fused.c ---------------------------------------------------------------------------------- */
/* True if the fused form can compute this call: no size is 0, and the kernel's tile is a multiple
 * of a vector wide. */
bool eg__flash_possible(const eg_attention_plan *, eg_dtype);
/* True if the fused form can compute this call and is faster than the composed one. */
bool eg__flash_suits(const eg_attention_plan *, eg_dtype);
/* Returns y, equal to the composed form's up to rounding. Sets *empty (if not NULL) to the number
 * of rows in which every pair is forbidden, and, if the plan wants it, *lse to the log-sum-exp of
 * each row, with the axes of the scores' rows. */
eg_tensor *eg__flash(const eg_attention_plan *, eg_tensor *const *x, int64_t *empty,
                     eg_tensor **lse);

/* -- ring.c ----------------------------------------------------------------------------------- */
/* eg_attention with .ranks. */
eg_tensor *eg__attention_ring(eg_ctx *, const eg_attention_args *);

/* -- tile_math.c ------------------------------------------------------------------------------ */
/* Arithmetic on a tile of f32 or f64: rows of w lanes, aligned to 64 bytes. In the forward pass a
 * lane is a query, in the backward pass a key. Arguments "by lane" have one number per lane, those
 * "by row" one per row. Scores are given times log2 e, so that weights are powers of 2. */
typedef struct eg_tile_ops {
    int lanes; /* of a vector; w is a multiple */
    /* of n elements */
    void (*scale)(int64_t n, void *x, double c);                  /* x c */
    void (*add)(int64_t n, void *x, const void *y, double c);     /* x + c y */
    void (*mask_out)(int64_t n, void *x, const uint8_t *allowed); /* allowed ? x : −inf */
    void (*apply_dropout)(int64_t n, void *x, const uint8_t *kept, double factor);
    /* kept ? x factor : 0 */
    void (*zero_nonfinite)(int64_t n, void *x); /* x is finite ? x : 0 */
    /* Σ x y: elements whose positions are equal modulo 16 are summed in order, then these sums in
     * halves, whatever the strides */
    double (*dot)(int64_t n, const void *x, int64_t x_step, const void *y, int64_t y_step);
    /* inv_sum = 1/row_sum, or 0 where row_sum is 0; returns the number of these zeros */
    int64_t (*invert_sums)(int64_t n, const void *row_sum, void *inv_sum);
    /* One step of the online softmax, by lane: m' = max(m, x), x = 2^(x − m'), decay = 2^(m − m'),
     * sum = sum decay + Σ x. If m is NaN it stays so, and decay is 1. True if any decay is not 1.
     */
    bool (*online_softmax)(int w, int64_t rows, void *x, void *row_max, void *row_sum, void *decay);
    void (*scale_lanes)(int w, int64_t rows, void *x, const void *lane); /* x lane */
    /* by row: 2^(x − row_max) inv_sum */
    void (*exp_scaled)(int w, int64_t rows, void *x, const void *row_max, const void *inv_sum);
    /* by row: weights (x − mean + added). The mean is Σ weights x. Where a weight is 1, x − mean is
     * taken to be 0, so that rounding leaves no difference; if the mean is not finite, it is taken
     * to be 0 where a weight is 0 instead. added NULL: 0 */
    void (*softmax_slope)(int w, int64_t rows, const void *weights, void *x, const void *mean,
                          const void *added);
} eg_tile_ops;
/* Returns the functions for tiles of w lanes; NULL if w is not a multiple of any vector's
 * length. */
const eg_tile_ops *eg__tile_ops(eg_dtype, int w);

/* -- tiles.c: where elements lie -------------------------------------------------------------- */
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
    EG_SLOT_DSINK, /* sums in doubles */
    EG_SLOT_DRAW,  /* the index from which dropout draws: that of the scores, row-major */
    EG_SLOTS
};
typedef struct eg_flash_axis {
    int64_t size;
    int64_t step[EG_SLOTS]; /* elements from one to the next, in each array; 0 where it is absent */
    int axis;               /* its number in the plan */
    int score;              /* its place in a->score; −1: none */
} eg_flash_axis;
/* The axes of one part, the last varying fastest; `total` elements in all. */
typedef struct eg_flash_list {
    int n;
    int64_t total;
    eg_flash_axis axis[EG_RANK_MAX];
} eg_flash_list;
/* A plan and the arrays that a pass over tiles reads and writes. */
typedef struct eg_flash {
    const eg_attention_plan *a;
    eg_drop drop; /* the plan's; with copies, of the copy that is being computed */
    eg_flash_list list[EG_PARTS];
    eg_panel_kernel kernel;
    const eg_tile_ops *ops;
    eg_dtype dtype;
    int64_t width;        /* bytes of a number */
    int wide, narrow;     /* the kernel's side along which it stores, and the other one */
    bool careful;         /* an operand is not tame (eg__tame): forbidden pairs are left out */
    char *data[EG_SLOTS]; /* NULL: there is none */
    /* the expressions (NULL: none), the tensors that they read, and bounds of integers */
    const eg_expression *where, *score;
    eg_source source[EG_TENSORS_MAX];
    int64_t size[EG_RANK_MAX]; /* of the scores */
    eg_bounds bounds;
    bool bounded; /* the predicate reads tensors: bounds is filled */
} eg_flash;
void eg__flash_open(eg_flash *, const eg_attention_plan *, eg_dtype);
/* Sets array `at` to the tensor x, whose axes are those of `term`. */
void eg__flash_place(eg_flash *, int at, int term, const eg_tensor *);
/* Sets array `at` to data, whose n axes are those of the plan in label, with these steps. */
void eg__flash_lay(eg_flash *, int at, int n, const uint16_t *label, const int64_t *step,
                   char *data);
/* Sets array `at` to row-major memory with the axes of `term`. */
void eg__flash_spread(eg_flash *, int at, int term, char *data);
/* Returns the offset, in elements, of element i of a part's list in array `at`. */
int64_t eg__flash_at(const eg_flash *, eg_part, int at, int64_t i);
/* Sets off[] to the offsets of elements from … from + count − 1. */
void eg__flash_offsets(const eg_flash *, eg_part, int at, int64_t from, int64_t count,
                       int64_t *off);

/* Elements from … from + count of a part's list. */
typedef struct eg_stretch {
    eg_part part;
    int64_t from, count;
} eg_stretch;
/* Packs a stretch of rows into panels of w, dst[panel][depth][w]. The caller gives room in `runs`
 * for depth.count + 1 runs. */
void eg__flash_pack(const eg_flash *, int w, eg_stretch rows, eg_stretch depth, int at,
                    const char *base, char *dst, eg_run *runs);
/* Writes the lanes of one panel, tile[column][wide], to their positions in array `at`. */
void eg__flash_unpack(const eg_flash *, eg_stretch lanes, eg_stretch columns, int at,
                      const char *tile, char *base);

/* One batch of the scores. */
typedef struct eg_flash_batch {
    int64_t number;
    int64_t index[EG_RANK_MAX]; /* by score axis; those of the batch are set */
    int64_t at[EG_SLOTS];       /* where it begins in each array, in elements */
} eg_flash_batch;
void eg__flash_batch(const eg_flash *, int64_t number, eg_flash_batch *);
/* For dropout: sets tile[] to 1 where a weight is kept and to 0 where it is dropped or the lane is
 * not below lanes.count. */
void eg__flash_dropout(const eg_flash *, const eg_flash_batch *, eg_stretch rows, eg_stretch lanes,
                       uint8_t *tile);

/* -- fused_forward.c, fused_backward.c -------------------------------------------------------- */
#define EG_LOG2_E 1.4426950408889634
/* The statistics of each row of the scores times log2 e, in the scores' type. */
typedef struct eg_row_stats {
    void *row_max; /* max s; NULL: the statistics are not kept */
    void *inv_sum; /* 1/Σ 2^(s − max s); 0 where every pair of the row is forbidden */
} eg_row_stats;
/* Computes y (if array Y is placed) and the statistics (each if not NULL). Sets *empty to the
 * number of rows whose pairs are all forbidden. False after an error. */
bool eg__flash_forward(eg_ctx *, const eg_flash *, const eg_row_stats *, int64_t *empty);
/* Computes from the arrays Y, G and G_LSE (Y and G may be absent together, or G_LSE) and the
 * statistics the arrays DQ, DK and DV, and writes the cotangents of the sink and of the tensors
 * that the score reads (x: all operands) to to[k] (NULL: not wanted). False after an error. */
bool eg__flash_back(eg_ctx *, eg_flash *, const eg_row_stats *, eg_tensor *const *x,
                    char *const *to);
#endif
