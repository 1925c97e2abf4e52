/* pack_of.h: the functions of pack.c for one width of elements: WORD is an unsigned integer of that
 * width. */

/* dst[p·w + i] = src[p·ks + i] for i < W, where W is a constant */
#define COPIES(W)                                                                                \
    case W:                                                                                      \
        for (int64_t p = 0; p < n; p++, src += ks, dst += W) memcpy(dst, src, W * sizeof(WORD)); \
        return;
static void NAME(copy)(int w, int64_t n, const WORD *src, int64_t ks, WORD *dst)
{
    switch (w) {
        COPIES(4)
        COPIES(6)
        COPIES(8)
        COPIES(12)
        COPIES(14)
        COPIES(16)
        COPIES(24)
        COPIES(32)
    default:
        for (int64_t p = 0; p < n; p++, src += ks, dst += w)
            memcpy(dst, src, (size_t)w * sizeof(WORD));
    }
}

/* dst[p·ds + i] = src[off[i] + p]: rows become columns, for a range of rows at constant distance at
 * a time */
static void NAME(transpose)(int64_t rows, const int64_t *off, int64_t n, const WORD *src, WORD *dst,
                            int64_t ds)
{
    for (int64_t i = 0, next; i < rows; i = next) {
        const int64_t step = i + 1 < rows ? off[i + 1] - off[i] : 0;
        for (next = i + 1; next < rows && off[next] - off[next - 1] == step;) next++;
        if (n < 32 / (int64_t)sizeof(WORD))
            eg__transpose_narrow(sizeof(WORD), next - i, n, src + off[i], step, dst + i, ds);
        else
            eg__transpose(sizeof(WORD), next - i, n, src + off[i], step, dst + i, ds, false);
    }
}

/* dst[p·w + i] = src[off[i] + 2p] */
static void NAME(every_second)(int w, int64_t rows, const int64_t *off, int64_t n, const WORD *src,
                               WORD *dst)
{
    enum { ROWS = 16, COLUMNS = 64 };
    _Alignas(64) WORD near[ROWS * COLUMNS];
    for (int64_t p = 0; p < n; p += COLUMNS)
        for (int64_t i = 0; i < rows; i += ROWS) {
            const int64_t nx = eg__min64(rows - i, ROWS), ny = eg__min64(n - p, COLUMNS);
            const int64_t step = nx > 1 ? off[i + 1] - off[i] : 0;
            int64_t same = 1;
            while (same < nx && off[i + same] - off[i + same - 1] == step) same++;
            if (same == nx)
                eg__take_every_second(sizeof(WORD), ny, nx, src + off[i] + 2 * p, step, near,
                                      COLUMNS);
            else
                for (int64_t r = 0; r < nx; r++)
                    eg__take_every_second(sizeof(WORD), ny, 1, src + off[i + r] + 2 * p, 0,
                                          near + r * COLUMNS, 0);
            eg__transpose(sizeof(WORD), nx, ny, near, COLUMNS, dst + p * w + i, w, false);
        }
}

/* dst[p·w + i] = src[off[i] + p·ks] for any offsets. */
static void NAME(gather)(int w, int64_t rows, const int64_t *off, int64_t n, const WORD *src,
                         int64_t ks, WORD *dst)
{
    int64_t i = 0;
    while (i < rows) { /* runs of consecutive rows, as from two axes that cannot be fused */
        int64_t stretch = 1;
        while (i + stretch < rows && off[i + stretch] == off[i + stretch - 1] + 1) stretch++;
        const WORD *from = src + off[i];
        WORD *to = dst + i;
        if (stretch >= 4) {
            for (int64_t p = 0; p < n; p++, from += ks, to += w)
                for (int64_t q = 0; q < stretch; q++) to[q] = from[q];
            i += stretch;
            continue;
        }
        /* single elements: all rows up to the next run, with k outermost, so that writes are
         * consecutive */
        int64_t to_row = i + 1;
        while (to_row < rows && (to_row + 3 >= rows || off[to_row + 3] != off[to_row] + 3))
            to_row++;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = i; q < to_row; q++) dst[p * w + q] = src[off[q] + p * ks];
        i = to_row;
    }
}

/* Chooses for every run of k how it is packed. */
static void NAME(panel)(int w, int64_t rows, const int64_t *off, int64_t rs, int runs,
                        const eg_run *run, const WORD *src, WORD *dst, int64_t k)
{
    if (rows < w) memset(dst, 0, (size_t)(k * w) * sizeof *dst);
    for (; runs > 0; runs--, run++) {
        const WORD *from = src + run->at;
        int beside = 1; /* the other axis of k is contiguous: number of runs that begin at
                         * consecutive elements */
        while (beside < runs && run[beside].at == run->at + beside && run[beside].n == run->n &&
               run[beside].stride == run->stride)
            beside++;
        if (beside >= 4 && rs != 1 && run->stride != 1) {
            for (int64_t p = 0; p < run->n; p++)
                NAME(transpose)(rows, off, beside, from + p * run->stride, dst + p * w, run->n * w);
            dst += beside * run->n * w;
            runs -= beside - 1;
            run += beside - 1;
            continue;
        }
        if (rs == 1 && rows == w)
            NAME(copy)(w, run->n, from + off[0], run->stride, dst);
        else if (rs == 2)
            eg__take_every_second(sizeof(WORD), rows, run->n, from + off[0], run->stride, dst, w);
        else if (run->stride == 1 && run->n > 1)
            NAME(transpose)(rows, off, run->n, from, dst, w);
        else if (run->stride == 2 && run->n > 1)
            NAME(every_second)(w, rows, off, run->n, from, dst);
        else
            NAME(gather)(w, rows, off, run->n, from, run->stride, dst);
        dst += run->n * w;
    }
}
#undef WORD
#undef NAME
