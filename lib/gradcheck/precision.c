/* precision.c: evaluates f in f32, in which it will be used. Notes NaNs and infinities that f64
 * does not have, and digits that f32 loses and f64 does not. The measured noise of f shows how much
 * f64 loses by cancellation; f32 may lose as much in proportion. */
#include "gradcheck/contracts.h"
#include <math.h>

#define ROUNDED 6e-8
#define IN_F32  1e30 /* larger values cannot be represented in f32 */

typedef struct precision {
    eg__first_order *s;
    eg_report *r;
    bool cast;    /* no input is f32, so f32 copies of them are used */
    double *a;    /* the gradient of ⟨f, W⟩ in f64, by variable */
    eg_tensor *y; /* the result of f in f32 */
} precision;

static void precision_nonfinite(precision *p, eg_tensor *in, const char *what, double was)
{
    eg__trial *c = &p->s->c;
    char where[256];
    eg_tensor *from = eg_first_nonfinite(in);
    const eg__site at =
        from && from->op ? eg__site_of(from) : (eg__site){ .name = "one of its leaves" };
    eg__report_note(c, p->r, EG_PRECISION, -1,
                    "%s is not finite in f32, and %.6g in f64; the first such number comes from %s",
                    what, was, eg__sites_text(&at, 1, where, sizeof where));
    p->r->passed = false;
}

/* Returns x in another type, not recorded. */
static eg_tensor *retyped(eg_tensor *x, eg_dtype dtype) { return eg_detach(eg_cast(x, dtype)); }
/* True if the rule of t for operand i gives another cotangent in f32 than in f64, for operands and
 * g that have the same values in both. */
static bool rule_differs(eg_tensor *t, int i)
{
    eg_tensor *x[EG_ASKED_OPERANDS], *d, *e;
    eg_tensor *w = eg__contract_noise(t, 1), *g = w ? retyped(w, EG_F32) : NULL;
    for (int k = 0; k < t->count; k++)
        x[k] = eg__is_float(t->in[k]->dtype) ? retyped(t->in[k], EG_F64) : t->in[k];
    eg_tensor *y = g ? eg_apply(t->op, t->attr, t->attr_size, t->count, x) : NULL;
    if (!eg_ok(y) || y->dtype != EG_F64 || !eg__contract_rule(t, g, i, &d) || !d ||
        !eg__contract_rule(y, retyped(g, EG_F64), i, &e) || !e)
        return false;
    d = retyped(d, EG_F64);
    return eg_ok(d) && eg__all_finite(e) && !eg__contract_alike(d, e, 2e-4);
}
/* Finds the first of the user's operations whose rule differs, and returns words that name it; ""
 * if there is none. */
static const char *precision_culprit(precision *p, eg_tensor *y, char *words, size_t size)
{
    eg_ctx *cx = p->s->c.cx;
    eg_tensor **node;
    int64_t n = 0;
    char where[256];
    words[0] = 0;
    for (int64_t k = 0; eg_ok(y) && (k || eg__nodes(y, &n, &node)) && k < n && !words[0]; k++) {
        eg_tensor *t = node[k];
        if (!t->op || eg__in_table(t->op) || !t->op->rule || t->dtype != EG_F32 ||
            t->count > EG_ASKED_OPERANDS)
            continue;
        const eg__site at = eg__site_of(t);
        for (int i = 0; i < t->count && !words[0]; i++) {
            if (t->in[i]->dtype == EG_F32 && rule_differs(t, i))
                snprintf(words, size, "; the rule of %s for operand %d differs",
                         eg__sites_text(&at, 1, where, sizeof where), i + 1);
            eg__refused(cx);
        }
    }
    return words;
}

/* Compares values of f32 with those of f64; false if a note was added. */
static bool precision_compare(precision *p, eg_tensor *in, const double *now, const double *was,
                              int64_t n, double lossy, const char *what)
{
    double most = 0, apart = 0;
    char words[320];
    for (int64_t k = 0; k < n; k++) {
        if (!(fabs(was[k]) < IN_F32)) return true;
        if (!isfinite(now[k])) {
            precision_nonfinite(p, in, what, was[k]);
            return false;
        }
        most = fmax(most, fabs(was[k]));
        apart = fmax(apart, fabs(now[k] - was[k]));
    }
    if (p->cast || !(apart > 5e-4 * most) || apart <= 300 * ROUNDED * lossy * most) return true;
    eg__report_note(&p->s->c, p->r, EG_PRECISION, -1,
                    "%s is off by %.2g of its largest in f32, where f64 loses no such digits%s",
                    what, apart / most, precision_culprit(p, p->y, words, sizeof words));
    p->r->passed = false;
    return false;
}
/* Returns the rounding of f as a multiple of that of one operation. */
static double precision_lossy(const eg__trial *c)
{
    double noise = 0, most = 0, lossy;
    for (int64_t k = 0; k < c->size; k++) {
        noise = fmax(noise, c->noise[k]);
        most = fmax(most, fabs(c->middle[k]));
    }
    lossy = most > 0 ? noise / (1.2e-16 * most) : 1;
    for (int64_t k = 0; k < c->vars && !c->o.full && c->scale > 0; k++)
        lossy = fmax(lossy, c->jitter[k] / (1.2e-16 * c->scale));
    return fmax(1, lossy);
}

/* Computes f and its gradient in f32 and compares both. */
static void precision_run(precision *p, eg_tensor *const *x)
{
    const eg__trial *c = &p->s->c;
    eg_ctx *cx = c->cx;
    eg_tensor *dx[EG_CHECK_INPUTS], *y = c->o.f(c->o.user, x), *w;
    if (cx->failed || !eg_ok(y) || y->cx != cx || eg_size(y) != c->size) return;
    w = eg_cast(c->w, (eg_dtype)y->dtype);
    eg_tensor *all = eg_cast(y, EG_F64);
    const double lossy = precision_lossy(c), *now = eg_f64(all);
    p->y = y;
    if (!now || !precision_compare(p, y, now, c->middle, c->size, lossy, "f")) return;
    double *sum = eg__alloc(cx, (size_t)(c->vars + 1) * sizeof *sum);
    for (int k = 0; k < c->o.count; k++)
        if (x[k]->op && !p->cast) return; /* its history would be followed too */
    if (!sum || eg__grad(y, w, c->o.count, x, dx)) return;
    for (int64_t k = 0; k < c->vars; k++) sum[k] = 0;
    eg_tensor *in = NULL;
    for (int k = 0; k < c->o.count; k++) {
        bool twice = false;
        for (int j = 0; j < k; j++) twice |= c->o.xs[j] == c->o.xs[k];
        const double *d = twice ? NULL : eg_f64(eg_cast(dx[k], EG_F64));
        for (int64_t j = 0, n = d ? eg_size(dx[k]) : 0; j < n; j++) {
            sum[c->var_of[k][j]] += d[j];
            if (!in && !isfinite(d[j])) in = dx[k];
        }
    }
    precision_compare(p, in ? in : y, sum, p->a, c->vars, lossy, "the gradient");
}

bool eg__precision(eg__first_order *s, eg_report *r)
{
    const eg__trial *c = &s->c;
    eg_ctx *cx = c->cx;
    eg_tensor *x[EG_CHECK_INPUTS];
    precision p = { .s = s, .r = r, .cast = true };
    /* inside of f of another check everything is f64 */
    if (!r->passed || !c->size || c->again || c->probe->cast.name || cx->probe) return true;
    for (int k = 0; k < c->o.count; k++) p.cast &= c->o.xs[k]->dtype != EG_F32;
    for (int64_t k = 0; k < c->cells; k++)
        if (c->point[k] != 0 && !(fabs(c->point[k]) < IN_F32 && fabs(c->point[k]) > 1 / IN_F32))
            return true;
    const eg_mark m = eg_push(cx);
    const eg_dtype dtype = cx->dtype;
    const uint64_t draw = cx->draw;
    const bool recording = eg_nograd(cx, false);
    eg_set_draws(cx, c->draws);
    p.a = eg__alloc(cx, (size_t)(c->vars + 1) * sizeof *p.a);
    for (int64_t k = 0; k < c->vars && p.a; k++) {
        p.a[k] = 0;
        for (int64_t o = 0; o < c->outs; o++)
            p.a[k] += s->a[o * c->vars + k] * (c->o.full ? c->weight[o] : 1);
    }
    for (int k = 0; k < c->o.count && !cx->failed; k++)
        x[k] = p.cast ? eg_detach(eg_cast(c->o.xs[k], EG_F32)) : c->o.xs[k];
    if (p.cast) cx->dtype = EG_F32;
    if (p.a && !cx->failed) precision_run(&p, x);
    /* f may refuse f32 */
    eg__refused(cx);
    cx->dtype = dtype;
    cx->draw = draw;
    cx->training = c->training;
    eg_nograd(cx, recording);
    eg_pop(cx, m);
    return !cx->failed;
}
