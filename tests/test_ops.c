/* test_ops.c: the table test. Every operation of eg_op_at, with each of its samples, on operands
 * with five kinds of strides: first derivatives compared with central differences, second
 * derivatives with differences of the gradient, J v with J^T w, both with complex steps, values on
 * strided operands with values on contiguous copies, f32 and c128 with f64, what the rule reads
 * (.uses), sizes 0 and 1.
 *
 * The variables are the elements of the storages of the operands, so that a stride of 0 moves
 * several elements together.
 *
 * Shapes of samples: "3x4, 5:i4, 2x3:b, ()": operands separated by commas; x between sizes, () for
 * rank 0; :iN is i64 in 0 … N−1, :b bool. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>
#include "gradcheck/gradcheck.h"
#include "tests.h"

enum { OPERANDS = 8, RANK = 6 };
typedef enum kind { CONTIGUOUS, PERMUTED, SLICED, EXPANDED, REVERSED, KINDS } kind;
static const char *const kind_name[] = { "contiguous", "permuted", "sliced", "expanded",
                                         "reversed" };

/* They have no derivative, or results that are no values to compare, and need no samples. Tensors
 * with copies cannot be read: test_copies.c. */
static const char *const unsampled[] = { "copies_unstack", "copies_stack", NULL };
/* Refuses some strides, as documented. */
static const char *const picky[] = { "view", NULL };
/* Sums whose order of addition depends on the strides: equal up to rounding, not to the bit. */
static const char *const reordered[] = {
    "einsum", "affine", "affine_activation", "attention_product", "checkpoint", "var", NULL
};
/* Operations with a gradient that cannot be computed by complex steps. */
static const char *const no_complex[] = { NULL };
/* These refuse complex operands, but not real ones. */
static const char *const parted[] = { "cast", "any", "all", NULL };

static bool listed(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (!strcmp(*list, name)) return true;
    return false;
}

/* -- operands --------------------------------------------------------------------------------- */
typedef struct operand {
    eg_dtype dtype;
    int rank;
    int64_t dim[RANK], base[RANK], below; /* base: sizes of the storage */
    int64_t n;                            /* number of elements of the storage */
    double *v;
} operand;
typedef struct point { /* the operands of a sample, with one kind of strides */
    const eg_sample *s;
    kind k;
    int count;
    operand x[OPERANDS];
    char where[160];
} point;

static uint64_t noise(uint64_t *state) /* splitmix64, Steele et al. 2014 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
static double unit(uint64_t *state) { return (double)(noise(state) >> 11) * 0x1p-53; }
/* a fixed random vector with elements in ±[.5, 1.5] */
static double weight(int64_t k, uint64_t salt)
{
    uint64_t s = (uint64_t)k * 2654435761 + salt;
    double u = unit(&s);
    return noise(&s) & 1 ? .5 + u : -.5 - u;
}

static void parse(point *p)
{
    const char *c = p->s->shapes;
    p->count = 0;
    do {
        operand *x = &p->x[p->count++];
        ck_assert_msg(p->count <= OPERANDS, "%s: too many operands", p->where);
        *x = (operand){ .dtype = EG_F64 };
        while (*c == ' ') c++;
        if (*c == '(' && c[1] == ')') c += 2;
        while (*c >= '0' && *c <= '9') {
            ck_assert_msg(x->rank < RANK, "%s: rank too large", p->where);
            x->dim[x->rank++] = strtoll(c, (char **)&c, 10);
            if (*c == 'x') c++;
        }
        if (*c == ':' && c[1] == 'b')
            x->dtype = EG_BOOL, x->below = 2, c += 2;
        else if (*c == ':' && c[1] == 'i')
            x->dtype = EG_I64, x->below = strtoll(c + 2, (char **)&c, 10);
        while (*c == ' ') c++;
        ck_assert_msg(*c == ',' || !*c, "%s: \"%s\" is no list of shapes", p->where, p->s->shapes);
    } while (*c++ == ',');
}

/* Floats are equidistant values in random order, each moved by at most a quarter of their distance:
 * no two are close, so that neither a step nor a direction of the checks changes their order. */
static void draw(point *p, uint64_t seed)
{
    double low = p->s->low, high = p->s->high;
    int64_t floats = 0, positions = 0, *place;
    if (low == 0 && high == 0) low = -2, high = 2;
    for (int i = 0; i < p->count; i++) {
        operand *x = &p->x[i];
        x->n = 1;
        for (int r = 0; r < x->rank; r++) {
            x->base[r] = p->k == PERMUTED ? x->dim[x->rank - 1 - r] : x->dim[r];
            if (p->k == SLICED && r == x->rank - 1) x->base[r] *= 2;
            if (p->k == EXPANDED && r == 0 && x->dim[r]) x->base[r] = 1;
            x->n *= x->base[r];
        }
        x->v = malloc((size_t)(x->n + 1) * sizeof *x->v);
        if (x->dtype == EG_F64) floats += x->n;
    }
    place = malloc((size_t)(floats + 1) * sizeof *place);
    for (int64_t k = 0; k < floats; k++) {
        int64_t other = (int64_t)(noise(&seed) % (uint64_t)(k + 1));
        place[k] = place[other];
        place[other] = k;
    }
    for (int i = 0; i < p->count; i++) {
        operand *x = &p->x[i];
        for (int64_t e = 0; e < x->n; e++)
            if (x->dtype != EG_F64)
                x->v[e] = (double)(noise(&seed) % (uint64_t)x->below);
            else
                x->v[e] = low + (high - low) *
                                    ((double)place[positions++] + .25 + unit(&seed) / 2) /
                                    (double)floats;
    }
    free(place);
}
/* Returns sample s of the operation with operands of kind k and random elements. */
static point sample_of(const eg_op *op, int s, kind k)
{
    point p = { .s = &op->samples[s], .k = k };
    snprintf(p.where, sizeof p.where, "%s, sample %d (\"%s\"), %s operands", op->name, s + 1,
             p.s->shapes, kind_name[k]);
    parse(&p);
    draw(&p, (uint64_t)s + 100);
    return p;
}
static void undraw(point *p)
{
    for (int i = 0; i < p->count; i++) free(p->x[i].v);
}

static eg_tensor *leaf(eg_ctx *cx, const operand *x)
{
    return eg_cast(eg_from_n(cx, EG_F64, x->v, x->rank, x->base),
                   x->dtype == EG_F64 ? eg_default_type(cx) : x->dtype);
}
static eg_tensor *strided(const operand *x, kind k, eg_tensor *t)
{
    int axes[RANK];
    if (x->rank == 0) return t;
    switch (k) {
    case PERMUTED:
        for (int r = 0; r < x->rank; r++) axes[r] = x->rank - 1 - r;
        return eg_permute_n(t, x->rank, axes);
    case SLICED: return eg_slice_axis(t, -1, 1, EG_END, 2);
    case EXPANDED: return eg_expand_n(t, x->rank, x->dim);
    case REVERSED:
        for (int r = 0; r < x->rank; r++) t = eg_flip_axis(t, r);
        return t;
    default: return t;
    }
}

/* -- one evaluation --------------------------------------------------------------------------- */
typedef struct value {
    int count; /* number of float operands */
    /* of: leaves of the float operands */
    eg_tensor *leaf[OPERANDS], *x[OPERANDS], *y, *of[OPERANDS];
} value;

static value evaluate(eg_ctx *cx, const point *p)
{
    value v = { 0 };
    eg_set_draws(cx, 0);
    for (int i = 0; i < p->count; i++) {
        v.leaf[i] = leaf(cx, &p->x[i]);
        if (p->x[i].dtype == EG_F64) v.of[v.count++] = v.leaf[i] = eg_detach(v.leaf[i]);
        v.x[i] = strided(&p->x[i], p->k, v.leaf[i]);
    }
    eg_set_draws(cx, 0);
    v.y = p->s->call(v.x);
    return v;
}
static eg_tensor *weights(eg_tensor *like, uint64_t salt)
{
    int64_t n = eg_size(like);
    double *w = malloc((size_t)(n + 1) * sizeof *w);
    for (int64_t k = 0; k < n; k++) w[k] = weight(k, salt);
    eg_tensor *t = eg_from_n(eg_context(like), EG_F64, w, eg_rank(like), eg_dims(like));
    free(w);
    return t;
}
static double along(eg_tensor *t, uint64_t salt) /* Σ weight · t */
{
    const double *v = eg_f64(t);
    double sum = 0;
    for (int64_t k = 0, n = eg_size(t); v && k < n; k++) sum += weight(k, salt) * v[k];
    return sum;
}
enum { W = 1, V = 1000 }; /* salts: of y, and (plus i) of the float operand i */

/* f[0] = ⟨w, y⟩, f[1] = Σ ⟨v, gradient of f[0]⟩ */
static void functionals(eg_ctx *cx, const point *p, double f[2])
{
    eg_mark m = eg_push(cx);
    value v = evaluate(cx, p);
    eg_tensor *g[OPERANDS];
    f[0] = along(v.y, W);
    f[1] = 0;
    if (!eg_grad(v.y, weights(v.y, W), v.count, v.of, g))
        for (int i = 0; i < v.count; i++) f[1] += along(g[i], V + (uint64_t)i);
    eg_pop(cx, m);
}

static void close_to(const point *p, const char *what, int count, const int64_t *n,
                     double *const *a, double *const *numeric, double tolerance)
{
    double largest = 1e-2; /* if all are 0, the rounding of values near 1 remains */
    for (int i = 0; i < count; i++)
        for (int64_t e = 0; e < n[i]; e++) largest = fmax(largest, fabs(numeric[i][e]));
    for (int i = 0; i < count; i++)
        for (int64_t e = 0; e < n[i]; e++)
            ck_assert_msg(fabs(a[i][e] - numeric[i][e]) <= tolerance * largest,
                          "%s: %s of float operand %d, entry %lld: %.12g, numeric %.12g", p->where,
                          what, i + 1, (long long)e, a[i][e], numeric[i][e]);
}

/* The derivatives of order 1 and 2 by the tape, by element of each float operand; and a copy of
 * them, in which elements are replaced by the same computed in another way: all of them, or under a
 * sanitizer every SLOWER-th one. */
typedef struct derivatives {
    value v;
    eg_tensor *g[OPERANDS];
    int64_t n[OPERANDS];
    double *a[2][OPERANDS], *numeric[2][OPERANDS];
} derivatives;
static derivatives derive(eg_ctx *cx, const point *p)
{
    derivatives d = { .v = evaluate(cx, p) };
    eg_tensor *h[OPERANDS];
    ck_assert_msg(!eg_grad(d.v.y, weights(d.v.y, W), d.v.count, d.v.of, d.g), "%s: %s", p->where,
                  eg_error(cx));
    for (int i = 0; i < d.v.count; i++) {
        d.n[i] = eg_size(d.v.of[i]);
        for (int order = 0; order < 2; order++) {
            d.a[order][i] = calloc((size_t)d.n[i] + 1, sizeof(double));
            d.numeric[order][i] = calloc((size_t)d.n[i] + 1, sizeof(double));
        }
        const double *first = eg_f64(d.g[i]);
        ck_assert_msg(first && eg_size(d.g[i]) == d.n[i], "%s: %s", p->where, eg_error(cx));
        memcpy(d.a[0][i], first, (size_t)d.n[i] * sizeof *first);
    }
    for (int i = 0; i < d.v.count; i++) {
        ck_assert_msg(!eg_grad(d.g[i], weights(d.g[i], V + (uint64_t)i), d.v.count, d.v.of, h),
                      "%s: second: %s", p->where, eg_error(cx));
        for (int j = 0; j < d.v.count; j++) {
            const double *second = eg_f64(h[j]);
            for (int64_t e = 0; second && e < d.n[j]; e++) d.a[1][j][e] += second[e];
        }
    }
    for (int j = 0; j < d.v.count; j++)
        for (int order = 0; order < 2; order++)
            memcpy(d.numeric[order][j], d.a[order][j], (size_t)d.n[j] * sizeof(double));
    return d;
}
/* Compares both, and frees them. */
static void agree(eg_ctx *cx, const point *p, derivatives *d, const char *with, double tolerance)
{
    static const char *const what[] = { "gradient", "second derivative" };
    char text[64];
    ck_assert_msg(!eg_error(cx), "%s: %s", p->where, eg_error(cx));
    for (int order = 0; order < 2; order++) {
        snprintf(text, sizeof text, "%s%s", what[order], with);
        close_to(p, text, d->v.count, d->n, d->a[order], d->numeric[order], tolerance);
        for (int i = 0; i < d->v.count; i++) {
            free(d->a[order][i]);
            free(d->numeric[order][i]);
        }
    }
}

/* First and second derivatives by the elements, by differences over ±h and ±2h: (4 D(h) − D(2h))/3
 * has an error of order h^4 (Richardson). */
static void check_derivatives(eg_ctx *cx, point *p)
{
    eg_mark m = eg_push(cx);
    derivatives d = derive(cx, p);
    const double step = 1e-3;
    for (int i = 0, j = 0; i < p->count; i++) {
        if (p->x[i].dtype != EG_F64) continue;
        for (int64_t e = 0; e < d.n[j]; e += SLOWER) {
            double *x = &p->x[i].v[e], at = *x, f[4][2];
            const double move[4] = { step, -step, 2 * step, -2 * step };
            for (int k = 0; k < 4; k++) {
                *x = at + move[k];
                functionals(cx, p, f[k]);
            }
            *x = at;
            for (int order = 0; order < 2; order++)
                d.numeric[order][j][e] =
                    (4 * (f[0][order] - f[1][order]) / 2 - (f[2][order] - f[3][order]) / 4) /
                    (3 * step);
        }
        j++;
    }
    agree(cx, p, &d, "", 1e-7);
    eg_pop(cx, m);
}

/* Returns ∂⟨weights, y⟩/∂(element e of operand j) by a complex step on what was recorded. */
static double stepped(eg_ctx *cx, const point *p, const value *v, eg_tensor *y, uint64_t salt,
                      int j, int64_t e)
{
    eg_mark m = eg_push(cx);
    eg_tensor *direction = eg_zeros_like(v->of[j]), *dy;
    const eg_op *unsupported;
    eg_mut_f64(direction)[e] = 1;
    ck_assert_msg(eg__complex_step(y, 1, &v->of[j], &direction, &dy, &unsupported),
                  "%s: no complex step through %s: %s", p->where,
                  unsupported ? unsupported->name : "it", eg_error(cx));
    const double d = along(dy, salt);
    eg_pop(cx, m);
    return d;
}
/* First and second derivatives by complex steps: the second on the gradient's graph. */
static void check_complex_step(eg_ctx *cx, const point *p)
{
    eg_mark m = eg_push(cx);
    derivatives d = derive(cx, p);
    for (int j = 0; j < d.v.count; j++)
        for (int64_t e = 0; e < d.n[j]; e += SLOWER) {
            d.numeric[0][j][e] = stepped(cx, p, &d.v, d.v.y, W, j, e);
            d.numeric[1][j][e] = 0;
            for (int i = 0; i < d.v.count; i++)
                d.numeric[1][j][e] += stepped(cx, p, &d.v, d.g[i], V + (uint64_t)i, j, e);
        }
    agree(cx, p, &d, " against a complex step", 1e-12);
    eg_pop(cx, m);
}
/* Complex operands without imaginary parts have the results of real ones. */
static void check_continuation(eg_ctx *cx, const point *p)
{
    eg_mark m = eg_push(cx);
    value v = evaluate(cx, p), z = evaluate(cx, p);
    for (int i = 0; i < p->count; i++)
        if (p->x[i].dtype == EG_F64) z.x[i] = strided(&p->x[i], p->k, eg_cast(z.leaf[i], EG_C128));
    eg_set_draws(cx, 0);
    z.y = p->s->call(z.x);
    ck_assert_msg(eg_ok(z.y), "%s: of c128: %s", p->where, eg_error(cx));
    ck_assert_int_eq(eg_type(z.y), eg_type(v.y) == EG_F64 ? EG_C128 : eg_type(v.y));
    const double *y = eg_f64(eg_cast(v.y, EG_F64)),
                 *c = eg_f64(eg_cast(eg_type(z.y) == EG_C128 ? eg_real(z.y) : z.y, EG_F64));
    const double *im = eg_type(z.y) == EG_C128 ? eg_f64(eg_imag(z.y)) : NULL;
    double largest = 1e-2; /* as in close_to */
    for (int64_t k = 0; k < eg_size(v.y); k++)
        if (isfinite(y[k])) largest = fmax(largest, fabs(y[k]));
    for (int64_t k = 0; k < eg_size(v.y); k++)
        ck_assert_msg((y[k] == c[k] || fabs(y[k] - c[k]) <= 1e-14 * largest) && (!im || im[k] == 0),
                      "%s: entry %lld is %.17g, in c128 %.17g%+.17gi", p->where, (long long)k, y[k],
                      c[k], im ? im[k] : 0);
    eg_pop(cx, m);
}

static void shift(point *p, double by) /* moves every variable along v */
{
    for (int i = 0, j = 0; i < p->count; i++) {
        if (p->x[i].dtype != EG_F64) continue;
        for (int64_t e = 0; e < p->x[i].n; e++) p->x[i].v[e] += by * weight(e, V + (uint64_t)j);
        j++;
    }
}

/* a · b up to rounding: relative to Σ |a_k b_k| */
static double inner(const double *a, int64_t n, uint64_t salt, double *total)
{
    double sum = 0;
    *total = 0;
    for (int64_t k = 0; k < n; k++) {
        sum += a[k] * weight(k, salt);
        *total += fabs(a[k] * weight(k, salt));
    }
    return sum;
}

/* Forward mode: J v equals the result of two backward passes, ⟨J v, w⟩ = ⟨v, J^T w⟩, and the
 * tangent of a tangent satisfies ⟨w, ∂²y v v⟩ = ⟨v, ∂⟨J^T w, v⟩⟩. */
static void check_forward(eg_ctx *cx, const point *p, const value *v, eg_tensor *const *g,
                          const double *twice, double right)
{
    eg_tensor *along_v[OPERANDS], *h[OPERANDS];
    double total, curve = 0;
    for (int i = 0; i < v->count; i++) along_v[i] = weights(v->of[i], V + (uint64_t)i);
    eg_tensor *t = eg_jvp(v->y, v->count, v->of, along_v),
              *tt = eg_jvp(t, v->count, v->of, along_v);
    const double *jv = eg_f64(t), *jjv = eg_f64(tt);
    int64_t size = eg_size(v->y);
    ck_assert_msg(jv && jjv && eg_size(t) == size && eg_size(tt) == size, "%s: jvp: %s", p->where,
                  eg_error(cx));
    double left = inner(jv, size, W, &total);
    ck_assert_msg(fabs(left - right) <= 1e-12 * total + 1e-14,
                  "%s: forward: <J v, w> = %.17g but <v, J^T w> = %.17g", p->where, left, right);
    close_to(p, "J v, forward against twice reverse,", 1, &size, (double *[]){ (double *)jv },
             (double *[]){ (double *)twice }, 1e-12);
    for (int i = 0; i < v->count; i++) {
        ck_assert_msg(!eg_grad(g[i], along_v[i], v->count, v->of, h), "%s: %s", p->where,
                      eg_error(cx));
        for (int j = 0; j < v->count; j++) curve += along(h[j], V + (uint64_t)j);
    }
    left = inner(jjv, size, W, &total);
    ck_assert_msg(fabs(left - curve) <= 1e-11 * (total + fabs(curve)) + 1e-13,
                  "%s: jvp of jvp %.17g, reverse of reverse %.17g", p->where, left, curve);
}

/* J v, as the derivative of J^T w by w, is the derivative of y along v, and ⟨J v, w⟩ = ⟨v, J^T
 * w⟩. */
static void check_adjoint(eg_ctx *cx, point *p)
{
    eg_mark m = eg_push(cx);
    value v = evaluate(cx, p);
    eg_tensor *w = weights(v.y, W), *g[OPERANDS], *part;
    int64_t size = eg_size(v.y);
    double *jv = calloc((size_t)size + 1, sizeof *jv),
           *numeric = calloc((size_t)size + 1, sizeof *numeric);
    double right = 0, total = 0;
    ck_assert_msg(!eg_grad(v.y, w, v.count, v.of, g), "%s: %s", p->where, eg_error(cx));
    for (int i = 0; i < v.count; i++) {
        right += along(g[i], V + (uint64_t)i);
        ck_assert_msg(!eg_grad(g[i], weights(g[i], V + (uint64_t)i), 1, &w, &part),
                      "%s: by the seed: %s", p->where, eg_error(cx));
        const double *d = eg_f64(part);
        for (int64_t k = 0; d && k < size; k++) jv[k] += d[k];
    }
    check_forward(cx, p, &v, g, jv, right);
    const double step = 1e-3, share[4] = { 2. / 3, -2. / 3, -1. / 12, 1. / 12 },
                 move[4] = { step, -step, 2 * step, -2 * step };
    for (int k = 0; k < 4; k++) {
        shift(p, move[k]);
        const double *y = eg_f64(evaluate(cx, p).y);
        for (int64_t e = 0; y && e < size; e++) numeric[e] += share[k] * y[e] / step;
        shift(p, -move[k]);
    }
    const double left = inner(jv, size, W, &total);
    ck_assert_msg(!eg_error(cx), "%s: %s", p->where, eg_error(cx));
    ck_assert_msg(fabs(left - right) <= 1e-12 * total + 1e-14,
                  "%s: <J v, w> = %.17g but <v, J^T w> = %.17g", p->where, left, right);
    close_to(p, "J v", 1, &size, &jv, &numeric, 1e-7);
    free(jv);
    free(numeric);
    eg_pop(cx, m);
}

static size_t width(eg_dtype t) { return t == EG_BOOL ? 1 : t == EG_F32 || t == EG_I32 ? 4 : 8; }

/* Values have the same bits as on contiguous copies. */
static void check_values(eg_ctx *cx, const point *p, bool bits)
{
    eg_mark m = eg_push(cx);
    value v = evaluate(cx, p);
    for (int i = 0; i < p->count; i++) v.x[i] = eg_copy(v.x[i]);
    eg_set_draws(cx, 0);
    eg_tensor *a = eg_contiguous(v.y), *b = eg_contiguous(p->s->call(v.x));
    ck_assert_msg(eg_ok(a) && eg_ok(b), "%s: %s", p->where, eg_error(cx));
    size_t bytes = (size_t)eg_size(a) * width(eg_type(a));
    if (bits || eg_type(a) != EG_F64)
        ck_assert_msg(!memcmp(eg_raw(a, NULL), eg_raw(b, NULL), bytes),
                      "%s: values depend on the strides", p->where);
    else
        close_to(p, "value on strides", 1, (int64_t[]){ eg_size(a) },
                 (double *[]){ (double *)eg_f64(a) }, (double *[]){ (double *)eg_f64(b) }, 1e-14);
    eg_pop(cx, m);
}

/* A change of what the rule does not read changes no bit of the gradient; a change of what it reads
 * is detected. */
static void spoil(eg_tensor *t)
{
    for (int64_t k = 0, n = eg_size(t); k < n; k++)
        if (eg_type(t) == EG_F64)
            eg_mut_f64(t)[k] = NAN;
        else if (eg_type(t) == EG_I64)
            eg_mut_i64(t)[k] = 0;
        else
            eg_mut_bool(t)[k] = !eg_bool(t)[k];
}
static void check_uses(eg_ctx *cx, const point *p)
{
    for (int i = 0; i <= p->count; i++) { /* the last one is the result */
        eg_mark m = eg_push(cx);
        value v = evaluate(cx, p);
        eg_tensor *w = weights(v.y, W), *before[OPERANDS], *after[OPERANDS];
        eg_tensor *target = i < p->count ? v.leaf[i] : v.y;
        eg_grad(v.y, w, v.count, v.of, before);
        if (eg_is_row_major(target)) {
            spoil(target);
            if (eg_grad(v.y, w, v.count, v.of, after))
                eg_clear(cx);
            else
                for (int j = 0; j < v.count; j++) {
                    const double *a = eg_f64(before[j]), *b = eg_f64(after[j]);
                    ck_assert_msg(!memcmp(a, b, (size_t)eg_size(before[j]) * sizeof *a),
                                  "%s: the gradient reads %s%.0d, and .uses does not say so",
                                  p->where, i < p->count ? "operand " : "the result",
                                  i < p->count ? i + 1 : 0);
                }
        }
        eg_pop(cx, m);
    }
}

static void check_single(eg_ctx *cx, eg_ctx *single, const point *p)
{
    eg_mark m = eg_push(cx), n = eg_push(single);
    eg_tensor *a = evaluate(cx, p).y, *b = evaluate(single, p).y;
    ck_assert_msg(eg_ok(b), "%s: in f32: %s", p->where, eg_error(single));
    eg_tensor *wide = eg_cast(b, EG_F64), *y = eg_cast(a, EG_F64);
    const double *u = eg_f64(y), *v = eg_f64(wide);
    double largest = 0;
    for (int64_t k = 0; k < eg_size(y); k++)
        if (isfinite(u[k])) largest = fmax(largest, fabs(u[k]));
    for (int64_t k = 0; k < eg_size(y); k++)
        ck_assert_msg(
            u[k] == v[k] || (isnan(u[k]) && isnan(v[k])) || fabs(u[k] - v[k]) <= 2e-5 * largest,
            "%s: entry %lld is %.9g in f32, %.9g in f64", p->where, (long long)k, v[k], u[k]);
    eg_pop(single, n);
    eg_pop(cx, m);
}

/* True if y's history contains the operation; otherwise the sample tests something else. */
static bool reaches(const eg_tensor *y, const eg_op *op, int depth)
{
    if (eg_op_of(y) == op) return true;
    for (int i = 0; depth && i < eg_operands(y); i++)
        if (reaches(eg_operand(y, i), op, depth - 1)) return true;
    return false;
}

/* The operand y is a function of the others, and the rule is the total derivative by these. */
static const char *const total[] = { "attention_gradient", NULL };
/* Checks the contracts of operations (gradcheck/contracts.c) for each node of the sample with this
 * operation. */
static void check_contracts(eg_tensor *y, const point *p, const eg_op *op, int depth)
{
    char words[256];
    eg__breach breach;
    if (eg_op_of(y) == op && !listed(total, op->name))
        ck_assert_msg(eg__contract(y, false, words, sizeof words, &breach), "%s: operand %d: %s",
                      p->where, breach.operand + 1, words);
    for (int i = 0; depth && i < eg_operands(y); i++)
        check_contracts(eg_operand(y, i), p, op, depth - 1);
}

/* -- the tests -------------------------------------------------------------------------------- */
static bool flat(const eg_op *op, eg_dtype result)
{
    return !op->rule || (result != EG_F32 && result != EG_F64);
}

static int operations(void)
{
    int n = 0;
    while (eg_op_at(n)) n++;
    return n;
}
LOOP_TEST(operations_are_complete_and_have_different_names, operations())
{
    const eg_op *op = eg_op_at(_i);
    ck_assert_msg(op->name && *op->name && op->equation && *op->equation &&
                      (!op->rule || (op->gradient && *op->gradient)),
                  "operation %d (%s) lacks a member", _i, op->name ? op->name : "?");
    for (int k = 0; k < _i; k++)
        ck_assert_msg(strcmp(eg_op_at(k)->name, op->name), "two operations are called %s",
                      op->name);
    ck_assert_msg(!op->rule || !op->forward || op->forward_c128 || listed(no_complex, op->name),
                  "%s: a gradient, and no forward_c128", op->name);
    if (listed(unsampled, op->name)) return;
    ck_assert_msg(op->samples && op->samples->call, "%s: an operation without samples is untested",
                  op->name);
    eg_ctx *cx = eg_open(.dtype = EG_F64), *single = eg_open();
    for (int s = 0; op->samples[s].call; s++)
        for (int k = 0; k < KINDS; k++) {
            point p = sample_of(op, s, (kind)k);
            eg_mark m = eg_push(cx);
            value v = evaluate(cx, &p);
            bool refused = !eg_ok(v.y), no_gradient = flat(op, eg_type(v.y)) || v.count == 0;
            if (refused && k != CONTIGUOUS && listed(picky, op->name)) {
                eg_clear(cx);
                eg_pop(cx, m);
                undraw(&p);
                continue;
            }
            ck_assert_msg(!refused, "%s: %s", p.where, eg_error(cx));
            ck_assert_msg(k != CONTIGUOUS || reaches(v.y, op, 8),
                          "%s: the call does not reach its operation", p.where);
            ck_assert_msg(op->rule || eg_type(v.y) != EG_F64 || v.count == 0,
                          "%s: float operands, float result, and no rule", p.where);
            eg_pop(cx, m);
            check_values(cx, &p, !listed(reordered, op->name));
            check_single(cx, single, &p);
            if (v.count && !listed(no_complex, op->name) && !listed(parted, op->name))
                check_continuation(cx, &p);
            if (!no_gradient) {
                check_derivatives(cx, &p);
                if (!listed(no_complex, op->name)) check_complex_step(cx, &p);
                check_adjoint(cx, &p);
                if (k == CONTIGUOUS) check_uses(cx, &p);
                if (k == CONTIGUOUS) check_contracts(evaluate(cx, &p).y, &p, op, 8);
            }
            undraw(&p);
        }
    eg_close(single);
    eg_close(cx);
}

/* eg_gradcheck on every operation, in an f32 context, on operands that f reads through `user`: it
 * reads them as f64, finds nothing wrong to second order (to third for those of `thrice`), and
 * where everything was tested it detects every mutant of the gradient. */
typedef struct captured {
    const point *p;
    eg_tensor *x[OPERANDS];
} captured;
static eg_tensor *call_captured(void *user, eg_tensor *const *xs)
{
    const captured *c = user;
    eg_tensor *x[OPERANDS];
    (void)xs;
    for (int i = 0; i < c->p->count; i++) x[i] = strided(&c->p->x[i], c->p->k, c->x[i]);
    return c->p->s->call(x);
}
static const char *const thrice[] = { "einsum", "softmax", "attention", NULL };
LOOP_TEST(gradient_at_samples, operations())
{
    const eg_op *op = eg_op_at(_i);
    if (listed(unsampled, op->name)) return;
    eg_ctx *cx = eg_open();
    for (int s = 0; op->samples[s].call; s++) {
        point p = sample_of(op, s, listed(picky, op->name) ? CONTIGUOUS : (kind)(s % KINDS));
        eg_mark m = eg_push(cx);
        captured c = { .p = &p };
        eg_tensor *of[OPERANDS], *y;
        int count = 0;
        for (int i = 0; i < p.count; i++) {
            c.x[i] = leaf(cx, &p.x[i]);
            if (p.x[i].dtype == EG_F64) of[count++] = c.x[i];
        }
        y = call_captured(&c, NULL);
        ck_assert_msg(eg_ok(y), "%s: %s", p.where, eg_error(cx));
        if (count && eg_type(y) == EG_F32 && op->rule != eg_zero_rule) {
            const eg_report *r =
                eg_gradcheck(call_captured, &c, count, of,
                             .order = listed(thrice, op->name) ? 3 : 2, .mutate = true);
            ck_assert_msg(r != NULL, "%s: %s", p.where, eg_error(cx));
            ck_assert_msg(!r->passed || (r->mutants > 0 && !r->survivors &&
                                         (r->caught > 0 || r->covered == 0)),
                          "%s: %s", p.where, r->text);
            /* samples where relu and similar functions are constant are UNTESTED */
            for (const eg_report *o = r; o; o = o->higher)
                for (int i = 0; i < count && !o->passed; i++)
                    ck_assert_msg(o->right == o->entries &&
                                      (o->input[i] == EG_RIGHT || o->input[i] == EG_UNTESTED ||
                                       o->input[i] == EG_ZERO),
                                  "%s: %s", p.where, r->text);
            r = eg_gradcheck(call_captured, &c, count, of, .oracle = EG_COMPLEX_STEP, .rtol = 1e-12,
                             .atol = 1e-12);
            ck_assert_msg(r && r->right == r->entries &&
                              !strstr(r->text, "differences instead") ==
                                  !listed(no_complex, op->name),
                          "%s: %s", p.where, r ? r->text : eg_error(cx));
            ck_assert_msg(eg_type(of[0]) == EG_F32 && eg_op_of(y),
                          "%s: the check left its operands changed", p.where);
        }
        eg_pop(cx, m);
        undraw(&p);
    }
    eg_close(cx);
}

/* An operation in blocks of two threads, on operands of the waiting context: values and gradients
 * have the same bits as there, and nothing is made in that context. */
typedef struct in_block {
    const captured *c;
    eg_tensor *anchor; /* every loss depends on it */
    const double *want;
    int64_t n;
    atomic_int other; /* number of other values, or of results of another context */
} in_block;
static eg_tensor *row_loss(eg_tensor *y, eg_tensor *anchor)
{
    const bool is_float = eg_type(y) == EG_F32 || eg_type(y) == EG_F64;
    eg_tensor *sum = eg_sum(NULL, anchor);
    return is_float ? eg_add(eg_sum(NULL, eg_cast(y, EG_F64)), sum) : sum;
}
static eg_tensor *row_block(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    in_block *b = user;
    (void)from, (void)to, (void)count;
    eg_tensor *y = call_captured((void *)(uintptr_t)b->c, NULL);
    if (!eg_ok(y)) return y;
    const double *have = eg_f64(eg_cast(y, EG_F64));
    if (eg_context(y) != cx || eg_size(y) != b->n || !have ||
        (b->n && memcmp(have, b->want, (size_t)b->n * sizeof *have)))
        atomic_fetch_add(&b->other, 1);
    return row_loss(y, b->anchor);
}
LOOP_TEST(bits_in_blocks, operations())
{
    const eg_op *op = eg_op_at(_i);
    if (listed(unsampled, op->name)) return;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 2);
    eg_eval(cx); /* the draws of a block have a separate seed */
    for (int s = 0; op->samples[s].call; s++)
        for (int k = 0; k < KINDS; k++) {
            if (k != CONTIGUOUS && listed(picky, op->name)) continue;
            point p = sample_of(op, s, (kind)k);
            eg_mark m = eg_push(cx);
            captured c = { .p = &p };
            eg_tensor *of[OPERANDS + 1], *want[OPERANDS + 1], *have[OPERANDS + 1];
            int count = 0;
            for (int i = 0; i < p.count; i++) {
                c.x[i] = leaf(cx, &p.x[i]);
                if (p.x[i].dtype == EG_F64) of[count++] = c.x[i];
            }
            in_block b = { .c = &c, .anchor = of[count++] = eg_ones(cx, 2) };
            eg_tensor *y = call_captured(&c, NULL);
            b.want = eg_f64(eg_cast(y, EG_F64)), b.n = eg_size(y);
            ck_assert_msg(b.want && !eg_grad_or_null(row_loss(y, b.anchor), NULL, count, of, want),
                          "%s: %s", p.where, eg_error(cx));
            const uint64_t nodes = eg_draws(cx);
            ck_assert_msg(!eg_grad_over(.cx = cx, .loss = row_block, .user = &b, .examples = 4,
                                        .block = 1, .count = count, .xs = of, .dxs = have),
                          "%s: %s", p.where, eg_error(cx));
            ck_assert_msg(!b.other, "%s: %d blocks differ", p.where, b.other);
            ck_assert_uint_eq(eg_draws(cx), nodes + 1);
            for (int i = 0; i < count; i++) {
                ck_assert_msg(!want[i] == !have[i], "%s: operand %d", p.where, i + 1);
                if (want[i])
                    ck_assert_msg(!memcmp(eg_f64(want[i]), eg_f64(have[i]),
                                          (size_t)eg_size(want[i]) * sizeof(double)),
                                  "%s: the gradient of operand %d differs", p.where, i + 1);
            }
            eg_pop(cx, m);
            undraw(&p);
        }
    eg_close(cx);
}

/* -- some of the gradients ------------------------------------------------------------------- */
/* Compares the gradients of the operands in `set`, g, with those of all operands. */
static void subset_close(eg_ctx *cx, const point *p, const value *v, unsigned set, bool recorded,
                         eg_tensor *const *g, eg_tensor *const *all, const char *what)
{
    for (int i = 0, k = 0; i < v->count; i++) {
        if (!(set >> i & 1)) continue;
        const double *have = eg_f64(g[k++]), *want = eg_f64(all[i]);
        double largest = 1e-2;
        ck_assert_msg(have && want, "%s: %s", p->where, eg_error(cx));
        for (int64_t e = 0; e < eg_size(all[i]); e++) largest = fmax(largest, fabs(want[e]));
        for (int64_t e = 0; e < eg_size(all[i]); e++)
            ck_assert_msg(fabs(have[e] - want[e]) <= 1e-12 * largest,
                          "%s: %s of float operand %d among those of set %x%s: %.17g, not %.17g",
                          p->where, what, i + 1, set, recorded ? "" : ", not recorded", have[e],
                          want[e]);
    }
}
/* Sets h to the gradient of Σ ⟨weights, g_i⟩ over the operands in `set` by all operands. */
static void second_of(eg_ctx *cx, const point *p, const value *v, unsigned set, eg_tensor *const *g,
                      eg_tensor **h)
{
    eg_tensor *sum = eg_scalar(cx, 0);
    /* h depends on every operand */
    for (int i = 0; i < v->count; i++) sum = eg_add(sum, eg_sum(NULL, eg_square(v->of[i])));
    for (int i = 0, k = 0; i < v->count; i++)
        if (set >> i & 1) {
            eg_tensor *w = weights(v->of[i], V + (uint64_t)i);
            sum = eg_add(sum, eg_sum(NULL, eg_mul(w, g[k++])));
        }
    ck_assert_msg(!eg_grad(sum, NULL, v->count, v->of, h), "%s: second: %s", p->where,
                  eg_error(cx));
}
/* The gradients of some operands are those that all have, also where they are not recorded, and so
 * are their derivatives. */
LOOP_TEST(any_subset_of_the_gradients, operations())
{
    const eg_op *op = eg_op_at(_i);
    if (listed(unsampled, op->name)) return;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (int s = 0; op->samples[s].call; s++)
        for (int k = 0; k < KINDS; k++) {
            if (k != CONTIGUOUS && listed(picky, op->name)) continue;
            point p = sample_of(op, s, (kind)k);
            const eg_mark m = eg_push(cx);
            value v = evaluate(cx, &p);
            eg_tensor *all[OPERANDS], *some[OPERANDS], *part[OPERANDS], *g[OPERANDS], *h[OPERANDS],
                *want[OPERANDS];
            const bool none = v.count < 2 || flat(op, eg_type(v.y));
            eg_tensor *w = none ? NULL : weights(v.y, W);
            if (!none) ck_assert_msg(!eg_grad(v.y, w, v.count, v.of, all), "%s", eg_error(cx));
            for (unsigned set = 1; !none && set < (1u << v.count) - 1; set++) {
                const eg_mark inner = eg_push(cx);
                int n = 0;
                for (int i = 0; i < v.count; i++)
                    if (set >> i & 1) part[n] = all[i], some[n++] = v.of[i];
                for (int recorded = 0; recorded < 2; recorded++) {
                    eg_nograd(cx, !recorded);
                    ck_assert_msg(!eg_grad(v.y, w, n, some, g), "%s: %s", p.where, eg_error(cx));
                    subset_close(cx, &p, &v, set, recorded, g, all, "the gradient");
                }
                second_of(cx, &p, &v, set, g, h);
                second_of(cx, &p, &v, set, part, want);
                subset_close(cx, &p, &v, (1u << v.count) - 1, true, h, want,
                             "the second derivative");
                eg_pop(cx, inner);
            }
            eg_pop(cx, m);
            undraw(&p);
        }
    eg_close(cx);
}

/* All sizes 1, then the first size of every operand 0: a value with a gradient, or an error. */
LOOP_TEST(small_sizes, operations())
{
    const eg_op *op = eg_op_at(_i);
    if (listed(unsampled, op->name)) return;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (int s = 0; op->samples[s].call; s++)
        for (int zero = 0; zero < 2; zero++) {
            point p = { .s = &op->samples[s], .k = CONTIGUOUS };
            snprintf(p.where, sizeof p.where, "%s, sample %d with sizes %s", op->name, s + 1,
                     zero ? "0" : "1");
            parse(&p);
            for (int i = 0; i < p.count; i++)
                for (int r = 0; r < p.x[i].rank; r++)
                    p.x[i].dim[r] = !zero ? 1 : r ? p.x[i].dim[r] : 0;
            draw(&p, 7);
            eg_mark m = eg_push(cx);
            value v = evaluate(cx, &p);
            eg_tensor *g[OPERANDS];
            if (eg_ok(v.y) && !flat(op, eg_type(v.y)) &&
                !eg_grad(v.y, eg_ones_like(v.y), v.count, v.of, g))
                for (int i = 0; i < v.count; i++)
                    ck_assert_msg(eg_size(g[i]) == eg_size(v.of[i]),
                                  "%s: a gradient of another size", p.where);
            if (eg_ok(v.y) && !flat(op, eg_type(v.y)) && !eg_error(cx)) {
                eg_tensor *t = eg_jvp(v.y, v.count, v.of, v.of);
                ck_assert_msg(eg_ok(t) && eg_size(t) == eg_size(v.y), "%s: jvp: %s", p.where,
                              eg_error(cx));
            }
            if (eg_ok(v.y) && !eg_error(cx) && !flat(op, eg_type(v.y)) &&
                !listed(no_complex, op->name)) {
                eg_tensor *direction[OPERANDS], *dy;
                const eg_op *unsupported;
                double sum = 0;
                for (int i = 0; i < v.count; i++) {
                    direction[i] = weights(v.of[i], V + (uint64_t)i);
                    sum += along(g[i], V + (uint64_t)i);
                }
                ck_assert_msg(eg__complex_step(v.y, v.count, v.of, direction, &dy, &unsupported),
                              "%s: complex step: %s", p.where, eg_error(cx));
                const double step = eg_item(eg_sum(NULL, dy));
                ck_assert_msg(fabs(step - sum) <= 1e-12 * (fabs(sum) + 1e-3),
                              "%s: %.17g along v, by a complex step %.17g", p.where, sum, step);
            }
            ck_assert_msg(eg_ok(v.y) || strlen(eg_error(cx)) > 10, "%s: no words", p.where);
            ck_assert_msg(!eg_error(cx) || !strstr(eg_error(cx), "without recording an error"),
                          "%s: %s", p.where, eg_error(cx));
            eg_clear(cx);
            eg_pop(cx, m);
            undraw(&p);
        }
    eg_close(cx);
}

/* Memory that ends anywhere in a value, its first and second derivatives: an error or the whole
 * result. A rule that calls another one with a result of its own may have got poison. */
#if !EG_DEBUG_ALLOC
static void *until_full(void *user, void *p, size_t old_size, size_t new_size)
{
    (void)old_size;
    if (new_size) return *(const bool *)user ? NULL : realloc(p, new_size);
    free(p);
    return NULL;
}
static void second_order(eg_ctx *cx, const point *p)
{
    eg_tensor *dx[OPERANDS], *ddx[OPERANDS], *ones[OPERANDS];
    const value v = evaluate(cx, p);
    if (!eg_ok(v.y) || (eg_type(v.y) != EG_F32 && eg_type(v.y) != EG_F64)) return;
    for (int k = 0; k < v.count; k++) ones[k] = eg_ones_like(v.of[k]);
    if (eg_grad(v.y, eg_ones_like(v.y), v.count, v.of, dx)) return;
    for (int k = 0; k < v.count; k++) {
        eg_jvp(dx[k], v.count, v.of, ones);
        eg_grad(dx[k], ones[k], v.count, v.of, ddx);
    }
    eg_jvp(v.y, v.count, v.of, ones);
}
LOOP_TEST(derivatives_without_memory, operations())
{
    const eg_op *op = eg_op_at(_i);
    enum { PART = 64, STEP = 4 };
    if (listed(unsampled, op->name)) return;
    for (int s = 0; op->samples[s].call; s++) {
        bool full = false;
        point p = sample_of(op, s, CONTIGUOUS);
        eg_ctx *cx = eg_open(.realloc = until_full, .user = &full, .threads = 1);
        eg_mark m = eg_push(cx);
        second_order(cx, &p);
        const bool refused = eg_error(cx) != NULL; /* such as c128, which has no gradient */
        eg_clear(cx);
        eg_pop(cx, m);
        int64_t room = 0;
        full = true, m = eg_push(cx);
        while (eg_scope_alloc(cx, PART)) room++;
        eg_clear(cx);
        eg_pop(cx, m);
        for (int64_t left = 0, done = 0; !refused && !done && left <= room; left += STEP) {
            m = eg_push(cx);
            for (int64_t k = left; k < room; k++) eg_scope_alloc(cx, PART);
            second_order(cx, &p);
            done = !eg_error(cx);
            ck_assert_msg(done || eg_error_code(cx) == EG_ERROR_MEMORY, "%s: %s", p.where,
                          eg_error(cx));
            eg_clear(cx);
            eg_pop(cx, m);
        }
        full = false;
        eg_close(cx);
        undraw(&p);
    }
}
#endif

TEST(the_table_ends)
{
    int n = 0;
    while (eg_op_at(n)) n++;
    ck_assert_int_gt(n, 50);
    ck_assert_ptr_null(eg_op_at(n + 1));
    ck_assert_ptr_null(eg_op_at(-1));
}
