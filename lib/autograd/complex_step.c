/* complex_step.c: the complex-step derivative of recorded operations (Squire, Trapp 1998; Martins,
 * Sturdza, Alonso 2003).
 *
 * The operations between xs and y are applied again in c128 to xs[k] + i h v_k; everything else
 * remains as recorded, including random draws (they are attributes). Then Im y / h is the
 * derivative of y along v. No difference is formed, so the error is that of the functions, about
 * 1e-15. h is so small that h² is negligible compared with 1, and a power of 2, so that h v and the
 * quotient are exact.
 *
 * Rules consist of operations, so y may be a gradient. Operations that depend on xs only through
 * comparisons or integers are not applied again. */
#include "autograd/autograd.h"

#define H 0x1p-100

/* True if operand i still has the value that t read. A node that is applied again is computed from
 * the values at recording, so it must not have been written to since. */
static bool complex_fresh(const eg_sweep *s, const eg_tensor *t, int i)
{
    const eg_tensor *x = t->in[i];
    const bool repeated = eg__sweep_at(s, x) && x->count && x->st == &x->own;
    if (eg__versions(t)[i] == (repeated ? x->version : x->st->version)) return true;
    eg__fail_because(
        s->cx, EG_CAUSE_CHANGED, EG_ERROR_MISUSE,
        "%s: operand %d of %s was changed in place, and what was recorded cannot be evaluated "
        "again",
        s->who, i + 1, t->op->name);
    return false;
}

/* Returns t's operation applied in c128, if an operand of t has a new value. NULL if none has,
 * after an error, and with *unsupported set if the operation has no forward_c128. */
static eg_tensor *complex_again(eg_sweep *s, const eg_tensor *t, const eg_op **unsupported)
{
    eg_tensor **in = NULL;
    for (int i = 0; i < t->count && !in; i++)
        if (eg__sweep_at(s, t->in[i]) && !(in = eg__alloc(s->cx, (size_t)t->count * sizeof *in)))
            return NULL;
    if (!in) return NULL;
    if (t->op->forward && !t->op->forward_c128) {
        *unsupported = t->op;
        return NULL;
    }
    for (int i = 0; i < t->count; i++) {
        if (!complex_fresh(s, t, i)) return NULL;
        in[i] = eg__sweep_at(s, t->in[i]);
        const int dtype = t->in[i]->dtype;
        const bool number = eg__is_float(dtype) || eg__is_half(dtype);
        if (!in[i]) in[i] = number ? eg_cast(t->in[i], EG_C128) : t->in[i];
    }
    eg_tensor *z = eg_apply(t->op, t->attr, t->attr_size, t->count, in);
    eg__sweep_reclaim(s);
    return z;
}

/* Returns z + i h v, or t + i h v if z is NULL. A view is copied before it is changed. */
static eg_tensor *complex_moved(eg_tensor *t, eg_tensor *z, eg_tensor *v)
{
    if (!z || z->st != &z->own) z = z ? eg_copy(z) : eg_cast(t, EG_C128);
    eg_tensor *im = eg_imag(z);
    return eg_assign(im, eg_add(im, eg_scale(eg_cast(v, EG_F64), H))) ? NULL : z;
}

/* Returns y in c128 where xs[k] has the value zs[k] or, with zs NULL, the value xs[k] + i h vs[k].
 * NULL if y depends on no x, after an error, and with *unsupported set. */
static eg_tensor *complex_evaluated(eg_tensor *y, int count, eg_tensor *const *xs,
                                    eg_tensor *const *zs, eg_tensor *const *vs,
                                    const eg_op **unsupported)
{
    eg_sweep s = { .cx = y->cx, .who = "complex step", .zeros = true };
    *unsupported = NULL;
    if (!eg__sweep(&s, 1, &y, count, xs)) return NULL;
    for (int64_t n = 0; n < s.n; n++) {
        eg_tensor *t = s.node[n], *z = NULL;
        for (int k = 0; k < count && zs; k++)
            if (xs[k] == t) z = zs[k];
        if (!z) z = complex_again(&s, t, unsupported);
        for (int k = 0; k < count && vs && !s.cx->failed; k++)
            if (xs[k] == t) z = complex_moved(t, z, vs[k]);
        if (s.cx->failed || *unsupported) return NULL;
        s.d[n] = z;
    }
    return eg__sweep_at(&s, y);
}
eg_tensor *eg__evaluate_c128(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *zs,
                             const eg_op **unsupported)
{
    eg_tensor *z = complex_evaluated(y, count, xs, zs, NULL, unsupported);
    return z || y->cx->failed || *unsupported ? z : eg_cast(y, EG_C128);
}

bool eg__complex_step(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs,
                      eg_tensor **dy, const eg_op **unsupported)
{
    eg_ctx *cx = y->cx;
    const bool was = eg_nograd(cx, true);
    *dy = eg_full_n(cx, EG_F64, 0, eg_rank(y), eg_dims(y));
    const eg_mark m = eg_push(cx);
    eg_tensor *z = complex_evaluated(y, count, xs, NULL, vs, unsupported);
    if (z) eg_assign(*dy, eg_scale(eg_imag(z), 1 / H));
    eg_pop(cx, m);
    eg_nograd(cx, was);
    return !cx->failed && !*unsupported;
}
