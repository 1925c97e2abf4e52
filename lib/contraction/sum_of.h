/* sum_of.h: the functions of sum.c for one type, REAL. */

enum { NAME(LANES) = 64 / sizeof(REAL), NAME(CHUNK) = 4096 / sizeof(REAL) };

/* sum[i] += Σ of `rows` rows of a (times b), four rows at a time */
EG_CLONES static void NAME(rows)(int64_t n, REAL *restrict sum, int rows, const REAL *const *a,
                                 int64_t sa, const REAL *const *b, int64_t sb)
{
    int r = 0;
    if (sa == 1 && (!b || sb == 0))
        for (; r + 4 <= rows; r += 4) {
            const REAL *p = a[r], *q = a[r + 1], *u = a[r + 2], *v = a[r + 3];
            if (!b) {
                for (int64_t i = 0; i < n; i++) sum[i] += (p[i] + q[i]) + (u[i] + v[i]);
                continue;
            }
            const REAL fp = *b[r], fq = *b[r + 1], fu = *b[r + 2], fv = *b[r + 3];
            for (int64_t i = 0; i < n; i++)
                sum[i] += (fp * p[i] + fq * q[i]) + (fu * u[i] + fv * v[i]);
        }
    for (; r < rows; r++) {
        const REAL *p = a[r], *q = b ? b[r] : NULL;
        if (!q)
            for (int64_t i = 0; i < n; i++) sum[i] += p[i * sa];
        else
            for (int64_t i = 0; i < n; i++) sum[i] += p[i * sa] * q[i * sb];
    }
}
EG_CLONES static void NAME(onto)(int64_t n, REAL *restrict sum, const REAL *restrict x)
{
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* Returns the dot of n elements, at most a block, where a or b may have a narrower type. */
static REAL NAME(dot_of)(const plan *p, int64_t n, const char *a, const char *b)
{
    REAL wide[2][BLOCK], sum;
    int64_t sa = p->x.sa, sb = p->x.sb, apart = 0;
    const REAL *x = sum_loaded(p, 0, a, 1, n, &apart, &sa, wide[0]),
               *y = sum_loaded(p, 1, b, 1, n, &apart, &sb, wide[1]);
    p->kernels->dots(1, n, x, 0, sa, y, 0, sb, &sum, 0, 1, false, p->far);
    return sum;
}
/* Returns the sum of the dots of rows [r, end), of less than a block each, one after the other.
 * Rows that are equally far apart are computed together. */
static REAL NAME(short_rows)(const plan *p, const char *a, const char *b, int64_t r, int64_t end)
{
    enum { TOGETHER = 16 };
    const eg_axis one = { .size = 1 }, *x = p->rest.n ? &p->rest.axis[p->rest.n - 1] : &one;
    const bool in_place = sum_reads_in_place(p, b);
    REAL sum = 0, dot[TOGETHER];
    eg_axes_walk w;
    eg__axes_walk_to(&w, &p->rest, r);
    while (r < end) {
        const char *u = sum_from(p, 0, a, w.at.a), *v = sum_from(p, 1, b, w.at.b);
        const int64_t run = eg__min64(end - r, x->size - r % x->size),
                      n = in_place ? eg__min64(TOGETHER, run) : 1;
        if (in_place)
            p->kernels->dots(n, p->x.size, u, x->sa, p->x.sa, v, x->sb, p->x.sb, dot, 1, 1, false,
                             p->far);
        else
            *dot = NAME(dot_of)(p, p->x.size, u, v);
        for (int64_t q = 0; q < n; q++, eg__axes_walk_on(&w)) sum += dot[q];
        r += n;
    }
    return sum;
}
/* Sets sum[] to block t of p->beside results. */
static void NAME(along_block)(const plan *p, const char *a, const char *b, int64_t t, REAL *sum)
{
    if (!p->per_row) {
        const int64_t r = t * p->rows;
        *sum = NAME(short_rows)(p, a, b, r, eg__min64(r + p->rows, p->rest.total));
        return;
    }
    const eg_offsets at = eg__offsets_of(&p->rest, p->turned ? t % p->rest.total : t / p->per_row);
    const int64_t i = (p->turned ? t / p->rest.total : t % p->per_row) * BLOCK,
                  n = eg__min64(BLOCK, p->x.size - i);
    const char *x = sum_from(p, 0, a, at.a + i * p->x.sa);
    if (p->beside > 1)
        p->kernels->interleaved(p->beside, n, x, sum);
    else
        *sum = NAME(dot_of)(p, n, x, sum_from(p, 1, b, at.b + i * p->x.sb));
}
/* Sets sum[] to p->beside results, over blocks [from, to) of their sums. */
static void NAME(along)(const plan *p, const char *a, const char *b, int64_t from, int64_t to,
                        REAL *sum)
{
    REAL level[LEVELS][FEW];
    const int n = p->beside;
    for (int64_t t = from; t < to; t++) {
        int l = 0;
        NAME(along_block)(p, a, b, t, sum);
        for (int64_t c = t - from; c & 1; c >>= 1, l++)
            for (int q = 0; q < n; q++) sum[q] = level[l][q] + sum[q];
        for (int q = 0; q < n; q++) level[l][q] = sum[q];
    }
    const int64_t count = to - from;
    bool first = true;
    for (int q = 0; q < n; q++) sum[q] = 0;
    for (int l = 0; l < LEVELS; l++)
        if (count >> l & 1) {
            for (int q = 0; q < n; q++) sum[q] = first ? level[l][q] : level[l][q] + sum[q];
            first = false;
        }
}

/* Sets to[] to `rows` rows of n elements, x[r], in the type of the sum: loaded into `memory`, with
 * one call if they are equally far apart. Sets *step to the step of their elements. */
static void NAME(load_rows)(const plan *p, int which, int rows, int64_t n, const char *const *x,
                            int64_t *step, REAL *memory, const REAL **to)
{
    const int width = eg__width[p->of[which]];
    const int64_t first = *step;
    bool equal = *x != NULL;
    int64_t apart = equal && rows > 1 ? (x[1] - x[0]) / width : 0;
    for (int r = 2; equal && r < rows; r++) equal = x[r] - x[r - 1] == apart * width;
    if (equal) {
        const REAL *at = sum_loaded(p, which, *x, rows, n, &apart, step, memory);
        for (int r = 0; r < rows; r++) to[r] = at + r * apart;
        return;
    }
    for (int r = 0; r < rows; r++) {
        *step = first;
        to[r] = sum_loaded(p, which, x[r], 1, n, &(int64_t){ 0 }, step, memory + r * n);
    }
}
/* sum[i] += Σ of at most ROWS rows, in place or loaded, some at a time: a multiple of the four that
 * NAME(rows) adds at once */
static void NAME(rows_of)(const plan *p, int64_t n, REAL *sum, int rows, const char *const *a,
                          const char *const *b)
{
    REAL wide[2][4 * NAME(CHUNK)];
    const REAL *pa[ROWS], *pb[ROWS];
    const int some = (int)eg__min64(ROWS, 4 * (NAME(CHUNK) / n));
    if (sum_reads_in_place(p, *b)) {
        for (int r = 0; r < rows; r++) {
            pa[r] = (const void *)a[r];
            pb[r] = (const void *)b[r];
        }
        NAME(rows)(n, sum, rows, pa, p->x.sa, *b ? pb : NULL, p->x.sb);
        return;
    }
    for (int r = 0, here; r < rows; r += here) {
        int64_t sa = p->x.sa, sb = p->x.sb;
        here = rows - r < some ? rows - r : some;
        NAME(load_rows)(p, 0, here, n, a + r, &sa, wide[0], pa);
        NAME(load_rows)(p, 1, here, n, b + r, &sb, wide[1], pb);
        NAME(rows)(n, sum, here, pa, sa, *b ? pb : NULL, sb);
    }
}
/* Computes n neighbouring results over rows [from, to) of their sums, in out. Rows along one axis
 * are equally far apart, so that the offsets of the first two blocks serve all. */
static void NAME(across)(const plan *p, int64_t n, const char *a, const char *b, int64_t from,
                         int64_t to, REAL *out)
{
    REAL level[LEVELS][NAME(CHUNK)];
    int64_t of[2][2][ROWS], count = 0;
    const eg_axis *only = p->rest.n == 1 ? p->rest.axis : NULL;
    sum_row_offsets(p, b, only ? 0 : from, (int)eg__min64(ROWS, to - from), of[0]);
    if (only && to - from > ROWS)
        sum_row_offsets(p, b, ROWS, (int)eg__min64(ROWS, to - from - ROWS), of[1]);
    for (int64_t r = from; r < to; count++) {
        const int rows = (int)eg__min64(ROWS, to - r);
        const bool odd = !only && count % 2;
        int64_t(*at)[ROWS] = of[odd], (*next)[ROWS] = of[!odd];
        const char *xa = only ? sum_from(p, 0, a, r * only->sa) : a,
                   *xb = only ? sum_from(p, 1, b, r * only->sb) : b;
        r += rows;
        /* the last block may have fewer rows, which are not prefetched */
        const bool prefetches = p->far && to - r >= ROWS;
        if (!only && r < to) sum_row_offsets(p, b, r, (int)eg__min64(ROWS, to - r), next);
        if (p->rows_in_place)
            p->kernels->block(sum_factor_of(p, b), n, rows, xa, at[0], xb, at[1], out, 1, false,
                              prefetches ? (const int64_t(*)[ROWS])next : NULL);
        else {
            const char *pa[ROWS], *pb[ROWS];
            for (int q = 0; q < rows; q++) {
                pa[q] = sum_from(p, 0, xa, at[0][q]);
                pb[q] = sum_from(p, 1, xb, at[1][q]);
            }
            for (int64_t i = 0; i < n; i++) out[i] = 0;
            NAME(rows_of)(p, n, out, rows, pa, pb);
        }
        if (rows == to - from) return; /* a single block */
        int l = 0;
        for (int64_t c = count; c & 1; c >>= 1) NAME(onto)(n, out, level[l++]);
        memcpy(level[l], out, (size_t)n * sizeof *out);
    }
    bool first = true;
    for (int l = 0; l < LEVELS; l++) {
        if (!(count >> l & 1)) continue;
        if (first)
            memcpy(out, level[l], (size_t)n * sizeof *out);
        else
            NAME(onto)(n, out, level[l]);
        first = false;
    }
}

/* Writes alpha times a sum to c, or adds it. */
static void NAME(write)(const plan *p, REAL sum, REAL *c)
{
    sum *= (REAL)p->alpha;
    *c = p->add ? *c + sum : sum;
}
/* Adds partial sums, `step` apart, in pairs, and writes the total to c. */
static void NAME(finish)(const plan *p, REAL *part, int64_t step, REAL *c)
{
    for (int64_t s = 1; s < p->parts; s *= 2)
        for (int64_t i = 0; i + s < p->parts; i += 2 * s) part[i * step] += part[(i + s) * step];
    NAME(write)(p, *part, c);
}

/* Computes one part of p->beside results (along), or of a range of neighbouring results (across):
 * in c, or in `partial` if there are several parts. */
static void NAME(unit)(const plan *p, int64_t u, const char *a, const char *b, REAL *c,
                       REAL *partial)
{
    const int64_t part = u % p->parts, o = u / p->parts;
    if (!p->across) {
        const eg_offsets at = eg__offsets_of(p->out, o * p->beside);
        const int64_t apart = p->out->n ? p->out->axis[p->out->n - 1].sc : 0;
        REAL sum[FEW];
        NAME(along)
        (p, sum_from(p, 0, a, at.a), sum_from(p, 1, b, at.b), part * PART,
         eg__min64(p->blocks, (part + 1) * PART), sum);
        for (int q = 0; q < p->beside; q++)
            if (p->parts > 1)
                partial[part * p->out->total + o * p->beside + q] = sum[q];
            else
                NAME(write)(p, sum[q], c + at.c + q * apart);
        return;
    }
    REAL sum[NAME(CHUNK)];
    const eg_offsets at = eg__offsets_of(&p->others, o / p->chunks);
    const int64_t i = o % p->chunks * p->chunk, n = eg__min64(p->chunk, p->x.size - i);
    NAME(across)
    (p, n, sum_from(p, 0, a, at.a + i * p->x.sa), sum_from(p, 1, b, at.b + i * p->x.sb),
     part * PART_ROWS, eg__min64(p->rest.total, (part + 1) * PART_ROWS), sum);
    if (p->parts > 1) {
        memcpy(partial + part * p->out->total + o / p->chunks * p->x.size + i, sum,
               (size_t)n * sizeof *sum);
        return;
    }
    REAL *to = c + at.c + i * p->x.sc;
    for (int64_t q = 0; q < n; q++) NAME(write)(p, sum[q], to + q * p->x.sc);
}

/* Computes units [from, to) of a sum across that is one block of rows in place. */
static void NAME(blocks)(const plan *p, int64_t from, int64_t to, const char *a, const char *b,
                         REAL *c)
{
    const sum_factor factor = sum_factor_of(p, b);
    eg_axes_walk w;
    eg__axes_walk_to(&w, &p->others, from / p->chunks);
    for (int64_t u = from, chunk = from % p->chunks; u < to; u++) {
        const int64_t i = chunk * p->chunk, n = eg__min64(p->chunk, p->x.size - i);
        p->kernels->block(factor, n, (int)p->rest.total, sum_from(p, 0, a, w.at.a + i), p->at[0],
                          sum_from(p, 1, b, w.at.b + i * p->x.sb), p->at[1], c + w.at.c + i,
                          p->alpha, p->add, NULL);
        if (++chunk < p->chunks) continue;
        chunk = 0;
        eg__axes_walk_on(&w);
    }
}

/* Computes n results along axis x of the result, each the sum of a single block (along), as
 * NAME(along) adds it. Rows that are not in place are loaded as many at a time as fit a block. */
static void NAME(neighbours)(const plan *p, const eg_axis *x, int64_t n, const char *a,
                             const char *b, REAL *c)
{
    REAL sum[NAME(LANES) * 4], wide[2][BLOCK];
    if (p->beside > 1) {
        p->kernels->interleaved(p->beside, p->x.size, a, sum);
        for (int q = 0; q < p->beside; q++) NAME(write)(p, sum[q], c + q * x->sc);
        return;
    }
    const bool only = p->rest.total == 1, loads = !sum_reads_in_place(p, b);
    int64_t most = only ? n : NAME(LANES) * 4;
    eg_axes_walk w;
    if (loads) most = eg__min64(most, BLOCK / p->x.size);
    for (int64_t i = 0, here; i < n; i += here) {
        REAL *to = c + i * x->sc;
        const char *pa = sum_from(p, 0, a, i * x->sa), *pb = sum_from(p, 1, b, i * x->sb);
        here = eg__min64(n - i, most);
        eg__axes_walk_to(&w, &p->rest, 0);
        for (int64_t r = 0; r < p->rest.total; r++, eg__axes_walk_on(&w)) {
            int64_t ra = x->sa, rb = x->sb, sa = p->x.sa, sb = p->x.sb;
            const void *u = sum_from(p, 0, pa, w.at.a), *v = sum_from(p, 1, pb, w.at.b);
            u = sum_loaded(p, 0, u, here, p->x.size, &ra, &sa, wide[0]);
            v = sum_loaded(p, 1, v, here, p->x.size, &rb, &sb, wide[1]);
            p->kernels->dots(here, p->x.size, u, ra, sa, v, rb, sb, only ? to : sum,
                             only ? x->sc : 1, only ? p->alpha : 1, only ? p->add : r > 0, p->far);
        }
        for (int64_t q = 0; !only && q < here; q++) NAME(write)(p, sum[q], to + q * x->sc);
    }
}
typedef struct NAME(job) {
    const plan *p;
    int64_t units, pieces;
    const char *a, *b;
    REAL *c, *partial;
} NAME(job);
/* Computes one piece of the units. */
static void NAME(piece)(void *user, int64_t k, int thread)
{
    (void)thread;
    const NAME(job) *j = user;
    const eg_axes *out = j->p->out;
    const int64_t end = j->units * (k + 1) / j->pieces;
    if (!j->p->across && !j->p->per_row && j->p->blocks == 1) {
        const eg_axis one = { .size = 1 }, *x = out->n ? &out->axis[out->n - 1] : &one;
        const int64_t beside = j->p->beside, to = end * beside;
        for (int64_t n, u = j->units * k / j->pieces * beside; u < to; u += n) {
            const eg_offsets at = eg__offsets_of(out, u);
            n = eg__min64(to - u, x->size - u % x->size);
            NAME(neighbours)
            (j->p, x, n, sum_from(j->p, 0, j->a, at.a), sum_from(j->p, 1, j->b, at.b), j->c + at.c);
        }
        return;
    }
    if (j->p->in_place) {
        NAME(blocks)(j->p, j->units * k / j->pieces, end, j->a, j->b, j->c);
        return;
    }
    for (int64_t u = j->units * k / j->pieces; u < end; u++)
        NAME(unit)(j->p, u, j->a, j->b, j->c, j->partial);
}

/* Divides the units among threads and adds the parts. False after an error. */
static bool NAME(run)(eg_ctx *cx, plan *p, const char *a, const char *b, REAL *c)
{
    REAL *partial = NULL;
    const int team = eg__team(cx, p->out->total * p->k_total, 1 << 18);
    p->chunk = NAME(CHUNK);
    if (team > 1 && p->across) { /* columns are independent: a range for each thread, of four lines
                                  * at least */
        const int64_t want = team / (p->parts * p->others.total), lines = p->x.size / NAME(LANES);
        if (want > 1 && lines >= 4 * want)
            p->chunk = eg__min64(p->chunk, (lines + want - 1) / want * NAME(LANES));
    }
    p->chunks = p->across ? (p->x.size + p->chunk - 1) / p->chunk : 0;
    const int64_t units =
        p->parts * (p->across ? p->others.total * p->chunks : p->out->total / p->beside);
    if (p->parts > 1 &&
        !(partial = eg__scratch(cx, EG_SCRATCH_PARTS,
                                (size_t)(p->parts * p->out->total) * sizeof *partial)))
        return false;
    const int64_t pieces = team > 1 ? eg__min64(units, 8 * team) : 1;
    eg__parallel(cx, team, pieces, NAME(piece), &(NAME(job)){ p, units, pieces, a, b, c, partial });
    if (p->parts > 1)
        for (int64_t o = 0; o < p->out->total; o++) {
            const int64_t at =
                p->across ? eg__offsets_of(&p->others, o / p->x.size).c + o % p->x.size * p->x.sc
                          : eg__offsets_of(p->out, o).c;
            NAME(finish)(p, partial + o, p->out->total, c + at);
        }
    return true;
}
#undef REAL
#undef NAME
