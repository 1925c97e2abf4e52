/* probe.c: while a check runs, whatever f reads is f64, whether it comes as an argument, through
 * `user` or from a constant made in f. A tensor older than the check is moved: its header points at
 * an f64 copy (same strides) until the check ends, so that every operation, and f's own look at its
 * type, sees f64; it has no history meanwhile, for what led to it is outside f. A younger f32
 * tensor is made f64 for good: it dies with the call of f. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>
#if __GLIBC__
#include <execinfo.h>
#endif

void eg__reach(const eg_tensor *x, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    for (int r = 0; r < x->rank; r++)
        *(x->stride[r] < 0 ? low : high) += x->stride[r] * (x->dim[r] - 1);
}

/* The elements that x reaches, as f64 in `a`; NULL without memory. */
static char *widened(eg__arena *a, const eg_tensor *x)
{
    int64_t low = 0, high = -1;
    if (eg_size(x)) eg__reach(x, &low, &high);
    double *y = eg__alloc_in(a, (size_t)(high - low + 1) * sizeof *y);
    for (int64_t k = low; y && k <= high; k++) y[k - low] = eg__element(x, k);
    return y ? (char *)(y - low) : NULL;
}

static eg__moved *move(eg_ctx *cx, eg_tensor *x)
{
    eg__moved *m = eg__alloc_in(cx->probe->home, sizeof *m);
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
    const bool single = x->dtype == EG_F32, older = x->seq < p->born;
    if (!(single || (older && x->op)) || cx->failed) return;
    if (!older && x->op && x->count && x->in[0]->dtype == EG_F64) p->cast = eg__site_of(x);
    char *data = single ? widened(older ? p->home : x->home, x) : x->data;
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
    eg__site s = { .name = y->op->name, .caller = y->caller };
    if (!eg__einsum_text(y, s.spec, sizeof s.spec)) s.spec[0] = 0;
    return s;
}

/* The innermost call outside the library is the constructor's own, eg_apply; the next one calls the
 * constructor, unless that is the library again. */
bool eg__probe_result(const eg_tensor *y)
{
#if __GLIBC__
    const eg_ctx *cx = y->cx;
    void *frame[24];
    if (cx->rule_node || !y->caller || eg__in_table(y->op)) return true;
    const int n = backtrace(frame, 24);
    for (int k = 0; k + 1 < n; k++) {
        if (frame[k] != y->caller) continue;
        if ((uintptr_t)frame[k + 1] - cx->text >= cx->text_size)
            ((eg_tensor *)(uintptr_t)y)->caller = frame[k + 1];
        break;
    }
#else
    (void)y;
#endif
    return true;
}

/* -- mutation: what a rule returned, wrong on purpose ----------------------------------------- */
static double probe_most(eg_tensor *a, eg_tensor *b) /* max |a − b|, or max |a|; f64 */
{
    const double *x = eg_f64(a), *y = b ? eg_f64(b) : NULL;
    double m = 0;
    for (int64_t k = 0, n = x && (!b || y) ? eg_size(a) : 0; k < n; k++)
        m = fmax(m, fabs(y ? x[k] - y[k] : x[k]));
    return m;
}
static eg_tensor *swapped(eg_tensor *c) /* the first two axes of equal length > 1, exchanged */
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
