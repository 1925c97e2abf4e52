/* prod_of.h: the tree of products of prod.c, and its gradient, for one type T. NAME(x) is x with
 * the name of this type. Element k of the level after v, of n elements, is v[k] v[k + n / 2]; the
 * last element of a level of odd length is a factor of `odd`. Up to PROD_SIDE rows are taken
 * together: each alone until at most PROD_NARROW elements are left, then one in each lane. */

/* to[y to_apart + x] = from[x apart + y] for x < nx, y < ny */
EG_INLINE void NAME(prod_transpose)(int64_t nx, int64_t ny, const T *from, int64_t apart, T *to,
                                    int64_t to_apart)
{
    if (sizeof(T) <= 8)
        eg__transpose(sizeof(T), nx, ny, from, apart, to, to_apart, false);
    else
        for (int64_t y = 0; y < ny; y++)
            for (int64_t x = 0; x < nx; x++) to[y * to_apart + x] = from[x * apart + y];
}
/* next[k] = v[k] v[k + half] for k < half */
EG_INLINE void NAME(prod_level)(int64_t half, const T *v, T *next)
{
    EG_EVERY_LANE
    for (int64_t k = 0; k < half; k++) next[k] = v[k] * v[k + half];
}
/* Element v of the second level, of n elements two levels before it */
EG_INLINE T NAME(prod_of_four)(int64_t n, const T *v)
{
    const int64_t half = n / 2, quarter = n / 4;
    const T a = v[0] * v[half], b = v[quarter] * v[quarter + half];
    return a * b;
}
/* Two levels at once */
EG_INLINE void NAME(prod_two_levels)(int64_t n, const T *v, T *next)
{
    EG_EVERY_LANE
    for (int64_t k = 0; k < n / 4; k++) next[k] = NAME(prod_of_four)(n, v + k);
}
/* Three levels at once of 8 elements v[i step] */
EG_INLINE T NAME(prod_of_eight)(const T *v, int64_t step)
{
    const T a = v[0] * v[4 * step], b = v[2 * step] * v[6 * step], c = v[step] * v[5 * step],
            d = v[3 * step] * v[7 * step];
    return (a * b) * (c * d);
}
EG_INLINE void NAME(prod_three_levels)(int64_t n, const T *v, T *next)
{
    const int64_t eighth = n / 8;
    if (n % 8 == 0) {
        EG_EVERY_LANE
        for (int64_t k = 0; k < eighth; k++) next[k] = NAME(prod_of_eight)(v + k, eighth);
        return;
    }
    EG_EVERY_LANE
    for (int64_t k = 0; k < eighth; k++) {
        const T a = NAME(prod_of_four)(n, v + k), b = NAME(prod_of_four)(n, v + k + eighth);
        next[k] = a * b;
    }
}
/* The trees of some rows of n elements: level j has n >> j of them. */
typedef struct NAME(prod_trees) {
    int64_t n;
    int rows, odds; /* odds: number of levels of odd length */
    /* levels before `side`; if they are kept, n elements for each row */
    T row[PROD_MOST(sizeof(T))];
    T side[2 * PROD_NARROW * PROD_SIDE]; /* level `side` and those after it, of all rows */
    T last[PROD_LEVELS][PROD_SIDE];      /* the last elements of levels of odd length */
    T odd[PROD_LEVELS][PROD_SIDE];       /* their products */
} NAME(prod_trees);
/* Computes the levels of row r, x, of more than `narrow` elements. Returns the one after them.
 * If `keep`, each remains in memory; else the levels replace each other, and the returned one is
 * that of all rows one after the other. */
EG_INLINE const T *NAME(prod_row)(NAME(prod_trees) * t, const bool keep, int64_t narrow, int r,
                                  const T *x)
{
    T *next = t->row + (keep ? r * t->n : PROD_SIDE * PROD_NARROW);
    t->odds = 0;
    for (int64_t n = t->n; n > narrow; n /= 2) {
        const int64_t half = n / 2, quarter = n / 4, all = n;
        const bool whole = sizeof(T) <= 8 || n % 4 == 0, two = !keep && whole && half > narrow,
                   three = two && (sizeof(T) <= 8 || n % 8 == 0) && quarter > narrow;
        if (n % 2) t->last[t->odds++][r] = x[n - 1];
        if (two && half % 2) t->last[t->odds++][r] = x[half - 1] * x[2 * half - 1];
        if (three && quarter % 2) t->last[t->odds++][r] = NAME(prod_of_four)(n, x + quarter - 1);
        if (two) n = three ? quarter : half;
        if (!keep && n / 2 <= narrow) next = t->row + r * (n / 2);
        if (three)
            NAME(prod_three_levels)(all, x, next);
        else if (two)
            NAME(prod_two_levels)(all, x, next);
        else
            NAME(prod_level)(n / 2, x, next);
        x = next;
        if (keep) next += n / 2;
    }
    return x;
}
/* Multiplies the last elements of level o, of odd length, with those of the levels before. */
EG_INLINE void NAME(prod_odd)(NAME(prod_trees) * t, int o)
{
    for (int r = 0; r < PROD_SIDE; r++)
        t->odd[o][r] = o ? t->odd[o - 1][r] * t->last[o][r] : t->last[o][r];
}
/* Computes the trees of rows of x, `apart` elements apart. Returns the last level, of one element
 * for each row. */
EG_INLINE T *NAME(prod_up)(NAME(prod_trees) * t, const bool keep, const T *x, int64_t apart)
{
    int64_t n = t->n;
    T *v = t->side;
    const T *level = x;
    while (n > PROD_NARROW) n /= 2;
    /* a level of PROD_NARROW elements is halved as vectors twice more, where none remains */
    if (!keep && n == PROD_NARROW && n < t->n) n /= 4;
    const int64_t narrow = n;
    t->odds = 0;
    if (t->rows < PROD_SIDE) {
        memset(v, 0, (size_t)(n * PROD_SIDE) * sizeof(T));
        memset(t->last, 0, sizeof t->last);
    }
    if (n < t->n) {
        for (int r = 0; r < t->rows; r++) {
            const T *row = NAME(prod_row)(t, keep, narrow, r, x + r * apart);
            if (!r) level = row;
        }
        apart = keep ? t->n : n;
    }
    for (int o = 0; o < t->odds; o++) NAME(prod_odd)(t, o);
    NAME(prod_transpose)(t->rows, n, level, apart, v, PROD_SIDE);
    for (; n > 1; n /= 2) {
        if (n % 2) {
            memcpy(t->last[t->odds], v + (n - 1) * PROD_SIDE, sizeof *t->last);
            NAME(prod_odd)(t, t->odds++);
        }
        NAME(prod_level)(n / 2 * PROD_SIDE, v, v + n * PROD_SIDE);
        v += n * PROD_SIDE;
    }
    return v;
}
/* The product of each row; y, x */
EG_CLONES static void NAME(prod_rows)(int64_t rows, char *const *p, const int64_t *step,
                                      const void *user)
{
    NAME(prod_trees) t;
    t.n = ((const eg_strip *)user)->n;
    for (int64_t first = 0; first < rows; first += t.rows) {
        t.rows = (int)eg__min64(rows - first, PROD_SIDE);
        const T *v = NAME(prod_up)(&t, false, EG_ROW(T, 1, first), step[1] / (int64_t)sizeof(T));
        for (int r = 0; r < t.rows; r++)
            *EG_ROW(T, 0, first + r) = t.odds ? v[r] * t.odd[t.odds - 1][r] : v[r];
    }
}
/* Writes the first level of m rows, or if `three` the third one, whose elements are `along`
 * elements apart in x; the rows are `apart` elements apart. n: elements of that level; w: their
 * distance. */
EG_INLINE void NAME(prod_first)(const bool three, int64_t n, int64_t m, const T *x, int64_t apart,
                                int64_t along, int64_t w, T *v)
{
    for (int64_t k = 0; k < n; k++, x += along, v += w) {
        const T *b = x + n * along;
        if (three) {
            EG_EVERY_LANE
            for (int64_t r = 0; r < m; r++) v[r] = NAME(prod_of_eight)(x + r * apart, n * along);
            continue;
        }
        EG_EVERY_LANE
        for (int64_t r = 0; r < m; r++) v[r] = x[r * apart] * b[r * apart];
    }
}
/* The product of each row of interleaved rows (the elements of a row lie further apart than the
 * rows): many rows together from the first level on, one in each lane. y, x */
EG_CLONES static void NAME(prod_across)(int64_t rows, char *const *p, const int64_t *step,
                                        const void *user)
{
    const eg_strip_axis *of = &((const eg_strip *)user)->axis[0];
    const int64_t along = of->step / (int64_t)sizeof(T), apart = step[1] / (int64_t)sizeof(T);
    const bool three = of->size % 8 == 0;
    const int64_t most = prod_beside(of->size / (three ? 4 : 1), PROD_MOST(sizeof(T))),
                  w = eg__min64(eg__round_up(rows, EG_LANES), most);
    T v[PROD_MOST(sizeof(T))], odd[PROD_BESIDE] = { 0 };
    if (rows < w) memset(v, 0, sizeof v);
    for (int64_t first = 0; first < rows; first += w) {
        const T *x = EG_ROW(T, 1, first);
        const int64_t m = eg__min64(rows - first, w);
        int64_t n = of->size;
        bool odds = n % 2;
        for (int64_t r = 0; odds && r < m; r++) odd[r] = x[(n - 1) * along + r * apart];
        n /= three ? 8 : 2;
        if (three && apart == 1)
            NAME(prod_first)(true, n, m, x, 1, along, w, v);
        else if (three && apart == -1 && sizeof(T) <= 8)
            NAME(prod_first)(true, n, m, x, -1, along, w, v);
        else if (three)
            NAME(prod_first)(true, n, m, x, apart, along, w, v);
        else if (apart == 1)
            NAME(prod_first)(false, n, m, x, 1, along, w, v);
        else if (apart == -1 && sizeof(T) <= 8)
            NAME(prod_first)(false, n, m, x, -1, along, w, v);
        else
            NAME(prod_first)(false, n, m, x, apart, along, w, v);
        for (; n > 1; n /= 2) {
            const T *last = v + (n - 1) * w;
            for (int64_t r = 0; n % 2 && r < w; r++) odd[r] = odds ? odd[r] * last[r] : last[r];
            odds |= n % 2;
            NAME(prod_level)(n / 2 * w, v, v);
        }
        for (int64_t r = 0; r < m; r++) *EG_ROW(T, 0, first + r) = odds ? v[r] * odd[r] : v[r];
    }
}
#ifdef WITH_SLOPES
/* Writes the cotangents d of a level v for c, those of the next level; d may be v. */
EG_INLINE void NAME(prod_back)(int64_t half, const T *c, const T *v, T *d)
{
    EG_EVERY_LANE
    for (int64_t k = 0; k < half; k++) {
        const T a = v[k], b = v[k + half];
        d[k] = c[k] * b;
        d[k + half] = c[k] * a;
    }
}
/* Writes the cotangents of the elements of x to dx. The last level, v, contains those of the
 * products without `odd`, and t->last those of the last elements. */
EG_INLINE void NAME(prod_down)(NAME(prod_trees) * t, T *v, const T *x, int64_t apart, T *dx,
                               int64_t dx_apart)
{
    int level = 0, o = t->odds;
    int64_t at = 0, n;
    while (t->n >> level > PROD_NARROW) at += t->n >> ++level;
    int below = level;
    while (t->n >> below > 1) below++;
    while (--below >= level) {
        const T *c = v;
        n = t->n >> below;
        v -= n * PROD_SIDE;
        NAME(prod_back)(n / 2 * PROD_SIDE, c, v, v);
        if (n % 2) memcpy(v + (n - 1) * PROD_SIDE, t->last[--o], PROD_SIDE * sizeof(T));
    }
    T *to = level ? t->row + at - (t->n >> level) : dx;
    NAME(prod_transpose)(t->n >> level, t->rows, v, PROD_SIDE, to, level ? t->n : dx_apart);
    while (--level >= 0) {
        n = t->n >> level;
        at -= n / 2;
        if (n % 2) o--;
        for (int r = 0; r < t->rows; r++) {
            T *c = t->row + r * t->n + at, *d = level ? c - n : dx + r * dx_apart;
            NAME(prod_back)(n / 2, c, level ? d : x + r * apart, d);
            if (n % 2) d[n - 1] = t->last[o][r];
        }
    }
}
/* The gradient; dx, x, g */
EG_CLONES static void NAME(prod_slopes)(int64_t rows, char *const *p, const int64_t *step,
                                        const void *user)
{
    NAME(prod_trees) t;
    t.n = ((const eg_strip *)user)->n;
    const int64_t most = eg__min64(PROD_SIDE, PROD_MOST(sizeof(T)) / t.n);
    for (int64_t first = 0; first < rows; first += t.rows) {
        t.rows = (int)eg__min64(rows - first, most);
        const int64_t apart = step[1] / (int64_t)sizeof(T);
        const T *x = EG_ROW(T, 1, first);
        T *v = NAME(prod_up)(&t, true, x, apart);
        for (int r = 0; r < t.rows; r++) {
            const T g = *EG_ROW(T, 2, first + r);
            T c = g * v[r]; /* the cotangent of odd[o] */
            v[r] = t.odds ? g * t.odd[t.odds - 1][r] : g;
            for (int o = t.odds - 1; o > 0; o--) {
                const T last = t.last[o][r];
                t.last[o][r] = c * t.odd[o - 1][r];
                c *= last;
            }
            t.last[0][r] = c;
        }
        NAME(prod_down)(&t, v, x, apart, EG_ROW(T, 0, first), step[0] / (int64_t)sizeof(T));
    }
}
#endif
#undef T
#undef NAME
