/* arithmetic_norm_of.h: layer norm, RMS norm and their gradients for several contiguous rows of any
 * length and one type; included by arithmetic_of.h, whose macros and loops it uses. */

/* If the elements of a row differ from its mean by at most this share of the mean, the differences
 * may be rounding errors of the mean. */
#define ROUNDING_SHARE (64 * (sizeof(T) == 4 ? 0x1p-23 : 0x1p-52))
/* The mean and r of such a row, from the differences to its first element, which are exact. If all
 * elements are equal, the mean is exactly that number. */
TARGET static void NAME(near_moments)(const eg_row_facts *b, const T *x, double *mean, double *r)
{
    double total = 0, squares = 0;
    for (int64_t k = 0; k < b->n; k++) total += (double)(x[k] - x[0]);
    total /= (double)b->n;
    for (int64_t k = 0; k < b->n; k++) {
        const double d = (double)(x[k] - x[0]) - total;
        squares += d * d;
    }
    const double spread = squares / (double)b->n + b->c;
    *mean = (double)x[0] + total;
    *r = spread > 0 ? 1 / sqrt(spread) : 0;
}
/* The mean and r of a row whose sum of squares overflows, computed from x / m, where m is the
 * largest |x|; eps is negligible in comparison. The results of a row with an infinity or NaN are
 * not changed. */
TARGET static void NAME(far_moments)(const eg_row_facts *b, const T *x, double *mean, double *r)
{
    double m = 0, total = 0, squares = 0;
    for (int64_t k = 0; k < b->n; k++) {
        if (!isfinite(x[k])) return;
        m = fmax(m, fabs((double)x[k]));
    }
    for (int64_t k = 0; b->center && k < b->n; k++) total += (double)x[k] / m;
    total /= (double)b->n;
    for (int64_t k = 0; k < b->n; k++) {
        const double d = (double)x[k] / m - total;
        squares += d * d;
    }
    *mean = total * m;
    *r = squares > 0 ? 1 / sqrt(squares / (double)b->n) / m : 0;
}
/* The mean and r of `rows` rows that lie `xs` elements apart, `width` of which, a constant, are
 * summed at once. Divisions and roots are computed for all rows at once. */
EG_INLINE void NAME(moments)(const eg_row_facts *b, const int width, int rows, const T *x,
                             int64_t xs, double *mean, double *r)
{
    double total[MANY] = { 0 }, squares[MANY] = { 0 };
    const double count = (double)b->n, eps = b->c;
    T shift[MANY] = { 0 }, sum[MANY];
    for (int64_t k = 0; b->center && k < b->n; k += EG_CHUNK) {
        const int64_t m = eg__min64(b->n - k, EG_CHUNK);
        for (int f = 0; f < rows; f += width)
            NAME(sums)(width, m, x + f * xs + k, xs, x, 0, shift, sum + f);
        EG_EVERY_LANE for (int q = 0; q < rows; q++) total[q] += (double)sum[q];
    }
    EG_EVERY_LANE
    for (int q = 0; q < rows; q++) {
        mean[q] = total[q] / count;
        shift[q] = (T)mean[q];
    }
    for (int64_t k = 0; k < b->n; k += EG_CHUNK) {
        const int64_t m = eg__min64(b->n - k, EG_CHUNK);
        for (int f = 0; f < rows; f += width)
            NAME(sums_of_squares)(width, m, x + f * xs + k, xs, x, 0, shift + f, sum + f);
        EG_EVERY_LANE for (int q = 0; q < rows; q++) squares[q] += (double)sum[q];
    }
    EG_EVERY_LANE
    for (int q = 0; q < rows; q++) {
        const double spread = squares[q] / count + eps, inverse = 1 / sqrt(spread);
        r[q] = spread == 0 ? 0 : inverse; /* all equal: x̂ and its gradient are 0 */
    }
    /* Σ (x − mean)² of rows that differ by rounding alone is at most that */
    const double share = b->center ? count * ROUNDING_SHARE * ROUNDING_SHARE : 0;
    double most[MANY];
    int again = 0; /* rows that are summed in another way */
    for (int q = 0; q < rows; q++) {
        most[q] = share * (mean[q] * mean[q]);
        again |= squares[q] <= most[q] || !isfinite(squares[q]);
    }
    for (int q = 0; q < rows && again; q++)
        if (!isfinite(squares[q]))
            NAME(far_moments)(b, x + q * xs, &mean[q], &r[q]);
        else if (squares[q] > 0 && squares[q] <= most[q])
            NAME(near_moments)(b, x + q * xs, &mean[q], &r[q]);
}
/* r; p: r, x */
TARGET static void NAME(rstd)(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    for (int64_t row = 0; row < rows; row++) {
        double mean, r;
        NAME(moments)(user, 1, 1, EG_ROW(T, 1, row), 0, &mean, &r);
        *EG_ROW(T, 0, row) = (T)r;
    }
}
/* y = (x − s) c gain + bias; gain and bias may be NULL. y may be x. */
EG_INLINE void NAME(scaled)(int64_t n, const T *x, T s, T c, const T *gain, const T *bias, T *y)
{
    if (gain && bias) {
        EG_EVERY_LANE for (int64_t k = 0; k < n; k++) y[k] = (x[k] - s) * c * gain[k] + bias[k];
    } else if (gain) {
        EG_EVERY_LANE for (int64_t k = 0; k < n; k++) y[k] = (x[k] - s) * c * gain[k];
    } else if (bias) {
        EG_EVERY_LANE for (int64_t k = 0; k < n; k++) y[k] = (x[k] - s) * c + bias[k];
    } else
        NAME(affine_of)(n, x, s, c, y);
}
/* y = (x − mean) r gain + bias for `rows` rows, summed `width` at once; p: y, x, and mean and r */
EG_INLINE void NAME(norm_some)(const eg_row_facts *b, const int width, int rows, int64_t row,
                               char *const *p, const int64_t *step)
{
    double mean[MANY], r[MANY];
    NAME(moments)(b, width, rows, EG_ROW(T, 1, row), step[1] / (int64_t)sizeof(T), mean, r);
    for (int q = 0; q < rows && b->moments; q++) {
        double *kept = EG_ROW(double, b->moments, row + q);
        kept[0] = mean[q], kept[1] = r[q];
    }
    for (int q = 0; q < rows; q++) {
        T *y = EG_ROW(T, 0, row + q);
        NAME(scaled)(b->n, EG_ROW(T, 1, row + q), (T)mean[q], (T)r[q], b->gain, b->bias, y);
    }
}
/* The loops for short rows are functions of their own, which return how many rows they computed:
 * in a larger function gcc 12 keeps sums of several rows in memory. */
TARGET static int64_t NAME(norm_abreast)(const eg_row_facts *b, int64_t rows, char *const *p,
                                         const int64_t *step)
{
    int64_t row = 0;
    for (int many; (many = rows_at_once(b->n, rows - row)); row += many)
        NAME(norm_some)(b, ABREAST, many, row, p, step);
    return row;
}
TARGET static int64_t NAME(norm_one_by_one)(const eg_row_facts *b, int64_t rows, char *const *p,
                                            const int64_t *step)
{
    int64_t row = 0;
    for (int many; (many = rows_at_once(b->n, rows - row)); row += many)
        NAME(norm_some)(b, 1, many, row, p, step);
    return row;
}
TARGET static void NAME(norm)(int64_t rows, char *const *p, const int64_t *step, const void *user)
{
    const eg_row_facts *b = user;
    int64_t row = 0;
    if (rows_at_once(b->n, rows))
        row = (b->from_memory ? NAME(norm_one_by_one) : NAME(norm_abreast))(b, rows, p, step);
    for (; row + PAIR <= rows; row += PAIR) NAME(norm_some)(b, PAIR, PAIR, row, p, step);
    for (; row < rows; row++) NAME(norm_some)(b, 1, 1, row, p, step);
}
/* total = Σ h and along = Σ h (x − s) of a row, with h = g gain; without a gain h is g. One loop
 * reads g and x for both sums, whose order is that of arithmetic_sum_of.h. Rows are summed one
 * after the other, so that g, which comes from memory, is read in its order. */
EG_INLINE void NAME(cotangent_sums)(int64_t n, const T *g, const T *gain, const T *x, T s, T *total,
                                    T *along)
{
    *total = *along = 0;
    for (int64_t k = 0; k < n && n < EG_LANES; k++) {
        const T h = gain ? g[k] * gain[k] : g[k];
        *total += h;
        *along += h * (x[k] - s);
    }
    if (n < EG_LANES) return;
    PIECE sum_h[PIECES] = { { 0 } }, sum_x[PIECES] = { { 0 } }, h, v, w;
    PIECE_BITS ours[PIECES];
    NAME(from_lane)(0, ours);
    for (int64_t k = 0; k < n; k += EG_LANES) {
        if (k + EG_LANES > n) { /* the last group overlaps the one before it */
            NAME(from_lane)((int)(k + EG_LANES - n), ours);
            k = n - EG_LANES;
        }
        ALL_PIECES for (int q = 0; q < PIECES; q++)
        {
            const int64_t at = k + q * IN_PIECE;
            memcpy(&h, g + at, sizeof h);
            memcpy(&v, x + at, sizeof v);
            if (gain) {
                memcpy(&w, gain + at, sizeof w);
                h *= w;
            }
            v = h * (v - s);
            sum_h[q] += (PIECE)((PIECE_BITS)h & ours[q]);
            sum_x[q] += (PIECE)((PIECE_BITS)v & ours[q]);
        }
    }
    *total = NAME(lanes_summed)(sum_h);
    *along = NAME(lanes_summed)(sum_x);
}
/* What a row's slope dx = (h − a) c − (x − s) d needs besides its elements. */
typedef struct NAME(slope) {
    T a, s, c, d;
} NAME(slope);
/* dx of a row of n elements; if sums are wanted, sum_along += g (x − s) c and sum_g += g. */
EG_INLINE void NAME(slope_row)(int64_t n, NAME(slope) f, const T *x, const T *g, const T *gain,
                               T *dx, const bool summed, T *sum_along, T *sum_g)
{
    const T a = f.a, s = f.s, c = f.c, d = f.d;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) {
        const T u = g[k], h = gain ? u * gain[k] : u, v = x[k] - s;
        if (summed) {
            sum_along[k] += u * (v * c);
            sum_g[k] += u;
        }
        dx[k] = (h - a) * c - v * d;
    }
}
/* The gradient needs r² in f32, r³ in f64. If r is smaller than this, as that of rows of large
 * numbers (far_moments), they underflow. */
#define FAR_R (sizeof(T) == 4 ? 0x1p-62 : 0x1p-330)
/* dx = r (h − total − x̂ mean(h x̂)) of such a row, without powers of r; sums as slope_row's */
TARGET static void NAME(far_slope)(const eg_row_facts *b, const T *x, const T *g, double mean,
                                   double r, double total, T *dx)
{
    const T *gain = b->gain;
    T *sum_along = b->sums, *sum_g = b->sums ? sum_along + b->n : NULL;
    double along = 0;
    for (int64_t k = 0; k < b->n; k++) {
        const double h = gain ? (double)g[k] * (double)gain[k] : (double)g[k];
        along += h * (((double)x[k] - mean) * r) / (double)b->n;
    }
    for (int64_t k = 0; k < b->n; k++) {
        const double u = (double)g[k], h = gain ? u * (double)gain[k] : u,
                     v = ((double)x[k] - mean) * r;
        if (sum_g) {
            sum_along[k] += (T)(u * v);
            sum_g[k] += (T)u;
        }
        dx[k] = (T)((h - total - v * along) * r);
    }
}
/* dx = r (h − mean h − x̂ mean(h x̂)) = r (h − a) − (x − mean) k, with h = g gain; sums += g
 * x̂ and g, for `rows` rows, summed `width` at once; p: dx, x, g, and mean and r */
EG_INLINE void NAME(norm_slope_some)(const eg_row_facts *b, const int width, int rows, int64_t row,
                                     char *const *p, const int64_t *step)
{
    const T *x = EG_ROW(T, 1, row), *g = EG_ROW(T, 2, row), *gain = b->gain;
    const int64_t n = b->n, xs = step[1] / (int64_t)sizeof(T), gs = step[2] / (int64_t)sizeof(T);
    const double count = (double)n;
    double mean[MANY], r[MANY], total[MANY] = { 0 }, along[MANY] = { 0 };
    T shift[MANY], sum[MANY], sum_x[MANY];
    if (!b->moments) NAME(moments)(b, width, rows, x, xs, mean, r);
    for (int q = 0; q < rows && b->moments; q++) {
        const double *kept = EG_ROW(double, b->moments, row + q);
        mean[q] = kept[0], r[q] = kept[1];
    }
    EG_EVERY_LANE for (int q = 0; q < rows; q++) shift[q] = (T)mean[q];
    for (int64_t from = 0, m; from < n; from += m) {
        m = eg__min64(n - from, EG_CHUNK);
        for (int q = 0; q < rows; q++) {
            const T *u = g + q * gs + from, *v = x + q * xs + from;
            if (gain)
                NAME(cotangent_sums)(m, u, gain + from, v, shift[q], &sum[q], &sum_x[q]);
            else
                NAME(cotangent_sums)(m, u, NULL, v, shift[q], &sum[q], &sum_x[q]);
        }
        for (int q = 0; q < rows && b->center; q++) total[q] += (double)sum[q];
        EG_EVERY_LANE for (int q = 0; q < rows; q++) along[q] += (double)sum_x[q];
    }
    EG_EVERY_LANE
    for (int q = 0; q < rows; q++) {
        total[q] /= count;
        along[q] = r[q] * r[q] * r[q] * along[q] / count;
    }
    T *sum_along = b->sums, *sum_g = b->sums ? sum_along + n : NULL;
    for (int q = 0; q < rows; q++) {
        const NAME(slope) f = { (T)total[q], shift[q], (T)r[q], (T)along[q] };
        const T *v = x + q * xs, *u = g + q * gs;
        T *dx = EG_ROW(T, 0, row + q);
        if (r[q] > 0 && r[q] < FAR_R)
            NAME(far_slope)(b, v, u, mean[q], r[q], total[q], dx);
        else if (sum_g && gain)
            NAME(slope_row)(n, f, v, u, gain, dx, true, sum_along, sum_g);
        else if (sum_g)
            NAME(slope_row)(n, f, v, u, NULL, dx, true, sum_along, sum_g);
        else if (gain)
            NAME(slope_row)(n, f, v, u, gain, dx, false, NULL, NULL);
        else
            NAME(slope_row)(n, f, v, u, NULL, dx, false, NULL, NULL);
    }
}
TARGET static int64_t NAME(norm_slope_abreast)(const eg_row_facts *b, int64_t rows, char *const *p,
                                               const int64_t *step)
{
    int64_t row = 0;
    for (int many; (many = rows_at_once(b->n, rows - row)); row += many)
        NAME(norm_slope_some)(b, ABREAST, many, row, p, step);
    return row;
}
TARGET static int64_t NAME(norm_slope_one_by_one)(const eg_row_facts *b, int64_t rows,
                                                  char *const *p, const int64_t *step)
{
    int64_t row = 0;
    for (int many; (many = rows_at_once(b->n, rows - row)); row += many)
        NAME(norm_slope_some)(b, 1, many, row, p, step);
    return row;
}
TARGET static void NAME(norm_slope)(int64_t rows, char *const *p, const int64_t *step,
                                    const void *user)
{
    const eg_row_facts *b = user;
    int64_t row = 0;
    if (rows_at_once(b->n, rows))
        row = (b->from_memory ? NAME(norm_slope_one_by_one) : NAME(norm_slope_abreast))(b, rows, p,
                                                                                        step);
    for (; row + PAIR <= rows; row += PAIR) NAME(norm_slope_some)(b, PAIR, PAIR, row, p, step);
    for (; row < rows; row++) NAME(norm_slope_some)(b, 1, 1, row, p, step);
}
#undef ROUNDING_SHARE
