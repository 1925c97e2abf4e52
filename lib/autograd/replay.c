/* replay.c: the complex-step derivative of what was recorded (Squire, Trapp 1998; Martins, Sturdza, Alonso 2003).
 *
 * The rows between xs and y are applied again to xs[k] + i h v_k in c128, everything else as it was recorded, random draws included
 * (they are attributes). Then Im y / h is the derivative of y along v: no step to choose and nothing subtracted, so that its error is
 * that of the functions, near 1e-15. h is so small that h² vanishes beside 1, and a power of 2, so that h v and the quotient are exact.
 * Rules are made of rows, so y may be a gradient. What does not depend on xs through numbers (comparisons, integers) is not repeated. */
#include "core/context.h"
#include "tensor/complex.h"
#include <stdlib.h>

#define H 0x1p-100

typedef struct visited { eg_tensor *t, *z; bool given; } visited;   /* z: its c128 value, once there is one; given: an x */
typedef struct replay {
    eg_ctx *cx;
    const eg_op **unsupported;
    visited *seen;
    int64_t n, room;
    uint64_t number;                        /* t->sweep of the nodes seen; t->slot: their place      */
} replay;

static bool see(replay *r, eg_tensor *t)
{
    if (t->sweep == r->number || !eg__is_float(t->dtype)) return true;
    if (r->n == r->room) {
        const int64_t room = r->room ? 2 * r->room : 64;
        visited *seen = eg__alloc(r->cx, (size_t)room * sizeof *seen);
        if (!seen) return false;
        for (int64_t k = 0; k < r->n; k++) seen[k] = r->seen[k];
        r->seen = seen;
        r->room = room;
    }
    t->sweep = r->number;
    t->slot = r->n;
    r->seen[r->n++] = (visited){ .t = t };
    return true;
}
static int older(const void *a, const void *b)
{
    const uint64_t s = ((const visited *)a)->t->seq, t = ((const visited *)b)->t->seq;
    return (s > t) - (s < t);
}
/* y, the xs and what y was made of, back to the oldest x, in the order of their making. */
static bool collect(replay *r, eg_tensor *y, int count, eg_tensor *const *xs)
{
    uint64_t oldest = UINT64_MAX;
    for (int k = 0; k < count; k++) {
        if (!see(r, xs[k])) return false;
        if (xs[k]->seq < oldest) oldest = xs[k]->seq;
    }
    const int64_t leaves = r->n;
    if (!see(r, y)) return false;
    for (int64_t k = leaves; k < r->n; k++) {
        const eg_tensor *t = r->seen[k].t;
        for (int i = 0; i < t->count && t->seq >= oldest; i++) if (!see(r, t->in[i])) return false;
    }
    qsort(r->seen, (size_t)r->n, sizeof *r->seen, older);
    for (int64_t k = 0; k < r->n; k++) r->seen[k].t->slot = k;
    return true;
}

static const visited *of(const replay *r, const eg_tensor *t) { return t->sweep == r->number ? &r->seen[t->slot] : NULL; }
static eg_tensor *value(const replay *r, const eg_tensor *t) { return of(r, t) ? of(r, t)->z : NULL; }

/* Is what t read of operand i still what evaluating it again gives? A repeated node gives what it had when it was made. */
static bool fresh(const replay *r, const eg_tensor *t, int i)
{
    const eg_tensor *x = t->in[i];
    const bool repeated = value(r, x) && !of(r, x)->given && x->st == &x->own;
    if (eg__versions(t)[i] == (repeated ? x->version : x->st->version)) return true;
    eg_fail(r->cx, "complex step: operand %d of %s was changed in place, and what was recorded cannot be evaluated again", i + 1, t->op->name);
    return false;
}
/* t's row on c128, if an operand of t changed; else nothing is to be done. */
static bool again(replay *r, visited *v)
{
    const eg_tensor *t = v->t;
    eg_tensor **in = NULL;
    for (int i = 0; i < t->count && !in; i++)
        if (value(r, t->in[i]) && !(in = eg__alloc(r->cx, (size_t)t->count * sizeof *in))) return false;
    if (!in) return true;
    if (t->op->forward && !t->op->forward_c128) { *r->unsupported = t->op; return false; }
    for (int i = 0; i < t->count; i++) {
        if (!fresh(r, t, i)) return false;
        in[i] = value(r, t->in[i]);
        if (!in[i]) in[i] = eg__is_float(t->in[i]->dtype) ? eg_cast(t->in[i], EG_C128) : t->in[i];
    }
    v->z = eg_apply(t->op, t->attr, t->attr_size, t->count, in);
    return eg_ok(v->z);
}

static bool step(replay *r, eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs, eg_tensor *dy)
{
    if (!collect(r, y, count, xs)) return false;
    for (int k = 0; k < count; k++) {
        visited *v = &r->seen[xs[k]->slot];
        v->given = true;
        if (!v->z) v->z = eg_cast(xs[k], EG_C128);
        eg_tensor *im = eg_imag(v->z);
        if (eg_assign(im, eg_add(im, eg_scale(eg_cast(vs[k], EG_F64), H)))) return false;
    }
    for (int64_t k = 0; k < r->n; k++) if (!r->seen[k].z && !again(r, &r->seen[k])) return false;
    eg_tensor *z = value(r, y);
    return !z || eg_assign(dy, eg_scale(eg_imag(z), 1 / H)) == 0;
}

bool eg__complex_step(eg_tensor *y, int count, eg_tensor *const *xs, eg_tensor *const *vs, eg_tensor **dy, const eg_op **unsupported)
{
    eg_ctx *cx = y->cx;
    const bool recorded = eg_nograd(cx, true);
    *unsupported = NULL;
    *dy = eg_full_n(cx, EG_F64, 0, eg_rank(y), eg_dims(y));
    const eg_mark m = eg_push(cx);
    replay r = { .cx = cx, .unsupported = unsupported, .number = eg__sweep(cx) };
    const bool good = eg_ok(*dy) && step(&r, y, count, xs, vs, *dy);
    eg_pop(cx, m);
    eg_nograd(cx, recorded);
    return good;
}
