/* expression_gather.c: reading, and adding, at the indices of a block. Indices are processed in
 * groups of EG_LANES: if they increase or decrease by one, as those of r[i - j] do, the group is
 * consecutive memory; if they are equal, as outside of the limits of clip(…), it is a single
 * element. */
#include "notation/expression_gather.h"

enum { NO_RUN = 2 };
#define INDEX int32_t
#define BITS  uint32_t
#define NAME  run_narrow
#include "notation/expression_run_of.h"
#define INDEX int64_t
#define BITS  uint64_t
#define NAME  run_wide
#include "notation/expression_run_of.h"
/* Returns the offset of index v, clamped. */
static inline int64_t gather_offset(const eg_gather *g, int64_t v)
{
    return g->stride * (g->limit < 0 ? v : v < 0 ? 0 : v > g->limit ? g->limit : v);
}

#define TO     uint8_t
#define FROM   uint8_t
#define INDEX  int32_t
#define RUN_OF run_narrow
#define NAME   gather_bytes_narrow
#include "notation/expression_gather_of.h"
#define TO     uint8_t
#define FROM   uint8_t
#define INDEX  int64_t
#define RUN_OF run_wide
#define NAME   gather_bytes_wide
#include "notation/expression_gather_of.h"
#define TO     int32_t
#define FROM   int32_t
#define INDEX  int32_t
#define RUN_OF run_narrow
#define NAME   gather_fours_narrow
#include "notation/expression_gather_of.h"
#define TO     int32_t
#define FROM   int32_t
#define INDEX  int64_t
#define RUN_OF run_wide
#define NAME   gather_fours_wide
#include "notation/expression_gather_of.h"
#define TO     int64_t
#define FROM   int64_t
#define INDEX  int32_t
#define RUN_OF run_narrow
#define NAME   gather_eights_narrow
#include "notation/expression_gather_of.h"
#define TO     int64_t
#define FROM   int64_t
#define INDEX  int64_t
#define RUN_OF run_wide
#define NAME   gather_eights_wide
#include "notation/expression_gather_of.h"
#define TO     int32_t
#define FROM   int64_t
#define INDEX  int32_t
#define RUN_OF run_narrow
#define NAME   gather_shortened
#include "notation/expression_gather_of.h"
#define TO     int64_t
#define FROM   int32_t
#define INDEX  int64_t
#define RUN_OF run_wide
#define NAME   gather_widened
#include "notation/expression_gather_of.h"

void eg__gather_rows(const eg_gather *g, eg_dtype dtype, const void *from, int width, void *out,
                     int64_t out_step)
{
    const int size = eg__width[dtype];
    if (size == 1)
        (g->narrow ? gather_bytes_narrow : gather_bytes_wide)(g, from, out, out_step);
    else if (size == 4 && width == 4)
        (g->narrow ? gather_fours_narrow : gather_fours_wide)(g, from, out, out_step);
    else if (size == 8 && width == 8)
        (g->narrow ? gather_eights_narrow : gather_eights_wide)(g, from, out, out_step);
    else /* integers, which have the width of the index */
        (g->narrow ? gather_shortened : gather_widened)(g, from, out, out_step);
}

int64_t eg__gather_apart(const eg_gather *g)
{
    const int64_t apart = g->base && g->rows > 1 ? g->base[1] - g->base[0] : 0;
    if (!g->counts) return INT64_MIN;
    for (int64_t r = 2; r < g->rows && g->base; r++)
        if (g->base[r] - g->base[r - 1] != apart) return INT64_MIN;
    return apart;
}

#define FROM   float
#define T      double
#define INDEX  int32_t
#define RUN_OF run_narrow
#define NAME   scatter_fours_narrow
#include "notation/expression_scatter_of.h"
#define FROM   float
#define T      double
#define INDEX  int64_t
#define RUN_OF run_wide
#define NAME   scatter_fours_wide
#include "notation/expression_scatter_of.h"
#define FROM   double
#define T      double
#define INDEX  int32_t
#define RUN_OF run_narrow
#define NAME   scatter_eights_narrow
#include "notation/expression_scatter_of.h"
#define FROM   double
#define T      double
#define INDEX  int64_t
#define RUN_OF run_wide
#define NAME   scatter_eights_wide
#include "notation/expression_scatter_of.h"
#define FROM   float
#define T      float
#define INDEX  int32_t
#define RUN_OF run_narrow
#define NAME   scatter_fours_same_narrow
#include "notation/expression_scatter_of.h"
#define FROM   float
#define T      float
#define INDEX  int64_t
#define RUN_OF run_wide
#define NAME   scatter_fours_same_wide
#include "notation/expression_scatter_of.h"

void eg__scatter_rows(const eg_gather *g, int width, const void *x, int64_t x_step, bool same,
                      void *to)
{
    if (width == 8)
        (g->narrow ? scatter_eights_narrow : scatter_eights_wide)(g, x, x_step, to);
    else if (same)
        (g->narrow ? scatter_fours_same_narrow : scatter_fours_same_wide)(g, x, x_step, to);
    else
        (g->narrow ? scatter_fours_narrow : scatter_fours_wide)(g, x, x_step, to);
}
