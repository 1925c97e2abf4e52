/* sum_of.h: the functions of sum.c for one type: REAL; WIDE, a vector of 64 bytes; and FOUR. */

enum { NAME(LANES) = 64 / sizeof(REAL), NAME(CHUNK) = 4096 / sizeof(REAL) };

/* sum[r] = Σ a[i] b[i] (Σ a[i] if b is NULL) of R rows, at most a block long: four wide sums, then
 * halves added to halves. R is a constant where this is inlined, and the order of a row's sum does
 * not depend on it. */
EG_INLINE void NAME(dots_in)(const int R, int64_t n, const REAL *const *a, int64_t sa,
                             const REAL *const *b, int64_t sb, REAL *sum)
{
    enum { L = NAME(LANES) };
    int64_t i = 0;
    REAL wide[4];
    if (sa == 1 && (!b || sb == 1) && n >= 4 * L) {
        WIDE s[4][4];
        for (int r = 0; r < R; r++)
            for (int q = 0; q < 4; q++) s[r][q] = (WIDE){ 0 };
        for (; i + 4 * L <= n; i += 4 * L)
            for (int q = 0; q < 4; q++)
                for (int r = 0; r < R; r++) {
                    WIDE x, y;
                    memcpy(&x, a[r] + i + q * L, 64);
                    if (b) {
                        memcpy(&y, b[r] + i + q * L, 64);
                        x *= y;
                    }
                    s[r][q] += x;
                }
        for (int r = 0; r < R; r++) {
            WIDE x = (s[r][0] + s[r][1]) + (s[r][2] + s[r][3]);
            HALVES(x)
            wide[r] = x[0];
        }
    } else
        for (int r = 0; r < R; r++) wide[r] = 0;
    for (int r = 0; r < R; r++) {
        int64_t j = i;
        FOUR tail = { 0 };
        if (sa == 1 && (!b || sb == 1))
            for (; j + 4 <= n; j += 4) {
                FOUR x, y;
                memcpy(&x, a[r] + j, sizeof x);
                if (b) {
                    memcpy(&y, b[r] + j, sizeof y);
                    x *= y;
                }
                tail += x;
            }
        else
            for (; j + 4 <= n; j += 4)
                for (int q = 0; q < 4; q++)
                    tail[q] += b ? a[r][(j + q) * sa] * b[r][(j + q) * sb] : a[r][(j + q) * sa];
        for (; j < n; j++) tail[0] += b ? a[r][j * sa] * b[r][j * sb] : a[r][j * sa];
        sum[r] = wide[r] + ((tail[0] + tail[1]) + (tail[2] + tail[3]));
    }
}
EG_CLONES static REAL NAME(dot)(int64_t n, const REAL *a, int64_t sa, const REAL *b, int64_t sb)
{
    REAL sum;
    NAME(dots_in)(1, n, &a, sa, b ? &b : NULL, sb, &sum);
    return sum;
}
/* c[r·rc] (+)= alpha Σ a[r·ra + i·sa] b[r·rb + i·sb] */
EG_CLONES static void NAME(dots)(int64_t rows, int64_t n, const REAL *a, int64_t ra, int64_t sa,
                                 const REAL *b, int64_t rb, int64_t sb, REAL *c, int64_t rc,
                                 REAL alpha, bool add)
{
    REAL sum[4];
    for (int64_t r = 0; r < rows; r += 4) {
        const REAL *pa[4], *pb[4];
        const int64_t here = eg__min64(4, rows - r);
        for (int64_t q = 0; q < 4; q++) {
            pa[q] = a + (r + q) * ra;
            pb[q] = b ? b + (r + q) * rb : NULL;
        }
        if (here == 4 && (b || n < 4 * NAME(LANES)))
            NAME(dots_in)(4, n, pa, sa, b ? pb : NULL, sb, sum);
        else
            for (int64_t q = 0; q < here; q++)
                NAME(dots_in)(1, n, pa + q, sa, b ? pb + q : NULL, sb, sum + q);
        for (int64_t q = 0; q < here; q++) {
            const REAL term = alpha * sum[q];
            c[(r + q) * rc] = add ? c[(r + q) * rc] + term : term;
        }
    }
}

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
/* c[i] (+)= alpha Σ of at most ROWS rows of a, `step` apart, of n neighbours: as NAME(rows) adds
 * them, in registers */
EG_CLONES static void NAME(block)(int64_t n, int rows, const REAL *a, int64_t step, REAL *c,
                                  REAL alpha, bool add)
{
    enum { L = NAME(LANES) };
    for (int64_t i = 0; i < n; i += L) {
        WIDE sum = { 0 }, x[4], was = { 0 };
        const bool whole = i + L <= n;
        const size_t bytes = whole ? sizeof sum : (size_t)(n - i) * sizeof *a;
        const REAL *from = a + i;
        int r = 0;
        if (whole) {
            for (; r + 4 <= rows; r += 4, from += 4 * step) {
                for (int q = 0; q < 4; q++) memcpy(&x[q], from + q * step, sizeof *x);
                sum += (x[0] + x[1]) + (x[2] + x[3]);
            }
            for (; r < rows; r++, from += step) {
                memcpy(&x[0], from, sizeof *x);
                sum += x[0];
            }
        } else
            for (int64_t k = 0; k < n - i; k++) {
                const REAL *p = from + k;
                REAL one = 0;
                for (r = 0; r + 4 <= rows; r += 4, p += 4 * step)
                    one += (p[0] + p[step]) + (p[2 * step] + p[3 * step]);
                for (; r < rows; r++, p += step) one += *p;
                sum[k] = one;
            }
        sum *= alpha;
        if (add) memcpy(&was, c + i, bytes);
        if (add) sum += was;
        memcpy(c + i, &sum, bytes);
    }
}
EG_CLONES static void NAME(onto)(int64_t n, REAL *restrict sum, const REAL *restrict x)
{
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* Returns the dot of n elements, at most a block, where a or b may have a narrower type. */
static REAL NAME(dot_of)(const plan *p, int64_t n, const char *a, const char *b)
{
    REAL wide[2][BLOCK];
    int64_t sa = p->x.sa, sb = p->x.sb;
    const REAL *x = sum_loaded(p, 0, a, n, &sa, wide[0]), *y = sum_loaded(p, 1, b, n, &sb, wide[1]);
    return NAME(dot)(n, x, sa, y, sb);
}
/* Returns one result, over blocks [from, to) of its sum. */
static REAL NAME(along)(const plan *p, const char *a, const char *b, int64_t from, int64_t to)
{
    REAL level[LEVELS];
    for (int64_t t = from; t < to; t++) {
        REAL sum = 0;
        if (p->per_row) {
            const eg_offsets at =
                eg__offsets_of(&p->rest, p->turned ? t % p->rest.total : t / p->per_row);
            const int64_t i = (p->turned ? t / p->rest.total : t % p->per_row) * BLOCK;
            sum = NAME(dot_of)(p, eg__min64(BLOCK, p->x.size - i),
                               sum_from(p, 0, a, at.a + i * p->x.sa),
                               sum_from(p, 1, b, at.b + i * p->x.sb));
        } else {
            eg_walk w;
            int64_t r = t * p->rows, end = eg__min64(r + p->rows, p->rest.total);
            for (eg__walk_to(&w, &p->rest, r); r < end; r++, eg__walk_on(&w))
                sum += NAME(dot_of)(p, p->x.size, sum_from(p, 0, a, w.at.a),
                                    sum_from(p, 1, b, w.at.b));
        }
        int l = 0;
        for (int64_t c = t - from; c & 1; c >>= 1) sum = level[l++] + sum;
        level[l] = sum;
    }
    const int64_t count = to - from;
    REAL sum = 0;
    bool first = true;
    for (int l = 0; l < LEVELS; l++)
        if (count >> l & 1) {
            sum = first ? level[l] : level[l] + sum;
            first = false;
        }
    return sum;
}

/* sum[i] += Σ of at most ROWS rows, in place or loaded four at a time, as many as NAME(rows) adds
 * at once */
static void NAME(rows_of)(const plan *p, int64_t n, REAL *sum, int rows, const char *const *a,
                          const char *const *b)
{
    REAL wide[2][4][NAME(CHUNK)];
    const REAL *pa[ROWS], *pb[ROWS];
    if (sum_in_place(p, 0, p->x.sa) && (!*b || sum_in_place(p, 1, p->x.sb))) {
        for (int r = 0; r < rows; r++) {
            pa[r] = (const void *)a[r];
            pb[r] = (const void *)b[r];
        }
        NAME(rows)(n, sum, rows, pa, p->x.sa, *b ? pb : NULL, p->x.sb);
        return;
    }
    for (int r = 0, here; r < rows; r += here) {
        int64_t sa = p->x.sa, sb = p->x.sb;
        here = rows - r < 4 ? rows - r : 4;
        for (int q = 0; q < here; q++) {
            sa = p->x.sa, sb = p->x.sb;
            pa[q] = sum_loaded(p, 0, a[r + q], n, &sa, wide[0][q]);
            pb[q] = sum_loaded(p, 1, b[r + q], n, &sb, wide[1][q]);
        }
        NAME(rows)(n, sum, here, pa, sa, *b ? pb : NULL, sb);
    }
}
/* Computes n neighbouring results over rows [from, to) of their sums, in out. */
static void NAME(across)(const plan *p, int64_t n, const char *a, const char *b, int64_t from,
                         int64_t to, REAL *out)
{
    REAL level[LEVELS][NAME(CHUNK)];
    const char *pa[ROWS], *pb[ROWS];
    int64_t count = 0;
    /* the usual case, without a traversal */
    const eg_axis *only = p->rest.n == 1 ? p->rest.axis : NULL;
    eg_walk w;
    if (!only) eg__walk_to(&w, &p->rest, from);
    for (int64_t r = from; r < to; count++) {
        int rows = (int)eg__min64(ROWS, to - r);
        for (int q = 0; only && q < rows; q++) {
            pa[q] = sum_from(p, 0, a, (r + q) * only->sa);
            pb[q] = sum_from(p, 1, b, (r + q) * only->sb);
        }
        for (int q = 0; !only && q < rows; q++, eg__walk_on(&w)) {
            pa[q] = sum_from(p, 0, a, w.at.a);
            pb[q] = sum_from(p, 1, b, w.at.b);
        }
        r += rows;
        for (int64_t i = 0; i < n; i++) out[i] = 0;
        NAME(rows_of)(p, n, out, rows, pa, pb);
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

/* Computes one part of one result (along), or of a range of neighbouring results (across): in c, or
 * in `partial` if there are several parts. */
static void NAME(unit)(const plan *p, int64_t u, const char *a, const char *b, REAL *c,
                       REAL *partial)
{
    const int64_t part = u % p->parts, o = u / p->parts;
    if (!p->across) {
        const eg_offsets at = eg__offsets_of(p->out, o);
        const REAL sum = NAME(along)(p, sum_from(p, 0, a, at.a), sum_from(p, 1, b, at.b),
                                     part * PART, eg__min64(p->blocks, (part + 1) * PART));
        if (p->parts > 1)
            partial[part * p->out->total + o] = sum;
        else
            NAME(write)(p, sum, c + at.c);
        return;
    }
    REAL sum[NAME(CHUNK)];
    const eg_offsets at = eg__offsets_of(&p->others, o / p->chunks);
    const int64_t i = o % p->chunks * p->chunk, n = eg__min64(p->chunk, p->x.size - i);
    if (p->in_place) {
        NAME(block)
        (n, (int)p->rest.total, (const void *)sum_from(p, 0, a, at.a + i),
         p->rest.n ? p->rest.axis->sa : 0, c + at.c + i, (REAL)p->alpha, p->add);
        return;
    }
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
    const eg_axis *along = &j->p->x;
    /* rows of one block: a range of them at once */
    if (!j->p->across && j->p->k_total == along->size && j->p->blocks == 1 &&
        sum_in_place(j->p, 0, along->sa) && (!j->b || sum_in_place(j->p, 1, along->sb))) {
        const eg_axis one = { .size = 1 }, *x = out->n ? &out->axis[out->n - 1] : &one;
        for (int64_t n, u = j->units * k / j->pieces, end = j->units * (k + 1) / j->pieces; u < end;
             u += n) {
            const eg_offsets at = eg__offsets_of(out, u);
            n = eg__min64(end - u, x->size - u % x->size);
            NAME(dots)
            (n, j->p->x.size, (const void *)sum_from(j->p, 0, j->a, at.a), x->sa, j->p->x.sa,
             (const void *)sum_from(j->p, 1, j->b, at.b), x->sb, j->p->x.sb, j->c + at.c, x->sc,
             (REAL)j->p->alpha, j->p->add);
        }
        return;
    }
    for (int64_t u = j->units * k / j->pieces; u < j->units * (k + 1) / j->pieces; u++)
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
    const int64_t units = p->parts * (p->across ? p->others.total * p->chunks : p->out->total);
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
#undef WIDE
#undef FOUR
#undef HALVES
