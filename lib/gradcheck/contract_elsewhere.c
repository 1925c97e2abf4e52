/* contract_elsewhere.c: tests whether the rule is the derivative of the operation's forward
 * function: at its operands, with operands moved, with values that a rule may treat as special, and
 * with other sizes. A single call may hide a wrong rule: a factor is 0 or 1, operands are all
 * positive or sorted, a length is a multiple of a block. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 16 }; /* largest number of elements of an operand in such a test */
/* Operands are not enlarged beyond this magnitude: there the numbers of f64 are nearly as far apart
 * as the steps of a floor, and from 2^52 on the floor of x is x. */
#define ENLARGED 0x1p41

bool eg__derivative_here(eg__contract_call *k) { return eg__derivative_at(k, k->x, "", false); }
bool eg__derivative_moved(eg__contract_call *k)
{
    eg_tensor *x[EG_ASKED_OPERANDS];
    for (int i = 0; i < k->t->count; i++) {
        x[i] = k->x[i];
        if (x[i]->dtype != EG_F64) continue;
        if (!(x[i] = eg__leaf_copy(k->x[i]))) return true;
        double *v = eg__contract_numbers(x[i]);
        for (int64_t j = 0, n = eg_size(x[i]); j < n; j++) {
            const double u = 0.2 * eg__drawn(21 + (uint64_t)i, j);
            v[j] = v[j] != 0 ? v[j] * (1 + u) : u;
        }
        if (!eg__sampled_there(k->t->op, x[i]))
            for (int64_t j = 0, n = eg_size(x[i]); j < n; j++)
                v[j] = fmax(k->t->op->samples->low, fmin(k->t->op->samples->high, v[j]));
    }
    return eg__derivative_at(k, x, " with its operands moved", false);
}

/* Kinds of values that the operands may not have in this call, and that a rule may treat as
 * special. */
static const char *const value_name[] = {
    "of the other sign",
    "of both signs",
    "10 times as large",
    "100 times as large",
    "100 times as small",
    "1e5 times as large",
    "1e-5 times as large",
    "1e10 times as large",
    "1e-10 times as large",
    "0 in some elements",
    "-0 in some elements",
    "1, 1/2 or 2 in some elements",
    "whole numbers",
    "subnormal in some elements",
    "equal in all elements",
    "equal in pairs",
    "negative in all elements",
    "positive in all elements",
    "0 in all elements",
    "0 in its first row",
    "0 in its first column",
    "of many magnitudes",
    "in ascending order",
    "in descending order",
};
enum {
    OTHER_SIGN,
    BOTH_SIGNS,
    TENFOLD,
    HUNDREDFOLD,
    HUNDREDTH,
    HUGE_VALUES,
    TINY_VALUES,
    ENORMOUS,
    MINUTE,
    ZEROS,
    MINUS_ZEROS,
    UNITS,
    INTEGERS,
    SUBNORMAL,
    EQUAL,
    PAIRS,
    NEGATIVE,
    POSITIVE,
    ALL_ZERO,
    ZERO_ROW,
    ZERO_COLUMN,
    MAGNITUDES,
    ASCENDING,
    DESCENDING,
    VALUES
};
/* Returns element j of an operand with the values v, in lines of n elements along the last axis,
 * after the change `how`. */
static double special_value(int how, const double *v, int64_t j, int64_t n)
{
    const bool some = j % 3 == 0;
    switch (how) {
    case OTHER_SIGN: return -v[j];
    case BOTH_SIGNS: return j % 2 ? -v[j] : v[j];
    case TENFOLD: return 10 * v[j];
    case HUNDREDFOLD: return 100 * v[j];
    case HUNDREDTH: return 0.01 * v[j];
    case HUGE_VALUES: return 1e5 * v[j];
    case TINY_VALUES: return 1e-5 * v[j];
    case ENORMOUS: return 1e10 * v[j];
    case MINUTE: return 1e-10 * v[j];
    case ZEROS: return some ? 0 : v[j];
    case MINUS_ZEROS: return some ? -0.0 : v[j];
    case UNITS: return some ? ldexp(1, (int)(j % 9 / 3 == 2 ? 1 : -(j % 9 / 3))) : v[j];
    case INTEGERS: return (double)(5 * j % 7 + 1);
    case SUBNORMAL: return some ? 1e-310 : v[j];
    case EQUAL: return v[0];
    case NEGATIVE: return -fabs(v[j]);
    case POSITIVE: return fabs(v[j]);
    case ALL_ZERO: return 0;
    case ZERO_ROW: return j < n ? 0 : v[j];
    case ZERO_COLUMN: return j % n == 0 ? 0 : v[j];
    case MAGNITUDES: return v[j] * pow(10, (double)(j * 5 % 13) / 2 - 3); /* 1e-3 to 1e3 times */
    default: return v[j - j % 2];
    }
}
static int rising(const void *p, const void *q)
{
    const double a = *(const double *)p, b = *(const double *)q;
    return (a > b) - (a < b);
}
static int falling(const void *p, const void *q) { return rising(q, p); }
bool eg__sampled_there(const eg_op *op, const eg_tensor *x)
{
    const eg_sample *s = op->samples;
    const double *v = (const double *)(const void *)x->data;
    if (!s || !s->call || (s->low == 0 && s->high == 0)) return true;
    for (int64_t j = 0, n = eg_size(x); j < n; j++)
        if (v[j] < s->low || v[j] > s->high) return false;
    return true;
}
/* Sets x[i] to a copy of operand i with such values. False if they are outside of the samples'
 * range or too large, and after an error. */
static bool valued(const eg__contract_call *k, int i, int how, eg_tensor **x)
{
    const int64_t n = eg_size(k->x[i]), line = k->x[i]->rank ? k->x[i]->dim[k->x[i]->rank - 1] : 1;
    if ((how == ZERO_ROW || how == ZERO_COLUMN) && (line == 1 || line == n)) return false;
    if (!(x[i] = eg__leaf_copy(k->x[i]))) return false;
    double *v = eg__contract_numbers(x[i]);
    if (how >= ASCENDING) qsort(v, (size_t)n, sizeof *v, how == ASCENDING ? rising : falling);
    for (int64_t j = 0; how < ASCENDING && j < n; j++)
        v[j] = special_value(how, eg__contract_numbers(k->x[i]), j, line);
    return eg__sampled_there(k->t->op, x[i]) &&
           eg__largest(x[i]) <= fmax(ENLARGED, eg__largest(k->x[i]));
}
/* Returns how many operands of floats can be varied; 0 if one is too long. */
static int varied(const eg__contract_call *k)
{
    int varied = 0;
    for (int i = 0; i < k->t->count; i++) {
        const int64_t n = eg_size(k->x[i]);
        if (k->x[i]->dtype != EG_F64 || !n) continue;
        if (n > LARGEST) return 0;
        varied++;
    }
    return varied;
}
/* Sets x to the operands, all with such values. False as valued. */
static bool all_valued(const eg__contract_call *k, int how, eg_tensor **x)
{
    memcpy(x, k->x, (size_t)k->t->count * sizeof *x);
    for (int i = 0; i < k->t->count; i++)
        if (k->x[i]->dtype == EG_F64 && eg_size(k->x[i]) && !valued(k, i, how, x)) return false;
    return true;
}
/* Where two operands of one shape are equal in some elements, or in all, or each other's negative.
 */
static bool derivative_at_ties(eg__contract_call *k)
{
    eg_tensor *x[EG_ASKED_OPERANDS];
    char where[96];
    bool good = true;
    for (int i = 1; i < k->t->count && good; i++) {
        const int64_t n = eg_size(k->x[i]);
        int j = 0;
        while (j < i && !(k->x[j]->dtype == EG_F64 && eg__same_shape(k->x[i], k->x[j]))) j++;
        if (k->x[i]->dtype != EG_F64 || j == i || n > LARGEST) continue;
        for (int all = 0; all < 2 && good; all++) {
            const eg_mark m = eg_push(k->cx);
            memcpy(x, k->x, (size_t)k->t->count * sizeof *x);
            if ((x[i] = eg__leaf_copy(k->x[i])) != NULL)
                for (int64_t q = 0; q < n; q += all ? 1 : 3)
                    eg__contract_numbers(x[i])[q] = eg__contract_numbers(k->x[j])[q];
            snprintf(where, sizeof where, " where operands %d and %d are equal in %s", j + 1, i + 1,
                     all ? "all elements" : "some elements");
            good = !x[i] || eg__derivative_at(k, x, where, true);
            snprintf(where, sizeof where,
                     " where operands %d and %d are equal in %s and move together", j + 1, i + 1,
                     all ? "all elements" : "some elements");
            good = good && (!x[i] || eg__derivative_together(k, x, i, j,
                                                             eg__contract_noise(x[i], 9), where));
            eg_pop(k->cx, m);
        }
        const eg_mark m = eg_push(k->cx);
        memcpy(x, k->x, (size_t)k->t->count * sizeof *x);
        if ((x[i] = eg__leaf_copy(k->x[i])) != NULL)
            for (int64_t q = 0; q < n; q += 3)
                eg__contract_numbers(x[i])[q] = -eg__contract_numbers(k->x[j])[q];
        snprintf(where, sizeof where, " where some elements of operand %d are those of %d, negated",
                 i + 1, j + 1);
        good = good && (!x[i] || eg__derivative_at(k, x, where, true));
        eg_pop(k->cx, m);
    }
    return good;
}
/* Where elements of operand i that are equal, in pairs or all, move together. */
static bool derivative_of_equals(eg__contract_call *k, eg_tensor *const *x, int i, int how)
{
    char where[96];
    eg_tensor *v = how == EQUAL || how == PAIRS ? eg__contract_noise(x[i], 9) : NULL;
    for (int64_t j = 0, n = v ? eg_size(v) : 0; j < n; j++)
        eg__contract_numbers(v)[j] = special_value(how, eg__contract_numbers(v), j, 1);
    snprintf(where, sizeof where, " where elements of operand %d that are equal move together",
             i + 1);
    return !v || eg__derivative_together(k, x, i, -1, v, where);
}
bool eg__derivative_at_values(eg__contract_call *k)
{
    eg_tensor *x[EG_ASKED_OPERANDS];
    char where[96];
    bool good = true;
    for (int i = 0; i < k->t->count && good; i++) {
        const int64_t n = eg_size(k->x[i]);
        if (k->x[i]->dtype != EG_F64 || !n || n > LARGEST) continue;
        for (int how = 0; how < VALUES && good; how++) {
            const eg_mark m = eg_push(k->cx);
            memcpy(x, k->x, (size_t)k->t->count * sizeof *x);
            snprintf(where, sizeof where, " where operand %d is %s", i + 1, value_name[how]);
            good = !valued(k, i, how, x) ||
                   (eg__derivative_at(k, x, where, true) && derivative_of_equals(k, x, i, how));
            eg_pop(k->cx, m);
        }
    }
    for (int how = 0; how < ENORMOUS && good && varied(k) > 1; how++) {
        const eg_mark m = eg_push(k->cx);
        snprintf(where, sizeof where, " where all operands are %s", value_name[how]);
        good = !all_valued(k, how, x) || eg__derivative_at(k, x, where, true);
        eg_pop(k->cx, m);
    }
    return good && derivative_at_ties(k);
}
/* Where all operands are larger, smaller or negated, a factor that the rule does not differentiate
 * may differ from that of the point. */
bool eg__second_elsewhere(eg__contract_call *k)
{
    static const int kinds[] = { OTHER_SIGN, TENFOLD, HUNDREDTH };
    bool good = true;
    for (int q = 0; q < 3 && good && varied(k); q++) {
        eg_tensor *x[EG_ASKED_OPERANDS];
        char where[96];
        const eg_mark m = eg_push(k->cx);
        snprintf(where, sizeof where, " where all operands are %s", value_name[kinds[q]]);
        good = !all_valued(k, kinds[q], x) || eg__second_at(k, x, where);
        eg_pop(k->cx, m);
    }
    return good;
}

/* -- masks and integers ------------------------------------------------------------------------ */
/* Sets elements of operand i to 0, or to 1e5 times their values, where the mask, which has its
 * shape, is false: what is masked may have no finite value, or no derivative. False if there is
 * nothing to set, and after an error. */
static bool masked_values(const eg__contract_call *k, const eg_tensor *mask, int i, bool large,
                          eg_tensor **x)
{
    if (k->x[i]->dtype != EG_F64 || !eg__has_sizes(k->x[i], mask->rank, mask->dim)) return false;
    if (!(x[i] = eg__leaf_copy(k->x[i]))) return false;
    for (int64_t j = 0, n = eg_size(x[i]); j < n; j++)
        if (!((const bool *)(const void *)mask->data)[j])
            eg__contract_numbers(x[i])[j] *= large ? 1e5 : 0;
    return eg__sampled_there(k->t->op, x[i]);
}
/* Tests values of the other operands where the mask x[i] is false. */
static bool derivative_behind_mask(eg__contract_call *k, eg_tensor **x, int i)
{
    bool good = true;
    for (int j = 0; j < k->t->count && good; j++)
        for (int large = 0; large < 2 && good; large++) {
            char where[96];
            eg_tensor *before = x[j];
            snprintf(where, sizeof where, " where operand %d is %s and operand %d is false", j + 1,
                     large ? "1e5 times as large" : "0", i + 1);
            good = !masked_values(k, x[i], j, large, x) || eg__derivative_at(k, x, where, true);
            x[j] = before;
        }
    return good;
}
/* A rule that ignores a mask is hidden if the mask is true, or false, everywhere. */
bool eg__derivative_at_masks(eg__contract_call *k)
{
    static const char *const name[] = { "true", "false", "alternately true and false",
                                        "true in its last element alone" };
    bool good = true;
    for (int i = 0; i < k->t->count; i++)
        for (int how = 0; how < 4 && good && k->x[i]->dtype == EG_BOOL; how++) {
            eg_tensor *x[EG_ASKED_OPERANDS];
            char where[96];
            const eg_mark m = eg_push(k->cx);
            memcpy(x, k->x, (size_t)k->t->count * sizeof *x);
            x[i] = eg__leaf_copy(k->x[i]);
            for (int64_t j = 0, n = x[i] ? eg_size(x[i]) : 0; j < n; j++)
                ((bool *)(void *)x[i]->data)[j] =
                    how == 0 || (how == 2 && j % 2 == 0) || (how == 3 && j == n - 1);
            snprintf(where, sizeof where, " where operand %d is %s", i + 1, name[how]);
            good = !x[i] || (eg__derivative_at(k, x, where, true) &&
                             (how != 2 || derivative_behind_mask(k, x, i)));
            eg_pop(k->cx, m);
        }
    return good;
}

/* Returns element j of an integer operand, or sets it. */
static int64_t integer_at(const eg_tensor *x, int64_t j)
{
    return x->dtype == EG_I32 ? ((const int32_t *)(const void *)x->data)[j]
                              : ((const int64_t *)(const void *)x->data)[j];
}
static void set_integer(eg_tensor *x, int64_t j, int64_t to)
{
    if (x->dtype == EG_I32)
        ((int32_t *)(void *)x->data)[j] = (int32_t)to;
    else
        ((int64_t *)(void *)x->data)[j] = to;
}
/* An index of a call may neither repeat nor be 0, and may be sorted. The values here are those from
 * 0 to the largest one of the call. Operands with negative integers are not tested. */
bool eg__derivative_at_integers(eg__contract_call *k)
{
    static const char *const name[] = { "equal in all elements", "0 and the next integers",
                                        "integers in descending order" };
    bool good = true;
    for (int i = 0; i < k->t->count; i++) {
        const int64_t n = eg_size(k->x[i]);
        int64_t least = 0, most = 0;
        if ((k->x[i]->dtype != EG_I64 && k->x[i]->dtype != EG_I32) || n > LARGEST) continue;
        for (int64_t j = 0; j < n; j++) {
            const int64_t v = integer_at(k->x[i], j);
            least = v < least ? v : least;
            most = v > most ? v : most;
        }
        for (int how = 0; how < 3 && good && least >= 0 && most < INT32_MAX; how++) {
            eg_tensor *x[EG_ASKED_OPERANDS];
            char where[96];
            const eg_mark m = eg_push(k->cx);
            memcpy(x, k->x, (size_t)k->t->count * sizeof *x);
            x[i] = eg__leaf_copy(k->x[i]);
            for (int64_t j = 0; x[i] && j < n; j++)
                set_integer(x[i], j,
                            how == 0   ? most
                            : how == 1 ? j % (most + 1)
                                       : most - j % (most + 1));
            snprintf(where, sizeof where, " where operand %d is %s", i + 1, name[how]);
            good = !x[i] || eg__derivative_at(k, x, where, true);
            eg_pop(k->cx, m);
        }
    }
    return good;
}

/* -- sizes ------------------------------------------------------------------------------------- */
/* Lengths of axes, and the lengths that replace them; other axes are not changed. */
typedef struct lengths {
    int64_t from[8], to[8];
    int n;
    bool as_they_are; /* operands of these lengths repeat the values of the call */
} lengths;
static int64_t new_length(const lengths *l, int64_t d)
{
    for (int j = 0; j < l->n; j++)
        if (l->from[j] == d) return l->to[j];
    return d;
}
/* Sets x[i] to a tensor of another shape, filled with the values of operand i, of which those of
 * floats are changed a little unless as_they_are. False if it is too large, and after an error. */
static bool refilled(const eg__contract_call *k, int i, const int64_t *dim, bool as_they_are,
                     eg_tensor **x)
{
    eg_tensor *o = k->x[i];
    int64_t size = 1;
    for (int r = 0; r < o->rank; r++) size *= dim[r];
    if (size > LARGEST || !(x[i] = eg__new(k->cx, (eg_dtype)o->dtype, o->rank, dim))) return false;
    const int64_t n = eg_size(o), width = eg__width[o->dtype];
    for (int64_t j = 0; j < size; j++) {
        memcpy(x[i]->data + j * width, o->data + j % n * width, (size_t)width);
        if (o->dtype == EG_F64 && !as_they_are)
            eg__contract_numbers(x[i])[j] *= 1 + 0.05 * eg__drawn(10, j);
    }
    return true;
}
/* Makes operands with axes of other lengths. False after an error. */
static bool resized(const eg__contract_call *k, const lengths *l, eg_tensor **x)
{
    for (int i = 0; i < k->t->count; i++) {
        eg_tensor *o = x[i] = k->x[i];
        int64_t dim[EG_RANK_MAX];
        for (int r = 0; r < o->rank; r++) dim[r] = new_length(l, o->dim[r]);
        if (!eg__has_sizes(o, o->rank, dim) && !refilled(k, i, dim, l->as_they_are, x))
            return false;
    }
    return true;
}
/* Makes operand i with a first axis of n elements. False after an error. */
static bool resized_axis(const eg__contract_call *k, int i, int64_t n, eg_tensor **x)
{
    int64_t dim[EG_RANK_MAX] = { n };
    for (int r = 1; r < k->x[i]->rank; r++) dim[r] = k->x[i]->dim[r];
    return refilled(k, i, dim, false, x);
}
static bool derivative_resized(eg__contract_call *k, const lengths *l, const char *where)
{
    eg_tensor *x[EG_ASKED_OPERANDS];
    const eg_mark m = eg_push(k->cx);
    const bool good = !resized(k, l, x) || eg__derivative_at(k, x, where, false);
    eg_pop(k->cx, m);
    return good;
}
/* Where all axes have one length, operands of different shapes may be one tensor, too. */
static bool derivative_of_one_tensor(eg__contract_call *k, const lengths *l)
{
    eg_tensor *x[EG_ASKED_OPERANDS];
    const eg_mark m = eg_push(k->cx);
    bool one = false, good = resized(k, l, x);
    for (int i = 1; i < k->t->count && good; i++)
        for (int j = 0; j < i; j++) {
            if (x[i]->dtype != EG_F64 || x[j]->dtype != EG_F64 || !eg__same_shape(x[i], x[j]))
                continue;
            x[i] = x[j];
            one = true;
            break;
        }
    good = !good || !one ||
           eg__derivative_at(
               k, x, " where every axis has 4 elements and operands are the same tensor", false);
    eg_pop(k->cx, m);
    return good;
}
/* A batch of one hides what depends on the number of its examples: where the result and operands of
 * two and more axes have a first axis of 1 element, it becomes longer. */
static bool derivative_of_batch(eg__contract_call *k)
{
    eg_tensor *x[EG_ASKED_OPERANDS];
    const eg_mark m = eg_push(k->cx);
    bool any = false, good = true;
    for (int i = 0; i < k->t->count && good; i++) {
        eg_tensor *o = x[i] = k->x[i];
        if (k->y->rank < 2 || k->y->dim[0] != 1 || o->rank != k->y->rank || o->dim[0] != 1)
            continue;
        any = true;
        good = resized_axis(k, i, 3, x);
    }
    good = !any || !good || eg__derivative_at(k, x, " at a first axis of 3 elements", true);
    eg_pop(k->cx, m);
    return good;
}
/* In one call all lengths may be multiples of a block, or smaller than one, and none may be 1. An
 * operation with attributes is not tested, since these may contain sizes. */
bool eg__derivative_at_sizes(eg__contract_call *k)
{
    static const int64_t odd[] = { 5, 3, 9, 17, 11, 13, 7, 15 };
    lengths all = { .n = 0 };
    if (k->t->attr_size) return true;
    for (int i = 0; i < k->t->count; i++)
        for (int r = 0; r < k->x[i]->rank && eg_size(k->x[i]); r++) {
            const int64_t d = k->x[i]->dim[r];
            if (d > 1 && all.n < 8 && new_length(&all, d) == d) {
                all.from[all.n] = d;
                all.to[all.n++] = 1;
            }
        }
    for (int j = 0; j < all.n; j++) {
        lengths l = { .n = 1, .from = { all.from[j] } };
        const int64_t from = l.from[0], to[] = {
            1, 2, from + 1, from + 7, 128 + from % 8, 1024 + from % 8, 64, 16, 15
        };
        for (size_t s = 0; s < sizeof to / sizeof *to; s++) {
            char where[64];
            snprintf(where, sizeof where, " at an axis of %lld element%s", (long long)to[s],
                     to[s] == 1 ? "" : "s");
            l.to[0] = to[s];
            l.as_they_are = to[s] >= 1024; /* among this number of other values one is often at a
                                            * kink */
            if ((to[s] > from || (s < 2 && to[s] < from)) && !derivative_resized(k, &l, where))
                return false;
        }
    }
    if (all.n > 1 && !derivative_resized(k, &all, " where every axis has one element"))
        return false;
    for (int j = 0; j < all.n; j++) all.to[j] = 4;
    if (all.n > 1 && !derivative_resized(k, &all, " where every axis has 4 elements")) return false;
    if (!derivative_of_one_tensor(k, &all)) return false;
    for (int j = 0; j < all.n; j++) all.to[j] = odd[j];
    if (all.n > 1 && !derivative_resized(k, &all, " where every axis has an odd length"))
        return false;
    return derivative_of_batch(k);
}
