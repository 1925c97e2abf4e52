/* state.c: tests for state that a call or a backward pass leaves behind for the next. The tape of
 * one call is traversed backward twice, and again after f was called elsewhere; the seed is
 * changed; f is called while the context does not record, and once more at the end. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

/* True if a equals factor · b up to rounding. jitter: the measured rounding of each element. NULL
 * for two results of the same computation: if these differ, the measured rounding has the same
 * cause. */
static bool state_alike(const double *a, const double *b, double factor, int64_t n,
                        const double *jitter)
{
    double most = 1e-5; /* times 1e-9: rounding of cotangents near 1 */
    for (int64_t k = 0; k < n; k++)
        if (isfinite(a[k])) most = fmax(most, fabs(a[k]));
    for (int64_t k = 0; k < n; k++)
        if (b[k] != factor * a[k] && (isfinite(a[k]) || isfinite(b[k])) &&
            !(jitter && isinf(jitter[k])) &&
            !(fabs(b[k] - factor * a[k]) <=
              fabs(factor) * (1e-9 * most + (jitter ? 64 * jitter[k] : 0))))
            return false;
    return true;
}
static bool state_move(eg__trial *c, double share)
{
    for (int64_t k = 0; k < c->vars; k++) {
        const int64_t at = c->var[k].cell;
        c->memory[at] = c->point[at] * (1 + share * eg__unit(c->o.seed, 17, (uint64_t)k)) +
                        (c->point[at] == 0 ? share : 0);
    }
    return true;
}
static void state_back(eg__trial *c)
{
    if (c->cells) memcpy(c->memory, c->point, (size_t)c->cells * sizeof *c->point);
}
/* Calls f at another point, so that state which it leaves behind has an effect. */
static void call_elsewhere(eg__trial *c)
{
    const eg_mark m = eg_push(c->cx);
    state_move(c, 0.01);
    eg__trial_call(c);
    eg__refused(c->cx);
    state_back(c);
    eg_pop(c->cx, m);
}

typedef struct state {
    double *a, *b, *w;
    eg_tensor *seed;
    const double *jitter; /* by which the given gradient may differ from that of another call */
} state;

/* Tests that the gradient is linear in the seed: with −W, tiny and huge W, and W in two parts of
 * mixed signs. Returns words for what is broken; NULL if nothing is. */
static const char *seeds_break(eg__trial *c, eg_tensor *y, const state *s)
{
    static const double factor[] = { -1, 0x1p-60, 0x1p60 };
    static const char *const words[] = { "of a seed of the other sign it is not the negative",
                                         "a tiny seed gives no gradient in proportion",
                                         "a huge seed gives no gradient in proportion" };
    double *v = (double *)(void *)s->seed->data;
    double most = 0;
    for (int64_t k = 0; k < c->vars; k++) most = fmax(most, fabs(s->a[k]));
    for (int f = 0; f < 3; f++) {
        /* intermediate products could overflow */
        if (most > 1e100 || (most < 1e-100 && most > 0)) continue;
        for (int64_t k = 0; k < c->size; k++) v[k] = factor[f] * c->weight[k];
        s->seed->st->version++; /* memos of rules for the former values become invalid */
        if (!eg__trial_sweep(c, y, s->seed, s->b)) return NULL;
        if (!state_alike(s->a, s->b, factor[f], c->vars, c->jitter)) return words[f];
    }
    double *sum = s->w;
    for (int64_t k = 0; k < c->vars; k++) sum[k] = 0;
    for (int part = 0; part < 2; part++) {
        for (int64_t k = 0; k < c->size; k++) {
            const double u = 4 * eg__unit(c->o.seed, 18, (uint64_t)k) - 2;
            v[k] = part ? c->weight[k] - u : u;
        }
        s->seed->st->version++;
        if (!eg__trial_sweep(c, y, s->seed, s->b)) return NULL;
        for (int64_t k = 0; k < c->vars; k++) sum[k] += s->b[k];
    }
    return state_alike(s->a, sum, 1, c->vars, c->jitter) ? NULL : "of two seeds it is not the sum";
}

/* Computes several gradients from one tape and compares them. False after an error. */
static bool sweeps(eg__trial *c, eg_report *r, const double *a, const state *s)
{
    const char *broken;
    eg_tensor *y = eg__trial_call(c);
    if (!y || !eg__trial_sweep(c, y, c->w, s->a)) return false;
    if (c->seed_written)
        eg__report_note(c, r, EG_WRONG, -1, "the sweep changes the seed that it was given");
    if (c->size) memcpy(c->weight, s->w, (size_t)c->size * sizeof *s->w);
    if (memcmp(c->memory, c->point, (size_t)c->cells * sizeof *c->point))
        eg__report_note(c, r, EG_WRONG, -1, "the sweep writes to an input");
    state_back(c);
    if (!state_alike(a, s->a, 1, c->vars, s->jitter))
        eg__report_note(c, r, EG_WRONG, -1,
                        "another call of f at the same point has another gradient");
    if (!eg__trial_sweep(c, y, c->w, s->b)) return false;
    if (!state_alike(s->a, s->b, 1, c->vars, NULL))
        eg__report_note(c, r, EG_WRONG, -1,
                        "a second sweep over the same tape gives another gradient: "
                        "something is kept between sweeps");
    else if ((broken = seeds_break(c, y, s)) != NULL)
        eg__report_note(c, r, EG_WRONG, -1, "the gradient is not linear in its seed: %s", broken);
    return !c->cx->failed;
}
/* Computes the gradient from a tape after another call of f, and compares. False after an error. */
static bool after_another_call(eg__trial *c, eg_report *r, const state *s)
{
    eg_tensor *y = eg__trial_call(c);
    if (!y) return false;
    call_elsewhere(c);
    if (c->cx->failed || !eg__trial_sweep(c, y, c->w, s->b)) return false;
    if (!state_alike(s->a, s->b, 1, c->vars, NULL))
        eg__report_note(c, r, EG_WRONG, -1,
                        "f was called at another point between its call and the sweep, and the "
                        "gradient is another one: state outlives a call");
    return true;
}
/* Calls f while the context does not record, and once more, and compares. False after an error. */
static bool state_values(eg__trial *c, eg_report *r, double *y)
{
    c->unrecorded = true;
    const bool good = eg__trial_value(c, y);
    c->unrecorded = false;
    if (!good && !eg__refused(c->cx)) return false;
    if (good && !state_alike(c->middle, y, 1, c->size, NULL))
        eg__report_note(c, r, EG_WRONG, -1,
                        "f has another value while nothing is recorded (eg_nograd)");
    if (!eg__trial_value(c, y)) return false;
    if (memcmp(y, c->middle, (size_t)c->size * sizeof *y) &&
        !state_alike(c->middle, y, 1, c->size, NULL))
        eg__report_note(c, r, EG_NOISE, -1,
                        "f gives another value after %lld call%s, with the same inputs and draws: "
                        "it is not deterministic",
                        (long long)*c->calls, *c->calls == 1 ? "" : "s");
    return true;
}

/* Sets *c, whose outputs have the gradients a, to the trial of ⟨f, W⟩. Returns its gradient; NULL
 * after an error. */
static const double *of_the_sum(eg__trial *c, const double *a)
{
    double *sum = eg__alloc(c->cx, (size_t)(c->vars + 1) * sizeof *sum);
    for (int64_t k = 0; k < c->vars && sum; k++) {
        sum[k] = 0;
        for (int64_t o = 0; o < c->outs; o++) sum[k] += c->weight[o] * a[o * c->vars + k];
    }
    c->o.full = false;
    c->outs = 1;
    c->jitter = NULL;
    return sum && eg__gradient_noise(c, sum) ? sum : NULL;
}
bool eg__state(eg__trial *given, eg_report *r, const double *a)
{
    eg__trial t = *given, *c = &t; /* the trial of ⟨f, W⟩ */
    eg_ctx *cx = c->cx;
    const int64_t most = c->size > c->vars ? c->size : c->vars;
    const eg_mark m = eg_push(cx);
    const bool rows = c->o.full;
    if (rows && !(a = of_the_sum(c, a))) return false;
    state s = { .jitter = rows ? c->jitter : NULL, .seed = eg__new(cx, EG_F64, c->rank, c->dim) };
    s.a = eg__alloc(cx, (size_t)(most + 1) * sizeof *s.a);
    s.b = eg__alloc(cx, (size_t)(most + 1) * sizeof *s.b);
    s.w = eg__alloc(cx, (size_t)(most + 1) * sizeof *s.w);
    bool good = s.seed && s.a && s.b && s.w;
    if (good) {
        memcpy(s.w, c->weight, (size_t)c->size * sizeof *s.w);
        good = sweeps(c, r, a, &s) && after_another_call(c, r, &s) && state_values(c, r, s.b);
    }
    eg_pop(cx, m);
    return good && !cx->failed;
}
