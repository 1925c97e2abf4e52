/* contract_values.c: contracts about values: an operation gives the same result in every call,
 * writes to nothing, reads only what it declares, and depends neither on the layout of g or of
 * operands, nor on whether two operands are one tensor. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

/* -- the same result --------------------------------------------------------------------------- */
/* True if value and cotangents are the same on another number of threads. */
static bool same_on_threads(eg__contract_call *k)
{
    const int was = k->cx->threads;
    bool good = true;
    eg_tensor *d;
    if (k->cx->parent) return true; /* a block runs on the threads of the waiting context */
    k->cx->threads = was == 1 ? 3 : 1;
    eg_tensor *y = eg__contract_apply(k, k->x);
    if (!eg__contract_alike(y, k->y, 1e-12))
        good = eg__breaks(k, -1, "has another value on another number of threads");
    for (int i = 0; i < k->t->count && good; i++)
        if (k->r[i] &&
            (!eg__contract_rule(y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1e-12)))
            good = eg__breaks(k, i, "gives another cotangent on another number of threads");
    k->cx->threads = was;
    return good;
}
/* True if the cotangents are also those of the value under eg_eval. */
static bool same_in_eval(eg__contract_call *k)
{
    eg_ctx *cx = k->cx;
    bool good = true;
    eg_tensor *d;
    if (!eg_training(cx)) return true;
    eg_eval(cx);
    eg_tensor *y = eg__contract_apply(k, k->x);
    if (y && eg__contract_alike(y, k->y, 1e-12)) {
        for (int i = 0; i < k->t->count && good; i++)
            if (k->r[i] &&
                (!eg__contract_rule(y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1e-12)))
                good = eg__breaks(k, i, "gives another cotangent under eg_eval");
    } else if (y) /* for example that of dropout */
        good = eg__derivative_at(k, k->x, " under eg_eval", true);
    eg__refused(cx);
    eg_train(cx);
    return good;
}
bool eg__same_again(eg__contract_call *k)
{
    eg_tensor *d, *other[EG_ASKED_OPERANDS], *z;
    for (int i = 0; i < k->t->count; i++)
        if (k->r[i] &&
            (!eg__contract_rule(k->y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1e-12)))
            return eg__breaks(k, i, "gives another cotangent when it is asked again");
    eg_tensor *fresh = eg__contract_apply(k, k->x);
    for (int i = k->t->count; i-- > 0;)
        if (k->r[i] &&
            (!eg__contract_rule(fresh, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1e-12)))
            return eg__breaks(k, i,
                              "depends on what the rules of other operands left behind: asked in "
                              "another order it gives another cotangent");
    for (int i = 0; i < k->t->count; i++) {
        other[i] = k->x[i];
        if (k->x[i]->dtype != EG_F64 || !(other[i] = eg__leaf_copy(k->x[i]))) continue;
        for (int64_t j = 0, n = eg_size(other[i]); j < n; j++)
            eg__contract_numbers(other[i])[j] *= 1 + 0.01 * eg__drawn(3, j);
    }
    fresh = eg__contract_apply(k, k->x);
    z = k->cx->failed ? NULL : eg__contract_apply(k, other);
    eg__refused(k->cx);
    for (int i = 0; z && i < k->t->count; i++) {
        if (k->r[i]) eg__contract_rule(z, k->g, i, &d);
        if (k->r[i] &&
            (!eg__contract_rule(fresh, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1e-12)))
            return eg__breaks(k, i,
                              "depends on what was called in between: state outlives the call");
    }
    const bool was = eg_nograd(k->cx, true);
    bool good = true;
    int at = 0;
    for (int i = 0; i < k->t->count && good; i++)
        if (k->r[i]) {
            at = i;
            good = eg__contract_rule(k->y, k->g, i, &d) && eg__contract_alike(d, k->r[i], 1e-12);
        }
    z = good ? eg__contract_apply(k, k->x) : NULL;
    const bool value = !good || eg__contract_alike(z, k->y, 1e-12);
    eg_nograd(k->cx, was);
    if (!value && !eg__contract_alike(eg__contract_apply(k, k->x), k->y, 1e-12))
        return eg__breaks(k, -1, "has another value when it is called again");
    if (!good)
        return eg__breaks(k, at, "gives another cotangent while nothing is recorded (eg_nograd)");
    if (!value) return eg__breaks(k, -1, "has another value while nothing is recorded (eg_nograd)");
    return same_on_threads(k) && same_in_eval(k);
}

/* Each operand is x + s − detach(s), where s is a sum over the operand before it, or one number:
 * the value is that of x, and a rule that differentiates a call of its own with respect to the
 * operand itself adds what reaches it through the others. */
bool eg__same_of_results(eg__contract_call *k)
{
    eg_tensor *x[EG_ASKED_OPERANDS], *s = eg__leaf_copy(eg_sum(NULL, k->g)), *d;
    for (int i = 0; i < k->t->count; i++) {
        x[i] = k->x[i];
        if (x[i]->dtype != EG_F64 || !eg__all_finite(x[i]) || !eg_ok(s)) continue;
        x[i] = eg_add(x[i], eg_sub(s, eg_detach(s)));
        s = eg_sum(NULL, x[i]);
    }
    eg_tensor *y = eg_ok(s) ? eg__contract_apply(k, x) : NULL;
    if (!y || !eg__contract_alike(y, k->y, 1e-12)) {
        eg__refused(k->cx);
        return true;
    }
    s = eg_sum(NULL, y);
    eg_tensor *g = eg_add(k->g, eg_sub(s, eg_detach(s)));
    for (int i = 0; i < k->t->count; i++)
        if (k->r[i] &&
            (!eg__contract_rule(y, g, i, &d) || !eg__contract_close(k, i, d, k->r[i], 1, 1e-10)))
            return eg__breaks(k, i,
                              "gives another cotangent where operands and g are results that "
                              "depend on each other");
    return true;
}

/* -- writes to nothing, reads only what it declares -------------------------------------------- */
bool eg__writes_nothing(eg__contract_call *k)
{
    eg_tensor *before[EG_ASKED_OPERANDS], *other[EG_ASKED_OPERANDS], *d;
    /* new results and operands: the rule has been called before, and if it writes, it may write the
     * same values again; forward may write, too */
    for (int i = 0; i < k->t->count; i++)
        if (!(before[i] = eg__leaf_copy(k->t->in[i])) || !(other[i] = eg__leaf_copy(k->t->in[i])))
            return true;
    eg_tensor *y = eg__contract_apply(k, before), *again = eg__contract_apply(k, other);
    eg_tensor *g = y && again ? eg__contract_noise(y, 1) : NULL;
    if (!g) return true;
    if (!eg__contract_alike(y, again, 0)) y = eg__leaf_copy(k->y); /* forward is random */
    for (int i = 0; i < k->t->count; i++) {
        if (!k->r[i]) continue;
        eg__contract_rule(k->y, k->g, i, &d);
        if (!eg__contract_alike(k->g, g, 0))
            return eg__breaks(k, i, "writes to the cotangent that it is given");
        if (!eg__contract_alike(k->y, y, 0)) return eg__breaks(k, i, "writes to the result");
        for (int j = 0; j < k->t->count; j++)
            if (k->x[j]->dtype == EG_F64 && !eg__contract_alike(k->x[j], before[j], 0))
                return eg__breaks(k, i, "writes to an operand");
    }
    return true;
}
/* Sets all elements of x to NaN. */
static void poisoned(eg_tensor *x)
{
    for (int64_t k = 0, n = eg_size(x); k < n; k++) eg__contract_numbers(x)[k] = NAN;
}
bool eg__uses_correct(eg__contract_call *k)
{
    const eg_uses uses = k->t->op->uses;
    const bool result = uses == EG_USES_ALL || uses == EG_USES_RESULT;
    if (uses == EG_USES_ALL) return true;
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *x[EG_ASKED_OPERANDS], *d;
        if (!k->r[i]) continue;
        for (int j = 0; j < k->t->count; j++)
            if (!(x[j] = k->x[j]->dtype == EG_F64 ? eg__leaf_copy(k->x[j]) : k->x[j])) return true;
        eg_tensor *y = eg__contract_apply(k, x);
        if (!y || y->st != &y->own) return true;
        if (!result) poisoned(y);
        for (int j = 0; j < k->t->count; j++) {
            const bool reads = uses == EG_USES_OPERANDS || (uses == EG_USES_OTHERS && j != i);
            if (x[j]->dtype == EG_F64 && !reads) poisoned(x[j]);
        }
        if (!eg__contract_rule(y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1e-12))
            return eg__breaks(k, i, "reads what .uses says that it does not read");
    }
    return true;
}

/* -- layouts ----------------------------------------------------------------------------------- */
/* Returns by how much the largest element of r exceeds that of e, at least 1: where the cotangent
 * of an equal g cancels to e, its rounding is that of r. */
static double share_of(eg_tensor *r, eg_tensor *e)
{
    const double of = eg__largest(e);
    return of > 0 ? fmax(1, eg__largest(r) / of) : 1;
}
bool eg__layouts_of_g(eg__contract_call *k)
{
    char words[96];
    eg_tensor *d, *e;
    for (int i = 0; i < k->t->count; i++) {
        if (!k->r[i]) continue;
        for (int how = 0; how < EG_LAYOUTS; how++) {
            eg_tensor *g = eg__laid_out(k->g, how);
            if (!g && !k->cx->failed) continue;
            snprintf(words, sizeof words,
                     "depends on the layout of g: where g is %s it is another one",
                     eg__layout_name(how));
            if (!eg__contract_rule(k->y, g, i, &d) ||
                !eg__contract_close(k, i, d, k->r[i], 1, 1e-10))
                return eg__breaks(k, i, words);
        }
        for (int how = 0; how < EG_REPEATED; how++) {
            eg_tensor *wide = eg__repeated(k->g, how), *flat = wide ? eg__leaf_copy(wide) : NULL;
            if (!flat) continue;
            if (!eg__contract_rule(k->y, flat, i, &e) || !eg__contract_rule(k->y, wide, i, &d) ||
                !eg__contract_close(k, i, d, e, 1, 1e-10 * share_of(k->r[i], e)))
                return eg__breaks(k, i,
                                  "depends on the layout of g: of an expanded g it is another one");
        }
    }
    return true;
}
/* Returns x with another shape of the same size, row-major. NULL after an error. */
static eg_tensor *reshaped(eg_tensor *x, int rank, const int64_t *dim)
{
    eg_tensor *flat = eg__leaf_copy(x);
    int64_t stride[EG_RANK_MAX];
    if (flat) eg__row_major(rank, dim, stride);
    return flat ? eg__alias(flat, rank, dim, stride, 0) : NULL;
}
/* True if the cotangents d for x and e for copies of x have the same gradients with respect to
 * operand j. */
static bool same_second(const eg__contract_call *k, eg_tensor *d, eg_tensor *e, eg_tensor *x,
                        eg_tensor *flat)
{
    eg_tensor *along = d && e ? eg__contract_noise(e, 18) : NULL, *a, *b, *cut;
    eg_tensor *seed = along && !eg__same_shape(d, e) ? reshaped(along, d->rank, d->dim) : along;
    if (!along || e->unrecorded || !e->op || eg_path_to(e, flat, &cut) != EG_OPEN_PATH ||
        eg_grad(e, along, 1, &flat, &b) || !eg__all_finite(b)) {
        eg__refused(k->cx);
        return true;
    }
    if (!seed || eg_grad(d, seed, 1, &x, &a)) return false;
    if (!eg__same_shape(a, b)) a = reshaped(a, b->rank, b->dim);
    return a && eg__contract_alike(a, b, 1e-8);
}
/* True if the jvp gives the same tangent at y and z, where operand j moves alone. */
static bool same_tangent(eg__contract_call *k, eg_tensor *y, eg_tensor *z, int j, const char *words)
{
    eg_tensor *dx[EG_ASKED_OPERANDS] = { NULL }, *a, *b;
    char message[160];
    if (!k->r[j] || !(dx[j] = eg__contract_noise(k->x[j], 7))) return true;
    b = eg__contract_tangent(z, dx);
    if (k->cx->failed || (b && !eg__all_finite(b))) return true;
    a = eg__contract_tangent(y, dx);
    snprintf(message, sizeof message, "and its jvp disagree where %s", words);
    return (!k->cx->failed && eg__contract_alike(a, b, 1e-9)) || eg__breaks(k, j, message);
}
/* True if the operation gives the same result and cotangents for x as for row-major copies of x, or
 * if it refuses x. j: the operand that is not row-major, −1 if two are one tensor. */
static bool same_on(eg__contract_call *k, eg_tensor *const *x, int j, const char *words)
{
    eg_tensor *flat[EG_ASKED_OPERANDS], *d, *e;
    char message[160];
    for (int i = 0; i < k->t->count; i++)
        if (!(flat[i] = x[i]->dtype == EG_F64 ? eg__leaf_copy(x[i]) : x[i])) return true;
    eg_tensor *y = eg__contract_apply(k, x), *z = y ? eg__contract_apply(k, flat) : NULL;
    if (!y || !z) {
        eg__refused(k->cx);
        return true;
    }
    if (!eg__all_finite(z)) return true;
    if (!eg__contract_close(k, -1, y, z, 1, 1e-10)) {
        snprintf(message, sizeof message, "has another value where %s", words);
        return eg__breaks(k, -1, message);
    }
    eg_tensor *g = eg__contract_noise(z, 5);
    for (int i = 0; g && i < k->t->count; i++) {
        if (!k->r[i]) continue;
        if (!eg__contract_rule(z, g, i, &e)) return true;
        if (e && !eg__all_finite(e)) continue;
        snprintf(message, sizeof message, "gives another cotangent where %s", words);
        if (!eg__contract_rule(y, g, i, &d) ||
            !eg__contract_close(k, i, d, e, 1, 1e-9 * share_of(k->r[i], e)))
            return eg__breaks(k, i, message);
        snprintf(message, sizeof message, "has another gradient of its own (second order) where %s",
                 words);
        if (j >= 0 && k->r[j] && !same_second(k, d, e, x[j], flat[j]))
            return eg__breaks(k, i, message);
    }
    for (int i = 0; i < k->t->count && k->t->op->jvp; i++)
        if ((j < 0 || i == j) && !same_tangent(k, y, z, i, words)) return false;
    return true;
}
/* True if the operation gives the same if all operands of operand i's shape are one tensor, of
 * which there are three or more. */
static bool same_with_equal_operands(eg__contract_call *k, int i)
{
    eg_tensor *x[EG_ASKED_OPERANDS];
    int n = 0;
    for (int j = 0; j < k->t->count; j++) {
        const bool like = k->x[j]->dtype == EG_F64 && eg__same_shape(k->x[i], k->x[j]);
        if (like && j < i) return true; /* tested for operand j */
        x[j] = like ? k->x[i] : k->x[j];
        n += like;
    }
    return n < 3 || same_on(k, x, -1, "all operands of one shape are the same tensor");
}
bool eg__layouts_of_operands(eg__contract_call *k)
{
    char words[64];
    eg_tensor *x[EG_ASKED_OPERANDS];
    for (int i = 0; i < k->t->count; i++) {
        if (k->x[i]->dtype != EG_F64 || !eg_size(k->x[i])) continue;
        memcpy(x, k->x, sizeof x);
        for (int how = 0; how < EG_LAYOUTS + EG_REPEATED; how++) {
            const bool laid = how < EG_LAYOUTS;
            x[i] = laid ? eg__laid_out(k->x[i], how) : eg__repeated(k->x[i], how - EG_LAYOUTS);
            snprintf(words, sizeof words, "operand %d is %s", i + 1,
                     laid ? eg__layout_name(how) : "expanded");
            if (x[i] && !same_on(k, x, i, words)) return false;
        }
        for (int j = i + 1; j < k->t->count; j++) {
            if (k->x[j]->dtype != EG_F64 || !eg__same_shape(k->x[i], k->x[j])) continue;
            memcpy(x, k->x, sizeof x);
            x[j] = x[i] = k->x[i];
            snprintf(words, sizeof words, "operands %d and %d are the same tensor", i + 1, j + 1);
            if (!same_on(k, x, -1, words)) return false;
        }
        if (!same_with_equal_operands(k, i)) return false;
    }
    return true;
}

/* -- ranks ------------------------------------------------------------------------------------- */
/* Sets x to the operands of the highest rank with an axis of 1 element in front (flat = false), or
 * to operands of one shape with a single axis. False if there is nothing to change, and after an
 * error. */
static bool of_other_rank(const eg__contract_call *k, bool flat, eg_tensor **x)
{
    int highest = 0, changed = 0;
    for (int i = 0; i < k->t->count; i++)
        if (k->x[i]->rank > highest) highest = k->x[i]->rank;
    if (flat ? highest < 2 : highest == EG_RANK_MAX) return false;
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *o = x[i] = k->x[i];
        int64_t dim[EG_RANK_MAX] = { 1 };
        if (flat) {
            if (!eg__same_shape(o, k->x[0]) || !eg__same_shape(o, k->y)) return false;
            dim[0] = eg_size(o);
        } else if (o->rank < highest)
            continue;
        else
            for (int r = 0; r < o->rank; r++) dim[r + 1] = o->dim[r];
        if (!(x[i] = reshaped(o, flat ? 1 : o->rank + 1, dim))) return false;
        changed++;
    }
    return changed > 0;
}
/* True if d has the elements of e, whatever the shapes are. */
static bool same_elements(eg__contract_call *k, int i, eg_tensor *d, eg_tensor *e)
{
    if (!d || !e) return eg__contract_alike(d, e, 0);
    return eg_size(d) == eg_size(e) &&
           eg__contract_close(k, i, reshaped(d, e->rank, e->dim), e, 1, 1e-9);
}
/* Notes that the rule for operand i refuses operands that forward takes, and clears its error: a
 * gradient that is refused is not wrong. */
static void note_refusal(eg__contract_call *k, int i, const char *words)
{
    const char *why = eg_error(k->cx);
    if (!k->note[0]) {
        k->operand = i;
        snprintf(k->note, sizeof k->note, "refuses what forward takes, where %s: %.*s", words,
                 (int)strcspn(why, "\n"), why);
    }
    eg__refused(k->cx);
}
/* True if rule and jvp give the same elements for x as for the operands of the call. */
static bool same_at_rank(eg__contract_call *k, eg_tensor *const *x, const char *words)
{
    eg_tensor *y = eg__contract_apply(k, x), *d, *e;
    eg_tensor *dx[EG_ASKED_OPERANDS] = { NULL }, *flat[EG_ASKED_OPERANDS];
    char message[160];
    if (!y || y->dtype != EG_F64 || eg_size(y) != eg_size(k->y) || !same_elements(k, -1, y, k->y)) {
        eg__refused(k->cx);
        return true;
    }
    eg_tensor *g = reshaped(k->g, y->rank, y->dim);
    for (int i = 0; i < k->t->count && g; i++) {
        if (!k->r[i]) continue;
        snprintf(message, sizeof message, "gives another cotangent where %s", words);
        const bool given = eg__contract_rule(y, g, i, &d);
        if (!given && k->cx->failed) {
            note_refusal(k, i, words);
            continue;
        }
        if (!given || !same_elements(k, i, d, k->r[i])) return eg__breaks(k, i, message);
        snprintf(message, sizeof message, "has another gradient of its own (second order) where %s",
                 words);
        for (int j = 0; j < k->t->count; j++)
            if (k->r[j] && !same_second(k, d, k->r[i], x[j], k->x[j]))
                return eg__breaks(k, i, message);
        if (!k->t->op->jvp || !(e = eg__contract_jvp(k, k->y, i, flat))) continue;
        memset(dx, 0, sizeof dx);
        if (!(dx[i] = reshaped(flat[i], x[i]->rank, x[i]->dim))) continue;
        d = eg__contract_tangent(y, dx);
        snprintf(message, sizeof message, "and its jvp disagree where %s", words);
        if (k->cx->failed || !same_elements(k, -1, d, e)) return eg__breaks(k, i, message);
    }
    return true;
}
/* An operation with attributes is not tested, since these may contain the numbers of axes. */
bool eg__other_ranks(eg__contract_call *k)
{
    static const char *const words[] = { "operands have another axis of 1 element in front",
                                         "operands have one axis instead of several" };
    bool good = true;
    for (int flat = 0; flat < 2 && good && !k->t->attr_size; flat++) {
        eg_tensor *x[EG_ASKED_OPERANDS];
        const eg_mark m = eg_push(k->cx);
        good = !of_other_rank(k, flat, x) || same_at_rank(k, x, words[flat]);
        eg__refused(k->cx);
        eg_pop(k->cx, m);
    }
    return good;
}
