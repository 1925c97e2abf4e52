/* contract_values.c: contracts about values: an operation gives the same result in every call,
 * writes to nothing, reads only what it declares, and depends neither on the layout of g or of
 * operands, nor on whether two operands are one tensor. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

/* -- the same result --------------------------------------------------------------------------- */
bool eg__same_again(eg__contract_call *k)
{
    eg_tensor *d, *other[EG_ASKED_OPERANDS], *z;
    for (int i = 0; i < k->t->count; i++)
        if (k->r[i] &&
            (!eg__contract_rule(k->y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12)))
            return eg__breaks(k, i, "gives another cotangent when it is asked again");
    eg_tensor *fresh = eg__contract_apply(k, k->x);
    for (int i = k->t->count; i-- > 0;)
        if (k->r[i] &&
            (!eg__contract_rule(fresh, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12)))
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
            (!eg__contract_rule(fresh, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12)))
            return eg__breaks(k, i,
                              "depends on what was called in between: state outlives the call");
    }
    const bool was = eg_nograd(k->cx, true);
    bool good = true;
    int at = 0;
    for (int i = 0; i < k->t->count && good; i++)
        if (k->r[i]) {
            at = i;
            good = eg__contract_rule(k->y, k->g, i, &d) && eg__contract_alike(d, k->r[i], 1, 1e-12);
        }
    z = good ? eg__contract_apply(k, k->x) : NULL;
    const bool value = !good || eg__contract_alike(z, k->y, 1, 1e-12);
    eg_nograd(k->cx, was);
    if (!good)
        return eg__breaks(k, at, "gives another cotangent while nothing is recorded (eg_nograd)");
    return value || eg__breaks(k, -1, "has another value while nothing is recorded (eg_nograd)");
}

/* -- writes to nothing, reads only what it declares -------------------------------------------- */
bool eg__writes_nothing(eg__contract_call *k)
{
    eg_tensor *before[EG_ASKED_OPERANDS], *d, *y = eg__leaf_copy(k->y), *g = eg__leaf_copy(k->g);
    for (int i = 0; i < k->t->count; i++)
        if (!(before[i] = eg__leaf_copy(k->x[i]))) return true;
    for (int i = 0; i < k->t->count; i++) {
        if (!k->r[i]) continue;
        eg__contract_rule(k->y, k->g, i, &d);
        if (!eg__contract_alike(k->g, g, 1, 0))
            return eg__breaks(k, i, "writes to the cotangent that it is given");
        if (!eg__contract_alike(k->y, y, 1, 0)) return eg__breaks(k, i, "writes to the result");
        for (int j = 0; j < k->t->count; j++)
            if (k->x[j]->dtype == EG_F64 && !eg__contract_alike(k->x[j], before[j], 1, 0))
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
        if (!eg__contract_rule(y, k->g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-12))
            return eg__breaks(k, i, "reads what .uses says that it does not read");
    }
    return true;
}

/* -- layouts ----------------------------------------------------------------------------------- */
/* Memory layouts for the values of v. */
typedef enum layout {
    PERMUTED,
    SLICED,
    REVERSED,
    PADDED,
    FIRST_REVERSED,
    LAST_REVERSED,
    LAYOUTS
} layout;
static const char *const layout_name[] = {
    "permuted",
    "sliced",
    "reversed",
    "padded",
    "reversed along its first axis",
    "reversed along its last axis",
};
/* Returns a view with the shape and values of v in a longer array, whose other elements are 1e30,
 * so that an operation that ignores strides is detected. NULL after an error, and if the layout
 * equals another one, as for a vector. */
static eg_tensor *laid_out(eg_tensor *v, layout how)
{
    const int64_t n = eg_size(v);
    int64_t stride[EG_RANK_MAX], offset = 0, step = how == SLICED ? 2 : how == REVERSED ? -1 : 1;
    const int back = how == FIRST_REVERSED ? 0 : how == LAST_REVERSED ? v->rank - 1 : -1;
    if (how >= PADDED && v->rank < 2) return NULL;
    eg_tensor *holder = eg__new(v->cx, EG_F64, 1, (int64_t[]){ 2 * n + 1 });
    if (!holder) return NULL;
    for (int64_t k = 0; k < 2 * n + 1; k++) eg__contract_numbers(holder)[k] = 1e30;
    for (int r = 0; r < v->rank; r++) {
        const int axis = how == PERMUTED ? r : v->rank - 1 - r;
        stride[axis] = step;
        step *= v->dim[axis] + (how == PADDED && r == 0);
        if (axis != back) continue;
        offset = stride[axis] * (v->dim[axis] - 1);
        stride[axis] = -stride[axis];
    }
    if (how == SLICED) offset = 1;
    if (how == REVERSED && n) offset = n - 1;
    eg_tensor *x = eg__alias(holder, v->rank, v->dim, stride, offset);
    if (x) eg__copy(x, v);
    return x;
}
/* Returns a tensor whose rows are all the first row of v, in the same memory; NULL if v has fewer
 * than two rows. */
static eg_tensor *repeated(eg_tensor *v)
{
    int64_t stride[EG_RANK_MAX];
    if (v->rank == 0 || v->dim[0] < 2 || !eg_size(v)) return NULL;
    eg__row_major(v->rank, v->dim, stride);
    stride[0] = 0;
    return eg__alias(v, v->rank, v->dim, stride, 0);
}
bool eg__layouts_of_g(eg__contract_call *k)
{
    char words[96];
    eg_tensor *d, *e, *wide = repeated(k->g), *flat = wide ? eg__leaf_copy(wide) : NULL;
    for (int i = 0; i < k->t->count; i++) {
        if (!k->r[i]) continue;
        for (int how = 0; how < LAYOUTS; how++) {
            eg_tensor *g = laid_out(k->g, (layout)how);
            if (!g && !k->cx->failed) continue;
            snprintf(words, sizeof words,
                     "depends on the layout of g: where g is %s it is another one",
                     layout_name[how]);
            if (!eg__contract_rule(k->y, g, i, &d) || !eg__contract_alike(d, k->r[i], 1, 1e-10))
                return eg__breaks(k, i, words);
        }
        if (wide && flat &&
            (!eg__contract_rule(k->y, flat, i, &e) || !eg__contract_rule(k->y, wide, i, &d) ||
             !eg__contract_alike(d, e, 1, 1e-10)))
            return eg__breaks(k, i,
                              "depends on the layout of g: of an expanded g it is another one");
    }
    return true;
}
/* True if the operation gives the same result and cotangents for x as for row-major copies of x, or
 * if it refuses x. */
static bool same_on(eg__contract_call *k, eg_tensor *const *x, const char *words)
{
    eg_tensor *flat[EG_ASKED_OPERANDS], *d, *e;
    for (int i = 0; i < k->t->count; i++)
        if (!(flat[i] = x[i]->dtype == EG_F64 ? eg__leaf_copy(x[i]) : x[i])) return true;
    eg_tensor *y = eg__contract_apply(k, x), *z = y ? eg__contract_apply(k, flat) : NULL;
    if (!y || !z) {
        eg__refused(k->cx);
        return true;
    }
    if (!eg__all_finite(z)) return true;
    if (!eg__contract_alike(y, z, 1, 1e-10)) {
        char said[128];
        snprintf(said, sizeof said, "has another value where %s", words);
        return eg__breaks(k, -1, said);
    }
    eg_tensor *g = eg__contract_noise(z, 5);
    for (int i = 0; g && i < k->t->count; i++) {
        if (!k->r[i]) continue;
        if (!eg__contract_rule(z, g, i, &e)) return true;
        if (e && !eg__all_finite(e)) continue;
        char said[128];
        snprintf(said, sizeof said, "gives another cotangent where %s", words);
        if (!eg__contract_rule(y, g, i, &d) || !eg__contract_alike(d, e, 1, 1e-9))
            return eg__breaks(k, i, said);
    }
    return true;
}
bool eg__layouts_of_operands(eg__contract_call *k)
{
    char words[64];
    eg_tensor *x[EG_ASKED_OPERANDS];
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
