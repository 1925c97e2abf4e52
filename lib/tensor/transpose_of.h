/* transpose_of.h: the loops of transpose.c for elements of one width: WORD is an unsigned integer
 * of that width, SIDE the number of them in 16 bytes; NAME(x) is x with the name of the width, and
 * its square exists. With AVX-512: WIDE is the number of them in a vector, MASK a type of as many
 * bits, EPI(f) the name of an instruction, and EVEN the indices of every second element of two
 * vectors. */

/* dst[y·ds + x] = src[x·ss + y] */
static void NAME(transpose)(int64_t nx, int64_t ny, const void *from, int64_t ss, void *to,
                            int64_t ds, bool stream)
{
    const WORD *src = from;
    WORD *dst = to;
    const int64_t wx = nx - nx % SIDE, wy = ny - ny % SIDE;
    (void)stream;
    for (int64_t x = 0; x < wx; x += SIDE)
        for (int64_t y = 0; y < wy; y += SIDE)
            NAME(square)(src + x * ss + y, ss, dst + y * ds + x, ds);
    for (int64_t y = 0; y < ny; y++)
        for (int64_t x = y < wy ? wx : 0; x < nx; x++) dst[y * ds + x] = src[x * ss + y];
}
/* dst[r·ds + i] = src[r·ss + 2i] */
static void NAME(every_second)(int64_t n, int64_t rows, const void *from, int64_t ss, void *to,
                               int64_t ds)
{
    for (int64_t r = 0; r < rows; r++) {
        const WORD *src = (const WORD *)from + r * ss;
        WORD *dst = (WORD *)to + r * ds;
        for (int64_t i = 0; i < n; i++) dst[i] = src[2 * i];
    }
}

#if defined(SQUARES_512)
/* Transposes a square of WIDE × WIDE, a cache line wide. Lines at distances of a power of two share
 * few sets of a cache, and could be lost before their second half is read; then (`apart`) each is
 * read at once, into a copy. stream: with non-temporal stores. */
AVX2 EG_INLINE void NAME(line_square)(const WORD *src, int64_t ss, WORD *dst, int64_t ds,
                                      bool stream, bool apart)
{
    enum { HALF = WIDE / 2 };
    _Alignas(32) WORD copy[WIDE][WIDE];
    __m256i y[SIDE];
    if (apart) {
        UNROLL for (int r = 0; r < WIDE; r++, src += ss)
        {
            const __m256i low = _mm256_loadu_si256((const void *)src),
                          high = _mm256_loadu_si256((const void *)(src + HALF));
            _mm256_store_si256((void *)copy[r], low);
            _mm256_store_si256((void *)(copy[r] + HALF), high);
        }
        src = copy[0], ss = WIDE;
    }
    for (int k = 0; k < WIDE / SIDE; k++, src += SIDE)
        UNROLL for (int half = 0; half < WIDE; half += HALF)
        {
            NAME(columns)(src + half * ss, ss, y);
            WORD *to = dst + k * SIDE * ds + half;
            UNROLL for (int r = 0; r < SIDE; r++, to += ds)
            {
                if (stream)
                    _mm256_stream_si256((void *)to, y[r]);
                else
                    _mm256_storeu_si256((void *)to, y[r]);
            }
        }
}
/* Squares proceed as in wide_transpose below. */
AVX2 static void NAME(line_transpose)(int64_t nx, int64_t ny, const void *from, int64_t ss,
                                      void *to, int64_t ds, bool stream)
{
    const WORD *src = from;
    WORD *dst = to;
    const int64_t wx = nx - nx % WIDE, wy = ny - ny % WIDE;
    stream = stream && (uintptr_t)to % 32 == 0 && ds % (WIDE / 2) == 0;
    const bool apart = ss * (int64_t)sizeof(WORD) % 1024 == 0;
    if (stream)
        for (int64_t x = 0; x < wx; x += WIDE)
            for (int64_t y = 0; y < wy; y += WIDE)
                NAME(line_square)(src + x * ss + y, ss, dst + y * ds + x, ds, true, apart);
    else if (ds < ss)
        for (int64_t x = 0; x < wx; x += WIDE)
            for (int64_t y = 0; y < wy; y += WIDE)
                NAME(line_square)(src + x * ss + y, ss, dst + y * ds + x, ds, false, apart);
    else
        for (int64_t y = 0; y < wy; y += WIDE)
            for (int64_t x = 0; x < wx; x += WIDE)
                NAME(line_square)(src + x * ss + y, ss, dst + y * ds + x, ds, false, apart);
    NAME(transpose)(nx - wx, wy, src + wx * ss, ss, dst + wx, ds, false);
    NAME(transpose)(nx, ny - wy, src + wy, ss, dst + wy * ds, ds, false);
    if (stream) _mm_sfence();
}
/* Transposes a square of WIDE × WIDE, or nx × ny elements of it: missing rows repeat the last one
 * and are not stored. stream: with non-temporal stores. */
AVX512 EG_INLINE void NAME(wide_square)(int nx, int ny, const WORD *src, int64_t ss, WORD *dst,
                                        int64_t ds, bool stream)
{
    __m512i x[WIDE], y[WIDE];
    const __mmask16 mx = (__mmask16)((1 << nx) - 1), my = (__mmask16)((1 << ny) - 1);
    const WORD *row = src;
    UNROLL for (int r = 0; r < WIDE; r++)
    {
        x[r] = ny == WIDE ? _mm512_loadu_si512(row) : EPI(_mm512_maskz_loadu)((MASK)my, row);
        row += r + 1 < nx ? ss : 0;
    }
    NAME(lanes)(x, y);
    UNROLL for (int r = 0; r < WIDE; r++)
    {
        if (r >= ny) break;
        if (stream)
            _mm512_stream_si512((void *)(dst + r * ds), y[r]);
        else if (nx == WIDE)
            _mm512_storeu_si512(dst + r * ds, y[r]);
        else
            EPI(_mm512_mask_storeu)(dst + r * ds, (MASK)mx, y[r]);
    }
}
/* Squares proceed along dst if its rows are far apart: a cache line is fetched before it is
 * written, and sooner if it follows its neighbour; lines at distances of a power of two share few
 * sets of a cache. Squares proceed along src if the block of dst is denser or is written with
 * non-temporal stores, which fetch nothing. */
AVX512 static void NAME(wide_transpose)(int64_t nx, int64_t ny, const void *from, int64_t ss,
                                        void *to, int64_t ds, bool stream)
{
    const WORD *src = from;
    WORD *dst = to;
    const int64_t wx = nx - nx % WIDE, wy = ny - ny % WIDE;
    stream = stream && (uintptr_t)to % 64 == 0 && ds % WIDE == 0;
    if (stream)
        for (int64_t x = 0; x < wx; x += WIDE)
            for (int64_t y = 0; y < wy; y += WIDE)
                NAME(wide_square)(WIDE, WIDE, src + x * ss + y, ss, dst + y * ds + x, ds, true);
    else if (ds < ss)
        for (int64_t x = 0; x < wx; x += WIDE)
            for (int64_t y = 0; y < wy; y += WIDE)
                NAME(wide_square)(WIDE, WIDE, src + x * ss + y, ss, dst + y * ds + x, ds, false);
    else
        for (int64_t y = 0; y < wy; y += WIDE)
            for (int64_t x = 0; x < wx; x += WIDE)
                NAME(wide_square)(WIDE, WIDE, src + x * ss + y, ss, dst + y * ds + x, ds, false);
    const int px = (int)(nx - wx), py = (int)(ny - wy);
    if (px)
        for (int64_t y = 0; y < wy; y += WIDE)
            NAME(wide_square)(px, WIDE, src + wx * ss + y, ss, dst + y * ds + wx, ds, false);
    if (py)
        for (int64_t x = 0; x < wx; x += WIDE)
            NAME(wide_square)(WIDE, py, src + x * ss + wy, ss, dst + wy * ds + x, ds, false);
    if (px && py) NAME(wide_square)(px, py, src + wx * ss + wy, ss, dst + wy * ds + wx, ds, false);
    if (stream) _mm_sfence();
}
/* Two vectors at a time; the last ones with a mask, so that nothing past the last element is
 * read */
AVX512 static void NAME(wide_every_second)(int64_t n, int64_t rows, const void *from, int64_t ss,
                                           void *to, int64_t ds)
{
    const __m512i even = EVEN;
    for (int64_t r = 0; r < rows; r++) {
        const WORD *src = (const WORD *)from + r * ss;
        WORD *dst = (WORD *)to + r * ds;
        for (int64_t i = 0; i < n; i += WIDE, src += 2 * WIDE, dst += WIDE) {
            const uint64_t have = n - i < WIDE ? (uint64_t)(n - i) : WIDE,
                           in = ((uint64_t)1 << (2 * have - 1)) - 1;
            const __m512i x = EPI(_mm512_maskz_loadu)((MASK)in, src);
            const __m512i y = EPI(_mm512_maskz_loadu)((MASK)(in >> WIDE), src + WIDE);
            EPI(_mm512_mask_storeu)
            (dst, (MASK)((1u << have) - 1), EPI(_mm512_permutex2var)(x, even, y));
        }
    }
}
#endif
#undef WORD
#undef SIDE
#undef NAME
#undef WIDE
#undef MASK
#undef EPI
#undef EVEN
