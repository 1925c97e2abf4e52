/* blame.c: a gradient was wrong: which rule? For each node on the way the rule's cotangent
 * along a random v is held against the node alone, evaluated again with that operand moved along v:
 * by the complex step, or by differences for a row that has no c128. */
#include "gradcheck/gradcheck.h"
#include <math.h>

enum { NAMED = 3 };

static eg_tensor *noise(eg_ctx *cx, uint64_t salt, const eg_tensor *like)
{
    eg_tensor *t = eg__new(cx, EG_F64, like->rank, like->dim);
    for (int64_t k = 0, n = t ? eg_size(t) : 0; k < n; k++)
        ((double *)(void *)t->data)[k] = 2 * eg__unit(salt, 5, (uint64_t)k) - 1;
    return t ? t : eg__poison(cx);
}
static double dot(eg_tensor *a, eg_tensor *b, double *size)
{
    const double *x = eg_f64(a), *y = eg_f64(b);
    double sum = 0;
    for (int64_t k = 0, n = x && y ? eg_size(a) : 0; k < n; k++) {
        sum += x[k] * y[k];
        *size += fabs(x[k] * y[k]);
    }
    return sum;
}
/* t's operation on other operands: operand i is x, the rest as they are, or in c128. */
static eg_tensor *blame_again(const eg_tensor *t, int i, eg_tensor *x, bool c128)
{
    eg_tensor **in = eg__alloc(t->cx, (size_t)t->count * sizeof *in);
    for (int k = 0; in && k < t->count; k++)
        in[k] = k == i                                  ? x
                : c128 && eg__is_float(t->in[k]->dtype) ? eg_cast(t->in[k], EG_C128)
                                                        : t->in[k];
    return in ? eg_apply(t->op, t->attr, t->attr_size, t->count, in) : NULL;
}
/* ⟨u, ∂t/∂operand i · v⟩ without the rule. */
static double blame_forward(const eg_tensor *t, int i, eg_tensor *u, eg_tensor *v, double *size)
{
    eg_tensor *x = t->in[i];
    if (t->op->forward_c128 || !t->op->forward) {
        eg_tensor *z = eg_cast(x, EG_C128);
        eg_assign(eg_imag(z), eg_scale(v, 0x1p-100));
        return dot(u, eg_scale(eg_imag(blame_again(t, i, z, true)), 0x1p100), size);
    }
    double d[2], h = 1e-3;
    for (int k = 0; k < 2; k++, h /= 2) {
        double of = 0;
        const double up = dot(u, blame_again(t, i, eg_add(x, eg_scale(v, h)), false), &of);
        const double down = dot(u, blame_again(t, i, eg_sub(x, eg_scale(v, h)), false), &of);
        d[k] = (up - down) / (2 * h);
        *size += of;
    }
    return (4 * d[1] - d[0]) / 3;
}

bool eg__blame(eg__trial *c, eg_report *r, bool cut)
{
    eg_ctx *cx = c->cx;
    eg_mark m = eg_push(cx);
    eg_tensor *y = eg__trial_call(c);
    eg_sweep s = { .cx = cx, .who = "gradcheck" };
    const bool good = y && eg__sweep(&s, 1, &y, c->o.count, c->o.xs);
    const bool was = eg_nograd(cx, true);
    int named = 0;
    for (int64_t k = 0; good && k < s.n && named < NAMED; k++) {
        eg_tensor *t = s.node[k];
        for (int i = 0; t->op && t->op->rule && t->dtype == EG_F64 && i < t->count; i++) {
            if (!eg__sweep_has(&s, t->in[i]) || eg__sweep_zero(t) || t->in[i]->dtype != EG_F64)
                continue;
            eg_mark one = eg_push(cx);
            eg_tensor *u = noise(cx, 1, t), *v = noise(cx, 2, t->in[i]), *g = t->op->rule(t, u, i);
            double size = 0;
            const double rule = g ? dot(g, v, &size) : 0, own = blame_forward(t, i, u, v, &size);
            const bool refused = cx->failed; /* it cannot be applied alone, as checkpoint */
            if (refused) eg_clear(cx);
            eg__sweep_reclaim(&s);
            eg_pop(cx, one);
            if (refused || !isfinite(size) || fabs(rule - own) <= 1e-7 * size) continue;
            const eg__site at = eg__site_of(t);
            char words[256];
            named++;
            eg__report_note(c, r, EG_WRONG, -1,
                            "the rule of %s for operand %d disagrees with its own forward: %.6g, "
                            "not %.6g along a random direction",
                            eg__sites_text(&at, 1, words, sizeof words), i + 1, rule, own);
            break;
        }
    }
    eg_nograd(cx, was);
    eg_pop(cx, m);
    if (good && !named && !cut)
        eg__report_note(
            c, r, EG_RIGHT, -1,
            "each rule on the way agrees with its forward: what is missing is not on the tape "
            "(values read out of a tensor, eg_nograd, eg_keep)");
    return good;
}
