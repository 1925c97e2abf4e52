/* contracts.c: what every row promises, asked of one recorded node, whatever its entries say:
 *
 *     the cotangent is linear in g, for any g and any layout of it, and the same when asked again,
 *     in another order, after other calls, and while nothing is recorded;
 *     neither rule nor jvp writes to anything, and neither reads what .uses says it does not;
 *     forward and rule do not depend on the layout of operands, nor on one tensor given twice;
 *     ⟨g, jvp(dx)⟩ = Σ ⟨rule(g, i), dx_i⟩, each operand moving alone and all of them together;
 *     ⟨rule(g, i), v⟩ is the derivative of ⟨g, forward⟩ along v, at other sizes too;
 *     where the cotangent has a gradient of its own, that is its derivative.
 *
 * A node is applied again to copies of its operands, so that nothing of the tape is touched. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

enum { OPERANDS = 16, DISTINCT = 24, LARGEST = 1 << 16 };

typedef struct contract {
    const eg_tensor *t; /* the node */
    eg_ctx *cx;
    eg_tensor *x[OPERANDS]; /* copies of its operands, row-major, without history */
    eg_tensor *y, *g;       /* the row on these; a random cotangent */
    eg_tensor *r[OPERANDS]; /* the rule's answers; NULL: none */
    bool moves[OPERANDS];   /* f64, and with an answer */
    char *words;
    size_t room;
    int operand;
} contract;

static bool breaks(contract *k, int operand, const char *words)
{
    if (!k->cx->failed)
        snprintf(k->words, k->room, "%s", words);
    else
        snprintf(k->words, k->room, "%s: %.200s", words, eg_error(k->cx));
    if (k->cx->failed && eg_error_code(k->cx) != EG_ERROR_MEMORY) eg_clear(k->cx);
    k->operand = operand;
    return false;
}

/* -- tensors ---------------------------------------------------------------------------------- */
static double *contract_numbers(eg_tensor *x) { return (double *)(void *)x->data; }
static double drawn(uint64_t salt, int64_t k) /* ±[.5, 1.5) */
{
    const double u = 2 * eg__unit(salt, 31, (uint64_t)k) - 1;
    return u < 0 ? u - .5 : u + .5;
}
static eg_tensor *contract_noise(const eg_tensor *like, uint64_t salt)
{
    eg_tensor *t = eg__new(like->cx, EG_F64, like->rank, like->dim);
    for (int64_t k = 0, n = t ? eg_size(t) : 0; k < n; k++) contract_numbers(t)[k] = drawn(salt, k);
    return t;
}
static eg_tensor *leaf_copy(eg_tensor *x)
{
    eg_tensor *t = eg__new(x->cx, (eg_dtype)x->dtype, x->rank, x->dim);
    if (t) eg__copy(t, x);
    return t;
}
static bool all_finite(eg_tensor *x)
{
    const double *v = eg_f64(x);
    for (int64_t k = 0, n = v ? eg_size(x) : 0; k < n; k++)
        if (!isfinite(v[k])) return false;
    return v != NULL;
}
static double contract_dot(eg_tensor *a, eg_tensor *b, double *size)
{
    const double *x = eg_f64(a), *y = eg_f64(b);
    double sum = 0;
    for (int64_t k = 0, n = x && y ? eg_size(a) : 0; k < n; k++) {
        sum += x[k] * y[k];
        *size += fabs(x[k] * y[k]);
    }
    return sum;
}
/* Equal to `share` of the largest element, factor · b; NULL is zero. */
static bool contract_alike(eg_tensor *a, eg_tensor *b, double factor, double share)
{
    if (!a || !b) {
        eg_tensor *only = a ? a : b;
        const double *v = only ? eg_f64(only) : NULL;
        for (int64_t k = 0, n = v ? eg_size(only) : 0; k < n; k++)
            if (v[k] != 0) return false;
        return true;
    }
    if (!eg__same_shape(a, b) || a->dtype != b->dtype) return false;
    const double *x = eg_f64(a), *y = eg_f64(b);
    const int64_t n = eg_size(a);
    double most = 0;
    if (!x || !y) return false;
    for (int64_t k = 0; k < n; k++) most = fmax(most, fabs(factor * y[k]));
    for (int64_t k = 0; k < n; k++)
        if (x[k] != factor * y[k] && !(isnan(x[k]) && isnan(y[k])) &&
            !(fabs(x[k] - factor * y[k]) <= share * most))
            return false;
    return true;
}

/* The values of v, laid out otherwise. */
typedef enum layout { PERMUTED, SLICED, REVERSED, LAYOUTS } layout;
static const char *const layout_name[] = { "permuted", "sliced", "reversed" };
/* Returns a view with the shape and values of v inside a longer array, whose other elements are
 * 1e30, so that a row that ignores strides is noticed. NULL after an error. */
static eg_tensor *laid_out(eg_tensor *v, layout how)
{
    const int64_t n = eg_size(v);
    int64_t stride[EG_RANK_MAX], offset = 0, step = how == SLICED ? 2 : how == REVERSED ? -1 : 1;
    eg_tensor *room = eg__new(v->cx, EG_F64, 1, (int64_t[]){ 2 * n + 1 });
    if (!room) return NULL;
    for (int64_t k = 0; k < 2 * n + 1; k++) contract_numbers(room)[k] = 1e30;
    for (int r = 0; r < v->rank; r++) {
        const int axis = how == PERMUTED ? r : v->rank - 1 - r;
        stride[axis] = step;
        step *= v->dim[axis];
    }
    if (how == SLICED) offset = 1;
    if (how == REVERSED && n) offset = n - 1;
    eg_tensor *x = eg__alias(room, v->rank, v->dim, stride, offset);
    if (x) eg__copy(x, v);
    return x;
}
/* The first row of v for every row, each in the same place of memory; NULL: v has no two rows. */
static eg_tensor *repeated(eg_tensor *v)
{
    int64_t stride[EG_RANK_MAX];
    if (v->rank == 0 || v->dim[0] < 2 || !eg_size(v)) return NULL;
    eg__row_major(v->rank, v->dim, stride);
    stride[0] = 0;
    return eg__alias(v, v->rank, v->dim, stride, 0);
}

/* -- the row again ---------------------------------------------------------------------------- */
static eg_tensor *contract_apply(const contract *k, eg_tensor *const *x)
{
    eg_tensor *y = eg_apply(k->t->op, k->t->attr, k->t->attr_size, k->t->count, x);
    return eg_ok(y) ? y : NULL;
}
/* The rule; false after an error. *d NULL: no cotangent. */
static bool contract_ask(eg_tensor *y, eg_tensor *g, int i, eg_tensor **d)
{
    *d = y && g ? y->op->rule(y, g, i) : NULL;
    return y && g && !y->cx->failed && (!*d || eg_ok(*d));
}

/* -- 1: the same answer ----------------------------------------------------------------------- */
static bool same_again(contract *k)
{
    eg_tensor *d, *other[OPERANDS], *z;
    for (int i = 0; i < k->t->count; i++)
        if (k->moves[i] &&
            (!contract_ask(k->y, k->g, i, &d) || !contract_alike(d, k->r[i], 1, 1e-12)))
            return breaks(k, i, "gives another cotangent when it is asked again");
    eg_tensor *fresh = contract_apply(k, k->x);
    for (int i = k->t->count; i-- > 0;)
        if (k->moves[i] &&
            (!contract_ask(fresh, k->g, i, &d) || !contract_alike(d, k->r[i], 1, 1e-12)))
            return breaks(k, i,
                          "depends on what the rules of other operands left behind: asked in "
                          "another order it gives another cotangent");
    for (int i = 0; i < k->t->count; i++) {
        other[i] = k->x[i];
        if (k->x[i]->dtype != EG_F64 || !(other[i] = leaf_copy(k->x[i]))) continue;
        for (int64_t j = 0, n = eg_size(other[i]); j < n; j++)
            contract_numbers(other[i])[j] *= 1 + 0.01 * drawn(3, j);
    }
    fresh = contract_apply(k, k->x);
    z = k->cx->failed ? NULL : contract_apply(k, other);
    if (k->cx->failed && eg_error_code(k->cx) != EG_ERROR_MEMORY) eg_clear(k->cx);
    for (int i = 0; z && i < k->t->count; i++) {
        if (k->moves[i]) contract_ask(z, k->g, i, &d);
        if (k->moves[i] &&
            (!contract_ask(fresh, k->g, i, &d) || !contract_alike(d, k->r[i], 1, 1e-12)))
            return breaks(k, i, "depends on what was called in between: state outlives the call");
    }
    const bool was = eg_nograd(k->cx, true);
    bool good = true;
    int at = 0;
    for (int i = 0; i < k->t->count && good; i++)
        if (k->moves[i]) {
            at = i;
            good = contract_ask(k->y, k->g, i, &d) && contract_alike(d, k->r[i], 1, 1e-12);
        }
    z = good ? contract_apply(k, k->x) : NULL;
    const bool value = !good || contract_alike(z, k->y, 1, 1e-12);
    eg_nograd(k->cx, was);
    if (!good)
        return breaks(k, at, "gives another cotangent while nothing is recorded (eg_nograd)");
    return value || breaks(k, -1, "has another value while nothing is recorded (eg_nograd)");
}

/* -- 2: linear in g, of any layout ------------------------------------------------------------ */
static bool linear_in(contract *k, int i, eg_tensor *g2, const char *words)
{
    eg_tensor *both = leaf_copy(k->g), *d, *e;
    if (!both || !g2) return breaks(k, i, "out of memory");
    eg__add_to(both, g2);
    if (!contract_ask(k->y, g2, i, &d) || !contract_ask(k->y, both, i, &e))
        return breaks(k, i, words);
    eg_tensor *sum = k->r[i] ? leaf_copy(k->r[i]) : NULL, *part = d ? leaf_copy(d) : NULL;
    if (sum && part)
        eg__add_to(sum, part);
    else if (part)
        sum = part;
    if (!contract_alike(e, sum, 1, 1e-10)) return breaks(k, i, words);
    return true;
}
/* Of −g, tiny, huge and zero g, of g + h, and of single elements of g. */
static bool linear(contract *k)
{
    static const double factor[] = { -1, 0x1p-100, 0x1p100, 0 };
    static const char *const words[] = {
        "is not linear in g: of -g it is not the negative",
        "is not linear in g: a tiny g gives no tiny cotangent in proportion",
        "is not linear in g: a huge g gives no huge cotangent in proportion",
        "is not linear in g: of g = 0 it is not 0"
    };
    const int64_t n = eg_size(k->g);
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *d;
        if (!k->moves[i]) continue;
        for (int f = 0; f < 4; f++) {
            eg_tensor *g = leaf_copy(k->g);
            for (int64_t j = 0; g && j < n; j++) contract_numbers(g)[j] *= factor[f];
            if (!contract_ask(k->y, g, i, &d) || !contract_alike(d, k->r[i], factor[f], 1e-10))
                return breaks(k, i, words[f]);
        }
        if (!linear_in(k, i, contract_noise(k->g, 4),
                       "is not linear in g: of g + h it is not the sum"))
            return false;
        for (int64_t at = 0; at<n; at += n> 3 ? (n - 1) / 2 : 1) {
            eg_tensor *g = eg__zeros(k->cx, EG_F64, k->g->rank, k->g->dim);
            if (g) contract_numbers(g)[at] = 1;
            if (!linear_in(k, i, g,
                           "is not linear in g: of a g that is 0 but for one element it "
                           "is not what that element adds"))
                return false;
        }
    }
    return true;
}
/* Permuted, sliced, reversed and expanded g, against the same numbers row-major. */
static bool layouts_of_g(contract *k)
{
    char words[96];
    eg_tensor *d, *e, *wide = repeated(k->g), *flat = wide ? leaf_copy(wide) : NULL;
    for (int i = 0; i < k->t->count; i++) {
        if (!k->moves[i]) continue;
        for (int how = 0; how < LAYOUTS; how++) {
            snprintf(words, sizeof words, "depends on the layout of g: of a %s g it is another one",
                     layout_name[how]);
            if (!contract_ask(k->y, laid_out(k->g, (layout)how), i, &d) ||
                !contract_alike(d, k->r[i], 1, 1e-10))
                return breaks(k, i, words);
        }
        if (wide && flat &&
            (!contract_ask(k->y, flat, i, &e) || !contract_ask(k->y, wide, i, &d) ||
             !contract_alike(d, e, 1, 1e-10)))
            return breaks(k, i, "depends on the layout of g: of an expanded g it is another one");
    }
    return true;
}

/* -- 3: writes to nothing, reads what it says ------------------------------------------------- */
static bool writes_nothing(contract *k)
{
    eg_tensor *before[OPERANDS], *d, *y = leaf_copy(k->y), *g = leaf_copy(k->g);
    for (int i = 0; i < k->t->count; i++)
        if (!(before[i] = leaf_copy(k->x[i]))) return true;
    for (int i = 0; i < k->t->count; i++) {
        if (!k->moves[i]) continue;
        contract_ask(k->y, k->g, i, &d);
        if (!contract_alike(k->g, g, 1, 0))
            return breaks(k, i, "writes to the cotangent that it is given");
        if (!contract_alike(k->y, y, 1, 0)) return breaks(k, i, "writes to the result");
        for (int j = 0; j < k->t->count; j++)
            if (k->x[j]->dtype == EG_F64 && !contract_alike(k->x[j], before[j], 1, 0))
                return breaks(k, i, "writes to an operand");
    }
    return true;
}
static void poisoned(eg_tensor *x)
{
    for (int64_t k = 0, n = eg_size(x); k < n; k++) contract_numbers(x)[k] = NAN;
}
/* What .uses says is not read is made NaN before the rule is asked. */
static bool uses_honest(contract *k)
{
    const eg_uses uses = k->t->op->uses;
    const bool result = uses == EG_USES_ALL || uses == EG_USES_RESULT;
    if (uses == EG_USES_ALL) return true;
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *x[OPERANDS], *d;
        if (!k->moves[i]) continue;
        for (int j = 0; j < k->t->count; j++)
            if (!(x[j] = k->x[j]->dtype == EG_F64 ? leaf_copy(k->x[j]) : k->x[j])) return true;
        eg_tensor *y = contract_apply(k, x);
        if (!y || y->st != &y->own) return true;
        if (!result) poisoned(y);
        for (int j = 0; j < k->t->count; j++) {
            const bool reads = uses == EG_USES_OPERANDS || (uses == EG_USES_OTHERS && j != i);
            if (x[j]->dtype == EG_F64 && !reads) poisoned(x[j]);
        }
        if (!contract_ask(y, k->g, i, &d) || !contract_alike(d, k->r[i], 1, 1e-12))
            return breaks(k, i, "reads what .uses says that it does not read");
    }
    return true;
}

/* -- 4: operands of any layout ---------------------------------------------------------------- */
/* The row on x and on row-major copies of x: the same result, the same cotangents. A row may refuse
 * x. */
static bool same_on(contract *k, eg_tensor *const *x, const char *words)
{
    eg_tensor *flat[OPERANDS], *d, *e;
    for (int i = 0; i < k->t->count; i++)
        if (!(flat[i] = x[i]->dtype == EG_F64 ? leaf_copy(x[i]) : x[i])) return true;
    eg_tensor *y = contract_apply(k, x), *z = y ? contract_apply(k, flat) : NULL;
    if (!y || !z) {
        if (eg_error_code(k->cx) != EG_ERROR_MEMORY) eg_clear(k->cx);
        return true;
    }
    if (!all_finite(z)) return true;
    if (!contract_alike(y, z, 1, 1e-10)) {
        char said[128];
        snprintf(said, sizeof said, "has another value where %s", words);
        return breaks(k, -1, said);
    }
    eg_tensor *g = contract_noise(z, 5);
    for (int i = 0; g && i < k->t->count; i++) {
        if (!k->moves[i]) continue;
        if (!contract_ask(z, g, i, &e)) return true;
        if (e && !all_finite(e)) continue;
        char said[128];
        snprintf(said, sizeof said, "gives another cotangent where %s", words);
        if (!contract_ask(y, g, i, &d) || !contract_alike(d, e, 1, 1e-9)) return breaks(k, i, said);
    }
    return true;
}
/* Each operand permuted, sliced, reversed, expanded; two operands of one shape the same tensor. */
static bool layouts_of_operands(contract *k)
{
    char words[64];
    eg_tensor *x[OPERANDS];
    for (int i = 0; i < k->t->count; i++) {
        if (k->x[i]->dtype != EG_F64 || !eg_size(k->x[i])) continue;
        memcpy(x, k->x, sizeof x);
        for (int how = 0; how <= LAYOUTS; how++) {
            x[i] = how < LAYOUTS ? laid_out(k->x[i], (layout)how) : repeated(k->x[i]);
            snprintf(words, sizeof words, "operand %d is %s", i + 1,
                     how < LAYOUTS ? layout_name[how] : "expanded");
            if (x[i] && !same_on(k, x, words)) return false;
        }
        for (int j = i + 1; j < k->t->count; j++) {
            if (k->x[j]->dtype != EG_F64 || !eg__same_shape(k->x[i], k->x[j])) continue;
            memcpy(x, k->x, sizeof x);
            x[j] = x[i];
            snprintf(words, sizeof words, "operands %d and %d are the same tensor", i + 1, j + 1);
            if (!same_on(k, x, words)) return false;
        }
    }
    return true;
}

/* -- 5: jvp ----------------------------------------------------------------------------------- */
static bool jvp_adjoint(contract *k)
{
    if (!k->t->op->jvp) return true;
    for (int only = -1; only < k->t->count; only++) {
        eg_tensor *dx[OPERANDS] = { NULL };
        double size = 0, right = 0;
        char words[160];
        if (only >= 0 && !k->moves[only]) continue;
        for (int i = 0; i < k->t->count; i++) {
            if (!k->moves[i] || (only >= 0 && i != only)) continue;
            if (!(dx[i] = contract_noise(k->x[i], 7 + (uint64_t)i))) return true;
            if (k->r[i]) right += contract_dot(k->r[i], dx[i], &size);
        }
        eg_tensor *d = k->t->op->jvp(k->y, dx);
        const double left = d && eg_ok(d) ? contract_dot(d, k->g, &size) : 0;
        if (!k->cx->failed && fabs(left - right) <= 1e-9 * size) continue;
        if (only < 0)
            snprintf(words, sizeof words,
                     "and its jvp disagree where all operands move: %.6g, %.6g", right, left);
        else
            snprintf(words, sizeof words,
                     "and its jvp disagree where operand %d moves alone: %.6g, %.6g", only + 1,
                     right, left);
        return breaks(k, only, words);
    }
    return true;
}

/* -- 6: the derivative ------------------------------------------------------------------------ */
/* The derivative at 0 of q(user, t), with its error; false: no value there. */
typedef bool contract_curve(void *user, double t, double *value);
static bool contract_slope(contract_curve *q, void *user, double size, double *n, double *err)
{
    double d[3];
    for (int k = 0; k < 3; k++) {
        const double h = ldexp(0x1p-9, -k);
        double up, down;
        if (!q(user, h, &up) || !q(user, -h, &down)) return false;
        d[k] = (up - down) / (2 * h);
    }
    const double r0 = (4 * d[1] - d[0]) / 3, r1 = (4 * d[2] - d[1]) / 3;
    const double first = d[0] - d[1], second = d[1] - d[2], ratio = first / second;
    *n = (16 * r1 - r0) / 15;
    *err = fabs(*n - r1) + 1e-11 * size;
    if (fabs(second) > 1e-11 * size && !(ratio > 2.8 && ratio < 20))
        *err = fmax(fabs(first), fabs(second)) * 4 + 1e-11 * size;
    return isfinite(*n) && isfinite(*err);
}

typedef struct moved {
    const contract *k;
    eg_tensor *const *x, *g, *v;
    int i, of; /* operand that moves; of the rule's answer for this operand, −1: of the result */
    eg_tensor *along;
} moved;
/* The contract_curve of an operand that moves along v. */
static bool moved_value(void *user, double t, double *value)
{
    const moved *m = user;
    eg_ctx *cx = m->k->cx;
    const eg_mark scope = eg_push(cx);
    eg_tensor *x[OPERANDS], *d, *y;
    double size = 0;
    memcpy(x, m->x, (size_t)m->k->t->count * sizeof *x);
    x[m->i] = leaf_copy(m->x[m->i]);
    for (int64_t j = 0, n = x[m->i] ? eg_size(x[m->i]) : 0; j < n; j++)
        contract_numbers(x[m->i])[j] += t * contract_numbers(m->v)[j];
    y = x[m->i] ? contract_apply(m->k, x) : NULL;
    bool good = y != NULL;
    if (good && m->of >= 0) {
        good = contract_ask(y, m->g, m->of, &d) && d;
        *value = good ? contract_dot(d, m->along, &size) : 0;
    } else if (good)
        *value = contract_dot(y, m->g, &size);
    if (cx->failed && eg_error_code(cx) != EG_ERROR_MEMORY) eg_clear(cx);
    eg_pop(cx, scope);
    return good;
}
/* The rule against the row's own forward, at x. */
static bool derivative_at(contract *k, eg_tensor *const *x, const char *where)
{
    eg_tensor *y = contract_apply(k, x), *g = y ? contract_noise(y, 8) : NULL, *d;
    if (k->cx->failed && eg_error_code(k->cx) != EG_ERROR_MEMORY) eg_clear(k->cx);
    if (!g || y->dtype != EG_F64 || !all_finite(y)) return true;
    for (int i = 0; i < k->t->count; i++) {
        double size = 0, n, err;
        char words[200];
        if (!k->moves[i] || !eg_size(x[i])) continue;
        eg_tensor *v = contract_noise(x[i], 9);
        if (!v) return true;
        if (!contract_ask(y, g, i, &d)) return breaks(k, i, where);
        const double a = d ? contract_dot(d, v, &size) : 0;
        contract_dot(y, g, &size);
        moved m = { .k = k, .x = x, .g = g, .v = v, .i = i, .of = -1 };
        if (!isfinite(a) || !contract_slope(moved_value, &m, size, &n, &err)) continue;
        if (fabs(a - n) <= 1e-6 * fmax(fabs(a), fabs(n)) + 10 * err) continue;
        snprintf(words, sizeof words,
                 "disagrees with its own forward%s: %.6g, not %.6g along a "
                 "random direction",
                 where, a, n);
        return breaks(k, i, words);
    }
    return true;
}
static bool derivative_here(contract *k) { return derivative_at(k, k->x, ""); }
/* A factor that is 0 or 1 at this point hides a rule. */
static bool derivative_moved(contract *k)
{
    eg_tensor *x[OPERANDS];
    for (int i = 0; i < k->t->count; i++) {
        x[i] = k->x[i];
        if (x[i]->dtype != EG_F64) continue;
        if (!(x[i] = leaf_copy(k->x[i]))) return true;
        double *v = contract_numbers(x[i]);
        for (int64_t j = 0, n = eg_size(x[i]); j < n; j++) {
            const double u = 0.2 * drawn(21 + (uint64_t)i, j);
            v[j] = v[j] != 0 ? v[j] * (1 + u) : u;
        }
    }
    return derivative_at(k, x, " with its operands moved");
}

/* Operands in which each axis of length `from` has length `to`, filled with the values that there
 * are. */
static bool resized(const contract *k, int64_t from, int64_t to, eg_tensor **x)
{
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *o = k->x[i];
        int64_t dim[EG_RANK_MAX], size = 1;
        for (int r = 0; r < o->rank; r++) size *= dim[r] = o->dim[r] == from ? to : o->dim[r];
        x[i] = o;
        if (size == eg_size(o)) continue;
        if (size > LARGEST || !(x[i] = eg__new(k->cx, (eg_dtype)o->dtype, o->rank, dim)))
            return false;
        const int64_t n = eg_size(o), width = eg__width[o->dtype];
        for (int64_t j = 0; j < size; j++) {
            memcpy(x[i]->data + j * width, o->data + j % n * width, (size_t)width);
            if (o->dtype == EG_F64) contract_numbers(x[i])[j] *= 1 + 0.05 * drawn(10, j);
        }
    }
    return true;
}
/* The sizes that one call has may all be multiples of a block, or all smaller than one. A row with
 * attributes may have its sizes in them, and is left alone. */
static bool derivative_at_sizes(contract *k)
{
    int64_t from[8];
    int n = 0;
    if (k->t->attr_size) return true;
    for (int i = 0; i < k->t->count; i++)
        for (int r = 0; r < k->x[i]->rank && eg_size(k->x[i]); r++) {
            bool seen = k->x[i]->dim[r] < 2 || n == 8;
            for (int j = 0; j < n; j++) seen |= from[j] == k->x[i]->dim[r];
            if (!seen) from[n++] = k->x[i]->dim[r];
        }
    for (int j = 0; j < n; j++) {
        const int64_t to[] = { from[j] + 1, from[j] + 7, 128 + from[j] % 8, 64, 16 };
        for (int s = 0; s < 5; s++) {
            eg_tensor *x[OPERANDS];
            char where[64];
            const eg_mark m = eg_push(k->cx);
            snprintf(where, sizeof where, " at an axis of %lld elements", (long long)to[s]);
            const bool good =
                to[s] <= from[j] || !resized(k, from[j], to[s], x) || derivative_at(k, x, where);
            eg_pop(k->cx, m);
            if (!good) return false;
        }
    }
    return true;
}

/* -- 7: the derivative of the cotangent ------------------------------------------------------- */
static bool second_of(contract *k, int i)
{
    eg_tensor *along = k->r[i] ? contract_noise(k->r[i], 14) : NULL, *cut;
    if (!along || k->r[i]->unrecorded || !k->r[i]->op) return true; /* no gradient is claimed */
    bool any = false;
    for (int j = 0; j < k->t->count; j++)
        any |= k->moves[j] && eg_path_to(k->r[i], k->x[j], &cut) != EG_NO_PATH;
    for (int j = 0; j < k->t->count && any; j++) {
        eg_tensor *dj, *v = k->moves[j] ? contract_noise(k->x[j], 15) : NULL;
        double size = 0, n, err;
        char words[200];
        if (!v || eg_grad(k->r[i], along, 1, &k->x[j], &dj) || !all_finite(dj)) {
            if (k->cx->failed && eg_error_code(k->cx) != EG_ERROR_MEMORY) eg_clear(k->cx);
            continue;
        }
        const double a = contract_dot(dj, v, &size);
        contract_dot(k->r[i], along, &size);
        moved m = { .k = k, .x = k->x, .g = k->g, .v = v, .i = j, .of = i, .along = along };
        if (!contract_slope(moved_value, &m, size, &n, &err)) continue;
        if (fabs(a - n) <= 1e-5 * fmax(fabs(a), fabs(n)) + 10 * err) continue;
        snprintf(words, sizeof words,
                 "has a wrong gradient of its own (second order) by operand %d: %.6g, not %.6g",
                 j + 1, a, n);
        return breaks(k, i, words);
    }
    return true;
}
static bool second_order(contract *k)
{
    for (int i = 0; i < k->t->count; i++)
        if (k->moves[i] && !second_of(k, i)) return false;
    return true;
}

/* -- all of them ------------------------------------------------------------------------------ */
static bool (*const contract_list[])(contract *) = {
    writes_nothing,      same_again,       linear,      layouts_of_g,        uses_honest,
    derivative_here,     derivative_moved, jvp_adjoint, derivative_at_sizes, second_order,
    layouts_of_operands,
};

/* A rule that gives NaN for a g of mixed signs and numbers for a positive one. */
static void contract_signs(contract *k, int i)
{
    eg_tensor *g = leaf_copy(k->g), *d;
    for (int64_t j = 0, n = g ? eg_size(g) : 0; j < n; j++)
        contract_numbers(g)[j] = fabs(contract_numbers(g)[j]);
    if (contract_ask(k->y, g, i, &d) && d && all_finite(d))
        breaks(k, i, "is not linear in g: where g has negative elements it is no number");
}
/* The row on copies of the node's operands; false: it cannot be asked alone, or has no value. */
static bool contract_open(contract *k)
{
    const eg_tensor *t = k->t;
    if (!t->op || !t->op->rule || t->op->rule == eg_zero_rule || !t->op->forward ||
        t->dtype != EG_F64 || t->count > OPERANDS || !eg_size(t))
        return false;
    for (int i = 0; i < t->count; i++)
        if (!(k->x[i] = leaf_copy(t->in[i]))) return false;
    k->y = contract_apply(k, k->x);
    k->g = k->y ? contract_noise(k->y, 1) : NULL;
    if (!k->g || !all_finite(k->y)) return false;
    bool any = false;
    for (int i = 0; i < t->count; i++) {
        if (k->x[i]->dtype != EG_F64) continue;
        if (!contract_ask(k->y, k->g, i, &k->r[i])) return false;
        if (k->r[i] && !eg__same_shape(k->r[i], k->x[i])) return false;
        if (k->r[i] && !all_finite(k->r[i])) {
            contract_signs(k, i);
            return false;
        }
        any |= k->moves[i] = k->r[i] != NULL;
    }
    return any;
}
bool eg__contract(eg_tensor *t, bool any_layout, char *words, size_t room, int *operand)
{
    const size_t count = sizeof contract_list / sizeof *contract_list - !any_layout;
    eg_ctx *cx = t->cx;
    contract k = { .t = t, .cx = cx, .words = words, .room = room, .operand = -1 };
    if (cx->failed) return true;
    const eg_mark m = eg_push(cx);
    const bool was = eg_nograd(cx, false);
    const uint64_t draw = cx->draw;
    bool good = true;
    words[0] = 0;
    if (contract_open(&k))
        for (size_t n = 0; n < count && good; n++) {
            const eg_mark one = eg_push(cx);
            good = contract_list[n](&k);
            eg_pop(cx, one);
            if (cx->failed) break;
        }
    good = good && !words[0];
    if (cx->failed && eg_error_code(cx) != EG_ERROR_MEMORY) eg_clear(cx);
    cx->draw = draw;
    eg_nograd(cx, was);
    eg_pop(cx, m);
    *operand = k.operand;
    return good;
}

/* Is the cotangent made of numbers that were read out of g? Then nothing can be differentiated
 * through it. */
static bool rule_is_raw(const eg_tensor *t)
{
    eg_ctx *cx = t->cx;
    const eg_mark m = eg_push(cx);
    const bool was = eg_nograd(cx, false);
    bool raw = false;
    for (int i = 0; i < t->count && t->op->rule && t->dtype == EG_F64; i++) {
        eg_tensor *g = contract_noise(t, 1), *d, *cut;
        if (t->in[i]->dtype != EG_F64 || !g) continue;
        if (!contract_ask((eg_tensor *)(uintptr_t)t, g, i, &d) || !d) continue;
        raw |= d != g && eg_path_to(d, g, &cut) == EG_NO_PATH;
    }
    if (cx->failed && eg_error_code(cx) != EG_ERROR_MEMORY) eg_clear(cx);
    eg_nograd(cx, was);
    eg_pop(cx, m);
    return raw;
}

/* Was a node like t asked already? Of one row, with equal attributes and shapes. */
static bool asked_already(const eg_tensor *t, eg_tensor *const *asked, int n)
{
    for (int k = 0; k < n; k++) {
        const eg_tensor *o = asked[k];
        bool same = o->op == t->op && o->count == t->count && o->attr_size == t->attr_size &&
                    (!t->attr_size || !memcmp(o->attr, t->attr, t->attr_size));
        for (int i = 0; i < t->count && same; i++) same = eg__same_shape(o->in[i], t->in[i]);
        if (same) return true;
    }
    return false;
}
bool eg__contracts(eg__trial *c, eg_report *r, eg_tensor *y)
{
    eg_tensor **node, *asked[DISTINCT];
    int64_t count;
    int n = 0;
    if (!eg__nodes(y, &count, &node)) return false;
    for (int64_t k = 0; k < count && n < DISTINCT && !c->cx->failed; k++) {
        eg_tensor *t = node[k];
        char words[256], where[256];
        int operand;
        if (!t->op || eg__in_table(t->op) || asked_already(t, asked, n)) continue;
        asked[n++] = t;
        const eg__site at = eg__site_of(t);
        if (eg__contract(t, true, words, sizeof words, &operand)) {
            if (!t->op->jvp && rule_is_raw(t)) {
                c->forwardless = true;
                eg__report_note(c, r, EG_RIGHT, -1,
                                "the rule of %s computes with plain numbers: no forward mode and "
                                "no second order",
                                eg__sites_text(&at, 1, where, sizeof where));
            }
            continue;
        }
        eg__sites_text(&at, 1, where, sizeof where);
        if (operand >= 0)
            eg__report_note(c, r, EG_WRONG, -1, "the rule of %s for operand %d %s", where,
                            operand + 1, words);
        else
            eg__report_note(c, r, EG_WRONG, -1, "%s %s", where, words);
        eg__report_blame(c, r, t->op->name, operand, where);
    }
    return !c->cx->failed;
}
