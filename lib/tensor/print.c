/* print.c: a tensor as text, formatted as by str() of NumPy 2.4: the fewest digits that read back
 * as the same value, at most 8 after the point; one exponent rule and one width for all elements;
 * if there are more than 1000 elements, 3 at each end of an axis; lines of at most 75
 * characters. */
#include "tensor/tensor.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PRECISION = 8, LINE = 75, MANY = 1000, EDGE = 3, WORD = 96 };

typedef struct sink {
    FILE *file;
    char *out;
    size_t size, n;
    bool bad;
} sink;
static void print_put(sink *s, const char *text, size_t n)
{
    if (s->file)
        s->bad |= fwrite(text, 1, n, s->file) != n;
    else if (s->n < s->size)
        memcpy(s->out + s->n, text, n < s->size - s->n ? n : s->size - s->n);
    s->n += n;
}
static void put_many(sink *s, char c, int n)
{
    while (n-- > 0) print_put(s, &c, 1);
}

/* -- numbers ---------------------------------------------------------------------------------- */
typedef struct value {
    double f, im;
    int64_t i;
} value;
static bool is_real(const eg_tensor *x)
{
    return eg__is_inexact(x->dtype) || eg__is_half(x->dtype);
}
static value value_at(const eg_tensor *x, char *p)
{
    value v = { 0, 0, 0 };
    if (x->dtype == EG_C128)
        return (value){ ((double *)(void *)p)[0], ((double *)(void *)p)[1], 0 };
    eg_tensor from = *x, to;
    from.rank = 0;
    from.data = p;
    to = from;
    to.dtype = is_real(x) ? EG_F64 : EG_I64;
    to.data = is_real(x) ? (char *)&v.f : (char *)&v.i;
    eg__copy(&to, &from);
    return v;
}

static int narrow_of(const eg_tensor *x)
{
    return x->dtype == EG_F32 || eg__is_half(x->dtype) ? x->dtype : 0;
}

/* ± d0.d1d2… × 10^exponent; sign: 0 for none */
typedef struct digits {
    char sign;
    int n, exponent;
    char d[24];
} digits;

/* Reads the digits of a text in format "%.*e", with any decimal point of the locale. */
static void print_parse(const char *text, digits *t)
{
    t->n = 0;
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9') t->d[t->n++] = *text;
    t->exponent = (int)strtol(text + 1, NULL, 10);
}
static bool reads_back(const digits *t, double v, int narrow)
{
    char text[48];
    snprintf(text, sizeof text, "%.*se%d", t->n, t->d, t->exponent - (t->n - 1));
    if (narrow == EG_F16) return eg__nearest_f16(strtod(text, NULL)) == v;
    if (narrow == EG_BF16) return eg__nearest_bf16(strtod(text, NULL)) == v;
    return narrow ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v;
}
static char sign_of(double v, bool plus) { return signbit(v) ? '-' : plus ? '+' : 0; }
/* Returns the fewest digits that read back as v; if there are several, those nearest to v (Steele,
 * White 1990). */
static digits print_shortest(double v, int narrow, bool plus)
{
    digits t = { .sign = sign_of(v, plus) };
    char text[48];
    int e;
    v = fabs(v);
    /* a power of two is nearer to the next smaller value than to the next larger one */
    bool lopsided = frexp(v, &e) == 0.5;
    for (int n = 0; n < (narrow ? 9 : 17); n++) {
        snprintf(text, sizeof text, "%.*e", n, v);
        print_parse(text, &t);
        if (v == 0 || reads_back(&t, v, narrow)) break;
        if (!lopsided || t.d[n] == '9') continue;
        t.d[n]++;
        if (reads_back(&t, v, narrow)) break;
    }
    while (t.n > 1 && t.d[t.n - 1] == '0') t.n--;
    return t;
}
/* Returns v rounded to `after` digits after the point in scientific notation. */
static digits print_rounded(double v, bool plus, int after)
{
    digits t = { .sign = sign_of(v, plus) };
    char text[48];
    snprintf(text, sizeof text, "%.*e", after, fabs(v));
    print_parse(text, &t);
    while (t.n > 1 && t.d[t.n - 1] == '0') t.n--;
    return t;
}
/* Returns the shortest digits of v, rounded to at most PRECISION after the point. */
static digits to_digits(double v, int narrow, bool plus, bool scientific)
{
    digits t = print_shortest(v, narrow, plus);
    int positions = scientific ? t.n - 1 : t.n - 1 - t.exponent;
    if (positions <= PRECISION) return t;
    return print_rounded(v, plus, scientific ? PRECISION : PRECISION + t.exponent);
}

/* Returns the number of characters before the point. */
static int print_whole(const digits *t)
{
    return !!t->sign + (t->exponent > 0 ? t->exponent + 1 : 1);
}
static int fraction(const digits *t) { return t->n - 1 > t->exponent ? t->n - 1 - t->exponent : 0; }

static char *positional(char *out, const digits *t)
{
    if (t->sign) *out++ = t->sign;
    for (int k = t->exponent < 0 ? t->exponent : 0; k < t->n || k <= t->exponent; k++) {
        *out++ = k >= 0 && k < t->n ? t->d[k] : '0';
        if (k == t->exponent) *out++ = '.';
    }
    return out;
}
static char *scientific(char *out, const digits *t, int positions, int exponent)
{
    if (t->sign) *out++ = t->sign;
    *out++ = t->d[0];
    if (positions >= 0) *out++ = '.';
    for (int k = 1; k <= positions; k++) *out++ = k < t->n ? t->d[k] : '0';
    return out + sprintf(out, "e%c%0*d", t->exponent < 0 ? '-' : '+', exponent, abs(t->exponent));
}

/* -- one format for all elements; of complex numbers one for the real and one for the imaginary
 * parts -- */
typedef struct format {
    bool cut;                   /* only the ends of each axis are printed */
    int narrow;                 /* the dtype if it has fewer bits than f64; else 0 */
    bool scientific, imaginary; /* imaginary: positive values have a + */
    /* characters before the point, digits after it, digits of the exponent */
    int left, right, exponent;
    bool odd, signed_inf; /* odd: some elements are not finite */
    double most, least;   /* largest and smallest |v| ≠ 0 */
} format;

/* Updates the largest and the smallest magnitude, which decide whether exponents are printed. */
static void print_range(format *f, const eg_tensor *x, value v)
{
    (void)x;
    const double number = f->imaginary ? v.im : v.f, a = fabs(number);
    if (!isfinite(number)) {
        f->odd = true;
        f->signed_inf |= f->imaginary || number == -(double)INFINITY;
        return;
    }
    if (a > f->most) f->most = a;
    if (a > 0 && (f->least == 0 || a < f->least)) f->least = a;
}
/* Updates the widths of the parts of a number. */
static void print_measure(format *f, const eg_tensor *x, value v)
{
    char text[WORD];
    if (!is_real(x)) {
        int n = snprintf(text, sizeof text, "%lld", (long long)v.i);
        if (n > f->left) f->left = n;
        return;
    }
    const double number = f->imaginary ? v.im : v.f;
    if (!isfinite(number)) return;
    digits t = to_digits(number, f->narrow, f->imaginary, f->scientific);
    int left = f->scientific ? 1 + !!t.sign : print_whole(&t),
        right = f->scientific ? t.n - 1 : fraction(&t);
    int exponent = t.exponent > 99 || t.exponent < -99 ? 3 : 2;
    if (left > f->left) f->left = left;
    if (right > f->right) f->right = right;
    if (f->scientific && exponent > f->exponent) f->exponent = exponent;
}
static void print_each(format *f, const eg_tensor *x, int axis, char *p,
                       void (*see)(format *, const eg_tensor *, value))
{
    if (axis == x->rank) {
        see(f, x, value_at(x, p));
        return;
    }
    int64_t n = x->dim[axis], step = x->stride[axis] * eg__width[x->dtype];
    for (int64_t i = 0; i < n; i++) {
        if (f->cut && n > 2 * EDGE && i == EDGE) i = n - EDGE;
        print_each(f, x, axis + 1, p + i * step, see);
    }
}
/* Returns the format: finds the range of the elements that are printed, decides on exponents, then
 * measures the widths. */
static format print_format_of(const eg_tensor *x, bool imaginary)
{
    format f = { .cut = eg_size(x) > MANY, .narrow = narrow_of(x), .imaginary = imaginary };
    if (is_real(x)) {
        print_each(&f, x, 0, x->data, print_range);
        double ratio = f.least ? f.most / f.least : 0, tiny = 1e-4;
        if (f.narrow) {
            ratio = (float)f.most / (float)(f.least ? f.least : 1);
            tiny = (float)tiny;
        }
        f.scientific =
            f.least && (f.most >= (f.narrow ? 1e6 : 1e8) || f.least < tiny || ratio > 1000);
    }
    if (x->dtype != EG_BOOL) print_each(&f, x, 0, x->data, print_measure);
    if (f.odd) {
        int after = f.right + 1 + (f.scientific ? f.exponent + 2 : 0), widest = 3 + f.signed_inf;
        if (widest - after > f.left) f.left = widest - after;
    }
    return f;
}

static const char *nonfinite_text(double v, bool plus)
{
    static const char *const text[] = { "nan", "inf", "-inf", "+nan", "+inf", "-inf" };
    return text[3 * plus + (v != v ? 0 : v < 0 ? 2 : 1)];
}
static int print_number(const format *f, double v, char *out)
{
    int after = f->right + 1 + (f->scientific ? f->exponent + 2 : 0);
    if (!isfinite(v)) return sprintf(out, "%*s", f->left + after, nonfinite_text(v, f->imaginary));
    digits t = f->scientific ? print_rounded(v, f->imaginary, f->right)
                             : to_digits(v, f->narrow, f->imaginary, false);
    char *end = out;
    for (int k = f->scientific ? 1 + !!t.sign : print_whole(&t); k < f->left; k++) *end++ = ' ';
    end = f->scientific ? scientific(end, &t, f->right, f->exponent) : positional(end, &t);
    while (end < out + f->left + after) *end++ = ' ';
    return (int)(end - out);
}
static int print_word(const format *f, const eg_tensor *x, value v, char *out)
{
    if (x->dtype == EG_BOOL) return sprintf(out, "%s", v.i ? " True" : "False");
    if (!is_real(x)) return sprintf(out, "%*lld", f->left, (long long)v.i);
    int n = print_number(f, v.f, out), blanks = 0;
    if (x->dtype != EG_C128) return n;
    n += print_number(f + 1, v.im, out + n);
    while (out[n - 1 - blanks] == ' ') blanks++; /* the blanks are after the j */
    memmove(out + n - blanks + 1, out + n - blanks, (size_t)blanks);
    out[n - blanks] = 'j';
    return n + 1;
}
/* An array without axes is printed as Python prints the number. */
static char *digits_of(double v, int narrow, bool plus, char *out)
{
    if (!isfinite(v)) return out + sprintf(out, "%s", nonfinite_text(v, plus));
    digits t = print_shortest(v, narrow, plus);
    double a = fabs(v), most = narrow ? 1e6 : 1e16;
    return a == 0 || (a >= 1e-4 && a < most) ? positional(out, &t)
                                             : scientific(out, &t, t.n > 1 ? t.n - 1 : -1, 2);
}
static char *dotless(char *end) { return end[-1] == '.' ? end - 1 : end; }
/* Writes the element of a tensor of rank 0 as Python prints a number. Returns the length. */
static int print_scalar(const eg_tensor *x, value v, char *out)
{
    if (x->dtype == EG_BOOL) return sprintf(out, "%s", v.i ? "True" : "False");
    if (!is_real(x)) return sprintf(out, "%lld", (long long)v.i);
    if (x->dtype == EG_C128) {
        const bool both = v.f != 0 || signbit(v.f);
        char *at = out;
        if (both) {
            *at++ = '(';
            at = dotless(digits_of(v.f, false, false, at));
        }
        at = dotless(digits_of(v.im, false, both, at));
        return (int)(at + sprintf(at, both ? "j)" : "j") - out);
    }
    char *end = digits_of(v.f, narrow_of(x), false, out);
    if (end[-1] == '.') *end++ = '0';
    return (int)(end - out);
}

/* -- brackets and lines ----------------------------------------------------------------------- */
typedef struct page {
    sink *to;
    const format *f; /* for real and imaginary parts */
    const eg_tensor *x;
    int column, blanks; /* blanks: not yet written, dropped where the line breaks */
} page;

/* Writes one word, before it a line break if it does not fit. Blanks at the end of the word are
 * written only if another word follows on the line. */
static void put_word(page *g, const char *text, int n, int indent, int width, bool first)
{
    /* column counts the blank after the last word */
    if (!first && g->column + n > width) {
        print_put(g->to, "\n", 1);
        g->column = indent;
        g->blanks = indent;
    }
    put_many(g->to, ' ', g->blanks);
    int tail = 0;
    while (tail < n && text[n - 1 - tail] == ' ') tail++;
    print_put(g->to, text, (size_t)(n - tail));
    g->blanks = tail + 1;
    g->column += n + 1;
}
/* Prints the elements along the last axis, broken into lines of at most LINE characters. */
static void print_row(page *g, int axis, char *p)
{
    const eg_tensor *x = g->x;
    int64_t n = x->dim[axis], step = x->stride[axis] * eg__width[x->dtype];
    int indent = axis + 1, width = LINE - axis - 1;
    char text[WORD];
    g->column = indent;
    g->blanks = 0;
    for (int64_t i = 0; i < n; i++) {
        if (g->f->cut && n > 2 * EDGE && i == EDGE) {
            put_word(g, "...", 3, indent, width, false);
            i = n - EDGE;
        }
        put_word(g, text, print_word(g->f, x, value_at(x, p + i * step), text), indent, width,
                 g->column == indent);
    }
    put_many(g->to, ' ', g->blanks - 1);
}
/* Prints the axes from `axis` on: brackets, and between blocks blank lines as NumPy has them. */
static void print_axes(page *g, int axis, char *p)
{
    const eg_tensor *x = g->x;
    int64_t n = x->dim[axis], step = x->stride[axis] * eg__width[x->dtype];
    print_put(g->to, "[", 1);
    if (axis == x->rank - 1)
        print_row(g, axis, p);
    else
        for (int64_t i = 0; i < n; i++) {
            bool gap = g->f->cut && n > 2 * EDGE && i == EDGE;
            if (i) {
                put_many(g->to, '\n', x->rank - 1 - axis);
                put_many(g->to, ' ', axis + 1);
            }
            if (gap) {
                print_put(g->to, "...", 3);
                put_many(g->to, '\n', x->rank - 1 - axis);
                put_many(g->to, ' ', axis + 1);
                i = n - EDGE;
            }
            print_axes(g, axis + 1, p + i * step);
        }
    print_put(g->to, "]", 1);
}

/* Prints x, scalars as Python prints a number. False after an error. */
static bool print(const char *who, sink *s, eg_tensor *x)
{
    char text[WORD];
    if (!eg__check_read(who, x)) return false;
    if (eg_size(x) == 0)
        print_put(s, "[]", 2);
    else if (x->rank == 0)
        print_put(s, text, (size_t)print_scalar(x, value_at(x, x->data), text));
    else {
        const format f[2] = { print_format_of(x, false), x->dtype == EG_C128
                                                             ? print_format_of(x, true)
                                                             : (format){ .cut = false } };
        print_axes(&(page){ .to = s, .f = f, .x = x }, 0, x->data);
    }
    return true;
}

int eg_print(FILE *file, eg_tensor *x)
{
    sink s = { .file = file };
    if (!eg__check_read("print", x)) return -1;
    if (!file)
        eg_fail_as(x->cx, EG_ERROR_MISUSE, "print: the file is NULL");
    else if (print("print", &s, x)) {
        errno = 0;
        print_put(&s, "\n", 1);
        if (!s.bad) return 0;
        eg_fail_as(x->cx, EG_ERROR_FILE, "print: cannot write: %s", strerror(errno ? errno : EIO));
    }
    return -1;
}
size_t eg_format(eg_tensor *x, char *out, size_t size)
{
    if (!out) size = 0;
    sink s = { .out = out, .size = size ? size - 1 : 0 };
    bool good = print("format", &s, x);
    if (size) out[good ? s.n < size ? s.n : size - 1 : 0] = 0;
    return s.n;
}
