/* tiles.c: the addresses of elements of attention's operands; packing them into panels, and
 * unpacking; dropout in a tile. */
#include "attention/workspace.h"
#include <string.h>

/* -- lists of axes ---------------------------------------------------------------------------- */
static eg_fused_axis *tiles_append(eg_fused *f, int axis, int score)
{
    eg_fused_list *l = &f->list[f->a->part[axis]];
    l->axis[l->n] = (eg_fused_axis){ .size = f->a->size[axis], .axis = axis, .score = score };
    l->total *= f->a->size[axis];
    return &l->axis[l->n++];
}
/* Sets the lists: the axes of batches, queries and keys in the order of the scores, then those of
 * the products. */
void eg__fused_open(eg_fused *f, const eg_attention_plan *a, eg_dtype dtype)
{
    f->a = a;
    f->drop = a->drop;
    f->dtype = dtype;
    f->width = eg__width[dtype];
    f->kernel = eg__panel_kernel(dtype);
    f->wide = f->kernel.wide;
    f->narrow = f->kernel.narrow;
    f->ops = eg__tile_ops(dtype, f->wide);
    f->careful = a->careful;
    f->where = eg__attention_where(a);
    f->score = eg__attention_score(a);
    f->bounded = false;
    eg__score_sizes(a, f->size);
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
static void step_to(eg_fused *f, int at, int axis, int64_t step)
{
    eg_fused_list *l = &f->list[f->a->part[axis]];
    for (int k = 0; k < l->n; k++)
        if (l->axis[k].axis == axis) l->axis[k].step[at] = step;
}
void eg__fused_lay(eg_fused *f, int at, int n, const uint16_t *label, const int64_t *step,
                   char *data)
{
    f->data[at] = data;
    for (int r = 0; r < n; r++) step_to(f, at, label[r], step[r]);
}
void eg__fused_place(eg_fused *f, int at, int term, const eg_tensor *x)
{
    eg__fused_lay(f, at, x->rank, f->a->label[term], x->stride, x->data);
}
void eg__fused_spread(eg_fused *f, int at, int term, char *data)
{
    int64_t step = 1;
    f->data[at] = data;
    for (int r = f->a->rank[term]; r-- > 0; step *= f->a->size[f->a->label[term][r]])
        step_to(f, at, f->a->label[term][r], step);
}

int64_t eg__fused_at(const eg_fused *f, eg_part kind, int at, int64_t i)
{
    const eg_fused_list *l = &f->list[kind];
    int64_t off = 0;
    for (int k = l->n - 1; k >= 0 && i; k--) {
        off += i % l->axis[k].size * l->axis[k].step[at];
        i /= l->axis[k].size;
    }
    return off;
}
void eg__fused_offsets(const eg_fused *f, eg_part kind, int at, int64_t from, int64_t count,
                       int64_t *off)
{
    const eg_fused_list *l = &f->list[kind];
    if (!l->n) {
        for (int64_t i = 0; i < count; i++) off[i] = 0;
        return;
    }
    const eg_fused_axis *last = &l->axis[l->n - 1];
    for (int64_t done = 0, run; done < count; done += run) {
        const int64_t base = eg__fused_at(f, kind, at, from + done);
        run = eg__min64(count - done, last->size - (from + done) % last->size);
        for (int64_t i = 0; i < run; i++) off[done + i] = base + i * last->step[at];
    }
}

/* -- panels ----------------------------------------------------------------------------------- */
static int runs_of(const eg_fused *f, eg_stretch s, int at, eg_run *run)
{
    const eg_fused_list *l = &f->list[s.part];
    const int64_t size = l->n ? l->axis[l->n - 1].size : 1,
                  step = l->n ? l->axis[l->n - 1].step[at] : 0;
    int n = 0;
    for (int64_t i = s.from, end = s.from + s.count; i < end; i += run[n++].n)
        run[n] =
            (eg_run){ eg__fused_at(f, s.part, at, i), eg__min64(end - i, size - i % size), step };
    return n;
}
void eg__fused_pack(const eg_fused *f, int w, eg_stretch rows, eg_stretch depth, int at,
                    const char *base, char *dst, eg_run *run)
{
    const int runs = runs_of(f, depth, at, run);
    for (int64_t i = 0; i < rows.count; i += w) {
        int64_t off[EG_KERNEL_SIDE];
        const int64_t n = eg__min64(w, rows.count - i);
        eg__fused_offsets(f, rows.part, at, rows.from + i, n, off);
        int64_t step = n > 1 ? off[1] - off[0] : 1;
        /* INT64_MIN: the steps differ */
        for (int64_t k = 2; k < n; k++)
            if (off[k] - off[k - 1] != step) step = INT64_MIN;
        /* the next panel: its rows are far apart if there are several heads */
        if (run->stride == 1 && step != INT64_MIN && i + w < rows.count)
            eg__prefetch_rows(base + (off[0] + step * w + run->at) * f->width,
                              eg__min64(w, rows.count - i - w), step * f->width, run->n * f->width);
        eg__pack((size_t)f->width, w, n, off, step, runs, run, base, dst, depth.count);
        dst += w * depth.count * f->width;
    }
}
/* True if an array with the axes of batches and of two parts is too large to stay in a cache. */
static bool is_large(const eg_fused *f, eg_part x, eg_part y)
{
    return f->list[EG_PART_BATCH].total * f->list[x].total * f->list[y].total * f->width >
           EG_STREAM_BYTES;
}
eg_ahead eg__fused_ahead(const eg_fused *f, eg_stretch rows, eg_part columns, int at,
                         const char *base)
{
    const eg_fused_list *l = &f->list[rows.part], *c = &f->list[columns];
    const int64_t bytes = c->total * f->width;
    if (l->n != 1 || c->n != 1 || c->axis->step[at] != 1 || bytes < EG_LINE ||
        !is_large(f, rows.part, columns))
        return (eg_ahead){ .rows = 0 };
    const int64_t step = l->axis->step[at] * f->width;
    return (eg_ahead){ base + rows.from * step,         rows.count, step,
                       (bytes + EG_LINE - 1) / EG_LINE, EG_LINE,    0 };
}
void eg__fused_unpack(const eg_fused *f, eg_stretch lanes, eg_stretch columns, int at,
                      const char *tile, char *base)
{
    const int w = f->wide;
    const eg_fused_list *l = &f->list[lanes.part];
    const int64_t apart = l->n ? l->axis[l->n - 1].step[at] : 0,
                  size = l->n ? l->axis[l->n - 1].size : 1, x = f->width;
    const bool stream = is_large(f, lanes.part, columns.part);
    int64_t off[EG_KERNEL_SIDE];
    for (int64_t c = 0, n; c < columns.count; c += n) {
        n = eg__min64(EG_KERNEL_SIDE, columns.count - c);
        eg__fused_offsets(f, columns.part, at, columns.from + c, n, off);
        bool near = true;
        for (int64_t k = 1; k < n; k++) near &= off[k] == off[0] + k;
        for (int64_t i = 0, run; i < lanes.count; i += run) { /* lanes at equal distances */
            const char *from = tile + (c * w + i) * x;
            char *to = base + eg__fused_at(f, lanes.part, at, lanes.from + i) * x;
            run = eg__min64(lanes.count - i, size - (lanes.from + i) % size);
            if (near) {
                eg__transpose((size_t)x, n, run, from, w, to + off[0] * x, apart, stream);
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

/* -- one batch, and dropout in a tile of it --------------------------------------------------- */
void eg__fused_batch(const eg_fused *f, int64_t number, eg_fused_batch *b)
{
    const eg_fused_list *l = &f->list[EG_PART_BATCH];
    b->number = number;
    for (int at = 0; at < EG_SLOTS; at++) b->at[at] = eg__fused_at(f, EG_PART_BATCH, at, number);
    for (int k = l->n - 1; k >= 0; k--) {
        const int s = l->axis[k].score;
        b->index[s] = number % l->axis[k].size;
        number /= l->axis[k].size;
    }
}
/* Sets out[k] to 1 if the weight of the query and key keys.from + k is kept, else to 0. */
static void dropout_kept(const eg_fused *f, const eg_fused_batch *b, int64_t query, eg_stretch keys,
                         uint8_t *out)
{
    const int64_t first =
        b->at[EG_SLOT_DRAW] + eg__fused_at(f, EG_PART_QUERY, EG_SLOT_DRAW, query) + keys.from;
    eg__drop_stays(&f->drop, (uint64_t)first, keys.count, out);
}
enum { DROP_ROWS = 256 }; /* rows of a tile for which dropout is drawn at once */
/* Writes the bytes of n ≤ DROP_ROWS rows to a tile of w lanes, [row][lane], from those of `lanes`
 * lanes, [lane][row]. Words of four bytes are transposed, and then split into bytes. */
static void dropout_transpose(int w, int64_t lanes, int64_t n, const uint32_t *from, uint8_t *tile)
{
    uint32_t transposed[DROP_ROWS / 4 * EG_KERNEL_SIDE];
    const int64_t words = (n + 3) / 4;
    if (lanes < w) memset(transposed, 0, (size_t)(words * w) * sizeof *transposed);
    eg__transpose(sizeof *from, lanes, words, from, DROP_ROWS / 4, transposed, w, false);
    eg__bytes_of_words(w, n, transposed, tile);
}
/* The keys of one query are a row of the tile if its lanes are keys, else a column. */
void eg__fused_dropout(const eg_fused *f, const eg_fused_batch *b, eg_stretch rows,
                       eg_stretch lanes, uint8_t *tile)
{
    const int w = f->wide;
    if (lanes.part == EG_PART_KEY) {
        for (int64_t i = 0; i < rows.count; i++) {
            dropout_kept(f, b, rows.from + i, lanes, tile + i * w);
            memset(tile + i * w + lanes.count, 0, (size_t)(w - lanes.count));
        }
        return;
    }
    uint32_t drawn[EG_KERNEL_SIDE * DROP_ROWS / 4]; /* [lane][row], a byte each */
    for (int64_t done = 0, n; done < rows.count; done += n) {
        n = eg__min64(DROP_ROWS, rows.count - done);
        for (int64_t i = 0; i < lanes.count; i++) {
            uint32_t *line = drawn + i * DROP_ROWS / 4;
            line[(n - 1) / 4] = 0;
            dropout_kept(f, b, lanes.from + i, (eg_stretch){ EG_PART_KEY, rows.from + done, n },
                         (uint8_t *)line);
        }
        dropout_transpose(w, lanes.count, n, drawn, tile + done * w);
    }
}
