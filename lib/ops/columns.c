/* columns.c: short rows, many at a time: element 0 of each row, then element 1, … A loop over rows
 * is then one over neighbours. If rows are not neighbours along a long axis, as the windows of an
 * image with 3 channels, their elements are gathered first, several columns at once where rows are
 * contiguous. */
#include "ops/ops.h"

/* Returns how many columns of n rows are gathered at a time: as many as the buffer holds of
 * contiguous rows of elements of 4 or 8 bytes, which are transposed; else 1. */
static int64_t columns_at_once(const eg_strip *x, int64_t n)
{
    const int64_t width = x->width;
    return x->axis[x->rank - 1].step == width && (width == 4 || width == 8)
               ? (int64_t)sizeof((eg_columns *)0)->buffer / (n * width)
               : 1;
}
void eg__columns(eg_columns *c, const eg_strip *x, const char *from, int64_t n, int64_t apart)
{
    c->x = x;
    c->from = from;
    c->rows = n;
    c->apart = apart;
    c->many = columns_at_once(x, n);
    eg__axes_to(x->rank, (const int64_t *)(const void *)x->axis, 2, 1, 0, c->index, &c->at);
}
const void *eg__column(eg_columns *c)
{
    const int last = c->x->rank - 1;
    const int64_t width = c->x->width, at = c->index[last];
    const char *x = c->from + c->at;
    if (c->apart == width) return x;
    const int64_t k = at % c->many;
    if (c->many == 1)
        eg__move((int)width, c->rows, c->buffer, width, x, c->apart);
    else if (!k)
        eg__transpose_narrow((size_t)width, c->rows, eg__min64(c->many, c->x->axis[last].size - at),
                             x, c->apart / width, c->buffer, c->rows);
    return c->buffer + k * c->rows * width;
}
const void *eg__column_run(eg_columns *c, int64_t *columns, int64_t *step)
{
    const int last = c->x->rank - 1;
    const eg_strip_axis *axis = &c->x->axis[last];
    const void *x = eg__column(c);
    const bool near = c->apart == c->x->width;
    const int64_t at = c->index[last],
                  left = near ? EG_COLUMNS : c->many - at % c->many; /* of the gathered ones */
    *columns = eg__min64(axis->size - at, eg__min64(left, EG_COLUMNS));
    *step = near ? axis->step : c->rows * c->x->width;
    c->index[last] += *columns - 1;
    c->at += (*columns - 1) * axis->step;
    return x;
}
bool eg__column_next(eg_columns *c)
{
    return eg__axes_next(c->x->rank, (const int64_t *)(const void *)c->x->axis, 2, 1, c->index,
                         &c->at);
}

/* -- gathered columns ------------------------------------------------------------------------- */
/* At most GATHERED rows at a time, whose elements have at most GATHERED_BYTES. */
enum { GATHERED = 256, GATHERED_BYTES = EG_ROW_GATHERED * EG_LANES };
typedef struct column_job {
    eg_tensor *y;
    const eg_tensor *x;
    const eg_strip *row; /* the layout of a row of x */
    eg_inner *run;
    const void *user;
    int64_t rows, pieces;
    int64_t most; /* rows at a time */
    /* the number of rows of a plane, which are those along the last axis of y, and the distance of
     * planes in x, in elements; plane is 0 if the distances differ */
    int64_t plane, apart;
} column_job;
/* Writes the distances of rows `from` … from + count − 1 from the first one, in bytes. */
static void row_offsets(const eg_tensor *x, int outer, int64_t from, int64_t count, int64_t *offset)
{
    int64_t axis[EG_RANK_MAX][2], index[EG_RANK_MAX], at;
    const int64_t width = eg__width[x->dtype];
    for (int r = 0; r < outer; r++) axis[r][0] = x->dim[r], axis[r][1] = x->stride[r] * width;
    const int64_t size = outer ? x->dim[outer - 1] : 1, step = outer ? axis[outer - 1][1] : 0;
    const int others = outer ? outer - 1 : 0;
    int64_t i = from % size;
    eg__axes_to(others, axis[0], 2, 1, from / size, index, &at);
    for (int64_t k = 0; k < count; i = 0) {
        const int64_t run = eg__min64(size - i, count - k);
        for (int64_t m = 0; m < run; m++) offset[k + m] = at + (i + m) * step;
        k += run;
        eg__axes_next(others, axis[0], 2, 1, index, &at);
    }
}
/* to[i] = the element at from + offset[i]; or the reverse, if `back`. */
static void move_listed(int64_t width, int64_t n, char *from, const int64_t *offset, char *to,
                        bool back)
{
#define MOVE(T)                                                                                  \
    if (back)                                                                                    \
        for (int64_t i = 0; i < n; i++) *(T *)(void *)(from + offset[i]) = ((T *)(void *)to)[i]; \
    else                                                                                         \
        for (int64_t i = 0; i < n; i++) ((T *)(void *)to)[i] = *(T *)(void *)(from + offset[i])
    switch (width) {
    case 1: MOVE(uint8_t); break;
    case 2: MOVE(uint16_t); break;
    case 4: MOVE(uint32_t); break;
    default: MOVE(uint64_t); break;
    }
#undef MOVE
}
/* Copies the columns of n rows of whole planes, from number `row` on, as one tensor. */
static void gather_planes(const column_job *j, int64_t row, int64_t n, char *column)
{
    const int inner = j->row->rank, rank = inner + 2, last = j->y->rank - 1;
    const int64_t w = j->row->width, planes = n / j->plane;
    int64_t dim[EG_RANK_MAX], to[EG_RANK_MAX], from[EG_RANK_MAX];
    for (int r = inner - 1; r >= 0; r--) {
        dim[r] = j->row->axis[r].size;
        to[r] = r == inner - 1 ? j->most : to[r + 1] * dim[r + 1];
        from[r] = j->row->axis[r].step / w;
    }
    dim[inner] = planes, to[inner] = j->plane, from[inner] = j->apart;
    dim[inner + 1] = j->plane, to[inner + 1] = 1, from[inner + 1] = j->x->stride[last];
    eg_tensor target = *j->x, source = *j->x;
    target.rank = source.rank = (uint8_t)rank;
    target.dim = source.dim = dim;
    target.stride = to, source.stride = from;
    target.data = column;
    source.data = j->x->data + row / j->plane * j->apart * w;
    eg__copy(&target, &source);
}
/* Sets plane and apart. */
static void find_planes(column_job *j)
{
    const int last = j->y->rank - 1;
    eg_tensor first = *j->x; /* the first row of each plane */
    eg_strip planes;
    first.rank = (uint8_t)last;
    eg__strip(&planes, &first, last);
    if (planes.rank > 1 || j->row->rank > EG_RANK_MAX - 2) return;
    j->plane = j->y->dim[last];
    j->apart = planes.axis[0].step / planes.width;
}
/* Computes one piece of the rows, `most` at a time: gathers their elements, calls `run`, and
 * writes the results to their places. */
static void piece_of_columns(void *user, int64_t piece, int thread)
{
    const column_job *j = user;
    _Alignas(64) char column[GATHERED_BYTES], result[GATHERED * 8];
    int64_t at_x[GATHERED], at_y[GATHERED], index[EG_RANK_MAX];
    const int64_t *axes = (const int64_t *)(const void *)j->row->axis;
    const int64_t wx = eg__width[j->x->dtype], wy = eg__width[j->y->dtype];
    const int64_t unit = j->plane ? j->plane : 1, units = j->rows / unit;
    const int64_t to = units * (piece + 1) / j->pieces * unit;
    const bool in_place = eg_is_row_major(j->y);
    (void)thread;
    for (int64_t row = units * piece / j->pieces * unit, n; row < to; row += n) {
        int64_t along, k = 0;
        n = eg__min64(to - row, j->most / unit * unit);
        if (j->plane)
            gather_planes(j, row, n, column);
        else {
            row_offsets(j->x, j->y->rank, row, n, at_x);
            eg__axes_to(j->row->rank, axes, 2, 1, 0, index, &along);
            do move_listed(wx, n, j->x->data + along, at_x, column + k++ * j->most * wx, false);
            while (eg__axes_next(j->row->rank, axes, 2, 1, index, &along));
        }
        char *out = in_place ? j->y->data + row * wy : result;
        j->run(n, (char *const[]){ out, column }, (const int64_t[]){ wy, wx }, j->user);
        if (in_place) continue;
        row_offsets(j->y, j->y->rank, row, n, at_y);
        move_listed(wy, n, j->y->data, at_y, result, true);
    }
}
void eg__rows_across(eg_tensor *y, const eg_tensor *x, eg_strip *row, eg_inner *run,
                     const void *user, int64_t work)
{
    const eg_strip given = *row;
    const int64_t bytes = given.n ? given.n * given.width : 1,
                  most = eg__min64(GATHERED, GATHERED_BYTES / bytes) & -EG_LANES;
    if (!y->rank || y->dim[y->rank - 1] >= EG_LANES || eg_size(y) < EG_LANES || !most ||
        given.width > 8) {
        eg_tensor first = *x; /* the first element of each row */
        first.rank = y->rank;
        eg__loop_work(y->cx, 2, (const eg_tensor *[]){ y, &first }, run, user, work);
        return;
    }
    *row = (eg_strip){
        .rank = 1, .width = given.width, .n = given.n, .axis = { { given.n, most * given.width } }
    };
    column_job j = { y, x, &given, run, user, .rows = eg_size(y), .most = most };
    const int team = eg__team(y->cx, j.rows * (work + 8), 1 << 18);
    find_planes(&j);
    j.pieces = team > 1 ? eg__min64(j.rows / (j.plane ? j.plane : 1), 4 * team) : 1;
    eg__parallel(y->cx, team, j.pieces, piece_of_columns, &j);
}
