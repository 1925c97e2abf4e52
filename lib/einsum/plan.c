/* plan.c: eg_plan, a program with the shapes that it is for, in one block from malloc. It is made
 * in a temporary context. */
#include "einsum/einsum.h"
#include <stdlib.h>
#include <string.h>

struct eg_plan {
    double alpha, beta;
    int count;
    const eg_program *program;
    eg_shape out, operand[];
};

/* True if the distance from the first to the last element of the shape, in bytes, fits 64 bits. */
static bool reachable(const eg_shape *s)
{
    int64_t reach = 0, step;
    for (int k = 0; s->stride && k < s->rank; k++) {
        if (s->dim[k] < 2) continue;
        if (__builtin_mul_overflow(s->dim[k] - 1, s->stride[k], &step) || step == INT64_MIN)
            return false;
        if (__builtin_add_overflow(reach, step < 0 ? -step : step, &reach)) return false;
    }
    return reach <= INT64_MAX / 16;
}
/* Makes a view of one element: planning reads no elements. */
eg_tensor *eg__shape_only(eg_ctx *cx, const eg_shape *s)
{
    int64_t stride[EG_RANK_MAX];
    if ((unsigned)s->dtype >= EG_DTYPES)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: %d is not a dtype", (int)s->dtype);
    if (!eg__sizes_fit(cx, "einsum", s->dtype ? s->dtype : cx->dtype, s->rank, s->dim))
        return eg__poison(cx);
    if (!reachable(s))
        return eg_fail_as(
            cx, EG_ERROR_SHAPE,
            "einsum: the strides of an operand of rank %d lead further than 64 bits can count",
            s->rank);
    uint64_t w = 1;
    for (int k = s->rank; k-- > 0; w *= s->dim[k] ? (uint64_t)s->dim[k] : 1)
        stride[k] = s->stride ? s->stride[k] : (int64_t)w;
    eg_tensor *one = eg__new(cx, s->dtype, 0, NULL),
              *x = one ? eg__alias(one, s->rank, s->dim, stride, 0) : NULL;
    return x ? x : eg__poison(cx);
}

/* Copies a shape to the memory after the plan. */
static eg_shape plan_kept(const eg_tensor *x, int64_t **next)
{
    int64_t *dim = *next, *stride = dim + x->rank;
    if (x->rank) {
        memcpy(dim, x->dim, x->rank * sizeof *dim);
        memcpy(stride, x->stride, x->rank * sizeof *dim);
    }
    *next = stride + x->rank;
    return (eg_shape){ (eg_dtype)x->dtype, x->rank, dim, stride };
}

/* Refuses what einsum would refuse, and copies the shapes and the program into one block. NULL
 * after an error, recorded in cx. */
static eg_plan *plan_make(eg_ctx *cx, const eg_plan_args *o)
{
    eg_tensor *given[EG_EINSUM_MAX], *x[EG_EINSUM_MAX];
    if (!o->spec) return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: the spec is NULL"), NULL;
    if (o->count < 1 || o->count > EG_EINSUM_MAX || !o->operands)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: %d operands; 1 to %d can be planned",
                          o->count, EG_EINSUM_MAX),
               NULL;
    for (int k = 0; k < o->count; k++)
        if (!eg_ok(given[k] = eg__shape_only(cx, &o->operands[k]))) return NULL;
    if (!eg__einsum_dtypes(cx, o->count, given)) return NULL;
    const eg_dtype dtype = eg__einsum_reads(o->count, given);
    if (!eg__is_float(dtype) && dtype != EG_I64)
        return eg_fail_as(cx, EG_ERROR_DTYPE,
                          "einsum: a plan is for floats or i64, and an operand is %s",
                          eg_type_name(dtype)),
               NULL;
    const eg_spec_labels *r =
        eg__labels_of_spec(cx, "einsum", o->spec, o->broadcast, o->count, given, x);
    if (!r || !eg__check_taken(cx, "einsum", EG_TAKES_HALVES, o->count, x)) return NULL;
    eg_tensor *out =
        eg__shape_only(cx, o->out ? o->out : &(eg_shape){ dtype, r->rank, r->dim, NULL });
    if (!eg_ok(out) || !eg__target("einsum", out)) return NULL;
    if (!eg__out_fits(cx, out, dtype, r)) return NULL;
    const eg_tensor *target = r->out.changed ? eg_view_n(out, r->out.items, r->out.dim) : out;
    if (!eg_ok(target)) return NULL;

    const double alpha = eg_option(o->alpha, 1), beta = eg_option(o->beta, 0);
    if (!eg__factor_fits(cx, "alpha", alpha, dtype) || !eg__factor_fits(cx, "beta", beta, dtype))
        return NULL;
    eg_labelled in[EG_EINSUM_MAX] = { { 0 } },
                to = { target->rank, target->dim, target->stride, r->out.label };
    eg_dtype of[EG_EINSUM_MAX];
    size_t words = 2 * (size_t)out->rank;
    for (int k = 0; k < o->count; k++) {
        in[k] = (eg_labelled){ x[k]->rank, x[k]->dim, x[k]->stride, r->operand[k].label };
        words += 2 * (size_t)given[k]->rank;
        of[k] = (eg_dtype)x[k]->dtype;
    }
    const eg_contraction task = { dtype, of,  o->count,
                                  in,    &to, eg__order_of(o->path, o->steps, o->limit, 0) };
    eg_planning *planning = eg__planning(cx);
    eg_draft *d = planning ? &planning->draft : NULL;
    if (!d || !eg__draft(cx, &task, d)) return NULL;
    const size_t head =
        (sizeof(eg_plan) + (size_t)o->count * sizeof(eg_shape) + words * sizeof(int64_t) + 15) /
        16 * 16;
    eg_plan *p = malloc(head + eg__program_bytes(d));
    if (!p) return eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory: no room for a plan"), NULL;
    *p = (eg_plan){
        .alpha = alpha, .beta = beta, .count = o->count, .program = eg__program((char *)p + head, d)
    };
    int64_t *next = (int64_t *)(void *)&p->operand[o->count];
    p->out = plan_kept(out, &next);
    for (int k = 0; k < o->count; k++) p->operand[k] = plan_kept(given[k], &next);
    return p;
}

/* The error of the temporary context, which is closed before the return, is copied to .why. */
eg_plan *eg_plan_new_with(const eg_plan_args *given)
{
    eg_plan_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_ctx *cx = eg__context_open(&(eg_open_args){ .size = sizeof(eg_open_args), .threads = 1 });
    eg_nograd(cx, true);
    eg_plan *p = cx ? plan_make(cx, &o) : NULL;
    if (o.why && o.why_size)
        snprintf(o.why, o.why_size, "%s",
                 p              ? ""
                 : eg_error(cx) ? eg_error(cx)
                                : "einsum: failed without recording an error");
    eg_close(cx);
    return p;
}
void eg_plan_free(eg_plan *p) { free(p); }
const eg_shape *eg_plan_out(const eg_plan *p) { return p ? &p->out : NULL; }

/* beta other than 0 and 1 is applied first; the program then adds to out. */
int eg_plan_run(const eg_plan *p, const void *const *operands, void *out)
{
    if (!p || !operands || !out) return -1;
    eg_ctx temporary;
    eg__temporary_open(&temporary);
    if (p->beta != 0 && p->beta != 1)
        eg__scale_by(&(eg_tensor){ .cx = &temporary,
                                   .dtype = (uint8_t)p->out.dtype,
                                   .rank = (uint8_t)p->out.rank,
                                   .dim = (int64_t *)(uintptr_t)p->out.dim,
                                   .stride = (int64_t *)(uintptr_t)p->out.stride,
                                   .data = out },
                     p->beta);
    const bool good =
        eg__program_run(&temporary, p->program, operands, out, p->alpha, p->beta != 0, NULL, NULL);
    eg__temporary_close(&temporary);
    return good ? 0 : -1;
}

/* -- runs on tensors, which are checked -------------------------------------------------------- */
static bool plan_has_shape(const eg_tensor *x, const eg_shape *s)
{
    if (x->dtype != s->dtype || x->rank != s->rank) return false;
    for (int k = 0; k < s->rank; k++)
        if (x->dim[k] != s->dim[k] || (x->stride[k] != s->stride[k] && x->dim[k] > 1)) return false;
    return true;
}
/* Writes why operand k + 1, or out (k = −1), cannot be used, or how it differs from the shape that
 * the plan is for. Returns −1. */
static int plan_refused(const eg_plan *p, int k, const eg_tensor *x, char *why, size_t why_size)
{
    char what[32], dims[2][256], strides[2][256];
    const eg_shape *s = k < 0 ? &p->out : &p->operand[k];
    snprintf(what, sizeof what, k < 0 ? "out" : "operand %d", k + 1);
    if (!x || x->live != EG_LIVE || x->poison)
        return snprintf(why, why_size, "einsum: %s is %s", what,
                        !x          ? "NULL"
                        : x->poison ? "the result of an operation that failed"
                                    : "gone with its scope"),
               -1;
    snprintf(why, why_size,
             "einsum: %s is %s %s with strides %s, and the plan is for %s %s with strides %s", what,
             eg_type_name((eg_dtype)x->dtype), eg__dims_text(x, dims[0], sizeof dims[0]),
             eg__sizes_text(x->rank, x->stride, strides[0], sizeof strides[0]),
             eg_type_name(s->dtype), eg__sizes_text(s->rank, s->dim, dims[1], sizeof dims[1]),
             eg__sizes_text(s->rank, s->stride, strides[1], sizeof strides[1]));
    return -1;
}
/* Compares every tensor with the shape that was planned for, then runs the plan. */
int eg_plan_run_on(const eg_plan *p, eg_tensor *const *operands, eg_tensor *out, char *why,
                   size_t why_size)
{
    char nowhere[1];
    const void *data[EG_EINSUM_MAX];
    if (!why || !why_size) {
        why = nowhere;
        why_size = sizeof nowhere;
    }
    *why = 0;
    if (!p || !operands)
        return snprintf(why, why_size, "einsum: the %s NULL", p ? "operands are" : "plan is"), -1;
    eg_ctx *cx = out ? eg_context(out) : NULL;
    if (eg__capture_refuses(cx, "plan_run_on", "use eg_einsum_to"))
        return snprintf(why, why_size, "%s", eg_error(cx)), -1;
    for (int k = -1; k < p->count; k++) {
        const eg_tensor *x = k < 0 ? out : operands[k];
        if (!x || x->live != EG_LIVE || x->poison ||
            !plan_has_shape(x, k < 0 ? &p->out : &p->operand[k]))
            return plan_refused(p, k, x, why, why_size);
        if (x->copies)
            return snprintf(why, why_size, "einsum: a plan cannot run on tensors with copies"), -1;
        if (k < 0 && x->st->hold && !x->st->hold->writable)
            return snprintf(why, why_size, "einsum: out is read-only foreign memory"), -1;
        if (k < 0) continue;
        if (eg__overlap(out, x))
            return snprintf(why, why_size, "einsum: operand %d shares memory with out", k + 1), -1;
        data[k] = x->data;
    }
    if (eg_plan_run(p, data, out->data))
        return snprintf(why, why_size, "out of memory: no scratch for a plan"), -1;
    out->st->version++;
    return 0;
}
