/* op.c: checks an operation at its samples. In a build with --enable-debug, an operation that is
 * not the library's is checked when a context first records it: its rule and its jvp must return
 * the shapes of the operands and of the result, and the rule must agree with differences at the
 * samples. */
#include "gradcheck/gradcheck.h"
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 8, AXES = 8 };

static bool gives_shapes(eg_tensor *y)
{
    const eg_op *op = y->op;
    eg_sweep s = { .cx = y->cx, .who = "first use" };
    eg_tensor *dx[OPERANDS] = { NULL }, *g = eg_ones_like(y), *d;
    if (!op->rule || !eg__is_float(y->dtype) || y->count > OPERANDS) return true;
    for (int i = 0; i < y->count && !y->cx->failed; i++) {
        if (!eg__is_float(y->in[i]->dtype)) continue;
        d = eg__rule(y, g, i);
        if (d && !y->cx->failed && !eg__check_cotangent(&s, y, "rule", d, y->in[i], i))
            return false;
        dx[i] = eg_ones_like(y->in[i]);
    }
    d = op->jvp && !y->cx->failed ? eg__jvp_rule(y, dx) : NULL;
    return !y->cx->failed && (!d || eg__check_cotangent(&s, y, "jvp", d, y, -1));
}

/* -- samples: "3x4, 5:i4, 2x3:b, ()" ---------------------------------------------------------- */
typedef struct call {
    const eg_sample *sample;
    int count;
    eg_tensor *x[OPERANDS];
} call;
/* Draws the operands that the sample's string describes: floats between its limits, integers below
 * the number after ':i', bools for ':b'. False after an error. */
static bool sample_draw(eg_ctx *cx, call *c)
{
    const char *at = c->sample->shapes;
    const bool anywhere = c->sample->low == 0 && c->sample->high == 0;
    const double low = anywhere ? -2 : c->sample->low, high = anywhere ? 2 : c->sample->high;
    for (c->count = 0; c->count < OPERANDS; at++) {
        int64_t dim[AXES];
        int rank = 0;
        while (*at == ' ' || *at == '(' || *at == ')') at++;
        while (*at >= '0' && *at <= '9' && rank < AXES) {
            char *end;
            dim[rank++] = strtoll(at, &end, 10);
            at = end + (*end == 'x');
        }
        const int64_t below = at[0] != ':' ? 0 : at[1] == 'b' ? 2 : strtoll(at + 2, NULL, 10);
        eg_tensor *x = below ? eg_randint_n(cx, 0, below, rank, dim)
                             : eg_uniform_n(cx, EG_F64, low, high, rank, dim);
        c->x[c->count++] = below && at[1] == 'b' ? eg_cast(x, EG_BOOL) : x;
        if (!(at = strchr(at, ','))) break;
    }
    return !cx->failed;
}
static eg_tensor *sample_sampled(void *user, eg_tensor *const *xs)
{
    const call *c = user;
    eg_tensor *x[OPERANDS];
    for (int i = 0, k = 0; i < c->count; i++)
        x[i] = eg__is_float(c->x[i]->dtype) ? xs[k++] : c->x[i];
    return c->sample->call(x);
}
/* Returns the report of one sample; NULL after an error, and, with *none set, if there is nothing
 * to check. */
static const eg_report *sample_check(eg_ctx *cx, const eg_sample *s, bool *none)
{
    call c = { .sample = s };
    eg_tensor *xs[OPERANDS];
    int n = 0;
    if (!sample_draw(cx, &c)) return NULL;
    for (int i = 0; i < c.count; i++)
        if (eg__is_float(c.x[i]->dtype)) xs[n++] = c.x[i];
    eg_tensor *y = s->call(c.x);
    if (!eg_ok(y)) return NULL;
    *none = !n || !eg__is_float(y->dtype);
    return *none ? NULL : eg_gradcheck(.f = sample_sampled, .user = &c, .count = n, .xs = xs);
}
static bool agrees(eg_ctx *cx, const eg_op *op)
{
    for (const eg_sample *s = op->samples; s && s->call; s++) {
        bool none = false;
        const eg_report *r = sample_check(cx, s, &none);
        if (none || (r && r->passed)) continue;
        if (!r) return false;
        const char *what = strchr(r->text, '\n');
        what = what ? what + strspn(what, "\n ") : r->text;
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "first use: the gradient of %s is wrong at its sample \"%s\": %.*s", op->name,
                   s->shapes, (int)strcspn(what, "\n"), what);
        return false;
    }
    return true;
}
const eg_report *eg_gradcheck_op(eg_ctx *cx, const eg_op *op)
{
    const eg_report *r = NULL;
    if (!cx || eg__failed(cx)) return NULL;
    if (!op)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: the operation is NULL");
    else if (!op->samples || !op->samples->call)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: %s has no samples to be checked at", op->name);
    const eg_sample *s = cx->failed ? NULL : op->samples;
    for (; s && s->call && !cx->failed && (!r || r->passed); s++) {
        bool none = false;
        const eg_report *one = sample_check(cx, s, &none);
        if (one) r = one;
    }
    if (!r && !cx->failed)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: no sample of %s has a float operand and result",
                   op->name);
    return cx->failed ? NULL : r;
}

bool eg__first_use(eg_tensor *y)
{
    eg_ctx *cx = y->cx;
    const uint64_t draw_now = cx->draw;
    const eg_mark m = eg_push(cx);
    bool good = gives_shapes(y) && agrees(cx, y->op);
    if (!good && cx->failed && cx->code == EG_ERROR_UNSUPPORTED) {
        eg_clear(cx); /* the rule refuses a gradient for this call */
        good = true;
    }
    eg_pop(cx, m);
    cx->draw = draw_now;
    return good;
}

#if EG_DEBUG_ALLOC
/* True if op is the library's, or has been checked in this context. */
static bool seen_before(eg_ctx *cx, const eg_op *op)
{
    for (int k = 0; k < cx->checked.n; k++)
        if (cx->checked.seen[k] == op) return true;
    if (cx->checked.n == cx->checked.capacity) {
        const int capacity = cx->checked.capacity ? 2 * cx->checked.capacity : 64;
        const eg_op **more = eg__alloc_in(&cx->root, (size_t)capacity * sizeof *more);
        if (!more) return true;
        if (cx->checked.n) memcpy(more, cx->checked.seen, (size_t)cx->checked.n * sizeof *more);
        cx->checked.seen = more;
        cx->checked.capacity = capacity;
    }
    cx->checked.seen[cx->checked.n++] = op;
    return eg__in_table(op);
}
bool eg__look_once(eg_tensor *y) { return seen_before(y->cx, y->op) || eg__first_use(y); }
#endif
