/* gradcheck.c: does the gradient of f agree with differences of f, entry by entry, and was anything tested?
 *
 * L(x) = ⟨f(x), W⟩ with one fixed random W, all in f64. Per entry three central differences at h, h/2, h/4 and Richardson's
 * extrapolation: D(h) = (L(x+h) − L(x−h))/2h = L' + a h² + b h⁴ + …, R = (4 D(h/2) − D(h))/3, n = (16 R(h/2) − R(h))/15,
 * whose own error estimate is |n − R(h/2)| plus the rounding of L over h.
 * Right if |a − n| ≤ rtol |n| + atol s + err, s the largest |n| of all entries; covered if a = 0 would have been refused. */
#include "core/context.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 16, INPUTS = 64, TEXT = 8192 };

typedef struct check {
    eg_ctx *cx;
    eg_gradcheck_args o;
    eg_tensor *x[INPUTS];       /* f64 copies, row-major            */
    eg_tensor *w;               /* W, made at the first evaluation  */
    uint64_t draws;             /* put back before every evaluation */
} check;

static double largest(double a, double b) { return a > b ? a : b; }

/* L at the present point. */
static bool value(check *c, double *out)
{
    eg_ctx *cx = c->cx;
    eg_mark m = eg_push(cx);
    bool was = eg_nograd(cx, true);
    eg_set_draws(cx, c->draws);
    eg_tensor *y = c->o.f(c->o.user, c->x);
    if (!eg__failed(cx) && y && y->dtype == EG_F32) y = eg_cast(y, EG_F64);
    eg_nograd(cx, was);
    const double *v = eg__failed(cx) ? NULL : eg_f64(y), *w = v ? eg_f64(c->w) : NULL;
    double sum = 0;
    for (int64_t k = 0, n = w ? eg_size(y) : 0; k < n; k++) sum += v[k] * w[k];
    *out = sum;
    eg_pop(cx, m);
    return w != NULL;
}

/* The gradient by reverse mode at the present point, one row-major f64 array per input, in the open scope. */
static bool gradient(check *c, const double **a)
{
    eg_ctx *cx = c->cx;
    eg_tensor *dx[INPUTS];
    eg_set_draws(cx, c->draws);
    bool was = eg_nograd(cx, false);
    eg_tensor *y = c->o.f(c->o.user, c->x);
    if (!y) eg_fail(cx, "gradcheck: f returned NULL");
    else if (eg_context(y) != cx) eg_fail(cx, "gradcheck: the result of f belongs to another context");
    bool good = !eg__failed(cx) && eg__check("gradcheck: the result of f", y);
    if (good && !eg__is_float(y->dtype)) { eg_fail(cx, "gradcheck: f returns %s; only floats have gradients", eg_type_name(y->dtype)); good = false; }
    if (good && !c->w) {
        uint64_t k = 0;
        if ((c->w = eg__new(cx, EG_F64, y->rank, y->dim)))
            for (double *w = (double *)(void *)c->w->data, *end = w + eg_size(c->w); w < end; w++, k++) *w = 0.5 + eg__unit(c->o.seed ^ 0x9e3779b9u, 1, k);
        good = c->w != NULL;
    }
    if (good && !eg__same_shape(c->w, y)) { eg_fail(cx, "gradcheck: f returns another shape at its second call"); good = false; }
    if (good) good = eg_grad(y, y->dtype == EG_F64 ? c->w : eg_cast(c->w, (eg_dtype)y->dtype), c->o.count, c->x, dx) == 0;
    eg_nograd(cx, was);
    for (int k = 0; good && k < c->o.count; k++) good = (a[k] = eg_f64(dx[k])) != NULL;
    return good;
}

typedef struct slope { double n, err, left, right, bend; } slope;   /* bend: |right − left| at h/4 over the same at h: 1/4 where smooth, 1 at a kink */

/* d/dt L(x + t·direction) at t = 0; direction NULL: the unit vector of one entry. */
static bool move(check *c, int input, int64_t index, double base, double t, double *const *from, double *const *along)
{
    if (!along) { ((double *)(void *)c->x[input]->data)[index] = base + t; return true; }
    for (int k = 0; k < c->o.count; k++)
        for (int64_t j = 0, n = eg_size(c->x[k]); j < n; j++) ((double *)(void *)c->x[k]->data)[j] = from[k][j] + t * along[k][j];
    return true;
}
static bool differences(check *c, int input, int64_t index, double *const *from, double *const *along, slope *s)
{
    double base = along ? 0 : ((double *)(void *)c->x[input]->data)[index];
    volatile double up = base + 1.0 / 256 * largest(1, fabs(base));
    double h = up - base, mid, d[3], most = 0, plus[3], minus[3];    /* h exactly representable at base */
    if (!value(c, &mid)) return false;
    for (int k = 0; k < 3; k++) {
        double t = ldexp(h, -k);
        move(c, input, index, base, t, from, along);
        if (!value(c, &plus[k])) return false;
        move(c, input, index, base, -t, from, along);
        if (!value(c, &minus[k])) return false;
        d[k] = (plus[k] - minus[k]) / (2 * t);
        most = largest(most, largest(fabs(plus[k]), fabs(minus[k])));
    }
    move(c, input, index, base, 0, from, along);
    double r0 = (4 * d[1] - d[0]) / 3, r1 = (4 * d[2] - d[1]) / 3, t = h / 4;
    s->n = (16 * r1 - r0) / 15;
    s->err = fabs(s->n - r1) + 4 * 2.3e-16 * most / t;
    s->left = (mid - minus[2]) / t;
    s->right = (plus[2] - mid) / t;
    double wide = fabs((plus[0] - mid) / h - (mid - minus[0]) / h);
    s->bend = wide > 0 ? fabs(s->right - s->left) / wide : 0;
    return true;
}

static eg_verdict verdict_of(const check *c, double a, const slope *n, double scale)
{
    double slack = c->o.rtol * fabs(n->n) + c->o.atol * scale + n->err, jump = fabs(n->right - n->left);
    double low = n->left < n->right ? n->left : n->right, high = n->left + n->right - low;
    if (isnan(a) || isnan(n->n)) return EG_WRONG;
    bool kink = n->bend > 0.6 && jump > 1e-4 * largest(scale, fabs(n->n));
    if (kink && a >= low - slack - 0.02 * jump && a <= high + slack + 0.02 * jump) return EG_KINK;
    if (fabs(a - n->n) <= slack) return EG_RIGHT;
    return n->err > 1e-2 * largest(fabs(n->n), 1e-3 * scale) ? EG_NOISE : EG_WRONG;
}
static bool covered(const check *c, const slope *n, double scale) { return fabs(n->n) > c->o.rtol * fabs(n->n) + c->o.atol * scale + n->err; }

/* -- one input without a covered entry: does another point test it? -------------------------------------------------------------------- */
static eg_verdict elsewhere(check *c, int input, char *where, size_t room)
{
    int64_t size = eg_size(c->x[input]);
    double *x = (double *)(void *)c->x[input]->data, *kept = eg__alloc(c->cx, (size_t)size * sizeof *kept);
    eg_verdict found = EG_ZERO;
    if (!kept) return EG_UNTESTED;
    memcpy(kept, x, (size_t)size * sizeof *x);
    static const char *const names[] = { "scaled by 0.1", "scaled by 0.01", "drawn again from [-1, 1)" };
    for (int turn = 0; turn < 3 && found == EG_ZERO; turn++) {
        for (int64_t j = 0; j < size; j++)
            x[j] = turn == 2 ? 2 * eg__unit(c->o.seed, 7, (uint64_t)j) - 1 : kept[j] * (turn ? 0.01 : 0.1);
        const double *a[INPUTS];
        eg_mark m = eg_push(c->cx);
        if (gradient(c, a)) {
            slope *s = eg__alloc(c->cx, (size_t)size * sizeof *s);
            double scale = 0;
            for (int64_t j = 0; s && j < size && !eg__failed(c->cx); j++)
                if (differences(c, input, j, NULL, NULL, &s[j])) scale = largest(scale, fabs(s[j].n));
            for (int64_t j = 0; s && j < size && !eg__failed(c->cx); j++) {
                if (!covered(c, &s[j], scale) && fabs(a[input][j]) <= c->o.atol * scale + s[j].err) continue;
                eg_verdict v = verdict_of(c, a[input][j], &s[j], scale);
                if (v == EG_WRONG) found = EG_WRONG;
                else if (found == EG_ZERO && covered(c, &s[j], scale)) found = EG_UNTESTED;
            }
            if (found != EG_ZERO) snprintf(where, room, "%s", names[turn]);
        }
        eg_pop(c->cx, m);
    }
    memcpy(x, kept, (size_t)size * sizeof *x);
    return found;
}

/* -- the report in words ------------------------------------------------------------------------------------------------------------------ */
static const char *const verdict_name[] = {
    [EG_RIGHT] = "right", [EG_WRONG] = "WRONG", [EG_KINK] = "KINK", [EG_NOISE] = "NOISE", [EG_UNTESTED] = "UNTESTED", [EG_ZERO] = "zero", [EG_EMPTY] = "empty",
};
typedef struct text { char *s; size_t n; } text;
static void say(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int w = vsnprintf(t->s + t->n, TEXT - t->n, format, ap);
    va_end(ap);
    if (w > 0) t->n += (size_t)w < TEXT - t->n ? (size_t)w : TEXT - t->n - 1;
}

/* The k-th of "A, B" (or of "i j, j k"), trimmed; length 0 if there is none. */
static const char *part(const char *list, int k, int *length)
{
    *length = 0;
    if (!list) return "";
    while (k-- > 0) { list = strchr(list, ','); if (!list) return ""; list++; }
    while (*list == ' ') list++;
    *length = (int)strcspn(list, ",");
    while (*length && list[*length - 1] == ' ') --*length;
    return list;
}
static void say_input(text *t, const check *c, int input)
{
    int n;
    const char *name = part(c->o.names, input, &n);
    if (n) say(t, "%.*s", n, name);
    else say(t, "x%d", input);
}
static void say_entry(text *t, const check *c, const eg_entry *e)
{
    const eg_tensor *x = c->x[e->input];
    int n, w = 0;
    const char *axes = part(c->o.axes, e->input, &n);
    bool words = memchr(axes, ' ', (size_t)n) != NULL;
    say(t, "d");
    say_input(t, c, e->input);
    if (e->index < 0) return;
    int64_t rest = e->index, ix[EG_RANK_MAX];
    for (int r = x->rank; r-- > 0; ) { ix[r] = rest % x->dim[r]; rest /= x->dim[r]; }
    for (int r = 0; r < x->rank; r++) {
        say(t, r ? "," : "[");
        while (w < n && axes[w] == ' ') w++;
        int len = !words ? w < n : (int)strcspn(axes + w, " ,");
        if (words && len > n - w) len = n - w;
        if (len) say(t, "%.*s=", len, axes + w);
        w += len;
        say(t, "%lld", (long long)ix[r]);
    }
    if (x->rank) say(t, "]");
}

static int worse(const void *p, const void *q)
{
    const eg_entry *a = p, *b = q;
    static const int rank[] = { [EG_RIGHT] = 0, [EG_ZERO] = 0, [EG_EMPTY] = 0, [EG_UNTESTED] = 1, [EG_NOISE] = 2, [EG_KINK] = 3, [EG_WRONG] = 4 };
    if (rank[a->verdict] != rank[b->verdict]) return rank[b->verdict] - rank[a->verdict];
    double x = fabs(a->analytic - a->numeric), y = fabs(b->analytic - b->numeric);
    if (isnan(x) != isnan(y)) return isnan(x) ? -1 : 1;
    return x > y ? -1 : x < y ? 1 : a->input != b->input ? a->input - b->input : a->index < b->index ? -1 : a->index > b->index;
}
static bool fails(eg_verdict v) { return v == EG_WRONG || v == EG_KINK || v == EG_NOISE || v == EG_UNTESTED; }

static void write_report(check *c, eg_report *r, char (*where)[64], const eg_report *second)
{
    text t = { .s = (char *)r->text };
    say(&t, "gradcheck: %s: %lld of %lld entries right, %lld covered; worst |analytic - numeric| is %.1e of the largest (rtol %.0e, atol %.0e)\n",
        r->passed && (!second || second->passed) ? "passed" : "FAILED", (long long)r->right, (long long)r->entries, (long long)r->covered, r->worst, c->o.rtol, c->o.atol);
    for (int k = 0; k < c->o.count; k++) {
        if (r->input[k] == EG_RIGHT) continue;
        say(&t, "  ");
        say_input(&t, c, k);
        say(&t, ": %s", verdict_name[r->input[k]]);
        if (where[k][0]) say(&t, r->input[k] == EG_UNTESTED ? ": no entry is above the noise here; it can be tested %s" : ": seen with this input %s", where[k]);
        else if (r->input[k] == EG_ZERO) say(&t, ": the gradient is zero, analytic and numeric");
        say(&t, "\n");
    }
    for (int k = 0; k < r->shown; k++) {
        const eg_entry *e = &r->entry[k];
        if (!fails(e->verdict)) continue;
        say(&t, "  ");
        say_entry(&t, c, e);
        say(&t, ": %s: analytic %.9g, numeric %.9g, left %.6g, right %.6g, numeric error %.0e\n", verdict_name[e->verdict], e->analytic, e->numeric, e->left, e->right, e->error);
    }
    if (second) say(&t, "second order: %s", second->text);
}

/* -- the check ------------------------------------------------------------------------------------------------------------------------------ */
static void judge(check *c, eg_report *r, eg_entry *all, const slope *n, int64_t entries, double scale)
{
    eg_verdict *input = (eg_verdict *)r->input;
    for (int64_t k = 0; k < entries; k++) {
        eg_entry *e = &all[k];
        e->verdict = verdict_of(c, e->analytic, &n[k], scale);
        r->right += e->verdict == EG_RIGHT;
        r->covered += covered(c, &n[k], scale);
        if (scale > 0) r->worst = largest(r->worst, fabs(e->analytic - e->numeric) / scale);
        if (isnan(e->analytic) || isnan(e->numeric)) r->worst = INFINITY;
        if (fails(e->verdict) && (input[e->input] == EG_RIGHT || e->verdict == EG_WRONG)) input[e->input] = e->verdict;
    }
}

static eg_report *one_order(check *c, const eg_report *second)
{
    eg_ctx *cx = c->cx;
    const double *a[INPUTS];
    int count = c->o.count;
    if (!gradient(c, a)) return NULL;
    int64_t entries = 0;
    if (c->o.directions > 0) entries = c->o.directions;
    else for (int k = 0; k < count; k++) entries += eg_size(c->x[k]);
    eg_report *r = eg__alloc(cx, sizeof *r);
    eg_verdict *input = eg__alloc(cx, (size_t)(count + 1) * sizeof *input);
    char *words = eg__alloc(cx, TEXT);
    eg_entry *all = eg__alloc(cx, (size_t)(entries + 1) * sizeof *all);
    slope *n = eg__alloc(cx, (size_t)(entries + 1) * sizeof *n);
    if (!r || !input || !words || !all || !n) return NULL;
    char where[INPUTS][64] = { { 0 } };
    bool tested[INPUTS] = { false };
    *r = (eg_report){ .entries = entries, .input = input, .text = words, .entry = all };
    double scale = 0;
    int64_t at = 0;
    for (int k = 0; k < count; k++) input[k] = eg_size(c->x[k]) ? EG_RIGHT : EG_EMPTY;

    if (c->o.directions > 0) {
        double *from[INPUTS], *along[INPUTS];
        for (int k = 0; k < count; k++) {
            int64_t size = eg_size(c->x[k]);
            if (!(from[k] = eg__alloc(cx, (size_t)size * sizeof **from)) || !(along[k] = eg__alloc(cx, (size_t)size * sizeof **along))) return NULL;
            memcpy(from[k], c->x[k]->data, (size_t)size * sizeof **from);
        }
        for (at = 0; at < entries; at++) {
            double sum = 0;
            for (int k = 0; k < count; k++)
                for (int64_t j = 0, size = eg_size(c->x[k]); j < size; j++) {
                    along[k][j] = 2 * eg__unit(c->o.seed, (uint64_t)(16 + at * count + k), (uint64_t)j) - 1;
                    sum += along[k][j] * a[k][j];
                }
            if (!differences(c, 0, 0, from, along, &n[at])) return NULL;
            all[at] = (eg_entry){ .input = 0, .index = -1, .analytic = sum };
        }
    } else
        for (int k = 0; k < count; k++)
            for (int64_t j = 0, size = eg_size(c->x[k]); j < size; j++, at++) {
                if (!differences(c, k, j, NULL, NULL, &n[at])) return NULL;
                all[at] = (eg_entry){ .input = k, .index = j, .analytic = a[k][j] };
            }
    for (int64_t k = 0; k < entries; k++) {
        all[k].numeric = n[k].n; all[k].left = n[k].left; all[k].right = n[k].right; all[k].error = n[k].err;
        if (fabs(n[k].n) > scale) scale = fabs(n[k].n);
    }
    judge(c, r, all, n, entries, scale);
    for (int64_t k = 0; k < entries; k++) tested[all[k].input] |= covered(c, &n[k], scale);
    for (int k = 0; k < count && c->o.directions <= 0; k++)
        if (input[k] == EG_RIGHT && !tested[k]) input[k] = elsewhere(c, k, where[k], sizeof where[k]);
    if (eg__failed(cx)) return NULL;
    r->passed = true;
    for (int k = 0; k < count; k++) r->passed &= !fails(input[k]);
    for (int64_t k = 0; k < entries; k++) r->passed &= !fails(all[k].verdict);
    qsort(all, (size_t)entries, sizeof *all, worse);
    r->shown = entries < SHOWN ? (int)entries : SHOWN;
    write_report(c, r, where, second);
    if (second) r->passed &= second->passed;
    return r;
}

/* Order 2: x → Σ_k ⟨∂L/∂x_k, V_k⟩, with fixed random V, is a function like any other. */
static eg_tensor *pulled(void *user, eg_tensor *const *xs)
{
    check *c = user;
    eg_tensor *dx[INPUTS], *sum = NULL;
    bool was = eg_nograd(c->cx, false);
    eg_tensor *y = c->o.f(c->o.user, xs);
    eg_grad(y, y && eg_type(y) == EG_F32 ? eg_cast(c->w, EG_F32) : c->w, c->o.count, xs, dx);
    for (int k = 0; k < c->o.count && !eg__failed(c->cx); k++) {
        eg_tensor *v = eg__new(c->cx, EG_F64, dx[k]->rank, dx[k]->dim);
        for (int64_t j = 0, n = v ? eg_size(v) : 0; j < n; j++) ((double *)(void *)v->data)[j] = 0.5 + eg__unit(c->o.seed, (uint64_t)(1000 + k), (uint64_t)j);
        eg_tensor *p = eg_sum(NULL, eg_mul(dx[k], v));
        sum = sum ? eg_add(sum, p) : p;
    }
    eg_nograd(c->cx, was);
    return eg__failed(c->cx) ? eg__poison(c->cx) : sum;
}

const eg_report *eg_gradcheck_with(const eg_gradcheck_args *given)
{
    check c = { .o = { .size = sizeof c.o } };
    if (given) memcpy(&c.o, given, given->size < sizeof c.o ? given->size : sizeof c.o);
    if (!(c.cx = eg__context_of(c.o.count, c.o.xs)) || c.cx->failed) return NULL;
    if (!c.o.f) { eg_fail(c.cx, "gradcheck: the function is NULL"); return NULL; }
    if (c.o.count > INPUTS) { eg_fail(c.cx, "gradcheck: %d inputs; at most %d", c.o.count, INPUTS); return NULL; }
    if (c.o.order < 0 || c.o.order > 2) { eg_fail(c.cx, "gradcheck: order %d is not 1 or 2", c.o.order); return NULL; }
    if (!(c.o.rtol >= 0 || c.o.rtol == EG_OFF) || !(c.o.atol >= 0 || c.o.atol == EG_OFF) || c.o.directions < 0) {
        eg_fail(c.cx, "gradcheck: rtol %g, atol %g or directions %d is negative or no number", c.o.rtol, c.o.atol, c.o.directions);
        return NULL;
    }
    if (!eg__check_all(c.cx, "gradcheck", c.o.count, c.o.xs)) return NULL;
    c.o.rtol = eg__opt(c.o.rtol, 1e-7);
    c.o.atol = eg__opt(c.o.atol, 1e-9);
    c.draws = c.cx->draw;
    for (int k = 0; k < c.o.count; k++) {
        eg_tensor *x = c.o.xs[k];
        if (!eg__is_float(x->dtype)) { eg_fail(c.cx, "gradcheck: input %d is %s; only floats have gradients", k + 1, eg_type_name(x->dtype)); return NULL; }
        if (!(c.x[k] = eg__new(c.cx, EG_F64, x->rank, x->dim))) return NULL;
        eg__copy(c.x[k], x);
        const double *v = (const double *)(const void *)c.x[k]->data;
        for (int64_t j = 0, n = eg_size(x); j < n; j++)
            if (!isfinite(v[j])) { eg_fail(c.cx, "gradcheck: input %d has %g at element %lld", k + 1, v[j], (long long)j); return NULL; }
    }
    const eg_report *second = NULL;
    if (c.o.order == 2) {
        const double *a[INPUTS];
        if (!gradient(&c, a)) return NULL;      /* makes W */
        check d = c;
        d.o.f = pulled;
        d.o.user = &c;
        d.w = NULL;
        if (!(second = one_order(&d, NULL))) return NULL;
    }
    const eg_report *r = one_order(&c, second);
    eg_set_draws(c.cx, c.draws);
    return r;
}

int eg_report_print(FILE *f, const eg_report *r) { return r && f && fputs(r->text, f) >= 0 ? 0 : -1; }
