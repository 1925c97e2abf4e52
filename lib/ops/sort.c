/* sort.c: the order of elements along one axis. The operation computes indices (i64); the elements
 * are read at them by `at`, which has a gradient. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

/* The attribute: the first k indices of the order are computed. */
typedef struct ranking {
    int64_t k;
    bool descending;
} ranking;
typedef struct rank_job {
    int64_t n, k;
    bool descending;
} rank_job;
/* An element of a row. Elements are ordered by key, then by index. */
typedef struct ranked {
    uint64_t key;
    int64_t place;
} ranked;
/* At most IN_ORDER candidates are kept in order, more in a heap; APART: the number of interleaved
 * parts of a row (sort_of.h). Rows of fewer than LEAST elements are not selected from. Of more than
 * RATIO times as many elements as are wanted, few of them reach the heap. In rows of at most
 * COUNTED elements the place of each is counted, in those of at most FEW without vectors. n
 * elements are sorted by insertion if n² is below INSERTED for each byte of a key, else in passes
 * of 256 + n steps, one for each byte. */
enum {
    IN_ORDER = 16,
    APART = 2 * IN_ORDER,
    LEAST = 128,
    INSERTED = 512,
    RATIO = 400,
    FEW = 7,
    COUNTED = 64
};
/* How the first k of n elements with keys of `width` bytes are found: each element is compared with
 * the best k so far; the few more than k up to a bound are sorted; or the row is sorted. */
typedef enum method { SEARCHED, SELECTED, SORTED } method;
static method rank_method(int64_t k, int64_t n, int width)
{
    if (k <= IN_ORDER && k < n / (n >= APART ? 3 : 8)) return SEARCHED;
    if (width == 8 && k < n / RATIO) return SEARCHED; /* reading the keys often takes longer */
    return k < n / 2 && n >= LEAST ? SELECTED : SORTED;
}
/* Returns how many elements up to a bound are few enough to be sorted for the first k. */
static int64_t candidates(int64_t k) { return k + k / 4 + 8; }

static bool after(const ranked *a, const ranked *b)
{
    return a->key > b->key || (a->key == b->key && a->place > b->place);
}
/* Moves heap[at] down until none of its children comes after it (Williams 1964). The root is the
 * last element of all in the order. */
static void sink(ranked *heap, int64_t count, int64_t at)
{
    const ranked it = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && after(&heap[child + 1], &heap[child])) child++;
        if (!after(&heap[child], &it)) break;
        heap[at] = heap[child];
    }
    heap[at] = it;
}
/* Replaces the root of a heap. */
static void put_in_heap(ranked *heap, int64_t count, ranked it)
{
    heap[0] = it;
    sink(heap, count, 0);
}
/* Inserts an element among elements in order; the last one is removed. */
static void put_in_order(ranked *best, int64_t count, ranked it)
{
    int64_t k = count - 1;
    for (; k > 0 && after(&best[k - 1], &it); k--) best[k] = best[k - 1];
    best[k] = it;
}
/* True if n elements with keys of some bytes are sorted by insertion. */
static bool by_insertion(int64_t n, int bytes) { return n < INSERTED && n * n < INSERTED * bytes; }
#define PAIR    ranked
#define NAME(x) x##_of_ranked
#define KEY(v)  (v).key
#include "ops/by_key_of.h"
/* a key of at most 32 bits above the index */
#define PAIR    uint64_t
#define NAME(x) x##_of_packed
#define KEY(v)  ((v) >> 32)
#include "ops/by_key_of.h"
/* True if n elements with keys up to `most` can be packed. */
static bool fits_packed(int64_t n, uint64_t most) { return most <= UINT32_MAX && n <= UINT32_MAX; }
/* Sets place[] to the indices of the first k of n elements by their keys. Keys in a range of 32
 * bits are packed, less the smallest of them, so that small integers on both sides of 0 have few
 * bytes. spare: n elements. */
static void first_by_key(int64_t n, ranked *pairs, ranked *spare, int64_t k, int64_t *place)
{
    uint64_t low = UINT64_MAX, high = 0;
    const bool few = by_insertion(n, 8);
    for (int64_t i = 0; i < n && !few; i++) {
        low = pairs[i].key < low ? pairs[i].key : low;
        high = pairs[i].key > high ? pairs[i].key : high;
    }
    if (!few && fits_packed(n, high - low)) {
        uint64_t *packed = (uint64_t *)(void *)spare;
        for (int64_t i = 0; i < n; i++) packed[i] = (pairs[i].key - low) << 32 | (uint64_t)i;
        packed = by_key_of_packed(n, 4, packed, packed + n);
        for (int64_t i = 0; i < k; i++) place[i] = pairs[packed[i] & UINT32_MAX].place;
        return;
    }
    pairs = by_key_of_ranked(n, 8, pairs, spare);
    for (int64_t i = 0; i < k; i++) place[i] = pairs[i].place;
}

#define TEMPLATE  "ops/sort_of.h"
#define WITH_BOOL uint8_t
#include "tensor/each_type_of.h"
typedef void rank_row(const rank_job *, const char *x, int64_t *place, ranked *pairs);
static rank_row *const rank[EG_DTYPES] = {
    [EG_F32] = rank_f32, [EG_F64] = rank_f64, [EG_C128] = rank_c128,
    [EG_I32] = rank_i32, [EG_I64] = rank_i64, [EG_BOOL] = rank_bool
};

/* Returns how many pairs fit in the memory that a row needs besides its elements: the best so far;
 * the candidates twice and the keys, of at most 8 bytes; or all elements twice. */
static int64_t pairs_of_row(int64_t k, int64_t n, int width)
{
    switch (rank_method(k, n, width)) {
    case SEARCHED: return k;
    case SELECTED: return 2 * candidates(k) + eg__round_up(n, EG_LANES) / 2;
    default: return 2 * n;
    }
}

/* All rows of a tensor, in pieces. Each thread has a buffer of `each` pairs, of which those from
 * `row` on are the memory for a row that is not contiguous. */
typedef struct rank_rows {
    rank_job job;
    const eg_tensor *y, *x;
    int64_t rows, pieces, row, each;
    int64_t number[EG_RANK_MAX]; /* how many rows further the next index of an axis is */
    ranked *pairs;
} rank_rows;
/* The place of a row in x and in y, in elements; of the first row that is the same memory of x, its
 * number and its place in y. index: of the row along each axis. */
typedef struct row_place {
    int64_t from, to, same, same_to, index[EG_RANK_MAX];
} row_place;
/* Moves `by` rows along axis a. */
static void row_place_move(const rank_rows *s, row_place *at, int a, int64_t by)
{
    at->index[a] += by;
    at->from += by * s->x->stride[a];
    at->to += by * s->y->stride[a];
    if (!s->x->stride[a]) return;
    at->same += by * s->number[a];
    at->same_to += by * s->y->stride[a];
}
static void row_place_next(const rank_rows *s, row_place *at)
{
    for (int a = s->x->rank - 1; a-- > 0;) {
        row_place_move(s, at, a, 1);
        if (at->index[a] < s->x->dim[a]) return;
        row_place_move(s, at, a, -s->x->dim[a]);
    }
}
/* Orders one piece of the rows. Rows that are one in memory, as those of an expanded tensor, are
 * ordered once; elements that are one keep their order. */
static void rank_piece(void *user, int64_t piece, int thread)
{
    const rank_rows *s = user;
    const int outer = s->x->rank - 1, width = eg__width[s->x->dtype];
    ranked *pairs = s->pairs + thread * s->each;
    const int64_t first = s->rows * piece / s->pieces, end = s->rows * (piece + 1) / s->pieces;
    row_place at = { .from = 0 };
    for (int64_t a = outer, left = first; a-- > 0; left /= s->x->dim[a])
        row_place_move(s, &at, (int)a, left % s->x->dim[a]);
    for (int64_t r = first; r < end; r++, row_place_next(s, &at)) {
        const int64_t from = at.from, to = at.to, same = at.same, same_to = at.same_to;
        int64_t *place = (int64_t *)(void *)s->y->data;
        if (same < r && same >= first) {
            memcpy(place + to, place + same_to, (size_t)s->job.k * sizeof *place);
            continue;
        }
        if (!s->x->stride[outer]) {
            for (int64_t i = 0; i < s->job.k; i++) place[to + i] = i;
            continue;
        }
        const char *x = s->x->data + from * width;
        if (s->x->stride[outer] != 1) {
            eg__move(width, s->job.n, pairs + s->row, width, x, s->x->stride[outer] * width);
            x = (const char *)(pairs + s->row);
        }
        rank[s->x->dtype](&s->job, x, place + to, pairs);
    }
}

/* -- argsort: x[y_0] ≤ x[y_1] ≤ …, equal elements in their order ------------------------------ */
static bool argsort_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    int64_t dim[EG_RANK_MAX];
    for (int r = 0; r < x->rank; r++)
        dim[r] = r < x->rank - 1 ? x->dim[r] : ((const ranking *)y->attr)->k;
    return eg__shape(y, EG_I64, x->rank, dim);
}
/* Divides the rows among threads, each with a buffer for one row. False after an error. */
static bool argsort_forward(eg_tensor *y)
{
    const ranking *a = y->attr;
    const eg_tensor *x = y->in[0];
    const int last = x->rank - 1;
    rank_rows s = {
        .job = { x->dim[last], a->k, a->descending },
        .y = y,
        .x = x,
        .rows = eg__count(last, x->dim),
    };
    if (!a->k || !s.rows) return true;
    for (int64_t r = last, rows = 1; r-- > 0; rows *= x->dim[r]) s.number[r] = rows;
    int team = eg__team(y->cx, s.rows * 16 * s.job.n, 1 << 18);
    if (team > s.rows) team = (int)s.rows;
    s.pieces = team > 1 ? eg__min64(s.rows, 4 * team) : 1;
    s.row = pairs_of_row(a->k, s.job.n, x->dtype == EG_C128 ? 8 : eg__width[x->dtype]);
    const int64_t row_bytes = x->stride[last] == 1 ? 0 : s.job.n * eg__width[x->dtype];
    s.each = s.row + eg__round_up(row_bytes, sizeof *s.pairs) / (int64_t)sizeof *s.pairs;
    s.pairs = eg__scratch(y->cx, EG_SCRATCH_PARTS, (size_t)(team * s.each) * sizeof *s.pairs);
    if (!s.pairs) return false;
    eg__parallel(y->cx, team, s.pieces, rank_piece, &s);
    return true;
}
static eg_tensor *argsort_call(eg_tensor *const *x) { return eg_argsort("b [l] d", x[0]); }
static eg_tensor *sort_call(eg_tensor *const *x) { return eg_sort("b [l] d", x[0]); }
static eg_tensor *topk_call(eg_tensor *const *x) { return eg_topk("b [l]", x[0], 3); }
static eg_tensor *top_call(eg_tensor *const *x) { return eg_topk("b [l] d -> d b", x[0], 1); }
static const eg_sample argsort_samples[] = { { argsort_call, "2x5x3", 0, 0 },
                                             { sort_call, "2x5x3", 0, 0 },
                                             { sort_call, "2x5x3:i4", 0, 0 },
                                             { sort_call, "2x5x3:b", 0, 0 },
                                             { topk_call, "3x7", 0, 0 },
                                             { top_call, "2x5x3", 0, 0 },
                                             { 0 } };
static const eg_op argsort_op = {
    .name = "argsort",
    .equation = "x[y_0] <= x[y_1] <= ..., equals in their order",
    .gradient = "dx = 0",
    .arity = 1,
    .shape = argsort_shape,
    .forward = argsort_forward,
    .rule = eg_zero_rule,
    .uses = EG_USES_NOTHING,
    .samples = argsort_samples,
    .forward_c128 = argsort_forward,
};

/* -- sort and topk: x at the indices of argsort,  dx = g added at the indices ----------------- */
/* Returns y, the first k indices, in the form that the string requires: with the operand's axes;
 * or, if there is an output, which needs k = 1, without the sorted axis. */
static eg_tensor *rank_placed(const eg_focus *f, eg_tensor *y)
{
    return f->bound && f->bound->arrow ? eg__focus_outer(f, eg_squeeze(y, -1))
                                       : eg__focus_same(f, y);
}
static eg_tensor *sorted(const eg_focus *f, int64_t k, bool descending, bool values,
                         eg_tensor **order)
{
    eg_tensor *at = eg_apply(&argsort_op, &(ranking){ k, descending }, sizeof(ranking), 1,
                             (eg_tensor *[]){ f->x });
    eg_tensor *y = values ? eg__take_last(f->x, at) : at;
    if (order) *order = rank_placed(f, at);
    return rank_placed(f, y);
}
static eg_tensor *sort_with(const char *who, const eg_sort_args *given, bool values)
{
    eg_sort_args o = { .size = sizeof o };
    eg_focus f;
    eg_options(&o, sizeof o, given);
    if (o.order) *o.order = eg__poison_of(o.x);
    if (!eg__focus(&f, who, o.spec, o.x) || !eg__focus_one(&f) || !eg__check(who, o.x))
        return eg__poison_of(o.x);
    return sorted(&f, eg__row_length(f.x, 1), o.descending, values, o.order);
}
eg_tensor *eg_sort_with(const eg_sort_args *o) { return sort_with("sort", o, true); }
eg_tensor *eg_argsort_with(const eg_sort_args *o) { return sort_with("argsort", o, false); }
eg_tensor *eg_topk_with(const eg_topk_args *given)
{
    eg_topk_args o = { .size = sizeof o };
    eg_focus f;
    eg_options(&o, sizeof o, given);
    if (o.order) *o.order = eg__poison_of(o.x);
    if (!eg__focus(&f, "topk", o.spec, o.x) ||
        !(o.k == 1 ? eg__focus_axis(&f) : eg__focus_one(&f)) || !eg__check("topk", o.x))
        return eg__poison_of(o.x);
    const int64_t n = eg__row_length(f.x, 1);
    if (o.k < 0 || o.k > n)
        return eg_fail_as(o.x->cx, EG_ERROR_INDEX,
                          "topk: k is %lld, but the bracketed axis of operand 1 has %lld element%s",
                          (long long)o.k, (long long)n, n == 1 ? "" : "s");
    return sorted(&f, o.k, !o.smallest, true, o.order);
}

const eg_op *const eg__sort_ops[] = { &argsort_op, NULL };
