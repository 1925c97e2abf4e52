/* integers_of.h: a tile of integers.c in vectors of LANES numbers, WIDE of them side by side; x y
 * is MULTIPLY(x, y). NAME(x) is a name for these vectors and this multiplication. */
typedef uint64_t NAME(vec) __attribute__((vector_size(8 * LANES)));

/* sum[r][j] = Σ_i u[i][r] v[i][j] for j < w LANES and i < n */
TARGET EG_INLINE void NAME(columns)(const int w, int64_t n, const uint64_t *u, const uint64_t *v,
                                    uint64_t *sum)
{
    NAME(vec) s[ROWS][WIDE] = { 0 }, y[WIDE];
    for (int64_t i = 0; i < n; i++, u += ROWS, v += SIDE) {
        UNROLL
        for (int q = 0; q < w; q++) memcpy(&y[q], v + q * LANES, sizeof y[q]);
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            const NAME(vec) x = u[r] - (NAME(vec)){ 0 };
            UNROLL
            for (int q = 0; q < w; q++) s[r][q] += MULTIPLY(x, y[q]);
        }
    }
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        UNROLL
        for (int q = 0; q < w; q++) memcpy(sum + r * SIDE + q * LANES, &s[r][q], sizeof s[r][q]);
    }
}
TARGET static void NAME(tile)(int64_t n, int64_t columns, const uint64_t *u, const uint64_t *v,
                              uint64_t *sum)
{
    int64_t j = 0;
    for (; j + WIDE * LANES <= columns; j += WIDE * LANES)
        NAME(columns)(WIDE, n, u, v + j, sum + j);
    for (; j < columns; j += LANES) NAME(columns)(1, n, u, v + j, sum + j);
}
#undef MULTIPLY
#undef NAME
