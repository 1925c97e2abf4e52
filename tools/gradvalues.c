/* gradvalues.c: checks a gradient by values from files, for code that runs elsewhere: on a GPU, in
 * another language. --points writes the points at which f must be computed; --values compares
 * differences of f at these points with a gradient at the first one.
 *
 * Row 0 of the points is x. Four rows follow for each direction d: x + hd, x − hd, x + hd/2, x −
 * hd/2. The step h of an entry is proportional to it, or to the largest entry, but at most 1, if
 * that is larger. With --points as well as --values, x and the gradient must have one shape; the
 * points are rows of numbers and have none. The rows give D(h), D(h/2) and Richardson's
 * extrapolation n = (4 D(h/2) − D(h))/3, whose error is at most |n − D(h/2)| plus the rounding of f
 * divided by h. */
#include "tools.h"
#include <math.h>
#include <stdlib.h>

typedef struct values {
    const char *points, *out, *values, *results, *gradient, *weights;
    int64_t directions;
    double step;
    bool kinks;
} values;
#define AT(member) offsetof(values, member), 0, 0, false
static const option options[] = {
    { 0, "points", INPUT, "X.npy", "x: write the points around it at which f is wanted",
      AT(points) },
    { 'o', "out", OUTPUT, "POINTS.npy", "where --points writes them, one a row", AT(out) },
    { 0, "directions", INTEGER, "N", "N random directions instead of every entry",
      offsetof(values, directions), 1, 1e6, false },
    { 0, "step", REAL, "H",
      "the step of an entry near 1; others in proportion (default 1e-3; f32: 3e-2)",
      offsetof(values, step), 1e-12, 1, false },
    { 0, "values", INPUT, "POINTS.npy", "the points: one a row", AT(values) },
    { 0, "results", INPUT, "F.npy", "f at these points: a number, or a row, for each",
      AT(results) },
    { 0, "gradient", INPUT, "G.npy", "the gradient at the first point, of <f, W> if f has rows",
      AT(gradient) },
    { 0, "weights", INPUT, "W.npy", "W, as many as f has numbers in a row (default: 1 each)",
      AT(weights) },
    { 0, "kinks", FLAG, NULL, "an entry at a kink passes if it is between the one-sided slopes",
      AT(kinks) },
    { 0 }
};
static const command values_command = {
    .name = "gradcheck", .usage = "--points|--values FILE ...", .about = "", .options = options
};

/* Writes the points around x: 1 + 4 · columns rows. */
static int write_points(eg_ctx *cx, const values *o)
{
    eg_tensor *x = eg_npy_load(cx, o->points);
    if (!x) return print_context_error(cx, NULL);
    const bool narrow = eg_type(x) == EG_F32;
    if (!narrow && eg_type(x) != EG_F64)
        return print_error("%s is %s; only floats have gradients", o->points,
                           eg_type_name(eg_type(x)));
    if (!o->out) return print_error("--points needs --out POINTS.npy");
    const int64_t n = eg_size(x), columns = o->directions ? o->directions : n;
    const double *at = eg_f64(eg_cast(x, EG_F64));
    eg_tensor *direction = eg_uniform(cx, -1, 1, columns, n);
    const double *d = eg_f64(direction);
    eg_tensor *points = eg_full_n(cx, EG_F64, 0, 2, (int64_t[]){ 1 + 4 * columns, n });
    double *p = eg_mut_f64(points), least = narrow ? 1 : 1e-2;
    const double step = o->step > 0 ? o->step : narrow ? 3e-2 : 1e-3;
    if (!at || !d || !p) return print_context_error(cx, NULL);
    for (int64_t k = 0; k < n; k++) {
        if (!isfinite(at[k]))
            return print_error("%s has %g at element %lld: f is wanted around a point of numbers",
                               o->points, at[k], (long long)k);
        least = fmin(1, fmax(least, fabs(at[k])));
    }
    for (int64_t k = 0; k < n; k++) {
        const double by = exp2(round(log2(step * fmax(least, fabs(at[k])))));
        for (int64_t r = 0; r < 1 + 4 * columns; r++) {
            const int64_t c = (r - 1) / 4, kind = (r - 1) % 4;
            const double t = (kind & 1 ? -by : by) / (kind < 2 ? 1 : 2);
            p[r * n + k] = at[k] + (r == 0 ? 0 : o->directions ? t * d[c * n + k] : k == c ? t : 0);
        }
    }
    if (eg_npy_save(o->out, narrow ? eg_cast(points, EG_F32) : points))
        return print_context_error(cx, NULL);
    printf("%s: %lld point%s of %lld number%s\n", o->out, (long long)(1 + 4 * columns),
           columns ? "s" : "", (long long)n, n == 1 ? "" : "s");
    return EXIT_SUCCESS;
}

typedef struct table {
    int64_t rows, n, m; /* number of points, elements of a point, elements of f at a point */
    const double *x, *f, *g, *w;
    double unit, of_g; /* unit roundoff of f and of the gradient */
    bool kinks;        /* a kink passes */
    const eg_tensor *gradient;
} table;
/* D from rows r and r + 1, ⟨g, x_r − x_{r+1}⟩, and Σ |f w| unit. */
static void difference(const table *t, int64_t r, double *d, double *a, double *rounding)
{
    *d = *a = *rounding = 0;
    for (int64_t k = 0; k < t->m; k++) {
        const double w = t->w ? t->w[k] : 1, up = t->f[r * t->m + k],
                     down = t->f[(r + 1) * t->m + k];
        *d += w * (up - down);
        *rounding += fabs(w) * t->unit * (fabs(up) + fabs(down));
    }
    for (int64_t k = 0; k < t->n; k++) {
        const double by = t->x[r * t->n + k] - t->x[(r + 1) * t->n + k], p = t->g[k] * by;
        if (by == 0) continue; /* a NaN belongs to its own entry alone */
        *a += p;
        *rounding += t->of_g * fabs(p);
    }
}
/* True if f has a kink at x within the step of rows r … r + 3, and the slope a · by is between the
 * one-sided ones, left and right (times by): f(x + t) − 2 f(x) + f(x − t) is proportional to t at a
 * kink, to t² else. near: a agrees with the central difference, so that a kink has to be clear. */
static bool at_kink(const table *t, int64_t r, double a, bool near, double *left, double *right)
{
    double at[5] = { 0 }, rounding = 0;
    for (int64_t k = 0; k < t->m; k++)
        for (int q = 0; q < 5; q++) {
            const double f = (t->w ? t->w[k] : 1) * t->f[(q ? r + q - 1 : 0) * t->m + k];
            at[q] += f;
            rounding += t->unit * fabs(f);
        }
    const double bend = fabs(at[1] - 2 * at[0] + at[2]), half = fabs(at[3] - 2 * at[0] + at[4]);
    *right = 4 * (at[3] - at[0]);
    *left = 4 * (at[0] - at[4]);
    if (!(half > 0.4 * bend && half > 16 * rounding)) return false;
    if (near && !(fabs(half / bend - 0.5) < 0.02 && half > 1e-2 * fabs(at[3] - at[4])))
        return false;
    const double low = fmin(*left, *right), high = fmax(*left, *right), slack = 0.02 * (high - low);
    return a >= low - slack && a <= high + slack;
}
/* Returns the entry that direction c changes, if it is only one, and sets *by to the change (the
 * slope of f is D divided by it); −1 if it changes several. */
static int64_t entry_of(const table *t, int64_t r, double *by)
{
    int64_t only = -1;
    for (int64_t k = 0; k < t->n; k++) {
        const double step = t->x[r * t->n + k] - t->x[(r + 1) * t->n + k];
        if (step == 0) continue;
        if (only >= 0) return -1;
        only = k;
        *by = step;
    }
    return only;
}
/* Prints "  entry 6 [1,2]": the number of an entry and, if the gradient has several axes, its
 * indices. */
static void print_entry(const table *t, int64_t e)
{
    const int rank = eg_rank(t->gradient);
    int64_t below = t->n;
    printf("  entry %lld", (long long)e);
    for (int r = 0; r < rank && rank > 1; r++) {
        below /= eg_dim(t->gradient, r);
        printf("%s%lld%s", r ? "," : " [", (long long)(e / below % eg_dim(t->gradient, r)),
               r == rank - 1 ? "]" : "");
    }
}
/* Prints the entries that are wrong and a summary. An entry is covered if its slope is larger than
 * the tolerance. Returns the exit status. */
static int compare(const table *t)
{
    const int64_t columns = (t->rows - 1) / 4;
    int64_t right = 0, covered = 0, shown = 0, kinks = 0;
    for (int64_t c = 0; c < columns; c++) {
        double d0, d1, a0, a1, u0, u1, by = 1;
        difference(t, 1 + 4 * c, &d0, &a0, &u0);
        difference(t, 3 + 4 * c, &d1, &a1, &u1);
        const double n = (8 * d1 - d0) / 3, err = fabs(n - 2 * d1) + 4 * (u0 + u1);
        const double slack = 1e-8 * fabs(n) + err;
        double left, above;
        const bool near = fabs(a0 - n) <= slack && isfinite(a0);
        const bool kink = at_kink(t, 1 + 4 * c, a0, near, &left, &above);
        const bool good = kink ? t->kinks : near;
        right += good;
        kinks += kink;
        covered += fabs(n) > slack;
        if (good || shown++ == 16) continue;
        if (shown > 16) continue;
        const int64_t e = entry_of(t, 1 + 4 * c, &by);
        if (shown == 1) printf("gradcheck: FAILED\n");
        if (e < 0)
            printf("  direction %lld", (long long)c), by = 1;
        else
            print_entry(t, e);
        if (kink)
            printf(": KINK: analytic %.9g, left %.9g, right %.9g\n", a0 / by, left / by,
                   above / by);
        else
            printf(": WRONG: analytic %.9g, numeric %.9g (error %.0e)\n", a0 / by, n / by,
                   err / fabs(by));
    }
    const bool passed = right == columns && (covered || !columns);
    printf("%s%lld of %lld entries right, %lld covered\n",
           passed             ? "gradcheck: passed: "
           : right == columns ? "gradcheck: UNTESTED: "
                              : "  ",
           (long long)right, (long long)columns, (long long)covered);
    if (kinks)
        printf("  %lld at a kink%s\n", (long long)kinks,
               t->kinks ? "" : "; with --kinks an entry between the one-sided slopes passes");
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const double *numbers(eg_ctx *cx, const char *path, eg_tensor **x)
{
    *x = eg_npy_load(cx, path);
    return eg_f64(eg_cast(*x, EG_F64));
}
/* True if the gradient has the shape of x, where --points names it. Else says that its elements are
 * read one after another, if it has several axes. */
static bool same_as_points(eg_ctx *cx, const values *o, const eg_tensor *g)
{
    char shape[256];
    const eg_tensor *x = o->points ? eg_npy_load(cx, o->points) : NULL;
    int n = snprintf(shape, sizeof shape, "(");
    for (int r = 0; r < eg_rank(g) && n < 200; r++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, r ? ", %lld" : "%lld",
                      (long long)eg_dim(g, r));
    snprintf(shape + n, sizeof shape - (size_t)n, ")");
    if (!o->points) {
        if (eg_rank(g) > 1)
            printf("%s: %s, read row by row; --points X.npy compares its shape with x\n",
                   o->gradient, shape);
        return true;
    }
    if (eg_error(cx)) return print_context_error(cx, NULL), false;
    const bool same = same_sizes(x, g);
    if (!same) print_error("%s is %s, which is not the shape of %s", o->gradient, shape, o->points);
    return same;
}
/* Reads the files and checks that their shapes fit together. */
static int compare_files(eg_ctx *cx, const values *o)
{
    eg_tensor *x, *f, *g, *w = NULL;
    if (!o->results || !o->gradient)
        return print_error("--values needs --results F.npy and --gradient G.npy");
    table t = { .x = numbers(cx, o->values, &x),
                .f = numbers(cx, o->results, &f),
                .g = numbers(cx, o->gradient, &g),
                .w = o->weights ? numbers(cx, o->weights, &w) : NULL };
    if (!t.x || !t.f || !t.g || eg_error(cx)) return print_context_error(cx, NULL);
    t.rows = eg_rank(x) ? eg_dim(x, 0) : 0;
    if (eg_rank(x) != 2 || t.rows % 4 != 1 || (t.rows < 5 && eg_dim(x, 1)))
        return print_error("%s does not have 1 + 4k rows, as written by gradcheck --points",
                           o->values);
    t.n = eg_dim(x, 1);
    t.m = eg_size(f) / t.rows;
    if (!eg_rank(f) || eg_dim(f, 0) != t.rows)
        return print_error("%s has %lld rows, but %s has %lld points", o->results,
                           (long long)(eg_rank(f) ? eg_dim(f, 0) : 0), o->values,
                           (long long)t.rows);
    if (!same_as_points(cx, o, g)) return EXIT_FAILURE;
    if (eg_size(g) != t.n)
        return print_error("%s has %lld elements, but a point has %lld", o->gradient,
                           (long long)eg_size(g), (long long)t.n);
    if (w && eg_size(w) != t.m)
        return print_error("%s has %lld elements, but f has %lld at a point", o->weights,
                           (long long)eg_size(w), (long long)t.m);
    t.unit = eg_type(f) == EG_F64 ? 1.2e-16 : 6e-8;
    t.kinks = o->kinks;
    t.gradient = g;
    t.of_g = eg_type(g) == EG_F64 ? 1.2e-16 : 6e-8;
    return compare(&t);
}

int check_values(int count, char **word)
{
    values o = { 0 };
    words w;
    const parsed p = read_options(&values_command, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count) return print_error("gradcheck of files takes no \"%s\"", w.word[0]);
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    const int status = !cx        ? print_context_error(cx, NULL)
                       : o.values ? compare_files(cx, &o)
                                  : write_points(cx, &o);
    eg_close(cx);
    return status;
}
