/* substitute.c: while a check runs, all tensors that f reads are f64, whether f gets them as
 * arguments, reads them through `user`, or makes them as constants.
 *
 * A tensor that is older than the check is moved: until the check ends its header points to an f64
 * copy with the same strides, so that every operation, and f itself if it asks for the dtype, sees
 * f64. For that time it has no operation, because the operations that computed it are outside of f.
 * An f32 tensor that f itself makes becomes f64 permanently; it is freed after the call of f. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#if __GLIBC__
#include <execinfo.h>
#endif

void eg__reach(const eg_tensor *x, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    for (int r = 0; r < x->rank; r++)
        *(x->stride[r] < 0 ? low : high) += x->stride[r] * (x->dim[r] - 1);
}

/* Returns the address of element 0 of an f64 copy of the elements that x reaches, allocated in `a`;
 * NULL after an error. */
static char *widened(eg__arena *a, const eg_tensor *x)
{
    int64_t low = 0, high = -1;
    if (eg_size(x)) eg__reach(x, &low, &high);
    double *y = eg__alloc_in(a, (size_t)(high - low + 1) * sizeof *y);
    for (int64_t k = low; y && k <= high; k++) y[k - low] = eg__element(x, k);
    return y ? (char *)(y - low) : NULL;
}

/* Saves x's header, which eg__probe_end restores, and makes x a leaf. NULL after an error. */
static eg__moved *move(eg_ctx *cx, eg_tensor *x)
{
    eg__moved *m = eg__alloc_in(cx->probe->arena, sizeof *m);
    if (!m) return NULL;
    *m = (eg__moved){ .next = cx->probe->moved,
                      .t = x,
                      .dtype = x->dtype,
                      .count = x->count,
                      .op = x->op,
                      .data = x->data,
                      .st = x->st,
                      .now = { .version = x->st->version } };
    cx->probe->moved = m;
    x->op = NULL;
    x->count = 0;
    return m;
}
bool eg__probe_input(eg_ctx *cx, eg_tensor *x, char *data, eg_storage **now)
{
    eg__moved *m = move(cx, x);
    if (!m) return false;
    if (!*now) *now = &m->now;
    x->dtype = EG_F64;
    x->data = data;
    x->st = *now;
    return true;
}
void eg__probe_operand(eg_ctx *cx, eg_tensor *x)
{
    eg__probe *p = cx->probe;
    const bool single = x->dtype == EG_F32, older = x->seq < p->first_seq;
    if (x->copies && older && !cx->failed) {
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "gradcheck: f reads a tensor that has %lld cop%s; eg_copy_at gives one to check",
                   (long long)x->copies->count, x->copies->count == 1 ? "y" : "ies");
        return;
    }
    if (!(single || (older && x->op)) || cx->failed) return;
    if (!older && x->op && x->count && x->in[0]->dtype == EG_F64) p->cast = eg__site_of(x);
    char *data = single ? widened(older ? p->arena : x->arena, x) : x->data;
    eg__moved *m = older ? move(cx, x) : NULL;
    if (!data || (older && !m)) return;
    if (single) {
        x->data = data;
        x->dtype = EG_F64;
        if (m) x->st = &m->now;
    }
}
void eg__probe_end(eg_ctx *cx)
{
    for (const eg__moved *m = cx->probe->moved; m; m = m->next) {
        m->t->dtype = m->dtype;
        m->t->count = m->count;
        m->t->op = m->op;
        m->t->data = m->data;
        m->t->st = m->st;
    }
    cx->probe = cx->probe->outer;
}

eg__site eg__site_of(const eg_tensor *y)
{
    eg__site s = { .name = y->op->name, .caller = y->caller, .own = !eg__in_table(y->op) };
    for (const eg__frame *f = y->cx->probe ? y->cx->probe->frames : NULL; f && s.own; f = f->next)
        if (f->y == y) {
            s.outer = f->outer;
            break;
        }
    if (!eg__einsum_text(y, s.spec, sizeof s.spec)) s.spec[0] = 0;
    return s;
}

/* An operation of the user is applied by the user's constructor, which calls eg_apply; y->caller is
 * this call. Messages should name the call of the constructor instead: it is in the next frame of
 * the stack, unless that is the library's, or f itself ended in the tail call of eg_apply, so that
 * y->caller is the call of the check. False after an error. */
static bool frame_of(const eg_tensor *y)
{
#if __GLIBC__
    const eg_ctx *cx = y->cx;
    void *frame[24];
    if (cx->rule_node || !y->caller || y->caller == cx->probe->entered || eg__in_table(y->op))
        return true;
    const int n = backtrace(frame, 24);
    for (int k = 0; k + 1 < n; k++) {
        if (frame[k] != y->caller) continue;
        if ((uintptr_t)frame[k + 1] - cx->text < cx->text_size) break;
        eg__frame *f = eg__alloc_in(cx->probe->arena, sizeof *f);
        if (!f) return false;
        *f = (eg__frame){ .next = cx->probe->frames, .y = y, .outer = frame[k + 1] };
        cx->probe->frames = f;
        break;
    }
#else
    (void)y;
#endif
    return true;
}
eg_tensor *eg__named_call(eg__trial *c)
{
    eg_ctx *cx = c->cx;
    const bool free = !cx->hooks.result;
    c->probe->frames = NULL;
    c->probe->entered = eg__caller(cx);
    if (free) cx->hooks.result = frame_of;
    eg_tensor *y = eg__trial_call(c);
    if (free) cx->hooks.result = NULL;
    return y;
}

/* -- mutation: the cotangent of a rule is made wrong on purpose ------------------------------- */
/* Returns max |a − b| of two f64 tensors, or max |a| if b is NULL. */
static double probe_most(eg_tensor *a, eg_tensor *b)
{
    const double *x = eg_f64(a), *y = b ? eg_f64(b) : NULL;
    double m = 0;
    for (int64_t k = 0, n = x && (!b || y) ? eg_size(a) : 0; k < n; k++)
        m = fmax(m, fabs(y ? x[k] - y[k] : x[k]));
    return m;
}
/* Returns c with its first two axes of equal length > 1 exchanged; c itself if it has none. */
static eg_tensor *swapped(eg_tensor *c)
{
    for (int i = 0; i < c->rank; i++)
        for (int j = i + 1; j < c->rank; j++)
            if (c->dim[i] > 1 && c->dim[i] == c->dim[j])
                return eg_contiguous(eg_transpose(c, i, j));
    return c;
}
eg_tensor *eg__probe_cotangent(eg_ctx *cx, const eg_tensor *y, int i, eg_tensor *c)
{
    eg__probe *p = cx->probe;
    if (p->mutation == EG_MUTATE_NONE || !c || c->live != EG_LIVE || c->dtype != EG_F64) return c;
    p->largest = fmax(p->largest, probe_most(c, NULL));
    if (p->edges++ != p->edge) return c;
    eg_tensor *wrong = p->mutation == EG_MUTATE_SIGN     ? eg_neg(c)
                       : p->mutation == EG_MUTATE_FACTOR ? eg_scale(c, 1 + 1e-4)
                       : p->mutation == EG_MUTATE_ZERO   ? eg_zeros_like(c)
                                                         : swapped(c);
    p->changed = eg_ok(wrong) ? probe_most(wrong, c) : 0;
    p->at = eg__site_of(y);
    p->operand = i;
    return wrong;
}
