/* plain_function.c: eg_gradcheck_fn, the check for a function and a gradient that do not use
 * tensors, such as a kernel in C or Fortran. They become an operation of one operand, whose
 * forward function is f and whose rule is vjp, and all tests of operations are applied. */
#include "gradcheck/gradcheck.h"
#include <string.h>

typedef struct foreign {
    eg_fn *f;
    eg_fn_vjp *vjp;
    void *user;
    int64_t n, m;
} foreign;
#define GUARD 8.25e102 /* written before and after the arrays that the caller's functions fill */
/* The bits of the NaN that the arrays hold before the caller's functions fill them; a sum with it
 * has the same bits. */
#define UNSET UINT64_C(0x7ff8e1d6ead00000)

static bool foreign_shape(eg_tensor *y)
{
    const foreign *k = eg_attr(y);
    return eg_result(y, EG_F64, 1, &k->m);
}
/* Returns an array of n elements with a guard on both sides; NULL after an error. */
static double *guarded(eg_ctx *cx, int64_t n)
{
    double *memory = eg__alloc(cx, (size_t)(n + 2) * sizeof *memory);
    if (!memory) return NULL;
    const uint64_t unset = UNSET;
    memory[0] = memory[n + 1] = GUARD;
    for (int64_t k = 1; k <= n; k++) memcpy(memory + k, &unset, sizeof unset);
    return memory + 1;
}
/* Returns the first of n elements that was not written to, or only by an addition to what it held;
 * −1 if there is none. */
static int64_t first_unset(const double *memory, int64_t n)
{
    const uint64_t unset = UNSET;
    for (int64_t k = 0; k < n; k++)
        if (!memcmp(memory + k, &unset, sizeof unset)) return k;
    return -1;
}
/* False after an error: the function returned an error, wrote outside of the n elements, or did not
 * set one of them. */
static bool foreign_done(eg_ctx *cx, const char *who, int returned, const double *guarded,
                         int64_t n)
{
    if (returned)
        eg_fail_as(cx, EG_ERROR_USER, "gradcheck: %s returned %d", who, returned);
    else if (guarded[-1] != GUARD || guarded[n] != GUARD)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: %s writes outside of its %lld elements", who,
                   (long long)n);
    else if (first_unset(guarded, n) >= 0)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "gradcheck: %s does not set element %lld of its %lld: it is left as it was, or "
                   "something is added to it",
                   who, (long long)first_unset(guarded, n), (long long)n);
    return !cx->failed;
}
static bool foreign_forward(eg_tensor *y)
{
    const foreign *k = eg_attr(y);
    eg_ctx *cx = eg_context(y);
    const double *x = eg_f64(eg_operand(y, 0));
    double *out = x ? guarded(cx, k->m) : NULL;
    if (!out || !foreign_done(cx, "f", k->f(k->user, x, out), out, k->m)) return false;
    if (k->m) memcpy(eg_mut_f64(y), out, (size_t)k->m * sizeof *out);
    return true;
}
static eg_tensor *foreign_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const foreign *k = eg_attr(y);
    eg_ctx *cx = eg_context(y);
    const double *x = eg_f64(eg_operand(y, i)), *seed = eg_f64(g);
    double *dx = x && seed ? guarded(cx, k->n) : NULL;
    if (!dx || !foreign_done(cx, "vjp", k->vjp(k->user, x, seed, dx), dx, k->n))
        return eg__poison(cx);
    return eg_from_n(cx, EG_F64, dx, 1, &k->n);
}
static const eg_op foreign_op = { .name = "vjp",
                                  .arity = 1,
                                  .shape = foreign_shape,
                                  .forward = foreign_forward,
                                  .rule = foreign_rule,
                                  .uses = EG_USES_OPERANDS };
static eg_tensor *foreign_call(void *user, eg_tensor *const *x)
{
    return eg_apply(&foreign_op, user, sizeof(foreign), 1, x);
}

const eg_report *eg_gradcheck_fn_with(const eg_gradcheck_fn_args *given)
{
    eg_gradcheck_fn_args o = { .size = 0 };
    eg_options(&o, sizeof o, given);
    if (!o.cx || eg__failed(o.cx)) return NULL;
    if (!o.f || !o.vjp || (!o.x && o.n > 0) || o.n < 0 || o.m < 0) {
        eg_fail_as(o.cx, EG_ERROR_MISUSE,
                   "gradcheck: f, vjp or x is NULL, or n %lld or m %lld is negative",
                   (long long)o.n, (long long)o.m);
        return NULL;
    }
    foreign k = { .f = o.f, .vjp = o.vjp, .user = o.user, .n = o.n, .m = o.m };
    eg_tensor *x = eg_from_n(o.cx, EG_F64, o.x, 1, &o.n);
    return eg_gradcheck(.f = foreign_call, .user = &k, .count = 1, .xs = &x, .names = o.names,
                        .rtol = o.rtol, .atol = o.atol, .directions = o.directions, .seed = o.seed,
                        .full = o.full, .kinks = o.kinks);
}
