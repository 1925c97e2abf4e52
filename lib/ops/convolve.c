/* convolve.c: causal convolutions along one axis, y_l = Σ_{k ≤ l} f_k x_{l−k}, of any number of
 * taps f_k: by their definition, or by Fourier transforms, whichever takes less arithmetic. Both
 * are computed in f64, LANES lines at a time. The transform is written out here: FFTW has the GPL,
 * and a transform of a power of two, for several lines side by side, is one loop. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

enum { LANES = 4 };
typedef double lanes[LANES];
typedef struct complexes { /* a complex number of each lane */
    lanes re, im;
} complexes;

/* The attribute: how many results at the beginning are left out. */
typedef struct convolution {
    int64_t skip;
} convolution;
typedef struct convolve_job {
    const eg_tensor *y, *x, *f;
    int64_t n, length, taps, skip; /* of a line: results, elements, taps, results left out */
    int64_t lines, size;           /* size of the transform, a power of two; 0: by definition */
    double (*twiddle)[2];          /* e^{−2πik/size}, k < size/2 */
    double *memory;                /* of each thread: `each` numbers */
    int64_t each;
} convolve_job;

/* The offset in elements of a line, which is the number of its first element among those of all
 * axes but the last. */
static int64_t line_at(const eg_tensor *x, int64_t line)
{
    int64_t at = 0;
    for (int a = x->rank - 1; a-- > 0; line /= x->dim[a]) at += line % x->dim[a] * x->stride[a];
    return at;
}
/* The offsets of LANES lines, from number `first` on. Past the last line they are that of `first`,
 * which is then computed several times. */
static void lines_at(const eg_tensor *x, int64_t first, int64_t lines, int64_t at[LANES])
{
    for (int l = 0; l < LANES; l++) at[l] = line_at(x, first + l < lines ? first + l : first);
}
#define GATHER(T)                                               \
    for (int64_t i = 0; i < n; i++)                             \
        for (int l = 0; l < LANES; l++) {                       \
            to[i * step][l] = ((const T *)data)[at[l] + i * s]; \
        }
/* Copies LANES lines to `to`, with `step` lanes between elements. Sets most[] to the largest
 * absolute value of each. Returns false if an element is not finite. */
EG_CLONES static bool gather_lines(const convolve_job *j, const eg_tensor *x, int64_t first,
                                   lanes *to, int64_t step, lanes most)
{
    const int64_t n = x->dim[x->rank - 1], s = x->stride[x->rank - 1];
    const void *data = x->data;
    int64_t at[LANES];
    lanes largest = { 0 }, sum = { 0 };
    lines_at(x, first, j->lines, at);
    if (x->dtype == EG_F64)
        GATHER(double)
    else
        GATHER(float)
    for (int64_t i = 0; i < n; i++)
        for (int l = 0; l < LANES; l++) {
            const double v = to[i * step][l], size = v < 0 ? -v : v;
            largest[l] = size > largest[l] ? size : largest[l];
            sum[l] += v - v; /* NaN if v is not finite */
        }
    memcpy(most, largest, sizeof largest);
    bool finite = true;
    for (int l = 0; l < LANES; l++) finite &= isfinite(sum[l]) != 0;
    return finite;
}
#define SCATTER(T)                  \
    for (int64_t i = 0; i < n; i++) \
        for (int l = 0; l < LANES; l++) ((T *)data)[at[l] + i * s] = (T)from[i * step][l];
/* Writes the results of LANES lines, which are in `from`, `step` lanes apart. */
EG_CLONES static void scatter_lines(const convolve_job *j, int64_t first, const lanes *from,
                                    int64_t step)
{
    const int64_t n = j->n, s = j->y->stride[j->y->rank - 1];
    void *data = j->y->data;
    int64_t at[LANES];
    lines_at(j->y, first, j->lines, at);
    if (j->y->dtype == EG_F64)
        SCATTER(double)
    else
        SCATTER(float)
}

/* The sums of the definition, in the order of the taps. */
EG_CLONES static void by_definition(const convolve_job *j, const lanes *x, const lanes *f, lanes *y)
{
    for (int64_t i = 0; i < j->n; i++) {
        const int64_t at = i + j->skip, from = at < j->length ? 0 : at - j->length + 1,
                      to = at < j->taps ? at + 1 : j->taps;
        lanes sum = { 0 };
        for (int64_t k = from; k < to; k++)
            for (int l = 0; l < LANES; l++) sum[l] += f[k][l] * x[at - k][l];
        memcpy(y[i], sum, sizeof sum);
    }
}

/* Z_k = Σ_n z_n e^{−2πikn/size} (Stockham 1966). Returns the one of the two arrays that has it. */
EG_CLONES static complexes *transformed(const convolve_job *j, complexes *z, complexes *other)
{
    for (int64_t n = j->size, s = 1; n > 1; n /= 2, s *= 2) {
        for (int64_t p = 0; p < n / 2; p++) {
            const double c = j->twiddle[p * s][0], d = j->twiddle[p * s][1];
            const complexes *a = z + s * p, *b = z + s * (p + n / 2);
            complexes *even = other + s * 2 * p, *odd = even + s;
            for (int64_t q = 0; q < s; q++)
                for (int l = 0; l < LANES; l++) {
                    const double re = a[q].re[l] - b[q].re[l], im = a[q].im[l] - b[q].im[l];
                    even[q].re[l] = a[q].re[l] + b[q].re[l];
                    even[q].im[l] = a[q].im[l] + b[q].im[l];
                    odd[q].re[l] = re * c - im * d;
                    odd[q].im[l] = re * d + im * c;
                }
        }
        complexes *swap = z;
        z = other;
        other = swap;
    }
    return z;
}
/* With z = x + if, the transform of the convolution is P_k = (Z_k² − conj(Z_{−k})²)/4i; writes
 * conj(P_k), whose transform is that of the result. */
static void spectra_multiplied(int64_t size, complexes *z)
{
    for (int64_t k = 0; k <= size / 2; k++) {
        complexes *a = &z[k], *b = &z[(size - k) % size];
        for (int l = 0; l < LANES; l++) {
            const double re = a->re[l] * a->re[l] - a->im[l] * a->im[l] - b->re[l] * b->re[l] +
                              b->im[l] * b->im[l],
                         im = 2 * (a->re[l] * a->im[l] + b->re[l] * b->im[l]);
            a->re[l] = b->re[l] = im / 4;
            a->im[l] = re / 4, b->im[l] = -re / 4;
        }
    }
}
/* Both lines are divided by their largest element, so that neither gets the rounding error of a
 * much larger one. A line of zeros gives +0. */
static void by_transforms(const convolve_job *j, int64_t first, complexes *z, const lanes most[2])
{
    lanes scale[2];
    for (int p = 0; p < 2; p++)
        for (int l = 0; l < LANES; l++) scale[p][l] = most[p][l] > 0 ? most[p][l] : 1;
    for (int64_t k = 0; k < j->size; k++)
        for (int l = 0; l < LANES; l++) {
            z[k].re[l] = k < j->length ? z[k].re[l] / scale[0][l] : 0;
            z[k].im[l] = k < j->taps ? z[k].im[l] / scale[1][l] : 0;
        }
    complexes *other = z + j->size, *found = transformed(j, z, other);
    spectra_multiplied(j->size, found);
    found = transformed(j, found, found == z ? other : z);
    for (int64_t i = j->skip; i < j->skip + j->n; i++)
        for (int l = 0; l < LANES; l++)
            found[i].re[l] = found[i].re[l] / (double)j->size * most[0][l] * most[1][l] + 0.0;
    scatter_lines(j, first, (const lanes *)&found[j->skip].re, 2);
}
/* Computes LANES lines. A NaN or an infinity must not reach results that do not depend on it, so
 * lines with one are computed by definition. */
static void convolve_piece(void *user, int64_t piece, int thread)
{
    const convolve_job *j = user;
    double *memory = j->memory + thread * j->each;
    const int64_t first = piece * LANES;
    lanes most[2], *x = (lanes *)(void *)memory, *f = x + j->length;
    if (j->size) {
        complexes *z = (complexes *)(void *)memory;
        const bool one = gather_lines(j, j->x, first, &z->re, 2, most[0]),
                   two = gather_lines(j, j->f, first, &z->im, 2, most[1]);
        if (one && two) {
            by_transforms(j, first, z, (const lanes *)most);
            return;
        }
    }
    gather_lines(j, j->x, first, x, 1, most[0]);
    gather_lines(j, j->f, first, f, 1, most[1]);
    lanes *y = f + j->taps;
    by_definition(j, (const lanes *)x, (const lanes *)f, y);
    scatter_lines(j, first, (const lanes *)y, 1);
}

/* -- convolve: y_l = Σ_k f_k x_{l+skip−k},  dx and df are convolutions of the flipped g ----------
 */
static bool convolve_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    int64_t dim[EG_RANK_MAX];
    for (int r = 0; r < x->rank; r++) dim[r] = x->dim[r];
    dim[x->rank - 1] -= ((const convolution *)y->attr)->skip;
    return eg__shape(y, x->dtype, x->rank, dim);
}
/* Chooses the method by the sizes alone, and divides the lines among threads. False after an error.
 */
static bool convolve_forward(eg_tensor *y)
{
    const eg_tensor *x = y->in[0], *f = y->in[1];
    const int last = y->rank - 1;
    convolve_job j = { .y = y,
                       .x = x,
                       .f = f,
                       .n = y->dim[last],
                       .length = x->dim[last],
                       .taps = f->dim[last],
                       .skip = ((const convolution *)y->attr)->skip,
                       .lines = eg__count(last, y->dim) };
    if (!j.n || !j.lines) return true;
    int64_t size = 2, log = 1;
    while (size < j.length + j.taps) size *= 2, log++;
    /* operations of a result by definition, and of the two transforms of a line */
    const double direct = (double)j.n * (double)eg__min64(j.taps, j.length),
                 fast = 8 * (double)size * (double)log;
    if (fast < direct) j.size = size;
    const int64_t pieces = (j.lines + LANES - 1) / LANES, whole = (j.length + j.taps + j.n) * LANES,
                  transformed = 4 * j.size * LANES;
    j.each = whole > transformed ? whole : transformed;
    int team = eg__team(y->cx, (int64_t)(fmin(fast, direct) * (double)j.lines), 1 << 18);
    if (team > pieces) team = (int)pieces;
    j.memory =
        eg__scratch(y->cx, EG_SCRATCH_PARTS, (size_t)(team * j.each + j.size) * sizeof *j.memory);
    if (!j.memory) return false;
    j.twiddle = (double(*)[2])(void *)(j.memory + team * j.each);
    for (int64_t k = 0; k < j.size / 2; k++) {
        const double angle = 6.283185307179586477 * (double)k / (double)j.size;
        j.twiddle[k][0] = cos(angle), j.twiddle[k][1] = -sin(angle);
    }
    eg__parallel(y->cx, team, pieces, convolve_piece, &j);
    return true;
}
/* The analytic continuation, for the complex step: by definition. */
static bool convolve_c128(eg_tensor *y)
{
    const eg_tensor *x = y->in[0], *f = y->in[1];
    const int last = y->rank - 1;
    const int64_t skip = ((const convolution *)y->attr)->skip, lines = eg__count(last, y->dim);
    const double complex *from = (const void *)x->data, *taps = (const void *)f->data;
    double complex *to = (void *)y->data;
    for (int64_t line = 0; line < lines; line++) {
        const double complex *a = from + line_at(x, line), *b = taps + line_at(f, line);
        double complex *c = to + line_at(y, line);
        for (int64_t i = 0; i < y->dim[last]; i++) {
            double complex sum = 0;
            for (int64_t k = 0; k < f->dim[last] && k <= i + skip; k++)
                if (i + skip - k < x->dim[last])
                    sum += b[k * f->stride[last]] * a[(i + skip - k) * x->stride[last]];
            c[i * y->stride[last]] = sum;
        }
    }
    return true;
}
static eg_tensor *convolved(eg_tensor *x, eg_tensor *f, int64_t skip);
static eg_tensor *convolve_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const int64_t skip = ((const convolution *)y->attr)->skip;
    eg_tensor *x = y->in[0], *f = y->in[1],
              *back = eg_flip_axis(eg_pad_axis(g, -1, skip, 0, 0), -1);
    if (!eg_size(x) || !eg_size(f)) return eg_zeros_like(y->in[i]);
    return eg_flip_axis(
        i ? convolved(back, x, eg_dim(x, -1) - eg_dim(f, -1)) : convolved(back, f, 0), -1);
}
static eg_tensor *convolve_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const int64_t skip = ((const convolution *)y->attr)->skip;
    eg_tensor *a = dx[0] ? convolved(dx[0], y->in[1], skip) : NULL,
              *b = dx[1] ? convolved(y->in[0], dx[1], skip) : NULL;
    return a && b ? eg_add(a, b) : a ? a : b;
}
static eg_tensor *convolve_call(eg_tensor *const *x) { return eg_convolve("b [l] c", x[0], x[1]); }
static eg_tensor *convolve_late(eg_tensor *const *x) { return convolved(x[0], x[1], 2); }
static const eg_sample convolve_samples[] = { { convolve_call, "2x5x3, 4x3", 0, 0 },
                                              { convolve_late, "2x5, 2x3", 0, 0 },
                                              { convolve_call, "1x193x1, 193x1", 0,
                                                0 }, /* by transforms */
                                              { 0 } };
static const eg_op convolve_op = {
    .name = "convolve",
    .equation = "y_l = sum over k <= l of f_k x_{l-k}",
    .gradient = "dx = flip(convolve(flip g, f)), df = flip(convolve(flip g, x)), the first of them",
    .arity = 2,
    .shape = convolve_shape,
    .forward = convolve_forward,
    .rule = convolve_rule,
    .uses = EG_USES_OTHERS,
    .samples = convolve_samples,
    .jvp = convolve_jvp,
    .forward_c128 = convolve_c128,
};
static eg_tensor *convolved(eg_tensor *x, eg_tensor *f, int64_t skip)
{
    return eg_apply(&convolve_op, &(convolution){ skip }, sizeof(convolution), 2,
                    (eg_tensor *[]){ x, f });
}

/* True if operand 2 has the float dtype of operand 1 and broadcasts to it in all axes but the last;
 * else records an error. */
static bool convolve_fits(eg_ctx *cx, const eg_tensor *x, const eg_tensor *f)
{
    char one[256], two[256];
    bool fits = eg__is_inexact(x->dtype) && f->dtype == x->dtype && f->rank <= x->rank;
    for (int r = 1; fits && r < f->rank; r++) {
        const int64_t size = f->dim[f->rank - 1 - r];
        fits = size == 1 || size == x->dim[x->rank - 1 - r];
    }
    if (fits) return true;
    if (!eg__is_inexact(x->dtype))
        eg_fail_as(cx, EG_ERROR_DTYPE, "convolve: operand 1 is %s; it must be a float",
                   eg_type_name(x->dtype));
    else if (f->dtype != x->dtype)
        eg_fail_as(cx, EG_ERROR_DTYPE,
                   "convolve: operand 1 is %s, operand 2 is %s; eg_cast one of them",
                   eg_type_name(x->dtype), eg_type_name(f->dtype));
    else
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "convolve: operand 2 is %s, which does not broadcast to operand 1, %s, in the "
                   "axes that are not in brackets (both with the axis in brackets last)",
                   eg__dims_text(f, two, sizeof two), eg__dims_text(x, one, sizeof one));
    return false;
}
eg_tensor *eg_convolve(const char *spec, eg_tensor *x, eg_tensor *f)
{
    eg_tensor *const xs[] = { x, f };
    eg_ctx *cx = eg__context_of("convolve", 2, xs);
    eg_focus of_x, of_f;
    if (!cx || !eg__check_all(cx, "convolve", 2, xs)) return eg__poison(cx);
    while (eg_ok(f) && f->rank < x->rank) f = eg_unsqueeze(f, 0);
    if (!eg__focus(&of_x, "convolve", spec, x) || !eg__focus_one(&of_x) ||
        !eg__focus(&of_f, "convolve", spec, f) || !convolve_fits(cx, of_x.x, of_f.x))
        return eg__poison(cx);
    int64_t dims[EG_RANK_MAX];
    const int last = of_x.x->rank - 1;
    const int64_t length = of_x.x->dim[last];
    eg_tensor *taps = of_f.x;
    if (taps->dim[last] > length) taps = eg_slice_axis(taps, -1, 0, length, 1);
    for (int r = 0; r < last; r++) dims[r] = of_x.x->dim[r];
    dims[last] = eg_dim(taps, -1);
    return eg__focus_same(&of_x, convolved(of_x.x, eg_expand_n(taps, last + 1, dims), 0));
}

const eg_op *const eg__convolve_ops[] = { &convolve_op, NULL };
