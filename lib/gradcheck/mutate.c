/* mutate.c: tests whether the check would find a wrong gradient. On each edge of the graph the
 * cotangent that a rule returned is changed in four ways, one at a time (a mutant), and the check
 * along a random direction must fail. Only the backward pass is repeated; f is called once.
 * DeMillo, Lipton, Sayward 1978. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

enum { TRIES = 3 }; /* number of directions that are tried before a mutant counts as not found */

static const char *const kind_name[] = {
    [EG_MUTATE_SIGN] = "times -1",
    [EG_MUTATE_FACTOR] = "times 1.0001",
    [EG_MUTATE_ZERO] = "set to 0",
    [EG_MUTATE_SWAP] = "with two axes of equal length exchanged",
};

/* A random direction, the numeric derivative of ⟨f, W⟩ along it, and the difference that is allowed
 * (slack). known: the other members are set. */
typedef struct line {
    double *direction, slack;
    eg__slope s;
    bool known;
} line;

/* Sets l to random direction `number` and the derivative along it, unless it is known. `scale` is
 * the largest analytic derivative. False after an error. */
static bool mutate_prepare(eg__trial *c, line *l, int number, double scale)
{
    if (l->known) return true;
    if (!(l->direction = eg__alloc(c->cx, (size_t)(c->cells + 1) * sizeof *l->direction)))
        return false;
    eg__direction(c, 100000 + number, -1, l->direction);
    if (!eg__slopes(c, -1, l->direction, NULL, &l->s)) return false;
    l->slack = c->o.rtol * fabs(l->s.n) + c->o.atol * fmax(scale, fabs(l->s.n)) + l->s.err;
    return l->known = true;
}
/* True if the check along l finds the gradient a wrong. */
static bool detected(const eg__trial *c, const line *l, const double *a)
{
    double sum = 0;
    for (int64_t k = 0; k < c->vars; k++) sum += l->direction[c->var[k].cell] * a[k];
    return !(fabs(sum - l->s.n) <= l->slack);
}

/* True if the mutant a of the gradient `right` differs from it along l by at most 1e-7 of the
 * terms, even if the parts of the difference did not cancel: what passed through that edge hardly
 * contributes to the gradient, as the first steps of a long recurrence. */
static bool unmeasurable(const eg__trial *c, const line *l, const double *a, const double *right)
{
    double apart = 0, of = 0;
    for (int64_t k = 0; k < c->vars; k++) {
        apart += fabs(l->direction[c->var[k].cell] * (a[k] - right[k]));
        of += fabs(l->direction[c->var[k].cell] * right[k]);
    }
    return apart <= 1e-7 * of;
}

bool eg__mutate(eg__trial *given, double scale, eg_report *r)
{
    eg__trial t = *given, *c = &t;
    eg_ctx *cx = c->cx;
    eg__probe *p = c->probe;
    line lines[TRIES] = { { NULL, 0, { 0 }, false } };
    double *a = eg__alloc(cx, (size_t)(c->vars + 1) * sizeof *a);
    double *right = eg__alloc(cx, (size_t)(c->vars + 1) * sizeof *right);
    c->o.full = false;
    c->outs = 1;
    if (!a || !right || !c->vars || !c->size) return a && right;
    eg_mark m = eg_push(cx);
    eg_tensor *y = eg__trial_call(c);
    int64_t edges = 1;
    char where[256];
    bool good = y != NULL;
    for (int64_t e = -1; good && e < edges; e++) /* −1: counts the edges without changing any */
        for (int kind = EG_MUTATE_SIGN; good && kind < (e < 0 ? EG_MUTATE_FACTOR : EG_MUTATIONS);
             kind++) {
            p->mutation = (eg__mutation)kind;
            cx->hooks.cotangent = eg__probe_cotangent;
            p->edge = e;
            p->edges = 0;
            p->changed = p->largest = 0;
            eg_mark sweep = eg_push(cx);
            good = eg__trial_sweep(c, y, c->w, a);
            eg_pop(cx, sweep);
            p->mutation = EG_MUTATE_NONE;
            cx->hooks.cotangent = NULL;
            if (!good) break;
            if (e < 0) {
                edges = p->edges;
                memcpy(right, a, (size_t)c->vars * sizeof *a);
                continue;
            }
            r->mutants++;
            if (p->changed <= 1e-13 * p->largest) {
                r->harmless++;
                continue;
            }
            bool caught = false;
            for (int k = 0; k < TRIES && !caught && (good = mutate_prepare(c, &lines[k], k, scale));
                 k++)
                caught = detected(c, &lines[k], a);
            if (!good) break;
            if (caught) {
                r->caught++;
                continue;
            }
            bool below = true; /* along every line; an effect that one could show has survived */
            for (int k = 0; k < TRIES; k++) below &= unmeasurable(c, &lines[k], a, right);
            r->unmeasurable += below;
            if (below) continue;
            r->survivors++;
            eg__report_note(
                c, r, EG_UNTESTED, -1,
                "the check does not notice when the gradient of operand %d of %s comes %s",
                p->operand + 1, eg__sites_text(&p->at, 1, where, sizeof where), kind_name[kind]);
        }
    eg_pop(cx, m);
    return good;
}
