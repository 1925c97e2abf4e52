/* workspace.h: what the two passes over tiles have in common. */
#ifndef EG_WORKSPACE_H
#define EG_WORKSPACE_H
#include "attention/attention.h"

enum { EG_FLASH_TEAM = 64 }; /* threads at most */

/* One buffer, given out in pieces of whole cache lines. base NULL: they are only counted. */
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

/* The unit of a tile's scores: log2 e where they are exponents of 2 as they are made, else 1. */
static inline double eg__tile_unit(const eg_flash *f)
{
    return f->score || f->a->no_softmax ? 1 : EG_LOG2_E;
}
/* Number `at` of an array of f's type. */
static inline double eg__real_at(const eg_flash *f, const char *x, int64_t at)
{
    return f->width == 8 ? ((const double *)(const void *)x)[at]
                         : (double)((const float *)(const void *)x)[at];
}

/* c[column][wide] (+)= Σ_p a[p][wide] b[column/narrow][p][column%narrow], for p < depth and the
 * columns rounded up to whole panels, which lie b_step bytes apart in b. */
static inline void eg__flash_product(const eg_flash *f, int64_t depth, const char *a, const char *b,
                                     int64_t b_step, int64_t columns, bool add, char *c)
{
    f->kernel.run(&f->kernel, depth, a, b, b_step, columns, add, c);
}

/* The rows of a block that count for a panel of lanes, as the predicate says: it forbids all before
 * `from` and from `to` on, and allows all before `test` and from `tested` on, where from ≤ test ≤
 * tested ≤ to. Whole panels but for the last. */
enum { EG_LIVE_PANELS = 128 }; /* of rows in a block, at most */
typedef struct eg_live {
    int64_t from, to, test, tested;
    uint8_t cover[EG_LIVE_PANELS]; /* what the predicate says of each panel: eg_cover */
} eg_live;
/* Rows of a panel that the predicate is asked of at once. */
static inline int64_t eg__live_step(const eg_flash *f) { return f->narrow > 1 ? f->narrow : 2; }
/* all: what the predicate says of the block that these rows and lanes are part of. False if it
 * forbids all rows. */
bool eg__flash_live(const eg_flash *, const eg_flash_batch *, eg_stretch lanes, eg_stretch rows,
                    eg_cover all, eg_live *);
/* Sets the bounds of the integers and truths that the predicate reads, by blocks of positions;
 * lanes: the part along the lanes of tiles. False after an error. */
bool eg__flash_bound(eg_ctx *, eg_flash *, eg_part lanes);
/* Returns whether the predicate allows all of a tile, some of it or nothing. */
eg_cover eg__flash_where(const eg_flash *, const eg_flash_batch *, eg_stretch queries,
                         eg_stretch keys);

/* -- tile_values.c ---------------------------------------------------------------------------- */
/* How the expressions are evaluated over tiles, and the layout of a thread's room for it. */
typedef struct eg_tile_plan {
    eg_block_plan where, score;
    bool reaches;                        /* a derivative of the score leads to q·k */
    int64_t bytes;                       /* of the room */
    int64_t score_at, rows_at, lanes_at; /* where its parts begin */
} eg_tile_plan;
/* Plans tiles of at most `most` rows. wanted: eg_block_plan.wanted of the score. */
void eg__tile_plan(eg_tile_plan *, const eg_flash *, eg_part rows, int64_t most, eg_part lanes,
                   uint32_t wanted);
/* Writes the bytes of the rows live->test … live->tested of a tile: 1 where the query may see the
 * key; 0 in lanes beyond `lanes`. Returns what they are. */
eg_cover eg__tile_allow(const eg_tile_plan *, const eg_flash *, const eg_flash_batch *,
                        eg_stretch rows, eg_stretch lanes, const eg_live *live, char *room,
                        uint8_t *tile);
/* Makes scores of scale q·k, which may be in place if no cotangents are wanted. */
void eg__tile_scores(const eg_tile_plan *, const eg_flash *, const eg_flash_batch *,
                     eg_stretch rows, eg_stretch lanes, char *room, const char *score, char *out);
/* Replaces ds, the cotangent of the scores, by that of scale q·k, and hands on those of the tensors
 * to the sinks. Comes after eg__tile_scores of the same tile, with the same room and score. allow:
 * which pairs of the rows that `live` tests count; NULL: all. */
void eg__tile_slopes(const eg_tile_plan *, const eg_flash *, const eg_flash_batch *,
                     eg_stretch rows, eg_stretch lanes, char *room, const char *score,
                     const eg_live *live, const uint8_t *allow, const eg_sink *sink, char *ds);

/* -- tile_sums.c ------------------------------------------------------------------------------ */
typedef struct eg_tile_sums {
    uint32_t there;   /* bits: tensors whose cotangents are wanted */
    bool summed_sink; /* that of the sink is */
    eg_sink sink[EG_TENSORS_MAX];
    int64_t step[EG_TENSORS_MAX][EG_RANK_MAX];
    int64_t at[EG_TENSORS_MAX], sink_at; /* where they begin in a set of sums */
    int64_t summed, sets;                /* doubles in a set; sets */
    int64_t splits; /* of the keys of a batch: so many pieces is a batch, one after another */
    bool is_fixed[EG_RANK_MAX]; /* by axis of the batches: the same for all pieces of a unit */
    int64_t fixed, rest;        /* the product of their sizes; that of the others and of splits */
    double *sums;
} eg_tile_sums;
/* Prepares sums for operands x, whose cotangents go to to[…], NULL: not wanted. There are
 * fixed · sets units of work. False after an error. */
bool eg__tile_sums_open(eg_tile_sums *, eg_ctx *, const eg_flash *, eg_tensor *const *x,
                        char *const *to, int64_t splits);
/* Sets where a unit's cotangents go, and the range of its pieces. Returns where the sink's sums
 * begin in u->sums, −1: there are none. */
int64_t eg__tile_sums_unit(const eg_tile_sums *u, const eg_flash *, int64_t unit, int64_t *from,
                           int64_t *to, eg_sink *sink);
/* The number of a unit's piece among all: batch · splits + split. */
int64_t eg__tile_sums_piece(const eg_tile_sums *, const eg_flash *, int64_t unit, int64_t piece);
/* Writes the sums. */
void eg__tile_sums_close(const eg_tile_sums *, const eg_flash *, eg_tensor *const *x,
                         char *const *to);

/* -- fused_masked.c --------------------------------------------------------------------------- */
/* Adds to the product `out` of weights and array `at` what was left out of it: numbers times
 * elements of the array that are not finite, in the pairs that `allow` has (NULL: in all). `list`
 * are the elements of the tile's rows, `columns` the part of the product's columns; off is room for
 * an offset for each of these. zeros: a weight that is 0 counts as forbidden. */
void eg__flash_repair(const eg_flash *, const eg_flash_batch *, eg_stretch list, eg_part columns,
                      int at, double times, bool zeros, const char *weights, const uint8_t *allow,
                      char *out, int64_t *off);
/* The same of the transposed tile: `list` are the elements of its lanes, and `out` has the rows
 * rows.from … rows.to of a block, in panels. */
void eg__flash_repair_turned(const eg_flash *, const eg_flash_batch *, eg_stretch list,
                             eg_part columns, int at, const eg_live *rows, const char *weights,
                             const uint8_t *allow, char *out, int64_t *off);
#endif
