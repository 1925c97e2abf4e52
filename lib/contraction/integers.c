/* integers.c: products of matrices of integers, with sums in i64 that wrap, in any order. Blocks of
 * SIDE × SIDE numbers of both operands, of any strides, are copied as i64; a tile of the result,
 * ROWS rows of a block, is summed in registers. */
#include "contraction/gemm.h"
#include <string.h>

enum { SIDE = 64, ROWS = 4, GROUP = 8 /* columns of which a tile has a multiple */ };
/* GRAIN: multiply-adds for which another thread is worthwhile, some 70 µs */
enum { GRAIN = 1 << 20 };
/* What is smaller is faster in plain.c: rows, columns, terms of a sum, multiply-adds. */
enum { LEAST_ROWS = 12, LEAST_COLUMNS = 8, LEAST_TERMS = 8, LEAST_PRODUCTS = 4096 };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#define PRODUCT(x, y) ((x) * (y))
#define TARGET
#define LANES    2
#define WIDE     4
#define MULTIPLY PRODUCT
#define NAME(x)  x##_any
#include "contraction/integers_of.h"
#undef TARGET
#undef LANES
#undef WIDE

typedef void integer_tile(int64_t n, int64_t columns, const uint64_t *u, const uint64_t *v,
                          uint64_t *sum);
#if defined(__x86_64__)
#include <immintrin.h>
/* narrow: of numbers that an int32_t represents, by one instruction */
#define TARGET         __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define LANES          8
#define WIDE           4
#define MULTIPLY(x, y) ((vec_512_narrow)_mm512_mul_epi32((__m512i)(x), (__m512i)(y)))
#define NAME(x)        x##_512_narrow
#include "contraction/integers_of.h"
#define MULTIPLY PRODUCT
#define NAME(x)  x##_512
#include "contraction/integers_of.h"
#undef TARGET
#undef LANES
#undef WIDE
#define TARGET         __attribute__((target("avx2,fma")))
#define LANES          4
#define WIDE           2
#define MULTIPLY(x, y) ((vec_256_narrow)_mm256_mul_epi32((__m256i)(x), (__m256i)(y)))
#define NAME(x)        x##_256_narrow
#include "contraction/integers_of.h"
#define MULTIPLY PRODUCT
#define NAME(x)  x##_256
#include "contraction/integers_of.h"

#endif
static integer_tile *tile_of(eg_dtype dtype)
{
#if defined(__x86_64__)
    switch (eg__kernel_isa()) {
    case EG_ISA_AVX512: return dtype == EG_I64 ? tile_512 : tile_512_narrow;
    case EG_ISA_AVX2: return dtype == EG_I64 ? tile_256 : tile_256_narrow;
    default: break;
    }
#endif
    (void)dtype;
    return tile_any;
}

/* Numbers of i64 that plain.c reads from a cache, where they need no copy. */
enum { CACHED = 1 << 17 };

/* -- blocks of operands ----------------------------------------------------------------------- */
EG_INLINE uint64_t number_at(const eg_dtype dtype, const void *x, int64_t i)
{
    return dtype == EG_I64   ? ((const uint64_t *)x)[i]
           : dtype == EG_I32 ? (uint64_t)((const int32_t *)x)[i]
                             : ((const uint8_t *)x)[i];
}
/* to[j / group][i][j % group] = x[at[j] + k[i]] for j < count, i < n; 0 up to the end of the
 * group. */
EG_INLINE void pack_numbers(const eg_dtype dtype, const int group, int64_t count, int64_t n,
                            const void *x, const int64_t *at, const int64_t *k, uint64_t *to)
{
    bool near = group == SIDE; /* x is contiguous along j */
    for (int64_t j = 1; near && j < count; j++) near = at[j] == at[0] + j;
    if (group == SIDE && count % GROUP)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = count; j % GROUP; j++) to[i * SIDE + j] = 0;
    if (near) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < count; j++)
                to[i * SIDE + j] = number_at(dtype, x, at[0] + k[i] + j);
        return;
    }
    if (group == ROWS && count % ROWS)
        memset(to + count / ROWS * ROWS * SIDE, 0, (size_t)(n * ROWS) * sizeof *to);
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i++)
            to[j / group * group * SIDE + i * group + j % group] =
                number_at(dtype, x, at[j] + k[i]);
}
EG_INLINE void pack_dtype(const eg_dtype dtype, bool rows, int64_t count, int64_t n, const void *x,
                          const int64_t *at, const int64_t *k, uint64_t *to)
{
    if (rows)
        pack_numbers(dtype, ROWS, count, n, x, at, k, to);
    else
        pack_numbers(dtype, SIDE, count, n, x, at, k, to);
}
/* pack_numbers for each dtype */
EG_CLONES static void pack_integers(eg_dtype dtype, bool rows, int64_t count, int64_t n,
                                    const void *x, const int64_t *at, const int64_t *k,
                                    uint64_t *to)
{
    switch (dtype) {
    case EG_I32: pack_dtype(EG_I32, rows, count, n, x, at, k, to); break;
    case EG_I64: pack_dtype(EG_I64, rows, count, n, x, at, k, to); break;
    default: pack_dtype(EG_BOOL, rows, count, n, x, at, k, to);
    }
}

/* -- a product -------------------------------------------------------------------------------- */
/* Rows of the result follow one operand, columns the other one. */
typedef struct integers {
    eg_dtype dtype;
    integer_tile *tile;
    int of_rows; /* the operand: EG_OF_A or EG_OF_B */
    eg_axes batch, rows, columns, k;
    const char *x[2];
    uint64_t *c;
    uint64_t alpha;
    bool add;
} integers;

/* c (+)= alpha sum for the columns whose offsets are in `to`. */
EG_CLONES static void write_row(const integers *p, int64_t n, const uint64_t *sum, bool add,
                                uint64_t *c, const int64_t *to)
{
    if (to[n - 1] - to[0] == n - 1 && add)
        for (int64_t j = 0; j < n; j++) c[to[0] + j] += p->alpha * sum[j];
    else if (to[n - 1] - to[0] == n - 1)
        for (int64_t j = 0; j < n; j++) c[to[0] + j] = p->alpha * sum[j];
    else
        for (int64_t j = 0; j < n; j++) c[to[j]] = (add ? c[to[j]] : 0) + p->alpha * sum[j];
}
/* Rows [from, from + m) of a batch, of which `at` is the first element. */
static void integer_rows(const integers *p, eg_offsets at, int64_t from, int64_t m)
{
    _Alignas(64) uint64_t u[SIDE * SIDE], v[SIDE * SIDE], sum[ROWS * SIDE];
    int64_t of_row[SIDE], to_row[SIDE], of_column[SIDE], to_column[SIDE], k[2][SIDE];
    const int rows = p->of_rows, columns = !rows;
    const int64_t w = eg__width[p->dtype];
    eg__offsets(&p->rows, rows, from, m, of_row);
    eg__offsets(&p->rows, EG_OF_C, from, m, to_row);
    for (int64_t q = 0; q < p->k.total; q += SIDE) {
        const int64_t terms = eg__min64(SIDE, p->k.total - q);
        for (int s = 0; s < 2; s++) eg__offsets(&p->k, s, q, terms, k[s]);
        pack_integers(p->dtype, true, m, terms, p->x[rows] + at.of[rows] * w, of_row, k[rows], u);
        for (int64_t j = 0; j < p->columns.total; j += SIDE) {
            const int64_t n = eg__min64(SIDE, p->columns.total - j);
            eg__offsets(&p->columns, columns, j, n, of_column);
            eg__offsets(&p->columns, EG_OF_C, j, n, to_column);
            pack_integers(p->dtype, false, n, terms, p->x[columns] + at.of[columns] * w, of_column,
                          k[columns], v);
            for (int64_t r = 0; r < m; r++) {
                if (r % ROWS == 0) p->tile(terms, eg__round_up(n, GROUP), u + r * SIDE, v, sum);
                write_row(p, n, sum + r % ROWS * SIDE, p->add || q, p->c + at.c + to_row[r],
                          to_column);
            }
        }
    }
}
/* One block of rows of one batch. */
static void integer_piece(void *user, int64_t i, int thread)
{
    (void)thread;
    const integers *p = user;
    const int64_t blocks = (p->rows.total + SIDE - 1) / SIDE, from = i % blocks * SIDE;
    integer_rows(p, eg__offsets_of(&p->batch, i / blocks), from,
                 eg__min64(SIDE, p->rows.total - from));
}
/* Assigns a role to each axis of the result, and computes the product by blocks of rows. */
bool eg__integers(eg_ctx *cx, eg_dtype dtype, const eg_axes *out, const eg_axes *k, const void *a,
                  const void *b, void *c, double alpha, bool add)
{
    eg_axis axes[3][EG_PAIR_AXES];
    const eg_axis *x = out->n ? &out->axis[out->n - 1] : NULL;
    if (!x || !x->sa == !x->sb || k->total < LEAST_TERMS) return false;
    integers p = { .dtype = dtype,
                   .of_rows = x->sa ? EG_OF_B : EG_OF_A,
                   .k = *k,
                   .x = { a, b },
                   .c = c,
                   .alpha = (uint64_t)(int64_t)alpha,
                   .add = add };
    eg_axes *const lists[] = { &p.batch, &p.rows, &p.columns };
    for (int l = 0; l < 3; l++) *lists[l] = (eg_axes){ 0, 1, axes[l] };
    for (int i = 0; i < out->n; i++) {
        const eg_axis *y = &out->axis[i];
        eg_axes *l = !y->sa == !y->sb ? &p.batch : y->step[p.of_rows] ? &p.rows : &p.columns;
        l->axis[l->n++] = *y;
        l->total *= y->size;
    }
    for (int i = 0; i < k->n; i++)
        if (!k->axis[i].sa && !k->axis[i].sb) return false;
    const double products = (double)p.rows.total * (double)p.columns.total * (double)k->total;
    if (p.rows.total < LEAST_ROWS || p.columns.total < LEAST_COLUMNS || products < LEAST_PRODUCTS)
        return false;
    const int team = eg__team(cx, (int64_t)(products * (double)p.batch.total), GRAIN);
    const bool cached = x->step[!p.of_rows] == 1 && p.columns.total * k->total < CACHED;
    if (dtype == EG_I64 && cached && team == 1) return false;
    p.tile = tile_of(dtype);
    const int64_t pieces = p.batch.total * ((p.rows.total + SIDE - 1) / SIDE);
    eg__parallel(cx, team, pieces, integer_piece, &p);
    return true;
}
