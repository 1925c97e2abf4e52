/* sum_rows_of.h: the loops of sum.c over contiguous rows, for one type and one instruction set:
 * REAL; TARGET, the attribute of the set; BYTES, the length of its registers; FOUR, a vector of
 * four. A sum has 64 bytes of lanes, whatever the registers, so that its bits do not depend on
 * them. */

typedef REAL NAME(piece) __attribute__((vector_size(BYTES)));
typedef REAL NAME(half) __attribute__((vector_size(32))); /* half of the lanes */
#define PIECE    NAME(piece)
#define IN_PIECE (BYTES / (int)sizeof(REAL))
#define LANES    (64 / (int)sizeof(REAL))
/* rows whose sums fit in registers at once */
#define ABREAST (BYTES == 64 ? 4 : 1)

/* Transposes a matrix of four vectors. */
EG_INLINE void NAME(transpose)(FOUR *v)
{
    const FOUR a = __builtin_shufflevector(v[0], v[1], 0, 4, 2, 6),
               b = __builtin_shufflevector(v[0], v[1], 1, 5, 3, 7),
               c = __builtin_shufflevector(v[2], v[3], 0, 4, 2, 6),
               d = __builtin_shufflevector(v[2], v[3], 1, 5, 3, 7);
    v[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    v[2] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    v[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}
/* Adds Σ a[i] b[i] (Σ a[i] if b is NULL) of `rows` rows of n elements, a multiple of 4 LANES: in
 * four wide sums, then halves to halves until four lanes remain. `rows` and `prefetches` are
 * constants; rows is at most ABREAST. If prefetches, the elements of a `ahead` after the added ones
 * are prefetched.
 */
EG_INLINE void NAME(wide_sums)(const int rows, const bool prefetches, int64_t n,
                               const REAL *const *a, const REAL *const *b, int64_t ahead, FOUR *sum)
{
    enum { PIECES = 4 * 64 / BYTES, EACH = 64 / BYTES };
    PIECE s[ABREAST][PIECES] = { { { 0 } } };
    for (int64_t i = 0; i < n; i += 4 * LANES) {
        for (int q = 0; prefetches && q < 4; q++)
            __builtin_prefetch(a[0] + i + ahead + q * LANES, 0, 2);
        UNROLLED for (int q = 0; q < PIECES; q++) UNROLLED for (int r = 0; r < rows; r++)
        {
            PIECE x, y;
            memcpy(&x, a[r] + i + q * IN_PIECE, sizeof x);
            if (b) {
                memcpy(&y, b[r] + i + q * IN_PIECE, sizeof y);
                x *= y;
            }
            s[r][q] += x;
        }
    }
    UNROLLED for (int r = 0; r < rows; r++)
    {
        PIECE lane[EACH];
        FOUR part[LANES / 4];
        UNROLLED for (int q = 0; q < EACH; q++) lane[q] =
            (s[r][q] + s[r][EACH + q]) + (s[r][2 * EACH + q] + s[r][3 * EACH + q]);
        memcpy(part, lane, sizeof part);
        UNROLLED for (int half = LANES / 8; half > 0; half /= 2)
            UNROLLED for (int q = 0; q < half; q++) part[q] += part[q + half];
        sum[r] = part[0];
    }
}
/* Sets sum[q] to four lanes of the sum of elements j … n − 1 of row q; `rows`, a constant, is 1
 * or 4. */
EG_INLINE void NAME(near_sums)(const int rows, int64_t j, int64_t n, const REAL *const *a,
                               const REAL *const *b, FOUR *sum)
{
    FOUR s[4] = { { 0 } };
    for (; j + 4 <= n; j += 4) UNROLLED for (int q = 0; q < rows; q++)
        {
            FOUR u, v;
            memcpy(&u, a[q] + j, sizeof u);
            if (b) {
                memcpy(&v, b[q] + j, sizeof v);
                u *= v;
            }
            s[q] += u;
        }
    for (; j < n; j++)
        UNROLLED for (int q = 0; q < rows; q++) s[q][0] += b ? a[q][j] * b[q][j] : a[q][j];
    UNROLLED for (int q = 0; q < rows; q++) sum[q] = s[q];
}
/* Sets *sum to four lanes of the sum of a row whose elements are not contiguous. */
EG_INLINE void NAME(far_sums)(int64_t n, const REAL *a, int64_t sa, const REAL *b, int64_t sb,
                              FOUR *sum)
{
    FOUR s = { 0 };
    int64_t j = 0;
    for (; j + 4 <= n; j += 4)
        for (int l = 0; l < 4; l++) s[l] += b ? a[(j + l) * sa] * b[(j + l) * sb] : a[(j + l) * sa];
    for (; j < n; j++) s[0] += b ? a[j * sa] * b[j * sb] : a[j * sa];
    *sum = s;
}
/* NAME(dots) of fewer than four elements, n, a constant, without b */
EG_INLINE void NAME(short_sums)(const int n, int64_t rows, const REAL *a, int64_t ra, int64_t sa,
                                REAL *c, int64_t rc, REAL alpha, bool add)
{
    for (int64_t r = 0; r < rows; r++) {
        REAL sum = 0;
        for (int j = 0; j < n; j++) sum += a[r * ra + j * sa];
        sum *= alpha;
        c[r * rc] = add ? c[r * rc] + sum : sum;
    }
}
/* Returns how many elements after those that are read others are prefetched: 8 KB of rows of n
 * elements. */
EG_INLINE int64_t NAME(ahead)(int64_t n, int64_t apart)
{
    enum { MOST = 8192 / sizeof(REAL) };
    return apart == n ? MOST : apart * (n < MOST ? MOST / n : 1);
}
/* c[r·rc] (+)= alpha Σ a[r·ra + i·sa] b[r·rb + i·sb] (alpha Σ a[r·ra + i·sa] if b is NULL), of at
 * most a block. The order of the sum of a row does not depend on the other rows. If they are far,
 * in memory, they are added one after the other, and later ones are prefetched. */
TARGET static void NAME(dots)(int64_t rows, int64_t n, const void *a0, int64_t ra, int64_t sa,
                              const void *b0, int64_t rb, int64_t sb, void *c0, int64_t rc,
                              double alpha, bool add, bool far)
{
    const REAL *a = a0, *b = b0;
    REAL *c = c0;
    if (!b && n > 0 && n < 4) {
        if (n == 1)
            NAME(short_sums)(1, rows, a, ra, sa, c, rc, (REAL)alpha, add);
        else if (n == 2)
            NAME(short_sums)(2, rows, a, ra, sa, c, rc, (REAL)alpha, add);
        else
            NAME(short_sums)(3, rows, a, ra, sa, c, rc, (REAL)alpha, add);
        return;
    }
    const bool contiguous = sa == 1 && (!b || sb == 1);
    const int64_t wide = contiguous ? n & -(4 * LANES) : 0,
                  ahead = far && contiguous && rows > 1 ? NAME(ahead)(n, ra) : 0;
    for (int64_t r = 0, here; r < rows; r += here, c += here * rc) {
        const REAL *pa[4], *pb[4];
        FOUR head[4] = { { 0 } }, tail[4] = { { 0 } };
        here = eg__min64(4, rows - r);
        for (int64_t q = 0; q < 4; q++) {
            pa[q] = a + (r + (q < here ? q : 0)) * ra;
            pb[q] = b ? b + (r + (q < here ? q : 0)) * rb : NULL;
        }
        for (int64_t i = ahead ? wide : n; i < n; i += LANES)
            for (int64_t q = 0; q < here; q++) __builtin_prefetch(pa[q] + ahead + i, 0, 2);
        if (wide && here == 4 && !ahead)
            for (int q = 0; q < 4; q += ABREAST)
                NAME(wide_sums)(ABREAST, false, wide, pa + q, b ? pb + q : NULL, 0, head + q);
        else if (wide)
            for (int q = 0; q < here; q++) {
                if (ahead)
                    NAME(wide_sums)(1, true, wide, pa + q, b ? pb + q : NULL, ahead, head + q);
                else
                    NAME(wide_sums)(1, false, wide, pa + q, b ? pb + q : NULL, 0, head + q);
            }
        if (!contiguous)
            for (int q = 0; q < here; q++) NAME(far_sums)(n, pa[q], sa, pb[q], sb, tail + q);
        else if (here == 4)
            NAME(near_sums)(4, wide, n, pa, b ? pb : NULL, tail);
        else
            for (int q = 0; q < here; q++)
                NAME(near_sums)(1, wide, n, pa + q, b ? pb + q : NULL, tail + q);
        if (wide) NAME(transpose)(head);
        NAME(transpose)(tail);
        const FOUR sum = (REAL)alpha * (((head[0] + head[2]) + (head[1] + head[3])) +
                                        ((tail[0] + tail[1]) + (tail[2] + tail[3])));
        for (int q = 0; q < here; q++) c[q * rc] = add ? c[q * rc] + sum[q] : sum[q];
    }
}
/* sum[q] = Σ_i a[i · columns + q] for q < columns, a constant below FEW, in the order of
 * NAME(dots): the wide sums of all columns lie in memory as the elements do, so whole vectors are
 * added. */
EG_INLINE void NAME(interleaved_sums)(const int columns, int64_t n, const REAL *a, REAL *sum)
{
    enum { WIDE = 4 * LANES };
    REAL lane[WIDE * FEW] __attribute__((aligned(64)));
    const int64_t wide = n & -(int64_t)WIDE;
    FOUR head[4], tail[4];
    PIECE s[WIDE / IN_PIECE * FEW];
    UNROLLED for (int q = 0; q < WIDE / IN_PIECE * columns; q++) s[q] = (PIECE){ 0 };
    for (int64_t i = 0; i < wide; i += WIDE)
        UNROLLED for (int q = 0; q < WIDE / IN_PIECE * columns; q++)
        {
            PIECE x;
            memcpy(&x, a + i * columns + q * IN_PIECE, sizeof x);
            s[q] += x;
        }
    memcpy(lane, s, (size_t)(WIDE * columns) * sizeof *lane);
    for (int first = 0; first < columns; first += 4) {
        const int here = columns - first < 4 ? columns - first : 4;
        memset(head, 0, sizeof head);
        memset(tail, 0, sizeof tail);
        for (int q = 0; q < here; q++) {
            const REAL *v = lane + first + q, *rest = a + wide * columns + first + q;
            REAL part[LANES];
            for (int l = 0; l < LANES; l++)
                part[l] = (v[l * columns] + v[(l + LANES) * columns]) +
                          (v[(l + 2 * LANES) * columns] + v[(l + 3 * LANES) * columns]);
            for (int half = LANES / 2; half >= 4; half /= 2)
                for (int l = 0; l < half; l++) part[l] += part[l + half];
            if (wide) memcpy(&head[q], part, sizeof *head);
            int64_t j = 0;
            for (; j + 4 <= n - wide; j += 4)
                for (int l = 0; l < 4; l++) tail[q][l] += rest[(j + l) * columns];
            for (; j < n - wide; j++) tail[q][0] += rest[j * columns];
        }
        if (wide) NAME(transpose)(head);
        NAME(transpose)(tail);
        const FOUR all = ((head[0] + head[2]) + (head[1] + head[3])) +
                         ((tail[0] + tail[1]) + (tail[2] + tail[3]));
        for (int q = 0; q < here; q++) sum[first + q] = all[q];
    }
}
/* Sums of `columns` interleaved columns, below FEW, of at most a block */
TARGET static void NAME(interleaved)(int columns, int64_t n, const void *a, void *sum)
{
    switch (columns) {
    case 2: NAME(interleaved_sums)(2, n, a, sum); break;
    case 3: NAME(interleaved_sums)(3, n, a, sum); break;
    case 4: NAME(interleaved_sums)(4, n, a, sum); break;
    case 5: NAME(interleaved_sums)(5, n, a, sum); break;
    case 6: NAME(interleaved_sums)(6, n, a, sum); break;
    default: NAME(interleaved_sums)(7, n, a, sum);
    }
}
#define VECTOR  PIECE
#define COLUMNS NAME(few_columns)
#include "contraction/sum_columns_of.h"
#undef VECTOR
#undef COLUMNS
#define VECTOR  NAME(half)
#define COLUMNS NAME(half_columns)
#include "contraction/sum_columns_of.h"
#undef VECTOR
#undef COLUMNS
#define VECTOR  FOUR
#define COLUMNS NAME(fewer_columns)
#include "contraction/sum_columns_of.h"
#undef VECTOR
#undef COLUMNS
/* c[i] (+)= alpha Σ_r a[at_a[r] + i] f, of n neighbours and at most ROWS rows, as NAME(rows) adds
 * them, in registers. The factor f is 1, the number b[at_b[r]], or b[at_b[r] + i]. The rows at
 * a + next[0][r] (and b + next[1][r], of rows of b) are prefetched, unless next is NULL. */
EG_INLINE void NAME(few_rows)(const int factor, int64_t n, int rows, const REAL *a,
                              const int64_t *at_a, const REAL *b, const int64_t *at_b, REAL *c,
                              REAL alpha, bool add, const int64_t (*next)[ROWS])
{
    const bool by_fours = factor != ROW_FACTOR, number = factor == NUMBER_FACTOR;
    const int64_t along = factor == ROW_FACTOR;
    enum { EACH = 64 / BYTES };
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) NAME(few_columns)
    (4 * EACH, factor, rows, a + i, at_a, b + along * i, at_b, c + i, alpha, add, next);
    for (; i + LANES <= n; i += LANES) NAME(few_columns)
    (EACH, factor, rows, a + i, at_a, b + along * i, at_b, c + i, alpha, add, next);
    if (i < n && i && !add) { /* the last lanes, of which some are computed again */
        i = n - LANES;
        NAME(few_columns)
        (EACH, factor, rows, a + i, at_a, b + along * i, at_b, c + i, alpha, add, next);
        return;
    }
    for (; i + LANES / 2 <= n; i += LANES / 2) NAME(half_columns)
    (1, factor, rows, a + i, at_a, b + along * i, at_b, c + i, alpha, add, next);
    if (i < n && i && !add) {
        i = n - LANES / 2;
        NAME(half_columns)
        (1, factor, rows, a + i, at_a, b + along * i, at_b, c + i, alpha, add, next);
        return;
    }
    for (; i + 4 <= n; i += 4) NAME(fewer_columns)
    (1, factor, rows, a + i, at_a, b + along * i, at_b, c + i, alpha, add, next);
    for (; i < n; i++) {
        const REAL *u = a + i, *v = b + along * i;
        REAL sum = 0, x[4];
        int r = 0;
        for (; by_fours && r + 4 <= rows; r += 4) {
            for (int l = 0; l < 4; l++)
                x[l] = number ? u[at_a[r + l]] * v[at_b[r + l]] : u[at_a[r + l]];
            sum += (x[0] + x[1]) + (x[2] + x[3]);
        }
        for (; r < rows; r++) sum += factor == NO_FACTOR ? u[at_a[r]] : u[at_a[r]] * v[at_b[r]];
        sum *= alpha;
        c[i] = add ? c[i] + sum : sum;
    }
}
TARGET static void NAME(block)(sum_factor factor, int64_t n, int rows, const void *a,
                               const int64_t *at_a, const void *b, const int64_t *at_b, void *c,
                               double alpha, bool add, const int64_t (*next)[ROWS])
{
    const REAL by = (REAL)alpha;
    switch (factor) {
    case NO_FACTOR: NAME(few_rows)(NO_FACTOR, n, rows, a, at_a, a, at_a, c, by, add, next); break;
    case NUMBER_FACTOR:
        NAME(few_rows)(NUMBER_FACTOR, n, rows, a, at_a, b, at_b, c, by, add, next);
        break;
    case ROW_FACTOR: NAME(few_rows)(ROW_FACTOR, n, rows, a, at_a, b, at_b, c, by, add, next); break;
    }
}
static const sum_kernels NAME(kernels) = { NAME(dots), NAME(interleaved), NAME(block) };
#undef PIECE
#undef IN_PIECE
#undef LANES
#undef ABREAST
