/* axes.c: one traversal of up to five operands of one shape with any strides. Axes of size 1 are
 * dropped. The others are ordered by decreasing |stride| in operand 0 (in operand 1 where operand 0
 * has stride 0), and neighbours that are contiguous in every operand are merged. The callback
 * computes the last axis; the others are counted like an odometer. Threads share the calls. Long
 * runs are cut at multiples of 64 elements, so that the position of an element in a vector register
 * does not change. */
#include "tensor/tensor.h"

enum { OPERANDS = 5, GRAIN = 1 << 18, CHUNK = 4096, CUT = 64 };
/* When two axes are computed together, as a plane, in elements. SHORT_RUN: a longer run is computed
 * alone. SMALL_PLANE: a plane with fewer has a longer axis as its second one. LEAST_SIDE: the
 * shortest axis of a plane whose operands are contiguous along different axes. */
enum { SHORT_RUN = EG_BLOCK, SMALL_PLANE = 64, LEAST_SIDE = 8 };

typedef struct axis {
    int64_t size, step[OPERANDS]; /* steps in bytes */
    int64_t key;                  /* |stride| in operand 0, in elements */
} axis;
enum { PITCH = sizeof(axis) / sizeof(int64_t) };
typedef struct walk {
    int operands, axes; /* outermost first; the callback computes the last ones: `inside` */
    int inside;         /* 2 for planes, else 1 */
    /* one call for each of `chunks` parts of a run (of a plane), which have at most `chunk`
     * elements (rows) each */
    int64_t runs, chunks, chunk;
    bool repeats; /* operand 0 has an axis with stride 0 */
    bool ordered; /* the runs of a plane are those that follow each other */
    char *base[OPERANDS];
    int width[OPERANDS];
    eg_inner *inner;
    eg_plane *plane;
    const void *user;
    axis axis[EG_RANK_MAX];
} walk;

/* Plans the traversal. Returns the number of elements. */
static int64_t axes_plan(walk *w, int operands, const eg_tensor *const *x)
{
    int n = 0, last = 0, *width = w->width;
    int64_t total = 1;
    w->operands = operands;
    w->inside = 1;
    w->repeats = false;
    for (int k = 0; k < operands; k++) {
        width[k] = eg__width[x[k]->dtype];
        w->base[k] = x[k]->data;
    }
    for (int r = 0; r < x[0]->rank; r++) {
        int64_t size = x[0]->dim[r], key = eg__abs64(x[0]->stride[r]);
        if (size == 1) continue;
        total *= size;
        if (key == 0) w->repeats = true;
        int at = n++;
        for (; at > 0; at--) {
            const axis *outer = &w->axis[at - 1];
            if (key < outer->key) break;
            if (key == outer->key && (operands == 1 || eg__abs64(x[1]->stride[r]) * width[1] <=
                                                           eg__abs64(outer->step[1])))
                break;
            w->axis[at] = *outer;
        }
        axis *a = &w->axis[at];
        a->size = size;
        a->key = key;
        for (int k = 0; k < operands; k++) a->step[k] = x[k]->stride[r] * width[k];
    }
    if (n == 0) {
        w->axis[0].size = 1;
        for (int k = 0; k < operands; k++) w->axis[0].step[k] = width[k];
    }
    /* merge axis r into `last` if the two are contiguous in every operand */
    for (int r = 1; r < n; r++) {
        axis *in = &w->axis[r], *out = &w->axis[last];
        int k = 0;
        while (k < operands && out->step[k] == in->step[k] * in->size) k++;
        int64_t size = k == operands ? out->size : 1;
        if (k < operands) last++;
        if (last != r) w->axis[last] = *in;
        w->axis[last].size *= size;
    }
    w->axes = last + 1;
    return total;
}

/* Makes the calls with numbers from ≤ k < to, in order. */
static void axes_run(const walk *w, int64_t from, int64_t to)
{
    const axis *in = &w->axis[w->axes - 1], *cut = &w->axis[w->axes - w->inside];
    const int outer = w->axes - w->inside;
    int64_t index[EG_RANK_MAX], at[OPERANDS], part = from % w->chunks;
    eg__axes_to(outer, (const int64_t *)(const void *)w->axis, PITCH, w->operands, from / w->chunks,
                index, at);
    for (int64_t call = from; call < to; call++) {
        const int64_t start = part * w->chunk, n = eg__min64(cut->size - start, w->chunk);
        char *p[OPERANDS];
        for (int k = 0; k < w->operands; k++) p[k] = w->base[k] + at[k] + start * cut->step[k];
        if (w->inside == 2)
            w->plane(n, in->size, p, cut->step, in->step, w->user);
        else
            w->inner(n, p, in->step, w->user);
        if (++part < w->chunks) continue;
        part = 0;
        eg__axes_next(outer, (const int64_t *)(const void *)w->axis, PITCH, w->operands, index, at);
    }
}

typedef struct shared {
    walk *w;
    int64_t calls, pieces;
} shared;
static void piece_of_walk(void *user, int64_t piece, int thread)
{
    (void)thread;
    const shared *s = user;
    axes_run(s->w, s->calls * piece / s->pieces, s->calls * (piece + 1) / s->pieces);
}
static void axes_share(eg_ctx *cx, walk *w, int team, int64_t work)
{
    const int64_t n = w->axis[w->axes - w->inside].size,
                  each = w->inside == 2 ? w->axis[w->axes - 1].size : 1,
                  chunk = CHUNK / work / each;
    w->chunk = chunk < CUT ? CUT : chunk / CUT * CUT;
    w->chunks = (n + w->chunk - 1) / w->chunk;
    shared s = { .w = w, .calls = w->runs * w->chunks };
    s.pieces = s.calls < 4 * team ? s.calls : 4 * team;
    eg__parallel(cx, team, s.pieces, piece_of_walk, &s);
}

/* The case of operands that are all row-major, which needs no plan. Returns the number of elements;
 * −1 if an operand is not row-major. */
static int64_t one_run(int operands, const eg_tensor *const *x, char **base, int64_t *step)
{
    int64_t n = 1;
    for (int r = x[0]->rank; r-- > 0;) {
        const int64_t size = x[0]->dim[r];
        if (size == 1) continue;
        for (int k = 0; k < operands; k++)
            if (x[k]->stride[r] != n) return -1;
        n *= size;
    }
    for (int k = 0; k < operands; k++) {
        base[k] = x[k]->data;
        step[k] = eg__width[x[k]->dtype];
    }
    return n;
}

/* Returns the axis whose runs should be computed together with the last one, as a plane; −1 if the
 * last one suffices. */
static int plane_axis(const walk *w)
{
    const int last = w->axes - 1;
    const axis *in = &w->axis[last];
    if (!w->plane || w->repeats || last < 1) return -1;
    if (w->ordered) return in->size <= SHORT_RUN ? last - 1 : -1;
    for (int k = 1; k < w->operands; k++)
        for (int r = 0; r < last && in->size >= LEAST_SIDE; r++)
            if (in->step[k] && in->step[k] != w->width[k] && w->axis[r].size >= LEAST_SIDE &&
                w->axis[r].step[k] == w->width[k])
                return r;
    if (in->size > SHORT_RUN) return -1;
    int best = last - 1;
    for (int r = best; r >= 0 && w->axis[best].size * in->size < SMALL_PLANE; r--)
        if (w->axis[r].size > w->axis[best].size) best = r;
    return best;
}
/* Tries the cases in order of their cost: operands that are row-major throughout, operands that
 * merge into one run, few elements on one thread, all others. */
static void loop(eg_ctx *cx, int operands, const eg_tensor *const *x, eg_inner *inner,
                 eg_plane *plane, bool ordered, const void *user, int64_t work)
{
    char *base[OPERANDS];
    int64_t step[OPERANDS], total = one_run(operands, x, base, step);
    /* called only once, since each call is counted as work that could have been divided */
    int team = total < 0 ? 0 : eg__team(cx, total * work, GRAIN);
    if (team == 1) {
        if (total) inner(total, base, step, user);
        return;
    }
    walk w;
    total = axes_plan(&w, operands, x);
    if (total == 0) return;
    w.inner = inner;
    w.plane = plane;
    w.ordered = ordered;
    w.user = user;
    if (!team) team = eg__team(cx, total * work, GRAIN);
    if (w.axes == 1 && team == 1) {
        inner(total, w.base, w.axis[0].step, user);
        return;
    }
    const int with = plane_axis(&w);
    w.runs = total / w.axis[w.axes - 1].size;
    w.chunks = 1;
    w.chunk = w.axis[w.axes - 1].size;
    if (with >= 0) {
        const axis rows = w.axis[with];
        for (int r = with; r < w.axes - 2; r++) w.axis[r] = w.axis[r + 1];
        w.axis[w.axes - 2] = rows;
        w.inside = 2;
        w.runs /= rows.size;
        w.chunk = rows.size;
    }
    if (team > 1 && !w.repeats)
        axes_share(cx, &w, team, work);
    else
        axes_run(&w, 0, w.runs);
}
void eg__loop_work(eg_ctx *cx, int operands, const eg_tensor *const *x, eg_inner *inner,
                   const void *user, int64_t work)
{
    loop(cx, operands, x, inner, NULL, false, user, work);
}
void eg__loop_planes(eg_ctx *cx, int operands, const eg_tensor *const *x, eg_inner *inner,
                     eg_plane *plane, const void *user)
{
    loop(cx, operands, x, inner, plane, false, user, 1);
}
void eg__loop_rows(eg_ctx *cx, int operands, const eg_tensor *const *x, eg_inner *inner,
                   eg_plane *plane, const void *user, int64_t work)
{
    loop(cx, operands, x, inner, plane, true, user, work);
}
int64_t eg__single_run(int operands, const eg_tensor *const *x, int64_t *step)
{
    char *base[OPERANDS];
    int64_t total = one_run(operands, x, base, step);
    if (total >= 0) return total;
    walk w;
    total = axes_plan(&w, operands, x);
    if (w.axes > 1 || w.repeats) return -1;
    for (int k = 0; k < operands; k++) step[k] = w.axis[0].step[k];
    return total;
}
void eg__loop(eg_ctx *cx, int operands, const eg_tensor *const *x, eg_inner *inner,
              const void *user)
{
    eg__loop_work(cx, operands, x, inner, user, 1);
}
