/* attention.h: y = softmax(scale q·k + bias) v with masks and dropout, in two forms with the same
 * result up to rounding: composed of einsum, softmax and einsum, or fused, which never holds all
 * weights in memory (Dao et al. 2022; Rabe, Staats 2021; the online softmax of Milakov, Gimelshein
 * 2018). The files of this folder:
 *
 *   bind.c              makes an eg_attention_plan of the string and the options; chooses the form
 *   composed.c          the composed form, which defines the result
 *   composed_masked.c   its products if operands that a mask forbids are not finite
 *   fused.c             the rows of the fused form: attention, its log-sum-exp, their gradient
 *   fused_forward.c     the forward pass over tiles of scores
 *   fused_backward.c    the backward pass over tiles of scores
 *   fused_masked.c      what composed_masked.c does, for tiles
 *   tiles.c             where elements of a tile lie, and what the masks allow of it
 *   tile_math.c         arithmetic on a tile */
#ifndef EG_ATTENTION_H
#define EG_ATTENTION_H
#include "autograd/autograd.h"
#include <eingrad/attention.h>

/* -- a call, bound ---------------------------------------------------------------------------- */
/* The terms of a call: the operands in the order in which a row has them, and the result. */
enum {
    EG_TERM_Q,
    EG_TERM_K,
    EG_TERM_V,
    EG_TERM_BIAS,
    EG_TERM_SLOPES, /* of .alibi */
    EG_TERM_KEEP,
    EG_TERM_LENGTHS, /* as a mask over the keys */
    EG_TERMS,
    EG_TERM_Y = EG_TERMS
};
/* What an axis is to the two products. */
typedef enum eg_part {
    EG_PART_BATCH, /* of both products */
    EG_PART_QUERY, /* of q and y alone */
    EG_PART_KEY,   /* of k and v: what the softmax runs over */
    EG_PART_DOT,   /* of q and k: what is summed for a score */
    EG_PART_VALUE, /* of v and y alone */
    EG_PARTS
} eg_part;
/* An attention call, bound: which axis plays which part, and the options. The attribute of a node;
 * it holds no tensor. */
typedef struct eg_attention_plan {
    int axes; /* of all terms together; they are numbered from 0 */
    int64_t size[3 * EG_RANK_MAX];
    uint8_t part[3 * EG_RANK_MAX]; /* eg_part */
    int rank[EG_TERMS + 1];        /* by term, the result last; −1: there is no such term */
    uint16_t label[EG_TERMS + 1][EG_RANK_MAX]; /* the terms' axes, all different within a term */
    int scores, inner; /* axes of the scores; the last `inner` are the keys */
    uint16_t score[EG_RANK_MAX];
    double scale;                    /* of q·k, before anything is added; may be negative */
    int64_t offset;                  /* added to score axis `moved` in the predicate */
    int moved;                       /* −1: none */
    uint16_t slope_query, slope_key; /* with slopes: the axes whose distance counts */
    eg_drop drop;
    bool dropping;  /* dropout is on: drop is set */
    bool masked;    /* there is a predicate */
    bool hooked;    /* .score_fn changes the scores, and may mask some */
    bool wants_lse; /* the log-sum-exp is asked for, too */
    bool careful;   /* what is forbidden may have numbers that are not finite: eg__attend_careful */
    uint64_t predicate[];
} eg_attention_plan;
/* The predicate; NULL if there is none. */
static inline const eg_predicate *eg__attention_where(const eg_attention_plan *a)
{
    return a->masked ? (const void *)a->predicate : NULL;
}
static inline size_t eg__attention_bytes(const eg_attention_plan *a)
{
    return sizeof *a + (a->masked ? eg__where_bytes(eg__attention_where(a)) : 0);
}

/* -- composed.c ------------------------------------------------------------------------------- */
/* Everywhere x are the operands by term, NULL where there is none; scores and weights have the axes
 * a->score. Poison after an error. */
/* What may be seen: bool tensors over the scores, all of which must allow a pair. */
typedef struct eg_attention_masks {
    int n; /* −1 after an error */
    eg_tensor *mask[2];
} eg_attention_masks;
eg_attention_masks eg__attend_masks(const eg_attention_plan *, eg_tensor *const *x);
/* (scale q·k + bias) / *left, where *left is the scale if nothing is added to q·k, else 1. */
eg_tensor *eg__attend_scores(const eg_attention_plan *, const eg_attention_masks *,
                             eg_tensor *const *x, double *left);
/* softmax(left scores), 0 where a mask forbids */
eg_tensor *eg__attend_weights(const eg_attention_plan *, const eg_attention_masks *,
                              eg_tensor *scores, double left);
/* weights v */
eg_tensor *eg__attend_values(const eg_attention_plan *, const eg_attention_masks *,
                             eg_tensor *const *x, eg_tensor *weights);
/* ln Σ e^scores of what may be seen */
eg_tensor *eg__attend_lse(const eg_attention_plan *, const eg_attention_masks *, eg_tensor *scores);
/* The cotangents d by term, up to the slopes, made of operations that have gradients. g is y's
 * cotangent, or without a value (rank[EG_TERM_V] < 0) that of the log-sum-exp. */
void eg__attend_gradient(const eg_attention_plan *, eg_tensor *const *x, eg_tensor *g,
                         eg_tensor **d);

/* -- composed_masked.c ------------------------------------------------------------------------ */
/* True if something may be forbidden and q, k or v (g not NULL: or g alone) has a number that is
 * not finite or so large that products overflow (eg__tame). Then −inf in a bias forbids as well. */
bool eg__attend_careful(const eg_attention_plan *, eg_tensor *const *x, const eg_tensor *g);
typedef struct eg_labelled_tensor {
    eg_tensor *x;
    int rank;
    const uint16_t *label;
} eg_labelled_tensor;
/* The einsum of u and v, one of which, or the result (out == a->score), is over the scores. A
 * number of u or v that is not finite counts in pairs that all masks allow and in no other; of the
 * operands themselves only if the plan is careful, of cotangents always. */
eg_tensor *eg__masked_product(const eg_attention_plan *, const eg_attention_masks *,
                              const eg_labelled_tensor *u, const eg_labelled_tensor *v, int rank,
                              const uint16_t *out);

/* -- fused.c ---------------------------------------------------------------------------------- */
/* True if the fused form can compute this: no size is 0, and the side of the kernel's tile is a
 * multiple of a vector. */
bool eg__flash_possible(const eg_attention_plan *, eg_dtype);
/* True if the fused form can compute this and is faster than the composed one. */
bool eg__flash_suits(const eg_attention_plan *, eg_dtype);
/* y, up to rounding that of the composed form. *empty (may be NULL) becomes the number of rows with
 * nothing to attend to. */
eg_tensor *eg__flash(const eg_attention_plan *, eg_tensor *const *x, int64_t *empty);
/* The log-sum-exp of the rows, whose maxima and sums are read from y = eg__flash of the same. */
eg_tensor *eg__flash_lse(const eg_attention_plan *, const eg_tensor *y, eg_tensor *const *x);

/* -- tile_math.c ------------------------------------------------------------------------------ */
/* Arithmetic on a tile of f32 or f64: rows of w lanes, 64-byte aligned. A lane is the same query
 * (forward) or the same key (backward) in every row; "by lane" reads one number for each lane, "by
 * row" one for each row. Scores come scaled by log2 e. */
typedef struct eg_tile_ops {
    int lanes; /* of a vector; w is a multiple */
    /* of n elements */
    void (*scale)(int64_t n, void *x, double c);                  /* x c */
    void (*add)(int64_t n, void *x, const void *y, double c);     /* x + c y */
    void (*mask_out)(int64_t n, void *x, const uint8_t *allowed); /* allowed ? x : −inf */
    void (*apply_dropout)(int64_t n, void *x, const uint8_t *kept, double factor);
    /* kept ? x factor : 0 */
    void (*zero_nonfinite)(int64_t n, void *x); /* x is finite ? x : 0 */
    /* inv_sum = 1/row_sum, 0 where that is 0; returns in how many places it is */
    int64_t (*invert_sums)(int64_t n, const void *row_sum, void *inv_sum);
    /* One step of the online softmax, by lane: m' = max(m, x), x = 2^(x − m'), decay = 2^(m − m'),
     * sum = sum decay + Σ x. True if any decay is not 1. */
    bool (*online_softmax)(int w, int64_t rows, void *x, void *row_max, void *row_sum, void *decay);
    /* x − lane_slope row_slope |lane − row| */
    void (*subtract_distance)(int w, int64_t rows, void *x, const void *lane,
                              const void *lane_slope, const void *row, const void *row_slope);
    void (*scale_lanes)(int w, int64_t rows, void *x, const void *lane); /* x lane */
    /* by row: 2^(x − row_max) inv_sum */
    void (*exp_scaled)(int w, int64_t rows, void *x, const void *row_max, const void *inv_sum);
    /* by row: weights (x − mean). centered: the mean is Σ weights x, so that where a weight is 1 it
     * is x, whatever its rounding */
    void (*softmax_slope)(int w, int64_t rows, const void *weights, void *x, const void *mean,
                          bool centered);
} eg_tile_ops;
/* NULL: w is no multiple of any vector */
const eg_tile_ops *eg__tile_ops(eg_dtype, int w);

/* -- tiles.c: where elements lie -------------------------------------------------------------- */
/* The arrays that a pass reads or writes. */
enum {
    EG_SLOT_Q,
    EG_SLOT_K,
    EG_SLOT_V,
    EG_SLOT_BIAS,
    EG_SLOT_SLOPES,
    EG_SLOT_KEEP,
    EG_SLOT_LENGTHS,
    EG_SLOT_Y,
    EG_SLOT_G,
    EG_SLOT_DQ,
    EG_SLOT_DK,
    EG_SLOT_DV,
    EG_SLOT_DRAW, /* the index by which dropout draws: that of the scores, row-major */
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
/* A plan with the arrays it works on. */
typedef struct eg_flash {
    const eg_attention_plan *a;
    eg_flash_list list[EG_PARTS];
    eg_panel_kernel kernel;
    const eg_tile_ops *ops;
    eg_dtype dtype;
    int64_t width;        /* bytes of a number */
    int wide, narrow;     /* the kernel's side along which it stores, and the other one */
    bool careful;         /* an operand is not tame: forbidden pairs are taken out one by one */
    char *data[EG_SLOTS]; /* NULL: there is none */
} eg_flash;
void eg__flash_open(eg_flash *, const eg_attention_plan *, eg_dtype);
/* Sets array `at` to x, whose axes are those of `term`. */
void eg__flash_place(eg_flash *, int at, int term, const eg_tensor *);
/* The same of a row-major array. */
void eg__flash_spread(eg_flash *, int at, int term, char *data);
/* Where element i of a part's list lies in array `at`, in elements. */
int64_t eg__flash_at(const eg_flash *, eg_part, int at, int64_t i);
/* The same of the elements from … from + count. */
void eg__flash_offsets(const eg_flash *, eg_part, int at, int64_t from, int64_t count,
                       int64_t *off);

/* Elements from … from + count of a part's list. */
typedef struct eg_stretch {
    eg_part part;
    int64_t from, count;
} eg_stretch;
/* Packs into panels of w rows, dst[panel][depth][w]. runs: room for depth.count + 1 of them. */
void eg__flash_pack(const eg_flash *, int w, eg_stretch rows, eg_stretch depth, int at,
                    const char *base, char *dst, eg_run *runs);
/* Writes the lanes of one panel, tile[column][wide], to where they lie in array `at`. */
void eg__flash_unpack(const eg_flash *, eg_stretch lanes, eg_stretch columns, int at,
                      const char *tile, char *base);

/* One batch of the scores. */
typedef struct eg_flash_batch {
    int64_t number;
    int64_t index[EG_RANK_MAX]; /* by score axis; those of the batch are set */
    int64_t size[EG_RANK_MAX];  /* by score axis */
    int64_t at[EG_SLOTS];       /* where it begins in each array, in elements */
} eg_flash_batch;
void eg__flash_batch(const eg_flash *, int64_t number, eg_flash_batch *);
/* Returns whether the predicate allows all of a tile, some of it or nothing. */
eg_cover eg__flash_where(const eg_flash *, const eg_flash_batch *, eg_stretch queries,
                         eg_stretch keys);
/* Subtracts slope |i − j| from the scores of a tile of at most 256 rows. */
void eg__flash_distance(const eg_flash *, const eg_flash_batch *, eg_stretch rows, eg_stretch lanes,
                        char *tile);
/* Writes the bytes of a tile: 1 where the query may see the key; 0 in lanes beyond `lanes`. Returns
 * what they are. */
eg_cover eg__flash_allow(const eg_flash *, const eg_flash_batch *, eg_stretch rows,
                         eg_stretch lanes, uint8_t *tile);
/* The same for dropout: 1 where a weight is kept. */
void eg__flash_dropout(const eg_flash *, const eg_flash_batch *, eg_stretch rows, eg_stretch lanes,
                       uint8_t *tile);

/* -- fused_forward.c, fused_backward.c -------------------------------------------------------- */
#define EG_LOG2_E 1.4426950408889634
/* Of each row of the scores times log2 e, in the scores' type. */
typedef struct eg_row_stats {
    void *row_max; /* max s; NULL: the statistics are not kept */
    void *inv_sum; /* 1/Σ 2^(s − max s); 0 where nothing may be attended to */
} eg_row_stats;
/* Writes Y, if that array is placed, and the statistics, if they are not NULL. False after an
 * error. */
bool eg__flash_forward(eg_ctx *, const eg_flash *, const eg_row_stats *, int64_t *empty);
/* From Y and G, and the statistics, to DQ, DK, DV. False after an error. */
bool eg__flash_back(eg_ctx *, const eg_flash *, const eg_row_stats *);
#endif
