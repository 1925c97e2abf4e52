/* entries.c: tests the entries of one order, column by column. Only the failures and the counts of
 * a column are kept, so that a full Jacobian takes no more memory than its analytic values. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int order_by_error(const void *p, const void *q)
{
    const eg_entry *a = p, *b = q;
    static const int rank[] = { [EG_EMPTY] = 0, [EG_UNTESTED] = 1, [EG_NOISE] = 2,
                                [EG_KINK] = 3,  [EG_WRONG] = 4,    [EG_PRECISION] = 0 };
    if (rank[a->verdict] != rank[b->verdict]) return rank[b->verdict] - rank[a->verdict];
    const double x = fabs(a->analytic - a->numeric), y = fabs(b->analytic - b->numeric);
    if (isnan(x) != isnan(y)) return isnan(x) ? -1 : 1;
    if (x != y && !isnan(x)) return x > y ? -1 : 1;
    if (a->input != b->input) return a->input - b->input;
    return a->index != b->index ? (a->index < b->index ? -1 : 1)
                                : (a->output > b->output) - (a->output < b->output);
}

static int column_input(const eg__trial *c, int64_t k)
{
    return c->o.directions > 0 ? (int)(k % c->o.count) : c->var[k].input;
}

bool eg__entries_open(eg__entries *e)
{
    eg__trial *c = e->c;
    eg_ctx *cx = c->cx;
    e->columns = c->o.directions > 0 ? (int64_t)c->o.directions * c->o.count : c->vars;
    e->n = e->kinks = e->shown = 0;
    e->r->right = e->r->covered = e->r->hidden = 0;
    e->r->worst = e->r->margin = 0;
    e->r->entries = e->columns * c->outs;
    e->tested = eg__alloc(cx, (size_t)c->o.count + 1);
    e->direction = eg__alloc(cx, (size_t)(c->cells + 1) * sizeof *e->direction);
    e->analytic = eg__alloc(cx, (size_t)(c->outs + 1) * sizeof *e->analytic);
    e->s = eg__alloc(cx, (size_t)(c->outs + 1) * sizeof *e->s);
    e->open = eg__alloc(cx, (size_t)c->vars + 1);
    e->kink = eg__alloc(cx, (size_t)(e->columns + 1) * sizeof *e->kink);
    e->passing = eg__alloc(cx, EG_CHECK_SHOWN * sizeof *e->passing);
    if (!e->tested || !e->direction || !e->analytic || !e->s || !e->open || !e->kink || !e->passing)
        return false;
    memset(e->tested, 0, (size_t)c->o.count);
    memset(e->open, EG_COVERED, (size_t)c->vars);
    return true;
}

bool eg__entries_add(eg__entries *e, const eg_entry *x)
{
    if (e->n == EG_CHECK_KEPT) return true;
    if (e->n == e->capacity) {
        const int64_t capacity = e->capacity ? 4 * e->capacity : 64;
        eg_entry *more = eg__alloc(e->c->cx, (size_t)capacity * sizeof *more);
        if (!more) return false;
        if (e->n) memcpy(more, e->kept, (size_t)e->n * sizeof *more);
        e->kept = more;
        e->capacity = capacity;
    }
    e->kept[e->n++] = *x;
    return true;
}
/* Keeps x if it is one of the entries with the largest differences among those that pass. */
static void entries_pass(eg__entries *e, const eg_entry *x)
{
    if (e->shown == EG_CHECK_SHOWN && order_by_error(x, &e->passing[e->shown - 1]) >= 0) return;
    int k = e->shown < EG_CHECK_SHOWN ? e->shown++ : e->shown - 1;
    for (; k > 0 && order_by_error(x, &e->passing[k - 1]) < 0; k--)
        e->passing[k] = e->passing[k - 1];
    e->passing[k] = *x;
}

/* Judges and counts one entry. Returns EG_COVERED, EG_BOTH_ZERO or EG_HIDDEN for it; −1 after an
 * error. */
static int entry_judge(eg__entries *e, int64_t k, int64_t o, double jitter)
{
    eg__trial *c = e->c;
    eg_report *r = e->r;
    const bool along = c->o.directions > 0;
    eg__slope *s = &e->s[o];
    const double a = e->analytic[o];
    bool covered;
    eg_verdict v = eg__judge(c, a, jitter, s, &covered);
    if (v != EG_RIGHT && c->o.full) {
        const double *row = eg__row_rounding(c, e->a + o * c->vars, o);
        if (!row) return -1;
        if (!along) jitter = fmax(jitter, row[k]);
        for (int64_t j = 0; along && j < c->vars; j++)
            jitter += fabs(e->direction[c->var[j].cell]) * row[j];
        v = eg__judge(c, a, jitter, s, &covered);
    }
    if (v != EG_RIGHT)
        v = eg__judge_again(
            c, &(eg__judged){ along ? -1 : c->var[k].cell, e->direction, o, a, jitter }, s,
            &covered);
    if (c->cx->failed) return -1;
    const int input = column_input(c, k);
    const bool hidden = v == EG_UNTESTED;
    if (hidden) v = EG_RIGHT; /* until it is tested at another point */
    const double apart = fabs(a - s->n), most = eg__allowed(c, s, jitter);
    r->right += v == EG_RIGHT;
    r->covered += covered;
    r->hidden += !covered;
    e->tested[input] |= covered;
    if (c->scale > 0 && (covered || v != EG_RIGHT)) r->worst = fmax(r->worst, apart / c->scale);
    if (most > 0 && (covered || v != EG_RIGHT)) r->margin = fmax(r->margin, apart / most);
    if (!isfinite(apart)) r->worst = r->margin = INFINITY;
    const eg_entry x = { .input = input,
                         .index = along ? -1 : c->var[k].index,
                         .analytic = a,
                         .numeric = s->n,
                         .left = s->left,
                         .right = s->right,
                         .error = s->err,
                         .verdict = v,
                         .output = c->o.full ? o : -1,
                         .shared = along ? 1 : c->var[k].shared,
                         .operand = -1 };
    if (v == EG_RIGHT)
        entries_pass(e, &x);
    else {
        if (!eg__entries_add(e, &x)) return -1;
        if (v == EG_KINK && (!e->kinks || e->kink[e->kinks - 1] != k)) e->kink[e->kinks++] = k;
        const bool lets = v == EG_KINK && c->o.kinks;
        if (!lets && (e->input[input] == EG_RIGHT || v == EG_WRONG)) e->input[input] = v;
    }
    return covered || v != EG_RIGHT ? EG_COVERED : hidden ? EG_HIDDEN : EG_BOTH_ZERO;
}

/* Computes the slopes of a column and judges its entries. False after an error. */
static bool column(eg__entries *e, int64_t k)
{
    eg__trial *c = e->c;
    const bool along = c->o.directions > 0;
    const int64_t vars = c->vars;
    double jitter = 0;
    if (along) eg__direction(c, (int)k, column_input(c, k), e->direction);
    for (int64_t o = 0; o < c->outs; o++) {
        double sum = along ? 0 : e->a[o * vars + k];
        /* the direction is 0 in other inputs */
        for (int64_t j = 0; along && j < vars; j++)
            sum += e->direction[c->var[j].cell] * e->a[o * vars + j];
        e->analytic[o] = sum;
    }
    if (!c->o.full && !along) jitter = c->jitter[k];
    for (int64_t j = 0; along && !c->o.full && j < vars; j++)
        jitter +=
            fabs(e->direction[c->var[j].cell]) * (c->jitter[j] + 0.25 * c->unit * fabs(e->a[j]));
    if (!eg__slopes(c, along ? -1 : c->var[k].cell, e->direction, e->analytic, e->s)) return false;
    int open = EG_BOTH_ZERO;
    for (int64_t o = 0; o < c->outs; o++) {
        const int of = entry_judge(e, k, o, c->o.full ? c->jitter[o] : jitter);
        if (of < 0) return false;
        if (of == EG_COVERED || open == EG_COVERED)
            open = EG_COVERED;
        else if (of == EG_HIDDEN)
            open = EG_HIDDEN;
    }
    if (!along && c->outs) e->open[k] = (uint8_t)open;
    return true;
}

/* If .kinks is set, entries at a kink pass if together they are a subgradient. False after an
 * error. */
static bool entries_kinks(eg__entries *e)
{
    eg__trial *c = e->c;
    bool is = true;
    if (!e->kinks || !c->o.kinks) return true;
    if (c->o.directions == 0 && !eg__subgradient(c, e->a, e->kinks, e->kink, &is)) return false;
    for (int64_t k = 0; k < e->n && !is; k++)
        if (e->kept[k].verdict == EG_KINK && e->input[e->kept[k].input] == EG_RIGHT)
            e->input[e->kept[k].input] = EG_KINK;
    if (is)
        eg__report_note(c, e->r, EG_RIGHT, -1,
                        e->kinks == 1
                            ? "1 entry lies at a kink, and its analytic value is a subgradient"
                            : "%lld entries lie at a kink, and their analytic values are a "
                              "subgradient",
                        (long long)e->kinks);
    return true;
}

bool eg__entries_all(eg__entries *e)
{
    eg__trial *c = e->c;
    for (int64_t k = 0; k < e->columns; k++)
        if (!column(e, k)) return false;
    /* an input in the memory of another one is tested with that one */
    for (int k = 0; k < c->o.count; k++)
        for (int64_t j = 0, size = eg_size(c->o.xs[k]); j < size && !e->tested[k]; j++)
            e->tested[k] = e->tested[c->var[c->var_of[k][j]].input];
    return entries_kinks(e);
}

void eg__entries_close(eg__entries *e)
{
    eg_report *r = e->r;
    for (int k = 0; k < e->shown && e->n < EG_CHECK_SHOWN; k++)
        if (!eg__entries_add(e, &e->passing[k])) break;
    const eg_note *cause = NULL;
    for (int k = 0; k < r->notes && !cause; k++)
        if (r->note[k].rule) cause = &r->note[k];
    for (int64_t k = 0; k < e->n && cause; k++) {
        if (e->kept[k].verdict != EG_WRONG) continue;
        e->kept[k].rule = cause->rule;
        e->kept[k].operand = cause->operand;
        e->kept[k].call = cause->call;
    }
    if (e->n) qsort(e->kept, (size_t)e->n, sizeof *e->kept, order_by_error);
    r->entry = e->kept;
    r->shown = (int)e->n;
}
