/* attention.h: attention without its weights in memory (Dao et al. 2022; Rabe, Staats 2021; the
 * running softmax of Milakov, Gimelshein 2018).
 *
 *   attention.c    the string and the options → an eg_attending; which form
 *   composed.c       the composed form: einsum, softmax, einsum; the meaning of all the others
 *   composed_masked.c  its products where a mask forbids numbers that are not finite;
 * fused_masked.c: the same of tiles fused.c        the rows: attention, its log-sum-exp, and their
 * gradient fused_forward.c   the pass forward over tiles of scores fused_backward.c   the pass back
 *   tiles.c  where elements lie, what masks say of a tile
 *   tile_math.c  arithmetic on a tile */
#ifndef EG_FLASH_H
#define EG_FLASH_H
#include "autograd/autograd.h"
#include <eingrad/attention.h>

/* -- attention without its tensors: what a node remembers ------------------------------------- */
enum {
    EG_ATT_Q,
    EG_ATT_K,
    EG_ATT_V,
    EG_ATT_BIAS,
    EG_ATT_SLOPES,
    EG_ATT_KEEP,
    EG_ATT_KEEP2,
    EG_ATT_TERMS,
    EG_ATT_Y = EG_ATT_TERMS
};
typedef enum eg_kind {
    EG_KIND_BATCH,
    EG_KIND_QUERY,
    EG_KIND_KEY,
    EG_KIND_DOT,
    EG_KIND_VALUE,
    EG_KINDS
} eg_kind;
typedef struct eg_attending {
    int axes, terms;
    int64_t size[3 * EG_RANK_MAX];
    uint8_t kind[3 * EG_RANK_MAX];
    int rank[EG_ATT_TERMS + 1]; /* of q, k, v, … and the result; −1: there is none */
    uint16_t label[EG_ATT_TERMS + 1][EG_RANK_MAX]; /* their axes, all different */
    int scores, inner; /* axes of the scores; the last `inner` are the keys */
    uint16_t score[EG_RANK_MAX];
    double scale;
    int64_t offset; /* added to score axis `moved` in the predicate */
    int moved;
    uint16_t here, there; /* with slopes: the query and the key whose distance counts */
    eg_drop drop;
    /* masked: a predicate follows; asked: for the log-sum-exp, too */
    bool dropping, masked, asked;
    bool careful; /* there are masks, and q, k or v is not tame (eg__attend_careful) */
    uint64_t predicate[];
} eg_attending;
static inline const eg_predicate *eg__attending_where(const eg_attending *a)
{
    return a->masked ? (const void *)a->predicate : NULL;
}
static inline size_t eg__attending_bytes(const eg_attending *a)
{
    return sizeof *a + (a->masked ? eg__where_bytes(eg__attending_where(a)) : 0);
}

/* -- composed.c: x by term, NULL where there is none; scores and weights over a->score ----------
 */
/* (scale q·k + bias) / left; left is the scale where nothing is added, else 1 */
eg_tensor *eg__attend_scores(const eg_attending *, eg_tensor *const *x, double *left);
eg_tensor *eg__attend_weights(const eg_attending *, eg_tensor *const *x, eg_tensor *scores,
                              double left);
/* w v */
eg_tensor *eg__attend_values(const eg_attending *, eg_tensor *const *x, eg_tensor *weights);
/* ln Σ e^s of what may be seen */
eg_tensor *eg__attend_lse(const eg_attending *, eg_tensor *const *x, eg_tensor *scores);
/* d by term, up to the slopes; in operations that have gradients */
void eg__attend_gradient(const eg_attending *, eg_tensor *const *x, eg_tensor *g, eg_tensor **d);
/* x over a->score */
eg_tensor *eg__attend_aligned(const eg_attending *, int term, eg_tensor *x);
/* -- composed_masked.c */
/* True if something may be forbidden and q, k or v (g not NULL: or g alone) has a number that is
 * not finite or is so large that products overflow (tame, ops.h). Then −inf in a bias forbids as
 * well. */
bool eg__attend_careful(const eg_attending *, eg_tensor *const *x, const eg_tensor *g);
/* The einsum of u and v, one of which or the result (out: a->score) is over the scores; of u and v,
 * what is not finite counts in pairs that all masks (bool, over the scores) allow, and in no other.
 */
typedef struct eg_labelled_tensor {
    eg_tensor *x;
    int rank;
    const uint16_t *label;
} eg_labelled_tensor;
eg_tensor *eg__masked_product(const eg_attending *a, int masks, eg_tensor *const *mask,
                              const eg_labelled_tensor *u, const eg_labelled_tensor *v, int rank,
                              const uint16_t *out);

/* -- fused.c ---------------------------------------------------------------------------------- */
/* no size is 0, and the kernel's side is of whole vectors */
bool eg__flash_possible(const eg_attending *, eg_dtype);
bool eg__flash_suits(const eg_attending *, eg_dtype); /* … and tiles pay */
/* as eg__attend_values of the weights, and eg__attend_lse, up to rounding */
/* empty: rows with nothing to attend to */
eg_tensor *eg__flash(const eg_attending *, eg_tensor *const *x, int64_t *empty);
/* y: eg__flash of the same, whose sums it reads */
eg_tensor *eg__flash_lse(const eg_attending *, const eg_tensor *y, eg_tensor *const *x);

/* -- tile_math.c: a tile is rows of w lanes, a lane the same query (forward) or key (back) in
 * every row; memory 64-byte aligned */
typedef struct eg_flash_lanes {
    int lanes;                                                /* of a vector; w is a multiple */
    void (*scale)(int64_t n, void *x, double c);              /* x c */
    void (*add)(int64_t n, void *x, const void *y, double c); /* x + c y */
    void (*forbid)(int64_t n, void *x, const uint8_t *allow); /* allow ? x : −inf */
    /* stay ? x factor : 0 */
    void (*thin)(int64_t n, void *x, const uint8_t *stay, double factor);
    void (*finite)(int64_t n, void *x); /* x is finite ? x : 0 */
    /* by lane: most' = max(most, x); x = 2^(x − most'); total' = total fade + Σ x, fade = 2^(most −
     * most'); is any fade not 1? */
    bool (*soften)(int w, int64_t rows, void *x, void *most, void *total, void *fade);
    /* x − lane_slope row_slope |lane − row| */
    void (*ramp)(int w, int64_t rows, void *x, const void *lane, const void *lane_slope,
                 const void *row, const void *row_slope);
    void (*fade)(int w, int64_t rows, void *x, const void *lane); /* x lane */
    /* by row: 2^(x − most) share */
    void (*weigh)(int w, int64_t rows, void *x, const void *most, const void *share);
    /* by row: weights (x − mean); centered: the mean is Σ weights x, so that where a weight is 1 it
     * is x, whatever its rounding */
    void (*slope)(int w, int64_t rows, const void *weights, void *x, const void *mean,
                  bool centered);
} eg_flash_lanes;
/* NULL: w is no multiple of any vector */
const eg_flash_lanes *eg__flash_lanes(eg_dtype, int w);

/* -- tiles.c: where elements lie -------------------------------------------------------- */
enum {
    EG_AT_Q,
    EG_AT_K,
    EG_AT_V,
    EG_AT_BIAS,
    EG_AT_SLOPES,
    EG_AT_KEEP,
    EG_AT_KEEP2,
    EG_AT_Y,
    EG_AT_G,
    EG_AT_DQ,
    EG_AT_DK,
    EG_AT_DV,
    EG_AT_DRAW,
    EG_AT_ALL
};
/* its number; its place in a->score */
typedef struct eg_flash_axis {
    int64_t size, step[EG_AT_ALL];
    int axis, score;
} eg_flash_axis;
typedef struct eg_flash_list {
    int n;
    int64_t total;
    eg_flash_axis axis[EG_RANK_MAX];
} eg_flash_list;
typedef struct eg_flash {
    const eg_attending *a;
    eg_flash_list list[EG_KINDS];
    const eg_kernel *kernel;
    const eg_flash_lanes *lanes;
    eg_dtype dtype;
    int64_t width;         /* bytes of a number */
    int wide, narrow;      /* the kernel's side along which it stores, and the other one */
    bool careful;          /* an operand is not tame: forbidden pairs are taken out one by one */
    char *data[EG_AT_ALL]; /* NULL: there is none */
} eg_flash;
void eg__flash_open(eg_flash *, const eg_attending *, eg_dtype);
/* x, whose axes are those of `term`, is data[at] */
void eg__flash_place(eg_flash *, int at, int term, const eg_tensor *);
/* the same of a row-major array */
void eg__flash_spread(eg_flash *, int at, int term, char *data);
/* where the list's element i lies: elements */
int64_t eg__flash_at(const eg_flash *, eg_kind, int at, int64_t i);
void eg__flash_offsets(const eg_flash *, eg_kind, int at, int64_t from, int64_t count,
                       int64_t *off);

/* A stretch of a list: elements from … from + count */
typedef struct eg_stretch {
    eg_kind kind;
    int64_t from, count;
} eg_stretch;
/* panels of w rows: dst[panel][depth][w]; runs: room for depth.count + 1 of them */
void eg__flash_pack(const eg_flash *, int w, eg_stretch rows, eg_stretch depth, int at,
                    const char *base, char *dst, eg_run *runs);
/* the lanes of one panel, tile[column][wide], to where they lie */
void eg__flash_unpack(const eg_flash *, eg_stretch lanes, eg_stretch columns, int at,
                      const char *tile, char *base);

/* One batch of the scores */
typedef struct eg_flash_batch {
    int64_t number, index[EG_RANK_MAX], size[EG_RANK_MAX], at[EG_AT_ALL];
} eg_flash_batch;
void eg__flash_batch(const eg_flash *, int64_t number, eg_flash_batch *);
/* of the predicate */
eg_three eg__flash_where(const eg_flash *, const eg_flash_batch *, eg_stretch queries,
                         eg_stretch keys);
/* The scores of a tile − slope |i − j|; `rows` are at most 256 */
void eg__flash_ramp(const eg_flash *, const eg_flash_batch *, eg_stretch rows, eg_stretch lanes,
                    char *tile);
/* Bytes of a tile: may the query see the key? Rows are those of `rows`, lanes those of `lanes`, the
 * tile's others 0. What they are */
eg_three eg__flash_allow(const eg_flash *, const eg_flash_batch *, eg_stretch rows,
                         eg_stretch lanes, uint8_t *tile);
void eg__flash_stays(const eg_flash *, const eg_flash_batch *, eg_stretch rows, eg_stretch lanes,
                     uint8_t *tile);

/* -- fused_forward.c, fused_backward.c
 * --------------------------------------------------------------- */
#define EG_LOG2_E 1.4426950408889634
/* Of each row of the scores times log2 e, in the scores' type. */
typedef struct eg_row_stats {
    void *row_max; /* max s; NULL: the statistics are not kept */
    void *inv_sum; /* 1/Σ 2^(s − max s); 0 where nothing may be attended to */
} eg_row_stats;
/* writes Y if there is one */
bool eg__flash_forward(eg_ctx *, const eg_flash *, const eg_row_stats *, int64_t *empty);
/* from Y and G to DQ, DK, DV */
bool eg__flash_back(eg_ctx *, const eg_flash *, const eg_row_stats *);
#endif
