/* direct_of.h: the tiles of direct.c for one type and one vector: REAL; VEC with LANES lanes; MOST
 * columns, or WIDE_COLUMNS of them; MASK and its loads and stores. */

/* c[i + j·cn] (+)= alpha Σ_p a[i + p·ak] b[p·bk + j·bn], i < lanes ≤ V·LANES, j < N. V, N and whole
 * are constants where this is inlined, so every sum is kept in a register. The order of the sum
 * over p, with fused multiply-adds, is that of BLIS's kernels. `kind` is a constant too.
 * TILE_LISTED: the lines of `list` are prefetched. TILE_AHEAD: the rows of a are, SOON rows before
 * they are read, and, if ahead is not 0, every second element of a column of b `ahead` bytes from
 * the first one. */
TARGET EG_INLINE void NAME(tile)(const int V, const int N, const bool whole, const tile_kind kind,
                                 int64_t lanes, int64_t k, const REAL *a, int64_t ak, const REAL *b,
                                 int64_t bk, int64_t bn, REAL *c, int64_t cn, double alpha,
                                 bool add, const prefetch_list *list, int64_t ahead)
{
    enum { IN_LINE = EG_LINE / sizeof(REAL) };
    VEC sum[ALONE_MOST][2];
    const MASK mask[2] = { MASK_OF(lanes), MASK_OF(lanes - LANES) };
    UNROLL for (int j = 0; j < N; j++) UNROLL for (int v = 0; v < V; v++) sum[j][v] = ZERO;
    if (kind != TILE_AHEAD && k >= PREFETCH_LEAST)
        UNROLL for (int j = 0; j < N; j++) UNROLL for (int v = 0; v < V; v++)
            __builtin_prefetch(c + j * cn + v * LANES, 1, 3);
    const REAL *b1 = b + 3 * bn, *b2 = b + 6 * bn, *b3 = b + 9 * bn, *b4 = b + 12 * bn,
               *b5 = b + 15 * bn;
    /* TILE_AHEAD: pointers to the columns from 0 and from `half` on, and bytes from there, because
     * few additions then take the ports of multiply-adds */
    const int half = (N + 1) / 2;
    int64_t apart[ALONE_MOST / 2];
    UNROLL for (int j = 0; j < half; j++) apart[j] = j * bn * (int64_t)sizeof(REAL);
    if (kind == TILE_AHEAD) UNROLL for (int j = 1; j < half; j++) OPAQUE(apart[j]);
    const char *near = (const char *)b, *far = (const char *)(b + half * bn);
    const REAL *line = kind == TILE_LISTED ? list->from : NULL;
    int64_t left = kind == TILE_LISTED ? list->run : 0;
    const REAL *soon = a + SOON * ak;
    const int64_t others = ahead ? 1 : -1; /* p & others is 0 where b is prefetched */
    for (int64_t p = 0; p < k; p++, a += ak, soon += ak, b += bk, b1 += bk, b2 += bk, b3 += bk,
                 b4 += bk, b5 += bk, near += bk * (int64_t)sizeof(REAL),
                 far += bk * (int64_t)sizeof(REAL)) {
        VEC x[2];
        if (kind == TILE_AHEAD) {
            OPAQUE(near);
            OPAQUE(far);
            OPAQUE(soon);
            UNROLL for (int v = 0; v < V; v++) __builtin_prefetch(soon + v * LANES, 0, 3);
            if ((p & others) == 0) __builtin_prefetch(near + ahead, 0, 2);
        }
        if (kind == TILE_LISTED) {
            for (int i = 0; i < V * LANES; i += IN_LINE)
                __builtin_prefetch(line + i, 0, 2); /* to the second-level cache */
            line += list->step;
            if (!--left) left = list->run, line += list->jump;
        }
        UNROLL for (int v = 0; v < V; v++) x[v] =
            whole ? LOAD_ALL(a + v * LANES) : LOAD(a + v * LANES, mask[v]);
        UNROLL for (int j = 0; j < N; j++)
        {
            const REAL *at = (j < 3    ? b
                              : j < 6  ? b1
                              : j < 9  ? b2
                              : j < 12 ? b3
                              : j < 15 ? b4
                                       : b5) +
                             (j % 3) * bn;
            if (kind == TILE_AHEAD)
                at = (const REAL *)(const void *)(j < half ? near + apart[j]
                                                           : far + apart[j - half]);
            const VEC y = SET(*at);
            UNROLL for (int v = 0; v < V; v++) sum[j][v] = FMA(x[v], y, sum[j][v]);
        }
    }
    const VEC factor = SET((REAL)alpha);
    UNROLL for (int j = 0; j < N; j++) UNROLL for (int v = 0; v < V; v++)
    {
        REAL *to = c + j * cn + v * LANES;
        const VEC y = MUL(sum[j][v], factor); /* rounded before the sum, as in BLIS's kernels */
        if (whole)
            STORE_ALL(to, add ? ADD(y, LOAD_ALL(to)) : y);
        else
            STORE(to, mask[v], add ? ADD(y, LOAD(to, mask[v])) : y);
    }
}

/* to[i + p·V·LANES] = a[i + p·ak] for p < k, i < lanes; 0 for i from there on. If prefetches, the
 * rows lie far apart, so that the processor does not fetch them before they are read: the next
 * strip, which begins where this one ends, is fetched while this one is copied. */
TARGET EG_INLINE void NAME(copy)(const int V, int64_t lanes, int64_t k, const REAL *a, int64_t ak,
                                 REAL *to, bool prefetches)
{
    enum { IN_LINE = EG_LINE / sizeof(REAL) };
    const MASK mask[2] = { MASK_OF(lanes), MASK_OF(lanes - LANES) };
    const bool whole = lanes == V * LANES;
    for (int64_t p = 0; p < k; p++, a += ak, to += V * LANES) {
        for (int i = 0; prefetches && i < V * LANES; i += IN_LINE)
            __builtin_prefetch(a + V * LANES + i, 0, 2); /* to the second-level cache */
        UNROLL for (int v = 0; v < V; v++)
        {
            const REAL *from = a + v * LANES;
            STORE_ALL(to + v * LANES, whole ? LOAD_ALL(from) : LOAD(from, mask[v]));
        }
    }
}
TARGET static void NAME(copy_1)(int64_t lanes, int64_t k, const void *a, int64_t ak, void *to,
                                bool prefetches)
{
    NAME(copy)(1, lanes, k, a, ak, to, prefetches);
}
TARGET static void NAME(copy_2)(int64_t lanes, int64_t k, const void *a, int64_t ak, void *to,
                                bool prefetches)
{
    NAME(copy)(2, lanes, k, a, ak, to, prefetches);
}

#if WIDE_TILES
/* sum[j][v] += x[v] b[j] with the vectors x at a. Every second b[j] is an operand in memory of both
 * multiply-adds, which saves instructions; for all of them the loads would take longer. */
TARGET EG_INLINE void NAME(wide_term)(const int columns, VEC sum[][2], const REAL *a, const REAL *b)
{
    VEC x[2], y;
    FENCE; /* otherwise loads move to earlier terms, and sums to the stack */
    UNROLL for (int v = 0; v < 2; v++) x[v] = LOAD_ALL(a + v * LANES);
    UNROLL for (int j = 0; j < columns; j += 2)
    {
        WIDE_ADD(sum[j], x, y, b + j);
        WIDE_ADD_AT(sum[j + 1], x, b + j + 1);
    }
}
/* eg_wide_run. The panel of b is prefetched to the first-level cache SOON_B terms before it is
 * read. */
TARGET static void NAME(wide)(int64_t k, const void *av, const void *bv, void *cv, int64_t cn,
                              double alpha, bool add, const char *const *ahead)
{
    enum { W = 2 * LANES, TERMS = EG_AHEAD_EVERY, IN_LINE = EG_LINE / sizeof(REAL) };
    enum { LINES = (TERMS * WIDE_COLUMNS + IN_LINE - 1) / IN_LINE };
    const REAL *a = av, *b = bv, *soon = b + SOON_B * WIDE_COLUMNS;
    REAL *c = cv;
    VEC sum[WIDE_COLUMNS][2];
    UNROLL for (int j = 0; j < WIDE_COLUMNS; j++) UNROLL for (int v = 0; v < 2; v++) sum[j][v] =
        ZERO;
    for (; k >= TERMS; k -= TERMS) {
        UNROLL for (int q = 0; q < TERMS; q++)
        {
            if (q % (TERMS / 2) == 0) __builtin_prefetch(*ahead + q / (TERMS / 2) * EG_LINE, 0, 2);
            if (q < LINES) __builtin_prefetch(soon + q * IN_LINE, 0, 3);
            if (TERMS + q < LINES) __builtin_prefetch(soon + (TERMS + q) * IN_LINE, 0, 3);
            NAME(wide_term)(WIDE_COLUMNS, sum, a + q * W, b + q * WIDE_COLUMNS);
        }
        ahead++;
        a += TERMS * W;
        b += TERMS * WIDE_COLUMNS;
        soon += TERMS * WIDE_COLUMNS;
    }
    for (; k > 0; k--, a += W, b += WIDE_COLUMNS) NAME(wide_term)(WIDE_COLUMNS, sum, a, b);
    const VEC factor = SET((REAL)alpha);
    UNROLL for (int j = 0; j < WIDE_COLUMNS; j++) UNROLL for (int v = 0; v < 2; v++)
    {
        REAL *to = c + j * cn + v * LANES;
        const VEC y = MUL(sum[j][v], factor); /* rounded before the sum, as in BLIS's kernels */
        STORE_ALL(to, add ? ADD(y, LOAD_ALL(to)) : y);
    }
}

/* c[i + j·W] (+)= Σ_p a[p·W + i] b[p·PANEL + j] for p < depth, i < W, j < PANEL */
TARGET EG_INLINE void NAME(panel)(int64_t depth, const REAL *a, const REAL *b, bool add, REAL *c)
{
    enum { W = 2 * LANES, TERMS = 2 };
    VEC sum[PANEL][2];
    UNROLL for (int j = 0; j < PANEL; j++) UNROLL for (int v = 0; v < 2; v++) sum[j][v] = ZERO;
    if (depth >= PREFETCH_LEAST)
        UNROLL for (int j = 0; j < PANEL; j++) UNROLL for (int v = 0; v < 2; v++)
            __builtin_prefetch(c + j * W + v * LANES, 1, 3);
    for (; depth >= TERMS; depth -= TERMS, a += TERMS * W, b += TERMS * PANEL)
        UNROLL for (int q = 0; q < TERMS; q++)
            NAME(wide_term)(PANEL, sum, a + q * W, b + q * PANEL);
    for (; depth > 0; depth--, a += W, b += PANEL) NAME(wide_term)(PANEL, sum, a, b);
    UNROLL for (int j = 0; j < PANEL; j++) UNROLL for (int v = 0; v < 2; v++)
    {
        REAL *to = c + j * W + v * LANES;
        STORE_ALL(to, add ? ADD(sum[j][v], LOAD_ALL(to)) : sum[j][v]);
    }
}
/* Panels of PANEL columns, for eg__panel_kernel. */
TARGET static void NAME(panels)(const eg_panel_kernel *kn, int64_t depth, const void *a,
                                const void *b, int64_t b_step, int64_t columns, bool add, void *c,
                                eg_ahead_list *next)
{
    enum { W = 2 * LANES };
    (void)kn;
    for (int64_t j = 0; j < columns; j += PANEL) {
        const char *panel = (const char *)b + j / PANEL * b_step;
        if (next && next->lines > 0) eg__ahead_list_prefetch(next, depth * PANEL / EG_AHEAD_TERMS);
        NAME(panel)(depth, a, (const REAL *)(const void *)panel, add, (REAL *)c + j * W);
    }
}
#endif

/* Returns how many elements from i on have no neighbour after them in the result. */
static inline int64_t NAME(alone)(int64_t i, int64_t rows, const int64_t *stretch)
{
    int64_t end = i;
    while (end < rows && stretch[end] == 1) end++;
    return end - i;
}
/* c[m[i] + n[j]] (+)= t[i + j·ts]. A run of consecutive elements of the result is written by a
 * vector. Elements without neighbours, such as the real parts of complex numbers, are written one
 * by one, because a masked store takes several cycles. */
TARGET static void NAME(scatter)(int64_t rows, int64_t cols, const void *tile, int64_t ts, void *cv,
                                 const int64_t *m, const int64_t *n, const int64_t *stretch,
                                 bool add)
{
    for (int64_t i = 0, len; i < rows; i += len) {
        const REAL *from = (const REAL *)tile + i;
        REAL *c = (REAL *)cv + m[i];
        if ((len = NAME(alone)(i, rows, stretch))) {
            for (int64_t j = 0; j < cols; j++, from += ts)
                for (int64_t q = 0; q < len; q++) {
                    REAL *to = c + n[j] + (m[i + q] - m[i]);
                    *to = add ? *to + from[q] : from[q];
                }
            continue;
        }
        len = eg__min64(eg__min64(stretch[i], rows - i), LANES);
        const MASK mask = MASK_OF(len);
        if (2 * len == LANES && !add)
            for (int64_t j = 0; j < cols; j++) memcpy(c + n[j], from + j * ts, sizeof(VEC) / 2);
        else if (add)
            for (int64_t j = 0; j < cols; j++)
                STORE(c + n[j], mask, ADD(LOAD(c + n[j], mask), LOAD(from + j * ts, mask)));
        else
            for (int64_t j = 0; j < cols; j++) STORE(c + n[j], mask, LOAD(from + j * ts, mask));
    }
}

/* tile() for each product of a batch. Each prefetches half a column of those that are read later:
 * more lines at a time would wait for each other. */
TARGET EG_INLINE void NAME(batch)(const int V, const int N, const bool whole, const tile_kind kind,
                                  const eg_tile_batch *batch, int64_t lanes, int64_t k,
                                  const REAL *a, int64_t ak, const REAL *b, int64_t bk, int64_t bn,
                                  REAL *c, int64_t cn, double alpha, bool add)
{
    for (int64_t i = 0; i < batch->count; i++, a += batch->a, b += batch->b, c += batch->c) {
        const int64_t half = batch->number + i, column = half / 2, /* of a column: even or odd p */
            ahead = batch->ahead && column < N ? batch->ahead + column * bn + half % 2 * bk : 0;
        NAME(tile)
        (V, N, whole, kind, lanes, k, a, ak, b, bk, bn, c, cn, alpha, add, NULL,
         kind == TILE_AHEAD ? ahead * (int64_t)sizeof(REAL) : 0);
    }
}

/* clang-format off */
#define TILE(V, N, whole)                                                                          \
    TARGET static void NAME(tile_##V##_##N##_##whole)(                                             \
        int64_t lanes, int64_t k, const void *a, int64_t ak, const void *b, int64_t bk,            \
        int64_t bn, void *c, int64_t cn, double alpha, bool add)                                   \
    { NAME(tile)(V, N, whole, TILE_PLAIN, lanes, k, a, ak, b, bk, bn, c, cn, alpha, add, NULL, 0); }
#define BATCH(name, V, N, whole, kind)                                                             \
    TARGET static void NAME(name)(                                                                 \
        const eg_tile_batch *batch, int64_t lanes, int64_t k, const void *a, int64_t ak,           \
        const void *b, int64_t bk, int64_t bn, void *c, int64_t cn, double alpha, bool add)        \
    { NAME(batch)(V, N, whole, kind, batch, lanes, k, a, ak, b, bk, bn, c, cn, alpha, add); }
#define FAR(N)  BATCH(far_##N, 2, N, true, TILE_AHEAD)
#define PREFETCHING(N)                                                                             \
    TARGET static void NAME(prefetching_##N)(                                                      \
        int64_t k, const void *a, int64_t ak, const void *b, int64_t bk, int64_t bn, void *c,      \
        int64_t cn, double alpha, bool add, const prefetch_list *at)                               \
    { NAME(tile)(2, N, 1, TILE_LISTED, 2 * LANES, k, a, ak, b, bk, bn, c, cn, alpha, add, at, 0); }
/* clang-format on */
#define TALL(N)   \
    TILE(2, N, 0) \
    TILE(2, N, 1) \
    PREFETCHING(N)
#define FLAT(N)                               \
    TILE(1, N, 0)                             \
    TILE(1, N, 1)                             \
    BATCH(batch_##N##_0, 1, N, 0, TILE_PLAIN) \
    BATCH(batch_##N##_1, 1, N, 1, TILE_PLAIN)
#define BOTH(N) \
    TALL(N)     \
    FLAT(N)
BOTH(1)
BOTH(2)
BOTH(3)
BOTH(4)
BOTH(5)
BOTH(6)
FAR(6)
#if WIDE_TILES
BOTH(7)
BOTH(8)
BOTH(9)
BOTH(10)
BOTH(11)
BOTH(12)
FLAT(13)
FLAT(14)
FLAT(15)
FLAT(16)
FAR(7)
FAR(8)
FAR(9)
FAR(10)
FAR(11)
FAR(12)
#endif
#define SIX(V, whole)                                                                   \
    NAME(tile_##V##_1_##whole), NAME(tile_##V##_2_##whole), NAME(tile_##V##_3_##whole), \
        NAME(tile_##V##_4_##whole), NAME(tile_##V##_5_##whole), NAME(tile_##V##_6_##whole)
#define PREFETCHING_SIX                                                                 \
    NAME(prefetching_1), NAME(prefetching_2), NAME(prefetching_3), NAME(prefetching_4), \
        NAME(prefetching_5), NAME(prefetching_6)
#define BATCH_SIX(whole)                                                                        \
    NAME(batch_1_##whole), NAME(batch_2_##whole), NAME(batch_3_##whole), NAME(batch_4_##whole), \
        NAME(batch_5_##whole), NAME(batch_6_##whole)
#if WIDE_TILES
#define BATCH_SIXTEEN(whole)                                                               \
    BATCH_SIX(whole), NAME(batch_7_##whole), NAME(batch_8_##whole), NAME(batch_9_##whole), \
        NAME(batch_10_##whole), NAME(batch_11_##whole), NAME(batch_12_##whole),            \
        NAME(batch_13_##whole), NAME(batch_14_##whole), NAME(batch_15_##whole),            \
        NAME(batch_16_##whole)
#define TWELVE(V, whole)                                                                      \
    SIX(V, whole), NAME(tile_##V##_7_##whole), NAME(tile_##V##_8_##whole),                    \
        NAME(tile_##V##_9_##whole), NAME(tile_##V##_10_##whole), NAME(tile_##V##_11_##whole), \
        NAME(tile_##V##_12_##whole)
#define SIXTEEN(whole)                                                                           \
    TWELVE(1, whole), NAME(tile_1_13_##whole), NAME(tile_1_14_##whole), NAME(tile_1_15_##whole), \
        NAME(tile_1_16_##whole)
static const small NAME(small) = {
    LANES,
    MOST,
    16,
    NAME(scatter),
    { NAME(copy_1), NAME(copy_2) },
    { { { SIXTEEN(0) }, { SIXTEEN(1) } }, { { TWELVE(2, 0) }, { TWELVE(2, 1) } } },
    { PREFETCHING_SIX, NAME(prefetching_7), NAME(prefetching_8), NAME(prefetching_9),
      NAME(prefetching_10), NAME(prefetching_11), NAME(prefetching_12) },
    { { BATCH_SIXTEEN(0) }, { BATCH_SIXTEEN(1) } },
    { NAME(far_6), NAME(far_7), NAME(far_8), NAME(far_9), NAME(far_10), NAME(far_11), NAME(far_12) }
};
#undef TWELVE
#undef SIXTEEN
#undef BATCH_SIXTEEN
#else
static const small NAME(small) = { LANES,
                                   MOST,
                                   MOST,
                                   NAME(scatter),
                                   { NAME(copy_1), NAME(copy_2) },
                                   { { { SIX(1, 0) }, { SIX(1, 1) } },
                                     { { SIX(2, 0) }, { SIX(2, 1) } } },
                                   { PREFETCHING_SIX },
                                   { { BATCH_SIX(0) }, { BATCH_SIX(1) } },
                                   { NAME(far_6) } };
#endif
#undef BATCH
#undef TILE
#undef FAR
#undef TALL
#undef FLAT
#undef BOTH
#undef SIX
#undef BATCH_SIX
#undef PREFETCHING
#undef PREFETCHING_SIX
#undef WIDE_COLUMNS
#undef KIND
#undef TO
#undef REAL
#undef NAME
#undef VEC
#undef LANES
#undef MASK
#undef MASK_OF
#undef ZERO
#undef SET
#undef FMA
#undef ADD
#undef MUL
#undef LOAD
#undef LOAD_ALL
#undef STORE
#undef STORE_ALL
