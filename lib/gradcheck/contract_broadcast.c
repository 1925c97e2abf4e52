/* contract_broadcast.c: tests the rule where an operand is broadcast: with 1 element along an axis,
 * along all axes, or without the first axes. A call with operands of one shape hides a rule that
 * does not sum its cotangent over such an axis, or over another one. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

enum { MOST = 1 << 12 /* elements of the result */ };

/* True if x has the lengths of y's last axes, or 1. */
static bool fits_into(const eg_tensor *x, const eg_tensor *y)
{
    if (x->dtype != EG_F64 || x->rank > y->rank) return false;
    for (int r = 0; r < x->rank; r++)
        if (x->dim[r] != 1 && x->dim[r] != y->dim[y->rank - x->rank + r]) return false;
    return true;
}
/* Sets dim to the q-th shape of an operand that is broadcast to the shape of y: y's own, with 1 for
 * one axis, with 1 for all of them, y's last axis. Returns its rank; −1 if there is none. */
static int broadcast_shape(const eg_tensor *y, int q, int64_t *dim)
{
    for (int r = 0; r < y->rank; r++) dim[r] = q == r + 1 || q == y->rank + 1 ? 1 : y->dim[r];
    if (q < y->rank + 2) return y->rank;
    if (y->rank < 2) return -1;
    dim[0] = y->dim[y->rank - 1];
    return 1;
}
/* Returns a tensor of that shape with values near those of operand i. In memory it is followed by
 * elements `beyond`, as many as the result has, so that a forward function that takes it for one of
 * full size reads these. NULL after an error. */
static eg_tensor *broadcast_operand(const eg__contract_call *k, int i, int rank, const int64_t *dim,
                                    double beyond)
{
    int64_t stride[EG_RANK_MAX], size = 1;
    for (int r = 0; r < rank; r++) size *= dim[r];
    const int64_t room = size + eg_size(k->y), n = eg_size(k->x[i]);
    eg_tensor *holder = eg__new(k->cx, EG_F64, 1, &room);
    if (!holder) return NULL;
    for (int64_t j = 0; j < room; j++)
        eg__contract_numbers(holder)[j] =
            j < size ? eg__contract_numbers(k->x[i])[j % n] * (1 + 0.05 * eg__drawn(11, j))
                     : beyond;
    eg__row_major(rank, dim, stride);
    return eg__alias(holder, rank, dim, stride, 0);
}
/* True if the operation broadcasts operand i of this shape, without reading beyond it, and its rule
 * gives cotangents of the operands' shapes; sets x to such operands. */
static bool is_broadcast(const eg__contract_call *k, int i, int rank, const int64_t *dim,
                         eg_tensor **x)
{
    static const double beyond[] = { NAN, 1e30, -1e30 };
    eg_tensor *y[3], *d;
    memcpy(x, k->x, (size_t)k->t->count * sizeof *x);
    for (int b = 0; b < 3; b++) {
        x[i] = broadcast_operand(k, i, rank, dim, beyond[b]);
        if (!x[i] || !eg__sampled_there(k->t->op, x[i])) return false;
        y[b] = eg__contract_apply(k, x);
        if (!y[b] || !eg__same_shape(y[b], k->y) || y[b]->dtype != EG_F64 ||
            !eg__all_finite(y[b]) || !eg__contract_alike(y[b], y[0], 0))
            return false;
    }
    eg_tensor *g = eg__contract_noise(y[2], 8);
    for (int j = 0; j < k->t->count; j++)
        if (k->r[j] && (!eg__contract_rule(y[2], g, j, &d) || (d && !eg__same_shape(d, x[j]))))
            return false;
    return true;
}
/* Tests operand i of this shape; and, if another operand has it too, where both are one tensor. */
static bool derivative_of_broadcast(eg__contract_call *k, int i, eg_tensor **x, const char *where)
{
    char words[200];
    if (!eg__derivative_at(k, x, where, true)) return false;
    for (int j = 0; j < k->t->count; j++) {
        if (j == i || x[j]->dtype != EG_F64 || !eg__same_shape(x[i], x[j])) continue;
        x[i] = x[j];
        snprintf(words, sizeof words, "%s and is operand %d", where, j + 1);
        return eg__derivative_at(k, x, words, true);
    }
    return true;
}
bool eg__derivative_broadcast(eg__contract_call *k)
{
    bool good = true;
    if (k->y->rank == 0 || eg_size(k->y) > MOST || k->t->count < 2) return true;
    for (int i = 0; i < k->t->count; i++)
        for (int q = 0; q < k->y->rank + 3 && good && k->r[i] && fits_into(k->x[i], k->y); q++) {
            int64_t dim[EG_RANK_MAX];
            char where[160], shape[96] = "";
            eg_tensor *x[EG_ASKED_OPERANDS];
            const int rank = broadcast_shape(k->y, q, dim);
            if (rank < 0 || eg__has_sizes(k->x[i], rank, dim)) continue;
            const eg_mark m = eg_push(k->cx);
            for (int r = 0, n = 0; r < rank && n < 80; r++)
                n += snprintf(shape + n, sizeof shape - (size_t)n, r ? ", %lld" : "%lld",
                              (long long)dim[r]);
            snprintf(where, sizeof where, " where operand %d has the shape (%s%s)", i + 1, shape,
                     rank == 1 ? "," : "");
            if (is_broadcast(k, i, rank, dim, x))
                good = derivative_of_broadcast(k, i, x, where);
            else
                eg__refused(k->cx);
            eg_pop(k->cx, m);
        }
    return good;
}
