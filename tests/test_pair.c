/* test_pair.c: contractions of two operands compared with the plain loop, for random axes and
 * strides; threads, memory, sizes 0 and 1. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <eingrad/check.h>
#include "einsum/einsum.h"
#include "fixtures.h"
#include "tests.h"

static uint64_t state;
static int draw(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

enum { A, B, C };
/* the element with all indices 0 has number −low */
typedef struct operand {
    double *value;
    void *data;
    int64_t count, low;
} operand;
typedef struct problem {
    eg_dtype dtype, result;
    int axes;
    eg_axis axis[8];
    bool unary, add;
    double alpha;
    operand x[3];
} problem;

static const double factors[] = { 1, 1, -2, 3, 0.375 };

static int64_t *stride_of(eg_axis *x, int s) { return s == A ? &x->sa : s == B ? &x->sb : &x->sc; }
static bool has(const eg_axis *x, int s) { return s == A ? x->in_a : s == B ? x->in_b : x->in_c; }
static size_t width(eg_dtype t) { return t == EG_F64 || t == EG_I64 ? 8 : t == EG_BOOL ? 1 : 4; }
static double get(eg_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case EG_F64: return ((const double *)p)[i];
    case EG_F32: return (double)((const float *)p)[i];
    case EG_I64: return (double)((const int64_t *)p)[i];
    case EG_I32: return ((const int32_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}
static void put(eg_dtype t, void *p, int64_t i, double v)
{
    switch (t) {
    case EG_F64: ((double *)p)[i] = v; break;
    case EG_F32: ((float *)p)[i] = (float)v; break;
    case EG_I64: ((int64_t *)p)[i] = (int64_t)v; break;
    case EG_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    default: ((uint8_t *)p)[i] = v != 0;
    }
}

/* Strides of one operand: its axes in random order, with gaps, reversals and (not in c) broadcasts;
 * then elements in its storage. */
static void layout(problem *p, int s)
{
    int order[8], n = 0;
    for (int i = 0; i < p->axes; i++)
        if (has(&p->axis[i], s)) order[n++] = i;
    for (int i = n - 1; i > 0; i--)
        if (draw(2)) {
            int j = draw(i + 1), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
    int64_t step = draw(8) ? 1 : 1 + draw(3), high = 0, low = 0;
    for (int i = n - 1; i >= 0; i--) {
        eg_axis *x = &p->axis[order[i]];
        *stride_of(x, s) = 0;
        if (s != C && draw(15) == 0) continue;
        int64_t stride = draw(8) ? step : -step;
        step = step * (x->size ? x->size : 1) + (draw(6) ? 0 : draw(5));
        *stride_of(x, s) = stride;
        if (x->size) *(stride < 0 ? &low : &high) += stride * (x->size - 1);
    }
    eg_dtype t = s == C ? p->result : p->dtype;
    operand *o = &p->x[s];
    *o = (operand){ .count = high - low + 1, .low = low };
    o->data = malloc((size_t)o->count * width(t));
    ck_assert_ptr_nonnull(o->data);
    for (int64_t i = 0; i < o->count; i++)
        put(t, o->data, i,
            s == C                       ? 7
            : t == EG_F32 || t == EG_F64 ? draw(2000) / 1000.0 - 1
            : t == EG_BOOL               ? draw(2)
                                         : draw(200) - 100);
}
static void *at_zero(const problem *p, int s, void *data)
{
    return (char *)data - p->x[s].low * (int64_t)width(s == C ? p->result : p->dtype);
}

static void solve(eg_ctx *cx, problem *p, int number)
{
    for (int s = A; s <= C; s++) layout(p, s);
    const operand *a = &p->x[A], *b = &p->x[B], *c = &p->x[C];
    const size_t bytes = (size_t)c->count * width(p->result);
    void *twin = malloc(bytes);
    double *want = calloc((size_t)c->count, sizeof *want),
           *sum = calloc((size_t)c->count, sizeof *sum);
    bool *hit = calloc((size_t)c->count, 1);
    ck_assert(twin && want && sum && hit);
    memcpy(twin, c->data, bytes);

    int64_t total = 1, outs = 1;
    for (int i = 0; i < p->axes; i++) {
        total *= p->axis[i].size;
        if (p->axis[i].in_c) outs *= p->axis[i].size;
    }
    for (int64_t e = 0; e < total; e++) {
        int64_t at[3] = { -a->low, -b->low, -c->low }, r = e;
        for (int i = p->axes - 1; i >= 0; r /= p->axis[i].size, i--)
            for (int s = A; s <= C; s++) at[s] += r % p->axis[i].size * *stride_of(&p->axis[i], s);
        double v = get(p->dtype, a->data, at[A]) * (p->unary ? 1 : get(p->dtype, b->data, at[B]));
        want[at[C]] += v;
        sum[at[C]] += fabs(v);
    }
    for (int64_t e = 0; e < outs; e++) {
        int64_t at = -c->low, r = e;
        for (int i = p->axes - 1; i >= 0; i--)
            if (p->axis[i].in_c) {
                at += r % p->axis[i].size * p->axis[i].sc;
                r /= p->axis[i].size;
            }
        hit[at] = true;
    }
    eg_threads(cx, 1);
    ck_assert(eg__pair(cx, p->dtype, p->axes, p->axis, at_zero(p, A, a->data),
                       p->unary ? NULL : at_zero(p, B, b->data), at_zero(p, C, c->data), p->alpha,
                       p->add));
    eg_threads(cx, 2);
    ck_assert(eg__pair(cx, p->dtype, p->axes, p->axis, at_zero(p, A, a->data),
                       p->unary ? NULL : at_zero(p, B, b->data), at_zero(p, C, twin), p->alpha,
                       p->add));
    ck_assert_msg(memcmp(c->data, twin, bytes) == 0, "problem %d: one thread and two differ",
                  number);
    const double allowed = p->dtype == EG_F64 ? 1e-12 : p->dtype == EG_F32 ? 1e-5 : 0;
    for (int64_t i = 0; i < c->count; i++) {
        double w = hit[i] ? p->alpha * want[i] + (p->add ? 7 : 0) : 7,
               g = get(p->result, c->data, i);
        ck_assert_msg(fabs(g - w) <=
                          (hit[i] ? allowed * (fabs(p->alpha) * sum[i] + (p->add ? 7 : 0)) : 0),
                      "problem %d, %s: element %lld is %.17g, not %.17g", number,
                      eg_type_name(p->dtype), (long long)i, g, w);
    }
    for (int s = A; s <= C; s++) free(p->x[s].data);
    free(twin);
    free(want);
    free(sum);
    free(hit);
}

LOOP_TEST(any_axes_any_strides, 4)
{
    static const int roles[] = { 7, 5, 6, 3, 7, 5, 6, 3, 1, 2 }; /* bits: in a, in b, in c */
    eg_ctx *cx = eg_open();
    state = (uint64_t)_i + 1;
    for (int number = 0; number < 400 / SLOWER; number++) {
        problem p = { .axes = draw(7), .unary = draw(6) == 0, .add = draw(2) };
        static const eg_dtype types[] = { EG_F32, EG_F64, EG_F32, EG_F64, EG_F32,
                                          EG_F64, EG_F32, EG_I64, EG_I32, EG_BOOL };
        p.dtype = types[draw(10)];
        p.result = p.dtype == EG_F32 || p.dtype == EG_F64 ? p.dtype : EG_I64;
        p.alpha = factors[draw(p.result == EG_I64 ? 4 : 5)];
        const bool large = draw(8) == 0;
        int64_t total = 1;
        for (int i = 0; i < p.axes; i++) {
            int role = p.unary ? (draw(2) ? 1 : 5) : roles[draw(10)], kind = draw(12);
            int64_t size = kind == 0                   ? 1
                           : kind == 1 && draw(6) == 0 ? 0
                           : large                     ? (draw(6) ? 1 + draw(70) : draw(600))
                                                       : 1 + draw(9);
            while (total * size > 100000) size /= 2;
            if (size) total *= size;
            p.axis[i] =
                (eg_axis){ .size = size, .in_a = role & 1, .in_b = role & 2, .in_c = role & 4 };
        }
        solve(cx, &p, number);
    }
    eg_close(cx);
}

/* ab,bc->ac at the edges of register blocks, vectors, strips and the block of k, in every
 * transposition */
LOOP_TEST(products_at_the_edges_of_blocks, 2)
{
    static const int64_t sizes[] = { 2,  3,  7,  8,  12,  13,  15,  16,  17,  31,  32,
                                     33, 48, 64, 65, 127, 128, 129, 255, 256, 257, 300 };
    const int n = sizeof sizes / sizeof *sizes;
    eg_ctx *cx = eg_open();
    state = (uint64_t)_i + 100;
    for (int number = 0; number < 100 / SLOWER; number++) {
        problem p = { .dtype = number % 2 ? EG_F64 : EG_F32, .axes = 3, .add = draw(2) };
        p.result = p.dtype;
        p.alpha = factors[draw(5)];
        p.axis[0] = (eg_axis){ .size = sizes[draw(n)], .in_a = true, .in_c = true };
        p.axis[1] = (eg_axis){ .size = sizes[draw(n)], .in_b = true, .in_c = true };
        p.axis[2] = (eg_axis){ .size = sizes[draw(n)], .in_a = true, .in_b = true };
        while (p.axis[0].size * p.axis[1].size * p.axis[2].size > 3000000)
            p.axis[draw(3)].size = sizes[draw(n / 2)];
        solve(cx, &p, number);
    }
    eg_close(cx);
}

/* efbd,cf->bcde: a's batches b d have its smallest strides, and d continues e in the result; in one
 * call, and in blocks of b. */
LOOP_TEST(batches_that_continue_rows, 4)
{
    static const int64_t sizes[][5] = {
        { 3, 16, 12, 12, 9 }, { 2, 9, 20, 16, 300 }, { 700, 16, 8, 12, 10 }, { 5, 13, 31, 15, 17 }
    };
    const int64_t B_ = sizes[_i][0], C_ = sizes[_i][1], D = sizes[_i][2], E = sizes[_i][3],
                  F = sizes[_i][4];
    eg_ctx *cx = eg_open();
    for (int t = 0; t < 2; t++) {
        const eg_dtype dtype = t ? EG_F64 : EG_F32;
        const size_t w = width(dtype), bytes = (size_t)(B_ * C_ * D * E) * w;
        char *a = malloc((size_t)(E * F * B_ * D) * w), *b = malloc((size_t)(C_ * F) * w),
             *c = malloc(bytes), *twin = malloc(bytes);
        ck_assert(a && b && c && twin);
        for (int64_t i = 0; i < E * F * B_ * D; i++)
            put(dtype, a, i, (double)(i * 7919 % 2003) / 1000 - 1);
        for (int64_t i = 0; i < C_ * F; i++)
            put(dtype, b, i, (double)(i * 104729 % 2011) / 1000 - 1);
        for (int64_t i = 0; i < B_ * C_ * D * E; i++) put(dtype, c, i, 7);
        memcpy(twin, c, bytes);
        const eg_axis axis[] = { { E, { { F * B_ * D, 0, 1 } }, true, false, true },
                                 { F, { { B_ * D, 1, 0 } }, true, true, false },
                                 { B_, { { D, 0, C_ * D * E } }, true, false, true },
                                 { D, { { 1, 0, E } }, true, false, true },
                                 { C_, { { 0, F, D * E } }, false, true, true } };
        eg_threads(cx, 1);
        ck_assert(eg__pair(cx, dtype, 5, axis, a, b, c, 1, true));
        eg_threads(cx, 2);
        ck_assert(eg__pair(cx, dtype, 5, axis, a, b, twin, 1, true));
        ck_assert_msg(memcmp(c, twin, bytes) == 0, "one thread and two differ");
        for (int64_t i = 0; i < B_ * C_ * D * E; i++) {
            const int64_t e = i % E, d = i / E % D, z = i / E / D / C_, n = i / E / D % C_;
            double want = 7, sum = 7;
            for (int64_t f = 0; f < F; f++) {
                const double x =
                    get(dtype, a, (e * F + f) * B_ * D + z * D + d) * get(dtype, b, n * F + f);
                want += x;
                sum += fabs(x);
            }
            ck_assert_msg(fabs(get(dtype, c, i) - want) <= (t ? 1e-12 : 1e-5) * sum,
                          "%s: element %lld is %.17g, not %.17g", eg_type_name(dtype), (long long)i,
                          get(dtype, c, i), want);
        }
        free(a);
        free(b);
        free(c);
        free(twin);
    }
    eg_close(cx);
}

/* Without a sum, a factor is applied to the product of two elements, for any strides: the bits are
 * those of alpha (a b). */
TEST(factors_of_products_round_alike_in_every_layout)
{
    enum { I = 5, J = 37 };
    static float a[2 * I * J], b[2 * I * J], c[2 * I * J], before[2 * I * J];
    const float alpha = 0.3F;
    eg_ctx *cx = eg_open();
    state = 9;
    for (int k = 0; k < 2 * I * J; k++) {
        a[k] = (float)(draw(2000) - 1000) / 777;
        b[k] = (float)(draw(2000) - 1000) / 777;
        before[k] = (float)(draw(2000) - 1000) / 777;
    }
    for (int layout = 0; layout < 128; layout++) {
        const bool by_i = layout & 1, by_j = layout & 2, add = layout & 4, flip = layout & 8;
        const int64_t sa = layout & 16 ? 2 : 1, sb = layout & 32 ? 2 : 1, sc = layout & 64 ? 2 : 1;
        const eg_axis axis[] = {
            { I, { { flip ? sa : sa * J, by_i ? sb * J : 0, sc * J } }, true, by_i, true },
            { J, { { flip ? sa * I : sa, by_j ? sb : 0, sc } }, true, by_j, true }
        };
        memcpy(c, before, sizeof c);
        ck_assert(eg__pair(cx, EG_F32, 2, axis, a, by_i || by_j ? b : NULL, c, 0.3, add));
        for (int64_t i = 0; i < I; i++)
            for (int64_t j = 0; j < J; j++) {
                const float x = a[i * axis[0].sa + j * axis[1].sa],
                            y = by_i || by_j ? b[i * axis[0].sb + j * axis[1].sb] : 1;
                const int64_t at = i * axis[0].sc + j * axis[1].sc;
                const float product = x * y, scaled = alpha * product,
                            want = add ? before[at] + scaled : scaled;
                ck_assert_msg(memcmp(&c[at], &want, sizeof want) == 0,
                              "layout %d: element %lld, %lld is %.9g, not %.9g", layout,
                              (long long)i, (long long)j, (double)c[at], (double)want);
            }
    }
    eg_close(cx);
}

/* A contraction of strided operands packs blocks of them, never a complete operand. */
TEST(no_operand_is_copied)
{
    enum { M = 64, N = 64, K = 1 << 16 };
    eg_ctx *cx = eg_open(.threads = 2);
    float *a = calloc(2 * M * (size_t)K, sizeof *a), *b = calloc(2 * N * (size_t)K, sizeof *b),
          *c = malloc(M * N * sizeof *c);
    ck_assert(a && b && c);
    for (int64_t i = 0; i < 2 * (int64_t)M * K; i++) a[i] = (float)(i % 3);
    for (int64_t i = 0; i < 2 * (int64_t)N * K; i++) b[i] = (float)(i % 5);
    const eg_axis axis[] = { { M, { { 2 * K, 0, N } }, true, false, true },
                             { N, { { 0, 2, 1 } }, false, true, true },
                             { K, { { 2, 2 * N, 0 } }, true, true, false } };
    const size_t before = eg_stats(cx).bytes;
    ck_assert(eg__pair(cx, EG_F32, 3, axis, a, b, c, 1, false));
    const size_t used = eg_stats(cx).bytes - before;
    ck_assert_msg(used < (1 << 22), "%zu bytes of scratch", used); /* each operand has 16 MB */
    double want = 0;
    for (int64_t k = 0; k < K; k++)
        want += (double)(a[5 * 2 * K + 2 * k]) * (double)b[2 * 7 + 2 * N * k];
    ck_assert_double_eq_tol((double)c[5 * N + 7], want, 1e-5 * want);
    free(a);
    free(b);
    free(c);
    eg_close(cx);
}

/* Compares the transposes of nx × ny elements of w bytes, and every second element, with loops;
 * rows of the result are ds elements apart. Nothing else may change. */
static void transpose_of(size_t w, int64_t nx, int64_t ny, const char *src, int64_t ss, int64_t ds,
                         size_t bytes)
{
    char *got = aligned_alloc(64, bytes), *want = aligned_alloc(64, bytes);
    for (int way = 0; way < 3; way++) {
        memset(got, 9, bytes);
        memset(want, 9, bytes);
        if (way == 2 && 2 * nx > ss) break;
        for (int64_t x = 0; x < nx; x++)
            for (int64_t y = 0; y < ny; y++)
                memcpy(want + (size_t)(y * ds + x) * w,
                       src + (size_t)(way == 2 ? y * ss + 2 * x : x * ss + y) * w, w);
        if (way == 0) eg__transpose(w, nx, ny, src, ss, got, ds, draw(2));
        if (way == 1) eg__transpose_narrow(w, nx, ny, src, ss, got, ds);
        if (way == 2) eg__take_every_second(w, nx, ny, src, ss, got, ds);
        ck_assert_msg(memcmp(got, want, bytes) == 0,
                      "way %d: width %zu, %lld x %lld, rows %lld apart", way, w, (long long)nx,
                      (long long)ny, (long long)ds);
    }
    free(got);
    free(want);
}
/* A transpose moves every element to its position and changes nothing else, at every edge of its
 * squares, with non-temporal stores, and where the rows of the result have no gaps. */
TEST(transposes_at_every_edge)
{
    enum { SS = 45, DS = 64, SIDE = 40 };
    static _Alignas(64) char src[SIDE * SS * 8];
    state = 7;
    for (size_t i = 0; i < sizeof src; i++) src[i] = (char)draw(256);
    for (size_t w = 4; w <= 8; w += 4)
        for (int64_t nx = 1; nx <= SIDE; nx += 1 + nx / 18)
            for (int64_t ny = 1; ny <= SIDE; ny += 1 + ny / 18) {
                transpose_of(w, nx, ny, src, SS, DS, SIDE * DS * 8);
                transpose_of(w, nx, ny, src, SS, nx, SIDE * DS * 8);
            }
}

TEST(sizes_zero_and_one)
{
    eg_ctx *cx = eg_open();
    double a[4] = { 2, 3, 4, 5 }, b[4] = { 7, 8, 9, 10 }, c[4] = { 1, 1, 1, 1 };
    const eg_axis none[] = { { 2, { { 1, 0, 1 } }, true, false, true },
                             { 0, { { 2, 1, 0 } }, true, true, false } };
    ck_assert(eg__pair(cx, EG_F64, 2, none, a, b, c, 1, true));
    ck_assert(c[0] == 1 && c[1] == 1);
    ck_assert(eg__pair(cx, EG_F64, 2, none, a, b, c, 1, false));
    ck_assert(c[0] == 0 && c[1] == 0 && c[2] == 1);
    const eg_axis nothing[] = { { 0, { { 1, 0, 1 } }, true, false, true },
                                { 2, { { 2, 1, 0 } }, true, true, false } };
    ck_assert(eg__pair(cx, EG_F64, 2, nothing, a, b, c, 1, false));
    ck_assert(c[2] == 1);
    ck_assert(eg__pair(cx, EG_F64, 0, NULL, a, b, c, 1, false)); /* scalars */
    ck_assert(c[0] == 14);
    ck_assert(eg__pair(cx, EG_F64, 0, NULL, a, NULL, c, 1, true));
    ck_assert(c[0] == 16);
    const eg_axis ones[] = { { 1, { { 99, 0, 99 } }, true, false, true },
                             { 1, { { 99, 99, 0 } }, true, true, false },
                             { 2, { { 0, 1, 1 } }, false, true, true } };
    ck_assert(eg__pair(cx, EG_F64, 3, ones, a, b, c, 1, false));
    ck_assert(c[0] == 14 && c[1] == 16);
    eg_close(cx);
}

TEST(integers_wrap_in_i64)
{
    eg_ctx *cx = eg_open();
    int64_t a[2] = { INT64_MAX, INT64_MAX }, b[2] = { 2, 3 }, c;
    const eg_axis k = { 2, { { 1, 1, 0 } }, true, true, false };
    ck_assert(eg__pair(cx, EG_I64, 1, &k, a, b, &c, 1, false));
    ck_assert_int_eq(c, INT64_MAX - 4);
    int32_t i[2] = { INT32_MAX, INT32_MAX }, j[2] = { INT32_MAX, 1 };
    ck_assert(eg__pair(cx, EG_I32, 1, &k, i, j, &c, 1, false));
    ck_assert_int_eq(c, (int64_t)INT32_MAX * INT32_MAX + INT32_MAX);
    const eg_axis none = { 0, { { 1, 1, 0 } }, true, true, false };
    c = -1;
    ck_assert(eg__pair(cx, EG_I32, 1, &none, i, j, &c, 1, false));
    ck_assert_int_eq(c, 0);
    eg_close(cx);
}

/* Long sums are trees: with a million equal terms only the last digits are lost. */
TEST(long_sums_are_accurate)
{
    enum { N = 1 << 20 };
    eg_ctx *cx = eg_open();
    float *a = malloc(N * sizeof *a), c = 0;
    ck_assert_ptr_nonnull(a);
    for (int i = 0; i < N; i++) a[i] = 0.1f;
    const eg_axis sum = { N, { { 1, 0, 0 } }, true, false, false },
                  rows[] = { { N / 16, { { 16, 0, 0 } }, true, false, false },
                             { 16, { { 1, 0, 1 } }, true, false, true } };
    ck_assert(eg__pair(cx, EG_F32, 1, &sum, a, NULL, &c, 1, false));
    ck_assert_double_eq_tol((double)c, (double)0.1f * N, 1e-6 * N);
    float r[16];
    ck_assert(eg__pair(cx, EG_F32, 2, rows, a, NULL, r, 1, false));
    ck_assert_double_eq_tol((double)r[3], (double)0.1f * N / 16, 1e-6 * N / 16);
    free(a);
    eg_close(cx);
}

/* A sum of one operand reads one distance of the copies: with the second one here, sanitizers would
 * find an overflow. */
TEST(copies_of_one_operand)
{
    enum { COPIES = 20, I = 12, J = 9 };
    eg_ctx *cx = eg_open();
    double a[COPIES * I * J], c[COPIES * I];
    for (int q = 0; q < COPIES * I * J; q++) a[q] = q % 17;
    const eg_axis axis[] = { { I, { { J, 0, 1 } }, true, false, true },
                             { J, { { 1, 0, 0 } }, true, false, false } };
    eg_pairing *p = eg_scope_alloc(cx, eg__pairing_bytes(EG_F64, 2));
    ck_assert_ptr_nonnull(p);
    eg__pairing(p, EG_F64, NULL, 2, axis, false);
    const eg_copy_steps steps = {
        COPIES,
        (int64_t[]){ sizeof a / COPIES, INT64_MAX },
        sizeof c / COPIES
    };
    ck_assert(eg__pair_run_copies(cx, p, &steps, a, NULL, c, 1, NULL));
    for (int q = 0; q < COPIES * I; q++) {
        double want = 0;
        for (int j = 0; j < J; j++) want += a[q * J + j];
        ck_assert_double_eq(c[q], want);
    }
    eg_close(cx);
}

/* More batches than the caches hold, whose operands are prefetched: the bits of each are those of
 * the batch alone. */
LOOP_TEST(batches_larger_than_the_caches_have_the_bits_of_each_alone, 2)
{
    enum {
        Z = 3200,
        M = 24,
        N = 20,
        K = 22,
        GAP = 5,
        A_STEP = M * K,
        B_STEP = N * (K + GAP),
        C_STEP = M * N
    };
    eg_ctx *cx = eg_open();
    const size_t w = _i ? 8 : 4;
    const eg_dtype dtype = _i ? EG_F64 : EG_F32;
    char *a = malloc(Z * A_STEP * w), *b = malloc(Z * B_STEP * w), *c = malloc(Z * C_STEP * w),
         one[C_STEP * 8];
    ck_assert(a && b && c);
    for (int64_t i = 0; i < Z * A_STEP; i++) put(dtype, a, i, (double)(i * 7919 % 2003) / 1000 - 1);
    for (int64_t i = 0; i < Z * B_STEP; i++)
        put(dtype, b, i, (double)(i * 104729 % 2011) / 1000 - 1);
    const eg_axis axis[] = { { M, { { -1, 0, 1 } }, true, false, true },
                             { N, { { 0, K + GAP, M } }, false, true, true },
                             { K, { { M, -1, 0 } }, true, true, false },
                             { Z, { { -A_STEP, B_STEP, C_STEP } }, true, true, true } };
    const char *a0 = a + w * ((Z - 1) * A_STEP + M - 1), *b0 = b + w * (K - 1);
    ck_assert(eg__pair(cx, dtype, 4, axis, a0, b0, c, 1, false));
    for (int64_t z = 0; z < Z; z++) {
        ck_assert(eg__pair(cx, dtype, 3, axis, a0 - w * (size_t)(z * A_STEP),
                           b0 + w * (size_t)(z * B_STEP), one, 1, false));
        ck_assert_msg(memcmp(one, c + w * (size_t)(z * C_STEP), C_STEP * w) == 0,
                      "batch %lld differs", (long long)z);
    }
    free(a);
    free(b);
    free(c);
    eg_close(cx);
}

/* Two blocks of k are packed together if the result is large: it has the bits of its parts, which
 * are small. Of the rows and columns none are a multiple of a tile. _i: f32 or f64; the result with
 * contiguous rows, contiguous columns, or neither */
LOOP_TEST(a_large_result_has_the_bits_of_its_parts, 2 * 3)
{
    enum { M = 405, N = 4099, K = 1300, PART = 241 };
    const eg_dtype dtype = _i % 2 ? EG_F64 : EG_F32;
    const size_t w = width(dtype);
    static const int64_t steps[][2] = { { N, 1 }, { 1, M }, { 2 * N, 2 } };
    const int64_t row = steps[_i / 2][0], column = steps[_i / 2][1];
    const size_t bytes = (size_t)(_i / 2 == 2 ? 2 * M * N : M * N) * w;
    eg_ctx *cx = eg_open(.threads = 1);
    char *a = malloc(M * K * w), *b = malloc((size_t)K * N * w), *c = malloc(bytes),
         *parts = malloc(bytes);
    ck_assert(a && b && c && parts);
    for (int64_t i = 0; i < M * K; i++) put(dtype, a, i, (double)(i * 7919 % 2003) / 1000 - 1);
    for (int64_t i = 0; i < (int64_t)K * N; i++)
        put(dtype, b, i, (double)(i * 104729 % 2011) / 1000 - 1);
    for (int add = 0; add < 2; add++) {
        for (size_t i = 0; i < bytes / w; i++) put(dtype, c, (int64_t)i, (double)(i % 13));
        memcpy(parts, c, bytes);
        eg_axis axis[] = { { M, { { K, 0, row } }, true, false, true },
                           { N, { { 0, 1, column } }, false, true, true },
                           { K, { { 1, N, 0 } }, true, true, false } };
        ck_assert(eg__pair(cx, dtype, 3, axis, a, b, c, 0.7, add));
        for (int64_t j = 0; j < N; j += PART) {
            axis[1].size = j + PART < N ? PART : N - j;
            ck_assert(eg__pair(cx, dtype, 3, axis, a, b + w * (size_t)j,
                               parts + w * (size_t)(j * column), 0.7, add));
        }
        ck_assert_mem_eq(c, parts, bytes);
    }
    free(a);
    free(b);
    free(c);
    free(parts);
    eg_close(cx);
}

/* For any value of BLIS_ARCH_TYPE, BLIS gets a value that it accepts, and the variable is unchanged
 * afterwards. */
LOOP_TEST(blis_arch_type_is_checked, 11)
{
    static const char *const values[] = {
        "3", "99", "-1", "junk", "", "haswell", "skx", "1", "9999999999999999999", "6 ", NULL
    };
    const char *v = values[_i];
    pid_t child = fork();
    if (child == 0) {
        if (v)
            setenv("BLIS_ARCH_TYPE", v, 1);
        else
            unsetenv("BLIS_ARCH_TYPE");
        const char *why = eg__kernel_why(), *now = getenv("BLIS_ARCH_TYPE");
        float a[2] = { 2, 3 }, b[2] = { 5, 7 }, c[4];
        const eg_axis axis[] = { { 2, { { 1, 0, 2 } }, true, false, true },
                                 { 2, { { 0, 1, 1 } }, false, true, true } };
        eg_ctx *cx = eg_open();
        bool good = *why && (v ? now && strcmp(now, v) == 0 : !now) &&
                    eg__pair(cx, EG_F32, 2, axis, a, b, c, 1, false) && c[3] == 21;
        eg_close(cx);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "BLIS_ARCH_TYPE=%s: status %d",
                  v ? v : "(unset)", status);
}

/* Products large enough to be packed and divided: along n, by a block of b that all threads share
 * (tall), by batches. */
TEST(threads_change_no_bit_of_large_products)
{
    static const struct {
        const char *spec;
        int64_t a[3], b[3];
        int rank;
    } big[] = {
        { "ij,jk->ik", { 300, 520 }, { 520, 700 }, 2 },
        { "ij,jk->ik", { 3000, 700 }, { 700, 100 }, 2 },
        { "zij,zjk->zik", { 3, 270, 300 }, { 3, 300, 600 }, 3 },
    };
    for (int dtype = EG_F32; dtype <= EG_F64; dtype++)
        for (size_t k = 0; k < sizeof big / sizeof *big; k++) {
            eg_ctx *c = eg_open(.dtype = (eg_dtype)dtype, .threads = 1);
            eg_tensor *a = eg_normal_n(c, EG_DEFAULT, 0, 1, big[k].rank, big[k].a),
                      *b = eg_normal_n(c, EG_DEFAULT, 0, 1, big[k].rank, big[k].b);
            eg_tensor *alone = eg_contiguous(eg_einsum(big[k].spec, a, b));
            const size_t bytes = (size_t)eg_size(alone) * (dtype == EG_F64 ? 8 : 4);
            for (int threads = 2; threads <= 5; threads++) {
                eg_threads(c, threads);
                eg_tensor *y = eg_contiguous(eg_einsum(big[k].spec, a, b));
                ck_assert_msg(eg_ok(y) && memcmp(eg_raw(y, NULL), eg_raw(alone, NULL), bytes) == 0,
                              "%s, case %zu, %d threads", big[k].spec, k, threads);
            }
            eg_assert_ok(c);
            eg_close(c);
        }
}

/* Windows whose step is that of their positions are summed along the longer axis. */
TEST(sums_of_overlapping_windows_of_integers_and_complex_numbers_are_those_of_a_copy)
{
    static const eg_dtype types[] = { EG_I32, EG_I64, EG_BOOL, EG_C128 };
    eg_ctx *cx = eg_open(.threads = 1);
    for (int t = 0; t < 4; t++)
        for (int64_t size = 2; size <= 70; size += 17)
            for (int64_t n = size + 1; n <= 150; n += 37) {
                eg_tensor *x =
                    eg_cast(eg_randint(cx, 0, 9, 3, n), types[t] == EG_C128 ? EG_F64 : types[t]);
                if (types[t] == EG_C128)
                    x = eg_complex(x, eg_normal_n(cx, EG_F64, 0, 1, 2, (int64_t[]){ 3, n }));
                eg_tensor *y = eg_unfold_axis(x, 1, size, 1), *f = eg_copy(eg_select_axis(y, 1, 0));
                ck_assert(same_bits(eg_sum("r i [q]", y), eg_sum("r i [q]", eg_copy(y))));
                if (types[t] == EG_C128) continue; /* the product of a copy is by matrices */
                ck_assert(same_bits(eg_einsum("riq,rq->ri", y, f),
                                    eg_einsum("riq,rq->ri", eg_copy(y), f)));
            }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Sums over the positions in overlapping windows, over the windows, and weighted ones (a depthwise
 * convolution and the cotangent of its weights), with channels before and after the pixels, are
 * those of a contiguous copy in f64: of rows shorter and longer than a vector and a block. */
TEST(sums_of_windows_are_those_of_a_copy)
{
    static const char *const spec[] = { "chwpq,cpq->chw", "chwpq->chw", "chw,chwpq->cpq",
                                        "chwpq->cpq",     "chwpq->hw",  "cpq,chwpq->hwc" };
    for (int k = 0; k < 24; k++) {
        const int64_t width = (int64_t[]){ 5, 20, 41, 150 }[k % 4];
        eg_ctx *cx = eg_open(.seed = (uint64_t)k + 1, .threads = 1 + k % 2);
        eg_tensor *x =
            eg_normal_n(cx, k / 4 % 2 ? EG_F64 : EG_F32, 0, 1, 3, (int64_t[]){ 3, 37, width });
        if (k >= 16) x = eg_copy(eg_rearrange("c h w -> h w c", x));
        if (k >= 16) x = eg_rearrange("h w c -> c h w", x);
        eg_tensor *y = eg_unfold("c h [w] p -> c h w p q", eg_unfold("c [h] w -> c h w p", x, 3, 1),
                                 4, k >= 8 && k < 16 ? 2 : 1);
        const int64_t of_f[3] = { 3, 3, 4 }, of_g[3] = { 3, eg_dim(y, 1), eg_dim(y, 2) };
        eg_tensor *f = eg_normal_n(cx, eg_type(x), 0, 1, 3, of_f),
                  *g = eg_normal_n(cx, eg_type(x), 0, 1, 3, of_g);
        eg_tensor *copy = eg_copy(eg_cast(y, EG_F64)), *f64 = eg_cast(f, EG_F64),
                  *g64 = eg_cast(g, EG_F64);
        for (int s = 0; s < 6; s++) {
            const bool one = s == 1 || s == 3 || s == 4;
            eg_tensor *got = one      ? eg_einsum(spec[s], y)
                             : s == 2 ? eg_einsum(spec[s], g, y)
                             : s == 0 ? eg_einsum(spec[s], y, f)
                                      : eg_einsum(spec[s], f, y);
            eg_tensor *want = one      ? eg_einsum(spec[s], copy)
                              : s == 2 ? eg_einsum(spec[s], g64, copy)
                              : s == 0 ? eg_einsum(spec[s], copy, f64)
                                       : eg_einsum(spec[s], f64, copy);
            eg_assert_close(eg_cast(got, EG_F64), want, eg_type(x) == EG_F64 ? 1e-12 : 2e-4);
        }
        eg_close(cx);
    }
}

/* Complex products of few rows, with sums along contiguous numbers of the larger operand, are those
 * of their parts, with the same bits on one thread and on three; also with batches, of reversed
 * operands, and added to a result. */
TEST(complex_products_of_few_rows_are_those_of_their_parts)
{
    static const char *const spec[] = { "ij,kj->ik",   "ij,kj->ki",   "kj,ij->ik",   "bij,bkj->bik",
                                        "ij,bkj->bik", "bij,kj->ibk", "bij,bkj->ikb" };
    for (int k = 0; k < 7 * 4 * 3; k++) {
        const int64_t rows = 2 + k / 7 % 4, view = k / 28;
        eg_tensor *y[2];
        eg_ctx *cx[2];
        for (int t = 0; t < 2; t++) {
            cx[t] = eg_open(.dtype = EG_F64, .seed = (uint64_t)k + 1, .threads = 1 + 2 * t);
            eg_tensor *p[2][2];
            for (int q = 0; q < 2; q++)
                for (int c = 0; c < 2; c++) {
                    const bool small = q == !strncmp(spec[k % 7], "kj", 2);
                    const char *term = q ? strchr(spec[k % 7], ',') + 1 : spec[k % 7];
                    const int64_t dims[] = { 3, small ? rows : 37, 66 + k % 3 };
                    const int from = *term != 'b';
                    p[q][c] = eg_uniform_n(cx[t], EG_F64, -1, 1, 3 - from, dims + from);
                }
            eg_tensor *z[2] = { eg_complex(p[0][0], p[0][1]), eg_complex(p[1][0], p[1][1]) };
            for (int q = 0; q < 2 && view; q++)
                for (int c = 0; c < 3; c++) {
                    eg_tensor **x = c < 2 ? &p[q][c] : &z[q];
                    *x = view == 1 ? eg_flip_axis(*x, -1) : eg_flip_axis(*x, 0);
                }
            y[t] = eg_einsum(spec[k % 7], z[0], z[1]);
            eg_tensor *re = eg_sub(eg_einsum(spec[k % 7], p[0][0], p[1][0]),
                                   eg_einsum(spec[k % 7], p[0][1], p[1][1])),
                      *im = eg_add(eg_einsum(spec[k % 7], p[0][0], p[1][1]),
                                   eg_einsum(spec[k % 7], p[0][1], p[1][0]));
            eg_assert_close(y[t], eg_complex(re, im), 1e-12);
            eg_assert_close(eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                              .spec = spec[k % 7],
                                                              .count = 2,
                                                              .operands = z,
                                                              .alpha = .5,
                                                              .add = eg_complex(im, re) }),
                            eg_add(eg_scale(y[t], .5), eg_complex(im, re)), 1e-12);
            eg_assert_ok(cx[t]);
        }
        ck_assert_msg(same_bits(y[0], y[1]), "%s, %d rows", spec[k % 7], (int)rows);
        eg_close(cx[0]);
        eg_close(cx[1]);
    }
}
