/* workspace.h: declarations shared by the forward and the backward pass over tiles. */
#ifndef EG_WORKSPACE_H
#define EG_WORKSPACE_H
#include "attention/attention.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { EG_FUSED_TEAM = 64 }; /* the largest number of threads */

/* A buffer from which consecutive parts are taken, each rounded up to whole cache lines. If base is
 * NULL, only the bytes are counted. */
typedef struct eg_workspace {
    char *base;
    int64_t taken;
} eg_workspace;
static inline char *eg__workspace_take(eg_workspace *t, int64_t bytes)
{
    char *p = t->base ? t->base + t->taken : NULL;
    t->taken += eg__round_up(bytes, 64);
    return p;
}

/* Returns the factor of a tile's scores: log2 e if the product computes exponents of 2 directly,
 * else 1. */
static inline double eg__tile_unit(const eg_fused *f)
{
    return f->score || f->a->no_softmax ? 1 : EG_LOG2_E;
}
/* Returns element `at` of an array of f's type. */
static inline double eg__real_at(const eg_fused *f, const char *x, int64_t at)
{
    return f->width == 8 ? ((const double *)(const void *)x)[at]
                         : (double)((const float *)(const void *)x)[at];
}

/* Returns the sink `at` times log2 e, as a number of f's type: −∞ only if the sink is, as scores
 * are. z is compared, not the product: from a product of −∞ gcc 14 wrongly infers that z is −∞, and
 * removes the test of it. */
static inline double eg__sink_exponent(const eg_fused *f, int64_t at)
{
    const double z = eg__real_at(f, f->data[EG_SLOT_SINK], at),
                 lowest = f->width == 8 ? -DBL_MAX : -FLT_MAX;
    if (z > -INFINITY && z <= lowest / EG_LOG2_E) return lowest;
    const double exponent = EG_LOG2_E * z;
    return f->width == 8 ? exponent : (double)(float)exponent;
}

/* Sets element `at` of an array of f's type. */
static inline void eg__set_real(const eg_fused *f, char *x, int64_t at, double value)
{
    if (f->width == 8)
        ((double *)(void *)x)[at] = value;
    else
        ((float *)(void *)x)[at] = (float)value;
}

/* Returns n rounded up to whole vectors, after writing zeros from the end of the n numbers at x up
 * to there: packing does not write them. */
static inline int64_t eg__whole_vectors(const eg_fused *f, int64_t n, char *x)
{
    const int64_t whole = eg__round_up(n, f->ops->lanes);
    memset(x + n * f->width, 0, (size_t)((whole - n) * f->width));
    return whole;
}

/* c[column][wide] (+)= Σ_p a[p][wide] b[column/narrow][p][column%narrow], for p < depth and the
 * columns rounded up to whole panels, which lie b_step bytes apart in b. next: what is packed next,
 * which is prefetched meanwhile. */
static inline void eg__fused_product(const eg_fused *f, int64_t depth, const char *a, const char *b,
                                     int64_t b_step, int64_t columns, bool add, char *c,
                                     eg_ahead_list *next)
{
    f->kernel.run(&f->kernel, depth, a, b, b_step, columns, add, c, next);
}
/* Returns the lines of the rows of array `at`, for a batch that begins at `base`; none if the array
 * stays in a cache, or if its rows are not contiguous along `columns` or not at equal distances. */
eg_ahead eg__fused_ahead(const eg_fused *, eg_stretch rows, eg_part columns, int at,
                         const char *base);

/* The rows of a block in which a panel of lanes may have allowed pairs, by bounds of the predicate.
 * All rows before `from`, and from `to` on, are forbidden; the rows from … test − 1 and tested … to
 * − 1 are allowed; the pairs of the rows test … tested − 1 must be evaluated. Each of these ranges
 * consists of whole panels, except at the end of the block. If `sparse`, the forbidden panels
 * between `from` and `to` are left out: the tile has the rows of the other panels one after
 * another, and all of them are tested. A forbidden row adds 0 to each sum, so leaving it out
 * changes no bit; only the cotangents of tensors that the score reads are added run by run. */
enum { EG_LIVE_PANELS = 128 }; /* largest number of panels in the rows of a block */
typedef struct eg_live {
    int64_t from, to, test, tested;
    int64_t rows, tests; /* numbers of rows in the tile, and of those that are tested */
    bool sparse;
    uint8_t cover[EG_LIVE_PANELS]; /* by panel: eg_cover */
} eg_live;
/* Consecutive rows of a block, and the row of the tile at which they begin. */
typedef struct eg_live_run {
    int64_t from, to, at;
} eg_live_run;
/* The rows of a run that are tested: `rows` rows from row `from` of the run on, with a byte for
 * each pair, 1 if it is allowed. allow NULL: none is tested. */
typedef struct eg_tested {
    int64_t from, rows;
    const uint8_t *allow;
} eg_tested;
/* Returns the number of rows for which the predicate is bounded at once. */
static inline int64_t eg__live_step(const eg_fused *f) { return f->narrow > 1 ? f->narrow : 2; }
/* Sets *l for the given lanes and rows. `all` is the cover of the block that contains them. False
 * if all rows are forbidden. */
bool eg__fused_live(const eg_fused *, const eg_fused_batch *, eg_stretch lanes, eg_stretch rows,
                    eg_cover all, eg_live *);
/* Marks the rows from … to − 1 as tested, or as not tested. */
void eg__live_test(eg_live *, bool all);
/* Sets *run, which is { 0 } before the first call, to the next rows that the tile has. False after
 * the last ones. */
bool eg__live_next(const eg_fused *, const eg_live *, eg_live_run *run);
/* Returns the tested rows of a run, where `bytes` has those of the tile. */
static inline eg_tested eg__live_tested(const eg_fused *f, const eg_live *l, const eg_live_run *run,
                                        const uint8_t *bytes)
{
    if (!l->tests) return (eg_tested){ 0, 0, NULL };
    if (!l->sparse) return (eg_tested){ l->test - l->from, l->tests, bytes };
    return (eg_tested){ 0, run->to - run->from, bytes + run->at * f->wide };
}
/* Copies the rows that a sparse tile has from panels of `columns`, [columns/narrow][rows][narrow],
 * of `count` rows, to `to`, which has the same layout. */
void eg__live_gather(const eg_fused *, const eg_live *, int64_t count, int64_t columns,
                     const char *from, char *to);
/* Moves the rows of a sparse tile from row l->from on to their places in the block, with 0 in the
 * rows between them. */
void eg__live_spread(const eg_fused *, const eg_live *, char *tile);
/* Computes the bounds of the integer and bool tensors that the predicate reads, by blocks of
 * positions. lanes: the part that is along the lanes of tiles. False after an error. */
bool eg__fused_bound(eg_ctx *, eg_fused *, eg_part lanes);
/* Returns the letters of a part, as bits of eg_node.letters. */
uint32_t eg__fused_letters(const eg_fused *, eg_part);
/* Returns whether the predicate allows all pairs, some or none. */
eg_cover eg__fused_where(const eg_fused *, const eg_fused_batch *, eg_stretch queries,
                         eg_stretch keys);

/* -- tile_values.c ---------------------------------------------------------------------------- */
/* How the expressions are evaluated over tiles, and the layout of a thread's workspace for them. */
typedef struct eg_tile_plan {
    eg_block_plan where, score;
    bool reaches;                        /* the derivative of the score by q·k is needed */
    int64_t bytes;                       /* of the workspace */
    int64_t score_at, rows_at, lanes_at; /* where its parts begin */
} eg_tile_plan;
/* Plans for tiles of at most `most` rows. `wanted` is eg_block_plan.wanted of the score. */
void eg__tile_plan(eg_tile_plan *, const eg_fused *, eg_part rows, int64_t most, eg_part lanes,
                   uint32_t wanted);
/* Writes a byte for each pair of the rows of a tile that are tested: 1 where the query may attend
 * to the key, else 0; 0 also in lanes from lanes.count on. Returns whether all, some or none of
 * these pairs are allowed. */
eg_cover eg__tile_allow(const eg_tile_plan *, const eg_fused *, const eg_fused_batch *,
                        eg_stretch rows, eg_stretch lanes, const eg_live *live, char *workspace,
                        uint8_t *tile);
/* Computes the scores, times log2 e if there is a softmax, from scale q·k. out may be the same
 * memory as score, unless the plan keeps the latter. */
void eg__tile_scores(const eg_tile_plan *, const eg_fused *, const eg_fused_batch *,
                     eg_stretch rows, eg_stretch lanes, char *workspace, const char *score,
                     char *out);
/* Replaces ds, the cotangent of the scores, by the cotangent of scale q·k, and adds the cotangents
 * of the tensors that the score reads to the sinks. Must follow eg__tile_scores of the same tile,
 * with the same workspace and score. The pairs that are not allowed do not count. */
void eg__tile_slopes(const eg_tile_plan *, const eg_fused *, const eg_fused_batch *,
                     eg_stretch rows, eg_stretch lanes, char *workspace, const char *score,
                     const eg_tested *, const eg_sink *sink, char *ds);

/* -- tile_sums.c ------------------------------------------------------------------------------ */
typedef struct eg_tile_sums {
    uint32_t there;   /* bit t: the cotangent of tensor t is wanted */
    bool summed_sink; /* the sink's cotangent is wanted */
    eg_sink sink[EG_TENSORS_MAX];
    int64_t step[EG_TENSORS_MAX][EG_RANK_MAX];
    int64_t at[EG_TENSORS_MAX], sink_at; /* offsets in a set of sums */
    int64_t summed, sets;                /* doubles in a set; number of sets */
    int64_t splits;             /* number of pieces that the keys of a batch are divided into */
    bool is_fixed[EG_RANK_MAX]; /* by axis of the batches: it has one value in a unit's pieces */
    int64_t fixed, rest;        /* the product of the sizes of these axes; the product of the other
                                 * sizes and splits */
    double *sums;
} eg_tile_sums;
/* Prepares the sums for the operands x, whose cotangents are written to to[k] (NULL if not wanted).
 * There are fixed · sets units of work. False after an error. */
bool eg__tile_sums_open(eg_tile_sums *, eg_ctx *, const eg_fused *, eg_tensor *const *x,
                        char *const *to, int64_t splits);
/* Sets where the cotangents of a unit's tensors are added, and the range of its pieces. Returns the
 * offset of the sink's sums in u->sums; −1 if there are none. */
int64_t eg__tile_sums_unit(const eg_tile_sums *u, const eg_fused *, int64_t unit, int64_t *from,
                           int64_t *to, eg_sink *sink);
/* Returns the number of a unit's piece among all pieces: batch · splits + split. */
int64_t eg__tile_sums_piece(const eg_tile_sums *, const eg_fused *, int64_t unit, int64_t piece);
/* Adds the sets of sums and writes the results to to[]. */
void eg__tile_sums_close(const eg_tile_sums *, const eg_fused *, eg_tensor *const *x,
                         char *const *to);

/* -- fused_masked.c --------------------------------------------------------------------------- */
/* Adds to `out`, a product of weights and array `at`, what was left out of it: `times` the weight
 * times each element of the array that is not finite, in the pairs that `allow` allows (NULL: in
 * all). `list` is the stretch of the tile's rows, `columns` the part that the product's columns
 * belong to; off has room for an offset of each column. zeros: a pair whose weight is 0 is treated
 * as forbidden. */
void eg__fused_repair(const eg_fused *, const eg_fused_batch *, eg_stretch list, eg_part columns,
                      int at, double times, bool zeros, const char *weights, const uint8_t *allow,
                      char *out, int64_t *off);
/* The same for the transposed tile: `list` is the stretch of its lanes, and `out` has the rows
 * rows.from … rows.to − 1 of a block, in panels. */
void eg__fused_repair_turned(const eg_fused *, const eg_fused_batch *, eg_stretch list,
                             eg_part columns, int at, const eg_live *rows, const char *weights,
                             const uint8_t *allow, char *out, int64_t *off);
#endif
