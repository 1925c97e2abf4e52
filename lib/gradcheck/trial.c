/* trial.c: the point of a check, and f at this point.
 *
 * The inputs themselves are moved into one block of f64 (substitute.c), each with its strides;
 * inputs that share memory still share it. So f may read them as arguments or through `user`, and
 * an address that several entries share is one variable. The number of random draws and the
 * training mode are reset before each call. f is always recorded, since it may compute gradients
 * itself. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

/* -- inputs ----------------------------------------------------------------------------------- */
/* Returns the offset of an element from element 0, by its row-major index. */
static int64_t stored_at(const eg_tensor *x, int64_t index)
{
    int64_t at = 0;
    for (int r = x->rank; r-- > 0; index /= x->dim[r]) at += index % x->dim[r] * x->stride[r];
    return at;
}
/* Merges the range of input k with the first range of an earlier input that it overlaps. False if
 * it overlaps none. */
static bool merge_overlap(int k, int *group, char **low, char **high)
{
    for (int j = 0; j < k; j++) {
        const int g = group[j], own = group[k];
        if (g == own || low[g] >= high[own] || low[own] >= high[g]) continue;
        const int into = g < own ? g : own, from = g + own - into;
        if (low[from] < low[into]) low[into] = low[from];
        if (high[from] > high[into]) high[into] = high[from];
        for (int i = 0; i <= k; i++)
            if (group[i] == from) group[i] = into;
        return true;
    }
    return false;
}
/* Assigns ranges of the block to inputs; inputs whose memory overlaps share one. group[k]: the
 * first input with the same range as k. */
static void input_ranges(const eg__trial *c, int *group, char **low, char **high)
{
    for (int k = 0; k < c->o.count; k++) {
        const eg_tensor *x = c->o.xs[k];
        int64_t a, b;
        group[k] = k;
        low[k] = high[k] = x->data;
        if (!eg_size(x)) continue;
        eg__reach(x, &a, &b);
        low[k] += a * eg__width[x->dtype];
        high[k] += (b + 1) * eg__width[x->dtype];
        while (merge_overlap(k, group, low, high)) {
            /* a range that grew may overlap another one */
        }
    }
}

/* Copies all inputs to one f64 array, in which inputs that share memory still share it; numbers the
 * addresses that an entry reaches as variables; and points the inputs to the array until the check
 * ends. False after an error, such as an input that is not finite. */
static bool place_inputs(eg__trial *c)
{
    eg_ctx *cx = c->cx;
    int group[EG_CHECK_INPUTS];
    char *low[EG_CHECK_INPUTS], *high[EG_CHECK_INPUTS];
    int64_t start[EG_CHECK_INPUTS];
    eg_storage *storage[EG_CHECK_INPUTS] = { NULL };
    input_ranges(c, group, low, high);
    for (int k = 0; k < c->o.count; k++) {
        if (group[k] != k) continue;
        start[k] = c->cells;
        c->cells += (high[k] - low[k]) / eg__width[c->o.xs[k]->dtype];
    }
    int64_t *owner = eg__alloc(cx, (size_t)(c->cells + 1) * sizeof *owner);
    c->memory = eg__alloc(cx, (size_t)(c->cells + 1) * sizeof *c->memory);
    c->point = eg__alloc(cx, (size_t)(c->cells + 1) * sizeof *c->point);
    c->var = eg__alloc(cx, (size_t)(c->cells + 1) * sizeof *c->var);
    if (!owner || !c->memory || !c->point || !c->var) return false;
    for (int64_t j = 0; j < c->cells; j++) {
        owner[j] = -1;
        c->memory[j] = 0;
    }
    for (int k = 0; k < c->o.count; k++) {
        eg_tensor *x = c->o.xs[k];
        const int64_t size = eg_size(x),
                      first = start[group[k]] + (x->data - low[group[k]]) / eg__width[x->dtype];
        if (!(c->var_of[k] = eg__alloc(cx, (size_t)(size + 1) * sizeof **c->var_of))) return false;
        for (int64_t j = 0; j < size; j++) {
            const int64_t at = stored_at(x, j), cell = first + at;
            if (owner[cell] < 0) {
                owner[cell] = c->vars;
                c->var[c->vars++] = (eg__variable){ .cell = cell, .index = j, .input = k };
                c->memory[cell] = eg__element(x, at);
                if (!isfinite(c->memory[cell])) {
                    eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: input %d has %g at element %lld",
                               k + 1, c->memory[cell], (long long)j);
                    return false;
                }
            }
            c->var_of[k][j] = owner[cell];
            c->var[owner[cell]].shared++;
        }
        start[k] = first;
    }
    memcpy(c->point, c->memory, (size_t)c->cells * sizeof *c->point);
    for (int k = 0; k < c->o.count; k++) { /* a tensor that was given twice is moved once */
        bool twice = false;
        for (int j = 0; j < k; j++) twice |= c->o.xs[j] == c->o.xs[k];
        if (!twice &&
            !eg__probe_input(cx, c->o.xs[k], (char *)(c->memory + start[k]), &storage[group[k]]))
            return false;
    }
    for (int k = 0; k < c->o.count; k++) c->version[k] = c->o.xs[k]->st->version;
    return true;
}

/* -- f ---------------------------------------------------------------------------------------- */
eg_tensor *eg__trial_call(eg__trial *c)
{
    eg_ctx *cx = c->cx;
    char a[256], b[256];
    eg_set_draws(cx, c->draws);
    cx->training = c->training;
    cx->recording = !c->unrecorded;
    ++*c->calls;
    eg_tensor *y = c->o.f(c->o.user, c->o.xs);
    if (cx->failed) return NULL;
    if (!y)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: f returned NULL");
    else if (eg_context(y) != cx)
        eg_fail_as(cx, EG_ERROR_MISUSE, "gradcheck: the result of f belongs to another context");
    else if (eg__check("gradcheck: the result of f", y)) {
        if (!eg__is_float(y->dtype))
            eg_fail_as(cx, EG_ERROR_DTYPE, "gradcheck: f returns %s; only floats have gradients",
                       eg_type_name(y->dtype));
        else if (c->w && !eg__has_sizes(y, c->rank, c->dim))
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "gradcheck: f returned %s at first, and %s when called again",
                       eg__sizes_text(c->rank, c->dim, a, sizeof a), eg__dims_text(y, b, sizeof b));
        for (int k = 0; k < c->o.count; k++)
            if (c->o.xs[k]->st->version != c->version[k])
                eg_fail_as(
                    cx, EG_ERROR_MISUSE,
                    "gradcheck: f changes its input %d in place; a check needs the inputs as "
                    "they were",
                    k + 1);
    }
    return cx->failed ? NULL : y;
}
bool eg__trial_value(eg__trial *c, double *y)
{
    eg_mark m = eg_push(c->cx);
    eg_tensor *of = eg__trial_call(c);
    const double *v = of ? eg_f64(of) : NULL;
    if (v && c->size) memcpy(y, v, (size_t)c->size * sizeof *y);
    eg_pop(c->cx, m);
    return v != NULL && !c->cx->failed;
}
bool eg__refused(eg_ctx *cx)
{
    if (!cx->failed || eg_error_code(cx) == EG_ERROR_MEMORY) return false;
    eg_clear(cx);
    return true;
}
void eg__trial_scale(eg__trial *c, const double *a)
{
    double f = 0, x = 1;
    c->scale = 0;
    for (int64_t k = 0; k < c->outs * c->vars; k++)
        if (isfinite(a[k])) c->scale = fmax(c->scale, fabs(a[k]));
    for (int64_t k = 0; k < c->size; k++)
        f = fmax(f, fabs(c->middle[k]) * (c->o.full ? 1 : c->weight[k]));
    for (int64_t k = 0; k < c->cells; k++) x = fmax(x, fabs(c->point[k]));
    c->tiny = 16 * 2.3e-16 * fmax(c->scale, f / x);
    c->doubt = fmax(c->tiny, 24 * 2.3e-16);
}
bool eg__trial_go(eg__trial *c, const double *point)
{
    if (c->cells) memcpy(c->point, point, (size_t)c->cells * sizeof *point);
    if (c->cells) memcpy(c->memory, point, (size_t)c->cells * sizeof *point);
    if (!eg__trial_value(c, c->middle)) return false;
    for (int64_t k = 0; k < c->size; k++)
        if (!isfinite(c->middle[k])) return false;
    return true;
}

bool eg__trial_sweep(eg__trial *c, eg_tensor *y, eg_tensor *seed, double *a)
{
    eg_tensor *dx[EG_CHECK_INPUTS];
    bool given[EG_CHECK_INPUTS];
    for (int k = 0; k < c->o.count; k++) {
        given[k] = true;
        for (int j = 0; j < k; j++) given[k] &= c->o.xs[j] != c->o.xs[k];
    }
    ++*c->sweeps;
    if (eg__grad(y, seed, c->o.count, c->o.xs, dx)) return false;
    for (int64_t j = 0; j < c->vars; j++) a[j] = 0;
    for (int k = 0; k < c->o.count; k++) {
        const double *d = given[k] ? eg_f64(dx[k]) : NULL;
        for (int64_t j = 0, n = d ? eg_size(dx[k]) : 0; j < n; j++) a[c->var_of[k][j]] += d[j];
    }
    /* after dx was read, which may be the seed */
    const size_t size = (size_t)c->size * sizeof *c->drawn;
    if (seed == c->w && size && memcmp(c->weight, c->drawn, size)) {
        memcpy(c->weight, c->drawn, size);
        c->seed_written = true;
    }
    return !c->cx->failed;
}
bool eg__trial_gradient(eg__trial *c, double *a)
{
    eg_mark m = eg_push(c->cx);
    eg_tensor *y = eg__trial_call(c);
    for (int64_t o = 0; y && o < c->outs && !c->cx->failed; o++) {
        eg_mark row = eg_push(c->cx);
        eg_tensor *seed = c->w;
        if (c->o.full && (seed = eg__zeros(c->cx, EG_F64, c->rank, c->dim)))
            ((double *)(void *)seed->data)[o] = 1;
        if (seed) eg__trial_sweep(c, y, seed, a + o * c->vars);
        eg_pop(c->cx, row);
    }
    eg_pop(c->cx, m);
    return y && !c->cx->failed;
}

bool eg__trial_measure(eg__trial *c)
{
    eg_ctx *cx = c->cx;
    c->w = NULL;
    eg_mark m = eg_push(cx);
    eg_tensor *y = eg__trial_call(c);
    if (y) {
        c->rank = y->rank;
        c->size = eg_size(y);
        if (y->rank) memcpy(c->dim, y->dim, y->rank * sizeof *c->dim);
    }
    eg_pop(cx, m);
    if (!y || !(c->w = eg__new(cx, EG_F64, c->rank, c->dim))) return false;
    c->weight = (double *)(void *)c->w->data;
    c->drawn = eg__alloc(cx, (size_t)(c->size + 1) * sizeof *c->drawn);
    if (!c->drawn) return false;
    for (int64_t k = 0; k < c->size; k++)
        c->drawn[k] = c->weight[k] = 0.5 + eg__unit(c->o.seed ^ 0x9e3779b9u, 1, (uint64_t)k);
    c->outs = c->o.full ? c->size : 1;
    if (memcmp(c->memory, c->point, (size_t)c->cells * sizeof *c->point)) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "gradcheck: f writes to its inputs; a check needs them as they were");
        return false;
    }
    c->middle = eg__alloc(cx, (size_t)(c->size + 1) * sizeof *c->middle);
    double *again = eg__alloc(cx, (size_t)(c->size + 1) * sizeof *again);
    c->noise = c->jitter = NULL;
    c->row = NULL;
    c->rechecks = 512;
    if (!c->middle || !again || !eg__trial_value(c, c->middle) || !eg__trial_value(c, again))
        return false;
    for (int64_t k = 0; k < c->size; k++) {
        if (isfinite(c->middle[k])) continue;
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "gradcheck: %s is infinite or NaN at this point, and has no derivative there",
                   c->order > 1 ? "the gradient of f" : "f's result");
        return false;
    }
    c->again |= c->size && memcmp(c->middle, again, (size_t)c->size * sizeof *again);
    return eg__noise(c);
}
bool eg__trial_open(eg__trial *c) { return place_inputs(c) && eg__trial_measure(c); }
