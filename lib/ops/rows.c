/* rows.c: functions that the operations on bracketed axes share: aligning by letters, and
 * traversing rows. */
#include "ops/ops.h"
#include <string.h>

/* -- aligning by letters ---------------------------------------------------------------------- */
eg_tensor *eg__align_labels(eg_tensor *x, int n, const uint16_t *label, int rank,
                            const uint16_t *axis, const int64_t *dim)
{
    int order[EG_RANK_MAX] = { 0 }, have = 0;
    bool mine[EG_RANK_MAX] = { false };
    for (int r = 0; r < rank; r++)
        for (int k = 0; k < n && !mine[r]; k++)
            if (label[k] == axis[r]) {
                order[have++] = k;
                mine[r] = true;
            }
    x = eg__reordered(x, have, order);
    for (int r = 0; have < rank && r < rank; r++)
        if (!mine[r]) x = eg_unsqueeze(x, r);
    return have < rank ? eg_expand_n(x, rank, dim) : x;
}
eg_tensor *eg__align(const eg_bound *b, int term, int rank, const uint16_t *axis)
{
    const eg_bound_term *t = &b->term[term];
    uint16_t label[EG_RANK_MAX];
    int64_t dim[EG_RANK_MAX];
    for (int k = 0; k < t->items; k++) label[k] = t->item[k].axis;
    for (int r = 0; r < rank; r++) dim[r] = b->axis[axis[r]].size;
    return eg__align_labels(t->x, t->items, label, rank, axis, dim);
}

eg_tensor *eg__align_alias(const eg_bound *b, eg_tensor *x, int term, int rank,
                           const uint16_t *axis)
{
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    for (int r = 0; r < rank; r++) {
        int k = eg__item_of(&b->term[term], axis[r]);
        dim[r] = b->axis[axis[r]].size;
        stride[r] = k < 0 ? 0 : x->stride[k];
    }
    return eg__alias(x, rank, dim, stride, 0);
}

/* -- the last axes, differentiable ------------------------------------------------------------ */
static const uint16_t counting[EG_RANK_MAX] = { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                22, 23, 24, 25, 26, 27, 28, 29, 30, 31 };

eg_tensor *eg__sum_last(eg_tensor *x, int inner)
{
    if (!eg__check("sum", x)) return eg__poison_of(x);
    return eg__einsum(1, &x, (const uint16_t *[]){ counting }, x->rank - inner, counting);
}
eg_tensor *eg__dot_last(eg_tensor *a, eg_tensor *b, int inner)
{
    if (!eg__check("sum", a)) return eg__poison_of(a);
    return eg__einsum(2, (eg_tensor *[]){ a, b }, (const uint16_t *[]){ counting, counting },
                      a->rank - inner, counting);
}
eg_tensor *eg__dot_first(eg_tensor *a, eg_tensor *b, int inner)
{
    if (!eg__check("sum", a)) return eg__poison_of(a);
    return eg__einsum(b ? 2 : 1, (eg_tensor *[]){ a, b },
                      (const uint16_t *[]){ counting, counting }, inner,
                      counting + a->rank - inner);
}
eg_tensor *eg__widen(eg_tensor *y, int inner)
{
    if (!eg_ok(y) || !inner) return y;
    int64_t dim[EG_RANK_MAX];
    for (int k = 0; k < y->rank + inner; k++) dim[k] = k < y->rank ? y->dim[k] : 1;
    return eg_reshape_n(y, y->rank + inner, dim);
}
bool eg__floats(const char *who, const eg_tensor *x, int operand)
{
    if (eg__is_inexact(x->dtype)) return true;
    eg_fail_as(x->cx, EG_ERROR_DTYPE, "%s: operand %d is %s; cast it to f32 or f64 first", who,
               operand, eg_type_name(x->dtype));
    return false;
}
int64_t eg__row_length(const eg_tensor *x, int inner)
{
    return eg__count(inner, x->dim + (x->rank - inner));
}

/* -- strips: the memory layout of a row ------------------------------------------------------- */
void eg__strip(eg_strip *s, const eg_tensor *x, int inner)
{
    s->rank = 0;
    s->width = eg__width[x->dtype];
    s->n = 1;
    for (int r = x->rank - inner; r < x->rank; r++) {
        const int64_t size = x->dim[r], step = x->stride[r] * s->width;
        eg_strip_axis *last = s->axis + (s->rank ? s->rank - 1 : 0);
        s->n *= size;
        if (size == 1) continue;
        if (s->rank && last->step == step * size)
            *last = (eg_strip_axis){ last->size * size, step };
        else
            s->axis[s->rank++] = (eg_strip_axis){ size, step };
    }
    if (s->rank == 0) s->axis[s->rank++] = (eg_strip_axis){ s->n, s->width };
}

/* Copies count elements from element `start` on between a row and a contiguous buffer; to the row
 * if `out`. Contiguous pieces of a row that are equally far apart are copied together. */
static void copy_strip(const eg_strip *s, char *row, int64_t start, int64_t count, char *buffer,
                       bool out)
{
    if (!count) return; /* a row without elements may have an axis of size 0 */
    const int last = s->rank - 1;
    const int64_t *axes = (const int64_t *)(const void *)s->axis, w = s->width;
    const int64_t size = s->axis[last].size, step = s->axis[last].step;
    const bool pieces = last && step == w && size * w <= EG_PIECE_BYTES;
    int64_t index[EG_RANK_MAX], at, from = start % size;
    eg__axes_to(last, axes, 2, 1, start / size, index, &at);
    for (int64_t run; count > 0; from = 0, count -= run) {
        char *p = row + at + from * step;
        run = eg__min64(size - from, count);
        if (pieces && run == size) {
            const eg_strip_axis *next = &s->axis[last - 1];
            const int64_t m = eg__min64(next->size - index[last - 1], count / size);
            if (out)
                eg__move_pieces(m, size * w, p, next->step, buffer, size * w);
            else
                eg__move_pieces(m, size * w, buffer, size * w, p, next->step);
            index[last - 1] += m - 1;
            at += (m - 1) * next->step;
            run = m * size;
        } else if (out)
            eg__move(s->width, run, p, step, buffer, w);
        else
            eg__move(s->width, run, buffer, w, p, step);
        buffer += run * w;
        eg__axes_next(last, axes, 2, 1, index, &at);
    }
}
eg_tensor *eg__contiguous_rows(eg_tensor *x, int inner)
{
    eg_strip s;
    if (!eg_ok(x)) return x;
    eg__strip(&s, x, inner);
    return eg__strip_contiguous(&s) ? x : eg_contiguous(x);
}
const void *eg__strip_read(const eg_strip *s, const char *row, int64_t start, int64_t count,
                           void *buffer)
{
    if (eg__strip_contiguous(s)) return row + start * s->width;
    copy_strip(s, (char *)row, start, count, buffer, false);
    return buffer;
}
void *eg__strip_buffer(const eg_strip *s, char *row, int64_t start, void *buffer)
{
    return eg__strip_contiguous(s) ? row + start * s->width : buffer;
}
void eg__strip_done(const eg_strip *s, char *row, int64_t start, int64_t count, const void *written)
{
    if (!eg__strip_contiguous(s)) copy_strip(s, row, start, count, (char *)written, true);
}

double complex *eg__strip_c128(const eg_strip *s, const char *row, int64_t k)
{
    int64_t at;
    eg__axes_to(s->rank, (const int64_t *)(const void *)s->axis, 2, 1, k, NULL, &at);
    return (double complex *)(void *)(row + at);
}

/* -- all rows, divided among threads ---------------------------------------------------------- */
typedef struct walk {
    int outer, operands;
    const eg_tensor *const *x;
    int64_t axis[EG_RANK_MAX][1 + EG_ROW_OPERANDS]; /* size, then distances in bytes */
    eg_row_body *body;
    const void *user;
} walk;

static void some_rows(const walk *w, int64_t from, int64_t to)
{
    enum { PITCH = 1 + EG_ROW_OPERANDS };
    int64_t index[EG_RANK_MAX], at[EG_ROW_OPERANDS];
    eg__axes_to(w->outer, (const int64_t *)(const void *)w->axis, PITCH, w->operands, from, index,
                at);
    for (int64_t row = from; row < to; row++) {
        char *p[EG_ROW_OPERANDS];
        for (int k = 0; k < w->operands; k++) p[k] = w->x[k]->data + at[k];
        w->body(w->user, row, p);
        eg__axes_next(w->outer, (const int64_t *)(const void *)w->axis, PITCH, w->operands, index,
                      at);
    }
}

/* Rows that are gathered for a function of contiguous ones; several at a time if they are short, or
 * neighbours in memory. */
typedef struct gathering {
    eg_inner *run;
    const void *user;
    int operands;
    int block; /* rows at a time; if it is 1, contiguous rows are not gathered */
    eg_strip strip[EG_ROW_OPERANDS];
    int64_t bytes[EG_ROW_OPERANDS]; /* of a row */
    char *buffer[EG_ROW_OPERANDS];  /* of thread 0; NULL: rows are not gathered */
    int64_t each;                   /* distance of two threads' buffers in bytes */
    struct gathered *now;
} gathering;
/* The rows that a thread collects: their addresses in each operand. */
typedef struct gathered {
    int count;
    char *row[EG_ROW_OPERANDS][EG_CHUNK];
} gathered;
enum { CLOSE = 32, GATHERED_ROWS = 64 };
/* Returns how many of `count` rows have the distance of the first two, *apart: one element, or up
 * to CLOSE bytes if they are not written, or any if rows have one element. Returns 1 if they are
 * not so close. */
static int64_t neighbours(const eg_strip *s, char *const *row, int64_t count, bool out,
                          int64_t *apart)
{
    int64_t n = 1;
    *apart = count < 2 ? 0 : row[1] - row[0];
    const bool close = s->rank == 1 && (s->width == 4 || s->width == 8) && *apart >= s->width &&
                       *apart <= (out ? s->width : CLOSE);
    if (s->n != 1 && !close) return 1;
    while (n < count && row[n] == row[n - 1] + *apart) n++;
    return n;
}
/* Copies n rows, at most GATHERED_ROWS, that are `apart` bytes from each other to rows that are
 * `along` elements from each other: some elements of all rows first, one row after the other. */
static void gather_close(const eg_strip *s, int64_t n, const char *row, int64_t apart, char *to,
                         int64_t along)
{
    enum { PART = 16 };
    _Alignas(64) char part[PART * GATHERED_ROWS * 8];
    const int64_t w = s->width;
    for (int64_t k = 0, m; k < s->n; k += m) {
        m = eg__min64(PART, s->n - k);
        for (int64_t i = 0; i < m; i++)
            eg__move((int)w, n, part + i * n * w, w, row + (k + i) * s->axis[0].step, apart);
        eg__transpose((size_t)w, m, n, part, n, to + k * w, along, false);
    }
}
/* Copies the rows of one operand to the buffer, or back if `out`. Neighbours are transposed, since
 * each cache line has elements of several of them. */
static void move_rows(const gathering *g, int k, bool out)
{
    const eg_strip *s = &g->strip[k];
    const gathered *now = g->now;
    const int64_t w = s->width, across = s->axis[0].step / w, along = g->bytes[k] / w;
    for (int64_t r = 0, n, apart; r < now->count; r += n) {
        char *buffer = g->buffer[k] + r * g->bytes[k], *row = now->row[k][r];
        n = neighbours(s, now->row[k] + r, now->count - r, out, &apart);
        if (s->n == 1 && out)
            eg__move((int)w, n, row, apart, buffer, w);
        else if (s->n == 1)
            eg__move((int)w, n, buffer, w, row, apart);
        else if (n == 1)
            copy_strip(s, row, 0, s->n, buffer, out);
        else if (apart != w)
            gather_close(s, n = eg__min64(n, GATHERED_ROWS), row, apart, buffer, along);
        else if (out)
            eg__transpose((size_t)w, n, s->n, buffer, along, row, across, false);
        else
            eg__transpose((size_t)w, s->n, n, row, across, buffer, along, false);
    }
}
static void gathered_run(const gathering *g)
{
    gathered *now = g->now;
    char *at[EG_ROW_OPERANDS];
    if (!now->count) return;
    for (int k = 0; k < g->operands; k++) {
        at[k] = g->buffer[k] ? g->buffer[k] : now->row[k][0];
        if (k && g->buffer[k]) move_rows(g, k, false);
    }
    g->run(now->count, at, g->bytes, g->user);
    if (g->buffer[0]) move_rows(g, 0, true);
    now->count = 0;
}
static void gathered_row(const void *user, int64_t row, char *const *p)
{
    const gathering *g = user;
    gathered *now = g->now;
    (void)row;
    for (int k = 0; k < g->operands; k++) now->row[k][now->count] = p[k];
    if (++now->count == g->block) gathered_run(g);
}
bool eg__rows_are_neighbours(const eg_tensor *x, int outer, const eg_strip *s)
{
    bool near = false;
    for (int r = 0; r < outer; r++) near |= x->stride[r] == 1 && x->dim[r] > 1;
    return near && !eg__strip_contiguous(s);
}
/* Returns the number of rows to gather at a time: those of one chunk; or, if rows of an operand are
 * neighbours in memory, those of a few cache lines, as far as the second-level cache has them. Long
 * rows take one line of f32, and the longest half a line, which limits the memory for them: read
 * one by one they would read a line of memory for each element. */
static int gathered_block(const gathering *g, const walk *w, int64_t longest)
{
    enum { LEAST = 16, MOST = 64, BYTES = 512 << 10, MUCH = 32 << 20 };
    const int64_t few = longest > EG_CHUNK ? 1 : EG_CHUNK / longest;
    int64_t bytes = 0, many = MOST;
    bool near = false;
    for (int k = 0; k < g->operands; k++) {
        bytes += g->bytes[k];
        near |= w->outer && w->axis[w->outer - 1][1 + k] >= g->strip[k].width &&
                w->axis[w->outer - 1][1 + k] <= (k ? CLOSE : g->strip[k].width) &&
                !eg__strip_contiguous(&g->strip[k]);
    }
    while (many > LEAST && many * bytes > BYTES) many /= 2;
    if (many * bytes > MUCH) many = LEAST / 2;
    return (int)(near && few < many ? many : few);
}

typedef struct shared {
    walk *w;
    const gathering *g; /* NULL if the rows are read in place */
    int64_t rows, pieces;
} shared;
/* Computes one piece of the rows. If rows are gathered, each thread has separate buffers. */
static void piece_of_rows(void *user, int64_t piece, int thread)
{
    const shared *s = user;
    const int64_t from = s->rows * piece / s->pieces, to = s->rows * (piece + 1) / s->pieces;
    if (!s->g) {
        some_rows(s->w, from, to);
        return;
    }
    walk w = *s->w;
    gathered now;
    gathering g = *s->g;
    now.count = 0;
    g.now = &now;
    for (int k = 0; k < g.operands; k++)
        if (g.buffer[k]) g.buffer[k] += thread * g.each;
    w.user = &g;
    some_rows(&w, from, to);
    gathered_run(&g);
}

static void walk_axes(walk *w)
{
    for (int r = 0; r < w->outer; r++) {
        w->axis[r][0] = w->x[0]->dim[r];
        for (int k = 0; k < w->operands; k++)
            w->axis[r][1 + k] = w->x[k]->stride[r] * eg__width[w->x[k]->dtype];
    }
}
/* Puts the outer axes in the order of their strides in operand 1, so that rows which are neighbours
 * in memory follow each other. The results do not depend on the order of the rows. An axis along
 * which the operand is expanded comes first. */
static void walk_in_memory_order(walk *w)
{
    const int lead = w->operands > 1 ? 2 : 1;
    for (int i = 1; i < w->outer; i++)
        for (int r = i; r > 0; r--) {
            const int64_t step = eg__abs64(w->axis[r][lead]),
                          before = eg__abs64(w->axis[r - 1][lead]);
            int64_t moved[1 + EG_ROW_OPERANDS];
            if (!before || (step && step <= before)) break;
            memcpy(moved, w->axis[r], sizeof moved);
            memcpy(w->axis[r], w->axis[r - 1], sizeof moved);
            memcpy(w->axis[r - 1], moved, sizeof moved);
        }
}
/* Returns the number of pieces in which `team` threads compute the rows. */
static int64_t rows_pieces(int team, int64_t rows)
{
    return team > 1 && rows > 1 ? eg__min64(rows, 4 * team) : 1;
}
/* Computes all rows, whose axes are known, with `team` threads. */
static void rows_by(eg_ctx *cx, int team, walk *w, const gathering *g)
{
    const int64_t rows = eg__count(w->outer, w->x[0]->dim);
    shared s = { .w = w, .g = g, .rows = rows, .pieces = rows_pieces(team, rows) };
    if (s.pieces > 1)
        eg__parallel(cx, team, s.pieces, piece_of_rows, &s);
    else if (rows)
        piece_of_rows(&s, 0, 0);
}
static int rows_team(eg_ctx *cx, int outer, const eg_tensor *x, int64_t work)
{
    return eg__team(cx, eg__count(outer, x->dim) * (work + 8), 1 << 18);
}
void eg__rows(eg_ctx *cx, int outer, int operands, const eg_tensor *const *x, int64_t work,
              eg_row_body *body, const void *user)
{
    walk w = { .outer = outer, .operands = operands, .x = x, .body = body, .user = user };
    walk_axes(&w);
    rows_by(cx, rows_team(cx, outer, x[0], work), &w, NULL);
}

/* A row is read several times, the second time from the first-level cache, while memory is idle.
 * The processor prefetches along a row that it reads, but hardly into the next one. For shorter
 * rows the prefetches cost more than they save, and for longer ones the wait is small compared with
 * the row. */
enum { AHEAD = 2048, AHEAD_LEAST = 1024, AHEAD_MOST = 4096 }; /* in bytes */
void eg__rows_ahead(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const eg_rows_ahead_args *a = user;
    const int64_t most = a->bytes[1] < AHEAD ? AHEAD / a->bytes[1] : 1;
    for (int64_t r = 0, m; r < rows; r += m) {
        char *q[EG_ROW_OPERANDS];
        m = eg__min64(most, rows - r);
        const int64_t next = eg__min64(m, rows - r - m); /* number of rows to prefetch */
        for (int k = 0; k < a->operands; k++) q[k] = p[k] + r * step[k];
        for (int k = 1; k < a->operands; k++)
            eg__prefetch_rows(q[k] + m * step[k], next, step[k], a->bytes[k]);
        a->run(m, q, step, a->user);
    }
}
/* Returns whether prefetching the next rows of `reads` operands saves time. On a Xeon it saves 7 to
 * 24 %. On a Zen 3 it saves 5 % if one operand is read, 10 to 35 % while other processes run, and
 * costs 25 % if two are read. A Zen 5 prefetches from row to row itself, and takes 17 to 30 %
 * longer (docs/measurements.md). */
static bool prefetching_gains(int reads)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("intel") || (reads == 1 && __builtin_cpu_is("znver3"));
#else
    (void)reads;
    return false;
#endif
}
bool eg__rows_ahead_gains(int64_t rows, int64_t bytes, int reads)
{
    return rows * bytes > EG_STREAM_BYTES && bytes >= AHEAD_LEAST && bytes <= AHEAD_MOST &&
           prefetching_gains(reads);
}
/* Calls `run` for rows that are contiguous in all operands. */
static void contiguous_rows(eg_ctx *cx, const gathering *g, int64_t rows, const eg_tensor *const *x,
                            int64_t work)
{
    int reads = 0; /* operands whose rows are as long as those of operand 1 */
    for (int k = 1; k < g->operands; k++) reads += g->bytes[k] >= g->bytes[1];
    const bool ahead = g->operands > 1 && eg__rows_ahead_gains(rows, g->bytes[1], reads);
    eg_rows_ahead_args a = { g->run, g->user, g->operands, { 0 } };
    memcpy(a.bytes, g->bytes, sizeof a.bytes);
    eg__loop_work(cx, g->operands, x, ahead ? eg__rows_ahead : g->run, ahead ? &a : g->user, work);
}
/* Rows of at most SHORT_ROWS bytes are not gathered row by row but copied with their operands, of
 * which all copies together have at most COPIED bytes: parts of the operands along their first
 * axis, if they are larger. */
enum { SHORT_ROWS = 256, COPIED = 1 << 18 };
/* Computes the rows of copies of the operands whose rows are not contiguous. False, and nothing is
 * computed, if that is slower than gathering rows, or after an error. */
static bool rows_of_copies(eg_ctx *cx, const gathering *g, int outer, const eg_tensor *const *x,
                           int64_t longest, int64_t work)
{
    int64_t dim[EG_ROW_OPERANDS][EG_RANK_MAX], stride[EG_ROW_OPERANDS][EG_RANK_MAX];
    int64_t part = 0, first = outer ? x[0]->dim[0] : 1;
    eg_tensor source[EG_ROW_OPERANDS], rows[EG_ROW_OPERANDS];
    const eg_tensor *all[EG_ROW_OPERANDS];
    if (longest * g->strip[0].width > SHORT_ROWS || !first) return false;
    for (int k = 0; k < g->operands; k++) {
        if (eg__strip_contiguous(&g->strip[k])) continue;
        part += eg__round_up(eg__count(x[k]->rank, x[k]->dim) / first * g->strip[k].width, 64);
    }
    const int64_t most = part ? eg__min64(first, COPIED / part) : first;
    char *buffer = most ? eg__scratch(cx, EG_SCRATCH_ROWS, (size_t)(most * part)) : NULL;
    if (!buffer) return false;
    for (int64_t from = 0, m; from < first; from += m) {
        char *to = buffer;
        m = eg__min64(most, first - from);
        for (int k = 0; k < g->operands; k++) {
            source[k] = *x[k];
            memcpy(dim[k], x[k]->dim, x[k]->rank * sizeof *dim[k]);
            if (outer) dim[k][0] = m;
            source[k].dim = dim[k];
            if (outer) source[k].data += from * x[k]->stride[0] * g->strip[k].width;
            rows[k] = source[k];
            if (!eg__strip_contiguous(&g->strip[k])) {
                eg__row_major(rows[k].rank, dim[k], stride[k]);
                rows[k].stride = stride[k];
                rows[k].data = to;
                to += eg__round_up(eg__count(rows[k].rank, dim[k]) * g->strip[k].width, 64);
                if (k) eg__copy(&rows[k], &source[k]);
            }
            rows[k].rank = (uint8_t)outer;
            all[k] = &rows[k];
        }
        contiguous_rows(cx, g, eg__count(outer, dim[0]), all, work);
        rows[0].rank = source[0].rank;
        if (rows[0].data != source[0].data) eg__copy(&source[0], &rows[0]);
    }
    return true;
}
bool eg__batches(eg_tensor *y, int outer, int operands, const eg_tensor *const *x, eg_inner *run,
                 const void *user, int64_t work)
{
    gathering g; /* large, so only the necessary members are set */
    g.run = run, g.user = user, g.operands = operands, g.each = 0;
    eg_tensor rows[EG_ROW_OPERANDS];
    const eg_tensor *all[EG_ROW_OPERANDS];
    int64_t at[EG_ROW_OPERANDS], longest = 1;
    bool contiguous = true;
    for (int k = 0; k < operands; k++) {
        rows[k] = *x[k];
        rows[k].rank = (uint8_t)outer;
        all[k] = &rows[k];
        eg__strip(&g.strip[k], x[k], x[k]->rank - outer);
        contiguous &= eg__strip_contiguous(&g.strip[k]);
        g.bytes[k] = g.strip[k].n * g.strip[k].width;
        if (g.strip[k].n > longest) longest = g.strip[k].n;
    }
    if (contiguous) {
        contiguous_rows(y->cx, &g, eg__count(outer, y->dim), all, work);
        return true;
    }
    if (rows_of_copies(y->cx, &g, outer, x, longest, work)) return true;
    if (eg__failed(y->cx)) return false;
    walk w = { .outer = outer, .operands = operands, .x = x, .body = gathered_row, .user = &g };
    walk_axes(&w);
    walk_in_memory_order(&w);
    const int team = rows_team(y->cx, outer, x[0], work);
    const int64_t count = eg__count(outer, x[0]->dim), pieces = rows_pieces(team, count);
    const int64_t each = count > pieces ? (count + pieces - 1) / pieces : 1;
    g.block = (int)eg__min64(gathered_block(&g, &w, longest), each);
    for (int k = 0; k < operands; k++) {
        at[k] = g.block == 1 && eg__strip_contiguous(&g.strip[k]) ? -1 : g.each;
        if (at[k] >= 0) g.each += eg__round_up(g.block * g.bytes[k], 64);
    }
    char *buffer = eg__scratch(y->cx, EG_SCRATCH_ROWS, (size_t)(team * g.each));
    if (!buffer) return false;
    for (int k = 0; k < operands; k++) g.buffer[k] = at[k] < 0 ? NULL : buffer + at[k];
    rows_by(y->cx, team, &w, &g);
    return true;
}

/* -- interleaved rows ------------------------------------------------------------------------- */
/* True if rows along axis r lie one element after the other in some operands, such as x in "i [j] b
 * h", and are contiguous in the others, r is the innermost outer axis of operand 0, and with the
 * axes that can be merged with it has enough rows for a vector. Operands of rank `outer` have one
 * element per row. */
static bool rows_beside(int outer, int r, int operands, const eg_tensor *const *x)
{
    bool some = false, all = true, merged = true;
    int64_t run = x[0]->dim[r];
    for (int k = 0; k < operands; k++) {
        if (x[k]->rank == outer) continue;
        const bool near = x[k]->stride[r] == 1 && x[k]->stride[outer] != 1;
        some |= near;
        all &= near || x[k]->stride[outer] == 1;
    }
    for (int q = 0; q < outer; q++) all &= x[0]->dim[q] == 1 || x[0]->stride[q] >= x[0]->stride[r];
    for (int q = r - 1; q >= 0 && merged; q--) {
        for (int k = 0; k < operands; k++)
            merged &= x[k]->stride[q] == x[k]->stride[q + 1] * x[k]->dim[q + 1];
        if (merged) run *= x[0]->dim[q];
    }
    return all && some && x[0]->dim[r] > 1 && run >= EG_LANES;
}
bool eg__batches_across(eg_tensor *y, int outer, int operands, const eg_tensor *const *x,
                        eg_inner *run, eg_row_facts *b, const void *user, int64_t work)
{
    bool beside = false;
    eg_tensor rows[EG_ROW_OPERANDS];
    const eg_tensor *all[EG_ROW_OPERANDS];
    for (int r = 0; r < outer; r++) beside |= rows_beside(outer, r, operands, x);
    if (!beside || y->dtype == EG_C128 || b->n < 2 || b->n > EG_ACROSS) return false;
    for (int k = 0; k < operands; k++) {
        if (x[k]->rank > outer) b->along[k] = x[k]->stride[outer];
        rows[k] = *x[k];
        rows[k].rank = (uint8_t)outer;
        all[k] = &rows[k];
    }
    eg__loop_work(y->cx, operands, all, run, user, work);
    return true;
}
