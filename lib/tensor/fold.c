/* fold.c: adding up floats: target += source, and y = Σ of the axes that a broadcast would stretch. Loops over numbers only.
 *
 * The sum over one axis goes in blocks of 256 elements, then the blocks' sums are summed the same way: the order depends on sizes
 * and strides alone, never on threads, and the error grows with log n. */
#include "impl.h"
#include <string.h>

/* -- target += source ---------------------------------------------------------------------------------------------------------- */
#define ADD(T)                                                                                                                       \
    static void add_##T(int64_t n, char *const *p, const int64_t *step, const void *user)                                            \
    {                                                                                                                                \
        (void)user;                                                                                                                  \
        if (step[0] == (int64_t)sizeof(T) && step[1] == (int64_t)sizeof(T)) {                                                        \
            T *restrict y = (T *)(void *)p[0];                                                                                       \
            const T *restrict x = (const T *)(const void *)p[1];                                                                     \
            for (int64_t i = 0; i < n; i++) y[i] += x[i];                                                                            \
        } else                                                                                                                       \
            for (int64_t i = 0; i < n; i++) *(T *)(void *)(p[0] + i * step[0]) += *(const T *)(const void *)(p[1] + i * step[1]);    \
    }
ADD(float)
ADD(double)

void eg__add_to(eg_tensor *target, const eg_tensor *source)
{
    eg__loop(target->cx, 2, (const eg_tensor *[]){ target, source }, target->dtype == EG_F32 ? add_float : add_double, NULL);
}

/* -- y[k…] = Σ_{i < count} x[k…, i] ---------------------------------------------------------------------------------------------- */
enum { BLOCK = 256, LANES = 16, COLUMNS = 64 };
typedef struct along { int64_t count, step; } along;        /* the summed axis; bytes */

#define SUM(T)                                                                                                                       \
    static void columns_##T(int64_t n, const T *restrict x, int64_t rows, int64_t step, T *restrict sum)                             \
    {                                                                                                                                \
        for (int64_t j = 0; j < n; j++) sum[j] = x[j];                                                                               \
        for (int64_t i = 1; i < rows; i++) {                                                                                         \
            const T *restrict row = (const T *)(const void *)((const char *)x + i * step);                                           \
            for (int64_t j = 0; j < n; j++) sum[j] += row[j];                                                                        \
        }                                                                                                                            \
    }                                                                                                                                \
    static T row_##T(const T *x, int64_t n)                                                                                          \
    {                                                                                                                                \
        T lane[LANES] = { 0 };                                                                                                       \
        int64_t i = 0;                                                                                                               \
        for (; i + LANES <= n; i += LANES) for (int l = 0; l < LANES; l++) lane[l] += x[i + l];                                      \
        for (int l = 0; i < n; i++, l++) lane[l] += x[i];                                                                            \
        for (int half = LANES / 2; half; half /= 2) for (int l = 0; l < half; l++) lane[l] += lane[l + half];                        \
        return lane[0];                                                                                                              \
    }                                                                                                                                \
    static void sum_##T(int64_t n, char *const *p, const int64_t *step, const void *user)                                            \
    {                                                                                                                                \
        const along *s = user;                                                                                                       \
        if (step[1] == (int64_t)sizeof(T)) {                                                                                         \
            T sum[COLUMNS];                                                                                                          \
            for (int64_t j = 0; j < n; j += COLUMNS) {                                                                               \
                int64_t m = n - j < COLUMNS ? n - j : COLUMNS;                                                                       \
                const T *x = (const T *)(const void *)p[1] + j;                                                                      \
                if (m == COLUMNS) columns_##T(COLUMNS, x, s->count, s->step, sum);      /* a constant, so that sums stay in registers */ \
                else columns_##T(m, x, s->count, s->step, sum);                                                                      \
                for (int64_t k = 0; k < m; k++) *(T *)(void *)(p[0] + (j + k) * step[0]) = sum[k];                                   \
            }                                                                                                                        \
        } else                                                                                                                       \
            for (int64_t j = 0; j < n; j++) {                                                                                        \
                const char *x = p[1] + j * step[1];                                                                                  \
                T sum = 0;                                                                                                           \
                if (s->step == (int64_t)sizeof(T)) sum = row_##T((const T *)(const void *)x, s->count);                              \
                else for (int64_t i = 0; i < s->count; i++) sum += *(const T *)(const void *)(x + i * s->step);                      \
                *(T *)(void *)(p[0] + j * step[0]) = sum;                                                                            \
            }                                                                                                                        \
    }
SUM(float)
SUM(double)

static void sum_axis(eg_tensor *y, const eg_tensor *x, int64_t count, int64_t stride)
{
    along s = { count, stride * eg__width[x->dtype] };
    eg__loop_work(y->cx, 2, (const eg_tensor *[]){ y, x }, x->dtype == EG_F32 ? sum_float : sum_double, &s, count);
}

/* -- several axes: the longest first, so that what is left over is small ----------------------------------------------------------- */
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

/* y (strides ys) = Σ over the axes `sum` of x, whose other axes are `kept` (the axes of y, in order). */
static bool sum_axes(eg_tensor *like, char *y, const axes *ys, char *x, axes *kept, axes *sum)
{
    int longest = 0;
    for (int k = 1; k < sum->n; k++) if (sum->dim[k] > sum->dim[longest]) longest = k;
    int64_t n = sum->dim[longest], stride = sum->stride[longest], blocks = (n + BLOCK - 1) / BLOCK, w = eg__width[like->dtype];
    axes out = *ys, in = *kept;
    if (sum->n == 1 && blocks == 1) {
        eg_tensor ty = header(like, y, &out), tx = header(like, x, &in);
        sum_axis(&ty, &tx, n, stride);
        return true;
    }
    /* partial sums: one for each block and each index of the other summed axes, outermost; then the kept axes, row-major */
    axes rest = { 0 };
    if (blocks > 1) push(&rest, blocks, 0);
    for (int k = 0; k < sum->n; k++) if (k != longest) push(&rest, sum->dim[k], 0);
    int64_t size = eg__count(kept->n, kept->dim);
    eg__row_major(kept->n, kept->dim, out.stride);
    for (int k = rest.n; k-- > 0; size *= rest.dim[k]) rest.stride[k] = size;
    char *part = eg__alloc(like->cx, (size_t)(size * w));
    if (!part) return false;
    axes here = out;
    int r = 0;
    if (blocks > 1) r++;
    for (int k = 0; k < sum->n; k++) if (k != longest) { push(&out, rest.dim[r], rest.stride[r]); push(&in, sum->dim[k], sum->stride[k]); r++; }
    for (int64_t b = 0; b < 2; b++) {                       /* the whole blocks together, then the last one if it is shorter */
        int64_t whole = n / BLOCK, count = b ? n % BLOCK : BLOCK, from = b ? whole : 0;
        if (!count || (!b && !whole)) continue;
        axes o = out, i = in;
        if (!b) { push(&o, whole, blocks > 1 ? rest.stride[0] : 0); push(&i, whole, stride * BLOCK); }
        eg_tensor ty = header(like, part + (blocks > 1 ? from * rest.stride[0] * w : 0), &o);
        eg_tensor tx = header(like, x + from * BLOCK * stride * w, &i);
        sum_axis(&ty, &tx, count, stride);
    }
    return sum_axes(like, y, ys, part, &here, &rest);
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
    if (eg__count(sum.n, sum.dim) == 0) { eg__fill(y, 0); return true; }
    if (sum.n) return sum_axes(y, y->data, &out, x->data, &kept, &sum);
    eg_tensor from = header(y, x->data, &kept), to = header(y, y->data, &out);
    eg__copy(&to, &from);
    return true;
}
