/* tiles.c: where the elements of attention's operands lie, to and from panels; what predicate
 * and masks say of a tile. */
#include "attention/workspace.h"
#include <math.h>
#include <string.h>

/* -- lists of axes ---------------------------------------------------------------------------- */
static eg_flash_axis *tiles_append(eg_flash *f, int axis, int score)
{
    eg_flash_list *l = &f->list[f->a->part[axis]];
    l->axis[l->n] = (eg_flash_axis){ .size = f->a->size[axis], .axis = axis, .score = score };
    l->total *= f->a->size[axis];
    return &l->axis[l->n++];
}
/* The lists: batch, query and key axes in the order of the scores, then those of the products. */
void eg__flash_open(eg_flash *f, const eg_attention_plan *a, eg_dtype dtype)
{
    f->a = a;
    f->dtype = dtype;
    f->width = eg__width[dtype];
    f->kernel = eg__panel_kernel(dtype);
    f->wide = f->kernel.wide;
    f->narrow = f->kernel.narrow;
    f->ops = eg__tile_ops(dtype, f->wide);
    f->careful = a->careful;
    memset(f->data, 0, sizeof f->data);
    for (int k = 0; k < EG_PARTS; k++) f->list[k].n = 0, f->list[k].total = 1;
    if (a->rank[EG_TERM_V] < 0) f->list[EG_PART_VALUE].total = 0;
    int64_t step = 1, draw[EG_RANK_MAX];
    for (int s = a->scores; s-- > 0; step *= a->size[a->score[s]]) draw[s] = step;
    for (int s = 0; s < a->scores; s++)
        tiles_append(f, a->score[s], s)->step[EG_SLOT_DRAW] = draw[s];
    for (int x = 0; x < a->axes; x++)
        if (a->part[x] == EG_PART_DOT || a->part[x] == EG_PART_VALUE) tiles_append(f, x, -1);
}
static void step_to(eg_flash *f, int at, int axis, int64_t step)
{
    eg_flash_list *l = &f->list[f->a->part[axis]];
    for (int k = 0; k < l->n; k++)
        if (l->axis[k].axis == axis) l->axis[k].step[at] = step;
}
void eg__flash_place(eg_flash *f, int at, int term, const eg_tensor *x)
{
    f->data[at] = x->data;
    for (int r = 0; r < x->rank; r++) step_to(f, at, f->a->label[term][r], x->stride[r]);
}
void eg__flash_spread(eg_flash *f, int at, int term, char *data)
{
    int64_t step = 1;
    f->data[at] = data;
    for (int r = f->a->rank[term]; r-- > 0; step *= f->a->size[f->a->label[term][r]])
        step_to(f, at, f->a->label[term][r], step);
}

int64_t eg__flash_at(const eg_flash *f, eg_part kind, int at, int64_t i)
{
    const eg_flash_list *l = &f->list[kind];
    int64_t off = 0;
    for (int k = l->n - 1; k >= 0 && i; k--) {
        off += i % l->axis[k].size * l->axis[k].step[at];
        i /= l->axis[k].size;
    }
    return off;
}
void eg__flash_offsets(const eg_flash *f, eg_part kind, int at, int64_t from, int64_t count,
                       int64_t *off)
{
    const eg_flash_list *l = &f->list[kind];
    if (!l->n) {
        for (int64_t i = 0; i < count; i++) off[i] = 0;
        return;
    }
    const eg_flash_axis *last = &l->axis[l->n - 1];
    for (int64_t done = 0, run; done < count; done += run) {
        const int64_t base = eg__flash_at(f, kind, at, from + done);
        run = eg__min64(count - done, last->size - (from + done) % last->size);
        for (int64_t i = 0; i < run; i++) off[done + i] = base + i * last->step[at];
    }
}

/* -- panels ----------------------------------------------------------------------------------- */
static int runs_of(const eg_flash *f, eg_stretch s, int at, eg_run *run)
{
    const eg_flash_list *l = &f->list[s.part];
    const int64_t size = l->n ? l->axis[l->n - 1].size : 1,
                  step = l->n ? l->axis[l->n - 1].step[at] : 0;
    int n = 0;
    for (int64_t i = s.from, end = s.from + s.count; i < end; i += run[n++].n)
        run[n] =
            (eg_run){ eg__flash_at(f, s.part, at, i), eg__min64(end - i, size - i % size), step };
    return n;
}
void eg__flash_pack(const eg_flash *f, int w, eg_stretch rows, eg_stretch depth, int at,
                    const char *base, char *dst, eg_run *run)
{
    const int runs = runs_of(f, depth, at, run);
    for (int64_t i = 0; i < rows.count; i += w) {
        int64_t off[EG_KERNEL_SIDE];
        const int64_t n = eg__min64(w, rows.count - i);
        eg__flash_offsets(f, rows.part, at, rows.from + i, n, off);
        int64_t step = n > 1 ? off[1] - off[0] : 1;
        /* irregular */
        for (int64_t k = 2; k < n; k++)
            if (off[k] - off[k - 1] != step) step = INT64_MIN;
        eg__pack((size_t)f->width, w, n, off, step, runs, run, base, dst, depth.count);
        dst += w * depth.count * f->width;
    }
}
void eg__flash_unpack(const eg_flash *f, eg_stretch lanes, eg_stretch columns, int at,
                      const char *tile, char *base)
{
    const int w = f->wide;
    const eg_flash_list *l = &f->list[lanes.part];
    const int64_t apart = l->n ? l->axis[l->n - 1].step[at] : 0,
                  size = l->n ? l->axis[l->n - 1].size : 1, x = f->width;
    int64_t off[EG_KERNEL_SIDE];
    for (int64_t c = 0, n; c < columns.count; c += n) {
        n = eg__min64(EG_KERNEL_SIDE, columns.count - c);
        eg__flash_offsets(f, columns.part, at, columns.from + c, n, off);
        bool near = true;
        for (int64_t k = 1; k < n; k++) near &= off[k] == off[0] + k;
        for (int64_t i = 0, run; i < lanes.count; i += run) { /* lanes that lie evenly */
            const char *from = tile + (c * w + i) * x;
            char *to = base + eg__flash_at(f, lanes.part, at, lanes.from + i) * x;
            run = eg__min64(lanes.count - i, size - (lanes.from + i) % size);
            if (near) {
                eg__transpose((size_t)x, n, run, from, w, to + off[0] * x, apart, false);
                continue;
            }
#define UNPACK(T)                       \
    for (int64_t y = 0; y < run; y++)   \
        for (int64_t k = 0; k < n; k++) \
            ((T *)(void *)to)[y * apart + off[k]] = ((const T *)(const void *)from)[k * w + y];
            if (x == 8) UNPACK(double) else UNPACK(float)
        }
    }
}

/* -- one batch, and what a tile of it may see ------------------------------------------------- */
void eg__flash_batch(const eg_flash *f, int64_t number, eg_flash_batch *b)
{
    const eg_flash_list *l = &f->list[EG_PART_BATCH];
    b->number = number;
    for (int at = 0; at < EG_SLOTS; at++) b->at[at] = eg__flash_at(f, EG_PART_BATCH, at, number);
    for (int s = 0; s < f->a->scores; s++) b->size[s] = f->a->size[f->a->score[s]];
    for (int k = l->n - 1; k >= 0; k--) {
        const int s = l->axis[k].score;
        b->index[s] = number % l->axis[k].size + (s == f->a->moved ? f->a->offset : 0);
        number /= l->axis[k].size;
    }
}
/* The index of element i of a list, as the predicate sees it. */
static void index_of(const eg_flash *f, eg_part kind, int64_t i, int64_t *index)
{
    const eg_flash_list *l = &f->list[kind];
    for (int k = l->n - 1; k >= 0; k--) {
        const int s = l->axis[k].score;
        index[s] = i % l->axis[k].size + (s == f->a->moved ? f->a->offset : 0);
        i /= l->axis[k].size;
    }
}
/* The smallest box of indices that holds a stretch: low ≤ index < high on every axis of its list.
 */
static void tiles_box(const eg_flash *f, eg_stretch s, int64_t *low, int64_t *high)
{
    const eg_flash_list *l = &f->list[s.part];
    int64_t first = s.from, last = s.from + s.count - 1;
    for (int k = l->n - 1; k >= 0; k--) {
        const int64_t size = l->axis[k].size,
                      move = l->axis[k].score == f->a->moved ? f->a->offset : 0;
        const bool one = first / size == last / size;
        low[l->axis[k].score] = (one ? first % size : 0) + move;
        high[l->axis[k].score] = (one ? last % size + 1 : size) + move;
        first /= size;
        last /= size;
    }
}
typedef struct corners {
    int64_t low[EG_RANK_MAX], high[EG_RANK_MAX];
} corners;
static void batch_box(const eg_flash *f, const eg_flash_batch *b, corners *c)
{
    const eg_flash_list *l = &f->list[EG_PART_BATCH];
    for (int k = 0; k < l->n; k++) {
        const int s = l->axis[k].score;
        c->low[s] = b->index[s];
        c->high[s] = b->index[s] + 1;
    }
}
eg_cover eg__flash_where(const eg_flash *f, const eg_flash_batch *b, eg_stretch queries,
                         eg_stretch keys)
{
    if (!f->a->masked) return EG_COVER_ALL;
    corners c;
    batch_box(f, b, &c);
    tiles_box(f, queries, c.low, c.high);
    tiles_box(f, keys, c.low, c.high);
    return eg__where_tile(eg__attention_where(f->a), c.low, c.high, b->size);
}

/* Asks the predicate of one panel of rows after another. */
bool eg__flash_live(const eg_flash *f, const eg_flash_batch *b, eg_stretch lanes, eg_stretch rows,
                    eg_live *l)
{
    int64_t last = 0;
    corners c;
    batch_box(f, b, &c);
    tiles_box(f, lanes, c.low, c.high);
    *l = (eg_live){ .from = -1, .test = -1 };
    for (int64_t j = 0, n; j < rows.count; j += n) {
        n = eg__min64(f->narrow, rows.count - j);
        tiles_box(f, (eg_stretch){ rows.part, rows.from + j, n }, c.low, c.high);
        const eg_cover t = eg__where_tile(eg__attention_where(f->a), c.low, c.high, b->size);
        if (t == EG_COVER_NONE && l->from < 0) continue;
        if (l->from < 0) l->from = j;
        if (t != EG_COVER_NONE) l->to = j + n;
        if (t == EG_COVER_ALL) continue;
        if (l->test < 0) l->test = j;
        last = j + n;
    }
    l->tested = eg__min64(last, l->to);
    if (l->test < 0 || l->test > l->tested) l->test = l->tested;
    return l->from >= 0;
}

/* Sets out[k] to 1 if the query may see key keys.from + k, else to 0. */
static void tiles_row(const eg_flash *f, const eg_flash_batch *b, int64_t query, eg_stretch keys,
                      uint8_t *out)
{
    const eg_flash_list *l = &f->list[EG_PART_KEY];
    const eg_flash_axis *last = &l->axis[l->n - 1];
    memset(out, 1, (size_t)keys.count);
    if (f->a->masked) {
        int64_t index[EG_RANK_MAX];
        memcpy(index, b->index, sizeof index);
        index_of(f, EG_PART_QUERY, query, index);
        for (int64_t done = 0, run; done < keys.count; done += run) {
            run = eg__min64(keys.count - done, last->size - (keys.from + done) % last->size);
            index_of(f, EG_PART_KEY, keys.from + done, index);
            eg__where_row(eg__attention_where(f->a), last->score, run, index, b->size, out + done);
        }
    }
    for (int m = EG_SLOT_KEEP; m <= EG_SLOT_LENGTHS; m++) {
        if (!f->data[m]) continue;
        const uint8_t *mask =
            (const uint8_t *)f->data[m] + b->at[m] + eg__flash_at(f, EG_PART_QUERY, m, query);
        for (int64_t done = 0, run; done < keys.count; done += run) {
            run = eg__min64(keys.count - done, last->size - (keys.from + done) % last->size);
            const uint8_t *from = mask + eg__flash_at(f, EG_PART_KEY, m, keys.from + done);
            for (int64_t k = 0; k < run; k++) out[done + k] &= from[k * last->step[m]];
        }
    }
    if (!f->careful || !f->data[EG_SLOT_BIAS]) return;
    const int64_t bias = b->at[EG_SLOT_BIAS] + eg__flash_at(f, EG_PART_QUERY, EG_SLOT_BIAS, query);
    for (int64_t k = 0; k < keys.count; k++) {
        const int64_t at = bias + eg__flash_at(f, EG_PART_KEY, EG_SLOT_BIAS, keys.from + k);
        out[k] &= (f->width == 8 ? ((double *)(void *)f->data[EG_SLOT_BIAS])[at]
                                 : ((float *)(void *)f->data[EG_SLOT_BIAS])[at]) != -INFINITY;
    }
}

/* The places of a stretch along the axis whose distance counts, and the slopes (1 for keys), in f's
 * type. */
static void distances_along(const eg_flash *f, const eg_flash_batch *b, eg_stretch s, char *at,
                            char *slope)
{
    const eg_flash_list *l = &f->list[s.part];
    const uint16_t want = s.part == EG_PART_KEY ? f->a->slope_key : f->a->slope_query;
    for (int64_t i = 0; i < s.count; i++) {
        int64_t rest = s.from + i, place = 0;
        for (int k = l->n - 1; k >= 0; rest /= l->axis[k--].size)
            if (l->axis[k].axis == want) place = rest % l->axis[k].size;
        if (s.part == EG_PART_QUERY) place += f->a->offset;
        const int64_t m =
            b->at[EG_SLOT_SLOPES] + eg__flash_at(f, EG_PART_QUERY, EG_SLOT_SLOPES, s.from + i);
        const double c =
            s.part == EG_PART_KEY
                ? 1
                : EG_LOG2_E * (f->width == 8 ? ((double *)(void *)f->data[EG_SLOT_SLOPES])[m]
                                             : ((float *)(void *)f->data[EG_SLOT_SLOPES])[m]);
        if (f->width == 8)
            ((double *)(void *)at)[i] = (double)place, ((double *)(void *)slope)[i] = c;
        else
            ((float *)(void *)at)[i] = (float)place, ((float *)(void *)slope)[i] = (float)c;
    }
}
void eg__flash_distance(const eg_flash *f, const eg_flash_batch *b, eg_stretch rows,
                        eg_stretch lanes, char *tile)
{
    _Alignas(64) char lane[EG_KERNEL_SIDE * 8] = { 0 }, lane_slope[EG_KERNEL_SIDE * 8] = { 0 },
                                            row_at[256 * 8], row_slope[256 * 8];
    distances_along(f, b, lanes, lane, lane_slope);
    distances_along(f, b, rows, row_at, row_slope);
    f->ops->subtract_distance(f->wide, rows.count, tile, lane, lane_slope, row_at, row_slope);
}

typedef void row_fn(const eg_flash *, const eg_flash_batch *, int64_t query, eg_stretch keys,
                    uint8_t *out);
/* Fills the bytes of a tile by fn, which gives a row of keys for one query: a row of the tile if
 * its lanes are keys, else a column. */
static void lay_out_rows(const eg_flash *f, const eg_flash_batch *b, eg_stretch rows,
                         eg_stretch lanes, uint8_t *tile, row_fn *fn)
{
    const int w = f->wide;
    if (lanes.part == EG_PART_KEY) {
        for (int64_t i = 0; i < rows.count; i++) {
            fn(f, b, rows.from + i, lanes, tile + i * w);
            memset(tile + i * w + lanes.count, 0, (size_t)(w - lanes.count));
        }
        return;
    }
    for (int64_t done = 0, n; done < rows.count; done += n) {
        uint8_t line[256];
        n = eg__min64((int64_t)sizeof line, rows.count - done);
        for (int64_t i = 0; i < lanes.count; i++) {
            fn(f, b, lanes.from + i, (eg_stretch){ EG_PART_KEY, rows.from + done, n }, line);
            for (int64_t j = 0; j < n; j++) tile[(done + j) * w + i] = line[j];
        }
        for (int64_t j = 0; j < n; j++)
            memset(tile + (done + j) * w + lanes.count, 0, (size_t)(w - lanes.count));
    }
}
eg_cover eg__flash_allow(const eg_flash *f, const eg_flash_batch *b, eg_stretch rows,
                         eg_stretch lanes, uint8_t *tile)
{
    lay_out_rows(f, b, rows, lanes, tile, tiles_row);
    const int64_t all = rows.count * lanes.count;
    int64_t yes = 0;
    for (int64_t k = 0; k < rows.count * f->wide; k++) yes += tile[k];
    return yes == 0 ? EG_COVER_NONE : yes == all ? EG_COVER_ALL : EG_COVER_SOME;
}
static void dropout_kept(const eg_flash *f, const eg_flash_batch *b, int64_t query, eg_stretch keys,
                         uint8_t *out)
{
    const int64_t first =
        b->at[EG_SLOT_DRAW] + eg__flash_at(f, EG_PART_QUERY, EG_SLOT_DRAW, query) + keys.from;
    eg__drop_stays(&f->a->drop, (uint64_t)first, keys.count, out);
}
void eg__flash_dropout(const eg_flash *f, const eg_flash_batch *b, eg_stretch rows,
                       eg_stretch lanes, uint8_t *tile)
{
    lay_out_rows(f, b, rows, lanes, tile, dropout_kept);
}
