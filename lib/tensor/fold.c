/* fold.c: adding up floats: target += source, and y = Σ over the axes that a broadcast would stretch. Loops over numbers only.
 *
 * What is added to one element of y is counted in logical order and cut into blocks of 256; in a block eight lanes take every
 * eighth number, the lanes are added in pairs, and the blocks' sums are summed the same way. The order is a function of the sizes
 * alone, not of strides or threads, and the error grows with log n. */
#include "impl.h"

#if HAVE_TARGET_CLONES
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES
#endif

/* -- target += source ---------------------------------------------------------------------------------------------------------- */
#define ADD(T)                                                                                                                  \
    static void add_##T(int64_t n, char *const *p, const int64_t *step, const void *user)                                       \
    {                                                                                                                           \
        (void)user;                                                                                                             \
        if (step[0] == (int64_t)sizeof(T) && step[1] == (int64_t)sizeof(T)) {                                                   \
            T *restrict y = (T *)p[0];                                                                                          \
            const T *restrict x = (const T *)p[1];                                                                              \
            for (int64_t i = 0; i < n; i++) y[i] += x[i];                                                                       \
        } else                                                                                                                  \
            for (int64_t i = 0; i < n; i++) *(T *)(p[0] + i * step[0]) += *(const T *)(p[1] + i * step[1]); \
    }
ADD(float)
ADD(double)

void eg__add_to(eg_tensor *target, const eg_tensor *source)
{
    eg__loop(target->cx, 2, (const eg_tensor *[]){ target, source }, target->dtype == EG_F32 ? add_float : add_double, NULL);
}

/* -- one block: y[k…] = Σ_{i < count} x[k…, place i] ----------------------------------------------------------------------- */
enum { BLOCK = 256, LANES = 8, COLUMNS = 64, GRAIN = 1 << 18 };
typedef struct block {
    int64_t count, at[BLOCK];           /* bytes from x to each of them                              */
    bool run;                           /* they lie side by side                                     */
} block;

/* the lanes' sums: count tells how many lanes there are */
#define PAIRS(lane, each)                                                                                                       \
    for (int64_t half_ = LANES / 2; half_; half_ /= 2) for (int64_t l = 0; l < half_ && l + half_ < lanes; l++) { each; }

#define SUM(T)                                                                                                                  \
    static inline __attribute__((always_inline)) void columns_of_##T(int64_t n, const char *x, const block *b, T *restrict sum) \
    {                                                                                                                           \
        T lane[LANES][COLUMNS];                                                                                                 \
        int64_t lanes = b->count < LANES ? b->count : LANES;                                                                    \
        for (int64_t l = 0; l < lanes; l++)  \
            for (int64_t j = 0; j < n; j++) lane[l][j] = ((const T *)(x + b->at[l]))[j]; \
        for (int64_t i = LANES; i < b->count; i++) {                                                                            \
            const T *restrict row = (const T *)(x + b->at[i]);                                                                  \
            T *restrict to = lane[i % LANES];                                                                                   \
            for (int64_t j = 0; j < n; j++) to[j] += row[j];                                                                    \
        }                                                                                                                       \
        PAIRS(lane, for (int64_t j = 0; j < n; j++) lane[l][j] += lane[l + half_][j])                                           \
        for (int64_t j = 0; j < n; j++) sum[j] = lane[0][j];                                                                    \
    }                                                                                                                           \
    CLONES static void columns_##T(int64_t n, const char *x, const block *b, T *restrict sum)                                   \
    {                                                                                                                           \
        if (n == COLUMNS) columns_of_##T(COLUMNS, x, b, sum);       /* a constant, for straight code */                         \
        else columns_of_##T(n, x, b, sum);                                                                                      \
    }                                                                                                                           \
    CLONES static T row_##T(const T *x, int64_t n)                                                                              \
    {                                                                                                                           \
        T lane[LANES] = { 0 };                                                                                                  \
        int64_t lanes = n < LANES ? n : LANES, i = LANES;                                                                       \
        for (int64_t l = 0; l < lanes; l++) lane[l] = x[l];                                                                     \
        for (; i + LANES <= n; i += LANES) for (int l = 0; l < LANES; l++) lane[l] += x[i + l];                                 \
        for (int l = 0; i < n; i++, l++) lane[l] += x[i];                                                                       \
        PAIRS(lane, lane[l] += lane[l + half_])                                                                                 \
        return lane[0];                                                                                                         \
    }                                                                                                                           \
    static T places_##T(const char *x, const block *b)                                                                          \
    {                                                                                                                           \
        T lane[LANES] = { 0 };                                                                                                  \
        int64_t lanes = b->count < LANES ? b->count : LANES;                                                                    \
        for (int64_t l = 0; l < lanes; l++) lane[l] = *(const T *)(x + b->at[l]);                                               \
        for (int64_t i = LANES; i < b->count; i++) lane[i % LANES] += *(const T *)(x + b->at[i]);                               \
        PAIRS(lane, lane[l] += lane[l + half_])                                                                                 \
        return lane[0];                                                                                                         \
    }                                                                                                                           \
    static void sum_##T(int64_t n, char *const *p, const int64_t *step, const void *user)                                       \
    {                                                                                                                           \
        const block *b = user;                                                                                                  \
        if (step[1] == (int64_t)sizeof(T) && n > 1)                                                                             \
            for (int64_t j = 0; j < n; j += COLUMNS) {                                                                          \
                T sum[COLUMNS];                                                                                                 \
                int64_t m = n - j < COLUMNS ? n - j : COLUMNS;                                                                  \
                columns_##T(m, p[1] + j * step[1], b, sum);                                                                     \
                for (int64_t k = 0; k < m; k++) *(T *)(p[0] + (j + k) * step[0]) = sum[k];                                      \
            }                                                                                                                   \
        else                                                                                                                    \
            for (int64_t j = 0; j < n; j++) {                                                                                   \
                const char *x = p[1] + j * step[1];                                                                             \
                *(T *)(p[0] + j * step[0]) = b->run ? row_##T((const T *)(x + b->at[0]), b->count) : places_##T(x, b);          \
            }                                                                                                                   \
    }
SUM(float)
SUM(double)

/* -- all blocks ------------------------------------------------------------------------------------------------------------ */
typedef struct axes { int n; int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX]; } axes;

static void push(axes *a, int64_t dim, int64_t stride) { a->dim[a->n] = dim; a->stride[a->n++] = stride; }

/* A header for numbers that lie somewhere else. */
static eg_tensor header(const eg_tensor *like, char *data, axes *a)
{
    eg_tensor t = *like;
    t.data = data;
    t.rank = (uint8_t)a->n;
    t.dim = a->dim;
    t.stride = a->stride;
    return t;
}

/* The numbers from `start` of the summed axes, at most 256. */
static void places(block *b, const axes *sum, int64_t start, int64_t all, int64_t width)
{
    int64_t i[EG_RANK_MAX], at = 0, rest = start;
    for (int k = sum->n; k-- > 0; rest /= sum->dim[k]) {
        i[k] = rest % sum->dim[k];
        at += i[k] * sum->stride[k];
    }
    b->count = all - start < BLOCK ? all - start : BLOCK;
    b->run = true;
    for (int64_t j = 0; j < b->count; j++) {
        b->at[j] = at * width;
        b->run &= b->at[j] == b->at[0] + j * width;
        for (int k = sum->n; k-- > 0; i[k] = 0) {
            at += sum->stride[k];
            if (++i[k] < sum->dim[k]) break;
            at -= sum->stride[k] * sum->dim[k];
        }
    }
}

/* One block of x (a header without the summed axes) into y; threads: they may share y's elements. */
static void sum_block(const eg_tensor *y, const eg_tensor *x, const axes *sum, int64_t start, int64_t all, bool threads)
{
    block b;
    places(&b, sum, start, all, eg__width[x->dtype]);
    eg__loop_work(y->cx, 2, (const eg_tensor *[]){ y, x }, x->dtype == EG_F32 ? sum_float : sum_double, &b, threads ? b.count : 0);
}

typedef struct blocks_of { const eg_tensor *like, *from; const axes *sum; axes *rows; char *part; int64_t each, all; bool threads; } blocks_of;
static void piece(void *user, int64_t b, int thread)
{
    (void)thread;
    const blocks_of *w = user;
    eg_tensor here = header(w->like, w->part + b * w->each, w->rows);
    sum_block(&here, w->from, w->sum, b * BLOCK, w->all, w->threads);
}

/* y (strides ys) = Σ over the axes `sum` of x, whose other axes are `kept` (those of y, in order). */
static bool sum_axes(const eg_tensor *like, char *y, axes *ys, char *x, axes *kept, const axes *sum)
{
    int64_t all = eg__count(sum->n, sum->dim), blocks = (all + BLOCK - 1) / BLOCK, size = eg__count(kept->n, kept->dim),
        w = eg__width[like->dtype];
    eg_tensor from = header(like, x, kept), to = header(like, y, ys);
    if (blocks == 1) { sum_block(&to, &from, sum, 0, all, true); return true; }
    axes rows = *kept, stack = { 0 };   /* the blocks' sums, one row-major y each */
    char *part = eg__alloc(like->cx, (size_t)(blocks * size * w));
    if (!part) return false;
    eg__row_major(rows.n, rows.dim, rows.stride);
    push(&stack, blocks, size);
    int team = eg__team(like->cx, all * size, GRAIN);
    if (team > blocks) team = 1;
    eg__parallel(like->cx, team, blocks, piece, &(blocks_of){ like, &from, sum, &rows, part, size * w, all, team == 1 });
    return sum_axes(like, y, ys, part, &rows, &stack);
}

bool eg__fold(eg_tensor *y, const eg_tensor *x)
{
    axes kept = { 0 }, out = { 0 }, sum = { 0 };
    int lead = x->rank - y->rank;
    for (int r = 0; r < x->rank; r++) {
        if (r >= lead && y->dim[r - lead] == x->dim[r]) {
            push(&kept, x->dim[r], x->stride[r]);
            push(&out, x->dim[r], y->stride[r - lead]);
            continue;
        }
        if (x->dim[r] == 1) continue;
        int64_t dim = x->dim[r];
        if (sum.n && sum.stride[sum.n - 1] == x->stride[r] * dim) dim *= sum.dim[--sum.n];  /* one run with the axis before */
        push(&sum, dim, x->stride[r]);
    }
    if (eg_size(y) == 0) return true;
    if (eg__count(sum.n, sum.dim) == 0) { eg__fill(y, 0); return true; }
    if (sum.n) return sum_axes(y, y->data, &out, x->data, &kept, &sum);
    eg_tensor from = header(y, x->data, &kept), to = header(y, y->data, &out);
    eg__copy(&to, &from);
    return true;
}
