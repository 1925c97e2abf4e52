/* expression_range.c: integer arithmetic, and interval arithmetic: bounds of integers and bools for
 * a box of positions. The bounds determine which tiles a predicate forbids, which indices can be
 * outside of their axis, and whether 32 bits suffice. Saturation is monotone, so bounds of
 * saturated integers are bounds too. */
#include "notation/integer.h"
#include <string.h>

/* -- integers --------------------------------------------------------------------------------- */
int64_t eg__integer(int code, int64_t a, int64_t b, int64_t c)
{
    switch (code) {
    case EG_X_NEG: return eg__difference(0, a);
    case EG_X_ABS: return a < 0 ? eg__difference(0, a) : a;
    case EG_X_ADD: return eg__sum(a, b);
    case EG_X_SUB: return eg__difference(a, b);
    case EG_X_MUL: return eg__product(a, b);
    case EG_X_DIV: return eg__quotient(a, b);
    case EG_X_MOD: return eg__modulus(a, b);
    case EG_X_MIN: return a < b ? a : b;
    case EG_X_MAX: return a > b ? a : b;
    case EG_X_EQ: return a == b;
    case EG_X_NE: return a != b;
    case EG_X_LT: return a < b;
    case EG_X_LE: return a <= b;
    case EG_X_GT: return a > b;
    case EG_X_GE: return a >= b;
    case EG_X_NOT: return !a;
    case EG_X_AND: return a & b;
    case EG_X_SELECT: return a ? b : c;
    case EG_X_CLIP: return (a < b ? b : a) > c ? c : a < b ? b : a;
    default: return a | b;
    }
}

/* -- intervals -------------------------------------------------------------------------------- */
/* Returns the smallest interval that contains x and y. */
static eg_interval span(eg_interval x, eg_interval y)
{
    return (eg_interval){ x.low < y.low ? x.low : y.low, x.high > y.high ? x.high : y.high };
}
/* Returns the intersection of x and y; x if it is empty. */
static eg_interval common(eg_interval x, eg_interval y)
{
    const eg_interval both = { x.low > y.low ? x.low : y.low, x.high < y.high ? x.high : y.high };
    return both.low <= both.high ? both : x;
}
/* Returns the smallest interval that contains four numbers. */
static eg_interval corners(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return span((eg_interval){ a < b ? a : b, a < b ? b : a },
                (eg_interval){ c < d ? c : d, c < d ? d : c });
}
static eg_interval interval_modulus(eg_interval x, eg_interval y)
{
    const int64_t m = eg__larger(y);
    if (y.low == y.high && m && eg__quotient(x.low, m) == eg__quotient(x.high, m))
        return (eg_interval){ eg__modulus(x.low, m), eg__modulus(x.high, m) };
    return (eg_interval){ 0, m ? m - 1 : 0 };
}
static eg_interval interval_quotient(eg_interval x, eg_interval y)
{
    if (y.low > 0 || y.high < 0)
        return corners(eg__quotient(x.low, y.low), eg__quotient(x.low, y.high),
                       eg__quotient(x.high, y.low), eg__quotient(x.high, y.high));
    return (eg_interval){ -eg__larger(x), eg__larger(x) };
}
/* True if x and y are certainly equal: both are the same single value. */
static bool range_certain(eg_interval x, eg_interval y)
{
    return x.low == x.high && y.low == y.high && x.low == y.low;
}
static eg_interval least_of(eg_interval x, eg_interval y)
{
    return (eg_interval){ x.low < y.low ? x.low : y.low, x.high < y.high ? x.high : y.high };
}
static eg_interval most_of(eg_interval x, eg_interval y)
{
    return (eg_interval){ x.low > y.low ? x.low : y.low, x.high > y.high ? x.high : y.high };
}
/* Returns bounds of the result of operation `code` from bounds of its operands. */
static eg_interval range_of_operation(int code, eg_interval x, eg_interval y, eg_interval z)
{
    switch (code) {
    case EG_X_NEG: return (eg_interval){ -x.high, -x.low };
    case EG_X_ABS:
        return (eg_interval){ x.low > 0 ? x.low : x.high < 0 ? -x.high : 0, eg__larger(x) };
    case EG_X_ADD: return (eg_interval){ eg__sum(x.low, y.low), eg__sum(x.high, y.high) };
    case EG_X_SUB: return (eg_interval){ eg__sum(x.low, -y.high), eg__sum(x.high, -y.low) };
    case EG_X_MUL:
        return corners(eg__product(x.low, y.low), eg__product(x.low, y.high),
                       eg__product(x.high, y.low), eg__product(x.high, y.high));
    case EG_X_DIV: return interval_quotient(x, y);
    case EG_X_MOD: return interval_modulus(x, y);
    case EG_X_MIN: return least_of(x, y);
    case EG_X_MAX: return most_of(x, y);
    case EG_X_EQ: return (eg_interval){ range_certain(x, y), x.low <= y.high && y.low <= x.high };
    case EG_X_NE: return (eg_interval){ x.high < y.low || y.high < x.low, !range_certain(x, y) };
    case EG_X_LT: return (eg_interval){ x.high < y.low, x.low < y.high };
    case EG_X_LE: return (eg_interval){ x.high <= y.low, x.low <= y.high };
    case EG_X_GT: return (eg_interval){ x.low > y.high, x.high > y.low };
    case EG_X_GE: return (eg_interval){ x.low >= y.high, x.high >= y.low };
    case EG_X_NOT: return (eg_interval){ !x.high, !x.low };
    case EG_X_AND: return (eg_interval){ x.low & y.low, x.high & y.high };
    case EG_X_SELECT: return x.low ? y : x.high ? span(y, z) : z;
    case EG_X_CLIP: return least_of(most_of(x, y), z);
    default: return (eg_interval){ x.low | y.low, x.high | y.high };
    }
}

/* -- nodes ------------------------------------------------------------------------------------ */
/* Returns the bounds of a read of integers or bools in a box, where v has the bounds of its
 * indices. */
static eg_interval of_read(const eg_node *n, const eg_box *box, const eg_interval *v)
{
    eg_interval whole = { 0, 1 }, index[EG_RANK_MAX];
    if (n->kind == EG_IS_INTEGER)
        whole =
            (eg_interval){ eg__clamped(box->least[n->tensor]), eg__clamped(box->most[n->tensor]) };
    if (!box->bounds) return whole;
    for (int r = 0; r < n->count; r++) index[r] = v[n->in[r]];
    return eg__bounds_over(box->bounds, n->tensor, index, whole);
}
/* Returns the bounds of node k in a box, where v has the bounds of its operands. */
static inline eg_interval of_node(const eg_expression *e, int k, const eg_box *box,
                                  const eg_interval *v)
{
    const eg_node *n = &e->node[k];
    const eg_interval anything = { -INT64_MAX, INT64_MAX }, unknown = { 0, 1 };
    if (n->kind == EG_IS_FLOAT) return anything;
    switch (n->code) {
    case EG_X_INTEGER: return (eg_interval){ n->integer, n->integer };
    case EG_X_SIZE: return (eg_interval){ box->size[n->in[0]], box->size[n->in[0]] };
    case EG_X_LETTER:
        return (eg_interval){ eg__clamped(box->low[n->in[0]]),
                              eg__clamped(box->high[n->in[0]] - 1) };
    case EG_X_READ: return of_read(n, box, v);
    default: break;
    }
    /* floats have no bounds: a comparison of them is unknown */
    if (n->kind == EG_IS_CONDITION && e->node[n->in[0]].kind == EG_IS_FLOAT) return unknown;
    return range_of_operation(n->code, v[n->in[0]], v[n->in[n->count > 1]],
                              v[n->in[n->count > 2 ? 2 : 0]]);
}
/* Writes the bounds of all nodes to range[0 … nodes). */
static void ranges_of_nodes(const eg_expression *e, const eg_box *box, eg_interval *range)
{
    for (int k = 0; k < e->nodes; k++) range[k] = of_node(e, k, box, range);
}
/* Returns whether a predicate whose value has these bounds is always, sometimes or never true. */
static eg_cover cover_of(eg_interval root)
{
    return root.low ? EG_COVER_ALL : root.high ? EG_COVER_SOME : EG_COVER_NONE;
}
eg_cover eg__expression_cover(const eg_expression *e, const eg_box *box, eg_interval *range)
{
    for (uint32_t u = e->positions; u; u &= u - 1)
        if (box->low[__builtin_ctz(u)] >= box->high[__builtin_ctz(u)]) return EG_COVER_NONE;
    ranges_of_nodes(e, box, range);
    return cover_of(range[e->root]);
}
eg_cover eg__expression_cover_moved(const eg_expression *e, const eg_box *box, uint32_t moved,
                                    eg_interval *range)
{
    for (int k = 0; k < e->nodes; k++)
        if (e->node[k].letters & moved) range[k] = of_node(e, k, box, range);
    return cover_of(range[e->root]);
}

/* -- indices: the condition of c ? a : b, c & a, c | a limits the bounds in its branches ------ */
/* The bounds of the nodes in a branch. */
typedef struct frame {
    bool known[EG_NODES_MAX]; /* range[k] is set, and the indices below node k have been checked */
    bool limited[EG_NODES_MAX]; /* limit[k] is set: the conditions imply that node k is in it */
    bool relating; /* differences of nodes are being limited, which would limit them again */
    eg_interval range[EG_NODES_MAX], limit[EG_NODES_MAX];
} frame;
/* A check that no index is outside of its axis. */
typedef struct check {
    eg_ctx *cx;
    const eg_expression_source *s;
    const eg_expression *e;
    const eg_box *box;
    const eg_interval *plain; /* by node: its bounds without conditions */
    const char *text;         /* shown in errors; it begins at byte `shift` of the text of s */
    int shift;
    bool quiet;               /* only a lack of memory is recorded as an error */
    bool outside;             /* an index can be outside of its axis */
    int frames;               /* number of frames so far, at most FRAMES */
    bool reads[EG_NODES_MAX]; /* node k, or one below it, reads a tensor at indices */
} check;
enum { FRAMES = 4096 };

/* Returns v with `by` added; infinite bounds remain infinite. */
static eg_interval moved_by(eg_interval v, int64_t by)
{
    return (eg_interval){ v.low == -INT64_MAX ? v.low : eg__sum(v.low, by),
                          v.high == INT64_MAX ? v.high : eg__sum(v.high, by) };
}
/* Returns x if node k is x plus or minus constants, and adds these constants to *by. */
static int without_constants(const eg_expression *e, int k, int64_t *by)
{
    for (;;) {
        const eg_node *n = &e->node[k];
        if ((n->code != EG_X_ADD && n->code != EG_X_SUB) || e->node[n->in[1]].code != EG_X_INTEGER)
            return k;
        const int64_t c = e->node[n->in[1]].integer;
        *by = eg__sum(*by, n->code == EG_X_ADD ? c : -c);
        k = n->in[0];
    }
}
static void limit_node(const check *c, frame *f, int k, eg_interval to);
/* Returns x if node k is clip(x, a, b), or min(x, a) or max(x, a) where a has no letter, and sets
 * *by to bounds of k − x; −1 for another node. */
static int chosen_from(const check *c, int k, eg_interval *by)
{
    const eg_node *n = &c->e->node[k];
    const bool clip = n->code == EG_X_CLIP;
    if (!clip && n->code != EG_X_MIN && n->code != EG_X_MAX) return -1;
    const int i = !clip && !c->e->node[n->in[0]].letters, x = n->in[i];
    const eg_interval v = c->plain[x], low = c->plain[n->in[!i]],
                      high = clip ? c->plain[n->in[2]] : low;
    *by = (eg_interval){ 0, 0 };
    if (n->code != EG_X_MIN && low.high > v.low) by->high = eg__sum(low.high, -v.low);
    if (n->code != EG_X_MAX && high.low < v.high) by->low = eg__sum(high.low, -v.high);
    return x;
}
/* Notes in f that a − b is in `to`: limits each difference of the same nodes with constants added,
 * and, if a or b is clip(x, …), the differences with x in place of it. */
static void limit_difference(const check *c, frame *f, int a, int b, eg_interval to)
{
    int64_t of_a = 0, of_b = 0;
    eg_interval by;
    a = without_constants(c->e, a, &of_a), b = without_constants(c->e, b, &of_b);
    to = moved_by(to, eg__sum(of_b, -of_a));
    for (int m = 0; m < c->e->nodes; m++) {
        const eg_node *d = &c->e->node[m];
        int64_t more = 0, less = 0;
        if (d->code != EG_X_SUB || d->kind != EG_IS_INTEGER) continue;
        const int x = without_constants(c->e, d->in[0], &more),
                  y = without_constants(c->e, d->in[1], &less);
        more = eg__sum(more, -less);
        if (x == a && y == b)
            limit_node(c, f, m, moved_by(to, more));
        else if (x == b && y == a)
            limit_node(c, f, m, moved_by((eg_interval){ -to.high, -to.low }, more));
    }
    const int of = chosen_from(c, a, &by);
    if (of >= 0) /* of − b = (a − b) − (a − of) */
        limit_difference(c, f, of, b,
                         (eg_interval){ moved_by(to, -by.high).low, moved_by(to, -by.low).high });
    const int from = chosen_from(c, b, &by);
    if (from >= 0)
        limit_difference(c, f, a, from,
                         (eg_interval){ moved_by(to, by.low).low, moved_by(to, by.high).high });
}
/* Notes in f what follows for node x if min(x, y) is in `to`, where y is at least `least`: x is not
 * smaller, and if y is larger than `to`, x is the minimum. */
static void limit_minimum(const check *c, frame *f, int x, int64_t least, eg_interval to)
{
    limit_node(c, f, x, (eg_interval){ to.low, least > to.high ? to.high : INT64_MAX });
}
/* The same for max(x, y), where y is at most `most`. */
static void limit_maximum(const check *c, frame *f, int x, int64_t most, eg_interval to)
{
    limit_node(c, f, x, (eg_interval){ most < to.low ? to.low : -INT64_MAX, to.high });
}
/* Notes in f what follows for the operands of node k, a minimum, a maximum or clip(x, a, b) =
 * min(max(x, a), b), if it is in `to`. */
static void limit_chosen(const check *c, frame *f, int k, eg_interval to)
{
    const uint8_t *in = c->e->node[k].in;
    const int code = c->e->node[k].code;
    const eg_interval *v = c->plain;
    for (int i = 0; i < 2 && code == EG_X_MIN; i++) limit_minimum(c, f, in[i], v[in[!i]].low, to);
    for (int i = 0; i < 2 && code == EG_X_MAX; i++) limit_maximum(c, f, in[i], v[in[!i]].high, to);
    if (code == EG_X_CLIP)
        limit_maximum(c, f, in[0], v[in[1]].high,
                      (eg_interval){ to.low, v[in[2]].low > to.high ? to.high : INT64_MAX });
}
/* Notes in f that node k is in `to`, and what follows for x if k is |x|, −x, x ± a constant, or a
 * minimum, a maximum or clip of x. */
static void limit_node(const check *c, frame *f, int k, eg_interval to)
{
    const eg_node *n = &c->e->node[k];
    f->limit[k] = f->limited[k] ? common(f->limit[k], to) : to;
    f->limited[k] = true;
    limit_chosen(c, f, k, to);
    if (n->code == EG_X_ABS && to.high >= 0)
        limit_node(c, f, n->in[0], (eg_interval){ -to.high, to.high });
    if (n->code == EG_X_NEG) limit_node(c, f, n->in[0], (eg_interval){ -to.high, -to.low });
    if (n->code != EG_X_ADD && n->code != EG_X_SUB) return;
    const eg_node *b = &c->e->node[n->in[1]];
    if (b->code == EG_X_INTEGER)
        limit_node(c, f, n->in[0], moved_by(to, n->code == EG_X_ADD ? -b->integer : b->integer));
    else if (n->code == EG_X_SUB && !f->relating) {
        f->relating = true;
        limit_difference(c, f, n->in[0], n->in[1], to);
        f->relating = false;
    }
}
/* Returns the bounds of node k in f; if f has none, those without conditions. An operand after & or
 * | is checked in a separate branch, so f may have no bounds of it. */
static eg_interval bounds_in(const check *c, const frame *f, int k)
{
    return f->known[k] ? f->range[k] : c->plain[k];
}
static void assume(const check *c, frame *f, const frame *from, int k, bool is);
/* Copies the limits of `from` to f. */
static void copy_limits(frame *f, const frame *from)
{
    memcpy(f->limited, from->limited, sizeof f->limited);
    memcpy(f->limit, from->limit, sizeof f->limit);
    f->relating = false;
}
/* Notes in f what follows if one of the operands of condition k, a chain of | (if `is`) or of &,
 * has the value `is`: a node is in the smallest interval that contains its limits in each case. */
static void assume_one(const check *c, frame *f, const frame *from, int k, bool is)
{
    const int code = c->e->node[k].code;
    const eg_mark m = eg_push(c->cx);
    frame *any = eg__alloc(c->cx, sizeof *any), *one = eg__alloc(c->cx, sizeof *one);
    bool some = false, more = any && one;
    while (more) {
        const eg_node *n = &c->e->node[k];
        more = n->code == code;
        const int operand = more ? n->in[1] : k;
        const eg_interval v = bounds_in(c, from, operand);
        if (more) k = n->in[0];
        if (v.low == v.high && v.low != is) continue;
        copy_limits(one, f);
        assume(c, one, from, operand, is);
        if (!some) copy_limits(any, one);
        for (int x = 0; x < c->e->nodes; x++)
            if ((any->limited[x] &= one->limited[x]))
                any->limit[x] = span(any->limit[x], one->limit[x]);
        some = true;
    }
    if (some) copy_limits(f, any);
    eg_pop(c->cx, m);
}
/* Notes in f what follows if condition k has the value `is`; `from` has the bounds of its
 * operands. */
static void assume(const check *c, frame *f, const frame *from, int k, bool is)
{
    static const uint8_t denial[] = { EG_X_NE, EG_X_EQ, EG_X_GE, EG_X_GT, EG_X_LE, EG_X_LT };
    const eg_node *n = &c->e->node[k];
    if (n->code == EG_X_NOT) assume(c, f, from, n->in[0], !is);
    if (n->code == (is ? EG_X_AND : EG_X_OR)) {
        assume(c, f, from, n->in[0], is);
        assume(c, f, from, n->in[1], is);
    }
    if (n->code == (is ? EG_X_OR : EG_X_AND)) assume_one(c, f, from, k, is);
    if (n->code < EG_X_EQ || n->code > EG_X_GE || c->e->node[n->in[0]].kind != EG_IS_INTEGER)
        return;
    const int a = n->in[0], b = n->in[1], code = is ? n->code : denial[n->code - EG_X_EQ];
    const eg_interval x = bounds_in(c, from, a), y = bounds_in(c, from, b);
    const eg_interval all = { -INT64_MAX, INT64_MAX };
    eg_interval left = all, right = all;
    if (code == EG_X_EQ) left = y, right = x;
    if (code == EG_X_LT) left.high = eg__sum(y.high, -1), right.low = eg__sum(x.low, 1);
    if (code == EG_X_LE) left.high = y.high, right.low = x.low;
    if (code == EG_X_GT) left.low = eg__sum(y.low, 1), right.high = eg__sum(x.high, -1);
    if (code == EG_X_GE) left.low = y.low, right.high = x.high;
    limit_node(c, f, a, left);
    limit_node(c, f, b, right);
    if (code == EG_X_NE) return;
    /* i >= j + 2 limits i − j and j − i too */
    eg_interval to = { code == EG_X_EQ || code == EG_X_GE ? 0
                       : code == EG_X_GT                  ? 1
                                                          : -INT64_MAX,
                       code == EG_X_EQ || code == EG_X_LE ? 0
                       : code == EG_X_LT                  ? -1
                                                          : INT64_MAX };
    f->relating = true;
    limit_difference(c, f, a, b, to);
    f->relating = false;
}
/* True if index r of a read, which is in v, is inside of its axis; else records an error with the
 * sizes of the letters that the index depends on. */
static bool stays_inside(check *c, int read, int r, eg_interval v)
{
    const eg_readable *x = &c->s->readable[c->e->node[read].tensor];
    const eg_node *n = &c->e->node[read], *i = &c->e->node[n->in[r]];
    if (v.low >= 0 && v.high < x->dim[r]) return true;
    c->outside = true;
    if (c->quiet || n->at < c->shift) return false;
    char letters[120] = "";
    size_t w = 0;
    for (uint32_t u = i->letters; u && w < sizeof letters; u &= u - 1) {
        const eg_axis_name *name = c->s->letter[__builtin_ctz(u)];
        w += (size_t)snprintf(letters + w, sizeof letters - w, "%s'%.*s' is %lld", w ? ", " : ": ",
                              name->length < 20 ? name->length : 20, name->text,
                              (long long)c->box->size[__builtin_ctz(u)]);
    }
    if (c->s->offset && i->letters >> c->s->moved & 1 && w < sizeof letters)
        snprintf(letters + w, sizeof letters - w, ", .offset is %lld", (long long)c->s->offset);
    const bool clipped = i->code == EG_X_CLIP || i->code == EG_X_MIN || i->code == EG_X_MAX;
    /* equal nodes are shared: the index may have been parsed elsewhere in the text first */
    const bool here = i->at >= n->at && i->at < n->at + n->length;
    const eg_node *shown = here ? i : n;
    const bool plain = i->code == EG_X_LETTER || clipped || !x->dim[r];
    eg__caret(c->cx, c->s->who, c->text, 1, &(eg_caret){ shown->at - c->shift, shown->length },
              NULL,
              plain                          ? NULL
              : v.low == v.high && v.low < 0 ? "an index does not count from the end"
                                             : "clip(…) keeps it in range",
              "the index of axis %d of '%s' goes from %lld to %lld, but that axis is %lld%s", r,
              x->name, (long long)v.low, (long long)v.high, (long long)x->dim[r], letters);
    return false;
}
static bool check_node(check *c, frame *f, int k);
/* Checks operand i of node k under the assumption that operand 0 has the value `is`, and sets *v to
 * its bounds. False after an error. */
static bool check_branch(check *c, frame *f, int k, int i, bool is, eg_interval *v)
{
    const eg_node *n = &c->e->node[k];
    if (++c->frames > FRAMES && c->quiet) return false;
    if (c->frames > FRAMES)
        return eg_fail_as(c->cx, EG_ERROR_NOTATION, "%s: the %s has too many conditions", c->s->who,
                          c->s->noun),
               false;
    frame *inner = eg__alloc(c->cx, sizeof *inner);
    if (!inner) return false;
    copy_limits(inner, f);
    memset(inner->known, 0, sizeof inner->known);
    assume(c, inner, f, n->in[0], is);
    if (eg_error(c->cx) || !check_node(c, inner, n->in[i])) return false;
    *v = inner->range[n->in[i]];
    return true;
}
/* Checks the indices in node k and its operands under the limits in f, and sets f->range[k]. In c &
 * x, x counts only if c is true; in c | x only if c is false. False after an error. */
static bool check_node(check *c, frame *f, int k)
{
    const eg_node *n = &c->e->node[k];
    const bool chooses = n->code == EG_X_SELECT || n->code == EG_X_AND || n->code == EG_X_OR;
    eg_interval v[3] = { { 0, 0 }, { 0, 0 }, { 0, 0 } };
    if (f->known[k]) return true;
    for (int i = 0; i < n->count; i++) {
        const bool is = n->code == EG_X_SELECT ? i == 1 : n->code == EG_X_AND;
        if (chooses && i && (is ? !v[0].high : v[0].low)) continue; /* this branch is never used */
        if (chooses && i && n->kind == EG_IS_FLOAT && !c->reads[n->in[i]]) continue;
        if (chooses && i && !v[0].low && v[0].high) {
            if (!check_branch(c, f, k, i, is, &v[i])) return false;
            continue;
        }
        if (!check_node(c, f, n->in[i])) return false;
        if (i < 3) v[i] = f->range[n->in[i]];
    }
    f->range[k] = chooses && n->kind != EG_IS_FLOAT ? range_of_operation(n->code, v[0], v[1], v[2])
                                                    : of_node(c->e, k, c->box, f->range);
    if (f->limited[k] && n->kind == EG_IS_INTEGER) f->range[k] = common(f->range[k], f->limit[k]);
    f->known[k] = true;
    for (int r = 0; n->code == EG_X_READ && r < n->count; r++)
        if (!stays_inside(c, k, r, f->range[n->in[r]])) return false;
    return true;
}

/* True if there is no element, so nothing is read. */
static bool box_is_empty(const eg_expression *e, const eg_box *box)
{
    for (int l = 0; l < e->letters; l++)
        if (box->low[l] >= box->high[l]) return true;
    return false;
}
/* True if no index can be outside of its axis; else records an error, unless c->quiet. */
static bool indices_inside(check *c)
{
    frame *outer = eg__alloc(c->cx, sizeof *outer);
    eg_interval *plain = eg__alloc(c->cx, EG_NODES_MAX * sizeof *plain);
    if (!outer || !plain) return false;
    ranges_of_nodes(c->e, c->box, plain);
    c->plain = plain;
    for (int k = 0; k < c->e->nodes; k++) {
        const eg_node *n = &c->e->node[k];
        c->reads[k] = n->code == EG_X_READ;
        for (int i = 0; i < n->count && n->code > EG_X_READ; i++) c->reads[k] |= c->reads[n->in[i]];
    }
    memset(outer->known, 0, sizeof outer->known);
    memset(outer->limited, 0, sizeof outer->limited);
    outer->relating = false;
    return check_node(c, outer, c->e->strict);
}
bool eg__expression_inside(eg_ctx *cx, const eg_expression_source *s, const eg_expression *e,
                           const eg_box *box, const char *text, int shift)
{
    check c = { .cx = cx, .s = s, .e = e, .box = box, .text = text, .shift = shift, .quiet = true };
    if (box_is_empty(e, box) || indices_inside(&c)) return true;
    c.quiet = false, c.frames = 0;
    if (c.outside) indices_inside(&c);
    return false;
}
bool eg__expression_fits(eg_ctx *cx, const eg_expression_source *s, eg_expression *e,
                         const eg_box *box)
{
    check c = { .cx = cx, .s = s, .e = e, .box = box, .text = s->text };
    e->narrow = true;
    if (box_is_empty(e, box)) return true;
    if (!indices_inside(&c)) return false;
    eg__expression_settle(s, e, box);
    return true;
}
void eg__expression_settle(const eg_expression_source *s, eg_expression *e, const eg_box *box)
{
    eg_interval v[EG_NODES_MAX];
    e->narrow = true;
    if (box_is_empty(e, box)) return;
    ranges_of_nodes(e, box, v);
    for (int k = 0; k < e->nodes; k++) {
        eg_node *n = &e->node[k];
        if (n->code == EG_X_SIZE) n->integer = box->size[n->in[0]];
        if (n->kind == EG_IS_INTEGER) e->narrow &= eg__larger(v[k]) < INT32_MAX;
        n->guard = false;
        for (int r = 0; n->code == EG_X_READ && r < n->count; r++)
            n->guard |= v[n->in[r]].low < 0 || v[n->in[r]].high >= s->readable[n->tensor].dim[r];
    }
}
